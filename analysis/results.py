"""All that a store knows, as figures and claims take it: its runs, and what was measured of them, in one table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import scaling
from analysis.asked import Asked, asked_again, tuned
from analysis.budget import MOST_SECONDS, affordable
from analysis.generators import MEASURES, numbers_of
from analysis.measures.registry import VERSIONS
from analysis.objectives import Answer
from analysis.tasks import BUILT_IN, load_all
from orchestrator.errors import counted, printable
from orchestrator.searches import compact
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.store import MeasureTable, Question, ResultStore, load_questions
from orchestrator.store.place import Stamp
from orchestrator.store.questions import left_out
from trainables.generative.chain import GENERATOR
from trainables.spec import RunSpec, run_key
from trainables.task import Task

OF_RUN = (
    "key", "task", "dataset", "N", "data_count", "fixed_count", "seed", "decoder", "depth", "width", "encoding", "holdout",
    "options", "max_steps", "lr", "batch_size", "weight_decay", "precision", "schedule", "stop", "status", "id_mse", "ood_mse",
    "accuracy",
)  # fmt: skip
OF_QUANTITY = ("measure", "quantity", "layer", "value", "array")


class Fitted:
    """Answers from thresholds. The same thresholds are fitted once: for a study, for the claims about it, and for its page as
    long as it stays the same."""

    def __init__(self) -> None:
        self._before: dict[bytes, scaling.Answer] = {}
        self._now: dict[bytes, scaling.Answer] = {}

    def of(self, thresholds: Sequence[ThresholdResult], settings: Mapping[str, Any]) -> scaling.Answer:
        """As `scaling.Answer.of_results`, for which only the task of the settings matters."""
        made_of = repr((list(thresholds), settings.get("task")))
        key = hashlib.sha256(made_of.encode(errors="surrogatepass")).digest()
        answer = self._now.get(key) or self._before.get(key) or scaling.Answer.of_results(thresholds, settings)
        self._now[key] = answer
        return replace(answer, settings=settings)

    def turn(self) -> None:
        """Forget the answers that were not asked for since the last turn."""
        self._before, self._now = self._now, {}


class Measured:
    """What was measured of the runs of a store. Files that have not changed are not read again."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[dict[str, Stamp], list[tuple[Any, ...]]]] = {}
        """Of each run its files by measure, and what they hold."""

    def of(self, table: MeasureTable, keys: Set[str]) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Of each of these runs the quantities that today's measures give, as values of OF_QUANTITY, in the order of keys."""
        files: dict[str, dict[str, Stamp]] = {}
        for (key, measure, version), stamp in table.stamps().items():
            if key in keys and version == str(VERSIONS.get(measure)):
                files.setdefault(key, {})[measure] = stamp
        kept = {key: one for key, one in self._kept.items() if one[0] == files.get(key)}
        read: dict[str, list[tuple[Any, ...]]] = {}
        for row in table.rows(keys=keys - kept.keys(), versions=VERSIONS):
            read.setdefault(row["key"], []).append(tuple(row[name] for name in OF_QUANTITY))
        self._kept = kept
        found = {key: quantities for key, (_, quantities) in kept.items()} | read
        for key, quantities in read.items():
            # a file that is damaged has to be told of at each look
            if files.get(key, {}).keys() == {measure for measure, *_ in quantities}:
                self._kept[key] = files[key], quantities
        return sorted(found.items())


@dataclass(frozen=True)
class Results:
    """`runs`: the rows of the store that today's task and training would give again; rows of former versions are left out. Rows
    of tasks that are not loaded are there as they are. `table`: a row per quantity of the runs whose task is loaded, as today's
    measures give it, with the columns OF_RUN of its run and OF_QUANTITY; `layer` and `value` are NaN, `array` None, where there
    is none. `notices`: files that could not be read, a line each, and one about runs that are left out. `asked`: what launches
    asked about `runs`."""

    runs: list[dict[str, Any]]
    table: pd.DataFrame
    notices: list[str] = field(default_factory=list)
    store: str = "results"
    """Where it all lies."""
    asked: Sequence[Asked] = ()
    tuned: frozenset[str] = frozenset()
    """The keys of `runs` that are trials of the tune study, or confirm them, and that no other study names."""
    questions: Sequence[Question] = ()
    """All that launches asked, of whatever study and version, but those that are `unanswered`."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """The tasks that are loaded, by path."""
    former: int = 0
    """Runs of former versions, which are left out."""
    damaged: int = 0
    """Files of rows that could not be read."""
    unanswered: int = 0
    """Questions that are left out, as it would take too long to answer them all."""
    fitted: Fitted = field(default_factory=Fitted)

    @cached_property
    def generators(self) -> Answer:
        """What the runs of generators say, whichever studies asked for them, but for those of `tuned`."""
        table = self.table[self.table["measure"].isin(MEASURES)]
        runs = [run for run in self.runs if run["task"] != GENERATOR or run["key"] not in self.tuned]
        return Answer.of_store(runs, numbers_of(table.dropna(subset="value").to_dict("records")), {})

    @classmethod
    def of(
        cls, store: str | Path, tasks: Sequence[str] = (), all_questions: bool = False, measured: Measured | None = None
    ) -> Results:
        """
        Args:
            tasks: import paths that may be loaded, besides those of this project's own tasks.
            all_questions: whether questions are answered however long this takes.
            measured: what was read of the measures of this store before.

        Raises:
            StoreError: the store cannot be read.
            UserError: a task cannot be loaded.
        """
        with ResultStore(store, read_only=True) as rows:
            found, stored = rows.rows(), load_questions(rows)
            for place, row in enumerate(found):  # in place: else all lists are in memory beside all arrays
                found[place] = compact(row)
            notices, damaged = rows.notices, rows.damaged
        questions = stored if all_questions else affordable(stored)
        if unanswered := len(stored) - len(questions):
            told = f"{counted(unanswered, 'question')} of {store} left out: to answer all {len(stored):,} may take more than"
            notices.append(printable(f"{told} {MOST_SECONDS / 60:.0f} minutes; --all-questions answers them"))
        named = {*(row["task"] for row in found), *(question.task for question in questions)}
        loaded = load_all({*tasks, *named.intersection(BUILT_IN)})
        versions = {path: task.version for path, task in loaded.items()}
        runs = [run for run in found if _is_current(run, versions)]
        if former := len(found) - len(runs):
            told = "1 run is of a former version" if former == 1 else f"{former:,} runs are of former versions"
            notices.append(f"{told} of a task or of the training, and left out")
        families = {run["family"] for run in runs}
        asked = asked_again(questions, loaded, families, lambda one, why: notices.append(left_out(store, one.name, why)))
        by_key = {run["key"]: {name: run[name] for name in OF_RUN} for run in runs if run["task"] in versions}
        measures = MeasureTable(store)
        found_of = (measured or Measured()).of(measures, by_key.keys())
        joined = [{**by_key[key], **dict(zip(OF_QUANTITY, one, strict=True))} for key, some in found_of for one in some]
        table = pd.DataFrame(joined, columns=[*OF_RUN, *OF_QUANTITY])
        notices += measures.notices
        table = table.astype({"layer": float, "value": float})
        trials = tuned(stored, runs)
        return cls(runs, table, notices, str(store), asked, trials, questions, loaded, former, damaged, unanswered)


def _is_current(run: dict[str, Any], versions: Mapping[str, str]) -> bool:
    version = versions.get(run["task"])
    return version is None or run_key(RunSpec.from_dict(run), version) == run["key"]
