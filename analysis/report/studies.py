"""Every study that was asked of a store, as far as its rows answer it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from analysis.remake import search_of
from analysis.report.drawn import drawn_by_task
from analysis.report.kinds import OF_SEARCH
from analysis.report.told import FORMER, GOING, Around, Say, Told, shortened, unsaid
from analysis.report.unloaded import unless_loaded
from analysis.results import Results
from orchestrator.errors import printable
from orchestrator.searches import Rows
from orchestrator.store import Question

TITLED = "task", "N"
"""Settings that a title names; N not of every kind of study."""
MOST_BESIDE = 4
"""Settings that tell a study from the others of its kind."""
MOST_LETTERS = 60
"""Of one of these settings."""


def studies_of(results: Results, around: Around, say: Say = unsaid) -> tuple[list[Told], list[str]]:
    """The studies in order of their last run, the latest first; and a line for each question that cannot be asked again.

    Args:
        say: is given which question is next.
    """
    rows, told, notices = Rows(results.runs), [], []
    for number, question in enumerate(results.questions):
        say(f"answering question {number + 1} of {len(results.questions)}", number, len(results.questions))
        try:
            told.append(tell(question, results, rows, around))
        except Exception as error:  # a question may come from anywhere, and must not cost the page
            line = f"the question {question.name} is left out of the studies: {error}{unless_loaded(question, results, error)}"
            notices.append(printable(line))
    last = {run["key"]: run["finished_at"] for run in results.runs}
    told = [one if one.state != GOING else replace(one, lines=[f"so far, {line}" for line in one.lines]) for one in told]
    told.sort(key=lambda one: max((last[key].timestamp() for key in one.keys), default=0.0), reverse=True)
    return [replace(one, beside=beside) for one, beside in zip(told, _beside(told), strict=True)], notices


def _beside(told: Sequence[Told]) -> list[str]:
    """Of each study the first settings in which it differs from others of its kind; before them its task, if another has the
    same title."""
    tasks: dict[str, set[str]] = {}
    for one in told:
        tasks.setdefault(one.title, set()).add(one.question.task)
    found, values = [one.settings for one in told], dict[tuple[str, str], Counter[str]]()
    items = [one.items for one in told]
    kinds = Counter(one.question.study for one in told)
    for one, settings in zip(told, found, strict=True):
        for name, value in settings.items():
            values.setdefault((one.question.study, name), Counter())[value] += 1
    beside = []
    for one, settings, parts in zip(told, found, items, strict=True):
        kind = one.question.study
        titled = TITLED if "N = " in one.title else TITLED[:1]
        differ = [name for name, value in settings.items() if values[kind, name][value] < kinds[kind] and name not in titled]
        words = [f"task {one.question.task}"] if len(tasks[one.title]) > 1 else []
        words += [f"{name} {shortened(parts[name], MOST_LETTERS)}" for name in differ[: MOST_BESIDE - len(words)]]
        beside.append(" · ".join(words))
    return beside


def tell(question: Question, results: Results, rows: Rows, around: Around) -> Told:
    """What the rows say of a question.

    Raises:
        ValueError: it does not tell enough, or its task is not loaded and has to be.
    """
    task = results.tasks.get(question.task)
    is_former = task is not None and task.version != question.task_version
    search = search_of(question, None if is_former else task, results.runs)
    told = OF_SEARCH[type(search)](search, question, rows, around)
    own = [row for key in told.keys if (row := rows.get(key)) is not None]
    failed = sum(row["status"] == "failed" for row in own)
    pictures = [*told.pictures, *drawn_by_task(own, results.tasks, around.weights)]
    told = replace(told, pictures=pictures, failed=failed)
    return told if not is_former or told.keys else _of_former(told)


def _of_former(told: Told) -> Told:
    line = "It was asked of a former version of its task. Today's version trains other runs: start the study again."
    return Told(told.question, told.title, FORMER, told.progress, [line], told.keys)
