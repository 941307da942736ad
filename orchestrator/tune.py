"""The tune study: which settings of a task are best, confirmed on seeds that the search has not seen.

    python -m orchestrator.tune --search lr=1e-4..1e-2:log,width=32|64|128 --objective mse

Optuna proposes trials; the best of them are trained anew on fresh seeds, and only these trainings say which one wins and how
good it is, for the best of many trials is partly the luckiest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, main_of, one_of
from orchestrator.command.programs import Described, check_no_program, precision_of_program
from orchestrator.command.progress import Running, time_taken
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.recipe import (
    Recipe,
    Tried,
    check_named,
    check_points,
    read_objectives,
    short,
    varied_in,
    with_curves,
)
from orchestrator.command.searched import OF_RUN, check_columns, read_search
from orchestrator.command.subject import given, option_of, own_task, task_app
from orchestrator.command.tables import FittingTable
from orchestrator.command.trials import (
    ExportOptuna,
    SearchSeed,
    SeedsPerTrial,
    check_confirmed,
    check_export,
    check_grid,
    check_planned,
    confirmed_table,
    plan_table,
    trials_table,
    with_export,
    work_left,
)
from orchestrator.engine.estimate import StepTimes, Work
from orchestrator.errors import UserError, printable
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches import Latest, Rows, ending
from orchestrator.searches.axes import BUMPS
from orchestrator.searches.confirm import FRESH, NO_TRIAL, ConfirmBest, first_seed_of
from orchestrator.searches.facts import FREE, MOST_LISTED, Table, kept_as
from orchestrator.searches.objective import COLUMNS, is_hidden
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.samplers import PRUNERS, SAMPLERS
from orchestrator.searches.space import Dimension, Space, Values, has_value
from orchestrator.store import Question
from orchestrator.store.questions import MOST_BYTES, TRIALS
from orchestrator.study import PlainStudy
from trainables.check import names_of
from trainables.program import PATH as PROGRAM_TASK
from trainables.program import VALUES, ProgramTask, names_in
from trainables.settings import Setting, settings_class, settings_of, value_of
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import Task
from trainables.trial import numbers_of

if TYPE_CHECKING:
    from analysis.tune import Answer

NAME = "tune"
TARGET = 0.9
"""The accuracy to reach, if the user does not say. Of a program it is 1: one that ends there would be no better than that."""
MOST_TOLD = 2048
"""Points of a space at which the task is asked what follows from them, so that the question tells it."""


@dataclass(slots=True)
class TuneStudy(PlainStudy):
    """Trials, their confirmation, and what they say; a `Study`."""

    task: Task
    search: ConfirmBest
    settings: dict[str, Any]
    varied: Sequence[str]
    """What may differ between the runs: the searched settings, and those that the task chooses with them."""
    ends: Sequence[RunSpec]
    """The cheapest and the dearest run of what is searched: how long one takes is guessed from these."""
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
            facts=self._facts(),
        )

    def _facts(self) -> dict[str, Any]:
        """What the task says of the space, so that the report makes the search again without it: the searched settings that
        matter, by the others, and all else that differs between runs. Nothing of a space that is too large for tables."""
        space, names = self.search.tuning.searched, [*self._names]
        deciding, points = _deciding(self.dimensions), _few(self.dimensions)
        chosen = {name: [None, *values] for name, values in points.items() if name not in OF_RUN}
        if math.prod(map(len, points.values())) > MOST_TOLD or math.prod(map(len, chosen.values())) > MOST_TOLD:
            return {}
        usual = _usual(self.dimensions)

        def told(values: Values, spec: RunSpec) -> dict[str, Scalar | None]:
            """Of the run with these values what they do not say; None: it does not carry this option."""
            fields = spec.to_dict()
            known = {**fields["options"], **{name: value for name, value in fields.items() if name != "options"}}
            return {name: known.get(name) for name in self.varied if name not in known or name not in {**usual, **values}}

        asked = _asked(self.search.tuning)
        possible = [(kept_as(deciding, values), told(values, spec)) for values, spec in asked if spec is not None]
        impossible = [(kept_as(deciding, values), None) for values in _refused(self.dimensions, asked)]
        found: dict[str, list[tuple[Values, Any]]] = {"follows": [*possible, *impossible]}
        if space.matters is not None:
            found["matters"] = []
            for values in [*_products(chosen), *(values for values, spec in asked if spec is not None)]:
                with contextlib.suppress(ValueError):
                    mattering = space.matters(values)
                    found["matters"].append((kept_as(deciding, values), [name for name in names if name in mattering]))
        tables = {name: Table.of(points) for name, points in found.items()}
        facts = {name: table.to_json() for name, table in tables.items() if table is not None}
        return facts if len(facts) == len(tables) and len(json.dumps(facts)) <= MOST_BYTES // 4 else {}

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        """What surely holds of every run: all else that the task makes of its settings may differ somewhere in the space."""
        seeds = {*self.search.tuning.seeds, *self.search.seeds}
        return {"task": {self.search.tuning.template.task}, "task_version": {self.task.version}, "seed": seeds}

    def answered(self, rows: Rows) -> bool:
        """Whether a trial is confirmed and none of the fresh trainings failed; or no trial is complete, and no run failed. What
        cannot be trained is not waited for."""
        following = self.search.following(rows)
        found = [row for spec, row in following if row is not None or not self.search.blocks(rows, spec)]
        return all(row is not None and row["status"] != "failed" for row in (found if following else self.search.runs(rows)))

    def doubt(self, rows: Rows) -> str | None:
        told = self._known.of(rows).doubt()
        return told if told is not None or self.search.tuning.finished_trials(rows) else NO_TRIAL

    def line(self, row: Mapping[str, Any]) -> str:
        spec = RunSpec.from_dict(row)
        kind = "trial" if spec.seed in self.search.tuning.seeds else "fresh seed"
        told = ", ".join(f"{aim.name} {aim.of(row):.3g}" for aim in self.search.tuning.aims)
        values = ", ".join(f"{name} {short(value_of(spec, name))}" for name in self._names if has_value(spec, name))
        run = f"{kind} ({values}) seed {spec.seed}: {ending(row)}"
        return run if row["status"] == "failed" else f"{run} ({told}, {time_taken(row)})"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        from analysis.tune import interval_text

        with rows.turn:  # all of one moment
            answer, chosen = self._known.of(rows), self.search.chosen(rows)
            tables = [trials_table(self.search.tuning, rows, running, [trial.number for trial in chosen])]
            if chosen:
                tables.append(confirmed_table(self.search, rows, running, answer.confirmed, interval_text))
        return Group(*tables, *map(Text, answer.lines()))

    def work_left(self, rows: Rows) -> Work | None:
        found = self.search.runs(rows)
        if self.of_program:
            done = [row["seconds"] for row in found if row["status"] != "failed"]
            return work_left(self.search, rows, sum(done) / len(done)) if done else None
        times = StepTimes.of(found, on_gpu=rows.on_gpu)
        return work_left(self.search, rows, self._seconds(times)) if all(map(times.knows, self.ends)) else None

    def _seconds(self, times: StepTimes) -> float:
        """Of a run, as far as this can be guessed."""
        return sum(spec.max_steps * times(spec) for spec in self.ends) / len(self.ends)

    def plan(self, rows: Rows) -> tuple[RenderableType, Work | None]:
        """What is searched, and the runs of the search and its confirmation: done, to do, and their estimated time."""
        tuning = self.search.tuning
        space = FittingTable("searched")
        for name in ("setting", "values"):
            space.add_column(name)
        for dimension in self.dimensions:
            space.add_row(dimension.name, dimension.text)
        steps = " to ".join(dict.fromkeys(str(spec.max_steps) for spec in self.ends))
        table = plan_table(self.search, rows, "" if self.of_program else steps)
        s = self.settings
        aims = ", ".join(aim.text for aim in tuning.aims)
        where = Text(
            f"{aims}; {s['sampler']} sampler, {'no' if s['pruner'] == 'none' else s['pruner']} pruner\n"
            + printable(f"rows go to {s['store']}/runs, tables and figures to {s['out']}")
        )
        if (passed_over := Tried.of(tuning.searched, tuning.searched.corners()).passed_over()) is not None:
            where = Text(f"{passed_over}\n{where}")
        if self.of_program:
            return Group(space, table, where), self.work_left(rows)
        times = StepTimes.of(self.search.runs(rows), on_gpu=rows.on_gpu)
        for spec in self.ends:
            times.measure(spec, self.task)
        return Group(space, table, where), work_left(self.search, rows, self._seconds(times))

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Tables, JSON and figures, at the end of a launch; and the Optuna study, if it was asked for and nothing will follow:
        the command that continues takes the name of a new file."""
        from analysis.files import write_tune

        if not force or not self.search.runs(rows):
            return []
        files = write_tune(self._known.of(rows), out)
        if self.export is not None and self.search.finished(rows) and self.answered(rows):
            return with_export(files, self.search.tuning, rows, self.export, NAME)
        return files

    def answer(self, rows: Rows) -> dict[str, Any]:
        told = self._known.of(rows).to_json()
        return told | {"doubt": self.doubt(rows)} if self.search.finished(rows) else told

    def _answer_of(self, rows: Rows) -> Answer:
        """The answer as far as it is known."""
        from analysis.tune import Answer

        return Answer.of_search(self.search, rows, self.settings)


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
            "measure of the task; `min:NAME` or `max:NAME` where the name does not tell the direction. Several, "
            "comma-separated, give a Pareto front."
        ),
    ] = "mse",
    trials: Annotated[int, opt.asked(min=1, max=MOST_PLANNED, help="Number of trials of the search.")] = 60,
    confirm: Annotated[int, opt.asked(min=1, max=100, help="How many of the best trials are trained anew.")] = 3,
    seeds: Annotated[int, opt.asked(min=1, max=FRESH, help="Seeds for each of these; no trial has used them.")] = 5,
    target: Annotated[
        float | None,
        opt.asked(help="Accuracy to reach on what is held out, in (0, 1].", show_default=f"{TARGET}; 1 for a program"),
    ] = None,
    sampler: Annotated[str, opt.searched(help="How Optuna chooses: `tpe`, `gp`, `nsga2`, `random` or `grid`.")] = "tpe",
    pruner: Annotated[
        str | None,
        opt.searched(
            help="Ends a trial early that is worse than the median of the others (`median`) or not in their best quarter "
            "(`percentile`), or none (`none`).",
            show_default="median, for mse, loss and accuracy, where all runs have equal steps",
        ),
    ] = None,
    seeds_per_trial: SeedsPerTrial = 1,
    search_seed: SearchSeed = 0,
    export_optuna: ExportOptuna = None,
    task: opt.TaskPath = BUMPS,
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

    Optuna proposes trials from the space of `--search`; those far behind are pruned. With `--seeds-per-trial`, a trial
    takes one seed after another while it is among the best third, or within its standard error of the best. The best
    `--confirm` trials are then trained on `--seeds` fresh seeds. The winner is the best of these, and what the fresh seeds say
    of it is the answer: the best value of many trials is too good, partly because its seed was lucky. Finished runs are kept in
    the store: the same command continues after any interruption, and more `--trials` build on those there are.

    **Examples**

    `python -m orchestrator.tune --search "lr=1e-3..1e-1:log,width=16|64" --decoder mlp --N 8 --max-steps 300 --trials 12`  # a
    minute

    `python -m orchestrator.tune --search "lr=1e-4..1e-2:log,width=32|64|128,decoder=cnn|mlp" --objective mse`

    `python -m orchestrator.tune --search "weight_decay=0|1e-4..1:log" --objective accuracy --seeds-per-trial 3`  # 0, or a
    range

    `python -m orchestrator.tune --search "lr=1e-4..1e-2:log,width=16..128:16" --objective mse,id_mse`  # a Pareto front

    `python -m orchestrator.tune --task mine:Task --search "lr=1e-4..1e-2:log"`  # a task of your own

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer, no complete
    trial); 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    aims = read_objectives(objective)
    one_of("--sampler", sampler, SAMPLERS)
    one_of("--pruner", pruner or "none", PRUNERS)
    one_of("--schedule", schedule, SCHEDULES)
    check_export(export_optuna, where.store, where.folder(NAME))
    usual = inspect.signature(tune).parameters
    if confirm != usual["confirm"].default:  # which may be more
        check_confirmed(confirm, trials)
    chosen: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "batch_size": batch_size, "max_steps": max_steps}
    chosen |= {"schedule": schedule, "N": N, "data_count": data_count}
    changed = [name for name, value in chosen.items() if value != usual[name].default]
    task_: Task
    if program is not None:
        described = Described(program, program_settings, vary or (), counts)
        task, task_ = PROGRAM_TASK, described.task()
        if unknown := [aim.name for aim in aims if aim.name in ("id_mse", "loss", "steps")]:
            told = "choose accuracy, mse, or a measure that it prints"
            raise UserError(f"a program cannot report {unknown[0]!r} of what is held out, so it is no --objective: {told}")
        changed += ["target"] * (target is not None) + ["save_weights"] * where.save_weights
        target = 1.0 if target is None else target
        precision = precision_of_program(precision)
    else:
        check_no_program(program_settings, vary, counts)
        task_ = own_task(task)
        target = TARGET if target is None else target
    settings_given = given(task_, subject, option)
    known: dict[str, Setting] = {**OF_RUN, **settings_of(settings_class(task_))}
    dimensions = read_search(search, known)
    names = [dimension.name for dimension in dimensions]
    for name in names:
        if name in settings_given or name in changed:
            raise UserError(f"--search and {option_of(name)} both give {name}: keep one of the two")
    check_columns(names, [aim.name for aim in aims])
    if program is not None:
        assert isinstance(task_, ProgramTask)
        _check_seed(task_)
        check_named(described, task_, names, changed)
    if "steps" in [aim.name for aim in aims] and "max_steps" in names:
        raise UserError("--objective steps counts a run that never passes as max_steps: search other settings than max_steps")
    check_planned((trials, seeds_per_trial), (confirm, seeds), "--seeds")
    stop = "target" if "steps" in [aim.name for aim in aims] else "budget"

    @cache
    def precision_of(decoder: str) -> str:
        return opt.resolve_precision(precision, decoder, where.on_gpu(task_, decoder))

    recipe = Recipe(task_, task, settings_given, {**chosen, "target": target, "stop": stop}, precision_of, dimensions)
    matters = recipe.matters if hasattr(task_, "matters") else None
    space = Space(dimensions, recipe.make, matters)
    corners = check_points(task_, space, where.save_weights)
    first_seed = first_seed_of(search_seed)
    template = dataclasses.replace(corners[0], seed=first_seed)
    if not isinstance(task_, ProgramTask):
        numbers, error_is_mse = checked(numbers_of, task_, template)
        for aim in aims:
            if aim.name not in numbers:
                raise UserError(f"--objective {aim.name!r} is no number of these runs: choose of {', '.join(numbers)}")
        _check_hidden(task_, template, [aim.name for aim in aims])
        aims = with_curves(aims, error_is_mse)
    if pruner not in (None, "none") and "max_steps" in names:
        raise UserError(f"--pruner {pruner} compares runs at the same step, and --search has max_steps: use --pruner none")
    if pruner is None:
        pruner = "median" if len(aims) == 1 and aims[0].curve and "max_steps" not in names else "none"
    made = partial(OptunaSearch, make=recipe.make, matters=matters, seeds=seeds_per_trial)
    tuning = checked(made, template, task_.version, dimensions, trials, sampler, pruner, aims, search_seed)
    check_grid(tuning, trials)
    fresh = range(first_seed + FRESH, first_seed + FRESH + seeds)
    inside = [spec for _, spec in _asked(tuning) if spec is not None]
    varied = list(dict.fromkeys([*names, *varied_in([*corners, *tuning.listed(), *inside])]))
    settings = {
        "task": task,
        **{name: value for name, value in template.to_dict().items() if name not in (*varied, "seed", "options", "task")},
        "options": {name: value for name, value in template.options if name not in varied},
        **{"search": {d.name: d.text for d in dimensions}, "objective": [aim.text for aim in aims]},
        **{"trials": trials, "seeds_per_trial": seeds_per_trial, "confirm": confirm, "seeds": seeds},
        **{"sampler": sampler, "pruner": pruner, "search_seed": search_seed},
        **where.origin(NAME, task_.version),
    }
    confirming = ConfirmBest(tuning, min(confirm, tuning.trials), fresh)
    dearness = attrgetter("max_steps", "N", "depth", "width", "batch_size")
    ends = min(corners, key=dearness), max(reversed(corners), key=dearness)  # of several, the last: another than the first
    return launch(TuneStudy(task_, confirming, settings, varied, ends, export_optuna), where)


def _deciding(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Those from which other settings may follow."""
    return [one for one in dimensions if one.name not in FREE]


def _usual(dimensions: Sequence[Dimension]) -> Values:
    """Values of the others."""
    return {one.name: one.ends[0] for one in dimensions if one.name in FREE}


def _few(dimensions: Sequence[Dimension]) -> dict[str, list[Scalar | None]]:
    """Values of those that may decide; both ends and the middle stand for a long range."""
    return {one.name: [*one.points(MOST_LISTED if one.size <= MOST_LISTED else 3)] for one in _deciding(dimensions)}


def _told(dimensions: Sequence[Dimension]) -> Iterator[Values]:
    """Points at which the task is asked what follows from them: the choices of `_few`, unless these are many; then, from the
    first values on and from the last ones, one setting changed at a time, to up to MOST_LISTED values of a range."""
    if math.prod(map(len, (points := _few(dimensions)).values())) <= MOST_TOLD:
        yield from _products(points)
    deciding = _deciding(dimensions)
    for at in (0, -1):
        base = {one.name: one.ends[at] for one in deciding}
        yield from ({**base, one.name: value} for one in deciding for value in one.points(MOST_LISTED))


def _asked(tuning: OptunaSearch) -> list[tuple[Values, RunSpec | None]]:
    """Points at which the task is asked what follows from them, and their runs; None where the task cannot do them. If the
    points of a long range are refused beside some values, the task is asked there at others."""
    space = tuning.searched
    usual = _usual(space.dimensions)

    def ask(values: Values) -> tuple[Values, RunSpec | None]:
        with contextlib.suppress(ValueError):
            values = space.canonical(values)
            return values, space.make({**usual, **values}, 0)
        return values, None

    found = [ask(values) for values in _told(space.dimensions)]
    refused = _refused(space.dimensions, found)
    return [*found, *(ask(values) for values in _others(tuning, refused))]


def _refused(dimensions: Sequence[Dimension], asked: Sequence[tuple[Values, RunSpec | None]]) -> list[Values]:
    """A point of each line of a table of which all points were refused."""
    keys = [json.dumps(kept_as(_deciding(dimensions), values)) for values, _ in asked]
    possible = {key for key, (_, spec) in zip(keys, asked, strict=True) if spec is not None}
    return [*{key: values for key, (values, _) in zip(keys, asked, strict=True) if key not in possible}.values()]


def _others(tuning: OptunaSearch, refused: Sequence[Values]) -> Iterator[Values]:
    """Other points of the lines of these: those that the search has, if they are listed, or up to MOST_LISTED of each line."""
    deciding = _deciding(tuning.dimensions)
    lines = [kept_as(deciding, values) for values in refused]
    if lines != [*refused] and (listed := [*tuning.listed()]):
        points = (values for spec in listed if (values := tuning.searched.values(spec)) is not None)
        keys = set(map(json.dumps, lines))
        yield from (values for values in points if json.dumps(kept_as(deciding, values)) in keys)
        return
    for line, point in zip(lines, refused, strict=True):
        if long := [one for one in deciding if one.name in point and line[one.name] != point[one.name]]:
            side = round(min(MOST_LISTED, MOST_TOLD / len(lines)) ** (1 / len(long)))
            yield from ({**point, **others} for others in _products({d.name: d.points(side)[len(d.words) :] for d in long}))


def _products(choices: Mapping[str, Sequence[Scalar | None]]) -> Iterator[Values]:
    """Every choice of settings; None: without this one."""
    for chosen in itertools.product(*choices.values()):
        yield {name: value for name, value in zip(choices, chosen, strict=True) if value is not None}


def _check_hidden(task: Task, spec: RunSpec, names: Sequence[str]) -> None:
    """
    Raises:
        UserError: the task has a number of its own with the name of a number that every run has.
    """
    if not COLUMNS.keys() & names:
        return
    measured, summarised = checked(names_of, task, spec)
    for name in names:
        if is_hidden(name, measured, summarised):
            raise UserError(
                f"--objective {name} is a number that every run has, and also one that this task measures: rename that of the "
                f"task, for example to own_{name}"
            )


def _check_seed(task: ProgramTask) -> None:
    """
    Raises:
        UserError: the program is not told its seed, so a trial and its confirmation would be the same.
    """
    assert task.program is not None
    if "seed" not in names_in(task.program.words, (*VALUES, *settings_of(task.settings))):
        raise UserError("--program has no {seed}, so a trial and its confirmation would be the same runs: write it there")


app = task_app(tune, BUMPS)
main = main_of(app, "python -m orchestrator.tune")

if __name__ == "__main__":
    main()
