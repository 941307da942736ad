"""A search whose runs need other runs: these are proposed first, each once. A run is not proposed if one that it needs has not
made it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from orchestrator.searches import Curve, Latest, Row, Rows, Search
from trainables.spec import RunSpec

PASSED = "passed"
ROUNDING = 1e-6
"""Of an accuracy."""
ALL = 2**20
"""More runs than a search proposes."""


class Needs(Protocol):
    """Which runs a run needs; see `trainables.needs.Tasks`."""

    def key(self, spec: RunSpec) -> str: ...
    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]: ...


@runtime_checkable
class PassingOver(Protocol):
    """A search that goes on without the runs that cannot be trained."""

    is_blocked: Callable[[Rows, RunSpec], bool] | None


@dataclass(frozen=True, slots=True)
class Unmet:
    """A run that others need and that has not made it: it failed or, where there are gates, has not reached its target."""

    name: str
    """What the runs that need it call it."""
    row: Row


def has_passed(row: Row) -> bool:
    """Whether what a run has left reaches its target. One that takes its whole budget may have reached it on the way, and end
    under it."""
    accuracy = row.get("accuracy") if row.get("stop") == "budget" else None
    return bool(row["status"] == PASSED and (accuracy is None or accuracy >= row["target"] - ROUNDING))


def with_needed(rows: Iterable[Row], find: Callable[[str], Row | None]) -> list[Row]:
    """These rows, then those of the runs that they needed, and that these needed in turn, each once.

    Args:
        find: gives a row by its key, if there is one.
    """
    found = {row["key"]: row for row in rows}
    queue = list(found.values())
    for row in queue:
        for key in (row.get("parents") or {}).values():
            if key not in found and (parent := find(key)) is not None:
                found[key] = parent
                queue.append(parent)
    return queue


def needed(needs: Needs, specs: Iterable[RunSpec]) -> dict[str, dict[str, RunSpec]]:
    """The runs that these need, and those that they need in turn: by name, then by key; the earliest stage first."""
    found: dict[str, dict[str, RunSpec]] = {}
    for spec in specs:
        for name, parent in needs.needs(spec).items():
            for earlier, of_name in needed(needs, [parent]).items():
                found.setdefault(earlier, {}).update(of_name)
            found.setdefault(name, {})[needs.key(parent)] = parent
    return found


class Staged:
    """A `Search` that proposes what the runs of another one need before these.

    Args:
        search: what is asked.
        needs: which runs a run needs.
        find: the finished run that is in the store though not in the rows, if any.
        has_weights: whether a finished run left weights that are still there. Where it did not, it is proposed again.
        gates: whether a run that others need must have passed. A run that failed left nothing, and so is always in the way.
    """

    def __init__(
        self,
        search: Search,
        needs: Needs,
        find: Callable[[RunSpec], Row | None],
        has_weights: Callable[[str], bool],
        gates: bool = True,
    ) -> None:
        self.search, self.gates = search, gates
        self._needs, self._find, self._has_weights = needs, find, has_weights
        self._parents: dict[str, tuple[str, RunSpec]] = {}
        self._before: dict[RunSpec, list[tuple[str, RunSpec]]] = {}
        """What runs need, and what that needs in turn, each once with its name: the earliest first."""
        self._stuck = Latest(lambda rows: bool(self.unmet(rows)) and not self.propose(rows, ALL, (), 1))
        if isinstance(search, PassingOver):
            search.is_blocked = self.is_blocked

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """As the search does, which is told of runs found meanwhile; a run that waits for others makes room for more."""
        fill = room if fill is None else min(fill, room)
        hidden = 0
        while True:
            additions = rows.additions
            asked = self.search.propose(rows, room + hidden, running, fill + hidden)
            chosen: dict[str, RunSpec] = {}
            for spec in asked:
                chosen |= self._first(rows, spec)
            is_all = len(asked) < fill + hidden or hidden > ALL
            if len(chosen) >= fill or (is_all and additions == rows.additions):
                return list(chosen.values())[:room]
            if not is_all:
                hidden = 2 * hidden + len(asked) - len(chosen)

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        """None for a run that others need."""
        return None if self.is_parent(spec) else self.search.pruned_at(rows, spec, curve)

    def finished(self, rows: Rows) -> bool:
        """Whether the search has, or all that it still asks for needs runs that have not made it."""
        return self.search.finished(rows) or self._stuck.of(rows)

    def is_parent(self, spec: RunSpec) -> bool:
        """Whether others need this run, as far as they are known."""
        return self._needs.key(spec) in self._parents

    def name(self, key: str) -> str | None:
        """What those that need a run call it; None if none does."""
        return self._parents[key][0] if key in self._parents else None

    def known(self) -> dict[str, list[str]]:
        """The keys of the runs that others need, as far as they are known, by name."""
        found: dict[str, list[str]] = {}
        for key, (name, _) in list(self._parents.items()):  # others may add to them meanwhile
            found.setdefault(name, []).append(key)
        return found

    def again(self, key: str) -> bool:
        """Whether a finished run is to be trained once more, as others need its weights and they are gone."""
        return key in self._parents and not self._has_weights(key)

    def unmet(self, rows: Rows) -> list[Unmet]:
        """The runs that others need, as far as they are known, and that have not made it."""
        found = ((name, rows.get(key)) for key, (name, _) in list(self._parents.items()))
        return [Unmet(name, row) for name, row in found if row is not None and self._is_unmet(row)]

    def is_blocked(self, rows: Rows, spec: RunSpec) -> bool:
        """Whether a run needs one that has not made it, or that cannot be trained for the same reason."""
        for parent in self._needs.needs(spec).values():
            row = rows.get(self._needs.key(parent))
            if self.is_blocked(rows, parent) if row is None else self._is_unmet(row):
                return True
        return False

    def parents(self, rows: Rows, specs: Sequence[RunSpec]) -> dict[str, dict[str, RunSpec]]:
        """As `needed`; what is heard of for the first time is looked up in the store."""
        found = needed(self._needs, specs)
        for name, of_name in found.items():
            for parent in of_name.values():
                self._know(rows, name, parent)
        return found

    def waiting(self, rows: Rows) -> list[RunSpec]:
        """The runs that the search asks for now, whether they can be trained or not."""
        return [] if self.search.finished(rows) else self.search.propose(rows, ALL, (), 1)

    def _first(self, rows: Rows, spec: RunSpec) -> dict[str, RunSpec]:
        """What is to be trained next so that `spec` can be: itself, or runs that it needs; nothing if one of these has not made
        it. By key."""
        chosen: dict[str, RunSpec] = {}
        for name, parent in self._needs.needs(spec).items():
            key = self._know(rows, name, parent)
            row = rows.get(key)
            if row is not None and self._is_unmet(row):
                return {}
            for one in [parent] if row is None or self.again(key) else self._gone_before(rows, parent):
                first = {} if _has_failed(rows.get(self._needs.key(one))) else self._first(rows, one)
                if not first:
                    return {}
                chosen |= first
        return chosen or {self._needs.key(spec): spec}

    def _gone_before(self, rows: Rows, spec: RunSpec) -> list[RunSpec]:
        """The runs without weights among those that a finished one needed: who needs it is given these, too."""
        return [one for name, one in self._all_before(spec) if not self._has_weights(self._know(rows, name, one))]

    def _all_before(self, spec: RunSpec) -> list[tuple[str, RunSpec]]:
        if spec not in self._before:
            found: dict[RunSpec, str] = {}
            for name, parent in self._needs.needs(spec).items():
                for earlier, one in [*self._all_before(parent), (name, parent)]:
                    found.setdefault(one, earlier)
            self._before[spec] = [(name, one) for one, name in found.items()]
        return self._before[spec]

    def _is_unmet(self, row: Row) -> bool:
        return _has_failed(row) or (self.gates and not has_passed(row))

    def _know(self, rows: Rows, name: str, parent: RunSpec) -> str:
        """Look a run up in the store when it is first heard of; its key."""
        key = self._needs.key(parent)
        if key not in self._parents:
            self._parents[key] = name, parent
            if rows.get(key) is None and (row := self._find(parent)) is not None:
                rows.add(row)
        return key


def _has_failed(row: Row | None) -> bool:
    return row is not None and row["status"] == "failed"
