"""From thresholds per seed to numbers with intervals: a summary per grid size, and the exponent of the growth with N.

Results tables have one row per bracket: `decoder`, `dataset`, `N`, `seed`, `threshold` (drawn images), `total_images`
(threshold + images always present), `lower` and `upper` (the bracket, in total images), `verdict`, `runs`, `steps`. Where the
least value of another setting was searched, it stands in these columns, and where this was done along another setting than N,
that one is the column: `axes` say so. `tried`, if it is there, has the runs of each walk.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.alternatives import Broken, broken_law, least_squares, without_each
from analysis.intervals import exp_or_inf, exp_or_none, half_width
from analysis.posterior import Seen, slope_interval
from orchestrator.searches.axes import BUMPS, USUAL, Axes

CURVE = ["decoder", "dataset"]
SETTLED = ("reached", "minimum", "non-monotone", "none reached")
LEAST_TOTAL = 0.5
"""Stands for zero images where a logarithm is taken."""
LEAST_SIZES = 3
"""With fewer grid sizes the exponent is a slope: nothing tells whether a power law fits."""
LEAST_SEEDS = 3
"""With fewer seeds an interval would rest on a spread that is hardly known."""
DIGITS = 12
"""Digits that are kept of a number; those behind are errors of rounding."""


def summarise(results: pd.DataFrame, axes: Axes = USUAL) -> pd.DataFrame:
    """One row per decoder, dataset and N (or other value along): what the seeds say together about the total images needed.

    `total_images` is the geometric mean over seeds. [`lower`, `upper`] is the t-interval of the mean log threshold over
    seeds, widened by the seeds' own brackets: from mean log lower - h to mean log upper + h, h = t s / sqrt(n). Here s is the
    standard deviation of the log thresholds, and at least that of numbers that may lie anywhere in their brackets: seeds that
    end on the same value are not known to be alike. With one seed the interval is the bracket alone. Where a seed passes at the
    lowest value, less may do: the lower end is not known (NaN), and the mean is at most that. A seed that did not reach
    the target counts with its highest count as lower bound, or if a smaller one passes (`non-monotone`) with the largest count
    that misses below all that pass, leaves no mean (NaN) and makes the upper bound infinite. Brackets that failed or are open
    do not count; `note` says so.
    """
    rows = []
    names = [*(name for name in CURVE if name != axes.along), axes.along]
    for values, group in results.groupby(names, sort=axes.scaled):
        settled = group[group["verdict"].isin(SETTLED)]
        reached = settled[~is_censored(settled)]
        n, censored = len(settled), len(settled) - len(reached)
        mean, lower, upper = math.nan, math.nan, math.nan
        if n:
            half = 0.0
            if n > 1:
                logs = _log(settled["total_images"].fillna(settled["lower"]))
                half = half_width(max(logs.std(ddof=1), _unresolved(reached)), n)
            if not is_cut(settled, axes).any():
                lower = _rounded(exp_or_inf(_log(settled["lower"]).mean() - half))
            if not censored:
                mean = geometric_mean(reached["total_images"])
                upper = _rounded(exp_or_inf(_log(reached["upper"]).mean() + half))
                if mean == 0:
                    lower = upper = 0.0
            else:
                upper = math.inf
        notes = [f"{len(reached)} of {n} reached"] if censored else []
        notes += ["one seed: only its bracket"] if n == 1 else []
        if least := int(is_cut(settled, axes).sum()):
            notes.append(f"{least} of {n} pass at the lowest {axes.least}, so less may do")
        for verdict in ("non-monotone", "failed", "open"):
            if count := int((group["verdict"] == verdict).sum()):
                notes.append(f"{count} {verdict}")
        rows.append(
            {
                **dict(zip(names, values, strict=True)),
                "seeds": n,
                "reached": len(reached),
                "total_images": mean,
                "lower": lower,
                "upper": upper,
                "runs": int(group["runs"].sum()),
                "steps": int(group["steps"].sum()),
                "note": "; ".join(notes),
            }
        )
    columns = [*names, "seeds", "reached", "total_images", "lower", "upper", "runs", "steps", "note"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class PowerLaw:
    """total_images = prefactor * N ** exponent. What could not be computed is None, and `note` says why; so is a prefactor that
    no float holds, as of values along that lie close together and far from 1."""

    exponent: float | None
    lower: float | None
    """Ends of the interval of the exponent, which lies between them. It tells how far seeds and single runs move the exponent,
    and not, with fewer than LEAST_SIZES grid sizes, how well a power law fits; `note` says so."""
    upper: float | None
    prefactor: float | None
    sizes: int
    """Grid sizes in the fit."""
    points: int
    """Thresholds in the fit, over sizes and seeds."""
    note: str
    without: Mapping[str, float] = field(default_factory=dict)
    """The exponent without each grid size, by that size; empty with too few of them."""
    broken: Broken | None = None
    """The best law that breaks between two grid sizes; None with too few of them."""


def fit_power_law(results: pd.DataFrame, axes: Axes = USUAL, task: str = BUMPS) -> PowerLaw:
    """Least squares in log-log through the thresholds of one curve (one decoder and dataset), one point per N and seed.

    The interval is that of the likelihood of all runs (`posterior`): how a threshold was looked for does not matter, and luck
    that seeds share widens it. A table may have a column `tried`, the drawn images of the runs of each walk and whether they
    passed. Without it, a threshold lies anywhere in its bracket, without any luck, as does one at the lowest count. Fewer
    than LEAST_SEEDS give no interval. The estimate has every threshold at the upper end of its bracket, and the interval always
    reaches to it. Sizes at which some seed did not reach the target are left out: what remains there would be too low. Where
    some seed failed, this may have had nothing to do with its size, so the others count, and the note names the size.

    Places at which the lowest value passes are left out. Where less could be asked for, the threshold may lie below: values of
    a setting may lie far apart, as depths do, and counts may begin high. One sample is a threshold, as there is nothing below,
    but the law may lie anywhere below it. So only places stay at which none are needed beside those that are always present;
    where these are all, the note says so.

    Args:
        task: its path, which tells what the note calls values of N.
    """
    settled, used = results[results["verdict"].isin(SETTLED)], fitted(results, axes)
    along = axes.along
    whole = settled.groupby(along)["total_images"].transform(lambda values: values.notna().all()).astype(bool)
    unreached, notes = settled[~whole].groupby(along)["total_images"].count(), []
    for without, who in ((unreached.index[unreached > 0], "not every seed"), (unreached.index[unreached == 0], "no seed")):
        notes += [f"without {along} = {_list(without)}: {who} has a threshold"] if len(without) else []
    failed = results[results["verdict"] == "failed"]
    if len(gone := failed[~failed[along].isin(settled[along])]):
        notes.append(f"without {along} = {_list(gone[along])}: every seed that ended failed")
    if len(lowest := settled[whole & ~settled[along].isin(used[along])][along]):
        notes.append(f"without {along} = {_list(lowest)}: the lowest {axes.least} passes, and less cannot be tried")
    sizes, seeds, points = used[along].nunique(), used["seed"].nunique(), len(used)
    of_sizes = along == "N" and task == BUMPS
    places = "grid sizes" if of_sizes else f"values of {along}"

    def result(*more: str, numbers: tuple[float | None, ...] = (None,) * 4) -> PowerLaw:
        exponent, lower, upper, prefactor = (None if n is None else _rounded(n) for n in numbers)
        law = PowerLaw(exponent, lower, upper, prefactor, sizes, points, "; ".join([*notes, *more]))
        if len(steeper := above(results, law, axes)):
            more = (*more, f"at {along} = {_list(steeper)} more are needed than this law has")
            law = replace(law, note="; ".join([*notes, *more]))
        return law if exponent is None else _with_alternatives(law, used, along)

    if sizes < 2:
        return result(f"no exponent: this needs two {places}, and there {'is one' if sizes else 'are none'}")
    if (used["total_images"] <= 0).any():
        return result("no exponent: some thresholds are 0, and 0 has no logarithm")
    if len(failed := failed[failed[along].isin(used[along])]):
        notes.append(f"at {along} = {_list(failed[along])} a seed failed, and what remains there may be too low")
    if sizes < LEAST_SIZES:
        notes.append(f"two {places}: a slope, not a fit")
    if used["total_images"].nunique() == 1:
        notes.append("every threshold is the same")
    if (used["threshold"] == 0).all():
        words = axes.words(task)
        notes.append(f"the {words} that are always present are enough at every {along}; fewer of them were not tried")
    x = np.log(used[along].to_numpy(float))
    y = np.log(used["total_images"].to_numpy(float))
    exponent, height, _ = least_squares(x, y)
    prefactor = exp_or_none(height)
    if seeds < LEAST_SEEDS or points == sizes:
        every = "one seed at every grid size" if of_sizes else f"one seed at every {along}"
        few = {1: "one seed", 2: "two seeds"}.get(seeds, every)
        return result(f"{few}: no interval", numbers=(exponent, None, None, prefactor))
    low, high = slope_interval([_seen(line, along) for line in used.to_dict("records")])
    side, end = ("below", low) if exponent < low else ("above", high)
    if not low <= exponent <= high and round(exponent, 2) != round(end, 2):
        of_runs = " to ".join(f"{round(one, 2) + 0.0:.2f}" for one in (low, high))  # not -0.00
        notes.append(f"the thresholds' exponent lies {side} what the runs say, {of_runs}, and widens the interval")
    return result(numbers=(exponent, min(low, exponent), max(high, exponent), prefactor))


def above(results: pd.DataFrame, law: PowerLaw, axes: Axes = USUAL) -> pd.Series:
    """The places at which some seed misses with more than the law has there, so that the law leaves them out."""
    if law.exponent is None or law.prefactor is None:
        return results[axes.along].iloc[:0]
    missed = results[is_censored(results) & (results["verdict"] == "none reached")]
    with np.errstate(over="ignore", divide="ignore"):
        foretold = law.prefactor * missed[axes.along].to_numpy(float) ** law.exponent
    return missed[axes.along][missed["lower"].to_numpy(float) > foretold]


def fitted(results: pd.DataFrame, axes: Axes = USUAL) -> pd.DataFrame:
    """The thresholds in the fit: those of the sizes at which each that is settled is known, and neither one of them nor the law
    may lie lower."""
    settled = results[results["verdict"].isin(SETTLED)]
    one_sample = (settled["total_images"] == 1) & (settled["threshold"] == 1) & (axes.least == "data_count")
    known = settled["total_images"].notna() & ~one_sample & ~is_cut(settled, axes)
    whole = known.groupby(settled[axes.along]).transform("all").astype(bool)
    return settled[whole].sort_values([axes.along, "seed"])


def is_censored(results: pd.DataFrame) -> pd.Series:
    """Whether a threshold is only known to lie above `lower`: the highest value that was tried misses. The verdict is `none
    reached`, or `non-monotone` where a smaller value passes."""
    return results["verdict"].isin(SETTLED) & results["total_images"].isna()


def is_cut(results: pd.DataFrame, axes: Axes) -> pd.Series:
    """Whether a threshold may lie below the least value that could be tried: this one passes. It may do so with `non-monotone`
    too, as `tried` tells: if nothing below is known to miss, `lower` is that value."""

    def passes_at_least(line: Mapping[Hashable, Any]) -> bool:
        tried = line.get("tried")
        if line["verdict"] != "non-monotone" or not isinstance(tried, Sequence) or not tried:
            return False
        least, passed = tried[0]
        fixed = line["fixed_images"]
        return passed and least + fixed == line["lower"] and not axes.is_floor(least, fixed)

    def is_least(line: Mapping[Hashable, Any]) -> bool:
        least = line["threshold"]
        return line["verdict"] == "minimum" and not axes.is_floor(least, line["total_images"] - least)

    lines = results.to_dict("records")
    return pd.Series([is_least(line) or passes_at_least(line) for line in lines], results.index, dtype=bool)


def _with_alternatives(law: PowerLaw, used: pd.DataFrame, along: str) -> PowerLaw:
    """The law with what stands beside it."""
    sizes, values = used[along].to_numpy(float), used["total_images"].to_numpy(float)
    width = _log(used["upper"]) - _log(used["lower"])
    without = {f"{size:.12g}": _rounded(exponent) for size, exponent in without_each(sizes, values).items()}
    resolution = math.sqrt(float(np.mean(width**2)) / 12)  # of a number that may lie anywhere in its bracket
    return replace(law, without=without, broken=broken_law(sizes, values, resolution))


def _seen(line: Mapping[Hashable, Any], along: str) -> Seen:
    """A row of the results table, with the runs that it rests on."""
    tried = line.get("tried")
    low, high = (math.log(line[end] or LEAST_TOTAL) for end in ("lower", "upper"))
    runs: list[tuple[float, bool]] = []
    if low < high and isinstance(tried, Sequence):
        always = line["total_images"] - line["threshold"]
        runs = [(math.log(count + always or LEAST_TOTAL), passed) for count, passed in tried]
    return Seen(math.log(line[along]), high, low, runs)


def _unresolved(reached: pd.DataFrame) -> float:
    """The standard deviation (root mean square) of the logs of thresholds that may lie anywhere in their brackets. Of whole
    numbers a bracket begins right above its lower end, so (3, 4] leaves nothing open."""
    upper, lower = reached["total_images"], reached["lower"]
    whole = (upper % 1 == 0) & (lower % 1 == 0)
    open_ = (_log(upper) - _log(lower + whole)).clip(min=0)
    return math.sqrt(float(np.square(open_).mean()) / 12) if len(open_) else 0.0


def geometric_mean(totals: Iterable[float | None]) -> float:
    """Zero counts as LEAST_TOTAL, unless all are zero; NaN without any, or if one is not known."""
    numbers = pd.Series(list(totals), dtype=float)
    if len(numbers) and (numbers == 0).all():
        return 0.0
    return _rounded(math.exp(_log(numbers).mean())) if len(numbers) else math.nan


def _log(totals: pd.Series) -> np.ndarray:
    numbers = totals.to_numpy(float)
    return np.log(np.where(numbers == 0, LEAST_TOTAL, numbers))


def _rounded(value: float) -> float:
    """Without the digits that are errors of rounding."""
    return float(f"{value:.{DIGITS}g}")


def _list(values: pd.Series | pd.Index) -> str:
    return ", ".join(str(v) for v in sorted(set(values)))
