"""What a study is to a launch, and the study whose runs are known beforehand."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command.progress import Running, format_seconds
from orchestrator.command.tables import FittingTable, accuracy_text, runs_text
from orchestrator.engine.estimate import StepTimes, Work
from orchestrator.errors import printable
from orchestrator.searches import UNWELL, Row, Rows, Search, ending
from orchestrator.searches.axes import USUAL, Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.grid import GridSearch
from orchestrator.store import Question
from orchestrator.store.questions import RUNS
from trainables.check import counts_of
from trainables.check_words import blamed
from trainables.needs import Tasks
from trainables.program import ProgramTask
from trainables.settings import value_of
from trainables.spec import Counts, RunSpec
from trainables.task import Task

ABOUT: Mapping[str, str] = {
    name: name.replace("_", " ") for name in ("dataset", "decoder", "depth", "encoding", "holdout", "N", "data_count")
}
"""What tells the runs of one seed apart, and what tables call it; columns of the tables are those that differ."""
LEFT = ("dataset", "decoder", "encoding")
"""Columns of words."""
MEASURED = ("status", "accuracy", "id_mse", "ood_mse", "steps", "seconds", "key")
AVERAGED: Sequence[tuple[str, Callable[[float], str]]] = (
    ("id_mse", "{:.1e}".format),
    ("ood_mse", "{:.1e}".format),
    ("accuracy", lambda accuracy: accuracy_text(accuracy, 2)),
)
"""Columns whose means over seeds are shown, and how."""


def bracket_of(task: Task, spec: RunSpec, axes: Axes = USUAL, between: Between | None = None) -> Bracket:
    """What a threshold search needs to know of the runs that are like `spec`.

    Args:
        between: the values of the searched setting; None: the data counts that the task allows.

    Raises:
        ValueError: the task cannot do it.
    """
    counts = _counts_between(task, spec, axes, between)
    if not axes.is_usual:  # brackets differ in nothing but the data set, the axis along, and the seed
        return Bracket(template=spec, task_version=task.version, counts=counts, curve=spec.dataset, axes=axes)
    curve = getattr(task, "curve", lambda spec: "")
    return Bracket(template=spec, task_version=task.version, counts=counts, curve=curve(spec), audits=_audits_of(task, spec))


def _audits_of(task: Task, spec: RunSpec) -> int:
    """How many audits are known of runs like `spec`.

    Raises:
        ValueError: the task's `audits` fails, or gives no number.
    """
    if not hasattr(task, "audits"):
        return 0
    with blamed(f"audits() at N = {spec.N}"):
        audits = task.audits(spec)
    if type(audits) is not int or audits < 0:
        raise ValueError(f"the task's audits() must give a whole number from 0 on, not {audits!r:.40}")
    return audits


def _counts_between(task: Task, spec: RunSpec, axes: Axes, between: Between | None) -> Counts | Between:
    """
    Raises:
        ValueError: as `bracket_of`.
    """
    if axes.least == "data_count":
        counts = counts_of(task, spec)
        if not isinstance(task, ProgramTask):  # nothing can be trained without a sample
            counts = replace(counts, low=counts.least_trained)
        if between is None:
            return counts
        low, high = max(counts.low, int(between.low)), min(counts.high, int(between.high))
        if low > high:
            asked, allowed = f"{between.low} to {between.high}", f"{counts.low} to {counts.high}"
            place = f"{axes.along} = {value_of(spec, axes.along)}"
            raise ValueError(f"no data count from {asked} is possible at {place}, where the task allows {allowed}")
        return replace(counts, low=low, high=high)
    if between is None:
        raise ValueError(f"the least {axes.least} is searched in a range, and there is none")
    for value in (between.low, between.high):
        counts = counts_of(task, spec.with_value(axes.least, value))
        if not counts.low <= spec.data_count <= counts.high:
            along = "" if axes.along == "data_count" else f"{axes.along} = {value_of(spec, axes.along)}, "
            place, allowed = f"{along}{axes.least} = {value}", f"{counts.low} to {counts.high}"
            raise ValueError(f"data_count = {spec.data_count} is not possible at {place}, where the task allows {allowed}")
    return between


def facts_of(brackets: Sequence[Bracket]) -> dict[str, Any]:
    """What `brackets_again` needs of the task: the counts it allows, [low, high, fixed], the curve and the known audits of each
    bracket, one value where all have the same; whether they are checked. No counts where the question itself has the range."""
    facts: dict[str, list[Any]] = {"curve": [b.curve for b in brackets], "audits": [b.audits for b in brackets]}
    counts = [b.counts for b in brackets]
    facts["counts"] = [[c.low, c.high, c.fixed] if isinstance(c, Counts) else None for c in counts]
    told = {name: values[0] if all(value == values[0] for value in values) else values for name, values in facts.items()}
    return {**told, "checked": all(b.checked for b in brackets)}


def are_checked(facts: Mapping[str, Any]) -> bool:
    """Whether the thresholds of a stored question are checked. Those of former versions are not, and stay answered."""
    return facts.get("checked") is True


def brackets_again(
    specs: Sequence[RunSpec], task_version: str, facts: Mapping[str, Any], axes: Axes = USUAL, between: Between | None = None
) -> list[Bracket]:
    """The brackets of a stored question, without its task.

    Raises:
        ValueError: these are not the facts of so many brackets.
    """

    def each(name: str, kind: type) -> list[Any]:
        value = facts.get(name)
        # of counts a single value is a list itself, but not one of lists
        is_one = not isinstance(value, list) or (name == "counts" and _is_counts(value))
        values: Any = [value] * len(specs) if is_one else value
        if len(values) != len(specs) or not all(isinstance(one, kind) or (one is None and name == "counts") for one in values):
            raise ValueError(f"the facts of its {len(specs)} thresholds have no {name} of each")
        return values

    found = []
    for spec, counts, curve, audits in zip(specs, each("counts", list), each("curve", str), each("audits", int), strict=True):
        if counts is not None and not (_is_counts(counts) and 0 <= counts[0] <= counts[1] and counts[2] >= 0):
            raise ValueError(f"counts must be the least, the most and how many are fixed, not {counts!r:.100}")
        allowed = between if counts is None else Counts(*counts)
        if allowed is None:
            raise ValueError("its facts do not tell which data counts are allowed")
        known = {"template": spec, "task_version": task_version, "counts": allowed, "curve": curve, "audits": audits}
        found.append(Bracket(**known, axes=axes, checked=are_checked(facts)))
    return found


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(number) is int for number in value)


class Study(Protocol):
    """What a launch needs of a study."""

    task: Task

    @property
    def name(self) -> str: ...

    @property
    def search(self) -> Search: ...

    @property
    def question(self) -> Question:
        """What is asked, as the store keeps it: from this and the rows alone the same answer follows."""

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        """The finished runs that matter to this study, as `ResultStore.rows` takes it."""

    def plan(self, rows: Rows) -> tuple[RenderableType, Work | None]:
        """Runs done and to do, and what will be written where; and how much there is to train, if that can be guessed."""

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """The state of the question, for the live display and the end."""

    def line(self, row: Mapping[str, Any]) -> str:
        """A finished run in one plain line."""

    def work_left(self, rows: Rows) -> Work | None:
        """What is left to train up to the answer, as far as can be expected; None while nothing is known."""

    def read_measures(self, *, patient: bool = False) -> None:
        """Take in what was measured in the store, if the study shows any of it; `write` and `answer` do so first.

        Args:
            patient: whether a bucket that does not answer is waited for. While workers are to be heard it is not.
        """

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Write the result files if there is something new to say (`force`: in any case); the files there are."""

    def answer(self, rows: Rows) -> dict[str, Any]:
        """The answer, ready for JSON."""

    def keeps_weights(self, spec: RunSpec) -> bool:
        """Whether the study's figures need the final weights of this run."""

    def keeps_end(self, spec: RunSpec) -> bool:
        """Whether this run, if the stopping rule gives it up, may have to be trained on from there."""

    def answered(self, rows: Rows) -> bool:
        """Whether every part of the question has an answer; a failed run leaves a part without one."""

    def doubt(self, rows: Rows) -> str | None:
        """Why the answer means nothing though it is complete, and what to do; None if it does mean something."""


class PlainStudy:
    """Of a `Study` that shows nothing of what was measured in the store, keeps nothing of its runs but their rows, and whose
    answer always means something."""

    __slots__ = ()

    def read_measures(self, *, patient: bool = False) -> None:
        """There is nothing to take in."""

    def keeps_weights(self, spec: RunSpec) -> bool:
        return False

    def keeps_end(self, spec: RunSpec) -> bool:
        return False

    def doubt(self, rows: Rows) -> str | None:
        return None


@dataclass(slots=True)
class GridStudy(PlainStudy):
    """Every spec of a list, over seeds: trained, their weights kept, what came out in a table. A `Study`.

    What the decoders do inside is measured and drawn from their weights afterwards, by `python -m analysis.report`.
    """

    name: str
    task: Task
    specs: list[RunSpec]
    settings: dict[str, Any]
    """Those of the answer. `spares`: how many further seeds a setting may take, where what its runs need misses; none if it is
    not there."""
    about: Mapping[str, str] = field(default_factory=lambda: ABOUT)
    """Fields and options of a spec that may tell runs of one seed apart, and what tables call them."""
    always: Sequence[str] = ()
    """Those of `about` that are columns in any case."""
    notes: Sequence[str] = ()
    """What else the plan says."""
    search: GridSearch = field(init=False)
    columns: tuple[str, ...] = field(init=False)
    """What differs between the runs, besides the seed."""

    def __post_init__(self) -> None:
        self.specs = list(dict.fromkeys(self.specs))
        self.search = GridSearch(self.specs, self.task.version, self.settings.get("spares", 0), Tasks(self.task))
        differ = (name for name in self.about if name in self.always or len({value_of(spec, name) for spec in self.specs}) > 1)
        self.columns = tuple(differ) or ("decoder",)

    @property
    def question(self) -> Question:
        version, specs = self.task.version, {RUNS: self.specs}
        return Question(study=self.name, task_version=version, specs=specs, search={}, settings=self.settings)

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        shared = ("task", "dataset", "N", "decoder", "holdout", "seed", "data_count")
        found = {"task_version": {self.task.version}} | {name: {getattr(s, name) for s in self.specs} for name in shared}
        last = max(found["seed"])
        return found | {"seed": {*found["seed"], *range(last + 1, last + 1 + self.search.spares)}}

    def keeps_weights(self, spec: RunSpec) -> bool:
        return True

    def answered(self, rows: Rows) -> bool:
        return self.search.finished(rows) and all(row["status"] != "failed" for row in self.search.runs(rows))

    def line(self, row: Mapping[str, Any]) -> str:
        run = f"{', '.join(map(str, self._setting(RunSpec.from_dict(row))))}, seed {row['seed']}: {ending(row)}"
        if row["ood_mse"] is None and row["accuracy"] is None:
            return run
        if row["ood_mse"] is None:  # the loss is another
            return f"{run} (accuracy {accuracy_text(row['accuracy'], 2)}, {row['steps']} steps, {row['seconds']:.1f} s)"
        of_id = "" if row["id_mse"] is None else f"{row['id_mse']:.1e} ID, "
        return f"{run} (MSE {of_id}{row['ood_mse']:.1e} OOD, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """A line per setting: runs done and in progress, how many did not end well, and means over the seeds of the others."""
        busy = [self._setting(run.spec) for run in running.values()]
        ended_well = all(ending(row) not in UNWELL for row in self.search.runs(rows))
        over = "seeds" if ended_well else "the seeds that ended well"
        table = self._begun(f"{self.name}: means over {over}", "runs", "ID MSE", "OOD MSE", "OOD accuracy")
        for setting, specs in self._by_setting(rows).items():
            found = [row for spec in specs if (row := self.search.row(rows, spec)) is not None]
            ends = Counter(map(ending, found))
            unwell = ", ".join(f"{ends[end]} {end}" for end in UNWELL if ends[end])
            runs = runs_text(len(found), len(specs), busy.count(setting)) + (f" ({unwell})" if unwell else "")
            well = [row for row in found if ending(row) not in UNWELL]
            means = [_mean(well, name, text) for name, text in AVERAGED]
            table.add_row(*self._cells(setting), runs, *means)
        return table

    def work_left(self, rows: Rows) -> Work | None:
        times = self._times(rows)
        missing = [spec for spec in self.search.asked(rows) if self.search.row(rows, spec) is None]
        is_known = bool(times) and all(map(times.knows, missing))
        return Work([(spec.max_steps * times(spec), 1) for spec in missing]) if is_known else None

    def _times(self, rows: Rows) -> StepTimes:
        return StepTimes.of(self.search.runs(rows), on_gpu=rows.on_gpu)

    def plan(self, rows: Rows) -> tuple[RenderableType, Work]:
        """Runs done and to do in every setting, and how long they may take."""
        table = self._begun("plan", "runs done", "runs to do", "steps of a run", "time (about)")
        times, runs = self._times(rows), list[tuple[float, float]]()
        for setting, specs in self._by_setting(rows).items():
            missing = [spec for spec in specs if self.search.row(rows, spec) is None]
            if missing:
                times.measure(missing[0], self.task)
            seconds = [spec.max_steps * times(spec) for spec in missing]
            runs += [(of_run, 1) for of_run in seconds]
            done, steps = str(len(specs) - len(missing)), str(specs[0].max_steps)
            table.add_row(*self._cells(setting), done, str(len(missing)), steps, format_seconds(sum(seconds)))
        where = (
            f"rows go to {self.settings['store']}/runs, weights to {self.settings['store']}/weights, "
            f"the table to {self.settings['out']}"
        )
        return Group(table, *map(Text, (*self.notes, printable(where)))), Work(runs)

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """`NAME.csv`, a line per run, and `NAME.json`, at the end of a launch."""
        from orchestrator.command.files import csv_bytes, json_bytes, plain, write_files

        if not force or not (records := self._records(rows)):
            return []
        import pandas as pd

        contents = {
            f"{self.name}.csv": csv_bytes(pd.DataFrame(records), ("steps",)),
            f"{self.name}.json": json_bytes(plain({"settings": self.settings, "runs": records})),
        }
        return write_files(out, contents)

    def answer(self, rows: Rows) -> dict[str, Any]:
        from orchestrator.command.files import plain

        answer: dict[str, Any] = plain({"settings": self.settings, "runs": self._records(rows)})
        return answer

    def _records(self, rows: Rows) -> list[dict[str, Any]]:
        return [
            dict(zip(self.columns, self._setting(RunSpec.from_dict(row)), strict=True))
            | {name: row[name] for name in ("seed", *MEASURED)}
            | {"status": ending(row)}
            for row in self.search.runs(rows)
        ]

    def _begun(self, title: str, *more: str) -> FittingTable:
        """A table with the columns of the settings, and more to the right of them."""
        table = FittingTable(title)
        for name in self.columns:
            table.add_column(self.about[name], justify="left" if name in LEFT else "right")
        for name in more:
            table.add_column(name, justify="right")
        return table

    def _setting(self, spec: RunSpec) -> tuple[Any, ...]:
        return tuple(value_of(spec, name) for name in self.columns)

    def _cells(self, setting: tuple[Any, ...]) -> list[str]:
        """What tables show of a setting."""
        return list(map(str, setting))

    def _by_setting(self, rows: Rows) -> dict[tuple[Any, ...], list[RunSpec]]:
        groups: dict[tuple[Any, ...], list[RunSpec]] = {}
        for spec in self.search.asked(rows):
            groups.setdefault(self._setting(spec), []).append(spec)
        return groups


def _mean(rows: Sequence[Row], name: str, text: Callable[[float], str]) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    return text(statistics.fmean(values)) if values else ""
