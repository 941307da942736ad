"""Notices that Ray has died under a launch: Ray waits for its dead parts for ever, or ends the process without a word."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.engine.heads import is_like_ray

EVERY_SECONDS = 0.5
"""So often each part is asked, and at once if it hangs up: what Ray loses in its process ends the launch within 0.2 s."""
SHORTLY = 0.01
"""Seconds between two questions at least."""
TIMEOUT_SECONDS = 2.0
ANSWERS = 6
"""So often at least a part with patience is asked for an answer before its patience is over: a busy one may take its time."""
SIGNAL_SECONDS = 0.5
"""A signal that ended a part of Ray is heard by the launch, too, within this time, if it went to the whole process group."""


@dataclass(slots=True)
class Part:
    """A process of Ray that listens at an address.

    Without `patience` it is gone as soon as a connection is refused, which is what the kernel of this machine says of a process
    that has ended; a busy one is never refused. With it, when it has not answered for so many seconds, for whatever reason: it
    has to say something itself, as the kernel accepts connections also for a process that is frozen.
    """

    name: str
    host: str
    port: int
    patience: float = 0.0
    answered: float | None = None
    """When it answered last; one that never did is not judged."""
    line: socket.socket | None = None
    """The last connection, as long as it holds: a part that dies hangs up."""

    @property
    def loss(self) -> str:
        """What is said when it is gone."""
        since = f"has not answered for {self.patience:g} s" if self.patience else "has died"
        return f"{self.name} {since}; perhaps someone ended it, or its machine ran out of memory"

    def gone(self) -> bool:
        self.hang_up()
        try:
            self.line = line = socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECONDS)
            if self.patience:
                line.settimeout(self.patience / ANSWERS)
                if not is_like_ray(line):
                    raise TimeoutError
        except OSError as error:
            if self.answered is None or not (self.patience or isinstance(error, ConnectionRefusedError)):
                return False
            return time.monotonic() - self.answered > self.patience
        self.answered = time.monotonic()
        return False

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
        self.line = None

    def has_hung_up(self) -> bool:
        """Of one that has just said something."""
        try:
            return self.line is not None and not self.line.recv(4096)
        except OSError:
            return True


@contextlib.contextmanager
def watched(parts: Sequence[Part], lost: Callable[[Part], None]) -> Iterator[None]:
    """Ask the parts for the time of the block; `lost` is called once, in a thread of its own, when one is gone."""
    over = threading.Event()

    def watch() -> None:
        try:
            while not over.is_set():
                for part in parts:
                    if part.gone() and not over.is_set():
                        lost(part)
                        return
                _listen(parts, over)
        finally:
            for part in parts:
                part.hang_up()

    threading.Thread(target=watch, daemon=True, name="pulse").start()
    try:
        yield
    finally:
        over.set()


def _listen(parts: Sequence[Part], over: threading.Event) -> None:
    """Until it is time to ask again, or one of the parts hangs up."""
    over.wait(SHORTLY)
    end = time.monotonic() + EVERY_SECONDS
    with selectors.DefaultSelector() as selector:
        for part in parts:
            if part.line is not None:
                selector.register(part.line, selectors.EVENT_READ, part)
        while not over.is_set() and (left := end - time.monotonic()) > 0:
            if not selector.get_map():
                over.wait(left)
            elif any(key.data.has_hung_up() for key, _ in selector.select(left)):
                return
