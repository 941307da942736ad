"""Rows with a right schema that are not those of the runs they describe: never believed, always named, in nobody's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from spoil import change, first, replaced
from store_child import row
from test_retry import failed, put_part

import orchestrator.store.register as register_module
from orchestrator.command.cli import run
from orchestrator.scaling import app
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import SCHEMA, ResultStore, make_row
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.rows import encode
from trainables.spec import FORMER_VERSIONS, Counts, RunSpec, has_keys, run_key

SPEC = RunSpec(task="tasks:Task", dataset="bumps", N=16, data_count=0, seed=0)
FORGERIES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "another count": first("data_count", 49),
    "another seed": first("seed", 7),
    "another option": first("options", '{"sigma": 0.25}'),
    "another precision": first("precision", "bfloat16"),
    "another version of the task": first("task_version", "2"),
    "another family": first("family", "f" * 24),
    "another key": first("key", "f" * 24),
    "an unknown precision": first("precision", "float99"),
    "an unknown stop rule": first("stop", "never"),
    "a rate of NaN": first("lr", float("nan")),
    "a target above 1": first("target", 1.5),
    "an option that is a list": first("options", '{"sigma": [1]}'),
    "swapped keys": lambda table: replaced(table, "key", table["key"].to_pylist()[::-1]),
}


def only_part(folder: Path) -> Path:
    (part,) = (folder / "runs").iterdir()
    return part


def counts(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(r["data_count"] for r in rows)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_row_that_is_not_of_the_run_it_describes_is_left_out_and_made_way_for(tmp_path: Path, forgery: str) -> None:
    true = [row(1), row(2)]
    with ResultStore(tmp_path) as store:
        store.append(true)
    part = only_part(tmp_path)
    change(part, FORGERIES[forgery])
    forged = part.read_bytes()
    keys = pd.read_parquet(part)["key"].tolist()
    wrong = keys if forgery == "swapped keys" else keys[:1]
    with ResultStore(tmp_path, read_only=True) as reader:
        assert reader.rows() == ([] if forgery == "swapped keys" else [row(2)])
        reader.rows()
        (notice,) = reader.notices
        assert notice.startswith(f"left out {len(wrong)} {'row' if len(wrong) == 1 else 'rows'} of {part}: ")
        assert all(key in notice for key in wrong)
        assert "\n" not in notice
    assert part.read_bytes() == forged
    with ResultStore(tmp_path) as store:
        trained = [r for r in true if r["key"] not in {r["key"] for r in store.rows()}]
        assert store.append(trained) == trained
        assert counts(store.rows()) == [1, 2]
        assert store.append(true) == []
    assert set(pd.read_parquet(tmp_path / "runs")["key"]) >= {r["key"] for r in true}
    assert pd.read_parquet(tmp_path / "runs")["key"].is_unique
    if forgery != "another key":  # which is in nobody's way, and stays
        assert (tmp_path / "set-aside" / part.name).read_bytes() == forged
        with ResultStore(tmp_path) as store:
            assert sorted(store.rows(), key=lambda r: r["data_count"]) == true
            assert store.notices == []


def test_a_part_that_another_program_wrote_anew_is_still_a_part_when_it_has_lost_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such programs write equal values once, which this one does not."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 2)  # so that the rows are not kept in memory
    with ResultStore(tmp_path) as store:
        store.append([row(1), row(2), row(3)])
    change(only_part(tmp_path), first("seed", 7))
    with ResultStore(tmp_path) as store:
        store.append([row(1)])
    with ResultStore(tmp_path) as store:
        assert (counts(store.rows()), store.notices) == ([1, 2, 3], [])
    assert len(list((tmp_path / "set-aside").iterdir())) == 1


def test_of_many_rows_that_are_not_believed_three_are_named(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(i) for i in range(5)])
    part = only_part(tmp_path)
    change(part, lambda table: replaced(table, "seed", [9] * 5))
    with ResultStore(tmp_path, read_only=True) as reader:
        assert reader.rows() == []
        (notice,) = reader.notices
    named = "; ".join(f"{row(i)['key']} has a key that does not match its description" for i in range(3))
    assert notice == f"left out 5 rows of {part}: {named}; and 2 more"


@pytest.mark.parametrize("seeds", [[9, 3], [3, 9]])
def test_of_two_rows_of_a_file_one_that_failed_is_rather_believed_than_one_that_is_forged(
    seeds: list[int], tmp_path: Path
) -> None:
    true = row(1, status="failed", reason="exception", error="boom", accuracy=None)
    both = encode([true if seed == 3 else row(1) for seed in seeds])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.parquet").write_bytes(parquet_bytes(replaced(both, "seed", seeds)))
    with ResultStore(tmp_path) as store:
        assert store.rows() == [true]


@pytest.mark.parametrize("name", ["seed", "data_count", "dataset", "task"])
def test_a_row_with_an_option_that_is_called_as_a_field_of_every_run_is_left_out(tmp_path: Path, name: str) -> None:
    of_any: dict[str, Any] = {**SPEC.to_dict(), "options": {name: "$(touch it)"}}
    ended: dict[str, Any] = {"fixed_count": 0, "status": "passed", "reason": "target"}
    forged = make_row(RunSpec.from_dict(of_any), task_version="1", **ended)
    later = make_row(RunSpec.from_dict({**of_any, "options": {"schedule": "mine"}}), task_version="1", **ended)
    with ResultStore(tmp_path) as store:
        store.append([row(1), forged, later])
    with ResultStore(tmp_path, read_only=True) as reader:
        assert {r["key"] for r in reader.rows()} == {row(1)["key"], later["key"]}, "there was no such field at first"
        assert f"{forged['key']} describes no run (the option {name} has the name of" in " ".join(reader.notices)


def test_a_threshold_is_not_moved_by_counts_that_were_changed(tmp_path: Path) -> None:
    bracket = Bracket(template=SPEC, task_version="1", counts=Counts(1, 256))
    search = ThresholdSearch([bracket], 0.05)

    def ended(spec: RunSpec) -> dict[str, Any]:
        status = "passed" if spec.data_count >= 33 else "missed"
        return make_row(spec, task_version="1", fixed_count=0, status=status, reason="x", accuracy=1.0 * (status == "passed"))

    rows = Rows()
    while not search.finished(rows):
        for spec in search.propose(rows, 1):
            rows.add(ended(spec))
    (answer,) = search.answer(rows)
    with ResultStore(tmp_path) as store:
        store.append(list(rows))

    def moved(table: pa.Table) -> pa.Table:
        return replaced(table, "data_count", [n + 16 if 20 < n < 60 else n for n in table["data_count"].to_pylist()])

    change(only_part(tmp_path), moved)
    with ResultStore(tmp_path) as store:
        found = Rows(store.rows(where={"family": {bracket.family}}))
        assert 0 < len(found) < len(rows)
        assert "has a key that does not match its description" in store.notices[0]
        while not search.finished(found):
            for spec in search.propose(found, 1):
                (written,) = store.append([ended(spec)])
                found.add(written)
        assert search.answer(found) == [answer]
    with ResultStore(tmp_path, read_only=True) as store:
        assert search.answer(Rows(store.rows())) == [answer]


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", ["aaa.parquet", "zzz.parquet"])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_forged_row_does_not_displace_the_true_one(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, indexed: bool
) -> None:
    if indexed:
        request.getfixturevalue("small_parts")
    with ResultStore(tmp_path) as store:
        for i in range(25):
            store.append([row(i)])
    forged = encode([row(i, accuracy=0.75) for i in (3, 4, 40)])
    part = tmp_path / "runs" / name
    part.write_bytes(parquet_bytes(replaced(forged, "seed", [9, 3, 3])))
    assert (tmp_path / ".index").exists() == indexed
    with ResultStore(tmp_path) as store:
        accuracy = {r["data_count"]: r["accuracy"] for r in store.rows()}
        assert sorted(accuracy) == [*range(25), 40]
        assert accuracy[3] == row(3)["accuracy"]
        assert store.notices
    with ResultStore(tmp_path) as store:
        assert store.notices == []
        assert {r["data_count"]: r["accuracy"] for r in store.rows()} == accuracy
    assert pd.read_parquet(tmp_path / "runs")["key"].is_unique


def test_rows_of_other_launches_are_judged_too(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        place = tmp_path / "runs" / "late.parquet"
        place.write_bytes(parquet_bytes(first("seed", 9)(encode([row(1), row(2)]))))
        assert store.refresh() == [row(2)]
        assert str(place) in store.notices[0]
        assert store.refresh() == []
        assert len(store.notices) == 1


@pytest.mark.parametrize("version", FORMER_VERSIONS)
def test_rows_of_a_former_training_loop_or_stopping_rule_are_kept_and_not_named(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trainables.spec._version", lambda stop: version)
        old = row(1)
    assert old["key"] != row(1)["key"]
    with ResultStore(tmp_path) as store:
        store.append([old, row(1)])
        assert len(store.rows()) == 2
        assert store.notices == []


def test_keys_are_those_of_a_run_and_its_family() -> None:
    made = row(1)
    spec = RunSpec.from_dict(made)
    assert made["key"] == run_key(spec, "1")
    fields = spec.to_dict()
    assert has_keys(fields, "1", made["key"], made["family"])
    assert not has_keys(fields, "2", made["key"], made["family"])
    assert not has_keys(fields, "1", made["family"], made["family"])
    assert not has_keys(fields, "1", made["key"], made["key"])


@pytest.mark.slow(1)
def test_a_study_names_what_it_does_not_believe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--N", "8", "--decoder", "mlp", "--width", "4", "--seeds", "1", "--store", str(tmp_path / "s"), "--dry-run"]
    options = (("absent", "zero"), ("centres", "integer"), ("polarity", "bright"), ("sigma", 1.0), ("tolerance", 1))
    spec = RunSpec(
        task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=20, seed=0, decoder="mlp", width=4, options=options
    )
    made = make_row(spec, task_version="1", fixed_count=0, status="passed", reason="target")
    with ResultStore(tmp_path / "s") as store:
        store.append([made])
    assert run(app, words) == 0
    before = capsys.readouterr().out
    assert "warning" not in before
    part = only_part(tmp_path / "s")
    change(part, first("data_count", 30))
    assert pd.read_parquet(part, schema=SCHEMA)["data_count"].tolist() == [30]
    assert run(app, words) == 0
    (notice,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert str(part) in notice
    assert made["key"] in notice


def test_of_rows_in_one_file_a_failed_one_stays_rather_than_one_that_cannot_be_believed(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(9)])
    put_part(tmp_path, "zz.parquet", row(1) | {"N": 999}, row(1, **failed("a")))
    with ResultStore(tmp_path) as store:
        assert {found["data_count"]: found["status"] for found in store.rows()} == {9: "passed", 1: "failed"}


def test_who_only_reads_has_the_failed_row_and_not_a_forged_one_of_the_run(tmp_path: Path) -> None:
    with ResultStore(tmp_path) as store:
        store.append([row(1, **failed("a")), row(2)])
    put_part(tmp_path, "zz.parquet", row(1) | {"N": 999})
    with ResultStore(tmp_path, read_only=True) as reading:
        assert {found["data_count"]: found["status"] for found in reading.rows()} == {1: "failed", 2: "passed"}
