"""Launches that train in their own process, one step of a worker after another, in the place of Ray: for tests of what a study
asks, stores and answers, whoever trains. Signals, kills, the store, the search and the worker's own code are the real ones."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import ray.exceptions
from ray.tune.search import Searcher

from orchestrator.engine import driver, ray_tune, worker
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Execution

training = False
"""Whether a worker's code is at work, as tasks of tests ask."""


def stay() -> None:
    """Let this process, which ends with its launch, start and join no Ray."""
    driver._fit_once = _fit_once
    Cluster._connected = lambda self, folder: contextlib.nullcontext()  # type: ignore[method-assign]
    Cluster.parts = lambda self: []  # type: ignore[method-assign]
    ray_tune.ray = SimpleNamespace(put=lambda weights: weights, get=lambda given, timeout: given, exceptions=ray.exceptions)
    worker.ray = SimpleNamespace(get=lambda weights: weights, is_initialized=lambda: False)
    ray.remote = lambda **about: _Remote
    ray.wait = lambda streams, num_returns, timeout=None: (streams[:num_returns], streams[num_returns:])
    ray.get = _get


def _fit_once(execution: Execution, cluster: Cluster, folder: Path, trials: int, weights: dict[str, Any]) -> None:
    """What Tune does with these, in as few words."""
    searcher = ray_tune.StudySearcher(execution, cluster.cpus_per_run, cluster.gpus_per_run, trials, weights)
    ending, numbers = ray_tune.Ending(execution), itertools.count()
    busy: dict[str, worker.PackTrainable] = {}
    idle: list[worker.PackTrainable] = []
    while not ending.stop_all():
        told: Any = None
        while len(busy) < execution.workers + execution.cpu_workers:
            told = searcher.suggest(trial := str(next(numbers)))
            if told is None or told == Searcher.FINISHED:
                break
            if idle:
                idle[-1].reset_config(told)
            busy[trial] = idle.pop() if idle else worker.PackTrainable(told)
            execution.on_placed(trial)
        if not busy and told == Searcher.FINISHED:
            break
        if not busy:
            time.sleep(0.05)
        for trial, of_trial in list(busy.items()):
            methods = {name: SimpleNamespace(remote=getattr(of_trial, name)) for name in ("checkpoints", "drop")}
            actor = SimpleNamespace(**methods)  # as one of Ray would be
            report = dataclasses.replace(_step(of_trial), actor=actor)
            if ending(trial, {"report": report}) or report.done:
                searcher.on_trial_complete(trial)
                idle.append(busy.pop(trial))
    for trial, of_trial in busy.items():
        searcher.on_trial_complete(trial)
        of_trial.cleanup()


def _step(of_trial: worker.PackTrainable) -> Any:
    global training
    training = True
    try:
        return of_trial.step()["report"]
    finally:
        training = False


class _Failed:
    """The result of a task that raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _get(result: Any) -> Any:
    if isinstance(result, _Failed):
        raise ray.exceptions.RayError(str(result.error)) from result.error
    return result


class _Remote:
    """A function whose calls are streams of what it yields."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def options(self, **about: Any) -> _Remote:
        return self

    def remote(self, *args: Any) -> Iterator[Any]:
        try:
            yield from self._function(*args)
        except Exception as error:
            yield _Failed(error)
