"""The answers of the scaling and the regularization study, rebuilt from nothing but the store's rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis import regularization, scaling
from analysis.measures.registry import BUMPS
from analysis.report.findings import ENDED_WELL
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.threshold import ThresholdSearch
from trainables.bumps import BumpTask
from trainables.regularization import REGIONS
from trainables.spec import RunSpec

PENALTY_TASK = "trainables.regularization:RegularizationTask"
RESOLUTIONS = (0.05, 0.02, 0.1, 0.2)
"""Precisions a study may have asked for, the default first: the rows do not tell."""
SPEC = tuple(RunSpec.__dataclass_fields__)
WEIGHTS = ("lambda_entropy", "lambda_variance")
ABLATION = {(0.0, 0.0): "none", (0.1, 0.0): "entropy", (0.0, 0.01): "variance", (0.1, 0.01): "both"}
"""The four settings of the paper's comparison, by the two weights."""

Run = Mapping[str, Any]


def scaling_answer(runs: Sequence[Run]) -> tuple[scaling.Answer, int] | None:
    """The thresholds of the setting for which most are known, of both data sets if there is such a setting; None without
    any run of the study. A setting is all that its runs have in common: decoder, encoding, target, budget, ... Beside the
    answer, the number of other settings."""
    groups = _grouped([run for run in runs if _is_probe(run)], but=("dataset", "holdout", "N", "seed", "data_count", "stop"))
    answers = [_scaling_answer(group) for group in groups]
    if not answers:
        return None

    def rank(answer: scaling.Answer) -> tuple[int, int, bool, int]:
        known = answer.table[answer.table["verdict"] != "failed"]
        return known["dataset"].nunique(), len(known), answer.settings["decoder"] == "cnn", answer.settings["max_steps"]

    return max(answers, key=rank), len(answers) - 1


def regularization_answer(runs: Sequence[Run]) -> tuple[regularization.Answer, int] | None:
    """The comparison of the four published settings with most seeds, then most steps, a larger N, the paper's box; and the
    number of other comparisons. None while none has all four."""
    groups = [g for g in _grouped([run for run in runs if _is_final(run)], but=("seed", *WEIGHTS)) if len(_seeds(g)) == 4]
    if not groups:
        return None

    def rank(group: list[Run]) -> tuple[int, int, int, bool]:
        spec = group[0]
        return min(map(len, _seeds(group).values())), spec["max_steps"], spec["N"], spec["holdout"] == "corner"

    best = max(groups, key=rank)
    finals = [{"setting": ABLATION[_weights(run)], "row": run} for run in best]
    spec = best[0]
    settings = {name: spec[name] for name in SPEC if name not in ("seed", "options", "dataset", "holdout")}
    options = {name: value for name, value in spec["options"].items() if name not in WEIGHTS}
    answer = regularization.Answer.of([], finals, None, [], {**settings, "region": spec["holdout"], **options})
    return answer, len(groups) - 1


def penalty_run(runs: Sequence[Run]) -> Run | None:
    """A run of the comparison that `regularization_answer` would take, or, while none has all four settings, of the one with
    most runs; None without any."""
    groups = _grouped([run for run in runs if _is_final(run)], but=("seed", *WEIGHTS))
    return max(groups, key=len)[0] if groups else None


def _is_probe(run: Run) -> bool:
    """Whether a run belongs to a threshold search over the held-out coordinates that are the task's own choice."""
    if run["task"] != BUMPS or run["stop"] == "budget" or run["task_version"] != BumpTask.version:
        return False
    return bool(run["holdout"] == BumpTask().preset(run["dataset"], run["decoder"])["holdout"])


def _is_final(run: Run) -> bool:
    return run["task"] == PENALTY_TASK and run["holdout"] in REGIONS and _weights(run) in ABLATION


def _weights(run: Run) -> tuple[float, float]:
    entropy, variance = (float(run["options"][name]) for name in WEIGHTS)
    return entropy, variance


def _grouped(runs: Sequence[Run], but: Sequence[str]) -> list[list[Run]]:
    """Runs that agree in all of the spec (and the task's version) but these fields or options."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        fields = {name: run[name] for name in ("task_version", *SPEC) if name not in (*but, "options")}
        options = {name: value for name, value in run["options"].items() if name not in but}
        groups.setdefault(json.dumps([fields, options], sort_keys=True), []).append(run)
    return [groups[name] for name in sorted(groups)]


def _scaling_answer(group: Sequence[Run]) -> scaling.Answer:
    results, stop, resolution = _thresholds(group)
    rules = {r.dataset: r.rule.to_dict() for r in results}
    return scaling.Answer.of([r.to_row() for r in results], _settings(group, stop, resolution), rules)


def _thresholds(group: Sequence[Run]) -> tuple[list[ThresholdResult], str, float]:
    """The search's answer with the trust in the stopping rule, and the resolution, with which most of it is known."""
    first = {(run["dataset"], run["N"], run["seed"]): run for run in group}
    task, brackets = BumpTask(), []
    for at in sorted(first):
        spec = RunSpec.from_dict({**first[at], "stop": "early", "data_count": 0})
        version, counts = first[at]["task_version"], task.counts(spec)
        brackets.append(Bracket(template=spec, task_version=version, counts=counts, audits=task.audits(spec)))
    rows = Rows(group)
    ways = [(stop, resolution) for stop in ("auto", "early") for resolution in RESOLUTIONS]
    answers = [(ThresholdSearch(brackets, resolution, stop=stop).answer(rows), stop, resolution) for stop, resolution in ways]
    return max(answers, key=lambda answer: sum(result.verdict not in ("open", "failed") for result in answer[0]))


def _settings(group: Sequence[Run], stop: str, resolution: float) -> dict[str, Any]:
    """What the runs have in common, and what the study seems to have been asked for."""
    varied = ("dataset", "N", "data_count", "seed", "holdout", "options")
    stops = {run["stop"] for run in group}
    asked = {
        "N": sorted({run["N"] for run in group}),
        "stop": "budget" if stops == {"target"} else stop if stops == {"early"} else "auto",
        "resolution": resolution,
    }
    return {name: group[0][name] for name in SPEC if name not in varied} | dict(group[0]["options"]) | asked


def _seeds(group: Sequence[Run]) -> dict[str, set[int]]:
    """The seeds of each of the four settings that can be averaged."""
    seeds: dict[str, set[int]] = {}
    for run in group:
        errors = (run["id_mse"], run["ood_mse"])
        if run["status"] in ENDED_WELL and all(error is not None and math.isfinite(error) for error in errors):
            seeds.setdefault(ABLATION[_weights(run)], set()).add(run["seed"])
    return seeds
