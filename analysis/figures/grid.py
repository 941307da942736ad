"""The figure of a study whose runs are known beforehand: what every setting ended with, seed by seed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import COLOURS, label_decades, literal, space_numbers

MOST_SETTINGS = 24
"""Settings that one figure shows."""
SHORT = 60
"""Letters of a line of a setting."""
LINE = 0.14
"""Inches of such a line."""
NAME = 40
"""Letters of a line of the name of a number, which has room below a panel."""
NAMES = {"accuracy": "accuracy on what is held out", "id_mse": "ID MSE", "ood_mse": "OOD MSE", "loss": "training loss"}


def draw(table: pd.DataFrame, numbers: Sequence[str]) -> Figure:
    """A panel for each number: a line per setting, a point per seed, and their arithmetic mean.

    Args:
        table: a row per run, with its `setting` in words and the numbers; NaN where there is none.
    """
    every = list(dict.fromkeys(table["setting"]))
    settings = every[:MOST_SETTINGS]
    labels = _labels(settings)
    longest = max((len(setting) for setting in settings), default=0)
    lines = max((1 + label.count("\n") for label in labels), default=1)
    size = (min(3.0, 0.07 * longest) + 3.0 * max(1, len(numbers)), 1.0 + max(0.28, LINE * lines) * max(3, len(settings)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, max(1, len(numbers)), sharey=True, squeeze=False)[0]
    logarithmic = []
    for place, (axes, name) in enumerate(zip(panels, numbers, strict=False)):
        values = table[name].astype(float)
        finite = values[np.isfinite(values)]
        logs = name.endswith(("mse", "loss", "error")) and len(finite) > 0 and bool((finite > 0).all())
        for line, setting in enumerate(settings):
            found = finite[table["setting"] == setting]
            axes.scatter(found, [line] * len(found), s=16, color=COLOURS[place % len(COLOURS)], alpha=0.6, linewidths=0)
            if len(found):
                axes.plot([found.mean()], [line], "|", color="0.1", ms=11, mew=1.6)
        if logs:
            axes.set_xscale("log")
            label_decades(axes.xaxis)
            logarithmic.append(axes)
        axes.set_xlabel(literal(textwrap.fill(NAMES.get(name, name), NAME)), fontsize=9)
        axes.grid(axis="x", color="0.92")
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(settings)), labels, fontsize=8)
    panels[0].set_ylim(len(settings) - 0.5, -0.5)
    if left := len(every) - len(settings):
        figure.supxlabel(f"the first {MOST_SETTINGS} settings; {left} more are in the table", fontsize=8, color="0.4")
    space_numbers(figure, logarithmic)
    return figure


def _labels(settings: Sequence[str]) -> list[str]:
    """Settings on one line each, or whole ones on several lines where these would read alike."""
    short = [literal(setting, SHORT) for setting in settings]
    return short if len(set(short)) == len(short) else [literal(textwrap.fill(setting, SHORT)) for setting in settings]
