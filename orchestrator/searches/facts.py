"""What a question keeps of its task, so that a search can be made again where the task is not loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.searches.space import Dimension
from trainables.spec import Scalar

FREE = ("lr", "weight_decay", "schedule")
"""Searched settings from which no others follow, whatever the task."""
MOST_LISTED = 64
"""Values that a searched setting may have before a table of facts knows those of its range only by the range."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a task makes of some settings, as facts keep it: a line for each of their values, without settings that change
    nothing."""

    by: Sequence[str]
    lines: Mapping[str, Any]
    """What follows, by the values of `by` as JSON; a setting that is left out is null."""

    @classmethod
    def of(cls, points: Iterable[tuple[Mapping[str, Scalar], Any]]) -> Table | None:
        """
        Args:
            points: settings, and what follows from them.

        Returns:
            None if the same settings have several consequences.
        """
        known = list(points)
        names = list(dict.fromkeys(name for values, _ in known for name in values))
        if (table := cls._by(names, known)) is None:
            return None
        for name in names:
            table = cls._by([other for other in table.by if other != name], known) or table
        return table

    @classmethod
    def _by(cls, names: Sequence[str], points: Sequence[tuple[Mapping[str, Scalar], Any]]) -> Table | None:
        lines: dict[str, Any] = {}
        table = cls(names, lines)
        for values, follows in points:
            if json.dumps(lines.setdefault(table._key(values), follows)) != json.dumps(follows):
                return None
        return table

    @classmethod
    def read(cls, value: Any) -> Table:
        """From the facts of a question, which may come from anywhere.

        Raises:
            ValueError: it is none.
        """
        by, lines = (value.get(name) if isinstance(value, dict) else None for name in ("by", "lines"))
        if not isinstance(by, list) or not all(isinstance(name, str) for name in by) or not isinstance(lines, dict):
            raise ValueError("a table of its facts must have names and lines")
        return cls(by, lines)

    def to_json(self) -> dict[str, Any]:
        return {"by": list(self.by), "lines": dict(self.lines)}

    def at(self, values: Mapping[str, Scalar]) -> Any:
        """What follows from these settings.

        Raises:
            ValueError: the task cannot do them.
        """
        try:
            return self.lines[self._key(values)]
        except KeyError:
            raise ValueError(f"the task cannot do these settings: {dict(values)!r:.200}") from None

    def _key(self, values: Mapping[str, Scalar]) -> str:
        return json.dumps([values.get(name) for name in self.by])


def kept_as(dimensions: Iterable[Dimension], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Searched settings as a `Table` has them: each one's value, or its range in words, if that has many. One that does not
    lie in the space is left out, as it is at its default."""
    kept: dict[str, Scalar] = {}
    for one in (one for one in dimensions if one.name in values and one.holds(values[one.name])):
        value = values[one.name]
        is_listed = one.size <= MOST_LISTED or value in one.words
        kept[one.name] = value if is_listed else one.text.rpartition("|")[2]
    return kept
