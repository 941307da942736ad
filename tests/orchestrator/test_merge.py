"""Two copies of a store become one again, and a run that failed in one of them and ended in the other counts as ended."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import Place, plain_keys
from store_child import row

import orchestrator.store.merge as merge_module
import orchestrator.store.reader as reader_module
import orchestrator.store.register as register_module
import orchestrator.store.results as results_module
import orchestrator.store.rows as rows_module
import orchestrator.store.turns as turns_module
from orchestrator import merge as command
from orchestrator.command.cli import Terminated, run
from orchestrator.errors import UserError, counted
from orchestrator.store import ResultStore, StoreError
from orchestrator.store.merge import Merged, merge

FAILED: dict[str, Any] = {"status": "failed", "reason": "exception", "error": "boom", "accuracy": None}


def made(where: str | Path, *rows: dict[str, Any]) -> None:
    with ResultStore(where) as store:
        store.append(rows)


def endings(where: str | Path) -> dict[int, str]:
    with ResultStore(where) as store:
        return {found["data_count"]: found["status"] for found in store.rows()}


def merged(copy: Path, store: Path) -> Merged:
    with ResultStore(copy, read_only=True) as there, ResultStore(store) as here:
        return merge(there, here)


def test_a_run_that_ended_takes_the_place_of_one_that_failed(place: Place) -> None:
    made(place.location, row(1, **FAILED), row(2), row(3, **FAILED))
    with ResultStore(place.location) as store:
        assert [written["status"] for written in store.append([row(1, status="missed"), row(2, **FAILED)])] == ["missed"]
        assert store.append([row(1, **FAILED)]) == []
        assert sorted(found["status"] for found in store.rows()) == ["failed", "missed", "passed"]
    assert endings(place.location) == {1: "missed", 2: "passed", 3: "failed"}
    assert sorted(plain_keys(place.location)) == sorted(row(i)["key"] for i in (1, 2, 3)), "each once, for any reader"


def store_with_failed(folder: Path, *, in_own_part: bool) -> Path:
    """A store in which runs 1 and 2 failed, and others ended, in the part that a launch extends or in one that it does not."""
    made(folder / "first", row(1, **FAILED), row(2, **FAILED), row(3))
    if in_own_part:
        return folder / "first"
    shutil.copytree(folder / "first", folder / "copy")
    return folder / "copy"


@pytest.mark.parametrize("in_own_part", [True, False])
def test_a_full_disk_loses_no_failed_row(in_own_part: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = store_with_failed(tmp_path, in_own_part=in_own_part)
    keys = sorted(plain_keys(place))
    with ResultStore(place) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", full)
            with pytest.raises(StoreError, match="everything saved before is intact"):
                store.append([row(1), row(2), row(4)])
        assert sorted(plain_keys(place)) == keys
        assert store.refresh() == [], "what comes back is no news"
        assert {found["data_count"]: found["status"] for found in store.rows()} == {1: "failed", 2: "failed", 3: "passed"}
        store.append([row(5)])
        assert sorted(plain_keys(place)) == sorted([*keys, row(5)["key"]]), "another row does not take them with it"
        assert len(store.append([row(1), row(2), row(4)])) == 3
    assert endings(place) == dict.fromkeys(range(1, 6), "passed")
    assert len(plain_keys(place)) == 5


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("in_own_part", [True, False])
def test_a_launch_that_dies_at_any_step_loses_no_failed_row(
    in_own_part: bool, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a disk that has no hard links."""

    class DiedError(BaseException):
        pass

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    steps = [(os, "link"), (Path, "rename"), (Path, "replace")]
    if not links:
        monkeypatch.setattr(os, "link", refused)
        del steps[0]
    for last in itertools.count():
        place = store_with_failed(tmp_path / str(last), in_own_part=in_own_part)
        keys, left = sorted(plain_keys(place)), last

        def counting(of: Any, place: Path = place, keys: list[str] = keys) -> Any:
            def step(*words: Any) -> Any:
                nonlocal left
                left -= 1
                assert set(plain_keys(place)) >= set(keys), "no reader misses a run"
                if left < 0:
                    raise DiedError
                return of(*words)

            return step

        store = ResultStore(place)
        with monkeypatch.context() as patch, contextlib.suppress(DiedError):
            for owner, name in steps:
                patch.setattr(owner, name, counting(getattr(owner, name)))
            store.append([row(1), row(2), row(4)])
        store.close()
        found = endings(place)
        assert found in ({1: "failed", 2: "failed", 3: "passed"}, dict.fromkeys((1, 2, 3, 4), "passed"))
        assert len(plain_keys(place)) == len(found), "each once, when the next launch has opened the store"
        if left >= 0:
            break
        made(place, row(1), row(2), row(4))
        assert endings(place) == dict.fromkeys((1, 2, 3, 4), "passed")
    assert last == (2 if in_own_part else 3)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_parts_that_were_copied_together_the_run_that_ended_stays(names: str, tmp_path: Path) -> None:
    for name, values in zip(names, (FAILED, {}), strict=True):
        made(tmp_path / name, row(1, **values), row(2 + names.index(name)))
        (part,) = (tmp_path / name / "runs").iterdir()
        (tmp_path / "s" / "runs").mkdir(parents=True, exist_ok=True)
        shutil.copy(part, tmp_path / "s" / "runs" / f"{name}.parquet")
    assert endings(tmp_path / "s") == {1: "passed", 2: "passed", 3: "passed"}
    assert len(plain_keys(tmp_path / "s")) == 3
    assert len(list((tmp_path / "s" / "set-aside").iterdir())) == 1, "the former file is kept"


@pytest.mark.parametrize("full", [True, False])
def test_a_launch_at_work_does_not_undo_it(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the part with the failed row in mind, and finds another one with the same key, here before that one."""
    names = iter("zyxwvu")
    monkeypatch.setattr(turns_module, "_new_name", lambda maker: f"{next(names)}-{maker}.parquet")
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 2 if full else 500)
    with ResultStore(tmp_path) as at_work:
        at_work.append([row(1, **FAILED), row(3), row(4)])
        with ResultStore(tmp_path) as other:
            other.append([row(1)])
        at_work.append([row(2)])
        assert {found["data_count"]: found["status"] for found in at_work.rows()} == dict.fromkeys((1, 2, 3, 4), "passed")
        assert at_work.notices == [], "it has found nothing wrong"
    assert endings(tmp_path) == dict.fromkeys((1, 2, 3, 4), "passed")
    assert len(plain_keys(tmp_path)) == 4


def test_rows_are_merged_bit_for_bit_in_tables_and_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = [0.1, float("nan"), 0.3]
    curves = {"curve_step": [0, 1, 2], "curve_loss": curve, "curve_accuracy": curve, "curve_error": curve}
    made(tmp_path / "copy", *(row(i, measures={"x": 0.1 * i}, **curves) for i in range(1, 21)), row(30), row(31, **FAILED))
    made(tmp_path / "store", row(1), row(30, **FAILED), row(31, **FAILED), row(40))

    def slow(*_: object) -> None:
        raise AssertionError("rows are made into dicts")

    monkeypatch.setattr(merge_module, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(results_module, "encode", slow)
    monkeypatch.setattr(results_module, "decode", slow)
    decoded = rows_module._values
    monkeypatch.setattr(rows_module, "_values", lambda name, column: slow() if name == "curve_loss" else decoded(name, column))
    assert merged(tmp_path / "copy", tmp_path / "store") == Merged(20, 1)
    assert merged(tmp_path / "copy", tmp_path / "store") == Merged(0, 0)
    monkeypatch.undo()
    with ResultStore(tmp_path / "copy") as copy, ResultStore(tmp_path / "store") as store:
        keys = {"key": [row(i)["key"] for i in (*range(2, 21), 30)]}
        tables = [each.table(None, keys).sort_by("key") for each in (copy, store)]
        assert repr(tables[0].to_pylist()) == repr(tables[1].to_pylist())
        assert len(store) == 23


def test_a_merge_reads_a_part_for_the_rows_at_once_that_are_in_it_and_not_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are hashes, so those of a part are not together in their order."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 5)
    monkeypatch.setattr(results_module, "ROWS_PER_BULK_PART", 5)
    monkeypatch.setattr(merge_module, "ROWS_AT_ONCE", 10)
    made(tmp_path / "store", *map(row, range(1, 41)))
    assert parts(tmp_path / "store") == 8
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    reads, load = list[str](), reader_module.load

    def counting(path: Path, columns: list[str] | None = None) -> Any:
        reads.append(path.relative_to(tmp_path).parts[0])
        return load(path, columns)

    with ResultStore(tmp_path / "copy", read_only=True) as there, ResultStore(tmp_path / "store") as here:
        monkeypatch.setattr(reader_module, "load", counting)
        assert merge(there, here) == Merged(0, 0)
    assert (reads.count("store"), reads.count("copy")) == (2 * 8, 8), "once for how runs ended, once for what describes them"


def test_a_merge_writes_a_part_once_or_twice_for_all_of_its_failed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order in the copy."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 5)
    monkeypatch.setattr(results_module, "ROWS_PER_BULK_PART", 5)
    monkeypatch.setattr(merge_module, "ROWS_AT_ONCE", 7)
    made(tmp_path / "store", *(row(i, **(FAILED if i % 5 < 2 else {})) for i in range(40)))
    order = [*range(60, 40, -1), *(i for first in range(5) for i in range(first, 40, 5))]
    made(tmp_path / "copy", *map(row, order))
    assert parts(tmp_path / "store") == 8
    with ResultStore(tmp_path / "copy", read_only=True) as there, ResultStore(tmp_path / "store") as here:
        offered, append = list[str](), here.append_table

        def appended(table: pa.Table) -> int:
            offered.extend(table["key"].to_pylist())
            return append(table)

        monkeypatch.setattr(here, "append_table", appended)
        assert merge(there, here) == Merged(36, 16)
        assert len(set(offered)) == len(offered) == 36
        assert len(list((tmp_path / "store" / "set-aside").iterdir())) == 8 + 1, "a batch of 7 divides a part"
    assert endings(tmp_path / "store") == dict.fromkeys([*range(40), *range(41, 61)], "passed")


def forge(store: Path, counts: list[int]) -> None:
    """Give the rows of the only part of a store these data counts, which their keys do not match."""
    (part,) = (store / "runs").iterdir()
    table = pq.read_table(part)
    at = table.column_names.index("data_count")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array(counts, pa.int32())), part, use_dictionary=False)


@pytest.mark.parametrize("at_once", [1, 100])
def test_what_is_here_but_cannot_be_believed_is_taken_from_the_copy(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_module, "ROWS_AT_ONCE", at_once)
    made(tmp_path / "copy", row(1, status="missed"), row(2), row(3))
    made(tmp_path / "store", row(1), row(2), row(4))
    forge(tmp_path / "store", [9, 2, 9])
    assert merged(tmp_path / "copy", tmp_path / "store") == Merged(2, 0)
    assert endings(tmp_path / "store") == {1: "missed", 2: "passed", 3: "passed"}
    assert merged(tmp_path / "copy", tmp_path / "store") == Merged(0, 0)


def test_a_full_part_that_lost_a_row_gets_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches at work that know it as full look no more at it."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 5)
    made(tmp_path, *map(row, range(1, 6)))
    forge(tmp_path, [9, 2, 3, 4, 5])
    with ResultStore(tmp_path) as at_work, ResultStore(tmp_path) as other:
        for count in (1, 6):
            assert len(other.append([row(count)])) == 1
            assert [found["data_count"] for found in at_work.refresh()] == [count]
    assert len(plain_keys(tmp_path)) == 6


def test_what_cannot_be_believed_is_not_merged(tmp_path: Path) -> None:
    made(tmp_path / "copy", row(1), row(2))
    made(tmp_path / "store", row(1, **FAILED))
    forge(tmp_path / "copy", [9, 2])
    with ResultStore(tmp_path / "copy", read_only=True) as there, ResultStore(tmp_path / "store") as here:
        assert merge(there, here) == Merged(1, 0)
        assert "left out 1 row of" in there.notices[0]
    with ResultStore(tmp_path / "store") as store:
        store.append([row(1, accuracy=0.875)])
    with ResultStore(tmp_path / "copy", read_only=True) as there, ResultStore(tmp_path / "store") as here:
        assert merge(there, here) == Merged(0, 0), "nor is it compared"
    assert endings(tmp_path / "store") == {1: "passed", 2: "passed"}


def test_all_runs_that_ended_in_both_and_not_alike_are_named_however_few_rows_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_module, "ROWS_AT_ONCE", 1)
    made(tmp_path / "copy", row(1, steps=7), row(2), row(3, steps=7))
    made(tmp_path / "store", row(1), row(2), row(3))
    assert merged(tmp_path / "copy", tmp_path / "store") == Merged(0, 0, (row(1)["key"], row(3)["key"]))


def test_a_failed_run_whose_next_try_is_on_another_machine_counts_as_not_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "copy", row(1), row(2))
    made(tmp_path / "store", row(1, **FAILED))
    with ResultStore(tmp_path / "copy", read_only=True) as there, ResultStore(tmp_path / "store") as here:
        monkeypatch.setattr(here._turns, "appending", lambda keys: contextlib.nullcontext({row(1)["key"]}))
        assert merge(there, here) == Merged(1, 0, elsewhere=1)
    assert endings(tmp_path / "store") == {1: "failed", 2: "passed"}


def test_the_command_says_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    made("copy", row(1), row(2))
    made("store", row(1, **FAILED))
    before = {path: path.read_bytes() for path in Path("copy").rglob("*") if path.is_file()}
    assert run(command.app, ["copy", "store"]) == 0
    told = capsys.readouterr()
    assert told.out == "2 new rows in store, 1 of them in place of failed ones\n"
    assert told.err.startswith("note: removed rows from store/runs/"), "what is found while rows are added is told as well"
    assert run(command.app, ["copy", "store"]) == 0
    assert capsys.readouterr().out == "0 new rows in store\n"
    assert before == {path: path.read_bytes() for path in Path("copy").rglob("*") if path.is_file()}
    assert run(command.app, ["--help"]) == 0
    assert "COPY" in capsys.readouterr().out


def test_the_command_counts_runs_that_ended_in_both_and_not_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = {"accuracy": float("nan")}
    unlike = row(1, accuracy=0.5), row(6, status="missed"), row(8, steps=7)
    made("copy", *unlike, row(2), row(3, **FAILED), row(4), row(5, **unknown), row(7))
    made("store", row(1, accuracy=0.25), row(6), row(8), row(2, seconds=9.0), row(3), row(4, **FAILED), row(5, **unknown))
    assert run(command.app, ["copy", "store"]) == 0
    out, err = capsys.readouterr()
    assert out == "2 new rows in store, 1 of them in place of failed ones\n"
    told = [line for line in err.splitlines() if line.startswith("warning")]
    assert told == [
        "warning: 3 runs ended in both, but not alike (status, steps or accuracy), "
        f"such as {row(1)['key']}: the rows in store stay"
    ]
    assert endings("store")[6] == "passed"


def test_a_merge_of_a_copy_with_a_file_that_cannot_be_read_says_to_keep_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made("copy", row(1))
    made("store", row(2))
    [part] = Path("copy", "runs").iterdir()
    data = part.read_bytes()
    part.write_bytes(data[:-100])
    assert run(command.app, ["copy", "store"]) == 1
    out, err = capsys.readouterr()
    assert out == "0 new rows in store\n"
    assert "warning: files of COPY cannot be read (see above), so rows in them are not there: keep COPY\n" in err
    part.write_bytes(data)
    assert run(command.app, ["copy", "store"]) == 0
    assert capsys.readouterr().out == "1 new row in store\n"


@pytest.mark.parametrize("here", ["unknown", "failed"])
def test_a_merge_says_which_runs_it_left_to_a_machine_that_trains_them(
    here: str, uri: str, on: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "copy", row(1), row(2))
    made(uri, row(9), *([row(1, **FAILED)] if here == "failed" else []))
    on("b")
    with ResultStore(uri) as study:
        if here == "failed":
            study.retry_failed()
        assert study.claim(row(1)["key"])
        on("a")
        assert run(command.app, [str(tmp_path / "copy"), uri]) == 1
        out, err = capsys.readouterr()
        assert out == f"1 new row in {uri}\n"
        told = "1 run of COPY is being trained on another machine, so its row was not added: keep COPY"
        assert f"warning: {told}, and run the same command again later\n" in err
    assert run(command.app, [str(tmp_path / "copy"), uri]) == 0
    out, err = capsys.readouterr()
    instead = ", 1 of them in place of failed ones" if here == "failed" else ""
    assert (out, "warning" in err) == (f"1 new row in {uri}{instead}\n", False)
    assert endings(uri) == dict.fromkeys((1, 2, 9), "passed")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["copy"], "Missing argument 'STORE'"),
        (["none", "store"], "COPY 'none' has no runs: give the folder that a study wrote to"),
        (["copy/runs", "store"], "COPY 'copy/runs' has rows itself: give the folder above it"),
        (["", "store"], "COPY is empty: name a folder"),
        (["copy", ""], "STORE is empty: name a folder"),
        (["copy", "stroe"], "STORE 'stroe' is not a folder: give that of the store, or make it first"),
        (["copy", "file"], "STORE 'file' is not a folder"),
        (["copy", "store/runs"], "STORE 'store/runs' has rows itself: give the folder above it"),
        (["copy", "./linked"], "'copy' and './linked' are the same store"),
        (["store\x1b[2J", "store"], "\\x1b[2J"),
    ],
)
def test_a_mistake_in_a_merge_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made("copy", row(1))
    made("store", row(2))
    Path("file").write_text("")
    Path("linked").symlink_to("copy")
    before = sorted(map(str, tmp_path.rglob("*")))
    assert run(command.app, words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert told in err
    assert sorted(map(str, tmp_path.rglob("*"))) == before


@pytest.mark.bucket
def test_a_copy_in_a_bucket_without_runs_is_a_mistake(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    made(uri, row(1))
    assert run(command.app, [f"{uri}-typo", f"{uri}-new"]) == 2
    told = f"error: COPY '{uri}-typo' has no runs: give the folder that a study wrote to\n"
    assert capsys.readouterr() == ("", told)
    assert run(command.app, [uri, f"{uri}-new"]) == 0
    assert capsys.readouterr().out == f"1 new row in {uri}-new\n"


def test_stores_of_two_servers_are_two_also_under_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one:9000")
    command._check("s3://b/x?endpoint_override=one:9000", "s3://b/x?endpoint_override=two:9000")
    for other in ("s3://b/x", "s3://b//x?endpoint_override=one:9000&scheme=http"):
        with pytest.raises(UserError, match="are the same store"):
            command._check("s3://b/x?endpoint_override=one:9000", other)


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_merge_that_is_interrupted_says_how_to_continue(
    error: type[BaseException], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "copy", row(1))
    (tmp_path / "store").mkdir()

    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(command, "merge", interrupted)
    assert run(command.app, [str(tmp_path / "copy"), str(tmp_path / "store")]) == code
    assert "to continue: " in capsys.readouterr().err


def parts(folder: Path) -> int:
    return len(list((folder / "runs").iterdir()))


@pytest.mark.parametrize("change", ["chmod", "hard link", "touch", "moved", "old mark"])
def test_a_part_is_extended_whatever_is_done_to_the_lock_file(change: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    made(store, row(1))
    for i in range(2, 5):
        if change == "chmod":
            (store / ".lock").chmod(0o600 + i)
        elif change == "hard link":
            os.link(store / ".lock", tmp_path / f"link{i}")
        elif change == "touch":
            (store / ".lock").touch()
        elif change == "moved":
            store = store.rename(tmp_path / f"store{i}")
        elif i == 2:  # as launches before left it
            (store / ".lock").write_text("")
        made(store, row(i))
    assert parts(store) == (2 if change == "old mark" else 1)
    assert len(endings(store)) == 4


def test_a_copy_extends_no_part_of_the_folder_and_has_one_of_its_own(tmp_path: Path) -> None:
    made(tmp_path / "a", row(1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for i in range(2, 5):
        made(tmp_path / "b", row(i))
    made(tmp_path / "a", row(9))
    assert (parts(tmp_path / "a"), parts(tmp_path / "b")) == (1, 2)


def test_clones_of_a_disk_are_told_apart_where_disks_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for disk in ("a" * 12, "a" * 12, "-", "b" * 12, "b" * 12, "-"):
        monkeypatch.setattr("orchestrator.store.locks._disk", lambda device, disk=disk: disk)
        made(tmp_path, row(10 + len(found)))
        found.append(parts(tmp_path))
    assert found == [1, 1, 1, 2, 2, 2]


def test_what_is_no_lock_file_of_ours_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / ".lock").symlink_to("../mine.txt")
    for i in range(3):
        made(tmp_path / "s", row(1 + i))
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert parts(tmp_path / "s") == 1


@pytest.mark.parametrize("is_there", [False, True])
def test_a_lock_file_that_is_a_link_makes_and_fills_no_file_elsewhere(is_there: bool, tmp_path: Path) -> None:
    target, store = tmp_path / "mine.conf", tmp_path / "s"
    if is_there:
        target.touch()
    store.mkdir()
    (store / ".lock").symlink_to("../mine.conf")
    with pytest.raises(StoreError, match=r"/s/\.lock is a link to a file that is missing or empty: remove the link"):
        made(store, row(1))
    assert target.exists() == is_there
    assert not is_there or not target.read_bytes()


def test_counted_things_have_their_plural_and_long_numbers_commas() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 20_000)] == ["0 rows", "1 row", "2 rows", "20,000 rows"]
