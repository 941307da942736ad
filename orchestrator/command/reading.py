"""A store that a command only reads: opened, its mistakes told in a line, what is odd in it as warnings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.store import ResultStore, StoreError


@contextmanager
def read_store(store: str) -> Iterator[ResultStore]:
    """The store at a location that the user gave. Nothing in it is changed. After the block its notices are told.

    Raises:
        UserError: there is none.
        StoreError: a bucket does not answer.
    """
    if "://" not in store and not (Path(store) / "runs").is_dir():
        raise UserError(f"--store {store!r} has no runs: give the folder that a study wrote to")
    try:
        opened = ResultStore(store, read_only=True)
    except StoreError as error:
        if error.may_pass:
            raise
        raise UserError(str(error)) from None
    with opened:
        try:
            yield opened
        finally:
            for notice in opened.notices:
                print(f"warning: {notice}", file=sys.stderr)
