"""The stopping rule under audit: what it gives up is trained on before an answer rests on it, and one flip switches it off."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Sequence

import pytest

from analysis.scaling import Answer
from orchestrator.command.thresholds import bracket_text, outlier_text
from orchestrator.searches import Rows
from orchestrator.searches.audits import AUDITED, BUDGET, NEEDED, UNAUDITED, Curve, flip_bound, is_drawn
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from tests.conftest import many
from trainables.program import PATH as PROGRAM
from trainables.spec import GIVEN_UP, Counts, RunSpec, family_key, run_key

MAX_STEPS = 2000

Ending = Callable[[RunSpec], str]
"""How a run ends if nothing stops it: it passes `soon`, before the rule could give it up, `late`, or `never`. `slow`: never,
and the rule does not give it up. `nan`: never, and its loss is not finite in the end."""


def bracket(N: int = 16, seed: int = 0, high: int = 400, audits: int = 0, fixed: int = 0) -> Bracket:
    template = RunSpec(task="fake:Task", dataset="random", N=N, data_count=0, seed=seed, max_steps=MAX_STEPS)
    return Bracket(template=template, task_version="1", counts=Counts(1, high, fixed), audits=audits)


def study(sizes: Sequence[int] = (16, 24, 32), seeds: int = 3, audits: int = 0) -> list[Bracket]:
    return [bracket(N, seed, N * N * 2, audits) for N in sizes for seed in range(seeds)]


def row(spec: RunSpec, ending: str) -> dict[str, object]:
    status, reason, steps = {
        "soon": ("passed", "target", 100),
        "late": ("missed", GIVEN_UP, 200) if spec.stop == "early" else ("passed", "target", 1500),
        "never": ("missed", GIVEN_UP, 200) if spec.stop == "early" else ("missed", "budget", MAX_STEPS),
        "nan": ("missed", GIVEN_UP, 200) if spec.stop == "early" else ("diverged", "diverged", 900),
        "slow": ("missed", "budget", MAX_STEPS),
    }[ending]
    return {
        "key": run_key(spec, "1"), "family": family_key(spec, "1"), "data_count": spec.data_count, "status": status,
        "reason": reason, "steps": steps, "accuracy": None if status == "diverged" else 0.5, "stop": spec.stop, "N": spec.N,
        "seed": spec.seed,
    }  # fmt: skip


def drive(search: ThresholdSearch, ending: Ending, workers: int = 1, chance: int = 0, rows: Rows | None = None) -> Rows:
    """Run a search to its end with runs that finish in random order."""
    rows, running = Rows() if rows is None else rows, {}
    shuffle = random.Random(chance)
    while not search.finished(rows):
        for spec in search.propose(rows, workers):
            assert rows.get(run_key(spec, "1")) is None
            if len(running) < workers:
                running[run_key(spec, "1")] = spec
        spec = running.pop(shuffle.choice(sorted(running)))
        rows.add(row(spec, ending(spec)))
    assert search.propose(rows, 8) == []
    return rows


def answer(brackets: Sequence[Bracket], ending: Ending, stop: str, **how: int) -> list[ThresholdResult]:
    search = ThresholdSearch(brackets, stop=stop)
    return search.answer(drive(search, ending, **how))


def late_above(soon: float, late: float) -> Ending:
    """Passes soon from `soon` images on, late from `late` on; both grow with N and a little with the seed."""

    def ending(spec: RunSpec) -> str:
        scale = (spec.N / 16) ** 1.7 * (1 + 0.1 * spec.seed)
        return "soon" if spec.data_count >= soon * scale else "late" if spec.data_count >= late * scale else "never"

    return ending


def drawn(brackets: Sequence[Bracket]) -> list[int]:
    """Which of them are audited even of a supported rule."""
    return [i for i, b in enumerate(brackets) if is_drawn(b.family)]


def thresholds(results: Sequence[ThresholdResult]) -> list[tuple[object, ...]]:
    return [(r.N, r.seed, r.verdict, r.lower, r.threshold) for r in results]


def test_what_is_said_of_runs_counts_all_that_they_have_seen() -> None:
    """The images that are always present included, as in every table."""
    search = ThresholdSearch([bracket(fixed=64)])
    rows = drive(search, late_above(200, 60))
    (result,) = search.answer(rows)
    (told,) = re.findall("([0-9]+) samples: given up", result.rule.flips[0])
    assert int(told) - 64 in {row["data_count"] for row in rows if row["reason"] == GIVEN_UP}
    rows.add(row(bracket(fixed=64).at(300), "slow"))
    (result,) = search.answer(rows)
    assert outlier_text(result, "fake:Task") == "random, N = 16, seed 0: other runs, with 364 samples, contradict the threshold"
    assert result.to_row()["contradicted_by"] == "364"


def test_runs_that_pass_where_there_is_no_threshold_contradict_none() -> None:
    search = ThresholdSearch([bracket(fixed=64)])
    rows = drive(search, lambda spec: "never")
    (before,) = search.answer(rows)
    assert (before.verdict, before.threshold) == ("none reached", None)
    place, highest = "random, N = 16, seed 0:", before.tried[-1][0] + 64
    more = "More may make runs worse, or passing is a matter of luck: ask a range that ends near"
    rows.add(row(bracket(fixed=64).at(12), "soon"))
    (after,) = search.answer(rows)
    told = f"{place} another run, with 76 samples, passes although {highest} misses. {more} it (--between)"
    assert outlier_text(after, "fake:Task") == told
    rows.add(row(bracket(fixed=64).at(14), "soon"))
    rows.add(row(bracket(fixed=64).at(20), "soon"))
    (after,) = search.answer(rows)
    told = f"{place} other runs, with 76, 78 and 84 samples, pass although {highest} misses. {more} them (--between)"
    assert outlier_text(after, "fake:Task") == told
    assert outlier_text(after, PROGRAM).endswith("(--between or --counts)")
    assert (after.verdict, after.threshold, after.lower) == (before.verdict, None, before.lower)
    doubtful = dataclasses.replace(after, verdict="non-monotone", lower=before.tried[0][0])
    assert outlier_text(doubtful, "fake:Task") == told, "without a threshold the cell of this verdict is like it"
    assert bracket_text(doubtful, []).plain == f"> {doubtful.tried[-1][0]} ?"


def test_a_rule_that_was_wrong_once_stays_off_for_the_curve_whatever_further_audits_find() -> None:
    curve = Curve([0, 1], known=0)
    curve.take(0, {10: True})
    curve.take(1, {12: False})
    assert curve.off


def test_a_threshold_that_rests_on_a_rule_known_to_be_wrong_is_marked() -> None:
    """An audit of another size has found a mistake, and `early` goes by the rule all the same."""
    late = lambda spec: "soon" if spec.data_count > 0.3 * spec.N**2 else "late"  # noqa: E731
    rows = drive(ThresholdSearch(study((16,))), late)
    search = ThresholdSearch(study(), stop="early")
    results = search.answer(drive(search, late, rows=rows))
    assert {result.lower_ended for result in results if result.N > 16} == {UNAUDITED}
    assert bracket_text(results[-1], []).plain == f"{results[-1].threshold} *"
    [line] = [line for line in Answer.of_results(results, {"stop": "early"}).lines() if "was wrong here" in line]
    assert "6 of 6 lower bounds rest on it nevertheless" in line
    assert "is off" not in line


def test_a_run_whose_bracket_is_audited_in_the_place_of_another_may_be_when_it_begins() -> None:
    brackets = study(sizes=(16,), audits=NEEDED - 1)  # one audit is lacking, and of the first one nothing can be audited
    search, rows, audited = ThresholdSearch(brackets), Rows(), []
    while specs := search.propose(rows, 1, (), 1):
        (spec,) = specs
        if spec.stop != "early":
            audited.append((spec.seed, search.may_audit(dataclasses.replace(spec, stop="early"))))
        passes = spec.seed == 0 or spec.data_count >= 40
        rows.add(row(spec, "soon" if passes else "never"))
    assert audited
    assert all(seed > 0 and was_told for seed, was_told in audited)


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    stats = pytest.importorskip("scipy.stats")
    for n in (1, 30, NEEDED):
        assert flip_bound(n) == pytest.approx(stats.beta.ppf(0.95, 1, n))
    assert flip_bound(NEEDED) < 0.01 <= flip_bound(NEEDED - 1)
    assert flip_bound(0) == 1


@pytest.mark.parametrize("workers", [1, 6])
def test_an_audit_that_diverges_confirms_the_rule_and_asks_for_no_other_run(workers: int) -> None:
    """The accuracy of the run that was given up goes on guiding the walk, here and in searches that begin near its answer."""
    trained, ending = [], late_above(60, 60)
    for miss in ("never", "nan"):
        rows = drive(ThresholdSearch(study()), lambda spec, miss=miss: ending(spec).replace("never", miss), workers)
        trained.append(sorted((row["N"], row["seed"], row["data_count"], row["stop"]) for row in rows))
    assert trained[0] == trained[1]


class TestOneThreshold:
    def test_the_lower_bound_is_trained_to_the_end_before_the_answer_stands(self) -> None:
        search, rows = ThresholdSearch([bracket()], speculate=False), Rows()
        early = drive(ThresholdSearch([bracket()], speculate=False, stop="early"), late_above(100, 100))
        for finished in early:
            rows.add(finished)
        assert not search.finished(rows)
        (audit,) = search.propose(rows, 8)
        (result,) = search.answer(rows)
        assert audit.stop == "target"
        assert (result.verdict, result.threshold, result.audits_left, result.lower_ended) == ("open", None, 1, "")
        rows.add(row(audit, "never"))
        assert search.finished(rows)
        (result,) = search.answer(rows)
        assert (result.verdict, result.lower, result.lower_ended) == ("reached", audit.data_count, BUDGET)
        assert (result.rule.audits, result.rule.flips) == (1, ())
        trained_on = [one["steps"] for one in rows if one["stop"] == "early" and one["data_count"] == audit.data_count]
        assert result.runs == len(rows), "the audit is a run"
        assert result.steps == sum(one["steps"] for one in rows) - sum(trained_on), "which goes on where the first one ended"
        (unchecked,) = ThresholdSearch([bracket()], stop="early").answer(early)
        assert (unchecked.lower, unchecked.threshold, unchecked.lower_ended) == (result.lower, result.threshold, UNAUDITED)

    def test_a_full_run_whose_row_says_that_it_was_given_up_is_not_asked_for_for_ever(self) -> None:
        search, rows = ThresholdSearch([bracket()], speculate=False), Rows()
        ending = late_above(100, 100)
        while not search.finished(rows):
            (spec,) = search.propose(rows, 1)
            assert rows.get(run_key(spec, "1")) is None
            rows.add({**row(spec, ending(spec)), "stop": spec.stop})
        (result,) = search.answer(rows)
        (audit,) = [found for found in rows if found["stop"] == "target"]
        others = [found for found in rows if found["data_count"] != audit["data_count"]]
        rows = Rows([*others, {**audit, "reason": GIVEN_UP}])
        assert search.propose(rows, 8) == []
        assert search.finished(rows)
        (again,) = search.answer(rows)
        assert (again.verdict, again.lower, again.threshold) == (result.verdict, result.lower, result.threshold)

    def test_a_run_that_passes_late_is_found_and_the_answer_is_that_of_full_budgets(self) -> None:
        ending = late_above(200, 60)
        (wrong,) = answer([bracket()], ending, "early")
        (right,) = answer([bracket()], ending, "budget")
        (found,) = answer([bracket()], ending, "auto")
        assert wrong.lower is not None
        assert right.threshold is not None
        assert found.threshold is not None
        assert wrong.lower > 150
        assert right.threshold - 3 <= 60 <= right.threshold
        assert thresholds([found]) == thresholds([right])
        assert found.lower_ended == right.lower_ended == BUDGET
        assert found.rule.flips
        assert "given up at step 200, passed at step 1500" in found.rule.flips[0]

    def test_a_highest_count_that_was_given_up_is_trained_to_the_end(self) -> None:
        (result,) = answer([bracket()], late_above(10**6, 10**6), "auto")
        assert (result.verdict, result.lower, result.lower_ended) == ("none reached", 400, BUDGET)
        (late,) = answer([bracket()], late_above(10**6, 300), "auto")
        assert late.verdict == "reached"
        assert late.threshold is not None
        assert 300 <= late.threshold <= 315

    def test_a_run_given_up_above_one_that_passes_is_trained_to_the_end(self) -> None:
        """Else a single mistake of the rule would be taken for a curve that is not monotone."""
        start = ThresholdSearch([bracket()]).propose(Rows(), 1)[0].data_count

        def ending(spec: RunSpec) -> str:
            return "late" if spec.data_count == start else "soon" if spec.data_count >= 40 else "never"

        (result,) = answer([bracket()], ending, "auto")
        assert start > 45
        assert (result.verdict, result.lower) == ("reached", 39)

    def test_a_run_that_took_its_budget_by_itself_needs_no_audit(self) -> None:
        results = answer([bracket()], lambda spec: "soon" if spec.data_count >= 50 else "slow", "auto")
        assert (results[0].lower_ended, results[0].rule.audits) == (BUDGET, 0)

    def test_a_run_that_cannot_be_trained_on_is_a_failure(self) -> None:
        search, rows = ThresholdSearch([bracket()]), Rows()
        while not (asked := search.propose(rows, 1)) or asked[0].stop == "early":
            rows.add(row(asked[0], late_above(100, 100)(asked[0])))
        rows.add({**row(asked[0], "never"), "status": "failed", "reason": "exception"})
        assert search.finished(rows)
        (result,) = search.answer(rows)
        assert (result.verdict, result.failed_key) == ("failed", run_key(asked[0], "1"))

    def test_an_audit_that_crashed_leaves_an_answer_that_asks_for_none(self) -> None:
        ending = late_above(100, 100)
        search, rows = ThresholdSearch([bracket()], stop="early", speculate=False), Rows()
        (before,) = search.answer(drive(search, ending, rows=rows))
        assert before.lower is not None
        audit = bracket().at(before.lower).to_the_end()
        rows.add({**row(audit, "never"), "status": "failed", "reason": "exception", "steps": 0})
        (after,) = search.answer(rows)
        assert after == before
        (audited,) = ThresholdSearch([bracket()]).answer(rows)
        assert (audited.verdict, audited.failed_key) == ("failed", run_key(audit, "1"))

    def test_a_search_that_goes_by_the_rule_takes_what_full_budgets_have_settled(self) -> None:
        rows = drive(ThresholdSearch([bracket()], stop="budget", speculate=False), late_above(100, 100))
        (expected,) = ThresholdSearch([bracket()], stop="budget").answer(rows)
        search = ThresholdSearch([bracket()], stop="early", speculate=False)
        assert search.finished(rows), "no run is trained twice"
        assert thresholds(search.answer(rows)) == thresholds([expected])

    def test_full_budgets_take_what_early_runs_have_settled(self) -> None:
        search, rows = ThresholdSearch([bracket()], stop="early", speculate=False), Rows()
        drive(search, late_above(100, 100), rows=rows)
        passed = {r["data_count"] for r in rows if r["status"] == "passed"}
        full = ThresholdSearch([bracket()], stop="budget", speculate=False)
        drive(full, late_above(100, 100), rows=rows)
        assert not passed & {r["data_count"] for r in rows if r["family"] == bracket().full_family}


class TestCurves:
    def test_runs_on_which_no_answer_rests_tell_nothing_of_the_rule_unless_it_erred(self) -> None:
        """Another study trains runs far below the threshold to their end, which the rule gives up rightly."""
        brackets = study((16, 24), seeds=2)
        search = ThresholdSearch(brackets)
        rows = drive(search, late_above(100, 100))
        before = search.answer(rows)
        assert [result.rule.audits for result in before] == [4] * 4
        easy = [one.at(count) for one in brackets for count in (2, 3, 5)]
        for spec in easy:
            rows.add(row(spec, "never"))
            rows.add(row(spec.to_the_end(), "never"))
        after = search.answer(rows)
        assert [(r.rule, r.lower_ended) for r in after] == [(r.rule, r.lower_ended) for r in before]
        assert ThresholdSearch(brackets).answer(rows) == after
        rows.add(row(brackets[0].at(7), "late"))
        rows.add(row(brackets[0].at(7).to_the_end(), "late"))
        assert [len(result.rule.flips) for result in search.answer(rows)] == [1] * 4
        ended = search.answer(drive(search, late_above(100, 100), rows=rows))
        assert [(result.rule.audits, len(result.rule.flips)) for result in ended] == [(5, 1)] * 4

    def test_easy_audits_of_another_study_do_not_take_the_place_of_those_of_lower_bounds(self) -> None:
        brackets = study((16, 24, 32), seeds=4, audits=NEEDED - 3)
        rows = Rows()
        for one in brackets:
            rows.add(row(one.at(2), "never"))
            rows.add(row(one.at(2).to_the_end(), "never"))
        search = ThresholdSearch(brackets)
        found = search.answer(drive(search, late_above(100, 100), rows=rows))
        assert {result.lower_ended for result in found} <= {BUDGET, AUDITED}
        assert found[0].rule.audits >= 3

    def test_brackets_of_a_curve_share_a_flip(self) -> None:
        results = answer(study(), late_above(200, 60), "auto")
        assert thresholds(results) == thresholds(answer(study(), late_above(200, 60), "budget"))
        assert len({r.rule for r in results}) == 1
        assert results[0].rule.flips

    def test_curves_do_not_share_a_flip(self) -> None:
        other = [dataclasses.replace(b, template=dataclasses.replace(b.template, decoder="mlp")) for b in study()]

        def ending(spec: RunSpec) -> str:
            return late_above(200, 60)(spec) if spec.decoder == "mlp" else late_above(100, 100)(spec)

        results = answer([*study(), *other], ending, "auto")
        assert [bool(r.rule.flips) for r in results] == [False] * 9 + [True] * 9

    def test_a_supported_rule_is_believed_but_for_one_bracket_in_fifty(self) -> None:
        brackets = study(sizes=range(16, 65, 8), seeds=7, audits=NEEDED)
        results = answer(brackets, late_above(100, 100), "auto")
        assert drawn(brackets) == [27, 32]
        assert [i for i, r in enumerate(results) if r.lower_ended == BUDGET] == [27, 32]
        assert {r.lower_ended for r in results} == {BUDGET, AUDITED}
        assert (results[0].rule.known, results[0].rule.audits) == (NEEDED, 2)
        assert results[0].rule.bound is not None
        assert results[0].rule.bound < 0.01
        flipped = answer(brackets, late_above(120, 60), "auto")
        assert flipped[0].rule.flips
        assert thresholds(flipped) == thresholds(answer(brackets, late_above(120, 60), "budget"))

    def test_audits_known_of_one_size_support_no_other_of_its_curve(self) -> None:
        brackets = [*study((16,), audits=NEEDED), *study((24,))]
        assert {r.lower_ended for r in answer(brackets, late_above(200, 60), "auto")} == {BUDGET}

    def test_a_study_of_many_thresholds_supports_the_rule_by_itself(self) -> None:
        brackets = [bracket(seed=seed, audits=NEEDED - 8) for seed in range(40)]
        results = answer(brackets, late_above(100, 100), "auto")
        of_fifty = drawn(brackets)
        assert [r.lower_ended for r in results] == [BUDGET if i < 8 or i in of_fifty else AUDITED for i in range(40)]

    @pytest.mark.parametrize("workers", [1, 3, 40])
    def test_the_audits_do_not_depend_on_the_number_of_workers(self, workers: int) -> None:
        """A bracket that is not due yet has brought no audit, and no other one is audited in its place."""
        brackets = study(sizes=range(16, 65, 8), seeds=10, audits=NEEDED - 20)

        def ending(spec: RunSpec) -> str:
            found = late_above(60, 60)(spec)
            return "slow" if found == "never" and spec.N == 16 else found  # these bring no audit

        results = answer(brackets, ending, "auto", workers=workers)
        audited = [(r.N, r.seed) for r in results if r.lower_ended == BUDGET and r.N > 16]
        of_fifty = [(brackets[i].template.N, brackets[i].template.seed) for i in drawn(brackets)]
        first = [(N, seed) for seed in range(10) for N in range(24, 65, 8)][:20]
        assert sorted(audited) == sorted({*first, *of_fifty} - {(16, seed) for seed in range(10)})

    @pytest.mark.parametrize("audits", [NEEDED, NEEDED - 12])
    def test_further_seeds_ask_for_no_audits_of_the_seeds_before(self, audits: int) -> None:
        rows = Rows()
        for seeds in range(3, 9):
            brackets = study(sizes=range(16, 65, 8), seeds=seeds, audits=audits)
            known = len(rows)
            drive(ThresholdSearch(brackets), late_above(100, 100), rows=rows)
            assert {row["seed"] for row in list(rows)[known:]} == (set(range(3)) if seeds == 3 else {seeds - 1})
        at_once = drive(ThresholdSearch(brackets), late_above(100, 100))
        assert {row["key"] for row in at_once} <= {row["key"] for row in rows}

    def test_a_further_size_asks_for_no_audits_of_the_sizes_before_of_a_supported_rule(self) -> None:
        rows = Rows()
        for sizes in range(3, 9):
            known = len(rows)
            brackets = study(sizes=range(80 - 8 * sizes, 80, 8), seeds=7, audits=NEEDED)
            drive(ThresholdSearch(brackets), late_above(30, 30), rows=rows)
            audited = {row["N"] for row in list(rows)[known:] if row["stop"] != "early"}
            assert sizes == 3 or audited <= {80 - 8 * sizes}

    def test_brackets_without_a_lower_bound_do_not_count(self) -> None:
        def ending(spec: RunSpec) -> str:
            return "soon" if spec.seed < 5 else late_above(60, 60)(spec)

        brackets = [bracket(seed=seed, audits=NEEDED - 8) for seed in range(30)]
        assert drawn(brackets) == []
        results = answer(brackets, ending, "auto")
        assert [r.verdict for r in results[:5]] == ["minimum"] * 5
        assert [r.lower_ended for r in results[:5]] == [""] * 5
        assert [i for i, r in enumerate(results) if r.lower_ended == BUDGET] == [*range(5, 13)]

    @pytest.mark.slow(1)
    @pytest.mark.parametrize("workers", [1, 3, 8])
    def test_answers_do_not_depend_on_workers_or_order(self, workers: int) -> None:
        for ending in (late_above(200, 60), late_above(100, 100), late_above(120, 117)):
            expected = thresholds(answer(study(), ending, "auto"))
            for chance in range(3):
                assert thresholds(answer(study(), ending, "auto", workers=workers, chance=chance)) == expected

    def test_a_search_that_was_interrupted_asks_for_the_same_runs(self) -> None:
        brackets, ending = study(sizes=(16, 24)), late_above(200, 60)
        whole = drive(ThresholdSearch(brackets, speculate=False), ending)
        for kept in range(0, len(whole), 3):
            rows = Rows(list(whole)[:kept])
            resumed = ThresholdSearch(brackets, speculate=False)
            drive(resumed, ending, rows=rows)
            assert {r["key"] for r in rows} == {r["key"] for r in whole}

    def test_a_template_that_is_never_given_up_and_an_unknown_word_are_refused(self) -> None:
        with pytest.raises(ValueError, match="stop = 'early'"):
            ThresholdSearch([dataclasses.replace(bracket(), template=bracket().template.to_the_end())])
        with pytest.raises(ValueError, match="auto, early, budget"):
            ThresholdSearch([bracket()], stop="soon")


def jumps(name: int, chance: float, monotone: bool) -> Ending:
    """From a count on, which grows with N, runs pass: late with this probability, else soon. Not `monotone`: below it, down
    to a third of it, runs pass late with this probability."""
    middle = random.Random(f"study {name}").uniform(30, 120)

    def ending(spec: RunSpec) -> str:
        least = middle * (spec.N / 16) ** 1.7 * (1 + 0.1 * spec.seed)
        late = random.Random(f"{name} {spec.N} {spec.seed} {spec.data_count}").random() < chance
        if monotone:
            return "never" if spec.data_count < least else "late" if late else "soon"
        return "soon" if spec.data_count >= least else "late" if spec.data_count >= least / 3 and late else "never"

    return ending


def is_right(result: ThresholdResult, ending: Ending, b: Bracket) -> bool:
    """Whether a bracket is as narrow as asked, its lower end misses with all its steps, and its upper end passes."""
    if result.lower is None or result.threshold is None:
        return False
    narrow = result.threshold - result.lower == 1 or (result.threshold - result.lower) / result.threshold <= 0.05
    ends = [ending(b.template.with_count(count)) for count in (result.lower, result.threshold)]
    return narrow and ends[0] == "never" and ends[1] in ("soon", "late")


@pytest.mark.slow(20)
def test_thresholds_are_right_in_studies_whose_curves_jump_late_by_chance() -> None:
    brackets = study(sizes=(16, 24), seeds=2)
    right = wrong_unchecked = 0
    studies = many(100, 1000)
    for name in range(studies):
        chance = (0.0, 0.01, 0.05, 0.2, 0.5)[name % 5]
        ending = jumps(name, chance, monotone=True)
        unchecked = answer(brackets, ending, "early")
        found = answer(brackets, ending, "auto")
        fooled = not all(is_right(r, ending, b) for r, b in zip(unchecked, brackets, strict=True))
        right += all(is_right(r, ending, b) for r, b in zip(found, brackets, strict=True))
        wrong_unchecked += fooled
        assert {r.lower_ended for r in found} == {BUDGET}
        assert bool(found[0].rule.flips) or not fooled, "the rule is on although its verdicts are wrong"
        assert chance or not found[0].rule.flips
    assert wrong_unchecked > 0.3 * studies, "these studies would not need audits"
    assert right == studies


@pytest.mark.slow(1)
@pytest.mark.parametrize("chance", [0.02, 0.1, 0.3, 0.6])
def test_no_answer_is_contradicted_where_late_jumps_are_not_monotone(chance: float) -> None:
    brackets = study(sizes=(16, 24), seeds=2)
    for name in range(40):
        ending = jumps(name, chance, monotone=False)
        found = answer(brackets, ending, "auto", workers=2, chance=name)
        assert all(is_right(r, ending, b) for r, b in zip(found, brackets, strict=True) if r.verdict == "reached")
        assert {r.verdict for r in found} <= {"reached", "non-monotone"}
