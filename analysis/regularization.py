"""The answer of the regularization study: the weights that were chosen, and what every setting reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from analysis import tune
from orchestrator.command.files import plain, records
from orchestrator.command.tables import accuracy_text
from orchestrator.searches import Row, Rows, ending
from orchestrator.searches.objective import mean
from orchestrator.searches.samplers import state_of
from trainables.lowrank import LowRank
from trainables.regularization import COMPARED, TASKS, WEIGHTS, box_range, region_of, regions
from trainables.spec import RunSpec
from trainables.task import Split

if TYPE_CHECKING:
    from orchestrator.searches.confirm import ConfirmAndJudge
    from orchestrator.searches.samplers import Trial

SETTINGS = (*COMPARED, "tuned")
"""The two penalties off, one on, both on at the published weights, and both at the weights that the trials chose."""
NAMES = {"none": "no penalty", "entropy": "entropy", "variance": "variance", "both": "entropy + variance", "tuned": "tuned"}
PAPER: Mapping[str, Mapping[str, float]] = {
    "none": {"id_mse": 1.07e-6, "ood_mse": 2.76e-2},
    "both": {"id_mse": 4.4e-5, "ood_mse": 1.45e-4},
}
"""The two models that the authors of arXiv 2501.18797 published, evaluated anew: corner box, N = 32, one seed, 1000 epochs."""
ERRORS = ("id_mse", "ood_mse")
TRIALS = ("number", *WEIGHTS, "status", "id_mse", "validation_mse", "seeds", "steps", "key")
"""Of a search of the two weights; another search has its settings in their place."""
FINALS = (
    "setting", "seed", *WEIGHTS, "status", "accuracy", "exact", "id_mse", "ood_mse", "steps", "key",
)  # fmt: skip
SUMMARY = (
    "setting", *WEIGHTS, "seeds", "failed",
    *(f"{error}_{statistic}" for error in ERRORS for statistic in ("mean", "gmean", "lower", "upper")),
    "accuracy", "exact", "note",
)  # fmt: skip
LEAST = float(np.finfo(float).tiny)
"""What an error of 0 counts as where logarithms are taken."""
COUNTS = ("number", "seed", "seeds", "steps")
"""Columns of whole numbers."""
MOST_N = 1024
"""Images of a question are no larger: those of a run with so many pixels would fill any memory."""
LEARNED_SHARE = 0.5
"""A training has learned something if its error on its own images is under this share of a blank image's. Half is below what
any image reaches that is the same for all coordinates (62 % at N = 8, over 80 % from N = 16 on)."""
COMPOSED_SHARE = 0.75
"""As LEARNED_SHARE, of the chosen trial's error on the validation images: blurs reach 85 to 90 %."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a regularization study found; any part of it may still be missing."""

    trials: pd.DataFrame
    """A row per finished trial (TRIALS); a weight that was not searched is NaN."""
    finals: pd.DataFrame
    """A row per final training (FINALS), by setting and seed."""
    summary: pd.DataFrame
    """A row per setting (SUMMARY), see `summarise`."""
    best: Mapping[str, Any] | None
    """The chosen trial (TRIALS), its errors those on the fresh seeds; None while none is chosen."""
    front: pd.DataFrame
    """The Pareto-optimal trials (TRIALS); with one objective the best alone."""
    settings: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    """The store's rows of the final trainings, by key."""
    search: tune.Answer | None = None
    """What the search and its confirmation found on the validation sets; None where nothing is known of them."""

    @classmethod
    def of(
        cls,
        trials: Sequence[Mapping[str, Any]],
        finals: Sequence[Mapping[str, Any]],
        best: Mapping[str, Any] | None,
        front: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        search: tune.Answer | None = None,
    ) -> Answer:
        """From mappings of TRIALS, and final trainings as {"setting": one of SETTINGS, "row": a row of the store}."""
        order = {setting: index for index, setting in enumerate(SETTINGS)}
        ordered = sorted(finals, key=lambda f: (order.get(f["setting"], len(order)), f["setting"], f["row"]["seed"]))
        table = _table([_final(f["setting"], f["row"]) for f in ordered], FINALS)
        rows = {f["row"]["key"]: f["row"] for f in ordered}
        columns = TRIALS if search is None else ("number", *search.names, *TRIALS[1 + len(WEIGHTS) :])
        tables = (_table(trials, columns), table, summarise(table), best, _table(front, columns))
        return cls(*tables, dict(settings), rows, search)

    @classmethod
    def of_search(cls, search: ConfirmAndJudge, rows: Rows, settings: Mapping[str, Any]) -> Answer:
        """What a search has found, as far as the rows go."""
        confirming, tuning = search.confirming, search.tuning
        winner = confirming.winner(rows)
        finals = [
            {"setting": setting, "row": row}
            for setting, specs in search.finals(rows).items()
            for spec in specs
            if (row := search.row(rows, spec)) is not None
        ]
        trials, front = (list(map(_trial, found)) for found in (tuning.finished_trials(rows), tuning.front(rows)))
        best = None if winner is None else _trial(winner, confirming.rows_of(rows, winner) or winner.rows)
        searched = tune.Answer.of_search(confirming, rows, {"search": {d.name: d.text for d in tuning.dimensions}})
        return cls.of(trials, finals, best, front, settings, searched)

    @property
    def averaged(self) -> pd.DataFrame:
        """The final trainings that the summary averages."""
        return self.finals[_counts(self.finals)]

    def paper(self, setting: str) -> Mapping[str, float] | None:
        """The authors' own model for `setting`, where there is one of this task."""
        same = self.settings.get("N") == 32 and self.settings.get("region") == "corner" and self.settings.get("sigma") == 1.5
        return PAPER.get(setting) if same else None

    def lines(self) -> list[str]:
        """The chosen settings, a line per setting, and `tuned` against each other one."""
        lines = [self._choice()] if len(self.trials) else []
        if self.search is not None and self.search.comparison is not None:
            lines.append(f"on the validation sets, {tune.comparison_text(self.search.comparison)}")
        if len(self.summary):
            lines.append("geometric mean over seeds [95 % interval], accuracy in the box:")
        for row in self.summary.to_dict("records"):
            line = f"{row['setting']}: nothing to average"
            if row["seeds"]:
                errors = f"ID MSE {describe(row, 'id_mse')}, OOD MSE {describe(row, 'ood_mse')}"
                line = f"{row['setting']}: {errors}, accuracy {accuracy_text(row['accuracy'])}"
            if paper := self.paper(row["setting"]):
                line += f" (authors' model: ID {paper['id_mse']:.2e}, OOD {paper['ood_mse']:.2e})"
            lines.append("; ".join([line, *([row["note"]] if row["note"] else [])]))
        lines += [tune.comparison_text(found) for found in self.comparisons()]
        return lines

    def comparisons(self) -> list[dict[str, Any]]:
        """The OOD error of `tuned` against that of every other setting, on the seeds that both have: see `tune.compare`."""
        errors = {
            setting: dict(zip(group["seed"], group["ood_mse"].clip(lower=LEAST), strict=True))
            for setting, group in self.averaged.groupby("setting", sort=False)
        }
        own = errors.pop("tuned", {})
        return [
            {"winner": "tuned", "second": other, "objective": "OOD MSE"} | tune.compare(own, found, logs=True)
            for other, found in errors.items()
            if own.keys() & found.keys()
        ]

    def doubt(self) -> str | None:
        """Why this answers nothing though all its runs are there: no training has learned anything (LEARNED_SHARE), no trial
        could be chosen, or the one that was chosen among several has not composed (COMPOSED_SHARE). None if nothing is so."""
        complete = self.trials[self.trials["status"] == "finished"]
        id_errors = [error for error in (*complete["id_mse"], *self.averaged["id_mse"]) if math.isfinite(error)]
        advice = "train for more steps (--epochs), or faster (--lr), or on more images (a larger --N)"
        blank = self.blank_error("rest", "validation")
        if id_errors and not min(id_errors) < LEARNED_SHARE * blank:
            return (
                f"nothing was learned: all images are nearly blank (ID MSE {min(id_errors):.1e} at best, a blank image has "
                f"{blank:.1e}), so the chosen weights mean nothing: {advice}"
            )
        if self.best is None and self.search is not None and (doubt := self.search.doubt()) is not None:
            return doubt
        blank = self.blank_error("rest" if "confirm_seeds" in self.settings else "validation")  # pseudo-boxes lie in the rest
        if self.best is not None and len(complete) > 1 and not self.best["validation_mse"] < COMPOSED_SHARE * blank:
            errors = f"validation MSE {self.best['validation_mse']:.1e} at best, a blank image has {blank:.1e}"
            return (
                f"no trial draws unseen combinations much better than a blank image ({errors}), so the chosen weights "
                f"mean nothing: {advice}, or search other weights"
            )
        return None

    def blank_error(self, *sets: str) -> float:
        """Mean squared error of a blank image over the coordinates of these sets (see `trainables.regularization.regions`).

        Raises:
            ValueError: N is none of a run, as a question from elsewhere may have it.
        """
        N, sigma = self.settings["N"], self.settings["sigma"]
        check_size(N)
        found = regions(self.settings["region"], N)
        x, y = np.concatenate([found[name].numpy() for name in sets]).astype(int).T
        pixels = np.arange(N)
        of_axis = np.exp(-(((pixels - pixels[:, None]) / sigma) ** 2)).sum(axis=1)  # a squared bump is a product of both
        return float((of_axis[x] * of_axis[y]).mean()) / N**2

    def _choice(self) -> str:
        complete = int((self.trials["status"] == "finished").sum())
        if self.best is None:
            if not complete:
                return f"nothing is chosen: none of {len(self.trials)} trials is complete"
            return f"nothing is chosen yet: {complete} of {len(self.trials)} trials are complete, none of them is confirmed"
        best = self.best
        names = [name for name in self.trials.columns if name not in TRIALS or name in WEIGHTS]
        found = [(name, best[name]) for name in names if best.get(name) is not None and best[name] == best[name]]
        values = ", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in found)
        errors = f"validation MSE {_number(best['validation_mse']):.2e}, ID MSE {_number(best['id_mse']):.2e}"
        seeds, is_fresh = best.get("seeds") or 1, self.search is not None and len(self.search.confirmed) > 0
        over = f", geometric means over {seeds} {'fresh seeds' if is_fresh else 'seeds of the search'}" if seeds > 1 else ""
        over = ", on one fresh seed" if is_fresh and seeds == 1 else over
        if self.search is not None and (len(self.search.confirmed) or complete) > 1:
            over += ", which also chose it and so may flatter it"
            if not math.isnan(self.search.crossed):
                over += f"; validation MSE if chosen on all seeds but one and judged on that one: {self.search.crossed:.2e}"
        return f"chosen: {values or 'what was given'} (trial {best['number']} of {len(self.trials)}; {errors}{over})"

    def to_json(self) -> dict[str, Any]:
        """Everything but the curves in plain values; what is not known is null."""
        summary = [{**row, "paper": self.paper(row["setting"])} for row in self.summary.to_dict("records")]
        tables = {"front": self.front, "finals": self.finals, "trials": self.trials}
        told = {"doubt": self.doubt(), "comparisons": self.comparisons()}
        if self.search is not None:
            confirmed = self.search.to_json()
            told |= {name: confirmed[name] for name in ("confirmed", "winner", "comparison", "crossed")}
        return plain(
            {"settings": self.settings, "best": self.best, "summary": summary, **told}
            | {name: records(table, COUNTS) for name, table in tables.items()}
        )


def check_size(N: int) -> None:
    """
    Raises:
        ValueError: the images are none of this study.
    """
    if not N <= MOST_N:
        raise ValueError(f"N is {N}, and no run of this study has more than {MOST_N}")


def summarise(finals: pd.DataFrame) -> pd.DataFrame:
    """One row per setting: what its seeds say together.

    `seeds` counts the trainings that are averaged; `failed` those that are not, as they failed or diverged (`note` says
    which). For ID and OOD mean squared errors: `mean`, arithmetic; `gmean`, geometric; [`lower`, `upper`], the t-interval of
    the mean logarithm over seeds, NaN for one seed. `accuracy` and `exact` are arithmetic means. No seed: all NaN.
    """
    rows = []
    for setting, group in finals.groupby("setting", sort=False):
        counted = group[_counts(group)]
        left_out = group[~_counts(group)]
        endings = left_out["status"].replace("finished", "without finite errors")
        notes = [f"{count} {ending}" for ending, count in endings.value_counts(sort=False).items()]
        notes += ["one seed: no interval"] if len(counted) == 1 else []
        row = {
            "setting": setting,
            "lambda_entropy": group["lambda_entropy"].iloc[0],
            "lambda_variance": group["lambda_variance"].iloc[0],
            "seeds": len(counted),
            "failed": len(left_out),
            "accuracy": counted["accuracy"].mean(),
            "exact": counted["exact"].mean(),
            "note": "; ".join(notes),
        }
        for error in ERRORS:
            row |= {f"{error}_{name}": value for name, value in _statistics(counted[error].to_numpy(float)).items()}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(SUMMARY))


def describe(row: Mapping[str, Any], error: str) -> str:
    """`1.2e-04 [8.0e-05, 1.8e-04]` of a row of the summary, without the interval where there is none."""
    mean, lower, upper = (row[f"{error}_{name}"] for name in ("gmean", "lower", "upper"))
    return f"{mean:.1e}" + ("" if math.isnan(lower) else f" [{lower:.1e}, {upper:.1e}]")


def _statistics(values: np.ndarray) -> dict[str, float]:
    gmean, lower, upper = tune.interval(np.maximum(values, LEAST).tolist(), True)
    return {"mean": float(values.mean()) if len(values) else math.nan, "gmean": gmean, "lower": lower, "upper": upper}


def _counts(finals: pd.DataFrame) -> pd.Series:
    """Which rows are averaged: those that finished, with both errors finite. The others say nothing about the model that a
    setting leads to."""
    finite = np.isfinite(finals[list(ERRORS)].to_numpy(float)).all(axis=1)
    return (finals["status"] == "finished") & finite


def _trial(trial: Trial, rows: Sequence[Row] = ()) -> dict[str, Any]:
    """A mapping of TRIALS: the errors are geometric means over its runs, or over others with its settings. An error that the
    search minimises is the one that it goes by: without what a pseudo-box adds to all trials."""
    runs = rows or trial.rows
    state = state_of(trial)
    errors: dict[str, float | None] = {"id_mse": trial.row["id_mse"], "ood_mse": trial.row["ood_mse"]}
    if all(run[name] is not None for run in runs for name in errors):
        errors = {name: mean([run[name] for run in runs], all(run[name] > 0 for run in runs)) for name in errors}
    if not rows:
        errors |= zip(("ood_mse", "id_mse"), reversed(trial.scores), strict=False)
    return {
        "number": trial.number,
        **trial.values,
        "status": state,
        "id_mse": errors["id_mse"],
        "validation_mse": errors["ood_mse"],
        "seeds": len(runs),
        "steps": sum(run["steps"] for run in runs),
        "key": trial.row["key"],
    }


def _final(setting: str, row: Mapping[str, Any]) -> dict[str, Any]:
    weights = {name: row["options"].get(name) for name in WEIGHTS}
    return {**row, **weights, "status": ending(row), "setting": setting, "exact": row["measures"].get("exact")}


def _table(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Those columns of the records; errors and weights are floats, NaN where unknown."""
    table = pd.DataFrame([{name: record.get(name) for name in columns} for record in records], columns=list(columns))
    numbers = [name for name in columns if name.startswith("lambda_") or name.endswith("_mse") or name in ("accuracy", "exact")]
    return table.astype(dict.fromkeys(numbers, float))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


@dataclass(frozen=True, slots=True)
class TrainedLowRank:
    """A decoder with the weights that a run ended with."""

    setting: str
    spec: RunSpec
    model: LowRank

    @property
    def region(self) -> str:
        """The word for its box."""
        return region_of(self.spec.holdout)

    @property
    def box(self) -> tuple[int, int]:
        """First and last coordinate of the OOD box."""
        return box_range(self.region, self.spec.N)

    def split(self, centres: Tensor) -> Split:
        """Tokens and images of whole coordinates (n, 2)."""
        return TASKS[self.spec.task]().split(self.spec, centres)

    @property
    def title(self) -> str:
        return f"{NAMES.get(self.setting, self.setting)}, seed {self.spec.seed}"


def load_decoders(answer: Answer, read: Callable[[str], bytes]) -> dict[str, TrainedLowRank]:
    """By setting: the trained decoder of the lowest seed whose weights can be read and are those of such a network, of no more
    than MOST_N.

    Args:
        read: the weights of a run, by its key, as the bytes of a safetensors file; OSError if there are none.
    """
    decoders: dict[str, TrainedLowRank] = {}
    for setting, key in answer.averaged[["setting", "key"]].itertuples(index=False):
        if setting in decoders:
            continue
        spec = RunSpec.from_dict(answer.rows[key])
        if spec.N > MOST_N:
            continue
        with torch.device("meta"):  # no weights drawn only to be replaced
            model = TASKS[spec.task]().model(spec)
        try:
            tensors = {name: tensor.float() for name, tensor in load(read(key)).items()}
            model.load_state_dict(tensors, assign=True)
        except (OSError, MemoryError, RuntimeError, SafetensorError):  # also weights of another network
            continue
        assert isinstance(model, LowRank)
        decoders[setting] = TrainedLowRank(setting, spec, model.eval())
    return decoders
