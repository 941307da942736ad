"""Figures of the geometry of layers: volume maps, their change in the held-out box, and what of x and y is left for a linear
map (paper figures 2, 4d and 11 to 14)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.panels import (
    DECODER_NAMES,
    ENCODING_NAMES,
    MOST_LAYERS,
    PAGE,
    SMALL,
    array_of,
    box_of,
    draw_box,
    draw_map,
    legend_below,
    lines_by_layer,
)
from analysis.figures.style import COLOURS
from analysis.measures.geometry import LEAST_VOLUME

DATASET_NAMES = {"bumps": "bumps", "stripes+bumps": "stripes + bumps"}
DATASET_COLOURS = {"bumps": COLOURS[1], "stripes+bumps": COLOURS[0]}
LEAST_R2 = -1.0
"""Lower end of the axis of R^2, which has none."""
BELOW: dict[str, Any] = {"marker": "v", "ms": 4}
"""Of the means that lie under it."""
ACROSS = 6
"""Depths in a line of a legend."""
MOST_NAMED = 8
"""Layers that an axis names between its first and its last one."""
WIDE, NARROW = 1.3, 0.85
"""Inches of a panel with an axis of layers, and of a map with its title."""


def draw_volumes(table: pd.DataFrame) -> Figure:
    """log10 of the volume metric over the positions, less the layer's mean, at the greatest depth that all have: a row per data
    set, decoder and code, a column per layer (figures 2e, f, 4d, 11 to 14). One scale of colours, three standard deviations of
    all panels to both sides: the contrast between box and surroundings can be compared across layers and rows."""
    maps = table[table["quantity"] == "volume_map"]
    depth = max(set.intersection(*(set(part["depth"]) for _, part in groups(maps))))
    rows = [(title, part, _log_volumes(part)) for title, part in groups(maps[maps["depth"] == depth])]
    apart = np.concatenate([(values - values.mean()).ravel() for _, _, logs in rows for values in logs])
    limit = 3 * np.std(apart)
    columns = min(MOST_LAYERS, max(len(logs) for _, _, logs in rows))
    figure = Figure(figsize=(max(PAGE, 1.0 + NARROW * columns), 0.5 + 1.05 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes_row, (title, part, logs) in zip(grid, rows, strict=True):
        for layer, (axes, values) in enumerate(zip(axes_row, logs, strict=False)):
            shown = draw_map(axes, values - values.mean(), cmap="RdBu_r", vmin=-limit, vmax=limit)
            draw_box(axes, *box_of(part), colour="black")
            name = "image" if layer == len(logs) - 1 else f"layer {layer}"
            axes.set_title(f"{name}: {values.mean():.2f}", fontsize=SMALL, pad=2)
        for axes in axes_row[len(logs) :]:
            axes.set_axis_off()
        axes_row[0].set_ylabel(title.replace(", ", "\n"), fontsize=SMALL)
    below, above = bool(apart.min() < -limit), bool(apart.max() > limit)
    ends = "both" if below and above else "min" if below else "max" if above else "neither"
    bar = figure.colorbar(shown, ax=grid, pad=0.01, aspect=40, shrink=0.6, extend=ends)
    bar.set_label(r"$\log_{10}$ volume metric minus its mean", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    figure.suptitle(f"depth {depth}; x to the right, y up; dashed: held out; above each panel the layer's mean", fontsize=SMALL)
    return figure


def _log_volumes(part: pd.DataFrame) -> list[np.ndarray]:
    """Of the layers behind the code, in order."""
    layers = sorted(int(layer) for layer in part["layer"].unique() if layer >= 0)
    return [np.log10(array_of(part, "volume_map", layer) + LEAST_VOLUME) for layer in layers]


def draw_volume_gap(table: pd.DataFrame) -> Figure:
    """Mean log10 volume in the box less that outside, by layer, of decoders trained on bumps and on stripes with bumps: a row
    per decoder, a column per depth; only codes that both data sets have (figures 4d, 13, 14)."""
    codes = set.intersection(*(set(part["encoding"]) for _, part in table.groupby("dataset")))
    table = table[table["encoding"].isin(codes)]
    runs = ["dataset", "decoder", "depth", "seed", "layer"]
    inside, outside = (table[table["quantity"] == name].set_index(runs)["value"] for name in ("volume_ood", "volume_id"))
    gaps = (inside - outside).reset_index().assign(quantity="gap")
    decoders = [d for d in DECODER_NAMES if d in set(gaps["decoder"])]
    depths = sorted(set(gaps["depth"]))[:MOST_LAYERS]
    size = max(PAGE, 0.5 + WIDE * len(depths)), 0.7 + 1.6 * len(decoders)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(decoders), len(depths), squeeze=False, sharey=True)
    for axes_row, decoder in zip(grid, decoders, strict=True):
        for axes, depth in zip(axes_row, depths, strict=True):
            part = gaps[(gaps["decoder"] == decoder) & (gaps["depth"] == depth)]
            axes.axhline(0, color="0.6", lw=0.8, zorder=0)
            for dataset, colour in DATASET_COLOURS.items():
                lines_by_layer(axes, part[part["dataset"] == dataset], "gap", colour, DATASET_NAMES[dataset])
            if not part.empty:
                layer_axis(axes, int(part["layer"].max()))
            axes.set_title(f"{DECODER_NAMES[decoder]}, depth {depth}", fontsize=SMALL)
        axes_row[0].set_ylabel("OOD minus ID,\n" + r"mean $\log_{10}$ volume", fontsize=SMALL)
    for axes in grid[-1]:
        axes.set_xlabel("layer", fontsize=SMALL)
    legend_below(figure, DATASET_NAMES.values(), len(DATASET_NAMES))
    return figure


def draw_by_layer(table: pd.DataFrame) -> Figure:
    """R^2 of the linear probe, judged on ID and on OOD positions, and the factorization metric against the layer, without the
    image, which is the last one measured: a line per depth, a column per data set, decoder and code (figures 2a to d, 11 to
    14). A mean of R^2 under LEAST_R2 is a triangle at the lower edge."""
    image = table.groupby(["dataset", "decoder", "encoding", "depth"])["layer"].transform("max")
    columns = list(groups(table[table["layer"] < image]))
    depths = sorted(set(table["depth"]))
    colours = dict(zip(depths, matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(depths))), strict=True))
    names = {
        "r2_id": "probe $R^2$,\nfitted and judged on ID",
        "r2_ood": "probe $R^2$,\nfitted on ID, judged on OOD",
        "factorization": "factorization",
    }
    figure = Figure(figsize=(PAGE, 5.2), layout="constrained")
    grid = figure.subplots(len(names), len(columns), squeeze=False, sharex="col", sharey="row")
    for axes_row, (quantity, name) in zip(grid, names.items(), strict=True):
        for axes, (title, part) in zip(axes_row, columns, strict=True):
            for depth, colour in colours.items():
                lines_by_layer(axes, part[part["depth"] == depth], quantity, colour, f"depth {depth}")
            layer_axis(axes, int(part["layer"].max()), image=False)
            if quantity == "r2_id":
                axes.set_title(title, fontsize=SMALL)
        axes_row[0].set_ylabel(name, fontsize=SMALL)
    are_below = [_mark_below(axes) for axes in grid[:2].flat]
    for axes in grid[:2, 0]:
        axes.set_ylim(bottom=max(axes.get_ylim()[0], LEAST_R2))
    for axes in grid[-1]:
        axes.set_xlabel("layer", fontsize=SMALL)
    told = Line2D([], [], color="0.3", ls="none", **BELOW, label=f"mean below {LEAST_R2:g}")
    legend_below(figure, [f"depth {depth}" for depth in depths], ACROSS, [told] * any(are_below))
    return figure


def _mark_below(axes: Axes) -> bool:
    """Mark the points of lines that lie under LEAST_R2; whether there are any."""
    points = [(line, *np.asarray(line.get_data(), float)) for line in axes.lines]
    under = [(line, x[y < LEAST_R2]) for line, x, y in points if (y < LEAST_R2).any()]
    for line, x in under:
        axes.plot(x, [LEAST_R2] * len(x), ls="none", color=line.get_color(), clip_on=False, zorder=3, **BELOW)
    return bool(under)


def groups(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and rows of every data set, decoder and code in the table; the data set is named only where there are several."""
    several = table["dataset"].nunique() > 1
    for (dataset, decoder, encoding), part in table.groupby(["dataset", "decoder", "encoding"], sort=True):
        name = f"{DECODER_NAMES[decoder]}, {ENCODING_NAMES[encoding]}"
        yield f"{name}, {DATASET_NAMES[dataset]}" if several else name, part


def layer_axis(axes: Axes, last: int, image: bool = True) -> None:
    """Ticks of the input code and of the layers up to `last`, the image if there is one; of many layers some. The image is
    turned, as it would run into the layer before it."""
    step = 1 + (last - 1) // MOST_NAMED
    between = range(0, last - step + 1, step)
    axes.set_xticks([-1, *between, last], ["in", *map(str, between), "image" if image else str(last)])
    if image:
        axes.get_xticklabels()[-1].set_rotation(90)
    axes.tick_params(labelsize=SMALL)
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
