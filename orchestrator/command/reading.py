"""A store that a command only reads: opened, its mistakes told in a line, what is odd in it as warnings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.command.cli import check_expanded
from orchestrator.errors import UserError
from orchestrator.store import FOLDERS, ResultStore, StoreError, questions
from orchestrator.store.bucket import check_place
from orchestrator.store.folder import is_folder


@contextmanager
def looking_into(option: str, location: str) -> Iterator[None]:
    """For a block that looks whether a folder is there.

    Raises:
        UserError: this user may not look at the location, which was given with this option.
    """
    try:
        yield
    except PermissionError as error:
        hint = "choose a folder that you may read, or ask its owner"
        raise UserError(f"{option} {location!r} cannot be entered ({error.strerror}): {hint}") from None


def check_named(option: str, location: str) -> None:
    """
    Raises:
        UserError: the location, which the user gave with this option, is empty, or a URI that means no place in a bucket, or
            cannot be entered, or begins with a tilde as `check_expanded` says, or is the folder in a store that holds its rows.
    """
    if not location:
        raise UserError(f"{option} is empty: name a folder, such as results, or a place in a bucket, s3://bucket/folder")
    try:
        check_place(location)
    except StoreError as error:
        raise UserError(f"{option}: {error}") from None
    with looking_into(option, location):
        check_expanded(option, location)
        has_rows = "://" not in location and is_folder(Path(location)) and any(Path(location).glob("runs-*.parquet"))
    if has_rows:
        raise UserError(f"{option} {location!r} has rows itself: give the folder above it, that of the store")


def check_runs(option: str, location: str) -> None:
    """
    Raises:
        UserError: the location, which the user gave with this option, is a folder without runs, or none that can be entered.
    """
    check_named(option, location)
    with looking_into(option, location):
        has_runs = "://" in location or is_folder(Path(location) / "runs")
    if not has_runs:
        raise _no_runs(option, location)


def check_used(option: str, location: str, store: ResultStore) -> None:
    """For a bucket, of which `check_runs` knows nothing before it is opened.

    Raises:
        UserError: the store, which was opened at a location that the user gave with this option, is in a bucket, and no study
            has written to it.
        StoreError: the bucket does not answer.
    """
    if "://" in location and not is_used(store):
        raise _no_runs(option, location)


def is_used(store: ResultStore) -> bool:
    """Whether a study has written rows or a question.

    Raises:
        StoreError: the store cannot be read.
    """
    with store.place.in_words("read the questions"):
        return bool(len(store) or store.damaged or store.place.names(questions.FOLDER))


def _no_runs(option: str, location: str) -> UserError:
    return UserError(f"{option} {location!r} has no runs: give the folder that a study wrote to")


def check_apart(out: Path, store: str, instead: str, within: Sequence[str] = (), option: str = "--out") -> None:
    """
    Args:
        instead: what may be chosen.
        within: folders of `out` that are written to.
        option: the one by which `out` was given.

    Raises:
        UserError: `out` is in a folder in which the store keeps its own files, or one of `within` is.
    """
    for folder in (out, *(out / name for name in within)):
        place = Path(os.path.realpath(folder))
        for name in FOLDERS:
            if "://" not in store and place.is_relative_to(os.path.realpath(Path(store) / name)):
                what = f"{option} {str(out)!r}" + (f" writes to {str(folder)!r}, which" if folder != out else "")
                told = f"{what} is where the store keeps its {name}"
                raise UserError(f"{told}: choose another folder, such as {option} {instead}")


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
        check_used("--store", store, opened)
        try:
            yield opened
        finally:
            for notice in opened.notices:
                print(f"warning: {notice}", file=sys.stderr)
