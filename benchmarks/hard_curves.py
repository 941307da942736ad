"""Curves that are hard for a stopping rule: full-budget runs of subjects that are not bumps, and bumps that fail.

Trains every run until it passes or its whole budget is spent, and keeps per look what a rule may want to see. `--save` keeps
every finished run and goes on from those it finds.

    python -m benchmarks.hard_curves --quick
    python -m benchmarks.hard_curves --save hard.jsonl
    python -m benchmarks.hard_curves --bumps mlp --failing 330 --save bumps.jsonl
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.stopping import probes, replay, table, train
from trainables.settings import spec_fields
from trainables.spec import RunSpec, Scalar
from trainables.task import load_task
from trainables.training.precision import quiet_cpu

BUMP_SHARES = {"mlp": (0.55, 0.7, 0.8, 0.88, 0.95), "cnn": (0.6, 0.75, 0.85, 0.93)}
"""Data counts of bumps, as shares of the expected threshold."""
BUMP_SIZES = {"mlp": {12: 1, 16: 1, 20: 1, 24: 1}, "cnn": {8: 1, 12: 1, 16: 1}}
"""Grid sizes of bumps, and of how many seeds one is trained: 2 means every second."""

GROKKING = {"weight_decay": 1.0, "lr": 3e-3, "batch_size": 64, "max_steps": 3000, "target": 0.9}
"""Settings of all subjects where nothing else is said: with them, small networks find a rule after they know every sample."""


def subject(
    name: str, N: int, counts: Iterable[int], seeds: Iterable[int], options: Mapping[str, Scalar] | None = None, **changes: Any
) -> list[RunSpec]:
    """Full-budget specs of a class in `benchmarks.subjects`, for every seed and data count."""
    path = f"benchmarks.subjects:{name}"
    task = load_task(path)
    base = spec_fields(task, options or {}) | GROKKING | {"task": path, "N": N, "stop": "budget"}
    return [RunSpec(**base | changes | {"seed": seed, "data_count": count}) for seed in seeds for count in counts]


def modular(p: int, shares: Iterable[float], seeds: Iterable[int], **changes: Any) -> list[RunSpec]:
    """Additions modulo p, with these shares of all pairs as training sets."""
    return subject("ModularAddition", p, [round(share * p**2) for share in shares], seeds, **changes)


def plan() -> dict[str, list[RunSpec]]:
    """Runs to choose a rule on, and runs with other seeds, and settings of their own, to verify it on."""
    one, two = (0, 1), (2, 3)
    ten = [0.4 + 0.4 * i / 9 for i in range(10)]
    slow = {"weight_decay": 0.01, "lr": 1e-3}
    sure: dict[str, Scalar] = {"margin": 1.0, "agrees": 0.95}
    weak: dict[str, Scalar] = {"margin": 0.0, "strength": 1.0, "agrees": 0.8, "agrees_held_out": 0.2}
    selection = [
        *modular(17, ten, one),
        *modular(11, ten, one),
        *modular(23, (0.4, 0.47, 0.54, 0.6, 0.68), one),
        *[s for p in (11, 17, 23) for s in modular(p, (0.65, 0.75, 0.85, 0.9), one, weight_decay=0.1)],
        *[s for p in (11, 17, 23) for s in modular(p, (0.7, 0.9), one, weight_decay=0.01)],
        *subject("SparseParity", 30, (400, 450, 500, 550, 600, 700), one),
        *subject("SparseParity", 20, (300, 350, 400, 500), one, {"bits": 4}, lr=1e-3),
        *subject("DelayedXor", 30, (150, 175, 200, 225, 250, 300), one),
        *subject("DelayedXor", 40, (200, 250, 300, 350), one, lr=1e-3),
        *subject("DelayedXor", 40, (300, 400, 500), one, weight_decay=0.1),
        *subject("NoisyLinear", 30, (60, 90, 100, 120, 150), one, **slow),
        *subject("NoisyLinear", 30, (150, 250, 400), one, lr=3e-4),
        *subject("FallsThenRises", 20, (200, 250, 300, 350, 400, 500), one),
        *subject("FallsThenRises", 20, (150, 200, 300), one, sure),
        *subject("FallsThenRises", 20, (1000, 2000), one, weak),
        *subject("LabelNoise", 30, (200, 400, 600), one),
        *subject("LabelNoise", 30, (300, 400, 500, 600), one, weight_decay=3),
        *subject("LabelNoise", 30, (300, 500), one, weight_decay=0.01),
        *subject("LabelNoise", 30, (1000, 2000), one, weight_decay=3, width=256, target=0.96, schedule="cosine"),
    ]
    verification = [
        *[s for p in (11, 17) for s in modular(p, (0.45, 0.52, 0.58, 0.64, 0.7, 0.76), two)],
        *modular(23, (0.42, 0.46, 0.5, 0.56, 0.62), two),
        *[s for p in (13, 19) for s in modular(p, (0.48, 0.55, 0.61, 0.67, 0.73), two)],
        *[s for p in (11, 17, 23) for s in modular(p, (0.6, 0.7, 0.8, 0.9), two, weight_decay=0.3)],
        *[s for p in (17, 23) for s in modular(p, (0.8, 0.88), two, weight_decay=0.1)],
        *[s for p in (17, 23) for s in modular(p, (0.85,), two, weight_decay=0.01)],
        *modular(17, (0.5, 0.6, 0.7), two, weight_decay=3),
        *modular(17, (0.6, 0.7, 0.8), two, lr=1e-3),
        *modular(17, (0.6, 0.7), two, width=128),
        *modular(17, (0.6, 0.7), two, batch_size=32),
        *modular(17, (0.6, 0.7), two, depth=2),
        *subject("SparseParity", 30, (475, 525, 575, 650), two),
        *subject("SparseParity", 40, (600, 800, 1000), two),
        *subject("SparseParity", 40, (100, 150, 200), two, {"bits": 2}),
        *subject("SparseParity", 30, (600, 800), two, weight_decay=0.3),
        *subject("DelayedXor", 30, (160, 190, 220, 260), two),
        *subject("DelayedXor", 50, (300, 400, 500), two),
        *subject("DelayedXor", 30, (200, 250, 300, 350), two, {"agrees_held_out": 0.75}),
        *subject("DelayedXor", 30, (200, 300), two, depth=2),
        *subject("NoisyLinear", 20, (60, 90, 120), two, {"noise": 0.3, "tolerance": 0.3}, **slow),
        *subject("NoisyLinear", 40, (100, 130, 160), two, **slow),
        *subject("FallsThenRises", 20, (225, 275, 325, 450), two),
        *subject("FallsThenRises", 30, (300, 450, 600), two),
        *subject("FallsThenRises", 20, (250, 350), two, lr=1e-3),
        *subject("LabelNoise", 30, (300, 500), two, {"wrong": 0.1}),
        *subject("LabelNoise", 30, (250, 450), two, {"wrong": 0.1}, weight_decay=3),
        *subject("LabelNoise", 40, (600, 800), two, width=64),
        *subject("LabelNoise", 30, (1500,), two, weight_decay=3, width=128, target=0.96, schedule="cosine"),
    ]
    return {"selection": selection, "verification": verification}


def bumps(decoder: str, sizes: Mapping[int, int]) -> Iterator[tuple[str, RunSpec]]:
    """Bumps below their expected threshold, seed after seed, without end."""
    for seed in itertools.count(100):
        for N in (N for N, every in sizes.items() if seed % every == 0):
            for spec in probes(decoder, (N,), (seed,), BUMP_SHARES[decoder]):
                yield "bumps", spec


def collect(runs: Iterable[tuple[str, RunSpec]], file: Path | None, failing: float = math.inf) -> list[dict[str, Any]]:
    """Records of `runs`, from `file` or trained now and added to it, until so many of them are `failing`."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    done = {RunSpec.from_dict(r["spec"]): r for r in known}
    records: list[dict[str, Any]] = []
    missed = 0
    for part, spec in runs:
        if missed >= failing:
            break
        found = done.get(spec)
        if found is None:
            found = train(part, spec)
            if file:
                with file.open("a") as stream:
                    stream.write(json.dumps(found) + "\n")
            name = spec.task.partition(":")[2]
            print(
                f"{name} {spec.decoder} N={spec.N} D={spec.data_count} decay={spec.weight_decay:g} seed={spec.seed}: "
                f"accuracy {found['whole'][-1]:.3f}, passage {found['passage_step']}, {found['seconds']:.1f} s",
                flush=True,
            )
        records.append(found)
        missed += found["passage_step"] is None
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="add the curves to this file, and train no run that it already has")
    parser.add_argument("--quick", action="store_true", help="eight runs of the subjects, a third of their steps: some seconds")
    parser.add_argument("--bumps", choices=("cnn", "mlp"), help="bumps with this decoder instead of the subjects")
    parser.add_argument("--sizes", help="of --bumps; 8:1,16:2 has N = 8 with every seed and N = 16 with every second")
    parser.add_argument("--failing", type=float, default=math.inf, help="of --bumps: end with so many runs that never pass")
    options = parser.parse_args()
    quiet_cpu()
    runs: Iterable[tuple[str, RunSpec]] = ((part, spec) for part, specs in plan().items() for spec in specs)
    if options.bumps:
        sizes = BUMP_SIZES[options.bumps]
        if options.sizes:
            sizes = {int(N): int(every) for N, _, every in (part.partition(":") for part in options.sizes.split(","))}
        runs = bumps(options.bumps, sizes)
    elif options.quick:
        runs = [("quick", dataclasses.replace(spec, max_steps=1000)) for spec in plan()["selection"][::24]]
    print(table([replay(found) for found in collect(runs, options.save, options.failing)]))


if __name__ == "__main__":
    main()
