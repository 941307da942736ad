"""What only a GPU can show: `python -m pytest tests/trainables/test_gpu.py`. With GPU_TESTS=cpu in the environment, most of it
runs on a CPU."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Sequence

import pytest
import torch

from tests.trainables.test_packing import PACKS, bumps, distance, images_last, low_rank
from tests.trainables.test_training_loop import resumed
from trainables.bumps import BumpTask
from trainables.regularization import RegularizationTask
from trainables.spec import RunSpec
from trainables.task import Task
from trainables.training import packs
from trainables.training.loop import Training
from trainables.training.memory import is_out_of_memory
from trainables.training.pack_size import best_pack_size
from trainables.training.packs import Pack
from trainables.training.precision import autocast

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="torch finds no GPU here")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_GPU and os.environ.get("GPU_TESTS") != "cpu", reason="torch finds no GPU here"),
]


def runs_of(specs: Sequence[RunSpec], task: Task, device: str = DEVICE) -> list[Training]:
    return [Training(spec, task, device) for spec in specs]


def short(specs: Sequence[RunSpec], steps: int = 60) -> list[RunSpec]:
    return [dataclasses.replace(spec, stop="budget", max_steps=steps) for spec in specs]


def train_packed(runs: Sequence[Training], replayed: bool = HAS_GPU) -> None:
    """To the end, in one program, and on a GPU with a step that is recorded and replayed, or is not. A pack that cannot be
    stacked or recorded trains its runs one by one, and what is found of it would say nothing."""
    pack = Pack(runs)
    assert pack.advance()
    assert not pack.unstacked
    assert (pack._replay is not None) == replayed


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_trains_what_its_runs_train_alone(name: str) -> None:
    specs, task = PACKS[name]
    together, alone = runs_of(short(specs), task), runs_of(short(specs), task)
    train_packed(together)
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-3
        assert run.result().ood_mse == pytest.approx(twin.result().ood_mse, rel=1e-2)


@pytest.mark.parametrize("name", ["mlp", "cnn", "low-rank"])
def test_a_replayed_step_is_the_step_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    specs, task = PACKS[name]
    replayed, eager = runs_of(short(specs), task), runs_of(short(specs), task)
    train_packed(replayed)
    monkeypatch.setattr(packs, "WARM_UP", 10**9)
    train_packed(eager, replayed=False)
    for one, other in zip(replayed, eager, strict=True):
        assert distance(one, other) < 1e-4


def test_a_replayed_step_draws_anew_and_keeps_the_average() -> None:
    from tests.trainables.test_objectives import Points

    spec = RunSpec(
        task="tests.trainables.test_objectives:Points", dataset="points", N=1, data_count=20, seed=0, decoder="linear", depth=0,
        width=1, encoding="none", max_steps=60, stop="budget",
    )  # fmt: skip
    specs = [dataclasses.replace(spec, seed=seed) for seed in range(3)]
    replayed, alone = runs_of(specs, Points()), runs_of(specs, Points())
    train_packed(replayed)
    for run, twin in zip(replayed, alone, strict=True):
        twin.advance()
        assert distance(run, twin) < 1e-4
        assert run.average is not None
        assert twin.average is not None
        pairs = zip(run.average.parameters(), twin.average.parameters(), strict=True)
        assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


def test_a_run_that_leaves_a_pack_leaves_the_others_as_they_are() -> None:
    about = ((0, 40, 0.3), (1, 60, 0.7), (1, 120, 0.9), (2, 60, 0.8))
    specs = [bumps("mlp", seed=s, data_count=d, target=t) for s, d, t in about]
    together, alone = runs_of(specs, BumpTask()), runs_of(specs, BumpTask())
    train_packed(together)
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.result().status == twin.result().status
        assert abs(run.result().steps - twin.result().steps) <= 40


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_products_have_the_precision_of_the_spec(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(512, 512, generator=generator, dtype=torch.float64) for _ in range(2))
    with autocast(bumps("mlp", precision=precision), torch.device(DEVICE)):
        product = (a.float().to(DEVICE) @ b.float().to(DEVICE)).double().cpu()
    error = ((product - a @ b).norm() / (a @ b).norm()).item()
    low, high = {"float32": (0, 5e-6), "tf32": (5e-5, 2e-3), "bfloat16": (1e-3, 2e-2)}[precision]
    assert low <= error <= high


def test_bfloat16_trains_as_well() -> None:
    specs = short([bumps("cnn", N=16, seed=seed, data_count=200, precision="bfloat16") for seed in (0, 1)], 200)
    together, alone = runs_of(specs, BumpTask()), runs_of(specs, BumpTask())
    train_packed(together)
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert run.result().id_mse == pytest.approx(twin.result().id_mse, rel=0.3)
        assert run.result().loss is not None


@pytest.mark.parametrize(("first", "then"), [(DEVICE, "cpu"), ("cpu", DEVICE), (DEVICE, DEVICE)])
def test_a_checkpoint_goes_on_on_the_other_device(first: str, then: str) -> None:
    spec, task = dataclasses.replace(low_rank(), max_steps=80), RegularizationTask()
    begun, whole = Training(spec, task, first), Training(spec, task, then)
    while begun.step < 35:
        begun.train_step()
        if begun.look_is_due:
            begun.answer(begun.look())
    ended = resumed(begun, then)
    ended.advance()
    whole.advance()
    assert ended.result().steps == 80
    assert distance(ended, whole) < 1e-3


@pytest.mark.parametrize(
    ("specs", "task", "rounding"),
    [(*PACKS["mlp"], 1e-3), ([images_last(seed=seed) for seed in (0, 1)], BumpTask(), 0.09)],
    ids=["mlp", "cnn in bfloat16"],
)
def test_a_saved_run_of_a_pack_goes_on_alone(specs: Sequence[RunSpec], task: Task, rounding: float) -> None:
    runs = runs_of(short(specs, 80), task)
    pack = Pack(runs)
    while runs[0].step < 40:
        pack.advance(0.0)
    states = [run.state_dict() for run in runs]
    pack.advance()
    assert not pack.unstacked
    for run, state in zip(runs, states, strict=True):
        resumed = Training(run.spec, task, DEVICE)
        resumed.load_state_dict(copy.deepcopy(state))
        resumed.advance()
        assert distance(resumed, run) < rounding


def test_a_run_that_is_left_of_a_pack_goes_on_alone_in_bfloat16() -> None:
    """As after a pack that could not go on."""
    runs = runs_of(short([images_last(seed=seed) for seed in (0, 1)]), BumpTask())
    pack = Pack(runs)
    while runs[0].step < 20:
        pack.advance(0.0)
    pack._let_go(pack._packed)
    for run in runs:
        assert run.advance()
        assert run.curve_loss[-1] < run.curve_loss[0]


@needs_gpu
@pytest.mark.parametrize("seconds", [None, 0.0])
def test_runs_whose_step_cannot_be_recorded_go_on_alone(seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whatever comes later in the same process trains and is recorded as ever."""
    specs, task = PACKS["mlp"]
    together, alone = runs_of(short(specs), task), runs_of(short(specs), task)
    pack = failing_in_a_recording(together, torch.cuda.synchronize, monkeypatch)
    while not pack.advance(seconds):
        pass
    assert pack.unstacked
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert (run.step, run.curve_step) == (twin.step, twin.curve_step)
        assert distance(run, twin) < 1e-3
    still_works(specs, task, monkeypatch)


@needs_gpu
def test_memory_that_runs_out_in_a_recording_is_told_from_what_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    specs, task = PACKS["mlp"]
    pack = failing_in_a_recording(runs_of(short(specs), task), lambda: torch.empty(2**50, device=DEVICE), monkeypatch)
    with pytest.raises(RuntimeError, match=r"memory|captur") as caught:  # the end of the recording may have its own words
        pack.advance()
    assert is_out_of_memory(caught.value)
    assert not pack.unstacked
    still_works(specs, task, monkeypatch)


def failing_in_a_recording(runs: Sequence[Training], fails: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Pack:
    done = Pack._compute

    def compute(pack: Pack) -> None:
        done(pack)
        if torch.cuda.is_current_stream_capturing():
            fails()

    monkeypatch.setattr(Pack, "_compute", compute)
    return Pack(runs)


def still_works(specs: Sequence[RunSpec], task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert torch.rand(8, device=DEVICE).max() <= 1
    torch.cuda.manual_seed(0)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    train_packed(runs_of(short(specs), task))


@needs_gpu
def test_a_pack_that_does_not_fit_is_told_from_other_errors() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2**50, device=DEVICE)
    assert is_out_of_memory(caught.value)


@needs_gpu
def test_a_share_of_the_memory_bounds_the_pack() -> None:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        size = best_pack_size(Training(bumps("cnn", N=64, data_count=2000), BumpTask(), DEVICE))
        assert size >= 1
        assert torch.cuda.memory_reserved() <= 0.02 * torch.cuda.get_device_properties(0).total_memory * 1.01
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_networks_of_parents_are_on_the_device() -> None:
    import safetensors.torch

    from tests.toy import Pupil, Teacher
    from tests.trainables.test_parents import SPEC
    from trainables.needs import Parent, needs_of, trained

    (teacher,) = needs_of(Pupil(), SPEC).values()
    left = Training(teacher, Teacher(), DEVICE)
    left.advance()
    weights = safetensors.torch.save({name: t.contiguous() for name, t in left.network.state_dict().items()})
    pupil = Training(SPEC, trained(Pupil(), {"teacher": Parent(teacher, weights)}, DEVICE), DEVICE)
    assert {p.device.type for p in pupil.model.parameters()} == {DEVICE}
    pupil.advance()
    assert pupil.result().status == "passed"


@needs_gpu
def test_a_step_is_timed_where_it_is_trained() -> None:
    from orchestrator.engine.estimate import step_seconds

    spec = bumps("cnn", N=64, width=64, data_count=2000)
    assert 0 < step_seconds(spec, BumpTask(), on_gpu=True) < step_seconds(spec, BumpTask()) / 3
