"""The report as a command.

python -m analysis.report --store results --out report
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.command import options as opt
from orchestrator.command.cli import INTERRUPTS, App, Exit, check_folder, ended_by, ends_on_interrupt, heeding_sigterm, main_of
from orchestrator.command.reading import check_apart, check_runs, check_used, is_used, open_store
from orchestrator.errors import LostRayError, UserError, counted, printable, unwritten
from orchestrator.store import StoreError, lies_at

if TYPE_CHECKING:
    from analysis.report.build import Builder
    from analysis.report.page import Report

app = App()


@app.command()
def report(
    store: opt.Store = "results",
    out: Annotated[Path, typer.Option(help="Folder for the page and its files.")] = Path("report"),
    measure: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure", help="First measure the trained networks that have not been measured; not with --follow."
        ),
    ] = True,
    beside: Annotated[
        list[str] | None, typer.Option("--with", help="Another store whose studies stand beside those of this one; repeatable.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write the page anew as runs end, until Ctrl-C. An open page shows it by itself.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the page at an address that this machine alone can open, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --serve; 0 takes a free one.")] = 8700,
    all_questions: Annotated[
        bool, typer.Option("--all-questions", help="Answer all stored questions, even if they are so many that it takes hours.")
    ] = False,
    address: opt.Address = "local",
    workers: opt.Workers = None,
    task: opt.TaskPaths = None,
    verbose: opt.Verbose = False,
) -> int:
    """What was asked of a store, how far it is, and what its runs answer: one page to look at.

    The page has a part for every study that was asked of the store: its question, its state, its answer, its tables and its
    figures. It lists every run with its settings, curves and errors. If the store has runs that papers make claims about, it
    judges these claims by the rules printed next to them. It needs no network, and its folder can be sent to a colleague.
    Nothing is trained. No code that only the store names is loaded: name a task of your own with `--task`.

    **Examples**

    `python -m analysis.report`  # the store in `results`, the page in `report/index.html`

    `python -m analysis.report --follow --serve`  # a page that shows a study while it runs

    `python -m analysis.report --with colleague/results`  # two stores side by side

    `python -m analysis.report --store s3://bucket/folder --follow`  # a study on a cluster, seen from a laptop

    `python -m analysis.report --no-measure`  # faster, only from what is already measured

    **Exit codes**: 0 written, whatever the answers; 1 a measure failed, or a figure, named on the page, or the bucket
    does not answer; 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP, but 0 if
    Ctrl-C ends --follow or --serve.
    """
    waits = follow and not os.path.lexists(Path(store) / "runs") and "://" not in store
    stores = [("--store", store), *(("--with", one) for one in beside or ())]
    for name, location in stores:
        if name != "--store" or not waits:
            check_runs(name, location)
    for one, other in combinations((store, *(beside or ())), 2):
        if lies_at(one) == lies_at(other):
            raise UserError(f"{one!r} and {other!r} are the same store: there is nothing to compare")
    _check_out(out, (store, *(beside or ())))
    if serve:
        _check_port(out, port)
    try:
        for name, location in stores:
            with open_store(location, read_only=True) as opened:
                if follow and name == "--store":
                    waits = waits or ("://" in store and not is_used(opened))
                else:
                    check_used(name, location, opened)
    except StoreError as error:
        return _stopped(error)
    if waits:
        print(f"warning: --store {printable(str(store))} has no runs yet; waiting for the first", file=sys.stderr)
    from rich.console import Console

    from analysis.measure import Steps, measure_missing
    from analysis.report.build import LOOK_EVERY, Builder

    builder = Builder(store, out, task or (), beside or (), LOOK_EVERY if follow else 0.0, all_questions)
    try:
        with ends_on_interrupt():
            unmeasured, told = list[str](), list[str]()
            if measure and not follow:
                remark = "--no-measure leaves this out"
                measured = measure_missing(store, address, workers, verbose, tasks=task or (), remark=remark)
                unmeasured, told = measured.failed, measured.notices
        with Steps(Console(stderr=True)) as steps:
            page, written = builder.build(say=steps)
    except (StoreError, LostRayError, OSError) as error:
        return _stopped(error)
    for notice in (one for one in builder.notices if one not in told):
        print(f"warning: {notice}", file=sys.stderr)
    _tell(page)
    pages = [path for path in written if path.suffix in (".html", ".json")]
    for path in pages:
        print(printable(str(path)))
    if more := len(written) - len(pages):
        print(f"and {counted(more, 'more file')} beside them")
    for line in page.errors:
        print(f"warning: a figure could not be drawn: {line}", file=sys.stderr)
    if follow or serve:
        del page  # what its figures were drawn from, too
        return _stay(builder, follow, serve, port)
    return Exit.NOT_ANSWERED if unmeasured or page.errors else Exit.ANSWERED


def _check_out(out: Path, stores: Sequence[str]) -> None:
    """
    Raises:
        UserError: nothing can be written there, or it would be among the files of one of the stores.
    """
    from analysis.report import page, runs

    for store in stores:
        check_apart(out, store, "report", (runs.FOLDER, page.FOLDER))
    check_folder("--out", out)


def _check_port(out: Path, port: int) -> None:
    """Before anything is measured and written."""
    from analysis.report.build import served

    try:
        with served(out, port):
            pass
    except OSError as error:
        raise _port_error(port, error) from None


def _port_error(port: int, error: OSError) -> UserError:
    return UserError(f"--port {port} cannot be used ({error.strerror}): give another one, or 0 for any")


def _stopped(error: Exception) -> int:
    print(f"stopped: {unwritten(error, '--out') if isinstance(error, OSError) else error}", file=sys.stderr)
    return Exit.NOT_ANSWERED


def _tell(page: Report) -> None:
    """Of each study its state and its question; a line for each claim that runs speak of, and one for all others."""
    from analysis.report.findings import NOT_ENOUGH

    for part in page.studies:
        print(printable(f"{part.told.state:<16}{part.told.id:<32}{part.told.progress}".rstrip()))
        print(printable(f"{'':<16}{part.told.title}"))
    for claim, finding, _ in page.sections:
        if not finding.speaks:
            continue
        found = counted(finding.seeds, "seed") if finding.seeds else f"too few {finding.lacking}"
        figures = f"figures {claim.figures}" if claim.figures else ""
        print(f"{finding.verdict:<16}{claim.id:<30}{found:<8}  {figures}".rstrip())
    if silent := [finding for _, finding, _ in page.sections if not finding.speaks]:
        of_some = f"; of {sum(bool(one.unmet) for one in silent)} there are runs, but {page.unmet}" if page.unmet else ""
        print(f"{NOT_ENOUGH:<16}{counted(len(silent), 'claim')} of papers: no run counts{of_some}")


def _tell_written(page: Report) -> None:
    print(f"{counted(page.runs, 'run')}, written {time.strftime('%H:%M:%S')}", flush=True)


def _stay(builder: Builder, follow: bool, serve: bool, port: int) -> int:
    """Serve the page, or write it again and again, up to Ctrl-C."""
    from analysis.report.build import served

    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(heeding_sigterm())
            if serve:
                try:
                    address = stack.enter_context(served(builder.out, port))
                except OSError as error:
                    raise _port_error(port, error) from None
                print(f"the page is at {address}\nCtrl-C ends this")
            if not follow:
                Event().wait()
            print("following the store; Ctrl-C ends this", flush=True)
            builder.follow(_tell_written, warn=lambda line: print(f"warning: {line}", file=sys.stderr, flush=True))
    except INTERRUPTS as error:
        return Exit.ANSWERED if isinstance(error, KeyboardInterrupt) else ended_by(error)
    return Exit.ANSWERED


main = main_of(app, "python -m analysis.report")

if __name__ == "__main__":
    main()
