"""Shapes2D: what is in the pictures, how far compositions are from the seen ones, and pools drawn from a seed."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from trainables.generative.shapes import (
    COMPOSITIONS,
    FACTORS,
    ShapeSettings,
    bits_of,
    bundles,
    class_values,
    conditions,
    coverage,
    draw_scenes,
    levels,
    pool,
    render,
    seen_of,
)
from trainables.training.seeds import stream

SETTINGS = ShapeSettings()


@pytest.mark.parametrize("pair", ["plus", "triangle", "square"])
def test_both_shapes_of_a_pair_have_the_same_area(pair: str) -> None:
    radius = torch.tensor([0.3, 0.3, 0.55, 0.55])
    covered = coverage(pair, 200, torch.tensor([0.0, 1.0, 0.0, 1.0]), radius, torch.zeros(4, 2))
    assert torch.allclose(4 * covered.mean((1, 2)), math.pi * radius.square(), rtol=2e-3)


def test_a_figure_is_where_and_what_the_scene_says() -> None:
    scene = class_values(SETTINGS, bits_of(("000", "111")))._replace(centre=torch.tensor([[0.25, -0.25], [0.0, 0.0]]))
    red, blue = render(SETTINGS, 24, scene)
    assert red[:, 8, 14].tolist() == pytest.approx([0.8, 0.2, 0.2])  # x = (14.5 / 12) - 1, y = (8.5 / 12) - 1
    assert red[:, 23, 0].tolist() == [1, 1, 1]
    assert blue[:, 12, 12].tolist() == pytest.approx([0.2, 0.2, 0.8])
    row = blue[0, 12]  # through the arms of a plus, whose reach is 1.189 radii
    assert ((row < 0.99).sum() / 12).item() == pytest.approx(2 * 1.189 * 0.32, abs=0.1)
    assert (blue[0, 8] < 0.99).sum() < (row < 0.99).sum()


def test_classes_differ_by_the_separations_and_pictures_by_the_jitters() -> None:
    settings = dataclasses.replace(SETTINGS, colour_separation=0.5, background=0.95)
    bits = bits_of(COMPOSITIONS).repeat(250, 1)
    scenes = draw_scenes(settings, bits, stream(0, "test"))
    small, blue = bits[:, 1].bool(), bits[:, 2].bool()
    for radii, mean in ((scenes.radius[~small], 0.62), (scenes.radius[small], 0.32)):
        assert mean - 0.08 <= radii.min() < mean - 0.07
        assert mean + 0.07 < radii.max() <= mean + 0.08
    assert scenes.colour[~blue].mean(0).tolist() == pytest.approx([0.65, 0.2, 0.35], abs=0.01)
    assert scenes.colour[blue].mean(0).tolist() == pytest.approx([0.35, 0.2, 0.65], abs=0.01)
    assert 0.29 < scenes.centre.abs().max() <= 0.3
    assert 0.95 <= scenes.background.min() < 0.951
    assert scenes.background.max() <= 1


FAINT = [ShapeSettings(faint=factor, contrast=0.25) for factor in FACTORS]


@pytest.mark.parametrize("settings", FAINT, ids=FACTORS)
def test_a_faint_factor_and_its_jitter_shrink_and_nothing_else(settings: ShapeSettings) -> None:
    bits = bits_of(COMPOSITIONS)
    usual, faint = (class_values(one, bits) for one in (SETTINGS, settings))
    middle = {"shape": torch.tensor(0.5), "size": torch.tensor(0.47), "colour": torch.tensor([0.5, 0.2, 0.5])}
    drawn = [draw_scenes(one, bits, stream(0, "test")) for one in (SETTINGS, settings)]
    for factor, name in zip(FACTORS, ("shape", "radius", "colour"), strict=True):
        for before, after in ((usual, faint), drawn):
            old, new = getattr(before, name), getattr(after, name)
            wanted = middle[factor] + 0.25 * (old - middle[factor]) if factor == settings.faint else old
            assert torch.allclose(new, wanted, atol=1e-6)
    assert torch.equal(drawn[0].centre, drawn[1].centre)


@pytest.mark.parametrize("settings", FAINT, ids=FACTORS)
def test_a_model_is_told_of_a_faint_factor_as_loudly(settings: ShapeSettings) -> None:
    bits = bits_of(COMPOSITIONS)
    usual, faint = (conditions(one, draw_scenes(one, bits, stream(0, "test"))) for one in (SETTINGS, settings))
    assert torch.allclose(usual, faint, atol=1e-5)


@pytest.mark.parametrize("pair", ["plus", "triangle", "square"])
def test_a_faint_shape_is_told_as_the_class_that_it_is(pair: str) -> None:
    bits = bits_of(COMPOSITIONS)
    for contrast in torch.logspace(-1.5, 0, 200).tolist():
        settings = ShapeSettings(pair=pair, faint="shape", contrast=contrast)
        told = conditions(settings, draw_scenes(settings, bits, stream(0, "scenes")))
        assert torch.equal(told[:, 0], bits[:, 0].float()), contrast


def test_a_contrast_is_that_of_a_faint_factor() -> None:
    assert ShapeSettings(faint="size").radii == SETTINGS.radii
    with pytest.raises(ValueError, match="set faint, too, to shape, size or colour"):
        ShapeSettings(contrast=0.5)


def test_conditions_of_the_class_means_are_the_signs_of_the_bits() -> None:
    told = conditions(SETTINGS, class_values(SETTINGS, bits_of(("000", "111"))))
    assert told.tolist() == [pytest.approx([0, 1, 0.6, -0.6, -0.6]), pytest.approx([1, -1, -0.6, -0.6, 0.6])]


@pytest.mark.parametrize(
    ("split", "seen", "expected"),
    [
        ("train1", ("000", "100", "010", "001"), {"011": 1, "101": 1, "110": 1, "111": 2}),
        ("fail1", ("000", "100", "010", "111"), {"001": 1, "011": 1, "101": 1, "110": 1}),
        ("000", ("000",), {"001": 1, "011": 2, "111": 3}),
        ("011,100", ("011", "100"), {"000": 1, "111": 1}),
    ],
)
def test_the_level_is_the_distance_from_the_nearest_seen_composition(
    split: str, seen: tuple[str, ...], expected: dict[str, int]
) -> None:
    assert seen_of(split) == seen
    found = dict(zip(COMPOSITIONS, levels(bits_of(COMPOSITIONS), bits_of(seen)).tolist(), strict=True))
    assert {word: found[word] for word in expected} == expected
    assert all((level == 0) == (word in seen) for word, level in found.items())


def test_levels_are_for_factors_of_any_number_of_classes() -> None:
    """Of hue (10), scale (8) and shape (3): a base block of 6 x 6 x 2, and what differs from it in one factor."""
    all_cells = torch.cartesian_prod(torch.arange(10), torch.arange(8), torch.arange(3))
    base = (all_cells < torch.tensor([6, 6, 2])).all(1)
    assert torch.bincount(levels(all_cells, all_cells[base])).tolist() == [72, 108, 52, 8]


@pytest.mark.parametrize("split", ["train2", "00,111", "000,000", ",".join(COMPOSITIONS), ""])
def test_a_split_that_is_none_is_refused_in_one_sentence(split: str) -> None:
    with pytest.raises(ValueError, match=r"^holdout must be train1 or fail1, or list some of the eight") as error:
        seen_of(split)
    assert "\n" not in str(error.value)


def test_sizes_that_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be under radius_large, .* is 0.76, not under 0.62$"):
        ShapeSettings(radius_small=0.6)


def test_a_radius_that_may_be_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^radius_jitter must be under radius_small, or .* is 0.2, not under 0.1$"):
        ShapeSettings(radius_small=0.1, radius_jitter=0.2)
    with pytest.raises(ValueError, match=r"^radius_jitter must be under radius_small"):
        ShapeSettings(radius_small=0.1, radius_jitter=0.1)
    assert ShapeSettings(radius_small=0.1, radius_jitter=0.09).radii == (0.62, 0.1, 0.09)


def test_a_pool_is_a_function_of_its_seed_and_a_larger_one_begins_with_it() -> None:
    few, again, more, other = (
        pool(SETTINGS, 16, seen_of("train1"), count, seed) for count, seed in ((9, 3), (9, 3), (2100, 3), (9, 4))
    )
    for one, two, longer in zip(few, again, more, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, longer[:9])
    assert not torch.equal(few.images, other.images)
    assert ["".join(map(str, bits)) for bits in few.bits.tolist()] == [*seen_of("train1"), *seen_of("train1"), "000"]
    assert len(more.images.flatten(1).unique(dim=0)) == 2100
    assert few.images.min() >= 0
    assert few.images.max() <= 1


def test_a_bundle_is_one_composition() -> None:
    made = bundles(SETTINGS, 16, ("000", "011"), 5, 0, "test")
    assert made.images.shape == (2, 5, 3, 16, 16)
    assert made.bits.tolist() == [[[0, 0, 0]] * 5, [[0, 1, 1]] * 5]
    assert torch.equal(made.images.transpose(0, 1).flatten(0, 1), pool(SETTINGS, 16, ("000", "011"), 10, 0, "test").images)


def test_all_that_jitters_is_drawn_by_itself() -> None:
    scenes = draw_scenes(ShapeSettings(), bits_of(("000",)).repeat(2000, 1), stream(0, "test"))
    drawn = torch.cat([scenes.radius[:, None], scenes.colour, scenes.centre, scenes.background[:, None]], 1)
    assert (torch.corrcoef(drawn.t()) - torch.eye(7)).abs().max() < 0.1
