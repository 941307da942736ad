"""The scaling study: how many training images a decoder needs, as the grid grows, before it composes.

    python -m orchestrator.scaling --N 16..64

For every grid size, data set and seed a threshold search finds the least number of images with which the decoder reaches
the target accuracy on coordinates it never saw; a power law is fitted through the thresholds. The same is asked of other
settings, and along others than the grid size:

    python -m orchestrator.scaling --least width --between 4..512 --data-count 500
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import axes as read
from orchestrator.command import options as opt
from orchestrator.command.cli import checked, invocation, main_of, one_of
from orchestrator.command.programs import Described, check_no_program
from orchestrator.command.progress import Running
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.subject import given, own_task, task_app
from orchestrator.command.thresholds import At, at, brackets_table, outlier_text, plan_table, what_is_trained
from orchestrator.engine.estimate import GUESSED_PROBES, GUESSED_STEPS, Pace
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.searches import Latest, Row, Rows
from orchestrator.searches.audits import BUDGET, STOPS
from orchestrator.searches.axes import Axes, value_of
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.narrowing import MOST_SEEDS, threshold_search
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS
from orchestrator.study import bracket_of, facts_of
from trainables.check import check_task
from trainables.program import COUNTS, ProgramTask
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import settings_class, settings_of, spec_fields
from trainables.spec import RunSpec, Scalar
from trainables.task import Task

if TYPE_CHECKING:
    from analysis.scaling import Answer

NAME = "scaling"
TASK = "trainables.bumps:BumpTask"
TIMED = ("dataset", "N", "decoder", "depth", "width", "encoding", "seconds")
"""Columns from which the time of further runs is guessed."""
VARIED = ("dataset", "N", "data_count", "seed", "holdout")
"""Fields of a spec in which the runs of one study differ."""


@dataclass(slots=True)
class ScalingStudy:
    """Thresholds for every data set, grid size (or other value along) and seed; a `Study`."""

    task: Task
    brackets: list[Bracket]
    resolution: float
    settings: dict[str, Any]
    speculate: bool = True
    stop: str = "auto"
    until_width: float | None = None
    search: ThresholdSearch = field(init=False)
    _written: frozenset[At] = frozenset()
    _results: Latest[list[ThresholdResult]] = field(init=False)
    _known: tuple[object, Answer] | None = None
    _typical: dict[At, RunSpec] = field(init=False)
    """A run of each place."""

    def __post_init__(self) -> None:
        how = self.resolution, self.speculate, self.stop
        self.search = threshold_search(self.brackets, *how, self.until_width, _widths)
        self._results = Latest(self.search.answer)
        rungs = map(self.search.rungs, range(len(self.brackets)))
        typical = [values[0 if self.axes.least == "data_count" else len(values) // 2] for values in rungs]
        runs = [b.at(value) for b, value in zip(self.brackets, typical, strict=True)]
        self._typical = {at(run, self.axes.along): run for run in runs}

    @property
    def axes(self) -> Axes:
        return self.brackets[0].axes

    def results(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each threshold, in the order of the brackets that are asked."""
        return self._results.of(rows)

    @property
    def name(self) -> str:
        return NAME

    @property
    def of_program(self) -> bool:
        """Whether the runs are those of a program, whose steps say nothing of the time that it takes."""
        return isinstance(self.task, ProgramTask)

    @property
    def question(self) -> Question:
        names = {"least", "along", "between", "until_width"} & self.settings.keys()
        return Question(
            study=NAME,
            task_version=self.task.version,
            specs={THRESHOLDS: [bracket.template for bracket in self.brackets]},
            search={"resolution": self.resolution, "stop": self.stop, **{name: self.settings[name] for name in sorted(names)}},
            settings=self.settings,
            facts=facts_of(self.brackets),
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        return {"family": self.search.families}

    def keeps_weights(self, spec: RunSpec) -> bool:
        return False

    def keeps_end(self, spec: RunSpec) -> bool:
        return self.search.may_audit(spec)

    def answered(self, rows: Rows) -> bool:
        return all(r.verdict not in ("open", "failed") for r in self.results(rows))

    def doubt(self, rows: Rows) -> str | None:
        return self.search.doubt(rows)

    def line(self, row: Mapping[str, Any]) -> str:
        value, along = value_of(row, self.axes.least), value_of(row, self.axes.along)
        run = f"{row['dataset']} {self.axes.along}={along} seed {row['seed']}: {self.axes.told(value)} {row['status']}"
        if row["stop"] == "target" and not self.of_program:
            run += ", trained to the end"
        if row["accuracy"] is None:
            return run
        return f"{run} (accuracy {row['accuracy']:.3f}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """Each seed's bracket as it narrows, the law as far as it is known, and what there is to say of single thresholds."""
        results = self.results(rows)
        least = self.axes.least.replace("_", " ") if self.of_program or self.axes.least != "data_count" else "images"
        title = f"least {least}" + (f" for accuracy {self.settings['target']:g}" if "target" in self.settings else "")
        if self.axes.is_usual and not self.of_program:
            title += " on held-out coordinates"
        table = brackets_table(title, results, running)
        outliers = (outlier_text(r) for r in results if r.outliers)
        return Group(table, *map(Text, (*self._answer(rows).lines(), *self._cut_short(rows), *outliers)))

    def _cut_short(self, rows: Rows) -> list[str]:
        """A line per data set for thresholds whose lower bound is a run that the step budget ended while it still learned."""
        places: dict[str, dict[Scalar, None]] = {}
        varies = self.of_program or "max_steps" in (self.axes.least, self.axes.along)
        for i, result in () if varies else zip(self.search.numbers(rows), self.results(rows), strict=True):
            if result.lower_ended == BUDGET and result.lower is not None:
                row = self.search.found(rows, i).early.get(result.lower)
                if row is None or row["reason"] == BUDGET:
                    places.setdefault(result.dataset, {})[result.along] = None
        return [
            f"{dataset}: at {self.axes.along} = {', '.join(map(str, found))} some lower bounds are runs that ended after "
            f"{self.settings['max_steps']} steps before they had converged: more steps may lower the threshold"
            for dataset, found in places.items()
        ]

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known; computed anew only when a threshold has been settled since."""
        from analysis.scaling import Answer

        results = self.results(rows)
        settled = tuple((r.family, r.along, r.runs, r.lower_ended, r.rule) for r in results if r.verdict != "open")
        if self._known is None or self._known[0] != settled:
            self._known = settled, Answer.of_results(results, self.settings)
        return self._known[1]

    def seconds_left(self, rows: Rows) -> float | None:
        """Probes and audits left, of as many steps as those of their grid size and data set so far."""
        pace = self._pace(rows)
        if not pace.times:
            return None
        return sum(self._seconds_left(r, pace) for r in self.results(rows) if r.verdict == "open")

    def _seconds_left(self, result: ThresholdResult, pace: Pace) -> float:
        """Work that one open threshold may still take."""
        spec = self._typical[result.dataset, result.along]
        probes = result.probes_left or (0 if result.audits_left and result.upper is not None else GUESSED_PROBES)
        return (probes * pace.steps(spec) + result.audits_left * spec.max_steps) * pace.times(spec)

    def _pace(self, rows: Rows) -> Pace:
        """How long runs take. What N means to a program is not known, so nothing is assumed of its time."""
        return Pace.of(self._timed_runs(rows), power=0.0 if self.of_program else 2.0)

    def _timed_runs(self, rows: Rows) -> list[Row]:
        """Finished runs as the search asks for them. Audits are reckoned apart; under `budget` there are no other runs."""
        families = [self.search.found(rows, i) for i in self.search.numbers(rows)]
        ways = [way for f in families for way in ((f.full, f.early) if self.stop == "budget" else (f.early,))]
        found = [row for way in ways for row in way.values()]
        if self.of_program:  # a run is one step
            return [{**{name: row[name] for name in TIMED}, "steps": 1} for row in found if row["status"] != "failed"]
        return [row for row in found if row["steps"]]

    def plan(self, rows: Rows) -> tuple[RenderableType, float | None]:
        """Runs done and to do, and how long they may take, judged by rows in the store or by a few steps timed here. How long a
        program takes is not known before it has run."""
        results = self.results(rows)
        pace = self._pace(rows)
        if not pace.times and not self.of_program:
            self._measure(pace)
        seconds = dict.fromkeys(self._typical, 0.0)
        for r in results:
            if r.verdict == "open":
                seconds[r.dataset, r.along] += self._seconds_left(r, pace)
        table = plan_table(results, seconds if pace.times else {}, GUESSED_PROBES)
        where = (
            f"{what_is_trained(self.brackets[0].template)}\n"
            f"rows go to {self.settings['store']}/runs, the table and the figure to {self.settings['out']}"
        )
        return Group(table, Text(where)), sum(seconds.values()) if pace.times else None

    def _measure(self, pace: Pace) -> None:
        """Time a few steps at each data set's smallest grid, here and now, and guess how many a run takes."""
        steps = GUESSED_STEPS
        for spec in sorted(self._typical.values(), key=lambda spec: spec.N):
            if spec.dataset not in pace.mean_steps:
                pace.times.measure(spec if spec.data_count else spec.with_count(1), self.task)
                # under `budget` half of the runs, which do not pass, take all steps
                pace.mean_steps[spec.dataset] = {spec.N: (steps + spec.max_steps) // 2 if self.stop == "budget" else steps}

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """`scaling.csv`, `.json`, `.png` and `.svg`, from the first answered grid size on, renewed with every further one."""
        results = self.results(rows)
        open_places = {(r.dataset, r.along) for r in results if r.verdict == "open"}
        answered = frozenset((r.dataset, r.along) for r in results) - open_places
        if not (answered - self._written) and not (force and any(r.runs for r in results)):
            return []
        self._written = answered
        from analysis.files import write_scaling

        return write_scaling(self._answer(rows), out)

    def answer(self, rows: Rows) -> dict[str, Any]:
        outliers = [
            {"dataset": r.dataset, self.axes.along: r.along, "seed": r.seed, f"{self.axes.least}s": list(r.outliers)}
            for r in self.results(rows)
            if r.outliers
        ]
        return {**self._answer(rows).to_json(), "outliers": outliers}


def _widths(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
    from analysis.scaling import widths

    return widths(results)


def scaling(
    N: opt.Sizes = "16..64",
    datasets: opt.Datasets = None,
    target: opt.Target = 0.9,
    seeds: opt.Seeds = 3,
    least: opt.Least = "data_count",
    along: opt.Along = "N",
    between: opt.Span = None,
    data_count: opt.FixedCount = None,
    resolution: opt.Resolution = 0.05,
    until_width: opt.UntilWidth = None,
    speculate: opt.Speculate = True,
    stop: opt.Stop = "auto",
    task: opt.TaskPath = TASK,
    subject: Any = None,
    option: opt.TaskOption = None,
    program: opt.Program = None,
    program_settings: opt.ProgramSettings = None,
    vary: opt.Vary = None,
    counts: opt.DataCounts = None,
    max_steps: opt.MaxSteps = 2000,
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 0.01,
    precision: opt.Precision = "auto",
    *,
    where: LaunchOptions,
) -> int:
    """How many training images does a decoder need before it composes, and how does that grow with the grid?

    For every grid size, data set and seed, finds the least number of images with which the decoder reaches the target
    accuracy on coordinates it never saw, fits a power law, and draws it. Hopeless runs are given up early. Those that the
    answer rests on are then trained to the end, in case their accuracy rises late (`--stop`). Finished runs are kept in the
    store: the same command continues after any interruption and trains nothing twice. With more seeds or sizes it trains
    only the new ones. The least of another number can be asked (`--least`), and along another setting (`--along`).

    **Examples**

    `python -m orchestrator.scaling --N 16,24 --decoder mlp`   two sizes, a minute

    `python -m orchestrator.scaling --N 16..64`   the whole study

    `python -m orchestrator.scaling --N 16..64 --dry-run`   what would be done, and how long it may take

    `python -m orchestrator.scaling --N 16..64 --address auto`   the same on the Ray cluster this machine belongs to

    `python -m orchestrator.scaling --least width --between 4..512 --data-count 200 --N 16,24,32`   the least width

    `python -m orchestrator.scaling --along width=32,64,128 --N 24`   the least number of images as the width grows

    `python -m orchestrator.scaling --program "python train.py {data_count} {N} {seed}" --counts 10..1200 --N 8,16`   a script
    of your own, which prints its accuracy

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    one_of("--stop", stop, STOPS)
    trained: dict[str, Any] = {"max_steps": max_steps, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay}
    trained["target"] = target
    usual = {name: parameter.default for name, parameter in inspect.signature(scaling).parameters.items()}
    chosen = [name for name, value in trained.items() if value != usual[name]]
    described = None
    if program is not None:
        described = Described.of(program, program_settings, vary or (), counts, least, between, data_count)
        task = PROGRAM_TASK
    else:
        check_no_program({"--program-settings": program_settings, "--vary": vary, "--counts": counts})
    task_: Task = own_task(task) if described is None else described.task()
    asked = read.read_axes(task_, least, along, between, N, usual["N"])
    if described is not None:
        named = [*(name for name in chosen if name != "target"), *(name for name in asked.taken if name in trained)]
        assert isinstance(task_, ProgramTask)
        described.check_named(task_, len(asked.sizes), seeds, named)
        if precision not in ("auto", "float32"):
            raise UserError(f"--precision {precision} is of trainings here: a program chooses its own, so omit the option")
        precision, stop = "float32", "budget"  # none is ever given up
    settings_given = given(task_, subject, option)
    read.check_free(asked, [*settings_given, *chosen])
    read.check_alone(task_, asked, settings_given)
    read.check_precision(asked, resolution, until_width, seeds)
    known = settings_of(settings_class(task_))
    words = (known["dataset"].words if "dataset" in known else ()) or (spec_fields(task_, {})["dataset"],)
    picked = list(dict.fromkeys(words if datasets is None else (d.strip() for d in datasets.split(","))))
    most = seeds if until_width is None else max(seeds, MOST_SEEDS)
    if (thresholds := len(picked) * len(asked.values) * most) > MOST_PLANNED:
        raise UserError(f"{thresholds} thresholds are too many (at most {MOST_PLANNED}): ask for fewer sizes or --seeds")
    brackets: list[Bracket] = []
    for dataset in picked:
        one_of("--datasets", dataset, words)
        for place, along_it in enumerate(asked.values):
            of_task = settings_given | ({"dataset": dataset} if "dataset" in known else {})
            of_run = trained | {"N": asked.sizes[0], "data_count": read.fixed_count(asked, data_count, program is not None)}
            for name, first in asked.first(along_it).items():
                (of_task if name in known else of_run)[name] = first
            fields = checked(spec_fields, task_, of_task)
            decoder = fields["decoder"]
            on_gpu = where.on_gpu(task_, decoder)
            of_run["precision"] = opt.resolve_precision(precision, decoder, on_gpu)
            spec = checked(RunSpec, task=task, seed=0, **fields, **of_run)
            if program is None and (place == 0 or not asked.axes.is_usual):
                checked(check_task, task_, spec)
            for seed in range(seeds):
                template = dataclasses.replace(spec, seed=seed)
                if isinstance(task_, ProgramTask):
                    template = checked(task_.describe, template)
                brackets.append(checked(bracket_of, task_, template, asked.axes, asked.between))
                asked.check_runs(brackets, thresholds, resolution)
    settings = _settings(brackets, asked, seeds, resolution, stop, task_, where)
    settings |= {} if until_width is None else {"until_width": until_width}
    return launch(ScalingStudy(task_, brackets, resolution, settings, speculate, stop, until_width), where, invocation())


def _settings(
    brackets: Sequence[Bracket], asked: read.Asked, seeds: int, resolution: float, stop: str, task: Task, where: LaunchOptions
) -> dict[str, Any]:
    """What the answer says of how it was found."""
    varied = {*VARIED, *asked.taken} - ({"N", "data_count"} - {*asked.taken})
    first = brackets[0].template.to_dict()
    first["options"] = {name: value for name, value in first["options"].items() if name not in varied}
    settings = {
        **{name: value for name, value in first.items() if name not in varied},
        "holdout": {b.template.dataset: b.template.holdout for b in brackets},
        **asked.settings,
        "seeds": seeds,
        "resolution": resolution,
        "stop": stop,
        "task_version": task.version,
        "store": where.store,
        "out": where.folder(NAME),
        "versions": versions(),
    }
    if isinstance(task, ProgramTask):
        ranges = dict.fromkeys(str(bracket.template.option(COUNTS)) for bracket in brackets)
        settings["options"] |= {COUNTS: ", ".join(ranges)}
    return settings


app = task_app(scaling, TASK, "dataset")
main = main_of(app, "python -m orchestrator.scaling")

if __name__ == "__main__":
    main()
