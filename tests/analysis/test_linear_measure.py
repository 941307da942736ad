"""The linear reader: what pixels tell by themselves is read, and what they do not tell is not."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.measures import linear
from analysis.measures.linear import measure
from analysis.measures.quantity import Quantity
from analysis.trained import Trained
from tests.analysis.made_objectives import answer_of, generator_row, spec_of
from tests.analysis.planted import Oracle
from trainables.generative.chain import probe_of
from trainables.generative.shapes import COMPOSITIONS
from trainables.generative.tiers import generator
from trainables.task import load_task


def measured(**settings: object) -> dict[str, Quantity]:
    spec = probe_of(generator("smoke", settings=settings))  # type: ignore[arg-type]
    return {one.name: one for one in measure(Trained("planted", spec, load_task(spec.task), Oracle()))}


def test_figures_that_do_not_move_are_read_from_their_pixels() -> None:
    found = measured(centre_jitter=0.0)
    shares = [f"linear_{name}" for name in (*COMPOSITIONS, "least")]
    assert {name: found[name].value for name in shares} == dict.fromkeys(shares, 1.0)
    assert found["linear_factors"].array is not None
    assert found["linear_factors"].array.tolist() == [[1.0] * 3] * 8
    assert "linear_seen" not in found, "a probe has seen all compositions"


def test_a_factor_that_is_not_there_is_guessed() -> None:
    """Shapes whose classes are all but the same are read right half of the time; sizes and colours are read as before."""
    found = measured(centre_jitter=0.3, faint="shape", contrast=0.01)
    assert found["linear_factors"].array is not None
    shape, size, colour = np.mean(found["linear_factors"].array, axis=0).tolist()
    assert shape == pytest.approx(0.5, abs=0.1)
    assert (size, colour) == (1.0, 1.0)
    assert found["linear_least"].value is not None
    assert found["linear_least"].value < 0.7


def test_it_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "FITTED", 256)
    one, other = (measured(centre_jitter=0.3) for _ in range(2))
    assert {name: q.value for name, q in one.items()} == {name: q.value for name, q in other.items()}


def test_it_stands_beside_gate_1_and_decides_nothing() -> None:
    row = generator_row(spec_of("dit", "vq"))
    without = answer_of([row])
    with_it = answer_of([row], own={row["parents"]["probe"]: {"linear_least": 0.3}})
    assert without.table["linear_real"].isna().all()
    assert with_it.table["linear_real"].tolist() == [0.3]
    assert list(with_it.table["gate_1"]) == list(without.table["gate_1"]) == ["met"]
    gate = next(line for line in with_it.lines() if line.startswith("gate 1"))
    assert gate.endswith("(probe real 1.00, oracle real 1.00, linear real 0.30 at worst)")
