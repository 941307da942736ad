"""When a run that will not reach its target may end early: the stopping rule, a pure function of the run's curve.

Whoever changes it so that a curve could be stopped elsewhere raises `orchestrator.spec.TRAINING_VERSION`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

EVAL_EVERY = 20
"""Steps between two points of a curve."""
LEAST_POINTS = 6
"""No run is stopped before this point (120 steps)."""
FITTED = 0.1
"""A training set is fitted when the loss is under this share of the variance of its targets."""
CAUTION = 2.0
"""How many times its recent range the accuracy is taken to rise above its best."""
MARGIN = 0.005
"""How much more it is taken to rise in every doubling of steps still to come: about one sample of the subset looked at."""


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
    3. the forecast stays under the target. It is the best accuracy of the last half of the run, plus CAUTION times the range
       of accuracies in that half, plus MARGIN for every doubling of steps left until `max_steps`. Steps are counted in
       doublings because fitted runs improve ever more slowly. So a run that still rises or wavers is kept, and the nearer a
       flat one lies to its target, the later it is given up.

    How often each constant errs, and what it saves, is measured in benchmarks/README.md.
    """
    points = len(loss)
    if points < LEAST_POINTS:
        return False
    if _mean(loss[points - points // 4 :]) > FITTED * variance:
        return False
    recent = accuracy[points // 2 :]
    doublings = max(0.0, math.log2(max_steps / (points * every)))
    return max(recent) + CAUTION * (max(recent) - min(recent)) + MARGIN * doublings < target


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
