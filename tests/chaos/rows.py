"""The rows of a store as any user reads them, and what of them does not depend on when and where they were trained."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from orchestrator.store import PROVENANCE


def read(store: Path) -> pd.DataFrame:
    """The rows of a store by pandas alone."""
    runs = store / "runs"
    if not runs.is_dir() or not any(name.endswith(".parquet") for name in os.listdir(runs)):  # noqa: PTH208
        return pd.DataFrame({"key": []})
    rows = pd.read_parquet(runs)
    return rows if len(rows.columns) else pd.DataFrame({"key": []})  # the files went with the power just now


def comparable(rows: pd.DataFrame) -> list[tuple[object, ...]]:
    """Rows by key without times and places; curves as bytes, so that equality is equality of bits."""
    rows = rows.drop(columns=list(PROVENANCE) if len(rows) else []).sort_values("key")
    return [
        tuple(v.tobytes() if isinstance(v, np.ndarray) else v if v == v else None for v in row)
        for row in rows.itertuples(index=False)
    ]
