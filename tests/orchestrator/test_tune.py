"""The tune study and its search as functions of rows and words: no Ray, and no training but of single steps."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import math
import os
import random
import re
import resource
import shlex
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import optuna
import pytest
import torch
from optuna.trial import TrialState
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from analysis.asked import tuned
from analysis.figures.style import image
from analysis.figures.tune import MOST_PANELS, draw_settings
from analysis.files import write_tune
from analysis.question_fields import TaskNeededError, dimension_of
from analysis.remake_tune import tune_search
from analysis.report.answers import scaling_answer
from analysis.report.kinds import OF_SEARCH
from analysis.report.told import ANSWERED, DOUBTFUL, Around
from analysis.results import Results
from analysis.tune import Answer, compare, comparison_text, crossed_mean, interval
from orchestrator import launch, regularization, tune
from orchestrator.command.cli import run
from orchestrator.command.files import csv_bytes
from orchestrator.command.searched import OF_RUN, check_columns, read_search
from orchestrator.command.stages import Stages
from orchestrator.command.trials import SHOWN, plan_table, trials_table, work_left
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.errors import UnexportedError, UserError
from orchestrator.regularization import SEARCHES
from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.confirm import NO_TRIAL, ConfirmBest
from orchestrator.searches.needs import Staged
from orchestrator.searches.objective import Objective, mean, means
from orchestrator.searches.optuna import MOST_IN_VAIN, OptunaSearch
from orchestrator.searches.space import Dimension
from orchestrator.store import ResultStore, StoreError, make_row, save_question
from tests.conftest import changed, check_refusal, trained_by
from tests.toy import Choosy, ChoosySettings
from trainables.regularization import WEIGHTS
from trainables.settings import Setting, setting, settings_of, with_values
from trainables.spec import Counts, RunSpec, Scalar, run_key
from trainables.task import Data, Split

CHOOSY = ("--task", "tests.toy:Choosy", "--N", "4", "--max-steps", "20")
KNOWN = {**OF_RUN, **settings_of(ChoosySettings)}
LR = Dimension("lr", (), (1e-3, 1.0), log=True)
WIDTH = Dimension("width", (8, 32, 64))
TEMPLATE = RunSpec(
    task="tests.toy:Choosy", dataset="toys", N=8, data_count=3, seed=0, decoder="mlp", depth=0, width=8, encoding="none",
    holdout="", options=(("noise", 0.0),), max_steps=100, stop="budget", lr=1e-3,
)  # fmt: skip
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MSE = (Objective("mse", curve="curve_error"),)

Luck = Callable[[RunSpec], float]


def true_error(spec: RunSpec) -> float:
    """Least, 1, at lr = 0.1 and a width of 32."""
    return math.exp((math.log10(spec.lr) + 1) ** 2 + (spec.width != 32))


def lucky(spec: RunSpec, spread: float = 0.3) -> float:
    """What a run makes of it, by chance of its settings and its seed."""
    return true_error(spec) * math.exp(random.Random(run_key(spec, "1")).gauss(0, spread))


def finish(spec: RunSpec, second: int, error: float | None = None, **changes: Any) -> Row:
    """The row of a run, `second` seconds after the first."""
    error = lucky(spec) if error is None else error
    steps = list(range(20, spec.max_steps + 1, 20))
    found = {"ood_mse": error, "id_mse": spec.lr, "accuracy": 1 / (1 + error), "curve_step": steps}
    found |= {name: [error] * len(steps) for name in ("curve_loss", "curve_error")}
    found |= {"curve_accuracy": [1 / (1 + error)] * len(steps)}
    result = {"status": "missed", "reason": "budget", "steps": spec.max_steps, **found}
    about = {"task_version": "1", "fixed_count": 0, "finished_at": BEGAN + timedelta(seconds=second)}
    return make_row(spec, **{**about, **result, **changes})


def search(dimensions: Sequence[Dimension] = (LR, WIDTH), **changes: Any) -> OptunaSearch:
    given = {"template": TEMPLATE, "task_version": "1", "space": dimensions, "trials": 20, "objectives": MSE, "pruner": "none"}
    return OptunaSearch(**(given | changes))


def walk(made: Any, rows: Rows | None = None, until: int | None = None, workers: int = 1) -> Rows:
    """Carry a search on."""
    rows = Rows() if rows is None else rows
    while not made.finished(rows) and (until is None or len(rows) < until):
        specs = made.propose(rows, workers)
        assert specs, "a search that has not finished asks for a run"
        for spec in specs:
            rows.add(finish(spec, len(rows)))
    return rows


def keys(rows: Rows) -> list[str]:
    return sorted(row["key"] for row in rows)


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=1e-4..1e-2:log", [Dimension("lr", (), (1e-4, 1e-2), log=True)]),
        ("noise=0..2", [Dimension("noise", (), (0.0, 2.0))]),
        ("width=16..64", [Dimension("width", (), (16, 64), step=1)]),
        ("width=16..65:16", [Dimension("width", (), (16, 64), step=16)]),
        ("width=1..512:log", [Dimension("width", (), (1, 512), log=True, step=1)]),
        ("width=32|64|128", [Dimension("width", (32, 64, 128))]),
        ("noise=0|1e-4..1e-1:log", [Dimension("noise", (0.0,), (1e-4, 0.1), log=True)]),
        ("decoder=linear|mlp,flat=yes|no", [Dimension("decoder", ("linear", "mlp")), Dimension("flat", (True, False))]),
        ("schedule=constant|cosine", [Dimension("schedule", ("constant", "cosine"))]),
    ],
)
def test_what_a_user_writes_is_understood(text: str, expected: list[Dimension]) -> None:
    found = read_search([text], KNOWN)
    assert found == expected
    assert [repr(end) for one in found for end in one.ends] == [repr(end) for one in expected for end in one.ends]
    assert read_search([f"{one.name}={one.text}" for one in found], KNOWN) == expected


def test_spaces_beside_a_bar_are_no_part_of_a_word_but_in_questions_that_have_them() -> None:
    act = Setting("act", str, None)
    [found] = read_search(["act= relu | tanh"], {"act": act})
    assert found == Dimension("act", ("relu", "tanh"))
    assert dimension_of("act", found.text, act) == found
    assert dimension_of("act", "relu | tanh", act) == Dimension("act", ("relu ", " tanh"))


MISSPELLED = [
    ("lr", "names no values: write NAME=LOW..HIGH"),
    ("lr=", "names no values"),
    ("speed=1|2", "there is no setting 'speed' to search: choose one of lr, weight_decay,"),
    ("lr=0.1", "leaves nothing to choose"),
    ("lr=0.1..0.01", "empty range, because 0.1 is not below 0.01"),
    ("lr=0..1", "lr must be above 0"),
    ("lr=a..b", "takes a finite number, not 'a'"),
    ("lr=1e-4..inf", "lr must be a finite number"),
    ("lr=1e-4..1e-2:ln", "'ln' is no way to divide this range"),
    ("lr=1e-4..1e-2:", "ends in a colon"),
    ("lr=1e-4..1e-3|1e-3..1e-2", "has two ranges"),
    ("noise=0..1:log", "a log range begins above 0, not at 0: for 0 too, write 0|LOW..HIGH:log"),
    ("weight_decay=-1..1", "weight_decay must be at least 0"),
    ("width=0|8", "width must be at least 1"),
    ("width=8..1000", "width must be at most 512"),
    ("width=8|8.5", "takes a whole number, not '8.5'"),
    ("width=8..64:0", "'0' is no way to divide this range"),
    ("width=16|8..64", "a value that lies in its range"),
    ("decoder=linear|cnn", "decoder 'cnn' is unknown: choose linear or mlp"),
    ("decoder=linear..mlp", "is unknown: choose linear or mlp"),
    ("decoder=mlp|mlp", "names a value twice"),
    ("schedule=constant|step", "schedule 'step' is unknown"),
    ("lr=1e-4..1e-2,lr=1|2", "lr is searched twice"),
    ("width=8..24:100", "has the value 8 alone, because its step is longer than the range"),
]


@pytest.mark.parametrize(("text", "hint"), MISSPELLED)
def test_values_that_a_setting_cannot_have_are_refused(text: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        read_search([text], KNOWN)
    assert hint in str(refused.value)
    assert str(refused.value).startswith(f"--search {text.split(',')[-1]!r}")


@pytest.mark.parametrize("text", ["lr=1e-4..1e-2,", ",lr=1e-4..1e-2", "lr=1e-4..1e-2,,width=8|16"])
def test_a_comma_too_many_is_said_to_be_one(text: str) -> None:
    with pytest.raises(UserError) as refused:
        read_search([text], KNOWN)
    assert str(refused.value).startswith(f"--search {text!r} has nothing before or after a comma: leave the comma out")


MISTAKES = [
    (["lr"], "names no values: write NAME=LOW..HIGH"),
    (["width=8|16", "--width", "8"], "--search and --width both give width"),
    (["lr=1e-4..1e-2", "--lr", "0.01"], "--search and --lr both give lr"),
    (["noise=2..3", "--option", "kind=square"], "--search allows noise=2, which cannot be trained: a square has no noise"),
    (
        ["noise=2..3,lr=0.1..1", "--option", "kind=square"],
        "--search allows noise=2, lr=0.1, which cannot be trained: a square has no noise above 1",
    ),
    (["data_count=1..17"], "--search allows data_count=17, which cannot be trained: data_count must lie in 1..16 at N = 4"),
    (
        ["lr=0.1..1,N=4|2", "--N", "16", "--data-count", "9"],
        "--search allows N=2, which can be trained with none of the other values that were tried, so search other values: "
        "data_count must lie in 1..4 at N = 2, not 9",
    ),
    (["lr=1e-4..1e-2", "--target", "90"], "error: --target must lie in (0, 1], not 90.0\n"),
    (["lr=1e-4..1e-2", "--data-count", "100000"], "error: --data-count must lie in 1..16 at N = 4, not 100000\n"),
    (["lr=1e-4..1e-2", "--task", "trainables.program:ProgramTask"], "give the program with --program"),
    (["lr=1e-4..1e-2", "--objective", "beauty"], "does not tell which way is better: write min:beauty or max:beauty"),
    (
        ["lr=1e-4..1e-2", "--objective", "min:far, far"],
        "'far' does not tell which way is better: write min:far or max:far (commas separate objectives, as in 'min:far, far')",
    ),
    (["lr=1e-4..1e-2", "--objective", "max:beauty"], "is no number of these runs: choose of mse, id_mse, accuracy, steps"),
    (["lr=1e-4..1e-2", "--objective", "seconds"], "depends on the machine and on what else runs there"),
    (["lr=1e-4..1e-2", "--objective", "mse,"], "names no number of a run"),
    (["lr=1e-4..1e-2", "--objective", "mse,mse"], "names a number twice"),
    (["max_steps=20..40", "--max-steps", "2000", "--objective", "steps"], "search other settings than max_steps"),
    (["lr=1e-4..1e-2", "--objective", "min:seeds"], "--objective seeds is not possible, because the tables of the answer have"),
    (
        ["lr=1e-4..1e-2", "--objective", "max:shift", "--pruner", "median"],
        "no pruner can judge shift: pruning is only for accuracy and the loss that runs minimise (mse or loss), and not for "
        "programs: use --pruner none\n",
    ),
    (["lr=1e-4..1e-2", "--objective", "mse,id_mse", "--pruner", "median"], "two objectives: use --pruner none\n"),
    (["lr=1e-4..1e-2", "--sampler", "best"], "choose tpe, nsga2, random, grid or gp"),
    (["width=8|16"], "--search width would change nothing: of the settings that are searched, none makes it matter"),
    (["width=8|16|32", "--decoder", "mlp", "--sampler", "grid", "--trials", "2"], "the least grid of this space has 3 points"),
    (["lr=1e-4..1e-2,kind=round|square", "--sampler", "grid", "--trials", "3"], "has 4 points: raise --trials to that"),
    (["lr=1e-4..1e-2", "--export-optuna", "."], "exists: give the name of a new file"),
    (["lr=1e-4..1e-2", "--export-optuna", "/proc/study.db"], "'/proc' is not writable"),
    (["lr=1e-4..1e-2", "--seeds", "0"], "--seeds"),
    (["lr=1e-4..1e-2", "--trials", "100000", "--seeds-per-trial", "2"], "ask for fewer --trials or --seeds-per-trial"),
    (["lr=1e-4..1e-2", "--trials", "100", "--confirm", "100", "--seeds", "1000"], "ask for fewer --confirm or --seeds"),
    (["lr=1e-4..1e-2", "--vary", "noise=1"], "--vary is about a program: add --program"),
]


@pytest.mark.parametrize(("words", "hint"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    words: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(tune.app, changed(CHOOSY, "--search", *words), hint, tmp_path, capsys)


OF_ANSWER = "may be the name of a table or figure of the answer: give the file another name, such as study.db\n"
OF_FOLDER = "is the name of a folder that the study makes: give the file another name, such as study.db\n"
IN_STORE = "is where the store keeps its {}: choose another folder, such as --export-optuna study.db\n"


@pytest.mark.parametrize(
    ("file", "others", "hint"),
    [
        ("out/{}.json", "--store new --out out", OF_ANSWER),
        ("out/{}.csv", "--store new --out link", OF_ANSWER),
        ("link/settings.PNG", "--store new --out out", OF_ANSWER),
        ("store/{}/errors.svg", "--store store", OF_ANSWER),
        ("out/new", "--store store --out out/new", OF_FOLDER),
        ("new", "--store new", OF_FOLDER),
        ("new", "--store new --out out", OF_FOLDER),
        ("new", "--store store --out new/tables", OF_FOLDER),
        ("store/runs/x.db", "--store store", IN_STORE.format("runs")),
        ("store/runs/x.db", "--store store --out out", IN_STORE.format("runs")),
        ("within/x.db", "--store store", IN_STORE.format("weights")),
        ("store/weights/x.db", "--store ./out/../store", IN_STORE.format("weights")),
        ("store/set-aside", "--store store", IN_STORE.format("set-aside")),
    ],
)
@pytest.mark.parametrize("study", [tune, regularization])
def test_an_export_where_the_study_writes_is_refused(
    study: Any, file: str, others: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for folder in ("out", f"store/{study.NAME}", "store/runs", "store/weights"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to("out")
    (tmp_path / "within").symlink_to("store/weights")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = [*CHOOSY, "--search", "lr=1e-3..1:log"] if study is tune else ["--N", "8"]
    file = file.format(study.NAME)
    assert run(study.app, [*words, "--export-optuna", file, *others.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err == f"error: --export-optuna {file!r} {hint}"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("file", ["out/study.db", "out/more/tune.json", "store/study.db", "tune.json", "store/scaling/tune"])
def test_an_export_beside_what_the_study_writes_is_taken(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("out/more", "store/scaling", "store/runs"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    where = ("--store", "store", "--out", "out", "--export-optuna", file)
    assert made_by(*CHOOSY, "--search", "lr=1e-3..1:log", *where).export == Path(file)


def test_no_more_trials_are_to_be_confirmed_than_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*CHOOSY, "--search", "lr=1e-3..1:log", "--trials", "2")
    assert made_by(*words).search.most == 2
    assert made_by(*words, "--confirm", "2").search.most == 2
    for more in ("4", "5"):
        hint = f"--confirm {more} is more than there are trials: give at most 2, or more --trials\n"
        given = [*words, "--confirm", more, "--store", str(tmp_path / "store"), "--dry-run"]
        check_refusal(tune.app, given, hint, tmp_path, capsys)


class Silent(Choosy):
    def matters(self, settings: Mapping[str, Scalar]) -> Any:
        return None


class Confused(Choosy):
    def matters(self, settings: Mapping[str, Scalar]) -> Any:
        raise KeyError("x")


class Namesake(Choosy):
    """What it measures has the names of numbers that every run has."""

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        found = super().measure(spec, outputs, split)
        return found | dict.fromkeys(("accuracy", "mse"), found["shift"])

    def summarise(self, spec: RunSpec, measures: Mapping[str, torch.Tensor], split: Split) -> dict[str, float]:
        return {"steps": measures["shift"].mean().item(), "length": 1.0}


class Exact(Choosy):
    """It measures the squared error, as a row has it."""

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        found = super().measure(spec, outputs, split)
        return found | {"mse": found["shift"].square()}


class Scored(Choosy):
    """Its loss is no squared error, and it measures that itself."""

    loss = "cross-entropy"

    def data(self, spec: RunSpec) -> Data:
        return Data(*(split._replace(targets=(split.inputs[:, 0] > 0).long()) for split in super().data(spec)))

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 2)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        right = outputs.argmax(1) == split.targets
        return {"correct": right, "mse": (outputs.softmax(1)[:, 1] - split.targets).square(), "steps": right}


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    ("task", "refused", "taken"),
    [
        (Namesake, ("accuracy", "mse", "id_mse", "min:accuracy", "max:steps", "loss,mse"), ("min:shift", "max:length", "loss")),
        (Scored, ("steps",), ("mse", "id_mse", "accuracy")),
        (Choosy, (), ("mse", "id_mse", "accuracy", "steps")),
        (Exact, (), ("mse", "id_mse")),
    ],
)
def test_a_name_of_two_numbers_is_no_objective(
    task: type, refused: Sequence[str], taken: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--task", f"{__name__}:{task.__name__}", "--N", "4", "--max-steps", "20", "--search", "lr=0.1..1", "--objective"]
    for objective in refused:
        name = re.split("[:,]", objective)[-1]
        hint = f"--objective {name} is a number that every run has, and also one that this task measures: rename that of the"
        check_refusal(tune.app, [*words, objective], hint, tmp_path, capsys)
    for objective in taken:
        assert made_by(*words, objective).search.tuning.aims[0].name == objective.split(":")[-1]


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        (Silent, "the task's matters() must give the names of settings, not None"),
        (Confused, "the task's matters() fails with KeyError: 'x'"),
    ],
)
def test_a_task_that_cannot_say_what_matters_is_refused(
    task: type, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--task", f"{__name__}:{task.__name__}", "--N", "4", "--search", "width=4|8", "--dry-run"]
    check_refusal(tune.app, words, hint, tmp_path, capsys)


class AtTheEnds(Choosy):
    """It can do nothing between the ends of a range of noise."""

    def counts(self, spec: RunSpec) -> Counts:
        if spec.option("noise") not in (0.5, 1.0):
            raise ValueError("the noise must be a half or 1")
        return super().counts(spec)


def test_a_search_without_a_trial_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        assert not execution.search.propose(execution.rows, 1)
        return Outcome()

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    words = ["--task", f"{__name__}:AtTheEnds", "--N", "4", "--search", "noise=0.5..1", "--trials", "2"]
    assert run(tune.app, [*words, "--store", str(tmp_path), "--json"]) == 1
    printed = capsys.readouterr()
    why = "no trial was made, as the task can do none of the settings that the search proposed: search other values"
    assert printed.err.splitlines()[-1] == f"not answered: {why}"
    assert json.loads(printed.out)["doubt"] == why


class Slow(Choosy):
    """It can do nothing but the lowest hundredth of a range of noise."""

    def counts(self, spec: RunSpec) -> Counts:
        if spec.option("noise") not in (0.5, 1.0) and float(str(spec.option("noise"))) > 0.505:
            raise ValueError("the noise must be little or 1")
        return super().counts(spec)


@pytest.mark.parametrize("objectives", [["min:key"], ["min:mse", "max:seeds"]])
def test_the_report_refuses_a_question_whose_tables_would_have_two_columns_of_one_name(objectives: list[str]) -> None:
    question = made_by("--task", f"{__name__}:Slow", "--N", "4", "--max-steps", "20", "--search", "noise=0.5..1").question
    asked = dataclasses.replace(question, search={**question.search, "objectives": objectives})
    with pytest.raises(ValueError, match=r"its tables would have two columns of the name (key|seeds)$"):
        tune_search(asked, Slow(), [])


@pytest.mark.parametrize(("task", "state"), [(AtTheEnds, DOUBTFUL), (Slow, ANSWERED)])
def test_the_report_knows_that_a_search_has_no_more_points(task: type, state: str) -> None:
    words = ["--task", f"{__name__}:{task.__name__}", "--N", "4", "--max-steps", "20", "--search", "noise=0.5..1"]
    study = made_by(*words, "--trials", "60", "--seeds", "2", "--sampler", "random")
    rows = Rows()
    while specs := study.search.propose(rows, 1):
        rows.add(finish(specs[0], len(rows)))
    assert study.search.finished(rows)
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    again = tune_search(question, task(), list(rows))
    told = OF_SEARCH[ConfirmBest](again, question, rows, Around(dict, lambda key: b""))
    assert told.state == state
    assert (NO_TRIAL in told.lines) == (state == DOUBTFUL)
    trials = len(again.tuning.finished_trials(rows))
    assert (trials > 0) == (state == ANSWERED)
    assert again.winner(rows) == study.search.winner(rows)


PROGRAM = ("--program", "echo {lr} {seed} {data_count}", "--counts", "1..9", "--objective", "accuracy")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--search", "noise=1|2"], "there is no setting 'noise' to search"),
        (["--search", "batch_size=8|16"], "--search batch_size would change nothing: write {batch_size} in --program"),
        (
            ["--search", "schedule=constant|cosine", "--vary", "noise=1", "--program", "echo {noise} {seed} {data_count}"],
            "--search schedule is nothing that a program can be told: search lr, weight_decay, batch_size, max_steps, N, "
            "data_count or noise",
        ),
        (["--search", "lr=0.1..1", "--schedule", "cosine"], "because a program cannot be told it: omit the option"),
        (["--search", "lr=0.1..1", "--save-weights"], "--save-weights would change nothing, because"),
        (["--search", "lr=0.1..1", "--objective", "loss"], "a program cannot report 'loss' of what is held out"),
        (["--search", "lr=0.1..1", "--pruner", "median"], "and not for programs: use --pruner none"),
        (["--search", "lr=0.1..1", "--max-steps", "7"], "--max-steps would change nothing"),
        (["--search", "lr=0.1..1", "--pack-size", "3"], "--pack-size 3 is of trainings here: each run of a program is a"),
        (["--search", "lr=0.1..1", "--program", "echo {lr} {data_count}"], "--program has no {seed}"),
        (
            ["--search", "lr=0.1..1", "--program", "echo {lr} {data_count}", "--seeds", "1"],
            "--program has no {seed}, so a trial and its confirmation would be the same runs: write it there",
        ),
        (["--search", "lr=0.1..1", "--target", "0.8"], "--target would change nothing: write {target} in --program"),
        (["--search", "lr=0.1..1", "--target", "0.9"], "--target would change nothing: write {target} in --program"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_program_is_told_what_is_searched(
    words: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(tune.app, changed(PROGRAM, *words), hint, tmp_path, capsys)


def made_by(*arguments: str) -> tune.TuneStudy:
    """The study that a command line makes."""
    with mock.patch.object(launch, "_launch", return_value=0) as begun, mock.patch.object(Cluster, "check"):
        assert run(tune.app, [*arguments]) == 0
    study = begun.call_args.args[0]
    assert isinstance(study, tune.TuneStudy)
    return study


def test_the_settings_of_a_program_are_searched() -> None:
    words = ["--program", "echo {lr} {kind} {seed} {data_count}", "--counts", "1..9", "--vary", "kind=a", "--pack-size", "1"]
    study = made_by(*words, "--objective", "accuracy", "--search", "lr=0.1..1:log,kind=a|b", "--trials", "5")
    for spec in study.search.propose(Rows(), 4):
        assert spec.option("kind") in ("a", "b")
        assert 0.1 <= spec.lr <= 1
        assert (spec.data_count, spec.target) == (9, 1.0)
        assert study.line(finish(spec, 0, steps=0, seconds=2.0)).endswith(", 2.0 s)")
        assert "steps" not in study.line(finish(spec, 0, steps=0))
        assert ", 7 steps, " in study.line(finish(spec, 0, steps=7))
    assert study.work_left(Rows()) is None


def test_the_target_is_what_the_user_says_and_the_usual_one_if_he_says_nothing() -> None:
    told = ("--program", "echo {lr} {seed} {data_count} {target}", "--counts", "1..9", "--objective", "accuracy")
    for words, target in (
        ((*told, "--search", "lr=0.1..1", "--target", "0.9"), 0.9),
        ((*told, "--search", "lr=0.1..1"), 1.0),
        ((*PROGRAM, "--search", "lr=0.1..1"), 1.0),
        ((*CHOOSY, "--search", "lr=0.1..1"), 0.9),
        ((*CHOOSY, "--search", "lr=0.1..1", "--target", "0.8"), 0.8),
    ):
        assert made_by(*words).search.tuning.template.target == target


def test_two_objectives_are_searched_by_the_sampler_that_covers_a_front_in_few_trials() -> None:
    words = (*CHOOSY, "--search", "lr=1e-3..1:log", "--objective", "mse,id_mse")
    assert made_by(*words).search.tuning.sampler == "tpe"
    assert made_by(*words, "--sampler", "nsga2").question.search["sampler"] == "nsga2"


def test_more_trials_than_were_asked_for_leave_none_to_do() -> None:
    words = (*CHOOSY, "--search", "lr=1e-3..1:log", "--seeds-per-trial", "2", "--sampler", "random")
    more = made_by(*words, "--trials", "9")
    rows = walk(more.search.tuning)
    study = made_by(*words, "--trials", "4", "--confirm", "2", "--seeds", "3")
    assert work_left(study.search, rows, 10.0).seconds == 10 * 2 * 3
    console = Console(width=120, file=StringIO())
    console.print(plan_table(study.search, rows, "20"))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"trials\s+│\s+9\s+│\s+0\s", printed)
    assert "at most 0" in printed


def test_plan_and_table_tell_the_points_of_a_grid_that_are_left_after_other_trials() -> None:
    words = (*CHOOSY, "--search", "lr=1e-3..1:log,batch_size=8..16:log", "--pruner", "none")
    rows = walk(made_by(*words, "--trials", "12", "--sampler", "random").search.tuning)
    study = made_by(*words, "--trials", "9", "--sampler", "grid", "--confirm", "1", "--seeds", "2")
    assert work_left(study.search, rows, 10.0).seconds == 10 * (9 + 2)
    console = Console(width=120, file=StringIO())
    console.print(plan_table(study.search, rows, "20"), trials_table(study.search.tuning, rows, {}))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"trials\s+│\s+12\s+│\s+9\s", printed)
    assert "search: 12 trials (9 asked for), 9 to come" in printed


def test_trials_their_further_seeds_and_their_confirmation_come_one_after_another() -> None:
    words = (*CHOOSY, "--search", "lr=1e-3..1:log", "--trials", "30", "--seeds-per-trial", "3", "--pruner", "none")
    study = made_by(*words, "--confirm", "2", "--seeds", "5")
    work = work_left(study.search, Rows(), 10.0)
    assert work.seconds == pytest.approx(10 * (30 + 30 * 2 / 3 + 2 * 5))
    assert work.on(1) == work.seconds
    assert work.on(1000) == 10 * (1 + 2 + 1)


def test_help_names_every_option_and_the_set_of_options_is_frozen() -> None:
    result = CliRunner().invoke(tune.app, ["--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    options = set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))
    assert options == {
        *("--search", "--objective", "--trials", "--confirm", "--seeds", "--target"),
        *("--sampler", "--pruner", "--seeds-per-trial", "--search-seed", "--export-optuna"),
        *("--task", "--N", "--data-count", "--option", "--program", "--program-settings", "--vary", "--counts"),
        *("--dataset", "--decoder", "--depth", "--width", "--encoding", "--holdout"),
        *("--centres", "--sigma", "--absent", "--polarity", "--tolerance"),
        *("--max-steps", "--schedule", "--batch-size", "--lr", "--weight-decay", "--precision"),
        *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours"),
        *("--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
        *("--on-error", "--retry-failed", "--save-weights", "--json", "--verbose", "--help"),
    }


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--search", "lr=1e-4..1e-2:log,noise=0|0.1..1", "--trials", "9", "--seeds-per-trial", "3", "--seeds", "4"]
    assert run(tune.app, [*CHOOSY, *words, "--dry-run", "--store", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"noise\s+│\s+0\|0.1..1", printed)
    assert re.search(r"trials\s+│\s+0\s+│\s+9\s+│\s+20, fewer", printed)
    assert re.search(r"their further seeds\s+│\s+0\s+│\s+at most 18", printed)
    assert re.search(r"best 3, fresh seeds\s+│\s+0\s+│\s+4\s+│\s+20", printed)
    assert not list(tmp_path.iterdir())


# The space


def test_a_setting_that_does_not_matter_is_left_at_its_default_and_no_training_is_asked_for_twice() -> None:
    study = made_by(*CHOOSY, "--search", "width=8|16|32,decoder=linear|mlp,kind=round|square", "--trials", "50")
    rows = walk(study.search.tuning)
    found = [(row["decoder"], row["width"], row["options"]["kind"]) for row in rows]
    mlps = set(itertools.product(["mlp"], [8, 16, 32], ["round", "square"]))
    assert sorted(found) == sorted(mlps | {("linear", 4, "round"), ("linear", 4, "square")})
    assert len(study.search.tuning.finished_trials(rows)) == study.search.tuning.trials == 8
    trial = next(t for t in study.search.tuning.finished_trials(rows) if t.row["decoder"] == "linear")
    assert "width" not in trial.values
    by_grid = made_by(*CHOOSY, "--search", "width=8|16|32,decoder=linear|mlp", "--trials", "9", "--sampler", "grid")
    assert len(walk(by_grid.search.tuning)) == 4


def test_a_switch_chooses_between_a_word_and_a_range() -> None:
    noise = Dimension("noise", (0.0,), (1e-3, 1.0), log=True)
    made = search([noise], sampler="random", trials=40)
    rows = walk(made)
    values = [row["options"]["noise"] for row in rows]
    ranged = [value for value in values if value]
    assert values.count(0.0) == 1, "0 is one training, however often it is drawn"
    assert len(ranged) == 39
    assert min(ranged) < 0.01
    assert max(ranged) > 0.1
    params = [trial.params for trial in made.study(rows).trials]
    assert {"noise is": "0"} in params
    assert sum(set(param) == {"noise is", "noise"} for param in params) == 39


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "nsga2"])
def test_a_finite_space_ends_with_its_last_point(sampler: str) -> None:
    made = search([WIDTH, Dimension("depth", (), (1, 4), step=1)], sampler=sampler, trials=99)
    rows = walk(made)
    assert len(rows) == made.trials == 12
    assert {(row["width"], row["depth"]) for row in rows} == set(itertools.product((8, 32, 64), (1, 2, 3, 4)))


def test_a_grid_has_all_words_and_ranges_from_end_to_end() -> None:
    made = search([LR, WIDTH, Dimension("weight_decay", (0.0,), (0.1, 0.3))], sampler="grid", trials=40)
    rows = walk(made)
    assert len(rows) == 3 * 3 * 4
    assert sorted({row["lr"] for row in rows}) == pytest.approx([1e-3, 10**-1.5, 1.0])
    assert sorted({row["weight_decay"] for row in rows}) == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(("low", "high", "log"), [(0.3, 0.9, False), (0.001, 0.01, False), (0.0001, 0.03, True)])
def test_a_grid_ends_with_its_range_where_the_task_takes_no_larger_value(low: float, high: float, log: bool) -> None:
    """The last point is computed, and may lie beyond by a rounding: where the task takes it, as stored grids have it."""

    def make(values: Mapping[str, Scalar], seed: int, most: float = high) -> RunSpec:
        if float(values["lr"]) > most:
            raise ValueError(f"lr may be at most {most}")
        return with_values(TEMPLATE, values)

    space = [Dimension("lr", (), (low, high), log=log)]
    for most, end in ((high, high), (1.0, math.nextafter(high, 1.0))):
        made = search(space, sampler="grid", trials=5, make=partial(make, most=most))
        assert sorted(spec.lr for spec in made.listed())[-1] == end
        assert made.trials == 5


def test_whether_a_grid_has_ended_is_looked_at_once_after_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch asks many times a second, and each look goes through the whole grid."""
    made, rows, looks = search(sampler="grid", trials=12), Rows(), 0
    asked = made.propose

    def counted(*given: Any) -> list[RunSpec]:
        nonlocal looks
        looks += 1
        return asked(*given)

    monkeypatch.setattr(made, "propose", counted)
    assert not any(made.finished(rows) for _ in range(5))
    assert looks == 1
    for spec in asked(rows, 12):
        rows.add(finish(spec, len(rows)))
    assert all(made.finished(rows) for _ in range(5))
    assert looks == 2


def test_a_grid_gives_every_range_two_values_or_more() -> None:
    """As few trials as its corners need are asked for by whoever wants less; see `check_grid`."""
    beside = Dimension("weight_decay", (0.0,), (1e-4, 1.0), log=True)
    batch = Dimension("batch_size", (), (1, 64), log=True, step=1)
    made = search([LR, beside, WIDTH, batch], sampler="grid", trials=25)
    assert made.trials == 2 * 3 * 3 * 2
    assert {values["lr"] for values in made._points or ()} == {1e-3, 1.0}
    assert {values["weight_decay"] for values in made._points or ()} == {0.0, 1e-4, 1.0}
    assert search([LR, beside, WIDTH, batch], sampler="grid", trials=36).trials == 36
    many = [Dimension(f"number_{i}", (), (0.0, 1.0)) for i in range(30)]
    with pytest.raises(ValueError, match=f"the least grid of this space has {2**30} points, of which at most 100000"):
        search(many, sampler="grid", trials=25)


@pytest.mark.parametrize(("trials", "points"), [(4, 4), (8, 4), (12, 9), (15, 9), (16, 16)])
def test_a_grid_in_which_all_settings_matter_has_as_many_values_of_each_range(trials: int, points: int) -> None:
    """A finished search on an old store has its points: they do not depend on whether the task says what matters."""
    ranges = [LR, Dimension("weight_decay", (), (0.1, 0.3))]
    for matters in (None, lambda values: {"lr", "weight_decay"}):
        assert search(ranges, sampler="grid", trials=trials, matters=matters).trials == points


@pytest.mark.parametrize(
    ("trials", "points", "widths", "rates"),
    [(6, 6, 2, 2), (12, 12, 3, 3), (14, 12, 3, 3), (15, 15, 4, 3), (16, 16, 3, 4), (20, 20, 4, 4), (5, 6, 2, 2)],
)
def test_points_of_a_grid_that_are_one_training_count_once(trials: int, points: int, widths: int, rates: int) -> None:
    """The width matters only for the mlp: w widths and r rates are r + w r points. A range may have one value more."""
    space = [Dimension("width", (), (1, 400), step=1), Dimension("decoder", ("linear", "mlp")), LR]

    def matters(values: Mapping[str, Scalar]) -> list[str]:
        return ["decoder", "lr", *["width"] * (values.get("decoder") == "mlp")]

    made = search(space, sampler="grid", trials=trials, matters=matters)
    found = made._points or []
    assert len(found) == made.trials == points
    assert len({values["width"] for values in found if "width" in values}) == widths
    assert len({values["lr"] for values in found}) == rates


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2"])
def test_a_search_that_has_no_more_points_has_ended_for_any_process(sampler: str) -> None:
    """The task refuses nearly all of a range, and what is left is tried: the rows alone tell."""

    def make(values: Mapping[str, Scalar], seed: int) -> RunSpec:
        if float(values["lr"]) > 1.03e-3:
            raise ValueError("too fast")
        return dataclasses.replace(TEMPLATE, lr=values["lr"], seed=seed)

    def made() -> ConfirmBest:
        return ConfirmBest(search([LR], sampler=sampler, trials=60, make=make), most=2, seeds=(1000, 1001))

    one = made()
    rows = walk(one)
    assert 0 < len(one.tuning.finished_trials(rows)) < 60
    again = made()
    assert again.finished(rows)
    assert again.winner(rows) == one.winner(rows) is not None
    before = Rows(list(rows)[:1])
    assert not made().finished(before)
    assert made().propose(before, 1) == one.propose(before, 1)


def test_a_search_does_not_end_while_its_last_trials_are_in_progress() -> None:
    """Though the rows that there are would say so."""
    made, again = (search([LR], trials=60, make=_only, sampler="random", seed=27) for _ in range(2))
    slow, quick = made.propose(Rows(), 2)
    rows = Rows([finish(quick, 0)])
    assert made.propose(rows, 1, [slow]) == []
    assert again.finished(rows)
    assert not made.finished(rows)


def _only(values: Mapping[str, Scalar], seed: int) -> RunSpec:
    """Of a range its lowest hundredth."""
    if math.log10(float(values["lr"])) > -2.97:
        raise ValueError("too fast")
    return dataclasses.replace(TEMPLATE, lr=values["lr"], seed=seed)


@pytest.mark.parametrize("log", [True, False])
def test_the_last_point_of_a_grid_is_a_trial_whatever_rounding_makes_of_it(log: bool) -> None:
    ends = [float(f"{digit}e{power}") for power in range(-4, 1) for digit in (1, 2, 3, 5)]
    for low, high in itertools.combinations(ends, 2):
        one = Dimension("lr", (), (low, high), log=log)
        points = one.points(5)
        assert all(map(one.holds, points))
        assert points[-1] == pytest.approx(high)
        assert not one.holds(high * (1 + 1e-9))
    for words in ((), (1.0,)):
        made = search([Dimension("lr", words, (1e-4, 3e-2), log=log)], sampler="grid", trials=5)
        rows = walk(made)
        assert len(made.finished_trials(rows)) == made.trials == 5
        assert max(trial.params.get("lr", 0.0) for trial in made.study(rows).trials) == 0.03


@pytest.mark.parametrize(("low", "high", "step"), [(1, 8, 1), (1, 100, 1), (16, 128, 16)])
def test_all_whole_numbers_of_a_range_on_a_logarithmic_scale_are_tried(low: int, high: int, step: int) -> None:
    one = Dimension("width", (512,), (low, high), log=True, step=step)
    assert one.points(1000) == [512, *range(low, high + 1, step)]
    if high < 100:
        made = search([dataclasses.replace(one, words=())], trials=99, sampler="random")
        assert sorted(row["width"] for row in walk(made)) == [*range(low, high + 1)]
        assert made.trials == high


# The search


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "nsga2", pytest.param("gp", marks=pytest.mark.slow(5))])
def test_interrupted_anywhere_and_resumed_asks_for_the_same_runs(sampler: str) -> None:
    def make() -> ConfirmBest:
        tuning = search(sampler=sampler, trials=12, seeds=3)
        return ConfirmBest(tuning, most=2, seeds=(1000, 1001))

    whole = walk(make())
    assert len(whole) > 12 + 4, "some trials have several seeds"
    rows = Rows()
    for stop in (1, 9, 14, 21, None):
        shuffled = list(rows)
        random.Random(stop).shuffle(shuffled)  # a store gives rows in any order
        rows = walk(make(), Rows(shuffled), stop)
    assert keys(rows) == keys(whole)
    assert [t.values for t in make().chosen(rows)] == [t.values for t in make().chosen(whole)]


def test_a_trial_takes_a_seed_at_a_time_while_it_is_in_contention() -> None:
    made, rows = search(sampler="random", trials=9, seeds=4), Rows()
    errors = iter([1.0, 1.1, 8.0, 9.0, 7.0, 9.5, 6.0, 5.0, 4.0])
    seen: dict[str, list[int]] = {}
    while not made.finished(rows):
        (spec,) = made.propose(rows, 1)
        setting = run_key(dataclasses.replace(spec, seed=0), "1")
        error = next(errors) if spec.seed == 0 else seen[setting][0] * (1 + 0.01 * spec.seed)
        seen.setdefault(setting, []).append(error)
        rows.add(finish(spec, len(rows), error))
    trials = made.finished_trials(rows)
    assert [len(trial.rows) for trial in trials] == [4, 4, 1, 1, 1, 1, 4, 4, 4], "the best third when it began"
    assert [row["seed"] for row in trials[1].rows] == [0, 1, 2, 3]
    assert trials[1].scores[0] == pytest.approx(1.1 * (1.01 * 1.02 * 1.03) ** 0.25), "the mean is geometric"


def test_a_trial_within_its_standard_error_of_the_best_goes_on() -> None:
    made = search(sampler="random", trials=30, seeds=2)
    specs = [with_values(TEMPLATE, {"lr": 0.01 * (i + 1), "width": 8}) for i in range(9)]
    rows = Rows(finish(spec, i, 1 + 0.1 * i) for i, spec in enumerate(specs))
    assert [t.number for t in made.contending(rows)] == [0, 1, 2]
    rows.add(finish(dataclasses.replace(specs[0], seed=1), 20, 2.0))  # now a seed is known to make so much of a difference
    spread = abs(math.log(2)) / math.sqrt(2)
    best = math.log(2) / 2
    within = [i for i in range(9) if math.log(1 + 0.1 * i) - (spread / math.sqrt(2) if i == 0 else spread) <= best]
    assert sorted(t.number for t in made.contending(rows)) == within
    assert 3 in within
    asked = {spec.lr for spec in made.propose(rows, 100) if spec.seed == 1}
    assert asked == {specs[i].lr for i in within if i}
    assert made.propose(rows, 1, made.propose(rows, 1))[0].lr != made.propose(rows, 1)[0].lr, "one run of a trial at a time"


def test_pruned_diverged_and_failed_trials_take_no_further_seed_and_one_bad_seed_ends_a_trial() -> None:
    made, rows = search(sampler="random", trials=4, seeds=2), Rows()
    statuses = iter(["missed", "diverged", "pruned", "diverged", "failed"])
    while not made.finished(rows):
        (spec,) = made.propose(rows, 1)
        status = next(statuses)
        error = None if status == "missed" else math.nan if status == "diverged" else 1.0
        rows.add(finish(spec, len(rows), error, status=status))
    states = [(trial.state, len(trial.rows)) for trial in made.finished_trials(rows)]
    fail = TrialState.FAIL
    assert states == [(fail, 2), (TrialState.PRUNED, 1), (fail, 1), (fail, 1)]
    assert made.ranked(rows) == []


@pytest.mark.parametrize("status", ["failed", "diverged"])
def test_a_study_without_a_complete_trial_is_unanswered_if_runs_of_any_seed_failed(status: str) -> None:
    study = made_by(*CHOOSY, "--search", "lr=0.1..1", "--trials", "4", "--seeds-per-trial", "2", "--pruner", "none")
    rows, second = Rows(), study.search.tuning.seeds[1]
    while not study.search.finished(rows):
        (spec,) = study.search.propose(rows, 1)
        rows.add(finish(spec, len(rows), **({"status": status, "ood_mse": None} if spec.seed == second else {})))
    assert [row["seed"] for row in rows].count(second) == 4
    assert study.answered(rows) == (status == "diverged")
    assert str(study.doubt(rows)).startswith(f"no trial is complete (4 {status})")


def test_only_the_first_seed_is_pruned_and_by_the_curve_of_the_objective() -> None:
    accuracy = (Objective("accuracy", up=True, curve="curve_accuracy"),)
    made = search(sampler="random", trials=40, objectives=accuracy, pruner="median", seeds=2)
    specs = [with_values(TEMPLATE, {"lr": 0.01 * (i + 1), "width": 8}) for i in range(12)]
    rows = Rows(finish(spec, i, 1.0) for i, spec in enumerate(specs))
    steps = [20, 40, 60, 80, 100]
    poor = Curve(steps, [0.0] * 5, [0.1] * 5)  # which a search for small errors would not prune
    good = Curve(steps, [9.0] * 5, [0.9] * 5)
    spec = with_values(TEMPLATE, {"lr": 0.5, "width": 8})
    assert made.pruned_at(rows, spec, poor) == 2
    assert made.pruned_at(rows, dataclasses.replace(spec, lr=0.6), good) is None
    assert made.pruned_at(rows, dataclasses.replace(spec, seed=1), poor) is None


def test_a_trial_that_diverges_on_a_further_seed_no_longer_counts_for_pruning() -> None:
    def fresh() -> OptunaSearch:
        return search(sampler="random", trials=40, pruner="median", seeds=2)

    made = fresh()
    specs = [with_values(TEMPLATE, {"lr": 0.01 * (i + 1), "width": 8}) for i in range(12)]
    rows = Rows(finish(spec, i, float(i)) for i, spec in enumerate(specs))
    middling = Curve([20, 40, 60, 80, 100], [8.5] * 5, [0.1] * 5)
    spec = with_values(TEMPLATE, {"lr": 0.5, "width": 8})
    assert made.pruned_at(rows, spec, middling) is not None
    for i in range(6):  # the best ones
        rows.add(finish(dataclasses.replace(specs[i], seed=1), 12 + i, math.nan, status="diverged"))
    assert fresh().pruned_at(rows, spec, middling) is None
    assert made.pruned_at(rows, spec, middling) is None


def test_where_the_steps_are_searched_none_is_pruned_and_a_plan_tells_both_ends() -> None:
    steps = [*CHOOSY[:4], "--search", "max_steps=20..4000"]
    study = made_by(*steps)
    assert study.search.tuning.pruner == "none"
    assert [spec.max_steps for spec in study.ends] == [20, 4000]
    console = Console(file=StringIO(), width=120)
    table, work = study.plan(Rows())
    console.print(table)
    assert "tpe sampler, no pruner" in console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"trials\s+│\s+0\s+│\s+\d+\s+│\s+20 to 4000", console.file.getvalue())  # type: ignore[attr-defined]
    short = made_by(*steps[:-1], "max_steps=20..21")
    _, less = short.plan(Rows())
    assert work is not None
    assert less is not None
    assert work.seconds > 20 * less.seconds
    with pytest.raises(UserError, match="--pruner median compares runs at the same step"):
        tune.app([*steps, "--pruner", "median"], standalone_mode=False)


def test_what_is_larger_is_better_where_the_objective_says_so() -> None:
    made = search(objectives=(Objective("accuracy", up=True),), trials=25)
    rows = walk(made)
    best = made.best(rows)
    assert best is not None
    assert best.row["accuracy"] == max(row["accuracy"] for row in rows)
    assert made.study(rows).best_value == best.row["accuracy"]


def test_means_are_geometric_where_all_numbers_are_positive_and_small_ones_are_better() -> None:
    assert means([[1.0, 4.0], [3.0]], up=False) == ([pytest.approx(2.0), 3.0], True)
    assert means([[1.0, 4.0], [0.0]], up=False) == ([2.5, 0.0], False)
    assert means([[1.0, 4.0]], up=True) == ([2.5], False)


def test_rows_of_other_runs_are_no_trials() -> None:
    made = search(seeds=2)
    inside = with_values(TEMPLATE, {"lr": 0.1, "width": 32})
    others = [
        dataclasses.replace(inside, N=9),
        dataclasses.replace(inside, seed=2),
        dataclasses.replace(inside, width=16),
        dataclasses.replace(inside, lr=2.0),
        dataclasses.replace(inside, weight_decay=0.5),
        dataclasses.replace(inside, lr=0.2, seed=1),  # a second seed without a first
    ]
    rows = Rows(finish(spec, i) for i, spec in enumerate([inside, *others, dataclasses.replace(inside, seed=1)]))
    (trial,) = made.finished_trials(rows)
    assert dict(trial.values) == {"lr": 0.1, "width": 32}
    assert [row["seed"] for row in trial.rows] == [0, 1]


def test_another_search_seed_has_other_seeds_of_trainings() -> None:
    words = (*CHOOSY, "--search", "lr=1e-4..1e-2:log", "--trials", "3", "--seeds-per-trial", "2", "--seeds", "2")
    first, second = made_by(*words), made_by(*words, "--search-seed", "1")
    assert (first.search.tuning.seeds, first.search.seeds) == (range(100_000, 100_002), range(101_000, 101_002))
    assert (second.search.tuning.seeds, second.search.seeds) == (range(102_000, 102_002), range(103_000, 103_002))


def test_a_row_that_arrives_while_the_trials_are_looked_at_is_not_forgotten() -> None:
    made = search(seeds=2)
    specs = [with_values(TEMPLATE, {"lr": 0.01 * (i + 1), "width": 8}) for i in range(3)]
    first, *later = (finish(spec, i, 1.0) for i, spec in enumerate(specs))

    class Growing(Rows):
        """As where another thread adds a row after this one has read them."""

        def __iter__(self) -> Iterator[Row]:
            found = list(super().__iter__())
            if later:
                self.add(later.pop())
            return iter(found)

    rows = Growing([first])
    assert [len(made.finished_trials(rows)) for _ in range(4)] == [1, 2, 3, 3]
    assert len(made.ranked(rows)) == 3


@pytest.mark.slow(1)
def test_a_study_is_exported_when_nothing_will_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that continues is the same one, and takes the name of a new file."""
    monkeypatch.setattr("analysis.files.write_tune", lambda *_: [])
    file = tmp_path / "what? 100% {of it}.db"
    study = made_by(*CHOOSY, "--search", "lr=1e-3..1:log", "--trials", "5", "--export-optuna", str(file))
    rows = walk(study.search.tuning)
    assert study.search.tuning.finished(rows)
    study.write(rows, tmp_path / "out", force=True)
    failed = Rows(rows)
    while not study.search.finished(failed):
        for spec in study.search.propose(failed, 1):
            failed.add(finish(spec, len(failed), status="failed"))
    study.write(failed, tmp_path / "out", force=True)
    assert not file.exists()
    assert file in study.write(walk(study.search, rows), tmp_path / "out", force=True)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT COUNT(*) FROM trials").fetchone() == (5,)


@pytest.mark.slow(1)
def test_exports_at_once_take_no_file_from_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.files.write_tune", lambda *_: [])
    file, late = tmp_path / "study.db", tmp_path / ".study.db.0123456789abcdef-journal"
    study = made_by(*CHOOSY, "--search", "lr=1e-3..1:log", "--trials", "2", "--confirm", "1", "--export-optuna", str(file))
    rows = walk(study.search)
    late.touch()
    os.utime(late, (time.time() - 3700,) * 2)
    add = optuna.Study.add_trials

    def meanwhile(made: Any, trials: Any) -> None:
        monkeypatch.setattr(optuna.Study, "add_trials", add)
        assert file in study.write(rows, tmp_path / "out", force=True)
        add(made, trials)

    monkeypatch.setattr(optuna.Study, "add_trials", meanwhile)
    with pytest.raises(UnexportedError, match=r"File exists\): name another file with --export-optuna"):
        study.write(rows, tmp_path / "out", force=True)
    for without in (OSError(errno.EPERM, "no links"), None):
        with sqlite3.connect(file) as connection:
            assert connection.execute("SELECT COUNT(*) FROM trials").fetchone() == (2,)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        if without is not None:
            monkeypatch.setattr(Path, "hardlink_to", lambda *_, error=without: (_ for _ in ()).throw(error))
            with pytest.raises(UnexportedError, match="File exists"):
                study.write(rows, tmp_path / "out", force=True)
            file.unlink()
            assert file in study.write(rows, tmp_path / "out", force=True)


@pytest.mark.slow(2)
def test_an_export_that_fails_is_told_as_such_beside_the_files_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, written = tmp_path / "gone" / "study.db", tmp_path / "tune.csv"
    file.parent.mkdir()
    written.touch()

    def execute(execution: Execution, *_: object) -> Outcome:
        walk(execution.search, execution.rows)
        file.parent.rmdir()
        return Outcome()

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    monkeypatch.setattr("analysis.files.write_tune", lambda *_: [written])
    words = [*CHOOSY, "--search", "lr=0.01|0.1", "--trials", "2", "--confirm", "1", "--seeds", "1"]
    assert run(tune.app, [*words, "--export-optuna", str(file), "--store", str(tmp_path / "store")]) == 1
    printed = capsys.readouterr()
    told = " ".join((printed.out + printed.err).split())
    assert f"wrote {written} the trials could not be written to {file} (No such file or directory): name another file" in told
    assert "--out" not in told


@pytest.mark.slow(2)
def test_nothing_is_exported_below_a_disk_with_the_store_that_was_unmounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"

    def execute(execution: Execution, *_: object) -> Outcome:
        walk(execution.search, execution.rows)
        place.rename(tmp_path / "moved")
        place.mkdir()
        return Outcome()

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    monkeypatch.setattr("analysis.files.write_tune", lambda *_: [])
    place.mkdir()
    asked = [*CHOOSY, "--search", "lr=0.01|0.1", "--trials", "2", "--confirm", "1", "--seeds", "1"]
    assert run(tune.app, [*asked, "--export-optuna", str(place / "study.db"), "--store", str(place)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"could not be written to {place}/study.db (the store was moved or removed while in use): name another" in told
    assert list(place.iterdir()) == []


@pytest.mark.slow(2)
@pytest.mark.parametrize("option", ["--export-optuna {}", "--export-optuna={}"])
def test_the_command_that_continues_does_not_name_a_file_that_is_written(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        walk(execution.search, execution.rows)
        return Outcome()

    def publish(*_: object) -> None:
        raise StoreError("the bucket does not answer")

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    monkeypatch.setattr("analysis.files.write_tune", lambda *_: [])
    monkeypatch.setattr(ResultStore, "publish", publish)
    asked = [*CHOOSY, "--search", "lr=0.01|0.1", "--trials", "2", "--confirm", "1", "--seeds", "1"]
    export, where = option.format(tmp_path / "study.db").split(), ["--store", str(tmp_path / "store")]
    monkeypatch.setattr("sys.argv", ["sweep", "tune", *asked, *export, *where])
    assert run(tune.app, [*asked, *export, *where]) == 1
    assert (tmp_path / "study.db").exists()
    assert f"to continue: {shlex.join(['sweep', 'tune', *asked, *where])}\n" in capsys.readouterr().out
    assert launch._resume(["sweep", "tune", "--export-optuna", "new.db"]) == "sweep tune --export-optuna new.db"


@pytest.mark.slow(4)
@pytest.mark.parametrize("room", [0, 2**14, 2**16])
def test_a_file_for_which_there_is_no_room_is_an_error_of_the_disk_and_leaves_nothing(room: int, tmp_path: Path) -> None:
    made = search(trials=12)
    rows, usual = walk(made), resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
        with pytest.raises(OSError, match=r"full|disk I/O error") as caught:
            made.export(rows, tmp_path / "study.db", "tune")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, before)
    assert caught.value.filename == str(tmp_path / "study.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(4)
def test_the_exported_file_holds_every_trial(tmp_path: Path) -> None:
    made = search([LR, WIDTH, Dimension("weight_decay", (0.0,), (0.1, 0.3))], trials=12, seeds=2)
    rows = walk(made)
    made.export(rows, tmp_path / "study.db", "tune")
    read = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path}/study.db")
    assert [t.values for t in read.trials] == [list(t.scores) for t in made.finished_trials(rows)]


# The answer


def confirmed(rows: Rows | None = None, **changes: Any) -> tuple[ConfirmBest, Rows]:
    made = ConfirmBest(search(**({"trials": 12} | changes)), most=3, seeds=range(1000, 1005))
    return made, walk(made, rows)


def answer_of(made: ConfirmBest, rows: Rows) -> Answer:
    return Answer.of_search(made, rows, {"search": {d.name: d.text for d in made.tuning.dimensions}})


def test_the_winner_is_the_best_on_fresh_seeds_not_in_the_search() -> None:
    made = ConfirmBest(search(trials=12), most=3, seeds=range(1000, 1005))
    rows = walk(made.tuning)
    assert made.chosen(rows) == made.tuning.ranked(rows)[:3]
    order = [dict(trial.values) for trial in made.chosen(rows)]
    while not made.finished(rows):
        (spec,) = made.propose(rows, 1)
        place = order.index(dict(made.tuning._space.values(spec)))
        luck = 1 + 0.01 * (spec.seed % 5) + 1e-6 * (spec.seed % 2) * place
        rows.add(finish(spec, len(rows), (4.0, 1.0, 2.0)[place] * luck))
    answer = answer_of(made, rows)
    assert list(answer.confirmed["winner"]) == [False, True, False]
    assert list(answer.confirmed["mse_search"]) == [trial.scores[0] for trial in made.chosen(rows)]
    assert answer.confirmed["mse"][0] == pytest.approx(4 * (1.01 * 1.02 * 1.03 * 1.04) ** 0.2)
    assert answer.comparison is not None
    assert answer.comparison["ratio"] == pytest.approx(0.5, rel=1e-5)
    assert answer.comparison["decides"]
    assert answer.lines()[0].startswith(f"winner: trial {made.chosen(rows)[1].number} (lr ")
    json.dumps(answer.to_json(), allow_nan=False)
    assert answer.to_json()["winner"]["setting"] == f"trial {made.chosen(rows)[1].number}"


def test_a_setting_that_diverges_on_a_fresh_seed_cannot_win() -> None:
    made = ConfirmBest(search(trials=5), most=2, seeds=(1000, 1001))
    rows = walk(made.tuning)
    best = dict(made.chosen(rows)[0].values)
    while not made.finished(rows):
        (spec,) = made.propose(rows, 1)
        bad = spec.seed == 1001 and dict(made.tuning._space.values(spec)) == best
        rows.add(finish(spec, len(rows), math.nan if bad else 1.0, status="diverged" if bad else "missed"))
    answer = answer_of(made, rows)
    assert list(answer.confirmed["failed"]) == [1, 0]
    assert list(answer.confirmed["winner"]) == [False, True]
    assert answer.comparison is None
    assert "1 of its fresh seeds failed, diverged or had no number" in answer.lines()[-1]


@pytest.mark.slow(2)
@pytest.mark.parametrize("names", [("steps",), ("mse", "steps")])
def test_where_steps_are_the_objective_the_tables_have_their_mean(names: tuple[str, ...], tmp_path: Path) -> None:
    aims = tuple(map(Objective, names))
    sampler = "random" if len(aims) == 1 else "nsga2"
    made = ConfirmBest(search(objectives=aims, sampler=sampler, trials=6, seeds=2), most=2, seeds=(1000, 1001))
    rows = Rows()
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            rows.add(finish(spec, len(rows), status="passed", reason="target", steps=20 + len(rows) + 30 * (spec.seed % 2)))
    answer = answer_of(made, rows)
    assert list(answer.trials.columns) == ["number", "lr", "width", *names, "seeds", "state", "key"]
    trials = made.tuning.finished_trials(rows)
    means = [sum(row["steps"] for row in trial.rows) / len(trial.rows) for trial in trials]
    assert any(mean % 1 for mean in means)
    place = names.index("steps")
    assert answer.trials["steps"].tolist() == [trial.scores[place] for trial in trials] != means, "they are geometric"
    assert answer.trials["steps"].tolist() == pytest.approx(means, rel=0.2)
    found = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert [trial["steps"] for trial in found["trials"]] == answer.trials["steps"].tolist()
    assert answer.doubt() is None
    assert "tune.csv" in [path.name for path in write_tune(answer, tmp_path)]


@pytest.mark.parametrize(
    ("names", "aims", "word"),
    [
        (["lr", "number"], ["mse"], "--search number"),
        (["steps"], ["accuracy"], "--search steps"),
        (["mse"], ["mse"], "--search mse"),
        (["loss_lower"], ["mse", "loss"], "--search loss_lower"),
        (["lr"], ["seeds"], "--objective seeds"),
        (["lr"], ["mse", "state"], "--objective state"),
    ],
)
def test_no_two_columns_of_the_tables_have_one_name(names: list[str], aims: list[str], word: str) -> None:
    with pytest.raises(UserError, match=f"^{word} is not possible, .* rename it in the task, for example to own_"):
        check_columns(names, aims)
    check_columns(["lr", "width", "speed"], ["steps", "mse"])


def test_a_setting_without_a_number_of_the_second_objective_cannot_win() -> None:
    aims = (Objective("mse"), Objective("id_mse"))
    made = ConfirmBest(search(objectives=aims, sampler="nsga2", trials=8), most=2, seeds=(1000, 1001))
    rows = walk(made.tuning)
    first = dict(made.chosen(rows)[0].values)
    for alone in (True, False):
        found = Rows(rows)
        while not made.finished(found):
            for spec in made.propose(found, 1):
                bad = spec.seed == 1001 and (not alone or dict(made.tuning._space.values(spec)) == first)
                found.add(finish(spec, len(found), **({"id_mse": math.nan} if bad else {})))
        answer = answer_of(made, found)
        assert list(answer.confirmed["failed"]) == [1, 0 if alone else 1]
        assert list(answer.confirmed["seeds"]) == [1, 2 if alone else 1]
        assert list(answer.confirmed["winner"]) == [False, alone]
        assert (answer.winner is None) == (made.winner(found) is None) == (not alone)
        assert (answer.doubt() is None) == alone


def test_the_winner_of_the_answer_is_that_of_the_search() -> None:
    """An error of 0 in the search makes its means arithmetic, and so those of the fresh seeds."""
    made = ConfirmBest(search(trials=4, sampler="random"), most=2, seeds=(1000, 1001, 1002))
    rows = Rows()
    while not made.tuning.finished(rows):
        for spec in made.tuning.propose(rows, 1):
            rows.add(finish(spec, len(rows), None if len(rows) else 0.0))
    order = [dict(trial.values) for trial in made.chosen(rows)]
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            errors = ((1.0, 1.0, 1.0), (0.01, 0.01, 4.0))[order.index(dict(made.tuning._space.values(spec)))]
            rows.add(finish(spec, len(rows), errors[spec.seed - 1000]))
    winner, answer = made.winner(rows), answer_of(made, rows)
    assert winner == made.chosen(rows)[0]
    assert answer.winner == f"trial {winner.number}" == answer.to_json()["winner"]["setting"]
    assert answer.comparison is not None
    assert answer.comparison["difference"] < 0


def test_a_search_that_goes_on_is_not_said_to_have_chosen_nothing() -> None:
    made, whole = confirmed()
    for count in (5, 12, len(whole) - 1, len(whole)):
        answer = answer_of(made, walk(made, until=count))
        assert answer.doubt() is None
        assert answer.to_json()["doubt"] is None
    pruned = Rows(finish(spec, i, status="pruned") for i, spec in enumerate(made.tuning.propose(Rows(), 3)))
    assert answer_of(made, pruned).doubt() == "no trial is complete (3 pruned), so nothing could be chosen: search other values"


def test_nothing_is_crowned_before_every_fresh_run_has_ended() -> None:
    made, whole = confirmed()
    rows = Rows(list(whole)[:-1])
    assert not answer_of(made, rows).confirmed["winner"].any()
    assert answer_of(made, whole).confirmed["winner"].sum() == 1
    assert answer_of(made, Rows()).doubt() is None


def test_the_front_of_two_objectives_is_confirmed() -> None:
    aims = (Objective("mse"), Objective("id_mse"))
    made, rows = confirmed(objectives=aims, sampler="nsga2", trials=14, seeds=2)
    chosen = made.chosen(rows)
    front = sorted(made.tuning.front(rows), key=lambda trial: trial.scores[0])
    assert len(chosen) == 3
    assert (chosen[0], chosen[-1]) == (front[0], front[-1])
    answer = answer_of(made, rows)
    assert answer.comparison is None
    assert answer.confirmed["winner"].any()
    assert {"mse_search", "mse", "mse_lower", "id_mse_search", "id_mse", "id_mse_upper"} <= set(answer.confirmed.columns)
    assert all(len(t.rows) == 2 for t in front)


def test_the_table_tells_the_whole_front_and_shows_what_is_confirmed_of_it() -> None:
    aims = (Objective("mse"), Objective("id_mse"))
    made = ConfirmBest(search(objectives=aims, sampler="random", trials=30), most=3, seeds=(1000, 1001))
    rows = walk(made)
    front = {trial.number for trial in made.tuning.front(rows)}
    chosen = [trial.number for trial in made.chosen(rows)]
    assert len(front) > SHOWN + 3
    assert max(chosen) in sorted(front)[SHOWN:]
    table = trials_table(made.tuning, rows, {}, chosen)
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert {str(column.header) for column in table.columns} >= {"mse", "id_mse"}, "as the other table and the answer name them"
    states = dict(zip(map(int, cells[0]), cells[-1], strict=True))
    assert set(chosen) <= states.keys()
    assert {number for number, state in states.items() if state == "front"} == front & states.keys()
    assert str(table.title).endswith(f", {len(front & states.keys())} of {len(front)} of the front")


def test_a_table_that_is_shown_while_a_trial_of_another_launch_comes_in_is_of_one_moment() -> None:
    """That trial is better than all, so other settings are confirmed with it than without it."""
    study = made_by(*CHOOSY, "--search", "lr=0.01..0.1", "--trials", "2", "--confirm", "1", "--seeds", "1")
    tuning, rows = study.search.tuning, Rows()
    first, second, best = (finish(tuning.spec({"lr": 0.02 + i / 100}), i, error) for i, error in enumerate((0.3, 0.2, 0.01)))
    for row in (first, second):
        rows.add(row)
    study.table(rows, {})
    known, other = study._known, threading.Thread(target=rows.add, args=(best,))

    def of(rows: Rows) -> Answer:
        answer = known.of(rows)
        if other.ident is None:
            other.start()
            other.join(0.2)
        return answer

    study._known = SimpleNamespace(of=of)  # type: ignore[assignment]
    study.table(rows, {})
    other.join()
    assert len(rows) == 3
    assert [trial.number for trial in study.search.chosen(rows)] == [2]


def test_the_table_says_as_the_answer_does_that_a_trial_has_no_number() -> None:
    aims = (Objective("quality", up=True),)
    made = ConfirmBest(search(objectives=aims, sampler="random", trials=7, seeds=2), most=1, seeds=())
    ends: list[dict[str, Any]] = [
        {"status": "pruned"}, {"status": "failed"}, {"measures": {"quality": 0.5}}, {"status": "diverged"},
        {"measures": {"quality": math.nan}}, {"measures": {}}, {"measures": {"quality": 0.9}},
    ]  # fmt: skip
    specs = [with_values(TEMPLATE, {"lr": 0.01 * (i + 1), "width": 8}) for i in range(len(ends))]
    rows = Rows(finish(spec, i, **end) for i, (spec, end) in enumerate(zip(specs, ends, strict=True)))
    rows.add(finish(dataclasses.replace(specs[-1], seed=1), len(rows), status="diverged"))
    table = trials_table(made.tuning, rows, {})
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert str(table.title) == "search: 7 of 7 trials, 1 pruned, 2 diverged, 1 failed, 2 no number"
    fewer = trials_table(search(objectives=aims, sampler="random", trials=3, seeds=2), rows, {})
    assert str(fewer.title).startswith("search: 7 trials (3 asked for), 1 pruned")
    shown = dict(zip(map(int, cells[0]), cells[-1], strict=True))
    assert shown == {2: "best", 4: "no number", 5: "no number", 6: "diverged"}
    said = list(answer_of(made, rows).trials["state"])
    assert said == ["pruned", "failed", "finished", "diverged", "no number", "no number", "diverged"]


def test_the_only_one_of_a_front_that_is_confirmed_is_the_best_of_it() -> None:
    aims = (Objective("accuracy", up=True), Objective("id_mse"))
    made = ConfirmBest(search(objectives=aims, sampler="nsga2", trials=14), most=1, seeds=(1000, 1001))
    rows = walk(made)
    assert made.chosen(rows) == [made.tuning.best(rows)]
    worst = min(made.tuning.front(rows), key=lambda trial: trial.scores[0])
    aims = (Objective("id_mse"), Objective("accuracy", up=True))
    made = ConfirmBest(search(objectives=aims, sampler="nsga2", trials=14), most=1, seeds=(1000, 1001))
    assert made.chosen(rows) == [made.tuning.best(rows)]
    assert made.chosen(rows)[0].row["accuracy"] == max(row["accuracy"] for row in rows if row["seed"] == 0)
    assert worst.number != made.chosen(rows)[0].number


SATURATED = (Objective("id_mse"), Objective("accuracy", up=True))
"""The first is `lr`; the second is often 1 for all."""


def beaten(rows: Rows, made: ConfirmBest) -> set[int]:
    """Trials than which another one is better in one of these objectives and as good in the other."""
    costs = {t.number: (t.scores[0], -t.scores[1]) for t in made.tuning.finished_trials(rows)}
    return {
        number
        for number, own in costs.items()
        if any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in costs.values())
    }


def test_of_trials_alike_in_the_last_objective_the_one_on_the_front_is_confirmed() -> None:
    made = ConfirmBest(search(objectives=SATURATED, sampler="nsga2", trials=14), most=1, seeds=(1000, 1001))
    rows = Rows()
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            rows.add(finish(spec, len(rows), accuracy=1.0 if spec.lr > 3e-3 else 0.5))
    assert 0 in beaten(rows, made), "the first trial that reaches 1"
    [best] = made.chosen(rows)
    assert best == made.tuning.best(rows) == made.winner(rows)
    assert best.number not in beaten(rows, made)
    assert best in made.tuning.front(rows)
    assert best.values["lr"] == min(trial.values["lr"] for trial in made.tuning.finished_trials(rows) if trial.scores[1] == 1)
    alone = dataclasses.replace(made, seeds=())
    assert alone.winner(rows) == best
    told = answer_of(made, rows)
    assert told.lines()[0].startswith(f"on the front: trial {best.number} (")
    assert told.to_json()["winner"]["setting"] == f"trial {best.number}"


def test_of_settings_alike_in_the_last_objective_on_fresh_seeds_the_one_on_the_front_wins() -> None:
    made = ConfirmBest(search(objectives=SATURATED, sampler="nsga2", trials=14), most=3, seeds=(1000, 1001))
    rows = walk(made.tuning)
    order = [dict(trial.values) for trial in made.chosen(rows)]
    assert len(order) == 3
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            place = order.index(dict(made.tuning._space.values(spec)))
            rows.add(finish(spec, len(rows), accuracy=1.0, id_mse=(3.0, 2.0, 1.0)[place]))
    answer = answer_of(made, rows)
    assert list(answer.confirmed["winner"]) == [False, False, True]
    winner = answer.to_json()["winner"]
    assert winner["winner"], "the row of the winner is on the front"
    assert f"on the front: {winner['setting']} " in answer.lines()[0]
    assert made.winner(rows) == made.chosen(rows)[2]


def timed(steps: Sequence[Sequence[int | None]], objectives: Sequence[Objective] = (Objective("steps"),)) -> Answer:
    """Settings that reach the target after so many of 100 steps on their fresh seeds; None: never."""
    seeds = range(1000, 1000 + len(steps[0]))
    made = ConfirmBest(search(trials=4, objectives=objectives, sampler="random"), most=len(steps), seeds=seeds)
    rows = walk(made.tuning)
    order = [dict(trial.values) for trial in made.chosen(rows)]
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            after = steps[order.index(dict(made.tuning._space.values(spec)))][spec.seed - 1000]
            end = {"status": "passed", "reason": "target", "steps": after, "passage_step": after} if after else {}
            rows.add(finish(spec, len(rows), **end))
    return answer_of(made, rows)


def test_steps_of_which_no_run_reached_the_target_answer_nothing() -> None:
    answer = timed([(None, None, None), (None, None, None)])
    assert answer.confirmed["unreached"].tolist() == [3, 3]
    doubt = answer.doubt()
    assert doubt is not None
    assert doubt.startswith("no fresh seed of the winner reached the target, so how many steps that takes is not known: ")
    first, second = (str(setting) for setting in answer.confirmed["setting"])
    told = answer.lines()
    assert told[1].startswith("  steps at least 100, on 3 fresh seeds, which also chose it")
    assert told[-2:] == [f"{s}: 3 of 3 fresh seeds never reached the target: all their steps count" for s in (first, second)]
    assert not any("alike" in line or "cross-validated" in line for line in told)
    found = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert (found["doubt"], found["crossed"]) == (doubt, None)
    assert (found["winner"]["unreached"], found["winner"]["steps_upper"]) == (3, None)
    both = timed([(None, None)], (Objective("mse"), Objective("steps")))
    assert (both.doubt() or "").startswith("no fresh seed of the front reached the target")


def test_steps_of_runs_that_never_reached_the_target_are_no_known_number() -> None:
    answer = timed([(None, None, None), (20, None, 30)])
    assert answer.doubt() is None
    assert answer.confirmed["unreached"].tolist() == [3, 1]
    [found] = answer.confirmed[answer.confirmed["winner"]].to_dict("records")
    middle, lower, upper = interval([20, 100, 30], True)
    assert upper > 100, "which no run takes"
    assert (found["steps"], found["steps_lower"]) == (middle, lower)
    assert math.isnan(found["steps_upper"])
    told = answer.lines()
    assert told[1].startswith("  steps at least 39.1 [4.89, unknown], geometric mean over 3 fresh seeds, which also chose it")
    assert told[1].endswith("; in the search it had at least 100"), "where none reached the target"
    assert told[2].endswith("each in turn): at least 39.1")
    assert told[-1] == f"{found['setting']}: 1 of 3 fresh seeds never reached the target: all their steps count"
    told_in_json = answer.to_json()["winner"]
    assert (told_in_json["unreached"], told_in_json["steps_upper"]) == (1, None)
    one = timed([(None,), (20,)])
    assert one.lines()[1].startswith("  steps 20, on one fresh seed")


def test_no_interval_of_steps_goes_beyond_the_most_that_a_run_may_take() -> None:
    answer = timed([(20, 90, 40)])
    [found] = answer.confirmed.to_dict("records")
    assert interval([20, 90, 40], True)[2] > 100
    assert (found["steps_upper"], found["unreached"]) == (100, 0)
    [_, middle] = answer.lines()
    assert middle == "  steps 41.6 [6.41, 100], geometric mean over 3 fresh seeds; in the search it had at least 100"
    narrow = timed([(40, 44, 42)]).confirmed.to_dict("records")[0]
    assert (narrow["steps"], narrow["steps_lower"], narrow["steps_upper"]) == interval([40, 44, 42], True)
    partly = timed([(20, None, 40)])
    head, line = csv_bytes(partly.confirmed, partly.counts).decode().splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["unreached"], cells["steps_upper"]) == ("1", "")
    assert "unreached" not in answer_of(*confirmed()).confirmed


def test_intervals_and_comparisons() -> None:
    assert interval([1.0, 3.0], False) == pytest.approx((2.0, 2 - 12.706, 2 + 12.706), abs=1e-3)
    assert interval([1.0, 100.0], True)[0] == pytest.approx(10.0)
    assert interval([5.0], True)[0] == 5.0
    for numbers, logs in (([5.0], True), ([0.1, 0.1, 0.1], True), ([0.95] * 3, False), ([0.0, 0.0], False)):
        middle, *bounds = interval(numbers, logs)
        assert middle == pytest.approx(numbers[0])
        assert all(map(math.isnan, bounds)), "numbers that are alike do not tell how far others lie"
    found = compare({1: 1.0, 2: 2.0, 3: 4.0}, {1: 2.0, 2: 4.2, 3: 7.6, 4: 1.0}, logs=True)
    assert (found["pairs"], found["decides"]) == (3, True)
    assert found["ratio"] == pytest.approx((1 / (2.1 * 2.0 * 1.9)) ** (1 / 3))
    assert not compare({1: 1.0, 2: 2.0}, {1: 2.0, 2: 1.0}, logs=False)["decides"]
    alike = [dict(enumerate((0.95, 0.94, 0.951)[:n])) for n in (2, 3)], [dict(enumerate((0.1, 0.1, 0.1)[:n])) for n in (2, 3)]
    assert [compare(one, other, logs=False)["decides"] for one, other in zip(*alike, strict=True)] == [False, True]
    assert not compare({1: 0.95, 2: 0.85}, {1: 0.9, 2: 0.8}, logs=False)["decides"], "the difference is alike but for rounding"


ACCURACIES = {
    ((0.95, 0.95, 0.95), (0.95, 0.95, 0.95)): (
        "accuracy 0.95, all 3 fresh seeds alike, which also chose it and so may flatter it",
        "difference of accuracy 0; no seed told them apart",
    ),
    ((0.95, 0.9, 0.85), (0.5, 0.6, 0.8)): (
        "accuracy 0.9 [0.776, 1], mean over 3 fresh seeds, which also chose it and so may flatter it",
        "difference of accuracy 0.267 [-0.235, 0.769], so they cannot be told apart",
    ),
    ((0.9, 0.999), (0.0, 0.0)): (
        "accuracy 0.95 [0.321, 1], mean over 2 fresh seeds, which also chose it and so may flatter it",
        "difference of accuracy 0.95 [0.321, 1], but 2 seeds decide nothing",
    ),
    ((0.95,), (0.9,)): (
        "accuracy 0.95, on one fresh seed, which also chose it and so may flatter it",
        "difference of accuracy 0.05; one seed tells no more",
    ),
    ((0.95, 0.9, 0.85),): ("accuracy 0.9 [0.776, 1], mean over 3 fresh seeds", ""),
}


@pytest.mark.parametrize(("accuracies", "wanted"), ACCURACIES.items())
def test_the_winner_is_told_with_what_its_seeds_say(accuracies: Sequence[Sequence[float]], wanted: tuple[str, str]) -> None:
    seeds = range(1000, 1000 + len(accuracies[0]))
    made = ConfirmBest(search(trials=4, objectives=(Objective("accuracy", up=True),)), most=len(accuracies), seeds=seeds)
    rows = walk(made.tuning)
    places = {tuple(trial.values.items()): place for place, trial in enumerate(made.chosen(rows))}
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            place = places[tuple(made.tuning._space.values(spec).items())]
            rows.add(finish(spec, len(rows), accuracy=accuracies[place][spec.seed - 1000]))
    answer = answer_of(made, rows)
    first, *others = answer.lines()[1:]
    assert first.startswith(f"  {wanted[0]}; in the search it had ")
    assert "".join(others[-1:]).endswith(wanted[1])
    assert any(line.startswith("  cross-validated (chosen on") for line in others) == (len(accuracies) > 1 < len(seeds))
    if "alike" in wanted[0]:
        told = answer.to_json()
        assert (told["winner"]["accuracy_lower"], told["winner"]["accuracy_upper"]) == (None, None)
        assert (told["comparison"]["lower"], told["comparison"]["decides"]) == (None, False)


def test_an_interval_that_no_float_holds_has_no_end() -> None:
    assert interval([1e-80, 1.0], True) == (pytest.approx(1e-40), 0.0, math.inf)
    found = compare({1: 1e-40, 2: 1.0}, {1: 1.0, 2: 1e-40}, logs=True)
    assert (found["ratio"], found["lower"], found["upper"], found["decides"]) == (pytest.approx(1.0), 0.0, math.inf, False)
    assert compare({1: 1e-200, 2: 1.0}, {1: 1e200, 2: 1.0}, logs=True)["ratio"] == pytest.approx(1e-200)


def test_no_interval_of_a_share_goes_beyond_all_or_none_of_it() -> None:
    made = ConfirmBest(search(trials=4, objectives=(Objective("accuracy", up=True),)), most=1, seeds=(1000, 1001, 1002))
    found_of = {(0.97, 1.0, 1.0): (0.947, 1.0), (0.0, 0.0, 0.4): (0.0, 0.707), (0.5, 2.0, 9.0): (-7.437, 15.104)}
    for accuracies, ends in found_of.items():
        rows = walk(made.tuning)
        for spec, accuracy in zip(made.propose(rows, 3), accuracies, strict=True):
            rows.add(finish(spec, len(rows), accuracy=accuracy))
        [found] = answer_of(made, rows).confirmed.to_dict("records")
        assert (found["accuracy_lower"], found["accuracy_upper"]) == pytest.approx(ends, abs=1e-3)


@pytest.mark.parametrize(("name", "clipped"), [("mse", True), ("shape_error", True), ("loss", False), ("depth", False)])
def test_no_interval_of_an_error_goes_below_0_unless_some_error_is_negative(name: str, clipped: bool) -> None:
    made = ConfirmBest(search(trials=4, objectives=(Objective(name),)), most=1, seeds=(1000, 1001, 1002))
    for numbers, ends in {(0.0, 0.6, 1.2): (-0.89, 2.09), (-0.5, 0.0, 0.5): (-1.242, 1.242)}.items():
        rows = Rows()
        while not made.tuning.finished(rows):
            (spec,) = made.tuning.propose(rows, 1)
            rows.add(finish(spec, len(rows), measures={"shape_error": lucky(spec), "depth": lucky(spec)}))
        for spec, number in zip(made.propose(rows, 3), numbers, strict=True):
            rows.add(finish(spec, len(rows), number, measures={"shape_error": number, "depth": number}))
        [found] = answer_of(made, rows).confirmed.to_dict("records")
        lower = 0.0 if clipped and min(numbers) >= 0 else ends[0]
        assert (found[f"{name}_lower"], found[f"{name}_upper"]) == pytest.approx((lower, ends[1]), abs=1e-2)


def test_numbers_whose_sum_no_float_holds_have_a_mean() -> None:
    assert means([[1e308, 1.2e308, 1.1e308]], True)[0] == pytest.approx([1.1e308])
    middle, lower, upper = interval([1e308, 1e308, 1.2e308], False)
    assert middle == pytest.approx(3.2e307 / 0.3)
    assert not math.isfinite(lower)
    assert not math.isfinite(upper)
    found = compare({1: 1.7e308, 2: 1.7e308}, {1: -1.7e308, 2: -1.7e308}, logs=False)
    assert not found["decides"]
    told = comparison_text({**found, "winner": "a", "second": "b", "objective": "size"})
    assert told.endswith("how sure that is, no float can tell")


@pytest.mark.slow(8)
def test_files_and_figures_are_there_for_whatever_is_known(tmp_path: Path) -> None:
    study = made_by(*CHOOSY, "--search", "lr=1e-3..1:log,width=8|32,decoder=linear|mlp,noise=0|0.1..1:log", "--trials", "8")
    assert study.write(Rows(), tmp_path, force=True) == []
    for rows in (Rows([finish(study.search.propose(Rows(), 1)[0], 0, math.nan, status="diverged")]), walk(study.search)):
        written = study.write(rows, tmp_path, force=True)
        assert {"tune.csv", "tune-confirmed.csv", "tune.json", "tune.png", "tune.svg"} <= {path.name for path in written}
        assert study.table(rows, {}) is not None
        study.plan(rows)
        for row in rows:
            assert study.line(row)
    assert (tmp_path / "tune-settings.png").stat().st_size > 1000
    lines = (tmp_path / "tune.csv").read_text().splitlines()
    assert lines[0] == "number,lr,width,decoder,noise,mse,seeds,state,steps,key"
    assert len(lines) == 9
    assert study.answered(rows)
    assert study.doubt(rows) is None
    none = Rows([finish(spec, i, math.nan, status="diverged") for i, spec in enumerate(study.search.propose(Rows(), 8))])
    assert study.search.finished(none)
    assert study.answered(none)
    assert study.doubt(none) == "no trial is complete (8 diverged), so nothing could be chosen: search other values"


@pytest.mark.slow(2)
def test_words_that_look_like_ranges_or_formulas_are_drawn_as_they_are() -> None:
    words = ("--program", "echo {lr} {kind} {seed} {data_count}", "--counts", "1..9", "--vary", "kind=../a.csv")
    searched = "lr=0.1..1:log,kind=../a.csv|1..2|$x^$|c_$1$"
    study = made_by(*words, "--objective", "accuracy", "--search", searched, "--trials", "6")
    answer = study._known.of(walk(study.search))
    figure = draw_settings(answer)
    assert figure is not None
    assert image(figure)
    of_lr, of_kind = figure.axes[:2]
    assert (of_lr.get_xscale(), of_lr.get_xlim()) == ("log", pytest.approx((0.1 / 10**0.05, 10**0.05)))
    shown = [label.get_text() for label in of_kind.get_xticklabels()]
    assert shown == ["../a.csv", "1..2", r"\$x^\$", r"c_\$1\$"]


def test_every_setting_of_a_decoder_has_a_panel() -> None:
    assert len(SEARCHES["decoder"]) + len(WEIGHTS) <= MOST_PANELS


def test_the_question_tells_the_runs_of_the_search_from_others() -> None:
    study = made_by(*CHOOSY, "--search", "lr=1e-3..1:log,decoder=linear|mlp", "--trials", "6")
    rows = list(walk(study.search))
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    others = [finish(dataclasses.replace(RunSpec.from_dict(rows[0]), **change), 9) for change in OTHERS]
    assert tuned([question], [*rows, *others]) == {row["key"] for row in rows}
    damaged = dataclasses.replace(question, search={})
    assert tuned([damaged], rows) == frozenset()


@dataclasses.dataclass(frozen=True)
class GroupedSettings:
    patch: int = setting(1, "Samples are taken in whole groups of so many.", low=1, high=256)


class Grouped(Choosy):
    """At both ends of the patches from 1 to N there are N samples, and between them mostly fewer."""

    settings = GroupedSettings

    def matters(self, settings: Mapping[str, Scalar]) -> list[str]:
        return list(settings)

    def counts(self, spec: RunSpec) -> Counts:
        patch = int(spec.option("patch"))
        return Counts(low=1, high=spec.N // patch * patch)

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)


GROUPED = ("--task", f"{__name__}:Grouped", "--max-steps", "20")


@pytest.mark.parametrize(
    ("N", "more"),
    [("16", ()), ("16", ("--sampler", "grid", "--trials", "16")), ("100", ("--trials", "12"))],
    ids=["any", "grid", "long"],
)
def test_a_launch_that_continues_finds_runs_that_differ_only_inside_the_space(
    N: str, more: Sequence[str], tmp_path: Path
) -> None:
    study = made_by(*GROUPED, "--N", N, "--search", f"patch=1..{N},lr=0.1..1", "--trials", "8", *more)
    assert study.varied == ["patch", "lr", "data_count"]
    assert "data_count" not in study.settings
    rows = walk(study.search)
    assert len({row["data_count"] for row in rows}) > 2
    with ResultStore(tmp_path) as store:
        store.append(list(rows))
        found = Rows(store.rows(where=study.wanted))
        assert keys(found) == keys(rows)
        assert study.search.finished(found)
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    assert bool(question.facts) == (N == "16"), "of a long range no line tells what follows"
    assert tuned([question], rows) == set(keys(rows))
    for task in (study.task, *[None] * (N == "16")):
        again = tune_search(question, task, list(rows))
        assert again.finished(rows)
        assert again.following(rows) == study.search.following(rows)
        assert [t.row["key"] for t in again.tuning.finished_trials(rows)] == [
            t.row["key"] for t in study.search.tuning.finished_trials(rows)
        ]


NOT_TOGETHER = (*CHOOSY, "--search", "noise=0|2,kind=round|square", "--objective", "accuracy", "--pruner", "none")


def test_what_the_task_cannot_combine_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = made_by(*NOT_TOGETHER)
    rows = walk(study.search)
    tried = [(trial.values["noise"], trial.values["kind"]) for trial in study.search.tuning.finished_trials(rows)]
    assert (sorted(tried), study.search.tuning.trials) == ([(0.0, "round"), (0.0, "square"), (2.0, "round")], 3)
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    for task in (study.task, None):
        again = tune_search(question, task, list(rows))
        assert (again.tuning.trials, again.finished(rows)) == (3, True)
        assert again.following(rows) == study.search.following(rows)
    assert run(tune.app, [*NOT_TOGETHER, "--dry-run", "--store", str(tmp_path / "new")]) == 0
    assert " ".join(capsys.readouterr().out.split()).count(
        "1 of 4 combinations of values that were tried is passed over, as the task cannot do it: "
        "noise=2, kind=square (a square has no noise above 1)"
    ) == 1  # fmt: skip


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_range_that_the_task_cannot_combine_with_a_word_is_searched_with_the_others(sampler: str) -> None:
    words = (*CHOOSY, "--search", "kind=square|round,noise=0..4,lr=0.1..1", "--trials", "12", "--sampler", sampler)
    study = made_by(*words)
    assert study.search.tuning.template.option("kind") == "square"
    rows = walk(study.search.tuning)
    found = [(row["options"]["kind"], row["options"]["noise"]) for row in rows]
    assert all(kind == "round" or noise <= 1 for kind, noise in found)
    assert {kind for kind, _ in found} == {"square", "round"}
    assert max(noise for _, noise in found) > 1
    assert len(found) == (12 if sampler != "grid" else study.search.tuning.trials)


@dataclasses.dataclass(frozen=True)
class HeadedSettings:
    heads: int = setting(4, low=1, high=4096)
    kind: str = setting("a", words=("a", "b", "c"))
    norm: str = setting("x", words=("x", "y", "z"))

    def __post_init__(self) -> None:
        if self.kind == "b" and self.norm == "y" and self.heads % 4:
            raise ValueError("b with y takes heads in fours")
        if self.kind == "c" and self.norm == "z":
            raise ValueError("there is no c with z")


class Headed(Choosy):
    """It takes few numbers of heads with two of its words."""

    settings = HeadedSettings

    def matters(self, settings: Mapping[str, Scalar]) -> list[str]:
        return list(settings)

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2)

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)


class Halved(Headed):
    """There are half as many samples with these words."""

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2 // (1 + ((spec.option("kind"), spec.option("norm")) == ("b", "y"))))


def headed(task: type, heads: str, sampler: str) -> tuple[tune.TuneStudy, Rows]:
    words = ["--task", f"{__name__}:{task.__name__}", "--N", "6", "--max-steps", "20", "--trials", "60", "--sampler", sampler]
    words += ["--search", f"heads={heads},kind=a|b|c,norm=x|y|z,lr=0.001..0.1:log", "--confirm", "1", "--seeds", "1"]
    study = made_by(*words, "--objective", "loss", "--pruner", "none", "--search-seed", "2")
    return study, walk(study.search)


@pytest.mark.parametrize(
    ("task", "heads", "sampler", "has_few"),
    [
        (Headed, "2..90", "random", True),
        (Halved, "2..90", "random", True),
        (Halved, "2..90", "grid", False),
        (Headed, "3..129", "random", True),  # all that the launch asks for with these words is odd or no multiple
    ],
)
def test_the_report_counts_the_trials_of_a_long_range_of_which_some_words_take_few(
    task: type, heads: str, sampler: str, has_few: bool
) -> None:
    study, rows = headed(task, heads, sampler)
    trials = study.search.tuning.finished_trials(rows)
    assert any((trial.values["kind"], trial.values["norm"]) == ("b", "y") for trial in trials) == has_few
    assert not any((trial.values["kind"], trial.values["norm"]) == ("c", "z") for trial in trials)
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    again = tune_search(question, None, list(rows))
    assert [trial.row["key"] for trial in again.tuning.finished_trials(rows)] == [trial.row["key"] for trial in trials]
    assert (again.tuning.trials, again.finished(rows)) == (study.search.tuning.trials, True)
    assert again.following(rows) == study.search.following(rows)


def test_the_report_needs_the_task_for_a_grid_that_was_refused_in_part() -> None:
    study, rows = headed(Headed, "2..3000", "grid")
    with pytest.raises(TaskNeededError, match="it does not tell all that the task cannot combine"):
        tune_search(study.question, None, list(rows))
    assert tune_search(study.question, study.task, list(rows)).finished(rows)


@dataclasses.dataclass(frozen=True)
class RoundedSettings(ChoosySettings):
    heads: int = setting(8, low=1)
    angle: float = setting(0.0)
    odd: int = setting(1)

    def __post_init__(self) -> None:
        width = -(-self.width // self.heads) * self.heads if self.decoder == "mlp" else 1
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "angle", math.radians(self.angle))
        object.__setattr__(self, "odd", 107 if self.odd == 7 else self.odd)


class Rounded(Headed):
    """It changes widths that are no multiple of its heads, and that of a linear network; every angle; and one odd number."""

    settings = RoundedSettings


ROUNDED = ("--task", f"{__name__}:Rounded", "--N", "4", "--max-steps", "20", "--objective", "loss", "--pruner", "none")
WIDE_STEPS = "--search width=32..128:24 has values that no run can have: the task makes width 64 of 56: ask for 64"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["width=30|60|120"], "--search allows width=30, which cannot be trained: the task makes width 32 of 30: ask for 32"),
        (["width=30|60,lr=0.1..1"], "--search allows width=30, lr=0.1, which cannot be trained: the task makes width 32 of 30"),
        (["width=60|120,lr=0.1..1"], "search other values: the task makes width 64 of 60: ask for 64"),
        (["width=32..100"], "--search allows width=100, which cannot be trained: the task makes width 104 of 100: ask for 104"),
        (["width=32..128:24", "--heads", "16"], WIDE_STEPS),
        (["angle=30|60"], "cannot be trained: the task's settings make angle 0.0091385"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_value_that_the_task_changes_is_refused(
    words: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(tune.app, [*ROUNDED, "--decoder", "mlp", "--search", *words], hint, tmp_path, capsys)


def test_no_trial_is_trained_whose_value_the_task_changes() -> None:
    words = ("--sampler", "random", "--trials", "70", "--confirm", "1", "--seeds", "1")
    study = made_by(*ROUNDED, "--search", "odd=1..32", *words)
    whole = walk(study.search)
    assert tune_search(study.question, study.task, list(whole)).finished(whole), "so it is on the page"
    tuning = study.search.tuning
    rows = walk(tuning)
    assert sorted(row["options"]["odd"] for row in rows) == [odd for odd in range(1, 33) if odd != 7]
    assert (len(tuning.finished_trials(rows)), tuning.trials) == (31, 31)
    tuning = made_by(*ROUNDED, "--decoder", "mlp", "--search", "width=32..64", *words).search.tuning
    rows = walk(tuning)
    assert sorted(row["width"] for row in rows) == [32, 40, 48, 56, 64], "each counts with the width that it has"
    assert len(tuning.finished_trials(rows)) == 5
    tuning = made_by(*ROUNDED, "--search", "decoder=linear|mlp,width=1|8,heads=1|2", *words).search.tuning
    rows = walk(tuning)
    assert sorted({(row["decoder"], row["width"]) for row in rows}) == [("linear", 1), ("mlp", 1), ("mlp", 8)]
    assert len(tuning.finished_trials(rows)) == len(rows) == tuning.trials


class Strict(Choosy):
    """Its model refuses what its `counts` does not."""

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2)

    def model(self, spec: RunSpec) -> nn.Module:
        Choosy.counts(self, spec)
        return super().model(spec)


def test_what_the_model_alone_refuses_is_told_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = changed(NOT_TOGETHER, "--task", f"{__name__}:Strict")
    hint = (
        "(with noise=2, kind=square, which --search allows: if the settings or counts() of the task raise a ValueError for "
        "them, the search passes over them)"
    )
    check_refusal(tune.app, words, hint, tmp_path, capsys)


AGAIN = {
    "a setting that does not always matter": (*CHOOSY, "--search", "width=8|16|32,decoder=linear|mlp"),
    "a grid of it": (*CHOOSY, "--search", "width=8|16|32,decoder=linear|mlp", "--sampler", "grid"),
    "a grid of a range, too": (*CHOOSY, "--search", "lr=0.1..1,width=8|16,decoder=linear|mlp", "--sampler", "grid"),
    "a size that the data go with": (*CHOOSY[:2], "--search", "N=3..6,kind=round|square", "--max-steps", "20"),
    "data that differ only inside": (*GROUPED, "--N", "16", "--search", "patch=1..16"),
    "settings that others decide": ("--N", "8", "--search", "width=16|64,decoder=cnn|mlp", "--seeds-per-trial", "2"),
}


@pytest.mark.parametrize("native", [False, True], ids=["AVX2", "bfloat16"])
@pytest.mark.parametrize("words", AGAIN.values(), ids=AGAIN)
def test_the_report_makes_the_search_again_from_its_question_and_task(
    words: Sequence[str], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest = lambda decoder, _: "bfloat16" if native and decoder == "cnn" else "float32"  # noqa: E731
    monkeypatch.setattr("trainables.training.precision.fastest_precision", fastest)
    study = made_by(*words, "--trials", "9", "--confirm", "2", "--seeds", "2")
    rows = walk(study.search)
    question = type(study.question).of(study.question.to_bytes(), study.question.name)
    for part in (list(rows)[:3], list(rows)):
        again = tune_search(question, study.task, part)
        assert again.tuning.trials == study.search.tuning.trials
        found, right = (one.tuning.finished_trials(Rows(part)) for one in (again, study.search))
        assert [trial.row["key"] for trial in found] == [trial.row["key"] for trial in right]
        assert [dict(trial.values) for trial in found] == [dict(trial.values) for trial in right]
        assert again.propose(Rows(part), 3) == study.search.propose(Rows(part), 3)
    assert again.finished(rows)
    assert again.following(rows) == study.search.following(rows)


OTHERS: Sequence[Mapping[str, Scalar]] = ({"seed": 5}, {"N": 5}, {"weight_decay": 0.5}, {"stop": "early"})


def test_a_number_does_not_judge_the_setting_that_it_chose() -> None:
    lucky_at_1, steady = {1: 1.0, 2: 6.0, 3: 6.0}, {1: 3.0, 2: 3.0, 3: 3.0}
    assert crossed_mean([lucky_at_1, steady], up=False, logs=False) == 3.0
    assert crossed_mean([{1: 1.0, 2: 2.0, 3: 9.0}, {1: 4.0, 2: 4.0, 3: 4.0}], up=False, logs=False) == pytest.approx(17 / 3)
    assert crossed_mean([{1: 1.0, 2: 4.0}, {1: 2.0, 2: 1.0}], up=True, logs=False) == 1.0
    assert math.isnan(crossed_mean([{1: 1.0}, {1: 2.0}], up=False, logs=True))


@pytest.mark.slow(6)
@pytest.mark.parametrize("is_asked", [True, False])
def test_the_report_takes_no_trial_for_a_probe_of_a_threshold(is_asked: bool, tmp_path: Path) -> None:
    words = ("--search", "lr=1e-3..1e-1:log", "--objective", "steps", "--decoder", "mlp", "--N", "8", "--trials", "4")
    study = made_by(*words, "--precision", "float32", "--max-steps", "40")
    with ResultStore(tmp_path) as store:
        store.append(list(walk(study.search)))
        if is_asked:
            save_question(store, study.question)
    results = Results.of(tmp_path)
    assert results.notices == []
    assert len(results.tuned) == (4 + 3 * 5 if is_asked else 0)
    assert (scaling_answer(results) is None) == is_asked, "without the question the rows look like those of a scaling study"


def test_what_is_confirmed_of_a_front_is_spread_evenly() -> None:
    aims = Objective("mse"), Objective("id_mse")
    made = ConfirmBest(search(objectives=aims, sampler="random", trials=30), most=3, seeds=(1000, 1001))
    rows = walk(made)
    front = sorted(made.tuning.front(rows), key=lambda trial: trial.scores[0])
    places = [front.index(trial) for trial in made.chosen(rows)]
    assert len(front) > 6
    assert (places[0], places[2]) == (0, len(front) - 1)
    assert abs(places[1] - places[2] / 2) <= 0.5


def test_of_trials_of_a_front_that_score_alike_the_first_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of small networks, say, of which there are few."""
    made = ConfirmBest(search(objectives=(Objective("mse"), Objective("id_mse"))), most=3, seeds=(1000, 1001))
    scores = [(9.0, 0.6), (1.0, 0.8), (1.0, 0.8), (36.0, 0.55), (1.0, 0.8), (49.0, 0.52), (9.0, 0.6)]
    front = [SimpleNamespace(number=number, scores=list(found)) for number, found in enumerate(scores)]
    monkeypatch.setattr(OptunaSearch, "front", lambda *_: front)
    assert [trial.number for trial in made._leading(Rows())] == [1, 3, 5]
    monkeypatch.setattr(OptunaSearch, "front", lambda *_: front[:3])
    assert [trial.number for trial in made._leading(Rows())] == [1, 0]


def test_the_mean_of_equal_numbers_is_that_number() -> None:
    assert {mean([float(number)] * 3, logs) for number in range(1, 200) for logs in (True, False)} == set(range(1, 200))


def test_one_fresh_number_of_0_makes_all_means_over_fresh_seeds_arithmetic() -> None:
    made = ConfirmBest(search(trials=12), most=2, seeds=range(1000, 1003))
    rows = walk(made.tuning)
    while not made.finished(rows):
        (run,) = made.propose(rows, 1)
        rows.add(finish(run, len(rows), 0.0 if run.seed == 1000 else 1.0))
    answer = answer_of(made, rows)
    assert answer.geometric == [False]
    assert list(answer.confirmed["mse"]) == pytest.approx([2 / 3, 2 / 3])


# Runs that need others


class Needing:
    """What runs need if each needs one that passes unless it `misses`; a `Needs`."""

    def __init__(self, misses: Callable[[RunSpec], bool]) -> None:
        self.misses = misses

    def key(self, spec: RunSpec) -> str:
        return run_key(spec, "1")

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        if spec.task != TEMPLATE.task:
            return {}
        return {"before": dataclasses.replace(spec, task="tests.toy:Before", stop="target", target=0.5)}

    def finish(self, spec: RunSpec, second: int) -> Row:
        if spec.task == TEMPLATE.task:
            return finish(spec, second)
        return finish(spec, second, 0.1, status="missed" if self.misses(spec) else "passed")


def walk_needing(made: ConfirmBest, misses: Callable[[RunSpec], bool], workers: int = 1, store: Iterable[Row] = ()) -> Rows:
    """A search of runs that need others, from the beginning or from what a store has."""
    needs, stored = Needing(misses), Rows(store)
    rows = Rows(row for row in stored if row["task"] == TEMPLATE.task)
    staged = Staged(made, needs, lambda spec: stored.get(needs.key(spec)), lambda key: True)
    while not staged.finished(rows):
        specs = staged.propose(rows, workers)
        assert specs or staged.finished(rows), "a search that has not finished asks for a run"
        for spec in specs:
            assert not {needs.key(spec)} & {row["key"] for row in (*rows, *stored)}, "nothing is trained twice"
            rows.add(needs.finish(spec, len(rows)))
    assert made.finished(rows)
    return rows


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize(
    ("changes", "trials"),
    [
        ({}, 20),
        ({"sampler": "random"}, 20),
        ({"sampler": "grid"}, 9),
        ({"sampler": "nsga2", "objectives": (Objective("id_mse"), Objective("mse"))}, 20),
        ({"dimensions": [Dimension("width", (8, 32, 64)), Dimension("batch_size", (), (1, 9), step=1)]}, 18),
        ({"dimensions": [WIDTH], "known": [{"width": 64}, {"width": 8}]}, 2),
        ({"seeds": 3}, 20),
    ],
    ids=["tpe", "random", "grid", "nsga2", "few points", "known", "seeds"],
)
@pytest.mark.slow(9)
def test_trials_whose_parents_miss_are_passed_over(changes: dict[str, Any], trials: int, workers: int) -> None:
    made = ConfirmBest(search(**changes), most=2, seeds=range(1000, 1002))
    rows = walk_needing(made, lambda spec: spec.width == 64, workers)
    found = made.tuning.finished_trials(rows)
    grid = made.tuning.trials - made.tuning.trials // 3  # without the third whose width is 64
    assert len(found) == (grid if changes.get("sampler") == "grid" else trials)
    assert {trial.values["width"] for trial in found} == {8, 32}
    winner = made.winner(rows)
    assert winner is not None
    assert len(made.rows_of(rows, winner)) == 2
    assert "some settings were passed over in the search, as runs that are needed first failed or missed their targets" in (
        answer_of(made, rows).lines()
    )


def test_a_search_of_which_all_parents_miss_ends_and_says_so() -> None:
    made = ConfirmBest(search(trials=5), seeds=range(1000, 1002))
    rows = walk_needing(made, lambda spec: True)
    assert len(rows) == MOST_IN_VAIN * 5, "runs that are needed, of which the search does not try ever more"
    assert made.tuning.finished_trials(rows) == []
    again = walk_needing(ConfirmBest(search(trials=5), seeds=range(1000, 1002)), lambda spec: True, store=rows)
    assert len({*keys(again), *keys(rows)}) < 2 * MOST_IN_VAIN * 5, "those in the store count"
    why = "no trial was made, as runs that are needed first failed or missed their targets"
    assert answer_of(made, rows).doubt() == f"{why}: search other values, or add --no-gates"


def test_where_no_parent_misses_nothing_is_said_and_the_trials_are_those_of_a_search_without() -> None:
    made = ConfirmBest(search(), most=2, seeds=range(1000, 1002))
    rows = walk_needing(made, lambda spec: False)
    alone = walk(ConfirmBest(search(), most=2, seeds=range(1000, 1002)))
    assert sorted(row["key"] for row in rows if row["task"] == TEMPLATE.task) == keys(alone)
    assert not any("passed over" in line for line in answer_of(made, rows).lines())


def test_a_seed_whose_parents_miss_is_passed_over_for_the_next() -> None:
    made = ConfirmBest(search(seeds=3), most=2, seeds=range(1000, 1002))
    rows = walk_needing(made, lambda spec: spec.seed == 1)
    seeds = [[row["seed"] for row in trial.rows] for trial in made.tuning.finished_trials(rows)]
    assert (len(seeds), sorted(map(tuple, seeds))[-1]) == (20, (0, 2))
    assert not any(1 in of_trial for of_trial in seeds)
    assert made.winner(rows) is not None


def test_a_setting_that_lacks_a_fresh_seed_cannot_win() -> None:
    made = ConfirmBest(search(), most=2, seeds=range(1000, 1003))
    first, second = made.chosen(walk(made.tuning))

    def misses(spec: RunSpec) -> bool:
        return spec.seed == 1001 and spec.lr == first.values["lr"]

    rows = walk_needing(made, misses)
    assert [len(made.rows_of(rows, trial)) for trial in (first, second)] == [2, 3]
    winner = made.winner(rows)
    assert winner is not None
    assert winner.number == second.number
    assert made.planned(rows) == {f"trial {first.number}": (2, 0), f"trial {second.number}": (3, 0)}
    answer = answer_of(made, rows)
    assert answer.confirmed[["seeds", "failed", "winner"]].values.tolist() == [[2, 1, False], [3, 0, True]]
    assert answer.comparison is None
    why = "1 of its fresh seeds could not be trained, as runs that are needed first failed or missed their targets"
    assert answer.lines()[-1] == f"trial {first.number}: {why}, so it cannot win"
    assert answer.doubt() is None

    none = walk_needing(made, lambda spec: spec.seed == 1001)
    assert made.winner(none) is None
    assert "could not be trained on a fresh seed" in str(answer_of(made, none).doubt())


class Gated(Choosy):
    """A task whose runs need a run each; this is never trained."""

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        before = {"data_count": 4, "stop": "target", "target": 0.5}
        return {"before": dataclasses.replace(spec, task="tests.toy:Choosy", **before)}

    def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:
        return super().model(spec)


@pytest.mark.parametrize(("least", "code"), [(0.5, 0), (2.0, 1)])
@pytest.mark.slow(3)
def test_a_study_with_parents_that_miss_has_an_answer_if_a_setting_is_confirmed(
    least: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        rows, version = execution.rows, Gated.version
        while not execution.search.finished(rows):
            specs = execution.search.propose(rows, 3)
            assert not any(rows.get(run_key(spec, version)) for spec in specs)
            for spec in specs:
                status = "missed" if spec.option("noise") < least else "passed"
                rows.add(finish(spec, len(rows), 1.0, status=status, task_version=version, accuracy=float(status == "passed")))
        return Outcome()

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    monkeypatch.setattr(Stages, "_has_weights", lambda *_: True)
    words = ["--task", f"{__name__}:Gated", "--N", "4", "--search", "noise=0..1", "--trials", "12", "--confirm", "2"]
    assert run(tune.app, [*words, "--seeds", "2", "--store", str(tmp_path)]) == code
    printed = capsys.readouterr()
    told = " ".join((printed.out + printed.err).split())
    assert "some settings were passed over in the search, as runs that are needed first failed or missed" in told
    assert ("search: 12 of 12 trials" in told) == (code == 0)
    assert ("not answered: no trial was made, as runs that are needed first" in told) == (code == 1)
