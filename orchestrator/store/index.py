"""The index of a store: which full part holds which run, in one file, so that a study reads no parts but those of its own runs.

It holds nothing that is not in the parts, and is written anew when it lags behind. It may be deleted at any time: then every
part is read once, and checked.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.store.contents import LONGEST
from orchestrator.store.folder import open_file
from orchestrator.store.parts import text_bytes
from orchestrator.store.place import Stamp
from orchestrator.store.rows import KEY_LENGTH, SCHEMA

CHOICES = ("family", "task", "task_version", "dataset", "N", "data_count", "seed", "decoder", "holdout", "status")
"""The columns by which rows can be chosen."""
INDEXED = ("key", *CHOICES)
_KEY = pa.binary(KEY_LENGTH)
_SCHEMA = pa.schema([("key", _KEY), *((name, SCHEMA.field(name).type) for name in CHOICES)])
_HEAD = pa.schema([SCHEMA.field(name) for name in INDEXED])
_PARTS = b"orchestrator.parts"
_CHECKSUM_LENGTH = 8
_END = b"PAR1"
"""How a Parquet file ends."""
MOST_BYTES = 1 << 30
"""Of an index: one of 16 million rows has as many. Of a larger file, not every byte is read to see that it is none."""
MOST_TEXT = len(CHOICES) * LONGEST
"""Bytes of words that a row may have here, on average."""


class Index:
    """The indexed columns of some parts, one part after another. `parts`: name to stamp and number of rows, in that order."""

    def __init__(self, data: pa.Buffer | None = None) -> None:
        """
        Args:
            data: the file; without it the index is empty.

        Raises:
            ValueError, TypeError, LookupError, RecursionError, OSError, pa.ArrowException: it is not as `extended` makes it,
                whatever its checksum. Else it may still be wrong about the parts.
        """
        self.parts: dict[str, tuple[Stamp, int]] = {}
        self._table = _SCHEMA.empty_table()
        """Words are dictionaries."""
        if data is not None:
            file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=CHOICES)
            types = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in file.schema_arrow.types]
            if pa.schema(zip(file.schema_arrow.names, types, strict=True)) != _SCHEMA:
                raise ValueError("other columns")
            if file.metadata.num_rows * KEY_LENGTH > len(data):
                raise ValueError("more rows than it has room for")
            for name, (inode, size, mtime), rows in json.loads(file.schema_arrow.metadata[_PARTS]):
                if "/" in name or name.startswith(".") or {type(n) for n in (inode, size, mtime, rows)} != {int} or rows < 0:
                    raise ValueError("a part that cannot be one")
                self.parts[name] = (inode, size, mtime), rows
            self._table = file.read(use_threads=False)
            self._check()
        counts = [rows for _, rows in self.parts.values()]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._places = dict(zip(self.parts, self._starts.tolist(), strict=False))
        self._beginnings: np.ndarray | None = None

    def _check(self) -> None:
        self._table.validate(full=True)
        rows = self._table.num_rows
        letters = np.frombuffer(self._table["key"].combine_chunks().buffers()[1] or b"", np.uint8)
        if sum(rows for _, rows in self.parts.values()) != rows or any(column.null_count for column in self._table.columns):
            raise ValueError("rows of no part")
        if (letters > 127).any() or sum(map(text_bytes, self._table.columns)) > MOST_TEXT * rows:
            raise ValueError("words that no run has")

    @classmethod
    def open(cls, path: Path) -> Index:
        """The index in this file; an empty one if there is none, or it is not as `extended` makes it."""
        try:
            with open_file(path) as file:  # so it is one, and opening it does not wait
                size = file.seek(0, os.SEEK_END)
                file.seek(-min(size, len(_END)), os.SEEK_END)
                if size > MOST_BYTES or file.read() != _END:
                    return cls()
            data = pa.memory_map(str(path)).read_buffer()
            checksum, body = data.slice(0, _CHECKSUM_LENGTH).to_pybytes(), data.slice(_CHECKSUM_LENGTH)
            return cls(body) if _checksum(body) == checksum else cls()
        except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError, AttributeError, pa.ArrowException):
            return cls()

    @classmethod
    def of(cls, data: bytes) -> Index:
        """The index that `extended` made."""
        return cls(pa.py_buffer(data).slice(_CHECKSUM_LENGTH))

    def heads(self) -> Iterator[tuple[str, pa.Table]]:
        """Every part with its indexed columns."""
        for name in self.parts:
            yield name, self.head(name)

    def head(self, name: str) -> pa.Table:
        """The indexed columns of a part."""
        table = self._table.slice(self._places[name], self.parts[name][1]).cast(_SCHEMA)
        keys = table["key"].cast(pa.binary()).cast(pa.string())
        return pa.Table.from_arrays([keys, *table.columns[1:]], schema=_HEAD)

    def holds(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that are in the index."""
        if not self._table.num_rows:
            return set()
        if self._beginnings is None:
            column = self._table["key"].combine_chunks()
            letters = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, KEY_LENGTH)
            self._beginnings = np.sort(letters[:, :8].copy().view(">u8")[:, 0].astype(np.uint64))
        asked = [key.encode() for key in keys if len(key) == KEY_LENGTH]
        beginnings = np.array([int.from_bytes(key[:8]) for key in asked], np.uint64)
        at = np.searchsorted(self._beginnings, beginnings)
        at[at == len(self._beginnings)] = 0
        near = np.flatnonzero(self._beginnings[at] == beginnings)
        if not len(near):
            return set()
        near_keys = pa.array([asked[i] for i in near], _KEY)
        column = self._table["key"]
        return {key.decode() for key in column.filter(pc.is_in(column, value_set=near_keys)).to_pylist()}

    def find(self, where: Mapping[str, Collection[object]]) -> Iterator[tuple[str, np.ndarray]]:
        """The parts that have such rows, each with their places in it."""
        return places_in(self._table, self.parts, self._starts, where)

    def extended(self, parts: Mapping[str, tuple[Stamp, pa.Table]]) -> bytes:
        """The file of an index that has these parts too, given with their indexed columns."""
        listed = [(name, stamp, rows) for name, (stamp, rows) in self.parts.items()]
        tables = [self._table.cast(_SCHEMA)]
        for name, (stamp, table) in parts.items():
            listed.append((name, stamp, table.num_rows))
            keys = table["key"].cast(pa.binary()).cast(_KEY)
            tables.append(table.set_column(0, "key", keys).cast(_SCHEMA))
        whole = pa.concat_tables(tables)
        buffer = io.BytesIO()
        pq.write_table(
            whole.replace_schema_metadata({_PARTS: json.dumps(listed).encode()}),
            buffer,
            compression="none",
            use_dictionary=list(CHOICES),
            dictionary_pagesize_limit=64 << 20,
        )
        return _checksum(buffer.getbuffer()) + buffer.getvalue()


def matching(table: pa.Table, where: Mapping[str, Collection[object]]) -> np.ndarray:
    """Indices of the rows whose columns have one of the values allowed for them."""
    fits = np.ones(table.num_rows, bool)
    for name, allowed in where.items():
        values = pa.array(list(allowed), SCHEMA.field(name).type)
        column = table[name].cast(pa.binary()) if pa.types.is_fixed_size_binary(table[name].type) else table[name]
        fits &= pc.is_in(column.cast(values.type), value_set=values).to_numpy()
    return np.flatnonzero(fits)


def places_in(
    table: pa.Table, names: Iterable[str], starts: np.ndarray, where: Mapping[str, Collection[object]]
) -> Iterator[tuple[str, np.ndarray]]:
    """Of parts that follow each other in a table, those that have such rows, each with their places in it.

    Args:
        starts: the first row of each part, and the end of the last.
    """
    rows = matching(table, where)
    bounds = np.searchsorted(rows, starts)
    for i, name in enumerate(names):
        if bounds[i] < bounds[i + 1]:
            yield name, rows[bounds[i] : bounds[i + 1]] - starts[i]


def _checksum(data: Any) -> bytes:
    return b"%08x" % zlib.crc32(data)
