"""The search of the tune study, made again from its stored question. Its runs are found among the rows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from analysis.question_fields import TaskNeededError, confirmed_of, dimension_of, seeds_of
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.recipe import Recipe
from orchestrator.command.searched import OF_RUN, taken_names
from orchestrator.searches import Row, Rows
from orchestrator.searches.confirm import ConfirmBest
from orchestrator.searches.facts import FREE, Table, kept_as
from orchestrator.searches.objective import Objective
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension, Space, Values
from orchestrator.store import Question
from orchestrator.store.questions import TRIALS
from trainables.program import ProgramTask
from trainables.settings import Setting, settings_class, settings_of, value_of, with_values
from trainables.spec import RunSpec
from trainables.task import Task

MIXED = "its runs cannot be told from those of another study that searched the same; give each study a store of its own"


def tune_search(question: Question, task: Task | None, rows: Iterable[Row]) -> ConfirmBest:
    """The search of the tune study. Its runs are found among the rows by their values, so that the task need not make them.

    Raises:
        ValueError: there is no such search.
    """
    templates, search = question.specs.get(TRIALS, ()), question.search
    if len(templates) != 1:
        raise ValueError("it must have one template of its trials")
    [template] = templates
    space, trials, seed, aims = (search.get(name) for name in ("space", "trials", "seed", "objectives"))
    if not isinstance(space, dict) or not space or type(trials) is not int or type(seed) is not int:
        raise ValueError("space must name what is searched, and trials and seed must be whole numbers")
    if type(asked := question.settings.get("trials")) is int:
        trials = max(trials, asked)  # a grid of so many points has fewer trials, where some settings do not matter
    if not 1 <= trials <= MOST_PLANNED:
        raise ValueError(f"trials must lie between 1 and {MOST_PLANNED}, not {trials}")
    of_trial, fresh = (seeds_of(search.get(name, [])) for name in ("trial_seeds", "fresh_seeds"))
    # the settings of a program are known to its launch alone: their types are those of the template's values
    known = None if task is None or isinstance(task, ProgramTask) else {**OF_RUN, **settings_of(settings_class(task))}
    dimensions = [dimension_of(name, value, _setting(name, template, known)) for name, value in space.items()]
    objectives = _objectives(aims)
    if taken := taken_names(list(space), [aim.name for aim in objectives]):
        raise ValueError(f"its tables would have two columns of the name {next(iter(taken))}")
    alike = Alike.of(question)
    if alike is None:
        raise ValueError("it must tell its seeds and what was varied")
    recipe = None if task is None or isinstance(task, ProgramTask) else _recipe(task, template, search["varied"], dimensions)
    candidates = [row for row in rows if alike.holds(row)]
    kept = None if recipe is not None or "follows" not in question.facts else Kept.of(question, dimensions)
    if kept is not None and any(map(kept.is_denied_by, candidates)):
        kept = None
    ran: dict[tuple[Any, ...], RunSpec] = {}

    ends = {} if recipe is not None else _exact_ends(dimensions, candidates)

    def make(values: Values, seed: int) -> RunSpec:
        """The run with these values as the launch made it; where that is not known, the one that ran, or else the template."""
        if any(values[name] > end for name, end in ends.items() if isinstance(values.get(name), int | float)):
            raise ValueError("the task did not do it beyond the range")
        if (way := recipe or kept) is not None:
            try:
                return way.make(values, seed)
            except ValueError:  # the task cannot do it any more
                if (spec := ran.get(_place(values, seed))) is None:
                    raise
                return spec
        spec = ran.get(_place(values, seed))
        return dataclasses.replace(with_values(template, values), seed=seed) if spec is None else spec

    if recipe is not None:
        matters = recipe.matters if hasattr(task, "matters") else None
    else:
        matters = None if kept is None or kept.mattering is None else kept.matters
    within = Space(dimensions, make, matters)
    is_mixed = False
    if kept is None:
        own, is_mixed = _own(candidates, question, within, strict=recipe is None)
        ran |= {_place(values, row["seed"]): RunSpec.from_dict(row) for values, row in own}
    sampler, made = str(search.get("sampler")), partial(OptunaSearch, make=make, matters=matters, seeds=max(1, len(of_trial)))
    tuning = made(template, question.task_version, dimensions, trials, sampler, "none", objectives, seed)
    found = ConfirmBest(tuning, min(confirmed_of(search), tuning.trials), fresh)
    if recipe is None:
        _check_told(question, found, candidates, kept, is_mixed)
    return found


def _own(candidates: Sequence[Row], question: Question, space: Space, strict: bool) -> tuple[list[tuple[Values, Row]], bool]:
    """The rows of a search, with their searched values, where it is not known how the launch made its runs; and whether there
    are others, of another search. What followed from the searched settings is the same wherever these are, and as the template
    has it where they are those of the template.

    Args:
        strict: whether it has to be known of every row; otherwise those that may be of either are left out.

    Raises:
        TaskNeededError: one is not.
    """
    [template] = question.specs[TRIALS]
    names = [dimension.name for dimension in space.dimensions]
    deciding = [name for name in names if name not in FREE]
    following = [name for name in question.search["varied"] if name not in names]
    groups: dict[str, dict[str, list[tuple[Values, Row]]]] = {}
    for row in candidates:
        with contextlib.suppress(ValueError):  # the task cannot do it any more
            values = space.canonical(_settings(row, names))
            if all(dimension.holds(values[dimension.name]) for dimension in space.dimensions if dimension.name in values):
                of_group = groups.setdefault(repr(_settings(row, deciding)), {})
                of_group.setdefault(repr(_settings(row, following)), []).append((values, row))
    of_template, others, own = template.to_dict(), set[str](), []
    if (by_consequence := groups.pop(repr(_settings(of_template, deciding)), None)) is not None:
        own += by_consequence.pop(repr(_settings(of_template, following)), [])
        others |= by_consequence.keys()
    for by_consequence in groups.values():
        if len(by_consequence) == 1 and others.isdisjoint(by_consequence):
            own += next(iter(by_consequence.values()))
        elif strict:
            raise TaskNeededError(MIXED)
    return own, bool(others)


def _exact_ends(dimensions: Sequence[Dimension], rows: Sequence[Row]) -> dict[str, Any]:
    """The upper ends of ranges that runs have just so. The last point of a grid may be computed a rounding above its range: if
    the task refused that, its runs have the end itself."""
    ends = {one.name: one.span[1] for one in dimensions if one.span is not None}
    found = {name: [v for row in rows if isinstance(v := _settings(row, [name])[name], int | float)] for name in ends}
    return {name: end for name, end in ends.items() if end in found[name] and max(found[name]) == end}


def _settings(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """Settings of a run; None for one that it does not carry."""
    return {name: row["options"].get(name, row.get(name)) for name in names}


def _check_told(question: Question, search: ConfirmBest, candidates: Sequence[Row], kept: Kept | None, is_mixed: bool) -> None:
    """
    Args:
        is_mixed: whether some rows are of another search.

    Raises:
        TaskNeededError: runs of the search cannot be read without its task.
    """
    found = {d: [_settings(row, [d.name])[d.name] for row in candidates] for d in search.tuning.dimensions}
    without = [d.name for d, values in found.items() if None in values]
    if lacking := without if kept is None else kept.lacking:
        raise TaskNeededError(f"some of its runs have no setting {lacking[0]!r:.100}")
    why = MIXED if is_mixed else ""
    if candidates and not why:
        odd = [d.name for d, values in found.items() if not all(map(d.holds, values))] if kept is None else []
        if odd or search.tuning.trials != question.search["trials"]:
            of_which = f": some runs have a {odd[0]} that was not searched" if odd else ""
            told = "which of the searched settings matter beside others" if kept is None else "all that the task cannot combine"
            why = f"it does not tell {told}{of_which}"
    if why and not search.finished(Rows(candidates)):
        raise TaskNeededError(why)


def _recipe(task: Task, template: RunSpec, varied: Sequence[str], dimensions: Sequence[Dimension]) -> Recipe:
    """How the launch made its runs. A data count that varied, or a precision, went with other settings."""

    def precision_of(decoder: str) -> str:
        """If it varied, it was the fastest of each decoder, where bfloat16 is."""
        from trainables.training.precision import LARGE_PRODUCTS

        if "precision" not in varied:
            return template.precision
        return "bfloat16" if decoder in LARGE_PRODUCTS else "float32"

    settings = {name: value_of(template, name) for name in settings_of(settings_class(task)) if name not in varied}
    fields = {name: getattr(template, name) for name in (*OF_RUN, "target", "stop")}
    if "data_count" in varied:
        fields["data_count"] = None
    return Recipe(task, template.task, settings, fields, precision_of, dimensions)


@dataclass(frozen=True, slots=True)
class Kept:
    """How the launch made its runs, from what the question keeps of that."""

    template: RunSpec
    varied: Sequence[str]
    dimensions: Sequence[Dimension]
    follows: Table
    mattering: Table | None

    @classmethod
    def of(cls, question: Question, dimensions: Sequence[Dimension]) -> Kept:
        """
        Raises:
            ValueError: it is damaged.
        """
        follows, mattering = (question.facts.get(name) for name in ("follows", "matters"))
        tables = Table.read(follows), None if mattering is None else Table.read(mattering)
        return cls(question.specs[TRIALS][0], question.search["varied"], dimensions, *tables)

    def make(self, values: Values, seed: int) -> RunSpec:
        """
        Raises:
            ValueError: the task could not do it.
        """
        told = self.follows.at(kept_as(self.dimensions, values))
        if not isinstance(told, dict):
            raise ValueError(f"what follows from settings must be settings, not {told!r:.100}")
        spec = self.template.to_dict()
        options = {name: value for name, value in spec.pop("options").items() if name not in self.varied}
        for name, value in {**values, **told, "seed": seed}.items():
            (spec if name in spec else options)[name] = value
        carried = {name: value for name, value in options.items() if value is not None}
        return RunSpec.from_dict({**spec, "options": carried})

    def is_denied_by(self, row: Row) -> bool:
        """Whether this is a run that the task could not do by this: the launch asked it at some values of a long range only."""
        values = _settings(row, [one.name for one in self.dimensions])
        if None in values.values() or not all(one.holds(values[one.name]) for one in self.dimensions):
            return False
        matters = None if self.mattering is None else self.matters
        try:
            self.make(Space(self.dimensions, self.make, matters).canonical(values), row["seed"])
        except ValueError:
            return True
        return False

    @property
    def lacking(self) -> list[str]:
        """The searched settings that some runs do not carry: later ones, whose default only the task tells."""
        told = [line for line in self.follows.lines.values() if isinstance(line, dict)]
        return [one.name for one in self.dimensions if any(line.get(one.name, "") is None for line in told)]

    def matters(self, values: Values) -> Sequence[str]:
        """
        Raises:
            ValueError: the task could not do these.
        """
        assert self.mattering is not None
        names = self.mattering.at(kept_as(self.dimensions, values))
        if not isinstance(names, list):
            raise ValueError(f"what matters must be names, not {names!r:.100}")
        return [*names, *OF_RUN]


@dataclass(frozen=True, slots=True)
class Alike:
    """What tells the runs of a search of the tune study: their seeds, and all that was not varied."""

    fields: Mapping[str, Any]
    options: Mapping[str, Any]
    varied: Sequence[str]
    seeds: frozenset[Any]
    version: str

    @classmethod
    def of(cls, question: Question) -> Alike | None:
        """None for a question that is damaged."""
        templates, search = question.specs.get(TRIALS, ()), question.search
        varied, trials, fresh = (search.get(name) for name in ("varied", "trial_seeds", "fresh_seeds"))
        if len(templates) != 1 or not isinstance(varied, list) or not isinstance(trials, list) or not isinstance(fresh, list):
            return None
        fields = {name: value for name, value in templates[0].to_dict().items() if name not in (*varied, "seed", "options")}
        options = {name: value for name, value in templates[0].options if name not in varied}
        known = frozenset(seed for seed in (*trials, *fresh) if isinstance(seed, int))
        return cls(fields, options, varied, known, question.task_version)

    def holds(self, run: Row) -> bool:
        """Whether this may be a run of the search."""
        if run["seed"] not in self.seeds or run["task_version"] != self.version:
            return False
        options = {name: value for name, value in run["options"].items() if name not in self.varied}
        return options == self.options and all(run[name] == value for name, value in self.fields.items())


def _place(values: Mapping[str, Any], seed: int) -> tuple[Any, ...]:
    return (seed, *sorted((name, repr(value)) for name, value in values.items() if value is not None))


def _objectives(texts: Any) -> list[Objective]:
    """
    Raises:
        ValueError: it is no list of `min:NAME` and `max:NAME`.
    """
    if not isinstance(texts, list) or not texts or len(texts) != len(set(map(str, texts))):
        raise ValueError(f"objectives must be a list of names, not {texts!r:.100}")
    found = []
    for text in texts:
        direction, colon, name = str(text).partition(":")
        if direction not in ("min", "max") or not colon or not name:
            raise ValueError(f"an objective is written min:NAME or max:NAME, not {text!r:.100}")
        found.append(Objective(name, direction == "max"))
    return found


def _setting(name: str, template: RunSpec, known: Mapping[str, Setting] | None) -> Setting:
    """
    Raises:
        ValueError: there is no such setting.
    """
    try:
        return known[name] if known is not None else OF_RUN.get(name) or Setting(name, type(value_of(template, name)), None)
    except KeyError:
        raise TaskNeededError(f"its runs have no setting {name!r:.100}") from None
