"""How many runs a machine trains fastest together: measured by a few steps."""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time

import torch

from trainables.objectives import draws_inside
from trainables.task import Split
from trainables.training.loop import Training
from trainables.training.packs import WARM_UP, Pack
from trainables.training.result import CURVES

GAIN = 0.9
"""A pack is made twice as large if a step then takes less than this share of its former time for each run."""
DOUBLINGS_ON_GPU = 2
"""At a time: on a GPU, where every size takes a recording, and where a single doubling of a small pack may gain little."""
LARGEST = 1024
TIMED_SECONDS = 0.3
"""Time given to the measurement of one pack size."""


def best_pack_size(run: Training, largest: int = LARGEST) -> int:
    """How many runs like `run`, which is left as it is, this machine trains fastest together, from a few steps of 1, 2, 4, ...;
    on a GPU of 1, 4, 16, ...

    A pack is doubled as long as a step then takes less than GAIN of its time for each run, and memory holds it. On a GPU, which
    other processes may slow down for a moment, 16 are tried even if 4 gain too little. Runs that draw inside the forward pass
    are never packed, nor are those whose model cannot be stacked.
    """
    if draws_inside(run.model):
        return 1
    on_gpu = run.device.type == "cuda"
    doublings = DOUBLINGS_ON_GPU if on_gpu else 1
    best, size = 1, 2**doublings
    # what cannot be stacked is trained alone, and what cannot be trained is told by its own training
    with contextlib.suppress(Exception):
        least = _seconds_per_run_step(run, 1)
        while size <= largest:
            seconds = _seconds_per_run_step(run, size)
            if seconds <= GAIN**doublings * least:
                best, least = size, seconds
            elif not on_gpu or size > 2**doublings:
                break
            size *= 2**doublings
    return best


def _seconds_per_run_step(run: Training, size: int) -> float:
    """On a CPU the least of what some steps take, as any more is the work of others. On a GPU the mean: it gives its processes
    slices of milliseconds, so the least is that of a short step that fits into one, and says nothing of a long one."""
    on_gpu = run.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time  # others may be using the CPU
    pack = Pack([twin(run) for _ in range(size)])
    alone = size == 1 and not on_gpu
    if not alone:
        if not pack._alone:
            pack._close_gaps(pack.runs)
        if pack._alone or not pack._can_train_steps(pack.runs, 0.0):
            raise ValueError(f"it is trained alone: {pack.unstacked}")

    def seconds() -> float:
        """Of one step, or on a GPU of some, for each run."""
        began, step = clock(), pack.runs[0].step
        if alone:
            pack.runs[0].train_step()
        else:
            pack._train_steps(pack.runs, math.inf if on_gpu else 0.0)
        if on_gpu:
            torch.cuda.synchronize()
        return (clock() - began) / (pack.runs[0].step - step) / size

    for _ in range(WARM_UP):  # the first one warms up; on a GPU the step is recorded, with looks that are close not at once
        seconds()
        if not on_gpu or pack._replay is not None:
            break
    timed, end = [seconds()], time.monotonic() + TIMED_SECONDS
    while time.monotonic() < end and pack.runs[0].step < run.spec.max_steps:
        timed.append(seconds())
    return statistics.fmean(timed) if on_gpu else min(timed)


def twin(run: Training) -> Training:
    """A run like another that has not begun, with data and weights of its own, and so with as much memory."""
    twin = copy.copy(run)
    for name in ("train", "held_out", "subset"):
        setattr(twin, name, Split(*(t.clone() for t in getattr(run, name))))
    twin.model, twin.average = copy.deepcopy(run.model), copy.deepcopy(run.average)
    twin.penalty = getattr(twin.model, "penalty", None)
    twin.optimizer = twin.new_optimizer(twin.model.parameters())
    twin.step, twin.loss_sum = 0, run.loss_sum.clone()
    for name in (*CURVES, "curve_norm", "curve_summary"):
        setattr(twin, name, copy.copy(getattr(run, name)))
    return twin
