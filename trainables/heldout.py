"""Held-out regions: which combinations of x and y a decoder is never trained on."""

from __future__ import annotations

import torch
from torch import Tensor

REGIONS = ("random", "center", "corner")


def box_bounds(region: str, N: int) -> tuple[int, int] | None:
    """First and last coordinate, both inclusive and the same for x and y, of a held-out box; None for `random`.

    The authors' box in the centre is [6, 22]^2 at N = 28, 17 of 28 pixels wide; other grids keep that proportion. Where their
    corner lies is not published for this task: [0, 16]^2, the lower left of the image, is our choice. That of the
    regularization task (`trainables.regularization.box_range`) is the upper right, as published. `random` has no box: it
    holds out what the training sample did not draw.
    """
    if region not in REGIONS:
        raise ValueError(f"holdout must be one of {', '.join(REGIONS)}, not {region!r}")
    if region == "random":
        return None
    side = round(17 * N / 28)
    low = (N - side + 1) // 2 if region == "center" else 0
    return low, low + side - 1


def in_box(centres: Tensor, region: str, N: int) -> Tensor:
    """(n,) bool: which centres (n, 2), whole or real-valued, lie in the box, its edges included. All False for `random`."""
    bounds = box_bounds(region, N)
    if bounds is None:
        return torch.zeros(len(centres), dtype=torch.bool)
    low, high = bounds
    return ((centres >= low) & (centres <= high)).all(dim=1)
