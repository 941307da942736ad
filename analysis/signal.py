"""The answer of the signal study: how much contrast a factor needs for a generator to compose it, and what is lost below."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from analysis import scaling
from analysis.generators import READ, READINGS, RECONSTRUCTED, Find, Measured, Run, at_least, figures_of, last_look
from orchestrator.command.files import plain, records
from orchestrator.searches import Row
from orchestrator.searches.bracket import ThresholdResult
from trainables.generative.judge import BY_FACTOR, JUDGES
from trainables.generative.shapes import (
    COMPOSITIONS,
    FACTORS,
    ShapeSettings,
    bits_of,
    class_values,
    level_of_each,
    render,
)
from trainables.settings import alternatives, value_of
from trainables.spec import RunSpec

FULL = 1.0
"""The highest contrast that there is."""
COUNTS = ("seed", "steps", "seeds", "reached")
"""Columns of whole numbers."""
STAGES = ("probe", "tokenizer", "generator")

BEYOND = "the interval has no upper bound up to 1, the highest contrast"
"""Of one that would end above it."""
WORST = "worst"
"""The share that both judges read of the composition that they read right least often."""


@dataclass(frozen=True)
class Answer:
    """What a signal study found. `thresholds`: the least contrasts, as in the scaling study. `runs`: a row for each generator
    that was trained. `factors`: a row for each factor."""

    thresholds: scaling.Answer
    runs: pd.DataFrame
    factors: pd.DataFrame
    settings: Mapping[str, Any]
    level: int
    """The farthest one of the split, which the shares of `runs` are of."""
    notes: Sequence[str] = ()
    """Beside the `lines`: none, as each of these has those of its factor."""

    @classmethod
    def of(
        cls,
        results: Sequence[ThresholdResult],
        rows: Iterable[Row],
        find: Find,
        settings: Mapping[str, Any],
        measured: Measured = MappingProxyType({}),
    ) -> Answer:
        """From what the search found, and the rows of its generators.

        Args:
            find: gives the row of a run that one of these needed, by key, if there is one.
            measured: what `analysis.measure` found of generators.
        """
        found = sorted((row for row in rows if row["status"] != "failed"), key=lambda row: (row["seed"], row["key"]))
        specs = {row["key"]: RunSpec.from_dict(row) for row in found}
        level = max((far for spec in specs.values() for far in level_of_each(spec.holdout).values()), default=2)
        described = {row["key"]: record(row, find, measured, level) for row in found}
        _tell_held_by(described.values())
        runs = pd.DataFrame(described.values()).reindex(columns=[*record_columns(level)])
        if runs[f"level{level}_fresh"].isna().all():
            runs = runs.drop(columns=f"level{level}_fresh")
        if len(runs):
            order = {factor: n for n, factor in enumerate(FACTORS)}
            runs = runs.sort_values(["factor", "contrast", "seed"], key=lambda c: c.map(order) if c.name == "factor" else c)
        thresholds = scaling.Answer.of_results(results, settings)
        by_place = {(one["factor"], one["contrast"], one["seed"]): one for one in described.values()}
        of_factors = []
        for row in thresholds.summary.to_dict("records"):
            factor = str(row["faint"])
            own = [r for r in results if r.along == factor]
            ended = [r for r in own if r.verdict != "failed"]
            below = [run for r in ended if (run := by_place.get((factor, _missed(r), r.seed))) is not None]
            at_least_tried = any(r.verdict == "minimum" for r in own)
            is_known = not math.isnan(row["total_images"])
            lower = row["lower"] if is_known and not at_least_tried else math.nan
            upper = row["upper"] if is_known else math.nan
            unbounded = upper > FULL
            spec = next((specs[one["key"]] for one in described.values() if one["factor"] == factor), None)
            of_factors.append(
                {
                    "factor": factor,
                    "contrast": row["total_images"],
                    "lower": lower,
                    "upper": FULL if unbounded else upper,
                    "difference": math.nan if spec is None else difference(spec, row["total_images"]),
                    "usual_difference": math.nan if spec is None else difference(spec, FULL),
                    "seeds": row["seeds"],
                    "reached": row["reached"],
                    "held_by": _counted(run["held_by"] for run in below),
                    "lost": _counted(run["lost"] for run in below),
                    "note": "; ".join(filter(None, (row["note"], BEYOND * (unbounded and not math.isnan(lower))))),
                }
            )
        return cls(thresholds, runs.reset_index(drop=True), pd.DataFrame(of_factors), settings, level)

    @property
    def band(self) -> str:
        """What the intervals of the factors are: with one seed only the bracket of its threshold. Empty if there are none."""
        single = [row["seeds"] == 1 for row in self.factors.to_dict("records") if not math.isnan(row["lower"])]
        if not single:
            return ""
        return "bracket (one seed)" if all(single) else "95 % interval" + ", or bracket of the only seed" * any(single)

    def lines(self) -> list[str]:
        """A line for each factor."""
        return [_line(row) for row in self.factors.to_dict("records")]

    def to_json(self) -> dict[str, Any]:
        """Settings, factors, thresholds and runs in plain values; what is not known or infinite is null."""
        answer: dict[str, Any] = plain(
            {
                "settings": dict(self.settings),
                "factors": records(self.factors, ("seeds", "reached")),
                "thresholds": records(self.thresholds.shown, self.thresholds.counts),
                "runs": records(self.runs, ("seed", "steps")),
            }
        )
        return answer


def _line(row: Mapping[str, Any]) -> str:
    """What there is to say of a factor."""
    notes = row["note"].split("; ")
    if math.isnan(row["contrast"]):
        told = f"{row['factor']}: no threshold, since {row['reached']} of {row['seeds']} seeds compose from some contrast on"
        where, notes = "highest contrast that misses", [n for n in notes if n.endswith(("non-monotone", "failed", "open"))]
    else:
        least, where = f"{row['contrast']:.3g}", "contrast below"
        if not math.isnan(row["lower"]):
            least += f" [{row['lower']:.3g}, {row['upper']:.3g}]"
        differ = f"differ by {row['difference']:.3f} (usually by {row['usual_difference']:.3f})"
        told = f"{row['factor']}: composes from a contrast of {least} on, where its classes {differ}"
    told += f" ({'; '.join(notes)})" * any(notes)
    told += f"; at the {where}, what fails is the {row['held_by']}" * bool(row["held_by"])
    return told + f"; what is misread most is the {row['lost']}" * bool(row["lost"])


def _missed(result: ThresholdResult) -> float | None:
    """The contrast that says what fails: right below the threshold, and the highest that misses where there is none."""
    end = math.inf if result.threshold is None else result.threshold
    return max((value for value, passes in result.tried if not passes and value < end), default=None)


def record(row: Row, find: Find, measured: Measured, level: int) -> dict[str, Any]:
    """What there is to say of a generator: shares of a level are those of its last look, and `fresh` that of samples that have
    decided nothing. Those of the sample that has decided whether it passes are not kept."""
    run = Run.of(row, find, measured)
    spec, factor = run.spec, str(value_of(run.spec, "faint"))
    contrast = float(value_of(run.spec, "contrast"))
    found: dict[str, Any] = {"factor": factor, "contrast": contrast, "difference": difference(spec, contrast)}
    found |= {"seed": spec.seed, "status": row["status"], "steps": row["steps"]}
    found |= {f"level{level}_{judge}": last_look(row, f"{judge}_level{level}") for judge in JUDGES}
    found |= {f"level{level}_{name}": last_look(row, f"{told}_level{level}") for name, told in BY_FACTOR.items()}
    found |= {f"level{level}_fresh": run.number(f"both_level{level}"), WORST: last_look(row, "both_least")}
    found |= {name: getattr(run, name) for name in READINGS}
    return found | {"held_by": "", "lost": _lost(row), "key": run.key}


def record_columns(level: int) -> tuple[str, ...]:
    shares = [f"level{level}_{name}" for name in (*JUDGES, *BY_FACTOR, "fresh")]
    first = "factor", "contrast", "difference", "seed", "status", "steps"
    return *first, *shares, WORST, *READINGS, "held_by", "lost", "key"


def difference(spec: RunSpec, contrast: float) -> float:
    """How much the pictures of the two classes of a run's faint factor differ at a contrast: the root mean square over pixels
    and channels, which reach from 0 to 1, of the class means, over all classes of the other factors."""
    if math.isnan(contrast):
        return math.nan
    figures = dataclasses.replace(figures_of(spec), contrast=contrast)
    return between_classes(figures, spec.N, FACTORS.index(figures.faint))


def between_classes(figures: ShapeSettings, N: int, factor: int) -> float:
    """The same for a factor, by its place."""
    bits = bits_of(tuple(word for word in COMPOSITIONS if word[factor] == "0"))
    other = bits.clone()
    other[:, factor] = 1
    one, two = (render(figures, N, class_values(figures, part)) for part in (bits, other))
    return float((one - two).square().mean().sqrt())


def _tell_held_by(runs: Iterable[dict[str, Any]]) -> None:
    """Say of each run that has missed what of the chain has failed: the first of STAGES whose gate it has not met, though it is
    met right above, where its seed passes. If only gates are unmet that are unmet there, too, it may be the generator. Nothing
    is said where it is not known of a gate before that whether it is met."""
    passed: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        if run["status"] == "passed":
            passed.setdefault((run["factor"], run["seed"]), []).append(run)
    for run in runs:
        if run["status"] == "passed":
            continue
        above = [one for one in passed.get((run["factor"], run["seed"]), ()) if one["contrast"] > run["contrast"]]
        on_both = _unmet(min(above, key=lambda one: float(one["contrast"]))) if above else []
        unmet = _unmet(run)
        decides = [stage for stage in unmet if stage not in on_both]
        before = STAGES[: STAGES.index(decides[0] if decides else STAGES[-1])]
        if None not in map(_gates(run).get, before):
            run["held_by"] = decides[0] if decides else " or ".join([*unmet[:1], STAGES[-1]])


def _gates(run: Mapping[str, Any]) -> dict[str, bool | None]:
    """Whether those of STAGES that have a gate have met it; None where that is not known."""
    read = at_least(READ, run["probe_real"], run["oracle_real"])
    kept = at_least(RECONSTRUCTED, run["probe_tokens"], run["oracle_tokens"])
    return dict(zip(STAGES, (read, kept), strict=False))


def _unmet(run: Mapping[str, Any]) -> list[str]:
    """Those of STAGES that have not met their gates."""
    return [stage for stage, met in _gates(run).items() if met is False]


def _lost(row: Row) -> str:
    """The factor that is read right least often in any composition, if the run has missed; `shape or size` where two are read
    as seldom, and nothing where all are."""
    shares = {factor: last_look(row, f"{told}_least") for factor, told in BY_FACTOR.items()}
    if row["status"] == "passed" or any(map(math.isnan, shares.values())):
        return ""
    least = [factor for factor, share in shares.items() if share == min(shares.values())]
    return "" if len(least) == len(shares) else alternatives(least)


def _counted(words: Iterable[str]) -> str:
    """`colour (2 of 3) or size (1 of 3)`, the most frequent first; the total counts empty words, too."""
    counts = Counter(words)
    known = [(word, count) for word, count in counts.most_common() if word]
    return alternatives([f"{word} ({count} of {counts.total()})" for word, count in known]) if known else ""
