"""The page's studies: each has the answer that its launch printed, whether its task is loaded or not."""

import dataclasses
import inspect
import itertools
import json
import math
import re
import shlex
import sys
import time
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.report import __main__ as main
from analysis.report import build
from analysis.report.build import Builder
from analysis.report.page import Report
from analysis.report.studies import studies_of
from analysis.report.told import ANSWERED, DOUBTFUL, FAILED, FORMER, GOING, STUDIES, WRITTEN, Around, Told
from analysis.results import Results
from orchestrator import __main__ as everything
from orchestrator.command.cli import run
from orchestrator.command.subject import option_of
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket
from orchestrator.store import MeasureTable, ResultStore, load_questions, make_row, save_question
from orchestrator.study import brackets_again, facts_of
from tests.analysis.asked_studies import AROUND, MINE, QUESTIONS, Ask, asking, told_of
from tests.analysis.test_asked import launched
from trainables.spec import Counts, RunSpec

NUMBERS = itertools.count()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asking(monkeypatch)


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


def test_measures_are_read_once_for_all_studies_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, readings = list[Any](), list[object]()

    def read(*_: object) -> list[dict[str, Any]]:
        readings.append(_)
        return [{"key": "b", "measure": "linear", "quantity": "y", "layer": 2.0, "value": 0.25}]

    def noted(results: Results, around: Around, say: Any = None) -> tuple[list[Told], list[str]]:
        seen.extend(around.measured() for _ in range(2))
        return [], []

    monkeypatch.setattr(build, "studies_of", noted)
    monkeypatch.setattr(MeasureTable, "rows", read)
    builder, results = Builder(str(tmp_path), tmp_path / "out"), Results([], pd.DataFrame(columns=["key", "task"]))
    for pages in (1, 2):
        builder.build(results)
        assert seen == [{"b": {"y_2": 0.25}}] * 2 * pages
        assert len(readings) == pages, "what was measured since is on the next page"


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


@pytest.mark.parametrize(
    ("name", "sizes", "seeds", "search", "why"),
    [
        ("least width", 1, 13, {"between": [4, 16_384]}, "its ranges have more than 200,000 values at a resolution of 1e-09"),
        ("thresholds", 8000, 1, {}, "its 8,000 possible thresholds lie at 8,000 values, which are too many"),
        ("thresholds", 1500, 1, {"until_width": 0.1}, "its 48,000 possible thresholds lie at 1,500 values, which are too many"),
    ],
)
def test_a_question_of_which_the_search_would_take_too_long_is_left_out(
    name: str, sizes: int, seeds: int, search: dict[str, Any], why: str, ask: Ask, tmp_path: Path
) -> None:
    question = ask(f"{QUESTIONS[name]} --store {tmp_path}").question
    one = question.specs["thresholds"][0]
    specs = [dataclasses.replace(one, N=8 + size, seed=seed) for size in range(sizes) for seed in range(seeds)]
    facts = {**question.facts, "counts": [1, 10, 0] if name == "thresholds" else None}
    asked = {**question.search, "resolution": 1e-9 if name == "least width" else 0.05, **search}
    with ResultStore(tmp_path) as store:
        save_question(store, dataclasses.replace(question, specs={"thresholds": specs}, facts=facts, search=asked))
    began = time.process_time()
    told, [notice] = studies_of(Results.of(tmp_path, all_questions=True), AROUND)
    assert (told, notice.partition("left out of the studies: ")[2]) == ([], why)
    assert time.process_time() - began < 5


COMMANDS = {
    "sweep scaling --N 16,24": True,
    "python -m orchestrator.scaling --N 16": True,
    "/home/me/.venv/bin/python3.11 -m orchestrator tune": True,
    "python -m orchestrator.merge /elsewhere": False,
    "python -m orchestrator.again abc --into /home/you": False,
    "python -m orchestrator merge": False,
    "python -m orchestrator": False,
    "sweep measure": False,
    "sweep": False,
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
    assert ("The question holds a command that starts no study of this program" in page) is not COMMANDS[command]
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
    own = "sweep scaling --task mine:Task"
    warned = f"{own} It runs a task that this store names: look at it first if the store is not yours."
    assert shown(own, "results", ANSWERED).endswith(f"Asked with: {warned}")
    assert "goes on, with --retry-failed if the cause lay outside the task: sweep scaling" in shown(command, "b", FAILED, 1)
    assert "It runs a" not in shown("sweep scaling --task trainables.bumps:BumpTask", "b")
    assert "It runs a task that this store names" in shown("sweep scaling --task mine:Task", "b")
    assert "It runs a program that this store names" in shown("sweep tune --program='sh {N}'", "b")
    assert "It sends its runs to 198.51.100.7:6379 and writes to /home/me/.config: look at it first" in shown(
        "sweep scaling --address 198.51.100.7:6379 --out=/home/me/.config --store b", "b"
    )
    assert "and writes to a/../../b: look" in shown("sweep scaling --task mine:Task --out a/../../b --store b", "b")
    assert "It writes to /home/me/x: look" in shown("sweep tune --export-optuna /home/me/x --store b", "b")
    assert "It writes to /home/me/x: look" in shown("sweep tune --export-optuna=/home/me/x", "b")
    assert "It writes to /home/me/x: look" in shown("sweep objectives --data --out --out /home/me/x --store b", "b")
    read = "--address=local --out plots/a --export-optuna o.db --data /data --mnist /m"
    for harmless in ("--address auto", read, "--out .."):  # the last is left out of another store
        assert "look at it first" not in shown(f"sweep scaling {harmless}", "b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert shown(f"sweep scaling --store {tmp_path}/loop", "b").endswith("sweep scaling --store b")
    (tmp_path / "link").symlink_to(tmp_path)
    assert shown(f"sweep scaling --store {tmp_path}/link/a", f"{tmp_path}/a").endswith(f"--store {tmp_path}/link/a")


def test_options_of_studies_that_name_files_write_to_them_or_only_read_them() -> None:
    read = {"data", "mnist", "program_settings"}
    assert {*STUDIES} == {*everything.STUDIES}
    paths = set[str]()
    for study in everything.STUDIES.values():
        [command] = study.app.registered_commands
        parameters = inspect.signature(command.callback).parameters.values()
        paths |= {one.name for one in parameters if "Path" in str(one.annotation)}
    assert {option_of(name) for name in paths - read} == {*WRITTEN}


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


@pytest.mark.parametrize("told", ["", None, [0.9], {"a": 1}])
def test_a_figure_is_titled_with_what_its_runs_were_trained_for_whatever_the_question_says(
    told: Any, ask: Ask, tmp_path: Path
) -> None:
    study = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}")
    launched(tmp_path, study)
    [path] = tmp_path.glob("questions/*.json")
    with ResultStore(tmp_path) as store:
        [question] = load_questions(store)
        path.unlink()
        save_question(store, dataclasses.replace(question, settings={**question.settings, "target": told, "decoder": told}))
    [one] = told_of(tmp_path)
    figure = one.pictures[0].draw()
    assert figure.axes[0].get_title() == "Toy, linear, none encoding: accuracy 0.9"


HINT = "add --task {} if you trust its code"


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
    shares = [{*sheet.table["setting"]} for sheet in loaded.sheets if sheet.name == "importances"]
    names = {one.split("=")[0] for one in space.split(",")}
    assert shares == ([] if space == "kind=mlp|lin,hid=8|16" else [names]), "this space has three points"


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
