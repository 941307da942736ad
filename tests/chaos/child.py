"""What a nursery forks for the chaos harness (see tests.nursery): launches, each of them a `Job`.

A launch is the study's own `main`; around
it are the steps of the store (see `steps`), a log of acknowledged rows, and, where asked for, smaller constants, another clock,
or a broken guarantee, to see that it is found.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orchestrator.engine.ray_tune
import orchestrator.scaling
from orchestrator.store import ResultStore, Row, locks, make_row
from orchestrator.store import register as register_module
from orchestrator.store.rows import encode
from tests.chaos import steps
from tests.chaos.tasks import LEDGER
from tests.here import stay
from tests.nursery import serve, stand_alone, warm
from trainables.spec import RunSpec

STUDIES = ("objectives", "conditioning", "jepa", "signal")
"""Studies besides the scaling study."""
SMALL = {"ROWS_PER_PART": 6, "ROWS_BEYOND_INDEX": 12}
"""So that parts fill up and the index is written every few rows."""


@dataclass(kw_only=True)
class Job:
    """What a forked process does. Paths are absolute."""

    argv: tuple[str, ...] = ()
    """Of the scaling study, or of the one that the first word names; without it, `rows` rows are put into the store, as a
    launch puts them."""
    rows: int = 0
    cwd: str
    store: str
    output: str
    acks: str
    kill: tuple[str, int] | None = None
    """Name and number of the step at which the process is killed."""
    power: bool = False
    """Whether the kill is a loss of power."""
    trace: str | None = None
    small: bool = False
    """Whether to use SMALL, and to save a checkpoint at every report."""
    here: bool = False
    """Whether to train in the forked process itself (see tests.here)."""
    clock: float = 0.0
    """Seconds by which the wall clock is wrong."""
    broken: str = ""
    """A guarantee to break: `keys`, `rename`, `fsync`, `claims` or `resume`."""


def row(i: int) -> Row:
    spec = RunSpec(task="tests.chaos.tasks:Unruly", dataset="toys", N=16, data_count=i, seed=3)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    return make_row(
        spec, task_version="1", fixed_count=0, status="passed", reason="target", steps=i, accuracy=i / 8, curve_step=[0, i],
        curve_loss=[1.0, 0.5], curve_accuracy=[0.0, 0.25], curve_error=[1.0, 0.5], host="here", finished_at=moment,
    )  # fmt: skip


def write(store: Path, count: int) -> None:
    """What a launch does to a store, without the training."""
    with ResultStore(store) as results, Path(os.environ[LEDGER]).open("a", buffering=1) as ledger:
        for i in range(count):
            key = (new := row(i))["key"]
            if key not in results and results.claim(key):
                ledger.write(f"{key} {os.getpid()} {time.monotonic():.6f}\n")
                results.save_checkpoint(key, bytes(100))
                results.append([new])
                results.drop_checkpoint(key)
                results.release(key)


def change(target: Any, name: str, value: Any) -> None:
    assert hasattr(target, name), f"{target} has no {name}"
    setattr(target, name, value)


def log_acknowledged(path: str) -> None:
    log, append = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), ResultStore.append

    def logged(self: ResultStore, rows: Any) -> list[Row]:
        written = append(self, rows)
        os.write(log, "".join(f"{row['key']} {os.getpid()} {time.monotonic():.6f}\n" for row in written).encode())
        return written

    change(ResultStore, "append", logged)


def note_claims() -> None:
    """Each claim is a line in the ledger: for tasks that do not note their starts."""
    claim = ResultStore.claim_all

    def noted(self: ResultStore, keys: Sequence[str]) -> list[str]:
        taken = claim(self, keys)
        with Path(os.environ[LEDGER]).open("a") as ledger:
            ledger.writelines(f"{key} {os.getpid()} {time.monotonic():.6f}\n" for key in taken)
        return taken

    change(ResultStore, "claim_all", noted)


def set_clock(seconds: float) -> None:
    """Let this program's `datetime.now` and `time.time` be wrong."""
    true = time.time

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    change(time, "time", lambda: true() + seconds)
    for name, module in list(sys.modules.items()):
        if name.startswith("orchestrator.") and getattr(module, "datetime", None) is datetime:
            change(module, "datetime", Wrong)


def break_guarantee(which: str, disk: steps.Disk | None) -> None:
    if which == "keys":
        change(register_module.Register, "known", lambda self, keys: set())
    elif which == "claims":
        change(locks.StoreLocks, "take", lambda self, kind, name: True)
    elif which == "resume":
        change(ResultStore, "rows", lambda self, *args, **kwargs: [])
    elif which == "fsync":
        assert disk is not None
        disk.synced = lambda descriptor: None  # type: ignore[method-assign]
    elif which == "rename":

        def in_place(source: Any, target: Any) -> None:
            data = Path(source).read_bytes()
            with open(target, "wb", buffering=0) as file:  # noqa: PTH123
                file.write(data[: len(data) // 2])
                time.sleep(0.05)
                file.write(data[len(data) // 2 :])
            os.unlink(source)  # noqa: PTH108

        change(os, "replace", in_place)
    else:
        raise ValueError(which)


def begin(job: Job) -> None:
    """Make the forked process the one that the job wants."""
    stand_alone(job.cwd, job.output, job.output)
    if job.small:
        for name, value in SMALL.items():
            change(register_module, name, value)
        change(orchestrator.engine.ray_tune, "SLICE_SECONDS", 0.05)
        change(orchestrator.engine.ray_tune, "CHECKPOINT_SECONDS", 0.0)
    if job.here:
        stay()
    if job.clock:
        set_clock(job.clock)
    disk = steps.Disk(Path(job.store)) if job.power else None
    if job.broken:
        break_guarantee(job.broken, disk)
    if job.kill or job.trace or job.power:
        killer = steps.Killer(*(job.kill or ()), trace=Path(job.trace) if job.trace else None)
        if disk is not None:
            killer.before = disk.lose_power
        steps.watch(Path(job.store), killer, disk)
    log_acknowledged(job.acks)


def run(job: Job) -> None:
    begin(job)
    if job.argv:
        study, argv = orchestrator.scaling, job.argv
        if argv[0] in STUDIES:
            study, argv = importlib.import_module(f"orchestrator.{argv[0]}"), argv[1:]
            note_claims()
        sys.argv = [str(study.__file__), *argv]
        study.main()
    write(Path(job.store), job.rows)
    sys.exit(0)


def main() -> None:
    warm()
    encode([row(0)])  # imports what Arrow imports late, once for all
    serve(lambda given: run(Job(**given)))


if __name__ == "__main__":
    main()
