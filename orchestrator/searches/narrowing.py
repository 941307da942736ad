"""A threshold search that goes on with more seeds until the exponent is known well enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from trainables.spec import RunSpec, family_key

MOST_SEEDS = 32
"""Seeds at a grid size (or another value along), at most."""
FARTHEST = 2.0
"""One round asks for no more seeds than would divide the variance of the exponent by this: how wide an interval is, is known
roughly."""
LEAST_GAIN = 0.15
"""An exponent whose interval is not narrower by this share than with half of the thresholds or fewer, two rounds in a row, gets
no more: whole sizes may lie off the law, or there are few of them, and then seeds say little. Otherwise twice the thresholds
make it narrower by 0.3 or more; but luck makes it wider or narrower, too, so a single round decides nothing."""


class Round(NamedTuple):
    """What a round knows of the exponent of a data set."""

    thresholds: int
    width: float | None
    """Of the interval."""


Widths = Callable[[Sequence[ThresholdResult]], Mapping[str, float | None]]
"""From thresholds to the width of the interval of each data set's exponent; None where there is none."""


class NarrowingSearch(ThresholdSearch):
    """Finds the thresholds of `brackets`; then, in rounds, those of further seeds, until no exponent has an interval wider than
    `width`, or there are no more seeds to add.

    The variance of a slope falls with the spread of the sizes about their mean, so a seed helps most at the size that is
    farthest from it (optimal design: V. V. Fedorov, Theory of Optimal Experiments, 1972, chapter 2). A round adds so many seeds
    that the width wished would be met if the interval shrank with the root of that spread. Where twice the thresholds have
    hardly made it narrower, two rounds in a row, no more are added. A size that some seed does not reach takes no part in the
    fit, and gets no more; nor does one whose least value passes, unless that is a single sample or none.
    Each round follows from the rows of those before it, and no others.

    Args:
        brackets: asked in any case.
        widths: computes how well exponents are known.

    Raises:
        ValueError: as for the search without it, or a width that is none.
    """

    def __init__(
        self,
        brackets: Sequence[Bracket],
        width: float,
        widths: Widths,
        resolution: float = 0.05,
        speculate: bool = True,
        stop: str = "auto",
    ) -> None:
        self._brackets = (*brackets, *further_seeds(brackets))
        super().__init__(self._brackets, resolution, speculate, stop)
        if not 0 < width < math.inf:
            raise ValueError(f"the width of an interval must be a number above 0, not {width:g}")
        self.width = width
        self._widths = widths
        self._first = tuple(range(len(brackets)))
        self._searches: dict[tuple[int, ...], ThresholdSearch] = {}
        self._known_widths: dict[tuple[object, ...], Mapping[str, float | None]] = {}

    def numbers(self, rows: Rows) -> tuple[int, ...]:
        """The brackets that are asked as far as these rows tell, ascending."""
        numbers, rounds = self._first, list[Mapping[str, Round]]()
        with rows.turn:
            while (search := self._search(numbers)).finished(rows):
                results = search.answer(rows)
                widths = self._widths_of(numbers, results)
                counts = Counter(result.dataset for result in results)
                rounds.append({name: Round(counts[name], width) for name, width in widths.items()})
                added = self._added(numbers, results, rounds)
                if not added:
                    break
                numbers = tuple(sorted((*numbers, *added)))
        return numbers

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        return self._search(self.numbers(rows)).propose(rows, room, running, fill)

    def finished(self, rows: Rows) -> bool:
        return self._search(self.numbers(rows)).finished(rows)

    def answer(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each bracket that is asked, in the order of `numbers`."""
        return self._search(self.numbers(rows)).answer(rows)

    def may_audit(self, spec: RunSpec) -> bool:
        family = family_key(spec, self._brackets[0].task_version)
        return any(search.may_audit(spec) for search in list(self._searches.values()) if family in search.families)

    def doubt(self, rows: Rows) -> str | None:
        """Which exponents are still not known well enough, in words; None if all are."""
        numbers = self.numbers(rows)
        widths = self._widths_of(numbers, self._search(numbers).answer(rows))
        told = []
        if wide := [name for name, width in widths.items() if width is not None and width > self.width]:
            told.append(
                f"the interval of the exponent is wider than {self.width:g} for {', '.join(wide)}, and no more seeds are "
                f"added. A size gets at most {MOST_SEEDS} seeds. It gets no more if some seed does not reach the target, or if "
                f"twice the thresholds narrowed the interval by less than {LEAST_GAIN:.0%}, two rounds in a row. Sizes may lie "
                "off the law, or there are too few of them: then more sizes help"
            )
        if without := [name for name, width in widths.items() if width is None]:
            told.append(
                f"there is no interval of the exponent for {', '.join(without)}, and no more seeds are added: too few "
                "thresholds take part in its fit, or some are 0. Ask for sizes that every seed reaches, and with more than the "
                "least value"
            )
        return "; ".join(told) or None

    def _search(self, numbers: tuple[int, ...]) -> ThresholdSearch:
        if numbers not in self._searches:
            asked = [self._brackets[i] for i in numbers]
            self._searches[numbers] = search = ThresholdSearch(asked, self.resolution, self.speculate, self.stop)
            search.is_blocked = self.is_blocked
        return self._searches[numbers]

    def _widths_of(self, numbers: tuple[int, ...], results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        known = (numbers, *((r.verdict, r.threshold, r.lower, r.tried) for r in results))
        if known not in self._known_widths:
            self._known_widths[known] = self._widths(results)
        return self._known_widths[known]

    def _added(
        self, numbers: tuple[int, ...], results: Sequence[ThresholdResult], rounds: Sequence[Mapping[str, Round]]
    ) -> tuple[int, ...]:
        """The brackets that the next round asks for besides."""
        if any(result.verdict in ("open", "failed") for result in results):
            return ()
        return tuple(
            i
            for dataset, (_, width) in rounds[-1].items()
            if width is not None and width > self.width and not _is_vain([of[dataset] for of in rounds if dataset in of])
            for i in self._more(numbers, [r for r in results if r.dataset == dataset], (width / self.width) ** 2)
        )

    def _more(self, numbers: tuple[int, ...], results: Sequence[ThresholdResult], factor: float) -> list[int]:
        """Further brackets of a data set, so that the spread of its sizes grows by this factor."""
        unreached = {r.along for r in results if r.threshold is None or r.is_cut}
        counts = Counter(math.log(float(r.along)) for r in results if r.along not in unreached)
        free: dict[float, list[int]] = {}
        for i in sorted(set(range(len(self._brackets))) - set(numbers)):
            bracket = self._brackets[i]
            if bracket.template.dataset == results[0].dataset and bracket.along not in unreached:
                free.setdefault(math.log(float(bracket.along)), []).append(i)
        chosen: list[int] = []
        if not counts:
            return chosen
        wished = _spread(counts) * min(factor, FARTHEST)
        while free and (not chosen or _spread(counts) < wished):
            best = max(sorted(free), key=lambda x: _spread(counts + Counter([x])))
            counts[best] += 1
            chosen.append(free[best].pop(0))
            if not free[best]:
                del free[best]
        return chosen


def _is_vain(rounds: Sequence[Round]) -> bool:
    """Whether the last one has an interval that is hardly narrower than with half of its thresholds, and so has the one before
    it."""
    return _is_hardly_narrower(rounds) and _is_hardly_narrower(rounds[:-1])


def _is_hardly_narrower(rounds: Sequence[Round]) -> bool:
    thresholds, width = rounds[-1]
    before = [of.width for of in rounds if of.thresholds <= thresholds / 2]
    return width is not None and bool(before) and before[-1] is not None and width > (1 - LEAST_GAIN) * before[-1]


def _spread(counts: Counter[float]) -> float:
    """Sum of squares about the mean."""
    mean = sum(x * n for x, n in counts.items()) / counts.total()
    return sum(n * (x - mean) ** 2 for x, n in counts.items())


def further_seeds(brackets: Sequence[Bracket]) -> list[Bracket]:
    """The brackets of more seeds, up to MOST_SEEDS, at each place of these, by rising seed."""
    places: dict[tuple[str, object], Bracket] = {}
    for bracket in brackets:
        place = bracket.template.dataset, bracket.along
        if place not in places or places[place].template.seed < bracket.template.seed:
            places[place] = bracket
    return [
        replace(last, template=replace(last.template, seed=seed))
        for last in places.values()
        for seed in range(last.template.seed + 1, MOST_SEEDS)
    ]


def threshold_search(
    brackets: Sequence[Bracket], resolution: float, speculate: bool, stop: str, width: float | None, widths: Widths
) -> ThresholdSearch:
    """The search for these thresholds and, if there is a `width`, those of more seeds.

    Raises:
        ValueError: there is no such search.
    """
    if width is None:
        return ThresholdSearch(brackets, resolution, speculate, stop)
    return NarrowingSearch(brackets, width, widths, resolution, speculate, stop)
