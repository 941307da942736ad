"""How an answer becomes files: plain values for JSON, tables, and every file replaced in one step."""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.opened import check_there

SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""What a formula may begin with; some spreadsheets also take the wide signs of East Asian scripts."""
FORMULA = re.compile(rf"""([;\t\n])(?! *[+-][\d.]+(?:e[+-]?\d+)?\1)(["\s]*)(?=[{re.escape("".join(SIGNS))}])""")
"""Where a formula begins in a cell for a reader that splits lines at semicolons or tabs. A number is none, unless it ends the
cell: there such a reader goes on with the next one."""
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}(?:-journal)?")
"""The name of a file that is to get another name once it is whole, and of the journal of a database."""
LEFT_SECONDS = 3600.0
"""No process takes so long to write a file: it was killed meanwhile."""


def write_files(out: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write one file per name into the folder `out`; a reader sees the former file or the new one, whole. What killed processes
    left of files with these names goes.

    Raises:
        OSError: they cannot be written, also as `out` lies in a store that was moved (see `check_there`).
    """
    check_there(out)
    out.mkdir(parents=True, exist_ok=True)
    sweep(out, contents.__contains__)
    for name, content in contents.items():
        temporary = out / f".{name}.{secrets.token_hex(8)}"
        try:
            temporary.write_bytes(content)
            temporary.replace(out / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return [out / name for name in contents]


def sweep(out: Path, is_named: Callable[[str], object]) -> None:
    """Remove temporaries of files with such names that nobody writes any more."""
    with contextlib.suppress(OSError):  # another process may sweep, too, and files can be written where none can be listed
        for left in out.iterdir():
            found = TEMPORARY.fullmatch(left.name)
            if found and is_named(found[1]) and left.is_file() and time.time() - left.stat().st_mtime > LEFT_SECONDS:
                left.unlink()


def csv_bytes(table: pd.DataFrame, counts: Sequence[str] = ()) -> bytes:
    """The table as a CSV file, the columns `counts` in whole numbers: empty where nothing is known, `inf` without an end. Text
    that a spreadsheet would take for a formula gets an apostrophe before it, which makes it text there; half a letter is
    escaped."""
    text = table.drop(columns=counts, errors="ignore").select_dtypes(["object", "string"])
    cells = {name: pd.Series(map(_as_text, text[name]), text.index, object) for name in text}
    return _whole(_with(table, cells), counts).rename(columns=_as_text).to_csv(index=False).encode()


def records(table: pd.DataFrame, counts: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the table, the columns `counts` in whole numbers where they have one."""
    return _whole(table, counts).to_dict("records")


def _whole(table: pd.DataFrame, counts: Sequence[str]) -> pd.DataFrame:
    """A column that lacks a number holds floats; here its finite ones are int again."""
    found = {name: pd.Series(map(_count, table[name]), table.index, object) for name in counts if name in table}
    return _with(table, found)


def _with(table: pd.DataFrame, columns: Mapping[str, pd.Series]) -> pd.DataFrame:
    """The table with other columns in place of those of the same names, which may be any, `self` too."""
    changed = table.copy()
    for name, column in columns.items():
        changed[name] = column
    return changed


def _count(value: Any) -> Any:
    return int(value) if value is not None and math.isfinite(value) else value


def json_bytes(value: Any) -> bytes:
    """Indented JSON of what `plain` made.

    Raises:
        ValueError: a number that is not finite.
    """
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def whole_letters(text: str) -> str:
    """A text whose halves of letters, which no file and no table of text can hold, are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    cell = whole_letters(cell).replace("\0", " ")  # which some readers pass over
    cell = cell.replace("\r", " ")  # which pandas leaves without quotes, though it ends a line
    cell = FORMULA.sub(r"\1\2'", cell)
    return "'" * cell.lstrip().startswith(SIGNS) + cell


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: NaN and infinities become null, NumPy scalars Python ones."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
