"""Grokking: how much of the table of addition modulo p must a small network see before it fills in the rest?

    python -m orchestrator.scaling --task examples.grokking:Modular --N 23,31,43,59,71,97 --stop budget --lr 0.01 \\
        --weight-decay 3 --batch-size 512 --max-steps 1500 --precision float32

N is p, and the data count is the number of pairs (a, b) in the training set, out of p^2; all others are held out. The network
has one hidden layer of squares and no biases. Each number is told as one of p inputs, and the sum as one of p outputs.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import one_hot

from trainables import Counts, Data, RunSpec, Split, setting, stream

LEAST_HELD_OUT = 10


@dataclass(frozen=True)
class Settings:
    width: int = setting(256, "Hidden units.", low=1, high=4096)


class Quadratic(nn.Module):
    """Outputs V (U x)^2 from one-hot pairs x."""

    def __init__(self, p: int, width: int) -> None:
        super().__init__()
        self.U = nn.Parameter(torch.randn(2 * p, width) / (2 * p) ** 0.5)
        self.V = nn.Parameter(torch.randn(width, p) / width**0.5)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return (pairs @ self.U).square() @ self.V


class Modular:
    version, settings = "1", Settings  # change the version whenever the same settings would give other results

    def counts(self, spec: RunSpec) -> Counts:
        if not 4 <= spec.N <= 200:
            raise ValueError(f"N, the modulus p, must be a number from 4 to 200, not {spec.N}")
        return Counts(low=1, high=spec.N**2 - LEAST_HELD_OUT)

    def data(self, spec: RunSpec) -> Data:
        p = spec.N
        table = torch.cartesian_prod(torch.arange(p), torch.arange(p))
        table = table[torch.randperm(len(table), generator=stream(spec.seed, "pairs"))]
        sums = table.sum(dim=1) % p
        whole = Split(one_hot(table, p).float().flatten(1), one_hot(sums, p).float(), sums)
        return Data(Split(*(t[: spec.data_count] for t in whole)), Split(*(t[spec.data_count :] for t in whole)))

    def model(self, spec: RunSpec) -> nn.Module:
        return Quadratic(spec.N, spec.width)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": outputs.argmax(dim=1) == split.truth}
