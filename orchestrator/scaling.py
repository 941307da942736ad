"""The scaling study: how many training images a decoder needs, as the grid grows, before it composes.

    python -m orchestrator.scaling --N 16..64

For every grid size, data set and seed a threshold search finds the least number of images with which the decoder reaches
the target accuracy on coordinates it never saw; a power law is fitted through the thresholds.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, invocation, main_of, one_of
from orchestrator.command.programs import Described
from orchestrator.command.progress import Running, format_seconds
from orchestrator.command.ranges import MOST_PLANNED, parse_grid
from orchestrator.command.subject import given, own_task, task_app
from orchestrator.command.tables import FittingTable
from orchestrator.engine.estimate import Pace
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.searches import Latest, Row, Rows
from orchestrator.searches.audits import BUDGET, STOPS, UNAUDITED
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS
from orchestrator.study import bracket_of
from trainables.check import check_task
from trainables.program import COMMAND, COUNTS, FILES, ProgramTask
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import settings_class, settings_of, spec_fields
from trainables.spec import LARGEST, RunSpec
from trainables.task import Task

if TYPE_CHECKING:
    from analysis.scaling import Answer

NAME = "scaling"
TASK = "trainables.bumps:BumpTask"
GUESSED_PROBES = 5
"""Runs a threshold is expected to take before anything is known."""
GUESSED_STEPS = 400
"""Steps of such a run."""
TIMED = ("dataset", "N", "decoder", "depth", "width", "encoding", "seconds")
"""Columns from which the time of further runs is guessed."""
VARIED = ("dataset", "N", "data_count", "seed", "holdout")
"""Fields of a spec in which the runs of one study differ."""


@dataclass(slots=True)
class ScalingStudy:
    """Thresholds for every data set, grid size and seed; a `Study`."""

    task: Task
    brackets: list[Bracket]
    resolution: float
    settings: dict[str, Any]
    speculate: bool = True
    stop: str = "auto"
    search: ThresholdSearch = field(init=False)
    _written: frozenset[tuple[str, int]] = frozenset()
    _results: Latest[list[ThresholdResult]] = field(init=False)
    _known: tuple[object, Answer] | None = None
    _templates: dict[tuple[str, int], RunSpec] = field(init=False)

    def __post_init__(self) -> None:
        self.search = ThresholdSearch(self.brackets, self.resolution, self.speculate, self.stop)
        self._results = Latest(self.search.answer)
        self._templates = {(b.template.dataset, b.template.N): b.template for b in self.brackets}

    def results(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each threshold, in the order of the brackets."""
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
        return Question(
            study=NAME,
            task_version=self.task.version,
            specs={THRESHOLDS: [bracket.template for bracket in self.brackets]},
            search={"resolution": self.resolution, "stop": self.stop},
            settings=self.settings,
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        return {"family": {family for bracket in self.brackets for family in (bracket.family, bracket.full_family)}}

    def keeps_weights(self, spec: RunSpec) -> bool:
        return False

    def keeps_end(self, spec: RunSpec) -> bool:
        return self.search.may_audit(spec)

    def answered(self, rows: Rows) -> bool:
        return all(r.verdict not in ("open", "failed") for r in self.results(rows))

    def doubt(self, rows: Rows) -> str | None:
        return None

    def line(self, row: Mapping[str, Any]) -> str:
        run = f"{row['dataset']} N={row['N']} seed {row['seed']}: {row['data_count']} images {row['status']}"
        if row["stop"] == "target" and not self.of_program:
            run += ", trained to the end"
        if row["accuracy"] is None:
            return run
        return f"{run} (accuracy {row['accuracy']:.3f}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """One line per data set and grid size: each seed's bracket as it narrows, in images on top of the fixed ones."""
        probing: dict[tuple[str, int, int], list[Running]] = {}
        for run in running.values():
            probing.setdefault((run.spec.dataset, run.spec.N, run.spec.seed), []).append(run)
        results = {(r.dataset, r.N, r.seed): r for r in self.results(rows)}
        seeds = sorted({seed for _, _, seed in results})
        fixed = any(r.fixed for r in results.values())
        title = f"least images for accuracy {self.settings['target']:g} on held-out coordinates"
        if self.of_program:
            title = f"least data count for accuracy {self.settings['target']:g}"
        table = FittingTable(title)
        table.add_column("data set")
        table.add_column("N", justify="right")
        for seed in seeds:
            table.add_column(f"seed {seed}", justify="right")
        if fixed:
            table.add_column("+ stripes", justify="right")
        table.add_column("runs", justify="right")
        for dataset, N in dict.fromkeys((d, n) for d, n, _ in results):
            row = [results[dataset, N, seed] for seed in seeds]
            cells = [bracket_text(r, probing.get((dataset, N, r.seed), [])) for r in row]
            extra = [str(row[0].fixed) if row[0].fixed else ""] if fixed else []
            table.add_row(dataset, str(N), *cells, *extra, str(sum(r.runs for r in row)))
        outliers = (outlier_text(r) for r in results.values() if r.outliers)
        return Group(table, *map(Text, (*self._answer(rows).lines(), *self._cut_short(rows), *outliers)))

    def _cut_short(self, rows: Rows) -> list[str]:
        """A line per data set for thresholds whose lower bound is a run that the step budget ended while it still learned."""
        sizes: dict[str, set[int]] = {}
        for result in () if self.of_program else self.results(rows):
            if result.lower_ended == BUDGET and result.lower is not None:
                row = rows.family(result.family).get(result.lower)
                if row is None or row["reason"] == BUDGET:
                    sizes.setdefault(result.dataset, set()).add(result.N)
        return [
            f"{dataset}: at N = {', '.join(map(str, sorted(found)))} some lower bounds are runs that ended after "
            f"{self.settings['max_steps']} steps before they had converged: more steps may lower the threshold"
            for dataset, found in sizes.items()
        ]

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known; computed anew only when a threshold has been settled since."""
        from analysis.scaling import Answer

        results = self.results(rows)
        settled = tuple((r.family, r.runs, r.lower_ended, r.rule) for r in results if r.verdict != "open")
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
        spec = self._templates[result.dataset, result.N]
        probes = result.probes_left or (0 if result.audits_left and result.upper is not None else GUESSED_PROBES)
        return (probes * pace.steps(spec) + result.audits_left * spec.max_steps) * pace.times(spec)

    def _pace(self, rows: Rows) -> Pace:
        """How long runs take. What N means to a program is not known, so nothing is assumed of its time."""
        return Pace.of(self._timed_runs(rows), power=0.0 if self.of_program else 2.0)

    def _timed_runs(self, rows: Rows) -> list[Row]:
        """Finished runs as the search asks for them. Audits are reckoned apart; under `budget` there are no other runs."""
        families = {f for b in self.brackets for f in ((b.full_family, b.family) if self.stop == "budget" else (b.family,))}
        found = [row for family in families for row in rows.family(family).values()]
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
        table = FittingTable("plan: open thresholds; the number of runs to do is an estimate")
        for name in ("data set", "N", "open", "runs done", "runs to do", "audits", "time"):
            table.add_column(name, justify="left" if name == "data set" else "right")
        total = 0.0
        for dataset, N in dict.fromkeys((r.dataset, r.N) for r in results):
            row = [r for r in results if (r.dataset, r.N) == (dataset, N)]
            still = [r for r in row if r.verdict == "open"]
            probes, audits = sum(r.probes_left or GUESSED_PROBES for r in still), sum(r.audits_left for r in still)
            seconds = sum(self._seconds_left(r, pace) for r in still)
            total += seconds
            counted = (len(still), sum(r.runs for r in row), probes, audits)
            table.add_row(dataset, str(N), *map(str, counted), format_seconds(seconds) if pace.times else "unknown")
        where = (
            f"{self._what_is_trained()}\n"
            f"rows go to {self.settings['store']}/runs, the table and the figure to {self.settings['out']}"
        )
        return Group(table, Text(where)), total if pace.times else None

    def _what_is_trained(self) -> str:
        spec = self.brackets[0].template
        if self.of_program:
            files = ", ".join(json.loads(str(spec.option(FILES)))) or "none"
            return f"{spec.option(COMMAND)}\nfiles that are its version: {files}"
        depth, encoding = f"depth {spec.depth}" if spec.depth else "", f"{spec.encoding} encoding" if spec.encoding else ""
        shape = (spec.decoder, depth, f"width {spec.width}", encoding)
        return ", ".join([*filter(None, shape), spec.precision])

    def _measure(self, pace: Pace) -> None:
        """Time a few steps at each data set's smallest grid, here and now, and guess how many a run takes."""
        steps = GUESSED_STEPS
        if self.stop == "budget":  # half of the runs do not pass
            steps = (steps + self.brackets[0].template.max_steps) // 2
        for bracket in sorted(self.brackets, key=lambda bracket: bracket.template.N):
            spec = bracket.template.with_count(max(1, bracket.counts.low))
            if spec.dataset not in pace.mean_steps:
                pace.times.measure(spec, self.task)
                pace.mean_steps[spec.dataset] = {spec.N: steps}

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """`scaling.csv`, `.json`, `.png` and `.svg`, from the first answered grid size on, renewed with every further one."""
        results = self.results(rows)
        open_sizes = {(r.dataset, r.N) for r in results if r.verdict == "open"}
        answered = frozenset((r.dataset, r.N) for r in results) - open_sizes
        if not (answered - self._written) and not (force and any(r.runs for r in results)):
            return []
        self._written = answered
        from analysis.files import write_scaling

        return write_scaling(self._answer(rows), out)

    def answer(self, rows: Rows) -> dict[str, Any]:
        outliers = [
            {"dataset": r.dataset, "N": r.N, "seed": r.seed, "data_counts": list(r.outliers)}
            for r in self.results(rows)
            if r.outliers
        ]
        return {**self._answer(rows).to_json(), "outliers": outliers}


def outlier_text(result: ThresholdResult) -> str:
    """Runs that the search did not ask for and that speak against its answer, in words."""
    counts = ", ".join(map(str, result.outliers))
    return f"{result.dataset}, N = {result.N}, seed {result.seed}: other runs, with {counts} images, contradict the threshold"


def bracket_text(result: ThresholdResult, probing: Sequence[Running]) -> Text:
    """The state of one threshold in a table cell."""
    style = {"open": "", "failed": "red", "none reached": "yellow", "non-monotone": "yellow"}.get(result.verdict, "bold green")
    if result.verdict == "none reached":
        text = f"> {result.lower}"
    elif result.verdict == "failed":
        text = "failed"
    elif result.verdict == "open":
        low = "" if result.lower is None else str(result.lower)
        high = "" if result.upper is None else str(result.upper)
        text = f"{low}..{high}" if low or high else "waiting" if not probing else ""
    else:
        text = f"{result.threshold}{' ?' if result.verdict == 'non-monotone' else ''}"
    if result.lower_ended == UNAUDITED:
        text += " *"
    for run in probing:
        accuracy = "" if run.accuracy is None or run.accuracy != run.accuracy else f" {run.accuracy:.2f}"
        audited = run.spec.stop == "target" and run.spec.task != PROGRAM_TASK
        text += f" [{run.spec.data_count}{' to the end' * audited}:{accuracy or ' ...'}]"
    return Text(text, style=style)


def scaling(
    N: opt.Sizes = "16..64",
    datasets: opt.Datasets = None,
    target: opt.Target = 0.9,
    seeds: opt.Seeds = 3,
    resolution: Annotated[float, opt.asked(help="Relative precision of a threshold, in (0, 1).")] = 0.05,
    speculate: Annotated[
        bool, opt.asked(help="Idle workers train what the search may ask next: same answer, sooner, with more runs.")
    ] = True,
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
    only the new ones.

    **Examples**

    `python -m orchestrator.scaling --N 16,24 --decoder mlp`   two sizes, a minute

    `python -m orchestrator.scaling --N 16..64`   the whole study

    `python -m orchestrator.scaling --N 16..64 --dry-run`   what would be done, and how long it may take

    `python -m orchestrator.scaling --N 16..64 --address auto`   the same on the Ray cluster this machine belongs to

    `python -m orchestrator.scaling --program "python train.py {data_count} {N} {seed}" --counts 10..1200 --N 8,16`   a script
    of your own, which prints its accuracy

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    one_of("--stop", stop, STOPS)
    sizes = checked(parse_grid, N, 1, LARGEST)
    task_: Task
    if program is not None:
        described = Described(program, program_settings, vary or (), counts)
        task, task_ = PROGRAM_TASK, described.task()
        values = {"max_steps": max_steps, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay}
        usual = inspect.signature(scaling).parameters
        described.check_named(task_, len(sizes), seeds, [n for n, value in values.items() if value != usual[n].default])
        if precision not in ("auto", "float32"):
            raise UserError(f"--precision {precision} is of trainings here: a program chooses its own, so omit the option")
        precision, stop = "float32", "budget"  # none is ever given up
    else:
        for name, value in {"--program-settings": program_settings, "--vary": vary, "--counts": counts}.items():
            if value is not None:
                raise UserError(f"{name} is about a program: add --program")
        task_ = own_task(task)
    settings_given = given(task_, subject, option)
    known = settings_of(settings_class(task_))
    words = (known["dataset"].words if "dataset" in known else ()) or (spec_fields(task_, {})["dataset"],)
    chosen = list(words) if datasets is None else [d.strip() for d in datasets.split(",")]
    if (asked := len(set(chosen)) * len(sizes) * seeds) > MOST_PLANNED:
        raise UserError(f"{asked} thresholds are too many (at most {MOST_PLANNED}): ask for fewer sizes or --seeds")
    brackets = []
    for dataset in dict.fromkeys(chosen):
        one_of("--datasets", dataset, words)
        of_dataset = {"dataset": dataset} if "dataset" in known else {}
        fields = checked(spec_fields, task_, settings_given | of_dataset)
        decoder = fields["decoder"]
        spec = checked(
            RunSpec,
            task=task,
            N=sizes[0],
            data_count=0,
            seed=0,
            **fields,
            target=target,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            max_steps=max_steps,
            precision=opt.resolve_precision(precision, decoder, where.on_gpu(task_, decoder)),
        )
        if program is None:
            checked(check_task, task_, spec)
        for size in sizes:
            for seed in range(seeds):
                template = dataclasses.replace(spec, N=size, seed=seed)
                if isinstance(task_, ProgramTask):
                    template = checked(task_.describe, template)
                brackets.append(checked(bracket_of, task_, template))
    if not 0 < resolution < 1:
        raise UserError(f"--resolution must lie between 0 and 1, not {resolution:g}: 0.05 means 5 %")
    settings = {
        **{k: v for k, v in brackets[0].template.to_dict().items() if k not in VARIED},
        "holdout": {b.template.dataset: b.template.holdout for b in brackets},
        "N": list(sizes),
        "seeds": seeds,
        "resolution": resolution,
        "stop": stop,
        "task_version": task_.version,
        "store": where.store,
        "out": where.folder(NAME),
        "versions": versions(),
    }
    if program is not None:
        ranges = dict.fromkeys(str(bracket.template.option(COUNTS)) for bracket in brackets)
        settings["options"] |= {COUNTS: ", ".join(ranges)}
    study = ScalingStudy(task_, brackets, resolution, settings, speculate, stop)
    return launch(study, where, invocation())


app = task_app(scaling, TASK, "dataset")
main = main_of(app, "python -m orchestrator.scaling")

if __name__ == "__main__":
    main()
