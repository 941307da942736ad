"""A task whose runs look as if they had ended, and then pass: what the stopping rule cannot see."""

import time
from pathlib import Path

import torch
from torch import nn

from tests.toy import is_trained
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split

SAMPLES = 10
PLATEAU = 0.65
TICK = 1e-6


def soon(N: int) -> int:
    """From so many samples on a run passes as soon as it has learned them."""
    return 3 * N


def late(N: int) -> int:
    """From so many on it passes at step `jump`: at N = 16 as many as above, beyond it fewer."""
    return 3 * N if N <= 16 else 2 * N


class Network(nn.Module):
    """Values of ten one-hot inputs, and how many steps it was trained for, as a number too small to matter."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Linear(SAMPLES, 1, bias=False)
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.steps += 1
        values = self.values(inputs)
        return torch.cat([values, (self.steps * TICK).expand_as(values)], dim=1)


class Jumpy:
    """Of held-out samples six in ten are right once the training set is known, and all when the run passes.

    Every start of a training is a line in the file `ledger`; runs trained to the end sleep `pause` seconds in every evaluation.
    """

    version = "1"
    choices = {"dataset": ("jumps",), "decoder": ("linear",), "encoding": ("one-hot",), "holdout": ("random",)}
    defaults = {"jump": 400, "ledger": "", "pause": 0.0}

    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=SAMPLES, high=8 * spec.N)

    def data(self, spec: RunSpec) -> Data:
        if spec.option("ledger") and is_trained():
            with Path(spec.option("ledger")).open("a") as ledger:
                ledger.write(f"{spec.stop} {spec.N} {spec.seed} {spec.data_count}\n")
        return Data(train=self.samples(spec.data_count), held_out=self.samples(SAMPLES))

    def samples(self, count: int) -> Split:
        which = torch.arange(count) % SAMPLES
        values = 0.1 + which[:, None] / SAMPLES
        return Split(nn.functional.one_hot(which, SAMPLES).float(), torch.cat([values, torch.zeros_like(values)], 1), values)

    def model(self, spec: RunSpec) -> nn.Module:
        return Network()

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        if spec.stop == "target" and is_trained():
            time.sleep(spec.option("pause"))
        jumped = outputs[:, 1] > (spec.option("jump") - 0.5) * TICK
        passes = (spec.data_count >= late(spec.N)) & jumped | (spec.data_count >= soon(spec.N))
        known = (outputs[:, :1] - split.truth).abs()[:, 0] < 0.02
        return {"correct": known & (passes | (split.truth[:, 0] < PLATEAU))}
