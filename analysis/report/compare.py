"""Studies of one kind beside each other: what differs in their settings, and in their answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.fits import SETTLED, geometric_mean
from analysis.report.told import Sheet, Told, in_words, of_seeds, seeds_asked
from orchestrator.searches.bracket import ThresholdResult

MOST = 12
"""Studies that one table sets beside each other."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two or more studies of one kind, the first ones of a store or of several."""

    study: str
    columns: Sequence[tuple[str, str]]
    """Of each study its name in the tables, and its place on the page; no place if it is of another store."""
    sheets: Sequence[Sheet]
    count: int
    """Studies of this kind, of which MOST are shown at most."""


def side_by_side(told: Sequence[Told], others: Mapping[str, Sequence[Told]]) -> list[Compared]:
    """Of every kind of study of which there are two or more.

    Args:
        told: the studies of the store.
        others: those of other stores, by their location.
    """
    kinds = dict.fromkeys(one.question.study for one in (*told, *(one for found in others.values() for one in found)))
    compared = []
    for kind in kinds:
        own = [(one, "") for one in told if one.question.study == kind]
        of_others = [(one, store) for store, found in others.items() for one in found if one.question.study == kind]
        count = len(own) + len(of_others)
        found = [*own[: max(1, MOST - len(of_others))], *of_others][:MOST]
        if len(found) < 2:
            continue
        names = _names(found)
        columns = [(name, "" if store else one.id) for name, (one, store) in zip(names, found, strict=True)]
        studies = [one for one, _ in found]
        sheets = [_settings(kind, names, studies)]
        if (thresholds := _thresholds(kind, names, studies)) is not None:
            sheets.append(thresholds)
        compared.append(Compared(kind, columns, sheets, count))
    return compared


def _names(found: Sequence[tuple[Told, str]]) -> list[str]:
    """Short names, unless two are the same then."""
    short = [f"{one.short} in {store}" if store else one.short for one, store in found]
    long = [f"{one.id} in {store}" if store else one.id for one, store in found]
    return short if len(set(short)) == len(short) else long


def _settings(kind: str, names: Sequence[str], studies: Sequence[Told]) -> Sheet:
    """A line for each setting in which they differ, then what they answered."""
    flat = [one.settings for one in studies]
    known = dict.fromkeys(name for settings in flat for name in settings)
    records = []
    for setting in known:
        values = [settings.get(setting, "") for settings in flat]
        if len(set(values)) > 1:
            records.append({"setting": setting, **dict(zip(names, values, strict=True))})
    states = [f"{one.state}: {one.progress}" for one in studies]
    records.append({"setting": "state", **dict(zip(names, states, strict=True))})
    for dataset in dict.fromkeys(dataset for one in studies for dataset in one.exponents):
        told = {name: one.exponents.get(dataset, "") for name, one in zip(names, studies, strict=True)}
        records.append({"setting": f"exponent, {dataset}", **told})
    if not any(one.exponents for one in studies):
        answers = ("; ".join(line.strip() for line in one.lines[: _said(one)]) for one in studies)
        records.append({"setting": "answer", **dict(zip(names, answers, strict=True))})
    title = "the settings in which they differ, and what they answer"
    return Sheet(f"compared-{kind}", title, pd.DataFrame(records, dtype=object))


def _said(one: Told) -> int:
    """How many of its lines are the answer: one for each factor of a signal; of several objectives, all of the front."""
    if one.question.study == "signal":
        return len(one.lines)
    of_front = itertools.takewhile(lambda line: line.startswith(("on the front: ", "  ")), one.lines)
    return max(2, len(list(of_front)))


def _thresholds(kind: str, names: Sequence[str], studies: Sequence[Told]) -> Sheet | None:
    """The geometric mean over seeds at every place, and its ratio to that of the first study over the seeds that both have;
    None if they are not all least values of one setting along another."""
    axes = {result.axes for one in studies for result in one.thresholds}
    if any(not one.thresholds for one in studies) or len(axes) > 1:
        return None
    known, asked = [_by_place(one.thresholds) for one in studies], [seeds_asked(one.thresholds) for one in studies]
    places = sorted({at for of in known for at in of}, key=lambda at: (at[0], isinstance(at[1], str), at[1]))
    [axis] = axes
    records = []
    for dataset, along in places:
        row: dict[str, Any] = {"dataset": dataset, axis.along: along}
        first, *others = ({result.seed: result for result in of.get((dataset, along), ())} for of in known)
        seeds = [of[dataset, along] for of in asked]
        row[names[0]] = _told_mean(first, seeds[0])
        for name, other, count in zip(names[1:], others, seeds[1:], strict=True):
            row[name], row[f"{name} / first"] = _told_mean(other, count), _ratio(other, first)
        records.append(row)
    if not records:
        return None
    table = pd.DataFrame(records)
    table = table.drop(columns=[name for name in table if name.endswith("/ first") and table[name].isna().all()])
    title = "thresholds, geometric means over seeds, and their ratio to those of the first over the seeds that both have"
    return Sheet(f"compared-{kind}-thresholds", title, table, heads={axis.along: in_words(axis.along)})


def _by_place(results: Sequence[ThresholdResult]) -> dict[tuple[str, Any], list[ThresholdResult]]:
    """What is settled, by data set and place: the mean of those that were reached alone would be too low."""
    found: dict[tuple[str, Any], list[ThresholdResult]] = {}
    for result in results:
        if result.total_images or result.verdict in SETTLED:
            found.setdefault((result.dataset, result.along), []).append(result)
    return found


def _told_mean(of: Mapping[int, ThresholdResult], asked: int) -> float | str:
    """The mean of the thresholds by seed, in words where less may do, or where it is that of some of the seeds alone."""
    mean = geometric_mean(result.total_images for result in of.values())
    is_cut = any(result.is_cut for result in of.values())
    if math.isnan(mean) or not (is_cut or len(of) < asked):
        return mean
    return f"{'at most ' * is_cut}{mean:.3g}{of_seeds(len(of), asked)}"


def _ratio(of: Mapping[int, ThresholdResult], first: Mapping[int, ThresholdResult]) -> float:
    """That of the means over the seeds that both have; NaN if there are none, or where less may do."""
    pairs = [(of[seed], first[seed]) for seed in of if seed in first]
    if any(result.is_cut for pair in pairs for result in pair):
        return math.nan
    above, below = (geometric_mean(pair[place].total_images for pair in pairs) for place in (0, 1))
    return above / below if below else math.nan
