"""The signal study: what it searches, how a chain that fails at a contrast is told, and its page."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from analysis import generators
from analysis.figures.signal import MARKERS, draw
from analysis.generators import Measured
from analysis.remake import search_of
from analysis.report.studies import studies_of
from analysis.report.told import ANSWERED, DOUBTFUL, Around, Told
from analysis.results import Results
from analysis.signal import WORST, Answer, between_classes
from orchestrator import launch, signal
from orchestrator.command.cli import run
from orchestrator.command.stages import Stages
from orchestrator.engine import estimate
from orchestrator.engine.estimate import GUESSED_PROBES
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.searches import Row, Rows
from orchestrator.searches.needs import Staged
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import MeasureTable, Question, ResultStore, save_question
from tests.analysis.made_objectives import LOOKS, generator_row, parent_rows, storable
from tests.conftest import check_refusal, trained_by
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.judge import BY_FACTOR
from trainables.generative.shapes import FACTORS, ShapeSettings
from trainables.needs import Tasks
from trainables.settings import value_of
from trainables.spec import RunSpec

pytestmark = pytest.mark.usefixtures("quick_oracle")
SHORT = "--tier smoke --precision float32"
FRESH = "level2_fresh"
NEEDED = {"shape": 0.5, "size": 0.2, "colour": 0.1}
"""The contrasts from which made generators compose. It is the tokenizer that does not keep sizes below."""


def study_of(words: str, monkeypatch: pytest.MonkeyPatch) -> signal.SignalStudy:
    found: list[Any] = []
    monkeypatch.setattr(signal, "launch", lambda study, where: found.append((study, where)) or 0)
    assert run(signal.app, words.split()) == 0
    assert not found[0][1].gates
    study: signal.SignalStudy = found[0][0]
    return study


def made(spec: RunSpec) -> list[Row]:
    """A generator, and the runs that it needs."""
    factor, contrast = str(value_of(spec, "faint")), float(str(value_of(spec, "contrast")))
    passes = contrast >= NEEDED[factor]
    row = generator_row(spec, level2=0.8 if passes else 0.2, status="passed" if passes else "missed", accuracy=0.875)
    for name, told in BY_FACTOR.items():
        row["curve_summary"][f"{told}_level2"] = [0.3 if name == "shape" and not passes else 0.9] * LOOKS
        row["curve_summary"]["both_least"] = [0.25] * LOOKS
        row["curve_summary"][f"{told}_least"] = [0.2 if name == "colour" and not passes else 0.3] * LOOKS
    return [row, *parent_rows(spec, reconstructed=1.0 if passes or factor != "size" else 0.5)]


def answered(study: signal.SignalStudy, make: Callable[[RunSpec], list[Row]] = made) -> Rows:
    """All rows that the search asks for."""
    rows = Rows()
    while asked := study.search.propose(rows, 1):
        for row in make(asked[0]):
            rows.add(row)
    return rows


def test_every_factor_and_seed_has_a_search_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"{SHORT} --between 0.1..0.9 --share 0.7 --family maskgit --seeds 2 --first-seed 3 --steps 30"
    study = study_of(words, monkeypatch)
    assert {bracket.template.max_steps for bracket in study.brackets} == {study.settings["max_steps"]} == {30}
    names = ("faint", "seed", "decoder", "gate", "target", "stop")
    found = [tuple(value_of(bracket.template, name) for name in names) for bracket in study.brackets]
    assert found == [(factor, seed, "maskgit", 0.7, 1.0, "early") for factor in FACTORS for seed in (3, 4)]
    assert {(bracket.counts.low, bracket.counts.high) for bracket in study.brackets} == {(0.1, 0.9)}
    [asked] = study.search.propose(Rows(), 1)
    assert (value_of(asked, "probe_lessons"), study.settings["options"]) == ("checked", {"probe_lessons": "checked"})
    assert asked.stop == "target"  # the stopping rule gives none up
    assert all(study.keeps_weights(bracket.template) for bracket in study.brackets)
    parents = Tasks(GeneratorTask()).needs(asked)
    assert sorted(parents) == ["probe", "tokenizer"]
    for parent in parents.values():
        assert (value_of(parent, "faint"), value_of(parent, "contrast")) == ("shape", value_of(asked, "contrast"))
    assert value_of(parents["probe"], "lessons") == value_of(parents["tokenizer"], "probe_lessons") == "checked"


def test_a_plan_counts_the_runs_that_unnamed_runs_will_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of(f"{SHORT} --seeds 1", monkeypatch)
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 1.0)
    with ResultStore(tmp_path) as store:
        rows = Rows()
        stages = Stages(study.task, study.search, study.question, store, rows, gates=False)
        table, work = stages.plan(*study.plan(rows))
        cells = [[str(cell) for cell in column.cells] for column in table.renderables[0].columns]
        assert cells[:3] == [["probe", "tokenizer"], ["0", "0"], ["about 15", "about 15"]]
        runs, steps = 3 * GUESSED_PROBES, 60
        plan, guessed = study.plan(rows)
        assert "/weights, the table and the figure to" in plan.renderables[-1].plain
        assert work.seconds == pytest.approx(guessed.seconds + 2 * runs * steps)
        assert stages.work_left(None) is None
        for row in made(study.search.propose(rows, 1)[0]):
            rows.add({**row, "seconds": 120.0, "steps": 60})
        own = study.work_left(rows)
        left = sum(r.probes_left or GUESSED_PROBES for r in study.results(rows))
        assert stages.work_left(own).seconds == pytest.approx(own.seconds + 2 * 120 * left, rel=0.1)


def test_the_plan_says_what_the_options_mean_and_nothing_of_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 1.0)

    def told(split: str) -> list[str]:
        console = Console(width=400, file=StringIO())
        console.print(study_of(f"{SHORT} --seeds 1 --factors colour --split {split}", monkeypatch).plan(Rows())[0])
        lines = console.file.getvalue().splitlines()
        return [line.rstrip() for line in lines if "split" in line or "composition" in line or "claim" in line]

    assert told("000") == [
        "no seen composition has a plus (the first bit is 1), a small figure (the second bit is 1) or a blue figure (the third "
        "bit is 1): no model can learn what it never sees, so add such compositions to --split",
        "the farthest compositions are of level 3, so columns and figure are of that level",
    ]
    assert told("100,000,010,001") == [
        "--split 100,000,010,001 is train1 in another order, and its runs are trained beside those of the name: type train1 to "
        "share them"
    ]
    assert told("fail1") == ["the farthest compositions are of level 1, so columns and figure are of that level"]
    assert told("train1") == []


def test_a_usual_contrast_is_looked_up_though_runs_do_not_carry_it(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch)
    row = generator_row(study.brackets[0].at(1.0), accuracy=0.5, status="missed")
    assert "contrast" not in row["options"]
    assert study.line(row).startswith("shapes2d faint=colour seed 0: contrast 1.0 missed")


@pytest.mark.slow(2)
def test_the_answer_has_thresholds_and_says_what_fails_below_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of(f"{SHORT} --seeds 2 --resolution 0.1 --store {tmp_path}", monkeypatch)
    rows = answered(study)
    assert study.answered(rows)
    answer = study.answer(rows)
    factors = {row["factor"]: row for row in answer["factors"]}
    for factor, least in NEEDED.items():
        found = factors[factor]
        assert found["lower"] < least <= found["contrast"] <= 1.1 * least
        assert found["contrast"] < found["upper"] < 1.4 * found["contrast"], "seeds that end alike are not known to be alike"
        assert factors[factor]["lost"] == "colour (2 of 2)"
    held = {factor: row["held_by"] for factor, row in factors.items()}
    assert held == {"shape": "generator (2 of 2)", "size": "tokenizer (2 of 2)", "colour": "generator (2 of 2)"}
    of_colour = factors["colour"]
    assert of_colour["difference"] == pytest.approx(of_colour["contrast"] * of_colour["usual_difference"], rel=0.02)
    assert {row["held_by"] for row in answer["runs"] if row["status"] == "passed"} == {""}
    assert {row[WORST] for row in answer["runs"]} == {0.25}
    lines = study._answer(rows).lines()
    assert lines[0].startswith("shape: composes from a contrast of 0.5")
    assert "; at the contrast below, what fails is the generator (2 of 2); what is misread most" in lines[0]
    assert json.dumps(answer, allow_nan=False)
    names = {file.name for file in study.write(rows, tmp_path / "out", force=True)}
    assert names == {"signal.csv", "signal-thresholds.csv", "signal.json", "signal.png", "signal.svg"}
    figure = draw(study._answer(rows))
    assert [axes.get_title() for axes in figure.axes] == [
        f"{factor} faint: from {factors[factor]['contrast']:.3g} on" for factor in FACTORS
    ]
    for axes, line in zip(figure.axes, lines, strict=True):
        assert axes.get_title().removesuffix(" on").rpartition(" ")[2] in line


def test_an_answer_is_written_once_until_it_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of("--seeds 1 --resolution 0.5", monkeypatch)
    rows, written = answered(study), []
    monkeypatch.setattr(signal.SignalStudy, "write_answer", lambda _, answer, out, told: written.append(answer) or [out])
    assert list(study.write(rows, tmp_path, force=False)) == [tmp_path]
    assert list(study.write(rows, tmp_path, force=False)) == [], "nothing more is answered"
    assert list(study.write(rows, tmp_path, force=True)) == [tmp_path]
    assert len(written) == 1
    study._take_in({})  # as if more had been measured
    assert list(study.write(rows, tmp_path, force=True)) == [tmp_path]
    assert len(written) == 2


def test_a_factor_that_no_run_composes_has_no_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch)

    def missed(spec: RunSpec) -> list[Row]:
        return [generator_row(spec, level2=0.1, status="missed", accuracy=0.5), *parent_rows(spec, read=0.5)]

    rows = answered(study, missed)
    [line] = study._answer(rows).lines()
    told = "colour: no threshold, since 0 of 1 seeds compose from some contrast on; at the highest contrast that misses, "
    assert line == told + "what fails is the probe (1 of 1)"
    assert draw(study._answer(rows)).axes[0].get_title() == "colour faint"


def test_a_seed_that_composes_between_contrasts_that_miss_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 3 --factors colour", monkeypatch)

    def only_between(spec: RunSpec) -> list[Row]:
        contrast = float(str(value_of(spec, "contrast")))
        passes = 0.34 < contrast < 0.38 if spec.seed == 0 else contrast > 0.4
        row = generator_row(spec, status="passed" if passes else "missed", accuracy=1.0 if passes else 0.5)
        return [row, *parent_rows(spec, read=0.5 if contrast == 1.0 else 1.0)]

    [line] = study._answer(answered(study, only_between)).lines()
    told = "colour: no threshold, since 2 of 3 seeds compose from some contrast on (1 non-monotone)"
    assert line == f"{told}; at the highest contrast that misses, what fails is the generator (2 of 3) or probe (1 of 3)"


def test_every_seed_has_its_line_and_a_run_that_missed_is_seen_over_one_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 2 --factors colour", monkeypatch)
    figure = draw(study._answer(answered(study)))
    lines = figure.axes[0].lines
    of_shape = [line for line in lines if line.get_marker() == MARKERS["shape"]]
    assert len(of_shape) == 2
    by_face = {line.get_markerfacecolor(): line for line in lines if line.get_marker() == "o"}
    missed, passed = by_face["none"], by_face["black"]
    assert missed.get_markersize() > 1.4 * passed.get_markersize()
    assert missed.get_zorder() > passed.get_zorder()
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_the_lines_of_a_panel_are_of_their_factors_and_the_band_is_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 2 --factors colour", monkeypatch)
    answer = study._answer(answered(study))
    [axes] = draw(answer).axes
    runs = answer.runs[answer.runs["seed"] == 0].sort_values("contrast")
    for factor in FACTORS:
        line = next(one for one in axes.lines if one.get_marker() == MARKERS[factor])
        assert list(line.get_ydata()) == runs[f"level2_{factor}"].tolist()
    [band] = axes.patches
    [row] = answer.factors.to_dict("records")
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((row["lower"], row["upper"]))


def needing(study: signal.SignalStudy, *least: float) -> dict[str, Any]:
    """What is said of the only factor if runs of each seed compose from these contrasts on."""

    def make(spec: RunSpec) -> list[Row]:
        passes = float(str(value_of(spec, "contrast"))) >= least[spec.seed]
        row = generator_row(spec, status="passed" if passes else "missed", accuracy=1.0 if passes else 0.5)
        for name, told in BY_FACTOR.items():
            row["curve_summary"][f"{told}_least"] = [0.2 if name == "colour" and not passes else 0.3] * LOOKS
        return [row, *parent_rows(spec)]

    [found] = study._answer(answered(study, make)).to_json()["factors"]
    return found


def test_an_interval_that_ends_at_the_usual_contrast_has_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    found = needing(study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch), 0.999)
    assert (found["contrast"], found["upper"], found["note"]) == (1.0, 1.0, "one seed: only its bracket")


def test_a_seed_that_composes_at_the_lowest_contrast_leaves_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is misread is then that of the other seed alone."""
    words = f"{SHORT} --seeds 2 --factors colour --between 0.2..1 --resolution 0.1"
    found = needing(study_of(words, monkeypatch), 0.0, 0.9)
    assert found["lower"] is None
    assert "no upper bound" not in found["note"]
    assert needing(study_of(words, monkeypatch), 0.0, 0.5)["lost"] == "colour (1 of 1)"


def test_what_was_measured_of_fresh_samples_is_a_column_more(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch)
    rows = answered(study)
    assert not any(FRESH in one for one in study.answer(rows)["runs"])
    key = study.search.runs(rows)[0]["key"]
    table = [{"key": key, "measure": "generated", "quantity": "both_level2", "value": 0.7, "layer": None}]
    monkeypatch.setattr(MeasureTable, "rows", lambda *_: table)
    assert {one["key"]: one[FRESH] for one in study.answer(rows)["runs"] if one[FRESH] is not None} == {key: 0.7}


def test_files_have_every_finished_run_also_of_a_threshold_that_is_still_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch)
    rows, told = Rows(), list[int]()
    while len(told) < 3:
        [asked] = study.search.propose(rows, 1)
        for row in made(asked):
            rows.add(row)
        study.table(rows, {})
        study.write(rows, tmp_path, force=True)
        assert study.results(rows)[0].verdict == "open"
        told.append(len(json.loads((tmp_path / "signal.json").read_text())["runs"]))
    assert told == [1, 2, 3]
    assert len((tmp_path / "signal.csv").read_text().splitlines()) == 1 + 3


def test_the_table_does_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour", monkeypatch)
    rows, asked = answered(study), list[str]()
    key = study.search.runs(rows)[0]["key"]
    table = [{"key": key, "measure": "generated", "quantity": "both_level2", "value": 0.7, "layer": None}]
    monkeypatch.setattr(MeasureTable, "rows", lambda *_: asked.append("read") or table)
    monkeypatch.setattr(MeasureTable, "close", lambda _: asked.append("closed"))
    study.table(rows, {})
    assert asked == []
    study.read_measures()
    assert asked == ["read", "closed"]
    assert any(one[FRESH] == 0.7 for one in study._answer(rows).to_json()["runs"])
    known = study._answer(rows)
    study.write(rows, tmp_path, force=False)
    study.table(rows, {})
    assert asked == ["read", "closed"] * 2
    assert study._answer(rows) is known, "nothing more was measured"


def test_a_factor_that_always_composes_has_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 3 --factors colour --between 0.2..1", monkeypatch)
    [factor] = study.answer(answered(study))["factors"]
    told = "3 of 3 pass at the lowest contrast, so less may do"
    assert (factor["contrast"], factor["lower"], factor["note"]) == (0.2, None, told)
    [line] = study._answer(answered(study)).lines()
    assert line.startswith("colour: composes from a contrast of 0.2 on, where its classes differ by 0.0")
    assert line.endswith(f" ({told})")


def test_a_contrast_that_may_be_lower_is_drawn_as_at_most_this(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line, dashed = "the vertical line is the least contrast", "where the line is dashed, the least contrast is at most this"
    for factors, between, titles, told, alt in (
        ("colour", "0.2..1", ["colour faint: from at most 0.2 on"], ["least contrast: at most this"], f"{line}; {dashed}"),
        (
            "colour,size",
            "0.15..1",
            ["colour faint: from at most 0.15 on", "size faint: from 0.238 on"],
            ["least contrast", "its 95 % interval", "least contrast: at most this"],
            f"{line}, the band its 95 % interval; {dashed}",
        ),
    ):
        store = tmp_path / factors
        study = study_of(f"{SHORT} --seeds 3 --factors {factors} --between {between} --store {store}", monkeypatch)
        rows = answered(study)
        answer = study._answer(rows)
        panels = [axes for axes in draw(answer).axes if axes.get_title()]
        assert [axes.get_title() for axes in panels] == titles
        styles = [one.get_linestyle() for axes in panels for one in axes.lines if one.get_color() == "0.4"]
        assert styles == ["--" if "at most" in title else "-" for title in titles]
        assert legend_of(answer)[5:] == told
        [shown], _ = on_page(study, rows, store, {})
        assert shown.pictures[0].alt.endswith(f"; {alt}")


def test_an_interval_ends_where_contrasts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 3 --factors colour --resolution 0.1", monkeypatch)
    told = "the interval has no upper bound up to 1, the highest contrast"

    def needing(*least: float) -> Any:
        def make(spec: RunSpec) -> list[Row]:
            passes = float(str(value_of(spec, "contrast"))) >= least[spec.seed]
            row = generator_row(spec, status="passed" if passes else "missed", accuracy=1.0 if passes else 0.5)
            return [row, *parent_rows(spec)]

        return study._answer(answered(study, make))

    apart = needing(0.2, 0.6, 0.9)
    [factor] = apart.to_json()["factors"]
    assert factor["lower"] < factor["contrast"] < 1 == factor["upper"]
    assert factor["note"] == told
    assert f", 1] on, where its classes differ by {factor['difference']:.3f}" in apart.lines()[0]
    assert f" ({told})" in apart.lines()[0]
    close = needing(0.3, 0.3, 0.32)
    [factor] = close.to_json()["factors"]
    assert (factor["upper"] < 1, factor["note"]) == (True, "")
    never = needing(0.3, 0.3, 2.0)
    [factor] = never.to_json()["factors"]
    assert (factor["contrast"], factor["lower"], factor["upper"]) == (None, None, None), "a seed that never composes"
    assert not draw(never).axes[0].patches, "no band where there is no threshold"
    assert len(draw(close).axes[0].patches) == 1
    assert legend_of(never)[-1] == "colour alone"
    assert legend_of(close)[-2:] == ["least contrast", "its 95 % interval"]


def legend_of(answer: Answer) -> list[str]:
    """The words of the legend, none of which is cut off."""
    figure = draw(answer)
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("factors", ["colour", "colour,size", "colour,size,shape"])
def test_what_one_seed_has_is_called_a_bracket(factors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (study_of(f"{SHORT} --seeds {n} --factors {factors}", monkeypatch) for n in (1, 2))
    answer = one._answer(answered(one))
    assert legend_of(answer)[-2:] == ["least contrast", "its bracket (one seed)"]
    both = two._answer(answered(two))
    assert legend_of(both)[-1] == "its 95 % interval"
    if "," in factors:
        both.factors.loc[0, "seeds"] = 1
        assert legend_of(both)[-1] == "its 95 % interval, or bracket of the only seed"


@pytest.mark.parametrize("missed", [0, 1])
def test_a_factor_whose_runs_fail_is_told_and_the_others_go_on(
    missed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run that missed before another one failed says nothing of why there is no threshold."""
    study = study_of(f"{SHORT} --seeds 1 --factors colour,size", monkeypatch)
    failed = {"status": "failed", "error": "no memory", "curve_step": [], "curve_summary": {}, "steps": 0}
    rows = Rows()
    while any(r.verdict == "open" for r in study.results(rows) if r.along == "colour"):
        for spec in study.search.propose(rows, 2):
            if value_of(spec, "faint") == "colour":
                row = generator_row(spec)
                row["curve_summary"] |= {f"{told}_least": [0.2 + 0.1 * i] * LOOKS for i, told in enumerate(BY_FACTOR.values())}
                rows.add(row | ({"status": "missed"} if len(rows) < missed else failed))
    assert study.write(rows, tmp_path, force=False), "one factor is settled, and the other has not begun"
    assert study._answer(rows).lines() == ["colour: no threshold, since 0 of 0 seeds compose from some contrast on (1 failed)"]


def test_runs_of_another_pool_are_not_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    studies = [study_of(f"{SHORT} --seeds 1 --factors size --pool {pool}", monkeypatch) for pool in (64, 128)]
    alone = [answered(study) for study in studies]
    both = Rows([*alone[0], *alone[1]])
    for study, rows in zip(studies, alone, strict=True):
        keys = {row["key"] for row in rows if row["task"].endswith(":GeneratorTask")}
        assert {row["key"] for row in study.search.runs(both)} == keys
        assert {one["key"] for one in study.answer(both)["runs"]} == keys


def test_the_search_is_made_again_from_its_question(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 1", monkeypatch)
    rows = answered(study)
    question = Question.of(study.question.to_bytes(), study.question.name)
    again = search_of(question, None, list(rows))
    assert again.answer(rows) == study.results(rows)


def test_generators_are_trained_though_their_tokenizers_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors size", monkeypatch)
    rows = Rows()
    staged = Staged(study.search, Tasks(GeneratorTask()), lambda _: None, lambda _: True, gates=False)
    [probe] = staged.propose(rows, 1)
    assert probe.task.endswith(":ProbeTask")
    [asked] = study.search.propose(rows, 1)
    for row in parent_rows(asked, reconstructed=0.0):
        rows.add({**row, "status": "missed"})
    assert staged.propose(rows, 1) == [asked]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--factors hue", "--factors 'hue' is unknown: choose shape, size or colour"),
        ("--family gan", "--family 'gan' is unknown: choose dit, maskgit, givt or mar"),
        ("--family maskgit --tokenizer vae", "--family maskgit needs codes, and a vae has none: choose --tokenizer vq"),
        ("--option decoder=mar", "--option decoder has an option of its own: use --family"),
        ("--between 0..1", "contrast must be at least 0.01, not 0.0"),
        ("--between 0.1..2", "contrast must be at most 1, not 2.0"),
        ("--between 0.5", "--between '0.5' is no range: write LOW..HIGH, for example --between 0.05..1"),
        ("--between 0.9..0.1", "--between '0.9..0.1' is empty: write the smaller number first, --between 0.1..0.9"),
        ("--share 0", "--share must lie above 0 and be at most 1, not 0"),
        ("--resolution 1", "--resolution must lie between 0 and 1, not 1"),
        ("--steps 10,20", "--steps takes one number, not '10,20'"),
        ("--tier smoke --option stride=3", "--option stride=3 does not divide the 16 pixels of --tier smoke: choose 2, 4 or 8"),
        ("--option contrast=0.5", "--option contrast=0.5 is what this study varies or asks for"),
        ("--option rounds=4", "--option rounds is for family maskgit, givt or mar, not dit: omit it, or choose --fami"),
        ("--tokenizer vae --option codes=9", "--option codes is for tokenizer vq, not vae: omit it, or choose --tokenizer vq"),
        ("--option tokenizer_width=9", "is for network conv, not linear: omit it, or choose --option network=conv"),
        ("--dataset celeba", "--dataset celeba has no contrast to choose"),
        ("--gates", "--gates would leave thresholds open"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    words: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(signal.app, words.split(), hint, tmp_path, capsys)


def test_classes_differ_less_the_fainter_they_are() -> None:
    usual = [between_classes(ShapeSettings(), 24, factor) for factor in range(3)]
    for place, factor in enumerate(FACTORS):
        half = between_classes(ShapeSettings(faint=factor, contrast=0.5), 24, place)
        assert 0.45 < half / usual[place] < 0.7
        others = [between_classes(ShapeSettings(faint=factor, contrast=0.5), 24, other) for other in range(3) if other != place]
        assert others == pytest.approx([usual[other] for other in range(3) if other != place], rel=0.25)


@pytest.mark.parametrize(("split", "level"), [("fail1", 1), ("000", 3)])
def test_what_is_read_is_of_the_farthest_level_of_the_split(
    split: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour --between 0.5..1 --split {split}", monkeypatch)

    def of_level(spec: RunSpec) -> list[Row]:
        row, *parents = made(spec)
        curves = {name: one for name, one in row["curve_summary"].items() if not name.endswith("level2")}
        curves |= {f"{name}_level{level}": [share] * LOOKS for name, share in (("both", 0.7), ("both_colour", 0.8))}
        return [{**row, "curve_summary": curves}, *parents]

    rows = answered(study, of_level)
    keys = [row["key"] for row in study.search.runs(rows)]
    study._take_in({keys[0]: {f"both_level{level}": 0.6}})
    answer = study._answer(rows)
    assert set(answer.runs[f"level{level}_both"]) == {0.7}
    assert set(answer.runs[f"level{level}_colour"]) == {0.8}
    assert answer.runs.set_index("key")[f"level{level}_fresh"].dropna().to_dict() == {keys[0]: 0.6}
    assert not [name for name in answer.runs if name.startswith("level2")]
    [axes] = draw(answer).axes
    assert axes.get_ylabel() == f"read right at level {level}, last look"
    assert [list(line.get_ydata()) for line in axes.lines if line.get_marker() == "o"] == [[0.7] * len(keys)]


def on_page(study: signal.SignalStudy, rows: Rows, folder: Path, measured: Measured) -> tuple[list[Told], list[str]]:
    """What the report tells of a store with these rows."""
    with ResultStore(folder) as store:
        save_question(store, study.question)
        store.append(storable(rows))
    return studies_of(Results.of(folder), Around(lambda: measured, lambda key: b""))


@pytest.mark.slow(2)
def test_the_page_has_the_answer_of_the_launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of(f"{SHORT} --seeds 2 --store {tmp_path}", monkeypatch)
    rows = answered(study)
    [told], notices = on_page(study, rows, tmp_path, {})
    assert (notices, told.state) == ([], ANSWERED)
    assert list(told.lines) == [*study._answer(rows).lines(), *study.notes(rows)]
    sheets = {sheet.name: sheet.table for sheet in told.sheets}
    assert list(sheets["factors"]["factor"]) == list(FACTORS)
    assert set(sheets["runs"]["key"]) == told.keys == {row["key"] for row in study.search.runs(rows)}
    assert [picture.name for picture in told.pictures] == ["signal"]
    assert told.pictures[0].alt.endswith("; the vertical line is the least contrast, the band its 95 % interval")
    assert len(told.pictures[0].draw().axes) == len(FACTORS)
    monkeypatch.setattr(ThresholdSearch, "doubt", lambda *_: "it means nothing")
    [doubted], _ = studies_of(Results.of(tmp_path), Around(dict, lambda key: b""))
    assert (doubted.state, list(doubted.lines)) == (DOUBTFUL, ["it means nothing", *told.lines])


def test_the_page_has_what_was_measured_of_fresh_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = study_of(f"{SHORT} --seeds 1 --factors colour --store {tmp_path}", monkeypatch)
    rows = answered(study)
    key = study.search.runs(rows)[0]["key"]
    [told], notices = on_page(study, rows, tmp_path, {key: {"both_level2": 0.7}})
    assert notices == []
    [runs] = (sheet.table for sheet in told.sheets if sheet.name == "runs")
    assert runs.set_index("key")[FRESH].dropna().to_dict() == {key: 0.7}


@pytest.mark.slow(1)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_launch_tells_what_fails_also_where_generators_were_trained_by_others(
    share: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = f"{SHORT} --seeds 1 --factors size --store {tmp_path / 'results'} --out {tmp_path}"
    study = study_of(words, monkeypatch)
    monkeypatch.undo()
    monkeypatch.setattr(generators, "oracle_reads", lambda *_: 1.0)
    rows = answered(study)
    generators_asked = [row for row in rows if row["task"].endswith(":GeneratorTask")]
    now = round(share * len(generators_asked))
    with ResultStore(tmp_path / "results") as store:
        store.append(storable(Rows(row for row in rows if row not in generators_asked[:now])))

    def trained(execution: Execution, *_: object) -> Outcome:
        """The runs that are left come in at once."""
        for row in generators_asked[:now]:
            execution.rows.add(row)
        return Outcome(trained=now)

    monkeypatch.setattr(launch, "executed", trained_by(trained))
    assert run(signal.app, words.split()) == 0
    with (tmp_path / "signal.csv").open() as file:
        told = {row["key"]: row["held_by"] for row in csv.DictReader(file)}
    assert told == {row["key"]: row["held_by"] for row in study.answer(rows)["runs"]}
    assert "tokenizer" in told.values()
