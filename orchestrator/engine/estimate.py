"""How long a step of a run takes, timed here and now."""

from __future__ import annotations

import time

from orchestrator.engine.scratch import scratch
from trainables.spec import RunSpec
from trainables.task import Task

SAMPLED_STEPS = 3


def step_seconds(spec: RunSpec, task: Task) -> float:
    """Seconds of an optimizer step of this run, from a few of them done here and now."""
    from trainables.training.loop import Training
    from trainables.training.precision import quiet_cpu

    quiet_cpu()
    with scratch():  # for the cache of torch
        training = Training(spec, task)
        training.advance(0)
        began = time.perf_counter()
        for _ in range(SAMPLED_STEPS):
            training.advance(0)
        return (time.perf_counter() - began) / SAMPLED_STEPS
