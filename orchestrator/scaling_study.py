"""The scaling study as a launch sees it: what to search, what to show, what to write."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.estimate import step_seconds
from orchestrator.progress import Running, format_seconds
from orchestrator.searches import Rows
from orchestrator.searches.audits import BUDGET, UNAUDITED
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.spec import RunSpec
from orchestrator.tables import FittingTable
from trainables.task import Task

if TYPE_CHECKING:
    from analysis.scaling import Answer

NAME = "scaling"
GUESSED_PROBES = 5
"""Runs a threshold is expected to take before anything is known."""
GUESSED_STEPS = 400
"""Steps of such a run."""


@dataclass(slots=True)
class ScalingStudy:
    """Thresholds for every data set, grid size and seed; satisfies `launch.Study`."""

    task: Task
    brackets: list[Bracket]
    resolution: float
    settings: dict[str, Any]
    speculate: bool = True
    stop: str = "auto"
    search: ThresholdSearch = field(init=False)
    _written: frozenset[tuple[str, int]] = frozenset()
    _results: tuple[tuple[int, int], list[ThresholdResult]] | None = None
    _known: tuple[object, Answer] | None = None

    def __post_init__(self) -> None:
        self.search = ThresholdSearch(self.brackets, self.resolution, self.speculate, self.stop)

    def results(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each threshold, in the order of the brackets; looked up anew only when there are more rows."""
        state = (id(rows), len(rows))
        if self._results is None or self._results[0] != state:
            self._results = state, self.search.answer(rows)
        return self._results[1]

    @property
    def name(self) -> str:
        return NAME

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
        if row["stop"] == "target":
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
        for result in self.results(rows):
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
            rules = {r.dataset: r.rule.to_dict() for r in results}
            self._known = settled, Answer.of([r.to_row() for r in results], self.settings, rules)
        return self._known[1]

    def seconds_left(self, rows: Rows) -> float | None:
        """Probes and audits left, at the mean times of their grid size and data set so far (or scaled by pixels from another
        size)."""
        timed = self._timed(rows)
        if not timed:
            return None
        return sum(self._seconds_left(r, timed) for r in self.results(rows) if r.verdict == "open")

    def _seconds_left(self, result: ThresholdResult, timed: Mapping[tuple[str, int], Times]) -> float:
        """Work that one open threshold may still take."""
        times = _expected(timed, result.dataset, result.N)
        probes = result.probes_left or (0 if result.audits_left and result.upper is not None else GUESSED_PROBES)
        return probes * times.run + result.audits_left * self.brackets[0].template.max_steps * times.step

    def _timed(self, rows: Rows) -> dict[tuple[str, int], Times]:
        found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
        for bracket in self.brackets:
            at = (bracket.template.dataset, bracket.template.N)
            # audits are reckoned apart; under `budget` there are no other runs
            families = (bracket.full_family, bracket.family) if self.stop == "budget" else (bracket.family,)
            found.setdefault(at, []).extend(r for family in families for r in rows.family(family).values() if r["steps"])
        return {
            at: Times(statistics.fmean(r["seconds"] for r in runs), statistics.fmean(r["seconds"] / r["steps"] for r in runs))
            for at, runs in found.items()
            if runs
        }

    def plan(self, rows: Rows) -> tuple[RenderableType, float]:
        """Runs done and to do, and how long they may take, judged by rows in the store or by a few steps timed here."""
        results = self.results(rows)
        timed = self._timed(rows) or self._measured()
        table = FittingTable("plan: open thresholds; the number of runs to do is an estimate")
        for name in ("data set", "N", "open", "runs done", "runs to do", "audits", "time"):
            table.add_column(name, justify="left" if name == "data set" else "right")
        total = 0.0
        for dataset, N in dict.fromkeys((r.dataset, r.N) for r in results):
            row = [r for r in results if (r.dataset, r.N) == (dataset, N)]
            still = [r for r in row if r.verdict == "open"]
            probes, audits = sum(r.probes_left or GUESSED_PROBES for r in still), sum(r.audits_left for r in still)
            seconds = sum(self._seconds_left(r, timed) for r in still)
            total += seconds
            counted = (len(still), sum(r.runs for r in row), probes, audits)
            table.add_row(dataset, str(N), *map(str, counted), format_seconds(seconds))
        spec = self.brackets[0].template
        where = (
            f"{spec.decoder}, depth {spec.depth}, width {spec.width}, {spec.encoding} encoding, {spec.precision}\n"
            f"rows go to {self.settings['store']}/runs, the table and the figure to {self.settings['out']}"
        )
        return Group(table, Text(where)), total

    def _measured(self) -> dict[tuple[str, int], Times]:
        """Times of a guessed run at each data set's smallest grid, from a few steps timed here and now."""
        first: dict[str, RunSpec] = {}
        for bracket in self.brackets:
            spec = bracket.template.with_count(max(1, bracket.counts.low))
            if spec.dataset not in first or spec.N < first[spec.dataset].N:
                first[spec.dataset] = spec
        steps = GUESSED_STEPS
        if self.stop == "budget":  # half of the runs do not pass
            steps = (steps + self.brackets[0].template.max_steps) // 2
        timed = {(dataset, spec.N): step_seconds(spec, self.task) for dataset, spec in first.items()}
        return {at: Times(steps * step, step) for at, step in timed.items()}

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
        text += f" [{run.spec.data_count}{' to the end' * (run.spec.stop == 'target')}:{accuracy or ' ...'}]"
    return Text(text, style=style)


class Times(NamedTuple):
    """Seconds of a run and of a step."""

    run: float
    step: float


def _expected(timed: Mapping[tuple[str, int], Times], dataset: str, N: int) -> Times:
    """At this data set and N; else those of the nearest N of the same (or any) data set, by pixels."""
    same = {n: times for (d, n), times in timed.items() if d == dataset} or {n: times for (_, n), times in timed.items()}
    if not same:
        return Times(0.0, 0.0)
    nearest = min(same, key=lambda n: abs(n - N))
    scale = (N / nearest) ** 2
    return Times(same[nearest].run * scale, same[nearest].step * scale)
