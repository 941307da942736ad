"""The runs of a store for other programs: TensorBoard, and whatever reads a CSV file.

    python -m analysis.export --store results --tensorboard FOLDER
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.command import options as opt
from orchestrator.command.cli import App, Exit, check_expanded, check_folder, main_of, one_of
from orchestrator.command.reading import check_named, read_store
from orchestrator.errors import UserError, counted, printable, unwritten
from orchestrator.store import SCHEMA, STATUSES, Row, StoreError
from orchestrator.store.index import CHOICES
from trainables.spec import LIMITS

CURVES = ("curve_step", "curve_loss", "curve_accuracy", "curve_error", "curve_summary")
"""Columns that a CSV file has no place for."""

MOST_COLUMNS = 2000
"""Of a CSV file."""

app = App()


@app.command()
def export(
    store: opt.Store = "results",
    tensorboard: Annotated[
        Path | None, typer.Option(help="A new or empty folder; each run gets a folder in it.", show_default="none")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="A file; each run gets a line in it.", show_default="none")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Only runs with these values, COLUMN=VALUE,...; repeatable. COLUMN is one of {', '.join(CHOICES)}.",
            show_default="all runs",
        ),
    ] = None,
) -> int:
    """Write the runs of a store for TensorBoard, or as one CSV file.

    For TensorBoard each run becomes a folder named by its key: its curves are scalars, its settings are hyperparameters, and
    its final numbers stand beside them. The CSV file has a column for each setting and each measure, and no curves. No code
    that the store names is loaded, and a study may be at work. The folder and the file are written whole or not at all.

    **Examples**

    `python -m analysis.export --tensorboard board`  # then `tensorboard --logdir board`

    `python -m analysis.export --csv runs.csv --where dataset=bumps --where status=passed,missed`  # some of the runs

    `python -m analysis.export --store s3://bucket/results --tensorboard board --csv runs.csv`  # of a bucket

    **Exit codes**: 0 written; 1 the disk is full, or the bucket does not answer; 2 a mistake in the command, or no such runs;
    130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    if tensorboard is None and csv is None:
        raise UserError("nothing would be written: add --tensorboard FOLDER, --csv FILE, or both")
    check_named("--store", store)
    board, file = _board(store, tensorboard), _file(store, csv)
    if board is not None and file is not None:
        _check_both(board, file, str(tensorboard), str(csv))
    chosen = chosen_by(where or [])
    given = " or ".join(name for name, path in (("--csv", csv), ("--tensorboard", tensorboard)) if path is not None)
    columns = [name for name in SCHEMA.names if board is not None or name not in CURVES]
    try:
        with read_store(store) as opened:
            rows = opened.rows(columns, chosen)
        if not rows:
            like = f" with {', '.join(where)}" if where else ""
            raise UserError(f"--store {store!r} has no runs{like}: there is nothing to write")
        told = counted(len(rows), "run")
        if file is not None:
            _write_csv(rows, file)
            print(f"wrote {told} to {printable(str(csv))}")
        if board is not None:
            from analysis.tensorboard import write_runs

            write_runs(rows, board)
            look = shlex.join(["tensorboard", "--logdir", str(tensorboard)])
            print(printable(f"wrote {told} to {tensorboard}; to look at them: {look}"))
    except (StoreError, OSError) as error:
        print(f"stopped: {unwritten(error, given) if isinstance(error, OSError) else error}", file=sys.stderr)
        return Exit.NOT_ANSWERED
    return Exit.ANSWERED


def chosen_by(pairs: Sequence[str]) -> dict[str, Collection[object]] | None:
    """Columns with the values that they may have, from `COLUMN=VALUE,...`; None for all rows.

    Raises:
        UserError: no such column, or a value that it cannot have.
    """
    found: dict[str, set[object]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in CHOICES:
            known = ", ".join(CHOICES)
            raise UserError(f"--where {pair!r} chooses nothing: write COLUMN=VALUE,... where COLUMN is one of {known}")
        found.setdefault(name, set()).update(_value(name, word.strip()) for word in text.split(","))
    return dict(found) or None


def _value(name: str, word: str) -> object:
    if name == "status":
        return one_of("--where status", word, STATUSES)
    if name not in LIMITS:
        return word
    low, high = LIMITS[name]
    if not (word.isascii() and word.isdigit() and len(word) < 20 and low <= int(word) <= high):
        raise UserError(f"--where {name}={word!r} is no whole number from {low} to {high}: give such a number")
    return int(word)


def _board(store: str, path: Path | None) -> Path | None:
    """Where the folder really lies.

    Raises:
        UserError: it cannot be made, or has something in it.
    """
    if path is None:
        return None
    found = _outside("--tensorboard", path, store)
    check_folder("--tensorboard", path)
    if found.is_dir() and any(found.iterdir()):
        raise UserError(f"--tensorboard {str(path)!r} has something in it: give a new or empty folder")
    return found


def _file(store: str, path: Path | None) -> Path | None:
    """Where the file really lies.

    Raises:
        UserError: it is something else, or there is no folder for it.
    """
    if path is None:
        return None
    found = _outside("--csv", path, store)
    if found.exists() and not found.is_file():
        raise UserError(f"--csv {str(path)!r} is no file: give the name of a file")
    check_folder("--csv", found.parent)
    return found


def _check_both(board: Path, file: Path, tensorboard: str, csv: str) -> None:
    """
    Raises:
        UserError: the folder and the file, which the user gave by these words, are one, or one lies in the other.
    """
    if board == file:
        raise UserError(f"--csv and --tensorboard both name {csv!r}: give one of them another name")
    if file.is_relative_to(board):
        raise UserError(f"--csv {csv!r} lies in --tensorboard {tensorboard!r}: give a path outside it")
    if board.is_relative_to(file):
        raise UserError(f"--tensorboard {tensorboard!r} lies below --csv {csv!r}, which is to be a file: give another path")


def _outside(option: str, path: Path, store: str) -> Path:
    if path.parts and path.parts[0].endswith(":"):  # of s3://bucket one slash is left
        raise UserError(f"{option} {str(path)!r} is not on this machine: give a path here, and copy it from there")
    check_expanded(option, path)
    found = Path(os.path.realpath(path))
    if "://" not in store and found.is_relative_to(os.path.realpath(store)):
        raise UserError(f"{option} {str(path)!r} lies in the store: give a path outside it")
    return found


def _write_csv(rows: Sequence[Row], file: Path) -> None:
    """A line for each run: its columns but for the curves, then a column for each option and each measure.

    Raises:
        UserError: these are more than MOST_COLUMNS.
    """
    import pandas as pd

    from orchestrator.command.files import csv_bytes, whole_letters, write_files

    lines = [{whole_letters(name): value for name, value in _line(row).items()} for row in rows]
    names = dict.fromkeys(name for name in SCHEMA.names if name in lines[0])
    more = sorted({name for line in lines for name in line} - names.keys())
    if len(names) + len(more) > MOST_COLUMNS:
        told = f"these runs have {len(more):,} different options and measures, and a file has at most {MOST_COLUMNS:,} columns"
        raise UserError(f"--csv {str(file)!r} is not written: {told}: choose fewer runs with --where")
    more.sort(key=lambda name: not name.startswith("options."))
    table = pd.DataFrame(lines, columns=[*names, *more], dtype=object)
    counts = [name for name in table if table[name].dropna().map(_is_count).all()]
    write_files(file.parent, {file.name: csv_bytes(table, counts)})


def _line(row: Row) -> dict[str, Any]:
    line = {name: value for name, value in row.items() if name not in ("options", "measures", *CURVES)}
    for column in ("options", "measures"):
        line |= {f"{column}.{name}": value for name, value in row[column].items()}
    return {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in line.items()}


def _is_count(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63


main = main_of(app, "python -m analysis.export")

if __name__ == "__main__":
    main()
