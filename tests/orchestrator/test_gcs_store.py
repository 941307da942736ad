"""A store in Google Cloud Storage, against a small server of its JSON API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gcs import BUCKET, DENIED, INVALID, NO_BUCKET, FakeGcs, Fault, fake_gcs
from store_child import row
from test_store import counts

import orchestrator.store.leases as leases_module
import orchestrator.store.remote as remote_module
import orchestrator.store.turns as turns_module
from orchestrator.command.cli import run
from orchestrator.scaling import app
from orchestrator.store import ResultStore, StoreError
from orchestrator.store.remote import Remote, RemoteError

URI = f"gs://{BUCKET}/s"
GONE = f"the bucket {BUCKET} does not exist: create it first, or choose another one"
NO_TOKEN = (
    "google::cloud::Status({}: Retry policy exhausted, with a last message of Could not create a OAuth2 access token to "
    "authenticate the request. The underlying error message was: {}"
)
NO_NETWORK = NO_TOKEN.format("UNAVAILABLE", "PerformWork() - CURL error [6]=Could not resolve hostname error_info={})")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeGcs]:
    with fake_gcs() as server:
        yield server


@pytest.fixture
def gcs(server: FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGcs:
    """The server, empty and in order, which stores that are opened from now on are in. Nothing is waited for."""
    (tmp_path / "login.json").write_text(server.login())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "login.json"))
    monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", server.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a"))
    monkeypatch.setattr(turns_module, "PULL_EVERY", 0.0)
    monkeypatch.setattr(leases_module, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(remote_module, "PATIENCE", 0.2)
    monkeypatch.setattr(remote_module, "FIRST_WAIT", 0.02)
    server.empty()
    return server


def test_a_store_keeps_rows_and_weights(gcs: FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = bytes(range(256)) * 50_000  # put in two pieces
    with ResultStore(URI) as store:
        assert store.claim(row(1)["key"])
        assert counts(store.append([row(1), row(2)])) == [1, 2]
        store.release(row(1)["key"])
        store.save_weights("k", large)
        store.save_checkpoint("k", b"c")
        store.drop_checkpoint("k")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    with ResultStore(URI) as store:
        assert counts(store.append([row(2), row(3)])) == [3]
        assert store.rows() == [row(1), row(2), row(3)]
        assert store.load_weights("k") == large
        assert store.load_checkpoint("k") is None
    assert sorted({name.split("/")[1] for name in gcs.names()}) == ["runs", "weights"]


def test_objects_are_replaced_listed_moved_and_removed(gcs: FakeGcs) -> None:
    remote = Remote(URI)
    for data in (b"one", b"more"):
        assert remote.put("w/a", data)
    assert remote.get("w/a") == b"more"
    assert [(name, size) for name, (size, _) in remote.list("w").items()] == [("a", 4)]
    remote.move("w/a", "aside/b")
    assert (remote.get("w/a"), remote.get("aside/b"), remote.find("w/a")) == (None, b"more", None)
    remote.move("w/a", "aside/c")
    assert remote.delete(["aside/b", "aside/c"])
    remote.put("w/a", b"")
    for _ in range(2):
        remote.delete_folder("w")
    assert gcs.names() == []


@pytest.mark.parametrize("there", [False, True])
def test_a_bucket_that_holds_nothing_passes_for_who_may_use_its_objects_alone(gcs: FakeGcs, there: bool) -> None:
    remote = Remote(URI)
    if there:
        remote.put("launches/a", b"a")
    gcs.requests()
    remote.check()
    assert not [request for request in gcs.requests() if request.endswith(f"/b/{BUCKET}")]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (NO_BUCKET, GONE),
        (DENIED, f"Google Cloud Storage denies access to {BUCKET}: log in with gcloud for an account that may read, write, "),
        (INVALID, f"Google Cloud Storage denies access to {BUCKET}: log in with gcloud for an account that may read, write, "),
    ],
)
def test_a_mistake_is_told_at_once(gcs: FakeGcs, fault: Fault, told: str, read_only: bool) -> None:
    gcs.answer(fault)
    with pytest.raises(StoreError) as caught:
        ResultStore(URI, read_only=read_only)
    assert str(caught.value).startswith(f"cannot open the store in {URI}: {told}")
    assert caught.value.may_pass is False
    assert len(gcs.requests()) == 1


@pytest.mark.parametrize("status", [400, 401])
def test_a_login_that_is_no_longer_good_is_a_denial(gcs: FakeGcs, status: int) -> None:
    gcs.answer(token=status)
    began = time.monotonic()
    with pytest.raises(RemoteError, match=f"denies access to {BUCKET}: log in with gcloud") as caught:
        Remote(URI).check()
    assert not caught.value.may_pass
    assert time.monotonic() - began < 10
    assert gcs.requests() == []


def test_without_a_login_or_a_network_a_study_does_not_begin(
    gcs: FakeGcs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "login.json").write_text(gcs.login().replace(gcs.url, "http://127.0.0.1:9"))
    began = time.monotonic()
    assert run(app, ["--dry-run", "--store", URI]) == 2
    assert time.monotonic() - began < 12
    told = f"cannot open the store in {URI}: Google Cloud Storage does not answer: check the network, or log in with gcloud"
    assert capsys.readouterr() == ("", f"error: {told}\n")


def test_a_token_that_cannot_be_renewed_for_a_while_may_pass_once_the_bucket_has_answered(gcs: FakeGcs) -> None:
    remote, hint = Remote(URI), "Google Cloud Storage does not answer: check the network, or log in with gcloud"
    for answered in (False, True):
        error = remote._explained(NO_NETWORK)
        assert (str(error), error.may_pass, error.is_denial) == (hint, answered, False)
        busy = remote._explained(NO_TOKEN.format("UNAVAILABLE", "Service Unavailable"))
        assert (str(busy), busy.may_pass, busy.is_denial) == (hint, True, False)
        remote.check()


def test_a_bucket_that_is_removed_under_a_study_is_told(gcs: FakeGcs) -> None:
    with ResultStore(URI) as store:
        store.append([row(1)])
        gcs.answer(NO_BUCKET)
        for work in (lambda: store.save_weights("k", b"w"), lambda: store.claim("k")):
            with pytest.raises(StoreError, match=GONE) as caught:
                work()
            assert caught.value.may_pass is False
        gcs.answer()
