"""How much too good the best trial of a search looks, and what a confirmation on fresh seeds makes of it.

    python -m benchmarks.winners_curse            40 simulated searches of each kind
    python -m benchmarks.winners_curse --quick    five of each

Nothing is trained: the error of a run is a known function of its settings times the luck of its seed, lognormal. So what a
setting is really worth is known. Of every search these are looked at: the best trial, as the search reports it; the settings
that are confirmed, on fresh seeds; and the winner among them. "Too good by" is the true error over the reported one, "regret"
the true error of what was chosen over the least error there is; both are geometric means over the searches, with their 95 %
intervals. A last line is of luck that is not lognormal: some seeds never learn, and a few fresh seeds may hold none of them.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from analysis.tune import Answer, interval
from orchestrator.searches import Rows
from orchestrator.searches.confirm import ConfirmBest
from orchestrator.searches.objective import Objective
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Dimension
from orchestrator.store import make_row
from trainables.spec import RunSpec, run_key

SPACE = (
    Dimension("lr", (), (1e-4, 1e-1), log=True),
    Dimension("width", (16, 32, 64, 128)),
    Dimension("decoder", ("cnn", "mlp")),
)
TEMPLATE = RunSpec(task="tests.toy:Choosy", dataset="toys", N=8, data_count=3, seed=0, max_steps=100, stop="budget")
LEAST = 1e-3
"""The least error there is."""
CONFIRMED, FRESH, FIRST = 3, 5, 1000
WAYS = [(1, 0.1), (1, 0.3), (3, 0.3), (1, 0.6), (3, 0.6)]
"""Seeds per trial, and the spread of the luck: the standard deviation of its logarithm."""


def true_error(spec: RunSpec) -> float:
    """Least at lr = 0.003 for a cnn of width 64."""
    exponent = 0.8 * (math.log10(spec.lr) + 2.5) ** 2 + 0.1 * abs(math.log2(spec.width / 64)) + 0.2 * (spec.decoder == "mlp")
    return LEAST * math.exp(exponent)


@dataclass(frozen=True)
class Found:
    """Of one search: true error, and how many times the reported one this is."""

    runs: int
    trial: tuple[float, float]
    confirmed: float
    """Of the confirmed settings, on average."""
    winner: tuple[float, float]
    crossed: float
    """Of the winner, judged as `analysis.tune.crossed_mean` does."""


def search(seeds: int, spread: float, trials: int, repeat: int) -> Found:
    aims = (Objective("mse"),)
    tuning = OptunaSearch(TEMPLATE, "1", SPACE, trials, pruner="none", objectives=aims, seed=repeat, seeds=seeds)
    made = ConfirmBest(tuning, most=CONFIRMED, seeds=range(FIRST, FIRST + FRESH))
    rows, began = Rows(), datetime(2026, 1, 1, tzinfo=UTC)
    while not made.finished(rows):
        for spec in made.propose(rows, 1):
            luck = random.Random(f"{repeat}/{run_key(spec, '1')}").gauss(0, spread)
            result = {"status": "missed", "reason": "budget", "steps": 100, "ood_mse": true_error(spec) * math.exp(luck)}
            at = began + timedelta(seconds=len(rows))
            rows.add(make_row(spec, task_version="1", fixed_count=0, finished_at=at, **result))
    chosen = made.chosen(rows)
    answer = Answer.of_search(made, rows, {})
    true = [true_error(tuning.spec(trial.values)) for trial in chosen]
    too_good = [error / told for error, told in zip(true, answer.confirmed["mse"], strict=True)]
    won = int(answer.confirmed["winner"].to_numpy().argmax())
    best = true[0], true[0] / chosen[0].scores[0]
    return Found(len(rows), best, statistics.geometric_mean(too_good), (true[won], too_good[won]), true[won] / answer.crossed)


def held(seeds: int, draws: int) -> float:
    """How often the 95 % interval of a mean accuracy on so many fresh seeds holds the true one, where one seed in ten never
    learns and the others hardly differ."""
    luck, true = random.Random(seeds), 0.1 * 0.1 + 0.9 * 0.95
    inside = 0
    for _ in range(draws):
        _, lower, upper = interval([0.1 if luck.random() < 0.1 else luck.gauss(0.95, 0.002) for _ in range(seeds)], False)
        inside += lower <= true <= upper
    return inside / draws


def text(ratios: Sequence[float]) -> str:
    middle, lower, upper = interval(ratios, logs=True)
    return f"{middle:.2f} ({lower:.2f} to {upper:.2f})"


def main(
    repeats: int = 40,
    trials: int = 60,
    quick: Annotated[bool, typer.Option("--quick", help="Five searches of each kind.")] = False,
) -> None:
    """Print the table."""
    repeats = 5 if quick else repeats
    print(f"{repeats} searches of {trials} trials each; {CONFIRMED} settings confirmed on {FRESH} fresh seeds")
    print()
    names = ["best trial: too good by", "confirmed settings", "winner", "winner, crossed"]
    names += ["regret of the best trial", "of the winner"]
    print(f"| spread of luck | seeds per trial | runs | {' | '.join(names)} |")
    print("|---:|---:|---:|---|---|---|---|---|---|")
    for seeds, spread in WAYS:
        found = [search(seeds, spread, trials, repeat) for repeat in range(repeats)]
        ratios = [[f.trial[1], f.confirmed, f.winner[1], f.crossed, f.trial[0] / LEAST, f.winner[0] / LEAST] for f in found]
        cells = map(text, zip(*ratios, strict=True))
        print(f"| {spread:g} | {seeds} | {statistics.fmean(f.runs for f in found):.0f} | {' | '.join(cells)} |", flush=True)
    print()
    by_seeds = ", ".join(f"{held(seeds, draws=50 * repeats):.0%} with {seeds}" for seeds in (5, 10, 16, 30))
    print(f"One seed in ten never learns: the interval on fresh seeds holds the true mean in {by_seeds} seeds")


if __name__ == "__main__":
    typer.run(main)
