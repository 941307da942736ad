"""What the engine does with each kind of failure, without Ray: the events are sent by hand."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import execution as module
from orchestrator.execution import Execution, Limits
from orchestrator.searches import Rows
from orchestrator.searches.threshold import Bracket, ThresholdSearch
from orchestrator.spec import RunSpec, run_key
from orchestrator.store import ResultStore
from tests.toy import Toy, threshold
from trainables.adapter import RunTrainable

SPEC = RunSpec(
    task="tests.toy:Toy", dataset="toys", N=8, data_count=0, seed=0, decoder="linear", depth=0, width=1, encoding="none",
    options=tuple(Toy.defaults.items()), max_steps=3,
)  # fmt: skip
RESULT = {"status": "passed", "reason": "target", "steps": 3, "accuracy": 1.0, "id_mse": 0.0, "ood_mse": 0.0, "loss": 0.0}


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.rows: list[Any] = []

    def started(self, key: str, spec: RunSpec) -> None: ...
    def progressed(self, key: str, spec: RunSpec, report: Any) -> None: ...
    def dropped(self, key: str) -> None: ...
    def finished(self, row: Any) -> None:
        self.rows.append(row)

    def notice(self, text: str) -> None:
        self.notices.append(text)


def make(store: ResultStore, seeds: int = 2, workers: int = 2, **limits: Any) -> tuple[Execution, Watcher]:
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
    )
    return execution, watcher


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(tmp_path / "store") as opened:
        yield opened


def test_every_run_is_asked_for_once_and_answered_from_its_row(store: ResultStore) -> None:
    execution, _ = make(store)
    trial = 0
    while not execution.is_over():
        trial += 1
        spec = execution.next_run(str(trial))
        assert spec is not None
        passed = spec.data_count >= threshold(spec.N, spec.seed)
        execution.on_report(str(trial), {"done": True, "result": {**RESULT, "status": "passed" if passed else "missed"}})
    assert len(store) == trial
    found = {r.seed: (r.lower, r.threshold) for r in execution.search.answer(execution.rows)}
    assert all(lower < threshold(8, seed) <= upper for seed, (lower, upper) in found.items())


def test_room_is_the_number_of_workers(store: ResultStore) -> None:
    execution, _ = make(store, workers=2)
    first, second = execution.next_run("a"), execution.next_run("b")
    assert first is not None
    assert second is not None
    assert first != second
    assert execution.next_run("c") is None


def test_an_exception_is_tried_once_more_and_then_a_failed_row(store: ResultStore) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    for attempt in ("a", "b"):
        assert execution.next_run(attempt) is not None
        execution.on_report(attempt, {"done": True, "error": "Traceback ...\nArithmeticError: no", "out_of_memory": False})
    assert [row["status"] for row in store.rows()] == ["failed"]
    assert "ArithmeticError: no" in store.rows()[0]["error"]
    assert ["trying once more" in n for n in watcher.notices] == [True, False]
    assert execution.is_over()
    assert execution.outcome.failed == 1


def test_a_lost_worker_is_replaced_without_limit_and_with_growing_waits(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    execution, watcher = make(store, seeds=1, workers=1)
    waits = []
    for attempt in range(8):
        assert execution.next_run(str(attempt)) is not None
        execution.on_lost(str(attempt), "Failure # 1 (occurred at noon)\nThe actor died unexpectedly.")
        assert execution.next_run("too early") is None
        wait = next(iter(execution.attempts.values())).not_before - now
        waits.append(wait)
        now += wait + 0.01
    assert waits == pytest.approx([1, 2, 5, 15, 60, 60, 60, 60])
    assert "The actor died unexpectedly." in watcher.notices[0]
    assert len(store) == 0


def test_an_exception_outside_the_training_counts_as_an_exception(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    for attempt in ("a", "b"):
        assert execution.next_run(attempt) is not None
        text = "Failure # 1 (occurred at noon)\n\x1b[36mray::RunTrainable.train()\x1b[39m (pid=1)\nTypeError: no"
        execution.on_lost(attempt, text)
    assert [row["status"] for row in store.rows()] == ["failed"]


def test_lack_of_memory_halves_the_workers_and_fails_only_alone(store: ResultStore) -> None:
    execution, _ = make(store, seeds=4, workers=4)
    report = {"done": True, "error": "MemoryError", "out_of_memory": True}
    for attempt, left in (("a", 2), ("b", 1)):
        assert execution.next_run(attempt) is not None
        execution.on_report(attempt, report)
        assert execution.workers == left
        assert len(store) == 0
    assert execution.next_run("c") is not None
    execution.on_lost("c", "Task was killed due to the node running low on memory.")
    assert [row["status"] for row in store.rows()] == ["failed"]


def test_a_checkpoint_is_kept_until_the_run_ends(store: ResultStore) -> None:
    execution, _ = make(store, seeds=1, workers=1)
    spec = execution.next_run("a")
    assert spec is not None
    key = run_key(spec, Toy.version)
    execution.on_progress("a", {"done": False, "step": 5, "accuracy": 0.1, "checkpoint": b"half-way"})
    assert store.load_checkpoint(key) == b"half-way"
    execution.on_report("a", {"done": True, "result": RESULT, "weights": b"weights"})
    assert store.load_checkpoint(key) is None
    assert store.weights_path(key).read_bytes() == b"weights"


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
        return {
            "run": spec.to_dict(), "gpu": False, "checkpoint": checkpoint, "save_weights": True,
            "slice_seconds": seconds, "checkpoint_seconds": 0.0,
        }  # fmt: skip

    whole = RunTrainable(config(1e9)).train()["report"][0]
    assert whole["done"]
    cut = RunTrainable(config(0.0))
    reports = [cut.train()["report"][0] for _ in range(7)]
    assert not reports[-1]["done"]
    resumed = RunTrainable(config(1e9, reports[-1]["checkpoint"])).train()["report"][0]
    assert resumed["result"] == whole["result"]
    assert resumed["weights"] == whole["weights"]
    damaged = RunTrainable(config(1e9, b"no checkpoint")).train()["report"][0]
    assert damaged["result"] == whole["result"]


def test_a_launch_beside_another_trains_what_the_other_does_not(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "store") as one, ResultStore(tmp_path / "store") as two:
        first, _ = make(one, seeds=2, workers=2)
        second, _ = make(two, seeds=2, workers=2)
        specs = [first.next_run("a"), first.next_run("b"), second.next_run("c"), second.next_run("d")]
        assert None not in specs
        assert len({s.to_dict()["seed"] * 1000 + s.data_count for s in specs if s is not None}) == 4
        spec = specs[0]
        assert spec is not None
        first.on_report("a", {"done": True, "result": {**RESULT, "status": "missed"}})
        third = first.next_run("e")
        assert third is not None
        assert third not in specs


def test_a_run_is_pruned_where_the_search_says_however_far_the_worker_got(store: ResultStore) -> None:
    def curves(points: int) -> dict[str, Any]:
        steps = [20 * (i + 1) for i in range(points)]
        errors = [1.0 / step for step in steps]
        return {"curve_step": steps, "curve_loss": errors, "curve_accuracy": [0.5] * points, "curve_error": errors}

    class Strict:
        """Prunes every run at its third point."""

        def propose(self, rows: Rows, room: int, running: Any = ()) -> list[RunSpec]:
            return [RunSpec.from_dict({**SPEC.to_dict(), "seed": seed, "data_count": 1}) for seed in range(room)]

        def pruned_at(self, rows: Rows, spec: RunSpec, curve: Any) -> int | None:
            return 3 if len(curve.step) >= 3 else None

        def finished(self, rows: Rows) -> bool:
            return len(rows) == 2

    execution, _ = make(store, workers=2)
    execution.search = Strict()
    for trial in ("under way", "at its end"):
        assert execution.next_run(trial) is not None
    about = {"seconds": 1.0, "host": "here", "device": "cpu"}
    assert not execution.prune("under way", {"done": False, **about, **curves(2)})
    assert execution.prune("under way", {"done": False, **about, **curves(7)})
    result = {**RESULT, "steps": 200, "device": "cpu", **curves(10)}
    execution.on_report("at its end", {"done": True, "result": result, "seconds": 9.0, "host": "here"})
    assert not execution.prune("unknown", {"done": False, **about, **curves(9)})
    rows = store.rows()
    assert [(row["status"], row["steps"], row["curve_step"]) for row in rows] == [("pruned", 60, [20, 40, 60])] * 2
    assert [row["ood_mse"] for row in rows] == [1 / 60] * 2
    assert [row["id_mse"] for row in rows] == [None] * 2
    assert execution.is_over()
    assert not execution.running
