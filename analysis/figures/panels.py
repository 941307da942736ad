"""What the figures of trained decoders share: picking a run out of the joined table, the dashed box, bands over seeds.

The table has one row per quantity of a run: the columns of the run, and `measure, quantity, layer, value, array`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from trainables.heldout import box_bounds

COLUMN, PAGE = 3.4, 7.0
"""Widths of a figure in inches."""
SMALL = 7
"""Least font size in points at that width."""
MOST_LAYERS = 40
"""Layers or depths that a figure names or shows: measures from elsewhere may be of thousands."""
ENCODING_NAMES = {"bump": "bump code", "one-hot": "one-hot code", "positional": "positional code", "ramp": "ramp code"}
DECODER_NAMES = {"cnn": "CNN", "mlp": "MLP"}
DECODER_MARKERS = {"cnn": "o", "mlp": "s"}
LEVEL_COLOURS = ("#3465a4", "#e78ac3", "#c8102e", "#606060")
"""Of the seen compositions, and of levels 1, 2 and 3."""
HATCHES = ("", "//", "xx", "..")
"""For who does not see colours: of levels, or of settings."""


def rows_of(table: pd.DataFrame, quantity: str, layer: int | None = None, **columns: Any) -> pd.DataFrame:
    """The rows of one quantity (at one layer) of the runs with these columns, lowest seed first."""
    chosen = table["quantity"] == quantity
    if layer is not None:
        chosen &= table["layer"] == layer
    for name, wanted in columns.items():
        chosen &= table[name] == wanted
    return table[chosen].sort_values("seed", kind="stable")


def array_of(table: pd.DataFrame, quantity: str, layer: int | None = None, **columns: Any) -> np.ndarray:
    """The array of a quantity, of the lowest seed that has it among the runs with these columns.

    Raises:
        LookupError: no run has it.
    """
    arrays = rows_of(table, quantity, layer, **columns)["array"].dropna()
    if arrays.empty:
        raise LookupError(f"no run has the array {quantity!r}, layer {layer}, {columns}")
    return np.asarray(arrays.iloc[0])


def values_of(table: pd.DataFrame, quantity: str, layer: int | None = None, **columns: Any) -> np.ndarray:
    """The numbers of a quantity, one per run with these columns, by seed."""
    return rows_of(table, quantity, layer, **columns)["value"].to_numpy(float)


def box_of(table: pd.DataFrame) -> tuple[int, int]:
    """First and last coordinate of the held-out box of the table's runs, which share it."""
    bounds = box_bounds(str(table["holdout"].iloc[0]), int(table["N"].iloc[0]))
    assert bounds is not None, "runs without a held-out box are not analysed"
    return bounds


def in_order(table: pd.DataFrame, column: str, order: Iterable[Any]) -> list[Any]:
    """The values of a column that occur, in this order."""
    present = set(table[column])
    return [value for value in order if value in present]


def draw_box(axes: Axes, low: float, high: float, colour: str = "white") -> Rectangle:
    """A dashed rectangle around the pixels low..high, both inclusive, in x and in y."""
    side = high - low + 1
    box = Rectangle((low - 0.5, low - 0.5), side, side, fill=False, ls="--", lw=1, edgecolor=colour)
    axes.add_patch(box)
    return box


def draw_map(axes: Axes, image: np.ndarray, **style: Any) -> AxesImage:
    """An array (N, N) over positions or pixels, rows y upwards, columns x to the right, without ticks."""
    axes.set(xticks=[], yticks=[])
    return axes.imshow(image, origin="lower", interpolation="nearest", **style)


def bands(
    axes: Axes, x: Sequence[float] | np.ndarray, values_by_seed: np.ndarray, colour: str, label: str = "", **style: Any
) -> None:
    """The mean over the seeds (seeds, len(x)) as a line, and their range as a band: at each x of those that are not NaN, and a
    gap where all are."""
    seeds = pd.DataFrame(values_by_seed)
    axes.fill_between(x, seeds.min(), seeds.max(), color=colour, alpha=0.2, lw=0)
    axes.plot(x, seeds.mean(), **{"color": colour, "marker": "o", "ms": 3, "lw": 1.3, "label": label, **style})


def lines_by_layer(axes: Axes, table: pd.DataFrame, quantity: str, colour: str, label: str) -> None:
    """`bands` of a quantity against the layer; nothing where no seed has it."""
    by_seed = table[table["quantity"] == quantity].pivot_table("value", "seed", "layer", dropna=False)
    if not by_seed.notna().any(axis=None):
        return
    bands(axes, by_seed.columns.to_numpy(float), by_seed.to_numpy(), colour, label)


def legend_below(figure: Figure, labels: Iterable[str], across: int, more: Sequence[Line2D] = ()) -> None:
    """A legend below the panels, of those of these labels that any panel has, in their order; then of further handles."""
    handles = {label: one for axes in figure.axes for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    shown = [handles[label] for label in labels if label in handles]
    figure.legend(handles=[*shown, *more], loc="outside lower center", ncols=across, fontsize=SMALL, frameon=False)


def seed_points(axes: Axes, x: float, values: np.ndarray, colour: str, mean: bool = True, **style: Any) -> None:
    """Every seed that has a number as a point at x, slightly apart, and their mean as a short line, if no bar says more."""
    values = values[np.isfinite(values)]
    if not len(values):
        return
    apart = np.linspace(-0.06, 0.06, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(x + apart, values, **{"ls": "none", "marker": "o", "ms": 4, "color": colour, **style})
    if mean:
        axes.plot([x - 0.12, x + 0.12], [values.mean()] * 2, color=colour, lw=1.3)
