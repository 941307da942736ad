"""Figures of what goes on inside of generators: how evenly heads react to the factors, and how many units compositions share,
with and without the auxiliary loss, beside untrained networks (arXiv 2510.03075). A panel per objective and tokenizer.

Settings of the loss differ in colour and in hatching, so that no colour is needed to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.generated import FAMILY_NAMES, WITHOUT_LOSS, loss_of
from analysis.figures.panels import COLUMN, HATCHES, SMALL, seed_points, values_of
from analysis.figures.style import COLOURS
from analysis.measures.circuits import APART

APART_NAMES = {"one_apart": "one factor apart", "two_apart": "two apart"}
LINE = 0.15
"""Inches of a line of the legend."""
BARS = 0.8
"""Width of the bars of a place together; places are 1 apart."""
Losses = Mapping[str, tuple[str, str]]
"""Colour and hatching by the setting of the auxiliary loss."""


def draw_overlap(table: pd.DataFrame) -> Figure:
    """The polysemanticity of the heads of each block, mean over its heads: medians over the seeds (points) for each setting of
    the auxiliary loss; dashed, untrained networks."""
    (figure, panels), losses = _panels(table), _losses(table)
    for axes, part in panels:
        blocks = sorted(part[part["quantity"] == "overlap"]["layer"].dropna().astype(int).unique())
        _bars(axes, part, losses, [(block, "overlap", block) for block in blocks])
        axes.set_xticks(blocks, [str(block) for block in blocks])
        axes.set(xlabel="block", ylim=(0, 1.05))
    figure.axes[0].set_ylabel("polysemanticity of heads", fontsize=SMALL)
    return _with_legend(figure, losses)


def draw_jaccard(table: pd.DataFrame) -> Figure:
    """The share of the units of either circuit that the circuits of two compositions have in common, for the six pairs of shape
    and colour: medians over the seeds (points) for each setting of the auxiliary loss; dashed, untrained networks. At the end,
    what circuits of one composition share that were found on other pictures of it."""
    (figure, panels), losses = _panels(table), _losses(table)
    for axes, part in panels:
        place, ticks, quantities = 0.0, {}, []
        for name, pairs in APART.items():
            middle = place + (len(pairs) - 1) / 2
            axes.text(middle, 1.07, APART_NAMES[name], fontsize=SMALL, ha="center", va="bottom")
            for a, b in pairs:
                ticks[place] = f"{a}\n{b}"
                quantities.append((place, f"jaccard_{a}_{b}", None))
                place += 1
            place += 0.5
        ticks[place] = "same"
        _bars(axes, part, losses, [*quantities, (place, "jaccard_same", None)])
        axes.set_xticks(list(ticks), list(ticks.values()), family="monospace")
        axes.set(ylim=(0, 1.18))
    figure.axes[0].set_ylabel("Jaccard index of circuits", fontsize=SMALL)
    return _with_legend(figure, losses)


def _panels(table: pd.DataFrame) -> tuple[Figure, Sequence[tuple[Axes, pd.DataFrame]]]:
    """An empty panel for each objective and tokenizer, and the runs of it."""
    there = set(zip(table["decoder"], table["encoding"], strict=True))
    families = [family for family in FAMILY_NAMES if family in there]
    figure = Figure(figsize=(max(COLUMN, 0.4 + 3.0 * len(families)), 2.7), layout="constrained")
    panels = []
    for axes, family in zip(figure.subplots(1, len(families), squeeze=False, sharey=True)[0], families, strict=True):
        axes.set_title(FAMILY_NAMES[family], fontsize=SMALL + 1)
        axes.set_yticks(np.linspace(0, 1, 6))
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.label.set_size(SMALL)
        axes.spines[["top", "right"]].set_visible(False)
        panels.append((axes, table[(table["decoder"] == family[0]) & (table["encoding"] == family[1])]))
    return figure, panels


def _bars(axes: Axes, table: pd.DataFrame, losses: Losses, places: Sequence[tuple[float, str, int | None]]) -> None:
    """At each place a bar for each setting of the loss, of a quantity and layer; and dashed, that of untrained networks."""
    width = BARS / len(losses)
    for x, quantity, layer in places:
        for i, (name, (colour, hatch)) in enumerate(losses.items()):
            values = values_of(table[table["options"].map(loss_of) == name], quantity, layer)
            values = values[np.isfinite(values)]
            if not len(values):
                continue
            middle = x + (i - (len(losses) - 1) / 2) * width
            axes.bar(
                middle, np.median(values), 0.92 * width, color=colour, hatch=hatch, alpha=0.55, edgecolor="0.25", linewidth=0.6
            )
            seed_points(axes, middle, values, "0.15", mean=False, ms=2.5)
        control = values_of(table, f"untrained_{quantity}", layer)
        control = control[np.isfinite(control)]
        if len(control):
            axes.plot([x - 0.48, x + 0.48], [np.median(control)] * 2, color="0.2", ls="--", lw=1)


def _losses(table: pd.DataFrame) -> Losses:
    """The settings that occur, that without the loss first."""
    found = sorted(set(table["options"].map(loss_of)), key=lambda name: (name != WITHOUT_LOSS, name))
    return {name: (COLOURS[(1, 0, 2, 3, 4, 5)[i % 6]], HATCHES[i % 4]) for i, name in enumerate(found)}


def _with_legend(figure: Figure, losses: Losses) -> Figure:
    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, hatch=hatch, alpha=0.55, edgecolor="0.25", label=name)
        for name, (colour, hatch) in losses.items()
    ]
    handles.append(Line2D([], [], color="0.2", ls="--", lw=1, label="untrained"))
    in_a_line = 3 if len(figure.axes) > 1 else 1
    lines = math.ceil(len(handles) / in_a_line)
    figure.set_figheight(figure.get_figheight() + LINE * max(0, lines - 2))
    figure.legend(handles=handles, loc="outside lower center", ncols=in_a_line, fontsize=SMALL, frameon=False)
    return figure
