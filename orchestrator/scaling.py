"""The scaling study: how many training images a decoder needs, as the grid grows, before it composes.

    python -m orchestrator.scaling --N 16..64

For every grid size, data set and seed a threshold search finds the least number of images with which the decoder reaches
the target accuracy on coordinates it never saw; a power law is fitted through the thresholds.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator import launch as common
from orchestrator.cli import invocation, main_of, new_app, one_of
from orchestrator.errors import UserError
from orchestrator.progress import Running, format_seconds
from orchestrator.searches import Rows
from orchestrator.searches.threshold import Bracket, ThresholdResult, ThresholdSearch
from orchestrator.spec import PRECISIONS, RunSpec, Scalar, parse_grid
from trainables.task import Task, load_task

if TYPE_CHECKING:
    from analysis.scaling import Answer

NAME = "scaling"
GUESSED_PROBES = 5
"""Runs a threshold is expected to take before anything is known."""
GUESSED_STEPS = 400
"""Steps of such a run."""

app = new_app()


@dataclass(slots=True)
class ScalingStudy:
    """Thresholds for every data set, grid size and seed; satisfies `launch.Study`."""

    task: Task
    brackets: list[Bracket]
    resolution: float
    settings: dict[str, Any]
    speculate: bool = True
    name: str = NAME
    search: ThresholdSearch = field(init=False)
    _written: frozenset[tuple[str, int]] = frozenset()

    def __post_init__(self) -> None:
        self.search = ThresholdSearch(self.brackets, self.resolution, self.speculate)

    def results(self, rows: Rows) -> list[ThresholdResult]:
        return self.search.answer(rows)

    def answered(self, rows: Rows) -> bool:
        return all(r.verdict not in ("open", "failed") for r in self.results(rows))

    def line(self, row: Mapping[str, Any]) -> str:
        seen = "" if row["accuracy"] is None else f" (accuracy {row['accuracy']:.3f}, {row['steps']} steps, {row['seconds']:.1f} s)"
        return f"{row['dataset']} N={row['N']} seed {row['seed']}: {row['data_count']} images {row['status']}{seen}"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """One line per data set and grid size: each seed's bracket as it narrows, in images on top of the fixed ones."""
        probing: dict[tuple[str, int, int], list[Running]] = {}
        for run in running.values():
            probing.setdefault((run.spec.dataset, run.spec.N, run.spec.seed), []).append(run)
        results = {(r.dataset, r.N, r.seed): r for r in self.results(rows)}
        seeds = sorted({seed for _, _, seed in results})
        fixed = any(r.fixed for r in results.values())
        table = Table(title=f"least images for accuracy {self.settings['target']:g} on held-out coordinates", title_justify="left")
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
        answer = self._answer(rows)
        return Group(table, *(Text(line) for line in answer.lines()))

    def _answer(self, rows: Rows) -> Answer:
        from analysis.scaling import Answer

        return Answer.of([r.to_row() for r in self.results(rows)], self.settings)

    def seconds_left(self, rows: Rows, workers: int) -> float | None:
        """Probes left, each at the mean time of its grid size and data set so far (or scaled by pixels from another size)."""
        timed = self._timed(rows)
        if not timed:
            return None
        work = 0.0
        for result, bracket in zip(self.results(rows), self.brackets, strict=True):
            if result.verdict == "open":
                probes = result.probes_left or GUESSED_PROBES
                work += probes * _expected_seconds(timed, result.dataset, bracket.template.N)
        return work / workers

    def _timed(self, rows: Rows) -> dict[tuple[str, int], float]:
        seconds: dict[tuple[str, int], list[float]] = {}
        for bracket in self.brackets:
            at = (bracket.template.dataset, bracket.template.N)
            seconds.setdefault(at, []).extend(r["seconds"] for r in rows.family(bracket.family).values() if r["steps"])
        return {at: statistics.fmean(values) for at, values in seconds.items() if values}

    def plan(self, rows: Rows, workers: int) -> RenderableType:
        """Runs done and to do, and how long they may take here, judged by rows in the store or by a few timed steps."""
        results = self.results(rows)
        timed = self._timed(rows) or self._measured()
        table = Table(title="plan", title_justify="left")
        for name in ("data set", "N", "thresholds to find", "runs done", "runs to do (about)", "time (about)"):
            table.add_column(name, justify="left" if name == "data set" else "right")
        total = 0.0
        for dataset, N in dict.fromkeys((r.dataset, r.N) for r in results):
            row = [r for r in results if (r.dataset, r.N) == (dataset, N)]
            still = [r for r in row if r.verdict == "open"]
            probes = sum(r.probes_left or GUESSED_PROBES for r in still)
            seconds = probes * _expected_seconds(timed, dataset, N)
            total += seconds
            table.add_row(dataset, str(N), str(len(still)), str(sum(r.runs for r in row)), str(probes), format_seconds(seconds))
        spec = self.brackets[0].template
        where = (
            f"{spec.decoder}, depth {spec.depth}, width {spec.width}, {spec.encoding} encoding, {spec.precision}\n"
            f"about {format_seconds(total / workers)} with {workers} at a time\n"
            f"rows go to {self.settings['store']}/runs, the table and figure to {self.settings['out']}"
        )
        return Group(table, Text(where))

    def _measured(self) -> dict[tuple[str, int], float]:
        """Seconds of a guessed run at each data set's smallest grid, from a few steps timed here and now."""
        from trainables.training import Training, quiet_cpu

        quiet_cpu()
        first: dict[str, RunSpec] = {}
        for bracket in self.brackets:
            spec = bracket.template.with_count(max(1, bracket.counts.low))
            if spec.dataset not in first or spec.N < first[spec.dataset].N:
                first[spec.dataset] = spec
        timed = {}
        for dataset, spec in first.items():
            training = Training(spec, self.task)
            training.advance(0)
            began = time.perf_counter()
            training.advance(0)
            training.advance(0)
            timed[dataset, spec.N] = GUESSED_STEPS * (time.perf_counter() - began) / 2
        return timed

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """`scaling.csv`, `.json`, `.png` and `.svg`, from the first answered grid size on, renewed with every further one."""
        results = self.results(rows)
        open_sizes = {(r.dataset, r.N) for r in results if r.verdict == "open"}
        answered = frozenset((r.dataset, r.N) for r in results) - open_sizes
        if not (answered - self._written) and not (force and any(r.runs for r in results)):
            return []
        self._written = answered
        return self._answer(rows).write(out)

    def answer(self, rows: Rows) -> dict[str, Any]:
        return self._answer(rows).to_json()


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
    for run in probing:
        accuracy = "" if run.accuracy is None or run.accuracy != run.accuracy else f" {run.accuracy:.2f}"
        text += f" [{run.spec.data_count}:{accuracy or ' ...'}]"
    return Text(text, style=style)


def _expected_seconds(timed: Mapping[tuple[str, int], float], dataset: str, N: int) -> float:
    """Mean seconds of a run at this data set and N; else from the nearest N of the same (or any) data set, by pixels."""
    same = {n: s for (d, n), s in timed.items() if d == dataset} or {n: s for (_, n), s in timed.items()}
    if not same:
        return 0.0
    nearest = min(same, key=lambda n: abs(n - N))
    return same[nearest] * (N / nearest) ** 2


asked = partial(typer.Option, rich_help_panel="What is asked")
subject = partial(typer.Option, rich_help_panel="What is trained")
trained = partial(typer.Option, rich_help_panel="How it is trained")


@app.command()
def scaling(
    N: Annotated[str, asked("--N", help="Grid sizes: 16..64 (every 8th), 16..64:16, or 16,24,48.")] = "16..64",
    datasets: Annotated[str | None, asked(help="Comma-separated: `bumps`, `stripes+bumps`.", show_default="all")] = None,
    target: Annotated[float, asked(help="Accuracy to reach on held-out coordinates, in (0, 1].")] = 0.9,
    seeds: Annotated[int, asked(min=1, help="Seeds per grid size.")] = 3,
    resolution: Annotated[float, asked(help="Relative precision of a threshold, in (0, 1).")] = 0.05,
    speculate: Annotated[bool, asked("--speculate/--no-speculate", help="Idle workers train what the search will likely ask next; the answer is the same, in less time and more runs.")] = True,
    task: Annotated[str, subject(help="The subject, `module:Class`; bring your own.")] = "trainables.bumps:BumpTask",
    decoder: Annotated[str | None, subject(help="`cnn` or `mlp`.", show_default="cnn")] = None,
    depth: Annotated[int | None, subject(min=0, help="Hidden layers.", show_default="2")] = None,
    width: Annotated[int | None, subject(min=1, help="Channels or units of a hidden layer.", show_default="cnn 64, mlp 256")] = None,
    encoding: Annotated[str | None, subject(help="`bump`, `one-hot`, `positional` or `ramp`.", show_default="bump")] = None,
    holdout: Annotated[str | None, subject(help="Held-out coordinates: `random`, `center` or `corner`.", show_default="random for bumps, center for stripes+bumps")] = None,
    centres: Annotated[str | None, subject(help="`integer` or `real`.", show_default="integer")] = None,
    sigma: Annotated[float | None, subject(help="Bump width, pixels.", show_default="1")] = None,
    absent: Annotated[str | None, subject(help="Code of a stripe's missing coordinate: `zero` or `minus-one`.", show_default="zero")] = None,
    tolerance: Annotated[int | None, subject(min=0, help="Peak right within this many pixels.", show_default="1")] = None,
    option: Annotated[list[str] | None, subject(help="Any further option of the task, NAME=VALUE; repeatable.")] = None,
    max_steps: Annotated[int, trained(min=1, help="Budget of a run, optimizer steps.")] = 2000,
    batch_size: Annotated[int, trained(min=1, help="Images per step.")] = 32,
    lr: Annotated[float, trained(help="Learning rate of AdamW.")] = 1e-3,
    weight_decay: Annotated[float, trained(min=0, help="Weight decay of AdamW.")] = 0.01,
    precision: Annotated[str, trained(help="`auto` (the fastest here), `float32` or `bfloat16`.")] = "auto",
    store: common.StoreOption = Path("results"),
    out: common.OutOption = None,
    address: common.AddressOption = "local",
    workers: common.WorkersOption = None,
    gpus_per_run: common.GpusOption = 0.0,
    dry_run: common.DryRunOption = False,
    max_hours: common.MaxHoursOption = None,
    on_error: common.OnErrorOption = "continue",
    save_weights: common.WeightsOption = False,
    json: common.JsonOption = False,
    verbose: common.VerboseOption = False,
) -> int:
    """How many training images does a decoder need before it composes, and how does that grow with the grid?

    For every grid size, data set and seed, finds the least number of images with which the decoder reaches the target
    accuracy on coordinates it never saw, fits a power law, and draws it. Finished runs are kept in the store: the same
    command continues after any interruption, trains nothing twice, and with more seeds or sizes trains only those.

    **Examples**

    `python -m orchestrator.scaling --N 16,24 --decoder mlp`   two sizes, a minute

    `python -m orchestrator.scaling --N 16..64`   the whole study

    `python -m orchestrator.scaling --N 16..64 --dry-run`   what would be done, and how long it may take

    `python -m orchestrator.scaling --N 16..64 --address auto`   the same on the Ray cluster this machine belongs to

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk); 2 a mistake in the command; 130 and
    143 after Ctrl-C and SIGTERM.
    """
    sys.path[:0] = [path for path in (os.getcwd(),) if path not in sys.path]
    sizes = _user(parse_grid, N)
    task_ = _user(load_task, task)
    given = {"sigma": sigma, "centres": centres, "absent": absent, "tolerance": tolerance}
    options = task_options(task_, {k: v for k, v in given.items() if v is not None}, option or [])
    chosen = list(task_.choices["dataset"]) if datasets is None else [d.strip() for d in datasets.split(",")]
    brackets = []
    for dataset in dict.fromkeys(chosen):
        one_of("--datasets", dataset, task_.choices["dataset"])
        word = one_of("--decoder", decoder or task_.choices["decoder"][0], task_.choices["decoder"])
        preset = task_.preset(dataset, word)
        spec = _user(
            RunSpec,
            task=task,
            dataset=dataset,
            N=sizes[0],
            data_count=0,
            seed=0,
            decoder=word,
            depth=preset["depth"] if depth is None else depth,
            width=preset["width"] if width is None else width,
            encoding=one_of("--encoding", encoding or task_.choices["encoding"][0], task_.choices["encoding"]),
            holdout=one_of("--holdout", holdout or preset["holdout"], task_.choices["holdout"]),
            options=options,
            target=target,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            max_steps=max_steps,
            precision=resolve_precision(precision, word, gpus_per_run),
        )
        for size in sizes:
            for seed in range(seeds):
                template = dataclasses.replace(spec, N=size, seed=seed)
                brackets.append(Bracket(template=template, task_version=task_.version, counts=_user(task_.counts, template)))
    if not 0 < resolution < 1:
        raise UserError(f"--resolution must lie between 0 and 1, not {resolution:g}: 0.05 stands for 5 %")
    out = store / NAME if out is None else out
    launch_options = common.LaunchOptions(
        store=store,
        out=out,
        address=address,
        workers=workers,
        gpus_per_run=gpus_per_run,
        dry_run=dry_run,
        max_hours=max_hours,
        on_error=on_error,
        save_weights=save_weights,
        json=json,
        verbose=verbose,
    )
    settings = {
        **{k: v for k, v in brackets[0].template.to_dict().items() if k not in ("dataset", "N", "data_count", "seed", "holdout")},
        "holdout": {b.template.dataset: b.template.holdout for b in brackets},
        "N": list(sizes),
        "seeds": seeds,
        "resolution": resolution,
        "task_version": task_.version,
        "store": str(store),
        "out": str(out),
        "versions": common.versions(),
    }
    study = ScalingStudy(task_, brackets, resolution, settings, speculate)
    return common.launch(study, launch_options, invocation())


def _user(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`make(...)`, its ValueError turned into the user's one-line error."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise UserError(str(error)) from None


def task_options(task: Task, given: Mapping[str, Scalar], pairs: Sequence[str]) -> tuple[tuple[str, Scalar], ...]:
    """All options of the task: its defaults, then those given by name, then `NAME=VALUE` pairs, each of the default's type.

    Raises:
        UserError: an option the task does not have, or a value of another type.
    """
    values = dict(task.defaults)
    for pair in pairs:
        if "=" not in pair:
            raise UserError(f"--option {pair!r} has no value: write NAME=VALUE with one of {', '.join(task.defaults) or 'no options'}")
    wanted: dict[str, Scalar] = {**given, **dict(pair.split("=", 1) for pair in pairs)}
    for name, value in wanted.items():
        if name not in values:
            raise UserError(f"this task has no option {name!r}: it has {', '.join(task.defaults) or 'none'}")
        kind = type(values[name])
        try:
            values[name] = _boolean(value) if kind is bool else kind(value)
        except ValueError:
            raise UserError(f"the option {name} takes a {kind.__name__}, not {value!r}") from None
    return tuple(sorted(values.items()))


def _boolean(value: Scalar) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def resolve_precision(word: str, decoder: str, gpus_per_run: float) -> str:
    """The precision a run is recorded with: the one asked for, or for `auto` the fastest of this machine."""
    if one_of("--precision", word, ("auto", *PRECISIONS)) != "auto":
        return word
    from trainables.training import fastest_precision

    return fastest_precision(decoder, "cuda" if gpus_per_run > 0 else "cpu")


main = main_of(app, "python -m orchestrator.scaling")

if __name__ == "__main__":
    main()
