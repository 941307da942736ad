"""Where a store is kept: what it asks of a `Place`, be it a folder (`folder.Folder`) or in a bucket (`bucket.Bucket`), and the
errors that come of it.

A file is known by its name below the place, such as `weights/KEY.safetensors`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from orchestrator.store.locks import StoreLocks

Item = TypeVar("Item")
Result = TypeVar("Result")
Stamp = tuple[int, int, int]
"""Inode, size and modification time: a file that was replaced has another."""
Tell = Callable[[str], object]
"""Is given a line, by whatever thread waits, when a wait gets long."""


def tell_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class StoreError(Exception):
    """The store cannot be used as asked. The message is one line for a user.

    `may_pass`: nothing is wrong with what was asked; a bucket did not answer.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class UnreadableError(StoreError):
    """One file of the store cannot be read; the others may be."""


class Place(Protocol):
    """A place that keeps files for all processes, here and on other machines, that have it open.

    Cheap to make: nothing is read, and nothing created before it is needed. Methods raise OSError where the place or the disk
    does not do what is asked; a StoreError comes of it in a block that is `in_words`.
    """

    path: Path
    """The folder, or one of this machine that mirrors the bucket, and may go while no launch is at work."""
    notices: list[str]
    """What was found that does not belong there, a line each."""
    bytes_per_part: int
    """A part of so many bytes gets no more rows."""

    @property
    def location(self) -> str | Path:
        """The place as users know it."""

    @property
    def locks(self) -> StoreLocks:
        """The locks among the processes of this machine. To have them, `path` is created."""

    @property
    def waited(self) -> float:
        """Seconds for which the place has not answered, in all."""

    def make(self, folder: str) -> Path:
        """Have a folder of `path`, durably, and the first time `path` as well.

        Raises:
            FileNotFoundError: `path` is not what it was any more: it was moved, removed or unmounted. Nothing is made there.
        """

    def check(self) -> None:
        """Raises OSError unless the place can be reached."""

    def load(self, name: str) -> bytes | None:
        """The contents of a file, as they are now; None if there is none.

        Raises:
            UnreadableError: there is something, which cannot be read.
        """

    def fetch(self, name: str) -> Path:
        """Where on this machine a file can be read, with its contents of now; nothing is there if there is none."""

    def save(self, name: str, data: bytes) -> None:
        """Make a file hold `data`, atomically and durably: a reader sees the former file or this one, whole, and when this
        returns, it survives a crash, with a bucket also the loss of this machine. Nothing else is changed if it raises.

        Raises:
            StoreError: the place is sealed.
        """

    def write(self, name: str, data: bytes) -> Stamp:
        """Do as `save` does, and have the file in `path` too. A file whose name begins with a dot is this machine's own."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; nothing happens where there is none."""

    def move(self, name: str, target: str) -> None:
        """Rename a file, also in `path`."""

    def copy(self, name: str, target: str) -> None:
        """Give a file of `path` a second name, which nothing has yet and which keeps the contents, durably, when the first one
        gets others."""

    def exists(self, name: str) -> bool:
        """Whether the file is there now."""

    def size(self, name: str) -> int | None:
        """The bytes that a file has now; None if there is none."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder now, but for names that begin with a dot. `notices` tell if it is none."""

    def refresh(self, folder: str, again: Collection[str] = (), *, locked: bool = False) -> None:
        """Make a folder of `path` as it is now; nothing has to be done where `path` is the place itself.

        Args:
            again: names of files that may be wrong here, although nothing shows it.
            locked: the caller has the right to change rows (`locks.appending`).
        """

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What `do` gives for each of the items; in a bucket it is done for several at a time, in threads.

        Args:
            do: does not call this method.
        """

    def among(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Those of these names in a folder that files may have now; the others, none has."""

    def files(self, folder: str) -> list[Path]:
        """What is in a folder of `path`, as of the last `refresh`, but for names that begin with a dot. `notices` tell if it is
        none."""

    def place_aside(self, name: str) -> str:
        """The name in `set-aside/` under which there is room for a file with this one."""

    def publish(self, folder: str, files: Iterable[Path]) -> list[str]:
        """Copy files of this machine, and all that is in the folders among them, into a folder of a bucket; a place that is
        none leaves them where they are.

        Returns:
            Each file as a user finds it.
        """

    def take(self, names: Sequence[str]) -> set[str]:
        """Claim these names among all processes, here and on other machines; at once, those that no other one has. A claim is
        held until it is freed, the place is closed, or the process dies."""

    def free(self, name: str) -> None:
        """Give a claim back; nothing happens if it is not held."""

    def sweep(self) -> None:
        """Remove what launches that are no more have left: temporaries and claims."""

    def seal(self, why: str) -> None:
        """Refuse from now on to save or write, since the store was `why`."""

    def needs_writing(self, action: str) -> None:
        """Raises StoreError if the place is sealed, so that the action cannot be done."""

    def in_words(self, action: str) -> AbstractContextManager[None]:
        """A block that does `action`. What goes wrong in it is a StoreError, one line that says so, and what to do."""

    def shown(self, name: str) -> str:
        """A file as users know it."""

    def note(self, text: str) -> None:
        """Tell something in `notices`, once."""

    def hasten(self) -> None:
        """Have no patience any more with a place that does not answer: who waits for it gives up within a second or two."""

    def close(self) -> None:
        """Free every lock and claim held through this object. Harmless when repeated."""
