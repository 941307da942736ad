"""The answer of the scaling study: what its files say, and what its figure shows."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from analysis.figures.scaling import draw
from analysis.files import write_scaling
from analysis.scaling import COLUMNS, COUNTS, Answer
from orchestrator.command.files import plain

SETTINGS = {"decoder": "cnn", "encoding": "bump", "target": 0.9}


def row(dataset: str, N: int, seed: int, total: float, verdict: str = "reached", **other: Any) -> dict[str, Any]:
    fixed = 2 * N if dataset == "stripes+bumps" else 0
    known = {"lower": total - 1, "upper": total, "total_images": total, "threshold": total - fixed}
    return {
        **dict.fromkeys(COLUMNS, 0), "decoder": "cnn", "dataset": dataset, "N": N, "seed": seed, "verdict": verdict,
        **known, **other,
    }  # fmt: skip


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    bumps = [row("bumps", n, s, n**2 / 4) for n in (16, 32, 64) for s in (0, 1)]
    stripes = [row("stripes+bumps", n, s, 2 * n, "minimum", lower=2 * n) for n in (16, 32, 64) for s in (0, 1)]
    return bumps + stripes


def test_exponents_are_those_of_the_thresholds(rows: list[dict[str, Any]]) -> None:
    answer = Answer.of(rows, SETTINGS)
    assert answer.fits["bumps"].exponent == pytest.approx(2.0)
    assert answer.fits["stripes+bumps"].exponent == pytest.approx(1.0)
    assert answer.lines() == [
        "bumps: images ~ N^2.00 (paper: 3); two seeds: no interval",
        "stripes+bumps: images ~ N^1.00 (paper: 1); two seeds: no interval",
    ]


def of_sizes(*sizes: int, seeds: int = 3) -> Answer:
    rows = [row("bumps", n, s, round(n**2 / 4 * (1 + 0.1 * s))) for n in sizes for s in range(seeds)]
    return Answer.of(rows, SETTINGS)


def test_two_sizes_give_a_slope_and_what_seeds_move_it_by_is_not_written_as_an_interval() -> None:
    [line] = of_sizes(12, 16).lines()
    assert re.fullmatch(
        r"bumps: images ~ N\^1\.\d\d \(1\.\d\d to 2\.\d\d over seeds\) \(paper: 3\); two grid sizes: a slope, not a fit", line
    )
    [line] = of_sizes(12, 16, 24).lines()
    assert re.fullmatch(r"bumps: images ~ N\^\d\.\d\d \[1\.\d\d, 2\.\d\d\] \(paper: 3\)", line)
    fit = of_sizes(12, 16, seeds=2).to_json()["fits"]["bumps"]
    assert (fit["lower"], fit["upper"]) == (None, None)
    assert fit["note"] == "two grid sizes: a slope, not a fit; two seeds: no interval"


def test_a_study_that_never_reached_the_target_says_so_and_has_a_figure(tmp_path: Path) -> None:
    censored = [row("bumps", n, s, math.nan, "none reached", lower=n**2, upper=math.inf) for n in (12, 16) for s in range(3)]
    answer = Answer.of(censored, SETTINGS)
    assert answer.lines() == [
        "bumps: without N = 12, 16: no seed reached the target; no exponent: this needs two grid sizes, and there are none"
    ]
    assert set(answer.summary["note"]) == {"0 of 3 reached"}
    labels = [text.get_text() for text in draw(answer).axes[0].get_legend().get_texts()]
    assert "bumps: more than this" in labels
    assert (tmp_path / "scaling.csv") in write_scaling(answer, tmp_path)
    first = (tmp_path / "scaling.csv").read_text().splitlines()[1]
    assert first == "cnn,bumps,12,0,,144,inf,,none reached,0,0,0"


def test_a_study_that_ended_before_any_threshold_was_known_has_a_figure(tmp_path: Path) -> None:
    files = write_scaling(Answer.of([row("bumps", 16, 0, math.nan, "open")], SETTINGS), tmp_path)
    assert {file.name for file in files} >= {"scaling.csv", "scaling.png"}


def test_images_are_whole_numbers_in_the_files(tmp_path: Path) -> None:
    some = [row("bumps", 16, 0, 68.0), row("bumps", 16, 1, math.nan, "failed", lower=math.nan, upper=math.nan)]
    answer = Answer.of(some, SETTINGS)
    write_scaling(answer, tmp_path)
    lines = (tmp_path / "scaling.csv").read_text().splitlines()
    assert lines[1:] == ["cnn,bumps,16,0,68,67,68,68,reached,0,0,0", "cnn,bumps,16,1,,,,,failed,0,0,0"]
    known, failed = json.loads((tmp_path / "scaling.json").read_text())["thresholds"]
    assert json.dumps([known[name] for name in COUNTS]) == "[68, 67, 68, 68]"
    assert [failed[name] for name in COUNTS] == [None] * 4


def test_open_thresholds_take_no_part_and_censored_ones_are_never_a_number(rows: list[dict[str, Any]]) -> None:
    open_ = row("bumps", 8, 0, math.nan, "open")
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    answer = Answer.of([*rows, open_, censored], SETTINGS)
    assert 8 not in set(answer.table["N"])
    assert answer.fits["bumps"].exponent == pytest.approx(2.0)
    mean = answer.summary.query("dataset == 'bumps' and N == 72").iloc[0]
    assert math.isnan(mean["total_images"])
    assert mean["upper"] == math.inf
    thresholds = {(t["dataset"], t["N"], t["seed"]): t for t in answer.to_json()["thresholds"]}
    assert thresholds["bumps", 72, 0]["total_images"] is None
    assert thresholds["bumps", 72, 0]["upper"] is None


def test_files_are_complete_and_no_temporary_is_left(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    paths = write_scaling(Answer.of(rows, SETTINGS), tmp_path / "deep" / "out")
    assert sorted(p.name for p in paths) == sorted(p.name for p in (tmp_path / "deep" / "out").iterdir())
    table = pd.read_csv(paths[0])
    assert tuple(table.columns) == COLUMNS
    assert len(table) == len(rows)
    answer = json.loads(paths[1].read_text())
    assert answer["settings"] == SETTINGS
    assert answer["fits"]["bumps"]["paper_exponent"] == 3
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[3].read_text()


def test_the_figure_shows_both_curves_the_censored_point_and_the_references(rows: list[dict[str, Any]]) -> None:
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    axes = draw(Answer.of([*rows, censored], SETTINGS)).axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert any(label.startswith("bumps: images ~ N^2.00") for label in labels)
    assert "bumps: more than this" in labels
    assert [text.get_text() for text in axes.texts] == ["$N$", "$N^2$", "$N^3$"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "32", "64", "72"]


@pytest.mark.parametrize("sizes", [(12, 16), (16, 24, 32, 40), tuple(range(16, 65, 8)), (16,)])
def test_the_axes_name_the_sizes_and_at_least_three_numbers_of_images(sizes: tuple[int, ...]) -> None:
    figure = draw(of_sizes(*sizes))
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(n) for n in sizes]
    low, high = axes.get_ylim()
    ticks = [(tick, label.get_text()) for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)]
    assert len([tick for tick, text in ticks if low <= tick <= high and text == f"{tick:,.0f}"]) >= 3
    assert len({text for _, text in ticks}) == len(ticks)


def test_labels_of_many_sizes_do_not_overlap_and_the_legend_is_not_cut() -> None:
    censored = [row("bumps", n, s, math.nan, "none reached", lower=n**2, upper=math.inf) for n in (12, 16) for s in range(3)]
    for figure in (draw(of_sizes(*range(8, 513, 8))), draw(Answer.of(censored, SETTINGS))):
        FigureCanvasAgg(figure).draw()
        axes = figure.axes[0]
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        legend = axes.get_legend().get_window_extent()
        assert legend.x0 >= 0
        assert legend.x1 <= figure.bbox.x1
        assert legend.y0 >= 0


def test_the_law_is_drawn_over_the_sizes_it_was_fitted_to(rows: list[dict[str, Any]]) -> None:
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    axes = draw(Answer.of([*rows, censored], SETTINGS)).axes[0]
    lines = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2]
    assert [tuple(line.get_xdata()) for line in lines] == [(16, 64), (16, 64)]


def test_one_threshold_is_drawn_without_a_law() -> None:
    answer = Answer.of([row("bumps", 16, 0, 50)], SETTINGS)
    assert answer.fits["bumps"].exponent is None
    assert draw(answer).axes[0].get_legend() is not None


def test_a_study_in_which_every_run_failed_has_a_figure_too(tmp_path: Path) -> None:
    failed = row("bumps", 16, 0, math.nan, "failed", lower=math.nan, upper=math.nan)
    answer = Answer.of([failed], SETTINGS)
    assert [text.get_text() for text in draw(answer).axes[0].texts] == ["no threshold is known"]
    assert len(write_scaling(answer, tmp_path)) == 4


def test_plain_values_have_no_nan() -> None:
    assert plain({"a": [math.nan, math.inf, 1.5], 2: (True, None)}) == {"a": [None, None, 1.5], "2": [True, None]}
