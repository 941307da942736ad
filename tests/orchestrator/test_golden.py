"""Keys and plans stay: a run that gets another key is trained again, and its row answers nothing any more."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import subjects
from orchestrator.command.cli import run
from orchestrator.store import PROVENANCE, make_row
from orchestrator.store.rows import encode
from tests.conftest import ROOT
from tests.golden import rows
from tests.golden.plans import COMMANDS, FILE, STUDIES, planned
from trainables.bumps import BumpTask
from trainables.settings import WORDS, settings_of
from trainables.spec import PRECISIONS, SCHEDULES, STOPS, RunSpec, family_key, run_key
from trainables.task import load_task

RECORD = json.loads(FILE.read_text())
RUNS = RECORD["runs"]
TASKS = {
    *("trainables.bumps:BumpTask", "trainables.regularization:RegularizationTask", "trainables.rotation:RotationTask"),
    "trainables.regularization:DecoderTask",
    "trainables.generative.generator_task:GeneratorTask",
    "examples.own_task:Chords",
    *(f"benchmarks.subjects:{found.__name__}" for found in subjects.Subject.__subclasses__()),
}


@pytest.mark.slow(1)
def test_a_recorded_spec_has_the_keys_that_it_had() -> None:
    specs = {key: (RunSpec.from_dict(of_run["spec"]), of_run["task_version"]) for key, of_run in RUNS.items()}
    assert {key: run_key(spec, version) for key, (spec, version) in specs.items()} == {key: key for key in RUNS}
    families = {key: family_key(spec, version) for key, (spec, version) in specs.items()}
    assert families == {key: of_run["family"] for key, of_run in RUNS.items()}
    assert {key: json.dumps(spec.to_dict()) for key, (spec, _) in specs.items()} == {
        key: json.dumps(of_run["spec"]) for key, of_run in RUNS.items()
    }


@pytest.mark.parametrize("path", sorted(TASKS))
def test_a_task_is_found_at_its_path_in_its_version(path: str) -> None:
    versions = {of_run["task_version"] for of_run in RUNS.values() if of_run["spec"]["task"] == path}
    task = load_task(path)
    assert versions == {task.version}
    file = Path(inspect.getfile(type(task))).resolve()
    assert file.is_relative_to(ROOT), "another copy of the project is installed, and was found"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_study_plans_the_runs_that_it_planned(command: str) -> None:
    assert [run_key(spec, version) for spec, version in planned(command)] == RECORD["plans"][command]


def test_the_record_has_every_study_task_and_word() -> None:
    assert len(RUNS) >= 200
    assert set(RECORD["plans"]) == set(COMMANDS)
    assert {key for keys in RECORD["plans"].values() for key in keys} <= RUNS.keys(), "what was planned once is in stores"
    assert {command.split()[0] for command in COMMANDS} == STUDIES.keys()
    specs = [of_run["spec"] for of_run in RUNS.values()]
    assert {spec["task"] for spec in specs} == TASKS
    words = {"stop": STOPS, "precision": PRECISIONS, "schedule": SCHEDULES}
    assert {name: {spec[name] for spec in specs} for name in words} == {name: set(allowed) for name, allowed in words.items()}
    of_bumps = [spec for spec in specs if spec["task"] == "trainables.bumps:BumpTask"]
    of_words = {name: set(each.words) for name, each in settings_of(BumpTask.settings).items() if name in WORDS}
    assert {name: {spec[name] for spec in of_bumps} for name in WORDS} == of_words


def found(accuracy: float = 0.1, **more: Any) -> dict[str, Any]:
    """What one study left, as a file of `tests.golden.rows` holds it."""
    row = {"accuracy": accuracy, "curve_loss": [0.5, 0.25], "passage_step": None}
    answer = {"fits": {"slope": 2.0, "seconds": 3.1}, "settings": {"store": "here", "N": [8]}}
    return {"tuning": {"rows": {"a": rows.exact(row), **more}, "weights": {"a": "00"}, "answer": rows.exact(answer)}}


def test_equal_studies_do_not_differ_and_the_last_bit_of_a_number_does() -> None:
    assert rows.told(found()) == "1 rows, 1 weights, 1 answers, 7 values"
    assert rows.differences(found(), copy.deepcopy(found())) == []
    assert rows.differences(found(), found(accuracy=0.1 + 2**-56)) == [
        'tuning / rows / a / accuracy: "0x1.999999999999ap-4" became "0x1.999999999999bp-4"'
    ]
    assert rows.differences(found(), found(b={})) == ["tuning / rows / b: nothing became {}"]
    assert rows.differences(found(b={"N": 1}), found(b={"N": 1.0})) == ["tuning / rows / b / N: 1 became 1.0"]
    assert rows.differences(found(b={"N": 1}), found()) == ["tuning / rows / b / N: 1 became nothing"]


def test_a_row_is_taken_from_its_file_without_times_and_places(tmp_path: Path) -> None:
    key, of_run = next(iter(RUNS.items()))
    row = make_row(
        RunSpec.from_dict(of_run["spec"]), task_version="1", fixed_count=0, status="passed", reason="target", steps=20,
        accuracy=0.1, curve_step=[10, 20], curve_loss=[0.5, float("nan")], seconds=1.5,
    )  # fmt: skip
    (tmp_path / "runs").mkdir()
    pq.write_table(encode([row]), tmp_path / "runs" / "part.parquet")
    [(found_key, taken)] = rows.rows_of(tmp_path).items()
    assert found_key == key
    assert taken.keys() == row.keys() - set(PROVENANCE)
    assert (taken["accuracy"], taken["steps"], taken["loss"]) == ("0x1.999999999999ap-4", 20, None)
    assert (taken["curve_step"], taken["curve_loss"]) == ([10, 20], ["0x1.0000000000000p-1", "nan"])


def test_the_comparison_is_printed_and_told_by_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("old.json", "same.json", "new.json")]
    for file, content in zip(files, (found(), found(), found(accuracy=0.2)), strict=True):
        file.write_text(json.dumps(content))
    old, same, new = map(str, files)
    assert run(rows.app, ["--compare", old, same]) == 0
    assert capsys.readouterr().out == "compared: 1 rows, 1 weights, 1 answers, 7 values; different: 0 values\n"
    assert run(rows.app, ["--compare", old, new]) == 1
    assert capsys.readouterr().out.splitlines() == [
        'tuning / rows / a / accuracy: "0x1.999999999999ap-4" became "0x1.999999999999ap-3"',
        "compared: 1 rows, 1 weights, 1 answers, 7 values; different: 1 values",
    ]
    files[2].write_text("[1]")
    for arguments in (["--compare", old, new], ["--compare", old, str(tmp_path / "none.json")], [], ["--out", old + "/x.json"]):
        assert run(rows.app, arguments) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
