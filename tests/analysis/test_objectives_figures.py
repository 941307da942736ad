"""The figures of the objectives study, from made runs: what they draw, and that any part of it may be missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.image import imread

from analysis.figures.objectives import LEVEL_COLOURS, draw_curves, draw_levels
from analysis.files import write_generators
from analysis.generators import MEASURE
from analysis.measures.quantity import Quantity
from analysis.measures.registry import VERSIONS
from analysis.objectives import NAMES, Answer
from analysis.report import papers
from analysis.report.build import Builder
from orchestrator.store import MeasureTable, Question, ResultStore, save_question
from orchestrator.store.measures import encode
from tests.analysis.made_objectives import DIT, GOOD, LOOKS, answer_of, generator_row, parent_rows, seeds, spec_of, storable
from tests.conftest import colours
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tiers import CHOOSING
from trainables.spec import RunSpec

pytestmark = pytest.mark.usefixtures("quick_oracle")
RISING = [0.1 * look for look in range(LOOKS)]


@pytest.fixture
def answer() -> Answer:
    shares = {("dit", "vae"): 0.9, ("dit", "vq"): 0.7, ("maskgit", "vq"): 0.1}
    rows = [
        generator_row(one, level1=RISING, level2=share, oracle2=share / 2)
        for (family, tokenizer), share in shares.items()
        for one in seeds(spec_of(family, tokenizer))
    ]
    return answer_of(rows)


def test_a_composition_has_a_curve_in_the_colour_of_its_level(answer: Answer) -> None:
    figure = draw_curves(answer)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["dit on vae", "dit on vq", "maskgit on vq"]
    assert panels[0].get_ylabel() == "read right by both judges"
    for axes, share in zip(panels, (0.45, 0.35, 0.05), strict=True):
        assert axes.get_xscale() == "log"
        named = {line.get_label(): line for line in axes.lines if not str(line.get_label()).startswith("_")}
        assert sorted(map(str, named)) == [f"{i:03b}" for i in range(8)]
        drawn = {word: LEVEL_COLOURS[level] for word, level in (("000", "seen"), ("011", "level1"), ("111", "level2"))}
        assert {word: to_hex(named[word].get_color()) for word in drawn} == drawn
        assert list(named["111"].get_xdata()) == [100.0 * (look + 1) for look in range(LOOKS)]
        assert list(named["111"].get_ydata()) == pytest.approx([share] * LOOKS)
        assert list(named["101"].get_ydata()) == pytest.approx(RISING)


def test_a_composition_of_level_3_is_grey_and_told_so() -> None:
    figure = draw_curves(answer_of([generator_row(spec_of("dit", "vq", holdout="000"))]))
    named = {line.get_label(): line for line in figure.axes[0].lines}
    assert to_hex(named["111"].get_color()) == LEVEL_COLOURS["level3"]
    assert to_hex(named["110"].get_color()) == LEVEL_COLOURS["level2"]
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[:4] == ["seen", "level 1", "level 2", "level 3"]


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize(("last", "shown"), [(60, ["20", "30", "50"]), (9000, ["500", "1,000", "2,000", "5,000"])])
def test_the_steps_can_be_read_and_thin_and_grey_lines_are_told(last: int, shown: list[str], many: bool) -> None:
    rows = [generator_row(spec_of("dit", "vae", seed=seed)) for seed in range(1 + many)]
    for row in rows:
        row["curve_step"] = [round(last / 3 + last * 2 / 3 * look / (LOOKS - 1)) for look in range(LOOKS)]
    figure = draw_curves(answer_of(rows))
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    labels = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
    read = [text.get_text() for at, text in labels if low <= at <= high]
    assert len(read) >= 3
    assert set(read) & set(shown)
    (legend,) = figure.legends
    told = ["seen", "level 1", "level 2", *["one seed"] * many, "0.85, needed of what was seen"]
    assert [text.get_text() for text in legend.get_texts()] == told
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_points_at_nothing_are_not_cut_by_the_axis() -> None:
    [axes] = draw_levels(answer_of([generator_row(spec_of("dit", "vae"), level2=0.0)])).axes
    assert axes.get_ylim() == (-0.03, 1.05)


@pytest.mark.slow(4)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_legend_of_bars_lies_within_the_figure(count: int) -> None:
    settings = [("dit", "vae"), ("dit", "vq"), ("maskgit", "vq"), ("mar", "vae")][:count]
    figure = draw_levels(answer_of([generator_row(spec_of(*setting), level2=0.5) for setting in settings]))
    assert len(figure.axes[0].get_xticks()) == count
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    told = ["seen", "level 1", "level 2", "probe alone", "oracle alone"]
    assert [text.get_text() for text in legend.get_texts()] == told
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1


def looked(looks: int, seed: int, shares: Sequence[float]) -> dict[str, Any]:
    """The row of a run with the first of its looks alone."""
    row = generator_row(spec_of("dit", "vae", seed=seed), level1=shares, level2=shares)
    curves = {name: curve[:looks] for name, curve in row["curve_summary"].items()}
    return {**row, "curve_step": row["curve_step"][:looks], "curve_summary": curves}


@pytest.mark.parametrize("looks", [1, 2])
def test_a_curve_of_one_point_has_a_marker(looks: int) -> None:
    figure = draw_curves(answer_of([looked(looks, seed, RISING) for seed in (0, 1)]))
    FigureCanvasAgg(figure).draw()
    curves = [line for line in figure.axes[0].lines if len(np.asarray(line.get_xdata())) == looks and line.get_color() != "0.6"]
    assert len(curves) == 3 * 8
    assert {line.get_marker() == "o" for line in curves} == {looks == 1}


def test_a_seed_of_one_known_point_has_a_marker_beside_those_of_lines() -> None:
    once, lost = looked(1, 1, RISING), looked(LOOKS, 2, [0.5] + [math.nan] * (LOOKS - 1))
    figure = draw_curves(answer_of([looked(LOOKS, 0, RISING), once, lost]))
    of_seeds = [line for line in figure.axes[0].lines if line.get_color() == LEVEL_COLOURS["level2"] and line.get_alpha()]
    points = [(len(np.asarray(line.get_xdata())), line.get_marker() == "o") for line in of_seeds]
    assert points == [(LOOKS, False), (1, True), (LOOKS, True)]


def test_a_panel_says_how_many_of_its_runs_reached_the_end(answer: Answer) -> None:
    failed = {**generator_row(spec_of("dit", "vae", seed=2)), "status": "failed", "curve_step": [], "curve_summary": None}
    [axes] = draw_curves(answer_of([looked(LOOKS, 0, RISING), looked(4, 1, RISING), failed])).axes
    assert [text.get_text() for text in axes.texts] == ["median of 1 of 3\nthat reached the end"]
    assert not any(axes.texts for axes in draw_curves(answer).axes)
    diverged = [{**looked(looks, seed, RISING), "status": "diverged"} for seed, looks in enumerate((3, 5, 5))]
    [axes] = draw_curves(answer_of(diverged)).axes
    assert [text.get_text() for text in axes.texts] == ["median of 2 of 3\nthat went farthest"]


def test_bars_are_medians_of_both_judges_with_every_seed(answer: Answer) -> None:
    [axes] = draw_levels(answer).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["dit on vae", "dit on vq", "maskgit on vq"]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([1, 0.85, 0.45, 1, 0.85, 0.35, 1, 0.85, 0.05])
    of_seeds = [line for line in axes.lines if line.get_gid() == "seeds level2"]
    assert [list(line.get_ydata()) for line in of_seeds] == [pytest.approx([share] * 3) for share in (0.45, 0.35, 0.05)]
    probe = [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "^"]
    assert probe[2::3] == pytest.approx([0.9, 0.7, 0.1])


def few_count() -> Answer:
    """Of seven seeds of dit and of maskgit three count for claims; the others miss gate 3, or are seeds for choosing."""
    shares = [0.9] * 3 + [0.0] * 4
    specs = [*seeds(spec_of("dit", "vq"), 5), *seeds(spec_of("dit", "vq"), 2, CHOOSING)]
    rows = [generator_row(one, level2=share) for one, share in zip(specs, shares, strict=True)]
    rows += [generator_row(one, level2=0.1) for one in seeds(spec_of("maskgit", "vq"))]
    return answer_of(rows, own={row["key"]: {**GOOD, "unseen_pairs_111": 0.5} for row in rows[3:5]})


def test_bars_are_medians_of_the_runs_by_which_claims_are_judged() -> None:
    answer = few_count()
    [verdict] = answer.verdicts_of("continuous-beats-categorical")
    assert verdict.verdict == "pass"
    figure = draw_levels(answer)
    [axes] = figure.axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([1, 1, 0.9, 1, 1, 0.1])
    dots = {str(line.get_gid()): line for line in reversed(axes.lines) if str(line.get_gid()).endswith("level2")}  # of dit
    assert list(dots["seeds level2"].get_ydata()) == pytest.approx([0.9] * 3)
    assert list(dots["others level2"].get_ydata()) == pytest.approx([0.0] * 4)
    assert (dots["seeds level2"].get_markerfacecolor(), dots["others level2"].get_markerfacecolor()) == ("black", "white")
    probe = [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "^"]
    assert probe == pytest.approx([1, 1, 0.9, 1, 1, 0.1])
    assert axes.get_ylabel().endswith("bars: medians of full dots")
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "4 runs that no claim counts"


def test_thick_lines_are_medians_of_the_runs_by_which_claims_are_judged() -> None:
    dit, maskgit = draw_curves(few_count()).axes
    named = {line.get_label(): line for line in dit.lines}
    assert list(named["111"].get_ydata()) == pytest.approx([0.9] * LOOKS)
    thin = [line for line in dit.lines if line.get_color() == LEVEL_COLOURS["level2"] and line.get_alpha()]
    assert [line.get_ydata()[0] for line in thin] == pytest.approx([0.9] * 3 + [0.0] * 4)
    assert [text.get_text() for text in dit.texts] == ["median of 3 of 7\nthat count for claims"]
    assert not maskgit.texts


def test_a_run_that_diverged_late_is_not_in_the_thick_line() -> None:
    rows = [looked(LOOKS, 0, RISING), {**looked(LOOKS, 1, [0.0] * LOOKS), "status": "diverged"}]
    [axes] = draw_curves(answer_of(rows)).axes
    named = {line.get_label(): line for line in axes.lines}
    assert list(named["111"].get_ydata()) == pytest.approx(RISING)
    assert [text.get_text() for text in axes.texts] == ["median of 1 of 2\nthat reached the end"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_runs_are_drawn_and_so_told_where_none_counts(count: int) -> None:
    rows = [generator_row(one, level2=0.2 * one.seed) for one in seeds(spec_of("dit", "vq"), count)]
    answer = answer_of(rows, measured=None)
    figure = draw_levels(answer)
    FigureCanvasAgg(figure).draw()
    assert figure.axes[0].patches[-1].get_height() == pytest.approx(0.1 * (count - 1))
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [line.get_gid() for line in dots] == ["others seen", "others level1", "others level2"]
    assert list(dots[-1].get_ydata()) == pytest.approx([0.2 * seed for seed in range(count)])
    (legend,) = figure.legends
    assert legend.get_texts()[-1].get_text() == f"{count} run{'s' * (count > 1)} that no claim counts"
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.axes[0].get_ylabel().endswith("bars: medians; dots: seeds")
    [axes] = draw_curves(answer).axes
    named = {line.get_label(): line for line in axes.lines}
    assert list(named["111"].get_ydata()) == pytest.approx([0.1 * (count - 1)] * LOOKS)
    told = "no claim counts " + ("this run" if count == 1 else "these runs")
    assert [text.get_text() for text in axes.texts] == [told]


@pytest.mark.parametrize(("count", "told"), [(2, ""), (4, "3 of 4 settings; the table of runs has all")])
def test_settings_that_are_not_drawn_are_told(count: int, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.figures.objectives.MOST_PANELS", 3)
    rows = [generator_row(spec_of("dit", "vq", width=8 * (place + 1))) for place in range(count)]
    for draw in (draw_curves, draw_levels):
        figure = draw(answer_of(rows, names={**NAMES, "width": "width"}))
        assert figure.get_suptitle() == told
        FigureCanvasAgg(figure).draw()
        assert figure.bbox.y1 >= max(text.get_window_extent().y1 for text in figure.texts) if told else not figure.texts


@pytest.mark.slow(1)
def test_runs_that_have_one_judge_are_drawn_without_the_other() -> None:
    rows = [generator_row(one, level2=0.5) for one in seeds(spec_of("dit", "vae", dataset="celeba", content="0" * 24))]
    levels, curves = draw_levels(answer_of(rows)), draw_curves(answer_of(rows))
    assert sorted(line.get_marker() for line in levels.axes[0].lines) == ["^"] * 3 + ["o"] * 3
    told = [text.get_text() for text in levels.legends[0].get_texts()]
    assert told == ["seen", "level 1", "level 2", "probe alone", "3 runs that no claim counts"]
    assert len(curves.axes[0].lines) > 8
    assert curves.axes[0].get_ylabel() == "read right by the probe"


@pytest.mark.slow(1)
def test_runs_without_curves_of_other_lengths_and_of_other_splits_are_drawn(tmp_path: Path) -> None:
    short = {**generator_row(spec_of("dit", "vq", seed=1)), "status": "diverged"}
    short["curve_step"] = short["curve_step"][:4]
    short["curve_summary"] = {name: curve[:4] for name, curve in short["curve_summary"].items()}
    failed = {**generator_row(spec_of("dit", "vq", seed=2)), "status": "failed", "curve_step": [], "curve_summary": None}
    alone = generator_row(spec_of("maskgit", "vq", holdout="000"))
    answer = answer_of([generator_row(spec_of("dit", "vq")), short, failed, alone], names={**NAMES, "holdout": "split"})
    files = write_generators(answer, "objectives", tmp_path)
    assert sorted(file.name for file in files) == [
        "objectives-curves.png", "objectives-curves.svg", "objectives-levels.png", "objectives-levels.svg", "objectives.csv",
        "objectives.json",
    ]  # fmt: skip
    assert colours(imread(tmp_path / "objectives-curves.png")) > 20
    lines = (tmp_path / "objectives.csv").read_text().splitlines()
    assert lines[0].startswith("family,tokenizer,split,seed,status,steps,seen_probe,")
    assert [line.split(",")[:6] for line in lines[1:]] == [
        ["dit", "vq", "train1", "0", "finished", "1000"],
        ["dit", "vq", "train1", "1", "diverged", "1000"],
        ["dit", "vq", "train1", "2", "failed", "1000"],
        ["maskgit", "vq", "000", "0", "finished", "1000"],
    ]


def test_curves_show_what_their_own_claims_ask_of_the_seen_compositions() -> None:
    told_less = [generator_row(spec_of("dit", "vq", conditioning=word)) for word in ("full", "dropout")]
    for rows, least in ((told_less, 0.7), (told_less[:1], 0.85)):
        figure = draw_curves(answer_of(rows))
        assert figure.legends[0].get_texts()[-1].get_text() == f"{least:g}, needed of what was seen"
        lines = [line.get_ydata()[0] for axes in figure.axes for line in axes.get_lines() if line.get_linestyle() == ":"]
        assert set(lines) == {least}


@pytest.mark.slow(4)
def test_the_page_draws_the_runs_that_count_once_a_gate_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "PAPERS", ())
    rows = [generator_row(one, level2=share) for one, share in zip(seeds(DIT), (0.9, 0.5, 0.1), strict=True)]
    specs = [RunSpec.from_dict(row) for row in rows]
    question = Question(
        study="objectives", task_version=GeneratorTask.version, specs={"runs": specs}, search={}, settings={}
    )
    with ResultStore(tmp_path / "store") as store:
        store.append(storable([*(parent for one in specs for parent in parent_rows(one)), *rows]))
        save_question(store, question)
    builder = Builder(str(tmp_path / "store"), tmp_path / "page")

    def texts() -> str:
        builder.build()
        return "".join(path.read_text() for path in sorted((tmp_path / "page" / "studies").glob("*.svg")))

    before = texts()
    assert "no claim counts these runs" in before
    assert "3 runs that no claim counts" in before
    with MeasureTable(tmp_path / "store") as table:
        for key in {row["parents"]["tokenizer"] for row in rows}:
            found = [Quantity(name, value) for name, value in GOOD.items()]
            table.save(key, MEASURE, VERSIONS[MEASURE], encode(key, MEASURE, VERSIONS[MEASURE], found, 1.0))
    assert "no claim counts" not in texts()
