"""The figure of the signal study: what a generator draws right of the farthest level as one factor grows fainter."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.panels import SMALL
from analysis.figures.style import COLOURS
from analysis.signal import Answer
from trainables.generative.shapes import FACTORS

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MARKERS = dict(zip(FACTORS, "s^v", strict=True))
PASSED: dict[str, Any] = {"color": "black", "ms": 4.5}
MISSED: dict[str, Any] = {"color": "black", "mfc": "none", "ms": 7}
"""Of the share of all factors. One that lies over the other leaves both to be seen."""
LEAST: dict[str, Any] = {"color": "0.4", "lw": 0.9}
AT_MOST: dict[str, Any] = {**LEAST, "ls": "--"}
BAND: dict[str, Any] = {"color": "0.88"}


def draw(answer: Answer) -> Figure:
    """A panel for each faint factor: by its contrast, the share of pictures at the farthest level in which both judges read all
    factors right (dots, filled if the run has passed, larger and open if it has missed), and in which they read each factor
    right (a line for each seed). The vertical line is the least contrast, and the band its interval, or its bracket where there
    is one seed. Where seeds pass at the lowest contrast, so that less may do, the line is dashed and has no band."""
    factors = answer.factors.to_dict("records")
    figure = Figure(figsize=(3.1 * max(1, len(factors)) + 0.4, 3.3), layout="constrained")
    panels = figure.subplots(1, max(1, len(factors)), sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, factors, strict=False):
        _draw_factor(axes, answer, row)
    panels[0].set_ylabel(f"read right at level {answer.level}, last look", fontsize=8)
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker="o", ls="none", **PASSED, label="all factors, passed"),
        Line2D([], [], marker="o", ls="none", **MISSED, label="all factors, missed"),
    ]
    colours = dict(zip(FACTORS, COLOURS, strict=False))
    handles += [Line2D([], [], color=colours[f], marker=MARKERS[f], ms=4, lw=1, label=f"{f} alone") for f in FACTORS]
    known = [row for row in factors if not math.isnan(row["contrast"])]
    if any(not math.isnan(row["lower"]) for row in known):
        handles.append(Line2D([], [], **LEAST, label="least contrast"))
    if answer.band:
        handles.append(Patch(**BAND, label=f"its {answer.band}"))
    if any(math.isnan(row["lower"]) for row in known):
        handles.append(Line2D([], [], **AT_MOST, label="least contrast: at most this"))
    in_a_line = 4 if len(factors) > 1 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=in_a_line, fontsize=7, frameon=False)
    return figure


def _draw_factor(axes: Axes, answer: Answer, row: dict[str, object]) -> None:
    name = str(row["factor"])
    runs = answer.runs[answer.runs["factor"] == name]
    for factor, colour in zip(FACTORS, COLOURS, strict=False):
        for _, of_seed in runs.groupby("seed"):
            shares = of_seed.groupby("contrast")[f"level{answer.level}_{factor}"].median()
            axes.plot(shares.index, shares, color=colour, marker=MARKERS[factor], ms=3, lw=0.7, alpha=0.8)
    for passed, part in runs.groupby(runs["status"] == "passed"):
        shares = part[f"level{answer.level}_both"]
        axes.plot(part["contrast"], shares, "o", **(PASSED if passed else MISSED), zorder=3 if passed else 4)
    lower, upper, least = (float(str(row[name])) for name in ("lower", "upper", "contrast"))
    if not math.isnan(lower):
        axes.axvspan(lower, min(upper, 1.05), **BAND, zorder=0)
    title = f"{name} faint"
    if not math.isnan(least):
        less_may_do = math.isnan(lower)
        axes.axvline(least, **(AT_MOST if less_may_do else LEAST))
        title += f": from {'at most ' * less_may_do}{least:.3g} on"
    axes.set_title(title, fontsize=9)
    low, high = map(float, answer.settings["between"])
    axes.set_xscale("log")
    axes.set_xlim(0.85 * low, 1.15 * high)
    axes.set_xticks(shown := [tick for tick in TICKS if 0.85 * low <= tick <= 1.15 * high], [f"{tick:g}" for tick in shown])
    axes.minorticks_off()
    axes.set_xlabel("contrast", fontsize=8)
    axes.set_ylim(-0.03, 1.03)
    axes.tick_params(labelsize=SMALL)
