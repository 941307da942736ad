"""Processes for the tests of stores to watch, race and kill. Run as `python store_child.py COMMAND STORE ...`."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orchestrator.store.leases as leases_module
import orchestrator.store.register as register_module
import orchestrator.store.remote as remote_module
import orchestrator.store.turns as turns_module
from orchestrator.store import ResultStore, Row, make_row
from orchestrator.store.rows import encode
from trainables.spec import RunSpec

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


def nursery(folder: str, acknowledged: Path) -> None:
    """For each line START on stdin, fork a child that appends for ever; say its pid, and how it ended.

    Forking spares an interpreter start per child. A child notes a key in `acknowledged` after `append` returned.
    """
    encode([row(0)])  # imports what Arrow imports late, once for all children
    for line in sys.stdin:
        start = int(line)
        if (child := os.fork()) == 0:
            register_module.ROWS_PER_PART = 25
            log = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            store = ResultStore(folder)
            while True:
                (written,) = store.append([row(start)])
                os.write(log, f"{written['key']}\n".encode())
                start += 1
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def hurry() -> None:
    """Look and ask again sooner than launches do, so that those that race for a bucket meet more often, and end sooner."""
    leases_module.LOOK_EVERY = turns_module.PULL_EVERY = 0.2
    leases_module.FIRST_PAUSE, leases_module.LONGEST_PAUSE = 0.1, 0.4
    remote_module.FIRST_WAIT, remote_module.LONGEST_WAIT = 0.05, 0.5


def write(folder: str, seed: int, low: int, high: int) -> None:
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


def claim(folder: str) -> None:
    """For each line KEY on stdin, say whether it could be claimed."""
    with ResultStore(folder) as store:
        for line in sys.stdin:
            print(store.claim(line.strip()), flush=True)


def work(folder: str, seed: int, count: int) -> None:
    """Do the runs 0..count-1 that nobody else has or does, in an order of its own, as a launch does; say which."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    done = []
    print("ready", flush=True)
    sys.stdin.readline()
    with ResultStore(folder) as store:
        while order:
            key = row(order[0])["key"]
            if store.claim(key):
                store.refresh()
                if key not in store:
                    time.sleep(0.02)
                    done += [written["data_count"] for written in store.append([row(order[0])])]
                store.release(key)
                order.pop(0)
            else:
                order.append(order.pop(0))
                store.refresh()
                order = [i for i in order if row(i)["key"] not in store]
                time.sleep(0.05)
    print(json.dumps(done), flush=True)


def s3() -> None:
    """A server of S3; say its port.

    POST /-/faults takes lines `WHAT REGEX`: requests (`METHOD PATH?QUERY`) that match are answered with the status WHAT, or, if
    it is `held`, done once the faults are others. GET /-/log gives the requests since it was last asked.
    """
    import logging

    from moto.server import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").disabled = True
    # the one service: who asks moto to find out which service is meant waits longer for that than for the answer
    moto, faults, log = create_backend_app("s3"), list[list[str]](), list[str]()

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = f"{environment['REQUEST_METHOD']} {environment['PATH_INFO']}?{environment['QUERY_STRING']}"
        length = int(environment.get("CONTENT_LENGTH") or 0)
        if environment["PATH_INFO"] == "/-/faults":
            faults[:] = [line.split(" ", 1) for line in environment["wsgi.input"].read(length).decode().splitlines()]
            start("200 OK", [("Content-Length", "0")])
            return []
        if environment["PATH_INFO"] == "/-/log":
            said = "\n".join(log).encode()
            log.clear()
            start("200 OK", [("Content-Length", str(len(said)))])
            return [said]
        log.append(request)
        for what, pattern in faults:
            if re.search(pattern, request) and what == "held":
                while [what, pattern] in faults:
                    time.sleep(0.01)
            elif re.search(pattern, request):
                environment["wsgi.input"].read(length)
                code = {"403": "AccessDenied"}.get(what, "InternalError")
                said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
                start(f"{what} as told", [("Content-Type", "application/xml"), ("Content-Length", str(len(said)))])
                return [said]
        return moto(environment, start)

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    command, folder = sys.argv[1], sys.argv[2]
    if command == "nursery":
        nursery(folder, Path(sys.argv[3]))
    elif command == "write":
        hurry()
        write(folder, *map(int, sys.argv[3:6]))
    elif command == "claim":
        claim(folder)
    elif command == "work":
        hurry()
        work(folder, *map(int, sys.argv[3:5]))
    elif command == "s3":
        s3()
