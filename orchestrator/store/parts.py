"""Part files, of which the rows of a store consist: how one is read, with every check, and how it is encoded.

A store may come from elsewhere. So a file is not unpacked before it is known how large that makes it, and its values are
checked (see `contents`).
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.errors import printable
from orchestrator.store.contents import fault
from orchestrator.store.folder import in_memory, open_file, stamp_of
from orchestrator.store.place import Stamp, StoreError
from orchestrator.store.rows import SCHEMA, SCHEMAS, VERSION, VERSION_FIELD, upgrade

MOST_BYTES = 256 << 20
"""Of a part, packed or unpacked. Rows are written up to a quarter at once, and added to less than a quarter."""
STALE_READS = 3
"""So often a file is opened again that others have replaced before it was read: NFS does not keep the former one for who reads
it."""
PACKED: Mapping[str, Any] = {"compression": "snappy", "use_dictionary": False, "write_page_checksum": True}
"""How a part is written."""
ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""How columns may be packed: of all others nobody knows beforehand how much they hold."""


class DamagedError(Exception):
    """The file is not a part, or not a whole one. The message says why."""


class NewerSchemaError(StoreError):
    """The file is whole and ours, but of a later version than this program knows."""


def load(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Table, Stamp]:
    """A part as it is at this instant, in today's SCHEMA or some columns of it, and the stamp of the file that was read.

    Without `columns` every byte and every value is checked; with them, those of these columns.

    Raises:
        DamagedError: it is no part of ours, or not a whole one, or has values that no run has, or is too large.
        NewerSchemaError: it is one, which this program is too old for.
        UnreadableError: there is not enough memory for it.
        OSError: it could not be read; nothing is known of its contents.
    """
    with in_memory(path):
        return _load(path, columns)


def _load(path: Path, columns: Sequence[str] | None) -> tuple[pa.Table, Stamp]:
    data, stamp = read_file(path, MOST_BYTES)
    version = 0

    def wanted(schema: pa.Schema) -> Sequence[str] | None:
        nonlocal version
        written = (schema.metadata or {}).get(VERSION_FIELD, b"")
        if not written.isdigit():
            raise DamagedError("it was not written by this program")
        version = int(written)
        if version > VERSION:
            raise NewerSchemaError(
                f"{printable(str(path))} has rows of schema {version}, but this program knows only schema {VERSION} and older: "
                "update the program, or choose another folder"
            )
        if version not in SCHEMAS or not schema.equals(SCHEMAS[version]):
            raise DamagedError(f"its columns are not those of schema {version}")
        return columns if version == VERSION else None

    table = upgrade(unpack(data, wanted, MOST_BYTES), version).select(SCHEMA.names if columns is None else list(columns))
    if why := fault(table):
        raise DamagedError(why)
    return table, stamp


def read_file(path: Path, most: int) -> tuple[bytes, Stamp]:
    """The bytes of a file, `most` at most, and its stamp.

    Raises:
        DamagedError: it is empty, larger, or no file.
        OSError: it could not be read.
    """
    for _ in range(STALE_READS):
        try:
            return _read_file(path, most)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_file(path, most)


def _read_file(path: Path, most: int) -> tuple[bytes, Stamp]:
    if not path.is_file():
        path.stat()
        raise DamagedError("it is not a file")
    with open_file(path) as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        if stamp[1] > most:
            raise DamagedError(f"it has more than {most >> 20} MiB")
        data = file.read(stamp[1])  # memory for all that is asked for is taken at once
    if not data:
        raise DamagedError("it is empty")
    return data, stamp


def unpack(data: bytes, wanted: Callable[[pa.Schema], Sequence[str] | None], most: int) -> pa.Table:
    """The table in a Parquet file, the columns that `wanted` names when it is told the schema (None: all), every byte of them
    checked. What would take more than `most` bytes is not unpacked, if the file says truly what is in it.

    Raises:
        DamagedError: it is too large, or no whole Parquet file.
        MemoryError: there is not enough memory. Nothing is known of the file.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            schema = parquet.schema_arrow
            names = wanted(schema)
            repeats = _repeats(parquet.metadata, most)
            if not repeats:
                return parquet.read(names, use_threads=False)  # at exit, Arrow may abort over threads still at work
        # A value that stands there once may be meant a million times: so it stays, until all are counted.
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        with pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True) as parquet:
            table = parquet.read(names, use_threads=False)
        if table.nbytes + sum(map(text_bytes, table.columns)) > most:
            raise DamagedError(_too_large(most))
        return table.cast(pa.schema([schema.field(name) for name in table.column_names], schema.metadata))
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):  # as libraries that Arrow uses say it
            raise MemoryError(str(error)) from error
        raise DamagedError("it is damaged (" + " ".join(str(error).split())[:200] + ")") from error


def _repeats(metadata: pq.FileMetaData, most: int) -> bool:
    """Whether values may be given once for many places.

    Raises:
        DamagedError: it takes too much memory in any case.
    """
    size, repeats = 0, False
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            encodings = set(chunk.encodings)
            if not encodings <= ENCODINGS:
                raise DamagedError("it uses a compression or encoding that this program does not use")
            size += max(chunk.total_uncompressed_size, 4 * chunk.num_values, 4 * group.num_rows)
            repeats = repeats or not encodings.isdisjoint({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
    if size > most:
        raise DamagedError(_too_large(most))
    return repeats


def text_bytes(column: pa.ChunkedArray) -> int:
    """Of the values of a column of texts that is still packed."""
    if not pa.types.is_dictionary(column.type):
        return 0
    return sum(pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0 for chunk in column.chunks)


def _too_large(most: int) -> str:
    return f"it would unpack to more than {most >> 20} MiB"


def take(table: pa.Table, index: Sequence[int] | np.ndarray) -> pa.Table:
    """These rows, in the order of the table."""
    rows = np.sort(np.asarray(index, np.int64))
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


def is_large(table: pa.Table) -> bool:
    """Whether a part with these rows should get no more."""
    return bool(table.nbytes >= MOST_BYTES // 4)


def slices(table: pa.Table, most_rows: int) -> list[pa.Table]:
    """The table in pieces of so many rows at most, and of fewer where rows hold much."""
    if table.num_rows > most_rows:
        return [*slices(table.slice(0, most_rows), most_rows), *slices(table.slice(most_rows), most_rows)]
    if table.num_rows > 1 and is_large(table):
        half = table.num_rows // 2
        return [*slices(table.slice(0, half), most_rows), *slices(table.slice(half), most_rows)]
    return [table] if table.num_rows else []


def parquet_bytes(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **PACKED)
    return buffer.getvalue()


def grown(former: bytes, table: pa.Table) -> bytes:
    """A Parquet file of `table` that begins with the bytes of a `former` one. Readers of a bucket take the size first and then
    read piece by piece: so one that is in the middle of the former file goes on reading that."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **PACKED) as writer:
        sink.write(former[4:])  # the writer has begun with the same four bytes
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
