"""What all figures share: colours, and how a figure becomes a file."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colour-blind safe palette."""


MOST_LETTERS = 500
"""Of a title or label: to place a text of many thousands takes minutes."""


LEAST_TICKS, MOST_DECADES = 3, 6
"""Labels of a logarithmic axis: at least so many, and no more of whole decades."""
LEAST_SPAN = 1.5
"""Least upper end of a logarithmic axis over its lower one."""
DIGITS = ((1,), (1, 2, 5), (1, 2, 3, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))


def literal(text: str, most: int = MOST_LETTERS) -> str:
    """A text as it is, shortened if it is long: matplotlib takes what stands between two dollar signs for a formula."""
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def label_decades(axis: Axis, whole: bool = False) -> None:
    """At least three labelled ticks on a logarithmic axis, also where it spans less than a decade, written as plain numbers;
    whole ones, if all values are. Call it when all is drawn."""
    low, high = axis.get_view_interval()
    if high < LEAST_SPAN * low:
        low, high = (low * high / LEAST_SPAN) ** 0.5, (low * high * LEAST_SPAN) ** 0.5
    _label(axis, _logarithmic_ticks(low, high, whole), whole)
    (axis.axes.set_xlim if isinstance(axis, XAxis) else axis.axes.set_ylim)(low, high)


def label_zero_and_decades(axis: Axis, low: float, high: float, whole: bool = False) -> None:
    """The same of an axis that is linear from zero to a value and logarithmic from there to another one."""
    _label(axis, np.array([0.0, *_logarithmic_ticks(low, high, whole)]), whole)


def _logarithmic_ticks(low: float, high: float, whole: bool) -> np.ndarray:
    locators = [LogLocator(subs=digits, numticks=MOST_DECADES) for digits in DIGITS]
    for locator in (*locators, MaxNLocator(6, integer=whole)):
        ticks = np.asarray(locator.tick_values(low, high))
        ticks = ticks[(ticks >= low) & (ticks <= high) & ((ticks % 1 == 0) | (not whole))]
        if len(ticks) >= LEAST_TICKS:
            break
    return ticks


def _label(axis: Axis, ticks: np.ndarray, whole: bool) -> None:
    axis.set_ticks(ticks, labels=[f"{tick:,.0f}" if whole else f"{tick:.6g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def image(figure: Figure, kind: str = "png") -> bytes:
    """A figure as `png` (160 dots per inch) or `svg` file, without the date."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "analysis", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
