"""How well a linear classifier reads the pictures that a probe was trained to read: a third reader, beside the probe and the
oracle, which shows how much of the reading is there before any features are learned (arXiv 2510.03075)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from analysis.measures.quantity import Quantity
from analysis.trained import Trained
from trainables.generative.judge import curves
from trainables.generative.settings import ProbeSettings
from trainables.generative.shapes import COMPOSITIONS, FACTORS, bits_of, bundles, pool
from trainables.settings import read_settings

VERSION = 1
FITTED = 4096
"""Pictures that it is fitted to, of all compositions alike."""
JUDGED = 256
"""Others of each composition that it is judged on."""
ITERATIONS = 1000
"""At most; where there is nothing to read it takes most of them."""


def measure(probe: Trained) -> Iterator[Quantity]:
    """Of a logistic regression of each factor on the pixels, fitted to clear pictures of all compositions, and judged on
    others:

    - `linear_111` and so on: the share of pictures in which it reads all factors right; `linear_least`, the least of these;
    - `linear_factors` (8, 3): the share in which it reads each factor right, by composition.
    """
    figures, N, seed = read_settings(ProbeSettings, probe.spec), probe.spec.N, probe.spec.seed
    fitted = pool(figures, N, COMPOSITIONS, FITTED, seed, "linear")
    judged = bundles(figures, N, COMPOSITIONS, JUDGED, seed, "linear judged")
    pixels, others = (images.flatten(1).numpy() for images in (fitted.images, judged.images.flatten(0, 1)))
    read = np.empty((len(others), len(FACTORS)), dtype=np.int64)
    for factor in range(len(FACTORS)):
        read[:, factor] = LogisticRegression(max_iter=ITERATIONS).fit(pixels, fitted.bits[:, factor].numpy()).predict(others)
    right = torch.from_numpy(read).view(judged.bits.shape) == judged.bits
    shares = curves({"linear": right.all(2).float().mean(1)}, bits_of(COMPOSITIONS), COMPOSITIONS)
    yield from (Quantity(name, share) for name, share in shares.items() if name != "linear_seen")
    yield Quantity("linear_factors", array=right.float().mean(1).numpy())
