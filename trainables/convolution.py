"""The transposed convolutions of a decoder, made fast: all layers of one on a CPU, and one layer of many runs at once.

Kernels are k = stride + 2, the padding is 1. Shapes: M runs, n images of H x W pixels and C channels, K channels after the
layer. Images lie channels last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten

FEW_PIXELS = 1024
"""Up to so many pixels in a batch, products of copied windows give a layer's gradients in bfloat16 faster than the library's
convolution: by 14 % of a step at N = 8, 3 % at N = 16."""


class Decode(torch.autograd.Function):
    """All layers of a CNN decoder on a CPU: codes (n, C), then weight and bias of every layer, to images (n, 1, H, W).

    The library convolves between many channels at the rate of its matrix products, if images lie channels last from the first
    layer to the last, both ways, which automatic differentiation does not keep to. It is slow at one channel, at bfloat16 sums
    and at a first layer from one pixel: here they are products. Under autocast all is bfloat16 but the sum of the last layer.

    Not for forward-mode differentiation or `torch.func`: these take `CNN.plain`.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx: Any, codes: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        C, K, size, _ = weights[0].shape
        x = torch.addmm(biases[0].repeat(size * size), codes, weights[0].permute(0, 2, 3, 1).reshape(C, -1)).relu_()
        x = x.view(-1, size, size, K).permute(0, 3, 1, 2)
        inputs = [x]
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            stride = weight.shape[-1] - 2
            x = aten.convolution(x, weight, bias, [stride, stride], [1, 1], [1, 1], True, [0, 0], 1).relu_()
            inputs.append(x)
        ctx.save_for_backward(codes, *inputs, *weights)
        return _one_channel(x, weights[-1]).add_(biases[-1])

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        codes, *saved = ctx.saved_tensors
        layers = len(saved) // 2
        inputs, weights = saved[:layers], saved[layers:]
        of_parameters: list[Tensor] = []
        grad = grad.to(codes.dtype)
        for x, weight in zip(reversed(inputs), reversed(weights), strict=False):
            grad_bias = grad.sum((0, 2, 3))
            few = x.dtype == torch.bfloat16 and weight.shape[1] > 1 and x[:, 0].numel() <= FEW_PIXELS
            grad, grad_weight = (_gradients_by_products if few else _gradients)(grad, x, weight)
            aten.threshold_backward.grad_input(grad, x, 0, grad_input=grad)  # of the ReLU
            of_parameters = [grad_weight, grad_bias, *of_parameters]
        C, K, size, _ = weights[0].shape
        grad_bias = grad.sum((0, 2, 3))
        grad = grad.permute(0, 2, 3, 1).reshape(len(codes), -1)
        grad_weight = (codes.t() @ grad).view(C, size, size, K).permute(0, 3, 1, 2)
        grad_codes = grad @ weights[0].permute(0, 2, 3, 1).reshape(C, -1).t() if ctx.needs_input_grad[0] else None
        return grad_codes, grad_weight, grad_bias, *of_parameters


def _one_channel(x: Tensor, weight: Tensor) -> Tensor:
    """`x` (n, C, H, W) through a layer (C, 1, 3, 3) without bias: one product for the nine taps of all pixels, as nine images,
    which are added, shifted, in float32 or better."""
    n, C, H, W = x.shape
    taps = weight.view(C, 9).t().contiguous() @ x.permute(0, 2, 3, 1).reshape(-1, C).t()
    above, rows, below = taps.to(torch.promote_types(taps.dtype, torch.float32)).view(3, 3, n, H, W)
    rows[:, :, 1:].add_(below[:, :, :-1])
    rows[:, :, :-1].add_(above[:, :, 1:])
    left, images, right = rows
    images[:, :, 1:].add_(right[:, :, :-1])
    images[:, :, :-1].add_(left[:, :, 1:])
    return images[:, None]


def _gradients(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of a layer's input `x` (n, C, H, W) and `weight` (C, K, k, k), from that of its output (n, K, stride * H, stride * W)."""
    stride = weight.shape[-1] - 2
    grad_x, grad_weight, _ = aten.convolution_backward(
        grad, x, weight, None, [stride, stride], [1, 1], [1, 1], True, [0, 0], 1, [True, True, False]
    )
    return grad_x, grad_weight


def _gradients_by_products(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """As `_gradients`, from one copy of the k x k window of the output that every pixel of the input reaches."""
    (n, C, H, W), (_, K, k, _) = x.shape, weight.shape
    bordered = functional.pad(grad.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    windows = bordered.unfold(1, k, k - 2).unfold(2, k, k - 2).permute(0, 1, 2, 4, 5, 3).reshape(n * H * W, k * k * K)
    grad_x = windows @ weight.permute(0, 2, 3, 1).reshape(C, -1).t()
    grad_weight = x.permute(0, 2, 3, 1).reshape(-1, C).t() @ windows
    return grad_x.view(n, H, W, C).permute(0, 3, 1, 2), grad_weight.view(C, k, k, K).permute(0, 3, 1, 2)


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
