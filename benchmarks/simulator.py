"""A thousand workers on a virtual clock: the real search, packs, execution and store, and how long workers wait.

    python -m benchmarks.simulator            1,000 workers, about 100,000 runs
    python -m benchmarks.simulator --quick    50 workers, about 1,000 runs

Only the training is simulated: how a run ends is that of `benchmarks.threshold_search` (noise 0.03), and its duration, in
virtual seconds, grows with the number of pixels and is three times as long for a run that does not pass. Workers report as
the trainable does: what has ended at the end of each slice of two seconds. They are driven as Tune drives them, by
`Execution.next_pack` and `on_report`. Real time is CPU time of this one process; the store lies in memory (/dev/shm) where
there is such a place. An hour of such a cluster passes in seconds, so its rows are gathered, 64 to a durable write; the engine
writes when a worker reports, as `--gather 1` does. What a write costs, `fsync` included, is in `benchmarks.store`.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.threshold_search import Runs, World, brackets, counts, real_duration
from orchestrator.engine.execution import Execution, Limits
from orchestrator.engine.messages import PackReport, RunReport
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.engine.ray_tune import SLICE_SECONDS
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore
from trainables.spec import RunSpec

SIZES = tuple(range(8, 129, 8))
NOISE = 0.03
STEPS = 100
"""Of a run that passes; one that does not takes three times as many."""


class Simulated:
    """What execution and packing ask of a task; nothing is trained."""

    version = "1"
    packable = ()

    def counts(self, spec: RunSpec) -> Any:
        return counts(spec.N)


def plan(sizes: Sequence[int], seeds: int, curves: int) -> list[Bracket]:
    """A bracket for every grid size and seed, on every curve: as many decoders, targets or encodings."""
    return [
        dataclasses.replace(b, template=dataclasses.replace(b.template, options=(("curve", curve),)))
        for curve in range(curves)
        for b in brackets(sizes, range(seeds))
    ]


class Truth:
    """How every run of a plan ends."""

    def __init__(self) -> None:
        self._runs: dict[tuple[int, int, int], Runs] = {}

    def __call__(self, spec: RunSpec) -> tuple[bool, float]:
        curve = int(spec.option("curve"))
        bracket = curve, spec.N, spec.seed
        if bracket not in self._runs:
            self._runs[bracket] = World(curve, NOISE).runs(spec.N, spec.seed)
        return self._runs[bracket](spec.data_count)


def report_of(spec: RunSpec, passed: bool, accuracy: float, seconds: float) -> RunReport:
    """What a worker tells of a run that ended."""
    steps = STEPS if passed else 3 * STEPS
    points = range(20, steps + 1, 20)
    curve = [accuracy] * len(points)
    result = {
        "status": "passed" if passed else "missed",
        "reason": "target" if passed else "budget",
        "steps": steps,
        "passage_step": steps if passed else None,
        "accuracy": accuracy,
        "curve_step": points,
        "curve_loss": curve,
        "curve_accuracy": curve,
        "curve_error": curve,
    }
    return RunReport(result=result, seconds=seconds, host="virtual", device="virtual")


@dataclass
class Tally:
    """CPU seconds of this process and calls, by what they were spent on; and what the observer was told."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    keys: set[str] = field(default_factory=set)
    twice: int = 0
    notices: list[str] = field(default_factory=list)

    @contextmanager
    def spent(self, on: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[on] += time.process_time() - began
        self.calls[on] += 1

    def started(self, key: str, spec: RunSpec) -> None:
        self.twice += key in self.keys
        self.keys.add(key)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def progressed(self, key: str, spec: RunSpec, report: Any) -> None: ...
    def finished(self, row: Any) -> None: ...
    def dropped(self, key: str) -> None: ...


class TimedSearch(ThresholdSearch):
    """The threshold search, its proposals timed."""

    tally: Tally

    def propose(self, *arguments: Any) -> list[RunSpec]:
        with self.tally.spent("search"):
            return super().propose(*arguments)


class GatheringStore(ResultStore):
    """The store, its appends timed, and so many rows gathered before they are written."""

    tally: Tally
    gather = 1
    waiting: list[Any]

    def append(self, rows: Any) -> list[Any]:
        self.waiting += rows
        if len(self.waiting) >= self.gather:
            self.flush()
        return list(rows)

    def flush(self) -> None:
        with self.tally.spent("append"):
            assert len(super().append(self.waiting)) == len(self.waiting)
        self.waiting = []


@dataclass
class Launch:
    """What became of a simulated launch. Times are virtual: `makespan`, and what all workers together were `busy`."""

    results: list[ThresholdResult]
    runs: int
    makespan: float
    busy: float
    workers: int
    cpu: float
    tally: Tally

    @property
    def idle(self) -> float:
        return 1 - self.busy / self.makespan / self.workers


def endings(work: Sequence[float], began: float) -> list[tuple[float, list[int]]]:
    """When a worker that shares its time evenly among runs of so much work reports which of them have ended."""
    at, done, order = 0.0, 0.0, sorted(range(len(work)), key=work.__getitem__)
    reports: dict[float, list[int]] = {}
    for rank, i in enumerate(order):
        at += (work[i] - done) * (len(work) - rank)
        done = work[i]
        slices = -(-at // SLICE_SECONDS)
        last = rank == len(order) - 1
        reports.setdefault(began + (at if last else slices * SLICE_SECONDS), []).append(i)
    return sorted(reports.items())


def simulate(
    plan: Sequence[Bracket], workers: int, pack_size: int, folder: Path, *, gpu: bool = False, gather: int = 1
) -> Launch:
    """Answer all brackets with so many workers. On a GPU a pack takes as long as its longest run, else the sum of all."""
    tally, truth, task = Tally(), Truth(), Simulated()
    search = TimedSearch(plan)
    search.tally = tally
    began = time.process_time()
    with GatheringStore(folder) as store:
        store.tally, store.gather, store.waiting = tally, gather, []
        execution = Execution(
            search=search, task=task, store=store, rows=Rows(store.rows()), observer=tally, workers=workers, limits=Limits(),
            versions="", launch="simulated", packs=PackSizes(task, fixed=pack_size, gpu=gpu),
        )  # fmt: skip
        makespan, busy = drive(execution, truth, tally)
        store.flush()
        assert len(store) == len(execution.rows)
        return Launch(search.answer(execution.rows), len(store), makespan, busy, workers, time.process_time() - began, tally)


def drive(execution: Execution, truth: Truth, tally: Tally) -> tuple[float, float]:
    """Do what Tune does: start a trial whenever there is room and something to train, pass every report on. Returns virtual
    seconds until the end, and those that all workers together were busy."""
    numbers = itertools.count()
    reports: list[tuple[float, int, str, PackReport]] = []
    clock = busy = 0.0
    while True:
        with tally.spent("finished"):
            over = execution.is_over()
        while not over and len(execution.running) < execution.workers:
            trial = str(next(numbers))
            with tally.spent("next_pack"):
                pack = execution.next_pack(trial)
            if not pack:
                break
            keys, outcomes = list(execution.running[trial]), [truth(spec) for spec in pack]
            work = [real_duration(spec, passed) for spec, (passed, _) in zip(pack, outcomes, strict=True)]
            shared = [(max(work), list(range(len(work))))] if execution.packs.gpu else endings(work, 0.0)
            busy += shared[-1][0]
            for at, ended in shared:
                told = {keys[i]: report_of(pack[i], *outcomes[i], work[i]) for i in ended}
                heapq.heappush(reports, (clock + at, next(numbers), trial, PackReport(runs=told)))
        if not reports:
            return clock, busy
        clock, _, trial, report = heapq.heappop(reports)
        with tally.spent("on_report"):
            execution.on_report(trial, report)


def one_worker(plan: Sequence[Bracket]) -> list[ThresholdResult]:
    """The answers of the search alone, one run after another."""
    search, truth, rows = ThresholdSearch(plan), Truth(), Rows()
    families = {(b.template.options, b.template.N, b.template.seed): b.family for b in plan}
    while specs := search.propose(rows, 1):
        (spec,) = specs
        passed, accuracy = truth(spec)
        family = families[spec.options, spec.N, spec.seed]
        status = "passed" if passed else "missed"
        row = {"key": f"{family} {spec.data_count}", "family": family, "data_count": spec.data_count}
        rows.add({**row, "status": status, "accuracy": accuracy, "steps": STEPS})
    return search.answer(rows)


def answer(result: ThresholdResult) -> tuple[object, ...]:
    """What must not depend on the number of workers."""
    return result.family, result.verdict, result.threshold, result.lower, result.upper


def in_memory() -> Path | None:
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None


def peak_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def main(
    workers: int = 1000,
    seeds: int = 100,
    curves: int = 14,
    packs: str = "1",
    gather: Annotated[int, typer.Option(help="Rows that are gathered for one durable write.")] = 64,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    random.seed(0)
    workers, seeds, curves, gather = (50, 3, 4, 1) if quick else (workers, seeds, curves, gather)
    made = plan(SIZES, seeds, curves)
    print(f"{len(made)} brackets: N {SIZES[0]}..{SIZES[-1]}, {seeds} seeds, {curves} curves\n")
    began = time.process_time()
    alone = [answer(r) for r in one_worker(made)]
    print(f"one worker without an engine: {time.process_time() - began:.1f} s of CPU time\n")
    head = (
        "workers", "pack", "runs", "answers as of one worker", "runs begun twice", "idle", "CPU, s",
        "us a decision", "of it search", "us a row", "of it append", "rows a write", "MB of peak memory",
    )  # fmt: skip
    print("| " + " | ".join(head) + " |")
    print("|" + "---:|" * len(head))
    for size in map(int, packs.split(",")):
        with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
            done = simulate(made, workers, size, Path(folder), gather=gather)
        t = done.tally
        same = sum(answer(r) == a for r, a in zip(done.results, alone, strict=True))
        cells = (
            f"{workers:,}",
            f"{size}",
            f"{done.runs:,}",
            f"{same:,} of {len(alone):,}",
            f"{t.twice}",
            f"{done.idle:.1%}",
            f"{done.cpu:.0f}",
            f"{1e6 * t.seconds['next_pack'] / t.calls['next_pack']:.0f}",
            f"{1e6 * t.seconds['search'] / t.calls['next_pack']:.0f}",
            f"{1e6 * t.seconds['on_report'] / done.runs:.0f}",
            f"{1e6 * t.seconds['append'] / done.runs:.0f}",
            f"{done.runs / t.calls['append']:.1f}",
            f"{peak_mb():.0f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    typer.run(main)
