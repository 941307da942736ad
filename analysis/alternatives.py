"""What stands beside a power law: the exponents without each size in turn, and a law that breaks between two sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.intervals import exp_or_none

LEAST_LEFT = 3
"""Sizes that must remain when one is left out: with two, nothing tells whether a power law fits."""
LEAST_BESIDE = 3
"""Sizes that each part of a broken law needs: two always lie on a law."""
MORE = 3
"""Numbers that a broken law has and a single one has not: a second exponent and prefactor, and where it breaks."""
OFFS = (0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4)
"""Variances of whole sizes, over that of a seed, that one law may have instead."""
STRONG = 6.0
"""A broken law is far better where the criterion of Schwarz (BIC) prefers it by more: "strong" evidence (R. E. Kass and
A. E. Raftery, Bayes factors, Journal of the American Statistical Association 90 (1995) 773-795, section 3.2)."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Two power laws, one up to the size `last`, one from `first` on; nothing joins them."""

    last: float
    first: float
    exponents: tuple[float, float]
    prefactors: tuple[float, float]
    step: float
    """The second law over the first one, at the geometric mean of `last` and `first`."""
    gain: float
    """By how much its BIC is lower than that of a single law, from which whole sizes may be off, for all seeds alike; above
    STRONG it is far better, and below 0 worse."""

    @property
    def is_better(self) -> bool:
        return self.gain > STRONG


def without_each(sizes: Sequence[float], values: Sequence[float]) -> dict[float, float]:
    """The exponent by the size that was left out, if enough sizes remain."""
    n, y = np.asarray(sizes, dtype=float), np.log(np.asarray(values, dtype=float))
    places = np.unique(n)
    if len(places) <= LEAST_LEFT:
        return {}
    return {float(left): least_squares(np.log(n[n != left]), y[n != left])[0] for left in places}


def broken_law(sizes: Sequence[float], values: Sequence[float], resolution: float) -> Broken | None:
    """The best of all broken laws, by least squares in log-log; None with too few sizes, or if no float holds a prefactor.

    Args:
        resolution: how exactly values are known, as a deviation of their log: so much about a law says nothing.
    """
    n, y = np.asarray(sizes, dtype=float), np.log(np.asarray(values, dtype=float))
    places = np.unique(n)
    best: tuple[float, float, float] | None = None
    for last, first in list(pairwise(places))[LEAST_BESIDE - 1 : len(places) - LEAST_BESIDE]:
        off = sum(least_squares(np.log(n[part]), y[part])[2] for part in (n <= last, n >= first))
        if best is None or off < best[0]:
            best = float(off), float(last), float(first)
    if best is None:
        return None
    off, last, first = best
    (below, start, _), (above, other, _) = (least_squares(np.log(n[part]), y[part]) for part in (n <= last, n >= first))
    floor = max(resolution, 1e-6) ** 2
    gain = _single(np.log(n), y, floor) - len(y) * math.log(off / len(y) + floor) - MORE * math.log(len(y))
    step = math.exp(other - start + (above - below) * math.log(last * first) / 2)
    prefactors = exp_or_none(start), exp_or_none(other)
    if prefactors[0] is None or prefactors[1] is None:
        return None
    return Broken(last, first, (below, above), (prefactors[0], prefactors[1]), step, gain)


def _single(x: np.ndarray, y: np.ndarray, floor: float) -> float:
    """The least BIC of a single law, but for what it has in common with a broken one: of sizes on the law, or of sizes that are
    off it by a normal deviation, which is one number more. A size with k seeds then counts as much as k / (1 + k off)."""
    places, which, seeds = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(which, y) / seeds
    within = float(((y - means[which]) ** 2).sum())
    found = []
    for off in OFFS:
        weights = seeds / (1 + seeds * off)
        centred = places - np.average(places, weights=weights)
        away = means - np.average(means, weights=weights)
        away = away - centred * ((weights * centred) @ away / ((weights * centred) @ centred))
        spread = (within + float(weights @ away**2)) / len(y) + floor
        found.append(len(y) * math.log(spread) + float(np.log1p(seeds * off).sum()) + (math.log(len(y)) if off else 0.0))
    return min(found)


def least_squares(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Slope and height at 0 of the least-squares line, and the sum of squares off it."""
    centred = x - x.mean()
    slope = float((y - y.mean()) @ centred / (centred @ centred))
    height = float(y.mean() - slope * x.mean())
    off = y - height - slope * x
    return slope, height, float(off @ off)
