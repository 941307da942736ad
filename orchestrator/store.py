"""The result store: finished runs as rows in a folder of Parquet files, and the weights and checkpoints beside them. The folder
may be in a bucket.

    DIR/runs/*.parquet            the rows; `pandas.read_parquet("DIR/runs")` reads all of them at any moment
    DIR/weights/KEY.safetensors   trained weights of a run
    DIR/checkpoints/KEY.pt        a run in progress
    DIR/set-aside/                files found in runs/ that are damaged or not ours, kept and never read
    DIR/.index                    which part holds which run; may be deleted (see `index`)
    DIR/.tmp, DIR/.lock           files being written; locks of the launches at work
    DIR/launches/                 in a bucket only: the claims of the launches at work (see `leases.Lease`)
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.artifacts import Artifacts, Stamp, StoreError, make_folder, stamp_of
from orchestrator.contents import checked
from orchestrator.index import INDEXED, Index, matching
from orchestrator.leases import APPEND
from orchestrator.parts import DamagedError, is_large, load, parquet_bytes, slices, take
from orchestrator.remote import grown
from orchestrator.rows import PROVENANCE, SCHEMA, STATUSES, Row, decode, encode, make_row

__all__ = ["PROVENANCE", "SCHEMA", "STATUSES", "Artifacts", "ResultStore", "Row", "StoreError", "make_row"]

ROWS_PER_PART = 500
BYTES_PER_PART = 2 << 20
ROWS_PER_BULK_PART = 50_000
ROWS_BEYOND_INDEX = 20_000
"""The index is written anew when so many rows of full parts are not in it."""
BYTES_PER_GROWN_PART = 1 << 20
"""In a bucket, where every version of a part begins with the former one."""
PULL_EVERY = 2.0
"""Seconds between two looks at a bucket, unless one is needed."""
SETTLING_SECONDS = 120.0
"""When an upload that was cut short is sure to have taken effect, or never to."""


class _LostPartError(Exception):
    """The part of this name is no longer what it was."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part as it was when last looked at. One that is `full` is never changed again."""

    stamp: Stamp
    rows: int
    full: bool
    head: pa.Table | None = None
    """Its INDEXED columns; None: they are in the index."""
    table: pa.Table | None = None
    """All columns; None: they are in the file, just so."""


class ResultStore(Artifacts):
    """All finished runs, each exactly once, keyed by run key.

    What a reader of `runs/` may see, at any instant and after any crash: every row whose `append` has returned, none
    twice, none torn. A part file is only ever replaced by a longer version of itself, in one rename, and rows never
    move between files: no order of renames would keep a reader from missing or doubling rows that do.

    Several launches may use one store. Appends take turns; each launch extends a part of its own, and takes over one
    that is not full from a launch that has ended, so the files number about rows / ROWS_PER_PART + launches at work.
    A claim or a part belongs to a launch until it lets go, closes or dies.

    A part is checked whole when it is first seen. Full parts that were are listed in the index, and read again only for rows
    that are asked for; damage that came later is found then. In memory are the index and the parts that are not in it.

    A store in a bucket is worked on in a folder of this machine that mirrors it: everything said above holds within a machine.
    Among machines: a part carries the name of the machine that wrote it, and is extended by that one only, in uploads that
    replace it whole and that nobody who is reading it notices; what the others wrote is fetched at a look, every PULL_EVERY
    seconds at most. A claim is an object (see `leases.Lease`, also for what it cannot exclude), and rows of runs that a living
    launch of another machine has claimed are left to that one: `append` does not write them. An upload that failed leaves the
    former part, and is repeated to the byte before anything else is written.

    The object may be shared by threads, not by forked processes. `read_only` changes nothing on disk, and a path
    that does not exist is then an empty store; otherwise the folders are created, remains of dead launches swept up,
    and damaged or foreign files in `runs/` moved to `set-aside/`. Each such file is a line in `notices`.

    Raises:
        StoreError: the path is not a folder or not writable, the bucket does not answer, or a part is of a newer schema;
            nothing has changed then.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        super().__init__(path)
        self.read_only = read_only
        self.notices: list[str] = []
        self._runs = self.path / "runs"
        self._guard = threading.RLock()
        self._parts: dict[str, _Part] = {}
        self._index = Index()
        self._recent: set[str] = set()
        """The keys that are not in the index."""
        self._opened = False
        self._bad: dict[str, Stamp | None] = {}
        """Files left where they are (read_only) that need no second notice."""
        self._news: list[pa.Table] = []
        self._own_part: str | None = None
        self._claims: set[str] = set()
        self._closed = False
        self._bytes_per_part = BYTES_PER_PART if self._remote is None else BYTES_PER_GROWN_PART
        self._pulled = -PULL_EVERY
        self._lease_number = 0
        self._unsure: dict[Path, bytes] = {}
        """Parts whose upload failed, as they would have been."""
        try:
            with self._in_words("open the store"):
                if self._remote is not None:
                    self._remote.check()
                    self._pull()
                self._open_index()
                problems = self._load_changed()  # a newer schema is refused here, before anything is written
                if not read_only:
                    make_folder(self._runs)
                    if not os.access(self._runs, os.W_OK | os.X_OK):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                    self._sweep()
                self._settle(problems)
                if not read_only and self._beyond_index():
                    with self._locks.appending():
                        self._write_index()
        except BaseException:
            self.close()
            raise
        self._opened = True

    def __len__(self) -> int:
        return sum(part.rows for part in self._parts.values())

    def __contains__(self, key: object) -> bool:
        """Whether the run is finished, as of the last look (open, rows, table, refresh, append)."""
        return bool(self._known([str(key)]))

    def rows(self, columns: Sequence[str] | None = None, where: Mapping[str, Collection[object]] | None = None) -> list[Row]:
        """All rows as plain dicts, or only those of `where` and only some of their columns (see `table`). Counts as a look."""
        with self._guard:
            table = self.table(columns, where)
            self._news.clear()
        return decode(table)

    def table(self, columns: Sequence[str] | None = None, where: Mapping[str, Collection[object]] | None = None) -> pa.Table:
        """Rows as an Arrow table, with `options` and `measures` as JSON text.

        Args:
            columns: those to read; all of them if not given.
            where: column (one of `index.CHOICES`) to the values it may have. Other rows are left out, and parts that have no
                such rows are not read: with the families of a study, its rows come in less than a second from any store.
        """
        names = list(columns or SCHEMA.names)
        with self._guard, self._in_words("read the rows"):
            self._look()
            while True:
                tables = [SCHEMA.empty_table().select(names)]
                try:
                    for name, places in self._places(where):
                        tables.append(self._read(name, names, places))
                    return pa.concat_tables(tables)
                except _LostPartError as error:  # damaged, or gone, since it was looked at
                    self._settle(self._load_changed([str(error)]))

    def refresh(self) -> list[Row]:
        """The rows that this object has neither returned nor found when it was opened; each is reported once.

        They are those of other launches, and those of an own `append` that failed after part of its rows were written.
        """
        with self._guard:
            with self._in_words("read the rows"):
                self._look()
            news, self._news = self._news, []
        return [row for table in news for row in decode(table)]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Add the rows whose key is not in the store yet; durable when it returns.

        One call with up to ROWS_PER_BULK_PART rows is all or nothing; a larger one is written in several such steps.

        Returns:
            The rows written, as any reader will now see them (so NaN in `measures` is None, curves are float32). With a bucket,
            rows of runs that another machine has claimed are not among them.

        Raises:
            ValueError: a row does not fit SCHEMA, or has values that no run has; nothing is written.
            StoreError: it could not be written; earlier rows are intact and the same call may be repeated.
        """
        table = checked(encode(rows))
        self._needs_writing("append to")
        written: list[pa.Table] = []
        keys = table["key"].to_pylist()
        with self._guard, self._in_words("append results"), self._locks.appending(), self._undisputed(keys) as disputed:
            self._look(locked=True)
            known = self._known(keys) | disputed
            index = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
            fresh = take(table, list(index.values()))
            try:
                for piece in slices(fresh, ROWS_PER_BULK_PART):
                    written.append(self._extend(piece))
            except BaseException:
                self._news += written
                raise
        return decode(fresh)

    def claim(self, key: str) -> bool:
        """Reserve the training of a run for this launch. False, at once, if another living launch has it."""
        self._needs_writing("claim a run of")
        with self._guard, self._in_words("claim a run"):
            if key not in self._claims and self._take(key):
                self._claims.add(key)
                self._pulled = -PULL_EVERY  # who had it before may have finished it
            return key in self._claims

    def release(self, key: str) -> None:
        """Give a claim back; nothing happens if it is not held."""
        with self._guard:
            if key in self._claims:
                self._claims.discard(key)
                self._free(key)

    def close(self) -> None:
        with self._guard:
            for key in tuple(self._claims):
                self.release(key)
            self._let_go()
            self._closed = True
            super().close()

    def _write(self, target: Path, data: bytes) -> Stamp:
        self._needs_writing(f"save {target.name} in")
        if self._remote is not None and target.parent == self._runs:
            self._unsure[target] = data
        stamp = super()._write(target, data)
        self._unsure.pop(target, None)
        return stamp

    def _save(self, place: Path, data: bytes) -> None:
        self._needs_writing(f"save {place.name} in")
        super()._save(place, data)

    # The parts

    def _look(self, *, locked: bool = False) -> None:
        """Take in what changed in `runs/` since the last look, and put aside what does not belong there."""
        if self._remote is not None and time.monotonic() >= self._pulled + PULL_EVERY:
            self._pull(locked=locked)
        self._settle(self._load_changed(), locked=locked)

    def _load_changed(self, again: Collection[str] = ()) -> dict[str, str]:
        """Read the files that are new or may have changed, and those named `again`; what is wrong with the bad ones."""
        try:
            found = {name for name in os.listdir(self._runs) if name[0] != "."}  # noqa: PTH208 - many, and often
        except FileNotFoundError:
            found = set()
        if not self._index.parts.keys().isdisjoint(again):
            self._forget_index()
        for name in self._parts.keys() - found:
            if gone := self._parts[name].rows:
                self.notices.append(f"{self._place(name)} is gone: what is needed of its {gone} rows the next launch trains")
            self._drop(name)
        problems: dict[str, str] = {}
        loaded: dict[str, tuple[pa.Table, Stamp]] = {}
        may_differ = {name for name, part in self._parts.items() if not part.full}.union(again)
        for name in sorted((found - self._parts.keys()) | (found & may_differ)):
            known = self._parts[name].stamp if name in self._parts else self._bad.get(name)
            stamp = None
            try:
                stamp = stamp_of((self._runs / name).stat())
                if stamp != known or name in again:
                    loaded[name] = load(self._runs / name)
            except (FileNotFoundError, DamagedError) as error:
                if os.path.lexists(self._runs / name):  # else it went away just now
                    problems[name] = str(error) if isinstance(error, DamagedError) else "it is a broken link"
                    self._bad[name] = stamp
                self._drop(name)
        for name, (table, stamp) in loaded.items():
            self._bad.pop(name, None)
            if doubled := self._take_in(name, table, stamp):
                problems[name] = f"{doubled} of its rows are in other files already"
        return problems

    def _open_index(self) -> None:
        """Register the parts that are in the index, if all of them are as they were; else every part is read."""
        index = Index.open(self.path / ".index")
        with contextlib.suppress(OSError):
            if all(stamp_of((self._runs / name).stat()) == stamp for name, (stamp, _) in index.parts.items()):
                self._index = index
                self._parts = {name: _Part(stamp, rows, True) for name, (stamp, rows) in index.parts.items()}

    def _forget_index(self) -> None:
        """Keep in memory what is in the index, as one of its parts is not what it was."""
        for name, head in self._index.heads():
            self._parts[name] = replace(self._parts[name], head=head)
            self._recent.update(head["key"].to_pylist())
        self._index = Index()

    def _beyond_index(self) -> dict[str, _Part]:
        """The full parts that are not in the index, if they are so many that it should be written anew."""
        parts = {name: part for name, part in self._parts.items() if part.full and part.head is not None and part.table is None}
        return parts if sum(part.rows for part in parts.values()) >= ROWS_BEYOND_INDEX else {}

    def _write_index(self) -> None:
        """Put all full parts in the index. To be called with the right to append."""
        beyond = self._beyond_index()
        data = self._index.extended({name: (part.stamp, part.head) for name, part in beyond.items()})
        self._write(self.path / ".index", data)
        self._index = Index.of(data)
        self._parts |= {name: replace(part, head=None) for name, part in beyond.items()}
        self._recent = {key for part in self._parts.values() if part.head is not None for key in part.head["key"].to_pylist()}

    def _settle(self, problems: Mapping[str, str], *, locked: bool = False) -> None:
        if self.read_only:
            self.notices += [f"left out {self._place(name)}: {why}" for name, why in problems.items()]
        elif problems and self._remote is not None:
            with contextlib.nullcontext() if locked else self._locks.appending():
                self._settle_for_all(problems)
        elif problems:
            with contextlib.nullcontext() if locked else self._locks.appending():
                # Another launch may have settled them while this one waited for the lock.
                for name, why in (problems if locked else self._load_changed(problems)).items():
                    self._set_aside(name, why)

    def _settle_for_all(self, problems: Collection[str]) -> None:
        """The same in a bucket: once one machine has the right to, and if the objects, too, are as bad as the copies here."""
        with self._lease.alone():
            self._pull(problems, locked=True)
            for name, why in self._load_changed(problems).items():
                if self._parts.get(name) is not None and self._maker(name) in self._lease.machines:
                    self.notices.append(f"left out rows of {self._place(name)}, which another machine is writing: {why}")
                else:
                    self._set_aside(name, why)

    def _take_in(self, name: str, table: pa.Table, stamp: Stamp) -> int:
        """Register a part that was read; the number of its rows that are left out as another part has their keys."""
        keys = table["key"].to_pylist()
        before = self._keys_of(name)
        self._recent -= before.difference(keys)
        known = self._known(keys) - before
        kept = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
        self._recent.update(kept)
        whole = len(kept) == len(keys)
        self._parts[name] = self._part(stamp, table if whole else take(table, list(kept.values())), whole)
        news = [i for key, i in kept.items() if key not in before]
        if news and self._opened:
            self._news.append(take(table, news))
        return len(keys) - len(kept)

    def _part(self, stamp: Stamp, table: pa.Table, whole: bool = True) -> _Part:
        full = table.num_rows >= ROWS_PER_PART or stamp[1] >= self._bytes_per_part or is_large(table)
        return _Part(stamp, table.num_rows, full, table.select(INDEXED), None if full and whole else table)

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

    def _set_aside(self, name: str, why: str) -> None:
        """Keep the file under `set-aside/`; in `runs/` remain those of its rows that nothing else holds, if any."""
        make_folder(self.path / "set-aside")
        taken = set(os.listdir(self.path / "set-aside"))  # noqa: PTH208 - with broken links
        if self._remote is not None:
            taken.update(self._remote.list("set-aside"))
        aside = next(n for n in chain([name], (f"{name}.{i}" for i in count(1))) if n not in taken)
        place, part = self.path / "set-aside" / aside, self._parts.get(name)
        if part is not None and part.rows:
            if self._remote is not None:
                self._remote.put(f"set-aside/{aside}", (self._runs / name).read_bytes())
            os.link(self._runs / name, place)
            assert part.table is not None
            self._parts[name] = self._part(self._write(self._runs / name, self._part_bytes(name, part.table)), part.table)
            former = self._place(place)
            self.notices.append(f"removed doubled rows from {self._place(name)}: {why}; the former file is {former}")
        else:
            if self._remote is not None:
                self._remote.move(f"runs/{name}", f"set-aside/{aside}")
            (self._runs / name).rename(place)
            self._parts.pop(name, None)
            self.notices.append(f"set aside {self._place(name)}: {why}; it is now {self._place(place)}")
        self._bad.pop(name, None)

    def _places(self, where: Mapping[str, Collection[object]] | None) -> list[tuple[str, np.ndarray | None]]:
        """The parts that have such rows, and where in them; None for all their rows."""
        if where is None:
            return [(name, None) for name in sorted(self._parts)]
        places = dict(self._index.find(where))
        places |= {name: matching(part.head, where) for name, part in self._parts.items() if part.head is not None}
        return [(name, places[name]) for name in sorted(places) if len(places[name])]

    def _read(self, name: str, columns: Sequence[str], places: np.ndarray | None) -> pa.Table:
        part = self._parts[name]
        table = part.table
        if table is None:
            try:
                table, stamp = load(self._runs / name, columns)
            except (FileNotFoundError, DamagedError):
                raise _LostPartError(name) from None
            if stamp != part.stamp:
                raise _LostPartError(name)
        table = table.select(columns)
        return table if places is None else take(table, places)

    def _extend(self, rows: pa.Table) -> pa.Table:
        """Write `rows` in one step: into the part of this launch, or a part of their own if they are many."""
        many = rows.num_rows >= ROWS_PER_PART
        name = self._new_name() if many else self._choose_part()
        part = self._parts.get(name)
        table = rows if part is None else pa.concat_tables([part.table, rows]).combine_chunks()
        self._parts[name] = self._part(self._write(self._runs / name, self._part_bytes(name, table)), table)
        self._recent.update(rows["key"].to_pylist())
        if self._parts[name].full or not self._may_extend(name):
            if not many:
                self._let_go()
            if self._beyond_index():
                self._write_index()
        return rows

    def _choose_part(self) -> str:
        """The part this launch extends: its own, else the longest one that is not full nor owned, else a new one."""
        if self._own_part is None:
            open_parts = self._parts_to_take_over()
            open_parts.sort(key=lambda name: self._parts[name].rows, reverse=True)
            self._own_part = next(name for name in [*open_parts, self._new_name()] if self._locks.take("part", name))
        return self._own_part

    def _parts_to_take_over(self) -> list[str]:
        open_parts = [name for name, part in self._parts.items() if not part.full]
        if self._remote is None:
            return open_parts
        ours = [name for name in open_parts if self._maker(name) == self._locks.machine and self._may_extend(name)]
        if not ours or APPEND in self._lease.look():  # whom this launch's lease came too late for may be setting one aside
            return []
        self._pull(locked=True)  # a launch that was killed may have put more than it kept here
        self._load_changed()
        return [name for name in ours if name in self._parts and not self._parts[name].full]

    def _let_go(self) -> None:
        if self._own_part is not None:
            self._locks.free("part", self._own_part)
            self._own_part = None

    def _sweep(self) -> None:
        """Remove the temporaries of processes that are no more: those whose token nobody has locked."""
        with contextlib.suppress(FileNotFoundError):
            for temporary in (self.path / ".tmp").iterdir():
                token = temporary.name.rpartition(".")[2]
                if self._remote is not None and time.time() - temporary.lstat().st_ctime < SETTLING_SECONDS:
                    continue
                if self._locks.take("launch", token):
                    temporary.unlink(missing_ok=True)
                    self._locks.free("launch", token)
        if self._remote is not None:
            self._lease.sweep(self._has_ended)

    def _has_ended(self, token: str) -> bool:
        ended = self._locks.take("launch", token)
        if ended:
            self._locks.free("launch", token)
        return ended

    # What only a bucket needs

    def _pull(self, again: Collection[str] = (), *, locked: bool = False) -> None:
        """Fetch what changed in the bucket, and what is named `again`."""
        assert self._remote is not None
        with contextlib.nullcontext() if locked else self._locks.appending():
            began = time.monotonic()
            self._remote.pull("runs", self._locks.token, again)
            self._pulled = began

    @contextlib.contextmanager
    def _undisputed(self, keys: Sequence[str]) -> Iterator[set[str]]:
        """Keep other machines from writing rows of these runs meanwhile; yields those that are theirs."""
        if self._remote is None:
            yield set()
            return
        self._lease.hold()
        if self._lease.number != self._lease_number:  # a new one: nothing that was known is certain any more
            self._lease_number = self._lease.number
            self._pulled = -PULL_EVERY
            self._let_go()
        for target, data in list(self._unsure.items()):
            self._write(target, data)
        if self._lease.held.issuperset(keys):
            yield set()
            return
        with self._lease.alone() as elsewhere:
            self._pulled = -PULL_EVERY
            yield elsewhere.intersection(keys)

    def _maker(self, name: str) -> str:
        """The machine whose launches extend the part."""
        return name.removesuffix(".parquet").rpartition("-")[2]

    def _may_extend(self, name: str) -> bool:
        """Not a part of which an upload was cut short lately: it may take effect late, over what came after it."""
        return self._remote is None or not any(name in file.name for file in (self.path / ".tmp").iterdir())

    def _part_bytes(self, name: str, table: pa.Table) -> bytes:
        if self._remote is None or name not in self._parts:
            return parquet_bytes(table)
        return grown((self._runs / name).read_bytes(), table)

    def _place(self, file: str | Path) -> str:
        """A file as a user knows it; by its name if it is in `runs/`."""
        return f"{self.location}/{self._name(self._runs / file)}"

    def _new_name(self) -> str:
        whose = secrets.token_hex(4)
        if self._remote is not None:
            whose += f"-{self._locks.machine}"
        return f"runs-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{whose}.parquet"

    def _needs_writing(self, action: str) -> None:
        if self.read_only or self._closed:
            why = "closed" if self._closed else "opened for reading only"
            raise StoreError(f"cannot {action} {self.location}: it was {why}")

