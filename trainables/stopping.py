"""When a run that will not reach its target may end early: the stopping rule, a pure function of the run's curve."""

from __future__ import annotations

from collections.abc import Sequence

STOPPING_RULE = "0"
"""Version of the rule; it changes whenever the same curve could be stopped elsewhere."""

EVAL_EVERY = 20
"""Steps between two points of a curve."""


def has_converged(loss: Sequence[float], accuracy: Sequence[float], target: float, max_steps: int) -> bool:
    return False
