"""Geometry of a layer over the grid of coordinates: how it stretches areas, and how far x and y stay apart in it.

A layer's activations form an array (N, N, D): rows y, columns x, as in an image, and D units. It is a surface in D dimensions
with x and y as its parameters, and its metric tells what one step in x or y is there (paper figures 2, 4d, 11 to 14).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def jacobian(activations: ArrayLike) -> np.ndarray:
    """Derivatives by x and y, in activation per pixel, by finite differences on the whole coordinates.

    Args:
        activations: (N, N, D), rows y and columns x; at least two of each.

    Returns:
        (N, N, D, 2) float64: d/dx, d/dy. Central differences inside, one-sided ones at the border: exact for linear maps.
    """
    values = np.asarray(activations, dtype=float)
    along_x, along_y = np.gradient(values, axis=(1, 0))
    return np.stack([along_x, along_y], axis=-1)


def metric(activations: ArrayLike) -> np.ndarray:
    """Metric tensor g = J^T J (N, N, 2, 2) of activations (N, N, D): inner products of the derivatives by x and y."""
    J = jacobian(activations)
    product: np.ndarray = J.swapaxes(-1, -2) @ J
    return product


def volume(activations: ArrayLike) -> np.ndarray:
    """Volume metric dv = sqrt|det g| (N, N): the area that a pixel of the grid takes up among the activations."""
    g = metric(activations)
    return np.sqrt(np.abs(g[..., 0, 0] * g[..., 1, 1] - g[..., 0, 1] * g[..., 1, 0]))


def factorization(activations: ArrayLike) -> float:
    """Factorization metric F = 1 - mean|g12| / mean(|g11| + |g22|), a ratio of means over the grid (paper figure 2c, d).

    1 where steps in x and in y are at right angles everywhere, 1/2 where they are the same. NaN if nothing depends on x or y.
    """
    g = np.abs(metric(activations))
    size = float((g[..., 0, 0] + g[..., 1, 1]).mean())
    return 1 - float(g[..., 0, 1].mean()) / size if size else math.nan
