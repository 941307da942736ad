"""How often the stopping rule gives another verdict than the full budget, and how many steps it saves.

Trains probes around the expected threshold to their full budget, then replays the rule on their curves.

    python -m benchmarks.stopping --quick
    python -m benchmarks.stopping --decoder mlp --N 16,24,32 --seeds 4 --save curves.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from orchestrator.spec import TRAINING_VERSION, RunSpec, parse_grid
from trainables.bumps import BumpTask
from trainables.stopping import EVAL_EVERY, has_converged, target_variance
from trainables.training import Training, fastest_precision, quiet_cpu

TASK = BumpTask()
SHARES = (0.4, 0.6, 0.75, 0.9, 1.0, 1.1, 1.3)
"""Data counts to try, as shares of the expected threshold."""


def expected_threshold(decoder: str, N: int) -> float:
    """Rough threshold for bumps alone, whole grid, 1 px, target 0.9."""
    return 0.28 * N**2 if decoder == "mlp" else 52 * (N / 16) ** 1.56


def probes(
    decoder: str, sizes: Iterable[int], seeds: Iterable[int], shares: Sequence[float] = SHARES, **changes: Any
) -> list[RunSpec]:
    """Full-budget specs at `shares` of the expected threshold, for every size and seed."""
    base: dict[str, Any] = {
        "task": "trainables.bumps:BumpTask",
        "dataset": "bumps",
        "decoder": decoder,
        "width": 256 if decoder == "mlp" else 64,
        "options": tuple(TASK.defaults.items()),
        "stop": "budget",
        "precision": fastest_precision(decoder),
    }
    return [
        RunSpec(**base | {"N": N, "seed": seed, "data_count": round(share * expected_threshold(decoder, N))} | changes)
        for N in sizes
        for seed in seeds
        for share in shares
    ]


def train_curve(spec: RunSpec) -> dict[str, Any]:
    """Spec, curve, verdict and seconds of a full-budget run, as plain values."""
    start = time.perf_counter()
    run = Training(spec, TASK)
    offsets = []
    while not run.advance(seconds=0):
        if run.step % EVAL_EVERY == 0:
            offsets.append(run.offset)
    result = run.result()
    return {
        "spec": spec.to_dict(),
        "loss": result.curve_loss,
        "accuracy": result.curve_accuracy,
        "offset": [0.0, *offsets],
        "passage_step": result.passage_step,
        "final_accuracy": result.accuracy,
        "seconds": time.perf_counter() - start,
    }


def replay(curve: dict[str, Any]) -> tuple[bool, int]:
    """Whether the run still passes under the rule, and the steps it then takes."""
    spec = curve["spec"]
    variance = target_variance(TASK.data(RunSpec.from_dict(spec)).train.targets)
    passage = curve["passage_step"] or spec["max_steps"] + 1
    for points in range(1, len(curve["loss"]) + 1):
        step = min(points * EVAL_EVERY, spec["max_steps"])
        if step >= passage:
            return True, step
        loss, accuracy = curve["loss"][:points], curve["accuracy"][:points]
        target = spec["target"] - (curve["offset"][points - 1] if "offset" in curve else 0)
        if has_converged(loss, accuracy, target, spec["max_steps"], variance):
            return False, step
    return False, spec["max_steps"]


def report(curves: Sequence[dict[str, Any]]) -> str:
    """Verdicts that differ, steps saved, and the latest passages, in words."""
    verdicts = [replay(c) for c in curves]
    passed = [c["passage_step"] is not None for c in curves]
    wrong = [c for c, p, (now, _) in zip(curves, passed, verdicts, strict=True) if p != now]
    failing = [(steps, c["spec"]["max_steps"]) for c, p, (_, steps) in zip(curves, passed, verdicts, strict=True) if not p]
    used, budget = sum(s for _, s in verdicts), sum(c["spec"]["max_steps"] for c in curves)
    first = sum(c["passage_step"] or c["spec"]["max_steps"] for c in curves)
    lines = [
        f"rule {TRAINING_VERSION}: {len(curves)} probes, {sum(passed)} pass within their budget",
        f"verdicts that differ: {len(wrong)} ({len(wrong) / len(curves):.1%})",
        f"steps used: {used / budget:.0%} of the budget (stopping passing runs alone: {first / budget:.0%})",
    ]
    if failing:
        lines.append(f"steps saved on failing runs: {1 - sum(s for s, _ in failing) / sum(b for _, b in failing):.0%}")
    late = sorted((c["passage_step"] for c in curves if c["passage_step"]), reverse=True)[:5]
    lines.append(f"latest passages at steps {', '.join(map(str, late))}" if late else "no probe passed")
    for c in wrong:
        s = c["spec"]
        name = f"{s['decoder']} {s['encoding']} N={s['N']} D={s['data_count']} seed={s['seed']}"
        lines.append(f"  differs: {name}, passed at {c['passage_step']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoder", choices=("cnn", "mlp"), default="mlp")
    parser.add_argument("--N", default="16,24,32", help="grid sizes, as in 16..32 or 16,24 (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per size (default %(default)s)")
    parser.add_argument("--encoding", choices=TASK.choices["encoding"], default="bump")
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--max-steps", type=int, default=2000)
    parser.add_argument("--save", type=Path, help="write the curves to this JSON file")
    parser.add_argument("--replay", type=Path, nargs="+", help="train nothing, replay the rule on saved curves")
    parser.add_argument("--quick", action="store_true", help="two sizes of the MLP, one seed: about ten seconds")
    options = parser.parse_args()
    quiet_cpu()
    if options.replay:
        curves = [curve for path in options.replay for curve in json.loads(path.read_text())]
    else:
        sizes, seeds = ((16, 24), 1) if options.quick else (parse_grid(options.N), options.seeds)
        specs = probes(
            options.decoder,
            sizes,
            range(seeds),
            target=options.target,
            max_steps=options.max_steps,
            encoding=options.encoding,
        )
        curves = []
        for spec in specs:
            curves.append(train_curve(spec))
            if options.save:
                options.save.write_text(json.dumps(curves))
            last = curves[-1]
            print(
                f"N={spec.N} D={spec.data_count} seed={spec.seed}: accuracy {last['final_accuracy']:.3f}, "
                f"passage {last['passage_step']}, {last['seconds']:.1f} s",
                flush=True,
            )
    print(report(curves))


if __name__ == "__main__":
    main()
