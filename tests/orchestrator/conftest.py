"""Shared by the tests of stores: a folder, and a bucket of a server that all of them use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import BucketPlace, FolderPlace, Place, Server, child

import orchestrator.store.leases as leases_module
import orchestrator.store.register as register_module
import orchestrator.store.remote as remote_module
import orchestrator.store.turns as turns_module

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with child("s3", "-") as process:
        yield Server(process)


@pytest.fixture
def uri(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a store may be made. This process and its children are machine `a`, every look is one, nothing is waited for."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url, "XDG_CACHE_HOME": str(tmp_path / "a")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(turns_module, "PULL_EVERY", 0.0)
    monkeypatch.setattr(leases_module, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(remote_module, "PATIENCE", 0.2)
    monkeypatch.setattr(remote_module, "FIRST_WAIT", 0.02)
    return f"s3://{server.new_bucket()}/s"


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes what is opened or started from now on be of machine `a`, `b`, ..."""
    return lambda name: monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.bucket)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a store may be made: a folder, and then a bucket."""
    if request.param == "folder":
        return FolderPlace(tmp_path / "s")
    return BucketPlace(request.getfixturevalue("server"), request.getfixturevalue("uri"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 10 rows, in the index as soon as two are full."""
    monkeypatch.setattr(register_module, "ROWS_PER_PART", 10)
    monkeypatch.setattr(register_module, "ROWS_BEYOND_INDEX", 20)
