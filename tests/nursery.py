"""A process that has imported everything, also what is imported late, and forks a command for every line of JSON on stdin: so
none waits for imports.

A line is an errand with an id; `ID started PID` and `ID ended CODE` are the answers. What is started so is started as a user
starts it but for the imports: it has a process, a session, a folder, arguments and output of its own. Here an errand is an
`Errand`, with an environment of its own; other modules may `serve` others (see tests.chaos.child).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WARM = (
    "torch._dynamo",
    *("orchestrator.scaling", "orchestrator.__main__", "analysis.measure", "analysis.scaling", "matplotlib.pyplot"),
    *("analysis.report.__main__", "orchestrator.engine.ray_tune", "orchestrator.engine.worker", "tests.here"),
)


@dataclass(kw_only=True)
class Errand:
    """What a forked process does. Paths are absolute."""

    module: str
    """Whose `main` it calls."""
    argv: list[str]
    cwd: str
    output: str
    errors: str
    environment: dict[str, str]
    here: bool
    """Whether it trains in its own process (see tests.here) and not in workers of Ray."""


def stand_alone(folder: str, output: str, errors: str) -> None:
    """Give the forked process a session, a folder, and output of its own; and to Ray other names for its objects."""
    os.setsid()
    os.chdir(folder)
    sys.path.insert(0, folder)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    opened += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in (output, errors)]
    for target, descriptor in enumerate(opened):
        os.dup2(descriptor, target)
        os.close(descriptor)
    import ray

    # Its generator was forked too: two launches would give the same name to different objects, and Ray fails at that.
    for _ in range(secrets.randbelow(10_000)):
        ray.ObjectID.from_random()


def begin(errand: Errand) -> None:
    """Make the forked process the one that the errand wants, and do it."""
    os.environ.clear()
    os.environ.update(errand.environment)
    tempfile.tempdir = None
    stand_alone(errand.cwd, errand.output, errand.errors)
    if errand.here:
        importlib.import_module("tests.here").stay()
    module = importlib.import_module(errand.module)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{errand.module}.__main__")
    sys.argv = [str(module.__file__), *errand.argv]
    module.main()
    sys.exit(0)


def _end_with_parent() -> None:
    """Let the kernel kill this process when the nursery ends, as it does when the tests are killed."""
    if (control := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        control(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve(run: Callable[[dict[str, Any]], None]) -> None:
    """Fork for every line on stdin a process that does `run` with what the line says, until stdin ends."""
    print("ready", flush=True)
    living: dict[int, int] = {}
    text = b""
    while True:
        if select.select([0], [], [], 0.02 if living else None)[0]:
            if not (more := os.read(0, 1 << 16)):
                return
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                given = json.loads(line)
                number = given.pop("id")
                if (pid := os.fork()) == 0:
                    _end_with_parent()
                    run(given)
                living[pid] = number
                print(f"{number} started {pid}", flush=True)
        while living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            print(f"{living.pop(pid)} ended {os.waitstatus_to_exitcode(status)}", flush=True)


class Forked:
    """A forked process, with what of `subprocess.Popen` the tests use."""

    def __init__(self) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.forked, self.ended = threading.Event(), threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks, as its user sees it: by this module, or by another one that serves."""

    def __init__(self, environment: Mapping[str, str], module: str = "tests.nursery") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**environment, "RAY_AUTH_MODE": "disabled"}, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._born: list[Forked] = []
        self._writing = threading.Lock()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the nursery could not be started"
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, what, value = line.split()
            born = self._born[int(number)]
            if what == "started":
                born.pid = int(value)
                born.forked.set()
            else:
                born.returncode = int(value)
                born.ended.set()

    def start(self, errand: Mapping[str, Any], born: Forked) -> None:
        """Let `born` be a forked process that does this."""
        assert self._process.stdin is not None
        with self._writing:
            self._born.append(born)
            self._process.stdin.write(json.dumps({"id": len(self._born) - 1, **errand}) + "\n")
            self._process.stdin.flush()
        assert born.forked.wait(60), "the nursery forks no more"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()


def warm() -> None:
    """Import what launches import, also late, and let the first figure be drawn."""
    for name in WARM:
        importlib.import_module(name)
    from matplotlib.figure import Figure

    from analysis.figures.style import image

    (figure := Figure(layout="constrained")).subplots().plot([1, 2])
    for kind in ("png", "svg"):
        image(figure, kind)


def main() -> None:
    warm()
    serve(lambda given: begin(Errand(**given)))


if __name__ == "__main__":
    main()
