"""A run of a store, trained once more: which runs may be, what is compared, and one as a user does it."""

import dataclasses
import json
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis import export
from orchestrator import again, generators, launch, objectives
from orchestrator.command.cli import run
from orchestrator.command.endings import Endings
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.errors import UserError
from orchestrator.searches import Curve, Rows
from orchestrator.store import ResultStore, make_row
from orchestrator.store.rows import PROVENANCE, SCHEMA
from orchestrator.study import GridStudy
from tests.conftest import Command, check_refusal, read_rows, trained_by
from tests.orchestrator.test_needs import Graduate
from tests.toy import Toy
from tests.trainables.generative.made_data import write_celeba
from trainables import spec as versions
from trainables.bumps import BumpTask
from trainables.generative.pictures import FOLDER
from trainables.needs import Tasks
from trainables.program import PATH as PROGRAM
from trainables.spec import RunSpec, run_key, training_version

TOY = RunSpec(
    task="tests.toy:Toy", dataset="toys", N=8, data_count=20, seed=0, decoder="linear", depth=0, width=1, encoding="none",
    options=tuple(Toy.defaults.items()), stop="target",
)  # fmt: skip
BUMPS = RunSpec(
    task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=10, seed=0, decoder="mlp", depth=1, width=4,
    holdout="center", options=tuple(BumpTask.defaults.items()), stop="budget", max_steps=40,
)  # fmt: skip
ENDED: dict[str, Any] = {
    **{"status": "missed", "reason": "budget", "steps": 40, "accuracy": 0.5, "id_mse": 1e-3, "ood_mse": 2e-3, "loss": 3e-3},
    **{"measures": {"exact": 0.25}, "curve_step": [20, 40], "curve_loss": [0.5, 0.25], "curve_accuracy": [0.0, 0.5]},
    **{"curve_error": [0.5, 0.125], "host": "here", "versions": "python=3.12 torch=2.9", "seconds": 4.0},
}


def row(spec: RunSpec = BUMPS, version: str = "1", **changes: Any) -> dict[str, Any]:
    return make_row(spec, task_version=version, fixed_count=0, **{**ENDED, **changes})


def kept(folder: Path, *rows: dict[str, Any]) -> str:
    """The key of the first of some rows in a store."""
    with ResultStore(folder) as store:
        store.append(rows)
    return str(rows[0]["key"])


@pytest.fixture
def trains(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The endings, one after another, of runs that are not really trained."""
    endings: list[dict[str, Any]] = []

    def train(execution: Execution, cluster: Cluster, farewell: object) -> Outcome:
        (spec,) = execution.search.propose(execution.rows, 2)
        for written in execution.store.append([row(spec, execution.task.version, **endings.pop(0))]):
            execution.rows.add(written)
        return Outcome(trained=1)

    monkeypatch.setattr(launch, "executed", trained_by(train))
    return endings


# What is compared


def compared(stored: dict[str, Any], now: dict[str, Any], close: float = 0.1) -> Endings:
    return Endings(row(**stored), row(**now), close)


def test_every_column_that_a_training_decides_is_compared() -> None:
    known = {one.column.partition(".")[0] for one in compared({"curve_summary": {"a": [1.0, 2.0]}}, {}).columns}
    given = {"key", "family", "task_version", "fixed_count", "parents", "error", *RunSpec.__dataclass_fields__}
    assert known == set(SCHEMA.names) - given - set(PROVENANCE)


def test_the_same_ending_is_the_same_bit_for_bit_wherever_it_was() -> None:
    nan = {"accuracy": math.nan, "curve_loss": [math.nan, 1.0]}
    same = compared(nan, {**nan, "host": "there", "seconds": 9.0, "launch": "x"})
    assert same.verdict == "same"
    assert same.lines() == ["host: here then, there now", "the run ended as the store says, bit for bit"]
    assert compared({"loss": 0.0}, {"loss": -0.0}).verdict == "otherwise"


@pytest.mark.parametrize("changes", [{"host": "there"}, {"versions": "python=3.12 torch=3.0"}, {"pack_size": 4}])
def test_elsewhere_close_numbers_will_do(changes: dict[str, Any]) -> None:
    near = {"ood_mse": 2.1e-3, "curve_error": [0.5, 0.1], "steps": 41}
    assert compared({}, near).verdict == "otherwise", "on the same machine they are the same"
    assert compared({}, near | changes).verdict == "close"
    assert compared({}, near | changes, close=0.03).verdict == "otherwise"
    assert compared({}, {"status": "passed"} | changes).verdict == "otherwise"
    assert compared({}, {"loss": None} | changes).verdict == "otherwise"
    assert compared({}, {"loss": math.inf} | changes).verdict == "otherwise"


def test_on_a_gpu_close_numbers_will_do() -> None:
    assert compared({"device": "cuda", "loss": 1.0}, {"device": "cuda", "loss": 0.75}, close=0.25).verdict == "close"
    assert compared({"device": "cuda"}, {"device": "cuda", "loss": 3.0001e-3}).verdict == "close"


def test_what_differs_is_told_with_how_much() -> None:
    other = {"accuracy": 0.25, "curve_loss": [0.5, 0.2], "measures": {"exact": 0.25, "new": 1}, "versions": "torch=3"}
    told = compared({}, other)
    cells = {one.column: one.cells()[1:] for one in told.columns if not one.same}
    assert cells == {
        "accuracy": ("0.5", "0.25", "5.0e-01"),
        "measures.new": ("", "1", "another"),
        "curve_loss": ("2 points", "2 points", "1.0e-01"),
    }
    assert told.lines() == [
        "versions: python=3.12 torch=2.9 then, torch=3 now",
        "the run ended otherwise than the store says: accuracy, measures.new",
    ]
    del other["versions"]
    assert compared({}, other).lines() == [
        "the run ended otherwise than the store says, where with the same machine and versions every bit should be the same: "
        "accuracy, measures.new, curve_loss"
    ]
    near = compared({}, {"ood_mse": 2.1e-3, "host": "there"}).lines()[-1]
    assert near == "the run ended as the store says, to within 4.8e-02 of each value (at most 0.1 is close)"


def test_curves_of_another_length_are_compared_where_both_have_points() -> None:
    longer = {name: [*ENDED[name], ENDED[name][-1]] for name in ("curve_loss", "curve_accuracy", "curve_error")}
    told = compared({}, {**longer, "curve_step": [20, 40, 60], "host": "there"})
    (loss,) = (one for one in told.columns if one.column == "curve_loss")
    assert (loss.same, loss.difference) == (False, pytest.approx(1 / 3))


def test_hostile_names_and_numbers_are_only_data() -> None:
    nasty = {"measures": {"[red]\x1b[31m\n" + "x" * 99: 10**400, "a": [1], "b": None}, "versions": "[/red]\x1b", "host": "\n"}
    told = compared(nasty, {"measures": {"a": {"b": 1}}})
    assert told.verdict == "otherwise"
    shown = [*told.lines(), *(cell for one in told.columns for cell in one.cells())]
    assert all(text.isprintable() and len(text) < 300 for text in shown)


# Which runs may be trained again


def test_a_store_may_lie_in_a_bucket(
    uri: str, trains: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with ResultStore(uri) as store:
        store.append([row()])
    trains += [{}]
    words = [row()["key"], "--store", uri, "--into", f"{uri}-again"]
    assert run(again.app, words) == 0
    with ResultStore(f"{uri}-again", read_only=True) as store:
        assert [one["key"] for one in store.rows(["key"])] == [row()["key"]]
    assert run(again.app, [*words[:3], "--into", f"{uri}/"]) == 2
    assert "lies in the store that has the run" in capsys.readouterr().err
    out_of = ["--store", uri, "--csv", "runs.csv", "--tensorboard", "board"]
    assert run(export.app, out_of) == 0
    assert (row()["key"] in Path("runs.csv").read_text(), Path("board", row()["key"]).is_dir()) == (True, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for app, line in ((again.app, words), (export.app, out_of[:4])):
        capsys.readouterr()
        assert run(app, line) == 1
        assert "\nstopped: " in "\n" + capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "into", "is_refused"),
    [
        ("s3://b/r", "s3://b//r", True),
        ("s3://b/r?region=eu-west-1", "s3://b/r/", True),
        ("s3://b/r", "s3://b/r?endpoint_override=localhost:9000", False),
        ("s3://b/r?endpoint_override=one:9000", "s3://b/r/again?endpoint_override=one:9000&scheme=http", True),
        ("s3://b/r?endpoint_override=one:9000", "s3://b/r?endpoint_override=two:9000", False),
        ("gs://b/r", "gcs://b/r", True),
        ("s3://b/r", "s3://b/r/again", True),
        ("s3://b", "s3://b/again", True),
        ("s3://b/r", "s3://b/r-again", False),
        ("s3://b/r", "gs://b/r", False),
        ("s3://b/r", "again", False),
        ("results", "s3://b/results", False),
    ],
)
def test_a_bucket_has_to_be_another_place_however_it_is_spelled(
    store: str, into: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    if is_refused:
        with pytest.raises(UserError, match="lies in the store that has the run"):
            again._check_places(store, into)
    else:
        again._check_places(store, into)


def test_a_run_that_ends_the_same_is_told_so_and_not_trained_twice(
    trains: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    key, other = kept(Path("results"), row(), row(BUMPS.with_count(11))), row(BUMPS.with_count(11))["key"]
    trains += [{}, {"accuracy": 0.75}]
    assert run(again.app, [key[:6]]) == 0
    printed = capsys.readouterr().out
    assert "1 run trained" in printed
    assert re.search(r"accuracy +│ +0.5 │ +0.5 │ +same ", printed)
    assert "the run ended as the store says, bit for bit" in printed
    assert run(again.app, [key]) == 0
    assert "0 runs trained" in capsys.readouterr().out
    assert run(again.app, [other, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "otherwise"
    (accuracy,) = (one for one in answer["columns"] if not one["same"])
    assert accuracy == {"column": "accuracy", "stored": 0.5, "now": 0.75, "same": False, "difference": pytest.approx(1 / 3)}
    assert sorted(path.name for path in Path("again/again").iterdir()) == sorted(
        f"{each}.{kind}" for each in (key, other) for kind in ("csv", "json")
    )
    assert len(read_rows(tmp_path)) == 2, "the store that has the run stays as it is"


def test_a_dry_run_tells_how_it_ended_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    key = kept(Path("results"), row())
    assert run(again.app, [key, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"BumpTask +│ +8 │ +10 │ +0 │ finished │ +40 │ 4 s +│ missing", printed), printed
    assert "about 4 s with 1 in parallel" in printed
    assert not Path("again").exists()


def test_a_failed_run_ends_again_as_it_did(
    trains: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = {"status": "failed", "reason": "exception", "accuracy": None, "error": "ArithmeticError: 1"}
    key = kept(Path("results"), row(**failed))
    trains += [{**failed, "error": "ArithmeticError: 2"}, {}]
    assert run(again.app, [key]) == 0
    assert run(again.app, [key, "--into", "other"]) == 1


def test_a_run_that_was_pruned_ends_where_it_ended() -> None:
    pruned = row(status="pruned", id_mse=None)
    study = again.Again("again", BumpTask(), [BUMPS], {}, stored=pruned)
    assert study.line(pruned) == f"run {pruned['key']}: pruned (40 steps, 4.0 s)"
    search = study.search
    assert search.pruned_at(Rows(), BUMPS, Curve([20], [0.5])) is None
    assert search.pruned_at(Rows(), BUMPS, Curve([20, 40, 60], [0.5, 0.4, 0.3])) == 2
    thinned = row(status="pruned", id_mse=None, steps=80, curve_step=[20, 80])
    search = again.Again("again", BumpTask(), [BUMPS], {}, stored=thinned).search
    assert search.pruned_at(Rows(), BUMPS, Curve([20, 40, 60], [0.5, 0.4, 0.3])) is None
    assert search.pruned_at(Rows(), BUMPS, Curve([20, 40, 60, 80, 100], [0.5] * 5)) == 4
    assert search.pruned_at(Rows(), BUMPS, Curve([20, 60, 100], [0.5] * 3)) == 2
    search = again.Again("again", BumpTask(), [BUMPS], {}, stored=row()).search
    assert search.pruned_at(Rows(), BUMPS, Curve([20, 40, 60], [0.5, 0.4, 0.3])) is None


PARTS = {"program": "sh 'a b.sh' {data_count}", "files": "{}", "counts": "1..20"}
OF_PROGRAM = dataclasses.replace(BUMPS, task=PROGRAM, options=tuple(PARTS.items()))
FORMER = row(BUMPS, "0")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of several kinds, and a working folder beside them."""
    specs = (BUMPS, TOY, OF_PROGRAM, dataclasses.replace(BUMPS, precision="tf32"), dataclasses.replace(BUMPS, options=()))
    kept(tmp_path / "results", *map(row, specs), FORMER)
    shutil.copytree(tmp_path / "results" / "runs", tmp_path / "other")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("spec", "words", "hint"),
    [
        (BUMPS, "--into ../results", "lies in the store that has the run"),
        (BUMPS, "--into ../results/again", "lies in the store that has the run"),
        (BUMPS, "--into ''", "--into is empty: name a folder"),
        (BUMPS, "--into ../other", "--into '../other' has rows itself: give the folder above it"),
        (BUMPS, "--out ../results/runs/x", "is where the store keeps its runs: choose another folder, such as --out"),
        (BUMPS, "--into /dev/null", "--into '/dev/null' cannot be a folder"),
        (BUMPS, "--task tests.toy:Toy", "is not the task of run"),
        (BUMPS, "--program x", "--program is for runs of programs"),
        (BUMPS, "--data .", "--data is for runs of celeba, clevrer, and this one is of 'bumps'"),
        (BUMPS, "--close 2", "--close"),
        (TOY, "", "'tests.toy:Toy', is not loaded: add --task tests.toy:Toy if you trust its code"),
        (OF_PROGRAM, "", """add --program 'sh '"'"'a b.sh'"'"' 10' if you trust it"""),
        (OF_PROGRAM, "--program 'sh b.sh'", "only your command may name one"),
        (OF_PROGRAM, '''--program "sh '"''', "only your command may name one"),
        (dataclasses.replace(BUMPS, precision="tf32"), "", "add --gpus-per-run 1"),
        (dataclasses.replace(BUMPS, options=()), "", "the task's"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_writes_nothing(
    spec: RunSpec, words: str, hint: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = run_key(spec, "1")
    check_refusal(again.app, [key, "--store", str(store), *shlex.split(words)], hint, Path.cwd(), capsys)


def test_a_key_must_be_that_of_one_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    check_refusal(again.app, ["abc"], "--store 'results' has no runs", here, capsys)
    where = ["--store", str(store)]
    check_refusal(again.app, ["abc", *where], "give at least 6 of its characters", here, capsys)
    check_refusal(again.app, ["[/red]\n", *where], "of its 6 keys the nearest are", here, capsys)
    key = run_key(BUMPS, "1")
    check_refusal(again.app, [key[:7] + "zzz", *where], key, here, capsys)
    assert again._chosen("abcdef", ["abcdef1", "abcdee2", "b"], "results") == "abcdef1"
    with pytest.raises(again.UserError, match=r"several runs of results have keys .*: abcdef0, .*abcdef4 and others$"):
        again._chosen("abcdef", [f"abcdef{i}" for i in range(9)], "results")
    with pytest.raises(again.UserError, match=r"'abcdef': abcdef0, abcdef1$"):
        again._chosen("abcdef", ["abcdef0", "abcdef1", "abcdee"], "results")


def test_a_run_of_a_former_version_is_refused_with_both_versions(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, here = [FORMER["key"], "--store", str(store)], Path.cwd()
    told = f"run {FORMER['key']} is of version 0 of its task and 2 of the training loop, and today's code has 1 and 2, "
    check_refusal(again.app, words, f"{told}so it would train another run ({run_key(BUMPS, '1')})", here, capsys)


def test_the_version_of_the_training_loop_in_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key, early = run_key(BUMPS, "1"), dataclasses.replace(BUMPS, stop="early")
    assert training_version(BUMPS, "1") == training_version(BUMPS, "1", key) == "2"
    assert training_version(early, "1") == training_version(early, "1", run_key(early, "1")) == "2.1"
    assert training_version(BUMPS, "2", key) == ""
    monkeypatch.setattr(versions, "TRAINING_VERSION", "3")
    assert training_version(BUMPS, "1") == "3"
    assert training_version(BUMPS, "1", key) == "2"


def test_a_run_after_others_than_it_would_need_now_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = {"pause": 0.0, "outcome": "passed", "trouble_N": 0, "ledger": ""}
    pupil = dataclasses.replace(TOY, task="tests.toy:Pupil", options=tuple(options.items()))
    key = kept(tmp_path / "results", row(pupil, parents={"teacher": "f" * 24}))
    words = [key, "--store", str(tmp_path / "results"), "--task", "tests.toy:Pupil"]
    hint = f"was trained after other runs than it would need now: teacher {'f' * 24}, now teacher "
    check_refusal(again.app, words, hint, Path.cwd(), capsys)


def test_a_run_of_three_stages_is_refused_if_what_it_needed_was_trained_after_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = {"pause": 0.0, "outcome": "passed", "trouble_N": 0, "ledger": ""}
    graduate = dataclasses.replace(TOY, task="tests.orchestrator.test_needs:Graduate", options=tuple(options.items()))
    tasks = Tasks(Graduate())
    pupil = tasks.needs(graduate)["pupil"]
    rows = [row(graduate, parents=tasks.parents(graduate)), row(pupil, parents={"teacher": "f" * 24})]
    key = kept(tmp_path / "results", *rows)
    words = [key, "--store", str(tmp_path / "results"), "--task", graduate.task]
    hint = f"run {rows[1]['key']}, which run {key} needed, was trained after other runs than it would need now: "
    hint += f"teacher {'f' * 24}, now teacher {tasks.parents(pupil)['teacher']}"
    check_refusal(again.app, words, hint, Path.cwd(), capsys)
    sound = [rows[0], row(pupil, parents=tasks.parents(pupil))]
    kept(tmp_path / "sound", *sound)
    assert run(again.app, [key, "--store", str(tmp_path / "sound"), "--task", graduate.task, "--dry-run"]) == 0


EVIL = """
from pathlib import Path
Path({mark!r}).touch()
from trainables.bumps import BumpTask
class X(BumpTask):
    pass
"""


def test_no_task_is_loaded_that_only_the_store_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("evil_again.py").write_text(EVIL.format(mark="it ran"))
    key = kept(Path("results"), row(dataclasses.replace(BUMPS, task="evil_again:X")))
    assert run(again.app, [key, "--dry-run"]) == 2
    assert "add --task evil_again:X if you trust its code" in capsys.readouterr().err
    assert not Path("it ran").exists()
    assert run(again.app, [key, "--dry-run", "--task", "evil_again:X"]) == 0
    assert Path("it ran").exists()


def test_a_text_of_a_row_is_part_of_a_command_only_if_the_user_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    template = "python '{script}' --images {data_count} --noise {noise} --fast {fast}"
    options = {**PARTS, "program": template, "script": "/tmp/its own.py", "noise": 0.5, "fast": True}
    numbers = {**options, "program": template.replace("'{script}'", "my.py")}
    words = ["--store", str(tmp_path / "results"), "--dry-run", "--program"]
    specs = [dataclasses.replace(OF_PROGRAM, options=tuple(each.items())) for each in (options, numbers)]
    keys = [kept(tmp_path / "results", row(spec)) for spec in specs]
    filled = "python '/tmp/its own.py' --images 10 --noise 0.5 --fast true"
    check_refusal(again.app, [keys[0], *words, template], f"add --program {shlex.quote(filled)} if", Path.cwd(), capsys)
    assert run(again.app, [keys[0], *words, filled]) == 0
    assert run(again.app, [keys[1], *words, numbers["program"]]) == 0
    assert run(again.app, [keys[1], *words, "python my.py --images 10 --noise 0.5 --fast true"]) == 0
    asked: list[Any] = []
    monkeypatch.setattr(again, "launch", lambda study, *_: asked.append(study) or 0)
    assert run(again.app, [keys[0], *words, filled]) == 0
    assert [study.keeps_weights(specs[0]) for study in asked] == [False], "a program keeps none"


def test_a_command_with_letters_that_no_terminal_shows_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    words = ["sh", "it's\ta\\n.sh", "\n7\x1b[31m", "\x7f\x857\u2028é", "10"]
    spec = dataclasses.replace(OF_PROGRAM, options=tuple({**PARTS, "program": shlex.join(words)}.items()))
    key = kept(tmp_path / "results", row(spec))
    where = [key, "--store", str(tmp_path / "results"), "--dry-run"]
    assert run(again.app, where) == 2
    (line,) = capsys.readouterr().err.rstrip("\n").split("\n")
    assert line.isprintable()
    asked = line.partition("--program ")[2].partition(" if you trust it")[0]
    given = subprocess.run(["bash", "-c", f"printf %s {asked}"], capture_output=True, check=True, timeout=20).stdout
    assert shlex.split(given.decode()) == words
    assert run(again.app, [*where, "--program", given.decode()]) == 0


def test_weights_of_a_program_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    key = kept(tmp_path / "results", row(OF_PROGRAM))
    words = [key, "--store", str(tmp_path / "results"), "--program", str(OF_PROGRAM.option("program")), "--save-weights"]
    check_refusal(again.app, words, "--save-weights would change nothing", Path.cwd(), capsys)


@pytest.mark.parametrize("program", [None, "", "sh '", "sh {none}"])
def test_a_row_of_a_program_without_a_command_is_refused_in_words(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = {name: value for name, value in {**PARTS, "program": program}.items() if value is not None}
    key = kept(tmp_path / "results", row(dataclasses.replace(OF_PROGRAM, options=tuple(options.items()))))
    words = [key, "--store", str(tmp_path / "results"), "--program", program or "x"]
    check_refusal(again.app, words, "starts a program, and its row does not say which", Path.cwd(), capsys)


def test_a_program_whose_files_changed_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    spec = OF_PROGRAM.with_value("files", '{"a b.sh": "0123"}')
    words = [kept(tmp_path / "results", row(spec)), "--store", str(tmp_path / "results")]
    program = ["--program", str(spec.option("program"))]
    check_refusal(again.app, [*words, *program], "a b.sh changed since run", Path.cwd(), capsys)
    Path("../large").touch()
    os.truncate("../large", 2**40)
    spec = OF_PROGRAM.with_value("files", '{"../large": "0123"}')
    words[0] = kept(tmp_path / "results", row(spec))
    check_refusal(again.app, [*words, *program], "large has 1,099,511,627,776 bytes, more than are read", Path.cwd(), capsys)
    spec = OF_PROGRAM.with_value("files", json.dumps({f"{i}.sh": "x" for i in range(9)}))
    words[0] = kept(tmp_path / "results", row(spec))
    check_refusal(again.app, [*words, *program], "0.sh, 1.sh, 2.sh, 3.sh, 4.sh and 4 others changed", Path.cwd(), capsys)


@pytest.mark.slow(4)
def test_a_run_of_real_pictures_needs_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER, "")  # put back afterwards
    write_celeba(tmp_path / "celeba")
    studies: list[GridStudy] = []
    monkeypatch.setattr(generators, "launch", lambda study, *_: studies.append(study) or 0)
    assert run(objectives.app, ["--dataset", "celeba", "--data", "celeba", "--tier", "gpu"]) == 0
    probe = Tasks(studies[0].task).needs(studies[0].specs[0])["probe"]
    key = kept(Path("results"), row(probe, Tasks(studies[0].task).version(probe)))
    assert run(again.app, [key, "--dry-run"]) == 2
    assert "error: the run is of celeba: add --data FOLDER" in capsys.readouterr().err
    assert run(again.app, [key, "--dry-run", "--data", "celeba"]) == 0
    assert f"run {key} of results" in capsys.readouterr().out


def test_help_names_every_option_and_the_set_of_options_is_frozen() -> None:
    result = CliRunner().invoke(again.app, ["--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    options = set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))
    assert options == {
        *("--into", "--close", "--task", "--program", "--data"),
        *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours"),
        *("--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
        *("--on-error", "--retry-failed", "--save-weights", "--json", "--verbose", "--help"),
    }


@pytest.mark.slow(35)
def test_a_run_and_what_it_needs_are_trained_again_bit_for_bit(
    join: Callable[..., Command], here: Callable[..., Command], tmp_path: Path
) -> None:
    toys = ("--task", "tests.toy:Pupil", "--N", "8", "--seeds", "1", "--max-steps", "60", "--resolution", "0.5")
    first = here(*toys, "--workers", "2", "--no-speculate")
    assert first.wait() == 0, first.stdout + first.stderr
    rows = read_rows(tmp_path)
    key = rows[rows["task"] == "tests.toy:Pupil"].sort_values("data_count")["key"].iloc[-1]
    second = join(key, "--task", "tests.toy:Pupil", "--workers", "1", study="again")
    assert second.wait() == 0, second.stdout + second.stderr
    assert "the run ended as the store says, bit for bit" in second.stdout
    trained = read_rows(tmp_path, "again")
    assert sorted(trained["task"]) == ["tests.toy:Pupil", "tests.toy:Teacher"]
    whole = rows.set_index("key").loc[trained["key"], "curve_loss"]
    assert [list(a) for a in whole] == [list(b) for b in trained["curve_loss"]]
