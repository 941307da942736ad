"""Executes a search on Ray Tune, which places, starts and reuses workers and remembers nothing.

Tune's experiment folder is made afresh in every launch and thrown away; the store is the only memory.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.cluster import Cluster
from orchestrator.execution import Execution, Outcome

GRACE_SECONDS = 10.0
"""After Ctrl-C or SIGTERM the launch ends within this time, also if Ray is gone already and cannot be shut down."""

TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "100000",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "5",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000",
}


def execute(execution: Execution, cluster: Cluster, farewell: Callable[[], None] = lambda: None) -> Outcome:
    """Run the search to its end, or to a limit or signal, on the cluster.

    Args:
        farewell: called just before the process is ended at once, which a third signal does, or one that Ray does not obey.

    Raises:
        StoreError: the store cannot be written (disk full, permissions); every row it had is still there.
    """
    if execution.is_over():
        return execution.outcome
    os.environ.update({name: value for name, value in TUNE_SETTINGS.items() if name not in os.environ})
    with cluster.connected() as folder, _signals(execution, farewell):
        execution.workers = cluster.worker_count()
        _fit(execution, cluster, folder / "tune")
    if execution.fatal is not None:
        raise execution.fatal
    return execution.outcome


def _fit(execution: Execution, cluster: Cluster, folder: Path) -> None:
    from ray import tune

    from orchestrator.tune_bridge import Ending, NewestFirst, StudySearcher, Workers
    from trainables.adapter import PackTrainable

    def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{"CPU": cluster.cpus_per_run, "GPU": config["gpus"]}])

    tune.Tuner(
        tune.with_resources(PackTrainable, resources),
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(execution, cluster.gpus_per_run),
            num_samples=-1,
            max_concurrent_trials=execution.workers + execution.cpu_workers,
            reuse_actors=True,
            scheduler=NewestFirst(),
        ),
        run_config=tune.RunConfig(
            name="launch",
            storage_path=str(folder),
            callbacks=[Workers(execution)],
            stop=Ending(execution),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    ).fit()


@contextmanager
def _signals(execution: Execution, farewell: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: stop starting and running, keep every finished row. The third time: leave at once."""
    received = 0

    def leave(number: int) -> None:
        farewell()
        os._exit(128 + number)

    def stop(number: int, frame: object) -> None:
        nonlocal received
        received += 1
        name = signal.Signals(number).name
        if received == 1:
            execution.outcome.stopped = name
            execution.observer.notice(f"{name}: stopping; finished runs are stored (twice more leaves at once)")
            patience = threading.Timer(GRACE_SECONDS, leave, [number])
            patience.daemon = True
            patience.start()  # never cancelled: shutting Ray down may be what hangs
        elif received >= 3:
            leave(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if not received:  # else a third one is obeyed also while Ray is shut down and the answer written
            for number, handler in before.items():
                signal.signal(number, handler)
