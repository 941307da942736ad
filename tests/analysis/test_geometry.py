"""Geometry of a layer over the grid, against closed forms."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from analysis.geometry import (
    ROWS,
    cosine_factorization_of,
    factorization_of,
    forward_metric,
    metric,
    volume,
    volume_of,
)
from analysis.measures.geometry import measure
from tests.analysis.untrained import untrained


def grid(N: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y of every pixel, (N, N): rows y, columns x."""
    y, x = np.mgrid[:N, :N].astype(float)
    return x, y


def linear(N: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, y = grid(N)
    return x[..., None] * a + y[..., None] * b + 7.0


def factorization(activations: np.ndarray) -> float:
    return factorization_of(metric(activations))


A, B = np.array([3.0, 0.0, 4.0]), np.array([1.0, 2.0, -2.0])


def test_a_linear_map_has_its_own_slopes_everywhere_also_at_the_border() -> None:
    g = metric(linear(6, A, B))
    np.testing.assert_allclose(g, np.broadcast_to([[25.0, -5.0], [-5.0, 9.0]], (6, 6, 2, 2)))


def test_the_volume_of_a_linear_map_is_the_area_of_a_pixels_image() -> None:
    area = np.linalg.norm(np.cross(A, B))
    np.testing.assert_allclose(volume(linear(5, A, B)), np.full((5, 5), area))
    np.testing.assert_allclose(volume(linear(5, A, 2 * A)), np.zeros((5, 5)), atol=1e-6)


def test_differences_are_central_inside_and_one_sided_at_the_border() -> None:
    x, y = grid(5)
    slopes = np.array([1, 2, 4, 6, 7])
    g = metric((x**2)[..., None])
    np.testing.assert_allclose(g[..., 0, 0], np.broadcast_to(slopes**2, (5, 5)))
    np.testing.assert_allclose(g[..., 1], 0)
    np.testing.assert_allclose(metric((y**2)[..., None])[:, 2, 1, 1], slopes**2)


def test_the_volume_on_a_sphere_is_the_sine_of_the_polar_angle() -> None:
    N, radius = 41, 2.0
    x, y = grid(N)
    step = 1.0 / (N - 1)
    polar, azimuth = 0.5 + y * step, x * step
    sphere = radius * np.stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)], -1)
    expected = (radius * step) ** 2 * np.sin(polar)
    np.testing.assert_allclose(volume(sphere)[1:-1, 1:-1], expected[1:-1, 1:-1], rtol=3e-4)
    np.testing.assert_allclose(volume(sphere), expected, rtol=2e-2)
    assert factorization(sphere) == pytest.approx(1, abs=1e-3)


def test_factorization_is_one_for_separate_x_and_y_and_a_half_for_their_sum() -> None:
    x, y = grid(8)
    assert factorization(np.stack([np.sin(x), y**2], -1)) == 1
    assert factorization(np.stack([x + y, -2 * (x + y)], -1)) == pytest.approx(0.5)
    assert factorization(linear(6, A, B)) == pytest.approx(1 - 5 / 34)
    assert math.isnan(factorization(np.ones((4, 4, 3))))


def test_the_cosine_form_averages_angles_and_leaves_out_positions_without_one() -> None:
    assert cosine_factorization_of(metric(linear(6, A, B))) == pytest.approx(1 - 5 / 15)
    g = np.array([[[4.0, 2.0], [2.0, 1.0]], [[100.0, 0.0], [0.0, 1.0]], [[9.0, 0.0], [0.0, 0.0]]])
    assert cosine_factorization_of(g) == pytest.approx(1 - (1 + 0) / 2)
    assert factorization_of(g) == pytest.approx(1 - 2 / (5 + 101 + 9))
    np.testing.assert_allclose(volume_of(g), [0, 10, 0])
    assert math.isnan(cosine_factorization_of(np.zeros((3, 2, 2))))


def test_the_metric_of_a_large_layer_is_that_of_its_jacobian_across_the_slabs_it_is_computed_in() -> None:
    values = np.random.default_rng(0).normal(size=(2 * ROWS + 1, 6, 5))
    along_y, along_x = np.gradient(values, axis=(0, 1))
    J = np.stack([along_x, along_y], -1)
    np.testing.assert_allclose(metric(values), J.swapaxes(-1, -2) @ J, rtol=1e-12)


def positions(n: int) -> Tensor:
    """Between the whole ones, float64, so that a kink of a ReLU is unlikely to lie within a difference."""
    return torch.rand(n, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 11


@pytest.mark.parametrize("encoding", ["bump", "ramp", "positional"])
@pytest.mark.parametrize(("decoder", "N"), [("cnn", 12), ("cnn", 10), ("mlp", 12)])
def test_forward_mode_is_what_differences_tend_to(decoder: str, N: int, encoding: str) -> None:
    network = untrained(decoder, N, encoding=encoding, depth=3)
    network.model.double()
    centres, h = positions(20), 1e-5

    def layers(c: Tensor) -> list[Tensor]:
        code = network.code(c)
        return [code, *network.layers(code)]

    def difference(step: list[float]) -> list[np.ndarray]:
        after, before = layers(centres + h * torch.tensor(step)), layers(centres - h * torch.tensor(step))
        return [((a - b) / (2 * h)).flatten(1).numpy() for a, b in zip(after, before, strict=True)]

    exact = forward_metric(layers, centres, chunk=7)
    assert len(exact) == (6 if decoder == "cnn" else 5)
    for g, u, v in zip(exact, difference([1.0, 0.0]), difference([0.0, 1.0]), strict=True):
        J = np.stack([u, v], -1)
        assert g.max() > 1e-6
        np.testing.assert_allclose(g, J.swapaxes(-1, -2) @ J, rtol=1e-6, atol=1e-6 * g.max())


def test_forward_mode_knows_maps_with_known_metrics() -> None:
    """A product f(x) g(y) of curves of unit norm, of speeds 2 and 3, has f.f' = g.g' = 0: F = 1, dv = 6. A ring in x beside a
    line in y is flat."""

    def curve(angle: Tensor) -> Tensor:
        return torch.stack([angle.cos(), angle.sin()], -1)

    def layers(c: Tensor) -> list[Tensor]:
        x, y = c.unbind(1)
        product = curve(2 * x)[:, :, None] * curve(3 * y)[:, None, :]
        cylinder = torch.cat([5 * curve(x / 5), y[:, None]], 1)
        sheet = x[:, None] * torch.from_numpy(A) + y[:, None] * torch.from_numpy(B)
        return [product, cylinder, sheet, product + 10 * x.square()[:, None, None]]

    product, cylinder, sheet, mixed = forward_metric(layers, positions(30), chunk=8)
    assert factorization_of(product) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(volume_of(product), 6)
    np.testing.assert_allclose(cylinder, np.broadcast_to(np.eye(2), (30, 2, 2)), atol=1e-12)
    np.testing.assert_allclose(volume_of(cylinder), 1)
    with np.errstate(all="raise"):
        line = forward_metric(lambda c: [(c @ torch.tensor([0.3, 0.7])).sin()[:, None] * torch.ones(5)], positions(30).float())
    assert volume_of(line[0]).max() < 1e-6, "steps in float32 that are parallel span no area"
    np.testing.assert_allclose(sheet, np.broadcast_to([[25.0, -5.0], [-5.0, 9.0]], (30, 2, 2)))
    assert factorization_of(mixed) < 0.999


def test_the_measure_agrees_with_differences_and_splits_the_volume_at_the_box() -> None:
    network = untrained(encoding="bump")
    found = {(q.name, q.layer): q for q in measure(network)}
    assert {layer for _, layer in found} == {-1, 0, 1, 2, 3}
    for layer in range(-1, 4):
        values = network.code(network.centres).numpy() if layer < 0 else network.activations[layer]
        F = found["factorization_differences", layer].value
        assert factorization(values.reshape(12, 12, -1)) == F
        assert found["factorization", layer].value == pytest.approx(F, abs=0.02)
        dv = found["volume_map", layer].array
        assert dv is not None
        assert dv.shape == (12, 12)
        low, high = network.box
        inside = np.zeros((12, 12), bool)
        inside[low : high + 1, low : high + 1] = True
        assert found["volume_ood", layer].value == pytest.approx(np.log10(dv[inside]).mean(), abs=1e-5)
        assert found["volume_id", layer].value == pytest.approx(np.log10(dv[~inside]).mean(), abs=1e-5)
        by_differences = np.log10(volume(values.reshape(12, 12, -1)))
        assert found["volume_ood_differences", layer].value == pytest.approx(by_differences[inside].mean())
        assert found["volume_id_differences", layer].value == pytest.approx(by_differences[~inside].mean())
    speed = sum(i**2 * math.exp(-(i**2)) for i in range(-4, 5))  # squared, of the bump code
    np.testing.assert_allclose(found["volume_map", -1].array[5:7, 5:7], speed, rtol=1e-5)
    assert found["factorization", -1].value == found["factorization_cosine", -1].value == 1


def test_the_logarithm_of_no_volume_is_that_of_what_the_authors_added() -> None:
    network = untrained("mlp", encoding="one-hot")
    for parameter in network.model.parameters():
        parameter.zero_()
    volumes = {q.value for q in measure(network) if q.name in ("volume_id", "volume_ood") and q.layer != -1}
    assert volumes == {-12.0}


def test_the_one_hot_code_is_measured_by_differences() -> None:
    network = untrained("mlp", encoding="one-hot")
    found = {(q.name, q.layer): q for q in measure(network)}
    for layer in range(-1, 3):
        assert found["factorization", layer].value == found["factorization_differences", layer].value
    assert found["volume_map", -1].array[5, 5] == pytest.approx(0.5)
    assert found["volume_map", 1].array.min() > 0
