"""How much each searched setting matters, of searches over made rows."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, create_trial

from analysis import importance
from analysis.importance import shares_of
from orchestrator.searches import Rows
from orchestrator.searches.objective import Objective
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension
from orchestrator.store import make_row
from trainables.spec import RunSpec

TEMPLATE = RunSpec(task="tests.toy:Choosy", dataset="toys", N=8, data_count=3, seed=0, max_steps=100, stop="budget")
LR, WIDTH = Dimension("lr", (), (1e-4, 1e-1), log=True), Dimension("width", (), (16, 128), step=1)
DECAY = Dimension("weight_decay", (0.0,), (1e-6, 1.0), log=True)
DECODER = Dimension("decoder", ("cnn", "mlp"))


def searched(
    space: Sequence[Dimension], error: Callable[[RunSpec], float], trials: int = 40, **about: Any
) -> tuple[OptunaSearch, Rows]:
    """A random search, and its rows."""
    aims = (Objective("mse"),)
    search = OptunaSearch(TEMPLATE, "1", space, trials, sampler="random", pruner="none", objectives=aims, **about)
    rows, began = Rows(), datetime(2026, 1, 1, tzinfo=UTC)
    while not search.finished(rows):
        for spec in search.propose(rows, 1):
            ended = {"status": "missed", "reason": "budget", "steps": 100, "ood_mse": error(spec)}
            at = began + timedelta(seconds=len(rows))
            rows.add(make_row(spec, task_version="1", fixed_count=0, finished_at=at, **ended))
    return search, rows


def shares(space: Sequence[Dimension], error: Callable[[RunSpec], float], trials: int = 40, **about: Any) -> dict[str, float]:
    return shares_of(*searched(space, error, trials, **about))


@pytest.mark.slow(1)
def test_a_setting_of_words_and_a_range_is_one_and_its_value_counts() -> None:
    found = shares((LR, WIDTH, DECAY), lambda run: math.exp(5 * (run.weight_decay > 1e-3)))
    assert found == pytest.approx({"weight_decay": 1.0, "lr": 0.0, "width": 0.0}, abs=0.02)
    assert next(iter(found)) == "weight_decay"


def test_a_word_beside_a_range_counts_as_well() -> None:
    found = shares((LR, DECAY), lambda run: math.exp(run.weight_decay == 0))
    assert found == pytest.approx({"weight_decay": 1.0, "lr": 0.0}, abs=0.02)


def test_settings_that_all_have_a_word_beside_their_range_are_told() -> None:
    space = tuple(Dimension(name, (0.5,), (1e-4, 1e-1), log=True) for name in ("lr", "weight_decay"))
    found = shares(space, lambda run: math.exp(abs(math.log10(run.weight_decay / 1e-2))), 60)
    assert (list(found), found["weight_decay"] > 0.9) == (["weight_decay", "lr"], True)


def test_a_setting_of_words_alone_is_told() -> None:
    words = Dimension("batch_size", (8, 16, 32, 64))
    found = shares((words, LR), lambda run: math.exp(run.batch_size in (8, 32)))
    assert found == pytest.approx({"batch_size": 1.0, "lr": 0.0}, abs=0.02)
    assert shares((words, LR), lambda run: math.exp(run.batch_size == 16), 16)["batch_size"] > 0.9, "a word in the middle"
    assert shares((DECODER, words), lambda run: math.exp(run.decoder == "mlp"), 8)["decoder"] > 0.9


@pytest.mark.slow(1)
def test_what_only_settings_together_explain_is_no_share_of_either() -> None:
    found = shares((LR, WIDTH), lambda run: math.exp((run.lr > 10**-2.5) != (run.width > 72)), 200)
    assert max(found.values()) < 0.1


@pytest.mark.slow(2)
def test_shares_of_two_settings_that_matter_alike_are_alike_and_no_more_than_all() -> None:
    found = shares((LR, WIDTH), lambda run: math.exp(math.log10(run.lr) / 3 + run.width / 112), 200)
    assert found == pytest.approx({"lr": 0.5, "width": 0.5}, abs=0.1)
    assert sum(found.values()) <= 1


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (lambda run: math.exp(run.decoder == "mlp"), {"decoder": 1.0, "width": 0.0, "encoding": 0.0, "lr": 0.0}),
        (lambda run: math.exp(2.0 * (run.decoder == "cnn" and run.width > 72) - (run.decoder == "mlp")), None),
    ],
)
def test_a_setting_that_is_not_always_used_is_told_and_has_no_share_of_what_decides_that(
    error: Callable[[RunSpec], float], wanted: dict[str, float] | None
) -> None:
    def matters(values: Any) -> set[str]:
        return {"decoder", "lr"} | ({"width", "encoding"} if values.get("decoder") == "cnn" else set())

    found = shares((LR, DECODER, WIDTH, Dimension("encoding", ("bump", "ramp"))), error, 60, matters=matters)
    if wanted is None:
        assert found["width"] > 0.1 > max(found["lr"], found["encoding"])
    else:
        assert found == pytest.approx(wanted, abs=0.02)


def test_a_setting_that_no_trial_uses_has_no_share() -> None:
    found = shares((LR, WIDTH), lambda run: run.lr, matters=lambda _: {"lr"})
    assert found == pytest.approx({"lr": 1.0, "width": 0.0})


def test_a_range_of_one_value_has_no_share() -> None:
    narrow = Dimension("weight_decay", (), (0.1, 0.1), log=True)
    assert shares((LR, narrow), lambda run: run.lr) == pytest.approx({"lr": 1.0, "weight_decay": 0.0})


def test_numbers_at_or_below_0_are_taken_as_they_are() -> None:
    found = shares((LR, WIDTH), lambda run: float(run.width - 72))
    assert (list(found), found["width"] > 0.9) == (["width", "lr"], True)


def test_nothing_is_told_of_few_trials_or_one_setting_or_where_all_came_out_alike() -> None:
    assert shares((LR, WIDTH), lambda run: run.lr, 7) == {}
    assert set(shares((LR, WIDTH), lambda run: run.lr, 8)) == {"lr", "width"}
    assert shares((LR,), lambda run: run.lr) == {}
    assert shares((LR, WIDTH), lambda _: 0.5) == {}
    assert shares((LR, WIDTH), lambda run: 1.0 + 1e-16 * run.width) == {}, "no float tells them apart"


def test_of_many_trials_some_are_taken_from_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    search, rows = searched((LR, WIDTH), lambda run: math.exp(5 * (run.width > 72)), 60)
    taken = list[float]()

    def create(**about: Any) -> FrozenTrial:
        taken.append(about["value"])
        return create_trial(**about)

    monkeypatch.setattr(importance, "MOST_TRIALS", 30)
    monkeypatch.setattr(importance, "create_trial", create)
    shares_of(search, rows)
    assert taken == [math.log(trial.scores[0]) for trial in search.finished_trials(rows)][::2]


def test_the_same_rows_have_the_same_shares_and_nothing_warns() -> None:
    luck = random.Random(0)
    search, rows = searched((LR, WIDTH), lambda _: math.exp(luck.gauss(0, 1)), 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExperimentalWarning)
        assert shares_of(search, rows) == shares_of(search, rows)
