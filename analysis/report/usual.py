"""How far runs are from the usual settings: of answers that have as much behind them, the nearest one counts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from orchestrator.searches.axes import BUMPS
from trainables.bumps import BumpTask
from trainables.regularization import TASK as PENALTIES
from trainables.regularization import RegularizationTask
from trainables.rotation import TASK as ROTATION
from trainables.rotation import RotationTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Task

TASKS: Mapping[str, Task] = {BUMPS: BumpTask(), PENALTIES: RegularizationTask(), ROTATION: RotationTask()}
PUBLISHED: Mapping[str, Any] = {"schedule": "cosine", "weight_decay": 1e-4}
OF_STUDIES: Mapping[str, Mapping[str, Any]] = {PENALTIES: PUBLISHED, ROTATION: PUBLISHED}
"""What the studies of these tasks train with, where it is not the default of a spec."""
OF_A_QUESTION = ("N", "data_count", "seed", "max_steps", "stop", "precision", "options")
"""What every question decides for itself, or the machine."""


def departures(settings: Mapping[str, Any], task: str, decoder: str | None = None) -> int:
    """How many of these settings, the options of the task one by one, are not the usual ones of the task and the decoder. What
    is usual for other tasks than TASKS is not known."""
    usual = _usual(task, decoder) if task in TASKS else {}
    return sum(name in usual and usual[name] != value for name, value in settings.items())


@cache
def _usual(task: str, decoder: str | None) -> dict[str, Any]:
    fields = spec_fields(TASKS[task], {} if decoder is None else {"decoder": decoder})
    usual = RunSpec(task=task, N=8, data_count=0, seed=0, **fields, **OF_STUDIES.get(task, {})).to_dict()
    return {name: value for name, value in (usual | dict(fields["options"])).items() if name not in OF_A_QUESTION}
