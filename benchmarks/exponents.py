"""How often the interval of the exponent holds the true one, on simulated studies on which nothing was chosen.

    python -m benchmarks.exponents            # 1,000 studies per line, about half an hour
    python -m benchmarks.exponents --quick    # 20 studies per line
    python -m benchmarks.exponents --studies 300

The studies are those of `benchmarks.threshold_search`, with other numbers. Below its lines are those of KINDS, in which luck
falls in other ways than the model of `analysis.posterior` has it. *Error*: root mean square of that of the exponent. *Broken*:
studies in which a law that breaks is called far better, though none does.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from analysis.fits import fit_power_law
from benchmarks.threshold_search import KINDS, LINES, RESOLUTION, World, brackets, real_duration, simulate, table
from orchestrator.searches.threshold import ThresholdSearch

FRESH = 10_000
"""The first study. Those with lower numbers chose what there is to choose in `analysis.posterior`."""


@dataclass
class Tally:
    """Sums over studies: `fitted` are those with an interval."""

    thresholds: int = 0
    trainings: int = 0
    cost: int = 0
    fitted: int = 0
    held: int = 0
    width: float = 0.0
    error: float = 0.0
    broken: int = 0


def worlds() -> list[partial[World]]:
    """The lines of the table; each needs the number of a study."""
    usual = [partial(World, noise=noise, dips=dips, steepness=steepness) for noise, dips, steepness in LINES]
    return [*usual, *(partial(World, noise=noise, spread=spread, kind=kind) for kind, (noise, spread, _) in KINDS.items())]


def tally(world: partial[World], studies: int) -> Tally:
    """The search on fresh studies, each with its power law."""
    plan, found = brackets(), Tally()
    search = ThresholdSearch(plan, RESOLUTION)
    for name in range(FRESH, FRESH + studies):
        study = world(name)
        rows, _ = simulate(search, plan, study, 1, real_duration)
        results = table(search.answer(rows))
        found.thresholds += len(results)
        found.trainings += int(results["runs"].sum())
        found.cost += int(results["steps"].sum())
        law = fit_power_law(results)
        if law.exponent is not None and law.lower is not None and law.upper is not None:
            found.fitted += 1
            found.held += law.lower <= study.exponent <= law.upper
            found.width += law.upper - law.lower
            found.error += (law.exponent - study.exponent) ** 2
            found.broken += law.broken is not None and law.broken.is_better
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the exponent on simulated studies.")
    parser.add_argument("--quick", action="store_true", help="20 studies per line instead of 1,000")
    parser.add_argument("--studies", type=int, default=1000, metavar="COUNT", help="studies per line (default: 1000)")
    given = parser.parse_args()
    studies = 20 if given.quick else given.studies
    print(f"{studies} studies per line, from number {FRESH:,} on.\n")
    print("| noise | dips | slope | luck | n | cost | true exponent in interval | width | error | broken |")
    print("|" + " ---: |" * 10)
    for world in worlds():
        found, one = tally(world, studies), world(0)
        k = max(1, found.fitted)
        cells = (
            f"{one.noise:g}",
            "half" if one.dips else "none",
            "random" if one.steepness is None else f"x {one.steepness:g}",
            one.kind or "logistic",
            f"{found.trainings / found.thresholds:.2f}",
            f"{found.cost / found.thresholds:.1f}",
            f"{found.held / k:.1%}",
            f"{found.width / k:.2f}",
            f"{(found.error / k) ** 0.5:.3f}",
            f"{found.broken / k:.1%}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
