"""Does a decoder draw an unseen combination of x and y as the sum of what it draws for x alone and y alone?
(paper figure 1d)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from analysis.measures.images import picture_points, raster
from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder

VERSION = 1
SHOWN = 3
"""Points with panels: the first of `picture_points`."""
SHUFFLE_SEED = 0


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """Correlation of the images in the box with their superpositions and with those of other points, medians over the points.

    Panels of three points: part of x, part of y, their sum, image. The sum has its maximum at 1, and the two parts add to it.
    """
    images, points = decoder.images[decoder.inside], decoder.centres.numpy()[decoder.inside].astype(int)
    parts = parts_by_sums(decoder) if decoder.spec.encoding == "ramp" else parts_by_codes(decoder)
    of_x, of_y = (part[points[:, axis]] for axis, part in enumerate(parts))
    of_x, of_y, total = normalised(of_x, of_y)
    yield Quantity("correlation", median(pearson(images, total)))
    yield Quantity("shuffled", median(pearson(images, total[derangement(len(total))])))
    shown = picture_points(*decoder.box)[:SHOWN]
    index = np.flatnonzero(decoder.inside).searchsorted(raster(shown, decoder.N))
    panels = np.stack([of_x[index], of_y[index], total[index], images[index]], axis=1)
    yield Quantity("panels", array=panels.astype(np.float32))
    yield Quantity("panel_points", array=shown.astype(np.float32))


def parts_by_codes(decoder: TrainedDecoder) -> tuple[np.ndarray, np.ndarray]:
    """What x alone and y alone give, (N, N, N) each by coordinate, for a code whose halves are the codes of x and of y: the
    image of [g(x), mean code of y], and of [mean code of x, g(y)], means over the ID positions."""
    N = decoder.N
    mean_x, mean_y = decoder.code(decoder.centres[torch.from_numpy(~decoder.inside)]).mean(dim=0).tensor_split(2)
    diagonal = torch.arange(N, dtype=torch.float32)[:, None].expand(N, 2)
    of_x, of_y = decoder.code(diagonal).tensor_split(2, dim=1)
    alone_x, alone_y = torch.cat([of_x, mean_y.expand(N, -1)], dim=1), torch.cat([mean_x.expand(N, -1), of_y], dim=1)
    return decoder.outputs(alone_x), decoder.outputs(alone_y)


def parts_by_sums(decoder: TrainedDecoder) -> tuple[np.ndarray, np.ndarray]:
    """The same for the ramp code, of which there is no mean that stands for no position: the sum of the images of all ID
    positions with this x, and of those with this y."""
    N = decoder.N
    seen = (decoder.images * ~decoder.inside[:, None, None]).reshape(N, N, N, N)
    return seen.sum(axis=0), seen.sum(axis=1)


def normalised(of_x: np.ndarray, of_y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both parts (n, N, N) over the maximum of their sum, and the sum over its maximum; NaN where that is not above 0."""
    total = of_x + of_y
    top = total.max(axis=(1, 2), keepdims=True)
    top = np.where(top > 0, top, np.nan)
    return of_x / top, of_y / top, total / top


def pearson(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n,) correlation over the pixels of images (n, ...) and (n, ...); NaN where one of them is constant."""
    a, b = (values.reshape(len(values), -1).astype(float) for values in (a, b))
    varied = (np.ptp(a, axis=1) > 0) & (np.ptp(b, axis=1) > 0)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    scale = np.where(varied, np.sqrt(np.square(a).sum(axis=1) * np.square(b).sum(axis=1)), np.nan)
    correlation: np.ndarray = (a * b).sum(axis=1) / scale
    return correlation


def derangement(n: int) -> np.ndarray:
    """(n,) one permutation, always the same, that leaves no index in place: a single cycle through all of them."""
    order = np.random.default_rng(SHUFFLE_SEED).permutation(n)
    moved = np.empty_like(order)
    moved[order] = np.roll(order, 1)
    return moved


def median(values: np.ndarray) -> float:
    """Median of the finite values; NaN if there is none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")
