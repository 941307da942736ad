"""Where runs are trained: a cluster by its address, or an embedded Ray beside it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

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


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a cluster of two nodes, each with a loopback address of its own."""
    command, pipe = [sys.executable, "-c", TWO_NODES], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as cluster:
        assert cluster.stdout is not None
        lines = (line.split() for line in cluster.stdout)
        yield next(words[1] for words in lines if words[:1] == ["address"])
        cluster.communicate("\n")


@pytest.mark.slow
def test_a_study_runs_on_a_cluster_and_beside_it(start: Callable[..., Command], tmp_path: Path, address: str) -> None:
    options = ("--task", "tests.toy:Toy", "--N", "8", "--seeds", "2", "--max-steps", "3", "--resolution", "0.01")
    for where in (address, "local"):
        command = start(*options, "--address", where, "--store", where)
        assert command.wait() == 0, command.stdout + command.stderr
        assert "training the rest with 2 at a time" in command.stdout
        table = pd.read_csv(tmp_path / where / "scaling" / "scaling.csv")
        assert list(table["threshold"]) == [threshold(8, 0), threshold(8, 1)]
