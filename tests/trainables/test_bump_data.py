"""Codes, regions, images and measures of the bump task."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from typing import Any

import pytest
import torch
from torch import Tensor

from orchestrator.searches.audits import NEEDED
from trainables import bumps
from trainables.bumps import BumpTask, bump_images, grid_centres, stripe_centres
from trainables.encodings import code_length, encode
from trainables.heldout import box_bounds, in_box
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Split, Task, load_task

TASK = BumpTask()
E_HALF, E_2 = math.exp(-0.5), math.exp(-2)


def spec(**changes: Any) -> RunSpec:
    options = {**TASK.defaults, **changes.pop("options", {})}
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 16, "data_count": 10, "seed": 0}
    return RunSpec(**{**fields, **changes}, options=tuple(options.items()))


def pairs(centres: Tensor) -> set[tuple[float, ...]]:
    return {tuple(c) for c in centres.tolist()}


def test_the_bump_task_is_a_task_with_sound_choices() -> None:
    assert isinstance(load_task("trainables.bumps:BumpTask"), Task)
    assert spec_fields(TASK, {})["dataset"] == "bumps"
    shapes = {(fields["width"], fields["holdout"]) for fields in (spec_fields(TASK, {"decoder": "mlp"}), spec_fields(TASK, {}))}
    assert shapes == {(256, "random"), (64, "random")}
    assert spec_fields(TASK, {"dataset": "stripes+bumps"})["holdout"] == "center"


def test_bump_code_holds_two_gaussians() -> None:
    code = encode(torch.tensor([[3.0, 5.0]]), 8, "bump")
    assert code.shape == (1, 16)
    assert code[0, [3, 2, 5]].tolist() == pytest.approx([1.0, E_HALF, E_2])
    assert code[0, [13, 14, 11]].tolist() == pytest.approx([1.0, E_HALF, E_2])


def test_one_hot_code_rounds_real_coordinates() -> None:
    code = encode(torch.tensor([[2.7, 4.2]]), 8, "one-hot")
    assert code.nonzero()[:, 1].tolist() == [3, 8 + 4]
    assert code.sum() == 2


def test_positional_code_alternates_sine_and_cosine() -> None:
    code = encode(torch.tensor([[3.0, 0.0]]), 8, "positional")
    assert code[0, :4].tolist() == pytest.approx([math.sin(3), math.cos(3), math.sin(0.3), math.cos(0.3)], abs=1e-6)
    assert code[0, 8:].tolist() == [0, 1] * 4


def test_ramp_code_is_the_coordinates() -> None:
    assert encode(torch.tensor([[3.0, 5.5]]), 8, "ramp").tolist() == [[3.0, 5.5]]


@pytest.mark.parametrize("encoding", ["bump", "one-hot", "positional", "ramp"])
def test_code_length_is_the_length_of_codes(encoding: str) -> None:
    assert encode(torch.zeros(3, 2), 9, encoding).shape == (3, code_length(encoding, 9))


def test_an_absent_coordinate_is_zeros_or_the_coordinate_minus_one() -> None:
    stripe = torch.tensor([[3.0, math.nan]])
    assert encode(stripe, 8, "bump")[0, 8:].abs().sum() == 0
    assert encode(stripe, 8, "bump", absent="minus-one")[0, 8:10].tolist() == pytest.approx([E_HALF, E_2])
    assert encode(stripe, 8, "one-hot", absent="minus-one")[0, 8:].sum() == 0
    assert encode(stripe, 8, "ramp", absent="minus-one").tolist() == [[3.0, -1.0]]
    with pytest.raises(ValueError, match="use absent=minus-one"):
        encode(stripe, 8, "ramp")


def test_boxes_are_the_papers_at_28_and_keep_their_proportion_elsewhere() -> None:
    assert box_bounds("center", 28) == (6, 22)
    assert box_bounds("corner", 28) == (0, 16)
    assert box_bounds("random", 28) is None
    assert int(in_box(grid_centres(28), "center", 28).sum()) == 289
    assert box_bounds("center", 64) == (13, 51)
    assert box_bounds("corner", 8) == (0, 4)
    inside = in_box(torch.tensor([[6.0, 22.0], [5.99, 10.0], [10.0, 22.01]]), "center", 28)
    assert inside.tolist() == [True, False, False]


def test_a_bump_has_x_along_columns_and_y_along_rows() -> None:
    image = bump_images(torch.tensor([[2.0, 5.0]]), 8)[0, 0]
    assert image.shape == (8, 8)
    assert image[5, 2] == 1
    assert image[5, 3].item() == pytest.approx(E_HALF)
    assert image[7, 2].item() == pytest.approx(E_2)
    assert image[6, 3].item() == pytest.approx(math.exp(-1))


def test_stripes_are_gaussian_across_and_constant_along() -> None:
    centres = stripe_centres(8)
    images = bump_images(centres, 8, sigma=2.0)
    assert images.shape == (16, 1, 8, 8)
    vertical, horizontal = images[3, 0], images[8 + 6, 0]
    assert vertical[:, 3].tolist() == [1.0] * 8
    assert vertical[:, 4].tolist() == pytest.approx([math.exp(-1 / 8)] * 8)
    assert horizontal[6].tolist() == [1.0] * 8
    assert torch.equal(horizontal[4], horizontal[4, :1].expand(8))


def test_dark_polarity_inverts_images() -> None:
    bright = TASK.data(spec()).train.targets
    dark = TASK.data(spec(options={"polarity": "dark"})).train.targets
    assert torch.equal(dark, 1 - bright)


@pytest.mark.parametrize(
    ("dataset", "holdout", "centres"),
    list(itertools.product(["bumps", "stripes+bumps"], ["random", "center", "corner"], ["integer", "real"])),
)
def test_training_sets_are_nested_seeded_and_never_hold_a_held_out_coordinate(dataset: str, holdout: str, centres: str) -> None:
    options = {"centres": centres}
    make = spec(dataset=dataset, holdout=holdout, options=options, N=12)
    counts = TASK.counts(make)
    sets = []
    for count in (max(1, counts.low), 20, 50, counts.high):
        data = TASK.data(make.with_count(count))
        drawn = data.train.truth[counts.fixed :]
        assert len(drawn) == count
        assert len(data.train.truth) == counts.fixed + count
        assert not pairs(drawn) & pairs(data.held_out.truth)
        assert len(pairs(drawn)) == count
        assert bool(((drawn >= 0) & (drawn <= 11)).all())
        if holdout != "random":
            assert not in_box(drawn, holdout, 12).any()
            assert in_box(data.held_out.truth, holdout, 12).all()
        sets.append(drawn)
    for small, large in itertools.pairwise(sets):
        assert torch.equal(large[: len(small)], small)
    other = TASK.data(dataclasses.replace(make, seed=1, data_count=20)).train.truth[counts.fixed :]
    assert not torch.equal(other, sets[1])


def test_held_out_sets_are_the_undrawn_coordinates_or_the_box() -> None:
    assert len(TASK.data(spec(data_count=56)).held_out.truth) == 200
    assert len(TASK.data(spec(N=28, holdout="center")).held_out.truth) == 289
    assert len(TASK.data(spec(N=28, holdout="center", options={"centres": "real"})).held_out.truth) == 289
    real = spec(options={"centres": "real"})
    assert torch.equal(TASK.data(real).held_out.truth, TASK.data(real.with_count(700)).held_out.truth)


def test_counts_are_what_can_be_drawn() -> None:
    counts = TASK.counts(spec(N=28, holdout="center"))
    assert (counts.low, counts.high, counts.fixed) == (1, 495, 0)
    counts = TASK.counts(spec(N=28, dataset="stripes+bumps", holdout="corner"))
    assert (counts.low, counts.high, counts.fixed) == (0, 495, 56)
    assert TASK.counts(spec(N=16)).high == 230
    assert TASK.counts(spec(N=10)).high == 90
    assert TASK.counts(spec(N=10, options={"centres": "real"})).high == 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"N": 7}, "N must be at least 8"),
        ({"options": {"sigma": 0.0}}, "sigma must be above 0"),
        ({"options": {"sigma": math.nan}}, "sigma must be a word or a finite number, not nan"),
        ({"options": {"tolerance": -1}}, "tolerance must be at least 0"),
        ({"options": {"polarity": "grey"}}, "polarity must be one of bright, dark, not 'grey'"),
        ({"options": {"centres": "float"}}, "centres must be one of integer, real"),
        ({"options": {"absent": "no"}}, "absent must be one of zero, minus-one"),
        ({"encoding": "ramp", "dataset": "stripes+bumps"}, "use the option absent=minus-one"),
    ],
)
def test_nonsense_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        TASK.counts(spec(**changes))
    assert "\n" not in str(error.value)


def test_data_counts_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data_count must lie in 1\.\.230"):
        TASK.data(spec(data_count=0))


def judged(images: Tensor, centre: tuple[float, float], **options: Any) -> dict[str, Any]:
    run = spec(N=16, options=options)
    split = Split(torch.zeros(1, 1), torch.zeros_like(images), torch.tensor([centre]))
    return {name: value.item() for name, value in TASK.measure(run, images, split).items()}


@pytest.mark.parametrize("polarity", ["bright", "dark"])
def test_measures_of_handmade_images(polarity: str) -> None:
    def shown(image: Tensor) -> Tensor:
        return 1 - image if polarity == "dark" else image

    bump = bump_images(torch.tensor([[9.0, 4.0]]), 16)
    options = {"polarity": polarity}
    right = judged(shown(bump), (9.0, 4.0), **options)
    assert (right["correct"], right["exact"], right["proper"]) == (True, True, True)
    near = judged(shown(bump), (10.0, 3.0), **options)
    assert (near["correct"], near["exact"], near["proper"]) == (True, False, True)
    assert not judged(shown(bump), (11.0, 4.0), **options)["correct"]
    assert not judged(shown(bump), (4.0, 9.0), **options)["correct"], "x is the column, y the row"
    assert not judged(shown(bump), (10.0, 3.0), **options, tolerance=0)["correct"]
    cross = torch.tensor([[9.0, math.nan], [math.nan, 4.0]])
    plus = bump_images(cross, 16).sum(dim=0, keepdim=True)
    both = judged(shown(plus), (9.0, 4.0), **options)
    assert (both["correct"], both["exact"], both["proper"]) == (True, True, False)
    assert not judged(shown(torch.zeros(1, 1, 16, 16)), (9.0, 4.0), **options)["proper"], "a blank image is no bump"


def test_the_nearest_pixel_is_exact_for_a_real_centre() -> None:
    bump = bump_images(torch.tensor([[9.3, 4.4]]), 16)
    found = judged(bump, (9.3, 4.4), centres="real", tolerance=0)
    assert found["correct"]
    assert found["exact"]


def test_mse_is_the_mean_over_pixels() -> None:
    assert judged(torch.full((1, 1, 16, 16), 0.5), (1.0, 1.0))["mse"] == pytest.approx(0.25)


def test_stripes_are_judged_by_the_coordinate_they_have() -> None:
    run = spec(dataset="stripes+bumps", data_count=0)
    train = TASK.data(run).train
    measures = TASK.measure(run, train.targets, train)
    assert bool(measures["correct"].all())
    assert bool(measures["proper"].all())
    assert not TASK.measure(run, train.targets.roll(2, dims=0), train)["correct"][2:16].any()


def test_a_large_grid_is_made_fast() -> None:
    start = time.process_time()
    data = TASK.data(spec(N=64, dataset="stripes+bumps", data_count=3600))
    assert time.process_time() - start < 3
    assert data.train.targets.dtype == torch.float32


def test_audits_are_known_of_the_default_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 40, "data_count": 0, "seed": 7, "decoder": "cnn"}
    default = RunSpec(**fields, options=tuple(TASK.defaults.items()))
    known = bumps.AUDITS["bumps", "cnn"]
    assert known >= NEEDED, "the main study would have all its lower bounds audited"
    assert TASK.audits(default) == known
    assert TASK.audits(dataclasses.replace(default, N=8, seed=0, data_count=3, precision="bfloat16")) == known
    for change in (
        {"lr": 3e-3}, {"depth": 4}, {"width": 32}, {"encoding": "ramp"}, {"target": 0.6}, {"max_steps": 4000},
        {"batch_size": 64}, {"holdout": "center"}, {"options": (*default.options[:-1], ("tolerance", 0))},
        {"decoder": "mlp", "width": 256},
    ):  # fmt: skip
        assert TASK.audits(dataclasses.replace(default, **change)) == 0, change
    monkeypatch.setattr(bumps, "RULE_VERSION", "2")
    assert TASK.audits(default) == 0, "they were audits of another rule"


def test_a_proper_bump_has_a_window_of_three_pixels_a_quarter_and_a_peak() -> None:
    image = torch.zeros(1, 1, 16, 16)
    image[0, 0, 4, 9], image[0, 0, 4, 12] = 1.0, 0.9
    assert judged(image, (9.0, 4.0), sigma=0.5)["proper"], "3 px at least, also of narrow bumps"
    image[0, 0, 4, 13] = 0.24
    assert judged(image, (9.0, 4.0))["proper"]
    image[0, 0, 4, 13] = 0.25
    assert not judged(image, (9.0, 4.0))["proper"], "it reaches a quarter"
    assert judged(image, (9.0, 4.0), sigma=2.0)["proper"], "3 sigma of wide ones"
    assert not judged(torch.full((1, 1, 16, 16), -1.0), (9.0, 4.0))["proper"], "darker than the background is no bump"
