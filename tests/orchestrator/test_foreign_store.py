"""A store that comes from elsewhere: what no run can have written is named and set aside, and costs nothing else."""

from __future__ import annotations

import dataclasses
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spoil import bomb, change, first, no_text, replaced
from store_child import row

import orchestrator.store.register as register_module
from orchestrator.store import SCHEMA, MeasureTable, ResultStore, StoreError
from orchestrator.store import contents as contents_module
from orchestrator.store import parts as parts_module
from orchestrator.store import rows as rows_module
from orchestrator.store.measures import encode
from trainables.spec import RunSpec

NESTED = '{"x":' * 100_000 + "1" + "}" * 100_000
EMPTY = '{"x": [' + "{}, " * (1 << 18) + "{}]}"
NO_TIME = pa.array([2**62] * 2, pa.int64()).cast(pa.timestamp("us", "UTC"))
FAULTS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "options that are no JSON": first("options", "{'sigma': 1}"),
    "options that are a list": first("options", "[1]"),
    "options that end before their text": first("options", "{} {}"),
    "measures that are no JSON": first("measures", '{"volume": '),
    "measures of 100,000 levels": first("measures", NESTED),
    "measures of 33 levels": first("measures", '{"x":' + "[" * 32 + "]" * 32 + "}"),
    "measures of 4 MiB": first("measures", '{"x": [' + "0," * (2 << 20) + "0]}"),
    "measures with many objects": first("measures", EMPTY),
    "measures with many lists": first("measures", EMPTY.replace("{}", "[]")),
    "measures with many texts": first("measures", EMPTY.replace("{}", '""')),
    "measures with NaN": first("measures", '{"x": NaN}'),
    "measures with a number of 10,000 digits": first("measures", '{"x": ' + "9" * 10_000 + "}"),
    "a host that is no UTF-8": lambda table: replaced(table, "host", no_text(2)),
    "options that are no UTF-8": lambda table: replaced(table, "options", no_text(2)),
    "a time that no calendar has": lambda table: replaced(table, "finished_at", NO_TIME),
    "NaN seconds": first("seconds", float("nan")),
    "endless seconds": first("seconds", float("inf")),
    "negative seconds": first("seconds", -1.0),
    "an unknown status": first("status", "done"),
    "N = -3": first("N", -3),
    "a negative count": first("data_count", -1),
    "a negative fixed count": first("fixed_count", -1),
    "negative steps": first("steps", -1),
    "a passage before the first step": first("passage_step", -1),
    "a width beyond all networks": first("width", 2**31 - 1),
    "a pack of none": first("pack_size", 0),
    "a short key": first("key", "k"),
    "a key of other letters": first("key", "é" * 12),
    "a key that is a path": first("key", "../../../../etc/passwd00"),
    "a key that moves the cursor": first("key", "\x1b[2J" + "k" * 20),
    "a family of 11,000 letters": first("family", "x" * 11_000),
    **{
        f"{name} of 1,001 letters": first(name, "x" * 1001)
        for name in ("task", "task_version", "dataset", "decoder", "holdout")
    },
    "a curve that is too short": first("curve_loss", [1.0]),
    "a curve that is not there": first("curve_accuracy", []),
    "a curve of errors that is too long": first("curve_error", [1.0] * 3),
    "a summary that is no object": first("curve_summary", "[1.0, 0.5]"),
    "a summary without lists": first("curve_summary", '{"gap": 0.5}'),
    "a summary that is too long": first("curve_summary", '{"gap": [1.0, 0.5, 0.5, 0.5]}'),
    "a summary of words": first("curve_summary", '{"gap": ["a", "b"]}'),
    "parents that are no object": first("parents", '["tokenizer"]'),
    "a parent that is no key": first("parents", '{"tokenizer": "../../../../etc/passwd00"}'),
    "a hole in a curve": first("curve_loss", [1.0, None]),
    "a step before the first": first("curve_step", [-20, 20]),
}


def store_of_two(folder: Path) -> tuple[Path, Path]:
    """A store of two parts with two rows each; the parts."""
    for name, rows in (("a", (1, 2)), ("b", (3, 4))):
        with ResultStore(folder / name) as store:
            store.append([row(i) for i in rows])
    (moved,) = (folder / "b" / "runs").iterdir()
    (kept,) = (folder / "a" / "runs").iterdir()
    return kept, moved.rename(kept.with_name("x.parquet"))


def counts(store: ResultStore) -> list[int]:
    return sorted(r["data_count"] for r in store.rows())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_part_with_values_that_no_run_has_is_set_aside(tmp_path: Path, fault: str) -> None:
    _, bad = store_of_two(tmp_path)
    change(bad, FAULTS[fault])
    assert pq.read_schema(bad).equals(SCHEMA)
    place, data = tmp_path / "a", bad.read_bytes()
    with ResultStore(place, read_only=True) as reader:
        assert counts(reader) == [1, 2]
        (notice,) = reader.notices
        assert notice.startswith(f"left out {bad}: ")
    assert bad.read_bytes() == data
    with ResultStore(place) as store:
        (notice,) = store.notices
        assert notice.startswith(f"set aside {bad}: ")
        assert "\n" not in notice
        assert counts(store) == [1, 2]
        store.append([row(3)])
    assert (place / "set-aside" / bad.name).read_bytes() == data
    with ResultStore(place) as store:
        assert store.notices == []
        assert counts(store) == [1, 2, 3]


def limited(code: str, *words: object, spare: int) -> str:
    """What Python code prints that may take so many bytes of memory more than it has after its imports."""
    limit = "\nimport resource\npages = int(open('/proc/self/statm').read().split()[0])\n"
    limit += f"resource.setrlimit(resource.RLIMIT_AS, (pages * {resource.getpagesize()} + {spare},) * 2)\n"
    head, body = code.split("---")
    command = [sys.executable, "-c", head + limit + body, *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow(4)
@pytest.mark.parametrize("shape", ["a text for a thousand rows", "a list without end", "rows without end", "a large file"])
def test_a_part_that_would_fill_the_memory_is_not_unpacked(tmp_path: Path, shape: str) -> None:
    _, bad = store_of_two(tmp_path)
    if shape == "a text for a thousand rows":
        bomb(bad)
    elif shape == "a list without end":
        change(bad, lambda table: replaced(table, "curve_loss", [np.zeros(68 << 20, np.float32), []]))
    elif shape == "rows without end":
        change(bad, lambda table: table.take(pa.array(np.zeros(1_800_000, np.int64))))
    else:
        with bad.open("r+b") as file:
            file.truncate(1 << 30)
    assert bad.stat().st_size <= 1 << 20 or shape == "a large file"
    code = """
import sys
from orchestrator.store import ResultStore
with ResultStore(sys.argv[2]) as store: store.rows()
---
with ResultStore(sys.argv[1], read_only=True) as store:
    print(len(store.rows()), *store.notices, sep="\\n")
"""
    whole = tmp_path / "b"
    number, notice, *_ = limited(code, tmp_path / "a", whole, spare=300 << 20).splitlines()
    assert number == "2"
    assert notice.startswith(f"left out {bad}: it ")
    assert "MiB" in notice


def test_json_that_would_fill_the_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(texts: object) -> bool:
        raise AssertionError("it was read")

    monkeypatch.setattr(contents_module, "_are_objects", unread)
    one = rows_module.encode([row(1)])
    for name in ("options", "measures", "curve_summary", "parents"):
        for text in ("x" * (65 << 20), EMPTY):
            column = replaced(one, name, [text]).select([name])
            assert contents_module.fault(column) == f"column {name} has JSON that is too large"


@pytest.mark.slow(2)
def test_rows_that_are_as_large_as_those_of_long_runs_may_be_are_read_again(tmp_path: Path) -> None:
    """A program of 20,000 files, 10,000 measures, and 20 curves of 60,000 looks."""
    files = json.dumps({f"{'folder/' * 8}{i:06d}.py": "0" * 64 for i in range(20_000)})
    spec = dataclasses.replace(RunSpec.from_dict(row(0)), options=(("files", files),))
    measures = {f"{'measure_' * 12}{i:04d}": i / 7 for i in range(10_000)}
    curve = [i / 7 for i in range(60_000)]
    curves: dict[str, Any] = dict.fromkeys(("curve_loss", "curve_accuracy"), curve)
    curves |= {"curve_step": range(60_000), "curve_summary": {f"curve_{i}": curve for i in range(20)}}
    ended: dict[str, Any] = {"task_version": "1", "fixed_count": 0, "status": "passed", "reason": "target"}
    with ResultStore(tmp_path) as store:
        written = store.append([row(1, measures=measures), row(2, **curves), rows_module.make_row(spec, **ended)])
    with ResultStore(tmp_path) as store:
        assert store.rows() == written
        assert store.notices == []


def test_what_this_program_would_set_aside_it_does_not_write(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [{"steps": -1}, {"seconds": float("nan")}, {"curve_loss": [1.0]}, {"pack_size": 0}]
    with ResultStore(tmp_path) as store:
        for values in bad:
            with pytest.raises(ValueError, match=r"^columns? "):
                store.append([row(1), row(2, **values)])
        assert store.rows() == []


def test_rows_that_hold_much_are_written_in_parts_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MOST_BYTES", 4_000_000)
    with ResultStore(tmp_path) as store:
        store.append([row(i, error="x" * 10_000) for i in range(700)])
    assert len(list((tmp_path / "runs").iterdir())) > 2
    with ResultStore(tmp_path) as store:
        assert store.notices == []
        assert counts(store) == list(range(700))


def test_rows_of_which_each_holds_much_are_written_in_a_part_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MOST_BYTES", 4_000_000)
    with ResultStore(tmp_path) as store:
        store.append([row(i, error="x" * 2_500_000) for i in (1, 2)])
    with ResultStore(tmp_path) as store:
        assert store.notices == []
        assert counts(store) == [1, 2]


def test_rows_that_hold_much_are_read_again_beside_many_that_hold_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "MOST_BYTES", 4_000_000)
    with ResultStore(tmp_path) as store:
        assert len(store.append([row(i, error="x" * 100_000 if 20 <= i < 65 else None) for i in range(1500)])) == 1500
    with ResultStore(tmp_path) as store:
        assert store.notices == []
        assert counts(store) == list(range(1500))


def test_a_part_with_a_long_name_is_mended_and_named(tmp_path: Path) -> None:
    kept, moved = store_of_two(tmp_path)
    with ResultStore(tmp_path / "b") as store:
        store.append([row(2), row(3)])
    next((tmp_path / "b" / "runs").iterdir()).rename(kept.with_name("é" * 120 + ".parquet"))
    moved.unlink()
    with ResultStore(tmp_path / "a") as store:
        (notice,) = store.notices
        assert "é.parquet: 1 of its rows is in other files already" in notice
        assert counts(store) == [1, 2, 3]
    assert sum(pq.read_table(part).num_rows for part in kept.parent.iterdir()) == 3


@pytest.mark.parametrize("name", ["é\udcff.parquet", "two\nlines.parquet", "\x1b[2J.parquet"])
def test_a_name_that_no_terminal_takes_is_told_in_one_line_of_plain_text(tmp_path: Path, name: str) -> None:
    kept, bad = store_of_two(tmp_path)
    bad.write_bytes(b"mine")
    bad.rename(kept.with_name(name))
    with ResultStore(tmp_path / "a") as store:
        (notice,) = store.notices
        assert notice.isprintable()
        assert repr(name)[1:-1] in notice
        assert counts(store) == [1, 2]
    assert (tmp_path / "a" / "set-aside" / name).read_bytes() == b"mine"


def test_options_that_no_terminal_takes_are_told_in_one_line_of_plain_text(tmp_path: Path) -> None:
    _, bad = store_of_two(tmp_path)
    change(bad, first("options", '{"\\ud800\\u001b[2J": 1e999}'))
    with ResultStore(tmp_path / "a", read_only=True) as store:
        assert counts(store) == [1, 2, 4]
        (notice,) = store.notices
        assert notice.isprintable()
        assert r"the option \ud800\x1b[2J must be a word" in notice


def test_a_link_to_itself_is_a_broken_link(tmp_path: Path) -> None:
    _, bad = store_of_two(tmp_path)
    bad.unlink()
    bad.symlink_to(bad.name)
    with ResultStore(tmp_path / "a") as store:
        (notice,) = store.notices
        assert "it is a broken link" in notice
        assert counts(store) == [1, 2]
    assert (tmp_path / "a" / "set-aside" / bad.name).is_symlink()


@pytest.mark.parametrize("name", [".tmp", "runs", "measures", "set-aside"])
def test_nothing_is_changed_in_what_a_link_in_a_store_leads_to(tmp_path: Path, name: str) -> None:
    with ResultStore(tmp_path / "store") as store:
        store.append([row(0)])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in ("thesis.docx", "sales.parquet"):
        (elsewhere / file).write_text("mine")
    (elsewhere / "photos").mkdir()
    if (linked := tmp_path / "store" / name).is_dir():
        linked.rename(tmp_path / "kept")
    linked.symlink_to(elsewhere)
    told = f"store/{name} is a link: files in it may be moved or removed.*: put what it leads to in its place; or move the"
    with pytest.raises(StoreError, match=told):
        ResultStore(tmp_path / "store")
    with ResultStore(tmp_path / "store", read_only=True) as store:
        assert len(store) == (name != "runs")
    table = MeasureTable(tmp_path / "store")
    if name == "measures":
        with pytest.raises(StoreError, match=told):
            table.known()
    with pytest.raises(StoreError, match=told):
        table.save("k" * 24, "kernel", 1, encode("k" * 24, "kernel", 1, [], 1.0))
    assert sorted(file.name for file in elsewhere.iterdir()) == ["photos", "sales.parquet", "thesis.docx"]


def test_words_that_fill_the_index_do_not_end_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 2)
    monkeypatch.setattr(register_module, "ROWS_BEYOND_INDEX", 2)
    _, bad = store_of_two(tmp_path)
    (tmp_path / "a" / ".index").unlink()
    change(bad, lambda table: replaced(table, "decoder", ["x" * 100_000] * 2))
    with ResultStore(tmp_path / "a") as store:
        (notice,) = store.notices
        assert "column decoder has words of more than 1000 bytes" in notice
        assert counts(store) == [1, 2]
        store.append([row(3), row(4)])
    with ResultStore(tmp_path / "a") as store:
        assert counts(store) == [1, 2, 3, 4]
        assert store.notices == []
