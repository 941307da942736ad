"""What a stored question says of its search: read, and refused where no launch could have written it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.searched import read_search
from orchestrator.errors import UserError
from orchestrator.searches.space import Dimension, log_range
from trainables.settings import Setting
from trainables.spec import Scalar


class TaskNeededError(ValueError):
    """A question does not tell enough, which its task does."""


def dimension_of(name: str, value: Any, setting: Setting) -> Dimension:
    """What was searched of a setting: in words, or, in older questions, the two ends of a range.

    Raises:
        ValueError: neither.
    """
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return log_range(name, *value)
    try:
        [found] = read_search([f"{name}={value}"], {name: setting}, exact=True)
    except (UserError, ValueError) as error:
        raise ValueError(f"the space of {name} is {value!r:.100}, which is none: {error}") from None
    return found


def confirmed_of(search: Mapping[str, Any]) -> int:
    """How many trials are confirmed.

    Raises:
        ValueError: no number that a launch could have asked for.
    """
    confirm: Scalar | None = search.get("confirm")
    most = 1 if confirm is None else confirm
    if type(most) is not int or not 1 <= most <= MOST_PLANNED:
        raise ValueError(f"confirm must be a whole number from 1 to {MOST_PLANNED}, not {confirm!r:.100}")
    return most


def seeds_of(value: Any) -> list[int]:
    """
    Raises:
        ValueError: they are no list of whole numbers, or too many.
    """
    if not isinstance(value, list) or len(value) > MOST_PLANNED or not all(type(seed) is int for seed in value):
        raise ValueError(f"seeds must be a list of whole numbers, not {value!r:.100}")
    return value
