"""The interval of a mean, and what a mean of logarithms says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special

CONFIDENCE = 0.95
"""Of every interval."""
LARGEST_LOG = 709.0
"""e to this power is a float; to a little more it is none."""
ROUNDING = 1e-12
"""Numbers that differ by less, over the largest of them, are the same but for errors of rounding."""


def exp_or_inf(value: float) -> float:
    """e to this power; infinity where no float holds it, as at the bound of few numbers that lie far apart."""
    return math.inf if value > LARGEST_LOG else math.exp(value)


def exp_or_none(value: float) -> float | None:
    """e to this power; None where no float holds it with all its digits."""
    return math.exp(value) if abs(value) < LARGEST_LOG - 1 else None


def are_alike(numbers: Sequence[float]) -> bool:
    """Whether all are the same, so that they do not tell how far others may lie from them: accuracies of 1 do not say how rare
    one of 0.5 is. A single number is alike, too."""
    return math.isfinite(max(numbers) - min(numbers)) and max(numbers) - min(numbers) <= ROUNDING * max(map(abs, numbers))


def half_width(deviation: float, n: int) -> float:
    """Half of Student's t-interval of the mean of n numbers with this standard deviation (ddof 1); NaN for a single number.

    `scipy.stats.t.ppf` gives the same, and takes a second to be imported.
    """
    return float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2) * deviation / math.sqrt(n)) if n > 1 else math.nan
