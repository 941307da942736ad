"""Two rows of one run compared: what its training decided, and where the two were trained."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import printable
from orchestrator.searches import Row
from trainables.training.result import CURVES

WORDS = ("status", "reason")
NUMBERS = ("steps", "passage_step", "accuracy", "id_mse", "ood_mse", "loss")
NAMED = ("measures", "curve_summary")
"""Columns that hold values by name."""
PLACES = ("host", "device", "pack_size", "versions")
"""Of PROVENANCE, what may change the last digits of a result."""
SHOWN, NAME_SHOWN = 6, 40
"""Digits of a number, and letters of a name."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A value of the two rows. `difference` is the relative one: of a curve, the largest against its largest value. None: they
    are not numbers, or it has no bound."""

    column: str
    stored: Any
    now: Any
    same: bool
    """Bit for bit."""
    difference: float | None

    def cells(self) -> tuple[str, str, str, str]:
        """As tables show it."""
        told = "another" if self.difference is None else f"{self.difference:.1e}"
        told = "same" if self.same else told
        return printable(self.column)[:NAME_SHOWN], _shown(self.stored), _shown(self.now), told


@dataclass(frozen=True, slots=True)
class Endings:
    """How a run ended, twice.

    Args:
        close: the relative difference up to which numbers are close.
    """

    stored: Row
    now: Row
    close: float

    @property
    def columns(self) -> list[Compared]:
        """What the training decided, value by value."""
        return [_compared(*values) for values in _values(self.stored, self.now)]

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """What differs of where the two were trained; of versions, those that differ."""
        return {
            name: _differing(self.stored[name], self.now[name]) if name == "versions" else (told, told_now)
            for name in PLACES
            if (told := str(self.stored[name])) != (told_now := str(self.now[name]))
        }

    @property
    def needs_bits(self) -> bool:
        """Whether nothing excuses a difference: a processor gives the same bits again, a GPU need not."""
        return not self.places and str(self.stored["device"]).startswith("cpu")

    @property
    def verdict(self) -> str:
        """`same`, `close` or `otherwise`."""
        columns = self.columns
        if all(one.same for one in columns):
            return "same"
        close = all(one.same or (one.difference is not None and one.difference <= self.close) for one in columns)
        return "close" if close and not self.needs_bits else "otherwise"

    def lines(self) -> list[str]:
        """What differs of where the two were trained, and the verdict."""
        told = [f"{printable(name)}: {printable(a)} then, {printable(b)} now" for name, (a, b) in self.places.items()]
        return [*told, self.conclusion()]

    def conclusion(self) -> str:
        """The verdict in a sentence."""
        if self.verdict == "same":
            return "the run ended as the store says, bit for bit"
        other = [one for one in self.columns if not one.same]
        if self.stored["status"] == "failed" and self.now["status"] != "failed":
            return (
                "the run failed then and ended now, so the cause may lie outside the task: the study tries its failed runs "
                "again if you add --retry-failed to its command"
            )
        if self.verdict == "close":
            worst = max(one.difference or 0.0 for one in other)
            return f"the run ended as the store says, to within {worst:.1e} of each value (at most {self.close:g} is close)"
        if self.needs_bits:
            where = ", where with the same machine and versions every bit should be the same"
        else:
            other, where = [one for one in other if one.difference is None or one.difference > self.close], ""
        return f"the run ended otherwise than the store says{where}: {', '.join(one.cells()[0] for one in other)}"


def _values(stored: Row, now: Row) -> Iterator[tuple[str, Any, Any]]:
    for name in (*WORDS, *NUMBERS):
        yield name, stored[name], now[name]
    for column in NAMED:
        values, values_now = (dict(row[column] or {}) for row in (stored, now))
        for name in dict.fromkeys([*values, *values_now]):
            yield f"{column}.{name}", values.get(name), values_now.get(name)
    for name in CURVES:
        yield name, list(stored[name]), list(now[name])


def _compared(column: str, stored: Any, now: Any) -> Compared:
    difference: float | None
    if isinstance(stored, list) and isinstance(now, list):
        same = len(stored) == len(now) and all(map(_same, stored, now))
        difference = _of_curves(stored, now)
    else:
        same, difference = _same(stored, now), _of_curves([stored], [now])
    return Compared(column, stored, now, same, 0.0 if same else difference)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same bit for bit; NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def _of_curves(one: Sequence[Any], other: Sequence[Any]) -> float | None:
    """The relative difference of two curves: of their lengths, or of the points that both have."""
    lengths = _relative(len(one), len(other), max(len(one), len(other)))
    if not one or not other:
        return lengths
    both = [pair for pair in zip(one, other, strict=False) if not _same(*pair)]
    if not all(_is_number(value) for pair in both for value in pair):
        return None
    largest = max((abs(value) for value in (*one, *other) if _is_number(value)), default=0)
    return max([lengths, *(_relative(a, b, largest) for a, b in both)])


def _relative(one: float, other: float, largest: float) -> float:
    return abs(one - other) / largest if one != other else 0.0


def _is_number(value: Any) -> bool:
    """Whether it is one that a difference has a meaning for."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} points"
    if isinstance(value, float):
        return f"{value:.{SHOWN}g}"
    return "" if value is None else printable(str(value))[:NAME_SHOWN]


def _differing(stored: str, now: str) -> tuple[str, str]:
    """The words of two texts that the other one does not have."""
    words, words_now = stored.split(), now.split()
    only, only_now = ([w for w in some if w not in others] for some, others in ((words, words_now), (words_now, words)))
    return " ".join(only) or "none", " ".join(only_now) or "none"


def to_json(endings: Endings) -> Mapping[str, Any]:
    """All of it as plain values."""
    columns = [
        {"column": one.column, "stored": one.stored, "now": one.now, "same": one.same, "difference": one.difference}
        for one in endings.columns
    ]
    places = {name: {"stored": stored, "now": now} for name, (stored, now) in endings.places.items()}
    return {"verdict": endings.verdict, "columns": columns, "places": places}
