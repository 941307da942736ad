"""Chooses which runs are trained next, and together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.engine.failures import Failures
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.engine.remade import Remade
from orchestrator.searches import Rows, Search
from orchestrator.store import ResultStore
from trainables.needs import Tasks
from trainables.spec import RunSpec


class Free(NamedTuple):
    """Workers that have no pack."""

    workers: int
    cpu_workers: int
    """Those without a GPU, beside others that have one."""


@dataclass(slots=True)
class Chooser:
    """Claims packs of runs for the workers of one launch.

    Args:
        tasks: those of the runs.
        learn: takes in what other launches on the store have finished.
        remade: which finished runs are trained once more.
    """

    search: Search
    tasks: Tasks
    store: ResultStore
    rows: Rows
    packs: PackSizes
    failures: Failures
    learn: Callable[[], None]
    remade: Remade

    def next_pack(self, free: Free, busy: Mapping[str, RunSpec]) -> dict[str, RunSpec]:
        """The next runs to train together, by key, claimed for this launch; none when there are none at the moment.

        Runs that another launch is training are passed over, and as many more are asked for in their place.

        Args:
            busy: the runs in progress.
        """
        total = sum(free)
        if total <= 0:
            return {}
        running = list(busy.values())
        later = self.failures.later()
        elsewhere, room = 0, 0
        while room < (wanted := len(running) + total * self.packs.largest + later) + elsewhere:
            room = wanted + elsewhere
            needless = later if self.packs.gpu else wanted - len(running) - total
            specs = self.search.propose(self.rows, room, running, room - needless)
            if self.packs.meet(specs):
                continue
            pack, elsewhere = self._claim(specs, free, busy)
            if pack:
                return pack
        return {}

    def _claim(self, specs: Sequence[RunSpec], free: Free, busy: Mapping[str, RunSpec]) -> tuple[dict[str, RunSpec], int]:
        """A pack of the first spec that is free to be trained here and others of its shape, claimed, so that as much is left
        for every other free worker; and how many others cannot be: they are left, other launches are training them, or no free
        worker is for them."""
        keys = ((self.tasks.key(spec), spec) for spec in specs)
        missing = {key: spec for key, spec in keys if key not in busy and not self._is_done(key)}
        ready = {key: spec for key, spec in missing.items() if not self.failures.must_wait(key)}
        pack: dict[str, RunSpec] = {}
        elsewhere = sum(map(self.failures.is_left, missing))
        for key, spec in ready.items():
            idle = free.cpu_workers if self.packs.on_cpu_worker(spec) else free.workers
            if not idle or not self.store.claim(key):
                elsewhere += 1
                continue
            pack[key] = spec
            if (room := self.packs.size(spec)) > 1 and not self.failures.is_alone(key):
                shape = self.packs.together(spec)
                alike = [k for k, s in ready.items() if self.packs.together(s) == shape and not self.failures.is_alone(k)]
                room, left = min(room, -(-len(alike) // idle)), alike[alike.index(key) + 1 :]
                while left and len(pack) < room:
                    now, left = left[: room - len(pack)], left[room - len(pack) :]
                    claimed = self.store.claim_all(now)
                    pack |= {k: ready[k] for k in claimed}
                    elsewhere += len(now) - len(claimed)
            break
        if pack:
            self.learn()
            for key in pack:
                self.remade.forget(key)
            for key in filter(self._is_done, list(pack)):
                self.store.release(key)  # another launch has just finished it
                del pack[key]
        return pack, elsewhere

    def _is_done(self, key: str) -> bool:
        return self.rows.get(key) is not None and not self.remade.again(key)
