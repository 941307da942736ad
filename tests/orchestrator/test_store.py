"""The store keeps every acknowledged row, once, whatever is killed, full, damaged or run twice at the same time."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import random
import re
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import Place, child, hear, kept, plain_keys, say
from store_child import FINISHED_AT, row

import orchestrator.store.artifacts as artifacts_module
import orchestrator.store.reader as reader_module
import orchestrator.store.register as register_module
import orchestrator.store.results as results_module
from analysis import export
from orchestrator.command.cli import run
from orchestrator.store import PROVENANCE, SCHEMA, ResultStore, StoreError, make_row
from orchestrator.store.folder import Folder
from orchestrator.store.index import INDEXED, Index
from orchestrator.store.locks import StoreLocks
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.register import Register
from orchestrator.store.rows import SCHEMAS, Row, encode
from trainables.spec import RunSpec


def counts(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(r["data_count"] for r in rows)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "runs").iterdir())


def test_every_column_comes_back_as_it_was_written(place: Place) -> None:
    measures = {"volume": 0.5, "bad": float("nan"), "nested": {"list": [1, float("inf"), np.float32(2.5)]}, "ünï": "☃"}
    written = row(
        7,
        status="diverged",
        reason="der Verlust wurde NaN — 損失",
        accuracy=float("nan"),
        loss=float("nan"),
        id_mse=np.float64(0.125),
        ood_mse=None,
        measures=measures,
        curve_step=[20, 40],
        curve_loss=[float("nan"), 0.1],
        curve_accuracy=[0.5, 1.0],
        curve_error=[],
        curve_summary={"accuracy of ☃": [0.5, 1.0], "gap": [float("nan"), 0.0]},
        parents={"tokenizer": "a1" * 12},
        error="line 1\nline 2 \U0001f600",
        seconds=1.25,
        host="höst",
        launch="l1",
        versions="torch 2.9",
    )
    with ResultStore(place.location) as store:
        (live,) = store.append([written])
    with ResultStore(place.location) as store:
        (back,) = store.rows()
        assert store.table().schema.equals(SCHEMA)
    assert list(back) == list(live) == SCHEMA.names
    for name in ("accuracy", "loss"):
        assert math.isnan(back[name])
        assert math.isnan(live[name])
    assert math.isnan(back["curve_loss"][0])
    assert back["curve_loss"][1] == float(np.float32(0.1))
    assert back["measures"] == {"volume": 0.5, "bad": None, "nested": {"list": [1, None, 2.5]}, "ünï": "☃"}
    assert back["curve_summary"] == {"accuracy of ☃": [0.5, 1.0], "gap": [None, 0.0]}
    assert back["options"] == {"sigma": 0.5}
    assert back["finished_at"] == FINISHED_AT
    assert back["ood_mse"] is None
    assert back["passage_step"] is None
    special = {"accuracy", "loss", "curve_loss", "measures", "curve_summary"}
    assert {k: v for k, v in back.items() if k not in special} == {k: v for k, v in written.items() if k not in special}
    assert set(PROVENANCE) < set(SCHEMA.names)
    assert SCHEMA.metadata == {b"orchestrator.schema": b"4"}


def test_the_documentation_has_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    table = page.partition("## The columns of a row\n")[2].partition("\n## ")[0]
    heads = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(name for head in heads for name in re.findall(r"`(\w+)`", head)) == sorted(SCHEMA.names)


def test_rows_can_be_read_with_some_columns_only(place: Place) -> None:
    with ResultStore(place.location) as store:
        store.append([row(1), row(2)])
        assert store.rows(["data_count", "options"]) == [
            {"data_count": 1, "options": {"sigma": 0.5}},
            {"data_count": 2, "options": {"sigma": 0.5}},
        ]
        assert store.table(["steps"])["steps"].to_pylist() == [101, 102]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": "many"}, "row '7803fedcfbb8cc79e404b3b6': column steps"),
        ({"seed": 2**63}, "row '7803fedcfbb8cc79e404b3b6': column seed"),
        ({"host": None}, "row '7803fedcfbb8cc79e404b3b6': column host must not be empty"),
        ({"measures": {"x": object()}}, "row '7803fedcfbb8cc79e404b3b6': column measures .*not JSON serializable"),
        ({"colour": 1}, r"unknown columns \['colour'\]"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_whole(place: Place, change: dict[str, Any], words: str) -> None:
    with ResultStore(place.location) as store:
        with pytest.raises(ValueError, match=words):
            store.append([row(1), {**row(2), **change}])
        assert store.rows() == []
        assert kept(place) == {}


def test_a_status_is_one_of_the_known() -> None:
    spec_row = row(1)
    assert spec_row["status"] == "passed"
    with pytest.raises(ValueError, match="status must be one of passed, missed, diverged, failed, pruned, not 'done'"):
        row(1, status="done")
    assert make_row.__kwdefaults__["measures"] is None


def test_a_key_is_written_once(place: Place) -> None:
    with ResultStore(place.location) as store:
        assert counts(store.append([row(1), row(2), row(1, accuracy=0.0)])) == [1, 2]
        assert counts(store.append([row(2), row(3)])) == [3]
        assert row(3)["key"] in store
        assert row(4)["key"] not in store
        assert len(store) == 3
        assert store.rows()[0]["accuracy"] == 1 / 8
    assert len(plain_keys(place.location)) == 3


@pytest.mark.slow(10)
def test_kill_at_any_instant_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    folder, log = tmp_path / "s", tmp_path / "acknowledged"
    log.touch()
    ResultStore(folder).close()
    chance, connection, seen, reads, kills = random.Random(0), duckdb.connect(), 0, 0, 40
    with child("nursery", folder, log) as nursery:
        for kill in range(kills):
            say(nursery, 10_000 * kill)
            pid, before = int(hear(nursery)), log.stat().st_size
            while log.stat().st_size == before:
                time.sleep(0.0005)  # until the child is at work
            killer = threading.Timer(chance.uniform(0, 0.05), os.kill, (pid, signal.SIGKILL))
            killer.start()
            while killer.is_alive():
                acknowledged = log.read_text().split()
                keys = plain_keys(folder)
                assert len(set(keys)) == len(keys) >= seen
                assert set(acknowledged) <= set(keys)
                rows, distinct = connection.execute(
                    f"select count(*), count(distinct key) from read_parquet('{folder}/runs/*.parquet')"
                ).fetchall()[0]
                assert rows == distinct >= len(keys)
                seen, reads = rows, reads + 1
            killer.join()
            assert int(hear(nursery)) == -signal.SIGKILL
            keys = plain_keys(folder)
            assert set(log.read_text().split()) <= set(keys)
            assert len(set(keys)) == len(keys) >= seen
    assert reads >= kills / 2
    with ResultStore(folder) as store:
        assert store.notices == []
        assert sorted(r["key"] for r in store.rows()) == sorted(keys)
        assert len(parts(folder)) <= len(keys) / 25 + 2
        assert list((folder / ".tmp").iterdir()) == []


@pytest.mark.slow(10)
def test_launches_writing_the_same_rows_at_once_lose_and_double_none(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    ranges = [(0, 80), (20, 100), (40, 120), (0, 120)]
    with (
        child("write", folder, 0, *ranges[0]) as a,
        child("write", folder, 1, *ranges[1]) as b,
        child("write", folder, 2, *ranges[2]) as c,
        child("write", folder, 3, *ranges[3]) as d,
    ):
        writers = (a, b, c, d)
        assert [hear(w) for w in writers] == ["ready"] * 4
        for w in writers:
            say(w, "go")
        while any(w.poll() is None for w in writers):
            if (folder / "runs").is_dir() and parts(folder):
                keys = plain_keys(folder)
                assert len(set(keys)) == len(keys)
        written = [int(hear(w)) for w in writers]
        assert [w.returncode for w in writers] == [0] * 4
    assert sum(written) == 120
    assert sorted(plain_keys(folder)) == sorted(row(i)["key"] for i in range(120))
    with ResultStore(folder) as store:
        assert counts(store.rows()) == list(range(120))
    assert len(parts(folder)) <= 4


def test_rows_of_another_launch_are_reported_once(place: Place) -> None:
    where = place.location
    with ResultStore(where) as ours, ResultStore(where) as theirs, ResultStore(where, read_only=True) as reader:
        ours.append([row(0)])
        theirs.append([row(1), row(2)])
        assert counts(ours.append([row(2), row(3)])) == [3]
        theirs.append([row(4)])
        assert counts(ours.refresh()) == [1, 2, 4]
        assert ours.refresh() == []
        assert counts(theirs.rows()) == [0, 1, 2, 3, 4]
        assert theirs.refresh() == []
        assert counts(reader.refresh()) == [0, 1, 2, 3, 4]
        assert len(kept(place)) == 2
    with ResultStore(place.location) as store:
        assert store.refresh() == []


@pytest.mark.slow(1)
def test_a_claim_holds_until_it_is_released_or_its_process_dies(place: Place) -> None:
    where = place.location
    with ResultStore(where) as store, ResultStore(where) as sibling, child("claim", where) as other:
        say(other, "k1")
        assert hear(other) == "True"
        assert store.claim("k1") is False
        assert store.claim_all(["k1", "k2", "k3"]) == ["k2", "k3"]
        assert store.claim("k2") is True
        assert store.claim("k2") is True
        assert sibling.claim("k2") is False
        say(other, "k2")
        assert hear(other) == "False"
        store.append([row(1)])
        say(other, "k2")
        assert hear(other) == "False"
        store.release("k2")
        store.release("k2")
        say(other, "k2")
        assert hear(other) == "True"
        other.kill()
        assert other.wait() == -signal.SIGKILL
        assert store.claim("k1") is True
        store.close()
        assert sibling.claim("k1") is True


def test_damaged_and_foreign_files_are_set_aside_and_named(place: Place) -> None:
    where = place.location
    with ResultStore(where) as store:
        store.append([row(1)])
    ((whole, data),) = kept(place).items()
    flipped, foreign = bytearray(data), pa.BufferOutputStream()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(SCHEMA.names.index("reason"))
    flipped[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    pq.write_table(pa.table({"a": [1]}), foreign)
    place.put("set-aside/cut.parquet", b"an earlier one")
    bad = {
        "cut.parquet": data[: len(data) // 2],
        "empty.parquet": b"",
        "flipped.parquet": bytes(flipped),
        "foreign.parquet": foreign.getvalue().to_pybytes(),
        "garbage.parquet": b"PAR1 nonsense PAR1",
        "notes.txt": b"mine",
    }
    for name, content in bad.items():
        place.put(f"runs/{name}", content)
    with ResultStore(where, read_only=True) as reader:
        assert counts(reader.rows()) == counts(reader.rows()) == [1]
        assert len(reader.notices) == 6
        assert all(notice.startswith(f"left out {where}/runs/") for notice in reader.notices)
    assert kept(place) == {whole: data, **bad}
    with ResultStore(where) as store:
        assert counts(store.rows()) == [1]
        assert kept(place) == {whole: data}
        for name in bad:
            (notice,) = [n for n in store.notices if f"{where}/runs/{name}" in n]
            assert f"{where}/set-aside/{name}" in notice
            assert "\n" not in notice
        place.put("runs/late.parquet", b"")
        assert store.refresh() == []
        late = f"set aside {where}/runs/late.parquet: it is empty; it is now {where}/set-aside/late.parquet"
        assert store.notices[-1] == late
        place.put("runs/later.parquet", b"")
        assert counts(store.append([row(2)])) == [2]
        assert "later.parquet" in store.notices[-1]
    moved = {"cut.parquet.1" if name == "cut.parquet" else name: content for name, content in bad.items()}
    earlier, late_ones = {"cut.parquet": b"an earlier one"}, {"late.parquet": b"", "later.parquet": b""}
    assert kept(place, "set-aside") == {**moved, **earlier, **late_ones}
    assert len(plain_keys(where)) == 2


def test_a_folder_among_the_parts_is_set_aside_and_named(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1)])
    (whole,) = parts(tmp_path)
    (folder := tmp_path / "runs" / "folder").mkdir()
    with ResultStore(tmp_path, read_only=True) as reader:
        assert counts(reader.rows()) == [1]
        assert reader.notices == [f"left out {folder}: it is not a file"]
    assert folder.is_dir()
    with ResultStore(tmp_path) as store:
        assert store.damaged == 0, "it was set aside"
        assert counts(store.rows()) == [1]
        assert store.notices == [f"set aside {folder}: it is not a file; it is now {tmp_path / 'set-aside' / 'folder'}"]
    assert parts(tmp_path) == [whole]
    assert (tmp_path / "set-aside" / "folder").is_dir()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_folder_in_the_place_of_a_file_is_moved_aside_and_named(tmp_path: Path, dropped: bool) -> None:
    name = "checkpoints/k.pt" if dropped else "weights/k.safetensors"
    folder, aside = tmp_path / name, tmp_path / "set-aside" / Path(name).name
    (folder / "with").mkdir(parents=True)
    with ResultStore(tmp_path) as store:
        if dropped:
            store.drop_checkpoint("k")
        else:
            store.save_weights("k", b"w")
            assert store.load_weights("k") == b"w"
        assert store.notices == [f"set aside {folder}: it is a folder, where a file belongs; it is now {aside}"]
    assert (aside / "with").is_dir()


def test_parts_copied_in_from_another_store_are_merged_without_doubles(place: Place) -> None:
    here, there = place.below("a"), place.below("b")
    with ResultStore(here.location) as store:
        store.append([row(1), row(2)])
    with ResultStore(there.location) as store:
        store.append([row(2), row(3)])
    ((name, copied),) = kept(there).items()
    here.put(f"runs/z-{name}", copied)
    assert len(plain_keys(here.location)) == 4
    with ResultStore(here.location) as store:
        assert counts(store.rows()) == [1, 2, 3]
        assert "1 of its rows is in other files already" in store.notices[0]
        here.put("runs/z-twin.parquet", copied)
        assert store.refresh() == []
        assert "z-twin.parquet" not in kept(here)
    assert sorted(plain_keys(here.location)) == sorted(row(i)["key"] for i in (1, 2, 3))
    assert kept(here, "set-aside")[f"z-{name}"] == copied


def test_one_row_that_is_gone_is_told_as_one(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        (part,) = parts(tmp_path)
        part.unlink()
        assert store.refresh() == []
        assert store.notices == [f"{part} is gone with 1 row: the next launch trains it again if it needs it"]


def parquet(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


LATER = {1: {"schedule", "curve_error", "curve_summary", "parents"}, 2: {"curve_summary", "parents"}, 3: {"parents"}}


@pytest.mark.parametrize(("version", "later"), LATER.items())
def test_a_part_of_an_older_schema_is_read_and_extended(version: int, later: set[str], place: Place) -> None:
    errors = [] if version == 1 else [0.5, 0.25]
    with ResultStore(place.location) as store:
        store.append([row(1, curve_error=[0.5, 0.25]), row(2, curve_error=[0.5, 0.25])])
    ((part, data),) = kept(place).items()
    table = pq.read_table(pa.BufferReader(data)).select(SCHEMAS[version].names)
    assert set(SCHEMA.names) - set(table.column_names) == later
    place.put(f"runs/{part}", parquet(pa.table(table.columns, schema=SCHEMAS[version])))
    with ResultStore(place.location, read_only=True) as reader:
        assert reader.notices == []
        assert reader.rows() == [{**row(i), "curve_error": errors} for i in (1, 2)]
    with ResultStore(place.location) as store:
        assert counts(store.append([row(2), row(3, curve_error=[0.5, 0.25])])) == [3]
        assert store.table().schema.equals(SCHEMA)
    ((name, data),) = kept(place).items()
    assert name == part
    schema = pq.read_schema(pa.BufferReader(data))
    assert schema.equals(SCHEMA)
    assert schema.metadata == SCHEMA.metadata
    with ResultStore(place.location) as store:
        assert {r["data_count"]: (r["schedule"], r["curve_error"]) for r in store.rows()} == {
            1: ("constant", errors),
            2: ("constant", errors),
            3: ("constant", [0.5, 0.25]),
        }


def test_a_newer_schema_is_refused_and_nothing_is_touched(place: Place) -> None:
    with ResultStore(place.location) as store:
        store.append([row(1)])
    newer = parquet(pa.table({"key": ["k"]}).replace_schema_metadata({"orchestrator.schema": "5"}))
    place.put("runs/new.parquet", newer)
    place.put("runs/aaa.parquet", b"")
    before = place.everything()
    for read_only in (False, True):
        with pytest.raises(StoreError, match="schema 5, but this program knows only schema 4 and older: update") as caught:
            ResultStore(place.location, read_only=read_only)
        assert f"{place.location}/runs/new.parquet" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert place.everything() == before
    place.remove("runs/new.parquet")
    with ResultStore(place.location) as store:
        place.put("runs/new.parquet", newer)
        for _ in range(2):
            with pytest.raises(StoreError, match="schema 5"):
                store.append([row(2)])
        place.remove("runs/new.parquet")
        assert counts(store.append([row(2)])) == [2]


def test_opening_creates_no_rows_and_read_only_nothing_at_all(place: Place) -> None:
    deep = place.below("deep/s")
    with ResultStore(deep.location, read_only=True) as store:
        assert store.rows() == store.refresh() == []
        assert len(store) == 0
        with pytest.raises(StoreError, match="reading only"):
            store.append([row(1)])
        with pytest.raises(StoreError, match="reading only"):
            store.claim("k")
        with pytest.raises(StoreError, match="reading only"):
            store.save_weights("k", b"w")
    assert place.everything() == {}
    with ResultStore(deep.location) as store:
        assert kept(deep) == {}
    with pytest.raises(StoreError, match="closed"):
        store.append([row(1)])


def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "below"):
        for read_only in (False, True):
            with pytest.raises(StoreError, match=r"choose a(nother)? folder$") as caught:
                ResultStore(place, read_only=read_only)
            assert str(place) in str(caught.value)
            assert "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="must be a folder, s3://BUCKET/PATH or gs://BUCKET/PATH, not ftp://bucket/x"):
        ResultStore("ftp://bucket/x")
    if os.geteuid() != 0:  # permissions do not bind root
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        with pytest.raises(StoreError, match="Permission denied; choose a folder you can write to"):
            ResultStore(closed / "s")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_no_trace_and_the_append_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        content = [p.read_bytes() for p in parts(tmp_path)]
        with monkeypatch.context() as patch:
            patch.setattr(os if call == "fsync" else Path, call, full)
            for work in (lambda: store.append([row(2)]), lambda: store.save_checkpoint("k", b"x")):
                with pytest.raises(StoreError, match="No space left on device; free some space") as caught:
                    work()
                assert "\n" not in str(caught.value)
        assert [p.read_bytes() for p in parts(tmp_path)] == content
        assert list((tmp_path / ".tmp").iterdir()) == []
        assert row(2)["key"] not in store
        assert counts(store.append([row(2)])) == [2]
    assert len(plain_keys(tmp_path)) == 2


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "File too large; allow larger files (ulimit -f unlimited) and"),
        (errno.EMFILE, "Too many open files; allow more open files (ulimit -n) and"),
        (errno.ENFILE, "Too many open files in system; allow more open files (ulimit -n) and"),
    ],
)
def test_a_limit_of_the_system_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    def limited(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with ResultStore(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", limited)
            with pytest.raises(StoreError) as caught:
                store.append([row(1)])
        rest = "run the same command again; everything saved before is intact"
        assert str(caught.value) == f"cannot append results in {tmp_path}: {told} {rest}"
        assert counts(store.append([row(1)])) == [1]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mount.stderr.strip()}")
    try:
        with ResultStore(place) as store:
            store.append([row(1)])
            ballast = place / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            with pytest.raises(StoreError, match="No space left on device; free some space"):
                store.append([row(2)])
            assert len(plain_keys(place)) == 1
            assert list((place / ".tmp").iterdir()) == []
            ballast.unlink()
            assert counts(store.append([row(2)])) == [2]
            assert len(plain_keys(place)) == 2
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow(1)
def test_temporaries_of_dead_launches_are_swept_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        living = tmp_path / ".tmp" / f"a.parquet.00.{store.place.locks.token}"
        dead = tmp_path / ".tmp" / "b.parquet.00.0123456789ab"
        living.touch()
        dead.touch()
        with ResultStore(tmp_path), child("claim", tmp_path) as other:
            say(other, "k")
            assert hear(other) == "True"  # so it has opened the store, from another process
            assert living.exists()
            assert not dead.exists()
    with ResultStore(tmp_path):
        assert not living.exists()


def test_many_short_launches_leave_few_files(place: Place) -> None:
    launches = 10
    for launch in range(launches):
        with ResultStore(place.location) as store:
            store.append([row(3 * launch + i) for i in range(3)])
    assert len(kept(place)) == 1
    assert len(plain_keys(place.location)) == 3 * launches


def test_a_part_belongs_to_a_launch_until_it_closes(place: Place) -> None:
    where = place.location
    with ResultStore(where) as other, ResultStore(where) as later:
        with ResultStore(where) as first:
            first.append([row(1)])
            other.append([row(2)])
            assert len(kept(place)) == 2
        later.append([row(3)])
        other.append([row(4)])
        assert len(kept(place)) == 2
    assert len(plain_keys(where)) == 4


def test_parts_fill_and_bulk_rows_go_to_parts_of_their_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths() -> list[int]:
        return [pq.read_metadata(pa.BufferReader(data)).num_rows for data in kept(place).values()]

    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    monkeypatch.setattr(results_module, "ROWS_PER_BULK_PART", 40)
    with ResultStore(place.location) as store:
        for i in range(0, 25, 5):
            store.append([row(j) for j in range(i, i + 5)])
        assert lengths() == [10, 10, 5]
        store.append([row(i) for i in range(100)])
        assert sorted(lengths()) == [5, 10, 10, 35, 40]
        assert counts(store.rows()) == list(range(100))
    assert sorted(plain_keys(place.location)) == sorted(row(i)["key"] for i in range(100))


def test_a_bulk_append_cut_short_is_completed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    monkeypatch.setattr(results_module, "ROWS_PER_BULK_PART", 20)
    replace, calls = Path.replace, []

    def fails_once(path: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fails_once)
    with ResultStore(tmp_path) as store:
        with pytest.raises(StoreError):
            store.append([row(i) for i in range(50)])
        assert counts(store.append([row(i) for i in range(50)])) == list(range(20, 50))
        assert counts(store.refresh()) == list(range(20))
    assert len(set(plain_keys(tmp_path))) == len(plain_keys(tmp_path)) == 50


def test_a_row_is_on_disk_before_it_is_visible_and_its_name_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, replace, steps = os.fsync, Path.replace, []

    def log_sync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").resolve()
        steps.append(f"sync {place.name if place.is_dir() else 'file'}")
        fsync(descriptor)

    def log_replace(path: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(path, target)

    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        monkeypatch.setattr(os, "fsync", log_sync)
        monkeypatch.setattr(Path, "replace", log_replace)
        store.append([row(2)])
    assert steps == ["sync file", "rename", "sync runs"]


def test_a_store_that_is_removed_while_in_use_says_so(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "s") as store:
        store.append([row(1)])
        (tmp_path / "s").rename(tmp_path / "moved")
        with pytest.raises(StoreError, match="moved or removed while in use"):
            store.append([row(2)])
    assert len(plain_keys(tmp_path / "moved")) == 1


def test_pandas_reads_the_values(place: Place) -> None:
    with ResultStore(place.location) as store:
        store.append([row(i) for i in (1, 2, 3)])
    frame = pd.read_parquet(f"{place.location}/runs").sort_values("data_count")
    assert list(frame.columns) == SCHEMA.names
    assert list(frame["accuracy"]) == [0.125, 0.25, 0.375]
    assert [list(c) for c in frame["curve_step"]] == [[0, 1], [0, 2], [0, 3]]
    assert frame["finished_at"].iloc[0] == pd.Timestamp(FINISHED_AT)


def test_duckdb_reads_the_same_values(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(i) for i in (1, 2, 3)])
    query = f"select sum(steps), max(curve_step[2]), min(options->>'sigma') from read_parquet('{tmp_path}/runs/*.parquet')"
    assert duckdb.connect().execute(query).fetchall() == [(306, 3, "0.5")]


def test_settings_of_a_task_are_columns_for_pandas_and_duckdb(tmp_path: Path) -> None:
    def of(task: str, count: int, **options: Any) -> Row:
        spec = RunSpec(task=task, dataset="grid", N=16, data_count=count, seed=3, options=tuple(options.items()))
        return make_row(spec, task_version="1", fixed_count=0, status="passed", reason="target")

    with ResultStore(tmp_path) as store:
        store.append([of("a:B", 1, sigma=2.0, kind="wide"), of("a:B", 2, sigma=0.5, kind="narrow"), of("a:B", 3, kind="new")])
        store.append([of("c:D", 4, shape="round")])
        bumps = store.frame("a:B")
        assert store.frame("no:Task").empty
    assert bumps.query("sigma > 1 and kind == 'wide'")["data_count"].tolist() == [1]
    assert duckdb.sql("select data_count, kind from bumps where sigma < 1").fetchall() == [(2, "narrow")]
    assert {"options", "shape"}.isdisjoint(bumps.columns)
    assert bumps["sigma"].isna().tolist() == [False, False, True]


def test_a_setting_with_the_name_of_a_column_is_no_setting_less(tmp_path: Path) -> None:
    spec = RunSpec(task="a:B", dataset="grid", N=16, data_count=1, seed=3, options=(("error", 0.1), ("kind", "wide")))
    with ResultStore(tmp_path) as store:
        store.append([make_row(spec, task_version="1", fixed_count=0, status="passed", reason="target")])
        [found] = store.frame("a:B").to_dict("records")
    assert (found["error"], found["option_error"], found["kind"]) == (None, 0.1, "wide")
    spec = dataclasses.replace(spec, data_count=2, options=(("error", 0.1), ("option_error", 0.2)))
    with ResultStore(tmp_path) as store:
        store.append([make_row(spec, task_version="1", fixed_count=0, status="passed", reason="target")])
        found = store.frame("a:B", {"data_count": [2]}).to_dict("records")[0]
    assert (found["error"], found["option_error"], found["option_option_error"]) == (None, 0.2, 0.1)


def test_one_run_is_not_told_as_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ResultStore(tmp_path / "store") as store:
        store.append([row(1)])
    file, board = tmp_path / "runs.csv", tmp_path / "board"
    assert run(export.app, ["--store", str(tmp_path / "store"), "--csv", str(file), "--tensorboard", str(board)]) == 0
    of_file, of_board = capsys.readouterr().out.splitlines()
    assert of_file == f"wrote 1 run to {file}"
    assert of_board.startswith(f"wrote 1 run to {board}; ")


def test_weights_and_checkpoints_are_kept_per_run(place: Place) -> None:
    with ResultStore(place.location) as store:
        assert store.load_checkpoint("k") is None
        store.save_checkpoint("k", b"one")
        store.save_checkpoint("k", b"two")
        assert store.load_checkpoint("k") == b"two"
        assert store.with_checkpoints() == {"k"}
        store.drop_checkpoint("k")
        store.drop_checkpoint("k")
        assert store.load_checkpoint("k") is None
        assert store.save_weights("k", b"w") == store.weights_path("k") == store.path / "weights" / "k.safetensors"
        assert store.weights_path("k").read_bytes() == store.load_weights("k") == b"w"
        assert store.with_weights() == {"k"}
        with pytest.raises(FileNotFoundError):
            store.load_weights("none")
        assert list((store.path / ".tmp").iterdir()) == []
        assert kept(place, "checkpoints") == {}
        assert kept(place, "weights") == {"k.safetensors": b"w"}
        place.put("checkpoints/k.pt~", b"a backup of an editor")
        place.put("weights/other.safetensors~", b"another one")
        assert store.with_checkpoints() == set()
        assert store.with_weights() == {"k"}


def test_a_checkpoint_of_another_launch_is_removed_as_well(place: Place) -> None:
    with ResultStore(place.location) as ours, ResultStore(place.location) as theirs:
        assert ours.load_checkpoint("k") is None
        theirs.save_checkpoint("k", b"theirs")
        assert ours.load_checkpoint("k") == b"theirs"
        ours.drop_checkpoint("k")
    assert kept(place, "checkpoints") == {}


def test_pack_sizes_are_kept(place: Place) -> None:
    with ResultStore(place.location) as store:
        assert store.load_pack_sizes() == {}
        store.save_pack_sizes({"shape": 4})
        store.save_pack_sizes({"shape": 8, "other": 1})
    with ResultStore(place.location, read_only=True) as store:
        assert store.load_pack_sizes() == {"shape": 8, "other": 1}


def test_pack_sizes_of_a_file_that_is_far_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultStore(tmp_path) as store:
        store.save_pack_sizes({"shape": 4})
        assert store.load_pack_sizes() == {"shape": 4}
        monkeypatch.setattr(artifacts_module, "MOST_PACK_SIZES", 8)
        assert store.load_pack_sizes() == {}


def fill(location: str | Path, rows: range) -> None:
    """Append these rows, five at a time."""
    with ResultStore(location) as store:
        for start in rows[::5]:
            store.append([row(i) for i in range(start, start + 5)])


def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the parts that are read from now on."""
    load, names = reader_module.load, []

    def noted(path: Path, *rest: Any) -> tuple[pa.Table, tuple[int, int, int]]:
        names.append(path.name)
        return load(path, *rest)

    monkeypatch.setattr(reader_module, "load", noted)
    return names


@pytest.mark.usefixtures("small_parts")
def test_of_a_large_store_only_the_parts_with_the_wanted_rows_are_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place.location, range(45))
    read = loads(monkeypatch)
    names = list(kept(place))
    with ResultStore(place.location) as store:
        assert (store.path / ".index").is_file()
        assert read == names[4:]  # the part that is not full
        assert len(store) == 45
        read.clear()
        where = {"data_count": {13, 14, 32, 41, 99}, "dataset": ["grid", "bumps"]}
        assert store.count(where) == 4
        assert store.count({"family": []}) == 0
        assert read == [], "to count them takes none"
        assert store.rows(where=where) == [row(i) for i in (13, 14, 32, 41)]
        assert read == [names[1], names[3]]
        assert store.rows(["steps"], {"data_count": [14]}) == [{"steps": 114}]
        assert store.rows(where={"family": []}) == store.rows(where={"data_count": [13], "dataset": ["bumps"]}) == []
        assert counts(store.rows(where={"family": [row(0)["family"]]})) == counts(store.rows()) == list(range(45))


@pytest.mark.usefixtures("small_parts")
def test_keys_in_the_index_are_known(place: Place) -> None:
    fill(place.location, range(45))
    with ResultStore(place.location) as store:
        assert row(3)["key"] in store
        assert row(44)["key"] in store
        assert row(45)["key"] not in store
        assert "k" not in store
        assert row(3)["key"][:-1] not in store, "it begins as one that is known, and is too short"
        assert counts(store.append([row(3), row(44), row(45)])) == [45]
        assert counts(store.append([row(i) for i in range(40, 70)])) == list(range(46, 70))
        assert counts(store.append([row(i) for i in range(70)])) == []
    assert sorted(plain_keys(place.location)) == sorted(row(i)["key"] for i in range(70))
    with ResultStore(place.location, read_only=True) as store:
        assert counts(store.rows()) == list(range(70))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("change", ["cut", "flip", "remove", "other columns"])
def test_an_index_that_is_damaged_or_missing_is_made_anew(place: Place, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    fill(place.location, range(45))
    with ResultStore(place.location, read_only=True) as store:
        index = store.path / ".index"
    data = index.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 3] ^= 1
    if change == "remove":
        index.unlink()
    elif change == "other columns":
        fewer = pq.read_table(pa.BufferReader(data[8:])).drop_columns("holdout")
        body = parquet_bytes(fewer)
        index.write_bytes(b"%08x" % zlib.crc32(body) + body)
    else:
        index.write_bytes(data[:-9] if change == "cut" else bytes(flipped))
    read = loads(monkeypatch)
    with ResultStore(place.location) as store:
        assert len(read) == 5
        assert counts(store.rows()) == list(range(45))
        assert store.refresh() == []
    assert index.read_bytes() == data


@pytest.mark.usefixtures("small_parts")
def test_rows_are_stored_and_read_though_no_index_can_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Folder.replacing

    def full(self: Folder, name: str, data: bytes) -> Any:
        if name == ".index":
            raise OSError(errno.ENOSPC, "No space left on device", name)
        return write(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "replacing", full)
        with ResultStore(place.location) as store:
            for start in range(0, 30, 10):
                assert counts(store.append([row(i) for i in range(start, start + 10)])) == list(range(start, start + 10))
            assert store.refresh() == []
        with ResultStore(place.location) as store:
            assert counts(store.rows()) == list(range(30))
            assert not (store.path / ".index").exists()
            assert store.notices == []
    with ResultStore(place.location) as store:
        assert (store.path / ".index").is_file()


@pytest.mark.usefixtures("small_parts")
def test_an_indexed_part_that_is_removed_while_the_store_is_open_takes_its_rows_with_it(place: Place) -> None:
    fill(place.location, range(45))
    with ResultStore(place.location) as store:
        gone = f"runs/{list(kept(place))[1]}"
        place.remove(gone)
        assert store.refresh() == []
        (notice,) = store.notices
        assert notice == f"{place.location}/{gone} is gone with 10 rows: the next launch trains those that it needs again"
        assert len(store) == 35
        assert row(12)["key"] not in store
        assert counts(store.rows(where={"data_count": range(8, 23)})) == [8, 9, 20, 21, 22]
        assert counts(store.append([row(i) for i in range(8, 23)])) == list(range(10, 20))
    with ResultStore(place.location) as store:
        assert counts(store.rows()) == list(range(45))
        assert store.notices == []


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("read_only", [False, True])
def test_damage_to_an_indexed_part_is_found_when_its_rows_are_read(tmp_path: Path, read_only: bool) -> None:
    fill(tmp_path, range(45))
    bad = parts(tmp_path)[1]
    before, data = bad.stat(), bytearray(bad.read_bytes())
    column = pq.read_metadata(bad).row_group(0).column(SCHEMA.names.index("reason"))
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    bad.write_bytes(data)
    os.utime(bad, ns=(before.st_atime_ns, before.st_mtime_ns))
    with ResultStore(tmp_path, read_only=read_only) as store:
        assert store.notices == []
        assert counts(store.rows(where={"data_count": [9, 20]})) == [9, 20]
        assert counts(store.rows(where={"data_count": [9, 10, 20]})) == [9, 20]
        (notice,) = store.notices
        assert f"{bad}: it is damaged" in notice
        assert len(store) == 35
        assert counts(store.rows()) == [*range(10), *range(20, 45)]
    assert bad.exists() == read_only


@pytest.mark.slow(1)
@pytest.mark.usefixtures("small_parts")
def test_rows_of_another_launch_are_reported_once_beside_an_index(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as ours, ResultStore(tmp_path) as theirs:
        for start in range(0, 120, 10):
            ours.append([row(i) for i in range(start, start + 10, 2)])
            theirs.append([row(i) for i in range(start + 1, start + 10, 2)])
        assert counts(ours.refresh()) == list(range(1, 120, 2))
        assert counts(theirs.refresh()) == list(range(0, 120, 2))
        assert ours.refresh() == theirs.refresh() == []
        assert len(ours) == len(theirs) == len(set(plain_keys(tmp_path))) == 120
        assert counts(theirs.rows(where={"data_count": range(50, 60)})) == list(range(50, 60))
    assert len(parts(tmp_path)) <= 14


def test_a_key_is_a_run_key(place: Place) -> None:
    with ResultStore(place.location) as store, pytest.raises(ValueError, match="column key must be a run key, 24 letters long"):
        store.append([{**row(1), "key": "k"}])


def test_the_longest_open_part_comes_first() -> None:
    register = Register(1 << 30)
    for name, rows in (("a", 2), ("b", 3), ("c", 1)):
        register.put(name, (0, 100, 0), encode([row(n) for n in range(rows)]))
    assert register.open_parts() == ["b", "a", "c"]


def test_a_key_that_begins_as_one_in_the_index_is_not_known() -> None:
    key = row(1)["key"]
    near = key[:-1] + ("0" if key[-1] != "0" else "1")
    index = Index.of(Index().extended({"a.parquet": ((1, 2, 3), encode([row(1)]).select(INDEXED))}))
    assert index.holds([key, near]) == {key}


def test_what_another_launch_settled_and_extended_while_this_one_waited_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appending, waits = StoreLocks.appending, [True]
    with ResultStore(tmp_path) as store, ResultStore(tmp_path) as other:
        store.append([row(1)])
        (part,) = (tmp_path / "runs").iterdir()
        part.with_name(part.name.replace("runs-", "runs-0")).write_bytes(parquet_bytes(encode([row(1), row(3)])))

        @contextlib.contextmanager
        def late(locks: StoreLocks) -> Iterator[None]:
            if waits:
                waits.clear()
                other.append([row(4)])
            with appending(locks):
                yield

        monkeypatch.setattr(StoreLocks, "appending", late)
        store.refresh()
        assert sorted(found["data_count"] for found in store.rows()) == [1, 3, 4]
    assert len(plain_keys(tmp_path)) == 3
