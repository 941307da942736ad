"""Two copies of a store become one again: the rows of the copy are added to those of the store.

    python -m orchestrator.merge COPY STORE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.command.cli import App, Exit, grouped, main_of
from orchestrator.command.reading import check_named, check_runs, check_used, open_store
from orchestrator.errors import UserError, counted, printable
from orchestrator.store import StoreError, lies_at
from orchestrator.store.folder import is_folder
from orchestrator.store.merge import merge

app = App()


@app.command()
@grouped
def merge_stores(
    copy: Annotated[
        str, typer.Argument(metavar="COPY", help="The copy, a folder or a place in a bucket. Nothing in it is changed.")
    ],
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store that gets its rows.")],
) -> int:
    """Add the rows of a copy of a store to the store: those that it lacks, and those of runs that failed in the store and ended
    in the copy. For a folder that was copied and then used in both places.

    Weights, measures and questions are files of their own: bring them over by `rsync --archive --ignore-existing`, to or from a
    bucket by `rclone copy --ignore-existing`, without `runs`, `launches`, `.lock`, `.tmp` and `.index`. The same command again
    adds nothing twice, and continues after any interruption.

    **Exit codes**: 0 all rows are there; 1 files of COPY cannot be read, another machine is training some of the runs, the disk
    is full, or a bucket does not answer; 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    _check(copy, store)
    try:
        with open_store(copy, read_only=True) as there:
            check_used("COPY", copy, there)
            with open_store(store) as here:
                try:
                    merged = merge(there, here)
                finally:
                    for notice in (*there.notices, *here.notices):
                        print(f"note: {notice}", file=sys.stderr)
                unread = bool(there.damaged)
    except StoreError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return Exit.NOT_ANSWERED
    if merged.differing:
        told = f"{counted(len(merged.differing), 'run')} ended in both, but not alike (status, steps or accuracy)"
        print(f"warning: {told}, such as {merged.differing[0]}: the rows in {printable(store)} stay", file=sys.stderr)
    instead = f", {merged.instead:,} of them in place of failed ones" if merged.instead else ""
    print(f"{counted(merged.rows, 'new row')} in {printable(store)}{instead}")
    if unread:
        told = "files of COPY cannot be read (see above), so rows in them are not there: keep COPY"
        print(f"warning: {told}", file=sys.stderr)
    if merged.elsewhere:
        one = merged.elsewhere == 1
        told = f"{counted(merged.elsewhere, 'run')} of COPY {'is' if one else 'are'} being trained on another machine, so "
        told += f"{'its row was' if one else 'their rows were'} not added: keep COPY, and run the same command again later"
        print(f"warning: {told}", file=sys.stderr)
    return Exit(unread or merged.elsewhere > 0)


def _check(copy: str, store: str) -> None:
    """
    Raises:
        UserError: COPY is no store, STORE is no folder, or both are the same.
    """
    check_runs("COPY", copy)
    check_named("STORE", store)
    if "://" not in store and not is_folder(Path(store)):
        raise UserError(f"STORE {store!r} is not a folder: give that of the store, or make it first")
    if lies_at(copy) == lies_at(store):
        raise UserError(f"{copy!r} and {store!r} are the same store: there is nothing to add")


main = main_of(app, "python -m orchestrator.merge")

if __name__ == "__main__":
    main()
