"""Where bumps are that are not where they belong, of decoders that draw by a rule."""

import math

import pytest

from analysis.measures.misplaced import measure
from tests.analysis.fake_decoder import HIGH, LOW, N, blank, bump, decoder, values


def moved(dx: int, dy: int):
    """The bump so many pixels further, around the edge."""
    return lambda code: bump(code).roll((dy, dx), dims=(1, 2))


@pytest.mark.parametrize(
    ("dx", "dy", "missed", "aligned"),
    [
        (0, 0, 0, math.nan), (1, 1, 0, math.nan), (3, 0, 1, 1.0), (0, 3, 1, 1.0), (1, 3, 1, 1.0), (3, 3, 1, 0.0),
        (2, 2, 1, 0.0),
    ],
)  # fmt: skip
def test_a_bump_at_the_right_x_or_y_is_aligned(dx: int, dy: int, missed: int, aligned: float) -> None:
    found = values(measure(decoder(moved(dx, dy))))
    assert found["missed_ood"] == missed
    assert found["aligned_ood"] == pytest.approx(aligned, nan_ok=True)


def test_chance_is_the_share_of_other_pixels_that_are_aligned() -> None:
    """Each position of the box has three columns and three rows within a pixel, but at the edge."""
    shares = []
    for x in range(LOW, HIGH + 1):
        for y in range(LOW, HIGH + 1):
            near = [[abs(u - x) <= 1, abs(v - y) <= 1] for u in range(N) for v in range(N)]
            shares.append(sum(a != b for a, b in near) / sum(not (a and b) for a, b in near))
    found = values(measure(decoder(moved(3, 3))))
    assert found["aligned_chance"] == pytest.approx(sum(shares) / len(shares))


@pytest.mark.parametrize("height", [0.0, 0.3])
def test_an_image_without_a_brightest_pixel_misplaces_nothing(height: float) -> None:
    found = values(measure(decoder(lambda code: blank(code) + height)))
    assert found["missed_ood"] == 0
    assert math.isnan(found["aligned_ood"])
    assert math.isnan(found["aligned_chance"])
