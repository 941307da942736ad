"""The searches that launches made, made again from the questions that a store keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from analysis.scaling import widths
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.searched import read_search
from orchestrator.errors import UserError
from orchestrator.searches.axes import Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.confirm import TUNED, ConfirmAndJudge, ConfirmBest
from orchestrator.searches.narrowing import threshold_search
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension, in_turn, log_range
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS, TRIALS
from orchestrator.study import bracket_of
from trainables.regularization import COMPARED, WEIGHTS, RegularizationSettings
from trainables.regularization import TASK as PENALTY_TASK
from trainables.settings import settings_of, value_of
from trainables.spec import RunSpec, family_key
from trainables.task import Task


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its search made again. `specs` are those that tell which runs it is about, and `families` those of these
    runs: of the scaling study all, of the regularization study those of COMPARED."""

    question: Question
    search: ThresholdSearch | ConfirmAndJudge
    specs: Sequence[RunSpec]
    families: frozenset[str]


def asked_again(
    questions: Iterable[Question], tasks: Mapping[str, Task], families: set[str], tell: Callable[[Question, str], None]
) -> list[Asked]:
    """The questions of the scaling and the regularization study, in today's version of a loaded task, that some runs are about.

    Args:
        families: those of the runs.
        tell: is given a question that cannot be asked again, and why.
    """
    found = []
    for question in questions:
        task = tasks.get(question.task)
        if task is None or task.version != question.task_version or question.study not in ("scaling", "regularization"):
            continue
        is_scaling = question.study == "scaling"
        parts = (THRESHOLDS,) if is_scaling else COMPARED
        specs = [spec for part in parts for spec in question.specs.get(part, ())]
        ways = [spec for one in specs for spec in ((one, one.to_the_end()) if is_scaling else (one,))]
        own = frozenset(family_key(spec, task.version) for spec in ways)
        if own.isdisjoint(families) and is_usual(question):
            continue
        try:
            search = _threshold_search(question, specs, task) if is_scaling else _penalty_search(question)
        except ValueError as error:
            tell(question, str(error))
        else:
            if isinstance(search, ThresholdSearch):
                own = frozenset(search.families)
            if not own.isdisjoint(families):
                found.append(Asked(question, search, specs, own))
    return found


def is_usual(question: Question) -> bool:
    """Whether it is not about the least of another setting, or along another one than N."""
    return not {"least", "along"} & question.search.keys()


def _threshold_search(question: Question, specs: Sequence[RunSpec], task: Task) -> ThresholdSearch:
    """
    Raises:
        ValueError: there is no such search.
    """
    brackets = _brackets(question, specs, task)
    resolution, stop = (question.search.get(name) for name in ("resolution", "stop"))
    if not isinstance(resolution, float):
        raise ValueError(f"resolution must be a number in (0, 1), not {resolution!r:.100}")
    width = question.search.get("until_width")
    if not (width is None or isinstance(width, float)):
        raise ValueError(f"until_width must be a number, not {width!r:.100}")
    return threshold_search(brackets, resolution, True, str(stop), width, widths)


def _brackets(question: Question, specs: Sequence[RunSpec], task: Task) -> list[Bracket]:
    """
    Raises:
        ValueError: the axes of the question are none.
    """
    least, along = (question.search.get(name, usual) for name, usual in (("least", "data_count"), ("along", "N")))
    ends = question.search.get("between")
    if ends is not None and not (isinstance(ends, list) and len(ends) == 2):
        raise ValueError(f"between must be two numbers, not {ends!r:.100}")
    between = None if ends is None else Between(*ends)
    kinds = set() if ends is None else set(map(type, ends))
    try:
        axes = Axes.of(str(least), str(along), [value_of(spec, str(along)) for spec in specs])
        kinds |= {type(value_of(spec, axes.least)) for spec in specs}
    except KeyError as error:
        raise ValueError(f"its runs have no setting {error}") from None
    if len(kinds) > 1:
        raise ValueError(f"between must be two values of {axes.least}, not {ends!r:.100}")
    return [bracket_of(task, spec, axes, between) for spec in specs]


def _penalty_search(question: Question) -> ConfirmAndJudge:
    """
    Raises:
        ValueError: there is no such search.
    """
    templates, search = question.specs.get(TRIALS, ()), question.search
    if question.task != PENALTY_TASK or not templates:
        raise ValueError(f"it must have templates of trials, of {PENALTY_TASK}")
    space, trials, seed, confirm = (search.get(name) for name in ("space", "trials", "seed", "confirm"))
    if not isinstance(space, dict) or not set(space) <= set(WEIGHTS):
        raise ValueError(f"space must name what is searched of {', '.join(WEIGHTS)}")
    if type(trials) is not int or not 1 <= trials <= MOST_PLANNED or type(seed) is not int:
        raise ValueError(f"trials must be a whole number from 1 to {MOST_PLANNED}, and seed a whole number")
    of_trial, fresh = (_seeds(search.get(name, [])) for name in ("trial_seeds", "fresh_seeds"))
    most = 1 if confirm is None else confirm
    if type(most) is not int or not 1 <= most <= MOST_PLANNED:
        raise ValueError(f"confirm must be a whole number from 1 to {MOST_PLANNED}, not {confirm!r:.100}")
    sampler, pruner, objectives = (str(search.get(name)) for name in ("sampler", "pruner", "objectives"))
    dimensions = [_dimension(name, value) for name, value in space.items()]
    made = partial(OptunaSearch, make=in_turn(templates), seeds=max(1, len(of_trial)), level=len(templates) > 1)
    tuning = made(templates[0], question.task_version, dimensions, trials, sampler, pruner, objectives, seed)
    known = {setting: question.specs[setting] for setting in COMPARED if setting in question.specs}
    return ConfirmAndJudge(ConfirmBest(tuning, most, fresh), known, question.specs.get(TUNED, ()))


def _dimension(name: str, value: Any) -> Dimension:
    """What was searched of a weight: in words, or, in older questions, the two ends of a range.

    Raises:
        ValueError: neither.
    """
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return log_range(name, *value)
    try:
        [found] = read_search([f"{name}={value}"], settings_of(RegularizationSettings))
    except (UserError, ValueError) as error:
        raise ValueError(f"the space of {name} is {value!r:.100}, which is none: {error}") from None
    return found


def _seeds(value: Any) -> list[int]:
    """
    Raises:
        ValueError: they are no list of whole numbers, or too many.
    """
    if not isinstance(value, list) or len(value) > MOST_PLANNED or not all(type(seed) is int for seed in value):
        raise ValueError(f"seeds must be a list of whole numbers, not {value!r:.100}")
    return value


def tuned(questions: Iterable[Question], runs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The keys of runs that a search of the tune study asked for: they say nothing of another study unless it asked for them,
    too. A question that is damaged names none."""
    searches = [found for question in questions if question.study == "tune" and (found := _Tuned.of(question)) is not None]
    return frozenset(run["key"] for run in runs if any(search.asks(run) for search in searches))


@dataclass(frozen=True, slots=True)
class _Tuned:
    """What tells the runs of a search with any settings: the seeds, and all that was not varied."""

    fields: Mapping[str, Any]
    options: Mapping[str, Any]
    seeds: frozenset[Any]
    version: str

    @classmethod
    def of(cls, question: Question) -> _Tuned | None:
        templates, search = question.specs.get(TRIALS, ()), question.search
        varied, trials, fresh = (search.get(name) for name in ("varied", "trial_seeds", "fresh_seeds"))
        if len(templates) != 1 or not isinstance(varied, list) or not isinstance(trials, list) or not isinstance(fresh, list):
            return None
        fields = {name: value for name, value in templates[0].to_dict().items() if name not in (*varied, "seed", "options")}
        options = {name: value for name, value in templates[0].options if name not in varied}
        known = frozenset(seed for seed in (*trials, *fresh) if isinstance(seed, int))
        return cls(fields, options, known, question.task_version)

    def asks(self, run: Mapping[str, Any]) -> bool:
        if run["seed"] not in self.seeds or run["task_version"] != self.version:
            return False
        return all(run[name] == value for name, value in self.fields.items()) and all(
            run["options"].get(name) == value for name, value in self.options.items()
        )
