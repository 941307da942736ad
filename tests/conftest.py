"""Shared by all tests: a home folder of their own, and real commands in real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import typer

from benchmarks.chaos.rows import comparable as comparable
from benchmarks.chaos.rows import read
from orchestrator.command.cli import run

ROOT = Path(__file__).parent.parent

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when ray is imported; the commands under test choose for themselves

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a job in the background: the commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Command:
    """A study started as a user starts it, in a process of its own and a folder of its own."""

    def __init__(self, folder: Path, home: Path, study: str, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
        environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        self.output = folder / f"output-{len(list(folder.glob('output-*')))}.txt"
        self.errors = self.output.with_suffix(".err")
        with self.output.open("w") as out, self.errors.open("w") as err:
            module = study if "." in study else f"orchestrator.{study}"
            words = [sys.executable, "-m", module, *arguments]
            self.process = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True)

    @property
    def stdout(self) -> str:
        return self.output.read_text()

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    def wait(self, timeout: float = 240) -> int:
        """The exit code; what was printed is shown when it takes too long."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"still running after {timeout} s:\n{self.stdout}\n{self.stderr}")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def start(tmp_path: Path, home: Path) -> Iterator[Callable[..., Command]]:
    """Starts a study, `scaling` unless told otherwise, or a module (its name has a dot), in the test's folder."""
    started: list[Command] = []

    def begin(*arguments: str, study: str = "scaling") -> Command:
        started.append(Command(tmp_path, home, study, *arguments))
        return started[-1]

    yield begin
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def read_rows(folder: Path, store: str = "results") -> pd.DataFrame:
    """The store as any user reads it."""
    return read(folder / store)


def wait_for_rows(command: Command, folder: Path, count: int, timeout: float = 120) -> bool:
    """Whether the store reached `count` rows while the command was still at work."""
    end = time.monotonic() + timeout
    while time.monotonic() < end and command.process.poll() is None:
        if len(read_rows(folder)) >= count:
            return True
        time.sleep(0.05)
    return False


def check_refusal(
    app: typer.Typer, arguments: list[str], hint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that is a mistake: exit code 2, one line on stderr with the hint in it, and nothing written to the folder."""
    assert run(app, arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.err.startswith("error: ")
    assert hint in printed.err
    assert not list(folder.iterdir())
