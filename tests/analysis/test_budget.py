"""Which stored questions a page answers if there are so many that it takes hours."""

import dataclasses
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from analysis import budget
from analysis.budget import affordable, seconds_of
from analysis.report import __main__ as main
from analysis.report.build import Builder
from analysis.report.studies import studies_of
from analysis.results import Results
from orchestrator.command.cli import run
from orchestrator.store import Question, ResultStore, save_question
from tests.analysis.asked_studies import AROUND, QUESTIONS, Ask, asking, told_of
from tests.analysis.test_asked import launched
from trainables.spec import RunSpec


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asking(monkeypatch)


def question(part: str, specs: int, settings: dict[str, Any] | None = None, **search: Any) -> Question:
    of_part = [RunSpec(task="a:B", dataset="d", N=8, seed=seed, data_count=0) for seed in range(specs)]
    return Question(study="tune", task_version="1", specs={part: of_part}, search=search, settings=settings or {})


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (question("runs", 100), 1),
        (question("runs", 50_000), 3.5),
        (question("thresholds", 10_000), 4),
        (question("thresholds", 10_000, until_width=0.2), 128),
        (question("thresholds", 100, least="width", between=[4, 103], resolution=0.001), 1.34),
        (question("thresholds", 200, least="width", between=[4, 103], resolution=0.05), 1.7266),
        (question("thresholds", 10, least="noise", between=[0.1, 1.0], resolution=1e-9), 260.004),
        (question("thresholds", 100, between=[4, 10**9], resolution=1e-9), 1),
        (question("trials", 1, trials=100_000), 11.50007),
        (question("trials", 1, {"trials": 50_000}, trials=40_000), 8.00007),
        (question("trials", 1, trials=10**12), 11.50007),
        (question("trials", 1, trials=9000, confirm=10**12, fresh_seeds=list(range(1000))), 9_009_001 * 7e-5 + 4.5),
        *((question("thresholds", 9, least="x", between=one, resolution=0.1), 1) for one in (["", 1], [0, 1], [2, 1], [1], {})),
        *((question("thresholds", 9, least="x", between=[1, 2], resolution=one), 1) for one in ("a", 0, 1, 2.0, None, [1])),
        (question("thresholds", 9, least="x", between=[1.0, 10**400], resolution=0.1), 1),
        (question("trials", 1, trials=True, confirm="9", fresh_seeds=9), 1),
    ],
)  # fmt: skip
def test_how_long_a_question_takes_is_told_by_what_it_asks(asked: Question, seconds: float) -> None:
    assert seconds_of(asked) == pytest.approx(seconds, rel=1e-3)


def test_the_quickest_questions_are_answered_and_stay_in_their_order() -> None:
    asked = [question("trials", 1, trials=trials, seed=seed) for seed, trials in enumerate((90_000, 1, 50_000, 2, 100_000))]
    assert affordable(asked) == asked
    assert affordable(asked * 40) == asked[:-1] * 18 + asked[1:-1] * 22, "400 s, and those of 11 s as far as there is time"
    assert affordable([]) == []


def test_a_hundred_large_studies_are_answered() -> None:
    studies = [question("runs", 10_000), question("thresholds", 5000), question("trials", 1, trials=10_000)]
    assert affordable(studies * 34) == studies * 34
    assert len(affordable([question("trials", 1, trials=60)] * 2000)) == 600


@pytest.mark.slow(5)
def test_what_is_left_out_is_told_on_the_page_with_the_option_that_answers_it(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, out = tmp_path / "store", tmp_path / "page"
    study = ask(f"{QUESTIONS['one seed a trial']} --store {store}")
    launched(store, study)
    [whole] = told_of(store)
    large = dataclasses.replace(study.question, search={**study.question.search, "sampler": "grid", "trials": 30_000})
    with ResultStore(store) as opened:
        save_question(opened, large)
    monkeypatch.setattr(budget, "MOST_SECONDS", 7.0)
    monkeypatch.setattr("analysis.results.MOST_SECONDS", 420.0)
    results = Results.of(store)
    assert [one.name for one in results.questions] == [study.question.name]
    told = f"1 question of {store} left out: to answer all 2 may take more than 7 minutes; --all-questions answers them"
    assert results.notices == [told]
    assert results.tuned == Results.of(store, all_questions=True).tuned == whole.keys
    assert [one.lines for one in studies_of(results, AROUND)[0]] == [whole.lines]
    html = Builder(str(store), out).build()[0].html()
    words = " ".join(unescape(re.sub("<[^>]*>", "", html)).split())
    assert "1 question was left out, because it may take hours to answer all of them. With --all-questions, the " in words
    assert "does not say what was asked" not in words
    assert run(main.app, ["--store", str(store), "--out", str(out), "--no-measure"]) == 0
    assert f"warning: {told}\n" in capsys.readouterr().err
    assert "1 study in" in (out / "index.html").read_text()
    assert run(main.app, ["--store", str(store), "--out", str(out), "--no-measure", "--all-questions"]) == 0
    assert "left out" not in capsys.readouterr().err
    assert "2 studies in" in (out / "index.html").read_text()
    assert "left out" not in (out / "index.html").read_text().partition("<main>")[2].partition("<script>")[0]
    monkeypatch.setattr(budget, "MOST_SECONDS", 0.5)
    html = Builder(str(store), out).build()[0].html()
    assert "2 questions were left out" in html
    assert "does not say what was asked" not in html


def test_a_run_of_a_search_counts_for_another_study_that_asked_for_it(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{QUESTIONS['one seed a trial']} --store {tmp_path}")
    launched(tmp_path, study)
    runs = Results.of(tmp_path).runs
    first, second, *_ = [RunSpec.from_dict(run) for run in runs]
    asked: dict[str, Any] = {"study": "vary", "search": {}, "settings": {}}
    with ResultStore(tmp_path) as opened:
        save_question(opened, Question(**asked, task_version=study.task.version, specs={"runs": [first]}))
        save_question(opened, Question(**asked, task_version="former", specs={"runs": [second]}))
    assert Results.of(tmp_path).tuned == {run["key"] for run in runs[1:]}
