"""What is said of a process that ends without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal
from orchestrator.engine.last_words import last_words

with last_words("'it' is $HOME %s") as withdraw:
    {}
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "'it' is $HOME %s\n"),
        ("os._exit(1)", "'it' is $HOME %s\n"),
        ("withdraw(); os._exit(1)", ""),
        ("withdraw(); withdraw()", ""),
        ("raise SystemExit(3)", ""),
        ("os.killpg(os.setsid() or os.getpid(), signal.SIGKILL)", "'it' is $HOME %s\n"),
    ],
)
def test_it_is_said_only_of_one_that_ended_without_a_word(end: str, said: str) -> None:
    root = Path(__file__).parent.parent.parent
    ended = subprocess.run([sys.executable, "-c", PROGRAM.format(end)], capture_output=True, text=True, timeout=60, cwd=root)
    assert (ended.stdout, ended.stderr) == ("", said)


def test_without_a_shell_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.engine.last_words import last_words

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", missing)
    with last_words("nothing") as withdraw:
        withdraw()
