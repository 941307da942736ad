"""Where a decoder draws the bumps that it misplaces: at the right x or at the right y, as one that superposes what it has seen
of each alone would (paper figures 1b, 1c)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder

VERSION = 2


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """Of the positions in the box whose image has its brightest pixel elsewhere, beyond the tolerance of the run:

    - `missed_ood`: their share of the box;
    - `aligned_ood`: the share of them whose brightest pixel is at the right x or at the right y, within the tolerance;
    - `aligned_chance`: the same of any other pixel, mean over them.

    The last two are NaN where none is misplaced. An image without a brightest pixel, such as a blank one, is none of them.
    """
    N, inside = decoder.N, decoder.inside
    centres = decoder.centres.numpy()[inside]
    tolerance = max(0.5, float(decoder.spec.option("tolerance")))
    images = decoder.images[inside].reshape(len(centres), -1)
    pixel = np.arange(N)
    near_x, near_y = (np.abs(pixel - centres[:, [axis]]) <= tolerance for axis in (0, 1))
    columns, rows = (np.broadcast_to(near, (len(centres), N, N)) for near in (near_x[:, None, :], near_y[:, :, None]))
    right, aligned = (found.reshape(len(centres), -1) for found in (columns & rows, columns ^ rows))
    peak = np.arange(len(centres)), images.argmax(axis=1)
    missed = (images[peak] > np.maximum(0, images.min(axis=1))) & ~right[peak]
    chance = aligned.sum(axis=1) / (~right).sum(axis=1)
    yield Quantity("missed_ood", float(missed.mean()))
    yield Quantity("aligned_ood", float(aligned[peak][missed].mean()) if missed.any() else math.nan)
    yield Quantity("aligned_chance", float(chance[missed].mean()) if missed.any() else math.nan)
