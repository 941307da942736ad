"""The search that knows all its runs beforehand: every spec of a list, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.searches import Curve, Row, Rows
from trainables.spec import RunSpec, run_key


@dataclass(frozen=True, slots=True)
class GridSearch:
    """Proposes its specs in the order given; satisfies `Search`. Nothing is pruned."""

    specs: Sequence[RunSpec]
    task_version: str

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        busy = {run_key(spec, self.task_version) for spec in running}
        proposed: list[RunSpec] = []
        for spec in self.specs:
            if len(proposed) == room:
                break
            if self.row(rows, spec) is None and run_key(spec, self.task_version) not in busy:
                proposed.append(spec)
        return proposed

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return None

    def finished(self, rows: Rows) -> bool:
        return all(self.row(rows, spec) is not None for spec in self.specs)

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        """The finished run of a spec, or None."""
        return rows.get(run_key(spec, self.task_version))
