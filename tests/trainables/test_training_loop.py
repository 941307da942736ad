"""Decoders and the training loop: sizes, suspended and resumed runs, verdicts."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.toy import Toy
from trainables.bumps import BumpTask
from trainables.decoders import CNN, build_decoder
from trainables.spec import RunSpec
from trainables.task import Data, Split, Task
from trainables.training import schedule
from trainables.training.loop import CONFIRM_EVERY, CONFIRM_SHARE, SUBSET, Training
from trainables.training.precision import HEAP, fastest_precision, one_thread, quiet_cpu
from trainables.training.result import RunResult
from trainables.training.schedule import batch_indices, learning_rate, look_every
from trainables.training.seeds import start_from
from trainables.training.stopping import EVAL_EVERY

TASK = BumpTask()


def spec(**changes: Any) -> RunSpec:
    options = {**TASK.defaults, **changes.pop("options", {})}
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 8, "data_count": 20, "seed": 0, "width": 16}
    return RunSpec(**{**fields, **changes}, options=tuple(options.items()))


def finished(run: RunSpec) -> RunResult:
    training = Training(run, TASK)
    assert training.advance()
    return training.result()


def resumed(training: Training, device: str = "cpu") -> Training:
    """Another one that goes on from its state, as a file has it."""
    torch.save(training.state_dict(), file := io.BytesIO())
    file.seek(0)
    another = Training(training.spec, training.task, device)
    another.load_state_dict(torch.load(file, weights_only=True, map_location=device))
    return another


def check_suspended(run: RunSpec, task: Task) -> None:
    """A run of 70 steps that is suspended after each of them, and at times resumed, ends in the same bits as in one piece."""
    whole, training, cuts = Training(run, task), Training(run, task), 0
    assert whole.advance()
    while not training.advance(seconds=0):
        cuts += 1
        if cuts % 9 == 0:
            training = resumed(training)
    assert cuts == 69
    for a, b in zip(whole.model.parameters(), training.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.result() == training.result()


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("decoder", "code", "depth", "width", "expected"),
    [("cnn", 56, 2, 64, 307_457), ("cnn", 56, 4, 64, 381_313), ("cnn", 2, 4, 64, 211_969), ("mlp", 56, 2, 256, 281_872)],
)
def test_parameter_counts_are_the_papers(decoder: str, code: int, depth: int, width: int, expected: int) -> None:
    assert parameters(build_decoder(decoder, code, 28, depth, width)) == expected


@pytest.mark.parametrize("decoder", ["cnn", "mlp"])
@pytest.mark.parametrize("N", [8, 9, 16, 28, 30, 64])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_every_size_and_depth_ends_at_n_pixels(decoder: str, N: int, depth: int) -> None:
    assert build_decoder(decoder, 2 * N, N, depth, 4)(torch.rand(2, 2 * N)).shape == (2, 1, N, N)


def test_first_kernel_is_a_quarter_or_the_published_seven() -> None:
    assert CNN(56, 28, 2, 4).first.kernel_size == (7, 7)
    assert CNN(128, 64, 2, 4).first.kernel_size == (16, 16)
    assert CNN(60, 30, 2, 4).first.kernel_size == (7, 7)
    assert not CNN(128, 64, 2, 4).resize
    assert CNN(60, 30, 2, 4).resize


@pytest.mark.parametrize("size", [1, 5, 32, 100])
def test_batches_are_one_stream_of_permutations(size: int) -> None:
    batches = [batch_indices(3, size, 32, step) for step in range(25)]
    assert {len(b) for b in batches} == {32}
    stream = torch.cat(batches)
    for epoch in stream[: len(stream) // size * size].reshape(-1, size)[:20]:
        assert sorted(epoch.tolist()) == list(range(size))


def test_the_batches_of_many_runs_are_those_of_one_and_few_orders_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {(seed, size): torch.cat([batch_indices(seed, size, 4, step) for step in range(40)])
             for seed in range(5) for size in (3, 50)}  # fmt: skip
    monkeypatch.setattr(schedule, "KEPT_INDICES", 200)
    draws: list[int] = []
    randperm = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda size, **given: draws.append(size) or randperm(size, **given))
    schedule._orders.clear()
    for steps in (1, 3, 10):
        for first in (0, 10, 13, 20, 10, 11, 9, 0):  # it also goes back, as a run that is resumed does
            for (seed, size), batches in alone.items():
                for step in (first, first + 1, first):
                    found = batch_indices(seed, size, 4, step, steps)
                    assert torch.equal(found, batches[4 * step :][: 4 * steps])
    assert len(schedule._orders) == 8
    schedule._orders.clear()
    draws.clear()
    monkeypatch.setattr(schedule, "KEPT_INDICES", 1000)
    for step in (0, 1, 2, 3):
        for seed in range(20):
            batch_indices(seed, 50, 4, step)
    assert draws == [50] * 20


def test_the_learning_rate_is_constant_or_falls_to_zero_along_half_a_cosine() -> None:
    constant, cosine = spec(lr=0.004, max_steps=1000), spec(lr=0.004, max_steps=1000, schedule="cosine")
    assert {learning_rate(constant, step) for step in (0, 1, 500, 999)} == {0.004}
    assert learning_rate(cosine, 0) == 0.004
    assert learning_rate(cosine, 250) == pytest.approx(0.004 * (1 + math.sqrt(0.5)) / 2)
    assert learning_rate(cosine, 500) == pytest.approx(0.002)
    rates = [learning_rate(cosine, step) for step in range(1000)]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 1e-5 * rates[0]


def test_every_step_is_taken_at_its_learning_rate() -> None:
    def movements(**changes: Any) -> list[float]:
        """The largest change of a weight in every step, which in the first few is about the learning rate with Adam."""
        training = Training(spec(decoder="mlp", max_steps=4, lr=1e-3, weight_decay=0.0, **changes), TASK)
        moved, over = [], False
        while not over:
            before = [p.detach().clone() for p in training.model.parameters()]
            over = training.advance(seconds=0)
            pairs = zip(before, training.model.parameters(), strict=True)
            moved.append(max((b - a).abs().max().item() for a, b in pairs))
        return moved

    assert movements() == pytest.approx([1e-3] * 4, rel=0.1)
    assert movements(schedule="cosine") == pytest.approx([1e-3, 0.854e-3, 0.5e-3, 0.146e-3], rel=0.1)


def test_a_budget_run_is_looked_at_about_two_hundred_times_at_most_every_twenty_steps() -> None:
    def every(max_steps: int, stop: str) -> int:
        return look_every(spec(max_steps=max_steps, stop=stop))

    assert [every(n, "early") for n in (1, 4000, 100_000)] == [EVAL_EVERY] * 3
    assert [every(n, "budget") for n in (1, 100, 4000, 7999)] == [EVAL_EVERY] * 4
    assert [every(n, "budget") for n in (8000, 20_000, 100_000)] == [40, 100, 500]


def test_the_curve_has_a_point_at_every_look_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "BUDGET_LOOKS", 2)
    dense, sparse = finished(spec(decoder="mlp", max_steps=90)), finished(spec(decoder="mlp", max_steps=90, stop="budget"))
    assert dense.curve_step == [20, 40, 60, 80, 90]
    assert sparse.curve_step == [40, 80, 90]
    assert sparse.curve_loss[0] == pytest.approx(sum(dense.curve_loss[:2]) / 2), "a mean over all steps since the last point"
    assert [sparse.curve_error[i] for i in (0, 1)] == [dense.curve_error[i] for i in (1, 3)]


def test_the_curve_of_the_held_out_error_ends_at_the_final_one() -> None:
    training = Training(spec(decoder="mlp", max_steps=50, stop="budget"), TASK)
    assert len(training.held_out.inputs) <= SUBSET
    assert training.advance()
    result = training.result()
    assert len(result.curve_error) == len(result.curve_step) == 3
    assert result.curve_error[-1] == pytest.approx(result.ood_mse, rel=1e-6)
    assert result.curve_error[0] > result.curve_error[-1] > 0
    large = Training(spec(N=24, decoder="mlp", max_steps=1), TASK)
    assert (len(large.subset.inputs), len(large.held_out.inputs)) == (SUBSET, 24**2 - 20)


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"decoder": "mlp"},
        {"decoder": "mlp", "schedule": "cosine"},
        {"decoder": "cnn"},
        {"decoder": "cnn", "precision": "bfloat16"},
    ],
)
def test_suspended_and_resumed_equals_uninterrupted_to_the_bit(changes: dict[str, Any]) -> None:
    check_suspended(spec(max_steps=70, stop="budget", dataset="stripes+bumps", **changes), TASK)


def test_a_saved_state_is_a_copy_and_belongs_to_its_run() -> None:
    training = Training(spec(decoder="mlp", max_steps=50), TASK)
    training.advance(seconds=0)
    state = training.state_dict()
    weight = state["model"]["0.weight"].clone()
    training.advance()
    assert torch.equal(state["model"]["0.weight"], weight)
    assert state["step"] == 1
    with pytest.raises(ValueError, match="belongs to another run"):
        Training(spec(decoder="mlp", max_steps=51), TASK).load_state_dict(state)


def test_equal_specs_give_equal_results_and_leave_the_global_generator_alone() -> None:
    run = spec(decoder="mlp", max_steps=40)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = finished(run)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert finished(run) == first
    assert finished(spec(decoder="mlp", max_steps=40, seed=1)) != first


def test_stripes_alone_let_the_mlp_compose() -> None:
    result = finished(
        spec(N=16, decoder="mlp", width=256, dataset="stripes+bumps", data_count=0, holdout="center", max_steps=400)
    )
    assert (result.status, result.reason) == ("passed", "target")
    assert result.accuracy >= 0.9
    assert result.passage_step == result.steps == result.curve_step[-1] <= 400
    assert result.measures["correct"] == result.accuracy
    assert result.ood_mse == pytest.approx(result.measures["mse"], rel=1e-5)
    assert result.id_mse == pytest.approx(result.measures["id_mse"], rel=1e-5)
    assert result.ood_mse > result.id_mse
    assert result.measures["proper"] < 0.5, "without bumps the compositions are pluses"


def test_few_bumps_miss_the_target() -> None:
    result = finished(spec(decoder="mlp", data_count=3, max_steps=50, stop="budget"))
    assert (result.status, result.reason, result.passage_step) == ("missed", "budget", None)
    assert result.steps == 50
    assert result.curve_step == [EVAL_EVERY, 2 * EVAL_EVERY, 50]
    assert result.curve_loss[-1] == result.loss
    assert result.curve_loss[0] > result.loss > 0


@pytest.mark.slow(1)
def test_a_budget_run_keeps_its_passage_and_trains_on() -> None:
    run = spec(N=16, decoder="mlp", width=256, dataset="stripes+bumps", data_count=0, holdout="center")
    early = finished(run)
    full = finished(RunSpec.from_dict({**run.to_dict(), "stop": "budget", "max_steps": 200}))
    assert (full.status, full.reason, full.steps) == ("passed", "budget", 200)
    assert full.passage_step == early.passage_step
    assert full.curve_loss[: len(early.curve_loss)] == early.curve_loss


def test_a_huge_learning_rate_diverges_and_says_so() -> None:
    result = finished(spec(decoder="mlp", lr=1e30, max_steps=200))
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert not math.isfinite(result.loss)
    assert result.steps == EVAL_EVERY


def test_the_result_of_a_run_that_trained_on_after_its_passage_is_that_of_its_end() -> None:
    run = spec(N=16, decoder="mlp", width=256, dataset="stripes+bumps", data_count=0, holdout="center")
    training = Training(dataclasses.replace(run, stop="budget", max_steps=200), TASK)
    training.advance()
    result, at_end = training.result(), training._measure(training.held_out)
    assert result.passage_step is not None
    assert result.passage_step < result.steps == 200
    assert (result.accuracy, result.ood_mse) == (at_end["correct"], at_end["squared_error"])


def test_a_run_that_diverges_after_its_passage_has_diverged() -> None:
    training = Training(spec(decoder="mlp", stop="budget"), TASK)
    while training.step < EVAL_EVERY:
        training.train_step()
    training.answer(training.look())
    training.passage_step = EVAL_EVERY
    for _ in range(training.steps_to_look):
        training.train_step()
    training.loss_sum.fill_(math.nan)
    training.answer(training.look())
    result = training.result()
    assert (result.status, result.reason) == ("diverged", "diverged")
    assert result.passage_step == EVAL_EVERY


def test_an_unfinished_run_has_progress_but_no_result() -> None:
    training = Training(spec(decoder="mlp"), TASK)
    assert training.progress.step == 0
    assert not training.advance(seconds=0)
    assert training.progress.step == 1
    with pytest.raises(RuntimeError, match="1 of 2000 steps"):
        training.result()


class Voxels(Toy):
    """Its network has weights of volumes and of images."""

    def model(self, spec: RunSpec) -> nn.Module:
        volumes = nn.Linear(1, 8), nn.Unflatten(1, (1, 2, 2, 2)), nn.Conv3d(1, 3, 2), nn.Flatten(3)
        model = nn.Sequential(*volumes, nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(2, 1))
        model.register_buffer("image", torch.randn(1, 2, 3, 4))
        return model


def test_in_bfloat16_weights_of_images_lie_with_channels_last_and_others_as_they_were() -> None:
    exact = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Toy.defaults.items()),
                    max_steps=20, stop="budget")  # fmt: skip
    usual, coarse = (Training(dataclasses.replace(exact, precision=word), Voxels()) for word in ("float32", "bfloat16"))
    before, after = usual.model.state_dict(), coarse.model.state_dict()
    assert all(torch.equal(t, after[name]) for name, t in before.items())
    for name, t in before.items():
        image = name in ("4.weight", "image")
        wanted = t.contiguous(memory_format=torch.channels_last) if image else t
        assert (name, after[name].stride()) == (name, wanted.stride())
        assert image == (after[name].stride() != t.stride())
    assert coarse.advance()
    assert coarse.result().steps == 20


class Part(Toy):
    """Its network is a part of a larger matrix, beside which it has weights that lie in memory in other ways."""

    def __init__(self, part: Tensor) -> None:
        self.part = part

    def samples(self, spec: RunSpec, trouble: str) -> Data:
        inputs = torch.randn(40, 8, generator=torch.Generator().manual_seed(spec.seed))
        samples = Split(inputs, inputs[:, :3].cumsum(1), inputs)
        return Data(train=samples.take(slice(spec.data_count)), held_out=samples.take(slice(spec.data_count, None)))

    def model(self, spec: RunSpec) -> nn.Module:
        return _Lying(self.part)


class _Lying(nn.Module):
    ema = 0.9

    def __init__(self, part: Tensor) -> None:
        super().__init__()
        wide = torch.arange(96.0).reshape(8, 12) / 100
        self.part, self.turned = nn.Parameter(part), nn.Parameter(wide[:3].clone().T)
        self.frozen = nn.Parameter(wide[:, :3], requires_grad=False)
        self.image = nn.Parameter(torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs @ (self.part + self.frozen) + inputs @ self.turned[:8] + 0 * self.image.sum()
        return outputs


@pytest.mark.parametrize("of_rows", [True, False])
def test_a_part_of_a_larger_matrix_is_trained_as_its_copy_to_the_bit(of_rows: bool) -> None:
    """The fused optimizer takes the numbers of a parameter as they follow in memory, gaps or not."""
    larger = torch.randn(8, 9, generator=torch.Generator().manual_seed(0))
    part, before = larger[:, :3] if of_rows else larger.T[:8, 2:5], larger.clone()
    run = RunSpec(task="tests.toy:Toy", dataset="toys", N=8, data_count=20, seed=0, options=tuple(Toy.defaults.items()),
                  max_steps=60, batch_size=8, stop="budget", lr=0.03)  # fmt: skip
    whole, copied, again = Training(run, Part(part)), Training(run, Part(part.contiguous())), Training(run, Part(part))
    for training in (whole, copied):
        while training.step < 30:
            training.advance(0.0)
    again.load_state_dict(whole.state_dict())
    for training in (copied, whole, again):
        training.advance()
        for name, t in copied.model.state_dict().items():
            assert (name, torch.equal(training.model.state_dict()[name], t)) == (name, True)
        assert training.result() == copied.result()
    assert copied.curve_error[-1] < copied.curve_error[0] / 2
    assert torch.equal(larger, before), "the larger matrix is not trained"
    lies = {name: t.stride() for name, t in whole.model.named_parameters()}
    assert lies == {"part": (3, 1), "turned": (1, 12), "frozen": (12, 1), "image": (48, 1, 12, 3)}, "others lie as they did"


def test_fastest_precision_is_never_bfloat16_for_an_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fastest_precision("mlp") == "float32"
    assert fastest_precision("cnn") in ("float32", "bfloat16")
    assert {fastest_precision(decoder) for decoder in ("dit", "maskgit", "givt", "mar")} == {fastest_precision("cnn")}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    for decoder in ("cnn", "dit", "maskgit", "givt", "mar"):
        assert fastest_precision(decoder, "cuda") == "bfloat16"
    assert fastest_precision("mlp", "cuda") == "float32"


def _at_most(count: int) -> Task:
    class Short(BumpTask):
        def data(self, spec: RunSpec) -> Data:
            data = super().data(spec)
            return data._replace(train=data.train.take(slice(count)))

    return Short()


def test_a_training_set_of_another_size_than_was_asked_for_is_told() -> None:
    run = spec(decoder="mlp", data_count=40, max_steps=20)
    Training(run, _at_most(40))
    with pytest.raises(ValueError, match=r"must give data_count training samples, 40 at N = \d+, data_count = 40, not 39"):
        Training(run, _at_most(39))
    fixed = dataclasses.replace(run, dataset="stripes+bumps")
    N = run.N
    Training(fixed, _at_most(2 * N + 40))
    with pytest.raises(ValueError, match=rf"{2 * N + 40} = {2 * N} fixed \+ 40 drawn at N = {N}, data_count = 40, not {2 * N}"):
        Training(fixed, _at_most(2 * N))


def test_a_run_with_nothing_to_judge_on_says_so() -> None:
    class Whole(BumpTask):
        def data(self, spec: RunSpec) -> Data:
            data = super().data(spec)
            return data._replace(held_out=data.held_out.take(slice(0)))

    with pytest.raises(ValueError, match=r"holds out nothing to judge on at N = .*: hold out samples, or lower"):
        Training(spec(decoder="mlp", max_steps=20), Whole())


def test_a_run_at_the_edge_of_its_target_is_confirmed_ever_more_rarely() -> None:
    run = spec(decoder="mlp", max_steps=4000)
    asked = looked(Training(run, TASK), (run.target - 0.005, run.target - 0.05), loss=1e3)
    gaps = [(at, then - at) for at, then in pairwise(asked[:-1])]
    assert len(gaps) > 8
    assert all(max(CONFIRM_EVERY, CONFIRM_SHARE * at) <= gap < max(CONFIRM_EVERY, CONFIRM_SHARE * at) + 20 for at, gap in gaps)
    assert asked[-1] == 4000


def looked(
    training: Training, correct: tuple[float, float], norm: Callable[[int], float] = lambda step: 1.0, loss: float = 0.0
) -> list[int]:
    """Take all looks of a run that shows `correct` on the subset and on the whole set.

    Returns:
        The steps at which the whole set is asked for.
    """
    asked = list[int]()
    while not training.reason:
        stretch = training.steps_to_look
        training.step += stretch
        look = training.look(loss_sum=loss * stretch, norm=norm(training.step))
        split = next(look)
        while True:
            whole = split is training.held_out
            asked += [training.step] * whole
            known = split is training.subset or whole
            try:
                split = look.send({"correct": correct[whole] if known else 0.0, "squared_error": 1.0})
            except StopIteration:
                break
    return asked


@pytest.mark.parametrize(("seen", "steps"), [(0.881, 20), (0.879, 400)])
def test_a_subset_near_the_target_calls_for_the_whole_set_which_decides(seen: float, steps: int) -> None:
    training = Training(spec(N=24, decoder="mlp", max_steps=400), TASK)
    assert looked(training, (seen, 0.9), loss=1e3) == [steps]
    assert (training.reason, training.passage_step) == ("target", steps)


def test_the_stopping_rule_allows_for_the_difference_between_set_and_subset() -> None:
    ends = []
    for whole in (0.85, 0.89):
        training = Training(spec(N=24, decoder="mlp", max_steps=4000), TASK)
        looked(training, (0.85, whole), lambda step: 1.0 if step > 120 else step / 20)
        ends.append((training.reason, training.step))
    assert ends[0] == ("converged", 240)
    assert ends[1][1] > 1000


def test_the_stopping_rule_allows_for_what_one_of_few_samples_lifts_the_accuracy() -> None:
    ends = []
    for samples in (SUBSET, 20):
        training = Training(spec(N=24, decoder="mlp", max_steps=4000), TASK)
        training.subset = training.subset.take(slice(samples))
        looked(training, (0.8, 0.8), lambda step: 1.0 if step > 120 else step / 20)
        ends.append(training.step)
    assert ends[0] < 300 < ends[1]


def test_chance_is_an_output_beside_the_targets_and_the_truth_of_another_sample() -> None:
    training = Training(spec(N=24, decoder="mlp", max_steps=4000), TASK)
    training.curve_loss, training.curve_norm = [0.0] * 5, [1.0] * 5
    asked = next(training._gives_up(True, 1.0))
    assert torch.equal(asked.inputs, training.subset.inputs)
    for of_sample, of_another in ((training.subset.targets, asked.targets), (training.subset.truth, asked.truth)):
        assert torch.equal(of_another, of_sample.roll(1, 0))
        assert not torch.equal(of_another, of_sample)


def test_a_worker_has_one_thread_and_no_denormal_numbers() -> None:
    torch.set_flush_denormal(False)
    torch.set_num_threads(2)
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    quiet_cpu()
    assert torch.get_num_threads() == 1
    assert (torch.tensor([1e-38]) * 1e-3).item() == 0


def marked_for_large_pages(before: str = "pass") -> int:
    """Bytes of a new worker's memory that it asks the system to hold in large pages."""
    code = f"{before}; from trainables.training.precision import quiet_cpu; quiet_cpu(); print(open('/proc/self/smaps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    areas = re.findall(r"^Size: +(\d+) kB.*?^VmFlags: (.*?)$", done.stdout, re.DOTALL | re.MULTILINE)
    return sum(int(size) << 10 for size, flags in areas if "hg" in flags.split())


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="there are no large pages")
@pytest.mark.slow(5)
def test_the_heap_of_a_worker_is_marked_for_large_pages_unless_addresses_are_short() -> None:
    assert HEAP - (4 << 20) <= marked_for_large_pages() < 2 * HEAP
    assert marked_for_large_pages("import resource; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))") == 0
    assert marked_for_large_pages("import resource; resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))") == 0


def test_numbers_are_drawn_as_if_torch_were_seeded() -> None:
    with torch.random.fork_rng(devices=[]):
        for seed in (0, 2**63 - 1):
            torch.manual_seed(seed)
            expected = torch.randn(9)
            start_from(seed)
            assert torch.equal(torch.randn(9), expected)
