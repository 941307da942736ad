"""The comparison with other tools: everyone is asked for the same thresholds, and their trials are read in the same way."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.peers import ways
from benchmarks.peers.__main__ import goals, same, summary, wanted
from benchmarks.peers.question import Answer, Question, Threshold, read_answer, read_ledger, train
from tests.conftest import ROOT


def question(folder: Path = Path(), **changes: object) -> Question:
    settings = {"N": (12,), "datasets": ("bumps",), "seeds": 1, "decoder": "mlp", "resolution": 0.05, "target": 0.9}
    settings |= {"max_steps": 60, "cores": 1, "limit": 60.0, "folder": str(folder)}
    return Question(**{**settings, **changes})


@pytest.fixture
def threshold() -> Threshold:
    return question(N=(32,)).thresholds()[0]


def test_a_threshold_is_sought_from_a_sensible_low_to_all_that_can_be_drawn() -> None:
    bumps, stripes = question(N=(32,), datasets=("bumps", "stripes+bumps")).thresholds()
    assert (bumps.low, bumps.high, bumps.fixed) == (30, 921, 0)
    assert (stripes.low, stripes.fixed) == (64, 64)
    assert (stripes.spec(64).data_count, stripes.spec(70).data_count) == (0, 6)
    assert [t.name for t in question(N=(16, 24), seeds=2).thresholds()] == [
        "bumps 16 0", "bumps 16 1", "bumps 24 0", "bumps 24 1",
    ]  # fmt: skip


def test_the_grid_has_the_resolution_and_no_more(threshold: Threshold) -> None:
    grid = threshold.grid()
    assert (grid[0], grid[-1], len(grid)) == (30, 921, 76)
    assert all(threshold.close(lower, upper) for lower, upper in pairwise(grid))
    assert not any(threshold.close(lower, upper) for lower, _, upper in zip(grid, grid[1:], grid[2:-1], strict=False))


@pytest.mark.parametrize(
    ("tried", "answer"),
    [
        ({200: False, 205: True, 300: True}, Answer(205, 200, True)),
        ({180: False, 205: True}, Answer(205, 180, False)),
        ({200: False, 205: True, 300: False}, Answer(205, 200, True)),  # 300 was stopped: others were better
        ({30: True}, Answer(30, None, True)),
        ({31: True}, Answer(31, None, False)),
        ({800: False}, Answer(None, 800, False)),
        ({921: False}, Answer(None, 921, True)),
        ({}, Answer(None, None, False)),
    ],
)
def test_an_answer_is_the_least_total_that_passed(threshold: Threshold, tried: dict[int, bool], answer: Answer) -> None:
    assert read_answer(threshold, tried) == answer


@pytest.mark.parametrize("least", [30, 31, 32, 33, 200, 205, 900, 921, 1000])
def test_bisection_finds_every_threshold(threshold: Threshold, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: dict[int, bool] = {}

    def passes(spec, ledger):
        assert spec.data_count not in tried
        tried[spec.data_count] = spec.data_count >= least
        return tried[spec.data_count]

    monkeypatch.setattr(ways, "passes", passes)
    ways.bisect(question(N=(32,)), threshold, "budget")
    found = read_answer(threshold, tried)
    assert next(iter(tried)) == 32
    assert found.settled
    assert found.total is None if least > 921 else least <= found.total <= max(least + 1, least / 0.95)
    assert len(tried) <= 10


def test_every_training_is_counted_also_one_that_was_abandoned(tmp_path: Path) -> None:
    asked = question(tmp_path)
    threshold = asked.thresholds()[0]
    assert next(train(threshold.spec(6), asked.ledger)).step == 20
    looks = list(train(threshold.spec(8), asked.ledger))
    assert [look.step for look in looks] == [20, 40, 60]
    assert not looks[-1].passed
    passing = list(train(threshold.spec(120), asked.ledger))
    assert [look.passed for look in passing] == [False] * (len(passing) - 1) + [True]
    counted = read_ledger(asked.ledger)
    assert (counted.number, counted.steps) == (3, 20 + 60 + passing[-1].step)
    assert counted.tried == {"bumps 12 0": {6: False, 8: False, 120: True}}


LEFT_BEHIND = """
burn = "import time\\nwhile time.process_time() < 2: pass\\nprint('burnt', flush=True)\\ntime.sleep(600)"
subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE).stdout.readline()
"""
NOT_WAITED_FOR = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
burn = "import time\\nwhile time.process_time() < 2: pass"
subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE).stdout.read()
"""


@pytest.mark.slow(1)
@pytest.mark.parametrize("script", [LEFT_BEHIND, NOT_WAITED_FOR])
def test_all_descendants_are_counted_and_ended(script: str, tmp_path: Path) -> None:
    measuring = f"""
import os, psutil, sys
from pathlib import Path
from benchmarks.peers import measure
measure.LINGER, measure.SAMPLE = 0.2, 0.2
command = [sys.executable, "-c", {"import signal, subprocess, sys" + script!r}]
spent = measure.spend(command, Path("out"), dict(os.environ), Path())
assert spent.returncode == 0 and 1.5 < spent.cpu_seconds < 4, spent
assert not psutil.Process().children(recursive=True)
"""
    subprocess.run([sys.executable, "-c", measuring], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, timeout=60)


def result(way: str, seconds: float, total: int | None, cut: bool = False) -> dict:
    answer = {"bumps 12 0": {"total": total, "lower": None, "settled": not cut}}
    counts = {"cpu_seconds": 2 * seconds, "trainings": 5, "steps": 1000, "cut": ["bumps 12 0"] if cut else []}
    return {"way": way, "repeat": 0, "seconds": seconds, "load_before": 0.0, "answers": answer, **counts}


def test_the_table_says_what_was_cut_off_and_what_agrees() -> None:
    ours_thrice = [result("a", seconds, 40) for seconds in (10, 12, 20)]
    results = [*ours_thrice, result("d", 60, 44, cut=True), result("f", 30, 41)]
    head, _, ours, syne, serial = summary(results, question().thresholds(), 0.05).splitlines()
    assert head.count("|") == ours.count("|")
    assert ours == "| a | this project | 12 (10 to 20) | 1.0 | 24 | 5 | 1,000 | 1 of 1 | 1 |"
    assert "| > 60 (60 to 60), 1 of 1 cut off | > 5.0 |" in syne
    assert syne.endswith("| 0 of 1 | 0 |")
    assert "| 2.5 |" in serial


def test_the_goals_are_judged_by_medians() -> None:
    results = [result("a", 10, 40), *(result(way, 60, 40) for way in ("b", "b2", "c", "c2", "d")), result("e", 19, 40)]
    first, second = goals(results).splitlines()
    assert first == "5 times faster than the fastest of b to d: 6.0 times, met"
    assert second == "2 times faster than e: 1.9 times, missed"
    assert goals(results[:3]) == ""
    results[1]["seconds"], results[1]["cut"] = 40, ["bumps 12 0"]
    assert goals(results).splitlines()[0].endswith("fastest of b to d: > 4.0 times, cut off too early to say")


def test_what_was_measured_or_is_hopeless_is_not_measured_again() -> None:
    results = [result("a", 10, 40), result("b", 300, None, cut=True)]
    assert [wanted(way, repeat, results) for way, repeat in (("a", 0), ("a", 1), ("b", 1), ("c", 0))] == [
        False, True, False, True,
    ]  # fmt: skip


def test_same_is_within_the_resolution_or_one_image() -> None:
    assert same(100, 105, 0.05)
    assert not same(100, 106, 0.05)
    assert same(8, 9, 0.05)
    assert same(None, None, 0.05)
    assert not same(None, 8, 0.05)


@pytest.mark.deep
@pytest.mark.slow(60)
def test_the_quick_comparison_runs_and_resumes(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    command = [sys.executable, "-m", "benchmarks.peers", "--quick", "--max-steps", "300", "--only", "f2"]

    def call(*more: str) -> subprocess.CompletedProcess:
        return subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=200)

    first = call("--save", str(raw))
    assert first.returncode == 0, first.stderr
    assert "| f2 | one process, bisection, our stopping rule |" in first.stdout
    kept = json.loads(raw.read_text())
    assert [r["way"] for r in kept["results"]] == ["f2"]
    assert kept["results"][0]["answers"]["bumps 12 0"]["settled"]
    again = call("--resume", str(raw))
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""  # nothing was measured anew
    assert again.stdout == first.stdout
    other = call("--resume", str(raw), "--seeds", "2", "--max-steps", "200")
    assert other.returncode == 2
    assert "other settings" in other.stderr
