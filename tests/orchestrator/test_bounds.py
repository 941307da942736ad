"""Every number that a study takes: just outside its bounds it is refused, in one line whose bound is the true one."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from orchestrator import __main__ as everything
from orchestrator.command.cli import run
from orchestrator.engine import estimate
from orchestrator.launch import LaunchOptions
from tests.conftest import changed
from tests.orchestrator.timed import look_at_each_run_once

SMALL = {
    "scaling": "--N 8 --decoder mlp --seeds 1",
    "regularization": "--N 8 --trials 2 --seeds 1 --epochs 2 --channels 1",
    "encodings": "--N 8 --max-steps 2 --decoders mlp --by-depth none --seeds 1 --encodings bump --holdouts center",
    "geometry": "--N 8 --max-steps 2 --depths 2 --decoders mlp --encodings bump --seeds 1 --bumps 5",
    "tuning": "--N 8 --max-steps 2 --decoder mlp --bumps 5 --seeds 1",
    "rotation": "--N 8 --epochs 1 --width 4 --angles 100 --seeds 1",
    "objectives": "--tier smoke --families dit --tokenizers vq --seeds 1",
    "conditioning": "--tier smoke --conditionings dropout --seeds 1",
    "jepa": "--tier smoke --families maskgit --seeds 1",
    "signal": "--tier smoke --factors size --seeds 1",
}
STUDIES: dict[str, Any] = {name: typer.main.get_command(everything.STUDIES[name].app) for name in SMALL}


OF_LAUNCHES = {field.name for field in dataclasses.fields(LaunchOptions)}


class Bound(NamedTuple):
    outside: str
    hint: str
    inside: str | None
    """None: it takes too long, or more than this machine has."""


POSITIVE = [Bound("0", "must be above 0", "1e-9"), Bound("-1", "must be above 0", None), Bound("inf", "finite", "1e9")]
FINITE = [Bound("inf", "finite", "1e9"), Bound("nan", "", None)]
SIGMA = "sigma must be above 0 and at most N = 8 pixels"
TOLERANCE = Bound("4", "tolerance must be at least 0 and under N/2 = 4 pixels", "3")
EPOCHS = "steps each: give at most"
OTHERS: dict[str, list[Bound]] = {
    "--lr": POSITIVE,
    "--weight-decay": FINITE,
    "--sigma": [Bound("0", SIGMA, "0.001"), Bound("8.001", SIGMA, "8"), Bound("inf", "finite", None)],
    "--tolerance": [TOLERANCE],
    "--target": [Bound(value, "must lie in (0, 1]", "1") for value in ("-1", "0", "1.001", "nan")],
    "--resolution": [Bound(value, "must lie between 0 and 1", "0.999") for value in ("-1", "0", "1", "nan")],
    "--until-width": [
        *(Bound(value, "must be a finite number above 0", None) for value in ("-1", "0", "inf", "nan")),
        Bound("0.2", "needs --seeds 3 or more to begin with, not 1", None),
    ],
    "--gpus-per-run": [Bound("inf", "finite", None), Bound("1000", "this machine has", None)],
    "--max-hours": FINITE,
    "--price": FINITE,
    "--max-cost": [Bound("inf", "finite", None), Bound("1", "add --price", None)],
    "--stall-minutes": [Bound("inf", "to 1000000, not", "1e6"), Bound("nan", "", None)],
    "--pack-size": [],
    "scaling --N": [Bound("7", "at least 8", "8"), Bound("1025", "at most 1024", None)],
    "scaling --seeds": [Bound("50001", "100002 thresholds are too many (at most 100000)", None)],
    "regularization --rank": [Bound("9", "--rank must lie in 1..8", "8")],
    "regularization --epochs": [Bound("1073741824", f"{EPOCHS} 1073741823", "1073741823")],
    "regularization --lambda-entropy": [Bound("-1", "above 0", "0"), Bound("0..1", "0 < LOW", "1e-9..1")],
    "regularization --lambda-variance": [Bound("-1", "above 0", "0"), Bound("0..1", "0 < LOW", "1e-9..1")],
    "rotation --epochs": [Bound("715827883", f"{EPOCHS} 715827882", "715827882")],
    "rotation --angles": [Bound("2097153", "angles must lie in 2..2097152", None)],
    "rotation --gap": [Bound("160..361", "0..360", "160..359"), Bound("200..200", "not be empty", "160..200")],
    "geometry --bumps": [Bound("40", "--bumps 40 is more", "39"), Bound("4000000000", "give at most 39", None)],
    "tuning --bumps": [Bound("40", "give at most 39", "39"), Bound("100001", "from 0 to 100000", None)],
    "geometry --depths": [Bound("0", "from 1 to 32", "1"), Bound("33", "from 1 to 32", None)],
    "signal --share": [Bound(value, "must lie above 0 and be at most 1", "0.001") for value in ("-1", "0", "1.001", "nan")],
    "encodings --by-depth": [Bound("0", "from 1 to 32", "1"), Bound("33", "from 1 to 32", None)],
}
"""Of the options that do not have both bounds in their help. Of all studies, or of the one named."""


def bounds(study: str, option: Any) -> Iterator[Bound]:
    """What is expected of an option: its bounds in the help, and those above."""
    whole = "int" in str(option.type_descriptor.annotation)
    step = 1 if whole else 1e-6
    if option.min is not None:
        inside = None if option.opts[0] in ("--max-cost", "--angles", "--data-count") else str(option.min)
        yield Bound(str(option.min - step), f"number from {option.min} ", inside)
    if option.max is not None:
        yield Bound(str(option.max + step), f"{option.max}, not", None)
    name = option.opts[0]
    yield from OTHERS.get(f"{study} {name}", OTHERS.get(name, []))


def is_number(option: Any) -> bool:
    return any(kind in str(option.type_descriptor.annotation) for kind in ("int", "float"))


def cases() -> list[Any]:
    found = []
    for study, command in STUDIES.items():
        for option in command.params:
            if option.name != "help":
                found += [pytest.param(study, option.opts[0], bound) for bound in bounds(study, option)]
    return found


@pytest.mark.slow(0.1)
@pytest.mark.parametrize(("study", "option", "bound"), cases(), ids=lambda value: getattr(value, "outside", value))
def test_just_outside_is_refused_and_just_inside_is_not(
    study: str, option: str, bound: Bound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(typer.main, "get_command", lambda _: STUDIES[study])
    look_at_each_run_once(monkeypatch)
    if option.removeprefix("--").replace("-", "_") in OF_LAUNCHES:
        monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)  # the runs are the same
    app, words = everything.STUDIES[study].app, [*SMALL[study].split(), "--dry-run"]
    assert run(app, changed(words, option, bound.outside)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("error: ")
    assert bound.hint in line
    assert option.removeprefix("--").replace("-", "_") in line.replace("-", "_")
    if bound.inside is not None:
        assert run(app, changed(words, option, bound.inside)) == 0, capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_number_has_both_bounds_in_its_help_or_is_listed() -> None:
    listed = {name if " " in name else f"{study} {name}" for name in OTHERS for study in STUDIES}
    for study, command in STUDIES.items():
        for option in command.params:
            if option.name != "help" and is_number(option) and (option.min is None or option.max is None):
                assert f"{study} {option.opts[0]}" in listed
