"""The regularization study: which weights of two penalties make a decoder compose what it has only seen apart.

    python -m orchestrator.regularization

Optuna tunes the weights on a validation set cut out of the training coordinates; the chosen ones, and four settings to
compare with, are then trained over several seeds and judged on the held-out box that the search never sees.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import App, check_new_file, checked, grouped, invocation, main_of, one_of
from orchestrator.command.options import steps_of
from orchestrator.command.progress import Running
from orchestrator.command.ranges import MOST_PLANNED, parse_range
from orchestrator.command.subject import read_pairs
from orchestrator.command.tables import FittingTable
from orchestrator.engine.estimate import StepTimes
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.searches import Latest, Row, Rows, ending
from orchestrator.searches.confirm import TUNED, TuneAndConfirm
from orchestrator.searches.optuna import OBJECTIVES, OptunaSearch
from orchestrator.searches.samplers import PRUNERS
from orchestrator.searches.space import with_values
from orchestrator.store import Question
from orchestrator.store.questions import TRIALS
from trainables.regularization import COMPARED, TASK, WEIGHTS, RegularizationSettings
from trainables.settings import settings_of, spec_fields
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import Task, load_task

if TYPE_CHECKING:
    from analysis.regularization import Answer

NAME = "regularization"
SAMPLERS = ("tpe", "nsga2", "random", "grid")
GUESSED_SHARE = 0.6
"""Share of its steps that a trial is expected to take on average, some being pruned."""


@dataclass(slots=True)
class RegularizationStudy:
    """Tuning, ablation and their figures; a `Study`."""

    task: Task
    search: TuneAndConfirm
    settings: dict[str, Any]
    export: Path | None = None
    _known: Latest[Answer] = field(init=False)

    def __post_init__(self) -> None:
        self._known = Latest(self._answer_of)

    @property
    def name(self) -> str:
        return NAME

    @property
    def question(self) -> Question:
        tuning = self.search.tuning
        words = {"sampler": tuning.sampler, "pruner": tuning.pruner, "objectives": tuning.objectives}
        return Question(
            study=NAME,
            task_version=self.task.version,
            specs={TRIALS: [tuning.template], TUNED: self.search.final, **self.search.known},
            search={"space": tuning.space, "trials": tuning.trials, "seed": tuning.seed, **words},
            settings=self.settings,
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        """Trials have any weights, so they are told by what they share with the specs that are known beforehand."""
        tuning = self.search.tuning
        specs = [tuning.template, *self.search.final, *(spec for known in self.search.known.values() for spec in known)]
        shared = ("task", "dataset", "N", "decoder", "holdout", "seed")
        return {"task_version": {tuning.task_version}} | {name: {getattr(spec, name) for spec in specs} for name in shared}

    def keeps_end(self, spec: RunSpec) -> bool:
        return False

    def answered(self, rows: Rows) -> bool:
        """Whether every setting, the tuned one included, has all its seeds, none of them failed."""
        found = [row for _, row in self.search.confirmed(rows)]
        return TUNED in self.search.finals(rows) and all(row is not None and row["status"] != "failed" for row in found)

    def doubt(self, rows: Rows) -> str | None:
        return self._answer(rows).doubt()

    def keeps_weights(self, spec: RunSpec) -> bool:
        """Embeddings, images and volumes are drawn from the weights of the final runs."""
        return spec.holdout == self.settings["region"]

    def line(self, row: Mapping[str, Any]) -> str:
        options = row["options"]
        weights = ", ".join(f"{name.removeprefix('lambda_')} {options[name]:.2g}" for name in WEIGHTS)
        kind = "final" if row["holdout"] == self.settings["region"] else "trial"
        run = f"{kind} ({weights}) seed {row['seed']}: {ending(row)}"
        if row["ood_mse"] is None:
            return run
        judged = "OOD" if kind == "final" else "validation"
        return f"{run} (MSE on {judged} {row['ood_mse']:.2e}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        answer = self._answer(rows)
        return Group(self._search_table(rows, running), self._settings_table(rows, running), *map(Text, answer.lines()))

    def _search_table(self, rows: Rows, running: Mapping[str, Running]) -> FittingTable:
        trials, tuning = self.search.tuning.finished_trials(rows), self.search.tuning
        counts = {name: sum(t.row["status"] == name for t in trials) for name in ("pruned", "diverged", "failed")}
        told = ", ".join([f"{len(trials)} of {tuning.trials} trials"] + [f"{n} {name}" for name, n in counts.items() if n])
        table = FittingTable(f"search on the validation set: {told}")
        for name in ("trial", *(n.replace("lambda_", "lambda ") for n in WEIGHTS), "ID MSE", "validation MSE", "state"):
            table.add_column(name, justify="right")
        best = tuning.best(rows)
        shown = ([best] if best is not None else []) + [t for t in trials[-3:] if t is not best]
        for trial in shown:
            style = "bold green" if trial is best else ""
            state = "best" if trial is best else ending(trial.row)
            errors = [_number(trial.row[column]) for column in ("id_mse", "ood_mse")]
            table.add_row(str(trial.number), *_weight_cells(trial.row["options"]), *errors, state, style=style)
        for run in running.values():
            if run.spec.holdout != self.settings["region"]:
                share = f"{run.step / run.spec.max_steps:.0%}"
                table.add_row("", *_weight_cells(dict(run.spec.options)), "", "", share, style="dim")
        return table

    def _settings_table(self, rows: Rows, running: Mapping[str, Running]) -> FittingTable:
        title = f"judged on the OOD {self.settings['region']}: mean over seeds"
        table = FittingTable(title)
        for name in ("setting", *(n.replace("lambda_", "lambda ") for n in WEIGHTS), "seeds", "ID MSE", "OOD MSE"):
            table.add_column(name, justify="left" if name == "setting" else "right")
        table.add_column("OOD accuracy", justify="right")
        summary = {row["setting"]: row for row in self._answer(rows).summary.to_dict("records")}
        for setting, specs in self.search.finals(rows).items():
            found = summary.get(setting, {})
            done = sum(self.search.row(rows, spec) is not None for spec in specs)
            busy = sum(spec in [run.spec for run in running.values()] for spec in specs)
            seeds = f"{done}/{len(specs)}" + (f" +{busy}" if busy else "")
            means = [_number(found.get(name)) for name in ("id_mse_mean", "ood_mse_mean")]
            accuracy = found.get("accuracy")
            cells = [*means, "" if accuracy is None or accuracy != accuracy else f"{accuracy:.3f}"]
            table.add_row(setting, *_weight_cells(dict(specs[0].options)), seeds, *cells)
        return table

    def seconds_left(self, rows: Rows) -> float | None:
        times = StepTimes.of(self._rows(rows))
        return self._steps_left(rows) * times(self.search.tuning.template) if times else None

    def plan(self, rows: Rows) -> tuple[RenderableType, float]:
        """The runs of the search and of every setting: done, to do, and their estimated time."""
        done = len(self.search.tuning.finished_trials(rows))
        table = FittingTable("the plan")
        for name in ("part", "runs done", "runs to do", "steps of a run"):
            table.add_column(name, justify="left" if name == "part" else "right")
        template = self.search.tuning.template
        table.add_row("trials", str(done), str(self.search.tuning.trials - done), f"{template.max_steps}, fewer if pruned")
        for setting, specs in self.search.planned(rows).items():
            ready = sum(self.search.row(rows, spec) is not None for spec in specs)
            table.add_row(setting, str(ready), str(len(specs) - ready), str(specs[0].max_steps))
        times = StepTimes.of(self._rows(rows))
        times.measure(template, self.task)
        s = self.settings
        where = (
            f"N = {s['N']}, {s['region']}, rank {s['rank']}, {s['channels']} channels, {s['epochs']} epochs; {s['sampler']} "
            f"sampler, {s['pruner']} pruner\n"
            f"rows go to {s['store']}/runs, weights to {s['store']}/weights, tables and figures to {s['out']}"
        )
        return Group(table, Text(where)), self._steps_left(rows) * times(template)

    def _steps_left(self, rows: Rows) -> float:
        tuning = self.search.tuning
        trials = tuning.finished_trials(rows)
        share = statistics.fmean(t.row["steps"] for t in trials) / tuning.template.max_steps if trials else GUESSED_SHARE
        steps = (tuning.trials - len(trials)) * tuning.template.max_steps * (share if tuning.pruner != "none" else 1.0)
        finals = [spec for specs in self.search.planned(rows).values() for spec in specs]
        return steps + sum(spec.max_steps for spec in finals if self.search.row(rows, spec) is None)

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Tables, JSON and figures, at the end of a launch; and the Optuna study if it was asked for and is complete."""
        from analysis.files import weights_of, write_regularization

        if not force or not self._rows(rows):
            return []
        tuning = self.search.tuning
        study = tuning.study(rows) if tuning.space else None
        files = write_regularization(self._answer(rows), out, weights_of(self.settings["store"]), study)
        if self.export is not None and tuning.finished(rows):
            tuning.export(rows, self.export, f"{NAME}-{self.settings['region']}")
            files.append(self.export)
        return files

    def answer(self, rows: Rows) -> dict[str, Any]:
        return self._answer(rows).to_json()

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known."""
        return self._known.of(rows)

    def _answer_of(self, rows: Rows) -> Answer:
        from analysis.regularization import Answer

        return Answer.of_search(self.search, rows, self.settings)

    def _rows(self, rows: Rows) -> list[Row]:
        """Those of this study."""
        trials = [trial.row for trial in self.search.tuning.finished_trials(rows)]
        return trials + [row for _, row in self.search.confirmed(rows) if row is not None]




def _weight_cells(options: Mapping[str, Any]) -> Iterator[str]:
    return (f"{options[name]:.3g}" for name in WEIGHTS)


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.2e}"


app = App()


@app.command()
@grouped
def regularization(
    N: Annotated[int, opt.asked("--N", min=8, max=256, help="Grid size: images are N x N pixels.")] = 32,
    region: Annotated[str, opt.asked(help="The held-out box: `corner` or `center`.")] = "corner",
    trials: Annotated[int, opt.asked(min=1, max=MOST_PLANNED, help="Number of trials of the search.")] = 60,
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Seeds per final setting.")] = 5,
    lambda_entropy: Annotated[str, opt.asked(help="Weight of the entropy penalty: LOW..HIGH, or one number.")] = "0.001..1",
    lambda_variance: Annotated[
        str, opt.asked(help="Weight of the variance penalty: LOW..HIGH, or one number.")
    ] = "0.0001..0.1",
    ablation: Annotated[
        bool, opt.asked(help="Also train four settings to compare: no penalty, each alone, both, with published weights.")
    ] = True,
    objectives: Annotated[
        str, opt.asked(help="What to minimise: `validation`, or `id,validation` for the Pareto front of both.")
    ] = "validation",
    sampler: Annotated[str, opt.searched(help="How Optuna chooses weights: `tpe`, `nsga2`, `random` or `grid`.")] = "tpe",
    pruner: Annotated[
        str | None,
        opt.searched(
            help="Ends hopeless trials: `median`, `percentile` or `none`.", show_default="median; none for two objectives"
        ),
    ] = None,
    search_seed: Annotated[
        int, opt.searched(min=0, max=LIMITS["seed"][1], help="Seed of the sampler and of the trainings of the trials.")
    ] = 0,
    export_optuna: Annotated[
        Path | None, opt.searched(help="Write the trials to this new SQLite file; `optuna-dashboard sqlite:///FILE` shows it.")
    ] = None,
    sigma: Annotated[float, opt.subject(help="Width of a bump in pixels.")] = 1.5,
    rank: Annotated[int | None, opt.subject(min=1, help="Most modes of a token's matrix.", show_default="N")] = None,
    channels: Annotated[int, opt.subject(min=1, max=LIMITS["width"][1], help="Channels of a hidden layer.")] = 2,
    init: Annotated[str, opt.subject(help="Initial values: `published`, or `positive`, which is our own.")] = "published",
    depth: Annotated[int, opt.subject(min=0, max=LIMITS["depth"][1], help="Hidden layers.")] = 2,
    tolerance: Annotated[int, opt.subject(min=0, help="Pixels by which a peak may miss its place.")] = 1,
    option: opt.TaskOption = None,
    epochs: Annotated[int, opt.trained(min=1, help="Passes over the training set.")] = 400,
    schedule: Annotated[str, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.")] = "cosine",
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 1e-4,
    *,
    where: LaunchOptions,
) -> int:
    """Which penalty weights make a low-rank decoder draw bumps at combinations of x and y that it has never seen?

    Tunes the weights of the entropy and the variance penalty on a validation set cut out of the training coordinates. The
    chosen weights, and four settings for comparison (no penalty, each alone, both, with the published weights), are then
    trained on all training coordinates, over several seeds, and judged on the held-out box, which no trial ever sees.
    Finished runs are kept in the store: the same command continues after any interruption.

    **Examples**

    `python -m orchestrator.regularization --N 8 --trials 16 --epochs 150 --lr 0.01`   a small one, two minutes

    `python -m orchestrator.regularization`   the whole study

    `python -m orchestrator.regularization --objectives id,validation --sampler nsga2`   the Pareto front of both errors

    `python -m orchestrator.regularization --export-optuna study.db`   for optuna-dashboard

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer, nothing
    learned); 2 a mistake in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    one_of("--sampler", sampler, SAMPLERS)
    one_of("--objectives", objectives, tuple(OBJECTIVES))
    if pruner is None:
        pruner = "median" if len(OBJECTIVES[objectives]) == 1 else "none"
    one_of("--pruner", pruner, PRUNERS)
    ranges = {}
    for name, text in zip(WEIGHTS, (lambda_entropy, lambda_variance), strict=True):
        try:
            ranges[name] = parse_range(text)
        except ValueError as error:
            raise UserError(f"--{name.replace('_', '-')} {error}") from None
    check_new_file("--export-optuna", export_optuna)
    if rank is not None and rank > N:
        raise UserError(f"--rank must lie in 1..{N}, the grid size, not {rank}")
    task = load_task(TASK)
    fixed = {name: low for name, (low, high) in ranges.items() if low == high}
    asked: dict[str, Scalar] = {"sigma": sigma, "tolerance": tolerance, "rank": rank or 0, "init": init, **fixed}
    asked |= {"depth": depth, "width": channels} | read_pairs(settings_of(RegularizationSettings), option or [])
    region = one_of("--region", region, ("corner", "center"))

    def template(holdout: str, seed: int) -> RunSpec:
        spec = checked(
            RunSpec,
            task=TASK,
            N=N,
            data_count=0,
            seed=seed,
            **checked(spec_fields, task, asked | {"holdout": holdout}),
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            stop="budget",
            schedule=one_of("--schedule", schedule, SCHEDULES),
        )
        count = checked(task.counts, spec).low
        return checked(dataclasses.replace, spec, data_count=count, max_steps=steps_of(epochs, count, batch_size))

    finals = [template(region, seed) for seed in range(seeds)]
    space = {name: bounds for name, bounds in ranges.items() if name not in fixed}
    tuning = checked(
        OptunaSearch,
        template(f"{region}-validation", search_seed),
        task.version,
        space,
        trials,
        sampler=sampler,
        pruner=pruner,
        objectives=objectives,
        seed=search_seed,
    )
    compared = COMPARED if ablation else {}
    known = {setting: [with_values(spec, weights) for spec in finals] for setting, weights in compared.items()}
    settings = {
        **{"N": N, "region": region, "sigma": sigma, "rank": rank or N, "channels": channels, "depth": depth, "init": init},
        **{"tolerance": tolerance, "epochs": epochs, "schedule": schedule, "batch_size": batch_size, "lr": lr},
        **{"weight_decay": weight_decay, "trials": trials, "sampler": sampler, "pruner": pruner, "objectives": objectives},
        **{"search_seed": search_seed, "seeds": seeds, "space": {name: list(bounds) for name, bounds in ranges.items()}},
        **{"task_version": task.version, "store": where.store, "out": where.folder(NAME), "versions": versions()},
    }
    study = RegularizationStudy(task, TuneAndConfirm(tuning, known, finals), settings, export_optuna)
    return launch(study, where, invocation())


main = main_of(app, "python -m orchestrator.regularization")

if __name__ == "__main__":
    main()
