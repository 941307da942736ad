"""Which launch has claimed what in a bucket, which machines share: leases that expire, where a folder has locks."""

from __future__ import annotations

import atexit
import contextlib
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from urllib.parse import quote, unquote

from orchestrator.store.remote import TELL_AFTER, Remote, RemoteError

LEASE_SECONDS = 90.0
"""A launch that has not renewed its lease for so long, by the clock of the server, holds no claims any more."""
CERTAIN = 0.6
"""The share of LEASE_SECONDS for which a launch relies on its own lease without asking."""
LOOK_EVERY = 2.0
"""Seconds for which a run that another machine was seen to hold is not asked for again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 2.0
"""Seconds between two attempts to get the right to write, at most; they grow from the first to the longest."""
LOST = (-1e9, -1e9)
"""When a lease was renewed that is not certain."""
APPEND = ""
"""What a launch holds, in place of a run, while it writes rows that it has not claimed."""


class Lease:
    """What one launch has claimed, as objects that the launches on other machines see.

        launches/MACHINE.LAUNCH.N/lease        put anew while the launch lives; N is another after it was lost
        launches/MACHINE.LAUNCH.N/claim=NAME   one for each claim

    A bucket has no locks, but who lists after a put sees it: of two launches that put their claims and then list, at least one
    sees the other, and gives way. Both may, never neither. Times are compared as the server gave them, so no clock of a machine
    matters. On one machine the locks of the mirror decide, and its own launches are passed over here.

    A launch that was stopped for longer than LEASE_SECONDS has lost its claims: it takes a new lease and claims them again, but
    for those that others have now. What cannot be excluded: that it is stopped for so long just before an upload, after it made
    sure of its lease.
    """

    def __init__(self, remote: Remote, machine: str, launch: str) -> None:
        self._remote, self._machine, self._launch = remote, machine, launch
        self._guard = threading.RLock()
        self._folder = ""
        self._renewed = (0.0, 0.0)
        self.number = 0
        """Another one after the lease was lost."""
        self.held: set[str] = set()
        self._owed: set[str] = set()
        """Held when the lease was lost, and not claimed again yet."""
        self._doubtful: set[str] = set()
        """Removed by a request that had to be repeated: the first one may yet take effect, on a new claim as well."""
        self._released: set[str] = set()
        """Given back, but still there for the others."""
        self._refused: set[str] = set()
        """Put, or given back, and not the launch's any more; to be removed."""
        self._elsewhere: set[str] = set()
        self._elsewhere_until = 0.0
        self.machines: set[str] = set()
        """The others that had launches when last looked at."""
        self._dead: set[str] = set()
        self._work = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def hold(self) -> None:
        """Make sure that the others see this launch as alive; costs nothing while that is certain."""
        with self._guard:
            while self._owed or not self._certain():
                if not self._certain():
                    self._begin()
                if self._owed and self._certain():
                    self._claim(self._owed)
                    self._owed.clear()

    def holds(self, number: int) -> bool:
        """Whether nothing was lost since the lease had this number."""
        return self.number == number and not self._owed and self._certain()

    def _begin(self) -> None:
        """Take a new lease, under which nothing is held yet."""
        self._owed |= self.held
        self.held, self._released, self._refused, self._doubtful = set(), set(), set(), set()
        self._dead.update(filter(None, [self._folder.removeprefix("launches/")]))
        self.number += 1
        self._folder = f"launches/{self._machine}.{self._launch}.{secrets.token_hex(4)}"
        self._renewed = LOST
        self._renew()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="store lease", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def take(self, names: Collection[str]) -> set[str]:
        """Claim these; those that this launch has then. A living launch of another machine has the others, or may be about to
        write their rows."""
        with self._guard:
            while True:
                if not self._doubtful.isdisjoint(names):
                    self._renewed = LOST
                self.hold()
                again = self._released.intersection(names)
                self._released -= again
                self.held |= again
                new = set(names) - self.held
                if new & self._elsewhere:
                    new -= self._elsewhere if time.monotonic() < self._elsewhere_until else self._look()
                if new:
                    self._claim(new)
                if self._certain():  # else it took so long that others may have taken this launch for dead
                    return self.held.intersection(names)

    def free(self, name: str) -> None:
        """Give a claim back; the others see it within a second or so."""
        with self._guard:
            self._owed.discard(name)
            if name in self.held:
                self.held.discard(name)
                self._released.add(name)
                self._work.set()

    @contextlib.contextmanager
    def alone(self) -> Iterator[set[str]]:
        """Wait for, and hold, the right to write what was not claimed, which one machine has at a time; yields what the others
        have claimed."""
        if APPEND in self.held:  # whoever called has it, as on one machine appends take turns
            yield set(self._elsewhere)
            return
        began, pause, told = time.monotonic(), FIRST_PAUSE, False
        while not self.take([APPEND]):
            waited = time.monotonic() - began
            if waited > 2 * LEASE_SECONDS:
                raise RemoteError("another machine has been writing to it for minutes; run the same command again")
            if waited > TELL_AFTER and not told:
                told = True
                waits = f"waiting for it, up to {2 * LEASE_SECONDS / 60:g} min"
                self._remote.tell(f"another machine is writing to the store {self._remote.uri}, or died lately; {waits}")
            time.sleep(random.uniform(0.1, 1.0) * pause)
            pause = min(1.25 * pause, LONGEST_PAUSE)
            self._elsewhere_until = 0.0
        try:
            yield set(self._elsewhere)
        finally:
            self.free(APPEND)
            with contextlib.suppress(RemoteError), self._remote.briefly():  # else it is done later
                self._tidy()

    def look(self) -> set[str]:
        """What the living launches of other machines hold."""
        with self._guard:
            self.hold()
            return self._look()

    def sweep(self, is_dead: Callable[[str], bool]) -> None:
        """Remove the leases of launches of this machine that have ended."""
        for folder in {name.partition("/")[0] for name in self._remote.list("launches", deep=True)}:
            machine, _, launch = folder.partition(".")
            if machine == self._machine and is_dead(launch.partition(".")[0]):
                self._remote.delete_folder(f"launches/{folder}")

    def close(self) -> None:
        """End the lease and with it every claim. Harmless when repeated."""
        self._closed = True
        self._work.set()
        if self._thread is not None:
            self._thread.join(10)
            atexit.unregister(self.close)
            self._thread = None
            for folder in (*self._dead, self._folder.removeprefix("launches/")):
                with contextlib.suppress(RemoteError), self._remote.briefly():  # else it expires
                    self._remote.delete_folder(f"launches/{folder}")

    def _claim(self, names: Collection[str]) -> None:
        """Put a claim for each, and then look once which of them the others have not."""
        self._refused.update(names)  # until they are known to be held
        self._remote.soon(lambda name: self._remote.put(self._object(name), b""), names)
        seen = self._look()
        free = set[str]() if APPEND in seen else set(names) - seen
        self._refused -= free
        self.held |= free
        if len(free) < len(names):
            self._work.set()

    def _look(self) -> set[str]:
        found = self._remote.list("launches", deep=True)
        latest: dict[str, int] = {}
        for name, (_, mtime) in found.items():
            folder = name.partition("/")[0]
            latest[folder] = max(mtime, latest.get(folder, 0))
        now = max(latest.values(), default=0)  # this launch has put something a moment ago
        alive = {folder for folder, mtime in latest.items() if now - mtime <= LEASE_SECONDS * 1e9}
        self._dead |= {folder for folder in latest if now - latest[folder] > 2 * LEASE_SECONDS * 1e9}
        others = {folder for folder in alive if folder.partition(".")[0] != self._machine}
        self.machines = {folder.partition(".")[0] for folder in others}
        claims = [name.partition("/claim=") for name in found]
        self._elsewhere = {unquote(name) for folder, separator, name in claims if separator and folder in others}
        self._elsewhere_until = time.monotonic() + LOOK_EVERY * random.uniform(0.5, 1.0)
        return self._elsewhere

    def _object(self, name: str) -> str:
        return f"{self._folder}/claim={quote(name, safe='')}"

    def _certain(self) -> bool:
        return bool(self._folder) and self._age() < CERTAIN * LEASE_SECONDS

    def _age(self) -> float:
        """Not by one clock only: the monotonic one may stand still while a laptop sleeps."""
        monotonic, wall = self._renewed
        return max(time.monotonic() - monotonic, time.time() - wall)

    def _renew(self) -> None:
        """What counts is when the attempt began that succeeded."""
        began = LOST

        def begin() -> bool:
            nonlocal began
            began = time.monotonic(), time.time()
            return True

        self._remote.put(f"{self._folder}/lease", b"", begin)
        if self._renewed == LOST or self._age() < LEASE_SECONDS:  # else the others may have taken this launch for dead
            self._renewed = began

    def _keep(self) -> None:
        due = time.monotonic() + LEASE_SECONDS / 5
        while not self._closed:
            self._work.wait(LEASE_SECONDS / 10)
            self._work.clear()
            time.sleep(0.05)  # what is given back together is removed together
            with contextlib.suppress(RemoteError), self._remote.briefly():  # it is tried again
                if not self._closed and time.monotonic() > due:
                    with self._guard:
                        self.hold()
                        self._renew()
                    due = time.monotonic() + LEASE_SECONDS / 5
                self._tidy()

    def _tidy(self) -> None:
        """Remove what was given back, and launches that have ended long ago."""
        with self._guard:
            names, before = self._released | self._refused, self._doubtful
            self._released, self._refused, self._doubtful = set(), names, before | names
            at_once = self._remote.delete([self._object(name) for name in names])
            self._refused = set()
            if at_once:
                self._doubtful = before
            dead, self._dead = self._dead, set()
        for folder in dead:
            self._remote.delete_folder(f"launches/{folder}")
