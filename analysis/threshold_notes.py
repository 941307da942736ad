"""What there is to say of single thresholds, beside the law: those that more steps may lower, and those that other runs
contradict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.command.thresholds import outlier_text
from orchestrator.searches import Row, Rows
from orchestrator.searches.audits import BUDGET
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from trainables.program import PATH as PROGRAM_TASK
from trainables.spec import Scalar
from trainables.training.stopping import LEAST_POINTS, has_converged


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
    """A line per data set for thresholds whose lower bound is a run that the step budget ended while it still learned, as its
    curve tells."""
    if not results or task == PROGRAM_TASK or "max_steps" in (results[0].axes.least, results[0].axes.along):
        return []
    places: dict[str, dict[Scalar, None]] = {}
    for i, result in zip(search.numbers(rows), results, strict=True):
        if result.lower_ended == BUDGET and result.lower is not None:
            found = search.found(rows, i)
            watched, full = found.early.get(result.lower), found.full.get(result.lower)
            row = watched if full is None else full
            if row is not None and row["reason"] == BUDGET and _had_not_converged(row):
                places.setdefault(result.dataset, {})[result.along] = None
    along = results[0].axes.along
    return [
        f"{dataset}: at {along} = {', '.join(map(str, values))} some lower bounds are runs that ended after "
        f"{max_steps} steps before they had converged: more steps may lower the threshold"
        for dataset, values in places.items()
    ]


def _had_not_converged(row: Row) -> bool:
    """Whether a run had not converged at its end, as the stopping rule would say if it had twice the steps: by the accuracy
    alone, however well the training set was learned. False where no curve tells."""
    steps = row.get("curve_step", ())
    if len(steps) < LEAST_POINTS:
        return False
    fitted = math.inf  # the scale of the loss is in no row
    return not has_converged(row["curve_loss"], row["curve_accuracy"], row["target"], 2 * steps[-1], fitted, steps[0])
