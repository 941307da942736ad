"""What a plan does with each run that it asks for, done once for all plans of the same run: its task is checked, and its steps
are timed for the estimate."""

from __future__ import annotations

import pytest

from orchestrator import again, scaling
from orchestrator.command import recipe
from orchestrator.engine import estimate
from trainables import check
from trainables.spec import RunSpec
from trainables.task import Task

_step_seconds, _check_task = estimate.step_seconds, check.check_task
_taken: dict[tuple[RunSpec, bool], float] = {}
_checked: set[tuple[RunSpec, bool]] = set()


def look_at_each_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the plans of a test take what was found of a run before. One that failed is tried again."""
    monkeypatch.setattr(estimate, "step_seconds", _timed)
    monkeypatch.setattr(estimate, "SAMPLED_STEPS", 1)
    for module in (again, check, recipe, scaling):
        monkeypatch.setattr(module, "check_task", _check)


def _timed(spec: RunSpec, task: Task, on_gpu: bool = False) -> float:
    if (spec, on_gpu) not in _taken:
        _taken[spec, on_gpu] = _step_seconds(spec, task, on_gpu)
    return _taken[spec, on_gpu]


def _check(task: Task, spec: RunSpec, keeps_weights: bool = False) -> None:
    if (spec, keeps_weights) not in _checked:
        _check_task(task, spec, keeps_weights)
        _checked.add((spec, keeps_weights))
