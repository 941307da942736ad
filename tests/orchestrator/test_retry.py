"""Runs that failed for a cause outside the task are tried again if the command says so, and only then."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from places import Place, plain_keys
from store_child import row

import orchestrator.store.reader as reader_module
import orchestrator.store.register as register_module
import orchestrator.store.turns as turns_module
from orchestrator.store import ResultStore, StoreError
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.rows import SCHEMA, encode
from tests.conftest import Command, read_rows

LATE = datetime(2031, 1, 1, tzinfo=UTC)
PROGRAM = """
import pathlib, sys
text = pathlib.Path("needed.txt").read_text()
print(min(1.0, int(sys.argv[1]) / int(text)))
"""


def failed(error: str) -> dict[str, Any]:
    return {"status": "failed", "reason": "exception", "error": error, "accuracy": None}


def test_a_failed_row_makes_way_for_whatever_comes_of_another_try(place: Place) -> None:
    with ResultStore(place.location) as store:
        store.append([row(1, **failed("a")), row(2), row(3, **failed("b")), row(4, **failed("c"))])
    keys = {count: row(count)["key"] for count in (1, 2, 3, 4)}
    with ResultStore(place.location) as store:
        assert store.retry_failed() == 3
        assert [found["data_count"] for found in store.rows()] == [2]
        assert store.find({"data_count": [1]}) == []
        assert store.known(list(keys.values())) == {keys[2]}
        assert keys[1] not in store
        assert sorted(plain_keys(place.location)) == sorted(keys.values()), "each stays until there is another"
        assert len(store.append([row(1, **failed("again")), row(2, **failed("no")), row(3, status="missed")])) == 2
        assert store.append([row(1, **failed("once more"))]) == [], "it was tried, and failed"
        assert store.known(list(keys.values())) == {keys[1], keys[2], keys[3]}
        assert {found["data_count"]: found["error"] for found in store.rows()} == {1: "again", 2: None, 3: None}
        assert store.notices == []
    with ResultStore(place.location) as store:
        assert {found["data_count"]: (found["status"], found["error"]) for found in store.rows()} == {
            1: ("failed", "again"), 2: ("passed", None), 3: ("missed", None), 4: ("failed", "c"),
        }  # fmt: skip
    assert sorted(plain_keys(place.location)) == sorted(keys.values())


def test_launches_at_work_learn_what_has_come_of_another_try(place: Place) -> None:
    with ResultStore(place.location) as store:
        store.append([row(1, **failed("a")), row(2, **failed("b")), row(3)])
    with ResultStore(place.location) as retrying, ResultStore(place.location) as usual, ResultStore(place.location) as other:
        assert retrying.retry_failed() == other.retry_failed() == 2
        assert len(other.append([row(1)])) == 1
        for store in (retrying, usual):
            assert [(found["data_count"], found["status"]) for found in store.refresh()] == [(1, "passed")]
            assert row(1)["key"] in store
            assert store.refresh() == []
        assert row(2)["key"] not in retrying
        assert len(other.append([row(2, **failed("c"))])) == 1
        assert len(retrying.append([row(2, status="missed")])) == 1, "its own try counts, too"
        assert [found["status"] for found in usual.refresh()] == ["missed"]
    assert sorted(plain_keys(place.location)) == sorted(row(count)["key"] for count in (1, 2, 3))


@pytest.mark.bucket
@pytest.mark.parametrize("comes", ["failed", "passed"])
def test_in_a_bucket_the_row_of_another_machine_makes_way(uri: str, on: Callable[[str], None], comes: str) -> None:
    on("a")
    with ResultStore(uri) as store:
        store.append([row(1, **failed("old")), row(2)])
    on("b")
    with ResultStore(uri) as store:
        store.retry_failed()
        assert len(store.append([row(1, finished_at=LATE, **(failed("new") if comes == "failed" else {}))])) == 1
    for machine in ("c", "a", "b"):
        on(machine)
        with ResultStore(uri) as store:
            told = {found["data_count"]: (found["status"], found["error"]) for found in store.rows()}
            assert told == {1: ("failed", "new") if comes == "failed" else ("passed", None), 2: ("passed", None)}
            assert len(store) == 2


@pytest.mark.bucket
def test_a_part_that_grew_full_when_a_row_made_way_gets_no_more(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket a part gets longer, also if it has fewer rows."""
    with ResultStore(uri) as store:
        monkeypatch.setattr(store._register, "_bytes_per_part", 20_000)
        store.append([row(1, **failed("old")), row(2)])
        on("b")
        with ResultStore(uri) as other:
            assert len(other.append([row(1)])) == 1
        on("a")
        assert [found["data_count"] for found in store.refresh()] == [1]
        assert [part.full for part in store._register.parts.values() if part.stamp[1] > 20_000] == [True]
        assert len(store.append([row(3)])) == 1
        assert len(store.append([row(4)])) == 1
    assert sorted(plain_keys(uri)) == sorted(row(count)["key"] for count in (1, 2, 3, 4))


@pytest.mark.parametrize("rows", [9, 10])
def test_a_launch_at_work_hears_of_a_row_that_made_way_in_a_full_part(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    with ResultStore(tmp_path) as store:
        store.append([row(count, **(failed("a") if count == 7 else {})) for count in range(rows)])
    with ResultStore(tmp_path) as usual, ResultStore(tmp_path) as retrying:
        retrying.retry_failed()
        assert len(retrying.append([row(7)])) == 1
        assert [(found["data_count"], found["status"]) for found in usual.refresh()] == [(7, "passed")]
        for count in (50, 51):
            retrying.append([row(count)])
            assert [found["data_count"] for found in usual.refresh()] == [count]
        assert len(usual.rows()) == rows + 2
        assert usual.notices == retrying.notices == []
    assert len(plain_keys(tmp_path)) == rows + 2


def put_part(store: Path, name: str, *rows: dict[str, Any]) -> None:
    """Write a part, as another launch does: in one rename."""
    (store / "written").write_bytes(parquet_bytes(encode(list(rows))))
    (store / "written").replace(store / "runs" / name)


def test_a_copy_of_a_failed_row_is_told_as_a_copy(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a"))])
    (part,) = (tmp_path / "runs").iterdir()
    (part.with_name("zz.parquet")).write_bytes(part.read_bytes())
    with ResultStore(tmp_path) as store:
        (notice,) = store.notices
    assert "1 of its rows is in other files already" in notice


def test_what_another_launch_has_ended_is_found_before_it_is_news(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a"))])
    with ResultStore(tmp_path) as usual, ResultStore(tmp_path) as other:
        assert usual.retry_failed() == other.retry_failed() == 1
        other.append([row(1)])
        assert [found["status"] for found in usual.find({"data_count": [1]})] == ["passed"]


def test_a_reader_hears_of_a_full_part_that_was_rid_of_a_row_after_its_better_one_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 3)
    with ResultStore(tmp_path) as store:
        store.append([row(9)])
    put_part(tmp_path, "b.parquet", row(1, **failed("a")), row(2), row(3))
    with ResultStore(tmp_path, read_only=True) as reading:
        put_part(tmp_path, "a.parquet", row(1))
        assert [found["data_count"] for found in reading.refresh()] == [1]
        put_part(tmp_path, "b.parquet", row(2), row(3), row(4))
        assert [found["data_count"] for found in reading.refresh()] == [4]
        assert len(reading.rows()) == 5


@pytest.mark.parametrize("indexed", [True, False])
def test_a_launch_at_work_hears_of_a_part_that_lost_a_row_and_got_others(
    indexed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    if indexed:
        monkeypatch.setattr(register_module, "ROWS_BEYOND_INDEX", 10)
    with ResultStore(tmp_path) as store:
        store.append([row(i, **(failed("a") if i == 7 else {})) for i in range(10)])
    with ResultStore(tmp_path) as at_work:
        assert len(at_work._register.index.parts) == indexed
        for came in ([row(7, **failed("b"), finished_at=LATE)], [row(7), row(60)]):
            with ResultStore(tmp_path) as other:
                other.retry_failed()
                other.append(came)
        assert [(found["data_count"], found["status"]) for found in at_work.refresh()] == [(7, "passed"), (60, "passed")]
        assert at_work.append([row(60)]) == [], "it would be in two files"


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_launches_at_work_hear_of_a_row_that_made_way_for_one_in_another_part_they_know(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two parts is read first."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    free = iter(names)
    monkeypatch.setattr(turns_module, "_new_name", lambda maker: f"{next(free)}-{maker}.parquet")
    with ResultStore(tmp_path) as retrying, ResultStore(tmp_path) as usual:
        retrying.append([row(0)])
        usual.append([row(count, **(failed("a") if count == 7 else {})) for count in range(1, 11)])
        with ResultStore(tmp_path, read_only=True) as reading:
            retrying.refresh()
            assert retrying.retry_failed() == 1
            assert len(retrying.append([row(7)])) == 1
            for store in (usual, reading):
                assert [(found["data_count"], found["status"]) for found in store.refresh()][-1:] == [(7, "passed")]
                assert sorted(found["data_count"] for found in store.rows()) == [*range(11)]
                assert store.refresh() == []
                assert len(store) == 11
                assert store.notices == []
        monkeypatch.undo()
        assert len(usual.append([row(50)])) == 1
    assert len(plain_keys(tmp_path)) == 12


def test_a_launch_at_work_hears_of_two_full_parts_that_lost_a_row_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 3)
    with ResultStore(tmp_path) as at_work:
        put_part(tmp_path, "a.parquet", row(1, **failed("a")), row(2), row(3, **failed("a")))
        put_part(tmp_path, "b.parquet", row(11, **failed("b")), row(12), row(13))
        assert len(at_work.refresh()) == 6
        put_part(tmp_path, "a.parquet", row(2), row(3, **failed("again"), finished_at=LATE), row(11))
        put_part(tmp_path, "b.parquet", row(12), row(13), row(1, status="missed"))
        heard = {found["data_count"]: found["status"] for found in at_work.refresh()}
        assert heard.items() >= {11: "passed", 1: "missed"}.items()
        assert heard.keys() <= {1, 3, 11}
        assert {found["data_count"]: (found["status"], found["error"]) for found in at_work.rows()} == {
            1: ("missed", None), 2: ("passed", None), 3: ("failed", "again"), 11: ("passed", None), 12: ("passed", None),
            13: ("passed", None),
        }  # fmt: skip
        assert at_work.append([row(1), row(11), row(60)])[0]["data_count"] == 60
        assert at_work.notices == []
    assert len(plain_keys(tmp_path)) == 7


def test_a_look_that_could_not_be_ended_is_made_up_for_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it had read the files before the disk failed."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 3)
    with ResultStore(tmp_path) as at_work:
        put_part(tmp_path, "a.parquet", row(1, **failed("a")), row(2))
        put_part(tmp_path, "b.parquet", row(11, **failed("b")), row(12))
        assert len(at_work.refresh()) == 4
        assert at_work.retry_failed() == 2
        put_part(tmp_path, "a.parquet", row(1), row(2), row(3))
        put_part(tmp_path, "b.parquet", row(11, **failed("again"), finished_at=LATE), row(12), row(13))
        put_part(tmp_path, "c.parquet", row(12), row(20))

        def broken(*_: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(at_work._reader, "_take_in", broken)
            with pytest.raises(StoreError, match="see that the disk works"):
                at_work.refresh()
        assert {found["data_count"]: found["error"] for found in at_work.refresh()} == {
            1: None, 3: None, 11: "again", 13: None, 20: None,
        }  # fmt: skip
        assert {row(count)["key"] for count in (1, 2, 3, 11, 12, 13, 20)} == at_work.known(plain_keys(tmp_path))
        assert len(at_work) == 7


def test_a_look_at_files_that_never_rest_ends_with_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "MOST_LOOKS", 7)
    with ResultStore(tmp_path) as at_work:
        at_work.append([row(1, **failed("a")), row(2)])
        put_part(tmp_path, "zz.parquet", row(1), row(3))
        looks = list[str]()

        def restless(name: str, *_: object) -> None:
            looks.append(name)
            raise reader_module.LostPartError(name)

        with monkeypatch.context() as patch:
            patch.setattr(at_work._reader, "read", restless)
            with pytest.raises(StoreError) as caught:
                at_work.refresh()
        told = "other processes replace files in it faster than they can be read; run the same command again later"
        assert str(caught.value) == f"cannot read the rows in {tmp_path}: {told}"
        assert len(looks) == 7
        assert [(found["data_count"], found["status"]) for found in at_work.refresh()] == [(1, "passed"), (3, "passed")]
        assert len(at_work) == 3


@pytest.mark.parametrize("own_part", [True, False])
def test_a_launch_at_work_hears_of_a_run_that_failed_again(own_part: bool, tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a"))])
    with ResultStore(tmp_path) as usual, ResultStore(tmp_path) as retrying, ResultStore(tmp_path) as other:
        if own_part:
            other.append([row(2)])  # it has the part from now on
        assert usual.retry_failed() == retrying.retry_failed() == 1
        usual.refresh()
        retrying.append([row(1, finished_at=LATE, **failed("b"))])
        assert [found["error"] for found in usual.refresh()] == ["b"]
        assert row(1)["key"] in usual, "it need not be tried once more"


def test_a_run_that_failed_just_now_is_tried_again_though_its_row_is_still_news(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store, ResultStore(tmp_path) as other:
        other.append([row(1, **failed("a"))])
        assert store.retry_failed() == 1
        assert store.rows() == []
        assert row(1)["key"] not in store


def test_rows_that_were_read_are_known(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a"))])
    with ResultStore(tmp_path) as usual, ResultStore(tmp_path) as retrying:
        assert usual.retry_failed() == retrying.retry_failed() == 1
        retrying.append([row(1)])
        assert [found["status"] for found in usual.rows()] == ["passed"]
        assert row(1)["key"] in usual
        assert usual.refresh() == []


def test_a_row_makes_way_although_its_part_was_damaged_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    with ResultStore(tmp_path) as store:
        store.append([row(count, **(failed("a") if count in (3, 13) else {})) for count in range(10)])
        first = set((tmp_path / "runs").iterdir())
        store.append([row(count, **(failed("a") if count == 13 else {})) for count in range(10, 20)])
        (bad,) = set((tmp_path / "runs").iterdir()) - first
        before, data = bad.stat(), bytearray(bad.read_bytes())
        column = pq.read_metadata(bad).row_group(0).column(SCHEMA.names.index("reason"))
        data[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
        bad.write_bytes(data)
        os.utime(bad, ns=(before.st_atime_ns, before.st_mtime_ns))
        store.retry_failed()
        assert len(store.append([row(3), row(13)])) == 2
        assert sorted(found["data_count"] for found in store.rows()) == [*range(10), 13]
        (notice,) = store.notices
        assert notice.startswith(f"set aside {bad}: it is damaged")


def test_of_rows_in_one_file_the_one_that_ended_stays(tmp_path: Path) -> None:
    tries = {1: [failed("a"), {}], 2: [{}, failed("a")], 3: [failed("a"), {"finished_at": LATE, **failed("b")}]}
    rows = [row(count, **values) for count, both in tries.items() for values in both]
    with ResultStore(tmp_path / "a") as store:
        assert [(found["status"], found["error"]) for found in store.append(rows)] == [
            ("passed", None), ("passed", None), ("failed", "b"),
        ]  # fmt: skip
    (tmp_path / "b" / "runs").mkdir(parents=True)
    (tmp_path / "b" / "runs" / "x.parquet").write_bytes(parquet_bytes(encode(rows)))
    with ResultStore(tmp_path / "b") as store:
        assert [(found["status"], found["error"]) for found in store.rows()] == [
            ("passed", None), ("passed", None), ("failed", "b"),
        ]  # fmt: skip
        (notice,) = store.notices
        assert "x.parquet: it has several rows of 3 runs; the former file is " in notice


def test_a_notice_says_which_rows_made_way_and_why(tmp_path: Path) -> None:
    """Of a store with a file from elsewhere: a run ended in it that failed here, and another one failed later."""
    keys = {count: row(count)["key"] for count in (1, 2)}
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a")), row(2, **failed("a")), row(3)])
        (part,) = (tmp_path / "runs").iterdir()
    (tmp_path / "runs" / "zz.parquet").write_bytes(
        parquet_bytes(encode([row(1), row(2, finished_at=LATE, **failed("b")), row(4)]))
    )
    why = f"{keys[1]} failed, and ended well in another try; {keys[2]} failed, and was tried again"
    with ResultStore(tmp_path, read_only=True) as store:
        assert store.notices == [f"left out rows of {part}: {why}"]
    with ResultStore(tmp_path) as store:
        (notice,) = store.notices
        assert notice.startswith(f"removed rows from {part}: {why}; the former file is ")
        assert {found["data_count"]: found["status"] for found in store.rows()} == {
            1: "passed", 2: "failed", 3: "passed", 4: "passed",
        }  # fmt: skip


@pytest.mark.parametrize("name", ["a", "zz"])
def test_rows_that_failed_before_make_way_whichever_file_is_read_first(name: str, tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, finished_at=LATE, **failed("b"))])
    other = tmp_path / "runs" / f"{name}.parquet"
    other.write_bytes(parquet_bytes(encode([row(1, **failed("a")), row(2)])))
    with ResultStore(tmp_path, read_only=True) as store:
        assert store.notices == [f"left out rows of {other}: its failed runs were tried again"]
    with ResultStore(tmp_path) as store:
        assert store.notices == []
        assert {found["data_count"]: found["error"] for found in store.rows()} == {1: "b", 2: None}
    assert len(plain_keys(tmp_path)) == 2


def test_what_is_found_while_an_append_fails_is_told_at_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a"))])
        (part,) = (tmp_path / "runs").iterdir()
        store.retry_failed()

        def fail(*_: object) -> None:
            part.write_bytes(b"damaged")
            raise StoreError("no")

        monkeypatch.setattr(store._writer, "extend", fail)
        with pytest.raises(StoreError, match=r"^no$"):
            store.append([row(1)])
        monkeypatch.undo()
        assert store.notices == []
        assert store.refresh() == []
        (notice,) = store.notices
        assert notice.startswith(f"set aside {part}: ")


def test_news_survive_an_append_after_which_nothing_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultStore(tmp_path) as store, ResultStore(tmp_path) as other:
        store.append([row(1, **failed("a"))])
        store.retry_failed()
        other.append([row(2)])

        def fail(*_: object) -> None:
            monkeypatch.setattr(reader_module, "load", fail)
            raise StoreError("no")

        monkeypatch.setattr(store._writer, "extend", fail)
        with pytest.raises(StoreError, match=r"^no$"):
            store.append([row(1)])
        monkeypatch.undo()
        assert [found["data_count"] for found in store.refresh()] == [2]


@pytest.mark.slow(20)
def test_a_study_whose_file_was_missing_is_answered_with_an_option(here: Callable[..., Command], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("--program", "python train.py {data_count}", "--counts", "1..20", "--N", "8", "--seeds", "1", "--workers", "1")
    words += ("--no-speculate", "--store", str(tmp_path / "results"))
    first = here(*words)
    assert first.wait() == 1, first.stderr
    assert "mend that, and add --retry-failed to the command" in first.stdout
    assert "FileNotFoundError" in read_rows(tmp_path)["error"].item()

    (tmp_path / "needed.txt").write_text("many")
    again = here(*words)
    assert again.wait() == 1
    assert "0 runs trained" in again.stdout
    retried = here(*words, "--retry-failed")
    assert retried.wait() == 1, retried.stderr
    assert "ValueError" in read_rows(tmp_path)["error"].item(), "the row tells of the last try"

    (tmp_path / "needed.txt").write_text("10")
    answered = here(*words, "--retry-failed")
    assert answered.wait() == 0, answered.stdout + answered.stderr
    rows = read_rows(tmp_path)
    assert set(rows["status"]) == {"passed", "missed"}
    assert rows.loc[rows["status"] == "passed", "data_count"].min() == 9
    assert here(*words).wait() == 0
    assert len(read_rows(tmp_path)) == len(rows)
