"""Clusters that are joined in other ways than usual, or cannot be: Ray would ask for these for minutes, without a word, and
obey no signal meanwhile."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, Command, environment_of, ray_head, wait_for_rows

STUDY = ("--task", "tests.toy:Toy", "--N", "8", "--seeds", "1", "--max-steps", "3", "--resolution", "0.01", "--dry-run")
COMMAND = (sys.executable, "-m", "orchestrator.scaling", *STUDY, "--address")
ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""No process but one's own is seen; with the first all others end."""
EMBEDDED = """
import os, subprocess, sys
before = dict(os.environ)
from orchestrator.engine.cluster import Cluster
with Cluster("local", workers=1).connected():
    import ray
    print(ray.get_runtime_context().gcs_address, flush=True)
    ended = subprocess.run(sys.argv[1:], env=before, timeout=120)
sys.exit(ended.returncode)
"""


def may_unshare() -> bool:
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.slow(30)
@pytest.mark.skipif(not may_unshare(), reason="needs root and unshare")
def test_auto_does_not_wait_for_the_ray_of_another_study(tmp_path: Path) -> None:
    words = [*ALONE, sys.executable, "-c", EMBEDDED, *COMMAND, "auto"]
    known = environment_of(tmp_path)
    done = subprocess.run(words, cwd=tmp_path, env=known, capture_output=True, text=True, timeout=240)
    address = done.stdout.strip()
    assert done.returncode == 2, done
    assert done.stderr == (
        "error: --address auto found no cluster that this machine can join, "
        f"only the Ray of another study or program ({address}): "
        "start one with `ray start --head`, give host:port of a Ray head, or use local\n"
    )


@pytest.mark.slow(15)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_study_that_waits_for_a_busy_head(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        server.settimeout(60)
        address = f"127.0.0.2:{server.getsockname()[1]}"
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [*COMMAND, address], cwd=tmp_path, env=environment_of(tmp_path), stdout=pipe, stderr=pipe, text=True
        ) as command:
            assert command.stderr is not None
            assert "has said nothing for 5 s" in command.stderr.readline()
            try:
                server.accept()[0].close()  # of the study, which has heard nothing
                with server.accept()[0]:  # now Ray asks for it
                    command.send_signal(number)
                    out, err = command.communicate(timeout=60)
            finally:
                command.kill()
    assert (command.returncode, out, err) == (code, "", "interrupted: no cluster was joined\n")


JOINED = """
import os, sys
from orchestrator.engine.cluster import Cluster
with Cluster(sys.argv[1], workers=1).connected():
    import ray
    print(ray.get(ray.remote(lambda: [os.environ[name] for name in ("PYTHONPATH", "SWEEP_A", "B")]).remote()))
"""


@pytest.mark.slow(15)
def test_a_job_of_ray_may_have_variables_of_its_own(tmp_path: Path) -> None:
    """The variables of its environment are those that Ray gives the process of a job."""
    theirs = {"PYTHONPATH": "/theirs", "SWEEP_A": "a", "B": "b"}
    with ray_head("127.0.0.6", 1, RAY_AUTH_MODE="disabled") as address:
        known = environment_of(tmp_path, RAY_AUTH_MODE="disabled", RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(
            {"runtime_env": {"env_vars": theirs}, "metadata": {}}
        ), **theirs | {"PYTHONPATH": os.pathsep.join(("/theirs", str(ROOT)))})  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", JOINED, address], cwd=tmp_path, env=known, capture_output=True, text=True, timeout=240
        )
    assert done.returncode == 0, done.stderr
    folders = os.pathsep.join((str(tmp_path), "/theirs", str(ROOT)))
    assert done.stdout.splitlines()[-1] == str([folders, "a", "b"])


@pytest.mark.deep
@pytest.mark.slow(30)
def test_the_death_of_the_raylet_of_this_machine_ends_the_launch(start: Callable[..., Command], tmp_path: Path) -> None:
    """Ray waits for it without end."""
    with ray_head("127.0.0.7", 1, RAY_AUTH_MODE="disabled") as address:
        options = (*STUDY[:-1], "--option", "pause=1", "--address", address)
        command = start(*options)
        assert wait_for_rows(command, tmp_path, 1), command.stdout + command.stderr
        processes = psutil.process_iter(["name", "cmdline"])
        (raylet,) = (one for one in processes if one.name() == "raylet" and f"--gcs-address={address}" in one.cmdline())
        raylet.kill()
        assert command.wait(30) == 1, command.stdout + command.stderr
    *_, told, last = command.stdout.strip().splitlines()
    assert told == (
        "stopped: raylet, the part of Ray on this machine, has died; perhaps someone ended it, or its machine ran out of memory"
    )
    assert last == "all finished runs are kept; to continue: python -m orchestrator.scaling " + " ".join(options)
