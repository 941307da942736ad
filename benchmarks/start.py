"""How long a launch takes until its first run is told, and from its last one to its answer and to its end: as it is, and with
each lever alone.

    python -m benchmarks.start            5 launches of each, in turns: about 12 minutes
    python -m benchmarks.start --quick    1 launch of two of them
    python -m benchmarks.start --busy 2   the same beside two processes that never rest

Trainings take 20 steps of a small MLP, so hardly any of this time is theirs. The levers are variables that Ray reads.
Prints a table of medians, and the ratio to the launches as they are in the same turns.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import Annotated

import typer

from orchestrator.store import ResultStore

STUDY = ["--decoder", "mlp", "--N", "16", "--seeds", "2", "--datasets", "bumps", "--max-steps", "20", "--resolution", "0.5"]
LEVERS = {
    "as it is": {},
    "workers at niceness 15, Ray's own": {"RAY_worker_niceness": "15"},
    "workers start with the node": {"RAY_enable_worker_prestart": "1"},
    "workers at once, Ray's own": {"RAY_prestart_worker_first_driver": "1"},
    "workers import torch and ray.tune at once": {"RAY_preload_python_modules": "torch,ray.tune"},
    "both": {"RAY_enable_worker_prestart": "1", "RAY_preload_python_modules": "torch,ray.tune"},
    "no token": {"RAY_AUTH_MODE": "disabled"},
}


def launch(given: dict[str, str]) -> tuple[float, float, float, float]:
    """Seconds to the first run; from the end of the last one to the last line of the answer, and to the end of the command; and
    of the whole command.

    Raises:
        RuntimeError: the command stored no run.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "orchestrator.scaling", *STUDY, "--store", f"{folder}/results"]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"} | given
        began = time.time()
        first, answered, said = None, began, []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as running:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line)
                answered = time.time()
                if " done, " in line and first is None:
                    first = answered
        ended = time.time()
        with ResultStore(f"{folder}/results", read_only=True) as store:
            last = max((row["finished_at"].timestamp() for row in store.rows()), default=0.0)
    if first is None:
        raise RuntimeError("".join(said))
    return first - began, answered - last, ended - last, ended - began


def main(
    quick: Annotated[bool, typer.Option("--quick", help="One launch of two levers.")] = False,
    repeats: Annotated[int, typer.Option(help="Launches of each lever.")] = 5,
    busy: Annotated[int, typer.Option(help="Processes that never rest beside them.")] = 0,
) -> None:
    """Print the table."""
    names = list(LEVERS)[:2] if quick else list(LEVERS)
    found: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    with ExitStack() as beside:
        for _ in range(busy):
            other = beside.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            beside.callback(other.kill)
        for _ in range(1 if quick else repeats):
            for name in names:
                found[name].append(launch(LEVERS[name]))
    print("| lever | first run, s | ratio | last run to answer, s | to the end, s | whole, s | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        first, answer, after, whole = (statistics.median(column) for column in zip(*found[name], strict=True))
        ratios = [
            statistics.median(own[part] / usual[part] for own, usual in zip(found[name], found[names[0]], strict=True))
            for part in (0, 3)
        ]
        print(f"| {name} | {first:.1f} | {ratios[0]:.2f} | {answer:.1f} | {after:.1f} | {whole:.1f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    typer.run(main)
