"""What is known of a generator: its curves, and the numbers behind its gates (arXiv 2510.03075)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from analysis.digits import told_apart
from orchestrator.searches import Row, ending
from trainables.generative.judge import JUDGES
from trainables.generative.oracle import read_by_templates
from trainables.generative.settings import REAL
from trainables.generative.shapes import COMPOSITIONS, ShapeSettings, bundles, level_of_each
from trainables.generative.tiers import CHOOSING
from trainables.settings import value_of
from trainables.spec import RunSpec, Scalar
from trainables.training.precision import one_thread

LEVELS = {"seen": "seen", "level1": "level 1", "level2": "level 2"}
"""What curves call the levels, and what users read."""
LAST = 5
"""Numbers at the end are means over the last fifth of the looks."""
LEAST_SEEDS = 3
"""A claim, of whichever paper, is not judged on fewer."""
LEAST_SEEN = 0.85
"""What is unseen is not looked at while a model draws fewer than this of the seen compositions."""
LEAST_SEEN_TOLD_LESS = 0.7
"""What claims ask for in its place, of models of which some are told less than all."""
LEAST_RISE = 0.1
"""A share that ends below this has not risen, so nothing is said of when it did."""
ROUNDING = 1e-6
"""Shares are kept in single precision: one of 0.95 may be 0.94999999."""
READ = 0.99
"""Gate 1: least share of real pictures of each composition that both judges read."""
RECONSTRUCTED = 0.97
"""Gate 2: least share of reconstructions of each composition that each judge reads."""
UNSEEN_CODES, UNSEEN_PAIRS = 0.01, 0.2
"""Gate 3: largest shares of the foreground of unseen pictures whose codes, and whose codes at their place, no seen picture
has."""
AGREEMENT = 0.95
"""Gate 4: least share of the generated pictures of which both judges say the same."""
COMPOSES = 0.6
"""Gate 5: least share at level 2 of a dit on the same tokens. Without it nothing is known of the objective."""
BOUNDS: Mapping[str, float] = {
    "probe_real": READ, "oracle_real": READ, "probe_tokens": RECONSTRUCTED, "oracle_tokens": RECONSTRUCTED,
    "unseen_codes": UNSEEN_CODES, "unseen_pairs": UNSEEN_PAIRS, "agree": AGREEMENT, "dit_level2": COMPOSES,
}  # fmt: skip
"""By column, what its gate asks for: at least this, and of gate 3 at most."""
GATES: Mapping[int, tuple[str, tuple[str, ...]]] = {
    1: ("both judges read real pictures", ("probe_real", "oracle_real", "linear_real")),
    2: ("both judges read reconstructions", ("probe_tokens", "oracle_tokens")),
    3: ("codes of unseen pictures are known", ("unseen_codes", "unseen_pairs", "unseen_images")),
    4: ("the judges agree", ("agree",)),
    5: ("dit on the same codes composes", ("dit_level2",)),
}
"""What each gate asks for, and the columns that it looks at."""
READINGS = (*GATES[1][1], *GATES[2][1])
"""How well the judges, and a linear classifier beside them, read what a generator stands on."""
OF_CODES = (3, 5)
"""Gates that are asked of runs on codes alone."""
MEASURE = "tokens"
"""The measure that gate 3 asks for, see `python -m analysis.measure`. Where `generated` was taken of a generator, its own
pictures decide, which may be fewer than those of its tokenizer."""
OF_GENERATORS: Mapping[str, tuple[str, ...]] = {
    "objectives": ("generated",), "conditioning": ("generated",), "jepa": ("generated", "circuits"), "signal": ("generated",),
}  # fmt: skip
"""Those of generators themselves that a study looks at."""
OF_PARENTS = ("linear", MEASURE)
"""Those of probes and tokenizers that all studies look at."""
MEASURES = (*OF_PARENTS, *dict.fromkeys(name for names in OF_GENERATORS.values() for name in names))
"""All that is looked at."""
OF_CLAIMS: Mapping[str, tuple[str, ...]] = {"jepa": ("frechet_", "overlap_")}
"""How the numbers begin that claims of a study ask of every generator, one of each measure."""

Measured = Mapping[str, Mapping[str, float]]
"""By the key of a run, the numbers that were measured of it, by name; those of a layer as `overlap_2`."""
Find = Callable[[str], Row | None]


class Peak(NamedTuple):
    """The largest share of a curve, and where it is."""

    share: float
    step: float


@dataclass(frozen=True)
class Run:
    """One generator: its curves, and what it stands on. Numbers that are not known are NaN."""

    spec: RunSpec
    key: str
    status: str
    steps: int
    at: np.ndarray
    """The steps (looks,) at which it was looked at."""
    curves: Mapping[str, np.ndarray]
    """Shares (looks,) by name, as `trainables.generative.judge.curves` gives them."""
    probe_real: float
    """The least share of real pictures of a composition that the probe reads."""
    linear_real: float
    """The same of a linear classifier beside it, which no gate asks for."""
    probe_tokens: float
    """The least share of reconstructions of a composition that the probe reads; then the same of the oracle."""
    oracle_tokens: float
    unseen: tuple[float, float, float]
    """Of the compositions that are farthest from the seen ones: the shares of foreground tokens whose code, and whose code at
    their place, no seen picture has, and the share of pictures with such a token."""
    tokenizer: str
    """The key of its run."""
    own: Mapping[str, float]
    """The numbers that were measured of it, by name."""

    @classmethod
    def of(cls, row: Row, find: Find, measured: Measured) -> Run:
        """From the row of a generator.

        Args:
            find: gives the row of a run that it needs, by key, if there is one.
        """
        spec, parents = RunSpec.from_dict(row), row.get("parents") or {}
        probe, tokenizer = (find(parents.get(name, "")) for name in ("probe", "tokenizer"))
        of_tokenizer, own = (measured.get(key, {}) for key in (parents.get("tokenizer", ""), row["key"]))
        curves = {name: np.asarray(curve, float) for name, curve in (row["curve_summary"] or {}).items()}
        return cls(
            spec=spec,
            key=row["key"],
            status=ending(row),
            steps=row["steps"] or 0,
            at=np.asarray(row["curve_step"], float),
            curves=curves,
            probe_real=last_look(probe, "read_least"),
            linear_real=measured.get(parents.get("probe", ""), {}).get("linear_least", math.nan),
            probe_tokens=last_look(tokenizer, "probe_least"),
            oracle_tokens=last_look(tokenizer, "oracle_least"),
            unseen=_unseen(spec, {**of_tokenizer, **own}),
            tokenizer=parents.get("tokenizer", ""),
            own=own,
        )

    @property
    def is_real(self) -> bool:
        """Whether its pictures are real ones, which only the probe reads."""
        return self.spec.dataset in REAL

    @cached_property
    def oracle_real(self) -> float:
        """The same of the oracle; NaN of real pictures, which it does not know."""
        return math.nan if self.is_real else oracle_reads(figures_of(self.spec), self.spec.N)

    @property
    def counts(self) -> bool:
        """Whether it was trained to its end, at a seed by which claims are judged."""
        return self.status == "finished" and self.spec.seed < CHOOSING

    def final(self, level: str, judge: str) -> float:
        """The mean share of a level over the last fifth of the looks. `judge` may be `agree`."""
        curve = self.curves.get(f"{judge}_{level}", np.array([]))
        return float(np.mean(curve[-max(1, round(len(curve) / LAST)) :])) if len(curve) else math.nan

    def number(self, name: str) -> float:
        """What was measured of it; NaN if it was not."""
        return self.own.get(name, math.nan)

    @property
    def frechet(self) -> float:
        """The Frechet distance of what it draws and of real pictures, mean over the compositions."""
        return float(np.mean([self.number(f"frechet_{word}") for word in COMPOSITIONS]))

    def peak(self, level: str, judge: str, whole: bool = False) -> Peak:
        """The largest share of a level, and its step.

        Args:
            whole: also among looks at which too little of the seen compositions was drawn.
        """
        curve = self._curve(level, judge) if whole else self._looked_at(level, judge)
        if not np.isfinite(curve).any():
            return Peak(math.nan, math.nan)
        best = int(np.nanargmax(curve))
        return Peak(float(curve[best]), float(self.at[best]))

    def rise(self, judge: str) -> tuple[float, float]:
        """The first steps at which a tenth and nine tenths of level 2 at the end were there. What was there at the first look
        that counts may have begun before: then the step is that of the first look from which on it was always there."""
        final = self.final("level2", judge)
        if not final >= LEAST_RISE:
            return math.nan, math.nan
        return self._since(judge, 0.1 * final), self._since(judge, 0.9 * final)

    def _since(self, judge: str, share: float) -> float:
        """The first step at which there was such a share of level 2; see `rise`."""
        counts, is_there = (curve >= share for curve in (self._looked_at("level2", judge), self._curve("level2", judge)))
        if not counts.any():
            return math.nan
        first = int(np.argmax(counts))
        while first > 0 and is_there[first - 1]:
            first -= 1
        return float(self.at[first])

    def _curve(self, level: str, judge: str) -> np.ndarray:
        """NaN where it is not known."""
        return self.curves.get(f"{judge}_{level}", np.full(len(self.at), math.nan))

    def _looked_at(self, level: str, judge: str) -> np.ndarray:
        """A curve; of what is unseen, NaN while too little of the seen compositions is drawn."""
        curve = self._curve(level, judge)
        seen = self.curves.get(f"{judge}_seen")
        return curve if level == "seen" or seen is None else np.where(seen >= LEAST_SEEN, curve, math.nan)

    @cached_property
    def agreement(self) -> float:
        """The share of generated pictures of which both judges say the same, of the level where it is least."""
        found = [self.final(level, "agree") for level in LEVELS if f"agree_{level}" in self.curves]
        return float(np.min(found)) if found else math.nan

    @property
    def needs_coverage(self) -> bool:
        """Whether MEASURE is still to be taken of its tokenizer; it is not taken of one of real pictures."""
        return self.spec.encoding == "vq" and not self.is_real and math.isnan(self.unseen[0])

    @cached_property
    def own_gates(self) -> dict[int, bool | None]:
        """Whether each gate is met, as far as this is known without a dit on the same tokens."""
        return self.gates(math.nan)

    def gates(self, dit: float) -> dict[int, bool | None]:
        """Whether each gate is met; None where its number is not known.

        Args:
            dit: the share at level 2 of a dit on the same tokens.
        """
        found = {
            1: at_least(READ, self.probe_real, self.oracle_real),
            2: at_least(RECONSTRUCTED, self.probe_tokens, self.oracle_tokens),
            3: at_least(0, UNSEEN_CODES - self.unseen[0], UNSEEN_PAIRS - self.unseen[1]),
            4: at_least(AGREEMENT, self.agreement),
            5: at_least(COMPOSES, dit),
        }
        return {**found, 3: True, 5: True} if self.spec.encoding != "vq" else found

    def record(self, names: Mapping[str, str], dit: float) -> dict[str, Any]:
        """A row of the table; `names` are the settings that it shows, and what they are called."""
        found: dict[str, Any] = {told: known_value(self.spec, name) for name, told in names.items()}
        found |= {"seed": self.spec.seed, "status": self.status, "steps": self.steps}
        for level in LEVELS:
            for judge in JUDGES:
                found[f"{level}_{judge}"] = self.final(level, judge)
                found[f"{level}_{judge}_peak"] = self.peak(level, judge).share
        found |= {"agree": self.agreement} | {f"agree_{level}": self.final(level, "agree") for level in LEVELS}
        found |= dict(zip(("rise_from", "rise_to"), self.rise("both"), strict=True))
        found |= {name: getattr(self, name) for name in READINGS}
        found |= dict(zip(("unseen_codes", "unseen_pairs", "unseen_images"), self.unseen, strict=True))
        found |= {"dit_level2": dit} | {f"gate_{gate}": _word(met) for gate, met in self.gates(dit).items()}
        return found | {"key": self.key}


@lru_cache(maxsize=512)
def oracle_reads(figures: ShapeSettings, N: int, each: int = 128) -> float:
    """The least share of fresh real pictures of a composition that the oracle reads right."""
    with one_thread():
        made = bundles(figures, N, COMPOSITIONS, each, 0, "oracle judged")
        right = (read_by_templates(figures, made.images.flatten(0, 1)).bits == made.bits.flatten(0, 1)).all(1)
    return float(right.view(len(COMPOSITIONS), each).float().mean(1).min())


def is_share(column: str) -> bool:
    """Whether a column of a table of generators holds shares of what is drawn or read."""
    return column.startswith(("seen_", "level", "agree", "unseen_")) or column in (*READINGS, "dit_level2")


def known_value(spec: RunSpec, name: str) -> Scalar | None:
    """The value of a setting; None if a run has no such setting, as those of another version may have others."""
    try:
        return value_of(spec, name)
    except KeyError:
        return None


def is_readable(row: Row) -> bool:
    """Whether a row of a generator has what one can have: a row may come from anywhere."""
    try:
        run = Run.of(row, lambda key: None, {})
        figures_of(run.spec)
    except (KeyError, TypeError, ValueError):
        return False
    return not any(((curve < 0) | (curve > 1)).any() for curve in run.curves.values())


def numbers_of(rows: Iterable[Mapping[str, Any]]) -> Measured:
    """The numbers of MEASURES, from rows of a `MeasureTable`."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["measure"] in MEASURES and row["value"] is not None:
            layer = row.get("layer")
            name = row["quantity"] if layer is None or math.isnan(layer) else f"{row['quantity']}_{int(layer)}"
            found.setdefault(row["key"], {})[name] = row["value"]
    return found


def at_least(bound: float, *numbers: float) -> bool | None:
    """Whether all numbers are as large as a bound, but for ROUNDING; None if one is not known."""
    if any(map(math.isnan, (bound, *numbers))):
        return None
    return min(numbers) >= bound - ROUNDING


def at_most(bound: float, *numbers: float) -> bool | None:
    """Whether all numbers are as small as a bound; see `at_least`."""
    return at_least(-bound, *(-number for number in numbers))


def against(bound: float, number: float, meets: Callable[[float, float], bool | None] = at_least, percent: bool = False) -> str:
    """A number with two digits, or with up to four as long as it misses a bound and would read like it."""
    formats = (".0%", ".1%", ".2%") if percent else (".2f", ".3f", ".4f")
    return told_apart(number, bound, formats) if meets(bound, number) is False else format(number, formats[0])


def _word(met: bool | None) -> str:
    return "" if met is None else "met" if met else "not met"


def last_look(row: Row | None, name: str) -> float:
    """The last number of a curve of a run's own; NaN if there is none."""
    curve = ((row or {}).get("curve_summary") or {}).get(name)
    return math.nan if not curve or curve[-1] is None else float(curve[-1])


def figures_of(spec: RunSpec) -> ShapeSettings:
    """How the figures of a run look."""
    options: dict[str, Any] = dict(spec.options)
    return ShapeSettings(**{one.name: options[one.name] for one in dataclasses.fields(ShapeSettings) if one.name in options})


def _unseen(spec: RunSpec, measured: Mapping[str, float]) -> tuple[float, float, float]:
    """The numbers of gate 3, of the composition where they are largest among those that are farthest from the seen ones."""
    far = level_of_each(spec.holdout)
    words = [word for word, level in far.items() if level == max(far.values())]
    found = [[measured.get(f"unseen_{of}_{word}", math.nan) for word in words] for of in ("codes", "pairs", "images")]
    codes, pairs, images = (float(np.max(shares)) for shares in found)
    return codes, pairs, images
