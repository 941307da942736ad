"""The interval of a mean."""

import math

import pytest

from analysis.intervals import are_alike, exp_or_inf, half_width


def test_it_is_students() -> None:
    quantile = 0.95 * math.sqrt(2 / (1 - 0.95**2))  # in closed form with two degrees of freedom
    assert half_width(1.0, 3) == pytest.approx(quantile / math.sqrt(3), rel=1e-12)
    assert half_width(2.0, 11) == pytest.approx(2 * 2.228139 / math.sqrt(11), rel=1e-6)  # from a table
    assert math.isnan(half_width(math.nan, 1))


def test_a_power_of_e_that_no_float_holds_is_infinite() -> None:
    assert exp_or_inf(709.0) == math.exp(709.0) < math.inf
    assert exp_or_inf(710.0) == math.inf


@pytest.mark.parametrize(
    ("numbers", "alike"),
    [
        ([0.3, 0.1 + 0.2, 0.3], True),
        ([0.0, 0.0], True),
        ([5.0], True),
        ([0.95, 0.95, 0.950001], False),
        ([1e-20, 2e-20], False),
        ([-1e308, 1e308], False),
        ([math.inf, math.inf], False),
    ],
)
def test_numbers_that_differ_by_errors_of_rounding_are_alike(numbers: list[float], alike: bool) -> None:
    assert are_alike(numbers) == alike
