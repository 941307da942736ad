"""Says how to go on if this process ends without a word: by SIGKILL, for want of memory, or by Ray, which ends it so when some
of its parts die."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator

SAYS = 'read -r said || printf "%s\\n" "$0" >&2'
"""In a shell: waits for a word, and speaks if there is none."""
PATIENCE_SECONDS = 2.0


@contextlib.contextmanager
def last_words(text: str) -> Iterator[Callable[[], None]]:
    """A process of its own says this on stderr if this one ends within the block.

    Yields what withdraws it: for what ends the process itself, once it has spoken.
    """
    reading, writing = os.pipe()
    command = ["/bin/sh", "-c", SAYS, text]
    try:
        listener = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError:  # no shell, or no process more: then nothing is said
        listener = None
    finally:
        os.close(reading)
    withdrawn = False

    def withdraw() -> None:
        nonlocal withdrawn
        if listener is not None and not withdrawn:
            withdrawn = True
            with contextlib.suppress(OSError):  # someone has ended it
                os.write(writing, b"said\n")

    try:
        yield withdraw
    finally:
        withdraw()
        os.close(writing)
        if listener is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                listener.wait(PATIENCE_SECONDS)
