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
    that has ended; a busy one is never refused. With it, when it has not answered for so many seconds in which it was listened
    to, for whatever reason: it has to say something itself, as the kernel accepts connections also for a process that is
    frozen. One of the launch's own is never started anew, so that it is gone in either case.
    """

    name: str
    host: str
    port: int
    patience: float = 0.0
    is_own: bool = False
    silent: float | None = None
    """For so long it was listened to since it answered last, in vain; one that never did is not judged."""
    asked: float = 0.0
    """When the last question had its answer, or was given up."""
    line: socket.socket | None = None
    """The last connection, as long as it holds: a part that dies hangs up."""

    @property
    def loss(self) -> str:
        """What is said when it is gone."""
        if (self.silent or 0.0) > self.patience:
            since, ended = f"has not answered for {self.patience:g} s", "ended or stopped"
        else:
            since, ended = "has died", "ended"
        return f"{self.name} {since}; perhaps someone {ended} it, or its machine ran out of memory"

    def gone(self) -> bool:
        self.hang_up()
        try:
            self.line = line = socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECONDS)
            if self.patience:
                line.settimeout(self.patience / ANSWERS)
                if not is_like_ray(line):
                    raise TimeoutError
        except OSError as error:
            return self.silent is not None and self._is_gone_by(error)
        self.silent, self.asked = 0.0, time.monotonic()
        return False

    def _is_gone_by(self, error: OSError) -> bool:
        """Of one that has answered before."""
        if self.is_own or not self.patience:
            if isinstance(error, ConnectionRefusedError):
                return True
            if not self.patience or not isinstance(error, TimeoutError):  # such as too many open files here
                return False
        now, wait = time.monotonic(), self.patience / ANSWERS
        # a question takes no longer: in a longer gap the launch itself was stopped, or its machine asleep
        listened = min(now - self.asked, wait + min(wait, TIMEOUT_SECONDS))
        self.silent, self.asked = (self.silent or 0.0) + listened, now
        return self.silent > self.patience

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
    """Ask the parts for the time of the block, each in a thread of its own, as one that is silent would let the others wait;
    `lost` is called once, in such a thread, when one is gone."""
    over, told = threading.Event(), threading.Lock()

    def watch(part: Part) -> None:
        try:
            while not over.is_set():
                if part.gone() and not over.is_set():
                    if told.acquire(blocking=False):
                        lost(part)
                    return
                _listen(part, over)
        finally:
            part.hang_up()

    for part in parts:
        threading.Thread(target=watch, args=(part,), daemon=True, name="pulse").start()
    try:
        yield
    finally:
        over.set()


def _listen(part: Part, over: threading.Event) -> None:
    """Until it is time to ask again, or the part hangs up."""
    over.wait(SHORTLY)
    end = time.monotonic() + EVERY_SECONDS
    with selectors.DefaultSelector() as selector:
        if part.line is not None:
            selector.register(part.line, selectors.EVENT_READ)
        while not over.is_set() and (left := end - time.monotonic()) > 0:
            if part.line is None:
                over.wait(left)
            elif selector.select(left) and part.has_hung_up():
                return
