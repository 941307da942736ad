"""What a task prints while it is checked, and what its exceptions say."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

MOST_PRINTED = 10_000
"""Characters that are passed on."""


@contextlib.contextmanager
def printed_to_stderr() -> Iterator[None]:
    """What is printed in the block goes to stderr: its beginning, and a word if there is more."""
    with contextlib.redirect_stdout(_Beginning(sys.stderr)):
        yield


def reason_of(error: BaseException) -> str:
    """The kind of an exception, and the first line of what it says, if it can say it."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}".splitlines()[0].rstrip(": ")
    except Exception:
        return kind


class _Beginning:
    """A stream that passes on what is written to it, up to MOST_PRINTED characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._left = stream, MOST_PRINTED

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._left > 0:
            self._stream.write(text[: self._left])
            self._left -= len(text)
            if self._left <= 0:
                self._stream.write("\n(what the task prints beyond this is left out)\n")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)
