"""How the page shows its studies: beside each other, in words and means, with pictures, and in print."""

import dataclasses
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from safetensors import torch as safetensors

from analysis import regularization
from analysis.generators import is_share
from analysis.report.build import Builder
from analysis.report.cells import heads_of, lines_of
from analysis.report.compare import side_by_side
from analysis.report.drawn import MOST
from analysis.report.kinds import _generators, _means_in_words, _seen, _table
from analysis.report.page import Report
from analysis.report.studies import _beside, studies_of
from analysis.report.told import ANSWERED, Around, Sheet, Told
from analysis.results import Results
from analysis.scaling import Answer
from orchestrator.command.files import csv_bytes
from orchestrator.searches import Rows
from orchestrator.searches.axes import USUAL, Axes
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore, make_row, save_question
from tests.analysis.asked_studies import AROUND, QUESTIONS, TOY, Ask, Drawing, asking, told_of
from tests.analysis.made_objectives import rows_of
from tests.analysis.test_asked import launched, train
from trainables.bumps import BumpTask
from trainables.spec import RunSpec

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asking(monkeypatch)


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


def test_means_from_a_thousand_on_are_whole_numbers(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --seeds 1 --store {tmp_path}"))
    [told] = told_of(tmp_path)
    found = {8: 999, 16: 1904, 24: 1234567}
    results = [dataclasses.replace(one, threshold=found[one.along], upper=found[one.along]) for one in told.thresholds]
    [means] = _means_in_words(Answer.of_results(results, {}), results)
    assert means == "toys: 999 at N = 8, 1,904 at N = 16, 1,234,567 at N = 24 (geometric means over seeds)"
    answer = Answer.of_results(results, {})
    answer.summary["total_images"] = [99.96, 999.6, 1000.4]
    [means] = _means_in_words(answer, results)
    assert means == "toys: 100 at N = 8, 1,000 at N = 16, 1,000 at N = 24 (geometric means over seeds)"


def test_a_figure_of_thresholds_says_what_is_drawn_in_it(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    [told] = told_of(tmp_path)

    def shown(changed: Callable[[ThresholdResult], bool], verdict: str, found: Sequence[ThresholdResult]) -> str:
        other = {"verdict": verdict, "threshold": None, "upper": None}
        results = [dataclasses.replace(one, **other) if changed(one) else one for one in found]
        return _seen(Answer.of_results(results, {}))

    every, first = told.thresholds, [one for one in told.thresholds if one.seed == 0]
    small = "small dots are thresholds of seeds"
    large = f"{small}, large ones their geometric means with 95 % intervals"
    assert told.pictures[0].alt == f"{large}; the line is the fitted power law"
    twice = [*every, *(dataclasses.replace(one, dataset="others") for one in every)]
    assert shown(lambda one: False, "", twice) == f"{large}; the lines are the fitted power laws"
    assert shown(lambda one: one.along > 8, "failed", every) == large
    some = shown(lambda one: one.along == 8 and one.seed > 0, "failed", every)
    assert some == f"{large}, or with the bracket of the only seed; the line is the fitted power law"
    higher = "triangles are seeds whose thresholds lie higher"
    assert shown(lambda one: one.along == 24 and one.seed == 0, "none reached", every) == (
        f"{large}, {higher}; the line is the fitted power law"
    )
    assert shown(lambda one: one.seed == 0, "none reached", every) == f"{small}, {higher}"
    assert shown(lambda one: True, "none reached", every) == higher
    assert shown(lambda one: True, "non-monotone", every) == higher
    single = "dots are thresholds of one seed each, bars their brackets"
    assert shown(lambda one: False, "", first) == f"{single}; the line is the fitted power law"
    assert shown(lambda one: one.along > 8, "none reached", first) == f"{single}, {higher}"
    least = [dataclasses.replace(one, verdict="minimum", axes=Axes("width", "N")) for one in every]
    lower = "triangles that point down are seeds that pass at the lowest value, so less may do"
    assert _seen(Answer.of_results(least, {})) == f"{large}, {lower}"
    passing = {"verdict": "non-monotone", "threshold": None, "upper": None, "lower": 4, "tried": ((4, True), (9, False))}
    assert _seen(Answer.of_results([dataclasses.replace(one, **passing) for one in every], {})) == higher


def test_a_page_has_a_figure_where_every_seed_misses_with_the_highest_count(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    hurt = [dataclasses.replace(one, verdict="non-monotone", threshold=None, upper=None) for one in told.thresholds]
    monkeypatch.setattr(ThresholdSearch, "answer", lambda *_: hurt)
    [told] = told_of(tmp_path)
    assert [picture.name for picture in told.pictures] == ["scaling"]
    assert "toys: more than this" in [text.get_text() for text in told.pictures[0].draw().axes[0].get_legend().get_texts()]


@pytest.mark.parametrize("native", [False, True], ids=["AVX2", "bfloat16"])
@pytest.mark.parametrize("study", ["encodings", "geometry"])
def test_lines_of_a_figure_of_settings_have_labels_of_their_own(
    study: str, native: bool, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fastest = lambda decoder, _: "bfloat16" if native and decoder == "cnn" else "float32"  # noqa: E731
    monkeypatch.setattr("trainables.training.precision.fastest_precision", fastest)
    launched(tmp_path, ask(f"{study} --N 12 --seeds 2 --store {tmp_path}"))
    [told] = told_of(tmp_path)
    figure = told.pictures[0].draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == len(set(labels)) == {"encodings": 20, "geometry": 24}[study]
    assert labels[0] == {
        "encodings": "decoder cnn, depth 4, encoding bump, holdout center",
        "geometry": "dataset bumps, decoder cnn, depth 2, encoding bump",
    }[study], "width, precision and the number of images follow from these"  # fmt: skip
    assert "width" in told.sheets[0].table
    assert ("precision" in told.sheets[0].table) == native


@pytest.mark.slow(2)
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
    waiting = dataclasses.replace(told[0].thresholds[0], threshold=None, verdict="open")
    some = dataclasses.replace(told[0], thresholds=[waiting, *told[0].thresholds[1:]])
    [compared] = side_by_side([some], {"there": told_of(there)})
    shown = list(compared.sheets[1].table[table.columns[2]])
    seeds = sum(one.along == waiting.along for one in some.thresholds)
    assert shown[0].endswith(f" ({seeds - 1} of {seeds} seeds)")
    assert shown[1:] == list(table[table.columns[2]])[1:]


def test_answers_of_several_lines_stand_side_by_side_whole(ask: Ask, tmp_path: Path) -> None:
    launched(tmp_path, ask(f"{QUESTIONS['two objectives']} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    front = ["on the front: a (x)", "  mse 1", "  id_mse 2", "on the front: b (y)", "  mse 2", "  id_mse 1"]
    for lines, whole in ((front, 6), ([*front, "a against b"], 6), (["winner: a (x)", "  mse 1", "a against b"], 2)):
        [compared] = side_by_side([dataclasses.replace(told, lines=lines)], {"there": [told]})
        answer = compared.sheets[0].table.set_index("setting").loc["answer"].iloc[0]
        assert answer == "; ".join(line.strip() for line in lines[:whole])


@pytest.mark.parametrize("beside", [False, True])
def test_where_more_studies_are_there_than_stand_side_by_side_the_page_says_so(beside: bool, ask: Ask, tmp_path: Path) -> None:
    question = ask(f"{QUESTIONS['thresholds']} --store {tmp_path}").question
    questions = [dataclasses.replace(question, task_version=str(number)) for number in range(30)]
    told = [Told(one, "t", ANSWERED, "", [], frozenset()) for one in questions]

    def page(*told: Told) -> str:
        return Report.of((), Results.of(tmp_path), told, side_by_side(told[:-1] if beside else told, others(told))).html()

    def others(told: Sequence[Told]) -> dict[str, Sequence[Told]]:
        return {"there": told[-1:]} if beside else {}

    launched(tmp_path, ask(f"{QUESTIONS['thresholds']} --store {tmp_path}"), most=0)
    assert f"<p>Shown are {'' if beside else 'the latest '}12 of 30.</p>" in page(*told)
    assert "Shown are" not in page(*told[:12])


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


def test_shares_of_generators_do_not_read_as_if_they_reached_what_they_miss() -> None:
    rows = [{**row, "parents": None} for row in rows_of(dit=0.5997)]
    search = SimpleNamespace(specs=[RunSpec.from_dict(row) for row in rows], replaced=lambda _: 0)
    around = SimpleNamespace(measured=dict)
    question = SimpleNamespace(settings={"store": "results"}, study="objectives")
    _, [sheet], _ = _generators(rows, search, question, Rows(rows), around)  # type: ignore[arg-type]
    names = [*sheet.table]
    cells = {name: {line[names.index(name)].text for line in lines_of(sheet)} for name in ("level2_both", "level2_oracle_peak")}
    assert cells == {"level2_both": {"0.5997"}, "level2_oracle_peak": {"0.5997"}}
    of_shares = {name for name in names if is_share(name)}
    assert of_shares >= {"seen_both", "agree", "agree_level2", "probe_tokens", "unseen_codes", "dit_level2"}
    assert not of_shares & {"seed", "steps", "status", "rise_from", "gate_1", "key"}
    few = pd.DataFrame([{"unseen_codes": 0.01009, "unseen_pairs": 0.2, "loss": 0.59971}])
    bounded = Sheet("runs", "", few, shares=of_shares)
    assert [cell.text for cell in lines_of(bounded)[0]] == ["0.0101", "0.2", "0.6"], "what is to be small is rounded up"


def test_settings_and_measures_that_are_called_like_columns_of_this_project_keep_their_names(ask: Ask, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"task": "a:B", "dataset": "d", "N": 8, "data_count": 4}
    specs = [RunSpec(**fields, seed=seed, options=(("images", images),)) for images in (1, 2) for seed in range(2)]
    ended = {"status": "missed", "reason": "", "accuracy": 0.89996, "id_mse": 0.5}
    measures = {"passes": 0.5, "fixed_images": 7.0}
    rows = [make_row(spec, task_version="1", fixed_count=0, measures=measures, **ended) for spec in specs]
    _, sheets, _ = _table(rows, SimpleNamespace(specs=specs), None, None, None)  # type: ignore[arg-type]
    for sheet in sheets:
        heads = [cell.text for cell in heads_of(sheet)]
        assert {"images", "passes", "fixed images", "accuracy", "ID MSE"} <= set(heads)
        accuracy = list(sheet.table).index("accuracy")
        assert {line[accuracy].text for line in lines_of(sheet)} == {"0.8999"}, "as none that reaches 0.9"
    program = "--program 'echo {data_count} {seed} {images}' --counts 1..9 --vary images=1"
    search = "--objective accuracy --search images=1|2 --sampler grid --trials 2 --confirm 1 --seeds 2"
    launched(tmp_path, ask(f"tune {program} {search} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    assert all("images" in [cell.text for cell in heads_of(sheet)] for sheet in told.sheets)
    assert [sheet.name for sheet in told.sheets] == ["confirmed", "trials"]


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
    only = "100 (1 of 3 seeds)"
    assert [*line(first, one).values()] == [pytest.approx(200), only, 1.0], "the same with the seed that both have"
    other = told(s3=(50, "reached"))
    assert [*line(first, other).values()] == pytest.approx([200, 50]), "no seed in common"
    least = told(s0=(100, "minimum"), s1=(200, "reached"))
    assert [*line(first, least).values()] == [pytest.approx(200), "at most 141"]
    assert [*line(least, first, one).values()] == ["at most 141", pytest.approx(200), only]
    none = told(s0=(0, "reached"), s1=(8, "reached"))
    assert [*line(none, first).values()] == pytest.approx([2, 200, 50 * 2**0.5]), "none counts as half a one"


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


def table_of(specs: list[RunSpec], *ended: dict[str, Any]) -> Any:
    """The table of means of runs that ended so."""
    usual = {"task_version": "1", "fixed_count": 0, "status": "missed", "reason": ""}
    rows = [make_row(spec, **usual, **one) for spec, one in zip(specs, ended, strict=True)]
    _, (means, _), _ = _table(rows, SimpleNamespace(specs=specs), None, None, None)  # type: ignore[arg-type]
    return means.table


def test_settings_that_agree_in_six_digits_are_lines_of_their_own() -> None:
    fields: dict[str, Any] = {"task": "a:B", "dataset": "d", "N": 8, "data_count": 4}
    specs = [RunSpec(**fields, seed=seed, lr=lr) for lr in (0.0012345678, 0.0012345679) for seed in range(2)]
    table = table_of(specs, *({"accuracy": accuracy} for accuracy in (0.125, 0.125, 0.75, 1.0)))
    assert table[["lr", "seeds", "accuracy"]].to_numpy().tolist() == [[0.0012345678, 2, 0.125], [0.0012345679, 2, 0.875]]


def test_a_number_that_not_all_seeds_have_says_how_many_do_and_texts_are_none() -> None:
    fields: dict[str, Any] = {"task": "a:B", "dataset": "d", "N": 8, "data_count": 4}
    specs = [RunSpec(**fields, seed=seed, width=width) for width in (8, 16) for seed in range(3)]
    first: list[dict[str, Any]] = [{"m": 1.0, "of": "n/a"}, {"m": 3.0, "of": 2}, {"m": None, "of": 10**400}]
    table = table_of(specs, *({"accuracy": 0.5, "measures": one} for one in [*first, *[{"of": 4}] * 3]))
    assert list(table) == ["width", "seeds", "accuracy", "accuracy_sd", "m", "m_sd", "m_seeds", "of", "of_sd", "of_seeds"]
    assert table[["seeds", "m_seeds", "of_seeds"]].to_numpy().tolist() == [[3, 2, 1], [3, 0, 3]]
    assert table["m"][0] == 2.0
    assert table["of"].tolist() == [2.0, 4.0]


def test_a_measure_with_half_a_letter_in_its_name_costs_no_table() -> None:
    specs = [RunSpec(task="a:B", dataset="d", N=8, data_count=4, seed=seed, options=(("self", 1),)) for seed in range(2)]
    table = table_of(specs, *({"measures": {"\ud800": value}} for value in (1.0, 3.0)))
    assert table["\\ud800"].tolist() == [2.0]
    assert b"\\ud800" in csv_bytes(table)


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


def test_a_question_about_several_targets_names_them_once(ask: Ask, tmp_path: Path) -> None:
    words = "scaling --decoder mlp --along target=0.6,0.9 --N 12 --seeds 1 --datasets bumps"
    launched(tmp_path, ask(f"{words} --store {tmp_path}"), most=0)
    wanted = "the mlp reaches the accuracy `target` on what is held out, at N = 12 and target = 0.6, 0.9?"
    assert [one.title for one in told_of(tmp_path)] == [f"What is the least number of training samples with which {wanted}"]


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
    for deep in (9, *range(900, 1000, 10), 10**5):  # what json can read at one depth it may not write at another
        files = f"[0,{deep * '['}{deep * ']'}]"
        assert _beside([told_with("trainables.program:ProgramTask", {"options": {"files": one}}) for one in ("{}", files)]) == [
            "", f"files {files if deep < 60 else files[:59] + '…'}"
        ]  # fmt: skip


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


@pytest.mark.slow(2)
def test_figures_of_penalties_are_drawn_when_they_are_shown_and_each_by_itself(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(answer: regularization.Answer) -> Figure:
        drawn.append(len(answer.averaged))
        raise RuntimeError("no room")

    drawn = list[int]()
    monkeypatch.setattr("analysis.figures.regularization.draw_errors", fails)
    launched(tmp_path, ask(f"{QUESTIONS['penalties']} --store {tmp_path}"))
    [told] = told_of(tmp_path)
    assert [picture.name for picture in told.pictures] == ["errors", "search"]
    seen = "ID and OOD error of every setting: geometric means with 95 % intervals; dots are seeds"
    assert told.pictures[0].alt == seen
    assert drawn == []
    report = Report.of((), Results.of(tmp_path), [told])
    assert drawn == [10]
    assert [bool(one.png) for one in report.studies[0].pictures] == [False, True]
    assert report.errors == [f"{told.id}-errors: RuntimeError: no room"]


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
