"""One launch of a study, the same for every study: open the store, plan, train what is missing, answer, exit code."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import secrets
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, RenderableType

from orchestrator import options as opt
from orchestrator.cli import Exit, one_of
from orchestrator.cluster import Cluster
from orchestrator.engine import execute
from orchestrator.errors import UserError
from orchestrator.execution import Execution, Limits, Outcome
from orchestrator.packing import PackSizes
from orchestrator.progress import Progress, Running, format_seconds, say
from orchestrator.searches import Rows, Search
from orchestrator.spec import RunSpec
from orchestrator.store import ResultStore, StoreError
from trainables.task import Task

ON_ERROR = ("continue", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options that every study has of where and how to run; a command takes them with `cli.grouped`."""

    store: opt.Store = Path("results")
    out: opt.Out = None
    address: opt.Address = "local"
    workers: opt.Workers = None
    gpus_per_run: opt.GpusPerRun = 0.0
    pack_size: opt.PackSize = None
    dry_run: opt.DryRun = False
    max_hours: opt.MaxHours = None
    on_error: opt.OnError = "continue"
    save_weights: opt.SaveWeights = False
    json: opt.Json = False
    verbose: opt.Verbose = False

    def folder(self, study: str) -> Path:
        """Where the study's table and figures go."""
        return self.out or self.store / study

    def check(self) -> None:
        """
        Raises:
            UserError: a word or a path that will not do.
        """
        one_of("--on-error", self.on_error, ON_ERROR)
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {str(self.out)!r} is a file: give a folder")

    def cluster(self) -> Cluster:
        return Cluster(self.address, self.workers, 1.0, self.gpus_per_run, self.verbose)


class Study(Protocol):
    """What a launch needs of a study."""

    task: Task

    @property
    def name(self) -> str: ...

    @property
    def search(self) -> Search: ...

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        """The finished runs that matter to this study, as `ResultStore.rows` takes it."""

    def plan(self, rows: Rows, workers: int) -> RenderableType:
        """Runs done and to do, their estimated time, what will be written where."""

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """The state of the question, for the live display and the end."""

    def line(self, row: Mapping[str, Any]) -> str:
        """A finished run in one plain line."""

    def seconds_left(self, rows: Rows, workers: int) -> float | None:
        """Estimated time to the answer; None while nothing is known."""

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Write the result files if there is something new to say (`force`: in any case); the files there are."""

    def answer(self, rows: Rows) -> dict[str, Any]:
        """The answer, ready for JSON."""

    def keeps_weights(self, spec: RunSpec) -> bool:
        """Whether the study's figures need the final weights of this run."""

    def answered(self, rows: Rows) -> bool:
        """Whether every part of the question has an answer; a failed run leaves a part without one."""


def launch(study: Study, options: LaunchOptions, command: Sequence[str]) -> int:
    """Train what the study still needs and answer it.

    Raises:
        UserError: something the user can put right, before anything was written.
    """
    options.check()
    console = Console(file=sys.stderr if options.json else sys.stdout)
    cluster = options.cluster()
    cluster.check()
    try:
        store = ResultStore(options.store, read_only=options.dry_run)
    except StoreError as error:
        raise UserError(str(error)) from None
    with store:
        for notice in store.notices:
            say(console, f"warning: {notice}")
        rows = Rows(store.rows(where=study.wanted))
        if options.dry_run:
            console.print(study.plan(rows, cluster.worker_count()))
            return Exit.ANSWERED
        return _train_and_answer(study, options, command, console, cluster, store, rows)


def _train_and_answer(
    study: Study,
    options: LaunchOptions,
    command: Sequence[str],
    console: Console,
    cluster: Cluster,
    store: ResultStore,
    rows: Rows,
) -> int:
    workers, out = cluster.worker_count(), options.folder(study.name)

    def refresh_files() -> None:
        with contextlib.suppress(OSError):  # the last writing, at the end, does not pass over it
            study.write(rows, out, force=False)

    progress = Progress(
        console=console,
        table=lambda running: study.table(rows, running),
        seconds_left=lambda: study.seconds_left(rows, workers),
        line=study.line,
        after_run=refresh_files,
    )
    execution = Execution(
        search=study.search,
        task=study.task,
        store=store,
        rows=rows,
        observer=progress,
        workers=workers,
        limits=Limits(
            deadline=None if options.max_hours is None else time.monotonic() + 3600 * options.max_hours,
            stop_on_error=options.on_error == "stop",
            save_weights=lambda spec: options.save_weights or study.keeps_weights(spec),
        ),
        versions=versions(),
        launch=secrets.token_hex(6),
        packs=PackSizes(study.task, store, options.pack_size, options.gpus_per_run > 0),
        concerns=study.wanted,
    )
    resume = " ".join(shlex.quote(word) for word in command)

    def farewell() -> None:
        progress.__exit__()
        say(console, f"to continue: {resume}")

    try:
        if not study.search.finished(rows):
            console.print(f"{len(store)} runs in {options.store}, training the rest with {workers} at a time", highlight=False)
            with progress, _quiet(options.verbose):
                outcome = execute(execution, cluster, farewell)
        else:
            outcome = Outcome()
        files = study.write(rows, out, force=True)
    except (StoreError, OSError) as error:
        say(console, f"stopped: {error}\nall finished runs are kept; to continue: {resume}")
        return Exit.NOT_ANSWERED
    console.print(study.table(rows, {}))
    spent = format_seconds(time.monotonic() - progress.began)
    console.print(f"{outcome.trained} runs trained in {spent}", highlight=False)
    for path in files:
        say(console, f"wrote {path}")
    if options.json:
        json.dump(study.answer(rows), sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
    return _conclude(study, rows, outcome, console, resume)


def _conclude(study: Study, rows: Rows, outcome: Outcome, console: Console, resume: str) -> int:
    if outcome.stopped in ("SIGINT", "SIGTERM"):
        say(console, f"to continue: {resume}")
        return Exit[outcome.stopped]
    if not study.search.finished(rows):
        why = {"time": "the time limit was reached", "error": "a run failed"}.get(outcome.stopped or "", "it was interrupted")
        say(console, f"not answered: {why}; to continue: {resume}")
        return Exit.NOT_ANSWERED
    if not study.answered(rows):
        say(console, "not fully answered: some runs failed; their tracebacks are in the store, column `error`")
        say(console, "mend the task and change its version, then run the same command again")
        return Exit.NOT_ANSWERED
    return Exit.ANSWERED


@contextlib.contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Keeps what Ray prints by itself off stdout, which holds the answer: to stderr, or nowhere."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(sys.stderr if verbose else nowhere):
        yield


def versions() -> str:
    """Versions of what decides a result, for the record."""
    names = ("sweep-orchestrator", "torch", "ray", "numpy")
    found = [f"python={platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name}={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name}=unknown")
    return " ".join(found)
