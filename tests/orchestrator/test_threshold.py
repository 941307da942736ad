"""The threshold search: exact where runs are monotone, honest where they are not, the same however the work was done."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from analysis.fits import summarise
from analysis.scaling import Answer
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.probing import (
    CHASE,
    FARTHEST,
    NOISE,
    NOISE_WORTH,
    Outcome,
    Start,
    ladder,
    learn,
    next_probe,
    probe_below,
)
from orchestrator.searches.threshold import ThresholdSearch
from tests.conftest import many
from trainables.spec import Counts, RunSpec, family_key, run_key

_spec = importlib.util.spec_from_file_location(
    "threshold_benchmark", Path(__file__).parents[2] / "benchmarks" / "threshold_search.py"
)
assert _spec is not None
assert _spec.loader is not None
benchmark = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = benchmark
_spec.loader.exec_module(benchmark)

Ending = Callable[[RunSpec], str]


def bracket(N: int = 16, seed: int = 0, low: int = 1, high: int = 200, fixed: int = 0, **changes: object) -> Bracket:
    template = RunSpec(task="fake:Task", dataset="random", N=N, data_count=0, seed=seed, **changes)  # type: ignore[arg-type]
    return Bracket(template=template, task_version="1", counts=Counts(low, high, fixed))


def row(spec: RunSpec, status: str, accuracy: float | None = None) -> dict[str, object]:
    key, family = run_key(spec, "1"), family_key(spec, "1")
    return {
        "key": key, "family": family, "data_count": spec.data_count, "status": status, "steps": 10, "accuracy": accuracy,
    }  # fmt: skip


def drive(
    search: ThresholdSearch,
    outcome: Ending,
    workers: int = 1,
    chance: int = 0,
    rows: Rows | None = None,
    accuracy: Callable[[RunSpec], float | None] = lambda spec: None,
) -> Rows:
    """Run a search to its end with runs that finish in random order."""
    rows = Rows() if rows is None else rows
    shuffle, running = random.Random(chance), {}
    while not search.finished(rows):
        for spec in search.propose(rows, workers):
            assert rows.get(run_key(spec, "1")) is None
            if len(running) < workers:
                running[run_key(spec, "1")] = spec
        spec = running.pop(shuffle.choice(sorted(running)))
        rows.add(row(spec, outcome(spec), accuracy(spec)))
    assert search.propose(rows, 8) == []
    return rows


def step_at(threshold: float) -> Ending:
    return lambda spec: "passed" if spec.data_count >= threshold else "missed"


def noisy(chance: int, width: float, middle: float = 100.0) -> Ending:
    """Every run has one random but fixed outcome, likelier to pass with more images."""

    def outcome(spec: RunSpec) -> str:
        luck = random.Random(f"{chance} {spec.N} {spec.seed} {spec.data_count}").random()
        scale = (spec.N / 16) ** 1.7 * (1 + 0.1 * spec.seed)
        return "passed" if math.log(max(spec.data_count, 0.5) / middle / scale) > width * math.log(1 / luck - 1) else "missed"

    return outcome


def on_a_line(threshold: float, slope: float = 2.5) -> Callable[[RunSpec], float]:
    """Accuracy whose logit rises with the log of the data count, and reaches 0.9 at the threshold."""

    def accuracy(spec: RunSpec) -> float:
        return 1 / (1 + (max(spec.data_count, 0.5) / threshold) ** -slope / 9)

    return accuracy


def alone(search: ThresholdSearch, outcome: Ending) -> ThresholdResult:
    (result,) = search.answer(drive(search, outcome))
    return result


def asked(rows: Rows, *brackets: Bracket) -> set[tuple[str, int]]:
    return {(b.family, count) for b in brackets for count in rows.family(b.family)}


def study(sizes: tuple[int, ...] = (16, 24, 32), seeds: tuple[int, ...] = (0, 1, 2)) -> list[Bracket]:
    return [bracket(N, seed, high=N * N * 2) for N in sizes for seed in seeds]


class TestLadder:
    def test_neighbours_are_adjacent_or_within_the_resolution(self) -> None:
        for low, high, fixed in ((1, 3000, 0), (0, 500, 32), (0, 9, 0), (5, 5, 0), (7, 100_000, 3)):
            rungs = ladder(low, high, fixed, 0.05)
            totals = [count + fixed for count in rungs.counts]
            assert (rungs.counts[0], rungs.counts[-1]) == (low, high)
            for below, above in pairwise(totals):
                assert above - below == 1 or 0 < (above - below) / above <= 0.05

    def test_a_finer_resolution_keeps_every_rung(self) -> None:
        coarse, fine = ladder(1, 5000, 0, 0.2), ladder(1, 5000, 0, 0.03)
        assert set(coarse.counts) < set(fine.counts)
        assert len(coarse.counts) == 43


class TestMonotoneRuns:
    @pytest.mark.parametrize("threshold", range(2, 201))
    def test_the_bracket_holds_the_exact_threshold(self, threshold: int) -> None:
        result = alone(ThresholdSearch([bracket()]), step_at(threshold))
        assert result.verdict == "reached"
        assert result.lower is not None
        assert result.upper is not None
        assert result.lower < threshold <= result.upper == result.threshold
        gap = result.upper - result.lower
        assert gap == 1 or gap / result.upper <= 0.05
        assert result.runs <= 13

    @pytest.mark.parametrize("threshold", range(1, 41))
    def test_with_images_always_present_the_resolution_is_of_the_total(self, threshold: int) -> None:
        result = alone(ThresholdSearch([bracket(low=0, high=400, fixed=64)]), step_at(threshold))
        assert result.lower is not None
        assert result.upper is not None
        assert result.total_images == result.upper + 64
        assert result.lower < threshold <= result.upper
        assert result.upper - result.lower == 1 or (result.upper - result.lower) / (result.upper + 64) <= 0.05

    @pytest.mark.parametrize("resolution", [0.3, 0.1, 0.02, 0.005])
    def test_the_resolution_asked_for_is_met(self, resolution: float) -> None:
        result = alone(ThresholdSearch([bracket(high=20_000)], resolution), step_at(7123))
        assert result.lower is not None
        assert result.upper is not None
        assert result.lower < 7123 <= result.upper
        assert (result.upper - result.lower) / result.upper <= resolution

    @pytest.mark.slow(2)
    def test_fewer_trainings_than_doubling_and_bisection(self) -> None:
        ours, hand, _ = benchmark.compare(noise=0.03, dips=False, studies=15)
        assert ours.thresholds == hand.thresholds == 15 * 21
        assert ours.trainings < 0.7 * hand.trainings
        assert ours.cost < 0.6 * hand.cost


class TestVerdicts:
    def test_minimum_when_the_lowest_count_passes(self) -> None:
        result = alone(ThresholdSearch([bracket(low=0, fixed=32)]), step_at(0))
        assert (result.verdict, result.threshold, result.lower, result.upper) == ("minimum", 0, 0, 0)
        assert (result.total_images, result.runs) == (32, 2)

    def test_none_reached_when_the_highest_count_fails(self) -> None:
        result = alone(ThresholdSearch([bracket(high=150)]), step_at(151))
        assert (result.verdict, result.threshold, result.lower, result.upper) == ("none reached", None, 150, None)
        as_row = result.to_row()
        assert math.isnan(as_row["total_images"])
        assert (as_row["lower"], as_row["upper"]) == (150, math.inf)

    @pytest.mark.parametrize(("passes", "verdict"), [(True, "minimum"), (False, "none reached")])
    def test_a_single_count_is_asked_once(self, passes: bool, verdict: str) -> None:
        search = ThresholdSearch([bracket(N, low=9, high=9) for N in (16, 24)])
        results = search.answer(drive(search, lambda spec: "passed" if passes else "missed"))
        assert [(r.verdict, r.lower, r.runs) for r in results] == [(verdict, 9, 1)] * 2

    def test_divergence_counts_as_not_passed(self) -> None:
        diverging = alone(ThresholdSearch([bracket()]), lambda spec: "passed" if spec.data_count >= 50 else "diverged")
        assert diverging.lower is not None
        assert diverging.upper is not None
        assert diverging.verdict == "reached"
        assert diverging.lower < 50 <= diverging.upper

    @pytest.mark.parametrize(
        ("below", "between", "ground"),
        [("missed", "missed", "budget"), ("diverged", "missed", "diverged"), ("missed", "diverged", "diverged")],
    )
    def test_the_least_firm_of_the_misses_that_an_answer_rests_on_is_named(self, below: str, between: str, ground: str) -> None:
        """34 passes, and from 60 on all do."""

        def ending(spec: RunSpec) -> str:
            return "passed" if spec.data_count == 34 or spec.data_count >= 60 else below if spec.data_count < 34 else between

        result = alone(ThresholdSearch([bracket()]), ending)
        assert (result.verdict, result.lower, result.lower_ended) == ("non-monotone", 33, ground)

    def test_a_failed_run_ends_its_bracket_and_is_named(self) -> None:
        broken = bracket(seed=1)
        search = ThresholdSearch([bracket(seed=0), broken, bracket(seed=2)])
        rows = drive(search, lambda spec: "failed" if spec.seed == 1 else step_at(50)(spec))
        results = search.answer(rows)
        assert [r.verdict for r in results] == ["reached", "failed", "reached"]
        (count,) = rows.family(broken.family)
        assert results[1].failed_key == run_key(broken.template.with_count(count), "1")
        assert results[1].threshold is None

    def test_a_failed_pilot_leaves_its_prediction_to_the_other_seeds(self) -> None:
        search, rows = ThresholdSearch(study(sizes=(16, 32), seeds=(0, 1))), Rows()
        firsts: dict[tuple[int, int], int] = {}
        while not search.finished(rows):
            (spec,) = search.propose(rows, 1)
            firsts.setdefault((spec.N, spec.seed), spec.data_count)
            rows.add(row(spec, "failed" if (spec.N, spec.seed) == (32, 0) else step_at(60)(spec)))
        assert firsts[32, 1] == firsts[32, 0] > 200

    def test_a_failed_run_trained_again_opens_its_bracket_again(self) -> None:
        search, rows = ThresholdSearch([bracket()]), Rows()
        (spec,) = search.propose(rows, 1)
        rows.add(row(spec, "failed"))
        assert search.finished(rows)
        rows.add(row(spec, "missed"))
        assert not search.finished(rows)
        assert len(rows) == 1

    @pytest.mark.parametrize("ending", ["failed", "missed"])
    def test_a_pilot_without_threshold_does_not_block_the_others(self, ending: str) -> None:
        search = ThresholdSearch(study(sizes=(16, 24)))
        rows = drive(search, lambda spec: ending if (spec.N, spec.seed) == (16, 0) else step_at(60)(spec))
        verdicts = [r.verdict for r in search.answer(rows)]
        assert verdicts == ["failed" if ending == "failed" else "none reached"] + ["reached"] * 5

    def test_brackets_out_of_reach_cost_one_run_each_after_the_first_and_pilots_two(self) -> None:
        search = ThresholdSearch(study())
        rows = drive(search, step_at(10**6))
        results = search.answer(rows)
        assert {r.verdict for r in results} == {"none reached"}
        assert [r.runs for r in results[1:]] == [1, 1, 2, 1, 1, 2, 1, 1]

    def test_what_a_walk_has_tried_is_told_in_order_and_what_it_did_not_ask_for_is_not(self) -> None:
        search = ThresholdSearch([bracket()])
        rows = drive(search, step_at(50))
        family = rows.family(bracket().family)
        (before,) = search.answer(rows)
        assert before.tried == tuple((count, count >= 50) for count in sorted(family))
        rows.add(row(bracket().template.with_count(199), "passed"))
        (after,) = search.answer(rows)
        assert after.runs == before.runs + 1
        assert after.tried == before.tried == after.to_row()["tried"]

    def test_open_brackets_show_what_is_known(self) -> None:
        search, rows = ThresholdSearch([bracket()]), Rows()
        (before,) = search.answer(rows)
        assert (before.verdict, before.lower, before.upper, before.runs) == ("open", None, None, 0)
        estimates = [before.probes_left]
        while not search.finished(rows):
            (spec,) = search.propose(rows, 1)
            rows.add(row(spec, step_at(50)(spec)))
            (now,) = search.answer(rows)
            estimates.append(now.probes_left)
        assert estimates[-1] == 0
        assert 4 <= estimates[0] <= 8
        assert now.steps == 10 * now.runs


class TestContradictions:
    def test_a_lucky_pass_is_noticed_and_not_reported(self) -> None:
        """Passes only at 34 and from 60 on: the first probe is the lucky one, and all below fail."""
        start = ThresholdSearch([bracket()]).propose(Rows(), 1)[0].data_count
        assert start == 34
        result = alone(
            ThresholdSearch([bracket()]), lambda s: "passed" if s.data_count == 34 or s.data_count >= 60 else "missed"
        )
        assert (result.verdict, result.threshold, result.lower) == ("non-monotone", 62, 33)
        assert result.upper == 62

    def test_passing_below_a_failing_highest_count_is_no_threshold(self) -> None:
        result = alone(ThresholdSearch([bracket()]), lambda s: "passed" if s.data_count == 34 else "missed")
        assert (result.verdict, result.threshold, result.lower, result.upper) == ("non-monotone", None, 33, None)
        assert result.to_row()["upper"] == math.inf

    @pytest.mark.parametrize("low", [10, 1])
    def test_a_lowest_count_that_passes_below_one_that_misses_hides_what_is_less(self, low: int) -> None:
        search = ThresholdSearch([bracket(low=low)])
        result = alone(search, lambda s: "passed" if s.data_count <= 30 or s.data_count >= 60 else "missed")
        assert (result.verdict, result.threshold, result.lower, result.missed) == ("non-monotone", 62, low, None)
        assert result.is_cut == (low > 1)

    @pytest.mark.parametrize(("fails_below", "is_cut"), [(11, False), (1, True)])
    def test_a_crash_below_all_misses_is_no_pass_at_the_lowest_count(self, fails_below: int, is_cut: bool) -> None:
        """Misses by luck from 45 to 110 send the search down, past a pass at 29 to the lowest count."""

        def ending(spec: RunSpec) -> str:
            passes = spec.data_count >= (1 if is_cut else 22) and not 45 <= spec.data_count <= 110
            return "failed" if spec.data_count < fails_below else "passed" if passes else "missed"

        search = ThresholdSearch([bracket(N=8, low=10, high=400)])
        result = alone(search, ending)
        assert (result.verdict, result.threshold, result.lower, result.missed) == ("non-monotone", 112, 10, None)
        assert result.tried[0] == ((10, True) if is_cut else (29, True))
        assert result.is_cut is is_cut
        (summed,) = Answer.of_results([result], {}).summary.to_dict("records")
        assert math.isnan(summed["lower"]) is is_cut
        assert ("pass at the lowest data_count" in summed["note"]) is is_cut

    def test_where_more_hurts_a_search_goes_down_to_what_passes(self) -> None:
        def accuracy(spec: RunSpec) -> float:
            """Rises up to N images, and falls from 3 N on."""
            share = spec.data_count / spec.N
            return min(0.93, 0.93 * share) - (0.15 * math.log(share / 3) if share > 3 else 0.0)

        search = ThresholdSearch([bracket(N, seed, high=2000) for N in (5, 10, 20) for seed in (0, 1)])
        ending = lambda spec: "passed" if accuracy(spec) >= 0.9 else "missed"  # noqa: E731
        first, *others = search.answer(drive(search, ending, accuracy=lambda spec: max(accuracy(spec), 0.01)))
        assert (first.verdict, first.threshold) == ("non-monotone", None)
        assert any(passed for _, passed in first.tried)
        assert [r.threshold for r in others if r.verdict == "reached"] == [r.N for r in others if r.verdict == "reached"]
        assert sum(r.verdict == "reached" for r in others) >= 3
        assert all(r.verdict != "none reached" for r in others)

    def test_where_nothing_passes_few_runs_are_asked_below(self) -> None:
        search = ThresholdSearch([bracket(N, seed, high=2000) for N in (5, 10, 20) for seed in (0, 1)], speculate=False)
        rising = lambda spec: 0.1 + 0.08 * math.log(1 + spec.data_count)  # noqa: E731
        results = search.answer(drive(search, lambda spec: "missed", accuracy=rising))
        assert {r.verdict for r in results} == {"none reached"}
        # the first one has seen that more helps, and the next pilots see that one miss was no bad luck
        assert [len(r.tried) for r in results[1:]] == [1, 2, 1, 2, 1]

    def test_where_more_hurts_and_less_diverges_the_search_ends(self) -> None:
        search = ThresholdSearch([bracket(high=2000)])
        falling = lambda spec: None if spec.data_count < 100 else 0.85 - 0.1 * math.log(spec.data_count / 100)  # noqa: E731
        ending = lambda spec: "diverged" if spec.data_count < 100 else "missed"  # noqa: E731
        (result,) = search.answer(drive(search, ending, accuracy=falling))
        assert (result.verdict, result.lower, result.lower_ended) == ("none reached", 2000, "budget")
        assert result.tried[0][0] < 100 < result.tried[1][0], "it has seen both"

    def test_a_pilot_at_its_highest_count_is_not_given_up_for_one_miss(self) -> None:
        """The first size is out of reach, so the next ones begin at their highest counts."""
        brackets = [bracket(N, seed, high=10 * N) for N in (16, 24, 32) for seed in (0, 1)]
        unlucky = lambda spec: spec.N == 16 or (spec.seed == 0 and spec.data_count == 10 * spec.N)  # noqa: E731
        ending = lambda spec: "missed" if spec.data_count < 100 or unlucky(spec) else "passed"  # noqa: E731
        search = ThresholdSearch(brackets, speculate=False)
        results = search.answer(drive(search, ending, accuracy=lambda spec: 0.1 + 0.5 * spec.data_count / spec.N / 10))
        assert [r.verdict for r in results] == ["none reached"] * 2 + ["non-monotone", "reached"] * 2
        assert [(r.threshold, r.tried[-2:]) for r in results if r.verdict == "non-monotone"] == [
            (None, ((228, True), (240, False))),
            (None, ((304, True), (320, False))),
        ]
        assert all(95 <= r.threshold <= 105 for r in results if r.verdict == "reached")

    @pytest.mark.slow(4)
    def test_never_contradicted_by_its_own_rows(self) -> None:
        """Noisy curves, sequentially: no failing row at or above the threshold, no passing row at or below lower."""
        b = bracket(high=1000)
        search = ThresholdSearch([b])
        verdicts: dict[str, int] = {}
        for chance in range(many(500, 2500)):
            width = (0.02, 0.1, 0.3, 1.0, 5.0)[chance % 5]
            rows = drive(search, noisy(chance, width))
            (result,) = search.answer(rows)
            verdicts[result.verdict] = verdicts.get(result.verdict, 0) + 1
            passed = [d for d, r in rows.family(b.family).items() if r["status"] == "passed"]
            failed = [d for d, r in rows.family(b.family).items() if r["status"] == "missed"]
            assert result.outliers == ()
            assert result.runs <= 13 + 6 * CHASE
            if result.threshold is None:
                assert max(failed) == 1000
            else:
                assert result.threshold == result.upper
                assert result.threshold in passed
                assert all(d < result.threshold for d in failed)
                assert result.lower is not None
                if result.verdict == "non-monotone":
                    assert min(passed) < max(failed)
                    assert result.lower < min(passed) or min(passed) == 1
                else:
                    assert min(passed) == result.threshold
        assert verdicts["non-monotone"] > many(10, 60)
        assert verdicts["reached"] > many(300, 1500)

    def test_a_speculative_row_that_disagrees_is_shown_and_changes_nothing(self) -> None:
        b = bracket()
        search = ThresholdSearch([b])
        rows = drive(search, step_at(50))
        (before,) = search.answer(rows)
        unasked = next(d for d in range(60, 200) if d not in rows.family(b.family))
        rows.add(row(b.template.with_count(unasked), "missed"))
        rows.add(row(b.template.with_count(2), "passed"))
        (after,) = search.answer(rows)
        assert after.outliers == (2, unasked)
        assert (before.to_row()["contradicted_by"], after.to_row()["contradicted_by"]) == ("", f"2, {unasked}")
        assert (after.threshold, after.lower, after.verdict) == (before.threshold, before.lower, before.verdict)

    def test_a_thread_that_shows_the_study_never_takes_it_for_finished_half_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While the one that decides looks at one bracket, another one asks."""
        search, rows, said = ThresholdSearch([bracket(N=16), bracket(N=24)], speculate=False), Rows(), []
        whole = ThresholdSearch._look

        def look(self: ThresholdSearch, *given: Any) -> Any:
            found = whole(self, *given)
            asking = threading.Thread(target=lambda: said.append((search.finished(rows), len(rows))))
            asking.start()
            asking.join(0.02)
            return found

        while not search.finished(rows):
            (asked,) = search.propose(rows, 1)
            rows.add(row(asked, "passed" if asked.data_count >= 50 else "missed"))
            with monkeypatch.context() as patched:
                patched.setattr(ThresholdSearch, "_look", look)
                search.answer(rows)
        time.sleep(0.1)
        assert len(said) > 5
        assert not [number for finished, number in said if finished and number < len(rows)]

    @pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
    def test_misses_by_bad_luck_far_above_the_threshold_are_found_out(self, seeds: tuple[int, ...]) -> None:
        """The first bracket begins far above 21, and comes down to misses by luck at 500 to 800."""

        def ending(spec: RunSpec) -> str:
            is_unlucky = spec.seed == 0 and 500 <= spec.data_count < 800
            return "passed" if spec.data_count >= 21 and not is_unlucky else "missed"

        brackets = [bracket(seed=seed, high=20_000) for seed in seeds]
        search = ThresholdSearch(brackets)
        first, *others = search.answer(drive(search, ending))
        assert first.verdict == "non-monotone"
        assert first.lower is not None
        assert first.lower < 21 < 800 <= first.threshold <= 842  # type: ignore[operator]
        assert [(one.verdict, one.threshold) for one in others] == [("reached", 21)] * (len(seeds) - 1)
        unchecked = ThresholdSearch([replace(one, checked=False) for one in brackets])
        first, *others = unchecked.answer(drive(unchecked, ending))
        assert (first.verdict, first.lower >= 700) == ("reached", True)  # type: ignore[operator]

    def test_where_no_run_misses_by_luck_checks_cost_little_and_change_nothing(self) -> None:
        costs = []
        for chance in range(20):
            dice = random.Random(chance)
            thresholds = {(b.template.N, b.template.seed): b.template.N**2 / 5 * math.exp(dice.gauss(0, 0.1)) for b in study()}

            def outcome(spec: RunSpec, thresholds: dict[tuple[int, int], float] = thresholds) -> str:
                return "passed" if spec.data_count >= thresholds[spec.N, spec.seed] else "missed"

            checked, unchecked = (
                ThresholdSearch([replace(b, checked=is_checked) for b in study()]) for is_checked in (True, False)
            )
            mine, other = drive(checked, outcome), drive(unchecked, outcome)
            assert [(r.verdict, r.threshold, r.lower) for r in checked.answer(mine)] == [
                (r.verdict, r.threshold, r.lower) for r in unchecked.answer(other)
            ]
            costs.append(len(mine) - len(other))
        assert min(costs) >= 1
        assert sum(costs) / len(costs) <= 1.7

    def test_a_check_that_fails_leaves_the_answer(self) -> None:
        search = ThresholdSearch([bracket(high=20_000)])
        result = alone(search, lambda spec: "missed" if 250 <= spec.data_count < 400 else "passed")
        failing = alone(
            ThresholdSearch([bracket(high=20_000)]),
            lambda spec: "failed" if spec.data_count < 250 else "missed" if spec.data_count < 400 else "passed",
        )
        assert (result.verdict, result.lower) == ("non-monotone", 1)
        assert failing.verdict == "reached"
        assert 400 <= failing.threshold == result.threshold <= 420  # type: ignore[operator]

    def test_the_chase_above_failing_probes_is_bounded(self) -> None:
        rungs = ladder(1, 1000, 0, 0.05)
        start = Start(5, rungs.logs[5], 0.2)
        passed, missed = Outcome(True), Outcome(False)
        chased = {5: passed, **{10 + i: missed for i in range(CHASE)}, 40: passed}
        assert next_probe(chased, rungs, start) is None
        del chased[10]
        probe = next_probe(chased, rungs, start)
        assert probe is not None
        assert 10 + CHASE - 1 < probe.at < 40


class TestAccuracy:
    """What the accuracy of missed runs is good for, and that it does no harm where it is good for nothing."""

    @staticmethod
    def runs(threshold: float, accuracy: Callable[[RunSpec], float | None]) -> int:
        b = bracket(N=64, high=3000)
        search = ThresholdSearch([b])
        (result,) = search.answer(drive(search, step_at(threshold), accuracy=accuracy))
        if threshold > 3000:
            assert result.verdict == "none reached"
        else:
            assert result.lower is not None
            assert result.threshold is not None
            assert result.lower < threshold <= result.threshold
        return result.runs

    @pytest.mark.slow(1)
    def test_accuracies_on_a_line_save_probes_even_where_it_is_half_or_twice_as_steep(self) -> None:
        thresholds = [20 * 1.07**i for i in range(70)]
        blind = sum(self.runs(t, lambda spec: None) for t in thresholds) / 70
        steep = {slope: sum(self.runs(t, on_a_line(t, slope)) for t in thresholds) / 70 for slope in (1.25, 2.5, 5.0)}
        assert blind > 7
        assert steep[2.5] < blind - 1.5
        assert steep[5.0] < blind - 0.5
        assert steep[1.25] <= blind

    @pytest.mark.parametrize("shape", ["flat", "falling", "chance", "just short", "nothing"])
    def test_accuracies_off_every_line_cost_half_a_probe_on_average_and_three_at_most(self, shape: str) -> None:
        accuracy = {
            "flat": lambda spec: 0.3,
            "falling": lambda spec: 0.8 / (1 + spec.data_count / 500),
            "chance": lambda spec: random.Random(spec.data_count).uniform(0.1, 0.89),
            "just short": lambda spec: 0.899,
            "nothing": lambda spec: 0.0,
        }[shape]
        thresholds = [*(20 * 1.17**i for i in range(32)), 10**6]
        more = [self.runs(t, accuracy) - self.runs(t, lambda spec: None) for t in thresholds]
        assert sum(more) / len(more) < 0.5
        assert max(more[:-1]) <= 3
        assert more[-1] <= (5 if shape == "falling" else 3)  # where none passes, and accuracies rise downward, it goes down

    def test_what_one_bracket_teaches_serves_the_others(self) -> None:
        """A slope three times the usual one: the pilots pay for it, the other seeds do not."""
        brackets = [bracket(N, seed, high=4000) for N in (32, 40, 48, 56, 64) for seed in range(5)]
        search = ThresholdSearch(brackets)
        middle = {(b.template.N, b.template.seed): 0.3 * b.template.N**2 * 1.1**b.template.seed for b in brackets}
        rows = drive(
            search,
            lambda spec: step_at(middle[spec.N, spec.seed])(spec),
            accuracy=lambda spec: on_a_line(middle[spec.N, spec.seed], 7.5)(spec),
        )
        of = {(r.N, r.seed): r.runs for r in search.answer(rows)}
        assert of[32, 0] >= 6
        assert sum(of[N, seed] for N in (40, 48, 56, 64) for seed in range(1, 5)) / 16 < 4.5

    def test_diverged_runs_tell_nothing(self) -> None:
        b = bracket()

        def runs(accuracy: float | None) -> set[tuple[str, int]]:
            ending: Ending = lambda spec: "passed" if spec.data_count >= 50 else "diverged"  # noqa: E731
            return asked(drive(ThresholdSearch([b]), ending, accuracy=lambda spec: accuracy), b)

        assert runs(None) == runs(math.nan) == runs(0.5)

    def test_where_the_highest_run_diverges_a_search_goes_down_to_what_passes(self) -> None:
        def ending(spec: RunSpec) -> str:
            return "diverged" if spec.data_count > 1000 else "passed" if 40 <= spec.data_count <= 400 else "missed"

        def accuracy(spec: RunSpec) -> float | None:
            """Falls on either side of what passes; nothing is known of a run that diverged."""
            count = spec.data_count
            return None if count > 1000 else 0.9 * min(count / 40, 400 / count, 1.0) ** 0.5 + 0.02

        search = ThresholdSearch([bracket(seed=seed, high=20_000) for seed in (0, 1)])
        first, other = search.answer(drive(search, ending, accuracy=accuracy))
        assert (first.verdict, first.threshold) == ("non-monotone", None)
        assert (other.verdict, other.lower, other.threshold) == ("reached", 38, 40)

    def test_a_target_of_one_has_a_logit_too(self) -> None:
        b = Bracket(template=replace(bracket().template, target=1.0), task_version="1", counts=Counts(1, 200))
        search = ThresholdSearch([b])
        (result,) = search.answer(drive(search, step_at(77), accuracy=lambda spec: spec.data_count / 77))
        assert (result.lower, result.threshold) == (74, 77)


class TestIndependence:
    @pytest.mark.slow(1)
    def test_a_search_that_has_followed_every_row_is_as_one_that_begins_with_them(self) -> None:
        """Runs in any order, some of them failed and trained again, some proposals far ahead."""
        brackets = study()
        shuffle, search, rows, failed = random.Random(0), ThresholdSearch(brackets), Rows(), []
        for _ in range(400):
            if search.finished(rows) and not failed:
                break
            if failed and (search.finished(rows) or shuffle.random() < 0.5):
                spec = failed.pop()
                rows.add(row(spec, noisy(4, 0.1)(spec), on_a_line(150)(spec)))
            else:
                spec = shuffle.choice(search.propose(rows, 12))
                if shuffle.random() < 0.15:
                    failed.append(spec)
                rows.add(row(spec, "failed" if spec in failed else noisy(4, 0.1)(spec), on_a_line(150)(spec)))
            fresh, copy = ThresholdSearch(brackets), Rows(sorted(rows, key=lambda r: r["key"]))
            assert search.propose(rows, 12) == fresh.propose(copy, 12)
            assert search.propose(rows, 12, fill=3) == fresh.propose(copy, 12, fill=3)
            assert search.answer(rows) == fresh.answer(copy)
            assert search.finished(rows) == fresh.finished(copy)
        assert search.finished(rows)
        assert {r.verdict for r in search.answer(rows)} <= {"reached", "non-monotone"}

    def test_proposals_do_not_depend_on_the_order_of_rows(self) -> None:
        brackets = study()
        finished = drive(ThresholdSearch(brackets), noisy(3, 0.1), workers=5)
        everything = [r for b in brackets for r in finished.family(b.family).values()]
        shuffle = random.Random(0)
        one_search = ThresholdSearch(brackets)
        for _ in range(30):
            some = shuffle.sample(everything, shuffle.randint(0, len(everything)))
            first = one_search.propose(Rows(some), 12)
            shuffle.shuffle(some)
            assert ThresholdSearch(brackets).propose(Rows(some), 12) == first
            assert one_search.propose(Rows(some), 5) == first[:5]

    @pytest.mark.slow(2)
    @pytest.mark.parametrize("width", [0.01, 0.15, 0.5])
    def test_answers_are_the_same_for_any_workers_and_any_order_of_finishing(self, width: float) -> None:
        brackets = study()

        def answers(workers: int, chance: int) -> list[tuple[object, ...]]:
            search = ThresholdSearch(brackets)
            found = search.answer(drive(search, noisy(7, width), workers, chance))
            return [(r.family, r.verdict, r.threshold, r.lower, r.upper) for r in found]

        alone = answers(1, 0)
        for workers in range(1, 17):
            assert answers(workers, workers) == alone

    def test_without_speculation_the_runs_are_the_same_too(self) -> None:
        brackets = study()
        expected = asked(drive(ThresholdSearch(brackets), noisy(7, 0.15)), *brackets)
        for workers in (1, 2, 5, 16):
            search = ThresholdSearch(brackets, speculate=False)
            assert asked(drive(search, noisy(7, 0.15), workers, chance=workers), *brackets) == expected

    def test_workers_up_to_the_open_brackets_make_the_runs_of_one_worker(self) -> None:
        templates = [bracket(seed=seed).template for seed in range(6)]
        brackets = [Bracket(template=t, task_version="1", counts=Counts(1, 200), curve=f"curve {t.seed}") for t in templates]
        search = ThresholdSearch(brackets)
        expected = asked(drive(search, noisy(1, 0.15)), *brackets)
        for workers in (2, 4, 6):
            rows, shuffle = Rows(), random.Random(workers)
            while not search.finished(rows):
                open_now = sum(r.verdict == "open" for r in search.answer(rows))
                spec = shuffle.choice(search.propose(rows, min(workers, open_now)))
                rows.add(row(spec, noisy(1, 0.15)(spec)))
            assert asked(rows, *brackets) == expected

    def test_killed_and_resumed_equals_uninterrupted(self) -> None:
        brackets = study()
        whole = drive(ThresholdSearch(brackets), noisy(5, 0.15))
        for kill_after in range(0, len(whole), 4):
            rows, search = Rows(), ThresholdSearch(brackets)
            for _ in range(kill_after):
                (spec,) = search.propose(rows, 1)
                rows.add(row(spec, noisy(5, 0.15)(spec)))
            kept = Rows([r for b in reversed(brackets) for r in rows.family(b.family).values()])
            resumed = ThresholdSearch(brackets)
            assert asked(drive(resumed, noisy(5, 0.15), rows=kept), *brackets) == asked(whole, *brackets)
            assert resumed.answer(kept) == ThresholdSearch(brackets).answer(whole)


class TestGrowth:
    def test_larger_sizes_and_more_seeds_train_only_the_new_ones_and_a_smaller_size_others_too(self) -> None:
        """As the help of the study and docs/running.md say."""
        first, seeds = (24, 32, 48), (0, 1, 2)
        old: list[int] = []
        for bigger, more in (((*first, 64), seeds), (first, (*seeds, 3, 4)), ((16, *first), seeds), ((24, 32, 40, 48), seeds)):
            old.append(0)
            for chance in range(10):
                rows = drive(ThresholdSearch(study(first, seeds), speculate=False), noisy(chance, 0.1))
                before = asked(rows, *study(first, seeds))
                drive(ThresholdSearch(study(bigger, more), speculate=False), noisy(chance, 0.1), rows=rows)
                old[-1] += len(asked(rows, *study(first, seeds)) - before)
        assert old[:2] == [0, 0]
        assert min(old[2:]) > 0

    """`drive` itself asserts that no finished run is asked for again."""

    def test_an_added_seed_or_larger_size_trains_only_its_own_brackets(self) -> None:
        small = study()
        rows = drive(ThresholdSearch(small), noisy(2, 0.05))
        before = ThresholdSearch(small).answer(rows)
        had = asked(rows, *small)
        large = study(sizes=(16, 24, 32, 40), seeds=(0, 1, 2, 3))
        drive(ThresholdSearch(large), noisy(2, 0.05), rows=rows)
        assert asked(rows, *small) == had
        assert ThresholdSearch(small).answer(rows) == before

    def test_an_added_smaller_size_trains_little_but_its_own_brackets(self) -> None:
        """It changes what is expected of the larger ones, so that their walks differ: one or two more runs for each."""
        rows = drive(ThresholdSearch(study(sizes=(24, 32))), noisy(2, 0.0))
        before = len(asked(rows, *study(sizes=(24, 32))))
        drive(ThresholdSearch(study()), noisy(2, 0.0), rows=rows)
        assert len(asked(rows, *study(sizes=(24, 32)))) - before <= 9

    def test_a_finer_resolution_goes_on_where_the_coarser_ended(self) -> None:
        """No run of the coarser search is in vain: with it or without it, the finer one ends up with the same runs."""
        brackets = study()
        for chance in range(20):
            outcome = step_at(random.Random(chance).uniform(20, 200))
            rows = drive(ThresholdSearch(brackets, 0.05), outcome)
            coarse = asked(rows, *brackets)
            fine = ThresholdSearch(brackets, 0.0125)
            drive(fine, outcome, rows=rows)
            assert len(asked(rows, *brackets) - coarse) >= 9
            assert asked(rows, *brackets) == asked(drive(fine, outcome), *brackets)
            assert {r.verdict for r in fine.answer(rows)} == {"reached"}


class TestProposals:
    def test_idle_room_is_filled_with_different_runs_of_one_bracket(self) -> None:
        search = ThresholdSearch([bracket(high=5000)])
        for room in range(17):
            proposed = search.propose(Rows(), room)
            assert len({spec.data_count for spec in proposed}) == room
            assert proposed == search.propose(Rows(), 16)[:room]

    def test_a_lower_fill_leaves_out_guesses_never_runs_that_are_needed(self) -> None:
        search, rows = ThresholdSearch(study()), Rows()
        assert len(search.propose(rows, 8, fill=0)) == len(search.propose(rows, 8, fill=1)) == 1
        assert search.propose(rows, 8, fill=3) == search.propose(rows, 3)
        while any(r.verdict == "open" for r in search.answer(rows) if r.seed == 0):
            spec = search.propose(rows, 1)[0]
            rows.add(row(spec, step_at(60)(spec)))
        assert search.propose(rows, 8, fill=2) == search.propose(rows, 6), "six brackets are open"
        assert len(search.propose(rows, 8, fill=7)) == len(search.propose(rows, 7, fill=20)) == 7

    def test_no_run_is_proposed_twice_where_guesses_meet(self) -> None:
        proposed = ThresholdSearch([bracket(high=9)]).propose(Rows(), 20)
        assert len({spec.data_count for spec in proposed}) == len(proposed) == 9

    def test_three_workers_split_a_bracket_in_about_four_parts(self) -> None:
        b = bracket(high=5000)
        search, rows = ThresholdSearch([b]), Rows()
        while search.answer(rows)[0].lower is None or search.answer(rows)[0].upper is None:
            (spec,) = search.propose(rows, 1)
            rows.add(row(spec, step_at(900)(spec)))
        (result,) = search.answer(rows)
        assert result.lower is not None
        assert result.upper is not None
        span = math.log(result.upper / result.lower)
        parts = sorted(math.log(s.data_count / result.lower) / span for s in search.propose(rows, 3))
        assert parts == pytest.approx([0.25, 0.5, 0.75], abs=0.15)

    def test_needed_probes_of_all_open_brackets_come_first_pilots_then_large_sizes(self) -> None:
        search, rows = ThresholdSearch(study()), Rows()
        assert [(s.N, s.seed) for s in search.propose(rows, 3)] == [(16, 0)] * 3
        while any(r.verdict == "open" for r in search.answer(rows) if r.seed == 0):
            spec = search.propose(rows, 1)[0]
            rows.add(row(spec, step_at(60)(spec)))
        assert [(s.N, s.seed) for s in search.propose(rows, 6)] == [(32, 1), (32, 2), (24, 1), (24, 2), (16, 1), (16, 2)]
        assert len(search.propose(rows, 20)) == 20

    def test_followers_start_on_both_sides_of_their_pilot_and_a_pilot_on_the_power_law(self) -> None:
        brackets = [bracket(N, seed, high=8000) for N in (16, 32, 64) for seed in (0, 1, 2)]
        search, rows = ThresholdSearch(brackets), Rows()
        firsts: dict[tuple[int, int], int] = {}
        while not search.finished(rows):
            (spec,) = search.propose(rows, 1)
            firsts.setdefault((spec.N, spec.seed), spec.data_count)
            rows.add(row(spec, step_at(0.2 * spec.N**2)(spec)))
        found = {(r.N, r.seed): r.threshold for r in search.answer(rows)}
        for N in (16, 32, 64):
            assert 1.1 <= firsts[N, 1] / (found[N, 0] or 0) <= 1.42
            assert 0.77 <= firsts[N, 2] / (found[N, 0] or 0) <= 0.95
        assert firsts[32, 0] == pytest.approx(4 * (found[16, 0] or 0), rel=0.1)
        assert firsts[64, 0] == pytest.approx(0.2 * 64**2, rel=0.1)

    def test_the_prediction_scales_drawn_images_not_those_always_present(self) -> None:
        brackets = [bracket(N, 0, low=0, high=4000, fixed=10 * N) for N in (16, 32)]
        search, rows = ThresholdSearch(brackets), Rows()
        while (spec := search.propose(rows, 1)[0]).N == 16:
            rows.add(row(spec, step_at(100)(spec)))
        found = search.answer(rows)[0].threshold
        assert found is not None
        assert spec.data_count + 320 == pytest.approx(4 * found + 320, rel=0.12)

    @pytest.mark.slow(1)
    def test_a_thousand_brackets_stay_cheap(self) -> None:
        brackets = [bracket(N, seed, high=N * N) for N in range(16, 66, 2) for seed in range(40)]
        search, rows = ThresholdSearch(brackets), Rows()
        calls: list[float] = []
        for _ in range(400):
            began = time.process_time()
            proposed = search.propose(rows, 16)
            calls.append(time.process_time() - began)
            rows.add(row(proposed[0], step_at(0.1 * proposed[0].N ** 2)(proposed[0])))
        assert sorted(calls)[len(calls) // 2] < 0.002

    def test_unusable_plans_are_refused_in_words(self) -> None:
        with pytest.raises(ValueError, match="given twice"):
            ThresholdSearch([bracket(), bracket()])
        with pytest.raises(ValueError, match="no data counts to choose from at N = 16: 9 to 3"):
            ThresholdSearch([bracket(low=9, high=3)])
        with pytest.raises(ValueError, match="between 0 and 1"):
            ThresholdSearch([bracket()], resolution=5)


@pytest.mark.slow(6)
def test_intervals_hold_the_truth() -> None:
    """Simulated studies, a little noise; the 1,000 of the benchmark are slower."""
    plan = benchmark.brackets(sizes=(16, 32, 48))
    search = ThresholdSearch(plan)
    held = []
    studies = many(50, 200)
    for name in range(studies):
        world = benchmark.World(name, noise=0.05)
        rows, _ = benchmark.simulate(search, plan, world, 1, benchmark.real_duration)
        for line in summarise(benchmark.table(search.answer(rows))).itertuples():
            held.append(line.lower <= world.truth(line.N) <= line.upper)
    assert len(held) == 3 * studies
    assert sum(held) / len(held) >= 0.93


def test_a_single_run_far_off_its_line_makes_the_noise_no_larger_than_it_may() -> None:
    noise = learn([(math.log(1000), [(math.log(10), 0.0)])]).noise
    assert noise == pytest.approx(NOISE * math.sqrt((NOISE_WORTH + FARTHEST) / (NOISE_WORTH + 1)))


@pytest.mark.parametrize(("walk", "below"), [((80, 90, 100), None), ((300, 400), 155)])
def test_misses_far_above_a_foretold_threshold_may_be_bad_luck_and_call_for_a_run_below_them(
    walk: tuple[int, ...], below: int | None
) -> None:
    rungs = ladder(1, 2000, 0, 0.05)
    foretold = Start(rungs.nearest(math.log(100)), math.log(100), 0.2)
    missed = [rungs.nearest(math.log(count)) for count in walk]
    probe = probe_below({i: Outcome(False) for i in missed} | {missed[-1] + 1: Outcome(True)}, {}, rungs, foretold)
    assert (probe and rungs.counts[probe.at]) == below
    assert probe is None or probe.below
