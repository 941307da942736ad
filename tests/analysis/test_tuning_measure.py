"""Shares of an activation map that its marginals explain, against cases worked by hand."""

import math

import numpy as np
import pytest

from analysis.measures.tuning import additive_share, measure
from tests.analysis.untrained import untrained

N = 12
Y, X = np.mgrid[:N, :N].astype(float)


def share(*maps: np.ndarray) -> np.ndarray:
    return additive_share(np.stack(maps, -1))[0]


def test_a_sum_of_a_function_of_x_and_one_of_y_is_additive_and_a_centred_product_is_not() -> None:
    centred_x, centred_y = np.sin(X) - np.sin(X).mean(), Y**2 - (Y**2).mean()
    shares = share(np.sin(X) + Y**2, np.exp(-((X - 4) ** 2)), centred_x * centred_y, np.ones((N, N)))
    np.testing.assert_allclose(shares[:3], [1, 1, 0], atol=1e-12)
    assert math.isnan(shares[3])


def test_a_single_pixel_is_additive_to_two_parts_in_n_plus_one() -> None:
    """A pixel of 1 among 0 has the variance (N^2 - 1) / N^4; each marginal is 1/N at one place, of variance (N - 1) / N^4."""
    pixel = ((X == 5) & (Y == 7)).astype(float)
    assert share(pixel)[0] == pytest.approx(2 / (N + 1))
    assert share(3 + 10 * pixel)[0] == pytest.approx(2 / (N + 1))
    assert share(pixel[4:8, 4:8])[0] == pytest.approx(2 / (4 + 1))


def test_variances_are_those_of_the_maps_also_far_from_zero_in_single_precision() -> None:
    maps = (1000 + np.random.default_rng(0).normal(size=(N, N, 7))).astype(np.float32)
    np.testing.assert_allclose(additive_share(maps)[1], maps.astype(float).var(axis=(0, 1)), rtol=1e-10)


def test_the_measure_counts_active_and_striped_units_and_shows_one_of_every_eighth() -> None:
    decoder = untrained("mlp", N)
    stripe, pixel, constant = np.exp(-((X - 4) ** 2)), ((X == 5) & (Y == 7)) * 1.0, np.full((N, N), 0.3)
    eighths = [(constant, stripe, 2 * pixel)] * 6 + [(stripe, constant, constant), (constant, constant, constant)]
    layer = np.stack([unit for eighth in eighths for unit in eighth], -1).reshape(N * N, 24).astype(np.float32)
    dead = np.zeros((N * N, 24), np.float32)
    decoder.__dict__["activations"] = [layer, dead, np.zeros((N * N, N * N), np.float32)]
    found = {(q.name, q.layer): q for q in measure(decoder)}
    assert {layer for _, layer in found} == {0, 1}
    assert found["active", 0].value == pytest.approx(13 / 24)
    assert found["striped", 0].value == pytest.approx(7 / 13)
    assert found["additive", 0].value == pytest.approx(1, abs=1e-5)  # 7 of 13
    assert found["interaction", 0].value == pytest.approx(0, abs=1e-5)
    # Active are 6 pixels (units 2, 5, ..., 17), then 7 stripes (1, 4, ..., 16, 18): places 0, 2, 4, 5, 7, 8, 10, 12 of 13.
    np.testing.assert_array_equal(found["units", 0].array, [2, 8, 14, 17, 4, 7, 13, 18])
    np.testing.assert_allclose(found["maps", 0].array[0], 2 * pixel, rtol=1e-6)
    np.testing.assert_allclose(found["maps", 0].array[4], stripe, rtol=1e-6)
    assert found["maps", 0].array.shape == (8, N, N)
    assert found["active", 1].value == 0
    assert math.isnan(found["additive", 1].value)
    assert math.isnan(found["striped", 1].value)
