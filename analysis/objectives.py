"""The answer of the studies of generators: how well each composes, by two judges, which gates its runs meet, and what follows
for the claims of arXiv 2510.03075.

A claim compares settings that are equal but for what it is about.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.generator_claims import CLAIMS, Claim, Side, is_side, lacking
from analysis.generator_verdicts import NO_LEVEL, NOT_ENOUGH, Verdict, judged, lacks_level
from analysis.generators import (
    BOUNDS,
    GATES,
    OF_CLAIMS,
    OF_CODES,
    Find,
    Measured,
    Run,
    against,
    at_least,
    at_most,
    is_readable,
    known_value,
)
from orchestrator.command.files import plain, records
from orchestrator.searches import Row
from trainables.generative.chain import GENERATOR
from trainables.generative.settings import OF_WHICH, meaningless
from trainables.spec import RunSpec

NAMES = {"decoder": "family", "encoding": "tokenizer"}
"""Settings that are shown in any case, and what they are called."""
COUNTS = ("seed", "steps", "rise_from", "rise_to")
"""Columns of whole numbers."""
ONE_JUDGE = "real pictures: shares are by the probe alone, as the oracle does not know them; no claim has a verdict on them"


def _order(row: Row) -> tuple[Any, ...]:
    """Where a run stands among others, whenever it was trained."""
    fields = (row[name] for name in ("dataset", "decoder", "encoding", "depth", "width", "max_steps", "data_count"))
    return *fields, sorted(map(str, row["options"].items())), row["seed"], row["key"]


def set_aside(rows: Iterable[Row]) -> list[str]:
    """A line about the generators of a store that cannot be read, so that nothing is said of them; none if all can."""
    count = sum(row["task"] == GENERATOR and not is_readable(row) for row in rows)
    told = "1 run of a generator has" if count == 1 else f"{count:,} runs of generators have"
    return [f"{told} settings or curves that none can have, and no claim counts {'it' if count == 1 else 'them'}"] * bool(count)


@dataclass(frozen=True)
class Answer:
    """What a study of generators found; any part of it may still be missing."""

    runs: Sequence[Run]
    names: Mapping[str, str]
    """The settings that differ between runs, or are shown in any case, and what they are called."""
    settings: Mapping[str, Any]
    study: str
    """Whose claims are judged."""
    replaced: Mapping[RunSpec, RunSpec] = field(default_factory=dict)
    """Runs that were asked for and could not be trained, as what they need missed its gate, and those in their place."""

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        find: Find,
        measured: Measured,
        names: Mapping[str, str],
        settings: Mapping[str, Any],
        study: str = "objectives",
        replaced: Mapping[RunSpec, RunSpec] | None = None,
    ) -> Answer:
        """From the rows of generators; see `Run.of`."""
        return cls([Run.of(row, find, measured) for row in rows], names, settings, study, replaced or {})

    @classmethod
    def of_store(cls, rows: Sequence[Row], measured: Measured, settings: Mapping[str, Any]) -> Answer:
        """From all rows of a store, whichever studies asked for them, and in whichever order they came; see `set_aside`."""
        found = sorted((row for row in rows if row["task"] == GENERATOR and is_readable(row)), key=_order)
        specs = [RunSpec.from_dict(row) for row in found]
        carried = dict.fromkeys(name for spec in specs for name in (*spec.to_dict(), *dict(spec.options)))
        names = [name for name in carried if name not in ("seed", "options", "task")]
        varied = {name: name.replace("_", " ") for name in names if _differs(specs, name)}
        return cls.of(found, {row["key"]: row for row in rows}.get, measured, {**varied, **NAMES}, settings)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each run, see `Run.record`."""
        return pd.DataFrame([run.record(self.names, self.dit(run)) for run in self.runs])

    @cached_property
    def by_setting(self) -> dict[RunSpec, list[Run]]:
        """Runs that differ in nothing but the seed, in their order; the key has seed 0."""
        groups: dict[RunSpec, list[Run]] = {}
        for run in self.runs:
            groups.setdefault(dataclasses.replace(run.spec, seed=0), []).append(run)
        return groups

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Of every claim of the study, one for each comparison that the settings allow."""
        return [verdict for name, claim in CLAIMS.items() if claim.study == self.study for verdict in self.verdicts_of(name)]

    def dit(self, run: Run) -> float:
        """The share at level 2 of a dit on the same tokens, trained for as many steps; the best one, if there are several. A
        tokenizer has the seed of its generators."""
        same = self._dits.get((run.tokenizer, run.spec.max_steps), ())
        return max((of.final("level2", "both") for of in same), default=math.nan)

    @cached_property
    def _dits(self) -> dict[tuple[str, int], list[Run]]:
        found: dict[tuple[str, int], list[Run]] = {}
        for run in self.runs:
            if run.spec.decoder == "dit" and run.tokenizer and run.status == "finished":
                found.setdefault((run.tokenizer, run.spec.max_steps), []).append(run)
        return found

    def label(self, spec: RunSpec, names: Collection[str] | None = None) -> str:
        """A setting in words, such as `dit on vq, codes 64`: in what it may differ from all others, or in these names."""
        asked = self.names if names is None else names
        without = {*_meaningless(spec), *NAMES}
        values = {self.names[name]: known_value(spec, name) for name in asked if name not in without}
        more = [f"{told} {value}" for told, value in values.items() if value not in (None, "")]
        return ", ".join([f"{spec.decoder} on {spec.encoding}", *more])

    def lines(self) -> list[str]:
        """A line for each gate and each claim, and for seeds in the place of others."""
        if not self.runs:
            return []
        of_probe = [ONE_JUDGE] if any(run.is_real for run in self.runs) else []
        gates = [self._gate_line(gate) for gate in GATES]
        return [*gates, *self._seeds_lines(), *of_probe, *(verdict.line for verdict in self.verdicts)]

    def _seeds_lines(self) -> Iterator[str]:
        of: dict[tuple[int, int], list[str]] = {}
        for lost, taken in self.replaced.items():
            of.setdefault((lost.seed, taken.seed), []).append(self.label(taken))
        for (lost_seed, seed), labels in of.items():
            settings = labels[0] if len(labels) == 1 else f"{len(labels)} settings"
            yield f"seed {seed} is in the place of seed {lost_seed} ({settings}), whose probe or tokenizer misses its gate"

    @property
    def lacks(self) -> str:
        """What is not known, as it has not been measured; empty if all is."""
        coverage = any(run.needs_coverage for run in self.runs)
        asked = OF_CLAIMS.get(self.study, ())
        counted = [run for run in self.runs if run.counts and not run.is_real]
        inside = any(not any(name.startswith(one) for name in run.own) for run in counted for one in asked)
        return "gate 3" * coverage + " and " * (coverage and inside) + "what claims ask of the networks" * inside

    def to_json(self) -> dict[str, Any]:
        """Everything but the curves in plain values; what is not known is null."""
        verdicts = [
            {name: getattr(one, name) for name in ("claim", "verdict", "told", "about", "numbers", "luck")}
            | {"number": CLAIMS[one.claim].number, "rule": CLAIMS[one.claim].rule_text}
            for one in self.verdicts
        ]
        runs = records(self.table, COUNTS) if self.runs else []
        replaced = [
            {told: known_value(lost, name) for name, told in self.names.items()} | {"seed": lost.seed, "by": taken.seed}
            for lost, taken in self.replaced.items()
        ]
        found: dict[str, Any] = plain(
            {"settings": self.settings, "verdicts": verdicts, "replaced": replaced, "runs": runs}
        )
        return found

    def _gate_line(self, gate: int) -> str:
        asked = [run for run in self.runs if run.spec.encoding == "vq" or gate not in OF_CODES]
        met = [run.gates(self.dit(run))[gate] for run in asked]
        name, columns = GATES[gate]
        if gate == 5 and asked and all(lacks_level(run, "level2") for run in asked):
            return f"gate {gate}, {name}: {NO_LEVEL.format('level 2')}"
        told = f"gate {gate}, {name}: met by {met.count(True)} of {len(met)} runs"
        told += f", not met by {met.count(False)}" * (False in met)
        told += f", not known of {met.count(None)}" * (None in met)
        found = self.table[self.table["key"].isin([run.key for run in asked])][list(columns)]
        worst, meets = (found.max(), at_most) if gate == 3 else (found.min(), at_least)
        shown = {str(name): against(BOUNDS.get(str(name), math.nan), number, meets) for name, number in worst.dropna().items()}
        numbers = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in shown.items())
        return told + f" ({numbers} at worst)" * bool(numbers)

    def verdicts_of(self, name: str) -> list[Verdict]:
        """Of a claim, one for each comparison that the settings allow, at least one."""
        claim = CLAIMS[name]
        whole = [spec for spec in self.by_setting if spec.stop == "budget"]  # one that ends early counts on no side
        found = {side: [spec for spec in whole if is_side(chosen, spec)] for side, chosen in claim.sides.items()}
        if missing := [side for side, specs in found.items() if not specs]:
            lacks = (lacking(side, claim.sides[side], whole) for side in missing)
            told = f"there are no runs of {' or of '.join(lacks)}"
            return [Verdict(name, NOT_ENOUGH, told, runs=self._most(found), missing=True)]
        first, *others = found.values()
        pairs: list[tuple[RunSpec, ...]] = [(spec,) for spec in first]
        for more in others:
            alike: dict[tuple[Any, ...], list[RunSpec]] = {}
            for spec in more:
                alike.setdefault(_besides(spec, claim.ignored), []).append(spec)
            pairs = [
                (*pair, spec)
                for pair in pairs
                for spec in alike.get(_besides(pair[0], claim.ignored), ())
                if all(_agree(one, spec, claim) for one in pair)
            ]
        if not pairs:
            told = f"no runs of {' and of '.join(found)} are alike in all other settings"
            return [Verdict(name, NOT_ENOUGH, told, runs=self._most(found), missing=True)]
        compared = dict.fromkeys(spec for pair in pairs for spec in pair)
        names = [name for name in self.names if _differs(compared, name)]
        labels = {spec: self.label(spec, names) for spec in compared}
        of_label: dict[str, tuple[RunSpec, ...]] = {}
        for pair in pairs:
            label = " against ".join(labels[spec] for spec in pair)
            of_label[label] = max((pair, of_label.get(label, pair)), key=self._rank)  # alike but for keys
        verdicts = []
        for label, pair in of_label.items():
            one = judged(name, [Side(side, self.by_setting[spec]) for side, spec in zip(found, pair, strict=True)])
            about = label if len(of_label) > 1 else ""
            verdicts.append(dataclasses.replace(one, runs=one.runs or self._keys(pair), about=about))
        return verdicts

    def _rank(self, pair: Sequence[RunSpec]) -> tuple[Any, ...]:
        """How many runs count of the side that has fewest, and of all; and their keys, so that no order decides."""
        counted = [sum(run.counts for run in self.by_setting[spec]) for spec in pair]
        return min(counted), sum(counted), sorted(self._keys(pair))

    def _most(self, sides: Mapping[str, Sequence[RunSpec]]) -> tuple[str, ...]:
        """The runs of that setting of each side that has most, of one split: of the one of which most sides have some."""

        def of(split: str) -> list[RunSpec]:
            own = ([spec for spec in specs if spec.holdout == split] for specs in sides.values())
            return [max(specs, key=lambda spec: len(self.by_setting[spec])) for specs in own if specs]

        chosen = [of(split) for split in dict.fromkeys(spec.holdout for specs in sides.values() for spec in specs)]
        most = max(chosen, key=lambda specs: (len(specs), len(self._keys(specs))), default=[])
        return self._keys(most)

    def _keys(self, specs: Iterable[RunSpec]) -> tuple[str, ...]:
        """The runs of these settings."""
        return tuple(run.key for spec in specs for run in self.by_setting[spec])


def _differs(specs: Iterable[RunSpec], name: str) -> bool:
    """Whether runs differ in a setting; in their content, whether those of one data set do."""
    found = {(spec.dataset if name == "content" else "", known_value(spec, name)) for spec in specs}
    return len(found) > len({of for of, _ in found})


def _besides(spec: RunSpec, ignored: Sequence[str]) -> tuple[Any, ...]:
    """All that a run is, but for its seed and some settings."""
    fields = {**spec.to_dict(), **dict(spec.options)}
    return tuple(sorted((name, value) for name, value in fields.items() if name not in (*ignored, "seed", "options")))


def _agree(one: RunSpec, other: RunSpec, claim: Claim) -> bool:
    """Whether runs of two sides are equal in what a claim lets differ and means something to both, as rounds to two objectives
    that hide tokens."""
    apart = claim.named | _meaningless(one) | _meaningless(other)
    return all(known_value(one, name) == known_value(other, name) for name in claim.ignored if name not in apart)


def _meaningless(spec: RunSpec) -> set[str]:
    """The settings that mean nothing to a run."""
    return meaningless({name: known_value(spec, name) for name in OF_WHICH})
