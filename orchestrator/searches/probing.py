"""One threshold, probe by probe: which count to try next, given how the earlier probes of this bracket ended.

A walk starts at a predicted count, gallops away from the first outcome in growing steps, bisects in log(total images),
and asks for one confirming pass above the threshold. Every count it can ask for lies on a ladder that is fixed beforehand.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

OCTAVE = 0.8
"""Coarsest rung distance in log(total images); halved until the resolution is met. 0.8 / 16 just meets 5 %."""
MAIN_DEPTH = 3
"""Main rungs are those of at most three halvings, 10 % apart."""
CONFIRM = math.log(1.15)
"""A threshold T, taken up to its main rung, asks for a second pass near 1.15 T (1.1 to 1.3 times the threshold itself) ..."""
CONFIRM_WITHIN = math.log(2.0)
"""... unless some pass between T and 2 T is known."""
CHASE = 6
"""After this many failing probes above a passing one, the walk no longer refines: it takes the first pass above them all."""

LIKELY_CONFIRMED = 0.9
LIKELY_TURN = 0.6


@dataclass(frozen=True)
class Ladder:
    """Counts a bracket may ask for, ascending; every other attribute and every rung index refers to these.

    A walk gallops on the main rungs and takes coarse rungs before fine ones when it bisects, so that a finer resolution
    only adds probes to the end of it.
    """

    counts: tuple[int, ...]
    logs: tuple[float, ...]
    """log(count + images always present)."""
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

    def above(self, rung: int, step: float) -> int:
        """The main rung about `step` above this one, at least the next."""
        return max(self.nearest(self.logs[rung] + step), self.main[bisect.bisect_right(self.main, rung)])

    def below(self, rung: int, step: float) -> int:
        """The main rung about `step` below this one, at most the previous."""
        return min(self.nearest(self.logs[rung] - step), self.main[bisect.bisect_left(self.main, rung) - 1])

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
    first, last = low + fixed, high + fixed
    depth_of = {first: 0, last: 0}

    def refine(u: float, v: float, left: int, right: int, depth: int) -> None:
        """Halve the stretch from total `left` to `right` (in log from u to v) until it is fine enough."""
        if right - left > 1 and (right - left) / right > resolution:
            middle = (u + v) / 2
            total = min(max(round(math.exp(middle)), left + 1), right - 1)
            depth_of[total] = max(0, depth - MAIN_DEPTH)
            refine(u, middle, left, total, depth + 1)
            refine(middle, v, total, right, depth + 1)

    inner = (j * OCTAVE for j in range(math.floor(_log(first) / OCTAVE), math.ceil(_log(last) / OCTAVE) + 1))
    anchors = [(_log(first), first), *((u, round(math.exp(u))) for u in inner), (_log(last), last)]
    anchors = [a for i, a in enumerate(anchors) if i in (0, len(anchors) - 1) or first < a[1] < last]
    for (u, left), (v, right) in pairwise(anchors):
        depth_of[right] = 0
        refine(u, v, left, right, 1)
    totals = sorted(depth_of)
    return Ladder(
        counts=tuple(t - fixed for t in totals),
        logs=tuple(_log(t) for t in totals),
        depths=tuple(depth_of[t] for t in totals),
        main=tuple(i for i, t in enumerate(totals) if depth_of[t] == 0),
    )


def _log(total: int) -> float:
    return math.log(max(total, 0.5))


@dataclass(frozen=True)
class Start:
    """Where a walk begins (rung index) and how it gallops: first step in log(total images), growth per further step."""

    at: int
    step: float
    growth: float


@dataclass(frozen=True)
class Probe:
    """The rung to try next, and how likely it is to pass (a rough guess that only orders speculation)."""

    at: int
    likely: float


def next_probe(seen: Mapping[int, bool], rungs: Ladder, start: Start) -> Probe | None:
    """The next rung of a walk that has seen these outcomes (rung index -> passed); None: the walk has its answer.

    It ends after finitely many probes: gallop and bisection are logarithmic in the ladder, and every failed confirmation
    is a failing probe above a passing one, of which `CHASE` are followed up.
    """
    if not seen:
        return Probe(start.at, 0.5)
    logs, top = rungs.logs, len(rungs.logs) - 1
    first_pass = min((i for i, ok in seen.items() if ok), default=top + 1)
    last_fail = max((i for i, ok in seen.items() if not ok), default=-1)
    contrary = sum(not ok and i > first_pass for i, ok in seen.items())
    upper = min((i for i, ok in seen.items() if ok and i > last_fail), default=None)
    if upper is None:
        if last_fail == top:
            return None
        step = start.step * start.growth ** ((contrary or len(seen)) - 1)
        return Probe(rungs.above(last_fail, step), LIKELY_TURN)
    if last_fail < 0 < upper:
        step = start.step * start.growth ** (len(seen) - 1)
        return Probe(rungs.below(upper, step), 1 - LIKELY_TURN)
    if contrary >= CHASE:
        return None
    if upper - last_fail > 1:
        return Probe(rungs.between(last_fail, upper), 0.5)
    if upper == top:
        return None
    main = min(rungs.at_least(logs[upper]), top - 1)
    confirm = rungs.above(main, CONFIRM)
    reach = max(logs[main] + CONFIRM_WITHIN, logs[confirm])
    if any(ok and i > main and logs[i] <= reach for i, ok in seen.items()):
        return None
    return Probe(confirm, LIKELY_CONFIRMED)


@dataclass(frozen=True)
class Bounds:
    """What a walk knows, as rung indices. `threshold`: smallest pass above all failing probes, if any. `lower`: largest
    failing probe below the smallest pass, if any. `contrary`: some probe fails above one that passes."""

    lower: int | None
    threshold: int | None
    contrary: bool


def bounds(seen: Mapping[int, bool]) -> Bounds:
    """Bounds on the threshold from the outcomes of a walk, finished or not."""
    passed = [i for i, ok in seen.items() if ok]
    failed = [i for i, ok in seen.items() if not ok]
    last_fail = max(failed, default=-1)
    below = [i for i in failed if not passed or i < min(passed)]
    return Bounds(
        lower=max(below, default=None),
        threshold=min((i for i in passed if i > last_fail), default=None),
        contrary=bool(passed) and min(passed) < last_fail,
    )


def probes_left(seen: Mapping[int, bool], rungs: Ladder, start: Start) -> int:
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
        imagined[probe.at] = rungs.logs[probe.at] >= guess
        left += 1
    return left
