"""Figures of what single units respond to, by layer and number of bumps beside the stripes (paper figures 4e, f and 15)."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.figures.panels import MOST_LAYERS, PAGE, SMALL, array_of, box_of, draw_box, draw_map, legend_below, lines_by_layer
from analysis.figures.style import COLOURS
from analysis.measures.tuning import STRIPED, additive_share

MOST_PAIRS = 200
"""Pairs of maps that a figure shows: it takes a tenth of a second to draw one."""
MAP = 0.8
"""Inches of a map with what stands below it."""
ACROSS, LINE = 6, 0.15
"""Numbers of bumps in a line of the legend, and the inches of such a line."""


def draw_tuning(table: pd.DataFrame) -> Figure:
    """Activation maps of the most and the least additive of the eight units kept of a layer, of the lowest seed, with their
    marginals: the mean over y as a curve above, that over x beside the map. A row per layer, two columns per number of bumps
    (figures 4e, f, 15)."""
    maps = table[table["quantity"] == "maps"]
    layers = sorted(maps["layer"].unique())[:MOST_LAYERS]
    counts = sorted(maps["data_count"].unique())[: MOST_PAIRS // len(layers)]
    figure = Figure(figsize=(max(PAGE, 0.4 + MAP * 2 * len(counts)), 0.5 + 1.02 * len(layers)), layout="constrained")
    grid = figure.subplots(len(layers), 2 * len(counts), squeeze=False)
    for row, layer in enumerate(layers):
        for group, count in enumerate(counts):
            part = maps[maps["data_count"] == count]
            for axes, unit in zip(grid[row, 2 * group :], extremes(array_of(part, "maps", int(layer))), strict=False):
                draw_unit(axes, unit, box_of(part))
        grid[row, 0].set_ylabel(f"layer {int(layer)}", fontsize=SMALL)
    for group, count in enumerate(counts):
        grid[0, 2 * group].set_title(f"{count} bumps", fontsize=SMALL + 1, loc="left", pad=16)
    figure.suptitle(
        "most and least additive of eight typical units; curves: mean over y (top) and over x (side)", fontsize=SMALL
    )
    return figure


def extremes(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of maps (n, N, N), the most and the least additive one; silent ones only if all are."""
    shares, variances = additive_share(np.moveaxis(maps, 0, -1))
    if not variances.any():
        return maps[0], maps[1]
    return maps[np.nanargmax(shares)], maps[np.nanargmin(shares)]


def draw_unit(axes: Axes, activations: np.ndarray, box: tuple[int, int]) -> None:
    """One map (N, N), its marginals at two of its sides, and the share of its variance that they explain."""
    N = len(activations)
    draw_map(axes, activations, cmap="viridis")
    draw_box(axes, *box)
    above, beside = axes.inset_axes((0, 1.04, 1, 0.22)), axes.inset_axes((1.04, 0, 0.22, 1))
    of_x, of_y = activations.mean(axis=0), activations.mean(axis=1)
    above.plot(range(N), of_x, color=COLOURS[1], lw=1)
    beside.plot(of_y, range(N), color=COLOURS[0], lw=1)
    top = max(of_x.max(), of_y.max()) * 1.05 or 1.0
    above.set(xlim=(-0.5, N - 0.5), ylim=(0, top))
    beside.set(ylim=(-0.5, N - 0.5), xlim=(0, top))
    for marginal in (above, beside):
        marginal.set_axis_off()
    share = additive_share(activations[..., None])[0][0]
    axes.set_xlabel("silent" if np.isnan(share) else f"additive {share:.2f}", fontsize=SMALL, labelpad=1)


def draw_striped(table: pd.DataFrame) -> Figure:
    """By layer, a line per number of bumps: share of striped units, and the median share of a map's variance that its marginals
    explain."""
    counts = sorted(table["data_count"].unique())
    colours = dict(zip(counts, matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(counts))), strict=True))
    figure = Figure(figsize=(PAGE, 2.4 + LINE * math.ceil(len(counts) / ACROSS)), layout="constrained")
    names = {
        "striped": f"share of active units that are\nadditive to more than {STRIPED}",
        "additive": "additive share of the\nvariance, median unit",
    }
    for axes, (quantity, name) in zip(figure.subplots(1, 2), names.items(), strict=True):
        for count, colour in colours.items():
            lines_by_layer(axes, table[table["data_count"] == count], quantity, colour, f"{count} bumps")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("layer", fontsize=SMALL)
        axes.set_ylabel(name, fontsize=SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelsize=SMALL)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    legend_below(figure, [f"{count} bumps" for count in counts], ACROSS)
    return figure
