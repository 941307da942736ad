"""Geometry of a layer over the grid of coordinates: how it stretches areas, and how far x and y stay apart in it.

A layer's activations form an array (N, N, D): rows y, columns x, as in an image, and D units. It is a surface in D dimensions
with x and y as its parameters, and its metric tells what one step in x or y is there (paper figures 2, 4d, 11 to 14).

The derivatives are differences between neighbours on the grid, as the authors took them, or exact ones, through
the code and the network in forward mode.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

ROWS = 4
"""Rows of the grid that are differentiated at once: bounds the memory."""


def _differences(activations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Along x and along y (N, N, D), per pixel: central ones inside, one-sided ones at the border."""
    along_x, along_y = np.gradient(activations.astype(float), axis=(1, 0))
    return along_x, along_y


def metric(activations: ArrayLike) -> np.ndarray:
    """Metric tensor g = J^T J (N, N, 2, 2) of activations (N, N, D): inner products of the differences along x and y."""
    values, parts = np.asarray(activations), []
    for first in range(0, len(values), ROWS):
        low = max(first - 1, 0)
        along_x, along_y = _differences(values[low : first + ROWS + 1])
        part = slice(first - low, first - low + ROWS)
        parts.append(_inner_products(along_x[part], along_y[part]))
    return np.concatenate(parts)


def _inner_products(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(..., 2, 2) of the vectors u and v (..., D)."""
    uv = np.vecdot(u, v)
    return np.stack([np.stack([np.vecdot(u, u), uv], -1), np.stack([uv, np.vecdot(v, v)], -1)], -2)


def forward_metric(layers: Callable[[Tensor], Sequence[Tensor]], centres: Tensor, chunk: int = 56) -> list[np.ndarray]:
    """Metric tensors g = J^T J of all layers at once, J exact, by forward-mode differentiation along x and along y.

    Args:
        layers: from positions (n, 2) to the activations (n, ...) of every layer; differentiable.
        centres: (n, 2), x and y in pixels.
        chunk: positions in a batch; bounds the memory.

    Returns:
        For every layer (n, 2, 2) float64, in activation^2 per pixel^2; computed in the precision of `centres`.
    """
    steps = torch.eye(2, dtype=centres.dtype)
    parts: list[list[np.ndarray]] = []
    for part in centres.split(chunk):

        def tangents(step: Tensor, part: Tensor = part) -> list[Tensor]:
            along: list[Tensor] = torch.func.jvp(lambda c: list(layers(c)), (part,), (step.expand_as(part),))[1]
            return along

        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)  # torch uses it for its own rules
            J = [along.flatten(2) for along in torch.func.vmap(tangents)(steps)]
            parts.append([torch.einsum("ind,jnd->nij", wide := along.double(), wide).numpy() for along in J])
    return [np.concatenate(layer) for layer in zip(*parts, strict=True)]


def volume(activations: ArrayLike) -> np.ndarray:
    """`volume_of` by differences: the area (N, N) that a pixel of the grid takes up among the activations (N, N, D)."""
    return volume_of(metric(activations))


def volume_of(g: np.ndarray) -> np.ndarray:
    """Volume metric dv = sqrt|det g| (...) of metric tensors (..., 2, 2)."""
    det: np.ndarray = g[..., 0, 0] * g[..., 1, 1] - g[..., 0, 1] * g[..., 1, 0]
    return np.sqrt(np.abs(det))


def factorization_of(g: np.ndarray) -> float:
    """Factorization metric F = 1 - mean|g12| / mean(|g11| + |g22|), a ratio of means over the grid (paper figure 2c, d).

    1 where steps in x and in y are at right angles everywhere, 1/2 where they are the same. NaN if nothing depends on x or y.
    """
    g = np.abs(g)
    size = float((g[..., 0, 0] + g[..., 1, 1]).mean())
    return 1 - float(g[..., 0, 1].mean()) / size if size else math.nan


def cosine_factorization_of(g: np.ndarray) -> float:
    """1 - mean(|g12| / sqrt(g11 g22)): the cosine of the angle between steps in x and in y, averaged over positions.

    Left out are positions where the layer does not depend on x, or not on y, and there is no angle. NaN if all are such.
    1 for right angles everywhere, 0 where the steps are the same; unlike F it weighs small and large steps alike.
    """
    product = g[..., 0, 0] * g[..., 1, 1]
    some = product > 0
    return 1 - float((np.abs(g[..., 0, 1][some]) / np.sqrt(product[some])).mean()) if some.any() else math.nan
