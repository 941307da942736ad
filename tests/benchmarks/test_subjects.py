"""The subjects whose curves are not those of bumps, and the records of their runs."""

import dataclasses
import inspect
import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import hard_curves, stopping, subjects
from trainables.check_words import check_words
from trainables.spec import RunSpec
from trainables.task import load_task
from trainables.training.loop import Training

NAMES = [
    name
    for name, found in inspect.getmembers(subjects, inspect.isclass)
    if issubclass(found, subjects.Subject) and found is not subjects.Subject
]


def spec_of(name: str, count: int = 40, **changes: object) -> RunSpec:
    return hard_curves.subject(name, 11, [count], [0], **changes)[0]


def test_there_are_six() -> None:
    assert len(NAMES) == 6


@pytest.mark.parametrize("name", NAMES)
def test_every_subject_is_a_task(name: str) -> None:
    spec = spec_of(name)
    task = load_task(spec.task)
    check_words(task)
    data = task.data(spec)
    assert len(data.train.inputs) == 40
    for split in data:
        outputs = task.model(spec)(split.inputs)
        assert outputs.shape == split.targets.shape
        assert outputs.isfinite().all()
        correct = task.measure(spec, outputs, split)["correct"]
        assert correct.shape == (len(split.inputs),)
        assert correct.dtype == torch.bool
        assert task.measure(spec, split.targets, split)["correct"].float().mean() > 0.7  # noise takes some in training


@pytest.mark.parametrize("name", NAMES)
def test_training_sets_of_one_seed_are_nested(name: str) -> None:
    task = load_task(spec_of(name).task)
    small, large = (task.data(spec_of(name, count)) for count in (20, 60))
    for less, more in zip(small.train, large.train, strict=True):
        assert torch.equal(less, more[:20])
    other = task.data(dataclasses.replace(spec_of(name, 20), seed=1))
    assert not torch.equal(small.train.inputs, other.train.inputs)


def test_nothing_that_is_held_out_is_trained_on() -> None:
    data = load_task("benchmarks.subjects:ModularAddition").data(spec_of("ModularAddition"))
    pairs = {tuple(code.tolist()) for code in torch.cat([data.train.inputs, data.held_out.inputs])}
    assert len(pairs) == 11**2 == len(data.train.inputs) + len(data.held_out.inputs)


@pytest.mark.parametrize("name", NAMES)
def test_runs_are_finite(name: str) -> None:
    spec = spec_of(name, max_steps=40)
    run = Training(spec, load_task(spec.task))
    run.advance()
    assert all(map(math.isfinite, [*run.curve_loss, *run.curve_accuracy, *run.curve_error, run.result().accuracy]))


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "curves.jsonl"
    runs = [("quick", spec_of("ModularAddition", max_steps=60)), ("quick", spec_of("SparseParity", max_steps=60))]
    trained = hard_curves.collect(runs, file)
    again = hard_curves.collect(runs, file)
    assert again == trained == [json.loads(line) for line in file.read_text().splitlines()]
    for (_, spec), found in zip(runs, trained, strict=True):
        assert RunSpec.from_dict(found["spec"]) == spec
        assert found["step"] == [20, 40, 60]
        for curve in ("loss", "accuracy", "error", "whole", "norm", "chance"):
            assert len(found[curve]) == 3
        assert found["norm"][-1] > 0
        assert found["passage_step"] is None
    assert "| ModularAddition | 11 | 1 | 0 | 0 | 0 |" in stopping.table([stopping.replay(found) for found in trained])


def test_collecting_ends_with_so_many_that_fail() -> None:
    runs = [("quick", spec_of("ModularAddition", count, max_steps=20)) for count in (30, 31, 32)]
    assert len(hard_curves.collect(runs, None, failing=2)) == 2


def test_the_parts_of_the_plan_share_no_run() -> None:
    selection, verification = hard_curves.plan().values()
    assert len({*selection, *verification}) == len(selection) + len(verification) >= 220
    assert not {s.seed for s in selection} & {s.seed for s in verification}
    for spec in [*selection, *verification]:
        allowed = load_task(spec.task).counts(spec)
        assert allowed.low <= spec.data_count <= allowed.high
