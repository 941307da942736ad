"""The row of a finished run: its columns, how one is made from a spec, and its way to Arrow and back to plain values."""

from __future__ import annotations

import gc
import json
import math
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from sys import intern
from typing import Any

import pyarrow as pa

from trainables.spec import RunSpec, family_key, run_key

Row = dict[str, Any]

VERSION = 4
VERSION_FIELD = b"orchestrator.schema"
KEY_LENGTH = 24
STATUSES = ("passed", "missed", "diverged", "failed", "pruned")

PROVENANCE = ("device", "pack_size", "seconds", "host", "launch", "versions", "finished_at")
"""Columns that say where and when a run was trained: all that may differ between two identical runs."""

_TIME = pa.timestamp("us", "UTC")
_NULLABLE = {"passage_step", "accuracy", "id_mse", "ood_mse", "loss", "curve_summary", "parents", "error"}
_COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("key", "family", "task", "task_version", "dataset"), pa.string()),
    **dict.fromkeys(("N", "data_count", "fixed_count"), pa.int32()),
    "seed": pa.int64(),
    "decoder": pa.string(),
    **dict.fromkeys(("depth", "width"), pa.int32()),
    **dict.fromkeys(("encoding", "holdout", "options"), pa.string()),
    "target": pa.float64(),
    "batch_size": pa.int32(),
    **dict.fromkeys(("lr", "weight_decay"), pa.float64()),
    "max_steps": pa.int32(),
    **dict.fromkeys(("stop", "precision", "schedule", "status", "reason"), pa.string()),
    **dict.fromkeys(("steps", "passage_step"), pa.int32()),
    **dict.fromkeys(("accuracy", "id_mse", "ood_mse", "loss"), pa.float64()),
    "measures": pa.string(),
    "curve_step": pa.list_(pa.int32()),
    **dict.fromkeys(("curve_loss", "curve_accuracy", "curve_error"), pa.list_(pa.float32())),
    **dict.fromkeys(("curve_summary", "parents"), pa.string()),
    **dict.fromkeys(("error", "device"), pa.string()),
    "pack_size": pa.int32(),
    "seconds": pa.float64(),
    **dict.fromkeys(("host", "launch", "versions"), pa.string()),
    "finished_at": _TIME,
}
_JSON = ("options", "measures", "curve_summary", "parents")
_VARIED = ("key", "family", "error")
"""Texts that differ from row to row; of the others one copy is kept in memory."""
_ADDED = {2: ("schedule", "curve_error"), 3: ("curve_summary",), 4: ("parents",)}
"""Columns that there are since a version of the schema."""


def _schema(version: int) -> pa.Schema:
    later = {name for since, names in _ADDED.items() if since > version for name in names}
    return pa.schema(
        [pa.field(name, kind, nullable=name in _NULLABLE) for name, kind in _COLUMNS.items() if name not in later],
        metadata={VERSION_FIELD: str(version).encode()},
    )


SCHEMAS = {version: _schema(version) for version in (1, 2, 3, VERSION)}
"""Every schema a part may have been written in."""
SCHEMA = SCHEMAS[VERSION]


def make_row(
    spec: RunSpec,
    *,
    task_version: str,
    fixed_count: int,
    status: str,
    reason: str,
    steps: int = 0,
    passage_step: int | None = None,
    accuracy: float | None = None,
    id_mse: float | None = None,
    ood_mse: float | None = None,
    loss: float | None = None,
    measures: Mapping[str, Any] | None = None,
    curve_step: Iterable[int] = (),
    curve_loss: Iterable[float] = (),
    curve_accuracy: Iterable[float] = (),
    curve_error: Iterable[float] = (),
    curve_summary: Mapping[str, Iterable[float]] | None = None,
    parents: Mapping[str, str] | None = None,
    error: str | None = None,
    device: str = "cpu",
    pack_size: int = 1,
    seconds: float = 0.0,
    host: str | None = None,
    launch: str = "",
    versions: str = "",
    finished_at: datetime | None = None,
) -> Row:
    """The complete row of `spec`, one value per column of `SCHEMA` and in its order.

    `parents` are the keys of the runs that it needed, by name. `host` and `finished_at` default to this machine and to now. A
    float that is None was not measured; NaN was.

    Raises:
        ValueError: a status that is none of STATUSES.
    """
    if status not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
    values = {
        **spec.to_dict(),
        "key": run_key(spec, task_version),
        "family": family_key(spec, task_version),
        "task_version": task_version,
        "fixed_count": fixed_count,
        "status": status,
        "reason": reason,
        "steps": steps,
        "passage_step": passage_step,
        "accuracy": accuracy,
        "id_mse": id_mse,
        "ood_mse": ood_mse,
        "loss": loss,
        "measures": dict(measures or {}),
        "curve_step": list(curve_step),
        "curve_loss": list(curve_loss),
        "curve_accuracy": list(curve_accuracy),
        "curve_error": list(curve_error),
        "curve_summary": None if curve_summary is None else {name: list(curve) for name, curve in curve_summary.items()},
        "parents": None if parents is None else dict(parents),
        "error": error,
        "device": device,
        "pack_size": pack_size,
        "seconds": seconds,
        "host": socket.gethostname() if host is None else host,
        "launch": launch,
        "versions": versions,
        "finished_at": datetime.now(UTC) if finished_at is None else finished_at,
    }
    return {name: values[name] for name in SCHEMA.names}


def upgrade(table: pa.Table, version: int) -> pa.Table:
    """A table of schema `version`, as it was written, in today's SCHEMA.

    Version 1 had a constant learning rate only, and no curve of the held-out error; version 2 no curves of a task's own;
    version 3 no runs that need others.
    """
    if version == VERSION:
        return table
    nothing: dict[str, Any] = {"schedule": "constant", "curve_error": [], "curve_summary": None, "parents": None}
    added = [name for since, names in _ADDED.items() if since > version for name in names]
    columns = [
        pa.array([nothing[name]] * table.num_rows, _COLUMNS[name]) if name in added else table[name] for name in SCHEMA.names
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def encode(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of `SCHEMA`. JSON has no NaN: in `measures` and `curve_summary` a number that is not finite becomes null.

    Raises:
        ValueError: a row with a missing, unknown or wrongly typed column; the message names row and column.
    """
    for row in rows:
        if row.keys() != _COLUMNS.keys():
            missing, unknown = sorted(_COLUMNS.keys() - row.keys()), sorted(row.keys() - _COLUMNS.keys())
            raise ValueError(f"row {row.get('key')!r}: missing columns {missing}, unknown columns {unknown}")
    try:
        return pa.Table.from_arrays([_column(name, [row[name] for row in rows]) for name in _COLUMNS], schema=SCHEMA)
    except ValueError as error:
        for row in rows:
            for name in _COLUMNS:
                try:
                    _column(name, [row[name]])
                except ValueError as why:
                    raise ValueError(f"row {row['key']!r}: {why}") from error
        raise


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    """
    Raises:
        ValueError: a value is none that the column may have.
    """
    kind = _COLUMNS[name]
    try:
        if name in _JSON:
            values = [None if v is None else json.dumps(_finite(v), sort_keys=True, allow_nan=False) for v in values]
        array = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"column {name} ({kind}): {error}") from error
    if array.null_count and name not in _NULLABLE:
        raise ValueError(f"column {name} must not be empty")
    if name == "key" and any(len(value) != KEY_LENGTH or not value.isascii() for value in values):
        raise ValueError(f"column key must be a run key, {KEY_LENGTH} letters long")
    return array


def decode(table: pa.Table) -> list[Row]:
    """The rows of a table with any of the columns of `SCHEMA`, as plain Python values; null is None, NaN is NaN."""
    collecting = gc.isenabled()
    gc.disable()  # many small containers and no cycles: the collector would double the time
    try:
        names = [intern(name) for name in table.column_names]
        columns = [_values(name, table[name]) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    finally:
        if collecting:
            gc.enable()


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """The same as `column.to_pylist()` with JSON read, several times faster for the columns that are large."""
    array = column.combine_chunks()
    if name in _JSON:
        return [None if text is None else json.loads(text) for text in array.to_pylist()]
    if pa.types.is_list(array.type):
        items, ends = array.values.to_numpy(zero_copy_only=False).tolist(), array.offsets.to_numpy().tolist()
        return [items[start:end] for start, end in pairwise(ends)]
    if array.type == _TIME:
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return [epoch + timedelta(microseconds=us) for us in array.cast(pa.int64()).to_numpy().tolist()]
    if pa.types.is_string(array.type):
        texts = array.to_pylist()
        return texts if name in _VARIED else [intern(text) for text in texts]
    values: list[Any] = array.to_pylist() if array.null_count else array.to_numpy().tolist()
    return values


def _finite(value: Any) -> Any:
    """`value` with plain numbers for NumPy and torch ones, and None for those that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
