"""A run that a program carries out: started, listened to, and ended."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from typing import Any

from trainables.control_groups import oom_counter, oom_kills
from trainables.process import LONGEST_LINE, Ending, Process
from trainables.program import OWN_FILES, changed_files, words_of
from trainables.spec import LARGEST, RunSpec
from trainables.training.result import Progress, RunResult
from trainables.training.run import RunError, UnfitError

MOST_POINTS = 1000
"""Points of a curve. When there are as many, every second one is dropped, and from then on half as many are kept."""
MOST_MEASURES, LONGEST_NAME = 100, 100
NOT_PASSED_ON = ("RAY_", "TUNE_")
"""Variables of a worker that are no concern of its programs, such as the token of its Ray."""
SET = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""Variables that programs have unless the user has set them: other runs use the other cores, and lines come when they are
printed."""
EXAMPLE = '{"accuracy": 0.93}'
SHOWN = 200
"""Characters that are quoted of a line."""
BEGINNING = 40
"""Bytes that are quoted of a line that is too long."""
ROUNDING = 1e-6
"""By which a share may exceed 1, as the mean of ones in float32, or fall below 0, as 1 minus the mean of errors."""

KILLED_FOR_MEMORY = "the program ran out of memory: the system has ended it, or another process"
LISTENING_SECONDS = 1.0
"""The longest wait for a sign of a program. In a longer gap the machine stood still, and the program with it."""

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a program ends that the system ends for want of memory, and how a shell tells of it."""

PASSES, DIVERGES, WRONG = "target", "diverged", "wrong"


class PrintedError(RunError):
    """A program printed no accuracy, or one that is no share, or a line that is too long to be read. That is its mistake and
    not one of the machine, so another try would end the same. The first line of the message says all."""


class Told:
    """What a program has told so far, from the lines that it prints. As soon as they decide how the run ends, no more are read,
    so that the result does not depend on how fast the program is stopped.

    Args:
        decided: is set when they do.
    """

    def __init__(self, spec: RunSpec, decided: threading.Event) -> None:
        self.step = 0
        self.accuracy: float | None = None
        self.loss: float | None = None
        self.error: float | None = None
        self.measures: dict[str, float] = {}
        self.passage_step: int | None = None
        self.verdict = ""
        """PASSES, DIVERGES or WRONG; empty as long as the run goes on."""
        self.wrong = ""
        self.line = ""
        """The line that told the accuracy that counts."""
        self.no_number = ""
        """The last line with an accuracy, if this is no number, such as one in quotes. An accuracy of null, where there are
        others, is none."""
        self._spec, self._decided = spec, decided
        self._turn = threading.Lock()
        self._points: list[tuple[int, float, float, float]] = []
        self._point: tuple[int, float, float, float] | None = None
        self._stride, self._count = 1, 0

    def hear(self, line: bytes) -> None:
        """A line that may be a JSON object. One of more bytes than LONGEST_LINE is not whole."""
        if self.verdict:
            return
        try:
            told = json.loads(line[:LONGEST_LINE].decode(errors="replace"))
        except (ValueError, RecursionError):
            told = None
            if len(line) > LONGEST_LINE and line.lstrip()[1:].lstrip().startswith(b'"'):  # it begins as an object does
                told_in = f"a line of more than {LONGEST_LINE >> 10} KiB, which begins with {_beginning(line)!r}"
                lost = "It was not read, so an accuracy in it is lost"
                self.wrong = f"the program printed JSON in {told_in}. {lost}: print what is long to a file"
                self.verdict = WRONG
        if isinstance(told, dict):
            with self._turn:
                self._take(told, line.decode(errors="replace"))
        if self.verdict:
            self._decided.set()

    def finish(self, last_line: str) -> None:
        """The program has ended: a number alone in its last line is the accuracy, if it told none otherwise."""
        if self.accuracy is None and not self.verdict and "_" not in last_line:  # 1_0 is no number but in Python
            with contextlib.suppress(ValueError):
                self._take({"accuracy": float(last_line)}, last_line)

    @property
    def curves(self) -> tuple[list[int], list[float], list[float], list[float]]:
        """Step, loss, accuracy and error of each point; NaN is what was not told."""
        with self._turn:
            points = list(self._points)
            if self._point is not None and (not points or points[-1] is not self._point):
                points.append(self._point)
        return [p[0] for p in points], [p[1] for p in points], [p[2] for p in points], [p[3] for p in points]

    def _take(self, told: dict[str, Any], line: str) -> None:
        numbers = {name: number for name, value in told.items() if (number := _number(value)) is not None}
        step, accuracy, loss, error = (numbers.pop(name, None) for name in ("step", "accuracy", "loss", "mse"))
        for name, value in numbers.items():
            if name in self.measures or (len(self.measures) < MOST_MEASURES and _is_name(name)):
                self.measures[name] = value
        if accuracy is not None:
            self.no_number = ""
        elif "accuracy" in told and (told["accuracy"] is not None or self.accuracy is None):
            self.no_number = line.strip()
        if accuracy is not None and -ROUNDING <= accuracy <= 1 + ROUNDING:
            accuracy = max(0.0, min(accuracy, 1.0))
        if accuracy is not None:
            self.accuracy, self.line = accuracy, line.strip()
        self.loss = self.loss if loss is None else loss
        self.error = self.error if error is None else error
        if step is not None and step.is_integer() and self.step <= step <= LARGEST:
            self.step = int(step)
            if (accuracy, loss, error) != (None, None, None):
                values = (math.nan if value is None else value for value in (loss, accuracy, error))
                self._add((self.step, *values))  # type: ignore[arg-type]
        if any(value is not None and not math.isfinite(value) for value in (accuracy, loss)):
            self.verdict = DIVERGES
        elif accuracy is not None and not 0 <= accuracy <= 1:
            self.verdict = WRONG
            told_in = f"told an accuracy of {accuracy:.12g}, in the line {self.line[:SHOWN]!r}"
            self.wrong = f"the program {told_in}: it must be a share, from 0 to 1"
        elif accuracy is not None and accuracy >= self._spec.target and self.passage_step is None:
            self.passage_step = self.step
            self.verdict = "" if self._spec.stop == "budget" else PASSES

    def _add(self, point: tuple[int, float, float, float]) -> None:
        self._point = point
        self._count += 1
        if self._count % self._stride == 0:
            self._points.append(point)
        if len(self._points) >= MOST_POINTS:
            self._points = self._points[1::2]
            self._stride *= 2


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number that no float holds
        return None


def _beginning(line: bytes) -> str:
    return line.strip()[:BEGINNING].decode(errors="ignore")


def _is_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


class ProgramRun:
    """A run that a program carries out; a `Run`.

    Its accuracy may reach the target: then the program is ended. If it ends by itself, with exit code 0, the run has missed. It
    is never given up: what it tells need not be evenly spaced, and nothing is known of its loss and of its weights. It has no
    checkpoints.

    Args:
        stall_seconds: a program that prints nothing for so long, while it was listened to, has failed.
    """

    curve_summary = None
    error_is_mse = True

    def __init__(self, spec: RunSpec, device: str = "cpu", stall_seconds: float = math.inf) -> None:
        self.spec, self.device, self.reason = spec, device, ""
        self.curve_step: list[int] = []
        self.curve_loss: list[float] = []
        self.curve_accuracy: list[float] = []
        self.curve_error: list[float] = []
        self._stall_seconds = stall_seconds
        self._silent, self._last_sign = 0.0, 0.0
        """For how long it was listened to since its last sign, and when that was."""
        self._changed = threading.Event()
        self._told = Told(spec, self._changed)
        self._process: Process | None = None
        self._asked_to_end = False
        self._oom_counter = oom_counter()
        self._oom_kills = oom_kills(self._oom_counter)
        """What the system had ended for want of memory before the program began."""

    def advance(self, seconds: float | None = None) -> bool:
        """Wait until the run is finished or `seconds` are over; True if finished.

        Raises:
            RunError: the program cannot be started, fails, or prints nothing for too long.
            PrintedError: it has told no accuracy, one that is no share, or a line that is too long.
            UnfitError: its files are not those that the run is about.
        """
        end = math.inf if seconds is None else time.monotonic() + seconds
        process = self._process = self._process or self._start()
        while not self.reason:
            began = time.monotonic()
            self._changed.wait(max(0.0, min(end - began, self._stall_seconds - self._silent, LISTENING_SECONDS)))
            self._changed.clear()
            self._silent += min(time.monotonic() - began, LISTENING_SECONDS)
            if process.last_sign != self._last_sign:
                self._silent, self._last_sign = 0.0, process.last_sign
            if process.ending is not None:
                self.reason = self._settled(process, process.ending)
            elif self._told.verdict and not self._asked_to_end:
                self._asked_to_end = True
                process.end()
            elif self._silent >= self._stall_seconds:
                process.kill()
                why = f"the program printed nothing for {self._silent:.0f} s (--stall-minutes), so it was killed"
                raise RunError(_with(process, why))
            if time.monotonic() >= end:
                break
        self.curve_step, self.curve_loss, self.curve_accuracy, self.curve_error = self._told.curves
        return bool(self.reason)

    @property
    def progress(self) -> Progress:
        """What was told last; NaN is what was not told."""
        loss, accuracy = (math.nan if value is None else value for value in (self._told.loss, self._told.accuracy))
        return Progress(self._told.step, loss, accuracy)

    @property
    def line(self) -> str:
        """The line of its output that told the accuracy that counts."""
        return self._told.line

    def result(self) -> RunResult:
        """
        Raises:
            RuntimeError: the run is not finished.
        """
        if not self.reason:
            raise RuntimeError("the run is not finished: its program goes on")
        told = self._told
        assert told.accuracy is not None or self.reason == DIVERGES
        status = "diverged" if self.reason == DIVERGES else "missed" if told.passage_step is None else "passed"
        return RunResult(
            status=status,
            reason=self.reason,
            steps=told.step,
            passage_step=told.passage_step,
            accuracy=told.accuracy,
            id_mse=None,
            ood_mse=told.error,
            loss=told.loss,
            measures=dict(told.measures),
            curve_step=list(self.curve_step),
            curve_loss=list(self.curve_loss),
            curve_accuracy=list(self.curve_accuracy),
            curve_error=list(self.curve_error),
            device=self.device,
        )

    def state_dict(self) -> None:
        """None: a program begins anew."""
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _start(self) -> Process:
        """
        Raises:
            UnfitError: its files are not those that the run is about.
        """
        if changed := changed_files(self.spec):
            raise UnfitError(
                f"{', '.join(changed)} cannot be read here, or is not the file that the study began with, so this machine "
                "cannot train the runs of the study: put the file back, the same on all machines, and the same command "
                "continues. A file that was changed on purpose is another program, and its runs are trained anew. If the "
                f'program writes this file itself, {OWN_FILES}["train.py"]'
            )
        environment = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED_ON)}
        return Process(words_of(self.spec), SET | environment, self._told.hear, self._changed)

    def _settled(self, process: Process, ending: Ending) -> str:
        """Why the run ended, now that the program has.

        Raises:
            RunError: it has failed.
            PrintedError: it has told no accuracy, one that is no share, or a line that is too long.
        """
        told = self._told
        if not told.verdict and ending.code is None:
            raise RunError(_with(process, f"the program {words_of(self.spec)[0]!r} {ending.why}"))
        if not told.verdict and ending.code:
            how = f"with exit code {ending.code}" if ending.code > 0 else f"by {_signal_name(-ending.code)}"
            why = f"{KILLED_FOR_MEMORY} ({how})" if self._was_killed_for_memory(ending.code) else f"the program ended {how}"
            raise RunError(_with(process, why))
        told.finish(process.last_line)
        if told.verdict == WRONG:
            raise PrintedError(_with(process, told.wrong))
        if (told.accuracy is None or told.no_number) and not told.verdict:
            printed = f"its last line is {process.last_line[:SHOWN]!r}" if process.last_line else "it printed nothing"
            if told.no_number:
                printed = f"what stands for it in {told.no_number[:SHOWN]!r} is no number"
            wanted = f"Let it print a line such as {EXAMPLE}, or a share from 0 to 1 alone in its last line"
            at_last = " in the end" if told.accuracy is not None else ""
            raise PrintedError(_with(process, f"the program told no accuracy{at_last}: {printed}. {wanted}"))
        return told.verdict or "ended"

    def _was_killed_for_memory(self, code: int) -> bool:
        """Perhaps it was another process that the system has ended meanwhile."""
        now = oom_kills(self._oom_counter)
        return code in KILLED and now is not None and self._oom_kills is not None and now > self._oom_kills


def _with(process: Process, why: str) -> str:
    return "\n".join(filter(None, (why, process.last_lines)))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
