"""Where a threshold search begins in a bracket: what the answers before it predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.searches.bracket import Bracket, Place, Walk
from orchestrator.searches.probing import KNOWN, RARE, Start, bounds, learn

BLIND_SPREAD, CENSORED_SPREAD = 0.9, 0.25
"""How far a threshold lies, in log(total images), from where it is expected: where nothing is known, and where a bracket
before it did not reach the target. Between these cases the law of the pilots tells."""
ABOVE = 0.1
"""A walk begins above the expected threshold, by this share of how uncertain that is: a passing run is the cheap one."""
STAGGER = 1.0
"""Odd seeds begin so much higher and even ones so much lower (not the pilot): where passing is a matter of luck, walks from
one place share the luck of that place, and the spread over seeds looks small."""
PRIOR_EXPONENT, PRIOR_WIDTH = 2.0, 0.7
"""Exponent of D*(N) expected beforehand, and how sure that is ..."""
UNKNOWN_EXPONENT, UNKNOWN_WIDTH = 0.0, 1.0
"""... and that of another setting, or along another one."""
SEED_SPREAD, SPREAD_WORTH = 0.15, 1.5
"""How far one seed is expected to lie from the law, in log, and how many seen residuals that expectation is worth. Of the MLP
the seeds lie 0.13 apart at N = 16 and 0.05 at 24 to 32."""


def start_of(places: Sequence[Place], place: Place, answered: Sequence[Walk]) -> Start:
    """Where the answers it waited for tell a bracket to begin. They are read off at the next main rung, so that a finer
    resolution begins at the same place. A pilot without an answer leaves its own prediction to the others."""
    rungs = place.rungs
    top = len(rungs.logs) - 1
    if not place.leads and not answered[-1].tells:
        pilot = answered[-1].start
        return replace(pilot, at=rungs.nearest(places[place.after[-1]].rungs.logs[pilot.at]))
    known: list[tuple[int, float]] = []
    lessons: list[tuple[float, list[tuple[float, float]]]] = []
    censored = False
    for j, walk in zip(place.after, answered, strict=True):
        if walk.tells:
            found, other = bounds(walk.known), places[j].rungs
            at = found.threshold if walk.lucky is None else walk.lucky
            censored = at is None
            if at is not None:
                log_threshold = other.logs[other.at_least(other.logs[at])]
                known.append((j, log_threshold))
                if not found.contrary:
                    seen = ((i, o.shortfall) for i, o in walk.seen.items() if other.depths[i] == 0)
                    lessons.append((log_threshold, [(other.logs[i], s) for i, s in seen if s is not None]))
    taught = learn(lessons)
    if censored:
        return Start(top, rungs.logs[top], CENSORED_SPREAD, taught, leads=place.leads)
    if not known:
        at = _blind(place)
        return Start(at, rungs.logs[at], BLIND_SPREAD, taught, alone=True)
    centre, spread = _predict(places, place, known)
    above = ABOVE * spread
    if not place.leads:
        above += STAGGER * spread * (1 if place.bracket.template.seed % 2 else -1)
    bad_luck = KNOWN if any(walk.lucky is not None for walk in answered) else RARE
    return Start(rungs.nearest(centre + above), centre, spread, taught, leads=place.leads, bad_luck=bad_luck)


def _predict(places: Sequence[Place], place: Place, known: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """log(total images) from a power law through the pilots, and how far off it may be: Bayesian linear regression with
    the expected exponent as prior. How far single seeds lie from the law is learned as well."""
    x = [math.log(places[j].x) for j, _ in known] if place.bracket.axes.scaled else [0.0]
    y = [log_total for _, log_total in known]
    if len(known) == 1 and place.leads:
        return _scaled(places, place, *known[0])
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    prior, width = _prior(place.bracket)
    prior = prior if place.bracket.counts.fixed == 0 else min(prior, 1.0)
    pull = (SEED_SPREAD / width) ** 2
    sxx = sum((a - mean_x) ** 2 for a in x) + pull
    slope = (sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) + pull * prior) / sxx
    off = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True)) + pull * (slope - prior) ** 2
    variance = (SPREAD_WORTH * SEED_SPREAD**2 + off) / (SPREAD_WORTH + n - 1)
    away = math.log(place.x) - mean_x if place.bracket.axes.scaled else 0.0
    return mean_y + slope * away, math.sqrt(variance * (1 + 1 / n + away**2 / sxx))


def _scaled(places: Sequence[Place], place: Place, j: int, log_total: float) -> tuple[float, float]:
    """The prediction from one other grid size: drawn images grow with the expected exponent, those always present as
    the task has them."""
    growth = place.x / places[j].x
    prior, width = _prior(place.bracket)
    drawn = max(math.exp(log_total) - places[j].bracket.counts.fixed, 0.0) * growth**prior
    spread = math.sqrt(2 * SEED_SPREAD**2 + (width * math.log(growth)) ** 2)
    return math.log(max(place.bracket.counts.fixed + drawn, 0.5)), spread


def _prior(bracket: Bracket) -> tuple[float, float]:
    """The exponent expected beforehand, and how sure that is."""
    return (PRIOR_EXPONENT, PRIOR_WIDTH) if bracket.axes.is_usual else (UNKNOWN_EXPONENT, UNKNOWN_WIDTH)


def _blind(place: Place) -> int:
    """Start of a first bracket: images always present are expected to be nearly enough; without any, two thirds of the
    way from the lowest to the highest count in log."""
    if place.bracket.counts.fixed > 0:
        return 0
    logs = place.rungs.logs
    return place.rungs.nearest(logs[0] + (logs[-1] - logs[0]) * 2 / 3)
