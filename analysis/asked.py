"""The searches that launches made, made again from the questions that a store keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.remake import penalty_search, threshold_search
from analysis.remake_tune import Alike
from orchestrator.searches.confirm import ConfirmAndJudge
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS
from trainables.regularization import COMPARED, DECODER_TASK, WEIGHTS
from trainables.spec import RunSpec, family_key
from trainables.task import Task


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its search made again. `specs` are those that tell which runs it is about, and `families` those of these
    runs: of the scaling study all, of the regularization study those of COMPARED."""

    question: Question
    search: ThresholdSearch | ConfirmAndJudge
    specs: Sequence[RunSpec]
    families: frozenset[str]


def asked_again(
    questions: Iterable[Question], tasks: Mapping[str, Task], families: set[str], tell: Callable[[Question, str], None]
) -> list[Asked]:
    """The questions of the scaling and the regularization study, in today's version of a loaded task, that some runs are about.

    Args:
        families: those of the runs.
        tell: is given a question that cannot be asked again, and why.
    """
    found = []
    for question in questions:
        task = tasks.get(question.task)
        if task is None or task.version != question.task_version or question.study not in ("scaling", "regularization"):
            continue
        is_scaling = question.study == "scaling"
        parts = (THRESHOLDS,) if is_scaling else COMPARED
        specs = [spec for part in parts for spec in question.specs.get(part, ())]
        ways = [spec for one in specs for spec in ((one, one.to_the_end()) if is_scaling else (one,))]
        own = frozenset(family_key(spec, task.version) for spec in ways)
        if (own.isdisjoint(families) and is_usual(question)) or question.task == DECODER_TASK:
            continue
        try:
            search = threshold_search(question, task) if is_scaling else penalty_search(question, WEIGHTS)
        except ValueError as error:
            tell(question, str(error))
        else:
            if isinstance(search, ThresholdSearch):
                own = frozenset(search.families)
            if not own.isdisjoint(families):
                found.append(Asked(question, search, specs, own))
    return found


def is_usual(question: Question) -> bool:
    """Whether it is not about the least of another setting, or along another one than N."""
    return not {"least", "along"} & question.search.keys()


def tuned(questions: Iterable[Question], runs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The keys of runs that a search of the tune study asked for: they say nothing of another study unless it asked for them,
    too. Those that another study names are left out. A question that is damaged names none."""
    questions = list(questions)
    searches = [found for question in questions if question.study == "tune" and (found := Alike.of(question)) is not None]
    held = [run for run in runs if any(search.holds(run) for search in searches)]
    keys = {(RunSpec.from_dict(run), run["task_version"]): run["key"] for run in held}
    for question in questions if keys else ():
        for spec in question.every_spec if question.study != "tune" else ():
            keys.pop((spec, question.task_version), None)
    return frozenset(keys.values())
