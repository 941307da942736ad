"""Measuring a store: killed and started again it gives the same table, shares work, and loses nothing to one bad network."""

import contextlib
import dataclasses
import errno
import io
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from rich.console import Console
from safetensors import torch as safetensors

from analysis import measure
from analysis.measures.registry import MEASURES, MOST_N, OF_DECODERS, TASKS, VERSIONS, applicable, too_large
from analysis.results import Measured, Results
from orchestrator.command.cli import run
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.pulse import Part
from orchestrator.errors import LostRayError
from orchestrator.searches.axes import BUMPS
from orchestrator.store import MeasureTable, ResultStore, UnreadableError, make_row, measures
from orchestrator.store.folder import Folder
from orchestrator.store.measures import encode
from tests.conftest import Command, check_refusal, many
from trainables.bumps import BumpTask
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tiers import generator
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.precision import quiet_cpu

TASK = BumpTask()
QUICK = {"decoder": "mlp", "depth": 2, "width": 24, "holdout": "center", "stop": "budget", "max_steps": 20}


def trained_store(path: Path, seeds: int, **fields: object) -> list[str]:
    """A store of a few short trainings and their weights; their keys."""
    quiet_cpu()
    keys = []
    with ResultStore(path) as store:
        for seed in range(seeds):
            spec = RunSpec(
                **{"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 8, "data_count": 30, "seed": seed},
                **{"options": tuple(TASK.defaults.items()), **QUICK, **fields},
            )
            training = Training(spec, TASK)
            training.advance()
            result = training.result()
            found = {"status": result.status, "reason": result.reason, "steps": result.steps, "accuracy": result.accuracy}
            row = make_row(spec, task_version=TASK.version, fixed_count=0, **found, ood_mse=result.ood_mse)
            store.append([row])
            store.save_weights(row["key"], safetensors.save(training.model.state_dict()))
            keys.append(row["key"])
    return keys


def wait_for(seen: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.02)


def table_of(store: Path) -> pd.DataFrame:
    """The table of measures as any reader sees it, without the times; NaN and arrays as bytes, so that equal is equal."""
    table = pd.read_parquet(store / "measures").drop(columns="seconds")
    table["array"] = [None if a is None else np.asarray(a, np.float32).tobytes() for a in table["array"]]
    table["shape"] = [None if s is None else tuple(s) for s in table["shape"]]
    return table.sort_values(["key", "measure", "quantity", "layer"], ignore_index=True)


def test_what_is_measured_of_which_run() -> None:
    def measured(**changes: object) -> list[str]:
        return applicable(row | changes, str((row | changes)["task"]))

    row = {"task": BUMPS, "dataset": "bumps", "decoder": "mlp", "holdout": "center", "N": 8}
    assert measured() == list(OF_DECODERS)
    large = [name for name in OF_DECODERS if name != "kernel"]
    larger = [name for name in large if name != "probe"]
    assert [measured(N=N) for N in (64, 65, 96, 97)] == [list(OF_DECODERS), large, large, larger]
    assert [too_large(row | {"N": N}, BUMPS) for N in (64, 65, 96, 97)] == [[], ["kernel"], ["kernel"], ["kernel", "probe"]]
    assert too_large(row | {"N": 65, "holdout": "random"}, BUMPS) == []
    assert measured(holdout="random") == []
    penalties = {"task": "trainables.regularization:RegularizationTask", "decoder": "low-rank"}
    assert [measured(**penalties, holdout=held_out) for held_out in ("corner", "center")] == [["embeddings"]] * 2
    assert [measured(**penalties, holdout=held_out) for held_out in ("corner-box-1", "center-validation")] == [[], []]
    assert [measured(**penalties, holdout="corner", N=N) for N in (256, 257)] == [["embeddings"], []]
    assert measured(task="trainables.rotation:RotationTask", holdout="arc") == ["rotation"]
    assert measured(task=TOKENIZER, holdout="train1") == ["tokens"]
    assert measured(task=GENERATOR, holdout="train1") == ["generated", "circuits"]
    assert measured(task=PROBE, holdout="train1") == ["linear"]
    for task in (PROBE, TOKENIZER, GENERATOR):
        assert measured(task=task, holdout="train1", dataset="celeba") == []


@pytest.mark.slow(25)
def test_measuring_that_was_killed_again_and_again_gives_the_same_table(
    join: Callable[..., Command], here: Callable[..., Command], tmp_path: Path
) -> None:
    keys = trained_store(tmp_path / "whole", seeds=3)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    whole = here("--store", "whole", "--workers", "2", study="analysis.measure")
    assert whole.wait() == 0, whole.stderr
    assert f"{len(OF_DECODERS) * len(keys)} new measures of {len(keys)} runs are in" in whole.stdout

    random.seed(5)
    kills, folder = 0, tmp_path / "killed" / "measures"
    wanted = many(1, 2)
    for _ in range(wanted):
        command, before = join("--store", "killed", "--workers", "2", study="analysis.measure"), len(list(folder.glob("*")))
        end = time.monotonic() + 120
        while len(list(folder.glob("*"))) == before and command.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
        if command.process.poll() is None:
            command.process.kill()
            kills += command.wait() == -signal.SIGKILL
    last = here("--store", "killed", "--workers", "2", study="analysis.measure")
    assert last.wait() == 0, last.stderr
    assert kills == wanted
    pd.testing.assert_frame_equal(table_of(tmp_path / "killed"), table_of(tmp_path / "whole"))

    again = here("--store", "killed", "--workers", "2", study="analysis.measure")
    assert again.wait() == 0, again.stderr
    assert "0 new measures of 0 runs are in" in again.stdout


@pytest.mark.deep
@pytest.mark.slow(40)
def test_two_at_once_share_the_work_and_new_runs_are_followed(join: Callable[..., Command], tmp_path: Path) -> None:
    store = tmp_path / "results"
    first = trained_store(store, seeds=2)
    follower = join("--follow", "--workers", "2", study="analysis.measure")
    other = join("--follow", "--workers", "1", study="analysis.measure")
    second = trained_store(store, seeds=2, depth=3)
    end = time.monotonic() + 120
    wanted = len(OF_DECODERS) * len(first + second)
    while len(list((store / "measures").glob("*.parquet"))) < wanted and time.monotonic() < end:
        time.sleep(0.2)
    for command in (follower, other):
        command.process.send_signal(signal.SIGINT)
        assert command.wait() == 130, command.stderr
        assert "Traceback" not in command.stderr
    assert set(pd.read_parquet(store / "measures")["key"]) == {*first, *second}
    assert Results.of(store).table.groupby("key")["measure"].nunique().tolist() == [len(OF_DECODERS)] * 4


def damage(path: Path, kind: str) -> bytes:
    """Damage a file of weights; what it holds then."""
    data = path.read_bytes()
    path.write_bytes({"foreign": b"no weights", "cut": data[:-4], "altered": data[:-1] + bytes([data[-1] ^ 1])}[kind])
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["foreign", "cut", "altered"])
@pytest.mark.parametrize("needed", [False, True])
def test_damaged_weights_are_set_aside_and_named_once(tmp_path: Path, kind: str, needed: bool) -> None:
    key = trained_store(tmp_path, 1)[0]
    path = tmp_path / "weights" / f"{key}.safetensors"
    damaged, aside = damage(path, kind), tmp_path / "set-aside" / path.name
    with MeasureTable(tmp_path) as table:
        job = measure._Job(table, measure.Outcome(), Console(), {path: path for path in TASKS})
        load = job._weights_of if needed else job._load
        with pytest.raises(OSError if needed else UnreadableError) as refused:
            load(key, None)
        assert str(refused.value).startswith(f"{path} is damaged (")
        assert ("its contents are not those of its SHA-256" in str(refused.value)) == (kind == "altered")
        assert str(refused.value).endswith(f"; it is now {aside}")
        assert (aside.read_bytes(), path.exists()) == (damaged, False)
        with pytest.raises(FileNotFoundError):
            load(key, None)


@pytest.mark.parametrize("why", ["read-only", "elsewhere"])
def test_damaged_weights_stay_where_the_store_may_not_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    key = trained_store(tmp_path / "store", 1)[0]
    path = tmp_path / "store" / "weights" / f"{key}.safetensors"
    damaged = damage(path, "altered")

    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    if why == "read-only":
        monkeypatch.setattr(Folder, "place_aside", refused)
    else:
        path.parent.rename(tmp_path / "weights")
        path.parent.symlink_to(tmp_path / "weights")
    with MeasureTable(tmp_path / "store") as table:
        job = measure._Job(table, measure.Outcome(), Console(), {path: path for path in TASKS})
        for _ in range(2):
            with pytest.raises(UnreadableError) as told:
                job._load(key, None)
            assert str(told.value) == f"{path} is damaged (its contents are not those of its SHA-256)"
    assert path.read_bytes() == damaged


def test_runs_without_weights_that_lack_measures_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = trained_store(tmp_path, 3)
    with ResultStore(tmp_path) as store:  # no study trains a run of a former version, and not every run is measured
        spec = RunSpec.from_dict(store.rows()[0])
        others = [("0", spec), (TASK.version, dataclasses.replace(spec, holdout="random"))]
        store.append([make_row(one, task_version=v, fixed_count=0, status="missed", reason="budget") for v, one in others])

    def told() -> str:
        outcome = measure.measure_missing(tmp_path)
        assert (outcome.measured, outcome.failed) == (0, [])
        return capsys.readouterr().err

    with MeasureTable(tmp_path) as table:
        for name in OF_DECODERS:
            for key in keys:
                table.save(key, name, VERSIONS[name], encode(key, name, VERSIONS[name], [], 0.0))
        for key in keys:
            (tmp_path / "weights" / f"{key}.safetensors").unlink()
        assert told() == "", "nothing is missing"
        for key in keys[:2]:
            (tmp_path / "measures" / f"{key}.images-{VERSIONS['images']}.parquet").unlink()
    assert told() == (
        f"2 finished runs have no weights in {tmp_path}/weights, so they are not measured: the command of the study with "
        "--save-weights trains them again\n"
    )


@pytest.mark.deep
@pytest.mark.slow(40)
def test_damaged_weights_cost_only_their_own_run(join: Callable[..., Command], tmp_path: Path) -> None:
    keys = trained_store(tmp_path / "results", seeds=2)
    (tmp_path / "results" / "weights" / f"{keys[0]}.safetensors").write_bytes(b"no weights")
    command = join("--workers", "2", study="analysis.measure")
    assert command.wait() == 1
    assert f"run {keys[0]}: all measures failed: results/weights/{keys[0]}.safetensors is damaged (" in command.stderr
    assert "Traceback" not in command.stderr
    assert set(pd.read_parquet(tmp_path / "results" / "measures")["key"]) == {keys[1]}


@pytest.mark.slow(2)
def test_the_table_that_figures_get(tmp_path: Path) -> None:
    from analysis.measures.quantity import Quantity
    from orchestrator.store import MeasureTable
    from orchestrator.store.measures import encode

    keys = trained_store(tmp_path, seeds=1)
    quantities = [Quantity("error", 0.5), Quantity("map", array=np.eye(2), layer=1)]
    MeasureTable(tmp_path).save(keys[0], "images", 1, encode(keys[0], "images", 1, quantities, 1.0))
    of_later = VERSIONS["kernel"] + 1
    MeasureTable(tmp_path).save(keys[0], "kernel", of_later, encode(keys[0], "kernel", of_later, quantities, 1.0))
    MeasureTable(tmp_path).save("f" * 24, "images", 1, encode("f" * 24, "images", 1, quantities, 1.0))  # its run is not here
    with ResultStore(tmp_path) as store:
        spec = RunSpec.from_dict(store.rows()[0])
        store.append([make_row(spec, task_version="of long ago", fixed_count=0, status="missed", reason="budget")])
    results = Results.of(tmp_path)
    assert [r["key"] for r in results.runs] == keys
    assert results.table[["key", "seed", "encoding", "quantity", "value"]].fillna(-1).to_numpy().tolist() == [
        [keys[0], 0, "bump", "error", 0.5], [keys[0], 0, "bump", "map", -1],
    ]  # fmt: skip
    assert results.table["array"][1].tolist() == [[1, 0], [0, 1]]


def test_a_file_of_measures_is_read_again_only_if_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.measures.quantity import Quantity

    keys, read = sorted(trained_store(tmp_path, seeds=3)), list[str]()

    def save(key: str, name: str, *values: float) -> None:
        quantities = [Quantity(f"q{i}", value) for i, value in enumerate(values)]
        MeasureTable(tmp_path).save(key, name, VERSIONS[name], encode(key, name, VERSIONS[name], quantities, 1.0))

    def counted(path: Path) -> Any:
        read.append(path.name.partition("-")[0])
        return load(path)

    def look() -> tuple[list[str], list[tuple[str, str, float]], list[str]]:
        """The files read, the measures, and the notices, which are those of a reader that keeps nothing."""
        read.clear()
        found, files = Results.of(tmp_path, (), False, measured), sorted(read)
        anew = Results.of(tmp_path)
        pd.testing.assert_frame_equal(found.table, anew.table)
        assert found.notices == anew.notices
        told = found.table[["key", "measure", "value"]].itertuples(index=False, name=None)
        return files, list(told), found.notices

    load, measured = measures._load, Measured()
    monkeypatch.setattr(measures, "_load", counted)
    for key in keys[1:]:
        save(key, "images", 0.5, 0.25)
    save(keys[1], "probe", 1.0)
    first = [(keys[1], "images", 0.5), (keys[1], "images", 0.25), (keys[1], "probe", 1.0)]
    second = [(keys[2], "images", 0.5), (keys[2], "images", 0.25)]
    files = [f"{keys[1]}.images", f"{keys[1]}.probe", f"{keys[2]}.images"]
    assert look() == (files, first + second, [])
    assert look() == ([], first + second, [])
    save(keys[2], "images", 2.0)
    save(keys[0], "images", 3.0)
    added = [(keys[0], "images", 3.0), *first, (keys[2], "images", 2.0)]
    assert look() == ([f"{keys[0]}.images", f"{keys[2]}.images"], added, [])
    (tmp_path / "measures" / f"{keys[1]}.probe-{VERSIONS['probe']}.parquet").write_bytes(b"damaged")
    for _ in range(2):
        again, told, [notice] = look()
        assert (again, told) == (files[:2], [added[0], *first[:2], added[-1]])
        assert f"{keys[1]}.probe" in notice
    (tmp_path / "measures" / f"{keys[1]}.images-{VERSIONS['images']}.parquet").unlink()
    save(keys[1], "probe", 4.0)
    assert look() == ([f"{keys[1]}.probe"], [added[0], (keys[1], "probe", 4.0), added[-1]], [])
    assert look()[0] == []


def test_plain_lines_tell_how_far_it_is_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.measure.QUIET_SECONDS", 0.1)
    out = io.StringIO()
    with measure.Steps(Console(file=out, width=40)) as steps:
        assert out.getvalue() == "", "what is over at once says nothing"
        for done in range(3):
            steps(f"measured {done} of 3 runs \x1b[2J[bold]{'x' * 60}", done, 3)
            wait_for(lambda done=done: f"measured {done} of 3" in out.getvalue())  # type: ignore[misc]
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("after ")
    assert lines[0].endswith(rf" s: measured 0 of 3 runs \x1b[2J[bold]{'x' * 60}"), "in one line, as it is"
    assert 3 <= len(lines) < 30


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_has_a_bar_and_a_file_has_none_also_where_colours_are_forced(is_terminal: bool) -> None:
    out = io.StringIO()
    out.isatty = lambda: is_terminal  # type: ignore[method-assign]
    with measure.Steps(Console(file=out, force_terminal=True, width=90, _environ={"TERM": "xterm"})) as steps:
        steps("drawing study 1 of 2: [bold]a title", 0, 2)
    assert ("drawing study 1 of 2: [bold]a title" in out.getvalue()) == is_terminal
    assert ("\u2501" in out.getvalue()) == is_terminal


def test_every_measure_has_a_version() -> None:
    from analysis.measures.registry import VERSIONS

    assert VERSIONS.keys() == MEASURES.keys()
    assert all(isinstance(version, int) for version in VERSIONS.values())


def test_a_store_that_is_not_there_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(measure.app, ["--store", "nowhere"], "'nowhere' is not a folder", tmp_path, capsys)
    check_refusal(measure.app, ["--store", ""], "--store is empty: name a folder, such as results", tmp_path, capsys)
    assert run(measure.app, ["--frobnicate"]) == 2


def test_runs_that_are_too_large_for_a_measure_are_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = trained_store(tmp_path, 2)
    monkeypatch.setitem(MOST_N, "kernel", 7)

    def left_out() -> list[str]:
        with MeasureTable(tmp_path) as table, ResultStore(tmp_path, read_only=True) as results:
            job = measure._Job(table, measure.Outcome(), Console(), {path: path for path in TASKS})
            job.look(results)
            assert {*job.waiting} == {*keys}
            assert all("kernel" not in names for _, names in job.waiting.values())
            return job.left_out()

    assert left_out() == ["kernel is left out of 2 runs with N above 7: it would take too long, or too much memory"]
    with MeasureTable(tmp_path) as table:
        table.save(keys[0], "kernel", VERSIONS["kernel"], encode(keys[0], "kernel", VERSIONS["kernel"], [], 0.0))
    assert left_out() == ["kernel is left out of 1 run with N above 7: it would take too long, or too much memory"]


@pytest.mark.parametrize("count", [1, 2])
def test_runs_on_real_pictures_are_told_of_as_not_measured(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ResultStore(tmp_path) as store:
        for seed in range(count):
            spec = generator("smoke", seed, {"dataset": "celeba", "content": "0" * 24})
            row = make_row(spec, task_version=GeneratorTask.version, fixed_count=0, status="missed", reason="budget")
            store.append([row])
            store.save_weights(row["key"], safetensors.save({}))
    has = "1 run on real pictures is" if count == 1 else "2 runs on real pictures are"
    told = f"{has} not measured: the measures compare with rendered ones"
    outcome = measure.measure_missing(tmp_path)
    assert (outcome.measured, outcome.notices) == (0, [told])
    assert capsys.readouterr().err == f"warning: {told}\n"


def test_a_look_reads_only_runs_that_have_kept_their_weights_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, read = trained_store(tmp_path, 3), list[set[str]]()
    rows = ResultStore.rows

    def counted(self: ResultStore, *args: Any) -> list[dict[str, Any]]:
        found = rows(self, *args)
        read.append({row["key"] for row in found})
        return found

    kept = {key: tmp_path / "weights" / f"{key}.safetensors" for key in keys}
    for key in keys[1:]:
        kept[key].rename(tmp_path / key)
    (tmp_path / "weights" / os.fsdecode(b"\xff.safetensors")).write_bytes(b"the name of no run")
    monkeypatch.setattr(ResultStore, "rows", counted)
    with MeasureTable(tmp_path) as table, ResultStore(tmp_path, read_only=True) as results:
        job = measure._Job(table, measure.Outcome(), Console(), {path: path for path in TASKS})
        job.look(results)
        job.look(results)
        assert [*job.waiting] == keys[:1]
        (tmp_path / keys[1]).rename(kept[keys[1]])
        job.look(results)
        assert [*job.waiting] == keys[:2]
    assert [found for found in read if found] == [{keys[0]}, {keys[1]}]


@pytest.mark.parametrize("is_signalled", [False, True])
def test_the_death_of_ray_ends_it_with_a_word_unless_a_signal_has_come(
    is_signalled: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(measure, "SIGNAL_SECONDS", 0.01)
    monkeypatch.setattr(measure, "remove_all", lambda: None)
    monkeypatch.setattr(os, "_exit", codes.append)
    come = threading.Event()
    if is_signalled:
        come.set()
    measure._lost(come, lambda: None, Part("raylet, a part of the embedded Ray,", "127.0.0.1", 1))
    told = "stopped: raylet, a part of the embedded Ray, has died; perhaps someone ended it, or its machine ran out of memory; "
    told += "what was measured is kept, and the same command goes on\n"
    assert (codes, capsys.readouterr().err) == (([], "") if is_signalled else ([1], told))


def test_a_ray_that_does_not_start_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_started(*_: object, **__: object) -> None:
        raise LostRayError("Ray could not be started, twice")

    trained_store(tmp_path, 1)
    monkeypatch.setattr(Cluster, "connected", not_started)
    monkeypatch.setattr(Cluster, "check", lambda self: None)
    monkeypatch.setattr(Cluster, "shortage", lambda self: "few files")
    assert run(measure.app, ["--store", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["measuring 1 network, which may take minutes", "warning: few files"]
    assert lines[-1] == "stopped: Ray could not be started, twice"


def test_last_words_stand_while_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand: list[str] = []

    @contextlib.contextmanager
    def last_words(text: str) -> Iterator[Callable[[], None]]:
        stand.append(text)
        yield stand.clear

    def start(self: Cluster) -> None:
        assert stand == [f"stopped: it was ended from outside, or by its Ray; {measure.GOES_ON}"]
        raise LostRayError("seen")

    trained_store(tmp_path, 1)
    monkeypatch.setattr(measure, "last_words", last_words)
    monkeypatch.setattr(Cluster, "connected", start)
    monkeypatch.setattr(Cluster, "check", lambda self: None)
    with pytest.raises(LostRayError, match="seen"):
        measure.measure_missing(tmp_path)


class Inline:
    """Of Ray, what measures: a task that is done at once."""

    def __init__(self, function: Callable[..., Iterator[object]]) -> None:
        self.remote = function

    def options(self, **_: object) -> "Inline":
        return self


def test_a_measure_that_fails_is_told_and_costs_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (key,) = trained_store(tmp_path, 1)

    def measured(row: dict[str, object], weights: bytes, names: list[str], *_: object) -> Iterator[tuple[str, bytes, str]]:
        for name in names:
            data = encode(str(row["key"]), name, VERSIONS[name], [], 1.0)
            yield (name, b"", "ValueError: no kernel") if name == "kernel" else (name, data, "")

    monkeypatch.setattr(ray, "remote", lambda **_: Inline)
    monkeypatch.setattr(ray, "wait", lambda streams, **_: (streams, []))
    monkeypatch.setattr(ray, "get", lambda result: result)
    monkeypatch.setattr(measure, "_measure_run", measured)
    outcome = measure.Outcome()
    with MeasureTable(tmp_path) as table, ResultStore(tmp_path, read_only=True) as results:
        job = measure._Job(table, outcome, Console(stderr=True, width=200), {path: path for path in TASKS})
        job.look(results)
        names = job.waiting[key][1]
        job.run(results, 1, False, lambda *_: None)
        assert [name for name in names if not table.has(key, name, VERSIONS[name])] == ["kernel"]
    assert (outcome.measured, outcome.runs) == (len(names) - 1, 1)
    assert outcome.failed == [f"run {key}: kernel: ValueError: no kernel"]
    assert f"warning: run {key}: kernel failed: ValueError: no kernel" in capsys.readouterr().err
    monkeypatch.setattr(measure, "measure_missing", lambda *_: outcome)
    assert run(measure.app, ["--store", str(tmp_path)]) == 1


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("follow", [True, False])
def test_what_another_call_has_is_waited_for_and_taken_over_if_that_call_ends(
    is_measured: bool, follow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other_key = trained_store(tmp_path, 2)
    texts: list[str] = []

    def save(table: MeasureTable, key: str, names: list[str]) -> None:
        for name in names:
            table.save(key, name, VERSIONS[name], encode(key, name, VERSIONS[name], [], 1.0))

    def measured(row: dict[str, object], weights: bytes, names: list[str], *_: object) -> Iterator[tuple[str, bytes, str]]:
        yield from ((name, encode(str(row["key"]), name, VERSIONS[name], [], 1.0), "") for name in names)

    monkeypatch.setattr(ray, "remote", lambda **_: Inline)
    monkeypatch.setattr(ray, "wait", lambda streams, **_: (streams, []))
    monkeypatch.setattr(ray, "get", lambda result: result)
    monkeypatch.setattr(measure, "_measure_run", measured)
    outcome = measure.Outcome()
    with MeasureTable(tmp_path) as other, MeasureTable(tmp_path) as table, ResultStore(tmp_path, read_only=True) as results:
        job = measure._Job(table, outcome, Console(), {path: path for path in TASKS})
        job.look(results)
        names = job.waiting[key][1]
        assert other.claim(key)
        waits = [
            lambda: None,
            lambda: save(other, key, names if is_measured else []),
            lambda: other.release(key),
            lambda: None,
        ]

        def wait(seconds: float) -> None:
            waits.pop(0)()
            if not waits:
                raise KeyboardInterrupt

        monkeypatch.setattr(measure.time, "sleep", wait)
        with pytest.raises(KeyboardInterrupt) if follow else contextlib.nullcontext():
            job.run(results, 1, follow, lambda text, *_: texts.append(text))
        assert table.has(key, names[0], VERSIONS[names[0]])
        assert table.has(other_key, names[0], VERSIONS[names[0]])
        with MeasureTable(tmp_path) as later:
            assert later.claim(key), "nothing is kept that is done"
            assert later.claim(other_key)
    assert outcome.runs == (1 if is_measured else 2)
    assert "measured 1 of 2 runs; another call measures 1 of them" in texts
    assert texts[-1] == "measured 2 of 2 runs"
