"""What a launch keeps in memory of each run."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.engine.ray_tune import READ_BY_TUNE
from orchestrator.searches import Rows
from orchestrator.store import make_row
from orchestrator.store.rows import decode, encode
from tests.orchestrator.trials_child import RUNS, TRIALS
from trainables.spec import RunSpec
from trainables.training.result import CURVES


@pytest.mark.slow(1)
def test_a_row_with_curves_takes_less_than_5_kb() -> None:
    points = range(63)  # those of a run of 3,150 steps
    spec = RunSpec(task="t:T", dataset="bumps", N=28, data_count=1, seed=0, options=(("sigma", 1.0), ("tolerance", 0)))
    curve = [1 / (3 + point) for point in points]
    stored = [
        encode([
            make_row(spec.with_count(count), task_version="1", fixed_count=0, status="missed", reason="budget", accuracy=0.25,
                     loss=0.1, id_mse=0.1, ood_mse=0.1, measures={"share": 0.5}, versions="python torch ray" * 3,
                     curve_step=[50 * point for point in points], curve_loss=curve, curve_accuracy=curve, curve_error=curve)
        ])
        for count in range(1, 401)
    ]  # fmt: skip
    rows = Rows(decode(stored[0]))
    tracemalloc.start()
    try:
        for table in stored[1:]:
            rows.add(decode(table)[0])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(rows) == 400
    assert 1024 < held / 399 < 5 * 1024
    kept = next(iter(rows))
    original = decode(stored[0])[0]
    assert {name: list(value) if name in CURVES else value for name, value in kept.items()} == original


@pytest.mark.deep
@pytest.mark.slow(40)
def test_tune_forgets_what_a_trial_trained_and_reported_and_the_trials_of_former_experiments(start: Callable[..., Any]) -> None:
    command = start(study="tests.orchestrator.trials_child")
    assert command.wait() == 0, command.stderr
    seen = json.loads(command.stdout.splitlines()[-1])
    assert seen["trained"] == seen["finished"] == RUNS
    assert 0 < seen["ended"] <= seen["trials"] <= TRIALS
    assert seen["runs"] == 0
    assert set(seen["results"]) <= {*READ_BY_TUNE, "experiment_tag"}
    assert seen["metrics"] == ["done"]
