"""Part files that say what no run does, for the tests of a store that comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.store import SCHEMA


def replaced(table: pa.Table, name: str, values: Sequence[Any] | pa.Array) -> pa.Table:
    """The table with other values in a column, of the type it has."""
    field = table.schema.field(name)
    array = values if isinstance(values, pa.Array) else pa.array(list(values), field.type)
    return table.set_column(table.schema.get_field_index(name), field, array)


def first(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    """What puts a value into the first row of a table."""
    return lambda table: replaced(table, name, [value, *table[name].to_pylist()[1:]])


def change(part: Path, how: Callable[[pa.Table], pa.Table]) -> None:
    """Write a part anew as anybody can who knows its schema."""
    pq.write_table(how(pq.read_table(part, schema=pq.read_schema(part))), part)


def no_text(rows: int) -> pa.Array:
    """Texts that are no UTF-8."""
    return pa.array([b"\xff\xfe"] * rows, pa.binary()).view(pa.string())


def bomb(part: Path, repeats: int = 1024, size: int = 1 << 20) -> None:
    """A part of few bytes with a text of a million letters that is meant in a thousand rows."""
    table = pq.read_table(part, schema=SCHEMA).slice(0, 1)
    table = pa.concat_tables([table] * repeats).combine_chunks()
    table = replaced(table, "key", [f"{i:024d}" for i in range(repeats)])
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * repeats, pa.int32()), pa.array(["x" * size]))
    field = pa.field("error", texts.type)
    packed = table.set_column(SCHEMA.get_field_index("error"), field, texts)
    options = {"compression": "zstd", "store_schema": False, "dictionary_pagesize_limit": 4 << 20}
    with pq.ParquetWriter(part, packed.schema, **options) as writer:
        writer.write_table(packed)
        writer.add_key_value_metadata(SCHEMA.metadata)
