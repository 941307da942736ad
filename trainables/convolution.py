"""Transposed convolutions of kernel stride + 2, padding 1, as matrix products: for stacks of runs that train as one.

Shapes: M runs, n images of H x W pixels and C channels, K channels after the layer, k = stride + 2. Images lie channels last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def packed_layer(images: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """`ConvTranspose2d(C, K, stride + 2, stride, 1)` of M runs: from (M, n, H, W, C) to (M, n, stride * H, stride * W, K).

    Every pixel times all k * k taps of the kernel is one batched product; what overlaps is then added.

    Args:
        images: contiguous.
        weight: (M, C, K, k, k).
        bias: (M, K).
    """
    M, n, H, W, C = images.shape
    k, K = stride + 2, weight.shape[2]
    taps = torch.bmm(images.view(M, n * H * W, C), weight.permute(0, 1, 3, 4, 2).reshape(M, C, k * k * K))
    rows = _OverlapAdd.apply(taps.view(M * n, H, W, k, k * K))
    out = _OverlapAdd.apply(rows.view(M * n * stride * H, W, 1, k, K))
    return packed_bias(out.view(M, n * stride * H * stride * W, K), bias).view(M, n, stride * H, stride * W, K)


def packed_bias(x: Tensor, bias: Tensor) -> Tensor:
    """`x` (M, rows, K) plus `bias` (M, K) as a product of rank one. Its gradient is a product too: a CPU is slow at summing
    bfloat16 over rows."""
    return torch.baddbmm(x, x.new_ones(len(x), x.shape[1], 1), bias[:, None])


class _OverlapAdd(torch.autograd.Function):
    """Along one axis of an image, from L pixels with k taps each, (B, L, P, k, R), to (B, L, k - 2, P, R).

    With stride k - 2 and padding 1, a pixel's inner taps fall on its own k - 2 outputs, the first on the last output of the
    pixel before it, and the last on the first output of the pixel after it.
    """

    @staticmethod
    def forward(ctx: Any, taps: Tensor) -> Tensor:
        taps = taps.transpose(2, 3)
        out = taps[:, :, 1:-1].contiguous()
        out[:, 1:, 0] += taps[:, :-1, -1]
        out[:, :-1, -1] += taps[:, 1:, 0]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        B, L, stride, P, R = grad.shape
        taps = grad.new_empty(B, L, P, stride + 2, R)
        by_tap = taps.transpose(2, 3)
        by_tap[:, :, 1:-1] = grad
        by_tap[:, 1:, 0] = grad[:, :-1, -1]
        by_tap[:, 0, 0] = 0
        by_tap[:, :-1, -1] = grad[:, 1:, 0]
        by_tap[:, -1, -1] = 0
        return taps
