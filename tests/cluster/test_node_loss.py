"""Machines and drivers that die while a study runs on a cluster: every result comes, as if nothing had been."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import ray

from tests.chaos.rows import comparable
from tests.conftest import ROOT, Command, read_rows, wait_for_rows
from tests.nursery import Nursery
from tests.toy import Toy, threshold

pytestmark = pytest.mark.slow(40)
Start = Callable[..., Command]
PAUSE = 0.5

NODES = """
import sys
from ray.cluster_utils import Cluster

health = {"initial_delay_ms": 0, "period_ms": 500, "timeout_ms": 500, "failure_threshold": 3}
settings = {"_system_config": {f"health_check_{name}": value for name, value in health.items()}}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.2", **settings})
nodes = {}
print("address", cluster.address, flush=True)
for line in sys.stdin:
    word, host = line.split()
    if word == "add":
        nodes[host] = cluster.add_node(num_cpus=1, node_ip_address=host)
    else:
        cluster.remove_node(nodes.pop(host), allow_graceful=False)
    print("done", flush=True)
cluster.shutdown()
"""


class Placed(Toy):
    """A toy that notes in its ledger where it is trained, too: `N seed data_count host`."""

    def note(self, spec, line):
        super().note(spec, f"{line} {ray.util.get_node_ip_address()}")


class Nodes:
    """A cluster in a process of its own, whose machines of one core, by loopback address, come and go as told."""

    def __init__(self, home: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
        environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
        command, pipe = [sys.executable, "-c", NODES], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)
        self.address = self._answer("address")

    def add(self, host: str) -> None:
        self._tell(f"add {host}")

    def lose(self, host: str) -> None:
        """End all processes of a machine at once."""
        self._tell(f"lose {host}")

    def close(self) -> None:
        self.process.communicate(timeout=60)

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self._answer("done")

    def _answer(self, word: str) -> str:
        assert self.process.stdout is not None
        lines = (line.split() for line in self.process.stdout)
        return next(words[-1] for words in lines if words[:1] == [word])


@dataclass(frozen=True)
class Study:
    """One command, and what it gives when nothing disturbs it."""

    ledger: Path
    arguments: tuple[str, ...]
    expected: pd.DataFrame

    def began(self) -> list[list[str]]:
        """The trainings that were begun since the ledger was emptied, each as N, seed, data count, host."""
        return [line.split() for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []

    def check(self, folder: Path, lost: int) -> None:
        """Rows and thresholds are as expected, and no more than the `lost` trainings were begun twice."""
        rows = read_rows(folder)
        assert rows["key"].is_unique
        assert comparable(rows) == comparable(self.expected)
        table = pd.read_csv(folder / "results" / "scaling" / "scaling.csv")
        assert [*table["threshold"]] == [threshold(8, seed) for seed in range(3)]
        begun = Counter(tuple(words[:3]) for words in self.began())
        assert len(begun) == len(rows)
        assert sum(begun.values()) <= len(rows) + lost


@pytest.fixture(scope="module")
def study_and_nodes(
    tmp_path_factory: pytest.TempPathFactory, home: Path, nurseries: Callable[[], Nursery]
) -> Iterator[tuple[Study, Nodes]]:
    """A study that was run on this machine alone, and a cluster of two machines besides a head that trains nothing."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ledger = folder / "ledger"
    toy = ("--task", "tests.cluster.test_node_loss:Placed", "--N", "8", "--max-steps", "3", "--resolution", "0.01")
    arguments = (*toy, "--no-speculate", "--pack-size", "1", "--option", f"pause={PAUSE}", "--option", f"ledger={ledger}")
    local = Command(folder, home, "scaling", *arguments, "--workers", "2", nursery=nurseries(), here=True)
    nodes = Nodes(home)
    try:
        nodes.add("127.0.0.3")
        nodes.add("127.0.0.4")
        assert local.wait() == 0, local.stdout + local.stderr
        yield Study(ledger, arguments, read_rows(folder)), nodes
    finally:
        nodes.close()


@pytest.fixture
def study(study_and_nodes: tuple[Study, Nodes]) -> Study:
    """The same, with an empty ledger."""
    study_and_nodes[0].ledger.unlink()
    return study_and_nodes[0]


@pytest.fixture
def nodes(study_and_nodes: tuple[Study, Nodes]) -> Nodes:
    return study_and_nodes[1]


def test_two_lost_machines_cost_the_runs_on_them_and_no_result(
    start: Start, nurseries: Callable[[], Nursery], tmp_path: Path, study: Study, nodes: Nodes
) -> None:
    dice = random.Random(3)
    command = start(*study.arguments, "--address", nodes.address, nursery=nurseries())
    for newcomer in ("127.0.0.5", "127.0.0.6"):
        assert wait_for_rows(command, tmp_path, len(read_rows(tmp_path)) + dice.randint(2, 4)), command.stdout + command.stderr
        begun = len(study.began())
        while len(study.began()) == begun:
            time.sleep(0.02)
        time.sleep(dice.random() * PAUSE / 2)
        nodes.lose(study.began()[-1][-1])
        nodes.add(newcomer)
    assert command.wait() == 0, command.stdout + command.stderr
    assert command.stdout.count("lost its worker") == 2, command.stdout
    assert "training the rest with 2 in parallel" in command.stdout, "as many as the cluster has cores"
    assert "Traceback" not in command.stdout + command.stderr
    assert {words[-1] for words in study.began()} & {"127.0.0.5", "127.0.0.6"}, "nothing was trained on a new machine"
    study.check(tmp_path, lost=2)


@pytest.mark.deep
def test_a_killed_driver_goes_on_where_it_was(start: Start, tmp_path: Path, study: Study, nodes: Nodes) -> None:
    command = start(*study.arguments, "--address", nodes.address)
    assert wait_for_rows(command, tmp_path, 7), command.stdout + command.stderr
    command.process.kill()
    assert command.wait() == -signal.SIGKILL
    again = start(*study.arguments, "--address", nodes.address)
    assert again.wait() == 0, again.stdout + again.stderr
    assert read_rows(tmp_path)["launch"].nunique() == 2
    study.check(tmp_path, lost=2)
