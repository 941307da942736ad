"""The search of a stored question, made again; where its task is not loaded, from what the question keeps of the task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from analysis.question_fields import TaskNeededError, confirmed_of, dimension_of, seeds_of
from analysis.remake_tune import tune_search
from analysis.scaling import widths
from orchestrator.command.axes import COLUMNS
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.searched import OF_RUN
from orchestrator.searches import Row
from orchestrator.searches.axes import Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.confirm import TUNED, ConfirmAndJudge, ConfirmBest
from orchestrator.searches.grid import MOST_SPARES, GridSearch
from orchestrator.searches.narrowing import MOST_SEEDS, NarrowingSearch
from orchestrator.searches.narrowing import threshold_search as narrowed
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import in_turn, known_points
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import RUNS, THRESHOLDS, TRIALS
from orchestrator.study import are_checked, bracket_of, brackets_again
from trainables.needs import Tasks
from trainables.regularization import COMPARED, TASKS
from trainables.settings import settings_class, settings_of, value_of
from trainables.spec import RunSpec
from trainables.task import Task

OF_THRESHOLDS = ("scaling", "signal")
"""Studies that ask for the least value of a setting."""

MOST_RUNGS, MOST_OTHER_RUNGS = 10 * MOST_PLANNED, 2 * MOST_PLANNED
"""Values that all thresholds of a stored question may ask for, of the data count and of another setting, whose runs take longer
to tell; any file may be in a store."""
MOST_PAIRS = 50_000_000
"""Its thresholds times the values along which they lie: each may learn from those at all smaller ones."""

AnySearch = ThresholdSearch | NarrowingSearch | ConfirmAndJudge | ConfirmBest | GridSearch


def search_of(question: Question, task: Task | None, rows: Iterable[Row]) -> AnySearch:
    """The search of any study.

    Args:
        task: that of the question, in the version that it was asked of; None if it is not loaded.
        rows: the runs of the store, among which are those of the search.

    Raises:
        ValueError: the question does not tell enough.
    """
    if question.study in OF_THRESHOLDS:
        return threshold_search(question, task)
    if question.study == "regularization":
        return penalty_search(question, None)
    if question.study == "tune":
        return tune_search(question, task, rows)
    if RUNS not in question.specs:
        raise ValueError(f"the study {question.study} is none of this version")
    spares = question.settings.get("spares", 0)
    if type(spares) is not int or not 0 <= spares <= MOST_SPARES:
        raise ValueError(f"spares must be a whole number from 0 to {MOST_SPARES}, not {spares!r:.100}")
    return GridSearch(list(question.specs[RUNS]), question.task_version, spares, None if task is None else Tasks(task))


def threshold_search(question: Question, task: Task | None) -> ThresholdSearch:
    """
    Raises:
        ValueError: there is no such search.
    """
    brackets = _brackets(question, question.specs.get(THRESHOLDS, ()), task)
    resolution, stop = (question.search.get(name) for name in ("resolution", "stop"))
    if not isinstance(resolution, float):
        raise ValueError(f"resolution must be a number in (0, 1), not {resolution!r:.100}")
    most = MOST_RUNGS if question.search.get("least", "data_count") == "data_count" else MOST_OTHER_RUNGS
    if 0 < resolution < 1 and sum(_rungs(bracket, resolution) for bracket in brackets) > most:
        raise ValueError(f"its ranges have more than {most:,} values at a resolution of {resolution:g}")
    width = question.search.get("until_width")
    if not (width is None or isinstance(width, float)):
        raise ValueError(f"until_width must be a number, not {width!r:.100}")
    values, thresholds = len({bracket.along for bracket in brackets}), len(brackets) * (1 if width is None else MOST_SEEDS)
    if thresholds * values > MOST_PAIRS:
        raise ValueError(f"its {thresholds:,} possible thresholds lie at {values:,} values, which are too many")
    return narrowed(brackets, resolution, True, str(stop), width, widths)


def _rungs(bracket: Bracket, resolution: float) -> float:
    """About how many values a bracket may ask for."""
    low, high = (end + bracket.counts.fixed for end in (bracket.counts.low, bracket.counts.high))
    if isinstance(low, float) or isinstance(high, float):
        return math.log(high / low) / -math.log1p(-resolution)
    return min(math.log(max(high, 1) / max(low, 1)) / -math.log1p(-resolution), high - low) + 1


def _brackets(question: Question, specs: Sequence[RunSpec], task: Task | None) -> list[Bracket]:
    """
    Raises:
        ValueError: the axes of the question are none.
    """
    least, along = (question.search.get(name, usual) for name, usual in (("least", "data_count"), ("along", "N")))
    ends = question.search.get("between")
    if ends is not None and not (isinstance(ends, list) and len(ends) == 2):
        raise ValueError(f"between must be two numbers, not {ends!r:.100}")
    if clash := {str(least), str(along)} & set(COLUMNS):
        raise ValueError(f"tables have another column that is called {min(clash)}")
    between = None if ends is None else Between(*ends)
    kinds = set() if ends is None else set(map(type, ends))
    try:
        axes = Axes.of(str(least), str(along), [value_of(spec, str(along)) for spec in specs])
        kinds |= {type(value_of(spec, axes.least)) for spec in specs}
    except KeyError as error:
        raise TaskNeededError(f"its runs have no setting {error}") from None
    if len(kinds) > 1:
        raise ValueError(f"between must be two values of {axes.least}, not {ends!r:.100}")
    if task is None:
        return brackets_again(specs, question.task_version, question.facts, axes, between)
    checked = are_checked(question.facts)
    return [replace(bracket_of(task, spec, axes, between), checked=checked) for spec in specs]


def penalty_search(question: Question, weights: Sequence[str] | None) -> ConfirmAndJudge:
    """
    Args:
        weights: what may be searched; None: any setting of the task.

    Raises:
        ValueError: there is no such search.
    """
    templates, search = question.specs.get(TRIALS, ()), question.search
    if question.task not in TASKS or not templates:
        raise ValueError(f"it must have templates of trials, of {' or '.join(TASKS)}")
    known = {**OF_RUN, **settings_of(settings_class(TASKS[question.task]))}
    space, trials, seed = (search.get(name) for name in ("space", "trials", "seed"))
    allowed = known if weights is None else weights
    if not isinstance(space, dict) or not set(space) <= set(allowed):
        raise ValueError(f"space must name what is searched of {', '.join(allowed)}")
    if type(trials) is not int or not 1 <= trials <= MOST_PLANNED or type(seed) is not int:
        raise ValueError(f"trials must be a whole number from 1 to {MOST_PLANNED}, and seed a whole number")
    of_trial, fresh = (seeds_of(search.get(name, [])) for name in ("trial_seeds", "fresh_seeds"))
    sampler, pruner, objectives = (str(search.get(name)) for name in ("sampler", "pruner", "objectives"))
    dimensions = [dimension_of(name, value, known[name]) for name, value in space.items()]
    points = known_points(templates[0], dimensions, _known(search))
    made = partial(
        OptunaSearch, make=in_turn(templates), seeds=max(1, len(of_trial)), known=points, level=len(templates) > 1
    )
    tuning = made(templates[0], question.task_version, dimensions, trials, sampler, pruner, objectives, seed)
    compared = {setting: question.specs[setting] for setting in COMPARED if setting in question.specs}
    return ConfirmAndJudge(ConfirmBest(tuning, confirmed_of(search), fresh), compared, question.specs.get(TUNED, ()))


def _known(search: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """The settings that the winner has to be better than; none in older questions.

    Raises:
        ValueError: they are no settings of the comparison.
    """
    names = search.get("known", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name in COMPARED for name in names):
        raise ValueError(f"known must be a list of some of {', '.join(COMPARED)}, not {names!r:.100}")
    return [COMPARED[name] for name in dict.fromkeys(names)]
