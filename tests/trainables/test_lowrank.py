"""The low-rank decoder: its published size, its fast path on a CPU against the plain layers, and the two penalties."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainables.lowrank import POSITIVE_LENGTH, LowRank, _Render, entropy_terms, variance_terms


def made(N: int = 6, rank: int = 4, channels: int = 2, depth: int = 2, seed: int = 0, **more: Any) -> LowRank:
    torch.manual_seed(seed)
    return LowRank(N, rank, channels, depth, **more)


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def plain_matrices(model: LowRank) -> Tensor:
    u, v = functional.normalize(model.rows, dim=-1), functional.normalize(model.columns, dim=-1)
    return torch.einsum("ftr,ftri,ftrj->ftij", model.strengths, u, v)


def plain_images(model: LowRank, tokens: Tensor) -> Tensor:
    matrices = plain_matrices(model)
    images = torch.stack([matrices[factor, tokens[:, factor]] for factor in (0, 1)], dim=1)
    for slope, layer in zip(model.slopes, model.layers, strict=True):
        images = layer(slope(images))
    return model.picture(images)


def gradients(model: LowRank, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True), strict=True))


@pytest.mark.parametrize(
    ("rank", "channels", "depth", "expected"), [(32, 2, 2, 133_218), (1, 2, 2, 4_258), (32, 4, 1, 133_235), (32, 2, 0, 133_140)]
)
def test_the_parameter_count_is_the_papers(rank: int, channels: int, depth: int, expected: int) -> None:
    assert sum(p.numel() for p in made(32, rank, channels, depth).parameters()) == expected


def test_one_seed_gives_one_model() -> None:
    first, again, other = made(seed=3), made(seed=3), made(seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.strengths, other.strengths)


def test_modes_start_at_unit_length_and_strengths_at_one_over_root_n() -> None:
    model = made(32, 32)
    for vectors in (model.rows, model.columns):
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(2, 32, 32))
    assert model.strengths.std().item() == pytest.approx(1 / math.sqrt(32), rel=0.1)


def test_a_positive_start_has_the_published_sizes_without_the_signs() -> None:
    published = made(seed=3)
    torch.manual_seed(3)
    positive = LowRank(6, 4, init="positive")
    torch.testing.assert_close(positive.strengths, published.strengths.abs())
    torch.testing.assert_close(positive.rows, POSITIVE_LENGTH * published.rows.abs())
    torch.testing.assert_close(positive.columns, POSITIVE_LENGTH * published.columns.abs())


def test_embeddings_are_sums_of_unit_modes_however_long_the_stored_vectors() -> None:
    model = made(7, 3)
    before = model.embeddings().detach()
    torch.testing.assert_close(before, plain_matrices(model).detach())
    with torch.no_grad():
        model.rows *= 3
        model.columns *= torch.rand(2, 7, 3, 1) + 0.5
    torch.testing.assert_close(model.embeddings().detach(), before)
    with torch.no_grad():
        model.strengths *= 2
    torch.testing.assert_close(model.embeddings().detach(), 2 * before)


def test_the_gradient_of_the_embeddings_is_that_of_their_values() -> None:
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(_Render.apply, (double(2, 3, 2), double(2, 3, 2, 4), double(2, 3, 2, 4)))


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 20])
@pytest.mark.parametrize(("N", "padding"), [(8, 0), (13, 0), (8, 3)])
def test_the_fast_path_is_the_plain_one_in_values_and_gradients(N: int, padding: int, channels: int, depth: int) -> None:
    model = made(N, 3, channels, depth, padding=padding)
    for slope in model.slopes:
        slope.weight.data.uniform_(-0.5, 1.5)
    exact = copy.deepcopy(model).double()
    tokens, wanted = torch.randint(N, (9, 2)), torch.randn(9, 1, N, N)
    images, reference = model(tokens), plain_images(exact, tokens)
    assert images.shape == (9, 1, N, N)
    torch.testing.assert_close(images.double(), reference, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(exact(tokens), reference)
    with torch.no_grad():
        assert torch.equal(model(tokens), images)
    found = gradients(model, (images - wanted).square().sum())
    for name, gradient in gradients(exact, (reference - wanted).square().sum()).items():
        torch.testing.assert_close(found[name].double(), gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max().item(), msg=name)


def test_equal_steps_have_equal_gradients_to_the_bit() -> None:
    model, tokens = made(13, 3, 3), torch.randint(13, (32, 2))
    first, again = (gradients(model, model(tokens).square().sum() + model.penalty()) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_images_do_not_depend_on_the_batch_they_are_in() -> None:
    model, tokens = made(8, 3), torch.randint(8, (40, 2))
    whole = model(tokens)
    torch.testing.assert_close(torch.cat([model(part) for part in tokens.split([1, 2, 37])]), whole)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_with_a_padding_of_depth_and_one_no_border_reaches_the_picture(depth: int) -> None:
    """Then a column that is moved by a pixel draws a picture that is moved by a pixel. Without a padding it does not."""

    def moved(padding: int) -> float:
        model = made(9, 1, 2, depth, padding=padding)
        with torch.no_grad():
            for vectors in (model.rows, model.columns):
                vectors.abs_().add_(0.1)
            for factor in (0, 1):  # token 1 has the matrix of token 0, one pixel further right
                model.strengths[factor, 1], model.rows[factor, 1] = model.strengths[factor, 0], model.rows[factor, 0]
                model.columns[factor, 1] = model.columns[factor, 0].roll(1, -1)
            first, second = model(torch.tensor([[0, 0], [1, 1]]))[:, 0]
        return float((second[:, 1:] - first[:, :-1]).abs().max())

    assert moved(depth + 1) < 1e-6
    assert moved(0) > 1e-3


def test_entropy_is_zero_for_one_mode_and_log_r_for_equal_ones() -> None:
    assert entropy_terms(torch.tensor([[3.0], [-0.2]])).tolist() == [0, 0]
    equal = torch.tensor([[0.5, -0.5, 0.5, 0.5, -0.5], [7.0, 7, 7, 7, 7]])
    torch.testing.assert_close(entropy_terms(equal), torch.full((2,), math.log(5)))


def test_entropy_counts_no_share_below_the_published_least() -> None:
    strengths = torch.tensor([1.0, 1e-5, 1e-20, 0.0], dtype=torch.float64, requires_grad=True)
    entropy = entropy_terms(strengths)
    assert entropy.item() == pytest.approx(3e-8 * math.log(1e8) + 1e-10, rel=1e-3)
    (slope,) = torch.autograd.grad(entropy, strengths)
    assert slope.isfinite().all()
    assert abs(slope[1].item()) < 1e-4, "a share under the least pulls no more"


def entropy_by_hand(strengths: Iterable[float]) -> float:
    power = [x * x for x in strengths]
    shares = [max(x / sum(power), 1e-8) for x in power]
    return -sum(p * math.log(p) for p in shares)


def test_entropy_has_one_term_per_token_as_the_formula_says() -> None:
    torch.manual_seed(0)
    strengths = double(2, 5, 6)
    terms = entropy_terms(strengths)
    assert terms.shape == (2, 5)
    for factor in range(2):
        for token in range(5):
            expected = entropy_by_hand(strengths[factor, token].tolist())
            assert terms[factor, token].item() == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(entropy_terms, (strengths,))


def test_variance_is_the_unbiased_one_in_value_and_gradient() -> None:
    torch.manual_seed(0)
    vectors = (double(2, 3, 4, 5), double(2, 3, 4, 5))
    terms, expected = variance_terms(*vectors), vectors[0].var(-1) + vectors[1].var(-1)
    assert terms.shape == (2, 3, 4)
    torch.testing.assert_close(terms, expected)
    weights = torch.randn(2, 3, 4, dtype=torch.float64)
    for x in vectors:
        torch.testing.assert_close(*(torch.autograd.grad(t, x, weights, retain_graph=True)[0] for t in (terms, expected)))
    assert torch.autograd.gradcheck(variance_terms, vectors)


def test_the_penalty_is_made_of_sums_over_the_stored_parameters() -> None:
    model = made(6, 4, entropy_weight=0.1, variance_weight=0.01)
    with torch.no_grad():
        model.rows *= 3
        model.strengths[0, 0] = torch.tensor([1, 5e-5, 0.5, 0])  # two shares under the least
    entropy = sum(entropy_by_hand(token) for factor in model.strengths.tolist() for token in factor)
    variance = sum(float(x.detach().double().var(-1).sum()) for x in (model.rows, model.columns))
    penalty = model.penalty()
    assert penalty.shape == ()
    assert penalty.item() == pytest.approx(0.1 * entropy + 0.01 * variance, rel=1e-5)
    terms = 0.1 * entropy_terms(model.strengths).sum() + 0.01 * variance_terms(model.rows, model.columns).sum()
    expected = gradients(model, terms)
    for name, gradient in gradients(model, penalty).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_every_run_of_a_pack_has_the_penalty_of_its_own_weights() -> None:
    weights = ((0.3, 0.0), (0.0, 0.2), (0.1, 0.01))
    models = [made(seed=seed, entropy_weight=e, variance_weight=v) for seed, (e, v) in enumerate(weights)]
    states = [{**dict(model.named_parameters()), **dict(model.named_buffers())} for model in models]
    state = {name: torch.stack([one[name] for one in states]) for name in states[0]}
    torch.testing.assert_close(models[0].packed_penalty(state), torch.stack([model.penalty() for model in models]))


def test_each_weight_turns_on_its_own_penalty() -> None:
    assert made().penalty().item() == 0
    entropy, variance = made(entropy_weight=0.1), made(variance_weight=0.01)
    assert entropy.penalty().item() == pytest.approx(0.1 * entropy_terms(entropy.strengths).sum().item(), rel=1e-5)
    expected = 0.01 * variance_terms(variance.rows, variance.columns).sum().item()
    assert variance.penalty().item() == pytest.approx(expected, rel=1e-5)
    for model, touched in ((entropy, {"strengths"}), (variance, {"rows", "columns"})):
        moved = {name for name, gradient in gradients(model, model.penalty()).items() if gradient.any()}
        assert moved == touched


def test_strengths_start_by_the_side_of_the_padded_matrices() -> None:
    assert made(8, 64, padding=12).strengths.std().item() == pytest.approx(32**-0.5, rel=0.1)
