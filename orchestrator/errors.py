"""Errors a user can act on, and the words of messages that all layers use."""

import errno
from collections.abc import Sequence
from pathlib import Path

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
KEPT_LETTERS = 10_000
"""Of the beginning of the text of an exception, and as many of its end: it may print a whole array."""
SHOWN_LINES, SHOWN_LETTERS = 50, 1_000
"""Lines of it that are shown, and letters of a line."""
LONGEST_NOTE = 60
"""Letters that say what was left out."""


class UserError(Exception):
    """One line that says what was given, what is allowed, and what to type instead. Ends a command with exit code 2."""


class LostRayError(Exception):
    """Ray has died under a launch, or does not do its work: nothing more can be trained. Finished runs are not concerned."""


class StuckError(Exception):
    """A search asks for nothing, and has not finished. It is a fault of the search; the launch would wait for ever."""


class UnexportedError(OSError):
    """The file of an option cannot be written. The `files` of the answer are there all the same."""

    def __init__(self, text: str, files: Sequence[Path]) -> None:
        super().__init__(text)
        self.files = files


def unwritten(error: OSError, option: str) -> str:
    """What the files of an option could not be written for, and what to do."""
    remedy = "free some space, or name" if error.errno in FULL_DISK else "name"
    return f"what {option} names cannot be written ({error.strerror or error}): {remedy} another place with it"


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`, `1,000 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def of_asked(done: int, asked: int, what: str) -> str:
    """`3 of 4 trials`; `5 trials (4 asked for)` where the store has more."""
    return f"{counted(done, what)} ({asked:,} asked for)" if done > asked else f"{done:,} of {counted(asked, what)}"


def storable(text: str) -> str:
    """The text of an exception as every file takes it, without the middle of a very long one. Half a letter, as Python makes of
    a file name that is not UTF-8, is escaped."""
    return _without_middle(text, KEPT_LETTERS, KEPT_LETTERS).encode(errors="backslashreplace").decode()


def shown(text: str) -> str:
    """As much of the text of an exception as a terminal can show: of too many lines the first and the last ones, which say what
    was raised."""
    lines = [_without_middle(line, SHOWN_LETTERS // 2, SHOWN_LETTERS // 2) for line in text.split("\n")]
    if (left_out := len(lines) - SHOWN_LINES) > 0:
        lines[SHOWN_LINES // 2 : -(SHOWN_LINES // 2)] = [f"... {counted(left_out, 'line')} left out ..."]
    return "\n".join(lines)


def _without_middle(text: str, first: int, last: int) -> str:
    left_out = len(text) - first - last
    if left_out <= LONGEST_NOTE:  # also where this was done before
        return text
    return f"{text[:first]} ... {counted(left_out, 'letter')} left out ... {text[-last:]}"


def printable(text: str) -> str:
    """Text from elsewhere in one line that every terminal takes as it is meant: other characters are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
