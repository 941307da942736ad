"""The trunk of all generators: a transformer with learned positions, whose blocks a condition modulates (adaLN-Zero).

Peebles and Xie 2022 (arXiv 2212.09748), section 3.2: every block scales and shifts what goes into its two parts, and gates what
comes out, by numbers that are linear in the condition and begin as zeros. So an untrained trunk is the identity.
Attention is two matrix products and a softmax, which `torch.func.vmap` can batch over the runs of a pack.

Shapes in comments: n samples of T tokens, W = the width, H heads.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

Module = TypeVar("Module", bound=nn.Module)

LONGEST = 10_000.0
"""Times 2 pi, the period that the waves which tell the time come near to (Vaswani et al. 2017, section 3.5)."""


EMBEDDINGS = ("linear", "silu", "mlp")
"""How `Conditions` embeds the factors."""
DROPOUTS = ("null_sample", "zero_batch")
"""How it leaves factors out."""
PARTS = (1, 1, 3)
"""Numbers that a model is told of each factor."""


class Trunk(nn.Module):
    """From tokens (n, T, W) and a condition (n, W) to tokens (n, T, W)."""

    def __init__(self, tokens: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        return self.layers(tokens, condition)[-1]

    def layers(self, tokens: Tensor, condition: Tensor) -> list[Tensor]:
        """What goes into the first block, and what comes out of each: depth + 1 times (n, T, W)."""
        found = [tokens + self.positions]
        for block in self.blocks:
            found.append(block(found[-1], condition))
        return found


class Block(nn.Module):
    """Attention, then an MLP. What goes into `attention.out` is the outputs of the heads side by side; into `mlp[2]`, the
    activations of the units."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.modulation = zeros(nn.Linear(width, 6 * width))
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.modulation(condition)[:, None].chunk(6, 2)
        x = x + gate * self.attention(modulated(x, shift, scale))
        out: Tensor = x + gate_mlp * self.mlp(modulated(x, shift_mlp, scale_mlp))
        return out


class Attention(nn.Module):
    """Self-attention (n, T, W) to (n, T, W) of H heads of W / H channels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()  # (n, H, T, W / H) each
        weights = (q * q.shape[-1] ** -0.5 @ k.transpose(2, 3)).softmax(3)
        out: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return out


class Last(nn.Module):
    """From the trunk's tokens (n, T, W) to outputs (n, T, out), modulated as well; all zeros before the first step."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.modulation = zeros(nn.Linear(width, 2 * width))
        self.out = zeros(nn.Linear(width, out))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.modulation(condition)[:, None].chunk(2, 2)
        out: Tensor = self.out(modulated(x, shift, scale))
        return out


class Conditions(nn.Module):
    """What blocks are modulated by: from conditions (n, 5), as `shapes.conditions` gives them, to (n, W). With (n, 8) the last
    three numbers say which factors are not told (1) and which are (0), see `partly`.

    It is a sum with a term for each factor, and with what else a model is told. As it is (`linear`), what a factor does to
    shifts and scales does not depend on the other factors. With `silu`, as in DiT, the sum goes through a SiLU, so that it may.
    With `mlp`, size and colour have two layers of their own before that, which can learn one place for each class.
    As in DiT all weights begin small. So no factor begins as louder than another.

    With `dropout` every factor is left out at this chance, in every loss, those of looks too, so that a model learns to do
    without it. It draws pictures with all factors told. What takes the place of its term is a learned vector, which begins as
    zeros (`null_sample`). With `zero_batch` a factor is left out of a whole batch, and what the model is told of it is 0: of
    the shape that is class 0, of the size the middle between its classes, of the colour a grey that no picture has.
    """

    def __init__(self, width: int, embedding: str = "linear", dropout: float = 0.0, mode: str = "null_sample") -> None:
        super().__init__()
        self.dropout, self.mode = dropout, mode
        self.shape = nn.Embedding(2, width)
        self.size, self.colour = (_layers(k, width) if embedding == "mlp" else nn.Linear(k, width) for k in (1, 3))
        self.last = nn.Identity() if embedding == "linear" else nn.SiLU()
        small(self)
        self.nulls = nn.Parameter(torch.zeros(len(PARTS), width)) if dropout and mode == "null_sample" else None

    def forward(self, conditions: Tensor, also: Tensor | float = 0.0) -> Tensor:
        """`also` (n, W) is added to the terms of the factors."""
        shape, size, colour, *left_out = conditions.split((*PARTS, *[1] * (conditions.shape[1] - sum(PARTS))), 1)
        terms = [self.shape(shape[:, 0].long()), self.size(size), self.colour(colour)]
        if self.nulls is not None:
            nulls = zip(left_out, self.nulls, terms, strict=False)
            terms[: len(left_out)] = [torch.where(out > 0, null, term) for out, null, term in nulls]
        condition: Tensor = self.last(terms[0] + terms[1] + terms[2] + also)
        return condition

    def draws(self, conditions: Tensor, generator: Generator) -> tuple[Tensor, ...]:
        """Which factors of a batch are left out (n, 3); nothing without dropout."""
        if not self.dropout:
            return ()
        n = len(conditions) if self.mode == "null_sample" else 1
        left_out = torch.rand(n, len(PARTS), generator=generator, dtype=conditions.dtype) < self.dropout
        return (left_out.expand(len(conditions), -1).contiguous(),)

    def partly(self, conditions: Tensor, *left_out: Tensor) -> Tensor:
        """What the model is told of conditions (n, 5) of which `draws` left some out."""
        if not left_out:
            return conditions
        out = left_out[0].to(conditions.dtype)
        if self.nulls is not None:
            return torch.cat([conditions, out], 1)
        return conditions * (1 - torch.cat([out[:, i : i + 1].expand(-1, k) for i, k in enumerate(PARTS)], 1))


class Time(nn.Module):
    """From times (n,) to (n, W): sines and cosines of periods from 2 pi to nearly 2 pi LONGEST, then two layers."""

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.register_buffer("rates", torch.exp(-math.log(LONGEST) * torch.arange(half) / half), persistent=False)
        self.mlp = small(nn.Sequential(nn.Linear(2 * half, width), nn.SiLU(), nn.Linear(width, width)))

    def forward(self, times: Tensor) -> Tensor:
        angles = times[:, None] * self.rates
        embedded: Tensor = self.mlp(torch.cat([angles.sin(), angles.cos()], 1))
        return embedded


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x (n, T, W), each token brought to mean 0 and variance 1, then scaled by 1 + scale and shifted."""
    return functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def zeros(layer: nn.Linear) -> nn.Linear:
    """The layer with nothing but zeros in it."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def small(module: Module) -> Module:
    """The module with normal weights of standard deviation 0.02, and biases of zero, in all layers."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=0.02)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return module


def _layers(numbers: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(numbers, width), nn.SiLU(), nn.Linear(width, width))
