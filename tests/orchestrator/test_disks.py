"""A store on a disk that goes away, or that lacks something: no second store comes into being, and no row is lost."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from places import plain_keys
from store_child import row

import orchestrator.store.parts as parts_module
from analysis.measures.quantity import Quantity
from orchestrator.store import Artifacts, MeasureTable, Question, ResultStore, StoreError, save_question
from orchestrator.store.bucket import Bucket
from orchestrator.store.folder import Folder
from orchestrator.store.locks import StoreLocks
from orchestrator.store.measures import encode
from orchestrator.store.register import Register
from trainables.spec import RunSpec

GONE = "moved or removed while in use"
KEY = "a" * 24
MEASURE = encode(KEY, "images", 1, [Quantity("error", 0.25)], 1.5)
SPEC = RunSpec(task="tests.toy:Toy", dataset="toys", N=16, data_count=5, seed=0)
QUESTION = Question(study="encodings", task_version="1", specs={"runs": [SPEC]}, search={}, settings={})

WRITES: dict[str, Callable[[ResultStore], object]] = {
    "weights": lambda store: store.save_weights(KEY, b"w"),
    "checkpoint": lambda store: store.save_checkpoint(KEY, b"c"),
    "pack sizes": lambda store: store.save_pack_sizes({"shape": 4}),
    "question": lambda store: save_question(store, QUESTION),
    "row": lambda store: store.append([row(2)]),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_store_that_is_moved_away_is_not_made_anew(what: str, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "s", tmp_path / "moved"
    with ResultStore(place) as store:
        store.append([row(1)])
        place.rename(elsewhere)
        with pytest.raises(StoreError, match=GONE):
            WRITES[what](store)
        with pytest.raises(StoreError, match=GONE):
            Artifacts(place).save_weights(KEY, b"w")  # made in the same process, after it went
        assert not place.exists(), "else it would be moved back into the new one"
        place.mkdir()
        with pytest.raises(StoreError, match=GONE):
            WRITES[what](store)
        assert list(place.iterdir()) == []
        place.rmdir()
        elsewhere.rename(place)
        WRITES[what](store)
    assert row(1)["key"] in plain_keys(place)


def test_a_store_that_is_moved_away_at_the_last_moment_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, check = tmp_path / "s", StoreLocks.check

    def going(locks: StoreLocks, path: Path) -> None:
        check(locks, path)
        place.rename(tmp_path / "moved")

    with ResultStore(place) as store:
        monkeypatch.setattr(StoreLocks, "check", going)
        with pytest.raises(StoreError, match=GONE):
            store.save_weights(KEY, b"w")
    assert not place.exists()


def test_a_new_store_that_was_closed_and_moved_away_is_not_made_anew(tmp_path: Path) -> None:
    store = Artifacts(tmp_path / "s")
    store.save_weights(KEY, b"w")
    store.close()
    (tmp_path / "s").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match=GONE):
        store.save_weights(KEY, b"w")
    assert not (tmp_path / "s").exists()


@contextlib.contextmanager
def mounted(place: Path, *what: str) -> Iterator[None]:
    mount = subprocess.run(["mount", *(what or ("-t", "tmpfs", "none")), place], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"nothing can be mounted here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("what", WRITES)
def test_nothing_is_written_below_a_disk_that_was_unmounted(what: str, tmp_path: Path) -> None:
    with mounted(tmp_path):
        store = ResultStore(tmp_path)
        WRITES[what](store)
    with store, pytest.raises(StoreError, match=GONE):
        WRITES[what](store)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", WRITES)
def test_nothing_is_written_to_another_disk_that_was_mounted_instead(what: str, tmp_path: Path) -> None:
    """The first file of either disk has the same inode."""
    with mounted(tmp_path):
        store = ResultStore(tmp_path)
    with mounted(tmp_path):
        (tmp_path / ".lock").touch()
        with store, pytest.raises(StoreError, match=GONE):
            WRITES[what](store)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("name", "how"),
    [("weights", "linked"), ("checkpoints", "linked"), ("weights", "mounted"), (".tmp", "mounted"), ("runs", "bound")],
)
def test_a_store_with_a_folder_on_another_disk_is_refused_before_anything_is_trained(
    name: str, how: str, tmp_path: Path
) -> None:
    store, other = tmp_path / "s", tmp_path / "other"
    ResultStore(store).close()
    other.mkdir()
    folder = store / name
    if how == "linked":
        folder.symlink_to(other)
    else:
        folder.mkdir(exist_ok=True)
    with mounted(folder, "--bind", str(other)) if how == "bound" else mounted(folder.resolve()):
        before = sorted(store.rglob("*"))
        with pytest.raises(StoreError, match=f"s/{name} is on another disk than the store, .*: move the whole store there"):
            ResultStore(store)
        assert sorted(store.rglob("*")) == before
        ResultStore(store, read_only=True).close()
        told = r"on another disk, .*: move the whole store there"
        with Artifacts(store) as files, pytest.raises(StoreError, match=told), files.place.in_words("save x"):
            files.place.write(f"{'weights' if name == '.tmp' else name}/x", b"x")
    if how == "linked":
        with ResultStore(store) as opened:
            WRITES["weights"](opened)
            WRITES["checkpoint"](opened)


@pytest.mark.parametrize("how", ["moved", "unmounted"])
def test_a_tool_that_has_written_nothing_yet_makes_no_store_anew(how: str, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with ResultStore(place) as store:
        store.append([row(1)])
    with MeasureTable(place) as table:
        assert table.known() == set()
        place.rename(tmp_path / "moved")
        if how == "unmounted":
            place.mkdir()
        for work in (lambda: table.claim(KEY), lambda: table.save(KEY, "images", 1, MEASURE)):
            with pytest.raises(StoreError, match=GONE):
                work()
        assert not place.exists() or list(place.iterdir()) == []
    (tmp_path / "moved" / "measures").mkdir()
    (tmp_path / "moved" / "measures" / "x.parquet").write_bytes(b"damaged")
    with MeasureTable(tmp_path / "moved") as table:
        files = table.place.files

        def going(folder: str) -> list[Path]:
            found = files(folder)
            (tmp_path / "moved").rename(tmp_path / "again")
            return found

        table.place.files = going  # type: ignore[method-assign]
        with pytest.raises(StoreError, match=GONE):
            table.known()
    assert not (tmp_path / "moved").exists()


def test_a_store_that_is_moved_while_it_is_opened_is_not_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, open_index = tmp_path / "s", Register.open_index
    with ResultStore(place) as store:
        store.append([row(1)])

    def going(register: Register, path: Path) -> None:
        open_index(register, path)
        place.rename(tmp_path / "moved")

    monkeypatch.setattr(Register, "open_index", going)
    with pytest.raises(StoreError, match=GONE):
        ResultStore(place)
    assert not place.exists()


def test_a_link_to_a_store_that_is_turned_to_another_one_is_not_written_through(tmp_path: Path) -> None:
    for name in ("one", "other"):
        ResultStore(tmp_path / name).close()
    link = tmp_path / "s"
    link.symlink_to("one")
    with ResultStore(link) as store:
        link.unlink()
        link.symlink_to("other")
        for work in WRITES.values():
            with pytest.raises(StoreError, match=GONE):
                work(store)
    assert [path for path in (tmp_path / "other").rglob("*") if path.name not in (".lock", "runs")] == []


def test_a_new_store_is_made_with_the_folders_above_it(tmp_path: Path) -> None:
    for i, write in enumerate(WRITES.values()):
        with ResultStore(tmp_path / f"{i}" / "a" / "b") as store:
            write(store)
    Artifacts(tmp_path / "c" / "d").save_weights(KEY, b"w")
    assert (tmp_path / "c" / "d" / "weights" / f"{KEY}.safetensors").read_bytes() == b"w"


def without_links(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(os, "link", refused)


def store_with_a_row_twice(folder: Path) -> None:
    """A store `s` with parts `a` and `b`, which share a row."""
    (folder / "s" / "runs").mkdir(parents=True)
    for name in "ab":
        with ResultStore(folder / name) as store:
            store.append([row(1), row(2 if name == "a" else 3)])
        (part,) = (folder / name / "runs").iterdir()
        shutil.copy(part, folder / "s" / "runs" / f"{name}.parquet")


@pytest.mark.parametrize("code", [0, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, 524])
def test_a_row_that_is_there_twice_is_removed_with_hard_links_and_without(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """524 is what the kernel lets through of some servers."""
    if code:
        without_links(monkeypatch, code)
    store_with_a_row_twice(tmp_path)
    former, steps = (tmp_path / "s" / "runs" / "b.parquet").read_bytes(), []
    fsync, replace = os.fsync, Path.replace

    def log_sync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").resolve()
        steps.append(f"sync {place.name if place.is_dir() else 'file'}")
        fsync(descriptor)

    def log_replace(path: Path, target: Path) -> Path:
        steps.append(f"rename to {target.parent.name}")
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", log_sync)
        patch.setattr(Path, "replace", log_replace)
        with ResultStore(tmp_path / "s") as store:
            assert len(store) == 3
    aside = ["sync file", "rename to set-aside", "sync set-aside"][0 if code else 2 :]
    in_order = [*aside, "sync file", "rename to runs", "sync runs"]
    assert [step for step in steps if step != "sync s"] == in_order, "the former file is durable before it is replaced"
    assert sorted(plain_keys(tmp_path / "s")) == sorted(row(i)["key"] for i in (1, 2, 3))
    assert [path.read_bytes() for path in (tmp_path / "s" / "set-aside").iterdir()] == [former]
    assert list((tmp_path / "s" / ".tmp").iterdir()) == []


def test_a_failed_row_is_replaced_on_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_links(monkeypatch, errno.EPERM)
    with ResultStore(tmp_path) as store:
        store.append([row(1, status="failed", reason="exception", error="boom", accuracy=None), row(2)])
        store.append([row(1)])
    with ResultStore(tmp_path) as store:
        assert [found["status"] for found in store.rows()] == ["passed", "passed"]
    assert len(plain_keys(tmp_path)) == 2


def test_a_copy_takes_the_place_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_links(monkeypatch, errno.EPERM)
    with Artifacts(tmp_path) as store:
        for name in ("one", "two"):
            store.place.save(name, name.encode())
        with pytest.raises(FileExistsError):
            store.place.copy("one", "two")
    assert (tmp_path / "two").read_bytes() == b"two"
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES])
def test_a_disk_without_file_locks_is_said_to_be_one(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "lockf", refused)
    with pytest.raises(StoreError, match=r"file locks do not work there, .* choose a folder on another disk"):
        ResultStore(tmp_path)


OTHER_FOLDER = "choose a folder you can write to"
AGAIN = "run the same command again; everything saved before is intact"
ALLOWED = f"allow writing there, or ask its owner to, and {AGAIN}"
ANSWERS = f"see that the disk works, and {AGAIN}"


@pytest.mark.parametrize(
    ("code", "action", "hint"),
    [
        (errno.EROFS, "open the store", OTHER_FOLDER),
        (errno.EROFS, "append results", f"make the disk writable and {AGAIN}"),
        (errno.EACCES, "open the store", OTHER_FOLDER),
        (errno.EACCES, "append results", ALLOWED),
        (errno.EACCES, "read the rows", "make it readable, or ask its owner to"),
        (errno.EPERM, "open the store", OTHER_FOLDER),
        (errno.EPERM, "append results", ALLOWED),
        (errno.EPERM, "read the rows", "make it readable, or ask its owner to"),
        (errno.EIO, "append results", ANSWERS),
        (errno.ESTALE, "read the rows", ANSWERS),
        (errno.ENOTCONN, "open the store", ANSWERS),
        (errno.EBUSY, "append results", AGAIN),
        (errno.ENOMEM, "append results", f"free some memory and {AGAIN}"),
        (errno.EINVAL, "append results", "everything saved before is intact"),
    ],
)
def test_what_a_disk_refuses_is_told_with_what_helps_for_what_was_done(
    code: int, action: str, hint: str, tmp_path: Path
) -> None:
    """A store that was opened holds work, so no other folder is advised."""
    with pytest.raises(StoreError) as caught, Artifacts(tmp_path).place.in_words(action):
        raise OSError(code, os.strerror(code))
    assert str(caught.value) == f"cannot {action} in {tmp_path}: {os.strerror(code)}; {hint}"


@pytest.mark.parametrize("action", ["open the store", "append results"])
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_another_place_is_advised_for_the_copy_of_a_bucket_and_not_for_the_bucket(code: int, action: str) -> None:
    with pytest.raises(StoreError) as caught, Bucket("s3://b/r?region=eu-west-1").in_words(action):
        raise OSError(code, os.strerror(code))
    assert str(caught.value).endswith(f"{os.strerror(code)}; set XDG_CACHE_HOME to a folder that you can write to")


@pytest.mark.parametrize("links", [True, False])
def test_a_full_disk_sets_a_file_aside_only_once(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, aside = Path.replace, tmp_path / "s" / "set-aside"
    store_with_a_row_twice(tmp_path)
    former = (tmp_path / "s" / "runs" / "b.parquet").read_bytes()

    def full(path: Path, target: Path) -> Path:
        if target.parent.name == "runs":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(path, target)

    if not links:
        without_links(monkeypatch, errno.EPERM)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        for _ in range(3):
            with pytest.raises(StoreError, match="No space left on device; free some space"):
                ResultStore(tmp_path / "s")
            assert [path.read_bytes() for path in aside.iterdir()] == [former]
    with ResultStore(tmp_path / "s") as store:
        assert len(store) == 3
        assert [(path.name, path.read_bytes()) for path in aside.iterdir()] == [("b.parquet", former)]
        assert len([notice for notice in store.notices if "removed rows" in notice]) == 1


def test_a_file_that_was_replaced_on_a_server_before_it_is_read_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of NFS. If it does not help, no row is taken for lost."""
    left, open_file = 3, parts_module.open_file

    def stale(path: Path) -> BinaryIO:
        nonlocal left
        left -= 1
        if left >= 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return open_file(path)

    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        with ResultStore(tmp_path) as other, monkeypatch.context() as patch:
            patch.setattr(parts_module, "open_file", stale)
            store.append([row(2)])
            assert [found["data_count"] for found in other.refresh()] == [2]
            store.append([row(3)])
            left = 1_000
            with pytest.raises(StoreError, match=r"cannot read the rows in .*: Stale file handle"):
                other.refresh()
            left = 0
            assert [found["data_count"] for found in other.refresh()] == [3]
            assert [found["data_count"] for found in other.rows()] == [1, 2, 3]
            assert [*store.notices, *other.notices] == []
    assert list((tmp_path / "set-aside").glob("*")) == []
    MeasureTable(tmp_path).save(KEY, "images", 1, MEASURE)
    left = 3
    monkeypatch.setattr(parts_module, "open_file", stale)
    assert MeasureTable(tmp_path).known() == {(KEY, "images", 1)}


def test_a_disk_that_cannot_sync_folders_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, code = os.fsync, errno.EINVAL

    def of_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    with ResultStore(tmp_path / "s") as store:
        store.append([row(1)])
        code = errno.EIO
        with pytest.raises(StoreError, match="Input/output error"):
            store.save_checkpoint(KEY, b"c")
    assert len(plain_keys(tmp_path / "s")) == 1


def test_who_waits_for_a_process_that_was_stopped_as_it_wrote_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"""
from pathlib import Path
from orchestrator.store.locks import StoreLocks
with StoreLocks.open(Path({str(tmp_path / ".lock")!r})).appending():
    print("holds", flush=True)
    input()
"""
    monkeypatch.setattr("orchestrator.store.locks.SLOW_SECONDS", 0.2)
    told = list[str]()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "holds\n"

        def tell(text: str) -> None:
            told.append(text)
            assert other.stdin is not None
            other.stdin.write("go on\n")
            other.stdin.flush()

        folder = Folder(tmp_path, tell=tell)
        with folder.locks.appending():
            assert len(told) == 1
        with folder.locks.appending():
            time.sleep(0.4)
    assert told == [one for one in told if f"another process has been writing to {tmp_path} for" in one and "Ctrl-Z" in one]
    assert len(told) == 1, "nothing is said where there is no wait"
    folder.close()


def test_a_file_of_which_the_system_takes_a_part_only_replaces_nothing(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1)])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
        try:
            with pytest.raises(StoreError, match="File too large"):
                store.append([row(2)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert plain_keys(tmp_path) == [row(1)["key"]]
        assert len(store.append([row(2)])) == 1


def test_the_folders_of_a_new_store_are_durable_before_its_first_row_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, synced = os.fsync, set[str]()

    def log_sync(descriptor: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", log_sync)
    with ResultStore(tmp_path / "a" / "s") as store:
        store.append([row(1)])
    assert synced >= {str(tmp_path / place) for place in (".", "a", "a/s", "a/s/runs")}
