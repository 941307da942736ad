"""The interval of a mean."""

import math

import pytest

from analysis.intervals import half_width


def test_it_is_students() -> None:
    assert half_width(1.0, 3) == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-12)  # from a table
    assert half_width(2.0, 11, 0.9) == pytest.approx(2 * 1.8124611228107335 / math.sqrt(11), rel=1e-12)
    assert math.isnan(half_width(math.nan, 1))
