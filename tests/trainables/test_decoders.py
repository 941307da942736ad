"""The decoders' ways of computing the same: plain layers, the fast path on a CPU, many runs at once."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from trainables.convolution import (
    Decode,
    _gradients,
    _gradients_by_products,
    packed_doubling,
    packed_one_channel,
    packed_same,
)
from trainables.decoders import CNN, build_decoder

RUNS = 3


def values(model: CNN, codes: Tensor, wanted: Tensor, fast: bool = True, half: bool = False) -> dict[str, Tensor]:
    """The images and all gradients."""
    codes = codes.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        images = (model if fast else model.plain)(codes)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad((images.float() if half else images).mul(wanted).sum(), [codes, *parameters])
    return dict(zip(("images", "codes", *names), (images.detach(), *gradients), strict=True))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("width", [5, 32])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("N", [8, 12, 16, 20, 10, 30])
def test_the_fast_path_is_the_plain_one_in_values_and_gradients(N: int, depth: int, width: int, n: int) -> None:
    torch.manual_seed(0)
    model = CNN(6, N, depth, width)
    exact, channels_last = copy.deepcopy(model).double(), copy.deepcopy(model).to(memory_format=torch.channels_last)
    codes, wanted = torch.rand(n, 6), torch.randn(n, 1, N, N)
    # in float64, for torch 2.13 has the float32 gradient of a 16 x 16 kernel wrong if the batch is of one
    reference = values(exact, codes.double(), wanted.double(), fast=False)
    assert reference["images"].shape == (n, 1, N, N)
    for name, found in values(exact, codes.double(), wanted.double()).items():
        assert_close(found, reference[name], torch.float64)
    for layout in (model, channels_last):
        for name, found in values(layout, codes, wanted).items():
            assert_close(found.double(), reference[name], torch.float32)


@pytest.mark.slow(2)
def test_the_gradient_of_the_fast_path_is_that_of_its_values() -> None:
    torch.manual_seed(0)
    model = CNN(3, 8, 3, 2).double()
    inputs = [torch.rand(2, 3, dtype=torch.float64, requires_grad=True), *model.parameters()]
    assert torch.autograd.gradcheck(lambda *t: Decode.apply(*t), inputs)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradients_of_a_layer_are_the_same_by_products(stride: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 4, 6, dtype=torch.float64), torch.randn(5, 7, stride + 2, stride + 2, dtype=torch.float64)
    grad = torch.randn(3, 7, stride * 4, stride * 6, dtype=torch.float64)
    for found, wanted in zip(_gradients_by_products(grad, x, weight), _gradients(grad, x, weight), strict=True):
        assert_close(found, wanted, torch.float64)


PACKED = {
    "doubling": (4, 2, packed_doubling, nn.ReLU()),
    "same size": (3, 1, packed_same, nn.Identity()),
    "one channel": (3, 1, packed_one_channel, nn.Identity()),
}
"""By name the kernel, the stride, the layer of many runs at once, and what the layer does besides."""


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("M", "n", "H", "W", "C", "K"), [(1, 1, 1, 1, 1, 1), (2, 3, 5, 4, 4, 6), (3, 2, 7, 7, 8, 16)])
def test_a_layer_for_gpus_is_the_plain_one_of_every_run(name: str, M: int, n: int, H: int, W: int, C: int, K: int) -> None:
    torch.manual_seed(0)
    kernel, stride, packed, then = PACKED[name]
    K = 1 if name == "one channel" else K
    drawn = torch.randn(M, n, H, W, C), torch.randn(M, C, K, kernel, kernel), torch.randn(M, K)
    inputs = [t.double().requires_grad_() for t in drawn]
    images, weights, biases = inputs
    each = zip(images.movedim(4, 2), weights, biases, strict=True)
    plain = torch.stack([then(functional.conv_transpose2d(*one, stride=stride, padding=1)) for one in each]).movedim(2, 4)
    found = packed(*inputs)
    assert_close(found, plain, torch.float64)
    grad = torch.randn_like(plain)
    gradients = (torch.autograd.grad(out, inputs, grad) for out in (found, plain))
    for own, wanted in zip(*gradients, strict=True):
        assert_close(own, wanted, torch.float64)


@pytest.mark.parametrize("name", PACKED)
def test_a_layer_for_gpus_in_bfloat16_errs_by_rounding(name: str) -> None:
    torch.manual_seed(0)
    kernel, _, packed, _ = PACKED[name]
    K = 1 if name == "one channel" else 8
    inputs = torch.randn(2, 3, 4, 4, 16), torch.randn(2, 16, K, kernel, kernel), torch.randn(2, K)
    exact = packed(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        found = packed(*inputs)
    assert 1e-5 < ((found - exact).norm() / exact.norm()).item() < 1e-2


@pytest.mark.slow(1)
@pytest.mark.parametrize("N", [16, 30])
@pytest.mark.parametrize("depth", [0, 2, 3])
def test_the_fast_path_in_bfloat16_errs_no_more_than_the_plain_layers(N: int, depth: int) -> None:
    torch.manual_seed(0)
    model, codes, wanted = CNN(6, N, depth, 32), torch.rand(32, 6), torch.randn(32, 1, N, N)
    exact = values(model, codes, wanted)

    def error(fast: bool) -> float:
        """Relative, root of the mean square over the images and all gradients."""
        found = values(model, codes, wanted, fast, half=True)
        return statistics.fmean((((found[k] - exact[k]).norm() / exact[k].norm()) ** 2).item() for k in exact) ** 0.5

    assert 0 < error(fast=True) < 1.1 * error(fast=False) < 0.06


def test_the_fast_path_keeps_nothing_between_calls() -> None:
    torch.manual_seed(0)
    model, codes = CNN(6, 16, 2, 8), torch.rand(9, 6)
    small, large = torch.randn(2, 1, 16, 16), torch.randn(9, 1, 16, 16)
    first = values(model, codes[:2], small)
    values(model, codes, large, half=True)
    with torch.no_grad():
        assert torch.equal(model(codes[:2]), first["images"])
        torch.testing.assert_close(model(codes)[:2], first["images"])
    again = values(model, codes[:2], small)
    assert all(torch.equal(found, again[name]) for name, found in first.items())


def runs(decoder: str, N: int, depth: int, width: int, dtype: torch.dtype) -> tuple[list[nn.Module], dict[str, Tensor], Tensor]:
    """Several decoders, their parameters in stacks, and codes for each."""
    torch.manual_seed(0)
    models = [build_decoder(decoder, 6, N, depth, width).to(dtype) for _ in range(RUNS)]
    states = [dict(model.named_parameters()) for model in models]
    stacks = {name: torch.stack([state[name].detach() for state in states]).requires_grad_() for name in states[0]}
    return models, stacks, torch.rand(RUNS, 5, 6, dtype=dtype)


def packed(model: nn.Module, state: Mapping[str, Tensor], codes: Tensor) -> Tensor:
    images = model.packed(state, codes)  # type: ignore[operator]
    assert isinstance(images, Tensor)
    return images


def assert_close(found: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance * max(1.0, wanted.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("N", [8, 12, 10, 30])
@pytest.mark.parametrize("decoder", ["cnn", "mlp"])
def test_many_runs_at_once_are_each_as_alone(decoder: str, N: int, depth: int, dtype: torch.dtype) -> None:
    models, stacks, codes = runs(decoder, N, depth, 7, dtype)
    images = packed(models[0], stacks, codes)
    assert images.shape == (RUNS, 5, 1, N, N)
    wanted = torch.randn_like(images)
    (images * wanted).sum().backward()
    for run, model in enumerate(models):
        alone = model(codes[run])
        assert_close(images[run], alone, dtype)
        (alone * wanted[run]).sum().backward()
        for name, parameter in model.named_parameters():
            gradient, of_stack = parameter.grad, stacks[name].grad
            assert gradient is not None
            assert of_stack is not None
            assert_close(of_stack[run], gradient, dtype)


def test_many_runs_at_once_are_what_vmap_makes_of_one() -> None:
    models, stacks, codes = runs("mlp", 12, 2, 7, torch.float64)
    base = copy.deepcopy(models[0]).to("meta")
    wanted = vmap(lambda state, code: functional_call(base, state, (code,)))(stacks, codes)
    assert_close(packed(models[0], stacks, codes), wanted, torch.float64)


@pytest.mark.parametrize("decoder", ["cnn", "mlp"])
@pytest.mark.parametrize("N", [12, 30])
def test_many_runs_at_once_train_in_bfloat16_with_the_errors_of_bfloat16(decoder: str, N: int) -> None:
    models, stacks, codes = runs(decoder, N, 3, 16, torch.float32)

    def flat(half: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            images = packed(models[0], stacks, codes)
        assert images.dtype == (torch.bfloat16 if half else torch.float32)
        gradients = torch.autograd.grad(images.float().square().sum(), list(stacks.values()))
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        return torch.cat([t.detach().float().flatten() for t in (images, *gradients)])

    exact = flat(half=False)
    assert 0 < (flat(half=True) - exact).norm() < 0.02 * exact.norm()


def test_the_last_layer_is_summed_in_float32() -> None:
    torch.manual_seed(0)
    model, codes = CNN(6, 16, 2, 32), torch.rand(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(codes)
    assert (found != found.bfloat16().float()).any()


def test_the_last_layer_of_a_pack_is_summed_in_float32_and_doubles_stay_doubles() -> None:
    torch.manual_seed(0)
    images, weight, bias = torch.randn(2, 3, 4, 4, 16), torch.randn(2, 16, 1, 3, 3), torch.zeros(2, 1)
    doubles = images.double(), weight.double(), bias.double()
    with torch.autocast("cpu", torch.bfloat16):
        found, wide = packed_one_channel(images, weight, bias), packed_one_channel(*doubles)
    assert (found != found.bfloat16().float()).any()
    assert torch.equal(wide, packed_one_channel(*doubles))
