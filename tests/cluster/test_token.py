"""Clusters that ask for a token: a study with it joins; one without it, or with another, is told what to set."""

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import THOROUGH, environment_of, ray_head
from tests.toy import threshold

pytestmark = pytest.mark.slow(30)

HOST = "127.0.0.2"
TOKEN, ANOTHER = secrets.token_hex(32), secrets.token_hex(32)
RIGHT = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
STUDY = ("--task", "tests.toy:Toy", "--N", "8", "--seeds", "1", "--max-steps", "3", "--resolution", "0.01")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a head that lets in whoever has TOKEN."""
    with ray_head(HOST, 2, **RIGHT) as address:
        yield address


def begin(folder: Path, address: str, given: dict[str, str], *more: str) -> subprocess.Popen[str]:
    """A study by a user whose home is `folder / "home"`."""
    words = [sys.executable, "-m", "orchestrator.scaling", *STUDY, "--address", address, *more]
    (folder / "home").mkdir(parents=True, exist_ok=True)
    known, pipe = environment_of(folder / "home", **given), subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=known, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def refused(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, subprocess.Popen[str]]]:
    """Studies begun without the right token, by folder. Ray asks for twenty seconds, so they begin before all other tests."""
    mistakes = {
        "nothing": {},
        **({"no-mode": {"RAY_AUTH_TOKEN": TOKEN}} if THOROUGH else {}),
        "no-token": {"RAY_AUTH_MODE": "token"},
        "another": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": ANOTHER},
    }
    with contextlib.ExitStack() as at_once:
        begun = {}
        for name, given in mistakes.items():
            folder = tmp_path_factory.mktemp(name)
            begun[folder] = at_once.enter_context(begin(folder, address, given))
        yield begun


@pytest.mark.usefixtures("refused")
def test_with_the_token_a_study_runs(tmp_path: Path, address: str) -> None:
    with begin(tmp_path, address, RIGHT) as command:
        out, err = command.communicate(timeout=240)
    assert command.returncode == 0, out + err
    assert "with 2 in parallel" in out
    assert [*pd.read_csv(tmp_path / "results" / "scaling" / "scaling.csv")["threshold"]] == [threshold(8, 0)]


@pytest.mark.deep
@pytest.mark.usefixtures("refused")
def test_the_token_may_lie_in_a_file(tmp_path: Path, address: str) -> None:
    (tmp_path / "home" / ".ray").mkdir(parents=True)
    (tmp_path / "home" / ".ray" / "auth_token").write_text(TOKEN)
    with begin(tmp_path, address, {"RAY_AUTH_MODE": "token"}, "--dry-run") as command:
        out, err = command.communicate(timeout=240)
    assert command.returncode == 0, out + err
    assert "with 2 in parallel" in out


@pytest.mark.usefixtures("refused")
def test_auto_takes_the_token_that_lies_in_the_file_by_itself(tmp_path: Path, address: str) -> None:
    (tmp_path / "home" / ".ray").mkdir(parents=True)
    (tmp_path / "home" / ".ray" / "auth_token").write_text(TOKEN)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)  # as `ray start` leaves it
    with begin(tmp_path, "auto", {"RAY_TMPDIR": str(tmp_path)}, "--dry-run") as command:
        out, err = command.communicate(timeout=240)
    assert command.returncode == 0, out + err
    assert "with 2 in parallel" in out


def test_without_the_right_token_one_line_says_what_to_set(refused: dict[Path, subprocess.Popen[str]]) -> None:
    for folder, command in refused.items():
        out, err = command.communicate(timeout=240)
        told = f"{folder.name}: exit code {command.returncode}\n{out}\n{err}"
        assert command.returncode == 2, told
        assert out == "", told
        assert err.startswith("error: "), told
        assert err.count("\n") == 1, told
        for hint in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            assert hint in err, told
        assert [path.name for path in folder.iterdir()] == ["home"], told
