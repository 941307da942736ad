"""Measures trained networks: every finished run that kept its weights, every measure, as Ray tasks, each done once.

    python -m analysis.measure --store results
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import safetensors
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from analysis.measures import registry
from analysis.tasks import BUILT_IN, load_all, measured_as, not_loaded
from analysis.trained import ParentError, most_bytes, parents_of
from orchestrator.command import options as opt
from orchestrator.command.cli import App, Exit, ends_on_interrupt, main_of
from orchestrator.command.progress import QUIET_SECONDS, format_seconds, is_live, say
from orchestrator.command.reading import check_named, check_runs, check_used, open_store
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.last_words import last_words
from orchestrator.engine.pulse import SIGNAL_SECONDS, Part, watched
from orchestrator.engine.scratch import remove_all
from orchestrator.errors import LostRayError, UserError, counted, printable
from orchestrator.launch import quiet
from orchestrator.searches import Row
from orchestrator.store import MeasureTable, ResultStore, StoreError, UnreadableError
from orchestrator.store.artifacts import DamagedWeightsError
from orchestrator.store.contents import DESCRIPTION
from orchestrator.store.folder import is_folder
from orchestrator.store.measures import encode
from trainables.generative.settings import REAL
from trainables.needs import Parent
from trainables.spec import RunSpec
from trainables.task import load_task

LOOK_EVERY = 2.0
"""Seconds between two looks at the store when following it."""
IN_FLIGHT = 2
"""Tasks that wait or run for every worker: weights are read just before they are needed."""
SILENT_SECONDS = 600.0
"""If no worker has given anything for so long, one of them may hang."""
ENDING_SECONDS = 10.0
"""If Ray has died, the process ends within this time."""
GOES_ON = "what was measured is kept, and the same command goes on"

app = App()


class Steps:
    """Tells how far something is that takes long: a bar on a terminal, elsewhere a plain line about every ten seconds, and more
    rarely while nothing changes. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._text = self._said = ""
        self._began = self._told = time.monotonic()
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> Steps:
        if is_live(self.console):
            columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.add_task("")
            self._bar.start()
        else:
            self._watcher = threading.Thread(target=self._watch, daemon=True, name="steps")
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._watcher is not None:
            self._over.set()
            self._watcher.join(timeout=1.0)

    def __call__(self, text: str, done: int = 0, total: int | None = None) -> None:
        """What goes on, as a plain line says it; how much is done, and how much there is if that is known."""
        self._text = printable(text)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=self._text, completed=done, total=total)

    def _watch(self) -> None:
        """The thread of plain lines."""
        try:
            while not self._over.wait(QUIET_SECONDS / 20):
                now, text = time.monotonic(), self._text
                rests = QUIET_SECONDS if text != self._said else max(QUIET_SECONDS, (now - self._began) / 6)
                if text and now - self._told >= rests:
                    say(self.console, f"after {format_seconds(now - self._began)}: {text}")
                    self._said, self._told = text, now
        except (OSError, SystemExit):  # nobody reads any more
            return


@dataclass(slots=True)
class Outcome:
    """What one call did: how many measures of how many runs, and a line for each that failed."""

    measured: int = 0
    runs: int = 0
    failed: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """A line about runs whose task is not loaded."""
    notices: list[str] = field(default_factory=list)
    """What was told of the store: files that cannot be read, and the like."""


def measure_missing(
    store: str | Path,
    address: str = "local",
    workers: int | None = None,
    verbose: bool = False,
    follow: bool = False,
    tasks: Sequence[str] = (),
    remark: str = "",
) -> Outcome:
    """Measure what has not been measured yet of every run whose weights are in the store; with `follow`, go on as runs finish,
    until interrupted.

    What is measured is durable at once, so a call that was killed costs what was in progress, and the next one goes on. Two
    calls at once share the work. Only the project's own tasks are loaded, and those at the import paths `tasks`.

    Args:
        remark: is added to the line that says how much there is to measure.

    Raises:
        UserError: no such store, one that cannot be read, a task that cannot be loaded, or an address that does not answer.
        StoreError: a result could not be saved, or a bucket does not answer; those before it are kept.
        LostRayError: Ray does not start. If it dies later, the process ends with exit code 1.
    """
    check_named("--store", str(store))
    if "://" not in str(store) and not is_folder(Path(store)):
        raise UserError(f"--store {str(store)!r} is not a folder: give the one that a study wrote to")
    if not follow:
        check_runs("--store", str(store))
    console, outcome = Console(stderr=True), Outcome()
    kinds = {path: kind for path, task in load_all(tasks).items() if (kind := measured_as(task)) is not None}
    opened = open_store(store, read_only=True)
    with MeasureTable(store) as table, opened as results:
        if not follow:
            check_used("--store", str(store), results)
        job = _Job(table, outcome, console, {path: path for path in registry.TASKS} | kinds)
        job.look(results)
        kept = table.with_weights()
        of_tasks = [row["task"] for row in results.rows(["key", "task"]) if row["key"] in kept] if kept else []
        outcome.passed_over = not_loaded(of_tasks, {*BUILT_IN, *tasks}, "not measured")
        without = [path for path in tasks if path not in kinds]
        outcome.passed_over += [f"{path} has no measures: it extends no task of this project" for path in without]
        outcome.notices = [*results.notices, *table.notices, *job.left_out()]
        for notice in outcome.notices:
            say(console, f"warning: {notice}")
        if not follow and (count := job.without_weights(results, kept)):
            has, they, them = ("has", "it is", "it") if count == 1 else ("have", "they are", "them")
            runs, where = counted(count, "finished run"), f"{printable(str(store))}/weights"
            advice = f"the command of the study with --save-weights trains {them} again"
            say(console, f"{runs} {has} no weights in {where}, so {they} not measured: {advice}")
        if not job.waiting and not follow:
            return outcome
        if job.waiting:
            say(console, f"measuring {counted(len(job.waiting), 'network')}, which may take minutes{remark and f'; {remark}'}")
        cluster = Cluster(address, workers, verbose=verbose)
        cluster.check()
        if shortage := cluster.shortage():
            say(console, f"warning: {shortage}")
        with Steps(console) as steps:
            steps("Ray is starting")
            with contextlib.ExitStack() as stack:
                stack.enter_context(quiet(verbose))
                withdraw = stack.enter_context(last_words(f"stopped: it was ended from outside, or by its Ray; {GOES_ON}"))
                stack.enter_context(cluster.connected())
                come = stack.enter_context(ends_on_interrupt())  # again, as Ray has taken SIGTERM to itself
                stack.enter_context(watched(cluster.parts(), partial(_lost, come, withdraw)))
                job.run(results, cluster.worker_count(), follow, steps)
    return outcome


def _lost(come: threading.Event, withdraw: Callable[[], None], part: Part) -> None:
    """End the process, as Ray, of which this part is gone, hangs, or would end it without a word. A signal that has come ends
    it otherwise: it may have ended the part, too."""
    if come.wait(SIGNAL_SECONDS):
        return
    try:
        print(f"stopped: {part.loss}; {GOES_ON}", file=sys.stderr, flush=True)
        withdraw()
    finally:
        remove_all()
        os._exit(Exit.NOT_ANSWERED)


class _Job:
    """The measuring of one store: what waits, what is in progress, and what came of it."""

    def __init__(self, table: MeasureTable, outcome: Outcome, console: Console, kinds: Mapping[str, str]) -> None:
        """`kinds`: the tasks whose runs are measured, each with the one of registry.TASKS that it is or extends."""
        self.table, self.outcome, self.console, self.kinds = table, outcome, console, kinds
        self.waiting: dict[str, tuple[Row, list[str]]] = {}
        self._elsewhere: dict[str, tuple[Row, list[str]]] = {}
        """What another call has claimed. It is waited for, and taken over if that call ends."""
        self._seen: set[str] = set()
        self._needed: dict[str, Row] = {}
        """The rows of the runs that others needed, by key."""
        self._too_large = Counter[str]()
        self._real = 0
        """Runs on real pictures, which have no measures."""
        self._known = table.known()
        self._done = self._total = 0

    def look(self, results: ResultStore) -> None:
        """Take in the runs that have finished since the last look."""
        new = {key for key in self.table.with_weights() - self._seen if key.isascii()}  # a file may have any name
        if not new:
            return
        chosen = {"key": new, "status": ("passed", "missed"), "task": self.kinds}
        rows = results.rows([*DESCRIPTION, "parents"], chosen)
        self._look_up_needed(results, rows)
        for row in rows:
            self._seen.add(row["key"])
            names = registry.applicable(row, self.kinds[row["task"]])
            missing = [name for name in names if self._is_missing(row["key"], name)]
            self._real += row["dataset"] in REAL
            too_large = registry.too_large(row, self.kinds[row["task"]])
            self._too_large.update(name for name in too_large if self._is_missing(row["key"], name))
            if missing:
                self.waiting[row["key"]] = row, missing

    def _look_up_needed(self, results: ResultStore, rows: Sequence[Row]) -> None:
        """Read the rows of the runs that these needed, and that those needed in turn, a stage at a time."""
        while keys := {key for row in rows for key in (row["parents"] or {}).values()} - self._needed.keys():
            rows = results.rows([*DESCRIPTION, "parents"], {"key": keys})
            self._needed |= {row["key"]: row for row in rows}

    def without_weights(self, results: ResultStore, kept: Collection[str]) -> int:
        """How many runs lack measures because there are no weights of them. Runs of former versions, which no study trains
        again, are none of these.

        Args:
            kept: the keys of the runs with weights.
        """
        columns = ["key", "task", "task_version", "dataset", "decoder", "holdout", "N"]
        rows = results.rows(columns, {"status": ("passed", "missed"), "task": self.kinds})
        able = ((row, registry.applicable(row, self.kinds[row["task"]])) for row in rows if row["key"] not in kept)
        lacking = [row for row, names in able if any(self._is_missing(row["key"], name) for name in names)]
        versions = {path: load_task(path).version for path in {row["task"] for row in lacking}}
        return sum(row["task_version"] == versions[row["task"]] for row in lacking)

    def left_out(self) -> list[str]:
        """A line about runs on real pictures, and one for each measure that is not taken of runs that are too large for it."""
        real = f"{counted(self._real, 'run')} on real pictures {'is' if self._real == 1 else 'are'} not measured"
        return [f"{real}: the measures compare with rendered ones"] * bool(self._real) + [
            f"{name} is left out of {counted(count, 'run')} with N above {registry.MOST_N[name]}: it would take too long, or "
            "too much memory"
            for name, count in self._too_large.items()
        ]

    def run(self, results: ResultStore, workers: int, follow: bool, steps: Steps) -> None:
        self._steps, self._total = steps, len(self.waiting)
        while True:
            self._advance(0)
            self._drain(workers)
            if not (follow or self._elsewhere):
                return
            time.sleep(LOOK_EVERY)
            if follow:
                self.look(results)
            self.waiting |= self._elsewhere
            self._total = self._done + len(self.waiting)

    def _advance(self, runs: int = 1) -> None:
        self._done += runs
        others = f"; another call measures {len(self._elsewhere)} of them" if self._elsewhere else ""
        self._steps(f"measured {self._done} of {counted(self._total, 'run')}{others}", self._done, self._total)

    def _drain(self, workers: int) -> None:
        """Start tasks and keep what they give, until nothing is waiting."""
        import ray

        task = ray.remote(num_cpus=1)(_measure_run).options(num_returns="streaming")
        streams: dict[Any, str] = {}
        while self.waiting or streams:
            while self.waiting and len(streams) < IN_FLIGHT * workers:
                key = next(iter(self.waiting))
                row, names = self.waiting.pop(key)
                if not self.table.claim(key):
                    self._elsewhere[key] = row, names
                    self._advance(0)
                    continue
                self._elsewhere.pop(key, None)
                names = [name for name in names if not self.table.has(key, name, registry.VERSIONS[name])]
                if not names:  # another call has measured them
                    self.table.release(key)
                    self._advance()
                    continue
                try:
                    most = most_bytes(load_task(row["task"]), RunSpec.from_dict(row))
                    weights, parents = self._load(key, most), parents_of(row, self._weights_of, self._needed.get)
                except (FileNotFoundError, UnreadableError, ParentError) as error:
                    gone = isinstance(error, FileNotFoundError)
                    self._failed(key, "all measures", "its weights are gone" if gone else str(error))
                    self.table.release(key)
                    self._advance()
                    continue
                streams[task.remote(dict(row), weights, names, self.kinds[row["task"]], parents)] = key
            if not streams:
                return
            ready, _ = ray.wait(list(streams), num_returns=1, timeout=SILENT_SECONDS)
            if not ready:
                silent = f"nothing has been heard of {counted(len(streams), 'run')} for {SILENT_SECONDS / 60:.0f} min"
                ask = f"a worker may hang on {next(iter(streams.values()))}; if so, end this with Ctrl-C: {GOES_ON}"
                say(self.console, f"warning: {silent}: {ask}")
            for stream in ready:
                key = streams[stream]
                if self._take(stream, key):
                    del streams[stream]
                    self.table.release(key)
                    self.outcome.runs += 1
                    self._advance()

    def _take(self, stream: Any, key: str) -> bool:
        """Keep the next result of a stream; True if it was the last."""
        import ray

        try:
            measure, data, error = ray.get(next(stream))
        except StopIteration:
            return True
        except ray.exceptions.LocalRayletDiedError as broken:  # the process ends in a moment, see `_lost`
            time.sleep(ENDING_SECONDS)
            raise LostRayError(f"Ray has failed: {broken}".splitlines()[0] + f"; {GOES_ON}") from None
        except ray.exceptions.RayError as broken:  # not a measure: weights that cannot be loaded, a lost worker
            self._failed(key, "all measures", str(broken).strip().splitlines()[-1].strip()[:200])
            return True
        if error:
            self._failed(key, measure, error)
        else:
            self.table.save(key, measure, registry.VERSIONS[measure], data)
            self.outcome.measured += 1
        return False

    def _weights_of(self, key: str, most: int | None) -> bytes:
        """The weights of a run that another one needed; an OSError if there are none that can be read."""
        try:
            return self._load(key, most)
        except UnreadableError as error:
            raise OSError(str(error)) from error

    def _load(self, key: str, most: int | None) -> bytes:
        """As `load_weights`. Damaged ones are set aside, so that the next launch finds that they are missing."""
        try:
            data = self.table.load_weights(key, most)
            safetensors.deserialize(data)
        except DamagedWeightsError as error:
            raise self._set_aside(key, error.why) from error
        except safetensors.SafetensorError as error:
            raise self._set_aside(key, printable(str(error))[:200]) from error
        return data

    def _set_aside(self, key: str, why: str) -> UnreadableError:
        """Move damaged weights away, unless the store can only be read, or they lie in a folder that is none of the store's;
        what is to be said of it."""
        place = self.table.place
        told = f"{place.shown(f'weights/{key}.safetensors')} is damaged ({why})"
        if (place.path / "weights").is_symlink():
            return UnreadableError(told)
        try:
            return UnreadableError(f"{told}; it is now {self.table.set_weights_aside(key)}")
        except StoreError:
            return UnreadableError(told)

    def _failed(self, key: str, measure: str, error: str) -> None:
        error = printable(error)
        self.outcome.failed.append(f"run {key}: {measure}: {error}")
        say(self.console, f"warning: run {key}: {measure} failed: {error}")

    def _is_missing(self, key: str, name: str) -> bool:
        return (key, name, registry.VERSIONS[name]) not in self._known


def _measure_run(
    row: Row, weights: bytes, names: list[str], kind: str, parents: Mapping[str, Parent]
) -> Iterator[tuple[str, bytes, str]]:
    """A task: every measure of one run as (name, file, error), as soon as it is done."""
    from trainables.training.precision import quiet_cpu

    quiet_cpu()
    trained = registry.load(row, weights, kind, parents)
    with threadpool_limits(1):  # NumPy's own threads would fight over the core
        for name in names:
            began = time.perf_counter()
            try:
                quantities = list(registry.MEASURES[name](trained))
                yield name, encode(row["key"], name, registry.VERSIONS[name], quantities, time.perf_counter() - began), ""
            except Exception as exception:
                yield name, b"", f"{type(exception).__name__}: {exception}".splitlines()[0]


@app.command()
def measure(
    store: opt.Store = "results",
    follow: Annotated[bool, typer.Option("--follow", help="Keep measuring runs as they finish, until Ctrl-C.")] = False,
    address: opt.Address = "local",
    workers: opt.Workers = None,
    task: opt.TaskPaths = None,
    verbose: opt.Verbose = False,
) -> int:
    """Measure every trained network in a store.

    Of decoders it measures images, superposition, kernels, geometry, probes, tuning and rotation; of probes, how well a linear
    classifier reads the same pictures; of tokenizers, how well they keep what is seen; of generators, what they draw, and how
    heads and units share the work.

    It measures only what is missing. The same command continues after any interruption, and may run while studies train. Two
    at once share the work, and each ends when all is measured.
    `python -m analysis.report` does the same first, then draws the figures and judges the claims.

    It runs no code that only the store names. To measure a task of your own that extends one of this project, add
    `--task module:Class`.

    **Exit codes**: 0 all measured; 1 some measures failed, or the bucket does not answer; 2 a mistake in the command; 130,
    143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    try:
        with ends_on_interrupt():
            outcome = measure_missing(store, address, workers, verbose, follow, task or ())
    except (StoreError, LostRayError) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return Exit.NOT_ANSWERED
    for line in outcome.passed_over:
        print(f"note: {line}", file=sys.stderr)
    measures, runs = counted(outcome.measured, "new measure"), counted(outcome.runs, "run")
    print(f"{measures} of {runs} {'is' if outcome.measured == 1 else 'are'} in {printable(str(store))}/measures")
    return Exit.NOT_ANSWERED if outcome.failed else Exit.ANSWERED


main = main_of(app, "python -m analysis.measure")

if __name__ == "__main__":
    main()
