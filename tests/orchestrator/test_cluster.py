"""What can be said of where runs are trained before Ray is there. Studies on clusters are in tests/cluster."""

import contextlib
import os
import platform
import re
import resource
import socket
import threading
from pathlib import Path

import pytest

from orchestrator.engine import cluster
from orchestrator.errors import UserError


@pytest.mark.parametrize(
    ("address", "user", "used", "allowed", "warned"),
    [
        ("local", 7, 50, 309, True),
        ("local", 7, 50, 310, False),
        ("local", 7, 50, resource.RLIM_INFINITY, False),
        ("local", 0, 50, 10, False),  # root may go beyond
        ("auto", 7, 50, 10, False),
    ],
)
def test_a_limit_on_threads_that_ray_would_reach_is_told(
    address: str, user: int, used: int, allowed: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (allowed, allowed))
    monkeypatch.setattr(cluster, "_threads_of", lambda who: used)
    told = cluster.Cluster(address, workers=2).shortage()
    if warned:
        assert told is not None
        assert "ulimit -u 570" in told
    else:
        assert told is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"\0\0\x06\x04\0\0\0\0\0", None),  # as a server of gRPC begins
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not the head of a Ray cluster, but something else"),
        (b"", "is not the head of a Ray cluster, but something else"),
        (None, None),  # a head that is busy
    ],
)
def test_an_address_where_no_ray_is_is_refused_at_once(
    answer: bytes | None, told: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(cluster.Cluster, "connected", lambda self: contextlib.nullcontext())
    over = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            if answer is None:
                over.wait()
            else:
                connection.recv(100)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            with contextlib.nullcontext() if told is None else pytest.raises(UserError, match=re.escape(told or "")):
                cluster.Cluster(address, workers=1).check()
        finally:
            over.set()
            thread.join(10)
    busy = f"warning: --address '{address}' has said nothing for 0.5 s: it is busy, or no Ray head; trying to join it\n"
    assert capsys.readouterr().err == (busy if answer is None else "")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("localhost", "has no port: write host:port, for example localhost:6379, or auto, or local"),
        ("10.0.0.1", "has no port: write host:port, for example 10.0.0.1:6379"),
        ("::1", "has no port: write host:port, for example [::1]:6379"),
        ("[::1]", "has no port: write host:port, for example [::1]:6379"),
        ("", "has no port: write host:port, for example localhost:6379"),
        ("ray://host:10001", "give host:port without ray://"),
        ("host:six", "has the port 'six', which is no number from 1 to 65535"),
        ("host:70000", "has the port '70000', which is no number from 1 to 65535"),
        ("host:", "has the port '', which is no number"),
    ],
)
def test_an_address_that_is_none_is_told_in_words(address: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"--address {address!r} ")) as refused:
        cluster.Cluster(address, workers=1).check()
    assert told in str(refused.value)


def test_an_address_in_brackets_is_asked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(place: tuple[str, int], timeout: float) -> None:
        asked.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UserError, match="Connection refused"):
        cluster.Cluster("[::1]:6379", workers=1).check()
    assert asked == [("::1", 6379)]


@pytest.mark.slow(2)
def test_threads_of_a_user_are_counted() -> None:
    before = cluster._threads_of(os.getuid())
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(500)]
    for thread in threads:
        thread.start()
    counted = cluster._threads_of(os.getuid())
    stop.set()
    assert counted >= 500
    assert before > 0


def test_a_ray_that_does_not_come_up_is_started_once_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import ray

    places: list[str | None] = []

    def init(*, _temp_dir: str | None, **_: object) -> None:
        places.append(_temp_dir)
        if len(places) == 1:
            raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    cluster.Cluster("local", workers=2)._start(tmp_path, {})
    assert len(places) == 2


def test_a_cluster_of_another_version_is_refused_in_a_line_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray._private.utils import check_version_info

    def init(**_: object) -> None:
        check_version_info({"ray_version": "2.9.1", "python_version": "3.10.4"}, "node 10.0.0.1")

    of_ray = ("USAGE_STATS_ENABLED", "ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "AIR_NEW_OUTPUT", "CHDIR_TO_TRIAL_DIR")
    for name in ("PYTHONPATH", *(f"RAY_{name}" for name in of_ray)):
        monkeypatch.setenv(name, "0")  # put back afterwards
    monkeypatch.setattr(ray, "init", init)
    here = f"Ray {ray.__version__} on Python {platform.python_version()}"
    with pytest.raises(UserError) as refused, cluster.Cluster("auto").connected():
        pass
    assert str(refused.value) == (
        f"--address 'auto' has Ray 2.9.1 on Python 3.10.4, and this command runs with {here}: install the versions of the "
        "cluster here, or start the command in the image of the cluster"
    )

    def broken(**_: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(ray, "init", broken)
    with pytest.raises(RuntimeError, match="something else"), cluster.Cluster("auto").connected():
        pass
