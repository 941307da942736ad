"""What an Optuna search takes of Optuna: samplers, pruners, and its trials as Optuna has them."""

from __future__ import annotations

import errno
import math
import os
import random
import secrets
import sqlite3
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.pruners import BasePruner, MedianPruner, NopPruner, PercentilePruner
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.searches import UNWELL, Row, ending
from orchestrator.searches.objective import Objective
from orchestrator.searches.space import Space, Values

optuna.logging.set_verbosity(optuna.logging.ERROR)

SAMPLERS = ("tpe", "nsga2", "random", "grid", "gp")
PRUNERS = ("median", "percentile", "none")
STARTUP_TRIALS = 10
"""Trials drawn at random before a model of them is made, and complete ones before any is pruned."""
WARMUP_SHARE = 0.25
"""Share of a run's steps before which it is never pruned."""
INTERVAL_SHARE = 0.05
"""Share of a run's steps between two questions to the pruner."""
PERCENTILE = 25.0
"""The `percentile` pruner lets this share of the trials, in percent, go on."""
GENERATIONS = 6
"""`nsga2` makes about this many generations of the trials."""
NOT_WELL = ("pruned", *UNWELL)
"""How runs end that give a trial no scores."""
NO_NUMBER = "no number"
"""The state of a trial whose runs all ended well, but that has no finite number for an objective."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried. `number` counts by time of finishing."""

    number: int
    values: Values
    state: TrialState
    row: Row
    """Of its first seed."""
    rows: Sequence[Row] = ()
    """Of all its seeds that have finished, the first among them."""
    scores: Sequence[float] = ()
    """The mean of each objective over its seeds, if it is complete."""


def state_of(trial: Trial) -> str:
    """How a trial ended, in the word of tables: as that of its runs that did not end well, if there is one."""
    ends = [ending(row) for row in trial.rows]
    return next((end for end in ends if end in NOT_WELL), "finished" if trial.scores else NO_NUMBER)


def sampler_of(word: str, name: str, trials: int) -> BaseSampler:
    """The sampler of SAMPLERS, seeded by a name, for a search of so many trials."""
    seed = random.Random(name).getrandbits(32)
    if word == "tpe":
        return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    if word == "nsga2":
        return NSGAIISampler(seed=seed, population_size=max(4, trials // GENERATIONS))
    if word == "gp":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return GPSampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
    return RandomSampler(seed=seed)


def pruner_of(word: str) -> BasePruner:
    """The pruner of PRUNERS."""
    if word == "median":
        return MedianPruner(n_startup_trials=STARTUP_TRIALS)
    return PercentilePruner(PERCENTILE, n_startup_trials=STARTUP_TRIALS) if word == "percentile" else NopPruner()


def pruning_steps(budget: int) -> tuple[int, int]:
    """Steps before the first question to the pruner, and between two."""
    return math.ceil(WARMUP_SHARE * budget), max(1, round(INTERVAL_SHARE * budget))


def frozen(trial: Trial, space: Space, aims: Sequence[Objective]) -> FrozenTrial:
    """A trial as Optuna has it."""
    row = trial.row
    curve = aims[0].curve
    # Rows from before there was a curve of the error have none of it.
    points = zip(row["curve_step"], row[curve], strict=False) if len(aims) == 1 and curve else ()
    return create_trial(
        state=trial.state,
        params=space.params(trial.values),
        distributions=space.distributions(trial.values),
        values=list(trial.scores) or None,
        intermediate_values={step: value for step, value in points if not math.isnan(value)},
        user_attrs={"key": row["key"], "status": row["status"], "steps": row["steps"]}
        | {name: row[column] for name, column in (("id_mse", "id_mse"), ("validation_mse", "ood_mse"))},
    )


def write_study(
    file: Path, name: str, objectives: str, directions: Sequence[StudyDirection], trials: Sequence[FrozenTrial]
) -> None:
    """Write trials into a new SQLite file that optuna-dashboard opens.

    Raises:
        OSError: the file cannot be written, or something has its name by now.
    """
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with temporary.open("xb"):
        pass  # so that a place that cannot be written is an OSError
    url = sqlalchemy.URL.create("sqlite", database=str(temporary))  # a file may be called `what?`
    try:
        storage = optuna.storages.RDBStorage(url.render_as_string())
        study = optuna.create_study(storage=storage, study_name=name, directions=list(directions))
        study.set_user_attr("objectives", objectives)
        study.add_trials(list(trials))
        storage.engine.dispose()
        _rename(temporary, file)
    except (SQLAlchemyError, StorageInternalError) as error:
        raise _of_disk(error, file) from error
    finally:
        for left in (temporary, temporary.with_name(f"{temporary.name}-journal")):
            left.unlink(missing_ok=True)


def _rename(temporary: Path, file: Path) -> None:
    """Give a file its name, which it takes from no other one, as far as the file system allows."""
    try:
        file.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # there are file systems without a second name for a file
        if file.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from None
        temporary.replace(file)


def _of_disk(error: Exception, file: Path) -> OSError:
    """An error of a database as one of its file, in the words of SQLite."""
    told = getattr(error if isinstance(error, SQLAlchemyError) else error.__cause__, "orig", error)
    is_full = getattr(told, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return OSError(errno.ENOSPC if is_full else errno.EIO, str(told), str(file))
