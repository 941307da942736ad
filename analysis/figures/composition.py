"""How a low-rank decoder composes a picture of the box from two matrices, where it does so as usual and where it does worst."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from analysis.regularization import TrainedLowRank
from trainables.regularization import regions
from trainables.task import Split

COLUMNS = ("matrix of the x token", "matrix of the y token", "drawn", "target")


def draw_composition(decoders: Sequence[TrainedLowRank]) -> Figure:
    """Of every decoder, the median and the worst coordinate of the box: the matrices of its two tokens, what is drawn, and the
    target. Hatched is the part of a matrix in which no training image has a bump."""
    figure = Figure(figsize=(8.6, 2.25 * 2 * len(decoders) + 0.4), layout="constrained")
    grid = figure.subplots(2 * len(decoders), len(COLUMNS), squeeze=False)
    for place, decoder in enumerate(decoders):
        split, errors = judged(decoder)
        order = errors.argsort()
        for row, (word, index) in enumerate((("median", order[len(order) // 2]), ("worst", order[-1]))):
            axes_row = grid[2 * place + row]
            one = split.take(index[None])
            _draw_row(axes_row, decoder, one)
            x, y = (int(value) for value in one.truth[0])
            label = f"{decoder.title}\n{word} of the box: ({x}, {y})\nMSE {errors[index]:.1e}"
            axes_row[0].set_ylabel(label, fontsize=8)
    for axes, name in zip(grid[0], COLUMNS, strict=True):
        axes.set_title(name, fontsize=10)
    return figure


@torch.no_grad()
def judged(decoder: TrainedLowRank) -> tuple[Split, Tensor]:
    """All coordinates of the box, with the mean squared error (n,) of each."""
    split = decoder.split(regions(decoder.region, decoder.spec.N)["ood"])
    drawn = torch.cat([decoder.model(tokens) for tokens in split.inputs.split(64)])
    return split, (drawn - split.targets).square().flatten(1).mean(dim=1)


@torch.no_grad()
def _draw_row(axes_row: Sequence[Axes], decoder: TrainedLowRank, one: Split) -> None:
    matrices = decoder.model.picture(decoder.model.embeddings())
    of_tokens = [matrices[factor, one.inputs[0, factor]] for factor in (0, 1)]
    limit = float(torch.stack(of_tokens).abs().max())
    low, high = decoder.box
    N, side = decoder.spec.N, high - low + 1
    unseen = ((-0.5, low - 0.5, N, side), (low - 0.5, -0.5, side, N))  # rows of an x token, columns of a y token
    for axes, matrix, (left, bottom, width, height) in zip(axes_row[:2], of_tokens, unseen, strict=True):
        axes.imshow(matrix.numpy(), origin="lower", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.add_patch(Rectangle((left, bottom), width, height, fill=False, hatch="//", edgecolor="0.55", lw=0.8, alpha=0.5))
    for axes, image in zip(axes_row[2:], (decoder.model(one.inputs), one.targets), strict=True):
        axes.imshow(image[0, 0].numpy(), origin="lower", cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    for axes in axes_row:
        axes.set_xticks([])
        axes.set_yticks([])
