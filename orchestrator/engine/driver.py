"""Executes a search on Ray Tune, which places, starts and reuses workers and remembers nothing.

Tune's experiment folders are made afresh in every launch. Those on this machine are removed at its end; on other machines of a
cluster, empty ones stay as long as Ray's session. The store is the only memory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.engine.cluster import MOST_SAID, Cluster
from orchestrator.engine.execution import INTERRUPTED, Execution, Outcome
from orchestrator.engine.last_words import last_words
from orchestrator.engine.messages import HeldWeights
from orchestrator.engine.oom_kills import OomKills
from orchestrator.engine.placement import LEAST_HOPELESS_SECONDS
from orchestrator.engine.pulse import SIGNAL_SECONDS, Part, watched
from orchestrator.engine.scratch import remove_all
from orchestrator.engine.signals import hear
from orchestrator.errors import LostRayError, printable
from orchestrator.store import StoreError
from trainables.control_groups import oom_counter

GRACE_SECONDS = 10.0
"""After a signal, and once its answer is told, the launch ends within this time, also if Ray hangs and cannot be shut down."""
LETTING_GO_SECONDS = 3.0
"""A process that ends at once takes so long at most to give back what its launch has claimed. Else other machines would wait
until its lease in a bucket expires."""
NOT_ANSWERED = 1
STOPPING = tuple(signal.Signals[name] for name in INTERRUPTED)

TRIALS, TRIALS_PER_WORKER = 2_000, 100
"""Tune remembers every trial of an experiment, in some 10 KB. So an experiment has so many, or so many for each worker if that
is more; then it ends, and the next one begins with new workers."""

TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "100000",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "5",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000",
}


ANOTHER_HEAD = "WrongClusterID"
"""What Ray says where the head of a cluster is not the one that was joined."""
RESTARTED = "the head of the cluster was started anew, and knows nothing of this launch"

HEARD_SECONDS = 0.05
"""As SIGNAL_SECONDS, by a thread that only listens. Not longer, for the process may end without a word once a part is gone."""

Farewell = Callable[[BaseException | None], None]
"""Says how the launch ended: by a signal (None), or by what."""


@contextmanager
def executed(
    execution: Execution, cluster: Cluster, farewell: Farewell = lambda error: None, unsaid: str = "the launch has ended"
) -> Iterator[Outcome]:
    """Run the search to its end, or to a limit or signal, on the cluster; then the block is run.

    Ray takes a second or two to end. So it ends after the block, which gives the answer. Only after a signal, which may have
    ended parts of Ray, it ends before. If the block sets the outcome's `code`, all is told: if Ray hangs then, or a signal
    comes, the process ends with this code and without another word.

    Args:
        farewell: called just before the process is ended at once. A third signal does that, one that Ray does not obey, and the
            death of Ray, which would hang, or itself end the process without a word.
        unsaid: what is said on stderr if the process ends without a word all the same.

    Raises:
        StoreError: the store cannot be written (disk full, permissions); every row it had is still there.
        LostRayError: the embedded Ray starts no worker, or Ray fails.
    """
    if execution.is_over():
        yield execution.outcome
        return
    answered = False
    os.environ.update({name: value for name, value in TUNE_SETTINGS.items() if name not in os.environ})
    leaving = _Leaving(farewell, lambda: execution.store.close())

    def lost(part: Part) -> None:
        time.sleep(HEARD_SECONDS)
        if execution.outcome.stopped in INTERRUPTED:  # Ray got the signal as well
            leaving.now(128 + signal.Signals[execution.outcome.stopped])
            return
        if answered:  # nothing needs Ray any more
            return
        leaving.now(NOT_ANSWERED, LostRayError(part.loss))

    try:
        with (
            last_words(unsaid) as leaving.withdraw,
            leaving.over(),
            _signals(execution, leaving) as heed_signals,
            cluster.connected() as folder,
        ):
            heed_signals()  # Ray has taken some to itself
            if cluster.address == "local":
                execution.placement.hopeless_after = max(execution.limits.stall_seconds, LEAST_HOPELESS_SECONDS)
                execution.kills = OomKills(oom_counter())
            execution.observer.connected(execution.workers + execution.cpu_workers)
            if execution.outcome.stopped is None:
                with watched(cluster.parts(), lost):
                    _fit(execution, cluster, folder / "tune")
                if execution.fatal is None and execution.outcome.stopped not in INTERRUPTED:
                    answered = True
                    yield execution.outcome
            if execution.outcome.code is not None:
                leaving.all_told(execution.outcome.code)
            if execution.fatal is not None:
                leaving.within(GRACE_SECONDS, NOT_ANSWERED, execution.fatal)
    except SystemExit:  # so Ray, while it starts, answers a signal
        time.sleep(SIGNAL_SECONDS)
        if answered or execution.outcome.stopped not in INTERRUPTED:
            raise
    if execution.fatal is not None:
        raise execution.fatal
    if not answered:
        yield execution.outcome


def _fit(execution: Execution, cluster: Cluster, folder: Path) -> None:
    """Run the search in as many experiments as it takes."""
    workers = execution.workers + execution.cpu_workers
    weights: HeldWeights = {}
    while not execution.is_over():
        _fit_once(execution, cluster, folder, max(TRIALS, TRIALS_PER_WORKER * workers), weights)
        shutil.rmtree(folder, ignore_errors=True)
    if execution.fatal is None and execution.outcome.stopped not in (None, *INTERRUPTED):
        with contextlib.suppress(StoreError):  # the answer is told from what is known here
            execution.look_again(0.0)  # another launch may have answered the question that a limit leaves open here


def _fit_once(execution: Execution, cluster: Cluster, folder: Path, trials: int, weights: HeldWeights) -> None:
    from ray import tune
    from ray.exceptions import RayError

    from orchestrator.engine.ray_tune import Ending, NewestFirst, StudySearcher, Workers
    from orchestrator.engine.worker import PackTrainable

    _keep_keys_here()
    of_workers, name = Workers(execution), f"launch-{secrets.token_hex(6)}"
    tuner = tune.Tuner(
        PackTrainable,
        tune_config=tune.TuneConfig(
            search_alg=StudySearcher(execution, cluster.cpus_per_run, cluster.gpus_per_run, trials, weights),
            num_samples=-1,
            max_concurrent_trials=execution.workers + execution.cpu_workers,
            reuse_actors=True,
            scheduler=NewestFirst(),
        ),
        run_config=tune.RunConfig(
            name=name,
            storage_path=str(folder),
            callbacks=[of_workers],
            stop=Ending(execution),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )
    try:
        with of_workers.looked_after() if cluster.address == "local" else contextlib.nullcontext():
            tuner.fit()
    except (RayError, tune.TuneError) as error:
        failed = RESTARTED if ANOTHER_HEAD in str(error) else f"Ray has failed: {_in_a_line(error)}"
        execution.fatal = execution.fatal or LostRayError(failed)
    except RuntimeError as error:  # so Tune ends if a call of a worker fails in a way that it does not expect
        if not isinstance(error.__cause__, RayError):
            raise
        of_workers.on_failed_call(error.__cause__)
    finally:
        of_workers.remove_staged(name)


def _keep_keys_here() -> None:
    """Tune hands the keys of a bucket to every worker, in an environment that Ray writes to logs which other users of a machine
    may read. Workers need none: the driver alone opens the store."""
    from ray.tune.execution import class_cache

    handed: set[str] = getattr(class_cache, "ENV_VARS_TO_PROPAGATE", set())
    handed.difference_update([name for name in handed if name.startswith("AWS_")])


def _in_a_line(error: Exception) -> str:
    """What an error of Ray says; of a whole traceback, what was raised."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return printable(lines[-1 if lines[0].startswith("Traceback") else 0])[:MOST_SAID]


class _Leaving:
    """Ends the process at once, or after a while, if nothing else does: Ray may hang for ever in what cannot be interrupted."""

    def __init__(self, farewell: Farewell, let_go: Callable[[], None] = lambda: None) -> None:
        self._farewell, self._let_go = farewell, let_go
        self._begun = threading.Lock()
        self._timers: list[threading.Timer] = []
        self._code: int | None = None
        """That of the answer, once all is told."""
        self.withdraw: Callable[[], None] = lambda: None
        """See `last_words`."""

    def now(self, code: int, error: BaseException | None = None) -> None:
        if not self._begun.acquire(blocking=False):
            return
        if self._code is not None:
            code = self._code
        _after(GRACE_SECONDS, os._exit, code)  # the terminal may hang as well
        try:
            try:
                if not self.is_told:
                    self._farewell(error)
                self.withdraw()
            finally:  # also if the terminal is gone
                letting_go = threading.Thread(target=self._let_go, name="letting go", daemon=True)
                letting_go.start()
                remove_all()
                letting_go.join(LETTING_GO_SECONDS)
        finally:
            os._exit(code)

    def within(self, seconds: float, code: int, error: BaseException | None = None) -> None:
        """Unless it is `over` before."""
        self._timers.append(_after(seconds, self.now, code, error))

    def finally_within(self, seconds: float, code: int) -> None:
        """Also if it is over: what comes after may hang too."""
        _after(seconds, self.now, code)

    def all_told(self, code: int) -> None:
        """Whatever ends the process from now on, it is with this code, and without another word."""
        self._code = code
        self.withdraw()
        self.within(GRACE_SECONDS, code)

    @property
    def is_told(self) -> bool:
        return self._code is not None

    @contextmanager
    def over(self) -> Iterator[None]:
        """After the block Ray is gone."""
        try:
            yield
        finally:
            for timer in self._timers:
                timer.cancel()
            if self._begun.locked():
                threading.Event().wait()  # the process is ending already


def _after(seconds: float, do: Callable[..., None], *args: object) -> threading.Timer:
    timer = threading.Timer(seconds, do, args)
    timer.daemon = True
    timer.start()
    return timer


@contextmanager
def _signals(execution: Execution, leaving: _Leaving) -> Iterator[Callable[[], None]]:
    """Ctrl-C, SIGTERM or SIGHUP once: stop starting and running, keep every finished row. The third time: leave at once. A
    signal that was ignored before, as in `nohup` or in a job in the background, still is. Outside the main thread nothing
    changes.

    Yields what takes the signals again from whoever took them meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    received = 0

    def obey(number: int) -> None:
        nonlocal received
        if number not in STOPPING:
            return
        received += 1
        if received == 1 and not leaving.is_told:
            leaving.finally_within(GRACE_SECONDS, 128 + number)  # shutting Ray down may be what hangs
            name = signal.Signals(number).name
            execution.outcome.stopped = name
            execution.store.hasten()
            with contextlib.suppress(OSError):  # the terminal may be gone
                execution.observer.notice(f"{name}: stopping; finished runs are stored (twice more to leave at once)")
        elif received >= 3:
            leaving.now(128 + number)

    def heed() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if handler == signal.SIG_IGN else lambda *_: None)

    before = {number: signal.getsignal(number) for number in STOPPING}
    heed()
    end = hear(obey)
    try:
        yield heed
    finally:
        if not received:  # else a third one is obeyed also while the answer is written
            end()
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
