"""The decoders' ways of computing the same: many runs at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainables.decoders import build_decoder
from trainables.training import quiet_cpu

RUNS = 3


@pytest.fixture(autouse=True)
def _one_quiet_thread() -> None:
    quiet_cpu()


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


@pytest.mark.parametrize("decoder", ["cnn", "mlp"])
def test_many_runs_at_once_are_what_vmap_makes_of_one(decoder: str) -> None:
    models, stacks, codes = runs(decoder, 12, 2, 7, torch.float64)
    base = copy.deepcopy(models[0]).to("meta")
    wanted = vmap(lambda state, code: functional_call(base, state, (code,)))(stacks, codes)
    assert_close(packed(models[0], stacks, codes), wanted, torch.float64)


@pytest.mark.parametrize("decoder", ["cnn", "mlp"])
@pytest.mark.parametrize("N", [12, 30])
def test_many_runs_at_once_train_in_bfloat16_with_the_errors_of_bfloat16(decoder: str, N: int) -> None:
    models, stacks, codes = runs(decoder, N, 3, 16, torch.float32)

    def values(half: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            images = packed(models[0], stacks, codes)
        assert images.dtype == (torch.bfloat16 if half else torch.float32)
        gradients = torch.autograd.grad(images.float().square().sum(), list(stacks.values()))
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        return torch.cat([t.detach().float().flatten() for t in (images, *gradients)])

    exact = values(half=False)
    assert 0 < (values(half=True) - exact).norm() < 0.02 * exact.norm()
