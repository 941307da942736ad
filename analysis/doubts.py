"""What speaks against the thresholds of a study: runs that miss although smaller ones pass, and seeds that lie far apart."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from orchestrator.searches.axes import Axes

BAD_LUCK = 1.5
"""A run that misses with so many times as much as one that passes is told of by itself: near a threshold some do."""
APART = 2.0
"""Seeds whose thresholds lie more than so many times apart, for certain, are told of."""

UNLUCKY = (
    "If such runs miss by bad luck, thresholds come out too high: make runs more reliable, by longer training for example, and "
    "ask again. If it is not luck, larger values make runs worse there"
)
LOST = "So no value is known from which on all runs pass: larger values make runs worse, or passing is a matter of luck"
ONE_MISS = "A single run may miss by bad luck, so this may not be out of reach: more seeds tell (--seeds)"
SEEDS_APART = (
    "So passing may hang on the seed or on luck, and thresholds and their exponent are less sure than their intervals say"
)
MORE_SEEDS = ": more seeds tell (--seeds)"
"""What to do then, unless runs miss by bad luck: of more seeds thresholds are as much too high."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """`at`: where on the axis along; `text`: what is so there."""

    at: Any
    text: str


def doubts(known: pd.DataFrame, axes: Axes, task: str) -> list[str]:
    """A line per data set and kind of doubt, which names every place.

    Args:
        known: a row per answered threshold, as `ThresholdResult.to_row` makes it.
    """
    of_datasets = [(f"{dataset}: ", rows) for dataset, rows in known.groupby("dataset", sort=False)]
    unlucky, lost, near, apart = [], [], [], []
    for dataset, rows in of_datasets:
        ended = rows[rows["verdict"] != "failed"].to_dict("records")  # a run that crashed has no luck
        contrary = [(one, doubt) for one in ended if (doubt := _contrary(one, axes, task))]
        some = [(one, doubt) for one, doubt in contrary if not math.isnan(one["images"])]
        meaning = f"{_share(rows.to_dict('records'))}. {UNLUCKY}"
        far = [doubt for one, doubt in some if _times(one) > BAD_LUCK]
        unlucky += line_of(dataset, far, axes, meaning)
        lost += line_of(dataset, [doubt for one, doubt in contrary if math.isnan(one["images"])], axes, LOST)
        near += _near(dataset, [doubt for one, doubt in some if _times(one) <= BAD_LUCK], axes)
        apart += line_of(dataset, _apart(rows, axes, task), axes, SEEDS_APART if far else SEEDS_APART + MORE_SEEDS)
    single = [line for dataset, rows in of_datasets for line in line_of(dataset, _single(rows, axes, task), axes, ONE_MISS)]
    return [*unlucky, *lost, *near, *single, *apart]


def _contrary(one: Mapping[Hashable, Any], axes: Axes, task: str) -> Doubt | None:
    """Where a run of a threshold passes and one with more misses; None if there are no such two."""
    passes, misses = _tried(one, True), _tried(one, False)
    if not (passes and misses) or max(misses) <= min(passes):
        return None
    least, most = (axes.told(_plain(count + one["fixed_images"]), task) for count in (min(passes), max(misses)))
    place = f"at {axes.along} = {one[axes.along]}, seed {one['seed']}"
    return Doubt(one[axes.along], f"{place}, a run with {least} passes and one with {most} misses")


def _times(one: Mapping[Hashable, Any]) -> float:
    """How many times as much the highest run that misses has as the lowest that passes."""
    fixed = one["fixed_images"]
    return (max(_tried(one, False)) + fixed) / max(min(_tried(one, True)) + fixed, math.ulp(0))


def _share(rows: Sequence[Mapping[Hashable, Any]]) -> str:
    """How many of the runs miss that have far more than the least that passes, in words."""
    missed = among = 0
    for one in rows:
        fixed, least = one["fixed_images"], min(_tried(one, True), default=math.inf)
        far = {was: sum(value + fixed > BAD_LUCK * (least + fixed) for value in _tried(one, was)) for was in (True, False)}
        missed, among = missed + far[False], among + sum(far.values())
    told = f"Of {among} runs with over {BAD_LUCK:g} times as much as the least that passes in their search, {missed} "
    return f"{told}{'misses' if missed == 1 else 'miss'}; the share of all runs may be larger"


def _tried(one: Mapping[Hashable, Any], passed: bool) -> list[float]:
    """The values of the walk that passed, or missed."""
    tried = one["tried"] if isinstance(one["tried"], tuple | list) else ()
    return [value for value, was in tried if was is passed]


def _single(rows: pd.DataFrame, axes: Axes, task: str) -> list[Doubt]:
    """Where `none reached` rests on one run. Where runs of other seeds miss as well, and none passes, they bear it out."""
    told = []
    for (_, along), seeds in rows.groupby(["decoder", axes.along], sort=False):
        of_seeds = seeds.to_dict("records")
        passes = any(_tried(one, True) for one in of_seeds)
        if passes or sum(len(_tried(one, False)) for one in of_seeds) == 1:
            for one in of_seeds:
                if one["verdict"] == "none reached" and len(missed := _tried(one, False)) == 1:
                    most = axes.told(_plain(missed[0] + one["fixed_images"]), task)
                    text = f"at {axes.along} = {along}, seed {one['seed']}, `none reached` rests on a single run, with {most}"
                    told.append(Doubt(along, text))
    return told


def _apart(rows: pd.DataFrame, axes: Axes, task: str) -> list[Doubt]:
    """Where a seed needs more than APART times as much as another, as even its largest miss tells."""
    told = []
    for (_, along), seeds in rows[rows["verdict"] != "failed"].groupby(["decoder", axes.along], sort=False):
        missed = max(map(_missed, seeds.to_dict("records")))
        if missed > APART * (least := seeds["images"].min()):
            most = missed if (beyond := bool(seeds["images"].isna().any())) else seeds["images"].max()
            first, last = (axes.told(_plain(value), task) for value in (least, most))
            text = f"at {axes.along} = {along} seeds need from {first} to {'more than ' * beyond}{last}"
            told.append(Doubt(along, text))
    return told


def _missed(one: Mapping[Hashable, Any]) -> float:
    """The most with which a run of a threshold is known to miss; minus infinity if none is."""
    misses = [value + one["fixed_images"] for value in _tried(one, False)]
    return max([*misses, *([] if pd.isna(one["images_lower"]) else [one["images_lower"]])], default=-math.inf)


def line_of(dataset: str, found: Sequence[Doubt], axes: Axes, meaning: str) -> list[str]:
    """A line that tells the first of these and names where the others are, and what it means; none if there are none."""
    return [f"{dataset}{found[0].text}{_and_more(found[1:], axes)}. {meaning}"] if found else []


def _near(dataset: str, found: Sequence[Doubt], axes: Axes) -> list[str]:
    """What the mark `?` of a threshold means, where no other line tells it."""
    if not found:
        return []
    so = "a run misses though one with slightly less passes, so the threshold (?) is the least value above all that miss"
    return [f"{dataset}{_places(found, axes)} {so}"]


def _and_more(found: Sequence[Doubt], axes: Axes) -> str:
    return f", and so in {len(found)} more, {_places(found, axes)}" if found else ""


def _places(found: Sequence[Doubt], axes: Axes) -> str:
    return f"at {axes.along} = {', '.join(dict.fromkeys(str(doubt.at) for doubt in found))}"


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value
