"""The benchmark of the store measures what it says, on a small store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.store import answers, appending, everything, fill, open_and_answer, others, question, with_duckdb, with_pandas
from orchestrator.store import ResultStore


@pytest.mark.slow(10)
def test_a_store_is_filled_and_asked(tmp_path: Path) -> None:
    rows = answers()
    with ResultStore(tmp_path) as store:
        store.append(rows)
    source = others(25_000)
    for size in (1_000, 25_000):
        fill(tmp_path, source, size)
        whole = size + len(rows)
        assert open_and_answer(tmp_path)["count"] == whole
        assert everything(tmp_path)["count"] == with_pandas(tmp_path)["count"] == with_duckdb(tmp_path)["count"] == whole
    assert (tmp_path / ".index").is_file()
    assert len(list((tmp_path / "runs").iterdir())) == 51
    with ResultStore(tmp_path, read_only=True) as store:
        found = store.rows(where={"family": {b.family for b in question()}})
        assert store.notices == []
    assert sorted(r["key"] for r in found) == sorted(r["key"] for r in rows)


def test_appends_are_timed_and_their_fsync_too(tmp_path: Path) -> None:
    fsync = os.fsync
    single = appending(tmp_path, 0, 20, 1)
    packed = appending(tmp_path, 100, 20, 10)
    assert os.fsync is fsync
    assert 0 < single[2] < single[0]
    assert packed[1] < single[1]
    assert everything(tmp_path)["count"] == 42
