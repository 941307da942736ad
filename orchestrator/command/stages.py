"""The runs that a study's runs need (see `trainables.needs`), as a launch plans, shows and judges them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command.cli import checked
from orchestrator.command.progress import Running, format_seconds
from orchestrator.command.tables import FittingTable, accuracy_text
from orchestrator.command.weights import Remaking, finished_runs
from orchestrator.engine.estimate import StepTimes, Work, runs_left
from orchestrator.engine.execution import reason_of
from orchestrator.errors import UserError, counted, printable
from orchestrator.searches import Latest, Row, Rows, Search, ending
from orchestrator.searches.grid import GridSearch
from orchestrator.searches.needs import PASSED, Staged, Unmet, has_passed, needed, with_needed
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore
from orchestrator.store.questions import RUNS, THRESHOLDS, Question
from trainables.check_words import blamed
from trainables.needs import Tasks, needs_others
from trainables.spec import RunSpec, family_key
from trainables.task import Task

ELSEWHERE = "if the cause lay elsewhere (a missing file, a full disk), mend that, and add --retry-failed"
"""What to do about runs that failed, if it was not the task."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Runs that others need and call by one name."""

    name: str
    specs: Mapping[str, RunSpec]
    """Those that are known, by key."""
    missing: Sequence[RunSpec]
    """Those of them that are still to be trained."""
    unnamed: float
    """How many more may be needed by runs that the search will choose."""

    @property
    def left(self) -> int:
        """How many are still to be trained, as far as can be said."""
        return len(self.missing) + round(self.unnamed)

    def seconds(self, times: StepTimes) -> dict[RunSpec, float]:
        """Of each run that is missing."""
        return {spec: spec.max_steps * times(spec) for spec in self.missing}

    def unnamed_runs(self, times: StepTimes) -> tuple[float, float]:
        """Seconds of one of these, and how many there are."""
        typical = next(iter(self.specs.values()))
        return typical.max_steps * times(typical), self.unnamed


class _Asked(Tasks):
    """The tasks of a study, where a mistake in one is the user's."""

    def of(self, spec: RunSpec) -> Task:
        found: Task = checked(super().of, spec)
        return found

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        try:
            with blamed(f"needs() at N = {spec.N}, data_count = {spec.data_count}", ValueError, UserError):
                return super().needs(spec)
        except ValueError as error:
            raise UserError(str(error)) from None


class Stages:
    """What comes before the runs of a study. A task without `needs` has nothing of it, and its search stays what it is.

    Args:
        question: that of the study.
        gates: whether a run that others need must have passed.
        keeps: whether the study keeps the weights of a run by itself.
        remakes: whether finished runs of the study are trained again if their weights are not in the store.

    Raises:
        UserError: finished runs of the study needed other runs than they would need now, or the task cannot say what they need.
    """

    def __init__(
        self,
        task: Task,
        search: Search,
        question: Question,
        store: ResultStore,
        rows: Rows,
        gates: bool,
        keeps: Callable[[RunSpec], bool] = lambda spec: False,
        remakes: bool = False,
    ) -> None:
        self._tasks, self._question, self._store, self._rows = _Asked(task), question, store, rows
        self._of_study, self._keeps = search, keeps
        self._staged = Staged(search, self._tasks, self._find, self._has_weights, gates) if needs_others(task) else None
        self._kept: set[str] | None = None
        """The runs whose weights were seen; None until they have been listed."""
        self._gone: dict[str, Row | None] = {}
        """The runs whose weights were looked for in vain, each with its row then."""
        self._version = task.version
        self._asked = {spec.task for spec in question.every_spec}
        self._complete: set[str | RunSpec] = set()
        """Runs of the study of which the rows have what they needed."""
        self._resting, self._left = Latest(self._rests_on), Latest(self._seconds_of_needed)
        self._asking = search if isinstance(search, GridSearch | ThresholdSearch) else None
        self._thresholds = search if isinstance(search, ThresholdSearch) else None
        self._grid = search if isinstance(search, GridSearch) else None
        self.search: Search = self._staged or search
        if self._staged is not None:
            self._check()
            self._staged.parents(rows, self._known_specs())
            self.complete()
        self._remaking: Remaking | None = None
        if remakes:
            self._remaking = self.search = Remaking(self.search, self._tasks, self._weightless(), self._has_weights)

    def complete(self) -> None:
        """Look up what runs of the study needed, also those of former launches and of others: what is said of a run may rest on
        it, and whether it is asked for at all."""
        if self._staged is None:
            return
        additions = -1
        while additions != self._rows.additions:
            additions = self._rows.additions
            if self._grid is not None:
                specs = [spec for spec in self._grid.asked(self._rows) if spec not in self._complete]
                self._complete.update(specs)
            else:
                rows = [row for row in self._finished(self._rows) if row["key"] not in self._complete]
                self._complete.update(row["key"] for row in rows)
                specs = [RunSpec.from_dict(row) for row in rows]
            self._staged.parents(self._rows, specs)

    def is_parent(self, spec: RunSpec) -> bool:
        """Whether others need this run."""
        return self._staged is not None and self._staged.is_parent(spec)

    def again(self, key: str) -> bool:
        """Whether a finished run is to be trained once more, as its weights are gone."""
        is_needed = self._staged is not None and self._staged.again(key)
        return is_needed or (self._remaking is not None and self._remaking.again(key))

    def is_for_option(self, key: str) -> bool:
        """Whether a finished run is trained once more only as the user wants its weights."""
        return self._remaking is not None and key not in self._needed_now()

    def leave(self, key: str) -> bool:
        """Let a finished run be without weights that only the user wants; False if other runs need them."""
        return self._remaking is not None and self.is_for_option(key) and self._remaking.leave(key)

    def forget(self, key: str) -> None:
        """Look for the weights of a run anew when they are asked for next, as this launch or another may have saved them."""
        self._gone.pop(key, None)
        if self._kept is not None:
            self._kept.discard(key)

    def matters(self, row: Row) -> bool:
        """Whether a row of another launch is that of a run that others need.

        Raises:
            UserError: it is, and the run needed others than it would need now.
        """
        if self._staged is None or self._staged.name(row["key"]) is None:
            return False
        self._check_row(row)
        return True

    def tasks(self) -> dict[str, Task]:
        """By path, the tasks of the study, and those of the runs that its runs need, as far as these are known."""
        specs = self._question.every_spec
        if self._staged is not None:
            known = [key for keys in self._staged.known().values() for key in keys]
            specs += [RunSpec.from_dict(row) for key in known if (row := self._rows.get(key)) is not None]
            of_waiting = self._staged.parents(self._rows, self._staged.waiting(self._rows))
            specs += [spec for of_name in of_waiting.values() for spec in of_name.values()]
        return {spec.task: self._tasks.of(spec) for spec in specs}

    def lost(self) -> str | None:
        """What is to be said at the start of weights that are gone."""
        if self._staged is None:
            return None
        told = ", ".join(f"{count} {name}" for name, count in self._look_up(self._staged).items())
        lacking = f"finished, but without weights in {self._store.location}/weights, so trained again"
        return f"{told} that the next runs need: {lacking}" if told else None

    def without_weights(self) -> str | None:
        """What is to be said of finished runs of which the study keeps the weights, and whose weights are not in the store."""
        if self._remaking is not None or not any(map(self._keeps, self._question.every_spec)):
            return None
        rows = finished_runs(self._of_study, self._rows)
        wanted = with_needed([row for row in rows if self._keeps(RunSpec.from_dict(row))], self._rows.get)
        kept = self._store.with_weights() if wanted else set()
        if not (gone := sum(row["key"] not in kept for row in wanted)):
            return None
        of_all = sum(row["key"] not in kept for row in with_needed(rows, self._rows.get))
        has, them = ("has", "it") if gone == 1 else ("have", "them")
        trained = them if of_all == gone else f"all {of_all} runs without weights"
        return (
            f"{gone} of {counted(len(wanted), 'finished run')} {has} no weights in {self._weights_folder}, so nothing more of "
            f"{them} can be measured or drawn: the same command with --save-weights trains {trained} again"
        )

    def remade(self) -> str | None:
        """What is to be said at the start of finished runs that are trained again, as the user wants their weights."""
        if not (count := len(self._remade())):
            return None
        where = f"without weights in {self._weights_folder} {'is' if count == 1 else 'are'}"
        return f"{counted(count, 'finished run')} {where} trained again (--save-weights)"

    @property
    def _weights_folder(self) -> str:
        return printable(f"{self._store.location}/weights")

    def plan(self, plan: RenderableType, work: Work | None) -> tuple[RenderableType, Work | None]:
        """The plan of a study, and before it the runs that its runs need: of those that nobody can name yet, how many they may
        be; and the finished runs that are trained again for their weights."""
        plan, work = self._plan_of_needed(plan, work)
        if not (rows := self._remade()):
            return plan, work
        table = FittingTable("trained again")
        for name in ("what", "runs to do", "time (about)"):
            table.add_column(name, justify="left" if name == "what" else "right")
        table.add_row("finished runs without weights", str(len(rows)), format_seconds(sum(row["seconds"] for row in rows)))
        return Group(table, plan), self._with_remade(work)

    def _plan_of_needed(self, plan: RenderableType, work: Work | None) -> tuple[RenderableType, Work | None]:
        if self._staged is None:
            return plan, work
        self._look_up(self._staged)
        runs, known = list[tuple[float, float]](), dict[RunSpec, float]()
        table = FittingTable("trained first, as other runs need them")
        for name in ("what", "runs done", "runs to do", "steps of a run", "time (at most)"):
            table.add_column(name, justify="left" if name == "what" else "right")
        for kind in self._kinds(self._staged):
            times, steps = self._times(self._staged, kind.name), max(spec.max_steps for spec in kind.specs.values())
            if kind.left:
                some = kind.missing or list(kind.specs.values())
                times.measure_sizes(some, self._tasks.of(some[0]))
            of_kind, unnamed = kind.seconds(times), kind.unnamed_runs(times)
            runs.append(unnamed)
            known |= of_kind
            to_do = f"{'about ' if kind.unnamed else ''}{kind.left}"
            done = str(len(kind.specs) - len(kind.missing))
            table.add_row(kind.name, done, to_do, str(steps), format_seconds(sum(of_kind.values()) + math.prod(unnamed)))
        if not table.row_count:
            return plan, work
        return Group(table, plan), self._with_needed(work or Work(), known, runs)

    def work_left(self, work: Work | None) -> Work | None:
        """What a study expects of its own runs (None: nothing is known yet), and the same of those that they need."""
        return None if work is None else self._with_remade(self._with_needed(work, *self._left.of(self._rows)))

    def _with_remade(self, work: Work | None) -> Work | None:
        """The work of a study, and the runs that are trained again for their weights."""
        return None if work is None else replace(work, runs=[*work.runs, *((row["seconds"], 1.0) for row in self._remade())])

    def _with_needed(self, work: Work, known: Mapping[RunSpec, float], unnamed: Sequence[tuple[float, float]]) -> Work:
        """The work of a study, and the runs that come before.

        Args:
            known: seconds of each of these that is known and missing.
            unnamed: seconds of others, and how many there are.
        """
        longest = max((self._chain(spec, known) for spec in known), default=0.0)
        return work.after([*((seconds, 1.0) for seconds in known.values()), *unnamed], longest)

    def _chain(self, spec: RunSpec, known: Mapping[RunSpec, float]) -> float:
        """Seconds of a run, and of the longest chain of missing ones before it."""
        before = (self._chain(parent, known) for parent in self._tasks.needs(spec).values())
        return known.get(spec, 0.0) + max(before, default=0.0)

    def table(self, table: RenderableType, running: Mapping[str, Running]) -> RenderableType:
        """The table of a study, and a line for each kind of run that its runs need."""
        lines = [] if self._staged is None else self._lines(self._staged, running)
        return Group(table, *map(Text, lines)) if lines else table

    def line(self, row: Row) -> str | None:
        """A finished run that others need in one plain line; None for any other."""
        name = None if self._staged is None else self._staged.name(row["key"])
        if name is None:
            return None
        run = f"{name} (needed by others): N = {row['N']}, seed {row['seed']}: {ending(row)}"
        if row["accuracy"] is None:
            return run
        of_task = (f", {name} {value:.3f}" for name, value in _own_measures(row).items())
        told = f"accuracy {accuracy_text(row['accuracy'])}{''.join(of_task)}"
        return f"{run} ({told}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def obstacles(self) -> list[str]:
        """Why runs are not trained: a sentence for each run that they need and that has not made it, and for each that keeps
        another seed from taking their place."""
        if self._staged is None:
            return []
        waiting = self._staged.waiting(self._rows)
        needed_by = Counter(key for spec in waiting for of in self._staged.parents(self._rows, [spec]).values() for key in of)
        told, of_spares = [], []
        for unmet in self._staged.unmet(self._rows):
            if count := needed_by[unmet.row["key"]]:
                needs = "needs" if count == 1 else "need"
                told.append(f"{_told(unmet)}, so {counted(count, 'run')} that {needs} it {_was(count)} not trained")
            elif self._grid is not None and self._grid.spares:
                of_spares.append(f"{_told(unmet)}, so its seed is passed over")
        return [*told, *of_spares] if told else []

    def advice(self) -> str:
        """What to do about obstacles."""
        unmet = [] if self._staged is None else self._staged.unmet(self._rows)
        advice = []
        if any(one.row["status"] == "failed" for one in unmet):
            advice.append("where a run failed, fix its task, change its version and that of the tasks that need it")
            advice.append(ELSEWHERE)
        if any(one.row["status"] != "failed" for one in unmet):
            advice.append("to train them although runs that they need missed their targets, add --no-gates")
        return "; ".join(advice)

    def rests_on(self) -> list[dict[str, Any]]:
        """The runs that finished ones needed though they had missed their target, ready for JSON."""
        return self._resting.of(self._rows)

    def _rests_on(self, rows: Rows) -> list[dict[str, Any]]:
        needed_by: Counter[tuple[str, str]] = Counter()
        for row in with_needed(self._finished(rows), rows.get):
            needed_by.update((row.get("parents") or {}).items())
        told = []
        for (name, key), count in needed_by.items():
            parent = rows.get(key)
            if parent is not None and not has_passed(parent):
                about = {column: parent[column] for column in ("status", "accuracy", "target")}
                told.append({"name": name, "key": key, **about, "needed_by": count})
        return told

    def _lines(self, staged: Staged, running: Mapping[str, Running]) -> list[str]:
        busy = Counter(name for key in running if (name := staged.name(key)) is not None)
        lines = []
        for name, keys in staged.known().items():
            found = [row for key in keys if (row := self._rows.get(key)) is not None]
            counts = Counter(ending(row) for row in found)
            ends = ", ".join(f"{count} {word}" for word, count in counts.items())
            now = f", {busy[name]} running" if busy[name] else ""
            lines.append(f"{name}: {len(found)} of {len(keys)} trained{f' ({ends})' if ends else ''}{now}")
        resting: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
        for parent in self.rests_on():
            resting.setdefault((parent["name"], parent["target"]), []).append(parent)
        for (name, target), parents in resting.items():
            count = sum(parent["needed_by"] for parent in parents)
            told = f"{counted(count, 'run')} above {'rests' if count == 1 else 'rest'} on a {name} that did not pass"
            lines.append(f"{told} ({_reached(parents)} where {target:g} was asked for)")
        return lines

    def _seconds_of_needed(self, rows: Rows) -> tuple[dict[RunSpec, float], list[tuple[float, float]]]:
        """The runs left that others need, as far as their time is known: as `_with_needed` takes them."""
        staged, known, unnamed = self._staged, dict[RunSpec, float](), list[tuple[float, float]]()
        timed = [] if staged is None else [(kind, self._times(staged, kind.name)) for kind in self._kinds(staged)]
        for kind, times in timed:
            known |= kind.seconds(times)
            unnamed.append(kind.unnamed_runs(times))
        return known, unnamed

    def _kinds(self, staged: Staged) -> list[_Kind]:
        """The runs that others need, by what they are called, the earliest stage first. It looks nothing up in the store, so a
        thread that only shows the study may ask."""
        common, waiting = self._known_specs(), staged.waiting(self._rows)
        of_common, now = needed(self._tasks, common), needed(self._tasks, waiting)
        results = [] if self._thresholds is None else self._thresholds.answer(self._rows)
        others = max(0.0, runs_left(results) - len(waiting))
        kinds = []
        for name, specs in needed(self._tasks, [*common, *waiting]).items():
            of_now = now.get(name, {})
            missing = [s for key, s in specs.items() if self._rows.get(key) is None or (key in of_now and self._is_gone(key))]
            own = of_now.keys() - of_common.get(name, {}).keys()
            kinds.append(_Kind(name, specs, missing, others * len(own) / len(waiting) if own else 0.0))
        return kinds

    def _times(self, staged: Staged, name: str) -> StepTimes:
        """Of all runs that go by a name."""
        known = (row for key in staged.known().get(name, ()) if (row := self._rows.get(key)) is not None)
        return StepTimes.of(known, on_gpu=self._rows.on_gpu)

    def _known_specs(self) -> list[RunSpec]:
        """The study's runs that are known beforehand, as far as they matter to what they need."""
        specs, asked = self._question.specs, self._question.search
        least = asked.get("least", "data_count")
        for_any_value = []
        for place, template in enumerate(specs.get(THRESHOLDS, ())):
            assert self._thresholds is not None
            values = self._thresholds.rungs(place)
            ends = values[:2] if least == "data_count" else asked["between"]
            low, high = (template.with_value(least, value) for value in (ends[0], ends[-1]))
            if self._tasks.needs(low) == self._tasks.needs(high):
                for_any_value.append(low)
        return [*specs.get(RUNS, ()), *for_any_value]

    def _find(self, spec: RunSpec) -> Row | None:
        if (key := self._tasks.key(spec)) not in self._store:
            return None
        found = self._store.find({"family": {family_key(spec, self._tasks.version(spec))}})
        if (row := next((row for row in found if row["key"] == key), None)) is not None:
            self._check_row(row)
        return row

    def _look_up(self, staged: Staged) -> Counter[str]:
        """Look up in the store what runs that wait need, with the weights; how many of it are finished without, by name."""
        of_waiting = staged.parents(self._rows, staged.waiting(self._rows))
        return Counter(
            name
            for name, specs in of_waiting.items()
            for key in specs
            if (row := self._rows.get(key)) is not None and row["status"] != "failed" and staged.again(key)
        )

    def _weightless(self) -> list[RunSpec]:
        """The finished runs of the study, and those that they needed, whose weights are not in the store."""
        rows = with_needed(finished_runs(self._of_study, self._rows), self._rows.get)
        specs = [RunSpec.from_dict(row) for row in rows if row["status"] != "failed" and not self._has_weights(row["key"])]
        return [spec for spec in specs if self._rows.get(self._tasks.key(spec)) is not None]

    def _remade(self) -> list[Row]:
        """The finished runs that are still to be trained again, but for those that runs to come need. It looks nothing up in
        the store, as `_kinds`."""
        if self._remaking is None:
            return []
        needed_now = self._needed_now()
        keys = [key for key in self._remaking.keys if key not in needed_now and self._is_gone(key)]
        return [row for key in keys if (row := self._rows.get(key)) is not None]

    def _needed_now(self) -> set[str]:
        """The runs that runs to come need."""
        if self._staged is None:
            return set()
        return {key for of in needed(self._tasks, self._staged.waiting(self._rows)).values() for key in of}

    def _has_weights(self, key: str) -> bool:
        """All weights are listed once. Afterwards one run is looked for at a time, and not again where nothing has changed."""
        if self._kept is None:
            self._kept = self._store.with_weights()
            self._gone = {row["key"]: row for row in self._rows if row["key"] not in self._kept}
        if key in self._kept:
            return True
        if self._is_gone(key):
            return False
        if self._store.has_weights(key):
            self._kept.add(key)
        else:
            self._gone[key] = self._rows.get(key)
        return key in self._kept

    def _is_gone(self, key: str) -> bool:
        """Whether weights were looked for in vain, and no other row has come in since."""
        return key in self._gone and self._gone[key] is self._rows.get(key)

    def _finished(self, rows: Rows) -> list[Row]:
        """The finished runs of the study that needed others."""
        return [row for row in (rows if self._asking is None else self._asking.runs(rows)) if self._is_own(row)]

    def _is_own(self, row: Row) -> bool:
        """Whether a row is that of a run of the study that needed others. What a row names is not imported, unless the command
        names it too."""
        return bool(row.get("parents")) and row["task"] in self._asked and row["task_version"] == self._version

    def _check(self) -> None:
        """Refuse rows of runs that needed others than they would need now: their keys do not tell that they are of the past."""
        for row in self._rows:
            if self._is_own(row):
                self._check_row(row)

    def _check_row(self, row: Row) -> None:
        """
        Args:
            row: that of a run whose task the command names, or one that needs it.

        Raises:
            UserError: the run needed others than it would need now. One whose row names none needed none.
        """
        spec = RunSpec.from_dict(row)
        before, now = row["parents"] or {}, self._tasks.parents(spec)
        if before != now:
            parents = {parent.task for parent in self._tasks.needs(spec).values()}
            raise UserError(
                f"run {row['key']} in the store was trained after other runs than it would need now: "
                f"{_pairs(before)}, now {_pairs(now)}. The version of {', '.join(sorted(parents)) or 'a task'} "
                f"has changed, or needs() of {spec.task}: change the version of {spec.task}, too"
            )


def _told(unmet: Unmet) -> str:
    """What has become of a run that others need."""
    row = unmet.row
    run = f"{unmet.name} (run {row['key']}, N = {row['N']}, seed {row['seed']})"
    if row["status"] == "failed":
        return f"{run} failed ({printable(reason_of(row['error'] or ''))[:200]})"
    reached = f"accuracy {_number(row['accuracy'])}, and {row['target']:g} is asked for"
    if row["status"] == PASSED:
        return f"{run} reached its target on the way and ended under it ({reached})"
    return f"{run} missed its target ({reached})" if row["status"] == "missed" else f"{run} {row['status']} ({reached})"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _reached(parents: Sequence[Mapping[str, Any]]) -> str:
    """How runs ended that did not pass, in words."""
    ended = dict.fromkeys("on the way alone" if parent["status"] == PASSED else parent["status"] for parent in parents)
    known = sorted(parent["accuracy"] for parent in parents if parent["accuracy"] is not None)
    ends = dict.fromkeys(map(_number, (known[0], known[-1]) if known else (None,)))
    return f"{' or '.join(ended)}, accuracy {' to '.join(ends)}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else accuracy_text(value)


def _pairs(parents: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {key}" for name, key in parents.items()) or "none"


def _own_measures(row: Row) -> dict[str, float]:
    """What a task measures on what is held out besides the accuracy and the loss: these are often told in better words so."""
    known = ("correct", "loss", "mse")
    found = {name: value for name, value in row["measures"].items() if name not in known and not name.startswith("id_")}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
