"""One threshold: the bracket it is looked for in, its walk through the finished rows, and what the walk has found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.searches import Row, Rows
from orchestrator.searches.audits import Family, Record, weakest
from orchestrator.searches.axes import USUAL, Axes, Between
from orchestrator.searches.probing import (
    Ladder,
    Outcome,
    Probe,
    Start,
    bounds,
    next_probe,
    outcome,
    probe_below,
    probes_left,
)
from trainables.settings import value_of, with_values
from trainables.spec import RunSpec, Scalar, family_key

if TYPE_CHECKING:
    from trainables.spec import Counts

PASSED, MISSED, FAILED = "passed", "missed", "failed"


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """One threshold to find: runs like `template` with any of the `counts`, under one version of the task. The template's
    `stop` is `early`; the search decides which runs are trained to the end. `axes` say of which setting these are the counts or
    values, and which one tells the brackets of a curve apart: if nothing else is said, the data count and N.

    Brackets with the same `curve` lie on one curve D*(N) and predict each other. Left empty, it is everything in the
    template but N and the seed; give it where options follow from N.
    """

    template: RunSpec
    task_version: str
    counts: Counts | Between
    curve: str = ""
    audits: int = 0
    """Audits of the stopping rule without a flip that are known of runs like these (see `audits`)."""
    axes: Axes = USUAL
    checked: bool = True
    """Whether a run below all misses is asked for where these may be bad luck (see `probe_below`)."""

    @property
    def along(self) -> Scalar:
        """Its value on the axis along which thresholds are searched."""
        return value_of(self.template, self.axes.along)

    def at(self, value: float) -> RunSpec:
        """The run with this value of the searched setting."""
        return with_values(self.template, {self.axes.least: value})

    @property
    def family(self) -> str:
        """Of the runs that the stopping rule may give up."""
        return family_key(self.template, self.task_version)

    @property
    def full_family(self) -> str:
        """Of those that it may not."""
        return family_key(self.template.to_the_end(), self.task_version)


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
    along: Scalar
    """The bracket's value on the axis `axes.along`: N, if nothing else is asked."""
    seed: int
    fixed: int
    """Images always present: total images = count + fixed."""
    verdict: str
    threshold: float | None
    lower: float | None
    """None: no failing probe below yet."""
    upper: float | None
    """None: no passing probe yet."""
    missed: float | None
    """The largest count below every passing one that is known to miss; None if there is none, as with a `minimum`, where
    `lower` is the threshold itself."""
    runs: int
    """Finished runs of the family, speculative ones included."""
    steps: int
    probes_left: int
    """Estimate; 0 once answered."""
    audits_left: int
    """Runs that were or may be given up and are still to be trained to the end before the answer stands; estimate."""
    outliers: tuple[float, ...]
    """Counts of runs the walk did not ask for (speculation, other studies) that speak against its answer: failing ones
    from the threshold up, passing ones up to lower. Never part of the answer, which would else depend on chance; shown."""
    failed_key: str | None
    lower_ended: str
    """What the lower bound rests on: `budget` (a run trained to its end), `diverged`, `audited rule` or `unaudited rule` (a run
    that the stopping rule gave up). Empty while open, and where there is no lower bound. Of a `non-monotone` answer all
    failing runs above one that passes count as well, and the least firm of these is named."""
    rule: Record
    """What the audits of this bracket's curve found."""
    values: int
    """How many counts the walk may ask for."""
    axes: Axes = USUAL
    tried: tuple[tuple[float, bool], ...] = ()
    """The counts of the walk and whether they passed, ascending."""
    curve: int = 0
    """Number of its curve."""
    blocked: bool = False
    """Whether its next run cannot be trained, as one that it needs has not made it."""

    @property
    def is_cut(self) -> bool:
        """Whether the threshold may lie below the least value that could be tried: this one passes. If its run
        failed, it does not."""
        passes = self.tried[:1] == ((self.lower, True),)
        doubted = self.verdict == "non-monotone" and passes and self.threshold is not None
        least = self.threshold if self.verdict == "minimum" else self.lower if doubted else None
        return least is not None and not self.axes.is_floor(least, self.fixed)

    @property
    def total_images(self) -> float | None:
        return None if self.threshold is None else self.threshold + self.fixed

    def to_row(self) -> dict[str, Any]:
        """A row of the results table. What is not known is NaN.

        What users read is in total images: `images`, the threshold; `images_lower`, see `missed`; `images_upper`, the smallest
        count known to pass above every one that misses; `fixed_images`, which are among all of these; `contradicted_by`, the
        `outliers`. What answers are computed from: `threshold` and `tried` in drawn images; `total_images`, `lower` and `upper`
        in total images, where a bound above that does not exist is inf. Where another setting is searched, its values stand in
        the same places.
        """

        def total(count: float | None, missing: float) -> float:
            return missing if count is None else float(count + self.fixed)

        return {
            "decoder": self.decoder,
            "dataset": self.dataset,
            self.axes.along: self.along,
            "seed": self.seed,
            "images": total(self.threshold, math.nan),
            "images_lower": total(self.missed, math.nan),
            "images_upper": total(self.upper, math.nan),
            "fixed_images": self.fixed,
            "threshold": total(self.threshold, math.nan) - self.fixed,
            "lower": total(self.lower, math.nan),
            "upper": total(self.upper, math.inf if self.verdict in ("none reached", "non-monotone") else math.nan),
            "total_images": total(self.threshold, math.nan),
            "verdict": self.verdict,
            "runs": self.runs,
            "steps": self.steps,
            "lower_ended": self.lower_ended,
            "contradicted_by": ", ".join(str(count + self.fixed) for count in self.outliers),
            "tried": self.tried,
        }


@dataclass(frozen=True)
class Walk:
    """A bracket's walk as far as the finished rows carry it. `probe` None: it is over."""

    start: Start
    seen: Mapping[int, Outcome]
    """In the order of asking."""
    below: Mapping[int, Outcome]
    """The same of what was asked after that, as its misses may have been bad luck, or more may hurt."""
    probe: Probe | None
    failed_key: str | None

    @property
    def over(self) -> bool:
        return self.probe is None

    @property
    def tells(self) -> bool:
        """Whether it has ended with an answer."""
        return self.over and self.failed_key is None

    @property
    def known(self) -> Mapping[int, Outcome]:
        """All that it has seen."""
        return {**self.seen, **self.below}

    @property
    def lucky(self) -> int | None:
        """The lowest rung that passed below all misses of `seen`; None if none did."""
        return min((at for at, outcome in self.below.items() if outcome.passed), default=None)

    @property
    def carriers(self) -> tuple[int, ...]:
        """The failing rungs that its answer rests on: the highest below every pass, and all above some pass. A miss below that
        one only leaves the answer as it was, and is none."""
        if self.failed_key is not None:
            return ()
        lowest = bounds(self.known).lower
        missed = sorted(at for at, outcome in self.known.items() if not outcome.passed)
        return tuple(missed if lowest is None else missed[missed.index(lowest) :])


@dataclass(frozen=True)
class Place:
    """A bracket's place in the plan: its ladder, and the brackets whose answers predict it."""

    bracket: Bracket
    family: str
    full_family: str
    rung_families: tuple[tuple[str, ...], ...]
    """The same of the run at each rung, where not all of them have one family; else empty."""
    x: float
    """Its value on the axis along which thresholds are searched; of a category, the number."""
    curve: int
    """Number of its curve."""
    number: int
    """Its place on the curve, by seed, then x."""
    rungs: Ladder
    leads: bool
    """Whether this is the pilot: the lowest seed of its x."""
    after: tuple[int, ...]
    """The brackets it waits for: the pilots of its curve up to its own x (a pilot: of all smaller x), ascending. Those of
    other categories tell nothing."""
    order: tuple[float, ...]
    """Those it waits for come before it."""
    rank: tuple[float, ...]
    """Order of priority: pilots of small x (others wait for them), then followers of large x (the dear ones)."""

    def found(self, rows: Rows) -> Family:
        """Its finished runs, by data count or by the value of the searched setting."""
        if not self.rung_families:
            return Family(rows.family(self.family), rows.family(self.full_family))
        count = self.bracket.template.data_count
        early, full = (
            {value: rows.family(family).get(count) for value, family in zip(self.rungs.counts, families, strict=True)}
            for families in self.rung_families
        )
        return Family(*({value: row for value, row in way.items() if row is not None} for way in (early, full)))


def follow(place: Place, start: Start, family: Mapping[float, Row], old: Walk | None) -> Walk:
    """A walk through finished rows from its start, up to the first probe that has none. What the old walk has seen and is
    still so need not be found again."""
    seen, below = dict[int, Outcome](), dict[int, Outcome]()
    if old is not None and old.start == start:
        for at in old.seen:
            row = family.get(place.rungs.counts[at])
            if row is None or row["status"] == FAILED or _outcome(place, row) != old.seen[at]:
                break
            seen[at] = old.seen[at]
    return carry_on(place, start, family, seen, below)


def carry_on(
    place: Place, start: Start, family: Mapping[float, Row], seen: dict[int, Outcome], below: dict[int, Outcome]
) -> Walk:
    """The walk that has seen so much, carried on through finished rows; `seen` and `below` grow with it."""

    def probe_of() -> Probe | None:
        probe = next_probe(seen, place.rungs, start)
        return probe_below(seen, below, place.rungs, start) if probe is None and place.bracket.checked else probe

    while probe := probe_of():
        row = family.get(place.rungs.counts[probe.at])
        if row is None:
            return Walk(start, seen, below, probe, None)
        if row["status"] == FAILED:
            return Walk(start, seen, below, None, None if probe.below else row["key"])
        (below if probe.below else seen)[probe.at] = _outcome(place, row)
    return Walk(start, seen, below, None, None)


def _outcome(place: Place, row: Row) -> Outcome:
    accuracy = row.get("accuracy") if row["status"] == MISSED else None
    return outcome(row["status"] == PASSED, accuracy, place.bracket.template.target)


def result_of(
    place: Place, walk: Walk | None, family: Family, trusted: bool, audits_left: int, rule: Record, blocked: bool = False
) -> ThresholdResult:
    """What a walk (None: not begun) and all finished rows of its family say of the threshold.

    Args:
        trusted: whether runs that were given up count as missed.
        audits_left: runs that are still to be trained to the end before the answer stands.
    """
    template, counts = place.bracket.template, place.rungs.counts
    known = bounds(walk.known if walk else {})
    lower = missed = None if known.lower is None else counts[known.lower]
    upper = None if known.threshold is None else counts[known.threshold]
    verdict, threshold, grounds = "open", None, ""
    if walk is not None and walk.over and not audits_left:
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
        grounds = weakest([family.rests_on(counts[at], rule.supported) for at in walk.carriers])
    outliers: tuple[float, ...] = ()
    if verdict not in ("open", "failed"):
        outliers = tuple(
            d
            for d, status in sorted((d, row["status"]) for d, row in family.verdicts(trusted).items())
            if (status == PASSED and known.lower is not None and d <= counts[known.lower])
            or (status not in (PASSED, FAILED) and threshold is not None and d >= threshold)
        )
    return ThresholdResult(
        family=place.family,
        dataset=template.dataset,
        decoder=template.decoder,
        N=template.N,
        along=place.bracket.along,
        seed=template.seed,
        fixed=place.bracket.counts.fixed,
        verdict=verdict,
        threshold=threshold,
        lower=lower,
        upper=upper,
        missed=missed,
        runs=family.runs,
        steps=family.steps,
        probes_left=_probes_left(place, walk) if walk else 0,
        audits_left=audits_left,
        outliers=outliers,
        failed_key=walk.failed_key if walk else None,
        lower_ended=grounds,
        rule=rule,
        values=len(counts),
        axes=place.bracket.axes,
        tried=tuple(sorted((counts[at], seen.passed) for at, seen in walk.known.items())) if walk else (),
        curve=place.curve,
        blocked=blocked,
    )


def _probes_left(place: Place, walk: Walk) -> int:
    if walk.probe is None:
        return 0
    return 1 if walk.probe.below else probes_left(walk.seen, place.rungs, walk.start)
