"""Figures of what decoders draw: errors over the positions, pictures from the held-out box, superposition (paper figures 1b-d,
4b, 7, 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, PowerNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from analysis.figures.panels import (
    DECODER_MARKERS,
    DECODER_NAMES,
    ENCODING_NAMES,
    PAGE,
    SMALL,
    array_of,
    box_of,
    draw_box,
    draw_map,
    in_order,
    seed_points,
    values_of,
)
from analysis.figures.style import COLOURS

CROSS = COLOURS[1]
FAINT = 0.5
"""Exponent of the grey scale of pictures: a hundredth of a bump is drawn as a tenth."""
EDGE = 1.15
"""At least this factor lies between the error of the blank image and the ends of the scale, where its line is hard to see."""
PICTURE, BESIDE = 0.62, 0.9
"""Inches of a picture with its title, and of the scale beside pictures."""


def draw_errors(table: pd.DataFrame) -> Figure:
    """Error at every position: decoders down, encodings across, one colour scale, which includes the error of the blank image
    (paper figures 1b, c)."""
    encodings, decoders = _encodings(table), _decoders(table)
    maps = {(d, e): array_of(table, "mse_map", decoder=d, encoding=e) for d in decoders for e in encodings}
    everything, blank = np.stack(list(maps.values())), values_of(table, "blank_mse")[0]
    errors = np.append(everything, [blank / EDGE, blank * EDGE])
    norm = LogNorm(errors[errors > 0].min(), errors[errors > 0].max())
    (low, high), N = box_of(table), everything.shape[-1]
    figure = Figure(figsize=(0.9 + PAGE / 4.5 * len(encodings), 0.35 + 1.75 * len(decoders)), layout="constrained")
    grid = figure.subplots(len(decoders), len(encodings), squeeze=False)
    for (decoder, encoding), axes in zip(maps, grid.flat, strict=True):
        shown = draw_map(axes, maps[decoder, encoding], cmap="viridis", norm=norm)
        draw_box(axes, low, high)
        ticks = sorted({0, low, high, N - 1})
        axes.set_xticks(ticks, [str(t) for t in ticks], fontsize=SMALL)
        axes.set_yticks(ticks, [str(t) for t in ticks], fontsize=SMALL)
        means = [_mean_of(table, f"{region}_mse", decoder=decoder, encoding=encoding) for region in ("id", "ood")]
        axes.set_title(
            f"{DECODER_NAMES[decoder]}, {ENCODING_NAMES[encoding]}\nID {means[0]:.1e}, OOD {means[1]:.1e}", fontsize=SMALL
        )
    for axes in grid[-1]:
        axes.set_xlabel("x (px)", fontsize=SMALL)
    for axes in grid[:, 0]:
        axes.set_ylabel("y (px)", fontsize=SMALL)
    bar = figure.colorbar(shown, ax=grid, shrink=0.9, pad=0.16 / len(encodings))  # a title is wider than its panel
    bar.ax.axhline(blank, color="white", lw=1.2)
    bar.ax.tick_params(labelsize=SMALL, which="both")
    bar.set_label("MSE (white line: blank image)", fontsize=SMALL)
    return figure


def draw_generated(table: pd.DataFrame) -> Figure:
    """Pictures at four positions of the box, one row each, by decoder and encoding (paper figures 1b, c)."""
    columns = [(d, e) for d in _decoders(table) for e in _encodings(table)]
    pictures = [array_of(table, "pictures", decoder=d, encoding=e) for d, e in columns]
    titles = [f"{DECODER_NAMES[d]}\n{ENCODING_NAMES[e].removesuffix(' code')}" for d, e in columns]
    figure = Figure(figsize=(PAGE, 0.5 + len(pictures[0]) * PAGE / (len(columns) + 1.2)), layout="constrained")
    _draw_pictures(figure, table, pictures, titles)
    return figure


def draw_by_depth(table: pd.DataFrame) -> Figure:
    """Pictures at four positions of the box by number of hidden layers (paper figure 10)."""
    depths = sorted(int(d) for d in table["depth"].unique())
    pictures = [array_of(table, "pictures", depth=d) for d in depths]
    proper = [_mean_of(table, "ood_proper", depth=d) for d in depths]
    titles = [f"depth {d}\n{share:.0%} proper" for d, share in zip(depths, proper, strict=True)]
    figure = Figure(figsize=(1.1 + 1.15 * len(depths), 0.5 + 1.1 * len(pictures[0])), layout="constrained")
    _draw_pictures(figure, table, pictures, titles)
    return figure


def draw_by_bumps(table: pd.DataFrame) -> Figure:
    """Pictures at four positions of the box by number of bumps beside the stripes, and every seed's error in the box (paper
    figures 4b, 7)."""
    counts = sorted(int(n) for n in table["data_count"].unique())
    pictures = [array_of(table, "pictures", data_count=n) for n in counts]
    widths = max(0.62 * PAGE, BESIDE + PICTURE * len(counts)), 0.38 * PAGE
    figure = Figure(figsize=(sum(widths), 3.9), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=widths)[0]
    _draw_pictures(left, table, pictures, [f"{n} bumps" for n in counts])
    axes = right.subplots()
    for place, count in enumerate(counts):
        seed_points(axes, place, values_of(table, "ood_mse", data_count=count), COLOURS[0])
    blank = values_of(table, "blank_mse")[0]
    axes.axhline(blank, color="0.3", ls="--", lw=1)
    axes.text(0.98, 1.05 * blank, "blank image", fontsize=SMALL, ha="right", va="bottom", transform=axes.get_yaxis_transform())
    axes.set_yscale("log")
    axes.set_xticks(range(len(counts)), [str(n) for n in counts])
    axes.tick_params(labelsize=SMALL, which="both")
    axes.set_xlabel("bumps added to the stripes", fontsize=SMALL)
    axes.set_ylabel("OOD mean squared error (points: seeds)", fontsize=SMALL)
    return figure


def draw_superposition(table: pd.DataFrame) -> Figure:
    """Three positions of the box: what x alone gives, y alone, their sum, of which the peak is 1, and the picture, on its own
    scale; and the correlation of the last two over the whole box by encoding, decoder and seed, beside that with the sums of
    other positions (paper figure 1d)."""
    decoder = _decoders(table)[0]
    shown = in_order(table, "encoding", ("bump", "ramp")) or _encodings(table)[:1]
    figure = Figure(figsize=(PAGE, 4.6), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[0.62, 0.38])[:, 0]
    blocks = above.subfigures(1, len(shown), squeeze=False)[0]
    for block, encoding in zip(blocks, shown, strict=True):
        _draw_parts(block, table[(table["decoder"] == decoder) & (table["encoding"] == encoding)])
        block.suptitle(f"{DECODER_NAMES[decoder]}, {ENCODING_NAMES[encoding]}", fontsize=SMALL + 1)
    _draw_correlations(below.subplots(), table)
    return figure


def _draw_parts(figure: SubFigure, table: pd.DataFrame) -> None:
    panels, points = array_of(table, "panels"), array_of(table, "panel_points")
    grid = figure.subplots(*panels.shape[:2], squeeze=False)
    for axes_row, images, (x, y) in zip(grid, panels, points, strict=True):
        for axes, image in zip(axes_row, images[:3], strict=False):
            draw_map(axes, image, cmap="gray_r", vmin=0, vmax=1)
        peak = float(images[3].max())
        draw_map(axes_row[3], images[3], cmap="gray_r", vmin=0, vmax=peak if peak > 0 else 1.0)
        axes_row[3].set_xlabel(f"peak {peak:.2g}", fontsize=SMALL, labelpad=1)
        for axes in axes_row[[0, 2, 3]]:
            axes.axvline(x, color=CROSS, ls="--", lw=0.7)
        for axes in axes_row[[1, 2, 3]]:
            axes.axhline(y, color=CROSS, ls="--", lw=0.7)
        axes_row[0].set_ylabel(f"({x:.0f}, {y:.0f})", fontsize=SMALL)
    for axes, title in zip(grid[0], ("x alone", "y alone", "sum", "drawn"), strict=True):
        axes.set_title(title, fontsize=SMALL)


def _draw_correlations(axes: Axes, table: pd.DataFrame) -> None:
    encodings, decoders = _encodings(table), _decoders(table)
    kinds = {"correlation": (COLOURS[0], "sum of its own parts"), "shuffled": ("0.5", "sum at another position")}
    for place, encoding in enumerate(encodings):
        for index, decoder in enumerate(decoders):
            x = place + (index - (len(decoders) - 1) / 2) * 0.34
            for quantity, (colour, _) in kinds.items():
                values = values_of(table, quantity, encoding=encoding, decoder=decoder)
                seed_points(axes, x, values, colour, marker=DECODER_MARKERS[decoder])
    handles = [Line2D([], [], color=colour, lw=2, label=label) for colour, label in kinds.values()]
    handles += [
        Line2D([], [], color="0.2", ls="none", marker=DECODER_MARKERS[d], ms=4, label=DECODER_NAMES[d]) for d in decoders
    ]
    axes.legend(handles=handles, fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.axhline(0, color="0.8", lw=0.8, zorder=0)
    axes.set_xticks(range(len(encodings)), [ENCODING_NAMES[e] for e in encodings])
    axes.tick_params(labelsize=SMALL)
    axes.set_ylabel("correlation with the picture\n(median over the box)", fontsize=SMALL)


def _draw_pictures(
    figure: Figure | SubFigure, table: pd.DataFrame, pictures: Sequence[np.ndarray], titles: Sequence[str]
) -> None:
    """A column per title, a row per position, one grey scale, stretched so that faint pictures show beside full bumps; the box
    dashed, a cross where the bump belongs."""
    points, (low, high) = array_of(table, "picture_points"), box_of(table)
    top = max(1.0, float(np.max(pictures)))
    grid = figure.subplots(len(points), len(titles), squeeze=False)
    for axes_column, images, title in zip(grid.T, pictures, titles, strict=True):
        for axes, image, (x, y) in zip(axes_column, images, points, strict=True):
            shown = draw_map(axes, image, cmap="gray_r", norm=PowerNorm(FAINT, 0, top, clip=True))
            draw_box(axes, low, high, COLOURS[0]).set_linewidth(0.7)
            axes.plot(x, y, "+", color=CROSS, ms=4, mew=0.8)
        axes_column[0].set_title(title, fontsize=SMALL)
    for axes, (x, y) in zip(grid[:, 0], points, strict=True):
        axes.set_ylabel(f"({x:.0f}, {y:.0f})", fontsize=SMALL)
    bar = figure.colorbar(shown, ax=grid, shrink=0.7, pad=0.01)
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("pixel value (cross: where the bump belongs)", fontsize=SMALL)


def _mean_of(table: pd.DataFrame, quantity: str, **columns: Any) -> float:
    """Over the seeds that have a number; NaN if none has."""
    values = values_of(table, quantity, **columns)
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _encodings(table: pd.DataFrame) -> list[str]:
    return in_order(table, "encoding", ENCODING_NAMES)


def _decoders(table: pd.DataFrame) -> list[str]:
    return in_order(table, "decoder", DECODER_NAMES)
