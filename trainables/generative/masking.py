"""Tokens behind masks: how many are masked in a step and in the rounds of a sample (Chang et al. 2022, arXiv 2202.04200), and
the trunk of the heads that guess latents behind masks.

Shapes in comments: n samples of T tokens of d channels, W = the width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from trainables.generative.trunk import Conditions, Trunk


class MaskedTrunk(nn.Module):
    """The trunk over latents of which some are masked. A token is its latents, or zeros if it is masked, and a channel that
    says so, whose weights are the vector of the mask."""

    def __init__(
        self,
        tokens: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        ema: float,
        conditions: Callable[[int], Conditions],
    ) -> None:
        super().__init__()
        self.ema, self.shape = ema, (tokens, channels)
        self.into = nn.Linear(channels + 1, width)
        self.conditions, self.trunk = conditions(width), Trunk(tokens, width, depth, heads)

    def seen(self, conditions: Tensor, latents: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """The trunk's tokens (n, T, W) and what they were modulated by (n, W), from conditions (n, 5), latents (n, T, d) and
        which of these are masked (n, T)."""
        condition = self.conditions(conditions)
        shown = torch.cat([torch.where(masked[:, :, None], 0, latents), masked[:, :, None].to(latents.dtype)], 2)
        return self.trunk(self.into(shown), condition), condition


def drawn_masks(n: int, tokens: int, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Which tokens are masked (n, T), of each sample a share cos(pi u / 2) for a uniform u, and at least one."""
    shares = torch.cos(math.pi / 2 * torch.rand(n, generator=generator, dtype=dtype))
    counts = (shares * tokens).ceil().clamp(1, tokens)
    order = torch.rand(n, tokens, generator=generator, dtype=dtype).argsort(1).argsort(1)
    return order < counts[:, None]


def masked_mean(losses: Tensor, masked: Tensor) -> Tensor:
    """The mean (n,) of the losses (n, T) of the masked tokens."""
    return torch.where(masked, losses, 0).sum(1) / masked.sum(1)


def masked_after(done: int, rounds: int, tokens: int) -> int:
    """How many of the tokens are still masked after `done` of the rounds: a share cos(pi/2 done/rounds), rounded down, but at
    least one until the last round, and always fewer than before, where there is more than one."""
    left = tokens
    for at in range(1, done + 1):
        left = max(1, min(left - 1, math.floor(tokens * math.cos(math.pi / 2 * at / rounds))))
    return 0 if done == rounds else left


def masked_again(
    certainty: Tensor, masked: Tensor, done: int, rounds: int, temperature: float, generator: Generator
) -> Tensor:
    """Which tokens (n, T) are masked after `done` of the rounds, of those that were masked in the last one: as many as
    `masked_after` says, those of the least certainty (n, T) plus Gumbel noise, whose temperature falls to 0."""
    certainty = certainty + temperature * (1 - done / rounds) * gumbel(certainty, generator)
    order = torch.where(masked, certainty, math.inf).argsort(1)
    return torch.zeros_like(masked).scatter(1, order[:, : masked_after(done, rounds, masked.shape[1])], True)


def gumbel(like: Tensor, generator: Generator) -> Tensor:
    """Standard Gumbel noise of this shape, drawn on the CPU."""
    uniform = torch.rand(like.shape, generator=generator, dtype=like.dtype).clamp(1e-6, 1 - 1e-6)
    return -(-uniform.log()).log().to(like.device)
