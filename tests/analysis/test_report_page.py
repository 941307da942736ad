"""The page while a study goes on: the files of its runs, what is written anew, who may read it; and rows that mean harm."""

import html
import http.client
import json
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import weakref
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.report import build
from analysis.report.build import LOOK_EVERY, Builder, served
from analysis.report.findings import Condition, Finding, Picture
from analysis.report.page import Drawn, Part, Report
from analysis.report.papers import PAPERS
from analysis.report.runs import CHUNK, MOST_POINTS, RunFiles
from analysis.report.told import ANSWERED, FAILED, Sheet, Told
from analysis.results import Results
from orchestrator.store import Question, ResultStore, StoreError, make_row
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import load_task

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
START = datetime(2026, 1, 1, tzinfo=UTC)
EVIL = "</script><img src=x onerror=alert(1)>\x1b[31m{{ 7 * 7 }}\u2028\u202edeen"
LARGE = 4611686018427387904
"""Which a number of a browser is not, and 4611686018427387905 neither."""


def row(number: int, **more: Any) -> dict[str, Any]:
    spec = RunSpec(task="mine:Task", dataset="d", N=8, seed=number, data_count=number, options=(("sigma", 0.5 + number),))
    usual: dict[str, Any] = {
        "status": "missed", "reason": "budget", "accuracy": 0.25, "steps": 100, "seconds": 2.0, "id_mse": 1.23456789e-5,
        "curve_step": range(0, 100), "curve_accuracy": [i / 100 for i in range(100)], "curve_loss": [0.5] * 100,
        "curve_error": [0.25] * 100, "measures": {"exact": 0.5}, "finished_at": START + timedelta(seconds=number),
    }  # fmt: skip
    return make_row(spec, task_version="1", fixed_count=0, **{**usual, **more})


def value_of(script: bytes) -> tuple[str, Any]:
    """What a file hands to the page's script."""
    assert script.isascii()
    assert b"<" not in script
    found = re.fullmatch(rb'sweep\("([\w/]+)",(.*)\);\n', script, re.DOTALL)
    assert found is not None
    return found[1].decode(), json.loads(found[2])


def test_the_files_hold_every_run() -> None:
    rows = [row(number) for number in range(CHUNK + 3)]
    files = RunFiles().of(list(reversed(rows)), {"a-study": {rows[1]["key"]}})
    assert set(files) == {"index.js", "0.js", "1.js"}
    name, index = value_of(files["index.js"])
    assert name == "runs"
    assert index["keys"] == [one["key"] for one in rows]
    assert index["numbers"]["data_count"] == list(range(CHUNK + 3))
    assert index["numbers"]["id_mse"][0] == 1.23457e-05
    assert index["numbers"]["ood_mse"][0] is None
    assert (index["studies"], index["of"][:3]) == (["a-study"], [[], [0], []])
    assert [index["texts"]["settings"]["words"][i] for i in index["texts"]["settings"]["of"][:2]] == ["sigma 0.5", "sigma 1.5"]
    name, details = value_of(files["1.js"])
    assert (name, len(details["runs"])) == ("runs/1", 3)
    last = details["runs"][2]
    assert details["shared"][last["settings"]]["sigma"] == CHUNK + 2.5
    assert last["key"] == rows[-1]["key"]
    assert last["measures"] == {"exact": 0.5}
    steps = [float(step) for step in last["curves"]["step"].split()]
    assert (steps[0], steps[-1], len(steps)) == (0, 99, MOST_POINTS)
    assert [float(value) for value in last["curves"]["accuracy"].split()] == [step / 100 for step in steps]


def test_what_a_task_sums_up_takes_the_name_of_no_other_curve() -> None:
    summed = {name: [7.0] * 100 for name in ("step", "accuracy", "error", "loss", "agreement")}
    [run] = value_of(RunFiles().of([row(1, curve_summary=summed)], {})["0.js"])[1]["runs"]
    curves = {name: text.split() for name, text in run["curves"].items()}
    assert {name: numbers[-1] for name, numbers in curves.items()} == {
        "step": "99", "accuracy": "0.99", "error": "0.25", "loss": "0.5", "summary step": "7", "summary accuracy": "7",
        "summary error": "7", "summary loss": "7", "agreement": "7",
    }  # fmt: skip


def test_an_accuracy_is_sent_with_more_digits_than_a_target_has() -> None:
    index = value_of(RunFiles().of([row(1, accuracy=1 - 1e-8)], {})["index.js"])[1]
    assert index["numbers"]["accuracy"] == [0.99999999]


def test_only_files_that_changed_are_made_anew() -> None:
    rows, files = [row(number) for number in range(2 * CHUNK)], RunFiles()
    assert set(files.of(rows[: CHUNK + 1], {})) == {"index.js", "0.js", "1.js"}
    assert files.of(rows[: CHUNK + 1], {}) == {}
    assert set(files.of(rows[: CHUNK + 2], {})) == {"index.js", "1.js"}
    assert set(files.of(rows[: CHUNK + 2], {"a": {rows[0]["key"]}})) == {"index.js"}


def test_a_run_that_was_trained_again_takes_the_place_of_itself() -> None:
    rows, files = [row(0), row(1, status="failed", error="boom")], RunFiles()
    files.of(rows, {})
    again = files.of([rows[0], row(1, status="passed", finished_at=START + timedelta(seconds=9))], {})
    assert set(again) == {"index.js", "0.js"}
    assert value_of(again["index.js"])[1]["texts"]["status"] == {"words": ["missed", "passed"], "of": [0, 1]}
    assert [one["error"] for one in value_of(again["0.js"])[1]["runs"]] == ["", ""]


def test_a_figure_of_a_study_is_drawn_again_if_a_run_ended_again_or_it_failed() -> None:
    rows, drawn = [row(1), row(2, status="failed")], list[str]()
    question = Question(
        study="scaling", task_version="1", specs={"runs": [RunSpec.from_dict(one) for one in rows]}, search={}, settings={}
    )

    def picture(tag: str, alt: str, fails: bool = False) -> Picture:
        def draw() -> Figure:
            drawn.append(tag)
            if fails:
                raise OSError("for a while")
            return Figure(figsize=(1, 1))

        return Picture(alt[:1], alt, draw)

    def shown(rows: list[dict[str, Any]], before: Report | None, *pictures: Picture) -> Report:
        told = Told(question, "t", FAILED, "", [], frozenset(one["key"] for one in rows), (), pictures)
        known = {} if before is None else {told.id: before.studies[0]}
        return Report.of((), Results(rows, pd.DataFrame(columns=["task"])), [told], known=known)

    first = shown(rows, None, picture("a", "a first"), picture("b", "b", fails=True))
    second = shown(rows, first, picture("not", "a first"), picture("b again", "b"), picture("c", "c"))
    third = shown(rows, second, picture("a of more", "a second"), picture("not", "b"))
    later = [rows[0], {**rows[1], "finished_at": START + timedelta(seconds=9)}]
    last = shown(later, third, picture("a anew", "a second"))
    assert drawn == ["a", "b", "b again", "c", "a of more", "a anew"]
    assert [[one.alt for one in report.studies[0].pictures] for report in (first, second, third, last)] == [
        ["a first", "b"], ["a first", "b", "c"], ["a second", "b"], ["a second"]
    ]  # fmt: skip
    assert [len(report.errors) for report in (first, second, third, last)] == [1, 0, 0, 0]


def test_a_figure_of_a_study_is_drawn_again_if_its_answer_or_a_table_is_another_of_the_same_runs() -> None:
    drawn, reports = list[int](), list[Report]()
    question = Question(study="scaling", task_version="1", specs={"runs": [RunSpec.from_dict(row(1))]}, search={}, settings={})
    table = pd.DataFrame([{"key": "a", "gate": "", "share": math.nan}])

    def show(lines: list[str], sheets: list[Sheet]) -> None:
        picture = Picture("p", "as it was", lambda: drawn.append(len(reports)) or Figure(figsize=(1, 1)))  # type: ignore[func-returns-value]
        told = Told(question, "t", ANSWERED, "", lines, frozenset([row(1)["key"]]), sheets, [picture])
        known = {told.id: reports[-1].studies[0]} if reports else {}
        reports.append(Report.of((), Results([row(1)], pd.DataFrame(columns=["task"])), [told], known=known))

    show(["not known"], [Sheet("runs", "", table)])
    show(["not known"], [Sheet("runs", "", table.copy())])
    show(["met"], [Sheet("runs", "", table)])
    show(["met"], [Sheet("runs", "", table.assign(gate="met"))])
    show(["met"], [Sheet("runs", "", table.assign(gate="met"))])
    show(["met"], [Sheet("means", "", table.assign(gate="met"))])
    show(["met"], [])
    assert drawn == [0, 2, 3, 5, 6]


def test_runs_with_settings_of_their_own_take_no_longer_than_others() -> None:
    rows = [row(0) | {"key": f"{n:024}", "options": {f"o{n}_{i}": 1.5 for i in range(400)}} for n in range(200)]
    began = time.process_time()
    index = value_of(RunFiles().of(rows, {})["index.js"])[1]["texts"]["settings"]
    assert time.process_time() - began < 3
    assert len(index["words"]) == 200
    assert index["words"][1].startswith("o1_0 1.5, o1_1 1.5, ")


def test_curves_of_a_store_are_in_memory_as_arrays_and_on_the_page_as_they_were(tmp_path: Path) -> None:
    curves = {"curve_loss": [0.5, 0.25, math.nan], "curve_accuracy": [0.1, 0.7, 0.9], "curve_error": []}
    made = row(0) | {"curve_step": [10, 20, 30], **curves, "curve_summary": {"own": [1.0, 2.0, 3.0]}}
    with ResultStore(tmp_path) as store:
        store.append([made])
        [stored] = store.rows()
    [run] = Results.of(tmp_path).runs
    assert {name: (run[name].typecode, len(run[name])) for name in run if isinstance(run[name], array)} == {
        "curve_step": ("i", 3), "curve_loss": ("d", 3), "curve_accuracy": ("d", 3), "curve_error": ("d", 0),
    }  # fmt: skip
    as_lists = {name: list(value) if isinstance(value, array) else value for name, value in run.items()}
    assert repr(as_lists) == repr(stored)
    assert RunFiles().of([run], {}) == RunFiles().of([stored], {})


class Waiting:
    """Stands for the passing of time: each wait does one step; after the last one comes Ctrl-C."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self.steps: Iterator[Any] = iter(steps)

    def __call__(self, seconds: float) -> None:
        if seconds >= LOOK_EVERY:
            step = next(self.steps, None)
            if step is None:
                raise KeyboardInterrupt
            step()


def stamp_of(out: Path) -> str:
    stamp = value_of((out / "stamp.js").read_bytes())[1]
    assert f'data-stamp="{stamp}"' in (out / "index.html").read_text()
    return str(stamp)


def test_a_page_that_follows_is_written_when_there_is_something_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out, stamps, reports = tmp_path / "store", tmp_path / "out", [""], list[Report]()
    with ResultStore(store) as opened:
        opened.append([row(1)])
        builder = Builder(str(store), out, every=LOOK_EVERY)
        builder.build()
        stamps[0] = stamp_of(out)
        read = Results.of

        def lost(*_: object) -> Results:
            monkeypatch.setattr(build.Results, "of", read)
            raise StoreError("the bucket does not answer")

        def look() -> None:
            stamps.append(stamp_of(out))

        steps = [
            look,
            lambda: opened.append([row(2), row(3)]),
            look,
            lambda: monkeypatch.setattr(build.Results, "of", lost),
            look,
            lambda: opened.append([row(4, status="failed", error="it broke")]),
            look,
        ]
        with pytest.raises(KeyboardInterrupt):
            builder.follow(reports.append, Waiting(steps))
    assert [report.runs for report in reports] == [3, 4]
    first, unchanged, second, same, third = stamps
    assert first == unchanged
    assert second == same
    assert len({first, second, third}) == 3
    assert "it broke" in (out / "index.html").read_text()
    assert value_of((out / "runs" / "index.js").read_bytes())[1]["numbers"]["seed"] == [1, 2, 3, 4]


def test_following_rests_for_the_time_that_it_took_of_a_core_and_not_for_what_it_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ResultStore(tmp_path / "store") as opened:
        opened.append([row(1)])
    builder = Builder(str(tmp_path / "store"), tmp_path / "out", every=LOOK_EVERY)
    builder.build()
    now, rested, read = {"process_time": 0.0, "monotonic": 0.0}, list[float](), Builder._read

    def slowly(self: Builder, store: str) -> Results:
        now["process_time"] += 2.0
        now["monotonic"] += 20.0
        return read(self, store)

    def wait(seconds: float) -> None:
        rested.append(seconds)
        if len(rested) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Builder, "_read", slowly)
    monkeypatch.setattr(build, "time", SimpleNamespace(**{name: partial(now.__getitem__, name) for name in now}))
    with pytest.raises(KeyboardInterrupt):
        builder.follow(lambda _: None, wait)
    assert rested == [LOOK_EVERY, 3.0, LOOK_EVERY], "2 s in 5 + 2 + 3"


@pytest.mark.parametrize("beside", [False, True])
def test_a_page_that_follows_has_let_go_of_what_it_read_before_it_reads_again(
    tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, alive, kept = [tmp_path / "store", tmp_path / "other"][: 1 + beside], list[weakref.ref[Results]](), list[int]()
    for number, store in enumerate(stores):
        with ResultStore(store) as opened:
            opened.append([row(number)])
    builder = Builder(str(stores[0]), tmp_path / "out", others=list(map(str, stores[1:])), every=LOOK_EVERY)
    builder.build()
    read = Builder._read

    def counted(self: Builder, store: str) -> Results:
        kept.append(sum(one() is not None for one in alive))
        found = read(self, store)
        alive.append(weakref.ref(found))
        return found

    def add(number: int) -> None:
        with ResultStore(stores[0]) as opened:
            opened.append([row(number)])

    monkeypatch.setattr(Builder, "_read", counted)
    with pytest.raises(KeyboardInterrupt):
        builder.follow(lambda _: None, Waiting([lambda: add(5), lambda: None, lambda: add(6)]))
    assert kept == ([0, 1] if beside else [0]) * 3


@pytest.mark.parametrize("beside", [False, True])
def test_a_page_that_follows_shows_a_run_that_takes_the_place_of_a_failed_one(tmp_path: Path, beside: bool) -> None:
    store, other, reports = tmp_path / "store", tmp_path / "other", list[Report]()
    for folder in (store, other):
        with ResultStore(folder) as opened:
            opened.append([row(1, status="failed", error="it broke"), row(20)])
    builder = Builder(str(store), tmp_path / "out", others=[str(other)] if beside else (), every=LOOK_EVERY)
    builder.build()

    def mend() -> None:
        with ResultStore(other if beside else store) as opened:
            opened.append([row(1, status="passed", reason="target", finished_at=START + timedelta(seconds=10))])

    with pytest.raises(KeyboardInterrupt):
        builder.follow(reports.append, Waiting([lambda: None, mend, lambda: None, lambda: None]))
    assert len(reports) == 1
    words = value_of((tmp_path / "out" / "runs" / "index.js").read_bytes())[1]["texts"]["status"]["words"]
    assert set(words) == ({"failed", "missed"} if beside else {"passed", "missed"})


def test_a_page_that_follows_looks_again_if_the_store_beside_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, beside, reports = tmp_path / "store", tmp_path / "beside", list[Report]()
    for folder in (store, beside):
        with ResultStore(folder) as opened:
            opened.append([row(1)])
    builder = Builder(str(store), tmp_path / "out", others=[str(beside)], every=LOOK_EVERY)
    builder.build()
    read = Results.of

    def lost(place: Any, *more: Any) -> Results:
        if str(place) == str(beside):
            monkeypatch.setattr(build.Results, "of", read)
            raise StoreError("the bucket does not answer")
        return read(place, *more)

    def add() -> None:
        with ResultStore(store) as opened:
            opened.append([row(2)])
        monkeypatch.setattr(build.Results, "of", lost)

    with pytest.raises(KeyboardInterrupt):
        builder.follow(reports.append, Waiting([add, lambda: None, lambda: None]))
    assert [report.runs for report in reports] == [2]


def test_a_page_that_follows_outlives_a_store_that_is_gone_and_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "lacking", lambda results, *_: [f"{len(results.runs)} runs lack something"])
    store, out, reports, told = tmp_path / "store", tmp_path / "out", list[Report](), list[str]()
    with ResultStore(store) as opened:
        opened.append([row(0), row(1)])
    builder = Builder(str(store), out, every=LOOK_EVERY)
    builder.build()
    assert builder.notices == ["2 runs lack something"]
    page = (out / "index.html").read_bytes()

    def put(number: int) -> None:
        with ResultStore(store) as opened:
            opened.append([row(number)])

    def shut() -> None:
        put(2)
        shutil.move(out, tmp_path / "former")
        out.write_text("a file")

    def open_again() -> None:
        assert reports == []
        out.unlink()
        shutil.move(tmp_path / "former", out)

    steps = [
        lambda: shutil.move(store, tmp_path / "gone"),
        lambda: None,
        lambda: shutil.move(tmp_path / "gone", store),
        shut,
        lambda: None,
        open_again,
        lambda: put(3),
    ]
    with pytest.raises(KeyboardInterrupt):
        builder.follow(reports.append, Waiting(steps), told.append)
    gone, shut_out = told
    assert gone == f"{store} has no runs any more; the page stays as it is, looking again"
    assert shut_out.startswith(f"the page could not be written into {out} (")
    assert [report.runs for report in reports] == [3, 4]
    assert builder.notices == ["4 runs lack something"]
    assert (out / "index.html").read_bytes() != page
    assert len(value_of((out / "runs" / "0.js").read_bytes())[1]["runs"]) == 4


def test_a_page_in_a_store_that_is_moved_as_it_is_written_does_not_make_the_store_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, moved, reports, told = tmp_path / "store", tmp_path / "moved", list[Report](), list[str]()
    with ResultStore(store) as opened:
        opened.append([row(0)])
    builder, judged = Builder(str(store), store / "page", every=LOOK_EVERY), Report.of
    builder.build()

    def put() -> None:
        with ResultStore(store) as opened:
            opened.append([row(1)])
        monkeypatch.setattr(Report, "of", going)

    def going(*given: Any) -> Report:
        monkeypatch.setattr(Report, "of", judged)
        store.rename(moved)
        return judged(*given)

    def back() -> None:
        assert not store.exists()
        moved.rename(store)

    with pytest.raises(KeyboardInterrupt):
        builder.follow(reports.append, Waiting([put, lambda: None, back, lambda: None]), told.append)
    gone = "the store was moved or removed while in use"
    assert told[0] == f"the page could not be written into {store / 'page'} ({gone}); looking again"
    assert [report.runs for report in reports] == [2]


def test_what_comes_up_while_a_page_follows_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    with ResultStore(tmp_path / "store") as opened:
        opened.append([row(0), row(1)])
        builder = Builder(str(tmp_path / "store"), tmp_path / "out", every=LOOK_EVERY)
        builder.build()

        def damage() -> None:
            (tmp_path / "store" / "questions").mkdir()
            (tmp_path / "store" / "questions" / "a-b.json").write_text("no question")
            opened.append([row(2)])

        with pytest.raises(KeyboardInterrupt):
            builder.follow(lambda _: None, Waiting([damage, lambda: opened.append([row(3)])]), told.append)
    [line] = told
    assert "a-b.json: it is no JSON text" in line


def test_a_page_that_follows_is_written_again_if_it_was_removed(tmp_path: Path) -> None:
    store, out, reports = tmp_path / "store", tmp_path / "out", list[Report]()
    with ResultStore(store) as opened:
        opened.append([row(0), row(1)])
    builder = Builder(str(store), out, every=LOOK_EVERY)
    builder.build()
    files = sorted(file.relative_to(out) for file in out.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        builder.follow(reports.append, Waiting([lambda: shutil.rmtree(out), lambda: None, lambda: None]))
    assert [report.runs for report in reports] == [2]
    assert sorted(file.relative_to(out) for file in out.rglob("*")) == files


def test_a_page_that_follows_says_why_a_store_has_no_runs_any_more(tmp_path: Path) -> None:
    store, told = tmp_path / "store", list[str]()
    with ResultStore(store) as opened:
        opened.append([row(0)])
    [part] = (store / "runs").glob("*.parquet")
    builder = Builder(str(store), tmp_path / "out", every=LOOK_EVERY)
    builder.build()
    with pytest.raises(KeyboardInterrupt):
        builder.follow(lambda _: None, Waiting([lambda: part.write_bytes(part.read_bytes()[:500]), lambda: None]), told.append)
    why, gone = told
    assert f"{part.name}: it is damaged" in why
    assert gone == f"{store} has no runs any more; the page stays as it is, looking again"


BUMPS, GENERATOR = "trainables.bumps:BumpTask", "trainables.generative.generator_task:GeneratorTask"
HALF = {"curve_summary": {"a": [None] + [1.0] * 99}}
HUGE = {"curve_summary": {"a": [10**400] + [1.0] * 99}}
ODD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a measure that is none at a look": ({}, HALF),
    "a measure that no float holds": ({}, HUGE),
    "bumps on a grid that is too small": ({"task": BUMPS, "N": 7}, {}),
    "bumps of an unknown decoder": ({"task": BUMPS, "decoder": "foo"}, {}),
    "bumps without options": ({"task": BUMPS, "options": ()}, {}),
    "a generator of an unknown split": ({"task": GENERATOR, "holdout": "zz", "decoder": "dit", "encoding": "vq"}, {}),
    "a generator without options": ({"task": GENERATOR, "options": (), "decoder": "dit", "encoding": "vq"}, {}),
}


@pytest.mark.parametrize("name", ODD)
def test_a_row_that_makes_no_sense_costs_no_page(name: str, tmp_path: Path) -> None:
    changes, about = ODD[name]
    task = load_task(changes["task"]) if "task" in changes else None
    fields = {"task": "mine:Task", "dataset": "d", "N": 8, "data_count": 1, "seed": 0}
    if task is not None:
        fields |= {"N": 16, **spec_fields(task, {})}
    usual = {"status": "missed", "reason": "budget", "accuracy": 0.25, "steps": 100, "seconds": 2.0}
    curves = {name: [0.5] * 100 for name in ("curve_accuracy", "curve_loss", "curve_error")} | {"curve_step": range(100)}
    made = make_row(
        RunSpec(**{**fields, **changes}), task_version="1" if task is None else task.version, fixed_count=0,
        **usual, **curves, **about,
    )  # fmt: skip
    with ResultStore(tmp_path / "store") as store:
        store.append([made])
    report, written = Builder(str(tmp_path / "store"), tmp_path / "out").build()
    assert report.runs == 1
    assert any(path.name == "index.html" for path in written)


@pytest.mark.parametrize("more", [0, 1])
def test_a_page_says_that_rows_are_missing_which_could_not_be_read(more: int, tmp_path: Path) -> None:
    for number in range(1 + more):
        with ResultStore(tmp_path / "store") as store:
            store.append([row(number)])
        if number == 0:
            [part] = (tmp_path / "store" / "runs").iterdir()
            whole = part.read_bytes()
            part.rename(tmp_path / part.name)
    (tmp_path / "store" / "runs" / part.name).write_bytes(whole[:-20])
    html = Builder(str(tmp_path / "store"), tmp_path / "out").build()[0].html()
    assert f"The store holds {more} finished run" in html
    assert "1 file of rows could not be read, so its runs are missing here. The command that wrote this page says why." in html
    assert "Nothing was asked of this store yet" not in html
    assert ("The store does not say what was asked" in html) is bool(more)
    assert ("No question is stored here" in html) is not bool(more)


def test_a_page_that_does_not_follow_looks_for_nothing(tmp_path: Path) -> None:
    with ResultStore(tmp_path / "store") as opened:
        opened.append([row(1)])
    Builder(str(tmp_path / "store"), tmp_path / "out").build()
    assert not (tmp_path / "out" / "stamp.js").exists()
    assert "data-every" not in (tmp_path / "out" / "index.html").read_text().partition("<style>")[0]


def asked(address: str, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def answer(address: str, path: str, host: str | None = None) -> tuple[int, bytes]:
    response = asked(address, path, **({} if host is None else {"Host": host}))
    return response.status, response.read()


def test_the_server_is_for_this_machine_and_this_folder_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "runs").mkdir(parents=True)
    (out / "index.html").write_text("the page")
    (tmp_path / "secret").write_text("not for you")
    with served(out, 0) as address:
        assert address.startswith("http://127.0.0.1:")
        assert answer(address, "/index.html") == (200, b"the page")
        assert answer(address, "/index.html", "localhost:80")[0] == 200
        assert answer(address, "/index.html", "evil.example:80")[0] == 403
        assert answer(address, "/runs/")[0] == 404, "it lists no folder"
        assert answer(address, "/../secret")[0] == 404
        assert answer(address, "/%2e%2e/secret")[0] == 404
    with pytest.raises(OSError, match=r"refused|reset"):
        answer(address, "/index.html")


@pytest.mark.skipif(sys.platform != "linux", reason="only there all of 127.0.0.0/8 is this machine")
def test_the_server_listens_on_the_loopback_address_alone(tmp_path: Path) -> None:
    """One that listened on all addresses would be heard at this one, too, and other machines may name any `Host`."""
    with served(tmp_path, 0) as address:
        port = urlsplit(address).port
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_no_page_from_elsewhere_reads_what_is_served(method: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs.js").write_text("the runs")
    with served(tmp_path / "out", 0) as address:
        own = asked(address, "/runs.js", method)
        assert own.status == 200
        assert own.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert own.headers["X-Content-Type-Options"] == "nosniff"
        found = {site: asked(address, "/runs.js", method, Sec_Fetch_Site=site).status for site in ("same-origin", "none")}
        assert found == {"same-origin": 200, "none": 200}
        for site in ("cross-site", "same-site", ""):
            assert asked(address, "/runs.js", method, Sec_Fetch_Site=site).status == 403
        assert asked(address, "/runs.js", method, Host="evil.example:80").status == 403
        assert asked(address, "/runs.js", method, Host="127.0.0.1").status == 200, "browsers leave out port 80"


def test_a_link_on_another_page_leads_to_what_is_served(tmp_path: Path) -> None:
    """A person opens it, and the page with the link cannot read it. In a frame it is not opened."""
    (tmp_path / "index.html").write_text("the page")
    with served(tmp_path, 0) as address:

        def status(site: str, mode: str, dest: str, **headers: str) -> int:
            fetch = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
            return asked(address, "/index.html", **fetch, **headers).status

        for site in ("cross-site", "same-site"):
            assert status(site, "navigate", "document") == 200
            assert status(site, "navigate", "iframe") == 403
            assert status(site, "no-cors", "script") == 403
            assert status(site, "cors", "document") == 403
        assert status("cross-site", "navigate", "document", Host="evil.example") == 403


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in (out / "a", out / "b"):
        folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("not for you")
    (out / "real.txt").write_text("its own")
    (out / "own").symlink_to("real.txt")
    (out / "out.txt").symlink_to(tmp_path / "secret")
    (out / "up").symlink_to(tmp_path)
    (out / "a" / "index.html").symlink_to(tmp_path / "secret")
    (out / "b" / "index.htm").symlink_to(tmp_path / "secret")
    (out / "round").symlink_to("round")
    with served(out, 0) as address:
        assert answer(address, "/own") == (200, b"its own")
        for path in ("/out.txt", "/up/secret", "/a/", "/b/", "/round", "/real%00.txt"):
            assert answer(address, path)[0] == 404


def test_a_page_takes_the_place_of_another_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, count in (("one", CHUNK + 1), ("two", 1)):
        with ResultStore(tmp_path / name) as opened:
            opened.append([row(number) for number in range(count)])
    Builder(str(tmp_path / "one"), out).build()
    (out / "studies").mkdir()
    former = ["scaling-0123456789abcdef-scaling.png", "compared-tune.csv"]
    for name in (*former, "mine.csv", "scaling.png"):
        (out / "studies" / name).touch()
    (out / "runs" / "mine.js").touch()
    left = [f"studies/.{name}.0123456789abcdef" for name in (*former, "mine.csv")] + ["runs/.1.js.0123456789abcdef"]
    for name in left:
        (out / name).touch()
        os.utime(out / name, (time.time() - 3700,) * 2)
    os.utime(out / left[1], (time.time() - 3500,) * 2)
    assert (out / "runs" / "1.js").exists()
    Builder(str(tmp_path / "two"), out).build()
    assert {path.name for path in (out / "runs").iterdir()} == {"index.js", "0.js", "mine.js"}
    written_or_unknown = {Path(name).name for name in left[1:3]}
    assert {path.name for path in (out / "studies").iterdir()} == {"mine.csv", "scaling.png", *written_or_unknown}


def test_a_claims_table_says_of_each_number_what_it_is() -> None:
    values = {0: 1.0, 1: 2.0, 2: 3.0}
    fitted, least = Condition("exponent", values, ">=", 1.4, 1.7), Condition("least", values, ">", 1)

    def table(*conditions: Condition) -> str:
        section = PAPERS[0].claims[0], Finding(list(conditions)), list[Drawn]()
        page = Report([Part(PAPERS[0], [section])], 1, 0.0).html()
        return " ".join(re.sub("<[^>]+>", " ", page.partition("<th>condition</th>")[2].partition("</table>")[0]).split())

    assert table(fitted).startswith("estimate range over seeds seeds needed outcome exponent 1.7 1 to 3 3 ≥ 1.4")
    assert table(least).startswith("median range over seeds seeds needed outcome least 2 1 to 3 2 of 3 meet it &gt; 1")
    both = table(fitted, least)
    assert both.startswith("estimate or median range over seeds")
    assert "exponent 1.7 1 to 3" in both
    assert "least 2 (median) 1 to 3" in both
    unknown = table(Condition("exponent", values, ">=", 1.4, math.nan))
    assert unknown.startswith("estimate range over seeds seeds needed outcome exponent 1 to 3"), "there is no estimate to show"


def test_a_page_says_what_claims_are_judged_by() -> None:
    page = " ".join(Report([Part(PAPERS[0], [])], 1, 0.0).html().split())
    assert "if the median over seeds, or the joint estimate where one is named, meets every condition of its rule. For" in page
    assert "For claims of the second paper gates have to be met, too." in page


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_column_with_infinities_is_sorted_as_numbers(tmp_path: Path) -> None:
    numbers = ["10", "inf", "9", "", "-inf", "1,000", "inf"]
    lines = "".join(f"<tr><td>{number}</td></tr>" for number in numbers)
    table = f'<table class="sortable"><thead><tr><th>n</th></tr></thead><tbody>{lines}</tbody></table>'
    script = (Path(build.__file__).parent / "page.js").read_text() + '; document.querySelector("th button").click()'
    (tmp_path / "page.html").write_text(f"{table}<script>{script}</script>")
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
        (tmp_path / "page.html").as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.findall(r"<td>(.*?)</td>", dom) == ["-inf", "9", "10", "1,000", "inf", "inf", ""]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The page of a store whose texts are made to break it."""
    options = (("name", EVIL), ("long", "x" * 5000))
    spec = RunSpec(task="mine:Task", dataset=EVIL, N=8, seed=LARGE, data_count=1, options=options)
    odd = make_row(
        spec, task_version=EVIL, fixed_count=0, status="failed", reason=EVIL, error=EVIL * 50, host=EVIL, launch=EVIL,
        measures={EVIL: float("nan"), "huge": 1e300, "whole": LARGE + 1}, curve_step=[1, 2, 3],
        curve_loss=[0.1, float("nan"), 0.3], curve_accuracy=[0.1, 0.2, 0.3], curve_error=[float("nan")] * 3, finished_at=START,
    )  # fmt: skip
    with ResultStore(tmp_path / "store") as opened:
        opened.append([odd, row(1)])
    Builder(str(tmp_path / "store"), tmp_path / "out").build()
    return tmp_path / "out"


def test_rows_that_mean_harm_are_text(hostile: Path) -> None:
    html = (hostile / "index.html").read_text()
    assert "<img src=x" not in html
    assert "49" not in re.findall(r"<h3>.*?</h3>", html)[0]
    assert all(value_of(path.read_bytes()) for path in hostile.glob("runs/*.js"))


def test_no_letter_turns_those_around_it(hostile: Path) -> None:
    scripts = [json.dumps(value_of(path.read_bytes()), ensure_ascii=False) for path in hostile.glob("runs/*.js")]
    for text in [(hostile / "index.html").read_text(), *scripts]:
        assert r"\u202edeen" in text
        assert "\u202e" not in text


def test_whole_numbers_that_no_browser_knows_are_sent_as_texts(hostile: Path) -> None:
    index, details = (value_of((hostile / "runs" / name).read_bytes())[1] for name in ("index.js", "0.js"))
    assert index["numbers"]["seed"] == [str(LARGE), 1]
    assert details["runs"][0]["measures"]["whole"] == str(LARGE + 1)


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_browser_shows_a_run_that_means_harm_as_text(hostile: Path, tmp_path: Path) -> None:
    key = value_of((hostile / "runs" / "index.js").read_bytes())[1]["keys"][0]
    page = hostile / "index.html"
    tell = "document.title = document.documentElement.scrollWidth"
    probe = f'<script>addEventListener("load", () => setTimeout(() => {{ {tell}; }}, 2500));</script></body>'
    page.write_text(page.read_text().replace("</body>", probe))
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=500,1200",
        "--virtual-time-budget=6000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{page.as_uri()}#run={key}",
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "<title>500</title>" in dom, "nothing has to be scrolled sideways"
    assert f"<h3>Run {key}</h3>" in dom
    assert "&lt;img src=x onerror=alert(1)&gt;" in dom
    assert "<img src=x" not in dom
    assert dom.count('class="curve"') == 2
    assert "2 runs." in dom
    assert f"<dd>{LARGE}</dd>" in dom
    assert "<dd>1.0e+300</dd>" in dom
    in_one_line = map(html.unescape, re.findall(r'<td class="settings-of" title="([^"]*)"', dom))
    assert any(text.startswith("</script>") for text in in_one_line)


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.parametrize("name", ["results", "what's 'mine', $HOME"])
def test_the_command_of_a_run_names_the_store_as_a_shell_reads_it(name: str, tmp_path: Path) -> None:
    store = tmp_path / name
    with ResultStore(store) as opened:
        opened.append([row(1)])
    Builder(str(store), tmp_path / "out").build()
    assert BROWSER is not None
    key = row(1)["key"]
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000",
        f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{(tmp_path / 'out' / 'index.html').as_uri()}#run={key}",
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    told = html.unescape(re.findall(r"<code>(python -m orchestrator.again .*?)</code>", dom)[0])
    words = ["python", "-m", "orchestrator.again", key, "--store", str(store), "--task", "mine:Task"]
    assert told == shlex.join(words)
    assert "<p>It runs a task that this store names: look at it first if the store is not yours.</p>" in dom


def shown_of(out: Path, key: str, profile: Path) -> str:
    """What a browser makes of a page on which this run is selected."""
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", f"--user-data-dir={profile}",
        "--dump-dom", f"{(out / 'index.html').as_uri()}#run={key}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_what_a_user_named_keeps_its_name_and_an_accuracy_that_misses_does_not_read_as_its_target(tmp_path: Path) -> None:
    options = (("error", 0.25), ("finished", "x"), ("seconds", "fast"))
    spec = RunSpec(task="mine:Task", dataset="d", N=8, seed=0, data_count=1, target=0.9, options=options)
    more = {"measures": {"loss": 2.0, "finished": 1, "accuracy": 0.5}, "accuracy": 0.89996, "loss": 0.125, "seconds": 90.0}
    made = make_row(
        spec, task_version="1", fixed_count=0, status="missed", reason="budget", finished_at=START, curve_step=[1, 2, 3],
        curve_accuracy=[0.5, 0.75, 0.8996], curve_error=[0.25] * 3, curve_loss=[0.5] * 3, steps=3, **more,
        curve_summary={"finished": [1.0, 2.0, 3.0]},
    )  # fmt: skip
    with ResultStore(tmp_path / "store") as opened:
        opened.append([made, row(1)])
    Builder(str(tmp_path / "store"), tmp_path / "out").build()
    dom = shown_of(tmp_path / "out", made["key"], tmp_path / "profile")
    told = [tuple(map(html.unescape, pair)) for pair in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", dom)]
    for pair in (
        ("error", "0.25"), ("finished", "x"), ("seconds", "fast"), ("loss", "2"), ("finished", "1"), ("accuracy", "0.5"),
        ("accuracy on what is held out", "0.8999"), ("training loss", "0.125"), ("time", "1.5 min"),
        ("ended", "2026-01-01 00:00 UTC"),
    ):  # fmt: skip
        assert pair in told
    assert '<td class="n">0.8999</td>' in dom
    assert ">0.8996</text>" in dom
    for head in ("finished", "training loss", "error on what is held out"):
        assert f"<h3>{head}</h3>" in dom


@pytest.mark.browser
@pytest.mark.slow(5)
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_page_that_was_written_anew_shows_no_other_run_in_the_place_of_one(tmp_path: Path) -> None:
    out, rows = tmp_path / "out", [row(number, error=f"error {number}", status="failed") for number in range(3)]
    with ResultStore(tmp_path / "store") as opened:
        opened.append(rows)
    Builder(str(tmp_path / "store"), out).build()
    assert "error 1" in shown_of(out, rows[1]["key"], tmp_path / "profile").partition('id="run"')[2]
    (out / "runs" / "0.js").write_bytes(RunFiles().of([rows[0], rows[2]], {})["0.js"])  # as an open page finds it
    shown = shown_of(out, rows[1]["key"], tmp_path / "profile").partition('id="run"')[2].partition("</div>")[0]
    assert "This page was written anew since it was opened. Reload it to see this run." in shown
    assert "error 2" not in shown
    assert "error 2" in shown_of(out, rows[2]["key"], tmp_path / "profile").partition('id="run"')[2]
