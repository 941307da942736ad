"""The stopping rule on made curves and on a real run."""

from __future__ import annotations

import pytest
import torch

from orchestrator.spec import RunSpec
from trainables.bumps import BumpTask
from trainables.stopping import LEAST_POINTS, STEADY_POINTS, has_converged, target_variance
from trainables.training import Training, quiet_cpu

FITTED = [1e-4] * 100


def test_a_flat_fitted_curve_below_the_target_is_given_up_at_the_least_point() -> None:
    assert has_converged(FITTED[:LEAST_POINTS], [0.6] * LEAST_POINTS, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[: LEAST_POINTS - 1], [0.6] * (LEAST_POINTS - 1), 0.9, 2000, 1e-2)


def test_a_run_that_has_not_begun_to_learn_is_kept() -> None:
    assert not has_converged([1e-2] * 50, [0.2] * 50, 0.9, 2000, 1e-2)


def test_a_run_whose_accuracy_has_just_begun_to_rise_is_kept() -> None:
    """The curve of a task whose accuracy is zero until the training set is nearly fitted."""
    curve = [0.0] * 7 + [0.03, 0.17, 0.4, 0.68, 0.93]
    assert not any(has_converged(FITTED[:n], curve[:n], 0.9, 2000, 1e-2) for n in range(13))
    assert not has_converged(FITTED, [0.0] * 100, 0.9, 2000, 1e-2)


def given_up_at(accuracy: float) -> int | None:
    """The first point at which a fitted run that has always had this accuracy is given up."""
    return next((n for n in range(1, 101) if has_converged([1e-4] * n, [accuracy] * n, 0.9, 2000, 1e-2)), None)


def test_the_nearer_a_flat_curve_lies_to_its_target_the_later_it_is_given_up() -> None:
    assert [given_up_at(a) for a in (0.6, 0.87, 0.885, 0.89, 0.897, 0.9)] == [LEAST_POINTS, LEAST_POINTS, 13, 26, 66, None]


def test_a_curve_that_rises_or_wavers_is_kept_until_its_range_is_small() -> None:
    rising = [0.5] * 10 + [0.7] * 5 + [0.75] * 5
    assert has_converged(FITTED[:20], rising, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[:20], [0.5] * 10 + [0.65] * 5 + [0.75] * 5, 0.9, 2000, 1e-2)
    wavering = [0.75, 0.65] * 10
    assert not has_converged(FITTED[: STEADY_POINTS - 1], wavering[: STEADY_POINTS - 1], 0.9, 2000, 1e-2)
    assert has_converged(FITTED[:STEADY_POINTS], wavering[:STEADY_POINTS], 0.9, 2000, 1e-2)


def test_a_wavering_run_near_its_target_and_a_slowly_rising_one_are_kept() -> None:
    near, below = [0.88, 0.905] * 50, [0.865, 0.898] * 50
    assert not any(has_converged(FITTED[:n], near[:n], 0.9, 2000, 1e-2) for n in range(101))
    assert has_converged(FITTED[:40], below[:40], 0.9, 2000, 1e-2)
    rising = [0.7 + 0.004 * n for n in range(40)]
    assert not has_converged(FITTED[:40], rising, 0.9, 2000, 1e-2)


def test_what_came_before_the_last_half_does_not_count() -> None:
    assert has_converged(FITTED[:20], [0.95] * 10 + [0.7] * 10, 0.9, 2000, 1e-2)


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
    assert result.steps <= 300
    assert result.accuracy < 0.9
