"""The Optuna search: tunes settings of runs by asking and telling a study that is rebuilt from the finished rows.

The rows are the only memory. Every question is put to a fresh sampler, seeded by the number of trials begun, over an
in-memory study of all finished trials; so the same rows give the same next trial, in any process.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from orchestrator.searches import Curve, Latest, Row, Rows
from orchestrator.searches.objective import Objective, means
from orchestrator.searches.race import contenders, seed_effects
from orchestrator.searches.samplers import PRUNERS, SAMPLERS, Trial, frozen, pruner_of, pruning_steps, sampler_of, write_study
from orchestrator.searches.space import Dimension, Make, Matters, Space, Values
from trainables.settings import with_values
from trainables.spec import RunSpec, run_key

_ID, _VALIDATION = Objective("id_mse", curve="curve_error"), Objective("mse", curve="curve_error")
OBJECTIVES = {"validation": (_VALIDATION,), "id,validation": (_ID, _VALIDATION)}
"""Words for what is minimised where trials hold out the validation set."""

MOST_ATTEMPTS, FEW_ATTEMPTS = 100, 5
"""Points that are asked for in vain, as they are known already or the task cannot do them, before the search has no more; and
before the sampler is left aside, which may ask for one point for ever: then they are listed, or drawn at random."""
MOST_IN_VAIN = 3
"""A search ends when so many times its trials were asked for in vain, as what they need has not made it: for each of these
another run may have been trained."""
TOLD_AS_WORST = {"tpe": (TrialState.FAIL,), "gp": (TrialState.FAIL, TrialState.PRUNED)}
"""The states that a sampler's model leaves out, so that it would ask again and again for points beside such trials. `tpe` ranks
pruned ones itself. `nsga2` needs to be told nothing: it breeds from complete trials alone."""
ROUNDS, LEAST_AT_ONCE = 10, 16
"""On a GPU, where hundreds of trials fit into a pack: at most so small a part of all trials is in progress at a time, so that
most can learn from others; and how many may be, however few they are in all."""


@dataclass(frozen=True, slots=True)
class Known:
    """What rows say of the trials, of every objective: read by the thread that shows the study and by the one that decides."""

    trials: list[Trial]
    """In order of finishing."""
    geometric: list[bool]
    """Whether means are geometric."""
    effects: list[dict[int, float]]
    """With `level`, what each seed adds to it, or to its logarithm."""


class OptunaSearch:
    """Looks for the settings with the best mean of an objective, or for the Pareto front of several.

    A trial is any row in the store that differs from `template` in nothing but the searched settings, with values inside their
    space; so raising `trials`, or another sampler on the same store, builds on all there are. Trials are put in the order in
    which they finished. Failed and diverged runs are trials too: in Optuna's study they have failed, and a sampler with a model
    takes them for the worst (see TOLD_AS_WORST). With one worker, the same seed and an empty store, the trials are always the
    same ones, however often the launch is interrupted.

    With several `seeds`, a trial begins with the first, and goes on to one after another while it is in contention (see
    `contenders`), or on the Pareto front if there are several objectives. Optuna is told the means.

    Args:
        space: what is searched, with any setting. Empty: one trial, `template`.
        trials: how many to make; `grid` makes the largest full grid of at most so many points.
        sampler: one of SAMPLERS; `tpe` is Optuna's default, `nsga2` is for two objectives. What `gp` and `nsga2` learn is
            of the settings that all trials have: they draw the others at random.
        pruner: one of PRUNERS; ends runs of the first seed whose best value so far is behind the median (or not among the best
            quarter) of the values of the complete trials at the same step, from the tenth complete trial on.
        objectives: a key of OBJECTIVES, or what is to be made small or large.
        seed: of the sampler.
        make: makes a run; replaces the values in `template` if not given.
        matters: see `Space`.
        seeds: those of a trial, from that of `template` on.
        known: points that are tried before any that the sampler asks for, except with `grid`, of which only those on the grid
            are tried, and not pruned. The winner has to be better than these, and they take every seed: one that is bad luck
            for them all cannot hide them.
        level: what a seed adds to all trials is taken off, so that trials of different seeds can be compared. It is for
            seeds that stand for tasks of different difficulty.

    Raises:
        ValueError: an unknown word, an impossible range, or pruning where there is no curve.
    """

    def __init__(
        self,
        template: RunSpec,
        task_version: str,
        space: Sequence[Dimension],
        trials: int,
        sampler: str = "tpe",
        pruner: str = "median",
        objectives: str | Sequence[Objective] = "validation",
        seed: int = 0,
        *,
        make: Make | None = None,
        matters: Matters | None = None,
        seeds: int = 1,
        known: Sequence[Values] = (),
        level: bool = False,
    ) -> None:
        words = [("sampler", sampler, SAMPLERS), ("pruner", pruner, PRUNERS)]
        if isinstance(objectives, str):
            words.append(("objectives", objectives, tuple(OBJECTIVES)))
        for name, value, allowed in words:
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        self.template, self.task_version = template, task_version
        self.sampler, self.pruner, self.seed, self.level = sampler, pruner, seed, level
        self.aims = OBJECTIVES[objectives] if isinstance(objectives, str) else tuple(objectives)
        self.objectives = objectives if isinstance(objectives, str) else ",".join(aim.name for aim in self.aims)
        if pruner != "none" and len(self.aims) > 1:
            raise ValueError("no pruner can weigh two objectives: use --pruner none")
        if pruner != "none" and not self.aims[0].curve:
            only = "pruning is only for accuracy and the loss that runs minimise (mse or loss), and not for programs"
            raise ValueError(f"no pruner can judge {self.objectives}: {only}: use --pruner none")
        self.seeds = range(template.seed, template.seed + seeds)
        self._space = Space(space, make or self._in_template, matters)
        self._first = list(dict.fromkeys(self.spec(values) for values in known))
        self._known_keys = frozenset(map(self._key, self._first))
        self._points = self._space.grid(trials) if sampler == "grid" else self._space.all()
        """Of the grid, or, if it is finite, of the space."""
        if self._points is not None:
            random.Random(f"{seed}/grid").shuffle(self._points)
        listed = trials if self._points is None else len(self._points)
        self.trials = listed if sampler == "grid" else min(trials, listed)
        self._known: dict[str, Values | None] = {}
        self._latest = Latest(self._known_of)
        self._contending = Latest(self._contenders)
        self._compared = Latest(lambda rows: self._study_of(self.finished_trials(rows)))
        """The study that pruning compares with."""
        self._frozen: dict[tuple[str, TrialState], tuple[Trial, FrozenTrial]] = {}
        """The latest of each key, in each state that it is told in. Every study has all finished trials, and most are as they
        were in the one before."""
        self._asked: dict[str, int] = {}
        """How many points of the curve of a run, by key, pruning has judged."""
        self._again: list[RunSpec] = []
        self.is_blocked: Callable[[Rows, RunSpec], bool] | None = None
        """Whether a run cannot be trained, as one that it needs has not made it. Such a run is passed over."""
        self._chosen: dict[str, RunSpec] = {}
        """By key, the trials that were asked for, also of those that are blocked by now."""
        self._in_vain = Latest(self._has_asked_in_vain)
        self.passed_over = False
        """Whether settings were passed over so, as far as this search was asked."""
        self._exhausted = Latest(self._has_no_further_point)
        self._left = Latest(self._count_left)
        self._listed: dict[str, RunSpec] | None = None
        """By key, the runs of all points, once they are counted."""
        self._all_asked = Latest(lambda rows: not self.propose(rows, 1))
        self._awaits = False
        """Whether trials were in progress when this was last asked for more: a search does not end before they do."""

    def retry(self, rows: Iterable[Row]) -> None:
        """Ask for the runs of these rows before any other, as far as they are of trials: runs that failed and are not among
        the rows any more. They count as trials that are begun: otherwise others would be made in their place."""
        mine = sorted((row for row in rows if self._holds(row)), key=lambda row: (row["finished_at"], row["key"]))
        self._again = [RunSpec.from_dict(row) for row in mine]

    @property
    def dimensions(self) -> Sequence[Dimension]:
        """What is searched."""
        return self._space.dimensions

    @property
    def searched(self) -> Space:
        """The space of the settings, with the task behind it."""
        return self._space

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """Runs that are tried again, further seeds of trials in contention and points of a grid up to `room`; trials that learn
        from earlier ones up to `fill`, and on a GPU in about ROUNDS."""
        done = self.finished_trials(rows)
        busy = [(spec, values) for spec in running if (values := self._values(spec)) is not None]
        taken = {self._key(spec) for spec, _ in busy}
        begun = [values for spec, values in busy if spec.seed == self.template.seed]
        self._awaits = bool(begun)
        again = list(self._free(self._again, rows, taken))
        taken |= set(map(self._key, again))
        due = [values for spec in again if spec.seed == self.template.seed and (values := self._values(spec)) is not None]
        chosen = [*again, *(spec for spec in self._next_seeds(rows) if self._key(spec) not in taken)][:room]
        if self.sampler == "grid":
            return [*chosen, *itertools.islice(self._free(self.listed(), rows, taken), room - len(chosen))]
        room = min(room, room if fill is None else fill) - len(chosen)
        room = min(room, self.trials - len(done) - len(begun) - len(due))
        if self.sampler != "random" and rows.on_gpu(self.template.decoder):
            room = min(room, max(LEAST_AT_ONCE, self.trials // ROUNDS) - len(begun))
        if room <= 0 or self._in_vain.of(rows):
            return chosen
        asked = self._ask(rows, room, [*begun, *due], taken)
        if self.is_blocked is not None:
            self._chosen |= {self._key(spec): spec for spec in asked}
        return chosen + asked

    def _ask(self, rows: Rows, room: int, begun: Sequence[Values], taken: set[str]) -> list[RunSpec]:
        """New trials, learned from the finished ones and from those begun, or about to be; `taken` are keys of their runs."""
        known = self._latest.of(rows)
        done = known.trials
        study = self._make_study(self._told(known))
        for values in begun:
            self._begin(study, values)
        chosen = list(itertools.islice(self._free(self._first, rows, taken), room))
        taken |= {self._key(spec) for spec in chosen}
        count = len(done) + len(begun)
        attempt = 0
        while len(chosen) < room:
            word = self.sampler if attempt <= FEW_ATTEMPTS else "random"
            study.sampler = self._sampler(word, count + len(chosen), attempt)
            trial = study.ask()
            spec = self._suggested(trial)
            if spec is not None and self._is_free(spec, rows, taken):
                taken.add(self._key(spec))
                chosen.append(spec)
            else:  # a point that is known already, from a range of few numbers, or that is blocked
                study.tell(trial, state=TrialState.FAIL)
                attempt += 1
                if attempt > (MOST_ATTEMPTS if self._points is None else FEW_ATTEMPTS):
                    chosen += itertools.islice(self._free(self.listed(), rows, taken), room - len(chosen))
                    break
        return chosen

    def _has_no_further_point(self, rows: Rows) -> bool:
        """Whether nothing is found to ask for, by the rows alone. Draws at random come first: they need no model, and mostly
        find a point at once."""
        if next(self._free([*self._first, *self.listed()], rows, set()), None) is not None:
            return False
        study, done = optuna.create_study(directions=self._directions()), len(self.finished_trials(rows))
        for attempt in range(FEW_ATTEMPTS + 1, MOST_ATTEMPTS + 1) if self._points is None else ():
            study.sampler = self._sampler("random", done, attempt)
            trial = study.ask()
            spec = self._suggested(trial)
            if spec is not None and self._is_free(spec, rows, set()):
                return False
            study.tell(trial, state=TrialState.FAIL)
        return not self._ask(rows, 1, (), set())

    def _has_asked_in_vain(self, rows: Rows) -> bool:
        """Whether too many of the trials that were asked for are blocked."""
        blocked = (rows.get(key) is None and self.blocks(rows, spec) for key, spec in list(self._chosen.items()))
        return sum(blocked) >= MOST_IN_VAIN * self.trials

    def _sampler(self, word: str, begun: int, attempt: int) -> BaseSampler:
        """The one that is asked for a trial after so many, and so many points in vain."""
        return sampler_of(word, f"{self.seed}/{begun}/{attempt}", self.trials)

    def _suggested(self, trial: optuna.Trial) -> RunSpec | None:
        try:
            return self.spec(self._space.suggest(trial))
        except ValueError:  # the task cannot do these together
            return None

    def listed(self) -> Iterator[RunSpec]:
        """The runs of all points, of the first seed, if these can be listed."""
        return (self.spec(point) for point in self._points or ())

    def _free(self, specs: Iterable[RunSpec], rows: Rows, taken: set[str]) -> Iterator[RunSpec]:
        """Those of the specs that are neither known nor begun, and not blocked."""
        return (spec for spec in specs if self._is_free(spec, rows, taken))

    def _is_free(self, spec: RunSpec, rows: Rows, taken: set[str]) -> bool:
        if rows.get(key := self._key(spec)) is not None or key in taken:
            return False
        is_blocked = self.blocks(rows, spec)
        self.passed_over |= is_blocked
        return not is_blocked

    def blocks(self, rows: Rows, spec: RunSpec) -> bool:
        """Whether a run is passed over, as one that it needs has not made it."""
        return self.is_blocked is not None and self.is_blocked(rows, spec)

    def _next_seeds(self, rows: Rows) -> list[RunSpec]:
        """The next run of every trial in contention, the best trial first."""
        if len(self.seeds) == 1:
            return []
        found = list[RunSpec]()
        for trial in self.contending(rows):
            finished = {row["seed"] for row in trial.rows}
            left = (self.spec(trial.values, seed) for seed in self.seeds if seed not in finished)
            found += itertools.islice((spec for spec in left if not self.blocks(rows, spec)), 1)
        return found

    def contending(self, rows: Rows) -> list[Trial]:
        """The trials that deserve every seed; see the class."""
        return self._contending.of(rows)

    def _contenders(self, rows: Rows) -> list[Trial]:
        known = self._latest.of(rows)
        leading = self.front(rows) if len(self.aims) > 1 else self._near_the_best(known)
        return with_others(leading, self._of_known_points(known.trials))

    def known(self, rows: Rows) -> list[Trial]:
        """The complete trials of known points, the best first."""
        return self._of_known_points(self.finished_trials(rows))

    def _of_known_points(self, trials: Sequence[Trial]) -> list[Trial]:
        return self._ranked([trial for trial in trials if trial.row["key"] in self._known_keys])

    def _near_the_best(self, known: Known) -> list[Trial]:
        ranked = self._ranked(known.trials)
        numbers = [[math.log(v) if known.geometric[0] else v for v in self._numbers(trial, 0, known)] for trial in ranked]
        return [ranked[place] for place in contenders(numbers, self.aims[0].up)] if ranked else []

    def ranked(self, rows: Rows) -> list[Trial]:
        """The complete trials by their mean, in the last objective if there are several, see `rank`; the best first."""
        return self._ranked(self.finished_trials(rows))

    def _ranked(self, trials: Sequence[Trial]) -> list[Trial]:
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        return sorted(complete, key=lambda trial: (rank(trial.scores, self.aims), trial.number))

    def _numbers(self, trial: Trial, aim: int, known: Known) -> list[float]:
        """An objective on each of the trial's seeds; with `level`, without what the seed adds."""
        values = [self.aims[aim].of(row) for row in trial.rows]
        if not known.effects:
            return values
        effects, logs = (known.effects[aim][row["seed"]] for row in trial.rows), known.geometric[aim]
        return [v / math.exp(e) if logs else v - e for v, e in zip(values, effects, strict=True)]

    def geometric(self, rows: Rows) -> list[bool]:
        """Of each objective, whether its means are geometric."""
        return self._latest.of(rows).geometric

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        if self.pruner == "none" or spec.seed != self.template.seed or (values := self._values(spec)) is None:
            return None
        if (key := self._key(spec)) in self._known_keys:
            return None
        study = self._compared.of(rows)
        pruner = pruner_of(self.pruner)
        warmup, interval = pruning_steps(spec.max_steps)
        known = self._asked.get(key, -1)
        due = -(-warmup // interval) * interval
        judged = curve.accuracy if self.aims[0].curve == "curve_accuracy" else curve.error
        for points in range(1, len(curve.step) + 1):
            step = curve.step[points - 1]
            if step < due:
                continue
            due = (step // interval + 1) * interval
            if step <= known:
                continue
            self._asked[key] = step
            intermediate = dict(zip(curve.step[:points], judged[:points], strict=True))
            trial = create_trial(
                state=TrialState.RUNNING,
                params=self._space.params(values),
                distributions=self._space.distributions(values),
                intermediate_values=intermediate,
            )
            if pruner.prune(study, trial):
                return points
        return None

    def finished(self, rows: Rows) -> bool:
        if any(self._free(self._again, rows, set())):
            return False
        if self.sampler == "grid":
            return self._all_asked.of(rows)  # it is asked many times a second, and a grid may be large
        if self._next_seeds(rows):
            return False
        if len(self.finished_trials(rows)) >= self.trials:
            return True
        return not self._awaits and (self._in_vain.of(rows) or self._exhausted.of(rows))

    def finished_trials(self, rows: Rows) -> list[Trial]:
        """All trials among the rows, in order of finishing."""
        return self._latest.of(rows).trials

    def left(self, rows: Rows) -> int:
        """How many trials are still to be made. Of a grid, the points that are not known; otherwise what lacks to `trials`, or
        fewer, if the space has no more."""
        return self._left.of(rows)

    def _count_left(self, rows: Rows) -> int:
        def missing(specs: Mapping[str, RunSpec]) -> set[str]:
            return {key for key, spec in specs.items() if rows.get(key) is None and not self.blocks(rows, spec)}

        again = missing({self._key(spec): spec for spec in self._again if spec.seed == self.template.seed})
        lacking = self.trials - len(self.finished_trials(rows))
        if self._points is None:
            return max(len(again), 0 if self._in_vain.of(rows) else lacking)
        if self._listed is None:
            self._listed = {self._key(spec): spec for spec in self.listed()}
        free = len(missing(self._listed) | again)
        return free if self.sampler == "grid" else max(len(again), min(lacking, free))

    def runs(self, rows: Rows) -> list[Row]:
        """The finished runs of all trials."""
        return [row for trial in self.finished_trials(rows) for row in trial.rows]

    def _known_of(self, rows: Rows) -> Known:
        mine = sorted((row for row in rows if self._holds(row)), key=lambda row: (row["finished_at"], row["key"]))
        groups: dict[str, list[Row]] = {}
        for row in mine:  # those of the first seed give the order
            if row["seed"] == self.template.seed:
                groups[row["key"]] = [row]
        for row in mine:
            if row["seed"] != self.template.seed and (first := self._key(self.spec(self._found(row)))) in groups:
                groups[first].append(row)
        trials = []
        for number, of_trial in enumerate(groups.values()):
            of_trial[1:] = sorted(of_trial[1:], key=lambda row: row["seed"])
            trials.append(Trial(number, self._found(of_trial[0]), self._state(of_trial), of_trial[0], of_trial))
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        known = Known(trials, [], [])
        found = self._means(complete, known)
        known = Known(trials, [geometric for _, geometric in found], [])
        if self.level:
            effects = [self._effects_on(i, complete, known.geometric[i]) for i in range(len(self.aims))]
            known = replace(known, effects=effects)
            found = self._means(complete, known)
        for place, trial in enumerate(complete):
            trials[trial.number] = replace(trial, scores=[scores[place] for scores, _ in found])
        return known

    def _means(self, complete: Sequence[Trial], known: Known) -> list[tuple[list[float], bool]]:
        """Of every objective, as `means` has them."""
        return [means([self._numbers(t, i, known) for t in complete], aim.up) for i, aim in enumerate(self.aims)]

    def _effects_on(self, aim: int, complete: Sequence[Trial], geometric: bool) -> dict[int, float]:
        scaled = math.log if geometric else float
        return seed_effects([{row["seed"]: scaled(self.aims[aim].of(row)) for row in trial.rows} for trial in complete])

    def best(self, rows: Rows) -> Trial | None:
        """The complete trial with the best mean; with several objectives that of the last, see `rank`: it lies on the front."""
        return next(iter(self.ranked(rows)), None)

    def front(self, rows: Rows) -> list[Trial]:
        """The complete trials than which none is better in one objective and as good in all others."""
        trials = self.finished_trials(rows)
        if not any(t.state == TrialState.COMPLETE for t in trials):
            return []
        return [trials[t.number] for t in sorted(self._study_of(trials).best_trials, key=lambda t: t.number)]

    def study(self, rows: Rows) -> optuna.Study:
        """All finished trials as an Optuna study in memory."""
        return self._make_study(self.finished_trials(rows))

    def export(self, rows: Rows, file: Path, name: str) -> None:
        """Write the study into a new SQLite file that optuna-dashboard opens.

        Raises:
            OSError: the file cannot be written.
        """
        trials = [frozen(trial, self._space, self.aims) for trial in self.finished_trials(rows)]
        write_study(file, name, self.objectives, self._directions(), trials)

    # Optuna's side

    def _study_of(self, trials: Sequence[Trial]) -> optuna.Study:
        """One that is asked for no trial."""
        study = optuna.create_study(directions=self._directions())
        study.add_trials(map(self._as_frozen, trials))  # it adds copies
        return study

    def _as_frozen(self, trial: Trial) -> FrozenTrial:
        """As Optuna has it. Made anew if its row was replaced or its means are others, or there are some now, or none."""
        key = trial.row["key"], trial.state
        kept = self._frozen.get(key)
        if kept is None or kept[0].row is not trial.row or [*kept[0].scores] != [*trial.scores]:
            self._frozen[key] = kept = trial, frozen(trial, self._space, self.aims)
        return kept[1]

    def _told(self, known: Known) -> list[Trial]:
        """The trials as the sampler learns from them. `gp` has a model of the numbers themselves: geometric means are told to
        it as logarithms. Trials that its model would leave out are told as complete, and as worse than the worst by the least
        step of a float: so none passes for good where few are complete, and the scale of a model stays as it is."""
        trials = known.trials
        if self.sampler == "gp":
            trials = [replace(trial, scores=_as_modelled(trial.scores, known.geometric)) for trial in trials]
        complete = [trial.scores for trial in trials if trial.state == TrialState.COMPLETE]
        bad = TOLD_AS_WORST.get(self.sampler, ())
        if not complete or not bad:
            return trials
        worst = [
            math.nextafter(min(scores), -math.inf) if aim.up else math.nextafter(max(scores), math.inf)
            for aim, scores in zip(self.aims, zip(*complete, strict=True), strict=True)
        ]
        return [replace(t, state=TrialState.COMPLETE, scores=worst) if t.state in bad else t for t in trials]

    def _make_study(self, trials: Sequence[Trial]) -> optuna.Study:
        """One that is asked for trials: each finds its generation, for `nsga2`."""
        if self.sampler != "nsga2":
            return self._study_of(trials)
        sampler = self._sampler("nsga2", len(trials), 0)
        assert isinstance(sampler, NSGAIISampler)
        study = optuna.create_study(sampler=sampler, directions=self._directions())
        for trial in trials:
            self._begin(study, trial.values)
            sampler.get_trial_generation(study, study.get_trials(deepcopy=False)[trial.number])
            study.tell(trial.number, list(trial.scores) or None, state=trial.state)
        return study

    def _begin(self, study: optuna.Study, values: Values) -> None:
        """Add a trial in progress."""
        params, distributions = self._space.params(values), self._space.distributions(values)
        study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))

    def _directions(self) -> list[StudyDirection]:
        return [StudyDirection.MAXIMIZE if aim.up else StudyDirection.MINIMIZE for aim in self.aims]

    # Rows and specs

    def spec(self, values: Values, seed: int | None = None) -> RunSpec:
        """The run with these values, of the first seed if none is given.

        Raises:
            ValueError: the task cannot do it.
        """
        return self._space.make(values, self.template.seed if seed is None else seed)

    def _in_template(self, values: Values, seed: int) -> RunSpec:
        return replace(with_values(self.template, values), seed=seed)

    def _key(self, spec: RunSpec) -> str:
        return run_key(spec, self.task_version)

    def _values(self, spec: RunSpec) -> Values | None:
        """The values of a run of a trial; None if it is none."""
        if spec.seed not in self.seeds or (values := self._space.values(spec)) is None:
            return None
        try:
            return values if self._key(self.spec(values, spec.seed)) == self._key(spec) else None
        except ValueError:
            return None

    def _holds(self, row: Row) -> bool:
        """Whether a row is that of a run of a trial."""
        key = row["key"]
        if key not in self._known:
            same = row["task_version"] == self.task_version and row["task"] == self.template.task
            values = self._values(spec := RunSpec.from_dict(row)) if same else None
            self._known[key] = values if values is not None and self._key(spec) == key else None
        return self._known[key] is not None

    def _found(self, row: Row) -> Values:
        values = self._known[row["key"]]
        assert values is not None
        return values

    def _state(self, rows: Sequence[Row]) -> TrialState:
        if rows[0]["status"] == "pruned":
            return TrialState.PRUNED
        return TrialState.COMPLETE if self.is_complete(rows) else TrialState.FAIL

    def is_complete(self, rows: Sequence[Row]) -> bool:
        """Whether all these runs ended well, with a number for every objective."""
        known = all(math.isfinite(aim.of(row)) for aim in self.aims for row in rows)
        return known and all(row["status"] in ("passed", "missed") for row in rows)


def rank(scores: Sequence[float], aims: Sequence[Objective]) -> list[float]:
    """What settings are ordered by, the best first: the last objective, then, as many may be alike in it, the others in their
    order. So the first of some settings lies on their front."""
    costs = [-score if aim.up else score for score, aim in zip(scores, aims, strict=True)]
    return [costs[-1], *costs[:-1]]


def with_others(leading: Sequence[Trial], more: Iterable[Trial]) -> list[Trial]:
    """Trials, then those of `more` that are none of them."""
    numbers = {trial.number for trial in leading}
    return [*leading, *(trial for trial in more if trial.number not in numbers)]


def _as_modelled(scores: Sequence[float], geometric: Sequence[bool]) -> list[float]:
    return [math.log(score) if logs else score for score, logs in zip(scores, geometric, strict=False)]
