"""The low-rank embedding decoder: every token of a factor is rendered as an N x N image of few modes, two such images make a
picture (paper section 4.1), and the two penalties that make the decoder compose."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

FACTORS = 2
INITS = ("published", "positive")
POSITIVE_LENGTH = 0.6
"""Length of the vectors that `positive` starts with. The shorter, the faster AdamW turns them, and evens them out where no
image tells what they are; if too short for the learning rate, some lose their direction altogether."""
LEAST_SHARE = 1e-8
"""Shares under this count as this in the entropy, as published."""
BLOCK = 16
"""Values of a row, pixels times channels, that one matrix product of a convolution yields at once."""


def entropy_terms(strengths: Tensor) -> Tensor:
    """Entropy of the modes of every token, in nats (paper section 4.1: entropy regularization).

    Args:
        strengths: (..., R), the lambda_r of a token's modes.

    Returns:
        (...): -sum_r p_r log p_r with p_r = lambda_r^2 / sum_s lambda_s^2, no p_r below LEAST_SHARE. 0 for a single mode, log R
        for R equal ones. The penalty is the sum of all terms, over factors and tokens.
    """
    power = strengths.square()
    share = (power / power.sum(-1, keepdim=True)).clamp_min(LEAST_SHARE)
    return -(share * share.log()).sum(-1)


def variance_terms(rows: Tensor, columns: Tensor) -> Tensor:
    """How uneven the vectors of every mode are along the image (paper section 4.1: variance regularization).

    Args:
        rows, columns: (..., N), u_r and v_r as they are stored, not normalised.

    Returns:
        (...): unbiased variance of u_r over its N entries plus that of v_r. The penalty is the sum of all terms, over factors,
        tokens and modes.
    """
    return _variance(rows) + _variance(columns)


def _variance(x: Tensor) -> Tensor:
    """`x.var(-1)`, in a fraction of its time on a CPU. The mean needs no gradient: distances from it sum to zero."""
    centred = x - x.detach().mean(-1, keepdim=True)
    return torch.linalg.vecdot(centred, centred) / (x.shape[-1] - 1)


def _inverse_length(x: Tensor) -> Tensor:
    return (torch.linalg.vecdot(x, x)[..., None] + 1e-24).rsqrt()


class _Render(torch.autograd.Function):
    """sum_r lambda_r u_r v_r^T of unit vectors, with the gradient written out: automatic differentiation of the normalisation
    takes four times as long."""

    @staticmethod
    def forward(ctx: Any, strengths: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        row_scale, column_scale = _inverse_length(rows), _inverse_length(columns)
        u, v = rows * row_scale, columns * column_scale
        scaled = u * strengths[..., None]
        ctx.save_for_backward(strengths, u, v, scaled, row_scale, column_scale)
        return scaled.transpose(-1, -2) @ v

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        strengths, u, v, scaled, row_scale, column_scale = ctx.saved_tensors
        grad_u = v @ grad.transpose(-1, -2)
        grad_v = scaled @ grad
        grad_strengths = torch.linalg.vecdot(grad_u, u)
        # tangent parts: u and v move on the unit sphere only
        grad_u.addcmul_(u, grad_strengths[..., None], value=-1).mul_(row_scale * strengths[..., None])
        grad_v.addcmul_(v, (grad_strengths * strengths)[..., None], value=-1).mul_(column_scale)
        return grad_strengths, grad_u, grad_v


class LowRank(nn.Module):
    """From token pairs (n, 2) to images (n, 1, N, N).

    Token t of factor f stands for the matrix M = sum_r lambda_r u_r v_r^T (N, N) of `rank` modes, u_r and v_r scaled to unit
    length in every forward pass. The matrices of the two tokens are the two channels of an image, on which follow `depth`
    hidden layers of `channels` channels, each PReLU and a transposed convolution of kernel 3, and a last one to one channel.
    `init` is `published`: strengths and directions are drawn from normal distributions; or `positive`: their absolute values,
    the vectors POSITIVE_LENGTH long. A vector that the variance penalty evens out is left with its mean. Where that is near
    zero by chance, as it is for some tokens of the published start, what remains is noise, and every image of the token that
    was not trained on is wrong.

    At N = 32 with full rank, two channels and two hidden layers it has 133,218 parameters (paper section 4.1, appendix D).

    Choosing a token's matrix is what a one-hot code times the stacked matrices gives.

    Attributes:
        strengths: (2, N, R), lambda of factor x then y, by token and mode; drawn with standard deviation 1 / sqrt(N).
        rows, columns: (2, N, R, N), u over image rows and v over image columns.
    """

    def __init__(
        self,
        N: int,
        rank: int,
        channels: int = 2,
        depth: int = 2,
        entropy_weight: float = 0.0,
        variance_weight: float = 0.0,
        init: str = "published",
    ) -> None:
        super().__init__()
        self.N, self.entropy_weight, self.variance_weight = N, entropy_weight, variance_weight
        self.strengths = nn.Parameter(torch.randn(FACTORS, N, rank) / math.sqrt(N))
        self.rows = nn.Parameter(nn.functional.normalize(torch.randn(FACTORS, N, rank, N), dim=-1))
        self.columns = nn.Parameter(nn.functional.normalize(torch.randn(FACTORS, N, rank, N), dim=-1))
        if init == "positive":
            with torch.no_grad():
                self.strengths.abs_()
                for vectors in (self.rows, self.columns):
                    vectors.abs_().mul_(POSITIVE_LENGTH)
        sizes = [FACTORS, *[channels] * depth, 1]
        self.slopes = nn.ModuleList(nn.PReLU() for _ in sizes[1:])
        self.layers = nn.ModuleList(nn.ConvTranspose2d(a, b, 3, 1, 1) for a, b in pairwise(sizes))

    def embeddings(self) -> Tensor:
        """(2, N, N, N): the matrix of every token, by factor, token, image row and image column."""
        images: Tensor = _Render.apply(self.strengths, self.rows, self.columns)
        return images

    def penalty(self) -> Tensor:
        """What is added to the mean squared error: weight times sum, of entropy and of variance."""
        total = self.strengths.new_zeros(())
        if self.entropy_weight:
            total = total + self.entropy_weight * entropy_terms(self.strengths).sum()
        if self.variance_weight:
            total = total + self.variance_weight * variance_terms(self.rows, self.columns).sum()
        return total

    def forward(self, tokens: Tensor) -> Tensor:
        N = self.N
        chosen = (tokens + tokens.new_tensor([0, N])).flatten()
        images = self.embeddings().view(FACTORS * N, N * N).index_select(0, chosen)
        images = images.view(-1, FACTORS, N, N)
        if images.device.type != "cpu" or images.dtype != torch.float32:
            for slope, layer in zip(self.slopes, self.layers, strict=True):
                images = layer(slope(images))
            return images
        images = images.permute(0, 2, 3, 1).contiguous()
        for slope, layer in zip(self.slopes, self.layers, strict=True):
            images = _Conv3x3.apply(_PReLU.apply(images, slope.weight), layer.weight, layer.bias)
        return images.permute(0, 3, 1, 2)


class _PReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(x, slope)
        return nn.functional.leaky_relu(x, slope.item())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, slope = ctx.saved_tensors
        below = torch.dot(grad.reshape(-1), x.clamp_max(0).reshape(-1)).view(1)
        return torch.ops.aten.leaky_relu_backward(grad, x, slope.item(), False), below


@lru_cache
def _band(width: int, inner: int, outer: int) -> Tensor:
    """Where the 9 * inner * outer kernel weights stand in the band matrices (3, (width + 2) * inner, width * outer): index into
    the flattened (inner, outer, 3, 3) weights, or inner * outer * 9 where there is none."""
    where = torch.full((3, width + 2, inner, width, outer), inner * outer * 9)
    kernel = torch.arange(inner * outer * 9).view(inner, outer, 3, 3).flip(2, 3)
    for column in range(width):
        where[:, column : column + 3, :, column] = kernel.permute(2, 3, 0, 1)
    return where.view(3, (width + 2) * inner, width * outer)


class _Conv3x3(torch.autograd.Function):
    """A transposed convolution of kernel 3, stride 1, padding 1, on images (n, N, N, C) in float32 on a CPU.

    The library's own is slow for two channels, as it spreads channels over vector lanes. Here a matrix product yields BLOCK
    pixels of a row at once: the kernel rows become band matrices, and the padded images are read in place, as overlapping
    windows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        padded = _pad(x)
        ctx.save_for_backward(padded, weight)
        return _correlate(padded, weight, bias, x.shape[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        padded, weight = ctx.saved_tensors
        inner, outer = weight.shape[:2]
        n, N = grad.shape[:2]
        width = _width(N, outer)
        padded_grad = _pad(grad)
        grad_x = _correlate(padded_grad, weight.transpose(0, 1).flip(2, 3), None, N)
        rows = n * (N + 2)
        stride = padded_grad.stride(0)
        g_blocks = padded_grad.as_strided((N // width, rows, width * outer), (width * outer, stride, 1), stride + outer)
        flat = grad.new_zeros(inner * outer * 9 + 1)
        band = _band(width, inner, outer)
        for row, window in enumerate(_windows(padded, N, inner, width)):
            product = torch.bmm(window.transpose(1, 2), g_blocks).sum(0)
            flat.index_add_(0, band[row].view(-1), product.view(-1))
        return grad_x, flat[:-1].view_as(weight), grad.sum((0, 1, 2))


def _width(N: int, channels: int) -> int:
    return next(w for w in range(min(max(1, BLOCK // channels), N), 0, -1) if N % w == 0)


def _pad(x: Tensor) -> Tensor:
    """(n, N, N, C) to (n * (N + 2) + 2, (N + 2) * C): a border of zeros, and two rows more to read past the end."""
    n, N, _, C = x.shape
    padded = x.new_zeros(n * (N + 2) + 2, (N + 2) * C)
    padded[:-2].view(n, N + 2, N + 2, C)[:, 1:-1, 1:-1] = x
    return padded


def _windows(padded: Tensor, N: int, C: int, width: int) -> list[Tensor]:
    rows = len(padded) - 2
    shape, stride = (N // width, rows, (width + 2) * C), (width * C, padded.stride(0), 1)
    return [padded.as_strided(shape, stride, i * padded.stride(0)) for i in range(3)]


def _correlate(padded: Tensor, weight: Tensor, bias: Tensor | None, N: int) -> Tensor:
    inner, outer = weight.shape[:2]
    width = _width(N, outer)
    blocks = N // width
    flat = torch.cat([weight.reshape(-1), weight.new_zeros(1)])
    bands = flat[_band(width, inner, outer)]
    first, second, third = _windows(padded, N, inner, width)
    bands = bands[:, None].expand(-1, blocks, -1, -1)
    out = torch.bmm(first, bands[0]) if bias is None else torch.baddbmm(bias.repeat(width), first, bands[0])
    out.baddbmm_(second, bands[1]).baddbmm_(third, bands[2])
    n = (len(padded) - 2) // (N + 2)
    out = out.view(blocks, n, N + 2, width, outer)[:, :, :N]
    return out.permute(1, 2, 0, 3, 4).reshape(n, N, N, outer)
