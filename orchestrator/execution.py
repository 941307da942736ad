"""What happens to the runs of one launch: which is next, and what each kind of ending means. Driven by events; knows no Ray.

Every finished run is put into the store at once. A run that loses its worker is asked for again as a new trial, so whatever
fails, the only state is the store.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.searches import Curve, Rows, Search
from orchestrator.spec import RunSpec, run_key
from orchestrator.store import ResultStore, make_row
from trainables.task import Task
from trainables.training import CURVES

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before a run is tried again after its 1st, 2nd, ... lost worker; the last one repeats for ever."""
TASK_ERROR = r"^(\x1b\[\d+m)?ray::"
"""How Ray begins the text of an exception raised in a worker, as against the death of one."""
OUT_OF_MEMORY = "running low on memory"
"""What Ray says of a worker that it killed to save its machine."""


class Observer(Protocol):
    """Told what happens, as it happens. Must not raise."""

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
    stop_on_error: bool = False
    save_weights: Callable[[RunSpec], bool] = lambda spec: False
    """Whether the final weights of a run are kept."""


@dataclass(slots=True)
class Outcome:
    """What became of one launch. `stopped` is None when the search had nothing more to ask."""

    trained: int = 0
    failed: int = 0
    stopped: str | None = None
    """`time`, `error`, `SIGINT` or `SIGTERM`."""


@dataclass(slots=True)
class _Attempts:
    """How often one run has failed, by class of failure."""

    lost: int = 0
    raised: int = 0
    out_of_memory: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class Execution:
    """The run-time state of one launch, driven by Tune's events: `next_run` and the `on_...` methods."""

    search: Search
    task: Task
    store: ResultStore
    rows: Rows
    observer: Observer
    workers: int
    limits: Limits
    versions: str
    launch: str
    outcome: Outcome = field(default_factory=Outcome)
    running: dict[str, tuple[str, RunSpec]] = field(default_factory=dict)
    """Trial id to (run key, spec)."""
    attempts: dict[str, _Attempts] = field(default_factory=dict)
    fatal: BaseException | None = None
    _looked_at: float = 0.0

    def next_run(self, trial_id: str) -> RunSpec | None:
        """The next spec to train, claimed for this launch; None when there is none at the moment.

        Runs that another launch is training are passed over, and as many more are asked for in their place.
        """
        if len(self.running) >= self.workers:
            return None
        elsewhere, room = 0, 0
        while room < self.workers + elsewhere:
            room = self.workers + elsewhere
            specs = self.search.propose(self.rows, room, [spec for _, spec in self.running.values()])
            spec, elsewhere = self._claim_first(specs)
            if spec is not None:
                self.running[trial_id] = (run_key(spec, self.task.version), spec)
                self.observer.started(*self.running[trial_id])
                return spec
        if time.monotonic() - self._looked_at > 1.0:
            self._learn_from_others()
        return None

    def _claim_first(self, specs: Sequence[RunSpec]) -> tuple[RunSpec | None, int]:
        """The first spec that is free to be trained here, claimed; and how many before it other launches are training."""
        busy = {key for key, _ in self.running.values()}
        now, elsewhere = time.monotonic(), 0
        for spec in specs:
            key = run_key(spec, self.task.version)
            if key in busy or self._attempts(key).not_before > now or self.rows.get(key) is not None:
                continue
            if not self.store.claim(key):
                elsewhere += 1
                continue
            self._learn_from_others()
            if self.rows.get(key) is None:
                return spec, elsewhere
            self.store.release(key)
            break  # another launch has just finished it: the search may have other wishes now
        return None, elsewhere

    def _attempts(self, key: str) -> _Attempts:
        return self.attempts.setdefault(key, _Attempts())

    def _learn_from_others(self) -> None:
        self._looked_at = time.monotonic()
        for row in self.store.refresh():
            self.rows.add(row)
            self.observer.finished(row)

    def is_over(self) -> bool:
        """Whether no further run is to be started."""
        if self.outcome.stopped or self.fatal:
            return True
        if self.limits.deadline is not None and time.monotonic() > self.limits.deadline and not self._answered():
            self.outcome.stopped = "time"
            return True
        return self._answered()

    def _answered(self) -> bool:
        return self.search.finished(self.rows)

    def on_progress(self, trial_id: str, report: Mapping[str, Any]) -> None:
        key, spec = self.running[trial_id]
        if (checkpoint := report.get("checkpoint")) is not None:
            self.store.save_checkpoint(key, checkpoint)
        self.observer.progressed(key, spec, report)

    def prune(self, trial_id: str, report: Mapping[str, Any]) -> bool:
        """End a run here if the search says so, judging by the curves in `report`; whether it did.

        The row ends where the search said, not where the worker happened to be when it was told, so that it does not depend
        on the clock.
        """
        if (at := self._pruned_at(trial_id, report)) is None:
            return False
        key, spec = self.running.pop(trial_id)
        result = {**pruned_result(report, at), "device": report["device"]}
        self._record(key, spec, result, {name: report[name] for name in ("seconds", "host")})
        return True

    def _pruned_at(self, trial_id: str, report: Mapping[str, Any]) -> int | None:
        if trial_id not in self.running or not report.get("curve_step"):
            return None
        _, spec = self.running[trial_id]
        return self.search.pruned_at(self.rows, spec, Curve(report["curve_step"], report["curve_error"]))

    def on_report(self, trial_id: str, report: Mapping[str, Any]) -> None:
        """A run ended by itself: with a result, or with an exception of its own."""
        if (error := report.get("error")) is None:
            if not self.prune(trial_id, {**report, **report["result"]}):
                key, spec = self.running.pop(trial_id)
                self._record(key, spec, dict(report["result"]), report)
            return
        key, spec = self.running.pop(trial_id)
        if report["out_of_memory"]:
            self._shrink(key, spec, error)
            return
        attempts = self._attempts(key)
        attempts.raised += 1
        if attempts.raised == 1:
            self.observer.notice(f"{describe(spec)} raised an exception, trying once more:\n{error}")
            self._again(key)
        else:
            self._fail(key, spec, error)

    def on_lost(self, trial_id: str, reason: str) -> None:
        """Tune lost a run: its worker or node died. Or an exception was raised outside the training: then `reason` is its
        traceback, and the run is treated as any that raises."""
        if re.search(TASK_ERROR, reason, re.MULTILINE):
            self.on_report(trial_id, {"error": reason, "out_of_memory": False})
            return
        key, spec = self.running.pop(trial_id)
        if OUT_OF_MEMORY in reason:
            self._shrink(key, spec, reason)
            return
        attempts = self._attempts(key)
        wait = BACKOFF_SECONDS[min(attempts.lost, len(BACKOFF_SECONDS) - 1)]
        attempts.lost += 1
        attempts.not_before = time.monotonic() + wait
        times = f"{attempts.lost} times" if attempts.lost > 1 else "once"
        self.observer.notice(f"{describe(spec)} lost its worker ({times}), again in {wait:g} s: {first_line(reason)}")
        self._again(key)

    def on_stopped(self, trial_id: str) -> None:
        """A run was stopped because the launch ends."""
        key, _ = self.running.pop(trial_id)
        self._again(key)

    def _again(self, key: str) -> None:
        self.store.release(key)
        self.observer.dropped(key)

    def _shrink(self, key: str, spec: RunSpec, error: str) -> None:
        """Memory ran out: fewer runs at a time; if it was alone already, the run has failed."""
        attempts = self._attempts(key)
        attempts.out_of_memory += 1
        if self.workers == 1 and attempts.out_of_memory > 1:
            self._fail(key, spec, error)
            return
        self.workers = max(1, self.workers // 2)
        self.observer.notice(f"{describe(spec)} ran out of memory: now {self.workers} at a time")
        self._again(key)

    def _fail(self, key: str, spec: RunSpec, error: str) -> None:
        self.observer.notice(f"{describe(spec)} failed:\n{error}")
        self.outcome.failed += 1
        self._record(key, spec, {"status": "failed", "reason": "exception", "error": error}, {})
        if self.limits.stop_on_error:
            self.outcome.stopped = self.outcome.stopped or "error"

    def _record(self, key: str, spec: RunSpec, result: dict[str, Any], report: Mapping[str, Any]) -> None:
        if weights := report.get("weights"):
            self.store.save_weights(key, weights)
        row = make_row(
            spec,
            task_version=self.task.version,
            fixed_count=self.task.counts(spec).fixed,
            seconds=report.get("seconds", 0.0),
            host=report.get("host", ""),
            launch=self.launch,
            versions=self.versions,
            **result,
        )
        written = self.store.append([row])
        self.store.drop_checkpoint(key)
        self.store.release(key)
        self.outcome.trained += 1
        for stored in written:
            self.rows.add(stored)
            self.observer.finished(stored)
        if not written:
            self._learn_from_others()


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
