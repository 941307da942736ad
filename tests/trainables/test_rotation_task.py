"""The rotation task: its angles, its images, its decoder, and that it trains as every task does."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainables.test_training_loop import resumed
from trainables.rotation import RotationCNN, RotationTask, image_of, image_option, rotated
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Split, Task
from trainables.training import pack_size as packing
from trainables.training.loop import Training
from trainables.training.pack_size import best_pack_size

TASK = RotationTask()


def spec(**changes: Any) -> RunSpec:
    """A small run on all angles there are, if `data_count` is not given."""
    options = {**TASK.defaults, "angles": 60, **changes.pop("options", {})}
    fields = {"task": "trainables.rotation:RotationTask", "dataset": "rotation", "N": 8, "seed": 0, "width": 4}
    fields |= {"decoder": "rotation-cnn", "encoding": "angle", "holdout": "arc", "stop": "budget", "max_steps": 50} | changes
    run = RunSpec(**{"data_count": 0, **fields}, options=tuple(sorted(options.items())))
    return run if "data_count" in changes else run.with_count(TASK.counts(run).low)


def test_it_is_a_task_with_the_published_numbers() -> None:
    assert isinstance(TASK, Task)
    fields = spec_fields(TASK, {})
    assert (fields["depth"], fields["width"], fields["holdout"]) == (2, 128, "arc")
    published = spec(N=28, width=128, options={"angles": 1000})
    assert published.data_count == 888
    model = TASK.model(published)
    linear, first, second, last = 3 * 128 * 49, 128 * 128 * 16 + 128, 128 * 64 * 16 + 64, 64 * 9 + 1
    assert sum(p.numel() for p in model.parameters()) == linear + first + second + last + 2 * (128 + 64) == 413_185


def test_the_gap_is_held_out_edges_included() -> None:
    data = TASK.data(spec(options={"angles": 37}))
    assert data.held_out.truth.tolist() == [160.0, 170.0, 180.0, 190.0, 200.0]
    assert data.train.truth.tolist() == [*range(0, 160, 10), *range(210, 361, 10)]
    assert data.held_out.inputs[2].tolist() == pytest.approx([-1, 0], abs=1e-6)
    assert data.train.inputs[3].tolist() == pytest.approx([math.sqrt(3) / 2, 0.5], abs=1e-6)
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.float32


def test_images_are_the_image_rotated() -> None:
    image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    run = spec(options={"angles": 37, "image": image_option(image), "gap_low": 90.0, "gap_high": 180.0})
    data = TASK.data(run)
    assert torch.allclose(data.train.targets[0, 0] * 255, torch.from_numpy(image).float(), atol=1e-4)
    assert torch.allclose(data.held_out.targets[0, 0] * 255, torch.from_numpy(np.rot90(image).copy()).float(), atol=1e-3)
    assert torch.allclose(data.held_out.targets[-1, 0] * 255, torch.from_numpy(image[::-1, ::-1].copy()).float(), atol=1e-3)


@pytest.mark.parametrize("N", [8, 16, 28])
def test_the_bundled_digit_is_enlarged_and_not_cut_by_rotation(N: int) -> None:
    image = image_of("digit-4", N)
    assert image.shape == (N, N)
    assert image.min() == 0
    assert 0.9 < image.max() <= 1
    filled = np.argwhere(image > 0) - (N - 1) / 2
    assert np.hypot(*filled.T).max() <= (N - 1) / 2
    ink = rotated(image, np.arange(0.0, 360.0, 15.0)).sum(dim=(1, 2, 3))
    assert ink.min() > 0.97 * ink.max()


def test_what_rotation_brings_in_from_outside_is_black() -> None:
    assert rotated(np.ones((8, 8)), np.array([45.0]))[0, 0, ::7, ::7].tolist() == [[0, 0], [0, 0]]


def test_digits_are_those_their_names_say() -> None:
    # the bundled 4 is open at the top: ink left and right of the middle, none between; the bundled 0 is empty in its middle
    four, nought = image_of("digit-4", 28), image_of("digit-0", 28)
    assert nought[12:16, 12:16].max() < 0.2
    assert four[12:16, 12:16].mean() > nought[12:16, 12:16].mean() + 0.2
    assert four.sum() == pytest.approx(102.02, abs=0.01), "it is enlarged with black around it"


def test_an_image_survives_being_an_option() -> None:
    image = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    assert (image_of(image_option(image), 28) == image / 255).all()


def test_pixels_that_would_fill_the_memory_are_not_unpacked() -> None:
    bomb = image_option(np.zeros(50_000_000))
    tracemalloc.start()
    with pytest.raises(ValueError, match="image has more than 64 pixels, and N = 8 asks for 8 x 8"):
        image_of(bomb, 8)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


BAD = [
    ({"options": {"image": "cat.png"}}, "image must be digit-0 to digit-9"),
    ({"options": {"image": "digit-10"}}, "image must be digit-0 to digit-9"),
    ({"options": {"image": "digit-"}}, "image must be digit-0 to digit-9"),
    ({"options": {"image": "pixels:?"}}, "the pixels of image are damaged"),
    ({"options": {"image": "pixels:aGVsbG8="}}, "the pixels of image are damaged"),
    ({"options": {"image": image_option(np.zeros((28, 28)))}}, "image has more than 64 pixels, and N = 8 asks for 8 x 8"),
    ({"options": {"image": image_option(np.zeros((4, 4)))}}, "image has 16 pixels, and N = 8 asks for 8 x 8"),
    ({"options": {"image": image_option(np.zeros((8, 8)))[:-4]}}, "the pixels of image are damaged"),
    ({"data_count": 7}, "data_count must be 54, the angles outside the gap, not 7"),
    ({"N": 10}, "N must be a multiple of 4 of at least 8, not 10"),
    ({"N": 4}, "N must be a multiple of 4 of at least 8, not 4"),
    ({"depth": 3}, "depth must be 2, not 3"),
    ({"width": 5}, "width must be an even number of at least 2, not 5"),
    ({"options": {"gap_low": 200.0, "gap_high": 160.0}}, "must lie in 0..360 degrees and not be empty, not 200..160"),
    ({"options": {"gap_high": 400.0}}, "not 160..400"),
    ({"options": {"gap_low": math.nan}}, "gap_low must be a word or a finite number, not nan"),
    ({"options": {"angles": 1}}, "angles must lie in 2.."),
    ({"options": {"angles": 2}}, "none of 2 angles lies in the gap 160..200"),
    ({"options": {"gap_low": 0.0, "gap_high": 360.0}}, "not 0..360; it may not reach 0 or 360, which are one angle"),
    ({"options": {"gap_low": 0.0, "gap_high": 90.0}}, "not 0..90; it may not reach 0 or 360, which are one angle"),
    ({"options": {"gap_low": 320.0, "gap_high": 360.0}}, "not 320..360; it may not reach 0 or 360, which are one angle"),
]


@pytest.mark.parametrize(("changes", "hint"), BAD, ids=[hint for _, hint in BAD])
def test_what_it_cannot_do_is_told_in_words(changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValueError, match=hint.replace(".", r"\.")):
        TASK.data(spec(**changes))


def test_layers_are_what_the_images_are_made_of() -> None:
    torch.manual_seed(0)
    model = TASK.model(spec(N=28, width=6)).eval()
    codes = torch.randn(5, 2)
    layers = model.layers(codes)
    assert [tuple(a.shape) for a in layers] == [(5, 6, 7, 7), (5, 6, 14, 14), (5, 3, 28, 28), (5, 1, 28, 28)]
    assert torch.equal(layers[-1], model(codes))
    assert min(layers[1].min(), layers[2].min()) == 0
    assert layers[0].min() < 0, "no ReLU after the linear layer"
    assert 0 < layers[3].min() < layers[3].max() < 1


def test_a_correct_output_has_under_a_tenth_of_the_error_of_a_blank_image() -> None:
    truth = torch.full((4, 1, 8, 8), 0.5)
    outputs = truth * torch.tensor([1.0, 0.7, 0.66, 0.0]).view(4, 1, 1, 1)
    judged = TASK.measure(spec(), outputs, Split(torch.zeros(4, 2), truth, torch.zeros(4)))
    assert judged["correct"].tolist() == [True, True, False, False]  # 0, 0.09, 0.12 and 1 times the error of a blank image
    assert judged["mse"].tolist() == pytest.approx([0, 0.0225, 0.0289, 0.25], rel=1e-5)


@pytest.mark.slow(3)
def test_it_learns_the_angles_it_sees_and_is_worse_in_the_gap() -> None:
    run = spec(N=16, width=16, max_steps=200, schedule="cosine", lr=1e-2)
    training = Training(run, TASK)
    assert training.advance()
    result = training.result()
    assert result.id_mse < 5e-3
    assert result.ood_mse > 2 * result.id_mse
    assert result.measures["id_correct"] == 1


def test_a_run_cut_in_two_ends_in_the_same_bits_batch_statistics_included() -> None:
    run = spec(max_steps=40)
    whole, cut = Training(run, TASK), Training(run, TASK)
    whole.advance()
    for _ in range(23):
        cut.train_step()
    ended = resumed(cut)
    ended.advance()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, ended.model.state_dict()[name]), name
    assert isinstance(whole.model.hidden[0][1], nn.BatchNorm2d)
    assert whole.model.state_dict()["hidden.0.1.num_batches_tracked"] == 40


def test_its_pack_size_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TIMED_SECONDS", 0.0)
    monkeypatch.setattr(packing, "GAIN", math.inf)
    run = Training(spec(), TASK)
    assert best_pack_size(run, 2) == 2
    assert run.step == 0
    assert run.model.state_dict()["hidden.0.1.num_batches_tracked"] == 0


def test_a_digit_has_twenty_of_28_pixels_as_in_mnist() -> None:
    assert (image_of("digit-4", 28) > 0).any(1).sum() == 20


def test_images_are_rotated_by_bilinear_interpolation() -> None:
    point = np.zeros((9, 9))
    point[4, 7] = 1
    found = rotated(point, np.array([45.0]))[0, 0]
    assert found.min() >= 0, "nothing overshoots"
    assert found[1:3, 5:8].sum() > 0.8 * found.sum()


def test_the_decoder_starts_as_kaiming_has_it() -> None:
    torch.manual_seed(0)
    for name, p in RotationCNN(16, 64).named_parameters():
        if p.dim() > 1:
            values = p.detach().flatten() / math.sqrt(2 / nn.init._calculate_fan_in_and_fan_out(p)[0])
            assert values.std().item() == pytest.approx(1, rel=0.1), name
            assert values.abs().max() > 2, "normal, not uniform"
        elif "hidden" not in name or name.endswith("0.bias"):
            assert not p.any(), name
