"""One run of a store, trained once more by itself: does it end as the store says?

    python -m orchestrator.again KEY --store results
"""

from __future__ import annotations

import bisect
import dataclasses
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import App, Exit, check_folder, checked, grouped, main_of, quoted
from orchestrator.command.endings import Endings, to_json
from orchestrator.command.progress import Running, format_seconds, time_taken
from orchestrator.command.reading import check_apart, check_named, read_store
from orchestrator.command.real_pictures import pictures_of
from orchestrator.command.sources import SOURCE, with_source_of_another
from orchestrator.command.subject import own_task
from orchestrator.command.tables import FittingTable
from orchestrator.engine.estimate import Work
from orchestrator.engine.remade import CLOSE
from orchestrator.errors import UserError, counted, printable
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches import Curve, Row, Rows, ending
from orchestrator.searches.grid import GridSearch
from orchestrator.searches.needs import with_needed
from orchestrator.store import ResultStore, StoreError, lies_at
from orchestrator.study import GridStudy
from trainables.check import check_task
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.generative.settings import REAL
from trainables.needs import Tasks
from trainables.program import COMMAND, changed_files, names_in, values_of, words_of
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import listed
from trainables.spec import RunSpec, run_key, training_version
from trainables.task import Task, load_task

NAME = "again"
SHORTEST = 6
"""Letters of a key that must be given."""
LISTED = 5
"""Keys, or files, that an error names."""
MOST_BYTES = 4 << 30
"""Of all files of a program together: a row may name any, and they are read."""
PLAIN = re.compile(r"[\w{}./=:,+-]+", re.ASCII)
"""A word of a command that means the same without quotes."""

app = App()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone(LaunchOptions):
    """Those of the launch of one run of another store."""

    store: Annotated[str, opt.placed(help="The store that has the run: a folder, or `s3://bucket/folder`.")] = "results"
    out: Annotated[Path | None, opt.placed(help="Folder for what is found.", show_default="INTO/again")] = None
    workers: Annotated[
        int | None,
        opt.placed(min=1, max=4096, help="Parallel workers, of use if the run needs several others.", show_default="1"),
    ] = None


@dataclass(slots=True)
class AsStored(GridSearch):
    """A `Search` of one run. If that was pruned, by a search that is not made here, this one ends where it ended."""

    steps: int | None = None
    """After which it was pruned. Where a curve is thinned, the points by then may be others."""

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        if self.steps is None or not curve.step or curve.step[-1] < self.steps:
            return None
        return max(1, bisect.bisect_right(curve.step, self.steps))


@dataclass(slots=True)
class Again(GridStudy):
    """One run, and what is known of it: how it ended before. A `Study`."""

    stored: Row = field(default_factory=dict)
    close: float = CLOSE
    endings: Endings | None = None
    """Known when the launch has written its answer."""

    def __post_init__(self) -> None:
        GridStudy.__post_init__(self)
        steps = self.stored["steps"] if self.stored["status"] == "pruned" else None
        self.search = AsStored(self.specs, self.task.version, steps=steps)

    def keeps_weights(self, spec: RunSpec) -> bool:
        return spec.task != PROGRAM_TASK

    def answered(self, rows: Rows) -> bool:
        return self._endings(rows) is not None

    def line(self, row: Mapping[str, Any]) -> str:
        return f"run {row['key']}: {ending(row)} ({time_taken(row)})"

    def work_left(self, rows: Rows) -> Work:
        return Work() if self.answered(rows) else Work([(self.stored["seconds"], 1)])

    def plan(self, rows: Rows) -> tuple[RenderableType, Work]:
        """How the run ended before, and how long it took."""
        table = FittingTable(printable(f"run {self.stored['key']} of {self.settings['from']}"))
        for name in ("task", "N", "data count", "seed", "ended", "steps", "time then", "now"):
            table.add_column(name, justify="right" if name in ("N", "data count", "seed", "steps") else "left")
        row, now = self.stored, "finished" if self.answered(rows) else "missing"
        counts = (str(row[name]) for name in ("N", "data_count", "seed"))
        took = format_seconds(row["seconds"])
        table.add_row(Text(printable(row["task"])), *counts, ending(row), str(row["steps"]), took, now)
        where = f"its row goes to {self.settings['store']}/runs, what is found to {self.settings['out']}"
        return Group(table, Text(printable(where))), self.work_left(rows)

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """The two endings side by side; before the second is known, how far it is."""
        if (endings := self._endings(rows)) is None:
            steps = ", ".join(f"step {run.step} of {run.spec.max_steps}" for run in running.values()) or "not yet begun"
            return Text(f"run {self.stored['key']}: {steps}")
        table = FittingTable(f"run {self.stored['key']}")
        for name in ("column", "stored", "now", "difference"):
            table.add_column(name, justify="left" if name == "column" else "right")
        for one in endings.columns:
            table.add_row(*map(Text, one.cells()))
        return Group(table, *map(Text, endings.lines()))

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """`KEY.csv`, a line per column, and `KEY.json`, at the end of a launch."""
        from orchestrator.command.files import csv_bytes, json_bytes, plain, write_files

        self.endings = self._endings(rows)
        if not force or self.endings is None:
            return []
        import pandas as pd

        table = pd.DataFrame([one.cells() for one in self.endings.columns], columns=["column", "stored", "now", "difference"])
        contents = {"csv": csv_bytes(table), "json": json_bytes(plain(self.answer(rows)))}
        return write_files(out, {f"{self.stored['key']}.{kind}": content for kind, content in contents.items()})

    def answer(self, rows: Rows) -> dict[str, Any]:
        from orchestrator.command.files import plain

        endings = self._endings(rows)
        answer: dict[str, Any] = plain({"settings": self.settings, **({} if endings is None else to_json(endings))})
        return answer

    def _endings(self, rows: Rows) -> Endings | None:
        row = self.search.row(rows, self.specs[0])
        return None if row is None else Endings(self.stored, row, self.close)


@app.command()
@grouped
def again(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help=f"The key of the run, or the beginning of it, at least {SHORTEST} characters.")
    ],
    into: Annotated[str, opt.asked(help="Another store, in which the run is trained; or `s3://bucket/folder`.")] = "again",
    close: Annotated[
        float,
        opt.asked(
            min=0, max=1, help="Relative difference up to which numbers are close, where machine, device or versions differ."
        ),
    ] = CLOSE,
    task: Annotated[
        str | None, opt.subject("--task", help="The task of the run, `module:Class`, if it is your own.", show_default="none")
    ] = None,
    program: Annotated[
        str | None,
        opt.subject("--program", help="The command of the run, if a program carries it out.", show_default="none"),
    ] = None,
    data: Annotated[
        Path | None,
        opt.subject("--data", help="The folder of the data set, if the run was trained on real pictures.", show_default="none"),
    ] = None,
    *,
    where: Alone,
) -> int:
    """Does one run of a store end again as the store says?

    Takes the run with this key from `--store`, trains it once more in the store `--into`, after the runs that it needs and by
    one worker, and compares all that its training decided: how and when it ended, its numbers and its curves. On the same
    machine with the same versions they are the same bit for bit. Elsewhere, and on a GPU, they have to be close. What has been
    trained into `--into` is not trained again: give another `--into` to repeat it.

    It loads no code that only the store names. For a run of a task of your own add `--task module:Class`, and for one of a
    program `--program` with its command as it is started; without it you are told the command. The places `{name}` may stay
    in it if only numbers, true and false take them.

    **Examples**

    `python -m orchestrator.again 3f0c9a`  # a run of the store in `results`, trained in the store `again`

    `python -m orchestrator.again 3f0c9a --dry-run`  # which run it is, how it ended, and how long it took

    `python -m orchestrator.again 3f0c9a --store s3://bucket/results --into here --json`  # of a bucket; the answer as JSON

    **Exit codes**: 0 it ended as the store says; 1 it ended otherwise, or has not ended (a limit, a full disk, a bucket that
    does not answer); 2 a mistake in the command, or a run that today's code does not train; 130, 143 and 129 after
    Ctrl-C, SIGTERM and SIGHUP.
    """
    _check_places(where.store, into, where.out)
    try:
        with read_store(where.store) as store:
            keys = {row["key"]: row["family"] for row in store.rows(["key", "family"])}
            chosen = _chosen(key, keys, where.store)
            found = _rows_of(store, keys, chosen)
            others = with_needed(found, lambda needed: next(iter(_rows_of(store, keys, needed)), None))[1:]
            if with_source_of_another(found, store):
                found = [{**row, "versions": row["versions"].partition(SOURCE)[0]} for row in found]
    except StoreError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return Exit.NOT_ANSWERED
    if not found:
        raise UserError(f"run {chosen} of --store {where.store} cannot be believed, see the warning: choose another")
    stored = found[0]
    run, spec = _loaded(stored, task, program), RunSpec.from_dict(stored)
    _check_current(stored, others, spec, run)
    _check_data(spec, data)
    if spec.precision == "tf32" and not where.on_gpu(run, spec.decoder):
        raise UserError(f"run {chosen} was trained with tf32, which needs a GPU: add --gpus-per-run 1")
    if spec.task != PROGRAM_TASK:
        checked(check_task, run, spec, where.save_weights)
    elif where.save_weights:
        raise UserError("--save-weights would change nothing, because a program cannot be told it: omit the option")
    options = dataclasses.replace(where, store=into, workers=where.workers or 1)
    settings = {"key": chosen, "from": where.store, "close": close, **options.origin(NAME, run.version)}
    study = Again(NAME, run, [spec], settings, stored=stored, close=close)
    code = launch(study, options)
    otherwise = study.endings is not None and study.endings.verdict == "otherwise"
    return Exit.NOT_ANSWERED if code == Exit.ANSWERED and otherwise else code


def _check_places(store: str, into: str, out: Path | None = None) -> None:
    """
    Raises:
        UserError: the two stores are one, or the second lies in the first, or there can be none at `into`, or `--out` is where
            the first keeps its own files.
    """
    check_named("--into", into)
    if lies_at(into).is_relative_to(lies_at(store)):
        raise UserError(f"--into {into!r} lies in the store that has the run: give another folder")
    if "://" not in into:
        check_folder("--into", Path(into))
    if out is not None:
        check_apart(out, store, "tables")


def _chosen(given: str, keys: Collection[str], store: str) -> str:
    """The one key that begins so.

    Raises:
        UserError: there is none, or there are several.
    """
    if len(given) < SHORTEST:
        raise UserError(f"{given!r} is too short for a run key: give at least {SHORTEST} of its characters")
    known = sorted(keys)
    first = bisect.bisect_left(known, given)
    found = [key for key in known[first : first + LISTED + 1] if key.startswith(given)]
    if len(found) == 1 or given in keys:
        return found[0]
    if found:
        more = " and others" if found[LISTED:] else ""
        raise UserError(f"several runs of {store} have keys that begin with {given!r}: {', '.join(found[:LISTED])}{more}")
    if not known:
        raise UserError(f"--store {store!r} has no runs: give the folder that a study wrote to")
    start = max(0, min(first - LISTED // 2, len(known) - LISTED))
    near = ", ".join(known[start : start + LISTED])
    raise UserError(f"no run of {store} has a key that begins with {given!r}: of its {len(known)} keys the nearest are {near}")


def _loaded(row: Row, task: str | None, program: str | None) -> Task:
    """The task of a run: one of this project, or the one that the user names. A program is started only if the user gives its
    command.

    Raises:
        UserError: it is neither, or what the user names is not that of the run.
    """
    from analysis.tasks import BUILT_IN

    run, path = f"run {row['key']}", row["task"]
    if task not in (None, path):
        raise UserError(f"--task {task!r} is not the task of {run}, which is {printable(path)!r}: omit it, or give that one")
    if path == PROGRAM_TASK:
        filled, given = _commands(row)
        if program is None or _words(program) not in given:
            asked = f"--program {quoted(_spelled(filled))}"
            raise UserError(f"{run} starts a program, and only your command may name one: add {asked} if you trust it")
    elif program is not None:
        raise UserError(f"--program is for runs of programs, and {run} is of the task {printable(path)!r}: omit it")
    if path in BUILT_IN:
        return load_task(path)
    if task is None:
        option = f"--task {shlex.quote(path)}" if path.isprintable() else "--task module:Class"
        raise UserError(f"the task of {run}, {printable(path)!r}, is not loaded: add {option} if you trust its code")
    return own_task(path)


def _commands(row: Row) -> tuple[list[str], list[list[str]]]:
    """The command that a run of a program starts, and all commands by which a user may name it: also the one with places for
    values, unless a text would take one of these, which may be of a stranger.

    Raises:
        UserError: there is none.
    """
    spec = RunSpec.from_dict(row)
    try:
        filled, values, template = words_of(spec), values_of(spec), shlex.split(str(row["options"][COMMAND]))
    except ValueError as error:
        why = printable(str(error))
        raise UserError(f"run {row['key']} starts a program, and its row does not say which ({why}): choose another") from None
    has_text = any(isinstance(values[name], str) for name in names_in(template, values))
    return filled, [filled] if has_text else [filled, template]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # nothing that could be started
        return [command]


def _spelled(words: Sequence[str]) -> str:
    """A command with no more quotes than it needs."""
    return " ".join(word if PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def _rows_of(store: ResultStore, families: Mapping[str, str], key: str) -> list[Row]:
    """The row of a run, if the store has one that can be believed."""
    if key not in families:
        return []
    return [row for row in store.rows(where={"family": {families[key]}}) if row["key"] == key]


def _check_current(row: Row, others: Sequence[Row], spec: RunSpec, task: Task) -> None:
    """
    Args:
        others: the rows of the runs that it needed, and that these needed in turn, each after one that needed it.

    Raises:
        UserError: today's code would train another run, or train it after others.
    """
    if (now := run_key(spec, task.version)) != row["key"]:
        before = training_version(spec, row["task_version"], row["key"])
        told = f"version {row['task_version']} of its task and {before} of the training loop"
        today = f"{task.version} and {training_version(spec, task.version)}"
        another = f"so it would train another run ({now})"
        raise UserError(f"run {row['key']} is of {printable(told)}, and today's code has {today}, {another}")
    if spec.task == PROGRAM_TASK:
        if changed := checked(changed_files, spec, MOST_BYTES):
            more = [counted(len(changed) - LISTED, "other")] if changed[LISTED:] else []
            files = printable(listed([*changed[:LISTED], *more]))
            raise UserError(f"{files} changed since run {row['key']}, so it would be another run: restore what it was then")
        return
    tasks = Tasks(task)
    for one in (row, *others):  # each is named by one that was found right, so its task is none of a stranger
        if (parents := checked(tasks.parents, RunSpec.from_dict(one))) != (one["parents"] or {}):
            before, today = (", ".join(map(" ".join, of.items())) or "none" for of in (one["parents"] or {}, parents))
            which = f"run {row['key']}" if one is row else f"run {one['key']}, which run {row['key']} needed,"
            told = f"{printable(before)}, now {printable(today)}"
            raise UserError(f"{which} was trained after other runs than it would need now: {told}")


def _check_data(spec: RunSpec, data: Path | None) -> None:
    """Find the files of real pictures.

    Raises:
        UserError: they are not given, or are given in vain.
    """
    if spec.task in (PROBE, TOKENIZER, GENERATOR) and spec.dataset in REAL:
        if data is None:
            raise UserError(f"the run is of {spec.dataset}: add --data FOLDER")
        pictures_of(spec.dataset, data, ())
    elif data is not None:
        raise UserError(f"--data is for runs of {', '.join(REAL)}, and this one is of {printable(spec.dataset)!r}: omit it")


main = main_of(app, "python -m orchestrator.again")

if __name__ == "__main__":
    main()
