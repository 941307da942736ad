"""The conditioning study: what it trains, what it shares with the objectives study, and what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator import conditioning, jepa, objectives
from orchestrator import generators as of_generators
from orchestrator.command.cli import App, run
from orchestrator.generator_study import GeneratorStudy
from orchestrator.searches import Rows
from tests.analysis.made_objectives import generator_row, parent_rows
from tests.conftest import check_refusal
from tests.orchestrator.test_objectives_study import about, shown
from trainables.spec import run_key

UNKNOWN = "'half' is unknown: choose full, dropout, quantised or both"


def study_of(app: App, words: str, monkeypatch: pytest.MonkeyPatch) -> GeneratorStudy:
    found: list[GeneratorStudy] = []
    monkeypatch.setattr(of_generators, "launch", lambda study, *_: found.append(study) or 0)
    assert run(app, words.split()) == 0
    return found[0]


@pytest.mark.parametrize("app", [conditioning.app, jepa.app])
def test_no_claim_of_these_studies_has_a_verdict_without_level_2(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "no composition is of level 2 in this split: no claim that is about these runs can have a verdict"
    assert study_of(app, "--tier smoke --seeds 1 --split fail1", monkeypatch).notes[-1] == told


def test_dit_is_told_the_factors_in_four_ways_and_the_first_of_them_is_a_run_of_the_objectives_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of(conditioning.app, "--precision float32", monkeypatch)
    words = ("full", "dropout", "quantised", "both")
    assert about(study, "decoder", "encoding", "conditioning", "seed") == [
        ("dit", "vq", word, seed) for seed in range(3) for word in words
    ]
    assert study.columns == ("decoder", "encoding", "conditioning")
    core = study_of(objectives.app, "--precision float32", monkeypatch)
    keys = [{run_key(spec, one.task.version) for spec in one.specs} for one in (study, core)]
    assert len(keys[0] & keys[1]) == 3
    assert tuple(study.settings["conditionings"]) == words
    assert "conditionings" not in core.settings


def test_dropout_is_varied_where_there_is_any(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families dit,maskgit --dropout 0.1,0.3 --dropout-mode null_sample,zero_batch"
    study = study_of(conditioning.app, words, monkeypatch)
    names = ("dropout", "dropout_mode")
    values = {"dropout": 0.1, "dropout_mode": "null_sample"}
    found = [
        (spec.decoder, spec.value("conditioning"), *(dict(spec.options).get(name, values[name]) for name in names))
        for spec in study.specs
    ]
    told = [(0.1, "null_sample"), (0.1, "zero_batch"), (0.3, "null_sample"), (0.3, "zero_batch")]
    wanted = [
        (family, word, *more)
        for family in ("dit", "maskgit")
        for word in ("full", "dropout", "quantised", "both")
        for more in (told if word in ("dropout", "both") else told[:1])
    ]
    assert found == wanted
    lines = [line[:5] for line in shown(study.table(Rows(), {}))]
    assert ["dit", "vq", "quantised", "", ""] in lines
    assert ["maskgit", "vq", "both", "0.3", "zero_batch"] in lines


@pytest.mark.parametrize(
    ("app", "words", "hint"),
    [
        (conditioning.app, "--conditionings half", f"--conditionings {UNKNOWN}"),
        (conditioning.app, "--dropout 1", "dropout must be at most 0.999, not 1.0"),
        (conditioning.app, "--dropout-mode never", "--dropout-mode 'never' is unknown: choose null_sample or zero_batch"),
        (conditioning.app, "--option conditioning=full", "--option conditioning has an option of its own: use --conditionings"),
        (conditioning.app, "--option dropout=0.2", "--option dropout has an option of its own: use --dropout"),
        (conditioning.app, "--conditionings full --dropout 0.3", "--dropout is for conditioning dropout or both, not full: om"),
        (
            conditioning.app,
            "--conditionings full,quantised --dropout-mode zero_batch",
            "--dropout-mode is for conditioning dropout or both, not full or quantised: omit it, or choose --conditionings dr",
        ),
        (objectives.app, "--option conditioning=half", f"conditioning {UNKNOWN}"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    app: App, words: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(app, words.split(), hint, tmp_path, capsys)


def test_the_objectives_study_may_be_told_less_too(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--tier smoke --seeds 1 --families dit --option conditioning=both --option dropout=0.3"
    study = study_of(objectives.app, words, monkeypatch)
    assert about(study, "encoding", "conditioning", "dropout") == [("vae", "both", 0.3), ("vq", "both", 0.3)]
    assert study.settings["options"] == {"conditioning": "both", "dropout": 0.3}
    assert study.answer(Rows())["runs"] == []


def test_its_options_are_those_of_the_objectives_study_and_three_more() -> None:
    found = []
    for app in (conditioning.app, objectives.app):
        text = re.sub(r"\x1b\[[\d;]*m", "", CliRunner().invoke(app, ["--help"], env={"COLUMNS": "160"}).output)
        found.append(set(re.findall(r"^│ \*? *(--[A-Za-z][\w-]*)", text, re.MULTILINE)))
    assert found[0] - found[1] == {"--conditionings", "--dropout", "--dropout-mode"}
    assert found[1] <= found[0]


@pytest.mark.slow(2)
@pytest.mark.usefixtures("quick_oracle")
def test_it_says_what_follows_for_its_own_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(conditioning.app, f"--tier smoke --tokenizers vae --store {tmp_path}", monkeypatch)
    level2 = {"full": 0.9, "dropout": 0.7, "quantised": 0.8, "both": 0.1}
    rows = Rows([generator_row(spec, level2=level2[str(spec.value("conditioning"))]) for spec in study.specs])
    for spec in study.specs:
        for row in parent_rows(spec):
            rows.add(row)
    found = {one["claim"]: (one["number"], one["verdict"]) for one in study.answer(rows)["verdicts"]}
    assert found == {"conditioning": (6, "pass"), "dropout-hurts": (7, "fail"), "quantised-unstable": (8, "fail")}
    files = study.write(rows, tmp_path / "out", force=True)
    assert sorted(path.name for path in files) == [
        "conditioning-curves.png", "conditioning-curves.svg", "conditioning-levels.png", "conditioning-levels.svg",
        "conditioning.csv", "conditioning.json",
    ]  # fmt: skip
