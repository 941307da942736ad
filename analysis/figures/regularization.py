"""Figures of the regularization study: errors, curves, and what the trained decoders hold (paper figures 3 and 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Patch, Rectangle

from analysis.figures.composition import draw_composition
from analysis.figures.scaling import ROOM
from analysis.figures.style import COLOURS, literal
from analysis.geometry import volume
from analysis.measures.embeddings import token_matrices
from analysis.measures.geometry import LEAST_VOLUME
from analysis.regularization import NAMES, Answer, TrainedLowRank, check_size
from trainables.lowrank import LowRank
from trainables.regularization import box_range, region_of, regions
from trainables.spec import RunSpec
from trainables.training.loop import SUBSET

SETTING_COLOURS = dict(zip(NAMES, ("0.35", *COLOURS[:4]), strict=True))
ID_COLOUR, OOD_COLOUR = COLOURS[5], COLOURS[1]


def drawings(answer: Answer, decoders: Mapping[str, TrainedLowRank]) -> dict[str, Callable[[], Figure]]:
    """What draws everything there is data for, by name: `errors`, `curves`, `embeddings`, `volume`, `composition`, `images`."""
    found: dict[str, Callable[[], Figure]] = {}
    if len(answer.averaged):
        found["errors"] = partial(draw_errors, answer)
        if any(answer.rows[key]["curve_step"] for key in answer.averaged["key"]):
            found["curves"] = partial(draw_curves, answer)
    pair = [decoders[s] for s in ("none", "tuned" if "tuned" in decoders else "both") if s in decoders]
    if pair:
        found |= {"embeddings": partial(draw_embeddings, pair), "volume": partial(draw_volume, pair)}
        found["composition"] = partial(draw_composition, pair)
    if decoders:
        found["images"] = partial(draw_images, list(decoders.values()))
    return found


def draw_errors(answer: Answer) -> Figure:
    """ID and OOD error of every setting: geometric mean, interval, and every seed (paper figure 3e). An interval far longer
    than the others goes on beyond the frame."""
    summary = answer.summary[answer.summary["seeds"] > 0].reset_index(drop=True)
    figure = Figure(figsize=(2.4 + 1.2 * max(3, len(summary)), 4.4), layout="constrained")
    axes = figure.add_subplot()
    width = 0.4
    label: str | None = "authors' published model"
    shown = [blank := answer.blank_error("ood")]
    for side, error, colour in ((-0.5, "id_mse", ID_COLOUR), (0.5, "ood_mse", OOD_COLOUR)):
        where, mean = summary.index + side * width, summary[f"{error}_gmean"]
        axes.bar(where, mean, width * 0.94, color=colour, alpha=0.6, label=error.removesuffix("_mse").upper())
        ends = np.array([mean - summary[f"{error}_lower"], summary[f"{error}_upper"] - mean])
        axes.errorbar(where, mean, yerr=ends, fmt="none", ecolor="0.2", capsize=4, lw=1.2)
        for x, setting in zip(where, summary["setting"], strict=True):
            seeds = answer.averaged.loc[answer.averaged["setting"] == setting, error]
            beside = x + np.linspace(-0.4, 0.4, len(seeds) + 2)[1:-1] * width
            axes.scatter(beside, seeds, s=16, color=colour, edgecolors="0.2", linewidths=0.6, zorder=3)
            shown += seeds.tolist()
            if paper := answer.paper(setting):
                shown.append(paper[error])
                axes.scatter(x, paper[error], s=30, marker="D", color="white", edgecolors="black", zorder=4, label=label)
                label = None
    axes.axhline(blank, color="0.3", ls="--", lw=1, zorder=0, label="blank image (OOD)")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    positive = [value for value in shown if value > 0]
    low, high = max(low, min(positive) / ROOM), min(high, max(positive) * ROOM)
    axes.set_ylim(10 ** math.floor(math.log10(low)), max(high, 4 * blank))
    axes.set_xticks(summary.index, [_tick(row) for row in summary.to_dict("records")], fontsize=9)
    axes.set_xlim(-0.6, len(summary) - 0.4)
    axes.set_ylabel("mean squared error")
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    interval = ", with 95 % interval" * has_intervals(answer)
    axes.set_title(f"{literal(_setup(answer))}\nbars: geometric mean over seeds{interval}; dots: seeds", fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    order = np.argsort([not isinstance(handle, BarContainer) for handle in handles], stable=True)
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=4, fontsize=8, frameon=False
    )
    return figure


def has_intervals(answer: Answer) -> bool:
    """Whether any mean error has one: a single seed has none."""
    return bool(answer.summary[["id_mse_lower", "ood_mse_lower"]].notna().any(axis=None))


def draw_curves(answer: Answer) -> Figure:
    """OOD error and training loss against epochs: geometric mean over the seeds of a setting, and their range."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for setting, group in answer.averaged.groupby("setting", sort=False):
        rows = [answer.rows[key] for key in group["key"]]
        for axes, column in ((left, "curve_error"), (right, "curve_loss")):
            _draw_curve(axes, str(setting), rows, column)
    spec = RunSpec.from_dict(next(iter(answer.rows.values())))
    check_size(spec.N)
    left.axhline(answer.blank_error("ood"), color="0.3", ls="--", lw=1, zorder=0, label="blank image")
    inside = len(regions(region_of(spec.holdout), spec.N)["ood"])
    looked_at = f"{SUBSET} of the {inside}" if inside > SUBSET else f"all {inside}"
    left.set_title(f"OOD error ({looked_at} coordinates of the box)", fontsize=10)
    right.set_title("training error, without penalties", fontsize=10)
    for axes in (left, right):
        axes.set(yscale="log", xlabel="epoch", ylabel="mean squared error")
        axes.margins(x=0)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def _draw_curve(axes: Axes, setting: str, rows: list[Mapping[str, Any]], column: str) -> None:
    """Points that all seeds share."""
    per_epoch = math.ceil(rows[0]["data_count"] / rows[0]["batch_size"])
    known = [row for row in rows if len(row[column]) == len(row["curve_step"])]
    curves = [pd.Series(dict(zip(row["curve_step"], row[column], strict=True))) for row in known]
    if not curves:
        return
    table = pd.concat(curves, axis=1, join="inner")
    table = table[(table > 0).all(axis=1)]
    if table.empty:
        return
    epochs, colour = table.index.to_numpy(float) / per_epoch, SETTING_COLOURS.get(setting)
    axes.plot(epochs, np.exp(np.log(table).mean(axis=1)), color=colour, lw=1.6, label=NAMES.get(setting, setting))
    axes.fill_between(epochs, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.13, lw=0)


def draw_embeddings(decoders: list[TrainedLowRank]) -> Figure:
    """The matrix of every token, a row of panels per decoder: x tokens, then y tokens (paper figures 3b and 6)."""
    N = decoders[0].spec.N
    columns, gap = panel_columns(N), max(2, N // 12)
    height, width = mosaic_shape(N, columns, N, gap)
    figure = Figure(figsize=(11, (4.75 * height / width + 0.4) * len(decoders) + 0.4), layout="constrained")
    grid = figure.subplots(len(decoders), 2, squeeze=False)
    low, high = decoders[0].box
    for axes_row, decoder in zip(grid, decoders, strict=True):
        matrices = token_matrices(decoder.model)
        limit = float(np.quantile(np.abs(matrices), 0.99))
        for axes, factor, panels in zip(axes_row, "xy", matrices, strict=True):
            shown = axes.imshow(mosaic(panels, columns, gap), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            corners = [mosaic_corner(token, columns, N, gap) for token in range(low, high + 1)]
            frames = [Rectangle((left - 1, top - 1), N + 1, N + 1) for top, left in corners]
            axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor=COLOURS[2], lw=1.1))
            middles = {str(t): mosaic_corner(t, columns, N, gap)[0] + N / 2 for t in range(0, N, columns)}
            axes.set_yticks(list(middles.values()), list(middles), fontsize=8)
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.set_facecolor("0.88")
            axes.set_title(f"{decoder.title}: tokens of {factor}", fontsize=10)
        axes_row[0].set_ylabel("first token of the row", fontsize=8)
        figure.colorbar(shown, ax=list(axes_row), shrink=0.8, pad=0.01)
    frame = Patch(facecolor="none", edgecolor=COLOURS[2], label=f"tokens of the OOD box, {low} to {high}")
    figure.legend(handles=[frame], loc="outside lower center", fontsize=9, frameon=False)
    return figure


def draw_bands(answer: Answer, table: pd.DataFrame) -> Figure:
    """How strong the bands of the tokens of the box are beside every coordinate of the other factor, as a share of their mean
    strength beside seen ones: mean over the seeds of a setting, and their range.

    Args:
        table: the quantity `band` of `measures.embeddings`, with the column `setting`.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    spec = RunSpec.from_dict(next(iter(answer.rows.values())))
    low, high = box_range(region_of(spec.holdout), spec.N)
    axes.axvspan(low - 0.5, high + 0.5, color="0.93", zorder=0, label="never seen together (OOD)")
    for setting, group in table[table["quantity"] == "band"].groupby("setting", sort=False):
        known = [band for band in group["array"] if np.isfinite(band).all()]
        if not known:
            continue
        bands, colour = np.stack(known), SETTING_COLOURS.get(setting)
        dashes = "--" if setting == "tuned" else "-"  # its runs may be those of another setting
        axes.plot(bands.mean(axis=0), dashes, color=colour, lw=1.6, label=NAMES.get(setting, setting))
        axes.fill_between(range(spec.N), bands.min(axis=0), bands.max(axis=0), color=colour, alpha=0.13, lw=0)
    axes.axhline(0, color="0.6", lw=0.8, zorder=0)
    axes.set_xlim(-0.5, spec.N - 0.5)
    axes.set(xlabel="coordinate of the other factor", ylabel="strength of the band / its mean where seen")
    axes.set_title(f"{literal(_setup(answer))}\nembeddings of the coordinates in the range of the box", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def draw_images(decoders: list[TrainedLowRank]) -> Figure:
    """Images at coordinates in the OOD box: as they should be, then as every decoder draws them (paper figure 3b, c)."""
    spec = decoders[0].spec
    N, gap = spec.N, max(1, spec.N // 16)
    low, high = decoders[0].box
    centres = spread(low, high)
    split = decoders[0].split(centres)
    with torch.no_grad():
        rows = [split.targets, *(decoder.model(split.inputs) for decoder in decoders)]
    panels = torch.cat(rows).squeeze(1).numpy()
    names = ["target", *(decoder.title.replace(", ", "\n").replace("+ ", "+\n") for decoder in decoders)]
    figure = Figure(figsize=(1.3 * len(centres) + 1.2, 1.3 * len(rows) + 0.6), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(mosaic(panels, len(centres), gap), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    marks = []
    for index, (x, y) in enumerate(centres.tolist() * len(rows)):
        top, left = mosaic_corner(index, len(centres), N, gap)
        marks.append(Circle((left + x, top + N - 1 - y), 2.5 * float(spec.option("sigma"))))
        axes.add_patch(_box_outline(low, high, left=left, top=top, N=N))
    axes.add_collection(PatchCollection(marks, facecolor="none", edgecolor=COLOURS[1], lw=1))
    middle = (N - 1) / 2
    tops = [mosaic_corner(row * len(centres), len(centres), N, gap)[0] + middle for row in range(len(rows))]
    lefts = [mosaic_corner(column, len(centres), N, gap)[1] + middle for column in range(len(centres))]
    axes.set_yticks(tops, names, fontsize=9)
    axes.set_xticks(lefts, [f"({int(x)}, {int(y)})" for x, y in centres.tolist()], fontsize=9)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_facecolor("0.75")
    axes.set_xlabel("values from 0, white, to 1, black; circle: where the bump belongs; dashed: the OOD box", fontsize=8)
    return figure


def draw_volume(decoders: list[TrainedLowRank]) -> Figure:
    """Volume metric of the embeddings over the grid of coordinates (paper figure 3d)."""
    maps = [np.log10(embedding_volume(decoder.model) + LEAST_VOLUME) for decoder in decoders]
    bounds = {"vmin": min(m.min() for m in maps), "vmax": max(m.max() for m in maps)}
    figure = Figure(figsize=(4.4 * len(decoders) + 0.8, 4.5), layout="constrained")
    grid = figure.subplots(1, len(decoders), squeeze=False)[0]
    for axes, decoder, values in zip(grid, decoders, maps, strict=True):
        low, high = decoder.box
        shown = axes.imshow(values, origin="lower", cmap="Reds", interpolation="nearest", **bounds)
        axes.add_patch(_box_outline(low, high))
        inside = np.zeros(values.shape, dtype=bool)
        inside[low : high + 1, low : high + 1] = True
        axes.set_title(f"{decoder.title}\nmean ID {values[~inside].mean():.2f}, OOD {values[inside].mean():.2f}", fontsize=10)
        axes.set(xlabel="x", ylabel="y")
    figure.colorbar(shown, ax=list(grid), shrink=0.85, label=r"$\log_{10}$ volume metric of the embeddings")
    return figure


def embedding_volume(model: LowRank) -> np.ndarray:
    """Volume metric (N, N), rows y and columns x, of the layer that stacks the matrices of tokens x and y, D = 2 N^2.

    The N matrices of a factor span N dimensions only: in coordinates of that space distances are the same, with D = 2 N.
    """
    matrices = token_matrices(model).astype(float)
    N = len(matrices[0])
    of_x, of_y = (np.transpose(np.linalg.qr(tokens.reshape(N, -1).T, mode="r")) for tokens in matrices)
    along_x, along_y = np.broadcast_to(of_x[None], (N, N, N)), np.broadcast_to(of_y[:, None], (N, N, N))
    return volume(np.concatenate([along_x, along_y], axis=-1))


def spread(low: int, high: int) -> torch.Tensor:
    """(5, 2): whole coordinates x, y in the box [low, high]^2, four towards its corners and its centre."""
    near, middle, far = (round(low + share * (high - low)) for share in (0.15, 0.5, 0.85))
    return torch.tensor([[near, near], [far, near], [middle, middle], [near, far], [far, far]], dtype=torch.float32)


def panel_columns(n: int) -> int:
    """Columns that lay out n panels in whole rows, a little wider than high, or nearly so where n has no such divisor."""
    least = math.ceil(math.sqrt(n))
    return next((c for c in range(least, 2 * least) if n % c == 0), least)


def mosaic(panels: np.ndarray, columns: int, gap: int) -> np.ndarray:
    """Square panels (n, N, N) side by side in one array whose row 0 is the upper edge, from the upper left row by row.

    In a panel, row 0 is the lower edge. Around and between them are `gap` pixels of NaN.
    """
    n, N = panels.shape[:2]
    canvas = np.full(mosaic_shape(n, columns, N, gap), np.nan)
    for index, panel in enumerate(panels):
        top, left = mosaic_corner(index, columns, N, gap)
        canvas[top : top + N, left : left + N] = panel[::-1]
    return canvas


def mosaic_shape(n: int, columns: int, N: int, gap: int) -> tuple[int, int]:
    """Height and width of a `mosaic`."""
    return math.ceil(n / columns) * (N + gap) + gap, columns * (N + gap) + gap


def mosaic_corner(index: int, columns: int, N: int, gap: int) -> tuple[int, int]:
    """Row and column of the upper left pixel of a panel of a `mosaic`."""
    return gap + index // columns * (N + gap), gap + index % columns * (N + gap)


def _box_outline(low: int, high: int, left: int = 0, top: int = 0, N: int | None = None) -> Rectangle:
    """The OOD box, dashed: on a map with row 0 below, or, given N, on the panel of a mosaic with this upper left pixel."""
    side = high - low + 1
    y = low if N is None else top + N - 1 - high
    width = 1.2 if N is None else 0.7
    return Rectangle((left + low - 0.5, y - 0.5), side, side, fill=False, ls="--", lw=width, edgecolor="0.2")


def _tick(row: Mapping[str, Any]) -> str:
    weights = f"$\\lambda_S$ {row['lambda_entropy']:.2g}, $\\lambda_V$ {row['lambda_variance']:.2g}"
    left_out = f"\n({row['failed']} left out)" if row["failed"] else ""
    return f"{NAMES.get(row['setting'], row['setting'])}\n{weights}{left_out}"


def _setup(answer: Answer) -> str:
    spec = RunSpec.from_dict(next(iter(answer.rows.values())))
    per_epoch = math.ceil(spec.data_count / spec.batch_size)
    box = region_of(spec.holdout)
    return f"low-rank decoder, N = {spec.N}, {box} box held out, {spec.max_steps / per_epoch:g} epochs"
