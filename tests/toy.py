"""A task whose thresholds are known beforehand, and which can be told to misbehave."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split


def is_trained() -> bool:
    """Whether this is a worker, where Ray is up; otherwise the task is only checked. (Ray must not be imported before it is
    told how to authenticate.)"""
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


def threshold(N: int, seed: int) -> int:
    return 2 * N + 3 * seed


class Toy:
    """A run passes exactly if its data count reaches `threshold(N, seed)`.

    `trouble` comes at grid size `trouble_N` when it is trained: `raise` an exception, lose the `memory`, a `nan` loss, or `die`
    once (the worker exits, as long as `ledger` has no line `died`). Every start of a training is a line in the file `ledger`.
    """

    version = "1"
    choices = {"dataset": ("toys",), "decoder": ("linear",), "encoding": ("none",), "holdout": ("random",)}
    defaults = {"pause": 0.0, "trouble": "none", "trouble_N": 0, "ledger": ""}

    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        trouble = "none"
        if is_trained():
            self.note(spec, f"{spec.N} {spec.seed} {spec.data_count}")
            time.sleep(spec.option("pause"))
            trouble = spec.option("trouble") if spec.option("trouble_N") == spec.N else "none"
        if trouble == "die" and "died" not in Path(spec.option("ledger")).read_text():
            self.note(spec, "died")
            os._exit(1)
        return self.samples(spec, trouble)

    def samples(self, spec: RunSpec, trouble: str) -> Data:
        if trouble == "raise":
            raise ArithmeticError("the toy is broken")
        if trouble == "memory":
            raise MemoryError("the toy is too large")
        inputs, value = torch.ones(max(4, spec.data_count), 1), float("nan") if trouble == "nan" else 1.0
        samples = Split(inputs, inputs * value, inputs)
        return Data(train=Split(*(t[: spec.data_count] for t in samples)), held_out=Split(*(t[:4] for t in samples)))

    def note(self, spec: RunSpec, line: str) -> None:
        if spec.option("ledger"):
            with Path(spec.option("ledger")).open("a") as ledger:
                ledger.write(line + "\n")

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.data_count >= threshold(spec.N, spec.seed))}


class Wide(Toy):
    """A run passes exactly if its width reaches `threshold(N, seed)`."""

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.width >= threshold(spec.N, spec.seed))}

    def note(self, spec: RunSpec, line: str) -> None:
        super().note(spec, f"{line} {spec.width}")
