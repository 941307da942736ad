"""What happens to the runs of one launch: which is next, and what each kind of ending means. Driven by events; knows no Ray.

Every finished run is put into the store at once. A run that loses its worker is asked for again as a new trial, so whatever
fails, the only state is the store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.errors import LostRayError
from orchestrator.searches import Curve, Rows, Search
from orchestrator.store import ResultStore, make_row
from trainables.spec import RunSpec, run_key
from trainables.task import Task
from trainables.training.loop import CURVES

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before a run is tried again after its 1st, 2nd, ... lost worker; the last one repeats for ever."""
TASK_ERROR = r"^(\x1b\[\d+m)?ray::"
"""How Ray begins the text of an exception raised in a worker, as against the death of one."""
OUT_OF_MEMORY = "running low on memory"
"""What Ray says of a worker that it killed to save its machine."""
PATIENCE_SECONDS = 60.0
"""Workers that no machine takes are spoken of after so long; again after twice the time, and so on."""


class Observer(Protocol):
    """Told what happens, as it happens. Must not raise."""

    def connected(self, workers: int) -> None: ...
    def started(self, key: str, spec: RunSpec) -> None: ...
    def progressed(self, key: str, spec: RunSpec, report: Mapping[str, Any]) -> None: ...
    def finished(self, row: Mapping[str, Any]) -> None: ...
    def dropped(self, key: str) -> None: ...
    def notice(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop asking for runs, and what happens to failing ones."""

    deadline: float | None = None
    """`time.monotonic()` after which no run is started; what runs then is finished."""
    worker_seconds: float | None = None
    """Time of all workers together after which no run is started."""
    stall_seconds: float = 600.0
    """A worker that tells nothing of its runs for so long is ended."""
    stop_on_error: bool = False
    save_weights: Callable[[RunSpec], bool] = lambda spec: False
    """Whether the final weights of a run are kept."""
    keep_end: Callable[[RunSpec], bool] = lambda spec: False
    """Whether a run that the stopping rule gives up leaves the checkpoint from which it can be trained on."""


@dataclass(slots=True)
class Outcome:
    """What became of one launch. `stopped` is None when the search had nothing more to ask."""

    trained: int = 0
    """Those that failed are not among them."""
    failed: int = 0
    stopped: str | None = None
    """`time`, `cost`, `error`, `SIGINT` or `SIGTERM`."""
    worker_seconds: float = 0.0
    """Time that workers spent on runs, all together."""


@dataclass(slots=True)
class _Attempts:
    """How often one run has failed, by class of failure."""

    lost: int = 0
    raised: int = 0
    out_of_memory: int = 0
    not_before: float = 0.0
    alone: bool = False
    """Whether it is no longer trained together with others: one of them may be the cause."""


@dataclass(slots=True)
class Execution:
    """The run-time state of one launch, driven by Tune's events: `next_pack` and the `on_...` methods."""

    search: Search
    task: Task
    store: ResultStore
    rows: Rows
    observer: Observer
    workers: int
    limits: Limits
    versions: str
    launch: str
    packs: PackSizes
    cpu_workers: int = 0
    """Workers without a GPU besides, for the decoders that train on CPUs even so."""
    concerns: Mapping[str, Collection[object]] = field(default_factory=dict)
    """Which rows of other launches matter to the search: column to the values it may have."""
    outcome: Outcome = field(default_factory=Outcome)
    running: dict[str, dict[str, RunSpec]] = field(default_factory=dict)
    """Trial id to the runs of its pack that have not ended: run key to spec."""
    _busy: dict[str, RunSpec] = field(default_factory=dict)
    """The runs of all these packs."""
    attempts: dict[str, _Attempts] = field(default_factory=dict)
    _unplaced: set[str] = field(default_factory=set)
    """Trials that no machine has taken yet."""
    _unplaced_since: float = 0.0
    """Since when there have always been some."""
    _heard: dict[str, float] = field(default_factory=dict)
    """When something was heard last of the others."""
    _last_sign: float = 0.0
    """When a worker was last placed or heard of."""
    hopeless_after: float | None = None
    """The launch ends after so many seconds without a sign of a worker, if some wait for one. None: a cluster may grow."""
    _patience: float = PATIENCE_SECONDS
    _waited: float = 0.0
    """Seconds for which the store had not answered when time was last looked at: no worker could be heard then."""
    fatal: BaseException | None = None
    _looked_at: float = 0.0
    _said: int = 0
    """Notices of the store that were passed on."""
    _warned: set[str] = field(default_factory=set)
    """Machines that were said to train on the CPU."""

    def __post_init__(self) -> None:
        self._said = len(self.store.notices)

    def next_pack(self, trial_id: str) -> list[RunSpec]:
        """The next specs to train together, claimed for this launch; none when there are none at the moment.

        Runs that another launch is training are passed over, and as many more are asked for in their place.
        """
        free = self._free()
        total = sum(free.values())
        if total <= 0:
            return []
        running = list(self._busy.values())
        wanted = len(running) + total * self.packs.largest
        needless = 0 if self.packs.gpu else wanted - len(running) - total
        elsewhere, room = 0, 0
        while room < wanted + elsewhere:
            room = wanted + elsewhere
            specs = self.search.propose(self.rows, room, running, room - needless)
            pack, elsewhere = self._claim(specs, free)
            if pack:
                self.running[trial_id] = pack
                if not self._unplaced:
                    self._unplaced_since, self._patience = time.monotonic(), PATIENCE_SECONDS
                self._unplaced.add(trial_id)
                self._busy |= pack
                for key, spec in pack.items():
                    self.observer.started(key, spec)
                return list(pack.values())
        if time.monotonic() - self._looked_at > 1.0:
            self._learn_from_others()
        return []

    def _on_cpu_worker(self, spec: RunSpec) -> bool:
        return self.packs.gpu and not self.packs.on_gpu(spec)

    def _free(self) -> dict[bool, int]:
        """Workers that have no pack: the CPU workers (True) beside those with a GPU, and all others."""
        packs = [self._on_cpu_worker(next(iter(pack.values()))) for pack in self.running.values()]
        return {True: self.cpu_workers - packs.count(True), False: max(0, self.workers - packs.count(False))}

    def _claim(self, specs: Sequence[RunSpec], free: Mapping[bool, int]) -> tuple[dict[str, RunSpec], int]:
        """A pack of the first spec that is free to be trained here and others of its shape, claimed, so that as much is left
        for every other free worker; and how many before it other launches are training, or no free worker is for."""
        elsewhere, version, busy = 0, self.task.version, self._busy
        ready = {key: spec for spec in specs if (key := run_key(spec, version)) not in busy and self.rows.get(key) is None}
        if self.attempts:
            now, attempts = time.monotonic(), self.attempts
            ready = {key: spec for key, spec in ready.items() if key not in attempts or attempts[key].not_before <= now}
        pack: dict[str, RunSpec] = {}
        shape, room = "", 1
        for key, spec in ready.items():
            alone = self._alone(key)
            if pack and (alone or self.packs.shape(spec) != shape):
                continue
            if not free[self._on_cpu_worker(spec)] or not self.store.claim(key):
                elsewhere += 1
                continue
            if not pack and not alone:
                shape, room = self.packs.shape(spec), self.packs.size(spec)
                if room > 1:
                    alike = sum(self.packs.shape(s) == shape and not self._alone(k) for k, s in ready.items())
                    room = min(room, -(-alike // free[self._on_cpu_worker(spec)]))
            pack[key] = spec
            if len(pack) >= room:
                break
        if pack:
            self._learn_from_others()
            for key in [key for key in pack if self.rows.get(key) is not None]:
                self.store.release(key)  # another launch has just finished it
                del pack[key]
        return pack, elsewhere

    def _alone(self, key: str) -> bool:
        return key in self.attempts and self.attempts[key].alone

    def _attempts(self, key: str) -> _Attempts:
        return self.attempts.setdefault(key, _Attempts())

    def _say_notices(self) -> None:
        """Pass on what the store has noticed since: files that it put aside."""
        for text in self.store.notices[self._said :]:
            self.observer.notice(f"warning: {text}")
        self._said = len(self.store.notices)

    def _learn_from_others(self) -> None:
        self._looked_at = time.monotonic()
        for row in self.store.refresh():
            if all(row[name] in values for name, values in self.concerns.items()):
                self.rows.add(row)
                self.observer.finished(row)
        self._say_notices()

    def is_over(self) -> bool:
        """Whether no further run is to be started."""
        if self.outcome.stopped or self.fatal:
            return True
        if self._answered():
            return True
        if self.limits.deadline is not None and time.monotonic() > self.limits.deadline:
            self.outcome.stopped = "time"
        elif self.limits.worker_seconds is not None and self.outcome.worker_seconds >= self.limits.worker_seconds:
            self.outcome.stopped = "cost"
        return self.outcome.stopped is not None

    def _answered(self) -> bool:
        return self.search.finished(self.rows)

    def on_placed(self, trial_id: str) -> None:
        """A worker has begun with a pack."""
        self._unplaced.discard(trial_id)
        self._heard[trial_id] = self._last_sign = time.monotonic()

    def on_tick(self) -> None:
        """Time passes: say so if workers wait for a machine in vain, and end the launch if that is hopeless."""
        if (deaf := self.store.waited - self._waited) > 0:
            self._waited += deaf
            self._unplaced_since += deaf
            for trial_id in self._heard:
                self._hear(trial_id)
        if not self._unplaced:
            return
        now = time.monotonic()
        silent = now - max(self._unplaced_since, self._last_sign)
        if self.hopeless_after is not None and silent > self.hopeless_after and self.fatal is None:
            told = f"Ray has started no worker on this machine for {silent:.0f} s (--stall-minutes)"
            self.fatal = LostRayError(f"{told}; it hangs, or the machine is too busy")
        elif (waited := now - self._unplaced_since) > self._patience:
            self._patience = 2 * waited
            about = f"{len(self._unplaced)} of {len(self.running)} workers are waiting"
            hint = "run `ray status` on the head of the cluster to see what it waits for"
            if self.hopeless_after is not None:
                hint = "this machine is too busy, or Ray hangs"
            self.observer.notice(f"no machine was available for {waited:.0f} s, {about}: {hint}")

    def _leave(self, trial_id: str) -> dict[str, RunSpec]:
        """The trial is over; its runs that have not ended."""
        self._unplaced.discard(trial_id)
        self._heard.pop(trial_id, None)
        return self.running.pop(trial_id, {})

    def _hear(self, trial_id: str) -> float:
        """Something is heard of a trial, which its worker spent this time on; the seconds since the last time."""
        now = time.monotonic()
        since = now - self._heard.get(trial_id, now)
        self._heard[trial_id] = self._last_sign = now
        self.outcome.worker_seconds += since
        return since

    def on_reports(self, trial_id: str, report: Mapping[str, Any]) -> bool:
        """Take what a worker tells of its pack: progress, results, exceptions; whether none of its runs is left.

        A run that the search prunes ends as a row where the search said, not where the worker happened to be when it was told,
        so that the row does not depend on the clock.
        """
        pack = self.running.get(trial_id, {})
        self._hear(trial_id)
        if (measured := report.get("best_pack_size")) is not None and pack:
            self.packs.learn(next(iter(pack.values())), measured)
        if (error := report.get("error")) is not None:
            self._on_error(trial_id, error, report["out_of_memory"])
            return True
        ended: list[_Ended] = []
        for key, of_run in report["runs"].items():
            if (spec := pack.get(key)) is None:
                continue
            if (notice := of_run.get("notice")) is not None:
                self.observer.notice(f"warning: {describe(spec)}: {notice}")
            if of_run.get("device") == "cpu" and self.packs.on_gpu(spec):
                self._warn_of_cpu(of_run["host"])
            if of_run.get("error") is not None:
                del pack[key]
                self._on_exception(key, spec, of_run["error"])
            elif (at := self._pruned_at(spec, curves := of_run["result"] if of_run["done"] else of_run)) is not None:
                del pack[key]
                ended.append((key, spec, pruned_result(curves, at), of_run))
            elif of_run["done"]:
                del pack[key]
                ended.append((key, spec, of_run["result"], of_run))
            else:
                if (checkpoint := of_run.get("checkpoint")) is not None:
                    self.store.save_checkpoint(key, checkpoint)
                self.observer.progressed(key, spec, of_run)
        self._record(ended)
        if not pack:
            self._leave(trial_id)
        return not pack

    def _pruned_at(self, spec: RunSpec, curves: Mapping[str, Any]) -> int | None:
        if not curves.get("curve_step"):
            return None
        return self.search.pruned_at(self.rows, spec, Curve(curves["curve_step"], curves["curve_error"]))

    def _warn_of_cpu(self, host: str) -> None:
        if host not in self._warned:
            self._warned.add(host)
            self.observer.notice(
                f"{host} trains on its CPU, though every worker has a GPU: torch finds no GPU there (is it a CUDA build?)"
            )

    def _on_error(self, trial_id: str, error: str, out_of_memory: bool) -> None:
        """A pack could not be trained: memory ran out, something raised an exception, or it came to a standstill."""
        pack = self._leave(trial_id)
        if not pack:
            return
        first = next(iter(pack.values()))
        self.packs.give_up(first)
        if len(pack) > 1:
            if out_of_memory:
                self.packs.learn(first, len(pack) // 2)
                told = f"ran out of memory: now {len(pack) // 2} in a pack"
            else:
                told = f"could not be trained, now training them one by one:\n{error}"
            self.observer.notice(f"a pack of {len(pack)} runs like {describe(first)} {told}")
            for key in pack:
                self._attempts(key).alone = not out_of_memory
                self._again(key)
            return
        end_alone = self._shrink if out_of_memory else self._on_exception
        end_alone(next(iter(pack)), first, error)

    def _on_exception(self, key: str, spec: RunSpec, error: str) -> None:
        attempts = self._attempts(key)
        attempts.raised += 1
        if attempts.raised == 1:
            self.observer.notice(f"{describe(spec)} could not be trained, trying once more:\n{error}")
            self._again(key)
        else:
            self._fail(key, spec, error)

    def on_lost(self, trial_id: str, reason: str) -> None:
        """Tune lost a pack: its worker or node died. Or an exception was raised outside the training: then `reason` is its
        traceback, and the pack is treated as any that raises."""
        pack = self.running[trial_id]
        self.packs.give_up(next(iter(pack.values())))
        if trial_id in self._heard and (silent := self._hear(trial_id)) >= self.limits.stall_seconds:
            stalled = f"it made no progress for {silent:.0f} s (--stall-minutes), so its worker was ended"
            self._on_error(trial_id, stalled, out_of_memory=False)
            return
        if re.search(TASK_ERROR, reason, re.MULTILINE) or OUT_OF_MEMORY in reason:
            self._on_error(trial_id, reason, OUT_OF_MEMORY in reason)
            return
        self._leave(trial_id)
        for key, spec in pack.items():
            attempts = self._attempts(key)
            wait = BACKOFF_SECONDS[min(attempts.lost, len(BACKOFF_SECONDS) - 1)]
            attempts.lost += 1
            attempts.alone = attempts.lost > 1
            attempts.not_before = time.monotonic() + wait
            times = f"{attempts.lost} times" if attempts.lost > 1 else "once"
            told = f"lost its worker ({times}), trying again in {wait:g} s: {first_line(reason)}"
            self.observer.notice(f"{describe(spec)} {told}")
            self._again(key)

    def on_stopped(self, trial_id: str) -> None:
        """A pack was stopped because the launch ends."""
        pack = self._leave(trial_id)
        self.packs.give_up(next(iter(pack.values())))
        for key in pack:
            self._again(key)

    def _again(self, key: str) -> None:
        del self._busy[key]
        self.store.release(key)
        self.observer.dropped(key)

    def _shrink(self, key: str, spec: RunSpec, error: str) -> None:
        """Memory ran out: fewer runs at a time; if it was alone already, the run has failed."""
        attempts = self._attempts(key)
        attempts.out_of_memory += 1
        kind = "cpu_workers" if self._on_cpu_worker(spec) else "workers"
        if (before := getattr(self, kind)) == 1 and attempts.out_of_memory > 1:
            self._fail(key, spec, error)
            return
        setattr(self, kind, now := max(1, before // 2))
        self.observer.notice(f"{describe(spec)} ran out of memory: now {now} in parallel")
        self._again(key)

    def _fail(self, key: str, spec: RunSpec, error: str) -> None:
        self.observer.notice(f"{describe(spec)} failed:\n{error}")
        self.outcome.failed += 1
        self._record([(key, spec, {"status": "failed", "reason": "exception", "error": error}, {})])
        if self.limits.stop_on_error:
            self.outcome.stopped = self.outcome.stopped or "error"

    def _record(self, ended: Sequence[_Ended]) -> None:
        """Put the rows of runs that ended together into the store, in one durable writing."""
        if not ended:
            return
        rows = []
        for key, spec, result, report in ended:
            if weights := report.get("weights"):
                self.store.save_weights(key, weights)
            if end := report.get("end"):
                self.store.save_checkpoint(run_key(spec.to_the_end(), self.task.version), end)
            about = {name: report[name] for name in ("seconds", "host", "device", "pack_size") if name in report}
            rows.append(
                make_row(
                    spec,
                    task_version=self.task.version,
                    fixed_count=self.task.counts(spec).fixed,
                    launch=self.launch,
                    versions=self.versions,
                    **{**about, **result},
                )
            )
        written = self.store.append(rows)
        self._say_notices()
        for key, *_ in ended:
            self.store.drop_checkpoint(key)
            self.store.release(key)
            del self._busy[key]
        self.outcome.trained += sum(result["status"] != "failed" for _, _, result, _ in ended)
        for stored in written:
            self.rows.add(stored)
            self.observer.finished(stored)
        if len(written) < len(ended):
            self._learn_from_others()


_Ended = tuple[str, RunSpec, Mapping[str, Any], Mapping[str, Any]]
"""A run that ended: key, spec, result, and what the worker told of it."""


def pruned_result(curves: Mapping[str, Any], at: int) -> dict[str, Any]:
    """What the row of a run says that ended as pruned after `at` points of its curves."""
    cut = {name: list(curves[name][:at]) for name in CURVES}
    steps, loss, accuracy, error = (cut[name][-1] for name in CURVES)
    ended = {"status": "pruned", "reason": "pruned", "steps": steps, "loss": loss, "accuracy": accuracy, "ood_mse": error}
    return {**ended, **cut}


def first_line(text: str) -> str:
    lines = (line.strip() for line in text.splitlines() if not line.startswith("Failure #"))
    return next(filter(None, lines), "no reason given")


def describe(spec: RunSpec) -> str:
    """A run in a few words, for notices."""
    return f"{spec.dataset}, N = {spec.N}, {spec.data_count} images, seed {spec.seed}"
