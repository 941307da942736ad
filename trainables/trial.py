"""What a run of a task will tell: found by one step of it, here and now."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from trainables.needs import untrained
from trainables.printed import printed_to_stderr, reason_of
from trainables.spec import RunSpec
from trainables.task import Task

SAMPLES = 4
"""Of each set that are looked at. What a task summarises may have a name for every kind of sample: then the subset is whole."""


def numbers_of(task: Task, spec: RunSpec) -> tuple[Sequence[str], bool]:
    """The names of the numbers that a finished run like `spec` has, and whether the curve of its error is of the squared error.

    Raises:
        ValueError: the task raises an exception.
    """
    from trainables.training.loop import Training

    spec = dataclasses.replace(spec, max_steps=1, stop="budget", precision="float32")
    try:
        with printed_to_stderr():
            training = Training(spec, untrained(task, spec))
            for name in ("train", "judged_train", "held_out", *(() if training.summarises else ("subset",))):
                if (split := getattr(training, name)) is not None:
                    setattr(training, name, split.take(slice(SAMPLES)))
            training.advance()
            result = training.result()
    except (Exception, SystemExit) as error:
        raise ValueError(f"the task cannot be trained for a step ({reason_of(error)})") from error
    of_columns = {"mse": result.ood_mse, "id_mse": result.id_mse, "accuracy": result.accuracy, "steps": result.steps}
    names = [name for name, value in of_columns.items() if value is not None]
    loss = [] if result.ood_mse is None and "loss" not in result.measures else ["loss"]
    return list(dict.fromkeys([*names, *loss, *result.measures, *(result.curve_summary or ())])), training.error_is_mse
