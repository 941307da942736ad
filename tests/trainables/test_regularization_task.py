"""The regularization tasks: their sets of coordinates, that nothing of the box leaks into validation, and their training."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.test_training_loop import check_suspended
from trainables.bumps import grid_centres
from trainables.regularization import BOXES, REGIONS, VALIDATION, DecoderTask, RegularizationTask, box_range, regions, split_of
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Split, Task
from trainables.training.loop import Training
from trainables.training.result import RunResult

TASK = RegularizationTask()


def spec(**changes: Any) -> RunSpec:
    """A run on all there is to learn from, if `data_count` is not given."""
    options = {**TASK.defaults, **changes.pop("options", {})}
    fields = {"task": "trainables.regularization:RegularizationTask", "dataset": "bumps", "N": 8, "seed": 0, "width": 2}
    fields |= {"decoder": "low-rank", "encoding": "one-hot", "holdout": "corner", "stop": "budget"} | changes
    run = RunSpec(**{"data_count": 0, **fields}, options=tuple(options.items()))
    return run if "data_count" in changes else run.with_count(TASK.counts(run).low)


def trained(run: RunSpec) -> tuple[Training, RunResult]:
    training = Training(run, TASK)
    assert training.advance()
    return training, training.result()


def pairs(coordinates: Tensor) -> set[tuple[float, ...]]:
    return {tuple(pair) for pair in coordinates.tolist()}


def test_it_is_a_task_with_the_published_defaults() -> None:
    assert isinstance(TASK, Task)
    published = {"lambda_entropy": 0.1, "lambda_variance": 0.01, "init": "published"}
    fields = spec_fields(TASK, {})
    assert dict(fields["options"]) == {"sigma": 1.5, "tolerance": 1, "rank": 0, **published}
    assert (fields["depth"], fields["width"], fields["holdout"]) == (2, 2, "corner")
    assert sum(p.numel() for p in TASK.model(spec(N=32)).parameters()) == 133_218
    assert TASK.model(spec(N=32, options={"rank": 5})).strengths.shape == (2, 32, 5)


@pytest.mark.parametrize(
    ("holdout", "count", "judged"),
    [
        ("corner", 624, 400), ("center", 624, 400), ("corner-validation", 480, 144), ("center-validation", 480, 144),
        *((region + boxes, 504, 120) for region in REGIONS for boxes in BOXES),
    ],
)  # fmt: skip
def test_the_sets_have_the_published_sizes(holdout: str, count: int, judged: int) -> None:
    run = spec(N=32, holdout=holdout)
    counts, data = TASK.counts(run), TASK.data(run)
    assert (counts.low, counts.high, counts.fixed) == (count, count, 0)
    assert [len(split.truth) for split in data] == [count, judged]


def test_the_published_boxes() -> None:
    assert box_range("corner", 32) == (12, 31)
    assert box_range("center", 32) == (6, 25)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("N", [8, 9, 13, 16, 31, 32])
def test_the_three_sets_are_disjoint_and_cover_the_grid(region: str, N: int) -> None:
    low, high = box_range(region, N)
    sets = {name: pairs(coordinates) for name, coordinates in regions(region, N).items()}
    assert sets["ood"] == {(x, y) for x in range(low, high + 1) for y in range(low, high + 1)}
    assert all(not low <= x <= high and not low <= y <= high for x, y in sets["validation"])
    assert sum(map(len, sets.values())) == N**2
    assert set.union(*sets.values()) == pairs(grid_centres(N))


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("suffix", ["", VALIDATION, *BOXES])
@pytest.mark.parametrize("N", [8, 13, 32])
def test_every_x_and_every_y_is_learned_from(region: str, suffix: str, N: int) -> None:
    truth = TASK.data(spec(N=N, holdout=region + suffix)).train.truth
    for coordinate in truth.T:
        assert set(coordinate.tolist()) == set(range(N))


def assert_describes(split: Split, allowed: set[tuple[float, ...]]) -> None:
    """Tokens, truth and the brightest pixel of every image say the same coordinates, all of them allowed."""
    N = split.targets.shape[-1]
    brightest = split.targets.flatten(1).argmax(dim=1)
    seen = torch.stack([brightest % N, brightest // N], dim=1)
    assert torch.equal(split.inputs, seen)
    assert torch.equal(split.truth, seen.float())
    assert pairs(seen) <= allowed


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("N", [8, 9, 13, 16, 31, 32])
def test_the_pseudo_boxes_are_disjoint_and_have_one_coordinate_in_the_range_of_the_box(region: str, N: int) -> None:
    held_out = [pairs(split_of(region + box, N)[1]) for box in BOXES]
    assert set.union(*held_out) == pairs(regions(region, N)["rest"])
    assert sum(map(len, held_out)) == len(regions(region, N)["rest"])


def test_to_half_of_the_values_a_pseudo_box_is_what_the_box_is_to_those_in_its_range() -> None:
    assert pairs(split_of("corner-box-1", 32)[1]) == {(x, y) for x in range(6) for y in range(12, 32)}
    assert pairs(split_of("corner-box-2", 32)[1]) == {(x, y) for x in range(12, 32) for y in range(6)}
    assert pairs(split_of("corner-box-3", 32)[1]) == {(x, y) for x in range(6, 12) for y in range(12, 32)}
    assert pairs(split_of("center-box-4", 32)[1]) == {(x, y) for x in range(6, 26) for y in range(26, 32)}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("suffix", [VALIDATION, *BOXES])
@pytest.mark.parametrize("N", [8, 13, 24, 32])
def test_no_coordinate_of_the_box_reaches_training_selection_or_early_stopping(region: str, suffix: str, N: int) -> None:
    low, high = box_range(region, N)
    outside = {(x, y) for x in range(N) for y in range(N) if not (low <= x <= high and low <= y <= high)}
    selecting = Training(spec(N=N, holdout=region + suffix), TASK)
    tensors = {name: value for name, value in vars(selecting).items() if isinstance(value, Split)}
    assert tensors.keys() == {"train", "held_out", "subset"}, "all the data that a training has"
    for split in tensors.values():
        assert_describes(split, outside)
    assert pairs(selecting.train.truth).isdisjoint(pairs(selecting.held_out.truth))
    final = Training(spec(N=N, holdout=region), TASK)
    assert_describes(final.train, outside)
    assert pairs(final.train.truth) == outside == pairs(selecting.train.truth) | pairs(selecting.held_out.truth)
    assert pairs(final.held_out.truth) == pairs(grid_centres(N)) - outside


def test_images_are_bright_bumps_of_width_one_and_a_half() -> None:
    split = TASK.split(spec(N=16), torch.tensor([[3.0, 10.0]]))
    image = split.targets[0, 0]
    assert image[10, 3] == 1
    assert image[10, 4].item() == pytest.approx(math.exp(-1 / 4.5))
    assert image[12, 3].item() == pytest.approx(math.exp(-4 / 4.5))
    assert image[0, 15].item() == pytest.approx(0, abs=1e-6)
    assert split.inputs.tolist() == [[3, 10]]
    wide = TASK.split(spec(N=16, options={"sigma": 3.0}), torch.tensor([[3.0, 10.0]]))
    assert wide.targets[0, 0, 10, 4].item() == pytest.approx(math.exp(-1 / 18))


def test_measures_judge_the_peak_and_the_error() -> None:
    run = spec(N=16)
    split = TASK.split(run, torch.tensor([[3.0, 10.0], [8.0, 8.0], [8.0, 8.0]]))
    outputs = TASK.split(run, torch.tensor([[3.0, 10.0], [9.0, 8.0], [8.0, 10.0]])).targets
    measures = TASK.measure(run, outputs, split)
    assert measures["correct"].tolist() == [True, True, False]
    assert measures["exact"].tolist() == [True, False, False]
    assert measures["proper"].tolist() == [True, True, True]
    torch.testing.assert_close(measures["mse"], (outputs - split.targets).square().mean(dim=(1, 2, 3)))
    assert measures["mse"][0] == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"N": 7}, "N must be at least 8, not 7"),
        ({"precision": "bfloat16"}, "trained in float32, not bfloat16"),
        ({"options": {"sigma": 0}}, "sigma must be above 0 and at most N = 8 pixels, not 0"),
        ({"options": {"sigma": math.nan}}, "sigma must be a word or a finite number, not nan"),
        ({"options": {"sigma": 9}}, "sigma must be above 0 and at most N = 8 pixels, not 9"),
        ({"options": {"tolerance": -1}}, "tolerance must be at least 0 and under N/2 = 4 pixels, not -1"),
        ({"options": {"tolerance": 4}}, "tolerance must be at least 0 and under N/2 = 4 pixels, not 4"),
        ({"N": 32, "options": {"rank": 33}}, "rank must lie in 1..32, or be 0 for N, not 33"),
        ({"options": {"rank": -1}}, "rank must lie in 1..8, or be 0 for N, not -1"),
        ({"options": {"lambda_entropy": math.nan}}, "lambda_entropy must be a word or a finite number, not nan"),
        ({"options": {"lambda_entropy": -0.1}}, "lambda_entropy must be a finite number of at least 0, not -0.1"),
        ({"options": {"lambda_variance": math.inf}}, "lambda_variance must be a word or a finite number, not inf"),
        ({"options": {"lambda_variance": -1}}, "lambda_variance must be a finite number of at least 0, not -1"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_can(changes: dict[str, Any], words: str) -> None:
    for question in (TASK.counts, TASK.data):
        with pytest.raises(ValueError, match=words):
            question(spec(data_count=0, **changes))


@pytest.mark.parametrize("holdout", ["corner", "center-validation"])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_there_is_one_data_count(holdout: str, wrong: int) -> None:
    run = spec(holdout=holdout)
    with pytest.raises(ValueError, match=f"data_count must be {run.data_count} at N = 8, holdout {holdout}, not"):
        TASK.data(run.with_count(run.data_count + wrong))


@pytest.mark.parametrize("name", ["lambda_entropy", "lambda_variance"])
def test_the_penalty_is_trained_with_but_not_reported(name: str) -> None:
    def run(weight: float) -> tuple[Training, RunResult]:
        none = {"lambda_entropy": 0.0, "lambda_variance": 0.0}
        return trained(spec(max_steps=1, options=none | {name: weight}))

    (free, plain), (bound, penalised) = run(0.0), run(1e4)
    assert penalised.curve_loss == plain.curve_loss, "both had the same weights in this one step"
    moved = {p for p, value in bound.model.state_dict().items() if not torch.equal(value, free.model.state_dict()[p])}
    assert moved == ({"strengths"} if name == "lambda_entropy" else {"rows", "columns"})
    with torch.no_grad():
        outputs = bound.model(bound.train.inputs)
    error = (outputs - bound.train.targets).square().mean().item()
    assert bound.model.penalty().item() > 1e3 * error
    assert penalised.id_mse == pytest.approx(error, rel=1e-5)


@pytest.mark.slow(2)
def test_suspended_and_resumed_equals_uninterrupted_to_the_bit() -> None:
    check_suspended(spec(max_steps=70, schedule="cosine", holdout="corner-validation"), TASK)


def test_a_decoder_that_is_searched_is_the_published_one_until_told_otherwise() -> None:
    task = DecoderTask()
    plain = spec(max_steps=5)
    run = dataclasses.replace(plain, options=spec_fields(task, dict(plain.options))["options"])
    assert dict(run.options) == {**dict(plain.options), "padding": 0, "ema": 0.0}
    ours, published = Training(run, task), Training(plain, TASK)
    assert ours.advance()
    assert published.advance()
    assert all(torch.equal(a, b) for a, b in zip(ours.model.parameters(), published.model.parameters(), strict=True))


def test_a_padded_decoder_draws_pictures_of_the_grids_size_and_its_average_is_judged() -> None:
    task = DecoderTask()
    plain = spec(max_steps=20, lr=1e-2)
    run = dataclasses.replace(plain, options=(*plain.options, ("padding", 3), ("ema", 0.9)))
    training = Training(run, task)
    assert training.advance()
    assert training.model(training.train.inputs).shape == (len(training.train.inputs), 1, 8, 8)
    assert training.model.embeddings().shape == (2, 8, 14, 14)
    with torch.no_grad():
        drawn = [model(training.train.inputs) for model in (training.average, training.model)]
    errors = [(images - training.train.targets).square().mean() for images in drawn]
    assert training.result().id_mse == pytest.approx(float(errors[0]), rel=1e-5)
    assert errors[0] != errors[1]


def test_a_shorter_memory_of_gradients_is_a_setting_that_older_runs_do_not_carry() -> None:
    task = DecoderTask()
    usual, shorter = (spec_fields(task, {"beta2": beta2}) for beta2 in (0.999, 0.9))
    assert "beta2" not in dict(usual["options"])
    runs = [dataclasses.replace(spec(max_steps=30), options=found["options"]) for found in (usual, shorter)]
    trainings = [Training(run, task) for run in runs]
    assert all(training.advance() for training in trainings)
    assert [training.optimizer.param_groups[0]["betas"] for training in trainings] == [(0.9, 0.999), (0.9, 0.9)]
    assert trainings[0].result().id_mse != trainings[1].result().id_mse


@pytest.mark.slow(3)
def test_seen_pairs_are_learned() -> None:
    _, result = trained(spec(N=8, max_steps=400, lr=1e-2, options={"lambda_entropy": 0.0, "lambda_variance": 0.0}))
    assert result.curve_loss[-1] < 0.1 * result.curve_loss[0]
    assert result.measures["id_correct"] > 0.9
    assert result.ood_mse > 5 * result.id_mse
