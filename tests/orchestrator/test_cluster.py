"""Where runs are trained: a cluster by its address, or an embedded Ray beside it."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.engine import cluster
from tests.conftest import Command
from tests.toy import threshold

TWO_NODES = """
from ray.cluster_utils import Cluster
cluster = Cluster()
for host in ("127.0.0.2", "127.0.0.3"):
    cluster.add_node(num_cpus=1, node_ip_address=host)
print("address", cluster.address, flush=True)
input()
cluster.shutdown()
"""


@pytest.mark.parametrize(
    ("address", "user", "used", "allowed", "warned"),
    [
        ("local", 7, 50, 309, True),
        ("local", 7, 50, 310, False),
        ("local", 7, 50, resource.RLIM_INFINITY, False),
        ("local", 0, 50, 10, False),  # root may go beyond
        ("auto", 7, 50, 10, False),
    ],
)
def test_a_limit_on_threads_that_ray_would_reach_is_told(
    address: str, user: int, used: int, allowed: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (allowed, allowed))
    monkeypatch.setattr(cluster, "_threads_of", lambda who: used)
    told = cluster.Cluster(address, workers=2).shortage()
    if warned:
        assert told is not None
        assert "ulimit -u 570" in told
    else:
        assert told is None


@pytest.mark.slow(2)
def test_threads_of_a_user_are_counted() -> None:
    before = cluster._threads_of(os.getuid())
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(500)]
    for thread in threads:
        thread.start()
    counted = cluster._threads_of(os.getuid())
    stop.set()
    assert counted >= 500
    assert before > 0


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a cluster of two nodes, each with a loopback address of its own."""
    command, pipe = [sys.executable, "-c", TWO_NODES], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as nodes:
        assert nodes.stdout is not None
        lines = (line.split() for line in nodes.stdout)
        yield next(words[1] for words in lines if words[:1] == ["address"])
        nodes.communicate("\n")


@pytest.mark.slow(20)
def test_a_study_runs_on_a_cluster_and_beside_it(start: Callable[..., Command], tmp_path: Path, address: str) -> None:
    options = ("--task", "tests.toy:Toy", "--N", "8", "--seeds", "2", "--max-steps", "3", "--resolution", "0.01")
    for where in (address, "local"):
        command = start(*options, "--address", where, "--store", where)
        assert command.wait() == 0, command.stdout + command.stderr
        assert "training the rest with 2 in parallel" in command.stdout
        table = pd.read_csv(tmp_path / where / "scaling" / "scaling.csv")
        assert list(table["threshold"]) == [threshold(8, 0), threshold(8, 1)]
