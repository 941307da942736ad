"""Made rows of generators and of the runs that they need, for tests of what is said of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.generator_verdicts import Verdict
from analysis.measures.circuits import APART, PAIRS
from analysis.objectives import NAMES, Answer
from orchestrator.searches import Rows
from orchestrator.store import make_row
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.settings import REAL
from trainables.generative.shapes import COMPOSITIONS, bits_of, levels, seen_of
from trainables.generative.tiers import generator
from trainables.needs import Tasks
from trainables.spec import RunSpec, Scalar

LOOKS = 10
GOOD = {"unseen_codes_111": 0.0, "unseen_pairs_111": 0.1, "unseen_images_111": 0.4}
Curve = float | Sequence[float]


def spec_of(family: str, tokenizer: str, seed: int = 0, **settings: Scalar) -> RunSpec:
    fields = {name: settings.pop(name) for name in ("max_steps",) if name in settings}
    return generator("smoke", seed, {"decoder": family, "encoding": tokenizer, **settings}, **{"max_steps": 1000, **fields})


def curve(shares: Curve) -> list[float]:
    return [shares] * LOOKS if isinstance(shares, float) else list(shares)


def generator_row(
    spec: RunSpec, seen: Curve = 1.0, level1: Curve = 1.0, level2: Curve = 1.0, oracle2: Curve | None = None, **about: Any
) -> dict[str, Any]:
    """A generator whose shares are these, by both judges; at level 2 those of the oracle and of both may be others. One of real
    pictures has the probe alone."""
    shares = {"seen": curve(seen), "level1": curve(level1), "level2": curve(level2)}
    by_oracle = {**shares, "level2": curve(level2 if oracle2 is None else oracle2)}
    far = levels(bits_of(COMPOSITIONS), bits_of(seen_of(spec.holdout))).tolist()
    found: dict[str, list[float]] = {}
    for judge, of in {"probe": shares, "oracle": by_oracle, "both": by_oracle}.items():
        found |= {f"{judge}_{level}": of[level] for level in shares}
        found |= {f"{judge}_{word}": of[list(shares)[min(level, 2)]] for word, level in zip(COMPOSITIONS, far, strict=True)}
    agree = {
        level: [1 - abs(a - b) for a, b in zip(shares[level], by_oracle[level], strict=True)] for level in shares
    }
    found |= {f"agree_{level}": share for level, share in agree.items()}
    if spec.dataset in REAL:
        found = {name: shares for name, shares in found.items() if not name.startswith(("oracle", "agree"))}
    about = {"status": "passed", "reason": "budget", "steps": 1000, "seconds": 60.0} | about
    at = [100 * (look + 1) for look in range(LOOKS)]
    parents = Tasks(GeneratorTask()).parents(spec)
    row = make_row(
        spec, task_version=GeneratorTask.version, fixed_count=0, curve_step=at, curve_loss=at, curve_accuracy=at,
        curve_error=at, curve_summary=found, parents=parents, **about,
    )  # fmt: skip
    return {**row}


def parent_rows(spec: RunSpec, read: float = 1.0, reconstructed: float = 1.0) -> list[dict[str, Any]]:
    """The probe and the tokenizer of a generator."""
    return [{**row} for row in _parent_rows(spec, read, reconstructed)]


@functools.cache
def _parent_rows(spec: RunSpec, read: float, reconstructed: float) -> list[dict[str, Any]]:
    tasks = Tasks(GeneratorTask())
    curves = {"probe": {"read_least": [0.5, read]}, "tokenizer": {"probe_least": [reconstructed], "oracle_least": [1.0]}}
    if spec.dataset in REAL:
        del curves["tokenizer"]["oracle_least"]
    return [
        {
            **make_row(
                parent, task_version=tasks.version(parent), fixed_count=0, status="passed", reason="budget",
                curve_step=list(range(len(next(iter(curves[name].values()))))), curve_summary=curves[name],
                parents=tasks.parents(parent) or None,
            )
        }
        for name, parent in tasks.needs(spec).items()
    ]  # fmt: skip


def storable(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Made rows as a store takes them: all of their curves have a number for each step."""
    curves = ("curve_loss", "curve_accuracy", "curve_error")
    return [{**row, **dict.fromkeys(curves, [0.0] * len(row["curve_step"]))} for row in rows]


def answer_of(
    rows: Sequence[Mapping[str, Any]],
    measured: Mapping[str, float] | None = GOOD,
    names: Mapping[str, str] = NAMES,
    study: str = "objectives",
    own: Mapping[str, Mapping[str, float]] | None = None,
    **gates: float,
) -> Answer:
    """The answer from rows of generators, with parents that are as `gates` says; `measured` of their tokenizers and, by key,
    `own` of themselves."""
    index = Rows([*rows, *(parent for row in rows for parent in parent_rows(RunSpec.from_dict(row), **gates))])
    coverage = {row["parents"]["tokenizer"]: measured for row in rows if measured is not None}
    return Answer.of(rows, index.get, {**coverage, **(own or {})}, names, {"store": "results"}, study)


def seeds(spec: RunSpec, count: int = 3, first: int = 0) -> list[RunSpec]:
    return [dataclasses.replace(spec, seed=first + seed) for seed in range(count)]


DIT_VAE, DIT, MASKGIT = spec_of("dit", "vae"), spec_of("dit", "vq"), spec_of("maskgit", "vq")
GIVT, MAR = spec_of("givt", "vq"), spec_of("mar", "vq")


def rows_of(**level2: Curve) -> list[dict[str, Any]]:
    """Three seeds of each setting with this share at level 2, or such curves."""
    specs = {"vae": DIT_VAE, "dit": DIT, "maskgit": MASKGIT, "givt": GIVT, "mar": MAR}
    return [generator_row(spec, level2=shares) for name, shares in level2.items() for spec in seeds(specs[name])]


def told_less(**level2: Curve) -> list[dict[str, Any]]:
    """Three seeds of dit on vq for each conditioning with this share at level 2; those of `quantised` differ."""
    specs = {name: seeds(spec_of("dit", "vq", conditioning=name)) for name in level2}
    apart = {name: (0.0, 0.1, 0.0) if name == "quantised" else (0.0,) * 3 for name in level2}
    return [
        generator_row(spec, level2=share + more if isinstance(share, float) else share)
        for name, share in level2.items()
        for spec, more in zip(specs[name], apart[name], strict=True)
    ]


def verdict(claim: str, rows: Sequence[Any], **about: Any) -> Verdict:
    """The only one of a claim."""
    [found] = answer_of(rows, **about).verdicts_of(claim)
    return found


def with_jepa(one: Curve, three: Curve, seen: Curve = 1.0, depth: int = 2) -> list[dict[str, Any]]:
    """Three seeds of maskgit with the loss at one layer and at three, if it has as many."""
    return [
        generator_row(spec, level2=level2, seen=seen)
        for level2, layers in ((one, "one"), (three, "three"))
        for spec in seeds(spec_of("maskgit", "vq", jepa=0.6, jepa_layers=layers, depth=depth))
    ]


TOLD_LESS = {"quantised": 0.5, "dropout": 0.5, "both": 0.2}
"""Shares at level 2 by conditioning, for `told_less`."""
INSIDE = {
    **{f"frechet_{word}": 2.0 for word in COMPOSITIONS}, "overlap_1": 0.5, "overlap_2": 0.5,
    **{f"jaccard_{a}_{b}": 0.4 for a, b in PAIRS}, **{f"jaccard_{a}_{b}": 0.3 for a, b in APART["two_apart"]},
}  # fmt: skip
"""What was measured of a network without the loss; one with it has these times a number."""


def helped(
    level2: float = 0.3, seen: float = 1.0, dit: float = 0.9, **times: float
) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Rows of maskgit at level 2 of 0.1, with the loss at `level2`, and of dit; and what was measured of them."""
    with_loss = [row for row in with_jepa(0.2, level2, seen) if row["options"].get("jepa_layers", "three") == "three"]
    rows = [*rows_of(maskgit=0.1, dit=dit), *with_loss]
    inside = {row["key"]: INSIDE for row in rows}
    changed = {name: value * times.get(name, times.get(name.split("_")[0], 1.0)) for name, value in INSIDE.items()}
    return rows, inside | {row["key"]: changed for row in with_loss}
