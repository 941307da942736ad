"""The claims about visual generative models (arXiv 2510.03075) in the order of the page, and the figures beside them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis.generator_claims import CLAIMS, is_side
from analysis.generator_verdicts import FAIL, GATES_OF_RUNS, NOT_ENOUGH, PASS, Verdict
from analysis.generators import LEAST_SEEDS, Run
from analysis.report import findings
from analysis.report.findings import Claim, Comparison, Finding, Picture
from analysis.report.missing import Lacks, alike, of_generators
from analysis.report.pictures import pictures
from analysis.results import Results
from orchestrator.searches import Rows
from orchestrator.searches.grid import GridSearch
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.generative.tiers import CHOOSING
from trainables.needs import Tasks
from trainables.settings import listed
from trainables.spec import RunSpec
from trainables.task import load_task

GATES = (
    "Medians over the seeds of means over the last fifth of the looks. A picture counts if probe and oracle read all its "
    "factors right. Seen compositions: at least {seen}. The judges read at least 0.99 of real pictures and 0.97 of "
    "reconstructions of each composition. On VQ, at most 0.01 of the tokens of unseen figures have a code that is not seen, "
    "and at most 0.2 one that is not seen at their place."
)
Figures = Mapping[str, Sequence[str]]
"""By a measure, the names of the figures that are drawn of it."""
MOST = 12
"""Comparisons of a claim that the page tells."""
WORDS = {PASS: findings.REPRODUCED, FAIL: findings.NOT_REPRODUCED, NOT_ENOUGH: findings.NOT_ENOUGH}
OPTIONS = {"masking-is-not-it": "--families dit,maskgit,givt,mar"}
"""What the study has to be told beside its usual settings, to train all that a claim compares."""
OF_LOWEST_SEED = ("samples", "reconstructions")
"""Figures that show one seed of each setting."""


def judged(claim: str, figures: Figures, results: Results) -> Finding:
    """The verdict of a study of generators on a claim, and figures of what it is about. All comparisons are told, on the page
    MOST of them. Where several have a verdict, it counts if they have the same, and else depends; figures, and what is said to
    be missing, are of the one with most runs that count."""
    found = results.generators.verdicts_of(claim)
    counting = {run.key for run in results.generators.runs if _may_count(run)}

    def rank(one: Verdict) -> tuple[bool, int]:
        return one.verdict != NOT_ENOUGH, len(counting.intersection(one.runs))

    shown = max(found, key=rank)
    verdicts = {one.verdict for one in found} - {NOT_ENOUGH}
    words = {WORDS[one] for one in verdicts} or {findings.NOT_ENOUGH}
    seen, brief = _told(found), ""
    if len(found) > MOST:
        first = sorted(found, key=rank, reverse=True)[:MOST]
        brief = f"{_told(first)}; and {len(found) - MOST:,} further comparisons, which claims.json has"
    if len(verdicts) > 1:
        seen, brief = (f"it depends on the settings; {text}" if text else "" for text in (seen, brief))
    is_whole = not (shown.few or shown.missing)
    drawn = beside(claim, set(shown.runs), figures, results, is_whole)
    if not is_whole:
        drawn = [replace(one, alt=f"{one.alt}; of all runs that there are, as too few count for a verdict") for one in drawn]
    return Finding(
        [],
        seen,
        pictures=drawn,
        lacks=None if verdicts else _lacks(shown, results),
        given=words.pop() if len(words) == 1 else findings.DEPENDS,
        counted=shown.seeds,
        comparisons=[Comparison(one.about, WORDS[one.verdict], one.numbers, one.seeds) for one in found],
        shown=brief,
        unmet=sorted(frozenset().union(*(one.unmet for one in found))),
    )


def _told(found: Sequence[Verdict]) -> str:
    """All comparisons in a line."""
    return "; ".join(f"{one.about}: {WORDS[one.verdict]}: {one.told}" if one.about else one.told for one in found)


def _may_count(run: Run) -> bool:
    """Whether claims go by a run, or would if a gate were known."""
    return run.counts and not any(run.own_gates[gate] is False for gate in GATES_OF_RUNS)


def _lacks(shown: Verdict, results: Results) -> Lacks | None:
    """What trains the runs for want of which a comparison has no verdict; None if no run tells with which settings."""
    answer, claim, keys = results.generators, CLAIMS[shown.claim], {*shown.runs}
    told = _told([shown])
    runs = [run for run in answer.runs if run.key in keys]
    measure = shlex.join(["python", "-m", "analysis.measure", "--store", results.store])
    if shown.few and any(run.needs_coverage for run in runs):
        told += f"; gate 3 is known after: {measure}"
    elif any(math.isnan(claim.measured(run)) for run in runs):
        told += f"; runs are measured by: {measure}"
    if not shown.missing:
        return Lacks([], told)
    if not runs:
        return None
    of = {spec: [run for run in some if _may_count(run)] for spec, some in answer.by_setting.items()}
    there = [spec for spec, some in answer.by_setting.items() if not keys.isdisjoint(run.key for run in some)]
    most = max(there, key=lambda spec: len(of[spec]))
    sides: list[RunSpec | None] = [*there]
    if not shown.few:
        sides = [_of_side(side, most) for side in claim.sides.values()]
    known = [spec for spec in sides if spec is not None] or [most]
    lost = [{run.spec.seed for run in answer.by_setting.get(spec, ()) if not _may_count(run)} for spec in known]
    if claim.is_paired:
        lost = [set[int]().union(*lost)] * len(known)
    rows = Rows(run for run in results.runs if run["task"] in (GENERATOR, TOKENIZER, PROBE))
    first = min((run.spec.seed for run in runs if run.spec.seed <= CHOOSING - LEAST_SEEDS), default=0)
    asked = [_seeds(spec, first, of_spec, rows) for spec, of_spec in zip(known, lost, strict=True)]
    short = [(spec, count) for spec, (count, is_short) in zip(known, asked, strict=True) if is_short]
    if len(known) == len(sides):
        if not short:
            return Lacks([], told)
        if (lacks := of_generators(short, first, claim.study)) is not None:
            return lacks
    words = [*shlex.split(_command(shown.claim)), "--seeds", str(max(count for count, _ in asked))]
    return Lacks([words], "the settings of the missing runs")


def _of_side(side: Mapping[str, Any], spec: RunSpec) -> RunSpec | None:
    """A run of a side of a claim that is otherwise like this one; None if the claim does not say which."""
    if is_side(side, spec):
        return spec
    return None if any(map(callable, side.values())) else alike(spec, side)


def _seeds(spec: RunSpec, first: int, lost: Collection[int], rows: Rows) -> tuple[int, bool]:
    """How many seeds of a setting its study is to be asked for, from the first one on, so that enough are left beside the lost
    ones, or all that count; and whether runs of these are missing. The study takes further seeds in place of those whose probe
    or tokenizer has missed its gate."""
    task = load_task(GENERATOR)
    needs = Tasks(task)
    for count in range(LEAST_SEEDS, CHOOSING - first + 1):
        asked = [replace(spec, seed=seed) for seed in range(first, first + count)]
        search = GridSearch(asked, task.version, min(count, CHOOSING - first - count), needs)
        left = [one for one in search.asked(rows) if one.seed not in lost]
        if len(left) >= LEAST_SEEDS:
            break
    return count, any(search.row(rows, one) is None for one in left)


def beside(claim: str, keys: Collection[str], figures: Figures, results: Results, is_whole: bool = True) -> list[Picture]:
    """Figures of what was measured of the generators of these keys, and of the tokenizers whose tokens they learned.

    Args:
        is_whole: whether enough of them count. Then only seeds that were measured on all sides are drawn, if there are some,
            and captions say of how many, where not all were.
    """
    own = [run for run in results.runs if run["key"] in keys]
    tokenizers = {(run.get("parents") or {}).get("tokenizer") for run in own}
    found: list[Picture] = []
    for measure, names in figures.items():
        of = tokenizers if measure == "tokens" else keys
        table = results.table[results.table["key"].isin(of) & (results.table["measure"] == measure)]
        if measure != "tokens" and is_whole:
            table = _on_all_sides(table, own)
        for name in names:
            drawn = _coverage(keys, results) if name == "coverage" else table
            for one in pictures(claim, drawn, name):
                whose = ""
                if name in OF_LOWEST_SEED:
                    whose = _of_seeds(drawn, results.runs)
                elif is_whole:
                    counted = {run["seed"] for run in own if name != "coverage" or run["encoding"] == "vq"}
                    whose = _of_all(drawn, counted, [] if name == "coverage" else own)
                found.append(replace(one, alt=one.alt + whose))
    return found


def _sides(keys: Collection[str], runs: Sequence[Mapping[str, Any]]) -> list[set[int]]:
    """The seeds of those of these runs that have these keys, by setting."""
    seeds: dict[RunSpec, set[int]] = {}
    for run in runs:
        if run["key"] in keys:
            seeds.setdefault(replace(RunSpec.from_dict(run), seed=0), set()).add(run["seed"])
    return list(seeds.values())


def _on_all_sides(table: pd.DataFrame, runs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Of the seeds that were measured in every setting of which some were; all of them if there are no such seeds."""
    sides = _sides(set(table["key"]), runs)
    shared = set.intersection(*sides) if sides else set[int]()
    return table[table["seed"].isin(shared)] if shared else table


def _of_seeds(table: pd.DataFrame, runs: Sequence[Mapping[str, Any]]) -> str:
    """Which seeds a figure shows of those of a table, where it shows the lowest of each setting."""
    seeds = sorted({min(side) for side in _sides(set(table["key"]), runs)})
    return f"; of seed{'s' * (len(seeds) > 1)} {listed(seeds)}"


def _of_all(table: pd.DataFrame, counted: Collection[int], runs: Sequence[Mapping[str, Any]]) -> str:
    """Of how many of the seeds that count a figure is; empty if it is of all."""
    seeds = {*table["seed"]}
    apart = any(side != seeds for side in _sides(set(table["key"]), runs))
    if len(seeds) == len(counted) and not apart:
        return ""
    return f"; of {len(seeds)} of {len(counted)} seeds that count" + ", not the same on all sides" * apart


def _coverage(keys: Collection[str], results: Results) -> pd.DataFrame:
    """What gate 3 is judged by, once for each tokenizer and pool of pictures: what was measured of a generator of these keys,
    else of its tokenizer."""
    table = results.table[results.table["quantity"].astype(str).str.startswith("unseen_")]
    own = set(table["key"])
    chosen: dict[tuple[str, int], str] = {}
    for run in results.runs:
        if run["key"] in keys and (tokenizer := (run.get("parents") or {}).get("tokenizer")):
            pool = tokenizer, run["data_count"]
            chosen[pool] = run["key"] if run["key"] in own else chosen.get(pool, tokenizer)
    return table[table["key"].isin(chosen.values())]


def _command(name: str) -> str:
    return f"python -m orchestrator.{CLAIMS[name].study} {OPTIONS.get(name, '')}".strip()


def _claim(name: str, **figures: tuple[str, ...]) -> Claim:
    claim = CLAIMS[name]
    paired = " A seed counts if it counts on all sides." * (claim.is_paired and len(claim.sides) > 1)
    rule = f"{claim.rule_text} {GATES.format(seen=claim.least_seen)}{paired}"
    return Claim(name, claim.says, "", _command(name), rule, partial(judged, name, figures))


GENERATIVE_CLAIMS = (
    _claim("tokenizer-does-not-decide", generated=("samples",), tokens=("reconstructions",)),
    _claim("continuous-beats-categorical", generated=("samples", "retrieval"), tokens=("coverage",)),
    _claim("masking-is-not-it", generated=("samples",)),
    _claim("categorical-forgets"),
    _claim("abrupt-on-vq"),
    _claim("conditioning", generated=("conditioning", "samples")),
    _claim("dropout-hurts", generated=("conditioning",)),
    _claim("quantised-unstable", generated=("conditioning",)),
    _claim("jepa-helps", generated=("samples",)),
    _claim("jepa-many-layers", generated=("samples",)),
    _claim("jepa-heads", circuits=("overlap",)),
    _claim("jepa-circuits", circuits=("jaccard",)),
)
"""In the order of the page."""
