"""What a user sees while a study runs: one live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from orchestrator.spec import RunSpec


@dataclass(slots=True)
class Running:
    """One run in progress, as last heard of."""

    spec: RunSpec
    step: int = 0
    accuracy: float | None = None


@dataclass(slots=True)
class Progress:
    """An engine observer that shows a study's progress. Use it as a context manager.

    Args:
        console: where to show it.
        table: the study's own table, given the runs in progress by key.
        seconds_left: the study's estimate; None while nothing is known.
        line: one finished run in one plain line.
        after_run: called after every finished run (to refresh result files, say).
    """

    console: Console
    table: Callable[[Mapping[str, Running]], RenderableType]
    seconds_left: Callable[[], float | None]
    line: Callable[[Mapping[str, Any]], str]
    after_run: Callable[[], object]
    running: dict[str, Running] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self.running.clear()
            self._live.stop()
            self._live = None

    def started(self, key: str, spec: RunSpec) -> None:
        self.running[key] = Running(spec)

    def progressed(self, key: str, spec: RunSpec, report: Mapping[str, Any]) -> None:
        self.running[key] = Running(spec, report["step"], report["accuracy"])

    def finished(self, row: Mapping[str, Any]) -> None:
        self.running.pop(row["key"], None)
        self.done += 1
        self.failed += row["status"] == "failed"
        self.after_run()
        if self._live is None:
            say(self.console, f"{self.line(row)} | {self.summary()}")

    def dropped(self, key: str) -> None:
        self.running.pop(key, None)

    def notice(self, text: str) -> None:
        say(self.console, text)

    def summary(self) -> str:
        """Runs done, running and failed in this launch, time spent, time left."""
        left = self.seconds_left()
        parts = [f"{self.done} done", f"{len(self.running)} running"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{format_seconds(time.monotonic() - self.began)} spent"]
        parts += [f"about {format_seconds(left)} left"] if left is not None else []
        return ", ".join(parts)

    def _render(self) -> RenderableType:
        return Group(self.table(dict(self.running)), Text(self.summary(), style="dim"))


def say(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colours, no line broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def format_seconds(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
