"""What single units respond to: stripes, which are a function of x plus one of y, or spots (paper figures 4e, f, 15)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder

VERSION = 1
STRIPED = 0.8
"""Share of its variance from which on a unit counts as striped in the paper's figure 4e: our choice."""
CONSTANT = 1e-6
"""A unit whose standard deviation is below this share of the layer's largest activation is constant, but for rounding."""
SHOWN = 8


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """For every hidden layer, from its units' activation maps over (x, y):

    - `additive`, `interaction`: medians, over the active units, of the share of a map's variance that the sum of its two
      marginals explains, and of what is left;
    - `striped`: share of the active units with more than 0.8 explained; `active`: share of units that are not constant;
    - `maps` (8, N, N), rows y: of the units in the middle of every eighth of the active ones, from the least to the most
      additive; `units` (8,): which.
    """
    N = decoder.N
    for layer, activations in enumerate(decoder.activations[:-1]):
        maps = activations.reshape(N, N, -1)
        share, variance = additive_share(maps)
        active = np.sqrt(variance) > CONSTANT * np.abs(maps).max()
        shares = share[active]
        some = bool(active.any())
        yield Quantity("additive", float(np.median(shares)) if some else math.nan, layer=layer)
        yield Quantity("interaction", float(np.median(1 - shares)) if some else math.nan, layer=layer)
        yield Quantity("striped", float((shares > STRIPED).mean()) if some else math.nan, layer=layer)
        yield Quantity("active", float(active.mean()), layer=layer)
        units = examples(share, active)
        yield Quantity("maps", array=maps[..., units].transpose(2, 0, 1).astype(np.float32), layer=layer)
        yield Quantity("units", array=units.astype(np.float32), layer=layer)


def examples(share: np.ndarray, active: np.ndarray) -> np.ndarray:
    """(8,) units in the middle of the eighths of the active ones, ordered by their share (D,); of all, if none is active."""
    chosen = np.flatnonzero(active) if active.any() else np.arange(len(share))
    order = chosen[np.argsort(share[chosen], kind="stable")]
    return order[((np.arange(SHOWN) + 0.5) * len(order) / SHOWN).astype(int)]


def additive_share(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of D maps (N, N, D): share (D,) of the variance explained by the main effects of x and y, and the variance (D,).

    Two-way analysis of variance without replication: the best fit by a(x) + b(y) is the sum of the two marginals less the mean.
    NaN where the variance is 0.
    """
    of_y, of_x = maps.mean(axis=1, dtype=float), maps.mean(axis=0, dtype=float)
    mean = of_x.mean(axis=0)
    variance = np.zeros(len(mean))
    for row in maps:  # a row at a time: the whole in float64 would be large
        variance += ((row - mean) ** 2).sum(axis=0)
    variance /= len(of_x) * len(of_y)
    explained = of_x.var(axis=0) + of_y.var(axis=0)
    return np.divide(explained, variance, out=np.full_like(variance, np.nan), where=variance > 0), variance
