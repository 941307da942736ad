"""What the claims of the objectives study, and of those beside it, say of made runs: their numbers and verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.generator_claims import CLAIMS, Side
from analysis.generator_verdicts import FAIL, NOT_ENOUGH, PASS, Verdict
from analysis.generators import Peak
from analysis.measures.circuits import APART, PAIRS
from analysis.objectives import NAMES
from tests.analysis.made_objectives import (
    DIT,
    DIT_VAE,
    GIVT,
    INSIDE,
    LOOKS,
    MAR,
    MASKGIT,
    TOLD_LESS,
    Curve,
    answer_of,
    generator_row,
    helped,
    rows_of,
    seeds,
    spec_of,
    told_less,
    verdict,
    with_jepa,
)
from trainables.spec import RunSpec

pytestmark = pytest.mark.usefixtures("quick_oracle")
MASKED = {"dit": 0.6, "maskgit": 0.1, "givt": 0.4, "mar": 0.4}
"""Shares at level 2 that just pass."""
NAN = math.nan


@pytest.mark.parametrize(
    ("claim", "level2", "wanted", "numbers"),
    [
        ("tokenizer-does-not-decide", {"vae": 0.9, "dit": 0.75}, PASS, {"vae": 0.9, "vq": 0.75}),
        ("tokenizer-does-not-decide", {"vae": 0.9, "dit": 0.74}, FAIL, {"vae": 0.9, "vq": 0.74}),
        ("tokenizer-does-not-decide", {"vae": 0.74, "dit": 0.9}, FAIL, {"vae": 0.74, "vq": 0.9}),
        ("tokenizer-does-not-decide", {"vae": 0.6, "dit": 0.6}, PASS, {"vae": 0.6, "vq": 0.6}),
        ("tokenizer-does-not-decide", {"vae": 0.65, "dit": 0.59}, FAIL, {"vae": 0.65, "vq": 0.59}),
        ("tokenizer-does-not-decide", {"vae": 0.59, "dit": 0.65}, FAIL, {"vae": 0.59, "vq": 0.65}),
        ("continuous-beats-categorical", {"dit": 0.9, "maskgit": 0.1}, PASS, {"dit": 0.9, "maskgit": 0.1}),
        ("continuous-beats-categorical", {"dit": 0.65, "maskgit": 0.25}, PASS, {"dit": 0.65, "maskgit": 0.25}),
        ("continuous-beats-categorical", {"dit": 0.9, "maskgit": 0.26}, FAIL, {"dit": 0.9, "maskgit": 0.26}),
        ("continuous-beats-categorical", {"dit": 0.62, "maskgit": 0.25}, FAIL, {"dit": 0.62, "maskgit": 0.25}),
        ("continuous-beats-categorical", {"dit": 0.5, "maskgit": 0.0}, NOT_ENOUGH, {"dit": 0.5, "maskgit": 0.0}),
        ("masking-is-not-it", MASKED, PASS, MASKED),
        ("masking-is-not-it", {**MASKED, "givt": 0.39}, FAIL, {**MASKED, "givt": 0.39}),
        ("masking-is-not-it", {**MASKED, "mar": 0.39}, FAIL, {**MASKED, "mar": 0.39}),
        ("masking-is-not-it", {**MASKED, "maskgit": 0.11}, FAIL, {**MASKED, "maskgit": 0.11}),
        ("masking-is-not-it", {**MASKED, "dit": 0.59}, NOT_ENOUGH, {**MASKED, "dit": 0.59}),
    ],
)  # fmt: skip
def test_the_claims_about_where_level_2_ends(
    claim: str, level2: dict[str, float], wanted: str, numbers: dict[str, float]
) -> None:
    found = verdict(claim, rows_of(**level2))
    assert found.verdict == wanted, found.told
    assert found.numbers == pytest.approx(numbers)
    assert ("gate 5 is not met" in found.told) == (wanted == NOT_ENOUGH)
    assert found.unmet == ({5} if wanted == NOT_ENOUGH else set())


@pytest.mark.parametrize(
    ("claim", "about", "told"),
    [
        ("tokenizer-does-not-decide", {"vae": 0.65, "dit": 0.597}, "level 2 0.65 on vae, 0.597 on vq"),
        ("tokenizer-does-not-decide", {"vae": 0.597, "dit": 0.65}, "level 2 0.597 on vae, 0.65 on vq"),
        ("continuous-beats-categorical", {"dit": 0.9, "maskgit": 0.2531}, "level 2 0.90 of dit, 0.253 of maskgit"),
        ("continuous-beats-categorical", {"dit": 0.5971, "maskgit": 0.1}, "on the same tokens has level 2 0.597, under 0.6"),
        ("continuous-beats-categorical", {"dit": 0.646, "maskgit": 0.2495}, "0.65 of dit, 0.25 of maskgit, 0.397 less"),
        ("tokenizer-does-not-decide", {"vae": 0.804, "dit": 0.6501}, "0.80 on vae, 0.65 on vq, 0.154 apart"),
    ],
)
def test_a_share_that_misses_its_bound_does_not_read_like_it(claim: str, about: dict[str, float], told: str) -> None:
    found = verdict(claim, rows_of(**about))
    assert (found.verdict != PASS, told in found.told) == (True, True), found.told


def test_what_keeps_a_claim_from_a_verdict_does_not_read_like_its_bound() -> None:
    less = told_less(**{**TOLD_LESS, "both": 0.204})
    assert "0.204 with classes and dropout" in verdict("conditioning", [*rows_of(dit=0.9), *less]).told
    seen = [generator_row(one, seen=0.8462, level2=0.9) for spec in (DIT, MASKGIT) for one in seeds(spec)]
    told = "dit on vq draws 0.846 of what it has seen, under 0.85"
    assert verdict("continuous-beats-categorical", seen).told == told
    apart = [generator_row(one, level2=0.9, oracle2=0.9 - 0.0504) for one in seeds(DIT)]
    found = verdict("continuous-beats-categorical", [*apart, *rows_of(maskgit=0.1)])
    assert "the judges agree on 94.96% of the pictures, under 95%" in found.told


def side_of(**about: Sequence[float]) -> Side:
    """Runs with these numbers at the end: level 2, the seen ones or the Frechet distance, one of each run."""
    runs: list[Any] = []
    for numbers in zip(*about.values(), strict=True):
        of = dict(zip(about, numbers, strict=True))
        runs.append(SimpleNamespace(final=lambda level, judge, of=of: of[level], frechet=of.get("frechet")))
    return Side("side", runs)


@pytest.mark.parametrize(
    ("quantised", "full", "holds", "told"),
    [
        ((0.5, 0.7049, 0.75), (0.69, 0.7001, 0.71), False, "0.705 over a range of 0.25 if classes are told, 0.700 over 0.02"),
        ((0.6, 0.7, 0.7041), (0.6, 0.7, 0.7043), False, "0.70 over a range of 0.1041 if classes are told, 0.70 over 0.1043"),
        ((0.6, 0.7, 0.7043), (0.6, 0.7, 0.7041), True, "0.70 over a range of 0.1043 if classes are told, 0.70 over 0.1041"),
        ((0.4, 0.6, 0.7), (0.5, 0.6, 0.8), False, "0.60 over a range of 0.30 if classes are told, 0.60 over 0.30"),
        ((0.4, 0.6, 0.9), (0.6, 0.6 - 1e-15, 0.7), True, "0.60 over a range of 0.50 if classes are told, 0.60 over 0.10"),
        ((0.4, 0.12500001, 0.1), (0.1, 0.12499999, 0.2), True, "0.13 over a range of 0.30 if classes are told, 0.13 over 0.10"),
    ],
)
def test_medians_that_are_compared_do_not_read_alike_unless_they_are(
    quantised: Sequence[float], full: Sequence[float], holds: bool, told: str
) -> None:
    sides = {"dit, full": side_of(level2=full), "dit, quantised": side_of(level2=quantised)}
    found = CLAIMS["quantised-unstable"].rule(sides, "both")
    assert (found.holds, found.told) == (holds, f"level 2 {told} if values are")


def test_a_loss_at_several_layers_that_is_a_little_worse_does_not_read_like_the_other() -> None:
    def told(one: float, three: float) -> tuple[bool | None, str]:
        sides = {f"maskgit with jepa at {name}": side_of(level2=[share]) for name, share in
                 (("one layer", one), ("three layers", three))}  # fmt: skip
        found = CLAIMS["jepa-many-layers"].rule(sides, "both")
        return found.holds, found.told

    assert told(0.2703, 0.2698) == (False, "level 2 0.2698 with the loss at three layers, 0.2703 with it at one")
    assert told(0.27, 0.27) == (True, "level 2 0.27 with the loss at three layers, 0.27 with it at one")
    assert told(0.272, 0.29) == (True, "level 2 0.29 with the loss at three layers, 0.27 with it at one")
    assert told(0.07, 0.1) == (True, "level 2 0.10 with the loss at three layers, 0.07 with it at one")
    assert told(0.1, 0.07) == (False, "level 2 0.07 with the loss at three layers, 0.10 with it at one")
    nothing = "; both end under 0.1, so nothing is said of which helps more"
    assert told(0.0, 0.0) == (None, "level 2 0.00 with the loss at three layers, 0.00 with it at one" + nothing)
    assert told(0.07, 0.0998) == (None, "level 2 0.0998 with the loss at three layers, 0.07 with it at one" + nothing)


@pytest.mark.parametrize(
    ("about", "wanted", "told"),
    [
        ({}, PASS, "level 2 0.30 with the loss, 0.20 more than without (0.10), and 0.90 of dit; seen 0.90, 0.05 less than "
         "without (0.95); Frechet distance 2, 0% larger than without (2)"),
        ({"level2": 0.2496}, FAIL, "level 2 0.25 with the loss, 0.1496 more than without (0.10)"),
        ({"level2": 0.05}, FAIL, "level 2 0.05 with the loss, 0.05 less than without (0.10)"),
        ({"level2": 0.7203, "dit": 0.7198}, FAIL, "2 0.7203 with the loss, 0.62 more than without (0.10), and 0.7198 of dit"),
        ({"level2": 0.7198, "dit": 0.7203}, PASS, "2 0.7198 with the loss, 0.62 more than without (0.10), and 0.7203 of dit"),
        ({"level2": 0.9, "dit": 0.9 + 1e-9}, FAIL, "2 0.90 with the loss, 0.80 more than without (0.10), and 0.90 of dit"),
        ({"seen": 0.8996}, FAIL, "seen 0.90, 0.0504 less than without (0.95)"),
        ({"seen": 1.0}, PASS, "seen 1.00, 0.05 more than without (0.95)"),
        ({"frechet": 2.2049}, FAIL, "Frechet distance 2.2, 10.2% larger than without (2)"),
        ({"frechet": 2.2004}, FAIL, "Frechet distance 2.2, 10.02% larger than without (2)"),
        ({"frechet": 2.2}, PASS, "Frechet distance 2.2, 10% larger than without (2)"),
        ({"frechet": 1.5}, PASS, "Frechet distance 1.5, 25% smaller than without (2)"),
    ],
)  # fmt: skip
def test_what_the_loss_changes_is_told_beside_its_bound(about: dict[str, float], wanted: str, told: str) -> None:
    of = {"level2": 0.3, "seen": 0.9, "frechet": 2.0, "dit": 0.9} | about
    dit = side_of(level2=[of.pop("dit")])
    sides = {"maskgit": side_of(level2=[0.1], seen=[0.95], frechet=[2.0]), "dit": dit}
    found = CLAIMS["jepa-helps"].rule({**sides, "maskgit with jepa": side_of(**{n: [v] for n, v in of.items()})}, "both")
    assert (found.holds, told in found.told) == (wanted == PASS, True), found.told


def test_circuits_that_share_almost_as_much_one_factor_apart_as_two_do_not_read_alike() -> None:
    def told(two_apart: float) -> str:
        rows, inside = helped(jaccard=0.9)
        with_loss = {key for key, of in inside.items() if of["jaccard_000_001"] < 0.4}
        far = {f"jaccard_{a}_{b}": two_apart for a, b in APART["two_apart"]}
        found = verdict_of("jepa-circuits", rows, {key: of if key in with_loss else of | far for key, of in inside.items()})
        return f"{found.verdict}: {found.told.split('; ')[1].removeprefix('without the loss they share ')}"

    assert told(0.4004) == "fail: 0.4000 one factor apart and 0.4004 two apart"
    assert told(0.3996) == "pass: 0.4000 one factor apart and 0.3996 two apart"
    assert told(0.4) == "fail: 0.40 one factor apart and 0.40 two apart"
    assert told(0.3) == "pass: 0.40 one factor apart and 0.30 two apart"


@pytest.mark.parametrize(
    ("peak", "at", "holds", "told"),
    [
        (0.4996, 400, False, "0.0996 under its peak, 40% on the way, and with 0 of 3"),
        (0.7, 504, False, "0.30 under its peak, 50.4% on the way, and with 0 of 3"),
        (0.5, 500, True, "0.10 under its peak, 50% on the way, and with 3 of 3"),
    ],
)
def test_a_fall_that_just_does_not_count_does_not_read_like_its_bound(peak: float, at: int, holds: bool, told: str) -> None:
    spec = SimpleNamespace(max_steps=1000)
    run: Any = SimpleNamespace(final=lambda *_: 0.4, peak=lambda *_: Peak(peak, at), key="a", spec=spec)
    found = CLAIMS["categorical-forgets"].rule({"maskgit on vq": Side("maskgit on vq", [run] * 3)}, "both")
    assert (found.holds, found.told.split(" seeds")[0]) == (holds, f"level 1 ends {told}")


def test_a_fall_among_all_looks_does_not_read_like_its_bound_either() -> None:
    def peak(level: str, judge: str, whole: bool = False) -> Peak:
        return Peak(0.7, 504 if whole else 400)

    run: Any = SimpleNamespace(final=lambda *_: 0.4, peak=peak, key="a", spec=SimpleNamespace(max_steps=1000))
    found = CLAIMS["categorical-forgets"].rule({"maskgit on vq": Side("maskgit on vq", [run] * 3)}, "both")
    assert (found.holds, "it ends 0.30 under one at 50.4% (0 seeds)" in found.told) == (None, True)


def test_rises_that_differ_by_little_do_not_read_alike() -> None:
    def of(vae: float, vq: float) -> tuple[bool | None, str]:
        def side(took: float) -> Side:
            spec = SimpleNamespace(max_steps=10_000)
            run: Any = SimpleNamespace(rise=lambda *_: (0, took), final=lambda *_: 0.5, at=[1], key="a", spec=spec)
            return Side("dit", [run] * 3)

        found = CLAIMS["abrupt-on-vq"].rule({"dit on vae": side(vae), "dit on vq": side(vq)}, "both")
        return found.holds, found.told

    assert of(1002, 1004) == (False, "level 2 rises within 10.04% of the steps on vq, 10.02% on vae")
    assert of(3000, 1000) == (True, "level 2 rises within 10.0% of the steps on vq, 30.0% on vae")


def test_claims_are_numbered_in_their_order() -> None:
    assert [claim.number for claim in CLAIMS.values()] == list(range(1, len(CLAIMS) + 1))


@pytest.mark.parametrize("family", MASKED)
def test_every_side_of_a_claim_has_to_draw_what_it_has_seen(family: str) -> None:
    rows = [generator_row(one, level2=0.9 - 0.8 * (one.decoder == "maskgit"), seen=0.84 if one.decoder == family else 0.85)
            for spec in (DIT, MASKGIT, GIVT, MAR) for one in seeds(spec)]  # fmt: skip
    found = verdict("masking-is-not-it", rows)
    assert (found.verdict, found.told) == (NOT_ENOUGH, f"{family} on vq draws 0.84 of what it has seen, under 0.85")
    without = verdict("masking-is-not-it", [row for row in rows if row["decoder"] != family])
    assert (without.verdict, without.told) == (NOT_ENOUGH, f"there are no runs of {family} on vq")


@pytest.mark.parametrize(
    ("claim", "level2", "wanted", "numbers"),
    [
        ("conditioning", {"full": 0.6, "both": 0.2}, PASS, {"full": 0.6, "both": 0.2}),
        ("conditioning", {"full": 0.9, "both": 0.21}, FAIL, {"full": 0.9, "both": 0.21}),
        ("conditioning", {"full": 0.5, "both": 0.11}, FAIL, {"full": 0.5, "both": 0.11}),
        ("dropout-hurts", {"full": 0.8, "dropout": 0.5}, PASS, {"full": 0.8, "dropout": 0.5}),
        ("dropout-hurts", {"full": 0.8, "dropout": 0.51}, FAIL, {"full": 0.8, "dropout": 0.51}),
        ("conditioning", {"full": 0.1, "both": 0.0}, FAIL, {"full": 0.1, "both": 0.0}),
        ("conditioning", {"full": 0.09, "both": 0.0}, NOT_ENOUGH, {"full": 0.09, "both": 0.0}),
        ("dropout-hurts", {"full": 0.1, "dropout": 0.0}, FAIL, {"full": 0.1, "dropout": 0.0}),
        ("dropout-hurts", {"full": 0.09, "dropout": 0.0}, NOT_ENOUGH, {"full": 0.09, "dropout": 0.0}),
    ],
)
def test_the_claims_about_what_a_model_is_told(
    claim: str, level2: dict[str, float], wanted: str, numbers: dict[str, float]
) -> None:
    rows = [*rows_of(dit=level2["full"]), *told_less(**TOLD_LESS | {n: v for n, v in level2.items() if n != "full"})]
    found = verdict(claim, rows)
    assert (found.verdict, found.numbers) == (wanted, pytest.approx(numbers)), found.told
    assert {row["key"] for row in rows if row["options"]["conditioning"] in numbers} == set(found.runs)
    assert [one.claim for one in answer_of(rows, study="conditioning").verdicts] == [
        "conditioning", "dropout-hurts", "quantised-unstable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("full", "quantised", "wanted"),
    [
        ([0.8, 0.8, 0.9], [0.2, 0.7, 0.9], PASS),
        ([0.8, 0.8, 0.9], [0.7, 0.7, 0.75], FAIL),  # less, but steadier
        ([0.8, 0.8, 0.9], [0.2, 0.9, 0.9], FAIL),  # less steady, but more
        ([0.5, 0.75, 0.75], [0.25, 0.75, 0.75], PASS),  # no more
        ([0.5, 0.75, 0.75], [0.5, 0.75, 0.75], FAIL),  # as steady
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.25], NOT_ENOUGH),  # nothing composes
        ([0.0, 0.1, 0.1], [0.0, 0.0, 0.25], PASS),
    ],
)
def test_classes_are_told_less_well_than_values_if_seeds_differ_more(
    full: list[float], quantised: list[float], wanted: str
) -> None:
    rows = [
        generator_row(one, level2=share)
        for shares, conditioning in ((full, "full"), (quantised, "quantised"))
        for one, share in zip(seeds(spec_of("dit", "vq", conditioning=conditioning)), shares, strict=True)
    ]
    found = verdict("quantised-unstable", rows)
    assert found.verdict == wanted, found.told
    assert found.numbers == pytest.approx(
        {
            "full": sorted(full)[1], "full_range": max(full) - min(full),
            "quantised": sorted(quantised)[1], "quantised_range": max(quantised) - min(quantised),
        }
    )  # fmt: skip


def pairs_of(claim: str, full: Sequence[float], less: Sequence[float], oracle: Sequence[float] | None = None) -> Verdict:
    """Of a claim about what a model is told: level 2 by seed; by the oracle, and so by both, it may be otherwise with less."""
    other = {"dropout-hurts": "dropout", "quantised-unstable": "quantised", "conditioning": "both"}[claim]
    rows = [
        generator_row(one, level2=share, oracle2=by_oracle)
        for conditioning, shares, found in (("full", full, full), (other, less, oracle or less))
        for one, share, by_oracle in zip(seeds(spec_of("dit", "vq", conditioning=conditioning), len(full)), shares, found,
                                         strict=True)
    ]  # fmt: skip
    return verdict(claim, rows)


@pytest.mark.parametrize(
    ("claim", "full", "less", "luck", "told"),
    [
        ("dropout-hurts", [0.9] * 3, [0.1] * 3, 1 / 8, "12%"),
        ("conditioning", [0.9, 0.8, 0.7], [0.1, 0.2, 0.1], 1 / 8, "12%"),
        ("dropout-hurts", [0.9, 0.8, 0.85], [0.1, 0.2, 0.8], 2 / 8, "25%"),  # the third seed may be swapped
        ("dropout-hurts", [0.9] * 8, [0.1] * 8, 1 / 256, "0.4%"),
        ("quantised-unstable", [0.72, 0.75, 0.7, 0.7, 0.84, 0.52, 0.8, 0.88],
         [0.78, 0.72, 0.66, 0.63, 0.35, 0.51, 0.44, 0.59], 86 / 256, "34%"),
    ],
)  # fmt: skip
def test_a_verdict_tells_how_often_swapped_seeds_would_give_it(
    claim: str, full: list[float], less: list[float], luck: float, told: str
) -> None:
    found = pairs_of(claim, full, less)
    assert (found.verdict, found.luck) == (PASS, luck)
    words = f"; with the two sides swapped at random, seed by seed, it would pass as clearly in {told} of cases"
    assert (found.told.endswith(words), found.line.endswith(words)) == (True, True), found.told


def test_of_many_seeds_some_swaps_tell_how_often_they_would_give_a_verdict() -> None:
    full, less = [0.9] * 12, [*[0.1] * 8, *[0.8] * 4]  # four pairs that may be swapped
    found = pairs_of("dropout-hurts", full, less)
    assert found.luck is not None
    assert 1 / 1024 <= found.luck <= 0.012, "2^4 of 2^12 would be 0.4%"
    assert pairs_of("dropout-hurts", full, less) == found, "the same swaps"


def test_a_verdict_by_judges_that_differ_tells_the_larger_luck() -> None:
    found = pairs_of("dropout-hurts", [0.9, 0.8, 0.85], [0.1, 0.2, 0.8], [0.1, 0.2, 0.3])
    assert (found.verdict, found.luck) == (PASS, 2 / 8), "by the probe; by the oracle, and by both, it is 1 of 8"
    assert found.told.endswith("it would pass as clearly in 25% of cases by one of the judges")


def test_luck_is_told_of_what_passes_and_says_that_two_sides_differ() -> None:
    assert {name for name, claim in CLAIMS.items() if claim.tells_apart} == {
        "continuous-beats-categorical", "abrupt-on-vq", "conditioning", "dropout-hurts", "quantised-unstable",
        "jepa-many-layers", "jepa-heads", "jepa-circuits",
    }  # fmt: skip
    alike = verdict("tokenizer-does-not-decide", rows_of(vae=0.9, dit=0.9))
    assert (alike.verdict, alike.luck, "at random" in alike.told) == (PASS, None, False)
    failed = pairs_of("dropout-hurts", [0.9] * 3, [0.8] * 3)
    assert (failed.verdict, failed.luck, "at random" in failed.told) == (FAIL, None, False)
    answer = answer_of(rows_of(vae=0.9, dit=0.9, maskgit=0.1))
    assert {one["claim"]: one["luck"] for one in answer.to_json()["verdicts"]} == {
        "tokenizer-does-not-decide": None, "continuous-beats-categorical": 1 / 8, "masking-is-not-it": None,
        "categorical-forgets": None, "abrupt-on-vq": None,
    }  # fmt: skip


def test_sides_with_seeds_of_their_own_are_dealt_anew_to_see_what_luck_gives() -> None:
    slow, sudden = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.8, 0.8, 0.8, 0.8]

    def of(vae: int, vq: int) -> Verdict:
        rows = [generator_row(one, level2=slow) for one in seeds(DIT_VAE, vae)]
        return verdict("abrupt-on-vq", [*rows, *(generator_row(one, level2=sudden) for one in seeds(DIT, vq))])

    found = of(3, 3)
    assert (found.verdict, found.luck) == (PASS, 1 / 20)
    assert found.told.endswith("; with all runs dealt to the sides at random, it would pass as clearly in 5.0% of cases")
    assert of(3, 4).luck == 1 / 35
    assert of(8, 8).luck == 1 / 1024, "of 12,870 ways a thousand are drawn, beside the true one"


def test_the_range_of_more_seeds_is_compared_over_as_many_as_the_others_have() -> None:
    many = (0.8, 0.85, 0.75, 0.2, 1.0)
    rows = [
        generator_row(one, level2=share)
        for shares, conditioning in ((many, "full"), ((0.6, 0.8, 0.75), "quantised"))
        for one, share in zip(seeds(spec_of("dit", "vq", conditioning=conditioning), len(shares)), shares, strict=True)
    ]
    found = verdict("quantised-unstable", rows)
    assert found.numbers == pytest.approx({"full": 0.8, "full_range": 0.1, "quantised": 0.75, "quantised_range": 0.2})
    assert found.verdict == "pass"


@pytest.mark.parametrize(
    ("claim", "told"), [("conditioning", "both"), ("dropout-hurts", "dropout"), ("quantised-unstable", "quantised")]
)
def test_models_that_are_told_less_may_draw_less_of_what_they_have_seen(claim: str, told: str) -> None:
    def of(seen: float) -> Verdict:
        specs = seeds(spec_of("dit", "vq", conditioning=told))
        rows = [generator_row(one, seen=seen, level2=0.1 * one.seed) for one in specs]
        return verdict(claim, [*rows_of(dit=0.9), *rows])

    assert of(0.7).verdict == PASS
    assert (of(0.69).verdict, of(0.69).told) == (NOT_ENOUGH, f"dit, {told} draws 0.69 of what it has seen, under 0.7")


def test_models_that_are_told_less_are_no_part_of_the_claims_about_objectives() -> None:
    rows = [*rows_of(vae=0.9, dit=0.8), *told_less(**TOLD_LESS)]
    found = verdict("tokenizer-does-not-decide", rows)
    assert (found.verdict, found.about) == (PASS, "")
    assert set(found.runs) == {row["key"] for row in rows if row["options"]["conditioning"] == "full"}


def verdict_of(claim: str, rows: Sequence[Any], own: dict[str, dict[str, float]]) -> Verdict:
    [found] = answer_of(rows, study="jepa", own=own).verdicts_of(claim)
    return found


@pytest.mark.parametrize(
    ("about", "wanted"),
    [
        ({}, PASS),
        ({"level2": 0.25, "seen": 0.95, "frechet": 1.1}, PASS),
        ({"level2": 0.24}, FAIL),
        ({"seen": 0.94}, FAIL),
        ({"frechet": 1.11}, FAIL),
        ({"level2": 0.9}, FAIL),  # it is not below dit
        ({"dit": 0.3}, FAIL),
        ({"frechet": NAN}, NOT_ENOUGH),
    ],
)
def test_jepa_helps_if_more_is_composed_and_nothing_else_is_lost(about: dict[str, float], wanted: str) -> None:
    found = verdict_of("jepa-helps", *helped(**about))
    assert found.verdict == wanted, found.told


def test_several_layers_help_more_if_level_2_is_not_less() -> None:
    def of_layers(layers: str) -> list[dict[str, Any]]:
        specs = seeds(spec_of("maskgit", "vq", jepa=0.6, jepa_layers=layers, depth=4))
        return [generator_row(spec, level2=0.1) for spec in specs]

    assert verdict("jepa-many-layers", with_jepa(0.3, 0.3, depth=4)).verdict == PASS
    assert verdict("jepa-many-layers", with_jepa(0.3, 0.29, depth=4)).verdict == FAIL
    three = [row for row in with_jepa(0.3, 0.4, depth=4) if row["options"].get("jepa_layers", "three") == "three"]
    listed = verdict("jepa-many-layers", [*of_layers("2"), *three])
    assert listed.numbers == {"one": pytest.approx(0.1), "three": pytest.approx(0.4)}
    other = verdict("jepa-many-layers", [*of_layers("1+2"), *three])
    assert other.told == "there are no runs of maskgit with jepa at one layer"


def test_nothing_is_said_of_several_layers_where_nothing_is_composed_with_one_or_with_several() -> None:
    found = verdict("jepa-many-layers", with_jepa(0.07, 0.01, depth=4))
    assert (found.verdict, found.missing, found.luck) == (NOT_ENOUGH, False, None)
    assert found.numbers == pytest.approx({"one": 0.07, "three": 0.01})
    assert found.told.endswith("both end under 0.1, so nothing is said of which helps more")


@pytest.mark.parametrize(("depth", "wanted"), [(1, NOT_ENOUGH), (2, NOT_ENOUGH), (3, NOT_ENOUGH), (4, PASS)])
def test_three_layers_are_three_in_a_network_that_has_as_many_near_the_end(depth: int, wanted: str) -> None:
    found = verdict("jepa-many-layers", with_jepa(0.3, 0.4, depth=depth))
    assert found.verdict == wanted
    assert wanted == PASS or found.told == "there are no runs of maskgit with jepa at three layers"


@pytest.mark.parametrize(
    ("times", "wanted"),
    [({"overlap": 0.9}, PASS), ({"overlap_1": 0.9}, FAIL), ({"overlap": 1.1}, FAIL), ({"overlap_2": NAN}, NOT_ENOUGH)],
)
def test_heads_are_less_polysemantic_if_they_are_in_most_blocks(times: dict[str, float], wanted: str) -> None:
    found = verdict_of("jepa-heads", *helped(**times))
    assert found.verdict == wanted, found.told
    if wanted != NOT_ENOUGH:
        assert found.numbers["overlap_1_jepa"] == pytest.approx(0.5 * times.get("overlap_1", times.get("overlap", 1.0)))


def test_seeds_that_are_not_measured_are_left_out_while_three_remain() -> None:
    def of(unmeasured: int, claim: str = "jepa-heads", seed: int = 3) -> Verdict:
        rows = [
            generator_row(one, level2=share)
            for one, share in ((MASKGIT, 0.1), (spec_of("maskgit", "vq", jepa=0.6), 0.3), (DIT, 0.9)) for one in seeds(one, 4)
        ]  # fmt: skip
        lower = {**INSIDE, **{name: 0.9 * value for name, value in INSIDE.items() if name.startswith("overlap")}}
        inside = {row["key"]: lower if row["options"].get("jepa") else INSIDE for row in rows if row["decoder"] == "maskgit"}
        for row in [row for row in rows if row["decoder"] == "maskgit" and row["seed"] <= seed][:unmeasured]:
            inside[row["key"]] = {}
        return verdict_of(claim, rows, inside)

    whole, one, two = of(0), of(1), of(2)
    assert (whole.verdict, whole.seeds, len(whole.runs), whole.luck) == (PASS, 4, 8, 1 / 16)
    assert (one.verdict, one.seeds, len(one.runs), one.luck) == (PASS, 3, 6, 1 / 8)
    assert one.told == whole.told.replace("6.2%", "12%") + "; 1 of 4 seeds is not measured on all sides, and is left out"
    assert (two.verdict, two.seeds) == (NOT_ENOUGH, 4)
    assert two.told.startswith("no number is known of overlap_1")
    assert (of(1, "jepa-helps").verdict, of(1, "jepa-helps").seeds) == (PASS, 3)
    assert (of(0, "jepa-circuits").seeds, of(1, "jepa-circuits").seeds) == (4, 3)
    assert (of(2, "jepa-helps").verdict, of(0, "jepa-helps").seeds) == (NOT_ENOUGH, 4)


def test_a_change_in_the_other_direction_is_told_in_words() -> None:
    assert verdict("continuous-beats-categorical", rows_of(dit=0.65, maskgit=0.95)).told.startswith(
        "level 2 0.65 of dit, 0.95 of maskgit, 0.30 more; "
    )
    assert verdict("masking-is-not-it", rows_of(dit=0.9, maskgit=0.5, givt=0.9, mar=0.25)).told.startswith(
        "level 2 0.90 of givt, 0.25 of mar, 0.50 of maskgit, so 0.40 more and 0.25 less; "
    )
    less = ("conditioning", "both", "with classes and dropout"), ("dropout-hurts", "dropout", "with dropout")
    for claim, told, words in less:
        found = verdict(claim, told_less(full=0.5, **{told: 0.8}), study="conditioning")
        assert found.told.startswith(f"level 2 0.50 if all is told, 0.80 {words}, 0.30 more; ")


def test_what_is_not_known_of_the_seen_compositions_is_no_number() -> None:
    unknown = generator_row(seeds(DIT)[1], level2=0.9, seen=[math.nan] * LOOKS)
    unknown["curve_summary"]["agree_seen"] = [1.0] * LOOKS
    rows = [row if row["key"] != unknown["key"] else unknown for row in rows_of(dit=0.9, maskgit=0.1)]
    found = verdict("continuous-beats-categorical", rows)
    assert (found.verdict, found.numbers) == (NOT_ENOUGH, {})
    assert found.told.startswith("how much dit on vq draws of what it has seen is not known")


def test_circuits_come_apart_if_most_pairs_share_less_and_near_ones_shared_more() -> None:
    names = [f"jaccard_{a}_{b}" for a, b in PAIRS]
    assert verdict_of("jepa-circuits", *helped(**dict.fromkeys(names[:4], 0.9))).verdict == PASS
    assert verdict_of("jepa-circuits", *helped(**dict.fromkeys(names[:3], 0.9))).verdict == FAIL
    rows, inside = helped(jaccard=0.9)
    found = verdict_of("jepa-circuits", rows, inside)
    assert (found.verdict, found.numbers["lower"], found.numbers["one_apart"]) == (PASS, 6, pytest.approx(0.4))
    alike = {
        key: {**of, **{f"jaccard_{a}_{b}": of["jaccard_000_001"] for a, b in APART["two_apart"]}} for key, of in inside.items()
    }
    assert verdict_of("jepa-circuits", rows, alike).verdict == FAIL, "pairs that differ in two factors share as much"
    assert verdict_of("jepa-circuits", rows, {}).verdict == NOT_ENOUGH
    assert answer_of(rows, study="jepa", own={}).lacks == "what claims ask of the networks"
    assert answer_of(rows, study="jepa", own=inside).lacks == ""
    assert answer_of(rows, measured=None, study="jepa", own={}).lacks == "gate 3 and what claims ask of the networks"
    assert answer_of(rows, measured=None, own={}).lacks == "gate 3"


def test_runs_with_the_loss_are_no_part_of_claims_about_others() -> None:
    rows = [*rows_of(dit=0.8, maskgit=0.1), *with_jepa(0.9, 0.9)]
    found = verdict("continuous-beats-categorical", rows)
    assert (found.verdict, found.about) == (PASS, "")
    assert verdict("categorical-forgets", with_jepa(0.9, 0.9)).told == "there are no runs of maskgit on vq (without jepa)"


def test_a_claim_says_of_which_settings_there_are_no_runs_where_others_of_the_family_are_there() -> None:
    def lacks(claim: str, *specs: RunSpec) -> str:
        return verdict(claim, [generator_row(spec, level2=0.9) for spec in specs]).told.removeprefix("there are no runs of ")

    less = [spec_of("dit", tokenizer, conditioning="dropout") for tokenizer in ("vae", "vq")]
    wanted = "dit on vae (conditioning full) or of dit on vq (conditioning full)"
    assert lacks("tokenizer-does-not-decide", *less) == wanted
    assert lacks("tokenizer-does-not-decide", DIT, less[0]) == "dit on vae (conditioning full)"
    both = spec_of("dit", "vq", conditioning="dropout", jepa=0.6)
    assert lacks("tokenizer-does-not-decide", both) == "dit on vae or of dit on vq (conditioning full, without jepa)"
    assert lacks("tokenizer-does-not-decide", MASKGIT) == "dit on vae or of dit on vq"
    with_loss = spec_of("dit", "vq", jepa=0.6)
    assert lacks("dropout-hurts", with_loss) == "dit, full (without jepa) or of dit, dropout (without jepa)"
    assert lacks("dropout-hurts", DIT) == "dit, dropout"
    assert lacks("jepa-heads", spec_of("maskgit", "vq", jepa=0.6)) == "maskgit (without jepa)"
    assert lacks("jepa-heads", MASKGIT) == "maskgit with jepa"


def test_a_masked_model_forgets_if_level_1_peaks_early_and_falls() -> None:
    def of(level1: Curve, seen: Curve = 1.0) -> Verdict:
        return verdict("categorical-forgets", [generator_row(one, seen=seen, level1=level1) for one in seeds(MASKGIT)])

    early = [0.2, 0.8, 0.9, 0.8, *[0.7] * 6]
    assert of(early).verdict == PASS
    assert of(early).numbers == pytest.approx({"lost": 0.2, "peak_at": 0.3, "forget": 3})
    assert of(early).told == (
        "level 1 ends 0.20 under its peak, 30% on the way, and with 3 of 3 seeds at least 0.1 under one in the first half; "
        "needed: most seeds"
    )
    assert of([0.2, 0.8, 0.78, *[0.75] * 7]).verdict == FAIL
    assert of([0.2, 0.8, *[0.7] * 8]).verdict == PASS, "it ends 0.1 under its peak"
    assert of([0.2, 0.8, *[0.71] * 8]).verdict == FAIL
    assert of([*[0.5] * 4, 0.9, *[0.7] * 5]).verdict == PASS, "the first half ends with the fifth look of ten"
    assert of([*[0.5] * 5, 0.9, *[0.7] * 4]).verdict == FAIL, "the peak is in the second half"
    assert of(early, seen=0.84).verdict == NOT_ENOUGH
    assert "draws 0.84 of what it has seen" in of(early, seen=0.84).told
    late = [*[0.5] * 4, *[0.9] * 6]
    hidden = of(early, seen=late)
    assert hidden.verdict == NOT_ENOUGH, "its peak was before enough of what is seen was drawn"
    assert "it ends 0.20 under one at 30%" in hidden.told
    assert of([0.2, 0.8, 0.78, *[0.75] * 7], seen=late).verdict == FAIL, "a peak that would change nothing"


def test_a_masked_model_forgets_if_most_seeds_do_both() -> None:
    both, late, little = [0.9, 0.9, *[0.7] * 8], [*[0.7] * 6, 0.9, 0.7, 0.7, 0.7], [0.9, *[0.85] * 9]

    def of(*curves: Curve) -> Verdict:
        specs = seeds(MASKGIT, len(curves))
        return verdict("categorical-forgets", [generator_row(s, level1=c) for s, c in zip(specs, curves, strict=True)])

    one = of(both, late, little)
    assert one.numbers == pytest.approx({"lost": 0.2, "peak_at": 0.1, "forget": 1}), "the medians are of different seeds"
    assert (one.verdict, "and with 1 of 3 seeds at" in one.told) == (FAIL, True)
    assert of(both, both, little).verdict == PASS
    assert of(both, both, late, little).verdict == FAIL, "two of four are not most"
    assert of(both, both, both, little).verdict == PASS


def test_a_masked_model_that_never_draws_what_it_has_seen_hides_no_other() -> None:
    forgets, few = [0.9, 0.9, *[0.7] * 8], 0.80

    def of(seen: Sequence[Curve], rows: Sequence[Any] = ()) -> tuple[Verdict, list[Any]]:
        made = [generator_row(one, seen=of, level1=forgets) for one, of in zip(seeds(MASKGIT, len(seen)), seen, strict=True)]
        return verdict("categorical-forgets", made), made

    found, rows = of([1.0] * 12 + [few])
    assert (found.verdict, found.numbers) == (PASS, pytest.approx({"lost": 0.2, "peak_at": 0.1, "forget": 12}))
    assert found.told == (
        "level 1 ends 0.20 under its peak, 10% on the way, and with 12 of 12 seeds at least 0.1 under one in the first half; "
        "level 1 of maskgit on vq is at no look that counts with 1 of 13 seeds, which are left out; needed: most seeds"
    )
    assert (found.seeds, found.runs) == (12, tuple(row["key"] for row in rows[:12]))
    short, rows = of([1.0, 1.0, few])
    assert (short.verdict, short.numbers, short.seeds) == (NOT_ENOUGH, {}, 3)
    assert short.told == (
        "level 1 of maskgit on vq is at no look that counts with 1 of 3 seeds, so nothing is said of its peak"
    )


def test_level_2_comes_more_abruptly_on_codes_if_it_takes_fewer_steps_there() -> None:
    slow, sudden = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.8, 0.8, 0.8, 0.8]
    found = verdict("abrupt-on-vq", rows_of(vae=slow, dit=sudden))
    assert (found.verdict, found.numbers) == (PASS, pytest.approx({"vae": 0.7, "vq": 0.1}))
    assert verdict("abrupt-on-vq", rows_of(vae=sudden, dit=slow)).verdict == FAIL
    tie = verdict("abrupt-on-vq", rows_of(vae=sudden, dit=sudden))
    assert (tie.verdict, tie.numbers) == (NOT_ENOUGH, pytest.approx({"vae": 0.1, "vq": 0.1}))
    assert tie.told == (
        "level 2 rises within 10.0% of the steps on vq, 10.0% on vae; they are less than one look apart, which is "
        "10.0%"
    )
    longer = [*[0.0] * 4, 0.6, 0.7, *[0.8] * 4]  # one look more
    assert verdict("abrupt-on-vq", rows_of(vae=longer, dit=sudden)).verdict == PASS
    assert verdict("abrupt-on-vq", rows_of(vae=sudden, dit=longer)).verdict == FAIL
    mixed = [
        generator_row(one, level2=level2)
        for spec, curves in ((DIT_VAE, [sudden] * 4), (DIT, [sudden, sudden, longer, longer]))
        for one, level2 in zip(seeds(spec, 4), curves, strict=True)
    ]
    assert verdict("abrupt-on-vq", mixed).verdict == NOT_ENOUGH, "half a look, in the median"
    seen_late = {DIT: [*[0.5] * 8, 0.9, 0.9], DIT_VAE: 1.0}
    masked = [generator_row(one, seen=seen, level2=slow) for spec, seen in seen_late.items() for one in seeds(spec)]
    assert verdict("abrupt-on-vq", masked).verdict == NOT_ENOUGH, "the same curve, but for when the seen ones are drawn"
    never = verdict("abrupt-on-vq", rows_of(vae=slow, dit=0.05))
    assert never.verdict == NOT_ENOUGH
    assert never.told == "level 2 of dit on vq ends under 0.1 with 3 of 3 seeds, so nothing is said of its rise"


def test_a_seed_that_does_not_rise_hides_no_other() -> None:
    slow, sudden = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8], [0.0, 0.0, 0.0, 0.0, 0.0, 0.7, 0.8, 0.8, 0.8, 0.8]

    def of(vae: Sequence[Curve], vq: Sequence[Curve], seen: Curve = 1.0) -> Verdict:
        rows = [generator_row(one, level2=level2) for one, level2 in zip(seeds(DIT_VAE, len(vae)), vae, strict=True)]
        last = len(vq) - 1
        rows += [
            generator_row(one, level2=level2, seen=seen if place == last else 1.0)
            for place, (one, level2) in enumerate(zip(seeds(DIT, len(vq)), vq, strict=True))
        ]
        return verdict("abrupt-on-vq", rows)

    found = of([slow, slow, slow, 0.05, 0.0], [sudden] * 4)
    assert (found.verdict, found.numbers) == (PASS, pytest.approx({"vae": 0.7, "vq": 0.1}))
    assert found.told == (
        "level 2 rises within 10.0% of the steps on vq, 70.0% on vae; level 2 of dit on vae ends under 0.1 with 2 of "
        "5 seeds, which are left out; needed: fewer steps on vq; with all runs dealt to the sides at random, it would pass as "
        "clearly in 2.9% of cases"
    )
    assert found.luck == 1 / 35 == of([slow] * 3, [sudden] * 4).luck, "seeds that are left out make it no more certain"
    kept = {generator_row(one)["key"] for one in (*seeds(DIT_VAE, 3), *seeds(DIT, 4))}
    assert (found.seeds, set(found.runs), len(found.runs)) == (3, kept, 7)
    by_probe = [
        generator_row(one, level2=curve, oracle2=0.05 if one.seed == 3 else curve)
        for spec, curve in ((DIT_VAE, slow), (DIT, sudden)) for one in seeds(spec, 4)
    ]  # fmt: skip
    either = verdict("abrupt-on-vq", by_probe)
    assert (either.verdict, either.seeds, len(either.runs)) == (PASS, 4, 8), "what one judge leaves out, the other counts"
    few = of([slow, slow, slow], [sudden, sudden, 0.05])
    assert (few.verdict, few.numbers) == (NOT_ENOUGH, {})
    assert few.told == "level 2 of dit on vq ends under 0.1 with 1 of 3 seeds, so nothing is said of its rise"
    unseen = of([slow, slow, slow], [sudden, sudden, sudden], seen=[*[0.5] * 8, 0.8, 0.8])
    assert unseen.told == (
        "level 2 of dit on vq ends under 0.1, or is at no look that counts, with 1 of 3 seeds, so nothing is said of its rise"
    )


def test_runs_that_end_early_are_compared_with_nothing() -> None:
    """As those of the signal study do."""
    names = {**NAMES, "contrast": "contrast", "stop": "stop"}
    faint = [spec_of("maskgit", "vq", faint="colour", contrast=share) for share in (0.2, 0.5)]
    early = [generator_row(dataclasses.replace(one, stop="early", target=1.0), status="missed") for one in faint]
    both = answer_of([*early, *rows_of(maskgit=0.1)], names=names).verdicts_of("categorical-forgets")
    assert [(one.about, one.seeds) for one in both] == [("", 3)]
    [none] = answer_of(early, names=names).verdicts_of("categorical-forgets")
    assert (none.told, none.runs) == ("there are no runs of maskgit on vq", ())
