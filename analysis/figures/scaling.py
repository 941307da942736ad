"""The figure of the scaling study: images needed against the grid size, or the least values of another setting along one."""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from analysis.figures.panels import DECODER_NAMES
from analysis.figures.style import COLOURS, label_decades, literal, turn_words
from analysis.fits import PowerLaw, is_censored, is_cut
from analysis.scaling import Answer
from orchestrator.searches.audits import UNAUDITED
from orchestrator.searches.axes import BUMPS
from trainables.program import PATH as PROGRAM_TASK

MARKERS = "os^Dv<"
BOUND = 70
"""Size of the open triangles at bounds of thresholds: larger than the marker of a mean, which may lie over one."""
BROKEN = (0, (4, 1, 1, 1, 1, 1))
"""Dashes of a broken law."""
LEGEND_WIDTH = 92
"""Letters of a line of the legend."""
LEGEND_BELOW = 0.13
"""How far below the axes the legend begins, of their height."""
MARGIN = 0.1
"""Inches above and below all that is drawn, together."""
APART, TOGETHER = 0.16, 0.6
"""Of categories, whose places are 1 apart: how far data sets stand from each other, and all of them at most."""
CURVE_POINTS = 50
"""Of a power law, which is no straight line where an axis is linear."""
ROOM = 3.0
"""How many times the largest value that is shown, or what part of the least, the frame has of intervals at most: those of few
seeds may span decades in which nothing can lie."""


def draw(answer: Answer) -> Figure:
    """Total images against N, log-log: every seed, the geometric mean with its interval, the fitted law and what stands
    beside it, and the reference lines N, N^2, N^3 through the first mean. Categories stand side by side, with neither law nor
    references. An interval begins at the images that are always there, and one far longer than the others goes on beyond the
    frame."""
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    along, is_usual = answer.axes.along, answer.axes.is_usual
    values = answer.table[along].unique()
    sizes = np.array(sorted(values) if answer.axes.scaled else range(len(values)), dtype=float)
    for index, (dataset, part) in enumerate(answer.known.groupby("dataset", sort=False)):
        _draw_dataset(axes, str(dataset), part, answer, index)
    if is_usual:
        _draw_references(axes, sizes, answer)
    if answer.axes.scaled:
        axes.set_xscale("log", base=2)
    found = answer.table["total_images"].fillna(answer.table["lower"].where(is_censored(answer.table))).dropna()
    is_known = len(found) > 0
    is_log = is_known and bool((found > 0).all())
    if is_log:
        axes.set_yscale("log")
    _draw_intervals(axes, answer)
    if is_log:
        label_decades(axes.yaxis, whole=bool((found % 1 == 0).all()))
    if not is_known:
        axes.text(0.5, 0.5, "no threshold is known", transform=axes.transAxes, ha="center")
        axes.set_yticks([])
    if answer.axes.scaled:
        axes.set_xticks(shown := _apart(sizes), [f"{n:.6g}" for n in shown])
    else:
        axes.set_xticks(sizes, [literal(str(value)) for value in values])
    axes.minorticks_off()
    if not answer.axes.scaled:
        axes.set_xlim(-0.5, len(sizes) - 0.5)
    elif len(sizes):
        beside = max(sizes[-1] / sizes[0], 2.0) ** 0.06
        axes.set_xlim(sizes[0] / beside, sizes[-1] * beside)
    of_bumps = answer.task == BUMPS
    axes.set_xlabel("grid size N (pixels)" if of_bumps and along == "N" else literal(along))
    samples = "training images needed, bumps + stripes" if of_bumps else "training samples needed"
    axes.set_ylabel(samples if answer.axes.least == "data_count" else literal(f"least {answer.axes.least}"))
    axes.set_title(literal(_title(answer)), fontsize=10)
    if unchecked := int((answer.table["lower_ended"] == UNAUDITED).sum()):
        text = f"* {unchecked} of these thresholds rest on the unchecked stopping rule"
        axes.text(0.99, 0.01, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color="0.3")
    if not answer.axes.scaled:
        turn_words(figure, [axes])
    if axes.get_legend_handles_labels()[0]:
        _add_legend(figure, axes)
    return figure


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Below the axes, which keep half of the height: beneath a long legend or turned words, the figure grows."""
    figure_height, frame, drawn = figure.get_figheight(), axes.get_window_extent(), axes.get_tightbbox()
    assert drawn is not None
    above, below = (drawn.y1 - frame.y1) / figure.dpi, (frame.y0 - drawn.y0) / figure.dpi
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, -LEGEND_BELOW), fontsize=8, frameon=False)
    letter = 8 / 72
    inside = (legend.borderaxespad + legend.borderpad) * letter
    height = legend.get_window_extent().height / figure.dpi + legend.borderaxespad * letter
    left = (figure_height - above - height - MARGIN) / (1 + LEGEND_BELOW)
    if LEGEND_BELOW * left + inside >= below:  # its text begins below the name of the axis
        return
    figure.set_figheight(max(figure_height, 2 * (above + below + height + MARGIN)))
    legend.set_bbox_to_anchor((0.5, 0.0), axes.transAxes + ScaledTranslation(0, -below, figure.dpi_scale_trans))


def _title(answer: Answer) -> str:
    """What is trained, with what neither axis shows of its size and data, and the accuracy that it is to reach."""
    drawn = (answer.axes.along, answer.axes.least)
    s = {name: value for name, value in answer.settings.items() if name not in drawn}
    of_bumps, of_program = answer.task == BUMPS, answer.task == PROGRAM_TASK
    name = answer.task.rpartition(":")[2]
    task = ", ".join(answer.table["dataset"].unique()) if of_program else "" if of_bumps else name
    decoder, encoding = s.get("decoder", ""), s.get("encoding", "")
    sizes = [f"{word} {s[key]}" for key, word in (("N", "N ="), ("data_count", "data count")) if key in s]
    parts = task, DECODER_NAMES.get(decoder, decoder), encoding and f"{encoding} encoding", *sizes
    subject = ", ".join(filter(None, parts)) or name
    accuracy = f"{subject}: accuracy {s['target']:g}" if "target" in s else subject
    return f"{accuracy} on held-out coordinates" if of_bumps else accuracy


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


def _draw_dataset(axes: Axes, dataset: str, part: pd.DataFrame, answer: Answer, index: int) -> None:
    """All of a data set but its means and their intervals."""
    colour = COLOURS[index % len(COLOURS)]
    found = part[part["total_images"].notna()]
    axes.scatter(_places(found, answer, index), found["total_images"], s=12, color=colour, alpha=0.5, linewidths=0)
    for chosen, end, marker, words in (
        (part[is_censored(part)], "lower", "^", "more than this"),
        (found[is_cut(found, answer.axes)], "total_images", "v", "at most this"),
    ):
        if len(chosen):
            label, places = literal(f"{dataset}: {words}"), _places(chosen, answer, index)
            axes.scatter(places, chosen[end], s=BOUND, marker=marker, facecolors="none", edgecolors=colour, label=label)
    fit = answer.fits.get(dataset)
    if fit is not None and fit.exponent is not None and fit.prefactor is not None:
        places = _places(_means(answer, dataset), answer, index)
        ends = float(places.min()), float(places.max())
        sizes = np.geomspace(*ends, CURVE_POINTS)
        axes.plot(sizes, fit.prefactor * sizes**fit.exponent, color=colour, lw=1.5)
        _draw_alternatives(axes, dataset, fit, ends, answer, colour)


def _draw_intervals(axes: Axes, answer: Answer) -> None:
    """The means with their intervals, once all else is drawn: they widen the frame as far as ROOM says."""
    means = answer.summary[answer.summary["total_images"].notna()]
    if len(means):
        shown = answer.table["total_images"]
        frame = max(_begins(means, answer).min(), shown.min() / ROOM), min(means["upper"].max(), shown.max() * ROOM)
        axes.update_datalim([(0.0, end) for end in frame], updatex=False)
        axes.autoscale_view(scalex=False)
    axes.set_autoscaley_on(False)
    for index, dataset in enumerate(answer.table["dataset"].unique()):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
        of_dataset = _means(answer, dataset)
        mean = of_dataset["total_images"]
        bars = np.array([mean - _begins(of_dataset, answer), of_dataset["upper"] - mean])
        label = f"{dataset}: {answer.describe(dataset)}" if dataset in answer.fits else dataset
        label = label.replace(": no interval", ": no interval of the exponent")  # the bars are intervals of means
        label = textwrap.fill(literal(label), LEGEND_WIDTH)
        places = _places(of_dataset, answer, index)
        axes.errorbar(places, mean, yerr=bars, fmt=marker, color=colour, capsize=3, ms=6, label=label)


def _means(answer: Answer, dataset: str) -> pd.DataFrame:
    return answer.summary[(answer.summary["dataset"] == dataset) & answer.summary["total_images"].notna()]


def _places(rows: pd.DataFrame, answer: Answer, index: int) -> pd.Series:
    """Where rows of a data set stand along; `index` is the number of the data set."""
    values, datasets = answer.table[answer.axes.along].unique(), answer.table["dataset"].nunique()
    beside = (index - (datasets - 1) / 2) * min(APART, TOGETHER / datasets)
    at = {value: value if answer.axes.scaled else i + beside for i, value in enumerate(values)}
    return rows[answer.axes.along].map(at).astype(float)


def _begins(means: pd.DataFrame, answer: Answer) -> pd.Series:
    """Where the intervals of means are drawn from: not below the images that are always there, and from the mean itself where
    no lower end is known."""
    place = ["dataset", answer.axes.along]
    fixed = answer.table.groupby(place)["fixed_images"].min().to_dict()
    least = pd.Series([fixed[at] for at in means[place].itertuples(index=False, name=None)], means.index, dtype=float)
    return np.fmin(np.fmax(means["lower"].fillna(means["total_images"]), least), means["total_images"])


def _draw_alternatives(
    axes: Axes, dataset: str, fit: PowerLaw, ends: tuple[float, float], answer: Answer, colour: str
) -> None:
    """Where the law lies without one size at a time, and a broken law that fits far better."""
    along = answer.axes.along
    part = answer.table[(answer.table["dataset"] == dataset) & answer.table["total_images"].notna()]
    part = part[part[along].astype(float).isin([float(size) for size in fit.without])]
    sizes, laws = np.geomspace(*ends, CURVE_POINTS), []
    for left_out, exponent in fit.without.items():
        kept = part[part[along] != float(left_out)]
        height = np.log(kept["total_images"]).mean() - exponent * np.log(kept[along].astype(float)).mean()
        laws.append(np.exp(height) * sizes**exponent)
    if laws:
        low, high = min(fit.without.values()), max(fit.without.values())
        label = literal(f"{dataset}: without one {along} at a time, {along}^{low:.2f} to {along}^{high:.2f}")
        axes.fill_between(sizes, np.min(laws, axis=0), np.max(laws, axis=0), color=colour, alpha=0.2, lw=0, label=label)
    if (broken := fit.broken) is None or not broken.is_better:
        return
    text = literal(f"{dataset}: {answer.describe_broken(broken)}")
    parts = ((ends[0], broken.last, text), (broken.first, ends[1], None))
    for exponent, prefactor, (begin, end, shown) in zip(broken.exponents, broken.prefactors, parts, strict=True):
        span = np.geomspace(begin, end, CURVE_POINTS)
        axes.plot(span, prefactor * span**exponent, color=colour, lw=1.2, ls=BROKEN, label=shown)


def _draw_references(axes: Axes, sizes: np.ndarray, answer: Answer) -> None:
    """N, N^2 and N^3, each through the smallest size of the data set that needs most there."""
    found = answer.summary[answer.summary["total_images"].notna()]
    if found.empty or len(sizes) < 2:
        return
    start = found.loc[found["N"] == found["N"].min()]
    N0, T0 = float(start["N"].iloc[0]), float(start["total_images"].max())
    if T0 == 0:
        return
    span = np.geomspace(N0, sizes.max(), CURVE_POINTS)
    for power, style in ((1, ":"), (2, "-."), (3, "--")):
        axes.plot(span, T0 * (span / N0) ** power, style, color="0.6", lw=1, zorder=0)
        name, end = f"$N^{power}$" if power > 1 else "$N$", (span[-1], T0 * (span[-1] / N0) ** power)
        axes.annotate(name, end, (6, 0), textcoords="offset points", va="center", color="0.4", fontsize=8)
