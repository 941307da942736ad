"""A command timed with all its descendants: wall time from its start to its end, CPU time of everything it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): descendants whose parents have ended become our children, so that none is lost sight of (Linux)."""
SAMPLE = 1.0
"""Seconds between two looks at what the descendants have spent so far."""
LINGER = 10.0
"""Seconds that descendants have to end after the command has."""


class Spent(NamedTuple):
    returncode: int
    seconds: float
    cpu_seconds: float


def spend(command: Sequence[str], output: Path, environment: dict[str, str], folder: Path) -> Spent:
    """Run `command` in `folder`, with its output in the file `output`. Descendants that outlive it are ended.

    CPU time is what the system tells of descendants that were waited for, or the sum of what was last seen of each, if that is
    more: Ray does not wait for its workers.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    seen: dict[psutil.Process, float] = {}
    before = _waited_for()
    started = time.monotonic()
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=folder, start_new_session=True)
        while process.returncode is None:
            _sample(seen)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE)
    seconds = time.monotonic() - started
    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=LINGER)
    for orphan in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return Spent(process.returncode, seconds, max(_waited_for() - before, sum(seen.values())))


def _waited_for() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sample(seen: dict[psutil.Process, float]) -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = child.cpu_times()
            seen[child] = used.user + used.system
