"""The head `dit`: diffusion of latents (Ho et al. 2020, arXiv 2006.11239), sampled with DDIM (Song et al. 2020, 2010.02502).

Shapes in comments: n samples of T tokens of d channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from trainables.generative.trunk import Conditions, Last, Time, Trunk
from trainables.task import Split

TIMES = 500
FIRST_BETA, LAST_BETA = 1e-4, 0.02
PREDICTIONS = ("x0", "eps")


def alpha_bars() -> Tensor:
    """The share of variance that is signal at each of TIMES times, float64: products of 1 - beta, beta rising linearly."""
    return (1 - torch.linspace(FIRST_BETA, LAST_BETA, TIMES, dtype=torch.float64)).cumprod(0)


class DiT(nn.Module):
    """Predicts clean latents (`x0`) or the noise (`eps`) from noisy latents, the time and the conditions."""

    alpha_bar: Tensor

    def __init__(
        self,
        tokens: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        predicts: str,
        rounds: int,
        ema: float,
        embedding: str = "linear",
    ) -> None:
        super().__init__()
        self.ema, self.predicts, self.rounds, self.shape = ema, predicts, rounds, (tokens, channels)
        self.into = nn.Linear(channels, width)
        self.conditions, self.time = Conditions(width, embedding), Time(width)
        self.trunk, self.last = Trunk(tokens, width, depth, heads), Last(width, channels)
        self.register_buffer("alpha_bar", alpha_bars().float(), persistent=False)

    def forward(self, conditions: Tensor, noisy: Tensor, times: Tensor) -> Tensor:
        """The prediction (n, T, d) from noisy latents (n, T, d) at times (n,) int64."""
        condition = self.conditions(conditions, self.time(times))
        out: Tensor = self.last(self.trunk(self.into(noisy), condition), condition)
        return out

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Times (n,) and noise (n, T, d)."""
        times = torch.randint(TIMES, (len(batch.targets),), generator=generator)
        return times, torch.randn(batch.targets.shape, generator=generator, dtype=batch.targets.dtype)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The squared error of the prediction, of latents `batch.targets` (Ho et al., equation 14, for the noise)."""
        times, noise = draws
        signal = self.alpha_bar[times][:, None, None]
        noisy = signal.sqrt() * batch.targets + (1 - signal).sqrt() * noise
        wanted = noise if self.predicts == "eps" else batch.targets
        return (self(batch.inputs, noisy, times).to(wanted.dtype) - wanted).square().flatten(1).mean(1)

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Latents (..., T, d) for conditions (..., 5), by DDIM in `rounds` steps."""
        conditions = inputs.flatten(0, -2)
        noise = torch.randn(len(conditions), *self.shape, generator=generator, dtype=inputs.dtype).to(inputs.device)

        def predicted(noisy: Tensor, time: int) -> Tensor:
            return self(conditions, noisy, torch.full((len(noisy),), time, device=noisy.device)).to(noisy.dtype)

        return ddim(predicted, noise, self.rounds, self.predicts).unflatten(0, inputs.shape[:-1])


def ddim(predicted: Callable[[Tensor, int], Tensor], noisy: Tensor, rounds: int, predicts: str) -> Tensor:
    """From noise to a sample without further noise (Song et al. 2020, equation 12, sigma = 0), at `rounds` times that divide
    TIMES evenly, from the last one on."""
    bars = [1.0, *alpha_bars().tolist()]  # of no noise, and of each time
    stride = TIMES // rounds
    for time in range(TIMES - 1, -1, -stride):
        signal, next_signal = bars[time + 1], bars[time + 1 - stride]
        found = predicted(noisy, time)
        if predicts == "eps":
            clean, noise = (noisy - (1 - signal) ** 0.5 * found) / signal**0.5, found
        else:
            clean, noise = found, (noisy - signal**0.5 * found) / (1 - signal) ** 0.5
        noisy = next_signal**0.5 * clean + (1 - next_signal) ** 0.5 * noise
    return noisy
