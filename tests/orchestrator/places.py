"""For the tests of stores: places where one is kept, as somebody sees them who does not know this program, and processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def child(*words: object) -> Iterator[subprocess.Popen[str]]:
    """store_child.py with these arguments; killed at the end if still there."""
    command = [sys.executable, str(Path(__file__).with_name("store_child.py")), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], line: object) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Place(Protocol):
    """A place for stores. `location`: what a store is opened with. Files are known by their names below it."""

    location: str

    def below(self, name: str) -> Place:
        """Another place, whose location is this name below the one of this place."""

    def everything(self) -> dict[str, bytes]:
        """All that is there. A folder is a name that ends with `/`."""

    def names(self, folder: str) -> list[str]:
        """The files in a folder."""

    def get(self, name: str) -> bytes: ...

    def put(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


def kept(place: Place, folder: str = "runs") -> dict[str, bytes]:
    """The files in a folder, in the order of their names."""
    return {name: place.get(f"{folder}/{name}") for name in sorted(place.names(folder))}


def plain_keys(location: str | Path) -> list[str]:
    """The keys that somebody sees who knows pandas and not this program."""
    return list(pd.read_parquet(f"{location}/runs")["key"])


class FolderPlace:
    def __init__(self, path: Path) -> None:
        self.location, self._path = str(path), path

    def below(self, name: str) -> FolderPlace:
        return FolderPlace(self._path / name)

    def everything(self) -> dict[str, bytes]:
        found = {path.relative_to(self._path).as_posix(): path for path in self._path.rglob("*")}
        found = {f"{name}/" if path.is_dir() else name: path for name, path in found.items()}
        return {name: b"" if path.is_dir() else path.read_bytes() for name, path in found.items()}

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self._path / folder).glob("*")]

    def get(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        (self._path / name).parent.mkdir(parents=True, exist_ok=True)
        (self._path / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self._path / name).unlink()


class Server:
    """A server of S3 (see store_child.s3)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.url = f"http://127.0.0.1:{hear(process)}"
        self.client = pytest.importorskip("boto3").client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
        )
        self.buckets = 0

    def new_bucket(self) -> str:
        self.buckets += 1
        self.client.create_bucket(Bucket=f"bucket-{self.buckets}")
        return f"bucket-{self.buckets}"

    @contextlib.contextmanager
    def failing(self, *faults: str) -> Iterator[None]:
        """See store_child.s3."""
        self._post("\n".join(faults))
        try:
            yield
        finally:
            self._post("")

    def _post(self, text: str) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/faults", text.encode(), method="POST")).close()

    def requests(self) -> list[str]:
        """Those since the last call: `METHOD FOLDER`."""
        with urllib.request.urlopen(f"{self.url}/-/log") as answer:
            lines = unquote(answer.read().decode()).splitlines()
        return [re.sub(r"^(\w+) .*?/s/(\w+).*|^(\w+) .*prefix=s/(\w+).*", r"\1\3 \2\4", line) for line in lines]


class BucketPlace:
    def __init__(self, server: Server, uri: str) -> None:
        self.location, self._server = uri, server
        self._bucket, self._prefix = uri.removeprefix("s3://").split("/", 1)

    def below(self, name: str) -> BucketPlace:
        return BucketPlace(self._server, f"{self.location}/{name}")

    def everything(self) -> dict[str, bytes]:
        return {name: self.get(name) for name in self.names("")}

    def names(self, folder: str) -> list[str]:
        """The objects in a folder, leaving out the empty ones by which S3 clients mark folders."""
        prefix = "/".join(filter(None, (self._prefix, folder))) + "/"
        found = self._server.client.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", [])
        names = (object["Key"].removeprefix(prefix) for object in found)
        return [name for name in names if name and not name.endswith("/")]

    def put(self, name: str, data: bytes) -> None:
        """An object that is replaced gets another time, which is counted in seconds: a store notices what differs in size or
        time."""
        former = self._time(name)
        if former is not None:
            time.sleep(max(0.0, former.timestamp() + 1 - time.time()))
        while True:
            self._server.client.put_object(Bucket=self._bucket, Key=f"{self._prefix}/{name}", Body=data)
            if self._time(name) != former:
                return
            time.sleep(0.1)

    def _time(self, name: str) -> datetime | None:
        found = self._server.client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}/{name}").get("Contents", [])
        times: dict[str, datetime] = {object["Key"]: object["LastModified"] for object in found}
        return times.get(f"{self._prefix}/{name}")

    def get(self, name: str) -> bytes:
        data: bytes = self._server.client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{name}")["Body"].read()
        return data

    def remove(self, name: str) -> None:
        self._server.client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}/{name}")


def names(server: Server, uri: str, folder: str = "runs") -> list[str]:
    return BucketPlace(server, uri).names(folder)


def put(server: Server, uri: str, name: str, data: bytes) -> None:
    BucketPlace(server, uri).put(name, data)


def get(server: Server, uri: str, name: str) -> bytes:
    return BucketPlace(server, uri).get(name)
