"""When a run that will not reach its target may end early: the stopping rule, pure functions of what a run has shown so far.

A run is given up at a look at which `has_converged`, `has_come_to_rest` and `has_learned` all hold. Whoever changes them so
that a run could be given up elsewhere raises `trainables.spec.RULE_VERSION`.

What the rule cannot see: a run that has learned its training set and part of the held-out one, whose loss and weights are at
rest, and whose accuracy jumps later all the same. No curve tells such a run from one that has ended. So the rule is never the
last word: the threshold search has its verdicts audited (`orchestrator.searches.audits`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
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
"""How much more it is taken to rise in every doubling of steps still to come, and never less than one sample looked at."""

STEADY_POINTS = 16
"""From this point on (320 steps) means over many points are trusted as well as the best of them."""
STEADY_MARGIN = 0.015
"""How far the forecast by means must stay under the target, and never less than STEADY_SAMPLES of the samples looked at."""
STEADY_SAMPLES = 4

STILL_LOSS = 0.05
"""The training loss is at rest when it falls by less than this share of the variance of the targets."""
STILL_NORM = 0.06
"""The weights are at rest when their norm stays within this share of itself."""
LEARNED = 0.4
"""An accuracy that is under this share of the way from chance to 1 may be luck."""


def target_variance(targets: Tensor) -> float:
    """Loss of the best constant output for `targets` (n, ...): their variance around the mean target, mean over all values.

    If all targets are equal, their mean square.
    """
    if targets.dtype in (torch.float16, torch.bfloat16):  # in which squares overflow, or vanish
        targets = targets.float()
    if bool((targets == targets[:1]).all()):  # their mean is rounded, and what is left around it is no variance
        return targets.square().mean().item()
    return (targets - targets.mean(dim=0)).square().mean().item()


def class_entropy(targets: Tensor) -> float:
    """Cross-entropy of the best constant output for class indices `targets` (n, ...): the entropy of their frequencies, at each
    place of a sample, mean over the places; in nats. 0 if all samples are of one class."""
    flat = targets.reshape(len(targets), -1).cpu()
    places, classes = flat.shape[1], int(flat.max()) + 1
    counts = torch.bincount((flat + classes * torch.arange(places)).flatten(), minlength=places * classes)
    shares = counts.view(places, classes).double() / len(flat)
    return torch.special.entr(shares).sum(1).mean().item()


def has_converged(
    loss: Sequence[float],
    accuracy: Sequence[float],
    target: float,
    max_steps: int,
    variance: float,
    every: int = EVAL_EVERY,
    samples: int | None = None,
) -> bool:
    """Whether the accuracy is expected to stay below `target`, seen from a run's curve so far: one point of `loss` and
    `accuracy` every `every` steps. Of few `samples`, one may raise the accuracy by more than the margins below: they are then
    larger.

    At step t a run has visibly converged below its target when

    1. there are LEAST_POINTS points;
    2. the training set is fitted: the mean loss of the last quarter of the run is under FITTED * `variance`, where `variance`
       is the `target_variance` of the training set. So a run that has not begun to learn is never given up. Of cross-entropy it
       is the `class_entropy`, the loss of the best constant output, too. Of a model's own loss, for which nobody knows that
       output, it is the mean loss of the untrained network over the training set (at most SCALE_SAMPLES of it, with fixed
       draws): a loss that never falls under a tenth of where it began, as that of a diffusion model, is never given up. Without
       a positive `variance`, as of a loss that begins at or below 0, there is no such share, and no run is given up;
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
    if points < LEAST_POINTS or variance <= 0:
        return False
    if _mean(loss[points - points // 4 :]) > FITTED * variance:
        return False
    recent = accuracy[points // 2 :]
    if min(recent) <= BEGUN * max(recent):
        return False
    doublings = max(0.0, math.log2(max_steps / (points * every)))
    share = 1 / samples if samples else 0.0
    if max(recent) + CAUTION * (max(recent) - min(recent)) + max(MARGIN, share) * doublings < target:
        return True
    if points < STEADY_POINTS:
        return False
    half = points // 2
    late, early = _mean(accuracy[points - points // 4 :]), _mean(accuracy[half - half // 4 : half])
    return late + CAUTION * max(0.0, late - early) * doublings + max(STEADY_MARGIN, STEADY_SAMPLES * share) < target


def has_come_to_rest(loss: Sequence[float], norm: Sequence[float], variance: float) -> bool:
    """Whether training no longer changes the network, seen from the training `loss` and the Euclidean `norm` of all parameters
    that are trained, a value every look.

    Both must be at rest: the mean loss of the last quarter of the run is no more than STILL_LOSS * `variance` under that of the
    quarter before it, and over the last half of the run the norm has moved by no more than STILL_NORM of its last value. Where
    weight decay slowly turns a network that has memorized its training set into one that generalizes, the norm is what moves
    (Power et al. 2022, arXiv 2201.02177; Liu et al. 2023, arXiv 2210.01117).
    """
    points = len(loss)
    quarter = max(1, points // 4)
    if _mean(loss[points - 2 * quarter : points - quarter]) - _mean(loss[points - quarter :]) > STILL_LOSS * variance:
        return False
    recent = norm[points // 2 :]
    return max(recent) - min(recent) <= STILL_NORM * norm[-1]


def has_learned(accuracy: Sequence[float], chance: float) -> bool:
    """Whether the held-out accuracy, a value every look, is well above `chance`: its mean over the last quarter of the run is
    at least LEARNED of the way from chance to 1 (Cohen's kappa). An accuracy that has never moved does not say when it will."""
    points = len(accuracy)
    return _mean(accuracy[points - max(1, points // 4) :]) - chance >= LEARNED * (1 - chance)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
