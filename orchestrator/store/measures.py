"""The second table of a store: what was measured of trained runs, keyed by run key and measure.

    DIR/measures/KEY.MEASURE-VERSION.parquet    all quantities of one measure of one run

`pandas.read_parquet("DIR/measures")` reads all of them at any moment. A file is written once, whole: what is there is complete,
and what is not there, or is damaged, can be measured again from the weights.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orchestrator.store.artifacts import Artifacts
from orchestrator.store.folder import stamp_of
from orchestrator.store.parts import DamagedError, read_file, unpack
from orchestrator.store.place import Stamp

MOST_BYTES = 1 << 30
"""Of a file, packed or unpacked: a matrix over all pairs of 4096 positions has 64 MiB."""

MOST_LENGTHS = 32
"""Dimensions of an array: NumPy has no more than 64."""

NO_FILE = (errno.EINVAL, errno.EISDIR, errno.ELOOP)
"""What is said of something that is no file."""

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("measure", pa.string(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("quantity", pa.string(), nullable=False),
        pa.field("layer", pa.int32()),
        pa.field("value", pa.float64()),
        pa.field("shape", pa.list_(pa.int32())),
        pa.field("array", pa.list_(pa.float32())),
        pa.field("seconds", pa.float64(), nullable=False),
    ],
    metadata={b"orchestrator.measures": b"1"},
)
"""A row is a quantity: a `value`, or an `array` with its `shape`; `layer` is null where it is not one of a layer. `seconds` is
the time that the whole measure of the run took."""


def encode(key: str, measure: str, version: int, quantities: Iterable[Any], seconds: float) -> bytes:
    """The file of one measure of one run.

    Args:
        quantities: objects with `name`, `value`, `array` and `layer`; a value that is not finite is kept as NaN. There may be
            none: that, too, has then been measured.
    """
    rows = [
        {
            **{"key": key, "measure": measure, "version": version, "quantity": q.name, "layer": q.layer, "seconds": seconds},
            "value": None if q.value is None else float(q.value) if math.isfinite(q.value) else math.nan,
            "shape": None if q.array is None else list(q.array.shape),
            "array": None if q.array is None else np.asarray(q.array, np.float32).ravel(),
        }
        for q in quantities
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


class MeasureTable(Artifacts):
    """What has been measured in the store at `path`. Nothing is created before the first save."""

    def claim(self, key: str) -> bool:
        """Reserve the measuring of a run for this process; False if another living one has it."""
        with self.place.in_words("claim a run"):
            return bool(self.place.take([f"measures of {key}"]))

    def release(self, key: str) -> None:
        self.place.free(f"measures of {key}")

    def known(self) -> set[tuple[str, str, int]]:
        """Run key, measure and version of everything that was measured and can be read.

        A file that is damaged or not ours is moved to `set-aside/` and named in `notices`; it will be measured again. Nothing
        is moved out of a folder that is none of the store's (see `Folder.move`).
        """
        known = set()
        for path, table in self._loaded():
            if table is not None:
                key, measure, version = _named(path)
                known.add((key, measure, int(version)))
            else:
                name = f"measures/{path.name}"
                with self.place.in_words("set a damaged file aside"):
                    aside = self.place.place_aside(path.name)
                    with contextlib.suppress(FileNotFoundError):
                        self.place.move(name, aside)
                self.place.note(
                    f"set aside {self.place.shown(name)}, which is damaged or foreign: what it held is measured again"
                )
        return known

    def has(self, key: str, measure: str, version: int) -> bool:
        """Whether it was saved, by any process, up to now."""
        with self.place.in_words(f"look for {measure} of run {key}"):
            return self.place.exists(_name(key, measure, version))

    def save(self, key: str, measure: str, version: int, data: bytes) -> None:
        """Keep what `encode` made, durably; files of earlier versions of the measure go.

        Raises:
            StoreError: it could not be written; everything else is intact.
        """
        name = _name(key, measure, version)
        with self.place.in_words(f"save {measure} of run {key}"):
            self.place.write(name, data)
            earlier = (_name(key, measure, number) for number in range(version))  # not from a list: the folder may be huge
            self.place.delete([other for other in earlier if os.path.lexists(self.path / other)])

    def rows(
        self,
        measures: Sequence[str] | None = None,
        keys: Collection[str] | None = None,
        versions: Mapping[str, int] | None = None,
    ) -> list[dict[str, Any]]:
        """All quantities, `array` as an ndarray of its shape or None, `value` and `layer` None where there is none; of a
        measure that is there in two versions those of the later one.

        A file that is damaged or not ours is left out and named in `notices`.

        Args:
            measures: only these.
            keys: only those of these runs.
            versions: only those of this version of each measure. A file whose name says that it is another one is not read.
        """

        def is_wanted(path: Path) -> bool:
            key, measure, version = _named(path)
            if measures is not None and measure not in measures:
                return False
            if not (measure and version.isdecimal()):
                return True  # it is foreign, and that is told
            return (keys is None or key in keys) and (versions is None or str(versions.get(measure)) == version)

        rows: list[dict[str, Any]] = []
        latest: dict[tuple[str, str], tuple[int, pa.Table]] = {}
        for path, table in self._loaded(is_wanted):
            key, measure, version = _named(path)
            if table is None:
                self.place.note(f"left out {self.place.shown(f'measures/{path.name}')}, which is damaged or foreign")
            elif int(version) >= latest.get((key, measure), (0, None))[0]:
                latest[key, measure] = int(version), table
        for _, table in latest.values():
            if not table.num_rows:  # a measure may find nothing to measure; an empty array cannot be split into no pieces
                continue
            arrays = table["array"].combine_chunks()
            pieces = np.split(arrays.values.to_numpy(), arrays.offsets.to_numpy()[1:-1])
            for row, piece in zip(table.drop_columns(["array"]).to_pylist(), pieces, strict=True):
                shape = row.pop("shape")
                rows.append(row | {"array": None if shape is None else piece.reshape(shape)})
        return rows

    def stamps(self) -> dict[tuple[str, str, str], Stamp]:
        """Of each file the run key, the measure and the version that its name has, and a stamp that changes with the file."""
        found = {}
        for path in self._files():
            with contextlib.suppress(OSError):  # it is gone, or a link that leads nowhere
                found[_named(path)] = stamp_of(path.stat())
        return found

    def _loaded(self, is_wanted: Callable[[Path], bool] = lambda _: True) -> Iterator[tuple[Path, pa.Table | None]]:
        """Every file that is wanted, with its table if it is as it should be. Where one is gone before it is read, as another
        version has taken its place, they are listed again."""
        seen, again = set(), True
        while again:
            again = False
            for path in self._files():
                if path in seen or not is_wanted(path):
                    continue
                with self.place.in_words("read what was measured"):
                    try:
                        table = _load(path)
                    except FileNotFoundError:
                        if not path.is_symlink():
                            again = True
                            continue
                        table = None
                seen.add(path)
                yield path, table

    def _files(self) -> list[Path]:
        with self.place.in_words("read what was measured"):
            self.place.refresh("measures")
            return [file for file in self.place.files("measures") if file.suffix == ".parquet"]


def _name(key: str, measure: str, version: int) -> str:
    return f"measures/{key}.{measure}-{version}.parquet"


def _named(path: Path) -> tuple[str, str, str]:
    """Run key, measure and version, as the name of a file has them."""
    key, _, rest = path.stem.partition(".")
    measure, _, version = rest.rpartition("-")
    return key, measure, version


def _load(path: Path) -> pa.Table | None:
    """A file, every byte checked; None if it is not as `encode` and `save` made it.

    Raises:
        FileNotFoundError: it is gone, or a link that leads nowhere.
        OSError: it could not be read; nothing is known of its contents.
    """
    key, measure, version = _named(path)
    if not version.isdecimal() or str(int(version)) != version:
        return None

    def wanted(schema: pa.Schema) -> None:
        if not schema.equals(SCHEMA):
            raise DamagedError("it has other columns")

    try:
        table = unpack(read_file(path, MOST_BYTES)[0], wanted, MOST_BYTES)
        table.validate(full=True)
    except (DamagedError, pa.ArrowException):
        return None
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return None
    of_file = table.select(["key", "measure", "version"]).to_pylist()
    same = all(tuple(row.values()) == (key, measure, int(version)) for row in of_file)
    return table if same and _is_sound(table) else None


def _is_sound(table: pa.Table) -> bool:
    """Whether arrays fill their shapes, and times and places are there."""
    if any(table[field.name].null_count for field in SCHEMA if not field.nullable):
        return False
    if any(pc.list_flatten(table[name]).null_count for name in ("shape", "array")):
        return False
    sizes = pc.list_value_length(table["array"]).to_pylist()
    for shape, size in zip(table["shape"].to_pylist(), sizes, strict=True):
        if shape is None or size is None:
            if shape is not None or size is not None:
                return False
        elif not _has_size(shape, size):
            return False
    return all(0 <= seconds < math.inf for seconds in table["seconds"].to_pylist())


def _has_size(shape: Sequence[int], size: int) -> bool:
    """Whether an array of this size has the shape. NumPy asks also of an empty one that its other lengths are not too large."""
    if len(shape) > MOST_LENGTHS or any(length < 0 for length in shape) or math.prod(shape) != size:
        return False
    return math.prod(filter(None, shape)) <= MOST_BYTES
