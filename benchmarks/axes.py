"""Cost and coverage of the threshold search on other settings than the data count, on simulated studies.

    python -m benchmarks.axes            # 400 studies per line, some five minutes
    python -m benchmarks.axes --quick    # 20 studies per line

As `benchmarks.threshold_search` has it, with seven grid sizes, three seeds and the same ways of ending, but the least of
another setting is searched: a depth from 1 to 8, a rate from 0.01 to 1, a width from 4 to 512. Where a run is as likely to pass
as to fail, the setting is c N^a, with c and a drawn per study. It need be no whole number. The truth of a place is that value,
or the end of the range where it lies beyond.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from analysis.fits import fit_power_law, summarise
from benchmarks.threshold_search import MISSED_COST, SEEDS, SIZES, World
from orchestrator.searches import Rows
from orchestrator.searches.axes import Axes, Between
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.threshold import ThresholdSearch
from trainables.spec import RunSpec, family_key, run_key


@dataclass(frozen=True)
class Setting:
    """A setting whose least value is searched."""

    axes: Axes
    between: Between
    at_16: tuple[float, float]
    """Range of its least value at the smallest size."""
    exponents: tuple[float, float]

    @cached_property
    def search(self) -> ThresholdSearch:
        return ThresholdSearch([self.bracket(N, seed) for N in SIZES for seed in SEEDS])

    def bracket(self, N: int, seed: int) -> Bracket:
        template = RunSpec(task="simulated:Task", dataset="random", N=N, data_count=100, seed=seed)
        template = template.with_value(self.axes.least, self.between.low)
        return Bracket(template=template, task_version="1", counts=self.between, axes=self.axes, curve="random")


SETTINGS = {
    "depth, 1..8": Setting(Axes("depth"), Between(1, 8), (1.2, 3.0), (0.2, 0.8)),
    "rate, 0.01..1": Setting(Axes("rate"), Between(0.01, 1.0), (0.02, 0.5), (-0.5, 0.5)),
    "width, 4..512": Setting(Axes("width"), Between(4, 512), (6, 40), (0.5, 1.5)),
}
LINES = ((0.0, False), (0.1, False), (0.1, True))
"""Noise, and whether there are dips."""
UNIT = 1e-4
"""Values are told to a world in such units, as counts that are far above 1."""


@dataclass(frozen=True)
class OtherWorld(World):
    """A simulated study of another setting, in units of UNIT."""

    setting: Setting = SETTINGS["depth, 1..8"]

    @property
    def exponent(self) -> float:
        return random.Random(f"{self.name} exponent").uniform(*self.setting.exponents)

    def truth(self, N: int) -> float:
        low, high = (math.log(end / UNIT) for end in self.setting.at_16)
        at_16 = math.exp(random.Random(f"{self.name} prefactor").uniform(low, high))
        return at_16 * (N / SIZES[0]) ** self.exponent

    def least(self, N: int) -> float:
        """The true answer."""
        return min(max(self.truth(N) * UNIT, self.setting.between.low), self.setting.between.high)


def study(world: OtherWorld) -> pd.DataFrame:
    """The results of a study on one worker."""
    search, least = world.setting.search, world.setting.axes.least
    runs = {(N, seed): world.runs(N, seed) for N in SIZES for seed in SEEDS}
    rows = Rows()
    while specs := search.propose(rows, 1):
        for spec in specs:
            passed, accuracy = runs[spec.N, spec.seed](float(spec.value(least)) / UNIT)  # type: ignore[arg-type]
            row = {"key": run_key(spec, "1"), "family": family_key(spec, "1"), "data_count": spec.data_count}
            ended = {"status": "passed" if passed else "missed", "accuracy": accuracy, "steps": 1 if passed else MISSED_COST}
            rows.add({**row, **ended})
    return pd.DataFrame([result.to_row() for result in search.answer(rows)])


@dataclass
class Tally:
    """Sums over studies."""

    thresholds: int = 0
    trainings: int = 0
    contrary: int = 0
    covered: int = 0
    summaries: int = 0
    width: float = 0.0
    bounded: int = 0
    slopes: int = 0
    slopes_held: int = 0
    slope_width: float = 0.0

    def add(self, results: pd.DataFrame, world: OtherWorld) -> None:
        axes = world.setting.axes
        self.thresholds += len(results)
        self.trainings += int(results["runs"].sum())
        self.contrary += int((results["verdict"] == "non-monotone").sum())
        for row in summarise(results, axes=axes).itertuples():
            self.summaries += 1
            self.covered += row.lower <= world.least(row.N) <= row.upper
            if math.isfinite(row.upper):
                self.bounded += 1
                self.width += math.log(row.upper / max(row.lower, world.setting.between.low / 2))
        law = fit_power_law(results, axes=axes)
        if law.lower is not None and law.upper is not None and law.sizes > 2:
            self.slopes += 1
            self.slopes_held += law.lower <= world.exponent <= law.upper
            self.slope_width += law.upper - law.lower


def tally(setting: Setting, noise: float, dips: bool, studies: int) -> Tally:
    found = Tally()
    for name in range(studies):
        world = OtherWorld(name, noise, dips, setting=setting)
        found.add(study(world), world)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and coverage of the threshold search on other settings.")
    parser.add_argument("--quick", action="store_true", help="20 studies per line instead of 400")
    studies = 20 if parser.parse_args().quick else 400
    print(f"{studies} studies per line, {len(SIZES)} grid sizes, {len(SEEDS)} seeds, resolution 5%, one worker.\n")
    head = ("setting", "values", "noise", "dips", "n", "non-monotone", "truth in interval", "width of interval",
            "fits", "true exponent in interval", "width")  # fmt: skip
    print("| " + " | ".join(head) + " |")
    print("|:---|" + " ---: |" * (len(head) - 1))
    for name, setting in SETTINGS.items():
        values = len(setting.search.rungs(0))
        for noise, dips in LINES:
            found = tally(setting, noise, dips, studies)
            cells = (
                name,
                f"{values}",
                f"{noise:g}",
                "half" if dips else "none",
                f"{found.trainings / found.thresholds:.2f}",
                f"{found.contrary / found.thresholds:.1%}",
                f"{found.covered / found.summaries:.1%}",
                f"x {math.exp(found.width / max(1, found.bounded)):.2f}",
                f"{found.slopes}",
                f"{found.slopes_held / max(1, found.slopes):.1%}",
                f"{found.slope_width / max(1, found.slopes):.2f}",
            )
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
