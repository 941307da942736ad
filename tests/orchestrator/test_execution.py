"""What the engine does with each kind of failure, without Ray: the events are sent by hand."""

import contextlib
import dataclasses
import io
import itertools
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray
import safetensors.torch
import torch
from test_remote_store import put_to_sleep

from orchestrator.engine import execution as module
from orchestrator.engine import ray_tune
from orchestrator.engine import worker as of_worker
from orchestrator.engine.execution import Execution, Limits, pruned_result
from orchestrator.engine.failures import MOST_LOST
from orchestrator.engine.messages import Order, PackReport, ParentOrder, RunOrder, RunReport
from orchestrator.engine.oom_kills import OomKills
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.engine.placement import LEAST_HOPELESS_SECONDS, WHY_NO_WORKER
from orchestrator.engine.ray_tune import Ending, NewestFirst, StudySearcher, Workers, kill_worker
from orchestrator.engine.remade import NoneRemade
from orchestrator.engine.worker import PackTrainable
from orchestrator.errors import LostRayError, StuckError, UserError, shown, storable
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.grid import GridSearch
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore, StoreError, make_row
from orchestrator.versions import versions
from tests.toy import Pupil, Teacher, Toy, threshold
from trainables.bumps import BumpTask
from trainables.generative.chain import probe_of
from trainables.generative.tiers import generator
from trainables.needs import Tasks
from trainables.program import PATH as PROGRAM
from trainables.spec import GIVEN_UP, RunSpec, run_key
from trainables.task import load_task
from trainables.training.loop import Training
from trainables.training.packs import Pack
from trainables.training.run import UnfitError

SPEC = RunSpec(
    task="tests.toy:Toy", dataset="toys", N=8, data_count=0, seed=0, decoder="linear", depth=0, width=1, encoding="none",
    options=tuple(Toy.defaults.items()), max_steps=3,
)  # fmt: skip
RESULT = {"status": "passed", "reason": "target", "steps": 3, "accuracy": 1.0, "id_mse": 0.0, "ood_mse": 0.0, "loss": 0.0}


def remade(**methods: Callable[[str], object]) -> Any:
    """Says of finished runs what these methods do, and else that none is trained once more."""
    said = NoneRemade()
    for name, method in methods.items():
        setattr(said, name, method)
    return said


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.rows: list[Any] = []

    def connected(self, workers: int) -> None: ...
    def started(self, key: str, spec: RunSpec) -> None: ...
    def progressed(self, key: str, spec: RunSpec, report: Any) -> None: ...
    def dropped(self, key: str) -> None: ...
    def finished(self, row: Any) -> None:
        self.rows.append(row)

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Clock:
    """Stands in for `time.monotonic`."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def listen(execution: Execution, clock: Clock, seconds: int) -> None:
    """Let time pass in which the launch listens to its workers."""
    for _ in range(seconds):
        clock.now += 1
        execution.on_tick()


def result_of(execution: Execution, trial: str, **report: Any) -> bool:
    """Send a report about the runs of a trial, all alike; whether the trial is over."""
    keys = execution.running.get(trial, {})
    return execution.on_report(trial, PackReport(runs=dict.fromkeys(keys, RunReport(**report))))


def next_run(execution: Execution, trial: str) -> RunSpec | None:
    """The only run of the next pack."""
    specs = execution.next_pack(trial)
    assert len(specs) <= 1
    return specs[0] if specs else None


def make(store: ResultStore, seeds: int = 2, workers: int = 2, pack_size: int = 1, **limits: Any) -> tuple[Execution, Watcher]:
    task, watcher = Toy(), Watcher()
    brackets = []
    for seed in range(seeds):
        template = RunSpec.from_dict({**SPEC.to_dict(), "seed": seed})
        counts, curve = task.counts(template), f"seed {seed}"
        brackets.append(Bracket(template=template, task_version=task.version, counts=counts, curve=curve))
    execution = Execution(
        search=ThresholdSearch(brackets),
        task=task,
        store=store,
        rows=Rows(store.rows()),
        observer=watcher,
        workers=workers,
        limits=Limits(**limits),
        versions="test",
        launch="test",
        packs=PackSizes(task, fixed=pack_size),
    )
    return execution, watcher


def ordered(spec: RunSpec, **order: Any) -> RunOrder:
    """The order of a run."""
    return RunOrder(run_key(spec, load_task(spec.task).version), spec.to_dict(), **order)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time, which passes only where a test says so."""
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(tmp_path / "store") as opened:
        yield opened


def test_every_run_is_asked_for_once_and_answered_from_its_row(store: ResultStore) -> None:
    execution, _ = make(store)
    trial = 0
    while not execution.is_over():
        trial += 1
        spec = next_run(execution, str(trial))
        assert spec is not None
        passed = spec.data_count >= threshold(spec.N, spec.seed)
        result_of(execution, str(trial), result={**RESULT, "status": "passed" if passed else "missed"})
    assert len(store) == trial
    found = {r.seed: (r.lower, r.threshold) for r in execution.search.answer(execution.rows)}
    assert all(lower < threshold(8, seed) <= upper for seed, (lower, upper) in found.items())


def test_room_is_the_number_of_workers(store: ResultStore) -> None:
    execution, _ = make(store, workers=2)
    first, second = next_run(execution, "a"), next_run(execution, "b")
    assert first is not None
    assert second is not None
    assert first != second
    assert next_run(execution, "c") is None


def test_what_runs_on_speculation_ends_with_the_answer(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=2)
    trials = itertools.count()
    while not execution.search.finished(execution.rows):
        assert not execution.is_done()
        while next_run(execution, str(next(trials))) is not None:
            pass
        (needed,) = execution.search.propose(execution.rows, 1)
        trial = next(trial for trial, pack in execution.running.items() if needed in pack.values())
        passed = needed.data_count >= threshold(needed.N, needed.seed)
        result_of(execution, trial, result={**RESULT, "status": "passed" if passed else "missed"})
    ((trial, pack),) = execution.running.items()
    assert execution.is_done()
    execution.on_stopped(trial)
    with ResultStore(store.path) as other:
        assert all(other.claim(key) for key in pack)
    assert not execution.running
    assert len(store) == execution.outcome.trained


def test_an_exception_is_tried_once_more_and_then_a_failed_row(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        result_of(execution, attempt, error="Traceback ...\nArithmeticError: no")
    assert [row["status"] for row in store.rows()] == ["failed"]
    assert "ArithmeticError: no" in store.rows()[0]["error"]
    assert ["trying once more" in n for n in watcher.notices] == [True, False]
    assert execution.is_over()
    assert (execution.outcome.trained, execution.outcome.failed) == (0, 1)


@pytest.mark.parametrize("of_pack", [False, True])
def test_an_exception_with_a_name_that_is_not_utf8_is_a_failed_row(store: ResultStore, of_pack: bool) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    error = "FileNotFoundError: " + os.fsdecode(b"caf\xe9")
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        if of_pack:
            assert execution.on_report(attempt, PackReport(error=error))
        else:
            result_of(execution, attempt, error=error)
    assert [(row["status"], row["error"]) for row in store.rows()] == [("failed", r"FileNotFoundError: caf\udce9")]
    assert "\n".join(watcher.notices).encode()


@pytest.mark.parametrize("text", ["y" * 30_000_000, "line\n" * 300_000])
def test_of_an_exception_with_a_very_long_text_both_ends_are_kept_and_shown(store: ResultStore, text: str) -> None:
    execution, watcher = make(store)
    raised = f"Traceback\n{text}\nValueError: the end"
    assert storable(storable(raised)) == storable(raised)
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        assert result_of(execution, attempt, error=raised)
    (error,) = {row["error"] for row in store.rows()}
    assert 20_000 < len(error) < 20_100
    assert error.startswith("Traceback\n")
    assert error.endswith("ValueError: the end")
    for notice in watcher.notices:
        assert len(notice) < 5_000
        assert notice.count("\n") <= 52
        assert notice.endswith("ValueError: the end")
    assert shown("a\nb") == storable("a\nb") == "a\nb"


def test_a_machine_that_lacks_what_a_run_needs_ends_the_launch_and_fails_no_run(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    assert next_run(execution, "a") is not None
    assert next_run(execution, "b") is not None
    assert execution.on_report("a", PackReport(error="on m1: /data is no folder: mount it", unfit=True))
    assert isinstance(execution.fatal, UnfitError)
    assert str(execution.fatal) == "on m1: /data is no folder: mount it"
    assert execution.is_over()
    assert list(execution.running) == ["b"]
    assert execution.on_report("b", PackReport(error="on m2: nor here", unfit=True))
    assert str(execution.fatal).startswith("on m1"), "the first one is told"
    assert (store.rows(), watcher.rows, execution.outcome.failed) == ([], [], 0)
    again, _ = make(store, seeds=2, workers=2)
    assert next_run(again, "a") is not None, "it is still claimed"


@pytest.mark.parametrize("told", [False, True])
def test_a_program_that_prints_no_accuracy_ends_the_launch_unless_it_has_told_one(store: ResultStore, told: bool) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    program = {"program": "sh train.sh", "files": "{}"}
    first, second = (dataclasses.replace(SPEC, options=tuple(program.items()), data_count=n) for n in (3, 4))
    if told:
        execution.rows.add(make_row(first, task_version="1", fixed_count=0, status="missed", reason="ended"))
    other = dataclasses.replace(first, options=(("program", "sh other.sh"), ("files", "{}")))
    execution.rows.add(make_row(other, task_version="1", fixed_count=0, status="missed", reason="ended"))
    crashed = dataclasses.replace(first, data_count=5)
    execution.rows.add(make_row(crashed, task_version="1", fixed_count=0, status="failed", reason="exception", error="no"))
    key = run_key(second, "1")
    execution.running["a"] = {key: second}
    execution._busy[key] = second
    assert execution.on_report("a", PackReport(error="the program told no accuracy: print it\nstdout:\n99 %", misprinted=True))
    if told:
        assert execution.fatal is None
        assert [row["error"] for row in watcher.rows] == ["the program told no accuracy: print it\nstdout:\n99 %"]
    else:
        assert isinstance(execution.fatal, UserError)
        assert str(execution.fatal) == "toys, N = 8, 4 samples, seed 0: the program told no accuracy: print it"
        assert (store.rows(), watcher.rows, execution.outcome.failed) == ([], [], 0)


def test_a_worker_tells_in_a_line_what_its_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = generator("smoke", 0, {"dataset": "celeba", "content": "0" * 24})
    monkeypatch.delenv("SWEEP_DATA", raising=False)
    order = Order([ordered(probe_of(spec)), ordered(probe_of(spec))])
    report = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"]
    assert report.unfit
    assert report.done
    assert not report.runs
    where = f"on {socket.gethostname()}: where the files of celeba lie is not known here"
    assert report.error == f"{where}: set SWEEP_DATA to their folder"


@pytest.mark.parametrize("stage", ["its own", "a parent's"])
def test_a_worker_without_a_task_trains_nothing(stage: str) -> None:
    lacking = dataclasses.replace(SPEC, task="nowhere:Toy").to_dict()
    own = RunOrder("0" * 16, lacking)
    child = RunOrder(run_key(SPEC, Toy.version), SPEC.to_dict(), parents={"teacher": ParentOrder(lacking, None, {})})
    order = Order([own if stage == "its own" else child])
    report = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"]
    assert (report.unfit, report.done, report.runs) == (True, True, {})
    assert report.error == (
        f"on {socket.gethostname()}: nowhere:Toy cannot be loaded (ModuleNotFoundError: No module named 'nowhere'), though it "
        "could where the command was started: put the same files and packages on all machines"
    )


def test_a_worker_with_another_version_of_the_task_trains_nothing() -> None:
    order = Order([RunOrder(run_key(SPEC, "2"), SPEC.to_dict())])
    report = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"]
    assert (report.unfit, report.done, report.runs) == (True, True, {})
    assert report.error.startswith(f"on {socket.gethostname()}: tests.toy:Toy has version '1' here, and this is not the one")


def test_weights_of_a_parent_that_give_no_network_fail_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_worker, "ray", SimpleNamespace(get=lambda given: given, is_initialized=lambda: False))
    pupil = Pupil()
    spec = dataclasses.replace(SPEC, task="tests.toy:Pupil", options=tuple(Pupil.defaults.items()), data_count=30)
    teacher = pupil.needs(spec)["teacher"]
    whole = safetensors.torch.save(torch.nn.Linear(1, 1).state_dict())
    for weights, why in ((whole[:-4], "incomplete"), (safetensors.torch.save({"a": torch.ones(1)}), "Missing key")):
        order = ordered(spec, parents={"teacher": ParentOrder(teacher.to_dict(), weights, {})})
        report = PackTrainable({"order": Order(runs=[order]), "cpus": 1, "gpus": 0}).step()["report"]
        assert report.unfit
        assert report.error is not None
        key = run_key(teacher, "1")
        assert f"the weights of run {key} of tests.toy:Teacher, which tests.toy:Pupil needs, give no network (" in report.error
        assert f": move weights/{key}.safetensors away, and the run is trained again; or " in report.error
        assert why in report.error


@pytest.mark.parametrize("member", ["model", "to"])
def test_a_failure_that_is_none_of_the_weights_of_a_parent_is_one_of_the_run(
    member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_worker, "ray", SimpleNamespace(get=lambda given: given, is_initialized=lambda: False))
    spec = dataclasses.replace(SPEC, task="tests.toy:Pupil", options=tuple(Pupil.defaults.items()), data_count=30)
    weights = safetensors.torch.save(torch.nn.Linear(1, 1).state_dict())

    def busy(*given: object) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(*((Teacher, "model", busy) if member == "model" else (torch.nn.Module, "to", busy)))
    order = ordered(spec, parents={"teacher": ParentOrder(Pupil().needs(spec)["teacher"].to_dict(), weights, {})})
    report = PackTrainable({"order": Order(runs=[order]), "cpus": 1, "gpus": 0}).step()["report"]
    assert (report.unfit, report.error) == (False, None)
    assert "RuntimeError: CUDA error: all CUDA-capable devices are busy" in report.runs[order.key].error


def test_weights_of_a_parent_for_which_there_is_no_memory_are_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_worker, "ray", SimpleNamespace(get=lambda given: given, is_initialized=lambda: False))
    spec = dataclasses.replace(SPEC, task="tests.toy:Pupil", options=tuple(Pupil.defaults.items()), data_count=30)

    def full(data: bytes) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(safetensors.torch, "load", full)
    order = ordered(spec, parents={"teacher": ParentOrder(Pupil().needs(spec)["teacher"].to_dict(), b"", {})})
    report = PackTrainable({"order": Order(runs=[order]), "cpus": 1, "gpus": 0}).step()["report"]
    assert (report.unfit, report.out_of_memory) == (False, True)


def test_a_lost_worker_is_replaced_after_growing_waits_and_a_run_that_loses_eight_is_left(
    store: ResultStore, clock: Clock
) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    waits = []
    for attempt in range(8):
        assert next_run(execution, str(attempt)) is not None
        execution.on_lost(str(attempt), "Failure # 1 (occurred at noon)\nThe actor died unexpectedly.")
        assert attempt == 7 or next_run(execution, "too early") is None
        wait = next(iter(execution.failures.of_runs.values())).not_before - clock.now
        waits.append(wait)
        clock.now += wait + 0.01
    assert waits[:-1] == pytest.approx([1, 2, 5, 15, 60, 60, 60])
    assert watcher.notices[0].endswith("seed 0 lost its worker (once), trying again in 1 s: The actor died unexpectedly")
    for cause in ("perhaps memory ran out", "stop with Ctrl-C and mend it"):
        assert [cause in notice for notice in watcher.notices] == [False, False, *[True] * 6]
    assert ["left until the next launch" in notice for notice in watcher.notices] == [*[False] * 7, True]
    assert (len(store), store.claim(run_key(SPEC, "1"))) == (0, True), "the next launch may train it"


def test_the_runs_beside_one_that_loses_its_workers_go_on(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=2, workers=1)
    bad, trained = next_run(execution, "0"), 0
    assert bad is not None
    for trial in range(1, 200):
        if execution.running[str(trial - 1)] == {run_key(bad, "1"): bad}:
            execution.on_lost(str(trial - 1), "The actor died unexpectedly.")
        else:
            trained += 1
            assert result_of(execution, str(trial - 1), result=RESULT)
        if next_run(execution, str(trial)) is None:
            clock.now += 100
            if next_run(execution, str(trial)) is None:
                break
    assert execution.is_over()
    assert execution.outcome.stopped == "lost"
    assert execution.fatal is None
    assert trained == len(store) > 0
    assert bad.data_count not in {row["data_count"] for row in store.rows() if row["seed"] == bad.seed}


def test_a_launch_whose_runs_all_lose_their_workers_ends(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=5, workers=2)
    lost = 0
    while not execution.is_over():
        assert next_run(execution, str(lost)) is not None
        execution.on_lost(str(lost), "The actor died unexpectedly.")
        lost += 1
        clock.now += 100
    assert (lost, execution.outcome.stopped) == (3 * 8, "lost")


def test_a_launch_of_which_runs_end_beside_those_that_lose_their_workers_goes_on(store: ResultStore, clock: Clock) -> None:
    execution, _ = make_grid(store, runs=9, workers=1, size=1)

    def leave_one() -> None:
        spec = next_run(execution, "lost")
        assert spec is not None
        execution.failures.of(run_key(spec, Toy.version)).lost = MOST_LOST - 1
        execution.on_lost("lost", "The actor died unexpectedly.")

    for _ in range(2):
        leave_one()
        leave_one()
        assert not execution.is_over()
        assert next_run(execution, "ended") is not None
        assert result_of(execution, "ended", result=RESULT)
    for _ in range(3):
        assert not execution.is_over()
        leave_one()
    assert (execution.is_over(), execution.outcome.stopped) == (True, "lost"), "three in a row"


def test_a_run_that_gets_further_may_lose_any_number_of_workers(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    for attempt in range(20):
        clock.now += 100
        assert next_run(execution, str(attempt)) is not None
        if attempt % 5 == 4:
            result_of(execution, str(attempt), step=attempt, checkpoint=b"further")
        execution.on_lost(str(attempt), "The node died.")
    assert not execution.is_over()
    assert not any("left until" in notice for notice in watcher.notices)


def test_an_exception_outside_the_training_counts_as_an_exception(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        text = "Failure # 1 (occurred at noon)\n\x1b[36mray::PackTrainable.train()\x1b[39m (pid=1)\nTypeError: no"
        execution.on_lost(attempt, text)
    assert [row["status"] for row in store.rows()] == ["failed"]


def test_lack_of_memory_halves_the_workers_and_fails_only_alone(store: ResultStore) -> None:
    execution, _ = make(store, seeds=4, workers=4)
    report = PackReport(error="MemoryError", out_of_memory=True)
    for attempt, left in (("a", 2), ("b", 1)):
        assert next_run(execution, attempt) is not None
        assert execution.on_report(attempt, report)
        assert execution.workers == left
        assert len(store) == 0
    assert next_run(execution, "c") is not None
    execution.on_lost("c", "Task was killed due to the node running low on memory.")
    assert [row["status"] for row in store.rows()] == ["failed"]


def test_several_runs_that_lack_memory_at_one_moment_halve_the_workers_once(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=12, workers=8)
    report = PackReport(error="MemoryError", out_of_memory=True)
    for trial in "abcdefgh":
        assert next_run(execution, trial) is not None
    for trial in "abc":
        assert execution.on_report(trial, report)
    assert execution.workers == 4
    assert [notice.rpartition(": ")[2] for notice in watcher.notices] == ["now 4 in parallel"] * 3
    for trial in "defgh":
        assert result_of(execution, trial, result=RESULT)
    assert next_run(execution, "i") is not None
    assert execution.on_report("i", report)
    assert execution.workers == 2, "it began when there were four"


def test_a_run_that_lacks_memory_again_beside_others_has_not_failed(store: ResultStore) -> None:
    execution, _ = make(store, seeds=4, workers=2)
    report = PackReport(error="MemoryError", out_of_memory=True)
    first, _ = next_run(execution, "a"), next_run(execution, "b")
    assert first is not None
    execution.failures.of(run_key(first, "1")).out_of_memory = 1
    assert execution.on_report("b", report)
    assert execution.workers == 1
    assert execution.on_report("a", report)
    assert (execution.workers, len(store)) == (1, 0)


class Kernel:
    """Counts what it has ended for want of memory."""

    def __init__(self, counter: Path, execution: Execution) -> None:
        self.counter, self.ended = counter, 7
        self.end(0)
        execution.kills = OomKills(counter)

    def end(self, processes: int = 1) -> None:
        self.ended += processes
        self.counter.write_text(f"oom_kill {self.ended}\n")


DIED = "Failure # 1 (occurred at noon)\nThe actor died unexpectedly."
ENDED = "the system has ended a process of this machine for want of memory"


def test_workers_that_the_kernel_ends_for_want_of_memory_are_halved_once(store: ResultStore, tmp_path: Path) -> None:
    execution, watcher = make(store, seeds=12, workers=8)
    kernel = Kernel(tmp_path / "vmstat", execution)
    for trial in "abcdefgh":
        assert next_run(execution, trial) is not None
    kernel.end(2)
    for trial in "abc":
        execution.on_lost(trial, DIED)
    assert execution.workers == 4
    assert [notice.rpartition("seed ")[2][2:].lstrip() for notice in watcher.notices] == [
        *[f"lost its worker, and {ENDED}: now 4 in parallel"] * 2,
        "lost its worker (once), trying again in 1 s: The actor died unexpectedly",
    ]
    assert execution.failures.later() == 1, "the two are tried again at once"
    assert (len(store), execution.fatal) == (0, None)


def test_a_run_that_the_kernel_ends_alone_has_not_failed_as_it_may_have_been_another_process(
    store: ResultStore, clock: Clock, tmp_path: Path
) -> None:
    execution, watcher = make(store, seeds=1, workers=2)
    kernel = Kernel(tmp_path / "vmstat", execution)
    for trial in range(9):
        assert next_run(execution, str(trial)) is not None
        kernel.end()
        execution.on_lost(str(trial), DIED)
        clock.now += 100
    assert execution.workers == 1
    assert watcher.notices[0].endswith(f"lost its worker, and {ENDED}: now 1 in parallel")
    assert f"lost its worker (once), trying again in 1 s: The actor died unexpectedly; {ENDED}: perhaps" in watcher.notices[1]
    assert all(f"; {ENDED}: perhaps there is less here" in notice for notice in watcher.notices[1:])
    assert not any("mend it" in notice for notice in watcher.notices)
    assert "left until the next launch" in watcher.notices[-1]
    assert (len(watcher.notices), len(store)) == (9, 0), "the next launch may train it"


def test_a_pack_that_the_kernel_ends_is_halved(store: ResultStore, tmp_path: Path) -> None:
    execution, watcher = make(store, seeds=4, workers=1, pack_size=4)
    kernel, kept = Kernel(tmp_path / "vmstat", execution), []
    for trial in "ab":
        kept.append(len(execution.next_pack(trial)))
        kernel.end()
        execution.on_lost(trial, DIED)
    assert kept == [4, 2]
    told = [f"lost its worker, and {ENDED}: now {now} in a pack" for now in (2, 1)]
    assert [notice.endswith(end) for notice, end in zip(watcher.notices, told, strict=True)] == [True, True]
    assert watcher.notices[0].startswith("a pack of 4 runs like toys, N = 8, ")
    assert len(execution.next_pack("c")) == 1
    assert not any(map(execution.failures.is_alone, execution.failures.of_runs))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("\x1b[36mray::PackTrainable.train()\x1b[39m (pid=1)\nTypeError: no", "could not be trained, trying once more"),
        ("The actor died because of an error raised in its creation task, ip=10.0.0.1\nTypeError: no", "it could not begin"),
        ("1 worker(s) were killed due to the node running low on memory.", "ran out of memory: now 1 in parallel"),
    ],
)
def test_a_worker_that_did_not_simply_die_is_not_one_that_the_kernel_has_ended(
    reason: str, told: str, store: ResultStore, tmp_path: Path
) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    kernel = Kernel(tmp_path / "vmstat", execution)
    assert next_run(execution, "a") is not None
    kernel.end()
    execution.on_lost("a", reason)
    assert told in watcher.notices[0]
    assert ENDED not in watcher.notices[0]
    assert execution.kills.take(), "another worker may be it"


def test_what_the_kernel_ends_is_looked_for_while_time_passes(store: ResultStore, clock: Clock, tmp_path: Path) -> None:
    execution, _ = make(store, seeds=2, workers=2)
    kernel = Kernel(tmp_path / "vmstat", execution)
    assert next_run(execution, "a") is not None
    kernel.end()
    for _ in range(12):
        clock.now += 10
        assert not result_of(execution, "a", step=1)
        execution.on_tick()
    execution.on_lost("a", DIED)
    assert execution.workers == 2, "it was another process, long ago"


def test_an_end_from_which_another_launch_trains_on_is_left_to_it(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    spec = next_run(execution, "a")
    assert spec is not None
    key = run_key(spec.to_the_end(), Toy.version)
    with ResultStore(store.path) as other:
        assert other.claim(key)
        other.save_checkpoint(key, b"an hour of training")
        assert result_of(execution, "a", result={**RESULT, "status": "missed"}, end=b"given up")
    assert store.load_checkpoint(key) == b"an hour of training"
    assert len(store) == 1
    second = next_run(execution, "b")
    assert second is not None
    assert result_of(execution, "b", result={**RESULT, "status": "missed"}, end=b"given up")
    assert store.load_checkpoint(end := run_key(second.to_the_end(), Toy.version)) == b"given up"
    with ResultStore(store.path) as other:
        assert other.claim(end)


def test_a_checkpoint_is_kept_until_the_run_ends(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    spec = next_run(execution, "a")
    assert spec is not None
    key = run_key(spec, Toy.version)
    assert not result_of(execution, "a", step=5, accuracy=0.1, checkpoint=b"half-way")
    assert store.load_checkpoint(key) == b"half-way"
    assert result_of(execution, "a", result=RESULT, weights=b"weights")
    assert store.load_checkpoint(key) is None
    assert store.weights_path(key).read_bytes() == b"weights"


def test_another_try_of_a_run_that_failed_goes_on_from_its_checkpoint(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    spec = next_run(execution, "a")
    assert spec is not None
    key = run_key(spec, Toy.version)
    assert not result_of(execution, "a", step=5, accuracy=0.1, checkpoint=b"half-way")
    for trial in "bc":
        assert result_of(execution, "a" if trial == "b" else "b", error="Traceback ...")
        next_run(execution, trial)
    assert [row["status"] for row in store.rows()] == ["failed"]
    assert store.load_checkpoint(key) == b"half-way"
    assert store.retry_failed() == 1
    again, _ = make(store, seeds=1, workers=1)
    assert next_run(again, "d") == spec
    assert result_of(again, "d", result=RESULT)
    assert [row["status"] for row in store.rows()] == ["passed"]
    assert store.load_checkpoint(key) is None


def test_checkpoints_of_failed_runs_go_when_a_run_of_another_version_of_the_task_ends(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    spec = next_run(execution, "a")
    assert spec is not None
    elsewhere, current = (dataclasses.replace(SPEC, seed=seed, data_count=spec.data_count) for seed in (7, 8))
    about = {"fixed_count": 0, "status": "failed", "reason": "exception"}
    old, theirs = (make_row(of, task_version="old", **about) for of in (spec, elsewhere))
    now = make_row(current, task_version=Toy.version, **about)
    passed = make_row(current, task_version="old", fixed_count=0, status="passed", reason="target")
    store.append([old, theirs, now, passed])
    for row in (old, theirs, now, passed):
        store.save_checkpoint(row["key"], b"half-way")
    with ResultStore(store.path) as other:
        assert other.claim(theirs["key"])
        assert result_of(execution, "a", result=RESULT)
    assert store.with_checkpoints() == {theirs["key"], now["key"], passed["key"]}
    with ResultStore(store.path) as other:
        assert other.claim(old["key"]), "whoever trains it, if the task is changed back"


@contextlib.contextmanager
def taken_over(uri: str, on: Callable[[str], None], **seen: Any) -> Iterator[tuple[Execution, Execution, ResultStore, RunSpec]]:
    """A launch that slept, perhaps after a report of its run `a`, until its lease expired; another one that has begun this run
    anew, as `b`, with its store; and the run."""
    with ResultStore(uri) as mine:
        execution, _ = make(mine, seeds=1, workers=1)
        spec = next_run(execution, "a")
        assert spec is not None
        assert not seen or not result_of(execution, "a", **seen)
        put_to_sleep(mine)
        on("b")
        with ResultStore(uri) as theirs:
            other, _ = make(theirs, seeds=1, workers=1)
            assert next_run(other, "b") == spec
            yield execution, other, theirs, spec


def test_a_launch_that_lost_its_lease_leaves_the_weights_of_the_one_that_finished_its_run(
    uri: str, on: Callable[[str], None]
) -> None:
    with taken_over(uri, on) as (execution, other, theirs, spec):
        assert result_of(other, "b", result={**RESULT, "accuracy": 0.5}, weights=b"theirs")
        end = run_key(spec.to_the_end(), Toy.version)
        assert result_of(execution, "a", result={**RESULT, "accuracy": 0.25}, weights=b"mine", end=b"mine")
        assert [row["accuracy"] for row in theirs.rows()] == [0.5]
        assert theirs.load_weights(run_key(spec, Toy.version)) == b"theirs"
        assert theirs.load_checkpoint(end) is None
        assert [row["accuracy"] for row in execution.rows] == [0.5]


def test_a_launch_that_lost_its_lease_leaves_the_checkpoint_of_the_one_that_trains_its_run(
    uri: str, on: Callable[[str], None]
) -> None:
    with taken_over(uri, on, step=1, accuracy=0.1, checkpoint=b"mine") as (execution, other, theirs, spec):
        key = run_key(spec, Toy.version)
        assert not result_of(other, "b", step=2, accuracy=0.1, checkpoint=b"theirs")
        assert result_of(execution, "a", result=RESULT)
        assert theirs.rows() == []
        assert theirs.load_checkpoint(key) == b"theirs"
        assert result_of(other, "b", result=RESULT)
        assert theirs.load_checkpoint(key) is None


@pytest.mark.parametrize("former", ["failed", "without weights", "with weights"])
def test_weights_are_kept_that_go_with_a_row_that_is_there(store: ResultStore, former: str) -> None:
    """Another launch has finished the run meanwhile: of one that failed the row makes way, and one without weights may be
    trained again for them."""
    execution, _ = make(store, seeds=1, workers=1)
    spec = next_run(execution, "a")
    assert spec is not None
    key, status = run_key(spec, Toy.version), "failed" if former == "failed" else "passed"
    execution.remade = remade(again=lambda key: not store.has_weights(key))
    with ResultStore(store.path) as other:
        if former == "with weights":
            other.save_weights(key, b"theirs")
        other.append([make_row(spec, task_version="1", fixed_count=0, status=status, reason="target", error="no")])
    assert result_of(execution, "a", result=RESULT, weights=b"mine")
    assert store.load_weights(key) == (b"theirs" if former == "with weights" else b"mine")
    assert [row["status"] for row in store.rows()] == ["passed"]


def a_trial(name: str, actor: str | None) -> SimpleNamespace:
    """One that Tune has not started, whose worker does not answer what it is asked."""
    return SimpleNamespace(trial_id=name, status="PENDING", temporary_state=SimpleNamespace(ray_actor=actor))


def check_stalled(store: ResultStore, watcher: Watcher, seconds: int) -> None:
    """The only run has failed, at its second try, as its worker was silent for so long."""
    (row,) = store.rows()
    assert row["status"] == "failed"
    assert row["error"] == f"it made no progress for {seconds} s (--stall-minutes), so its worker was ended"
    told = [notice for notice in watcher.notices if "it made no progress" in notice]
    assert ["trying once more" in notice for notice in told] == [True, False]


def test_a_run_that_does_not_get_on_is_tried_once_more_and_has_then_failed(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=1, workers=1, stall_seconds=30.0)
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        clock.now += 100  # until a machine takes it
        execution.on_placed(attempt)
        clock.now += 29
        assert not result_of(execution, attempt, step=1, accuracy=0.1)
        for _ in range(60):
            execution.on_tick()
            clock.now += 0.5
        execution.on_lost(attempt, "The actor died unexpectedly.")
    check_stalled(store, watcher, 30)
    assert len(watcher.notices) == 2


def test_a_frozen_worker_is_ended_by_the_launch_and_a_launch_that_slept_ends_none(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=1, workers=1, stall_seconds=30.0)
    ended: list[str] = []
    execution.end_worker = ended.append

    def listen(seconds: int) -> None:
        for _ in range(seconds * 2):
            clock.now += 0.5
            execution.on_tick()

    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        listen(100)  # until a machine takes it
        execution.on_placed(attempt)
        listen(59)
        assert not result_of(execution, attempt, step=1, accuracy=0.1)
        listen(58)
        clock.now += 3600  # the launch sleeps
        listen(1)
        assert attempt in execution.running
        listen(2)
        assert attempt not in execution.running
        report = PackReport(runs={"key": RunReport(step=2)})
        assert execution.on_report(attempt, report), "it has woken up, and is no longer wanted"
        execution.on_tick()
    assert ended == ["a", "b"]
    assert not execution.placement.has_any_begun()
    check_stalled(store, watcher, 60)


def test_a_worker_frozen_between_two_runs_is_ended_and_the_second_one_has_lost_it(store: ResultStore, clock: Clock) -> None:
    """No machine is wanted meanwhile, and what another worker reports does not put the end off."""
    execution, watcher = make(store, seeds=2, workers=2, stall_seconds=30.0)
    execution.placement.hopeless_after = LEAST_HOPELESS_SECONDS
    workers, ended = Workers(execution), list[str]()
    execution.end_worker = ended.append
    trials = [a_trial("works", None), a_trial("b", "actor of a")]
    for trial in trials:
        assert next_run(execution, trial.trial_id) is not None
    workers.on_step_begin(1, trials)
    execution.on_placed("works")
    for _ in range(60):
        listen(execution, clock, 1)
        workers.on_step_begin(2, trials)
        assert not result_of(execution, "works", step=1, accuracy=0.1)
    assert (ended, watcher.notices) == ([], [])
    clock.now += 3600  # the launch sleeps
    execution.on_tick()
    assert ended == []
    listen(execution, clock, 1)
    assert (ended, [*execution.running]) == (["b"], ["works"])
    (told,) = watcher.notices
    why = "its worker, which had trained other runs, did not begin with it for 61 s (--stall-minutes), so it was ended"
    assert told.endswith(f"lost its worker (once), trying again in 1 s: {why}")
    assert execution.outcome.worker_seconds == 60, "it costs nothing"
    workers.on_trial_start(3, trials, trials[1])  # it has woken up
    assert not execution.placement.has_begun("b")
    assert execution.on_report("b", PackReport(runs={"key": RunReport(step=1)})), "it is no longer wanted"
    assert len(store) == 0
    assert next_run(execution, "c") is None, "it waits before its next try"
    clock.now += 1
    assert next_run(execution, "c") is not None


def test_a_worker_is_given_its_time_to_begin_with_a_run_and_one_that_starts_all_that_it_takes(
    store: ResultStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, watcher = make(store, seeds=3, workers=3, stall_seconds=30.0)
    workers, ended = Workers(execution), list[str]()
    execution.end_worker = ended.append
    trials = [a_trial("starts", None), a_trial("takes its time", "actor of a"), a_trial("waits for the store", "actor of b")]
    for trial in trials:
        assert next_run(execution, trial.trial_id) is not None
    workers.on_step_begin(1, trials)
    listen(execution, clock, 59)
    workers.on_trial_start(1, trials, trials[1])
    assert execution.placement.has_begun("takes its time")
    monkeypatch.setattr(ResultStore, "waited", 20.0)
    listen(execution, clock, 60)
    assert ended == []
    assert not result_of(execution, "takes its time", step=1, accuracy=0.1)
    listen(execution, clock, 2)
    assert ended == ["waits for the store"]
    trials[2].status = "ERROR"
    for _ in range(500):
        workers.on_step_begin(2, trials)
        listen(execution, clock, 1)
        assert not result_of(execution, "takes its time", step=1, accuracy=0.1)
    assert ended == ["waits for the store"]
    assert "starts" in execution.running
    assert "1 of 2 workers is waiting" in watcher.notices[-1]


def test_a_worker_that_has_not_begun_is_ended_without_being_asked_for_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not answer."""
    told = list[str]()
    monkeypatch.setattr(ray, "kill", told.append)
    placement = SimpleNamespace(is_waiting=lambda: True, give=lambda trial_id: True)
    workers = Workers(cast("Execution", SimpleNamespace(placement=placement)))
    trials = [a_trial("a", "actor"), a_trial("b", None), a_trial("c", "another")]
    workers.on_step_begin(1, trials)
    trials[2].config = {"order": SimpleNamespace(runs=[])}
    workers.on_trial_complete(1, trials, trials[2])
    for trial in trials:
        workers._end_worker(trial.trial_id)
    end = time.monotonic() + 20
    while not told and time.monotonic() < end:
        time.sleep(0.01)
    assert told == ["actor"]


def test_a_worker_lost_while_the_launch_itself_was_stopped_fails_no_run(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=1, workers=1, stall_seconds=600.0)
    for attempt in ("a", "b"):
        assert next_run(execution, attempt) is not None
        execution.on_placed(attempt)
        clock.now += 2
        assert not result_of(execution, attempt, step=1, accuracy=0.1)
        execution.on_tick()
        clock.now += 3600
        execution.on_lost(attempt, "The actor died unexpectedly: its node was preempted.")
        clock.now += 10
    assert len(store) == 0
    assert [("lost its worker" in notice) for notice in watcher.notices] == [True, True]


@pytest.mark.parametrize(("name", "is_worker"), [("ray::PackTrainable.train", True), ("another program", False)])
def test_a_worker_is_ended_though_it_is_frozen_and_nothing_else_that_has_its_number(name: str, is_worker: bool) -> None:
    with subprocess.Popen([name, "60"], executable="sleep") as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_text():  # it is just beginning
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        found = kill_worker(process.pid)
        if not found:
            assert process.poll() is None
            process.kill()
        process.wait(timeout=30)
    assert found == is_worker
    assert not kill_worker(process.pid)


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"])
def test_ray_is_told_of_a_worker_that_it_does_not_miss(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose process is gone, and one that the launch ends, here or on another machine."""
    sent: list[int] = []
    far = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=sent.append))
    told: list[str] = []
    nodes = [{"NodeID": "ab" * 28, "NodeManagerAddress": "10.0.0.2", "Alive": True}]
    for name, stand_in in {"kill": told.append, "nodes": lambda: nodes, "remote": lambda _: far}.items():
        monkeypatch.setattr(ray, name, stand_in)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "10.0.0.1")
    monkeypatch.setattr(ray_tune, "LOOK_SECONDS", 0.01)
    workers = Workers(cast("Execution", SimpleNamespace(on_placed=lambda trial_id: None)))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name, pid in (("gone", ended.pid), ("works", os.getpid()), ("begins", None)):
        about = {"pid": pid, "node_ip": host}
        trial = SimpleNamespace(trial_id=name, last_result=about, temporary_state=SimpleNamespace(ray_actor=name))
        workers.on_trial_start(0, [], trial)
    with workers.looked_after():
        deadline = time.monotonic() + 30
        while len(told) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert set(told) == {"gone"}
    told = []  # a look may still be under way
    monkeypatch.setattr(ray, "kill", told.append)
    ray_tune._end_worker_of(workers._trials["gone"])
    assert (told, sent) == (["gone"], [ended.pid] if host == "10.0.0.2" else [])


def test_a_worker_lost_before_that_is_replaced(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=1, workers=1, stall_seconds=30.0)
    next_run(execution, "waits")
    clock.now += 31
    execution.on_lost("waits", "The node died.")
    clock.now += 2
    next_run(execution, "works")
    execution.on_placed("works")
    clock.now += 29
    execution.on_lost("works", "The node died.")
    assert [("lost its worker" in notice) for notice in watcher.notices] == [True, True]
    assert len(store) == 0


def test_the_workers_time_is_counted_and_can_be_limited(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=2, workers=2, worker_seconds=15.0)
    for trial in ("a", "b"):
        next_run(execution, trial)
        clock.now += 50  # no machine yet: that costs nothing
        execution.on_placed(trial)
        clock.now += 3
    assert not result_of(execution, "a", step=1, accuracy=0.1)
    assert execution.outcome.worker_seconds == 56  # two workers side by side
    assert execution.is_over()
    assert execution.outcome.stopped == "cost"
    clock.now += 4
    assert result_of(execution, "a", result=RESULT)
    execution.on_lost("b", "The node died.")
    assert execution.outcome.worker_seconds == 56 + 4 + 7
    assert len(store) == 1, "what runs at the limit is finished"


def test_after_a_limit_no_pack_waits_for_a_machine(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=2, workers=2, deadline=1010.0)
    next_run(execution, "a")
    next_run(execution, "b")
    execution.on_placed("a")
    clock.now += 11
    assert not result_of(execution, "a", step=1, accuracy=0.1)
    assert not execution.is_done(), "what runs at the limit is finished"
    execution.on_placed("b")
    assert result_of(execution, "b", step=1, accuracy=0.1), "it has begun after the limit"
    execution.on_stopped("b")
    next_run(execution, "b")
    assert result_of(execution, "a", result=RESULT)
    assert execution.is_done()
    assert execution.outcome.stopped == "time"
    assert len(store) == 1


def test_packs_that_only_wait_end_with_the_limit(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=2, workers=2, deadline=1010.0)
    next_run(execution, "a")
    next_run(execution, "b")
    assert not execution.is_done()
    clock.now += 11
    assert execution.is_done()


def test_workers_that_wait_for_a_machine_are_spoken_of_ever_more_rarely(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    next_run(execution, "a")
    next_run(execution, "b")
    execution.on_placed("a")
    told = []
    for _ in range(500):
        clock.now += 1
        before = len(watcher.notices)
        execution.on_tick()
        told += [clock.now - 1000] * (len(watcher.notices) - before)
    assert told == [61, 123, 247, 495]
    assert watcher.notices[0].startswith("no machine was available for 61 s, 1 of 2 workers is waiting")
    execution.on_placed("b")
    clock.now += 1000
    execution.on_tick()
    assert len(watcher.notices) == 4


def test_a_worker_that_dies_before_it_begins_was_there(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    for attempt in range(6):  # at any moment one of the two is waiting
        clock.now += 40
        assert next_run(execution, str(attempt)) is not None
        if attempt:
            execution.on_lost(str(attempt - 1), "The actor died unexpectedly.")
        execution.on_tick()
    assert not any("no machine was available" in notice for notice in watcher.notices)
    listen(execution, clock, 61)
    assert "no machine was available for 61 s" in watcher.notices[-1]


def test_workers_that_an_embedded_ray_never_places_end_the_launch(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    execution.placement.hopeless_after = 300.0
    next_run(execution, "a")
    next_run(execution, "b")
    clock.now += 299
    execution.on_placed("a")
    for _ in range(40):
        listen(execution, clock, 20)
        assert not result_of(execution, "a", step=1, accuracy=0.1)
    assert execution.fatal is None, "one of them works"
    assert len(watcher.notices) > 1
    assert all(notice.endswith(f"workers is waiting: {WHY_NO_WORKER}") for notice in watcher.notices)
    listen(execution, clock, 301)
    told = f"Ray has started no worker on this machine for 301 s (--stall-minutes): {WHY_NO_WORKER}"
    assert (type(execution.fatal), str(execution.fatal)) == (LostRayError, told)
    assert execution.is_over()


def test_the_least_time_that_ray_has_is_not_said_to_be_that_of_the_option(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    execution.placement.hopeless_after = LEAST_HOPELESS_SECONDS
    next_run(execution, "a")
    listen(execution, clock, 100)
    assert execution.fatal is None
    listen(execution, clock, 1)
    assert str(execution.fatal) == f"Ray has started no worker on this machine for 101 s: {WHY_NO_WORKER}"


def test_a_launch_that_was_stopped_while_the_first_workers_start_waits_on(store: ResultStore, clock: Clock) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    execution.placement.hopeless_after = 600.0
    next_run(execution, "a")
    listen(execution, clock, 5)
    clock.now += 3600
    execution.on_tick()
    assert (execution.fatal, watcher.notices) == (None, [])
    listen(execution, clock, 594)
    assert execution.fatal is None
    listen(execution, clock, 2)
    assert "no worker on this machine for 601 s" in str(execution.fatal)


def test_nobody_is_blamed_for_the_time_in_which_the_store_did_not_answer(
    store: ResultStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    execution.placement.hopeless_after = 200.0
    next_run(execution, "a")
    next_run(execution, "b")
    execution.on_placed("a")
    clock.now += 250
    monkeypatch.setattr(ResultStore, "waited", 250.0)
    execution.on_tick()
    assert (execution.fatal, watcher.notices) == (None, [])
    assert execution.outcome.worker_seconds == 250, "its worker costs what it costs"
    listen(execution, clock, 100)
    assert [notice.partition(",")[0] for notice in watcher.notices] == ["no machine was available for 61 s"]
    listen(execution, clock, 101)
    assert str(execution.fatal).startswith("Ray has started no worker on this machine for 201 s ")


class TwoDecoders(Toy):
    """A task with a decoder that needs no GPU."""

    cheap = ("mlp",)


def test_cpu_workers_train_the_cheap_decoders_beside_those_with_a_gpu(store: ResultStore) -> None:
    execution, _ = make(store)
    specs = [RunSpec.from_dict({**SPEC.to_dict(), "seed": s, "decoder": d}) for d in ("linear", "mlp") for s in range(3)]
    execution.search = GridSearch(specs, Toy.version)
    execution.workers, execution.cpu_workers = 1, 2
    execution.packs = PackSizes(TwoDecoders(), fixed=1, gpu=True, cpu_decoders=("mlp",))
    asked = [(spec.decoder, spec.seed) for trial in "abcd" if (spec := next_run(execution, trial)) is not None]
    assert asked == [("linear", 0), ("mlp", 0), ("mlp", 1)]
    report = PackReport(error="MemoryError", out_of_memory=True)
    execution.on_report("b", report)
    assert (execution.workers, execution.cpu_workers) == (1, 1), "a CPU worker the fewer"
    result_of(execution, "c", result=RESULT, device="cpu", host="here")
    again = next_run(execution, "e")
    assert again is not None
    assert (again.decoder, again.seed) == ("mlp", 0)
    assert next_run(execution, "f") is None
    while not execution.is_over():
        result_of(execution, next(iter(execution.running)), result=RESULT)
        next_run(execution, f"trial {len(store)}")
    assert len(store) == 6


def test_no_gpu_is_idle_when_a_cpu_worker_has_run_out_of_memory(store: ResultStore) -> None:
    execution, _ = make(store)
    specs = [RunSpec.from_dict({**SPEC.to_dict(), "seed": s, "decoder": d}) for s in range(8) for d in ("mlp", "linear")]
    execution.search = GridSearch(specs, Toy.version)
    execution.workers, execution.cpu_workers = 2, 4
    execution.packs = PackSizes(TwoDecoders(), fixed=1, gpu=True, cpu_decoders=("mlp",))
    asked = {trial: spec.decoder for trial in "abcdef" if (spec := next_run(execution, trial)) is not None}
    assert sorted(asked.values()) == ["linear"] * 2 + ["mlp"] * 4
    of_cpu = [trial for trial, decoder in asked.items() if decoder == "mlp"]
    of_gpu = [trial for trial, decoder in asked.items() if decoder == "linear"]
    execution.on_report(of_cpu[0], PackReport(error="MemoryError", out_of_memory=True))
    assert (execution.workers, execution.cpu_workers) == (2, 2), "and three runs go on"
    assert result_of(execution, of_gpu[0], result=RESULT)
    again = next_run(execution, "g")
    assert again is not None
    assert again.decoder == "linear"
    assert next_run(execution, "h") is None


def test_what_the_store_noticed_before_the_first_run_is_said_unless_it_was(store: ResultStore) -> None:
    store.place.note("it was said")
    store.place.note("it was not")
    execution, watcher = make(store, seeds=1, workers=1)
    execution.said = 1
    assert next_run(execution, "a") is not None
    result_of(execution, "a", result=RESULT)
    assert watcher.notices == ["warning: it was not"]


def test_what_the_store_puts_aside_is_said(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    assert next_run(execution, "a") is not None
    foreign = store.path / "runs" / "notes.parquet"
    foreign.write_text("not a table")
    result_of(execution, "a", result=RESULT)
    result_of(execution, "a", result=RESULT)
    assert [notice.partition(":")[0] for notice in watcher.notices] == ["warning"]
    assert f"set aside {foreign}" in watcher.notices[0]


class Mute(GridSearch):
    """Asks for nothing, and does not finish."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        return []

    def finished(self, rows: Rows) -> bool:
        return False


def test_a_search_that_asks_for_nothing_and_has_not_finished_ends_the_launch(store: ResultStore) -> None:
    execution, _ = make(store)
    execution.search = Mute([], "1")
    assert next_run(execution, "a") is None
    assert isinstance(execution.fatal, StuckError)
    assert execution.is_over()


def test_a_search_that_waits_for_a_run_in_progress_is_waited_for(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1)
    assert next_run(execution, "a") is not None
    execution.search = Mute([], "1")
    assert next_run(execution, "b") is None
    assert execution.fatal is None


def test_after_the_deadline_nothing_is_started(store: ResultStore) -> None:
    execution, _ = make(store, deadline=time.monotonic() - 1)
    assert execution.is_over()
    assert execution.outcome.stopped == "time"


def test_the_trainable_continues_from_a_checkpoint_to_the_same_bits() -> None:
    spec = RunSpec(
        task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=10, seed=0, decoder="mlp", width=32, max_steps=60,
        options=(("absent", "zero"), ("centres", "integer"), ("polarity", "bright"), ("sigma", 1.0), ("tolerance", 0)),
        target=1.0,
    )  # fmt: skip

    def config(seconds: float, checkpoint: bytes | None = None) -> dict[str, Any]:
        runs = [ordered(spec, checkpoint=checkpoint, save_weights=True)]
        return {"order": Order(runs, slice_seconds=seconds, checkpoint_seconds=0.0), "cpus": 1.0, "gpus": 0.0}

    def report_of(trainable: PackTrainable) -> RunReport:
        (report,) = trainable.train()["report"].runs.values()
        return report

    whole = report_of(PackTrainable(config(1e9)))
    assert whole.done
    cut = PackTrainable(config(0.0))
    reports = [report_of(cut) for _ in range(7)]
    assert not reports[-1].done
    (checkpoint,) = cut.checkpoints().values()
    assert cut.checkpoints() == {}
    going_on = PackTrainable(config(0.0, checkpoint))
    assert len(pickle.dumps(going_on.train())) < len(checkpoint) / 2  # Tune keeps it until the trial ends
    assert len(going_on.checkpoints()) == 1
    resumed = report_of(PackTrainable(config(1e9, checkpoint)))
    assert resumed.result == whole.result
    assert resumed.weights == whole.weights
    damaged = report_of(PackTrainable(config(1e9, b"no checkpoint")))
    assert damaged.result == whole.result


@pytest.mark.parametrize(
    ("answer", "checkpoint"), [({"a": b"state"}, b"state"), (ray.exceptions.GetTimeoutError("it does not answer"), None)]
)
def test_checkpoints_are_asked_of_the_worker_that_made_them(
    answer: Any, checkpoint: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(asked: str, timeout: float) -> Any:
        assert (asked, timeout) == ("asked", 60.0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray, "get", get)
    told: list[PackReport] = []
    heard = SimpleNamespace(on_report=lambda trial, report: told.append(report), running={"trial": {"a": SPEC, "b": SPEC}})
    ending = Ending(cast(Execution, heard))
    actor = SimpleNamespace(checkpoints=SimpleNamespace(remote=lambda: "asked"))
    at_work, failed = RunReport(step=3, accuracy=0.5), RunReport(error="it failed", accuracy=0.5)
    report = PackReport(runs={"a": at_work, "b": failed}, actor=actor, saved=True)
    ending("trial", {"report": report})
    assert told[0].runs == {"a": dataclasses.replace(at_work, checkpoint=checkpoint), "b": failed}
    plain = PackReport(runs={"a": RunReport(step=4)}, actor=actor)
    ending("trial", {"report": plain})
    assert told[1] is plain


@pytest.mark.parametrize("event", ["on_placed", "on_lost", "on_tick", "on_report", "on_stopped"])
def test_whatever_is_raised_in_an_event_of_tune_ends_the_launch_and_is_not_thrown_at_tune(event: str) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    execution: Any = SimpleNamespace(running={"t": {}}, fatal=None, is_done=lambda: False, **{event: full})
    trial: Any = SimpleNamespace(trial_id="t", error_file=None, config={"order": Order([])})
    workers, ending = Workers(execution), Ending(execution)
    told: dict[str, Callable[[], object]] = {
        "on_placed": lambda: workers.on_trial_start(0, [], trial),
        "on_lost": lambda: workers.on_trial_error(0, [], trial),
        "on_tick": ending.stop_all,
        "on_report": lambda: ending("t", {"report": PackReport()}),
        "on_stopped": lambda: StudySearcher(execution, 1.0, 0.0, 10, {}).on_trial_complete("t"),
    }
    assert told[event]() in (None, True)
    assert str(execution.fatal) == "the disk is full"


def test_a_launch_beside_another_trains_what_the_other_does_not(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "store") as one, ResultStore(tmp_path / "store") as two:
        first, _ = make(one, seeds=2, workers=2)
        second, _ = make(two, seeds=2, workers=2)
        specs = [next_run(first, "a"), next_run(first, "b"), next_run(second, "c"), next_run(second, "d")]
        assert None not in specs
        assert len({s.to_dict()["seed"] * 1000 + s.data_count for s in specs if s is not None}) == 4
        spec = specs[0]
        assert spec is not None
        result_of(first, "a", result={**RESULT, "status": "missed"})
        third = next_run(first, "e")
        assert third is not None
        assert third not in specs


def test_a_pruned_run_has_no_squared_error_where_the_loss_is_another() -> None:
    curves = {"curve_step": [20, 40, 60], "curve_loss": [3.0, 2.0, 1.0], "curve_accuracy": [0.0, 0.5, 1.0]}
    curves |= {"curve_error": [0.9, 0.6, 0.3], "curve_summary": {"gap": [0.1, 0.2, 0.3]}}
    plain, other = pruned_result(curves, 2), pruned_result(curves, 2, error_is_mse=False)
    assert (plain, "ood_mse" in other) == (other | {"ood_mse": 0.6}, False)
    assert other["curve_summary"] == {"gap": [0.1, 0.2]}
    assert (other["steps"], other["loss"], other["accuracy"], other["curve_error"]) == (40, 2.0, 0.5, [0.9, 0.6])
    assert "curve_summary" not in pruned_result({**curves, "curve_summary": None}, 2)


def test_a_run_is_pruned_where_the_search_says_however_far_the_worker_got(store: ResultStore) -> None:
    def curves(points: int) -> dict[str, Any]:
        steps = [20 * (i + 1) for i in range(points)]
        errors = [1.0 / step for step in steps]
        return {"curve_step": steps, "curve_loss": errors, "curve_accuracy": [0.5] * points, "curve_error": errors}

    class Strict:
        """Prunes every run at its third point."""

        def propose(self, rows: Rows, room: int, running: Any = (), fill: int | None = None) -> list[RunSpec]:
            return [RunSpec.from_dict({**SPEC.to_dict(), "seed": seed, "data_count": 1}) for seed in range(room)]

        def pruned_at(self, rows: Rows, spec: RunSpec, curve: Any) -> int | None:
            return 3 if len(curve.step) >= 3 else None

        def finished(self, rows: Rows) -> bool:
            return len(rows) == 2

    execution, _ = make(store, workers=2)
    execution.search = Strict()
    for trial in ("under way", "at its end"):
        assert next_run(execution, trial) is not None
    about = {"seconds": 1.0, "host": "here", "device": "cpu"}
    seen = {"step": 50, "accuracy": 0.5, **about}
    assert not result_of(execution, "under way", **seen, curves=curves(2))
    assert result_of(execution, "under way", **seen, curves=curves(7))
    result = {**RESULT, "steps": 200, "device": "cpu", **curves(10)}
    assert result_of(execution, "at its end", result=result, seconds=9.0, host="here", weights=b"later", end=b"later")
    rows = store.rows()
    assert [(row["status"], row["steps"], row["curve_step"]) for row in rows] == [("pruned", 60, [20, 40, 60])] * 2
    assert [row["ood_mse"] for row in rows] == [1 / 60] * 2
    assert [row["id_mse"] for row in rows] == [None] * 2
    assert (store.with_weights(), store.with_checkpoints()) == (set(), set()), "they would be those of a later step"
    assert execution.is_over()
    assert not execution.running


class PrunesFirst(GridSearch):
    """Prunes the run of seed 0 at its first point."""

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Any) -> int | None:
        return 1 if spec.seed == 0 and len(curve.step) else None


def test_a_pack_whose_runs_take_long_to_make_reports_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the time of a run, and one that cannot be made does not end the worker."""
    specs = [dataclasses.replace(SPEC, data_count=4, seed=seed, max_steps=20, stop="budget") for seed in range(4)]
    made = list[int]()
    data = Toy.data

    def slow(task: Toy, spec: RunSpec) -> Any:
        made.append(spec.seed)
        if spec.seed < 2:
            raise ValueError("no data")
        return data(task, spec)

    monkeypatch.setattr(Toy, "data", slow)
    orders = [ordered(spec) for spec in specs]
    trainable = PackTrainable({"order": Order(orders, slice_seconds=0.0), "cpus": 1.0, "gpus": 0.0})
    counts, done, reports = list[int](), False, dict[str, RunReport]()
    while not done:
        told = trainable.train()
        done = told["done"]
        counts.append(len(made))
        reports |= told["report"].runs
    assert counts[:4] == [1, 2, 3, 4]
    assert counts[-1] == 4
    assert [reports[order.key].error is None for order in orders] == [False, False, True, True]
    assert [reports[order.key].result["steps"] for order in orders[2:]] == [20, 20]


@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_a_worker_that_should_have_a_gpu_and_has_none_measures_no_pack_size(
    monkeypatch: pytest.MonkeyPatch, gpus: float
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(of_worker, "best_pack_size", lambda run: 7)
    order = Order([ordered(dataclasses.replace(SPEC, data_count=4, max_steps=20))], measure_pack_size=True)
    report = PackTrainable({"order": order, "cpus": 1.0, "gpus": gpus}).train()["report"]
    assert report.best_pack_size == (None if gpus else 7)


@pytest.mark.parametrize("stacked", [True, False])
def test_a_run_that_is_pruned_is_not_trained_on_in_its_pack(store: ResultStore, stacked: bool) -> None:
    task = BumpTask()
    specs = [
        RunSpec(task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=10, seed=seed, decoder="mlp", width=8,
                max_steps=200, options=tuple(task.defaults.items()), target=1.0)
        for seed in range(3)
    ]  # fmt: skip
    execution, watcher = make(store, workers=1, pack_size=3)
    execution.search = PrunesFirst(specs, task.version)
    execution.task, execution.tasks, execution.packs = task, Tasks(task), PackSizes(task, fixed=3)
    assert len(execution.next_pack("t")) == 3
    trainable = PackTrainable({"order": Order([ordered(spec) for spec in specs], slice_seconds=0.0), "cpus": 1.0, "gpus": 0.0})
    actor, ending = actor_of(trainable), Ending(execution)
    while trainable._pack is None:
        trainable.train()
    runs = dict(trainable._runs)
    assert isinstance(trainable._pack, Pack)
    trainable._pack._alone = not stacked
    pruned, *others = (runs[run_key(spec, task.version)] for spec in specs)
    while not ending("t", {"report": (report := dataclasses.replace(trainable.train()["report"], actor=actor))}):
        pass
    rows = {row["seed"]: row for row in store.rows()}
    first = rows[0]["steps"]
    assert (rows[0]["status"], pruned.progress.step) == ("pruned", first)
    assert [rows[seed]["status"] for seed in (1, 2)] == ["missed", "missed"]
    assert [run.progress.step for run in others] == [200, 200]
    assert set(report.runs) <= {run_key(spec, task.version) for spec in specs[1:]}
    assert not watcher.notices


def actor_of(trainable: PackTrainable) -> Any:
    """What Ray would give of a worker, here in this process."""
    methods = {name: SimpleNamespace(remote=getattr(trainable, name)) for name in ("checkpoints", "drop")}
    return SimpleNamespace(**methods)


def test_runs_of_one_shape_are_packed_and_leave_as_they_end(store: ResultStore) -> None:
    execution, _ = make(store, seeds=5, workers=2, pack_size=4)
    first, second = execution.next_pack("a"), execution.next_pack("b")
    assert [len(first), len(second)] == [3, 2]  # what there is, shared between the workers
    assert len({(spec.seed, spec.data_count) for spec in first + second}) == 5
    assert execution.next_pack("c") == []
    one, *others = execution.running["a"]
    done = RunReport(result=RESULT, pack_size=3)
    assert not execution.on_report("a", PackReport(runs={one: done}))
    assert list(execution.running["a"]) == others
    assert execution.on_report("a", PackReport(runs=dict.fromkeys(others, done)))
    assert [row["pack_size"] for row in store.rows()] == [3, 3, 3]
    assert list(execution.running) == ["b"]


@pytest.mark.parametrize("first", [False, True])
def test_a_pack_passes_over_runs_that_another_launch_trains(uri: str, on: Callable[[str], None], first: bool) -> None:
    with ResultStore(uri) as store:
        execution, _ = make(store, seeds=8, workers=2, pack_size=8)
        keys = [execution.tasks.key(spec) for spec in execution.search.propose(execution.rows, 8)]
        on("b")
        with ResultStore(uri) as other:
            theirs = [keys[i] for i in ((0, 2, 3) if first else (1, 2, 4))]
            assert other.claim_all(theirs) == theirs
            execution.next_pack("a")
            ours = [key for key in keys if key not in theirs][:4]  # half of the eight
            assert list(execution.running["a"]) == ours
            assert store.place.lease.held == set(ours)
            assert other.claim_all(keys) == [key for key in keys if key not in ours]


def test_the_line_that_told_the_accuracy_of_a_program_is_said_once(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=3, workers=1, pack_size=3)
    assert len(execution.next_pack("a")) == 3
    assert result_of(execution, "a", result=RESULT, line='{"split": "train", "accuracy": 0.99}')
    [told] = watcher.notices
    assert told.endswith('seed 0: its accuracy was read from the line {"split": "train", "accuracy": 0.99}')


def test_runs_that_end_together_are_counted_one_by_one(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    execution, watcher = make(store, seeds=3, workers=1, pack_size=3)
    counts: list[int] = []
    monkeypatch.setattr(watcher, "finished", lambda row: counts.append(execution.outcome.trained))
    assert len(execution.next_pack("a")) == 3
    assert result_of(execution, "a", result=RESULT)
    assert counts == [1, 2, 3]


def test_runs_of_other_shapes_are_not_packed_together(store: ResultStore) -> None:
    execution, _ = make(store)
    small, large, option = (
        RunSpec.from_dict({**SPEC.to_dict(), **change})
        for change in ({}, {"N": 9}, {"options": {**Toy.defaults, "pause": 1.0}})
    )
    same = RunSpec.from_dict({**SPEC.to_dict(), "seed": 3, "data_count": 2, "lr": 0.5, "target": 0.1})
    shapes = [execution.packs.shape(spec) for spec in (small, same, large, option)]
    assert shapes[0] == shapes[1]
    assert len(set(shapes)) == 3


def test_on_a_cpu_a_pack_holds_needed_runs_and_on_a_gpu_likely_ones_too(store: ResultStore) -> None:
    for gpu, size in ((False, 1), (True, 4)):
        execution, _ = make(store, seeds=1, workers=1)
        execution.packs = PackSizes(Toy(), fixed=4, gpu=gpu)
        assert len(execution.next_pack("a")) == size
        execution.on_stopped("a")


def test_a_pack_out_of_memory_is_halved_and_its_runs_are_asked_for_again(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=4, workers=1, pack_size=4)
    for attempt, size in (("a", 4), ("b", 2), ("c", 1)):
        assert len(execution.next_pack(attempt)) == size
        assert execution.on_report(attempt, PackReport(error="CUDA out of memory", out_of_memory=True))
        assert not execution.running
    assert execution.workers == 1
    told = [notice.rsplit(": ", 1)[1] for notice in watcher.notices]
    assert told == ["now 2 in a pack", "now 1 in a pack", "now 1 in parallel"]
    assert len(store) == 0


@pytest.mark.parametrize("left", [3, 1])
def test_memory_that_runs_out_halves_the_number_a_pack_began_with(store: ResultStore, left: int) -> None:
    execution, watcher = make_grid(store, 20, workers=1, size=8)
    execution.next_pack("a")
    keys = list(execution.running["a"])
    ended = dict.fromkeys(keys[: 8 - left], RunReport(result=RESULT))
    assert not execution.on_report("a", PackReport(runs=ended))
    assert execution.on_report("a", PackReport(error="CUDA out of memory", out_of_memory=True))
    assert store.load_pack_sizes() == {execution.packs.shape(SPEC): 4}
    assert watcher.notices[-1].endswith("ran out of memory: now 4 in a pack")
    assert len(execution.next_pack("b")) == 4
    assert set(execution.running["b"]) >= set(keys[8 - left :])


def test_a_pack_that_began_before_others_ran_out_of_memory_makes_theirs_no_larger(store: ResultStore) -> None:
    execution, _ = make_grid(store, 64, workers=2, size=16)
    execution.next_pack("early")
    for trial, size in (("a", 16), ("b", 8), ("c", 4)):
        assert len(execution.next_pack(trial)) == size
        assert execution.on_report(trial, PackReport(error="CUDA out of memory", out_of_memory=True))
    assert execution.on_report("early", PackReport(error="CUDA out of memory", out_of_memory=True))
    assert execution.packs.size(SPEC) == 2
    assert store.load_pack_sizes() == {execution.packs.shape(SPEC): 2}


def make_grid(store: ResultStore, runs: int, workers: int, size: int) -> tuple[Execution, Watcher]:
    """The execution of so many runs of one shape, whose measured pack size is known."""
    execution, watcher = make(store, workers=workers)
    execution.search = GridSearch([dataclasses.replace(SPEC, seed=seed) for seed in range(runs)], Toy.version)
    store.save_pack_sizes({execution.packs.shape(SPEC): size})
    execution.packs = PackSizes(execution.task, store, fixed=None)
    return execution, watcher


def test_after_an_exception_the_runs_of_a_pack_go_one_by_one(store: ResultStore) -> None:
    execution, _ = make(store, seeds=3, workers=1, pack_size=3)
    assert len(execution.next_pack("a")) == 3
    assert execution.on_report("a", PackReport(error="Traceback ..."))
    error = {"error": "Traceback ..."}
    for trial, report in (("b", error), ("c", error), ("d", {"result": RESULT})):
        assert len(execution.next_pack(trial)) == 1
        assert result_of(execution, trial, **report)
    assert sorted(row["status"] for row in store.rows()) == ["failed", "passed"]


def test_a_run_whose_pack_raised_stays_alone_when_it_loses_a_worker(store: ResultStore, clock: Clock) -> None:
    execution, _ = make(store, seeds=3, workers=1, pack_size=3)
    assert len(execution.next_pack("0")) == 3
    assert execution.on_report("0", PackReport(error="Traceback ..."))
    for trial in ("1", "2", "3"):
        assert len(execution.next_pack(trial)) == 1
        execution.on_lost(trial, "The actor died unexpectedly.")
    clock.now += 100
    assert len(execution.next_pack("4")) == 1


def test_runs_whose_pack_lost_its_worker_twice_are_trained_alone(store: ResultStore, clock: Clock) -> None:
    """One of them may be the cause."""
    execution, _ = make(store, seeds=3, workers=1, pack_size=3)
    sizes = []
    for trial in ("0", "1", "2", "3"):
        sizes.append(len(execution.next_pack(trial)))
        execution.on_lost(trial, "The actor died unexpectedly.")
        clock.now += 100
    assert sizes == [3, 3, 1, 1]


def test_pack_sizes_are_measured_once_and_remembered(store: ResultStore) -> None:
    packs = PackSizes(Toy(), store, fixed=None)
    assert (packs.size(SPEC), packs.meet([SPEC]), packs.largest) == (1, False, 1)
    assert [packs.asks(SPEC, "a"), packs.asks(SPEC, "b")] == [True, False]
    packs.give_up("b")
    assert not packs.asks(SPEC, "c"), "a still measures"
    packs.give_up("a")
    assert packs.asks(SPEC, "c")
    packs.learn(SPEC, 8)
    assert not packs.asks(SPEC, "d")
    assert PackSizes(Toy(), store, fixed=None).size(SPEC) == 8
    assert PackSizes(Toy(), store, fixed=3).size(SPEC) == 3
    (store.path / "pack-sizes.json").write_text("[torn")
    assert PackSizes(Toy(), store, fixed=None).size(SPEC) == 1


def test_pack_sizes_that_another_launch_has_stored_meanwhile_stay(store: ResultStore) -> None:
    other_shape = dataclasses.replace(SPEC, width=SPEC.width + 1)
    PackSizes(Toy(), store, fixed=None).learn(SPEC, 8)
    ours, theirs = (PackSizes(Toy(), store, fixed=None) for _ in range(2))
    theirs.halve(SPEC, 8)
    ours.learn(other_shape, 2)
    assert store.load_pack_sizes() == {ours.shape(SPEC): 4, ours.shape(other_shape): 2}
    assert ours.size(SPEC) == 8, "of what is in memory, nothing changes in the middle of a launch"


def test_packs_that_are_halved_for_now_are_as_large_as_before_in_the_next_launch(store: ResultStore) -> None:
    packs, other_shape = PackSizes(Toy(), store, fixed=None), dataclasses.replace(SPEC, width=SPEC.width + 1)
    packs.learn(SPEC, 8)
    assert [packs.halve(SPEC, 8, for_good=False), packs.size(SPEC)] == [4, 4]
    packs.learn(other_shape, 2)
    assert store.load_pack_sizes() == {packs.shape(SPEC): 8, packs.shape(other_shape): 2}


@pytest.mark.parametrize("ends", ["it cannot be made", "its worker is lost", "it is stopped"])
def test_pack_sizes_are_measured_though_the_worker_that_was_to_do_so_is_gone(store: ResultStore, ends: str) -> None:
    execution, _ = make(store, seeds=5, workers=3)
    execution.packs = PackSizes(Toy(), store, fixed=None)
    (spec,), (other,) = execution.next_pack("a"), execution.next_pack("b")
    assert [execution.packs.asks(spec, "a"), execution.packs.asks(other, "b")] == [True, False]
    execution.on_stopped("b")
    assert not execution.packs.asks(other, "c")
    if ends == "it cannot be made":
        assert result_of(execution, "a", error="ValueError: no such data")
    elif ends == "its worker is lost":
        execution.on_lost("a", "")
    else:
        execution.on_stopped("a")
    assert execution.packs.asks(other, "d")


def test_pack_sizes_of_a_part_of_a_gpu_are_none_of_a_whole_one(store: ResultStore) -> None:
    PackSizes(Toy(), store, fixed=None, gpu=True).learn(SPEC, 64)
    PackSizes(Toy(), store, fixed=None, gpu=True, share=0.25).learn(SPEC, 16)
    sizes = {share: PackSizes(Toy(), store, fixed=None, gpu=True, share=share).size(SPEC) for share in (0.25, 0.5, 1.0, 2.0)}
    assert sizes == {0.25: 16, 0.5: 4, 1.0: 64, 2.0: 64}
    assert PackSizes(Toy(), gpu=True).shape(SPEC).endswith("-gpu"), "as former stores have it"


def test_the_first_runs_of_a_shape_on_a_gpu_train_together(store: ResultStore) -> None:
    execution, _ = make(store, seeds=5, workers=2)
    execution.packs = PackSizes(Toy(), store, fixed=None, gpu=True)
    packs = [execution.next_pack(trial) for trial in ("a", "b")]
    assert [len(pack) for pack in packs] == [4, 4], "what the answer may need, too"
    assert PackSizes(Toy(), store, fixed=None, gpu=True, cpu_decoders=(SPEC.decoder,)).size(SPEC) == 1
    assert PackSizes(Toy(), store, fixed=1, gpu=True).size(SPEC) == 1
    execution.packs.learn(SPEC, 1)
    assert execution.packs.largest == 1


def test_runs_that_differ_in_what_a_task_calls_packable_have_one_shape() -> None:
    spec = RunSpec(task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=9, seed=0,
                   options=tuple(BumpTask.defaults.items()))  # fmt: skip
    packs = PackSizes(BumpTask())
    others = [{"holdout": "corner"}, {"dataset": "stripes+bumps", "holdout": "center"}, {"encoding": "ramp"}]
    shapes = [packs.shape(dataclasses.replace(spec, **change)) for change in others]  # type: ignore[arg-type]
    assert [shape == packs.shape(spec) for shape in shapes] == [True, True, False]


def test_runs_train_together_only_under_rules_of_stopping_that_are_looked_at_alike() -> None:
    packs = PackSizes(Toy())
    target, early, budget = (packs.shape(dataclasses.replace(SPEC, stop=stop)) for stop in ("target", "early", "budget"))
    assert target == early != budget


def test_runs_of_two_versions_of_a_task_do_not_train_together() -> None:
    class Later(Toy):
        version = f"{Toy.version}+"

    assert PackSizes(Toy()).shape(SPEC) == PackSizes(Toy()).shape(SPEC) != PackSizes(Later()).shape(SPEC)


def test_packs_of_other_studies_have_nothing_to_say_to_how_many_runs_are_asked_for(store: ResultStore) -> None:
    other = dataclasses.replace(SPEC, N=SPEC.N + 8)
    PackSizes(Toy(), store, fixed=None).learn(other, 2048)
    execution, _ = make(store, seeds=20, workers=2)
    execution.packs = PackSizes(Toy(), store, fixed=None)
    search, rooms = execution.search, list[int]()
    execution.search = SimpleNamespace(  # type: ignore[assignment]
        propose=lambda rows, room, *given: rooms.append(room) or search.propose(rows, room, *given),
        finished=search.finished,
    )
    assert len(execution.next_pack("a")) == 1
    assert rooms == [2]
    execution.on_stopped("a")
    PackSizes(Toy(), store, fixed=None).learn(SPEC, 4)
    execution.packs = PackSizes(Toy(), store, fixed=None)
    rooms.clear()
    assert len(execution.next_pack("b")) == 4, "once it is met, as many as fit are asked for"
    assert rooms == [2, 8]


def test_pack_sizes_that_others_have_measured_stay(store: ResultStore) -> None:
    other = dataclasses.replace(SPEC, N=SPEC.N + 8)
    one, two = (PackSizes(Toy(), store, fixed=None) for _ in range(2))
    one.learn(SPEC, 16)
    two.learn(other, 32)
    one.learn(SPEC, 8)
    PackSizes(Toy(), store, fixed=64).learn(SPEC, 32)
    packs = PackSizes(Toy(), store, fixed=None)
    assert [packs.size(SPEC), packs.size(other)] == [8, 32]


@pytest.mark.slow(1)
def test_a_worker_trains_a_pack_and_one_bad_run_does_not_spoil_it() -> None:
    task = BumpTask()
    good = [
        RunSpec(task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=count, seed=0, decoder="mlp", width=32,
                max_steps=60, options=tuple(task.defaults.items()), target=1.0)
        for count in (10, 20)
    ]  # fmt: skip
    bad = good[0].with_count(10_000)
    runs = [ordered(spec, save_weights=True) for spec in (good[0], bad, good[1])]
    report = PackTrainable({"order": Order(runs, measure_pack_size=True), "cpus": 1.0, "gpus": 0.0}).train()["report"]
    assert report.done
    assert report.best_pack_size >= 1
    assert "data_count must lie in" in report.runs[runs[1].key].error
    for spec in good:
        of_run = report.runs[run_key(spec, task.version)]
        alone = Training(spec, task)
        alone.advance()
        assert of_run.result["accuracy"] == pytest.approx(alone.result().accuracy, abs=0.02)
        assert of_run.pack_size == 3
        weights = safetensors.torch.load(of_run.weights)
        assert all(torch.allclose(weights[name], p, atol=1e-4) for name, p in alone.model.state_dict().items())


def test_the_weights_of_a_cnn_in_bfloat16_can_be_kept() -> None:
    options = tuple(BumpTask.defaults.items())
    spec = RunSpec(task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=10, seed=0, width=4, max_steps=20,
                   options=options, stop="budget", precision="bfloat16")  # fmt: skip
    order = Order([ordered(spec, save_weights=True)])
    (report,) = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"].runs.values()
    alone = Training(spec, BumpTask())
    alone.advance()
    weights = safetensors.torch.load(report.weights)
    assert all(torch.equal(weights[name], p) for name, p in alone.model.state_dict().items())


def test_a_launch_whose_workers_are_all_busy_hears_that_another_one_has_answered_the_question(
    store: ResultStore, clock: Clock
) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    assert next_run(execution, "a")
    for key in execution.running["a"]:
        store.release(key)
    with ResultStore(store.path) as theirs:
        other, _ = make(theirs, seeds=1, workers=1)
        while spec := next_run(other, "theirs"):
            passes = spec.data_count >= 16
            assert result_of(other, "theirs", result=RESULT if passes else {**RESULT, "status": "missed", "reason": "budget"})
    assert other.is_done()
    clock.now += module.BUSY_LOOK_SECONDS / 2
    execution.on_tick()
    assert not execution.is_done()
    clock.now += module.BUSY_LOOK_SECONDS
    execution.on_tick()
    assert execution.is_done()
    assert len(watcher.rows) == len(theirs)


def test_a_launch_that_can_train_nothing_ends_however_often_it_looks_at_the_store(store: ResultStore, clock: Clock) -> None:
    execution, _ = make_grid(store, runs=1, workers=1, size=1)
    (spec,) = execution.search.propose(execution.rows, 1)
    execution.failures.of(run_key(spec, Toy.version)).lost = MOST_LOST
    execution.failures.of(run_key(spec, Toy.version)).not_before = math.inf
    clock.now += 10
    execution.on_tick()
    assert execution.next_pack("a") == []
    assert execution.outcome.stopped == "lost"


def test_a_launch_that_has_left_a_run_waits_for_those_that_another_one_trains(store: ResultStore, clock: Clock) -> None:
    execution, _ = make_grid(store, runs=2, workers=1, size=1)
    left, elsewhere = (run_key(spec, Toy.version) for spec in execution.search.propose(execution.rows, 2))
    execution.failures.of(left).lost = MOST_LOST
    execution.failures.of(left).not_before = math.inf
    with ResultStore(store.path) as other:
        assert other.claim(elsewhere)
        clock.now += 10
        assert execution.next_pack("a") == []
        assert execution.outcome.stopped is None, "if that launch ends, this one trains it"
    assert [run_key(spec, Toy.version) for spec in execution.next_pack("b")] == [elsewhere]


def test_rows_of_other_studies_on_the_same_store_are_passed_over(store: ResultStore) -> None:
    execution, watcher = make(store)
    execution.concerns = lambda row: row["N"] == SPEC.N
    specs = [SPEC.with_count(3), dataclasses.replace(SPEC.with_count(3), N=16)]
    with ResultStore(store.path) as other:
        other.append([make_row(s, task_version="1", fixed_count=0, status="missed", reason="budget") for s in specs])
    execution._learn_from_others()
    assert [row["N"] for row in watcher.rows] == [SPEC.N]
    assert len(execution.rows) == 1


def test_a_run_whose_row_the_filter_of_the_study_missed_is_not_trained_without_end(store: ResultStore) -> None:
    missed = make_row(SPEC, task_version="1", fixed_count=0, status="missed", reason="budget")
    store.append([missed])
    execution, watcher = make(store, workers=1)
    execution.search = GridSearch([SPEC, dataclasses.replace(SPEC, seed=1)], Toy.version)
    execution.rows = Rows()
    execution.concerns = lambda row: row["key"] != missed["key"]
    for trial in ("a", "b"):
        assert next_run(execution, trial) is not None
        result_of(execution, trial, result=RESULT)
    assert execution.is_over()
    assert [row["status"] for row in execution.rows] == ["missed", "passed"], "the stored row counts"
    assert [row["status"] for row in watcher.rows] == ["missed", "passed"]
    assert (execution.outcome.trained, len(store)) == (2, 2)


def test_a_row_says_with_which_versions_it_was_trained_and_not_those_of_the_command(store: ResultStore) -> None:
    execution, _ = make(store, workers=2)
    execution.versions = "torch=1"
    for trial, told in (("a", "torch=2"), ("b", "")):
        assert next_run(execution, trial) is not None
        result_of(execution, trial, result=RESULT, versions=told)
    assert [row["versions"].split()[0] for row in store.rows()] == ["torch=2", "torch=1"]
    order = Order([ordered(dataclasses.replace(SPEC, data_count=4))])
    report = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"]
    assert [run.versions for run in report.runs.values()] == [versions()]


@pytest.mark.parametrize("of_pack", [False, True])
def test_the_row_of_a_run_that_raised_says_where_and_for_how_long_it_was_trained(store: ResultStore, of_pack: bool) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    for trial in ("a", "b"):
        assert next_run(execution, trial) is not None
        (key,) = execution.running[trial]
        of_run = RunReport(seconds=9.5, host="m1", device="cuda", versions="torch=2", pack_size=3)
        if of_pack:
            assert execution.on_report(trial, PackReport(error="ValueError: no", failed={key: of_run}))
        else:
            assert execution.on_report(trial, PackReport(runs={key: dataclasses.replace(of_run, error="ValueError: no")}))
    (row,) = store.rows()
    assert (row["status"], row["error"]) == ("failed", "ValueError: no")
    assert (row["seconds"], row["host"], row["device"], row["pack_size"]) == (9.5, "m1", "cuda", 3)
    assert row["versions"].split()[0] == "torch=2"


@pytest.mark.parametrize("ends", ["lost", "frozen", "unheard"])
def test_the_row_of_a_run_whose_worker_stalled_says_what_was_heard_of_it(store: ResultStore, clock: Clock, ends: str) -> None:
    execution, _ = make(store, seeds=1, workers=1, stall_seconds=30.0)
    for trial in ("a", "b"):
        assert next_run(execution, trial) is not None
        execution.on_placed(trial)
        if ends != "unheard":
            told = {"host": "m1", "device": "cuda", "versions": "torch=2", "curves": {"curve_step": []}}
            assert not result_of(execution, trial, step=5, seconds=40.0, **told)
        listen(execution, clock, 62 if ends == "frozen" else 30)
        if ends != "frozen":
            execution.on_lost(trial, "The actor died unexpectedly.")
    (row,) = store.rows()
    where = row["seconds"], row["host"], row["device"], row["versions"].split()[0]
    assert where == ((0.0, "", "", "test") if ends == "unheard" else (40.0, "m1", "cuda", "torch=2"))


def test_runs_share_the_time_of_their_pack_and_leave_checkpoints_when_enough_of_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slices are shorter than what is between two checkpoints."""
    clock, advance = Clock(), Pack.advance

    def train(pack: Pack, seconds: float) -> bool:
        clock.now += 4.0
        return advance(pack, seconds)

    monkeypatch.setattr(of_worker.time, "perf_counter", clock)
    monkeypatch.setattr(Pack, "advance", train)
    specs = [dataclasses.replace(LONG, seed=seed) for seed in range(2)]
    order = Order([ordered(spec) for spec in specs], slice_seconds=0.0, checkpoint_seconds=10.0)
    trainable, saved, seconds = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}), [], []
    trainable.step()  # the first of them is made
    for _ in range(7):
        report = trainable.step()["report"]
        saved.append(report.saved)
        seconds.append([run.seconds for run in report.runs.values()])
        assert len(trainable.checkpoints()) == 2 * report.saved
    assert seconds == [[2.0 * n, 2.0 * n] for n in range(1, 8)]
    assert saved == [False, False, True, False, False, True, False]


def test_a_run_that_was_given_up_leaves_an_end_from_which_a_worker_trains_it_on() -> None:
    early, task = dataclasses.replace(LONG, stop="early"), BumpTask()
    training, whole = Training(early, task), early.to_the_end()
    while training.step < 40:
        training.advance(0.0)
    training.reason = GIVEN_UP
    trainable, order = PackTrainable(worker_of([early])), ordered(early, keep_end=True)
    trainable._seconds[order.key] = 100.0
    end = trainable._ending(training, order).end
    assert end is not None
    assert trainable._ending(training, ordered(early)).end is None
    told = []
    for checkpoint in (end, None):
        of_run = ordered(whole, checkpoint=checkpoint)
        told.append(PackTrainable({"order": Order([of_run]), "cpus": 1.0, "gpus": 0.0}).step()["report"].runs[of_run.key])
    assert [run.notice for run in told] == [None, None]
    assert told[0].result == told[1].result
    assert [run.seconds >= 100.0 for run in told] == [True, False]
    training.reason = "target"
    assert trainable._ending(training, order).end is None, "it ended by itself"


def test_a_worker_that_gets_another_order_ends_the_runs_that_it_had() -> None:
    """Such as the program of a launch that has its answer."""
    trainable, ended = PackTrainable(worker_of([SPEC])), []
    for what in ("the first", "the second"):
        trainable._runs = {"key": cast(Any, SimpleNamespace(close=lambda what=what: ended.append(what)))}
        trainable.reset_config(worker_of([SPEC])) if what == "the first" else trainable.cleanup()
    assert ended == ["the first", "the second"]


def test_what_a_worker_notices_of_a_run_is_told_once() -> None:
    order = Order([ordered(LONG, checkpoint=b"none")], slice_seconds=0.0)
    trainable = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0})
    notices = [run.notice for _ in range(3) for run in trainable.step()["report"].runs.values()]
    assert notices[0].startswith("its checkpoint cannot be read, so it starts from the beginning (")
    assert notices[1:] == [None, None]


@pytest.mark.parametrize("stage", ["made", "trained", "made and out of memory"])
def test_a_worker_tells_where_and_for_how_long_it_has_trained_what_failed(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        time.sleep(0.1)
        raise RuntimeError("CUDA out of memory: no") if "memory" in stage else ValueError("no")

    monkeypatch.setattr(*(Pack, "advance") if stage == "trained" else (Training, "__init__"), fail)
    order = ordered(dataclasses.replace(SPEC, data_count=4))
    report = PackTrainable({"order": Order([order]), "cpus": 1.0, "gpus": 0.0}).step()["report"]
    of_run = report.runs[order.key] if stage == "made" else report.failed[order.key]
    assert "no" in str(of_run.error if stage == "made" else report.error)
    assert 0.1 <= of_run.seconds < 30
    assert (of_run.host, of_run.device, of_run.pack_size) == (socket.gethostname(), "cpu", 1)
    assert of_run.versions == versions()


def test_a_gpu_that_torch_does_not_find_is_said_once_a_machine(store: ResultStore) -> None:
    execution, watcher = make(store, workers=3)
    execution.packs.gpu = True
    for trial, host in (("a", "one"), ("b", "one"), ("c", "two")):
        assert next_run(execution, trial) is not None
        result_of(execution, trial, result=RESULT, device="cpu", host=host)
    assert [notice.partition(" trains on its CPU")[0] for notice in watcher.notices] == ["one", "two"]
    assert next_run(execution, "d") is not None
    result_of(execution, "d", result=RESULT, device="cuda", host="three")
    assert len(watcher.notices) == 2


@pytest.mark.parametrize(
    ("gpus", "task", "capped"),
    [(0.25, SPEC.task, [0.2375]), (1.0, SPEC.task, []), (0.0, SPEC.task, []), (0.25, PROGRAM, [])],
)
def test_workers_that_share_a_gpu_are_held_to_their_part_of_its_memory(
    gpus: float, task: str, capped: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leave room for what CUDA takes for each process, which a worker of programs is not to make take anything."""
    seen: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", seen.append)
    spec = dataclasses.replace(SPEC, task=task).to_dict()
    PackTrainable({"order": Order([RunOrder("0" * 16, spec)]), "cpus": 1.0, "gpus": gpus})
    assert seen == pytest.approx(capped)


class Cuda:
    """CUDA in this process: after a fault every call fails. A process that ends itself raises SystemExit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fault = ""
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", self.call)
        monkeypatch.setattr(os, "_exit", sys.exit)

    def call(self) -> None:
        if self.fault:
            raise RuntimeError(self.fault)

    def fail(self, *_: object) -> None:
        self.fault = "CUDA error: device-side assert triggered"
        self.call()


def worker_of(specs: Sequence[RunSpec]) -> dict[str, Any]:
    """What a worker is given that is to train runs."""
    return {"order": Order([ordered(spec) for spec in specs]), "cpus": 1.0, "gpus": 0.0}


@pytest.mark.parametrize("stage", ["made", "trained"])
def test_a_worker_in_whose_process_cuda_has_failed_takes_no_other_run(
    stage: str, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs are sent back, and the one that makes CUDA fail, also alone, has failed after its second try."""
    execution, watcher = make(store, seeds=1, workers=1)
    cuda = Cuda(monkeypatch)
    monkeypatch.setattr(*(Training, "__init__") if stage == "made" else (Pack, "advance"), cuda.fail)
    for trial in ("a", "b"):
        cuda.fault = ""  # in a new process
        spec = next_run(execution, trial)
        assert spec is not None
        trainable = PackTrainable(worker_of([spec]))
        report = trainable.step()["report"]
        assert (report.runs, report.out_of_memory) == ({}, False)
        assert execution.on_report(trial, report)
        with pytest.raises(SystemExit, match="1"):
            trainable.reset_config(worker_of([spec]))
    assert ["device-side assert" in row["error"] for row in store.rows() if row["status"] == "failed"] == [True]
    assert len(watcher.notices) == 2


HANGING = """
import sys, time, torch
from orchestrator.engine.messages import Order
from orchestrator.engine.worker import PackTrainable

def hang():
    print("hangs", flush=True)
    time.sleep(60)

def given(seconds):
    return {"order": Order([], stall_seconds=seconds), "cpus": 1.0, "gpus": 0.0}

torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize = (lambda: None) if sys.argv[1] == "reset_config" else hang
worker = PackTrainable(given(0.5 if sys.argv[1] == "setup" else 60.0))
time.sleep(1)
print("made", flush=True)
torch.cuda.synchronize = hang
worker.reset_config(given(0.5))
"""


@pytest.mark.parametrize(("stage", "said"), [("setup", ["hangs"]), ("reset_config", ["made", "hangs"])])
@pytest.mark.slow(7)
def test_a_worker_that_hangs_before_its_first_step_ends_itself(stage: str, said: list[str]) -> None:
    worker = subprocess.run([sys.executable, "-c", HANGING, stage], capture_output=True, text=True, timeout=60)
    assert worker.returncode == 1
    assert worker.stdout.splitlines() == said
    assert worker.stderr.startswith("Timeout (0:00:00.500000)!")


TERMINATED = """
import signal, sys, ray
from orchestrator.engine import worker
from orchestrator.engine.messages import Order, RunOrder

def terminated(*given):
    print("trains", flush=True)
    signal.raise_signal(signal.SIGTERM)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ray does
ray.is_initialized = lambda: True
worker.PackTrainable._load = terminated
spec = worker.RunSpec(task="m:C", dataset="d", N=4, data_count=3, seed=0).to_dict()
print(worker.PackTrainable({"order": Order([RunOrder("0" * 16, spec)]), "cpus": 1.0, "gpus": 0.0}).step()["report"])
"""


@pytest.mark.slow(2)
def test_a_worker_that_is_terminated_ends_and_reports_no_error_of_its_run() -> None:
    worker = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, timeout=60)
    assert (worker.returncode, worker.stdout) == (-signal.SIGTERM, "trains\n"), worker.stderr


def test_a_fault_of_cuda_is_no_error_of_the_run_that_is_made_then(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, made = Cuda(monkeypatch), Training.__init__
    specs = [dataclasses.replace(SPEC, data_count=4, seed=seed) for seed in range(3)]

    def make_run(run: Training, spec: RunSpec, *given: Any) -> None:
        if spec.seed == 0:
            raise ValueError("no such data")
        if spec.seed == 1:
            cuda.fail()
        made(run, spec, *given)

    monkeypatch.setattr(Training, "__init__", make_run)
    report = PackTrainable(worker_of(specs)).step()["report"]
    assert report.runs == {}
    assert "device-side assert" in str(report.error)


@pytest.mark.parametrize("after", ["", "CUDA error: out of memory"])
def test_a_worker_goes_on_after_an_error_that_leaves_cuda_as_it_was(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    spec = dataclasses.replace(SPEC, data_count=4)

    def refuse(*_: object) -> None:
        cuda.fault = after
        raise ValueError("no such data")

    with monkeypatch.context() as patched:
        patched.setattr(Training, "__init__", refuse)
        trainable = PackTrainable(worker_of([spec]))
        (told,) = trainable.step()["report"].runs.values()
    assert "no such data" in told.error
    assert trainable.reset_config(worker_of([spec]))
    (told,) = trainable.step()["report"].runs.values()
    assert told.result is not None


def test_a_free_worker_takes_the_newest_run_and_leaves_older_ones_those_that_start_for_them() -> None:
    trials = [SimpleNamespace(status=status) for status in ("TERMINATED", "PENDING", "PENDING", "RUNNING")]
    controller = SimpleNamespace(get_trials=lambda: trials)
    assert NewestFirst().choose_trial_to_run(controller) is trials[2]
    trials[1:3] = []
    assert NewestFirst().choose_trial_to_run(controller) is None


def test_an_idle_launch_lets_its_last_worker_go_for_another_one_may_wait_for_it(
    store: ResultStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, _ = make(store, seeds=1, workers=2)
    searcher = StudySearcher(execution, 1.0, 0.0, 10, {})
    next_pack = Execution.next_pack

    def told_every(seconds: float) -> list[Any]:
        """While other launches have all that is left."""
        monkeypatch.setattr(Execution, "next_pack", lambda *_: [])
        told = []
        for _ in range(3):
            clock.now += seconds
            told.append(searcher.suggest("later"))
        monkeypatch.setattr(Execution, "next_pack", next_pack)
        return told

    assert told_every(1000.0) == [None] * 3, "it has no worker yet"
    assert searcher.suggest("a")["order"].runs
    assert told_every(1000.0) == [None] * 3, "a run is in training"
    assert not result_of(execution, "a", step=5, accuracy=0.1)
    assert result_of(execution, "a", result={**RESULT, "status": "missed"})
    assert told_every(6.0) == [None, None, ray_tune.Searcher.FINISHED]
    assert not execution.is_over()


@pytest.mark.parametrize("kind", ["a FIFO", "a folder"])
def test_a_checkpoint_that_cannot_be_read_is_told_once_and_the_run_starts_anew(store: ResultStore, kind: str) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    (first,) = execution.search.propose(execution.rows, 1)
    key = run_key(first, Toy.version)
    place = store.checkpoint_path(key)
    place.parent.mkdir()
    os.mkfifo(place) if kind == "a FIFO" else (place / "with").mkdir(parents=True)
    searcher = StudySearcher(execution, 1.0, 0.0, 10, {})
    config = searcher.suggest("a")
    assert execution.fatal is None
    assert [(run.key, run.checkpoint) for run in config["order"].runs] == [(key, None)]
    execution.on_lost("a", "the worker died")
    execution.failures.of(key).not_before = 0.0
    assert searcher.suggest("b")["order"].runs[0].checkpoint is None
    result_of(execution, "b", result=RESULT)
    told = f"warning: cannot read {place}: it is not a file: the run starts from the beginning"
    assert [text for text in watcher.notices if "from the beginning" in text] == [told]
    assert not os.path.lexists(place)
    assert len(store) == 1


LONG = RunSpec(
    task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=10, seed=0, decoder="mlp", depth=2, width=16,
    encoding="positional", options=tuple(BumpTask.defaults.items()), max_steps=400, target=1.0,
)  # fmt: skip


@pytest.fixture
def begun() -> bytes:
    """A checkpoint of a run."""
    order = Order([ordered(LONG)], slice_seconds=0.0, checkpoint_seconds=0.0)
    cut = PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0})
    report = cut.train()["report"]
    (checkpoint,) = cut.checkpoints().values()
    assert [run.step > 0 for run in report.runs.values()] == [True]
    return checkpoint


def continued(checkpoint: bytes) -> PackReport:
    """What a worker first tells that goes on from a checkpoint."""
    order = Order([ordered(LONG, checkpoint=checkpoint)], slice_seconds=0.0, checkpoint_seconds=99.0)
    return PackTrainable({"order": order, "cpus": 1.0, "gpus": 0.0}).train()["report"]


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_memory_that_runs_out_while_a_checkpoint_is_loaded_is_told_as_that(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "load_state_dict", raising(torch.OutOfMemoryError("CUDA out of memory")))
    report = continued(begun)
    assert report.out_of_memory
    assert "CUDA out of memory" in str(report.error)
    assert report.runs == {}


def test_a_run_that_cannot_be_made_has_an_error_and_no_bad_checkpoint(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Training.__init__

    def once(*given: Any) -> None:
        monkeypatch.setattr(Training, "__init__", made)
        raise ArithmeticError("no network")

    monkeypatch.setattr(Training, "__init__", once)
    (run,) = continued(begun).runs.values()
    assert "ArithmeticError: no network" in str(run.error)
    assert run.notice is None


def test_a_run_starts_anew_from_a_checkpoint_that_is_damaged(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Training, "load_state_dict", raising(ValueError("no such weights")))
    first, torn = continued(begun), continued(begun[: len(begun) // 2])
    for report in (first, torn):
        (run,) = report.runs.values()
        assert str(run.notice).startswith("its checkpoint cannot be read, so it starts from the beginning (")
        assert run.error is None


def test_a_checkpoint_of_a_few_bytes_that_asks_for_all_memory_costs_the_run_nothing_but_its_beginning(begun: bytes) -> None:
    size = 10**14
    number = size.to_bytes(8, "little")
    asks = b"\x80\x02cbuiltins\nbytearray\n\x8a" + bytes([len(number)]) + number + b"\x85R."
    small = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(begun)) as whole, zipfile.ZipFile(small, "w") as changed:
        for name in whole.namelist():
            if "/data/" not in name:
                changed.writestr(name, asks if name.endswith("/data.pkl") else whole.read(name))
    report = continued(small.getvalue())
    (run,) = report.runs.values()
    assert not report.out_of_memory
    assert "it asks for more memory than there is" in str(run.notice)
    assert run.error is None


def test_what_a_worker_has_to_tell_of_a_run_is_told(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    assert next_run(execution, "a") is not None
    result_of(execution, "a", step=5, accuracy=0.1, notice="its checkpoint cannot be read")
    (told,) = watcher.notices
    assert told.startswith("warning: toys, N = 8, ")
    assert told.endswith("seed 0: its checkpoint cannot be read")


def test_a_run_that_finished_before_and_fails_when_it_is_trained_again_ends_the_launch(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    key = run_key(SPEC, "1")
    execution.remade = remade(again=lambda known: known == key)
    row = make_row(SPEC, task_version="1", fixed_count=0, status="passed", reason="target")
    store.append([row])
    execution.rows.add(row)
    execution._busy[key] = SPEC
    try:
        raise ValueError("it cannot be made any more\nsee its model()")
    except ValueError:
        error = traceback.format_exc()
    execution._fail(key, SPEC, error, RunReport())
    assert isinstance(execution.fatal, StoreError)
    assert str(execution.fatal) == (
        "toys, N = 8, 0 samples, seed 0 has finished before, but its weights are gone and are wanted, and it failed when it "
        f"was trained again (ValueError: it cannot be made any more): put weights/{key}.safetensors back into the store or "
        "mend the cause"
    )
    assert [one["status"] for one in store.rows()] == ["passed"]


@pytest.mark.parametrize("last", [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_order_of_finishing_stays_if_the_clock_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: datetime
) -> None:
    """Of a machine that goes on where another one was, and after the clock was set back."""
    tick = timedelta(microseconds=1)
    clock = SimpleNamespace(now=datetime(2026, 1, 1, 10, tzinfo=UTC))
    monkeypatch.setattr(module, "datetime", SimpleNamespace(now=lambda zone: clock.now.astimezone(zone)))
    with ResultStore(tmp_path / "s") as store, ResultStore(tmp_path / "s") as other:
        first = make_row(dataclasses.replace(SPEC, data_count=8), task_version=Toy.version, fixed_count=0,
                         finished_at=last - 2 * tick, **RESULT)  # fmt: skip
        other.append([first])
        execution, watcher = make(store, seeds=2, workers=2)
        assert next_run(execution, "a")
        assert result_of(execution, "a", result=RESULT)
        assert next_run(execution, "b")
        other.append([{**make_row(dataclasses.replace(SPEC, data_count=9), task_version=Toy.version, fixed_count=0, **RESULT),
                       "finished_at": last}])  # fmt: skip
        execution._learn_from_others()
        assert result_of(execution, "b", result=RESULT)
        assert [row["finished_at"] for row in watcher.rows] == [last - tick, last, last + min(tick, module.LAST_TIME - last)]
        if last < module.LAST_TIME:
            clock.now = datetime(2026, 1, 1, 13, tzinfo=UTC)
            assert next_run(execution, "c")
            assert result_of(execution, "c", result=RESULT)
            assert watcher.rows[-1]["finished_at"] == clock.now
