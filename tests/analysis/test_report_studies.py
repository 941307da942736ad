"""The page's studies: each has the answer that its launch printed, whether its task is loaded or not."""

import dataclasses
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from safetensors import torch as safetensors

from analysis.report import __main__ as main
from analysis.report.build import Builder
from analysis.report.cells import heads_of
from analysis.report.compare import side_by_side
from analysis.report.drawn import MOST
from analysis.report.kinds import _means_in_words, _table
from analysis.report.page import Report
from analysis.report.studies import _beside, studies_of
from analysis.report.told import ANSWERED, DOUBTFUL, FAILED, FORMER, GOING, Around, Told
from analysis.results import Results
from analysis.scaling import Answer
from orchestrator import __main__ as everything
from orchestrator import mechanism, regularization, scaling, tune
from orchestrator.command.cli import run
from orchestrator.searches import Rows
from orchestrator.searches.axes import USUAL
from orchestrator.searches.bracket import Bracket
from orchestrator.store import ResultStore, load_questions, make_row, save_question
from orchestrator.study import Study, brackets_again, facts_of
from tests.analysis.test_asked import launched, train
from trainables.bumps import BumpTask
from trainables.spec import Counts, RunSpec
from trainables.task import DRAWN

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
Ask = Callable[[str], Study]
TOY = "--task tests.toy:Toy"
QUESTIONS = {
    "thresholds": f"scaling {TOY} --N 8,16,24 --resolution 0.05",
    "until a width": f"scaling {TOY} --N 8,16,24,32 --resolution 0.1 --seeds 3 --until-width 0.15",
    "least width": "scaling --decoder mlp --least width --between 4..64 --data-count 40 --N 8,12 --seeds 2 --datasets bumps",
    "one seed a trial": f"tune {TOY} --search lr=1e-4..1e-1:log,batch_size=16|32 --N 8 --trials 9 --confirm 2 --seeds 3",
    "three seeds a trial": f"tune {TOY} --search weight_decay=0|1e-4..1:log --trials 8 --seeds-per-trial 3 --N 8",
    "a program": "tune --program 'echo {data_count} {seed} {kind} {noise}' --counts 1..9 --vary kind=a --vary noise=0.5 "
    "--objective accuracy --search kind=a|b,noise=0.1|0.5 --sampler grid --trials 4 --confirm 2 --seeds 2",
    "a script": "tune --program 'python3 -u /elsewhere/tr.py {l} {data_count} {seed}' --counts 1..9 --vary l=0.1 "
    "--objective accuracy --search l=0.1|0.5 --sampler grid --trials 2 --confirm 1 --seeds 2",
    "derived settings": "tune --search width=16|64,decoder=cnn|mlp --N 8 --trials 4 --confirm 2 --seeds 2",
    "never so narrow": f"scaling {TOY} --N 8,16,24 --resolution 0.3 --seeds 3 --until-width 0.001",
    "two objectives": "tune --decoder mlp --search width=16|64,depth=1|2 --objective mse,id_mse --N 8 --trials 8 --confirm 2 "
    "--seeds 2",
    "along encodings": "scaling --decoder mlp --along encoding=bump,positional --N 12 --seeds 2 --datasets bumps",
    "penalties": "regularization --N 8 --epochs 2 --trials 7 --seeds 2 --confirm 2 --confirm-seeds 2",
    "the whole decoder": "regularization --N 8 --epochs 2 --search decoder --trials 6 --seeds 2 --confirm 1 --confirm-seeds 2",
    "a grid": "encodings --N 8 --seeds 2",
}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The study that a command would launch."""
    found: list[Study] = []
    for module in (scaling, regularization, tune, mechanism):
        monkeypatch.setattr(module, "launch", lambda study, *_: found.append(study) or 0)

    def study_of(command: str) -> Study:
        assert run(everything.app, shlex.split(command)) == 0
        return found.pop()

    return study_of


def no_weights(key: str) -> bytes:
    raise OSError(key)


AROUND = Around(dict, no_weights)
NUMBERS = itertools.count()


def told_of(store: Path, tasks: tuple[str, ...] = ()) -> list[Told]:
    told, notices = studies_of(Results.of(store, tasks), AROUND)
    assert notices == []
    return told


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_study_has_the_answer_of_its_launch(name: str, ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS[name]} --store {tmp_path}")
    printed = launched(tmp_path, study)
    [told] = told_of(tmp_path)
    with ResultStore(tmp_path, read_only=True) as store:
        rows = Rows(store.rows())
    assert told.keys == {row["key"] for row in rows}
    doubt = study.doubt(rows)
    assert told.state == (ANSWERED if doubt is None else DOUBTFUL)
    assert (doubt in told.lines) is (doubt is not None)
    sheets = {sheet.name: sheet.table for sheet in told.sheets}
    if study.name == "scaling":
        quantity = "width" if name == "least width" else "images"
        least = [None if math.isnan(value) else value for value in sheets["thresholds"][quantity]]
        assert least == [row[quantity] for row in printed["thresholds"]]
        assert told.exponents.keys() == printed["fits"].keys()
        assert all(f"{dataset}: {told.exponents[dataset]}" in told.lines for dataset in printed["fits"])
        [means] = [line for line in told.lines if "geometric means" in line]
        if name in ("thresholds", "least width"):
            assert (", 51 at N = 16, " if quantity == "images" else ": at most 4 at N = 8, ") in means
        assert ("without" in sheets) == (name == "until a width")
    elif name == "two objectives":
        assert sorted(sheets["trials"]["key"]) == sorted(trial["key"] for trial in printed["trials"])
        assert told.lines[0].startswith("on the front: ")
    elif study.name == "tune":
        assert sorted(sheets["trials"]["key"]) == sorted(trial["key"] for trial in printed["trials"])
        [winner] = sheets["confirmed"][sheets["confirmed"]["winner"]].to_dict("records")
        assert winner["setting"] == printed["winner"]["setting"]
        assert told.lines[0].startswith(f"winner: {winner['setting']}")
    elif study.name == "regularization":
        assert list(sheets["summary"]["setting"]) == [row["setting"] for row in printed["summary"]]
        assert list(sheets["summary"]["ood_mse_gmean"]) == [row["ood_mse_gmean"] for row in printed["summary"]]
    else:
        means = sheets["means"].to_dict("records")
        assert sum(line["seeds"] for line in means) == len(printed["runs"])
        for line in means:
            of = {name: line[name] for name in study.columns}
            errors = [run["ood_mse"] for run in printed["runs"] if all(run[name] == value for name, value in of.items())]
            assert line["ood_mse"] == pytest.approx(sum(errors) / line["seeds"], rel=1e-12)


def test_the_answer_is_the_same_whether_the_task_is_loaded_or_not(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    [unknown], [known] = told_of(tmp_path), told_of(tmp_path, ("tests.toy:Toy",))
    assert unknown.lines == known.lines
    assert unknown.sheets[0].table.equals(known.sheets[0].table)
    assert unknown.sheets[0].table.query("N == 16 and seed == 1")["images"].item() == 51


def test_each_threshold_leads_to_the_runs_on_both_sides_of_it(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    runs = {run["key"]: run for run in Results.of(tmp_path).runs}
    for line in told_of(tmp_path)[0].sheets[0].table.to_dict("records"):
        assert (runs[line["passes"]]["status"], runs[line["passes"]]["data_count"]) == ("passed", line["images_upper"])
        assert (runs[line["misses"]]["status"], runs[line["misses"]]["data_count"]) == ("missed", line["images_lower"])


@pytest.mark.parametrize("name", ["thresholds", "one seed a trial", "penalties", "a grid"])
def test_a_study_that_was_interrupted_is_not_finished(name: str, ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS[name]} --store {tmp_path}"), most=3)
    [told] = told_of(tmp_path)
    assert (told.state, len(told.keys)) == (GOING, 3)
    assert all(line.startswith("so far, ") for line in told.lines)


def test_means_before_all_seeds_are_in_say_of_how_many_they_are(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    [means] = [line for line in told.lines if "geometric means" in line]
    assert "seeds)," not in means
    kept = [one for one in told.thresholds if (one.along, one.seed) != (16, 1)]
    lost = [dataclasses.replace(one, verdict="open") for one in told.thresholds if (one.along, one.seed) == (16, 1)]
    results = [*kept, *lost]
    [means] = _means_in_words(Answer.of_results(results, {}), results)
    assert re.search(r": \S+ at N = 8, \S+ at N = 16 \(2 of 3 seeds\), \S+ at N = 24 \(geometric means over seeds\)$", means)
    lowest = [dataclasses.replace(one, verdict="minimum", threshold=50) if one.along == 8 else one for one in told.thresholds]
    [means] = _means_in_words(Answer.of_results(lowest, {}), lowest)
    assert re.search(r": at most \S+ at N = 8, \S+ at N = 16, ", means)


def test_a_question_of_which_no_run_has_ended_is_told_too(ask: Ask, tmp_path: Path) -> None:
    for command in QUESTIONS.values():
        launched(tmp_path, ask(f"{command} --store {tmp_path}"), most=0)
    told = told_of(tmp_path)
    assert len(told) == len(QUESTIONS)
    assert {one.state for one in told} == {GOING}
    assert Report.of((), Results.of(tmp_path), told).errors == []


def test_a_failed_run_makes_a_failed_study_and_stands_with_its_message(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['a grid']} --store {tmp_path}")
    [first] = study.search.propose(Rows(), 1)
    error = "Traceback\n  File <x>\nArithmeticError: the toy is broken"
    with ResultStore(tmp_path) as store:
        save_question(store, study.question)
        version, failed = study.task.version, "failed"
        store.append([make_row(first, task_version=version, fixed_count=0, status=failed, reason="error", error=error)])
    [told] = told_of(tmp_path)
    assert told.state == FAILED
    report = Report.of((), Results.of(tmp_path), [told])
    assert [(one.status, one.why, one.count) for one in report.ended] == [("failed", "ArithmeticError: the toy is broken", 1)]
    assert "File &lt;x&gt;" in report.html()


def test_a_question_of_a_former_version_says_so(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['least width']} --store {tmp_path}")
    former = dataclasses.replace(study.question, task_version="0")
    with ResultStore(tmp_path) as store:
        save_question(store, former)
    [told] = told_of(tmp_path)
    assert (told.state, told.keys) == (FORMER, frozenset())


WRONG: dict[str, Any] = {
    "none": {},
    "too few": {"counts": [[1, 2, 0]], "curve": "", "audits": 0},
    "no numbers": {"counts": ["1", "2", "3"], "curve": "", "audits": 0},
    "below": {"counts": [5, 2, 0], "curve": "", "audits": 0},
    "a curve": {"counts": [1, 2, 0], "curve": 7, "audits": 0},
    "audits": {"counts": [1, 2, 0], "curve": "", "audits": "many"},
    "a list of few": {"counts": [1, 2, 0], "curve": ["", ""], "audits": 0},
}


@pytest.mark.parametrize("facts", WRONG.values(), ids=WRONG)
def test_facts_that_are_none_cost_a_line(facts: dict[str, Any], ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    launched(tmp_path, study, most=4)
    with ResultStore(tmp_path) as store:
        save_question(store, dataclasses.replace(study.question, facts=facts))
    told, notices = studies_of(Results.of(tmp_path), AROUND)
    assert told == []
    [line] = notices
    assert line.startswith(f"the question {study.question.name} is left out of the studies: ")
    page = Builder(str(tmp_path), tmp_path / "page").build()[0].html()
    assert "1 question could not be read" in page
    assert "does not say what was asked" not in page


def test_facts_differ_where_the_thresholds_do() -> None:
    specs = [RunSpec(task="a:B", dataset="d", N=N, seed=0, data_count=0) for N in (8, 9)]
    found = brackets_again(specs, "1", {"counts": [[1, 5, 0], [2, 6, 3]], "curve": "c", "audits": [0, 4]})
    assert [(b.counts.low, b.counts.high, b.counts.fixed, b.audits) for b in found] == [(1, 5, 0, 0), (2, 6, 3, 4)]
    assert [b.curve for b in found] == ["c", "c"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_facts_of_any_number_of_brackets_are_read_again(number: int) -> None:
    made = [
        Bracket(template=RunSpec(task="mine:Task", dataset="d", N=8 + i, data_count=0, seed=0), task_version="1",
                counts=Counts(1, 50 + i), curve="c", audits=300 * (i == 2))
        for i in range(number)
    ]  # fmt: skip
    facts = json.loads(json.dumps(facts_of(made)))
    assert brackets_again([b.template for b in made], "1", facts) == made
    del facts["checked"]  # as former versions have it
    unchecked = [dataclasses.replace(b, checked=False) for b in made]
    assert brackets_again([b.template for b in made], "1", facts) == unchecked


def test_a_question_for_more_runs_than_can_be_planned_is_left_out(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    launched(tmp_path, study, most=1)
    question, facts = study.question, {**study.question.facts, "counts": [1, 10**12, 0]}
    with ResultStore(tmp_path) as store:
        save_question(store, dataclasses.replace(question, facts=facts, search={**question.search, "resolution": 1e-9}))
    began = time.monotonic()
    told, [notice] = studies_of(Results.of(tmp_path), AROUND)
    assert [one.id for one in told] == [question.name]
    assert "left out of the studies: its ranges have more than 1,000,000 values at a resolution of 1e-09" in notice
    assert time.monotonic() - began < 5


def test_studies_of_a_kind_stand_side_by_side_with_what_differs(ask: Ask, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for store, more in ((here, ""), (here, " --target 0.8"), (there, " --lr 0.5")):
        launched(store, ask(f"{QUESTIONS['thresholds']}{more} --store {store}"))
    told = told_of(here)
    assert sorted(one.beside for one in told) == ["target 0.8", "target 0.9"]
    [compared] = side_by_side(told, {"there": told_of(there)})
    settings, thresholds = (sheet.table for sheet in compared.sheets)
    assert len(compared.columns) == 3
    assert [place for _, place in compared.columns] == [told[0].id, told[1].id, ""]
    assert list(settings["setting"]) == ["target", "lr", "state", "exponent, toys"]
    assert list(thresholds["N"]) == [8, 16, 24]
    ratios = [name for name in thresholds if name.endswith("/ first")]
    assert len(ratios) == 2
    assert (thresholds[ratios] == 1).all(axis=None), "the toy has the same thresholds whatever its rate and target"
    assert side_by_side(told[:1], {}) == []
    unreached = dataclasses.replace(told[0].thresholds[0], threshold=None, verdict="none reached")
    some = dataclasses.replace(told[0], thresholds=[unreached, *told[0].thresholds[1:]])
    [compared] = side_by_side([some], {"there": told_of(there)})
    table = compared.sheets[1].table
    assert list(table[table.columns[2]].isna()) == [True, False, False], "a mean without one seed would be too low"


def test_a_measure_that_is_called_like_another_column_does_not_take_its_place() -> None:
    fields: dict[str, Any] = {"task": "a:B", "dataset": "d", "N": 8, "data_count": 4, "decoder": "a"}
    specs = [RunSpec(**fields, seed=seed, width=width) for width in (8, 16) for seed in range(3)]
    measures = {"width": 0.5, "seeds": 7.0, "status": 9.0, "loss": 2.0, "loss_sd": 3.0}
    ended = {"accuracy": 0.5, "id_mse": None, "ood_mse": None, "status": "missed", "reason": "budget", "steps": 3, "seconds": 1}
    rows = [{**spec.to_dict(), **ended, "options": {}, "measures": measures, "key": f"k{i}"} for i, spec in enumerate(specs)]
    _, (means, runs), _ = _table(rows, SimpleNamespace(specs=specs), None, None, None)  # type: ignore[arg-type]
    assert means.table["width"].tolist() == [8, 16]
    assert means.table["seeds"].tolist() == [3, 3]
    assert means.table["loss_sd"].tolist() == [0, 0]
    assert runs.table["status"].tolist() == ["missed"] * 6
    for name in ("width", "seeds", "status", "loss_sd"):
        assert means.table[f"measure {name}"].tolist() == [measures[name]] * 2
        assert runs.table[f"measure {name}"].tolist() == [measures[name]] * 6


def test_what_stands_in_a_row_and_among_its_measures_is_one_column() -> None:
    fields: dict[str, Any] = {"task": "a:B", "dataset": "d", "N": 8, "data_count": 4, "decoder": "a"}
    specs = [RunSpec(**fields, seed=seed, width=width) for width in (8, 16) for seed in range(2)]
    ended = {"accuracy": 0.5, "id_mse": 0.25, "ood_mse": 1.0, "status": "missed", "reason": "budget", "steps": 3, "seconds": 1}
    measures = {"id_mse": 0.25, "ood_mse": 1.0, "loss": 2.0}  # as the trainings of decoders leave them
    rows = [{**spec.to_dict(), **ended, "options": {}, "measures": measures, "key": f"k{i}"} for i, spec in enumerate(specs)]
    _, (means, runs), _ = _table(rows, SimpleNamespace(specs=specs), None, None, None)  # type: ignore[arg-type]
    assert means.table["id_mse"].tolist() == [0.25, 0.25]
    assert list(runs.table.columns).count("ood_mse") == 1


def test_studies_are_compared_over_the_seeds_that_both_have_and_bounds_are_called_so() -> None:
    def told(**by_seed: tuple[float | None, str]) -> Any:
        results = [
            SimpleNamespace(
                axes=USUAL, dataset="d", along=16, seed=int(seed[1:]), total_images=total, verdict=verdict,
                is_cut=verdict == "minimum",
            )
            for seed, (total, verdict) in by_seed.items()
        ]  # fmt: skip
        question, name = SimpleNamespace(study="scaling"), str(by_seed)
        about = {"settings": {}, "state": "", "progress": "", "exponents": {"d": ""}, "lines": []}
        return SimpleNamespace(question=question, id=name, short=name, thresholds=results, **about)

    def line(*studies: Any) -> dict[str, Any]:
        [compared] = side_by_side(studies, {})
        [found] = compared.sheets[1].table.to_dict("records")
        return {str(name): found[name] for name in found if name not in ("dataset", "N")}

    first = told(s0=(100, "reached"), s1=(200, "reached"), s2=(400, "reached"))
    one = told(s0=(100, "reached"), s1=(None, "open"), s2=(None, "failed"))
    assert [*line(first, one).values()] == pytest.approx([200, 100, 1.0]), "the same with the seed that both have"
    other = told(s3=(50, "reached"))
    assert [*line(first, other).values()] == pytest.approx([200, 50]), "no seed in common"
    least = told(s0=(100, "minimum"), s1=(200, "reached"))
    assert [*line(first, least).values()] == [pytest.approx(200), "at most 141"]
    assert [*line(least, first, one).values()] == ["at most 141", pytest.approx(200), pytest.approx(100)]


def test_means_are_of_the_seeds_that_ended_well() -> None:
    specs = [RunSpec(task="a:B", dataset="d", N=8, data_count=4, seed=s, decoder=d) for d in ("cnn", "mlp") for s in range(3)]
    errors = {("cnn", 0): 1e-5, ("cnn", 1): 1e-1, ("mlp", 0): 0.5, ("mlp", 1): 0.25, ("mlp", 2): 0.75}
    ends = {("cnn", 2): "failed", ("mlp", 2): "diverged"}

    def rows(ends: dict[tuple[str, int], str]) -> list[dict[str, Any]]:
        found = []
        for spec in specs:
            at = spec.decoder, spec.seed
            status, error = ends.get(at, "missed"), errors.get(at, 0.5)
            ended = {"status": status, "reason": "", "ood_mse": None if status == "failed" else error}
            found.append(make_row(spec, task_version="1", fixed_count=0, **ended))
        return found

    def told(ends: dict[tuple[str, int], str]) -> Any:
        return _table(rows(ends), SimpleNamespace(specs=specs), None, Rows(), AROUND)  # type: ignore[arg-type]

    _, [sheet, _], [picture] = told(ends)
    assert sheet.title == "arithmetic means and standard deviations over the seeds that ended well"
    found = sheet.table.set_index("decoder")
    assert found[["seeds", "failed"]].to_numpy().tolist() == [[2, 1], [2, 1]]
    assert found["ood_mse"].tolist() == [(1e-5 + 1e-1) / 2, 0.375]
    axes = picture.draw().axes[0]
    assert axes.get_xscale() == "log"
    assert [float(line.get_xdata()[0]) for line in axes.lines] == found["ood_mse"].tolist(), "as in the table"
    assert picture.alt.endswith("seed by seed, of those that ended well; the bar is the arithmetic mean")
    _, [sheet, _], _ = told({})
    assert sheet.title == "arithmetic means and standard deviations over seeds"
    assert "failed" not in sheet.table
    assert sheet.table["seeds"].tolist() == [3, 3]


COMMANDS = {
    "sweep scaling --N 16,24": True,
    "python -m orchestrator.scaling --N 16": True,
    "/home/me/.venv/bin/python3.11 -m orchestrator tune": True,
    "rm -rf /home/me": False,
    "sweepx --rest": False,
    "python -m http.server": False,
    "python -m orchestrator.scaling;x": False,
    "python -c orchestrator": False,
    "python": False,
    "/bin/sh -m orchestrator.scaling": False,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_only_commands_of_this_program_are_shown(command: str, ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    question = dataclasses.replace(study.question, command=[*command.split(), "\u202eevil"])
    page = Report.of((), Results([], pd.DataFrame()), [Told(question, "t", GOING, "", [], frozenset())]).html()
    assert ("This command continues it" in page) is COMMANDS[command]
    assert ("The question holds a command that is none of this program" in page) is not COMMANDS[command]
    assert (r"\u202eevil" in page) is COMMANDS[command]
    assert (command.split()[-1] in page.partition("<main>")[2].partition("Its settings")[0]) is COMMANDS[command]
    assert "\u202e" not in page
    assert "/home/me" not in page, "any file may be called python"


def test_a_command_that_continues_goes_on_in_the_store_of_the_page(ask: Ask, tmp_path: Path) -> None:
    question = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}").question

    def shown(command: str, store: str, state: str = GOING, failed: int = 0) -> str:
        one = dataclasses.replace(question, command=shlex.split(command))
        told = Told(one, "t", state, "", [], frozenset(), failed=failed)
        html = Report.of((), Results([], pd.DataFrame(), store=store), [told]).html().partition("<main>")[2]
        return " ".join(unescape(re.sub("<[^>]*>", "", html)).partition("Its runs")[0].split())

    command = "sweep scaling --N 8 --store a --out there --retry-failed"
    assert shown(command, "a").endswith("This command continues it: sweep scaling --N 8 --store a --out there")
    assert shown(command, "b c").endswith("This command continues it: sweep scaling --N 8 --store 'b c'")
    assert shown("sweep scaling --store=a --out=x --N 8", "b").endswith("sweep scaling --N 8 --store b")
    assert shown("sweep scaling --N 8 --out x", "results").endswith("sweep scaling --N 8 --out x")
    assert shown("sweep scaling --N 8 --out x", "b").endswith("sweep scaling --N 8 --store b")
    assert shown(command, "b", ANSWERED).endswith(f"Asked with: {command}")
    assert "goes on, with --retry-failed if the cause lay outside the task: sweep scaling" in shown(command, "b", FAILED, 1)
    assert "It runs a" not in shown("sweep scaling --task trainables.bumps:BumpTask", "b")
    assert "It runs a task that this store names" in shown("sweep scaling --task mine:Task", "b")
    assert "It runs a program that this store names" in shown("sweep tune --program='sh {N}'", "b")
    assert "It sends its runs to 198.51.100.7:6379 and writes into /home/me/.config: look at it first" in shown(
        "sweep scaling --address 198.51.100.7:6379 --out=/home/me/.config --store b", "b"
    )
    assert "and writes into a/../../b: look" in shown("sweep scaling --task mine:Task --out a/../../b --store b", "b")
    for harmless in ("--address auto", "--address=local --out plots/a", "--out .."):  # the last is left out of another store
        assert "look at it first" not in shown(f"sweep scaling {harmless}", "b")


TITLES = {
    "along encodings": "What is the least number of training samples with which the mlp reaches accuracy 0.9 on what is held "
    "out, at N = 12 and encoding = bump, positional?",
    "least width": "What is the least width with which the mlp reaches accuracy 0.9 on what is held out, at N = 8, 12?",
    "two objectives": "Which width, depth give the mlp the best mse, id_mse at N = 8?",
    "a program": "Which kind, noise give the program echo the best accuracy?",
    "a script": "Which l gives the program tr.py the best accuracy?",
}


@pytest.mark.parametrize("name", TITLES)
def test_a_question_says_what_size_it_is_about(name: str, ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS[name]} --store {tmp_path}"), most=0)
    assert [one.title for one in told_of(tmp_path)] == [TITLES[name]]


def test_a_search_for_two_objectives_is_told_as_one(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['two objectives']} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    assert told.pictures[0].alt.startswith("the trials by the first two objectives, ")
    heads = {sheet.name: [cell.text for cell in heads_of(sheet)] for sheet in told.sheets}
    assert {"mse", "id_mse", "id_mse search", "id_mse lower"} <= set(heads["confirmed"]), "as the answer names them"
    assert {"mse", "id_mse"} <= set(heads["trials"])


def test_settings_are_told_in_words(ask: Ask, tmp_path: Path) -> None:
    question = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}").question
    space = {"lr": "1e-4..1e-1:log", "width": "32|64|128|256", "depth": "1..3", "weight_decay": "0|1e-4..1:log"}
    given = {"search": space, "objective": ["min:mse", "min:id_mse"], "none": None, "empty": {"d": ""}, "yes": True}
    given |= {"decoder": "", "width": 64, "nested": [{"a": [1]}], "one": "x" * 90, "options": {"noise": 0.5}}

    def told_with(task: str, settings: dict[str, Any]) -> Told:
        [(name, specs)] = question.specs.items()
        of_task = {name: [dataclasses.replace(spec, task=task) for spec in specs]}
        return Told(dataclasses.replace(question, settings=settings, specs=of_task), "t", ANSWERED, "", [], frozenset())

    told = told_with("mine:Task", given)
    assert told.settings == {
        "search": "lr 1e-4..1e-1:log, width 32|64|128|256, depth 1..3, weight_decay 0|1e-4..1:log",
        "objective": "min:mse, min:id_mse", "yes": "True", "width": "64", "nested": '{"a": [1]}', "one": "x" * 90,
        "noise": "0.5",
    }  # fmt: skip
    [beside, _] = _beside([told, told_with("mine:Task", {"yes": True})])
    assert beside == (
        "search lr 1e-4..1e-1:log, width 32|64|128|256, depth 1..3, … · objective min:mse, min:id_mse · width 64 · "
        'nested {"a": [1]}'
    )
    [beside, _] = _beside([told_with("mine:Task", {"one": "x" * 90}), told_with("mine:Task", {})])
    assert beside == f"one {'x' * 59}…"
    beside = _beside([told_with("mine:Task", {"width": 8}), told_with("yours:Task", {"width": 16})])
    assert beside == ["task mine:Task · width 8", "task yours:Task · width 16"]
    no_network = {"decoder": "", "depth": 0, "width": 1, "encoding": ""}
    assert told_with("mine:Task", no_network).settings == {}
    of_program = {**no_network, "lr": 0.1, "batch_size": 3, "schedule": "constant", "target": 0.9, "N": [8, 16]}
    of_program["options"] = {"program": "awk {lr} {N}", "files": '{"a.awk": "4f"}', "counts": "1..9"}
    assert told_with("trainables.program:ProgramTask", of_program).settings == {
        "lr": "0.1", "target": "0.9", "N": "8, 16", "program": "awk {lr} {N}", "files": "a.awk 4f", "counts": "1..9",
    }  # fmt: skip


def test_pictures_are_told_by_the_question_and_the_page_has_one_heading(ask: Ask, tmp_path: Path) -> None:
    for target in ("0.8", "0.9"):
        launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --target {target} --store {tmp_path}"))
    said: list[str] = []
    builder = Builder(str(tmp_path), tmp_path / "page")
    html = builder.build(say=lambda text, done, total: said.append(text))[0].html()
    titles = [one.title for one in told_of(tmp_path)]
    alts = re.findall(r'<img [^>]*alt="([^"]*)"', html)
    assert len(alts) == 4
    assert len(set(alts)) == 2, "that of a study on its card and in its part"
    assert all(sum(alt.startswith(f"{title} Small dots are ") for alt in alts) == 2 for title in titles)
    assert len(re.findall(r"<h1\b", html)) == 1
    assert [line for line in said if line.startswith("drawing")] == [
        f"drawing study {place} of 2: {title}" for place, title in enumerate(titles, 1)
    ]


PRINTING = """<script>addEventListener("load", () => setTimeout(() => {
  const folded = () => document.querySelectorAll("details:not([open])").length, before = folded();
  dispatchEvent(new Event("beforeprint"));
  const cut = [...document.querySelectorAll("table")].filter(table => table.getBoundingClientRect().right > innerWidth).length;
  const during = folded();
  dispatchEvent(new Event("afterprint"));
  document.title = [before > 0, during, folded() === before, cut, document.documentElement.scrollWidth <= innerWidth];
}, 2000));</script></body>"""


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_printed_page_has_all_that_is_folded_and_no_table_is_cut(ask: Ask, tmp_path: Path) -> None:
    for more in ("", " --batch-size 16"):
        launched(tmp_path, ask(f"{QUESTIONS['two objectives']}{more} --store {tmp_path}"))
    out = tmp_path / "page"
    Builder(str(tmp_path), out).build()
    html = (out / "index.html").read_text()
    assert html.count("@media print") == 1
    page = out / "printed.html"  # 700 pixels are what A4 has room for
    page.write_text(html.replace("@media print", "@media all").replace("</body>", PRINTING))
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=700,1200",
        "--virtual-time-budget=6000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.findall("<title>(.*)</title>", dom) == ["true,0,true,0,true"]


def test_many_studies_with_many_settings_are_told_apart_at_once(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    settings = [{f"s{j}": j * (i > 0) for j in range(500)} for i in range(200)]
    told = [Told(dataclasses.replace(study.question, settings=one), "t", ANSWERED, "", [], frozenset()) for one in settings]
    other = dataclasses.replace(study.question, study="other", settings={"s1": 7})
    told.append(Told(other, "t", ANSWERED, "", [], frozenset()))
    began = time.process_time()
    beside = _beside(told)
    assert time.process_time() - began < 5
    assert beside == ["s1 0 · s2 0 · s3 0 · s4 0"] + 199 * ["s1 1 · s2 2 · s3 3 · s4 4"] + [""]


def test_the_latest_study_comes_first(ask: Ask, tmp_path: Path) -> None:
    studies = [ask(f"scaling {TOY} --N {N} --seeds 1 --store {tmp_path}") for N in (8, 16)]
    for study, day in zip(studies, (2, 1), strict=True):
        with ResultStore(tmp_path) as store:
            save_question(store, study.question)
            when = datetime(2026, 1, day, tzinfo=UTC)
            made = [{**row, "finished_at": when + timedelta(seconds=i)} for i, row in enumerate(train(study, Rows()))]
            store.append(made)
    assert [one.settings["N"] for one in told_of(tmp_path)] == ["8", "16"]


def test_a_question_keeps_its_facts_and_older_ones_have_none(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    with ResultStore(tmp_path) as store:
        save_question(store, study.question)
        [question] = load_questions(store)
        counts = [[1, 64, 0]] * 3 + [[1, 256, 0]] * 3 + [[1, 576, 0]] * 3
        assert question.facts == {"counts": counts, "curve": "", "audits": 0, "checked": True}
        [path] = tmp_path.glob("questions/*.json")
        older = {name: value for name, value in json.loads(path.read_text()).items() if name != "facts"}
        path.write_text(json.dumps(older))
        assert dict(load_questions(store)[0].facts) == {}


class Drawing(BumpTask):
    """Bumps that are drawn."""

    def draw(self, spec: RunSpec, outputs: torch.Tensor) -> Figure:
        assert 1 <= len(outputs) <= DRAWN
        assert outputs.shape[1:] == (1, spec.N, spec.N)
        figure = Figure(figsize=(2, 2))
        figure.subplots().imshow(outputs[0, 0].numpy())
        return figure


@pytest.mark.slow(2)
def test_the_task_draws_the_latest_runs_whose_weights_are_kept(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"encodings --N 8 --seeds 3 --width 4 --store {tmp_path}")
    launched(tmp_path, study)
    results = Results.of(tmp_path)
    results = dataclasses.replace(results, tasks={path: Drawing() for path in results.tasks})
    runs = sorted(results.runs, key=lambda run: (run["finished_at"], run["key"]), reverse=True)
    kept = {}
    for one in runs[1 : MOST + 3]:
        kept[one["key"]] = safetensors.save(BumpTask().model(RunSpec.from_dict(one)).state_dict())
    kept[runs[2]["key"]] = b"damaged"

    def weights(key: str) -> bytes:
        if key not in kept:
            raise OSError("there are none")
        return kept[key]

    [told], _ = studies_of(results, Around(dict, weights))
    report = Report.of((), results, [told])
    drawn = [picture for picture in report.studies[0].pictures if "-drawn-" in picture.name]
    assert [picture.name.rpartition("-")[2] for picture in drawn] == [run["key"] for run in runs[1 : MOST + 1]]
    assert [bool(picture.png) for picture in drawn] == [True, False, True, True]
    assert len(report.errors) == 1, "damaged weights cost a line"
    assert not any("drawn" in picture.name for one in studies_of(results, AROUND)[0] for picture in one.pictures)


HINT = "add --task {} if you trust its code"
MINE = "tests.analysis.test_report_studies:Drawing"


def notices_of(store: Path, *tasks: str, beside: tuple[str, ...] = ()) -> list[str]:
    """What the command warns of."""
    builder = Builder(str(store), store / "page", tasks, beside)
    builder.build()
    return builder.notices


@pytest.mark.parametrize("name", ["thresholds", "one seed a trial"])
def test_a_study_that_lacks_nothing_is_no_reason_for_a_warning(name: str, ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS[name]} --store {tmp_path}"))
    assert notices_of(tmp_path, beside=(str(tmp_path),)) == []


@pytest.mark.slow(3)
def test_pictures_that_a_task_may_draw_are_missed_where_weights_are_kept(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    told = "without pictures, which a task may draw, and {} task is not loaded: " + HINT.format("tests.toy:Toy")
    for number, line in enumerate((f"1 run of 'tests.toy:Toy' is {told}", f"2 runs of 'tests.toy:Toy' are {told}")):
        with ResultStore(tmp_path) as store:
            store.save_weights(sorted(row["key"] for row in store.rows())[number], b"weights")
        assert notices_of(tmp_path) == [line.format("their" if number else "its")]
    assert notices_of(tmp_path, "tests.toy:Toy") == []


@pytest.mark.slow(3)
def test_claims_that_leave_out_thresholds_of_ones_own_task_are_told(ask: Ask, tmp_path: Path) -> None:
    asked = f"scaling --decoder mlp --N 8 --seeds 1 --datasets bumps --store {tmp_path}"
    launched(tmp_path, ask(f"{asked} --task {MINE}"), most=2)
    assert notices_of(tmp_path) == [], "there are no claims on the page"
    launched(tmp_path, ask(asked), most=1)
    about = f"2 runs of '{MINE}' are left out of the claims of papers, and their task is not loaded: "
    assert notices_of(tmp_path) == [about + HINT.format(MINE)]
    assert len(Results.of(tmp_path, [MINE]).asked) == len(Results.of(tmp_path).asked) + 1
    assert notices_of(tmp_path, MINE) == []


def test_a_question_of_an_older_launch_asks_for_its_task(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    launched(tmp_path, study, most=4)
    with ResultStore(tmp_path) as store:
        save_question(store, dataclasses.replace(study.question, facts={}))
    why = "the facts of its 9 thresholds have no curve of each"
    line = f"the question {study.question.name} is left out of the studies: {why}; its task is not loaded: "
    assert notices_of(tmp_path) == [line + HINT.format("tests.toy:Toy")]
    assert notices_of(tmp_path, "tests.toy:Toy") == []
    assert len(told_of(tmp_path, ("tests.toy:Toy",))) == 1


@pytest.mark.slow(2)
@pytest.mark.parametrize(("most", "told"), [(3, "and 1 more file beside them"), (99, "and 3 more files beside them")])
def test_the_files_beside_the_page_are_counted(
    most: int, told: str, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"), most=most)
    assert run(main.app, ["--store", str(tmp_path), "--out", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == told
    assert printed.err == ""


OWN = """
from dataclasses import dataclass
from tests.toy import Toy
from trainables.settings import setting

@dataclass(frozen=True, kw_only=True)
class Settings:
    kind: str = setting("mlp", words=("mlp", "lin"))
    hid: int = setting(8, low=1)
    more: int = setting(None, low=1)
    pause: float = setting(0.0)
    trouble: str = setting("none")
    trouble_N: int = setting(0)
    ledger: str = setting("")
    alpha: float = setting(0.0, low=0, later=True)

    def __post_init__(self):
        object.__setattr__(self, "more", self.more or (3 if self.kind == "mlp" else 2))

class Task(Toy):
    version, settings = "1", Settings
    matters = lambda self, settings: {*settings} - ({"hid"} if settings["kind"] == "lin" else set())
"""
"""A task that chooses `more` itself, whose `hid` does not always matter, and which got `alpha` later."""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The path of a task of one's own."""
    name = f"own_{next(NUMBERS)}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path / "code")
    return f"{name}:Task"


def forget(task: str) -> None:
    """As in a process that has not imported it."""
    del sys.modules[task.partition(":")[0]]


def without_facts(store: Path) -> None:
    """Make its questions those of older launches."""
    for path in store.glob("questions/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "facts": {}}))


def agrees(told: Told, printed: dict[str, Any]) -> bool:
    """Whether a study of trials is told as its launch did."""
    sheets = {sheet.name: sheet.table for sheet in told.sheets}
    [winner] = sheets["confirmed"][sheets["confirmed"]["winner"]].to_dict("records")
    [right] = [line for line in printed["confirmed"] if line["winner"]]
    keys = {trial["key"] for trial in printed["trials"]}
    same = {*sheets["trials"]["key"]} == keys and winner["mse"] == right["mse"] and winner["setting"] == right["setting"]
    return same and told.state == ANSWERED and keys < told.keys


SAME = {
    "data counts": ("--search N=6|8,lr=1e-2..1:log", "--data-count 12"),
    "a setting that the task chooses": ("--search kind=lin|mlp,lr=1e-2..1:log --N 6 --option hid=3", "--option more=9"),
    "programs": (
        "--program 'echo {N} {lr} {data_count} {seed}' --program-settings counts.toml --search N=6|8,lr=1e-2..1:log",
        "--data-count 12",
    ),
}


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("name", SAME)
def test_studies_that_searched_the_same_keep_their_answers_apart(
    name: str, is_older: bool, ask: Ask, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counts.toml").write_text("[counts]\nlow = 1\nhigh = {6 = 36, 8 = 64}\n")
    words, other = SAME[name]
    task = "" if name == "programs" else f"--task {own}"
    words = f"tune {task} {words} --trials 6 --confirm 2 --seeds 2 --store {tmp_path}"
    printed = {}
    for more in ("", other):
        study = ask(f"{words} {more}")
        printed[study.question.name] = launched(tmp_path, study)
    if is_older:
        without_facts(tmp_path)
    assert len(printed) == 2
    sys.modules.pop(own.partition(":")[0], None)
    told, notices = studies_of(Results.of(tmp_path), AROUND)
    assert len(told) + len(notices) == 2
    assert all(agrees(one, printed[one.id]) for one in told)
    assert len(told) == (1 if is_older else 2)
    for line in notices:
        assert "cannot be told from those of another study that searched the same; give each study a store of its own" in line
        assert (f"its task is not loaded: add --task {own} if you trust its code" in line) == (name != "programs")
    if name != "programs":
        told = told_of(tmp_path, (own,))
        assert len(told) == 2
        assert all(agrees(one, printed[one.id]) for one in told)


def test_a_study_of_which_nothing_ran_has_no_runs_of_another(ask: Ask, own: str, tmp_path: Path) -> None:
    words = f"tune --task {own} --search N=6|8,lr=1e-2..1:log --trials 6 --confirm 2 --seeds 2 --store {tmp_path}"
    launched(tmp_path, ask(words), most=0)
    launched(tmp_path, ask(f"{words} --data-count 12"))
    forget(own)
    assert sorted(len(one.keys) for one in told_of(tmp_path)) == [0, 10]


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("space", ["kind=mlp|lin,hid=4|16,lr=1e-2..1:log", "kind=mlp|lin,hid=8|16", "kind=mlp|lin,hid=2..90"])
def test_a_study_whose_settings_do_not_always_matter_is_told_without_its_task(
    space: str, is_older: bool, ask: Ask, own: str, tmp_path: Path
) -> None:
    study = ask(f"tune --task {own} --search {space} --N 8 --trials 12 --confirm 2 --seeds 2 --store {tmp_path}")
    printed = launched(tmp_path, study)
    assert any("hid" not in trial.values for trial in study.search.tuning.finished_trials(Rows(Results.of(tmp_path).runs)))
    if is_older:
        without_facts(tmp_path)
    forget(own)
    told, notices = studies_of(Results.of(tmp_path), AROUND)
    if not is_older:
        assert notices == []
        assert agrees(told[0], printed)
        assert told[0].lines[0].startswith(f"winner: {printed['winner']['setting']}")
    elif notices:
        assert told == []
        assert "it does not tell which of the searched settings matter beside others" in notices[0]
        assert f"its task is not loaded: add --task {own} if you trust its code" in notices[0]
    else:  # the range has its default, too
        assert told[0].state != GOING
    [loaded] = told_of(tmp_path, (own,))
    assert agrees(loaded, printed)


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("alpha", ["0|0.1|0.3", "0.1|0|0.3"])
def test_a_search_of_a_later_setting_asks_for_its_task(
    alpha: str, is_older: bool, ask: Ask, own: str, tmp_path: Path
) -> None:
    words = f"--task {own} --N 8 --store {tmp_path}"
    printed = launched(tmp_path, ask(f"tune --search alpha={alpha} {words} --trials 3 --confirm 2 --seeds 2 --sampler grid"))
    launched(tmp_path, ask(f"scaling --along alpha={alpha.replace('|', ',')} {words} --seeds 1"))
    if is_older:
        without_facts(tmp_path)
    forget(own)
    told, notices = studies_of(Results.of(tmp_path), AROUND)
    assert told == []
    assert len(notices) == 2
    assert all("have no setting 'alpha'" in line and f"add --task {own} if you trust its code" in line for line in notices)
    told, _ = studies_of(Results.of(tmp_path, (own,)), AROUND)
    assert agrees(next(one for one in told if one.question.study == "tune"), printed)
    assert len(told) == 2
