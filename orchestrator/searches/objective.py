"""What a search makes small or large: a number of a row, its direction, and its curve along the way."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = {"mse": "ood_mse", "id_mse": "id_mse", "accuracy": "accuracy", "steps": "steps"}
"""Numbers that have a column of a row, by the name that a user gives them."""
UP = ("accuracy", "correct", "exact", "proper")
"""Names, and ends of names, of what is better the larger it is."""
DOWN = ("mse", "loss", "error", "steps")
"""... and the smaller it is."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A number of a row that is to be small, or large (`up`).

    `curve`: the column of a row that holds it along the way, `curve_error` or `curve_accuracy`; empty if none does.
    """

    name: str
    up: bool = False
    curve: str = ""

    @property
    def text(self) -> str:
        """As a user may write it, whatever the name."""
        return f"{'max' if self.up else 'min'}:{self.name}"

    def of(self, row: Mapping[str, Any]) -> float:
        """The number; NaN if the row has none."""
        value = number_of(row, self.name)
        return math.nan if value is None else float(value)


def number_of(row: Mapping[str, Any], name: str) -> float | None:
    """The number of a row that has this name: of a column, of a measure on what is held out, or the last of a curve of the
    task's own. `loss` is that of what is held out."""
    if name in COLUMNS:
        value: float | None = row[COLUMNS[name]]
        return value
    if name in row["measures"]:
        measured: float | None = row["measures"][name]
        return measured
    if name == "loss":
        squared: float | None = row["ood_mse"]
        return squared
    curve = (row["curve_summary"] or {}).get(name)
    return curve[-1] if curve else None


def is_hidden(name: str, measured: Collection[str], summarised: Collection[str]) -> bool:
    """Whether `number_of` gives a number of every run where a task has another one of this name.

    Args:
        measured: the names of the task's measures. On the training set each has `id_` before its name.
        summarised: those of the curves of its own.
    """
    return name in COLUMNS and (name in measured or name in summarised or name.removeprefix("id_") in measured)


def direction_of(name: str) -> bool | None:
    """Whether the larger number is the better one, judged by its name; None if the name does not tell."""
    last = _last(name)
    return True if last in UP else False if last in DOWN else None


def is_share(name: str) -> bool:
    """Whether a number is a share, from 0 to 1, judged by its name."""
    return _last(name) in UP


def _last(name: str) -> str:
    return name.rsplit("_", 1)[-1]


def means(values: Sequence[Sequence[float]], up: bool) -> tuple[list[float], bool]:
    """The mean of each list, and whether they are geometric: where all numbers are positive and are to be small, as errors that
    span decades are."""
    logs = not up and all(value > 0 for some in values for value in some)
    return [mean(some, logs) for some in values], logs


def mean(values: Sequence[float], logs: bool) -> float:
    """The arithmetic mean, or the geometric one; of equal values one of them, to the bit."""
    if len(set(values)) == 1:
        return values[0]
    if logs:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # only the sum is no float
        return math.fsum(value / len(values) for value in values)
