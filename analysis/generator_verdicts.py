"""What is said of the claims about visual generative models, by the runs that there are: a verdict, or what it lacks."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.generator_claims import CLAIMS, Claim, Found, Side
from analysis.generators import AGREEMENT, LEAST_SEEDS, LEVELS, Run, against, at_least
from trainables.generative.judge import JUDGES
from trainables.generative.shapes import level_of_each
from trainables.generative.tiers import CHOOSING

GATES_OF_RUNS = (1, 2, 3)
"""Those that a run has to meet by itself, to be counted."""
PASS, FAIL, NOT_ENOUGH = "pass", "fail", "not enough"
NO_LEVEL = "no composition is of {} in this split"
MOST_WAYS = 2**10
"""To relabel the runs of two sides; where there are more, so many are drawn."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a claim, of one comparison."""

    claim: str
    verdict: str
    """PASS, FAIL or NOT_ENOUGH."""
    told: str
    """By which numbers, or what is missing."""
    about: str = ""
    """The settings that are compared, where there are several comparisons."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    """The keys of the runs that count; of all that are compared, or would be, where too few do."""
    seeds: int = 0
    """The least number of runs of a side that counted."""
    few: bool = False
    """Whether too few runs of a side count."""
    missing: bool = False
    """Whether runs are missing, so that more training may give a verdict."""
    unmet: frozenset[int] = frozenset()
    """The gates that are not met, for want of which there is no verdict."""
    left_out: frozenset[str] = frozenset()
    """The keys of the runs that the claim leaves out by each judge, as nothing is known of what it asks of them."""
    luck: float | None = None
    """Of a claim that passes, and says of two sides that they differ: the share of all ways to relabel their runs in which its
    rule holds as clearly, see `_luck`. By several judges, the largest."""

    @property
    def line(self) -> str:
        about = f" ({self.about})" if self.about else ""
        return f"claim {CLAIMS[self.claim].number}, {self.claim}{about}: {self.verdict}: {self.told}"


def judged(name: str, sides: Sequence[Side]) -> Verdict:
    """What is to be said of a claim by the runs of its sides; last, how many more have diverged, as these count on no side."""
    found = _judged(name, sides)
    diverged = sum(run.status == "diverged" and run.spec.seed < CHOOSING for side in sides for run in side.runs)
    return dataclasses.replace(found, told=f"{found.told}; {diverged} more diverged") if diverged else found


def _judged(name: str, sides: Sequence[Side]) -> Verdict:
    if any(lacks_level(run, CLAIMS[name].level) for side in sides for run in side.runs):
        return Verdict(name, NOT_ENOUGH, NO_LEVEL.format(LEVELS[CLAIMS[name].level]))
    usable = {side.name: Side(side.name, list(filter(is_judged, side.runs))) for side in sides}
    seeds = min(len(side.runs) for side in usable.values())
    if short := [side for side in sides if len(usable[side.name].runs) < LEAST_SEEDS]:
        told, missing = "; ".join(map(_shortage, short)), any(map(_lacks_runs, short))
        unmet = frozenset(gate for side in short for gate in GATES_OF_RUNS if False in _met(side, gate))
        return Verdict(name, NOT_ENOUGH, told, seeds=seeds, few=True, missing=missing, unmet=unmet)
    if CLAIMS[name].is_paired:
        shared = set.intersection(*({run.spec.seed for run in side.runs} for side in usable.values()))
        if (seeds := len(shared)) < LEAST_SEEDS:
            return Verdict(name, NOT_ENOUGH, _unpaired([*usable.values()], seeds), seeds=seeds, few=True, missing=True)
        usable = {side.name: Side(side.name, [run for run in side.runs if run.spec.seed in shared]) for side in usable.values()}
    unmeasured = _unmeasured(CLAIMS[name], usable)
    measured = _without(usable, unmeasured)
    left = min(len(side.runs) for side in measured.values())
    if left == seeds or left < LEAST_SEEDS:
        found = _decided(name, usable)
    else:
        found = _decided(name, measured)
        are = "is" if seeds - left == 1 else "are"
        told = f"{found.told}; {seeds - left} of {seeds} seeds {are} not measured on all sides, and {are} left out"
        found = dataclasses.replace(found, told=told, left_out=found.left_out | unmeasured)
    counted = [[run.key for run in side.runs if run.key not in found.left_out] for side in usable.values()]
    return dataclasses.replace(found, seeds=min(map(len, counted)), runs=tuple(itertools.chain(*counted)))


def _unmeasured(claim: Claim, sides: Mapping[str, Side]) -> frozenset[str]:
    """The keys of the runs of the seeds of which a claim does not know on all sides what it goes by."""
    runs = [run for side in sides.values() for run in side.runs]
    seeds = {run.spec.seed for run in runs if math.isnan(claim.measured(run))}
    return frozenset(run.key for run in runs if run.spec.seed in seeds)


def _without(sides: Mapping[str, Side], keys: Collection[str]) -> dict[str, Side]:
    return {name: Side(name, [run for run in side.runs if run.key not in keys]) for name, side in sides.items()}


def _decided(name: str, usable: Mapping[str, Side]) -> Verdict:
    """By runs that all count, of enough seeds."""
    claim = CLAIMS[name]
    asked = ("seen", claim.level)
    shares = [[run.final(level, "agree") for run in side.runs] for side in usable.values() for level in asked]
    agreement = float(np.min([np.mean(of_side) for of_side in shares]))
    if math.isnan(agreement):
        return Verdict(name, NOT_ENOUGH, f"nothing is known of {LEVELS[claim.level]}, or of how often the judges agree on it")
    by_judge = {judge: _by_judge(claim, usable, judge) for judge in JUDGES}
    needed = f"; needed: {claim.needed}" if any(found.holds is not None for found in by_judge.values()) else ""
    if at_least(AGREEMENT, agreement):
        found = by_judge["both"]
        told = found.told + needed
        decided = Verdict(name, _verdict(found.holds), told, numbers=found.numbers, unmet=found.unmet, left_out=found.left_out)
        return _with_luck(decided, usable, {"both": found})
    numbers = {f"{n}_{judge}": value for judge, found in by_judge.items() for n, value in found.numbers.items()}
    told = "; ".join(f"by {judge}: {found.told}" for judge, found in by_judge.items()) + needed
    held = {found.holds for found in by_judge.values()}
    why = f"the judges agree on {against(AGREEMENT, agreement, percent=True)} of the pictures, under {AGREEMENT:.0%}"
    unmet = frozenset().union(*(found.unmet for found in by_judge.values()))
    left_out = frozenset.intersection(*(found.left_out for found in by_judge.values()))
    if len(held) == 1:
        verdict, told = _verdict(held.pop()), f"{told} ({why}, but this by either)"
    else:
        verdict, told = NOT_ENOUGH, f"{why}, and differ: {told}"
    return _with_luck(Verdict(name, verdict, told, numbers=numbers, unmet=unmet, left_out=left_out), usable, by_judge)


def _with_luck(found: Verdict, sides: Mapping[str, Side], by_judge: Mapping[str, Found]) -> Verdict:
    """A verdict and, where it is that two sides differ, how often it would be that if sides meant nothing: of the runs that it
    does not leave out."""
    claim = CLAIMS[found.claim]
    if found.verdict != PASS or not claim.tells_apart:
        return found
    luck = max(_luck(claim, _without(sides, by.left_out), judge) for judge, by in by_judge.items())
    relabelled = "the two sides swapped at random, seed by seed" if claim.is_paired else "all runs dealt to the sides at random"
    told = f"; with {relabelled}, it would pass as clearly in {luck:{'.0%' if luck >= 0.1 else '.1%'}} of cases"
    told += " by one of the judges" * (len(by_judge) > 1)
    return dataclasses.replace(found, told=found.told + told, luck=luck)


def _luck(claim: Claim, sides: Mapping[str, Side], judge: str) -> float:
    """In how many of all ways to relabel the runs of two sides the rule holds as clearly; a share.

    The rule goes by medians, which a few swapped seeds do not move. So it has to hold, too, of as many seeds alone, or of as
    many pairs of runs where sides have seeds of their own.
    """
    first, second = (sorted(side.runs, key=lambda run: run.spec.seed) for side in sides.values())
    runs = [*first, *second]

    def holds(*way: Sequence[int]) -> bool:
        dealt = {name: Side(name, [runs[place] for place in places]) for name, places in zip(sides, way, strict=True)}
        return bool(_by_judge(claim, dealt, judge).holds)

    @functools.cache
    def alone(one: int, other: int) -> bool:
        return holds([one] * LEAST_SEEDS, [other] * LEAST_SEEDS)

    def clear(one: Sequence[int], other: Sequence[int]) -> int:
        return sum(itertools.starmap(alone, zip(one, other, strict=True) if claim.is_paired else itertools.product(one, other)))

    ways = _ways(claim.is_paired, len(first), len(second))
    least = clear(*ways[0])
    return sum(clear(*way) >= least and holds(*way) for way in ways) / len(ways)


def _ways(is_paired: bool, first: int, second: int) -> list[tuple[Sequence[int], Sequence[int]]]:
    """The places of so many runs of two sides, first as they are, then relabelled in all other ways, or in some, MOST_WAYS in
    all. The two of a seed are swapped or not; where sides have seeds of their own, all runs are dealt anew, as many a side."""
    rng = np.random.default_rng(0)
    every = range(first + second)
    chosen: Iterable[Sequence[int]]
    if is_paired:
        swaps: Iterable[Sequence[int]] = itertools.product((0, first), repeat=first)
        if 2**first > MOST_WAYS:
            swaps = [[0] * first, *(first * rng.integers(2, size=(MOST_WAYS - 1, first))).tolist()]
        chosen = ([place + more for place, more in enumerate(swap)] for swap in swaps)
        return [(one, [(place + first) % len(every) for place in one]) for one in chosen]
    chosen = itertools.combinations(every, first)
    if math.comb(len(every), first) > MOST_WAYS:
        chosen = [every[:first], *(rng.permutation(every)[:first].tolist() for _ in range(MOST_WAYS - 1))]
    return [(one, [place for place in every if place not in one]) for one in chosen]


def _by_judge(claim: Claim, sides: Mapping[str, Side], judge: str) -> Found:
    for side in sides.values():
        if math.isnan(seen := side.final("seen", judge)):
            return Found(None, f"how much {side.name} draws of what it has seen is not known", {})
        if not at_least(claim.least_seen, seen):
            drawn = against(claim.least_seen, seen)
            return Found(None, f"{side.name} draws {drawn} of what it has seen, under {claim.least_seen}", {"seen": seen})
    found = claim.rule(sides, judge)
    if unknown := [name for name, value in found.numbers.items() if math.isnan(value)]:
        return Found(None, f"no number is known of {', '.join(unknown)}", {})
    return found


def lacks_level(run: Run, level: str) -> bool:
    """Whether no composition is of a level in the split of a run."""
    return [*LEVELS].index(level) not in level_of_each(run.spec.holdout).values()


def _verdict(holds: bool | None) -> str:
    return NOT_ENOUGH if holds is None else PASS if holds else FAIL


def is_judged(run: Run) -> bool:
    """Whether claims go by a run: it counts, and meets gates 1 to 3."""
    return run.counts and all(run.own_gates[gate] for gate in GATES_OF_RUNS)


def _met(side: Side, gate: int) -> list[bool | None]:
    """Of the runs of a setting that count, whether each meets a gate."""
    return [run.own_gates[gate] for run in side.runs if run.counts]


def _lacks_runs(side: Side) -> bool:
    """Whether a setting with too few runs that count lacks runs: a further seed may meet a gate that some of its seeds meet."""
    counted = [run for run in side.runs if run.counts]
    unmet = sum(False in [run.own_gates[gate] for gate in GATES_OF_RUNS] for run in counted)
    return len(counted) < LEAST_SEEDS or 0 < len(counted) - unmet < LEAST_SEEDS


def _unpaired(sides: Sequence[Side], shared: int) -> str:
    first, *others = (f"{side.name} has {len(side.runs)}" for side in sides)
    return f"{', '.join([f'{first} seeds that count', *others])}, and they share {shared}, where {LEAST_SEEDS} are asked for"


def _shortage(side: Side) -> str:
    """Why a setting has too few runs that count."""
    count = sum(run.counts for run in side.runs)
    told = f"{side.name} has {count} finished seed{'s' * (count != 1)} of {LEAST_SEEDS}"
    for gate in GATES_OF_RUNS:
        met = _met(side, gate)
        told += f", gate {gate} is not met by {met.count(False)}" * (False in met)
        told += f", gate {gate} is not known of {met.count(None)}" * (None in met)
    return told
