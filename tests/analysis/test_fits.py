"""Summaries over seeds and power laws: numbers worked out by hand, and silence where there is nothing to say."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from analysis.alternatives import OFFS, broken_law
from analysis.fits import PowerLaw, fit_power_law, summarise
from orchestrator.searches.axes import Axes


def line(N: int, seed: int, total: float, lower: float | None = None, fixed: float = 0, **changes: object) -> dict[str, object]:
    upper = math.inf if math.isnan(total) else total
    return {
        "decoder": "cnn",
        "dataset": "random",
        "N": N,
        "seed": seed,
        "threshold": total - fixed,
        "lower": total if lower is None else lower,
        "upper": upper,
        "total_images": total,
        "verdict": "reached",
        "runs": 5,
        "steps": 1000,
        **changes,
    }


def frame(*lines: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(lines)


class TestSummarise:
    def test_geometric_mean_and_t_interval_widened_by_the_brackets(self) -> None:
        """Thresholds 50, 100, 200, each known to 5 %: s of the logs is log 2, t(2 df, 97.5 %) is 4.302653."""
        table = frame(*(line(16, seed, total, lower=0.95 * total) for seed, total in enumerate((50.0, 100.0, 200.0))))
        (row,) = summarise(table).to_dict("records")
        half = 4.302653 * math.log(2) / math.sqrt(3)
        assert row["total_images"] == pytest.approx(100)
        assert row["lower"] == pytest.approx(95 * math.exp(-half), rel=1e-6)
        assert row["upper"] == pytest.approx(100 * math.exp(half), rel=1e-6)
        assert (row["seeds"], row["reached"], row["runs"], row["steps"], row["note"]) == (3, 3, 15, 3000, "")

    @pytest.mark.parametrize(
        ("lower", "upper", "begins"),
        [(38, 48, 39), (0.5, 0.8, 0.5), (0.95, 1.0, 0.95), (3, 4, 4), (32, 32, 32)],
        ids=["whole numbers", "others", "one end whole", "next to each other", "nothing below"],
    )
    def test_seeds_that_end_alike_may_lie_anywhere_in_their_bracket(self, lower: float, upper: float, begins: float) -> None:
        """t(1 df, 97.5 %) is 12.706205."""
        (row,) = summarise(frame(*(line(16, seed, upper, lower=lower) for seed in range(2)))).to_dict("records")
        half = 12.706205 * math.log(upper / begins) / math.sqrt(12) / math.sqrt(2)
        assert row["total_images"] == pytest.approx(upper)
        assert (row["lower"], row["upper"]) == pytest.approx((lower * math.exp(-half), upper * math.exp(half)), rel=1e-6)

    def test_one_seed_gives_its_bracket_and_says_so(self) -> None:
        (row,) = summarise(frame(line(16, 0, 100, lower=96))).to_dict("records")
        assert (row["total_images"], row["lower"], row["upper"]) == pytest.approx((100, 96, 100))
        assert row["note"] == "one seed: only its bracket"

    def test_a_seed_that_never_reached_leaves_no_mean_and_no_upper_bound(self) -> None:
        censored = line(16, 2, math.nan, lower=200, verdict="none reached")
        (row,) = summarise(frame(line(16, 0, 100), line(16, 1, 100), censored)).to_dict("records")
        spread = math.log(2) / math.sqrt(3)
        lower = math.exp((2 * math.log(100) + math.log(200)) / 3 - 4.302653 * spread / math.sqrt(3))
        assert math.isnan(row["total_images"])
        assert row["upper"] == math.inf
        assert row["lower"] == pytest.approx(lower, rel=1e-6)
        assert (row["seeds"], row["reached"], row["note"]) == (3, 2, "2 of 3 reached")

    def test_failed_and_open_brackets_do_not_count_but_are_named(self) -> None:
        failed = line(16, 1, math.nan, lower=math.nan, verdict="failed")
        unfinished = line(16, 2, math.nan, lower=50, verdict="open")
        (row,) = summarise(frame(line(16, 0, 100), failed, unfinished)).to_dict("records")
        assert (row["total_images"], row["seeds"], row["runs"]) == (pytest.approx(100), 1, 15)
        assert row["note"] == "one seed: only its bracket; 1 failed; 1 open"
        (nothing,) = summarise(frame(failed)).to_dict("records")
        assert math.isnan(nothing["lower"])
        assert math.isnan(nothing["upper"])

    def test_equal_seeds_at_the_minimum_have_no_width(self) -> None:
        (row,) = summarise(frame(*(line(16, s, 32, fixed=32, verdict="minimum") for s in range(3)))).to_dict("records")
        assert (row["lower"], row["total_images"], row["upper"], row["note"]) == (32, 32, 32, "")

    def test_seeds_that_need_nothing_have_a_mean_of_0(self) -> None:
        table = frame(*(line(16, seed, 0, verdict="minimum") for seed in range(3)))
        (row,) = summarise(table).to_dict("records")
        assert (row["lower"], row["total_images"], row["upper"], row["note"]) == (0, 0, 0, "")
        (row,) = summarise(frame(line(16, 0, 0, verdict="minimum"), line(16, 1, 2, lower=1))).to_dict("records")
        assert row["total_images"] == 1  # half an image, and two

    def test_a_count_that_begins_high_is_said_to_hide_what_is_below(self) -> None:
        (row,) = summarise(frame(line(16, 0, 150), *(line(16, s, 150, verdict="minimum") for s in (1, 2)))).to_dict("records")
        assert row["note"] == "2 of 3 pass at the lowest data_count, so less may do"
        assert math.isnan(row["lower"]), "nothing is known of what is below"
        assert (row["total_images"], row["upper"]) == (150, 150)

    def test_one_row_per_curve_and_size_even_for_an_empty_table(self) -> None:
        table = frame(line(32, 0, 9), line(16, 0, 9), line(16, 0, 9, decoder="mlp"))
        assert summarise(table)[["decoder", "N"]].to_numpy().tolist() == [["cnn", 16], ["cnn", 32], ["mlp", 16]]
        empty = summarise(table.iloc[:0])
        assert len(empty) == 0
        assert list(empty.columns) == list(summarise(table).columns)


class TestPowerLaw:
    def test_an_exact_law_is_found_with_an_interval_of_no_width(self) -> None:
        """Stripes alone: 2N images whatever the seed."""
        table = frame(*(line(N, s, 2 * N, fixed=2 * N, verdict="minimum") for N in (16, 32, 64) for s in range(3)))
        law = fit_power_law(table)
        assert law.exponent == pytest.approx(1.0, abs=1e-12)
        assert law.prefactor == pytest.approx(2.0)
        assert law.lower is not None
        assert law.upper is not None
        assert law.upper - law.lower < 1e-12
        assert law.lower == pytest.approx(1.0, abs=1e-12)
        assert (law.sizes, law.points) == (3, 9)
        assert law.note == "the images that are always present are enough at every N; fewer of them were not tried"

    def test_a_threshold_of_zero_has_no_logarithm(self) -> None:
        law = fit_power_law(frame(*(line(N, s, N - 16) for N in (16, 32, 64) for s in range(3))))
        assert law.exponent is None
        assert law.note == "no exponent: some thresholds are 0, and 0 has no logarithm"

    def test_least_squares_by_hand(self) -> None:
        """Three sizes a factor 2 apart, log2 of the thresholds 4, 7, 8: slope 2, intercept 19/3 - 2 * 5."""
        law = fit_power_law(frame(line(16, 0, 2**4), line(32, 0, 2**7), line(64, 0, 2**8)))
        assert law.exponent == pytest.approx(2.0)
        assert law.prefactor == pytest.approx(2 ** (19 / 3 - 10))
        assert law.lower is None
        assert law.upper is None
        assert law.note == "one seed: no interval"

    def test_the_interval_through_two_sizes_is_that_of_the_t_distribution(self) -> None:
        """Of thresholds that are known exactly, it is the usual one of a regression: t(10 df, 97.5 %) = 2.2281."""
        assert self.beside_the_usual([16, 64], 2.2281) == pytest.approx((1, 1), abs=0.05)

    def test_whole_sizes_may_be_off_the_law_so_more_sizes_give_a_wider_one(self) -> None:
        """The usual one takes for granted that they are not: t(28 df, 97.5 %) = 2.0484."""
        below, above = self.beside_the_usual([16, 24, 32, 48, 64], 2.0484)
        assert 1.05 < below < 1.3
        assert 1.05 < above < 1.3

    @staticmethod
    def beside_the_usual(places: list[int], t: float) -> tuple[float, float]:
        """How far the ends of the interval are from the exponent, over that of a regression, from six seeds a size."""
        sizes = np.repeat(places, 6)
        totals = 0.3 * sizes**1.7 * np.exp(np.random.default_rng(1).normal(0, 0.2, len(sizes)))
        table = frame(*(line(int(N), i, total) for i, (N, total) in enumerate(zip(sizes, totals, strict=True))))
        law = fit_power_law(table)
        assert law == fit_power_law(table)
        x, y = np.log(sizes), np.log(totals)
        slope, height = np.polyfit(x, y, 1)
        sigma = math.sqrt(((y - height - slope * x) ** 2).sum() / (len(sizes) - 2))
        half = t * sigma / math.sqrt(((x - x.mean()) ** 2).sum())
        assert law.exponent is not None
        assert law.lower is not None
        assert law.upper is not None
        return (law.exponent - law.lower) / half, (law.upper - law.exponent) / half

    def test_wide_brackets_widen_the_interval(self) -> None:
        lines = [(N, s, 0.3 * N**1.7) for N in (16, 32, 64) for s in range(3)]
        narrow = fit_power_law(frame(*(line(N, s, t, lower=0.95 * t) for N, s, t in lines)))
        wide = fit_power_law(frame(*(line(N, s, t, lower=0.5 * t) for N, s, t in lines)))
        assert narrow.upper is not None
        assert narrow.lower is not None
        assert wide.upper is not None
        assert wide.lower is not None
        assert 0 < 5 * (narrow.upper - narrow.lower) < wide.upper - wide.lower

    def test_luck_that_all_seeds_of_a_size_share_widens_the_interval(self) -> None:
        """Each size lies 15 % above or below the law, its seeds within a percent of each other."""
        luck = {16: 1.15, 24: 0.87, 32: 1.15, 48: 0.87, 64: 1.15}
        thresholds = [(N, s, 0.3 * N**1.7 * luck[N] * (0.99, 1.0, 1.01)[s]) for N in luck for s in range(3)]
        law = fit_power_law(
            frame(*(line(N, s, t, lower=0.95 * t, tried=((0.95 * t, False), (t, True))) for N, s, t in thresholds))
        )
        assert law.lower is not None
        assert law.upper is not None
        assert law.lower < 1.55
        assert law.upper > 1.75

    def test_runs_that_are_known_count_and_brackets_alone_are_taken_at_their_word(self) -> None:
        thresholds = [(N, s, 0.3 * N**1.7 * (0.9, 1.0, 1.1)[s]) for N in (16, 24, 32, 48) for s in range(3)]

        def width(*tried: tuple[float, bool]) -> float:
            more = [{"tried": tuple((share * t, passed) for share, passed in tried)} if tried else {} for *_, t in thresholds]
            law = fit_power_law(frame(*(line(*o, lower=0.95 * o[2], **m) for o, m in zip(thresholds, more, strict=True))))
            assert law.lower is not None
            assert law.upper is not None
            return law.upper - law.lower

        near, far = ((0.95, False), (1.0, True)), ((0.5, False), (0.7, False), (0.8, False), (0.9, False), (1.2, True))
        assert width() == pytest.approx(0.351, abs=0.01)
        assert width(*near) > 1.1 * width()
        assert width(*near, *far) < 0.95 * width(*near)

    def test_images_always_present_count_in_the_total(self) -> None:
        """What was tried is in drawn images: with those always present it is the same as runs of so many images."""
        drawn, total = (
            [
                line(N, s, always + d, lower=always + 0.95 * d, fixed=fixed, tried=((0.95 * d + told, False), (d + told, True)))
                for N in (16, 24, 32, 48)
                for s, d in enumerate((0.2 * N**2, 0.22 * N**2, 0.24 * N**2))
                for always, fixed, told in ((2 * N, 2 * N * has_fixed, 2 * N * (not has_fixed)),)
            ]
            for has_fixed in (True, False)
        )
        law = fit_power_law(frame(*drawn))
        assert law == fit_power_law(frame(*total))
        assert law.upper is not None
        assert law.upper < 1.95

    def test_values_below_one_are_fitted_as_large_ones_are(self) -> None:
        """A rate of 0.004 has the interval that one of 4 has."""

        def law(unit: float) -> PowerLaw:
            thresholds = [(N, s, unit * N**0.5 * (0.9, 1.0, 1.1)[s]) for N in (16, 24, 32, 48) for s in range(3)]
            tried = [((0.8 * t, False), (0.95 * t, False), (t, True)) for *_, t in thresholds]
            lines = [line(*one, lower=0.95 * one[2], tried=runs) for one, runs in zip(thresholds, tried, strict=True)]
            return fit_power_law(frame(*lines), axes=Axes("rate"))

        small, large = law(0.001), law(1000.0)
        assert (small.lower, small.upper) == pytest.approx((large.lower, large.upper))
        assert small.exponent == pytest.approx(0.5)

    def test_the_exponent_without_each_size(self) -> None:
        """Sizes a factor 2 apart, log2 of the thresholds 4, 6, 8, 13."""
        law = fit_power_law(frame(*(line(N, 0, 2**t) for N, t in zip((16, 32, 64, 128), (4, 6, 8, 13), strict=True))))
        assert law.without == pytest.approx({"16": 3.5, "32": 20 / 7, "64": 43 / 14, "128": 2.0})
        assert fit_power_law(frame(*(line(N, 0, N**2) for N in (16, 32, 64)))).without == {}

    def test_a_step_between_two_sizes_is_found_and_measured(self) -> None:
        """Twice as many images from N = 40 on, seeds 5 % apart."""
        sizes = (16, 24, 32, 40, 48, 56)
        table = frame(*(line(N, s, N**1.8 * (0.95, 1, 1.05)[s] * (2 if N >= 40 else 1)) for N in sizes for s in range(3)))
        broken = fit_power_law(table).broken
        assert broken is not None
        assert (broken.last, broken.first) == (32, 40)
        assert broken.exponents == pytest.approx((1.8, 1.8))
        assert broken.step == pytest.approx(2.0)
        assert broken.is_better

    def test_two_laws_with_other_exponents_are_compared_where_they_break(self) -> None:
        """N^1.5 up to 32, and from 40 on N^2.5 three times as large as if both met at the geometric mean of these."""
        meet = (32 * 40) ** 0.5
        sizes = (16, 24, 32, 40, 48, 56)
        table = frame(*(line(N, 0, N**1.5 if N < 40 else 3 * N**2.5 / meet) for N in sizes))
        broken = fit_power_law(table).broken
        assert broken is not None
        assert (broken.last, broken.exponents) == (32, pytest.approx((1.5, 2.5)))
        assert broken.step == pytest.approx(3.0)

    def test_a_broken_law_by_hand(self) -> None:
        """Sizes a factor 2 apart, log2 of the thresholds 4, 6, 7, 14, 16, 17: slope 1.5 on both sides, 1/3 off in squares, and
        5.5 apart in the middle. A single line is off by 159 1/3 - 51^2 / 17.5."""
        law = fit_power_law(frame(*(line(2**x, 0, 2.0**y) for x, y in zip(range(4, 10), (4, 6, 7, 14, 16, 17), strict=True))))
        assert law.broken is not None
        assert law.broken.exponents == pytest.approx((1.5, 1.5))
        assert law.broken.prefactors == pytest.approx((2 ** (17 / 3 - 1.5 * 5), 2 ** (47 / 3 - 1.5 * 8)))
        assert law.broken.step == pytest.approx(2**5.5)
        assert law.broken.gain == pytest.approx(6 * math.log((478 / 3 - 51**2 / 17.5) * 3) - 3 * math.log(6))

    def test_a_single_law_pays_for_sizes_that_are_off_it_by_hand(self) -> None:
        """By generalized least squares: what a size is off by, all its seeds are off by. That is a number more."""
        sizes = np.repeat(2.0 ** np.arange(4, 10), 3)
        y = 1.5 * np.log(sizes) + np.repeat((0.3, -0.2, 0.1, 0.3, -0.4, 0.1), 3) + np.tile((-0.05, 0.0, 0.05), 6)
        broken = broken_law(sizes.tolist(), np.exp(y).tolist(), 0.0)
        assert broken is not None
        line = np.stack([np.ones(18), np.log(sizes)], axis=1)

        def single(off: float) -> float:
            covariance = np.eye(18) + off * (sizes[:, None] == sizes)
            root = np.linalg.cholesky(np.linalg.inv(covariance)).T
            squares = np.linalg.lstsq(root @ line, root @ y)[1][0]
            return float(18 * math.log(squares / 18) + np.linalg.slogdet(covariance)[1] + (math.log(18) if off else 0))

        apart = sum(np.linalg.lstsq(line[part], y[part])[1][0] for part in (sizes <= broken.last, sizes >= broken.first))
        least = min(map(single, OFFS))
        assert least < single(0.0)
        assert broken.gain == pytest.approx(least - 18 * math.log(apart / 18) - 3 * math.log(18))

    @pytest.mark.parametrize("last", [4, 8, 16])
    def test_of_all_breaks_the_one_that_fits_best_is_named(self, last: int) -> None:
        law = fit_power_law(frame(*(line(2**x, 0, 2 ** (1.5 * x + 3) * (3 if 2**x > last else 1)) for x in range(8))))
        assert law.broken is not None
        assert (law.broken.last, law.broken.first) == (last, 2 * last)
        assert law.broken.step == pytest.approx(3)

    def test_a_break_is_judged_beside_the_spread_of_what_lies_anywhere_in_its_bracket(self) -> None:
        """A number that lies anywhere between two others has their distance by the root of 12 as its standard deviation. Half
        of the numbers are known exactly, so the mean square is half of that."""
        draw = np.random.default_rng(0)
        size_of = {N: (2 if N > 16 else 1) * N**1.5 for N in (8, 12, 16, 24, 32, 48)}
        totals = [(N, s, total * math.exp(draw.normal(0, 0.02))) for N, total in size_of.items() for s in range(3)]
        law = fit_power_law(frame(*(line(N, s, total, lower=(0.9 if N > 16 else 1) * total) for N, s, total in totals)))
        sizes, values = [N for N, *_ in totals], [total for *_, total in totals]
        by_hand = broken_law(sizes, values, math.log(1 / 0.9) / math.sqrt(2 * 12))
        assert law.broken is not None
        assert by_hand is not None
        assert law.broken.gain == pytest.approx(by_hand.gain)

    def test_one_law_is_not_called_broken_and_too_few_sizes_cannot_break(self) -> None:
        def table(*sizes: int) -> pd.DataFrame:
            return frame(*(line(N, s, N**1.8 * (0.95, 1, 1.05)[(s + N // 8) % 3]) for N in sizes for s in range(3)))

        broken = fit_power_law(table(16, 24, 32, 40, 48, 56)).broken
        assert broken is not None
        assert not broken.is_better
        assert fit_power_law(table(16, 24, 32, 40, 48)).broken is None, "two sizes always lie on a law"

    @pytest.mark.parametrize(
        ("of_runs", "told"),
        [
            ((1.9, 2.1), "below what the runs say, 1.90 to 2.10"), ((1.5, 1.7), "above what the runs say, 1.50 to 1.70"),
            ((1.801, 1.9), ""), ((1.7, 1.796), ""), ((1.806, 1.9), "below what the runs say, 1.81 to 1.90"), ((1.7, 1.9), ""),
        ],
    )  # fmt: skip
    def test_an_interval_that_the_exponent_widens_is_told(
        self, of_runs: tuple[float, float], told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("analysis.fits.slope_interval", lambda *_: of_runs)
        law = fit_power_law(frame(*(line(N, s, N**1.8) for N in (16, 24, 32) for s in range(3))))
        assert (law.exponent, law.lower, law.upper) == pytest.approx((1.8, min(1.8, of_runs[0]), max(1.8, of_runs[1])))
        assert law.note == (f"the thresholds' exponent lies {told}, and widens the interval" if told else "")

    def test_no_interval_is_said_to_be_widened_by_errors_of_rounding(self) -> None:
        rows = [line(16, s, 32, fixed=32, verdict="minimum") | {"width": p} for p in (32, 64, 128) for s in range(3)]
        assert "widens" not in fit_power_law(frame(*rows), Axes(along="width")).note

    @pytest.mark.slow(2)
    def test_sizes_that_are_off_one_law_for_all_seeds_alike_are_seldom_called_a_break(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a tenth, where seeds differ by a twentieth. A step by a factor of 3 is a break."""
        monkeypatch.setattr("analysis.fits.slope_interval", lambda *_: (0.0, 9.0))  # it takes long, and is not asked for
        draw, sizes = np.random.default_rng(0), (16, 24, 32, 40, 48, 56, 64)

        def is_broken(step: float = 1.0) -> bool:
            off = dict(zip(sizes, np.exp(draw.normal(0, 0.1, len(sizes))), strict=True))
            law = {N: N**1.8 * off[N] * (step if N > 40 else 1) for N in sizes}
            table = frame(*(line(N, s, law[N] * math.exp(draw.normal(0, 0.05))) for N in sizes for s in range(3)))
            broken = fit_power_law(table).broken
            assert broken is not None
            return broken.is_better

        assert sum(is_broken() for _ in range(100)) <= 15
        assert sum(is_broken(3.0) for _ in range(20)) >= 10

    def test_a_smooth_curve_without_any_luck_is_not_called_broken(self) -> None:
        table = frame(*(line(N, s, 2 * N + 8) for N in range(16, 65, 8) for s in range(3)))
        broken = fit_power_law(table).broken
        assert broken is not None
        assert not broken.is_better

    def test_the_exponent_is_of_all_images_with_those_always_present(self) -> None:
        table = frame(*(line(N, s, 2 * N + N**2, fixed=2 * N) for N in (16, 32) for s in range(2)))
        assert fit_power_law(table).exponent == pytest.approx(math.log(1088 / 288) / math.log(2))

    def test_sizes_not_reached_by_every_seed_are_left_out_and_named(self) -> None:
        censored = line(64, 1, math.nan, lower=3000, verdict="none reached")
        table = frame(*(line(N, s, N**2) for N in (16, 32) for s in range(2)), line(64, 0, 1), censored)
        law = fit_power_law(table)
        assert law.exponent == pytest.approx(2.0)
        assert law.sizes == 2
        assert law.note == (
            "without N = 64: not every seed has a threshold; two grid sizes: a slope, not a fit; two seeds: no interval"
        )

    def test_sizes_that_no_seed_reached_are_told_from_those_that_some_did(self) -> None:
        censored = [line(N, s, math.nan, lower=N**2, verdict="none reached") for N in (40, 48) for s in range(3)]
        some = [line(32, 0, 900), *(line(32, s, math.nan, lower=1000, verdict="none reached") for s in (1, 2))]
        law = fit_power_law(frame(*(line(N, s, N) for N in (16, 20, 24) for s in range(3)), *some, *censored))
        assert law.exponent == pytest.approx(1.0)
        left_out = "without N = 32: not every seed has a threshold; without N = 40, 48: no seed has a threshold"
        assert law.note == f"{left_out}; at N = 32, 40, 48 more are needed than this law has"

    def test_sizes_at_which_a_seed_failed_stay_and_are_named(self) -> None:
        """Seed 2 needs three times the samples, and what it needs at N = 32 is more than memory holds."""
        lines = [line(N, s, N**2 * (3 if s == 2 else 1)) for N in (8, 16, 24) for s in range(3)]
        lines += [line(32, 0, 32**2), line(32, 1, 32**2), line(32, 2, math.nan, lower=math.nan, verdict="failed")]
        law = fit_power_law(frame(*lines))
        assert (law.sizes, law.points) == (4, 11)
        assert law.note == "at N = 32 a seed failed, and what remains there may be too low"
        lost = line(48, 0, math.nan, lower=math.nan, verdict="failed")
        without = fit_power_law(frame(*lines, lost))
        assert without.note == f"without N = 48: every seed that ended failed; {law.note}"
        assert (without.sizes, without.exponent) == (law.sizes, law.exponent)
        assert fit_power_law(frame(*lines[:9])).note == ""

    def test_thresholds_that_are_all_the_same_are_named(self) -> None:
        law = fit_power_law(frame(*(line(N, s, 2) for N in (4, 8, 16) for s in range(3))))
        assert (law.exponent, law.lower, law.upper) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
        assert law.note == "every threshold is the same"

    def test_sizes_at_which_one_sample_is_enough_hide_where_the_law_lies(self) -> None:
        """The law is (N / 16) ** 2 * (1 + seed / 10), and what it asks for is rounded up."""
        needed = {(N, s): math.ceil((N / 16) ** 2 * (1 + s / 10)) for N in (4, 8, 16, 32, 64, 128) for s in range(3)}
        lines = [line(N, s, n, verdict="minimum" if n == 1 else "reached") for (N, s), n in needed.items()]
        law = fit_power_law(frame(*lines))
        assert law.note == "without N = 4, 8, 16: the lowest data_count passes, and less cannot be tried"
        assert law.exponent == pytest.approx(2.0, abs=0.05)
        alone = fit_power_law(frame(*(one for one in lines if one["total_images"] == 1)))
        assert (alone.exponent, alone.lower) == (None, None)
        depths = [line(N, s, N / 4, verdict="reached") for N in (4, 8, 16) for s in range(3)]
        assert fit_power_law(frame(*depths), Axes("depth")).sizes == 3, "a depth of 1 that a smaller one misses"

    def test_seeds_very_far_apart_have_a_mean_and_an_endless_interval(self) -> None:
        (row,) = summarise(frame(line(16, 0, 1e-58), line(16, 1, 0.5)), Axes("lr")).to_dict("records")
        assert (row["total_images"], row["lower"], row["upper"]) == (pytest.approx(7.07e-30, rel=1e-3), 0, math.inf)

    def test_a_depth_of_0_has_nothing_below(self) -> None:
        (row,) = summarise(frame(*(line(16, s, 0, verdict="minimum") for s in range(3))), Axes("depth")).to_dict("records")
        assert (row["total_images"], row["lower"], row["upper"], row["note"]) == (0, 0, 0, "")

    @pytest.mark.parametrize(
        ("sizes", "seeds", "note"),
        [
            ((16, 32), 3, "two grid sizes: a slope, not a fit"),
            ((16, 32, 64), 2, "two seeds: no interval"),
            ((16, 32), 1, "two grid sizes: a slope, not a fit; one seed: no interval"),
            ((16, 32, 64), 3, ""),
        ],
    )
    def test_few_sizes_and_few_seeds_are_named(self, sizes: tuple[int, ...], seeds: int, note: str) -> None:
        law = fit_power_law(frame(*(line(N, s, N**2 * (1 + 0.1 * s)) for N in sizes for s in range(seeds))))
        assert law.exponent == pytest.approx(2.0)
        assert law.note == note
        assert (law.lower is None) == (law.upper is None) == (seeds < 3)

    def test_seeds_that_share_no_size_have_no_interval(self) -> None:
        law = fit_power_law(frame(*(line(N, s, N**2) for s, N in enumerate((16, 32, 64)))))
        assert (law.exponent, law.lower, law.note) == (2.0, None, "one seed at every grid size: no interval")

    def test_sizes_at_which_the_lowest_count_passes_are_no_thresholds(self) -> None:
        """The law is 10 N, and no fewer than 150 samples were tried."""
        sizes = (4, 8, 16, 32, 64)
        lines = [line(N, s, max(150, 10 * N), verdict="minimum" if N < 16 else "reached") for N in sizes for s in range(3)]
        law = fit_power_law(frame(*lines))
        assert (law.exponent, law.sizes) == (pytest.approx(1.0), 3)
        assert law.note == "without N = 4, 8: the lowest data_count passes, and less cannot be tried"

    def test_a_lowest_count_that_passes_is_taken_without_any_luck_whatever_its_walk_tried(self) -> None:
        def law(tried: object) -> PowerLaw:
            lowest = [line(N, s, 2 * N, fixed=2 * N, verdict="minimum", tried=tried) for N in (8, 16) for s in range(3)]
            larger = [line(32, s, 70 + 9 * s, lower=65 + 9 * s, fixed=64, tried=()) for s in range(3)]
            return fit_power_law(frame(*lowest, *larger))

        known, alone = law(((0, True), (2, True))), law(())
        assert known.sizes == 3
        assert known.lower is not None
        assert (known.lower, known.upper) == (alone.lower, alone.upper)

    def test_a_lowest_count_that_passes_hides_what_is_below_also_where_a_larger_one_misses(self) -> None:
        ends = {"verdict": "non-monotone", "fixed_images": 0, "tried": ((10, True), (20, False), (32, True))}
        lines = [line(N, s, 2 * N, lower=10, **ends if N == 16 else {}) for N in (16, 24, 32, 48) for s in range(3)]
        law = fit_power_law(frame(*lines))
        assert (law.sizes, law.note) == (3, "without N = 16: the lowest data_count passes, and less cannot be tried")
        (summed,) = summarise(frame(*lines[:3])).to_dict("records")
        assert (summed["total_images"], math.isnan(summed["lower"])) == (pytest.approx(32), True)
        assert summed["note"] == "3 of 3 pass at the lowest data_count, so less may do; 3 non-monotone"
        missed = [one | {"tried": ((10, False), (15, True), (20, False), (32, True))} for one in lines]
        crashed = [one | {"tried": ((15, True), (20, False), (32, True))} for one in lines]
        floor = [one | {"lower": 1, "tried": ((1, True), (20, False), (32, True))} for one in lines]
        fixed = [one | {"lower": 10, "fixed_images": 10, "tried": ((0, True), (10, False), (22, True))} for one in lines]
        assert [fit_power_law(frame(*of)).sizes for of in (missed, crashed, floor, fixed)] == [4, 4, 4, 4]
        drawn = [one | {"lower": 11, "fixed_images": 10, "tried": ((1, True), (10, False), (22, True))} for one in lines]
        assert fit_power_law(frame(*drawn)).sizes == 3, "beside ten images that are always present, one drawn is not the least"
        hidden = [one | {"lower": 20, "fixed_images": 10} for one in lines]
        assert fit_power_law(frame(*hidden)).sizes == 3, "with ten images always present, ten drawn ones are twenty"

    @pytest.mark.parametrize(("drawn", "sizes"), [(0, 3), (1, 0), (2, 0)])
    def test_one_drawn_image_that_passes_beside_others_hides_what_is_below(self, drawn: int, sizes: int) -> None:
        totals = [(N, s, 2 * N + drawn) for N in (16, 24, 32) for s in range(3)]
        law = fit_power_law(frame(*(line(N, s, total, fixed=2 * N, verdict="minimum") for N, s, total in totals)))
        assert law.sizes == sizes
        alone = fit_power_law(frame(*(line(N, s, max(drawn, 1), verdict="minimum") for N, s, _ in totals)))
        assert alone.sizes == 0

    @pytest.mark.parametrize(
        ("places", "totals", "exponent"),
        [
            ((2019, 2020, 2021, 2022), (120, 116, 112, 104), -93.77),
            ((1000, 1001, 1002), (100, 90, 80), -111.7),
            ((1000, 1001, 1002), (80, 90, 100), 111.7),
            ((2016, 2017, 2018, 2019, 2020, 2021), (160, 150, 140, 112, 104, 90), -242.1),
        ],
    )
    def test_places_far_from_1_and_close_together_have_an_exponent_and_no_prefactor(
        self, places: tuple[int, ...], totals: tuple[int, ...], exponent: float
    ) -> None:
        pairs = list(zip(places, totals, strict=True))
        law = fit_power_law(frame(*(line(N, s, total) for N, total in pairs for s in range(3))))
        assert (law.exponent, law.prefactor, law.broken) == (pytest.approx(exponent, rel=1e-3), None, None)
        assert law.lower is not None
        assert law.lower <= law.exponent

    @pytest.mark.parametrize("sizes", [(12, 16), (16, 24, 32, 40), tuple(range(16, 65, 8)), (12, 20, 28, 36, 44)])
    def test_rounding_does_not_push_the_estimate_out_of_its_interval(self, sizes: tuple[int, ...]) -> None:
        law = fit_power_law(frame(*(line(N, s, 2 * N, fixed=2 * N, verdict="minimum") for N in sizes for s in range(3))))
        assert (law.exponent, law.lower, law.upper, law.prefactor) == (1.0, 1.0, 1.0, 2.0)

    def test_brackets_of_unequal_width_do_not_push_the_estimate_out_of_its_interval(self) -> None:
        """The wide bracket of the smallest size makes the law look steeper than its upper ends, which are the estimate, do."""
        table = frame(*(line(N, s, 2 * N, lower=1.4 * N if N == 16 else 2 * N) for N in (16, 24, 32) for s in range(3)))
        law = fit_power_law(table)
        assert law.exponent == 1.0
        assert law.lower is not None
        assert law.upper is not None
        assert 0.7 < law.lower <= 1.0
        assert 1.2 < law.upper < 1.8

    def test_too_little_gives_no_exponent_and_says_why(self) -> None:
        one = fit_power_law(frame(line(16, 0, 50), line(16, 1, 60)))
        assert (one.exponent, one.note) == (None, "no exponent: this needs two grid sizes, and there is one")
        none = fit_power_law(frame(line(16, 0, math.nan, lower=math.nan, verdict="failed")))
        assert none.exponent is None
        assert none.note.endswith("failed; no exponent: this needs two grid sizes, and there are none")
