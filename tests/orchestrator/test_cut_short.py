"""Whether more steps may lower a threshold: the line under the table of the scaling study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Group

from analysis.threshold_notes import _still_learned
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket
from orchestrator.store import make_row
from orchestrator.thresholds import ThresholdStudy
from tests.toy import Toy
from trainables.spec import GIVEN_UP, Counts, RunSpec

MAX_STEPS = 2000
STEPS = range(20, MAX_STEPS + 1, 20)
FLAT = [0.6] * len(STEPS)
RISING = [0.4 + 0.48 * step / MAX_STEPS for step in STEPS]
NEAR = [0.902 if step % 300 else 0.9 for step in STEPS]
"""Flat on the samples that are looked at, though they say a little more than the target."""
LINE = f"toys: at N = 16, 24 some lower bounds are runs that ended after {MAX_STEPS} steps while they still learned"


def told(stop: str, accuracies: Sequence[float], reason: str = "budget", rows: Rows | None = None) -> tuple[list[str], Rows]:
    """What is said of a study whose missed runs have this curve; the stopping rule gives them up, if that is the `reason`."""
    study, rows = ended(stop, accuracies, reason, rows)
    return study.notes(rows), rows


def seeds_of(count: int) -> list[Bracket]:
    """The brackets of so many seeds at two grid sizes."""
    template = RunSpec(task="tests.toy:Toy", dataset="toys", N=16, data_count=0, seed=0, max_steps=MAX_STEPS)
    templates = [replace(template, N=N, seed=seed) for N in (16, 24) for seed in range(count)]
    return [Bracket(template=one, task_version="1", counts=Counts(1, 100)) for one in templates]


def ended(
    stop: str,
    accuracies: Sequence[float],
    reason: str = "budget",
    rows: Rows | None = None,
    thresholds: Sequence[int] = (40,),
) -> tuple[ThresholdStudy, Rows]:
    """The study, with a seed for each of these thresholds."""
    study = ThresholdStudy(Toy(), seeds_of(len(thresholds)), 0.05, {"target": 0.9, "max_steps": MAX_STEPS}, False, stop)
    rows = Rows() if rows is None else rows
    while not study.search.finished(rows):
        for spec in study.search.propose(rows, 1):
            passes = spec.data_count >= thresholds[spec.seed]
            gives_up = reason == GIVEN_UP and spec.stop == "early"
            end = {"status": "passed", "reason": "target"} if passes else {"status": "missed", "reason": "budget"}
            end |= {"reason": reason} if gives_up and not passes else {}
            count = 20 if gives_up or passes else len(STEPS)
            curves = {"curve_step": STEPS[:count], "curve_loss": [0.01] * count, "curve_accuracy": accuracies[:count]}
            curves |= {"curve_error": [0.1] * count} if accuracies else {}
            found = {"accuracy": 0.6, "steps": STEPS[count - 1], "seconds": 1.0, **(curves if accuracies else {})}
            rows.add(make_row(spec, task_version="1", fixed_count=0, **found, **end))
    assert all(result.lower_ended == "budget" for result in study.results(rows))
    return study, rows


@pytest.mark.parametrize(
    ("stop", "accuracies", "reason", "lines"),
    [
        ("budget", FLAT, "budget", 0),
        ("budget", RISING, "budget", 1),
        ("budget", [], "budget", 0),
        ("auto", FLAT, GIVEN_UP, 0),
        ("auto", RISING, GIVEN_UP, 1),
        ("auto", RISING, "budget", 1),
        ("auto", FLAT, "budget", 0),
    ],
)
def test_more_steps_are_said_to_help_only_where_that_is_known(
    stop: str, accuracies: list[float], reason: str, lines: int
) -> None:
    """Nobody looks whether a run has converged under `budget`, but its curve tells."""
    found, rows = told(stop, accuracies, reason)
    assert [line.startswith(LINE) for line in found] == [True] * lines
    if stop == "budget":
        return
    assert told("auto", accuracies, reason, rows)[0] == found


@pytest.mark.parametrize(
    ("accuracies", "accuracy", "still"),
    [
        (NEAR, 0.897, False), (FLAT, 0.6, False), ([0.0] * 100, 0.0, True), (RISING, 0.88, True), (RISING[::-1], 0.4, False),
        ([0.5, 0.7], 0.7, True), ([0.5, 0.55], 0.55, False), ([0.8] * 50 + [0.85] * 50, 0.85, True),
        ([0.8] * 50 + [0.82] * 50, 0.82, False), ([0.1] * 60 + [0.3] * 40, 0.3, True), ([0.5], 0.5, False), ([], 0.5, False),
        ([0.5, 0.6, 0.7, 0.75, 0.8, 0.85], 0.85, True), (RISING, None, False),
    ],
)  # fmt: skip
def test_a_run_still_learned_if_a_doubling_of_its_steps_may_reach_the_target(
    accuracies: list[float], accuracy: float | None, still: bool
) -> None:
    assert _still_learned({"curve_accuracy": accuracies, "accuracy": accuracy, "target": 0.9}) is still


@pytest.mark.slow(1)
def test_every_note_below_the_table_is_in_the_json_of_the_answer(tmp_path: Path) -> None:
    study, rows = ended("budget", RISING, thresholds=(10, 40))
    shown = study.table(rows, {})
    assert isinstance(shown, Group)
    _, law, *notes = map(str, shown.renderables)
    assert law.startswith("toys: images ~ N^")
    apart, short = notes
    assert "toys: at N = 16 seeds need from 10 images to 40 images" in apart
    assert short.startswith(LINE)
    assert study.answer(rows)["notes"] == notes
    files = {file.name: file for file in study.write(rows, tmp_path, force=True)}
    assert json.loads(files["scaling.json"].read_text())["notes"] == notes


@pytest.mark.slow(1)
def test_the_json_says_whether_the_question_is_answered_and_how_many_thresholds_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(study: ThresholdStudy, rows: Rows) -> tuple[bool, int]:
        files = {file.name: file for file in study.write(rows, tmp_path, force=True)}
        written, printed = json.loads(files["scaling.json"].read_text()), study.answer(rows)
        assert written == {name: value for name, value in printed.items() if name != "outliers"}
        return written["answered"], written["open"]

    study, rows = ended("budget", FLAT)
    assert told(study, rows) == (True, 0)
    more = ThresholdStudy(Toy(), seeds_of(3), 0.05, study.settings, False, "budget")
    assert told(more, rows) == (False, 4)
    for spec in more.search.propose(rows, 1):
        rows.add(make_row(spec, task_version="1", fixed_count=0, status="failed", reason="error"))
    assert [result.verdict for result in more.results(rows)].count("failed") == 1
    assert told(more, rows) == (False, 3), "a threshold whose run failed is none that is open"
    monkeypatch.setattr(ThresholdStudy, "doubt", lambda *_: "the exponent is not known well enough")
    assert told(study, rows) == (False, 0)


def test_files_are_written_anew_where_only_a_note_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, rows = ended("budget", FLAT)
    written: list[Sequence[str]] = []
    monkeypatch.setattr(ThresholdStudy, "write_answer", lambda _, answer, out, told: written.append(told["notes"]) or [out])
    for notes in ([], ["one"], ["one"]):
        monkeypatch.setattr(ThresholdStudy, "notes", lambda *_, told=notes: told)
        assert list(study.write(rows, tmp_path, force=True)) == [tmp_path]
    assert written == [[], ["one"]]
