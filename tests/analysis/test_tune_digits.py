"""The digits of what a search of settings shows: numbers that lie close together are told apart, others are short."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analysis.tune import Answer, compare, comparison_text, interval_text
from orchestrator.command.tables import digits_for, number_text
from orchestrator.command.trials import confirmed_table, trials_table
from orchestrator.searches import Row, Rows
from orchestrator.searches.confirm import ConfirmBest
from orchestrator.searches.objective import Objective
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension
from orchestrator.store import make_row
from trainables.spec import RunSpec

TEMPLATE = RunSpec(
    task="tests.toy:Choosy", dataset="toys", N=8, data_count=3, seed=0, decoder="mlp", depth=0, width=8, encoding="none",
    holdout="", options=(("noise", 0.0),), max_steps=100, stop="budget", lr=1e-3,
)  # fmt: skip
WIDTH = Dimension("width", (8, 9, 10, 11, 12, 13))


def searched(error_of: Callable[[RunSpec], float], seeds: int = 3, *aims: str) -> tuple[ConfirmBest, Rows]:
    """Six trials, of which three are confirmed on so many seeds. `aims`: the objectives, if not the error alone."""
    given = {"template": TEMPLATE, "task_version": "1", "space": (WIDTH,), "trials": 6}
    given["objectives"] = tuple(map(Objective, aims or ("mse",)))
    made = ConfirmBest(OptunaSearch(**given, sampler="grid", pruner="none"), most=3, seeds=tuple(range(1000, 1000 + seeds)))
    rows = Rows()
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            rows.add(finish(spec, len(rows), error_of(spec)))
    return made, rows


def finish(spec: RunSpec, second: int, error: float) -> Row:
    found = {
        "ood_mse": error,
        "id_mse": error,
        "accuracy": 0.5,
        "steps": spec.max_steps,
        "status": "missed",
        "reason": "budget",
    }
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return make_row(spec, task_version="1", fixed_count=0, finished_at=at, **found)


def column(table: Any, name: str) -> list[str]:
    [found] = [c for c in table.columns if str(c.header) == name]
    return [str(cell) for cell in found.cells]


def shown(error_of: Callable[[RunSpec], float]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Of a search: the scores of its trials, what it said of the confirmed settings, what they have, and the lines."""
    made, rows = searched(error_of)
    answer = Answer.of_search(made, rows, {})
    confirmed = confirmed_table(made, rows, {}, answer.confirmed, interval_text)
    trials = column(trials_table(made.tuning, rows, {}), "mse")
    return trials, column(confirmed, "mse in the search"), column(confirmed, "mse"), answer.lines()


def near_a_thousand(spec: RunSpec) -> float:
    """No two settings are further apart than a few hundredths, and the luck of a seed moves all by more."""
    return 1000.35 + 0.0137 * (spec.width - 7) + 0.1 * (spec.seed % 3) + 1e-4 * ((spec.seed * spec.width) % 7)


def test_scores_near_a_thousand_are_told_apart() -> None:
    trials, before, means, lines = shown(near_a_thousand)
    for cells in (trials, before, means):
        assert len(set(cells)) == len(cells)
    assert not any("e+" in text for text in (*trials, *before, *means, *lines))
    assert len({len(cell) for cell in trials}) == 1, "a column has one number of digits"
    assert sorted(map(float, trials)) == pytest.approx([near_a_thousand(TEMPLATE) + 0.0137 * i for i in range(6)], abs=5e-3)


def test_bounds_are_told_from_each_other_and_from_no_difference() -> None:
    *_, lines = shown(near_a_thousand)
    verdict = lines[-1]
    assert "so it is better" in verdict
    ratio, lower, upper = numbers_of(verdict.partition("ratio of mse ")[2].partition("],")[0])
    assert lower < ratio < upper < 1
    mean, lower, upper = numbers_of(lines[1].partition("mse ")[2].partition("],")[0])
    assert lower < mean < upper


def numbers_of(text: str) -> list[float]:
    return [float(part.strip("[],")) for part in text.split()]


def test_small_errors_have_three_digits() -> None:
    error_of = {8: 8.013e-4, 9: 8.181e-4, 10: 8.36e-4, 11: 2e-5, 12: 0.0123, 13: 1.5}
    trials, before, means, lines = shown(lambda spec: error_of[spec.width] * (1 + 0.1 * (spec.seed % 3)))
    assert sorted(trials) == sorted(f"{error:.3g}" for error in error_of.values())
    assert before == ["2e-05", "0.000801", "0.000818"]
    numbers = [number for cell in means for number in re.findall(r"[-+.e0-9]+", cell)]
    assert len(numbers) == 3 * len(before)
    assert numbers == [f"{float(number):.3g}" for number in numbers]
    assert "in the search it had 2e-05" in lines[1]


def test_a_mean_of_the_seeds_that_have_a_number_says_how_many_these_are() -> None:
    def error_of(spec: RunSpec) -> float:
        lost = {8: (1001,), 9: (1000, 1002), 10: (1000, 1001, 1002)}.get(spec.width, ())
        return math.nan if spec.seed in lost else 0.01 * spec.width

    _, before, means, _ = shown(error_of)
    assert before == ["0.08", "0.09", "0.1"]
    assert means == ["0.08 (2 of 3)", "0.09 (1 of 3)", ""]


@pytest.mark.parametrize(
    ("error", "seeds", "heading"),
    [
        (0.01, 3, "geometric mean and 95 % interval"), (0.01, 1, "geometric mean"), (-0.01, 3, "mean and 95 % interval"),
        (-0.01, 1, "mean"),
    ],
)  # fmt: skip
def test_the_heading_names_the_kind_of_mean_and_an_interval_only_where_a_setting_has_one(
    error: float, seeds: int, heading: str
) -> None:
    made, rows = searched(lambda spec: error * (spec.width + spec.seed % 3), seeds)
    table = confirmed_table(made, rows, {}, Answer.of_search(made, rows, {}).confirmed, interval_text)
    assert str(table.title) == f"confirmed on fresh seeds: {heading}"
    assert any("[" in cell for cell in column(table, "mse")) == ("interval" in heading)


def test_of_several_objectives_the_heading_names_those_whose_means_are_geometric() -> None:
    made, rows = searched(lambda spec: 0.0 if spec.width == 9 else 0.01, 1, "mse", "accuracy")
    answer = Answer.of_search(made, rows, {})
    assert list(answer.geometric) == [False, True]
    table = confirmed_table(made, rows, {}, answer.confirmed, interval_text)
    assert str(table.title) == "confirmed on fresh seeds: mean (geometric of accuracy)"


def told(first: float, spread: float, logs: bool) -> str:
    pairs = {seed: (first + spread * off) for seed, off in enumerate((-1, 0, 1))}
    found = compare(
        {s: (math.exp(v) if logs else v) for s, v in pairs.items()}, dict.fromkeys(pairs, 1.0 if logs else 0.0), logs
    )
    text = comparison_text({**found, "winner": "a", "second": "b", "objective": "size"})
    return text.removeprefix("a against b, seed by seed: ")


@pytest.mark.parametrize(
    ("first", "spread", "logs", "wanted"),
    [
        (math.log(0.987), 0.02, True, "ratio of size 0.987 [0.939, 1.04], so they cannot be told apart"),
        (-2.8e-5, 1e-6, True, "ratio of size 0.999972 [0.999970, 0.999974], so it is better"),
        (0.0, 0.0, True, "ratio of size 1; no seed told them apart"),
        (math.log(0.5), 0.0, True, "ratio of size 0.5; all 3 seeds alike, so there is no interval"),
        (-0.0123, 0.001, False, "difference of size -0.0123 [-0.0148, -0.00982], so it is better"),
        (0.0, 0.0, False, "difference of size 0; no seed told them apart"),
        (-0.05, 0.0, False, "difference of size -0.05; all 3 seeds alike, so there is no interval"),
        (-5123.4, 2.0, False, "difference of size -5123 [-5128, -5118], so it is better"),
    ],
)
def test_a_comparison_has_the_digits_that_it_needs(first: float, spread: float, logs: bool, wanted: str) -> None:
    assert told(first, spread, logs) == wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1000.387, 1000.415, 1000.41], ["1000.387", "1000.415", "1000.410"]),
        ([999.96, 0.5], ["1000", "0.5"]),
        ([1200.0, 1203.0, 40.0], ["1200", "1203", "40"]),
        ([99999.6, 123456.7, 0.0, -0.25], ["100000", "123457", "0", "-0.25"]),
        ([1234567.0, 1.5], ["1.23e+06", "1.5"]),
        ([8.01e-4, 8.18e-4, 9.9e-5], ["0.000801", "0.000818", "9.9e-05"]),
        ([0.5, 0.5 + 1e-12], ["0.5", "0.5"]),
        ([math.nan, math.inf, 2.5], ["nan", "inf", "2.5"]),
        ([], []),
    ],
)
def test_a_column_has_as_many_digits_as_tell_its_numbers_apart(values: list[float], wanted: list[str]) -> None:
    assert [number_text(value, digits_for(values)) for value in values] == wanted
