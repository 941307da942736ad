"""The figure of the signal study: what a generator draws right of the unseen composition as one factor grows fainter."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.panels import SMALL
from analysis.figures.style import COLOURS
from analysis.signal import Answer
from trainables.generative.shapes import FACTORS

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
MARKERS = dict(zip(FACTORS, "s^v", strict=True))


def draw(answer: Answer) -> Figure:
    """A panel for each faint factor: by its contrast, the share of pictures at level 2 in which both judges read all factors
    right (dots, filled if the run has passed), and in which they read each factor right (lines, medians over seeds). The band
    is the interval of the least contrast."""
    factors = answer.factors.to_dict("records")
    figure = Figure(figsize=(3.1 * max(1, len(factors)) + 0.4, 3.3), layout="constrained")
    panels = figure.subplots(1, max(1, len(factors)), sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, factors, strict=False):
        _draw_factor(axes, answer, row)
    panels[0].set_ylabel("read right at level 2, last look", fontsize=8)
    handles = [
        Line2D([], [], color="black", marker="o", ls="none", label="all factors, passed"),
        Line2D([], [], color="black", marker="o", mfc="none", ls="none", label="all factors, missed"),
    ]
    colours = dict(zip(FACTORS, COLOURS, strict=False))
    handles += [Line2D([], [], color=colours[f], marker=MARKERS[f], ms=4, lw=1, label=f"{f} alone") for f in FACTORS]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=7, frameon=False)
    return figure


def _draw_factor(axes: Axes, answer: Answer, row: dict[str, object]) -> None:
    name = str(row["factor"])
    runs = answer.runs[answer.runs["factor"] == name]
    for factor, colour in zip(FACTORS, COLOURS, strict=False):
        medians = runs.groupby("contrast")[f"level2_{factor}"].median()
        axes.plot(medians.index, medians, color=colour, marker=MARKERS[factor], ms=3.5, lw=0.9, alpha=0.8)
    for passed, part in runs.groupby(runs["status"] == "passed"):
        filled = "black" if passed else "none"
        axes.plot(part["contrast"], part["level2_both"], "o", ms=4.5, mfc=filled, color="black", ls="none", zorder=3)
    lower, upper, least = (float(str(row[name])) for name in ("lower", "upper", "contrast"))
    if not math.isnan(lower):
        axes.axvspan(lower, min(upper, 1.05), color="0.88", zorder=0)
    title = f"{name} faint"
    if not math.isnan(least):
        axes.axvline(least, color="0.4", lw=0.9)
        title += f": from {least:.2g} on"
    axes.set_title(title, fontsize=9)
    low, high = map(float, answer.settings["between"])
    axes.set_xscale("log")
    axes.set_xlim(0.85 * low, 1.15 * high)
    axes.set_xticks(shown := [tick for tick in TICKS if 0.85 * low <= tick <= 1.15 * high], [f"{tick:g}" for tick in shown])
    axes.minorticks_off()
    axes.set_xlabel("contrast", fontsize=8)
    axes.set_ylim(-0.03, 1.03)
    axes.tick_params(labelsize=SMALL)
