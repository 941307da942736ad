"""What all figures share: colours, and how a figure becomes a file."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colour-blind safe palette."""


MOST_LETTERS = 500
"""Of a title or label: to place a text of many thousands takes minutes."""

MOST_TURNED = 40
"""Letters of a word that is turned."""
SPACE = 0.25
"""Between words side by side, of their height."""


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


def label_zero_and_decades(axis: Axis, low: float, high: float, whole: bool) -> None:
    """The same of an axis that is linear from zero to a value and logarithmic from there to another one."""
    _label(axis, np.array([0.0, *_logarithmic_ticks(low, high, whole)]), whole)


def _logarithmic_ticks(low: float, high: float, whole: bool) -> np.ndarray:
    locators = [LogLocator(subs=digits, numticks=MOST_DECADES) for digits in DIGITS]
    for locator in (*locators, MaxNLocator(6, integer=whole)):
        ticks = np.asarray(locator.tick_values(low, high))
        ticks = ticks[(ticks >= low) & (ticks <= high) & ((ticks % 1 == 0) | (not whole))]
        if locator is locators[0]:
            ticks = ticks[:: math.ceil(len(ticks) / MOST_DECADES) or 1]  # before version 3.11 matplotlib gives one more
        if len(ticks) >= LEAST_TICKS:
            break
    return ticks


def _label(axis: Axis, ticks: np.ndarray, whole: bool) -> None:
    axis.set_ticks(ticks, labels=[f"{tick:,.0f}" if whole else f"{tick:.6g}" for tick in ticks])
    axis.set_minor_locator(NullLocator())


def turn_words(figure: Figure, panels: Sequence[Axes], keep: int = 0) -> None:
    """Turn the words below panels that would run into each other, and make the figure higher by as much as these then take. If
    turned words lack room too, only every second one stays, or every third and so on: those that include the one at `keep`.
    Call it when all is drawn but a legend below the axes."""
    if not panels:
        return
    places = [(axes, axes.get_position(original=True)) for axes in figure.axes]
    for axes in panels:
        axes.tick_params(axis="x", labelbottom=False)  # long words would leave the axes no room
    figure.draw_without_rendering()
    for axes in panels:
        axes.tick_params(axis="x", labelbottom=True)
    higher = max(0.0, *(_turn(axes, keep) for axes in panels)) / figure.dpi
    for axes, place in places:  # the layout depends on where it begins
        axes.set_position(place)
        axes.set_in_layout(True)
    spec = panels[0].get_subplotspec()
    lines = spec.get_gridspec().nrows if spec else 1
    figure.set_figheight(figure.get_figheight() + lines * higher)


def space_numbers(figure: Figure, panels: Sequence[Axes]) -> None:
    """Leave out each number below panels that would run into the one before it. Call it when all is drawn."""
    figure.draw_without_rendering()
    for axes in panels:
        kept: list[tuple[float, str]] = []
        end = -math.inf
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            box = label.get_window_extent()
            if box.x0 >= end + SPACE * box.height:
                kept.append((place, label.get_text()))
                end = box.x1
        axes.set_xticks([place for place, _ in kept], [text for _, text in kept])


def _turn(axes: Axes, keep: int) -> float:
    """By how many dots the words below axes become higher."""
    labels = axes.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    height = max((box.height for box in boxes), default=0.0)
    if all(left.x1 + SPACE * height <= right.x0 for left, right in pairwise(boxes)):
        return 0.0
    apart = (boxes[-1].x0 + boxes[-1].x1 - boxes[0].x0 - boxes[0].x1) / 2 / (len(boxes) - 1)
    step = math.ceil(height / apart)
    shown = slice(keep % step, None, step)
    words = [literal(label.get_text().replace(r"\$", "$"), MOST_TURNED) for label in labels[shown]]
    axes.set_xticks(axes.get_xticks()[shown], words, rotation=90, fontsize=labels[0].get_fontsize())
    return max(label.get_window_extent().height for label in axes.get_xticklabels()) - height


def image(figure: Figure, kind: str = "png") -> bytes:
    """A figure as `png` (160 dots per inch) or `svg` file, without the date."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "analysis", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()
