"""What the signal study says of the runs that miss: which stage fails, as far as the run that passes right above tells it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from analysis import generators
from analysis.generators import oracle_reads
from analysis.signal import _lost, _missed, _tell_held_by
from orchestrator.searches.bracket import ThresholdResult
from trainables.generative.judge import BY_FACTOR
from trainables.generative.shapes import ShapeSettings

GOOD = {"probe_real": 1.0, "oracle_real": 1.0, "probe_tokens": 0.98, "oracle_tokens": 0.99}
PROBE, TOKENIZER = {"probe_real": 0.98}, {"probe_tokens": 0.91}


def told(*runs: dict[str, Any]) -> list[str]:
    found = [{"factor": "colour", "seed": 0, "held_by": "", **GOOD, **run} for run in runs]
    _tell_held_by(found)
    return [run["held_by"] for run in found]


def at(contrast: float, status: str, **more: Any) -> dict[str, Any]:
    return {"contrast": contrast, "status": status, **more}


@pytest.mark.parametrize(
    ("threshold", "tried", "missed"),
    [
        (0.663, ((0.2, False), (0.292, True), (0.44, False), (0.663, True)), 0.44),
        (0.663, ((0.2, True), (0.44, False), (0.663, True)), 0.44),
        (0.5, ((0.25, False), (0.5, True), (0.9, False)), 0.25),
        (0.2, ((0.2, True), (0.9, True)), None),
        (None, ((0.2, False), (0.9, False)), 0.9),
    ],
)
def test_what_says_why_is_the_run_right_below_the_threshold(
    threshold: float | None, tried: tuple[tuple[float, bool], ...], missed: float | None
) -> None:
    assert _missed(cast(ThresholdResult, SimpleNamespace(threshold=threshold, tried=tried))) == missed


CASES: list[tuple[str, dict[str, float], dict[str, float]]] = [
    ("generator", {}, {}),
    ("generator", {}, TOKENIZER),
    ("probe", {**PROBE, **TOKENIZER}, {}),
    ("tokenizer", TOKENIZER, {}),
    ("tokenizer or generator", TOKENIZER, {"probe_tokens": 0.957}),
    ("tokenizer or generator", TOKENIZER, {"oracle_tokens": 0.969}),
    ("tokenizer", {**PROBE, **TOKENIZER}, PROBE),
    ("probe or generator", {**PROBE, **TOKENIZER}, {**PROBE, **TOKENIZER}),
    ("tokenizer", TOKENIZER, {"probe_tokens": float("nan")}),
]


@pytest.mark.parametrize(("stage", "below", "above"), CASES)
def test_a_gate_that_is_unmet_on_both_sides_does_not_tell_what_fails(
    stage: str, below: dict[str, float], above: dict[str, float]
) -> None:
    assert told(at(0.4, "missed", **below), at(0.44, "passed", **above), at(1, "passed")) == [stage, "", ""]


NOTHING: list[tuple[str, dict[str, float]]] = [
    ("", {"probe_real": float("nan")}),
    ("", {"probe_tokens": float("nan")}),
    ("", {"probe_real": float("nan"), "probe_tokens": float("nan")}),
    ("", {"oracle_real": float("nan"), **TOKENIZER}),
    ("probe", {**PROBE, "probe_tokens": float("nan")}),
]


@pytest.mark.parametrize(("stage", "below"), NOTHING)
def test_nothing_is_said_of_what_fails_behind_a_gate_that_is_not_known(stage: str, below: dict[str, float]) -> None:
    assert told(at(0.4, "missed", **below)) == [stage]
    assert told(at(0.4, "missed", **below), at(0.44, "passed")) == [stage, ""]


@pytest.mark.parametrize(
    ("shares", "lost"),
    [
        ((0.5, 0.2, 0.3), "size"),
        ((0.2, 0.5, 0.2), "shape or colour"),
        ((0.2, 0.2, 0.2), ""),
        ((0.0, 0.0, 0.0), ""),
        ((0.2, float("nan"), 0.3), ""),
    ],
)
def test_factors_that_are_read_right_as_seldom_are_lost_together(shares: tuple[float, ...], lost: str) -> None:
    curves = {f"{told}_least": [0.9, share] for told, share in zip(BY_FACTOR.values(), shares, strict=True)}
    assert _lost({"status": "missed", "curve_summary": curves}) == lost
    assert _lost({"status": "passed", "curve_summary": curves}) == ""


def test_only_a_run_of_the_same_seed_and_factor_that_passes_above_tells() -> None:
    others = [at(0.5, "passed", seed=1, **TOKENIZER), at(0.5, "passed", factor="size", **TOKENIZER)]
    below, missed = at(0.1, "passed", **TOKENIZER), at(0.5, "missed", **TOKENIZER)
    runs = [at(0.4, "missed", **TOKENIZER), *others, below, missed]
    assert told(*runs)[0] == "tokenizer"
    assert told(*runs, at(0.6, "passed", **TOKENIZER))[0] == "tokenizer or generator"


def test_what_the_oracle_reads_is_found_once_and_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    read, threads = generators.read_by_templates, list[int]()
    monkeypatch.setattr(generators, "read_by_templates", lambda *words: threads.append(torch.get_num_threads()) or read(*words))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = [oracle_reads(ShapeSettings(faint="size", contrast=0.987), 16, 2) for _ in range(2)]
        assert (found, threads, torch.get_num_threads()) == ([found[0]] * 2, [1], 2)
    finally:
        torch.set_num_threads(before)
