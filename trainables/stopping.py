"""When a run that will not reach its target may end early: the stopping rule, a pure function of the run's curve.

Whoever changes it so that a curve could be stopped elsewhere raises `orchestrator.spec.TRAINING_VERSION`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

EVAL_EVERY = 20
"""Steps between two points of a curve."""
LEAST_POINTS = 10
"""No run is stopped before this point (200 steps)."""
FITTED = 0.1
"""A training set is fitted when the loss is under this share of the variance of its targets."""
CAUTION = 2.0
"""How many times faster than of late the accuracy is taken to rise for the rest of the budget."""
MARGIN = 0.005
"""The forecast must stay this far under the target."""


def target_variance(targets: Tensor) -> float:
    """Loss of the best constant output for `targets` (n, ...): their variance around the mean target, mean over all values.

    If all targets are equal, their mean square.
    """
    variance = (targets - targets.mean(dim=0)).square().mean().item()
    return variance or targets.square().mean().item()


def has_converged(
    loss: Sequence[float],
    accuracy: Sequence[float],
    target: float,
    max_steps: int,
    variance: float,
    every: int = EVAL_EVERY,
) -> bool:
    """Whether a run may be given up, seen from its curve so far: one point of `loss` and `accuracy` every `every` steps.

    At step t a run has visibly converged below its target when

    1. there are LEAST_POINTS points;
    2. the training set is fitted: the mean loss of the last quarter of the run is under FITTED * `variance`, where `variance`
       is the `target_variance` of the training set. So a run that has not begun to learn is never given up;
    3. even rising CAUTION times as fast as over its last doubling of steps, the accuracy would stay MARGIN under the target
       until `max_steps`. Accuracies are means over the last quarter of the run and over the last quarter of its first half;
       time is counted in doublings, for fitted runs improve ever more slowly.
    """
    points = len(loss)
    if points < LEAST_POINTS:
        return False
    quarter = points - points // 4
    if _mean(loss[quarter:]) > FITTED * variance:
        return False
    half = points // 2
    late, early = _mean(accuracy[quarter:]), _mean(accuracy[half - half // 4 : half])
    doublings = max(0.0, math.log2(max_steps / (points * every)))
    return late + CAUTION * max(0.0, late - early) * doublings < target - MARGIN


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
