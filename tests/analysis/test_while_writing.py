"""The analysis reads a store that others write to at the same moment: parts and measures are replaced under its hands."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors import torch as safetensors

from analysis.measure import Outcome, _Job
from analysis.measures import registry
from analysis.measures.quantity import Quantity
from analysis.results import Results
from orchestrator.store import MeasureTable, ResultStore, make_row, measures
from orchestrator.store.measures import encode
from tests.conftest import many
from trainables.bumps import BumpTask
from trainables.spec import RunSpec

LOOKS = many(60, 200)
"""At least; and as many as it takes until all runs are measured."""
MEASURED = 12
"""Runs that are measured, again and again."""
TASK = BumpTask()


def spec(seed: int) -> RunSpec:
    return RunSpec(
        task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=39, seed=seed, decoder="mlp", width=4,
        holdout="center", options=tuple(TASK.defaults.items()), stop="budget",
    )  # fmt: skip


def measured(key: str, version: int) -> bytes:
    return encode(key, "images", version, [Quantity("id_mse", value=float(version))], 0.1)


@contextmanager
def writing(path: Path) -> Iterator[tuple[list[str], list[BaseException]]]:
    """Runs come in, and measures of the first of them, again and again; the keys of those that were measured, and what ended
    the writer. A measure comes in two versions, of which the second replaces the first."""
    keys: list[str] = []
    done, errors = threading.Event(), list[BaseException]()
    weights = safetensors.save(TASK.model(spec(0)).state_dict())

    def write() -> None:
        try:
            with ResultStore(path) as store, MeasureTable(path) as table:
                for seed in count():
                    if done.is_set():
                        return
                    new = make_row(spec(seed), task_version="1", fixed_count=0, status="missed", reason="budget")
                    store.append([new])
                    key = new["key"] if seed < MEASURED else keys[seed % MEASURED]
                    store.save_weights(key, weights)
                    for version in (registry.VERSIONS["images"] - 1, registry.VERSIONS["images"]):
                        table.save(key, "images", version, measured(key, version))
                    if seed < MEASURED:
                        keys.append(key)
                    time.sleep(0.05)
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield keys, errors
    finally:
        done.set()
        thread.join()
    assert errors == []


@pytest.mark.slow
def test_results_can_be_read_at_any_moment(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    ResultStore(tmp_path).close()
    looks = 0
    with writing(tmp_path) as (keys, errors):
        while (looks < LOOKS or len(keys) < MEASURED) and not errors:
            looks += 1
            before = list(keys)
            found = Results.of(tmp_path)
            assert found.notices == []
            assert {run["key"] for run in found.runs} >= set(before)
            assert set(found.table["key"]) >= set(before)
            assert not found.table.duplicated(["key", "quantity"]).any()
    assert len(keys) == MEASURED


@pytest.mark.slow(9)
def test_what_is_missing_can_be_looked_for_at_any_moment(tmp_path: Path) -> None:
    ResultStore(tmp_path).close()
    outcome = Outcome()
    looks = 0
    with writing(tmp_path) as (keys, errors), MeasureTable(tmp_path) as table, ResultStore(tmp_path, read_only=True) as results:
        while (looks < LOOKS or len(keys) < MEASURED) and not errors:
            looks += 1
            before = list(keys)
            job = _Job(table, outcome, Console(quiet=True), {path: path for path in registry.TASKS})
            job.look(results)
            assert job.waiting.keys() >= set(before)
    assert len(keys) == MEASURED
    assert (results.notices, table.notices, outcome.failed) == ([], [], [])
    assert not (tmp_path / "set-aside").exists()


def test_a_measure_that_another_version_replaces_between_listing_and_reading_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = measures._load

    def late(path: Path) -> Any:
        path.with_name("key.images-2.parquet").write_bytes(measured("key", 2))
        if path.name == "key.images-1.parquet":
            path.unlink()
        return load(path)

    monkeypatch.setattr(measures, "_load", late)
    for method, expected in (("known", {("key", "images", 2)}), ("rows", [2])):
        with MeasureTable(tmp_path / method) as table:
            table.save("key", "images", 1, measured("key", 1))
            found = getattr(table, method)()
            assert ([row["version"] for row in found] if method == "rows" else found) == expected
            assert table.notices == []


def test_of_two_versions_the_later_one_counts(tmp_path: Path) -> None:
    with MeasureTable(tmp_path) as table:
        table.save("key", "images", 10, measured("key", 10))
        (tmp_path / "measures" / "key.images-9.parquet").write_bytes(measured("key", 9))
        assert [row["value"] for row in table.rows()] == [10.0]
        assert table.notices == []
