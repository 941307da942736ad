"""A program in a process group of its own: nothing of it outlives whoever started it, and its output is read as it comes."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

GUARD = str(Path(__file__).with_name("guard.py"))
CHUNK = 2**16
LONGEST_LINE = 2**16
"""Bytes of a line that are read."""
KEPT = LONGEST_LINE + len(codecs.BOM_UTF8) + 1
"""Bytes of a line that are kept as long as it goes on: what is beyond them is thrown away, and that there was more is known."""
LAST_LINES, SHOWN = 20, 500
"""Lines of each output that are kept for an error, and characters of each."""
LINGERING_SECONDS = 2.0
"""When the program has ended, and somewhere someone still holds its output open, it is read for so much longer."""
KILL_SECONDS = 10.0


class Ending(NamedTuple):
    """How a program ended: its `code`, minus the number of the signal if one ended it; or, in words, what became of it."""

    code: int | None
    why: str = ""


class Process:
    """A program that has been started. The word that names it is looked up as a shell does; no shell is involved.

    Args:
        words: the program and what it is given.
        environment: all of it.
        heard: takes each line of its standard output that begins with a brace, in a thread. Of one that has more bytes than
            LONGEST_LINE it is given one byte more than that. It must not raise.
        changed: is set when the program is over.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], heard: Callable[[bytes], None], changed: threading.Event
    ) -> None:
        self.ending: Ending | None = None
        """Set when the program is over and all its output was read."""
        self.last_sign = time.monotonic()
        """When it was started, or printed something last."""
        self._changed = changed
        self._group: int | None = None
        self._told = b""
        listening, telling = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", GUARD, str(telling), *words]
            self._guard = subprocess.Popen(
                command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                bufsize=0, pass_fds=(telling,), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(listening)
            raise
        finally:
            os.close(telling)
        assert self._guard.stdout is not None
        assert self._guard.stderr is not None
        self._output, self._errors = _Lines(heard), _Lines()
        readers = {self._guard.stdout.fileno(): self._output.take, self._guard.stderr.fileno(): self._errors.take}
        readers[listening] = self._learn
        self._listening = listening
        self._reader = threading.Thread(target=self._read, args=(readers,), daemon=True, name="program")
        self._reader.start()

    @property
    def last_lines(self) -> str:
        """The end of what it printed, in printable characters, once it is over."""
        parts = {"stderr": self._errors.last, "stdout": self._output.last}
        return "\n".join("\n".join([f"{name}:", *lines]) for name, lines in parts.items() if lines)

    @property
    def last_line(self) -> str:
        """The last line of its standard output that is not empty, once it is over, without what is blank around it."""
        return self._output.last_line

    def end(self) -> None:
        """Ask it to end; it is killed if it does not."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self._guard.stdin.write(b"t")

    def kill(self) -> None:
        """Kill it, with all that it has started, unless it is over. Returns when it is gone."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._reader.join(KILL_SECONDS)

    def _read(self, readers: dict[int, Callable[[bytes], None]]) -> None:
        """Pass on what comes, until all pipes are closed."""
        over: float | None = None
        with selectors.DefaultSelector() as selector:
            for number in readers:
                selector.register(number, selectors.EVENT_READ)
            while selector.get_map() and (over is None or time.monotonic() < over):
                for key, _ in selector.select(LINGERING_SECONDS):
                    if chunk := os.read(key.fd, CHUNK):
                        self.last_sign = time.monotonic()
                        readers[key.fd](chunk)
                    else:
                        selector.unregister(key.fd)
                        if key.fd == self._listening:  # the guard is gone, so the program is
                            over = time.monotonic() + LINGERING_SECONDS
                            self._kill_orphans()
        for lines in (self._output, self._errors):
            lines.finish()
        os.close(self._listening)
        for pipe in (self._guard.stdin, self._guard.stdout, self._guard.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._guard.wait()
        self.ending = self._how_it_ended()
        self._changed.set()

    def _learn(self, chunk: bytes) -> None:
        """What the guard tells, which is little: the number of the process group comes first."""
        self._told += chunk
        word, _, rest = self._told.partition(b"\n")[0].partition(b" ")
        if word == b"pid" and b"\n" in self._told:
            self._group = int(rest)

    def _kill_orphans(self) -> None:
        """If someone has killed the guard, the program is without one."""
        if self._group is not None and self._told.count(b"\n") < 2:
            with contextlib.suppress(OSError):
                os.killpg(self._group, 9)

    def _how_it_ended(self) -> Ending:
        last = self._told.decode(errors="replace").rstrip("\n").rpartition("\n")[2]
        word, _, rest = last.partition(" ")
        if word in ("exit", "signal"):
            return Ending(int(rest) if word == "exit" else -int(rest))
        if word == "error":
            return Ending(None, f"did not run: {rest}")
        return Ending(None, f"{'did not run' if self._group is None else 'was ended'}: its guard was killed")


class _Lines:
    """Lines from chunks of bytes. No more is kept than the last ones, and no more is looked at than those that may be JSON: a
    program may print millions.

    Args:
        heard: takes each line that begins with a brace, as that of a `Process`.
    """

    def __init__(self, heard: Callable[[bytes], None] = lambda line: None) -> None:
        self._heard = heard
        self._part = b""
        self._has_begun = False
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)

    def take(self, chunk: bytes) -> None:
        ended, end, rest = chunk.rpartition(b"\n")
        if end:
            self._add(self._part + ended)
            self._part = b""
        self._part = _last_part(self._part + rest)[:KEPT]

    def finish(self) -> None:
        """What was printed last may have no end of line."""
        self._add(self._part)
        self._part = b""

    @property
    def last(self) -> list[str]:
        """The last lines that are not empty; of a bar of progress, what a terminal would show."""
        lines = map(_text, self._last)
        return ["".join(c if c.isprintable() else repr(c)[1:-1] for c in line[:SHOWN])[:SHOWN] for line in lines]

    @property
    def last_line(self) -> str:
        """The last of these as it was printed, without what is blank around it; empty if nothing was printed."""
        return next((text for line in reversed(self._last) if (text := _text(line).strip())), "")

    def _add(self, lines: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            lines = lines.removeprefix(codecs.BOM_UTF8)  # some programs write it before all else
        if b"{" in lines:
            for line in map(_last_part, lines.split(b"\n")):
                if line.lstrip().startswith(b"{"):
                    self._heard(line.rstrip(b"\r")[: LONGEST_LINE + 1])
        latest = lines.rstrip().rsplit(b"\n", 2 * LAST_LINES)[-2 * LAST_LINES :]  # some may be empty
        self._last.extend(_last_part(line)[:LONGEST_LINE] for line in latest if line.strip())


def _text(line: bytes) -> str:
    return _last_part(line).rstrip(b"\r").decode(errors="replace")


def _last_part(line: bytes) -> bytes:
    """What a terminal shows of a line: a bar of progress goes back to its beginning. Ends of lines may be carriage returns."""
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]
