"""The table of measures: what was saved is read back by any reader, once, and damage costs only what it hit."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import Place, kept
from spoil import change, first, no_text, replaced

from analysis.measures.quantity import Quantity
from orchestrator.store import MeasureTable, StoreError
from orchestrator.store.measures import MOST_BYTES, SCHEMA, encode

KEY, OTHER = "a" * 24, "b" * 24
QUANTITIES = [
    Quantity("error", 0.25),
    Quantity("share", float("nan"), layer=2),
    Quantity("map", array=np.arange(6, dtype=np.float32).reshape(2, 3), layer=-1),
]


@pytest.fixture
def table(place: Place) -> Iterator[MeasureTable]:
    with MeasureTable(place.location) as table:
        table.save(KEY, "images", 1, encode(KEY, "images", 1, QUANTITIES, 1.5))
        yield table


in_a_folder = pytest.mark.parametrize("place", ["folder"], indirect=True)


def test_quantities_are_read_back(table: MeasureTable) -> None:
    error, share, map_ = table.rows()
    found = [error[name] for name in ("key", "measure", "quantity", "value", "layer")]
    assert found == [KEY, "images", "error", 0.25, None]
    assert np.isnan(share["value"])
    assert share["layer"] == 2
    assert map_["value"] is None
    assert map_["layer"] == -1
    assert map_["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert table.known() == {(KEY, "images", 1)}
    assert [table.has(KEY, "images", version) for version in (1, 2)] == [True, False]
    assert table.rows(["kernel"]) == []


def test_files_of_other_runs_and_versions_are_not_read(table: MeasureTable, place: Place) -> None:
    table.save(OTHER, "images", 1, encode(OTHER, "images", 1, QUANTITIES, 1.5))
    table.save(KEY, "kernel", 2, encode(KEY, "kernel", 2, QUANTITIES, 1.5))
    for name in (f"{OTHER}.images-1", f"{KEY}.kernel-2", f"{KEY}.images-2"):
        place.put(f"measures/{name}.parquet", b"it would be named")
    with MeasureTable(place.location) as reader:
        rows = reader.rows(keys={KEY}, versions={"images": 1, "kernel": 1})
        assert {(row["key"], row["measure"], row["version"]) for row in rows} == {(KEY, "images", 1)}
        assert reader.notices == []
        assert reader.rows(["kernel"], {KEY}) == []
        assert len(reader.notices) == 1
    place.put("measures/mine.parquet", b"its name tells nothing")
    with MeasureTable(place.location) as reader:
        reader.rows(keys={KEY}, versions={"images": 1})
        [notice] = reader.notices
        assert "mine.parquet, which is damaged or foreign" in notice


def test_a_measure_without_quantities_is_known_and_gives_no_rows(table: MeasureTable, place: Place) -> None:
    table.save(OTHER, "tuning", 1, encode(OTHER, "tuning", 1, [], 0.5))
    with MeasureTable(place.location) as reader:
        assert reader.known() == {(KEY, "images", 1), (OTHER, "tuning", 1)}
        assert [row["key"] for row in reader.rows()] == [KEY] * len(QUANTITIES)
        assert reader.rows(["tuning"]) == []
        assert reader.notices == []
    table.save(KEY, "images", 2, encode(KEY, "images", 2, [], 0.5))
    assert table.rows() == [], "of each the latest"


def test_a_value_that_is_not_finite_is_kept_as_nan(table: MeasureTable) -> None:
    endless = [Quantity("up", float("inf")), Quantity("down", float("-inf"))]
    table.save(OTHER, "kernel", 1, encode(OTHER, "kernel", 1, endless, 1.0))
    assert [np.isnan(row["value"]) for row in table.rows(["kernel"])] == [True, True]


def test_any_reader_reads_the_folder(table: MeasureTable, place: Place) -> None:
    table.save(OTHER, "kernel", 1, encode(OTHER, "kernel", 1, QUANTITIES[:1], 1.0))
    read = pd.read_parquet(f"{place.location}/measures")
    assert sorted(zip(read["key"], read["quantity"], strict=True)) == [
        (KEY, "error"), (KEY, "map"), (KEY, "share"), (OTHER, "error"),
    ]  # fmt: skip


def test_a_newer_version_replaces_the_older(table: MeasureTable, place: Place) -> None:
    table.save(KEY, "images", 2, encode(KEY, "images", 2, QUANTITIES[:1], 1.0))
    assert table.known() == {(KEY, "images", 2)}
    assert [row["version"] for row in table.rows()] == [2]
    assert place.names("measures") == [f"{KEY}.images-2.parquet"]


def test_an_older_program_and_another_measure_take_nothing_away(table: MeasureTable, place: Place) -> None:
    names = [("images", 2), ("images", 10), ("images-1", 1), ("images", 9), ("images", 1)]
    for measure, version in names:
        table.save(KEY, measure, version, encode(KEY, measure, version, QUANTITIES[:1], 1.0))
    assert sorted(place.names("measures")) == [f"{KEY}.images-{end}.parquet" for end in ("1-1", "1", "10", "9")]
    assert sorted(row["version"] for row in table.rows()) == [1, 10], "of each the latest"
    table.save(KEY, "images", 11, encode(KEY, "images", 11, QUANTITIES[:1], 1.0))
    assert sorted(place.names("measures")) == [f"{KEY}.images-{end}.parquet" for end in ("1-1", "11")]


def test_a_save_looks_for_earlier_versions_by_name(table: MeasureTable, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of many files a list of them takes longer than what is measured."""
    table.save(OTHER, "images", 1, encode(OTHER, "images", 1, QUANTITIES, 1.0))
    lists, looks = list[str](), list[str]()

    def count(owner: Any, name: str, into: list[str]) -> None:
        of = getattr(owner, name)

        def counting(path: Any, *words: Any) -> Any:
            if Path(path).is_relative_to(table.path / "measures"):
                into.append(Path(path).name)
            return of(path, *words)

        monkeypatch.setattr(owner, name, counting)

    for owner, name in ((Path, "glob"), (os, "scandir"), (os, "listdir")):
        count(owner, name, lists)
    count(os.path, "lexists", looks)
    table.save(KEY, "images", 3, encode(KEY, "images", 3, QUANTITIES, 1.0))
    monkeypatch.undo()
    assert (lists, looks) == ([], [f"{KEY}.images-{version}.parquet" for version in range(3)])
    assert sorted(place.names("measures")) == [f"{KEY}.images-3.parquet", f"{OTHER}.images-1.parquet"]


@in_a_folder
def test_a_broken_link_in_the_place_of_an_earlier_version_goes(table: MeasureTable) -> None:
    (table.path / "measures" / f"{KEY}.images-0.parquet").symlink_to("nowhere")
    table.save(KEY, "images", 2, encode(KEY, "images", 2, QUANTITIES, 1.0))
    assert os.listdir(table.path / "measures") == [f"{KEY}.images-2.parquet"]  # noqa: PTH208 - with broken links


@pytest.mark.parametrize("damage", ["torn", "empty", "foreign", "flipped", "renamed", "named by hand"])
def test_a_damaged_file_is_set_aside_and_measured_again(table: MeasureTable, place: Place, damage: str) -> None:
    (name,) = place.names("measures")
    data = place.get(f"measures/{name}")
    if damage in ("renamed", "named by hand"):
        place.remove(f"measures/{name}")
        name = f"{OTHER}.images-1.parquet" if damage == "renamed" else "copy.parquet"
    at = data.index(b"error")
    foreign = pa.BufferOutputStream()
    pd.DataFrame({"x": [1]}).to_parquet(foreign)
    changed = {
        "torn": data[: len(data) // 2],
        "empty": b"",
        "foreign": foreign.getvalue().to_pybytes(),
        "flipped": data[:at] + b"eRROR" + data[at + 5 :],
    }
    place.put(f"measures/{name}", bad := changed.get(damage, data))
    with MeasureTable(place.location) as reader:
        assert reader.rows() == []
        assert len(reader.notices) == 1
    assert place.names("measures") == [name]
    assert table.known() == set()
    assert place.names("measures") == []
    assert kept(place, "set-aside") == {name: bad}
    shown = f"{place.location}/measures/{name}"
    assert table.notices == [f"set aside {shown}, which is damaged or foreign: what it held is measured again"]
    table.save(KEY, "images", 1, encode(KEY, "images", 1, QUANTITIES, 1.5))
    assert table.known() == {(KEY, "images", 1)}


@in_a_folder
@pytest.mark.parametrize(
    ("code", "told"),
    [(errno.EACCES, r"Permission denied: .*images-1\.parquet; make it readable"), (errno.EIO, "error"), (errno.EMFILE, "many")],
)
def test_a_file_that_cannot_be_read_is_no_damaged_one(
    table: MeasureTable, place: Place, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    def refused(path: Path) -> object:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.store.parts.open_file", refused)
        for look in (table.known, table.rows):
            with pytest.raises(StoreError, match=f"cannot read what was measured in .*{told}"):
                look()
    assert place.names("measures") == [f"{KEY}.images-1.parquet"]
    assert table.known() == {(KEY, "images", 1)}
    assert table.notices == []


@in_a_folder
def test_a_folder_or_a_link_to_itself_is_a_damaged_file(table: MeasureTable) -> None:
    (table.path / "measures" / f"{OTHER}.images-1.parquet").mkdir()
    (looped := table.path / "measures" / f"{OTHER}.kernel-1.parquet").symlink_to(looped.name)
    assert table.known() == {(KEY, "images", 1)}
    assert sorted(file.name for file in (table.path / "set-aside").iterdir()) == [
        f"{OTHER}.images-1.parquet", f"{OTHER}.kernel-1.parquet",
    ]  # fmt: skip


def test_a_run_is_claimed_by_one_process_at_a_time(table: MeasureTable, place: Place) -> None:
    with MeasureTable(place.location) as other:
        assert table.claim(KEY)
        assert not other.claim(KEY)
        table.release(KEY)
        assert other.claim(KEY)


FAULTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a shape of another size": lambda table: replaced(table, "shape", [None, None, [2, 2]]),
    "a shape of more dimensions than NumPy has": lambda table: replaced(table, "shape", [None, None, [6, *[1] * 99]]),
    "a shape of nothing that NumPy cannot count": lambda table: replaced(
        replaced(table, "shape", [None, None, [0, *[2**31 - 1] * 3]]), "array", [None, None, []]
    ),
    "a hole in a shape": lambda table: replaced(table, "shape", [None, None, [2, None]]),
    "a negative shape": lambda table: replaced(table, "shape", [None, None, [-2, -3]]),
    "an array without a shape": lambda table: replaced(table, "shape", [None] * 3),
    "a hole in an array": lambda table: replaced(table, "array", [None, None, [1.0, None, 1.0, 1.0, 1.0, 1.0]]),
    "a name that is no UTF-8": lambda table: replaced(table, "quantity", no_text(3)),
    "NaN seconds": first("seconds", float("nan")),
    "endless seconds": first("seconds", float("inf")),
    "negative seconds": first("seconds", -1.0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_with_values_that_no_measure_gives_is_damaged(
    table: MeasureTable, place: Place, tmp_path: Path, fault: str
) -> None:
    (name,) = place.names("measures")
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(place.get(f"measures/{name}"))
    change(bad, FAULTS[fault])
    place.put(f"measures/{name}", bad.read_bytes())
    with MeasureTable(place.location) as reader:
        assert reader.rows() == []
        assert len(reader.notices) == 1
    assert table.known() == set()
    assert kept(place, "set-aside") == {name: bad.read_bytes()}


@in_a_folder
def test_measures_come_in_the_order_of_their_names_however_a_disk_lists_them(
    table: MeasureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.save(OTHER, "images", 1, encode(OTHER, "images", 1, QUANTITIES[:1], 1.0))
    names = os.listdir
    for backwards in (False, True):
        monkeypatch.setattr(os, "listdir", lambda path, backwards=backwards: sorted(names(path), reverse=backwards))
        assert [row["key"] for row in table.rows()] == [KEY, KEY, KEY, OTHER]


@in_a_folder
def test_a_file_that_is_none_is_not_waited_for(table: MeasureTable) -> None:
    os.mkfifo(table.path / "measures" / f"{OTHER}.images-1.parquet")
    assert len(MeasureTable(table.path).rows()) == len(QUANTITIES)
    assert table.known() == {(KEY, "images", 1)}


def test_a_file_under_a_second_name_is_not_counted_twice(table: MeasureTable, place: Place) -> None:
    (name,) = place.names("measures")
    copy, data = name.replace("-1.", "-01."), place.get(f"measures/{name}")
    place.put(f"measures/{copy}", data)
    with MeasureTable(place.location) as reader:
        assert len(reader.rows()) == len(QUANTITIES)
        assert f"{place.location}/measures/{copy}" in reader.notices[0]
    assert table.known() == {(KEY, "images", 1)}
    assert kept(place, "set-aside") == {copy: data}


def test_what_was_set_aside_before_stays(table: MeasureTable, place: Place) -> None:
    (name,) = place.names("measures")
    place.put(f"set-aside/{name}", b"earlier")
    place.put(f"measures/{name}", b"torn")
    assert table.known() == set()
    assert kept(place, "set-aside") == {name: b"earlier", f"{name}.1": b"torn"}


@in_a_folder
def test_a_folder_that_was_set_aside_before_stays(table: MeasureTable) -> None:
    (path,) = (table.path / "measures").iterdir()
    earlier = table.path / "set-aside" / path.name
    (earlier / "with").mkdir(parents=True)
    path.write_bytes(b"torn")
    assert table.known() == set()
    assert (earlier / "with").is_dir()
    assert earlier.with_name(f"{path.name}.1").read_bytes() == b"torn"


@in_a_folder
@pytest.mark.parametrize("shape", ["a name for a thousand rows", "an array without end", "a large file"])
def test_a_measure_that_would_fill_the_memory_is_not_unpacked(
    table: MeasureTable, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    assert MOST_BYTES == 1 << 30
    monkeypatch.setattr("orchestrator.store.measures.MOST_BYTES", 4 << 20)
    (path,) = (table.path / "measures").iterdir()
    rows = pq.read_table(path, schema=SCHEMA)
    if shape == "an array without end":
        array = np.zeros(2 << 20, np.float32)
        pq.write_table(replaced(replaced(rows, "array", [None, None, array]), "shape", [None, None, [2 << 20]]), path)
    elif shape == "a name for a thousand rows":
        many = replaced(rows.slice(0, 1), "quantity", ["x" * 10_000]).take(pa.array(np.zeros(1000, np.int64)))
        pq.write_table(many, path, use_dictionary=["quantity"])
    else:
        with path.open("r+b") as file:
            file.truncate((4 << 20) + 1)
    assert path.stat().st_size < 1 << 20 or shape == "a large file"
    reader = MeasureTable(table.path)
    assert reader.rows() == []
    assert reader.notices == [f"left out {path}, which is damaged or foreign"]
    monkeypatch.setattr("orchestrator.store.measures.MOST_BYTES", 64 << 20)
    assert len(MeasureTable(table.path).rows()) == {"a large file": 0, "an array without end": 3}.get(shape, 1000)
