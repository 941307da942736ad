"""What a launch was asked is asked again of its rows: the answer is the launch's own, whatever its settings were."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import scaling as of_thresholds
from analysis.report.answers import Found, regularization_answer, scaling_answer
from analysis.report.build import Builder
from analysis.report.claims import CLAIMS
from analysis.report.findings import Finding
from analysis.report.missing import of_scaling
from analysis.report.page import Drawn, Part, Report
from analysis.results import Results
from orchestrator import __main__ as everything
from orchestrator import regularization, scaling
from orchestrator.command.cli import run
from orchestrator.command.files import plain
from orchestrator.searches import Rows
from orchestrator.store import Question, ResultStore, make_row, save_question
from orchestrator.study import Study
from tests.analysis.test_claims import paper_of
from tests.conftest import Command
from trainables.spec import RunSpec

Start = Callable[..., Command]
Ask = Callable[[str], Study]
BY_ID = {claim.id: claim for claim in CLAIMS}
MLP = "scaling --decoder mlp --precision float32"
PENALTIES = "regularization --N 8 --epochs 2"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The study that a command would launch."""
    found: list[Study] = []
    for module in (scaling, regularization):
        monkeypatch.setattr(module, "launch", lambda study, *_: found.append(study) or 0)

    def study_of(command: str) -> Study:
        assert run(everything.app, command.split()) == 0
        return found.pop()

    return study_of


def share(spec: RunSpec, salt: str = "") -> float:
    """A number in (0, 1) that is always the same for these settings."""
    text = json.dumps([spec.to_dict(), salt], sort_keys=True)
    return (int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) + 1) / 2**33


def ended(spec: RunSpec, version: str, fixed: int, number: int) -> dict[str, Any]:
    """The row of a run: it passes from 3 N + 2 seed images on, fixed ones included; its errors are drawn from its settings."""
    passes = spec.data_count + fixed >= 3 * spec.N + 2 * spec.seed
    accuracy, reason = (0.95, "target") if passes else (0.3, "converged" if spec.stop == "early" else "budget")
    return make_row(
        spec, task_version=version, fixed_count=fixed, status="passed" if passes else "missed", reason=reason,
        accuracy=accuracy, steps=100 + spec.data_count, id_mse=share(spec, "id"), ood_mse=share(spec), seconds=1.0,
        measures={"exact": 0.5}, finished_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
    )  # fmt: skip


def train(study: Study, rows: Rows, most: int = 10**6) -> list[dict[str, Any]]:
    """All runs that a study still needs, but no more than `most`."""
    made: list[dict[str, Any]] = []
    while len(made) < most and (wanted := study.search.propose(rows, 1)):
        made.append(ended(wanted[0], study.task.version, study.task.counts(wanted[0]).fixed, len(rows)))
        rows.add(made[-1])
    return made


BESIDE = ("answered", "open", "notes")
"""What the JSON of thresholds tells beside the answer."""


def launched(store: Path, study: Study, most: int = 10**6) -> dict[str, Any]:
    """The answer of a launch on this store."""
    with ResultStore(store) as opened:
        rows = Rows(opened.rows(where=study.wanted))
        save_question(opened, study.question)
        opened.append(train(study, rows, most))
    answer: dict[str, Any] = json.loads(json.dumps(study.answer(rows)))
    return {name: value for name, value in answer.items() if name not in ("outliers", *BESIDE)}


def rebuilt(found: Found[Any] | None) -> dict[str, Any]:
    assert found is not None
    assert not found.guessed
    answer: dict[str, Any] = json.loads(json.dumps(found.answer.to_json()))
    return answer


def judged(claim: str, results: Results) -> tuple[Finding, str]:
    """What the report says of a claim, and its page."""
    finding = BY_ID[claim].evaluate(results)
    part = Part(paper_of(BY_ID[claim]), [(BY_ID[claim], finding, [])])
    report = Report([part], len(results.runs), 0.0)
    assert [one["guessed"] for one in report.to_json()] == [finding.guessed]
    return finding, report.html()


@pytest.mark.parametrize(
    "command",
    [
        f"{MLP} --N 8,12 --seeds 3 --resolution 0.2 --stop early",
        f"{MLP} --N 8,12 --seeds 2 --resolution 0.37",
        f"{MLP} --N 8,12,16 --seeds 3 --resolution 0.2 --stop early --until-width 1",
        f"{MLP} --N 12 --seeds 2 --datasets stripes+bumps --stop budget",
        "scaling --N 8 --seeds 1 --depth 1 --width 4 --option sigma=1.5 --target 0.5 --lr 0.003",
    ],
)
def test_thresholds_are_those_of_the_launch(command: str, ask: Ask, tmp_path: Path) -> None:
    printed = launched(tmp_path, ask(f"{command} --store {tmp_path}"))
    assert len(printed["thresholds"]) >= 2
    results = Results.of(tmp_path)
    assert results.notices == []
    assert rebuilt(scaling_answer(results)) == printed


def test_the_same_thresholds_are_fitted_once_for_a_study_its_claims_and_the_next_page(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, made = tmp_path / "store", list[int]()
    first = f"{MLP} --N 8,12 --seeds 1 --resolution 0.2 --datasets bumps --store {store}"
    second = f"{MLP} --N 8,12,16 --seeds 2 --resolution 0.2 --datasets stripes+bumps --stop budget --store {store}"
    launched(store, ask(first))
    launched(store, ask(second), most=9)
    fit = of_thresholds.Answer.of.__func__

    def counted(kind: type, results: list[Any], *more: Any) -> Any:
        made.append(len(results))
        return fit(kind, results, *more)

    monkeypatch.setattr(of_thresholds.Answer, "of", classmethod(counted))
    monkeypatch.setattr("analysis.report.page.draw", lambda picture: Drawn(picture.name, picture.alt, b"", b""))
    builder, pages = Builder(str(store), tmp_path / "page"), list[tuple[list[list[str]], str]]()

    def page() -> tuple[list[list[str]], str]:
        report = builder.build()[0]
        return [[*one.told.lines] for one in report.studies], json.dumps(plain(report.to_json()))

    pages.append(page())
    assert sorted(made) == [2, 6], "two claims ask for them, too"
    launched(store, ask(second))
    made.clear()
    pages.append(page())
    assert made == [6], "of the study that went on"
    assert pages[0] != pages[1]
    builder = Builder(str(store), tmp_path / "anew")
    assert page() == pages[1]
    results = Results.of(store)
    thresholds = results.asked[0].search.answer(Rows(results.runs))
    one, other = (results.fitted.of(thresholds, {"epochs": number}) for number in (1, 2))
    assert (one.settings, other.settings) == ({"epochs": 1}, {"epochs": 2})
    assert one.known is other.known


@pytest.mark.slow(1)
def test_a_task_of_ones_own_is_asked_again_only_if_it_may_be_loaded(ask: Ask, tmp_path: Path) -> None:
    task = "tests.toy:Toy"
    printed = launched(tmp_path, ask(f"scaling --task {task} --N 8,16,24 --resolution 0.01 --store {tmp_path}"))
    assert {(t["N"], t["seed"]): t["images"] for t in printed["thresholds"]}[16, 1] == 50
    assert rebuilt(scaling_answer(Results.of(tmp_path, [task]))) == printed
    assert scaling_answer(Results.of(tmp_path)) is None
    finding, page = judged("scaling", Results.of(tmp_path, [task]))
    assert (finding.verdict, finding.settings["task"], finding.lacks) == ("not enough runs", task, None)
    assert "The rows do not say the settings of the missing runs." in page
    launched(tmp_path, ask(f"{MLP} --N 8 --seeds 1 --datasets bumps --store {tmp_path}"))
    finding, _ = judged("scaling", Results.of(tmp_path, [task]))
    assert (finding.settings["task"], finding.others) == ("trainables.bumps:BumpTask", 1)


@pytest.mark.parametrize(
    "more",
    [
        "--trials 7 --seeds 3",
        "--trials 9 --seeds 1 --sampler grid --region center",
        "--trials 6 --seeds 2 --objectives id,validation --sampler nsga2 --lambda-variance 0.02",
        "--trials 3 --seeds 2 --lambda-entropy 0.1 --lambda-variance 0.01 --sigma 1.25",
    ],
)
def test_chosen_weights_and_settings_are_those_of_the_launch(more: str, ask: Ask, tmp_path: Path) -> None:
    printed = launched(tmp_path, ask(f"{PENALTIES} {more} --store {tmp_path}"))
    assert {final["setting"] for final in printed["finals"]} == {"none", "entropy", "variance", "both", "tuned"}
    results = Results.of(tmp_path)
    assert rebuilt(regularization_answer(results)) == printed
    finding, page = judged("regularization", results)
    assert "tuned" in finding.seen
    assert not finding.guessed
    assert "guessed" not in page


def test_a_comparison_without_all_four_settings_is_none(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{PENALTIES} --trials 2 --seeds 1 --no-ablation --store {tmp_path}"))
    launched(tmp_path, ask(f"{PENALTIES} --trials 20 --seeds 1 --region center --store {tmp_path}"), most=2)
    assert regularization_answer(Results.of(tmp_path)) is None


def test_an_interrupted_launch_has_the_answer_that_it_had_then_and_a_resumed_one_its_own(ask: Ask, tmp_path: Path) -> None:
    command = f"{MLP} --N 8,12 --seeds 2 --resolution 0.2 --store {tmp_path}"
    printed = launched(tmp_path, ask(command), most=9)
    assert 0 < len(printed["thresholds"]) < 8
    assert rebuilt(scaling_answer(Results.of(tmp_path))) == printed
    whole = launched(tmp_path, ask(command))
    assert len(whole["thresholds"]) == 8
    assert rebuilt(scaling_answer(Results.of(tmp_path))) == whole
    assert len(list((tmp_path / "questions").iterdir())) == 1


@pytest.mark.slow(1)
def test_the_question_with_most_thresholds_is_shown_then_the_finer_one_and_the_others_are_counted(
    ask: Ask, tmp_path: Path
) -> None:
    command = f"{MLP} --N 8,12,16 --store {tmp_path}"
    for more in ("--seeds 1", "--seeds 3 --resolution 0.3", "--seeds 3 --resolution 0.1 --stop budget"):
        printed = launched(tmp_path, ask(f"{command} {more}"))
    results = Results.of(tmp_path)
    found = scaling_answer(results)
    assert rebuilt(found) == printed
    finding, page = judged("scaling", results)
    assert (finding.others, finding.settings["resolution"], finding.settings["stop"]) == (2, "0.1", "budget")
    assert "The store has 2 other settings that could have been used." in page


@pytest.mark.slow(2)
def test_of_questions_with_as_many_thresholds_that_of_the_usual_settings_is_shown(ask: Ask, tmp_path: Path) -> None:
    for more in ("--target 0.6", "--target 0.95", "", "--lr 0.01"):
        launched(tmp_path, ask(f"{MLP} --N 8,12 --seeds 1 --store {tmp_path} {more}"))
    for guessed in (False, True):
        found = scaling_answer(Results.of(tmp_path))
        assert found is not None
        shown = {name: found.settings[name] for name in ("target", "lr")}
        assert (shown, found.others, found.guessed) == ({"target": 0.9, "lr": 1e-3}, 3, guessed)
        shutil.rmtree(tmp_path / "questions", ignore_errors=True)


def test_rows_without_a_question_are_guessed_as_before_and_this_is_said(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{MLP} --N 8,12 --seeds 2 --resolution 0.2 --store {tmp_path}")
    printed = launched(tmp_path, study)
    for file in (tmp_path / "questions").iterdir():
        file.unlink()
    results = Results.of(tmp_path)
    found = scaling_answer(results)
    assert found is not None
    assert (found.guessed, found.others, found.settings["resolution"]) == (True, 0, 0.2)
    assert found.answer.table["images"].tolist() == [t["images"] for t in printed["thresholds"]]
    finding, page = judged("scaling", results)
    assert finding.guessed
    assert "their settings are guessed from the rows" in page

    with ResultStore(tmp_path) as store:  # of part of these rows only
        save_question(store, ask(f"{MLP} --N 8 --seeds 2 --resolution 0.2 --store {tmp_path}").question)
    both = scaling_answer(Results.of(tmp_path))
    assert both is not None
    assert (both.guessed, both.others, len(both.answer.table)) == (True, 1, 8)


def test_bumps_alone_with_a_box_held_out_are_not_what_the_claims_are_about(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{MLP} --N 8 --seeds 1 --datasets bumps --holdout center --store {tmp_path}"))
    assert scaling_answer(Results.of(tmp_path)) is None


def test_missing_thresholds_are_asked_for_at_the_sizes_and_the_resolution_that_were_asked(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{MLP} --N 8,12,16 --seeds 2 --resolution 0.15 --option sigma=1.5 --store {tmp_path}"), most=12)
    results = Results.of(tmp_path)
    finding, _ = judged("scaling", results)
    assert finding.verdict == "not enough runs"
    [line] = Report([], 0, 0.0, str(tmp_path)).missing(BY_ID["scaling"], finding)[1]
    study = ask(line.partition("orchestrator.")[2])
    assert {b.template.N for b in study.brackets} == {8, 12, 16}  # type: ignore[attr-defined]
    assert (study.search.resolution, len(study.brackets)) == (0.15, 18)  # type: ignore[attr-defined]
    assert {b.template.option("sigma") for b in study.brackets} == {1.5}  # type: ignore[attr-defined]


def test_missing_thresholds_are_asked_for_among_the_counts_that_were_asked(ask: Ask, tmp_path: Path) -> None:
    words = f"{MLP} --N 16,20,24 --seeds 1 --least data_count --between 9..40 --store {tmp_path}"
    first = ask(words)
    launched(tmp_path, first)
    finding, _ = judged("cubic", Results.of(tmp_path))
    assert finding.settings["between"] == "9..40"
    [line] = Report([], 0, 0.0, str(tmp_path)).missing(BY_ID["cubic"], finding)[1]
    study = ask(line.partition("orchestrator.")[2])
    counts = {b.template.N: b.counts for b in first.brackets if b.template.dataset == "bumps"}  # type: ignore[attr-defined]
    assert {b.template.N: b.counts for b in study.brackets} == counts  # type: ignore[attr-defined]
    assert len(study.brackets) == 9  # type: ignore[attr-defined]
    assert {(c.low, c.high) for c in counts.values()} == {(9, 40)}
    found = scaling_answer(Results.of(tmp_path))
    assert found is not None
    assert "--between" in of_scaling(found.settings, ("bumps",), 0).commands[0]
    assert "--between" not in of_scaling(found.settings, ("bumps",), 64).commands[0], "it is no range for other sizes"
    of_bumps = {**found.settings, "datasets": ["bumps"]}
    assert "--between" not in of_scaling(of_bumps, ("bumps", "stripes+bumps"), 0).commands[0], "nor for other data sets"


def spoiled(question: Question, **changes: Any) -> Question:
    return dataclasses.replace(question, **changes)


def without(values: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


@pytest.mark.parametrize(
    ("search", "why"),
    [
        ({"resolution": 1.5, "stop": "auto"}, "resolution must lie between 0 and 1, not 1.5"),
        ({"resolution": "x", "stop": "auto"}, "resolution must be a number in (0, 1), not 'x'"),
        ({"resolution": 0.1, "stop": "never"}, "stop must be one of auto, early, budget, not 'never'"),
        ({}, "resolution must be a number in (0, 1), not None"),
        ({"resolution": 0.1, "stop": "auto", "until_width": "x"}, "until_width must be a number, not 'x'"),
        ({"resolution": 0.1, "stop": "auto", "until_width": 0.0}, "the width of an interval must be a number above 0, not 0"),
    ],
)
def test_a_question_of_thresholds_that_nobody_could_ask_is_named_and_passed_over(
    search: dict[str, Any], why: str, ask: Ask, tmp_path: Path
) -> None:
    study = ask(f"{MLP} --N 8 --seeds 1 --store {tmp_path}")
    launched(tmp_path, study)
    next((tmp_path / "questions").iterdir()).unlink()
    wrong = spoiled(study.question, search=search)
    with ResultStore(tmp_path) as store:
        save_question(store, wrong)
    results = Results.of(tmp_path)
    [notice] = results.notices
    assert notice.startswith(f"left out {tmp_path}/questions/{wrong.name}.json: {why}")
    assert notice.endswith("; the report guesses from the rows what was asked")
    found = scaling_answer(results)
    assert found is not None
    assert found.guessed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trials": 10**9}, "trials must be a whole number from 1 to 100000, and seed a whole number"),
        ({"seed": "x"}, "trials must be a whole number"),
        ({"space": {"init": [0.1, 1.0]}}, "space must name what is searched of lambda_entropy, lambda_variance"),
        ({"space": {"lambda_entropy": "0..1:log"}}, "the space of lambda_entropy is '0..1:log', which is none"),
        ({"confirm": 0}, "confirm must be a whole number from 1 to 100000, not 0"),
        ({"fresh_seeds": [0.5]}, "seeds must be a list of whole numbers"),
        ({"space": {"lambda_entropy": [0.0, 1.0]}}, "the range of lambda_entropy must be 0 < low <= high"),
        ({"space": [1.0]}, "space must name what is searched"),
        ({"sampler": ["tpe"]}, "sampler must be one of"),
        ({"known": ["none", "all"]}, "known must be a list of some of none, entropy, variance, both, not"),
        ({"known": "none"}, "known must be a list of some of none, entropy, variance, both, not"),
    ],
)
def test_a_question_of_penalties_that_nobody_could_ask_is_named_and_passed_over(
    change: dict[str, Any], why: str, ask: Ask, tmp_path: Path
) -> None:
    study = ask(f"{PENALTIES} --trials 2 --seeds 1 --store {tmp_path}")
    launched(tmp_path, study)
    next((tmp_path / "questions").iterdir()).unlink()
    wrong = spoiled(study.question, search={**study.question.search, **change})
    with ResultStore(tmp_path) as store:
        save_question(store, wrong)
    results = Results.of(tmp_path)
    [notice] = results.notices
    assert f"{wrong.name}.json: {why}" in notice
    found = regularization_answer(results)
    assert found is not None
    assert found.guessed


def test_a_question_of_other_weights_is_not_the_papers_comparison(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{PENALTIES} --trials 2 --seeds 1 --store {tmp_path}")
    launched(tmp_path, study)
    next((tmp_path / "questions").iterdir()).unlink()
    specs = dict(study.question.specs)
    specs["none"], specs["both"] = specs["both"], specs["none"]
    with ResultStore(tmp_path) as store:
        save_question(store, spoiled(study.question, specs=specs))
    found = regularization_answer(Results.of(tmp_path))
    assert found is not None
    assert found.guessed


def test_questions_of_former_versions_and_of_runs_that_are_not_there_are_no_answers(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{MLP} --N 8 --seeds 1 --store {tmp_path}")
    with ResultStore(tmp_path) as store:
        save_question(store, study.question)
    assert scaling_answer(Results.of(tmp_path)) is None
    launched(tmp_path, study)
    next((tmp_path / "questions").iterdir()).unlink()
    with ResultStore(tmp_path) as store:
        save_question(store, spoiled(study.question, task_version="0"))
    results = Results.of(tmp_path)
    assert (results.asked, results.notices) == ([], [])


def answer_files(folder: Path, study: str) -> dict[str, Any]:
    files = folder / "results" / study
    return json.loads((files / f"{study}.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "tasks"),
    [
        pytest.param(
            ("--N", "8,12", "--decoder", "mlp", "--max-steps", "200", "--resolution", "0.2", "--stop", "early"),
            (),
            id="a coarse one on trust",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            ("--task", "examples.own_task:Chords", "--N", "8,12", "--decoder", "linear", "--lr", "0.01", "--seeds", "1"),
            ("examples.own_task:Chords",),
            id="a task of one's own",
        ),
    ],
)
def test_a_real_launch_is_answered_as_it_answered_itself(
    words: Sequence[str], tasks: Iterable[str], here: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = here(*words, "--workers", "2", "--json")
    assert command.wait() == 0, command.stdout + command.stderr
    monkeypatch.chdir(tmp_path)
    found = scaling_answer(Results.of("results", list(tasks)))
    answer = rebuilt(found)
    printed = json.loads(command.stdout)
    written = answer_files(tmp_path, "scaling")
    assert (written["answered"], written["open"]) == (True, 0)
    assert {**answer, **{name: printed[name] for name in BESIDE}} == written
    assert written | {"outliers": printed["outliers"]} == printed
    table = pd.read_csv(tmp_path / "results" / "scaling" / "scaling.csv")
    assert table["images"].tolist() == [threshold["images"] for threshold in answer["thresholds"]]


@pytest.mark.deep
@pytest.mark.slow
def test_a_real_search_of_weights_is_answered_as_it_answered_itself(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--N", "8", "--trials", "12", "--epochs", "20", "--seeds", "2", "--lr", "0.01", "--workers", "2", "--json")
    command = start(*words, study="regularization")
    assert command.wait() in (0, 1), command.stdout + command.stderr  # so short a training may learn nothing
    monkeypatch.chdir(tmp_path)
    printed = json.loads(command.stdout)
    answer = rebuilt(regularization_answer(Results.of("results")))
    assert answer == printed == answer_files(tmp_path, "regularization")
