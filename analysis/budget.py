"""Which stored questions a page answers: a store may come from anywhere, and small files can ask for hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from analysis.importance import MOST_TRIALS
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.searches.narrowing import MOST_SEEDS
from orchestrator.store import Question
from orchestrator.store.questions import THRESHOLDS

MOST_SECONDS = 600.0
"""Of all questions of a store, by `seconds_of`. A hundred studies of 10,000 runs each take a sixth."""
OF_QUESTION, OF_THRESHOLD, OF_RUN, OF_VALUE, OF_TRIAL = 1.0, 4e-4, 7e-5, 1.3e-4, 1.5e-2
"""Seconds on a slow core: a question at least, with its tables and figures; a threshold; a run; a value that a threshold of
another setting than the data count may have; and a trial by which it is told how much each setting matters."""


def affordable(questions: Sequence[Question]) -> list[Question]:
    """Those that are answered together within MOST_SECONDS, in their order: the quickest ones."""
    seconds = list(map(seconds_of, questions))
    left, kept = MOST_SECONDS, set[int]()
    for place in sorted(range(len(questions)), key=seconds.__getitem__):
        left -= seconds[place]
        if left < 0:
            break
        kept.add(place)
    return [question for place, question in enumerate(questions) if place in kept]


def seconds_of(question: Question) -> float:
    """About how long it takes to answer a question. It is known before anything is made of the question, which may say
    anything: what no launch could have asked for is refused later, and quickly."""
    search, thresholds = question.search, len(question.specs.get(THRESHOLDS, ()))
    further = 1 if search.get("until_width") is None else MOST_SEEDS
    trials = max(_number(of.get("trials")) for of in (search, question.settings))
    confirming = min(_number(search.get("confirm")), trials) * _length(search.get("fresh_seeds"))
    runs = sum(map(len, question.specs.values())) - thresholds + trials + confirming
    matters = min(trials, MOST_TRIALS) * OF_TRIAL
    return max(OF_QUESTION, matters + runs * OF_RUN + further * thresholds * (OF_THRESHOLD + _values(search) * OF_VALUE))


def _values(search: Any) -> float:
    """How many values a threshold may have, if it is one of another setting than the data count."""
    ends, resolution = search.get("between"), search.get("resolution")
    if not isinstance(ends, list) or search.get("least", "data_count") == "data_count":
        return 0.0
    try:
        low, high = ends
        whole = high - low + 1 if isinstance(low, int) and isinstance(high, int) else math.inf
        return min(max(0.0, math.log(high / low) / -math.log1p(-resolution)), whole, 2 * MOST_PLANNED)
    except (ArithmeticError, TypeError, ValueError):
        return 0.0


def _number(value: Any) -> int:
    return min(value, MOST_PLANNED) if type(value) is int and value > 0 else 0


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0
