"""The figures of the objectives study: how the share of right pictures grows for each composition, and where it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import panels
from analysis.figures.panels import SMALL
from analysis.figures.style import label_decades, literal
from analysis.generators import LEAST_SEEN, LEAST_SEEN_TOLD_LESS, LEVELS, Run, known_value
from analysis.objectives import Answer
from trainables.generative.shapes import level_of_each
from trainables.spec import RunSpec

LEVEL_LINES = {"seen": "-", "level1": "--", "level2": "-", "level3": "-."}
LEVEL_NAMES = {**LEVELS, "level3": "level 3"}
"""Of all levels that there may be; bars, tables and claims are of LEVELS."""
LEVEL_COLOURS = dict(zip(LEVEL_NAMES, panels.LEVEL_COLOURS, strict=True))
ALONE = {"probe": "^", "oracle": "v"}
"""Markers of what one judge alone reads right."""
SEED: dict[str, Any] = {"lw": 0.6, "alpha": 0.35}
GATE: dict[str, Any] = {"color": "0.6", "lw": 0.8, "ls": ":"}
MOST_PANELS = 24
ACROSS = 3


def draw_curves(answer: Answer) -> Figure:
    """A panel for each setting: by the step, on a log scale, the share of each composition's pictures that both judges read
    right. Faint lines are seeds, thick ones the median of those with most looks; a panel says how many these are of all."""
    settings = list(answer.by_setting.items())[:MOST_PANELS]
    across = max(1, min(ACROSS, len(settings)))
    down = max(1, math.ceil(len(settings) / across))
    figure = Figure(figsize=(3.3 * across + 0.3, 2.6 * down + 0.5), layout="constrained")
    _tell_left_out(figure, answer)
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    told_less = any(known_value(spec, "conditioning") not in (None, "full") for spec, _ in settings)
    least_seen = LEAST_SEEN_TOLD_LESS if told_less else LEAST_SEEN
    for axes, (spec, runs) in zip(panels.flat, settings, strict=False):
        axes.set_axis_on()
        axes.axhline(least_seen, **GATE, zorder=0)
        _draw_setting(axes, spec, runs)
        axes.set_title(literal(answer.label(spec)), fontsize=9)
    for axes in panels[:, 0]:
        axes.set_ylabel("read right by both judges", fontsize=8)
    farthest = max((level for spec, _ in settings for level in level_of_each(spec.holdout).values()), default=0)
    names = list(LEVEL_NAMES.items())[: max(len(LEVELS), farthest + 1)]
    handles = [Line2D([], [], color=LEVEL_COLOURS[name], ls=LEVEL_LINES[name], label=told) for name, told in names]
    if any(len(runs) > 1 for _, runs in settings):  # else it lies beneath the median
        handles.append(Line2D([], [], color="black", **SEED, label="one seed"))
    handles.append(Line2D([], [], **GATE, label=f"{least_seen:g}, needed of what was seen"))
    in_a_line = len(handles) if across > 1 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=in_a_line, fontsize=8, frameon=False)
    return figure


def draw_levels(answer: Answer) -> Figure:
    """For each setting and level, the share at the end: bars are medians over seeds by both judges, points are seeds, and
    triangles are the medians by the probe (up) and by the oracle (down) alone."""
    settings = list(answer.by_setting.items())[:MOST_PANELS]
    figure = Figure(figsize=(1.2 + 1.5 * max(2, len(settings)), 3.4), layout="constrained")
    _tell_left_out(figure, answer)
    axes = figure.subplots()
    for place, (_, runs) in enumerate(settings):
        for offset, level in zip((-0.27, 0.0, 0.27), LEVELS, strict=True):
            _draw_bar(axes, place + offset, [run for run in runs if run.status == "finished"], level)
    names = [literal(answer.label(spec)).replace(", ", "\n") for spec, _ in settings]
    axes.set_xticks(range(len(settings)), names, fontsize=SMALL)
    axes.set(ylim=(-0.03, 1.05), ylabel="share read right at the end\nbars: medians; dots: seeds")
    handles = [Line2D([], [], color=LEVEL_COLOURS[name], lw=6, label=told) for name, told in LEVELS.items()]
    handles += [
        Line2D([], [], color="black", marker=marker, mfc="none", ls="none", label=f"{judge} alone")
        for judge, marker in ALONE.items()
    ]
    in_a_line = len(handles) if len(settings) > 2 else math.ceil(len(handles) / 2)
    figure.legend(handles=handles, loc="outside lower center", ncols=in_a_line, fontsize=8, frameon=False)
    return figure


def _tell_left_out(figure: Figure, answer: Answer) -> None:
    """How many settings are drawn, if these are not all."""
    if (count := len(answer.by_setting)) > MOST_PANELS:
        figure.suptitle(f"{MOST_PANELS} of {count} settings; the table of runs has all", fontsize=9)


def _draw_setting(axes: Axes, spec: RunSpec, runs: Sequence[Run]) -> None:
    longest = max((len(run.at) for run in runs), default=0)
    for word, level in level_of_each(spec.holdout).items():
        of_level = list(LEVEL_NAMES)[level]
        colour, style = LEVEL_COLOURS[of_level], LEVEL_LINES[of_level]
        curves = [(run.at, run.curves[name]) for run in runs if (name := f"both_{word}") in run.curves and len(run.at)]
        for at, curve in curves:
            axes.plot(at, curve, color=colour, marker=_marker(curve), ms=3, **SEED)
        whole = [(at, curve) for at, curve in curves if len(at) == longest]
        if whole:
            middle = np.median([curve for _, curve in whole], axis=0)
            axes.plot(whole[0][0], middle, style, color=colour, marker=_marker(middle), ms=5, lw=1.6, label=word)
    farthest = [run for run in runs if len(run.at) == longest > 0]
    if len(farthest) < len(runs):
        which = "that reached the end" if any(run.status == "finished" for run in farthest) else "that went farthest"
        told = f"median of {len(farthest)} of {len(runs)}\n{which}"
        axes.text(0.03, 0.97, told, transform=axes.transAxes, va="top", fontsize=SMALL, color="0.25")
    axes.set_xscale("log")
    if any(len(run.at) for run in runs):
        label_decades(axes.xaxis, whole=True)
    axes.set(ylim=(-0.03, 1.03))
    axes.set_xlabel("step", fontsize=8)
    axes.tick_params(labelsize=SMALL)


def _marker(curve: Sequence[float] | np.ndarray) -> str:
    """That of a curve: none, but where fewer than two of its points are known, so that no line could be seen."""
    return "o" if np.isfinite(curve).sum() < 2 else ""


def _draw_bar(axes: Axes, x: float, runs: Sequence[Run], level: str) -> None:
    def finite(judge: str) -> np.ndarray:
        found = np.array([run.final(level, judge) for run in runs])
        return found[np.isfinite(found)]

    shares = finite("both")
    if not len(shares):
        return
    axes.bar(x, np.median(shares), width=0.24, color=LEVEL_COLOURS[level], alpha=0.75)
    apart = np.linspace(-0.07, 0.07, len(shares)) if len(shares) > 1 else np.zeros(1)
    axes.plot(x + apart, shares, ls="none", marker="o", ms=3, color="black", gid=f"seeds {level}")
    for judge, marker in ALONE.items():
        if len(alone := finite(judge)):  # of real pictures there are none by the oracle
            axes.plot(x, np.median(alone), marker=marker, ms=5, mfc="none", color="black", ls="none")
