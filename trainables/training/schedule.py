"""What happens at which step: the batch, the learning rate, and whether the run is looked at."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.spec import RunSpec
from trainables.task import Task
from trainables.training.adamw import AdamW
from trainables.training.seeds import stream
from trainables.training.stopping import EVAL_EVERY

BUDGET_LOOKS = 200
"""A run that always takes its whole budget is looked at this often to twice as often, if every EVAL_EVERY steps is more."""
KEPT_ORDERS, KEPT_INDICES = 8, 2**24
"""Orders of training sets that are kept at least, and indices that all of them may have: for the runs of a pack to find theirs
again."""
_orders: dict[tuple[int, int], tuple[int, Tensor]] = {}
"""By seed and size of a training set the last epoch that was asked for, and its order; the newest at the end."""


def batch_indices(seed: int, size: int, batch_size: int, step: int, steps: int = 1) -> Tensor:
    """Training-set indices (steps * batch_size,) of batch number `step`, counted from 0, and those that follow it.

    Batches are cut from a stream of concatenated seeded permutations of the training set. Every batch has exactly
    `batch_size` samples, also if the set is smaller, so runs of all data counts share their shapes.
    """
    start, count = step * batch_size, steps * batch_size
    first, last = start // size, (start + count - 1) // size
    epoch, order = _orders.pop((seed, size), (-1, None))
    orders = [order] if order is not None and epoch == first else []
    orders += [torch.randperm(size, generator=stream(seed, "order", e)) for e in range(first + len(orders), last + 1)]
    _orders[seed, size] = last, orders[-1]
    while len(_orders) > max(KEPT_ORDERS, KEPT_INDICES // size):
        _orders.pop(next(iter(_orders)), None)
    return torch.cat(orders)[start - first * size :][:count]


def look_every(spec: RunSpec, task: Task | None = None) -> int:
    """Steps between two points of the curve of a run, and never fewer than the task's `looks`."""
    least: int = getattr(task, "looks", lambda spec: EVAL_EVERY)(spec)
    if spec.stop != "budget":
        return least
    return max(least, EVAL_EVERY * max(1, spec.max_steps // (EVAL_EVERY * BUDGET_LOOKS)))


def learning_rate(spec: RunSpec, step: int) -> float:
    """Learning rate of step number `step`, counted from 0."""
    if spec.schedule == "constant":
        return spec.lr
    return spec.lr * (1 + math.cos(math.pi * step / spec.max_steps)) / 2


def set_learning_rate(optimizer: AdamW, rate: float) -> None:
    group = optimizer.param_groups[0]
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
