"""What happens to the runs of one launch: what each report, and each kind of ending, means. Driven by events; knows no Ray.

Every finished run is put into the store at once. A run that loses its worker is asked for again as a new trial, so whatever
fails, the only state is the store.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from orchestrator.engine.choosing import Chooser, Free
from orchestrator.engine.failures import (
    MOST_LEFT,
    Failures,
    could_begin,
    first_line,
    is_exception,
    is_out_of_memory,
    is_unfit,
    why_lost,
    why_unfit,
)
from orchestrator.engine.messages import PackReport, RunReport
from orchestrator.engine.oom_kills import OomKills
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.engine.placement import Placement
from orchestrator.engine.remade import NoneRemade, Remade, compared, remedy
from orchestrator.errors import LostRayError, StuckError, UserError, printable, shown, storable
from orchestrator.searches import Curve, Row, Rows, Search
from orchestrator.searches.axes import samples_of
from orchestrator.store import ResultStore, StoreError, make_row
from trainables.needs import Tasks
from trainables.program import COMMAND, FILES
from trainables.spec import RunSpec
from trainables.task import Task
from trainables.training.result import CURVES
from trainables.training.run import UnfitError


class Observer(Protocol):
    """Told what happens, as it happens. What it raises ends the launch: nobody may be there any more who is told."""

    def connected(self, workers: int) -> None: ...
    def started(self, key: str, spec: RunSpec) -> None: ...
    def progressed(self, key: str, spec: RunSpec, report: RunReport) -> None: ...
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
    """`time`, `cost`, `error`, `lost` (its runs lose their workers again and again), or one of INTERRUPTED."""
    worker_seconds: float = 0.0
    """Time that workers spent on runs, all together."""
    code: int | None = None
    """The exit code of the launch, once its answer is told."""


INTERRUPTED = ("SIGINT", "SIGTERM", "SIGHUP")
"""What `Outcome.stopped` says of a launch that a signal has ended."""
LOOK_SECONDS, BUSY_LOOK_SECONDS = 1.0, 10.0
"""How often a launch looks for runs that others have finished: with a worker free, and with none."""
FROZEN_SECONDS = 30.0
"""A worker that is silent for so much longer than `Limits.stall_seconds` has not ended itself as it should: it is frozen."""
LISTENED_SHARE = 0.5
"""For such a share of `Limits.stall_seconds` the launch has listened to a worker that ended itself: a launch that was stopped,
or busy, does not know why a worker is gone."""
UNANSWERED = "its worker, which had trained other runs, did not begin with it for {:.0f} s (--stall-minutes), so it was ended"
TIRED = 2
"""Lost workers of one run, after which its task may be to blame."""
CRASHING = (
    "; perhaps memory ran out (fewer --workers need less), or its task crashes the process: then stop with Ctrl-C and mend it"
)
KILLED = "the system has ended a process of this machine for want of memory"
"""It may have been another one than the worker that was lost."""
TOO_LITTLE = f"; {KILLED}: perhaps there is less here, or in this container, than a single run needs"
LEFT = "so it is left until the next launch"
NAMED = re.compile(r"[A-Za-z_][\w.]*(: |:?$)")
"""How the line of a traceback begins that names the exception: other lines are indented."""
FIRST_TIME, LAST_TIME = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))


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
    source: Callable[[Task], str] = lambda task: ""
    """Which text a task has, for `versions` of the rows of its runs."""
    concerns: Callable[[Row], bool] = lambda row: True
    """Whether a row of another launch matters to the search."""
    remade: Remade = field(default_factory=NoneRemade)
    """Which finished runs are trained once more, for their weights."""
    end_worker: Callable[[str], object] = lambda trial_id: None
    """Ends the process of a worker, whatever it does, by the trial that it has."""
    kills: OomKills = field(default_factory=OomKills)
    """What the system has ended for want of memory, where all workers are on this machine."""
    tasks: Tasks = field(init=False)
    """That of the study, and those of the runs that its runs need."""
    outcome: Outcome = field(default_factory=Outcome)
    running: dict[str, dict[str, RunSpec]] = field(default_factory=dict)
    """Trial id to the runs of its pack that have not ended: run key to spec."""
    failures: Failures = field(default_factory=Failures)
    placement: Placement = field(default_factory=Placement)
    fatal: BaseException | None = None
    """What ends the launch, if something does."""
    _busy: dict[str, RunSpec] = field(default_factory=dict)
    """The runs of all packs that have not ended."""
    _begun: dict[str, _Begun] = field(default_factory=dict)
    """By trial id: what is known of the packs in `running` from their beginning."""
    _waited: float = 0.0
    """Seconds for which the store had not answered when time was last looked at: no worker could be heard then."""
    _looked_at: float = 0.0
    _wondered_at: float = 0.0
    """When it was last asked whether anything is left to train."""
    said: int = 0
    """Notices of the store that were passed on."""
    _warned: set[str] = field(default_factory=set)
    """Machines that were said to train on the CPU."""
    _sources: dict[str, str] = field(default_factory=dict)
    """What `source` said of tasks, by their paths."""
    _tidied: set[str] = field(default_factory=set)
    """Tasks, by their paths, of which the checkpoints of old versions are removed."""
    _told_line: bool = False
    """Whether it was said which line of a program told its accuracy."""
    _latest: datetime = FIRST_TIME
    """When the last of all known runs finished."""

    def __post_init__(self) -> None:
        self.tasks = Tasks(self.task)
        self._latest = max((row["finished_at"] for row in self.rows), default=FIRST_TIME)

    # Which runs are next

    def next_pack(self, trial_id: str) -> list[RunSpec]:
        """The next specs to train together, claimed for this launch; none when there are none at the moment."""
        known = self.search, self.tasks, self.store, self.rows, self.packs, self.failures
        chooser = Chooser(*known, self._learn_from_others, self.remade)
        pack = chooser.next_pack(self._free(), self._busy)
        if not pack:
            self.look_again()
            if not self.running and not self.is_over() and time.monotonic() - self._wondered_at > LOOK_SECONDS:
                self._end_if_nothing_is_left()
            return []
        self.running[trial_id] = pack
        self._begun[trial_id] = _Begun(len(pack), self._allowed(next(iter(pack.values()))))
        self.placement.wait(trial_id)
        self._busy |= pack
        for key, spec in pack.items():
            self._source_of(spec)  # before the run: its files may have changed when it ends
            self.observer.started(key, spec)
        return list(pack.values())

    def _source_of(self, spec: RunSpec) -> str:
        """Which text the task of a run had when the first run of the task began."""
        if spec.task not in self._sources:
            self._sources[spec.task] = self.source(self.tasks.of(spec))
        return self._sources[spec.task]

    def _end_if_nothing_is_left(self) -> None:
        """End the launch if it can train none of the runs that the search asks for."""
        self._wondered_at = time.monotonic()
        left = [key for key, attempts in self.failures.of_runs.items() if attempts.is_left]
        asked = [self.tasks.key(spec) for spec in self.search.propose(self.rows, len(left) + 1)]
        if not asked:
            self.fatal = StuckError("the search asks for no run, though it has not finished: please report this")
        elif set(asked) <= set(left):
            self.outcome.stopped = "lost"

    def _free(self) -> Free:
        packs = [self.packs.on_cpu_worker(next(iter(pack.values()))) for pack in self.running.values()]
        return Free(max(0, self.workers - packs.count(False)), max(0, self.cpu_workers - packs.count(True)))

    def _allowed(self, spec: RunSpec) -> int:
        """How many workers there may be for runs like this one."""
        return self.cpu_workers if self.packs.on_cpu_worker(spec) else self.workers

    def look_again(self, after: float = LOOK_SECONDS) -> None:
        """Take in what other launches on the store have finished, if the last look is so many seconds ago."""
        if time.monotonic() - self._looked_at > after:
            self._learn_from_others()

    def _learn_from_others(self) -> None:
        self._looked_at = time.monotonic()
        for row in self.store.refresh():
            if self.concerns(row):
                self._take_in(row)
        self._say_notices()

    def _take_in(self, row: Row) -> None:
        self.rows.add(row)
        self._latest = max(self._latest, row["finished_at"])
        self.observer.finished(row)

    def _say_notices(self) -> None:
        """Pass on what the store has noticed since: files that it put aside."""
        for text in self.store.notices[self.said :]:
            self.observer.notice(f"warning: {text}")
        self.said = len(self.store.notices)

    def is_over(self) -> bool:
        """Whether no further run is to be started."""
        if self.outcome.stopped or self.fatal or self.search.finished(self.rows):
            return True
        if self.limits.deadline is not None and time.monotonic() > self.limits.deadline:
            self.outcome.stopped = "time"
        elif self.limits.worker_seconds is not None and self.outcome.worker_seconds >= self.limits.worker_seconds:
            self.outcome.stopped = "cost"
        return self.outcome.stopped is not None

    def is_done(self) -> bool:
        """Whether the packs that are left are to end: the launch was interrupted, cannot store results any more, or knows the
        answer, so that what runs is speculation. Or no further run is to be started, and no pack has begun."""
        if self.outcome.stopped in INTERRUPTED or self.fatal is not None or self.search.finished(self.rows):
            return True
        return self.is_over() and not self.placement.has_any_begun()

    # What workers do

    def on_placed(self, trial_id: str) -> None:
        """A worker has begun with a pack. If no run is to be started any more, since the pack has waited for a machine for so
        long, its first report ends it."""
        if trial_id not in self.running:  # the worker was frozen, and its first report ends it
            return
        if self.is_over():
            self._begun[trial_id].late = True
        self.placement.begin(trial_id)

    def on_tick(self) -> None:
        """Time passes: say so if workers wait for a machine in vain, and end the launch if that is hopeless. End workers that
        are frozen: they cannot do so themselves."""
        self.kills.tick()
        deaf = max(0.0, self.store.waited - self._waited)
        self.placement.tick(deaf)
        if deaf > 0:
            self._waited += deaf
            self.outcome.worker_seconds += self.placement.excuse()
        self.look_again(BUSY_LOOK_SECONDS)  # the question may be answered
        for trial_id, silent in self.placement.silent(self.limits.stall_seconds + FROZEN_SECONDS).items():
            self.end_worker(trial_id)
            if self.placement.has_begun(trial_id):
                self._hear(trial_id)
                self._on_stall(trial_id, silent)
            else:
                self.on_lost(trial_id, UNANSWERED.format(silent))
        complaint = self.placement.complaint(len(self.running))
        if isinstance(complaint, LostRayError):
            self.fatal = self.fatal or complaint
        elif complaint is not None:
            self.observer.notice(complaint)

    def on_report(self, trial_id: str, report: PackReport) -> bool:
        """Take what a worker tells of its pack: progress, results, exceptions; whether none of its runs is left.

        A run that the search prunes ends as a row where the search said, not where the worker happened to be when it was told,
        so that the row does not depend on the clock.
        """
        if trial_id not in self.running:  # it was frozen, and is none any more
            return True
        pack = self.running[trial_id]
        self._hear(trial_id)
        if report.best_pack_size is not None and pack:
            self.packs.learn(next(iter(pack.values())), report.best_pack_size)
        if report.error is not None and report.unfit:
            self._on_unfit(trial_id, report.error)
            return True
        if report.error is not None and report.misprinted:
            self._on_misprint(trial_id, storable(report.error), report.failed)
            return True
        if report.error is not None:
            self._on_error(trial_id, report.error, report.out_of_memory, report.failed)
            return True
        ended: list[_Ended] = []
        checkpoints: dict[str, bytes] = {}
        for key, of_run in report.runs.items():
            if (spec := pack.get(key)) is None:
                continue
            if of_run.notice is not None:
                self.observer.notice(f"warning: {describe(spec)}: {of_run.notice}")
            if of_run.line and not self._told_line:
                self._told_line = True
                self.observer.notice(f"{describe(spec)}: its accuracy was read from the line {of_run.line}")
            if of_run.device == "cpu" and self.packs.on_gpu(spec):
                self._warn_of_cpu(of_run.host)
            if of_run.error is not None:
                del pack[key]
                self._on_exception(key, spec, storable(of_run.error), of_run)
            elif (at := self._pruned_at(spec, curves := of_run.curves if of_run.result is None else of_run.result)) is not None:
                del pack[key]
                kept = dataclasses.replace(of_run, weights=None, end=None)  # else they are those of a later step
                ended.append(_Ended(key, spec, pruned_result(curves, at, of_run.error_is_mse), kept))
            elif of_run.result is not None:
                del pack[key]
                ended.append(_Ended(key, spec, of_run.result, of_run))
            else:
                if of_run.checkpoint is not None:
                    checkpoints[key] = of_run.checkpoint
                self._begun[trial_id].heard[key] = dataclasses.replace(of_run, curves={}, checkpoint=None)
                self.observer.progressed(key, spec, of_run)
        self.store.each(lambda key: self.store.save_checkpoint(key, checkpoints[key]), checkpoints)
        for key in checkpoints:
            self.failures.got_further(key)
        self._record(ended)
        if not pack:
            self._leave(trial_id)
        return not pack or self._begun[trial_id].late

    def _hear(self, trial_id: str) -> float:
        """Something is heard of a pack; the seconds since the last time, which count as its worker's."""
        since = self.placement.hear(trial_id)
        self.outcome.worker_seconds += since
        return since

    def _leave(self, trial_id: str) -> dict[str, RunSpec]:
        """The trial is over; its runs that have not ended."""
        self.placement.leave(trial_id)
        self.packs.give_up(trial_id)
        self._begun.pop(trial_id, None)
        return self.running.pop(trial_id, {})

    def _pruned_at(self, spec: RunSpec, curves: Mapping[str, Any]) -> int | None:
        if not curves.get("curve_step"):
            return None
        curve = Curve(curves["curve_step"], curves["curve_error"], curves["curve_accuracy"])
        return self.search.pruned_at(self.rows, spec, curve)

    def _warn_of_cpu(self, host: str) -> None:
        if host not in self._warned:
            self._warned.add(host)
            self.observer.notice(
                f"{host} trains on its CPU, though every worker has a GPU: torch finds no GPU there (is it a CUDA build?)"
            )

    # How runs end

    def _on_error(
        self, trial_id: str, error: str, out_of_memory: bool, failed: Mapping[str, RunReport] | None = None
    ) -> None:
        """A pack could not be trained: memory ran out, something raised an exception, or it came to a standstill.

        Args:
            failed: what its worker told of the runs with that, if it did.
        """
        begun, pack = self._begun.get(trial_id), self._leave(trial_id)
        if begun is None or not pack:
            return
        (key, first), error = next(iter(pack.items())), storable(error)
        report = (failed or begun.heard).get(key) or RunReport(pack_size=begun.size)
        if out_of_memory and begun.size > 1:  # also if one run is left: others were in the memory with it
            told = f"ran out of memory: now {self.packs.halve(first, begun.size)} in a pack"
            self.observer.notice(f"a pack of {begun.size} runs like {describe(first)} {told}")
        elif out_of_memory:
            self._shrink(key, first, error, report, begun.among)
            return
        elif len(pack) > 1:
            told = f"could not be trained, now training them one by one:\n{shown(error)}"
            self.observer.notice(f"a pack of {len(pack)} runs like {describe(first)} {told}")
        else:
            self._on_exception(key, first, error, report)
            return
        for key in pack:
            self.failures.of(key).alone = not out_of_memory
            self._again(key)

    def _on_exception(self, key: str, spec: RunSpec, error: str, report: RunReport) -> None:
        attempts = self.failures.of(key)
        if attempts.count_raised():
            self.observer.notice(f"{describe(spec)} could not be trained, trying once more:\n{shown(error)}")
            self._again(key)
        else:
            self._fail(key, spec, error, report)

    def _on_unfit(self, trial_id: str, why: str) -> None:
        """A machine lacks what a pack needs. No run has failed, but the launch ends, as this machine would take one after the
        other."""
        self.on_stopped(trial_id)
        self.fatal = self.fatal or UnfitError(why)

    def _on_misprint(self, trial_id: str, error: str, failed: Mapping[str, RunReport]) -> None:
        """A program printed no accuracy that counts: its run has failed. If no run of this program has told one yet, none will,
        so the launch ends, and nothing is stored."""
        for key, spec in self._leave(trial_id).items():
            if self.fatal is None and self._has_told(spec):
                self._fail(key, spec, error, failed.get(key) or RunReport())
            else:
                self._again(key)
                self.fatal = self.fatal or UserError(f"{describe(spec)}: {first_line(error)}")

    def _has_told(self, spec: RunSpec) -> bool:
        """Whether a finished run of the same program has told an accuracy."""
        program = [spec.option(name) for name in (COMMAND, FILES)]
        told = (dict(row["options"]) for row in self.rows if row["status"] != "failed")
        return any([options.get(name) for name in (COMMAND, FILES)] == program for options in told)

    def on_lost(self, trial_id: str, reason: str) -> None:
        """Tune lost a pack: its worker or node died. Or an exception was raised outside the training: then `reason` is its
        traceback, and the pack is treated as any that raises."""
        pack = self.running[trial_id]
        self.placement.tick()
        listened = self.placement.listened(trial_id)
        silent = self._hear(trial_id) if self.placement.has_begun(trial_id) else 0.0
        if silent >= self.limits.stall_seconds and listened >= LISTENED_SHARE * self.limits.stall_seconds:
            self._on_stall(trial_id, silent)
            return
        if is_unfit(reason):
            self._on_unfit(trial_id, why_unfit(reason))
            return
        if is_exception(reason):
            self._on_error(trial_id, reason, is_out_of_memory(reason))
            return
        begun, killed = self._begun[trial_id], could_begin(reason) and self.kills.take()
        self._leave(trial_id)
        if killed and max(begun.size, begun.among) > 1:
            self._on_killed(begun, pack)
            return
        for key, spec in pack.items():
            attempts = self.failures.of(key)
            wait = attempts.count_lost()
            times = f"{attempts.lost} times" if attempts.lost > 1 else "once"
            self.failures.left_in_a_row += attempts.is_left
            next_try = LEFT if attempts.is_left else f"trying again in {wait:g} s"
            told = f"lost its worker ({times}), {next_try}: {why_lost(reason)}"
            told += TOO_LITTLE if killed else CRASHING * (attempts.lost > TIRED)
            self.observer.notice(f"{describe(spec)} {told}")
            self._again(key)
        if self.failures.left_in_a_row >= MOST_LEFT:
            self.outcome.stopped = self.outcome.stopped or "lost"

    def _on_killed(self, begun: _Begun, pack: Mapping[str, RunSpec]) -> None:
        """A worker was lost, and the system has ended a process for want of memory: fewer runs at a time. Nothing counts
        against its runs, since it may have been another process."""
        first = next(iter(pack.values()))
        if begun.size > 1:
            runs, now = f"a pack of {begun.size} runs like ", f"{self.packs.halve(first, begun.size, for_good=False)} in a pack"
        else:
            runs, now = "", f"{self._fewer(first, begun.among)} in parallel"
        self.observer.notice(f"{runs}{describe(first)} lost its worker, and {KILLED}: now {now}")
        for key in pack:
            self._again(key)

    def _on_stall(self, trial_id: str, silent: float) -> None:
        stalled = f"it made no progress for {silent:.0f} s (--stall-minutes), so its worker was ended"
        self._on_error(trial_id, stalled, out_of_memory=False)

    def on_stopped(self, trial_id: str) -> None:
        """A pack was stopped, which says nothing of its runs."""
        for key in self._leave(trial_id):
            self._again(key)

    def _again(self, key: str) -> None:
        del self._busy[key]
        self.store.release(key)
        self.observer.dropped(key)

    def _shrink(self, key: str, spec: RunSpec, error: str, report: RunReport, among: int) -> None:
        """Memory ran out: fewer runs at a time; if it was alone already, the run has failed.

        Args:
            among: how many workers might be at work beside each other. Of several that run out at one moment, all count once.
        """
        attempts = self.failures.of(key)
        attempts.out_of_memory += 1
        if among == 1 and attempts.out_of_memory > 1:
            self._fail(key, spec, error, report)
            return
        self.observer.notice(f"{describe(spec)} ran out of memory: now {self._fewer(spec, among)} in parallel")
        self._again(key)

    def _fewer(self, spec: RunSpec, among: int) -> int:
        """Memory ran out for a run that began with so many workers: how many there may be now."""
        now = min(self._allowed(spec), max(1, among // 2))
        if self.packs.on_cpu_worker(spec):
            self.cpu_workers = now
        else:
            self.workers = now
        return now

    def _fail(self, key: str, spec: RunSpec, error: str, report: RunReport) -> None:
        self.observer.notice(f"{describe(spec)} failed:\n{shown(error)}")
        if self.rows.get(key) is not None and self.remade.again(key):  # its row stays, so it would be asked for without end
            self.fatal = self.fatal or StoreError(
                f"{describe(spec)} has finished before, but its weights are gone and are wanted, and it failed when it was "
                f"trained again ({printable(reason_of(error))[:200]}): {self._remedy(key, 'mend the cause')}"
            )
        self.outcome.failed += 1
        self._record([_Ended(key, spec, {"status": "failed", "reason": "exception", "error": error}, report)])
        if self.limits.stop_on_error:
            self.outcome.stopped = self.outcome.stopped or "error"

    def _remedy(self, key: str, another: str) -> str:
        return remedy(key, another, self.remade.is_for_option(key))

    def _record(self, ended: Sequence[_Ended]) -> None:
        """Put the rows of runs that ended together into the store, in one durable writing."""
        if not ended:
            return
        left = [(run, run.report) for run in ended if run.report.weights or run.report.end]
        if left:
            self._learn_from_others()
        kept = [(run, report) for run, report in left if not self._has_another_ending(run.key)]
        weights = {run.key: report.weights for run, report in kept if report.weights and self._goes_with_its_row(run)}
        self.store.each(lambda key: self.store.save_weights(key, weights[key]), weights)
        if ends := {self.tasks.key(run.spec.to_the_end()): report.end for run, report in kept if report.end}:
            self._keep_ends(ends)
        made = [self._row(run) for run in ended]
        written = self.store.append(made)
        self._say_notices()
        finished = self.store.known([run.key for run in ended])
        # the others were taken over by another launch, with their checkpoints; from those of failed ones another try goes on
        done = [run for run in ended if run.key in finished and run.result["status"] != "failed"]
        self.store.each(self.store.drop_checkpoint, [run.key for run in done])
        for run in done:
            self._drop_of_old_version(run.spec)
        for run in ended:
            self.failures.got_further(run.key)
            self.remade.forget(run.key)
            self.store.release(run.key)
            del self._busy[run.key]
            if self.rows.get(run.key) is not None:  # its row is as it was
                self.observer.dropped(run.key)
                if self.remade.again(run.key):  # it would be asked for without end
                    lacks = f"{describe(run.spec)} was trained again for its weights, and there are none of it"
                    self.fatal = self.fatal or StoreError(f"{lacks}: {self._remedy(run.key, 'see that nothing removes them')}")
        told = {row["key"] for row in written}
        self.outcome.trained += sum(run.result["status"] != "failed" for run in ended if run.key not in told)
        for stored in written:
            self.outcome.trained += stored["status"] != "failed"
            self._take_in(stored)
        if len(written) < len(ended):
            self._learn_from_others()
            for row in made:
                self._learn_of(row)

    def _drop_of_old_version(self, spec: RunSpec) -> None:
        """Remove, once for each task, the checkpoints of its runs that failed with another version: the task was mended, so
        nobody tries them again."""
        if spec.task in self._tidied:
            return
        self._tidied.add(spec.task)
        if not (kept := self.store.with_checkpoints() - self._busy.keys()):
            return
        failed = self.store.find({"task": {spec.task}, "status": {"failed"}})
        old = [row["key"] for row in failed if row["task_version"] != self.tasks.version(spec) and row["key"] in kept]
        for key in self.store.claim_all(old):  # else another launch is training it
            self.store.drop_checkpoint(key)
            self.store.release(key)

    def _has_another_ending(self, key: str) -> bool:
        """Whether a run that ended here has a row that stays, as another launch has taken it over and finished it: then the
        weights in the store belong to that row. Those of a run that was trained again for its weights go with its row, too."""
        row = self.rows.get(key)
        return row is not None and row["status"] != "failed" and not self.remade.again(key)

    def _goes_with_its_row(self, run: _Ended) -> bool:
        """Whether the weights of a run may be saved. If it was trained again for them, its row stays, and it is said if the run
        has ended otherwise. If they may not, the launch ends if other runs need them."""
        row = self.rows.get(run.key)
        if row is None or row["status"] == "failed":
            return True
        kept, told = compared(f"{describe(run.spec)} (run {run.key})", row, run.result)
        if told and (kept or self.remade.leave(run.key)):
            self.observer.notice(f"warning: {told}")
        elif not kept:
            another = f"change the version of {run.spec.task} and of the tasks that need it"
            self.fatal = self.fatal or StoreError(f"{told}: {self._remedy(run.key, another)}")
        return kept

    def _learn_of(self, made: Row) -> None:
        """Take in the row that the store has of a run that ended here, if nothing else did: the search would ask for the run
        without end."""
        key = made["key"]
        if self.rows.get(key) is None:
            where = {name: {made[name]} for name in ("family", "data_count", "seed")}
            for row in self.store.find(where):
                if row["key"] == key:
                    self._take_in(row)

    def _keep_ends(self, ends: Mapping[str, bytes]) -> None:
        """Save the checkpoints from which the runs with these keys can go on, but for those in training, here or elsewhere."""
        claimed = self.store.claim_all([key for key in ends if key not in self._busy])
        self.store.each(lambda key: self.store.save_checkpoint(key, ends[key]), claimed)
        for key in claimed:
            self.store.release(key)

    def _row(self, run: _Ended) -> Mapping[str, Any]:
        told = run.report
        versions = told.versions or self.versions
        about = {"seconds": told.seconds, "host": told.host, "device": told.device, "pack_size": told.pack_size}
        # some searches go by the order of finishing: it stays if the clock is set back, or is behind that of another machine
        self._latest = max(datetime.now(UTC), self._latest + min(timedelta(microseconds=1), LAST_TIME - self._latest))
        return make_row(
            run.spec,
            task_version=self.tasks.version(run.spec),
            fixed_count=self.tasks.of(run.spec).counts(run.spec).fixed,
            parents=self.tasks.parents(run.spec) or None,
            launch=self.launch,
            versions=" ".join(filter(None, (versions, self._source_of(run.spec)))),
            finished_at=self._latest,
            **{**about, **run.result},
        )


@dataclass(slots=True)
class _Begun:
    """A pack as it was when it was begun."""

    size: int
    """Runs that were in it."""
    among: int
    """How many workers of its kind there might be."""
    late: bool = False
    """Whether a worker has begun with it too late."""
    heard: dict[str, RunReport] = field(default_factory=dict)
    """By run key: what its worker told last of where a run is trained, and for how long."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that ended."""

    key: str
    spec: RunSpec
    result: Mapping[str, Any]
    report: RunReport
    """What its worker told of it."""


def pruned_result(curves: Mapping[str, Any], at: int, error_is_mse: bool = True) -> dict[str, Any]:
    """What the row of a run says that ended as pruned after `at` points of its curves."""
    cut: dict[str, Any] = {name: list(curves[name][:at]) for name in CURVES}
    steps, loss, accuracy, error = (cut[name][-1] for name in CURVES)
    ended = {"status": "pruned", "reason": "pruned", "steps": steps, "loss": loss, "accuracy": accuracy}
    if error_is_mse:
        ended["ood_mse"] = error
    if (summary := curves.get("curve_summary")) is not None:
        ended["curve_summary"] = {name: list(curve[:at]) for name, curve in summary.items()}
    return {**ended, **cut}


def describe(spec: RunSpec) -> str:
    """A run in a few words, for notices."""
    return f"{spec.dataset}, N = {spec.N}, {spec.data_count} {samples_of(spec.task)}, seed {spec.seed}"


def reason_of(error: str) -> str:
    """The line of a traceback that names the exception, whose message may have more of them; of another text the last line."""
    _, header, last = error.rpartition("Traceback (most recent call last):\n")
    named = [line for line in last.splitlines() if NAMED.match(line)] if header else []
    return (named[:1] or error.strip().splitlines()[-1:] or ["no reason given"])[0]
