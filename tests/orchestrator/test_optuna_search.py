"""The Optuna search as a function of rows: no training, a known error surface."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import URLError

import optuna
import pytest
from optuna.trial import TrialState

import orchestrator.searches.optuna as optuna_search
from orchestrator.searches import Curve, Rows
from orchestrator.searches.objective import Objective
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.samplers import INTERVAL_SHARE, STARTUP_TRIALS, WARMUP_SHARE, Trial, frozen
from orchestrator.searches.space import Dimension, Values, log_range
from orchestrator.store import make_row
from trainables.spec import RunSpec, run_key

SPACE = [log_range("a", 1e-3, 1.0), log_range("b", 1e-4, 0.1)]
STEPS = 400
TEMPLATE = RunSpec(
    task="tests.toy:Toy", dataset="toys", N=8, data_count=3, seed=0, decoder="linear", depth=0, width=1, encoding="none",
    options=(("a", 0.0), ("b", 0.0), ("kind", "round")), max_steps=STEPS, stop="budget",
)  # fmt: skip
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def error_of(options: dict[str, Any]) -> float:
    """Least, 1, at a = 0.1, b = 0.01."""
    return 1.0 + (math.log10(options["a"]) + 1) ** 2 + (math.log10(options["b"]) + 2) ** 2


def search(**changes: Any) -> OptunaSearch:
    return OptunaSearch(**({"template": TEMPLATE, "task_version": "1", "space": SPACE, "trials": 30} | changes))


def finish(spec: RunSpec, second: int, **changes: Any) -> dict[str, Any]:
    """A row of `spec`, `second` seconds after the first."""
    options = dict(spec.options)
    error = error_of(options) if options["a"] and options["b"] else 1.0
    steps = list(range(20, spec.max_steps + 1, 20))
    curve = [error * (1 + (spec.max_steps - s) / spec.max_steps) for s in steps]
    result = {"status": "missed", "reason": "budget", "steps": spec.max_steps, "ood_mse": error, "id_mse": options["a"]}
    return make_row(
        spec,
        task_version="1",
        fixed_count=0,
        finished_at=BEGAN + timedelta(seconds=second),
        **{**result, "curve_step": steps, "curve_error": curve, **changes},
    )


def walk(made: OptunaSearch, rows: Rows | None = None, until: int | None = None) -> Rows:
    """Carry the search on with one worker."""
    rows = Rows() if rows is None else rows
    while not made.finished(rows) and (until is None or len(rows) < until):
        (spec,) = made.propose(rows, 1)
        rows.add(finish(spec, len(rows)))
    return rows


def points(rows: Rows) -> list[tuple[float, float]]:
    return [(row["options"]["a"], row["options"]["b"]) for row in rows]


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid", "nsga2"])
def test_interrupted_anywhere_and_resumed_asks_for_the_same_trials(sampler: str) -> None:
    made = {"sampler": sampler, "trials": 25}
    if sampler == "nsga2":
        made |= {"objectives": "id,validation", "pruner": "none"}
    whole = walk(search(**made))
    assert len(set(points(whole))) == 25
    rows = Rows()
    for stop in (1, 7, 12, 20, 25):
        shuffled = list(rows)
        random.Random(stop).shuffle(shuffled)  # a store gives rows in any order
        rows = walk(search(**made), Rows(shuffled), stop)
    assert sorted(points(rows)) == sorted(points(whole))
    assert search(**made).best(rows).values == search(**made).best(whole).values  # type: ignore[union-attr]


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_trials_that_failed_are_tried_again_and_no_others_made_in_their_place(sampler: str) -> None:
    made = {"sampler": sampler, "trials": 9}
    first, rows = search(**made), Rows()
    while not first.finished(rows):
        (spec,) = first.propose(rows, 1)
        rows.add(finish(spec, len(rows), **({"status": "failed", "error": "e"} if len(rows) in (1, 3) else {})))
    failed = [row for row in rows if row["status"] == "failed"]
    assert len(failed) == 2

    again, left = search(**made), Rows(row for row in rows if row["status"] != "failed")
    again.retry([finish(TEMPLATE, 1, status="failed"), *reversed(failed)])
    assert not again.finished(left)
    both = again.propose(left, 5)
    assert [dict(spec.options) for spec in both] == [row["options"] for row in failed], "those of trials, in order"
    assert again.propose(left, 5, both[:1]) == both[1:]
    assert again.propose(left, 5, both) == [], "nine trials were asked for"
    for second, spec in enumerate(both, 9):
        left.add(finish(spec, second))
    assert again.finished(left)
    assert sorted(points(left)) == sorted(points(rows))


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_while_a_trial_that_is_tried_again_waits_others_go_on_and_it_counts_as_one_of_all(sampler: str) -> None:
    made = {"sampler": sampler, "trials": 9, "pruner": "none"}
    first = walk(search(**made), until=3)
    failed = finish(RunSpec.from_dict(list(first)[1]), 1, status="failed", reason="exception", error="e")
    again, left = search(**made), Rows(row for row in first if row["key"] != failed["key"])
    again.retry([failed])
    asked = again.propose(left, 20)
    assert run_key(asked[0], "1") == failed["key"]
    assert len(asked) == len(set(asked)) == 9 - 2
    assert again.propose(left, 20, asked[:1]) == asked[1:], "whether it waits or is in progress"
    assert again.propose(left, 1) == asked[:1]
    for second, spec in enumerate(asked[1:], 3):
        left.add(finish(spec, second))
    assert not again.finished(left)
    assert again.propose(left, 20) == asked[:1]
    left.add(finish(asked[0], 20))
    assert again.finished(left)


def test_another_seed_asks_for_other_trials() -> None:
    assert not set(points(walk(search(trials=5)))) & set(points(walk(search(trials=5, seed=1))))


@pytest.mark.slow(4)
def test_tpe_comes_closer_to_the_least_than_random_search() -> None:
    def reached(sampler: str) -> float:
        errors = []
        for seed in range(6):
            made = search(sampler=sampler, trials=40, seed=seed)
            best = made.best(walk(made))
            assert best is not None
            errors.append(best.row["ood_mse"] - 1)
        return sorted(errors)[3]

    assert reached("tpe") < 0.5 * reached("random")


@pytest.mark.slow(1)
def test_nsga2_breeds_from_its_generations() -> None:
    made = search(sampler="nsga2", objectives="id,validation", pruner="none", trials=60)
    rows = walk(made)
    first, last = points(rows)[:10], points(rows)[-10:]
    mean = lambda some: sum(abs(math.log10(b) + 2) for _, b in some) / len(some)  # noqa: E731
    assert mean(last) < 0.7 * mean(first)
    generations = [t.system_attrs["NSGAIISampler:generation"] for t in made.study(rows).trials]
    assert generations == [n // 10 for n in range(60)]


def test_several_at_once_are_distinct_and_those_in_progress_are_not_asked_again() -> None:
    made, rows = search(trials=12), walk(search(trials=12), until=6)
    first = made.propose(rows, 3)
    more = made.propose(rows, 10, first)
    assert len(first) == 3
    assert len(more) == 3, "12 trials are 6 done, 3 in progress and 3 more"
    keys = {run_key(spec, "1") for spec in [*first, *more]}
    assert len(keys) == 6
    assert made.propose(rows, 5, [*first, *more]) == []
    assert not made.finished(rows)


@pytest.mark.parametrize(
    ("trials", "sampler", "at_once"), [(200, "tpe", 20), (40, "tpe", 16), (9, "tpe", 9), (90, "random", 90)]
)
def test_on_a_gpu_most_trials_wait_for_others_to_learn_from(trials: int, sampler: str, at_once: int) -> None:
    made, on_gpu = search(trials=trials, sampler=sampler), Rows(on_gpu=lambda decoder: decoder == TEMPLATE.decoder)
    begun = made.propose(on_gpu, 256)
    assert len(begun) == at_once
    assert made.propose(on_gpu, 256, begun) == []
    assert len(made.propose(on_gpu, 256, begun[:-1])) == 1
    assert len(made.propose(Rows(), 256)) == trials


def test_a_range_of_one_number_ends_instead_of_asking_for_ever() -> None:
    fixed = [log_range("a", 0.1, 0.1)]
    made = search(space=fixed, template=dataclasses.replace(TEMPLATE, options=(("a", 0.1), ("b", 0.01))), trials=4)
    rows = Rows()
    (spec,) = made.propose(rows, 3)
    rows.add(finish(spec, 0))
    assert made.propose(rows, 1) == []
    assert made.finished(rows)


def test_the_grid_is_the_largest_full_one_in_log_steps() -> None:
    made = search(sampler="grid", trials=40)
    rows = walk(made)
    a = sorted({point[0] for point in points(rows)})
    assert len(points(rows)) == 36
    assert a == pytest.approx([10 ** (-3 + 0.6 * i) for i in range(6)])
    assert made.finished(rows)


def test_rows_of_other_runs_are_no_trials() -> None:
    made = search(trials=30)
    inside = dataclasses.replace(TEMPLATE, options=(("a", 0.1), ("b", 0.01), ("kind", "round")))
    others = [
        dataclasses.replace(inside, N=9),
        dataclasses.replace(inside, seed=1),
        dataclasses.replace(inside, data_count=4),
        dataclasses.replace(inside, options=(("a", 0.1), ("b", 0.01), ("kind", "square"))),
        dataclasses.replace(inside, options=(("a", 2.0), ("b", 0.01), ("kind", "round"))),
        dataclasses.replace(inside, options=(("b", 0.01), ("kind", "round"))),
    ]
    rows = Rows([finish(inside, 0), *(finish(dataclasses.replace(s), n + 1, ood_mse=0.1) for n, s in enumerate(others[:-1]))])
    rows.add(make_row(others[-1], task_version="1", fixed_count=0, status="missed", reason="budget", ood_mse=0.1))
    rows.add({**finish(inside, 9), "key": "of another version", "task_version": "2"})
    assert [RunSpec.from_dict(t.row) for t in made.finished_trials(rows)] == [inside]


def test_failed_diverged_and_pruned_runs_are_told_as_such() -> None:
    made, rows = search(trials=30), Rows()
    statuses = ["failed", "diverged", "pruned", "missed", "passed"]
    for n, status in enumerate(statuses):
        (spec,) = made.propose(rows, 1)
        errors: dict[str, Any] = {"diverged": {"ood_mse": math.nan}, "failed": {"ood_mse": None, "id_mse": None}}
        rows.add(finish(spec, n, status=status, **errors.get(status, {})))
    study = made.study(rows)
    expected = [TrialState.FAIL, TrialState.FAIL, TrialState.PRUNED, TrialState.COMPLETE, TrialState.COMPLETE]
    assert [t.state for t in study.trials] == expected
    assert [t.user_attrs["status"] for t in study.trials] == statuses
    assert study.trials[2].intermediate_values[20] == list(rows)[2]["curve_error"][0]
    best = made.best(rows)
    assert best is not None
    assert best.number in (3, 4)


def slope(options: dict[str, Any]) -> float:
    """Falls with a up to EDGE, beyond which a run is bad; least at b = 0.01."""
    return math.exp(0.4 * (math.log10(options["b"]) + 2) ** 2 - 0.8 * math.log10(options["a"]))


EDGE = 0.1
BAD: dict[str, dict[str, Any]] = {
    "diverged": {"status": "diverged", "reason": "diverged", "ood_mse": math.nan, "id_mse": math.nan},
    "failed": {"status": "failed", "reason": "exception", "error": "e", "ood_mse": None, "id_mse": None},
    "no number": {"ood_mse": math.nan, "id_mse": math.nan},
    "pruned": {"status": "pruned", "reason": "pruned", "steps": 100},
}


def climb(made: OptunaSearch, bad: str, at_once: int = 1) -> Rows:
    """Carry the search on towards the edge; runs beyond it end in this way."""
    rows = Rows()
    while not made.finished(rows):
        for spec in made.propose(rows, at_once):
            options = dict(spec.options)
            error = slope(options) * random.Random(f"{made.seed}/{spec.seed}/{options}").uniform(0.9, 1.1)
            ends = BAD[bad] if options["a"] > EDGE else {"ood_mse": error}
            rows.add(finish(spec, len(rows), **ends))
    return rows


def beyond(rows: Rows) -> list[bool]:
    return [row["options"]["a"] > EDGE for row in rows]


@pytest.mark.slow(1)
@pytest.mark.parametrize("bad", ["diverged", "failed", "no number"])
def test_tpe_turns_away_from_where_runs_end_badly(bad: str) -> None:
    for seed in range(3):
        made = search(trials=40, pruner="none", seed=seed)
        rows = climb(made, bad)
        assert sum(beyond(rows)[20:]) <= 10, seed
        best = made.best(rows)
        assert best is not None
        assert best.scores[0] < 1.5 * slope({"a": EDGE, "b": 0.01})


@pytest.mark.slow(1)
def test_tpe_turns_away_from_where_runs_end_badly_with_several_seeds_or_objectives() -> None:
    made = search(trials=40, pruner="none", seeds=3)
    rows = climb(made, "failed", at_once=2)
    ends = [trial.state for trial in made.finished_trials(rows)]
    assert len(ends) == 40
    assert ends[20:].count(TrialState.FAIL) <= 10
    for seed in range(3):
        both = search(trials=40, pruner="none", objectives="id,validation", seed=seed)
        assert sum(beyond(climb(both, "failed"))[20:]) <= 10, seed


@pytest.mark.slow(4)
@pytest.mark.parametrize("bad", ["diverged", "pruned"])
def test_gp_does_not_ask_again_for_a_point_that_ended_badly(bad: str) -> None:
    rows = climb(search(sampler="gp", trials=STARTUP_TRIALS + 9), bad)
    late = [tuple(round(math.log10(x), 2) for x in point) for point in points(rows)][STARTUP_TRIALS:]
    assert len(set(late)) == len(late)
    assert sum(beyond(rows)[STARTUP_TRIALS:]) <= 4


def asked_study(made: OptunaSearch, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> list[tuple[TrialState, Any]]:
    """State and values of the finished trials that a sampler learns from as it is asked."""
    seen: list[list[tuple[TrialState, Any]]] = []
    ask = optuna.Study.ask

    def watched(study: optuna.Study) -> optuna.Trial:
        seen.append([(trial.state, trial.values) for trial in study.get_trials(deepcopy=False)])
        return ask(study)

    with monkeypatch.context() as patched:
        patched.setattr(optuna.Study, "ask", watched)
        made.propose(rows, 1)
    return seen[0]


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2", "random"])
def test_what_a_sampler_is_told_of_trials_that_did_not_end_well(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aims = [Objective("mse"), Objective("accuracy", up=True)]
    made, rows = search(sampler=sampler, trials=30, pruner="none", objectives=aims), Rows()
    bad = ["diverged", "failed", "no number", "pruned"]
    specs = made.propose(rows, 6)
    for n, (spec, end) in enumerate(zip(specs, bad, strict=False)):
        rows.add(finish(spec, n, **{**BAD[end], "accuracy": None}))
    states = [TrialState.FAIL] * 3 + [TrialState.PRUNED]
    assert asked_study(made, rows, monkeypatch) == [(state, None) for state in states], "there is no worst yet"

    for n, (spec, error, accuracy) in enumerate(zip(specs[4:], (2.0, 3.0), (0.25, 0.5), strict=True), 4):
        rows.add(finish(spec, n, ood_mse=error, accuracy=accuracy))
    asked = asked_study(made, rows, monkeypatch)
    scale = math.log if sampler == "gp" else float
    assert asked[4:] == [(TrialState.COMPLETE, [scale(2.0), 0.25]), (TrialState.COMPLETE, [scale(3.0), 0.5])]
    as_worst = {"tpe": 3, "gp": 4}.get(sampler, 0)
    for state, values in asked[:as_worst]:
        assert state == TrialState.COMPLETE
        assert values == pytest.approx([scale(3.0), 0.25])
        assert values[0] > scale(3.0)
        assert values[1] < 0.25
    assert asked[as_worst:4] == [(state, None) for state in states[as_worst:]]
    assert [trial.state for trial in made.study(rows).trials[:4]] == states, "as it is shown and exported"
    assert len(made.front(rows)) == 2


@pytest.mark.parametrize("changes", [{}, {"sampler": "nsga2", "objectives": "id,validation"}, {"seeds": 2}])
def test_a_finished_search_with_bad_trials_stays_finished(changes: dict[str, Any]) -> None:
    made = {"trials": 20, "pruner": "none", **changes}
    rows = climb(search(**made), "failed")
    again = search(**made)
    assert len(again.finished_trials(rows)) == 20
    assert any(beyond(rows))
    assert again.finished(rows)
    assert again.propose(rows, 3) == []
    more, backwards = made | {"trials": 22}, Rows(list(rows)[::-1])
    assert search(**more).propose(rows, 1) == search(**more).propose(backwards, 1), "whatever the order of the rows"


def test_a_trial_is_made_for_optuna_once_as_long_as_nothing_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, rows, told = search(trials=15), Rows(), list[str]()

    def counting(trial: Trial, *words: Any) -> Any:
        told.append(trial.row["key"])
        return frozen(trial, *words)

    monkeypatch.setattr(optuna_search, "frozen", counting)
    walk(made, rows, until=12)
    (spec,) = made.propose(rows, 1)
    made.pruned_at(rows, spec, Curve([STEPS], [1.0]))
    made.study(rows)
    assert told == [trial.row["key"] for trial in made.finished_trials(rows)]


@pytest.mark.parametrize(
    "changes",
    [{}, {"sampler": "gp"}, {"objectives": "id,validation", "pruner": "none"}, {"seeds": 3}, {"seeds": 3, "level": True}],
)
def test_a_search_that_goes_on_is_told_and_asks_for_the_same_as_one_that_begins(changes: dict[str, Any]) -> None:
    """Whatever came before, in any order: rows that replace others, and end otherwise, among them."""

    def seen(one: OptunaSearch) -> Any:
        names = ("number", "params", "distributions", "state", "values", "intermediate_values", "user_attrs")
        trials = [[getattr(trial, name) for name in names] for trial in one.study(rows).trials]
        return trials, one.front(rows), one.propose(rows, 2)

    made, rows, luck = search(trials=40, **changes), Rows(), random.Random(0)
    pruned = {"status": "pruned", "steps": 40, "curve_step": [20, 40]}
    for turn in range(8 if made.sampler == "gp" else 14):
        for spec in made.propose(rows, 2):
            at, error = turn - luck.choice([0, 0, 4]), error_of(dict(spec.options)) * luck.uniform(1, 1.3)
            end = luck.choice([{}, {}, {"status": "failed", "error": "e"}, {**pruned, "curve_error": [3.0, 2.0]}])
            rows.add(finish(spec, at, ood_mse=error, **end))
            if end and luck.random() < 0.7:
                made.study(rows)  # it knows the former row
                rows.add(finish(spec, at, ood_mse=error, **luck.choice([{}, {**pruned, "curve_error": [2.0, error]}])))
        assert seen(made) == seen(search(trials=40, **changes))
    states = {trial.state for trial in made.finished_trials(rows)}
    assert states == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}


def pruning(pruner: str, curve: Callable[[int], float], trials: int = 20, sampler: str = "random") -> int | None:
    """Where a run with this curve is pruned after `trials` complete ones; in steps."""
    made = search(pruner=pruner, sampler=sampler, trials=50)
    rows = walk(made, until=trials)
    (spec,) = made.propose(rows, 1)
    steps = list(range(20, STEPS + 1, 20))
    at = made.pruned_at(rows, spec, Curve(steps, [curve(s) for s in steps]))
    return None if at is None else steps[at - 1]


def of_two(values: Values, seed: int) -> RunSpec:
    """Of four settings that are searched, every two are one run, and `kind` "none" is none."""
    if values["kind"] == "none":
        raise ValueError("no such kind")
    return dataclasses.replace(TEMPLATE, seed=seed, options=(("a", 0.1), ("b", float(values["b"]) // 2), ("kind", "round")))


@pytest.mark.parametrize(
    ("before", "then", "left"),
    [
        ({"sampler": "grid", "trials": 9}, {"sampler": "grid", "trials": 16}, 12),  # the corners alone lie on both
        ({"sampler": "tpe", "trials": 12}, {"sampler": "grid", "trials": 9}, 9),  # none of these lies on the grid
        ({"sampler": "grid", "trials": 9}, {"sampler": "tpe", "trials": 12}, 3),
        ({"sampler": "tpe", "trials": 12}, {"sampler": "random", "trials": 5}, 0),
        ({"sampler": "tpe", "trials": 1}, {"space": [Dimension("b", (1.0, 2.0, 3.0, 4.0))], "trials": 9}, 4),
    ],
)
def test_the_trials_that_are_left_are_those_that_are_made(before: dict[str, Any], then: dict[str, Any], left: int) -> None:
    rows = walk(search(**before))
    made, known = search(**then), len(rows)
    assert made.left(rows) == left
    while not made.finished(rows):
        (spec,) = made.propose(rows, 1)
        rows.add(finish(spec, len(rows)))
        assert made.left(rows) == left - (len(rows) - known)
    assert len(rows) - known == left


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_a_run_is_left_once_however_many_points_are_that_run(sampler: str) -> None:
    space = [Dimension("b", (2.0, 3.0, 4.0, 5.0)), Dimension("kind", ("round", "none"))]
    made, rows = search(sampler=sampler, space=space, trials=8, make=of_two), Rows()
    assert made.trials == 4  # as points
    assert made.left(rows) == 2


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_trials_that_are_tried_again_are_left(sampler: str) -> None:
    """Also those beside the grid."""
    failed = [finish(spec, i, status="failed") for i, spec in enumerate(search(sampler="random").propose(Rows(), 3))]
    made = search(sampler=sampler, trials=9)
    made.retry(failed)
    assert made.left(Rows()) == (9 if sampler == "tpe" else 12)
    made.is_blocked = lambda rows, spec: True
    assert made.left(Rows()) == (9 if sampler == "tpe" else 0)  # others may be free, or none


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2", "grid", "gp"])
def test_a_hopeless_run_is_pruned_after_the_warm_up_and_a_good_one_is_not(sampler: str) -> None:
    assert pruning("median", lambda step: 1000.0, 12, sampler) == STEPS * WARMUP_SHARE
    assert pruning("median", lambda step: 0.5, 12, sampler) is None
    assert pruning("none", lambda step: 1000.0) is None
    assert pruning("median", lambda step: 1000.0, trials=STARTUP_TRIALS - 1) is None


def test_the_percentile_pruner_is_stricter_than_the_median() -> None:
    made = search(pruner="percentile", sampler="random", trials=50)
    rows = walk(made, until=20)
    finals = sorted(row["ood_mse"] for row in rows)
    middling = finals[8]  # better than the median, not among the best quarter
    curve = lambda step: middling * (1 + (STEPS - step) / STEPS)  # noqa: E731
    assert pruning("median", curve) is None
    assert pruning("percentile", curve) == STEPS * WARMUP_SHARE


def test_where_a_run_is_pruned_does_not_depend_on_how_often_it_is_looked_at() -> None:
    rows = walk(search(sampler="random", trials=50), until=20)
    steps = list(range(20, STEPS + 1, 20))
    errors = [0.5 if step < 200 else 1000.0 for step in steps]  # the best so far counts: never pruned
    worse = [1000.0 - step for step in steps]
    for curve, pruned in ((errors, False), (worse, True)):
        found = set()
        for stride in (1, 3, 20):
            made = search(sampler="random", trials=50)
            (spec,) = made.propose(rows, 1)
            answers = [made.pruned_at(rows, spec, Curve(steps[:n], curve[:n])) for n in range(stride, 21, stride)]
            answers.append(made.pruned_at(rows, spec, Curve(steps, curve)) if not any(answers) else None)
            found.add(next((a for a in answers if a is not None), None))
        assert len(found) == 1
        assert (None not in found) == pruned
    assert INTERVAL_SHARE * STEPS == 20


def test_a_run_is_judged_although_its_curve_was_thinned() -> None:
    """As that of a program that tells much: every other point goes, and the points are fewer than at the last look."""
    made, steps = search(sampler="random", trials=50), list(range(20, STEPS + 1, 20))
    rows = walk(made, until=20)
    (spec,) = made.propose(rows, 1)
    errors = [0.5 if step <= 200 else 1000.0 for step in steps]
    assert made.pruned_at(rows, spec, Curve(steps[:10], errors[:10])) is None
    rows = Rows([{**found, "ood_mse": 0.1, "curve_error": [0.1] * len(found["curve_error"])} for found in rows])
    thinned = steps[:12:2]
    assert len(thinned) < 10
    assert made.pruned_at(rows, spec, Curve(thinned, errors[:12:2])) == len(thinned)


def test_a_run_that_was_let_past_a_point_is_not_judged_there_by_later_rows() -> None:
    made, steps = search(sampler="random", trials=40), list(range(20, STEPS + 1, 20))
    specs = made.propose(Rows(), 26)
    rows = Rows(finish(spec, i, curve_error=[2e6] * 20) for i, spec in enumerate(specs[:11]))
    poor = [1e6 + step for step in steps]
    assert made.pruned_at(rows, specs[11], Curve(steps[:10], poor[:10])) is None
    for i, spec in enumerate(specs[12:], 12):
        rows.add(finish(spec, i, curve_error=[1.0] * 20))
    assert made.pruned_at(rows, specs[11], Curve(steps[:10], poor[:10])) is None
    assert made.pruned_at(rows, specs[11], Curve(steps, poor)) == 11
    assert search(sampler="random", trials=40).pruned_at(rows, specs[11], Curve(steps, poor)) == 5, "asked for the first time"


def test_the_front_has_the_trials_that_none_beats() -> None:
    made = search(objectives="id,validation", pruner="none", sampler="random", trials=30)
    rows = walk(made)
    front = made.front(rows)
    pairs = [(row["id_mse"], row["ood_mse"]) for row in rows]
    expected = [p for p in pairs if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in pairs)]
    assert sorted((t.row["id_mse"], t.row["ood_mse"]) for t in front) == sorted(expected)
    best = made.best(rows)
    assert best is not None
    assert best.row["ood_mse"] == min(p[1] for p in pairs)
    assert search().front(Rows()) == []


@pytest.mark.slow(2)
def test_rows_without_a_curve_of_the_error_are_trials_too(tmp_path: Path) -> None:
    walked = walk(search(trials=12, sampler="random"), until=10)
    rows = Rows({**found, "curve_error": []} if i % 2 else found for i, found in enumerate(walked))
    made = search(trials=12, sampler="random")
    assert [bool(trial.intermediate_values) for trial in made.study(rows).trials] == [True, False] * 5
    assert made.best(rows) is not None
    assert len(made.propose(rows, 2)) == 2
    made.export(rows, tmp_path / "study.db", "trials")


@pytest.mark.slow(2)
def test_the_exported_file_holds_every_trial(tmp_path: Path) -> None:
    made = search(trials=12, sampler="random")
    rows = walk(made)
    (spec,) = search(trials=13, sampler="random").propose(rows, 1)
    rows.add(finish(spec, 99, status="pruned", steps=100))
    made.export(rows, tmp_path / "study.db", "penalties")
    assert [p.name for p in tmp_path.iterdir()] == ["study.db"]
    read = optuna.load_study(study_name="penalties", storage=f"sqlite:///{tmp_path}/study.db")
    assert [t.params for t in read.trials] == [t.params for t in made.study(rows).trials]
    assert read.trials[-1].state == TrialState.PRUNED
    assert read.best_value == made.best(rows).row["ood_mse"]  # type: ignore[union-attr]
    with pytest.raises(OSError, match="nowhere"):
        made.export(rows, tmp_path / "nowhere" / "study.db", "penalties")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"sampler": "best"}, "tpe, nsga2, random, grid"),
        ({"pruner": "axe"}, "median, percentile, none"),
        ({"objectives": "beauty"}, "id,validation"),
        ({"objectives": "id,validation"}, "no pruner can weigh two objectives: use --pruner none$"),
    ],
)
def test_mistakes_say_what_is_allowed(changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        search(**changes)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.1), (0.0, 0.1), (0.1, math.inf)])
def test_a_range_on_a_log_scale_lies_above_0_and_is_not_empty(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="the range of a must be 0 < low <= high"):
        log_range("a", low, high)


@pytest.mark.slow
def test_the_dashboard_opens_the_exported_file(tmp_path: Path) -> None:
    made = search(trials=12, sampler="random")
    made.export(walk(made), tmp_path / "study.db", "penalties")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = Path(sys.executable).with_name("optuna-dashboard")
    words = [str(script), "--quiet", "--server", "wsgiref", "--port", str(port), f"sqlite:///{tmp_path}/study.db"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            study = read_json(port, "studies")["study_summaries"][0]
            assert study["study_name"] == "penalties"
            detail = read_json(port, f"studies/{study['study_id']}?after=0")
            assert len(detail["trials"]) == 12
        finally:
            server.terminate()


def read_json(port: int, path: str) -> Any:
    """What the dashboard's server on loopback answers, once it is up."""
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=10) as answer:
                return json.load(answer)
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
