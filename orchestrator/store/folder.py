"""A folder of this machine that keeps a store, and how any file of a store is written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import printable
from orchestrator.opened import MOVED, identity
from orchestrator.store.locks import SLOW_SECONDS, StoreLocks
from orchestrator.store.place import Item, Result, Stamp, StoreError, Tell, UnreadableError, tell_on_stderr

BYTES_PER_PART = 2 << 20
LONGEST_NAME = 150
"""Bytes of the name of a file that the name of its temporary begins with. Those of our own files are shorter."""
FOLDERS = ("runs", "measures", "weights", "checkpoints", "questions", "set-aside", ".tmp")
"""Folders of a store, in which nothing else belongs."""
CHANGED = ("runs", "measures", "set-aside", ".tmp")
"""Those in which files are removed, or moved away, that have the wrong name or contents."""
OPENING = "open the store"
"""The first action of a launch. Later ones need the same store again, which has its rows."""
NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
"""Errors that say that nothing is there."""
ONE_DISK = "a file takes its place in one step, which works within one disk only: move the whole store there, and link to that"


@dataclass(slots=True)
class Temporary:
    """A file that holds, durably, what is about to take the place of another. `stays`: even if it does not come to that."""

    path: Path
    stays: bool = False
    descriptor: int = -1
    stamp: Stamp = (0, 0, 0)
    """Of the file once it is in its place."""


class Folder:
    """A folder of this machine with its locks. See `Place`.

    Args:
        location: as users know it, if not by its path.
        tell: is given a line when a wait for another process gets long.
    """

    bytes_per_part = BYTES_PER_PART
    waited = 0.0

    def __init__(self, path: Path, location: str | None = None, tell: Tell = tell_on_stderr) -> None:
        self.path = path
        self.location: str | Path = path if location is None else location
        self.notices: list[str] = []
        self._sealed = ""
        self._tell = tell
        self._locks: StoreLocks | None = None
        self._found = identity(path)
        """The folder that this is, once there is one."""

    @property
    def locks(self) -> StoreLocks:
        if self._locks is None:
            if self._found is not None and self._found != identity(self.path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
            self._check_lock()
            try:
                self._locks = StoreLocks.open(self.path / ".lock")
            except (FileNotFoundError, NotADirectoryError):
                make_folder(self.path)
                self._locks = StoreLocks.open(self.path / ".lock")
            self._locks.tell = self._tell_of_wait
            self._found = identity(self.path)
        return self._locks

    def _tell_of_wait(self) -> None:
        self._tell(
            f"another process has been writing to {printable(str(self.location))} for {SLOW_SECONDS:g} s, and this one waits: "
            "perhaps it was stopped with Ctrl-Z (continue it with fg, or end it), or the disk is very slow"
        )

    def _check_lock(self) -> None:
        """
        Raises:
            StoreError: the lock file is a link that would have a file made or filled elsewhere.
        """
        lock = self.path / ".lock"
        if lock.is_symlink() and not (lock.is_file() and lock.stat().st_size):
            raise StoreError(f"{printable(self.shown('.lock'))} is a link to a file that is missing or empty: remove the link")

    def make(self, folder: str) -> Path:
        self.locks.check(self.path / ".lock")
        made = self.path / folder
        if not made.is_dir():
            made.mkdir(exist_ok=True)  # never its parents: a store that was moved away is not made anew
            sync_folder(self.path)
        return made

    def check(self) -> None:
        pass

    def load(self, name: str) -> bytes | None:
        path = self.path / name
        try:
            with in_memory(path), open_file(path) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"cannot read {path}: {error.strerror}") from error

    def fetch(self, name: str) -> Path:
        return self.path / name

    def save(self, name: str, data: bytes) -> None:
        self.write(name, data)

    def write(self, name: str, data: bytes) -> Stamp:
        self.needs_writing(f"save {Path(name).name} in")
        with self.replacing(name, data) as temporary:
            pass
        return temporary.stamp

    @contextlib.contextmanager
    def replacing(self, name: str, data: bytes) -> Iterator[Temporary]:
        """Write `data` to a temporary, durably, and let it take the place of the file when the block ends, in one rename. The
        name of the temporary ends with the token of its writer (see `sweep`)."""
        self._check_own()
        target = self.path / name
        named = os.fsdecode(os.fsencode(target.name)[:LONGEST_NAME])
        temporary = Temporary(self.make(".tmp") / f"{named}.{secrets.token_hex(4)}.{self.locks.token}")
        self.make(str(Path(name).parent))
        try:
            with temporary.path.open("xb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
                temporary.descriptor = file.fileno()
                yield temporary
                temporary.stamp = stamp_of(os.fstat(file.fileno()))
            self._make_room(target)
            temporary.path.replace(target)
        except BaseException:
            if not temporary.stays:
                temporary.path.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._make_room(self.path / name)
            (self.path / name).unlink(missing_ok=True)

    def move(self, name: str, target: str) -> None:
        self._check_own()
        (self.path / name).rename(self.path / target)

    def copy(self, name: str, target: str) -> None:
        try:
            os.link(self.path / name, self.path / target)
        except OSError:  # some disks have no hard links, and refuse them in various ways
            with open_file(self.path / name) as file:
                data = file.read()
            with self.replacing(target, data):
                if os.path.lexists(self.path / target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path / target)) from None
        else:
            sync_folder((self.path / target).parent)

    def exists(self, name: str) -> bool:
        return found_at(self.path / name) is not None

    def size(self, name: str) -> int | None:
        found = found_at(self.path / name)
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None

    def names(self, folder: str) -> list[str]:
        return [file.name for file in self.files(folder)]

    def refresh(self, folder: str, again: Collection[str] = (), *, locked: bool = False) -> None:
        pass

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        return [do(item) for item in items]

    def among(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        return names

    def files(self, folder: str) -> list[Path]:
        place = self.path / folder
        try:
            return sorted(place / name for name in os.listdir(place) if name[0] != ".")  # noqa: PTH208 - it says if it may not
        except (FileNotFoundError, NotADirectoryError):
            if os.path.lexists(place) and not place.is_dir():  # one that others have made meanwhile was empty
                self.note(f"{self.shown(folder)} is not a folder: nothing is read from it")
            return []

    def place_aside(self, name: str, taken: Collection[str] = ()) -> str:
        """
        Args:
            taken: names that cannot be had, besides those in the folder.
        """
        used = {*os.listdir(self.make("set-aside")), *taken}  # noqa: PTH208 - with broken links
        return f"set-aside/{next(n for n in chain([name], (f'{name}.{i}' for i in count(1))) if n not in used)}"

    def _check_own(self) -> None:
        """A store that comes from elsewhere may hold a link where a folder belongs. What that leads to is not the store's to
        change.

        Raises:
            StoreError: there is one.
        """
        for name in CHANGED:
            if (self.path / name).is_symlink():
                raise StoreError(
                    f"{printable(self.shown(name))} is a link: files in it may be moved or removed, so it has to be a folder "
                    "of the store: put what it leads to in its place; or move the whole store there, and make a link to that"
                )

    def _check_disk(self) -> None:
        """
        Raises:
            StoreError: a folder of the store is on another disk, or mounted by itself.
        """
        for name in FOLDERS:
            if (self.path / name).is_dir() and is_apart(self.path, self.path / name):
                told = f"{printable(self.shown(name))} is on another disk than the store, or mounted by itself"
                raise StoreError(f"{told}: {ONE_DISK}")

    def _make_room(self, target: Path) -> None:
        """Move a folder that is where a file belongs to `set-aside/`, and say so."""
        if target.is_dir() and not target.is_symlink():
            target.rename(self.path / (aside := self.place_aside(target.name)))
            name = target.relative_to(self.path).as_posix()
            self.note(f"set aside {self.shown(name)}: it is a folder, where a file belongs; it is now {self.shown(aside)}")

    def publish(self, folder: str, files: Iterable[Path]) -> list[str]:
        return [str(file) for _, file in files_among(files)]

    def take(self, names: Sequence[str]) -> set[str]:
        return {name for name in names if self.locks.take("run", name)}

    def free(self, name: str) -> None:
        self.locks.free("run", name)

    def sweep(self, settling: float = 0.0) -> None:
        """
        Args:
            settling: seconds for which temporaries stay in any case.
        """
        self._check_own()
        self._check_disk()
        with contextlib.suppress(FileNotFoundError):
            for temporary in (self.path / ".tmp").iterdir():
                if temporary.is_dir() and not temporary.is_symlink():  # it is no temporary
                    continue
                if settling and time.time() - temporary.lstat().st_ctime < settling:
                    continue
                token = temporary.name.rpartition(".")[2]
                if self.locks.take("launch", token):
                    temporary.unlink(missing_ok=True)
                    self.locks.free("launch", token)

    def seal(self, why: str) -> None:
        self._sealed = why

    def needs_writing(self, action: str) -> None:
        if self._sealed:
            raise StoreError(f"cannot {action} {self.location}: it was {self._sealed}")

    @contextlib.contextmanager
    def in_words(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            only_reads = bool(self._sealed) or action.startswith(("read ", "look for "))
            raise disk_error(error, action, self.path, str(self.location), only_reads) from error

    def shown(self, name: str) -> str:
        return f"{self.location}/{name}"

    def note(self, text: str) -> None:
        if (line := printable(text)) not in self.notices:
            self.notices.append(line)

    def hasten(self) -> None:
        pass

    def close(self) -> None:
        if self._locks is not None:
            self._locks.close()
            self._locks = None


def disk_error(error: OSError, action: str, path: Path, place: str, only_reads: bool = False, advice: str = "") -> StoreError:
    """What a disk refused, in words.

    Args:
        path: the folder that was worked in; `place` is what users call it.
        only_reads: nothing was to be written.
        advice: what helps, where the usual advice does not.
    """
    intact = "everything saved before is intact"
    again = f"run the same command again; {intact}"
    hint = {
        **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some space and {again}"),
        errno.EROFS: f"make the disk writable and {again}",
        **dict.fromkeys((errno.EACCES, errno.EPERM), f"allow writing there, or ask its owner to, and {again}"),
        **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "choose a folder"),
        errno.ENOENT: MOVED,
        errno.EFBIG: f"allow larger files (ulimit -f unlimited) and {again}",
        **dict.fromkeys((errno.EMFILE, errno.ENFILE), f"allow more open files (ulimit -n) and {again}"),
        **dict.fromkeys((errno.EIO, errno.ESTALE, errno.ENOTCONN), f"see that the disk works, and {again}"),
        errno.ENOMEM: f"free some memory and {again}",
        errno.EBUSY: again,
        errno.EXDEV: f"one of its folders is on another disk, and {ONE_DISK}",
        **dict.fromkeys(
            (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
            "file locks do not work there, and a store needs them: choose a folder on another disk",
        ),
    }.get(error.errno or 0, intact)
    refused = error.errno in (errno.EACCES, errno.EPERM)
    if action == OPENING and (refused or error.errno == errno.EROFS):
        hint = "choose a folder you can write to"
    why, parents = str(error.strerror or error), Path(str(error.filename)).parents
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR) and path in parents:
        why = f"{why}: {printable(str(error.filename))}"
        hint = "move away what is in its place, or choose another folder"
    elif error.errno == errno.EACCES and path / "runs" in parents:
        why, hint = f"{why}: {printable(str(error.filename))}", "make that file readable; its rows may be needed"
    elif refused and only_reads:
        why = f"{why}: {printable(str(error.filename))}" if path in parents else why
        hint = "make it readable, or ask its owner to"
    return StoreError(f"cannot {action} in {place}: {why}; {advice or hint}")


def files_among(given: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """The files among these and in the folders among these, each after its name there."""
    for place in given:
        for file in filter(Path.is_file, sorted(place.rglob("*")) if place.is_dir() else [place]):
            yield file.relative_to(place if place.is_dir() else place.parent).as_posix(), file


def found_at(path: Path) -> os.stat_result | None:
    """What is there; None if nothing is. From Python 3.14 on `Path.exists`, `is_dir` and `is_file` say no of what cannot be
    looked at, too.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        return path.stat()
    except ValueError:  # no path has such letters
        return None
    except OSError as error:
        if error.errno in NOTHING:
            return None
        raise


def is_folder(path: Path) -> bool:
    """
    Raises:
        OSError: it cannot be looked at.
    """
    return (found := found_at(path)) is not None and stat.S_ISDIR(found.st_mode)


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading. It never waits, as for somebody to write to a FIFO.

    Raises:
        OSError: among others if it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def in_memory(path: Path) -> Iterator[None]:
    """For a block that reads a file.

    Raises:
        UnreadableError: there is not enough memory for it.
    """
    try:
        yield
    except MemoryError as error:
        raise UnreadableError(f"cannot read {path}: it is too large for this machine's memory") from error


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_apart(path: Path, folder: Path) -> bool:
    """Whether no file of the folder `path` can be renamed into another one. Where both are of one disk and different mounts,
    the system refuses that before it looks for the file."""
    if path.stat().st_dev != folder.stat().st_dev:
        return True
    nothing = f".{secrets.token_hex(8)}"
    try:
        (path / nothing).rename(folder / nothing)
    except OSError as error:
        return error.errno == errno.EXDEV
    return False


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the disk can do this for no folder
            raise
    finally:
        os.close(descriptor)
