"""A store in a bucket keeps what one in a folder keeps, for several machines, against a real S3 server that is made to fail."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import pwd
import random
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import Server, child, get, hear, names, plain_keys, put, say
from pyarrow import fs
from spoil import change, first
from store_child import row
from test_store import counts

import orchestrator.launch as launch_module
import orchestrator.scaling as scaling
import orchestrator.store.leases as leases_module
import orchestrator.store.remote as remote_module
import orchestrator.store.turns as turns_module
from orchestrator.command.cli import run
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.store import Artifacts, MeasureTable, ResultStore, StoreError
from orchestrator.store.bucket import Bucket
from orchestrator.store.measures import encode
from orchestrator.store.parts import grown, parquet_bytes
from orchestrator.store.remote import Remote, RemoteError
from orchestrator.store.rows import SCHEMAS, make_row
from orchestrator.store.rows import encode as encode_rows
from tests.conftest import Command, trained_by
from tests.toy import threshold


def keys(numbers: range | list[int]) -> list[str]:
    return sorted(row(i)["key"] for i in numbers)


def test_rows_are_in_the_bucket_once_and_the_copy_here_may_be_deleted(server: Server, uri: str, tmp_path: Path) -> None:
    with ResultStore(uri) as store:
        assert str(store.location) == uri
        assert store.path.is_relative_to(tmp_path / "a" / "sweep-orchestrator")
        assert counts(store.append([row(1), row(2), row(1, accuracy=0.0)])) == [1, 2]
        assert counts(store.append([row(2), row(3)])) == [3]
        assert row(3)["key"] in store
        assert row(4)["key"] not in store
        mirror = store.path
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])
    assert names(server, uri, "launches") == []
    shutil.rmtree(mirror)
    with ResultStore(uri) as store:
        assert store.rows() == [row(1), row(2), row(3)]
        assert counts(store.append([row(i) for i in (2, 4)])) == [4]
    assert sorted(plain_keys(uri)) == keys([1, 2, 3, 4])
    assert len(names(server, uri)) == 2
    with ResultStore(Path(uri), read_only=True) as store:  # as some command line may give it
        assert counts(store.rows(where={"data_count": [2, 4]})) == [2, 4]


def test_a_machine_extends_its_own_part_and_leaves_those_of_others(server: Server, uri: str, on: Callable[[str], None]) -> None:
    for launch in range(6):
        on("ab"[launch % 2])
        with ResultStore(uri) as store:
            store.append([row(3 * launch + i) for i in range(3)])
            assert len(store) == 3 * launch + 3
    assert len(names(server, uri)) == 2
    assert sorted(plain_keys(uri)) == keys(range(18))


def test_a_copy_of_a_mirror_is_another_machine(server: Server, uri: str, tmp_path: Path, on: Callable[[str], None]) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        shutil.copytree(tmp_path / "a", tmp_path / "image", symlinks=True)
        on("image")
        with ResultStore(uri) as copy:
            copy.append([row(2)])
            store.append([row(3)])
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])
    assert len(names(server, uri)) == 2


def test_who_reads_a_part_while_it_is_extended_reads_on(server: Server, uri: str) -> None:
    def data(count: int) -> pa.Table:
        return encode_rows([row(i) for i in range(count)])

    versions = [parquet_bytes(data(1))]
    for count in range(2, 6):
        versions.append(grown(versions[-1], data(count)))
        assert versions[-1].startswith(versions[-2])
        assert pq.read_table(pa.BufferReader(versions[-1])).equals(data(count))
    with ResultStore(uri) as store:
        store.append([row(0)])
        (name,) = names(server, uri)
        with fs.FileSystem.from_uri(uri)[0].open_input_file(f"{uri[5:]}/runs/{name}") as former:
            size = former.size()
            for i in range(1, 5):
                store.append([row(i)])
            assert len(get(server, uri, f"runs/{name}")) > size
            assert pq.read_table(former).num_rows == 1
    assert sorted(plain_keys(uri)) == keys(range(5))


@pytest.mark.usefixtures("small_parts")
def test_parts_fill_and_many_rows_go_to_parts_of_their_own(server: Server, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "WHOLE", 20_000)
    with ResultStore(uri) as store:
        for i in range(25):
            store.append([row(i)])
        store.append([row(i) for i in range(100)])
        assert counts(store.rows()) == list(range(100))
    assert len(names(server, uri)) == 4
    assert sorted(plain_keys(uri)) == keys(range(100))
    with ResultStore(uri) as store:
        assert len(store._register.index.parts) == 3
        assert counts(store.append([row(i) for i in range(95, 105)])) == list(range(100, 105))
    assert sorted(plain_keys(uri)) == keys(range(105))


def test_rows_of_another_machine_are_reported_once(uri: str, on: Callable[[str], None]) -> None:
    with ResultStore(uri) as ours:
        on("b")
        with ResultStore(uri) as theirs, ResultStore(uri, read_only=True) as reader:
            ours.append([row(0)])
            theirs.append([row(1), row(2)])
            assert counts(ours.append([row(2), row(3)])) == [3]
            theirs.append([row(4)])
            assert counts(ours.refresh()) == [1, 2, 4]
            assert ours.refresh() == []
            assert counts(theirs.rows()) == [0, 1, 2, 3, 4]
            assert theirs.refresh() == []
            assert counts(reader.refresh()) == [0, 1, 2, 3, 4]
    assert sorted(plain_keys(uri)) == keys(range(5))


def soon(what: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not (done := what()) and time.monotonic() < end:
        time.sleep(0.02)
    return done


def test_a_claim_holds_among_machines_until_it_is_released_or_expires(
    server: Server, uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as store, ResultStore(uri) as sibling:
        on("b")
        with ResultStore(uri) as other, MeasureTable(uri) as table:
            assert store.claim("k1") is store.claim("k1") is True
            assert sibling.claim("k1") is other.claim("k1") is False
            assert table.claim("k1") is True  # of its measures
            store.release("k1")
            store.release("k1")
            assert soon(lambda: other.claim("k1"))
            assert store.claim("k1") is False
            assert store.claim("k2") is True
        assert store.claim("k1") is True
        with child("claim", uri) as doomed:
            say(doomed, "k3")
            assert hear(doomed) == "True"
            doomed.kill()
            doomed.wait()
            assert store.claim("k3") is False
            ResultStore(uri).close()  # the next launch there knows that the former is dead
            assert store.claim("k3") is True
        with child("claim", uri) as doomed:
            say(doomed, "k4")
            assert hear(doomed) == "True"
            doomed.kill()
            doomed.wait()
            assert store.claim("k4") is False
            monkeypatch.setattr(leases_module, "LEASE_SECONDS", 2.0)
            assert soon(lambda: store.claim("k4"))
    assert [name for name in names(server, uri, "launches") if name.endswith(("k1", "k2"))] == []


def claimed_at_once(a: ResultStore, b: ResultStore, key: str) -> tuple[bool, bool]:
    """Which of the two got the claim that both ask for at the same time."""
    barrier = threading.Barrier(2)

    def claim(store: ResultStore) -> bool:
        barrier.wait()
        return store.claim(key)

    with ThreadPoolExecutor(2) as pool:
        of_a, of_b = pool.map(claim, (a, b))
    return of_a, of_b


def test_of_two_that_claim_at_once_at_most_one_has_it(uri: str, on: Callable[[str], None]) -> None:
    with ResultStore(uri) as a:
        on("b")
        with ResultStore(uri) as b:
            both = 0
            for i in range(20):
                got = claimed_at_once(a, b, f"k{i}")
                assert got != (True, True)
                both += got == (False, False)
            assert both < 20


def test_of_two_that_claim_many_at_once_at_most_one_has_each(uri: str, on: Callable[[str], None]) -> None:
    with ResultStore(uri) as a:
        on("b")
        with ResultStore(uri) as b, ThreadPoolExecutor(2) as pool:
            for i in range(5):
                names, barrier = [f"{i} {j}" for j in range(20)], threading.Barrier(2)

                def claim(store: ResultStore, names: list[str] = names, barrier: threading.Barrier = barrier) -> list[str]:
                    barrier.wait()
                    return store.claim_all(names)

                of_a, of_b = pool.map(claim, (a, b))
                assert not set(of_a) & set(of_b)
                assert a.claim_all(of_a) == of_a  # still
                for name in of_a:
                    a.release(name)
                rest = [name for name in names if name not in of_b]
                assert soon(lambda rest=rest: set(b.claim_all(rest)) == set(rest))  # type: ignore[misc]


def test_claims_that_were_lost_are_made_again_together(server: Server, uri: str, on: Callable[[str], None]) -> None:
    names_of = [f"k{i}" for i in range(30)]
    with ResultStore(uri) as sleeper:
        assert sleeper.claim_all(names_of) == names_of
        on("b")
        with ResultStore(uri) as other:
            put_to_sleep(sleeper)
            assert soon(lambda: other.claim("k3"))
            server.requests()
            sleeper.place.lease.hold()
            requests = server.requests()
            assert (requests.count("PUT launches"), requests.count("GET launches")) == (31, 1)
            assert sleeper.place.lease.held == set(names_of) - {"k3"}
            assert other.claim_all(names_of) == ["k3"]


def test_rows_of_runs_that_another_machine_has_claimed_are_left_to_it(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, two) = (row(1)["key"], row(2)["key"])
    with ResultStore(uri) as sleeper:
        on("b")
        with ResultStore(uri) as other:
            assert sleeper.claim(one)
            assert sleeper.claim(two)
            assert counts(other.append([row(1), row(3)])) == [3]
            put_to_sleep(sleeper)
            assert soon(lambda: other.claim(one))  # as the lease has expired
            assert counts(sleeper.append([row(1), row(2)])) == [2]
            assert counts(other.append([row(1), row(2)])) == [1]
            assert counts(sleeper.append([row(1), row(2)])) == []
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])


def test_a_run_that_failed_before_stays_one_to_try_while_another_machine_has_it(uri: str, on: Callable[[str], None]) -> None:
    key = row(1)["key"]
    with ResultStore(uri) as sleeper:
        sleeper.append([row(1, status="failed")])
        assert sleeper.retry_failed() == 1
        assert sleeper.claim(key)
        on("b")
        with ResultStore(uri) as other:
            put_to_sleep(sleeper)
            assert soon(lambda: other.claim(key))
            assert sleeper.append([row(1)]) == []
            assert (sleeper.known([key]), sleeper.rows()) == (set(), []), "what failed before is not how this try has ended"
            other.retry_failed()
            assert counts(other.append([row(1)])) == [1]
        assert [one["status"] for one in sleeper.rows()] == ["passed"]


def test_a_claim_asked_for_in_vain_keeps_nobody_from_writing(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as store:
        on("b")
        with ResultStore(uri) as other:
            monkeypatch.setattr(other.place.lease, "_tidy", lambda: None)
            assert store.claim(row(1)["key"])
            assert other.claim(row(1)["key"]) is False
            assert counts(store.append([row(1), row(2)])) == [1, 2]
    assert sorted(plain_keys(uri)) == keys([1, 2])


def put_to_sleep(store: ResultStore) -> None:
    """As if its process had been stopped until its lease expired."""
    lease = store.place.lease
    lease._renewed = (-1e9, 0.0)
    store.place.remote.delete_folder(lease._folder)


def test_machines_writing_the_same_rows_at_once_lose_and_double_none(uri: str, on: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as stack:
        writers = []
        for i, (low, high) in enumerate([(0, 12), (6, 18), (12, 24), (0, 24)]):
            on("aabc"[i])
            writers.append(stack.enter_context(child("write", uri, i, low, high)))
        assert [hear(w) for w in writers] == ["ready"] * 4
        for w in writers:
            say(w, "go")
        reads = 0
        while any(w.poll() is None for w in writers):
            with contextlib.suppress(FileNotFoundError):
                found = plain_keys(uri)
                assert len(set(found)) == len(found)
                reads += 1
        assert reads > 3
        assert sum(int(hear(w)) for w in writers) == 24
        assert [w.returncode for w in writers] == [0] * 4
    assert sorted(plain_keys(uri)) == keys(range(24))


def test_machines_that_share_a_study_do_each_run_once(uri: str, on: Callable[[str], None]) -> None:
    with contextlib.ExitStack() as stack:
        workers = []
        for i in range(3):
            on("abc"[i])
            workers.append(stack.enter_context(child("work", uri, i, 16)))
        assert [hear(w) for w in workers] == ["ready"] * 3
        for w in workers:
            say(w, "go")
        seen = 0
        while any(w.poll() is None for w in workers):
            with contextlib.suppress(FileNotFoundError):
                found = plain_keys(uri)
                assert len(set(found)) == len(found) >= seen
                seen = len(found)
        done = [i for w in workers for i in json.loads(hear(w))]
    assert sorted(done) == list(range(16))
    assert sorted(plain_keys(uri)) == keys(range(16))


def test_kill_at_any_instant_keeps_what_was_acknowledged(server: Server, uri: str, tmp_path: Path) -> None:
    log = tmp_path / "acknowledged"
    log.touch()
    chance, seen, reads, kills = random.Random(0), 0, 0, 15
    with child("nursery", uri, log) as nursery:
        for kill in range(kills):
            say(nursery, 10_000 * kill)
            pid, before = int(hear(nursery)), log.stat().st_size
            while log.stat().st_size == before:
                time.sleep(0.001)  # until the child is at work
            killer = threading.Timer(chance.uniform(0, 0.1), os.kill, (pid, signal.SIGKILL))
            killer.start()
            while killer.is_alive():
                acknowledged = log.read_text().split()
                found = plain_keys(uri)
                assert len(set(found)) == len(found) >= seen
                assert set(acknowledged) <= set(found)
                seen, reads = len(found), reads + 1
            killer.join()
            assert int(hear(nursery)) == -signal.SIGKILL
    found = plain_keys(uri)
    assert set(log.read_text().split()) <= set(found)
    assert len(set(found)) == len(found) >= seen
    assert reads >= kills / 2
    with ResultStore(uri) as store:
        assert store.notices == []
        assert sorted(r["key"] for r in store.rows()) == sorted(found)
    assert names(server, uri, "launches") == []


@pytest.mark.parametrize("step", ["put", "find", "replace"])
def test_a_launch_that_dies_at_any_step_of_a_writing_costs_no_row(
    server: Server, uri: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class DeathError(BaseException):
        pass

    with ResultStore(uri) as store:
        store.append([row(1)])
        place = Path if step == "replace" else store.place.remote
        former = getattr(place, step)

        def dies(*given: object) -> object:
            if any("runs" in str(argument) for argument in given):
                raise DeathError
            return former(*given)

        with monkeypatch.context() as patch:
            patch.setattr(place, step, dies)
            with pytest.raises(DeathError):
                store.append([row(2)])
    with ResultStore(uri) as store:
        assert counts(store.rows()) == ([1] if step == "put" else [1, 2])
        assert counts(store.append([row(2), row(3)])) == ([2, 3] if step == "put" else [3])
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])
    assert len(names(server, uri)) == 2  # an upload of the first part may yet take effect


@pytest.mark.parametrize(("fault", "words"), [("403", "denies access to bucket-"), ("500", "answers: .*INTERNAL_FAILURE")])
def test_an_upload_that_fails_leaves_what_was_and_the_append_can_be_repeated(
    server: Server, uri: str, fault: str, words: str
) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        before = [get(server, uri, f"runs/{name}") for name in names(server, uri)]
        with server.failing(f"{fault} PUT .*/runs/"):
            for _ in range(2):
                with pytest.raises(StoreError, match=words) as caught:
                    store.append([row(2)])
                assert str(caught.value).startswith(f"cannot append results in {uri}: ")
                assert "\n" not in str(caught.value)
            assert store.refresh() == []
        assert [get(server, uri, f"runs/{name}") for name in names(server, uri)] == before
        assert counts(store.append([row(3)])) == [3]
        assert counts(store.refresh()) == [2]
        assert counts(store.append([row(2), row(4)])) == [4]
    assert sorted(plain_keys(uri)) == keys([1, 2, 3, 4])


def test_an_upload_that_needs_a_second_attempt_closes_its_part(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        attempts = iter([OSError("AWS Error NETWORK_CONNECTION"), None])
        once = store.place.remote._put_once

        def fails_first(path: str, data: bytes) -> None:
            once(path, data)
            if "/runs/" in path and (error := next(attempts, None)) is not None:
                raise error

        store.place.remote._put_once = fails_first
        assert counts(store.append([row(2)])) == [2]
        assert len(names(server, uri)) == 1
        assert counts(store.append([row(3)])) == [3]
        assert len(names(server, uri)) == 2
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])


@pytest.mark.parametrize("fault", ["POST .*uploads", "partNumber=1", "partNumber=2", "POST .*uploadId"])
def test_a_large_upload_that_fails_at_any_request_leaves_what_was(
    server: Server, uri: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    remote = Remote(uri)
    assert remote.put("weights/k", b"former")
    with server.failing(f"403 {fault}"), pytest.raises(RemoteError, match="denies access"):
        remote.put("weights/k", bytes(21 << 20))
    assert remote.get("weights/k") == b"former"
    monkeypatch.setattr(remote_module, "WHOLE", 0)
    assert remote.put("weights/k", b"later")
    assert remote.get("weights/k") == b"later"


def test_a_lease_does_not_wait_for_the_uploads_of_others(server: Server, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = functools.partial(fs.S3FileSystem, request_timeout=600)  # else a client gives up requests that are held long
    monkeypatch.setattr(fs, "S3FileSystem", patient)
    monkeypatch.setattr(remote_module, "WHOLE", 1)
    remote, uploads = Remote(uri), range(2 * remote_module.AT_ONCE)
    for name in ("lease", "claim=x", "claim=y"):
        remote.put(f"launches/a/{name}", b"")

    def renew() -> None:
        remote.put("launches/a/lease", b"")
        assert set(remote.list("launches/a", deep=True)) == {"lease", "claim=x", "claim=y"}
        remote.delete(["launches/a/claim=x", "launches/a/claim=y"])
        remote.soon(lambda name: remote.put(f"launches/a/claim={name}", b""), ["v", "w"])

    with ThreadPoolExecutor(2) as pool, server.failing("held PUT .*/weights/"):
        saving = pool.submit(remote.each, lambda i: remote.put(f"weights/{i}", b"large"), uploads)
        begun = list[str]()
        while begun.count("POST weights") < remote_module.AT_ONCE:
            begun += server.requests()
        pool.submit(renew).result(timeout=60)
        assert sorted(names(server, uri, "launches/a")) == ["claim=v", "claim=w", "lease"]
        assert names(server, uri, "weights") == []
        assert not saving.done()
    assert saving.result() == [True] * len(uploads)


def test_damaged_and_foreign_objects_are_set_aside_and_named(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        mirror = store.path
    (whole,) = names(server, uri)
    data = get(server, uri, f"runs/{whole}")
    put(server, uri, "set-aside/cut.parquet", b"an earlier one")
    bad = {"cut.parquet": data[: len(data) // 2], "empty.parquet": b"", "notes.txt": b"mine"}
    for name, content in bad.items():
        put(server, uri, f"runs/{name}", content)
    server.requests()
    with ResultStore(uri, read_only=True) as reader:
        assert counts(reader.rows()) == [1]
        assert sorted(reader.notices)[0].startswith(f"left out {uri}/runs/cut.parquet: it is damaged")
        assert len(reader.notices) == 3
    assert {request.split()[0] for request in server.requests()} == {"GET", "HEAD"}
    time_of_whole = (mirror / "runs" / whole).stat().st_mtime_ns
    (mirror / "runs" / whole).write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    os.utime(mirror / "runs" / whole, ns=(time_of_whole, time_of_whole))
    with ResultStore(uri) as store:
        assert counts(store.rows()) == [1]  # damage to the copy is mended from the bucket
        assert names(server, uri) == [whole]
        for name in bad:
            (notice,) = [n for n in store.notices if f"{uri}/runs/{name}" in n]
            assert f"{uri}/set-aside/{name}" in notice
    assert get(server, uri, "set-aside/cut.parquet") == b"an earlier one"
    assert get(server, uri, "set-aside/cut.parquet.1") == bad["cut.parquet"]
    assert len(plain_keys(uri)) == 1


@pytest.mark.parametrize("machine", ["a", "b"])
def test_a_forged_row_makes_way_for_good(
    server: Server, uri: str, tmp_path: Path, on: Callable[[str], None], machine: str
) -> None:
    with ResultStore(uri) as store:
        store.append([row(1), row(2)])
    (part,) = names(server, uri)
    forged = tmp_path / "forged.parquet"
    forged.write_bytes(get(server, uri, f"runs/{part}"))
    change(forged, first("seed", 7))
    put(server, uri, f"runs/{part}", forged.read_bytes())
    on(machine)
    with ResultStore(uri) as store:
        assert counts(store.rows()) == [2]
        assert counts(store.append([row(1)])) == [1]
        assert counts(store.rows()) == [1, 2]
        assert [f"{uri}/runs/{part}: {row(1)['key']} has a key" in notice for notice in store.notices] == [True, True]
    with ResultStore(uri) as store:
        assert sorted(store.rows(), key=lambda r: r["data_count"]) == [row(1), row(2)]
        # Machine `a` extended the part, and wrote it without the row. `b` may not: the second launch finds the key twice.
        assert [f"{uri}/runs/{part}" in notice for notice in store.notices] == ([] if machine == "a" else [True])
        if machine == "b":
            assert get(server, uri, f"set-aside/{part}") == forged.read_bytes()
    with ResultStore(uri) as store:
        assert store.notices == []
        assert counts(store.rows()) == [1, 2]
    assert sorted(plain_keys(uri)) == keys([1, 2])


def test_parts_copied_in_from_another_store_are_merged_without_doubles(
    server: Server, uri: str, on: Callable[[str], None]
) -> None:
    with ResultStore(uri) as store:
        store.append([row(1), row(2)])
    with ResultStore(f"{uri}-other") as store:
        store.append([row(2), row(3)])
    (copied,) = names(server, f"{uri}-other")
    data = get(server, f"{uri}-other", f"runs/{copied}")
    put(server, uri, f"runs/z-{copied}", data)
    on("b")
    with ResultStore(uri) as store:
        assert counts(store.rows()) == [1, 2, 3]
        assert "1 of its rows is in other files already" in store.notices[0]
        put(server, uri, "runs/twin.parquet", data)
        assert store.refresh() == []
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])
    assert get(server, uri, f"set-aside/z-{copied}") == data
    assert names(server, uri, "launches") == []


def test_a_newer_schema_is_refused_and_an_older_one_extended(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
    (part,) = names(server, uri)
    table = pq.read_table(pa.BufferReader(get(server, uri, f"runs/{part}")))
    older = pa.BufferOutputStream()
    pq.write_table(pa.table(table.select(SCHEMAS[1].names).columns, schema=SCHEMAS[1]), older)
    put(server, uri, f"runs/{part}", older.getvalue().to_pybytes())
    with ResultStore(uri) as store:
        assert counts(store.append([row(1), row(2)])) == [2]
    assert names(server, uri) == [part]
    newer = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": ["k"]}).replace_schema_metadata({"orchestrator.schema": "5"}), newer)
    put(server, uri, "runs/new.parquet", newer.getvalue().to_pybytes())
    put(server, uri, "runs/aaa.parquet", b"")
    for read_only in (False, True):
        with pytest.raises(StoreError, match=f"{uri}/runs/new.parquet has rows of schema 5, but this program knows only"):
            ResultStore(uri, read_only=read_only)
    assert names(server, uri) == ["aaa.parquet", "new.parquet", part]


def test_reading_writes_nothing_to_the_bucket(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        store.save_weights("k", b"w")
    server.requests()
    with ResultStore(uri, read_only=True) as reader, MeasureTable(uri) as table:
        assert counts(reader.rows()) == [1]
        assert table.known() == set()
        assert reader.weights_path("k").read_bytes() == b"w"
        for work in (lambda: reader.append([row(2)]), lambda: reader.claim("k"), lambda: reader.save_weights("k", b"")):
            with pytest.raises(StoreError, match=f"{uri}: it was opened for reading only"):
                work()
    assert {request.split()[0] for request in server.requests()} == {"GET", "HEAD"}


def test_weights_checkpoints_pack_sizes_and_figures(
    server: Server, uri: str, on: Callable[[str], None], tmp_path: Path
) -> None:
    with ResultStore(uri) as store:
        assert store.load_checkpoint("k") is None
        store.save_checkpoint("k", b"one")
        store.save_weights("k", b"first")
        store.save_pack_sizes({"shape": 4})
        files = [tmp_path / "out" / "figures" / "a.png", tmp_path / "b.csv"]
        files[0].parent.mkdir(parents=True)
        for file in files:
            file.write_bytes(file.name.encode())
        shown = store.publish("scaling", [tmp_path / "out", files[1]])
        assert shown == [f"{uri}/scaling/figures/a.png", f"{uri}/scaling/b.csv"]
        assert get(server, uri, "scaling/figures/a.png") == b"a.png"
        with Artifacts(tmp_path / "folder") as local:
            assert local.publish("scaling", [tmp_path / "out", files[1]]) == [str(file) for file in files]
        on("b")
        with Artifacts(uri) as other:
            assert other.load_checkpoint("k") == b"one"
            assert other.load_pack_sizes() == {"shape": 4}
            assert other.with_weights() == {"k"}
            assert other.load_weights("k") == other.weights_path("k").read_bytes() == b"first"
            store.save_weights("k", b"second")
            assert other.load_weights("k") == other.weights_path("k").read_bytes() == b"second"
            assert not other.weights_path("none").exists()
            with pytest.raises(FileNotFoundError):
                other.load_weights("none")
            other.drop_checkpoint("k")
            other.drop_checkpoint("k")
        assert store.load_checkpoint("k") is None
        server.requests()
        store.drop_checkpoint("k")  # there is none, as it knows
        assert server.requests() == []


def test_measures_are_shared(server: Server, uri: str, on: Callable[[str], None]) -> None:
    key = "f" * 24
    data = encode(key, "images", 1, [], 1.0)
    with MeasureTable(uri) as table:
        assert not table.has(key, "images", 1)
        table.save(key, "images", 1, data)
        table.save(key, "images", 2, encode(key, "images", 2, [], 1.0))
    put(server, uri, "measures/stray.parquet", b"stray")
    on("b")
    with MeasureTable(uri) as table:
        assert table.known() == {(key, "images", 2)}
        assert table.has(key, "images", 2)
        assert table.notices[0].startswith(f"set aside {uri}/measures/stray.parquet")
    assert names(server, uri, "measures") == [f"{key}.images-2.parquet"]
    assert get(server, uri, "set-aside/stray.parquet") == b"stray"


def test_what_a_run_costs_in_requests(server: Server, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "PULL_EVERY", 60.0)
    with ResultStore(uri) as store:
        for i in range(3):
            time.sleep(0.3)  # what is given back is removed behind the scenes
            server.requests()
            key = row(i)["key"]
            assert store.claim(key)
            store.refresh()
            store.append([row(i)])
            spent = server.requests()
            store.release(key)
    assert spent == ["PUT launches", "GET launches", "GET runs", "PUT runs", "HEAD runs"]


def test_a_checkpoint_that_there_is_not_is_looked_for_once(server: Server, uri: str) -> None:
    with Artifacts(uri) as store:
        server.requests()
        assert store.load_checkpoint("k") is None
        store.drop_checkpoint("k")
        assert server.requests() == ["HEAD checkpoints", "GET checkpoints"]  # as a folder might have the name
        store.save_checkpoint("k", b"one")
        assert store.load_checkpoint("k") == b"one"
        store.drop_checkpoint("k")
        assert store.load_checkpoint("k") is None


@pytest.mark.parametrize("read_only", [False, True])
def test_a_bucket_that_cannot_be_used_is_one_line_and_soon(
    server: Server, uri: str, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    def refused(place: str, words: str) -> None:
        began = time.monotonic()
        with pytest.raises(StoreError, match=words) as caught:
            ResultStore(place, read_only=read_only)
        assert time.monotonic() - began < 30
        assert str(caught.value).startswith(f"cannot open the store in {place}: ")
        assert "\n" not in str(caught.value)

    refused("s3://no-such-bucket/s", "the bucket no-such-bucket does not exist: create it first")
    with server.failing("403 ."):
        told = "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for an account that may read, write, list and delete in it"
        clock = "see also that the clock of this machine is right"
        server.requests()
        refused(uri, f"denies access to bucket-.*: set AWS_ACCESS_KEY_ID {told}; {clock}")
        assert len(server.requests()) <= 2, "a denial is tried once more, and no more often"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    refused(uri, "http://127.0.0.1:9 does not answer: check the network, AWS_ENDPOINT_URL and AWS_REGION")


@pytest.mark.parametrize(
    ("place", "instead"),
    [
        ("s3://bucket/./x", "s3://bucket/x"),
        ("s3://bucket/a/../x", "s3://bucket/x"),
        ("s3://bucket/..", "s3://bucket"),
        ("gs://bucket/a/b/../.", "gs://bucket/a"),
    ],
)
def test_a_path_with_dots_is_refused(place: str, instead: str) -> None:
    with pytest.raises(StoreError, match=r"no steps \. and \.\., so give ") as caught:
        ResultStore(place)
    assert str(caught.value).endswith(f"so give {instead}")


@pytest.mark.parametrize("place", ["s3://bucket/new\nline", "s3://bucket\n", "gs://bucket/\x1b[2J", "s3://bucket/x?region=a\nb"])
def test_a_place_that_cannot_be_printed_is_refused(place: str) -> None:
    with pytest.raises(StoreError, match=r"it has characters that cannot be printed, such as '\\(n|x1b)'") as caught:
        ResultStore(place)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("place", ["s3://AKIA:verysecret@bucket/x", "s3://AKIA:very/secret@bucket", "s3://verysecret@bucket/x"])
def test_keys_in_the_name_of_a_store_are_not_repeated(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE") as caught:
        ResultStore(place)
    said = f"{caught.value}{capfd.readouterr()}"
    assert not any(word in said for word in ("AKIA", "very", "secret@"))
    with pytest.raises(StoreError, match="not one with @ in it"):
        ResultStore(place.upper())


def test_objects_with_names_that_no_file_can_have_are_left_out_and_named(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
    (whole,) = names(server, uri)
    odd = ["x" * 230 + ".parquet", "ü" * 110, "x" * 900]
    for name in odd:
        put(server, uri, f"runs/{name}", get(server, uri, f"runs/{whole}"))
    for read_only in (True, False):
        with ResultStore(uri, read_only=read_only) as store:
            assert counts(store.rows()) == [1]
            assert [sum(f"left out {uri}/runs/{name}: " in notice for notice in store.notices) for name in odd] == [1, 1, 1]
            if not read_only:
                store.append([row(2)])
    assert set(odd) < set(names(server, uri))


@pytest.mark.parametrize("odd", ["..", "."])
def test_an_object_that_is_named_like_a_folder_is_left_out(uri: str, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
    listed = Remote.list
    monkeypatch.setattr(Remote, "list", lambda *given, **how: {**listed(*given, **how), odd: (1, 1)})
    with ResultStore(uri) as store:
        assert counts(store.rows()) == [1]
        assert any(notice.startswith(f"left out {uri}/runs/{odd}: ") for notice in store.notices)


def test_without_a_home_the_copy_is_where_nobody_else_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"sweep-orchestrator-{os.getuid()}"
    for _ in range(2):
        assert Remote("s3://b/r?region=eu-west-1").mirror.parent == folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def refused(uri: str = "s3://b/r?region=eu-west-1") -> None:
        with pytest.raises(StoreError) as caught:
            Bucket(uri)
        told = f"{folder} is no folder that you alone may enter: set XDG_CACHE_HOME to one that is"
        assert str(caught.value) == f"cannot open the store in {uri}: {told}"

    folder.chmod(0o755)
    refused()
    folder.chmod(0o700)
    folder.rmdir()
    (tmp_path / "private").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "private")
    refused()
    other = os.getuid() + 1
    folder = tmp_path / f"sweep-orchestrator-{other}"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: other)
    refused()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Remote("s3://b/r?region=eu-west-1").mirror.parent == tmp_path / "sweep-orchestrator"


def test_a_copy_that_cannot_be_made_is_told_with_the_variable_that_names_its_place(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for home, why in ((tmp_path / "file", "File exists"), (Path("/proc/1/nothing"), "No such file or directory")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        with pytest.raises(StoreError) as caught:
            ResultStore(uri)
        told, _, hint = str(caught.value).partition("; ")
        assert told.startswith(f"cannot open the store in the copy of {uri}, {home}/sweep-orchestrator/")
        assert told.endswith(f": {why}")
        assert hint == "set XDG_CACHE_HOME to a folder that you can write to"


@pytest.mark.parametrize(
    ("number", "action", "hint"),
    [
        (errno.EROFS, "open the store", "set XDG_CACHE_HOME to a folder that you can write to"),
        (errno.EACCES, "append results", "set XDG_CACHE_HOME to a folder that you can write to"),
        (errno.ENOLCK, "open the store", "file locks do not work there: set XDG_CACHE_HOME to a folder on another disk"),
        (errno.ENOENT, "append results", "the store was moved or removed while in use"),
        (errno.ENOSPC, "open the store", "free some space and run the same command again; everything saved before is intact"),
    ],
)
def test_what_the_disk_of_the_copy_refuses_is_told_with_what_helps(number: int, action: str, hint: str) -> None:
    place = Bucket("s3://b/r?region=eu-west-1")
    with pytest.raises(StoreError) as caught, place.in_words(action):
        raise OSError(number, os.strerror(number), str(place.path / "runs" / "a"))
    assert str(caught.value).startswith(f"cannot {action} in the copy of s3://b/r, {place.path}: ")
    assert str(caught.value).partition("; ")[2] == hint


def test_the_server_may_be_away_for_a_while(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        with server.failing("503 ."):
            for work in (lambda: store.append([row(2)]), lambda: store.save_weights("k", b"w"), store.refresh):
                with pytest.raises(StoreError, match=r"answers: .* run the same command again"):
                    work()
        assert counts(store.append([row(2)])) == [2]
    assert sorted(plain_keys(uri)) == keys([1, 2])


def claimed(server: Server, uri: str) -> set[str]:
    """The runs that launches have claimed and that have no row yet."""
    claims = {name.partition("/claim=")[2] for name in names(server, uri, "launches")}
    return claims - {"", *plain_keys(uri)}


def test_a_copy_that_is_removed_meanwhile_is_named_and_the_runs_are_said_to_be_kept(
    server: Server, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        while not execution.search.finished(execution.rows):
            (spec,) = execution.search.propose(execution.rows, 1)
            end = {"status": "passed", "reason": "target", "accuracy": 1.0}
            made = make_row(spec, steps=3, seconds=1.0, task_version="1", fixed_count=0, **end)
            execution.store.append([made])
            execution.rows.add(made)
        shutil.rmtree(execution.store.path)
        return execution.outcome

    words = ["--N", "8", "--seeds", "1", "--task", "tests.toy:Toy", "--store", uri]
    with monkeypatch.context() as patch:
        patch.setattr(launch_module, "executed", trained_by(execute))
        assert run(scaling.app, words) == 1
    told = capsys.readouterr().out
    why = f"the copy of {uri} on this machine was removed while in use; all finished runs are kept in the bucket"
    assert f"\nthe files could not be written: {why}; to continue: " in told
    assert "--out" not in told
    monkeypatch.setattr(launch_module, "executed", trained_by(lambda execution, *_: execution.outcome))
    assert run(scaling.app, words) == 0, "no run is missing"


@pytest.mark.slow(25)
def test_a_study_goes_on_from_the_bucket_alone(server: Server, uri: str, tmp_path: Path, here: Callable[..., Command]) -> None:
    options = ("--task", "tests.toy:Toy", "--N", "8,16", "--seeds", "2", "--max-steps", "3", "--resolution", "0.01")
    options = (*options, "--workers", "2", "--no-speculate", "--option", "pause=0.1", "--store", uri)
    first = here(*options, study="tests.orchestrator.short_lease")
    held: set[str] = set()
    while not held:
        first.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        assert first.process.poll() is None, first.stdout + first.stderr
        first.process.send_signal(signal.SIGSTOP)
        if names(server, uri) and len(plain_keys(uri)) >= 3:
            held = claimed(server, uri)
            time.sleep(0.1)
            held &= claimed(server, uri)  # no row of them was on its way
    killed_at = time.time()
    first.process.kill()
    assert first.wait() == -signal.SIGKILL
    before = set(plain_keys(uri))
    shutil.rmtree(tmp_path / "a")
    second = here(*options, study="tests.orchestrator.short_lease")
    assert second.wait() == 0, second.stdout + second.stderr
    assert before < set(plain_keys(uri))
    assert len(plain_keys(uri)) == len(set(plain_keys(uri)))
    ended = pd.read_parquet(f"{uri}/runs").set_index("key")["finished_at"]
    assert min(at.timestamp() for at in ended[sorted(held)]) > killed_at + 4, "it did not wait for the lease"
    table = pd.read_csv(io.BytesIO(get(server, uri, "scaling/scaling.csv")))
    assert [*table["threshold"]] == [threshold(N, seed) for N in (8, 16) for seed in (0, 1)]
    assert f"wrote {uri}/scaling/scaling.png" in second.stdout
    assert {"scaling.csv", "scaling.json", "scaling.png", "scaling.svg"} == set(names(server, uri, "scaling"))
    assert not (tmp_path / uri.partition(":")[0]).exists()


def test_who_appends_what_it_has_not_claimed_looks_first_however_lately_it_looked(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as store:
        store.append([row(9)])
        on("b")
        with ResultStore(uri) as other:
            other.append([row(1)])
            monkeypatch.setattr(turns_module, "PULL_EVERY", 600.0)
            assert store.append([row(1)]) == []
    assert len(plain_keys(uri)) == 2


def test_who_claims_again_under_a_new_lease_looks_first(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as sleeper:
        assert sleeper.claim(row(1)["key"])
        sleeper.refresh()
        on("b")
        with ResultStore(uri) as other:
            put_to_sleep(sleeper)
            assert soon(lambda: other.claim(row(1)["key"]))
            other.append([row(1)])
        monkeypatch.setattr(turns_module, "PULL_EVERY", 600.0)
        assert sleeper.append([row(1)]) == []
    assert len(plain_keys(uri)) == 1


def test_who_gets_a_claim_sees_what_the_former_holder_wrote(
    uri: str, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(uri) as store:
        on("b")
        with ResultStore(uri) as other:
            assert other.claim(row(1)["key"])
            monkeypatch.setattr(turns_module, "PULL_EVERY", 600.0)
            other.append([row(1)])
        assert store.claim(row(1)["key"])
        assert [found["data_count"] for found in store.refresh()] == [1]


def test_a_checkpoint_that_was_looked_for_saved_and_dropped_is_gone(uri: str, on: Callable[[str], None]) -> None:
    with ResultStore(uri) as store:
        assert store.load_checkpoint("k") is None
        store.save_checkpoint("k", b"one")
        store.drop_checkpoint("k")
        on("b")
        with ResultStore(uri) as other:
            assert other.load_checkpoint("k") is None


def test_an_append_that_failed_and_is_repeated_as_it_was_doubles_no_row(server: Server, uri: str) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        with server.failing("403 PUT .*/runs/"), pytest.raises(StoreError):
            store.append([row(2)])
        store.append([row(2)])
    assert sorted(plain_keys(uri)) == sorted(row(i)["key"] for i in (1, 2))
