"""What a run says of itself: how far it is, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

CURVES = ("curve_step", "curve_loss", "curve_accuracy", "curve_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one training found."""

    status: str
    """`passed`: the target was reached and confirmed on the whole held-out set; `missed`; `diverged`: the loss is
    not finite."""
    reason: str
    """Why it ended: `target` reached; `converged` below it, so that the stopping rule gave it up; `budget`, all steps done;
    `diverged`; `ended`, a program by itself."""
    steps: int
    """Optimizer steps done."""
    passage_step: int | None
    """Step at which the target was first confirmed; None if never."""
    accuracy: float | None
    """Share of correct samples of the whole held-out set at the end. This and the next three are None where a program did not
    tell them."""
    id_mse: float | None
    """Mean squared error on the training set at the end. Where the loss is another: the mean of the task's measure `mse`, and
    None if it has none."""
    ood_mse: float | None
    """The same on the held-out set."""
    loss: float | None
    """Mean training loss, without the penalty, between the last two looks."""
    measures: dict[str, float]
    """Means of all the task's measures at the end, held-out; those of the training set are prefixed `id_`. Where the loss is
    not the squared error, it is among them as `loss`."""
    curve_step: list[int] = field(repr=False)
    curve_loss: list[float] = field(repr=False)
    """Mean training loss since the previous point."""
    curve_accuracy: list[float] = field(repr=False)
    """Accuracy on the fixed held-out subset."""
    curve_error: list[float] = field(repr=False)
    """Mean loss on the fixed held-out subset: the squared error, if it is no other."""
    device: str
    curve_summary: dict[str, list[float]] | None = field(default=None, repr=False)
    """The numbers of the task's `summarise` at every look, by name; None if it has no such member."""


class Progress(NamedTuple):
    step: int
    loss: float
    accuracy: float
