"""Processes for test_store.py to watch, race and kill. Run as `python store_child.py COMMAND FOLDER ...`."""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orchestrator.store as store_module
from orchestrator.spec import RunSpec
from orchestrator.store import ResultStore, Row, make_row

FINISHED_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def row(i: int, **values: Any) -> Row:
    """The row of run number i, the same in every process."""
    spec = RunSpec(task="tasks:Task", dataset="grid", N=16, data_count=i, seed=3, options=(("sigma", 0.5),))
    given = {
        "task_version": "1",
        "fixed_count": 2,
        "status": "passed",
        "reason": "reached the target",
        "steps": 100 + i,
        "accuracy": i / 8,
        "curve_step": [0, i],
        "curve_loss": [1.0, 0.5],
        "curve_accuracy": [0.0, 0.25],
        "finished_at": FINISHED_AT,
    }
    return make_row(spec, **{**given, **values})


def nursery(folder: Path, acknowledged: Path) -> None:
    """For each line START on stdin, fork a child that appends for ever; say its pid, and how it ended.

    Forking spares an interpreter start per child. A child notes a key in `acknowledged` after `append` returned.
    """
    store_module.encode([row(0)])  # imports what Arrow imports late, once for all children
    for line in sys.stdin:
        start = int(line)
        if (child := os.fork()) == 0:
            store_module.ROWS_PER_PART = 25
            log = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            store = ResultStore(folder)
            while True:
                (written,) = store.append([row(start)])
                os.write(log, f"{written['key']}\n".encode())
                start += 1
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def write(folder: Path, seed: int, low: int, high: int) -> None:
    """Append the rows low..high-1, one or a few at a time, in an order of its own; say how many were written."""
    order = list(range(low, high))
    random.Random(seed).shuffle(order)
    print("ready", flush=True)
    sys.stdin.readline()
    count = 0
    with ResultStore(folder) as store:
        while order:
            few, order = order[: 1 + seed % 3], order[1 + seed % 3 :]
            count += len(store.append([row(i) for i in few]))
    print(count, flush=True)


def claim(folder: Path) -> None:
    """For each line KEY on stdin, say whether it could be claimed."""
    with ResultStore(folder) as store:
        for line in sys.stdin:
            print(store.claim(line.strip()), flush=True)


if __name__ == "__main__":
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "nursery":
        nursery(folder, Path(sys.argv[3]))
    elif command == "write":
        write(folder, *map(int, sys.argv[3:6]))
    elif command == "claim":
        claim(folder)
