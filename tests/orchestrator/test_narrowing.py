"""More seeds until the exponent is known well enough: where they help, and the same after any interruption."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from analysis.scaling import widths
from benchmarks.threshold_search import World, brackets, real_duration, simulate
from orchestrator.command.thresholds import brackets_table
from orchestrator.searches import Row, Rows
from orchestrator.searches.axes import BUMPS, Axes
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.narrowing import FARTHEST, MOST_SEEDS, NarrowingSearch, Round, _is_vain, _spread
from orchestrator.searches.threshold import ThresholdSearch
from trainables.spec import family_key

SIZES = (16, 24, 32, 40)
PLAN = brackets(SIZES, range(3))
ALL = brackets(SIZES, range(MOST_SEEDS))


def by_root(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
    """An interval that shrinks with the root of the number of thresholds: 0.5 for twelve."""
    return {"random": 0.5 * (12 / len(results)) ** 0.5}


def answered(search: ThresholdSearch, workers: int = 1, noise: float = 0.05, rows: Rows | None = None) -> Rows:
    if rows is None:
        return simulate(search, ALL, World(3, noise), workers, real_duration)[0]
    runs = {(b.template.N, b.template.seed): World(3, noise).runs(b.template.N, b.template.seed) for b in ALL}
    families = {(b.template.N, b.template.seed): b.family for b in ALL}
    while wanted := search.propose(rows, 1):
        (spec,) = wanted
        passed, accuracy = runs[spec.N, spec.seed](spec.data_count)
        row = {"key": f"{spec.N} {spec.seed} {spec.data_count}", "family": families[spec.N, spec.seed]}
        ended = {"status": "passed" if passed else "missed", "accuracy": accuracy, "steps": 1 if passed else 3}
        rows.add({**row, "data_count": spec.data_count, **ended})
    return rows


def seeds(search: ThresholdSearch, rows: Rows) -> Counter[int]:
    return Counter(result.N for result in search.answer(rows))


def test_an_interval_that_is_narrow_enough_asks_for_no_more_seeds() -> None:
    search, plain = NarrowingSearch(PLAN, 0.5, by_root), ThresholdSearch(PLAN)
    rows = answered(search)
    assert search.finished(rows)
    assert search.answer(rows) == plain.answer(rows)
    assert len(rows) == len(answered(plain))
    assert search.doubt(rows) is None


def test_seeds_are_added_at_the_ends_until_the_interval_is_narrow_enough() -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root)
    rows = answered(search)
    found = seeds(search, rows)
    assert found.total() >= 12 * (0.5 / 0.4) ** 2
    assert found[24] == found[32] == 3
    assert found[16] > 3
    assert found[40] > 3
    assert search.doubt(rows) is None
    assert {result.verdict for result in search.answer(rows)} <= {"reached", "non-monotone"}


def test_a_round_adds_no_more_than_halves_the_variance() -> None:
    asked: list[int] = []

    def told(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        asked.append(len(results))
        return {"random": 9.0 / len(results) if len(results) < 30 else 0.1}

    search = NarrowingSearch(PLAN, 0.1, told)
    answered(search)
    assert asked[0] == 12
    assert len(asked) == len(set(asked)) > 2, "a round that is known is not computed again"
    assert all(later <= FARTHEST * earlier for earlier, later in pairwise(asked))


def test_one_round_is_enough_where_the_interval_shrinks_as_with_the_root_of_the_spread() -> None:
    spreads: list[float] = []

    def by_spread(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        spreads.append(_spread(Counter(math.log(result.N) for result in results)))
        return {"random": 0.5 * (spreads[0] / spreads[-1]) ** 0.5}

    search = NarrowingSearch(PLAN, 0.4, by_spread)
    rows = answered(search)
    assert len(set(spreads)) == 2
    assert search.doubt(rows) is None


@pytest.mark.slow(2)
def test_where_no_number_of_seeds_is_enough_the_search_ends_and_says_so() -> None:
    search = NarrowingSearch(PLAN, 0.1, by_root)
    rows = answered(search)
    assert search.finished(rows)
    assert seeds(search, rows) == dict.fromkeys(SIZES, MOST_SEEDS)
    doubt = search.doubt(rows)
    assert doubt is not None
    assert doubt.startswith("the interval of the exponent is wider than 0.1 for random, and no more seeds are added. ")
    assert doubt.endswith("Sizes may lie off the law, or there are too few of them: then more sizes help")


def test_rounds_that_do_not_narrow_the_interval_are_the_last() -> None:
    rounds: list[int] = []

    def hardly(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        rounds.append(len(results))
        return {"random": 0.3 - 0.001 * len(rounds)}

    search = NarrowingSearch(PLAN, 0.1, hardly)
    rows = answered(search)
    assert search.finished(rows)
    first, second, *others = sorted(set(rounds))
    assert len(others) == 2, "of which each has twice the thresholds of an earlier one"
    assert 2 * first <= others[0]
    assert 2 * second <= others[1]
    assert seeds(search, rows).total() == max(rounds) < len(ALL)
    assert search.doubt(rows) is not None


@pytest.mark.slow(2)
def test_a_single_round_that_is_no_narrower_by_luck_is_not_the_last() -> None:
    widths: dict[int, float] = {}
    left = iter((0.86, 1.0, 0.62, 0.59, 0.38))

    def luck(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        if len(results) not in widths:
            widths[len(results)] = next(left)
        return {"random": widths[len(results)]}

    search = NarrowingSearch(PLAN, 0.4, luck)
    rows = answered(search)
    assert len(widths) == 5
    assert search.doubt(rows) is None


SEEN = {
    "on the law": ((9, 0.86), (15, 1.0), (27, 0.62), (52, 0.59), (96, 0.38)),
    "on the law, two wide ones": ((9, 0.8), (15, 0.62), (27, 0.64), (52, 0.67), (96, 0.36)),
    "on the law, five sizes": ((15, 0.6), (23, 0.43), (39, 0.47), (71, 0.38), (160, 0.2)),
    "near the goal": ((15, 0.7), (23, 0.43), (39, 0.34), (49, 0.32), (57, 0.3), (59, 0.3), (60, 0.3), (61, 0.29)),
    "off the law": ((9, 2.42), (15, 2.11), (27, 2.07), (52, 1.99)),
    "off the law, five sizes": ((15, 1.7), (23, 1.54), (39, 1.51), (71, 1.5)),
}


@pytest.mark.parametrize("name", SEEN)
def test_two_rounds_in_a_row_tell_that_more_seeds_are_in_vain(name: str) -> None:
    """Widths that were seen in simulated studies of three and of five sizes."""
    rounds = [Round(*one) for one in SEEN[name]]
    vain = [_is_vain(rounds[: i + 1]) for i in range(len(rounds))]
    assert vain == [False] * (len(rounds) - 1) + [name.startswith("off")]


def test_rounds_near_the_goal_that_add_a_seed_each_are_not_the_last() -> None:
    widths: dict[int, float] = {}

    def luck(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        return {"random": widths.setdefault(len(results), 0.43 - 0.01 * (len(widths) % 2) if len(widths) < 4 else 0.39)}

    search = NarrowingSearch(PLAN, 0.4, luck)
    rows = answered(search)
    assert len(widths) == 5
    assert search.doubt(rows) is None


def test_without_an_interval_there_is_nothing_to_narrow() -> None:
    search = NarrowingSearch(PLAN, 0.1, lambda results: {"random": None})
    rows = answered(search)
    assert seeds(search, rows) == dict.fromkeys(SIZES, 3)
    assert str(search.doubt(rows)).startswith("there is no interval of the exponent for random, and no more seeds are added: ")
    assert "wider" not in str(search.doubt(rows))
    both = NarrowingSearch(PLAN, 0.1, lambda results: {"random": 0.2, "other": None})
    doubt = str(both.doubt(answered(both)))
    assert doubt.startswith("the interval of the exponent is wider than 0.1 for random, and no more seeds are added. ")
    assert "; there is no interval of the exponent for other, " in doubt


def test_the_same_rows_in_any_order_ask_for_the_same_runs() -> None:
    rows: list[Row] = list(answered(NarrowingSearch(PLAN, 0.4, by_root)))
    for chance in range(5):
        random.Random(chance).shuffle(rows)
        kept = rows[: len(rows) * chance // 5]
        search = NarrowingSearch(PLAN, 0.4, by_root)
        at_once, one_by_one = Rows(kept), Rows()
        for row in kept:
            one_by_one.add(row)
            search.propose(one_by_one, 3)
        fresh = NarrowingSearch(PLAN, 0.4, by_root).propose(at_once, 20)
        assert search.propose(one_by_one, 20) == fresh
        assert {str(row["key"]) for row in answered(search, rows=at_once)} == {str(row["key"]) for row in rows}


def test_the_answer_does_not_depend_on_the_number_of_workers() -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root)
    alone, many = answered(search), answered(search, workers=9)
    brief = [[(r.N, r.seed, r.threshold, r.tried) for r in search.answer(rows)] for rows in (alone, many)]
    assert brief[0] == brief[1]


def test_the_numbers_are_those_of_what_is_found_and_of_the_families() -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root)
    rows = answered(search)
    results = search.answer(rows)
    assert len(results) == len(search.numbers(rows)) > 12
    assert list(search.numbers(rows)) == sorted(search.numbers(rows))
    for i, result in zip(search.numbers(rows), results, strict=True):
        assert search.found(rows, i).runs == result.runs
        assert result.family in search.families
    assert {row["family"] for row in rows} <= set(search.families)
    assert len(search.families) == 2 * len(ALL)


def test_a_size_that_some_seed_does_not_reach_gets_no_more_seeds() -> None:
    search, rows = NarrowingSearch(PLAN, 0.4, by_root), Rows()
    families = {(b.template.N, b.template.seed): b.family for b in ALL}
    while wanted := search.propose(rows, 1):
        (spec,) = wanted
        passed = spec.data_count >= 0.1 * spec.N**1.5 * (1 + 0.1 * (spec.seed % 3)) and (spec.N, spec.seed) != (40, 1)
        row = {"key": f"{spec.N} {spec.seed} {spec.data_count}", "family": families[spec.N, spec.seed], "steps": 1}
        rows.add({**row, "data_count": spec.data_count, "status": "passed" if passed else "missed", "accuracy": None})
    found = seeds(search, rows)
    assert found[40] == 3
    assert found[16] > 3
    assert found[32] > 3


@pytest.mark.slow(3)
def test_a_place_whose_least_value_passes_gets_no_more_seeds_where_it_takes_no_part_in_the_fit() -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root)
    rows = answered(search)
    numbers, results = tuple(search.numbers(rows)[:12]), search.answer(rows)[:12]
    assert {search._brackets[i].along for i in search._more(numbers, results, 2.0)} == {16, 40}
    coarse = Axes.of("width", "N", SIZES)
    least = [replace(r, axes=coarse, verdict="minimum" if r.N == 16 else r.verdict) for r in results]
    added = {search._brackets[i].along for i in search._more(numbers, least, 2.0)}
    assert added
    assert 16 not in added
    high = [replace(r, verdict="minimum") if r.N == 16 else r for r in results]
    assert 16 not in {search._brackets[i].along for i in search._more(numbers, high, 2.0)}
    single = [replace(r, verdict="minimum", threshold=1) if r.N == 16 else r for r in results]
    assert 16 in {search._brackets[i].along for i in search._more(numbers, single, 2.0)}
    none = [replace(r, axes=coarse, verdict="minimum") for r in results]
    assert search._more(numbers, none, 2.0) == []


@pytest.mark.slow(5)
def test_real_intervals_become_as_narrow_as_asked() -> None:
    sizes = range(16, 65, 8)
    plan = brackets(sizes, range(3))
    search = NarrowingSearch(plan, 0.28, widths)
    rows, _ = simulate(search, brackets(sizes, range(MOST_SEEDS)), World(3, 0.05), 1, real_duration)
    [width] = widths(search.answer(rows)).values()
    [before] = widths(ThresholdSearch(plan).answer(rows)).values()
    assert width is not None
    assert before is not None
    assert width <= 0.28 < before
    assert search.doubt(rows) is None
    assert seeds(search, rows).total() <= 45


@pytest.mark.parametrize("stop", ["auto", "early"])
def test_a_run_of_a_seed_that_is_asked_for_may_be_audited(stop: str) -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root, stop=stop)
    search.propose(Rows(), 1)
    asked = [search.may_audit(bracket.template) for bracket in PLAN]
    assert asked == [stop == "auto"] * len(PLAN)
    further = [b.template for b in ALL if b.template.seed == 3]
    assert not any(map(search.may_audit, further)), "before there are rows, no seed is added"


@pytest.mark.parametrize("width", [0.0, -1.0, float("inf"), float("nan")])
def test_a_width_that_is_none_is_refused(width: float) -> None:
    with pytest.raises(ValueError, match="the width of an interval must be a number above 0"):
        NarrowingSearch(PLAN, width, by_root)


def shown(search: ThresholdSearch, rows: Rows) -> list[list[str]]:
    table = brackets_table("least images", search.answer(rows), {}, BUMPS)
    columns = [[str(column.header), *(str(cell) for cell in column.cells)] for column in table.columns]
    return [list(line) for line in zip(*columns, strict=True)]


def test_a_table_of_places_with_unequal_seeds_tells_how_many_are_answered() -> None:
    search = NarrowingSearch(PLAN, 0.4, by_root)
    assert shown(search, Rows())[0] == ["data set", "N", "seed 0", "seed 1", "seed 2", "runs"]
    rows = answered(search)
    head, *lines = shown(search, rows)
    assert head == ["data set", "N", "answered", "thresholds", "open", "runs"]
    counts = seeds(search, rows)
    assert [(line[1], line[2]) for line in lines] == [(str(N), f"{counts[N]} of {counts[N]}") for N in SIZES]
    found = sorted(r.threshold for r in search.answer(rows) if r.N == 16 and r.threshold is not None)
    assert lines[0][3] == f"{found[0]} to {found[-1]}"
    known = list(rows)
    partly = Rows(row for row in known if not row["key"].startswith(f"16 {counts[16] - 1}"))
    assert shown(search, partly)[1][2] == f"{counts[16] - 1} of {counts[16]}"
    assert shown(search, partly)[1][4] == "waiting"


def test_of_equal_least_thresholds_the_table_tells_that_less_may_do() -> None:
    """A place lacks a seed, so they are told in brief."""
    width = Axes.of("width", "N", SIZES)
    results = [
        replace(r, axes=width, threshold=20 if r.seed < 2 else 30, verdict="minimum" if r.seed == 1 else "reached")
        for r in ThresholdSearch(PLAN).answer(Rows())[:-1]
    ]
    columns = brackets_table("least widths", results, {}, BUMPS).columns
    [told] = [column for column in columns if str(column.header) == "thresholds"]
    assert [str(cell) for cell in told.cells] == ["<= 20 to 30"] * 3 + ["<= 20"]


def test_a_data_set_that_is_known_well_enough_gets_no_seed_for_another() -> None:
    other = [replace(b, template=replace(b.template, dataset="other")) for b in PLAN]

    def told(results: Sequence[ThresholdResult]) -> Mapping[str, float | None]:
        count = Counter(r.dataset for r in results)
        return {"random": 0.3, "other": 0.5 * (12 / count["other"]) ** 0.5}

    search, rows = NarrowingSearch([*PLAN, *other], 0.4, told), Rows()
    while wanted := search.propose(rows, 1):
        (run,) = wanted
        passed = run.data_count >= 0.1 * run.N**1.5
        row = {"key": f"{run.dataset} {run.N} {run.seed} {run.data_count}", "family": family_key(run, PLAN[0].task_version)}
        status = "passed" if passed else "missed"
        rows.add({**row, "data_count": run.data_count, "steps": 1, "status": status, "accuracy": None})
    found = Counter(r.dataset for r in search.answer(rows))
    assert found["random"] == 12
    assert found["other"] > 12


def test_twice_the_thresholds_are_compared_with_those_of_just_half() -> None:
    assert _is_vain([Round(12, 1.0), Round(24, 0.95), Round(48, 0.93)])
