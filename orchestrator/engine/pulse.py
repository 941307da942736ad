"""Notices that Ray has died under a launch: Ray waits for its dead parts for ever, or ends the process without a word."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

EVERY_SECONDS = 0.5
TIMEOUT_SECONDS = 2.0
SIGNAL_SECONDS = 0.5
"""A signal that ended a part of Ray is heard by the launch, too, within this time, if it went to the whole process group."""


@dataclass(slots=True)
class Part:
    """A process of Ray that listens at an address.

    Without `patience` it is gone as soon as a connection is refused, which is what the kernel of this machine says of a process
    that has ended; a busy one is never refused. With it, when it has not answered for so many seconds, for whatever reason.
    """

    name: str
    host: str
    port: int
    patience: float = 0.0
    answered: float | None = None
    """When it answered last; one that never did is not judged."""

    @property
    def loss(self) -> str:
        """What is said when it is gone."""
        since = f"has not answered for {self.patience:g} s" if self.patience else "has died"
        return f"{self.name} {since}; perhaps someone ended it, or its machine ran out of memory"

    def gone(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECONDS).close()
        except OSError as error:
            if self.answered is None or not (self.patience or isinstance(error, ConnectionRefusedError)):
                return False
            return time.monotonic() - self.answered > self.patience
        self.answered = time.monotonic()
        return False


@contextlib.contextmanager
def watched(parts: Sequence[Part], lost: Callable[[Part], None]) -> Iterator[None]:
    """Ask the parts for the time of the block; `lost` is called once, in a thread of its own, when one is gone."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for part in parts:
                if part.gone() and not over.is_set():
                    lost(part)
                    return
            over.wait(EVERY_SECONDS)

    threading.Thread(target=watch, daemon=True, name="pulse").start()
    try:
        yield
    finally:
        over.set()
