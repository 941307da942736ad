"""From thresholds per seed to numbers with intervals: a summary per grid size, and the exponent of the growth with N.

Results tables have one row per bracket: `decoder`, `dataset`, `N`, `seed`, `threshold` (drawn images), `total_images`
(threshold + images always present), `lower` and `upper` (the bracket, in total images), `verdict`, `runs`, `steps`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy import stats

CURVE = ["decoder", "dataset"]
SETTLED = ("reached", "minimum", "non-monotone", "none reached")
LEAST_TOTAL = 0.5
"""Stands for zero images where a logarithm is taken."""


def summarise(results: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """One row per decoder, dataset and N: what the seeds say together about the total images needed.

    `total_images` is the geometric mean over seeds. [`lower`, `upper`] is the t-interval of the mean log threshold over
    seeds, widened by the seeds' own brackets: from mean log lower - h to mean log upper + h, h = t s / sqrt(n). With one
    seed it is the bracket alone. A seed that did not reach the target counts with its highest count as lower bound, leaves
    no mean (NaN) and makes the upper bound infinite. Brackets that failed or are open do not count; `note` says so.
    """
    rows = []
    for (decoder, dataset, N), group in results.groupby([*CURVE, "N"], sort=True):
        settled = group[group["verdict"].isin(SETTLED)]
        reached = settled[settled["total_images"].notna()]
        n, censored = len(settled), len(settled) - len(reached)
        mean, lower, upper = math.nan, math.nan, math.nan
        if n:
            half = 0.0
            if n > 1:
                logs = _log(settled["total_images"].fillna(settled["lower"]))
                half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * logs.std(ddof=1) / math.sqrt(n))
            lower = math.exp(_log(settled["lower"]).mean() - half)
            if not censored:
                mean = math.exp(_log(reached["total_images"]).mean())
                upper = math.exp(_log(reached["upper"]).mean() + half)
            else:
                upper = math.inf
        notes = [f"{len(reached)} of {n} reached"] if censored else []
        notes += ["one seed: its bracket only"] if n == 1 else []
        for verdict in ("non-monotone", "failed", "open"):
            if count := int((group["verdict"] == verdict).sum()):
                notes.append(f"{count} {verdict}")
        rows.append(
            {
                "decoder": decoder,
                "dataset": dataset,
                "N": N,
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
    columns = [*CURVE, "N", "seeds", "reached", "total_images", "lower", "upper", "runs", "steps", "note"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class PowerLaw:
    """quantity = prefactor * N ** exponent. What could not be computed is None, and `note` says why."""

    exponent: float | None
    lower: float | None
    """Ends of the interval of the exponent."""
    upper: float | None
    prefactor: float | None
    sizes: int
    """Grid sizes in the fit."""
    points: int
    """Thresholds in the fit, over sizes and seeds."""
    note: str


def fit_power_law(
    results: pd.DataFrame,
    quantity: str = "total_images",
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> PowerLaw:
    """Least squares in log-log through the thresholds of one curve (one decoder and dataset), one point per N and seed.

    The interval is a bootstrap over seeds, in two levels: the distances of the seeds from the mean of their N are drawn
    with replacement (from all sizes together: three seeds alone say little about their spread, taken to be the same in log
    at every N), and every threshold is then placed at random, evenly in log, inside its own bracket. The distances are
    stretched by sqrt(n / df) t / z, df = points - sizes: few seeds show too little of their spread. Sizes at which some
    seed did not reach the target are left out: what remains there would be too low.

    Args:
        quantity: `total_images`, or `threshold` for the drawn images alone.
    """
    if quantity not in ("total_images", "threshold"):
        raise ValueError(f"quantity must be total_images or threshold, not {quantity!r}")
    settled = results[results["verdict"].isin(SETTLED)]
    whole = settled.groupby("N")[quantity].transform(lambda values: values.notna().all()).astype(bool)
    used = settled[whole].sort_values(["N", "seed"])
    notes = [f"without N = {_list(settled[~whole]['N'])}: not every seed reached the target"] if not whole.all() else []
    sizes, points = used["N"].nunique(), len(used)

    def result(note: str, *numbers: float | None) -> PowerLaw:
        exponent, lower, upper, prefactor = numbers or (None,) * 4
        return PowerLaw(exponent, lower, upper, prefactor, sizes, points, "; ".join([*notes, *([note] if note else [])]))

    if sizes < 2:
        return result(f"no exponent: it takes two grid sizes, here {'is one' if sizes else 'are none'}")
    if (used[quantity] <= 0).any():
        return result("no exponent: some thresholds are 0, which has no logarithm")
    x = np.log(used["N"].to_numpy(float))
    y = np.log(used[quantity].to_numpy(float))
    slope, intercept = _line(x, y[None, :])
    exponent, prefactor = float(slope[0]), math.exp(float(intercept[0]))
    fixed = used["total_images"] - used[quantity]
    width = _log(used["upper"] - fixed) - _log(used["lower"] - fixed)
    means = used.assign(y=y).groupby("N")["y"].transform("mean").to_numpy()
    freedom, tail = points - sizes, (1 - confidence) / 2
    if freedom < 1:
        return result("no interval: it takes a second seed", exponent, None, None, prefactor)
    stretch = math.sqrt(points / freedom) * stats.t.ppf(1 - tail, freedom) / stats.norm.ppf(1 - tail)
    generator = np.random.default_rng(seed)
    picked = generator.choice(y - means, size=(resamples, points))
    slopes, _ = _line(x, means + stretch * picked - generator.random((resamples, points)) * width)
    lower, upper = np.quantile(slopes, [tail, 1 - tail])
    return result("", exponent, float(lower), float(upper), prefactor)


def fit_curves(results: pd.DataFrame, quantity: str = "total_images", seed: int = 0) -> pd.DataFrame:
    """`fit_power_law` for every decoder and dataset, a row each."""
    rows = [
        {"decoder": decoder, "dataset": dataset, "quantity": quantity, **asdict(fit_power_law(group, quantity, seed=seed))}
        for (decoder, dataset), group in results.groupby(CURVE, sort=True)
    ]
    return pd.DataFrame(rows, columns=[*CURVE, "quantity", *PowerLaw.__dataclass_fields__])


def _line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and intercepts of least-squares lines, one per row of y (rows, points)."""
    centred = x - x.mean()
    slopes = y @ centred / (centred @ centred)
    return slopes, y.mean(axis=1) - slopes * x.mean()


def _log(totals: pd.Series) -> np.ndarray:
    return np.log(np.maximum(totals.to_numpy(float), LEAST_TOTAL))


def _list(values: pd.Series | pd.Index) -> str:
    return ", ".join(str(v) for v in sorted(set(values)))
