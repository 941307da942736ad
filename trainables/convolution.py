"""The transposed convolutions of a decoder, made fast: all layers of one on a CPU, and one layer of many runs at once.

Kernels are k = stride + 2, the padding is 1. Shapes: M runs, n images of H x W pixels and C channels, K channels after the
layer. Images lie channels last.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
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


BIAS_COLUMNS = 8
"""Columns of a product that hold the bias, in the first of them: so many keep rows of bfloat16 on whole 16 bytes."""


def packed_doubling(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`ConvTranspose2d(C, K, 4, 2, 1)` and ReLU of M runs: from (M, n, H, W, C) to (M, n, 2 * H, 2 * W, K).

    Args:
        images: contiguous.
        weight: (M, C, K, 4, 4).
        bias: (M, K).
    """
    out: Tensor = _Doubling.apply(*_cast(images, weight, bias))
    return out


def packed_one_channel(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`ConvTranspose2d(C, 1, 3, 1, 1)` of M runs, summed in float32 or better: from (M, n, H, W, C) to (M, n, H, W, 1).

    Args:
        images: contiguous.
        weight: (M, C, 1, 3, 3).
        bias: (M, 1).
    """
    out: Tensor = _OneChannel.apply(*_cast(images, weight))
    return (out + bias[..., None, None])[..., None]


def _cast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """As autocast would have a product take them: it leaves float64 as it is."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind) or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(t.to(torch.get_autocast_dtype(kind)) for t in tensors)


class _Doubling(torch.autograd.Function):
    """A layer that doubles the size, as one batched product.

    A window of 2 x 2 neighbouring pixels, of which those outside the image are zero, decides about the 2 x 2 pixels of the
    result that lie between its centres, and about no others: those are the window's 4 * C numbers times a matrix of the
    kernel's taps. So each pixel of the result is written once, and nothing overlaps. A column of ones is for the bias.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        M, n, H, W, C = images.shape
        K = weight.shape[2]
        windows = images.new_empty(M * n, H + 1, W + 1, 4 * C + BIAS_COLUMNS)
        windows[..., 4 * C :] = 1
        within = _wide(windows[..., : 4 * C].unflatten(-1, (2, 2, C)))
        for d, rows, no_row in ((0, slice(1, None), 0), (1, slice(0, -1), -1)):
            for e, columns, no_column in ((0, slice(1, None), 0), (1, slice(0, -1), -1)):
                within[:, rows, columns, d, e] = _wide(images.flatten(0, 1))
                within[:, no_row, :, d, e] = 0
                within[:, :, no_column, d, e] = 0
        matrix = weight.new_zeros(M, 4 * C + BIAS_COLUMNS, 2, 2, K)
        taps = weight.unflatten(-1, (2, 2)).unflatten(3, (2, 2))  # M, C, K, row of the window from below, p, and so in columns
        matrix[:, : 4 * C].unflatten(1, (2, 2, C)).copy_(taps.flip(3, 5).permute(0, 3, 5, 1, 4, 6, 2))
        matrix[:, 4 * C] = bias[:, None, None]
        matrix, windows = matrix.flatten(2), windows.view(M, -1, 4 * C + BIAS_COLUMNS)
        product = torch.bmm(windows, matrix).view(M * n, H + 1, W + 1, 2, 2, K)
        out = images.new_empty(M, n, 2 * H, 2 * W, K)
        pixels = out.flatten(0, 1)
        for between, own in _places(H, W):
            torch.clamp(product[between], min=0, out=pixels[own])
        ctx.save_for_backward(windows, matrix, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        windows, matrix, out = ctx.saved_tensors
        M, n, doubled, wide, K = out.shape
        H, W, C = doubled // 2, wide // 2, (matrix.shape[1] - BIAS_COLUMNS) // 4
        product = grad.new_empty(M * n, H + 1, W + 1, 2, 2, K)
        for edge in (product[:, 0, :, 0], product[:, -1, :, 1], product[:, :, 0, :, 0], product[:, :, -1, :, 1]):
            edge.zero_()
        of_pixels, pixels = grad.flatten(0, 1), out.flatten(0, 1)
        for between, own in _places(H, W):
            aten.threshold_backward.grad_input(of_pixels[own], pixels[own], 0, grad_input=product[between])  # of the ReLU
        product = product.view(M, -1, 4 * K)
        of_matrix = torch.bmm(windows.transpose(1, 2), product).view(M, -1, 2, 2, K)
        taps = of_matrix[:, : 4 * C].unflatten(1, (2, 2, C)).permute(0, 3, 6, 1, 4, 2, 5).flip(3, 5)
        of_windows = torch.bmm(product, matrix[:, : 4 * C].transpose(1, 2)).view(M * n, H + 1, W + 1, 2, 2, C)
        row, column = of_windows.stride(1), of_windows.stride(2)  # a pixel is in four windows
        of_images = of_windows.as_strided(
            (M, n, H, W, 2, 2, C),
            (n * (H + 1) * row, (H + 1) * row, row, column, row - 2 * C, column - C, 1),
            3 * C,
        ).sum((4, 5))
        return of_images, taps.reshape(M, C, K, 4, 4), of_matrix[:, 4 * C].sum((1, 2))


def _places(H: int, W: int) -> list[tuple[tuple[slice | int, ...], tuple[slice, ...]]]:
    """Where the four kinds of pixels are in a product (B, H + 1, W + 1, 2, 2, K), and in the images (B, 2 * H, 2 * W, K)."""
    every = slice(None)
    return [
        ((every, slice(1 - p, H + 1 - p), slice(1 - q, W + 1 - q), p, q), (every, slice(1 - p, None, 2), slice(1 - q, None, 2)))
        for p in (0, 1)
        for q in (0, 1)
    ]


def _wide(t: Tensor) -> Tensor:
    """The same memory as fewer and longer numbers, if it can be read so: they are copied faster."""
    wide = 8 // t.element_size()
    lies_so = all(number % wide == 0 for number in (t.shape[-1], t.storage_offset(), *t.stride()[:-1]))
    return t.view(torch.int64) if t.stride(-1) == 1 and lies_so else t


TAPS, ROWS = 9, 16
"""Taps of a kernel of 3 x 3, and rows of a product that has them: so many keep columns of bfloat16 on whole 16 bytes."""


class _OneChannel(torch.autograd.Function):
    """A layer to one channel: a product for the nine taps of all pixels, as nine images, which are added, shifted."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor) -> Tensor:
        M, n, H, W, C = images.shape
        matrix = weight.new_zeros(M, ROWS, C)
        matrix[:, :TAPS] = weight.reshape(M, C, TAPS).transpose(1, 2)
        ctx.save_for_backward(images, matrix)
        taps = torch.bmm(matrix, images.view(M, -1, C).transpose(1, 2))[:, :TAPS]
        taps = functional.pad(taps.unflatten(2, (n, H, W)), (1, 1, 1, 1))  # tap (a, b) falls a - 1 lower, b - 1 to the right
        of_run, tap, image, row, _ = taps.stride()
        return taps.as_strided(
            (M, n, H, W, 3, 3), (of_run, image, row, 1, 3 * tap - row, tap - 1), 2 * row + 2
        ).sum((4, 5), dtype=torch.promote_types(images.dtype, torch.float32))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        images, matrix = ctx.saved_tensors
        M, n, H, W, C = images.shape
        around = functional.pad(grad.to(images.dtype), (1, 1, 1, 1))
        taps = images.new_zeros(M, ROWS, n, H, W)
        taps[:, :TAPS].unflatten(1, (3, 3)).copy_(around.unfold(2, 3, 1).unfold(3, 3, 1).permute(0, 4, 5, 1, 2, 3))
        taps = taps.flatten(2)
        of_images = torch.bmm(taps.transpose(1, 2), matrix)
        of_weight = torch.bmm(taps, images.view(M, -1, C))[:, :TAPS]
        return of_images.view(images.shape), of_weight.transpose(1, 2).reshape(M, C, 1, 3, 3)


def packed_same(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`ConvTranspose2d(C, K, 3, 1, 1)` of M runs by the library's convolution, as groups of one with M * C channels: from
    (M, n, H, W, C) to (M, n, H, W, K). On a GPU.

    Args:
        weight: (M, C, K, 3, 3).
        bias: (M, K).
    """
    M, n, H, W, C = images.shape
    K = weight.shape[2]
    channels = images.permute(1, 2, 3, 0, 4).reshape(n, H, W, M * C).permute(0, 3, 1, 2)
    out = functional.conv_transpose2d(channels, weight.flatten(0, 1), bias.flatten(), 1, 1, groups=M)
    return out.view(n, M, K, H, W).permute(1, 0, 3, 4, 2).contiguous()


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
