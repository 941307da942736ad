"""Machines of a real cluster that lack the program of this project, or have another version of it."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, environment_of, ray_head

pytestmark = pytest.mark.slow(30)
HOST = "127.0.0.5"


def lacking(folder: Path) -> None:
    """A folder in which Python finds, in the place of the program, what it says if there is none."""
    (folder / "orchestrator").mkdir()
    (folder / "orchestrator" / "__init__.py").write_text("""raise ModuleNotFoundError("No module named 'orchestrator'")""")


def another(folder: Path) -> None:
    """A folder with the program as it is, but for one method of its worker."""
    shutil.copytree(ROOT / "orchestrator", folder / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    worker = folder / "orchestrator" / "engine" / "worker.py"
    worker.write_text(worker.read_text().replace("_failed", "_former"))


@pytest.mark.parametrize(
    ("has", "why"),
    [
        (lacking, "ModuleNotFoundError: No module named 'orchestrator'"),
        pytest.param(
            another, "AttributeError: Can't get attribute 'PackTrainable._failed' on <module 'orchestrator.engine.worker'",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_machine_with_another_version_or_none_is_named_and_no_run_has_failed(
    tmp_path: Path, has: Callable[[Path], None], why: str
) -> None:
    there = tmp_path / "there"  # the first place in which workers look for modules
    there.mkdir()
    (tmp_path / "home").mkdir()
    known = environment_of(tmp_path / "home", RAY_AUTH_MODE="disabled", PYTHONPATH=str(there), PYTHONUNBUFFERED="1")
    words = [sys.executable, "-m", "orchestrator.scaling", "--program", "echo 0.{data_count}", "--counts", "1..8", "--N", "8"]
    with ray_head(HOST, 1, RAY_AUTH_MODE="disabled") as address:
        words += ["--seeds", "1", "--workers", "1", "--address", address]
        with subprocess.Popen(words, cwd=tmp_path, env=known, stdout=subprocess.PIPE, text=True) as command:
            assert command.stdout is not None
            told = ""
            while "joining Ray at" not in told:  # until then this process loads the program, from elsewhere
                line = command.stdout.readline()
                assert line, told
                told += line
            has(there)
            told += command.stdout.read()
    assert command.returncode == 1, told
    assert f"stopped: on {HOST}: no worker can be loaded ({why}" in told
    assert "install the same version of this program, and of its packages, on all machines\n" in told
    assert "lost its worker" not in told
    assert "to continue: python -m orchestrator.scaling --program 'echo 0.{data_count}'" in told
    assert not [*(tmp_path / "results" / "runs").glob("*.parquet")]
