"""A place in a bucket, `s3://BUCKET/PATH` or `gs://BUCKET/PATH`, and the choice of the place that a path or URI means."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from orchestrator.store.folder import OPENING, Folder, disk_error, files_among
from orchestrator.store.leases import Lease
from orchestrator.store.locks import StoreLocks
from orchestrator.store.place import Item, Place, Result, Stamp, StoreError, Tell, tell_on_stderr
from orchestrator.store.remote import URI, Remote, RemoteError, wrong_with

BYTES_PER_GROWN_PART = 1 << 20
"""In a bucket, where every version of a part begins with the former one."""

SETTLING_SECONDS = 120.0
"""When an upload that was cut short is sure to have taken effect, or never to."""

OTHER_CACHE = "set XDG_CACHE_HOME to a folder that you can write to"
NO_COPY = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR), OTHER_CACHE),
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
        "file locks do not work there: set XDG_CACHE_HOME to a folder on another disk",
    ),
}
"""What helps if there can be no copy where it belongs: another place for it. The bucket stays the store."""


def place_of(path: str | Path, tell: Tell = tell_on_stderr) -> Place:
    """The place that a path or URI means.

    Args:
        tell: is given a line when a wait for a bucket, or for another process, gets long, and one when a bucket is back.

    Raises:
        StoreError: it means none.
    """
    check_place(path)
    return Bucket(str(path), tell) if URI.match(str(path)) else Folder(Path(path), tell=tell)


def check_place(path: str | Path) -> None:
    """
    Raises:
        StoreError: a path or URI means no place.
    """
    uri, places = str(path), "the store must be a folder, s3://BUCKET/PATH or gs://BUCKET/PATH"
    if URI.match(uri):
        if (why := wrong_with(uri)) is not None:
            raise StoreError(f"{places}: {why}")
    elif "://" in uri:
        given = "one with @ in it" if "@" in uri else uri  # perhaps after a password
        raise StoreError(f"{places}, not {given}")


class Bucket:
    """A place in a bucket, worked on in a folder of this machine that mirrors it. See `Place`.

    `path`, the mirror, has the files that were written, fetched or refreshed; what is saved is in the bucket only. Within this
    machine the locks of the mirror decide, among machines the lease. A bucket that does not answer is waited for, for some
    minutes (see `Remote`).
    """

    bytes_per_part = BYTES_PER_GROWN_PART

    def __init__(self, uri: str, tell: Tell = tell_on_stderr) -> None:
        try:
            self.remote = Remote(uri, tell)
        except RemoteError as error:
            raise _in_words(error, OPENING, uri) from error
        self.location, self.path = self.remote.uri, self.remote.mirror
        self._mirror = Folder(self.path, self.location, tell)
        self.notices = self._mirror.notices
        self._lease: Lease | None = None
        self._absent: set[str] = set()
        """Names that were looked for, or removed, and are those of no object: they need not be removed."""

    @property
    def locks(self) -> StoreLocks:
        return self._mirror.locks

    @property
    def lease(self) -> Lease:
        """What this launch has claimed among machines."""
        if self._lease is None:
            self._lease = Lease(self.remote, self.locks.machine, self.locks.token)
        return self._lease

    @property
    def waited(self) -> float:
        return self.remote.waited

    def make(self, folder: str) -> Path:
        return self._mirror.make(folder)

    def check(self) -> None:
        self.remote.check()

    def load(self, name: str) -> bytes | None:
        self._absent.discard(name)
        data = self.remote.get(name)
        if data is None:
            self._absent.add(name)
        return data

    def fetch(self, name: str) -> Path:
        self.remote.fetch(name, self.locks.token)
        return self.path / name

    def save(self, name: str, data: bytes) -> None:
        self.needs_writing(f"save {Path(name).name} in")
        self._absent.discard(name)
        self.remote.put(name, data)

    def write(self, name: str, data: bytes, may: Callable[[], bool] = lambda: True) -> Stamp:
        """The object comes first, and the file gets its time, so that a refresh finds them alike. The temporary stays if nobody
        can know what became of the object: nothing but `data` may be put there for a while.

        Args:
            may: says before each attempt to put the object whether the name is still this launch's to write, however long the
                bucket has not answered.

        Raises:
            LapsedError: `may` said no; an attempt before may take effect.
        """
        self.needs_writing(f"save {Path(name).name} in")
        with self._mirror.replacing(name, data) as temporary:
            if Path(name).name[0] != ".":
                self._absent.discard(name)
                temporary.stays = True
                at_once = self.remote.put(name, data, may)
                found = self.remote.find(name)
                if found is not None:
                    os.utime(temporary.descriptor, ns=(found[1], found[1]))
                if not at_once:
                    temporary.path.with_name(f"again-{temporary.path.name}").touch()
        return temporary.stamp

    def delete(self, names: Iterable[str]) -> None:
        there = [name for name in names if name not in self._absent]
        self.remote.delete(there)
        self._absent.update(there)
        self._mirror.delete(there)

    def move(self, name: str, target: str) -> None:
        self.remote.move(name, target)
        self._mirror.move(name, target)

    def copy(self, name: str, target: str) -> None:
        self.remote.put(target, (self.path / name).read_bytes())
        self._mirror.copy(name, target)

    def exists(self, name: str) -> bool:
        return self.remote.find(name) is not None

    def size(self, name: str) -> int | None:
        self._absent.discard(name)
        found = self.remote.find(name)
        if found is None:
            self._absent.add(name)
            return None
        return found[0]

    def names(self, folder: str) -> list[str]:
        return [name for name in self.remote.list(folder) if name[0] != "."]

    def refresh(self, folder: str, again: Collection[str] = (), *, locked: bool = False) -> None:
        with contextlib.nullcontext() if locked else self.locks.appending():
            for name in self.remote.pull(folder, self.locks.token, again):
                self.note(f"left out {self.shown(f'{folder}/{name}')}: no file of this store has such a name, or one so long")

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        return self.remote.each(do, items)

    def among(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        if len(names) < 2:  # to load it asks for no more
            return names
        there = self.remote.list(folder)
        self._absent.update(f"{folder}/{name}" for name in names if name not in there)
        return [name for name in names if name in there]

    def files(self, folder: str) -> list[Path]:
        return self._mirror.files(folder)

    def place_aside(self, name: str) -> str:
        return self._mirror.place_aside(name, self.remote.list("set-aside"))

    def publish(self, folder: str, files: Iterable[Path]) -> list[str]:
        shown = []
        for name, file in files_among(files):
            self.remote.put(f"{folder}/{name}", file.read_bytes())
            shown.append(self.shown(f"{folder}/{name}"))
        return shown

    def take(self, names: Sequence[str]) -> set[str]:
        here, taken = self._mirror.take(names), set[str]()
        try:
            if here:
                taken = self.lease.take(here)
        finally:
            for name in here - taken:
                self._mirror.free(name)
        return taken

    def free(self, name: str) -> None:
        if self._lease is not None:
            self._lease.free(name)
        self._mirror.free(name)

    def sweep(self) -> None:
        self._mirror.sweep(SETTLING_SECONDS)
        self.lease.sweep(self._has_ended)

    def _has_ended(self, token: str) -> bool:
        ended = self.locks.take("launch", token)
        if ended:
            self.locks.free("launch", token)
        return ended

    def seal(self, why: str) -> None:
        self._mirror.seal(why)

    def needs_writing(self, action: str) -> None:
        self._mirror.needs_writing(action)

    @contextlib.contextmanager
    def in_words(self, action: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise StoreError(str(error).replace(str(self.path), self.location), may_pass=error.may_pass) from error
        except RemoteError as error:
            raise _in_words(error, action, self.location) from error
        except OSError as error:
            never_was = error.errno == errno.ENOENT and action == OPENING
            advice = OTHER_CACHE if never_was else NO_COPY.get(error.errno or 0, "")
            raise disk_error(error, action, self.path, f"the copy of {self.location}, {self.path}", advice=advice) from error

    def shown(self, name: str) -> str:
        return self._mirror.shown(name)

    def note(self, text: str) -> None:
        self._mirror.note(text)

    def hasten(self) -> None:
        self.remote.hasten()

    def close(self) -> None:
        self.hasten()
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        self._mirror.close()


def _in_words(error: RemoteError, action: str, location: str) -> StoreError:
    return StoreError(f"cannot {action} in {location}: {error}", may_pass=error.may_pass)
