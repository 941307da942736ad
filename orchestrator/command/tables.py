"""The tables that studies show: made to fit, so that a terminal of 80 columns shows every name in full. And the digits of the
numbers in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LEAST_DIGITS, MOST_DIGITS = 3, 8
"""Significant digits of a number that is shown."""
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e6
"""Sizes of the numbers that are written without an exponent."""


def runs_text(done: int, asked: int, busy: int) -> str:
    """`2/5 +1`: the runs that are done, of how many, and those in progress."""
    return f"{done}/{asked}" + (f" +{busy}" if busy else "")


def accuracy_text(accuracy: float, digits: int = 3) -> str:
    """Rounded down, so that none that misses its target reads as if it had reached it."""
    shown = math.floor(10**digits * accuracy + 1e-6) / 10**digits if math.isfinite(accuracy) else accuracy
    return f"{shown:.{digits}f}"


def kind_of_mean(geometric: Mapping[str, bool]) -> str:
    """What the means of some numbers are together, by which of them have geometric ones."""
    names = [name for name, is_geometric in geometric.items() if is_geometric]
    if len(names) == len(geometric):
        return "geometric mean"
    return f"mean (geometric of {', '.join(names)})" if names else "mean"


class FittingTable(Table):
    """Where there is not room for all, its cells break between words, and it drops its padding before that would not do. Only
    where not even the longest words have room side by side, these break, and none is cut. Words are shown as they are: some are
    a user's, and brackets in them are no markup."""

    def __init__(self, title: str) -> None:
        super().__init__(title=Text(title, style="table.title"), title_justify="left")

    def add_column(self, header: RenderableType = "", *others: Any, **options: Any) -> None:
        super().add_column(_as_is(header), *others, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_as_is, cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        of_cells = [
            [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)] for column in self.columns
        ]
        least = [max(cell.minimum for cell in cells) for cells in of_cells]
        most = [max(cell.maximum for cell in cells) for cells in of_cells]
        self.padding = (0, 1) if sum(least) + 3 * len(least) + 1 <= options.max_width else 0
        lines = len(least) + 1 + len(least) * sum(self.padding[1::2])
        widths = least.copy()
        for _ in range(options.max_width - lines - sum(least)):
            wanting = max(range(len(widths)), key=lambda i: most[i] - widths[i])
            widths[wanting] = min(widths[wanting] + 1, most[wanting])
        while sum(widths) + lines > options.max_width and max(widths) > 1:
            widest = max(range(len(widths)), key=widths.__getitem__)
            widths[widest] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            column.width, column.overflow = width, "fold"
        return super().__rich_console__(console, options)


def _as_is(cell: RenderableType | None) -> Any:
    return Text(cell) if isinstance(cell, str) else cell


def digits_for(*groups: Iterable[float]) -> int:
    """Significant digits that numbers need to be told apart: the least with which those of every group that differ look
    different. Numbers that MOST_DIGITS do not tell apart ask for no more."""
    return max((_digits_of([value for value in group if math.isfinite(value)]) for group in groups), default=LEAST_DIGITS)


def digits_for_means(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    """Those of the means and intervals of a number in lines `NAME`, `NAME_lower`, `NAME_upper`, and of what the search said of
    it, `NAME_search`."""
    columns = ([row[f"{name}{part}"] for row in rows] for part in ("", "_search"))
    return digits_for(*columns, *([row[f"{name}{part}"] for part in ("_lower", "", "_upper")] for row in rows))


def number_text(value: float, digits: int = LEAST_DIGITS) -> str:
    """A number with so many significant digits, a whole one with all of them. From LEAST_PLAIN to MOST_PLAIN there is no
    exponent. More than LEAST_DIGITS are shown though the last are zeros, so that a column has equally many."""
    if not LEAST_PLAIN <= abs(value) < MOST_PLAIN:
        return f"{value:.{digits}g}"
    if value % 1 == 0:
        return f"{value:.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals and digits == LEAST_DIGITS else text


def _digits_of(values: Sequence[float]) -> int:
    def apart(digits: int) -> int:
        return len({float(number_text(value, digits)) for value in values})

    return max(range(LEAST_DIGITS, MOST_DIGITS + 1), key=apart)
