"""Figures of the similarity between the images at all pairs of positions (paper figures 1e and 8).

Matrices have their first row above, as matrices do: positions in the order ID, then OOD, each by y, then by x.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis.figures.panels import (
    DECODER_MARKERS,
    DECODER_NAMES,
    ENCODING_NAMES,
    PAGE,
    SMALL,
    array_of,
    box_of,
    in_order,
    seed_points,
    values_of,
)
from analysis.figures.style import COLOURS
from analysis.measures.kernel import binary_kernel
from trainables.bumps import grid_centres

GRAM_NAMES: Mapping[str, str] = {"cosine": "cosine", "l2": "minus L2 distance", "overlap": "pixel overlap"}


def draw_kernels(table: pd.DataFrame) -> Figure:
    """The binary kernel beside the Gram matrices of bump and ramp code, ID and OOD block framed (paper figure 8).

    A colour scale for each kind of matrix. Of the CNN where there is one.
    """
    table, encodings = _shown(table)
    rows = [{"binary": _binary(table)} | {K: array_of(table, f"{K}_gram", encoding=e) for K in GRAM_NAMES} for e in encodings]
    figure = Figure(figsize=(PAGE, 0.3 + 1.75 * len(encodings)), layout="constrained")
    grid = figure.subplots(len(encodings), 4, squeeze=False)
    for axes_column, name in zip(grid.T, rows[0], strict=True):
        limits = _limits([row[name] for row in rows])
        for axes, row in zip(axes_column, rows, strict=True):
            shown = _draw_matrix(axes, row[name], **limits)
            _draw_blocks(axes, table)
        axes_column[0].set_title(GRAM_NAMES.get(name, "binary"), fontsize=SMALL + 1)
        bar = figure.colorbar(shown, ax=axes_column, location="bottom", shrink=0.9, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
    for axes, encoding in zip(grid[:, 0], encodings, strict=True):
        axes.set_ylabel(f"{ENCODING_NAMES[encoding]}\nposition", fontsize=SMALL)
    return figure


def draw_kernel_corner(table: pd.DataFrame) -> Figure:
    """The OOD block: binary kernel above, cosine of the images below, by encoding (paper figure 1e)."""
    table, encodings = _shown(table)
    low, high = box_of(table)
    points = (high - low + 1) ** 2
    cosines = [array_of(table, "cosine_gram", encoding=e)[-points:, -points:] for e in encodings]
    figure = Figure(figsize=(0.9 + 2.1 * len(encodings), 4.4), layout="constrained")
    grid = figure.subplots(2, len(encodings), squeeze=False)
    limits = _limits(cosines)
    for axes_column, encoding, cosine in zip(grid.T, encodings, cosines, strict=True):
        ideal = _draw_matrix(axes_column[0], _binary(table)[-points:, -points:], vmin=0, vmax=1)
        shown = _draw_matrix(axes_column[1], cosine, **limits)
        axes_column[0].set_title(ENCODING_NAMES[encoding], fontsize=SMALL + 1)
        axes_column[1].set_xlabel("position in the box, by y then x", fontsize=SMALL)
    side = high - low + 1
    for axes in grid[:, 0]:
        ticks = [low, (low + high) // 2, high]
        axes.set_yticks([(t - low + 0.5) * side for t in ticks], [f"y = {t}" for t in ticks], fontsize=SMALL)
    for axes_row, image, label in ((grid[0], ideal, "binary kernel"), (grid[1], shown, "cosine of the images")):
        bar = figure.colorbar(image, ax=axes_row, shrink=0.8, pad=0.02)
        bar.ax.tick_params(labelsize=SMALL)
        bar.set_label(label, fontsize=SMALL)
    return figure


def draw_kernel_numbers(table: pd.DataFrame) -> Figure:
    """For each kind of matrix, by encoding, decoder and seed: correlation with the binary kernel, and effective rank.

    Right images have some of the former too, for neighbours share a coordinate: the dashed line.
    """
    kinds = {
        "agreement_id": (COLOURS[0], "ID"),
        "agreement_ood": (COLOURS[1], "OOD"),
        "permuted_ood": ("0.5", "OOD, permuted positions"),
    }
    encodings = in_order(table, "encoding", ENCODING_NAMES)
    decoders = in_order(table, "decoder", DECODER_NAMES)
    figure = Figure(figsize=(PAGE, 4.2), layout="constrained")
    grid = figure.subplots(2, len(GRAM_NAMES), sharex=True, sharey="row")
    for (upper, lower), (K, name) in zip(grid.T, GRAM_NAMES.items(), strict=True):
        for place, encoding in enumerate(encodings):
            for index, decoder in enumerate(decoders):
                x, marker = place + (index - (len(decoders) - 1) / 2) * 0.36, DECODER_MARKERS[decoder]
                of = {"encoding": encoding, "decoder": decoder}
                for quantity, (colour, _) in kinds.items():
                    seed_points(upper, x, values_of(table, f"{K}_{quantity}", **of), colour, marker=marker, ms=3)
                seed_points(lower, x, values_of(table, f"{K}_effective_rank", **of), "0.2", marker=marker, ms=3)
        upper.set_title(name, fontsize=SMALL + 1)
        upper.axhline(0, color="0.8", lw=0.8, zorder=0)
        right = values_of(table, f"{K}_truth_ood")  # the same for all runs of one grid and box
        if len(right) and math.isfinite(right[0]):
            upper.axhline(right[0], color=COLOURS[1], ls="--", lw=1, zorder=0)
        lower.set_xticks(range(len(encodings)), [ENCODING_NAMES[e].removesuffix(" code") for e in encodings])
        for axes in (upper, lower):
            axes.tick_params(labelsize=SMALL, which="both")
    grid[0, 0].set_ylabel("correlation with the\nbinary kernel", fontsize=SMALL)
    grid[1, 0].set_ylabel("effective rank (product kernels)", fontsize=SMALL)
    handles = [Line2D([], [], color=colour, lw=2, label=label) for colour, label in kinds.values()]
    handles.append(Line2D([], [], color=COLOURS[1], ls="--", lw=1, label="OOD, correct images"))
    handles += [
        Line2D([], [], color="0.2", ls="none", marker=DECODER_MARKERS[d], ms=4, label=DECODER_NAMES[d]) for d in decoders
    ]
    figure.legend(handles=handles, fontsize=SMALL, frameon=False, loc="outside lower center", ncols=len(handles))
    return figure


def _shown(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs of one decoder, and which of bump and ramp code have Gram matrices, which are kept of seed 0 alone."""
    table = table[table["decoder"] == in_order(table, "decoder", DECODER_NAMES)[0]]
    kept = table[table["quantity"] == "cosine_gram"]
    known = table if kept.empty else kept  # without any, `array_of` says what is missing
    return table, in_order(known, "encoding", ("bump", "ramp")) or in_order(known, "encoding", ENCODING_NAMES)[:1]


def _binary(table: pd.DataFrame) -> np.ndarray:
    """The binary kernel (N^2, N^2) of all positions, ID then OOD."""
    (low, high), centres = box_of(table), grid_centres(int(table["N"].iloc[0])).numpy()
    inside = ((centres >= low) & (centres <= high)).all(axis=1)
    return binary_kernel(np.concatenate([centres[~inside], centres[inside]]))


def _limits(matrices: Sequence[np.ndarray]) -> dict[str, float]:
    """Of the colours of these matrices: a decoder that draws the same everywhere has one of NaN, which limits no other."""
    known = np.concatenate([K[np.isfinite(K)] for K in matrices])
    return {"vmin": known.min(), "vmax": known.max()} if len(known) else {"vmin": 0.0, "vmax": 1.0}


def _draw_matrix(axes: Axes, K: np.ndarray, **limits: Any) -> AxesImage:
    axes.set(xticks=[], yticks=[])
    return axes.imshow(K, cmap="viridis", **limits)


def _draw_blocks(axes: Axes, table: pd.DataFrame) -> None:
    """Dashed frames around the ID block and the OOD block."""
    low, high = box_of(table)
    everything = int(table["N"].iloc[0]) ** 2
    seen = everything - (high - low + 1) ** 2
    for first, side in ((0, seen), (seen, everything - seen)):
        axes.add_patch(Rectangle((first - 0.5, first - 0.5), side, side, fill=False, ls="--", lw=0.9, edgecolor="white"))
    axes.set_xticks([seen / 2, (seen + everything) / 2], ["ID", "OOD"], fontsize=SMALL)
    axes.tick_params(length=0)
