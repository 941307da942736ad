"""Whose turn it is to change the rows of a store, and which parts a launch may change: among the processes of one folder, and
among machines that share a bucket."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.store import remote
from orchestrator.store.bucket import Bucket
from orchestrator.store.contents import RETRIED
from orchestrator.store.leases import APPEND
from orchestrator.store.parts import grown, parquet_bytes
from orchestrator.store.place import Place, Stamp
from orchestrator.store.reader import Reader
from orchestrator.store.remote import LapsedError

PULL_EVERY = 2.0
"""Seconds between two looks at a bucket, unless one is needed."""


class Turns(Protocol):
    """What a launch has to respect of the others when it looks at, and changes, the parts of a store."""

    def pull(self, *, locked: bool = False) -> None:
        """Have `runs/` on this machine as it is, or was a moment ago.

        Args:
            locked: the caller has the right to change rows among the processes of this machine (`locks.appending`).
        """

    def expect_changes(self) -> None:
        """Somebody may have changed rows: let the next `pull` be one."""

    def settling(self, problems: Mapping[str, str], *, locked: bool) -> AbstractContextManager[Mapping[str, str]]:
        """A block with the right to set bad parts aside; yields those that nobody else has settled meanwhile, and what is wrong
        with each."""

    def at_once(self, problems: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the parts with rows that cannot be believed which may be set aside by who is about to append. The others are
        left to the next launch, which finds their keys twice, and named in `notices`."""

    def appending(self, keys: Sequence[str]) -> AbstractContextManager[Collection[str]]:
        """A block with the right to write rows of these runs; yields the runs that others have claimed: their rows are for the
        others to write."""

    def repeat(self, elsewhere: Collection[str]) -> bool:
        """Write the parts again whose writing failed, and may yet take effect; but not those with rows that others have
        written, or claimed (`elsewhere`), since. False if there is none."""

    def attempt(self, append: Callable[[], None]) -> Collection[str]:
        """Append, and once more as long as the right to it lapses meanwhile; the names of the parts that an attempt which
        failed has tried to write."""

    def choose_part(self) -> str:
        """The part that this launch extends: the one it has if it is not full, else the longest one that was made here and is
        neither full nor another launch's, else a new one."""

    def may_extend(self, name: str) -> bool:
        """Whether it may get more rows."""

    def let_go(self) -> None:
        """Leave the part that this launch extends to others."""

    def new_name(self) -> str:
        """The name of a part that is not there yet."""

    def write(self, name: str, table: pa.Table) -> Stamp:
        """Make a part hold these rows, those among them that it has already."""


def turns_of(place: Place, reader: Reader) -> Turns:
    """
    Args:
        reader: of the parts of the store at this place.
    """
    return BucketTurns(place, reader) if isinstance(place, Bucket) else FolderTurns(place, reader)


class OwnPart:
    """The part that this launch extends, if any, locked among the processes of this machine."""

    def __init__(self, place: Place, reader: Reader) -> None:
        self.name: str | None = None
        self._place, self._reader = place, reader

    def take(self, names: Sequence[str]) -> str:
        """Have the first of these parts that no other launch has."""
        self.name = next(name for name in names if self._place.locks.take("part", name))
        return self.name

    def let_go_if_full(self) -> None:
        """It may have become so when it was mended: in a bucket it gets longer by that."""
        part = self._reader.register.parts.get(self.name or "")
        if part is not None and part.full:
            self.let_go()

    def let_go(self) -> None:
        if self.name is not None:
            self._place.locks.free("part", self.name)
            self.name = None


class FolderTurns:
    """Turns in a folder: its locks decide, and every process sees at once what another one wrote.

    A part carries the name of the copy of the folder in which it was made, and is extended in that one only: so of two copies
    with parts of one name, each with rows that the other lacks, there are none.
    """

    def __init__(self, place: Place, reader: Reader) -> None:
        self._place, self._reader, self._own = place, reader, OwnPart(place, reader)

    def pull(self, *, locked: bool = False) -> None:
        pass

    def expect_changes(self) -> None:
        pass

    @contextlib.contextmanager
    def settling(self, problems: Mapping[str, str], *, locked: bool) -> Iterator[Mapping[str, str]]:
        if locked:
            yield problems
            return
        with self._place.locks.appending():
            yield self._reader.look(problems)  # another launch may have settled them while this one waited for the lock

    def at_once(self, problems: Mapping[str, str]) -> Mapping[str, str]:
        return problems

    @contextlib.contextmanager
    def appending(self, keys: Sequence[str]) -> Iterator[Collection[str]]:
        with self._place.locks.appending():
            yield ()

    def repeat(self, elsewhere: Collection[str]) -> bool:
        return False

    def attempt(self, append: Callable[[], None]) -> Collection[str]:
        append()
        return ()

    def choose_part(self) -> str:
        self._own.let_go_if_full()
        return self._own.name or self._own.take([*_made_by(self._place.locks.copy(), self._reader), self.new_name()])

    def may_extend(self, name: str) -> bool:
        return True

    def let_go(self) -> None:
        self._own.let_go()

    def new_name(self) -> str:
        return _new_name(self._place.locks.copy())

    def write(self, name: str, table: pa.Table) -> Stamp:
        return self._place.write(f"runs/{name}", parquet_bytes(table))


class BucketTurns:
    """Turns in a bucket: the locks of its mirror decide within this machine, the lease of the launch among machines.

    What the others wrote is fetched every PULL_EVERY seconds at most. A part carries the name of the machine that wrote it, and
    is extended by that one only, in uploads that replace it whole and that nobody who is reading it notices. An upload that
    failed leaves the former part, and is repeated to the byte before anything else is written.
    """

    def __init__(self, bucket: Bucket, reader: Reader) -> None:
        self._bucket, self._reader, self._own = bucket, reader, OwnPart(bucket, reader)
        self._pulled = -math.inf
        self._lease_number = 0
        """Of the lease under which all is certain that is known."""
        self._unsure: dict[str, bytes] = {}
        """Parts whose upload failed, as they would have been."""

    def pull(self, *, locked: bool = False) -> None:
        if time.monotonic() >= self._pulled + PULL_EVERY:
            self._pull(locked=locked)

    def _pull(self, again: Collection[str] = (), *, locked: bool) -> None:
        """Fetch what changed in the bucket, and what is named `again`."""
        with contextlib.nullcontext() if locked else self._bucket.locks.appending():
            began = time.monotonic()
            self._bucket.refresh("runs", again, locked=True)
            self._pulled = began

    def expect_changes(self) -> None:
        self._pulled = -math.inf

    @contextlib.contextmanager
    def settling(self, problems: Mapping[str, str], *, locked: bool) -> Iterator[Mapping[str, str]]:
        """Bad parts are set aside once one machine has the right to, and if the objects, too, are as bad as the copies here."""
        with contextlib.nullcontext() if locked else self._bucket.locks.appending(), self._bucket.lease.alone():
            self._note_lease()
            self._pull(problems, locked=True)
            agreed = {}
            for name, why in self._reader.look(problems).items():
                if name in self._reader.register.parts and _maker(name) in self._bucket.lease.machines:
                    part = self._bucket.shown(f"runs/{name}")
                    self._bucket.note(f"left out rows of {part}, which another machine is writing: {why}")
                else:
                    agreed[name] = why
            yield agreed

    def at_once(self, problems: Mapping[str, str]) -> Mapping[str, str]:
        for name, why in problems.items():
            if why != RETRIED:
                self._bucket.note(f"left out rows of {self._bucket.shown(f'runs/{name}')}: {why}")
        return {}

    @contextlib.contextmanager
    def appending(self, keys: Sequence[str]) -> Iterator[Collection[str]]:
        lease = self._bucket.lease
        with self._bucket.locks.appending():
            lease.hold()
            self._note_lease()
            if self._unsure:
                self.expect_changes()
            if lease.held.issuperset([*keys, *chain.from_iterable(map(self._rows_beyond, self._unsure))]):
                yield ()
                return
            with lease.alone() as elsewhere:
                self._note_lease()
                self.expect_changes()
                yield elsewhere - lease.held  # who asked in vain for a claim of this launch has not removed its own yet

    def _note_lease(self) -> None:
        if self._bucket.lease.number != self._lease_number:  # a new one: nothing that was known is certain any more
            self._lease_number = self._bucket.lease.number
            self.expect_changes()
            self.let_go()

    def repeat(self, elsewhere: Collection[str]) -> bool:
        if not self._unsure:
            return False
        for name, data in list(self._unsure.items()):
            fresh = self._rows_beyond(name)
            if self._reader.register.known(list(fresh)) or fresh.intersection(elsewhere):
                del self._unsure[name]
            else:
                self._put(name, data)
        return True

    def _rows_beyond(self, name: str) -> set[str]:
        """The keys of rows that a part will have once its upload is repeated, and does not have yet."""
        keys: list[str] = pq.read_table(pa.BufferReader(self._unsure[name]), columns=["key"])["key"].to_pylist()
        return set(keys) - self._reader.register.keys_of(name)

    def attempt(self, append: Callable[[], None]) -> Collection[str]:
        tried, end = set[str](), time.monotonic() + remote.PATIENCE
        while True:
            try:
                append()
                return tried
            except LapsedError:  # once more, as others may have done some of these runs meanwhile
                tried.update(self._unsure)
                if time.monotonic() > end:
                    raise

    def choose_part(self) -> str:
        self._own.let_go_if_full()
        if self._own.name is not None and not self.may_extend(self._own.name):
            self.let_go()
        return self._own.name or self._own.take([*self._parts_to_take_over(), self.new_name()])

    def _parts_to_take_over(self) -> list[str]:
        ours = [name for name in _made_by(self._bucket.locks.machine, self._reader) if self.may_extend(name)]
        if not ours or APPEND in self._bucket.lease.look():
            return []  # a machine that has looked before this launch had its lease may be setting one of them aside
        self._pull(locked=True)  # a launch that was killed may have put more than it kept here
        self._reader.peek()
        return [name for name in self._reader.register.open_parts() if name in ours]

    def may_extend(self, name: str) -> bool:
        """Not a part of which an upload was cut short lately: it may take effect late, over what came after it."""
        return not any(name in file.name for file in (self._bucket.path / ".tmp").iterdir())

    def let_go(self) -> None:
        self._own.let_go()

    def new_name(self) -> str:
        return _new_name(self._bucket.locks.machine)

    def write(self, name: str, table: pa.Table) -> Stamp:
        if name not in self._reader.register.parts:
            return self._put(name, parquet_bytes(table))
        return self._put(name, grown((self._bucket.path / "runs" / name).read_bytes(), table))

    def _put(self, name: str, data: bytes) -> Stamp:
        self._unsure[name] = data
        stamp = self._bucket.write(f"runs/{name}", data, lambda: self._bucket.lease.holds(self._lease_number))
        self._unsure.pop(name, None)
        return stamp


def _new_name(maker: str) -> str:
    return f"runs-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{secrets.token_hex(4)}-{maker}.parquet"


def _made_by(maker: str, reader: Reader) -> list[str]:
    """The parts that are not full and that its launches extend, the longest first."""
    return [name for name in reader.register.open_parts() if _maker(name) == maker]


def _maker(name: str) -> str:
    """The machine, or the copy of a folder, whose launches extend a part."""
    return name.removesuffix(".parquet").rpartition("-")[2]
