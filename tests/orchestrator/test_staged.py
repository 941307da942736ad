"""What Tune stages for a launch in the files of Ray's session, which a cluster keeps long after the launch."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.engine.ray_tune import Workers
from tests.conftest import environment_of

STUDY = ("--task", "tests.toy:Toy", "--N", "8", "--seeds", "1", "--max-steps", "3", "--resolution", "0.01", "--workers", "1")
LOOKS = """
import json, sys
from orchestrator import scaling
from orchestrator.engine import driver

fit_once = driver._fit_once

def looks(execution, cluster, folder, *more):
    from orchestrator.engine.ray_tune import Workers  # Ray has its environment by now
    remove = Workers.remove_staged

    def staged():
        return sorted(map(str, folder.parent.rglob("session_2*/artifacts/**/*")))

    def looks_before(workers, name):
        print(json.dumps([len(staged()), name]), file=sys.stderr)
        remove(workers, name)

    Workers.remove_staged = looks_before
    fit_once(execution, cluster, folder, *more)
    print(json.dumps(staged()), file=sys.stderr)

driver._fit_once = looks
sys.argv[0] = scaling.__file__
scaling.main()
"""


@pytest.mark.slow(15)
def test_what_tune_has_staged_for_a_launch_is_gone_after_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOOKS, *STUDY]
    done = subprocess.run(words, cwd=tmp_path, env=environment_of(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done
    (before, name), after = (json.loads(line) for line in done.stderr.splitlines() if line.startswith("["))
    assert before > 2
    assert name.startswith("launch-")
    assert after == []


def test_only_the_folder_of_the_experiment_is_removed(tmp_path: Path) -> None:
    mine, other = (tmp_path / "2026-01-01_00-00-00" / name for name in ("launch-mine", "launch-other"))
    for folder in (mine / "driver_artifacts" / "trial", mine / "working_dirs" / "trial", other / "driver_artifacts"):
        folder.mkdir(parents=True)
    execution: Any = SimpleNamespace()
    workers = Workers(execution)
    workers.remove_staged("launch-mine")  # no experiment has ended
    trial = SimpleNamespace(local_experiment_path=str(mine / "driver_artifacts"))
    workers.on_experiment_end(trials=[trial, trial])
    workers.remove_staged("launch-another")
    assert (mine / "driver_artifacts" / "trial").is_dir()
    workers.remove_staged("launch-mine")
    assert list(mine.parent.iterdir()) == [other]
    workers.on_experiment_end(trials=[SimpleNamespace(local_experiment_path=str(other / "driver_artifacts"))])
    workers.remove_staged("launch-other")
    assert list(tmp_path.iterdir()) == []
    for trials in ([], [SimpleNamespace()]):
        workers.on_experiment_end(trials=trials)
        workers.remove_staged("launch-other")
