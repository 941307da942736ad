"""What a decoder draws at every position, inside and outside the held-out box (paper figures 1b, 1c,
4b, 7, 10)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder
from trainables.bumps import bump_images, judge_peaks

VERSION = 1
RIM = 2
"""Decoders often still get the outermost pixels of the box right; the core leaves this many out on every side. Boxes of the
smallest grid, N = 8, are 5 wide, so that there always is one."""
PAPER_BOX = (6, 22)
PAPER_POINTS = np.array([(11, 14), (12, 18), (17, 12), (17, 17)])
"""x and y of the pictures of figure 10, in the box of N = 28."""


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """Errors and verdicts by region, maps of both over the positions, and pictures at four positions of the box."""
    N, spec, inside = decoder.N, decoder.spec, decoder.inside
    low, high = decoder.box
    sigma = float(spec.option("sigma"))
    targets = bump_images(decoder.centres, N, sigma)[:, 0].numpy()
    images = decoder.images
    error = squared_error(images, targets)
    blank = squared_error(np.zeros_like(targets), targets)
    verdicts = judge_peaks(torch.from_numpy(images), decoder.centres, sigma, float(spec.option("tolerance")))
    correct, proper = verdicts["correct"].numpy(), verdicts["proper"].numpy()
    core = in_core(decoder.centres.numpy(), low, high)
    for name, values in (("mse", error), ("accuracy", correct)):
        for region, where in (("id", ~inside), ("ood", inside), ("core", core)):
            yield Quantity(f"{region}_{name}", float(values[where].mean()))
    yield Quantity("blank_mse", float(blank[inside].mean()))
    yield Quantity("blank_core_mse", float(blank[core].mean()))
    yield Quantity("ood_proper", float(proper[inside].mean()))
    yield Quantity("ood_peak", float(images[inside].max(axis=(1, 2)).mean()))
    yield Quantity("mse_map", array=error.reshape(N, N).astype(np.float32))
    yield Quantity("correct_map", array=correct.reshape(N, N).astype(np.float32))
    points = picture_points(low, high)
    yield Quantity("pictures", array=images[raster(points, N)])
    yield Quantity("picture_points", array=points.astype(np.float32))


def squared_error(images: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(n,) mean over the pixels of the squared difference of images (n, N, N)."""
    error: np.ndarray = np.square(images - targets, dtype=float).mean(axis=(1, 2))
    return error


def in_core(centres: np.ndarray, low: int, high: int) -> np.ndarray:
    """(n,) bool: which positions (n, 2) lie in the box [low, high]^2 at least `RIM` pixels from its edge."""
    return np.all((centres >= low + RIM) & (centres <= high - RIM), axis=1)


def picture_points(low: int, high: int) -> np.ndarray:
    """(4, 2) whole x and y: the paper's positions (figure 10) at the same relative place of the box [low, high]^2."""
    share = (PAPER_POINTS - PAPER_BOX[0]) / (PAPER_BOX[1] - PAPER_BOX[0])
    return np.rint(low + share * (high - low)).astype(int)


def raster(points: np.ndarray, N: int) -> np.ndarray:
    """(n,) raster index, x fastest, of whole positions (n, 2)."""
    return points[:, 1] * N + points[:, 0]
