"""A folder for what one launch needs only while it runs: files, sockets and logs of its Ray, those of Tune, the cache of torch.

Ray opens its folders to every user of a machine. So they lie within one that only its owner may enter. It goes when the launch
ends; that of a launch that was killed goes when the same user starts the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import FULL_DISK, UserError, printable

PREFIX = "sweep-tmp-"
_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
PARTS = ("ray", "ry2", "tune", "torch")
"""The folders within. Nothing else is ever removed."""
OF_RAY = "RAY_TMPDIR"
"""The variable that names the place of Ray's files, which comes before TMPDIR."""
TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""The variable that names the folder that torch makes for code it compiles, though none is, and leaves behind."""
SOCKET_PATH = 103
"""The longest path that a socket may have, in bytes (Linux allows four more)."""
RAY_ADDS = len("/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store.1")
REMOVAL_SECONDS = 2.0

_open: dict[Path, int] = {}
"""The folders of this process, with the locks that tell others so."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new folder for the time of the block, which no other user can enter. Ray's sockets fit below `ray`, if they fit
    anywhere (see `fits`). The cache of torch is in it, unless the user names another place.

    Raises:
        UserError: it cannot be made.
    """
    places = _places()
    for place in places:
        _sweep(place)
    place = next((p for p in places if fits(p / f"{PREFIX}12345678")), places[0])
    try:
        folder = _make(place)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise UserError(no_room(str(place))) from None
        raise UserError(f"no folder can be made in {place} ({error.strerror}): set {_names(place)} to another one") from None
    given = os.environ.get(TORCH_CACHE)
    if given is None:
        os.environ[TORCH_CACHE] = str(folder / "torch")
    try:
        yield folder
    finally:
        if given is None:
            os.environ.pop(TORCH_CACHE, None)
        remove(folder)


def fits(folder: Path) -> bool:
    """Whether Ray can have its sockets in the part `ray` of this folder: their paths must be short, and in ASCII."""
    return os.fspath(folder).isascii() and len(os.fsencode(folder / "ray")) + RAY_ADDS <= SOCKET_PATH


def remove(folder: Path) -> None:
    """Remove the folder. Processes of Ray that are just ending may still put files into it, so it is tried again."""
    lock = _open.pop(folder, None)
    end = time.monotonic() + REMOVAL_SECONDS
    while not _removed(folder) and time.monotonic() < end:
        time.sleep(0.05)
    if lock is not None:
        os.close(lock)


def remove_all() -> None:
    """For a process that is about to end without leaving its blocks."""
    for folder in list(_open):
        remove(folder)


def no_room(place: str) -> str:
    """What to do about a full disk of temporary files."""
    where = f"set {_names(Path(place))} to a folder elsewhere"
    return f"the disk of temporary files is full ({printable(place)}): make room there, or {where}"


def unfit(place: Path) -> str:
    """What to do if Ray's sockets fit nowhere: not into a folder in this place either."""
    if not os.fspath(place).isascii():
        told = f"{printable(str(place))} has letters in its path that Ray cannot take"
        return f"{told}: set {_names(place)} to a folder with letters of ASCII alone in its path"
    most = SOCKET_PATH - RAY_ADDS - len(f"/{PREFIX}12345678/ray")
    told = f"{printable(str(place))} has too long a path for the sockets of Ray"
    return f"{told}: set {_names(place)} to a folder whose path has at most {most} characters"


def _names(place: Path) -> str:
    """The variable that names the place of the folder, or of a file in it."""
    chosen = os.environ.get(OF_RAY)
    return OF_RAY if chosen and place.is_relative_to(Path(chosen).absolute()) else "TMPDIR"


def _places() -> list[Path]:
    """Where the folder may be: Ray's own choice of the user, the temporary folder, and one whose path is short.

    Raises:
        UserError: none of them can be written.
    """
    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:  # Python has tried to write to several
        usual = None
    given = [os.environ.get(OF_RAY), usual, "/tmp"]
    places = [Path(place).absolute() for place in dict.fromkeys(filter(None, given)) if os.access(place, os.W_OK | os.X_OK)]
    if not places:
        raise UserError("no folder for temporary files can be written: set TMPDIR to one that can")
    return places


def _make(place: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # another launch took it for one of a killed launch
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another launch does, and is removing it
            os.close(lock)
            continue
        except OSError:  # no locks in this file system: then nobody sweeps there either
            pass
        if folder.exists():
            _open[folder] = lock
            return folder
        os.close(lock)


def _sweep(place: Path) -> None:
    """Remove the folders there of this user whose launches have ended: the kernel has freed their locks."""
    for folder in place.glob(f"{PREFIX}*"):
        if not _NAME.fullmatch(folder.name):
            continue
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(lock)
                private = stat.S_IMODE(about.st_mode) == 0o700
                # a dying process of Ray may have made it anew, with another mode
                if about.st_uid == os.getuid() and (private or any((folder / part).is_dir() for part in PARTS)):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _removed(folder)
            finally:
                os.close(lock)


def _removed(folder: Path) -> bool:
    for part in PARTS:
        shutil.rmtree(folder / part, ignore_errors=True)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
