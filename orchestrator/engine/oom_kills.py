"""Whether the system has ended processes of this machine for want of memory, of which neither they nor Ray can tell."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from trainables.control_groups import oom_kills

LOOK_SECONDS = 1.0
MEANT_SECONDS = 100.0
"""A worker that is lost within this time may be the process that was ended: Ray misses some only after a minute."""


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
        self._counted, self._looked_at = oom_kills(self.counter), time.monotonic()

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
        counted = oom_kills(self.counter)
        more = 0 if counted is None or self._counted is None else max(0, counted - self._counted)
        self._counted = self._counted if counted is None else counted
        self._seen = [at for at in self._seen if now - at <= MEANT_SECONDS] + [now] * more
