"""How much each searched setting matters: its share of the variance of the objective (fANOVA, Hutter et al. 2014)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from statistics import median_low

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import create_trial

from orchestrator.searches import Rows
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension
from trainables.spec import Scalar

LEAST_TRIALS, MOST_TRIALS = 8, 300
"""Of fewer complete trials nothing is said. Of more so many are taken, at even distances: the time grows with their square."""


def shares_of(search: OptunaSearch, rows: Rows) -> dict[str, float]:
    """What each setting explains whatever the others are (its main effect), of the variance of the first objective, or of its
    logarithm where means are geometric; the largest first. They need not add up to 1, as settings may matter together. Empty
    while too few trials are complete, with a single setting, or if all came out alike.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # sklearn takes a second

    complete = [trial for trial in search.finished_trials(rows) if trial.scores]
    if len(search.dimensions) < 2 or len(complete) < LEAST_TRIALS:
        return {}
    if len(complete) > MOST_TRIALS:
        complete = [complete[i * len(complete) // MOST_TRIALS] for i in range(MOST_TRIALS)]
    scaled = math.log if search.geometric(rows)[0] else float
    scores = [scaled(trial.scores[0]) for trial in complete]
    if len(set(scores)) < 2:
        return {}
    places = {d.name: _places(d, [trial.values.get(d.name) for trial in complete]) for d in search.dimensions}
    distributions = {d.name: _distribution(d) for d in search.dimensions}
    study = optuna.create_study()
    for i, score in enumerate(scores):
        params = {name: of_trials[i] for name, of_trials in places.items()}
        study.add_trial(create_trial(params=params, distributions=distributions, value=score))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # of `normalize`
        try:
            found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), normalize=False)
        except RuntimeError:  # scores that differ by less than a tree can tell
            return {}
    return {name: float(share) for name, share in found.items()}


def _places(dimension: Dimension, values: Sequence[Scalar | None]) -> list[float]:
    """A number for every trial, as Optuna leaves out a setting that some trial lacks. A trial without this one has the middle
    of the others: a number of its own would tell which trials use it, and so take the share of the setting that decides that.
    """
    used = [_place(dimension, value) for value in values if value is not None]
    middle = median_low(used) if used else 0
    return [middle if value is None else _place(dimension, value) for value in values]


def _place(dimension: Dimension, value: Scalar) -> float:
    """Which of the words a value is. Where there is a range: its place there, from 0 to 1, and below it each word, with about
    as much room as the range."""
    if dimension.span is None:
        return dimension.words.index(value)
    if value in dimension.words:
        return -0.5 - dimension.words.index(value)
    half = (dimension.step or 0) / 2  # whole numbers at the ends have as much room as the others
    low, high, at = dimension.span[0] - half, dimension.span[1] + half, float(dimension.within(value))
    if dimension.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return (at - low) / (high - low) if low < high else 0.5


def _distribution(dimension: Dimension) -> BaseDistribution:
    """What Optuna has to know of these places."""
    count = len(dimension.words)
    return CategoricalDistribution(range(count)) if dimension.span is None else FloatDistribution(-count, 1.0)
