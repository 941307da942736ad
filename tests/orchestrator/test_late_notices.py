"""What a store notices is told, whenever in a launch that is: no later one finds a file that was set aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import launch, scaling
from orchestrator.command.cli import run
from orchestrator.command.stages import Stages
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.errors import UserError
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore, StoreError, make_row
from orchestrator.study import GridStudy
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import trained_by
from tests.toy import Toy
from trainables.spec import RunSpec

Asked = Callable[[], int]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The exit code of a launch that trains nothing, as its question is answered."""
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome(trained=3)))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "answered", lambda *_: True)
    return lambda: run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")])


def spoil(store: ResultStore) -> None:
    """Somebody leaves a file among the rows, and these are looked at."""
    (store.path / "runs" / "foreign.parquet").touch()
    assert store.find({"family": {"another"}}) == []


def is_told(printed: str, tmp_path: Path) -> bool:
    """Whether the file is told of, once."""
    where = f"{tmp_path}/store"
    return printed.count(f"warning: set aside {where}/runs/foreign.parquet: it is empty; it is now {where}/set-aside/") == 1


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_what_is_noticed_while_a_launch_concludes_is_told(
    fails: bool, code: int, study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def obstacles(stages: Stages) -> list[str]:
        spoil(stages._store)
        if fails:
            raise StoreError("the rows cannot be read")
        return []

    monkeypatch.setattr(Stages, "obstacles", obstacles)
    assert study() == code
    printed = capsys.readouterr().out
    assert is_told(printed, tmp_path)
    assert ("stopped: the rows cannot be read" in printed) is fails


def test_what_was_noticed_before_a_launch_is_found_to_be_a_mistake_is_told(
    study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(execution: Execution, *_: object) -> Outcome:
        spoil(execution.store)
        raise UserError("the program prints no accuracy")

    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: False)
    monkeypatch.setattr(launch, "executed", trained_by(train))
    assert study() == 2
    printed = capsys.readouterr()
    assert "the program prints no accuracy" in printed.err
    assert is_told(printed.out, tmp_path)


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_launch_that_is_a_mistake_leaves_no_question_unless_it_was_asked_before(
    asked_before: bool, study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object) -> Outcome:
        raise StoreError("later") if raises_later.pop() else UserError("the program prints no accuracy")

    raises_later = [False, True][: 1 + asked_before]
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: False)
    monkeypatch.setattr(launch, "executed", trained_by(train))
    if asked_before:
        assert study() == 1
    assert study() == 2
    assert len(list(tmp_path.rglob("questions/*"))) == asked_before


def test_a_launch_that_is_a_mistake_leaves_the_question_that_another_one_is_at(
    study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(execution: Execution, *_: object) -> Outcome:
        spec = execution.next_pack("a")[0]
        with ResultStore(tmp_path / "store") as other:
            other.append([make_row(spec, task_version="1", fixed_count=0, status="missed", reason="budget")])
        raise UserError("the program prints no accuracy")

    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: False)
    monkeypatch.setattr(launch, "executed", trained_by(train))
    assert study() == 2
    assert len(list(tmp_path.rglob("questions/*"))) == 1


@pytest.mark.parametrize("is_at_it", [False, True])
def test_a_launch_that_is_a_mistake_leaves_no_question_because_another_study_has_such_runs(
    is_at_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Outcome:
        raise UserError("no machine is large enough")

    fields = {"task": "tests.toy:Toy", "dataset": "toys", "N": 8, "seed": 0, "decoder": "linear", "depth": 0, "width": 1}
    spec = RunSpec(**fields, data_count=4, options=tuple(Toy.defaults.items()))
    other = spec if is_at_it else replace(spec, lr=0.5)
    with ResultStore(tmp_path / "store") as store:
        store.append([make_row(other, task_version=Toy.version, fixed_count=0, status="missed", reason="budget")])
    monkeypatch.setattr(launch, "executed", trained_by(refused))
    named = {"store": str(tmp_path / "store"), "out": str(tmp_path / "out")}
    study = GridStudy("encodings", Toy(), [spec, replace(spec, seed=1)], named)
    if not is_at_it:
        assert list(study.wanted["N"]) == [other.N], "its rows could be of this study"
    with pytest.raises(UserError, match="no machine"):
        launch.launch(study, launch.LaunchOptions(store=named["store"]))
    assert len(list(tmp_path.rglob("questions/*"))) == is_at_it


def test_a_question_that_another_launch_took_away_is_there_again_when_all_is_told(
    study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object) -> Outcome:
        for file in tmp_path.rglob("questions/*"):
            file.unlink()
        return Outcome()

    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: False)
    monkeypatch.setattr(launch, "executed", trained_by(train))
    assert study() == 1
    assert len(list(tmp_path.rglob("questions/*"))) == 1


def test_what_is_set_aside_at_the_start_of_a_launch_that_is_refused_is_told(
    study: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise UserError("the runs in the store needed others")

    monkeypatch.setattr(launch, "Stages", refused)
    runs = tmp_path / "store" / "runs"
    runs.mkdir(parents=True)
    (runs / "foreign.parquet").touch()
    assert study() == 2
    assert is_told(capsys.readouterr().out, tmp_path)
