"""Who writes -0.0 asks for the run of 0.0, wherever it is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator import generators as of_generators
from orchestrator import objectives, scaling
from orchestrator.command.cli import run
from orchestrator.command.ranges import parse_range
from orchestrator.command.searched import read_search, read_weight
from trainables.generative.generator_task import GeneratorTask
from trainables.settings import RUN_SETTINGS, Setting
from trainables.spec import RunSpec, run_key

OBJECTIVES = "--tier smoke --families maskgit --tokenizers vq --seeds 1"
PROGRAM = ("--program", "sh train.sh {data_count} {N} {seed} {noise}", "--counts", "5..90", "--N", "8", "--seeds", "1")
SETTINGS = "[settings.noise]\ndefault = {}\n"


def launched(module: Any, app: Any, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    found: list[Any] = []
    monkeypatch.setattr(module, "launch", lambda study, *_: found.append(study) or 0)
    assert run(app, words) == 0
    return found.pop()


def signs(spec: RunSpec) -> list[str]:
    """The settings of a run that are -0.0."""
    values = {**spec.to_dict(), **dict(spec.options)}
    return [name for name, value in values.items() if value == 0 and isinstance(value, float) and math.copysign(1, value) < 0]


@pytest.mark.parametrize(
    ("name", "of_zero", "of_minus"),
    [
        ("smoothing", "--smoothing 0", "--smoothing=-0"),
        ("colour_jitter", "--colour-jitter 0.0", "--colour-jitter=-0.0"),
        ("probe_gate", "--option probe_gate=0", "--option probe_gate=-0"),
        ("gate", "--option gate=0", "--option gate=-1e-400"),
        ("weight_decay", "--weight-decay 0", "--weight-decay -0.0"),
    ],
)
def test_a_generator_has_the_key_of_zero(name: str, of_zero: str, of_minus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{OBJECTIVES} {more}".split() for more in (of_zero, of_minus)]
    zero, minus = (launched(of_generators, objectives.app, each, monkeypatch).specs for each in words)
    assert [spec.value(name) for spec in zero] == [0.0]
    assert [signs(spec) for spec in minus] == [[]]
    version = GeneratorTask.version
    assert [run_key(spec, version) for spec in minus] == [run_key(spec, version) for spec in zero]


def test_a_program_is_told_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("echo 0.5")
    for default in ("0.0", "-0.0"):
        (tmp_path / f"{default}.toml").write_text(SETTINGS.format(default))
    ways = [
        ("--vary", "noise=0.0"), ("--vary", "noise=-0.0"), ("--vary", "noise=0.1", "--noise", "-0.0"),
        ("--program-settings", "0.0.toml"), ("--program-settings", "-0.0.toml"),
    ]  # fmt: skip
    specs = [launched(scaling, scaling.app, [*PROGRAM, *way], monkeypatch).brackets[0].template for way in ways]
    assert [spec.option("noise") for spec in specs] == [0.0] * 5
    assert [signs(spec) for spec in specs] == [[]] * 5
    assert len({run_key(spec, "1") for spec in specs}) == 1


def test_other_studies_take_numbers_of_an_option_without_the_sign_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    study = launched(scaling, scaling.app, ["--N", "8", "--seeds", "1", "--weight-decay", "-0.0"], monkeypatch)
    assert {(bracket.template.weight_decay, *signs(bracket.template)) for bracket in study.brackets} == {(0.0,)}


def test_what_is_read_has_no_sign_of_zero() -> None:
    (dimension,) = read_search(["weight_decay=-0|0.1"], RUN_SETTINGS)
    read = [*parse_range("-0"), read_weight("lambda_entropy", "-0.0"), Setting("x", float, None).read("-0.0"), *dimension.words]
    assert [str(value) for value in read] == ["0.0", "0.0", "0.0", "0.0", "0.0", "0.1"]
    assert parse_range("0.5..2") == (0.5, 2.0)
    assert Setting("x", float, None).read("-1.5") == -1.5
    assert str(Setting("x", str, None).read("-0.0")) == "-0.0"


def test_a_run_that_is_stored_keeps_its_sign_and_its_key() -> None:
    spec = RunSpec(task="a:B", dataset="x", N=8, data_count=1, seed=0, weight_decay=-0.0, options=(("noise", -0.0),))
    assert signs(RunSpec.from_dict(spec.to_dict())) == ["weight_decay", "noise"]
    assert run_key(spec, "1") == "000dad56eebc1b67af9d6a79", "as before"
