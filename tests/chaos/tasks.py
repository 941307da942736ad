"""Tasks for launches that are disturbed: each start of a training is a line in the ledger, and one of them misbehaves.

The ledger is the file named by the environment variable LEDGER: run key, process and seconds of the machine's monotonic clock.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from trainables.bumps import BumpTask
from trainables.spec import Counts, RunSpec, run_key
from trainables.task import Data, Split

LEDGER = "CHAOS_LEDGER"
MEGABYTES = 4
"""Printed by a run whose trouble is `print`."""


def is_trained() -> bool:
    """Whether this is a worker, where Ray is up; otherwise the task is only checked. (Ray must not be imported before it is
    told how to authenticate.)"""
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


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


def threshold(N: int, seed: int) -> int:
    return 2 * N + 3 * seed


class Unruly:
    """A run passes exactly if its data count reaches `threshold(N, seed)`; nothing is learned.

    `trouble` comes at grid size `trouble_N` when it is trained: to `raise`, lack `memory`, give a `nan`, `print` megabytes,
    `hang` for ever, `die` (the worker exits) when started for the first time in `study`, which is any text that sets one study
    apart from another.
    """

    version = "1"
    choices = {"dataset": ("toys",), "decoder": ("linear",), "encoding": ("none",), "holdout": ("random",)}
    defaults = {"pause": 0.0, "trouble": "none", "trouble_N": 0, "study": ""}

    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        trouble = "none"
        if is_trained():
            note(spec, self.version)
            time.sleep(spec.option("pause"))
            trouble = spec.option("trouble") if spec.option("trouble_N") == spec.N else "none"
        if trouble == "raise":
            raise ArithmeticError("the toy is broken")
        if trouble == "memory":
            raise MemoryError("the toy is too large")
        if trouble == "die" and starts(spec, self.version) == 1:
            os._exit(1)
        if trouble == "hang":
            time.sleep(1e6)
        if trouble == "print":
            for stream in (sys.stdout, sys.stderr):
                for _ in range(MEGABYTES * 1024):
                    print("x" * 1023, file=stream)
        inputs, value = torch.ones(max(4, spec.data_count), 1), float("nan") if trouble == "nan" else 1.0
        samples = Split(inputs, inputs * value, inputs)
        return Data(train=Split(*(t[: spec.data_count] for t in samples)), held_out=Split(*(t[:4] for t in samples)))

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.data_count >= threshold(spec.N, spec.seed))}
