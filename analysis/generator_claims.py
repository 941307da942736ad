"""The claims about visual generative models (arXiv 2510.03075): which settings each compares, and when it holds.

A claim is judged by medians over seeds. It has no verdict where a gate or a seed is missing, nor where the verdicts by probe
and by oracle differ and these often say different things of a picture. Bounds that the paper does not give are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analysis.digits import told_apart
from analysis.generators import (
    COMPOSES,
    LEAST_RISE,
    LEAST_SEEDS,
    LEAST_SEEN,
    LEAST_SEEN_TOLD_LESS,
    LEVELS,
    Run,
    against,
    at_least,
    at_most,
    known_value,
)
from analysis.measures.circuits import APART, PAIRS
from trainables.generative.jepa import layers_of
from trainables.generative.settings import JEPA, OF_CONDITIONING, OF_HEAD, OF_KIND
from trainables.generative.shapes import level_of_each
from trainables.spec import RunSpec, Scalar


class Found(NamedTuple):
    """What a claim's rule finds by one judge: whether it holds, or None where that cannot be said; and why."""

    holds: bool | None
    told: str
    numbers: Mapping[str, float]
    unmet: frozenset[int] = frozenset()
    """The gates that are not met."""
    left_out: frozenset[str] = frozenset()
    """The keys of the runs that it is not found by, as nothing is known of what the rule asks of them."""


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one setting that a claim may count, and what they are called."""

    name: str
    runs: Sequence[Run]

    def median(self, number: Callable[[Run], float]) -> float:
        """NaN if a run has no such number."""
        return float(np.median([number(run) for run in self.runs]))

    def final(self, level: str, judge: str) -> float:
        return self.median(lambda run: run.final(level, judge))

    def measured(self, name: str) -> float:
        """What `analysis.measure` found; NaN if a run was not measured."""
        return self.median(lambda run: run.number(name))

    def spread(self, level: str, judge: str) -> float:
        """The largest share at the end less the smallest; of more runs it is larger."""
        return float(np.ptp([run.final(level, judge) for run in self.runs]))

    def known(self, number: Callable[[Run], float]) -> tuple[Side, frozenset[str]]:
        """The runs of which a number is known; and the keys of the others."""
        others = frozenset(run.key for run in self.runs if math.isnan(number(run)))
        return Side(self.name, [run for run in self.runs if run.key not in others]), others


SideOf = Mapping[str, Scalar | Callable[[RunSpec], bool]]
"""By the names of settings, their values, or what says of a run whether it has the right one."""
Rule = Callable[[Mapping[str, Side], str], Found]


class Claim(NamedTuple):
    """A claim of the paper, and when it holds."""

    number: int
    says: str
    """In a sentence."""
    rule_text: str
    needed: str
    """The same in a few words, beside what was found."""
    sides: Mapping[str, SideOf]
    """What each of the settings that it compares is, by what it is called."""
    ignored: tuple[str, ...]
    """In what else than the seed they may differ."""
    level: str
    """The level that it is about."""
    rule: Rule
    study: str = "objectives"
    """Which trains the runs."""
    least_seen: float = LEAST_SEEN
    """Nothing is said while one of the settings draws fewer of the seen compositions."""
    says_alike: bool = False
    """Whether it says of its sides that they are alike."""
    measured: Callable[[Run], float] = lambda run: 0.0
    """NaN of a run of which it does not know what it goes by, as `analysis.measure` has not found it. Such seeds are left out
    while three remain."""

    @property
    def named(self) -> set[str]:
        """The settings that say which side a run is of."""
        return {name for side in self.sides.values() for name in side}

    @property
    def is_paired(self) -> bool:
        """Whether only seeds count that count on all sides: where these have the same tokens, and a tokenizer has a seed."""
        return "encoding" not in self.ignored

    @property
    def tells_apart(self) -> bool:
        """Whether it says of two sides that they differ, so that runs may be swapped between them to see what luck gives."""
        return len(self.sides) == 2 and not self.says_alike


def is_side(side: SideOf, spec: RunSpec) -> bool:
    """Whether a run is of this setting."""
    return not _apart(side, spec)


def _apart(side: SideOf, spec: RunSpec) -> list[str]:
    """The settings in which a run is not of this one."""

    def agrees(name: str, wanted: Scalar | Callable[[RunSpec], bool]) -> bool:
        return wanted(spec) if callable(wanted) else known_value(spec, name) == wanted

    return [name for name, wanted in side.items() if not agrees(name, wanted)]


def _nearest(side: SideOf, specs: Iterable[RunSpec]) -> list[str]:
    """In what those of these runs differ least from a side that are of its family, on its tokens; empty if there are none."""
    apart = (_apart(side, spec) for spec in specs)
    return min((names for names in apart if not {"decoder", "encoding"} & {*names}), key=len, default=[])


def _words(side: SideOf, names: Iterable[str]) -> list[str]:
    """What a side asks of these settings, where it asks for a value."""
    asked = {name: side[name] for name in names if not callable(side[name])}
    return [f"{name} {value}" if value else f"without {name}" for name, value in asked.items()]


def lacking(name: str, side: SideOf, specs: Iterable[RunSpec]) -> str:
    """What a side is called of which there are no runs. Where there are some but for other settings, these are told, too."""
    more = [words for words in _words(side, _nearest(side, specs)) if words.split()[-1] not in name.split()]
    return f"{name} ({', '.join(more)})" if more else name


def outside(study: str, specs: Iterable[RunSpec], given: Collection[str]) -> list[str]:
    """Notes of those of the runs that no claim of a study is about, for settings that were given for all of them."""
    sides = [side for claim in CLAIMS.values() if claim.study == study for side in claim.sides.values()]
    notes: dict[str, None] = {}
    for spec in specs:
        if any(is_side(side, spec) for side in sides):
            continue
        near = [(names, side) for side in sides if (names := _nearest(side, [spec])) and {*names} <= {*given}]
        if near:
            names, side = min(near, key=lambda one: len(one[0]))
            has, asked = (", ".join(words) for words in ([f"{n} {known_value(spec, n)}" for n in names], _words(side, names)))
            notes[f"no claim of this study is about runs with {has}, as claims ask for: {asked}"] = None
    return [*notes]


def out_of_reach(study: str, specs: Sequence[RunSpec]) -> list[str]:
    """Notes of the levels of the split that the runs share: which claims of a study can have a verdict if none is level 2, and
    what is of a level that no claim is about."""
    levels = level_of_each(specs[0].holdout)
    notes = []
    if 2 not in levels.values():
        left = [
            f"claim {claim.number}, {name}," for name, claim in CLAIMS.items()
            if claim.study == study and [*LEVELS].index(claim.level) in levels.values()
            and all(any(is_side(side, spec) for spec in specs) for side in claim.sides.values())
        ]  # fmt: skip
        which = f"only {' '.join(left)}" if left else "no claim that is about these runs"
        notes.append(f"no composition is of level 2 in this split: {which} can have a verdict")
    if far := [word for word, level in levels.items() if level > 2]:
        notes.append(f"{', '.join(far)} is of level 3: tables and claims are of levels 1 and 2, figures of all")
    return notes


def _below(bound: float, number: float) -> bool:
    """Whether a number is smaller than a bound, and not by rounding alone."""
    return at_least(bound, number) is False


def _compared(a: float, b: float, formats: Sequence[str] = (".2f", ".3f", ".4f", ".5f", ".6f")) -> tuple[str, str]:
    """Two numbers that are compared with each other: they read alike only if they are."""
    if at_least(a, b) and at_most(a, b):
        b = a
    return told_apart(a, b, formats), told_apart(b, a, formats)


def _change(
    change: float, bound: float, meets: Callable[[float, float], bool | None], words: tuple[str, str], percent: bool = False
) -> str:
    """How much one number is above another, beside a bound that this has to meet, or how much below; in these words."""
    if change < 0:
        return f"{against(math.nan, -change, percent=percent)} {words[1]}"
    return f"{against(bound, change, meets, percent)} {words[0]}"


def tokenizer_does_not_decide(sides: Mapping[str, Side], judge: str) -> Found:
    vae, vq = (sides[name].final("level2", judge) for name in ("dit on vae", "dit on vq"))
    apart = against(0.15, abs(vae - vq), at_most)
    told = f"level 2 {against(COMPOSES, vae)} on vae, {against(COMPOSES, vq)} on vq, {apart} apart"
    return Found(at_most(0.15, abs(vae - vq)) and at_least(COMPOSES, vae, vq), told, {"vae": vae, "vq": vq})


def continuous_beats_categorical(sides: Mapping[str, Side], judge: str) -> Found:
    dit, maskgit = (sides[name].final("level2", judge) for name in ("dit on vq", "maskgit on vq"))
    numbers = {"dit": dit, "maskgit": maskgit}
    if not at_least(COMPOSES, dit):
        return _no_control(dit, numbers)
    less = _change(dit - maskgit, 0.4, at_least, ("less", "more"))
    told = f"level 2 {dit:.2f} of dit, {against(0.25, maskgit, at_most)} of maskgit, {less}"
    return Found(at_most(0.25, maskgit) and at_least(0.4, dit - maskgit), told, numbers)


def masking_is_not_it(sides: Mapping[str, Side], judge: str) -> Found:
    numbers = {family: sides[f"{family} on vq"].final("level2", judge) for family in ("dit", "maskgit", "givt", "mar")}
    dit, maskgit, givt, mar = numbers.values()
    if not at_least(COMPOSES, dit):
        return _no_control(dit, numbers)
    told = f"level 2 {givt:.2f} of givt, {mar:.2f} of mar, {maskgit:.2f} of maskgit"
    told += ", so " + " and ".join(_change(one - maskgit, 0.3, at_least, ("more", "less")) for one in (givt, mar))
    return Found(at_least(0.3, givt - maskgit, mar - maskgit), told, numbers)


def categorical_forgets(sides: Mapping[str, Side], judge: str) -> Found:
    (every,) = sides.values()
    side, others = every.known(lambda run: run.peak("level1", judge).share)
    lacks = f"level 1 of {side.name} is at no look that counts with {len(others)} of {len(every.runs)} seeds"
    if len(side.runs) < LEAST_SEEDS:
        return Found(None, f"{lacks}, so nothing is said of its peak", {})
    (lost, when, forget), (in_all, when_in_all, forget_in_all) = (_fall(side, judge, whole) for whole in (False, True))
    numbers = {"lost": lost, "peak_at": when, "forget": float(forget)}
    told = (
        f"level 1 ends {against(0.1, lost)} under its peak, {against(0.5, when, at_most, percent=True)} on the way, and with "
        f"{forget} of {len(side.runs)} seeds at least 0.1 under one in the first half"
    )
    told += f"; {lacks}, which are left out" * bool(others)
    holds, would_hold = (2 * count > len(side.runs) for count in (forget, forget_in_all))
    if holds != would_hold:
        at = against(0.5, when_in_all, at_most, percent=True)
        more = f"{against(0.1, in_all)} under one at {at} ({forget_in_all} seeds)"
        why = "where too little of what was seen is drawn, so the peak that counts may not be the highest"
        return Found(None, f"{told}; by all looks it ends {more}, {why}", numbers, left_out=others)
    return Found(holds, told, numbers, left_out=others)


def _fall(side: Side, judge: str, whole: bool) -> tuple[float, float, int]:
    """How far level 1 ends under its peak, and how far on the way that is, in the median; and how many seeds end at least 0.1
    under one in the first half. See `Run.peak`."""
    peaks = [run.peak("level1", judge, whole) for run in side.runs]
    lost = [peak.share - run.final("level1", judge) for peak, run in zip(peaks, side.runs, strict=True)]
    when = [peak.step / run.spec.max_steps for peak, run in zip(peaks, side.runs, strict=True)]
    forget = sum(bool(at_least(0.1, a) and at_most(0.5, b)) for a, b in zip(lost, when, strict=True))
    return float(np.median(lost)), float(np.median(when)), forget


def abrupt_on_vq(sides: Mapping[str, Side], judge: str) -> Found:
    def took(run: Run) -> float:
        first, last = run.rise(judge)
        return (last - first) / run.spec.max_steps

    both, without, others = zip(*(_risen(sides[name], judge) for name in ("dit on vae", "dit on vq")), strict=True)
    left_out = frozenset[str]().union(*others)
    for side, why in zip(both, without, strict=True):
        if len(side.runs) < LEAST_SEEDS:
            return Found(None, f"{why}, so nothing is said of its rise", {})
    vae, vq = (side.median(took) for side in both)
    numbers = {"vae": vae, "vq": vq}
    vq_told, vae_told = _compared(vq, vae, (".1%", ".2%", ".3%", ".4%"))
    told = f"level 2 rises within {vq_told} of the steps on vq, {vae_told} on vae"
    told += "".join(f"; {why}, which are left out" for why in without if why)
    look = min(side.median(lambda run: float(run.at[0]) / run.spec.max_steps if len(run.at) else math.nan) for side in both)
    if at_least(look, abs(vae - vq)) is False:
        return Found(None, f"{told}; they are less than one look apart, which is {look:.1%}", numbers, left_out=left_out)
    return Found(vq < vae, told, numbers, left_out=left_out)


def _risen(side: Side, judge: str) -> tuple[Side, str, frozenset[str]]:
    """The runs of which it is known when level 2 rose; how many others there are and why, if there are any; and their keys."""
    rose, others = side.known(lambda run: run.rise(judge)[1])
    under = sum(run.final("level2", judge) < LEAST_RISE for run in side.runs)
    ends = f"ends under {LEAST_RISE}" + ", or is at no look that counts," * (under < len(others))
    return rose, f"level 2 of {side.name} {ends} with {len(others)} of {len(side.runs)} seeds" * bool(others), others


def _no_control(dit: float, numbers: Mapping[str, float]) -> Found:
    told = f"gate 5 is not met: dit on the same tokens has level 2 {against(COMPOSES, dit)}, under {COMPOSES}"
    return Found(None, told, numbers, frozenset({5}))


NOTHING_TO_LOSE = f"told all, it ends under {LEAST_RISE}, so there is nothing to lose"


def conditioning_decides(sides: Mapping[str, Side], judge: str) -> Found:
    full, both = (sides[name].final("level2", judge) for name in ("dit, full", "dit, both"))
    told = f"level 2 {against(LEAST_RISE, full)} if all is told, {against(0.2, both, at_most)} with classes and dropout"
    told += f", {_change(full - both, 0.4, at_least, ('less', 'more'))}"
    numbers = {"full": full, "both": both}
    if _below(LEAST_RISE, full):
        return Found(None, f"{told}; {NOTHING_TO_LOSE}", numbers)
    return Found(at_least(0.4, full - both) and at_most(0.2, both), told, numbers)


def dropout_hurts(sides: Mapping[str, Side], judge: str) -> Found:
    full, dropout = (sides[name].final("level2", judge) for name in ("dit, full", "dit, dropout"))
    told = f"level 2 {against(LEAST_RISE, full)} if all is told, {dropout:.2f} with dropout"
    told += f", {_change(full - dropout, 0.3, at_least, ('less', 'more'))}"
    numbers = {"full": full, "dropout": dropout}
    if _below(LEAST_RISE, full):
        return Found(None, f"{told}; {NOTHING_TO_LOSE}", numbers)
    return Found(at_least(0.3, full - dropout), told, numbers)


def quantised_unstable(sides: Mapping[str, Side], judge: str) -> Found:
    (full, full_range), (quantised, quantised_range) = (
        (sides[name].final("level2", judge), sides[name].spread("level2", judge)) for name in ("dit, full", "dit, quantised")
    )
    numbers = {"full": full, "full_range": full_range, "quantised": quantised, "quantised_range": quantised_range}
    share, share_of_full = _compared(quantised, full)
    over, over_of_full = _compared(quantised_range, full_range)
    told = f"level 2 {share} over a range of {over} if classes are told, {share_of_full} over {over_of_full} if values are"
    if _below(LEAST_RISE, full) and _below(LEAST_RISE, quantised):
        return Found(None, f"{told}; both end under {LEAST_RISE}, so nothing is said of which is steadier", numbers)
    return Found(at_most(full, quantised) and _below(quantised_range, full_range), told, numbers)


def jepa_helps(sides: Mapping[str, Side], judge: str) -> Found:
    dit = sides["dit"].final("level2", judge)
    (level2, seen, frechet), (level2_jepa, seen_jepa, frechet_jepa) = (
        (side.final("level2", judge), side.final("seen", judge), side.median(lambda run: run.frechet))
        for side in (sides["maskgit"], sides["maskgit with jepa"])
    )
    numbers = {"level2": level2, "level2_jepa": level2_jepa, "seen": seen, "seen_jepa": seen_jepa, "dit": dit}
    numbers |= {"frechet": frechet, "frechet_jepa": frechet_jepa}
    more, lost, farther = level2_jepa - level2, seen - seen_jepa, frechet_jepa / frechet - 1 if frechet else math.inf
    reached, of_dit = _compared(level2_jepa, dit)
    told = (
        f"level 2 {reached} with the loss, {_change(more, 0.15, at_least, ('more', 'less'))} than without ({level2:.2f}), and "
        f"{of_dit} of dit; seen {seen_jepa:.2f}, {_change(lost, 0.05, at_most, ('less', 'more'))} than without ({seen:.2f}); "
        f"Frechet distance {frechet_jepa:.3g}, {_change(farther, 0.1, at_most, ('larger', 'smaller'), percent=True)} than "
        f"without ({frechet:.3g})"
    )
    better = at_least(0.15, more) and _below(dit, level2_jepa)
    return Found(better and at_most(0.05, lost) and at_most(0.1, farther), told, numbers)


def jepa_many_layers(sides: Mapping[str, Side], judge: str) -> Found:
    one, three = (sides[f"maskgit with jepa at {layers}"].final("level2", judge) for layers in ("one layer", "three layers"))
    numbers = {"one": one, "three": three}
    if _below(LEAST_RISE, one) and _below(LEAST_RISE, three):
        of_three, of_one = (against(LEAST_RISE, share) for share in (three, one))
        nothing = f"both end under {LEAST_RISE}, so nothing is said of which helps more"
        return Found(None, f"{_at_layers(of_three, of_one)}; {nothing}", numbers)
    return Found(at_least(one, three), _at_layers(*_compared(three, one)), numbers)


def _at_layers(of_three: str, of_one: str) -> str:
    return f"level 2 {of_three} with the loss at three layers, {of_one} with it at one"


def _blocks(run: Run) -> range:
    return range(1, 1 + run.spec.depth)


def _overlaps(run: Run) -> float:
    """NaN unless the heads of every block are measured."""
    return sum(run.number(f"overlap_{block}") for block in _blocks(run))


def _shared_circuits(run: Run) -> float:
    """NaN unless the circuits of every pair of compositions are measured."""
    return sum(run.number(f"jaccard_{a}_{b}") for a, b in PAIRS)


def jepa_heads(sides: Mapping[str, Side], judge: str) -> Found:
    blocks = _blocks(sides["maskgit"].runs[0])
    overlap, with_jepa = (
        [sides[name].measured(f"overlap_{block}") for block in blocks] for name in ("maskgit", "maskgit with jepa")
    )
    lower = sum(b < a for a, b in zip(overlap, with_jepa, strict=True))
    numbers = {f"overlap_{block}": value for block, value in zip(blocks, overlap, strict=True)}
    numbers |= {f"overlap_{block}_jepa": value for block, value in zip(blocks, with_jepa, strict=True)}
    told = f"heads are less polysemantic in {lower} of {len(blocks)} blocks"
    return Found(lower > len(blocks) / 2, told, numbers)


def jepa_circuits(sides: Mapping[str, Side], judge: str) -> Found:
    shared, with_jepa = (
        {(a, b): sides[name].measured(f"jaccard_{a}_{b}") for a, b in PAIRS} for name in ("maskgit", "maskgit with jepa")
    )
    lower = sum(with_jepa[pair] < shared[pair] for pair in PAIRS)
    near, far = (float(np.mean([shared[pair] for pair in APART[name]])) for name in ("one_apart", "two_apart"))
    numbers = {"lower": float(lower), "one_apart": near, "two_apart": far}
    numbers |= {f"{name}_jepa": float(np.mean([with_jepa[pair] for pair in pairs])) for name, pairs in APART.items()}
    one_apart, two_apart = _compared(near, far)
    told = (
        f"circuits share less in {lower} of {len(PAIRS)} pairs; without the loss they share {one_apart} one factor apart "
        f"and {two_apart} two apart"
    )
    return Found(lower >= 4 and _below(near, far), told, numbers)


def _side(decoder: str, encoding: str) -> dict[str, SideOf]:
    return {f"{decoder} on {encoding}": {"decoder": decoder, "encoding": encoding, "conditioning": "full", "jepa": 0.0}}


def _told(*conditionings: str) -> dict[str, SideOf]:
    return {f"dit, {word}": {"decoder": "dit", "conditioning": word, "jepa": 0.0} for word in conditionings}


def _has_loss(spec: RunSpec) -> bool:
    return bool(known_value(spec, "jepa"))


def _has_layers(count: int) -> Callable[[RunSpec], bool]:
    """Whether the loss of a run is at so many layers: `three` are fewer in a network of few blocks."""

    def has(spec: RunSpec) -> bool:
        try:
            return len(layers_of(str(known_value(spec, "jepa_layers")), spec.depth)) == count
        except ValueError:  # a row may have anything
            return False

    return has


WITHOUT: SideOf = {"decoder": "maskgit", "conditioning": "full", "jepa": 0.0}
WITH: SideOf = {"decoder": "maskgit", "conditioning": "full", "jepa": _has_loss}
BOTH_DITS = _side("dit", "vae") | _side("dit", "vq")
OBJECTIVE = tuple(dict.fromkeys(("decoder", *(name for names in OF_HEAD.values() for name in names if name not in JEPA))))
"""Settings in which runs of different objectives may differ."""
CONDITIONING = ("conditioning", *OF_CONDITIONING["both"])
CLAIMS: Mapping[str, Claim] = {
    "tokenizer-does-not-decide": Claim(
        1,
        "Whether tokens are continuous or codes does not decide whether a diffusion model composes.",
        f"Level 2 of DiT on VAE and of DiT on VQ at most 0.15 apart, both at least {COMPOSES}.",
        f"at most 0.15 apart, both at least {COMPOSES}",
        BOTH_DITS, ("encoding", *OF_KIND["vq"]), "level2", tokenizer_does_not_decide, says_alike=True,
    ),
    "continuous-beats-categorical": Claim(
        2,
        "On the same codes a continuous objective composes where a categorical one does not.",
        f"On the same VQ tokens: level 2 of DiT at least {COMPOSES}, of MaskGIT at most 0.25, and by at least 0.4 lower.",
        "at most 0.25 of maskgit, and 0.4 less than of dit",
        _side("dit", "vq") | _side("maskgit", "vq"), OBJECTIVE, "level2", continuous_beats_categorical,
    ),
    "masking-is-not-it": Claim(
        3,
        "What keeps a categorical objective from composing is not that it masks: masked continuous ones compose.",
        f"On the same VQ tokens, where level 2 of DiT is at least {COMPOSES}: level 2 of GIVT and of MAR at least 0.3 above "
        "that of MaskGIT.",
        "at least 0.3 more of givt and of mar than of maskgit",
        _side("maskgit", "vq") | _side("givt", "vq") | _side("mar", "vq") | _side("dit", "vq"), OBJECTIVE, "level2",
        masking_is_not_it,
    ),
    "categorical-forgets": Claim(
        4,
        "A categorical objective composes early in training, and loses it later.",
        "MaskGIT, with most seeds: level 1 at its peak less that at the end at least 0.1, and the peak is in the first half of "
        "the steps. The peak is of looks that draw enough of the seen compositions; nothing is said if all looks would say "
        "otherwise. Seeds without such a look are left out while three remain.",
        "most seeds",
        _side("maskgit", "vq"), (), "level1", categorical_forgets,
    ),
    "abrupt-on-vq": Claim(
        5,
        "A diffusion model begins to compose more abruptly on codes than on continuous tokens.",
        "Steps in which DiT gets from 10 to 90 % of its level 2 at the end, over the steps trained: fewer on VQ than on VAE. "
        "Less than one look apart decides nothing. A rise that is under way when enough of the seen compositions is drawn "
        "began at the first look from which on it was always there. Seeds whose level 2 ends under 0.1 have not risen, and are "
        "left out while three of a side remain.",
        "fewer steps on vq",
        BOTH_DITS, ("encoding", *OF_KIND["vq"]), "level2", abrupt_on_vq,
    ),
    "conditioning": Claim(
        6,
        "A model that is told classes in place of values, and not always all factors, does not compose.",
        "Level 2 of DiT told classes with dropout at most 0.2, and by at least 0.4 lower than told all. Nothing is said where "
        f"that ends under {LEAST_RISE}.",
        "at most 0.2 with classes and dropout, and 0.4 less than if all is told",
        _told("full", "both"), CONDITIONING, "level2", conditioning_decides, "conditioning", LEAST_SEEN_TOLD_LESS,
    ),
    "dropout-hurts": Claim(
        7,
        "A model that is not always told all factors composes less.",
        f"Level 2 of DiT with dropout by at least 0.3 lower than told all. Nothing is said where that ends under {LEAST_RISE}.",
        "0.3 less with dropout",
        _told("full", "dropout"), CONDITIONING, "level2", dropout_hurts, "conditioning", LEAST_SEEN_TOLD_LESS,
    ),
    "quantised-unstable": Claim(
        8,
        "How well a model composes that is told classes in place of values is a matter of luck.",
        "Level 2 of DiT told classes at most that of one told values, and its range over equally many seeds larger. Nothing is "
        f"said where both end under {LEAST_RISE}.",
        "no more, over a larger range, if classes are told",
        _told("full", "quantised"), CONDITIONING, "level2", quantised_unstable, "conditioning", LEAST_SEEN_TOLD_LESS,
    ),
    "jepa-helps": Claim(
        9,
        "A loss on the inner layers (JEPA) helps a categorical objective to compose, but not as far as a continuous one.",
        "Level 2 of MaskGIT with JEPA by at least 0.15 above that without, and under that of DiT; seen at most 0.05 lower; the "
        "Frechet distance, mean over all compositions, at most a tenth larger.",
        "0.15 more with the loss and still less than of dit, seen at most 0.05 less, the distance at most a tenth larger",
        {"maskgit": WITHOUT, "maskgit with jepa": WITH, "dit": {**WITHOUT, "decoder": "dit"}}, (*OBJECTIVE, *JEPA),
        "level2", jepa_helps, "jepa", measured=lambda run: run.frechet if run.spec.decoder == "maskgit" else 0.0,
    ),
    "jepa-many-layers": Claim(
        10,
        "Such a loss helps more if it is asked of several layers of the network.",
        "Level 2 of MaskGIT with JEPA at three layers at least that with it at one. Nothing is said where both end under "
        f"{LEAST_RISE}.",
        "no less at three layers",
        {
            "maskgit with jepa at one layer": {**WITH, "jepa_layers": _has_layers(1)},
            "maskgit with jepa at three layers": {**WITH, "jepa_layers": _has_layers(3)},
        },
        ("jepa_layers",), "level2", jepa_many_layers, "jepa",
    ),
    "jepa-heads": Claim(
        11,
        "With such a loss heads react to single factors.",
        "Polysemanticity of heads of MaskGIT with JEPA lower than without in more than half of the blocks.",
        "more than half of the blocks",
        {"maskgit": WITHOUT, "maskgit with jepa": WITH}, JEPA, "level2", jepa_heads, "jepa", measured=_overlaps,
    ),
    "jepa-circuits": Claim(
        12,
        "With such a loss compositions are drawn by circuits of their own.",
        "Jaccard index of the circuits of two compositions of MaskGIT with JEPA lower than without in at least 4 of the 6 "
        "pairs of shape and colour; without it, larger for pairs that differ in one factor than in two, as is so in untrained "
        "networks, too.",
        "at least 4 pairs, and more shared one factor apart than two",
        {"maskgit": WITHOUT, "maskgit with jepa": WITH}, JEPA, "level2", jepa_circuits, "jepa", measured=_shared_circuits,
    ),
}  # fmt: skip
"""The claims by name. Levels are medians over seeds of the shares at the end; the share of seen ones
has to be at least `least_seen` beside them, and gates 1 to 3 have to be met."""
