"""One launch of a study, the same for every study: open the store, plan, train what is missing, answer, exit code."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console, RenderableType

from orchestrator.command import options as opt
from orchestrator.command.cli import (
    INTERRUPTS,
    Exit,
    UnheardError,
    check_folder,
    ended_by,
    heeding_sigterm,
    invocation,
    on_store,
    one_of,
    print_json,
    typed,
)
from orchestrator.command.progress import (
    Progress,
    Running,
    Sparing,
    cost_text,
    estimate_text,
    format_seconds,
    is_live,
    rough_seconds,
    say,
    say_aside,
)
from orchestrator.command.reading import check_apart, check_named, open_store
from orchestrator.command.sources import made_by_former_version, made_by_other_source, made_with_fewer_files, source_of
from orchestrator.command.stages import ELSEWHERE, Stages
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.driver import executed
from orchestrator.engine.estimate import UntimedError, Work, was_on_gpu
from orchestrator.engine.execution import INTERRUPTED, Execution, Limits, Outcome
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.engine.scratch import no_room
from orchestrator.errors import FULL_DISK, LostRayError, StuckError, UnexportedError, UserError, counted, printable
from orchestrator.opened import identity
from orchestrator.searches import Rows
from orchestrator.store import ResultStore, StoreError, drop_question, save_question
from orchestrator.store.contents import FAILED
from orchestrator.store.folder import is_folder
from orchestrator.study import Study
from orchestrator.versions import versions
from trainables.needs import Tasks
from trainables.program import ProgramTask
from trainables.spec import GIVEN_UP, RunSpec, run_key
from trainables.task import Task
from trainables.training.run import UnfitError

ON_ERROR = ("continue", "stop")
KEPT = "all finished runs are kept"
EXPORT = "--export-optuna"
"""The option of a new file, that of some studies, which is written with the answer."""
FIRST = 100
"""Runs of a question by which it is known whether another launch is at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options that every study has of where and how to run; a command takes them with `cli.grouped`."""

    store: opt.Store = "results"
    out: opt.Out = None
    address: opt.Address = "local"
    workers: opt.Workers = None
    gpus_per_run: opt.GpusPerRun = 0.0
    cpu_workers: opt.CpuWorkers = 0
    pack_size: opt.PackSize = None
    dry_run: opt.DryRun = False
    max_hours: opt.MaxHours = None
    price: opt.Price = None
    max_cost: opt.MaxCost = None
    stall_minutes: opt.StallMinutes = 10.0
    on_error: opt.OnError = "continue"
    retry_failed: opt.RetryFailed = False
    gates: opt.Gates = True
    save_weights: opt.SaveWeights = False
    json: opt.Json = False
    verbose: opt.Verbose = False

    def folder(self, study: str) -> str:
        """Where the study's tables and figures go."""
        return f"{self.store}/{study}" if self.out is None else str(self.out)

    def origin(self, study: str, task_version: str) -> dict[str, str]:
        """The end of the settings of an answer: what it comes from, and where it lies."""
        return {"task_version": task_version, "store": self.store, "out": self.folder(study), "versions": versions()}

    def check(self) -> None:
        """
        Raises:
            UserError: a word or a path that will not do.
        """
        one_of("--on-error", self.on_error, ON_ERROR)
        for name in ("gpus_per_run", "max_hours", "price", "max_cost", "stall_minutes"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"--{name.replace('_', '-')} must be a finite number, not {value}")
        if self.gpus_per_run > 1 and self.gpus_per_run % 1:
            raise UserError(f"--gpus-per-run {self.gpus_per_run:g} is not possible: give a fraction below 1, or a whole number")
        check_named("--store", self.store)
        if "://" not in self.store and not is_folder(Path(self.store)):
            check_folder("--store", Path(self.store))
        if self.out is not None:
            _check_out(self.out)
            check_apart(self.out, self.store, "tables")
            check_folder("--out", self.out)
        if self.max_cost is not None and self.price is None:
            raise UserError("--max-cost needs a price: add --price, the cost of one worker-hour")
        if self.max_cost is not None and self.price == 0:
            raise UserError("--max-cost needs a --price above 0, the cost of one worker-hour")
        if self.cpu_workers and not self.gpus_per_run:
            raise UserError("--cpu-workers adds to workers with a GPU: add --gpus-per-run 1, or use --workers instead")

    def cluster(self) -> Cluster:
        return Cluster(self.address, self.workers, 1.0, self.gpus_per_run, self.cpu_workers, self.verbose)

    def cpu_decoders(self, task: Task) -> tuple[str, ...]:
        """Decoders that train on CPU workers, though others have a GPU."""
        return tuple(getattr(task, "cheap", ())) if self.cpu_workers else ()

    def on_gpu(self, task: Task, decoder: str) -> bool:
        return self.gpus_per_run > 0 and decoder not in self.cpu_decoders(task)

    def limits(self, keeps_weights: Callable[[RunSpec], bool], keeps_end: Callable[[RunSpec], bool]) -> Limits:
        return Limits(
            deadline=None if self.max_hours is None else time.monotonic() + 3600 * self.max_hours,
            worker_seconds=None if self.max_cost is None or not self.price else 3600 * self.max_cost / self.price,
            stall_seconds=60 * self.stall_minutes,
            stop_on_error=self.on_error == "stop",
            save_weights=lambda spec: self.save_weights or keeps_weights(spec),
            keep_end=keeps_end,
        )


def launch(study: Study, options: LaunchOptions) -> int:
    """Train what the study still needs and answer it.

    Raises:
        UserError: something the user can put right, before any run was stored.
    """
    options.check()
    if isinstance(study.task, ProgramTask) and options.pack_size not in (None, 1):
        told = f"--pack-size {options.pack_size} is of trainings here: each run of a program is a process by itself"
        raise UserError(f"{told}, so omit the option")
    command = invocation()
    if options.out is None and "://" not in options.store:
        _check_own(options.folder(study.name))
    console = Console(file=sys.stderr if options.json else sys.stdout)
    cluster = options.cluster()
    try:
        cluster.check()
        with heeding_sigterm():  # again, as Ray may have taken it to itself
            return _launch(study, options, command, console, cluster)
    except INTERRUPTS as error:  # before anything is trained, or after; `executed` takes signals itself
        say(console, f"interrupted; {KEPT}\nto continue: {_resume(command)}")
        return ended_by(error)
    except StoreError as error:
        say(console, f"stopped: {error}\n{KEPT}; to continue: {_resume(command)}")
        return Exit.NOT_ANSWERED
    except UnfitError as error:  # from planning
        raise UserError(str(error)) from None
    except UnheardError as error:
        error.resume = "" if options.dry_run else _resume(command)
        raise
    except OSError as error:  # from planning, and from looking for a cluster
        if error.errno not in FULL_DISK:
            raise
        raise UserError(str(_disk_named(error))) from None


def _launch(study: Study, options: LaunchOptions, command: Sequence[str], console: Console, cluster: Cluster) -> int:
    with open_store(options.store, read_only=options.dry_run, tell=lambda text: say_aside(console, text)) as store:
        if options.retry_failed:
            if (retry := getattr(study.search, "retry", None)) is not None:  # one with trials: others ask for them again anyway
                retry(store.rows(where={**study.wanted, "status": {FAILED}}))
            store.retry_failed()
        begun = _Launch(study, options, command, console, cluster, store)
        asked = replace(begun.question, command=command)
        is_new = not options.dry_run and save_question(store, asked)
        begun.say_notices()
        begun.warn()
        if options.dry_run:
            return begun.plan()
        try:
            code = begun.train_and_answer()
        except UserError:  # this launch has stored nothing, and the command will be another
            with contextlib.suppress(StoreError):
                if is_new and not begun.has_been_begun():
                    drop_question(store, begun.question)
            raise
        with contextlib.suppress(StoreError):  # another launch may have been refused meanwhile
            save_question(store, asked)
        return code


class _Launch:
    """A launch whose store is open: what it plans, trains and says, and the exit code that it ends with."""

    def __init__(
        self,
        study: Study,
        options: LaunchOptions,
        command: Sequence[str],
        console: Console,
        cluster: Cluster,
        store: ResultStore,
    ) -> None:
        self.study, self.options, self.console, self.cluster, self.store = study, options, console, cluster, store
        self.command = command
        self.said = 0
        """Notices of the store that were passed on before there was an execution, which then has their number."""
        self.execution: Execution | None = None
        self.rows = Rows(store.rows(where=study.wanted), functools.partial(options.on_gpu, study.task))
        self.say_notices()  # also if the question is refused: no later launch finds what was set aside
        self.question = study.question
        self.stages = Stages(
            study.task, study.search, self.question, store, self.rows, options.gates,
            keeps=study.keeps_weights, remakes=options.save_weights,
        )  # fmt: skip
        self.out = options.out or store.path / study.name
        self.outcome = Outcome()
        self.progress = Progress(
            console=console,
            table=self._table,
            seconds_left=self._seconds_left,
            line=lambda row: self.stages.line(row) or study.line(row),
            after_run=self._refresh_files,
            outcome=self.outcome,
        )
        self._written = Sparing(self._write_what_can_be)
        self._warned_of_figures = False
        self._runs = store.path / "runs"
        self._place = identity(self._runs)

    @property
    def resume(self) -> str:
        """The command that continues, as it is typed."""
        return _resume(self.command)

    def warn(self) -> None:
        """Say which stored runs do not fit what is asked now."""
        if lost := self.stages.lost():
            self._say(f"warning: {lost}")
        if remade := self.stages.remade():
            self._say(remade)
        is_over = self.stages.search.finished(self.rows)
        asked = self.question.every_spec if "family" in self.study.wanted else ()
        for path, task in (tasks := self.stages.tasks()).items():
            if not is_over and (former := made_by_former_version(path, task, self.rows, self.store, asked)):
                self._say(f"warning: {former}")
            if others := made_by_other_source(path, task, self.rows, self.store, tasks.values()):
                self._say(f"warning: {others}")
        if fewer := made_with_fewer_files(self.study.task, self.store):
            self._say(f"warning: {fewer}")

    def plan(self) -> int:
        """Say what would be trained.

        Raises:
            UserError: a step cannot be timed on this machine.
        """
        try:
            plan, work = self.stages.plan(*self.study.plan(self.rows))
        except UntimedError as error:
            hint = "ask for a smaller batch or network, or omit --dry-run if the workers have more"
            raise UserError(f"{error}: {hint}") from error
        self.console.print(plan)
        if self.options.save_weights and not all(map(self.study.keeps_weights, self.question.every_spec)):
            self._say(printable(f"weights of all runs go to {self.options.store}/weights"))
        self._say_of_weights()
        self._say_estimate(work)
        self.say_notices()
        return Exit.ANSWERED

    def train_and_answer(self) -> int:
        """
        Raises:
            UserError: the launch was refused before any run was stored.
        """
        self.execution = self._new_execution()
        with contextlib.ExitStack() as training:  # Ray ends when all is told
            try:
                try:
                    code = self._train_and_tell(self.execution, training)
                finally:  # the end of the answer, too, looks into the store
                    self.say_notices()
            except UnheardError:
                if not (code := self._signalled()):  # with a terminal that is closed both come
                    raise
                with contextlib.suppress(OSError):  # stderr may lead elsewhere
                    say(Console(file=sys.stderr), self._end_told(None))
            self.outcome.code = code
        return code

    def has_been_begun(self) -> bool:
        """Whether the store has any of the runs that are asked for first: then another launch is at the same question."""
        tasks = Tasks(self.study.task)
        return bool(self.store.rows(["key"], {"key": {*map(tasks.key, self.study.search.propose(Rows(), FIRST))}}))

    def say_notices(self) -> None:
        """Say what the store has noticed and was not said yet."""
        counter = self.execution or self
        for notice in self.store.notices[counter.said :]:
            self._say(f"warning: {notice}")
        counter.said = len(self.store.notices)

    def _new_execution(self) -> Execution:
        study, options, stages, wanted = self.study, self.options, self.stages, self.study.wanted
        pack_size, gpus = 1 if isinstance(study.task, ProgramTask) else options.pack_size, options.gpus_per_run
        return Execution(
            search=stages.search,
            task=study.task,
            store=self.store,
            rows=self.rows,
            observer=self.progress,
            workers=self.cluster.worker_count(),
            cpu_workers=options.cpu_workers,
            limits=options.limits(
                lambda spec: stages.is_parent(spec) or study.keeps_weights(spec),
                lambda spec: not stages.is_parent(spec) and study.keeps_end(spec),
            ),
            versions=versions(),
            source=source_of,
            launch=secrets.token_hex(6),
            packs=PackSizes(study.task, self.store, pack_size, gpus > 0, gpus, options.cpu_decoders(study.task)),
            concerns=lambda row: stages.matters(row) or all(row[name] in values for name, values in wanted.items()),
            remade=stages,
            outcome=self.outcome,
            said=self.said,
        )

    def _train_and_tell(self, execution: Execution, training: contextlib.ExitStack) -> int:
        stages, rows = self.stages, self.rows
        try:
            if not stages.search.finished(rows):
                self.study.read_measures()
                self._announce(execution)
                with self.progress, quiet(self.options.verbose):
                    unsaid = f"stopped: the launch was ended from outside, or by its Ray; {KEPT}; to continue: {self.resume}"
                    self.outcome = training.enter_context(executed(execution, self.cluster, self._farewell, unsaid))
            if stages.search.finished(rows):
                _drop_checkpoints(self.store, rows, execution.limits.keep_end, stages.again)
            stages.complete()
        except (StoreError, LostRayError, StuckError, UnfitError, UserError, OSError) as error:
            if isinstance(error, UserError) and not self.outcome.trained + self.outcome.failed:
                raise
            self._farewell(_disk_named(error))
            return self._signalled() or Exit.NOT_ANSWERED
        is_written = self._tell()
        self.say_notices()
        if code := self._signalled():
            self._farewell(None)
            return code
        code = self._conclude() or Exit(not is_written)
        if not code:
            self._say(f"to look closer: {on_store('analysis.report', self.options.store)}")
        return code

    def _announce(self, execution: Execution) -> None:
        """Say what begins, what it may cost, and what may stand in its way."""
        workers, stored = self.cluster.all_workers(), len(self.store)
        are = "is" if stored == 1 else "are"
        self._say(f"{counted(stored, 'run')} {are} in {self.options.store}; training the rest with {workers} in parallel")
        if self.options.price or self.options.max_hours is not None:
            try:
                self._say_estimate(self._work_left() or self.stages.plan(*self.study.plan(self.rows))[1])
            except UntimedError as error:
                self._say(f"no estimate: {error}")
        if shortage := self.cluster.shortage():
            self._say(f"warning: {shortage}")
        if not is_live(self.console) and not execution.is_over():  # else there is a table at once, or no run starts
            address = self.cluster.address
            where = "starting Ray on this machine" if address == "local" else f"joining Ray at {address}"
            self._say(f"{where}: the first run starts in about 10 to 30 s")

    def _say_of_weights(self) -> None:
        """Say of which runs the weights lack."""
        with contextlib.suppress(StoreError):  # that must not keep the answer from being told
            if told := self.stages.without_weights():
                self._say(told)

    def _say_estimate(self, work: Work | None) -> None:
        self._say(estimate_text(work, self.cluster.all_workers(), self.options.price))
        if work is None or not self.options.gpus_per_run or any(map(was_on_gpu, self.rows)):
            return
        import torch

        if not torch.cuda.is_available():
            self._say("this is the time on the CPU here, as no run on a GPU is stored yet: with GPUs it may be far less")

    def _tell(self) -> bool:
        """Write the files of the answer, and say it; whether the files could be written."""
        outcome, price = self.outcome, self.options.price
        files, unwritten = self._publish()
        self.console.print(self._table({}))
        spent = format_seconds(time.monotonic() - self.progress.began)
        cost = f", cost {cost_text(outcome.worker_seconds, price)}" if price else ""
        failed = f", {outcome.failed} failed," if outcome.failed else ""
        self._say(f"{counted(outcome.trained, 'run')} trained{failed} in {spent}{cost}")
        for file in files:
            self._say(f"wrote {printable(str(file))}")
        self._say_of_weights()
        if unwritten:
            self._say(f"{unwritten}; to continue: {self.resume}")
        if self.options.json:
            needed = {"rests_on": rests_on} if (rests_on := self.stages.rests_on()) else {}
            print_json(self.study.answer(self.rows) | needed)
        return not unwritten

    def _conclude(self) -> int:
        """Say what keeps the question from being answered, if something does."""
        study, stages, rows = self.study, self.stages, self.rows
        if not stages.search.finished(rows):
            self._say(f"not answered: {self._why_unfinished()}; to continue: {self.resume}")
            return Exit.NOT_ANSWERED
        if obstacles := stages.obstacles():
            for told in obstacles:
                self._say(f"not answered: {told}")
            advice = stages.advice()
            advised = [option for option in ("--retry-failed", "--no-gates") if option in advice]
            added = [option for option in advised[:1] if option not in self.command]  # gates are not waived by the way
            self._say(f"{advice}; to continue: {' '.join([self.resume, *added])}")
            return Exit.NOT_ANSWERED
        if not study.answered(rows):
            has = "says why" if isinstance(study.task, ProgramTask) else "has their tracebacks"
            self._say(f"not fully answered: some runs failed; the column `error` of the store {has}")
            self._say(_repair(study.task))
            self._say(f"{ELSEWHERE} to the command")
            return Exit.NOT_ANSWERED
        if (doubt := study.doubt(rows)) is not None:
            self._say(f"not answered: {doubt}")
            return Exit.NOT_ANSWERED
        if failed := self.outcome.failed:
            self._say(f"{counted(failed, 'run')} failed: {ELSEWHERE} to the command")
        return Exit.ANSWERED

    def _why_unfinished(self) -> str:
        reasons = {
            "time": "the time limit was reached",
            "cost": "the cost limit was reached",
            "error": "a run failed",
            "lost": "some runs lose their workers again and again (see above), because of their task or their machines",
        }
        why, price = reasons.get(self.outcome.stopped or "", "it was interrupted"), self.options.price
        if (work := self._work_left()) is None:
            return why
        why += f", and about {rough_seconds(work.seconds)} of one worker's time are still needed"
        return f"{why} ({cost_text(work.seconds, price)})" if price else why

    def _farewell(self, error: BaseException | None) -> None:
        """Say that the launch ends before its answer: by a signal (None), or by what."""
        self.progress.__exit__()
        self.say_notices()
        self._say(self._end_told(error))

    def _end_told(self, error: BaseException | None) -> str:
        """What is said of an end by a signal (None), or by what, and how to continue."""
        kept = self._moved() or KEPT
        if error is None:
            return f"interrupted; {kept}\nto continue: {self.resume}"
        mended = "once that is mended, " if isinstance(error, UserError | UnfitError) else ""  # else it ends the same
        return f"stopped: {error}\n{kept}; {mended}to continue: {self.resume}"

    def _moved(self) -> str:
        """What to say if the store is not where it was any more; nothing if it is."""
        store = self.options.store
        if identity(self._runs) == self._place:
            return ""
        if "://" in store:
            return f"the copy of {store} on this machine was removed while in use; {KEPT} in the bucket"
        return f"{store} was moved or removed while in use, with its runs: move it back, or all are trained again"

    def _signalled(self) -> int:
        """The exit code of a launch that a signal has ended; 0 for any other."""
        stopped = self.outcome.stopped
        return 128 + signal.Signals[stopped] if stopped in INTERRUPTED else 0

    def _work_left(self) -> Work | None:
        """What is left to train up to the answer, if that can be guessed."""
        return self.stages.work_left(self.study.work_left(self.rows))

    def _seconds_left(self) -> float | None:
        work = self._work_left()
        return None if work is None else work.on(self.cluster.all_workers())

    def _table(self, running: Mapping[str, Running]) -> RenderableType:
        """The table of the study, and what its runs need."""
        own = {key: run for key, run in running.items() if not self.stages.is_parent(run.spec)}
        return self.stages.table(self.study.table(self.rows, own), running)

    def _refresh_files(self) -> None:
        self.stages.complete()
        self._written()

    def _write_what_can_be(self) -> None:
        """While it trains. What cannot be written now is tried again at the end, which passes over nothing."""
        try:
            self.study.write(self.rows, self.out, force=False)
        except OSError:
            pass
        except Exception as error:  # a figure must not end a training
            if not self._warned_of_figures:
                self._warned_of_figures = True
                self._say(f"warning: {_undrawn(error)}")

    def _publish(self) -> tuple[Sequence[str], str]:
        """The files of the answer, and what to say if they cannot be written: that must not keep the answer from being told."""
        unexported = ""
        try:
            try:
                files = self._files()
            except UnexportedError as error:
                files, unexported = error.files, str(error)
            return self.store.publish(self.study.name, files), unexported
        except OSError as error:
            if moved := self._moved():
                return [], f"the files could not be written: {moved}"
            hint = "free space, or name" if error.errno in FULL_DISK else "name"
            why = error.strerror or error
            return [], f"the files could not be written to {self.out} ({why}): {hint} another folder with --out"
        except StoreError as error:
            return [], f"the files could not be written: {error}"

    def _files(self) -> Sequence[Path]:
        """The files of the answer. A figure that cannot be drawn must not keep it from being told.

        Raises:
            OSError: they cannot be written.
        """
        try:
            return self.study.write(self.rows, self.out, force=True)
        except (OSError, StoreError):
            raise
        except Exception as error:
            self._say(f"warning: {_undrawn(error)}; tables that could be written are in {self.out}")
            return []

    def _say(self, text: str) -> None:
        say(self.console, text)


def _disk_named(error: Exception) -> Exception:
    """The error; of a full disk that is not the store's, with what to do."""
    if not isinstance(error, OSError) or error.errno not in FULL_DISK:
        return error
    return OSError(no_room(str(error.filename or tempfile.gettempdir())))


def _undrawn(error: Exception) -> str:
    return f"the figures could not be drawn ({printable(f'{type(error).__name__}: {error}')[:200]})"


def _drop_checkpoints(
    store: ResultStore, rows: Rows, keeps_end: Callable[[RunSpec], bool], again: Callable[[str], bool]
) -> None:
    """Remove the checkpoints that are of no use now that the question is answered. Some are of finished runs: a launch that was
    killed has left them, or they came with a copy of the store. They stay where the run is to be trained again. Others are the
    ends of runs that were given up, which this study keeps in case it has to train them on. It need not any more."""
    if kept := store.with_checkpoints():
        finished = {key for key in kept if (row := rows.get(key)) is not None and row["status"] != FAILED}
        useless = {key for key in finished if not again(key)}
        for row in [row for row in rows if row.get("reason") == GIVEN_UP]:
            spec = RunSpec.from_dict(row)
            if keeps_end(spec):
                useless.add(run_key(spec.to_the_end(), row["task_version"]))
        for key in sorted(useless & kept):
            if store.claim(key):  # else another launch is training it
                store.drop_checkpoint(key)
                store.release(key)


def _repair(task: Task) -> str:
    """What to do about failed runs, if it was the task."""
    if not isinstance(task, ProgramTask):
        return "fix the task, change its version, and run the same command again"
    assert task.program is not None
    if task.program.files:
        return "fix the program, so that its files change, and run the same command again"
    return (
        "fix the program, and name its files, whose contents are its version, in --program-settings FILE.toml, as [program] "
        'files = ["train.py"]; then run the command again with that: without files, nothing tells that it has changed'
    )


def _resume(command: Sequence[str]) -> str:
    """The command that continues a launch, as it is typed: without `--export-optuna` of a file that is written, which would be
    refused."""
    kept, rest = list[str](), list(command)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        words = [word] if equals or not rest or name != EXPORT else [word, rest.pop(0)]
        if name != EXPORT or not Path(value if equals else words[-1]).exists():
            kept += words
    return typed(kept)


def _check_out(out: Path) -> None:
    """
    Raises:
        UserError: it is no folder of this machine.
    """
    if out.parts and out.parts[0].endswith(":"):  # of s3://bucket one slash is left
        raise UserError("--out must be a folder of this machine: omit it, and tables and figures go to the store")


def _check_own(folder: str) -> None:
    """A store that comes from elsewhere may hold a link where a study writes unless `--out` says otherwise.

    Raises:
        UserError: this folder of the store is one.
    """
    if Path(folder).is_symlink():
        raise UserError(
            f"{folder!r} is a link, and tables and figures might replace files in what it leads to: remove the link, or name "
            "the folder they go to with --out"
        )


@contextlib.contextmanager
def quiet(verbose: bool) -> Iterator[None]:
    """Keeps what Ray prints by itself off stdout, which holds the answer: to stderr, or nowhere."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(sys.stderr if verbose else nowhere):
        yield
