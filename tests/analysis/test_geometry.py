"""Geometry of a layer over the grid, against closed forms."""

import math

import numpy as np
import pytest

from analysis.geometry import factorization, jacobian, metric, volume


def grid(N: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y of every pixel, (N, N): rows y, columns x."""
    y, x = np.mgrid[:N, :N].astype(float)
    return x, y


def linear(N: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x, y = grid(N)
    return x[..., None] * a + y[..., None] * b + 7.0


A, B = np.array([3.0, 0.0, 4.0]), np.array([1.0, 2.0, -2.0])


def test_a_linear_map_has_its_own_slopes_everywhere_also_at_the_border() -> None:
    J = jacobian(linear(6, A, B))
    assert J.shape == (6, 6, 3, 2)
    np.testing.assert_allclose(J[..., 0], np.broadcast_to(A, (6, 6, 3)))
    np.testing.assert_allclose(J[..., 1], np.broadcast_to(B, (6, 6, 3)))
    g = metric(linear(6, A, B))
    np.testing.assert_allclose(g, np.broadcast_to([[25.0, -5.0], [-5.0, 9.0]], (6, 6, 2, 2)))


def test_the_volume_of_a_linear_map_is_the_area_of_a_pixels_image() -> None:
    area = np.linalg.norm(np.cross(A, B))
    np.testing.assert_allclose(volume(linear(5, A, B)), np.full((5, 5), area))
    np.testing.assert_allclose(volume(linear(5, A, 2 * A)), np.zeros((5, 5)), atol=1e-6)


def test_differences_are_central_inside_and_one_sided_at_the_border() -> None:
    x, y = grid(5)
    J = jacobian((x**2)[..., None])
    np.testing.assert_allclose(J[2, :, 0, 0], [1, 2, 4, 6, 7])
    np.testing.assert_allclose(J[..., 1], 0)
    np.testing.assert_allclose(jacobian((y**2)[..., None])[:, 2, 0, 1], [1, 2, 4, 6, 7])


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
