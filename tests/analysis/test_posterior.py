"""The interval of an exponent from the likelihood of all runs."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from analysis import posterior
from analysis.posterior import Seen, slope_interval
from tests.conftest import many

LOGS = [math.log(N) for N in (16, 24, 32, 48, 64)]


def studied(chance: int = 0, spread: float = 0.2, off: float = 0.0, seeds: int = 3) -> list[Seen]:
    """Some seeds at each size, each known between a run that missed and one that passed. Sizes are `off` the law."""
    draw, seen = random.Random(chance), []
    for x in LOGS:
        of_size = draw.gauss(0, off) if off else 0.0
        for _ in range(seeds):
            y = 1.7 * x + of_size + draw.gauss(0, spread)
            runs = [(y - 0.3, False), (y - 0.05, False), (y, True), (y + 0.15, True)]
            seen.append(Seen(x, y, y - 0.05, runs))
    return seen


def moved(one: Seen, turn: float = 0.0, by: float = 0.0, times: float = 1.0) -> Seen:
    """The same with another exponent, other images, or all logs so many times as large."""

    def new(log: float) -> float:
        return times * (log + turn * one.x + by)

    return Seen(times * one.x, new(one.y), new(one.low), [(new(log), passed) for log, passed in one.runs])


def test_units_do_not_matter() -> None:
    seen = studied()
    low, high = slope_interval(seen)
    assert 1.4 < low < 1.7 < high < 2.1
    assert slope_interval([moved(one, by=5.0) for one in seen]) == pytest.approx((low, high))
    assert slope_interval([moved(one, times=0.01) for one in seen]) == pytest.approx((low, high))
    assert slope_interval([moved(one, turn=-3.0) for one in seen]) == pytest.approx((low - 3, high - 3))


def test_the_order_of_what_was_seen_does_not_matter() -> None:
    seen = studied()
    turned = [Seen(one.x, one.y, one.low, list(reversed(one.runs))) for one in reversed(seen)]
    assert slope_interval(turned) == pytest.approx(slope_interval(seen))


def test_runs_that_were_sure_to_end_as_they_did_say_nothing() -> None:
    seen = studied()
    more = [Seen(one.x, one.y, one.low, [*one.runs, (one.y - 9, False), (one.y + 9, True)]) for one in seen]
    assert slope_interval(more) == pytest.approx(slope_interval(seen))


def test_more_confidence_is_a_wider_interval() -> None:
    seen = studied()
    ends = [slope_interval(seen, confidence) for confidence in (0.99, 0.95, 0.5)]
    lows, highs = zip(*ends, strict=True)
    assert sorted(lows) == list(lows)
    assert sorted(highs, reverse=True) == list(highs)


def test_at_a_place_of_more_luck_noise_and_spread_are_as_much_larger() -> None:
    """As if all were counted in larger units there. The densities of the spread are of course smaller, each by that factor."""
    of_place = studied()[:3]
    cells = np.linspace(-3, 3, 37)
    thresholds, apart, moves = of_place[0].y + 0.2 * cells, (cells[:, None] - cells) ** 2 / 2, np.eye(37)[None]
    scaled = posterior._likelihood(of_place, thresholds, 0.2, 3.0, apart, moves)
    usual = posterior._likelihood(of_place, thresholds, 0.6, 1.0, apart / 9, moves)
    np.testing.assert_allclose(scaled + 3 * math.log(3), usual)


def test_thresholds_known_without_doubt_on_a_law_leave_none() -> None:
    assert slope_interval([Seen(x, 1.5 * x, 1.5 * x) for x in LOGS for _ in range(3)]) == pytest.approx((1.5, 1.5))


@pytest.mark.slow(3)
@pytest.mark.parametrize("seeds", [24, 48])
def test_many_seeds_have_no_wider_interval_than_a_finer_grid_gives(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = studied(seeds=seeds)
    low, high = slope_interval(seen)
    for name, value in {"STEPS_B": 361, "CELL": posterior.CELL / 3, "COARSE": 0.0}.items():
        monkeypatch.setattr(posterior, name, value)
    exact = slope_interval(seen)
    assert (low, high) == pytest.approx(exact, abs=0.02 * (exact[1] - exact[0]))


@pytest.mark.parametrize("seeds", [3, 8])
def test_few_seeds_have_the_interval_of_the_first_grid_to_the_bit(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [slope_interval(studied(chance, seeds=seeds)) for chance in range(3)]
    monkeypatch.setattr(posterior, "COARSE", 0.0)
    assert [slope_interval(studied(chance, seeds=seeds)) for chance in range(3)] == found


@pytest.mark.slow(9)
def test_a_true_exponent_lies_inside_as_often_as_it_should() -> None:
    """One that held it in half of these would pass for one in 800 seeds, with all of them for one in 25,000."""
    ends = [slope_interval(studied(chance), 0.8) for chance in range(many(50, 100))]
    assert many(36, 70) <= sum(low <= 1.7 <= high for low, high in ends) <= many(49, 97)


@pytest.mark.slow(9)
def test_it_does_so_where_whole_sizes_are_off_the_law() -> None:
    """If the seeds of a size counted as many, it would hold the exponent in about half of these."""
    ends = [slope_interval(studied(chance, 0.05, off=0.2), 0.8) for chance in range(many(50, 100))]
    assert many(35, 68) <= sum(low <= 1.7 <= high for low, high in ends) <= many(48, 95)
