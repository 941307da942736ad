"""Decoders that draw by a rule instead of by training."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder
from trainables.bumps import BumpTask
from trainables.spec import RunSpec

N = 8
LOW, HIGH = 2, 6
"""The central box at this N: 25 positions; its core is the position (4, 4) alone."""


class Rule(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, code: Tensor) -> Tensor:
        return self.draw(code)[:, None]

    def layers(self, code: Tensor) -> list[Tensor]:
        return [self(code)]


def decoder(draw: Callable[[Tensor], Tensor], encoding: str = "bump", seed: int = 0, **options: object) -> TrainedDecoder:
    """A decoder that draws images (n, N, N) from codes (n, C) by `draw`."""
    task = BumpTask()
    spec = RunSpec(
        task="trainables.bumps:BumpTask",
        dataset="bumps",
        N=N,
        data_count=39,
        seed=seed,
        encoding=encoding,
        holdout="center",
        options=tuple({**task.defaults, **options}.items()),
    )
    return TrainedDecoder("key", spec, task, Rule(draw))


def bump(code: Tensor) -> Tensor:
    """The right image of a bump code: the product of its halves, which are the profiles across x and y."""
    return code[:, N:, None] * code[:, None, :N]


def cross(code: Tensor) -> Tensor:
    """Column x plus row y, of a one-hot code; nothing for a half without an entry above a half."""
    seen = (code > 0.5).float()
    return seen[:, N:, None] + seen[:, None, :N]


def blank(code: Tensor) -> Tensor:
    return torch.zeros(len(code), N, N)


def values(quantities: Iterable[Quantity]) -> dict[str, float]:
    return {q.name: q.value for q in quantities if q.value is not None}


def arrays(quantities: Iterable[Quantity]) -> dict[str, object]:
    return {q.name: q.array for q in quantities if q.array is not None}
