"""The steps of a store's write path, seen from below: the system calls of one process on the files of one store, by name.

Nothing of the product knows of them. `watch` is called in a process that will use the store, and replaces the functions
through which Python makes these calls; after each of them, `at(name)` is called, which may kill the process.

With a `Disk` the process can also end as in a loss of power: whatever was written without a later fsync is gone.
"""

from __future__ import annotations

import fcntl
import io
import os
import secrets
import signal
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOCKS = {0: "append lock", 1: "launch lock", 2: "part lock", 3: "claim"}
"""The ranges of bytes in the lock file (orchestrator/store/locks.py)."""
KINDS = {".parquet": "part", ".pt": "checkpoint", ".safetensors": "weights", ".index": "index", ".json": "pack sizes"}


class Killer:
    """Kills this process at the `nth` step of this name; `trace` is a file that gets the names of all steps."""

    def __init__(self, name: str = "", nth: int = 1, trace: Path | None = None) -> None:
        self._name, self._nth, self._counts = name, nth, Counter[str]()
        self._trace = None if trace is None else os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.before: Callable[[], None] = lambda: None

    def __call__(self, name: str) -> None:
        self._counts[name] += 1
        if self._trace is not None:
            os.write(self._trace, f"{name}\n".encode())
        if name == self._name and self._counts[name] == self._nth:
            self._name = ""
            self.before()
            os.kill(os.getpid(), signal.SIGKILL)


class Disk:
    """What a loss of power would leave of the files of a store: the least that its fsyncs have asked for.

    A file without fsync is empty; a name that was replaced is the former file again, as long as its folder has no fsync.
    """

    def __init__(self, store: Path) -> None:
        self._unsynced: set[int] = set()
        self._renamed: list[tuple[Path, Path | None]] = []
        self._kept = store.with_name(store.name + ".kept")
        self._store = store

    def wrote(self, descriptor: int) -> None:
        self._unsynced.add(os.fstat(descriptor).st_ino)

    def synced(self, descriptor: int) -> None:
        about = os.fstat(descriptor)
        self._unsynced.discard(about.st_ino)
        if stat.S_ISDIR(about.st_mode):
            self._renamed = [(p, k) for p, k in self._renamed if p.parent.stat().st_ino != about.st_ino]

    def renames(self, target: Path) -> None:
        kept = None
        if target.exists():
            self._kept.mkdir(exist_ok=True)
            kept = self._kept / secrets.token_hex(4)
            os.link(target, kept)
        self._renamed.append((target, kept))

    def lose_power(self) -> None:
        for target, kept in self._renamed[::-1]:
            if kept is None:
                target.unlink(missing_ok=True)
            else:
                kept.replace(target)
        for path in self._store.rglob("*"):
            if path.is_file() and path.stat().st_ino in self._unsynced:
                path.write_bytes(b"")


def kind_of(path: Path) -> str:
    """What a file of a store is, its temporary included."""
    name = path.name.rpartition(".")[0].rpartition(".")[0] if path.parent.name == ".tmp" else path.name
    return KINDS.get(name if name.startswith(".") else Path(name).suffix, name)


def watch(store: Path, at: Callable[[str], None], disk: Disk | None = None) -> None:
    """Have `at` called with the name of every step that this process takes in the store."""
    store = Path(os.path.realpath(store))
    opened, fsync, replace, rename, unlink, mkdir = Path.open, os.fsync, os.replace, os.rename, os.unlink, os.mkdir
    lockf = fcntl.lockf

    def inside(path: Any) -> Path | None:
        path = Path(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH119, PTH120
        return path if path.is_relative_to(store) else None

    def of_descriptor(descriptor: int) -> Path | None:
        return inside(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115

    class File(io.FileIO):
        """The first writing stops half way, as a disk may."""

        begun = False

        def write(self, data: Any) -> int:
            if disk is not None:
                disk.wrote(self.fileno())
            part = data if self.begun else data[: max(1, len(data) // 2)]
            written = super().write(part)
            at(f"{kind_of(Path(self.name))} {'written' if self.begun else 'half written'}")
            self.begun = True
            return written

    def open_(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode == "xb" and (path := inside(self)) is not None:
            file = File(path, mode)
            at(f"{kind_of(path)} opened")
            return file
        return opened(self, mode, *args, **kwargs)

    def fsync_(descriptor: int) -> None:
        fsync(descriptor)
        if (path := of_descriptor(descriptor)) is not None:
            if disk is not None:
                disk.synced(descriptor)
            at(f"folder {path.relative_to(store)} synced" if path.is_dir() else f"{kind_of(path)} synced")

    def replace_(source: Any, target: Any, **more: Any) -> None:
        path = inside(target)
        if disk is not None and path is not None:
            disk.renames(path)
        replace(source, target, **more)
        if path is not None:
            at(f"{kind_of(path)} in place")

    def rename_(source: Any, target: Any, **more: Any) -> None:
        rename(source, target, **more)
        if (path := inside(target)) is not None:
            at(f"moved to {path.parent.relative_to(store)}")

    def unlink_(path: Any, **more: Any) -> None:
        unlink(path, **more)
        if (gone := inside(path)) is not None:
            at(f"{kind_of(gone)} removed")

    def mkdir_(path: Any, *args: Any, **more: Any) -> None:
        mkdir(path, *args, **more)
        if (made := inside(path)) is not None:
            at(f"folder {made.relative_to(store)} made")

    def lockf_(descriptor: Any, operation: int, length: int = 0, start: int = 0, whence: int = 0) -> None:
        lockf(descriptor, operation, length, start, whence)
        if of_descriptor(descriptor) is not None:
            at(f"{LOCKS[start >> 56]} {'freed' if operation == fcntl.LOCK_UN else 'taken'}")

    Path.open = open_  # type: ignore[method-assign]
    os.fsync, os.replace, os.rename, os.unlink, os.mkdir, fcntl.lockf = fsync_, replace_, rename_, unlink_, mkdir_, lockf_
