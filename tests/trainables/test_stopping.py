"""The stopping rule on made curves and on a real run."""

from __future__ import annotations

import pytest
import torch

from orchestrator.spec import RunSpec
from trainables.bumps import BumpTask
from trainables.stopping import EVAL_EVERY, LEAST_POINTS, has_converged, target_variance
from trainables.training import Training, quiet_cpu

FITTED = [1e-4] * 100


def test_a_flat_fitted_curve_below_the_target_is_given_up_at_the_least_point() -> None:
    assert has_converged(FITTED[:LEAST_POINTS], [0.6] * LEAST_POINTS, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[: LEAST_POINTS - 1], [0.6] * (LEAST_POINTS - 1), 0.9, 2000, 1e-2)


def test_a_run_that_has_not_begun_to_learn_is_kept() -> None:
    assert not has_converged([1e-2] * 50, [0.2] * 50, 0.9, 2000, 1e-2)


def test_a_curve_at_the_edge_of_the_target_is_kept() -> None:
    assert not has_converged(FITTED[:50], [0.897] * 50, 0.9, 2000, 1e-2)
    assert has_converged(FITTED[:50], [0.89] * 50, 0.9, 2000, 1e-2)


def test_a_rising_curve_is_kept_while_its_budget_could_bring_it_there() -> None:
    rising = [0.5] * 10 + [0.7] * 10
    assert not has_converged(FITTED[:20], rising, 0.9, 2000, 1e-2)
    assert has_converged(FITTED[:20], rising, 0.9, 20 * EVAL_EVERY, 1e-2)


def test_target_variance_is_the_loss_of_the_best_constant() -> None:
    assert target_variance(torch.tensor([[1.0, 5.0], [3.0, 5.0]])) == 0.5
    assert target_variance(torch.tensor([[3.0, 1.0]])) == 5.0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_failing_run_is_given_up_early_with_the_same_verdict(seed: int) -> None:
    quiet_cpu()
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 12, "data_count": 15, "decoder": "mlp", "width": 64}
    run = RunSpec(**fields, seed=seed, max_steps=1500, options=tuple(BumpTask.defaults.items()))
    training = Training(run, BumpTask())
    training.advance()
    result = training.result()
    assert (result.status, result.reason, result.passage_step) == ("missed", "converged", None)
    assert result.steps <= 750
    assert result.accuracy < 0.9
