"""A part of Ray that is gone is noticed, and only one that is gone."""

import contextlib
import errno
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from orchestrator.engine import pulse as module
from orchestrator.engine.pulse import Part, watched


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)


def test_a_part_that_is_gone_is_told_once() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    there = Part("server", *listener.getsockname())
    told: list[str] = []
    heard = threading.Event()

    def lost(part: Part) -> None:
        told.append(part.name)
        heard.set()

    with watched([there], lost):
        time.sleep(0.5)
        assert told == []
        listener.close()
        assert heard.wait(5)
        time.sleep(0.2)
    assert told == ["server"]


def test_neither_a_busy_part_nor_one_that_never_answered_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as busy:
        address = busy.getsockname()
        with socket.create_connection(address):
            held = [socket.socket() for _ in range(4)]
            for one in held:
                one.setblocking(False)
                one.connect_ex(address)
            part = Part("busy", *address, silent=0.0)
            assert not part.gone(), "its queue is full: it does not answer, and is not refused"
            assert Part("far", *address, patience=1.0, silent=1.0).gone(), "of one far away any silence counts"
            for one in held:
                one.close()
    assert not Part("never", *address).gone()


@pytest.mark.slow(3)
def test_one_with_patience_has_to_say_something_itself() -> None:
    """The kernel accepts connections also for a process that is frozen."""
    frozen, over, told, heard = threading.Event(), threading.Event(), list[Part](), threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while not frozen.is_set():
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    time.sleep(0.1)  # it is busy
                    connection.sendall(b"\0\0\x06\x04\0\0\0\0\0")
        over.wait(30)

    def lost(part: Part) -> None:
        told.append(part)
        heard.set()

    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        threading.Thread(target=serve, daemon=True).start()
        part = Part("head", *server.getsockname(), patience=1.2)
        with watched([part], lost):
            assert not heard.wait(2)
            frozen.set()
            began = time.monotonic()
            assert heard.wait(6)
        assert time.monotonic() - began > 0.9
        over.set()
    assert told == [part]
    assert part.loss == "head has not answered for 1.2 s; perhaps someone ended or stopped it, or its machine ran out of memory"


class Clock(SimpleNamespace):
    """In the place of the module `time`."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def closed() -> tuple[str, int]:
    """An address at which every connection is refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
    return host, port


def test_time_in_which_the_launch_was_stopped_is_no_silence_of_the_head(
    clock: Clock, closed: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are stopped, as by docker pause; the launch is woken before the head."""
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 2.0)
    head = Part("head", *closed, patience=45.0, silent=0.0, asked=clock.now)
    clock.now += 50_000
    assert not head.gone()
    assert head.silent == 45 / 6 + 2, "no question takes longer"
    for listened in (8.0, 8.0, 8.0, 8.0):
        clock.now += listened
        assert not head.gone()
    assert head.silent == 41.5
    clock.now += 3.4
    assert not head.gone()
    clock.now += 0.2
    assert head.gone()


def test_one_stop_of_the_launch_never_uses_up_a_short_patience(clock: Clock, closed: tuple[str, int]) -> None:
    head = Part("head", *closed, patience=0.3, silent=0.0, asked=clock.now)
    stops = 0
    while not head.gone():
        stops += 1
        clock.now += 50_000
    assert stops > 3


def test_an_answer_ends_a_silence(clock: Clock) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(b"\0\0\x06\x04\0\0\0\0\0")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        head = Part("head", *server.getsockname(), patience=45.0, silent=44.0, asked=clock.now - 9)
        assert not head.gone()
    assert (head.silent, head.asked) == (0.0, clock.now)
    head.hang_up()


def test_one_of_its_own_is_gone_at_once_if_it_has_died_and_after_its_patience_if_it_is_frozen(closed: tuple[str, int]) -> None:
    died = Part("gcs_server, a part of the embedded Ray,", *closed, patience=100.0, is_own=True, silent=0.0)
    assert died.gone()
    told = "gcs_server, a part of the embedded Ray, has died; perhaps someone ended it, or its machine ran out of memory"
    assert died.loss == told
    with socket.create_server(("127.0.0.1", 0), backlog=100) as frozen:
        part = Part("gcs_server", *frozen.getsockname(), patience=0.6, is_own=True, silent=0.0, asked=time.monotonic())
        began = time.monotonic()
        while not part.gone():
            assert time.monotonic() - began < 20
        assert time.monotonic() - began > 0.6
        part.hang_up()
    assert part.loss.startswith("gcs_server has not answered for 0.6 s; perhaps someone ended or stopped it, ")
    assert not Part("never", *closed, patience=1.0, is_own=True).gone()


def test_a_launch_without_a_free_file_does_not_take_its_own_ray_for_lost(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "create_connection", full)
    part = Part("gcs_server", "127.0.0.1", 1, patience=100.0, is_own=True, silent=99.0)
    clock.now += 50_000
    assert (part.gone(), part.silent) == (False, 99.0)


def test_a_silent_part_lets_no_other_one_wait() -> None:
    heard = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as frozen:
        head = Part("head", *frozen.getsockname(), patience=60.0, is_own=True, silent=0.0)
        with watched([head, Part("raylet", *listener.getsockname())], lambda part: heard.set()):
            time.sleep(0.3)
            assert not heard.is_set()
            listener.close()
            assert heard.wait(5)


def test_a_part_that_hangs_up_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_SECONDS", 30.0)
    heard = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    with watched([Part("server", *listener.getsockname())], lambda part: heard.set()):
        line, _ = listener.accept()
        line.sendall(b"what it says is of no interest")
        line.close()
        line, _ = listener.accept()  # it is asked again, as it may have hung up for another reason
        assert not heard.wait(0.2)
        listener.close()
        line.close()
        assert heard.wait(2)
