"""The result store: finished runs as rows in a folder of Parquet files, and the weights and checkpoints beside them. The folder
may be in a bucket.

    DIR/runs/*.parquet            the rows; `pandas.read_parquet("DIR/runs")` reads all of them at any moment
    DIR/weights/KEY.safetensors   trained weights of a run
    DIR/checkpoints/KEY.pt        a run in progress
    DIR/questions/STUDY-*.json    what launches were asked (see `questions`)
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
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import printable
from orchestrator.store import remote
from orchestrator.store.artifacts import Stamp, StoreError, make_folder, stamp_of
from orchestrator.store.contents import checked, choose, in_words, sift
from orchestrator.store.index import INDEXED, Index
from orchestrator.store.leases import APPEND
from orchestrator.store.parts import DamagedError, is_large, load, parquet_bytes, slices, take
from orchestrator.store.register import LostPartError, Part, Register
from orchestrator.store.remote import LapsedError, Tell, grown, tell_on_stderr
from orchestrator.store.rows import SCHEMA, Row, decode, encode

ROWS_PER_PART = 500
BYTES_PER_PART = 2 << 20
ROWS_PER_BULK_PART = 50_000
ROWS_BEYOND_INDEX = 20_000
"""The index is written anew when so many rows of full parts are not in it."""
BYTES_PER_GROWN_PART = 1 << 20
"""In a bucket, where every version of a part begins with the former one."""
PULL_EVERY = 2.0
"""Seconds between two looks at a bucket, unless one is needed."""


class ResultStore(Register):
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

    def __init__(self, path: str | Path, *, read_only: bool = False, tell: Tell = tell_on_stderr) -> None:
        super().__init__(path, tell)
        self.read_only = read_only
        self._guard = threading.RLock()
        self._opened = False
        self._bad: dict[str, Stamp | None] = {}
        """Files left where they are (read_only) that need no second notice."""
        self._news: list[tuple[str, pa.Table]] = []
        """Each with the name of its part."""
        self._named: set[str] = set()
        """Keys of rows that a notice was about."""
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
                if self.path.is_symlink() and not self.path.exists():
                    raise StoreError(f"--store {printable(str(path))} is a broken link: repair it, or choose another folder")
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
        """All rows as plain dicts, or only those of `where` and only some of their columns (see `table`). Counts as a look.

        A row that is not that of the run it describes (see `contents.misfit`) is left out, and named in `notices`. To know that
        takes all columns of `contents.DESCRIPTION`; with less, rows are given as they are.
        """
        with self._guard:
            tables = self._tables(columns, where)
            self._news.clear()
            return self._believed(tables)

    def table(self, columns: Sequence[str] | None = None, where: Mapping[str, Collection[object]] | None = None) -> pa.Table:
        """Rows as an Arrow table, with `options` and `measures` as JSON text.

        Args:
            columns: those to read; all of them if not given.
            where: column (one of `index.CHOICES`) to the values it may have. Other rows are left out, and parts that have no
                such rows are not read: with the families of a study, its rows come in less than a second from any store.
        """
        empty = SCHEMA.empty_table().select(list(columns or SCHEMA.names))
        with self._guard:
            return pa.concat_tables([empty, *(table for _, table in self._tables(columns, where))])

    def refresh(self) -> list[Row]:
        """The rows that this object has neither returned nor found when it was opened; each is reported once.

        They are those of other launches, and those of an own `append` that failed after part of its rows were written.
        """
        with self._guard:
            with self._in_words("read the rows"):
                self._look()
            news, self._news = self._news, []
            return self._believed(news)

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
        written, tried = list[tuple[str, pa.Table]](), set[str]()
        end = time.monotonic() + remote.PATIENCE
        with self._guard, self._in_words("append results"):
            try:
                while True:
                    try:
                        self._append(table, written)
                        break
                    except LapsedError:  # once more, as others may have done some of these runs meanwhile
                        tried.update(target.name for target in self._unsure)
                        if time.monotonic() > end:
                            raise
                written += self._news_of(tried, table["key"].to_pylist())
            except BaseException:
                self._news += written
                raise
        return decode(pa.concat_tables([SCHEMA.empty_table(), *(rows for _, rows in written)]))

    def _append(self, table: pa.Table, written: list[tuple[str, pa.Table]]) -> None:
        keys = table["key"].to_pylist()
        with self._locks.appending(), self._undisputed(keys) as disputed:
            self._look(locked=True)
            self._make_way(table)
            known = self._known(keys) | disputed
            fresh = take(table, [i for key, i in choose(table, ()).items() if key not in known])
            for piece in slices(fresh, ROWS_PER_BULK_PART):
                written.append(("", self._extend(piece)))

    def _news_of(self, names: Collection[str], keys: Collection[str]) -> list[tuple[str, pa.Table]]:
        """The news among these keys from the parts with these names, which are none any more."""
        if not names:
            return []
        found, self._news, ours, wanted = self._news, [], [], set(keys)
        for name, rows in found:
            is_ours = [name in names and key in wanted for key in rows["key"].to_pylist()]
            ours.append((name, take(rows, [i for i, hit in enumerate(is_ours) if hit])))
            self._news.append((name, take(rows, [i for i, hit in enumerate(is_ours) if not hit])))
        return ours

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
                self._note(f"{self._place(name)} is gone with {gone} rows: the next launch trains those that it needs again")
            self._drop(name)
        problems, indexed = dict[str, str](), bool(self._index.parts)
        loaded: dict[str, tuple[pa.Table, Stamp]] = {}
        may_differ = {name for name, part in self._parts.items() if not part.full}.union(again)
        for name in sorted((found - self._parts.keys()) | (found & may_differ)):
            known = self._parts[name].stamp if name in self._parts else self._bad.get(name)
            stamp = None
            try:
                stamp = stamp_of((self._runs / name).stat())
                if stamp != known or name in again:
                    loaded[name] = load(self._runs / name)
            except (OSError, DamagedError) as error:
                if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
                if os.path.lexists(self._runs / name):  # else it went away just now
                    problems[name] = str(error) if isinstance(error, DamagedError) else "it is a broken link"
                    self._bad[name] = stamp
                self._drop(name)
        for name, (table, stamp) in loaded.items():
            self._bad.pop(name, None)
            problems |= self._take_in(name, table, stamp)
        if indexed and not self._index.parts:  # it was wrong: its parts are not known any more
            problems |= self._load_changed()
        return problems

    def _beyond_index(self) -> dict[str, Part]:
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
            for name, why in problems.items():
                self._note(f"left out {self._place(name)}: {why}")
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
            self._note_lease()
            self._pull(problems, locked=True)
            for name, why in self._load_changed(problems).items():
                if self._parts.get(name) is not None and self._maker(name) in self._lease.machines:
                    self._note(f"left out rows of {self._place(name)}, which another machine is writing: {why}")
                else:
                    self._set_aside(name, why)

    def _take_in(self, name: str, table: pa.Table, stamp: Stamp) -> dict[str, str]:
        """Register a part that was read. Of rows with the same key, here or in other parts, the first one that can be believed
        stays; what is wrong with the parts that have the others, by name."""
        before = self._keys_of(name)
        keys = set(table["key"].to_pylist())
        self._recent -= before.difference(keys)
        known = self._known(list(keys)) - before
        places = choose(table, known)
        problems: dict[str, str] = {}
        if known:
            with contextlib.suppress(LostPartError):  # then the next look finds what is wrong
                problems = self._forget_wrong(known.intersection(places))
            known = self._known(list(known)) - before
        kept = {key: i for key, i in places.items() if key not in known}
        self._recent.update(kept)
        whole = len(kept) == table.num_rows
        self._parts[name] = self._part(stamp, table if whole else take(table, list(kept.values())), whole)
        news = [i for key, i in kept.items() if key not in before]
        if news and self._opened:
            self._news.append((name, take(table, news)))
        return problems if whole else problems | {name: f"{table.num_rows - len(kept)} of its rows are in other files already"}

    def _forget_wrong(self, keys: Collection[str]) -> dict[str, str]:
        """Forget the rows under these keys that cannot be believed; the parts that have them, and why they cannot.

        Raises:
            LostPartError: one of these parts must be looked at again.
        """
        problems = {}
        for name, places in self._places({"key": keys}):
            table = self._read(name, SCHEMA.names, places)
            _, wrong = sift(decode(table))
            if wrong:
                if name in self._index.parts:
                    self._forget_index()
                part = self._parts[name]
                whole = load(self._runs / name)[0] if part.table is None else part.table
                kept = [i for i, key in enumerate(whole["key"].to_pylist()) if key not in wrong]
                self._recent -= wrong.keys()
                self._parts[name] = self._part(part.stamp, take(whole, kept), whole=False)
                problems[name] = in_words(wrong)
        return problems

    def _make_way(self, table: pa.Table) -> None:
        """Take out rows that have keys of these rows and cannot be believed."""
        known = self._known(table["key"].to_pylist())
        right = choose(table, known).keys() & known if known else set()
        problems: dict[str, str] | None = {} if not right else None
        while problems is None:
            try:
                problems = self._forget_wrong(right)
            except LostPartError as error:
                self._settle(self._load_changed(error.args), locked=True)
        for name, why in problems.items():
            if self._remote is None:
                self._set_aside(name, why)
            else:  # the next launch sets it aside, as it finds the keys twice
                self._note(f"left out rows of {self._place(name)}: {why}")

    def _believed(self, tables: Sequence[tuple[str, pa.Table]]) -> list[Row]:
        """The rows that are those of the runs they describe; of the others a notice, once."""
        found: list[Row] = []
        for name, table in tables:
            rows, wrong = sift(decode(table))
            found += rows
            if not self._named.issuperset(wrong):
                self._named.update(wrong)
                self._note(f"left out {len(wrong)} rows of {self._place(name)}: {in_words(wrong)}")
        return found

    def _tables(
        self, columns: Sequence[str] | None, where: Mapping[str, Collection[object]] | None
    ) -> list[tuple[str, pa.Table]]:
        """The parts that have such rows, each with these columns of them."""
        with self._in_words("read the rows"):
            self._look()
            while True:
                try:
                    return [(name, self._read(name, columns or SCHEMA.names, places)) for name, places in self._places(where)]
                except LostPartError as error:  # damaged, or gone, since it was looked at
                    self._settle(self._load_changed(error.args))

    def _part(self, stamp: Stamp, table: pa.Table, whole: bool = True) -> Part:
        full = table.num_rows >= ROWS_PER_PART or stamp[1] >= self._bytes_per_part or is_large(table)
        return Part(stamp, table.num_rows, full, table.select(INDEXED), None if full and whole else table)

    def _set_aside(self, name: str, why: str) -> None:
        """Keep the file under `set-aside/`; in `runs/` remain those of its rows that nothing else holds, if any."""
        place, part = self._place_aside(name), self._parts.get(name)
        if part is not None and part.rows:
            if self._remote is not None:
                self._remote.put(self._name(place), (self._runs / name).read_bytes())
            os.link(self._runs / name, place)
            assert part.table is not None
            self._parts[name] = self._part(self._write(self._runs / name, self._part_bytes(name, part.table)), part.table)
            former = self._place(place)
            self._note(f"removed rows from {self._place(name)}: {why}; the former file is {former}")
        else:
            if self._remote is not None:
                self._remote.move(f"runs/{name}", self._name(place))
            (self._runs / name).rename(place)
            self._parts.pop(name, None)
            self._note(f"set aside {self._place(name)}: {why}; it is now {self._place(place)}")
        self._bad.pop(name, None)

    def _read(self, name: str, columns: Sequence[str], places: np.ndarray | None) -> pa.Table:
        part, columns = self._parts[name], list(columns)
        table = part.table
        if table is None:
            try:
                table, stamp = load(self._runs / name, list(dict.fromkeys([*columns, *INDEXED])))
            except (FileNotFoundError, DamagedError):
                raise LostPartError(name) from None
            if stamp != part.stamp:
                raise LostPartError(name)
            if not table.select(INDEXED).equals(self._index.head(name) if part.head is None else part.head):
                self._drop_index()
                raise LostPartError(name)
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
        if self._own_part is not None and not self._may_extend(self._own_part):
            self._let_go()
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
        self._note_lease()
        if self._lease.held.issuperset([*keys, *chain.from_iterable(map(self._rows_beyond, self._unsure))]):
            self._repeat(set())
            yield set()
            return
        with self._lease.alone() as elsewhere:
            self._note_lease()
            self._pulled = -PULL_EVERY
            theirs = elsewhere - self._lease.held  # who asked in vain for a claim of this launch has not removed its own yet
            self._repeat(theirs)
            yield theirs.intersection(keys)

    def _note_lease(self) -> None:
        if self._lease.number != self._lease_number:  # a new one: nothing that was known is certain any more
            self._lease_number = self._lease.number
            self._pulled = -PULL_EVERY
            self._let_go()

    def _repeat(self, elsewhere: Collection[str]) -> None:
        """Put the parts again whose upload failed, but for those with rows that others have written, or claimed, since this
        launch lost its own claims."""
        if self._unsure:
            self._pulled = -PULL_EVERY
            self._look(locked=True)
        for target, data in list(self._unsure.items()):
            fresh = self._rows_beyond(target)
            if self._known(list(fresh)) or fresh.intersection(elsewhere):
                del self._unsure[target]
            else:
                self._write(target, data)

    def _rows_beyond(self, target: Path) -> set[str]:
        """The keys of rows that a part will have once its upload is repeated, and does not have yet."""
        keys: list[str] = pq.read_table(pa.BufferReader(self._unsure[target]), columns=["key"])["key"].to_pylist()
        return set(keys) - self._keys_of(target.name)

    def _may_put(self, target: Path) -> bool:
        return target.parent != self._runs or self._lease.holds(self._lease_number)

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
