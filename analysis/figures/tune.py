"""The figures of the tune study: the search beside its confirmation, and every setting against what it reached."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.scale import SymmetricalLogScale
from matplotlib.ticker import FixedLocator, MaxNLocator

from analysis.figures.scaling import ROOM
from analysis.figures.style import COLOURS, label_decades, label_zero_and_decades, literal, space_numbers, turn_words
from analysis.tune import STEPS, UNREACHED, Answer
from orchestrator.command.tables import kind_of_mean
from orchestrator.searches.space import shown

SEARCHED, CONFIRMED = COLOURS[0], COLOURS[1]
MOST_PANELS = 12
"""Searched settings that are shown: those of a search of a whole decoder are eleven."""
CROWDED = 10
"""With more confirmed settings than these, a legend inside their panel would cover some."""
LEAST = "at least this: some seeds never reached the target"
"""What a mean of steps is then."""
BELOW, BESIDE_LOW, BESIDE_HIGH = 32, 24, 45
"""Letters that have room in a line: below or above a panel, and beside a low one or a high one."""
MOST_WORDS = 40
"""Words of a setting that are named."""
BESIDE = 0.05
"""Share of a searched range that is shown below and above it, so that points at its ends are whole."""

NUMBER = r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?"
"""As the text of a searched setting has it."""


def draw(answer: Answer) -> Figure:
    """Left the search: every trial in the order of finishing with the best so far; with several objectives, the first two
    against each other. Right the confirmation, a panel for each of these objectives: what the search said of each setting, and
    what the fresh seeds say."""
    aims = min(2, len(answer.aims))
    figure = Figure(figsize=(9.6 if aims == 1 else 12.4, 4.2), layout="constrained")
    left, *others = figure.subplots(1, 1 + aims, sharey=aims == 1, width_ratios=(1,) * 2 if aims == 1 else (1.4, 1, 1))
    if aims == 1:
        _history(left, answer)
    else:
        _front(left, answer)
    for place, axes in enumerate(others):
        _confirmation(axes, answer, place)
        axes.set_ylim(_near(axes.get_ylim(), answer, place))
    if len(answer.confirmed):
        turn_words(figure, others, keep=int(answer.confirmed["winner"].to_numpy(bool).argmax()))
    if aims > 1 and left.get_xscale() == "log":
        space_numbers(figure, [left])
    if _has_legend_below(answer):
        told = [one for axes in others for one in zip(*axes.get_legend_handles_labels(), strict=True)]
        handles = {label: handle for handle, label in told}
        figure.legend(handles.values(), handles, loc="outside lower right", ncols=2, fontsize=7, frameon=False)
    if left_out := len(answer.aims) - aims:
        note = f"the first {aims} of {len(answer.aims)} objectives; the table has the other{'s' * (left_out > 1)}"
        figure.suptitle(note, fontsize=8, color="0.4")
    return figure


def draw_settings(answer: Answer) -> Figure | None:
    """A panel per searched setting, for the first MOST_PANELS: its values against the first objective, trials in the colour of
    their order. None while no trial is complete."""
    complete = answer.trials[answer.trials[answer.aims[0].name].notna()]
    names = list(answer.names)[:MOST_PANELS]
    if complete.empty:
        return None
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.3 * columns + 0.7, 2.8 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
    order = ScalarMappable(Normalize(complete["number"].min(), complete["number"].max()), "viridis")
    worded = [axes for name, axes in zip(names, panels.flat, strict=False) if _slice(axes, complete, name, answer, order)]
    for axes in list(panels.flat)[len(names) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel(_in_lines(answer.aims[0].name, BESIDE_LOW))
    ticks = MaxNLocator(6, integer=True) if complete["number"].nunique() > 1 else FixedLocator(complete["number"].unique())
    bar = figure.colorbar(order, ax=panels, label="trial", ticks=ticks, aspect=14 * lines)
    bar.ax.tick_params(labelsize=8)
    if left := len(answer.names) - len(names):
        figure.supxlabel(f"the first {MOST_PANELS} settings; {left} more are in the table", fontsize=8, color="0.4")
    turn_words(figure, worded)
    return figure


def _history(axes: Axes, answer: Answer) -> None:
    aim, trials = answer.aims[0], answer.trials
    complete = trials[trials[aim.name].notna()]
    axes.scatter(complete["number"], complete[aim.name], s=16, color=SEARCHED, alpha=0.7, label="trial")
    if len(complete):
        best = complete[aim.name].cummax() if aim.up else complete[aim.name].cummin()
        axes.step(complete["number"], best, where="post", color=SEARCHED, lw=1.2, label="best so far")
    ended = trials[trials[aim.name].isna()]
    if len(ended):
        axes.plot(
            ended["number"], [0.02] * len(ended), "x", color="0.6", ms=4, transform=axes.get_xaxis_transform(),
            label="pruned, diverged, failed, or no number",
        )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="trial, in the order they finished", ylabel=_in_lines(aim.name))
    axes.set_title(f"search: {len(trials)} trials", fontsize=10)
    _scale(axes, answer, 0)
    axes.legend(fontsize=7, frameon=False)


def _front(axes: Axes, answer: Answer) -> None:
    first, second = answer.aims[:2]
    complete = answer.trials[answer.trials[first.name].notna()]
    axes.scatter(complete[first.name], complete[second.name], s=16, color=SEARCHED, alpha=0.7, label="trial")
    found = answer.confirmed
    for marker, part, label in _by_end(found, STEPS, ">" if first.name == STEPS else "^", "confirmed on fresh seeds"):
        axes.errorbar(
            part[first.name], part[second.name], xerr=_bars(part, first.name), yerr=_bars(part, second.name), fmt=marker, ms=5,
            color=CONFIRMED, capsize=2, label=label,
        )  # fmt: skip
    for row in found.to_dict("records"):
        axes.annotate(row["setting"], (row[first.name], row[second.name]), (4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel=_in_lines(first.name), ylabel=_in_lines(second.name))
    axes.set_title(f"search: {len(answer.trials)} trials", fontsize=10)
    if len(complete):
        axes.set_xscale("log" if answer.geometric[0] else "linear")
        axes.set_yscale("log" if answer.geometric[1] else "linear")
        axes.set(xlim=_near(axes.get_xlim(), answer, 0), ylim=_near(axes.get_ylim(), answer, 1))
        for axis, geometric in zip((axes.xaxis, axes.yaxis), answer.geometric, strict=False):
            if geometric:
                label_decades(axis)
    axes.legend(fontsize=7, frameon=False)


def _near(limits: tuple[float, float], answer: Answer, place: int) -> tuple[float, float]:
    """These limits of an axis, but not far from what the trials and the settings have: on a logarithmic axis within ROOM, on a
    linear one as far again as these span. A longer interval goes on beyond the frame."""
    name = answer.aims[place].name
    points = pd.concat([answer.trials[name], answer.confirmed[name]]).astype(float)
    low, high = points.min(), points.max()
    if not low < high:
        return limits
    first, last = (low / ROOM, high * ROOM) if answer.geometric[place] else (2 * low - high, 2 * high - low)
    return max(limits[0], first), min(limits[1], last)


def _confirmation(axes: Axes, answer: Answer, place: int) -> None:
    aim, found = answer.aims[place], answer.confirmed
    places = np.arange(len(found))
    axes.plot(places - 0.08, found[f"{aim.name}_search"], "o", mfc="none", color=SEARCHED, label="in the search")
    # the panels share a legend
    has_interval = any(found[f"{one.name}_lower"].notna().any() for one in answer.aims[:2])
    kind = kind_of_mean({literal(one.name): logs for one, logs in zip(answer.aims[:2], answer.geometric[:2], strict=True)})
    told = f"on fresh seeds: {kind}{', 95 % interval' * has_interval}"
    for marker, part, label in _by_end(found, aim.name, "^", told):
        axes.errorbar(
            part.index + 0.08, part[aim.name], yerr=_bars(part, aim.name) if has_interval else None, fmt=marker,
            color=CONFIRMED, capsize=3, label=label,
        )  # fmt: skip
    names = [f"{row['setting']}{' (wins)' * (row['winner'] and len(answer.aims) == 1)}" for row in found.to_dict("records")]
    axes.set_xticks(places, names, fontsize=8)
    axes.set_xlim(-0.6, max(0.6, len(found) - 0.4))
    of = ""
    if len(answer.aims) > 1:
        of = f": {aim.name}"
        axes.set_ylabel(_in_lines(aim.name))
    axes.set_title(_in_lines(f"confirmation{of}" if len(found) else f"nothing is confirmed yet{of}", BELOW), fontsize=10)
    _scale(axes, answer, place)
    if len(found) and not _has_legend_below(answer):
        axes.legend(fontsize=7, frameon=False)


def _has_legend_below(answer: Answer) -> bool:
    """Whether the panels of the confirmation have no room for their legend."""
    several = len(answer.aims) > 1
    return len(answer.confirmed) > (0 if several else CROWDED)


def _by_end(found: pd.DataFrame, name: str, marker: str, label: str) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Marker, rows and label of the settings of which an objective is known, and of those of which it may be more: the steps
    of some of their seeds are only known to be more."""
    may_be_more = found[UNREACHED].astype(int) > 0 if name == STEPS and UNREACHED in found else found.index < 0
    if not may_be_more.all() or found.empty:
        yield "o", found[~may_be_more], label
    if may_be_more.any():
        yield marker, found[may_be_more], LEAST


def _in_lines(name: str, letters: int = BESIDE_HIGH) -> str:
    return literal(textwrap.fill(name, letters))


def _slice(axes: Axes, complete: pd.DataFrame, name: str, answer: Answer, order: ScalarMappable) -> bool:
    """Whether words stand below the panel."""
    axes.set_xlabel(_in_lines(name, BELOW))
    found = complete[complete[name].notna()]
    if found.empty:
        return False
    searched = str(answer.settings["search"][name])
    values, style = found[name], {"s": 14, "c": found["number"], "cmap": order.cmap, "norm": order.norm}
    words_alone = any(isinstance(value, str) for value in values)  # a word may be a path, ../a.csv
    span = None if words_alone else re.search(rf"(?:^|\|)({NUMBER})\.\.({NUMBER})(?=:|\||$)", searched)
    if span:
        low, high = float(span[1]), float(span[2])
        axes.scatter(values.astype(float), found[answer.aims[0].name], **style)
        whole = bool((values.astype(float) % 1 == 0).all())
        if is_log := ":log" in searched:
            axes.set_xscale(SymmetricalLogScale(axes.xaxis, linthresh=low) if min(values) <= 0 else "log")
        elif whole:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        scale = axes.xaxis.get_transform()
        first, last = scale.transform([min([low, *values]), max([high, *values])])
        more = BESIDE * (last - first) or BESIDE
        axes.set_xlim(*scale.inverted().transform([first - more, last + more]))
        if is_log and axes.get_xscale() == "log":
            label_decades(axes.xaxis, whole)
        elif is_log:
            label_zero_and_decades(axes.xaxis, low, high, whole)
        axes.tick_params(axis="x", labelsize=8)
    else:
        words = searched.split("|")
        axes.scatter([words.index(shown(value)) for value in values], found[answer.aims[0].name], **style)
        places = range(0, len(words), 1 + len(words) // (MOST_WORDS + 1))
        axes.set_xticks(places, [literal(words[place]) for place in places], fontsize=8)
        axes.set_xlim(-0.5, len(words) - 0.5)
    _scale(axes, answer, 0)
    return span is None


def _bars(found: pd.DataFrame, name: str) -> np.ndarray:
    bars = np.array([found[name] - found[f"{name}_lower"], found[f"{name}_upper"] - found[name]], dtype=float)
    return np.nan_to_num(np.maximum(bars, 0), posinf=0.0)  # a bar without an end is left out


def _scale(axes: Axes, answer: Answer, place: int) -> None:
    if answer.geometric[place] and answer.trials[answer.aims[place].name].notna().any():
        axes.set_yscale("log")
