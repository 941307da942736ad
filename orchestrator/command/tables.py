"""The tables that studies show: made to fit, so that a terminal of 80 columns shows every name in full."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


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
