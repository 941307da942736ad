"""Tune, then confirm: a search for the best options, and trainings over several seeds of what it chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.samplers import Trial
from orchestrator.searches.space import with_values
from trainables.spec import RunSpec, run_key

TUNED = "tuned"
"""The setting whose options the search chooses."""


@dataclass(slots=True)
class TuneAndConfirm:
    """A search, then the best trial's options over several seeds; beside it, settings that are known beforehand.

    Args:
        tuning: the search on the validation set.
        known: setting to the specs of its seeds.
        final: the specs of the seeds that confirm the best trial, given the values of the searched options.
    """

    tuning: OptunaSearch
    known: Mapping[str, Sequence[RunSpec]]
    final: Sequence[RunSpec]
    """To these the best trial's options are still to be given."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """Trials as the search asks for them, up to `fill`, then final runs up to `room`."""
        specs = self.tuning.propose(rows, room, running, fill)
        missing = [spec for spec, row in self.confirmed(rows) if row is None]
        return specs + missing[: max(0, room - len(specs))]

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return self.tuning.pruned_at(rows, spec, curve)

    def finished(self, rows: Rows) -> bool:
        return self.tuning.finished(rows) and all(row is not None for _, row in self.confirmed(rows))

    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """Specs of every setting; `tuned` is there once the search has ended and a trial of it is complete."""
        finals = {setting: list(specs) for setting, specs in self.known.items()}
        if self.tuning.finished(rows) and (best := self.tuning.best(rows)) is not None:
            finals[TUNED] = [with_values(spec, best.values) for spec in self.final]
        return finals

    def planned(self, rows: Rows) -> dict[str, Sequence[RunSpec]]:
        """As `finals`, with specs for `tuned` in any case: before its options are known, those that await them."""
        return {**self.known, TUNED: self.final} | self.finals(rows)

    def confirmed(self, rows: Rows) -> list[tuple[RunSpec, Row | None]]:
        """Every spec of `finals`, setting by setting, and its row if it has finished."""
        return [(spec, self.row(rows, spec)) for specs in self.finals(rows).values() for spec in specs]

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        return rows.get(run_key(spec, self.tuning.task_version))


@dataclass(slots=True)
class ConfirmBest(TuneAndConfirm):
    """A search, then its best trials over seeds that no trial has used. With several objectives these are trials of the front,
    spread evenly along the first one.

    Args:
        most: how many trials to confirm.
        seeds: the fresh seeds.
    """

    most: int = 1
    seeds: Sequence[int] = ()

    def chosen(self, rows: Rows) -> list[Trial]:
        """The trials that are confirmed, in order of what the search found; none before it has ended."""
        if not self.tuning.finished(rows):
            return []
        if len(self.tuning.aims) == 1:
            return self.tuning.ranked(rows)[: self.most]
        front = sorted(self.tuning.front(rows), key=lambda trial: (trial.scores[0], trial.number))
        if len(front) <= self.most:
            return front
        return [front[round(i * (len(front) - 1) / max(1, self.most - 1))] for i in range(self.most)]

    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        return {setting_of(t): [self.tuning.spec(t.values, seed) for seed in self.seeds] for t in self.chosen(rows)}

    def planned(self, rows: Rows) -> dict[str, Sequence[RunSpec]]:
        """As `finals`; before the trials are known, the runs of one that stands for each."""
        if self.tuning.finished(rows):
            return {**self.finals(rows)}
        waiting = [dataclasses.replace(self.tuning.template, seed=seed) for seed in self.seeds]
        return {f"best {place + 1}": waiting for place in range(self.most)}


def setting_of(trial: Trial) -> str:
    """What a confirmed trial is called."""
    return f"trial {trial.number}"
