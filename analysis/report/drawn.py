"""What tasks draw of the outputs of their trained networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure

from analysis.report.findings import Picture
from analysis.trained import load_model
from trainables.objectives import brings, widened
from trainables.task import DRAWN, Task
from trainables.training.seeds import stream

MOST = 4
"""Runs of a study that are drawn: the latest."""
TRIED = 24
"""Runs that are asked for their weights until so many are found."""


def drawn_by_task(
    runs: Iterable[Mapping[str, Any]], tasks: Mapping[str, Task], weights: Callable[[str], bytes]
) -> list[Picture]:
    """A picture of each of the latest runs whose task can draw and whose weights are kept; none of runs that needed others.

    Args:
        weights: those of a run, by its key; OSError where there are none.
    """
    able = [run for run in runs if hasattr(tasks.get(run["task"]), "draw") and not run["parents"] and run["status"] != "failed"]
    able.sort(key=lambda run: (run["finished_at"], run["key"]), reverse=True)
    found: list[Picture] = []
    for run in able[:TRIED]:
        if len(found) == MOST:
            break
        try:
            kept = weights(run["key"])
        except OSError:
            continue
        told = f"N {run['N']}, {run['data_count']} samples, seed {run['seed']}, {run['status']}"
        what = f"what run {run['key'][:10]} gives for what is held out: {told}"
        found.append(Picture(f"drawn-{run['key']}", what, partial(_draw, run, kept, tasks[run["task"]])))
    return found


def _draw(run: Mapping[str, Any], weights: bytes, task: Task) -> Figure:
    spec, _, model = load_model(run, weights)
    data = task.judged(spec) if hasattr(task, "judged") else task.data(spec)
    inputs = widened(data.held_out.inputs[:DRAWN])
    with torch.no_grad():
        sampled = brings(model, "sample")
        outputs = model.sample(inputs, stream(spec.seed, "drawn")) if sampled else model(inputs)  # type: ignore[operator]
    figure = task.draw(spec, widened(outputs))  # type: ignore[attr-defined]
    if not isinstance(figure, Figure):
        raise TypeError(f"draw() must give a matplotlib.figure.Figure, not {type(figure).__name__}")
    return figure
