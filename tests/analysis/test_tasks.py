"""Reading a store runs no code that only its rows name."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from safetensors import torch as safetensors

from analysis import export, measure
from analysis.report import __main__ as report
from analysis.report.page import Report
from analysis.results import Results
from analysis.tasks import BUILT_IN, load_all
from orchestrator import scaling
from orchestrator.command.cli import run
from orchestrator.searches import Rows
from orchestrator.store import Question, ResultStore, load_questions, make_row, save_question
from orchestrator.store.rows import VERSION_FIELD
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import check_refusal
from trainables.bumps import BumpTask
from trainables.spec import RunSpec
from trainables.task import Task

EVIL = """
from pathlib import Path
Path({mark!r}).touch()
from trainables.bumps import BumpTask
class X(BumpTask):
    version = "7"
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store below the working directory with a run of its own task, `results.evil:X`, with weights, and one of bumps."""
    place, task = tmp_path / "results", BumpTask()
    specs = [
        RunSpec(
            task=path, dataset="bumps", N=8, data_count=30, seed=0, decoder="mlp", depth=1, width=4, holdout="center",
            options=tuple(task.defaults.items()), stop="budget",
        )
        for path in ("results.evil:X", BUILT_IN[0])
    ]  # fmt: skip
    versions = ("7", task.version)
    with ResultStore(place) as store:
        rows = [
            make_row(spec, task_version=v, fixed_count=0, status="missed", reason="budget")
            for spec, v in zip(specs, versions, strict=True)
        ]
        store.append(rows)
        store.save_weights(rows[0]["key"], safetensors.save(task.model(specs[0]).state_dict()))
    (place / "evil.py").write_text(EVIL.format(mark=str(tmp_path / "it ran")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield place
    for name in ("results", "results.evil"):
        sys.modules.pop(name, None)


@pytest.mark.slow(1)
@pytest.mark.parametrize("words", [["--no-measure"], []])
def test_a_report_loads_no_task_that_only_the_store_names(
    store: Path, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(report.app, ["--store", str(store), *words]) == 0
    assert not (tmp_path / "it ran").exists()
    assert "evil" not in capsys.readouterr().err, "no study asked for its run, so the page lacks nothing"
    assert "2 finished runs" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.slow(2)
def test_a_report_starts_no_program_that_a_row_or_a_question_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text(f"touch '{tmp_path}/it ran'")
    studies: list[ThresholdStudy] = []
    monkeypatch.setattr(scaling, "launch", lambda study, *_: studies.append(study) or 0)
    command = "sh train.sh {data_count} {N} {seed}"
    assert run(scaling.app, ["--program", command, "--counts", "1..40", "--N", "8,16,24", "--seeds", "3"]) == 0
    (study,) = studies
    with ResultStore("results") as store:
        save_question(store, study.question)
        rows = Rows([])
        while specs := study.search.propose(rows, 9):
            for spec in specs:
                passes = spec.data_count >= spec.N
                accuracy, nasty = 0.5 + 0.45 * passes, "[/red]\x1b[31m\n</td>"
                row = make_row(
                    spec, task_version="1", fixed_count=0, status="passed" if passes else "missed", reason="ended",
                    accuracy=accuracy, measures={nasty: 1.0}, error=nasty, seconds=1.0,
                )  # fmt: skip
                rows.add(row)
        store.append(list(rows))
        store.save_weights(row["key"], safetensors.save({nasty: torch.zeros(1)}))
    assert study.answered(rows)
    Console(file=io.StringIO()).print(study.table(rows, {}), study.plan(rows)[0])
    assert json.dumps(study.answer(rows))
    assert run(report.app, ["--store", "results"]) == 0
    assert run(measure.app, ["--store", "results"]) == 0
    assert not (tmp_path / "it ran").exists()
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"{len(rows)} finished runs" in page
    assert "train: samples ~ N^1" in page
    assert "\x1b" not in page
    assert "\x1b" not in capsys.readouterr().out


def test_measuring_loads_no_task_that_only_the_store_names(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(measure.app, ["--store", str(store)]) == 0
    assert not (store.parent / "it ran").exists()
    printed = capsys.readouterr()
    assert "0 new measures of 0 runs are in" in printed.out
    assert "1 run of 'results.evil:X' is not measured" in printed.err


def test_an_export_loads_no_task(store: Path, tmp_path: Path) -> None:
    assert run(export.app, ["--store", str(store), "--csv", "runs.csv", "--tensorboard", "board"]) == 0
    assert "results.evil:X" in (tmp_path / "runs.csv").read_text()
    assert not (tmp_path / "it ran").exists()


@pytest.mark.slow(1)
@pytest.mark.parametrize("words", [["--no-measure"], []])
@pytest.mark.parametrize("study", ["scaling", "encodings"])
def test_a_report_loads_no_task_that_only_a_question_names(
    store: Path, tmp_path: Path, study: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultStore(store) as opened:
        (mine,) = (row for row in opened.rows() if row["task"] == "results.evil:X")
        specs = {"thresholds" if study == "scaling" else "runs": [RunSpec.from_dict(mine)]}
        search = {"resolution": 0.05, "stop": "auto"} if study == "scaling" else {}
        save_question(opened, Question(study=study, task_version="7", specs=specs, search=search, settings={}, command=[]))
        assert [question.task for question in load_questions(opened)] == ["results.evil:X"]
    assert run(report.app, ["--store", str(store), *words]) == 0
    assert not (tmp_path / "it ran").exists()
    assert "results.evil:X" in (tmp_path / "report" / "index.html").read_text() + capsys.readouterr().err


def test_a_task_that_the_user_names_is_loaded(store: Path, tmp_path: Path) -> None:
    results = Results.of(store, ["results.evil:X"])
    assert (tmp_path / "it ran").exists()
    assert len(results.runs) == 2
    assert results.notices == []
    sys.modules["results.evil"].X.version = "8"
    with_task = Results.of(store, ["results.evil:X"])
    assert [row["task"] for row in with_task.runs] == [BUILT_IN[0]], "not of a former version"
    assert with_task.former == 1
    assert with_task.notices == ["1 run is of a former version of a task or of the training, and left out"]
    told = Report.of((), with_task).html()
    assert "The store holds 1 finished run," in told
    assert "One more is of a former version of a task or of the training: this page leaves it out." in told


def test_a_task_without_measures_is_told(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "results") as store:
        spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=3, seed=0)
        store.append([make_row(spec, task_version="1", fixed_count=0, status="missed", reason="budget")])
    outcome = measure.measure_missing(tmp_path / "results", tasks=["tests.toy:Toy"])
    assert outcome.passed_over == ["tests.toy:Toy has no measures: it extends no task of this project"]


def test_runs_of_a_task_that_extends_the_bump_task_are_measured(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class StartedError(Exception):
        pass

    def started(job: measure._Job, *_: object) -> None:
        raise StartedError(*((row["task"], names) for row, names in job.waiting.values()))

    monkeypatch.setattr(measure._Job, "run", started)
    monkeypatch.setattr("orchestrator.engine.cluster.Cluster.connected", lambda self: nullcontext())
    monkeypatch.setattr("orchestrator.engine.cluster.Cluster.parts", lambda self: [])  # asking Ray for them would start one
    with pytest.raises(StartedError) as caught:
        measure.measure_missing(store, tasks=["results.evil:X"], remark="this can be left out")
    assert "measuring 1 network, which may take minutes; this can be left out" in " ".join(capsys.readouterr().err.split())
    assert caught.value.args == (("results.evil:X", list(measure.registry.OF_DECODERS)),)


def test_a_task_that_cannot_be_loaded_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "there" / "store"
    ResultStore(place).close()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for app in (report.app, measure.app):
        check_refusal(app, ["--store", str(place), "--task", "no.such:Task"], "cannot be imported", tmp_path / "here", capsys)


def test_a_location_that_is_no_store_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("other", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    check_refusal(measure.app, ["--store", str(tmp_path / "other")], "has no runs", tmp_path / "here", capsys)
    words = ["--store", str(tmp_path / "file"), "--follow"]
    check_refusal(report.app, words, "Not a directory", tmp_path / "here", capsys)


def test_rows_of_a_newer_version_are_a_mistake_of_the_command(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [path] = store.glob("runs/*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({VERSION_FIELD: b"9"}), path, write_page_checksum=True)
    (tmp_path / "here").mkdir()
    for words in (["--no-measure"], [], ["--follow"]):
        check_refusal(report.app, ["--store", str(store), *words], "has rows of schema 9", tmp_path / "here", capsys)


def test_the_built_in_tasks_are_all_there_are() -> None:
    assert all(isinstance(task, Task) for task in load_all(BUILT_IN).values())
    folder = Path(__file__).parents[2]
    modules = [path for path in (folder / "trainables").rglob("*.py") if "def counts(self" in path.read_text()]
    found = {".".join(path.relative_to(folder).with_suffix("").parts) for path in modules}
    assert found - {"trainables.task"} == {path.partition(":")[0] for path in BUILT_IN}
