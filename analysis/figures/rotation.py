"""The figure of the rotation study: error by angle, what is drawn in the gap, and the layers' shapes (paper figure 9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from analysis.figures.panels import MOST_LAYERS, PAGE, SMALL, array_of, bands, rows_of
from analysis.figures.style import COLOURS

SHOWN = 10
"""Angles of the gap that are drawn."""
PICTURES = {"gap_outputs": "drawn", "gap_mixes": "best mix", "gap_truth": "truth"}
CYCLIC = "twilight"


def draw_rotation(table: pd.DataFrame) -> Figure:
    """Paper figure 9: squared error by angle, of all seeds, the gap shaded; what the lowest seed draws in the gap, above the
    best linear mix of the gap's edges and the truth; UMAP of its layers, coloured by angle."""
    figure = Figure(figsize=(PAGE, 6.6), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, squeeze=False, height_ratios=(1.7, 2.3, 2.2))[:, 0]
    options = table["options"].iloc[0]
    _draw_error(top, table, options["gap_low"], options["gap_high"])
    _draw_gap(middle, table)
    if len(rows_of(table, "embedding")):
        _draw_layers(bottom, table)
    return figure


def _draw_error(figure: SubFigure, table: pd.DataFrame, low: float, high: float) -> None:
    axes = figure.subplots()
    axes.axvspan(low, high, color=COLOURS[1], alpha=0.15, lw=0, label="held out")
    errors = np.stack(rows_of(table, "mse_by_angle")["array"].tolist())
    seeds = f"mean and range of {len(errors)} seeds" if len(errors) > 1 else "one seed"
    bands(axes, array_of(table, "angles"), errors, COLOURS[0], seeds, marker="")
    axes.set(yscale="log", xlim=(0, 360), xticks=range(0, 361, 40))
    axes.set_xlabel("angle (degrees)", fontsize=SMALL + 1)
    axes.set_ylabel("MSE", fontsize=SMALL + 1)
    axes.tick_params(labelsize=SMALL)
    axes.legend(fontsize=SMALL, loc="upper right")
    axes.set_title("error by angle", fontsize=SMALL + 1)


def _draw_gap(figure: SubFigure, table: pd.DataFrame) -> None:
    angles = array_of(table, "gap_angles")
    shown = np.linspace(0, len(angles) - 1, min(SHOWN, len(angles))).round().astype(int)
    grid = figure.subplots(len(PICTURES), len(shown), squeeze=False)
    for line, (quantity, name) in zip(grid, PICTURES.items(), strict=True):
        images = array_of(table, quantity)
        for axes, i in zip(line, shown, strict=True):
            axes.imshow(images[i], cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=SMALL + 1)
    for axes, i in zip(grid[0], shown, strict=True):
        axes.set_title(f"{angles[i]:g}°", fontsize=SMALL)


def _draw_layers(figure: SubFigure, table: pd.DataFrame) -> None:
    angles = array_of(table, "embedding_angles")
    layers = sorted({int(layer) for layer in rows_of(table, "embedding")["layer"]})
    panels = figure.subplots(1, min(MOST_LAYERS, len(layers)), squeeze=False)[0]
    colours: dict[str, Any] = {"cmap": CYCLIC, "norm": Normalize(0, 360)}
    for axes, layer in zip(panels, layers, strict=False):
        x, y = array_of(table, "embedding", layer).T
        axes.scatter(x, y, c=angles, s=4, **colours)
        axes.set(xticks=[], yticks=[])
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_title("image" if layer == layers[-1] else f"layer {layer}", fontsize=SMALL + 1)
    bar = figure.colorbar(ScalarMappable(**colours), ax=panels, ticks=range(0, 361, 90), pad=0.01)
    bar.set_label("angle (degrees)", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    panels[0].set_ylabel("UMAP of activations", fontsize=SMALL + 1)
