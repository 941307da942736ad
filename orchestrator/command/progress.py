"""What a user sees while a study runs: one live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.engine.estimate import Work
from orchestrator.engine.messages import RunReport
from orchestrator.errors import printable
from trainables.program import PATH as PROGRAM_TASK
from trainables.spec import RunSpec

if TYPE_CHECKING:
    from orchestrator.engine.execution import Outcome

LAG_SECONDS = 0.3
"""A finished run is told so much later in plain lines: by then its worker has its next one, and is counted."""
QUIET_SECONDS = 10.0
"""Plain lines tell at least so often what is going on while no run has ended, and more rarely the longer a launch takes."""
MOST_QUIET_SECONDS = 600.0
"""Of a long launch."""
ELSEWHERE_SECONDS = 70.0
"""A launch that has had nothing to train for so long, and has heard of no run that ended elsewhere, says what may be wrong. No
run waits as long as that for another try."""
HEARING_SECONDS = 1.0
"""Of the time between two looks so much may count for that: in a longer gap the launch itself was stopped."""
ASIDE_SECONDS = 1.0
"""The longest wait for something to be said that must not keep its speaker."""
SHARE = 0.05
"""The most of its time that a launch spends writing result files while it trains, and as much to guess the time left."""


@dataclass(slots=True)
class Running:
    """One run in progress, as last heard of."""

    spec: RunSpec
    step: int = 0
    accuracy: float | None = None
    summary: Mapping[str, float] = field(default_factory=dict)
    """What its task said at its last look, see `summarise` of `trainables.task.Task`."""


@dataclass(slots=True)
class Sparing:
    """Calls a function each time that it is called, unless that would spend more than a share of the time in the function."""

    act: Callable[[], object]
    share: float = SHARE
    clock: Callable[[], float] = time.monotonic
    _due: float = -math.inf

    def __call__(self) -> None:
        if (began := self.clock()) >= self._due:
            self.act()
            self._due = began + (self.clock() - began) / self.share


@dataclass(slots=True)
class Progress:
    """An engine observer that shows a study's progress. Use it as a context manager.

    Args:
        console: where to show it.
        table: the study's own table, given the runs in progress by key.
        seconds_left: the study's estimate; None while nothing is known.
        line: one finished run in one plain line.
        after_run: called after every finished run (to refresh result files, say).
        outcome: the launch's own runs. Those of other launches are told as well, and not counted.
    """

    console: Console
    table: Callable[[Mapping[str, Running]], RenderableType]
    seconds_left: Callable[[], float | None]
    line: Callable[[Mapping[str, Any]], str]
    after_run: Callable[[], object]
    outcome: Outcome
    running: dict[str, Running] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    _left: float | None = None
    """What `seconds_left` said last."""
    _estimate: Sparing = field(init=False)
    _live: Live | None = None
    _connected: bool = False
    _begun: bool = False
    """Whether a run has been in training here."""
    _held: list[_Finished] = field(default_factory=list)
    """Finished runs that are still to be told, in plain lines."""
    _told: float = 0.0
    """When the last plain line was printed."""
    _idle: float = 0.0
    """For how long there was nothing to train, and nothing was heard of other launches."""
    _looked_at: float = 0.0
    """When this was last looked at."""
    _turn: threading.RLock = field(default_factory=threading.RLock)
    _over: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None
    _unheard: BaseException | None = None
    """Why plain lines cannot be printed any more."""

    def __post_init__(self) -> None:
        self._estimate = Sparing(self._guess)

    def __enter__(self) -> Progress:
        if is_live(self.console):
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
            self.console.show_cursor()  # who stops the launch with Ctrl-Z, or kills it, would else be left without one
        else:
            self._told = time.monotonic()
            self._watcher = threading.Thread(target=self._watch, daemon=True, name="progress")
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self.running.clear()
            self._live.stop()
            self._live = None
        if self._watcher is not None:
            self._over.set()
            self._watcher.join(timeout=1.0)
            self._watcher = None
            self._tell_finished(lag=0.0)

    def connected(self, workers: int) -> None:
        self._connected, self._idle = True, 0.0
        if self._watcher is not None:
            self._say(f"Ray is running with {workers} in parallel; the first workers are starting")

    def started(self, key: str, spec: RunSpec) -> None:
        self._begun, self._idle = True, 0.0
        self.running[key] = Running(spec)

    def progressed(self, key: str, spec: RunSpec, report: RunReport) -> None:
        curves = report.curves.get("curve_summary") or {}
        summary = {name: curve[-1] for name, curve in curves.items() if curve}
        self.running[key] = Running(spec, report.step, report.accuracy, summary)

    def finished(self, row: Mapping[str, Any]) -> None:
        if self._unheard is not None:
            raise self._unheard
        self._told, self._idle = time.monotonic(), 0.0  # its line comes next
        self.running.pop(row["key"], None)
        self.after_run()
        if self._live is None:
            self._estimate()
            told = _Finished(time.monotonic(), self.line(row), self.outcome.trained, self.outcome.failed, self._left)
            with self._turn:
                self._held.append(told)
                self._told = told.at

    def dropped(self, key: str) -> None:
        self.running.pop(key, None)
        self._idle = 0.0

    def notice(self, text: str) -> None:
        self._tell_finished(lag=0.0)
        self._say(text)

    def _render(self) -> RenderableType:
        self._estimate()
        summary = self._summary(self.outcome.trained, self.outcome.failed, self._left)
        shown = [self.table(dict(self.running)), Text(summary, style="dim")]
        self._look()
        if self._is_elsewhere():
            shown.append(Text(self._waiting_for(), style="dim"))
        return Group(*shown)

    def _guess(self) -> None:
        self._left = self.seconds_left()

    def _summary(self, done: int, failed: int, left: float | None) -> str:
        """Runs done, failed and running in this launch, time spent, time left."""
        parts = [f"{done} done", *([f"{failed} failed"] if failed else []), f"{len(self.running)} running"]
        parts += [f"{format_seconds(time.monotonic() - self.began)} spent"]
        parts += [f"about {rough_seconds(left)} left"] if left is not None else []
        return ", ".join(parts)

    def _watch(self) -> None:
        """The thread of plain lines."""
        try:
            while not self._over.wait(LAG_SECONDS / 2):
                self._tell_finished(LAG_SECONDS)
                self._look()
                quiet, spent = time.monotonic() - self._told, time.monotonic() - self.began
                if quiet > max(QUIET_SECONDS, min(spent / 6, MOST_QUIET_SECONDS)):
                    self._say(f"after {format_seconds(spent)}: {self._waiting_for()}")
        except (OSError, SystemExit) as error:  # nobody reads any more
            self._unheard = error

    def _look(self) -> None:
        now = time.monotonic()
        self._idle += min(now - self._looked_at, HEARING_SECONDS)
        self._looked_at = now

    def _is_elsewhere(self) -> bool:
        """Whether what is left seems to be in training elsewhere only, and gets on slowly there, or not at all."""
        return self._connected and not self.running and self._idle > ELSEWHERE_SECONDS

    def _waiting_for(self) -> str:
        """What goes on while no run ends."""
        running = list(self.running.values())
        if not self._connected:
            return "Ray is starting"
        if self._is_elsewhere():
            quiet = "no run is in training here, and for more than a minute none has ended elsewhere"
            why = "perhaps these take long, or that launch was stopped with Ctrl-Z (continue it with fg, or end it)"
            return f"{quiet}: another launch seems to have the runs that are left; {why}"
        if not running and not self._begun:
            first = "the first workers are starting, or another launch has the runs that are left"
            return f"no run is in training here yet: {first}"
        if not running:
            return "no run is in training here: the runs that are left wait for another try, or another launch has them"
        if not any(run.step for run in running):
            return f"{len(running)} running, their workers are starting or wait for a machine"
        step, most = max((run.step, run.spec.max_steps) for run in running)
        return f"{len(running)} running, one is at step {step} of {most}"

    def _tell_finished(self, lag: float) -> None:
        """Tell of the runs that ended more than `lag` seconds ago."""
        with self._turn:
            while self._held and time.monotonic() - self._held[0].at >= lag:
                run = self._held.pop(0)
                self._say(f"{run.line} | {self._summary(run.done, run.failed, run.left)}")

    def _say(self, text: str) -> None:
        with self._turn:
            say(self.console, text)
            self._told = time.monotonic()


class _Finished(NamedTuple):
    """A run that has ended: when, its line, and the state of the launch then."""

    at: float
    line: str
    done: int
    failed: int
    left: float | None


def is_live(console: Console) -> bool:
    """Whether a study is shown there as a live table. FORCE_COLOR gives colours also to a file, and makes no terminal of it."""
    return console.is_terminal and not console.is_dumb_terminal and console.file.isatty()


def say(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colours, no line broken. It may be of an exception of a user's task, so what a
    terminal would take for a command is escaped."""
    shown = "\n".join(printable(line.expandtabs()) for line in text.split("\n"))
    console.print(shown, markup=False, highlight=False, soft_wrap=True)


def say_aside(console: Console, text: str) -> None:
    """As `say`, for who may hold a lock of the store: the live table may be waiting for that while it keeps the console. So it
    is said by another thread, which is waited for only shortly."""

    def speak() -> None:
        with contextlib.suppress(OSError):  # nobody reads any more: what is said next tells
            say(console, text)

    speaker = threading.Thread(target=speak, daemon=True, name="saying")
    speaker.start()
    speaker.join(ASIDE_SECONDS)


def format_seconds(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rough_seconds(seconds: float) -> str:
    """A guessed time, no more exact than it is known: `4 s`, `40 s`, `3 min`, `2 h 05 min`."""
    if seconds < 57.5:
        return f"{round(seconds / 5) * 5 if seconds > 10 else round(seconds)} s"
    if seconds < 3570:
        return f"{max(1, round(seconds / 60))} min"
    return format_seconds(round(seconds / 300) * 300)


def time_taken(row: Mapping[str, Any]) -> str:
    """`200 steps, 3.1 s`. Programs need not tell their steps."""
    steps = f"{row['steps']} steps, " if row["steps"] or row["task"] != PROGRAM_TASK else ""
    return f"{steps}{row['seconds']:.1f} s"


def estimate_text(work: Work | None, workers: int, price: float | None) -> str:
    """Time and cost of what is left to train; None: nobody knows how much it is."""
    if work is None:
        return f"with {workers} in parallel; how long it takes is known when some runs have ended"
    text = f"about {rough_seconds(work.on(workers))} with {workers} in parallel"
    return text if price is None else f"{text}, cost {cost_text(work.seconds, price)}"


def cost_text(seconds: float, price: float) -> str:
    return f"{price * seconds / 3600:.2f} at {price:g} per worker-hour"
