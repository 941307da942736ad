"""Finished runs whose weights are wanted and are not in the store: trained again if the user asks for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator.searches import Curve, Recorded, Row, Rows, Search
from orchestrator.searches.needs import Needs, needed
from trainables.spec import RunSpec

WITHOUT = ("failed", "pruned")
"""How runs end that leave no weights in any case."""


class Remaking:
    """A `Search` that proposes, besides what another one does, finished runs whose weights are not there.

    Args:
        search: what is asked.
        specs: finished runs that are to have weights. What they need comes before them.
        has_weights: whether a finished run left weights that are still there.
    """

    def __init__(self, search: Search, needs: Needs, specs: Iterable[RunSpec], has_weights: Callable[[str], bool]) -> None:
        self.search = search
        self._needs, self._has_weights = needs, has_weights
        self._specs: dict[str, RunSpec] = {}
        self._before: dict[str, set[str]] = {}
        """What each of them needs, and what that needs in turn, by key."""
        for spec in specs:
            earlier = [one for of_name in needed(needs, [spec]).values() for one in of_name.items()]
            for key, one in [*earlier, (needs.key(spec), spec)]:
                if key not in self._specs:
                    self._specs[key] = one
                    self._before[key] = {before for of_name in needed(needs, [one]).values() for before in of_name}

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """What the search needs; then these runs, before what the search only may need."""
        keys = dict.fromkeys(self._left(rows))
        ready = [self._specs[key] for key in keys if keys.keys().isdisjoint(self._before[key])]
        fill = max(0, min(room if fill is None else fill, room) - len(ready))
        asked = self.search.propose(rows, room, running, fill)
        return list(dict.fromkeys([*asked, *ready]))[:room]

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        """None for one of these runs: it has ended otherwise before."""
        return None if self._needs.key(spec) in self._specs else self.search.pruned_at(rows, spec, curve)

    def finished(self, rows: Rows) -> bool:
        return next(self._left(rows), None) is None and self.search.finished(rows)

    def again(self, key: str) -> bool:
        """Whether a finished run is to be trained once more."""
        return key in self._specs and not self._has_weights(key)

    def leave(self, key: str) -> bool:
        """Ask for a run no more; False if another of these needs it."""
        if any(key in before for before in self._before.values()):
            return False
        del self._specs[key], self._before[key]
        return True

    @property
    def keys(self) -> list[str]:
        return list(self._specs)

    def _left(self, rows: Rows) -> Iterator[str]:
        """Those that are still to be trained. A run that needs one that has failed cannot be."""
        for key, before in self._before.items():
            found = [rows.get(one) for one in (key, *before)]
            if any(row is not None and row["status"] == "failed" for row in found):
                continue
            if found[0] is None or not self._has_weights(key):
                yield key


def finished_runs(search: Search, rows: Rows) -> list[Row]:
    """The finished runs of a study that may have weights."""
    found = search.runs(rows) if isinstance(search, Recorded) else []
    return [row for row in {row["key"]: row for row in found}.values() if row["status"] not in WITHOUT]
