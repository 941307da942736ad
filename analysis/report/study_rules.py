"""What the rows of the scaling and the regularization study say of the claims about them (paper figures 3e and 4c)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from operator import sub

import pandas as pd

from analysis import regularization, scaling
from analysis.figures.regularization import draw_bands, draw_curves, draw_errors
from analysis.figures.scaling import draw as draw_thresholds
from analysis.fits import LEAST_SIZES, PowerLaw, above, fit_power_law, fitted, is_censored, is_cut
from analysis.generators import LEAST_SEEDS
from analysis.regularization import LEARNED_SHARE
from analysis.report.answers import SETTINGS, AnyAnswer, Found, penalty_run, regularization_answer, scaling_answer, seeds_to_ask
from analysis.report.findings import (
    NOT_ENOUGH,
    REPRODUCED,
    UNMEASURED,
    BySeed,
    Condition,
    Finding,
    Picture,
    beside,
    in_words,
    number,
    paired,
    ratio,
    told_values,
    verdict,
)
from analysis.report.missing import Lacks, of_penalties, of_scaling
from analysis.results import Results
from orchestrator.searches import Row
from orchestrator.searches.axes import BUMPS

FOUR = tuple(SETTINGS.values())
PAPER_CUBIC = scaling.CLAIMS["bumps"]
NONE_AND_BOTH = (FOUR[0], FOUR[-1])
OF_BANDS = ("setting", "seed", "key")
OF_QUANTITY = ("quantity", "value", "array")
LEAST_N = 16
"""From this grid size on, bumps alone must need more images than stripes and bumps."""
GRID_SIZES = "grid sizes"
MORE_THAN_LAW = "grid sizes that are left out need more than this law has, so its exponent is too low"
MOST_WIDTH = 1.0
"""A wider interval of an exponent holds too many others to say which it is."""


def regularization_helps(results: Results) -> Finding:
    """Errors of the four settings, seed by seed."""
    found = regularization_answer(results)
    averaged = found.answer.averaged if found else None
    none, entropy, variance, both = (_by_seed(averaged, setting, "ood_mse") for setting in FOUR)
    id_errors = [_by_seed(averaged, setting, "id_mse") for setting in FOUR]
    lowest = paired(lambda without, *others: ratio(min(others), without), *id_errors)
    conditions = [
        Condition("OOD MSE, no penalty / entropy", paired(ratio, none, entropy), ">=", 1),
        Condition("OOD MSE, entropy / variance", paired(ratio, entropy, variance), ">=", 1),
        Condition("OOD MSE, variance / both", paired(ratio, variance, both), ">=", 1),
        Condition("OOD MSE, both", both, "<=", 1e-3),
        Condition("OOD MSE, no penalty / both", paired(ratio, none, both), ">=", 10),
        Condition("least ID MSE with a penalty / ID MSE without", lowest, ">=", 1),
    ]
    if found is None:
        return Finding(conditions, lacks=_lacking_penalties(results))
    answer = found.answer
    lacks = _of_comparison(next(iter(answer.rows.values())), results)
    alt = "ID and OOD error without a penalty, with each of the two and with both"
    pictures = [Picture("regularization-errors", alt, partial(draw_errors, answer))]
    if any(answer.rows[key]["curve_step"] for key in answer.averaged["key"]):
        alt = "OOD error and training error by the epoch; lines: geometric means over the seeds, bands: their range"
        pictures.append(Picture("regularization-curves", alt, partial(draw_curves, answer)))
    means = (f"{row['setting']} {number(row['ood_mse_gmean'])}" for row in answer.summary.to_dict("records"))
    seen = f"OOD MSE, geometric means: {', '.join(means)}"
    return _finding(conditions, seen, found, pictures, lacks)


def embeddings_are_bands(results: Results) -> Finding:
    """Bands and ranks of the embeddings of the box's coordinates, of decoders that have learned to draw without a penalty and
    with both."""
    measured = results.table.loc[results.table["measure"] == "embeddings", ["key", *OF_QUANTITY]]
    found = regularization_answer(results, NONE_AND_BOTH, {*measured["key"]})
    if found is None:
        return Finding(_of_bands(pd.DataFrame(columns=[*OF_BANDS, "learned", *OF_QUANTITY])), lacks=_lacking_penalties(results))
    answer = found.answer
    averaged = answer.averaged[[*OF_BANDS]].assign(learned=answer.averaged["id_mse"] / _blank(answer))
    table = averaged.merge(measured, on="key")
    conditions = _of_bands(table)
    few = averaged["setting"].value_counts().reindex(NONE_AND_BOTH, fill_value=0).min() < LEAST_SEEDS
    lacks = _of_comparison(next(iter(answer.rows.values())), results) if few else UNMEASURED
    pictures = []
    if (table["quantity"] == "band").any():
        alt = "strength of the bands of the box's coordinates, seen and unseen; lines: means over the seeds, areas: their range"
        pictures.append(Picture("embeddings-bands", alt, partial(draw_bands, answer, table)))
    return _finding(conditions, in_words(conditions), found, pictures, lacks)


def _of_bands(table: pd.DataFrame) -> list[Condition]:
    def values(setting: str, quantity: str, column: str = "value") -> BySeed:
        return _by_seed(table[table["quantity"] == quantity].dropna(subset=["value", column]), setting, column)

    none, both = NONE_AND_BOTH
    return [
        *(
            Condition(f"ID MSE / that of a blank image, {told}", values(setting, "band_ood", "learned"), "<", LEARNED_SHARE)
            for setting, told in ((none, "no penalty"), (both, "both"))
        ),
        Condition("band at unseen / seen coordinates, both", values(both, "band_ood"), ">=", 0.9),
        Condition("band at unseen / seen coordinates, no penalty", values(none, "band_ood"), "<=", 0.3),
        Condition("share of the largest squared singular value, both", values(both, "rank_one_ood"), ">=", 0.95),
    ]


def _blank(answer: regularization.Answer) -> float:
    """The ID error of a blank image; NaN of images that are none of the study."""
    try:
        return answer.blank_error("rest", "validation")
    except ValueError:
        return math.nan


def _lacking_penalties(results: Results) -> Lacks | None:
    """What trains the missing runs of the comparison that most runs are of."""
    run = penalty_run([run for run in results.runs if run["key"] not in results.tuned])
    return None if run is None else _of_comparison(run, results)


def _of_comparison(run: Row, results: Results) -> Lacks | None:
    """What trains the missing runs of the comparison that this is a run of."""
    return of_penalties(run, seeds_to_ask(run, results.runs))


def stripes_scale_linearly(results: Results) -> Finding:
    """The two exponents, and the totals at every grid size."""
    found = scaling_answer(results)
    answer = None if found is None else found.answer
    bumps, stripes = _exponents(answer, "bumps"), _exponents(answer, "stripes+bumps")
    fits = {} if answer is None else answer.fits
    of_bumps, of_stripes = (fits[d].exponent if d in fits else None for d in ("bumps", "stripes+bumps"))
    slope, few = _slope(answer), {dataset: _lacking(answer, dataset) for dataset in ("bumps", "stripes+bumps")}
    small = answer is not None and len(answer.known) and answer.known["N"].max() < LEAST_N
    difference = "exponent of bumps alone minus that of stripes + bumps"
    ratios = f"images, bumps alone / stripes + bumps, least over N >= {LEAST_N}"
    apart = None if of_bumps is None or of_stripes is None else of_bumps - of_stripes
    conditions = [
        Condition(f"exponent of stripes + bumps{slope}", stripes, ">=", 0.8, of_stripes, few["stripes+bumps"]),
        Condition(f"exponent of stripes + bumps{slope}", stripes, "<=", 1.2, of_stripes, few["stripes+bumps"]),
        Condition(f"exponent of bumps alone{slope}", bumps, ">=", 1.4, of_bumps, few["bumps"]),
        Condition(f"{difference}{slope}", paired(sub, bumps, stripes), ">", 0, apart, few["bumps"] or few["stripes+bumps"]),
        Condition(ratios, _least_ratio(answer), ">", 1, lacking=GRID_SIZES if small else ""),
    ]
    finding = _scaling_finding(conditions, found, ("bumps", "stripes+bumps"), draws=True)
    fewer_images = conditions[-1]
    if finding.verdict == NOT_ENOUGH or (fewer_images.enough and not fewer_images.met):
        return finding
    at_least, at_most, of_bumps_alone, steeper, _ = conditions
    if _is_too_low(answer) and not (of_bumps_alone.met and steeper.met):
        return _undecided(finding, MORE_THAN_LAW)
    bounds = {"stripes+bumps": {at_least.bound, at_most.bound}, "bumps": {of_bumps_alone.bound}}
    wide = [dataset for dataset, fit in fits.items() if dataset in few and _is_open(fit, bounds[dataset])]
    return _too_wide(finding, fits[wide[0]], f" of the exponent of {wide[0]}") if wide else finding


def bumps_scale_cubically(results: Results) -> Finding:
    """Whether the interval of the exponent of bumps alone holds the paper's 3, and little else."""
    found = scaling_answer(results)
    answer = None if found is None else found.answer
    fit = answer.fits.get("bumps") if answer else None
    seeds = dict.fromkeys(_exponents(answer, "bumps"), math.nan)  # these count, and have no interval of their own
    lower, upper = (math.nan, math.nan) if fit is None or fit.lower is None or fit.upper is None else (fit.lower, fit.upper)
    slope, few = _slope(answer, "bumps"), _lacking(answer, "bumps")
    conditions = [
        Condition(f"upper end of the 95 % interval of the exponent{slope}", seeds, ">=", PAPER_CUBIC, upper, few),
        Condition(f"lower end of the 95 % interval of the exponent{slope}", seeds, "<=", PAPER_CUBIC, lower, few),
    ]
    width = Condition(f"width of the 95 % interval of the exponent{slope}", seeds, "<=", MOST_WIDTH, upper - lower, few)
    finding = _scaling_finding([*conditions, width], found, ("bumps",), draws=False)
    if answer is None or fit is None:
        return finding
    if upper < PAPER_CUBIC and _is_too_low(answer):
        return _undecided(finding, MORE_THAN_LAW)
    return finding if verdict(conditions) != REPRODUCED or width.met else _too_wide(finding, fit)


def _is_too_low(answer: scaling.Answer | None) -> bool:
    """Whether the law of bumps alone leaves out grid sizes that need more than it has."""
    fit = None if answer is None else answer.fits.get("bumps")
    if answer is None or fit is None:
        return False
    return len(above(answer.known[answer.known["dataset"] == "bumps"], fit, answer.axes)) > 0


def _width(fit: PowerLaw) -> float:
    """Of the interval of the exponent; NaN: there is none."""
    return math.nan if fit.lower is None or fit.upper is None else fit.upper - fit.lower


def _is_open(fit: PowerLaw, bounds: Collection[float]) -> bool:
    """Whether the interval of the exponent is too wide, and holds one of these bounds."""
    return _width(fit) > MOST_WIDTH and any(fit.lower < bound < fit.upper for bound in bounds)  # type: ignore[operator]


def _too_wide(finding: Finding, fit: PowerLaw, whose: str = "") -> Finding:
    """The same without a verdict, as the interval of this exponent holds too many others."""
    too_wide = f"the interval{whose} is too wide, {beside(_width(fit), MOST_WIDTH)} where {MOST_WIDTH:g} is asked for"
    return _undecided(finding, f"{too_wide}: more seeds or grid sizes narrow it")


def _undecided(finding: Finding, why: str) -> Finding:
    """The same without a verdict."""
    lacks = finding.lacks if finding.lacks is not None and finding.lacks.commands else Lacks([], why)
    return replace(finding, seen=f"{finding.seen}; {why}", given=NOT_ENOUGH, lacks=lacks)


def _scaling_finding(
    conditions: list[Condition], found: Found[scaling.Answer] | None, datasets: tuple[str, ...], draws: bool
) -> Finding:
    if found is None:
        return Finding(conditions)
    answer = found.answer
    alt = "images needed against grid size, for bumps alone and with stripes"
    pictures = [Picture("scaling", alt, partial(draw_thresholds, answer))] if draws and len(answer.table) else []
    return _finding(conditions, "; ".join(answer.lines()), found, pictures, _lacking_thresholds(found, datasets))


def _finding(
    conditions: list[Condition], seen: str, found: Found[AnyAnswer], pictures: list[Picture], lacks: Lacks | None
) -> Finding:
    settings = {name: told_values(value if isinstance(value, list) else [value]) for name, value in found.settings.items()}
    return Finding(conditions, seen, settings, found.others, pictures, lacks=lacks, guessed=found.guessed)


def _lacking_thresholds(found: Found[scaling.Answer], datasets: tuple[str, ...]) -> Lacks | None:
    """What trains the missing ones; None for a task of the user's own, which the claims are not about."""
    if found.settings["task"] != BUMPS:
        return None
    least = LEAST_N if len(datasets) > 1 else 0
    lacks = of_scaling(found.settings, datasets, least)
    wanted = {(d, N, seed) for d in datasets for N in found.settings["N"] for seed in range(LEAST_SEEDS)}
    known = set(found.answer.table[["dataset", "N", "seed"]].itertuples(index=False, name=None))
    if lacks.why or wanted - known:
        return lacks
    return Lacks([], "some thresholds lie outside the numbers of images that were tried, or one of their runs failed")


def _by_seed(table: pd.DataFrame | None, setting: str, column: str) -> BySeed:
    """A column of the runs of a setting, by seed."""
    if table is None:
        return {}
    rows = table[table["setting"] == setting]
    return {int(seed): float(value) for seed, value in zip(rows["seed"], rows[column], strict=True)}


def _slope(answer: scaling.Answer | None, *datasets: str) -> str:
    """What stands beside exponents if one of them rests on two grid sizes."""
    fits = {} if answer is None else answer.fits
    few = any(1 < fit.sizes < LEAST_SIZES for name, fit in fits.items() if name in datasets or not datasets)
    return " (two grid sizes: a slope, not a fit)" if few else ""


def _lacking(answer: scaling.Answer | None, dataset: str) -> str:
    """What keeps all seeds of a data set from an exponent, if that is not seeds."""
    known = None if answer is None else answer.known[answer.known["dataset"] == dataset]
    return GRID_SIZES if known is not None and len(known) and fitted(known)["N"].nunique() < LEAST_SIZES else ""


def _exponents(answer: scaling.Answer | None, dataset: str) -> BySeed:
    """The exponent of each seed by itself, over the grid sizes that the fit of all seeds uses; a seed that lacks one of
    these has none, and no seed has one from fewer than LEAST_SIZES sizes."""
    if answer is None:
        return {}
    used = fitted(answer.known[answer.known["dataset"] == dataset])
    if used["N"].nunique() < LEAST_SIZES:
        return {}
    exponents = {}
    for seed, part in used.groupby("seed"):
        fit = fit_power_law(part)
        if fit.exponent is not None and fit.sizes == used["N"].nunique():
            exponents[int(seed)] = fit.exponent
    return exponents


def _least_ratio(answer: scaling.Answer | None) -> BySeed:
    """Total images of bumps alone over those of stripes and bumps, at the grid size where that is least, by seed. Where one
    does not reach the target with the most images tried, it is known to need more than these: of stripes the ratio is 0 then.
    Where one passes at the lowest count, less may do. A ratio that may then lie on the other side of 1 is not known. A seed
    that lacks a ratio at one of the grid sizes of either data set has none, as its least ratio may be there; unless that can
    only be less than another one, which is 1 at most."""
    if answer is None:
        return {}
    both = answer.known["dataset"].isin(("bumps", "stripes+bumps"))
    known = answer.known[(answer.known["N"] >= LEAST_N) & both]
    missed, cut = is_censored(known), is_cut(known, answer.axes)
    least = known["total_images"].mask(missed, known["lower"])
    totals = known.assign(least=least, missed=missed.astype(float), cut=cut.astype(float))
    totals = totals[least.notna()].pivot_table(["least", "missed", "cut"], ["seed", "N"], "dataset")
    if not {"bumps", "stripes+bumps"} <= set(totals.columns.get_level_values("dataset")):
        return {}
    bumps, stripes = totals["least"]["bumps"], totals["least"]["stripes+bumps"]
    ratios = bumps / stripes.mask(totals["missed"]["stripes+bumps"] == 1, math.inf)
    may_be_less = totals["cut"]["bumps"] == 1
    may_be_more = (totals["cut"]["stripes+bumps"] == 1) | (totals["missed"]["bumps"] == 1)
    below = (may_be_less & (ratios > 1)).unstack("N", fill_value=False)  # less than the ratio, and who knows by how much
    ratios = ratios.mask(may_be_less & (ratios > 1)).mask(may_be_more & (ratios <= 1)).unstack("N")
    ratios = ratios.reindex(columns=known["N"].unique())
    least = ratios.min(axis=1)
    decided = (ratios.notna() | below.reindex(columns=ratios.columns, fill_value=False)).all(axis=1)
    decided &= ratios.notna().all(axis=1) | (least <= 1)
    return {int(seed): float(value) for seed, value in least[decided].items()}
