"""What follows a search: its best trials on seeds that no trial has used, and the winner's settings where they are judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.objective import mean
from orchestrator.searches.optuna import OptunaSearch, rank, with_others
from orchestrator.searches.samplers import Trial
from trainables.settings import with_values
from trainables.spec import RunSpec, run_key

TUNED = "tuned"
"""The setting whose values the search chooses."""
FIRST = 100_000
"""The first seed of a trial: no study plans so many seeds, so none takes a pruned trial for a run of its own."""
FRESH = 1000
"""Trials of one search have so many seeds for themselves, and their confirmation the same number of others."""
MOST_SEARCHES = 2**31 - 1
"""The largest seed of a search."""
NO_TRIAL = "no trial was made, as the task can do none of the settings that the search proposed: search other values"


class Followed(ABC):
    """A search, and the runs that follow from what it has found."""

    __slots__ = ()

    @property
    @abstractmethod
    def before(self) -> OptunaSearch | Followed:
        """What these runs follow."""

    @abstractmethod
    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """The runs that follow, setting by setting, as far as they are known."""

    @abstractmethod
    def awaited(self, rows: Rows) -> dict[str, int]:
        """Of each setting whose values are not known yet, how many runs it will have."""

    @abstractmethod
    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        """The finished run of a spec, or None."""

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        """What the search before asks for, with trials up to `fill`; then runs that follow, up to `room`."""
        specs = self.before.propose(rows, room, running, fill)
        return specs + self._missing(rows)[: max(0, room - len(specs))]

    @property
    def is_blocked(self) -> Callable[[Rows, RunSpec], bool] | None:
        """As that of `OptunaSearch`."""
        return self.before.is_blocked

    @is_blocked.setter
    def is_blocked(self, is_blocked: Callable[[Rows, RunSpec], bool] | None) -> None:
        self.before.is_blocked = is_blocked

    def blocks(self, rows: Rows, spec: RunSpec) -> bool:
        """As that of `OptunaSearch`."""
        return self.is_blocked is not None and self.is_blocked(rows, spec)

    def _missing(self, rows: Rows) -> list[RunSpec]:
        """The runs of `finals` that are still to be trained."""
        return [spec for spec, row in self.following(rows) if row is None and not self.blocks(rows, spec)]

    def retry(self, rows: Iterable[Row]) -> None:
        """As `OptunaSearch.retry`."""
        self.before.retry(rows)

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return self.before.pruned_at(rows, spec, curve)

    def finished(self, rows: Rows) -> bool:
        return self.before.finished(rows) and not self._missing(rows)

    def following(self, rows: Rows) -> list[tuple[RunSpec, Row | None]]:
        """Every spec of `finals`, setting by setting, and its row if it has finished."""
        return [(spec, self.row(rows, spec)) for specs in self.finals(rows).values() for spec in specs]

    def runs(self, rows: Rows) -> list[Row]:
        """The finished runs of the search, and those that follow."""
        return self.before.runs(rows) + [row for _, row in self.following(rows) if row is not None]

    def expected(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """The runs of `finals`, and those that will be among them, as far as they are known."""
        return self.finals(rows)

    def planned(self, rows: Rows) -> dict[str, tuple[int, int]]:
        """Of each setting, how many of its runs have finished, and how many are to do. What several settings have in common is
        to do for the first of them."""
        planned, counted = {}, set[RunSpec]()
        for setting, specs in self.expected(rows).items():
            lacking = {spec for spec in specs if self.row(rows, spec) is None}
            missing = {spec for spec in lacking if not self.blocks(rows, spec)}
            planned[setting] = len(specs) - len(lacking), len(missing - counted)
            counted |= missing
        return planned | {setting: (0, count) for setting, count in self.awaited(rows).items()}


@dataclass(slots=True)
class ConfirmBest(Followed):
    """A search, then its best trials over seeds that no trial has used, and the best known point if it is none of these. With
    several objectives the best trials are those of the front, or some of them, spread evenly along the first objective; of
    trials that score alike it is the first. A single one is the best in the last, as is the best known point, see `rank`.

    Args:
        most: how many trials to confirm, beside the known point.
        seeds: the fresh seeds. Without any, the search alone decides, and its best trial is chosen.
    """

    tuning: OptunaSearch
    most: int = 1
    seeds: Sequence[int] = ()

    @property
    def before(self) -> OptunaSearch:
        return self.tuning

    def chosen(self, rows: Rows) -> list[Trial]:
        """The trials that are confirmed, in order of what the search found; none before it has ended."""
        if not self.tuning.finished(rows):
            return []
        if not self.seeds:
            return self.tuning.ranked(rows)[:1]
        return with_others(self._leading(rows), self.tuning.known(rows)[:1])

    def _leading(self, rows: Rows) -> list[Trial]:
        if self.most == 1 or len(self.tuning.aims) == 1:
            return self.tuning.ranked(rows)[: self.most]
        front = sorted(self.tuning.front(rows), key=lambda trial: (trial.scores[0], trial.number))
        front = list({tuple(trial.scores): trial for trial in reversed(front)}.values())[::-1]
        if len(front) <= self.most:
            return front
        return [front[round(i * (len(front) - 1) / (self.most - 1))] for i in range(self.most)]

    def winner(self, rows: Rows) -> Trial | None:
        """The confirmed trial with the best mean over the fresh seeds, in the last objective if there are several, see `rank`;
        of those all of whose seeds ended well. None before it is known, or if there is none."""
        if not self.finished(rows):
            return None
        if not self.seeds:
            return self.tuning.best(rows)
        aims, logs = self.tuning.aims, self.geometric(rows)
        of_trial = [(trial, self.rows_of(rows, trial)) for trial in self.chosen(rows)]
        whole = [(trial, found) for trial, found in of_trial if len(found) == len(self.seeds)]
        sound = [(trial, found) for trial, found in whole if self.tuning.is_complete(found)]

        def place(one: tuple[Trial, Sequence[Row]]) -> list[float]:
            means = [mean([aim.of(row) for row in one[1]], of_aim) for aim, of_aim in zip(aims, logs, strict=True)]
            return rank(means, aims)

        return min(sound, key=place)[0] if sound else None

    def geometric(self, rows: Rows) -> list[bool]:
        """Of each objective, whether means over fresh seeds are geometric: as those of the search, if all fresh numbers are
        positive, too."""
        of_search = self.tuning.geometric(rows)
        fresh = [row for _, row in self.following(rows) if row is not None and self.tuning.is_complete([row])]
        aims = zip(of_search, self.tuning.aims, strict=True)
        return [logs and all(aim.of(row) > 0 for row in fresh) for logs, aim in aims]

    def rows_of(self, rows: Rows, trial: Trial) -> list[Row]:
        """Those that confirm a trial, as far as they have finished."""
        found = (self.row(rows, self.tuning.spec(trial.values, seed)) for seed in self.seeds)
        return [row for row in found if row is not None]

    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """The runs that confirm each chosen trial."""
        return {setting_of(t): [self.tuning.spec(t.values, seed) for seed in self.seeds] for t in self.chosen(rows)}

    def awaited(self, rows: Rows) -> dict[str, int]:
        """The trials that will be confirmed, while they are not known. A front may have fewer."""
        if self.tuning.finished(rows):
            return {}
        if_any = ", if any" if len(self.tuning.aims) > 1 else ""
        names = ["best 1", *(f"best {place}{if_any}" for place in range(2, self.most + 1))]
        return dict.fromkeys(names, len(self.seeds))

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        return rows.get(run_key(spec, self.tuning.task_version))


@dataclass(slots=True)
class ConfirmAndJudge(Followed):
    """A search and its confirmation, then the winner's values over several seeds on what no trial has seen; beside it, settings
    that are known beforehand.

    Args:
        known: setting to the specs of its seeds.
        final: the specs of the seeds that judge the winner, to which its values are still to be given.
    """

    confirming: ConfirmBest
    known: Mapping[str, Sequence[RunSpec]]
    final: Sequence[RunSpec]

    @property
    def tuning(self) -> OptunaSearch:
        return self.confirming.tuning

    @property
    def before(self) -> ConfirmBest:
        return self.confirming

    def finals(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """Specs of every setting; `tuned` is there once the winner is known."""
        finals = {setting: list(specs) for setting, specs in self.known.items()}
        if (best := self.confirming.winner(rows)) is not None:
            finals[TUNED] = [with_values(spec, best.values) for spec in self.final]
        return finals

    def expected(self, rows: Rows) -> dict[str, list[RunSpec]]:
        """As `finals`, and `tuned` from the beginning if nothing is searched."""
        is_given = not self.tuning.dimensions and not self.confirming.finished(rows)
        return self.finals(rows) | ({TUNED: list(self.final)} if is_given else {})

    def awaited(self, rows: Rows) -> dict[str, int]:
        """`tuned`, while a winner is to come whose values are not known yet."""
        is_unknown = self.tuning.dimensions and not self.confirming.finished(rows)
        return {TUNED: len(self.final)} if is_unknown else {}

    def row(self, rows: Rows, spec: RunSpec) -> Row | None:
        return self.confirming.row(rows, spec)


def first_seed_of(search_seed: int) -> int:
    """The first seed of the trials of a search; the confirmation's seeds begin FRESH later."""
    return FIRST + search_seed * 2 * FRESH


def setting_of(trial: Trial) -> str:
    """What a confirmed trial is called."""
    return f"trial {trial.number}"
