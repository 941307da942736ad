"""The cells of the page's tables: numbers with as many digits as one reads, runs as links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.report.findings import number, share
from analysis.report.told import Sheet, in_words
from orchestrator.command.searched import PARTS

MOST_LINES = 200
"""Of a table on the page; its CSV file has all."""
SHORT = 10
"""Letters of a run key."""
NAMES = {
    "images": "threshold (images)",
    "images_lower": "misses, below all that pass", "images_upper": "passes, above all that miss",
    "fixed_images": "always present", "lower_ended": "lower end rests on", "key": "run", "passes": "run that passes",
    "contradicted_by": "contradicted by",
    "misses": "run that misses", "id_mse": "ID MSE", "ood_mse": "OOD MSE",
}  # fmt: skip
"""What columns are called, where their names in the CSV file are too short to say it. A column that has the name of a setting
or measure of a user is called what the heads of its sheet say."""
ACCURACIES = tuple(f"accuracy{part}" for part in PARTS)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows; `key`, if it leads to a run."""

    text: str
    is_number: bool = False
    key: str = ""


def lines_of(sheet: Sheet) -> list[list[Cell]]:
    """The cells of the first MOST_LINES lines."""
    return [[_cell(sheet, name, row[name]) for name in sheet.table] for row in sheet.table.head(MOST_LINES).to_dict("records")]


def heads_of(sheet: Sheet) -> list[Cell]:
    """The names of the columns, in words."""
    columns = zip(sheet.table, _numeric(sheet), strict=True)
    names = {**NAMES, **sheet.heads}
    return [Cell(names.get(str(name), in_words(str(name))), is_number) for name, is_number in columns]


def _numeric(sheet: Sheet) -> Sequence[bool]:
    return [sheet.table[name].map(_is_number).all() and sheet.table[name].notna().any() for name in sheet.table]


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(sheet: Sheet, name: str, value: Any) -> Cell:
    if name in sheet.keys:
        return Cell(str(value)[:SHORT], key=str(value)) if value else Cell("")
    if hasattr(value, "item"):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Cell("", True)
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int | float):
        whole = math.isfinite(value) and (isinstance(value, int) or (name in sheet.counts and value == int(value)))
        if whole:
            return Cell(f"{int(value):,}", True)
        if name in ACCURACIES or name in sheet.shares:
            return Cell(share(value, at_most=name.startswith("unseen_")), True)
        return Cell(number(value), True)
    return Cell(str(value))
