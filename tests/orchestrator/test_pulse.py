"""A part of Ray that is gone is noticed, and only one that is gone."""

import contextlib
import socket
import threading
import time

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
            part = Part("busy", *address, answered=0.0)
            assert not part.gone(), "its queue is full: it does not answer, and is not refused"
            assert Part("far", *address, patience=1.0, answered=0.0).gone(), "of one far away any silence counts"
            for one in held:
                one.close()
    assert not Part("never", *address).gone()


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
    assert part.loss == "head has not answered for 1.2 s; perhaps someone ended it, or its machine ran out of memory"


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
