"""Tasks for launches that are disturbed: each start of a training is a line in the ledger, and one of them misbehaves.

The ledger is the file named by the environment variable LEDGER: run key, process and seconds of the machine's monotonic clock.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.toy import Pupil, Teacher, Toy, is_trained
from trainables.bumps import BumpTask
from trainables.spec import RunSpec, run_key
from trainables.task import Data

LEDGER = "CHAOS_LEDGER"
MEGABYTES = 4
"""Printed by a run whose trouble is `print`."""


def note(spec: RunSpec, version: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{run_key(spec, version)} {os.getpid()} {time.monotonic():.6f}\n")


def starts(spec: RunSpec, version: str) -> int:
    """How often this run has been started."""
    return Path(os.environ[LEDGER]).read_text().count(run_key(spec, version))


class Bumps(BumpTask):
    """The real task."""

    def data(self, spec: RunSpec) -> Data:
        if is_trained():
            note(spec, self.version)
        return super().data(spec)


class Unruly(Toy):
    """A toy of which each start is a line in the ledger.

    `trouble` comes at grid size `trouble_N` when it is trained: to `raise`, lack `memory`, give a `nan`, `print` megabytes,
    `hang` for ever, `die` (the worker exits) when started for the first time in `study`, which is any text that sets one study
    apart from another.
    """

    defaults = {"pause": 0.0, "trouble": "none", "trouble_N": 0, "study": ""}

    def data(self, spec: RunSpec) -> Data:
        trouble = "none"
        if is_trained():
            note(spec, self.version)
            time.sleep(spec.option("pause"))
            trouble = spec.option("trouble") if spec.option("trouble_N") == spec.N else "none"
        if trouble == "die" and starts(spec, self.version) == 1:
            os._exit(1)
        if trouble == "hang":
            time.sleep(1e6)
        if trouble == "print":
            for stream in (sys.stdout, sys.stderr):
                for _ in range(MEGABYTES * 1024):
                    print("x" * 1023, file=stream)
        return self.samples(spec, trouble)


class NotedTeacher(Teacher):
    """A teacher of which each start is a line in the ledger."""

    def data(self, spec: RunSpec) -> Data:
        if is_trained():
            note(spec, self.version)
        return super().data(spec)


class NotedPupil(Pupil):
    """A pupil of which each start is a line in the ledger, and of which the three seeds of a grid size share a teacher."""

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        (teacher,) = super().needs(spec).values()
        return {"teacher": replace(teacher, task="tests.chaos.tasks:NotedTeacher", seed=0)}

    def data(self, spec: RunSpec) -> Data:
        if is_trained():
            note(spec, self.version)
        return super().data(spec)
