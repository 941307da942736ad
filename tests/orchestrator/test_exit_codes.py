"""What the help of every command says of its exit codes after a signal, and what the report returns."""

import inspect
import os
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

from analysis import export, measure
from analysis.report import __main__ as report
from analysis.report.build import Builder
from orchestrator import again, merge
from orchestrator.__main__ import STUDIES
from orchestrator.command.cli import run
from orchestrator.store import ResultStore

OF_SIGNALS = "130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP."
OTHERWISE = {report: f"{OF_SIGNALS.removesuffix('.')}, but 0 if Ctrl-C ends --follow or --serve."}


COMMANDS = *STUDIES.values(), again, merge, export, measure, report


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: str(one.__name__))
def test_help_says_which_exit_code_follows_a_signal(command: ModuleType) -> None:
    [registered] = command.app.registered_commands
    told = " ".join((inspect.getdoc(registered.callback) or "").split())
    assert told.partition("**Exit codes**: ")[2].endswith(f"; {OTHERWISE.get(command, OF_SIGNALS)}")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_page_that_follows_ends_by_a_signal(
    sent: signal.Signals, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sends(*_: object, **__: object) -> None:
        os.kill(os.getpid(), sent)
        time.sleep(5)
        raise AssertionError("the signal was not heard")

    monkeypatch.setattr(Builder, "follow", sends)
    ResultStore(tmp_path / "store").close()
    assert run(report.app, ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "page"), "--follow"]) == code
