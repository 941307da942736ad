"""Superposition of decoders whose parts are known."""

import math

import numpy as np
import pytest
import torch

from analysis.measures.superposition import derangement, measure, median, pearson
from tests.analysis.fake_decoder import HIGH, LOW, N, arrays, blank, bump, cross, decoder, values

PIXEL = torch.arange(N)


def ramp_cross(code):
    """`cross` of a ramp code."""
    return (PIXEL[:, None] == code[:, 1, None, None]).float() + (code[:, 0, None, None] == PIXEL)


def column(x: int) -> np.ndarray:
    return np.tile(np.arange(N) == x, (N, 1)).astype(float)


def test_a_decoder_that_draws_the_sum_of_its_parts() -> None:
    """Two crosses of 2N - 1 pixels that share neither line have the correlation -1 / (N - 1)."""
    found = values(measure(decoder(cross, "one-hot")))
    assert found == pytest.approx({"correlation": 1, "shuffled": -1 / (N - 1)})


def test_a_decoder_that_draws_dark_bumps_is_judged_as_one_that_draws_bright_ones() -> None:
    found = values(measure(decoder(lambda code: 1 - cross(code), "one-hot", polarity="dark")))
    assert found == pytest.approx({"correlation": 1, "shuffled": -1 / (N - 1)}, rel=1e-4)


def test_panels_are_the_part_of_x_the_part_of_y_their_sum_and_the_image() -> None:
    found = arrays(measure(decoder(cross, "one-hot")))
    np.testing.assert_array_equal(found["panel_points"], [(3, 4), (4, 5), (5, 4)])
    for panels, (x, y) in zip(found["panels"], found["panel_points"].astype(int), strict=True):
        image = column(x) + column(y).T
        np.testing.assert_allclose(panels, [column(x) / 2, column(y).T / 2, image / 2, image])


def test_the_other_half_is_the_mean_code_of_the_id_positions() -> None:
    """Of 39 ID positions 3 have x = 4, and 8 have x = 0; the image of a bump decoder is the product of the halves."""
    found = decoder(bump, "one-hot")
    mean = np.array([8, 8, 3, 3, 3, 3, 3, 8]) / 39
    of_x, of_y = np.zeros((2, N, N))
    of_x[:, 3], of_y[4] = mean, mean
    panels = arrays(measure(found))["panels"][0]
    np.testing.assert_allclose(panels[:3], np.stack([of_x, of_y, of_x + of_y]) / (of_x + of_y).max(), rtol=1e-6)


def test_parts_of_the_ramp_code_are_sums_over_the_id_positions_that_share_a_coordinate() -> None:
    found = decoder(ramp_cross, "ramp")
    rim = sum(column(x) for x in range(N) if not LOW <= x <= HIGH)
    expected = []
    for panels, (x, y) in zip(arrays(measure(found))["panels"], [(3, 4), (4, 5), (5, 4)], strict=True):
        of_x, of_y = 3 * column(x) + rim.T, 3 * column(y).T + rim
        np.testing.assert_allclose(panels[:3], np.stack([of_x, of_y, of_x + of_y]) / 6, rtol=1e-6)
        expected.append(np.corrcoef((of_x + of_y).ravel(), (column(x) + column(y).T).ravel())[0, 1])
    assert values(measure(found))["correlation"] == pytest.approx(expected[0])
    assert np.ptp(expected) < 1e-12


@pytest.mark.parametrize("encoding", ["bump", "ramp"])
@pytest.mark.parametrize("draw", [blank, lambda code: blank(code) + 0.3, lambda code: blank(code) - 1])
def test_a_decoder_that_draws_nothing_has_no_correlation(draw, encoding) -> None:
    found = values(measure(decoder(draw, encoding)))
    assert math.isnan(found["correlation"])
    assert math.isnan(found["shuffled"])


def test_one_point_without_a_correlation_is_left_out() -> None:
    images, others = np.array([[1.0, 2, 3], [5, 5, 5], [1, 2, 4]]), np.array([[2.0, 4, 6], [1, 2, 3], [4, 2, 1]])
    found = pearson(images, others)
    assert found[0] == pytest.approx(1)
    assert math.isnan(found[1])
    assert median(found) == pytest.approx((1 + np.corrcoef(images[2], others[2])[0, 1]) / 2)


@pytest.mark.parametrize("n", [2, 3, 25, 289])
def test_a_derangement_leaves_nothing_in_place(n: int) -> None:
    moved = derangement(n)
    assert sorted(moved) == list(range(n))
    assert not (moved == np.arange(n)).any()
    np.testing.assert_array_equal(moved, derangement(n))
