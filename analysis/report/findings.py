"""What a claim is and how it is judged: conditions over seeds, one rule for the verdict, one choice among settings."""

from __future__ import annotations

import json
import math
import operator
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from analysis.digits import told_apart
from analysis.generators import LEAST_SEEDS
from analysis.report.missing import Lacks, of_decoders, seeds_beside
from analysis.report.usual import departures
from analysis.results import Results
from orchestrator.searches import Row

REPRODUCED, NOT_REPRODUCED, NOT_ENOUGH = "reproduced", "not reproduced", "not enough runs"
DEPENDS = "depends"
"""On the settings: comparisons of some are decided differently from those of others."""
UNMEASURED = Lacks([], "some were not measured, or their measures are not numbers")
RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
ENDED_WELL = ("passed", "missed")

SHARED = ("N", "max_steps", "lr", "batch_size", "weight_decay", "schedule", "setting_options")
"""Columns in which all runs behind one finding agree."""
OWN = ("dataset", "decoder", "depth", "encoding", "holdout", "width", "precision", "data_count")
"""Columns in which the runs of one group agree, and those of different groups only as far as `shared_names` says."""

Where = Mapping[str, Any]
"""Columns of a run and the values they must have."""
BySeed = dict[int, float]


@dataclass(frozen=True, slots=True)
class Condition:
    """`text relation bound`, for the median over seeds, or for `estimate` where all seeds make one estimate together; NaN if
    they do not make it."""

    text: str
    values: BySeed
    relation: str
    bound: float
    estimate: float | None = None
    lacking: str = ""
    """What there are too few of for a value of any seed, where further seeds would not help."""

    @property
    def judged(self) -> float:
        """The number that is compared with the bound; NaN without seeds, or where there is no estimate."""
        if self.estimate is not None:
            return self.estimate
        return statistics.median(self.values.values()) if self.values else math.nan

    @property
    def met(self) -> bool:
        return RELATIONS[self.relation](self.judged, self.bound)

    @property
    def met_by(self) -> int | None:
        """How many seeds meet it alone; None where all make one estimate together."""
        meets = RELATIONS[self.relation]
        return None if self.estimate is not None else sum(meets(value, self.bound) for value in self.values.values())

    @property
    def is_known(self) -> bool:
        """Whether there is a number to compare."""
        return bool(self.values) and not math.isnan(self.judged)

    @property
    def enough(self) -> bool:
        return len(self.values) >= LEAST_SEEDS and self.is_known


def verdict(conditions: Sequence[Condition]) -> str:
    """The only rule: every condition needs LEAST_SEEDS seeds, and all of them must be met."""
    if not conditions or not all(condition.enough for condition in conditions):
        return NOT_ENOUGH
    return REPRODUCED if all(condition.met for condition in conditions) else NOT_REPRODUCED


def in_words(conditions: Sequence[Condition]) -> str:
    """How many conditions are met, and which are not."""
    known = [c for c in conditions if c.values]
    unmet = [f"{c.text} is {beside(c.judged, c.bound)}, not {c.relation} {number(c.bound)}" for c in known if not c.met]
    return "; ".join([f"{len(known) - len(unmet)} of {len(conditions)} conditions are met", *unmet])


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page: `name` is that of its files, `alt` says what it shows."""

    name: str
    alt: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Beside:
    """A table that is shown and does not decide."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of the comparisons behind a verdict: of which settings, where there are several, and over how many seeds."""

    about: str
    verdict: str
    numbers: Mapping[str, float]
    seeds: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What the runs say of a claim. `seen`: in one line. `settings`: those of the runs, by name. `others`: how many other
    settings the store has that would have served."""

    conditions: list[Condition]
    seen: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    others: int = 0
    pictures: list[Picture] = field(default_factory=list)
    beside: Beside | None = None
    lacks: Lacks | None = None
    """What trains the missing runs; None if the rows do not tell with which settings."""
    guessed: bool = False
    """Whether the settings were guessed from the rows, as no question of a launch is stored that names them."""
    given: str = ""
    """The verdict, where it is not that of the conditions: it also rests on gates, or an interval is too wide for one."""
    counted: int | None = None
    """Seeds that a given verdict rests on."""
    comparisons: Sequence[Comparison] = ()
    """Those behind a given verdict."""
    shown: str = ""
    """What the page has in the place of `seen`, where that is long."""
    unmet: Sequence[int] = ()
    """Gates that there are runs for which do not meet them."""

    @property
    def verdict(self) -> str:
        return self.given or verdict(self.conditions)

    @property
    def seeds(self) -> int:
        """Seeds of the condition that has fewest."""
        if self.counted is not None:
            return self.counted
        return min((len(condition.values) for condition in self.conditions), default=0)

    @property
    def lacking(self) -> str:
        """What the condition that has no seed has too few of."""
        return next((condition.lacking for condition in self.conditions if condition.lacking), "seeds")

    @property
    def speaks(self) -> bool:
        """Whether any run says something of the claim: figures of others would show what nobody asked for."""
        return any(condition.values for condition in self.conditions) if self.counted is None else self.counted > 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper that can be judged. `figures`: the paper's, if they are known. `command`: what makes the runs it
    needs, as the paper trains."""

    id: str
    title: str
    figures: str
    command: str
    rule: str
    evaluate: Callable[[Results], Finding]


@dataclass(frozen=True, slots=True)
class Choice:
    """The runs a finding rests on: those of each group, all of one setting."""

    groups: Mapping[str, pd.DataFrame]
    shared: Where
    """The values of what all groups share, see `shared_names`."""
    others: int
    """How many other settings have runs of these groups."""
    asked: Mapping[str, Where] = field(default_factory=dict)
    """What the runs of each group are to have."""
    elsewhere: Where = field(default_factory=dict)
    """The values of SHARED with which most runs of the same task were trained, where no group has a run."""

    @property
    def settings(self) -> dict[str, str]:
        """The values of SHARED and OWN that occur, the options one by one."""
        words: dict[str, str] = {}
        table = self.table
        for name in (*SHARED, *OWN) if len(table) else ():
            if name == "setting_options":
                words |= {option: str(value) for option, value in json.loads(table[name].iloc[0]).items()}
            else:
                words[name] = told_values(sorted(set(table[name])))
        return words

    @property
    def seeds(self) -> int:
        """Of the group that has fewest."""
        return min((group["seed"].nunique() for group in self.groups.values()), default=0)

    @property
    def table(self) -> pd.DataFrame:
        """The groups together."""
        tables = [group for group in self.groups.values() if len(group)]
        return pd.concat(tables).drop_duplicates(["key", "measure", "quantity", "layer"]) if tables else pd.DataFrame()

    def lacks(self, study: str, results: Results) -> Lacks | None:
        """What trains the seeds that groups are short of, as each seed is compared with itself; see `of_decoders`. None if no
        run tells how."""
        shared = dict(self.shared or self.elsewhere)
        if not shared or any("depth" not in where for where in self.asked.values()):
            return None
        shared["options"] = json.loads(shared.pop("setting_options"))
        if self.paired_seeds >= LEAST_SEEDS:
            return UNMEASURED
        lost = self.lost_seeds(results)
        seeds = seeds_beside(lost)
        wanted = {*range(seeds)} - lost
        short = [name for name, group in self.groups.items() if wanted - {*group["seed"]}]
        return of_decoders([{**self._own(name), **self.asked[name], **shared} for name in short], study, seeds)

    @property
    def paired_seeds(self) -> int:
        """How many seeds all groups have."""
        return len(set[int].intersection(*({*group["seed"]} for group in self.groups.values()))) if self.groups else 0

    def lost_seeds(self, results: Results) -> set[int]:
        """Those of which a run did not end well, and none counts."""
        return {run["seed"] for run in self._lost(results)}

    def _own(self, name: str) -> dict[str, Any]:
        """OWN of a group's runs; of a group without any, only what runs of the same decoder have, and None."""
        group, table = self.groups[name], self.table
        if len(group):
            return dict(group[list(OWN)].iloc[0])
        same = table[table["decoder"] == self.asked[name]["decoder"]] if len(table) else table
        return dict.fromkeys(OWN) | (dict(same[["width", "precision"]].iloc[0]) if len(same) else {})

    def lost(self, results: Results) -> str:
        """`; 7 more diverged`: how many runs of this setting did not end well, of seeds of which no run counts."""
        statuses = Counter(run["status"] for run in self._lost(results))
        return "".join(f"; {count} more {status}" for status, count in sorted(statuses.items()))

    def _lost(self, results: Results) -> list[Row]:
        lost: dict[str, Row] = {}
        unwell = [run for run in results.runs if run["stop"] == "budget" and run["status"] not in ENDED_WELL]
        unwell = [run for run in unwell if run["key"] not in results.tuned]
        for name, group in self.groups.items() if self.shared and unwell else ():
            wanted = {**self._own(name), **self.asked[name], **self.shared}
            options, seeds = json.loads(wanted.pop("setting_options")), set(group["seed"])
            for run in unwell:
                is_same = all(value is None or run[column] == value for column, value in wanted.items())
                if is_same and run["options"] == options and run["seed"] not in seeds:
                    lost[run["key"]] = run
        return list(lost.values())

    def values(self, group: str, measure: str, quantity: str, layer: int | None = None) -> BySeed:
        """A quantity of a group by seed; seeds for which it is not a finite number are left out."""
        rows = self.groups[group]
        chosen = matching(rows, {"measure": measure, "quantity": quantity} | ({} if layer is None else {"layer": layer}))
        found = zip(rows["seed"][chosen].astype(int), rows["value"][chosen].astype(float), strict=True)
        return {seed: value for seed, value in sorted(found) if math.isfinite(value)}


class _Run(NamedTuple):
    key: str
    seed: int
    shared: tuple[Any, ...]
    """Its values of what all groups share."""
    own: tuple[Any, ...]
    """Its values of the others of OWN."""


def shared_names(groups: Iterable[Where]) -> tuple[str, ...]:
    """The columns in which the runs of all these groups agree. Width and precision are not among them where decoders are
    compared, nor the count of images where data sets, boxes or counts are: each has its own."""
    groups = list(groups)
    names: tuple[str, ...] = SHARED
    if len({where.get("decoder") for where in groups}) == 1:
        names += ("width", "precision")
    is_one_set = len({(where.get("dataset"), where.get("holdout")) for where in groups}) == 1
    if is_one_set and not any("data_count" in where for where in groups):
        names += ("data_count",)
    return names


def choose(table: pd.DataFrame, groups: Mapping[str, Where], most: Callable[[Sequence[int]], int] = min) -> Choice:
    """The setting in which the group with fewest seeds has most; then most seeds in all, the larger N, more steps, and the
    fewest values that are not the usual ones.

    Only runs that took their whole budget of steps and ended well count. All groups agree in `shared_names`; in what neither
    that nor `groups` says, each group takes what most of its seeds have, and of several the nearest to the usual one. Of runs
    of a seed that differ in nothing of this, as in their target alone, the one with the first key counts.

    Args:
        most: of the seeds of each group, what the setting is to have most of.
    """
    table = _decoder_runs(table)
    first = table.drop_duplicates("key")
    shared = shared_names(groups.values())
    own_names = [name for name in OWN if name not in shared]
    described = zip(first["key"], first["seed"], _values(first, shared), _values(first, own_names), strict=True)
    runs = [_Run(*values) for values in described]
    columns = {name: first[name].tolist() for name in {name for where in groups.values() for name in where}}
    members = {
        group: [run for i, run in enumerate(runs) if all(columns[name][i] == wanted for name, wanted in where.items())]
        for group, where in groups.items()
    }
    picked: dict[tuple[Any, ...], dict[str, tuple[Any, ...]]] = {}
    ranks, settings = [], 0
    for setting in sorted({run.shared for part in members.values() for run in part}):
        picked[setting], seeds, different = {}, [], 0
        for name, part in members.items():
            by_own: dict[tuple[Any, ...], set[int]] = {}
            for run in part:
                if run.shared == setting:
                    by_own.setdefault(run.own, set()).add(run.seed)
            counted = [
                (len(found), -_departures(dict(zip(own_names, own, strict=True)), groups[name]), own)
                for own, found in by_own.items()
            ]
            count, _, picked[setting][name] = max(counted, default=(0, 0, ()))
            seeds.append(count)
            different = max(different, len(by_own))
        settings += different
        near = -_departures(dict(zip(shared, setting, strict=True)), next(iter(groups.values())))
        ranks.append((most(seeds), sum(seeds), *setting[:2], near, setting))
    if not ranks:
        tasks = {where.get("task") for where in groups.values()}
        usual = first.loc[first["task"].isin(tasks), list(SHARED)].value_counts()
        elsewhere = dict(zip(SHARED, usual.index[0], strict=True)) if len(usual) else {}
        return Choice(dict.fromkeys(groups, table.iloc[:0]), {}, 0, groups, elsewhere)
    best = max(ranks)[-1]
    chosen = {
        name: _one_per_seed(run for run in members[name] if (run.shared, run.own) == (best, own))
        for name, own in picked[best].items()
    }
    return Choice(
        {name: table[table["key"].isin(keys)] for name, keys in chosen.items()},
        dict(zip(shared, best, strict=True)), settings - 1, groups,
    )  # fmt: skip


def _departures(values: Where, where: Where) -> int:
    """How many of these values, of runs of a group, are not the usual ones of its task and decoder."""
    options = json.loads(values.get("setting_options", "{}"))
    return departures({**values, **options}, where.get("task", ""), where.get("decoder"))


def choose_depth(table: pd.DataFrame, groups: Mapping[str, Where]) -> tuple[int, Choice]:
    """The greatest depth at which every group has enough seeds, else that with most seeds; 0 if there is none."""
    tasks = {where["task"] for where in groups.values() if "task" in where}
    of_tasks = table[table["task"].isin(tasks)] if len(table) and tasks else table
    depths = sorted(set(of_tasks["depth"])) if len(of_tasks) else []
    choices = {int(depth): choose(table, {n: {**w, "depth": depth} for n, w in groups.items()}) for depth in depths}
    if not choices:
        return 0, choose(table, groups)
    depth = max(choices, key=lambda d: (min(choices[d].seeds, LEAST_SEEDS), d))
    return depth, choices[depth]


def also(table: pd.DataFrame, choice: Choice, groups: Mapping[str, Where]) -> Choice:
    """Further groups, of the setting that was chosen: each agrees with its groups in what all of them would share."""
    further = {}
    for group, where in groups.items():
        names = shared_names([*choice.asked.values(), where])
        further[group] = {**{name: value for name, value in choice.shared.items() if name in names}, **where}
    return choose(table, further)


def paired(combine: Callable[..., float], *values: BySeed) -> BySeed:
    """`combine` of the values of each seed that all of them have; a seed for which that is no number is left out."""
    seeds = sorted(set.intersection(*(set(v) for v in values))) if values else []
    found = {seed: combine(*(v[seed] for v in values)) for seed in seeds}
    return {seed: value for seed, value in found.items() if not math.isnan(value)}


def ratio(above: float, below: float) -> float:
    """above / below; infinite where nothing is below, and NaN where nothing is above either."""
    return above / below if below else math.inf if above else math.nan


def told_values(values: Iterable[Any]) -> str:
    """Values of a setting, as a reader wants them."""
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def number(value: float) -> str:
    """Three digits, as a reader wants them: 0.972, 12.4, 3.1e-05."""
    return f"{value:.3g}"


def beside(value: float, bound: float) -> str:
    """As `number`, with more digits where it would read like a bound that it is not: 0.9496 beside 0.95."""
    return told_apart(value, bound, [f".{digits}g" for digits in range(3, 10)])


def share(value: float, at_most: bool = False) -> str:
    """As `number`, but four digits, rounded down, or up where it is to be small: none that misses its target reads as if it met
    it."""
    if not 0.001 <= value < 1:
        return number(value)
    return f"{(math.ceil(1e4 * value - 1e-6) if at_most else math.floor(1e4 * value + 1e-6)) / 1e4:g}"


def _one_per_seed(runs: Iterable[_Run]) -> list[str]:
    """The keys of the runs, one for each seed: the first in the order of keys, whatever was measured."""
    return list({run.seed: run.key for run in sorted(runs, key=lambda run: run.key, reverse=True)}.values())


def _decoder_runs(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        columns = dict.fromkeys((*SHARED, *OWN, "key", "seed", "task", "measure", "quantity", "layer", "value"))
        return pd.DataFrame(columns=list(columns | dict.fromkeys(table.columns)))
    table = table[(table["stop"] == "budget") & table["status"].isin(ENDED_WELL)]
    options = table.drop_duplicates("key").set_index("key")["options"].map(lambda values: json.dumps(values, sort_keys=True))
    return table.assign(setting_options=table["key"].map(options))


def matching(table: pd.DataFrame, where: Where) -> pd.Series:
    """Which rows have these values."""
    chosen = pd.Series(True, index=table.index)
    for name, value in where.items():
        chosen &= table[name] == value
    return chosen


def _values(table: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Of each row those of these columns."""
    return list(table[list(columns)].itertuples(index=False, name=None))
