"""The head `mar`: latents behind masks are guessed by a small diffusion for each token (Li et al. 2024, arXiv 2406.11838). It
is masked as MaskGIT is, and diffuses as DiT does, but tokens one by one.

Shapes in comments: n samples of T tokens of d channels, W = the width of the head, m tokens of any samples.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from trainables.generative.dit import TIMES, alpha_bars, ddim
from trainables.generative.masking import MaskedTrunk, drawn_masks, masked_after, masked_mean
from trainables.generative.trunk import Conditions, Last, Time, modulated, zeros
from trainables.task import Split


class MAR(MaskedTrunk):
    """Predicts the clean latents (`x0`) of a token or the noise (`eps`), from its noisy latents, the time, and what the trunk
    says of it. Latents are scaled in the head, as in DiT; what the trunk sees, what is learned from and what is sampled is
    not."""

    alpha_bar: Tensor

    def __init__(
        self,
        tokens: int,
        channels: int,
        width: int,
        depth: int,
        heads: int,
        rounds: int,
        predicts: str,
        ddim_steps: int,
        head_width: int,
        head_depth: int,
        head_draws: int,
        ema: float,
        conditions: Callable[[int], Conditions] = Conditions,
        noise: str = "linear",
        input_scale: float = 1.0,
    ) -> None:
        super().__init__(tokens, channels, width, depth, heads, ema, conditions)
        self.rounds, self.predicts, self.ddim_steps, self.head_draws = rounds, predicts, ddim_steps, head_draws
        self.noise, self.input_scale = noise, input_scale
        self.told = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, head_width))
        self.head = Head(channels, head_width, head_depth)
        self.register_buffer("alpha_bar", alpha_bars(noise).float(), persistent=False)

    def forward(self, conditions: Tensor, latents: Tensor, masked: Tensor) -> Tensor:
        """What the head is told of each token (n, T, W), from conditions (n, 5), latents (n, T, d) and which of these are
        masked (n, T)."""
        told: Tensor = self.told(self.seen(conditions, latents, masked)[0])
        return told

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        """Which tokens are masked (n, T); of each token `head_draws` times (n, draws, T) and noise (n, draws, T, d);
        and which factors are not told."""
        (n, tokens, channels), dtype = batch.targets.shape, batch.targets.dtype
        masked = drawn_masks(n, tokens, generator, batch.inputs.dtype)
        times = torch.randint(TIMES, (n, self.head_draws, tokens), generator=generator)
        noise = torch.randn(*times.shape, channels, generator=generator, dtype=dtype)
        return masked, times, noise, *self.conditions.draws(batch.inputs, generator)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """The squared error of the prediction, mean over the masked tokens of latents `batch.targets` and what is drawn of each
        (Li et al., equation 1, for the noise)."""
        masked, times, noise, *left_out = draws
        signal = self.alpha_bar[times][..., None]
        clean = (self.input_scale * batch.targets)[:, None].expand_as(noise)
        noisy = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        shown = self.conditions.partly(batch.inputs, *left_out)
        told = self(shown, batch.targets, masked)[:, None].expand(*times.shape, -1)
        found = self.head(noisy.flatten(0, 2), told.flatten(0, 2), times.flatten())
        wanted = noise if self.predicts == "eps" else clean
        errors = (found.to(wanted.dtype).view_as(wanted) - wanted).square().mean((1, 3))
        return masked_mean(errors, masked)

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Latents (..., T, d) for conditions (..., 5), in `rounds` rounds.

        Tokens are drawn in a random order, and stay. In a round come as many as leave `masked_after` of them, each by DDIM in
        `ddim_steps` steps.
        """
        conditions, (tokens, channels) = inputs.flatten(0, -2), self.shape
        order = torch.rand(len(conditions), tokens, generator=generator).argsort(1).to(inputs.device)
        masked = torch.ones_like(order, dtype=torch.bool)
        latents = inputs.new_zeros(len(conditions), *self.shape)
        left = [masked_after(done, self.rounds, tokens) for done in range(self.rounds + 1)]
        for before, after in pairwise(left):
            if before == after:
                continue  # more rounds than tokens
            now = order[:, after:before, None]
            told = self(conditions, latents, masked)
            told = told.gather(1, now.expand(-1, -1, told.shape[2]))
            noise = torch.randn(*now.shape[:2], channels, generator=generator, dtype=latents.dtype).to(latents.device)
            latents = latents.scatter(1, now.expand_as(noise), self._denoised(noise, told))
            masked = masked.scatter(1, now[:, :, 0], False)
        return latents.unflatten(0, inputs.shape[:-1])

    def _denoised(self, noise: Tensor, told: Tensor) -> Tensor:
        """Latents of some tokens (n, t, d), from noise and what the head is told of them (n, t, W)."""
        told = told.flatten(0, 1)

        def predicted(noisy: Tensor, time: int) -> Tensor:
            found: Tensor = self.head(noisy, told, torch.full((len(noisy),), time, device=noisy.device))
            return found.to(noisy.dtype)

        scaled = ddim(predicted, noise.flatten(0, 1), self.ddim_steps, self.predicts, self.noise)
        return (scaled / self.input_scale).view_as(noise)


class Head(nn.Module):
    """From noisy latents of tokens (m, d), what is told of them (m, W) and times (m,) to predictions (m, d): residual blocks,
    modulated by the SiLU of the sum of what is told and of the time (Li et al., section 4.1). All zeros before the first
    step."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.into, self.time = nn.Linear(channels, width), Time(width)
        self.blocks = nn.ModuleList(HeadBlock(width) for _ in range(depth))
        self.last = Last(width, channels)

    def forward(self, noisy: Tensor, told: Tensor, times: Tensor) -> Tensor:
        condition = nn.functional.silu(told + self.time(times))
        x = self.into(noisy)
        for block in self.blocks:
            x = block(x, condition)
        found: Tensor = self.last(x[:, None], condition)[:, 0]
        return found


class HeadBlock(nn.Module):
    """A residual MLP from (m, W) to (m, W), shifted, scaled and gated by a condition (m, W). It begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.modulation = zeros(nn.Linear(width, 3 * width))
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(condition).chunk(3, 1)
        out: Tensor = x + gate * self.mlp(modulated(x, shift, scale))
        return out
