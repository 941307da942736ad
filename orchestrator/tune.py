"""The tune study: which settings of a task are best, confirmed on seeds that the search has not seen.

    python -m orchestrator.tune --search lr=1e-4..1e-2:log,width=32|64|128 --objective mse

Optuna proposes trials; the best of them are trained anew on fresh seeds, and only these trainings say which one wins and how
good it is, for the best of many trials is partly the luckiest.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, invocation, main_of, one_of
from orchestrator.command.programs import Described
from orchestrator.command.progress import Running
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.searched import OF_RUN, read_search
from orchestrator.command.subject import given, option_of, own_task, task_app
from orchestrator.command.tables import FittingTable
from orchestrator.engine.estimate import StepTimes
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.searches import Latest, Row, Rows, ending
from orchestrator.searches.confirm import ConfirmBest
from orchestrator.searches.objective import Objective, direction_of
from orchestrator.searches.optuna import PRUNERS, SAMPLERS, OptunaSearch
from orchestrator.searches.space import FIELDS, Dimension, Space, Values, has_value, value_of
from orchestrator.store import Question
from orchestrator.store.questions import TRIALS
from trainables.check import check_task, counts_of
from trainables.program import PATH as PROGRAM_TASK
from trainables.program import ProgramTask, names_in
from trainables.settings import Setting, complete, settings_class, settings_of, spec_fields
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import Task
from trainables.trial import numbers_of

if TYPE_CHECKING:
    from analysis.tune import Answer

NAME = "tune"
TASK = "trainables.bumps:BumpTask"
FIRST = MOST_PLANNED
"""The first seed of a trial: no other study comes so far, so none takes a pruned trial for a run of its own."""
FRESH = 1000
"""Trials of one search have so many seeds for themselves, and their confirmation the same number of others."""
MOST_CHECKED = 24
"""Points of the space that are made and measured once before anything is trained."""
GUESSED_SHARE = 0.6
"""Share of its steps that a trial is expected to take on average, where some are pruned."""
SHOWN = 5
"""Trials in the live table."""


@dataclass(slots=True)
class TuneStudy:
    """Trials, their confirmation, and what they say; a `Study`."""

    task: Task
    search: ConfirmBest
    settings: dict[str, Any]
    varied: Sequence[str]
    """What may differ between the runs: the searched settings, and those that the task chooses with them."""
    export: Path | None = None
    _known: Latest[Answer] = field(init=False)

    def __post_init__(self) -> None:
        self._known = Latest(self._answer_of)

    @property
    def name(self) -> str:
        return NAME

    @property
    def of_program(self) -> bool:
        """Whether the runs are those of a program, whose steps say nothing of the time that it takes."""
        return isinstance(self.task, ProgramTask)

    @property
    def dimensions(self) -> Sequence[Dimension]:
        """What is searched."""
        return self.search.tuning.dimensions

    @property
    def _names(self) -> list[str]:
        return [dimension.name for dimension in self.dimensions]

    @property
    def question(self) -> Question:
        tuning = self.search.tuning
        words = {"sampler": tuning.sampler, "pruner": tuning.pruner, "objectives": [aim.text for aim in tuning.aims]}
        seeds = {"seed": tuning.seed, "trial_seeds": list(tuning.seeds), "fresh_seeds": list(self.search.seeds)}
        counts = {"trials": tuning.trials, "confirm": self.search.most}
        return Question(
            study=NAME,
            task_version=self.task.version,
            specs={TRIALS: [tuning.template]},
            search={"space": self.settings["search"], "varied": list(self.varied), **words, **seeds, **counts},
            settings=self.settings,
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        template = self.search.tuning.template
        seeds = {*self.search.tuning.seeds, *self.search.seeds}
        same = ("task", "dataset", "N", "decoder", "holdout", "data_count")
        shared = {name: {getattr(template, name)} for name in same if name not in self.varied}
        return {"task_version": {self.task.version}, "seed": seeds} | shared

    def keeps_weights(self, spec: RunSpec) -> bool:
        return False

    def keeps_end(self, spec: RunSpec) -> bool:
        return False

    def answered(self, rows: Rows) -> bool:
        """Whether a trial is confirmed and none of the fresh trainings failed; or no trial is complete, and none failed."""
        found = [row for _, row in self.search.confirmed(rows)]
        if not found:
            return all(trial.row["status"] != "failed" for trial in self.search.tuning.finished_trials(rows))
        return all(row is not None and row["status"] != "failed" for row in found)

    def doubt(self, rows: Rows) -> str | None:
        return self._answer(rows).doubt()

    def line(self, row: Mapping[str, Any]) -> str:
        spec = RunSpec.from_dict(row)
        kind = "trial" if spec.seed in self.search.tuning.seeds else "fresh seed"
        told = ", ".join(f"{aim.name} {aim.of(row):.3g}" for aim in self.search.tuning.aims)
        values = ", ".join(f"{name} {short(value_of(spec, name))}" for name in self._names if has_value(spec, name))
        run = f"{kind} ({values}) seed {spec.seed}: {ending(row)}"
        return run if row["status"] == "failed" else f"{run} ({told}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        tables = [self._trials_table(rows, running)]
        if self.search.chosen(rows):
            tables.append(self._confirmed_table(rows, running))
        return Group(*tables, *map(Text, self._answer(rows).lines()))

    def _trials_table(self, rows: Rows, running: Mapping[str, Running]) -> FittingTable:
        tuning = self.search.tuning
        trials = tuning.finished_trials(rows)
        counts = Counter(ending(trial.row) for trial in trials)
        ended = [f"{counts[name]} {name}" for name in ("pruned", "diverged", "failed") if counts[name]]
        table = FittingTable(f"search: {', '.join([f'{len(trials)} of {tuning.trials} trials', *ended])}")
        for name in ("trial", *self._names, *(aim.name for aim in tuning.aims), "seeds", "state"):
            table.add_column(name.replace("_", " "), justify="right")
        best = tuning.ranked(rows)[:SHOWN] if len(tuning.aims) == 1 else tuning.front(rows)[:SHOWN]
        leading = [trial.number for trial in best]
        for trial in [*best, *(t for t in trials[-3:] if t.number not in leading)]:
            first = bool(best) and trial.number == best[0].number and len(tuning.aims) == 1
            state = "best" if first else "front" if len(tuning.aims) > 1 and trial.number in leading else ending(trial.row)
            scores = [f"{score:.3g}" for score in trial.scores] or [""] * len(tuning.aims)
            cells = [str(trial.number), *self._cells(trial.values), *scores, str(len(trial.rows)), state]
            table.add_row(*cells, style="bold green" if first else "")
        for run in running.values():
            if run.spec.seed in tuning.seeds:
                share = f"seed {run.spec.seed}, {run.step / run.spec.max_steps:.0%}"
                values = {name: value_of(run.spec, name) for name in self._names}
                table.add_row("", *self._cells(values), *[""] * len(tuning.aims), "", share, style="dim")
        return table

    def _confirmed_table(self, rows: Rows, running: Mapping[str, Running]) -> FittingTable:
        from analysis.tune import interval_text

        tuning = self.search.tuning
        table = FittingTable("confirmed on fresh seeds: mean and 95 % interval")
        for name in ("setting", "seeds", *(f"{aim.name}{part}" for aim in tuning.aims for part in (" in the search", ""))):
            table.add_column(name, justify="left" if name == "setting" else "right")
        busy = [run.spec for run in running.values()]
        of_setting = {row["setting"]: row for row in self._answer(rows).confirmed.to_dict("records")}
        for setting, specs in self.search.finals(rows).items():
            found = of_setting[setting]
            done = sum(self.search.row(rows, spec) is not None for spec in specs)
            started = sum(spec in busy for spec in specs)
            cells = [c for aim in tuning.aims for c in (f"{found[f'{aim.name}_search']:.3g}", interval_text(found, aim.name))]
            style = "bold green" if found["winner"] else ""
            table.add_row(setting, f"{done}/{len(specs)}" + (f" +{started}" if started else ""), *cells, style=style)
        return table

    def _cells(self, values: Values) -> list[str]:
        return [short(values[name]) if name in values else "-" for name in self._names]

    def seconds_left(self, rows: Rows) -> float | None:
        found = self._rows(rows)
        if self.of_program:
            done = [row["seconds"] for row in found if row["status"] != "failed"]
            return self._runs_left(rows) * sum(done) / len(done) if done else None
        times = StepTimes.of(found)
        return self._steps_left(rows) * times(self.search.tuning.template) if times else None

    def plan(self, rows: Rows) -> tuple[RenderableType, float | None]:
        """What is searched, and the runs of the search and its confirmation: done, to do, and their estimated time."""
        tuning = self.search.tuning
        space = FittingTable("searched")
        for name in ("setting", "values"):
            space.add_column(name)
        for dimension in self.dimensions:
            space.add_row(dimension.name, dimension.text)
        done = len(tuning.finished_trials(rows))
        table = FittingTable("the plan")
        for name in ("part", "runs done", "runs to do", "steps of a run"):
            table.add_column(name, justify="left" if name == "part" else "right")
        steps = "" if self.of_program else f"{tuning.template.max_steps}"
        fewer = ", fewer if pruned" if tuning.pruner != "none" else ""
        table.add_row("trials", str(done), str(tuning.trials - done), steps and steps + fewer)
        if len(tuning.seeds) > 1:
            more = sum(len(trial.rows) - 1 for trial in tuning.finished_trials(rows))
            most = (tuning.trials - done) * (len(tuning.seeds) - 1)
            table.add_row("their further seeds", str(more), f"at most {most}", steps)
        for setting, specs in self.search.planned(rows).items():
            ready = sum(self.search.row(rows, spec) is not None for spec in specs)
            table.add_row(f"{setting}, fresh seeds", str(ready), str(len(specs) - ready), steps)
        s = self.settings
        aims = ", ".join(aim.text for aim in tuning.aims)
        where = Text(
            f"{aims}; {s['sampler']} sampler, {s['pruner']} pruner\n"
            f"rows go to {s['store']}/runs, tables and figures to {s['out']}"
        )
        if self.of_program:
            return Group(space, table, where), self.seconds_left(rows)
        times = StepTimes.of(self._rows(rows))
        times.measure(tuning.template, self.task)
        return Group(space, table, where), self._steps_left(rows) * times(tuning.template)

    def _runs_left(self, rows: Rows) -> float:
        """Those expected: of further seeds, a third of the trials takes all."""
        tuning = self.search.tuning
        further = (len(tuning.seeds) - 1) / 3
        trials = (tuning.trials - len(tuning.finished_trials(rows))) * (1 + further)
        finals = [spec for specs in self.search.planned(rows).values() for spec in specs]
        return trials + sum(self.search.row(rows, spec) is None for spec in finals)

    def _steps_left(self, rows: Rows) -> float:
        share = GUESSED_SHARE if self.search.tuning.pruner != "none" and not self.search.tuning.finished(rows) else 1.0
        return self._runs_left(rows) * self.search.tuning.template.max_steps * share

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Tables, JSON and figures, at the end of a launch; and the Optuna study if it was asked for and is complete."""
        from analysis.files import write_tune

        if not force or not self._rows(rows):
            return []
        files = write_tune(self._answer(rows), out)
        if self.export is not None and self.search.tuning.finished(rows):
            self.search.tuning.export(rows, self.export, NAME)
            files.append(self.export)
        return files

    def answer(self, rows: Rows) -> dict[str, Any]:
        return self._answer(rows).to_json()

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known."""
        return self._known.of(rows)

    def _answer_of(self, rows: Rows) -> Answer:
        from analysis.tune import Answer

        return Answer.of_search(self.search, rows, self.settings)

    def _rows(self, rows: Rows) -> list[Row]:
        """Those of this study."""
        trials = [row for trial in self.search.tuning.finished_trials(rows) for row in trial.rows]
        return trials + [row for _, row in self.search.confirmed(rows) if row is not None]


def short(value: Scalar) -> str:
    """A setting in a table cell."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a run is made of the searched settings: all else is as the user gave it, or as the task chooses it.

    Args:
        settings: what the user gave of the settings of the task.
        fields: of a `RunSpec`, those of the training; a `data_count` of None is the largest that the task allows.
        precision: that of a decoder.
    """

    task: Task
    path: str
    settings: Mapping[str, Scalar]
    fields: Mapping[str, Any]
    precision: Callable[[str], str]

    def make(self, values: Values, seed: int) -> RunSpec:
        """
        Raises:
            ValueError: the task cannot do it.
        """
        of_task = spec_fields(self.task, self._of_task(values))
        of_run: dict[str, Any] = {**self.fields, **{name: value for name, value in values.items() if name in OF_RUN}}
        count = of_run.pop("data_count")
        precision = self.precision(of_task["decoder"])
        spec = RunSpec(task=self.path, seed=seed, data_count=0, precision=precision, **of_task, **of_run)
        if isinstance(self.task, ProgramTask):
            spec = self.task.describe(spec)
        counts = counts_of(self.task, spec)
        if count is not None and not counts.low <= count <= counts.high:
            raise ValueError(f"data_count must lie in {counts.low}..{counts.high} at N = {spec.N}, not {count}")
        return spec.with_count(counts.high if count is None else count)

    def matters(self, values: Values) -> Collection[str]:
        """The settings that matter, given some of those that are searched.

        Raises:
            ValueError: the task cannot do them, or its `matters` gives no names.
        """
        names = self.task.matters(complete(self.task, self._of_task(values)))  # type: ignore[attr-defined]
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
        if up is None:
            raise UserError(f"--objective {name!r} does not tell which way is better: write min:{name} or max:{name}")
        found.append(Objective(name, up))
    if len({aim.name for aim in found}) < len(found):
        raise UserError(f"--objective {text!r} names a number twice: keep one of the two")
    return tuple(found)


def with_curves(aims: Sequence[Objective], error_is_mse: bool) -> tuple[Objective, ...]:
    """Objectives with the curves that rows of a task have of them."""
    of_error = "mse" if error_is_mse else "loss"
    curves = {"accuracy": "curve_accuracy", of_error: "curve_error"}
    return tuple(dataclasses.replace(aim, curve=curves.get(aim.name, "")) for aim in aims)


def check_points(task: Task, space: Space) -> list[RunSpec]:
    """The runs at the corners of the space, all of which the task can do. Some of them are made and measured.

    Raises:
        UserError: it cannot do one, which the message names.
    """
    found, corners = [], space.corners()
    for values in corners:
        try:
            found.append(space.make(values, 0))
        except ValueError as error:
            told = ", ".join(f"{name}={short(value)}" for name, value in values.items())
            raise UserError(f"--search allows {told}, which cannot be trained: {error}") from None
    for dimension in space.dimensions:
        if not any(dimension.name in values for values in corners):
            why = "of the settings that are searched, none makes it matter"
            raise UserError(f"--search {dimension.name} would change nothing: {why}")
    if not isinstance(task, ProgramTask):
        made = (space.make(values, 0) for values in space.edges())
        alike: dict[str, Any] = {"lr": 1.0, "weight_decay": 0.0, "batch_size": 1, "max_steps": 1, "depth": 0, "width": 1}
        different = {dataclasses.replace(spec, **alike): spec for spec in made}  # the last of each, which is the largest
        for spec in list(different.values())[:MOST_CHECKED]:
            checked(check_task, task, spec)
    return found


def tune(
    search: Annotated[
        list[str],
        opt.asked(
            help="Settings and their values: NAME=LOW..HIGH, NAME=LOW..HIGH:log, NAME=LOW..HIGH:STEP, NAME=A|B|C, or "
            "NAME=0|LOW..HIGH:log, separated by commas; repeatable. NAME is lr, weight_decay, batch_size, max_steps, schedule, "
            "N, data_count, or any setting of the task."
        ),
    ],
    objective: Annotated[
        str,
        opt.asked(
            help="What is to be best on what is held out: `mse`, `accuracy`, `loss`, `steps` (to the target), or any "
            "measure of the task; `min:NAME` or `max:NAME` where the name does not tell the direction; `A,B`: a Pareto front."
        ),
    ] = "mse",
    trials: Annotated[int, opt.asked(min=1, max=MOST_PLANNED, help="Number of trials of the search.")] = 60,
    confirm: Annotated[int, opt.asked(min=1, max=100, help="The best so many trials are trained anew.")] = 3,
    seeds: Annotated[int, opt.asked(min=1, max=FRESH, help="Fresh seeds of each of these, which no trial used.")] = 5,
    target: opt.Target = 0.9,
    sampler: Annotated[
        str | None,
        opt.searched(
            help="How Optuna chooses: `tpe`, `gp`, `nsga2`, `random` or `grid`.", show_default="tpe; nsga2 for two objectives"
        ),
    ] = None,
    pruner: Annotated[
        str | None,
        opt.searched(
            help="Ends hopeless trials: `median`, `percentile` or `none`.",
            show_default="median, where runs have a curve of the objective and equal steps",
        ),
    ] = None,
    seeds_per_trial: Annotated[
        int, opt.searched(min=1, max=FRESH, help="Seeds that a trial is trained on while it is among the best.")
    ] = 1,
    search_seed: Annotated[
        int, opt.searched(min=0, max=2**31 - 1, help="Seed of the sampler; every search seed has its own seeds of trainings.")
    ] = 0,
    export_optuna: Annotated[
        Path | None, opt.searched(help="Write the trials to this new SQLite file; `optuna-dashboard sqlite:///FILE` shows it.")
    ] = None,
    task: opt.TaskPath = TASK,
    N: Annotated[int, opt.subject("--N", min=1, max=LIMITS["N"][1], help="Size of the problem; of bumps, the grid.")] = 16,
    data_count: Annotated[
        int | None, opt.subject(min=0, max=LIMITS["data_count"][1], help="Training samples.", show_default="all there are")
    ] = None,
    subject: Any = None,
    option: opt.TaskOption = None,
    program: opt.Program = None,
    program_settings: opt.ProgramSettings = None,
    vary: opt.Vary = None,
    counts: opt.DataCounts = None,
    max_steps: opt.MaxSteps = 2000,
    schedule: Annotated[str, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.")] = "constant",
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 0.01,
    precision: opt.Precision = "auto",
    *,
    where: LaunchOptions,
) -> int:
    """Which settings of a task are best, and how good are they on seeds that the search has not seen?

    Optuna proposes trials from the space of `--search`; hopeless ones are pruned. With `--seeds-per-trial`, a trial takes one
    seed after another while it is among the best third, or within its standard error of the best. The best `--confirm` trials
    are then trained on `--seeds` fresh seeds. The winner is the best of these, and what the fresh seeds say of it is the
    answer: the best value of many trials is too good, partly because its seed was lucky. Finished runs are kept in the store:
    the same command continues after any interruption, and more `--trials` build on those there are.

    **Examples**

    `python -m orchestrator.tune --search "lr=1e-3..1e-1:log,width=16|64" --decoder mlp --N 8 --max-steps 300 --trials 12`   a
    minute

    `python -m orchestrator.tune --search "lr=1e-4..1e-2:log,width=32|64|128,decoder=cnn|mlp" --objective mse`

    `python -m orchestrator.tune --search "weight_decay=0|1e-4..1:log" --objective accuracy --seeds-per-trial 3`   0, or a
    range

    `python -m orchestrator.tune --search "lr=1e-4..1e-2:log,width=16..128:16" --objective mse,id_mse`   a Pareto front

    `python -m orchestrator.tune --task mine:Task --search "lr=1e-4..1e-2:log"`   a task of your own

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer, no complete
    trial); 2 a mistake in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    aims = read_objectives(objective)
    sampler = one_of("--sampler", sampler or ("tpe" if len(aims) == 1 else "nsga2"), SAMPLERS)
    if pruner is not None:
        one_of("--pruner", pruner, PRUNERS)
    one_of("--schedule", schedule, SCHEDULES)
    if export_optuna is not None and (export_optuna.exists() or not export_optuna.parent.is_dir()):
        why = "exists" if export_optuna.exists() else "is in a folder that does not exist"
        raise UserError(f"--export-optuna {str(export_optuna)!r} {why}: give the name of a new file")
    chosen: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "batch_size": batch_size, "max_steps": max_steps}
    chosen |= {"schedule": schedule, "N": N, "data_count": data_count}
    usual = {name: inspect.signature(tune).parameters[name].default for name in chosen}
    changed = [name for name, value in chosen.items() if value != usual[name]]
    task_: Task
    if program is not None:
        described = Described(program, program_settings, vary or (), counts)
        task, task_ = PROGRAM_TASK, described.task()
        if unknown := [aim.name for aim in aims if aim.name in ("id_mse", "loss", "steps")]:
            told = "choose accuracy, mse, or a measure that it prints"
            raise UserError(f"--objective {unknown[0]} is nothing that a program tells of what is held out: {told}")
        if target == inspect.signature(tune).parameters["target"].default:
            target = 1.0  # a program is ended when it reaches the target, and its accuracy would be no better than that
        if precision not in ("auto", "float32"):
            raise UserError(f"--precision {precision} is of trainings here: a program chooses its own, so omit the option")
        precision = "float32"
    else:
        for name, value in {"--program-settings": program_settings, "--vary": vary, "--counts": counts}.items():
            if value is not None:
                raise UserError(f"{name} is about a program: add --program")
        task_ = own_task(task)
    settings_given = given(task_, subject, option)
    known: dict[str, Setting] = {**OF_RUN, **settings_of(settings_class(task_))}
    dimensions = read_search(search, known)
    names = [dimension.name for dimension in dimensions]
    for name in names:
        if name in settings_given or name in changed:
            raise UserError(f"--search and {option_of(name)} both give {name}: keep one of the two")
    if program is not None:
        _check_named(described, task_, names, changed)
    if "steps" in [aim.name for aim in aims] and "max_steps" in names:
        raise UserError("--objective steps counts a run that never passes as max_steps: search other settings than max_steps")
    if trials * seeds_per_trial + confirm * seeds > MOST_PLANNED:
        raise UserError(f"more than {MOST_PLANNED} runs are too many: ask for fewer --trials or --seeds-per-trial")
    stop = "target" if "steps" in [aim.name for aim in aims] else "budget"

    @cache
    def precision_of(decoder: str) -> str:
        return opt.resolve_precision(precision, decoder, where.on_gpu(task_, decoder))

    recipe = Recipe(task_, task, settings_given, {**chosen, "target": target, "stop": stop}, precision_of)
    matters = recipe.matters if hasattr(task_, "matters") else None
    space = Space(dimensions, recipe.make, matters)
    corners = check_points(task_, space)
    first_seed = FIRST + search_seed * 2 * FRESH
    template = dataclasses.replace(corners[0], seed=first_seed)
    if not isinstance(task_, ProgramTask):
        numbers, error_is_mse = checked(numbers_of, task_, template)
        for aim in aims:
            if aim.name not in numbers:
                raise UserError(f"--objective {aim.name!r} is no number of these runs: choose of {', '.join(numbers)}")
        aims = with_curves(aims, error_is_mse)
    if pruner is None:
        pruner = "median" if len(aims) == 1 and aims[0].curve and "max_steps" not in names else "none"
    made = partial(OptunaSearch, make=recipe.make, matters=matters, seeds=seeds_per_trial)
    tuning = checked(made, template, task_.version, dimensions, trials, sampler, pruner, aims, search_seed)
    if sampler == "grid" and tuning.trials > trials:
        raise UserError(f"the least grid of this space has {tuning.trials} points: raise --trials to that, or search less")
    fresh = range(first_seed + FRESH, first_seed + FRESH + seeds)
    fields = [f.name for f in dataclasses.fields(RunSpec) if f.name not in ("seed", "options")]
    varied = [name for name in fields if len({getattr(spec, name) for spec in corners}) > 1]
    varied += [name for name, _ in template.options if len({spec.option(name) for spec in corners}) > 1]
    varied = list(dict.fromkeys([*names, *varied]))
    settings = {
        "task": task,
        **{name: value for name, value in template.to_dict().items() if name not in (*varied, "seed", "options", "task")},
        "options": {name: value for name, value in template.options if name not in varied},
        **{"search": {d.name: d.text for d in dimensions}, "objective": [aim.text for aim in aims]},
        **{"trials": trials, "seeds_per_trial": seeds_per_trial, "confirm": confirm, "seeds": seeds},
        **{"sampler": sampler, "pruner": pruner, "search_seed": search_seed, "task_version": task_.version},
        **{"store": where.store, "out": where.folder(NAME), "versions": versions()},
    }
    confirming = ConfirmBest(tuning, {}, (), most=min(confirm, tuning.trials), seeds=fresh)
    return launch(TuneStudy(task_, confirming, settings, varied, export_optuna), where, invocation())


def _check_named(described: Described, task: Task, searched: Sequence[str], changed: Sequence[str]) -> None:
    """
    Raises:
        UserError: the program is not told something that is searched or was given, or its seed.
    """
    assert isinstance(task, ProgramTask)
    assert task.program is not None
    described.check_named(task, 1, 2, changed)
    in_command = names_in(task.program.words, (*FIELDS, "seed", "target", *settings_of(task.settings)))
    for name in searched:
        if name not in in_command:
            raise UserError(f"--search {name} would change nothing: write {{{name}}} in --program, or search other settings")


app = task_app(tune, TASK)
main = main_of(app, "python -m orchestrator.tune")

if __name__ == "__main__":
    main()
