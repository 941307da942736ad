"""Part files, of which the rows of a store consist: how one is read, with every check, and how it is encoded."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.artifacts import Stamp, StoreError, stamp_of
from orchestrator.rows import SCHEMA, SCHEMAS, VERSION, VERSION_FIELD, upgrade


class DamagedError(Exception):
    """The file is not a part, or not a whole one. The message says why."""


class NewerSchemaError(StoreError):
    """The file is whole and ours, but of a later version than this program knows."""


def load(path: Path, columns: Sequence[str] | None = None) -> tuple[pa.Table, Stamp]:
    """A part as it is at this instant, in today's SCHEMA or some columns of it, and the stamp of the file that was read.

    Without `columns` every byte is checked; with them, those of these columns.

    Raises:
        DamagedError: it is no part of ours, or not a whole one.
        NewerSchemaError: it is one, which this program is too old for.
        OSError: it could not be read; nothing is known of its contents.
    """
    if not path.is_file():
        path.stat()
        raise DamagedError("it is not a file")
    with path.open("rb") as file:
        stamp, data = stamp_of(os.fstat(file.fileno())), file.read()
    if not data:
        raise DamagedError("it is empty")
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            version = (parquet.schema_arrow.metadata or {}).get(VERSION_FIELD, b"")
            if not version.isdigit():
                raise DamagedError("it was not written by this program")
            if int(version) > VERSION:
                raise NewerSchemaError(
                    f"{path} has rows of schema {int(version)}, this program knows schema {VERSION} and older: "
                    "update the program, or choose another folder with --store"
                )
            if int(version) not in SCHEMAS or not parquet.schema_arrow.equals(SCHEMAS[int(version)]):
                raise DamagedError(f"its columns are not those of schema {int(version)}")
            wanted = list(columns) if columns is not None and int(version) == VERSION else None
            table = parquet.read(wanted, use_threads=False)  # at exit, Arrow may abort over threads still at work
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, MemoryError):
            raise
        raise DamagedError("it is damaged (" + " ".join(str(error).split())[:200] + ")") from error
    return upgrade(table, int(version)).select(SCHEMA.names if columns is None else list(columns)), stamp


def take(table: pa.Table, index: Sequence[int] | np.ndarray) -> pa.Table:
    """These rows, in the order of the table."""
    rows = np.sort(np.asarray(index, np.int64))
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


def parquet_bytes(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="snappy", use_dictionary=False, write_page_checksum=True)
    return buffer.getvalue()
