"""How often the stopping rule gives another verdict than the full budget, and how many steps it saves.

Trains probes around the expected thresholds until they pass or their whole budget is spent, then replays the rule on their
curves. The whole plan takes one core about an hour; `--save` keeps every finished probe and goes on from those it finds.

    python -m benchmarks.stopping --quick
    python -m benchmarks.stopping --save curves.jsonl
    python -m benchmarks.stopping --replay curves.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.stats import beta

from trainables.bumps import BumpTask
from trainables.spec import GIVEN_UP, RunSpec
from trainables.task import Split, load_task
from trainables.training.loop import Training
from trainables.training.precision import fastest_precision, quiet_cpu

TASK = BumpTask()
SHARES = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.3)
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


def stripes(decoder: str, sizes: Iterable[int], seeds: Iterable[int], counts: Iterable[int], **changes: Any) -> list[RunSpec]:
    """Stripes and so many bumps, judged in the central box. Target 0.99: most runs pass 0.9 within 60 steps."""
    base = {"dataset": "stripes+bumps", "holdout": "center", "target": 0.99} | changes
    return [p for count in counts for p in probes(decoder, sizes, seeds, (1,), **base, data_count=count)]


def plan() -> dict[str, list[RunSpec]]:
    """The probes on which the rule was chosen, and those trained after it was settled."""
    real, strict, absent = (
        {"options": tuple({**TASK.defaults, name: value}.items())}
        for name, value in (("centres", "real"), ("tolerance", 0), ("absent", "minus-one"))
    )
    selection = [
        *probes("mlp", (12, 16, 20, 24, 28, 32), (0, 1)),
        *probes("mlp", (12, 16, 20, 24, 28), (2, 3), (0.8, 0.9, 0.95, 1, 1.05)),
        *probes("mlp", (40,), (0, 1), (0.7, 0.9, 1, 1.1)),
        *stripes("mlp", (16, 24), (0,), (0, 4, 16, 64)),
        *stripes("mlp", (16, 24), (0, 1), (0, 8, 64), **strict),
        *stripes("mlp", (16, 24), (0, 1), (16,), encoding="ramp", target=0.9, **absent),
        *stripes("mlp", (16, 24), (0, 1), (16,), encoding="positional"),
        *probes("mlp", (16, 24), (0,), (1, 2), holdout="center"),
        *probes("mlp", (16, 24), (1,), (1,), holdout="center"),
        *probes("mlp", (16, 24), (1,), (1,), holdout="corner"),
        *probes("mlp", (16,), (0,), (1, 2, 3, 4, 6), **real),
        *probes("mlp", (16, 24), (0,), (0.3, 0.4, 0.5, 0.6), target=0.6),
        *probes("mlp", (16,), (0,), (0.7, 1, 1.5, 2.2, 3), encoding="one-hot"),
        *probes("mlp", (16,), (0,), (0.7, 1, 1.5, 2.2, 3), encoding="positional"),
        *probes("mlp", (16, 24), (0,), (0.7, 0.9, 1, 1.1, 1.3), depth=4),
        *probes("cnn", (16, 20), (0,)),
        *probes("cnn", (24,), (0,), (0.5, 0.7, 0.9, 1, 1.1)),
        *probes("cnn", (20,), (1,), (1, 1.1)),
        *probes("cnn", (16,), (0,), (0.92,)),
    ]
    verification = [
        *probes("mlp", (16, 20, 24), (6, 7), (0.92, 0.97, 1.02)),
        *probes("mlp", (20, 24), (4, 5), (0.85, 0.95, 1)),
        *probes("mlp", (32,), (2, 3), (0.85, 0.95, 1)),
        *probes("mlp", (12, 16, 24), (1,), (0.8, 1.2, 1.6, 2), **real),
        *probes("mlp", (24,), (0,), (0.8, 1.2, 1.6, 2), **real),
        *probes("mlp", (16, 24), (1,), (0.3, 0.35, 0.4, 0.5), target=0.6),
        *probes("mlp", (16,), (1,), (1.2, 1.7, 1.9, 2.1), encoding="one-hot"),
        *probes("mlp", (24,), (0, 1), (1.2, 1.8), encoding="one-hot"),
        *probes("mlp", (16,), (1,), (0.6, 0.75, 0.9, 1), encoding="positional"),
        *probes("mlp", (24,), (0, 1), (0.8, 1), encoding="positional"),
        *probes("mlp", (16, 24), (1,), (0.7, 0.9, 1, 1.1), depth=4),
        *probes("mlp", (16,), (0, 1), (0.8, 0.9, 1.05), lr=3e-4),
        *probes("mlp", (16,), (0, 1), (0.8, 0.9, 1.05), lr=3e-3),
        *probes("cnn", (20,), (1,), (0.75, 0.9)),
        *probes("cnn", (16,), (1,), (0.85, 0.92, 1, 1.08)),
        *probes("cnn", (16,), (2, 3, 4, 5, 6), (0.92, 1, 1.08)),
        *stripes("cnn", (16,), (0, 1), (8,)),
        *probes("cnn", (16,), (1,), (0.4, 0.55), target=0.6),
        *probes("cnn", (16,), (0,), (1.5,), holdout="center"),
        *probes("cnn", (16,), (1,), (1.2, 1.8), **real),
    ]
    return {"selection": selection, "verification": verification}


def train(part: str, spec: RunSpec) -> dict[str, Any]:
    """Train until the run passes or its whole budget is spent: spec, curves and verdict, as plain values.

    A value per look: `accuracy` is that of the subset a run looks at, `whole` that of the whole held-out set, and `chance` that
    of the subset when every output is judged as if it belonged to another sample. `norm` is that of all parameters.
    """
    start = time.perf_counter()
    run = Training(spec, load_task(spec.task))
    inputs, targets, truth = run.subset
    rolled = Split(inputs, targets.roll(1, 0), truth.roll(1, 0))
    small = len(run.held_out.inputs) == len(inputs)
    whole: list[float] = []
    norm: list[float] = []
    chance: list[float] = []
    while not run.reason and run.passage_step is None:
        run.advance(seconds=0)
        if len(whole) < len(run.curve_step):
            whole.append(run.curve_accuracy[-1] if small else run._measure(run.held_out)["correct"])
            norm.append(run.weight_norm())
            chance.append(run._measure(rolled)["correct"])
    return {
        "part": part,
        "spec": spec.to_dict(),
        "step": run.curve_step,
        "loss": run.curve_loss,
        "accuracy": run.curve_accuracy,
        "error": run.curve_error,
        "whole": whole,
        "norm": norm,
        "chance": chance,
        "variance": run.variance,
        "passage_step": run.passage_step,
        "seconds": time.perf_counter() - start,
    }


@dataclasses.dataclass
class Replay:
    """A probe under the full budget and under the rule."""

    part: str
    spec: RunSpec
    passage: int | None
    """Step at which it passes if nothing ends it; None if never."""
    passes: bool
    """Whether it still does under the rule."""
    steps: int
    """Steps it then takes."""
    given_up: bool

    @property
    def differs(self) -> bool:
        return self.passes != (self.passage is not None)

    @property
    def group(self) -> str:
        """What the probe is; of bumps also in what it differs from the scaling study's defaults."""
        spec, bumps = self.spec, self.spec.dataset == "bumps"
        if not spec.task.endswith(":BumpTask"):
            return spec.task.partition(":")[2]
        words = [spec.decoder.upper(), spec.dataset]
        words += [spec.encoding] * (spec.encoding != "bump")
        words += ["box held out"] * (bumps and spec.holdout != "random")
        words += ["real centres"] * (spec.option("centres") == "real")
        words += [f"depth {spec.depth}"] * (spec.depth != 2)
        words += ["other learning rate"] * (spec.lr != 1e-3)
        words += [f"target {spec.target:g}"] * (bumps and spec.target != 0.9)
        return ", ".join(words)


def replay(record: dict[str, Any]) -> Replay:
    """Look at the recorded curves as an early-stopping run would."""
    spec = RunSpec.from_dict(record["spec"])
    run = Training(dataclasses.replace(spec, stop="early"), load_task(spec.task))
    for point, loss in enumerate(record["loss"]):
        stretch = run.steps_to_look
        run.step += stretch
        run.loss_sum = torch.tensor(loss * stretch, dtype=torch.float64)
        run.weight_norm = lambda norm=record["norm"][point]: norm  # type: ignore[method-assign, misc]
        questions = run.look()
        with contextlib.suppress(StopIteration):
            split = next(questions)
            while True:
                name = "accuracy" if split is run.subset else "whole" if split is run.held_out else "chance"
                split = questions.send({"correct": record[name][point], "squared_error": record["error"][point]})
        if run.reason:
            break
    passes = run.passage_step is not None
    return Replay(record["part"], spec, record["passage_step"], passes, run.step, run.reason == GIVEN_UP)


def line(name: str, probes: Sequence[Replay]) -> str:
    """One line of the table; `of all` counts passing runs with the steps they take until they pass."""
    failing = [p for p in probes if p.passage is None]
    passages = [p.passage for p in probes if p.passage is not None]
    sizes = ", ".join(str(N) for N in sorted({p.spec.N for p in probes}))
    given_up = sum(p.given_up for p in probes)
    cells = [name, sizes, len(probes), len(passages), given_up, sum(p.differs for p in probes)]
    cells += [saved(failing), saved(probes), round(sum(p.steps for p in failing) / len(failing)) if failing else ""]
    return "| " + " | ".join(str(cell) for cell in [*cells, max(passages, default="")]) + " |"


def saved(probes: Sequence[Replay]) -> str:
    """Share of the budgets of `probes` that is not used."""
    return (
        f"{1 - sum(p.steps for p in probes) / sum(p.spec.max_steps for p in probes):.0%}".replace("%", " %") if probes else ""
    )


def table(probes: Sequence[Replay]) -> str:
    """Verdicts that differ and steps saved, by group, by part of the plan and in all; then every verdict that differs."""
    lines = [
        "| probes | N | number | pass in the budget | given up | of these, pass in the budget | steps saved on failing runs "
        "| of all | mean steps of a failing run | latest passage |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for kind in ("group", "part"):
        for name in sorted({getattr(p, kind) for p in probes}):
            lines.append(line(name, [p for p in probes if getattr(p, kind) == name]))
    lines.append(line("**all**", probes))
    wrong, given_up = [p for p in probes if p.differs], sum(p.given_up for p in probes)
    bound = beta.ppf(0.95, len(wrong) + 1, given_up - len(wrong)) if given_up > len(wrong) else 1.0
    lines += [
        "",
        f"{len(wrong)} of {given_up} runs that were given up pass: under {100 * bound:.1f} % "
        "(95 %, Clopper-Pearson, one-sided).",
    ]
    for p in wrong:
        lines.append(
            f"- {p.group}, N = {p.spec.N}, {p.spec.data_count} images, seed {p.spec.seed}: "
            f"passes at {p.passage}, stopped at {p.steps}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoder", choices=("cnn", "mlp"), help="train only this decoder's probes of the plan")
    parser.add_argument("--save", type=Path, help="add the curves to this file, and train no probe that it already has")
    parser.add_argument("--replay", type=Path, nargs="+", help="train nothing, replay the rule on saved curves")
    parser.add_argument("--quick", action="store_true", help="two sizes of the MLP, one seed: about half a minute")
    options = parser.parse_args()
    quiet_cpu()
    parts = {"quick": probes("mlp", (12, 16), (0,))} if options.quick else plan()
    files = options.replay or [path for path in [options.save] if path and path.exists()]
    records = [json.loads(text) for path in files for text in path.read_text().splitlines()]
    done = {RunSpec.from_dict(record["spec"]) for record in records}
    todo = [(part, s) for part, specs in parts.items() for s in specs if options.decoder in (None, s.decoder) and s not in done]
    for part, spec in [] if options.replay else todo:
        records.append(train(part, spec))
        last = records[-1]
        if options.save:
            with options.save.open("a") as file:
                file.write(json.dumps(last) + "\n")
        print(
            f"{spec.decoder} {spec.dataset} N={spec.N} D={spec.data_count} seed={spec.seed}: "
            f"accuracy {last['whole'][-1]:.3f}, passage {last['passage_step']}, {last['seconds']:.1f} s",
            flush=True,
        )
    print(table([replay(record) for record in records]))


if __name__ == "__main__":
    main()
