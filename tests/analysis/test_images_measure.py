"""Errors and verdicts by region, of decoders that draw by a rule."""

import math

import numpy as np
import pytest

from analysis.measures.images import in_core, measure, picture_points
from tests.analysis.fake_decoder import HIGH, LOW, N, arrays, blank, bump, decoder, values

BOX = range(LOW, HIGH + 1)


def square_of_bump(x: int, y: int) -> float:
    return sum(math.exp(-((u - x) ** 2 + (v - y) ** 2) / 2) ** 2 for u in range(N) for v in range(N)) / N**2


def blank_at_5_3(code):
    """The right bump, but for nothing at x = 5, y = 3."""
    return bump(code) * ~((code[:, 5] == 1) & (code[:, N + 3] == 1))[:, None, None]


def test_a_perfect_decoder() -> None:
    found = values(measure(decoder(bump)))
    assert {name: found[name] for name in ("id_mse", "ood_mse", "core_mse")} == pytest.approx(
        {"id_mse": 0, "ood_mse": 0, "core_mse": 0}, abs=1e-12
    )
    assert found["id_accuracy"] == found["ood_accuracy"] == found["core_accuracy"] == found["ood_proper"] == 1
    assert found["ood_peak"] == 1


def test_a_blank_decoder_has_the_blank_error_and_its_peak_in_pixel_0() -> None:
    found = values(measure(decoder(blank)))
    expected = np.mean([square_of_bump(x, y) for x in BOX for y in BOX])
    assert found["ood_mse"] == pytest.approx(expected)
    assert found["blank_mse"] == pytest.approx(expected)
    assert found["core_mse"] == found["blank_core_mse"] == pytest.approx(square_of_bump(4, 4))
    assert found["id_accuracy"] == pytest.approx(4 / 39)  # (0, 0), (0, 1), (1, 0), (1, 1)
    assert found["ood_accuracy"] == found["ood_proper"] == found["ood_peak"] == 0


def test_rows_of_the_maps_are_y() -> None:
    found = decoder(blank_at_5_3)
    maps, numbers = arrays(measure(found)), values(measure(found))
    expected = np.zeros((N, N))
    expected[3, 5] = square_of_bump(5, 3)
    np.testing.assert_allclose(maps["mse_map"], expected, atol=1e-9)
    np.testing.assert_array_equal(maps["correct_map"], expected == 0)
    assert numbers["ood_mse"] == pytest.approx(square_of_bump(5, 3) / 25)
    assert numbers["ood_accuracy"] == numbers["ood_proper"] == 24 / 25
    assert numbers["ood_peak"] == pytest.approx(24 / 25)
    assert numbers["core_mse"] == pytest.approx(0, abs=1e-12)
    assert numbers["id_accuracy"] == numbers["core_accuracy"] == 1


def test_a_right_peak_in_a_wrong_image_is_correct_but_not_proper() -> None:
    """The ghost at 7 - x, 7 - y has pixels above a quarter up to 1 px away: inside the window of 3 px for 3 and 4 alone."""
    found = values(measure(decoder(lambda code: bump(code) + 0.5 * bump(code).flip(1, 2))))
    assert found["ood_accuracy"] == 1
    assert found["ood_proper"] == 4 / 25
    assert found["id_accuracy"] == 1


def test_dark_bumps_are_judged_as_bright_ones() -> None:
    found = values(measure(decoder(lambda code: 1 - bump(code), polarity="dark")))
    assert found["ood_mse"] == pytest.approx(0, abs=1e-12)
    assert found["ood_proper"] == found["ood_accuracy"] == 1


def test_pictures_stand_at_the_papers_points_relative_to_the_box() -> None:
    np.testing.assert_array_equal(picture_points(6, 22), [(11, 14), (12, 18), (17, 12), (17, 17)])
    np.testing.assert_array_equal(picture_points(0, 16), [(5, 8), (6, 12), (11, 6), (11, 11)])
    found = arrays(measure(decoder(bump)))
    np.testing.assert_array_equal(found["picture_points"], [(3, 4), (4, 5), (5, 4), (5, 5)])
    assert found["pictures"].shape == (4, N, N)
    for picture, (x, y) in zip(found["pictures"], found["picture_points"].astype(int), strict=True):
        assert np.unravel_index(picture.argmax(), picture.shape) == (y, x)


def test_the_core_leaves_out_two_pixels_on_every_side() -> None:
    y, x = np.divmod(np.arange(28 * 28), 28)
    core = np.stack([x, y], 1)[in_core(np.stack([x, y], 1), 6, 22)]
    assert core.min() == 8
    assert core.max() == 20
    assert len(core) == 13**2


def test_a_network_that_draws_something_else_than_its_layers_end_with_is_not_measured() -> None:
    """As one that has another forward pass than the decoder it is derived from, and no layers of its own."""
    found = decoder(bump)
    found.model.layers = lambda code: [bump(code)[:, None] * 1.01]  # type: ignore[union-attr, assignment]
    with pytest.raises(ValueError, match=r"^the last of its layers\(\) is not what it draws"):
        list(measure(found))
    found.model.layers = lambda code: [bump(code)[:, None] * 1.0001]  # type: ignore[union-attr, assignment]
    assert list(measure(found))
