"""One threshold, probe by probe: which count to try next, given how the earlier probes of this bracket ended.

A walk starts at a predicted count. What is believed of the threshold before is narrowed by every outcome: a pass or a miss
cuts off one side, and the accuracy of a missed run tells how far above it the threshold lies. The next probe is where the
belief is about evenly divided, until a missed and a passing count are neighbours; then one pass above the threshold confirms.
Where misses may rather be bad luck, as they are few and the threshold is not where it was expected, one run far below them
tells. Every count a walk can ask for lies on a ladder that is fixed beforehand.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

MAIN = 0.05
"""Neighbouring main rungs are as far apart as they may be at this resolution, relative to the upper one."""
DIGITS = 5
"""Significant digits, or more, of the values of a setting that is a float."""
BLOCK = 16
"""A coarser resolution leaves out main rungs, by taking stretches of so many and halving them as often as it needs."""
CONFIRM = math.log(1.15)
"""A threshold T, taken up to its main rung, asks for a second pass near 1.15 T ..."""
CONFIRM_WITHIN = math.log(2.0)
"""... unless some pass above that rung, up to 2 T, is known."""
CHASE = 6
"""After this many failing probes above a passing one, the walk no longer refines: it takes the first pass above them all."""

STEP, GROWTH = 0.25, 1.6
"""Gallop above a contradiction: first step in log(total images), growth of the further steps."""
LIKELY_CONFIRMED, LIKELY_TURN = 0.9, 0.6
"""Guessed probability that a confirming run passes, and one of a gallop."""
SHARE_UP, SHARE_DOWN, SHARE_BETWEEN = 0.6, 0.5, 0.5
"""Probability to pass that a probe should have, with no pass known, no miss known, or both."""

# Fitted to 218 missed runs of 29 brackets of bumps alone, at 0.4 to 1.2 of their threshold, target 0.9: the MLP at N = 12 to
# 32, the CNN at 16 to 32. logit(accuracy) against log(images) has a slope of 2.1 (MLP) and 2.5 (CNN), from 1.6 to 2.7.
PACE, PACE_SPREAD, PACE_SCATTER = 0.42, 0.12, 0.06
"""log(images) up to the threshold per logit of accuracy (MLP 0.46, CNN 0.36); how uncertain that is beforehand, for other
decoders too; and how far it differs between brackets of one decoder (measured: 0.08 and 0.04)."""
LEAD = 0.05
"""A run passes when it reaches the target along the way, so that one that just fails ends short of it: the line meets the
target this far above the threshold (measured: 0.02 to 0.1) ..."""
NOISE = 0.055
"""... and this far, in log(images), a missed run lies from the line of its bracket (0.052 and 0.062)."""
NOISE_WORTH, FARTHEST = 4.0, 25.0
"""How many seen runs the expected noise is worth, and the most that one of these counts."""
TRUST = 0.6
"""Probability that accuracies follow a line, before any is seen. Low, for it costs the CNN and the MLP nothing, and saves other
tasks probes."""
STRAY = 0.5
"""Density of the log(images) of a missed run where its accuracy says nothing: anywhere in a range of two."""
WIDTHS, WIDEST = ((0.75, 1.0), (0.2, 3.0), (0.05, 10.0)), 2.0
"""Shares of the belief at multiples of the expected spread, up to the widest, so that no prediction is trusted blindly."""
LUCKY, UNLUCKY = 0.01, 0.25
"""How likely a run is to miss by bad luck, whatever its count, where few do and where many do. By this the misses of a walk are
weighed: either they are below the threshold, or all of them are luck and it is lower still."""
RARE, KNOWN = 0.1, 0.9
"""How likely it is that many do: beforehand, and once a run has passed below all misses of a bracket before."""
SUSPECT = 0.05
"""A run below all misses is asked for if luck is so likely, relative to the other reading."""
FAR = math.log(4.0)
"""Where no other bracket foretold the threshold, it is asked for in any case, unless some miss lies as far below."""
NEAR = 0.025
"""The other reading has the threshold in the bracket, give or take so much, in log(total images)."""
DOWN = math.log(2.0)
"""That run has half the images of the lowest miss. If it passes, the next ones go down by twice the step each, to a miss."""
LIKELY_BELOW = 0.1
"""Guessed probability that the first of them passes."""
FALL = 0.4
"""Where no run passes, more may be what hurts. So runs are asked for near the best miss if its accuracy is so much higher, in
logits, than that of the highest one; of a bracket that nothing foretold also below a single miss, and of another pilot right
below one at the highest count ..."""
NARROW, MOST_BELOW = math.log(1.5), 8
"""... until those beside the best one are so near, in log(total images), and so many at most."""
_ROOT2 = math.sqrt(2)


@dataclass(frozen=True)
class Ladder:
    """Counts, or values of another setting, that a bracket may ask for, ascending; every other attribute and every rung index
    refers to these.

    A walk takes the main rungs first, so that a resolution finer than theirs only adds probes to the end of it.
    """

    counts: tuple[float, ...]
    logs: tuple[float, ...]
    """log(count + images always present); of floats but for a constant."""
    depths: tuple[int, ...]
    """0 for a main rung; otherwise by how many halvings it lies between main rungs."""
    main: tuple[int, ...]
    """Indices of the main rungs. Lowest and highest rung are among them."""

    def nearest(self, log_total: float) -> int:
        """The main rung nearest in log(total images)."""
        at = self._main_at(log_total)
        return min(self.main[max(at - 1, 0) : at + 1], key=lambda i: abs(self.logs[i] - log_total))

    def at_least(self, log_total: float) -> int:
        """The lowest main rung at or above; the highest if there is none."""
        return self.main[min(self._main_at(log_total), len(self.main) - 1)]

    def under(self, rung: int, step: float) -> int:
        """The main rung about `step` below this one, at most the one before. There must be one."""
        return min(self.nearest(self.logs[rung] - step), self.main[bisect.bisect_left(self.main, rung) - 1])

    def above(self, rung: int, step: float) -> int:
        """The main rung about `step` above this one, at least the next."""
        return max(self.nearest(self.logs[rung] + step), self.main[bisect.bisect_right(self.main, rung)])

    def between(self, low: int, high: int) -> int:
        """Of the coarsest rungs strictly between two, the one nearest the middle."""
        middle = (self.logs[low] + self.logs[high]) / 2
        return min(range(low + 1, high), key=lambda i: (self.depths[i], abs(self.logs[i] - middle)))

    def _main_at(self, log_total: float) -> int:
        return bisect.bisect_left(self.main, log_total, key=self.logs.__getitem__)


@lru_cache(maxsize=4096)
def ladder(low: int, high: int, fixed: int, resolution: float) -> Ladder:
    """Rungs from `low` to `high`: neighbours are adjacent integers or at most `resolution` (relative to the upper) apart
    in total images. A finer resolution keeps all rungs of a coarser one."""
    first, main = low + fixed, [high + fixed]
    while main[-1] > first:
        main.append(max(first, min(main[-1] - 1, math.ceil(main[-1] * (1 - MAIN) - 1e-9))))
    main.reverse()
    last = len(main) - 1
    depth_of = {main[0]: 0, main[last]: 0}

    def coarse(left: int, right: int) -> bool:
        return right - left > 1 and (right - left) / right > resolution

    def thin(i: int, j: int) -> None:
        """Take of the main rungs between number `i` and `j` as few as are fine enough, and go on between main rungs."""
        if coarse(main[i], main[j]):
            if j - i == 1:
                halve(main[i], main[j], 1)
            else:
                k = j - 2 ** ((j - i - 1).bit_length() - 1)
                depth_of[main[k]] = 0
                thin(i, k)
                thin(k, j)

    def halve(left: int, right: int, depth: int) -> None:
        """Divide the totals between two rungs in log until they are fine enough."""
        if coarse(left, right):
            middle = min(max(round(math.sqrt(max(left, 0.5) * right)), left + 1), right - 1)
            depth_of[middle] = depth
            halve(left, middle, depth + 1)
            halve(middle, right, depth + 1)

    stops = [*range(last, 0, -BLOCK), 0]
    for j, i in pairwise(stops):
        depth_of[main[i]] = 0
        thin(i, j)
    totals = sorted(depth_of)
    return Ladder(
        counts=tuple(t - fixed for t in totals),
        logs=tuple(_log(t) for t in totals),
        depths=tuple(depth_of[t] for t in totals),
        main=tuple(i for i, t in enumerate(totals) if depth_of[t] == 0),
    )


@lru_cache(maxsize=4096)
def float_ladder(low: float, high: float, resolution: float) -> Ladder:
    """Rungs from `low` to `high`, both above 0: whole multiples of a power of ten that both ends are multiples of, too."""
    ends = Decimal(repr(low)), Decimal(repr(high))
    digits = max(DIGITS - 1 - ends[0].adjusted(), *(-int(end.as_tuple().exponent) for end in ends))
    rungs = ladder(*(int(end.scaleb(digits)) for end in ends), 0, resolution)
    return replace(rungs, counts=tuple(float(Decimal(count).scaleb(-digits)) for count in rungs.counts))


def _log(total: int) -> float:
    return math.log(max(total, 0.5))


class Outcome(NamedTuple):
    """How a probe ended. `shortfall`: logit(target) - logit(accuracy) of a missed run; None where that says nothing."""

    passed: bool
    shortfall: float | None = None


def outcome(passed: bool, accuracy: float | None, target: float) -> Outcome:
    """Of a run with this held-out accuracy at its end; None and NaN stand for unknown."""
    if passed or accuracy is None or math.isnan(accuracy):
        return Outcome(passed)
    return Outcome(False, max(0.0, _logit(target) - _logit(accuracy)))


def _logit(share: float) -> float:
    share = min(max(share, 0.005), 0.995)
    return math.log(share / (1 - share))


class Line(NamedTuple):
    """What is believed of missed runs: they come nearer to the threshold by `pace`, in log(images) per logit of accuracy,
    give or take `pace_spread` from bracket to bracket and `noise` from run to run; with probability `trust`, for otherwise
    their accuracy tells nothing."""

    pace: float = PACE
    pace_spread: float = PACE_SPREAD
    noise: float = NOISE
    trust: float = TRUST


EXPECTED = Line()


@dataclass(frozen=True)
class Start:
    """Where a walk begins (rung index), and what is believed beforehand: the threshold lies near `centre`, in log(total
    images), as far off as `spread`."""

    at: int
    centre: float
    spread: float
    line: Line = EXPECTED
    alone: bool = False
    """Whether no other bracket foretold it: others will rest on what this one finds."""
    leads: bool = False
    """Whether it is foretold and a pilot: the others at its place will rest on what it finds."""
    bad_luck: float = RARE
    """How likely it is that many runs miss by bad luck."""


@dataclass(frozen=True)
class Probe:
    """The rung to try next, and how likely it is to pass (a rough guess that only orders speculation)."""

    at: int
    likely: float
    below: bool = False
    """Whether it is asked for after the walk is over (see `probe_below`)."""


class _Normal(NamedTuple):
    """One part of a belief about the log of a threshold."""

    weight: float
    mean: float
    deviation: float


@lru_cache(maxsize=1 << 14)
def belief(start: Start, missed: tuple[tuple[float, float], ...]) -> tuple[_Normal, ...]:
    """Where the threshold may lie, from the (log(total images), shortfall) of missed runs: a mixture of normal distributions.

    Each part takes the start for more or less precise, and the accuracies for a line or for nothing. With a line,
    log(total) = threshold + LEAD - pace * shortfall + noise, so threshold and pace are those of a Bayesian linear regression;
    a part's weight is how well it foresaw the runs.
    """
    parts, line = [], start.line
    for share, width in WIDTHS:
        spread = min(start.spread * width, max(start.spread, WIDEST))
        parts.append(_Normal(share * (1 - line.trust) * STRAY ** len(missed), start.centre, spread))
        mean, pace = start.centre, line.pace
        vm, vp, cov = spread**2, line.pace_spread**2, 0.0
        weight = share * line.trust
        for log_total, short in missed:
            residual = log_total - (mean + LEAD - pace * short)
            gain_m, gain_p = vm - cov * short, cov - vp * short
            variance = gain_m - gain_p * short + line.noise**2
            weight *= math.exp(-(residual**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
            mean, pace = mean + gain_m * residual / variance, pace + gain_p * residual / variance
            vm, vp, cov = vm - gain_m**2 / variance, vp - gain_p**2 / variance, cov - gain_m * gain_p / variance
        parts.append(_Normal(weight, mean, math.sqrt(max(vm, 1e-6))))
    return tuple(parts)


def learn(answered: Iterable[tuple[float, Sequence[tuple[float, float]]]]) -> Line:
    """What other brackets teach about accuracies: from the log of each one's threshold and the (log(total images), shortfall)
    of its missed runs."""
    pace, variance, odds, worth, misfit = PACE, PACE_SPREAD**2, math.log(TRUST / (1 - TRUST)), NOISE_WORTH, NOISE_WORTH
    for threshold, missed in answered:
        if not missed:
            continue
        surprise = 0.0
        for log_total, short in missed:
            expected = NOISE**2 * misfit / worth + (variance + PACE_SCATTER**2) * short**2
            off = (threshold + LEAD - log_total - pace * short) ** 2 / expected
            surprise += off / 2 + math.log(2 * math.pi * expected) / 2 + math.log(STRAY)
            worth, misfit = worth + 1, misfit + min(off, FARTHEST) * misfit / worth
        odds = min(max(odds - min(max(surprise, -2.0), 2.0), -4.0), 4.0)
        weight = sum(short**2 for _, short in missed) + 1e-9
        found = min(max(sum((threshold + LEAD - log_total) * short for log_total, short in missed) / weight, 0.05), 2.0)
        gain = variance / (variance + NOISE**2 * misfit / worth / weight + PACE_SCATTER**2)
        pace, variance = pace + gain * (found - pace), (1 - gain) * variance
    noise = NOISE * math.sqrt(misfit / worth)
    return Line(pace, math.sqrt(variance + PACE_SCATTER**2), noise, 1 / (1 + math.exp(-odds)))


def _below(parts: tuple[_Normal, ...], log_total: float) -> float:
    """Weight of the thresholds up to `log_total`."""
    return sum(w * math.erfc((m - log_total) / (d * _ROOT2)) for w, m, d in parts) / 2


def next_probe(seen: Mapping[int, Outcome], rungs: Ladder, start: Start) -> Probe | None:
    """The next rung of a walk that has seen these outcomes, by rung index; None: the walk has its answer.

    It ends after finitely many probes: each one halves a belief that leaves every rung some weight, and every failed
    confirmation is a failing probe above a passing one, of which `CHASE` are followed up.
    """
    if not seen:
        return Probe(start.at, 0.5)
    logs, top = rungs.logs, len(rungs.logs) - 1
    first_pass = min((i for i, o in seen.items() if o.passed), default=top + 1)
    last_fail = max((i for i, o in seen.items() if not o.passed), default=-1)
    contrary = sum(not o.passed and i > first_pass for i, o in seen.items())
    upper = min((i for i, o in seen.items() if o.passed and i > last_fail), default=None)
    if upper is None and last_fail == top:
        return None
    if contrary:
        if upper is None:
            return Probe(rungs.above(last_fail, STEP * GROWTH ** (contrary - 1)), LIKELY_TURN)
        if contrary >= CHASE:
            return None
        if upper - last_fail > 1:
            return Probe(rungs.between(last_fail, upper), 0.5)
    elif upper is None or upper - last_fail > 1:
        return _divide(seen, rungs, start, last_fail, upper)
    if upper == top:
        return None
    main = min(rungs.at_least(logs[upper]), top - 1)
    confirm = rungs.above(main, CONFIRM)
    reach = max(logs[main] + CONFIRM_WITHIN, logs[confirm])
    if any(o.passed and i > main and logs[i] <= reach for i, o in seen.items()):
        return None
    return Probe(confirm, LIKELY_CONFIRMED)


def _divide(seen: Mapping[int, Outcome], rungs: Ladder, start: Start, low: int, upper: int | None) -> Probe:
    """The rung between the largest failing (-1: none) and the smallest passing count that divides the belief as wished."""
    logs = rungs.logs
    choices = rungs.main[bisect.bisect_right(rungs.main, low) :]
    if upper is not None:
        choices = choices[: bisect.bisect_left(choices, upper)]
        if not choices:
            return Probe(rungs.between(low, upper), 0.5)
    missed = tuple((logs[i], o.shortfall) for i, o in seen.items() if o.shortfall is not None)
    parts = belief(start, missed)
    floor = 0.0 if low < 0 else _below(parts, logs[low])
    ceiling = sum(p.weight for p in parts) if upper is None else _below(parts, logs[upper])
    span, wished = ceiling - floor, SHARE_UP if upper is None else SHARE_DOWN if low < 0 else SHARE_BETWEEN
    if span < 1e-9 * sum(p.weight for p in parts):
        return Probe(choices[len(choices) // 2], 0.5)
    share = lambda i: (_below(parts, logs[i]) - floor) / span  # noqa: E731
    at = bisect.bisect_left(choices, wished, key=share)
    best = min(choices[max(0, at - 1) : at + 1], key=lambda i: abs(share(i) - wished))
    return Probe(best, share(best))


def probe_below(seen: Mapping[int, Outcome], below: Mapping[int, Outcome], rungs: Ladder, start: Start) -> Probe | None:
    """The next rung below all misses of a walk that is over, to tell whether these were bad luck, or near the best of them, in
    case more is what hurts; None: nothing more is asked.

    `below`: how the ones before ended. A walk with a contradiction says itself that it is in doubt. Main rungs alone decide, so
    that a finer resolution asks for the same.
    """
    passes = any(o.passed for o in seen.values())
    seen = {i: o for i, o in seen.items() if rungs.depths[i] == 0}
    known, missed = bounds(seen), [i for i, o in seen.items() if not o.passed]
    if below and any(o.passed for o in below.values()):
        last = min(below)
        down = last > 0 and below[last].passed
        return Probe(rungs.under(last, DOWN * 2 ** len(below)), LIKELY_TURN, below=True) if down else None
    if missed and not passes:
        return _toward_the_best({**seen, **below}, len(below), rungs, start)
    if below or known.contrary or known.threshold is None or not missed or min(missed) == 0:
        return None
    assert known.lower is not None
    logs, first = rungs.logs, Probe(rungs.under(min(missed), DOWN), LIKELY_BELOW, below=True)
    if start.alone and logs[known.threshold] - logs[min(missed)] < FAR:
        return first
    told = tuple((logs[i], o.shortfall) for i, o in seen.items() if o.shortfall is not None)
    parts = belief(start, told)
    there = _below(parts, logs[known.threshold] + NEAR) - _below(parts, logs[known.lower] - NEAR)
    passed = len(seen) - len(missed)
    shares = ((1 - start.bad_luck, LUCKY), (start.bad_luck, UNLUCKY))
    luck = sum(share * p ** len(missed) * (1 - p) ** passed for share, p in shares)
    luck *= STRAY ** len(told) * _below(belief(start, ()), logs[min(missed)])
    return first if luck > SUSPECT * there else None


def _toward_the_best(seen: Mapping[int, Outcome], below: int, rungs: Ladder, start: Start) -> Probe | None:
    """The next rung where all of these miss: below the lowest if that comes nearest to the target, else beside the one that
    does. Right below the highest rung if a pilot has seen no other."""
    logs, rung = rungs.logs, sorted(seen)
    short = [seen[i].shortfall for i in rung]
    told = [s for s in short if s is not None]
    if start.leads and rung == [len(logs) - 1] and len(logs) > 1:  # one miss may be bad luck
        return Probe(rungs.main[-2], LIKELY_BELOW, below=True)
    if below >= MOST_BELOW or not told or (len(rung) == 1 and not start.alone):
        return None
    if len(rung) > 1 and short[-1] is not None and min(told) >= short[-1] - FALL:  # a run that diverged is the farthest off
        return None
    best = next(n for n, s in enumerate(short) if s is not None and s <= min(told) + FALL / 2)
    if best == 0:
        step = DOWN if len(rung) == 1 or not below else 2 * DOWN
        return Probe(rungs.under(rung[0], step), LIKELY_BELOW, below=True) if rung[0] > 0 else None
    gaps = [(logs[high] - logs[low], low, high) for low, high in pairwise(rung[best - 1 : best + 2])]
    widest, low, high = max(gaps)
    between = rungs.main[bisect.bisect_right(rungs.main, low) : bisect.bisect_left(rungs.main, high)]
    if widest < NARROW or not between:
        return None
    return Probe(min(between, key=lambda i: abs(logs[i] - (logs[low] + logs[high]) / 2)), LIKELY_BELOW, below=True)


@dataclass(frozen=True)
class Bounds:
    """What a walk knows, as rung indices. `threshold`: smallest pass above all failing probes, if any. `lower`: largest
    failing probe below the smallest pass, if any. `contrary`: some probe fails above one that passes."""

    lower: int | None
    threshold: int | None
    contrary: bool


def bounds(seen: Mapping[int, Outcome]) -> Bounds:
    """Bounds on the threshold from the outcomes of a walk, finished or not."""
    passed = [i for i, o in seen.items() if o.passed]
    failed = [i for i, o in seen.items() if not o.passed]
    last_fail = max(failed, default=-1)
    below = [i for i in failed if not passed or i < min(passed)]
    return Bounds(
        lower=max(below, default=None),
        threshold=min((i for i in passed if i > last_fail), default=None),
        contrary=bool(passed) and min(passed) < last_fail,
    )


def probes_left(seen: Mapping[int, Outcome], rungs: Ladder, start: Start) -> int:
    """Probes still needed if the threshold is where the walk would now guess it: in the middle of what is left."""
    known = bounds(seen)
    if known.threshold is not None and known.lower is not None:
        guess = (rungs.logs[known.lower] + rungs.logs[known.threshold]) / 2
    elif (probe := next_probe(seen, rungs, start)) is not None:
        guess = rungs.logs[probe.at]
    else:
        return 0
    imagined, left = dict(seen), 0
    while (probe := next_probe(imagined, rungs, start)) is not None:
        imagined[probe.at] = Outcome(rungs.logs[probe.at] >= guess)
        left += 1
    return left
