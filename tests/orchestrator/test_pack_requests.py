"""A pack of many runs waits for a bucket about as often as a single run does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slow_bucket import SlowBucket, Spent
from test_execution import RESULT, make, result_of

import orchestrator.store.remote as remote_module
import orchestrator.store.turns as turns_module
from orchestrator.engine.ray_tune import StudySearcher
from orchestrator.store import ResultStore, StoreError
from orchestrator.store.remote import Remote, RemoteError

STORE = "s3://bucket/s"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowBucket:
    bucket = SlowBucket(tmp_path / "bucket", latency=0.01)
    monkeypatch.setattr(Remote, "_connect", lambda remote, options: bucket.serve(remote, options))
    monkeypatch.setattr(turns_module, "PULL_EVERY", 60.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a"))
    return bucket


def spent_on_a_pack(bucket: SlowBucket, size: int) -> dict[str, Spent]:
    """What is asked of the bucket before a pack is trained, when it is checkpointed, and when all its runs have ended."""
    with ResultStore(f"{STORE}{size}") as store:
        execution, _ = make(store, seeds=size, workers=1, pack_size=size)
        store.place.lease.hold()  # a launch begins its lease once
        with bucket.spending() as start:
            order = StudySearcher(execution, 1.0, 0.0, 10, {}).suggest("a")["order"]
        keys = [run.key for run in order.runs]
        assert len(keys) == len(set(keys)) == size
        assert store.place.lease.held == set(keys)
        with bucket.spending() as checkpoints:
            assert not result_of(execution, "a", step=5, accuracy=0.1, checkpoint=b"half-way")
        assert store.load_checkpoints(keys) == dict.fromkeys(keys, b"half-way")
        with bucket.spending() as end:
            assert result_of(execution, "a", result={**RESULT, "status": "missed"}, weights=b"weights", end=b"end")
        assert store.known(keys) == store.with_weights() == set(keys)
        ends = store.with_checkpoints()
        assert len(ends - set(keys)) == len(ends) == size
        assert store.place.lease.held == set()
    return {"start": start, "checkpoints": checkpoints, "end": end}


def test_a_pack_waits_for_a_bucket_about_as_often_as_a_single_run(bucket: SlowBucket) -> None:
    one, many = spent_on_a_pack(bucket, 1), spent_on_a_pack(bucket, 64)
    assert one["start"].requests == {"PUT launches": 1, "LIST launches": 1, "LIST runs": 1, "HEAD checkpoints": 2}
    assert many["start"].requests == {"PUT launches": 64, "LIST launches": 2, "LIST runs": 1, "LIST checkpoints": 1}
    assert (one["checkpoints"].requests, many["checkpoints"].requests) == ({"PUT checkpoints": 1}, {"PUT checkpoints": 64})
    once = {name: many["end"].requests[name] for name in ("LIST launches", "LIST runs", "PUT runs", "HEAD runs")}
    assert once == {name: one["end"].requests[name] for name in once} == dict.fromkeys(once, 1)
    waits = {name: (one[name].waits, many[name].waits) for name in one}
    assert (waits["start"][0], waits["checkpoints"][0]) == (4, 1)
    # A busy machine may make few requests of many that could overlap wait for each other; one after the other they are 64.
    assert all(of_many <= of_one + 16 for of_one, of_many in waits.values()), waits


def test_one_request_of_many_that_fails_is_told_as_a_single_one_and_nothing_comes_after_it(bucket: SlowBucket) -> None:
    keys = [f"k{i}" for i in range(40)]
    with ResultStore(STORE) as store:
        works: dict[str, tuple[Callable[[str], object], Callable[[], object]]] = {
            "k3.pt": (
                lambda key: store.save_checkpoint(key, b"x"),
                lambda: store.each(lambda key: store.save_checkpoint(key, b"x"), keys),
            ),
            "claim=k3": (store.claim, lambda: store.claim_all(keys)),
        }
        for bucket.refused, (one, many) in works.items():
            with pytest.raises(StoreError) as alone:
                one("k3")
            with pytest.raises(StoreError) as among:
                many()
            assert bucket.asked == 0
            assert str(among.value) == str(alone.value)
            assert "the double denies access to bucket" in str(among.value)
        assert "k3" not in store.with_checkpoints()
        assert store.place.lease.held == set()
        bucket.refused = ""
        assert store.claim_all(keys) == keys


def test_many_requests_have_no_more_patience_than_who_makes_them(bucket: SlowBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_module, "BRIEF", 0.1)
    remote = Remote(STORE)
    remote.put("w/a", b"a")
    bucket.refused, bucket.why = "a", "AWS Error NETWORK_CONNECTION"
    began = time.monotonic()
    with remote.briefly(), pytest.raises(RemoteError, match="does not answer"):
        remote.delete(["w/b", "w/a"])
    assert time.monotonic() - began < 10  # and not PATIENCE
    bucket.refused = ""
    assert remote.delete(["w/b", "w/a"])
    assert remote.list("w") == {}
