"""The race of trials over their seeds, as a function of numbers."""

from __future__ import annotations

import math
import statistics

import pytest

from orchestrator.searches.race import contenders, pooled, seed_effects

LARGEST = 1.7e308


@pytest.mark.parametrize("factor", [1.0, 2.0**1000, 2.0**-1000])
def test_the_spread_is_pooled_over_the_trials_of_several_seeds_at_any_scale(factor: float) -> None:
    some = [[1.5, 2.75, 0.625], [7.0], [3.1, 3.3]]
    squares = [(value - statistics.fmean(of_trial)) ** 2 for of_trial in some if len(of_trial) > 1 for value in of_trial]
    expected = math.sqrt(math.fsum(squares) / 3)
    assert pooled([[value * factor for value in of_trial] for of_trial in some]) == expected * factor, "to the bit"


def test_no_spread_is_known_while_every_trial_has_one_seed_and_there_is_none_between_equal_numbers() -> None:
    assert pooled([[1.0], [2.0]]) is None
    assert pooled([[0.0, 0.0], [2.0]]) == 0.0


@pytest.mark.parametrize(
    ("ranked", "up", "expected"),
    [
        ([[1e200, -1e200], [0.0]], True, [0, 1]),
        ([[LARGEST, LARGEST], [1.0]], True, [0]),
        ([[-LARGEST, LARGEST], [LARGEST]], False, [0, 1]),
        ([[-LARGEST, -LARGEST], [1.0, 2.0], [LARGEST]], False, [0]),
    ],
)
def test_numbers_whose_sum_or_square_no_float_holds_race_as_others_do(
    ranked: list[list[float]], up: bool, expected: list[int]
) -> None:
    assert contenders(ranked, up) == expected


def test_a_seed_adds_on_average_what_it_adds_to_each_trial() -> None:
    assert seed_effects([{1: 1.0, 2: 3.0}, {1: 2.0, 2: 6.0}, {1: 5.0}]) == {1: 0.0, 2: 3.0}
    assert seed_effects([{1: 0.0, 2: LARGEST}, {1: 0.0, 2: LARGEST}]) == {1: 0.0, 2: LARGEST}


def test_the_error_of_a_mean_falls_with_the_root_of_its_seeds() -> None:
    """Four seeds with a spread of 1: means have an error of 0.5, and the third one is 0.4 behind the best."""
    ranked = [[mean + luck * 0.75**0.5 for luck in (-1, -1, 1, 1)] for mean in (0.0, 0.2, 0.4, 0.7)]
    assert pooled(ranked) == pytest.approx(1.0)
    assert contenders(ranked, up=False) == [0, 1, 2]
