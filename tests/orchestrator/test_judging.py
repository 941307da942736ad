"""A search over seeds that stand for tasks of other difficulty, its confirmation, and the judgement of the winner."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from analysis.regularization import Answer
from orchestrator import regularization
from orchestrator.command import cli
from orchestrator.command.trials import plan_table, work_left
from orchestrator.engine import estimate
from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.confirm import FRESH, TUNED, ConfirmAndJudge, ConfirmBest, first_seed_of
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.race import contenders, seed_effects
from orchestrator.searches.space import Dimension, in_turn, known_points
from orchestrator.store import make_row
from trainables.regularization import BOXES, COMPARED
from trainables.settings import with_values
from trainables.spec import RunSpec, run_key

ENTROPY, VARIANCE = (Dimension(f"lambda_{name}", (0.0,), (1e-3, 1.0), log=True) for name in ("entropy", "variance"))
DIFFICULTY = (1.0, 4.0, 0.5, 2.0)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Luck = Callable[[RunSpec], float]


def spec(holdout: str, seed: int) -> RunSpec:
    return RunSpec(
        task="trainables.regularization:RegularizationTask", dataset="bumps", N=8, data_count=9, seed=seed, decoder="low-rank",
        depth=2, width=2, encoding="one-hot", holdout=holdout, options=(("lambda_entropy", 0.0), ("lambda_variance", 0.0)),
        max_steps=100, stop="budget",
    )  # fmt: skip


def error(run: RunSpec) -> float:
    """Least without an entropy penalty and with a variance penalty of 0.1; of a pseudo-box, times its difficulty."""
    off = math.log10(max(float(run.option("lambda_variance")), 1e-4)) + 1
    best = math.exp(off**2 + 2 * float(run.option("lambda_entropy")))
    luck = math.exp(random.Random(run_key(run, "1")).gauss(0, 0.1))
    suffix = run.holdout.removeprefix("corner")
    return best * luck * (DIFFICULTY[BOXES.index(suffix)] if suffix else 1.0)


def finish(run: RunSpec, second: int, found: float, status: str = "missed") -> Row:
    steps = [25, 50, 75, 100]
    result = {"ood_mse": found, "id_mse": 1e-5, "accuracy": 0.5, "curve_step": steps, "status": status, "reason": "budget"}
    result |= {name: [found] * 4 for name in ("curve_loss", "curve_error", "curve_accuracy")}
    about: dict[str, Any] = {"task_version": "1", "fixed_count": 0, "finished_at": BEGAN + timedelta(seconds=second)}
    return make_row(run, steps=100, **about, **result)


def made(trials: int = 12, level: bool = True, confirm_seeds: int = 4, **more: Any) -> ConfirmAndJudge:
    first = first_seed_of(0)
    templates = [spec(f"corner{box}", first) for box in BOXES]
    tuning = OptunaSearch(
        templates[0], "1", [ENTROPY, VARIANCE], trials, "tpe", "none", make=in_turn(templates), seeds=3, level=level, **more
    )
    confirming = ConfirmBest(tuning, 3, range(first + FRESH, first + FRESH + confirm_seeds))
    finals = [spec("corner", seed) for seed in range(2)]
    known = {setting: [with_values(one, weights) for one in finals] for setting, weights in COMPARED.items()}
    return ConfirmAndJudge(confirming, known, finals)


def walk(search: ConfirmAndJudge, found: Luck = error, rows: Rows | None = None, workers: int = 1) -> Rows:
    rows = Rows() if rows is None else rows
    while not search.finished(rows):
        runs = search.propose(rows, workers, fill=workers)
        assert runs, "a search that has not finished asks for a run"
        for run in runs:
            rows.add(finish(run, len(rows), found(run)))
    return rows


def weights(run: Mapping[str, Any]) -> tuple[float, float]:
    return run["options"]["lambda_entropy"], run["options"]["lambda_variance"]


@pytest.mark.slow(4)
def test_the_winner_is_near_the_best_and_is_judged_on_every_seed() -> None:
    search = made(trials=30)
    rows = walk(search)
    tuned = search.finals(rows)[TUNED]
    assert [run.seed for run in tuned] == [0, 1]
    assert {run.holdout for run in tuned} == {"corner"}
    assert float(tuned[0].option("lambda_entropy")) < 0.1
    assert 0.03 < float(tuned[0].option("lambda_variance")) < 0.3
    assert len(rows) == len({row["key"] for row in rows})


def test_seeds_take_the_pseudo_boxes_in_turn() -> None:
    rows = walk(made())
    first = first_seed_of(0)
    for row in rows:
        if row["seed"] >= first:
            assert row["holdout"] == f"corner{BOXES[(row['seed'] - first) % 4]}"
        else:
            assert row["holdout"] == "corner"
    fresh = {row["seed"] for row in rows if row["seed"] >= first + FRESH}
    assert fresh == set(range(first + FRESH, first + FRESH + 4))


@pytest.mark.slow(1)
def test_what_is_reported_does_not_choose() -> None:
    """Errors in the box that are turned upside down change nothing of the trials, their confirmation and the winner."""
    search = made()
    rows = walk(search)
    other = made()
    turned = walk(other, lambda run: 1 / error(run) if run.holdout == "corner" else error(run))
    assert {row["key"] for row in rows} == {row["key"] for row in turned}
    assert search.confirming.winner(rows).values == other.confirming.winner(turned).values  # type: ignore[union-attr]


@pytest.mark.slow(5)
def test_interrupted_anywhere_and_resumed_asks_for_the_same_runs() -> None:
    whole = walk(made())
    for cut in range(0, len(whole), 7):
        begun = Rows(sorted(whole, key=lambda row: row["finished_at"])[:cut])
        again = walk(made(), rows=begun)
        assert {row["key"] for row in again} == {row["key"] for row in whole}


def test_settings_known_beforehand_fill_idle_workers_while_trials_are_few() -> None:
    search = made()
    runs = search.propose(Rows(), 12, fill=2)
    assert [run.holdout for run in runs] == ["corner-box-1"] * 2 + ["corner"] * 8
    assert TUNED not in search.finals(Rows())
    assert search.planned(Rows())[TUNED] == (0, 2)


def printed(table: Any) -> str:
    console = Console(width=200, file=StringIO())
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_runs_of_a_known_setting_are_not_those_of_one_whose_values_are_not_known() -> None:
    """The runs of `both` have the weights that a decoder has by default, as have the specs that wait for the winner."""
    found: list[regularization.RegularizationStudy] = []
    with mock.patch.object(regularization, "launch", lambda study, *_: found.append(study) or 0):
        assert cli.run(regularization.app, ["--N", "8", "--trials", "8", "--epochs", "10", "--seeds", "3"]) == 0
    study = found[0]
    both = study.search.known["both"]
    assert both == study.search.final
    rows = Rows({**finish(spec, second, 1.0), "seconds": 0.5 * 100} for second, spec in enumerate(both))
    with mock.patch.object(estimate, "step_seconds", return_value=0.5):
        plan, left = study.plan(rows)
        before = study.plan(Rows())[1]
    assert re.search(r"both\s+│\s+3\s+│\s+0\s", printed(plan))
    assert re.search(r"tuned\s+│\s+0\s+│\s+3\s", printed(plan))
    final = 0.5 * study.search.final[0].max_steps
    assert (left.seconds, left.chains) == (pytest.approx(before.seconds - 3 * final), before.chains)


def test_a_plan_says_that_a_front_may_have_fewer_trials_to_confirm() -> None:
    search = made(objectives="id,validation").confirming
    expected = ["best 1", "best 2, if any", "best 3, if any"]
    assert search.planned(Rows()) == dict.fromkeys(expected, (0, 4))


def study_of(*words: str) -> regularization.RegularizationStudy:
    """The study that a command line makes."""
    found: list[regularization.RegularizationStudy] = []
    with mock.patch.object(regularization, "launch", lambda study, *_: found.append(study) or 0):
        assert cli.run(regularization.app, ["--N", "8", "--trials", "4", "--epochs", "10", "--seeds", "3", *words]) == 0
    return found[0]


@pytest.mark.parametrize(
    ("weights", "ablation", "same"), [((0.1, 0.01), True, "both"), ((0.0, 0.0), True, "none"), ((0.1, 0.01), False, None),
                                      ((0.1, 0.02), True, None)]
)  # fmt: skip
def test_with_nothing_to_search_the_tuned_setting_has_runs_that_are_known_and_planned_once(
    weights: tuple[float, float], ablation: bool, same: str | None
) -> None:
    given = [f"--lambda-{name}={weight}" for name, weight in zip(("entropy", "variance"), weights, strict=True)]
    study = study_of(*given, *(() if ablation else ("--no-ablation",)))
    search, rows = study.search, Rows()
    known = dict.fromkeys(COMPARED, (0, 3)) if ablation else {}
    assert search.planned(rows) == {**known, TUNED: (0, 0 if same else 3)}
    assert TUNED not in search.finals(rows)
    with mock.patch.object(estimate, "step_seconds", return_value=0.5):
        plan = printed(study.plan(rows)[0])
        assert re.search(rf"tuned: the runs of {same} +│ +0 │ +0 │" if same else r"tuned +│ +0 │ +3 │", plan), plan
        for run in search.final:
            rows.add({**finish(run, len(rows), 1.0), "seconds": 1.0})
        assert search.planned(rows) == {**known, **({same: (3, 0)} if same else {}), TUNED: (3, 0)}
    whole = walk(search, rows=rows)
    assert sum(row["holdout"] == "corner" for row in whole) == 3 * len(known) + (0 if same else 3)
    assert search.planned(whole) == {**dict.fromkeys(known, (3, 0)), TUNED: (3, 0)}


def test_runs_of_a_winner_that_are_those_of_a_setting_to_compare_are_planned_once() -> None:
    search = made(known=[dict(COMPARED["variance"])], trials=1)
    rows = walk(search)
    left = Rows(row for row in rows if row["holdout"] != "corner")
    assert search.planned(left) == {**dict.fromkeys(COMPARED, (0, 2)), TUNED: (0, 0)}


@pytest.mark.parametrize("searched", [True, False])
def test_a_search_that_ended_without_a_winner_has_no_tuned_run_to_do(searched: bool) -> None:
    study = study_of(*(() if searched else ("--lambda-entropy", "0.1", "--lambda-variance", "0.01")))
    rows = Rows()
    while not study.search.finished(rows):
        for run in study.search.propose(rows, 10):
            bad = {"status": "diverged", "ood_mse": math.nan, "id_mse": math.nan} if run.holdout != "corner" else {}
            rows.add({**finish(run, len(rows), 1.0), "seconds": 1.0, **bad})
    assert study.search.planned(rows) == dict.fromkeys(COMPARED, (3, 0))
    with mock.patch.object(estimate, "step_seconds", return_value=0.5):
        plan, left = study.plan(rows)
    assert "tuned" not in printed(plan)
    assert left.seconds == 0.0


def test_the_tuned_setting_counts_its_own_runs_once_its_values_are_known() -> None:
    search = made()
    rows = walk(search)
    assert search.planned(rows) == {**dict.fromkeys(COMPARED, (2, 0)), TUNED: (2, 0)}
    last = search.finals(rows)[TUNED][1]
    assert search.planned(Rows(row for row in rows if row["key"] != run_key(last, "1")))[TUNED] == (1, 1)


def test_runs_that_confirmed_a_trial_are_not_those_of_one_that_is_not_known() -> None:
    """They may have the values that the task has by default, as have the specs that wait for the best trials."""
    search = made().confirming
    rows = Rows(finish(dataclasses.replace(search.tuning.template, seed=seed), seed, 1.0) for seed in search.seeds)
    assert search.planned(rows) == {"best 1": (0, 4), "best 2": (0, 4), "best 3": (0, 4)}
    assert work_left(search, rows, 10.0) == work_left(search, Rows(), 10.0)
    assert len(re.findall(r"best \d, fresh seeds\s+│\s+0\s+│\s+4\s", printed(plan_table(search, rows, "20")))) == 3


@pytest.mark.slow(1)
def test_a_confirmed_trial_that_diverges_does_not_win_and_if_all_do_nothing_is_chosen() -> None:
    search = made()
    rows = walk(search)
    winner = search.confirming.winner(rows)
    assert winner is not None
    bad = {row["key"] for row in search.confirming.rows_of(rows, winner)}
    spoiled = Rows({**row, "status": "diverged"} if row["key"] in bad else row for row in rows)
    second = made().confirming.winner(spoiled)
    assert second is not None
    assert second.number != winner.number
    every = Rows({**row, "status": "diverged"} if row["seed"] >= first_seed_of(0) + FRESH else row for row in rows)
    other = made()
    assert other.confirming.winner(every) is None
    assert TUNED not in other.finals(every)
    assert other.finished(every)


def test_a_fresh_seed_without_any_error_has_no_logarithm_and_arithmetic_means_decide() -> None:
    search = made()
    rows = walk(search)
    winner = search.confirming.winner(rows)
    assert winner is not None
    first = search.confirming.rows_of(rows, winner)[0]["key"]
    perfect = Rows({**row, "ood_mse": 0.0} if row["key"] == first else row for row in rows)
    again = made().confirming.winner(perfect)
    assert again is not None
    assert again.number == winner.number


def test_no_seed_is_one_of_two_searches_or_of_a_trial_and_of_its_confirmation() -> None:
    begins = [first_seed_of(search) + part * FRESH for search in range(3) for part in (0, 1)]
    assert len({seed for begin in begins for seed in range(begin, begin + FRESH)}) == 6 * FRESH


def test_without_fresh_seeds_the_search_decides() -> None:
    search = made(confirm_seeds=0)
    rows = walk(search)
    assert search.confirming.winner(rows) == search.tuning.best(rows)
    assert not search.confirming.following(rows)


def test_what_a_seed_adds_is_found_from_the_trials_that_have_it() -> None:
    of_trials = [{0: 1.0, 1: 3.0, 2: 0.5}, {0: 2.0, 1: 4.0}, {0: 7.0}, {0: 0.0, 1: 2.0, 2: -0.5}]
    assert seed_effects(of_trials) == {0: 0.0, 1: 2.0, 2: pytest.approx(-0.5)}
    assert seed_effects([]) == {}


@pytest.mark.parametrize(
    ("of_first", "of_last"),
    [((2.0, 0.5, 0.25), (4.0, 1.0, 0.5)), ((2.0, 0.5, 0.0), (4.0, 2.5, 2.0)), ((2.0, 0.5, -0.25), (4.0, 2.5, 1.75))],
    ids=["ratios", "differences, with a zero", "differences, with one below zero"],
)
def test_trials_of_unequal_seeds_are_compared_on_one_level(of_first: Sequence[float], of_last: Sequence[float]) -> None:
    """Trial 0 has an easy seed more than trial 1. Its plain mean is the lower one, but seed for seed it is worse."""
    found = {0: of_first, 1: (1.8,), 2: of_last}
    for level, best in ((False, 0), (True, 1)):
        search = made(trials=3, level=level).tuning
        rows = Rows()
        values = [{"lambda_entropy": 0.0, "lambda_variance": value} for value in (0.01, 0.1, 1.0)]
        for number, errors in found.items():
            for i, one in enumerate(errors):
                rows.add(finish(search.spec(values[number], search.seeds[i]), number, one))
        assert search.ranked(rows)[0].number == best
    assert search.ranked(rows)[0].scores == [pytest.approx(1.8)]
    assert search.finished_trials(rows)[0].scores == [pytest.approx(2.0)]
    assert search.finished_trials(rows)[0].row["ood_mse"] == 2.0


def test_the_best_third_and_those_within_their_error_of_the_incumbent_are_in_contention() -> None:
    assert contenders([[1.0], [2.0], [3.0], [4.0]], up=False) == [0, 1]
    spread = [[1.0, 1.4], [1.25], [1.5], [9.0, 9.4]]  # 0.28 over seeds; the incumbent has 1.2
    assert contenders(spread, up=False) == [0, 1]
    assert contenders([[1.0, 1.4], [1.25], [1.47], [9.0]], up=False) == [0, 1, 2]
    assert contenders([[9.0, 9.4], [9.0], [1.0]], up=True) == [0, 1]


def test_a_template_whose_turn_it_is_makes_the_run() -> None:
    templates = [spec(f"corner{box}", 100) for box in BOXES]
    make = in_turn(templates)
    run = make({"lambda_entropy": 0.5}, 106)
    assert run == dataclasses.replace(with_values(templates[2], {"lambda_entropy": 0.5}), seed=106)


@pytest.mark.slow(6)
def test_a_sampler_that_asks_for_one_point_for_ever_is_left_aside() -> None:
    """The best by far is a point of words alone, which there is once."""

    def no_penalty(run: RunSpec) -> float:
        return 1e-3 if max(float(run.option("lambda_entropy")), float(run.option("lambda_variance"))) == 0 else error(run)

    search = made(trials=40)
    rows = walk(search, no_penalty)
    trials = search.tuning.finished_trials(rows)
    assert len(trials) == 40
    assert sum(set(trial.values.values()) == {0.0} for trial in trials) == 1


def test_a_space_that_the_task_can_do_nothing_of_ends_the_search() -> None:
    def never(values: Mapping[str, Any], seed: int) -> RunSpec:
        raise ValueError("it cannot be done")

    tuning = OptunaSearch(spec("corner-box-1", 0), "1", [ENTROPY], 5, "tpe", "none", make=never)
    assert tuning.propose(Rows(), 1) == []
    assert tuning.finished(Rows())


def test_known_points_are_tried_first_and_once() -> None:
    first = [dict(weights) for weights in (*COMPARED.values(), COMPARED["both"])]
    search = made(known=first)
    running: list[RunSpec] = []
    rows = Rows()
    asked = search.tuning.propose(rows, 2)
    assert [dict(run.options) for run in asked] == first[:2]
    running = asked[:1]
    rows.add(finish(asked[1], 0, 1.0))
    more = [run for run in search.tuning.propose(rows, 5, running) if run.seed == first_seed_of(0)]
    assert [dict(run.options) for run in more[:2]] == first[2:4]
    assert len(more) == 4
    assert not any(dict(run.options) in first for run in more[2:])
    assert len(search.tuning.finished_trials(walk(search, rows=rows))) == 12


def test_the_study_tries_the_settings_that_it_compares_with_where_they_lie_in_its_space() -> None:
    settings = COMPARED.values()
    assert known_points(spec("corner", 0), [ENTROPY, VARIANCE], settings) == [dict(weights) for weights in settings]
    assert known_points(spec("corner", 0), [dataclasses.replace(ENTROPY, words=()), VARIANCE], settings) == [
        dict(COMPARED["entropy"]), dict(COMPARED["both"]),
    ]  # fmt: skip
    assert known_points(spec("corner", 0), [], settings) == []


def unlucky(run: RunSpec) -> float:
    """The first seed is bad luck for all settings but those with a small entropy penalty, which are the worse ones."""
    entropy = float(run.option("lambda_entropy"))
    if run.seed == first_seed_of(0) and not 0 < entropy < 0.01:
        return 1e6 * error(run)
    return (30.0 if entropy else 1.0) * error(run)


@pytest.mark.parametrize(("objectives", "leading"), [("validation", 3), ("id,validation", 1)])
@pytest.mark.parametrize("guarded", [True, False])
def test_no_search_does_worse_than_what_is_known_by_the_bad_luck_of_one_seed(
    guarded: bool, objectives: str, leading: int
) -> None:
    """All trials have the same ID error, so the front has one trial."""
    known = {setting: dict(weights) for setting, weights in COMPARED.items()}
    worse = [{"lambda_entropy": 0.002, "lambda_variance": variance} for variance in (0.02, 0.05, 0.1, 0.2)]
    search, rows = made(trials=8, known=list(known.values()) if guarded else (), objectives=objectives), Rows()
    for values in (*known.values(), *worse):
        run = search.tuning.spec(values)
        rows.add(finish(run, len(rows), unlucky(run)))
    rows = walk(search, unlucky, rows)
    chosen, winner = search.confirming.chosen(rows), search.confirming.winner(rows)
    assert winner is not None
    assert [dict(trial.values) in worse for trial in chosen] == [True] * leading + [False] * guarded
    if guarded:
        trials = search.tuning.finished_trials(rows)
        assert all(len(trial.rows) == 3 for trial in trials if dict(trial.values) not in worse)
        assert dict(winner.values) == known["variance"]
    else:
        assert dict(winner.values) in worse


@pytest.mark.parametrize(("objectives", "count"), [("validation", 3), ("id,validation", 1)])
def test_a_known_point_that_is_among_the_best_is_confirmed_once(objectives: str, count: int) -> None:
    search = made(known=[{"lambda_entropy": 0.0, "lambda_variance": 0.1}], objectives=objectives)
    rows = walk(search)
    assert len(search.confirming.chosen(rows)) == count


@pytest.mark.parametrize(("most", "expected"), [(1, [0.1, 0.5]), (2, [0.01, 0.1, 0.5]), (4, [0.01, 0.02, 0.05, 0.1, 0.5])])
def test_of_known_points_the_best_by_the_objective_that_decides_is_confirmed_although_another_is(
    most: int, expected: list[float]
) -> None:
    """The front is spread along the ID error, which rises with the weight while the validation error falls to 0.1. The known
    point of 0.01 begins it; that of 0.5 is behind, but better on validation."""
    known = [{"lambda_entropy": 0.0, "lambda_variance": variance} for variance in (0.01, 0.5)]
    search = made(trials=5, known=known, objectives="id,validation")
    search.confirming.most = most
    found, rows = {0.01: 1.0, 0.02: 0.8, 0.05: 0.7, 0.1: 0.5, 0.5: 0.6}, Rows()

    def result(run: RunSpec) -> Row:
        variance = float(run.option("lambda_variance"))
        return {**finish(run, len(rows), found[variance]), "id_mse": variance}

    for variance in found:
        rows.add(result(search.tuning.spec({"lambda_entropy": 0.0, "lambda_variance": variance})))
    while not search.tuning.finished(rows):
        for run in search.tuning.propose(rows, 1):
            rows.add(result(run))
    assert [trial.values["lambda_variance"] for trial in search.confirming.chosen(rows)] == expected
    assert all(len(trial.rows) == 3 for trial in search.tuning.finished_trials(rows))


@pytest.mark.parametrize(("objectives", "others"), [("validation", [1]), ("id,validation", [1])])
def test_known_points_behind_take_further_seeds(objectives: str, others: list[int]) -> None:
    behind = {"lambda_entropy": 1.0, "lambda_variance": 1.0}
    search, rows = made(trials=5, known=[behind], objectives=objectives).tuning, Rows()
    for variance in (0.1, 0.09, 0.11, 0.12):
        run = search.spec({"lambda_entropy": 0.0, "lambda_variance": variance})
        rows.add(finish(run, len(rows), error(run)))
    run = search.spec(behind)
    rows.add(finish(run, len(rows), error(run)))
    asked = [run.seed - first_seed_of(0) for run in search.propose(rows, 100) if dict(run.options) == behind]
    assert asked == others


@pytest.mark.slow(1)
def test_the_front_of_two_objectives_holds_by_the_errors_that_are_shown() -> None:
    """Trials have different pseudo-boxes, so their plain means may be ordered otherwise."""
    search = made(trials=16, objectives="id,validation")

    def id_error(run: RunSpec) -> float:
        difficulty = DIFFICULTY[run.seed % 4] ** 2
        return 1e-5 * difficulty * (1 + 0.1 * float(run.option("lambda_entropy")) + float(run.option("lambda_variance")))

    rows = Rows()
    while not search.finished(rows):
        for run in search.propose(rows, 1, fill=1):
            rows.add({**finish(run, len(rows), error(run)), "id_mse": id_error(run)})
    answer = Answer.of_search(search, rows, {})
    shown = {row["key"]: (row["id_mse"], row["validation_mse"]) for row in answer.trials.to_dict("records")}
    beaten = {
        key for key, a in shown.items() if any(b[0] <= a[0] and b[1] <= a[1] and b != a for b in shown.values())
    }  # fmt: skip
    assert set(answer.front["key"]) == shown.keys() - beaten
    assert beaten
    assert len({row["seeds"] for row in answer.trials.to_dict("records")}) > 1


def test_known_points_are_not_pruned() -> None:
    first = first_seed_of(0)
    known = {"lambda_entropy": 1.0, "lambda_variance": 1.0}
    rows = Rows()
    for second, entropy in enumerate(n / 100 for n in range(12)):
        one = with_values(spec("corner-box-1", first), {"lambda_entropy": entropy, "lambda_variance": 0.1})
        rows.add(finish(one, second, 1.0))
    bad = with_values(spec("corner-box-1", first), known)
    curve = Curve([25, 50, 75, 100], [9.0] * 4)
    for points, pruned in (([known], False), ([], True)):
        tuning = OptunaSearch(bad, "1", [ENTROPY, VARIANCE], 20, "tpe", "median", known=points)
        assert (tuning.pruned_at(rows, bad, curve) is not None) == pruned
