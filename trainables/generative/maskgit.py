"""The head `maskgit`: codes behind masks are guessed from those in sight (Chang et al. 2022, arXiv 2202.04200).

Shapes in comments: n samples of T tokens, K codes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from trainables.generative.jepa import Jepa
from trainables.generative.masking import drawn_masks, gumbel, masked_again, masked_mean
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
        conditions: Callable[[int], Conditions] = Conditions,
        jepa: float = 0.0,
        jepa_layers: str = "three",
        jepa_teacher: str = "ema",
    ) -> None:
        super().__init__()
        self.ema, self.tokens, self.mask = ema, tokens, codes
        self.rounds, self.temperature, self.smoothing = rounds, temperature, smoothing
        self.into = nn.Embedding(codes + 1, width)
        self.conditions = conditions(width)
        self.trunk, self.last = Trunk(tokens, width, depth, heads), Last(width, codes)
        self.jepa = Jepa(width, depth, jepa, jepa_layers, jepa_teacher) if jepa else None

    def forward(self, conditions: Tensor, codes: Tensor) -> Tensor:
        """Logits (n, T, K) from codes (n, T), where K is the mask."""
        layers, condition = self.layers(conditions, codes)
        logits: Tensor = self.last(layers[-1], condition)
        return logits

    def layers(self, conditions: Tensor, codes: Tensor) -> tuple[list[Tensor], Tensor]:
        """The trunk's tokens at all layers, see `Trunk.layers`, and what they were modulated by."""
        condition = self.conditions(conditions)
        return self.trunk.layers(self.into(codes), condition), condition

    def whole(self, conditions: Tensor, codes: Tensor) -> list[Tensor]:
        """The trunk's tokens at all layers, of a picture of which nothing is masked."""
        return self.layers(conditions, codes)[0]

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Which tokens are masked (n, T), and which factors are not told."""
        masked = drawn_masks(len(batch.targets), self.tokens, generator, batch.inputs.dtype)
        return masked, *self.conditions.draws(batch.inputs, generator)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The mean cross-entropy over the masked tokens of codes `batch.targets`, with label smoothing; and that of
        `Jepa`."""
        masked, *left_out = draws
        told = self.conditions.partly(batch.inputs, *left_out)
        layers, condition = self.layers(told, torch.where(masked, self.mask, batch.targets))
        logits = self.last(layers[-1], condition)
        logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(2)
        right = logs.gather(2, batch.targets[:, :, None]).squeeze(2)
        cross_entropy = -(1 - self.smoothing) * right - self.smoothing * logs.mean(2)
        losses = masked_mean(cross_entropy, masked)
        if self.jepa is None:
            return losses
        targets = self.jepa.targets(self, teacher, told, batch.targets)
        return losses + self.jepa(layers, targets, masked)

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Codes (..., T) for conditions (..., 5), in `rounds` rounds.

        In a round every masked token is drawn. The least certain ones, by their log-probability, are masked again, see
        `masked_again`.
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
            again = masked_again(certainty, masked, done, self.rounds, self.temperature, generator)
            codes = torch.where(again, self.mask, drawn)
        return codes.unflatten(0, inputs.shape[:-1])
