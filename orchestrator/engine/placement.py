"""Which packs wait for a worker, and when each worker was last heard of."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from orchestrator.errors import LostRayError, counted

LISTENING_SECONDS = 1.0
"""Of the time between two ticks so much may count as silence: in a longer gap the launch itself was stopped, or busy."""
STOPPED_SECONDS = 30.0
"""In a longer gap between two ticks the launch was stopped, or its machine asleep: it was not Ray that let packs wait."""
PATIENCE_SECONDS = 60.0
"""The user is told of packs that no machine takes after so long; again after twice the time, and so on."""
LEAST_HOPELESS_SECONDS = 100.0
"""A launch gives up the embedded Ray after so long at the earliest. Ray notices a worker that was killed as it started only
after a minute (RAY_worker_register_timeout_seconds), and the next one takes up to half a minute to start on a busy machine."""
WHY_NO_WORKER = (
    "the machine is too busy, Ray hangs, or a worker was frozen or killed as it started (Ray notices the latter after a minute)"
)


@dataclass(slots=True)
class Placement:
    """The packs of one launch, by trial id: those that wait for a machine, those that were given to a worker that has trained
    others, and those that a worker is training."""

    hopeless_after: float | None = None
    """The launch ends after so many seconds without a sign of a worker, if some wait for one. None: a cluster may grow."""
    _waiting: set[str] = field(default_factory=set)
    _waiting_since: float = 0.0
    """Since when there have always been some."""
    _heard: dict[str, float] = field(default_factory=dict)
    """When something was heard last of those that have begun."""
    _silent: dict[str, float] = field(default_factory=dict)
    """For how long the launch has listened since to each of those that do not wait, and heard nothing."""
    _ticked: float = math.inf
    _last_sign: float = 0.0
    """When a worker was last placed or heard of."""
    _patience: float = PATIENCE_SECONDS

    def wait(self, trial_id: str) -> None:
        """A machine is wanted for a pack."""
        if not self._waiting:
            self._waiting_since, self._patience = time.monotonic(), PATIENCE_SECONDS
        self._waiting.add(trial_id)

    def is_waiting(self) -> bool:
        """Whether any pack waits for a machine."""
        return bool(self._waiting)

    def give(self, trial_id: str) -> bool:
        """A worker that has trained others is to begin with a pack; whether this is new. No machine is wanted any more."""
        if trial_id not in self._waiting:
            return False
        self._waiting.discard(trial_id)
        self._silent[trial_id] = 0.0
        return True

    def begin(self, trial_id: str) -> None:
        """A worker has begun with it."""
        self._waiting.discard(trial_id)
        self._heard[trial_id] = self._last_sign = time.monotonic()
        self._silent[trial_id] = 0.0

    def has_begun(self, trial_id: str) -> bool:
        return trial_id in self._heard

    def has_any_begun(self) -> bool:
        return bool(self._heard)

    def hear(self, trial_id: str) -> float:
        """Something is heard of a pack, which its worker spent this time on; the seconds since the last time."""
        now = time.monotonic()
        since = now - self._heard.get(trial_id, now)
        self._heard[trial_id] = self._last_sign = now
        self._silent[trial_id] = 0.0
        return since

    def tick(self, deaf: float = 0.0) -> None:
        """Time passes, in which the launch listens, except for the seconds in which it was `deaf`, or if it was stopped."""
        now = time.monotonic()
        gap = now - self._ticked
        listened = max(0.0, min(gap, LISTENING_SECONDS))
        self._put_off(max(deaf, gap - listened if gap > STOPPED_SECONDS else 0.0))
        self._ticked = now
        for trial_id in self._silent:
            self._silent[trial_id] += listened

    def listened(self, trial_id: str) -> float:
        """For how long the launch has listened to a pack since something was heard of it."""
        return self._silent.get(trial_id, 0.0)

    def silent(self, seconds: float) -> dict[str, float]:
        """The packs that a worker has, and of which nothing was heard for longer, with the time."""
        return {trial_id: silent for trial_id, silent in self._silent.items() if silent > seconds}

    def leave(self, trial_id: str) -> None:
        if trial_id in self._waiting:  # its worker died before it had begun: there was one
            self._waiting.discard(trial_id)
            self._waiting_since = self._last_sign = time.monotonic()
        self._heard.pop(trial_id, None)
        self._silent.pop(trial_id, None)

    def excuse(self) -> float:
        """Nobody could be heard, as the launch itself was waiting; the time that all workers spent meanwhile."""
        self._silent = dict.fromkeys(self._silent, 0.0)
        return sum(self.hear(trial_id) for trial_id in self._heard)

    def _put_off(self, seconds: float) -> None:
        """For so long the launch does not know what Ray did."""
        now = time.monotonic()
        self._waiting_since = min(now, self._waiting_since + seconds)
        self._last_sign = min(now, self._last_sign + seconds)

    def complaint(self, packs: int) -> str | LostRayError | None:
        """What to tell the user if packs wait for a machine in vain, or the error that ends the launch if that is hopeless.

        Args:
            packs: how many there are, waiting or not.
        """
        if not self._waiting:
            return None
        now = time.monotonic()
        silent = now - max(self._waiting_since, self._last_sign)
        if self.hopeless_after is not None and silent > self.hopeless_after:
            option = " (--stall-minutes)" if self.hopeless_after > LEAST_HOPELESS_SECONDS else ""
            return LostRayError(f"Ray has started no worker on this machine for {silent:.0f} s{option}: {WHY_NO_WORKER}")
        if (waited := now - self._waiting_since) <= self._patience:
            return None
        self._patience = 2 * waited
        hint = "run `ray status` on the head of the cluster to see what it waits for"
        if self.hopeless_after is not None:
            hint = WHY_NO_WORKER
        waiting = len(self._waiting)
        about = f"{waiting:,} of {counted(packs, 'worker')} {'is' if waiting == 1 else 'are'} waiting"
        return f"no machine was available for {waited:.0f} s, {about}: {hint}"
