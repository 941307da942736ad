"""What a page lacks where the tasks of some runs are not loaded: little, as studies are told without them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from analysis.asked import is_usual
from analysis.question_fields import TaskNeededError
from analysis.remake import OF_THRESHOLDS
from analysis.report.papers import are_of_papers
from analysis.report.told import Told
from analysis.results import Results
from analysis.tasks import not_loaded, to_load
from orchestrator.store import Question
from trainables.bumps import DATASETS


def lacking(results: Results, told: Sequence[Told], kept: Callable[[], Collection[str]]) -> list[str]:
    """A line about runs without the pictures that their task may draw, and one about those that claims leave out.

    Args:
        kept: the keys of the runs whose weights are kept.
    """
    runs = {run["key"]: run for run in results.runs if run["task"] not in results.tasks}
    shown = {key: runs[key] for one in told for key in one.keys & runs.keys()}
    able = [run for run in shown.values() if not run["parents"] and run["status"] != "failed"]
    with_weights = kept() if able else ()
    undrawn = [run["task"] for run in able if run["key"] in with_weights]
    asked = (one for one in told if one.question.study == "scaling" and is_usual(one.question))
    thresholds = {key for one in asked for key in one.keys} if are_of_papers(results) else ()
    unjudged = [shown[key]["task"] for key in thresholds if key in shown and shown[key]["dataset"] in DATASETS]
    return [
        *not_loaded(undrawn, results.tasks, "without pictures, which a task may draw"),
        *not_loaded(unjudged, results.tasks, "left out of the claims of papers"),
    ]


def unless_loaded(question: Question, results: Results, error: Exception) -> str:
    """What to do about a question that cannot be read, if its task tells what it lacks: one of an older launch, which keeps
    nothing of its task, or one about a setting that not all runs carry."""
    is_older = not question.facts and question.study in OF_THRESHOLDS
    if question.task in results.tasks or not (is_older or isinstance(error, TaskNeededError)):
        return ""
    return f"; its task is not loaded: {to_load(question.task)}"
