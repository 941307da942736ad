"""What Ray Tune calls: thin classes that pass its events on to an `Execution`. Imported only once Ray is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback, Stopper
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from orchestrator.engine.execution import Execution
from orchestrator.engine.messages import Order, ParentOrder, RunOrder
from orchestrator.store import StoreError
from trainables.spec import RunSpec

SLICE_SECONDS = 2.0
"""A worker reports at least this often: how quickly progress shows and Ctrl-C is obeyed."""
CHECKPOINT_SECONDS = 60.0
"""A run that trains longer than this is checkpointed this often; shorter ones are simply trained again."""

READ_BY_TUNE = {"done", "trial_id", "node_ip", "pid"}
"""What Tune itself reads of a result after the callbacks had it."""


class _Stateless:
    """Tune pickles what it is given into its experiment folder; the execution is not Tune's to keep."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: object) -> _Stateless:
        return self


class StudySearcher(_Stateless, Searcher):
    """Hands the search's proposals to Tune as trials, up to a number of them.

    Args:
        weights: references to the weights of runs that others need, by run key; those that are put into Ray are added.
    """

    def __init__(
        self, execution: Execution, cpus_per_run: float, gpus_per_run: float, trials: int, weights: dict[str, Any]
    ) -> None:
        Searcher.__init__(self)
        _Stateless.__init__(self, execution)
        self._cpus, self._gpus = cpus_per_run, gpus_per_run
        self._trials_left = trials
        self._weights = weights

    def suggest(self, trial_id: str) -> Any:
        execution = self._execution
        try:
            if execution.is_over() or not self._trials_left:
                return Searcher.FINISHED
            specs = execution.next_pack(trial_id)
            if not specs:
                return Searcher.FINISHED if execution.is_over() else None
            runs = [
                RunOrder(
                    key=key,
                    spec=spec.to_dict(),
                    checkpoint=execution.store.load_checkpoint(key),
                    save_weights=execution.limits.save_weights(spec),
                    keep_end=execution.limits.keep_end(spec),
                    parents=self._parents(spec),
                )
                for key, spec in execution.running[trial_id].items()
            ]
        except Exception as error:
            return self._fatal(error)
        self._trials_left -= 1
        order = Order(
            runs=runs,
            measure_pack_size=execution.packs.asks(specs[0]),
            stall_seconds=execution.limits.stall_seconds,
            slice_seconds=SLICE_SECONDS,
            checkpoint_seconds=CHECKPOINT_SECONDS,
        )
        return {"order": order, "cpus": self._cpus, "gpus": self._gpus if execution.packs.on_gpu(specs[0]) else 0.0}

    def _parents(self, spec: RunSpec) -> dict[str, ParentOrder]:
        """The runs that a run needs. Their weights go to Ray once, however many runs need them."""
        return {
            name: ParentOrder(parent.to_dict(), self._weights_of(name, parent), self._parents(parent))
            for name, parent in self._execution.tasks.needs(spec).items()
        }

    def _weights_of(self, name: str, parent: RunSpec) -> Any:
        key = self._execution.tasks.key(parent)
        if key not in self._weights:
            try:
                self._weights[key] = ray.put(self._execution.store.load_weights(key))
            except FileNotFoundError as error:
                raise StoreError(f"{error.filename} was removed while runs needed it as their {name}") from error
        return self._weights[key]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error or trial_id not in self._execution.running:
            return
        try:
            self._execution.on_stopped(trial_id)
        except Exception as problem:
            self._fatal(problem)

    def _fatal(self, error: Exception) -> str:
        self._execution.fatal = self._execution.fatal or error
        return Searcher.FINISHED

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the store is the memory."""

    def restore(self, checkpoint_path: str) -> None:
        raise RuntimeError("a launch is never restored from Tune's files: run the same command again")


class NewestFirst(FIFOScheduler):
    """A worker that is free takes the newest run, so that older ones keep the workers that are just starting for them: Tune
    would hand the free worker to the oldest and end the one that starts in its place, and as long as runs are shorter than a
    worker's start there would be one worker only."""

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        return next((trial for trial in reversed(tune_controller.get_trials()) if trial.status == "PENDING"), None)


class Workers(_Stateless, Callback):
    """Which trials have a worker. One that Tune sees fail has lost it: the trainable itself reports exceptions as results.

    Tune remembers every trial as long as the launch lasts, with its config, its last result and statistics of each number in
    it. So these are emptied once they have been read, as a callback may do.
    """

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._execution.on_placed(trial.trial_id)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        for name in result.keys() - READ_BY_TUNE:
            del result[name]

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        trial.config["order"].runs.clear()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        trial.config["order"].runs.clear()
        if trial.trial_id in self._execution.running:
            file = Path(trial.error_file) if trial.error_file else None
            self._execution.on_lost(trial.trial_id, file.read_text() if file is not None and file.exists() else "")


class Ending(_Stateless, Stopper):
    """Passes on what packs report, and ends those of which the search has seen enough; all of them when they are of no more
    use."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        try:
            return self._execution.on_report(trial_id, result["report"])
        except Exception as error:
            self._execution.fatal = self._execution.fatal or error
            return True

    def stop_all(self) -> bool:
        self._execution.on_tick()
        return self._execution.is_done()
