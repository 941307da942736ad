"""What a store knows of its parts: each as it was when last looked at, and which runs are in them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.contents import FAILED, failed
from orchestrator.store.folder import stamp_of
from orchestrator.store.index import INDEXED, Index, places_in
from orchestrator.store.parts import is_large
from orchestrator.store.place import Stamp

ROWS_PER_PART = 500
ROWS_BEYOND_INDEX = 20_000
"""The index is written anew when so many rows of full parts are not in it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part as it was when last looked at. One that is `full` gets no more rows from who knows it so, and has its `table` only
    as long as the file has rows beyond these, and is about to lose them."""

    stamp: Stamp
    rows: int
    full: bool
    head: pa.Table | None = None
    """Its INDEXED columns; None: they are in the index."""
    table: pa.Table | None = None
    """All columns; None: they are in the file, just so."""
    has_failed: bool = False
    """Whether it has rows of runs that failed. Another try takes them out, and then it may not be full for others."""


class Register:
    """The parts of a store by name, and the keys of their rows.

    Args:
        bytes_per_part: a part of this size is full.
    """

    def __init__(self, bytes_per_part: int) -> None:
        self.parts: dict[str, Part] = {}
        self.index = Index()
        self._recent: set[str] = set()
        """The keys that are not in the index."""
        self._bytes_per_part = bytes_per_part

    def __len__(self) -> int:
        return sum(part.rows for part in self.parts.values())

    def open_index(self, path: Path) -> None:
        """Register the parts that are in the index of the store at `path`, if all of them are as they were; else every part is
        read."""
        index = Index.open(path / ".index")
        with contextlib.suppress(OSError):
            if all(stamp_of((path / "runs" / name).stat()) == stamp for name, (stamp, _) in index.parts.items()):
                self.index = index
                failing = {name for name, _ in index.find({"status": {FAILED}})}
                parts = index.parts.items()
                self.parts = {name: Part(stamp, rows, True, has_failed=name in failing) for name, (stamp, rows) in parts}

    def drop_index(self) -> None:
        """The index is wrong, though whole: its parts are read anew."""
        for name in self.index.parts:
            del self.parts[name]
        self.index = Index()

    def forget_index(self) -> None:
        """Keep in memory what is in the index, as one of its parts is not what it was."""
        for name, head in self.index.heads():
            self.parts[name] = replace(self.parts[name], head=head)
            self._recent.update(head["key"].to_pylist())
        self.index = Index()

    def beyond_index(self) -> dict[str, Part]:
        """The full parts that are not in the index, if they are so many that it should be written anew."""
        parts = {name: part for name, part in self.parts.items() if part.full and part.head is not None and part.table is None}
        return parts if sum(part.rows for part in parts.values()) >= ROWS_BEYOND_INDEX else {}

    def new_index(self) -> bytes:
        """The file of an index with the parts that are beyond it."""
        return self.index.extended({name: (part.stamp, part.head) for name, part in self.beyond_index().items()})

    def take_index(self, data: bytes) -> None:
        """Use what `new_index` gave, now that it is written."""
        self.parts |= {name: replace(part, head=None) for name, part in self.beyond_index().items()}
        self.index = Index.of(data)
        self._recent = {key for part in self.parts.values() if part.head is not None for key in part.head["key"].to_pylist()}

    def keys_of(self, name: str) -> set[str]:
        """Of a part that is not in the index; none of an unknown one."""
        part = self.parts.get(name)
        return set() if part is None or part.head is None else set(part.head["key"].to_pylist())

    def failed_of(self, name: str) -> dict[str, datetime | None]:
        """Those of `keys_of` whose runs failed, each with the time when it did; None: it is in the file only."""
        part = self.parts.get(name)
        if part is None or part.head is None:
            return {}
        if part.table is not None:
            return {**failed(part.table)}
        return dict.fromkeys(part.head["key"].filter(pc.equal(part.head["status"], FAILED)).to_pylist())

    def known(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are in the store."""
        recent = self._recent.intersection(keys)
        return recent | self.index.holds([key for key in keys if key not in recent])

    def put(
        self,
        name: str,
        stamp: Stamp,
        table: pa.Table,
        *,
        whole: bool = True,
        came: Iterable[str] = (),
        went: Iterable[str] = (),
    ) -> None:
        """Register a part anew.

        Args:
            whole: the file has these rows and no others.
            came: the keys that were not in the store before.
            went: the keys of rows that were in this part, and are in none now.
        """
        full = is_many(table.num_rows) or stamp[1] >= self._bytes_per_part or is_large(table)
        full = full or (not whole and name in self.parts and self.parts[name].full)  # who has read the file looks no more at it
        head = table.select(INDEXED)
        has_failed = pc.any(pc.equal(table["status"], FAILED)).as_py() is True
        self.parts[name] = Part(stamp, table.num_rows, full, head, None if full and whole else table, has_failed)
        self._recent.difference_update(went)
        self._recent.update(came)

    def drop(self, name: str) -> None:
        """Forget a part whose file is gone or damaged; its runs are no longer in the store."""
        if name in self.index.parts:
            self.forget_index()
        self._recent -= self.keys_of(name)
        self.parts.pop(name, None)

    def changing_parts(self) -> list[str]:
        """The parts that may get or lose rows."""
        return [name for name, part in self.parts.items() if not part.full or part.table is not None or part.has_failed]

    def open_parts(self) -> list[str]:
        """The parts that are not full, the longest first."""
        parts = [name for name, part in self.parts.items() if not part.full]
        return sorted(parts, key=lambda name: self.parts[name].rows, reverse=True)

    def places(self, where: Mapping[str, Collection[object]] | None) -> list[tuple[str, np.ndarray | None]]:
        """The parts that have such rows, and where in them; None for all their rows."""
        if where is None:
            return [(name, None) for name in sorted(self.parts)]
        places = dict(self.index.find(where))
        heads = {name: part.head for name, part in self.parts.items() if part.head is not None}
        if heads:  # all at once, as each look for many values begins with a table of them
            starts = np.cumsum([0, *(head.num_rows for head in heads.values())])
            places |= places_in(pa.concat_tables(heads.values()), heads, starts, where)
        return sorted(places.items())


def is_many(rows: int) -> bool:
    """Whether they fill a part."""
    return rows >= ROWS_PER_PART
