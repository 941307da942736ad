"""A bucket that answers every request after a while, and counts them: a double of Arrow's file system for S3."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs


@dataclass
class Spent:
    """What was asked of the bucket."""

    requests: Counter[str] = field(default_factory=Counter)
    """By `METHOD FOLDER`."""
    waits: int = 0
    """How often nothing was asked when a request came: requests that overlap are waited for together."""
    seconds: float = 0.0


class SlowBucket:
    """Keeps its objects in a folder. One launch may use it.

    Args:
        latency: seconds that a request takes.
    """

    def __init__(self, folder: Path, latency: float) -> None:
        (folder / "bucket").mkdir(parents=True)
        self._files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        self._latency, self._guard = latency, threading.Lock()
        self._spent = Spent()
        self.asked = 0
        """Requests that are not answered yet."""
        self.refused = ""
        """Requests for paths that end with this fail at once."""
        self.why = "AWS Error ACCESS_DENIED"

    @contextlib.contextmanager
    def spending(self) -> Iterator[Spent]:
        """Yields what is spent in the block."""
        self._spent = spent = Spent()
        began = time.monotonic()
        yield spent
        spent.seconds = time.monotonic() - began
        self._spent = Spent()

    def serve(self, remote: Any, options: object) -> None:
        """Stands in for `Remote._connect`."""
        remote._endpoint = "the double"
        remote._small = remote._large = remote._reading = self

    def _ask(self, method: str, path: str, times: int = 1) -> None:
        if self.refused and path.endswith(self.refused):
            raise OSError(self.why)
        with self._guard:
            self._spent.requests[f"{method} {path.split('/')[2] if path.count('/') > 1 else ''}"] += times
            self._spent.waits += self.asked == 0
            self.asked += 1
        time.sleep(self._latency * times)
        with self._guard:
            self.asked -= 1

    def get_file_info(self, asked: str | fs.FileSelector) -> Any:
        found = self._files.get_file_info(asked)
        if isinstance(asked, fs.FileSelector):
            self._ask("LIST", asked.base_dir)
        else:
            self._ask("HEAD", asked, times=1 if found.type == fs.FileType.File else 2)  # then Arrow looks for a folder
        return found

    def open_output_stream(self, path: str) -> _Upload:
        return _Upload(self, path)

    def put(self, path: str, data: bytes) -> None:
        self._ask("PUT", path)
        self._files.create_dir(path.rpartition("/")[0])
        with self._files.open_output_stream(path) as file:
            file.write(data)

    def open_input_file(self, path: str) -> pa.NativeFile:
        self._ask("GET", path, times=2)  # for the size, and for the contents
        return self._files.open_input_file(path)

    def delete_file(self, path: str) -> None:
        self._ask("DELETE", path)
        self._files.delete_file(path)

    def delete_dir(self, path: str) -> None:
        self._ask("DELETE", path)
        self._files.delete_dir(path)


class _Upload:
    """An object that comes into being when it is closed."""

    def __init__(self, bucket: SlowBucket, path: str) -> None:
        self._bucket, self._path, self._data = bucket, path, b""

    def write(self, data: bytes) -> None:
        self._data += data

    def close(self) -> None:
        self._bucket.put(self._path, self._data)
