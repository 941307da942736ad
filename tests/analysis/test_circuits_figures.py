"""Figures of circuits, from tables whose numbers are told: bars have these heights, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from analysis.figures import circuits as figures
from analysis.figures.style import image
from analysis.measures.circuits import PAIRS
from tests.analysis.test_claims import table_of
from tests.analysis.test_generated_figures import USUAL
from trainables.generative.chain import GENERATOR

BLOCKS = (1, 2, 3, 4)
WITH = {"jepa": 0.6}
ORDER = ["000_001", "000_100", "001_101", "100_101", "000_101", "001_100"]
"""Pairs that differ in one factor, then in two."""


def runs(
    seeds: int = 1,
    families: Sequence[tuple[str, str]] = (("dit", "vq"), ("maskgit", "vq")),
    losses: Sequence[dict[str, Any]] = ({}, WITH),
) -> pd.DataFrame:
    """Runs in which the loss halves what is measured, but of block 2, of which there is none; more by seed."""
    made = []
    for decoder, encoding in families:
        for loss in losses:
            for seed in range(seeds):
                run = {**USUAL, "task": GENERATOR, "decoder": decoder, "encoding": encoding, "seed": seed}
                run |= {"options": {"codes": 16, **loss}, "key": f"{decoder}{loss}{seed}", "measure": "circuits", "array": None}
                less = 0.5 if loss else 1.0
                numbers: dict[tuple[str, float], float] = {}
                for block in BLOCKS:
                    numbers["overlap", block] = np.nan if block == 2 and loss else less * (block + seed) / 8
                    numbers["untrained_overlap", block] = 0.9
                for i, (a, b) in enumerate(PAIRS):
                    numbers[f"jaccard_{a}_{b}", np.nan] = less * (i + 1 + seed) / 10
                    numbers[f"untrained_jaccard_{a}_{b}", np.nan] = 0.4 + i / 100
                numbers["jaccard_same", np.nan] = 0.95
                for (name, layer), value in numbers.items():
                    made.append({**run, "quantity": name, "layer": layer, "value": value})
    return table_of(made)


def bars(axes: Axes) -> list[list[float]]:
    """The bars of an axes from left to right, as place and height."""
    found = [bar for container in axes.containers if isinstance(container, BarContainer) for bar in container]
    return sorted([round(bar.get_x() + bar.get_width() / 2, 3), round(bar.get_height(), 5)] for bar in found)


def dashed(axes: Axes) -> list[float]:
    return [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]  # type: ignore[index]


def legend(figure: Figure) -> list[str]:
    (found,) = figure.legends
    return [text.get_text() for text in found.get_texts()]


def test_overlap_stands_by_block_with_and_without_the_loss() -> None:
    figure = figures.draw_overlap(runs(seeds=3))
    assert [axes.get_title() for axes in figure.axes] == ["DiT on VQ", "MaskGIT on VQ"]
    for axes in figure.axes:
        medians = [(block + 1) / 8 for block in BLOCKS]
        without = [[block - 0.2, m] for block, m in zip(BLOCKS, medians, strict=True)]
        with_it = [[block + 0.2, m / 2] for block, m in zip(BLOCKS, medians, strict=True) if block != 2]
        assert bars(axes) == pytest.approx(np.array(sorted(without + with_it)))
        assert dashed(axes) == [0.9] * 4
        assert len(axes.lines) == 4 + 7, "beside the bars are points of seeds, and no line of a mean"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    assert legend(figure) == ["without JEPA", "JEPA 0.6, layers three", "untrained"]
    hatches = {bar.get_hatch() for bar in figure.axes[0].patches}
    assert hatches == {"", "//"}, "no colour is needed"


def test_bars_of_the_six_pairs_are_what_the_table_says() -> None:
    figure = figures.draw_jaccard(runs(families=[("maskgit", "vq")]))
    (axes,) = figure.axes
    heights = {f"{a}_{b}": (i + 1) / 10 for i, (a, b) in enumerate(PAIRS)}
    expected = [height for pair in ORDER for height in (heights[pair], heights[pair] / 2)]
    assert [height for _, height in bars(axes)] == pytest.approx([*expected, 0.95, 0.95])
    controls = {f"{a}_{b}": 0.4 + i / 100 for i, (a, b) in enumerate(PAIRS)}
    assert dashed(axes) == pytest.approx([controls[pair] for pair in ORDER])
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == [*(pair.replace("_", "\n") for pair in ORDER), "same"]
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert places == {"one factor apart": 1.5, "two apart": 5.0}


def test_every_panel_has_the_runs_of_its_own_tokenizer() -> None:
    table = runs(families=[("dit", "vae"), ("dit", "vq")], losses=[{}])
    table["value"] *= table["encoding"].map({"vae": 1.0, "vq": 0.5})
    of_vae, of_vq = figures.draw_overlap(table).axes
    assert [height for _, height in bars(of_vae)] == [block / 8 for block in BLOCKS]
    assert [height for _, height in bars(of_vq)] == [block / 16 for block in BLOCKS]


def test_a_bar_is_as_high_as_the_median_seed() -> None:
    table = runs(seeds=3, families=[("dit", "vq")], losses=[{}])
    table["value"] = table["seed"].map({0: 0.0, 1: 0.0, 2: 0.9})
    assert {height for _, height in bars(figures.draw_overlap(table).axes[0])} == {0.0}


def test_every_setting_of_the_loss_has_bars_of_its_own() -> None:
    losses = [{}, WITH, {**WITH, "jepa_layers": "one"}, {**WITH, "jepa_teacher": "gradient"}]
    figure = figures.draw_overlap(runs(losses=losses))
    assert legend(figure) == [
        "without JEPA", "JEPA 0.6, layers one", "JEPA 0.6, layers three", "JEPA 0.6, layers three, teacher gradient",
        "untrained",
    ]  # fmt: skip
    assert len(bars(figure.axes[0])) == 4 + 3 * 3
    both = pd.concat([runs(families=[("dit", "vq")], losses=[{}, WITH]), runs(families=[("maskgit", "vq")], losses=losses)])
    of_dit, of_maskgit = ({bar.get_hatch() for bar in axes.patches} for axes in figures.draw_overlap(both).axes)
    assert of_dit == {"", "xx"}, "that of the same setting in all panels, and in the legend"
    assert of_maskgit == {"", "//", "xx", ".."}
    alone = figures.draw_jaccard(runs(losses=[WITH]))
    assert legend(alone) == ["JEPA 0.6, layers three", "untrained"]


ALL_LOSSES = [{}, WITH, {**WITH, "jepa_layers": "one"}, {**WITH, "jepa_teacher": "gradient"}, {"jepa": 0.3}, {"jepa": 0.9}]
FAMILIES = ("dit", "vae"), ("dit", "vq"), ("maskgit", "vq")


@pytest.mark.slow(6)
@pytest.mark.parametrize("name", ["overlap", "jaccard"])
@pytest.mark.parametrize("families", [FAMILIES[2:], FAMILIES[1:], FAMILIES])
@pytest.mark.parametrize("losses", [[{}, WITH], [{}, {**WITH, "jepa_teacher": "gradient"}], ALL_LOSSES])
def test_figures_become_files_in_which_nothing_is_cut_off(
    name: str, families: Sequence[tuple[str, str]], losses: Sequence[dict[str, Any]]
) -> None:
    figure: Figure = getattr(figures, f"draw_{name}")(runs(2, families, losses))
    assert image(figure).startswith(b"\x89PNG")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole, renderer = figure.bbox, canvas.get_renderer()
    told = [text for axes in figure.axes for text in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label)]
    ticks = [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    for text in (*told, *ticks, *figure.legends[0].get_texts()):
        box = text.get_window_extent(renderer)
        assert not text.get_text() or (whole.x0 <= box.x0 <= box.x1 <= whole.x1 and whole.y0 <= box.y0 <= box.y1 <= whole.y1)
    for axes in figure.axes:
        assert axes.get_window_extent().height > 120, "the legend leaves it room"
        boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes)), "labels do not overlap"
