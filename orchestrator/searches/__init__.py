"""What a search is: a pure function from finished runs to the runs worth doing next."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from trainables.spec import RunSpec

T = TypeVar("T")
Row = Mapping[str, Any]
"""One finished run as stored: at least `key`, `family`, `data_count`, `status`, `steps`."""


UNWELL = ("diverged", "failed")
"""Endings of runs whose numbers are not averaged."""


def ending(row: Mapping[str, Any]) -> str:
    """How a run ended, in the word of tables: no target decides over one that takes all its steps, so it is `finished`."""
    return "finished" if row["stop"] == "budget" and row["status"] in ("passed", "missed") else str(row["status"])


@dataclass(frozen=True, slots=True)
class Curve:
    """What is known of a run along the way: held-out mean squared `error`, and `accuracy`, at each `step`."""

    step: Sequence[int]
    error: Sequence[float]
    accuracy: Sequence[float] = ()


_NONE: Mapping[float, Row] = MappingProxyType({})
_CURVES = {"curve_step": "i", "curve_loss": "d", "curve_accuracy": "d", "curve_error": "d"}
"""Columns kept as arrays of C's int and double: lists would take five times the memory."""


def compact(row: Row) -> dict[str, Any]:
    """The same row with arrays as curves, which are not copied if they are arrays."""
    lists = {name: kind for name, kind in _CURVES.items() if name in row and not isinstance(row[name], array)}
    return {**row, **{name: array(kind, row[name]) for name, kind in lists.items()}}


class Rows:
    """Index of finished runs in memory. It only grows; a row whose key is known already replaces the older one.

    `turn` is held while a row is added, and by a search while it brings what it knows up to date: a thread that shows the study
    and the one that decides may ask it at the same time. Nobody may wait for anything else while holding it.

    `on_gpu` says of a decoder whether this launch trains it on a GPU: what runs took on another kind of device says nothing of
    how long it takes.
    """

    def __init__(self, rows: Iterable[Row] = (), on_gpu: Callable[[str], bool] = lambda decoder: False) -> None:
        self.turn, self.on_gpu = threading.RLock(), on_gpu
        self._by_key: dict[str, Row] = {}
        self._families: dict[str, dict[float, Row]] = {}
        self._added: list[str] = []
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Index one finished run. The row is kept, in a compact form: do not change it afterwards."""
        row = compact(row)
        with self.turn:
            self._by_key[row["key"]] = row
            self._families.setdefault(row["family"], {})[int(row["data_count"])] = row
            self._added.append(row["family"])

    def get(self, key: str) -> Row | None:
        """The run with this key; None if it has not finished."""
        return self._by_key.get(key)

    def family(self, family: str) -> Mapping[float, Row]:
        """Finished runs that differ only in their data count, by data count. A live view: do not change it."""
        return self._families.get(family, _NONE)

    @property
    def additions(self) -> int:
        """How often a row was added: an equal number means that nothing changed in between."""
        return len(self._added)

    def added_since(self, additions: int) -> Sequence[str]:
        """The families of the rows added since there were so many additions, one for each."""
        return self._added[additions:]

    def __iter__(self) -> Iterator[Row]:
        """Over the rows there are now: others may add to them meanwhile."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)


class Latest(Generic[T]):
    """What is made of rows, made anew only when rows were added since."""

    def __init__(self, make: Callable[[Rows], T]) -> None:
        self._make = make
        self._kept: tuple[Rows, int, T] | None = None
        """Set at once: a thread that shows the study and the one that decides may ask at the same time."""

    def of(self, rows: Rows) -> T:
        kept, additions = self._kept, rows.additions
        if kept is None or kept[0] is not rows or kept[1] != additions:
            self._kept = kept = rows, additions, self._make(rows)
        return kept[2]


class Search(Protocol):
    """Proposes runs. Same rows (in any order of arrival), same runs in progress, same room and fill: same proposals, in any
    process, at any time."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """Up to `room` unfinished runs in order of priority: those the answer needs and, where these are fewer than `fill`
        (`room` if not given), those it may need up to `fill` runs in all.

        `running` are the runs in progress; they may be proposed again, the engine passes over them. An empty list from a
        search that has `finished` means that the question is answered.
        """

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        """Number of points of the run's curve after which it is not worth going on, so that the run ends there as `pruned`;
        None while it is. A function of the curve up to that point, and of the rows that had finished when the search was first
        asked about it: of a run that was let past a point, it is not judged once more by later rows."""

    def finished(self, rows: Rows) -> bool:
        """Whether these rows answer the question."""


@runtime_checkable
class Recorded(Search, Protocol):
    """A search that knows which runs are its own."""

    def runs(self, rows: Rows) -> list[Row]:
        """The finished ones."""
