"""How much of a known Pareto front a search with two objectives finds, by sampler and number of trials.

    python -m benchmarks.pareto            three problems, up to 600 trials, five search seeds
    python -m benchmarks.pareto --quick    up to 60 trials, one search seed

Nothing is trained: the objectives of a trial are known functions of its settings. The samplers are those of the study `tune`.
The share is the area that the found front dominates over the area that the known front dominates, both up to a reference point
(the hypervolume).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import optuna
import typer

from orchestrator.searches.samplers import sampler_of
from orchestrator.searches.space import Dimension

Pair = tuple[float, float]

SAMPLERS = ("tpe", "nsga2", "random")
TRIALS = (20, 60, 100, 200, 600)
POINTS = 10_000
"""Of a known front."""


@dataclass(frozen=True)
class Problem:
    """Two objectives to be made small, and where they cannot be smaller together."""

    space: Sequence[Dimension]
    objectives: Callable[[Mapping[str, float]], Pair]
    front: Sequence[Pair]
    reference: Pair
    """The end of the area that counts."""


def of_width(values: Mapping[str, float]) -> Pair:
    """An error, which is least at a learning rate of 0.003 and falls with the width; and the width."""
    return (1 + (math.log10(values["lr"]) + 2.5) ** 2) / math.sqrt(values["width"]), values["width"]


def zdt1(values: Mapping[str, float]) -> Pair:
    """The first problem of Zitzler, Deb and Thiele: the front has 0 for all settings but the first."""
    first, *others = values.values()
    far = 1 + 9 * statistics.fmean(others)
    return first, far * (1 - math.sqrt(first / far))


def fonseca(values: Mapping[str, float]) -> Pair:
    """That of Fonseca and Fleming: on the front all settings are equal."""
    centre = 1 / math.sqrt(len(values))
    one, other = (math.exp(-sum((x - side) ** 2 for x in values.values())) for side in (centre, -centre))
    return 1 - one, 1 - other


def numbers(count: int, low: float, high: float) -> list[Dimension]:
    """So many settings, each a number of this range."""
    return [Dimension(f"x{i}", (), (low, high)) for i in range(1, count + 1)]


def between(low: float, high: float) -> list[float]:
    return np.linspace(low, high, POINTS).tolist()


WIDTHS = range(8, 513)
PROBLEMS = {
    "width": Problem(
        [Dimension("lr", (), (1e-4, 1e-1), log=True), Dimension("width", (), (WIDTHS[0], WIDTHS[-1]), log=True, step=1)],
        of_width,
        [(1 / math.sqrt(width), width) for width in WIDTHS],
        (0.5, WIDTHS[-1]),
    ),
    "ZDT1": Problem(
        numbers(4, 0, 1),
        zdt1,
        [(x, 1 - math.sqrt(x)) for x in between(0, 1)],
        (1.0, 2.0),
    ),
    "Fonseca": Problem(
        numbers(3, -4, 4),
        fonseca,
        [fonseca(dict.fromkeys(("x1", "x2", "x3"), x)) for x in between(-1 / math.sqrt(3), 1 / math.sqrt(3))],
        (1.0, 1.0),
    ),
}


def area(points: Iterable[Pair], reference: Pair) -> float:
    """What the points dominate, up to the reference point."""
    found, lowest = 0.0, reference[1]
    for one, other in sorted(points):
        if one < reference[0] and other < lowest:
            found += (reference[0] - one) * (lowest - other)
            lowest = other
    return found


def search(name: str, sampler: str, trials: int, seed: int) -> list[Pair]:
    """The objectives of all trials, in their order."""
    problem = PROBLEMS[name]
    chosen = sampler_of(sampler, f"{seed}/{name}", trials)
    study, found = optuna.create_study(directions=["minimize", "minimize"], sampler=chosen), []
    for _ in range(trials):
        trial = study.ask()
        found.append(problem.objectives({one.name: one.suggest(trial) for one in problem.space}))
        study.tell(trial, found[-1])
    return found


def shares(job: tuple[str, str, int], counts: Sequence[int]) -> list[float]:
    """Of the area of the known front, what the trials found, for each number of trials."""
    name, sampler, seed = job
    problem = PROBLEMS[name]
    whole = area(problem.front, problem.reference)
    if sampler == "nsga2":  # its generations depend on the number of trials
        found = [search(name, sampler, count, seed) for count in counts]
    else:
        every = search(name, sampler, max(counts), seed)
        found = [every[:count] for count in counts]
    return [area(points, problem.reference) / whole for points in found]


def main(
    repeats: int = 5,
    processes: int = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Up to 60 trials, one search seed.")] = False,
) -> None:
    """Print the table."""
    repeats, counts = (1, TRIALS[:2]) if quick else (repeats, TRIALS)
    ways = [(name, sampler) for name in PROBLEMS for sampler in SAMPLERS]
    jobs = [(*way, seed) for way in ways for seed in range(repeats)]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(jobs, pool.map(partial(shares, counts=counts), jobs), strict=True))
    print(f"Share of the area that was found, mean over {repeats} search seeds")
    print()
    print(f"| trials | {' | '.join(f'{name}: `{sampler}`' for name, sampler in ways)} |")
    print(f"|---:{'|---:' * len(ways)}|")
    for at, count in enumerate(counts):
        means = [statistics.fmean(found[*way, seed][at] for seed in range(repeats)) for way in ways]
        print(f"| {count} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    typer.run(main)
