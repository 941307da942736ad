"""What Ray Tune calls: thin classes that pass its events on to an `Execution`. Imported only once Ray is needed."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import ray
import safetensors
from ray.exceptions import RayError
from ray.tune import Callback, Stopper
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.engine.execution import Execution
from orchestrator.engine.messages import HeldWeights, Order, PackReport, ParentOrder, RunOrder
from orchestrator.errors import printable
from orchestrator.store import ResultStore, StoreError, UnreadableError
from orchestrator.store.artifacts import DamagedWeightsError
from trainables.spec import RunSpec

SLICE_SECONDS = 2.0
"""A worker reports at least this often: how quickly progress shows and Ctrl-C is obeyed."""
CHECKPOINT_SECONDS = 60.0
"""A run that trains longer than this is checkpointed this often; shorter ones are simply trained again."""

HELD_BYTES = 64 * 2**20
"""So much of the weights of runs that others need stays in Ray for runs to come. An embedded Ray has room for twice as much."""
HANDED_OVER_SECONDS = 60.0
"""A worker that does not give its checkpoints within this time keeps them; the next ones come a minute later."""
READ_BY_TUNE = {"done", "trial_id", "node_ip", "pid"}
"""What Tune itself reads of a result after the callbacks had it."""
LOOK_SECONDS = 3.0
"""A worker whose process is gone at two looks after each other, Ray seems not to miss."""
IDLE_SECONDS = 10.0
"""A launch that has had nothing to train for so long lets its last worker go: another one may have claimed what is left, and
wait for just this place."""
WORKER = b"ray::"
"""How the command line of a worker begins."""
KILLED = "Selected to kill:"
"""How a line begins in which Ray names a worker that it killed to save the memory of its machine."""


class _Stateless:
    """Tune pickles what it is given into its experiment folder; the execution is not Tune's to keep."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __deepcopy__(self, memo: object) -> _Stateless:
        return self

    @contextlib.contextmanager
    def _ending_the_launch(self) -> Iterator[None]:
        """What is raised in the block ends the launch. Out of it Tune would make an error of its own."""
        try:
            yield
        except Exception as error:
            self._execution.fatal = self._execution.fatal or error


class _GoneError(Exception):
    """The weights of a run that another one needs are not there any more: another launch may have set them aside."""

    def __init__(self, name: str, key: str, why: str = "") -> None:
        super().__init__(name, key, why)
        self.name, self.key, self.why = name, key, printable(why)[:200]

    def settle(self, store: ResultStore) -> str:
        """See to it that the file is not where it was; what has become of it."""
        return f"{store.place.shown(f'weights/{self.key}.safetensors')} was removed while runs needed it as their {self.name}"


class _DamagedError(_GoneError):
    """The weights of a run that another one needs cannot be read, are no whole safetensors file, or not what was saved."""

    def settle(self, store: ResultStore) -> str:
        now = store.set_weights_aside(self.key)
        place, name = store.place, store.place.shown(f"weights/{self.key}.safetensors")
        place.note(f"set aside {name}: it is damaged ({self.why}); it is now {now}, and run {self.key} is trained again")
        return f"{name} was damaged and is now {now}, and runs need it as their {self.name}"


class StudySearcher(_Stateless, Searcher):
    """Hands the search's proposals to Tune as trials, up to a number of them.

    Args:
        weights: those that Ray has; those that are put into it are added.
    """

    def __init__(
        self, execution: Execution, cpus_per_run: float, gpus_per_run: float, trials: int, weights: HeldWeights
    ) -> None:
        Searcher.__init__(self)
        _Stateless.__init__(self, execution)
        self._cpus, self._gpus = cpus_per_run, gpus_per_run
        self._trials_left = trials
        self._weights = weights
        self._has_begun = False
        self._idle_since = math.inf

    def suggest(self, trial_id: str) -> Any:
        execution = self._execution
        try:
            if execution.is_over() or not self._trials_left:
                return Searcher.FINISHED
            specs = execution.next_pack(trial_id)
            if not specs:
                return Searcher.FINISHED if execution.is_over() or self._keeps_a_worker_in_vain() else None
            checkpoints = execution.store.load_checkpoints(list(execution.running[trial_id]))
            runs = [
                RunOrder(
                    key=key,
                    spec=spec.to_dict(),
                    checkpoint=checkpoints.get(key),
                    save_weights=execution.limits.save_weights(spec),
                    keep_end=execution.limits.keep_end(spec),
                    parents=self._parents(spec),
                )
                for key, spec in execution.running[trial_id].items()
            ]
        except _GoneError as gone:
            return self._without(trial_id, gone)
        except Exception as error:
            return self._fatal(error)
        self._trials_left -= 1
        self._has_begun, self._idle_since = True, math.inf
        order = Order(
            runs=runs,
            measure_pack_size=execution.packs.asks(specs[0], trial_id),
            stall_seconds=execution.limits.stall_seconds,
            slice_seconds=SLICE_SECONDS,
            checkpoint_seconds=CHECKPOINT_SECONDS,
        )
        return {"order": order, "cpus": self._cpus, "gpus": self._gpus if execution.packs.on_gpu(specs[0]) else 0.0}

    def _keeps_a_worker_in_vain(self) -> bool:
        """Tune ends its last worker only with the experiment. The next experiment has none before there is a run for it."""
        if self._execution.running or not self._has_begun:
            self._idle_since = math.inf
            return False
        self._idle_since = min(self._idle_since, now := time.monotonic())
        return now - self._idle_since > IDLE_SECONDS

    def _parents(self, spec: RunSpec) -> dict[str, ParentOrder]:
        """The runs that a run needs. Their weights go to Ray once, however many runs need them one after the other."""
        return {
            name: ParentOrder(parent.to_dict(), self._weights_of(name, parent), self._parents(parent))
            for name, parent in self._execution.tasks.needs(spec).items()
        }

    def _weights_of(self, name: str, parent: RunSpec) -> Any:
        """The reference to the weights of a run. What was not used for long is let go; the orders of runs in progress keep
        what these need."""
        key = self._execution.tasks.key(parent)
        if (held := self._weights.pop(key, None)) is None:
            data = self._load(name, key)
            held = ray.put(data), len(data)
        self._weights[key] = held
        while len(self._weights) > 1 and sum(size for _, size in self._weights.values()) > HELD_BYTES:
            del self._weights[next(iter(self._weights))]
        return held[0]

    def _load(self, name: str, key: str) -> bytes:
        try:
            data = self._execution.store.load_weights(key)
        except FileNotFoundError as error:
            raise _GoneError(name, key) from error
        except DamagedWeightsError as error:
            raise _DamagedError(name, key, error.why) from error
        except UnreadableError as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            raise _DamagedError(name, key, str(error)) from error
        try:
            safetensors.deserialize(data)
        except safetensors.SafetensorError as error:
            raise _DamagedError(name, key, str(error)) from error
        return data

    def _without(self, trial_id: str, gone: _GoneError) -> str | None:
        """Set damaged weights aside, and let the run whose weights are gone be trained again, here or by another launch, before
        those that need it.

        Gives what `suggest` does then."""
        execution = self._execution
        try:
            told = gone.settle(execution.store)
            execution.on_stopped(trial_id)
            execution.remade.forget(gone.key)
            if not execution.remade.again(gone.key) and not execution.store.has_weights(gone.key):
                raise StoreError(told)
        except Exception as error:
            return self._fatal(error)
        return None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error or trial_id not in self._execution.running:
            return
        with self._ending_the_launch():
            self._execution.on_stopped(trial_id)

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

    def __init__(self, execution: Execution) -> None:
        super().__init__(execution)
        self._trials: dict[str, Any] = {}
        self._given: dict[str, Any] = {}
        """Those that have a worker which has trained others, and has not begun with them yet."""
        self._staged = Path()
        execution.end_worker = self._end_worker

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """A trial that Tune has not started has an actor only if this is one that has trained others."""
        if not (placement := self._execution.placement).is_waiting():
            return
        for trial in trials:
            if trial.status == "PENDING" and _actor_of(trial) is not None and placement.give(trial.trial_id):
                self._given[trial.trial_id] = trial

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._given.pop(trial.trial_id, None)
        self._trials[trial.trial_id] = trial
        with self._ending_the_launch():
            self._execution.on_placed(trial.trial_id)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        for name in result.keys() - READ_BY_TUNE:
            del result[name]

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._given.pop(trial.trial_id, None)
        self._trials.pop(trial.trial_id, None)
        trial.config["order"].runs.clear()

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._given.pop(trial.trial_id, None)
        self._trials.pop(trial.trial_id, None)
        trial.config["order"].runs.clear()
        if trial.trial_id in self._execution.running:
            file = Path(trial.error_file) if trial.error_file else None
            with self._ending_the_launch():
                self._execution.on_lost(trial.trial_id, file.read_text() if file is not None and file.exists() else "")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._staged = Path(getattr(next(iter(trials), None), "local_experiment_path", ""))

    def remove_staged(self, name: str) -> None:
        """Remove the files that Tune has staged on this machine for the experiment, once it is over. On a cluster they would
        stay as long as Ray's session.

        Args:
            name: of the experiment, and so of one of the folders that these files are in. No other one has it.
        """
        for place in (self._staged, *self._staged.parents):
            if place.name == name:
                shutil.rmtree(place, ignore_errors=True)
                with contextlib.suppress(OSError):  # experiments that began in the same second are in it, too
                    place.parent.rmdir()
                return

    def on_failed_call(self, error: RayError) -> None:
        """A call of a worker failed in a way that Tune does not expect, so Tune has ended the experiment and all its workers.
        Such is the error if Ray killed a worker to save the memory of its machine. The runs of the workers that died have lost
        them; all runs have, if it is not known which ones died. The others are asked for again as if nothing had happened."""
        with self._ending_the_launch():
            reason = str(error)
            alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
            begun = self._execution.running.keys() & self._trials.keys()
            dead = {trial_id for trial_id in begun if _has_died(self._trials[trial_id], reason, alive)} or begun
            for trial_id in list(self._execution.running):
                if trial_id in dead or not begun:
                    self._execution.on_lost(trial_id, reason)
                else:
                    self._execution.on_stopped(trial_id)

    @contextlib.contextmanager
    def looked_after(self) -> Iterator[None]:
        """Within the block Ray is told of each worker whose process is gone, where all are on this machine. It learns that by
        itself, unless processes that the worker forked keep its connection to Ray open."""
        over = threading.Event()

        def look() -> None:
            missed = set[str]()
            while not over.wait(LOOK_SECONDS):
                missing = {trial_id for trial_id, trial in list(self._trials.items()) if _is_gone(trial)}
                for trial_id in missed & missing:
                    if (trial := self._trials.get(trial_id)) is not None:
                        _give_up(trial)
                missed = missing

        threading.Thread(target=look, daemon=True, name="look at workers").start()
        try:
            yield
        finally:
            over.set()

    def _end_worker(self, trial_id: str) -> None:
        """It may take a while, or for ever where Ray hangs as well."""
        if (trial := self._trials.get(trial_id)) is not None:
            threading.Thread(target=_end_worker_of, args=(trial,), daemon=True, name="end of a worker").start()
        elif (trial := self._given.get(trial_id)) is not None:  # it would not answer which process it is
            threading.Thread(target=_give_up, args=(trial,), daemon=True, name="end of a worker").start()


def _has_died(trial: Any, reason: str, alive: Collection[str]) -> bool:
    """Whether the worker of a trial is one that Ray says it killed, or its node is not alive any more."""
    try:
        about = trial.last_result
    except RayError:  # it died before it could be asked
        return True
    pid, host = about.get("pid"), about.get("node_ip")
    killed = f"(IP: {host}," in reason and re.search(rf"^{KILLED}.*\bpid={pid}\b", reason, re.MULTILINE) is not None
    return killed or (host is not None and host not in alive)


def _is_gone(trial: Any) -> bool:
    """Whether the process of a worker on this machine is there no more."""
    with contextlib.suppress(RayError):  # it died before it could be asked, as Ray knows
        if (pid := trial.last_result.get("pid")) is not None:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
    return False


def _give_up(trial: Any) -> None:
    """Let Ray take the worker of a trial for dead, and end what it forked. Where Tune does not tell its actor, Ray has to miss
    it by itself."""
    if (actor := _actor_of(trial)) is not None:
        with contextlib.suppress(RayError):  # Ray is ending
            ray.kill(actor)


def _actor_of(trial: Any) -> Any:
    return getattr(getattr(trial, "temporary_state", None), "ray_actor", None)


def _end_worker_of(trial: Any) -> None:
    about = trial.last_result  # Tune asks each worker for it before the first step
    pid, host = about.get("pid"), about.get("node_ip")
    if pid is not None and not (host == ray.util.get_node_ip_address() and kill_worker(pid)):
        for node in ray.nodes():
            if node["Alive"] and node["NodeManagerAddress"] == host:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                ray.remote(kill_worker).options(num_cpus=0, scheduling_strategy=there).remote(pid)
    _give_up(trial)


def kill_worker(pid: int) -> bool:
    """End a worker of Ray on this machine; whether that is what has this number."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(WORKER):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


class Ending(_Stateless, Stopper):
    """Passes on what packs report, and ends those of which the search has seen enough; all of them when they are of no more
    use."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        report: PackReport = result["report"]
        with self._ending_the_launch():
            if self._execution.on_report(trial_id, _with_checkpoints(report)):
                return True
            left = self._execution.running[trial_id]
            pruned = [key for key, told in report.runs.items() if not told.done and key not in left]
            if pruned and report.actor is not None:
                report.actor.drop.remote(pruned)  # Tune asks for the next step after that
            return False
        return True

    def stop_all(self) -> bool:
        with self._ending_the_launch():
            self._execution.on_tick()
            return self._execution.is_done()
        return True


def _with_checkpoints(report: PackReport) -> PackReport:
    """The report with the checkpoints that its worker has; without, if they cannot be had: Tune hears of lost workers, too."""
    if not report.saved or report.actor is None:
        return report
    try:
        held = ray.get(report.actor.checkpoints.remote(), timeout=HANDED_OVER_SECONDS)
    except RayError:
        return report
    runs = {key: dataclasses.replace(told, checkpoint=held.get(key)) for key, told in report.runs.items()}
    return dataclasses.replace(report, runs=runs)
