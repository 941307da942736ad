"""The interval of a mean."""

from __future__ import annotations

import math

from scipy import special


def half_width(deviation: float, n: int, confidence: float = 0.95) -> float:
    """Half of Student's t-interval of the mean of n numbers with this standard deviation (ddof 1); NaN for a single number.

    `scipy.stats.t.ppf` gives the same, and takes a second to be imported.
    """
    return float(special.stdtrit(n - 1, (1 + confidence) / 2) * deviation / math.sqrt(n)) if n > 1 else math.nan
