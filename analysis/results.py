"""All that a store knows, as figures and claims take it: its runs, and what was measured of them, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.measures import MeasureTable
from orchestrator.store import ResultStore

OF_RUN = (
    "key", "task", "dataset", "N", "data_count", "fixed_count", "seed", "decoder", "depth", "width", "encoding", "holdout",
    "options", "max_steps", "lr", "batch_size", "weight_decay", "precision", "schedule", "stop", "status", "id_mse", "ood_mse",
    "accuracy",
)  # fmt: skip
OF_QUANTITY = ("measure", "quantity", "layer", "value", "array")


@dataclass(frozen=True, slots=True)
class Results:
    """`runs`: the rows of the store. `table`: a row per quantity, with the columns OF_RUN of its run and OF_QUANTITY; `layer`
    and `value` are NaN, `array` None, where there is none."""

    runs: list[dict[str, Any]]
    table: pd.DataFrame

    @classmethod
    def of(cls, store: Path) -> Results:
        """
        Raises:
            StoreError: the store cannot be read.
        """
        with ResultStore(store, read_only=True) as rows:
            runs = rows.rows()
        by_key = {run["key"]: {name: run[name] for name in OF_RUN} for run in runs}
        measured = MeasureTable(store).rows()
        joined = [{**by_key[row["key"]], **{n: row[n] for n in OF_QUANTITY}} for row in measured if row["key"] in by_key]
        table = pd.DataFrame(joined, columns=[*OF_RUN, *OF_QUANTITY])
        return cls(runs, table.astype({"layer": float, "value": float}))
