"""Signals heard also while Python is deep in Ray: Python runs handlers in its main thread only, and there between two steps."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from orchestrator.engine.scratch import remove_all


def hear(heard: Callable[[int], None]) -> Callable[[], None]:
    """Have a thread of its own call `heard` with the number of every signal that has a handler. Python tells it through a pipe.

    Only for the main thread. Returns what ends it.
    """
    listening, telling = os.pipe()
    os.set_blocking(telling, False)

    def listen() -> None:
        while told := os.read(listening, 1):
            heard(told[0])
        os.close(listening)

    def end() -> None:
        signal.set_wakeup_fd(before)
        os.close(telling)

    before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    threading.Thread(target=listen, daemon=True, name="signals").start()
    return end


@contextmanager
def obeyed_within(seconds: float, undone: str) -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the process if the block goes on for so long after it: Ray may hang in what Python cannot
    interrupt. The last words say what was left `undone`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over, stderr = threading.Event(), os.dup(2)

    def heard(number: int) -> None:
        if number in (signal.SIGINT, signal.SIGTERM) and not over.wait(seconds):
            with suppress(OSError):  # the terminal may be gone
                os.write(stderr, f"interrupted: {undone}\n".encode())
            remove_all()
            os._exit(128 + number)

    end = hear(heard)
    try:
        yield
    finally:
        over.set()
        end()
        os.close(stderr)
