"""The claims about visual generative models (arXiv 2510.03075) in the order of the page, and the figures beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from analysis.generator_claims import CLAIMS, FAIL, NOT_ENOUGH, PASS
from analysis.generators import MEASURE, coverage_of
from analysis.objectives import Answer
from analysis.report import findings
from analysis.report.findings import Claim, Finding, Picture, choose
from analysis.report.pictures import pictures
from analysis.results import Results
from trainables.generative.chain import GENERATOR

OBJECTIVES_STUDY = "python -m orchestrator.objectives"
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "dit on vae": {"task": GENERATOR, "decoder": "dit", "encoding": "vae"},
    "dit on vq": {"task": GENERATOR, "decoder": "dit", "encoding": "vq"},
    "maskgit on vq": {"task": GENERATOR, "decoder": "maskgit", "encoding": "vq"},
    "givt on vq": {"task": GENERATOR, "decoder": "givt", "encoding": "vq"},
    "mar on vq": {"task": GENERATOR, "decoder": "mar", "encoding": "vq"},
}
GATES = (
    "Medians over the seeds of means over the last fifth of the looks. A picture counts if probe and oracle read all its "
    "factors right. Seen compositions: at least 0.85. The judges read at least 0.99 of real pictures and 0.97 of "
    "reconstructions of each composition. On VQ, at most 0.01 of the tokens of unseen figures have a code that is not seen, "
    "and at most 0.2 one that is not seen at their place."
)
WORDS = {PASS: findings.REPRODUCED, FAIL: findings.NOT_REPRODUCED, NOT_ENOUGH: findings.NOT_ENOUGH}


def judged(claim: str, samples: Sequence[str], tokens: Sequence[str], results: Results) -> Finding:
    """The verdict of the objectives study on a claim, and figures of what it is about. Of several comparisons the first
    that has a verdict counts, and all are told."""
    measured = results.table[results.table["measure"] == MEASURE].dropna(subset="value").to_dict("records")
    answer = Answer.of_store(results.runs, coverage_of(measured), {})
    found = answer.verdicts_of(claim)
    decided = next((one for one in found if one.verdict != NOT_ENOUGH), found[0])
    told = [f"{one.about}: {WORDS[one.verdict]}: {one.told}" if one.about else one.told for one in found]
    sides = [f"{family} on {kind}" for family, kind in CLAIMS[claim].sides]
    counted = [run for run in answer.runs if run.counts and not run.is_real]
    seeds = [{run.spec.seed for run in counted if run.about == side} for side in sides]
    drawn = beside(claim, sides, samples, tokens, results)
    return Finding([], "; ".join(told), pictures=drawn, given=WORDS[decided.verdict], counted=min(map(len, seeds)))


def beside(
    claim: str, families: Sequence[str], samples: Sequence[str], tokens: Sequence[str], results: Results
) -> list[Picture]:
    """Figures of the generators of these families, of the setting that most of them share, and of the tokenizers whose tokens
    they learned."""
    chosen = choose(results.table, {name: FAMILIES[name] for name in families}).table
    if chosen.empty:
        return []
    keys = set(chosen["key"])
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
    return Claim(name, claim.says, "", OBJECTIVES_STUDY, f"{claim.rule_text} {GATES}", partial(judged, name, samples, tokens))


GENERATIVE_CLAIMS = (
    _claim("tokenizer-does-not-decide", ("samples",), ("reconstructions",)),
    _claim("continuous-beats-categorical", ("samples", "retrieval"), ("coverage",)),
    _claim("masking-is-not-it", ("samples",)),
    _claim("categorical-forgets"),
    _claim("abrupt-on-vq"),
)
"""In the order of the page."""
