"""What a run minimises: the word of a task's loss, and what a model may bring of its own in its place.

Shapes in comments: n samples, M runs.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from trainables.task import Split
from trainables.training.adamw import BETAS
from trainables.training.seeds import stream

SQUARED_ERROR, CROSS_ENTROPY = LOSSES = ("squared-error", "cross-entropy")
"""Words of a task's `loss`; the first one is meant where there is none."""
Draws = tuple[Tensor, ...]


class Objective(Protocol):
    """What a model (what `task.model(spec)` gives) may bring of its own. Every member is optional, and one may be there without
    the others, but `draws` needs `losses`.

    With `losses` the task's `loss` says nothing, and `Split.targets` are whatever `losses` makes of them. `penalty()` is added
    to any loss. Runs of a pack share the code of one model: attributes that are no parameters must be equal in all of them.
    """

    ema: float
    """Decay of an average of the parameters, from 0 up to but not 1. It begins at the initial weights and follows every step:
    average = ema * average + (1 - ema) * parameters. What is looked at, judged and kept of a run is then the average, with the
    model's buffers and its parameters of whole numbers or bools. 0 or absent: there is none."""
    beta2: float
    """Decay of AdamW's average of squared gradients, from 0 up to but not 1; 0.999 if absent. An average that is slow to follow
    makes a step long where gradients suddenly grow: up to (1 - 0.9) / sqrt(1 - beta2) times the rate, which is 3.2 times with
    0.999 and once with 0.99."""
    draws_inside: bool
    """Whether the forward pass itself draws random numbers, as dropout does. Such a run trains alone, never in a pack, and
    torch's global generator is seeded for each of its steps."""
    samples_afresh: bool
    """Whether `sample` is given other random numbers at every look, and others again where the whole held-out set is judged at
    the same step. Looks are then independent of each other, so that the mean of some is surer than one. False or absent: it is
    given the same each time, and a curve shows what training changes."""

    def draws(self, batch: Split, generator: Generator) -> Draws:
        """All that is random in a step, such as noise, times or masks: tensors (n, ...), a row for each sample of the batch,
        drawn on the CPU from this generator alone. So a checkpoint needs no state of a generator, and runs of a pack draw what
        they draw alone. The batch lies where the run is trained, which may be a GPU: look at its shapes."""

    def losses(self, batch: Split, draws: Draws, teacher: nn.Module | None) -> Tensor:
        """The loss of each sample (n,), a function of its arguments and the parameters; their mean is minimised. It is also
        called at a look, in eval mode and under `torch.no_grad()`: what differentiates in it needs `torch.enable_grad()`.

        Args:
            draws: those of `draws`, on the device of the batch; empty if there is no such member.
            teacher: the average as a module in its evaluation mode, without gradients; None without `ema`.
        """

    def sample(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Outputs (n, ...) for inputs (n, ...), where they are drawn and not computed by `forward`. The generator is one of the
        CPU, and the same at every look, unless `samples_afresh`. A run of a pack samples by itself."""


def loss_of(task: object) -> str:
    """The word of its loss."""
    word: str = getattr(task, "loss", SQUARED_ERROR)
    return word


def brings(model: nn.Module, member: str) -> bool:
    """Whether a model has this method of an `Objective`; a layer of that name is none."""
    found = getattr(model, member, None)
    return callable(found) and not isinstance(found, nn.Module)


def decay_of(model: nn.Module) -> float:
    """That of its average; 0 if it keeps none."""
    return float(getattr(model, "ema", 0.0))


def beta2_of(model: nn.Module) -> float:
    """That with which it is trained."""
    return float(getattr(model, "beta2", BETAS[1]))


def draws_inside(model: nn.Module) -> bool:
    return bool(getattr(model, "draws_inside", False))


def samples_afresh(model: nn.Module) -> bool:
    return bool(getattr(model, "samples_afresh", False))


def average_of(model: nn.Module) -> nn.Module | None:
    """The average of a model's parameters before the first step; None if it keeps none."""
    return copy.deepcopy(model).eval().requires_grad_(False) if decay_of(model) else None


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module) -> None:
    """Move the average on by one step of the model."""
    decay = decay_of(model)
    for mean, p in zip(average.parameters(), model.parameters(), strict=True):
        if p.requires_grad:
            mean.lerp_(p, 1 - decay)
        else:
            mean.copy_(p)
    for kept, buffer in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(buffer)


def draw(model: nn.Module, batch: Split, seed: int, *name: object) -> Draws:
    """What the model draws for a batch from the run's stream of this name, on the CPU; nothing if it draws nothing."""
    if not brings(model, "draws"):
        return ()
    found: Draws = model.draws(batch, stream(seed, *name))  # type: ignore[operator]
    return found


class OwnLosses(nn.Module):
    """The `losses` of a model and its teacher as the forward pass of one module, so that both may be batched over runs."""

    def __init__(self, model: nn.Module, teacher: nn.Module | None) -> None:
        super().__init__()
        self.model, self.teacher = model, teacher

    def forward(self, batch: Split, draws: Draws) -> Tensor:
        losses: Tensor = self.model.losses(batch, draws, self.teacher)  # type: ignore[operator]
        return losses


def mean_loss(losses: Tensor) -> Tensor:
    """The mean over the samples of losses (..., n), with at least 32 bits."""
    return losses.mean(-1, dtype=torch.promote_types(losses.dtype, torch.float32))


def batch_loss(loss: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of outputs over all target values."""
    if loss == CROSS_ENTROPY:
        return functional.cross_entropy(outputs, targets)
    return functional.mse_loss(outputs, targets)


def sample_losses(loss: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample (n,), the mean over its target values."""
    if loss == CROSS_ENTROPY:
        return functional.cross_entropy(outputs, targets, reduction="none").reshape(len(targets), -1).mean(1)
    return (outputs - targets).square().flatten(1).mean(dim=1)


def run_losses(loss: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of each run (M,) of outputs (M, n, ...)."""
    if loss == CROSS_ENTROPY:
        return sample_losses(loss, outputs.flatten(0, 1), targets.flatten(0, 1)).view(len(targets), -1).mean(1)
    return (outputs - targets).square().flatten(1).mean(1)


def widened(outputs: Any) -> Any:
    """Outputs as they are judged: floating-point ones in float32, others as they are."""
    return outputs.float() if outputs.is_floating_point() else outputs
