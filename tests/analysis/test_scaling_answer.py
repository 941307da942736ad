"""The answer of the scaling study: what its files say, and what its figure shows."""

import io
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes as MatplotlibAxes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.grid import draw as draw_grid
from analysis.figures.scaling import draw
from analysis.figures.style import MOST_LETTERS
from analysis.files import write_scaling
from analysis.scaling import COLUMNS, COUNTS, FORMER, IMAGES, Answer
from orchestrator.command.files import csv_bytes, plain
from orchestrator.searches import Rows
from orchestrator.searches.audits import Record
from orchestrator.searches.axes import Axes
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import make_row
from tests.conftest import ROOT
from trainables.spec import Counts, RunSpec

SETTINGS = {"decoder": "cnn", "encoding": "bump", "target": 0.9}


def row(dataset: str, N: int, seed: int, total: float, verdict: str = "reached", **other: Any) -> dict[str, Any]:
    fixed = 2 * N if dataset == "stripes+bumps" else 0
    known = {"lower": total - 1, "upper": total, "total_images": total, "threshold": total - fixed} | other
    ends = {"images": total, "images_lower": known["lower"], "images_upper": known["upper"], "fixed_images": fixed}
    if math.isinf(ends["images_upper"]):
        ends["images_upper"] = math.nan
    return {
        **dict.fromkeys(COLUMNS, 0), "decoder": "cnn", "dataset": dataset, "N": N, "seed": seed, "verdict": verdict,
        **ends, **known,
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
        "stripes+bumps: images ~ N^1.00 (paper: 1); the images that are always present are enough at every N; fewer of them "
        "were not tried; two seeds: no interval",
    ]


def of_tried(seed: int, *tried: tuple[int, bool], N: int = 16) -> dict[str, Any]:
    return row("bumps", N, seed, 931, "non-monotone", lower=19) | {"tried": tried}


NEAR = of_tried(0, (90, False), (100, True), (150, False))
FAR = of_tried(1, (19, False), (23, True), (885, False), (931, True))


def test_a_run_that_misses_far_above_one_that_passes_is_told_of() -> None:
    told = "bumps: at N = 16, seed 1, a run with 23 images passes and one with 885 images misses"
    so = "If such runs miss by bad luck, thresholds come out too high: make runs more reliable, by longer training for "
    so += "example, and ask again. If it is not luck, larger values make runs worse there"
    [line] = Answer.of([FAR], SETTINGS).doubts
    share = "Of 2 runs with over 1.5 times as much as the least that passes in their search, 1 misses; the share of all runs"
    assert line == f"{told}. {share} may be larger. {so}"
    [line] = Answer.of([FAR, of_tried(2, *FAR["tried"], N=24), of_tried(3, *FAR["tried"], N=32)], SETTINGS).doubts
    assert line.startswith(f"{told}, and so in 2 more, at N = 24, 32. Of 6 runs with over 1.5 times")
    other = {**FAR, "tried": ((1, True), (3, False)), "fixed_images": 0}
    assert "a run with depth 1 passes and one with depth 3 misses" in Answer.of([other], SETTINGS, axes=Axes("depth")).doubts[0]


def test_a_threshold_in_doubt_is_never_without_a_line() -> None:
    so = "a run misses though one with slightly less passes, so the threshold (?) is the least value above all that miss"
    assert Answer.of([NEAR, of_tried(2, (800, False), (931, True))], SETTINGS).doubts == [f"bumps: at N = 16 {so}"]
    lines = Answer.of([NEAR, FAR, {**NEAR, "N": 24}], SETTINGS).lines()
    assert lines[2] == f"bumps: at N = 16, 24 {so}"


def test_a_threshold_that_is_none_as_more_hurts_is_told_of() -> None:
    tried = (1, False), (19, True), (2000, False)
    hurt = row("bumps", 5, 0, math.nan, "non-monotone", lower=1, upper=math.inf)
    assert Answer.of([hurt | {"tried": tried}], SETTINGS).doubts == [
        "bumps: at N = 5, seed 0, a run with 19 images passes and one with 2000 images misses. So no value is known from "
        "which on all runs pass: larger values make runs worse, or passing is a matter of luck"
    ]


def test_a_threshold_that_crashed_is_not_explained_by_luck() -> None:
    crashed = row("bumps", 8, 0, math.nan, "failed") | {"tried": ((50, True), (60, False))}
    assert Answer.of([crashed], {}).doubts == []


def test_a_pass_slightly_below_the_highest_count_that_misses_is_no_threshold() -> None:
    none = row("bumps", 24, 0, math.nan, "non-monotone", lower=47, upper=math.inf)
    tried = (47, False), (190, True), (200, False)
    assert Answer.of([none | {"tried": tried}], SETTINGS).doubts == [
        "bumps: at N = 24, seed 0, a run with 190 images passes and one with 200 images misses. So no value is known from "
        "which on all runs pass: larger values make runs worse, or passing is a matter of luck"
    ]


def test_seeds_that_lie_far_apart_are_told_of() -> None:
    def of(N: int, *thresholds: int) -> list[dict[str, Any]]:
        return [row("bumps", N, seed, n, lower=n - 1) for seed, n in enumerate(thresholds)]

    so = "So passing may hang on the seed or on luck, and thresholds and their exponent are less sure than their intervals "
    so += "say"
    more = f"{so}: more seeds tell (--seeds)"
    assert Answer.of([*of(8, 1, 2), *of(16, 50, 100)], SETTINGS).doubts == []
    [line] = Answer.of([*of(50, 73, 148, 50), *of(100, 357, 532, 435), *of(200, 560, 1549, 2000)], SETTINGS).doubts
    assert line == f"bumps: at N = 50 seeds need from 50 images to 148 images, and so in 1 more, at N = 200. {more}"
    unreached = row("bumps", 16, 2, math.nan, "none reached", lower=3000, upper=math.inf)
    [line] = Answer.of([*of(16, 50, 60), unreached], SETTINGS).doubts
    assert line == f"bumps: at N = 16 seeds need from 50 images to more than 3000 images. {more}"
    doubted = row("bumps", 16, 2, 111, "non-monotone", lower=19) | {"tried": ((33, True), (104, False), (111, True))}
    lines = Answer.of([*of(16, 34, 34), doubted], SETTINGS).doubts
    assert lines[1] == f"bumps: at N = 16 seeds need from 34 images to 111 images. {so}", "more do not help"


def test_that_nothing_reaches_the_target_is_in_doubt_where_one_run_says_so() -> None:
    def beyond(N: int, seed: int, *missed: int) -> dict[str, Any]:
        none = row("bumps", N, seed, math.nan, "none reached", lower=missed[-1], upper=math.inf)
        return none | {"tried": tuple((count, False) for count in missed)}

    passes = of_tried(0, (400, False), (410, True), N=24) | {"verdict": "reached"}
    one_run = "bumps: at N = 24, seed 1, `none reached` rests on a single run, with 460 images"
    so = "A single run may miss by bad luck, so this may not be out of reach: more seeds tell (--seeds)"
    assert Answer.of([passes, beyond(24, 1, 460)], SETTINGS).doubts == [f"{one_run}. {so}"]
    assert Answer.of([beyond(24, 1, 460)], SETTINGS).doubts == [f"{one_run}. {so}"]
    both = [passes, beyond(24, 1, 460), {**passes, "N": 32}, beyond(32, 2, 819)]
    assert Answer.of(both, SETTINGS).doubts == [f"{one_run}, and so in 1 more, at N = 32. {so}"]
    assert Answer.of([beyond(24, 0, 437, 460), beyond(24, 1, 460), beyond(24, 2, 460)], SETTINGS).doubts == []
    assert Answer.of([passes, beyond(24, 1, 437, 460)], SETTINGS).doubts == []


def test_lower_bounds_that_diverged_are_told_of() -> None:
    found = [row("bumps", 16, s, 50, lower=48) | {"lower_ended": ground} for s, ground in enumerate(("budget", "diverged"))]
    rule = {"bumps": {"known": 0, "audits": 0, "flips": [], "bound": 1.0}}
    line = Answer.of(found, SETTINGS, rule).lines()[-1]
    assert line.startswith("bumps: 1 of 2 lower bounds are runs that diverged: ")


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


@pytest.mark.slow(1)
def test_what_a_task_of_ones_own_needs_are_samples_and_no_paper_says_how_many() -> None:
    made = [row("bumps", N, seed, N**2 / 4) for N in (8, 16) for seed in (0, 1)]
    answer = Answer.of(made, {**SETTINGS, "task": "mine:Task"})
    assert answer.lines() == ["bumps: samples ~ N^2.00; two values of N: a slope, not a fit; two seeds: no interval"]
    assert answer.to_json()["fits"]["bumps"]["paper_exponent"] is None


def test_a_study_that_never_reached_the_target_says_so_and_has_a_figure(tmp_path: Path) -> None:
    censored = [row("bumps", n, s, math.nan, "none reached", lower=n**2, upper=math.inf) for n in (12, 16) for s in range(3)]
    answer = Answer.of(censored, SETTINGS)
    assert answer.lines() == [
        "bumps: without N = 12, 16: no seed has a threshold; no exponent: this needs two grid sizes, and there are none"
    ]
    assert set(answer.summary["note"]) == {"0 of 3 reached"}
    labels = [text.get_text() for text in draw(answer).axes[0].get_legend().get_texts()]
    assert "bumps: more than this" in labels
    assert (tmp_path / "scaling.csv") in write_scaling(answer, tmp_path)
    first = (tmp_path / "scaling.csv").read_text().splitlines()[1]
    assert first == "cnn,bumps,12,0,,144,,0,none reached,0,0,0,0,,144,inf,"


@pytest.mark.slow(2)
def test_a_figure_is_drawn_alike_whatever_the_user_likes_figures_to_be(tmp_path: Path) -> None:
    answer = of_sizes(16, 32, 64)
    write_scaling(answer, tmp_path / "usual")
    liked = {"text.usetex": True, "font.size": 30, "axes.grid": True, "savefig.facecolor": "red", "svg.fonttype": "path"}
    with matplotlib.rc_context(liked):
        write_scaling(answer, tmp_path / "liked")
        assert matplotlib.rcParams["font.size"] == 30
    for kind in ("png", "svg"):
        usual, drawn = ((tmp_path / name / f"scaling.{kind}").read_bytes() for name in ("usual", "liked"))
        assert usual == drawn


@pytest.mark.slow(2)
@pytest.mark.parametrize("first", ["analysis.report", "analysis.figures.style"])
def test_figures_need_no_backend_that_the_user_names(first: str, tmp_path: Path) -> None:
    """As Jupyter names its own for all that is started in it, which need not be installed where this is."""
    program = f"""
import os, {first}
from matplotlib.figure import Figure
Figure().savefig("a.png")
print(os.environ["MPLBACKEND"])
"""
    named = "of_jupyter"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": named}
    words = [sys.executable, "-c", program]
    assert subprocess.check_output(words, text=True, cwd=tmp_path, env=environment) == f"{named}\n"
    assert (tmp_path / "a.png").exists()


@pytest.mark.slow(2)
@pytest.mark.parametrize("home", ["/proc/home", "full"])
@pytest.mark.parametrize("first", ["analysis.report", "analysis.figures.style"])
def test_what_matplotlib_says_of_its_own_files_is_not_told(first: str, home: str, tmp_path: Path) -> None:
    """Nobody has to do anything where a home cannot be written, or is full."""
    program = f"""
import io, resource
if {home == "full"}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
import {first}
from matplotlib.figure import Figure
figure = Figure()
figure.text(0, 0, "a", family="of_nobody")
figure.savefig(io.BytesIO())
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CACHE_HOME")}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path) if home == "full" else home, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert set(done.stderr.splitlines()) == {"findfont: Font family 'of_nobody' not found."}


def test_a_study_that_ended_before_any_threshold_was_known_has_a_figure(tmp_path: Path) -> None:
    files = write_scaling(Answer.of([row("bumps", 16, 0, math.nan, "open")], SETTINGS), tmp_path)
    assert {file.name for file in files} >= {"scaling.csv", "scaling.png"}


@pytest.mark.slow(1)
def test_images_are_whole_numbers_in_the_files(tmp_path: Path) -> None:
    some = [row("bumps", 16, 0, 68.0), row("bumps", 16, 1, math.nan, "failed", lower=math.nan, upper=math.nan)]
    answer = Answer.of(some, SETTINGS)
    write_scaling(answer, tmp_path)
    lines = (tmp_path / "scaling.csv").read_text().splitlines()
    assert lines[1:] == [
        "cnn,bumps,16,0,68,67,68,0,reached,0,0,0,0,68,67,68,68", "cnn,bumps,16,1,,,,0,failed,0,0,0,0,,,,",
    ]  # fmt: skip
    known, failed = json.loads((tmp_path / "scaling.json").read_text())["thresholds"]
    assert json.dumps([known[name] for name in COUNTS]) == "[68, 67, 68, 0, 68, 67, 68, 68]"
    assert [failed[name] for name in COUNTS if name != "fixed_images"] == [None] * 7


def searched(passes: Callable[[int], bool], fixed: int) -> ThresholdResult:
    """What a search finds where runs pass at these counts; 1 to 100 images may be drawn beside the fixed ones."""
    dataset = "stripes+bumps" if fixed else "bumps"
    template = RunSpec(task="a:B", dataset=dataset, N=16, data_count=0, seed=0, options=(("sigma", 1.0),))
    search = ThresholdSearch([Bracket(template=template, task_version="1", counts=Counts(1, 100, fixed))], stop="early")
    rows = Rows()
    while wanted := search.propose(rows, 1):
        for spec in wanted:
            passed = passes(spec.data_count)
            fields: dict[str, Any] = {"status": "passed" if passed else "missed", "accuracy": 0.95 if passed else 0.5}
            rows.add(make_row(spec, task_version="1", reason="converged", fixed_count=fixed, steps=1, **fields))
    (result,) = search.answer(rows)
    return result


@pytest.mark.parametrize(
    ("passes", "fixed", "verdict", "ends", "former"),
    [
        (lambda n: n >= 40, 0, "reached", (40, 38, 40, 0), "40,38,40,40"),
        (lambda n: n >= 40, 32, "reached", (73, 70, 73, 32), "41,70,73,73"),
        (lambda n: True, 32, "minimum", (33, "", 33, 32), "1,33,33,33"),
        (lambda n: False, 32, "none reached", ("", 132, "", 32), ",132,inf,"),
        (lambda n: n == 22 or n >= 60, 0, "non-monotone", (61, 21, 61, 0), "61,21,61,61"),
        (lambda n: n == 22, 0, "non-monotone", ("", 21, "", 0), ",21,inf,"),
        (lambda n: n == 1 or n >= 60, 32, "non-monotone", (95, "", 95, 32), "63,33,95,95"),
    ],
    ids=["reached", "beside fixed ones", "minimum", "none reached", "lucky pass", "highest misses", "lowest passes"],
)
def test_all_columns_of_images_count_every_training_image(
    passes: Callable[[int], bool], fixed: int, verdict: str, ends: tuple[Any, ...], former: str
) -> None:
    result = searched(passes, fixed)
    assert result.verdict == verdict
    answer = Answer.of([result.to_row()], SETTINGS)
    table = pd.read_csv(io.BytesIO(csv_bytes(answer.table, COUNTS)), dtype=str, keep_default_na=False)
    assert tuple(table[list(IMAGES)].iloc[0]) == tuple(map(str, ends))
    assert ",".join(table[list(FORMER)].iloc[0]) == former
    (threshold,) = answer.to_json()["thresholds"]
    assert json.dumps([threshold[name] for name in IMAGES]) == json.dumps([end if end != "" else None for end in ends])


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


@pytest.mark.slow(2)
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


def triangles(axes: MatplotlibAxes) -> dict[str, list[list[float]]]:
    """Where those stand that say that a threshold lies above or below them, by what the legend says of them."""
    marked = [points for points in axes.collections if str(points.get_label()).endswith("this")]
    return {str(points.get_label()): np.asarray(points.get_offsets()).tolist() for points in marked}


def test_a_seed_without_a_threshold_as_a_higher_count_misses_lies_above_a_triangle(rows: list[dict[str, Any]]) -> None:
    hurt = [row("bumps", 72, s, math.nan, "non-monotone", lower=2000, upper=math.inf) for s in (0, 1)]
    beside = [row("bumps", 72, 2, 2500, "non-monotone", lower=2000), row("bumps", 72, 3, math.nan, "failed", lower=900)]
    for found in ([*rows, *hurt, *beside], hurt):
        [axes] = draw(Answer.of(found, SETTINGS)).axes
        assert triangles(axes) == {"bumps: more than this": [[72, 2000]] * 2}
        assert not any("no threshold" in text.get_text() for text in axes.texts)
        assert axes.get_yscale() == "log"


def test_a_seed_that_is_known_to_need_more_than_nothing_is_on_the_axis() -> None:
    hurt = row("d", 72, 0, math.nan, "non-monotone", lower=0, upper=math.inf)
    [axes] = draw(Answer.of([row("d", 64, 0, 500), hurt], SETTINGS)).axes
    assert triangles(axes) == {"d: more than this": [[72, 0]]}
    assert (axes.get_yscale(), axes.get_ylim()[0] <= 0) == ("linear", True)


def test_a_threshold_that_may_lie_below_the_lowest_value_stands_below_a_triangle() -> None:
    def of(axes: Axes) -> dict[str, list[list[float]]]:
        lowest = [row("toys", 8, s, 4, "minimum", lower=4, fixed_images=0) for s in (0, 1)]
        doubted = row("toys", 8, 2, 9, "non-monotone", lower=4, fixed_images=0) | {"tried": ((4, True), (6, False), (9, True))}
        hurt = row("toys", 16, 2, math.nan, "non-monotone", lower=4, upper=math.inf) | {"tried": ((4, True), (9, False))}
        found = [*lowest, doubted, row("toys", 16, 0, 6), row("toys", 16, 1, 7), hurt]
        named = [one | {axes.along: one["N"] if axes.scaled else f"kind {one['N']}"} for one in found]
        return triangles(draw(Answer.of(named, SETTINGS, axes=axes)).axes[0])

    for axes, places in ((Axes("width", "kind", scaled=False), (0, 1)), (Axes("width", "depth"), (8, 16))):
        assert of(axes) == {
            "toys: at most this": [[places[0], 4], [places[0], 4], [places[0], 9]], "toys: more than this": [[places[1], 4]],
        }  # fmt: skip


@pytest.mark.parametrize("sizes", [(12, 16), (16, 24, 32, 40), tuple(range(16, 65, 8)), (16,)])
def test_the_axes_name_the_sizes_and_at_least_three_numbers_of_images(sizes: tuple[int, ...]) -> None:
    figure = draw(of_sizes(*sizes))
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(n) for n in sizes]
    low, high = axes.get_ylim()
    ticks = [(tick, label.get_text()) for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)]
    assert len([tick for tick, text in ticks if low <= tick <= high and text == f"{tick:,.0f}"]) >= 3
    assert len({text for _, text in ticks}) == len(ticks)


@pytest.mark.slow(1)
def test_words_that_look_like_formulas_are_drawn_as_they_are() -> None:
    found = [row("$x^$", n, s, n**2 / 4) for n in (16, 32, 64) for s in (0, 1)]
    found += [row("$_$", n, 0, math.nan, "none reached", lower=n**2, upper=math.inf) for n in (12, 16)]
    figure = draw(Answer.of(found, SETTINGS | {"decoder": "$^$"}))
    FigureCanvasAgg(figure).draw()
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert any(label.startswith(r"\$x^\$: ") for label in labels)
    along = [{**row("bumps", 16, 0, 50.0), "kind": kind} for kind in ("$x^$", "b")]
    figure = draw(Answer.of(along, SETTINGS, axes=Axes("data_count", "kind", scaled=False)))
    FigureCanvasAgg(figure).draw()
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [r"\$x^\$", "b"]
    table = pd.DataFrame({"setting": ["$x^$", "$" * 80], "a$^$": [0.5, 0.25]})
    figure = draw_grid(table, ["a$^$"])
    FigureCanvasAgg(figure).draw()
    assert figure.axes[0].get_yticklabels()[1].get_text() == r"\$" * 59 + "…"


@pytest.mark.slow(1)
def test_long_texts_are_shortened_in_figures() -> None:
    long = "A" * 5000
    figure = draw(Answer.of([row(long, n, 0, n**2 / 4) for n in (16, 32)], SETTINGS | {"decoder": long}))
    FigureCanvasAgg(figure).draw()
    texts = [figure.axes[0].get_title(), *(text.get_text() for text in figure.axes[0].get_legend().get_texts())]
    assert len(texts) == 2
    assert {len(text.replace("\n", "")) for text in texts} == {MOST_LETTERS}
    assert all(text.endswith("…") for text in texts)


def test_a_figure_of_settings_says_what_it_leaves_out() -> None:
    tables = (pd.DataFrame({"setting": [f"depth {i}" for i in range(n)], "loss": 1.0}) for n in (24, 30))
    few, many = (draw_grid(table, ["loss"]) for table in tables)
    assert few.get_supxlabel() == ""
    assert many.get_supxlabel() == "the first 24 settings; 6 more are in the table"


@pytest.mark.parametrize("decades", [0.02, 0.5, 0.8, 1.2, 1.7, 2.2, 3, 9])
def test_numbers_of_errors_do_not_run_into_each_other(decades: float) -> None:
    errors = np.geomspace(0.012 / 10**decades, 0.012, 4)
    table = pd.DataFrame({"setting": list("aabb"), "accuracy": 0.9, "id_mse": errors, "ood_mse": 7 * errors})
    figure = draw_grid(table, ("accuracy", "id_mse", "ood_mse"))
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes[1:]:
        low, high = axes.get_xlim()
        shown = [t for t in (*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()) if low <= t.get_loc() <= high]
        boxes = sorted(tick.label1.get_window_extent().extents.tolist() for tick in shown if tick.label1.get_text())
        assert len(boxes) >= 3
        assert all(left[2] < right[0] for left, right in pairwise(boxes))


def test_names_of_numbers_stay_below_their_panels() -> None:
    names = [f"the_{word}_number_that_a_task_of_ones_own_measures_and_calls_so" for word in ("first", "second")]
    figure = draw_grid(pd.DataFrame({"setting": ["a", "b"], names[0]: [0.1, 0.2], names[1]: [0.3, 0.4]}), names)
    FigureCanvasAgg(figure).draw()
    first, second = (axes.xaxis.label for axes in figure.axes)
    assert first.get_window_extent().x1 < second.get_window_extent().x0
    assert [label.get_text().replace("\n", "") for label in (first, second)] == names


def test_settings_that_differ_only_after_many_letters_have_whole_labels() -> None:
    alike = "$" * 61
    settings = [f"words {alike} {last}" for last in ("a", "b", "c" * 100)]
    figure = draw_grid(pd.DataFrame({"setting": settings, "loss": 1.0}), ["loss"])
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    labels = axes.get_yticklabels()
    assert [re.sub(r"[\s\\]", "", label.get_text()) for label in labels] == [setting.replace(" ", "") for setting in settings]
    boxes = [label.get_window_extent() for label in labels]
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(boxes)), "lines of their own"
    assert boxes[0].x0 >= 0
    assert axes.get_window_extent().width > 150
    cut = draw_grid(pd.DataFrame({"setting": [settings[2], "depth 2"], "loss": 1.0}), ["loss"]).axes[0].get_yticklabels()
    assert [label.get_text().replace("\\", "") for label in cut] == [settings[2][:59] + "…", "depth 2"]


@pytest.mark.slow(2)
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


def of_datasets(count: int) -> Answer:
    at = [(d, n, s) for d in range(count) for n in (8, 12, 16, 24, 32) for s in range(2)]
    return Answer.of([row(f"set {d}", n, s, round(n**1.5 * (1 + d) * (1 + 0.1 * s))) for d, n, s in at], SETTINGS)


@pytest.mark.slow(2)
def test_many_data_sets_differ_and_leave_the_axes_half_of_the_height() -> None:
    figure = draw(of_datasets(14))
    FigureCanvasAgg(figure).draw()
    [axes] = figure.axes
    looks = [(container.lines[0].get_color(), container.lines[0].get_marker()) for container in axes.containers]
    assert len(set(looks)) == len(looks) == 14
    assert axes.get_position().height >= 0.5
    texts = [text.get_window_extent() for text in axes.get_legend().get_texts()]
    assert len(texts) == 28
    assert min(text.y0 for text in texts) >= 0
    assert max(text.y1 for text in texts) < axes.xaxis.label.get_window_extent().y0


def test_few_data_sets_have_a_figure_of_the_usual_size() -> None:
    figure = draw(of_datasets(3))
    assert list(figure.get_size_inches()) == [6.4, 4.8]
    FigureCanvasAgg(figure).draw()
    legend = figure.axes[0].get_legend().get_window_extent()
    begins = figure.axes[0].transAxes.inverted().transform((legend.x0, legend.y1))[1]
    assert begins == pytest.approx(-0.13, abs=0.03)


@pytest.mark.slow(2)
def test_words_below_the_axes_are_turned_where_they_would_run_into_each_other() -> None:
    def drawn(*words: str, datasets: int = 1) -> Figure:
        at = [(d, word, seed) for d in range(datasets) for word in words for seed in (0, 1)]
        made = [{**row(f"set {d}", 16, seed, 50.0 + seed + d), "kind": word} for d, word, seed in at]
        figure = draw(Answer.of(made, SETTINGS, axes=Axes("data_count", "kind", scaled=False)))
        FigureCanvasAgg(figure).draw()
        assert figure.axes[0].get_position().height >= 0.5
        boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        legend, name = figure.axes[0].get_legend().get_texts(), figure.axes[0].xaxis.label.get_window_extent()
        assert max(text.get_window_extent().y1 for text in legend) < name.y0 < min(box.y0 for box in boxes)
        assert min(text.get_window_extent().y0 for text in legend) >= 0
        return figure

    def labels(figure: Figure) -> list[tuple[str, float]]:
        return [(label.get_text(), label.get_rotation()) for label in figure.axes[0].get_xticklabels()]

    few = drawn("a", "variant-1", "$b$", "c")
    assert labels(few) == [("a", 0), ("variant-1", 0), (r"\$b\$", 0), ("c", 0)]
    assert list(few.get_size_inches()) == [6.4, 4.8]
    words = [f"${i}$-variant" for i in range(10)]
    assert labels(drawn(*words, datasets=8)) == [(word.replace("$", r"\$"), 90) for word in words]
    long = labels(drawn(*(f"{i:02d}" + "$" * 5000 for i in range(90))))
    assert {(text, turned) for text, turned in long} <= {(f"{i:02d}" + r"\$" * 37 + "…", 90) for i in range(90)}
    assert [text[:2] for text, _ in long] == [f"{i:02d}" for i in range(0, 90, 3)]


def test_the_law_is_drawn_over_the_sizes_it_was_fitted_to(rows: list[dict[str, Any]]) -> None:
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    axes = draw(Answer.of([*rows, censored], SETTINGS)).axes[0]
    assert [span(line) for line in axes.lines if line.get_linestyle() == "-"] == [(16, 64), (16, 64)]


def span(line: Line2D) -> tuple[float, float]:
    """The first and the last place of a line."""
    places = np.asarray(line.get_xdata())
    return float(places[0]), float(places[-1])


def test_laws_are_curves_where_the_axis_is_linear() -> None:
    """As it is where a threshold is zero."""
    sizes = (16, 24, 32, 40, 48, 56)
    stepped = [row("bumps", n, s, round(n**2 * (1 + 0.05 * s)) * (2 if n >= 40 else 1)) for n in sizes for s in range(3)]
    answer = Answer.of([*stepped, row("none", 16, 0, 0, "minimum", lower=0)], SETTINGS)
    [axes] = draw(answer).axes
    assert axes.get_yscale() == "linear"
    lines = [line for line in axes.lines if line.get_linestyle() != "None" and len(np.asarray(line.get_xdata())) > 1]
    ends = {(16.0, 56.0): 4, (16.0, 32.0): 1, (40.0, 56.0): 1}
    assert Counter(map(span, lines)) == ends, "the law, three references, and the two parts of a broken law"
    for line in lines:
        (first, last), places, heights = span(line), np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        exponent = np.log(heights[-1] / heights[0]) / np.log(last / first)
        assert np.diff(np.log(places)).max() < 0.05
        np.testing.assert_allclose(heights, heights[0] * (places / first) ** exponent)


def test_what_stands_beside_a_law_is_told_and_drawn() -> None:
    """Twice as many images from N = 40 on."""
    sizes = (16, 24, 32, 40, 48, 56)
    stepped = [row("bumps", n, s, round(n**2 * (1 + 0.05 * s)) * (2 if n >= 40 else 1)) for n in sizes for s in range(3)]
    answer = Answer.of(stepped, SETTINGS)
    told = "N^2.00 before, N^2.00 after, and x 2.00 at the break"
    assert f"bumps: a law that breaks between N = 32 and 40 fits far better: {told}" in answer.lines()
    fit = answer.to_json()["fits"]["bumps"]
    assert list(fit["without"]) == [str(n) for n in sizes]
    assert (fit["broken"]["last"], fit["broken"]["first"]) == (32, 40)
    assert fit["broken"]["step"] == pytest.approx(2.0, abs=0.01)
    axes = draw(answer).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    low, high = min(fit["without"].values()), max(fit["without"].values())
    assert labels[:2] == [f"bumps: without one N at a time, N^{low:.2f} to N^{high:.2f}", f"bumps: {told}"]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--" and line.get_color() != "0.6"]
    assert [span(line) for line in dashed] == [(16, 32), (40, 56)]


def test_one_law_stands_alone_in_what_is_told() -> None:
    answer = of_sizes(16, 24, 32, 40, 48, 56)
    assert len(answer.lines()) == 1
    assert not answer.to_json()["fits"]["bumps"]["broken"]["gain"] > 0
    assert len(draw(answer).axes[0].get_legend().get_texts()) == 2


def test_the_exponent_rests_on_the_runs_of_the_walks() -> None:
    """They are in no file."""
    known = [row("bumps", n, s, round(n**2 / 4 * (1 + 0.1 * s))) for n in (16, 24, 32, 40) for s in range(3)]
    walked = [one | {"tried": ((0.95 * one["threshold"], False), (one["threshold"], True))} for one in known]
    brackets, runs = (Answer.of(rows, SETTINGS).fits["bumps"] for rows in (known, walked))
    assert runs.upper - runs.lower > 1.1 * (brackets.upper - brackets.lower)  # type: ignore[operator]
    assert tuple(Answer.of(walked, SETTINGS).table) == COLUMNS


def of_curves(*curves: tuple[Record, str], stop: str) -> Answer:
    """Two thresholds of each curve, whose lower bounds rest on what is said."""
    found = [
        ThresholdResult(
            family=f"{N}", dataset="bumps", decoder="cnn", N=N, along=N, seed=0, fixed=0, verdict="reached", threshold=N * 4,
            lower=N * 4 - 1, upper=N * 4, missed=N * 4 - 1, runs=4, steps=9, probes_left=0, audits_left=0, outliers=(),
            failed_key=None, lower_ended=ended, rule=rule, values=40, curve=curve,
        )
        for curve, (rule, ended) in enumerate(curves)
        for N in (8 + 16 * curve, 16 + 16 * curve)
    ]  # fmt: skip
    return Answer.of_results(found, {**SETTINGS, "stop": stop})


WRONG = Record(0, 3, ("N = 8: given up, passed",))


@pytest.mark.parametrize(
    ("stop", "ended", "told"),
    [
        ("early", "unaudited rule", "). * 2 of 2 lower bounds rest on it nevertheless, so these thresholds may be too high; "
         "--stop auto would not use it"),
        ("early", "budget", "): no lower bound rests on it, and --stop auto would not use it"),
        ("auto", "budget", "), so it is off: every run that does not pass is trained to the end"),
        ("budget", "budget", "), so it is off: every run that does not pass is trained to the end"),
    ],
)  # fmt: skip
def test_a_rule_that_was_wrong_is_said_to_be_off_only_where_it_is(stop: str, ended: str, told: str) -> None:
    lines = of_curves((WRONG, ended), stop=stop).lines()
    assert lines[1:] == [f"bumps: the stopping rule was wrong here (N = 8: given up, passed{told}"]


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_known_of_the_rule_is_of_all_curves_of_a_data_set(order: int) -> None:
    sound = Record(400, 2)
    answer = of_curves(*[(WRONG, "budget"), (sound, "audited rule")][::order], stop="auto")
    rule = answer.to_json()["rules"]["bumps"]
    assert (rule["known"], rule["audits"], rule["flips"], rule["bound"]) == (400, 5, list(WRONG.flips), None)
    assert answer.lines()[1:] == [
        "bumps: the stopping rule was wrong here (N = 8: given up, passed), so it is off for runs like these",
        "bumps: 2 of 4 lower bounds rest on the stopping rule, of other runs: enough that it gave up were trained to the end, "
        "and none passed",
    ]
    both = of_curves((sound, "audited rule"), (sound, "audited rule"), stop="auto")
    assert "404 runs that it gave up were trained to the end, 400 of them before this study" in both.lines()[1]
    assert both.to_json()["rules"]["bumps"]["bound"] == pytest.approx(1 - 0.05 ** (1 / 404))


BUMP_RUNS = {"task": "trainables.bumps:BumpTask", "decoder": "mlp", "encoding": "bump", "target": 0.9}
CHORDS = {"task": "examples.own_task:Chords", "decoder": "linear", "encoding": "one-hot", "target": 0.9}
DIGITS = {"task": "examples.classifier:Digits", "decoder": "", "encoding": "", "target": 0.9}
PROGRAM = {"task": "trainables.program:ProgramTask", "decoder": "", "encoding": "", "target": 0.9}
NEEDED = "training samples needed"


@pytest.mark.parametrize(
    ("settings", "axes", "title", "x", "y"),
    [
        (BUMP_RUNS | {"N": [16]}, Axes(), "MLP, bump encoding: accuracy 0.9 on held-out coordinates",
         "grid size N (pixels)", "training images needed, bumps + stripes"),
        (BUMP_RUNS | {"N": 16}, Axes("data_count", "encoding", scaled=False),
         "MLP, N = 16: accuracy 0.9 on held-out coordinates", "encoding", "training images needed, bumps + stripes"),
        (BUMP_RUNS | {"N": [16], "data_count": 120}, Axes("width"),
         "MLP, bump encoding, data count 120: accuracy 0.9 on held-out coordinates", "grid size N (pixels)", "least width"),
        (CHORDS | {"N": [16]}, Axes(), "Chords, linear, one-hot encoding: accuracy 0.9", "N", NEEDED),
        (CHORDS | {"N": 16}, Axes("data_count", "width"), "Chords, linear, one-hot encoding, N = 16: accuracy 0.9",
         "width", NEEDED),
        (DIGITS | {"N": [16]}, Axes(), "Digits: accuracy 0.9", "N", NEEDED),
        (PROGRAM | {"N": [16]}, Axes(), "coupons: accuracy 0.9", "N", NEEDED),
    ],
)  # fmt: skip
def test_the_figure_says_what_was_fixed_and_of_which_task(
    settings: dict[str, Any], axes: Axes, title: str, x: str, y: str
) -> None:
    made = [{**row("coupons", 16, seed, 50.0), "encoding": "bump", "width": 8} for seed in (0, 1)]
    [drawn] = draw(Answer.of(made, settings, axes=axes)).axes
    assert (drawn.get_title(), drawn.get_xlabel(), drawn.get_ylabel()) == (title, x, y)


def places_of(*datasets: str) -> list[list[float]]:
    """Where the means of data sets stand along two categories."""
    made = [
        {**row(dataset, 16, seed, 50.0 + seed), "kind": kind} for dataset in datasets for kind in ("a", "b") for seed in (0, 1)
    ]
    [axes] = draw(Answer.of(made, SETTINGS, axes=Axes("data_count", "kind", scaled=False))).axes
    assert list(axes.get_xticks()) == [0, 1]
    return [[float(x) for x in container.lines[0].get_xdata()] for container in axes.containers]


def test_data_sets_stand_beside_each_other_at_a_category() -> None:
    assert places_of("bumps") == [[0, 1]]
    for found, beside in zip(places_of("bumps", "stripes+bumps"), (-0.08, 0.08), strict=True):
        assert found == pytest.approx([beside, 1 + beside])
    many = places_of(*"abcdef")
    assert all(later[0] - earlier[0] == pytest.approx(0.1) for earlier, later in pairwise(many))


def test_it_is_the_exponent_that_has_no_interval_where_means_of_two_seeds_have_bars() -> None:
    [axes] = draw(of_sizes(12, 16, 24, seeds=2)).axes
    [label] = [text.get_text() for text in axes.get_legend().get_texts()]
    assert label.endswith("; two seeds: no interval of the exponent")
    [means] = axes.containers
    assert all(low < high for (_, low), (_, high) in means.lines[2][0].get_segments())


def frame_and_bars(*counts: tuple[float, float], fixed: int = 4) -> tuple[tuple[float, float], list[tuple[float, float]]]:
    """The limits of the figure of two seeds, which need these at N = 4, 8, ...; and the ends of the bars."""
    found = [
        row("d", 4 * 2**i, seed, count + fixed, lower=max(count + fixed - 1, fixed), fixed_images=fixed)
        for i, both in enumerate(counts)
        for seed, count in enumerate(both)
    ]
    answer = Answer.of(found, SETTINGS)
    before = answer.summary.copy()
    [axes] = draw(answer).axes
    assert answer.summary.equals(before)
    [means] = axes.containers
    return axes.get_ylim(), [(low, high) for (_, low), (_, high) in means.lines[2][0].get_segments()]


def test_an_interval_that_spans_decades_goes_on_beyond_the_frame_and_begins_at_what_is_always_there() -> None:
    (low, high), bars = frame_and_bars((0, 60), (60, 100), (150, 170))
    assert 1 < low < 4
    assert high < 1500, "the frame is that of the values and the references, which reach 1024"
    assert [begin for begin, _ in bars[:2]] == pytest.approx([4, 4])
    assert bars[0][1] > 100 * high


def test_intervals_that_are_not_far_longer_than_what_they_belong_to_are_seen_in_full() -> None:
    for counts in (((50, 59),), ((17, 20), (28, 33), (56, 67)), ((50, 50), (90, 90))):
        (low, high), bars = frame_and_bars(*counts, fixed=0)
        assert all(low < begin < end < high for begin, end in bars)


def test_intervals_are_cut_where_the_axis_is_linear_too() -> None:
    (_, high), bars = frame_and_bars((0, 60), (0, 100), fixed=0)
    assert bars[0][1] > high
    assert 100 < high < 2000


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


def test_a_share_of_misses_counts_the_images_always_present() -> None:
    tried = (100, True), (160, False), (260, False), (300, True)
    [line] = Answer.of([of_tried(1, *tried) | {"fixed_images": 40}], SETTINGS).doubts
    assert "Of 2 runs with over 1.5 times as much as the least that passes in their search, 1 misses; " in line
