"""The claims about visual generative models (arXiv 2510.03075) in the order of the page, and the figures beside them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import pandas as pd

from analysis.generator_claims import CLAIMS, FAIL, NOT_ENOUGH, PASS
from analysis.generators import MEASURE, coverage_of
from analysis.objectives import Answer
from analysis.report import findings
from analysis.report.findings import Claim, Finding, Picture
from analysis.report.pictures import pictures
from analysis.results import Results

GATES = (
    "Medians over the seeds of means over the last fifth of the looks. A picture counts if probe and oracle read all its "
    "factors right. Seen compositions: at least {seen}. The judges read at least 0.99 of real pictures and 0.97 of "
    "reconstructions of each composition. On VQ, at most 0.01 of the tokens of unseen figures have a code that is not seen, "
    "and at most 0.2 one that is not seen at their place."
)
WORDS = {PASS: findings.REPRODUCED, FAIL: findings.NOT_REPRODUCED, NOT_ENOUGH: findings.NOT_ENOUGH}


def judged(claim: str, samples: Sequence[str], tokens: Sequence[str], results: Results) -> Finding:
    """The verdict of the objectives study on a claim, and figures of what it is about. Of several comparisons the first
    that has a verdict and most runs counts, and all are told."""
    measured = results.table[results.table["measure"] == MEASURE].dropna(subset="value").to_dict("records")
    answer = Answer.of_store(results.runs, coverage_of(measured), {})
    found = answer.verdicts_of(claim)
    decided = max(found, key=lambda one: (one.verdict != NOT_ENOUGH, len(one.runs)))
    told = [f"{one.about}: {WORDS[one.verdict]}: {one.told}" if one.about else one.told for one in found]
    counted = [run for run in answer.runs if run.counts and not run.is_real]
    seeds = [
        {run.spec.seed for run in counted if all(run.spec.value(n) == v for n, v in side.items())}
        for side in CLAIMS[claim].sides.values()
    ]
    drawn = beside(claim, set(decided.runs), samples, tokens, results)
    return Finding([], "; ".join(told), pictures=drawn, given=WORDS[decided.verdict], counted=min(map(len, seeds)))


def beside(claim: str, keys: Collection[str], samples: Sequence[str], tokens: Sequence[str], results: Results) -> list[Picture]:
    """Figures of the generators of these keys, and of the tokenizers whose tokens they learned."""
    chosen = results.table[results.table["key"].isin(keys)]
    parents = {(run.get("parents") or {}).get("tokenizer") for run in results.runs if run["key"] in keys}
    of_tokens = results.table[results.table["key"].isin(parents) & (results.table["measure"] == "tokens")]
    generated = chosen[chosen["measure"] == "generated"]
    return [
        *pictures(claim, generated, *samples),
        *(one for name in tokens for one in pictures(claim, _covered(of_tokens) if name == "coverage" else of_tokens, name)),
    ]


def _covered(table: pd.DataFrame) -> pd.DataFrame:
    """The tokenizers with codes."""
    return table[table["encoding"] == "vq"]


def _claim(name: str, samples: Sequence[str] = (), tokens: Sequence[str] = ()) -> Claim:
    claim = CLAIMS[name]
    rule = f"{claim.rule_text} {GATES.format(seen=claim.least_seen)}"
    return Claim(name, claim.says, "", f"python -m orchestrator.{claim.study}", rule, partial(judged, name, samples, tokens))


GENERATIVE_CLAIMS = (
    _claim("tokenizer-does-not-decide", ("samples",), ("reconstructions",)),
    _claim("continuous-beats-categorical", ("samples", "retrieval"), ("coverage",)),
    _claim("masking-is-not-it", ("samples",)),
    _claim("categorical-forgets"),
    _claim("abrupt-on-vq"),
    _claim("conditioning", ("conditioning", "samples")),
    _claim("dropout-hurts", ("conditioning",)),
    _claim("quantised-unstable", ("conditioning",)),
)
"""In the order of the page."""
