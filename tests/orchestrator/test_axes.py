"""The least of other settings than the data count, along others than N: the same search, its answer, and its question."""

import io
import json
import math
import random
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from torch import nn

from analysis.figures.scaling import draw
from analysis.fits import fit_power_law, summarise
from analysis.report.answers import scaling_answer
from analysis.report.cells import heads_of
from analysis.report.studies import studies_of
from analysis.report.told import Around
from analysis.results import Results
from analysis.scaling import Answer
from benchmarks.axes import SETTINGS, tally
from orchestrator import scaling
from orchestrator.command.axes import COLUMNS
from orchestrator.command.cli import run
from orchestrator.command.files import csv_bytes
from orchestrator.command.thresholds import bracket_text, what_is_trained
from orchestrator.searches import Rows
from orchestrator.searches.axes import Axes, Between, value_of
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.probing import float_ladder, ladder
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore, make_row, save_question
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import check_refusal
from tests.toy import Choosy, Toy
from trainables.settings import setting, settings_class, settings_of
from trainables.spec import Counts, RunSpec, Scalar, family_key, run_key

Ask = Callable[[str], ThresholdStudy]
Truth = Callable[[RunSpec], float]
WIDTH = "--least width --between 8..99 --data-count 50 --decoder mlp --datasets bumps --precision float32"
PLAIN = "--decoder mlp --datasets bumps --precision float32"
PROGRAM = "train.sh {noise} {N} {seed}"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The study that a command would launch."""
    found: list[ThresholdStudy] = []
    monkeypatch.setattr(scaling, "launch", lambda study, *_: found.append(study) or 0)

    def study_of(command: str) -> ThresholdStudy:
        assert run(scaling.app, shlex.split(command)) == 0
        return found.pop()

    return study_of


def brackets(axes: Axes, between: Between, values: tuple[Scalar, ...], seeds: int = 2) -> list[Bracket]:
    template = RunSpec(
        task="a:B", dataset="d", N=16, data_count=100, seed=0, options=(("rate", 0.5), ("word", "")),
    ).with_value(axes.least, between.low)  # fmt: skip
    places = [template.with_value(axes.along, value) for value in values]
    return [
        Bracket(template=place.with_value("seed", seed), task_version="1", counts=between, axes=axes, curve="d")
        for place in places
        for seed in range(seeds)
    ]


def row(spec: RunSpec, status: str, reason: str, steps: int = 10) -> dict[str, Any]:
    found = {"status": status, "reason": reason, "steps": steps, "accuracy": 0.95 if status == "passed" else 0.5}
    return make_row(spec, task_version="1", fixed_count=0, seconds=1.0, **found)


def drive(search: ThresholdSearch, truth: Truth, workers: int = 1, late: Truth = lambda spec: math.inf) -> Rows:
    """A search to its end: runs pass from their truth on, and between `late` and that only if they are not given up."""
    rows, dice, running = Rows(), random.Random(workers), {}
    while not search.finished(rows):
        for spec in search.propose(rows, workers):
            if len(running) < workers:
                running[run_key(spec, "1")] = spec
        spec = running.pop(dice.choice(sorted(running)))
        value = float(spec.value(search.answer(rows)[0].axes.least))  # type: ignore[arg-type]
        is_late = spec.stop == "target" and value >= late(spec)
        passes = value >= truth(spec) or is_late
        rows.add(row(spec, "passed" if passes else "missed", "target" if passes else "converged", 99 if is_late else 10))
    return rows


@pytest.mark.parametrize(
    ("axes", "between", "values", "truth", "found"),
    [
        (Axes("width"), Between(4, 99), (16, 24, 32), lambda s: 2 * s.N + s.seed, [32, 33, 48, 49, 64, 65]),
        (Axes("depth"), Between(0, 6), (16, 64), lambda s: math.log2(s.N) - 3, [1, 1, 3, 3]),
        (Axes("data_count", "width"), Between(1, 900), (8, 64), lambda s: 800 / s.width, [100, 100, 13, 13]),
        (Axes("width", "data_count"), Between(1, 64), (50, 100), lambda s: 2000 / s.data_count, [40, 40, 20, 20]),
        (Axes("max_steps", "lr"), Between(5, 200), (0.01, 0.1), lambda s: 1 / s.lr, [100, 100, 10, 10]),
        (Axes.of("width", "word", "ab"), Between(1, 99), ("b", "a"), lambda s: 7 + 2 * (s.option("word") == "a"), [7, 7, 9, 9]),
    ],
    ids=lambda value: f"{value.least} along {value.along}" if isinstance(value, Axes) else "",
)
def test_least_values_are_exact_on_every_axis_and_for_any_workers(
    axes: Axes, between: Between, values: tuple[Scalar, ...], truth: Truth, found: list[float]
) -> None:
    search = ThresholdSearch(brackets(axes, between, values), 0.01, stop="early")
    for workers in (1, 7):
        rows = drive(search, truth, workers)
        results = search.answer(rows)
        assert [r.threshold for r in results] == found
        assert [r.along for r in results] == [value for value in values for _ in range(2)]
        assert len(rows) < 50 * workers
        assert search.families >= {r["family"] for r in rows}


@pytest.mark.parametrize(
    ("words", "more"), [("ba", ""), ("bac", ", and so in 1 more, at word = c"), ("bacd", ", and so in 2 more, at word = c, d")]
)
def test_among_words_it_is_said_where_the_lowest_value_passes_already(words: str, more: str) -> None:
    search = ThresholdSearch(brackets(Axes.of("width", "word", words), Between(4, 99), tuple(words)), 0.01, stop="budget")
    results = search.answer(drive(search, lambda spec: 9 if spec.option("word") == "a" else 1))
    others = ["<= 4"] * 2 * (len(words) - 2)
    assert [bracket_text(result, []).plain for result in results] == ["<= 4", "<= 4", "9", "9", *others]
    told = f"d: at word = b 2 of 2 seeds pass at the lowest width{more}. So less may do: ask for lower values"
    assert Answer.of_results(results, {}).lines() == [told]


def test_a_setting_whose_name_begins_those_of_other_columns_has_its_own() -> None:
    template = RunSpec(task="a:B", dataset="x", N=16, data_count=100, seed=0, options=(("d", 4),))
    place = Bracket(template=template, task_version="1", counts=Between(4, 99), axes=Axes("d"), curve="x")
    search = ThresholdSearch([place], 0.01, stop="budget")
    answer = Answer.of_results(search.answer(drive(search, lambda spec: 30)), {})
    assert answer.counts == ("d", "d_lower", "d_upper")
    table = pd.read_csv(io.BytesIO(csv_bytes(answer.shown, answer.counts)), dtype=str)
    assert table[["decoder", "dataset", "d", "d_lower"]].fillna("").to_numpy().tolist() == [["cnn", "x", "30", "29"]]


def test_a_float_is_found_to_the_resolution_and_its_values_are_decimals_between_the_ends() -> None:
    search = ThresholdSearch(brackets(Axes("rate"), Between(0.001, 2.0), (16, 32)), 0.05, stop="early")
    results = search.answer(drive(search, lambda spec: 0.002 * spec.N))
    for result in results:
        assert result.lower is not None
        assert result.threshold is not None
        assert result.lower < 0.002 * result.N <= result.threshold
        assert result.threshold - result.lower <= 0.05 * result.threshold
    values = [value for i in range(4) for value in search.rungs(i)]
    assert (min(values), max(values)) == (0.001, 2.0)
    assert all(round(value, 7) == value for value in values)
    assert set(float_ladder(0.001, 2.0, 0.2).counts) < set(float_ladder(0.001, 2.0, 0.03).counts)
    assert float_ladder(0.0123456, 1.0, 0.1).counts[0] == 0.0123456


@pytest.mark.parametrize(
    ("low", "high"),
    [(1e-100, 1.0), (1.0, 1e100), (1e207, 1e307), (1.2345678901234567e-50, 1e50), (5e-324, 1e-300), (1, 10**100)],
)
def test_the_widest_ranges_have_a_ladder(low: float, high: float) -> None:
    between = Between(low, high)
    rungs = (float_ladder if between.is_float else partial(ladder, fixed=0))(low, high, resolution=0.05)
    assert (rungs.counts[0], rungs.counts[-1]) == (low, high)
    for value in (10**101, 10**400):
        with pytest.raises(ValueError, match="the range is too wide: it may end at 1e\\+100 at most"):
            Between(1, value)


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        (False, 2, "a range is between two numbers, not False"),
        (1, True, "a range is between two numbers, not True"),
        (5, 4, "the range 5..4 is empty"),
        (1.0, math.inf, "the range 1.0..inf is empty"),
        (math.nan, 1.0, "the range nan..1.0 is empty"),
        (-1, 4, "a range begins at 0 or above, not at -1"),
        (0, 0.5, "a range of floats begins above 0, not at 0"),
        (1.0, 1.1e100, "it may end at 1e\\+100 times its low end at most"),
    ],
)
def test_a_range_that_is_none_is_refused(low: float, high: float, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Between(low, high)
    assert (Between(0, 4).is_float, Between(4, 4).is_float, Between(1, 4.0).is_float) == (False, False, True)


@pytest.mark.parametrize(
    ("values", "scaled"), [((8, 16.5), True), ((0, 8), False), ((-1.0, 8), False), ((True,), False), (("a", 8), False)]
)
def test_a_power_law_goes_through_positive_numbers_alone(values: tuple[Scalar, ...], scaled: bool) -> None:
    assert Axes.of("width", "pace", values).scaled == scaled


@pytest.mark.parametrize("stop", ["auto", "early", "budget"])
def test_the_stopping_rule_is_audited_and_one_mistake_switches_it_off(stop: str) -> None:
    places = brackets(Axes("width"), Between(4, 200), (16, 24, 32), seeds=3)
    search = ThresholdSearch(places, 0.0001, stop=stop)
    rows = drive(search, lambda spec: 3 * spec.N, late=lambda spec: 2 * spec.N if spec.N == 24 else math.inf)
    least = {r.N: r.threshold for r in search.answer(rows)}
    assert least == {16: 48, 24: 72 if stop == "early" else 48, 32: 96}
    rule = search.answer(rows)[0].rule
    assert rule.known == 0
    assert bool(rule.flips) == (stop == "auto")
    if rule.flips:
        assert rule.flips[0].startswith("N = 24, seed 0, width ")
        assert rule.flips[0].endswith(": given up at step 10, passed at step 99")
    assert all(search.may_audit(place.template) == (stop == "auto") for place in places)


def test_categories_do_not_foretell_each_other_and_stay_in_their_order() -> None:
    axes = Axes.of("width", "word", ("b", "a"))
    search = ThresholdSearch(brackets(axes, Between(1, 4096), ("b", "a"), seeds=1), stop="early")
    assert {spec.option("word") for spec in search.propose(Rows(), 2, fill=0)} == {"a", "b"}
    truth = {"b": 30, "a": 2000}
    rows = drive(search, lambda spec: truth[str(spec.option("word"))])
    answer = Answer.of_results(search.answer(rows), {"decoder": "cnn", "encoding": "", "target": 0.9})
    assert answer.fits == {}
    assert answer.summary["word"].tolist() == ["b", "a"]
    figure = draw(answer)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["b", "a"]
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("word", "least width")


def results_table(thresholds: dict[int, tuple[float, float, str]]) -> pd.DataFrame:
    """`lower`, `upper` and verdict of each N, the same for three seeds."""
    return pd.DataFrame(
        {"decoder": "cnn", "dataset": "d", "N": N, "seed": seed, "threshold": upper, "total_images": upper, "lower": lower,
         "upper": upper, "verdict": verdict, "runs": 3, "steps": 9}
        for N, (lower, upper, verdict) in thresholds.items()
        for seed in range(3)
    )  # fmt: skip


def test_few_values_give_a_wide_interval_and_the_lowest_value_is_no_point_of_the_law() -> None:
    table = results_table({16: (1, 2, "reached"), 32: (2, 3, "reached"), 64: (3, 4, "reached")})
    fit = fit_power_law(table, axes=Axes("depth"))
    as_counts = fit_power_law(table)
    assert fit.exponent == as_counts.exponent == pytest.approx(0.5)
    assert None not in (fit.lower, fit.upper, as_counts.lower, as_counts.upper)
    assert (fit.lower, fit.upper) == (as_counts.lower, as_counts.upper)
    # log(3 / 2) / log 4, 0.29, is the least that fits into all brackets, and log(4) / log(4) the most; both are unlikely
    assert 0.2 < fit.lower < 0.35  # type: ignore[operator]
    assert 0.9 < fit.upper < 1.2  # type: ignore[operator]
    lowest = pd.concat([table, results_table({8: (1, 1, "minimum")})])
    left_out = fit_power_law(lowest, axes=Axes("depth"))
    assert (left_out.exponent, left_out.sizes) == (fit.exponent, 3)
    assert left_out.note == "without N = 8: the lowest depth passes, and less cannot be tried"
    assert fit_power_law(lowest).note == "without N = 8: the lowest data_count passes, and less cannot be tried"


def test_small_values_are_not_taken_for_none() -> None:
    table = results_table({16: (0.018, 0.02, "reached"), 32: (0.036, 0.04, "reached"), 64: (0.07, 0.08, "reached")})
    [low, *_] = summarise(table, axes=Axes("rate")).itertuples()
    wider = math.exp(4.302653 * math.log(0.02 / 0.018) / math.sqrt(12) / math.sqrt(3))  # t of 2 degrees of freedom
    assert (low.lower, low.total_images, low.upper) == pytest.approx((0.018 / wider, 0.02, 0.02 * wider))
    assert fit_power_law(table, axes=Axes("rate")).exponent == pytest.approx(1.0)


@pytest.mark.parametrize(("name", "studies", "most"), [("depth, 1..8", 4, 4), ("rate, 0.01..1", 1, 6)])
def test_intervals_hold_the_truth(name: str, studies: int, most: int) -> None:
    found = tally(SETTINGS[name], 0.0, dips=False, studies=studies)
    assert found.summaries == 7 * studies
    assert found.covered >= 0.85 * found.summaries
    assert found.slopes == studies
    assert found.slopes_held >= 0.75 * studies
    assert found.trainings < most * found.thresholds


# The command


def ended(spec: RunSpec, study: ThresholdStudy, number: int) -> dict[str, Any]:
    """It passes from a width, or as many images, on that grow with N and fall with depth; without a width, from 2 N samples."""
    of_width = spec.width >= 2 * spec.N + spec.seed
    of_count = spec.data_count * spec.width >= (2 if spec.width == 1 else 40) * spec.N
    passes = of_width if study.axes.least == "width" else of_count
    status, reason = ("passed", "target") if passes else ("missed", "converged" if spec.stop == "early" else "budget")
    return {**row(spec, status, reason), "finished_at": pd.Timestamp(number, unit="s", tz="UTC").to_pydatetime()}


def launched(study: ThresholdStudy, store: Path) -> dict[str, Any]:
    """The answer of a launch on this store."""
    with ResultStore(store) as opened:
        rows = Rows(opened.rows(where=study.wanted))
        save_question(opened, study.question)
        made = []
        while wanted := study.search.propose(rows, 1):
            made.append(ended(wanted[0], study, len(rows)))
            rows.add(made[-1])
        opened.append(made)
    answer: dict[str, Any] = json.loads(json.dumps(study.answer(rows)))
    return answer


def table_of(study: ThresholdStudy, store: Path) -> pd.DataFrame:
    """The table as its file has it."""
    answer = study._answer(Rows(ResultStore(store, read_only=True).rows()))
    return pd.read_csv(io.BytesIO(csv_bytes(answer.shown, answer.counts)))


def test_table_files_and_answer_name_the_axes(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"{WIDTH} --N 12,16,24 --resolution 0.1 --store {tmp_path}")
    answer = launched(study, tmp_path)
    table = table_of(study, tmp_path)
    assert list(table) == [
        "decoder", "dataset", "N", "seed", "width", "width_lower", "width_upper", "verdict", "runs", "steps", "lower_ended",
        "contradicted_by",
    ]  # fmt: skip
    assert answer["thresholds"][0].keys() == set(table)
    for one in table.itertuples():
        assert one.width_lower < 2 * one.N + one.seed <= one.width
    assert {name: answer["settings"][name] for name in ("least", "along", "between", "N", "data_count")} == {
        "least": "width", "along": "N", "between": [8, 99], "N": [12, 16, 24], "data_count": 50,
    }  # fmt: skip
    assert "width" not in answer["settings"].keys() - {"least"}
    fit = answer["fits"]["bumps"]
    assert fit["lower"] <= fit["exponent"] <= fit["upper"]
    assert fit["exponent"] == pytest.approx(1.0, abs=0.2)
    assert fit["paper_exponent"] is None
    assert [sum(s["runs"] for s in answer["summary"]), answer["summary"][2]["N"]] == [table["runs"].sum(), 24]
    assert answer["summary"][2]["width"] == pytest.approx(49, rel=0.15)
    rows = Rows(ResultStore(tmp_path, read_only=True).rows())
    [line, *_] = study._answer(rows).lines()
    assert line.startswith(f"bumps: width ~ N^{fit['exponent']:.2f} [")
    assert study.line(next(iter(rows))).startswith("bumps N=12 seed 0: width ")
    assert "images" not in study.line(next(iter(rows)))
    figure = draw(study._answer(rows))
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("grid size N (pixels)", "least width")


def test_counts_that_speak_against_an_answer_stand_under_the_name_of_what_is_searched(ask: Ask, tmp_path: Path) -> None:
    for least, name in (("width", "widths"), ("max_steps", "max_steps")):
        study = ask(f"--least {least} --between 8..99 --data-count 50 {PLAIN} --N 12 --seeds 1 --store {tmp_path}")
        [result] = study.results(rows := Rows())
        study._results = SimpleNamespace(of=lambda _, one=result: [replace(one, outliers=(9,), tried=((8, False),))])  # type: ignore[assignment]
        assert study.answer(rows)["outliers"] == [{"dataset": "bumps", "N": 12, "seed": 0, name: [9]}]


def test_files_are_renewed_where_an_answered_place_has_opened_again(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does where further seeds are asked for, and where the stopping rule turns out to be wrong."""
    study = ask(f"{PLAIN} --N 8,12 --store {tmp_path}")
    state, written, rows = list[Any](), list[Any](), Rows()
    study._results = SimpleNamespace(of=lambda _: state)  # type: ignore[assignment]
    monkeypatch.setattr(ThresholdStudy, "_answer", lambda *_: SimpleNamespace(notes=[]))
    monkeypatch.setattr(ThresholdStudy, "write_answer", lambda _, answer, out, told: written.append(answer) or [out])
    monkeypatch.setattr(ThresholdStudy, "notes", lambda *_: [])

    def is_written(*verdicts: tuple[int, str]) -> bool:
        state[:] = [SimpleNamespace(dataset="bumps", along=N, verdict=verdict, runs=1) for N, verdict in verdicts]
        return bool(study.write(rows, tmp_path, force=False))

    first = [(8, "reached"), (12, "reached")]
    assert [is_written((8, "reached"), (12, "open")), is_written(*first), is_written(*first)] == [True, True, False]
    assert not is_written(*first, (8, "open"), (12, "open"))
    assert [is_written(*first, (8, "reached"), (12, "open")), is_written(*first, *first)] == [True, True]
    assert len(written) == 4


def test_the_least_number_of_images_along_a_width_keeps_its_columns(ask: Ask, tmp_path: Path) -> None:
    study = ask(f"--along width=32,8,16 --N 12 --decoder mlp --precision float32 --seeds 1 --store {tmp_path}")
    assert [b.template.width for b in study.brackets] == [8, 16, 32] * 2
    launched(study, tmp_path)
    table = table_of(study, tmp_path)
    assert list(table)[:8] == ["decoder", "dataset", "width", "seed", "images", "images_lower", "images_upper", "fixed_images"]
    assert table.groupby("width")["fixed_images"].max().tolist() == [24, 24, 24]
    assert table[table["dataset"] == "bumps"]["images"].tolist() == pytest.approx([60, 30, 15], rel=0.06)


def test_runs_are_those_of_any_study_with_these_settings(ask: Ask) -> None:
    [wide] = {b.at(64) for b in ask(f"{WIDTH} --N 12 --seeds 1").brackets}
    usual = ask("--N 12 --seeds 1 --width 64 --decoder mlp --datasets bumps --precision float32").brackets[0]
    assert run_key(wide, "1") == run_key(usual.at(50), "1")
    assert family_key(wide, "1") == usual.family


def test_a_study_with_a_range_of_counts_asks_for_those(ask: Ask) -> None:
    study = ask("--N 12,16 --between 20..50 --datasets bumps --precision float32")
    assert {(b.counts.low, b.counts.high) for b in study.brackets} == {(20, 50)}
    assert study.brackets[0].audits == 304
    assert study.question.search["between"] == [20, 50]
    plain = ask("--N 12,16 --datasets bumps --precision float32")
    assert plain.question.search.keys() == {"resolution", "stop"}
    assert plain.settings.keys() & {"least", "along", "between"} == set()


@pytest.mark.parametrize(
    ("task", "samples", "held_out"),
    [
        ("trainables.bumps:BumpTask", "images", " on held-out coordinates"),
        ("tests.toy:Toy", "samples", " on what is held out"),
        (None, "samples", ""),
    ],
)
def test_samples_are_images_in_the_bump_task_alone(
    task: str | None, samples: str, held_out: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("exit 0")
    told = "--program 'sh train.sh {data_count} {N} {seed}' --counts 5..80" if task is None else f"--task {task}"
    of_bumps = " --datasets bumps --decoder mlp --precision float32" if samples == "images" else ""
    study = ask(f"{told}{of_bumps} --N 8,12,16 --resolution 0.1 --store {tmp_path / 'store'}")
    answer = launched(study, tmp_path / "store")
    rows = Rows(ResultStore(tmp_path / "store", read_only=True).rows())
    first = next(iter(rows))
    line = study.line(first)
    assert f": {first['data_count']} {samples} {first['status']} (" in line
    assert ("0 steps" in study.line({**first, "steps": 0})) == (task is not None)
    assert "10 steps" in line
    group: Any = study.table(rows, {})
    assert str(group.renderables[0].title) == f"least {samples} for accuracy 0.9{held_out}"
    [dataset] = answer["fits"]
    assert study._answer(rows).lines()[0].startswith(f"{dataset}: {samples} ~ N^")
    assert (answer["fits"][dataset]["paper_exponent"] == 3) == (samples == "images")
    assert {"images", "fixed_images", "total_images"} <= answer["thresholds"][0].keys()
    [told_of] = studies_of(Results.of(tmp_path / "store"), Around(dict, lambda key: b""))[0]
    assert f"threshold ({samples})" in [head.text for head in heads_of(told_of.sheets[0])]
    title = draw(study._answer(rows)).axes[0].get_title()
    assert title.startswith("train: accuracy 0.9") if task is None else "accuracy 0.9" in title


def test_words_derived_settings_and_counts_follow_the_axis(ask: Ask) -> None:
    study = ask("--along decoder=mlp,cnn --N 12 --datasets bumps --seeds 1 --precision float32")
    assert [(b.template.decoder, b.template.width) for b in study.brackets] == [("mlp", 256), ("cnn", 64)]
    assert not study.axes.scaled
    study = ask("--least depth --along N=8,12 --data-count 30 --datasets bumps --between 0..4 --precision float32")
    assert [b.template.N for b in study.brackets] == [8] * 3 + [12] * 3
    assert study.search.rungs(0) == (0, 1, 2, 3, 4)
    study = ask("--least sigma --between 0.5..2 --data-count 30 --N 12 --seeds 1 --datasets bumps --precision float32")
    assert study.brackets[0].counts == Between(0.5, 2.0)
    assert study.brackets[0].at(0.75).option("sigma") == 0.75
    assert value_of({"options": {"sigma": 0.75}}, "sigma") == 0.75
    assert value_of({"options": {"error": 0.1}, "error": None, "N": 8}, "error") == 0.1
    assert value_of({"options": {}, "N": 8}, "N") == 8


def test_a_program_has_axes_too_and_need_not_be_told_the_data_count(ask: Ask, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "train.sh").write_text("exit 0")
    monkeypatch.chdir(tmp_path)
    found: list[ThresholdStudy] = []
    monkeypatch.setattr(scaling, "launch", lambda study, *_: found.append(study) or 0)
    words = ["--program", f"sh {PROGRAM}", "--vary", "noise=0.5", "--N", "8,16", "--store", str(tmp_path / "store")]
    assert run(scaling.app, [*words, "--least", "noise", "--between", "0.1..3"]) == 0
    [study] = found
    assert (study.axes.least, study.stop, study.brackets[0].template.data_count) == ("noise", "budget", 1)
    assert study.brackets[0].at(0.3).option("noise") == 0.3
    assert "noise" not in study.settings["options"]
    assert run(scaling.app, [*words, "--least", "noise", "--between", "0.1..3", "--data-count", "7"]) == 2
    words[1] = "sh train.sh {data_count} {noise} {N} {seed}"
    assert run(scaling.app, [*words, "--between", "5..80"]) == 0
    assert (found[-1].brackets[0].counts.low, found[-1].brackets[0].counts.high) == (5, 80)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (f"{WIDTH} --N 12", "mlp, depth 2, bump encoding, float32"),
        (f"{PLAIN} --along width=8,16 --N 12", "mlp, depth 2, bump encoding, float32"),
        (f"{PLAIN} --along encoding=bump,one-hot --N 12", "mlp, depth 2, width 256, float32"),
        (f"{PLAIN} --N 12", "mlp, depth 2, width 256, bump encoding, float32"),
        ("--task examples.pretraining:Autoencoder --N 3 --precision float32", "float32"),
        ("--along decoder=cnn,mlp --N 12 --precision float32", "depth 2, bump encoding, float32"),
    ],
)
def test_a_plan_tells_what_is_the_same_in_all_runs(words: str, told: str, ask: Ask) -> None:
    study = ask(f"{words} --seeds 1")
    templates = [bracket.template for bracket in study.brackets]
    assert what_is_trained(templates, study.axes, settings_of(settings_class(study.task))) == told


def test_a_setting_of_a_program_is_searched_beside_the_counts_of_its_file(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "counts.toml").write_text("[settings.noise]\ndefault = 1.0\n\n[counts]\nlow = 10\nhigh = 1200\n")
    monkeypatch.chdir(tmp_path)
    told = "--program true\\ {data_count}\\ {noise}\\ {N}\\ {seed} --N 8,16 --seeds 1"
    untold = told.replace("{data_count}\\ ", "")
    file, least = "--program-settings counts.toml", "--least noise --between 0.1..3"

    def counts(command: str) -> set[tuple[object, float, float, int]]:
        made = ask(command).brackets
        return {(b.template.option("counts"), b.counts.low, b.counts.high, b.template.data_count) for b in made}

    assert counts(f"{told} {file} {least} --data-count 50") == {("10..1200", 0.1, 3.0, 50)}
    assert counts(f"{untold} {file} {least}") == {("1..1", 0.1, 3.0, 1)}
    assert counts(f"{untold} --vary noise=1.0 --counts 1..2000 {least}") == {("1..2000", 0.1, 3.0, 1)}
    assert counts(f"{told} {file} --between 2..20") == {("10..1200", 10, 20, 0)}
    assert counts(f"{told} {file}") == {("10..1200", 10, 1200, 0)}
    along = f"{told.replace('8,16', '8')} {least} --along data_count=20,10"
    assert counts(f"{along} --vary noise=1.0") == {("10..20", 0.1, 3.0, 10), ("10..20", 0.1, 3.0, 20)}
    assert counts(f"{along} {file}") == {("10..1200", 0.1, 3.0, 10), ("10..1200", 0.1, 3.0, 20)}
    for command, why in (
        (f"{told} {file} {least}", "--least noise keeps the data count as it is: give it, for example --data-count 500"),
        (f"{told} --vary noise=1.0 --counts 1..2000 {least}", "--least noise keeps the data count as it is: give it, for"),
        (f"{told} {file} {least} --data-count 5", "--data-count 5 is not possible at N = 8, noise = 0.1, where"),
        (f"{told} {file} --counts 1..9", "--counts and [counts] in counts.toml are both given: keep one"),
        (f"{told} --vary noise=1 --between 9", "--between '9' is no range: write LOW..HIGH with whole numbers"),
        (f"{told} --vary noise=1 --between 9..2", "--between '9..2' must have 0 <= low <= high"),
        (f"{told} --vary noise=1 {least} --data-count x", "--data-count must be a whole number from 0"),
        (f"{untold} --vary noise=1 {least} --along data_count=1,2", "--program does not say where data_count goes"),
        (f"{told} --vary noise=1 {least} --along data_count=1,x", "'1,x' is not a list of data counts: write a range 10..20"),
    ):
        assert run(scaling.app, shlex.split(command)) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--least width", "--least width keeps the data count as it is: give it, for example --data-count 500"),
        ("--least holdout", "because a number is searched: choose data_count, max_steps, batch_size"),
        ("--least target", "because a larger value makes it harder for a run to pass: choose data_count, max_steps"),
        ("--least N --along width=8,16", "--least N is not possible, because a larger value makes it harder for a run to pass"),
        ("--least wide", "--least 'wide' is no setting: choose data_count, max_steps"),
        ("--least lr", "--least lr needs the range in which to search: write LOW..HIGH, for example --between 4..512"),
        ("--least width --between 9 --data-count 9", "--between '9' is no range"),
        ("--least width --between 8..4 --data-count 9", "--between '8..4' is empty: write the smaller number first, --between"),
        ("--least sigma --between 1e-160..1 --data-count 9", "1e-160..1: the range is too wide: it may end at 1e+100 times"),
        ("--least sigma --between 1..1e160 --data-count 9", "1..1e160: the range is too wide: it may end at 1e+100 times"),
        ("--least sigma --between 0..1 --data-count 9", "--between 0..1: a range of floats begins above 0, not at 0.0"),
        ("--least width --between a..4 --data-count 9", "the option width takes a whole number, not 'a'"),
        ("--least width --between 0..4 --data-count 9", "width must be at least 1, not 0"),
        ("--least width --data-count 9 --width 4", "--width and --least width both say what width is"),
        ("--along lr=0.1,0.2 --lr 0.3 --N 8", "--lr and --along lr both say what lr is"),
        ("--least width --data-count 9999", "--data-count 9999 is not possible at N = 16, width = 1, where"),
        ("--data-count 9", "--data-count 9 is not possible, because the data count is searched"),
        ("--along data_count=5,9 --least depth --between 1..3 --data-count 9 --N 8", "is what --along varies"),
        ("--along width", "--along width has no values: write them, for example --along width=32,64,128"),
        ("--along width=", "lacks a value"),
        ("--along lr=0.1..0.5 --N 8", "--along lr=0.1..0.5 is a range: write the values, for example --along lr=0.1,0.2,0.5"),
        ("--along width=8,x --N 8", "the option width takes a whole number, not 'x'"),
        ("--along decoder=cnn,rnn --N 8", "choose cnn or mlp"),
        ("--along dataset=bumps", "--datasets compares data sets in one study"),
        ("--along seed=1", "because the table has another column of that name"),
        ("--along width=8,16", "--along width keeps the grid size as it is: give one, for example --N 24"),
        ("--along N=8 --N 8", "--N and --along N=... both give grid sizes"),
        ("--along data_count=1,2", "--least and --along are both data_count"),
        ("--between 9000..9999 --N 8", "no data count from 9000 to 9999 is possible at N = 8"),
        ("--least width --data-count 9 --resolution 0.0001 --N 8..40:1", "each are too many"),
    ],
)
def test_a_mistake_is_one_line(arguments: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scaling.app, ["--datasets", "bumps", *arguments.split(), "--store", str(tmp_path / "store")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert why in line
    assert not (tmp_path / "store").exists()


def test_other_settings_must_not_follow_from_the_searched_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("follows", None)
    (tmp_path / "follows.py").write_text(
        "from dataclasses import dataclass\nfrom tests.toy import Toy\nfrom trainables import setting\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Settings:\n    width: int = setting(4, low=1, high=64)\n"
        "    depth: int | None = setting(None)\n\n    def __post_init__(self):\n        if self.depth is None:\n"
        "            object.__setattr__(self, 'depth', self.width // 8)\n\n\nclass Task(Toy):\n    settings = Settings\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        words = ["--task", "follows:Task", "--least", "width", "--data-count", "3", "--store", str(tmp_path / "store")]
        assert run(scaling.app, words) == 2
    finally:
        sys.path.remove(str(tmp_path))
    assert "the task chooses depth by width, so more than width would vary" in capsys.readouterr().err


@pytest.fixture
def heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a task whose width is a multiple of 4, and which can begin without a sample."""
    sys.modules.pop("heads", None)
    (tmp_path / "heads.py").write_text(
        "from dataclasses import dataclass\nfrom tests.toy import Toy\nfrom trainables import Counts, setting\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Settings:\n    width: int = setting(4, low=1, high=64)\n"
        "    pause: float = setting(0.0)\n    trouble: str = setting('none', words=('none',))\n"
        "    trouble_N: int = setting(0)\n    ledger: str = setting('')\n\n"
        "    def __post_init__(self):\n        if self.width % 4:\n"
        "            raise ValueError(f'width must be a multiple of 4, not {self.width}')\n\n\n"
        "class Task(Toy):\n    settings = Settings\n\n"
        "    def counts(self, spec):\n        return Counts(low=0, high=20)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "heads:Task"


def test_values_that_the_task_refuses_are_refused_at_the_start(heads: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--task", heads, "--least", "width", "--data-count", "3", "--between", "4..64"]
    assert run(scaling.app, words) == 2
    told = "--least width may ask for any value of --between, and the task refuses 5: width must be a multiple of 4, not 5"
    assert told in capsys.readouterr().err


@dataclass(frozen=True, kw_only=True)
class RoundedSettings:
    dataset: str = setting("alpha")
    width: int = setting(4, low=1, high=64)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", self.dataset.lower())
        object.__setattr__(self, "width", -(-self.width // 4) * 4)


class Rounded(Choosy):
    """It rounds widths up to a multiple of 4."""

    settings = RoundedSettings

    def matters(self, settings: dict[str, Scalar]) -> list[str]:
        return list(settings)

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=20)

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--along width=5,6", "the task makes width 8 of 5: ask for 8"),
        ("--along width=4,6", "the task makes width 8 of 6: ask for 8"),
        ("--least width --between 5..64 --data-count 3", "the task makes width 8 of 5: ask for 8"),
        ("--least width --between 4..64 --data-count 3", "the task refuses 5: the task's settings make width 8 of 5 when they"),
        ("--datasets alpha,Beta", "the task makes dataset beta of Beta: ask for beta"),
    ],
)
def test_values_that_the_task_changes_are_refused_at_the_start(
    words: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(scaling.app, ["--task", f"{__name__}:Rounded", "--N", "8", *words.split()], why, tmp_path, capsys)


def test_no_training_without_a_sample_is_asked_for(heads: str, ask: Ask) -> None:
    assert {b.counts.low for b in ask(f"--task {heads} --N 8,12").brackets} == {1}
    assert {b.counts.low for b in ask(f"--task {heads} --N 8,12 --between 0..9").brackets} == {1}


class Seeded(Toy):
    """It has fewer samples for one of its seeds."""

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=19 if (spec.N, spec.seed) == (12, 2) else 20)


def test_no_seeds_are_added_where_the_counts_of_others_are_not_known(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"--task {__name__}:Seeded --N 8,12"
    assert [b.counts.high for b in ask(words).brackets] == [20, 20, 20, 20, 20, 19]
    assert run(scaling.app, [*words.split(), "--until-width", "0.2"]) == 2
    told = "the task allows other data counts with seed 2 than with seed 0 at N = 12: omit --until-width, and give more --seeds"
    assert told in capsys.readouterr().err


# The report


def test_the_report_leaves_other_axes_out_and_their_runs_are_not_guessed(ask: Ask, tmp_path: Path) -> None:
    mlp = f"--decoder mlp --datasets bumps --precision float32 --seeds 1 --resolution 0.2 --store {tmp_path}"
    launched(ask(f"{WIDTH} --N 12 --seeds 1 --store {tmp_path}"), tmp_path)
    launched(ask(f"--along width=8,16 --N 12 {mlp}"), tmp_path)
    results = Results.of(tmp_path)
    assert results.notices == []
    assert len(results.asked) == 2
    assert scaling_answer(results) is None
    printed = launched(ask(f"--N 8,12 {mlp}"), tmp_path)
    found = scaling_answer(Results.of(tmp_path))
    assert found is not None
    assert (found.guessed, found.others) == (False, 0)
    assert json.loads(json.dumps(found.answer.to_json()))["thresholds"] == printed["thresholds"]


def test_a_question_is_asked_again_with_its_axes(ask: Ask, tmp_path: Path) -> None:
    for command in (
        f"{WIDTH} --N 12",
        "--along decoder=cnn,mlp --N 12 --datasets bumps --precision float32",
        "--least sigma --between 1..2 --data-count 30 --N 12 --datasets bumps --precision float32",
    ):
        study = ask(f"{command} --seeds 1 --store {tmp_path}")
        launched(study, tmp_path)
        [again] = [one for one in Results.of(tmp_path).asked if one.question.name == study.question.name]
        rows = Rows(ResultStore(tmp_path, read_only=True).rows())
        assert again.search.answer(rows) == study.results(rows)  # type: ignore[union-attr]
        assert again.families == set(study.search.families)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"least": "foo"}, "its runs have no setting 'foo'"),
        ({"between": [8]}, "between must be two numbers, not [8]"),
        ({"between": [4, "x"]}, "a range is between two numbers, not 'x'"),
        ({"between": [0.5, 8.0]}, "between must be two values of width, not [0.5, 8.0]"),
        ({"between": [4, 10**9]}, "width must be a whole number from 1 to"),
        ({"between": None}, "the least width is searched in a range, and there is none"),
    ],
)
def test_a_question_of_axes_that_nobody_could_ask_is_named_and_passed_over(
    change: dict[str, Any], why: str, ask: Ask, tmp_path: Path
) -> None:
    study = ask(f"{WIDTH} --N 12 --seeds 1 --store {tmp_path}")
    spec = study.brackets[0].at(8)
    study.settings |= change
    with ResultStore(tmp_path) as store:
        store.append([row(spec, "passed", "target")])
        save_question(store, study.question)
    results = Results.of(tmp_path)
    assert results.asked == []
    [notice] = results.notices
    assert why in notice


def test_no_axis_has_the_name_of_a_column_of_the_tables() -> None:
    """One would stand in the place of the other, and a law go through the wrong numbers."""
    template = RunSpec(task="a:B", dataset="d", N=8, data_count=0, seed=0)
    bracket = Bracket(template=template, task_version="1", counts=Counts(1, 5))
    [result] = ThresholdSearch([bracket]).answer(Rows())
    assert result.to_row().keys() - {"decoder", "N"} <= set(COLUMNS)
