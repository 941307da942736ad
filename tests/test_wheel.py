"""The wheel holds all that a user needs: installed into an environment of its own, it works from any folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT, environment_of

PACKAGES = ("orchestrator", "trainables", "analysis")
STUDY = ("scaling", "--N", "8", "--decoder", "mlp", "--seeds", "1", "--max-steps", "100", "--resolution", "0.5",
         "--workers", "1")  # fmt: skip


def run(*words: str | Path, cwd: Path, home: Path) -> str:
    environment = environment_of(home)
    del environment["PYTHONPATH"]  # the repository must not be found
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def installed(tmp_path: Path, home: Path) -> Path:
    """The folder of commands of an environment with the wheel, and with what it depends on as it is installed here."""
    source, wheels, place = tmp_path / "source", tmp_path / "wheels", tmp_path / "environment"
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        whole = ROOT / name
        shutil.copytree(whole, source / name) if whole.is_dir() else shutil.copy(whole, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", source, "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, cwd=tmp_path, home=home)
    venv.create(place)
    (wheel,) = wheels.iterdir()
    run(*pip, "--python", place / "bin" / "python", "install", "--no-deps", "--no-index", wheel, cwd=tmp_path, home=home)
    libraries = sysconfig.get_path("purelib", vars={"base": str(place)})
    Path(libraries, "libraries.pth").write_text(sysconfig.get_path("purelib") + os.linesep)  # what is editable there stays out
    return place / "bin"


@pytest.mark.study
@pytest.mark.slow(30)
def test_the_wheel_answers_a_study_in_another_folder(installed: Path, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    where = "import orchestrator, trainables, analysis; print(*(m.__file__ for m in (orchestrator, trainables, analysis)))"
    found = run(installed / "python", "-c", where, cwd=folder, home=home).split()
    assert all(Path(file).is_relative_to(installed.parent) for file in found)
    assert len(found) == 3
    assert run(installed / "sweep", "--version", cwd=folder, home=home).startswith("sweep-orchestrator ")
    told = run(installed / "sweep", *STUDY, cwd=folder, home=home)
    assert "wrote results/scaling/scaling.png" in told
    assert {file.name for file in (folder / "results" / "scaling").iterdir()} >= {"scaling.csv", "scaling.json", "scaling.png"}
    report = run(installed / "sweep", "report", "--out", "report", cwd=folder, home=home)
    assert "report/index.html" in report
    assert (folder / "report" / "index.html").stat().st_size > 10_000
