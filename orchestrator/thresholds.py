"""The study of thresholds: the least value of a setting with which runs reach their target, along another one. A `Study`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command.progress import Running, time_taken
from orchestrator.command.thresholds import At, at, brackets_table, plan_table, what_is_trained
from orchestrator.engine.estimate import GUESSED_STEPS, Mean, Pace, Usual, probes_left, usual_of
from orchestrator.errors import printable
from orchestrator.searches import Latest, Row, Rows
from orchestrator.searches.axes import BUMPS, Axes, value_of
from orchestrator.searches.bracket import MISSED, Bracket, ThresholdResult
from orchestrator.searches.narrowing import threshold_search
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS
from orchestrator.study import PlainStudy, facts_of
from trainables.program import ProgramTask
from trainables.settings import settings_class, settings_of
from trainables.spec import GIVEN_UP, RunSpec
from trainables.task import Task

TIMED = ("dataset", "N", "decoder", "depth", "width", "encoding", "seconds")
"""Columns from which the time of further runs is guessed."""


@dataclass(slots=True)
class ThresholdStudy(PlainStudy):
    """Thresholds for every data set, grid size (or other value along) and seed; a `Study`."""

    task: Task
    brackets: list[Bracket]
    resolution: float
    settings: dict[str, Any]
    speculate: bool = True
    stop: str = "auto"
    until_width: float | None = None
    name: str = "scaling"
    search: ThresholdSearch = field(init=False)
    _written: frozenset[At] = frozenset()
    _results: Latest[list[ThresholdResult]] = field(init=False)
    _known: tuple[object, Any] | None = None
    _drawn: tuple[Any, Sequence[Path]] | None = None
    """The answer that was written last, and its files: the last run of a launch often writes what its end would write again."""
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
    def _subject(self) -> str:
        """The path of the task."""
        return self.brackets[0].template.task

    @property
    def of_program(self) -> bool:
        """Whether the runs are those of a program, whose steps say nothing of the time that it takes."""
        return isinstance(self.task, ProgramTask)

    @property
    def question(self) -> Question:
        names = {"least", "along", "between", "until_width"} & self.settings.keys()
        return Question(
            study=self.name,
            task_version=self.task.version,
            specs={THRESHOLDS: [bracket.template for bracket in self.brackets]},
            search={"resolution": self.resolution, "stop": self.stop, **{name: self.settings[name] for name in sorted(names)}},
            settings=self.settings,
            facts=facts_of(self.brackets),
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        return {"family": self.search.families}

    def keeps_end(self, spec: RunSpec) -> bool:
        return self.search.may_audit(spec)

    def answered(self, rows: Rows) -> bool:
        return all(r.verdict not in ("open", "failed") for r in self.results(rows))

    def doubt(self, rows: Rows) -> str | None:
        return self.search.doubt(rows)

    def line(self, row: Mapping[str, Any]) -> str:
        value, along = value_of(row, self.axes.least), value_of(row, self.axes.along)
        run = f"{row['dataset']} {self.axes.along}={along} seed {row['seed']}: {self.axes.told(value, self._subject)}"
        run += f" {row['status']}"
        if row["reason"] == GIVEN_UP:
            run += ", given up"
        elif row["status"] == MISSED and row["stop"] == "target" and not self.of_program:
            run += ", trained to the end"
        if row["accuracy"] is None:
            return run
        return f"{run} (accuracy {row['accuracy']:.3f}, {time_taken(row)})"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """Each seed's bracket as it narrows, the law as far as it is known, and what there is to say of single thresholds."""
        results = self.results(rows)
        title = f"least {self.axes.words(self._subject).replace('_', ' ')}"
        if "target" in self.settings and self.axes.along != "target":
            title += f" for accuracy {self.settings['target']:g}"
        if self.axes.is_usual and not self.of_program:
            title += " on held-out coordinates" if self._subject == BUMPS else " on what is held out"
        table = brackets_table(title, results, running, self._subject)
        return Group(table, *map(Text, (*self._answer(rows).lines(), *self.notes(rows))))

    def notes(self, rows: Rows) -> list[str]:
        """What there is to say of single thresholds, beside the law."""
        from analysis.threshold_notes import notes

        with rows.turn:  # all of one moment
            return notes(self.search, rows, self.results(rows), self._subject, self.settings.get("max_steps"))

    def _answer(self, rows: Rows) -> Any:
        """The answer as far as it is known; computed anew only when a threshold has been settled since."""
        results = self.results(rows)
        settled = tuple((r.family, r.along, r.runs, r.lower_ended, r.rule) for r in results if r.verdict != "open")
        if self._known is None or self._known[0] != settled:
            from analysis.scaling import Answer

            self._known = settled, Answer.of_results(results, self.settings)
        return self._known[1]

    def write_answer(self, answer: Any, out: Path) -> Sequence[Path]:
        """Write its files."""
        from analysis.files import write_scaling

        return write_scaling(answer, out)

    def seconds_left(self, rows: Rows) -> float | None:
        """Probes and audits left, of as many steps as those of their grid size and data set so far."""
        results, pace = self.results(rows), self._pace(rows)
        return sum(self._by_place(results, pace).values()) if self._is_timed(results, pace) else None

    def _is_timed(self, results: Sequence[ThresholdResult], pace: Pace) -> bool:
        """Whether something is known of the time of every open threshold."""
        still_open = (self._typical[r.dataset, r.along] for r in results if r.verdict == "open")
        return bool(pace.times) and all(map(pace.times.knows, still_open))

    def _by_place(self, results: Sequence[ThresholdResult], pace: Pace) -> dict[At, float]:
        """Seconds of work left, by data set and grid size."""
        seconds, usual = dict.fromkeys(self._typical, 0.0), usual_of(results)
        for r in results:
            if r.verdict == "open":
                seconds[r.dataset, r.along] += self._seconds_left(r, pace, usual[r.dataset])
        return seconds

    def _seconds_left(self, result: ThresholdResult, pace: Pace, usual: Usual) -> float:
        """Work that one open threshold may still take."""
        spec = self._typical[result.dataset, result.along]
        if result.audits_left and result.tried and not result.probes_left:  # its walk is over
            steps: float = result.audits_left * spec.max_steps
        else:
            audits = result.audits_left * usual.share_audited
            steps = probes_left(result, usual.probes) * pace.steps(spec) + audits * spec.max_steps
        return steps * pace.times(spec)

    def _pace(self, rows: Rows) -> Pace:
        """How long runs take. What N means to a program is not known, nor what it trains on, so nothing is assumed of its
        time."""
        return Pace.of(self._timed_runs(rows), 0.0) if self.of_program else Pace.of(self._timed_runs(rows), on_gpu=rows.on_gpu)

    def _timed_runs(self, rows: Rows) -> list[Row]:
        """Finished runs as the search asks for them. Audits are reckoned apart; under `budget` there are no other runs."""
        families = [self.search.found(rows, i) for i in self.search.numbers(rows)]
        ways = [way for f in families for way in ((f.full, f.early) if self.stop == "budget" else (f.early,))]
        found = [row for way in ways for row in list(way.values())]
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
        seconds = self._by_place(results, pace)
        guessed = {dataset: round(usual.probes) for dataset, usual in usual_of(results).items()}
        is_timed = self._is_timed(results, pace)
        table = plan_table(results, seconds if is_timed else {}, guessed)
        declared = settings_of(settings_class(self.task))
        alike = what_is_trained([bracket.template for bracket in self.brackets], self.axes, declared)
        places = printable(f"rows go to {self.settings['store']}/runs, the table and the figure to {self.settings['out']}")
        where = "\n".join(filter(None, (alike, places)))
        return Group(table, Text(where)), sum(seconds.values()) if is_timed else None

    def _measure(self, pace: Pace) -> None:
        """Time a few steps of two sizes of each data set, here and now, and guess how many a run takes."""
        of_dataset = dict[str, list[RunSpec]]()
        for spec in self._typical.values():
            of_dataset.setdefault(spec.dataset, []).append(spec if spec.data_count else spec.with_count(1))
        for dataset, specs in of_dataset.items():
            pace.times.measure_sizes(specs, self.task)
            # under `budget` half of the runs, which do not pass, take all steps
            steps = (GUESSED_STEPS + specs[0].max_steps) // 2 if self.stop == "budget" else GUESSED_STEPS
            pace.steps_taken.setdefault(dataset, {specs[0].N: Mean(steps, 1)})

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """The files of the answer, from the first answered grid size on, renewed with every further one."""
        self.read_measures(patient=force)
        results = self.results(rows)
        open_places = {(r.dataset, r.along) for r in results if r.verdict == "open"}
        answered = frozenset((r.dataset, r.along) for r in results) - open_places
        self._written &= answered  # a place may open again
        if not (answered - self._written) and not (force and any(r.runs for r in results)):
            return []
        self._written = answered
        answer = self._answer(rows)
        if self._drawn is None or self._drawn[0] is not answer:
            self._drawn = answer, self.write_answer(answer, out)
        return self._drawn[1]

    def answer(self, rows: Rows) -> dict[str, Any]:
        self.read_measures(patient=True)
        least = self.axes.least
        values = least if least.endswith("s") else f"{least}s"
        outliers = [
            {"dataset": r.dataset, self.axes.along: r.along, "seed": r.seed, values: list(r.outliers)}
            for r in self.results(rows)
            if r.outliers
        ]
        return {**self._answer(rows).to_json(), "outliers": outliers, "notes": self.notes(rows)}


def _widths(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
    from analysis.scaling import widths

    return widths(results)
