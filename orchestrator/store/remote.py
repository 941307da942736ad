"""A store in a bucket, `s3://` or `gs://`: its objects, and this machine's copy of them.

One long file, as requests, what is tried again, and what errors mean are of one piece.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import hashlib
import itertools
import os
import posixpath
import random
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
from pyarrow import fs

from orchestrator.store.place import Item, Result, Tell, tell_on_stderr

URI = re.compile(r"(s3|gs|gcs):/+([^/?]+)(?:/([^?]*))?(\?.*)?$", re.DOTALL)
NOTHING_THERE = re.compile("Cannot move source .* the object does not exist|No such (file or )?directory", re.DOTALL)
"""What Arrow says by itself, with no number of an error, of an object or folder in Google's cloud that is not there."""
AT_ONCE = 16
"""Requests in parallel."""
WHOLE = 8 << 20
"""An object up to this size is put in one request."""
PIECE = 8 << 20
"""Of a larger one so much is given to Arrow at a time."""
PATIENCE = 300.0
"""For so many seconds a request that failed, but may pass, is tried again; then it is an error."""
BRIEF = 2.0
"""The same for what is done again anyway, and for everything once the launch is to end."""
FIRST_WAIT = 0.2
LONGEST_WAIT = 30.0
"""Waits double from the first to the longest one, and each is shortened by chance, so that launches do not ask in step."""
TELL_AFTER = 5.0
"""A wait that gets so long is told."""

LONGEST_NAME = 200
"""Bytes of the name of an object that is copied to this machine. Temporaries have longer ones; 255 is the most for a file."""

CACHE = "sweep-orchestrator"
"""The folder of the mirrors, among the caches of the user."""

Found = tuple[int, int]
"""Size and modification time (ns, of the server) of an object."""


class RemoteError(OSError):
    """The bucket could not be used. The message says why and what to do, in one line.

    `may_pass`: the same may work in a moment. `is_denial`: the server takes the user for one who may not do this.
    """

    def __init__(self, message: str, *, may_pass: bool = False, is_denial: bool = False) -> None:
        super().__init__(message)
        self.may_pass, self.is_denial = may_pass, is_denial


class LapsedError(RemoteError):
    """An upload was not tried again, as what allowed it had lapsed."""

    def __init__(self) -> None:
        super().__init__(
            "it did not answer for so long that this launch lost its claims; run the same command again", may_pass=True
        )


def location_of(uri: str) -> str | None:
    """The place in a bucket that a URI means, spelled in one way and without how it is reached; None if it means none."""
    if (found := URI.match(uri)) is None:
        return None
    scheme, bucket, prefix, _ = found.groups()
    return f"{'s3' if scheme == 's3' else 'gs'}://{'/'.join([bucket, *filter(None, (prefix or '').split('/'))])}"


def lies_at(given: str) -> PurePosixPath:
    """Where a store is that is given as a folder or a URI: two have one such path if they are one, however they are spelled."""
    if (found := URI.match(given)) is None or (name := location_of(given)) is None:
        return PurePosixPath(os.path.realpath(given))
    server = _endpoint(_options(found[4])) if name.startswith("s3:") else ""
    host = server.rpartition("://")[2].rstrip("/").lower()
    return PurePosixPath("" if host.endswith(".amazonaws.com") else host, name)


def _options(query: str | None) -> dict[str, str]:
    """How a place is reached, as the end of its URI says."""
    return {name: values[-1] for name, values in parse_qs((query or "")[1:]).items()}


def _endpoint(options: Mapping[str, str]) -> str:
    """The server that speaks S3, if it is not Amazon's."""
    environment = os.environ.get
    return options.get("endpoint_override") or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL") or ""


def wrong_with(uri: str) -> str | None:
    """Why a URI can mean no place in a bucket, and what to type instead, without any secret that it has; None if it can."""
    if (found := URI.match(uri)) is None:
        return "it is none of s3://BUCKET/PATH and gs://BUCKET/PATH"
    if odd := next((character for character in uri if not character.isprintable()), ""):
        return f"it has characters that cannot be printed, such as {odd!r}"
    scheme, bucket, prefix, _ = found.groups()
    if {"@", ":"}.intersection(bucket):
        s3 = "keys belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; another server in AWS_ENDPOINT_URL"
        how = s3 if scheme == "s3" else "log in with gcloud"
        return f"no name of a bucket has @ or :, so give {scheme}://BUCKET/PATH ({how})"
    steps = (prefix or "").split("/")
    if not {".", ".."}.isdisjoint(steps):
        meant = posixpath.normpath(f"/{prefix}").strip("/")
        return f"a path in a bucket has no steps . and .., so give {'/'.join(filter(None, (f'{scheme}://{bucket}', meant)))}"
    return None


class Remote:
    """The objects of a store in a bucket, by their names below its URI, and the folder of this machine that mirrors them.

    What a bucket has to guarantee, and those of Amazon and Google do: an object is replaced whole or not at all, and who reads
    or lists after that sees it. All methods may be called by several threads at once, and raise RemoteError.

    What fails but may pass, since the server is busy or away, is tried again for PATIENCE seconds, with growing waits.

    Args:
        tell: is given a line when a wait gets long, and one when it is over.
    """

    def __init__(self, uri: str, tell: Tell = tell_on_stderr) -> None:
        found, name = URI.match(uri), location_of(uri)
        assert found is not None, uri
        assert name is not None, uri
        _, self._bucket, _, query = found.groups()
        self.uri, self._is_s3, self._root = name, name.startswith("s3:"), name.partition("://")[2]
        self._endpoint = ""
        self.tell = tell
        self._pool, self._for_lease = (ThreadPoolExecutor(AT_ONCE, name) for name in ("store", "store lease"))
        self._putting = ThreadPoolExecutor(2 * AT_ONCE, "store uploads")  # a lease is renewed also while all of `_pool` puts
        self._guard, self._of_thread = threading.Lock(), threading.local()
        self._hastened = threading.Event()
        self._has_answered = False
        self._away_since: float | None = None
        """When the first request was made of those that failed since something succeeded."""
        self._failed_at = 0.0
        self._told_since: float | None = None
        """Since when the bucket has not answered, if that was told."""
        self.waited = 0.0
        """Seconds for which it has not, in all."""
        with self._in_words():
            if self._is_s3:
                self._connect(_options(query))
            else:
                self._reading = self._small = self._large = fs.GcsFileSystem(retry_time_limit=timedelta(seconds=15))
        self.mirror = _cache() / f"{self._bucket}-{hashlib.sha256(f'{self._endpoint} {self.uri}'.encode()).hexdigest()[:16]}"

    def _connect(self, options: Mapping[str, str]) -> None:
        environment = os.environ.get
        region = options.get("region") or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
        self._endpoint = _endpoint(options)
        if not region and not self._endpoint:
            region = self._patiently(lambda: fs.resolve_s3_region(self._bucket))[0]
        common: dict[str, Any] = {"region": region, "connect_timeout": 5}
        if self._endpoint:
            common |= {"endpoint_override": self._endpoint, "scheme": options.get("scheme", "https")}
        # One attempt: `_patiently` repeats. Whether an upload had to be repeated decides what may be written next (see `put`).
        common["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=1)
        # Arrow lists, and puts pieces, in threads of its own. With one for each request a lease never waits for large uploads.
        pa.set_io_thread_count(max(pa.io_thread_count(), 4 * AT_ONCE))
        self._small = fs.S3FileSystem(**common, allow_delayed_open=True, background_writes=False)
        self._reading = self._large = fs.S3FileSystem(**common)

    def hasten(self) -> None:
        """From now on wait no longer than BRIEF, in all threads."""
        self._hastened.set()

    @contextlib.contextmanager
    def briefly(self) -> Iterator[None]:
        """In this block, and thread, wait no longer than BRIEF, and tell nothing."""
        self._of_thread.brief = True
        try:
            yield
        finally:
            self._of_thread.brief = False

    def _patiently(self, attempt: Callable[[], Result], may: Callable[[], bool] = lambda: True) -> tuple[Result, bool]:
        """What `attempt` gives, and whether the first one succeeded. It is repeated as long as it fails with what may pass.

        Args:
            may: asked before each attempt.

        Raises:
            LapsedError: `may` said no.
        """
        began, brief, was_denied = time.monotonic(), getattr(self._of_thread, "brief", False), False
        for number in itertools.count():
            if not may():
                raise LapsedError
            try:
                with self._in_words():
                    result = attempt()
            except RemoteError as error:
                if error.is_denial and self._is_s3 and not was_denied:
                    was_denied = True  # if the clock of this machine is wrong, Amazon's SDK now knows that of the server
                    continue
                if not error.may_pass:
                    raise
                wait = min(FIRST_WAIT * 2**number, LONGEST_WAIT) * random.uniform(0.5, 1.0)
                left = self._left(began, brief)
                if left <= 0:
                    waited = f"after waiting {time.monotonic() - began:.0f} s for it"
                    raise RemoteError(
                        f"{error}; {waited}, the study gives up: run the same command again", may_pass=True
                    ) from error
                if not brief and time.monotonic() + wait > began + TELL_AFTER:
                    self._tell_of(error, began)
                if self._hastened.wait(min(wait, left)):
                    time.sleep(min(wait, left, FIRST_WAIT))
            else:
                self._succeeded(brief)
                return result, number == 0
        raise AssertionError

    def _left(self, began: float, brief: bool) -> float:
        """For how long a request that has just failed may yet be repeated. Those that come one after the other while nothing
        succeeds share what there is."""
        now = time.monotonic()
        with self._guard:
            if not brief:
                if self._away_since is None or now - self._failed_at > 2 * LONGEST_WAIT:  # nobody has asked for a while
                    self._away_since = began
                self._failed_at = now
            since = began if self._away_since is None else min(began, self._away_since)
        return since + (BRIEF if brief or self._hastened.is_set() else PATIENCE) - now

    def _tell_of(self, error: RemoteError, began: float) -> None:
        with self._guard:
            told, self._told_since = self._told_since, began if self._told_since is None else self._told_since
        if told is None:
            self.tell(f"the store {self.uri} is not available; waiting for it, up to {PATIENCE / 60:g} min ({error})")

    def _succeeded(self, brief: bool) -> None:
        self._has_answered = True
        with self._guard:
            self._away_since = None
            since = self._told_since
            if brief or since is None:
                return
            self._told_since = None
            self.waited += time.monotonic() - since
        self.tell(f"the store {self.uri} is available again, after {time.monotonic() - since:.0f} s")

    def check(self) -> None:
        """Raises RemoteError unless the bucket is there."""
        if not self._patiently(self._is_there)[0]:
            raise self._explained("NO_SUCH_BUCKET")

    def _is_there(self) -> bool:
        """Google has a right to look at the bucket itself, which who may use its objects need not have. So a folder is listed
        there: the server says NOT_FOUND if there is no bucket, and Arrow in words of its own that the folder is empty. The
        client that asks does not try again for long by itself, so that mistakes are told soon."""
        if self._is_s3:
            return bool(self._reading.get_file_info(self._bucket).type != fs.FileType.NotFound)
        try:
            with self._in_words():
                asking = fs.GcsFileSystem(retry_time_limit=timedelta(seconds=1))
                asking.get_file_info(fs.FileSelector(f"{self._root}/launches"))
        except FileNotFoundError as error:
            return "Status(NOT_FOUND" not in str(error)
        return True

    def put(self, name: str, data: bytes, may: Callable[[], bool] = lambda: True) -> bool:
        """Make the object hold `data`; a reader sees the former one or this one, whole.

        After an attempt that failed nobody knows whether it will yet take effect: so all attempts put the same, and nothing
        else may be put under this name for a while.

        Args:
            may: asked before each attempt.

        Returns:
            Whether the first attempt succeeded.

        Raises:
            LapsedError: `may` said no; an attempt before may take effect.
        """
        began = time.monotonic()
        # In a thread, where no Ctrl-C comes between the opening and the writing.
        path = f"{self._root}/{name}"
        try:
            _, at_once = self._patiently(lambda: self._putting.submit(self._put_once, path, data).result(), may)
        except FileNotFoundError as error:
            raise self._explained("NO_SUCH_BUCKET") from error
        return at_once and (self._is_s3 or time.monotonic() - began < 1)  # Google's client tries again by itself

    def _put_once(self, path: str, data: bytes) -> None:
        """Arrow completes an upload also when its stream is destroyed, and `with` does after an exception: what was written up
        to then replaces the object, unless a piece has failed that was put in the background. So nothing but such a piece may
        fail before all is written, and the stream is gone before anything is raised.

        A stream that is opened late puts an *empty* object if the first request of an upload in several pieces fails; one
        that is opened at once does not come into being then. If a piece fails, both give up.
        """
        in_pieces = self._is_s3 and len(data) > WHOLE
        stream = (self._large if in_pieces else self._small).open_output_stream(path)
        try:
            for start in range(0, len(data), PIECE) if in_pieces else ():
                stream.write(data[start : start + PIECE])
                stream.flush()  # an upload takes one of Arrow's threads
            if not in_pieces:
                stream.write(data)
            stream.close()
        finally:
            del stream

    def get(self, name: str) -> bytes | None:
        """The contents of an object; None if there is none."""
        return self._patiently(lambda: self._get_once(f"{self._root}/{name}"))[0]

    def _get_once(self, path: str) -> bytes | None:
        """Arrow fills up an answer that is too short. So contents are believed if their MD5 is the ETag; where that is another
        thing, as of objects put in pieces or encrypted with a key of one's own, if they are the same in other pieces."""
        with contextlib.suppress(FileNotFoundError), self._in_words(), self._reading.open_input_file(path) as file:
            size, about = file.size(), file.metadata() or {}
            data, third = _read(file, [size], b"\x00"), size // 3
            if (
                data is not None
                and self._is_s3
                and about.get("ETag") != f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'.encode()
                and data != _read(file, [third, size - third], b"\xff")
            ):
                data = None
            if data is not None:
                return data
            raise RemoteError(f"what came of {path} was cut", may_pass=True)
        return None

    def find(self, name: str) -> Found | None:
        found, _ = self._patiently(lambda: self._reading.get_file_info(f"{self._root}/{name}"))
        return (found.size, found.mtime_ns) if found.type == fs.FileType.File else None

    def list(self, folder: str, *, deep: bool = False) -> dict[str, Found]:
        """The objects in a folder, by their names in it."""
        top = f"{self._root}/{folder}"
        selected = fs.FileSelector(top, allow_not_found=True, recursive=deep)
        found, _ = self._patiently(lambda: self._reading.get_file_info(selected))
        return {f.path[len(top) + 1 :]: (f.size, f.mtime_ns) for f in found if f.type == fs.FileType.File}

    def delete(self, names: Iterable[str]) -> bool:
        """Remove the objects; nothing happens where there is none.

        Returns:
            Whether the first attempts succeeded. Else one may yet take effect.
        """
        return all(at_once for _, at_once in self.soon(lambda name: self._gone(self._reading.delete_file, name), names))

    def delete_folder(self, folder: str) -> None:
        self._gone(self._reading.delete_dir, folder)

    def move(self, name: str, place: str) -> None:
        """Rename an object; nothing happens if another machine has just done it."""
        self._gone(lambda path: self._reading.move(path, f"{self._root}/{place}"), name)

    def _gone(self, remove: Callable[[str], object], name: str) -> tuple[None, bool]:
        def attempt() -> None:
            with contextlib.suppress(FileNotFoundError), self._in_words():
                remove(f"{self._root}/{name}")

        return self._patiently(attempt)

    def pull(self, folder: str, token: str, again: Collection[str] = ()) -> builtins.list[str]:
        """Make the folder of the mirror as that of the bucket is: fetch what is new or has another size or time, and what is
        named `again`; remove what is gone. The caller keeps everybody else from changing the mirror meanwhile.

        Args:
            token: of the temporaries.

        Returns:
            The objects that were left out, as no file can have their names.
        """
        there, place = self.list(folder), self.mirror / folder
        others = [name for name in there if not _is_name(name)]
        for name in others:
            del there[name]
        place.mkdir(parents=True, exist_ok=True)
        (self.mirror / ".tmp").mkdir(exist_ok=True)
        here: dict[str, Found] = {}
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif entry.name not in there:
                    Path(entry.path).unlink()
                else:
                    here[entry.name] = entry.stat().st_size, entry.stat().st_mtime_ns
        differing = [name for name, found in there.items() if here.get(name) != found or name in again]
        self.each(lambda name: self._fetch(f"{folder}/{name}", there[name][1], token), differing)
        return others

    def fetch(self, name: str, token: str) -> None:
        """Make one file of the mirror as the object is."""
        found, target = self.find(name), self.mirror / name
        here = target.stat() if target.exists() else None
        if found is None:
            target.unlink(missing_ok=True)
        elif here is None or (here.st_size, here.st_mtime_ns) != found:
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.mirror / ".tmp").mkdir(exist_ok=True)
            self._fetch(name, found[1], token)

    def _fetch(self, name: str, mtime: int, token: str) -> None:
        data, target = self.get(name), self.mirror / name
        if data is None:  # it went away just now
            target.unlink(missing_ok=True)
            return
        temporary = self.mirror / ".tmp" / f"fetched-{target.name}.{secrets.token_hex(4)}.{token}"
        temporary.write_bytes(data)
        os.utime(temporary, ns=(mtime, mtime))
        temporary.replace(target)

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> builtins.list[Result]:
        """What `do` gives for each of the items. Up to AT_ONCE are done at a time, as patiently as the caller is.

        What the first of them raises is raised here, once none is at work any more: no request takes effect after that.

        Args:
            do: does not call this method for several items: it could wait for itself.
        """
        return self._each(self._pool, do, items)

    def soon(self, do: Callable[[Item], Result], items: Iterable[Item]) -> builtins.list[Result]:
        """As `each`, for small requests which must not wait behind those of `each`, as the lease of a launch must not."""
        return self._each(self._for_lease, do, items)

    def _each(self, pool: ThreadPoolExecutor, do: Callable[[Item], Result], items: Iterable[Item]) -> builtins.list[Result]:
        items, brief = [*items], getattr(self._of_thread, "brief", False)
        if len(items) == 1:
            return [do(items[0])]

        def as_briefly(item: Item) -> Result:
            self._of_thread.brief = brief
            return do(item)

        work = [pool.submit(as_briefly, item) for item in items]
        try:
            return [done.result() for done in work]
        finally:
            wait([done for done in work if not done.cancel()])

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, RemoteError):
            raise
        except (OSError, pa.ArrowException) as error:
            said = " ".join(str(error).split())
            if "AWS Error NO_SUCH_KEY" in said or (not self._is_s3 and NOTHING_THERE.match(said)):
                raise FileNotFoundError(errno.ENOENT, said) from error
            raise self._explained(said, mistaken=isinstance(error, pa.ArrowInvalid)) from error

    def _explained(self, said: str, *, mistaken: bool = False) -> RemoteError:
        server = self._endpoint or ("Amazon S3" if self._is_s3 else "Google Cloud Storage")
        if "NO_SUCH_BUCKET" in said:
            return RemoteError(f"the bucket {self._bucket} does not exist: create it first, or choose another one")
        if "OAuth2" in said and re.search("CURL error|UNAVAILABLE", said):
            # Without a login the client looks for a server of tokens that only Google's own machines have.
            may_pass = self._has_answered or "CURL error" not in said
            return RemoteError(f"{server} does not answer: check the network, or log in with gcloud", may_pass=may_pass)
        denials = "ACCESS_DENIED|ACCESS_KEY|SIGNATURE|EXPIRED|CREDENTIAL|PERMISSION|UNAUTHENTICATED|HTTP status 40[13]|OAuth2"
        if re.search(denials, said):
            how = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE," if self._is_s3 else "log in with gcloud"
            who = "for an account that may read, write, list and delete in it"
            clock = "see also that the clock of this machine is right"
            return RemoteError(f"{server} denies access to {self._bucket}: {how} {who}; {clock}", is_denial=True)
        if re.search(r"HTTP status 30[17]|PERMANENT_REDIRECT", said):
            return RemoteError(f"the bucket {self._bucket} is in another region: set AWS_REGION to that region")
        if re.search(r"NETWORK_CONNECTION|CURL error|UNAVAILABLE", said):
            settings = ", AWS_ENDPOINT_URL and AWS_REGION" if self._is_s3 else ""
            unknown = re.search(r"curlCode: (3|6|60),|wrong version number", said)
            may_pass = self._has_answered or not unknown
            return RemoteError(f"{server} does not answer: check the network{settings}", may_pass=may_pass)
        refused = mistaken or re.search(r"HTTP status 4(?!08|09|29)\d\d", said)
        return RemoteError(f"{server} answers: {said[:300]}", may_pass=not refused)


def _is_name(name: str) -> bool:
    """Whether a file of the mirror can have this name."""
    return name not in ("", ".", "..") and not {"/", "\0"}.intersection(name) and len(os.fsencode(name)) <= LONGEST_NAME


def _cache() -> Path:
    """The folder for the mirrors. A user without a home has one among the temporary files, which nobody else may enter.

    Raises:
        RemoteError: there is another one in its place.
    """
    with contextlib.suppress(RuntimeError):  # no home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / CACHE
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"{CACHE}-{user}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
    except OSError as error:
        raise RemoteError(f"{folder} cannot be made ({error.strerror}): set XDG_CACHE_HOME to a folder of yours") from error
    if (stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode), about.st_uid) != (stat.S_IFDIR, 0o700, user):
        raise RemoteError(f"{folder} is no folder that you alone may enter: set XDG_CACHE_HOME to one that is")
    return folder


def _read(file: pa.NativeFile, sizes: list[int], fill: bytes) -> bytes | None:
    """The contents, read in pieces of these sizes; None if they end before. If an answer is too short and Arrow says nothing,
    there is `fill`: with another one in each reading, no two agree by what was in the memory before."""
    data, at = bytearray(fill * sum(sizes)), 0
    file.seek(0)
    with memoryview(data) as view:
        for size in sizes:
            if file.readinto(view[at : at + size]) != size:
                return None
            at += size
    return bytes(data)
