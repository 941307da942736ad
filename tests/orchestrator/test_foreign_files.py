"""Files of a store that may be deleted at any time may also be anything: they are passed over, and written anew."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spoil import replaced
from store_child import row

import orchestrator.store.index as index_module
from orchestrator.store import Artifacts, MeasureTable, ResultStore, StoreError, UnreadableError
from orchestrator.store.artifacts import PACK_SIZES
from orchestrator.store.index import Index
from orchestrator.store.parts import MOST_BYTES, parquet_bytes, read_file, unpack

PARTS = b"orchestrator.parts"


@cache
def filled(folder: Path) -> Path:
    """A store that every test begins with, made by the first of them."""
    with ResultStore(folder / "filled") as opened:
        for start in range(0, 45, 10):
            opened.append([row(i) for i in range(start, min(start + 10, 45))])
    return folder / "filled"


@pytest.fixture
def store(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, small_parts: None) -> Path:
    """A store of 45 rows in parts of 10, four of them in the index, which knows them by their inodes."""
    made = filled(tmp_path_factory.getbasetemp())
    (tmp_path / "s" / "runs").mkdir(parents=True)
    for part in (made / "runs").iterdir():
        (tmp_path / "s" / "runs" / part.name).hardlink_to(part)
    shutil.copyfile(made / ".index", tmp_path / "s" / ".index")
    assert len(Index.open(tmp_path / "s" / ".index").parts) == 4
    return tmp_path / "s"


def sealed(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body) + body


def table_of(store: Path) -> pa.Table:
    return pq.read_table(pa.BufferReader((store / ".index").read_bytes()[8:]))


def relisted(change: Callable[[list[Any]], Any]) -> Callable[[Path], bytes]:
    """An index with another list of its parts."""

    def make(store: Path) -> bytes:
        table = table_of(store)
        listed = change(json.loads(table.schema.metadata[PARTS]))
        return sealed(parquet_bytes(table.replace_schema_metadata({PARTS: json.dumps(listed).encode()})))

    return make


def rewritten(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], bytes]:
    """An index with other values in a column."""

    def make(store: Path) -> bytes:
        table = table_of(store)
        return sealed(parquet_bytes(replaced(table, name, change(table[name].to_pylist()))))

    return make


INDICES: dict[str, Callable[[Path], bytes]] = {
    "nothing": lambda store: b"",
    "a word": lambda store: b"x",
    "only a checksum": lambda store: sealed(b""),
    "nonsense": lambda store: sealed(b"nonsense" * 100),
    "nonsense that ends well": lambda store: sealed(b"nonsense" * 100 + b"PAR1"),
    "no list of parts": lambda store: sealed(parquet_bytes(table_of(store).replace_schema_metadata({}))),
    "a list of brackets": lambda store: sealed(parquet_bytes(table_of(store).replace_schema_metadata({PARTS: b"[" * 200_000}))),
    "a list of numbers": relisted(lambda parts: [1, 2, 3]),
    "parts without names": relisted(lambda parts: [[None, *part[1:]] for part in parts]),
    "parts elsewhere": relisted(lambda parts: [[f"../runs/{part[0]}", *part[1:]] for part in parts]),
    "parts with less than no rows": relisted(lambda parts: [[*parts[0][:2], -10], [*parts[1][:2], 30], *parts[2:]]),
    "stamps of words": relisted(lambda parts: [[part[0], ["a", "b", "c"], part[2]] for part in parts]),
    "too few rows": relisted(lambda parts: parts[:2]),
    "rows of other parts": relisted(lambda parts: [[*parts[0][:2], 5], [*parts[1][:2], 15], *parts[2:]]),
    "parts in another order": relisted(lambda parts: parts[::-1]),
    "other columns": lambda store: sealed(parquet_bytes(table_of(store).select(["key", "family"]))),
    "other types": lambda store: sealed(parquet_bytes(table_of(store).set_column(5, "N", pa.array(["8"] * 40)))),
    "other families": rewritten("family", lambda values: ["f" * 24 for _ in values]),
    "other counts": rewritten("data_count", lambda values: values[1:] + values[:1]),
    "other keys": rewritten("key", lambda values: [b"f" * 24 for _ in values]),
    "shifted keys": rewritten("key", lambda values: values[1:] + values[:1]),
    "keys that are no letters": rewritten("key", lambda values: [b"\xff" * 24 for _ in values]),
}


@pytest.mark.slow(1)
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", INDICES)
def test_an_index_that_is_wrong_changes_nothing(store: Path, kind: str, read_only: bool) -> None:
    (store / ".index").write_bytes(INDICES[kind](store))
    with ResultStore(store, read_only=read_only) as opened:
        family = {"family": {row(0)["family"]}}
        some = opened.rows(where={"data_count": {3, 14, 44}})
        assert sorted(r["data_count"] for r in some) in ([3, 14, 44], [44], [3, 44], [14, 44])
        if not read_only:
            # What an index hides is trained again; then it turns out that it is there.
            opened.rows(where=family)
            fresh = opened.append([row(i) for i in range(50)])
            assert [r["data_count"] for r in fresh] == [45, 46, 47, 48, 49]
            assert {r["data_count"] for r in opened.rows(where=family)} == set(range(50))
        else:
            assert {r["data_count"] for r in opened.rows()} == set(range(45))
        assert opened.notices == []
    with ResultStore(store) as opened:
        assert sorted(r["data_count"] for r in opened.rows()) == list(range(45 if read_only else 50))
        assert opened.notices == []


@pytest.mark.parametrize(("size", "end"), [(4 << 30, b"PAR1"), (1 << 30, b"\0")])
def test_a_file_that_no_index_fills_is_not_read(store: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: bytes) -> None:
    with (store / ".index").open("r+b") as file:
        file.truncate(size - len(end))
        file.seek(0, os.SEEK_END)
        file.write(end)

    def unread(data: object) -> bytes:
        raise AssertionError("every byte of it was read")

    monkeypatch.setattr(index_module, "_checksum", unread)
    assert Index.open(store / ".index").parts == {}


def test_rows_that_an_index_hides_are_reported_when_they_are_appended(store: Path) -> None:
    (store / ".index").write_bytes(INDICES["other families"](store))
    with ResultStore(store) as opened:
        assert len(opened.rows(where={"family": {row(0)["family"]}})) == 5
        assert opened.append([row(3)]) == []
        assert row(3) in opened.refresh()


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a broken link", "a link to itself", "a socket"])
@pytest.mark.parametrize("name", [".index", PACK_SIZES])
def test_what_is_no_file_is_passed_over_and_written_anew(store: Path, name: str, kind: str) -> None:
    place = store / name
    place.unlink(missing_ok=True)
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a folder":
        (place / "with").mkdir(parents=True)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(store)
            listener.bind(name)
    else:
        place.symlink_to("nowhere" if kind == "a broken link" else name)
    with ResultStore(store, read_only=True) as reader:
        assert len(reader.rows()) == 45
        assert reader.load_pack_sizes() == {}
    with ResultStore(store) as opened:
        opened.save_pack_sizes({"shape": 8})
        assert len(opened.rows()) == 45
        assert opened.load_pack_sizes() == {"shape": 8}
    assert len(Index.open(store / ".index").parts) == 4
    assert (store / "set-aside" / name / "with").exists() == (kind == "a folder")


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, "[1]", "\xff", '{"a": 0, "b": -1, "c": true, "d": 1e9}', f'{{"a": {10**400}}}'],
)
def test_pack_sizes_that_make_no_sense_are_measured_again(tmp_path: Path, text: str) -> None:
    (tmp_path / PACK_SIZES).write_text(text, encoding="latin-1")
    files = Artifacts(tmp_path)
    assert files.load_pack_sizes() == {}
    files.save_pack_sizes({"shape": 2})
    assert files.load_pack_sizes() == {"shape": 2}


@pytest.mark.parametrize("folder", ["weights", "checkpoints"])
def test_weights_and_checkpoints_that_are_no_files_do_not_hang(tmp_path: Path, folder: str) -> None:
    files = Artifacts(tmp_path)
    (tmp_path / folder).mkdir()
    place = files.checkpoint_path("k") if folder == "checkpoints" else files.weights_path("k")
    os.mkfifo(place)
    if folder == "weights":
        with pytest.raises(UnreadableError, match=f"^cannot read {place}: it is not a file$"):
            files.load_weights("k")
        return
    for _ in range(2):
        assert files.load_checkpoint("k") is None
        assert files.notices == [f"cannot read {place}: it is not a file: the run starts from the beginning"]


def test_a_folder_in_the_place_of_a_checkpoint_is_set_aside(tmp_path: Path) -> None:
    files = Artifacts(tmp_path)
    place = files.checkpoint_path("k")
    (place / "with").mkdir(parents=True)
    assert files.load_checkpoint("k") is None
    files.drop_checkpoint("k")
    assert not place.exists()
    assert (tmp_path / "set-aside" / "k.pt" / "with").is_dir()


def test_a_folder_among_the_temporaries_stays(tmp_path: Path) -> None:
    (tmp_path / ".tmp" / "x.y.token" / "with").mkdir(parents=True)
    (tmp_path / ".tmp" / "x.z.token").touch()
    with ResultStore(tmp_path) as opened:
        opened.append([row(1)])
    assert [file.name for file in (tmp_path / ".tmp").iterdir()] == ["x.y.token"]


def test_a_temporary_whose_name_is_no_text_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "x.y.\udcff").touch()
    with ResultStore(tmp_path) as opened:
        opened.append([row(1)])
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.parametrize("name", [".tmp", "checkpoints"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(StoreError) as caught, ResultStore(tmp_path) as opened:
        opened.save_checkpoint("k", b"data")
    said = "File exists" if name == "checkpoints" else "Not a directory"
    assert f": {said}: {tmp_path / name}; move away what is in its place, or choose another folder" in str(caught.value)


def test_weights_that_are_a_broken_link_or_a_folder_are_none_and_make_room(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as opened:
        for key in ("file", "link", "broken", "folder"):
            opened.save_weights(key, b"w")
        for key in ("link", "broken", "folder"):
            opened.weights_path(key).unlink()
        opened.weights_path("link").symlink_to("file.safetensors")
        opened.weights_path("broken").symlink_to("/gone/away")
        opened.weights_path("folder").mkdir()
        kept = {key for key in ("file", "link", "broken", "folder") if opened.has_weights(key)}
        assert opened.with_weights() == kept == {"file", "link"}
        for key in ("broken", "folder"):
            opened.save_weights(key, b"again")
            assert opened.load_weights(key) == b"again"
        assert opened.with_weights() == {"file", "link", "broken", "folder"}


@pytest.mark.parametrize("folder", ["weights", "measures"])
def test_a_file_in_the_place_of_weights_or_measures_is_told(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).touch()
    table = MeasureTable(tmp_path)
    assert (table.with_weights() if folder == "weights" else table.rows()) in (set(), [])
    assert table.notices == [f"{tmp_path}/{folder} is not a folder: nothing is read from it"]


def test_a_folder_that_others_make_at_that_moment_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.listdir

    def listed_before(place: Any) -> list[str]:
        if Path(place).name == "measures":
            monkeypatch.undo()
            try:
                return listed(place)
            finally:
                Path(place).mkdir()
        return listed(place)

    monkeypatch.setattr(os, "listdir", listed_before)
    table = MeasureTable(tmp_path)
    assert table.rows() == []
    assert (tmp_path / "measures").is_dir()
    assert table.notices == []


@pytest.mark.parametrize("target", ["nowhere", "s"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_that_is_a_broken_link_is_refused(tmp_path: Path, target: str, read_only: bool) -> None:
    (tmp_path / "s").symlink_to(target)
    with pytest.raises(StoreError, match=f"^{tmp_path}/s is a broken link: repair it, or choose another folder$"):
        ResultStore(tmp_path / "s", read_only=read_only)
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_a_store_that_is_a_link_to_a_folder_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "s").symlink_to("real")
    with ResultStore(tmp_path / "s") as opened:
        opened.append([row(1)])
    with ResultStore(tmp_path / "real", read_only=True) as opened:
        assert opened.rows() == [row(1)]


@pytest.mark.parametrize("name", ["weights", "measures", "runs"])
def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with ResultStore(tmp_path) as opened:
        opened.append([row(1)])
        opened.save_weights("k", b"w")
    (tmp_path / "measures").mkdir()
    (part,) = (tmp_path / "runs").iterdir()
    closed = part if name == "runs" else tmp_path / name

    def denied(of: Callable[..., Any]) -> Callable[..., Any]:
        """Root may read everything, and these tests may be run by root."""

        def call(path: Any, *more: Any) -> Any:
            if Path(path) == closed:
                raise PermissionError(13, "Permission denied", str(path))
            return of(path, *more)

        return call

    monkeypatch.setattr("orchestrator.store.folder.os.listdir", denied(os.listdir))
    monkeypatch.setattr("orchestrator.store.folder.os.open", denied(os.open))
    table = MeasureTable(tmp_path)
    read = {"runs": lambda: ResultStore(tmp_path), "weights": table.with_weights, "measures": table.rows}
    with pytest.raises(StoreError, match="Permission denied") as caught:
        read[name]()
    if name == "runs":
        assert f"Permission denied: {part}; make that file readable" in str(caught.value)
    else:
        assert f"Permission denied: {closed}; make it readable, or ask its owner to" in str(caught.value)


@pytest.mark.parametrize(
    ("read_only", "hint"), [(True, "make it readable, or ask its owner to"), (False, "choose a folder you can write to")]
)
def test_who_may_not_read_the_rows_is_told_what_to_do_for_what_was_wanted(
    read_only: bool, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()

    def denied(path: Any) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("orchestrator.store.reader.os.listdir", denied)
    named = f": {runs}" if read_only else ""
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path}: Permission denied{named}; {hint}")):
        ResultStore(tmp_path, read_only=read_only)


def test_a_file_of_rows_takes_no_more_memory_to_read_than_it_has_bytes(store: Path) -> None:
    part = next((store / "runs").iterdir())
    tracemalloc.start()
    try:
        data, _ = read_file(part, MOST_BYTES)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data == part.read_bytes()
    assert most < len(data) + 200_000


@pytest.mark.parametrize(
    "error",
    [MemoryError(), pa.ArrowMemoryError("malloc of size 64 failed"), OSError("Couldn't deserialize thrift: std::bad_alloc")],
)
def test_rows_for_which_there_is_no_memory_are_not_damaged(
    error: Exception, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object, **__: object) -> None:
        raise error

    (store / ".index").unlink()
    before = sorted((store / "runs").iterdir())
    monkeypatch.setattr(pq, "ParquetFile", short)
    with pytest.raises(UnreadableError, match=r"cannot read .*runs/.*\.parquet: it is too large for this machine's memory"):
        ResultStore(store)
    assert sorted((store / "runs").iterdir()) == before
    with pytest.raises(MemoryError) as caught:
        unpack(b"", lambda schema: None, MOST_BYTES)
    assert not isinstance(caught.value, pa.ArrowException), "who takes those of Arrow for damage"
