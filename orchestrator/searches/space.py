"""The space of an Optuna search: the settings that it chooses, as Optuna is asked for them and as a run has them."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optuna import Trial as Asked
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from trainables.settings import IN_SPEC, value_of, with_values
from trainables.spec import RunSpec, Scalar

Values = Mapping[str, Scalar]
"""Searched settings by name; those that do not matter are left out."""
Matters = Callable[[Values], Collection[str]]
"""The names that matter, given some of the searched settings: the others are at their default."""
Make = Callable[[Values, int], RunSpec]
"""The run with these values and this seed; ValueError if the task cannot do it."""

MOST_POINTS = 4096
"""Of a finite space that are listed, so that none is asked for twice and the search ends with the last one."""
LEAST_SIDE = 2
"""Values of a range that a grid has at least: its ends."""
MOST_OF_GRID = 100_000
"""Points of the least grid of a space, at most: of any more, no study can be planned."""
ROUNDING = 1e-12
"""By such a share the last point of a grid may lie beyond its range, and still is one of it."""
FIELDS = ("lr", "weight_decay", "batch_size", "max_steps", "schedule", "N", "data_count", *IN_SPEC)
"""What a `RunSpec` has a field for; all else is one of its `options`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What one setting may be: one of some `words` (which may be numbers), or in a range, or either.

    Where there are both, Optuna first chooses between the words and the range, and then in the range.
    """

    name: str
    words: tuple[Scalar, ...] = ()
    span: tuple[float, float] | None = None
    """The least and the largest number of the range."""
    log: bool = False
    step: int | None = None
    """Of whole numbers; None: the numbers are floats."""

    @property
    def text(self) -> str:
        """As a user writes it."""
        return "|".join(self._choices)

    @property
    def ends(self) -> list[Scalar]:
        """The values at the edge: all words, and both ends of the range."""
        return [*self.words, *(self.span or ())]

    @property
    def size(self) -> float:
        """The number of values; infinite where there is no last one."""
        if self.span is None:
            return len(self.words)
        low, high = self.span
        inside = 1 if low == high else math.inf if self.step is None else (high - low) // self.step + 1
        return len(self.words) + inside

    def suggest(self, trial: Asked) -> Scalar:
        """The value that Optuna chooses for a trial."""
        if self.span is None:
            word: Scalar = trial.suggest_categorical(self.name, self.words)  # type: ignore[assignment]
            return word
        if self.words:
            place = self._choices.index(str(trial.suggest_categorical(self._switch, self._choices)))
            if place < len(self.words):
                return self.words[place]
        low, high = self.span
        if self.step is None:
            return trial.suggest_float(self.name, low, high, log=self.log)
        return trial.suggest_int(self.name, int(low), int(high), log=self.log, step=self.step)

    def params(self, value: Scalar) -> dict[str, Any]:
        """What Optuna chose if the setting has this value."""
        if self.span is None:
            return {self.name: value}
        if value in self.words:
            return {self._switch: shown(value)}
        switch = {self._switch: self._choices[-1]} if self.words else {}
        return {**switch, self.name: self.within(value)}

    def distributions(self, value: Scalar) -> dict[str, BaseDistribution]:
        """From what it chose it."""
        if self.span is None:
            return {self.name: CategoricalDistribution(self.words)}
        switch = {self._switch: CategoricalDistribution(self._choices)} if self.words else {}
        return {**switch} if value in self.words else {**switch, self.name: self._distribution(*self.span)}

    def holds(self, value: Scalar) -> bool:
        """Whether the setting may have this value."""
        if any(value == word and type(value) is type(word) for word in self.words):
            return True
        if self.span is None or isinstance(value, str | bool):
            return False
        low, high = self.span
        if self.step is None:
            return low <= value <= high or math.isclose(value, high, rel_tol=ROUNDING)
        return low <= value <= high and isinstance(value, int) and (value - low) % self.step == 0

    def within(self, value: Scalar) -> Scalar:
        """A value of the setting, without an error of rounding beyond its range."""
        if self.span is None or value in self.words:
            return value
        assert not isinstance(value, str)
        return min(value, self.span[1])

    def points(self, side: int) -> list[Scalar]:
        """All words, and `side` values of the range from end to end, or all if it has fewer."""
        count = self.size - len(self.words)
        if self.span is not None and self.step is not None and side >= count:
            low, high = map(int, self.span)
            return [*self.words, *range(low, high + 1, self.step)]
        side = int(min(side, count))
        inside: list[Scalar] = [self._at(i / max(1, side - 1)) for i in range(side)]
        return [*self.words, *dict.fromkeys(inside)]

    def _at(self, share: float) -> float:
        low, high = self.span or (0.0, 0.0)
        value = low * (high / low) ** share if self.log else low + (high - low) * share
        return value if self.step is None else int(low) + round((value - low) / self.step) * self.step

    def _distribution(self, low: float, high: float) -> BaseDistribution:
        if self.step is None:
            return FloatDistribution(low, high, log=self.log)
        return IntDistribution(int(low), int(high), log=self.log, step=self.step)

    @property
    def _switch(self) -> str:
        """What Optuna calls the choice between the words and the range."""
        return f"{self.name} is"

    @property
    def _choices(self) -> list[str]:
        """The words, and the range as the last one."""
        if self.span is None:
            return [*map(shown, self.words)]
        how = ":log" if self.log else f":{self.step}" if self.step not in (None, 1) else ""
        return [*map(shown, self.words), f"{shown(self.span[0])}..{shown(self.span[1])}{how}"]


@dataclass(frozen=True, slots=True)
class Space:
    """The settings that are searched, and how a run is made of them."""

    dimensions: Sequence[Dimension]
    make: Make
    matters: Matters | None = None
    """None: all matter."""

    def suggest(self, trial: Asked) -> dict[str, Scalar]:
        """The values that Optuna chooses for a trial, those that decide whether others matter before these.

        Raises:
            ValueError: the task cannot do them.
        """
        chosen: dict[str, Scalar] = {}
        while following := next((d for d in self._mattering(chosen) if d.name not in chosen), None):
            chosen[following.name] = following.suggest(trial)
        return self.canonical(chosen)

    def canonical(self, values: Values) -> dict[str, Scalar]:
        """Without those that do not matter, in the order of the dimensions.

        Raises:
            ValueError: the task cannot do them.
        """
        kept = dict(values)
        while True:
            mattering = {d.name: kept[d.name] for d in self._mattering(kept) if d.name in kept}
            if len(mattering) == len(kept):
                return mattering
            kept = mattering

    def _mattering(self, values: Values) -> list[Dimension]:
        if self.matters is None:
            return list(self.dimensions)
        names = self.matters(values)
        return [dimension for dimension in self.dimensions if dimension.name in names]

    def params(self, values: Values) -> dict[str, Any]:
        """As Optuna has them."""
        return {name: value for d in self._of(values) for name, value in d.params(values[d.name]).items()}

    def distributions(self, values: Values) -> dict[str, BaseDistribution]:
        return {name: value for d in self._of(values) for name, value in d.distributions(values[d.name]).items()}

    def _of(self, values: Values) -> Iterator[Dimension]:
        return (dimension for dimension in self.dimensions if dimension.name in values)

    def values(self, spec: RunSpec) -> dict[str, Scalar] | None:
        """The values that a run has; None if they do not lie in the space. Other fields of the run are not looked at."""
        if not all(has_value(spec, d.name) for d in self.dimensions):
            return None
        found: dict[str, Scalar] = {d.name: value_of(spec, d.name) for d in self.dimensions}
        try:
            found = self.canonical(found)
        except ValueError:
            return None
        return found if all(d.holds(found[d.name]) for d in self._of(found)) else None

    def grid(self, most: int) -> list[dict[str, Scalar]]:
        """The largest full grid of at most `most` points: all words, and equally many values of every range, from end to end,
        two at least. There are more points only where the least of such grids has more.

        Where settings do not always matter, points that are one training count once, and some ranges may have a value more
        than others.

        Raises:
            ValueError: the least grid has more than MOST_OF_GRID points.
        """
        if (least := self._count(self._even(LEAST_SIDE))) > MOST_OF_GRID:
            raise ValueError(f"the least grid of this space has {least} points, of which at most {MOST_OF_GRID} are made")
        return [one for values in self._grid(self._sides(most)) for one in self._possible(values)]

    def _possible(self, values: Values) -> list[dict[str, Scalar]]:
        """A point of a grid, if the task can do it: as it was computed, or exactly at the end of its range."""
        at_end = {d.name: d.within(values[d.name]) for d in self._of(values)}
        return next(([one] for one in (dict(values), at_end) if self._can_make(one)), [])

    def all(self) -> list[dict[str, Scalar]] | None:
        """Every point; None where there are more than MOST_POINTS."""
        size = math.prod(d.size for d in self.dimensions)
        return None if size > MOST_POINTS else [values for values in self._points(MOST_POINTS) if self._can_make(values)]

    def corners(self) -> list[dict[str, Scalar]]:
        """Points of every word and both ends of every range: all their combinations, or if these are too many, one changed at a
        time."""
        ends = [d.ends for d in self.dimensions]
        if math.prod(map(len, ends)) <= MOST_POINTS // 8:
            return self._products(ends)
        return self.edges()

    def edges(self) -> list[dict[str, Scalar]]:
        """Points from the first values on, and from the last ones, with one setting changed at a time."""
        ends = [d.ends for d in self.dimensions]
        found = []
        for at in (0, -1):
            base = [of_one[at] for of_one in ends]
            found += [[*base[:i], end, *base[i + 1 :]] for i, of_one in enumerate(ends) for end in of_one]
        return self._distinct(found)

    def _can_make(self, values: Values) -> bool:
        try:
            self.make(values, 0)
        except ValueError:
            return False
        return True

    def _even(self, side: int) -> list[int]:
        return [side] * len(self.dimensions)

    def _count(self, sides: Sequence[int]) -> int:
        """How many points a grid of so many values of each range has, if all settings matter."""
        return math.prod(int(min(side + len(d.words), d.size)) for side, d in zip(sides, self.dimensions, strict=True))

    def _sides(self, most: int) -> list[int]:
        """The number of values of each range, in the largest grid of at most `most` points."""
        side = LEAST_SIDE
        while self._count(self._even(side)) < self._count(self._even(side + 1)) <= most:
            side += 1
        if self.matters is None or all(len(values) == len(self.dimensions) for values in self._points(side)):
            return self._even(side)

        def size(wished: Sequence[int]) -> float:
            product = self._count(wished)
            return len(self._grid(wished)) if product <= max(most, MOST_POINTS) else math.inf

        def fits(wished: Sequence[int]) -> bool:
            return size(wished) <= most

        step = 1
        while self._count(self._even(side)) < self._count(self._even(side + step)) and fits(self._even(side + step)):
            side, step = side + step, 2 * step
        while step > 1:
            step //= 2
            side += step * fits(self._even(side + step))
        sides = self._even(side)
        while True:
            larger = [[*sides[:i], side + 1, *sides[i + 1 :]] for i, own in enumerate(sides) if own == side]
            sizes = {tuple(more): size(more) for more in larger if self._count(more) > self._count(sides)}
            fitting = {more: number for more, number in sizes.items() if number <= most}
            if not fitting:
                return sides
            sides = [*max(fitting, key=fitting.__getitem__)]

    def _points(self, side: int) -> list[dict[str, Scalar]]:
        return self._grid(self._even(side))

    def _grid(self, sides: Sequence[int]) -> list[dict[str, Scalar]]:
        return self._products([d.points(side) for side, d in zip(sides, self.dimensions, strict=True)])

    def _products(self, axes: Sequence[Sequence[Scalar]]) -> list[dict[str, Scalar]]:
        return self._distinct(itertools.product(*axes))

    def _distinct(self, points: Iterable[Sequence[Scalar]]) -> list[dict[str, Scalar]]:
        """Each point once, without the settings that do not matter."""
        names = [d.name for d in self.dimensions]
        found: dict[tuple[Any, ...], dict[str, Scalar]] = {}
        for point in points:
            values = dict(zip(names, point, strict=True))
            with contextlib.suppress(ValueError):  # what the task cannot do is found when a run is made of it
                values = self.canonical(values)
            found.setdefault(tuple((name, type(value), value) for name, value in values.items()), values)
        return list(found.values())


def has_value(spec: RunSpec, name: str) -> bool:
    """Whether a run has this setting."""
    try:
        value_of(spec, name)
    except KeyError:
        return False
    return True


def log_range(name: str, low: float, high: float) -> Dimension:
    """
    Raises:
        ValueError: the range is empty, or does not begin above 0.
    """
    if not 0 < low <= high < math.inf:
        raise ValueError(f"the range of {name} must be 0 < low <= high, not {low:g}..{high:g}")
    return Dimension(name, (), (float(low), float(high)), log=True)


def known_points(template: RunSpec, dimensions: Sequence[Dimension], settings: Iterable[Mapping[str, Scalar]]) -> list[Values]:
    """The points of a space that are the template with one of these settings, as far as they lie in it."""
    points = [{one.name: value_of(with_values(template, values), one.name) for one in dimensions} for values in settings]
    return [values for values in points if all(one.holds(values[one.name]) for one in dimensions)] if dimensions else []


def in_turn(templates: Sequence[RunSpec]) -> Make:
    """Makes a run from the template whose turn it is: the seed of the first one takes the first, the next seed the next one."""

    def make(values: Values, seed: int) -> RunSpec:
        return replace(with_values(templates[(seed - templates[0].seed) % len(templates)], values), seed=seed)

    return make


def shown(value: Scalar) -> str:
    """A value as a user writes it."""
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return str(value)
