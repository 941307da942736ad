"""One threshold: the bracket it is looked for in, its walk through the finished rows, and what the walk has found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.searches import Row
from orchestrator.searches.probing import Ladder, Outcome, Probe, Start, bounds, next_probe, outcome, probes_left
from orchestrator.spec import RunSpec, family_key

if TYPE_CHECKING:
    from trainables.task import Counts

PASSED, MISSED, FAILED = "passed", "missed", "failed"


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """One threshold to find: runs like `template` with any of the data `counts`, under one version of the task.

    Brackets with the same `curve` lie on one curve D*(N) and predict each other. Left empty, it is everything in the
    template but N and the seed; give it where options follow from N.
    """

    template: RunSpec
    task_version: str
    counts: Counts
    curve: str = ""

    @property
    def family(self) -> str:
        return family_key(self.template, self.task_version)


@dataclass(frozen=True, kw_only=True)
class ThresholdResult:
    """What is known of one threshold; final unless the verdict is `open`.

    - `reached`: the threshold lies in (lower, upper], upper = threshold; a larger count has confirmed it where there is one.
    - `minimum`: the lowest allowed count passes; lower = upper = threshold.
    - `none reached`: even the highest allowed count fails; threshold and upper None, lower = highest count.
    - `non-monotone`: some count fails above one that passes. The threshold is the smallest count above all failing ones
      (None if the highest fails); lower is the largest failing count below the smallest passing one.
    - `failed`: the run `failed_key` could not be carried out.
    """

    family: str
    dataset: str
    decoder: str
    N: int
    seed: int
    fixed: int
    """Images always present: total images = count + fixed."""
    verdict: str
    threshold: int | None
    lower: int | None
    """None: no failing probe below yet."""
    upper: int | None
    """None: no passing probe yet."""
    runs: int
    """Finished runs of the family, speculative ones included."""
    steps: int
    probes_left: int
    """Estimate; 0 once answered."""
    outliers: tuple[int, ...]
    """Counts of runs the walk did not ask for (speculation, other studies) that speak against its answer: failing ones
    from the threshold up, passing ones up to lower. Never part of the answer, which would else depend on chance; shown."""
    failed_key: str | None

    @property
    def total_images(self) -> int | None:
        return None if self.threshold is None else self.threshold + self.fixed

    def to_row(self) -> dict[str, Any]:
        """A row of the results table: `threshold` in drawn images; `total_images`, `lower`, `upper` in total images.
        What is not known is NaN; a bound above that does not exist is inf."""

        def total(count: int | None, missing: float) -> float:
            return missing if count is None else float(count + self.fixed)

        return {
            "decoder": self.decoder,
            "dataset": self.dataset,
            "N": self.N,
            "seed": self.seed,
            "threshold": total(self.threshold, math.nan) - self.fixed,
            "lower": total(self.lower, math.nan),
            "upper": total(self.upper, math.inf if self.verdict in ("none reached", "non-monotone") else math.nan),
            "total_images": total(self.threshold, math.nan),
            "verdict": self.verdict,
            "runs": self.runs,
            "steps": self.steps,
        }


@dataclass(frozen=True)
class Walk:
    """A bracket's walk as far as the finished rows carry it. `probe` None: it is over."""

    start: Start
    seen: Mapping[int, Outcome]
    """In the order of asking."""
    probe: Probe | None
    failed_key: str | None

    @property
    def over(self) -> bool:
        return self.probe is None


@dataclass(frozen=True)
class Place:
    """A bracket's place in the plan: its ladder, and the brackets whose answers predict it."""

    bracket: Bracket
    family: str
    rungs: Ladder
    leads: bool
    """Whether this is the pilot: the lowest seed of its N."""
    after: tuple[int, ...]
    """The brackets it waits for: the pilots of its curve up to its own N (a pilot: of all smaller N), ascending."""
    order: tuple[int, ...]
    """Those it waits for come before it."""
    rank: tuple[int, ...]
    """Order of priority: pilots of small N (others wait for them), then followers of large N (the dear ones)."""


def follow(place: Place, start: Start, family: Mapping[int, Row], old: Walk | None) -> Walk:
    """A walk through finished rows from its start, up to the first probe that has none. What the old walk has seen and is
    still so need not be found again."""
    seen: dict[int, Outcome] = {}
    if old is not None and old.start == start:
        for at in old.seen:
            row = family[place.rungs.counts[at]]
            if row["status"] == FAILED or _outcome(place, row) != old.seen[at]:
                break
            seen[at] = old.seen[at]
    return carry_on(place, start, family, seen)


def carry_on(place: Place, start: Start, family: Mapping[int, Row], seen: dict[int, Outcome]) -> Walk:
    """The walk that has seen so much, carried on through finished rows; `seen` grows with it."""
    while (probe := next_probe(seen, place.rungs, start)) is not None:
        row = family.get(place.rungs.counts[probe.at])
        if row is None:
            return Walk(start, seen, probe, None)
        if row["status"] == FAILED:
            return Walk(start, seen, None, row["key"])
        seen[probe.at] = _outcome(place, row)
    return Walk(start, seen, None, None)


def _outcome(place: Place, row: Row) -> Outcome:
    accuracy = row.get("accuracy") if row["status"] == MISSED else None
    return outcome(row["status"] == PASSED, accuracy, place.bracket.template.target)


def result_of(place: Place, walk: Walk | None, family: Mapping[int, Row]) -> ThresholdResult:
    """What a walk (None: not begun) and all finished rows of its family say of the threshold."""
    template, counts = place.bracket.template, place.rungs.counts
    known = bounds(walk.seen if walk else {})
    lower = None if known.lower is None else counts[known.lower]
    upper = None if known.threshold is None else counts[known.threshold]
    verdict, threshold = "open", None
    if walk is not None and walk.over:
        threshold = upper
        if walk.failed_key is not None:
            verdict, threshold = "failed", None
        elif known.contrary:
            verdict = "non-monotone"
            lower = counts[0] if lower is None else lower
        elif threshold is None:
            verdict = "none reached"
        elif known.lower is None:
            verdict, lower = "minimum", threshold
        else:
            verdict = "reached"
    outliers: tuple[int, ...] = ()
    if verdict not in ("open", "failed"):
        outliers = tuple(
            d
            for d, status in sorted((d, row["status"]) for d, row in family.items())
            if (status == PASSED and known.lower is not None and d <= counts[known.lower])
            or (status not in (PASSED, FAILED) and threshold is not None and d >= threshold)
        )
    return ThresholdResult(
        family=place.family,
        dataset=template.dataset,
        decoder=template.decoder,
        N=template.N,
        seed=template.seed,
        fixed=place.bracket.counts.fixed,
        verdict=verdict,
        threshold=threshold,
        lower=lower,
        upper=upper,
        runs=len(family),
        steps=sum(int(row["steps"]) for row in family.values()),
        probes_left=probes_left(walk.seen, place.rungs, walk.start) if walk and not walk.over else 0,
        outliers=outliers,
        failed_key=walk.failed_key if walk else None,
    )
