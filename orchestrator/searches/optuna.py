"""The Optuna search: tunes numeric task options by asking and telling a study that is rebuilt from the finished rows.

The rows are the only memory. Every question is put to a fresh sampler, seeded by the number of trials begun, over an
in-memory study of all finished trials; so the same rows give the same next trial, in any process.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner, PercentilePruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.searches import Curve, Row, Rows
from trainables.spec import RunSpec, family_key, run_key

optuna.logging.set_verbosity(optuna.logging.ERROR)

SAMPLERS = ("tpe", "nsga2", "random", "grid")
PRUNERS = ("median", "percentile", "none")
OBJECTIVES = {"validation": ("ood_mse",), "id,validation": ("id_mse", "ood_mse")}
"""Words for what is minimised, and the columns of a row that hold it. What a trial holds out is the validation set."""

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


@dataclass(frozen=True, slots=True)
class Trial:
    """A finished run as a trial of the search. `number` counts by time of finishing."""

    number: int
    values: Mapping[str, float]
    """The searched options."""
    state: TrialState
    row: Row


class OptunaSearch:
    """Looks for the values of task options that minimise an error on held-out coordinates.

    A trial is any row in the store that differs from `template` in nothing but the searched options, with values inside their
    ranges; so raising `trials`, or another sampler on the same store, builds on all there are. Trials are put in the order in
    which they finished. Failed and diverged runs are trials too, told to Optuna as failed. With one worker, the same seed and
    an empty store, the trials are always the same ones, however often the launch is interrupted.

    Args:
        space: range (low, high) of every searched option, drawn log-uniformly; 0 < low <= high. Empty: one trial, `template`.
        trials: how many to make; `grid` makes the largest full grid of at most so many points.
        sampler: one of SAMPLERS; `tpe` is Optuna's default, `nsga2` is for two objectives.
        pruner: one of PRUNERS; ends runs whose error is above the median (or not among the best quarter) of those of
            the finished trials at the same step.
        objectives: a key of OBJECTIVES.

    Raises:
        ValueError: an unknown word, an impossible range, or pruning with two objectives.
    """

    def __init__(
        self,
        template: RunSpec,
        task_version: str,
        space: Mapping[str, tuple[float, float]],
        trials: int,
        sampler: str = "tpe",
        pruner: str = "median",
        objectives: str = "validation",
        seed: int = 0,
    ) -> None:
        for name, value, allowed in (
            ("sampler", sampler, SAMPLERS), ("pruner", pruner, PRUNERS), ("objectives", objectives, tuple(OBJECTIVES)),
        ):  # fmt: skip
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        for name, (low, high) in space.items():
            if not 0 < low <= high < math.inf:
                raise ValueError(f"the range of {name} must be 0 < low <= high, not {low:g}..{high:g}")
        if pruner != "none" and len(OBJECTIVES[objectives]) > 1:
            raise ValueError("no pruner can weigh two objectives: use the pruner none with objectives id,validation")
        self.template, self.task_version, self.space = template, task_version, dict(space)
        self.sampler, self.pruner, self.objectives, self.seed = sampler, pruner, objectives, seed
        self.columns = OBJECTIVES[objectives]
        self._distributions: dict[str, BaseDistribution] = {
            name: FloatDistribution(low, high, log=True) for name, (low, high) in space.items()
        }
        self._grid = self._make_grid(trials) if sampler == "grid" else []
        self.trials = len(self._grid) if sampler == "grid" else trials if any(low < high for low, high in space.values()) else 1
        self._family = self._family_of(template)
        self._known: dict[str, bool] = {}
        self._trials: tuple[int, list[Trial]] | None = None
        self._compared: tuple[int, optuna.Study] | None = None
        self._asked: dict[str, int] = {}

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """Points of a grid up to `room`; trials that learn from earlier ones up to `fill`."""
        done = self.finished_trials(rows)
        busy = [spec for spec in running if self._is_mine(spec)]
        taken = {self._key(spec) for spec in busy}
        if self.sampler == "grid":
            free = (self._spec(point) for point in self._grid)
            free = (s for s in free if rows.get(self._key(s)) is None and self._key(s) not in taken)
            return list(itertools.islice(free, room))
        room = min(room, room if fill is None else fill, self.trials - len(done) - len(busy))
        if room <= 0:
            return []
        study = self._make_study(done)
        for spec in busy:
            self._begin(study, self._values(dict(spec.options)))
        chosen: list[RunSpec] = []
        begun = len(done) + len(busy)
        attempt = 0
        while len(chosen) < room:
            study.sampler = self._make_sampler(begun + len(chosen), attempt)
            trial = study.ask(self._distributions)
            spec = self._spec(trial.params)
            if rows.get(self._key(spec)) is None and self._key(spec) not in taken:
                taken.add(self._key(spec))
                chosen.append(spec)
            else:  # a point that is known already, from a range of few numbers
                study.tell(trial, state=TrialState.FAIL)
                attempt += 1
                if attempt > 100:
                    break
        return chosen

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        if self.pruner == "none" or not self._is_mine(spec):
            return None
        study = self._study_of(rows)
        pruner = self._make_pruner()
        warmup, interval = self._pruning_steps()
        key = self._key(spec)
        known = self._asked.get(key, 0)
        due = -(-warmup // interval) * interval
        for points in range(1, len(curve.step) + 1):
            step = curve.step[points - 1]
            if step < due:
                continue
            due = (step // interval + 1) * interval
            if points <= known:
                continue
            self._asked[key] = points
            intermediate = dict(zip(curve.step[:points], curve.error[:points], strict=True))
            trial = create_trial(
                state=TrialState.RUNNING,
                params=self._values(dict(spec.options)),
                distributions=self._distributions,
                intermediate_values=intermediate,
            )
            if pruner.prune(study, trial):
                return points
        return None

    def finished(self, rows: Rows) -> bool:
        return not self.propose(rows, 1) if self._grid else len(self.finished_trials(rows)) >= self.trials

    def finished_trials(self, rows: Rows) -> list[Trial]:
        """All trials among the rows, in order of finishing."""
        if self._trials is None or self._trials[0] != len(rows):
            mine = sorted((row for row in rows if self._holds(row)), key=lambda row: (row["finished_at"], row["key"]))
            self._trials = len(rows), [
                Trial(number, self._values(row["options"]), self._state(row), row) for number, row in enumerate(mine)
            ]
        return self._trials[1]

    def best(self, rows: Rows) -> Trial | None:
        """The complete trial of least validation error; with two objectives it lies on the Pareto front."""
        complete = [t for t in self.finished_trials(rows) if t.state == TrialState.COMPLETE]
        return min(complete, key=lambda trial: (trial.row["ood_mse"], trial.number), default=None)

    def front(self, rows: Rows) -> list[Trial]:
        """The complete trials than which none is better in every objective."""
        trials = self.finished_trials(rows)
        if not any(t.state == TrialState.COMPLETE for t in trials):
            return []
        return [trials[t.number] for t in sorted(self.study(rows).best_trials, key=lambda t: t.number)]

    def study(self, rows: Rows) -> optuna.Study:
        """All finished trials as an Optuna study in memory, for its figures."""
        return self._make_study(self.finished_trials(rows))

    def export(self, rows: Rows, file: Path, name: str) -> None:
        """Write the study into a new SQLite file that optuna-dashboard opens.

        Raises:
            OSError: the file cannot be written.
        """
        temporary = file.with_name(f".{file.name}.partial")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb"):
            pass  # so that a place that cannot be written is an OSError
        storage = optuna.storages.RDBStorage(f"sqlite:///{temporary}")
        study = optuna.create_study(storage=storage, study_name=name, directions=self._directions())
        study.set_user_attr("objectives", self.objectives)
        study.add_trials([self._frozen(trial) for trial in self.finished_trials(rows)])
        storage.engine.dispose()
        temporary.replace(file)

    # Optuna's side

    def _make_study(self, trials: Sequence[Trial]) -> optuna.Study:
        sampler = self._make_sampler(len(trials), 0)
        study = optuna.create_study(sampler=sampler, directions=self._directions())
        for trial in trials:
            if isinstance(sampler, NSGAIISampler):
                self._begin(study, trial.values)
                sampler.get_trial_generation(study, study.get_trials(deepcopy=False)[trial.number])
                values = self._objective_values(trial) if trial.state == TrialState.COMPLETE else None
                study.tell(trial.number, values, state=trial.state)
            else:
                study.add_trial(self._frozen(trial))
        return study

    def _study_of(self, rows: Rows) -> optuna.Study:
        """The study that pruning compares with; made anew only when there are more trials."""
        trials = self.finished_trials(rows)
        if self._compared is None or self._compared[0] != len(trials):
            self._compared = len(trials), self._make_study(trials)
        return self._compared[1]

    def _begin(self, study: optuna.Study, values: Mapping[str, float]) -> None:
        """Add a trial in progress."""
        study.add_trial(create_trial(state=TrialState.RUNNING, params=dict(values), distributions=self._distributions))

    def _frozen(self, trial: Trial) -> FrozenTrial:
        row = trial.row
        complete = trial.state == TrialState.COMPLETE
        # Rows from before there was a curve of the error have none of it.
        curve = zip(row["curve_step"], row["curve_error"], strict=False) if len(self.columns) == 1 else ()
        return create_trial(
            state=trial.state,
            params=dict(trial.values),
            distributions=self._distributions,
            values=self._objective_values(trial) if complete else None,
            intermediate_values={step: error for step, error in curve if not math.isnan(error)},
            user_attrs={"key": row["key"], "status": row["status"], "steps": row["steps"]}
            | {name: row[column] for name, column in (("id_mse", "id_mse"), ("validation_mse", "ood_mse"))},
        )

    def _objective_values(self, trial: Trial) -> list[float]:
        return [trial.row[column] for column in self.columns]

    def _directions(self) -> list[StudyDirection]:
        return [StudyDirection.MINIMIZE] * len(self.columns)

    def _make_sampler(self, begun: int, attempt: int) -> BaseSampler:
        seed = random.Random(f"{self.seed}/{begun}/{attempt}").getrandbits(32)
        if self.sampler == "tpe":
            return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS)
        if self.sampler == "nsga2":
            return NSGAIISampler(seed=seed, population_size=max(4, self.trials // GENERATIONS))
        return RandomSampler(seed=seed)

    def _make_pruner(self) -> BasePruner:
        if self.pruner == "median":
            return MedianPruner(n_startup_trials=STARTUP_TRIALS)
        return PercentilePruner(PERCENTILE, n_startup_trials=STARTUP_TRIALS) if self.pruner == "percentile" else NopPruner()

    def _pruning_steps(self) -> tuple[int, int]:
        """Steps before the first question to the pruner, and between two."""
        budget = self.template.max_steps
        return math.ceil(WARMUP_SHARE * budget), max(1, round(INTERVAL_SHARE * budget))

    def _make_grid(self, trials: int) -> list[dict[str, float]]:
        """Points of the largest full grid of at most `trials`, log-spaced from end to end, in an order drawn by the seed."""
        free = sum(low < high for low, high in self.space.values())
        side = max(1, math.floor(trials ** (1 / max(1, free)) + 1e-9))
        axes = [
            [low] if low == high else [low * (high / low) ** (i / max(1, side - 1)) for i in range(side)]
            for low, high in self.space.values()
        ]
        points = [dict(zip(self.space, point, strict=True)) for point in itertools.product(*axes)]
        random.Random(f"{self.seed}/grid").shuffle(points)
        return points

    # Rows and specs

    def _spec(self, values: Mapping[str, Any]) -> RunSpec:
        options = dict(self.template.options) | {name: float(values[name]) for name in self.space}
        return dataclasses.replace(self.template, options=tuple(options.items()))

    def _key(self, spec: RunSpec) -> str:
        return run_key(spec, self.task_version)

    def _values(self, options: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(options[name]) for name in self.space}

    def _family_of(self, spec: RunSpec) -> str:
        """Identity shared by all specs that differ in the searched options only."""
        options = dict(spec.options) | dict.fromkeys(self.space, 0.0)
        return family_key(dataclasses.replace(spec, options=tuple(options.items())), self.task_version)

    def _is_mine(self, spec: RunSpec) -> bool:
        options = dict(spec.options)
        return (
            spec.data_count == self.template.data_count
            and self.space.keys() <= options.keys()
            and self._family_of(spec) == self._family
            and all(low <= float(options[name]) <= high for name, (low, high) in self.space.items())
        )

    def _holds(self, row: Row) -> bool:
        key = row["key"]
        if key not in self._known:
            same = row["task_version"] == self.task_version and row["task"] == self.template.task
            self._known[key] = same and self._is_mine(spec := RunSpec.from_dict(row)) and self._key(spec) == key
        return self._known[key]

    def _state(self, row: Row) -> TrialState:
        if row["status"] == "pruned":
            return TrialState.PRUNED
        values = [row[column] for column in self.columns]
        known = all(value is not None and math.isfinite(value) for value in values)
        return TrialState.COMPLETE if row["status"] in ("passed", "missed") and known else TrialState.FAIL
