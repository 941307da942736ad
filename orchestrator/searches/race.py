"""How trials race over their seeds: which of them deserve another one, and what a seed itself adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from orchestrator.searches.objective import mean

BEST_SHARE = 3
"""Of the complete trials, one in so many is trained on every seed, in any case."""


def contenders(ranked: Sequence[Sequence[float]], up: bool) -> list[int]:
    """The places of the trials in contention: those among the best third, and those whose mean, less its standard error, is not
    behind that of the best trial among those of most seeds. The error is the spread over seeds, pooled over all trials, by the
    root of the trial's number of them.

    Args:
        ranked: the numbers of every trial on its seeds, the best trial first; not empty.
        up: whether the larger number is the better one.
    """
    scores = [mean(some, logs=False) for some in ranked]
    spread = pooled(ranked)
    most = max(map(len, ranked))
    incumbent = next(score for score, some in zip(scores, ranked, strict=True) if len(some) == most)
    sign = -1 if up else 1
    certain = -(-len(ranked) // BEST_SHARE)
    return [
        place
        for place, (score, some) in enumerate(zip(scores, ranked, strict=True))
        if place < certain or (spread is not None and sign * (score - incumbent) <= spread / math.sqrt(len(some)))
    ]


def seed_effects(of_trials: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """What every seed adds to a number on average, against the first one: each from the trials that have it, in comparison with
    the seeds before.

    Args:
        of_trials: numbers by seed; all trials have the first seed.
    """
    effects: dict[int, float] = {}
    for seed in sorted({seed for found in of_trials for seed in found}):
        added = [
            found[seed] - mean([found[known] - effects[known] for known in found if known in effects], logs=False)
            for found in of_trials
            if seed in found and effects
        ]
        effects[seed] = mean(added, logs=False) if added else 0.0
    return effects


def pooled(of_seeds: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation over seeds, pooled over trials; None while no trial has two."""
    several = [some for some in of_seeds if len(some) > 1]
    if not several:
        return None
    largest = max(abs(value) for some in several for value in some)
    scale = math.ldexp(0.5, math.frexp(largest)[1])  # a power of two, so that nothing is rounded, and no square overflows
    scaled = [[value / scale for value in some] for some in several]
    squares = math.fsum((value - mean(some, logs=False)) ** 2 for some in scaled for value in some)
    return math.sqrt(squares / sum(len(some) - 1 for some in several)) * scale
