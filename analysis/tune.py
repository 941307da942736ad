"""The answer of the tune study: what the trials reached, and what remains of it on fresh seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.intervals import are_alike, exp_or_inf, half_width
from orchestrator.command.files import plain, records
from orchestrator.command.searched import OF_CONFIRMED, OF_TRIALS, PARTS
from orchestrator.command.tables import digits_for, digits_for_means, number_text
from orchestrator.searches import Row, Rows
from orchestrator.searches.confirm import setting_of
from orchestrator.searches.objective import Objective, is_share, mean
from orchestrator.searches.samplers import state_of

if TYPE_CHECKING:
    from orchestrator.searches.confirm import ConfirmBest

STEPS = "steps"
"""The objective that is a time: a run that never reaches the target counts with all its steps, so its own time is not known."""
ERRORS = "mse", "error"
"""Ends of names of errors. A loss is none: it may be negative."""
LEAST_PAIRS = 3
"""With fewer seeds a comparison decides nothing: two that are alike by luck have an interval as narrow as they like."""
UNREACHED = "unreached"
"""Where that is an objective, a column of the confirmed settings: how many fresh seeds never reached the target."""
COUNTS = ("number", "seeds", "failed", UNREACHED, STEPS, "pairs")
"""Columns of whole numbers."""
OF_NEEDED = "as runs that are needed first failed or missed their targets"
"""Why some runs are passed over."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search and its confirmation found; any part of it may still be missing."""

    trials: pd.DataFrame
    """A row per trial: its number and settings, the mean of every objective over its `seeds`, its `state`, and the sum of its
    `steps`, unless these are an objective."""
    confirmed: pd.DataFrame
    """A row per confirmed setting: every objective in the search (`NAME_search`) and on fresh seeds, `NAME` with the interval
    `NAME_lower`, `NAME_upper`; whether it is the `winner`, or, with several objectives, on the front. Where `steps` are an
    objective, how many of its seeds are `unreached`."""
    comparison: Mapping[str, Any] | None
    """The winner against the second, seed by seed, see `compare`."""
    crossed: float
    """What the winner is worth, free of the luck that made it win: see `crossed_mean`. NaN where nothing is crossed, or no run
    reached the target to which steps are counted."""
    aims: Sequence[Objective]
    names: Sequence[str]
    """Of the searched settings."""
    geometric: Sequence[bool]
    """Of every objective, whether its means are geometric."""
    settings: Mapping[str, Any]
    winner: str | None = None
    """The setting that wins: with several objectives, the best of the front in the last one."""
    untrained: Mapping[str, int] = field(default_factory=dict)
    """Of confirmed settings, how many fresh seeds could not be trained, as what they need has not made it. They count as
    `failed`, too."""
    passed_over: bool = False
    """Whether the search passed over settings for the same reason."""
    short: Collection[str] = ()
    """Confirmed settings of which some seed never reached the target in the search."""

    @property
    def counts(self) -> list[str]:
        """Columns of whole numbers: a mean over seeds is none."""
        return [name for name in COUNTS if name not in [aim.name for aim in self.aims]]

    @classmethod
    def of_search(cls, search: ConfirmBest, rows: Rows, settings: Mapping[str, Any]) -> Answer:
        """What is known, as far as the rows go."""
        tuning = search.tuning
        names = [dimension.name for dimension in tuning.dimensions]
        trials = [
            {
                "number": trial.number,
                **{name: trial.values.get(name) for name in names},
                "seeds": len(trial.rows),
                "state": state_of(trial),
                "steps": sum(row["steps"] for row in trial.rows),
                "key": trial.row["key"],
                **_scores(tuning.aims, trial.scores),
            }
            for trial in tuning.finished_trials(rows)
        ]
        finals = search.finals(rows)
        of_setting = {
            setting: [row for spec in specs if (row := search.row(rows, spec)) is not None] for setting, specs in finals.items()
        }
        untrained = {
            setting: count
            for setting, specs in finals.items()
            if (count := sum(search.row(rows, spec) is None and search.blocks(rows, spec) for spec in specs))
        }
        geometric = search.geometric(rows)
        confirmed = []
        for trial in search.chosen(rows) if search.seeds else ():
            setting = setting_of(trial)
            found = of_setting[setting]
            sound_rows = [row for row in found if tuning.is_complete([row])]
            entry = {"setting": setting, **{name: trial.values.get(name) for name in names}}
            for aim, logs, score in zip(tuning.aims, geometric, trial.scores, strict=True):
                numbers = [aim.of(row) for row in sound_rows]
                middle, lower, upper = interval(numbers, logs)
                if is_share(aim.name) and all(0 <= number <= 1 for number in numbers):
                    lower, upper = np.clip([lower, upper], 0.0, 1.0).tolist()  # what is not known stays NaN
                elif aim.name.endswith(ERRORS) and all(number >= 0 for number in numbers):
                    lower = float(np.clip(lower, 0.0, None))
                elif aim.name == STEPS:
                    lower, upper = _steps_ends(lower, upper, sound_rows)
                    entry[UNREACHED] = _unreached(sound_rows)
                entry |= {f"{aim.name}_search": score, aim.name: middle, f"{aim.name}_lower": lower, f"{aim.name}_upper": upper}
            failed = len(found) - len(sound_rows) + untrained.get(setting, 0)
            entry |= {"seeds": len(sound_rows), "failed": failed, "winner": False}
            confirmed.append(entry)
        best = search.winner(rows) if search.seeds else None
        winner = None if best is None else setting_of(best)
        comparison = _crown(confirmed, winner, of_setting, tuning.aims, geometric) if winner is not None else None
        sound = [of_setting[str(entry["setting"])] for entry in confirmed if not entry["failed"]]
        aim = tuning.aims[0]
        by_seed = [{row["seed"]: aim.of(row) for row in found} for found in sound]
        is_timed = aim.name != STEPS or any(_unreached(found) < len(found) for found in sound)
        crossed = crossed_mean(by_seed, aim.up, geometric[0]) if comparison is not None and is_timed else math.nan
        scores = [aim.name for aim in tuning.aims]
        columns = [f"{name}{part}" for name in scores for part in PARTS]
        more = [UNREACHED] if STEPS in scores else []
        tables = (
            _table(trials, ["number", *names, *scores, *OF_TRIALS[1:]], scores),
            _table(confirmed, ["setting", *names, *columns, *more, *OF_CONFIRMED[1:]], columns),
        )
        short = {setting_of(trial) for trial in search.chosen(rows) if _unreached(trial.rows)}
        return cls(
            *tables, comparison, crossed, tuning.aims, names, geometric, dict(settings), winner, untrained,
            tuning.passed_over, short,
        )  # fmt: skip

    def describe(self, row: Mapping[str, Any]) -> str:
        """The settings of a row in words."""
        told = ((name, row[name]) for name in self.names if row[name] is not None and row[name] == row[name])
        return ", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in told)

    def lines(self) -> list[str]:
        """The winner, how the search had overrated it, and the comparison with the second."""
        lines = []
        rows = self.confirmed.to_dict("records")
        digits = {aim.name: digits_for_means(rows, aim.name) for aim in self.aims}
        compared = len(rows) > 1 if len(self.aims) > 1 else self.comparison is not None
        chose = ", which also chose it and so may flatter it" if compared else ""
        for row in (row for row in rows if row["winner"]):
            head = "winner" if len(self.aims) == 1 else "on the front"
            lines.append(f"{head}: {row['setting']} ({self.describe(row)})")
            for aim, logs in zip(self.aims, self.geometric, strict=True):
                kind = "geometric mean" if logs else "mean"
                n = digits[aim.name]
                found = f"{aim.name} {interval_text(row, aim.name, n)}, {_seeds_text(row, aim.name, kind)}{chose}"
                least = "at least " if aim.name == STEPS and row["setting"] in self.short else ""
                lines.append(f"  {found}; in the search it had {least}{number_text(row[f'{aim.name}_search'], n)}")
        if not math.isnan(self.crossed):
            crossed = number_text(self.crossed, digits[self.aims[0].name])
            if self.aims[0].name == STEPS and any(row[UNREACHED] for row in rows if not row["failed"]):
                crossed = f"at least {crossed}"
            lines.append(f"  cross-validated (chosen on all seeds but one and judged on that one, each in turn): {crossed}")
        if self.comparison is not None:
            lines.append(comparison_text(self.comparison))
        lines += [
            f"{row['setting']}: {failed} of its fresh seeds failed, diverged or had no number, so it cannot win"
            for row in rows
            if (failed := int(row["failed"]) - self.untrained.get(row["setting"], 0))
        ]
        lines += [
            f"{setting}: {count} of its fresh seeds could not be trained, {OF_NEEDED}, so it cannot win"
            for setting, count in self.untrained.items()
        ]
        if self.passed_over:
            lines.append(f"some settings were passed over in the search, {OF_NEEDED}")
        lines += [
            f"{row['setting']}: {row[UNREACHED]} of {row['seeds']} fresh seeds never reached the target: all their steps count"
            for row in rows
            if row.get(UNREACHED)
        ]
        return lines

    def doubt(self) -> str | None:
        """Why this answers nothing though all its runs are there: no trial is complete, none could be confirmed, or no fresh
        seed reached the target to which steps are counted."""
        if not len(self.trials) and self.passed_over:
            return f"no trial was made, {OF_NEEDED}: search other values, or add --no-gates"
        if len(self.trials) and not len(self.confirmed) and self.trials[self.aims[0].name].isna().all():
            counts = ", ".join(f"{count} {state}" for state, count in Counter(self.trials["state"]).items())
            return f"no trial is complete ({counts}), so nothing could be chosen: search other values"
        if len(self.confirmed) and (self.confirmed["failed"] > 0).all():
            if self.untrained:
                return (
                    "every confirmed setting failed, diverged, had no number or could not be trained on a fresh seed: search "
                    "other values, or add --no-gates"
                )
            return "every confirmed setting failed, diverged or had no number on a fresh seed: search other values"
        won = self.confirmed[self.confirmed["winner"]]
        if UNREACHED in won and len(won) and (won[UNREACHED] == won["seeds"]).all():
            who = "the winner" if len(self.aims) == 1 else "the front"
            return (
                f"no fresh seed of {who} reached the target, so how many steps that takes is not known: search other values, "
                "raise --max-steps or lower --target"
            )
        return None

    def to_json(self) -> dict[str, Any]:
        """Everything in plain values; what is not known is null."""
        value: dict[str, Any] = plain(
            {
                "settings": self.settings,
                "winner": next(iter(records(self.confirmed[self.confirmed["setting"] == self.winner], self.counts)), None),
                "comparison": self.comparison,
                "crossed": self.crossed,
                "geometric": {aim.name: logs for aim, logs in zip(self.aims, self.geometric, strict=True)},
                "doubt": self.doubt(),
                "confirmed": records(self.confirmed, self.counts),
                "trials": records(self.trials, self.counts),
            }
        )
        return value


def interval_text(found: Mapping[str, Any], name: str, digits: int) -> str:
    """`0.00012 [8e-05, 0.00018]` of a row of the confirmed settings, without the interval where there is none; `at least 337
    [120, unknown]` of steps where some seed never reached the target."""
    middle, lower, upper = (found[f"{name}{part}"] for part in ("", "_lower", "_upper"))
    if math.isnan(middle):
        return ""
    least = "at least " if name == STEPS and found.get(UNREACHED) else ""
    end = "unknown" if math.isnan(upper) else number_text(upper, digits)
    ends = "" if math.isnan(lower) else f" [{number_text(lower, digits)}, {end}]"
    return least + number_text(middle, digits) + ends


def interval(numbers: Sequence[float], logs: bool) -> tuple[float, float, float]:
    """The mean and its t-interval; of the logarithms where `logs`. NaN for what is not known: the bounds of a single number, or
    of several that are alike. Bounds that no float holds are infinite."""
    if not numbers:
        return math.nan, math.nan, math.nan
    if are_alike(numbers):
        return mean(list(numbers), logs), math.nan, math.nan
    n, scaled = len(numbers), pd.Series([math.log(number) if logs else number for number in numbers])
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest float the deviation is infinite
        half = half_width(scaled.std(ddof=1), n)
        middle = float(scaled.mean())
    bounds = (-math.inf, math.inf) if math.isnan(middle - half) else (middle - half, middle + half)
    lower, upper = (exp_or_inf(bound) if logs else bound for bound in bounds)
    return mean(list(numbers), logs), lower, upper


def crossed_mean(settings: Sequence[Mapping[int, float]], up: bool, logs: bool) -> float:
    """The mean over seeds of the setting that is best on all other seeds. The winner's own mean is a little too good, as it was
    chosen by the same numbers; here no number chooses the setting that it judges. NaN with one seed.

    Args:
        settings: of each, the objective by seed.
    """
    seeds = sorted(set.intersection(*(set(found) for found in settings)))
    if len(seeds) < 2:
        return math.nan
    choose = max if up else min

    def without(seed: int, found: Mapping[int, float]) -> float:
        return mean([found[other] for other in seeds if other != seed], logs)

    return mean([choose(settings, key=lambda found: without(seed, found))[seed] for seed in seeds], logs)


def compare(first: Mapping[int, float], second: Mapping[int, float], logs: bool) -> dict[str, Any]:
    """Two settings seed by seed: the mean `ratio` of the first to the second where `logs`, else their mean `difference`, with
    the t-interval [`lower`, `upper`] over the `pairs` of seeds, NaN where all pairs are alike, and whether it `decides`: the
    interval lies on one side of no difference, and there are LEAST_PAIRS of seeds."""
    pairs = [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]
    middle, lower, upper = interval([math.log(a) - math.log(b) if logs else a - b for a, b in pairs], False)
    kind = "ratio" if logs else "difference"
    values = [exp_or_inf(value) if logs else value for value in (middle, lower, upper)]
    decides = len(pairs) >= LEAST_PAIRS and (lower > 0 or upper < 0)
    return {kind: values[0], "lower": values[1], "upper": values[2], "pairs": len(pairs), "decides": decides}


def comparison_text(found: Mapping[str, Any]) -> str:
    """The comparison of the winner with the second, in a line. A ratio is one of errors: above 1 the winner is worse."""
    kind = "ratio" if "ratio" in found else "difference"
    middle, ends = found[kind], (found["lower"], found["upper"])
    one = 1.0 if kind == "ratio" else 0.0
    digits = digits_for([middle, *ends], [*ends, one])
    against = f"{found['winner']} against {found['second']}, seed by seed"
    text = f"{against}: {kind} of {found['objective']} {number_text(middle, digits)}"
    if found["pairs"] == 1:
        return f"{text}; one seed tells no more"
    if math.isnan(found["lower"]):
        is_none = middle == one
        why = "no seed told them apart" if is_none else f"all {found['pairs']} seeds alike, so there is no interval"
        return f"{text}; {why}"
    if math.isinf(found["lower"]):
        return f"{text}; how sure that is, no float can tell"
    verdict = "so they cannot be told apart"
    if found["pairs"] < LEAST_PAIRS and not ends[0] <= one <= ends[1]:
        verdict = f"but {found['pairs']} seeds decide nothing"
    elif found["decides"]:
        verdict = "so it is worse" if kind == "ratio" and found["lower"] > 1 else "so it is better"
    return f"{text} [{', '.join(number_text(end, digits) for end in ends)}], {verdict}"


def _seeds_text(row: Mapping[str, Any], name: str, kind: str) -> str:
    """What a mean of a row of the confirmed settings is taken over."""
    n = int(row["seeds"])
    if n == 1:
        return "on one fresh seed"
    if name == STEPS and row.get(UNREACHED) == n:
        return f"on {n} fresh seeds"
    return f"all {n} fresh seeds alike" if math.isnan(row[f"{name}_lower"]) else f"{kind} over {n} fresh seeds"


def _unreached(rows: Sequence[Row]) -> int:
    """How many of these runs never reached the target."""
    return sum(row["status"] != "passed" for row in rows)


def _steps_ends(lower: float, upper: float, rows: Sequence[Row]) -> tuple[float, float]:
    """The ends of the interval of steps: not beyond the most that a run may take. Where a run never reached the target, there
    is no upper end, as it would have taken more; the lower end holds all the same."""
    if _unreached(rows):
        upper = math.nan
    most = max((row["max_steps"] for row in rows), default=math.nan)
    lower, upper = np.clip([lower, upper], 0.0, most).tolist()  # what is not known stays NaN
    return lower, upper


def _crown(
    confirmed: Sequence[dict[str, Any]],
    winner: str,
    of_setting: Mapping[str, Sequence[Row]],
    aims: Sequence[Objective],
    geometric: Sequence[bool],
) -> dict[str, Any] | None:
    """Mark the winner, or the front, among the settings all of whose seeds have ended well; and compare the winner with the
    second."""
    sound = [entry for entry in confirmed if not entry["failed"]]

    def costs(entry: Mapping[str, Any]) -> list[float]:
        return [-entry[aim.name] if aim.up else entry[aim.name] for aim in aims]

    if len(aims) > 1:
        for entry in sound:
            others = [costs(other) for other in sound]
            own = costs(entry)
            entry["winner"] = not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in others)
        return None
    ranked = sorted(sound, key=lambda entry: (entry["setting"] != winner, costs(entry)))
    ranked[0]["winner"] = True
    if len(ranked) < 2:
        return None
    first, second = ({row["seed"]: aims[0].of(row) for row in of_setting[entry["setting"]]} for entry in ranked[:2])
    told = {"winner": ranked[0]["setting"], "second": ranked[1]["setting"], "objective": aims[0].name}
    found = compare(first, second, geometric[0])
    if is_share(aims[0].name) and all(0 <= number <= 1 for number in (*first.values(), *second.values())):
        ends = [found["lower"], found["upper"]]
        found["lower"], found["upper"] = np.clip(ends, -1.0, 1.0).tolist()  # no two shares differ by more
    return told | found


def _table(records: Sequence[Mapping[str, Any]], columns: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """Those columns, once each, of which some hold floats and the others what was given: a whole number stays one beside
    nothing."""
    table = pd.DataFrame(records, columns=list(dict.fromkeys(columns)), dtype=object)
    return table.astype(dict.fromkeys(numbers, float) | ({"winner": bool} if "winner" in columns else {}))


def _scores(aims: Sequence[Objective], scores: Sequence[float]) -> dict[str, float]:
    return {aim.name: scores[i] if scores else math.nan for i, aim in enumerate(aims)}
