"""What the objectives study says of made runs: numbers of curves, gates, what a verdict needs, and the answer of a store."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from analysis import generators
from analysis.generator_claims import CLAIMS
from analysis.generator_verdicts import FAIL, NOT_ENOUGH, PASS, Verdict
from analysis.generators import Run, against, at_least, at_most, known_value, numbers_of
from analysis.objectives import NAMES, ONE_JUDGE, Answer, set_aside
from tests.analysis import made_objectives
from tests.analysis.made_objectives import (
    DIT,
    DIT_VAE,
    GIVT,
    GOOD,
    INSIDE,
    MAR,
    MASKGIT,
    TOLD_LESS,
    answer_of,
    generator_row,
    helped,
    parent_rows,
    rows_of,
    seeds,
    spec_of,
    told_less,
    verdict,
    with_jepa,
)
from trainables.generative.oracle import UNCLEAR
from trainables.generative.shapes import COMPOSITIONS, bits_of, level_of_each
from trainables.spec import RunSpec

pytestmark = pytest.mark.usefixtures("quick_oracle")
NAN = math.nan
ORACLE_READS = generators.oracle_reads


def run_of(spec: RunSpec = DIT, **about: Any) -> Run:
    return answer_of([generator_row(spec, **about)]).runs[0]


def test_the_end_of_a_curve_is_its_last_fifth_and_what_is_unseen_counts_once_the_seen_is_drawn() -> None:
    level2 = [0.9, 0.0, 0.05, 0.2, 0.4, 0.75, 0.6, 0.7, 0.7, 0.9]
    run = run_of(seen=[0.2, 0.6, *[0.9] * 8], level2=level2, level1=[0.1 * look for look in range(10)])
    assert run.final("level2", "both") == pytest.approx(0.8)
    assert run.final("seen", "both") == pytest.approx(0.9)
    assert run.peak("level2", "probe") == (0.9, 1000.0), "the first look drew none of the seen compositions"
    assert run.peak("seen", "probe") == (0.9, 300.0)
    assert run.rise("both") == (400.0, 600.0)  # 0.08 and 0.72 of the end
    assert run_of(level2=0.05).rise("both") == pytest.approx((NAN, NAN), nan_ok=True)
    blind = run_of(seen=0.3, level2=0.9)
    assert blind.peak("level2", "both") == pytest.approx((NAN, NAN), nan_ok=True)
    assert blind.rise("both") == pytest.approx((NAN, NAN), nan_ok=True)
    late = run_of(seen=[*[0.5] * 4, *[0.9] * 6], level2=[0.1 * look for look in range(10)])
    assert late.rise("both") == (200.0, 900.0), "it was under way at the first look that counts"
    accident = run_of(seen=[*[0.5] * 4, *[0.9] * 6], level2=[0.3, 0.0, 0.0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8])
    assert accident.rise("both") == (400.0, 700.0), "the first look was not the beginning"
    after = run_of(seen=[*[0.5] * 4, *[0.9] * 6], level2=[*[0.0] * 5, 0.2, 0.4, 0.8, 0.8, 0.8])
    assert after.rise("both") == (600.0, 800.0)
    assert late.peak("level1", "both", whole=True) == (1.0, 100.0)


@pytest.mark.parametrize(("looks", "last"), [(2, 1), (7, 1), (8, 2), (12, 2), (13, 3)])
def test_of_looks_that_five_does_not_divide_the_last_fifth_is_rounded(
    looks: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_objectives, "LOOKS", looks)
    level2 = [0.5 * (look >= looks - last) + 0.25 * (look == looks - last) for look in range(looks)]
    assert run_of(level2=level2).final("level2", "both") == pytest.approx(0.5 + 0.25 / last)
    nothing = Run.of({**generator_row(DIT), "curve_summary": None, "curve_step": []}, lambda key: None, {})
    assert math.isnan(nothing.final("seen", "both"))
    assert math.isnan(nothing.agreement)


def test_gates_are_held_against_what_a_run_stands_on() -> None:
    def gates(spec: RunSpec = DIT, dit: float = 0.7, **about: Any) -> list[bool | None]:
        (run,) = answer_of([generator_row(spec)], **about).runs
        return list(run.gates(dit).values())

    assert gates() == [True] * 5
    assert gates(read=0.98) == [False, True, True, True, True]
    assert gates(reconstructed=0.96) == [True, False, True, True, True]
    assert gates(measured=None) == [True, True, None, True, True]
    unseen = {"unseen_codes_111": 0.02, "unseen_pairs_111": 0.1, "unseen_images_111": 0.1}
    assert gates(measured=unseen)[2] is False
    assert gates(measured={**unseen, "unseen_codes_111": 0.01, "unseen_pairs_111": 0.21})[2] is False
    assert gates(measured={**unseen, "unseen_codes_111": 0.01, "unseen_pairs_111": 0.2})[2] is True
    assert gates(dit=0.59)[4] is False
    assert gates(dit=NAN)[4] is None
    assert gates(DIT_VAE, dit=0.1, measured=None) == [True] * 5, "continuous tokens have no codes"
    (run,) = answer_of([generator_row(DIT, level2=0.9, oracle2=0.8)]).runs
    assert run.gates(0.7)[4] is False
    alone = Run.of(generator_row(DIT), lambda key: None, {})
    assert [alone.gates(NAN)[gate] for gate in (1, 2, 3)] == [None, None, None]


def test_the_oracle_has_to_read_real_pictures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators, "oracle_reads", lambda *_: 0.98)
    assert run_of().gates(1.0)[1] is False


@pytest.mark.slow(1)
def test_the_oracle_reads_the_figures_of_the_tiers_but_none_of_a_pixel() -> None:
    figures = generators.figures_of(DIT)
    assert (figures.radius_small, figures.background) == (0.5, 1.0)
    assert ORACLE_READS(figures, 16) == 1.0
    small = dataclasses.replace(figures, radius_small=0.06, radius_large=0.3, centre_jitter=0.0)
    assert ORACLE_READS(small, 12, 16) < 0.9, "a figure of a pixel has no shape"


def test_the_oracle_reads_as_much_as_of_the_composition_that_it_reads_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = bits_of(COMPOSITIONS).repeat_interleave(4, 0)
    bits[-2:] = UNCLEAR  # half of 111
    monkeypatch.setattr(generators, "read_by_templates", lambda *_: SimpleNamespace(bits=bits))
    assert ORACLE_READS.__wrapped__(generators.figures_of(DIT), 16, 4) == 0.5


def test_the_control_of_a_masked_model_is_the_dit_on_its_own_tokens() -> None:
    other = spec_of("dit", "vq", codes=32)
    rows = [generator_row(DIT, level2=0.7), generator_row(other, level2=0.9), generator_row(MASKGIT, level2=0.1)]
    table = answer_of(rows).table
    assert table["dit_level2"].tolist() == pytest.approx([0.7, 0.9, 0.7])
    assert table["gate_5"].tolist() == ["met"] * 3
    longer = [generator_row(DIT, level2=0.7), generator_row(spec_of("maskgit", "vq", max_steps=2000), level2=0.1)]
    assert answer_of(longer).table["gate_5"].tolist() == ["met", ""], "another number of steps is no control"


GOOD_ROWS = rows_of(vae=[0.4, *[0.9] * 9], dit=0.85, maskgit=0.1)
ALL_ROWS = [
    *GOOD_ROWS, *rows_of(givt=0.8, mar=0.8), *told_less(quantised=0.5, dropout=0.2, both=0.1), *with_jepa(one=0.3, three=0.4),
    *with_jepa(one=0.3, three=0.4, depth=4),
]  # fmt: skip


@functools.cache
def all_rows_of(**shares: float) -> list[dict[str, Any]]:
    """The same runs with these shares."""
    return [generator_row(RunSpec.from_dict(row), **shares) for row in ALL_ROWS]


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_claim_has_a_verdict_where_a_gate_or_a_seed_is_missing(claim: str) -> None:
    inside = {row["key"]: INSIDE for row in ALL_ROWS}

    def verdict(claim: str, rows: Sequence[Any], **about: Any) -> Verdict:
        """The one that stands on most: claims about the loss have one for each of its settings."""
        return answer_of(rows, own=inside, **about).verdicts_of(claim)[0]

    assert verdict(claim, ALL_ROWS).verdict in (PASS, FAIL)
    two = [row for row in ALL_ROWS if row["seed"] < 2]
    assert verdict(claim, two).verdict == NOT_ENOUGH
    assert "has 2 finished seeds of 3" in verdict(claim, two).told
    for about, unmet, told in (
        ({"read": 0.9}, {1}, "gate 1 is not met by 3"),
        ({"reconstructed": 0.9}, {2}, "gate 2 is not met by 3"),
        ({"measured": None}, set(), "gate 3 is not known of 3"),
    ):
        found = verdict(claim, ALL_ROWS, **about)
        assert (found.verdict, told in found.told, found.unmet) == (NOT_ENOUGH, True, unmet), found.told
    diverged = [{**row, "status": "diverged"} if row["seed"] == 2 else row for row in ALL_ROWS]
    assert verdict(claim, diverged).verdict == NOT_ENOUGH
    assert verdict(claim, all_rows_of(seen=0.69, level2=0.9)).verdict == NOT_ENOUGH
    none = verdict(claim, [row for row in ALL_ROWS if row["decoder"] == "none"])
    assert (none.verdict, none.told.startswith("there are no runs of ")) == (NOT_ENOUGH, True)
    assert verdict(claim, all_rows_of(level1=NAN, level2=NAN)).verdict == NOT_ENOUGH
    assert verdict(claim, all_rows_of(level1=NAN, level2=NAN)).told.startswith("nothing is known of level ")


def test_seeds_that_diverged_are_told_with_the_verdict() -> None:
    rows = rows_of(dit=0.9, maskgit=0.1)
    more = [generator_row(one, status="diverged") for one in (*seeds(DIT, 2, first=3), *seeds(MASKGIT, 2, first=3))]
    trying = [generator_row(one, status="diverged") for one in seeds(DIT, 2, first=100)]
    plain = verdict("continuous-beats-categorical", rows)
    found = verdict("continuous-beats-categorical", [*rows, *more, *trying])
    assert (found.verdict, found.told) == (PASS, f"{plain.told}; 4 more diverged")
    assert found.line.endswith("; 4 more diverged")
    few = verdict("continuous-beats-categorical", [row for row in [*rows, *more] if row["seed"] > 0])
    assert few.told == "dit on vq has 2 finished seeds of 3; maskgit on vq has 2 finished seeds of 3; 4 more diverged"
    assert "diverged" not in plain.told
    single = verdict("continuous-beats-categorical", [row for row in rows if row["seed"] == 0])
    assert single.told == "dit on vq has 1 finished seed of 3; maskgit on vq has 1 finished seed of 3"


def test_seeds_by_which_settings_are_chosen_judge_nothing() -> None:
    specs = [one for spec in (DIT, MASKGIT) for one in seeds(spec, 3, first=100)]
    found = verdict("continuous-beats-categorical", [generator_row(one, level2=0.9) for one in specs])
    assert found.verdict == NOT_ENOUGH
    assert found.told == "dit on vq has 0 finished seeds of 3; maskgit on vq has 0 finished seeds of 3"


def test_judges_that_disagree_give_a_verdict_only_if_it_is_that_of_either() -> None:
    def of(probe: float, oracle: float) -> Verdict:
        rows = [generator_row(one, level2=probe, oracle2=oracle) for one in seeds(DIT)]
        rows += [generator_row(one, level2=0.1) for one in seeds(MASKGIT)]
        return verdict("continuous-beats-categorical", rows)

    close = of(0.9, 0.86)
    assert (close.verdict, close.numbers) == (PASS, pytest.approx({"dit": 0.86, "maskgit": 0.1}))
    same = of(0.9, 0.7)
    assert same.verdict == PASS
    assert "(the judges agree on 80% of the pictures, under 95%, but this by either); with the two" in same.told
    assert same.numbers["dit_probe"] == pytest.approx(0.9)
    assert same.numbers["dit_oracle"] == pytest.approx(0.7)
    other = of(0.9, 0.3)
    assert other.verdict == NOT_ENOUGH
    assert other.told.startswith("the judges agree on 40% of the pictures, under 95%, and differ: by probe: level 2 0.90")


def test_judges_have_to_agree_on_what_was_seen_and_on_the_level_of_the_claim() -> None:
    rows = rows_of(dit=0.9, maskgit=0.1)
    rows[0]["curve_summary"]["agree_seen"] = [0.8] * 10
    found = verdict("continuous-beats-categorical", rows)
    assert found.verdict == PASS
    assert "(the judges agree on 93% of the pictures, under 95%, but this by either)" in found.told, "the mean over the seeds"
    forgets = [0.2, 0.8, 0.9, 0.8, *[0.7] * 6]
    other = verdict("categorical-forgets", [generator_row(one, level1=forgets, oracle2=0.5) for one in seeds(MASKGIT)])
    assert (other.verdict, "agree" in other.told) == (PASS, False), "of level 2 it says nothing"


def test_settings_are_compared_that_are_alike_in_all_but_what_the_claim_is_about() -> None:
    on_codes = [spec_of(family, "vq", codes=codes) for family in ("dit", "maskgit") for codes in (16, 32)]
    specs = [spec_of("dit", "vae"), *on_codes, spec_of("maskgit", "vq", codes=32, smoothing=0.1)]
    rows = [generator_row(one, level2=0.1 if one.decoder == "maskgit" else 0.9) for spec in specs for one in seeds(spec)]
    answer = answer_of(rows, names={**NAMES, "codes": "codes", "smoothing": "smoothing"})
    found: dict[str, list[str]] = {}
    for one in answer.verdicts:
        found.setdefault(one.claim, []).append(one.about)
    assert found["tokenizer-does-not-decide"] == [
        "dit on vae against dit on vq, codes 16", "dit on vae against dit on vq, codes 32",
    ]  # fmt: skip
    assert found["continuous-beats-categorical"] == [
        "dit on vq, codes 16 against maskgit on vq, codes 16, smoothing 0.0",
        "dit on vq, codes 32 against maskgit on vq, codes 32, smoothing 0.0",
        "dit on vq, codes 32 against maskgit on vq, codes 32, smoothing 0.1",
    ]
    longer = [generator_row(one) for one in (*seeds(DIT), *seeds(spec_of("maskgit", "vq", max_steps=2000)))]
    unlike = verdict("continuous-beats-categorical", longer)
    assert unlike.told == "no runs of dit on vq and of maskgit on vq are alike in all other settings"


def abouts(claim: str, specs: Sequence[RunSpec], **names: str) -> list[str]:
    """The comparisons of a claim, of three seeds of each of these."""
    rows = [generator_row(one) for spec in specs for one in seeds(spec)]
    return [one.about for one in answer_of(rows, names={**NAMES, **names}).verdicts_of(claim)]


def test_a_setting_that_both_sides_use_is_equal_in_both_though_others_of_their_objectives_differ() -> None:
    masked = [spec_of(family, "vq", rounds=rounds) for family in ("maskgit", "givt", "mar") for rounds in (4, 8)]
    assert abouts("masking-is-not-it", [DIT, *masked], rounds="rounds") == [
        " against ".join([*(f"{family} on vq, rounds {rounds}" for family in ("maskgit", "givt", "mar")), "dit on vq"])
        for rounds in (4, 8)
    ]
    hot = [spec_of("maskgit", "vq", temperature=t, jepa=jepa) for t in (2.0, 4.5) for jepa in (0.0, 0.6)]
    assert abouts("jepa-helps", [DIT, *hot], temperature="temperature") == [
        f"maskgit on vq, temperature {t} against maskgit on vq, temperature {t} against dit on vq" for t in (2.0, 4.5)
    ]
    unlike = [DIT, MASKGIT, GIVT, spec_of("mar", "vq", ddim_steps=20)]
    found = verdict("masking-is-not-it", [generator_row(one) for spec in unlike for one in seeds(spec)])
    assert (found.verdict, found.missing) == (NOT_ENOUGH, True)
    assert found.told.endswith("and of dit on vq are alike in all other settings")


def test_seeds_of_the_same_tokens_are_compared_that_count_on_all_sides() -> None:
    def of(first: int, count: int = 3, **about: Any) -> Verdict:
        """Dit from seed 0 on, and maskgit from another one."""
        rows = [generator_row(one, level2=0.9) for one in seeds(DIT, count)]
        rows += [generator_row(one, level2=0.02 * one.seed) for one in seeds(MASKGIT, count, first)]
        return verdict("continuous-beats-categorical", rows, **about)

    told = "dit on vq has 3 seeds that count, maskgit on vq has 3, and they share 2, where 3 are asked for"
    found = of(first=1)
    assert (found.verdict, found.told, found.seeds, found.missing) == (NOT_ENOUGH, told, 2, True)
    found = of(first=1, count=4)
    assert (found.verdict, found.seeds) == (PASS, 3)
    assert found.numbers == pytest.approx({"dit": 0.9, "maskgit": 0.04}), "the median over seeds 1 to 3"
    assert of(first=0).seeds == 3
    assert (of(first=0, read=0.9).seeds, of(first=0, count=2).seeds) == (0, 2)
    rows = [generator_row(one, level2=0.9) for one in (*seeds(DIT_VAE), *seeds(DIT, first=3))]
    assert verdict("tokenizer-does-not-decide", rows).verdict == PASS, "two tokenizers, each with its own seeds"


@pytest.mark.parametrize(
    ("about", "missing"),
    [({"seen": 0.5}, False), ({"level2": 0.5}, False), ({"oracle2": 0.2}, False), ({"status": "diverged"}, True)],
)
def test_a_verdict_knows_whether_runs_are_missing_or_what_they_say(about: dict[str, Any], missing: bool) -> None:
    rows = [*rows_of(maskgit=0.1), *(generator_row(one, **{"level2": 0.9, **about}) for one in seeds(DIT))]
    found = verdict("continuous-beats-categorical", rows)
    assert (found.verdict, found.missing) == (NOT_ENOUGH, missing), found.told


def test_runs_are_missing_where_other_seeds_may_meet_the_gates() -> None:
    rows = rows_of(dit=0.9, maskgit=0.1)
    assert not verdict("continuous-beats-categorical", rows, read=0.9).missing, "no seed meets gate 1"
    for third, missing in (({**GOOD, "unseen_pairs_111": 0.3}, True), ({}, False)):
        own = {row["parents"]["tokenizer"]: third if row["seed"] == 2 else GOOD for row in rows}
        found = verdict("continuous-beats-categorical", rows, measured=None, own=own)
        assert (found.verdict, found.seeds, found.missing) == (NOT_ENOUGH, 2, missing), found.told


def test_a_store_of_any_studies_is_answered_by_all_its_generators() -> None:
    wide = [generator_row(one, level2=0.2) for one in seeds(spec_of("dit", "vq", width=64))]
    rows = [*GOOD_ROWS, *wide]
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row))]
    coverage = {row["parents"]["tokenizer"]: GOOD for row in rows}
    answer = Answer.of_store([*parents, *rows], coverage, {})
    assert set(answer.names) == {"decoder", "encoding", "width"}
    assert len(answer.runs) == 12
    found = {(one.claim, one.about): one.verdict for one in answer.verdicts if one.claim == "tokenizer-does-not-decide"}
    assert list(found.values()) == [PASS], "no vae has the other width"
    labels = [answer.label(spec) for spec in answer.by_setting]
    assert labels == ["dit on vae, width 32", "dit on vq, width 32", "dit on vq, width 64", "maskgit on vq, width 32"]
    assert Answer.of_store([], {}, {}).verdicts[0].verdict == NOT_ENOUGH


def test_runs_of_two_precisions_have_names_of_their_own() -> None:
    specs = {True: (DIT, MASKGIT), False: [dataclasses.replace(one, precision="bfloat16") for one in (DIT, MASKGIT)]}
    rows = [
        generator_row(one, level2=0.9 if spec.decoder == "dit" else 0.1 if good else 0.8)
        for good, pair in specs.items() for spec in pair for one in seeds(spec)
    ]  # fmt: skip
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row))]
    answer = Answer.of_store([*parents, *rows], {row["parents"]["tokenizer"]: GOOD for row in rows}, {})
    told = [f"dit on vq, precision {word} against maskgit on vq, precision {word}" for word in ("float32", "bfloat16")]
    found = {one.about: one.verdict for one in answer.verdicts_of("continuous-beats-categorical")}
    assert found == dict(zip(told, (PASS, FAIL), strict=True))


def test_a_comparison_is_named_by_what_differs_from_others_of_the_claim_and_told_once() -> None:
    def of(level2: float, spec: RunSpec, count: int = 3) -> list[dict[str, Any]]:
        return [generator_row(one, level2=level2) for one in seeds(spec, count)]

    longer = [dataclasses.replace(spec, max_steps=2 * spec.max_steps) for spec in (DIT, MASKGIT)]
    same = spec_of("dit", "vq", variance_scale=0.5)  # of givt, and means nothing to a dit
    rows = [*of(0.9, DIT), *of(0.7, same, 4), *of(0.1, MASKGIT), *of(0.9, longer[0]), *of(0.8, longer[1])]
    rows += of(0.5, spec_of("dit", "vae", channels=7))  # of no comparison of codes
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row))]
    answer = Answer.of_store([*parents, *rows], {row["parents"]["tokenizer"]: GOOD for row in rows}, {})
    found = {one.about: (one.verdict, one.numbers["dit"]) for one in answer.verdicts_of("continuous-beats-categorical")}
    assert found == {
        f"dit on vq, max steps {DIT.max_steps} against maskgit on vq, max steps {DIT.max_steps}": (PASS, 0.7),
        f"dit on vq, max steps {2 * DIT.max_steps} against maskgit on vq, max steps {2 * DIT.max_steps}": (FAIL, 0.9),
    }


@pytest.mark.parametrize("lost", [{"status": "diverged"}, {"status": "failed"}])
def test_of_comparisons_alike_but_for_keys_the_one_with_most_runs_that_count_is_told(lost: dict[str, Any]) -> None:
    same = spec_of("dit", "vq", smoothing=0.1)  # means nothing to a dit
    good = [generator_row(one, level2=0.9) for one in seeds(DIT)]
    rows = [*good, *(generator_row(one, level2=0.1) for one in seeds(MASKGIT))]
    more = [generator_row(one, level2=0.9, **lost) for one in seeds(same, 4)]
    for every in ([*rows, *more], [*more, *rows]):
        found = verdict("continuous-beats-categorical", every, names={**NAMES, "smoothing": "smoothing"})
        assert (found.verdict, found.numbers) == (PASS, pytest.approx({"dit": 0.9, "maskgit": 0.1}))


def test_which_of_two_alike_but_for_keys_is_told_does_not_hang_on_their_order() -> None:
    same = spec_of("dit", "vq", smoothing=0.1)  # means nothing to a dit
    dits = [[generator_row(one, level2=level2) for one in seeds(spec)] for spec, level2 in ((DIT, 0.9), (same, 0.8))]
    others = [generator_row(one, level2=0.1) for one in seeds(MASKGIT)]
    told = [
        verdict("continuous-beats-categorical", [*first, *others, *second], names={**NAMES, "smoothing": "smoothing"}).numbers
        for first, second in (dits, dits[::-1])
    ]
    assert told[0] == told[1]


def test_the_names_of_comparisons_take_no_time_that_grows_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr("analysis.objectives.known_value", lambda *about: looked.append(about) or known_value(*about))
    several = [spec_of("dit", "vq", input_scale=0.1 * n) for n in range(1, 9)]
    several += [spec_of("maskgit", "vq", smoothing=0.01 * n) for n in range(8)]
    names = {**NAMES, "input_scale": "input scale", "smoothing": "smoothing"}
    answer = answer_of([generator_row(spec) for spec in several], names=names)
    found = answer.verdicts_of("continuous-beats-categorical")
    assert len({one.about for one in found}) == len(found) == 64
    assert found[0].about == "dit on vq, input scale 0.1 against maskgit on vq, smoothing 0.0"
    assert len(looked) < 64 * 2 * 64


def test_a_share_at_its_bound_meets_it_in_single_precision() -> None:
    low, high = (struct.unpack("f", struct.pack("f", bound))[0] for bound in (0.95, 0.2))
    assert low < 0.95
    assert high > 0.2
    assert (at_least(0.95, low), at_most(0.2, high)) == (True, True)
    assert (at_least(0.95, 0.9499), at_most(0.2, 0.2001)) == (False, False)


def test_a_number_that_misses_its_bound_does_not_read_like_it() -> None:
    assert [against(0.6, share) for share in (0.5, 0.597, 0.59951, 0.6, 0.601, NAN)] == [
        "0.50", "0.597", "0.5995", "0.60", "0.60", "nan",
    ]  # fmt: skip
    assert [against(0.25, share, at_most) for share in (0.249, 0.2501, 0.26)] == ["0.25", "0.2501", "0.26"]
    assert [against(0.95, share, percent=True) for share in (0.9, 0.9484, 0.9496, 0.95)] == ["90%", "94.8%", "94.96%", "95%"]
    low = struct.unpack("f", struct.pack("f", 0.95))[0]
    assert against(0.95, low) == "0.95", "it is met in single precision"


def test_lines_about_gates_show_by_how_much_a_bound_is_missed() -> None:
    rows = rows_of(dit=0.5971, maskgit=0.1)
    rows[0]["curve_summary"]["agree_level1"] = [0.9461] * 10
    codes = {"unseen_codes_111": 0.0145, "unseen_pairs_111": 0.2004, "unseen_images_111": 0.4}
    lines = answer_of(rows, measured=codes, read=253 / 256, reconstructed=0.9699).lines()
    assert [line[line.index("(") :] for line in lines[:5]] == [
        "(probe real 0.988, oracle real 1.00 at worst)", "(probe tokens 0.9699, oracle tokens 1.00 at worst)",
        "(unseen codes 0.015, unseen pairs 0.2004, unseen images 0.40 at worst)", "(agree 0.946 at worst)",
        "(dit level2 0.597 at worst)",
    ]  # fmt: skip


def test_judges_that_agree_as_often_as_asked_in_single_precision_agree() -> None:
    rows = rows_of(dit=0.9, maskgit=0.1)
    for row in rows:
        row["curve_summary"]["agree_level2"] = [struct.unpack("f", struct.pack("f", 0.95))[0]] * 10
    found = verdict("continuous-beats-categorical", rows)
    assert (found.verdict, "agree" in found.told) == (PASS, False)


def test_the_runs_of_a_claim_without_enough_are_of_one_split() -> None:
    """Of maskgit most are of another split, but a figure of both could not order the compositions."""
    rows = [generator_row(one) for one in (*seeds(DIT, 2), *seeds(MASKGIT, 1))]
    others = [generator_row(one) for one in seeds(spec_of("maskgit", "vq", holdout="fail1"), 3)]
    found = verdict("masking-is-not-it", [*others, *rows])
    assert found.verdict == NOT_ENOUGH
    assert {*found.runs} == {row["key"] for row in rows}


def test_real_pictures_of_two_folders_have_names_of_their_own() -> None:
    about = [("celeba", "0" * 24), ("celeba", "1" * 24), ("shapes2d", "")]
    rows = [generator_row(spec_of("dit", "vae", dataset=name, content=content)) for name, content in about]
    answer = Answer.of_store(rows, {}, {})
    labels = {answer.label(spec) for spec in answer.by_setting}
    assert labels == {f"dit on vae, dataset {name}" + f", content {text}" * bool(text) for name, text in about}
    assert "content" not in Answer.of_store(rows[1:], {}, {}).names, "the data set says it"


@pytest.mark.parametrize("share", [7.0, -1.0, -0.01, 1.01, math.inf])
def test_a_share_that_none_can_have_is_counted_for_no_claim(share: float) -> None:
    good = rows_of(dit=0.9, maskgit=0.1)
    bad = generator_row(DIT, level2=[*[0.9] * 9, share])
    rows = [bad, *good[1:]]
    assert len(Answer.of_store(rows, {}, {}).runs) == 5
    assert set_aside(rows) == ["1 run of a generator has settings or curves that none can have, and no claim counts it"]
    assert set_aside([generator_row(DIT, level2=[NAN, 0.0, *[1.0] * 8])]) == []


def test_runs_of_a_verdict_are_those_that_it_counts() -> None:
    rows = rows_of(dit=0.9, maskgit=0.1)
    trying = [generator_row(one) for one in (*seeds(DIT, 1, 100), *seeds(MASKGIT, 1, 3))]
    found = verdict("continuous-beats-categorical", [*rows, *trying])
    assert (found.verdict, set(found.runs)) == (PASS, {row["key"] for row in rows})
    few = verdict("continuous-beats-categorical", [*rows[:2], *rows[3:], *trying])
    assert (few.verdict, len(few.runs)) == (NOT_ENOUGH, 7), "all, where too few count"


@pytest.mark.parametrize("split", ["fail1", "000,011,101,110"])
def test_a_split_without_level_2_is_told_where_claims_ask_for_it(split: str) -> None:
    specs = [spec_of(*kind, holdout=split) for kind in (("dit", "vae"), ("dit", "vq"), ("maskgit", "vq"))]
    rows = [generator_row(one) for spec in specs for one in seeds(spec)]
    for row in rows:
        row["curve_summary"] = {name: one for name, one in row["curve_summary"].items() if not name.endswith("level2")}
    far = [word for word, level in level_of_each(split).items() if level == 1]
    unseen = {f"unseen_{of}_{word}": 0.0 for of in ("codes", "pairs", "images") for word in far}
    answer = answer_of(rows, measured=unseen)
    told = {one.claim: (one.verdict, one.told, one.missing) for one in answer.verdicts}
    assert told["continuous-beats-categorical"] == (NOT_ENOUGH, "no composition is of level 2 in this split", False)
    assert told["tokenizer-does-not-decide"] == told["continuous-beats-categorical"]
    assert told["categorical-forgets"][0] == FAIL
    assert answer.lines()[4] == "gate 5, dit on the same codes composes: no composition is of level 2 in this split"
    two = answer_of([row for row in rows if row["seed"] < 2], measured=unseen)
    assert two.verdicts_of("continuous-beats-categorical")[0].told == told["continuous-beats-categorical"][1]


def test_a_store_is_answered_in_one_order_whichever_run_came_first() -> None:
    rows = [*rows_of(vae=0.7, dit=0.9, maskgit=0.1), *told_less(**TOLD_LESS)]
    answers = [Answer.of_store(found, {}, {}) for found in (rows, rows[::-1])]
    assert [run.key for run in answers[0].runs] == [run.key for run in answers[1].runs]
    assert list(answers[0].by_setting) == list(answers[1].by_setting)


def test_a_row_from_elsewhere_takes_no_other_row_its_verdict() -> None:
    rows = [*rows_of(vae=0.7, dit=0.9, maskgit=0.1)]
    newer = dataclasses.replace(MAR, options=(*MAR.options, ("of_a_newer_version", 2.0)))
    older = dataclasses.replace(GIVT, options=tuple((name, value) for name, value in GIVT.options if name != "conditioning"))
    odd = {**generator_row(GIVT), "holdout": "nonsense"}
    own = {row["parents"]["tokenizer"]: GOOD for row in rows}
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row))]
    without = Answer.of_store([*parents, *rows], own, {})
    answer = Answer.of_store([*parents, *rows, generator_row(newer), generator_row(older), odd], own, {})
    found = [[verdict.line for verdict in one.verdicts if PASS in verdict.line] for one in (without, answer)]
    assert found[0]
    assert found[0] == found[1]
    assert len(answer.table) == len(rows) + 2
    assert answer.label(newer) == "mar on vq, conditioning full, of a newer version 2.0"
    assert answer.label(older) == "givt on vq"
    assert set_aside([*rows, odd]) == [
        "1 run of a generator has settings or curves that none can have, and no claim counts it"
    ]
    assert set_aside([*parents, *rows]) == []


def test_what_is_measured_in_part_is_told_to_be_missing() -> None:
    rows, inside = helped()
    assert answer_of(rows, study="jepa", own=inside).lacks == ""
    for begins in ("frechet_", "overlap_"):
        part = {key: {name: n for name, n in own.items() if not name.startswith(begins)} for key, own in inside.items()}
        assert answer_of(rows, study="jepa", own=part).lacks == "what claims ask of the networks"


def test_a_row_with_an_impossible_list_of_layers_is_on_no_side() -> None:
    rows = [*rows_of(maskgit=0.1, dit=0.9), *with_jepa(0.2, 0.3, 1.0)]
    damaged = [row | {"options": row["options"] | {"jepa_layers": ""}} for row in rows if row["options"].get("jepa")]
    assert answer_of([*rows, *damaged[:1]], study="jepa").lines()


def test_lines_json_and_table_say_the_same() -> None:
    answer = answer_of(GOOD_ROWS, measured=None)
    lines = answer.lines()
    assert lines[:3] == [
        "gate 1, both judges read real pictures: met by 9 of 9 runs (probe real 1.00, oracle real 1.00 at worst)",
        "gate 2, both judges read reconstructions: met by 9 of 9 runs (probe tokens 1.00, oracle tokens 1.00 at worst)",
        "gate 3, codes of unseen pictures are known: met by 0 of 6 runs, not known of 6",
    ]
    assert lines[4] == "gate 5, dit on the same codes composes: met by 6 of 6 runs (dit level2 0.85 at worst)"
    unmet = answer_of(GOOD_ROWS, measured={**GOOD, "unseen_pairs_111": 0.3}, read=0.5).lines()
    assert unmet[0].endswith("met by 0 of 9 runs, not met by 9 (probe real 0.50, oracle real 1.00 at worst)")
    told = "met by 0 of 6 runs, not met by 6 (unseen codes 0.00, unseen pairs 0.30, unseen images 0.40 at worst)"
    assert unmet[2].endswith(told)
    assert [line.partition(":")[0] for line in lines[5:]] == [
        f"claim {c.number}, {name}" for name, c in CLAIMS.items() if c.study == "objectives"
    ]
    told = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert [(one["claim"], one["number"], one["verdict"]) for one in told["verdicts"]] == [
        (one.claim, CLAIMS[one.claim].number, one.verdict) for one in answer.verdicts
    ]
    assert told["runs"][8]["level2_both"] == pytest.approx(0.1)
    assert told["runs"][8]["unseen_pairs"] is None
    assert (told["runs"][0]["seed"], told["runs"][0]["rise_from"]) == (0, 100)
    assert Answer.of([], lambda key: None, {}, NAMES, {}).lines() == []
    assert Answer.of([], lambda key: None, {}, NAMES, {}).to_json()["runs"] == []


def test_real_pictures_are_judged_by_the_probe_alone_and_have_no_verdict() -> None:
    about = {"dataset": "celeba", "content": "0" * 24}
    settings = (("dit", "vae"), ("dit", "vq"), ("maskgit", "vq"))
    real = [generator_row(one, level2=0.8) for kind in settings for one in seeds(spec_of(*kind, **about))]
    answer = answer_of(real, measured=None)
    assert {one.verdict for one in answer.verdicts} == {NOT_ENOUGH}
    assert not any(run.needs_coverage for run in answer.runs)
    lines = answer.lines()
    assert lines[0].startswith("gate 1, both judges read real pictures: met by 0 of 9 runs, not known of 9 (probe real 1.00")
    assert lines[5] == ONE_JUDGE
    told = answer.to_json()["runs"][3]
    assert (told["level2_probe"], told["level2_both"]) == pytest.approx((0.8, 0.8))
    assert [told[name] for name in ("level2_oracle", "agree", "oracle_real", "oracle_tokens")] == [None] * 4
    assert ONE_JUDGE not in answer_of(GOOD_ROWS).lines()
    rows = [*real, *GOOD_ROWS]
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row))]
    both = Answer.of_store([*parents, *rows], {row["parents"]["tokenizer"]: GOOD for row in rows}, {})
    families = ("dit on vae", "dit on vq", "maskgit on vq")
    labels = [f"{family}, dataset {dataset}" for dataset in ("celeba", "shapes2d") for family in families]
    assert [both.label(spec) for spec in both.by_setting] == labels
    found = [one.verdict for one in both.verdicts if one.claim == "tokenizer-does-not-decide"]
    assert found == [NOT_ENOUGH, PASS], "real pictures are compared with real ones, and decide nothing"


def test_what_was_measured_of_tokens_is_found_by_their_run() -> None:
    rows = [
        {"key": "a", "measure": "tokens", "quantity": "unseen_pairs_111", "value": 0.1},
        {"key": "a", "measure": "tokens", "quantity": "originals", "value": None},
        {"key": "b", "measure": "images", "quantity": "unseen_pairs_111", "value": 0.3},
    ]
    assert numbers_of(rows) == {"a": {"unseen_pairs_111": 0.1}}


def test_gate_3_is_about_the_compositions_that_are_farthest_from_the_seen_ones() -> None:
    spec = dataclasses.replace(DIT, holdout="fail1")
    measured = {f"unseen_{of}_{word}": share for of in ("codes", "pairs", "images") for word, share in
                {"001": 0.0, "011": 0.3, "101": 0.1, "110": 0.0, "111": 0.9}.items()}  # fmt: skip
    index = {row["key"]: row for row in parent_rows(spec)}
    row = generator_row(spec)
    run = Run.of(row, index.get, {row["parents"]["tokenizer"]: measured})
    assert run.unseen == (0.3, 0.3, 0.3)


def test_gate_3_is_of_the_pictures_that_the_generator_has_seen_where_these_were_measured() -> None:
    row = generator_row(DIT)
    few = {f"unseen_{of}_111": share for of, share in (("codes", 0.0), ("pairs", 0.3), ("images", 1.0))}
    (run,) = answer_of([row], own={row["key"]: few}).runs
    assert (run.unseen, run.gates(NAN)[3]) == ((0.0, 0.3, 1.0), False)
    (run,) = answer_of([row], own={row["key"]: {"both_level2": 0.5}}).runs
    assert (run.unseen, run.gates(NAN)[3]) == ((0.0, 0.1, 0.4), True), "else of the pictures of its tokenizer"
    (run,) = answer_of([row], measured=None, own={row["key"]: few}).runs
    assert not run.needs_coverage
