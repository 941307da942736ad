"""A spec's key is computed once for each object and belongs to it alone."""

from __future__ import annotations

import copy
import dataclasses
import pickle

from trainables.spec import RunSpec, run_key

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
