"""What a study may still take: time and, where an hour of a worker has a price, money."""

from __future__ import annotations

import time

from orchestrator.progress import format_seconds
from orchestrator.scratch import scratch
from orchestrator.spec import RunSpec
from trainables.task import Task

SAMPLED_STEPS = 3


def step_seconds(spec: RunSpec, task: Task) -> float:
    """Seconds of an optimizer step of this run, from a few of them done here and now."""
    from trainables.training import Training, quiet_cpu

    quiet_cpu()
    with scratch():  # for the cache of torch
        training = Training(spec, task)
        training.advance(0)
        began = time.perf_counter()
        for _ in range(SAMPLED_STEPS):
            training.advance(0)
        return (time.perf_counter() - began) / SAMPLED_STEPS


def estimate_text(seconds: float, workers: int, price: float | None) -> str:
    """Time and cost of so many seconds of one worker's work."""
    text = f"about {format_seconds(seconds / workers)} with {workers} in parallel"
    return text if price is None else f"{text}, cost {cost_text(seconds, price)}"


def cost_text(seconds: float, price: float) -> str:
    return f"{price * seconds / 3600:.2f} at {price:g} per worker-hour"
