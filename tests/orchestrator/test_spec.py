"""A spec's key is computed once for each object and belongs to it alone; and it has no values that no run can have."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
import sys
from collections.abc import Iterator

import pytest
import torch

from trainables.spec import LIMITS, RunSpec, Scalar, run_key

SPEC = RunSpec(task="tasks:Task", dataset="grid", N=16, data_count=3, seed=0, options=(("sigma", 1),))


def test_a_remembered_key_is_that_of_the_version_asked_for() -> None:
    first, second = run_key(SPEC, "1"), run_key(SPEC, "2")
    assert first != second
    assert [run_key(SPEC, v) for v in ("1", "1", "2", "2", "1")] == [first, first, second, second, first]


def test_a_remembered_key_is_not_that_of_an_equal_spec_with_other_types() -> None:
    key = run_key(SPEC, "1")
    real = dataclasses.replace(SPEC, options=(("sigma", 1.0),))
    assert real == SPEC
    assert hash(real) == hash(SPEC)
    assert run_key(real, "1") != key
    for same in (copy.deepcopy(SPEC), pickle.loads(pickle.dumps(SPEC)), dataclasses.replace(SPEC)):
        assert same == SPEC
        assert run_key(same, "1") == key


def test_options_are_sorted_and_each_is_there_once() -> None:
    given = (("kind", "wide"), ("angle", 2))
    first, second = (dataclasses.replace(SPEC, options=options) for options in (given, given[::-1]))
    assert first == second
    assert first.options == (("angle", 2), ("kind", "wide"))
    assert first.with_value("kind", "narrow").options == (("angle", 2), ("kind", "narrow"))


@pytest.mark.parametrize("name", LIMITS)
def test_a_whole_number_lies_within_its_limits(name: str) -> None:
    low, high = LIMITS[name]
    for value in (low, high):
        assert SPEC.with_value(name, value).value(name) == value
    wrong: list[Scalar] = [low - 1, high + 1, float(high), True]
    for value in wrong:
        with pytest.raises(ValueError, match=re.escape(f"{name} must be a whole number from {low} to {high}, not {value!r}")):
            SPEC.with_value(name, value)


@pytest.fixture
def tiny_numbers() -> Iterator[None]:
    """They are kept, as in a launch. Tests that train flush them to zero for all of their process."""
    flushed = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(flushed)


@pytest.mark.usefixtures("tiny_numbers")
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("target", (1, sys.float_info.min), (0, 1.001, -0.5)),
        ("lr", (sys.float_info.min, sys.float_info.max), (0.0, -1e-3)),
        ("weight_decay", (0, sys.float_info.max), (-1e-3,)),
        ("sigma", (0.0, -1.5, sys.float_info.min, -sys.float_info.min), ()),
    ],
)
def test_another_number_is_finite_and_none_that_workers_take_for_0(
    name: str, right: tuple[float, ...], wrong: tuple[float, ...]
) -> None:
    for value in right:
        assert SPEC.with_value(name, value).value(name) == value
    for value in (*wrong, math.nan, math.inf, -math.inf, 5e-324, -1e-310, 10**400):
        with pytest.raises(ValueError, match=f"{name} must "):
            SPEC.with_value(name, value)
