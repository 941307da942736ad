"""What a measure says of one trained decoder: numbers and arrays, some of them for one layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Quantity(NamedTuple):
    """One result: a `value`, or an `array` of any shape, kept in float32.

    `layer`: -1 is the input code, then 0, 1, ... the layers as `TrainedDecoder.activations` has them, the output image last;
    None if the quantity is not one of a layer.
    """

    name: str
    value: float | None = None
    array: np.ndarray | None = None
    layer: int | None = None
