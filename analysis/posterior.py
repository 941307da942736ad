"""What all runs of a curve together say of its exponent: an interval from their likelihood.

A search asks next what the runs before it suggest, so where it began moves where it ends, and thresholds that began at one
place share the luck of that place. Their spread does not show that, but the runs do: which counts are tried depends on nothing
but finished runs, so the probability of all that was seen is the product of those of the single runs, whatever the search
asked for (the likelihood principle: J. O. Berger and R. L. Wolpert, The Likelihood Principle, 2nd ed., IMS 1988, section 4.2,
on stopping rules; D. B. Rubin, Inference and missing data, Biometrika 63 (1976) 581-592, on ignorable designs).

The model is a random-effects logistic regression. The log of the threshold of a bracket at N is a + b log N + u + e, with e
normal with deviation `spread`, another one for each bracket, and u normal with deviation `off`, the same for all seeds of a
size: how far a size itself lies off the law. A run with D images passes with probability 1 / (1 + exp(-(log D - log threshold)
/ noise)). Noise and spread may be alike at all sizes, or fall or rise by a factor from the first size to the last, as a power
of N. The priors of a and b are flat, and those of the logs of spread and noise are flat over ratios: no unit matters. That all
sizes lie on the law (`off` is 0) is as likely before as that they do not, and then the prior of the log of `off` is flat, too.
All is integrated numerically (A. Gelman et al., Bayesian Data Analysis, 3rd ed., chapters 5 and 10.3), and the interval has
equal tails.

Two sizes always lie on a law. So what is said of a slope through two is said as if `off` were 0, and luck alike at both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.intervals import CONFIDENCE

NOISES = (0.1, 0.2, 0.4, 0.8, 1.2)
"""Noise of single runs, and ... More noise than that would spread the thresholds wider than it does."""
SPREADS = (0.15, 0.25, 0.4, 0.6, 0.9, 1.3, 1.9, 2.8, 4.2)
"""... spread of thresholds, both over the spread that is seen: the deviation of the thresholds from the law."""
OFFS = (0.0, 0.25, 0.4, 0.6, 0.9, 1.3, 1.9, 2.8)
"""Deviations of whole sizes from the law, over the same."""
ON_LAW = 0.5
"""Probability, before anything is seen, that the first of these holds; the others are alike."""
TILTS = {1 / 3: 0.25, 1.0: 0.5, 3.0: 0.25}
"""Noise and spread at the last size over those at the first, each with its probability before anything is seen."""
CELL = 1 / 6
"""Width of the cells in which thresholds are counted, over the same."""
MARGIN = 4.0
"""How far the cells reach beyond the farthest threshold, of brackets and of laws, over the same."""
REACH, STEPS_A, STEPS_B = 7.0, 31, 121
"""How far from least squares a and b are looked for, in standard errors if each size counts once, and how many values of
each."""
COARSE = 2.5
"""Where the deviation of b is less than so many steps, as with many seeds, all is done once more around what was found: a and b
as far as REACH of their deviations, and cells half as wide."""
HOPELESS = 12.0
"""Kinds of luck less likely than others by this, as a logarithm, count nothing."""
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Seen:
    """One bracket: `x`, the log of N; `y`, the log of its threshold; the runs it rests on, as log(images) and whether they
    passed. Without runs the threshold lies somewhere from `low`, also a log, to `y`."""

    x: float
    y: float
    low: float
    runs: Sequence[tuple[float, bool]] = ()


def slope_interval(seen: Sequence[Seen], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The ends of the interval of b.

    Needs brackets at two places, and more than two of them.
    """
    x = np.array([one.x for one in seen])
    y = np.array([one.y for one in seen])
    x -= x.mean()
    slope, height = float(x @ y / (x @ x)), float(y.mean())
    away = y - height - slope * x
    unit = math.sqrt(float(away @ away) / (len(y) - 2) + float(np.mean([(one.y - one.low) ** 2 for one in seen])) / 12)
    if unit < 1e-9:
        return slope, slope
    places = np.unique(x)
    of_places = [(place, [one for one, centred in zip(seen, x, strict=True) if centred == place]) for place in places]
    line = _Line(slope, height, unit, float(np.abs(away).max() / unit))
    a = np.linspace(-REACH, REACH, STEPS_A) / math.sqrt(len(places))
    b = np.linspace(-REACH, REACH, STEPS_B) / math.sqrt(float(places @ places))
    of_a, of_b = _weights(of_places, line, a, b, CELL)
    if _mean_and_deviation(b, of_b)[1] < COARSE * (b[1] - b[0]):
        a, b = _around(a, of_a), _around(b, of_b)
        _, of_b = _weights(of_places, line, a, b, CELL / 2)
    below = np.cumsum(of_b) - of_b / 2
    tail = (1 - confidence) / 2 * of_b.sum()
    low, high = np.interp([tail, of_b.sum() - tail], below, b)
    return slope + unit * float(low), slope + unit * float(high)


class _Line(NamedTuple):
    """Least squares through all thresholds. `unit`: the spread that is seen; `far`: how far off the farthest is, over that."""

    slope: float
    height: float
    unit: float
    far: float


def _mean_and_deviation(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    mean = float(values @ weights / weights.sum())
    return mean, math.sqrt(float((values - mean) ** 2 @ weights / weights.sum()))


def _around(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """As many values where the weights are."""
    mean, deviation = _mean_and_deviation(values, weights)
    reach = REACH * max(deviation, (values[1] - values[0]) / 4)
    return np.linspace(mean - reach, mean + reach, len(values))


def _weights(
    of_places: Sequence[tuple[float, Sequence[Seen]]], line: _Line, a: np.ndarray, b: np.ndarray, cell: float
) -> tuple[np.ndarray, np.ndarray]:
    """How likely each a is, and each b, both relative to the line and over its unit; up to a constant."""
    places = np.array([place for place, _ in of_places])
    offs, tilts = (OFFS, TILTS) if len(places) > 2 else (OFFS[:1], {1.0: 1.0})
    law = a[:, None, None] + b[:, None] * places  # the log of its thresholds over the line of least squares
    half = float(max(line.far, law.max(), -law.min())) + MARGIN
    cells = np.linspace(-half, half, 2 * math.ceil(half / cell) + 1)
    apart = (cells[:, None] - cells) ** 2 / 2
    moves = np.stack([_moves(apart, off) for off in offs])
    prior = _prior(tilts.values(), len(offs))
    found = []
    for place, of_place in of_places:
        thresholds = cells * line.unit + line.height + line.slope * place
        share = place / (places[-1] - places[0])
        tilted = [_likelihood(of_place, thresholds, line.unit, tilt**share, apart, moves) for tilt in tilts]
        found.append(np.stack(tilted).reshape(len(prior), -1))
    # kinds of luck that are hopeless whatever the law, beside the best kind on the line of least squares, are passed over
    least = (prior + sum(table[:, len(cells) // 2] for table in found)).max()
    kept = prior + sum(table.max(axis=1) for table in found) > least - HOPELESS
    at = (law + half) / (cells[1] - cells[0])
    left = np.minimum(at.astype(int), len(cells) - 2)
    share = (at - left)[..., None]
    logs = np.tile(prior[kept], (len(a), len(b), 1))
    tables = [np.ascontiguousarray(table[kept].T) for table in found]
    for of_a, left_of_a, share_of_a in zip(logs, left, share, strict=True):  # each a at a time stays in the processor's cache
        for place, table in enumerate(tables):
            near = table[left_of_a[:, place]]
            near *= 1 - share_of_a[:, place]
            next_to = table[left_of_a[:, place] + 1]
            next_to *= share_of_a[:, place]
            near += next_to
            of_a += near
    logs -= logs.max()
    weights = np.exp(logs, out=logs)
    return weights.sum(axis=(1, 2)), weights.sum(axis=(0, 2))


def _prior(of_tilts: Collection[float], offs: int) -> np.ndarray:
    """The log of the probability of each kind of luck, up to a constant: (tilts, offs, SPREADS, NOISES), flat."""
    of_offs = np.full(offs, (1 - ON_LAW) / max(1, offs - 1))
    of_offs[0] = ON_LAW
    of_luck = np.ones(len(SPREADS) * len(NOISES))
    return np.log(np.multiply.outer(np.multiply.outer([*of_tilts], of_offs), of_luck)).ravel()


def _likelihood(
    of_place: Sequence[Seen], thresholds: np.ndarray, unit: float, scale: float, apart: np.ndarray, moves: np.ndarray
) -> np.ndarray:
    """The log of the likelihood of each threshold that the law may have at a place: (offs, SPREADS, NOISES, thresholds).

    `scale` is that of noise and spread there; `apart` and `moves` are as in `_moves`.
    """
    tables = np.stack([_table(one, thresholds, unit * scale) for one in of_place])
    kernels = [np.exp(-apart / (scale * spread) ** 2) / (scale * spread) for spread in SPREADS]
    on_law = np.stack([np.log(np.maximum(tables @ kernel, TINY)).sum(axis=0) for kernel in kernels])
    top = on_law.max()
    return np.asarray(np.log(np.maximum(np.exp(on_law - top) @ moves[:, None], TINY)) + top)


def _moves(apart: np.ndarray, off: float) -> np.ndarray:
    """The probability with which each threshold (columns) is moved to each other (rows), from half of their squared distances
    (thresholds, thresholds)."""
    if not off:
        return np.eye(len(apart))
    weights = np.exp(-apart / off**2)
    return np.asarray(weights / weights.sum(axis=0))


def _table(one: Seen, thresholds: np.ndarray, unit: float) -> np.ndarray:
    """The likelihood of each threshold, for every noise, over `unit`: (NOISES, thresholds)."""
    if not one.runs:
        cell = float(thresholds[1] - thresholds[0])
        at = np.linspace(one.low, one.y, 2 + 2 * math.ceil((one.y - one.low) / cell))
        near = np.maximum(1 - np.abs(thresholds - at[:, None]) / cell, 0.0).mean(axis=0)
        return np.tile(near, (len(NOISES), 1))
    logs = np.array([log for log, _ in one.runs])
    signs = np.array([1.0 if passes else -1.0 for _, passes in one.runs])
    odds = signs[:, None] * (logs[:, None] - thresholds) / unit
    return np.exp([-np.logaddexp(0.0, -odds / noise).sum(axis=0) for noise in NOISES])
