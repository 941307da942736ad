"""What the signal study says of the runs that miss: which stage fails, as far as the run that passes right above tells it."""

from typing import Any

import pytest

from analysis.signal import _tell_held_by

GOOD = {"probe_real": 1.0, "oracle_real": 1.0, "probe_tokens": 0.98, "oracle_tokens": 0.99}
PROBE, TOKENIZER = {"probe_real": 0.98}, {"probe_tokens": 0.91}


def told(*runs: dict[str, Any]) -> list[str]:
    found = [{"factor": "colour", "seed": 0, "held_by": "", **GOOD, **run} for run in runs]
    _tell_held_by(found)
    return [run["held_by"] for run in found]


def at(contrast: float, status: str, **more: Any) -> dict[str, Any]:
    return {"contrast": contrast, "status": status, **more}


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


def test_only_a_run_of_the_same_seed_and_factor_that_passes_above_tells() -> None:
    others = [at(0.5, "passed", seed=1, **TOKENIZER), at(0.5, "passed", factor="size", **TOKENIZER)]
    below, missed = at(0.1, "passed", **TOKENIZER), at(0.5, "missed", **TOKENIZER)
    runs = [at(0.4, "missed", **TOKENIZER), *others, below, missed]
    assert told(*runs)[0] == "tokenizer"
    assert told(*runs, at(0.6, "passed", **TOKENIZER))[0] == "tokenizer or generator"
