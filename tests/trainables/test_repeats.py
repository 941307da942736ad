"""A warning tells of training samples that are among the held-out ones: then these say little of new data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from orchestrator import scaling
from orchestrator.command.cli import run
from trainables import check, check_data
from trainables.check import check_task
from trainables.settings import spec_fields
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split, load_task


class Leak:
    """Random labels, so nothing can be learned. Training samples were not cut off the held-out ones."""

    version, loss = "1", "cross-entropy"
    choices = {"dataset": ("leak",), "decoder": ("linear",), "encoding": ("none",), "holdout": ("random",)}
    defaults: dict[str, Any] = {}
    low, high, held_out = 8, 290, slice(None)
    samples = 300

    def preset(self, dataset: str, decoder: str) -> dict[str, Any]:
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=self.low, high=self.high)

    def data(self, spec: RunSpec) -> Data:
        inputs, labels = self.inputs(spec), torch.randint(0, 8, (self.samples,), generator=self.drawn(spec, 1))
        rest = self.labels(spec, labels)[self.held_out]
        train = (t[: spec.data_count] for t in (inputs, labels, labels))
        return Data(Split(*train), Split(inputs[self.held_out], rest, rest))

    def inputs(self, spec: RunSpec) -> Tensor:
        return torch.randn(self.samples, 5, generator=self.drawn(spec, 2))

    def labels(self, spec: RunSpec, labels: Tensor) -> Tensor:
        """Of the held-out samples."""
        return labels

    def drawn(self, spec: RunSpec, what: int) -> torch.Generator:
        return torch.Generator().manual_seed(10 * spec.seed + what)

    def model(self, spec: RunSpec) -> nn.Module:
        return Flat()

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> dict[str, Tensor]:
        return {"correct": outputs.argmax(1) == split.truth}


class Flat(nn.Module):
    """It takes whatever numbers there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        values = torch.view_as_real(inputs.resolve_conj()) if inputs.is_complex() else inputs
        return self.layer(values[:, None].flatten(1).float().sum(1, keepdim=True))


class AtTheEnd(Leak):
    """Its greatest data count is too large."""

    held_out = slice(240, None)


class OfOneSize(Leak):
    low = high = 200


class HeldOutAlone(Leak):
    """All held-out samples are known, but they are few among those trained on."""

    samples, high, held_out = 5000, 4990, slice(100, 110)


class Disjoint(Leak):
    held_out = slice(290, None)


class AlmostDisjoint(Leak):
    """One in 201."""

    samples, high, held_out = 410, 201, slice(200, None)


class OtherTargets(Leak):
    """The same inputs alone."""

    def labels(self, spec: RunSpec, labels: Tensor) -> Tensor:
        return (labels + 1) % 8


class Refused(Leak):
    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> dict[str, Tensor]:
        return {"right": outputs.argmax(1) == split.truth}


class OneSample(Leak):
    """There is nothing that could be held out."""

    def data(self, spec: RunSpec) -> Data:
        ones = torch.ones(300, 5), *[torch.ones(300, dtype=torch.int64)] * 2
        return Data(Split(*(t[: spec.data_count] for t in ones)), Split(*ones))


def of_inputs(make: Any) -> type[Leak]:
    return type("LeakOfKind", (Leak,), {"inputs": lambda self, spec: make(Leak.inputs(self, spec))})


def warning(count: int, trained: int, held_out: int, N: int = 8, task: str = "tests:Task") -> str:
    return (
        f"warning: {task}: {count} of {trained} training samples at N = {N}, data_count = {trained} are among {held_out} "
        "held-out ones, so these say little of new data: hold out others, or lower Counts.high. If samples repeat by right, "
        "ignore this\n"
    )


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_warned", set())


def check_leak(task: Leak, seed: int = 0, data_count: int = 0) -> None:
    check_task(task, RunSpec(task="tests:Task", N=8, data_count=data_count, seed=seed, **spec_fields(task, {})))


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        (Leak, (290, 290, 300)),
        (AtTheEnd, (50, 290, 60)),
        (OfOneSize, (200, 200, 300)),
        (HeldOutAlone, (10, 4096, 10)),
    ],
)
def test_training_samples_among_the_held_out_ones_are_told(
    leak: type[Leak], told: tuple[int, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    check_leak(leak())
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", warning(*told))


@pytest.mark.parametrize("task", [Disjoint, AlmostDisjoint, OtherTargets, OneSample])
def test_nothing_is_told_where_samples_are_held_out_or_repeat_by_right(
    task: type[Leak], capsys: pytest.CaptureFixture[str]
) -> None:
    check_leak(task())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("fixed", "repeated"), [(200, 0), (239, 0), (260, 20), (290, 50)])
def test_samples_are_sought_at_the_data_count_of_the_study(
    fixed: int, repeated: int, capsys: pytest.CaptureFixture[str]
) -> None:
    check_leak(AtTheEnd(), data_count=fixed)
    told = warning(repeated, fixed, 60)
    if fixed < 290:
        told = told.replace(", or lower Counts.high", "")
    assert capsys.readouterr().err == told * bool(repeated)


def test_nothing_is_told_of_a_task_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="must give correct, "):
        check_leak(Refused())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.bfloat16(),
        lambda x: x.double()[:, :0].new_empty(300, 0),
        lambda x: (10 * x).long(),
        lambda x: x > 0,
        lambda x: x[:, 0],
        lambda x: x[:, :4].view(300, 2, 2).transpose(1, 2),
        lambda x: x[:, 0].clone()[None].t(),
        lambda x: torch.complex(x, -x).conj(),
        lambda x: torch.complex(x, -x).conj().imag,
        lambda x: x.requires_grad_(),
    ],
    ids=["bfloat16", "none", "int64", "bool", "one number", "transposed", "column", "complex", "imaginary", "with gradient"],
)
def test_inputs_may_be_of_any_kind(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    check_leak(of_inputs(make)())
    assert capsys.readouterr().err == warning(290, 290, 300)


def test_a_task_is_told_of_once_for_each_of_its_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        check_leak(Leak(), seed)
    assert capsys.readouterr().err.count("warning: ") == 1
    check_task(Leak(), RunSpec(task="tests:Task", dataset="another", N=8, data_count=0, seed=0))
    assert capsys.readouterr().err == warning(290, 290, 300)


def test_of_very_many_samples_some_are_sought(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check_data, "MOST_SOUGHT", 100)
    check_leak(Leak())
    told = re.search(r": (\d+) of 100 training samples at N = 8, data_count = 290 are among 100 ", capsys.readouterr().err)
    assert told is not None
    assert 20 <= int(told[1]) <= 50, "about a third of them"


@pytest.mark.parametrize(
    ("path", "N", "chosen"),
    [
        *(("trainables.bumps:BumpTask", 8, {"dataset": word}) for word in ("bumps", "stripes+bumps")),
        ("trainables.regularization:RegularizationTask", 8, {}),
        ("examples.own_task:Chords", 8, {}),
        ("examples.grokking:Modular", 11, {}),
        ("examples.classifier:Digits", 10, {}),
        ("examples.pretraining:Autoencoder", 10, {}),
        ("examples.pretraining:FineTuning", 10, {}),
        ("benchmarks.subjects:ModularAddition", 8, {}),
    ],
)
def test_nothing_is_told_of_the_tasks_of_this_project(
    path: str, N: int, chosen: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    task = load_task(path)
    check_task(task, RunSpec(task=path, N=N, data_count=0, seed=0, **spec_fields(task, chosen)))
    assert capsys.readouterr().err == ""


def test_a_launch_warns_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    task = f"{__name__}:Leak"
    assert run(scaling.app, ["--task", task, "--N", "8,16", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.err == warning(290, 290, 300, task=task)
    assert "open thresholds" in printed.out
