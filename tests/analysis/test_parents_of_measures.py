"""A generator is measured with the tokenizer and the probe that it was trained with; without them, one line says why not."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors

from analysis.measures import registry
from analysis.measures.generated import TrainedGenerator
from analysis.measures.tokens import TrainedTokenizer
from analysis.results import Results
from analysis.trained import ParentError, networks_of, parents_of
from orchestrator.store import MeasureTable, ResultStore, make_row
from tests.analysis.test_hostile_weights import HOSTILE
from tests.conftest import Command
from trainables.generative.tiers import generator
from trainables.needs import Tasks, untrained
from trainables.spec import RunSpec
from trainables.task import load_task

Row = dict[str, Any]


def save(store: ResultStore, spec: RunSpec) -> Row:
    """The row of an untrained network, whose weights are those of its seed, and those of the runs that it needs; all kept."""
    tasks = Tasks(load_task(spec.task))
    for parent in tasks.needs(spec).values():
        save(store, parent)
    task = tasks.of(spec)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        weights = safetensors.save(untrained(task, spec).model(spec).state_dict())
    row = make_row(
        spec, task_version=task.version, fixed_count=0, status="passed", reason="budget", parents=tasks.parents(spec) or None
    )
    store.append([row])
    store.save_weights(row["key"], weights)
    return row


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[MeasureTable, Row]:
    """A store with a generator of the smallest size and what it needs, and the row of it."""
    path = tmp_path_factory.mktemp("store")
    with ResultStore(path) as store:
        row = save(store, generator("smoke"))
    return MeasureTable(path), row


def rows_of(table: MeasureTable) -> dict[str, Row]:
    with ResultStore(table.location, read_only=True) as store:
        return {row["key"]: row for row in store.rows()}


@pytest.mark.slow(2)
def test_a_generator_has_the_networks_that_it_was_trained_with(made: tuple[MeasureTable, Row]) -> None:
    table, row = made
    assert row["parents"].keys() == {"tokenizer", "probe"}
    rows = rows_of(table)
    parents = parents_of(row, table.load_weights, rows.get)
    trained = registry.load(row, table.load_weights(row["key"]), row["task"], parents)
    assert isinstance(trained, TrainedGenerator)
    for name, key in row["parents"].items():
        kept = safetensors.load(table.load_weights(key))
        state = trained.parents[name].state_dict()
        assert state.keys() == kept.keys()
        assert all(torch.equal(state[part], kept[part]) for part in kept)
        assert not any(parameter.requires_grad for parameter in trained.parents[name].parameters())
    assert parents["tokenizer"].parents.keys() == {"probe"}, "what it needed itself"
    assert trained.sampled(2).shape == (8, 2, 3, 16, 16)
    of_tokenizer = rows[row["parents"]["tokenizer"]]
    weights, parents = table.load_weights(of_tokenizer["key"]), parents_of(of_tokenizer, table.load_weights, rows.get)
    tokenizer = registry.load(of_tokenizer, weights, of_tokenizer["task"], parents)
    assert isinstance(tokenizer, TrainedTokenizer)
    assert tokenizer.parents.keys() == {"probe"}


def lines(error: pytest.ExceptionInfo[ParentError]) -> str:
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.slow(2)
def test_weights_of_a_parent_that_are_gone_are_named(made: tuple[MeasureTable, Row]) -> None:
    table, row = made

    def load(key: str, most: int | None) -> bytes:
        if key == row["parents"]["probe"]:
            raise FileNotFoundError(key)
        return table.load_weights(key, most)

    with pytest.raises(ParentError) as error:
        parents_of(row, load, rows_of(table).get)
    key = row["parents"]["probe"]
    told = f"the weights of the probe that it needs are gone: put weights/{key}.safetensors back into the store, or train "
    assert lines(error) == f"{told}it again by the command of the study with --save-weights"

    def unreadable(key: str, most: int | None) -> bytes:
        raise PermissionError("no rights")

    with pytest.raises(ParentError) as error:
        parents_of(row, unreadable, rows_of(table).get)
    told = rf"the weights of the \w+ that it needs, run [0-9a-f]{{{len(key)}}}, cannot be read \(no rights\)"
    assert re.fullmatch(told, lines(error))


@pytest.mark.slow(2)
@pytest.mark.parametrize("what", ["nothing", "a header of 8 EB", "tensors of 1 TB", "no tensors", "weights of another network"])
def test_weights_of_a_parent_that_are_none_are_refused_in_one_line(what: str, made: tuple[MeasureTable, Row]) -> None:
    table, row = made
    data = HOSTILE[what]() if what in HOSTILE else table.load_weights(row["parents"]["probe"])

    def load(key: str, most: int | None) -> bytes:
        return data if key == row["parents"]["tokenizer"] else table.load_weights(key, most)

    parents = parents_of(row, load, rows_of(table).get)
    with pytest.raises(ParentError) as error:
        networks_of(parents)
    told = lines(error)
    assert told.startswith("the weights of the tokenizer that it needs cannot be used (")
    assert told.endswith("): delete them, and train the tokenizer again")
    assert len(told) < 250


def test_a_row_that_names_other_runs_than_its_settings_do_is_not_measured(made: tuple[MeasureTable, Row]) -> None:
    table, row = made
    tokenizer, probe = (row["parents"][name] for name in ("tokenizer", "probe"))
    for named, before in (({"tokenizer": "0" * 24, "probe": probe}, f"tokenizer {'0' * 24}"), (None, "no tokenizer")):
        with pytest.raises(ParentError) as error:
            parents_of({**row, "parents": named}, table.load_weights, rows_of(table).get)
        today = f"and would be with tokenizer {tokenizer} today, as a task has changed: train it again"
        assert lines(error) == f"it was trained with {before}, {today}"
    with pytest.raises(ParentError, match=r"^its settings do not say which runs it needs \(") as error:
        parents_of({**row, "options": {}}, table.load_weights, rows_of(table).get)
    lines(error)


def test_a_run_is_not_measured_if_what_it_needed_was_trained_with_other_runs(made: tuple[MeasureTable, Row]) -> None:
    table, row = made
    rows = rows_of(table)
    tokenizer, probe = row["parents"]["tokenizer"], rows[row["parents"]["tokenizer"]]["parents"]["probe"]
    another = {"probe": "0" * 24}
    for named, before, today in (
        (another, f"probe {'0' * 24}", f"probe {probe}"),
        (None, "no probe", f"probe {probe}"),
        ({"probe": probe, "teacher": "1" * 24}, f"teacher {'1' * 24}", "no teacher"),
    ):
        rows[tokenizer] = {**rows[tokenizer], "parents": named}
        with pytest.raises(ParentError) as error:
            parents_of(row, table.load_weights, rows.get)
        assert lines(error) == (
            f"the tokenizer that it needs, run {tokenizer}, was trained with {before}, and would be with {today} today, as a "
            "task has changed: train both again"
        )
    del rows[tokenizer]
    assert parents_of(row, table.load_weights, rows.get).keys() == row["parents"].keys()


@pytest.mark.slow(8)
def test_a_store_of_generators_is_not_measured_where_a_tokenizer_had_another_probe(
    here: Callable[..., Command], tmp_path: Path
) -> None:
    with ResultStore(tmp_path / "made") as store:
        row = save(store, generator("smoke"))
        tokenizer = row["parents"]["tokenizer"]
        rows = [{**one, "parents": {"probe": "0" * 24}} if one["key"] == tokenizer else one for one in store.rows()]
    with ResultStore(tmp_path / "results") as store:
        store.append(rows)
    (tmp_path / "made" / "weights").rename(tmp_path / "results" / "weights")
    command = here("--workers", "1", study="analysis.measure")
    assert command.wait() == 1
    failed = {line.split()[2].rstrip(":"): line for line in command.stderr.splitlines() if "failed" in line}
    assert failed.keys() == {row["key"], tokenizer}
    told = f"the tokenizer that it needs, run {tokenizer}, was trained with probe {'0' * 24}, and would be"
    assert told in failed[row["key"]]
    assert set(Results.of(tmp_path / "results").table["key"]) == {row["parents"]["probe"]}


@pytest.mark.slow(8)
def test_a_store_of_generators_is_measured_and_what_cannot_be_is_one_line(here: Callable[..., Command], tmp_path: Path) -> None:
    with ResultStore(tmp_path / "results") as store:
        whole, alone = save(store, generator("smoke")), save(store, generator("smoke", seed=1))
    gone = alone["parents"]["tokenizer"]
    (tmp_path / "results" / "weights" / f"{gone}.safetensors").unlink()
    command = here("--workers", "1", study="analysis.measure")
    assert command.wait() == 1
    failed = [line for line in command.stderr.splitlines() if "failed" in line]
    assert len(failed) == 1
    assert alone["key"] in failed[0]
    assert f"weights/{gone}.safetensors" in failed[0]
    assert "Traceback" not in command.stderr
    table = Results.of(tmp_path / "results").table
    probes = {run["parents"]["probe"] for run in (whole, alone)}
    assert set(table["key"]) == {whole["key"], whole["parents"]["tokenizer"], *probes}
    assert set(table[table["key"] == whole["key"]]["measure"]) == {"generated", "circuits"}
    large = tmp_path / "results" / "weights" / f"{alone['key']}.safetensors"
    os.truncate(large, 2**40)
    again = here("--workers", "1", study="analysis.measure")
    assert again.wait() == 1
    told = f"all measures failed: {large} holds {2**40:,} bytes, more than "
    assert f"warning: run {alone['key']}: {told}" in again.stderr.replace("results/weights", str(large.parent))
    assert "0 new measures of 0 runs are in" in again.stdout
