"""The answers of the scaling and the regularization study, from the store's rows and the questions that launches stored."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from analysis import regularization, scaling
from analysis.asked import Asked, is_usual
from analysis.report.findings import ENDED_WELL
from analysis.report.missing import seeds_beside
from analysis.report.usual import departures
from analysis.results import Results
from orchestrator.searches import Row, Rows
from orchestrator.searches.axes import BUMPS
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.confirm import ConfirmAndJudge
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.study import bracket_of
from trainables.bumps import BumpSettings, BumpTask
from trainables.regularization import COMPARED, REGIONS, WEIGHTS
from trainables.regularization import TASK as PENALTY_TASK
from trainables.spec import SPEC_FIELDS, RunSpec

RESOLUTIONS = (0.05, 0.02, 0.1, 0.2)
"""Precisions a study may have asked for, the default first: the rows do not tell."""
SETTINGS = {tuple(weights[name] for name in WEIGHTS): setting for setting, weights in COMPARED.items()}
"""The four settings of the paper's comparison, by the two weights."""

AnyAnswer = TypeVar("AnyAnswer", scaling.Answer, regularization.Answer)


@dataclass(frozen=True, slots=True)
class Found(Generic[AnyAnswer]):
    """An answer and what it was the answer to. `settings`: what its runs have in common, and what was asked for. `guessed`:
    whether this was guessed from the rows. `others`: how many other answers there are."""

    answer: AnyAnswer
    settings: Mapping[str, Any]
    guessed: bool
    others: int = 0


def scaling_answer(results: Results) -> Found[scaling.Answer] | None:
    """The thresholds of the question, or, of runs without one, of the setting for which most are known, of both data sets if
    there is such a one, then of the setting that is nearest to the usual one; None without any run of the study. A setting is
    all that its runs have in common: decoder, encoding, target, budget, ..."""
    found = [*_asked_thresholds(results), *_guessed_thresholds(results)]

    def rank(one: Found[scaling.Answer]) -> tuple[Any, ...]:
        known, s = one.answer.table[one.answer.table["verdict"] != "failed"], one.settings
        most = s["task"] == BUMPS, known["dataset"].nunique(), len(known), s["decoder"] == "cnn", s["max_steps"]
        near = -departures(s, s["task"], s["decoder"]) if s["task"] == BUMPS else 0
        return *most, near, not one.guessed, s["stop"] != "early", -s["resolution"]

    return _first(sorted(found, key=rank, reverse=True))


def regularization_answer(
    results: Results, needed: Collection[str] = tuple(COMPARED), measured: Collection[str] | None = None
) -> Found[regularization.Answer] | None:
    """The comparison of the published settings with most seeds, then most steps, a larger N, the paper's box, the fewest
    settings that are not the usual ones. None while none has all that are needed.

    Args:
        needed: the settings that it must have.
        measured: the keys of runs; the comparison is that with most seeds among these, if not all runs serve.
    """
    found = [*_asked_comparisons(results), *_guessed_comparisons(results)]
    found = [one for one in found if _seeds(one.answer, needed).keys() == {*needed}]

    def rank(one: Found[regularization.Answer]) -> tuple[Any, ...]:
        s, seeds = one.settings, _seeds(one.answer, needed)
        first = () if measured is None else (min(_seeds(one.answer, needed, measured).get(n, 0) for n in needed),)
        near = -departures(s, PENALTY_TASK)
        return *first, min(seeds.values()), s["max_steps"], s["N"], s["region"] == "corner", near, not one.guessed

    return _first(sorted(found, key=rank, reverse=True))


def penalty_run(runs: Sequence[Row]) -> Row | None:
    """A run of the comparison that `regularization_answer` would take, or, while none has all four settings, of the one with
    most runs; None without any."""
    groups = _grouped([run for run in runs if _is_final(run)], but=("seed", *WEIGHTS))
    return max(groups, key=len)[0] if groups else None


def seeds_to_ask(run: Row, runs: Sequence[Row]) -> int:
    """How many seeds the comparison of this run is to have, so that enough are left beside those of which a run did not end
    well."""
    groups = _grouped([one for one in runs if _is_final(one)], but=("seed", *WEIGHTS))
    same = [one for group in groups if any(one["key"] == run["key"] for one in group) for one in group]
    return seeds_beside({one["seed"] for one in same if one["status"] not in ENDED_WELL})


def _first(found: Sequence[Found[AnyAnswer]]) -> Found[AnyAnswer] | None:
    return Found(found[0].answer, found[0].settings, found[0].guessed, len(found) - 1) if found else None


# What was asked


def _asked_thresholds(results: Results) -> Iterator[Found[scaling.Answer]]:
    asked = [one for one in results.asked if _is_threshold_question(one)]
    rows = _rows_of(asked, results.runs)
    for one in asked:
        assert isinstance(one.search, ThresholdSearch)
        stop, resolution = one.search.stop, one.search.resolution
        answer = results.fitted.of(one.search.answer(rows), one.question.settings)
        sizes = {spec.N for spec in one.specs}
        settings = _scaling_settings(one.specs[0].to_dict(), sizes, stop, resolution)
        if ends := one.question.search.get("between"):
            settings |= {"between": "..".join(map(str, ends)), "datasets": sorted({spec.dataset for spec in one.specs})}
        yield Found(answer, settings, guessed=False)


def _asked_comparisons(results: Results) -> Iterator[Found[regularization.Answer]]:
    rows = Rows(run for run in results.runs if run["task"] == PENALTY_TASK)
    for one in filter(_is_comparison, results.asked):
        assert isinstance(one.search, ConfirmAndJudge)
        answer = regularization.Answer.of_search(one.search, rows, one.question.settings)
        yield Found(answer, _penalty_settings(one.specs[0].to_dict()), guessed=False)


def _is_threshold_question(asked: Asked) -> bool:
    """Of the bump task only if the held-out coordinates are the task's own choice: with a box, bumps alone never compose."""
    own = (_is_usual(spec.to_dict()) for spec in asked.specs)
    return asked.question.study == "scaling" and is_usual(asked.question) and (asked.question.task != BUMPS or all(own))


def _is_comparison(asked: Asked) -> bool:
    """Whether all runs that are known beforehand are those of the paper's comparison."""
    specs = asked.question.specs
    return asked.question.study == "regularization" and all(
        spec.holdout in REGIONS and SETTINGS.get(_weights(dict(spec.options))) == setting
        for setting in COMPARED
        for spec in specs.get(setting, ())
    )


def _rows_of(asked: Iterable[Asked], runs: Iterable[Row]) -> Rows:
    families = frozenset[str]().union(*(one.families for one in asked))
    return Rows(run for run in runs if run["family"] in families)


# What is guessed from runs that no stored question names


def _guessed_thresholds(results: Results) -> Iterator[Found[scaling.Answer]]:
    probes = [run for run in results.runs if _is_probe(run) and run["key"] not in results.tuned]
    asked = [one for one in results.asked if _is_threshold_question(one) or not is_usual(one.question)]
    for group in _beyond(asked, _grouped(probes, but=("dataset", "holdout", "N", "seed", "data_count", "stop"))):
        thresholds, stop, resolution = _thresholds(group)
        stops = {run["stop"] for run in group}
        stop = "budget" if stops == {"target"} else stop if stops == {"early"} else "auto"
        settings = _scaling_settings(group[0], {run["N"] for run in group}, stop, resolution)
        yield Found(results.fitted.of(thresholds, settings), settings, guessed=True)


def _guessed_comparisons(results: Results) -> Iterator[Found[regularization.Answer]]:
    finals = [run for run in results.runs if _is_final(run) and run["key"] not in results.tuned]
    for group in _beyond(filter(_is_comparison, results.asked), _grouped(finals, but=("seed", *WEIGHTS))):
        settings = _penalty_settings(group[0])
        rows = [{"setting": SETTINGS[_weights(run["options"])], "row": run} for run in group]
        yield Found(regularization.Answer.of([], rows, None, [], settings), settings, guessed=True)


def _is_probe(run: Row) -> bool:
    """Whether a run belongs to a threshold search over the held-out coordinates that are the task's own choice."""
    if run["task"] != BUMPS or run["stop"] == "budget" or run["task_version"] != BumpTask.version:
        return False
    return _is_usual(run)


def _is_usual(run: Row) -> bool:
    return bool(run["holdout"] == BumpSettings(dataset=run["dataset"], decoder=run["decoder"]).holdout)


def _is_final(run: Row) -> bool:
    return run["task"] == PENALTY_TASK and run["holdout"] in REGIONS and _weights(run["options"]) in SETTINGS


def _weights(options: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(options.get(name) for name in WEIGHTS)


def _grouped(runs: Sequence[Row], but: Sequence[str]) -> list[list[Row]]:
    """Runs that agree in all of the spec (and the task's version) but these fields or options."""
    groups: dict[str, list[Row]] = {}
    for run in runs:
        fields = {name: run[name] for name in ("task_version", *SPEC_FIELDS) if name not in (*but, "options")}
        options = {name: value for name, value in run["options"].items() if name not in but}
        groups.setdefault(json.dumps([fields, options], sort_keys=True), []).append(run)
    return [groups[name] for name in sorted(groups)]


def _beyond(asked: Iterable[Asked], groups: Iterable[list[Row]]) -> list[list[Row]]:
    """The groups that have a run which none of the questions names."""
    families = frozenset[str]().union(*(one.families for one in asked))
    return [group for group in groups if not families.issuperset(run["family"] for run in group)]


def _thresholds(group: Sequence[Row]) -> tuple[list[ThresholdResult], str, float]:
    """The search's answer with the trust in the stopping rule, the resolution and, if need be, without checks, with which most
    of it is known."""
    first = {(run["dataset"], run["N"], run["seed"]): run for run in group}
    task, brackets = BumpTask(), []
    for at in sorted(first):
        spec = RunSpec.from_dict({**first[at], "stop": "early", "data_count": 0})
        brackets.append(bracket_of(task, spec))
    rows = Rows(group)
    asked = [brackets, [replace(bracket, checked=False) for bracket in brackets]]
    ways = itertools.product(("auto", "early"), RESOLUTIONS, asked)
    answers = [(ThresholdSearch(of, resolution, stop=stop).answer(rows), stop, resolution) for stop, resolution, of in ways]
    return max(answers, key=lambda answer: sum(result.verdict not in ("open", "failed") for result in answer[0]))


# Settings


def _scaling_settings(spec: Row, sizes: set[int], stop: str, resolution: float) -> dict[str, Any]:
    varied = ("dataset", "N", "data_count", "seed", "holdout", "options")
    shared = {name: spec[name] for name in SPEC_FIELDS if name not in varied}
    return shared | dict(spec["options"]) | {"N": sorted(sizes), "stop": stop, "resolution": resolution}


def _penalty_settings(spec: Row) -> dict[str, Any]:
    shared = {name: spec[name] for name in SPEC_FIELDS if name not in ("seed", "options", "dataset", "holdout")}
    options = {name: value for name, value in spec["options"].items() if name not in WEIGHTS}
    return {**shared, "region": spec["holdout"], **options}


def _seeds(
    answer: regularization.Answer, settings: Collection[str], among: Collection[str] | None = None
) -> dict[str, int]:
    """How many seeds each of these settings has that can be averaged; those of some runs alone, if their keys are given."""
    averaged = answer.averaged
    counted = averaged if among is None else averaged[averaged["key"].isin(among)]
    counts = counted.groupby("setting")["seed"].nunique()
    return {setting: int(count) for setting, count in counts.items() if setting in settings}
