"""Runs that failed for a cause outside the task are tried again if the command says so, and only then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from places import Place, plain_keys
from store_child import row

from orchestrator.store import ResultStore
from tests.conftest import Command, read_rows

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
    late = datetime(2031, 1, 1, tzinfo=UTC)
    on("a")
    with ResultStore(uri) as store:
        store.append([row(1, **failed("old")), row(2)])
    on("b")
    with ResultStore(uri) as store:
        store.retry_failed()
        assert len(store.append([row(1, finished_at=late, **(failed("new") if comes == "failed" else {}))])) == 1
    for machine in ("c", "a", "b"):
        on(machine)
        with ResultStore(uri) as store:
            told = {found["data_count"]: (found["status"], found["error"]) for found in store.rows()}
            assert told == {1: ("failed", "new") if comes == "failed" else ("passed", None), 2: ("passed", None)}
            assert len(store) == 2


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
