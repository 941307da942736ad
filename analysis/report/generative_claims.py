"""The claims about visual generative models (arXiv 2510.03075) in the order of the page, and the figures beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.generator_claims import CLAIMS
from analysis.generator_verdicts import FAIL, NOT_ENOUGH, PASS, Verdict
from analysis.report import findings
from analysis.report.findings import Claim, Comparison, Finding, Picture
from analysis.report.missing import Lacks
from analysis.report.pictures import pictures
from analysis.results import Results

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


def judged(claim: str, figures: Figures, results: Results) -> Finding:
    """The verdict of a study of generators on a claim, and figures of what it is about. All comparisons are told, on the page
    MOST of them. Where several have a verdict, it counts if they have the same, and else depends; figures are of the one with
    most runs."""
    found = results.generators.verdicts_of(claim)
    shown = max(found, key=lambda one: (one.verdict != NOT_ENOUGH, len(one.runs)))
    verdicts = {one.verdict for one in found} - {NOT_ENOUGH}
    words = {WORDS[one] for one in verdicts} or {findings.NOT_ENOUGH}
    seen, brief = _told(found), ""
    if len(found) > MOST:
        first = sorted(found, key=lambda one: one.verdict == NOT_ENOUGH)[:MOST]
        brief = f"{_told(first)}; and {len(found) - MOST:,} further comparisons, which claims.json has"
    if len(verdicts) > 1:
        seen, brief = (f"it depends on the settings; {text}" if text else "" for text in (seen, brief))
    drawn = beside(claim, set(shown.runs), figures, results)
    if shown.few or shown.missing:
        drawn = [replace(one, alt=f"{one.alt}; of all runs that there are, as too few count for a verdict") for one in drawn]
    return Finding(
        [],
        seen,
        pictures=drawn,
        lacks=None if not verdicts and any(one.missing for one in found) else Lacks([], brief or seen),
        given=words.pop() if len(words) == 1 else findings.DEPENDS,
        counted=shown.seeds,
        comparisons=[Comparison(one.about, WORDS[one.verdict], one.numbers, one.seeds) for one in found],
        shown=brief,
        unmet=sorted(frozenset().union(*(one.unmet for one in found))),
    )


def _told(found: Sequence[Verdict]) -> str:
    """All comparisons in a line."""
    return "; ".join(f"{one.about}: {WORDS[one.verdict]}: {one.told}" if one.about else one.told for one in found)


def beside(claim: str, keys: Collection[str], figures: Figures, results: Results) -> list[Picture]:
    """Figures of what was measured of the generators of these keys, and of the tokenizers whose tokens they learned."""
    tokenizers = {(run.get("parents") or {}).get("tokenizer") for run in results.runs if run["key"] in keys}
    found: list[Picture] = []
    for measure, names in figures.items():
        of = tokenizers if measure == "tokens" else keys
        table = results.table[results.table["key"].isin(of) & (results.table["measure"] == measure)]
        for name in names:
            found += pictures(claim, _coverage(keys, results) if name == "coverage" else table, name)
    return found


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


def _claim(name: str, **figures: tuple[str, ...]) -> Claim:
    claim = CLAIMS[name]
    paired = " A seed counts if it counts on all sides." * (claim.is_paired and len(claim.sides) > 1)
    rule = f"{claim.rule_text} {GATES.format(seen=claim.least_seen)}{paired}"
    command = f"python -m orchestrator.{claim.study} {OPTIONS.get(name, '')}".strip()
    return Claim(name, claim.says, "", command, rule, partial(judged, name, figures))


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
