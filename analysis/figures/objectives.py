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
from analysis.generator_verdicts import is_judged
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
SEED_DOT: dict[str, Any] = {"marker": "o", "ms": 3}
OPEN: dict[str, Any] = {"mfc": "white", "mew": 0.7}
GATE: dict[str, Any] = {"color": "0.6", "lw": 0.8, "ls": ":"}
MOST_PANELS = 24
ACROSS = 3


def draw_curves(answer: Answer) -> Figure:
    """A panel for each setting: by the step, on a log scale, the share of each composition's pictures that both judges read
    right, or of real pictures the probe. Faint lines are seeds. Thick ones are medians of the seeds that count for claims or,
    where none does, of those with most looks; a panel says how many these are of all."""
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
    drawn = [run for _, runs in settings for run in runs]
    judges = "the probe" if drawn and all(run.is_real for run in drawn) else "both judges"
    for axes in panels[:, 0]:
        axes.set_ylabel(f"read right by {judges}", fontsize=8)
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
    triangles are the medians by the probe (up) and by the oracle (down) alone. Open points are seeds that count for no claim.
    Medians leave them out, unless the setting has no others."""
    settings = list(answer.by_setting.items())[:MOST_PANELS]
    figure = Figure(figsize=(1.2 + 1.5 * max(2, len(settings)), 3.4), layout="constrained")
    _tell_left_out(figure, answer)
    axes = figure.subplots()
    finished = [[run for run in runs if run.status == "finished"] for _, runs in settings]
    for place, runs in enumerate(finished):
        for offset, level in zip((-0.27, 0.0, 0.27), LEVELS, strict=True):
            _draw_bar(axes, place + offset, runs, level)
    names = [literal(answer.label(spec)).replace(", ", "\n") for spec, _ in settings]
    axes.set_xticks(range(len(settings)), names, fontsize=SMALL)
    is_mixed = any(0 < len(_counted(runs)) < len(runs) for runs in finished)
    drawn = "bars: medians of full dots" if is_mixed else "bars: medians; dots: seeds"
    axes.set(ylim=(-0.03, 1.05), ylabel=f"share read right at the end\n{drawn}")
    handles = [Line2D([], [], color=LEVEL_COLOURS[name], lw=6, label=told) for name, told in LEVELS.items()]
    handles += [
        Line2D([], [], color="black", marker=marker, mfc="none", ls="none", label=f"{judge} alone")
        for judge, marker in ALONE.items()
        if any(line.get_marker() == marker for line in axes.lines)  # the oracle reads no real pictures
    ]
    in_a_line = len(handles) if len(settings) > 2 else math.ceil(len(handles) / 2)
    if others := sum(len(runs) - len(_counted(runs)) for runs in finished):
        told = f"{others} run{'s' * (others != 1)} that no claim counts"
        handles.append(Line2D([], [], color="black", ls="none", **SEED_DOT, **OPEN, label=told))
        in_a_line = 3
    figure.legend(handles=handles, loc="outside lower center", ncols=in_a_line, fontsize=8, frameon=False)
    return figure


def _counted(runs: Sequence[Run]) -> list[Run]:
    """Those by which claims are judged."""
    return list(filter(is_judged, runs))


def _tell_left_out(figure: Figure, answer: Answer) -> None:
    """How many settings are drawn, if these are not all."""
    if (count := len(answer.by_setting)) > MOST_PANELS:
        figure.suptitle(f"{MOST_PANELS} of {count} settings; the table of runs has all", fontsize=9)


def _draw_setting(axes: Axes, spec: RunSpec, runs: Sequence[Run]) -> None:
    counted = _counted(runs)
    longest = max((len(run.at) for run in counted or runs), default=0)
    farthest = [run for run in counted or runs if len(run.at) == longest > 0]
    for word, level in level_of_each(spec.holdout).items():
        of_level = list(LEVEL_NAMES)[level]
        colour, style = LEVEL_COLOURS[of_level], LEVEL_LINES[of_level]
        name = f"both_{word}"
        for run in runs:
            if name in run.curves and len(run.at):
                curve = run.curves[name]
                axes.plot(run.at, curve, color=colour, marker=_marker(curve), ms=3, **SEED)
        if whole := [run for run in farthest if name in run.curves]:
            middle = np.median([run.curves[name] for run in whole], axis=0)
            axes.plot(whole[0].at, middle, style, color=colour, marker=_marker(middle), ms=5, lw=1.6, label=word)
    told = []
    finished = sum(run.status == "finished" for run in runs)
    if len(farthest) < len(runs):
        if 0 < len(counted) < finished:
            which = "that count for claims"
        else:
            which = "that reached the end" if any(run.status == "finished" for run in farthest) else "that went farthest"
        told += [f"median of {len(farthest)} of {len(runs)}", which]
    if finished and not counted:
        told.append("no claim counts " + ("this run" if len(runs) == 1 else "these runs"))
    if told:
        axes.text(0.03, 0.97, "\n".join(told), transform=axes.transAxes, va="top", fontsize=SMALL, color="0.25")
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
    def finite(judge: str, of: Sequence[Run]) -> np.ndarray:
        found = np.array([run.final(level, judge) for run in of])
        return found[np.isfinite(found)]

    known = [run for run in runs if math.isfinite(run.final(level, "both"))]
    if not known:
        return
    medians_of = _counted(known) or known
    axes.bar(x, np.median(finite("both", medians_of)), width=0.24, color=LEVEL_COLOURS[level], alpha=0.75)
    places = x + (np.linspace(-0.07, 0.07, len(known)) if len(known) > 1 else np.zeros(1))
    counts, shares = np.array([is_judged(run) for run in known]), finite("both", known)
    for name, chosen, style in (("seeds", counts, {}), ("others", ~counts, OPEN)):
        if chosen.any():
            axes.plot(places[chosen], shares[chosen], ls="none", color="black", gid=f"{name} {level}", **SEED_DOT, **style)
    for judge, marker in ALONE.items():
        if len(alone := finite(judge, medians_of)):
            axes.plot(x, np.median(alone), marker=marker, ms=5, mfc="none", color="black", ls="none")
