"""All that a store knows, as figures and claims take it: its runs, and what was measured of them, in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.measures import MeasureTable
from orchestrator.spec import RunSpec, run_key
from orchestrator.store import ResultStore
from trainables.task import load_task

OF_RUN = (
    "key", "task", "dataset", "N", "data_count", "fixed_count", "seed", "decoder", "depth", "width", "encoding", "holdout",
    "options", "max_steps", "lr", "batch_size", "weight_decay", "precision", "schedule", "stop", "status", "id_mse", "ood_mse",
    "accuracy",
)  # fmt: skip
OF_QUANTITY = ("measure", "quantity", "layer", "value", "array")


@dataclass(frozen=True, slots=True)
class Results:
    """`runs`: the rows of the store that today's task and training would give again; rows of former versions are left out.
    `table`: a row per quantity, with the columns OF_RUN of its run and OF_QUANTITY; `layer` and `value` are NaN, `array` None,
    where there is none. `notices`: files that could not be read, a line each."""

    runs: list[dict[str, Any]]
    table: pd.DataFrame
    notices: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, store: str | Path) -> Results:
        """
        Raises:
            StoreError: the store cannot be read.
        """
        with ResultStore(store, read_only=True) as rows:
            versions = {path: _version(path) for path in set(rows.table(["task"])["task"].to_pylist())}
            runs = [run for run in rows.rows() if _is_current(run, versions)]
            notices = rows.notices
        by_key = {run["key"]: {name: run[name] for name in OF_RUN} for run in runs}
        measures = MeasureTable(store)
        measured = measures.rows()
        joined = [{**by_key[row["key"]], **{n: row[n] for n in OF_QUANTITY}} for row in measured if row["key"] in by_key]
        table = pd.DataFrame(joined, columns=[*OF_RUN, *OF_QUANTITY])
        return cls(runs, table.astype({"layer": float, "value": float}), [*notices, *measures.notices])


def _version(task: str) -> str | None:
    """The version of a task as it is now; None if it cannot be imported here."""
    try:
        return load_task(task).version
    except ValueError:
        return None


def _is_current(run: dict[str, Any], versions: dict[str, str | None]) -> bool:
    version = versions[run["task"]]
    return version is not None and run_key(RunSpec.from_dict(run), version) == run["key"]
