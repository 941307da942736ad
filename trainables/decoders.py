"""Decoders from a position code to an image: the paper's CNN and MLP (arXiv 2501.18797)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainables.convolution import Decode, packed_bias, packed_doubling, packed_layer, packed_one_channel, packed_same

DECODERS = ("cnn", "mlp")
DOUBLINGS = 2
PUBLISHED_START = 7


class CNN(nn.Module):
    """Transposed convolutions from a code (n, C) to an image (n, 1, N, N).

    The code becomes C channels of one pixel; the first layer spreads it over start x start pixels. Of the `depth` hidden
    layers of `width` channels the first ones double the size (kernel 4, stride 2), the further ones keep it (kernel 3); the
    last layer maps to one channel. ReLU after every layer but the last.

    If N is a multiple of 4 the first kernel is chosen so that two doublings (fewer in a shallower net) end at N exactly:
    N/4, the published net at N = 28. Other N are our choice: they keep the published start of 7 x 7, double while the size is
    under N, and end with a nearest-neighbour resize.
    """

    packed_parts = (nn.ConvTranspose2d, nn.ModuleList)
    """The kinds of modules that `packed` knows: with others the network is batched as any other is."""

    def __init__(self, code_length: int, N: int, depth: int, width: int) -> None:
        super().__init__()
        self.N = N
        doublings = min(depth, DOUBLINGS)
        size = N >> doublings if N % (1 << DOUBLINGS) == 0 else PUBLISHED_START
        self.first = nn.ConvTranspose2d(code_length, width, size)
        hidden: list[nn.ConvTranspose2d] = []
        for _ in range(depth):
            doubles = size < N
            hidden.append(nn.ConvTranspose2d(width, width, 4, 2, 1) if doubles else nn.ConvTranspose2d(width, width, 3, 1, 1))
            size = 2 * size if doubles else size
        self.hidden = nn.ModuleList(hidden)
        self.last = nn.ConvTranspose2d(width, 1, 3, 1, 1)
        self.resize = size != N

    def forward(self, code: Tensor) -> Tensor:
        if code.device.type != "cpu":
            return self.plain(code)
        layers = [self.first, *self.hidden, self.last]
        image: Tensor = Decode.apply(code, *(p for layer in layers for p in (layer.weight, layer.bias)))
        return self._resized(image)

    def plain(self, code: Tensor) -> Tensor:
        """`forward` in the library's own layers and differentiation, to rounding."""
        return self.layers(code)[-1]

    def layers(self, code: Tensor) -> list[Tensor]:
        """Activations of the first layer and of every hidden one, after ReLU, (n, width, size, size) each, then the images
        (n, 1, N, N): depth + 2 in all. Any kind of automatic differentiation goes through it."""
        activations = [self.first(code[:, :, None, None]).relu()]
        for layer in self.hidden:
            activations.append(layer(activations[-1]).relu())
        return [*activations, self._resized(self.last(activations[-1]))]

    def _resized(self, image: Tensor) -> Tensor:
        return functional.interpolate(image, size=(self.N, self.N), mode="nearest") if self.resize else image

    def packed(self, state: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The images (M, n, 1, N, N) of M decoders of this shape at once, from codes (M, n, C).

        Args:
            state: every parameter of M decoders, stacked along a new first axis, by its name in `named_parameters`.
        """
        M, n, code_length = inputs.shape
        width, size = self.first.out_channels, self.first.kernel_size[0]
        weight = state["first.weight"].permute(0, 1, 3, 4, 2).reshape(M, code_length, size * size * width)
        image = torch.bmm(inputs, weight).view(M, n * size * size, width)
        image = packed_bias(image, state["first.bias"]).view(M, n, size, size, width).relu()
        on_gpu = inputs.device.type == "cuda"
        for i, layer in enumerate(self.hidden):
            assert isinstance(layer, nn.ConvTranspose2d)
            weight, bias, stride = state[f"hidden.{i}.weight"], state[f"hidden.{i}.bias"], layer.stride[0]
            if not on_gpu:
                image = packed_layer(image, weight, bias, stride).relu()
            else:
                image = packed_doubling(image, weight, bias) if stride == 2 else packed_same(image, weight, bias).relu()
        last = state["last.weight"], state["last.bias"]
        image = packed_one_channel(image, *last) if on_gpu else packed_layer(image, *last, 1)
        return self._resized(image.view(M * n, 1, *image.shape[2:4])).view(M, n, 1, self.N, self.N)


class MLP(nn.Sequential):
    """`depth` hidden layers of `width` units with ReLU, from a code (n, C) to an image (n, 1, N, N)."""

    packed_parts = (nn.Linear, nn.ReLU, nn.Unflatten)
    """The kinds of modules that `packed` knows: with others the network is batched as any other is."""

    def __init__(self, code_length: int, N: int, depth: int, width: int) -> None:
        sizes = [code_length, *[width] * depth]
        hidden = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        super().__init__(*hidden, nn.Linear(sizes[-1], N * N), nn.Unflatten(1, (1, N, N)))
        self.N = N

    def layers(self, code: Tensor) -> list[Tensor]:
        """Activations (n, width) of every hidden layer, after ReLU, then the images (n, 1, N, N): depth + 1 in all."""
        activations, x = [], code
        for module in self:
            x = module(x)
            if isinstance(module, nn.ReLU):
                activations.append(x)
        return [*activations, x]

    def packed(self, state: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The images (M, n, 1, N, N) of M decoders of this shape at once, from codes (M, n, C); `state` as in `CNN.packed`."""
        x = inputs
        for name, layer in self.named_children():
            if isinstance(layer, nn.Linear):
                x = torch.baddbmm(state[f"{name}.bias"][:, None], x, state[f"{name}.weight"].transpose(1, 2))
            elif isinstance(layer, nn.ReLU):
                x = x.relu()
        return x.view(*x.shape[:2], 1, self.N, self.N)


def build_decoder(decoder: str, code_length: int, N: int, depth: int, width: int) -> nn.Module:
    """The decoder called `decoder`, with PyTorch's default initialisation from its global generator."""
    if decoder == "cnn":
        return CNN(code_length, N, depth, width)
    if decoder == "mlp":
        return MLP(code_length, N, depth, width)
    raise ValueError(f"decoder must be one of {', '.join(DECODERS)}, not {decoder!r}")
