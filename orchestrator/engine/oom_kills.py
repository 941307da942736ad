"""Whether the system has ended processes of this machine for want of memory, of which neither they nor Ray can tell."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.engine.control_groups import control_groups

LOOK_SECONDS = 1.0
MEANT_SECONDS = 100.0
"""A worker that is lost within this time may be the process that was ended: Ray misses some only after a minute."""
COUNTERS = ("memory.events", "memory.oom_control")
"""The files of a control group, of version 2 and of version 1, that count the processes of it that were ended."""


@dataclass(slots=True)
class OomKills:
    """Processes that the system has ended for want of memory, since this was made. Each may be one lost worker.

    Args:
        counter: the file that counts them; None, or a file that cannot be read: nothing is known.
    """

    counter: Path | None = None
    _counted: int | None = field(init=False)
    _seen: list[float] = field(default_factory=list)
    """When those were seen that are no lost worker yet."""
    _looked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._counted, self._looked_at = _count(self.counter), time.monotonic()

    def tick(self) -> None:
        """Time passes: look whether there are any more."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._look()

    def take(self) -> bool:
        """Whether a worker that was lost may be one of them, which then is no other worker."""
        self._look()
        if self._seen:
            self._seen.pop()
            return True
        return False

    def _look(self) -> None:
        self._looked_at = now = time.monotonic()
        counted = _count(self.counter)
        more = 0 if counted is None or self._counted is None else max(0, counted - self._counted)
        self._counted = self._counted if counted is None else counted
        self._seen = [at for at in self._seen if now - at <= MEANT_SECONDS] + [now] * more


def oom_counter(
    tree: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup"), machine: Path = Path("/proc/vmstat")
) -> Path | None:
    """The file that counts what the system has ended for want of memory, of this process and of those that it starts: that of
    its own control group, or of the next one above that has any, as for a container. There a process counts whoever has set
    the limit, and those of other groups do not. Without such groups it is that of the whole machine; None if there is none.

    Args:
        tree, own: as for `control_groups`.
        machine: counts all of the machine, of every group.
    """
    files = [group / name for group in control_groups("memory", tree, own) for name in COUNTERS]
    return next((file for file in [*files, machine] if _count(file) is not None), None)


def _count(file: Path | None) -> int | None:
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines() if file is not None else ():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return None
