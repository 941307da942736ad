"""Which tasks may be loaded: those of this project, and those that the user names. Never one that only a row names.

To load a task is to run its module, and a folder below the working directory is importable: whoever writes a row and a file
would run code here. The task of programs is among those of this project: to load it starts no program, nor does anything that
is asked of it here.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence

from orchestrator.errors import UserError
from orchestrator.searches.axes import BUMPS
from trainables.bumps import BumpTask
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tokenizer_task import TokenizerTask
from trainables.program import PATH as PROGRAMS
from trainables.regularization import TASK as PENALTIES
from trainables.regularization import RegularizationTask
from trainables.rotation import TASK as ROTATION
from trainables.rotation import RotationTask
from trainables.task import Task, load_task

BUILT_IN = (BUMPS, PENALTIES, ROTATION, PROGRAMS, PROBE, TOKENIZER, GENERATOR)
NAMED = 3
"""Tasks that a notice names."""


def load_all(paths: Iterable[str]) -> dict[str, Task]:
    """The tasks at these import paths.

    Raises:
        UserError: one cannot be loaded.
    """
    try:
        return {path: load_task(path) for path in paths}
    except ValueError as error:
        raise UserError(str(error)) from None


def measured_as(task: Task) -> str | None:
    """The task of this project whose measures fit the networks of a task that extends it."""
    kinds = {
        BUMPS: BumpTask,
        PENALTIES: RegularizationTask,
        ROTATION: RotationTask,
        TOKENIZER: TokenizerTask,
        GENERATOR: GeneratorTask,
    }
    return next((path for path, kind in kinds.items() if isinstance(task, kind)), None)


def not_loaded(tasks: Sequence[str], known: Collection[str], are: str) -> list[str]:
    """A line about the runs, given by their tasks, whose task is none of the known ones; no line if there are none."""
    others = sorted(set(tasks).difference(known))
    if not others:
        return []
    runs = sum(task not in known for task in tasks)
    named = ", ".join(map(repr, others[:NAMED])) + (" and others" if others[NAMED:] else "")
    told = f"1 run of {named} is {are}, and its" if runs == 1 else f"{runs} runs of {named} are {are}, and their"
    return [f"{told} task is not loaded: {to_load(others[0])}"]


def to_load(task: str) -> str:
    """What to do so that a task is loaded."""
    option = f"--task {shlex.quote(task)}" if task.isprintable() else "--task module:Class"
    return f"add {option} if you trust its code"
