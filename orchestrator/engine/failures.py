"""What the failures of a run mean: how often it is tried again, when, and whether alone."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field

from orchestrator.errors import printable

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before a run is tried again after its 1st, 2nd, ... lost worker; the last one repeats."""
MOST_LOST = 8
"""Workers that a run may lose without getting any further; then this launch leaves it."""
MOST_LEFT = 3
"""Runs that are left, one after another; then the launch ends, since no run seems to get on."""
TASK_ERROR = r"^(\x1b\[\d+m)?ray::"
"""How Ray begins the text of an exception raised in a worker, as against the death of one."""
OUT_OF_MEMORY = "running low on memory"
"""What Ray says of a worker that it killed to save its machine."""
NOT_MADE = "an error raised in its creation task"
"""What Ray says of a worker that could not begin."""
NO_CLASS = "failed to import on the worker"
"""What Ray says if the class of a worker cannot be loaded on its machine."""
NO_ORDER = "input arguments for this task could not be computed"
"""What Ray says if the order of a worker cannot be read, for whatever cause."""
LACKING = r"(ModuleNotFoundError|ImportError|AttributeError): "
"""How the last line of an exception begins that is raised where a module, or something in it, is not there."""
HOST = r"\bip=([^\s,)]+)"
"""Where Ray says on which machine an exception was raised."""


@dataclass(slots=True)
class Attempts:
    """How often one run has failed, by class of failure."""

    lost: int = 0
    """Workers, since the run got further."""
    raised: int = 0
    out_of_memory: int = 0
    not_before: float = 0.0
    """`time.monotonic()` at which it may be tried again."""
    alone: bool = False
    """Whether it is no longer trained together with others: one of them may be the cause."""

    def count_lost(self) -> float:
        """Its worker died; the seconds to wait before it is tried again, without end if it has lost too many."""
        wait = BACKOFF_SECONDS[min(self.lost, len(BACKOFF_SECONDS) - 1)]
        self.lost += 1
        self.alone = self.alone or self.lost > 1
        wait = math.inf if self.is_left else wait
        self.not_before = time.monotonic() + wait
        return wait

    @property
    def is_left(self) -> bool:
        """Whether this launch leaves it. No row says so: the cause may be the machines, and a row would be final."""
        return self.lost >= MOST_LOST

    def count_raised(self) -> bool:
        """Its task raised an exception; whether it is tried once more."""
        self.raised += 1
        return self.raised == 1


@dataclass(slots=True)
class Failures:
    """The failures of the runs of one launch, by run key."""

    of_runs: dict[str, Attempts] = field(default_factory=dict)
    left_in_a_row: int = 0
    """Runs that were left since one ended or got further."""

    def of(self, key: str) -> Attempts:
        return self.of_runs.setdefault(key, Attempts())

    def is_alone(self, key: str) -> bool:
        return key in self.of_runs and self.of_runs[key].alone

    def is_left(self, key: str) -> bool:
        return key in self.of_runs and self.of_runs[key].is_left

    def later(self) -> int:
        """How many runs wait to be tried again."""
        return sum(self.must_wait(key) and not attempts.is_left for key, attempts in self.of_runs.items())

    def got_further(self, key: str) -> None:
        """What it has trained will not be lost with its worker, or it has ended."""
        self.left_in_a_row = 0
        if key in self.of_runs:
            self.of_runs[key].lost = 0

    def must_wait(self, key: str) -> bool:
        return key in self.of_runs and self.of_runs[key].not_before > time.monotonic()


def is_exception(reason: str) -> bool:
    """Whether Ray's reason for the end of a trial is an exception, or a lack of memory, and not the death of a worker."""
    return bool(re.search(TASK_ERROR, reason, re.MULTILINE)) or is_out_of_memory(reason)


def is_out_of_memory(reason: str) -> bool:
    return OUT_OF_MEMORY in reason


def could_begin(reason: str) -> bool:
    """Whether a worker that was lost did not end itself with an exception as it began."""
    return NOT_MADE not in reason


def is_unfit(reason: str) -> bool:
    """Whether the machine of a worker cannot load this program, as it lacks it, or has another version of it."""
    return NO_CLASS in reason or (NO_ORDER in reason and re.match(LACKING, _last_line(reason)) is not None)


def why_unfit(reason: str) -> str:
    """What is told of a machine that `is_unfit`."""
    what = f"no worker can be loaded ({_last_line(reason)})"
    return f"on {_host(reason)}: {what}: install the same version of this program, and of its packages, on all machines"


def why_lost(reason: str) -> str:
    """Ray's reason for the loss of a worker, in one line."""
    if not could_begin(reason):
        return f"on {_host(reason)} it could not begin: {_last_line(reason)}"
    return first_line(reason).rstrip(".")


def _host(reason: str) -> str:
    return found[1] if (found := re.search(HOST, reason)) else "a machine that Ray does not name"


def _last_line(reason: str) -> str:
    """The one that says what was raised."""
    return printable(reason.strip().rpartition("\n")[2])[:200]


def first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines() if not line.startswith("Failure #"))
    return next(filter(None, lines), "no reason given")
