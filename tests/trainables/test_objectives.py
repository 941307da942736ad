"""A task's own objective: its loss, what it draws, the average that it keeps, and what is looked at."""

from __future__ import annotations

import copy
import dataclasses
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from orchestrator.engine.messages import RunOrder
from orchestrator.engine.worker import PackTrainable, _apart
from orchestrator.store.rows import decode, encode, make_row
from tests.conftest import ROOT
from tests.toy import Toy
from trainables import check
from trainables.check import check_task
from trainables.needs import Parent, trained
from trainables.objectives import average_of, follow
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split, Task, load_task
from trainables.training.checkpoint import check_saved
from trainables.training.loop import Training
from trainables.training.pack_size import best_pack_size
from trainables.training.packs import Pack
from trainables.training.result import RunResult
from trainables.training.schedule import batch_indices
from trainables.training.seeds import stream, stream_seed
from trainables.training.stopping import class_entropy

POINTS, CLASSES = 100, 3
DECAY = 0.8


class Regressor(nn.Sequential):
    """The squared error, and an average of the parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.ema = DECAY


class Denoiser(nn.Module):
    """Targets from noisy ones and a time, drawn towards what the teacher says; sampled from noise."""

    ema = DECAY

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, inputs: Tensor, noisy: Tensor, times: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        outputs: Tensor = self.net(torch.cat([inputs, noisy, times], 1)) + 0.001 * self.steps
        return outputs

    def draws(self, batch: Split, generator: torch.Generator) -> tuple[Tensor, ...]:
        n, values = batch.targets.shape
        return tuple(torch.rand(n, k, generator=generator, dtype=batch.targets.dtype) for k in (values, 1))

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        noise, times = draws
        noisy = times * noise + (1 - times) * batch.targets
        found = self(batch.inputs, noisy, times)
        assert teacher is not None
        pull = (found - teacher(batch.inputs, noisy, times)).square().mean(1)
        return (found - batch.targets).square().mean(1) + 0.1 * pull

    def sample(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.rand(len(inputs), 2, generator=generator, dtype=inputs.dtype)
        return self(inputs, noise, torch.ones_like(noise[:, :1]))


class Dropping(nn.Sequential):
    draws_inside = True

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))


class Calm(nn.Linear):
    """Its loss has noise in training alone."""

    def __init__(self) -> None:
        super().__init__(3, 2)

    def draws(self, batch: Split, generator: torch.Generator) -> tuple[Tensor, ...]:
        noise = torch.randn(batch.targets.shape, generator=generator)
        return (noise if self.training else torch.zeros_like(noise),)

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        return (self(batch.inputs) + draws[0] - batch.targets).square().mean(1)


class Counted(Regressor):
    """It holds whole numbers and bools as parameters, which nothing trains."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor([1, 2, 3]), requires_grad=False)
        self.used = nn.Parameter(torch.tensor([True, True, False]), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs * self.factors * self.used)
        return outputs


class Points:
    """Two functions of three coordinates, or which of three values is the largest."""

    version = "1"
    choices = {"dataset": ("points",), "decoder": ("linear",), "encoding": ("none",), "holdout": ("random",)}
    defaults: dict[str, Any] = {}
    made: type[nn.Module] = Regressor

    def preset(self, dataset: str, decoder: str) -> Mapping[str, Any]:
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=POINTS - 10)

    def data(self, spec: RunSpec) -> Data:
        inputs = torch.randn(POINTS, 3, generator=stream(spec.seed, "points"))
        split = Split(inputs, self.targets(inputs), inputs)
        return Data(Split(*(t[: spec.data_count] for t in split)), Split(*(t[spec.data_count :] for t in split)))

    def targets(self, inputs: Tensor) -> Tensor:
        return torch.stack([inputs.sum(1).tanh(), inputs.prod(1)], 1)

    def model(self, spec: RunSpec) -> nn.Module:
        return self.made()

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        error = (outputs - split.targets).abs().mean(1)
        return {"correct": error < 0.3, "mse": (outputs - split.targets).square().mean(1)}


class Noisy(Points):
    made = Denoiser


class Dropped(Points):
    made = Dropping


class Calmed(Points):
    made = Calm


class OfCounted(Points):
    made = Counted


class Clamped(Points):
    """Judged by outputs that are not far from 0."""

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return super().measure(spec, self.near(outputs), split)

    def near(self, outputs: Tensor) -> Tensor:
        return outputs.clamp(-0.1, 0.1)


class ClampedInPlace(Clamped):
    def near(self, outputs: Tensor) -> Tensor:
        return outputs.clamp_(-0.1, 0.1)


class Largest(Points):
    loss = "cross-entropy"

    def targets(self, inputs: Tensor) -> Tensor:
        return inputs.argmax(1)

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(3, CLASSES)

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": outputs.argmax(1) == split.targets}


class Grouped(Points):
    """Summarised in two groups."""

    def summarise(self, spec: RunSpec, measures: Mapping[str, Tensor], split: Split) -> Mapping[str, float]:
        left = split.inputs[:, 0] < 0
        return {name: measures["mse"][group].mean().item() for name, group in (("left", left), ("right", ~left))}


class Looked(Grouped, Noisy):
    """Judged on other points, and seldom."""

    def judged(self, spec: RunSpec) -> Data:
        return Data(*(Split(split.inputs[:7] + 0.1, split.targets[:7], split.truth[:7]) for split in super().data(spec)))

    def looks(self, spec: RunSpec) -> int:
        return 40


class Afresh(Looked):
    """Sampled with other noise at every look."""

    def model(self, spec: RunSpec) -> nn.Module:
        made = Denoiser()
        made.samples_afresh = True  # type: ignore[assignment]
        return made


def spec(**changes: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "task": "tests:Points", "dataset": "points", "N": 8, "data_count": 60, "seed": 0, "decoder": "linear",
        "depth": 0, "width": 1, "encoding": "none", "batch_size": 16, "lr": 0.01, "max_steps": 50, "stop": "budget",
    }  # fmt: skip
    return RunSpec(**fields | changes)


def double(run: Training) -> Training:
    """The run in float64, where rounding tells no tales."""

    def wide(split: Any) -> Any:
        return type(split)(*(t.double() if t.is_floating_point() else t for t in split))

    run.model.double()
    if run.average is not None:
        run.average.double()
    run.train, run.held_out, run.subset = wide(run.train), wide(run.held_out), wide(run.subset)
    if run.own_loss:
        run.unseen, run.unseen_subset = wide(run.unseen), wide(run.unseen_subset)
    run.loss_sum = run.loss_sum.double()
    return run


def distance(one: nn.Module, other: nn.Module) -> float:
    """Largest distance of a parameter or a buffer from its twin, relative to its length."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(((p - q).norm() / q.norm()).item() for p, q in pairs)


def finished(run: RunSpec, task: Points) -> tuple[Training, RunResult]:
    training = Training(run, task)
    assert training.advance()
    return training, training.result()


RUNS = [spec(seed=s, data_count=d, lr=r) for s, d, r in ((0, 60, 0.01), (1, 60, 0.02), (1, 25, 0.01), (2, 7, 0.01))]


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    ("task", "on_gpu"),
    [(Noisy(), False), (Noisy(), True), (Largest(), False), (Grouped(), False)],
    ids=lambda value: type(value).__name__ if isinstance(value, Points) else str(value),
)
def test_a_pack_of_four_trains_as_each_does_alone(task: Points, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU all but the recording of steps, which needs one."""
    monkeypatch.setattr(Pack, "_step", Pack._compute)
    specs = [dataclasses.replace(run, max_steps=20 if on_gpu else 50) for run in RUNS]
    together, alone = ([double(Training(run, task)) for run in specs] for _ in range(2))
    pack = Pack(together)
    pack.on_gpu = on_gpu
    assert pack.advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run.model, twin.model) < 1e-9
        assert distance(run.network, twin.network) < 1e-9
        ours, theirs = run.result(), twin.result()
        assert ours.curve_loss == pytest.approx(theirs.curve_loss, rel=1e-6)
        assert ours.curve_error == pytest.approx(theirs.curve_error, rel=1e-6)
        assert ours.measures == pytest.approx(theirs.measures, rel=1e-6)
        assert ours.curve_summary is None or ours.curve_summary.keys() == {"left", "right"}
        for name, curve in (ours.curve_summary or {}).items():
            assert theirs.curve_summary is not None
            assert curve == pytest.approx(theirs.curve_summary[name], rel=1e-6)


def test_the_average_follows_every_step_from_the_initial_weights() -> None:
    run = spec(max_steps=30)
    training, _ = finished(run, Points())
    task, data = Points(), Points().data(run)
    torch.manual_seed(stream_seed(run.seed, "weights"))
    model = task.model(run)
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), run.lr, weight_decay=run.weight_decay, fused=True)
    for step in range(30):
        index = batch_indices(run.seed, 60, run.batch_size, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(data.train.inputs[index]), data.train.targets[index]).backward()
        optimizer.step()
        average = [torch.lerp(mean, p.detach(), 1 - DECAY) for mean, p in zip(average, model.parameters(), strict=True)]
    assert training.average is not None
    for mean, p, expected, own in zip(
        training.average.parameters(), training.model.parameters(), average, model.parameters(), strict=True
    ):
        assert torch.equal(mean, expected)
        assert torch.equal(p, own)
        assert not torch.equal(mean, p)


@pytest.mark.parametrize("task", [Noisy(), Dropped(), Looked(), Afresh()], ids=lambda task: type(task).__name__)
def test_suspended_and_resumed_equals_uninterrupted_to_the_bit(task: Points) -> None:
    run = spec(max_steps=50)
    torch.manual_seed(1)
    whole, result = finished(run, task)
    training, cuts = Training(run, task), 0
    torch.manual_seed(2)  # the global generator is in another state, and stays in it
    before = torch.get_rng_state()
    while not training.advance(seconds=0):
        cuts += 1
        if cuts % 9 == 0:
            torch.save({"training": training.state_dict(), "seconds": 1.0}, file := io.BytesIO())
            saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
            training = Training(run, task)
            check_saved(saved, training)
            training.load_state_dict(saved["training"])
    assert cuts == 49
    assert torch.equal(torch.get_rng_state(), before)
    for own, other in ((whole.model, training.model), (whole.network, training.network)):
        for p, q in zip(own.state_dict().values(), other.state_dict().values(), strict=True):
            assert torch.equal(p, q)
    assert training.result() == result


def test_a_checkpoint_with_an_average_or_curves_that_no_run_has_is_refused() -> None:
    training = Training(spec(max_steps=70), Looked())
    while training.step < 45:
        training.advance(0.0)
    saved = {"training": training.state_dict(), "seconds": 1.0}
    check_saved(saved, Training(training.spec, Looked()))
    for spoil, named in (
        (lambda state: state["average"]["net.0.bias"].fill_(math.nan), "weights"),
        (lambda state: state["curve_summary"]["left"].append(0.5), "curve_summary"),
    ):
        spoil(broken := copy.deepcopy(saved)["training"])
        with pytest.raises(ValueError, match=f"no run has such values of {named}$"):
            check_saved({**saved, "training": broken}, Training(training.spec, Looked()))


def test_runs_that_draw_inside_train_one_by_one() -> None:
    together, alone = ([Training(run, Dropped()) for run in RUNS[:2]] for _ in range(2))
    assert best_pack_size(together[0]) == 1
    assert Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run.model, twin.model) == 0
        assert run.result() == twin.result()


def packed_and_alone(task: Task) -> Iterator[tuple[Training, Training]]:
    """Finished runs that were stacked in a pack, each beside the same one alone, whose errors they have."""
    together, alone = ([Training(run, task) for run in RUNS[:2]] for _ in range(2))
    pack = Pack(together)
    pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.result().curve_error == pytest.approx(twin.result().curve_error, rel=1e-4)
        yield run, twin


def test_an_average_has_whole_numbers_as_they_are() -> None:
    check_task(OfCounted(), spec())
    for run, twin in packed_and_alone(OfCounted()):
        for name, t in Counted().state_dict().items():
            if not t.is_floating_point():
                assert torch.equal(run.network.state_dict()[name], t)
                assert torch.equal(twin.network.state_dict()[name], t)


def test_the_average_of_what_is_not_trained_is_that_itself_though_it_is_infinite() -> None:
    """As a mask is; an average that moves from one infinity to another would be no number."""
    model = nn.Linear(2, 2)
    model.ema = DECAY
    model.register_parameter("mask", nn.Parameter(torch.tensor([-math.inf, 0.0]), requires_grad=False))
    average = average_of(model)
    assert average is not None
    for _ in range(2):
        follow(average, model)
    assert torch.equal(average.get_parameter("mask"), model.mask)
    assert torch.equal(average.get_parameter("weight"), model.weight)


def test_a_pack_whose_runs_leave_keeps_their_averages() -> None:
    specs = [dataclasses.replace(run, max_steps=steps) for run, steps in zip(RUNS, (20, 25, 25, 40), strict=True)]
    together, alone = ([double(Training(run, Noisy())) for run in specs] for _ in range(2))
    pack, saved = Pack(together), None
    while not pack.advance(seconds=0):
        if together[3].step == 22:
            saved = together[3].state_dict()
    assert saved is not None
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in saved["average"].values())
    continued = double(Training(specs[3], Noisy()))
    continued.load_state_dict(saved)
    continued.advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.step == twin.step
        assert distance(run.network, twin.network) < 1e-9
        assert all(p.untyped_storage().nbytes() == p.nbytes for p in run.network.parameters()), "it has left the stack"
    assert distance(continued.network, alone[3].network) < 1e-9


def test_either_all_runs_of_a_pack_keep_an_average_or_none() -> None:
    runs = [Training(run, Points()) for run in RUNS[:2]]
    runs[1].average = None
    with pytest.raises(ValueError, match="must all keep an average"):
        Pack(runs)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_sampled_from_the_average_is_what_is_judged(packed: bool) -> None:
    task, run = Looked(), spec(max_steps=90)
    training = Training(run, task)
    (Pack([training, Training(dataclasses.replace(run, seed=1), task)]) if packed else training).advance()
    result = training.result()
    judged = task.judged(run)
    assert result.curve_step == [40, 80, 90]
    assert isinstance(training.average, Denoiser)
    with torch.no_grad():
        outputs = training.average.eval().sample(judged.held_out.inputs, stream(run.seed, "sample", 0))
        seen = task.measure(run, outputs, judged.held_out)
        losses = []
        for split in (training.unseen, training.unseen_subset):
            draws = training.average.draws(split, stream(run.seed, "look", 0))
            losses.append(training.average.losses(split, draws, training.average).mean().item())
    for own, unseen in zip(training.unseen, task.data(run).held_out, strict=True):
        assert torch.equal(own, unseen), "the loss is that of samples like those that are trained on"
    assert result.accuracy == seen["correct"].double().mean().item()
    assert result.ood_mse == pytest.approx(seen["mse"].mean().item(), rel=1e-6)
    with torch.no_grad():
        outputs = training.average.sample(judged.train.inputs, stream(run.seed, "sample", 0))
        assert result.id_mse == pytest.approx(task.measure(run, outputs, judged.train)["mse"].mean().item(), rel=1e-6)
    assert result.id_mse == result.measures["id_mse"]
    assert len(training.unseen_subset.inputs) == POINTS - 60
    assert [result.measures["loss"], result.curve_error[-1]] == pytest.approx(losses, rel=1e-5)
    assert result.curve_summary is not None
    order = torch.randperm(7, generator=stream(run.seed, "subset"))
    subset = Split(*(t[order] for t in judged.held_out))
    with torch.no_grad():
        outputs = training.average.sample(subset.inputs, stream(run.seed, "sample", 0))
    expected = task.summarise(run, task.measure(run, outputs, subset), subset)
    assert {name: curve[-1] for name, curve in result.curve_summary.items()} == pytest.approx(expected, rel=1e-5)
    assert {len(curve) for curve in result.curve_summary.values()} == {3}
    row = make_row(run, task_version="1", fixed_count=0, **dataclasses.asdict(result))
    assert decode(encode([row]))[0]["curve_summary"] == result.curve_summary


@pytest.mark.parametrize("packed", [False, True])
def test_fresh_noise_is_that_of_the_look_and_the_whole_set_has_its_own(packed: bool) -> None:
    task, run = Afresh(), spec(max_steps=90)
    training = Training(run, task)
    (Pack([training, Training(dataclasses.replace(run, seed=1), task)]) if packed else training).advance()
    result, judged = training.result(), task.judged(run)
    assert training.average is not None
    network = training.average.eval()

    def error(split: Split, *name: object) -> float:
        with torch.no_grad():
            outputs = network.sample(split.inputs, stream(run.seed, *name))  # type: ignore[operator]
        return task.measure(run, outputs, split)["mse"].mean().item()

    order = torch.randperm(7, generator=stream(run.seed, "subset"))
    subset = Split(*(t[order] for t in judged.held_out))
    fresh, again = error(judged.held_out, "whole", 90, "sample", 0), error(judged.held_out, "sample", 0)
    assert result.ood_mse == pytest.approx(fresh, rel=1e-6)
    assert fresh != pytest.approx(again, rel=1e-3)
    with torch.no_grad():
        outputs = network.sample(subset.inputs, stream(run.seed, "look", 90, "sample", 0))  # type: ignore[operator]
    expected = task.summarise(run, task.measure(run, outputs, subset), subset)
    assert result.curve_summary is not None
    assert {name: curve[-1] for name, curve in result.curve_summary.items()} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("ema", [0.0, DECAY])
def test_what_a_look_draws_is_drawn_in_eval_mode_also_in_a_pack(ema: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Calm, "ema", ema, raising=False)
    for run, twin in packed_and_alone(Calmed()):
        assert run.result().measures == pytest.approx(twin.result().measures, rel=1e-4)
        assert run.model.training


@pytest.mark.parametrize("at_once", [False, True])
def test_a_measure_that_changes_outputs_leaves_the_error_as_it_is(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if at_once:
        monkeypatch.setattr(Clamped, "packable", (), raising=False)
    found = []
    for task in (Clamped(), ClampedInPlace()):
        check_task(task, spec())
        packed = [Training(run, task) for run in RUNS[:2]]
        Pack(packed).advance()
        found.append([finished(RUNS[0], task)[1], *(run.result() for run in packed)])
    assert found[0] == found[1]
    for result in found[0]:
        assert result.ood_mse != pytest.approx(result.measures["mse"], rel=0.1)


def test_the_steps_are_the_same_whether_looks_share_their_noise() -> None:
    (shared, _), (fresh, _) = finished(spec(), Looked()), finished(spec(), Afresh())
    for p, q in zip(shared.network.state_dict().values(), fresh.network.state_dict().values(), strict=True):
        assert torch.equal(p, q)


def test_the_weights_that_are_kept_are_the_average() -> None:
    training, _ = finished(spec(), Noisy())
    trainable = PackTrainable.__new__(PackTrainable)
    report = trainable._ending(training, RunOrder("k", training.spec.to_dict(), save_weights=True))
    assert report.weights is not None
    assert not report.error_is_mse
    kept = safetensors.torch.load(report.weights)
    assert training.average is not None
    assert all(torch.equal(kept[name], p) for name, p in training.average.state_dict().items())
    assert not torch.equal(kept["net.0.weight"], training.model.get_parameter("net.0.weight"))
    assert kept["steps"] == 50, "buffers are the model's"


class Tied(Toy):
    """Two layers of one weight."""

    def model(self, spec: RunSpec) -> nn.Module:
        model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.BatchNorm1d(1))
        model[1].weight = model[0].weight
        return model


class OfTied(Toy):
    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        return {"tied": dataclasses.replace(spec, task=f"{__name__}:Tied")}

    def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:  # type: ignore[override]
        return copy.deepcopy(parents["tied"]).requires_grad_(True)


@pytest.mark.parametrize("packed", [False, True])
def test_weights_that_are_tied_are_kept_and_tied_again(packed: bool) -> None:
    task = OfTied()
    child = RunSpec(task=f"{__name__}:OfTied", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                    max_steps=20, stop="budget")  # fmt: skip
    (spec,) = task.needs(child).values()
    training = Training(spec, Tied())
    (Pack([training, Training(dataclasses.replace(spec, seed=1), Tied())]) if packed else training).advance()
    trainable = PackTrainable.__new__(PackTrainable)
    report = trainable._ending(training, RunOrder("k", spec.to_dict(), save_weights=True))
    assert report.weights is not None
    kept = safetensors.torch.load(report.weights)
    assert kept.keys() == training.network.state_dict().keys()
    assert all(torch.equal(kept[name], t) for name, t in training.network.state_dict().items())
    pupil = Training(child, trained(task, {"tied": Parent(spec, report.weights)}))
    assert pupil.model.get_parameter("0.weight") is pupil.model.get_parameter("1.weight")
    assert torch.equal(pupil.model.get_parameter("1.weight"), training.network.get_parameter("1.weight"))
    pupil.advance()


def test_files_of_weights_that_are_not_tied_are_those_of_their_tensors() -> None:
    tensors = {"a": torch.rand(2, 3).t(), "b": torch.zeros(0), "c": torch.zeros(0), "d": torch.arange(3)}
    assert safetensors.torch.save(_apart(tensors)) == safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})


def test_cross_entropy_is_that_of_a_plain_loop() -> None:
    run, task = spec(max_steps=30), Largest()
    training, result = finished(run, task)
    data = task.data(run)
    torch.manual_seed(stream_seed(run.seed, "weights"))
    model, losses = task.model(run), []
    optimizer = torch.optim.AdamW(model.parameters(), run.lr, weight_decay=run.weight_decay, fused=True)
    for step in range(30):
        index = batch_indices(run.seed, 60, run.batch_size, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data.train.inputs[index]), data.train.targets[index])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for p, own in zip(training.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(p, own)
    assert result.loss == pytest.approx(sum(losses[20:]) / 10, rel=1e-6)
    with torch.no_grad():
        ends = [nn.functional.cross_entropy(model(split.inputs), split.targets).item() for split in data]
    assert [result.measures["id_loss"], result.measures["loss"]] == pytest.approx(ends, rel=1e-5)
    assert result.curve_error[-1] == pytest.approx(ends[1], rel=1e-5)
    assert (result.id_mse, result.ood_mse, result.curve_summary) == (None, None, None)


def test_the_stopping_rule_compares_with_the_loss_of_a_network_that_has_learned_nothing() -> None:
    by_hand = -(0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25))
    assert class_entropy(torch.tensor([0, 0, 1, 2])) == pytest.approx(by_hand)
    assert class_entropy(torch.tensor([[0, 3], [0, 3], [1, 3], [2, 3]])) == pytest.approx(by_hand / 2), "a mean over the places"
    assert class_entropy(torch.tensor([2, 2])) == 0
    training = Training(spec(), Largest())
    assert training.variance == class_entropy(training.train.targets) > 1
    own = Training(spec(), Noisy())
    assert isinstance(own.model, Denoiser)
    with torch.no_grad():
        draws = own.model.draws(own.train, stream(0, "look", 0))
        assert own.variance == pytest.approx(own.model.eval().losses(own.train, draws, own.model).mean().item(), rel=1e-5)
    own.advance()
    assert Training(own.spec, Noisy()).variance == own.variance, "a run that goes on has the same"


@pytest.mark.parametrize(("loss", "scale"), [(2.5, 2.5), (math.inf, 0.0), (math.nan, 0.0)])
def test_a_loss_that_is_not_finite_at_first_is_nothing_to_compare_with(
    loss: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any loss is under a share of infinity, so every run would be given up."""
    monkeypatch.setattr(Training, "_measure", lambda *_: {"loss": loss})
    assert Training(spec(), Noisy()).variance == scale


def test_names_of_a_summary_do_not_change() -> None:
    class Fickle(Looked):
        def summarise(self, spec: RunSpec, measures: Mapping[str, Tensor], split: Split) -> Mapping[str, float]:
            self.looked = getattr(self, "looked", 0) + 1
            return {f"look {self.looked}": 0.0}

    with pytest.raises(ValueError, match=r"^the task's summarise\(\) must give the same names at every look, not look 2 now$"):
        Training(spec(max_steps=90), Fickle()).advance()


def changed(base: type, **members: Any) -> type:
    return type("Changed", (base,), members)


def model(base: type[nn.Module] = Denoiser, **members: Any) -> dict[str, Any]:
    return {"made": changed(base, **members)}


def global_draws(self: object, batch: Split, generator: torch.Generator) -> tuple[Tensor, ...]:
    return torch.rand(len(batch.inputs), 2), torch.rand(len(batch.inputs), 1)


class Undeclared(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 2), nn.Dropout(0.5))


def rivals(outputs: Tensor) -> Tensor:
    """How near each sample is to every other one (n, n - 1)."""
    n = len(outputs)
    return (outputs @ outputs.T)[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)


class Contrasted(Regressor):
    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        outputs = self(batch.inputs)
        return rivals(outputs).logsumexp(1) - outputs.square().sum(1)


class ContrastedWithTheNearest(Regressor):
    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        return rivals(self(batch.inputs)).amax(1)


class ContrastedOrAlone(Contrasted):
    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        return super().losses(batch, draws, teacher) if len(batch.inputs) > 1 else torch.zeros(1)


class Informed(Regressor):
    """Its loss has the slope of its outputs."""

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        inputs = batch.inputs.clone().requires_grad_()
        outputs = self(inputs)
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return (outputs - batch.targets).square().mean(1) + slope.square().mean(1)


class InformedAtLooks(Informed):
    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        with torch.enable_grad():
            return super().losses(batch, draws, teacher)


class TrainedOnly(Regressor):
    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        if not self.training:
            raise LookupError("no dropout")
        return (self(batch.inputs) - batch.targets).square().mean(1)


class Apart(Regressor):
    """Its loss is the distance from complex targets."""

    def losses(self, batch: Split, draws: tuple[Tensor, ...], teacher: nn.Module | None) -> Tensor:
        return (self(batch.inputs) - batch.targets).abs().mean(1)


def complex_targets(self: object, inputs: Tensor) -> Tensor:
    return torch.complex(inputs[:, :2], inputs[:, 1:])


def is_near(self: object, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
    return {"correct": (outputs - split.targets).abs().mean(1) < 0.3}


REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (Points, {"loss": "hinge"}, "loss must be squared-error or cross-entropy, not 'hinge'"),
    (Points, {"targets": Largest.targets},
     "data() must give floating-point targets, as the loss is the squared error, not "
     "torch.int64 in train: make class labels one-hot vectors, or give the task loss = 'cross-entropy'"),
    (Points, {"targets": complex_targets},
     "data() must give real targets, as the loss is the squared error, not torch.complex64 in train: put real and imaginary "
     "parts in a last dimension, as torch.view_as_real() does"),
    (Largest, {"targets": Points.targets},
     "data() must give class indices of torch.int64 as targets, as the loss is "
     "cross-entropy, not torch.float32 in train"),
    (Largest, {"targets": lambda self, inputs: inputs.argmax(1) - 1},
     "data() must give class indices from 0 on as targets, not -1 in"),
    (Largest, {"targets": lambda self, inputs: inputs.argmax(1) + 3},
     "model() must give logits of all classes, and gives 3 where a target is "),
    (Largest, {"model": lambda self, spec: nn.Unflatten(1, (3, 1))}, "model() must give a network with something to train"),
    (Largest, {"model": lambda self, spec: nn.Sequential(nn.Linear(3, 3), nn.Unflatten(1, (3, 1)))},
     "model() must give logits (4, classes) for targets (4,), not (4, 3, 1)"),
    (Largest, {"measure": lambda self, spec, outputs, split: {"correct": outputs[:, 0] > 0, "loss": outputs[:, 0]}},
     "measure() must give no loss: under this name the loss of each sample is measured anyway"),
    (Noisy, model(ema=1.0), "model().ema must be a number from 0 up to but not 1, not 1.0"),
    (Noisy, model(beta2=1.0), "model().beta2 must be a number from 0 up to but not 1, not 1.0"),
    (Noisy, model(ema="slow"), "model().ema must be a number from 0 up to but not 1, not 'slow'"),
    (Dropped, model(Dropping, draws_inside="yes"), "model().draws_inside must be True or False, not 'yes'"),
    (Noisy, model(samples_afresh=1), "model().samples_afresh must be True or False, not 1"),
    (Points, {"made": Undeclared},
     "model() must not draw from torch's global generator in a step, unless it says draws_inside = True: "
     "a run could not be continued to the same end"),
    (Points, model(Regressor, draws=Denoiser.draws),
     "model() must have losses() if it has draws(): nothing else is given what it draws"),
    (Noisy, model(sample=3), "model().sample must be a method, not a int"),
    (Noisy, model(draws=global_draws), "model().draws() must draw from its generator alone: it drew others from the same"),
    (Noisy, model(draws=lambda self, batch, generator: torch.rand(4, generator=generator)),
     "model().draws() must give a tuple of tensors (4, ...), not a Tensor"),
    (Noisy, model(draws=lambda self, batch, generator: (torch.rand((), generator=generator),)),
     "model().draws() must give a tuple of tensors (4, ...), not one with a tensor ()"),
    (Noisy, model(losses=lambda self, batch, draws, teacher: self.net[0].weight.sum()),
     "model().losses() must give a floating-point tensor of shape (4,), not torch.float32 of shape ()"),
    (Noisy, model(losses=lambda self, batch, draws, teacher: self.net[2].bias.sum() / torch.zeros(4)),
     "model().losses() must give finite losses, and those of the untrained network are not"),
    (Noisy, model(losses=lambda self, batch, draws, teacher: teacher.nets), "model().losses() fails with AttributeError: "),
    (Noisy, model(sample=lambda self, inputs, generator: torch.rand(len(inputs), 2)),
     "model().sample() must draw from its generator alone: it drew others from the same"),
    (Noisy, model(sample=lambda self, inputs, generator: torch.rand(9, 2, generator=generator)),
     "model().sample() must give outputs (n, ...) for inputs (n, ...), not (9, 2)"),
    (Looked, {"looks": lambda self, spec: 30}, "looks() must give a number of steps that is a multiple of 20, not 30"),
    (Looked, {"judged": lambda self, spec: Points.data(self, spec).train}, "judged() must give a Data, not a Split"),
    (Looked, {"judged": lambda self, spec: Points.data(self, spec.with_count(POINTS))},
     "judged() must give samples of both kinds, train and held_out, and gives none of one at N = 8"),
    (Looked, {"summarise": lambda self, spec, measures, split: 1.0},
     "summarise() must give a mapping from names to numbers, not a float"),
    (Looked, {"summarise": lambda self, spec, measures, split: {"gap": measures["mse"].mean()}},
     "summarise() must give plain numbers by name, not tensor("),
]  # fmt: skip


@pytest.mark.parametrize(("base", "members", "told"), REFUSED, ids=[told[:40] for _, _, told in REFUSED])
def test_a_mistake_is_told_in_one_sentence(base: type, members: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r"^the task's ") as caught:
        check_task(changed(base, **members)(), spec())
    assert str(caught.value).startswith(f"the task's {told}")
    assert str(caught.value).isprintable(), "it is one line"


@pytest.mark.parametrize(
    "task", [Points(), Noisy(), Dropped(), Largest(), Looked(), Afresh()], ids=lambda task: type(task).__name__
)
def test_a_sound_objective_is_accepted(task: Points) -> None:
    check_task(task, spec())


def test_a_loss_that_compares_samples_may_say_what_one_alone_has() -> None:
    task = changed(Points, made=ContrastedOrAlone)()
    check_task(task, spec(data_count=65))
    run = Training(spec(data_count=65), task)
    assert len(run.train.inputs) == 65
    outputs = run.model(run.train.inputs[:64])
    near = outputs @ outputs.T
    losses = near.fill_diagonal_(-torch.inf).logsumexp(1) - outputs.square().sum(1)
    assert run.variance == pytest.approx(losses.sum().item() / 65, rel=1e-5)


def test_a_loss_of_the_model_may_have_complex_targets() -> None:
    check_task(changed(Points, made=Apart, targets=complex_targets, measure=is_near)(), spec())


@pytest.mark.slow(4)
def test_the_example_is_short_and_sound() -> None:
    text = (ROOT / "examples" / "classifier.py").read_text()
    assert len(text.splitlines()) <= 60
    task = load_task("examples.classifier:Digits")
    check_task(task, spec(N=10))
    training = Training(spec(N=3, data_count=40, max_steps=100), task)
    training.advance()
    result = training.result()
    assert result.accuracy > 0.8
    assert result.measures["id_loss"] < result.measures["loss"] < 0.9 * math.log(3)
    assert result.curve_summary is not None
    assert list(result.curve_summary) == ["accuracy of 0", "accuracy of 1", "accuracy of 2"]
    shares = [(training.subset.truth == digit).double().mean().item() for digit in range(3)]
    mean = sum(curve[-1] * share for curve, share in zip(result.curve_summary.values(), shares, strict=True))
    assert mean == pytest.approx(result.curve_accuracy[-1], rel=1e-6)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (Informed, "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn. It is also called at "
                   "a look, under torch.no_grad(): put `with torch.enable_grad():` around what differentiates"),
        (TrainedOnly, "LookupError: no dropout, in eval mode, in which it is called at a look"),
    ],
)  # fmt: skip
def test_losses_that_no_look_can_take_are_refused(made: type[nn.Module], told: str) -> None:
    with pytest.raises(ValueError, match="losses") as caught:
        check_task(changed(Points, made=made)(), spec())
    assert str(caught.value) == f"the task's model().losses() fails with {told}"


def test_losses_may_differentiate_with_gradients_enabled(capsys: pytest.CaptureFixture[str]) -> None:
    task = changed(Points, made=InformedAtLooks)()
    check_task(task, spec())
    assert capsys.readouterr().err == ""
    run = Training(spec(max_steps=20), task)
    run.advance()
    assert math.isfinite(run.result().measures["loss"])


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (Contrasted, "must give finite losses, and those of the untrained network are not, for a single sample"),
        (ContrastedWithTheNearest, "losses() fails with IndexError"),
        (ContrastedOrAlone, ""),
    ],
)
def test_losses_that_a_single_sample_cannot_have_are_told(
    made: type[nn.Module], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a warning: not every task has a set whose last part is one sample."""
    monkeypatch.setattr(check, "_warned", set())
    check_task(changed(Points, made=made)(), spec())
    said = " ".join(capsys.readouterr().err.split())
    assert told in said
    assert ("give one without others a loss of 0" in said) == bool(told)


def test_runs_of_a_pack_may_differ_in_schedule_budget_weight_decay_and_step() -> None:
    cosine = spec(schedule="cosine", max_steps=30)
    changes: list[dict[str, Any]] = [{}, {"max_steps": 45}, {"schedule": "constant"}, {"weight_decay": 0.5}, {"seed": 1}]
    specs = [dataclasses.replace(cosine, **changed) for changed in changes]
    together, alone = ([double(Training(run, Noisy())) for run in specs] for _ in range(2))
    for _ in range(7):
        together[-1].advance(0.0)  # it goes on from a checkpoint
    pack = Pack(together)
    assert pack.advance()
    assert pack.unstacked == ""
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.step == twin.step
        assert distance(run.model, twin.model) < 1e-9
        assert distance(run.network, twin.network) < 1e-9
