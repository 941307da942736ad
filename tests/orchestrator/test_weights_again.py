"""Finished runs without weights: they are told of, and trained again only if the user asks for that."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import decoders, regularization, scaling, tuning
from orchestrator.command.cli import run
from orchestrator.command.stages import Stages
from orchestrator.command.weights import Remaking, finished_runs
from orchestrator.engine.estimate import Work
from orchestrator.engine.execution import Execution, Limits
from orchestrator.engine.messages import PackReport, RunReport
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.searches import Curve, Rows
from orchestrator.searches.grid import GridSearch
from orchestrator.store import Question, ResultStore, make_row
from orchestrator.store.questions import RUNS
from tests.orchestrator.test_needs import RESULT, SPECS, Watcher
from tests.toy import Pupil, Toy
from trainables.needs import Tasks
from trainables.spec import RunSpec

TOYS = [
    RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=4, seed=seed, decoder="linear", depth=0, width=1,
            encoding="none", options=tuple(Toy.defaults.items()), max_steps=20, stop="budget")
    for seed in range(4)
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(tmp_path / "store") as opened:
        yield opened


def launched(store: ResultStore, task: Toy, specs: list[RunSpec], remakes: bool) -> tuple[Execution, Stages]:
    """A launch that keeps the weights of all runs."""
    rows, search = Rows(store.rows()), GridSearch(specs, task.version, 0, Tasks(task))
    question = Question(study="grid", task_version=task.version, specs={RUNS: specs}, search={}, settings={})
    stages = Stages(task, search, question, store, rows, gates=True, keeps=lambda spec: True, remakes=remakes)
    execution = Execution(
        search=stages.search, task=task, store=store, rows=rows, observer=Watcher(), workers=1,
        limits=Limits(save_weights=lambda spec: True), versions="test", launch="test", packs=PackSizes(task, fixed=8),
        remade=stages,
    )  # fmt: skip
    return execution, stages


def train_all(execution: Execution, weights: bytes = b"w") -> list[list[tuple[str, int]]]:
    """Train packs until it is over; tasks and seeds of each."""
    packs = []
    while not execution.is_over():
        trial = str(len(packs))
        pack = execution.next_pack(trial)
        assert pack, "nothing to train, and not over"
        packs.append([(spec.task.partition(":")[2], spec.seed) for spec in pack])
        report = RunReport(result=RESULT, weights=weights)
        assert execution.on_report(trial, PackReport(runs=dict.fromkeys(execution.running[trial], report)))
    return packs


def keys_of(task: Toy, specs: list[RunSpec]) -> list[str]:
    return list(map(Tasks(task).key, specs))


def test_runs_without_weights_are_told_of_and_not_trained_by_themselves(store: ResultStore) -> None:
    execution, stages = launched(store, Toy(), TOYS, remakes=False)
    train_all(execution)
    assert stages.without_weights() is None
    keys = keys_of(Toy(), TOYS)
    for key in keys[:3]:
        store.weights_path(key).unlink()
        execution, stages = launched(store, Toy(), TOYS, remakes=False)
        assert execution.is_over()
        assert stages.remade() is None
    assert stages.without_weights() == (
        f"3 of 4 finished runs have no weights in {store.path}/weights, so nothing more of them can be measured or drawn: the "
        "same command with --save-weights trains them again"
    )


def test_a_study_that_keeps_the_weights_of_some_runs_says_that_the_option_is_about_all(store: ResultStore) -> None:
    execution, stages = launched(store, Toy(), TOYS, remakes=False)
    train_all(execution)
    for key in keys_of(Toy(), TOYS)[:3]:
        store.weights_path(key).unlink()
    stages._keeps = lambda spec: spec.seed == 0
    told = stages.without_weights()
    assert told is not None
    assert told.startswith("1 of 1 finished run has no weights in")
    assert told.endswith("nothing more of it can be measured or drawn: the same command with --save-weights trains all 3 runs "
                         "without weights again")  # fmt: skip
    stages._keeps = lambda spec: False
    assert stages.without_weights() is None


def test_with_the_option_just_these_are_trained_again_and_no_row_is_written_twice(store: ResultStore) -> None:
    train_all(launched(store, Toy(), TOYS, remakes=False)[0])
    rows, keys = store.rows(), keys_of(Toy(), TOYS)
    for key in keys[1:3]:
        store.weights_path(key).unlink()
    execution, stages = launched(store, Toy(), TOYS, remakes=True)
    assert stages.remade() == f"2 finished runs without weights in {store.path}/weights are trained again (--save-weights)"
    assert stages.without_weights() is None
    assert not stages.search.finished(execution.rows)
    assert [stages.again(key) for key in keys] == [False, True, True, False]
    assert train_all(execution, b"new") == [[("Toy", 1), ("Toy", 2)]]
    assert execution.outcome.trained == 2
    assert [store.load_weights(key) for key in keys] == [b"w", b"new", b"new", b"w"]
    assert store.rows() == rows
    assert stages.remade() is None
    assert launched(store, Toy(), TOYS, remakes=True)[0].is_over()


def test_what_they_need_comes_first_also_if_they_have_weights_themselves(store: ResultStore) -> None:
    train_all(launched(store, Pupil(), SPECS, remakes=False)[0])
    teachers = [Tasks(Pupil()).parents(spec)["teacher"] for spec in SPECS]
    gone = [*dict.fromkeys(teachers), Tasks(Pupil()).key(SPECS[-1])]
    for key in gone:
        store.weights_path(key).unlink()
    execution, stages = launched(store, Pupil(), SPECS, remakes=False)
    assert execution.is_over()
    assert (stages.without_weights() or "").startswith("3 of 6 finished runs have no weights in")
    execution, _ = launched(store, Pupil(), SPECS, remakes=True)
    assert list(map(sorted, train_all(execution))) == [[("Teacher", 0), ("Teacher", 1)], [("Pupil", SPECS[-1].seed)]]
    assert store.with_weights() == {*teachers, *keys_of(Pupil(), SPECS)}
    assert len(store.rows()) == 6


def test_runs_that_left_no_weights_when_they_ended_are_none_of_these(store: ResultStore) -> None:
    ended = {"steps": 10, "reason": "budget"}
    statuses = ["failed", "pruned", "diverged", "missed"]
    for spec, status in zip(TOYS, statuses, strict=True):
        store.append([make_row(spec, task_version="1", fixed_count=0, status=status, **ended)])
    execution, stages = launched(store, Toy(), TOYS, remakes=True)
    assert (stages.remade() or "").startswith("2 finished runs")
    assert train_all(execution) == [[("Toy", 2), ("Toy", 3)]]


def test_a_plan_counts_them_with_their_time(store: ResultStore) -> None:
    ended: dict[str, Any] = {"status": "missed", "reason": "budget", "steps": 10}
    store.append([make_row(spec, task_version="1", fixed_count=0, **ended, seconds=2.0 + spec.seed) for spec in TOYS[:2]])
    _, stages = launched(store, Toy(), TOYS, remakes=True)
    plan, work = stages.plan("plan", Work([(10.0, 2)]))
    table: Any = plan.renderables[0]  # type: ignore[union-attr]
    cells = [column.cells for column in table.columns]
    assert [list(map(str, one)) for one in cells] == [["finished runs without weights"], ["2"], ["5 s"]]
    assert work is not None
    assert list(work.runs) == [(10.0, 2), (2.0, 1.0), (3.0, 1.0)]
    assert stages.work_left(Work()) == Work([(2.0, 1.0), (3.0, 1.0)], stages.work_left(Work()).chains)  # type: ignore[union-attr]


def test_none_of_them_is_pruned_and_they_come_before_what_is_only_guessed() -> None:
    class Speculative:
        def propose(self, rows: Rows, room: int, running: Any = (), fill: int | None = None) -> list[RunSpec]:
            assert fill is not None
            return [TOYS[0], *([TOYS[1]] * (fill > 1))][:room]

        def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
            return 3

        def finished(self, rows: Rows) -> bool:
            return True

    tasks, rows = Tasks(Toy()), Rows([make_row(TOYS[3], task_version="1", fixed_count=0, status="missed", reason="budget")])
    kept = set[str]()
    search = Remaking(Speculative(), tasks, TOYS[3:], kept.__contains__)
    assert search.propose(rows, 2) == [TOYS[0], TOYS[3]]
    assert search.propose(rows, 4, (), 3) == [TOYS[0], TOYS[1], TOYS[3]]
    assert (search.pruned_at(rows, TOYS[3], Curve([], [])), search.pruned_at(rows, TOYS[2], Curve([], []))) == (None, 3)
    assert not search.finished(rows)
    kept.add(tasks.key(TOYS[3]))
    assert search.finished(rows)
    assert search.propose(rows, 4, (), 4) == TOYS[:2]


def test_of_a_search_with_trials_its_own_runs_are_known_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(regularization, "launch", lambda study, *_: found.append(study) or 0)
    words = "--N 8 --trials 3 --seeds-per-trial 1 --confirm 2 --confirm-seeds 1 --seeds 2 --epochs 3"
    assert run(regularization.app, words.split()) == 0
    study = found[0]
    version, rows, known = study.task.version, Rows(), set[str]()
    while specs := study.search.propose(rows, 4):
        for spec in specs:
            errors = {"accuracy": 0.5, "ood_mse": 0.1 + spec.seed % 7, "id_mse": 0.1, "steps": 3}
            row = make_row(spec, task_version=version, fixed_count=0, status="missed", reason="budget", **errors)
            rows.add(row)
            known.add(row["key"])
    other = dataclasses.replace(study.search.final[0], seed=77)
    rows.add(make_row(other, task_version=version, fixed_count=0, status="missed", reason="budget", steps=3))
    runs = finished_runs(study.search, rows)
    assert {row["key"] for row in runs} == known
    assert len(runs) == len(known)
    assert {row["key"] for row in finished_runs(study.search.confirming, rows)} < known


ARGUMENTS = ["--N", "8", "--max-steps", "20", "--decoder", "mlp", "--width", "16", "--seeds", "2", "--bumps", "0,4"]


@pytest.mark.parametrize("kept", [0, 3, 4])
def test_a_command_says_at_its_end_and_in_its_plan_what_lacks_weights(
    kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Any] = []
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(decoders, "launch", lambda study, *_: found.append(study) or 0)
        assert run(tuning.app, ARGUMENTS) == 0
    with ResultStore("results") as store:
        for number, spec in enumerate(found[0].specs):
            row = make_row(spec, task_version=found[0].task.version, fixed_count=0, status="missed", reason="budget",
                           seconds=2.0, steps=20, ood_mse=0.1, id_mse=0.1, accuracy=0.5)  # fmt: skip
            store.append([row])
            if number < kept:
                store.save_weights(row["key"], b"w")

    def told(*words: str) -> list[str]:
        capsys.readouterr()
        assert run(tuning.app, [*ARGUMENTS, *words]) == 0
        return capsys.readouterr().out.splitlines()

    them, has = ("it", "has") if kept == 3 else ("them", "have")
    line = (
        f"{4 - kept} of 4 finished runs {has} no weights in results/weights, so nothing more of {them} can be measured or "
        f"drawn: the same command with --save-weights trains {them} again"
    )
    assert (line in told()) == (kept < 4)
    assert (line in told("--dry-run")) == (kept < 4)
    plan = told("--dry-run", "--save-weights")
    assert not any("nothing more of" in one for one in plan)
    runs, are = ("4 finished runs", "are") if not kept else ("1 finished run", "is")
    assert (f"{runs} without weights in results/weights {are} trained again (--save-weights)" in plan) == (kept < 4)
    of_table = [" ".join(one.split()) for one in plan if "│ finished runs without weights" in one]
    assert of_table == [f"│ finished runs without weights │ {4 - kept} │ {2 * (4 - kept)} s │"] * (kept < 4)
    assert any(one.startswith("about 0 s") for one in plan) == (kept == 4)


def test_the_plan_of_a_study_that_keeps_no_weights_names_their_folder_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--N", "8,12", "--decoder", "mlp", "--width", "16", "--max-steps", "20", "--seeds", "1", "--dry-run"]
    for words, is_named in (([], False), (["--save-weights"], True)):
        assert run(scaling.app, [*arguments, *words]) == 0
        assert ("weights of all runs go to results/weights" in capsys.readouterr().out.splitlines()) == is_named
