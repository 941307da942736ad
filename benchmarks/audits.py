"""What audits are worth: threshold searches under `--stop early`, `auto` and `budget` on subjects whose curves are not bumps.

Every run is trained once, to its target or to the end of its budget, and what it looks like when the stopping rule gives it up
is noted on the way, so that all three searches are told of the same runs. A verdict differs if the threshold or its lower
bound is not that of full budgets.

    python -m benchmarks.audits                       the example of modular addition, and seven settings more: half an hour
    python -m benchmarks.audits --save runs.jsonl     keeps every run, and goes on from those it finds
    python -m benchmarks.audits --quick
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hard_curves import subject
from orchestrator.searches import Rows
from orchestrator.searches.audits import STOPS
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from trainables.spec import GIVEN_UP, RunSpec, family_key, run_key
from trainables.task import load_task
from trainables.training.loop import Training
from trainables.training.precision import quiet_cpu

Setting = Mapping[str, Any]

EXAMPLE = "ModularAddition, p = 11, 17"
SETTINGS: Mapping[str, Sequence[RunSpec]] = {
    EXAMPLE: [s for p in (11, 17) for s in subject("ModularAddition", p, (1,), (0, 1))],
    "ModularAddition, p = 17, weight decay 0.1": subject("ModularAddition", 17, (1,), (0, 1), weight_decay=0.1),
    "ModularAddition, p = 23, weight decay 0.3": subject("ModularAddition", 23, (1,), (0, 1), weight_decay=0.3),
    "SparseParity, 30 signs": subject("SparseParity", 30, (1,), (0, 1)),
    "DelayedXor, 30 signs": subject("DelayedXor", 30, (1,), (0, 1)),
    "NoisyLinear, 30 numbers": subject("NoisyLinear", 30, (1,), (0, 1), weight_decay=0.01, lr=1e-3),
    "FallsThenRises, 20 dimensions": subject("FallsThenRises", 20, (1,), (0, 1)),
    "LabelNoise, 30 dimensions": subject("LabelNoise", 30, (1,), (0, 1)),
}
"""Specs of which the searches vary the data count; a curve each."""


@dataclass
class Runs:
    """How runs end, trained when they are asked for."""

    file: Path | None = None

    def __post_init__(self) -> None:
        lines = self.file.read_text().splitlines() if self.file and self.file.exists() else []
        self._known = {RunSpec.from_dict(found["spec"]): found for found in map(json.loads, lines)}

    def __len__(self) -> int:
        return len(self._known)

    def row(self, spec: RunSpec, version: str) -> dict[str, Any]:
        """What a store would hold of this run."""
        found = self._run(spec.to_the_end())
        ended = found["given_up"] if spec.stop == "early" and found["given_up"] else found["end"]
        about = {"key": run_key(spec, version), "family": family_key(spec, version), "data_count": spec.data_count}
        return about | ended

    def _run(self, spec: RunSpec) -> dict[str, Any]:
        if spec not in self._known:
            self._known[spec] = found = train(spec)
            if self.file:
                with self.file.open("a") as file:
                    file.write(json.dumps(found) + "\n")
        return self._known[spec]


def train(spec: RunSpec) -> dict[str, Any]:
    """Train a `target` run: how it ends, and how it would have ended if it had been given up."""
    run, given_up = Training(spec, load_task(spec.task)), None
    while not run.advance(seconds=0):
        if given_up is None and run.given_up_step == run.step and run._measured is not None:
            accuracy = run._measured[1]["correct"]
            given_up = {"status": "missed", "reason": GIVEN_UP, "steps": run.step, "accuracy": accuracy}
    result = run.result()
    end = {name: getattr(result, name) for name in ("status", "reason", "steps", "accuracy")}
    return {"spec": spec.to_dict(), "given_up": given_up, "end": end}


def brackets(specs: Sequence[RunSpec]) -> list[Bracket]:
    task = load_task(specs[0].task)
    early = [dataclasses.replace(spec, stop="early") for spec in specs]
    return [Bracket(template=spec, task_version=task.version, counts=task.counts(spec)) for spec in early]


def search(specs: Sequence[RunSpec], stop: str, runs: Runs) -> list[ThresholdResult]:
    """The answer of one worker."""
    plan = brackets(specs)
    found, rows = ThresholdSearch(plan, stop=stop), Rows()
    while asked := found.propose(rows, 1):
        rows.add(runs.row(asked[0], plan[0].task_version))
    return found.answer(rows)


def thresholds(results: Sequence[ThresholdResult]) -> list[tuple[int | None, int | None]]:
    return [(r.lower, r.threshold) for r in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="add the runs to this file, and train none that it already has")
    parser.add_argument("--quick", action="store_true", help="one threshold with a budget of 500 steps")
    options = parser.parse_args()
    quiet_cpu()
    runs = Runs(options.save)
    quick = [dataclasses.replace(spec, max_steps=500) for spec in SETTINGS["DelayedXor, 30 signs"][:1]]
    print("| subject | thresholds (N, seed: lower, threshold), full budgets | differ: `early` | `auto` ", end="")
    print("| rule off | steps: `early` | `auto` | `budget` | `auto` / `budget` |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, specs in ({"quick": quick} if options.quick else SETTINGS).items():
        found = {stop: search(specs, stop, runs) for stop in STOPS}
        truth = thresholds(found["budget"])
        differ = {s: sum(a != b for a, b in zip(thresholds(found[s]), truth, strict=True)) for s in ("early", "auto")}
        steps = {stop: sum(r.steps for r in results) for stop, results in found.items()}
        listed = "; ".join(f"{r.N}, {r.seed}: {r.lower}, {r.threshold}" for r in found["budget"])
        off = "yes" if found["auto"][0].rule.flips else "no"
        cells = [name, listed, differ["early"], differ["auto"], off, steps["early"], steps["auto"], steps["budget"]]
        print("| " + " | ".join(map(str, [*cells, f"{steps['auto'] / steps['budget']:.2f}"])) + " |", flush=True)
    print(f"\n{len(runs)} runs were trained to their target or to the end of their budget.")


if __name__ == "__main__":
    main()
