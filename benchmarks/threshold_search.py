"""What the threshold search costs, and how often its intervals hold the truth, on simulated studies.

    python -m benchmarks.threshold_search            # 400 studies per line, some ten minutes
    python -m benchmarks.threshold_search --quick    # 40 studies per line

A study has seven grid sizes and three seeds. The count at which a run of one seed passes with probability 1/2 is
log-normal around D*(N) = c N^a (spread over seeds 0.15, exponent a from 1.5 to 2.2, both drawn per study). The pass
probability is logistic in log D around it: `noise` is its width (0: a step; 0.1: 12 % of the runs at 0.8 of the threshold
pass, and 14 % at 1.2 of it fail). Every run has one fixed outcome, as real runs have. *Dips* are stretches above the
threshold, 5 to 40 % long, in which a run fails however large the noise; half of the brackets have one.

The accuracy of a missed run is that of real ones: its logit rises in a line with log D. SLOPE and its spreads over studies
and brackets, how far runs at the threshold end short of the target (SHORT), and the noise around the line, are those of 218
missed runs of the MLP (N = 12 to 32) and of the CNN (N = 16 to 32) at 0.4 to 1.2 of the threshold. The luck that lets a run
pass moves its accuracy as well. In a dip, accuracies are random; in some lines the slope is half or twice the usual one,
or accuracies are random everywhere.

The true threshold, against which coverage is counted, is D*(N): the median over all possible seeds of the count at which
a run is as likely to pass as to fail. Dips do not change it. Cost: 1 for a run that passes, 3 for one that does not.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, geometric_mean, median

import pandas as pd

from analysis.fits import fit_power_law, summarise
from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket, ThresholdResult
from orchestrator.searches.probing import ladder
from orchestrator.searches.threshold import ThresholdSearch
from trainables.spec import Counts, RunSpec

SIZES = tuple(range(16, 65, 8))
SEEDS = (0, 1, 2)
RESOLUTION = 0.05
MISSED_COST = 3


LINES = (
    (0.0, False, 1.0),
    (0.03, False, 1.0),
    (0.1, False, 1.0),
    (0.2, False, 1.0),
    (0.0, True, 1.0),
    (0.1, True, 1.0),
    (0.03, False, 0.5),
    (0.03, False, 2.0),
    (0.03, False, None),
)
"""Noise, dips, and times the usual slope of accuracies (None: random)."""

KINDS = {
    "normal": (0.2, 0.15, "luck is normal, not logistic, and as wide"),
    "uneven": (0.1, 0.15, "noise from 0.02 to 0.4, another one for each bracket"),
    "falling": (0.1, 0.15, "noise and spread fall with N, from 0.2 and 0.3 at N = 16 to a quarter at N = 64"),
    "heavy": (0.1, 0.15, "seeds spread as Student's t with 3 degrees of freedom"),
    "alike": (0.2, 0.05, "seeds spread by 0.05 alone: what differs is luck"),
    "lapses": (0.05, 0.15, "5 % of the runs fail whatever their count"),
    "sizes": (0.03, 0.05, "every size lies off the law by itself, for all seeds alike, with a deviation of 0.1"),
}
"""Other ways in which luck may fall, on which nothing was chosen: noise, spread over seeds, and what is other."""
NORMAL = math.pi / math.sqrt(3)
"""Standard deviation of the logistic distribution."""
LAPSES = 0.05
WIDE = 20_000
"""The most that a user may allow who knows nothing of a threshold of tens or hundreds."""
OFF_LAW = 0.1
"""Deviation of the log thresholds of whole sizes from the law."""

TARGET = 0.9
LOGIT = math.log(TARGET / (1 - TARGET))
SLOPE, SLOPE_OF_STUDY, SLOPE_OF_BRACKET = 2.5, 0.15, 0.13
SHORT, ACCURACY_NOISE = 0.12, 0.14

Runs = Callable[[int], tuple[bool, float]]
"""From a data count to whether the run passes, and its held-out accuracy."""


@dataclass(frozen=True)
class World:
    """One simulated study: which runs pass."""

    name: int
    noise: float
    dips: bool = False
    spread: float = 0.15
    steepness: float | None = 1.0
    """Times the usual slope of logit(accuracy); None: accuracies tell nothing."""
    kind: str = ""
    """One of KINDS, or the usual one."""
    lapses: float = 0.0
    """The share of the runs that fail whatever their count; if 0, that of the kind."""

    @property
    def exponent(self) -> float:
        return random.Random(f"{self.name} exponent").uniform(1.5, 2.2)

    def truth(self, N: int) -> float:
        """D*(N). At N = 16 it is 30 to 90, at N = 64 at most about 1,900 of the 3,276 allowed."""
        at_16 = random.Random(f"{self.name} prefactor").uniform(30, 90)
        return at_16 * (N / SIZES[0]) ** self.exponent

    @property
    def slope(self) -> float:
        """Of logit(accuracy) of missed runs in log D."""
        return (self.steepness or 1.0) * SLOPE * math.exp(random.Random(f"{self.name} slope").gauss(0, SLOPE_OF_STUDY))

    def runs(self, N: int, seed: int) -> Runs:
        """How the run with that many images ends, for one bracket: whether it passes, and its accuracy."""
        draw = random.Random(f"{self.name} {N} {seed}")
        off, noise = draw.gauss(0, self.spread), self.noise
        other = random.Random(f"{self.name} {N} {seed} kind")
        if self.kind == "uneven":
            noise = math.exp(other.uniform(math.log(0.02), math.log(0.4)))
        elif self.kind == "falling":
            off, noise = off * 2 * SIZES[0] / N, noise * 2 * SIZES[0] / N
        elif self.kind == "heavy":
            off /= math.sqrt(sum(other.gauss(0, 1) ** 2 for _ in range(3)))  # Student's t, 3 degrees of freedom, over sqrt(3)
        elif self.kind == "sizes":
            off += random.Random(f"{self.name} {N} off the law").gauss(0, OFF_LAW)
        middle = self.truth(N) * math.exp(off)
        dip = middle * math.exp(draw.uniform(0.05, 0.5)) if self.dips and draw.random() < 0.5 else math.inf
        end = dip * math.exp(draw.uniform(0.05, 0.35))

        slope = self.slope * math.exp(draw.gauss(0, SLOPE_OF_BRACKET))

        def run(count: int) -> tuple[bool, float]:
            chance = random.Random(f"{self.name} {N} {seed} {count}").random()
            deviate = NormalDist().inv_cdf(chance) * NORMAL if self.kind == "normal" else -math.log(1 / chance - 1)
            edge = math.log(middle) + noise * deviate
            dips = dip <= count < end
            if share := self.lapses or LAPSES * (self.kind == "lapses"):
                dips = random.Random(f"{self.name} {N} {seed} {count} lapse").random() < share
            if not dips and math.log(max(count, 0.5)) >= edge:
                return True, TARGET
            luck = random.Random(f"{self.name} {N} {seed} {count} accuracy")
            if dips or self.steepness is None:
                return False, luck.uniform(0.3, TARGET)
            own = math.sqrt(max(0.0, ACCURACY_NOISE**2 - (slope * noise * math.pi) ** 2 / 3))
            logit = LOGIT - SHORT + slope * (math.log(max(count, 0.5)) - edge) + luck.gauss(0, own)
            return False, 1 / (1 + math.exp(-min(logit, LOGIT - 0.01)))

        return run


def counts(N: int) -> Counts:
    return Counts(1, N * N * 4 // 5)


def brackets(sizes: Iterable[int] = SIZES, seeds: Iterable[int] = SEEDS, most: int | None = None) -> list[Bracket]:
    """`most`: the largest count at every size; None: that of bumps."""
    return [
        Bracket(
            template=RunSpec(task="simulated:Task", dataset="random", N=N, data_count=0, seed=seed),
            task_version="1",
            counts=counts(N) if most is None else Counts(1, most),
        )
        for N in sizes
        for seed in seeds
    ]


def simulate(
    search: ThresholdSearch, plan: Sequence[Bracket], world: World, workers: int, duration: Callable[[RunSpec, bool], float]
) -> tuple[Rows, float]:
    """Run the search with virtual workers until it is answered; the rows, and how long it took. A run that has begun is
    never stopped."""
    families = {(b.template.N, b.template.seed): b.family for b in plan}
    runs = {key: world.runs(*key) for key in families}
    rows, clock = Rows(), 0.0
    begun: set[tuple[int, int, int]] = set()
    running: list[tuple[float, tuple[int, int, int], bool, float]] = []
    while not search.finished(rows):
        for spec in search.propose(rows, workers):
            run = (spec.N, spec.seed, spec.data_count)
            if len(running) < workers and run not in begun:
                passed, accuracy = runs[spec.N, spec.seed](spec.data_count)
                begun.add(run)
                heapq.heappush(running, (clock + duration(spec, passed), run, passed, accuracy))
        clock, (N, seed, count), passed, accuracy = heapq.heappop(running)
        rows.add(
            {
                "key": f"{N} {seed} {count}",
                "family": families[N, seed],
                "data_count": count,
                "status": "passed" if passed else "missed",
                "accuracy": accuracy,
                "steps": 1 if passed else MISSED_COST,
            }
        )
    return rows, clock


def real_duration(spec: RunSpec, passed: bool) -> float:
    """A step costs as the number of pixels; a run that does not pass takes three times as many."""
    return (spec.N / SIZES[0]) ** 2 * (1 if passed else MISSED_COST)


def table(results: Iterable[ThresholdResult]) -> pd.DataFrame:
    return pd.DataFrame([result.to_row() for result in results])


def plain_bisection(N: int, run: Runs) -> tuple[int | None, int, int, int]:
    """What one would write by hand: from N images on, double (or halve) to the first change, then bisect in log.
    Returns the threshold, the largest failing count below it, trainings and cost."""
    low, high = counts(N).low, counts(N).high
    tried: dict[int, bool] = {}

    def ask(count: int) -> bool:
        tried[count] = run(count)[0]
        return tried[count]

    below, above = low - 1, high + 1
    count = min(N, high)
    if ask(count):
        above = count
        while above > low and ask(max(low, above // 2)):
            above = max(low, above // 2)
        below = max((c for c, ok in tried.items() if not ok), default=low - 1)
    else:
        below = count
        while below < high and not ask(min(high, below * 2)):
            below = min(high, below * 2)
        above = min((c for c, ok in tried.items() if ok), default=high + 1)
    while above <= high and above - below > 1 and (above - below) / above > RESOLUTION:
        middle = min(max(round(math.sqrt(max(below, 0.5) * above)), below + 1), above - 1)
        if ask(middle):
            above = middle
        else:
            below = middle
    cost = sum(1 if ok else MISSED_COST for ok in tried.values())
    return (above if above <= high else None), below, len(tried), cost


@dataclass
class Tally:
    """Sums over studies."""

    thresholds: int = 0
    trainings: int = 0
    cost: int = 0
    covered: int = 0
    summaries: int = 0
    width: float = 0.0
    slopes: int = 0
    slopes_held: int = 0
    slope_width: float = 0.0
    contrary: int = 0

    def add(self, results: pd.DataFrame, world: World, fit: bool = False) -> None:
        self.thresholds += len(results)
        self.trainings += int(results["runs"].sum())
        self.cost += int(results["steps"].sum())
        self.contrary += int((results["verdict"] == "non-monotone").sum())
        for row in summarise(results).itertuples():
            self.summaries += 1
            self.covered += row.lower <= world.truth(row.N) <= row.upper
            self.width += min(math.log(row.upper / row.lower), 10.0)
        if fit:
            law = fit_power_law(results)
            if law.lower is not None and law.upper is not None:
                self.slopes += 1
                self.slopes_held += law.lower <= world.exponent <= law.upper
                self.slope_width += law.upper - law.lower


def by_hand(world: World) -> pd.DataFrame:
    rows = []
    for N in SIZES:
        for seed in SEEDS:
            threshold, below, runs, cost = plain_bisection(N, world.runs(N, seed))
            total = math.nan if threshold is None else threshold
            rows.append(
                {
                    "decoder": "cnn",
                    "dataset": "random",
                    "N": N,
                    "seed": seed,
                    "threshold": total,
                    "total_images": total,
                    "lower": below,
                    "upper": math.inf if threshold is None else threshold,
                    "verdict": "none reached" if threshold is None else "reached",
                    "runs": runs,
                    "steps": cost,
                }
            )
    return pd.DataFrame(rows)


def full_grid(world: World) -> tuple[int, int]:
    """Trainings and cost of every rung of the ladder, for every bracket."""
    trainings = cost = 0
    for N in SIZES:
        rungs = ladder(1, counts(N).high, 0, RESOLUTION).counts
        for seed in SEEDS:
            run = world.runs(N, seed)
            trainings += len(rungs)
            cost += sum(1 if run(count)[0] else MISSED_COST for count in rungs)
    return trainings, cost


def compare(noise: float, dips: bool, studies: int, steepness: float | None = 1.0) -> tuple[Tally, Tally, tuple[float, float]]:
    """The search, bisection by hand, and the full grid (trainings, cost per threshold) on the same studies."""
    plan = brackets()
    search = ThresholdSearch(plan, RESOLUTION)
    ours, hand, grid = Tally(), Tally(), [0, 0]
    gridded = max(1, studies // 20)
    for name in range(studies):
        world = World(name, noise, dips, steepness=steepness)
        rows, _ = simulate(search, plan, world, 1, real_duration)
        ours.add(table(search.answer(rows)), world, fit=name % 5 == 0)
        hand.add(by_hand(world), world)
        if name < gridded:
            grid = [a + b for a, b in zip(grid, full_grid(world), strict=True)]
    per = gridded * len(plan)
    return ours, hand, (grid[0] / per, grid[1] / per)


def scale(workers: int, speculate: bool, studies: int) -> tuple[float, float]:
    """Trainings per threshold and mean duration of a study."""
    plan = brackets()
    search = ThresholdSearch(plan, RESOLUTION, speculate)
    trainings, lasted = 0, 0.0
    for name in range(studies):
        rows, clock = simulate(search, plan, World(name, noise=0.03), workers, real_duration)
        trainings += len(rows)
        lasted += clock
    return trainings / studies / len(plan), lasted / studies


def lapsing(share: float, studies: int, most: int | None, seeds: Sequence[int] = SEEDS) -> tuple[Tally, float, float]:
    """Studies in which this share of the runs fails whatever its count; of thresholds over D*, the median, and the geometric
    mean."""
    plan = brackets(seeds=seeds, most=most)
    search, ours, ratios = ThresholdSearch(plan, RESOLUTION), Tally(), list[float]()
    for name in range(studies):
        world = World(name, 0.05, kind="lapses", lapses=share)
        rows, _ = simulate(search, plan, world, 1, real_duration)
        results = search.answer(rows)
        ours.add(table(results), world)
        ratios += [found.threshold / world.truth(found.N) for found in results if found.threshold is not None]
    return ours, median(ratios), geometric_mean(ratios)


def few(seeds: Sequence[int], resolution: float, spread: float, noise: float, studies: int) -> tuple[Tally, int]:
    """Studies of one size with these seeds, whose thresholds differ by `spread`; and in how many all seeds end alike."""
    plan = brackets((24,), seeds)
    search, ours, alike = ThresholdSearch(plan, resolution), Tally(), 0
    for name in range(studies):
        world = World(name, noise, spread=spread)
        rows, _ = simulate(search, plan, world, 1, real_duration)
        results = table(search.answer(rows))
        ours.add(results, world)
        alike += results["total_images"].nunique() == 1
    return ours, alike


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and coverage of the threshold search on simulated studies.")
    parser.add_argument("--quick", action="store_true", help="40 studies per line instead of 400")
    studies = 40 if parser.parse_args().quick else 400
    print(f"{studies} studies per line, {len(SIZES)} grid sizes, {len(SEEDS)} seeds, resolution {RESOLUTION:.0%}, one worker.")
    print("n: trainings per threshold. Cost per threshold: 1 for a passing run, 3 for another.\n")
    head = ("noise", "dips", "slope", "n", "cost", "non-monotone", "coverage of D*", "interval", "coverage of exponent")
    baselines = ("by hand: n", "cost", "coverage", "full grid: n", "cost")
    print("| " + " | ".join(head + baselines) + " |")
    print("|" + " ---: |" * 14)
    for noise, dips, steepness in LINES:
        ours, hand, grid = compare(noise, dips, studies, steepness)
        k = ours.thresholds
        cells = (
            f"{noise:g}",
            "half" if dips else "none",
            "random" if steepness is None else f"x {steepness:g}",
            f"{ours.trainings / k:.2f}",
            f"{ours.cost / k:.1f}",
            f"{ours.contrary / k:.1%}",
            f"{ours.covered / ours.summaries:.1%}",
            f"x {math.exp(ours.width / ours.summaries):.2f}",
            f"{ours.slopes_held / max(1, ours.slopes):.1%}",
            f"{hand.trainings / k:.2f}",
            f"{hand.cost / k:.1f}",
            f"{hand.covered / hand.summaries:.1%}",
            f"{grid[0]:.0f}",
            f"{grid[1]:.0f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    print("\nFew seeds, one size:\n")
    print("| seeds | resolution | spread | noise | coverage of D* | interval | seeds alike |")
    print("|" + " ---: |" * 7)
    for seeds, resolution in itertools.product(((0, 1), SEEDS), (RESOLUTION, 0.25)):
        for spread, noise in ((0.05, 0.0), (0.15, 0.0), (0.15, 0.1), (0.3, 0.0)):
            ours, alike = few(seeds, resolution, spread, noise, studies)
            held, width = ours.covered / ours.summaries, math.exp(ours.width / ours.summaries)
            cells = (f"{len(seeds)}", f"{resolution:.0%}", f"{spread:g}", f"{noise:g}", f"{held:.1%}", f"x {width:.2f}")
            print("| " + " | ".join((*cells, f"{alike / studies:.0%}")) + " |", flush=True)
    print("\nMore workers, noise 0.03 (time: 1 = one passing run at the smallest size):\n")
    print("| workers | n | time | without speculation: n | time |")
    print("|" + " ---: |" * 5)
    for workers in (1, 2, 4, 8, 16, 32):
        with_it, without = (scale(workers, speculate, max(1, studies // 8)) for speculate in (True, False))
        print(f"| {workers} | {with_it[0]:.2f} | {with_it[1]:.0f} | {without[0]:.2f} | {without[1]:.0f} |", flush=True)
    print("\nRuns that fail whatever their count, noise 0.05:\n")
    print("| counts | share | n | non-monotone | coverage of D* | threshold / D*: median | geometric mean |")
    print("|" + " ---: |" * 7)
    for most in (None, WIDE):
        for share in (0.05, 0.1, 0.2, 0.3, 0.5):
            ours, ratio, mean = lapsing(share, max(1, studies // 4), most)
            cells = (
                "to four fifths of all" if most is None else f"to {most:,}",
                f"{share:.0%}",
                f"{ours.trainings / ours.thresholds:.2f}",
                f"{ours.contrary / ours.thresholds:.1%}",
                f"{ours.covered / ours.summaries:.1%}",
                f"{ratio:.2f}",
                f"{mean:.2f}",
            )
            print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\nOne run in five fails whatever its count, of up to {WIDE:,}, and there are more seeds:\n")
    print("| seeds | coverage of D* | interval | threshold / D*: median |")
    print("|" + " ---: |" * 4)
    for count in (3, 8, 16, 32):
        ours, ratio, _ = lapsing(0.2, max(1, studies // 20), WIDE, range(count))
        held, width = ours.covered / ours.summaries, math.exp(ours.width / ours.summaries)
        print(f"| {count} | {held:.1%} of {ours.summaries} | x {width:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
