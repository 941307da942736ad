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
SPLIT = 0.5
"""Where a bracket is split, as a fraction of its length in log(total images)."""
CONFIRM = math.log(1.2)
"""A threshold T asks for a second pass at 1.2 T ..."""
CONFIRM_WITHIN = math.log(2.0)
"""... unless some pass between T and 2 T is known."""
CHASE = 6
"""After this many failing probes above a passing one, the walk no longer refines: it takes the first pass above them all."""

LIKELY_CONFIRMED = 0.9
LIKELY_TURN = 0.6


@dataclass(frozen=True)
class Ladder:
    """Counts a bracket may ask for, ascending. `logs`: log of the total images (count + fixed) at each rung."""

    counts: tuple[int, ...]
    logs: tuple[float, ...]

    def nearest(self, log_total: float) -> int:
        """Index of the rung nearest in log(total images)."""
        at = bisect.bisect_left(self.logs, log_total)
        if at == 0:
            return 0
        if at == len(self.logs):
            return at - 1
        return at if self.logs[at] - log_total <= log_total - self.logs[at - 1] else at - 1


@lru_cache(maxsize=4096)
def ladder(low: int, high: int, fixed: int, resolution: float) -> Ladder:
    """Rungs from `low` to `high`: neighbours are adjacent integers or at most `resolution` (relative to the upper) apart
    in total images. A finer resolution keeps all rungs of a coarser one."""

    def refine(u: float, v: float, left: int, right: int) -> list[int]:
        if right - left <= 1 or (right - left) / right <= resolution:
            return [right]
        middle = (u + v) / 2
        total = min(max(round(math.exp(middle)), left + 1), right - 1)
        return refine(u, middle, left, total) + refine(middle, v, total, right)

    first, last = low + fixed, high + fixed
    anchors = [_log(first)]
    for j in range(math.ceil(_log(first) / OCTAVE), math.floor(_log(last) / OCTAVE) + 1):
        if first < round(math.exp(j * OCTAVE)) < last:
            anchors.append(j * OCTAVE)
    anchors.append(_log(last))
    totals = [first]
    for u, v in pairwise(anchors):
        right = last if v == anchors[-1] else round(math.exp(v))
        if right > totals[-1]:
            totals += refine(u, v, totals[-1], right)
    return Ladder(tuple(t - fixed for t in totals), tuple(_log(t) for t in totals))


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
        return Probe(max(last_fail + 1, rungs.nearest(logs[last_fail] + step)), LIKELY_TURN)
    if last_fail < 0 < upper:
        step = start.step * start.growth ** (len(seen) - 1)
        return Probe(min(upper - 1, rungs.nearest(logs[upper] - step)), 1 - LIKELY_TURN)
    if contrary >= CHASE:
        return None
    if upper - last_fail > 1:
        split = rungs.nearest(logs[last_fail] + SPLIT * (logs[upper] - logs[last_fail]))
        return Probe(min(max(split, last_fail + 1), upper - 1), SPLIT)
    if upper == top:
        return None
    confirm = max(upper + 1, rungs.nearest(logs[upper] + CONFIRM))
    reach = max(logs[upper] + CONFIRM_WITHIN, logs[confirm])
    if any(ok and i > upper and logs[i] <= reach for i, ok in seen.items()):
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
