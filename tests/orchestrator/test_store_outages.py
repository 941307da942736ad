"""A store in a bucket lives through what networks and servers do: nothing is lost, nothing doubled, no claim held by two."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pandas as pd
import pytest
from faulty_s3 import FaultyS3
from places import Server, child, get, hear, names, plain_keys, say
from store_child import row
from test_remote_store import claimed_at_once, keys, soon
from test_store import counts

import orchestrator.store.leases as leases_module
import orchestrator.store.remote as remote_module
from orchestrator.command.cli import run
from orchestrator.scaling import app
from orchestrator.store import ResultStore, StoreError
from orchestrator.store.remote import Remote, RemoteError
from tests.conftest import Command
from tests.toy import threshold

MODES = {"refused": 0.25, "denied": 0.3, "cut": 0.3, "short": 0.3}
TOY = ("--task", "tests.toy:Toy", "--N", "8,16", "--seeds", "2", "--max-steps", "3", "--resolution", "0.01", "--workers", "2")
TOY_THRESHOLDS = [threshold(N, seed) for N in (8, 16) for seed in (0, 1)]


@pytest.fixture
def faulty(server: Server, uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """What stands before the server for every store that is opened from now on, which has patience, but waits shortly."""
    proxy = FaultyS3(server.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setattr(remote_module, "PATIENCE", 30.0)
    monkeypatch.setattr(remote_module, "LONGEST_WAIT", 0.1)
    yield proxy
    if proxy.away_until < float("inf"):
        proxy.die()


def test_a_request_that_may_pass_is_repeated_for_minutes() -> None:
    assert remote_module.PATIENCE == 300
    assert remote_module.LONGEST_WAIT == 30


@pytest.mark.parametrize("hours", [-2.0, 2.0])
def test_a_clock_that_is_wrong_is_set_right_by_the_answer(uri: str, faulty: FaultyS3, hours: float) -> None:
    faulty.ahead = 3600 * hours
    with ResultStore(uri) as store:
        assert counts(store.append([row(1)])) == [1]
        store.save_weights("k", b"w")
        assert store.load_weights("k") == b"w"
        assert [found["key"] for found in store.rows(["key"])] == keys([1])


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_kept_once_each_whatever_fails(
    server: Server, uri: str, faulty: FaultyS3, on: Callable[[str], None], mode: str
) -> None:
    setattr(faulty, mode, MODES[mode])
    with ResultStore(uri) as a:
        on("b")
        with ResultStore(uri) as b:
            for i in range(0, 20, 2):
                assert a.claim(row(i)["key"])
                assert counts(a.append([row(i)])) == [i]
                a.release(row(i)["key"])
                assert counts(b.append([row(i), row(i + 1)])) == [i + 1]
            a.save_weights("k", b"w" * 100_000)
            assert b.load_weights("k") == b.weights_path("k").read_bytes() == b"w" * 100_000
            on("c")
            with ResultStore(uri) as c:
                assert sorted(c.rows(), key=lambda r: r["data_count"]) == [row(i) for i in range(20)]
                for store in (a, b, c):
                    assert store.notices == []
    assert faulty.faults > 10
    faulty.mend()
    assert sorted(plain_keys(uri)) == keys(range(20))
    assert names(server, uri, "set-aside") == []


@pytest.mark.parametrize("mode", MODES)
def test_of_two_that_claim_at_most_one_has_it_whatever_fails(
    uri: str, faulty: FaultyS3, on: Callable[[str], None], mode: str
) -> None:
    setattr(faulty, mode, MODES[mode])
    with ResultStore(uri) as a:
        on("b")
        with ResultStore(uri) as b:
            for i in range(24):
                assert claimed_at_once(a, b, f"k{i % 3}") != (True, True)
                a.release(f"k{i % 3}")
                b.release(f"k{i % 3}")
    assert faulty.faults > 5


@pytest.mark.parametrize("mode", ["refused", "denied"])
def test_machines_that_share_a_study_do_each_run_once_whatever_fails(
    uri: str, faulty: FaultyS3, on: Callable[[str], None], mode: str
) -> None:
    setattr(faulty, mode, MODES[mode] / 2)
    with contextlib.ExitStack() as stack:
        workers = []
        for i in range(3):
            on("abc"[i])
            workers.append(stack.enter_context(child("work", uri, i, 12)))
        assert [hear(w) for w in workers] == ["ready"] * 3
        for w in workers:
            say(w, "go")
        done = [i for w in workers for i in json.loads(hear(w))]
    faulty.mend()
    assert sorted(done) == list(range(12))
    assert sorted(plain_keys(uri)) == keys(range(12))
    assert faulty.faults > 5


def test_an_outage_is_waited_out_and_told_once(uri: str, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "TELL_AFTER", 0.3)
    told: list[str] = []
    with ResultStore(uri, tell=told.append) as store:
        store.append([row(1)])
        faulty.outage(1.5)
        began = time.monotonic()
        assert counts(store.append([row(2)])) == [2]
        assert 1.5 <= time.monotonic() - began < 15  # and has patience for 30
        assert 1.0 < store.waited < 15
        assert store.refresh() == []
    (away, back) = told
    assert re.fullmatch(rf"the store {uri} is not available; waiting for it, up to 0.5 min \({faulty.url} does not .*\)", away)
    assert re.fullmatch(rf"the store {uri} is available again, after \d+ s", back)
    assert sorted(plain_keys(uri)) == keys([1, 2])


def test_a_longer_outage_is_an_error_and_the_append_can_be_repeated(
    uri: str, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "TELL_AFTER", 0.3)
    monkeypatch.setattr(remote_module, "PATIENCE", 1.0)
    monkeypatch.setattr(remote_module, "BRIEF", 0.2)  # a claim that was just given back is tidied away after the append
    told: list[str] = []
    with ResultStore(uri, tell=told.append) as store:
        store.append([row(1)])
        faulty.outage(60)
        with pytest.raises(
            StoreError, match=r"does not answer: .*; after waiting 1 s for it, the study gives up: run"
        ) as caught:
            store.append([row(2)])
        assert caught.value.may_pass
        began = time.monotonic()
        with pytest.raises(StoreError):
            store.append([row(2)])
        assert time.monotonic() - began < 1  # the outage was waited for already
        assert len(told) == 1
        faulty.outage(0)
        assert counts(store.append([row(3)])) == [3]
        store.append([row(2)])
        assert len(told) == 2
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])


def test_a_launch_that_is_to_end_waits_no_longer(uri: str, faulty: FaultyS3) -> None:
    with ResultStore(uri) as store:
        store.append([row(1)])
        faulty.outage(60)
        threading.Timer(1.0, store.hasten).start()
        began = time.monotonic()
        with pytest.raises(StoreError, match="the study gives up"):
            store.append([row(2)])
        assert 1.0 <= time.monotonic() - began < 15
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("done", [False, True])
def test_what_a_launch_may_not_write_any_more_after_an_outage_is_left_to_others(
    server: Server, uri: str, faulty: FaultyS3, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """One machine is cut off in the middle of an upload, which the server has done, or not, until its lease has expired."""
    monkeypatch.setattr(leases_module, "LEASE_SECONDS", 2.0)
    with ResultStore(uri) as cut_off:
        on("b")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with ResultStore(uri) as other:
            for i in (1, 2):
                assert cut_off.claim(row(i)["key"])
            once, uploads, written = cut_off.place.remote._put_once, list[str](), list[int]()

            def upload(path: str, data: bytes) -> None:
                if "/runs/" in path:
                    uploads.append(path)
                if "/runs/" in path and len(uploads) == 1:
                    if done:
                        once(path, data)
                    faulty.outage(6)
                once(path, data)

            monkeypatch.setattr(cut_off.place.remote, "_put_once", upload)
            appending = threading.Thread(target=lambda: written.extend(counts(cut_off.append([row(1), row(2)]))))
            appending.start()
            assert soon(lambda: bool(uploads))
            assert soon(lambda: other.claim(row(1)["key"]), 5)
            assert counts(other.append([row(1)])) == ([] if done else [1])
            assert time.monotonic() < faulty.away_until
            other.release(row(1)["key"])
            appending.join(20)
            assert written == ([1, 2] if done else [2])
            assert cut_off.claim(row(2)["key"])
            assert counts(cut_off.append([row(3)])) == [3]
            assert sorted(r["data_count"] for r in other.rows()) == [1, 2, 3]
            assert cut_off.notices == other.notices == []
    assert sorted(plain_keys(uri)) == keys([1, 2, 3])


def test_a_claim_that_waits_out_an_outage_brings_back_none_that_was_lost_meanwhile(
    server: Server, uri: str, faulty: FaultyS3, on: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "LEASE_SECONDS", 2.0)
    one, two, three = (row(i)["key"] for i in (1, 2, 3))
    with ResultStore(uri) as cut_off:
        on("b")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with ResultStore(uri) as other:
            assert cut_off.claim(one)
            assert cut_off.claim(two)
            faulty.outage(6)
            got: list[bool] = []
            claiming = threading.Thread(target=lambda: got.append(cut_off.claim(three)))
            claiming.start()
            assert soon(lambda: other.claim(one), 5)
            assert time.monotonic() < faulty.away_until
            claiming.join(20)
            assert got == [True]
            assert cut_off.place.lease.held == {two, three}
            assert other.claim(two) is other.claim(three) is False
            assert counts(cut_off.append([row(1), row(2)])) == [2]
            assert counts(other.append([row(1), row(2)])) == [1]
    assert sorted(plain_keys(uri)) == keys([1, 2])


def test_a_claim_made_again_does_not_fall_to_a_removal_that_takes_effect_late(
    server: Server, uri: str, faulty: FaultyS3, on: Callable[[str], None]
) -> None:
    with ResultStore(uri) as store:
        assert store.claim("k")
        (former,) = [name for name in names(server, uri, "launches") if name.endswith("claim=k")]
        faulty.only, faulty.denied = "^DELETE .*claim", 1.0
        store.release("k")
        assert soon(lambda: faulty.faults > 0)
        time.sleep(0.1)
        faulty.denied = 0.0
        assert store.claim("k")
        place, prefix = uri.removeprefix("s3://").split("/", 1)
        server.client.delete_object(Bucket=place, Key=f"{prefix}/launches/{former}")
        on("b")
        with ResultStore(uri) as other:
            assert other.claim("k") is False


def test_what_is_read_is_whole_or_an_error(uri: str, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, data = Remote(uri), bytes(range(256)) * 40_000
    remote.put("w/small", data[:1000])
    assert len(data) > remote_module.WHOLE
    remote.put("w/large", data)  # in pieces: its ETag is no MD5
    for mode in ("cut", "short"):
        setattr(faulty, mode, 0.4)
        assert [remote.get("w/small") for _ in range(10)] == [data[:1000]] * 10
        assert remote.get("w/large") == data
        assert list(remote.list("w")) == ["large", "small"]
        setattr(faulty, mode, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(remote_module, "PATIENCE", 0.3)
            for name in ("w/small", "w/large"):
                with pytest.raises(RemoteError, match=r"was cut|does not answer") as caught:
                    remote.get(name)
                assert caught.value.may_pass
        faulty.mend()
    assert remote.get("none") is None


def test_a_removal_or_a_renaming_that_is_done_and_denied_is_done(uri: str, faulty: FaultyS3) -> None:
    remote = Remote(uri)
    for name in ("a", "b"):
        remote.put(f"w/{name}", name.encode())
    faulty.only, faulty.denied = "DELETE", 0.5
    for i in range(6):
        remote.move(f"w/a{i or ''}", f"w/a{i + 1}")
    assert faulty.faults > 0
    assert remote.get("w/a6") == b"a"
    remote.move("w/none", "w/never")
    faulty.denied, before = 0.9, faulty.faults
    assert remote.delete(["w/b"]) is False
    assert faulty.faults > before
    faulty.denied = 0.0
    assert remote.delete(["w/b", "w/none"]) is True
    assert list(remote.list("w")) == ["a6"]


def test_what_may_pass_ends_a_launch_with_1_and_a_mistake_with_2(
    server: Server, uri: str, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(store: str) -> tuple[int, str, str]:
        code = run(app, ["--dry-run", "--store", store])
        return (code, *capsys.readouterr())

    monkeypatch.setattr(remote_module, "TELL_AFTER", 0.1)
    began = time.monotonic()
    assert ends("s3://no-such-bucket/s")[:2] == (2, "")
    with server.failing("403 ."):
        code, out, err = ends(uri)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"error: .* denies access to bucket-.*\n", err)
    for wrong in ("http://no-such-host.invalid", faulty.url.replace("http:", "https:"), "htp://wrong:9"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", wrong)
        code, out, err = ends(uri)
        assert (code, out) == (2, "")
        assert re.fullmatch(rf"error: .*{wrong} does not answer: check the network, AWS_ENDPOINT_URL and AWS_REGION\n", err)
    assert time.monotonic() - began < 25
    monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
    monkeypatch.setattr(remote_module, "PATIENCE", 1.0)
    for fault in (lambda: setattr(faulty, "refused", 1.0), faulty.die):
        fault()
        code, out, err = ends(uri)
        assert (code, err) == (1, "")
        waiting, stopped, resume = out.splitlines()
        assert waiting.startswith(f"the store {uri} is not available; waiting for it")
        assert stopped.startswith(f"stopped: cannot open the store in {uri}: {faulty.url} ")
        assert resume.startswith("all finished runs are kept; to continue: ")


def test_ctrl_c_ends_a_wait(uri: str, faulty: FaultyS3, here: Callable[..., Command]) -> None:
    faulty.die()
    command = here("60", *TOY, "--store", uri, study="tests.orchestrator.impatient")
    assert soon(lambda: "is not available; waiting" in command.stdout, 60), command.stderr
    command.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert command.wait(40) == 130
    assert time.monotonic() - began < 20
    assert "\nto continue: python -m" in command.stdout
    assert "Traceback" not in command.stderr


@pytest.mark.deep
@pytest.mark.slow(30)
def test_a_study_ends_as_ever_though_a_quarter_of_all_requests_is_refused(
    server: Server, uri: str, faulty: FaultyS3, join: Callable[..., Command]
) -> None:
    faulty.refused = 0.25
    command = join(*TOY, "--store", uri)
    assert command.wait() == 0, command.stdout + command.stderr
    faulty.mend()
    assert len(plain_keys(uri)) == len(set(plain_keys(uri)))
    table = pd.read_csv(io.BytesIO(get(server, uri, "scaling/scaling.csv")))
    assert [*table["threshold"]] == TOY_THRESHOLDS
    assert faulty.faults > 20


@pytest.mark.slow(5)
@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_server_that_dies_during_a_study_ends_it_with_1_and_how_to_continue(
    server: Server, uri: str, faulty: FaultyS3, here: Callable[..., Command], interrupted: bool
) -> None:
    patience = "100" if interrupted else "2"
    command = here(patience, *TOY, "--option", "pause=0.3", "--store", uri, study="tests.orchestrator.impatient")
    while len(names(server, uri)) == 0:
        assert command.process.poll() is None, command.stdout + command.stderr
        time.sleep(0.2)
    faulty.die()
    if interrupted:
        assert soon(lambda: "is not available; waiting" in command.stdout, 60)
        command.process.send_signal(signal.SIGINT)
        began = time.monotonic()
    assert command.wait(60) == (130 if interrupted else 1), command.stdout + command.stderr
    if interrupted:
        assert time.monotonic() - began < 30
    assert command.stdout.count("is not available; waiting") == 1
    last = command.stdout.splitlines()[-1]
    assert re.fullmatch(r"all finished runs are kept; to continue: python -m .*impatient .*", last), command.stdout
    assert "Traceback" not in command.stdout + command.stderr
