"""The search that knows its runs beforehand: all of a list, each once, and other seeds of those that cannot be trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.searches import Curve, Latest, Row, Rows
from orchestrator.searches.needs import Needs, has_passed
from trainables.spec import RunSpec, run_key

MOST_SPARES = 1000
"""As many seeds as a study of generators may ask for."""


@dataclass(slots=True)
class GridSearch:
    """Proposes its specs in the order given; satisfies `Search`. Nothing is pruned.

    A run may need others that miss their target. Then it is not trained, and the next seed of the same setting takes its place,
    as long as there are spares.
    """

    specs: Sequence[RunSpec]
    task_version: str
    spares: int = 0
    """How many seeds after the last one each setting may take."""
    needs: Needs | None = None
    """Which runs a run needs; None if that is not known any more: then a spare that was trained replaces a run that was not."""
    _replaced: Latest[Mapping[RunSpec, RunSpec]] = field(init=False, repr=False, compare=False)
    _finished: Latest[bool] = field(init=False, repr=False, compare=False)
    _needed: dict[RunSpec, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """The keys of the runs that a run needs, and that these need in turn."""
    _settings: Mapping[RunSpec, Sequence[RunSpec]] = field(init=False, repr=False, compare=False)
    """The specs of each setting, by that of seed 0."""
    _spares: dict[RunSpec, dict[int, RunSpec]] = field(init=False, repr=False, compare=False)
    """The spares of each setting by seed, as far as they were asked for."""

    def __post_init__(self) -> None:
        self._replaced, self._finished, self._needed, self._spares = Latest(self._replace), Latest(self._has_finished), {}, {}
        self._settings = _by_setting(self.specs) if self.spares else {}

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        busy = {run_key(spec, self.task_version) for spec in running}
        proposed: list[RunSpec] = []
        for spec in self.asked(rows):
            if len(proposed) == room:
                break
            if self.row(rows, spec) is None and run_key(spec, self.task_version) not in busy:
                proposed.append(spec)
        return proposed

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return None

    def finished(self, rows: Rows) -> bool:
        return self._finished.of(rows)

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        """The finished run of a spec, or None."""
        return rows.get(run_key(spec, self.task_version))

    def asked(self, rows: Rows) -> list[RunSpec]:
        """The runs of the answer, in the order of `specs`: these, or what takes their place."""
        replaced = self.replaced(rows)
        return [replaced.get(spec, spec) for spec in self.specs] if replaced else list(self.specs)

    def runs(self, rows: Rows) -> list[Row]:
        """The finished runs of the answer."""
        return [row for spec in self.asked(rows) if (row := self.row(rows, spec)) is not None]

    def replaced(self, rows: Rows) -> Mapping[RunSpec, RunSpec]:
        """The specs that cannot be trained, and what takes their place."""
        return self._replaced.of(rows) if self.spares else {}

    def _has_finished(self, rows: Rows) -> bool:
        return all(self.row(rows, spec) is not None for spec in self.asked(rows))

    def _replace(self, rows: Rows) -> Mapping[RunSpec, RunSpec]:
        found: dict[RunSpec, RunSpec] = {}
        for setting, specs in self._settings.items():
            if lost := [spec for spec in specs if self._is_lost(rows, spec)]:
                spares = (spare for spare in self._spares_of(setting) if not self._is_lost(rows, spare))
                found.update(zip(lost, spares, strict=False))
        return found

    def _spares_of(self, setting: RunSpec) -> Iterator[RunSpec]:
        last = max(spec.seed for spec in self._settings[setting])
        made = self._spares.setdefault(setting, {})
        for seed in range(last + 1, last + 1 + self.spares):
            yield made.get(seed) or made.setdefault(seed, dataclasses.replace(setting, seed=seed))

    def _is_lost(self, rows: Rows, spec: RunSpec) -> bool:
        """Whether a run cannot be trained, since one that it needs has missed its target. Where one failed, its task has to be
        mended."""
        if self.needs is None:
            return self.row(rows, spec) is None
        if spec not in self._needed:
            self._needed[spec] = tuple(_keys(self.needs, spec))
        return any((row := rows.get(key)) is not None and _has_missed(row) for key in self._needed[spec])


def _by_setting(specs: Iterable[RunSpec]) -> dict[RunSpec, list[RunSpec]]:
    found: dict[RunSpec, list[RunSpec]] = {}
    for spec in specs:
        found.setdefault(dataclasses.replace(spec, seed=0), []).append(spec)
    return found


def _has_missed(row: Row) -> bool:
    return row["status"] != "failed" and not has_passed(row)


def _keys(needs: Needs, spec: RunSpec) -> Iterator[str]:
    for parent in needs.needs(spec).values():
        yield needs.key(parent)
        yield from _keys(needs, parent)
