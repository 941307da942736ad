"""The low-rank embedding decoder: every token of a factor is rendered as an N x N image of few modes, two such images make a
picture (paper section 4.1), and the two penalties that make the decoder compose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from trainables.convolution import packed_layer

FACTORS = 2
INITS = ("published", "positive")
POSITIVE_LENGTH = 0.4
"""Length of the vectors that `positive` starts with. The shorter, the faster AdamW turns them, and evens them out where no
image tells what they are; if too short for the learning rate, some lose their direction altogether."""
LEAST_SHARE = 1e-8
"""Shares under this count as this in the entropy, as published."""


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


class LowRank(nn.Module):
    """From token pairs (n, 2) to images (n, 1, N, N).

    Token t of factor f stands for the matrix M = sum_r lambda_r u_r v_r^T (N, N) of `rank` modes, u_r and v_r scaled to unit
    length in every forward pass. The matrices of the two tokens are the two channels of an image, on which follow `depth`
    hidden layers of `channels` channels, each PReLU and a transposed convolution of kernel 3, and a last one to one channel.
    `init` is `published`: strengths and directions are drawn from normal distributions; or `positive`: their absolute values,
    the vectors POSITIVE_LENGTH long. A vector that the variance penalty evens out is left with its mean. Where that is near
    zero by chance, as it is for some tokens of the published start, what remains is noise, and every image of the token that
    was not trained on is wrong.

    With `padding`, matrices and all layers are so many pixels larger on every side than the picture, which is cut out of the
    last one. Every layer fills up with zeros what lies beyond its border, so a bump beside the border is drawn by other numbers
    than one inside. From a padding of depth + 1 on none of these zeros reaches the picture.

    At N = 32 with full rank, two channels and two hidden layers it has 133,218 parameters (paper section 4.1, appendix D).

    Choosing a token's matrix is what a one-hot code times the stacked matrices gives.

    Attributes:
        size: S = N + 2 padding, the side of all matrices.
        ema: decay of the average of the parameters that is judged in their place; 0 for none.
        beta2: decay of AdamW's average of squared gradients.
        strengths: (2, N, R), lambda of factor x then y, by token and mode; drawn with standard deviation 1 / sqrt(S).
        rows, columns: (2, N, R, S), u over image rows and v over image columns.
    """

    packed_parts = (nn.ConvTranspose2d, nn.PReLU, nn.ModuleList)
    """The kinds of modules that `packed` knows: with others the network is batched as any other is."""

    def __init__(
        self,
        N: int,
        rank: int,
        channels: int = 2,
        depth: int = 2,
        entropy_weight: float = 0.0,
        variance_weight: float = 0.0,
        init: str = "published",
        padding: int = 0,
        ema: float = 0.0,
        beta2: float = 0.999,
    ) -> None:
        super().__init__()
        self.N, self.entropy_weight, self.variance_weight = N, entropy_weight, variance_weight
        self.padding, self.size = padding, N + 2 * padding
        self.ema, self.beta2 = ema, beta2
        self.strengths = nn.Parameter(torch.randn(FACTORS, N, rank) / math.sqrt(self.size))
        self.rows = nn.Parameter(nn.functional.normalize(torch.randn(FACTORS, N, rank, self.size), dim=-1))
        self.columns = nn.Parameter(nn.functional.normalize(torch.randn(FACTORS, N, rank, self.size), dim=-1))
        if init == "positive":
            with torch.no_grad():
                self.strengths.abs_()
                for vectors in (self.rows, self.columns):
                    vectors.abs_().mul_(POSITIVE_LENGTH)
        weights = torch.tensor([entropy_weight, variance_weight])
        self.register_buffer("penalty_weights", weights, persistent=False)  # of its own for every run of a pack
        sizes = [FACTORS, *[channels] * depth, 1]
        self.slopes = nn.ModuleList(nn.PReLU() for _ in sizes[1:])
        self.layers = nn.ModuleList(nn.ConvTranspose2d(a, b, 3, 1, 1) for a, b in pairwise(sizes))

    def embeddings(self) -> Tensor:
        """(2, N, S, S): the matrix of every token, by factor, token, image row and image column."""
        matrices: Tensor = _Render.apply(self.strengths, self.rows, self.columns)
        return matrices

    def penalty(self) -> Tensor:
        """What is added to the mean squared error: weight times sum of `entropy_terms`, and of `variance_terms`."""
        total: Tensor = _Penalty.apply(self.strengths, self.rows, self.columns, self.entropy_weight, self.variance_weight)
        return total

    def forward(self, tokens: Tensor) -> Tensor:
        N, S, matrices = self.N, self.size, self.embeddings()
        if matrices.device.type == "cpu" and matrices.dtype == torch.float32:
            layers = zip(self.slopes, self.layers, strict=True)
            drawn: Tensor = _Head.apply(matrices, tokens, *(p for s, c in layers for p in (s.weight, c.weight, c.bias)))
            return self.picture(drawn)
        chosen = (tokens + tokens.new_tensor([0, N])).flatten()
        images = matrices.view(FACTORS * N, S * S).index_select(0, chosen).view(-1, FACTORS, S, S)
        for slope, layer in zip(self.slopes, self.layers, strict=True):
            images = layer(slope(images))
        return self.picture(images)

    def picture(self, images: Tensor) -> Tensor:
        """Images (..., S, S) without their padding: (..., N, N)."""
        inside = slice(self.padding, self.padding + self.N)
        return images[..., inside, inside] if self.padding else images

    def packed(self, state: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
        """The images (M, n, 1, N, N) of M decoders of this shape at once, from token pairs (M, n, 2).

        Args:
            state: every parameter of M decoders, stacked along a new first axis, by its name in `named_parameters`.
        """
        (M, n, _), N, S = tokens.shape, self.N, self.size
        matrices: Tensor = _Render.apply(*(state[name] for name in ("strengths", "rows", "columns")))
        run = torch.arange(M, device=tokens.device)[:, None, None]
        first = N * (FACTORS * run + torch.arange(FACTORS, device=tokens.device))
        images = matrices.view(M * FACTORS * N, S * S).index_select(0, (tokens + first).flatten())
        images = images.view(M, n, FACTORS, S, S).movedim(2, -1).contiguous()
        for i in range(len(self.layers)):
            images = torch.where(images > 0, images, images * state[f"slopes.{i}.weight"].view(M, 1, 1, 1, 1))
            images = packed_layer(images, state[f"layers.{i}.weight"], state[f"layers.{i}.bias"], 1)
        return self.picture(images.movedim(-1, 2))

    def packed_penalty(self, state: Mapping[str, Tensor]) -> Tensor:
        """The penalties (M,) of M decoders at once, each with weights of its own; `state` as in `packed`, and buffers too."""
        entropies = entropy_terms(state["strengths"]).flatten(1).sum(1)
        variances = variance_terms(state["rows"], state["columns"]).flatten(1).sum(1)
        return torch.linalg.vecdot(state["penalty_weights"], torch.stack([entropies, variances], dim=1))


# What follows computes the same as the plain formulas and layers, with gradients written out, for CPUs: networks this small
# spend most of a step in the bookkeeping of automatic differentiation, and the library's convolution spreads channels over
# vector lanes, of which two or four fill little.


class _Render(torch.autograd.Function):
    """sum_r lambda_r u_r v_r^T of unit vectors. With lengths |u|, |v| of the stored vectors it is sum_r s_r u_r v_r^T,
    s_r = lambda_r / (|u_r| |v_r|)."""

    @staticmethod
    def forward(ctx: Any, strengths: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        inverse_u, inverse_v = _inverse_length(rows), _inverse_length(columns)
        scale = strengths[..., None] * inverse_u * inverse_v
        scaled = rows * scale
        ctx.save_for_backward(rows, columns, inverse_u, inverse_v, scale, scaled)
        return scaled.transpose(-1, -2) @ columns

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns, inverse_u, inverse_v, scale, scaled = ctx.saved_tensors
        grad_u = columns @ grad.transpose(-1, -2)
        grad_v = scaled @ grad
        along = torch.linalg.vecdot(grad_u, rows)[..., None]  # the gradient of s_r
        grad_strengths = (along * inverse_u * inverse_v).squeeze(-1)
        # minus what would only change a length
        pull = along * scale
        grad_u.mul_(scale).addcmul_(rows, pull * inverse_u.square(), value=-1)
        grad_v.addcmul_(columns, pull * inverse_v.square(), value=-1)
        return grad_strengths, grad_u, grad_v


def _inverse_length(x: Tensor) -> Tensor:
    return (torch.linalg.vecdot(x, x)[..., None] + 1e-24).rsqrt()


class _Penalty(torch.autograd.Function):
    """The gradients are made with the value; `backward` only scales them."""

    @staticmethod
    def forward(
        ctx: Any, strengths: Tensor, rows: Tensor, columns: Tensor, entropy_weight: float, variance_weight: float
    ) -> Tensor:
        total = strengths.new_zeros(())
        gradients: list[Tensor | None] = [None, None, None]
        if entropy_weight:
            power = strengths.square()
            whole = power.sum(-1, keepdim=True)
            share = power / whole
            log = share.clamp_min(LEAST_SHARE).log_()
            total = total - entropy_weight * torch.dot(share.clamp_min(LEAST_SHARE).view(-1), log.view(-1))
            slope = (log + 1).mul_(share >= LEAST_SHARE)  # of p log p; a share at the bound has none
            slope -= torch.linalg.vecdot(share, slope)[..., None]  # shares sum to 1
            gradients[0] = slope.mul_(strengths).div_(whole).mul_(-2 * entropy_weight)
        if variance_weight:
            scale = variance_weight / (rows.shape[-1] - 1)
            for i, vectors in ((1, rows), (2, columns)):
                centred = vectors - vectors.mean(-1, keepdim=True)
                total = total + scale * torch.dot(centred.view(-1), centred.view(-1))
                gradients[i] = centred.mul_(2 * scale)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if gradient is None else gradient * grad for gradient in ctx.saved_tensors), None, None


class _Head(torch.autograd.Function):
    """The two matrices of every token pair through all layers, PReLU then transposed convolution. N is the side of the matrices
    here.

    Images lie as (N rows, C channels, N columns, n images), so that the n images fill the lanes and three neighbouring rows
    with all their channels are one matrix of 3 C rows: a convolution is three products, one for each column of the kernel,
    with windows into the bordered images that are read in place.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, tokens: Tensor, *parameters: Tensor) -> Tensor:
        n, (_, tokens_each, N, _) = len(tokens), matrices.shape
        slopes, weights, biases = [p.item() for p in parameters[::3]], parameters[1::3], parameters[2::3]
        codes = matrices.new_zeros(FACTORS, tokens_each, n).scatter_(1, tokens.t()[:, None], 1)
        x = (matrices.view(FACTORS, tokens_each, N * N).transpose(1, 2) @ codes).view(FACTORS, N, N, n).transpose(0, 1)
        inputs = []
        for slope, weight, bias in zip(slopes, weights, biases, strict=True):
            bordered = _bordered(x, len(weight))
            torch.ops.aten.leaky_relu.out(x, slope, out=_inside(bordered))
            inputs += [x, bordered]
            x = _correlate(bordered, weight.flip(2, 3).transpose(0, 1), bias)
        ctx.slopes = slopes
        ctx.save_for_backward(codes, *inputs, *weights)
        return x.view(N * N, n).t().contiguous().view(n, 1, N, N)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        codes, *saved = ctx.saved_tensors
        layers = len(ctx.slopes)
        n, _, N, _ = grad.shape
        out = grad.view(n, N * N).t().contiguous().view(N, 1, N, n)
        bordered_grad = _bordered(out, 1)
        grad = _inside(bordered_grad).copy_(out)
        of_parameters: list[Tensor] = []
        for layer in reversed(range(layers)):
            x, bordered, weight, slope = saved[2 * layer], saved[2 * layer + 1], saved[2 * layers + layer], ctx.slopes[layer]
            inner, outer = weight.shape[:2]
            products = grad.new_empty(3, N, outer, 3 * inner)
            for window, product in zip(_windows(bordered), products, strict=True):
                torch.bmm(grad.flatten(2), window.transpose(1, 2), out=product)
            grad_weight = products.sum(1).view(3, outer, 3, inner).permute(3, 1, 2, 0).flip(2, 3)
            grad_bias = grad.sum((0, 2, 3))
            through = _correlate(bordered_grad, weight)
            grad_slope = torch.dot(through.view(-1), x.clamp_max(0).reshape(-1)).view(1)
            bordered_grad = _bordered(x, inner)
            grad = _inside(bordered_grad)
            torch.ops.aten.leaky_relu_backward.grad_input(through, x, slope, False, grad_input=grad)
            of_parameters = [grad_slope, grad_weight, grad_bias, *of_parameters]
        grad_images = grad.transpose(0, 1).reshape(FACTORS, N * N, n)
        return (codes @ grad_images.transpose(1, 2)).view(FACTORS, -1, N, N), None, *of_parameters


def _bordered(x: Tensor, channels: int) -> Tensor:
    """Zeros for images like `x` (N, C, N, n), with a border of one pixel: (N + 2, channels, N + 2, n)."""
    N, n = x.shape[0], x.shape[3]
    return x.new_zeros(N + 2, channels, N + 2, n)


def _inside(bordered: Tensor) -> Tensor:
    N = len(bordered) - 2
    return bordered.narrow(0, 1, N).narrow(2, 1, N)


def _windows(bordered: Tensor) -> tuple[Tensor, ...]:
    """Three views (N, 3 C, N * n), the image moved right, in place and left: every row with the ones before and after it."""
    rows, channels, columns, n = bordered.shape
    N = rows - 2
    shape, stride = (3, N, 3 * channels, N * n), (n, channels * columns * n, columns * n, 1)
    return bordered.as_strided(shape, stride).unbind()


def _correlate(bordered: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    """Correlate images (N + 2, from, N + 2, n) with a kernel (to, from, 3, 3), add a bias (to): (N, to, N, n)."""
    N, n, to = len(bordered) - 2, bordered.shape[3], len(kernel)
    taps = kernel.permute(3, 0, 2, 1).contiguous().view(3, 1, to, -1).expand(-1, N, -1, -1).unbind()
    first, second, third = _windows(bordered)
    out = torch.bmm(taps[0], first) if bias is None else torch.baddbmm(bias[:, None], taps[0], first)
    return out.baddbmm_(taps[1], second).baddbmm_(taps[2], third).view(N, to, N, n)
