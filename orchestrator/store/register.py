"""What a store knows of its parts: each as it was when last looked at, and which runs are in them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.store.artifacts import Artifacts, Stamp, stamp_of
from orchestrator.store.index import Index, matching
from orchestrator.store.remote import Tell, tell_on_stderr


class LostPartError(Exception):
    """The part of this name is no longer what it was."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part as it was when last looked at. One that is `full` is never changed again."""

    stamp: Stamp
    rows: int
    full: bool
    head: pa.Table | None = None
    """Its INDEXED columns; None: they are in the index."""
    table: pa.Table | None = None
    """All columns; None: they are in the file, just so."""


class Register(Artifacts):
    """The files of a store, and what is known of its parts."""

    def __init__(self, path: str | Path, tell: Tell = tell_on_stderr) -> None:
        super().__init__(path, tell)
        self._parts: dict[str, Part] = {}
        self._index = Index()
        self._recent: set[str] = set()
        """The keys that are not in the index."""

    def _open_index(self) -> None:
        """Register the parts that are in the index, if all of them are as they were; else every part is read."""
        index = Index.open(self.path / ".index")
        with contextlib.suppress(OSError):
            if all(stamp_of((self._runs / name).stat()) == stamp for name, (stamp, _) in index.parts.items()):
                self._index = index
                self._parts = {name: Part(stamp, rows, True) for name, (stamp, rows) in index.parts.items()}

    def _drop_index(self) -> None:
        """The index is wrong, though whole: its parts are read anew."""
        for name in self._index.parts:
            del self._parts[name]
        self._index = Index()

    def _forget_index(self) -> None:
        """Keep in memory what is in the index, as one of its parts is not what it was."""
        for name, head in self._index.heads():
            self._parts[name] = replace(self._parts[name], head=head)
            self._recent.update(head["key"].to_pylist())
        self._index = Index()

    def _keys_of(self, name: str) -> set[str]:
        """Of a part that is not in the index; none of an unknown one."""
        part = self._parts.get(name)
        return set() if part is None or part.head is None else set(part.head["key"].to_pylist())

    def _known(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are in the store."""
        recent = self._recent.intersection(keys)
        return recent | self._index.holds([key for key in keys if key not in recent])

    def _drop(self, name: str) -> None:
        """Forget a part whose file is gone or damaged; its runs are no longer in the store."""
        if name in self._index.parts:
            self._forget_index()
        self._recent -= self._keys_of(name)
        self._parts.pop(name, None)

    def _places(self, where: Mapping[str, Collection[object]] | None) -> list[tuple[str, np.ndarray | None]]:
        """The parts that have such rows, and where in them; None for all their rows."""
        if where is None:
            return [(name, None) for name in sorted(self._parts)]
        places = dict(self._index.find(where))
        places |= {name: matching(part.head, where) for name, part in self._parts.items() if part.head is not None}
        return [(name, places[name]) for name in sorted(places) if len(places[name])]
