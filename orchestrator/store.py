"""The result store: finished runs as rows in a folder of Parquet files, and the weights and checkpoints beside them.

    DIR/runs/*.parquet            the rows; `pandas.read_parquet("DIR/runs")` reads all of them at any moment
    DIR/weights/KEY.safetensors   trained weights of a run
    DIR/checkpoints/KEY.pt        a run in progress
    DIR/set-aside/                files found in runs/ that are damaged or not ours, kept and never read
    DIR/.tmp, DIR/.lock           files being written; locks of the launches at work
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.artifacts import Artifacts, Stamp, StoreError, make_folder, stamp_of
from orchestrator.rows import (
    PROVENANCE,
    SCHEMA,
    SCHEMAS,
    STATUSES,
    VERSION,
    VERSION_FIELD,
    Row,
    decode,
    encode,
    make_row,
    upgrade,
)  # fmt: skip

__all__ = ["PROVENANCE", "SCHEMA", "STATUSES", "Artifacts", "ResultStore", "Row", "StoreError", "make_row"]

ROWS_PER_PART = 500
BYTES_PER_PART = 2 << 20
ROWS_PER_BULK_PART = 50_000


class _DamagedError(Exception):
    """The file is not a part, or not a whole one. The message says why."""


class _NewerSchemaError(StoreError):
    """The file is whole and ours, but of a later version than this program knows."""


@dataclass(frozen=True, slots=True)
class _Part:
    stamp: Stamp
    table: pa.Table
    size: int

    @property
    def full(self) -> bool:
        return self.table.num_rows >= ROWS_PER_PART or self.size >= BYTES_PER_PART


class ResultStore(Artifacts):
    """All finished runs, each exactly once, keyed by run key.

    What a reader of `runs/` may see, at any instant and after any crash: every row whose `append` has returned, none
    twice, none torn. A part file is only ever replaced by a longer version of itself, in one rename, and rows never
    move between files.

    Several launches may use one store. Appends take turns; each launch extends a part of its own, and takes over one
    that is not full from a launch that has ended, so the files number about rows / ROWS_PER_PART + launches at work.
    A claim or a part belongs to a launch until it lets go, closes or dies.

    The object may be shared by threads, not by forked processes. `read_only` changes nothing on disk, and a path
    that does not exist is then an empty store; otherwise the folders are created, remains of dead launches swept up,
    and damaged or foreign files in `runs/` moved to `set-aside/`. Each such file is a line in `notices`.

    Raises:
        StoreError: the path is not a folder or not writable, or a part is of a newer schema; nothing has changed then.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        super().__init__(path)
        self.read_only = read_only
        self.notices: list[str] = []
        self._runs = self.path / "runs"
        self._guard = threading.RLock()
        self._parts: dict[str, _Part] = {}
        self._home: dict[str, str] = {}
        """Which part holds the row of a key."""
        self._bad: dict[str, Stamp | None] = {}
        """Files left where they are (read_only) that need no second notice."""
        self._news: list[pa.Table] = []
        self._own_part: str | None = None
        self._claims: set[str] = set()
        self._closed = False
        try:
            with self._in_words("open the store"):
                problems = self._load_changed()  # a newer schema is refused here, before anything is written
                if not read_only:
                    make_folder(self._runs)
                    if not os.access(self._runs, os.W_OK | os.X_OK):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                    self._sweep()
                self._settle(problems)
        except BaseException:
            self.close()
            raise
        self._news.clear()

    def __len__(self) -> int:
        return len(self._home)

    def __contains__(self, key: object) -> bool:
        """Whether the run is finished, as of the last look (open, rows, table, refresh, append)."""
        return key in self._home

    def rows(self, columns: Sequence[str] | None = None) -> list[Row]:
        """All rows as plain dicts, or only some of their columns, which is several times faster. Counts as a look."""
        with self._guard:
            table = self.table(columns)
            self._news.clear()
        return decode(table)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows as an Arrow table, with `options` and `measures` as JSON text."""
        with self._guard:
            with self._in_words("read the rows"):
                self._look()
            tables = [self._parts[name].table for name in sorted(self._parts)]
        return pa.concat_tables([SCHEMA.empty_table(), *tables]).select(list(columns or SCHEMA.names))

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
            The rows written, as any reader will now see them (so NaN in `measures` is None, curves are float32).

        Raises:
            ValueError: a row does not fit SCHEMA; nothing is written.
            StoreError: it could not be written; earlier rows are intact and the same call may be repeated.
        """
        table = encode(rows)
        self._needs_writing("append to")
        written: list[pa.Table] = []
        with self._guard, self._in_words("append results"), self._locks.appending():
            self._look(locked=True)
            index = {key: i for i, key in reversed(list(enumerate(table["key"].to_pylist()))) if key not in self._home}
            fresh = _take(table, index.values())
            try:
                for start in range(0, fresh.num_rows, ROWS_PER_BULK_PART):
                    written.append(self._extend(fresh.slice(start, ROWS_PER_BULK_PART)))
            except BaseException:
                self._news += written
                raise
        return decode(fresh)

    def claim(self, key: str) -> bool:
        """Reserve the training of a run for this launch. False, at once, if another living launch has it."""
        self._needs_writing("claim a run of")
        with self._guard, self._in_words("claim a run"):
            if key not in self._claims and self._locks.take("run", key):
                self._claims.add(key)
            return key in self._claims

    def release(self, key: str) -> None:
        """Give a claim back; nothing happens if it is not held."""
        with self._guard:
            if key in self._claims:
                self._claims.discard(key)
                self._locks.free("run", key)

    def close(self) -> None:
        with self._guard:
            for key in tuple(self._claims):
                self.release(key)
            self._let_go()
            self._closed = True
            super().close()

    def _write(self, target: Path, data: bytes) -> Stamp:
        self._needs_writing(f"save {target.name} in")
        return super()._write(target, data)

    # The parts

    def _look(self, *, locked: bool = False) -> None:
        """Take in what changed in `runs/` since the last look, and put aside what does not belong there."""
        self._settle(self._load_changed(), locked=locked)

    def _load_changed(self, again: Iterable[str] = ()) -> dict[str, str]:
        """Read the files whose stamp is new, and those named `again`; what is wrong with the bad ones, by name."""
        try:
            found = {entry.name: entry for entry in os.scandir(self._runs) if not entry.name.startswith(".")}
        except FileNotFoundError:
            found = {}
        for name in self._parts.keys() - found.keys():
            self._drop(name)
        problems: dict[str, str] = {}
        loaded: dict[str, _Part] = {}
        for name in sorted(found):
            known = self._parts[name].stamp if name in self._parts else self._bad.get(name)
            stamp = None
            try:
                stamp = stamp_of(found[name].stat())
                if stamp != known or name in again:
                    loaded[name] = _load(self._runs / name)
            except (FileNotFoundError, _DamagedError) as error:
                if os.path.lexists(self._runs / name):  # else it went away just now
                    problems[name] = str(error) if isinstance(error, _DamagedError) else "it is a broken link"
                    self._bad[name] = stamp
                    self._drop(name)
        for name, part in loaded.items():
            self._bad.pop(name, None)
            if doubled := self._take_in(name, part):
                problems[name] = f"{doubled} of its rows are in other files already"
        return problems

    def _settle(self, problems: Mapping[str, str], *, locked: bool = False) -> None:
        if self.read_only:
            self.notices += [f"left out {self._runs / name}: {why}" for name, why in problems.items()]
        elif problems:
            with contextlib.nullcontext() if locked else self._locks.appending():
                # Another launch may have settled them while this one waited for the lock.
                for name, why in (problems if locked else self._load_changed(problems)).items():
                    self._set_aside(name, why)

    def _take_in(self, name: str, part: _Part) -> int:
        """Register a part that was read; the number of its rows that are left out as another part has their keys."""
        keys = part.table["key"].to_pylist()
        before = set(self._parts[name].table["key"].to_pylist()) if name in self._parts else set()
        for key in before.difference(keys):
            del self._home[key]
        kept = {key: i for i, key in reversed(list(enumerate(keys))) if self._home.get(key, name) == name}
        news = [i for key, i in kept.items() if key not in before]
        self._home.update(dict.fromkeys(kept, name))
        doubled = len(keys) - len(kept)
        table = _take(part.table, kept.values())
        self._parts[name] = _Part(part.stamp, table, part.size)
        if news:
            self._news.append(_take(part.table, news))
        return doubled

    def _drop(self, name: str) -> None:
        """Forget a part whose file is gone or damaged; its runs are no longer in the store."""
        if part := self._parts.pop(name, None):
            for key in part.table["key"].to_pylist():
                self._home.pop(key, None)

    def _set_aside(self, name: str, why: str) -> None:
        """Keep the file under `set-aside/`; in `runs/` remain those of its rows that nothing else holds, if any."""
        make_folder(self.path / "set-aside")
        place, count = self.path / "set-aside" / name, 1
        while place.exists() or place.is_symlink():
            place, count = self.path / "set-aside" / f"{name}.{count}", count + 1
        part = self._parts.get(name)
        if part is not None and part.table.num_rows:
            os.link(self._runs / name, place)
            data = _parquet(part.table)
            self._parts[name] = _Part(self._write(self._runs / name, data), part.table, len(data))
            self.notices.append(f"removed doubled rows from {self._runs / name}: {why}; the former file is {place}")
        else:
            (self._runs / name).rename(place)
            self._parts.pop(name, None)
            self.notices.append(f"set aside {self._runs / name}: {why}; it is now {place}")
        self._bad.pop(name, None)

    def _extend(self, rows: pa.Table) -> pa.Table:
        """Write `rows` in one step: into the part of this launch, or a part of their own if they are many."""
        many = rows.num_rows >= ROWS_PER_PART
        name = _new_name() if many else self._choose_part()
        table = rows if name not in self._parts else pa.concat_tables([self._parts[name].table, rows]).combine_chunks()
        data = _parquet(table)
        self._parts[name] = _Part(self._write(self._runs / name, data), table, len(data))
        self._home.update(dict.fromkeys(rows["key"].to_pylist(), name))
        if not many and self._parts[name].full:
            self._let_go()
        return rows

    def _choose_part(self) -> str:
        """The part this launch extends: its own, else the longest one that is not full nor owned, else a new one."""
        if self._own_part is None:
            open_parts = [name for name, part in self._parts.items() if not part.full]
            open_parts.sort(key=lambda name: self._parts[name].table.num_rows, reverse=True)
            self._own_part = next(name for name in [*open_parts, _new_name()] if self._locks.take("part", name))
        return self._own_part

    def _let_go(self) -> None:
        if self._own_part is not None:
            self._locks.free("part", self._own_part)
            self._own_part = None

    def _sweep(self) -> None:
        """Remove the temporaries of processes that are no more: those whose token nobody has locked."""
        with contextlib.suppress(FileNotFoundError):
            for temporary in (self.path / ".tmp").iterdir():
                token = temporary.name.rpartition(".")[2]
                if self._locks.take("launch", token):
                    temporary.unlink(missing_ok=True)
                    self._locks.free("launch", token)

    def _needs_writing(self, action: str) -> None:
        if self.read_only or self._closed:
            raise StoreError(f"cannot {action} {self.path}: it was {'closed' if self._closed else 'opened for reading only'}")


def _load(path: Path) -> _Part:
    """Read a part as it is at this instant.

    Raises:
        _DamagedError: it is no part of ours, or not a whole one.
        _NewerSchemaError: it is one, which this program is too old for.
        OSError: it could not be read; nothing is known of its contents.
    """
    if not path.is_file():
        path.stat()
        raise _DamagedError("it is not a file")
    with path.open("rb") as file:
        stamp, data = stamp_of(os.fstat(file.fileno())), file.read()
    if not data:
        raise _DamagedError("it is empty")
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            version = (parquet.schema_arrow.metadata or {}).get(VERSION_FIELD, b"")
            if not version.isdigit():
                raise _DamagedError("it was not written by this program")
            if int(version) > VERSION:
                raise _NewerSchemaError(
                    f"{path} has rows of schema {int(version)}, this program knows schema {VERSION} and older: "
                    "update the program, or choose another folder with --store"
                )
            if int(version) not in SCHEMAS or not parquet.schema_arrow.equals(SCHEMAS[int(version)]):
                raise _DamagedError(f"its columns are not those of schema {int(version)}")
            table = parquet.read(use_threads=False)  # at exit, Arrow may abort over threads still at work
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        raise _DamagedError("it is damaged (" + " ".join(str(error).split())[:200] + ")") from error
    return _Part(stamp, upgrade(table, int(version)), len(data))


def _take(table: pa.Table, index: Iterable[int]) -> pa.Table:
    rows = sorted(index)
    return table if len(rows) == table.num_rows else table.take(pa.array(rows, pa.int64()))


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="snappy", use_dictionary=False, write_page_checksum=True)
    return buffer.getvalue()


def _new_name() -> str:
    return f"runs-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{secrets.token_hex(4)}.parquet"
