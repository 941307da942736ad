"""Tokenizers: from pictures to a short row of vectors and back, either with continuous latents (VAE) or with codes (VQ).

The network is convolutional, or linear on patches, so that a token knows nothing but its own pixels.
Shapes in comments: n pictures of N x N pixels, T = (N / stride)^2 tokens of d channels.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from trainables.generative.codebook import Codebook, straight_through
from trainables.task import Split

KINDS, NETWORKS = ("vq", "vae"), ("linear", "conv")
STAGES = {2: (2,), 3: (3,), 4: (2, 2), 6: (2, 3), 8: (2, 2, 2)}
"""By which factors a convolutional network makes a picture smaller, for each stride."""
COMMITMENT = 0.25
PIXEL_VARIANCE = 0.05
"""About that of a pixel of these pictures. A VQ counts squared errors in it, as in the reference code of van den Oord et al."""
MEMORY = 0.95
"""Of the moving means and variance of the latents."""
AT_ONCE = 512


class Tokenizer(nn.Module):
    """Latents are standardised over the pictures that it was trained on: each channel has mean 0, and all channels together
    have variance 1, as in Rombach et al. 2022 (arXiv 2112.10752). So a squared error of latents weighs what matters in a
    picture.

    Of a VQ, latents are the vectors of the codes. It minimises the squared error of the pictures over PIXEL_VARIANCE, plus
    COMMITMENT times that of its vectors to their codes. A VAE (Kingma and Welling 2013, arXiv 1312.6114) minimises the squared
    error plus `beta` times the divergence from a standard normal distribution. All of them are means over their values.
    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self, kind: str, network: str, N: int, stride: int, channels: int, width: int, codes: int, beta: float = 1e-3
    ) -> None:
        super().__init__()
        self.kind, self.beta, self.tokens, self.channels = kind, beta, (N // stride) ** 2, channels
        inner = channels if kind == "vq" else 2 * channels
        self.encoder = Patches(3, inner, stride) if network == "linear" else shrinking(3, inner, stride, width)
        self.decoder = Pixels(channels, 3, stride) if network == "linear" else growing(channels, 3, stride, width)
        self.side = N // stride
        self.codebook = Codebook(codes, channels) if kind == "vq" else None
        self.register_buffer("centre", torch.zeros(channels))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def start(self, images: Tensor, generator: Generator) -> None:
        """Begin where some pictures (n, 3, N, N) say: linear maps with the principal components of patches, codes with the
        k-means of their vectors."""
        if isinstance(self.encoder, Patches) and isinstance(self.decoder, Pixels):
            patches = self.encoder.patches(2 * images - 1).flatten(0, 2)
            mean = patches.mean(0)
            axes = torch.linalg.eigh((patches - mean).t() @ (patches - mean))[1].flip(1)[:, : self.channels]  # (pixels, d)
            count = axes.shape[1]
            self.encoder.weight[:count] = axes.t()
            self.encoder.bias[:count] = -mean @ axes
            self.decoder.weight[:, :count] = axes
            self.decoder.bias.copy_(mean)
        if self.codebook is not None:
            self.codebook.start(self.encode(images).flatten(0, 1), generator)

    def forward(self, images: Tensor) -> Tensor:
        """Reconstructions of pictures (..., 3, N, N)."""
        return self.decode(self.latents(images.flatten(0, -4))).view_as(images)

    def encode(self, images: Tensor) -> Tensor:
        """What the encoder says (n, T, inner) of pictures (n, 3, N, N)."""
        encoded: Tensor = self.encoder(2 * images - 1).flatten(2).transpose(1, 2)
        return encoded

    def latents(self, images: Tensor) -> Tensor:
        """Standardised latents (n, T, d) of pictures (n, 3, N, N): the means of a VAE's distributions, or vectors of codes."""
        found = [self._mean(part) for part in images.split(AT_ONCE)]
        return (torch.cat(found) - self.centre) / self.spread

    def codes(self, images: Tensor) -> Tensor:
        """The codes (n, T) int64 of pictures (n, 3, N, N)."""
        return torch.cat([self._codes()(self.encode(part))[1] for part in images.split(AT_ONCE)])

    def vectors(self, codes: Tensor) -> Tensor:
        """The standardised latents (n, T, d) of codes (n, T)."""
        return (self._codes().codes[codes] - self.centre) / self.spread

    def decode(self, latents: Tensor) -> Tensor:
        """Pictures (n, 3, N, N) of standardised latents (n, T, d)."""
        return torch.cat([self._pictures(part) for part in (latents * self.spread + self.centre).split(AT_ONCE)])

    def draws(self, batch: Split, generator: Generator) -> tuple[Tensor, ...]:
        shape, dtype = (len(batch.inputs), self.tokens), batch.inputs.dtype
        if self.codebook is not None:
            return (torch.rand(shape, generator=generator, dtype=dtype),)
        return (torch.randn(*shape, self.channels, generator=generator, dtype=dtype),)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        """Of pictures `batch.inputs`; nothing else is looked at."""
        vectors = self.encode(batch.inputs)
        if self.codebook is not None:
            kept, _ = self.codebook(vectors, draws[0] if self.training else None)
            latents, unit = straight_through(vectors, kept), PIXEL_VARIANCE
            extra = COMMITMENT * (vectors - kept).square()
        else:
            kept, log_variance = vectors.chunk(2, -1)
            log_variance = log_variance.clamp(-20, 10)
            latents, unit = kept + (log_variance / 2).exp() * draws[0], 1.0
            extra = self.beta / 2 * (kept.square() + log_variance.exp() - log_variance - 1)
        if self.training:
            self._follow(kept.detach())
        return (self._pictures(latents) - batch.inputs).square().flatten(1).mean(1) / unit + extra.flatten(1).mean(1)

    def _follow(self, latents: Tensor) -> None:
        """Move the means and the variance of the latents on by a batch."""
        flat = latents.flatten(0, 1).to(self.centre.dtype)
        variance = torch.lerp(flat.var(0, correction=0).mean(), self.spread.square(), MEMORY)
        self.centre.copy_(torch.lerp(flat.mean(0), self.centre, MEMORY))
        self.spread.copy_(variance.clamp_min(1e-8).sqrt())

    def _mean(self, images: Tensor) -> Tensor:
        vectors = self.encode(images)
        found: Tensor = vectors.chunk(2, -1)[0] if self.codebook is None else self.codebook(vectors)[0]
        return found

    def _pictures(self, vectors: Tensor) -> Tensor:
        placed = vectors.transpose(1, 2).unflatten(2, (self.side, self.side))
        images: Tensor = (self.decoder(placed) + 1) / 2
        return images

    def _codes(self) -> Codebook:
        if self.codebook is None:
            raise ValueError("a VAE has no codes: choose --encoding vq")
        return self.codebook


class Patches(nn.Linear):
    """A linear map of every patch of stride x stride pixels: (n, in, N, N) to (n, out, N / stride, N / stride)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__(channels * stride**2, out)
        self.stride = stride

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(self.patches(images)).permute(0, 3, 1, 2)

    def patches(self, images: Tensor) -> Tensor:
        """(n, N / stride, N / stride, in * stride^2), the pixels of each patch as those of a channel after the other."""
        n, channels, N, _ = images.shape
        side, s = N // self.stride, self.stride
        return images.reshape(n, channels, side, s, side, s).permute(0, 2, 4, 1, 3, 5).flatten(3)


class Pixels(nn.Linear):
    """A linear map to the pixels of every patch: (n, in, side, side) to (n, out, side * stride, side * stride)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__(channels, out * stride**2)
        self.stride = stride

    def forward(self, vectors: Tensor) -> Tensor:
        n, _, side, _ = vectors.shape
        s = self.stride
        patches = super().forward(vectors.permute(0, 2, 3, 1)).view(n, side, side, -1, s, s)
        return patches.permute(0, 3, 1, 4, 2, 5).reshape(n, -1, side * s, side * s)


def shrinking(channels: int, out: int, stride: int, width: int) -> nn.Sequential:
    """Convolutions that make a picture smaller by `stride`, then one of a single pixel."""
    layers: list[nn.Module] = []
    for factor in STAGES[stride]:
        layers += [nn.Conv2d(channels, width, factor + 2, stride=factor, padding=1), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, out, 1))


def growing(channels: int, out: int, stride: int, width: int) -> nn.Sequential:
    """The way back: each stage repeats pixels and smooths them with a convolution."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
    for factor in reversed(STAGES[stride]):
        layers += [nn.Upsample(scale_factor=factor), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, out, 3, padding=1))
