"""How the tune study makes a run of settings, and whether the task can do all that its search may ask for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from orchestrator.command.cli import by_options, checked
from orchestrator.command.programs import Described
from orchestrator.command.searched import OF_RUN
from orchestrator.errors import UserError
from orchestrator.searches.objective import COLUMNS, DOWN, UP, Objective, direction_of
from orchestrator.searches.space import FIELDS, Dimension, Space, Values
from trainables.check import check_task, counts_of
from trainables.check_words import blamed
from trainables.program import VALUES, ProgramTask, names_in
from trainables.settings import (
    ChangedError,
    alternatives,
    check_asked,
    complete,
    settings_class,
    settings_of,
    spec_fields,
    value_of,
)
from trainables.spec import SPEC_FIELDS, RunSpec, Scalar
from trainables.task import Task

MOST_CHECKED = 24
"""Points of the space that are made and measured once before anything is trained, and values of a range that are made."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a run is made of the searched settings: all else is as the user gave it, or as the task chooses it.

    Args:
        settings: what the user gave of the settings of the task.
        fields: of a `RunSpec`, those of the training; a `data_count` of None is the largest that the task allows.
        precision: that of a decoder.
        dimensions: those of the search. Of a value of a range the task may make another one of the range, as a width that is a
            multiple of something. A run with any other value counts for nothing.
    """

    task: Task
    path: str
    settings: Mapping[str, Scalar]
    fields: Mapping[str, Any]
    precision: Callable[[str], str]
    dimensions: Sequence[Dimension]

    def make(self, values: Values, seed: int) -> RunSpec:
        """
        Raises:
            ValueError: the task cannot do it, or makes values of these that the search does not have.
        """
        of_task = spec_fields(self.task, self._of_task(values))
        of_run: dict[str, Any] = {**self.fields, **{name: value for name, value in values.items() if name in OF_RUN}}
        count = of_run.pop("data_count")
        precision = self.precision(of_task["decoder"])
        spec = RunSpec(task=self.path, seed=seed, data_count=0, precision=precision, **of_task, **of_run)
        asked = [d for d in self.dimensions if d.name in values and d.name not in OF_RUN]
        lost = [d.name for d in asked if values[d.name] in d.words or not d.holds(value_of(spec, d.name))]
        check_asked(self.task, spec, {name: values[name] for name in lost})
        if isinstance(self.task, ProgramTask):
            spec = self.task.describe(spec)
        counts = counts_of(self.task, spec)
        if count is not None and not counts.low <= count <= counts.high:
            raise ValueError(f"data_count must lie in {counts.low}..{counts.high} at N = {spec.N}, not {count}")
        return spec.with_count(counts.high if count is None else count)

    def matters(self, values: Values) -> Collection[str]:
        """The settings that matter, given some of those that are searched.

        Raises:
            ValueError: the task cannot do them, or its `matters` fails or gives no names.
        """
        settings = complete(self.task, self._of_task(values))
        with blamed("matters()", ValueError):
            names = self.task.matters(settings)  # type: ignore[attr-defined]
            if isinstance(names, str) or not isinstance(names, Collection):
                raise ValueError(f"the task's matters() must give the names of settings, not {names!r:.60}")
            return {*names, *OF_RUN}

    def _of_task(self, values: Values) -> dict[str, Scalar]:
        return {**self.settings, **{name: value for name, value in values.items() if name not in OF_RUN}}


def read_objectives(text: str) -> tuple[Objective, ...]:
    """What `--objective` names: `mse`, `max:agreement`, or several, separated by commas.

    Raises:
        UserError: a name that does not tell its direction, or one given twice.
    """
    found = []
    for word in (word.strip() for word in text.split(",")):
        direction, colon, name = word.rpartition(":")
        if not name or (colon and direction not in ("min", "max")):
            raise UserError(f"--objective {word!r} names no number of a run: write its name, min:NAME or max:NAME")
        if name == "seconds":
            raise UserError("--objective seconds depends on the machine and on what else runs there: choose steps")
        up = direction == "max" if colon else direction_of(name)
        if up is None and (near := get_close_matches(name, (*COLUMNS, *UP, *DOWN), n=1, cutoff=0.8)):
            told = f"--objective {name!r} is unknown: perhaps {near[0]} is meant"
            raise UserError(f"{told}; of a measure of the task, write min:{name} or max:{name}")
        if up is None:
            told = f"--objective {name!r} does not tell which way is better: write min:{name} or max:{name}"
            raise UserError(told + (f" (commas separate objectives, as in {text!r})" if "," in text else ""))
        found.append(Objective(name, up))
    if len({aim.name for aim in found}) < len(found):
        raise UserError(f"--objective {text!r} names a number twice: keep one of the two")
    return tuple(found)


def with_curves(aims: Sequence[Objective], error_is_mse: bool) -> tuple[Objective, ...]:
    """Objectives with the curves that rows of a task have of them."""
    of_error = "mse" if error_is_mse else "loss"
    curves = {"accuracy": "curve_accuracy", of_error: "curve_error"}
    return tuple(dataclasses.replace(aim, curve=curves.get(aim.name, "")) for aim in aims)


@dataclass(frozen=True, slots=True)
class Tried:
    """Points of a space at which the task was asked for a run."""

    possible: Sequence[tuple[Values, RunSpec]]
    refused: Sequence[tuple[Values, str]]
    """What it cannot do, each with the reason."""

    @classmethod
    def of(cls, space: Space, points: Sequence[Values]) -> Tried:
        possible, refused = list[tuple[Values, RunSpec]](), list[tuple[Values, str]]()
        for values in points:
            try:
                space.canonical(values)
                possible.append((values, space.make(values, 0)))
            except ValueError as error:
                refused.append((values, str(error)))
        return cls(possible, refused)

    def passed_over(self) -> str | None:
        """What is to be said of those that the task cannot do, if there are any."""
        if not self.refused:
            return None
        (values, why), *others = self.refused
        count = f"{len(self.refused)} of {len(self.refused) + len(self.possible)} combinations of values that were tried"
        how = "are passed over, as the task cannot do them, such as" if others else "is passed over, as the task cannot do it:"
        return f"{count} {how} {_told(values)} ({why})"


def check_points(task: Task, space: Space, keeps_weights: bool) -> list[RunSpec]:
    """The runs at the corners of the space, as far as the task can do them. Some of them are made and measured.

    Raises:
        UserError: something else is given that it cannot do, there is a value that it can do in none of them, a run that cannot
            be measured, or a range with values of which it makes others than the search has; the message names it.
    """
    tried = Tried.of(space, space.corners())
    _check_others(task, space, tried)
    for values, why in tried.refused:
        lost = [name for name, value in values.items() if not any(of.get(name) == value for of, _ in tried.possible)]
        if lost and tried.possible and len(values) > 1:
            told = "which can be trained with none of the other values that were tried, so search other values"
            raise UserError(f"--search allows {_told({lost[0]: values[lost[0]]})}, {told}: {why}")
        if lost:
            raise UserError(f"--search allows {_told(values)}, which cannot be trained: {why}")
    for dimension in space.dimensions:
        if not any(dimension.name in values for values, _ in tried.possible):
            why = "of the settings that are searched, none makes it matter"
            raise UserError(f"--search {dimension.name} would change nothing: {why}")
        if dimension.span is not None and dimension.name not in OF_RUN:
            _check_range(space, dimension)
    if not isinstance(task, ProgramTask):
        made = Tried.of(space, space.edges()).possible or tried.possible
        alike: dict[str, Any] = {"lr": 1.0, "weight_decay": 0.0, "batch_size": 1, "max_steps": 1, "depth": 0, "width": 1}
        # the last of each, which is the largest
        different = {dataclasses.replace(spec, **alike): (values, spec) for values, spec in made}
        for values, spec in list(different.values())[:MOST_CHECKED]:
            try:
                checked(check_task, task, spec, keeps_weights)
            except UserError as error:
                hint = ": if the settings or counts() of the task raise a ValueError for them, the search passes over them"
                raise UserError(f"{error} (with {_told(values)}, which --search allows{hint * (len(values) > 1)})") from None
    return [spec for _, spec in tried.possible]


def _check_others(task: Task, space: Space, tried: Tried) -> None:
    """
    Raises:
        UserError: no point can be trained, all for one reason, which names settings that are not searched, and none that is.
    """
    reasons = {why for _, why in tried.refused}
    if tried.possible or len(reasons) != 1:
        return
    (why,) = reasons
    searched, named = {dimension.name for dimension in space.dimensions}, {*re.findall(r"\w+", why)}
    if not named & searched and named & {*OF_RUN, "target", *settings_of(settings_class(task))}:
        raise UserError(by_options(why))


def _check_range(space: Space, dimension: Dimension) -> None:
    """
    Raises:
        UserError: of a value of the range the task makes one that the search does not have, and can do it neither with the
            first values of all others nor with the last ones.
    """
    for value in map(dimension.within, dimension.points(MOST_CHECKED)):
        points = [{each.name: each.ends[at] for each in space.dimensions} | {dimension.name: value} for at in (0, -1)]
        refusals = [_refusal(space, values) for values in points]
        changed = [error for error in refusals if isinstance(error, ChangedError)]
        if changed and None not in refusals:
            name = dimension.name
            told = f"--search {name}={dimension.text} has values that no run can have: {changed[0]}"
            raise UserError(f"{told}; search values that it keeps, as {name}=LOW..HIGH:STEP or {name}=A|B|C")


def _refusal(space: Space, values: Values) -> ValueError | None:
    """Why the task cannot do a point; None if it can."""
    try:
        space.make(space.canonical(values), 0)
    except ValueError as error:
        return error
    return None


def _told(values: Values) -> str:
    return ", ".join(f"{name}={short(value)}" for name, value in values.items())


def varied_in(specs: Sequence[RunSpec]) -> list[str]:
    """The settings in which runs differ, besides the seed."""
    fields = [name for name in SPEC_FIELDS if name not in ("seed", "options")]
    names = dict.fromkeys(name for spec in specs for name, _ in spec.options)
    options = [name for name in names if len({value_of(spec, name) for spec in specs}) > 1]
    return [name for name in fields if len({getattr(spec, name) for spec in specs}) > 1] + options


def check_named(described: Described, task: Task, searched: Sequence[str], changed: Sequence[str]) -> None:
    """
    Raises:
        UserError: the program is not told something that is searched or was given, or its seed, or cannot be told it.
    """
    assert isinstance(task, ProgramTask)
    assert task.program is not None
    tellable = [name for name in (*OF_RUN, *settings_of(task.settings)) if name in (*VALUES, *settings_of(task.settings))]
    if untold := [name for name in searched if name not in tellable]:
        raise UserError(f"--search {untold[0]} is nothing that a program can be told: search {alternatives(tellable)}")
    described.check_named(task, 1, 2, changed)
    in_command = names_in(task.program.words, (*FIELDS, "seed", "target", *settings_of(task.settings)))
    for name in searched:
        if name not in in_command:
            raise UserError(f"--search {name} would change nothing: write {{{name}}} in --program, or search other settings")


def short(value: Scalar) -> str:
    """A setting in a table cell."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
