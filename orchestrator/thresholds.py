"""The study of thresholds: the least value of a setting with which runs reach their target, along another one. A `Study`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command.progress import Running, time_taken
from orchestrator.command.tables import accuracy_text
from orchestrator.command.thresholds import At, at, brackets_table, plan_table, what_is_trained
from orchestrator.engine.estimate import GUESSED_STEPS, Chain, Mean, Pace, Usual, Work, is_alike, probes_left, usual_of
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


class Left(NamedTuple):
    """What a threshold may still take: so many probes and audits, and the seconds of one."""

    probes: float = 0.0
    probe: float = 0.0
    audits: float = 0.0
    audit: float = 0.0

    @property
    def seconds(self) -> float:
        return self.probes * self.probe + self.audits * self.audit


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
    _drawn: tuple[Any, Mapping[str, Any], Sequence[Path]] | None = None
    """The answer that was written last, what was told beside it, and its files: the last run of a launch often writes what its
    end would write again."""
    _typical: dict[At, RunSpec] = field(init=False)
    """A run of each place."""

    def __post_init__(self) -> None:
        how = self.resolution, self.speculate, self.stop
        self.search = threshold_search(self.brackets, *how, self.until_width, _widths)
        self._results = Latest(self.search.answer)
        rungs = map(self.search.rungs, range(len(self.brackets)))
        # a walk of which nothing is foretold begins two thirds of the way up
        typical = [values[0 if self.axes.least == "data_count" else len(values) * 2 // 3] for values in rungs]
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
        return f"{run} (accuracy {accuracy_text(row['accuracy'])}, {time_taken(row)})"

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

    def write_answer(self, answer: Any, out: Path, told: Mapping[str, Any]) -> Sequence[Path]:
        """Write its files, with what is told beside it."""
        from analysis.files import write_scaling

        return write_scaling(answer, out, told)

    def work_left(self, rows: Rows) -> Work | None:
        """Probes and audits left, of as many steps as those of their grid size and data set so far."""
        with rows.turn:  # all of one moment
            results, numbers = self.results(rows), self.search.numbers(rows)
        pace = self._pace(rows)
        return self._work(self._left(results, pace), numbers) if self._is_timed(results, pace) else None

    def _is_timed(self, results: Sequence[ThresholdResult], pace: Pace) -> bool:
        """Whether something is known of the time of every open threshold."""
        still_open = (self._typical[r.dataset, r.along] for r in results if r.verdict == "open")
        return bool(pace.times) and all(map(pace.times.knows, still_open))

    def _left(self, results: Sequence[ThresholdResult], pace: Pace) -> list[Left]:
        """What each threshold may still take."""
        usual, ends = usual_of(results), dict[At, float]()
        for r in results:
            if self.axes.least != "data_count" and (end := _end_of(r)) is not None:
                ends.setdefault((r.dataset, r.along), end)
        return [self._left_of(r, pace, usual[r.dataset], ends) if r.verdict == "open" else Left() for r in results]

    def _left_of(self, result: ThresholdResult, pace: Pace, usual: Usual, ends: Mapping[At, float]) -> Left:
        """
        Args:
            ends: where the searched setting changes the time of a step: by place, a value near which runs have come.
        """
        place, least = (result.dataset, result.along), self.axes.least
        spec = self._typical[place]
        if place in ends:
            spec = spec.with_value(least, ends[place] if (own := _end_of(result)) is None else own)
        probe, audit = pace.steps(spec) * pace.times(spec), spec.max_steps * pace.times(spec)
        if result.audits_left and result.tried and not result.probes_left:  # its walk is over
            return Left(0.0, probe, result.audits_left, audit)
        return Left(probes_left(result, usual.probes), probe, result.audits_left * usual.share_audited, audit)

    def _work(self, left: Sequence[Left], numbers: Sequence[int]) -> Work:
        """The probes of a walk come one after another, and so do the walks of thresholds that wait for each other. Audits keep
        no other threshold waiting.

        Args:
            left: of each threshold.
            numbers: those of their brackets.
        """
        walks = {number: one.probes * one.probe for number, one in zip(numbers, left, strict=True)}
        chains = list[Chain]()
        for number, one in zip(numbers, left, strict=True):
            walk = walks[number] + sum(walks[before] for before in self.search.waits_for(number))
            audit = min(one.audits, 1.0) * one.audit
            chains.append(Chain(audit, walk) if self.speculate else Chain(audit + walk))
        return Work([run for one in left for run in ((one.probe, one.probes), (one.audit, one.audits))], chains)

    def _pace(self, rows: Rows) -> Pace:
        """How long runs take. What N means to a program is not known, nor what it trains on, so only its runs tell how its time
        grows."""
        return Pace.of(self._timed_runs(rows), None) if self.of_program else Pace.of(self._timed_runs(rows), on_gpu=rows.on_gpu)

    def _timed_runs(self, rows: Rows) -> list[Row]:
        """Finished runs as the search asks for them. Audits are reckoned apart; under `budget` there are no other runs."""
        families = [self.search.found(rows, i) for i in self.search.numbers(rows)]
        ways = [way for f in families for way in ((f.full, f.early) if self.stop == "budget" else (f.early,))]
        found = [row for way in ways for row in list(way.values())]
        if self.of_program:  # a run is one step
            return [{**{name: row[name] for name in TIMED}, "steps": 1} for row in found if row["status"] != "failed"]
        return [row for row in found if row["steps"]]

    def plan(self, rows: Rows) -> tuple[RenderableType, Work | None]:
        """Runs done and to do, and how long they may take, judged by rows in the store or by a few steps timed here. How long a
        program takes is not known before it has run."""
        results = self.results(rows)
        pace = self._pace(rows)
        if not self.of_program:
            self._measure(rows, results, pace)
        left = self._left(results, pace)
        seconds = dict.fromkeys(self._typical, 0.0)
        for r, one in zip(results, left, strict=True):
            seconds[r.dataset, r.along] += one.seconds
        guessed = {dataset: round(usual.probes) for dataset, usual in usual_of(results).items()}
        is_timed = self._is_timed(results, pace)
        table = plan_table(results, seconds if is_timed else {}, guessed)
        declared = settings_of(settings_class(self.task))
        alike = what_is_trained([bracket.template for bracket in self.brackets], self.axes, declared)
        store, out = self.settings["store"], self.settings["out"]
        weights = f"weights to {store}/weights, " if self.keeps_weights(self.brackets[0].template) else ""
        places = printable(f"rows go to {store}/runs, {weights}the table and the figure to {out}")
        where = "\n".join(filter(None, (alike, places)))
        return Group(table, Text(where)), self._work(left, self.search.numbers(rows)) if is_timed else None

    def _measure(self, rows: Rows, results: Sequence[ThresholdResult], pace: Pace) -> None:
        """Time a few steps here and now, as far as no runs tell: of two sizes of each data set, or of each value along. Guess
        how many steps a run takes."""
        typical = {place: spec if spec.data_count else spec.with_count(1) for place, spec in self._typical.items()}
        along, is_known = self.axes.along, bool(pace.times)
        for dataset in dict.fromkeys(name for name, _ in typical) if not is_known else ():
            specs = [spec for spec in typical.values() if spec.dataset == dataset]
            pace.times.measure_sizes(specs, self.task)
            # under `budget` half of the runs, which do not pass, take all steps
            steps = (GUESSED_STEPS + specs[0].max_steps) // 2 if self.stop == "budget" else GUESSED_STEPS
            pace.steps_taken.setdefault(dataset, {specs[0].N: Mean(steps, 1)})
        if along != "N":
            done = {value_of(row, along) for row in self._timed_runs(rows) if is_alike(row, rows.on_gpu)}
            still_open = {r.along for r in results if r.verdict == "open"}
            unknown = {value: spec for (_, value), spec in typical.items() if value in still_open and value not in done}
            pace.times.measure_each(unknown, self.task, self.axes.scaled)

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
        told = self._told_beside(answer, rows)
        if self._drawn is None or self._drawn[0] is not answer or self._drawn[1] != told:
            self._drawn = answer, told, self.write_answer(answer, out, told)
        return self._drawn[2]

    def answer(self, rows: Rows) -> dict[str, Any]:
        self.read_measures(patient=True)
        least = self.axes.least
        values = least if least.endswith("s") else f"{least}s"
        outliers = [
            {"dataset": r.dataset, self.axes.along: r.along, "seed": r.seed, values: list(r.outliers)}
            for r in self.results(rows)
            if r.outliers
        ]
        answer = self._answer(rows)
        return {**answer.to_json(), "outliers": outliers, **self._told_beside(answer, rows)}

    def _told_beside(self, answer: Any, rows: Rows) -> dict[str, Any]:
        """What the JSON tells beside the answer: whether the question is answered, as the exit code has it; how many thresholds
        are open; and all notes."""
        with rows.turn:  # all of one moment
            is_answered = self.answered(rows) and self.doubt(rows) is None
            still_open = sum(r.verdict == "open" for r in self.results(rows))
        return {"answered": is_answered, "open": still_open, "notes": [*answer.notes, *self.notes(rows)]}


def _end_of(result: ThresholdResult) -> float | None:
    """The end of its bracket near which the runs to come lie; None while it has none."""
    return result.lower if result.upper is None else result.upper


def _widths(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
    from analysis.scaling import widths

    return widths(results)
