"""The index of a store: which full part holds which run, in one file, so that a study reads no parts but those of its own runs.

It holds nothing that is not in the parts, and is written anew when it lags behind. It may be deleted at any time: then every
part is read once, and checked.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.artifacts import Stamp
from orchestrator.rows import KEY_LENGTH, SCHEMA

CHOICES = ("family", "task", "task_version", "dataset", "N", "data_count", "seed", "decoder", "holdout", "status")
"""The columns by which rows can be chosen."""
INDEXED = ("key", *CHOICES)
_KEY = pa.binary(KEY_LENGTH)
_SCHEMA = pa.schema([("key", _KEY), *((name, SCHEMA.field(name).type) for name in CHOICES)])
_PARTS = b"orchestrator.parts"
_CHECKSUM_LENGTH = 8


class Index:
    """The indexed columns of some parts, one part after another. `parts`: name to stamp and number of rows, in that order."""

    def __init__(self, data: pa.Buffer | None = None) -> None:
        self.parts: dict[str, tuple[Stamp, int]] = {}
        self._file: pq.ParquetFile | None = None
        if data is not None:
            self._file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=CHOICES)
            listed = json.loads(self._file.schema_arrow.metadata[_PARTS])
            self.parts = {name: (tuple(stamp), rows) for name, stamp, rows in listed}
        counts = [rows for _, rows in self.parts.values()]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._beginnings: np.ndarray | None = None

    @classmethod
    def open(cls, path: Path) -> Index:
        """The index in this file; an empty one if there is none, or it is not whole or not of this program's columns."""
        try:
            data = pa.memory_map(str(path)).read_buffer()
        except OSError:
            return cls()
        checksum, body = data.slice(0, _CHECKSUM_LENGTH).to_pybytes(), data.slice(_CHECKSUM_LENGTH)
        if _checksum(body) != checksum or tuple(pq.read_schema(pa.BufferReader(body)).names) != INDEXED:
            return cls()
        return cls(body)

    @classmethod
    def of(cls, data: bytes) -> Index:
        """The index that `extended` made."""
        return cls(pa.py_buffer(data).slice(_CHECKSUM_LENGTH))

    def heads(self) -> Iterator[tuple[str, pa.Table]]:
        """Every part with its indexed columns."""
        whole = self._read(INDEXED).cast(_SCHEMA)
        whole = whole.set_column(0, "key", whole["key"].cast(pa.binary()).cast(pa.string()))
        for start, (name, (_, rows)) in zip(self._starts.tolist(), self.parts.items(), strict=False):
            yield name, whole.slice(start, rows)

    def holds(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that are in the index."""
        if self._file is None:
            return set()
        if self._beginnings is None:
            column = self._read(["key"])["key"].combine_chunks()
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
        column = self._read(["key"])["key"]
        return {key.decode() for key in column.filter(pc.is_in(column, value_set=near_keys)).to_pylist()}

    def find(self, where: Mapping[str, Collection[object]]) -> Iterator[tuple[str, np.ndarray]]:
        """The parts that have such rows, each with their places in it."""
        rows = matching(self._read(list(where)), where)
        bounds = np.searchsorted(rows, self._starts)
        for i, name in enumerate(self.parts):
            if bounds[i] < bounds[i + 1]:
                yield name, rows[bounds[i] : bounds[i + 1]] - self._starts[i]

    def extended(self, parts: Mapping[str, tuple[Stamp, pa.Table]]) -> bytes:
        """The file of an index that has these parts too, given with their indexed columns."""
        listed = [(name, stamp, rows) for name, (stamp, rows) in self.parts.items()]
        tables = [self._read(INDEXED).cast(_SCHEMA)]
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

    def _read(self, columns: Sequence[str]) -> pa.Table:
        if self._file is None:
            return _SCHEMA.empty_table().select(list(columns))
        return self._file.read(list(columns), use_threads=False)


def matching(table: pa.Table, where: Mapping[str, Collection[object]]) -> np.ndarray:
    """Indices of the rows whose columns have one of the values allowed for them."""
    fits = np.ones(table.num_rows, bool)
    for name, allowed in where.items():
        values = pa.array(list(allowed), SCHEMA.field(name).type)
        column = table[name].cast(pa.binary()) if pa.types.is_fixed_size_binary(table[name].type) else table[name]
        fits &= pc.is_in(column.cast(values.type), value_set=values).to_numpy()
    return np.flatnonzero(fits)


def _checksum(data: Any) -> bytes:
    return b"%08x" % zlib.crc32(data)
