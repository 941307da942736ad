"""The head `givt`: latents behind masks are guessed as mixtures of Gaussians (Tschannen et al. 2023, arXiv 2312.02116, section
3). It is masked as MaskGIT is, and continuous as DiT is.

Shapes in comments: n samples of T tokens of d channels, k Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from trainables.generative.masking import MaskedTrunk, drawn_masks, gumbel, masked_again, masked_mean
from trainables.generative.trunk import Conditions, Last
from trainables.task import Split

LEAST_SCALE = 0.05
"""Of a Gaussian. Vectors of codes are points: without a bound the density at a code would grow for ever, and with it the
gradients. Latents vary by about 1; a twentieth of that is not seen in a picture."""
FIRST_SCALE, FIRST_SPREAD = 1.0, 0.5
"""Scales of the Gaussians before the first step, and how far their means lie apart: Gaussians that begin alike stay alike."""


class Mixture(NamedTuple):
    """For each token a mixture of k diagonal Gaussians."""

    logits: Tensor
    """Of the weights (n, T, k)."""
    means: Tensor
    """(n, T, k, d)."""
    scales: Tensor
    """Standard deviations (n, T, k, d)."""

    def log_density(self, latents: Tensor) -> Tensor:
        """log sum_k weight_k N(x; mean_k, scale_k^2), of each token (n, T) of latents x (n, T, d)."""
        errors = (latents[:, :, None] - self.means) / self.scales
        of_each = -(errors.square() / 2 + self.scales.log() + math.log(2 * math.pi) / 2).sum(3)
        return (self.logits.log_softmax(2) + of_each).logsumexp(2)

    def drawn(self, generator: Generator) -> Tensor:
        """Latents (n, T, d), drawn on the CPU: of each token first which Gaussian, then from it."""
        chosen = (self.logits + gumbel(self.logits, generator)).argmax(2)[:, :, None, None]
        mean, scale = (t.gather(2, chosen.expand(-1, -1, 1, t.shape[3])).squeeze(2) for t in (self.means, self.scales))
        return mean + scale * torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)


class GIVT(MaskedTrunk):
    """Mixtures of latents from latents of which some are masked, and the conditions."""

    def __init__(
        self,
        tokens: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        rounds: int,
        temperature: float,
        mixture: int,
        variance_scale: float,
        ema: float,
        conditions: Callable[[int], Conditions] = Conditions,
    ) -> None:
        super().__init__(tokens, channels, width, depth, heads, ema, conditions)
        self.rounds, self.temperature, self.mixture, self.variance_scale = rounds, temperature, mixture, variance_scale
        self.last = Last(width, mixture * (1 + 2 * channels))
        with torch.no_grad():
            _, means, scales = self.last.out.bias.split(self._parts)
            means.normal_(0, FIRST_SPREAD)
            scales.fill_(math.log(math.expm1(FIRST_SCALE - LEAST_SCALE)))

    @property
    def _parts(self) -> tuple[int, int, int]:
        """Of the outputs, how many are logits, means and scales."""
        return self.mixture, self.mixture * self.shape[1], self.mixture * self.shape[1]

    def forward(self, conditions: Tensor, latents: Tensor, masked: Tensor) -> Mixture:
        """The mixtures of all tokens, from conditions (n, 5), latents (n, T, d) and which of these are masked (n, T)."""
        outputs = self.last(*self.seen(conditions, latents, masked))
        logits, means, scales = outputs.to(torch.promote_types(outputs.dtype, torch.float32)).split(self._parts, 2)
        means, scales = (t.unflatten(2, (self.mixture, -1)) for t in (means, scales))
        return Mixture(logits, means, LEAST_SCALE + functional.softplus(scales))

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Which tokens are masked (n, T), and which factors are not told."""
        masked = drawn_masks(len(batch.targets), self.shape[0], generator, batch.inputs.dtype)
        return masked, *self.conditions.draws(batch.inputs, generator)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The mean negative log-likelihood of the masked tokens of latents `batch.targets`, in nats."""
        masked, *left_out = draws
        told = self.conditions.partly(batch.inputs, *left_out)
        return masked_mean(-self(told, batch.targets, masked).log_density(batch.targets), masked)

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Latents (..., T, d) for conditions (..., 5), in `rounds` rounds.

        In a round every masked token is drawn, from Gaussians whose scales are multiplied by `variance_scale`. The least
        certain ones, by the log-density of what was drawn, are masked again, see `masked_again`.
        """
        conditions = inputs.flatten(0, -2)
        masked = torch.ones(len(conditions), self.shape[0], dtype=torch.bool, device=inputs.device)
        latents = inputs.new_zeros(len(conditions), *self.shape)
        for done in range(1, self.rounds + 1):
            found = self(conditions, latents, masked)
            found = found._replace(scales=self.variance_scale * found.scales)
            latents = torch.where(masked[:, :, None], found.drawn(generator).to(latents.dtype), latents)
            masked = masked_again(found.log_density(latents), masked, done, self.rounds, self.temperature, generator)
        return latents.unflatten(0, inputs.shape[:-1])
