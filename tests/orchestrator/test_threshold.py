"""The threshold search: exact where runs are monotone, honest where they are not, the same however the work was done."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.fits import summarise
from orchestrator.searches import Rows
from orchestrator.searches.probing import CHASE, Start, ladder, next_probe
from orchestrator.searches.threshold import Bracket, ThresholdResult, ThresholdSearch
from orchestrator.spec import RunSpec, family_key, run_key
from trainables.task import Counts

_spec = importlib.util.spec_from_file_location(
    "threshold_benchmark", Path(__file__).parents[2] / "benchmarks" / "threshold_search.py"
)
assert _spec is not None
assert _spec.loader is not None
benchmark = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = benchmark
_spec.loader.exec_module(benchmark)

Outcome = Callable[[RunSpec], str]


def bracket(N: int = 16, seed: int = 0, low: int = 1, high: int = 200, fixed: int = 0, **changes: object) -> Bracket:
    template = RunSpec(task="fake:Task", dataset="random", N=N, data_count=0, seed=seed, **changes)  # type: ignore[arg-type]
    return Bracket(template=template, task_version="1", counts=Counts(low, high, fixed))


def row(spec: RunSpec, status: str) -> dict[str, object]:
    key, family = run_key(spec, "1"), family_key(spec, "1")
    return {"key": key, "family": family, "data_count": spec.data_count, "status": status, "steps": 10}


def drive(search: ThresholdSearch, outcome: Outcome, workers: int = 1, chance: int = 0, rows: Rows | None = None) -> Rows:
    """Run a search to its end with runs that finish in random order."""
    rows = Rows() if rows is None else rows
    shuffle, running = random.Random(chance), {}
    while not search.finished(rows):
        for spec in search.propose(rows, workers):
            assert rows.get(run_key(spec, "1")) is None
            if len(running) < workers:
                running[run_key(spec, "1")] = spec
        spec = running.pop(shuffle.choice(sorted(running)))
        rows.add(row(spec, outcome(spec)))
    assert search.propose(rows, 8) == []
    return rows


def step_at(threshold: float) -> Outcome:
    return lambda spec: "passed" if spec.data_count >= threshold else "missed"


def noisy(chance: int, width: float, middle: float = 100.0) -> Outcome:
    """Every run has one random but fixed outcome, likelier to pass with more images."""

    def outcome(spec: RunSpec) -> str:
        luck = random.Random(f"{chance} {spec.N} {spec.seed} {spec.data_count}").random()
        scale = (spec.N / 16) ** 1.7 * (1 + 0.1 * spec.seed)
        return "passed" if math.log(max(spec.data_count, 0.5) / middle / scale) > width * math.log(1 / luck - 1) else "missed"

    return outcome


def alone(search: ThresholdSearch, outcome: Outcome) -> ThresholdResult:
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
        assert len(coarse.counts) == 42


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

    def test_divergence_counts_as_not_passed(self) -> None:
        diverging = alone(ThresholdSearch([bracket()]), lambda spec: "passed" if spec.data_count >= 50 else "diverged")
        assert diverging.lower is not None
        assert diverging.upper is not None
        assert diverging.verdict == "reached"
        assert diverging.lower < 50 <= diverging.upper

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

    def test_brackets_out_of_reach_cost_one_run_each_after_the_first(self) -> None:
        search = ThresholdSearch(study())
        rows = drive(search, step_at(10**6))
        results = search.answer(rows)
        assert {r.verdict for r in results} == {"none reached"}
        assert [r.runs for r in results[1:]] == [1] * 8

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
        """Passes only at 33 and from 60 on: the first probe is the lucky one, and all below fail."""
        start = ThresholdSearch([bracket()]).propose(Rows(), 1)[0].data_count
        assert start == 33
        result = alone(
            ThresholdSearch([bracket()]), lambda s: "passed" if s.data_count == 33 or s.data_count >= 60 else "missed"
        )
        assert (result.verdict, result.threshold, result.lower) == ("non-monotone", 60, 32)
        assert result.upper == 60

    def test_passing_below_a_failing_highest_count_is_no_threshold(self) -> None:
        result = alone(ThresholdSearch([bracket()]), lambda s: "passed" if s.data_count == 33 else "missed")
        assert (result.verdict, result.threshold, result.lower, result.upper) == ("non-monotone", None, 32, None)
        assert result.to_row()["upper"] == math.inf

    def test_never_contradicted_by_its_own_rows(self) -> None:
        """2,500 noisy curves, sequentially: no failing row at or above the threshold, no passing row at or below lower."""
        b = bracket(high=1000)
        search = ThresholdSearch([b])
        verdicts: dict[str, int] = {}
        for chance in range(2500):
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
        assert verdicts["non-monotone"] > 60
        assert verdicts["reached"] > 1500

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
        assert (after.threshold, after.lower, after.verdict) == (before.threshold, before.lower, before.verdict)

    def test_the_chase_above_failing_probes_is_bounded(self) -> None:
        rungs, start = ladder(1, 1000, 0, 0.05), Start(5, 0.25, 1.6)
        chased = {5: True, **{10 + i: False for i in range(CHASE)}, 40: True}
        assert next_probe(chased, rungs, start) is None
        del chased[10]
        probe = next_probe(chased, rungs, start)
        assert probe is not None
        assert 10 + CHASE - 1 < probe.at < 40


class TestIndependence:
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

    def test_an_added_smaller_size_trains_almost_only_its_own_brackets(self) -> None:
        rows = drive(ThresholdSearch(study(sizes=(24, 32))), noisy(2, 0.0))
        before = len(asked(rows, *study(sizes=(24, 32))))
        drive(ThresholdSearch(study()), noisy(2, 0.0), rows=rows)
        assert len(asked(rows, *study(sizes=(24, 32)))) - before <= 2

    def test_a_finer_resolution_goes_on_where_the_coarser_ended(self) -> None:
        """No run of the coarser search is in vain: with it or without it, the finer one ends up with the same runs."""
        brackets = study()
        for chance in range(20):
            outcome = step_at(random.Random(chance).uniform(20, 200))
            rows = drive(ThresholdSearch(brackets, 0.1), outcome)
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

    def test_three_workers_split_a_bracket_in_four_parts(self) -> None:
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
        assert parts == pytest.approx([0.25, 0.5, 0.75], abs=0.1)

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
            assert 1.15 <= firsts[N, 1] / (found[N, 0] or 0) <= 1.42
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

    def test_a_thousand_brackets_stay_cheap(self) -> None:
        brackets = [bracket(N, seed, high=N * N) for N in range(16, 66, 2) for seed in range(40)]
        search, rows = ThresholdSearch(brackets), Rows()
        calls: list[float] = []
        for _ in range(400):
            began = time.perf_counter()
            proposed = search.propose(rows, 16)
            calls.append(time.perf_counter() - began)
            rows.add(row(proposed[0], step_at(0.1 * proposed[0].N ** 2)(proposed[0])))
        assert sorted(calls)[len(calls) // 2] < 0.005

    def test_unusable_plans_are_refused_in_words(self) -> None:
        with pytest.raises(ValueError, match="given twice"):
            ThresholdSearch([bracket(), bracket()])
        with pytest.raises(ValueError, match="no data counts to choose from at N = 16: 9 to 3"):
            ThresholdSearch([bracket(low=9, high=3)])
        with pytest.raises(ValueError, match="between 0 and 1"):
            ThresholdSearch([bracket()], resolution=5)


def test_intervals_hold_the_truth() -> None:
    """200 simulated studies, a little noise; the 1,000 of the benchmark are slower."""
    plan = benchmark.brackets(sizes=(16, 32, 48))
    search = ThresholdSearch(plan)
    held = []
    for name in range(200):
        world = benchmark.World(name, noise=0.05)
        rows, _ = benchmark.simulate(search, plan, world, 1, benchmark.real_duration)
        for line in summarise(benchmark.table(search.answer(rows))).itertuples():
            held.append(line.lower <= world.truth(line.N) <= line.upper)
    assert len(held) == 600
    assert sum(held) / len(held) >= 0.93
