"""The question that every tool is asked, and the one training function that all of them call.

Numbers of images are totals here: the bumps drawn plus the stripes that are always present.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.precision import fastest_precision, quiet_cpu

SENSIBLE_LOW = 0.03
"""Nobody expects fewer bumps than this share of all positions to be enough (about N, for the sizes asked)."""

_seeding = threading.Lock()


class Look(NamedTuple):
    """One point of a training's curve."""

    step: int
    accuracy: float
    passed: bool


@dataclass(frozen=True)
class Threshold:
    """One threshold to be found: least total of images, between `low` and `high`, that passes."""

    template: RunSpec
    low: int
    high: int
    fixed: int
    resolution: float

    @property
    def name(self) -> str:
        return f"{self.template.dataset} {self.template.N} {self.template.seed}"

    def grid(self) -> list[int]:
        """All totals from low to high, neighbours adjacent or as far apart as the resolution allows."""
        totals = [self.low]
        while totals[-1] < self.high:
            totals.append(min(self.high, max(totals[-1] + 1, int(totals[-1] / (1 - self.resolution)))))
        return totals

    def spec(self, total: int, stop: str = "budget") -> RunSpec:
        return dataclasses.replace(self.template, data_count=total - self.fixed, stop=stop)

    def close(self, lower: int, upper: int) -> bool:
        return upper - lower <= 1 or (upper - lower) / upper <= self.resolution


@dataclass(frozen=True)
class Answer:
    """Least total that passed (None: none did), the largest tried below it, and whether that settles it to the resolution."""

    total: int | None
    lower: int | None
    settled: bool


def read_answer(threshold: Threshold, tried: Mapping[int, bool]) -> Answer:
    """What a researcher reads off the trials of a tool: whether each total passed before it ended or was ended.

    A trial that the tool itself stopped has not passed. Such trials above a passing one say nothing (they were stopped
    because others were better), so they are passed over.
    """
    total = min((t for t, passed in tried.items() if passed), default=None)
    lower = max((t for t in tried if total is None or t < total), default=None)
    if total is None:
        return Answer(None, lower, settled=lower == threshold.high)
    return Answer(total, lower, settled=total == threshold.low if lower is None else threshold.close(lower, total))


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything that a tool's process is told. `ledger` is the file in which trainings are counted."""

    N: tuple[int, ...]
    datasets: tuple[str, ...]
    seeds: int
    decoder: str
    resolution: float
    target: float
    max_steps: int
    cores: int
    limit: float
    """Seconds after which a tool that may be cut off is."""
    folder: str
    repeat: int = 0

    @property
    def file(self) -> Path:
        return Path(self.folder) / "question.json"

    @property
    def ledger(self) -> Path:
        return Path(self.folder) / "ledger"

    def thresholds(self) -> list[Threshold]:
        task = BumpTask()
        found = []
        for dataset in self.datasets:
            subject = spec_fields(task, {"dataset": dataset, "decoder": self.decoder})
            for N in self.N:
                for seed in range(self.seeds):
                    spec = RunSpec(
                        task="trainables.bumps:BumpTask", N=N, data_count=0, seed=seed, **subject, target=self.target,
                        max_steps=self.max_steps, precision=fastest_precision(self.decoder),
                    )  # fmt: skip
                    counts = task.counts(spec)
                    low = counts.fixed + counts.low if counts.fixed else int(SENSIBLE_LOW * N**2)
                    found.append(Threshold(spec, low, counts.fixed + counts.high, counts.fixed, self.resolution))
        return found

    def save(self) -> None:
        self.file.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, file: str | Path) -> Question:
        values = json.loads(Path(file).read_text())
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def train(spec: RunSpec, ledger: Path) -> Iterator[Look]:
    """Train `spec`, looking every 20 steps, until it first passes, its own stopping rule ends it (`stop="early"`), its budget
    is spent, or nobody asks for the next look. Every look is a line in the ledger, so that killed trainings count too."""
    quiet_cpu()
    task, run = BumpTask(), uuid.uuid4().hex
    with _seeding:  # the initial weights are drawn from a generator that all threads share
        training = Training(spec, task)
    name = f"{run} {spec.dataset} {spec.N} {spec.seed} {task.counts(spec).fixed + spec.data_count}"
    with ledger.open("a", buffering=1) as file:
        file.write(f"{name} 0 0\n")
        finished, points = False, 0
        while not finished:
            finished = training.advance(0.0)
            if len(training.curve_step) > points:
                points = len(training.curve_step)
                look = Look(training.step, training.curve_accuracy[-1], training.passage_step is not None)
                file.write(f"{name} {look.step} {look.passed:d}\n")
                yield look
                if look.passed:
                    return


def passes(spec: RunSpec, ledger: Path) -> bool:
    """Train to the end; whether it passed."""
    return [look.passed for look in train(spec, ledger)][-1]


class Trainings(NamedTuple):
    """What a ledger holds."""

    number: int
    steps: int
    tried: dict[str, dict[int, bool]]
    """Per threshold: total -> passed."""


def read_ledger(file: Path) -> Trainings:
    last: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        run, *rest = line.split()
        last[run] = rest
    tried: dict[str, dict[int, bool]] = defaultdict(dict)
    for dataset, N, seed, total, _, passed in last.values():
        seen = tried[f"{dataset} {N} {seed}"]
        seen[int(total)] = seen.get(int(total), False) or passed == "1"
    return Trainings(len(last), sum(int(rest[4]) for rest in last.values()), dict(tried))


def cores_here() -> int:
    return len(os.sched_getaffinity(0))
