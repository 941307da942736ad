"""A store that a command only reads: opened, its mistakes told in a line, what is odd in it as warnings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError
from orchestrator.store import ResultStore, StoreError


def check_named(option: str, location: str) -> None:
    """
    Raises:
        UserError: the location, which the user gave with this option, is empty, or the folder in a store that holds its rows.
    """
    if not location:
        raise UserError(f"{option} is empty: name a folder, such as results, or a place in a bucket, s3://bucket/folder")
    if "://" not in location and any(Path(location).glob("runs-*.parquet")):
        raise UserError(f"{option} {location!r} has rows itself: give the folder above it, that of the store")


def check_runs(option: str, location: str) -> None:
    """
    Raises:
        UserError: the location, which the user gave with this option, is a folder without runs, or none.
    """
    check_named(option, location)
    if "://" not in location and not (Path(location) / "runs").is_dir():
        raise UserError(f"{option} {location!r} has no runs: give the folder that a study wrote to")


def open_store(store: str | Path, **how: Any) -> ResultStore:
    """The store at a location that the user gave, opened as `ResultStore` does it.

    Raises:
        UserError: it cannot be opened.
        StoreError: a bucket does not answer.
    """
    try:
        return ResultStore(store, **how)
    except StoreError as error:
        if error.may_pass:
            raise
        raise UserError(str(error)) from None


@contextmanager
def read_store(store: str) -> Iterator[ResultStore]:
    """The store, which has runs, opened for reading only. After the block its notices are told.

    Raises:
        UserError: there is none.
        StoreError: a bucket does not answer.
    """
    check_runs("--store", store)
    with open_store(store, read_only=True) as opened:
        try:
            yield opened
        finally:
            for notice in opened.notices:
                print(f"warning: {notice}", file=sys.stderr)
