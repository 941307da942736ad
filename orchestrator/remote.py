"""A store in a bucket, `s3://` or `gs://`: its objects, and this machine's copy of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

URI = re.compile(r"(s3|gs|gcs):/+([^/?]+)(?:/([^?]*))?(\?.*)?$")
AT_ONCE = 16
"""Requests in parallel."""
WHOLE = 8 << 20
"""An object up to this size is put in one request."""
PATIENCE = (0.5, 2.0, 5.0)
"""Waits before an upload that failed is tried again; after the last one it is an error."""

Found = tuple[int, int]
"""Size and modification time (ns, of the server) of an object."""


class RemoteError(OSError):
    """The bucket could not be used. The message says why and what to do, in one line.

    `may_pass`: the same may work in a moment.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class Remote:
    """The objects of a store in a bucket, by their names below its URI, and the folder of this machine that mirrors them.

    What a bucket has to guarantee, and those of Amazon and Google do: an object is replaced whole or not at all, and who reads
    or lists after that sees it. All methods may be called by several threads at once, and raise RemoteError.
    """

    def __init__(self, uri: str) -> None:
        found = URI.match(uri)
        assert found is not None, uri
        scheme, self._bucket, prefix, query = found.groups()
        self._is_s3 = scheme == "s3"
        self._root = "/".join([self._bucket, *filter(None, (prefix or "").split("/"))])
        self.uri = f"{'s3' if self._is_s3 else 'gs'}://{self._root}"
        self._endpoint = ""
        self._pool = ThreadPoolExecutor(AT_ONCE, "store")
        with self._in_words():
            if self._is_s3:
                self._connect({name: values[-1] for name, values in parse_qs((query or "")[1:]).items()})
            else:
                self._reading = self._small = self._large = fs.GcsFileSystem(retry_time_limit=timedelta(seconds=15))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweep-orchestrator"
        self.mirror = cache / f"{self._bucket}-{hashlib.sha256(f'{self._endpoint} {self.uri}'.encode()).hexdigest()[:16]}"

    def _connect(self, options: Mapping[str, str]) -> None:
        environment = os.environ.get
        region = options.get("region") or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
        self._endpoint = (
            options.get("endpoint_override") or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL") or ""
        )
        if not region and not self._endpoint:
            region = fs.resolve_s3_region(self._bucket)
        common: dict[str, Any] = {"region": region, "connect_timeout": 5}
        if self._endpoint:
            common |= {"endpoint_override": self._endpoint, "scheme": options.get("scheme", "https")}
        # One attempt: whether an upload had to be repeated decides what may be written next (see `put`).
        once = fs.AwsStandardS3RetryStrategy(max_attempts=1)
        self._reading = fs.S3FileSystem(**common)
        self._small = fs.S3FileSystem(**common, retry_strategy=once, allow_delayed_open=True)
        self._large = fs.S3FileSystem(**common, retry_strategy=once)

    def check(self) -> None:
        """Raises RemoteError unless the bucket is there."""
        with self._in_words():
            there = self._reading.get_file_info(self._bucket).type != fs.FileType.NotFound
        if not there:
            raise self._explained("NO_SUCH_BUCKET")

    def put(self, name: str, data: bytes) -> bool:
        """Make the object hold `data`; a reader sees the former one or this one, whole.

        Tried a few times. After an attempt that failed nobody knows whether it will yet take effect: so all attempts put the
        same, and nothing else may be put under this name for a while.

        Returns:
            Whether the first attempt succeeded.
        """
        for wait in (0.0, *PATIENCE):
            time.sleep(wait)
            began = time.monotonic()
            try:
                with self._in_words():
                    # In a thread, where no Ctrl-C comes between the opening and the writing.
                    self._pool.submit(self._put_once, f"{self._root}/{name}", data).result()
                return wait == 0.0 and (self._is_s3 or time.monotonic() - began < 1)  # Google's client tries again by itself
            except RemoteError as error:
                if wait == PATIENCE[-1] or not error.may_pass:
                    raise
        raise AssertionError

    def _put_once(self, path: str, data: bytes) -> None:
        """Arrow completes an upload also when its stream is destroyed, and `with` does after an exception: what was written up
        to then replaces the object. So all is written in one call, and the stream is gone before anything is raised.

        A stream that is opened late puts an *empty* object if the first request of an upload in several pieces fails; one
        that is opened at once does not come into being then. If a piece fails, both give up.
        """
        stream = (self._small if len(data) <= WHOLE else self._large).open_output_stream(path)
        try:
            stream.write(data)
            stream.close()
        finally:
            del stream

    def get(self, name: str) -> bytes | None:
        """The contents of an object; None if there is none."""
        path = f"{self._root}/{name}"
        with self._in_words(), contextlib.suppress(FileNotFoundError), self._reading.open_input_stream(path) as stream:
            data: bytes = stream.read()
            return data
        return None

    def find(self, name: str) -> Found | None:
        with self._in_words():
            found = self._reading.get_file_info(f"{self._root}/{name}")
        return (found.size, found.mtime_ns) if found.type == fs.FileType.File else None

    def list(self, folder: str, *, deep: bool = False) -> dict[str, Found]:
        """The objects in a folder, by their names in it."""
        top = f"{self._root}/{folder}"
        with self._in_words():
            found = self._reading.get_file_info(fs.FileSelector(top, allow_not_found=True, recursive=deep))
        return {f.path[len(top) + 1 :]: (f.size, f.mtime_ns) for f in found if f.type == fs.FileType.File}

    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; nothing happens where there is none."""
        self._each(self._delete, names)

    def _delete(self, name: str) -> None:
        with self._in_words(), contextlib.suppress(FileNotFoundError):
            self._reading.delete_file(f"{self._root}/{name}")

    def delete_folder(self, folder: str) -> None:
        with self._in_words(), contextlib.suppress(FileNotFoundError):
            self._reading.delete_dir(f"{self._root}/{folder}")

    def move(self, name: str, place: str) -> None:
        """Rename an object; nothing happens if another machine has just done it."""
        with self._in_words(), contextlib.suppress(FileNotFoundError):
            self._reading.move(f"{self._root}/{name}", f"{self._root}/{place}")

    def pull(self, folder: str, token: str, again: Collection[str] = ()) -> None:
        """Make the folder of the mirror as that of the bucket is: fetch what is new or has another size or time, and what is
        named `again`; remove what is gone. The caller keeps everybody else from changing the mirror meanwhile.

        Args:
            token: of the temporaries.
        """
        there, place = self.list(folder), self.mirror / folder
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
        self._each(lambda name: self._fetch(f"{folder}/{name}", there[name][1], token), differing)

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

    def _each(self, do: Callable[[Any], None], items: Iterable[Any]) -> None:
        for done in [self._pool.submit(do, item) for item in items]:
            done.result()

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, RemoteError):
            raise
        except (OSError, pa.ArrowException) as error:
            raise self._explained(" ".join(str(error).split())) from error

    def _explained(self, said: str) -> RemoteError:
        server = self._endpoint or ("Amazon S3" if self._is_s3 else "Google Cloud Storage")
        if "NO_SUCH_BUCKET" in said:
            return RemoteError(f"there is no bucket {self._bucket}: create it first, or give another one with --store")
        if re.search(r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE|EXPIRED|CREDENTIAL|PERMISSION|HTTP status 40[13]|OAuth2", said):
            how = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE," if self._is_s3 else "log in with gcloud"
            who = "for an account that may read, write and list it"
            return RemoteError(f"{server} denies access to {self._bucket}: {how} {who}")
        if re.search(r"HTTP status 30[17]|PERMANENT_REDIRECT", said):
            return RemoteError(f"the bucket {self._bucket} is in another region: set AWS_REGION to that")
        if re.search(r"NETWORK_CONNECTION|CURL error|UNAVAILABLE", said):
            settings = ", AWS_ENDPOINT_URL and AWS_REGION" if self._is_s3 else ""
            return RemoteError(f"{server} does not answer: check the network{settings}", may_pass=True)
        return RemoteError(f"{server} answers: {said[:300]}; run the same command again", may_pass=True)


def grown(former: bytes, table: pa.Table) -> bytes:
    """A Parquet file of `table` that begins with the bytes of a `former` one. Readers of a bucket take the size first and then
    read piece by piece: so one that is in the middle of the former file goes on reading that."""
    sink = pa.BufferOutputStream()
    options = {"compression": "snappy", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        sink.write(former[4:])  # the writer has begun with the same four bytes
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
