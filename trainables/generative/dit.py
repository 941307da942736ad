"""The head `dit`: diffusion of latents (Ho et al. 2020, arXiv 2006.11239), sampled with DDIM (Song et al. 2020, 2010.02502).

Latents are multiplied by `input_scale` before noise is added (Chen 2023, arXiv 2301.10972, section 2.2). The smaller it is, the
more of the times have too much noise for a figure to be seen, and a network has to go by what it is told.

Shapes in comments: n samples of T tokens of d channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from trainables.generative.jepa import Jepa
from trainables.generative.trunk import Conditions, Last, Time, Trunk
from trainables.task import Split

TIMES = 500
FIRST_BETA, LAST_BETA = 1e-4, 0.02
PREDICTIONS = ("x0", "eps")
NOISES = ("zero-snr", "linear")


def alpha_bars(noise: str = "linear") -> Tensor:
    """The share of variance that is signal at each of TIMES times, float64.

    `linear`: products of 1 - beta, beta rising linearly. `zero-snr`: its square roots, shifted and stretched so that nothing is
    left at the last time, where sampling begins with nothing but noise (Lin et al. 2024, arXiv 2305.08891, algorithm 1).
    """
    bars = (1 - torch.linspace(FIRST_BETA, LAST_BETA, TIMES, dtype=torch.float64)).cumprod(0)
    if noise == "linear":
        return bars
    roots = bars.sqrt()
    return ((roots - roots[-1]) * roots[0] / (roots[0] - roots[-1])).square()


class DiT(nn.Module):
    """Predicts clean latents (`x0`) or the noise (`eps`) from noisy latents, the time and the conditions. All latents inside
    are scaled; what is learned from and what is sampled is not."""

    alpha_bar: Tensor

    def __init__(
        self,
        tokens: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        predicts: str,
        ddim_steps: int,
        ema: float,
        conditions: Callable[[int], Conditions] = Conditions,
        noise: str = "linear",
        input_scale: float = 1.0,
        jepa: float = 0.0,
        jepa_layers: str = "three",
        jepa_teacher: str = "ema",
    ) -> None:
        super().__init__()
        self.ema, self.predicts, self.shape = ema, predicts, (tokens, channels)
        self.ddim_steps, self.noise, self.input_scale = ddim_steps, noise, input_scale
        self.into = nn.Linear(channels, width)
        self.conditions, self.time = conditions(width), Time(width)
        self.trunk, self.last = Trunk(tokens, width, depth, heads), Last(width, channels)
        self.register_buffer("alpha_bar", alpha_bars(noise).float(), persistent=False)
        self.jepa = Jepa(width, depth, jepa, jepa_layers, jepa_teacher) if jepa else None

    def forward(self, conditions: Tensor, noisy: Tensor, times: Tensor) -> Tensor:
        """The prediction (n, T, d), of scaled latents or of the noise, from noisy latents (n, T, d) at times (n,) int64."""
        layers, condition = self.layers(conditions, noisy, times)
        out: Tensor = self.last(layers[-1], condition)
        return out

    def layers(self, conditions: Tensor, noisy: Tensor, times: Tensor) -> tuple[list[Tensor], Tensor]:
        """The trunk's tokens at all layers, see `Trunk.layers`, and what they were modulated by."""
        condition = self.conditions(conditions, self.time(times))
        return self.trunk.layers(self.into(noisy), condition), condition

    def whole(self, conditions: Tensor, latents: Tensor) -> list[Tensor]:
        """The trunk's tokens at all layers, of latents (n, T, d) without noise at the first time."""
        return self.layers(conditions, self.input_scale * latents, conditions.new_zeros(len(conditions), dtype=torch.int64))[0]

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Times (n,) and noise (n, T, d), and which factors are not told."""
        times = torch.randint(TIMES, (len(batch.targets),), generator=generator)
        noise = torch.randn(batch.targets.shape, generator=generator, dtype=batch.targets.dtype)
        return times, noise, *self.conditions.draws(batch.inputs, generator)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The squared error of the prediction, where `batch.targets` are latents (Ho et al., equation 14, for the noise); and
        that of `Jepa`, where noise hides what masks hide elsewhere, so that all tokens count."""
        times, noise, *left_out = draws
        signal = self.alpha_bar[times][:, None, None]
        clean = self.input_scale * batch.targets
        noisy = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        wanted, told = noise if self.predicts == "eps" else clean, self.conditions.partly(batch.inputs, *left_out)
        layers, condition = self.layers(told, noisy, times)
        losses = (self.last(layers[-1], condition).to(wanted.dtype) - wanted).square().flatten(1).mean(1)
        if self.jepa is None:
            return losses
        targets = self.jepa.targets(self, teacher, told, batch.targets)
        return losses + self.jepa(layers, targets, torch.ones_like(noise[..., 0], dtype=torch.bool))

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Latents (..., T, d) for conditions (..., 5), by DDIM in `ddim_steps` steps."""
        conditions = inputs.flatten(0, -2)
        noise = torch.randn(len(conditions), *self.shape, generator=generator, dtype=inputs.dtype).to(inputs.device)

        def predicted(noisy: Tensor, time: int) -> Tensor:
            return self(conditions, noisy, torch.full((len(noisy),), time, device=noisy.device)).to(noisy.dtype)

        scaled = ddim(predicted, noise, self.ddim_steps, self.predicts, self.noise)
        return (scaled / self.input_scale).unflatten(0, inputs.shape[:-1])


def ddim(
    predicted: Callable[[Tensor, int], Tensor], noisy: Tensor, steps: int, predicts: str, noise_of: str = "linear"
) -> Tensor:
    """From noise to a sample without further noise (Song et al. 2020, equation 12, sigma = 0), at `steps` times that divide
    TIMES evenly, from the last one on. `noise_of` is one of NOISES."""
    bars = [1.0, *alpha_bars(noise_of).tolist()]  # of no noise, and of each time
    stride = TIMES // steps
    for time in range(TIMES - 1, -1, -stride):
        signal, next_signal = bars[time + 1], bars[time + 1 - stride]
        found = predicted(noisy, time)
        if predicts == "eps":
            clean, noise = (noisy - (1 - signal) ** 0.5 * found) / signal**0.5, found
        else:
            clean, noise = found, (noisy - signal**0.5 * found) / (1 - signal) ** 0.5
        noisy = next_signal**0.5 * clean + (1 - next_signal) ** 0.5 * noise
    return noisy
