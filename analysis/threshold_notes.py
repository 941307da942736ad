"""What there is to say of single thresholds, beside the law: those that more steps may lower, and those that other runs
contradict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from orchestrator.command.thresholds import outlier_text
from orchestrator.searches import Row, Rows
from orchestrator.searches.audits import BUDGET
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from trainables.program import PATH as PROGRAM_TASK
from trainables.spec import Scalar
from trainables.training.stopping import BEGUN, CAUTION


def notes(
    search: ThresholdSearch, rows: Rows, results: Sequence[ThresholdResult], task: str, max_steps: object
) -> list[str]:
    """All of it, in words.

    Args:
        results: the answer of the search by these rows.
        task: the path of the task of the runs.
        max_steps: the budget of a run.
    """
    short = _cut_short(search, rows, results, task, max_steps)
    return [*short, *(outlier_text(r, task) for r in results if r.outliers)]


def _cut_short(
    search: ThresholdSearch, rows: Rows, results: Sequence[ThresholdResult], task: str, max_steps: object
) -> list[str]:
    """A line per data set for thresholds whose lower bound is a run that the step budget ended while it `_still_learned`."""
    if not results or task == PROGRAM_TASK or "max_steps" in (results[0].axes.least, results[0].axes.along):
        return []
    places: dict[str, dict[Scalar, None]] = {}
    for i, result in zip(search.numbers(rows), results, strict=True):
        if result.lower_ended == BUDGET and result.lower is not None:
            found = search.found(rows, i)
            watched, full = found.early.get(result.lower), found.full.get(result.lower)
            row = watched if full is None else full
            if row is not None and row["reason"] == BUDGET and _still_learned(row):
                places.setdefault(result.dataset, {})[result.along] = None
    along = results[0].axes.along
    return [
        f"{dataset}: at {along} = {', '.join(map(str, values))} some lower bounds are runs that ended after "
        f"{max_steps} steps while they still learned: more steps may lower the threshold"
        for dataset, values in places.items()
    ]


def _still_learned(row: Row) -> bool:
    """Whether a run may pass with twice the steps: its accuracy was still 0, or had only begun to rise (BEGUN), or would reach
    the target if a doubling of the steps added CAUTION times what the last one did. Means over a quarter of the points tell
    that. An accuracy that is flat above 0 is no reason, however near the target it lies. False where no curve tells."""
    accuracy: Sequence[float] = row.get("curve_accuracy", ())
    if len(accuracy) < 2 or row["accuracy"] is None:
        return False
    half = len(accuracy) // 2
    before, recent = accuracy[:half], accuracy[half:]
    if min(recent) <= BEGUN * max(recent):
        return True
    early, late = (fmean(part[-max(1, len(part) // 4) :]) for part in (before, accuracy))
    return late > early and CAUTION * (late - early) >= row["target"] - row["accuracy"]
