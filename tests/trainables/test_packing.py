"""Runs trained together get what they get alone."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.own_task import Chords
from tests.toy import Toy
from trainables.bumps import BumpTask
from trainables.decoders import MLP
from trainables.lowrank import LowRank
from trainables.regularization import DecoderTask, RegularizationTask
from trainables.rotation import RotationTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Data, Split, Task
from trainables.training import batched, packs
from trainables.training import pack_size as packing
from trainables.training.attributes import differing
from trainables.training.checkpoint import check_saved
from trainables.training.loop import Training
from trainables.training.memory import is_out_of_memory
from trainables.training.pack_size import best_pack_size
from trainables.training.packs import Pack


def bumps(decoder: str, **changes: Any) -> RunSpec:
    task = BumpTask()
    fields: dict[str, Any] = {
        "task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 12, "data_count": 60, "seed": 0, "decoder": decoder,
        "width": {"mlp": 48, "cnn": 12}[decoder], "options": tuple(task.defaults.items()), "max_steps": 400,
    }  # fmt: skip
    return RunSpec(**fields | changes)


def low_rank(**changes: Any) -> RunSpec:
    task = RegularizationTask()
    options = {**task.defaults, **changes.pop("options", {})}
    fields: dict[str, Any] = {
        "task": "trainables.regularization:RegularizationTask", "dataset": "bumps", "N": 8, "data_count": 0, "seed": 0,
        "decoder": "lowrank", "width": 2, "encoding": "token", "holdout": "corner", "options": tuple(options.items()),
        "batch_size": 16, "max_steps": 300, "stop": "budget",
    }  # fmt: skip
    spec = RunSpec(**fields | changes)
    return spec.with_count(task.counts(spec).low)


def _padded(spec: RunSpec) -> RunSpec:
    return dataclasses.replace(spec, options=(*spec.options, ("padding", 2), ("ema", 0.9), ("beta2", 0.99)))


def distance(pack: Training, alone: Training) -> float:
    """Largest distance of a parameter tensor from its twin, relative to its length."""
    pairs = zip(pack.model.parameters(), alone.model.parameters(), strict=True)
    return max(((p - q).norm() / q.norm()).item() for p, q in pairs)


def both(specs: Sequence[RunSpec], task: Task) -> tuple[list[Training], list[Training]]:
    return [Training(spec, task) for spec in specs], [Training(spec, task) for spec in specs]


PACKS = {
    "mlp": ([bumps("mlp", seed=s, data_count=d, lr=r) for s, d, r in ((0, 40, 1e-3), (1, 90, 3e-3), (2, 5, 1e-3))], BumpTask()),
    "cnn": ([bumps("cnn", N=16, seed=s, data_count=d) for s, d in ((0, 200), (1, 210), (1, 230))], BumpTask()),
    "two data sets": (
        [bumps("mlp", seed=0, data_count=40), bumps("mlp", seed=1, dataset="stripes+bumps", holdout="center", data_count=9),
         bumps("mlp", seed=0, holdout="corner", data_count=40)],
        BumpTask(),
    ),
    "two boxes": ([low_rank(seed=0, N=12, holdout=box) for box in ("corner-box-1", "corner")], RegularizationTask()),
    "cnn resized": ([bumps("cnn", N=10, seed=s, data_count=50, weight_decay=w) for s, w in ((0, 0.0), (1, 0.1))], BumpTask()),
    "low-rank": (
        [low_rank(seed=s, lr=lr, schedule="cosine", options={"lambda_entropy": e, "lambda_variance": v})
         for s, lr, e, v in ((0, 2e-3, 0.1, 0.01), (1, 2e-3, 0.0, 0.05), (2, 1e-2, 0.0, 0.0))],
        RegularizationTask(),
    ),
    "padded": ([_padded(low_rank(seed=s)) for s in (0, 1)], DecoderTask()),
    "any model": ([RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=c, seed=s, decoder="linear", depth=0, width=1,
                           encoding="none", options=tuple(Toy.defaults.items()), max_steps=300, stop="budget")
                   for s, c in ((0, 6), (1, 9))], Toy()),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKS)
def test_norms_of_all_at_once_are_those_of_each(name: str) -> None:
    specs, task = PACKS[name]
    pack = Pack([Training(spec, task) for spec in specs])
    for _ in range(3):
        pack.advance(0.0)
    assert pack._norms().tolist() == pytest.approx([run.weight_norm() for run in pack._packed], rel=1e-6)


class PartlyTrained(Toy):
    """A toy whose body is not trained, and which has a parameter that the loss does not depend on; it keeps an average."""

    def model(self, spec: RunSpec) -> nn.Module:
        return _Scaled(super().model(spec).requires_grad_(False))


class _Scaled(nn.Module):
    ema = 0.9

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.scale, self.unused = body, nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(2))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.body(inputs) * self.scale
        return outputs


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_weights_that_are_not_trained_do_not_count_in_the_norm(ema: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those of a head on a frozen network would seem to be at rest."""
    monkeypatch.setattr(_Scaled, "ema", ema)
    specs = [dataclasses.replace(spec, max_steps=50) for spec in PACKS["any model"][0]]
    packed, alone = both(specs, PartlyTrained())
    pack = Pack(packed)
    pack.advance(0.0)
    for run, twin in zip(packed, alone, strict=True):
        twin.train_step()
        scale, unused = (twin.network.get_parameter(name) for name in ("scale", "unused"))
        assert twin.weight_norm() == pytest.approx(torch.cat([scale.view(1), unused]).norm().item(), rel=1e-6)
        assert run.weight_norm() == pytest.approx(twin.weight_norm(), rel=1e-6)
    assert pack._norms().tolist() == pytest.approx([run.weight_norm() for run in pack._packed], rel=1e-6)


def test_what_is_not_trained_stays_as_it_is() -> None:
    specs = [dataclasses.replace(spec, max_steps=50, weight_decay=0.5) for spec in PACKS["any model"][0]]
    packed, alone = both(specs, PartlyTrained())
    Pack(packed).advance()
    for run, twin in zip(packed, alone, strict=True):
        body = {name: p.clone() for name, p in twin.model.named_parameters() if name != "scale"}
        twin.advance()
        assert distance(run, twin) < 1e-6
        assert run.average is not None
        assert twin.average is not None
        assert torch.allclose(run.average.get_parameter("scale"), twin.average.get_parameter("scale"), rtol=1e-6)
        assert all(torch.equal(run.network.get_parameter(name), p) for name, p in body.items())
        assert abs(run.result().ood_mse - twin.result().ood_mse) < 1e-6  # type: ignore[operator]


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", PACKS)
def test_parameters_are_those_of_runs_alone(name: str) -> None:
    specs, task = PACKS[name]
    steps = 50 if "cnn" in name else 200
    specs = [dataclasses.replace(spec, stop="budget", max_steps=steps) for spec in specs]
    together, alone = both(specs, task)
    assert Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.step == twin.step == steps
        assert distance(run, twin) < 1e-5
        ours, theirs = run.result(), twin.result()
        assert (ours.status, ours.passage_step, ours.curve_step) == (theirs.status, theirs.passage_step, theirs.curve_step)
        assert ours.curve_loss == pytest.approx(theirs.curve_loss, rel=1e-4)
        assert ours.ood_mse == pytest.approx(theirs.ood_mse, rel=1e-3)
        assert ours.measures == pytest.approx(theirs.measures, rel=1e-3)


def double(run: Training) -> Training:
    run.model.double()
    run.train, run.held_out, run.subset = (
        Split(*(t.double() for t in split)) for split in (run.train, run.held_out, run.subset)
    )
    run.loss_sum = run.loss_sum.double()
    return run


@pytest.mark.slow(3)
def test_a_fitted_cnn_differs_by_rounding_alone() -> None:
    """Once a training set is fitted, AdamW divides tiny gradients by their size, and rounding grows a thousandfold within a
    hundred steps, in the plain network too if its memory is laid out otherwise. In float64 nothing of it is seen."""
    specs = [bumps("cnn", N=8, width=8, seed=s, data_count=10, lr=3e-3, max_steps=150, stop="budget") for s in (0, 1)]
    together, alone = ([double(run) for run in runs] for runs in both(specs, BumpTask()))
    Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-9


def test_a_run_does_not_feel_the_others() -> None:
    specs, task = PACKS["mlp"]
    specs = [dataclasses.replace(spec, stop="budget", max_steps=60) for spec in specs]
    first, second = Training(specs[0], task), Training(specs[0], task)
    Pack([first, *(Training(spec, task) for spec in specs[1:])]).advance()
    Pack([*(Training(dataclasses.replace(spec, seed=9), task) for spec in specs), second]).advance()
    assert distance(first, second) < 1e-6


@pytest.mark.slow(5)
@pytest.mark.parametrize(("decoder", "width"), [("mlp", 48), ("cnn", 6)])
def test_runs_leave_when_they_end_and_end_as_they_do_alone(decoder: str, width: int) -> None:
    runs = ((0, 25, 0.95, 1e-2), (0, 40, 0.5, 3e-3), (1, 120, 0.5, 3e-3), (2, 129, 0.5, 1e-3), (2, 5, 0.5, 1e-3))
    specs = [bumps(decoder, width=width, seed=s, data_count=d, target=t, lr=lr, max_steps=160) for s, d, t, lr in runs]
    together, alone = both(specs, BumpTask())
    pack = Pack(together)
    sizes = set()
    while not pack.advance(seconds=0):
        sizes.add(len(pack.unfinished))
    assert len(sizes) > 1
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        ours, theirs = run.result(), twin.result()
        assert (ours.status, ours.reason, ours.steps) == (theirs.status, theirs.reason, theirs.steps)
        assert ours.accuracy == pytest.approx(theirs.accuracy, abs=0.02)
    assert {run.reason for run in together} == {"target", "converged", "budget"}


@pytest.mark.slow(2)
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_on_a_gpu_gaps_are_closed_when_half_of_the_runs_have_left(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the recording of steps, which needs a GPU: runs that ended stay in the stack for a while and are not touched."""
    monkeypatch.setattr(Pack, "_step", Pack._compute)
    runs = ((0, 40, 0.3), (0, 40, 0.5), (1, 60, 0.7), (1, 120, 0.9), (2, 60, 0.8))
    specs = [bumps("mlp", seed=s, data_count=d, target=t, schedule=schedule) for s, d, t in runs]
    together, alone = both(specs, BumpTask())
    pack = Pack(together)
    pack.on_gpu = True
    seen = set()
    while not pack.advance(seconds=0):
        seen.add((len(pack._packed), len(pack.unfinished)))
    assert {stacked for stacked, _ in seen} == {5, 2, 1}
    assert {5, 4, 3} <= {left for stacked, left in seen if stacked == 5}
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.result() == twin.result()
        assert distance(run, twin) < 1e-5


def test_a_run_that_has_left_stays_as_it_was_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, where it stays in the stack for a while."""
    monkeypatch.setattr(Pack, "_step", Pack._compute)
    runs = [Training(bumps("mlp", seed=s, max_steps=m, stop="budget"), BumpTask()) for s, m in ((0, 5), (1, 60), (2, 60))]
    pack = Pack(runs)
    pack.on_gpu = True

    def state() -> list[Tensor]:
        moments = [value for of_one in runs[0].optimizer.state.values() for value in of_one.values()]
        return [tensor.clone() for tensor in (*runs[0].model.parameters(), *moments, runs[0].loss_sum)]

    while not runs[0].reason:
        pack.advance(seconds=0)
    left, step = state(), runs[1].step
    while runs[1].step < step + 3:
        pack.advance(seconds=0)
    assert len(pack._packed) == 3
    assert all(torch.equal(*pair) for pair in zip(left, state(), strict=True))


def test_runs_that_are_unequally_far_train_together_as_alone() -> None:
    together, alone = both([bumps("mlp", seed=s, max_steps=25, stop="budget") for s in (0, 1)], BumpTask())
    for _ in range(15):
        together[1].train_step()
    assert Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.step == twin.step == 25
        assert distance(run, twin) < 1e-5


def test_a_run_that_diverges_leaves_the_others_alone() -> None:
    specs = [bumps("mlp", seed=s, lr=lr, max_steps=60, stop="budget") for s, lr in ((0, 1e-3), (1, 1e18))]
    together, alone = both(specs, BumpTask())
    Pack(together).advance()
    assert [run.reason for run in together] == ["budget", "diverged"]
    alone[0].advance()
    assert distance(together[0], alone[0]) < 1e-5


@pytest.mark.slow(2)
def test_a_saved_run_of_a_pack_goes_on_anywhere() -> None:
    specs, task = PACKS["low-rank"]
    specs = [dataclasses.replace(spec, max_steps=100) for spec in specs]
    together, uninterrupted = both(specs, task)
    pack = Pack(together)
    while together[0].step < 30:
        pack.advance(seconds=0)
    saved = [run.state_dict() for run in together]
    assert all(p.untyped_storage().nbytes() == p.nbytes for state in saved for p in state["model"].values())
    later = [Training(spec, task) for spec in specs]
    for run, state in zip(later, saved, strict=True):
        run.load_state_dict(state)
    later[0].advance()
    Pack(later[1:]).advance()
    pack.advance()
    Pack(uninterrupted).advance()
    for run, other, whole in zip(together, later, uninterrupted, strict=True):
        assert distance(run, whole) == 0
        assert distance(other, whole) < 1e-5


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW refuses tensors that do not lie alike in memory, as on a GPU. On a CPU it takes them by their places in memory."""
    fused = torch._fused_adamw_

    def strict(parameters: list[Tensor], *lists: list[Tensor], **settings: Any) -> None:
        for tensors in lists[:3]:
            for p, tensor in zip(parameters, tensors, strict=True):
                strides = zip(p.shape, p.stride(), tensor.stride(), strict=True)
                if p.shape != tensor.shape or any(size > 1 and ours != theirs for size, ours, theirs in strides):
                    raise RuntimeError("params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout")
        fused(parameters, *lists, **settings)

    monkeypatch.setattr(torch, "_fused_adamw_", strict)


def images_last(**changes: Any) -> RunSpec:
    """In bfloat16 the kernels of a network lie otherwise in memory than a stack of them."""
    return bumps("cnn", N=8, data_count=30, precision="bfloat16", stop="budget", **changes)


@pytest.mark.slow(2)
@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("begun", [0, 3])
def test_tensors_of_the_optimizer_lie_alike_in_a_pack_and_in_a_run_that_is_left(begun: int) -> None:
    runs = [Training(images_last(seed=seed, max_steps=steps), BumpTask()) for seed, steps in ((0, 25), (1, 25), (2, 45))]
    for run in runs:
        for _ in range(begun):
            run.train_step()
    pack = Pack(runs)
    assert pack.advance()
    assert not pack.unstacked
    assert [run.step for run in runs] == [25, 25, 45]


@pytest.mark.slow(4)
def test_a_saved_run_of_a_pack_goes_on_alone_where_it_was() -> None:
    specs = [images_last(seed=seed, max_steps=40) for seed in (0, 1)]
    runs = [Training(spec, BumpTask()) for spec in specs]
    pack = Pack(runs)
    while runs[0].step < 20:
        pack.advance(seconds=0)
    saved = [run.state_dict() for run in runs]
    pack.advance()
    for run, state in zip(runs, saved, strict=True):
        later = Training(run.spec, BumpTask())
        check_saved({"training": state, "seconds": 1.0}, later)
        later.load_state_dict(state)
        later.advance()
        assert distance(later, run) < 0.04


class Boxed(BumpTask):
    """Where it says in another way than its parent what is right, by the box."""

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> dict[str, Tensor]:
        return {**super().measure(spec, outputs, split), "correct": torch.full((len(outputs),), spec.holdout == "corner")}


def test_what_a_subclass_measures_is_asked_of_each_run_of_a_pack() -> None:
    runs = [Training(bumps("mlp", holdout=box, max_steps=20, stop="budget"), Boxed()) for box in ("center", "corner")]
    assert Pack(runs).advance()
    assert [run.result().accuracy for run in runs] == [0, 1]


class Lengths(Toy):
    """It learns from sequences of 4 numbers, and is judged on sequences of 9."""

    def model(self, spec: RunSpec) -> nn.Module:
        return _MeanOfAll(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))

    def samples(self, spec: RunSpec, trouble: str) -> Data:
        generator = torch.Generator().manual_seed(spec.seed)
        few, many = (torch.randn(n, length, generator=generator) for n, length in ((spec.data_count, 4), (60, 9)))
        return Data(*(Split(x, x.mean(1, keepdim=True), x.mean(1, keepdim=True)) for x in (few, many)))

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> dict[str, Tensor]:
        return {"correct": (outputs - split.targets).abs().flatten() < 0.1}


class _MeanOfAll(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs[..., None])
        return outputs.mean(1)


class OwnLengths(Lengths):
    """As many of each length, and the loss is the model's own."""

    def samples(self, spec: RunSpec, trouble: str) -> Data:
        data = super().samples(spec, trouble)
        return Data(data.train, data.held_out.take(slice(spec.data_count)))

    def model(self, spec: RunSpec) -> nn.Module:
        return _WithLosses(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))


class _WithLosses(_MeanOfAll):
    def losses(self, batch: Split, draws: object, average: object) -> Tensor:
        loss: Tensor = (self(batch.inputs) - batch.targets).square().mean(1)
        return loss


@pytest.mark.parametrize("task", [Lengths(), OwnLengths()], ids=lambda task: type(task).__name__)
def test_samples_that_are_judged_may_have_another_shape_than_those_trained_on(task: Toy) -> None:
    spec = toy_spec(data_count=30, max_steps=120)
    specs = [dataclasses.replace(spec, lr=lr) for lr in (0.01, 1e-5)]  # one passes, and the other does not
    packed, alone = both(specs, task)
    pack = Pack(packed)
    assert pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(packed, alone, strict=True):
        twin.advance()
        assert run.result().status == twin.result().status
        assert run.result().measures == pytest.approx(twin.result().measures, rel=1e-4)
    assert {run.result().status for run in packed} == {"passed", "missed"}


def test_shapes_must_agree() -> None:
    runs = [Training(bumps("mlp", width=width), BumpTask()) for width in (8, 16)]
    with pytest.raises(ValueError, match="same shapes"):
        Pack(runs)


def test_a_pack_grows_while_that_pays_and_memory_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {1: 8.0, 2: 4.1, 4: 3.0, 8: 2.6, 16: 2.5, 32: 1.0}
    monkeypatch.setattr(packing, "_seconds_per_run_step", lambda run, size: costs[size])
    run = Training(bumps("mlp"), BumpTask())
    assert best_pack_size(run) == 8
    assert best_pack_size(run, largest=5) == 4

    def scarce(run: Training, size: int) -> float:
        if size > 2:
            raise torch.OutOfMemoryError
        return costs[size]

    monkeypatch.setattr(packing, "_seconds_per_run_step", scarce)
    assert best_pack_size(run) == 2


def test_the_size_of_a_pack_can_be_measured_beside_a_run_that_is_almost_over() -> None:
    run = Training(toy_spec(max_steps=40, stop="budget"), Toy())
    while run.step < 39:
        run.advance(0.0)
    assert packing._seconds_per_run_step(run, 2) > 0
    assert run.step == 39


def test_a_pack_on_a_gpu_grows_fourfold_and_over_a_doubling_that_gains_little(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {1: 8.0, 2: 7.9, 4: 6.0, 8: 5.0, 16: 4.8, 64: 3.9, 256: 1.0}
    asked: list[int] = []
    monkeypatch.setattr(packing, "_seconds_per_run_step", lambda run, size: asked.append(size) or costs[size])
    run = Training(bumps("mlp"), BumpTask())
    run.device = torch.device("cuda")
    assert best_pack_size(run) == 16
    assert asked == [1, 4, 16, 64]
    assert best_pack_size(run, largest=15) == 4


def test_a_gpu_that_others_slow_down_for_a_moment_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {1: 8.0, 4: 7.5, 16: 2.0, 64: 1.0, 256: 0.9, 1024: 0.1}
    monkeypatch.setattr(packing, "_seconds_per_run_step", lambda run, size: costs[size])
    run = Training(bumps("mlp"), BumpTask())
    run.device = torch.device("cuda")
    assert best_pack_size(run) == 64
    assert best_pack_size(run, largest=15) == 1


def test_steps_on_a_shared_gpu_are_timed_with_the_slices_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a millisecond of its own work come nine of others. A short step often has no wait in it, and a long one always."""
    worked = 0.0

    def now() -> float:
        return (worked + 9 * math.floor(worked)) / 1000

    class Timed:
        """A pack of n runs, of which a step takes 0.5 + 0.02 n milliseconds."""

        def __init__(self, runs: Sequence[Training]) -> None:
            self.runs, self._alone, self.unstacked, self._replay = list(runs), False, "", lambda: None

        def _close_gaps(self, runs: Sequence[Training]) -> None:
            pass

        def _can_train_steps(self, runs: Sequence[Training], end: float) -> bool:
            return True

        def _train_steps(self, runs: Sequence[Training], end: float) -> None:
            nonlocal worked
            worked += 0.5 + 0.02 * len(runs)
            runs[0].step += 1

    clock = SimpleNamespace(perf_counter=now, monotonic=now)
    monkeypatch.setattr(packing, "time", clock)
    monkeypatch.setattr(packing, "Pack", Timed)
    monkeypatch.setattr(packing, "twin", lambda run: SimpleNamespace(step=0, spec=run.spec))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    run = Training(bumps("mlp", max_steps=100_000), BumpTask())
    run.device = torch.device("cuda")
    assert packing._seconds_per_run_step(run, 64) == pytest.approx(10 * (0.5 + 0.02 * 64) / 64 / 1000, rel=0.05)
    assert best_pack_size(run) == 256


def test_the_recording_of_a_step_is_not_timed_if_looks_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a millisecond, and the one that is recorded a second."""
    now = 0.0

    class Recording:
        """A pack that looks at its runs after every step, and records the fourth one."""

        def __init__(self, runs: Sequence[Training]) -> None:
            self.runs, self._alone, self.unstacked, self._replay = list(runs), False, "", None

        def _close_gaps(self, runs: Sequence[Training]) -> None:
            pass

        def _can_train_steps(self, runs: Sequence[Training], end: float) -> bool:
            self._train_steps(runs, end)
            return True

        def _train_steps(self, runs: Sequence[Training], end: float) -> None:
            nonlocal now
            runs[0].step += 1
            now += 1.0 if runs[0].step == packs.WARM_UP + 1 else 0.001
            if runs[0].step > packs.WARM_UP:
                self._replay: Any = print

    monkeypatch.setattr(packing, "time", SimpleNamespace(perf_counter=lambda: now, monotonic=lambda: now))
    monkeypatch.setattr(packing, "Pack", Recording)
    monkeypatch.setattr(packing, "twin", lambda run: SimpleNamespace(step=0, spec=run.spec))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    run = Training(bumps("mlp", max_steps=100_000), BumpTask())
    run.device = torch.device("cuda")
    assert packing._seconds_per_run_step(run, 1) == pytest.approx(0.001)


def test_the_measurement_of_a_pack_is_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TIMED_SECONDS", 0.05)
    run, untouched = both([bumps("mlp", N=16, width=256)], BumpTask())
    alone, many = (packing._seconds_per_run_step(run[0], size) for size in (1, 8))
    assert 0 < many < 10 * alone < 1
    assert run[0].step == 0
    assert distance(run[0], untouched[0]) == 0


def test_the_measurement_leaves_no_gradients_of_a_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TIMED_SECONDS", 0.01)
    [run], _ = both([low_rank(options={"lambda_variance": 0.1})], RegularizationTask())
    packing._seconds_per_run_step(run, 1)
    assert all(p.grad is None for p in run.model.parameters())


def test_batching_without_a_rule_is_an_error() -> None:
    """What vmap would run one by one comes as a warning, which the settings of these tests turn into an error."""
    with pytest.raises(UserWarning, match="performance drop"):
        torch.func.vmap(torch.bincount)(torch.zeros(2, 3, dtype=torch.int64))


class Recurrent(Toy):
    """Its network has no batching rule."""

    def model(self, spec: RunSpec) -> nn.Module:
        return Last(nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 1))


class Last(nn.Module):
    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.norm, self.body, self.head = nn.BatchNorm1d(1), body, head

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(self.norm(x)[..., None])[0][:, -1])
        return found


class Branching(Toy):
    """Its network asks for the value of a tensor."""

    def model(self, spec: RunSpec) -> nn.Module:
        return Doubling(1, 1)


class Doubling(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        found = super().forward(x)
        return 2 * found if found.sum() > 0 else found


@pytest.mark.parametrize(("task", "why"), [(Recurrent(), "Batching rule not implemented"), (Branching(), "data-dependent")])
def test_what_cannot_be_stacked_is_trained_one_by_one_as_alone(task: Toy, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TIMED_SECONDS", 0.01)
    specs = [
        RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=s, width=1, options=tuple(Toy.defaults.items()),
                max_steps=30 + 10 * s, batch_size=4, stop="budget")
        for s in (0, 1)
    ]  # fmt: skip
    together, alone = both(specs, task)
    assert best_pack_size(together[0]) == 1
    pack = Pack(together)
    while not pack.advance(0.01):
        pass
    assert why in pack.unstacked
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert (run.step, run.curve_loss) == (twin.step, twin.curve_loss)
        states = zip(run.model.state_dict().values(), twin.model.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in states)


class Featured(Toy):
    """Its network has random features, as a plain tensor, and a word of its own data."""

    def model(self, spec: RunSpec) -> nn.Module:
        return _Features(spec.data_count)


class _Features(nn.Linear):
    def __init__(self, count: int) -> None:
        super().__init__(8, 1)
        self.features, self.notes = torch.randn(1, 8), [count]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x @ self.features).cos())


def test_runs_whose_networks_hold_other_plain_tensors_are_trained_one_by_one() -> None:
    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                   max_steps=60, stop="budget", lr=0.01)  # fmt: skip
    together, alone = both([spec, dataclasses.replace(spec, seed=1)], Featured())
    pack = Pack(together)
    assert pack.unstacked == "attributes of its model differ from run to run: features"
    pack.advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.curve_loss == twin.curve_loss
    same, _ = both([spec, dataclasses.replace(spec, lr=0.02)], Featured())
    assert Pack(same).unstacked == ""


class Scaled(nn.Linear):
    """A line whose outputs are scaled by what `scale` gives for it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale()

    def scale(self) -> Any:
        raise NotImplementedError


def _private(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return self._share

    model = Model(1, 1)
    model._share = 1 / count
    return model


def _listed(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return self.kept["of all"][0]

    model = Model(1, 1)
    model.kept = {"of all": [torch.tensor(1 / count)]}
    return model


def _enclosed(count: int) -> nn.Module:
    share = 1 / count

    class Model(Scaled):
        def scale(self) -> Any:
            return share

    return Model(1, 1)


def _given_a_function(count: int) -> nn.Module:
    share = torch.tensor(1 / count)

    class Model(Scaled):
        def scale(self) -> Any:
            return self.function()

    model = Model(1, 1)
    model.function = lambda: share
    return model


def _of_its_class(count: int) -> nn.Module:
    class Model(Scaled):
        share = 1 / count

        def scale(self) -> Any:
            return self.share

    return Model(1, 1)


def _unregistered(count: int) -> nn.Module:
    """With a network in a list, as one is put there that is not to be trained."""

    class Model(Scaled):
        def scale(self) -> Any:
            return self.parents[0].bias.detach()

    model, parent = Model(1, 1), nn.Linear(1, 1)
    nn.init.constant_(parent.bias, 1 / count)
    model.parents = [parent]
    return model


def _holding_its_weight(count: int) -> nn.Module:
    """The same in all runs, and not where it is trained."""

    class Model(Scaled):
        def scale(self) -> Any:
            return self.weights[0].sum()

    model = Model(1, 1)
    nn.init.ones_(model.weight)
    model.weights = [model.weight]
    return model


class _Share:
    def __init__(self, count: int) -> None:
        self.share = 1 / count


def _object(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return self.held.share

    model = Model(1, 1)
    model.held = _Share(count)
    return model


def _penalised_by_an_object(count: int) -> nn.Module:
    class Model(nn.Linear):
        def penalty(self) -> Tensor:
            return self.held.share * self.weight.square().sum()

    model = Model(1, 1)
    model.held = _Share(count)
    return model


def _replacing_a_buffer(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            if self.training:
                self.rate = 0.9 * self.rate + 0.1
            return self.rate

    model = Model(1, 1)
    model.register_buffer("rate", torch.tensor(0.5))
    return model


def _with_a_buffer_of_its_size(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return self.ones.mean()

    model = Model(1, 1)
    model.register_buffer("ones", torch.ones(count))
    return model


def _with_a_buffer_of_its_type(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return self.ones.float().mean()

    model = Model(1, 1)
    model.register_buffer("ones", torch.ones(2, dtype=torch.float if count == 9 else torch.double))
    return model


def _packed_with_a_buffer_of_its_size(count: int) -> nn.Module:
    model = Forgetful(1, 1)
    model.register_buffer("ones", torch.ones(count))
    return model


def _with_rows_in_a_buffer(count: int) -> nn.Module:
    class Model(Scaled):
        def scale(self) -> Any:
            return (self.rows @ torch.ones(2, 1)).mean()

    model = Model(1, 1)
    model.register_buffer("rows", torch.eye(2).to_sparse(), persistent=False)
    return model


DIFFERING = "attributes of its model differ from run to run: "
UNSTACKED = {
    _private: DIFFERING + "_share",
    _listed: DIFFERING + "kept",
    _enclosed: DIFFERING + "share in scale",
    _given_a_function: DIFFERING + "function",
    _of_its_class: DIFFERING + "share",
    _unregistered: DIFFERING + "parents",
    _holding_its_weight: DIFFERING + "weights",
    _with_a_buffer_of_its_size: "its buffer ones has another shape or type from run to run",
    _with_a_buffer_of_its_type: "its buffer ones has another shape or type from run to run",
    _packed_with_a_buffer_of_its_size: "its buffer ones has another shape or type from run to run",
    _with_rows_in_a_buffer: "its buffer rows is sparse",
    _object: "the loss of a run is ",
    _penalised_by_an_object: "the penalty of a run is ",
    _replacing_a_buffer: "its model replaces its buffer rate in a step: change it in place, as by copy_()",
}


class Forgetful(nn.Linear):
    """It has a batched form, and its optimizer a memory of its own."""

    def packed(self, state: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.baddbmm(state["bias"][:, None], inputs, state["weight"].mT)


def _forgetful(count: int) -> nn.Module:
    model = Forgetful(1, 1)
    model.beta2 = 0.999 if count == 9 else 0.5
    return model


def test_runs_that_differ_in_what_their_optimizers_remember_are_trained_as_alone() -> None:
    spec = toy_spec(max_steps=40)
    together, alone = both([spec, dataclasses.replace(spec, data_count=3)], Made(_forgetful))
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-6
    assert distance(together[0], together[1]) > 1e-3


class Made(Toy):
    """Its network is made by a function of the data count."""

    def __init__(self, make: Callable[[int], nn.Module]) -> None:
        self.make = make

    def model(self, spec: RunSpec) -> nn.Module:
        return self.make(spec.data_count)


@pytest.mark.parametrize("make", UNSTACKED, ids=lambda make: make.__name__)
def test_runs_whose_networks_use_what_differs_are_trained_as_alone(make: Callable[[int], nn.Module]) -> None:
    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                   max_steps=20, stop="budget", lr=0.01)  # fmt: skip
    together, alone = both([spec, dataclasses.replace(spec, data_count=3, lr=0.02)], Made(make))
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked.startswith(UNSTACKED[make])
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert (run.curve_loss, run.result()) == (twin.curve_loss, twin.result())


class Squashed(MLP):
    def forward(self, code: Tensor) -> Tensor:
        images: Tensor = super().forward(code)
        return images.sigmoid()


class Gated(MLP):
    """Its gate is closed at first, so that its first loss is that of its parent."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self.register_parameter("gate", nn.Parameter(torch.zeros(())))

    def forward(self, code: Tensor) -> Tensor:
        images: Tensor = super().forward(code)
        return images + self.gate * images.square()


class Wide(MLP):
    """It differs in how it is made alone."""

    def __init__(self, code_length: int, N: int, depth: int, width: int) -> None:
        super().__init__(code_length, N, depth, 2 * width)


class Held(MLP):
    """A penalty is no part of the forward pass."""

    def penalty(self) -> Tensor:
        return 0.01 * self[0].weight.square().sum()


class Smooth(MLP):
    """Its layers are others, which its first loss does not tell."""

    def __init__(self, *shape: int) -> None:
        super().__init__(*shape)
        self[1] = nn.GELU()
        nn.init.zeros_(self[4].weight)


class Told(MLP):
    def extra_repr(self) -> str:
        return "a word that changes nothing"


def _further(*shape: int) -> nn.Module:
    return MLP(*shape).append(nn.Sigmoid())


def _patched(*shape: int) -> nn.Module:
    model = MLP(*shape)
    model[1].forward = functional.gelu  # type: ignore[method-assign]
    return model


def _hooked(*shape: int) -> nn.Module:
    model = MLP(*shape)
    model[1].register_forward_hook(lambda layer, inputs, outputs: 0.5 * outputs)
    return model


def _shifted(*shape: int) -> nn.Module:
    """The model itself has another forward pass than its class."""
    model, plain = MLP(*shape), MLP.forward
    model.forward = lambda code: plain(model, code) + 0.5  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(
    ("make", "inherits"),
    [
        (MLP, True), (Squashed, False), (Gated, False), (Wide, True), (Held, True), (Smooth, False), (Told, True),
        (_further, False), (_patched, False), (_hooked, False), (_shifted, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_batched_form_is_inherited_only_with_what_it_is_the_form_of(
    make: Callable[..., nn.Module], inherits: bool
) -> None:
    class Derived(BumpTask):
        def model(self, spec: RunSpec) -> nn.Module:
            return make(2 * spec.N, spec.N, spec.depth, spec.width)

    together, alone = both([bumps("mlp", seed=s, width=8, max_steps=100, stop="budget") for s in (0, 1)], Derived())
    own = getattr(batched.Batched(together[0])._forward, "__func__", None)
    assert (own is MLP.packed) == inherits
    pack = Pack(together)
    pack.advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-3
        assert run.result().loss == pytest.approx(twin.result().loss, rel=1e-3)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Smooth, "its type is another from run to run"),
        (_further, "its layer 6 is another from run to run"),
        (_hooked, "the loss of a run is "),
        (_patched, "the loss of a run is "),
    ],
)
def test_layers_that_differ_from_run_to_run_are_trained_as_they_are_alone(other: Callable[..., nn.Module], why: str) -> None:
    class Either(BumpTask):
        def model(self, spec: RunSpec) -> nn.Module:
            return (MLP if spec.seed == 0 else other)(2 * spec.N, spec.N, spec.depth, spec.width)

    together, alone = both([bumps("mlp", seed=s, width=8, max_steps=100, stop="budget") for s in (0, 1)], Either())
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked.startswith(why)
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.result().loss == twin.result().loss


class Weighted(LowRank):
    def penalty(self) -> Tensor:
        return super().penalty() + 0.1 * self.strengths.abs().sum()


def test_a_batched_penalty_is_inherited_only_with_the_penalty() -> None:
    class Derived(RegularizationTask):
        def model(self, spec: RunSpec) -> nn.Module:
            return Weighted(spec.N, spec.N, channels=spec.width, depth=spec.depth, entropy_weight=0.1, variance_weight=0.1)

    together, alone = both([low_rank(seed=s, max_steps=50) for s in (0, 1)], Derived())
    Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-3


def _of_infinite_loss(count: int) -> nn.Module:
    model = _object(count)
    model.held.share = 1.0 if count == 9 else float("inf")
    return model


def _with_a_state_of_its_own(count: int) -> nn.Module:
    class Model(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"count": count}

        def set_extra_state(self, state: dict[str, int]) -> None:
            pass

    return Model(1, 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_of_infinite_loss, "the loss of a run is inf alone"),
        (_with_a_state_of_its_own, "its model has a state in get_extra_state"),
    ],
)
def test_an_infinite_loss_and_a_state_of_its_own_are_no_matter_of_a_pack(make: Callable[[int], nn.Module], why: str) -> None:
    spec = toy_spec(max_steps=20)
    together, _ = both([spec, dataclasses.replace(spec, data_count=3)], Made(make))
    pack = Pack(together)
    pack.advance(0)
    assert pack.unstacked.startswith(why)


def toy_spec(**changes: Any) -> RunSpec:
    fields = {"task": "tests.toy:Toy", "dataset": "toys", "N": 8, "data_count": 9, "seed": 0, "stop": "budget", "lr": 0.01}
    return RunSpec(**fields | {"options": tuple(Toy.defaults.items())} | changes)


def _deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"more": found}
    return found


def _doubled(times: int, first: int = 1) -> list[Any]:
    found: list[Any] = [first]
    for _ in range(times):
        found = [found, found]
    return found


class _Untellable(float):
    def __repr__(self) -> str:
        raise ArithmeticError


HELD: dict[str, Callable[[], Any]] = {
    "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "without numbers": lambda: [torch.empty(3, device="meta")],
    "deep": lambda: _deep(2000),
    "doubled": lambda: _doubled(60),
    "many words": lambda: {str(i): i for i in range(200_000)},
    "many lists": lambda: [[[i] for i in range(300)] for _ in range(300)],
    "objects": lambda: np.array(["".join(("a", "b")), None], dtype=object),
    "huge": lambda: 10**5000,
    "untellable": lambda: _Untellable(),
}


@pytest.mark.parametrize("name", HELD)
def test_whatever_a_network_holds_it_can_be_trained_and_is_looked_at_in_no_time(name: str) -> None:
    def make(count: int) -> nn.Module:
        model = nn.Linear(1, 1)
        model.held = held[len(made) % 2]
        made.append(model)
        return model

    held, made = (HELD[name](), HELD[name]()), []  # type: ignore[var-annotated]
    runs, _ = both([toy_spec(max_steps=4), toy_spec(max_steps=4, seed=1)], Made(make))
    began = time.process_time()
    assert differing([run.model for run in runs]) == []
    assert time.process_time() - began < 1
    pack = Pack(runs)
    assert pack.advance()
    assert pack.unstacked == ""
    assert Pack([Training(toy_spec(max_steps=4), Made(make))]).advance()


def test_what_differs_is_told_from_what_is_the_same() -> None:
    table, many = torch.rand(9), list(range(200_000))

    def make(**held: Any) -> nn.Module:
        model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        vars(model).update(held)
        model.one, model.other = [table, model[0]], {"a": [table]}
        return model

    def told(ours: Any, theirs: Any) -> list[str]:
        return differing([make(held=ours), make(held=theirs)])

    shared = [1]
    assert told([shared, shared], [[1], [1]]) == []
    assert told([shared, [2]], [shared, [3]]) == ["held"]
    assert told((1, {2, 3}), (1, {3, 2})) == []
    assert told([1], {1}) == ["held"]
    assert told(np.array(["a", 1.5], dtype=object), np.array(["a", 2.5], dtype=object)) == ["held"]
    assert told(torch.ones(2).cfloat() * 1j, (torch.ones(2).cfloat() * 1j).conj()) == ["held"]
    assert told([many, 1], [many[1:], 2]) == [], "too large to tell"
    some = many[:15_000]
    assert told([some, many[:9_000]], [some, many[:9_000]]) == [], "told of the second one alone"
    assert told(_doubled(60), _doubled(60, first=2)) == ["held"]
    assert told([torch.empty(3, device="meta"), 1], [torch.empty(3, device="meta"), 2]) == ["held"]
    assert differing([make(held=_Untellable(), further=n) for n in (1, 2)]) == ["further"]
    ours, theirs = make(), make()
    ours.chosen, theirs.chosen = [ours[0]], [theirs[1]]
    assert differing([ours, theirs]) == ["chosen"]
    ours.chosen, theirs.chosen = [ours[1]], [theirs[1]]
    assert differing([ours, theirs]) == []


def test_one_run_alone_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "differing", lambda models: pytest.fail("it was looked at"))
    pack = Pack([Training(toy_spec(max_steps=4), Made(_holding_its_weight))])
    assert pack.advance()
    assert pack.unstacked == ""


@pytest.mark.parametrize("make", [_holding_its_weight, _replacing_a_buffer], ids=lambda make: make.__name__)
def test_no_time_is_taken_of_packs_that_train_their_runs_alone(
    make: Callable[[int], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "TIMED_SECONDS", 0.0)
    monkeypatch.setattr(packing, "GAIN", 1e9)
    run = Training(toy_spec(max_steps=40), Made(make))
    with pytest.raises(ValueError, match="it is trained alone"):
        packing._seconds_per_run_step(run, 2)
    assert best_pack_size(run, 4) == 1
    assert best_pack_size(Training(toy_spec(max_steps=40), Made(lambda count: nn.Linear(1, 1))), 4) == 4


def test_what_networks_hold_is_no_hindrance_where_it_is_the_same_or_not_used() -> None:
    def make(count: int) -> nn.Module:
        width, seen = torch.ones(2), (count, torch.rand(3))

        class Model(nn.Linear):
            notes = ["a", {"b": 2}]

            def __init__(self) -> None:
                super().__init__(1, 1)
                self._width, self.size, self.whole = [width, {"a": 1}], len(seen), [self]
                self.count = _Share(count)

            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) * width.mean()

        return nn.Sequential(Model(), nn.Linear(1, 1))

    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                   max_steps=40, batch_size=4, stop="budget", lr=0.01)  # fmt: skip
    together, alone = both([spec, dataclasses.replace(spec, data_count=30, seed=1)], Made(make))
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.curve_loss == pytest.approx(twin.curve_loss, rel=1e-4)


class Counting(Toy):
    """Its network counts, keeps batch statistics, and is random at the beginning."""

    def model(self, spec: RunSpec) -> nn.Module:
        class Model(nn.Sequential):
            calls = 0

            def forward(self, x: Tensor) -> Tensor:
                self.calls += 1
                found: Tensor = super().forward(x)
                return found

        return Model(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def test_to_compare_the_first_losses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                   max_steps=40, batch_size=4, stop="budget", lr=0.01)  # fmt: skip
    compared, others = both([spec, dataclasses.replace(spec, seed=1)], Counting())
    torch.manual_seed(3)
    before = torch.get_rng_state()
    Pack(compared).advance()
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(Pack, "_unlike", lambda self: "")
    Pack(others).advance()
    for run, other in zip(compared, others, strict=True):
        assert (run.curve_loss, run.model.calls) == (other.curve_loss, other.model.calls)
        states = zip(run.model.state_dict().values(), other.model.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in states)


@pytest.mark.slow(3)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rounding_is_no_difference_not_even_in_runs_that_are_fitted(precision: str) -> None:
    task = Chords()
    fields = spec_fields(task, {"decoder": "mlp"})
    specs = [RunSpec(task="examples.own_task:Chords", N=5, data_count=9, seed=s, lr=3e-3, max_steps=1000, stop="budget",
                     precision=precision, **fields) for s in range(4)]  # fmt: skip
    runs, _ = both(specs, task)
    for _ in range(3):
        pack = Pack(runs)
        pack.advance(0)
        while runs[0].step % 100:
            pack.advance(0)
        assert pack.unstacked == ""
        pack._let_go(runs)


class Frozen(Toy):
    """Its network has a part that stays in eval mode, as a parent does."""

    def model(self, spec: RunSpec) -> nn.Module:
        body = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.ReLU()).requires_grad_(False).eval()
        return nn.Sequential(body, nn.BatchNorm1d(8), nn.Linear(8, 1))


def test_a_part_that_is_in_eval_mode_stays_so_alone_packed_and_resumed() -> None:
    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                   max_steps=60, batch_size=4, stop="budget", lr=0.01)  # fmt: skip
    together, alone = both([spec, dataclasses.replace(spec, seed=1)], Frozen())
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(together, alone, strict=True):
        again = Training(twin.spec, twin.task)
        while twin.step < 30:
            twin.advance(0.0)
        again.load_state_dict(twin.state_dict())
        for one in (twin, again):
            one.advance()
        assert twin.curve_loss == again.curve_loss
        assert run.curve_loss == pytest.approx(twin.curve_loss, rel=1e-4)
        for one in (run, twin):
            frozen, free = (int(one.model.get_buffer(f"{name}.num_batches_tracked")) for name in ("0.1", "1"))
            assert (frozen, free) == (0, 60)


class Broken(Toy):
    """Its network cannot be trained at all."""

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(2, 1)


def test_a_pack_whose_runs_fail_alone_too_fails() -> None:
    spec = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()))
    together, _ = both([spec, dataclasses.replace(spec, seed=1)], Broken())
    assert best_pack_size(together[0]) == 1
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Pack(together).advance()


FULL = (
    "CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "Cannot: Out of memory",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)  # fmt: skip


@pytest.mark.parametrize("words", FULL)
def test_a_first_step_for_which_memory_is_too_small_does_not_say_that_runs_cannot_be_stacked(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Pack) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(Pack, "_compute", fail)
    specs, task = PACKS["any model"]
    pack = Pack([Training(spec, task) for spec in specs])
    with pytest.raises(RuntimeError) as caught:
        pack.advance()
    assert is_out_of_memory(caught.value)
    assert not pack.unstacked


def test_memory_that_is_full_is_told_from_other_errors() -> None:
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))


INVALID = "CUDA error: operation failed due to a previous error during capture"


def test_full_memory_in_a_recording_is_found_behind_the_error_that_ends_it() -> None:
    def caught(*raised: BaseException) -> BaseException:
        """The last of some errors, each raised while the one before is handled."""
        *before, last = raised
        try:
            try:
                if before:
                    raise caught(*before)
            finally:
                raise last
        except BaseException as error:
            return error

    full, other = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB"), ValueError("no such layer")
    assert is_out_of_memory(caught(full, RuntimeError(INVALID)))
    assert is_out_of_memory(caught(full, RuntimeError(INVALID), RuntimeError(INVALID)))
    assert not is_out_of_memory(caught(other, RuntimeError(INVALID)))
    assert not is_out_of_memory(caught(full, RuntimeError("CUDA error: an illegal memory access was encountered")))
    assert not is_out_of_memory(caught(full, ValueError(INVALID)))
    assert not is_out_of_memory(RuntimeError(INVALID))
    one, two = RuntimeError(INVALID), RuntimeError(INVALID)
    one.__cause__, two.__cause__ = two, one
    assert not is_out_of_memory(one)


class Cuda:
    """What records and replays steps on a GPU, here on a CPU: a step that is recorded is not done, and a replay does it.

    A recording that fails says so at its beginning and, as in torch, leaves its own stream as the current one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: str) -> None:
        self.errors = list(errors)
        """Of each recording the words of the error with which it fails; empty if it does not. Later ones do not."""
        self.current: Any = "of the process"
        self.recorded: Pack | None = None
        self.recordings = self.streams = 0
        done = Pack._compute

        def compute(pack: Pack) -> None:
            if self.current == "of the recording":
                self.recorded = pack
            else:
                done(pack)

        def replay() -> None:
            assert self.recorded is not None
            done(self.recorded)

        monkeypatch.setattr(Pack, "_compute", compute)
        for name in ("current_stream", "set_stream", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "Stream", self.new_stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=replay))
        self.draws = True
        """Whether the generator of the GPU may be drawn from: as in torch, not after a recording that failed."""
        generator = SimpleNamespace(clone_state=lambda: "a copy", graphsafe_set_state=self.set_state)
        monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def set_state(self, state: Any) -> None:
        assert self.current == "of the process"
        self.draws = state == "a copy"

    def new_stream(self, *_: object) -> Any:
        self.streams += 1
        return SimpleNamespace(wait_stream=lambda other: None)

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None, name=self.current)

    def set_stream(self, stream: Any) -> None:
        self.current = stream.name

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.recordings += 1
        before, self.current = self.current, "of the recording"
        if error := self.errors.pop(0) if self.errors else "":
            self.draws = False
            raise RuntimeError(error)
        yield
        self.current = before

    def pack(self, specs: Sequence[RunSpec], task: Task) -> Pack:
        pack = Pack([Training(spec, task) for spec in specs])
        pack.on_gpu = True
        return pack


NOT_RECORDED = "CUDA error: operation not permitted when stream is capturing"


@pytest.mark.parametrize("seconds", [None, 0.0])
@pytest.mark.parametrize("errors", [(NOT_RECORDED,), ("", NOT_RECORDED)])
def test_runs_whose_step_cannot_be_recorded_go_on_alone_from_where_they_are(
    errors: Sequence[str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first slice or a later one; and where it is recorded anew as runs have ended."""
    cuda = Cuda(monkeypatch, *errors)
    specs = [bumps("mlp", seed=seed, data_count=40, stop="budget", max_steps=20 + 20 * seed) for seed in range(3)]
    pack = cuda.pack(specs, BumpTask())
    while not pack.advance(seconds):
        pass
    assert cuda.recordings == len(errors)
    assert pack.unstacked == f"RuntimeError: {NOT_RECORDED}"
    assert (cuda.current, cuda.draws) == ("of the process", True)
    _, alone = both(specs, BumpTask())
    for run, twin in zip(pack.runs, alone, strict=True):
        twin.advance()
        assert (run.step, run.curve_step) == (twin.step, twin.curve_step)
        assert distance(run, twin) < 1e-3


def test_a_recording_for_which_memory_is_too_small_does_not_say_that_runs_cannot_be_stacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda(monkeypatch, "CUDA out of memory")
    pack = cuda.pack([bumps("mlp", seed=seed) for seed in range(2)], BumpTask())
    for _ in range(packs.WARM_UP):
        assert not pack.advance(0.0)
    with pytest.raises(RuntimeError, match="out of memory"):
        pack.advance(0.0)
    assert not pack.unstacked
    assert (cuda.current, cuda.draws) == ("of the process", True)


def test_packs_warm_up_on_one_stream_and_set_a_rate_that_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    packs._warm_up_stream.cache_clear()
    cuda, rates = Cuda(monkeypatch), list[float]()
    was = packs.set_learning_rate
    monkeypatch.setattr(packs, "set_learning_rate", lambda optimizer, rate: (rates.append(rate), was(optimizer, rate)))
    spec = bumps("mlp", stop="budget", max_steps=40, schedule="constant")
    specs = [dataclasses.replace(spec, seed=seed, lr=lr) for seed, lr in ((0, 1e-3), (1, 2e-3))]
    for _ in range(2):
        pack = cuda.pack(specs, BumpTask())
        assert pack.advance()
        assert pack._replay is not None
    packs._warm_up_stream.cache_clear()
    assert (cuda.recordings, cuda.streams) == (2, 1)
    assert rates == [1e-3, 2e-3, 1e-3, 2e-3]
    rates.clear()
    assert cuda.pack([dataclasses.replace(spec, schedule="cosine") for spec in specs], BumpTask()).advance()
    assert len(rates) == 80


def rotation(**changes: Any) -> RunSpec:
    task = RotationTask()
    fields: dict[str, Any] = {
        "task": "trainables.rotation:RotationTask", "dataset": "rotation", "N": 8, "data_count": 0, "seed": 0, "width": 4,
        "decoder": "rotation-cnn", "encoding": "angle", "holdout": "arc", "stop": "budget", "max_steps": 40,
        "options": tuple({**task.defaults, "angles": 60}.items()),
    }  # fmt: skip
    spec = RunSpec(**fields | changes)
    return spec.with_count(task.counts(spec).low)


@pytest.mark.slow(1)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_buffers_such_as_batch_statistics_leave_the_pack_with_their_run(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a run that has left stays in the stack for a while."""
    monkeypatch.setattr(Pack, "_step", Pack._compute)
    specs = [rotation(seed=s, max_steps=12 + 6 * s) for s in (0, 1, 2)]
    together, alone = both(specs, RotationTask())
    pack = Pack(together)
    pack.on_gpu = on_gpu
    pack.advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        for name, buffer in twin.model.named_buffers():
            assert torch.allclose(run.model.get_buffer(name).double(), buffer.double(), atol=1e-2), name
        again = run.task.model(run.spec)
        again.load_state_dict(run.model.state_dict())
        with torch.no_grad():
            error = (again.eval()(run.held_out.inputs) - run.held_out.targets).square().mean().item()
        assert error == pytest.approx(run.result().ood_mse, rel=1e-4)


@pytest.mark.parametrize(("dtype", "found"), [(torch.float32, torch.bfloat16), (torch.float64, torch.float64)])
def test_layers_of_a_pack_have_the_precision_that_they_have_alone(dtype: torch.dtype, found: torch.dtype) -> None:
    """On a GPU, where this is asked for."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)
    state = {name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in model.named_parameters()}
    inputs = torch.randn(2, 5, 8, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        with batched._InCoarsePrecision():
            together = torch.func.vmap(lambda some, x: torch.func.functional_call(model, some, (x,)))(state, inputs)
        alone = model(inputs[0])
    assert together.dtype == alone.dtype == found
    assert torch.allclose(together[0].double(), alone.double(), atol=1e-2 if found == torch.bfloat16 else 1e-12)


def test_every_run_of_a_pack_has_the_decay_of_its_own_average() -> None:
    def averaged(count: int) -> nn.Module:
        model = _forgetful(count)
        model.ema = 0.9 if count == 9 else 0.5
        return model

    run = RunSpec(
        task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()), max_steps=40,
        stop="budget", lr=0.01,
    )  # fmt: skip
    together, alone = both([run, dataclasses.replace(run, data_count=3)], Made(averaged))
    assert Pack(together).advance()
    for one, twin in zip(together, alone, strict=True):
        twin.advance()
        for name, p in one.network.named_parameters():
            assert torch.allclose(p, twin.network.get_parameter(name), atol=1e-5), name
