"""Subjects, their networks, and the training of a run. Knows torch, and neither Ray nor the orchestrator.

An author of a task imports all from here:
`from trainables import Counts, Data, Objective, RunSpec, Split, Task, run_of, setting, stream`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.needs import run_of as run_of
    from trainables.objectives import Objective as Objective
    from trainables.settings import read_settings as read_settings
    from trainables.settings import setting as setting
    from trainables.spec import Counts as Counts
    from trainables.spec import RunSpec as RunSpec
    from trainables.task import Data as Data
    from trainables.task import Split as Split
    from trainables.task import Task as Task
    from trainables.training.seeds import stream as stream

_FOUND_IN = {
    **{"Counts": "spec", "RunSpec": "spec", "read_settings": "settings", "setting": "settings", "Objective": "objectives"},
    **{"Data": "task", "Split": "task", "Task": "task", "stream": "training.seeds", "run_of": "needs"},
}
"""Imported when asked for: what only reads specs, as a search does, need not wait for torch."""

__all__ = ["Counts", "Data", "Objective", "RunSpec", "Split", "Task", "read_settings", "run_of", "setting", "stream"]


def __getattr__(name: str) -> Any:
    if name not in _FOUND_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FOUND_IN[name]}"), name)
