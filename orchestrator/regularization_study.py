"""The regularization study as a launch sees it: what to search, what to show, what to write."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.artifacts import Artifacts
from orchestrator.estimate import step_seconds
from orchestrator.progress import Running
from orchestrator.rows import ending
from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.optuna import OptunaSearch, Trial
from orchestrator.spec import RunSpec, run_key
from orchestrator.tables import FittingTable
from trainables.task import Task

if TYPE_CHECKING:
    from analysis.regularization import Answer

NAME = "regularization"
TUNED = "tuned"
WEIGHTS = ("lambda_entropy", "lambda_variance")
GUESSED_SHARE = 0.6
"""Share of its steps that a trial is expected to take on average, some being pruned."""


@dataclass(slots=True)
class TuneAndConfirm:
    """A search, then the best trial's options over several seeds; beside it, settings that are known beforehand.

    Args:
        tuning: the search on the validation set.
        known: setting to the specs of its seeds.
        final: the specs of the seeds that confirm the best trial, given the values of the searched options.
    """

    tuning: OptunaSearch
    known: Mapping[str, Sequence[RunSpec]]
    final: Sequence[RunSpec]
    """To these the best trial's options are still to be given."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """Trials as the search asks for them, up to `fill`, then final runs up to `room`."""
        specs = self.tuning.propose(rows, room, running, fill)
        missing = [spec for spec, row in self.confirmed(rows) if row is None]
        return specs + missing[: max(0, room - len(specs))]

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return self.tuning.pruned_at(rows, spec, curve)

    def finished(self, rows: Rows) -> bool:
        return self.tuning.finished(rows) and all(row is not None for _, row in self.confirmed(rows))

    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """Specs of every setting; `tuned` is there once the search has ended and a trial of it is complete."""
        finals = {setting: list(specs) for setting, specs in self.known.items()}
        if self.tuning.finished(rows) and (best := self.tuning.best(rows)) is not None:
            finals[TUNED] = [with_options(spec, best.values) for spec in self.final]
        return finals

    def planned(self, rows: Rows) -> dict[str, Sequence[RunSpec]]:
        """As `finals`, with specs for `tuned` in any case: before its options are known, those that await them."""
        return {**self.known, TUNED: self.final} | self.finals(rows)

    def confirmed(self, rows: Rows) -> list[tuple[RunSpec, Row | None]]:
        """Every spec of `finals`, setting by setting, and its row if it has finished."""
        return [(spec, self.row(rows, spec)) for specs in self.finals(rows).values() for spec in specs]

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        return rows.get(run_key(spec, self.tuning.task_version))


def with_options(spec: RunSpec, values: Mapping[str, float]) -> RunSpec:
    """`spec` with some of its task options replaced."""
    return dataclasses.replace(spec, options=tuple((dict(spec.options) | dict(values)).items()))


@dataclass(slots=True)
class RegularizationStudy:
    """Tuning, ablation and their figures; satisfies `launch.Study`."""

    task: Task
    search: TuneAndConfirm
    settings: dict[str, Any]
    export: Path | None = None
    _known: tuple[int, Answer] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return NAME

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
        done = [row for row in self._rows(rows) if row["steps"]]
        if not done:
            return None
        return self._steps_left(rows) * statistics.fmean(row["seconds"] / row["steps"] for row in done)

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
        timed = [row["seconds"] / row["steps"] for row in self._rows(rows) if row["steps"]]
        of_step = statistics.fmean(timed) if timed else step_seconds(self.search.tuning.template, self.task)
        s = self.settings
        where = (
            f"N = {s['N']}, {s['region']}, rank {s['rank']}, {s['channels']} channels, {s['epochs']} epochs; {s['sampler']} "
            f"sampler, {s['pruner']} pruner\n"
            f"rows go to {s['store']}/runs, weights to {s['store']}/weights, tables and figures to {s['out']}"
        )
        return Group(table, Text(where)), self._steps_left(rows) * of_step

    def _steps_left(self, rows: Rows) -> float:
        tuning = self.search.tuning
        trials = tuning.finished_trials(rows)
        share = statistics.fmean(t.row["steps"] for t in trials) / tuning.template.max_steps if trials else GUESSED_SHARE
        steps = (tuning.trials - len(trials)) * tuning.template.max_steps * (share if tuning.pruner != "none" else 1.0)
        finals = [spec for specs in self.search.planned(rows).values() for spec in specs]
        return steps + sum(spec.max_steps for spec in finals if self.search.row(rows, spec) is None)

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Tables, JSON and figures, at the end of a launch; and the Optuna study if it was asked for and is complete."""
        if not force or not self._rows(rows):
            return []
        tuning = self.search.tuning
        study = tuning.study(rows) if tuning.space else None
        files = self._answer(rows).write(out, Artifacts(self.settings["store"]).weights_path, study)
        if self.export is not None and tuning.finished(rows):
            tuning.export(rows, self.export, f"{NAME}-{self.settings['region']}")
            files.append(self.export)
        return files

    def answer(self, rows: Rows) -> dict[str, Any]:
        return self._answer(rows).to_json()

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known; computed anew only when there are more rows."""
        from analysis.regularization import Answer

        if self._known is None or self._known[0] != len(rows):
            tuning = self.search.tuning
            best = tuning.best(rows)
            answer = Answer.of(
                [trial_record(t) for t in tuning.finished_trials(rows)],
                [
                    {"setting": setting, "row": row}
                    for setting, specs in self.search.finals(rows).items()
                    for spec in specs
                    if (row := self.search.row(rows, spec)) is not None
                ],
                None if best is None else trial_record(best),
                [trial_record(t) for t in tuning.front(rows)],
                self.settings,
            )
            self._known = len(rows), answer
        return self._known[1]

    def _rows(self, rows: Rows) -> list[Row]:
        """Those of this study."""
        trials = [trial.row for trial in self.search.tuning.finished_trials(rows)]
        return trials + [row for _, row in self.search.confirmed(rows) if row is not None]


def trial_record(trial: Trial) -> dict[str, Any]:
    """A trial as the analysis takes it."""
    row = trial.row
    return {
        "number": trial.number,
        **{name: row["options"][name] for name in WEIGHTS},
        "status": ending(row),
        "id_mse": row["id_mse"],
        "validation_mse": row["ood_mse"],
        "steps": row["steps"],
        "key": row["key"],
    }


def _weight_cells(options: Mapping[str, Any]) -> Iterator[str]:
    return (f"{options[name]:.3g}" for name in WEIGHTS)


def _number(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:.2e}"
