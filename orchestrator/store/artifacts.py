"""The files of a store that belong to one run each, its weights and its checkpoint, and how any file of a store is written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from orchestrator.errors import printable
from orchestrator.store.leases import Lease
from orchestrator.store.locks import StoreLocks
from orchestrator.store.remote import URI, Remote, RemoteError, Tell, tell_on_stderr

PACK_SIZES = "pack-sizes.json"
LARGEST_PACK = 4096
"""No measurement of a pack size gets so far."""

SETTLING_SECONDS = 120.0
"""When an upload that was cut short is sure to have taken effect, or never to."""

Stamp = tuple[int, int, int]
"""Inode, size and modification time: a file that was replaced has another."""


class StoreError(Exception):
    """The store cannot be used as asked. The message is one line for a user.

    `may_pass`: nothing is wrong with what was asked; a bucket did not answer.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class UnreadableError(StoreError):
    """One file of the store cannot be read; the others may be."""


class Artifacts:
    """The files of a store, one per run, beside its rows. Cheap to make: nothing is read, and nothing created before a save.

    The store is a folder, or a place in a bucket, `s3://BUCKET/PATH` or `gs://BUCKET/PATH`. `location` is either, as a user
    knows it; `path` is the folder, or one of this machine that mirrors the bucket, and may go while no launch is at work.

    Every save is atomic and durable: a reader sees the old file or the new one, whole, and what `save_*` returned
    from survives a crash, with a bucket also the loss of this machine. Two processes may save the same key; the later one wins.

    A bucket that does not answer is waited for, for some minutes (see `Remote`).

    Args:
        tell: is given a line when such a wait gets long, and one when it is over.

    Raises:
        StoreError: the place cannot be written, or the disk is full; the former file is intact.
    """

    def __init__(self, path: str | Path, tell: Tell = tell_on_stderr) -> None:
        self.location: str | Path = Path(path)
        self._remote: Remote | None = None
        self._lease_or_none: Lease | None = None
        self._locks_or_none: StoreLocks | None = None
        self.notices: list[str] = []
        """What was found that does not belong there, a line each."""
        self._no_checkpoint: set[str] = set()
        """Runs that were looked up in the bucket, and had none."""
        if URI.match(str(path)):
            self.location = str(path)
            with self._in_words("open the store"):
                self._remote = Remote(str(path), tell)
            self.location = self._remote.uri
        elif "://" in str(path):
            raise StoreError(f"the store must be a folder, s3://BUCKET/PATH or gs://BUCKET/PATH, not {path}")
        self.path = Path(path) if self._remote is None else self._remote.mirror
        self._runs = self.path / "runs"

    def weights_path(self, key: str) -> Path:
        """Where the weights of a run are, if it kept any; those in a bucket are fetched."""
        place = self._weights_place(key)
        if self._remote is not None:
            with self._in_words(f"read the weights of run {key}"):
                self._remote.fetch(self._name(place), self._locks.token)
        return place

    def load_weights(self, key: str) -> bytes:
        """
        Raises:
            FileNotFoundError: it kept none.
            UnreadableError: they cannot be read.
        """
        place = self._weights_place(key)
        with self._in_words(f"read the weights of run {key}"):
            data = self._load(place)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.location}/weights/{place.name}")
        return data

    def with_weights(self) -> set[str]:
        """The keys of the runs whose weights are kept."""
        return self._keys_in("weights")

    def with_checkpoints(self) -> set[str]:
        """The keys of the runs that have a checkpoint."""
        return self._keys_in("checkpoints")

    def _keys_in(self, folder: str) -> set[str]:
        with self._in_words(f"read the list of {folder}"):
            names = self._remote.list(folder) if self._remote is not None else [file.name for file in self._files_in(folder)]
        return {Path(name).stem for name in names}

    def _files_in(self, folder: str) -> list[Path]:
        """What is in a folder of the store; `notices` tell if it is none."""
        place = self.path / folder
        try:
            return sorted(place / name for name in os.listdir(place) if name[0] != ".")  # noqa: PTH208 - it says if it may not
        except (FileNotFoundError, NotADirectoryError):
            if os.path.lexists(place):
                self._note(f"{self.location}/{folder} is not a folder: nothing is read from it")
            return []

    def _weights_place(self, key: str) -> Path:
        return self.path / "weights" / f"{key}.safetensors"

    def checkpoint_path(self, key: str) -> Path:
        return self.path / "checkpoints" / f"{key}.pt"

    def save_weights(self, key: str, data: bytes) -> Path:
        place = self._weights_place(key)
        with self._in_words(f"save the weights of run {key}"):
            self._save(place, data)
        return place

    def save_checkpoint(self, key: str, data: bytes) -> None:
        with self._in_words(f"save the checkpoint of run {key}"):
            self._no_checkpoint.discard(key)
            self._save(self.checkpoint_path(key), data)

    def load_checkpoint(self, key: str) -> bytes | None:
        """The bytes saved last, or None if there is no checkpoint, or none that can be read, which `notices` then tell."""
        with self._in_words(f"read the checkpoint of run {key}"):
            try:
                data = self._load(self.checkpoint_path(key))
            except UnreadableError as error:
                self._note(f"{error}: the run starts from the beginning")
                return None
        if data is None:
            self._no_checkpoint.add(key)
        return data

    def drop_checkpoint(self, key: str) -> None:
        with self._in_words(f"remove the checkpoint of run {key}"):
            if self._remote is None:
                self._make_room(self.checkpoint_path(key))
                self.checkpoint_path(key).unlink(missing_ok=True)
            elif key not in self._no_checkpoint:
                self._remote.delete([self._name(self.checkpoint_path(key))])
                self._no_checkpoint.add(key)

    def load_pack_sizes(self) -> dict[str, int]:
        """What was saved last; nothing if there is nothing, or a file that is damaged: sizes can be measured again."""
        try:
            saved = json.loads(self._load(self.path / PACK_SIZES) or b"{}")
        except (OSError, UnreadableError, ValueError, RecursionError):
            return {}
        known = saved.items() if isinstance(saved, dict) else ()
        return {shape: size for shape, size in known if type(size) is int and 1 <= size <= LARGEST_PACK}

    def save_pack_sizes(self, sizes: Mapping[str, int]) -> None:
        with self._in_words("save the pack sizes"):
            self._save(self.path / PACK_SIZES, json.dumps(dict(sizes), indent=1, sort_keys=True).encode())

    def publish(self, folder: str, files: Iterable[Path]) -> list[str]:
        """Copy files of this machine, and all that is in the folders among them, into a folder of the bucket. A store that is
        not in one leaves them where they are.

        Returns:
            Each file as a user finds it.
        """
        places = []
        with self._in_words("put figures and tables"):
            for given in files:
                for file in filter(Path.is_file, sorted(given.rglob("*")) if given.is_dir() else [given]):
                    if self._remote is None:
                        places.append(str(file))
                    else:
                        name = file.relative_to(given if given.is_dir() else given.parent).as_posix()
                        self._remote.put(f"{folder}/{name}", file.read_bytes())
                        places.append(f"{self.location}/{folder}/{name}")
        return places

    @property
    def waited(self) -> float:
        """Seconds for which the bucket has not answered, in all."""
        return 0.0 if self._remote is None else self._remote.waited

    def hasten(self) -> None:
        """Have no patience any more with a bucket that does not answer: who waits for it gives up within a second or two. For a
        launch that is to end, from any thread."""
        if self._remote is not None:
            self._remote.hasten()

    def close(self) -> None:
        """Free every lock and claim held through this object. Harmless when repeated."""
        self.hasten()
        if self._lease_or_none is not None:
            self._lease_or_none.close()
            self._lease_or_none = None
        if self._locks_or_none is not None:
            self._locks_or_none.close()
            self._locks_or_none = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _locks(self) -> StoreLocks:
        if self._locks_or_none is None:
            make_folder(self.path)
            self._locks_or_none = StoreLocks.open(self.path / ".lock")
        return self._locks_or_none

    @property
    def _lease(self) -> Lease:
        assert self._remote is not None
        if self._lease_or_none is None:
            self._lease_or_none = Lease(self._remote, self._locks.machine, self._locks.token)
        return self._lease_or_none

    def _take(self, name: str) -> bool:
        """Claim `name` among all processes, here and on other machines with the same bucket; False if another one has it."""
        if not self._locks.take("run", name):
            return False
        taken = False
        try:
            taken = self._remote is None or self._lease.take(name)
        finally:
            if not taken:
                self._locks.free("run", name)
        return taken

    def _free(self, name: str) -> None:
        if self._lease_or_none is not None:
            self._lease_or_none.free(name)
        self._locks.free("run", name)

    def _name(self, place: Path) -> str:
        """Of the object that a file of the mirror stands for."""
        return place.relative_to(self.path).as_posix()

    def _load(self, place: Path) -> bytes | None:
        """The contents of a file; from a bucket, as they are there now.

        Raises:
            UnreadableError: there is something, which cannot be read.
        """
        if self._remote is not None:
            return self._remote.get(self._name(place))
        try:
            with open_file(place) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"cannot read {place}: {error.strerror}") from error
        except MemoryError as error:
            raise UnreadableError(f"cannot read {place}: it is too large for this machine's memory") from error

    def _save(self, place: Path, data: bytes) -> None:
        """As `_write`, but of what is in a bucket nothing is kept here."""
        if self._remote is None:
            self._write(place, data)
        else:
            self._remote.put(self._name(place), data)

    def _write(self, target: Path, data: bytes) -> Stamp:
        """Make `target` hold `data`, atomically and durably. The temporary carries the token of its writer (see `_sweep`).

        The object in the bucket, if there is one, comes first, and the file gets its time, so that a pull finds them alike. The
        temporary stays if nobody can know what became of the object: nothing but `data` may be put there for a while. Files
        whose names begin with a dot are this machine's own.
        """
        temporary = self.path / ".tmp" / f"{target.name}.{secrets.token_hex(4)}.{self._locks.token}"
        make_folder(temporary.parent)
        make_folder(target.parent)
        known = True
        try:
            with temporary.open("xb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
                if self._remote is not None and target.name[0] != ".":
                    known = False
                    at_once = self._remote.put(self._name(target), data, lambda: self._may_put(target))
                    found = self._remote.find(self._name(target))
                    if found is not None:
                        os.utime(file.fileno(), ns=(found[1], found[1]))
                    if not at_once:
                        temporary.with_name(f"again-{temporary.name}").touch()
                stamp = stamp_of(os.fstat(file.fileno()))
            self._make_room(target)
            temporary.replace(target)
        except BaseException:
            if known:
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
        return stamp

    def _may_put(self, target: Path) -> bool:
        """Whether `target` is still this launch's to write, however long the bucket has not answered."""
        return True

    def _sweep(self) -> None:
        """Remove the temporaries of processes that are no more: those whose token nobody has locked."""
        with contextlib.suppress(FileNotFoundError):
            for temporary in (self.path / ".tmp").iterdir():
                token = temporary.name.rpartition(".")[2]
                if temporary.is_dir() and not temporary.is_symlink():  # it is no temporary
                    continue
                if self._remote is not None and time.time() - temporary.lstat().st_ctime < SETTLING_SECONDS:
                    continue
                if self._locks.take("launch", token):
                    temporary.unlink(missing_ok=True)
                    self._locks.free("launch", token)
        if self._remote is not None:
            self._lease.sweep(self._has_ended)

    def _has_ended(self, token: str) -> bool:
        ended = self._locks.take("launch", token)
        if ended:
            self._locks.free("launch", token)
        return ended

    def _make_room(self, target: Path) -> None:
        """Move a folder that is where a file belongs to `set-aside/`."""
        if target.is_dir() and not target.is_symlink():
            target.rename(self._place_aside(target.name))

    def _place_aside(self, name: str) -> Path:
        """Where in `set-aside/` there is room for something of this name."""
        aside = self.path / "set-aside"
        make_folder(aside)
        taken = set(os.listdir(aside))  # noqa: PTH208 - with broken links
        if self._remote is not None:
            taken.update(self._remote.list("set-aside"))
        return aside / next(n for n in chain([name], (f"{name}.{i}" for i in count(1))) if n not in taken)

    def _note(self, text: str) -> None:
        """Tell something in `notices`, once."""
        if (line := printable(text)) not in self.notices:
            self.notices.append(line)

    @contextlib.contextmanager
    def _in_words(self, action: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            if self._remote is None:
                raise
            raise StoreError(str(error).replace(str(self.path), str(self.location)), may_pass=error.may_pass) from error
        except RemoteError as error:
            raise StoreError(f"cannot {action} in {self.location}: {error}", may_pass=error.may_pass) from error
        except OSError as error:
            hint = {
                errno.ENOSPC: "free some space and run the same command again; everything saved before is intact",
                errno.EDQUOT: "free some space and run the same command again; everything saved before is intact",
                errno.EROFS: "choose a folder you can write to with --store",
                errno.EACCES: "choose a folder you can write to with --store",
                **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "choose a folder with --store"),
                errno.ENOENT: "the store was moved or removed while in use",
            }.get(error.errno or 0, "everything saved before is intact")
            place = self.location if self._remote is None else f"the copy of {self.location}, {self.path}"
            why = str(error.strerror or error)
            if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR) and self.path in Path(str(error.filename)).parents:
                what = printable(str(error.filename))
                why, hint = f"{why}: {what}", "move away what is in its place, or choose another folder with --store"
            elif error.errno == errno.EACCES and self._runs in Path(str(error.filename)).parents:
                why, hint = f"{why}: {printable(str(error.filename))}", "make that file readable; its rows may be needed"
            raise StoreError(f"cannot {action} in {place}: {why}; {hint}") from error


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


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


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
    finally:
        os.close(descriptor)
