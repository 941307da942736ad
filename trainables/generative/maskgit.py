"""The head `maskgit`: codes behind masks are guessed from those in sight (Chang et al. 2022, arXiv 2202.04200).

Shapes in comments: n samples of T tokens, K codes.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from trainables.generative.trunk import Conditions, Last, Trunk
from trainables.task import Split


class MaskGIT(nn.Module):
    """Logits of codes (n, T, K) from codes of which some are the mask, and the conditions."""

    def __init__(
        self,
        tokens: int,
        codes: int,
        width: int,
        depth: int,
        heads: int,
        rounds: int,
        temperature: float,
        smoothing: float,
        ema: float,
        embedding: str = "linear",
    ) -> None:
        super().__init__()
        self.ema, self.tokens, self.mask = ema, tokens, codes
        self.rounds, self.temperature, self.smoothing = rounds, temperature, smoothing
        self.into = nn.Embedding(codes + 1, width)
        self.conditions = Conditions(width, embedding)
        self.trunk, self.last = Trunk(tokens, width, depth, heads), Last(width, codes)

    def forward(self, conditions: Tensor, codes: Tensor) -> Tensor:
        """Logits (n, T, K) from codes (n, T), where K is the mask."""
        condition = self.conditions(conditions)
        logits: Tensor = self.last(self.trunk(self.into(codes), condition), condition)
        return logits

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Which tokens are masked (n, T), of each sample a share cos(pi u / 2) for a uniform u, and at least one."""
        n, dtype = len(batch.targets), batch.inputs.dtype
        shares = torch.cos(math.pi / 2 * torch.rand(n, generator=generator, dtype=dtype))
        counts = (shares * self.tokens).ceil().clamp(1, self.tokens)
        order = torch.rand(n, self.tokens, generator=generator, dtype=dtype).argsort(1).argsort(1)
        return (order < counts[:, None],)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The mean cross-entropy over the masked tokens of codes `batch.targets`, with label smoothing."""
        (masked,) = draws
        logits = self(batch.inputs, torch.where(masked, self.mask, batch.targets))
        logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(2)
        right = logs.gather(2, batch.targets[:, :, None]).squeeze(2)
        cross_entropy = -(1 - self.smoothing) * right - self.smoothing * logs.mean(2)
        return torch.where(masked, cross_entropy, 0).sum(1) / masked.sum(1)

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Codes (..., T) for conditions (..., 5), in `rounds` rounds.

        In a round every masked token is drawn. The least certain ones, by log-probability plus Gumbel noise of a temperature
        that falls to 0, are masked again, as many as `masked_after` says.
        """
        conditions = inputs.flatten(0, -2)
        codes = torch.full((len(conditions), self.tokens), self.mask, device=inputs.device)
        for done in range(1, self.rounds + 1):
            logs = self(conditions, codes).float().log_softmax(2)
            masked = codes == self.mask
            drawn = torch.where(masked, (logs + gumbel(logs, generator)).argmax(2), codes)
            if done == self.rounds:
                codes = drawn
                break
            certainty = logs.gather(2, drawn[:, :, None]).squeeze(2)
            certainty = certainty + self.temperature * (1 - done / self.rounds) * gumbel(certainty, generator)
            certainty = torch.where(masked, certainty, math.inf)
            again = certainty.argsort(1)[:, : masked_after(done, self.rounds, self.tokens)]
            codes = drawn.scatter(1, again, self.mask)
        return codes.unflatten(0, inputs.shape[:-1])


def masked_after(done: int, rounds: int, tokens: int) -> int:
    """How many of the tokens are still masked after `done` of the rounds: a share cos(pi/2 done/rounds), rounded down, but at
    least one until the last round, and always fewer than before, where there is more than one."""
    left = tokens
    for at in range(1, done + 1):
        left = max(1, min(left - 1, math.floor(tokens * math.cos(math.pi / 2 * at / rounds))))
    return 0 if done == rounds else left


def gumbel(like: Tensor, generator: Generator) -> Tensor:
    """Standard Gumbel noise of this shape, drawn on the CPU."""
    uniform = torch.rand(like.shape, generator=generator, dtype=like.dtype).clamp(1e-6, 1 - 1e-6)
    return -(-uniform.log()).log().to(like.device)
