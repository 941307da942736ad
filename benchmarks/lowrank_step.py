"""What a training step of the low-rank decoder takes, against the same step of plain layers under automatic differentiation.

    python -m benchmarks.lowrank_step            ten rounds of 40 steps of each, in turns
    python -m benchmarks.lowrank_step --quick    two rounds

CPU time of one thread, batch 32, N = 32. Prints a table: the least time of a step in any round, and the ratio of the two.
"""

import time
from collections.abc import Callable

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional

from trainables.lowrank import LowRank, entropy_terms, variance_terms
from trainables.training.precision import quiet_cpu

SHAPES = [(32, 2), (32, 4), (1, 2), (1, 4), (1, 8)]
"""Rank and channels."""
STEPS = 40


class Plain(LowRank):
    """The same decoder in the library's own layers."""

    def embeddings(self) -> Tensor:
        u, v = functional.normalize(self.rows, dim=-1), functional.normalize(self.columns, dim=-1)
        return (u * self.strengths[..., None]).transpose(-1, -2) @ v

    def penalty(self) -> Tensor:
        entropy = entropy_terms(self.strengths).sum()
        return self.entropy_weight * entropy + self.variance_weight * variance_terms(self.rows, self.columns).sum()

    def forward(self, tokens: Tensor) -> Tensor:
        matrices = self.embeddings()
        images = torch.stack([matrices[0, tokens[:, 0]], matrices[1, tokens[:, 1]]], 1)
        images = images.contiguous(memory_format=torch.channels_last)
        for slope, layer in zip(self.slopes, self.layers, strict=True):
            images = layer(slope(images))
        return images


def stepper(kind: type[LowRank], rank: int, channels: int) -> Callable[[], None]:
    """A function that trains one step."""
    torch.manual_seed(0)
    model = kind(32, rank, channels, 2, 0.1, 0.01)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens, targets = torch.randint(0, 32, (32, 2)), torch.rand(32, 1, 32, 32)

    def step() -> None:
        optimizer.zero_grad()
        (nn.functional.mse_loss(model(tokens), targets) + model.penalty()).backward()
        optimizer.step()

    return step


def main(quick: bool = False) -> None:
    """Print the table."""
    quiet_cpu()
    print("| rank | channels | plain layers, ms | ours, ms | ratio |")
    print("|---:|---:|---:|---:|---:|")
    for rank, channels in SHAPES:
        least = {Plain: float("inf"), LowRank: float("inf")}
        steps = {kind: stepper(kind, rank, channels) for kind in least}
        for _ in range(2 if quick else 10):
            for kind, step in steps.items():
                step()
                began = time.process_time()
                for _ in range(STEPS):
                    step()
                least[kind] = min(least[kind], (time.process_time() - began) / STEPS * 1e3)
        print(f"| {rank} | {channels} | {least[Plain]:.2f} | {least[LowRank]:.2f} | {least[Plain] / least[LowRank]:.2f} |")


if __name__ == "__main__":
    typer.run(main)
