"""The figure of the scaling study: images needed against the grid size."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from analysis.figures.style import COLOURS
from analysis.scaling import Answer, describe
from orchestrator.searches.audits import UNAUDITED

MARKERS = "os^Dv<"
LEAST_TICKS = 3
LEAST_SPAN = 1.5
"""Least upper end of the axis of images over its lower one."""
LEGEND_WIDTH = 92
"""Letters of a line of the legend."""


def draw(answer: Answer) -> Figure:
    """Total images against N, log-log: every seed, the geometric mean with its interval, the fitted law, and the
    reference lines N, N^2, N^3 through the first mean."""
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    sizes = np.array(sorted(answer.table["N"].unique()), dtype=float)
    for index, (dataset, part) in enumerate(answer.table.groupby("dataset", sort=False)):
        _draw_dataset(axes, str(dataset), part, answer, index)
    _draw_references(axes, sizes, answer)
    axes.set_xscale("log", base=2)
    if answer.table["total_images"].notna().any() or (answer.table["verdict"] == "none reached").any():
        axes.set_yscale("log")
        _label_counts(axes)
    else:
        axes.text(0.5, 0.5, "no threshold is known", transform=axes.transAxes, ha="center")
        axes.set_yticks([])
    axes.set_xticks(shown := _apart(sizes), [f"{int(n)}" for n in shown])
    axes.minorticks_off()
    if len(sizes):
        beside = max(sizes[-1] / sizes[0], 2.0) ** 0.06
        axes.set_xlim(sizes[0] / beside, sizes[-1] * beside)
    axes.set_xlabel("grid size N (pixels)")
    axes.set_ylabel("training images needed, bumps + stripes")
    s = answer.settings
    subject = ", ".join(filter(None, (s["decoder"].upper(), s["encoding"] and f"{s['encoding']} encoding")))
    title = f"{subject or s['task']}: accuracy {s['target']:g} on held-out coordinates"
    axes.set_title(title, fontsize=10)
    if unchecked := int((answer.table["lower_ended"] == UNAUDITED).sum()):
        text = f"* {unchecked} of these thresholds rest on the unchecked stopping rule"
        axes.text(0.99, 0.01, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color="0.3")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, frameon=False)
    return figure


def _apart(sizes: np.ndarray) -> list[float]:
    """Those of ascending sizes whose labels have room on a logarithmic axis; the first and the last always."""
    if not len(sizes):
        return []
    room = 0.07 * np.log(sizes[-1] / sizes[0])
    shown = [float(sizes[0])]
    for size in sizes[1:-1]:
        if np.log(size / shown[-1]) >= room and np.log(sizes[-1] / size) >= room:
            shown.append(float(size))
    return list(dict.fromkeys([*shown, float(sizes[-1])]))


def _label_counts(axes: Axes) -> None:
    """At least three labelled ticks on a logarithmic axis of images, also where it spans less than a decade."""
    low, high = axes.get_ylim()
    if high < LEAST_SPAN * low:
        low, high = (low * high / LEAST_SPAN) ** 0.5, (low * high * LEAST_SPAN) ** 0.5
    locators = [LogLocator(subs=digits) for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))]
    for locator in (*locators, MaxNLocator(6, integer=True)):
        ticks = np.asarray(locator.tick_values(low, high))
        ticks = ticks[(ticks >= low) & (ticks <= high) & (ticks % 1 == 0)]
        if len(ticks) >= LEAST_TICKS:
            break
    axes.set_yticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.set_ylim(low, high)


def _draw_dataset(axes: Axes, dataset: str, part: pd.DataFrame, answer: Answer, index: int) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    found = part[part["total_images"].notna()]
    axes.scatter(found["N"], found["total_images"], s=12, color=colour, alpha=0.5, linewidths=0)
    summary = answer.summary[(answer.summary["dataset"] == dataset) & answer.summary["total_images"].notna()]
    mean = summary["total_images"]
    bars = np.array([mean - summary["lower"], summary["upper"] - mean])
    label = textwrap.fill(f"{dataset}: {describe(answer.fits[dataset], dataset)}", LEGEND_WIDTH)
    axes.errorbar(summary["N"], mean, yerr=bars, fmt=marker, color=colour, capsize=3, ms=6, label=label)
    censored = part[part["verdict"] == "none reached"]
    if len(censored):
        label = f"{dataset}: more than this"
        axes.scatter(censored["N"], censored["lower"], marker="^", facecolors="none", edgecolors=colour, label=label)
    fit = answer.fits[dataset]
    if fit.exponent is not None and fit.prefactor is not None:
        sizes = np.array([summary["N"].min(), summary["N"].max()], dtype=float)
        axes.plot(sizes, fit.prefactor * sizes**fit.exponent, color=colour, lw=1.5)


def _draw_references(axes: Axes, sizes: np.ndarray, answer: Answer) -> None:
    """N, N^2 and N^3, each through the smallest size of the data set that needs most there."""
    found = answer.summary[answer.summary["total_images"].notna()]
    if found.empty or len(sizes) < 2:
        return
    start = found.loc[found["N"] == found["N"].min()]
    N0, T0 = float(start["N"].iloc[0]), float(start["total_images"].max())
    span = np.array([N0, sizes.max()])
    for power, style in ((1, ":"), (2, "-."), (3, "--")):
        axes.plot(span, T0 * (span / N0) ** power, style, color="0.6", lw=1, zorder=0)
        name, end = f"$N^{power}$" if power > 1 else "$N$", (span[1], T0 * (span[1] / N0) ** power)
        axes.annotate(name, end, (6, 0), textcoords="offset points", va="center", color="0.4", fontsize=8)
