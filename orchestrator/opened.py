"""Whether the folder of a store is still the one that it was: it may be moved, removed or unmounted while in use."""

from __future__ import annotations

import errno
import os
from pathlib import Path

MOVED = "the store was moved or removed while in use"

_opened: dict[Path, tuple[int, int]] = {}
"""The folders of the stores that this process has opened, as each was then."""


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a folder from another one by the same name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remember(store: Path) -> None:
    """For `check_there`: the folder of a store that was opened."""
    if (found := identity(store)) is not None:
        _opened.update(dict.fromkeys(_names(store), found))


def check_there(path: Path) -> None:
    """For files that are none of the store's own, such as tables, before they are written, and folders made for them: a store
    that was moved away is not made anew, else it would be moved back into the new one.

    Raises:
        FileNotFoundError: `path` lies in a store that was moved, removed or unmounted since this process opened it.
    """
    for name in _names(path):
        for folder in (name, *name.parents):
            if folder in _opened and _opened[folder] != identity(folder):
                raise FileNotFoundError(errno.ENOENT, MOVED, str(folder))


def _names(path: Path) -> set[Path]:
    """A path as it is given, and where it leads."""
    return {Path(os.path.abspath(path)), Path(os.path.realpath(path))}  # noqa: PTH100 - without `..` and looking at the disk
