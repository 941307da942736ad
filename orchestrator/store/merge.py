"""Brings the rows of a copy of a store into the store. `python -m orchestrator.merge` is the command.

To copy the files of one over those of the other would lose rows where both have grown since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from orchestrator.store.contents import DESCRIPTION, FAILED
from orchestrator.store.results import ResultStore

ROWS_AT_ONCE = 5_000
"""So many are in memory at a time, and are written in one step."""
ENDS = ("status", "steps", "accuracy")
"""Columns in which two rows of a run that ended well are compared."""


class Merged(NamedTuple):
    """What was added: `rows` in all, `instead` of them in the place of a row whose run had failed. `differing`: the keys of
    runs that ended well in both, and not alike; their rows stay as they were. `elsewhere`: how many rows were not added, as
    another machine is training their runs."""

    rows: int
    instead: int
    differing: tuple[str, ...] = ()
    elsewhere: int = 0


def merge(there: ResultStore, here: ResultStore) -> Merged:
    """Add the rows of the copy `there` that the store `here` lacks, or has only as failed, or only in a form that cannot be
    believed. They are carried as they are, in tables, with every check of their contents.

    Raises:
        StoreError: one of the two cannot be read, or the rows cannot be written; those before are there.
    """
    failed = here.failed()
    found = there.table(["key", *ENDS])
    keys = found["key"].to_pylist()
    known, ours = here.known(keys), here.table(["key", *ENDS])
    in_order = ours["key"].to_pylist()
    believed = _believed(here, [key for key in in_order if key in known])
    ended = {key for key, status in zip(keys, found["status"].to_pylist(), strict=True) if status != FAILED}
    # First what takes the place of failed rows, in the order of these: so a part that loses rows is written once or twice.
    better = dict.fromkeys(key for key in in_order if key in failed and key in ended)
    new = list(better | dict.fromkeys(key for key in keys if key not in believed))
    ends = _ends(ours)
    unlike = [key for key, end in _ends(found).items() if key in believed and ends.get(key, end) != end]
    told = _believed(there, unlike)
    differing = tuple(key for key in unlike if key in told)
    rows, offered = 0, list[str]()
    for start in range(0, len(new), ROWS_AT_ONCE):
        table = there.find_table({"key": new[start : start + ROWS_AT_ONCE]})
        rows += here.append_table(table)
        offered += table["key"].to_pylist()
    left = here.failed() if failed else set()
    elsewhere = set(offered) - (here.known(offered) - (left & ended))
    return Merged(rows, len(failed.intersection(new) - left), differing, len(elsewhere))


def _believed(store: ResultStore, known: Sequence[str]) -> set[str]:
    """Those of the keys whose rows can be believed.

    Args:
        known: in the order of the store, so that few parts are read twice. Keys are hashes: sorted, those that are looked up
            at once lie in all parts.
    """
    starts = range(0, len(known), ROWS_AT_ONCE)
    rows = (store.rows(DESCRIPTION, {"key": known[start : start + ROWS_AT_ONCE]}) for start in starts)
    return {row["key"] for some in rows for row in some}


def _ends(table: pa.Table) -> dict[str, str]:
    """How the runs ended that did not fail, by key; as text, in which what was not measured is equal to itself."""
    ends = zip(*(table[name].to_pylist() for name in ENDS), strict=True)
    return {key: str(end) for key, end in zip(table["key"].to_pylist(), ends, strict=True) if end[0] != FAILED}
