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
BEGUN = 0.5
"""An accuracy that was under this share of its best has only begun to rise."""
CAUTION = 2.0
"""How many times its recent range the accuracy is taken to rise above its best."""
MARGIN = 0.005
"""How much more it is taken to rise in every doubling of steps still to come: about one sample of the subset looked at."""

STEADY_POINTS = 16
"""From this point on (320 steps) means over many points are trusted as well as the best of them."""
STEADY_MARGIN = 0.015
"""How far the forecast by means must stay under the target: four samples of the subset looked at."""


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
    3. the accuracy has been above BEGUN of its best throughout the last half of the run. So a run whose accuracy is still zero,
       or has just begun to rise, is kept;
    4. a forecast stays under the target, either of two:

       - the best accuracy of the last half of the run, plus CAUTION times the range of accuracies in that half, plus MARGIN for
         every doubling of steps left until `max_steps`. So a run that still rises or wavers is kept, and the nearer a flat one
         lies to its target, the later it is given up;
       - from STEADY_POINTS on, the mean accuracy of the last quarter, plus CAUTION times its rise since the last quarter of the
         first half for every doubling of steps left, plus STEADY_MARGIN. So wavering alone does not keep a run for ever.

       Steps are counted in doublings because fitted runs improve ever more slowly.

    How often each constant errs, and what it saves, is measured in benchmarks/README.md.
    """
    points = len(loss)
    if points < LEAST_POINTS:
        return False
    if _mean(loss[points - points // 4 :]) > FITTED * variance:
        return False
    recent = accuracy[points // 2 :]
    if min(recent) <= BEGUN * max(recent):
        return False
    doublings = max(0.0, math.log2(max_steps / (points * every)))
    if max(recent) + CAUTION * (max(recent) - min(recent)) + MARGIN * doublings < target:
        return True
    if points < STEADY_POINTS:
        return False
    half = points // 2
    late, early = _mean(accuracy[points - points // 4 :]), _mean(accuracy[half - half // 4 : half])
    return late + CAUTION * max(0.0, late - early) * doublings + STEADY_MARGIN < target


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
