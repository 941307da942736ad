"""Which launch may do what in a store: byte-range locks on one file, freed by the kernel however a process ends."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Literal

Kind = Literal["launch", "part", "run"]
_RANGE: dict[Kind, int] = {"launch": 1 << 56, "part": 2 << 56, "run": 3 << 56}
_APPEND_BYTE = 0
_COPY = re.compile(rb"([0-9a-f]{12}) (\d{1,20}) ([0-9a-f]{12}|-)\n")
SLOW_SECONDS = 10.0
"""A change of the rows takes some hundredths of a second. Who waits longer for that of another process says so."""
_LONGEST = 100
"""Bytes that are read of the file."""
UNKNOWN = "-"


class StoreLocks:
    """The locks that this process holds in one store.

    POSIX locks belong to the process, and closing *any* descriptor of the file drops all of them. So there is one
    object and one descriptor per process and file (`open` shares them, `close` counts), and a second user within the
    process is refused by `_held`, as the kernel would not refuse it. They are advisory, and a forked child inherits
    none: it opens the store anew.

    `token` names this process to the others: its byte is locked for as long as the process uses the store. `machine` names
    all processes that these locks exclude: it is another one on another machine, after a restart, and in a copy of the folder.
    `copy` names this copy of the folder: it stays what it is, and is the same for all who share the folder. It is kept in the
    file, beside what tells whether the file was copied: its inode, and the disk where one can be known.
    """

    _shared: ClassVar[dict[str, StoreLocks]] = {}
    _registry: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> StoreLocks:
        """The locks on the file `path`, created if absent. Raises OSError where it cannot be created or locked."""
        name = os.path.realpath(path)
        with cls._registry:
            locks = cls._shared.get(name)
            if locks is None:
                locks = cls._shared[name] = cls(name)
            locks._users += 1
            return locks

    def __init__(self, name: str) -> None:
        self._name, self._users = name, 0
        self.token = secrets.token_hex(6)
        self.tell: Callable[[], object] = lambda: None
        """Called once when a wait for another process that is `appending` gets long."""
        self._held: set[int] = set()
        self._guard = threading.Lock()
        self._threads = threading.Lock()
        self._fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        self.machine = _machine(os.fstat(self._fd))
        try:
            if not self.take("launch", self.token):  # which nobody else can have: locks are always refused there
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), name)
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Give up one use; the last one closes the file and with it frees every lock."""
        with self._registry:
            self._users -= 1
            if self._users == 0 and self._shared.get(self._name) is self:
                del self._shared[self._name]
                os.close(self._fd)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Wait for, and hold, the right to change the rows. Not reentrant.

        Raises:
            FileNotFoundError: the lock file was removed or replaced, so that it no longer excludes anybody.
        """
        with self._threads:
            if not self._try(_APPEND_BYTE):
                slow = threading.Timer(SLOW_SECONDS, self.tell)
                slow.daemon = True
                slow.start()
                try:
                    fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, _APPEND_BYTE)
                finally:
                    slow.cancel()
            try:
                self.check(self._name)
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _APPEND_BYTE)

    def check(self, path: str | Path) -> None:
        """
        Raises:
            FileNotFoundError: the file `path` is not the one of these locks: the store was moved, removed or unmounted.
        """
        if not os.path.samestat(os.fstat(self._fd), os.stat(path)):  # noqa: PTH116 - may be a plain string
            raise FileNotFoundError(2, "it was removed while in use", str(path))

    def copy(self) -> str:
        """The name of this copy of the folder; one that has none yet, or that of another copy, gets a new one. To be asked for
        while `appending`, so that two first launches give one name.

        Raises:
            OSError: the name cannot be written.
        """
        found = os.fstat(self._fd)
        inode, disk = str(found.st_ino), _disk(found.st_dev)
        data = os.pread(self._fd, _LONGEST, 0)
        if (kept := _COPY.fullmatch(data)) is not None:
            name, of_inode, of_disk = (part.decode() for part in kept.groups())
            if of_inode == inode and (disk == of_disk or UNKNOWN in (disk, of_disk)):
                return name
        elif data:  # not ours to change: it may be a link to what is no store's
            return hashlib.sha256(repr((inode, disk)).encode()).hexdigest()[:12]
        name = secrets.token_hex(6)
        line = f"{name} {inode} {disk}\n".encode()
        os.pwrite(self._fd, line, 0)
        os.ftruncate(self._fd, len(line))
        return name

    def take(self, kind: Kind, name: str) -> bool:
        """Lock `name` without waiting; False if any user, in this process or another, has it."""
        offset = _offset(kind, name)
        with self._guard:
            if offset in self._held:
                return False
            if not self._try(offset):
                return False
            self._held.add(offset)
            return True

    def _try(self, offset: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def free(self, kind: Kind, name: str) -> None:
        """Unlock what `take` locked; nothing happens if it is not held."""
        offset = _offset(kind, name)
        with self._guard:
            if offset in self._held:
                self._held.discard(offset)
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, offset)


def _offset(kind: Kind, name: str) -> int:
    """A byte in the range of `kind`: two names meet with probability 2**-56."""
    return _RANGE[kind] + int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:7])


def _machine(file: os.stat_result) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    about = socket.gethostname(), boot.read_text() if boot.exists() else "", file.st_dev, file.st_ino, file.st_ctime_ns
    return hashlib.sha256(repr(about).encode()).hexdigest()[:12]


def _disk(device: int) -> str:
    """What tells a disk from its clone: its serial number, hashed. UNKNOWN where there is none, as in a network."""
    with suppress(OSError, ValueError):
        place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve(strict=True)
        for folder in (place, place.parent):  # of a partition the disk is the folder above
            for name in ("wwid", "serial", "device/wwid", "device/serial"):
                with suppress(OSError):
                    if serial := (folder / name).read_bytes().strip():
                        return hashlib.sha256(serial).hexdigest()[:12]
    return UNKNOWN


def _forget_in_child() -> None:
    StoreLocks._shared.clear()
    StoreLocks._registry = threading.Lock()


os.register_at_fork(after_in_child=_forget_in_child)
