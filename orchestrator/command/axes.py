"""`--least`, `--between` and `--along`: which setting's least value is searched, in which range, and along which other one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.command.cli import checked
from orchestrator.command.ranges import MOST_PLANNED, parse_grid, warn_of_short
from orchestrator.errors import UserError
from orchestrator.searches.axes import Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.threshold import rungs_of
from trainables.program import VALUES, ProgramTask, names_in
from trainables.settings import (
    RUN_SETTINGS,
    Setting,
    alternatives,
    check_kept,
    complete,
    listed,
    read_settings,
    settings_class,
    settings_of,
)
from trainables.spec import LARGEST, Counts, Scalar
from trainables.task import Task

OF_RUN = {name: RUN_SETTINGS[name] for name in ("data_count", "N", "max_steps", "batch_size", "lr", "weight_decay", "target")}
"""Settings of every run that may be on an axis, besides those of its task."""
LEAST_SEEDS, LEAST_PLACES = 3, 2
"""With fewer seeds an exponent has no interval, and with fewer values along there is none."""
NOT_SEARCHED = ("N", "target")
"""A larger one makes a run harder, not easier, to pass."""
COLUMNS = (
    "dataset", "seed", "images", "images_lower", "images_upper", "fixed_images", "threshold", "total_images", "lower", "upper",
    "verdict", "runs", "steps", "lower_ended", "contradicted_by", "tried", "seeds", "reached", "note", "passes", "misses",
)  # fmt: skip
"""Of the tables: no axis can have such a name."""
MOST_REFUSED = 5
"""Numbers that a setting may not have that a message names."""
HINT = "write LOW..HIGH, for example --between 4..512"


@dataclass(frozen=True, slots=True)
class Asked:
    """The axes of a study, the values along, and the range of the searched setting; None: the data counts of the task."""

    axes: Axes
    values: tuple[Scalar, ...]
    between: Between | None

    sizes: tuple[int, ...]
    """Grid sizes; one, if they are not what is along."""

    @property
    def taken(self) -> tuple[str, str]:
        """The settings that the axes vary, so that nothing else may say what they are."""
        return self.axes.least, self.axes.along

    @property
    def settings(self) -> dict[str, Any]:
        """What the answer says of them: nothing new where the least data count along N is asked."""
        told = {} if self.axes.is_usual else {"least": self.axes.least, "along": self.axes.along}
        between = {} if self.between is None else {"between": [self.between.low, self.between.high]}
        return {**told, **between, self.axes.along: list(self.values)}

    def first(self, value: Scalar) -> dict[str, Scalar]:
        """The lowest run at this place."""
        along = {self.axes.along: value}
        if self.between is None or self.axes.least == "data_count":
            return along
        return along | {self.axes.least: self.between.low}

    def check_runs(self, brackets: Sequence[Bracket], thresholds: int, resolution: float) -> None:
        """
        Raises:
            UserError: there are more different runs than can be planned.
        """
        if len(brackets) == 1 and self.axes.least != "data_count":
            values = len(rungs_of(brackets[0], resolution).counts)
            if thresholds * values > MOST_PLANNED:
                raise UserError(
                    f"{thresholds} thresholds of {values} possible values each are too many (at most {MOST_PLANNED} runs): "
                    "ask for fewer values along, a smaller --between or a larger --resolution"
                )

    def check_values(self, task: Task, bracket: Bracket, resolution: float, given: Mapping[str, Scalar]) -> None:
        """
        Args:
            given: what is given of the task's settings at the place of this bracket, its data set and value along included.

        Raises:
            UserError: the search of this bracket may ask for a value that the task refuses or changes, or with which it chooses
                others of its settings.
        """
        least, kind = self.axes.least, settings_class(task)
        if least not in (known := settings_of(kind)):
            return
        values = rungs_of(bracket, resolution).counts
        _check_allowed(known[least], values)
        for value in values:
            try:
                read_settings(kind, bracket.at(value))
                check_kept(kind, bracket.at(value))
                check_alone(task, self, given, value)
            except ValueError as error:
                told = f"--least {least} may ask for any value of --between, and the task refuses {value}: {error}"
                raise UserError(f"{told}; let its model take the nearest value that it can have") from None


def read_axes(task: Task, least: str, along: str, between: str | None, N: str, usual_N: str) -> Asked:
    """The axes that a user wrote.

    Args:
        N: of `--N`, which is the axis along where that is `N` without values; `usual_N` if the user says nothing.

    Raises:
        UserError: a setting that cannot be there, a value that it cannot have, or a range that is none.
    """
    known = OF_RUN | settings_of(settings_class(task))
    name, equals, text = along.partition("=")
    searched, axis = _searched(known, least), _setting(known, "--along", name)
    if name == least:
        raise UserError(f"--least and --along are both {least}: the least value of one setting is asked along another")
    if name == "N" and equals and usual_N != N:
        raise UserError("--N and --along N=... both give grid sizes: keep one")
    if name != "N" and not equals:
        raise UserError(f"--along {along} has no values: write them, for example --along {name}=32,64,128")
    values = _values(axis, text if equals else N)
    sizes = checked(parse_grid, text if name == "N" and equals else N, 1, LARGEST)
    if name != "N" and len(sizes) > 1:
        raise UserError(f"--along {name} keeps the grid size as it is: give one, for example --N 24")
    if name == "N":
        warn_of_short("--along N=" if equals else "--N ", text if equals else N)
    else:
        warn_of_short("--N ", N)
        if axis.kind is int and ".." in text:
            warn_of_short(f"--along {name}=", text, 1)
    return Asked(Axes.of(least, name, values), values, _between(searched, between), sizes)


def _setting(known: Mapping[str, Setting], option: str, name: str) -> Setting:
    if name == "dataset":
        raise UserError(f"{option} dataset is not needed: --datasets compares data sets in one study")
    if name in COLUMNS:
        raise UserError(f"{option} {name} is not possible, because the table has another column of that name")
    if name not in known:
        raise UserError(f"{option} {name!r} is no setting: choose {alternatives([n for n in known if n not in COLUMNS])}")
    return known[name]


def _searched(known: Mapping[str, Setting], least: str) -> Setting:
    ordered = {n: s for n, s in known.items() if s.kind in (int, float) and n not in NOT_SEARCHED}
    if least in known and least not in (*ordered, *COLUMNS):
        numbers = alternatives([n for n in ordered if n not in COLUMNS])
        why = "a larger value makes it harder for a run to pass" if least in NOT_SEARCHED else "a number is searched"
        raise UserError(f"--least {least} is not possible, because {why}: choose {numbers}")
    return _setting(ordered, "--least", least)


def _values(axis: Setting, text: str) -> tuple[Scalar, ...]:
    """The values along: numbers ascending, words in their order."""
    if axis.name == "N":
        return checked(parse_grid, text, 1, LARGEST)
    if axis.kind is int and ".." in text:
        low, high = int(axis.low or 0), int(LARGEST if axis.high is None else axis.high)
        examples = ("32..64", "32..128:32", "32,64,128")
        return checked(parse_grid, text, low, high, 1, f"values of {axis.name}", examples)
    words = [word.strip() for word in text.split(",")]
    if axis.kind is float and ".." in text:
        raise UserError(f"--along {axis.name}={text} is a range: write the values, for example --along {axis.name}=0.1,0.2,0.5")
    if not all(words):
        raise UserError(f"--along {axis.name}={text} lacks a value: write values with commas between them, as {axis.name}=1,2")
    try:
        values = dict.fromkeys(axis.check(axis.read(word)) for word in words)
    except ValueError as error:
        raise UserError(f"--along {axis.name}={text}: {error}") from None
    return tuple(values) if axis.kind in (str, bool) else tuple(sorted(values))


def _between(searched: Setting, text: str | None) -> Between | None:
    """The range of the searched setting: the one that is written, or the one that the setting declares."""
    name = searched.name
    if text is None:
        if name == "data_count":
            return None
        if name in OF_RUN or searched.low is None or searched.high is None:
            raise UserError(f"--least {name} needs the range in which to search: {HINT}")
        return checked(Between, searched.kind(searched.low), searched.kind(searched.high))
    return read_between(searched, text)


def read_between(searched: Setting, text: str, hint: str = HINT) -> Between:
    """What `--between` says of the searched setting.

    Raises:
        UserError: it is no range, or has a value that the setting may not have.
    """
    low, dots, high = text.partition("..")
    if not (low and dots and high):
        raise UserError(f"--between {text!r} is no range: {hint}")
    try:
        first, last = (cast(float, searched.check(searched.read(end))) for end in (low, high))
        if first > last:
            raise UserError(f"--between {text!r} is empty: write the smaller number first, --between {high}..{low}")
        return Between(first, last)
    except ValueError as error:
        raise UserError(f"--between {text}: {error}") from None


def fixed_count(asked: Asked, given: int | None, task: Task) -> int:
    """The data count of all runs; 0 where it is on an axis, and 1 of a program that is not told it.

    Raises:
        UserError: it is given though it is on an axis, or not given though it is not.
    """
    if "data_count" not in asked.taken:
        if given is None and isinstance(task, ProgramTask) and task.program is not None:
            counts, named = task.program.counts, names_in(task.program.words, (*VALUES, *settings_of(task.settings)))
            lows = [one.low for one in ([counts] if isinstance(counts, Counts) else counts.values())]
            if "data_count" not in named and max(lows) <= 1:
                return 1
        if given is None:
            raise UserError(f"--least {asked.axes.least} keeps the data count as it is: give it, for example --data-count 500")
        return given
    if given is not None:
        which = "searched" if asked.axes.least == "data_count" else "what --along varies"
        raise UserError(f"--data-count {given} is not possible, because the data count is {which}: omit the option")
    return 0


def check_resolution(resolution: float, usual: float = 0.05) -> None:
    """
    Raises:
        UserError: thresholds cannot be known as well as this.
    """
    if not 0 < resolution < 1:
        raise UserError(f"--resolution must lie between 0 and 1, not {resolution:g}: {usual:g} means {100 * usual:g} %")


def check_precision(asked: Asked, resolution: float, width: float | None, seeds: int) -> None:
    """
    Args:
        width: of `--until-width`.

    Raises:
        UserError: thresholds or exponents cannot be known as well as this, or there is no exponent.
    """
    check_resolution(resolution)
    if width is None:
        return
    if not 0 < width < math.inf:
        raise UserError(f"--until-width must be a finite number above 0, not {width:g}: 0.2 means as narrow as from 1.6 to 1.8")
    if seeds < LEAST_SEEDS:
        raise UserError(f"--until-width needs --seeds {LEAST_SEEDS} or more to begin with, not {seeds}: fewer give no interval")
    if not asked.axes.scaled or len(asked.values) < LEAST_PLACES:
        raise UserError(f"--until-width needs an exponent: ask for two or more values of {asked.axes.along}, numbers above 0")


def check_free(asked: Asked, given: Collection[str]) -> None:
    """
    Raises:
        UserError: something that an axis varies is given besides.
    """
    for name, option in zip(asked.taken, ("--least", "--along"), strict=True):
        if name in given:
            raise UserError(f"--{name.replace('_', '-')} and {option} {name} both say what {name} is: keep one")


def check_alone(task: Task, asked: Asked, given: Mapping[str, Scalar], value: float) -> None:
    """
    Args:
        given: what is given of the task's settings at one place, its data set, its value along and the lowest value of the
            searched one included. What the task chooses may depend on all of them.
        value: of the searched setting.

    Raises:
        UserError: some other setting of the task follows from the one that is searched, so that runs would differ in both.
        ValueError: the task refuses the value.
    """
    name, along = asked.axes.least, asked.axes.along
    low, here = complete(task, given), complete(task, {**given, name: value})
    others = [other for other in low if other != name and low[other] != here[other]]
    if others:
        place = f" at {along} = {given[along]}" if along in given else ""
        told = f"the task chooses {others[0]} by {name}{place}, so more than {name} would vary"
        changed = f"with {name} {value} it is {here[others[0]]}, whatever is given: ask for other values of {name}"
        raise UserError(f"{told}: {changed if others[0] in given else f'give {others[0]} a value'}")


def _check_allowed(searched: Setting, values: Sequence[float]) -> None:
    """
    Raises:
        UserError: the setting may have certain numbers only, and these are not all among them.
    """
    refused = [value for value in values if searched.words and value not in searched.words]
    if refused:
        more = len(refused) - MOST_REFUSED
        shown: list[Scalar] = [*refused[:MOST_REFUSED], *[f"{more} more"] * (more > 0)]
        name, allowed = searched.name, ",".join(map(str, searched.words))
        told = f"{name} {listed(shown)} {'is' if len(refused) == 1 else 'are'} unknown: choose {alternatives(searched.words)}"
        hint = f"give a range without others, or ask along them, --along {name}={allowed}, in place of --least {name}"
        raise UserError(f"--least {name} may ask for any value of --between, and {told}; {hint}")
