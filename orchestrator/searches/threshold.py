"""The threshold search: the smallest data count at which a run passes, for every bracket (one dataset, N and seed) of a study.

The answer of a bracket is that of a sequential walk (`probing`), replayed through the finished rows. It depends on nothing
but how the runs end: not on their order, on kills, on the number of workers, nor on rows the walk did not ask for.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from orchestrator.searches import Curve, Row, Rows
from orchestrator.searches.probing import Ladder, Probe, Start, bounds, ladder, next_probe, probes_left
from orchestrator.spec import RunSpec, family_key

if TYPE_CHECKING:
    from trainables.task import Counts

PASSED, FAILED = "passed", "failed"

BLIND = (0.7, 1.3)
"""Gallop of a bracket about which nothing is known: first step in log(total images), growth of the further steps."""
PILOT = (0.25, 1.6)
"""Gallop of a bracket predicted from smaller grid sizes."""
FOLLOWER, STAGGER = (0.2, 1.6), 0.2
"""Gallop of a bracket that starts near the threshold of another seed, and how far above it (odd seeds) or below (even):
where passing is a matter of luck, walks from one place share the luck of that place and the spread over seeds looks small."""
PRIOR_EXPONENT, PRIOR_WIDTH, SEED_SPREAD = 2.0, 0.7, 0.2
"""Exponent of D*(N) expected beforehand, how sure that is, and how far one seed lies from the law (in log)."""
UNLIKELY = 0.05
"""Speculation leaves out probes less likely than this to be asked for."""


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
class _Walk:
    """A bracket's walk as far as the finished rows carry it. `probe` None: it is over."""

    start: Start
    seen: Mapping[int, bool]
    probe: Probe | None
    failed_key: str | None

    @property
    def over(self) -> bool:
        return self.probe is None


@dataclass(frozen=True)
class _Place:
    """A bracket's place in the plan: its ladder, and the brackets whose answers predict it."""

    bracket: Bracket
    family: str
    rungs: Ladder
    leads: bool
    """Whether this is the pilot: the lowest seed of its N."""
    after: tuple[int, ...]
    """The brackets it waits for: a pilot for those of all smaller N on its curve, ascending; another seed for its pilot."""
    rank: tuple[int, ...]
    """Order of priority: pilots of small N (others wait for them), then followers of large N (the dear ones)."""


_Memo = tuple[int, tuple[_Walk | None, ...], _Walk]
"""Version of the family's rows, walks of the brackets it waited for, and the walk that follows from these."""


class ThresholdSearch:
    """Finds the threshold of every bracket to `resolution`, relative to the upper bound in total images.

    A bracket opens when those that predict it are answered: the lowest seed (pilot) of a grid size waits for the pilots
    of all smaller ones on its curve, the other seeds for their pilot. Open brackets come first; idle room is filled with
    the probes they are most likely to ask for next, so that k + 1 workers split a bracket in about k + 2 parts.
    With `speculate=False`, or room for no more than the open brackets, the set of runs is that of one worker.

    Raises:
        ValueError: a resolution outside (0, 1), no counts to choose from, or two brackets with the same runs.
    """

    def __init__(self, brackets: Sequence[Bracket], resolution: float = 0.05, speculate: bool = True) -> None:
        if not 0 < resolution < 1:
            raise ValueError(f"resolution must lie between 0 and 1, not {resolution:g}: 0.05 stands for 5 %")
        self.resolution = resolution
        self.speculate = speculate
        self._places = _plan(brackets, resolution)
        order = range(len(brackets))
        self._by_size = sorted(order, key=lambda i: (brackets[i].template.N, not self._places[i].leads))
        self._by_rank = sorted(order, key=lambda i: self._places[i].rank)
        self._memo: WeakKeyDictionary[Rows, dict[int, _Memo]] = WeakKeyDictionary()

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        walks = self._walks(rows)
        needed = sum(walk is not None and not walk.over for walk in walks)
        limit = min(room, max(needed, room if fill is None else fill))
        chosen: list[RunSpec] = []
        probes = self._likely_probes(rows, walks)
        while len(chosen) < limit and (found := next(probes, None)) is not None:
            place, at = self._places[found[0]], found[1]
            chosen.append(place.bracket.template.with_count(place.rungs.counts[at]))
        return chosen

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        """None: a run that will miss ends by itself."""
        return None

    def finished(self, rows: Rows) -> bool:
        return all(walk is not None and walk.over for walk in self._walks(rows))

    def answer(self, rows: Rows) -> list[ThresholdResult]:
        """What is known of each bracket, in the order they were given."""
        return [_result(p, w, rows.family(p.family)) for p, w in zip(self._places, self._walks(rows), strict=True)]

    def _likely_probes(self, rows: Rows, walks: Sequence[_Walk | None]) -> Iterator[tuple[int, int]]:
        """Unfinished (bracket, rung) by falling probability that the walk asks for it, those it asks for now first."""
        heap: list[tuple[float, int, int, Mapping[int, bool]]] = []
        for rank, i in enumerate(self._by_rank):
            walk = walks[i]
            if walk is not None and not walk.over:
                heap.append((-1.0, rank, 0, walk.seen))
        heapq.heapify(heap)
        given: set[tuple[int, int]] = set()
        pushed = 0
        while heap:
            minus_likely, rank, _, imagined = heapq.heappop(heap)
            i = self._by_rank[rank]
            place, before = self._places[i], walks[i]
            assert before is not None
            walk = _follow(place, before.start, rows.family(place.family), imagined)
            if walk.probe is None:
                continue
            at, likely = walk.probe.at, walk.probe.likely
            if (i, at) not in given:
                given.add((i, at))
                yield i, at
            if not self.speculate:
                continue
            for passes, share in ((True, likely), (False, 1 - likely)):
                if -minus_likely * share >= UNLIKELY:
                    pushed += 1
                    heapq.heappush(heap, (minus_likely * share, rank, pushed, {**walk.seen, at: passes}))

    def _walks(self, rows: Rows) -> list[_Walk | None]:
        """Each bracket's walk; None while it waits for another. Remembered until its rows or those other walks change."""
        memo = self._memo.setdefault(rows, {})
        walks: list[_Walk | None] = [None] * len(self._places)
        for i in self._by_size:
            place = self._places[i]
            version, before = rows.version(place.family), tuple([walks[j] for j in place.after])
            known = memo.get(i)
            if known is not None and known[0] == version and known[1] == before:
                walks[i] = known[2]
                continue
            answered = [walk for walk in before if walk is not None and walk.over]
            if len(answered) == len(before):
                start = self._start(place, answered)
                walk = _follow(place, start, rows.family(place.family), {})
                walks[i] = walk
                memo[i] = (version, before, walk)
        return walks

    def _start(self, place: _Place, answered: Sequence[_Walk]) -> Start:
        """Where the answers it waited for tell a bracket to begin. They are read off at the next main rung, so that a finer
        resolution begins at the same place. A failed pilot leaves its own prediction to the others."""
        top = len(place.rungs.logs) - 1
        if not place.leads:
            pilot, rungs = answered[0], self._places[place.after[0]].rungs
            logs = rungs.logs
            if pilot.failed_key is not None:
                return replace(pilot.start, at=place.rungs.nearest(logs[pilot.start.at]))
            threshold = bounds(pilot.seen).threshold
            if threshold is None:
                return Start(top, *FOLLOWER)
            aside = STAGGER if place.bracket.template.seed % 2 else -STAGGER
            return Start(place.rungs.nearest(logs[rungs.at_least(logs[threshold])] + aside), *FOLLOWER)
        known: list[tuple[int, float]] = []
        censored = False
        for j, walk in zip(place.after, answered, strict=True):
            if walk.failed_key is None:
                threshold = bounds(walk.seen).threshold
                censored = threshold is None
                if threshold is not None:
                    rungs = self._places[j].rungs
                    known.append((j, rungs.logs[rungs.at_least(rungs.logs[threshold])]))
        if censored:
            return Start(top, *PILOT)
        if not known:
            return Start(_blind(place), *BLIND)
        return Start(place.rungs.nearest(self._predict(place, known)), *PILOT)

    def _predict(self, place: _Place, known: Sequence[tuple[int, float]]) -> float:
        """log(total images) from a power law through smaller grid sizes; with one of them, D grows as N^2. With more, the
        exponent is fitted, drawn towards the expected one as far as the seeds' spread over so short a range asks for."""
        N, fixed = place.bracket.template.N, place.bracket.counts.fixed
        if len(known) == 1:
            j, log_total = known[0]
            other = self._places[j].bracket
            count = math.exp(log_total) - other.counts.fixed
            total = fixed + max(count, 0.0) * (N / other.template.N) ** PRIOR_EXPONENT
            return math.log(max(total, 0.5))
        x = [math.log(self._places[j].bracket.template.N) for j, _ in known]
        y = [log_total for _, log_total in known]
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        pull = (SEED_SPREAD / PRIOR_WIDTH) ** 2
        prior = PRIOR_EXPONENT if fixed == 0 else 1.0
        sxy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
        slope = (sxy + pull * prior) / (sum((a - mean_x) ** 2 for a in x) + pull)
        return mean_y + slope * (math.log(N) - mean_x)


def _plan(brackets: Sequence[Bracket], resolution: float) -> list[_Place]:
    families: dict[str, Bracket] = {}
    pilots: dict[str, dict[int, int]] = {}
    curves = [b.curve or family_key(replace(b.template, N=1, seed=0), b.task_version) for b in brackets]
    for i, (b, curve) in enumerate(zip(brackets, curves, strict=True)):
        if not 0 <= b.counts.low <= b.counts.high:
            raise ValueError(f"no data counts to choose from at N = {b.template.N}: {b.counts.low} to {b.counts.high}")
        if b.family in families:
            raise ValueError(f"the bracket of {b.template.dataset}, N = {b.template.N}, seed {b.template.seed} is given twice")
        families[b.family] = b
        of_size = pilots.setdefault(curve, {})
        if (j := of_size.get(b.template.N)) is None or b.template.seed < brackets[j].template.seed:
            of_size[b.template.N] = i
    places = []
    for i, (b, curve) in enumerate(zip(brackets, curves, strict=True)):
        pilot = pilots[curve][b.template.N]
        leads = pilot == i
        after = tuple(j for n, j in sorted(pilots[curve].items()) if n < b.template.N) if leads else (pilot,)
        rank = (0, b.template.N, i) if leads else (1, -b.template.N, b.template.seed, i)
        rungs = ladder(b.counts.low, b.counts.high, b.counts.fixed, resolution)
        places.append(_Place(b, b.family, rungs, leads, after, rank))
    return places


def _blind(place: _Place) -> int:
    """Start of a first bracket: images always present are expected to be nearly enough; without any, two thirds of the
    way from the lowest to the highest count in log."""
    if place.bracket.counts.fixed > 0:
        return 0
    logs = place.rungs.logs
    return place.rungs.nearest(logs[0] + (logs[-1] - logs[0]) * 2 / 3)


def _follow(place: _Place, start: Start, family: Mapping[int, Row], seen: Mapping[int, bool]) -> _Walk:
    """Carry a walk on from `seen` through finished rows, up to the first probe that has none."""
    seen = dict(seen)
    while (probe := next_probe(seen, place.rungs, start)) is not None:
        row = family.get(place.rungs.counts[probe.at])
        if row is None:
            return _Walk(start, seen, probe, None)
        if row["status"] == FAILED:
            return _Walk(start, seen, None, row["key"])
        seen[probe.at] = row["status"] == PASSED
    return _Walk(start, seen, None, None)


def _result(place: _Place, walk: _Walk | None, family: Mapping[int, Row]) -> ThresholdResult:
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
