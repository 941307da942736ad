"""Who reads pictures: the oracle, which fits templates, and the probe, which is told what is unclear."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from trainables.generative import judge, probe
from trainables.generative.judge import SAID, curves, shares_right
from trainables.generative.oracle import (
    SOFTEST,
    UNCLEAR,
    WORST,
    _templates,
    between,
    between_colours,
    read_by_templates,
    towards_blue,
)
from trainables.generative.probe import KINDS, LESSONS, Probe, _piece, blur, lessons, read_by_probe
from trainables.generative.shapes import (
    COMPOSITIONS,
    FACTORS,
    MIDDLE,
    RED_TO_BLUE,
    ShapeSettings,
    bits_of,
    bundles,
    class_values,
    coverage,
    draw_scenes,
    pool,
    render,
    seen_of,
)
from trainables.generative.tiers import FIGURES
from trainables.training.seeds import stream

SETTINGS = ShapeSettings()


@pytest.mark.slow(4)
@pytest.mark.parametrize("pair", ["plus", "triangle", "square"])
@pytest.mark.parametrize("radius_small", [0.32, 0.45])
def test_the_oracle_reads_real_pictures_of_every_composition(pair: str, radius_small: float) -> None:
    settings = ShapeSettings(pair=pair, radius_small=radius_small)
    made = bundles(settings, 24, COMPOSITIONS, 100, 0, "test")
    right = (read_by_templates(settings, made.images.flatten(0, 1)).bits == made.bits.flatten(0, 1)).all(1)
    assert right.view(8, 100).float().mean(1).min() >= 0.99


@pytest.mark.slow(1)
@pytest.mark.parametrize("radius_jitter", [0.08, 0.1])
def test_a_template_that_covers_the_whole_picture_is_never_chosen(radius_jitter: float) -> None:
    settings = ShapeSettings(**{**FIGURES, "pair": "square", "radius_large": 1.0, "radius_jitter": radius_jitter})
    templates = _templates(settings, 24, 1)[1]
    assert templates.isfinite().all()
    assert (templates == 0).all(1).any(), "one covers all"
    made = bundles(settings, 24, COMPOSITIONS, 16, 0, "test")
    read = read_by_templates(settings, made.images.flatten(0, 1))
    assert (read.bits == made.bits.flatten(0, 1)).all(1).view(8, 16).float().mean(1).min() >= 0.9
    flat = read_by_templates(settings, torch.ones(1, 3, 24, 24))
    assert all(found.isfinite().all() for found in flat)


@pytest.mark.parametrize("pair", ["plus", "triangle", "square"])
@pytest.mark.parametrize("N", [16, 24, 28, 32])
def test_all_templates_of_the_tiers_are_of_length_one(pair: str, N: int) -> None:
    settings = ShapeSettings(**{**FIGURES, "pair": pair})
    for shape in (0, 1):
        grid, templates = _templates(settings, N, shape)
        covered = coverage(pair, N, torch.full((len(grid),), float(shape)), grid[:, 0], grid[:, 1:]).flatten(1)
        centred = covered - covered.mean(1, keepdim=True)
        assert torch.equal(templates, centred / centred.norm(dim=1, keepdim=True))


def test_the_oracle_finds_what_was_rendered() -> None:
    bits = bits_of(COMPOSITIONS).repeat(4, 1)
    scenes = draw_scenes(SETTINGS, bits, stream(1, "test"))
    found = read_by_templates(SETTINGS, render(SETTINGS, 24, scenes))
    assert torch.equal(found.bits, bits)
    assert torch.allclose(found.radius, scenes.radius, atol=0.01)
    assert torch.allclose(found.colour, scenes.colour, atol=0.03)
    assert found.residual.max() < 0.1


def test_the_oracle_rejects_what_shows_no_composition() -> None:
    images, classes = lessons(SETTINGS, 24, 640, 0)
    kind = torch.arange(640) // 8 % len(KINDS)
    found = read_by_templates(SETTINGS, images)
    for name in ("blurred", "noise"):
        none = kind == KINDS.index(name)
        assert (classes[none] == UNCLEAR).all()
        assert (found.bits[none] == UNCLEAR).all()
    assert found.residual[kind == KINDS.index("noise")].min() > WORST
    assert found.softness[kind == KINDS.index("blurred")].min() > SOFTEST
    assert found.softness[kind == KINDS.index("sharp")].max() < SOFTEST
    scrambled = kind == KINDS.index("scrambled")
    assert (classes[scrambled] == UNCLEAR).all()
    assert (found.bits[scrambled] == UNCLEAR).all(1).float().mean() > 0.8
    purple = class_values(SETTINGS, bits_of(("000",)))._replace(colour=torch.tensor([[0.5, 0.2, 0.5]]))
    assert read_by_templates(SETTINGS, render(SETTINGS, 24, purple)).bits.tolist() == [[0, 0, UNCLEAR]]
    green = purple._replace(colour=torch.tensor([[0.8, 0.8, 0.2]]))
    assert read_by_templates(SETTINGS, render(SETTINGS, 24, green)).bits.tolist() == [[0, 0, UNCLEAR]]
    medium = class_values(SETTINGS, bits_of(("101",)))._replace(radius=torch.tensor([0.47]))
    assert read_by_templates(SETTINGS, render(SETTINGS, 24, medium)).bits.tolist() == [[1, UNCLEAR, 1]]


@pytest.mark.slow(3)
@pytest.mark.parametrize("faint", FACTORS)
def test_checked_lessons_show_what_their_labels_say_of_a_faint_factor(faint: str) -> None:
    place, kind = FACTORS.index(faint), torch.arange(800) // 8 % len(KINDS)
    coded = (kind == KINDS.index("coded")) | (kind == KINDS.index("coded") + 1)

    def figures(contrast: float) -> ShapeSettings:
        return ShapeSettings(radius_small=0.5, radius_jitter=0.04, colour_jitter=0.05, faint=faint, contrast=contrast)

    def right(of: str, contrast: float) -> float:
        """The share of what is clear that the oracle reads as it is labelled, of pictures made of codes."""
        settings = figures(contrast)
        images, classes = lessons(settings, 24, 800, 0, of)
        clear = coded & (classes[:, place] != UNCLEAR)
        read = read_by_templates(settings, images[clear]).bits[:, place] == classes[clear, place]
        return read.float().mean().item() if len(read) else 1.0

    assert right("coded", 0.1) < 0.75, "few codes do not keep it"
    assert right("checked", 0.1) > 0.8
    assert right("checked", 0.3) > 0.9
    for settings in (figures(1.0), ShapeSettings()):
        alike = zip(*(lessons(settings, 24, 160, 0, of) for of in LESSONS), strict=True)
        assert all(torch.equal(one, two) for one, two in alike), "at full contrast there is nothing to check"


def test_what_lies_between_two_classes_is_the_middle_third_of_their_gap() -> None:
    assert between(0.32, 0.62, 0.08) == pytest.approx((0.47 - 0.14 / 6, 0.47 + 0.14 / 6))
    along, off = towards_blue(SETTINGS, torch.tensor([[0.8, 0.2, 0.2], [0.2, 0.2, 0.8], [0.5, 0.6, 0.5]]))
    assert along.tolist() == pytest.approx([0, 1, 0.5])
    assert off.tolist() == pytest.approx([0, 0, 0.4], abs=1e-6)


def test_the_gap_between_the_colours_begins_at_the_bluest_red_that_is_drawn() -> None:
    (separation, jitter), way = SETTINGS.colours, torch.tensor(RED_TO_BLUE)
    bluest_red = torch.tensor(MIDDLE) - separation * way + jitter * way.sign()
    edge = towards_blue(SETTINGS, bluest_red[None])[0].item()
    assert 0.1 < edge < 0.4
    sixth = (1 - 2 * edge) / 6
    assert between_colours(SETTINGS) == pytest.approx((0.5 - sixth, 0.5 + sixth))


def test_a_blur_keeps_flat_pictures_and_spreads_a_point() -> None:
    point = torch.zeros(2, 3, 31, 31)
    point[:, :, 15, 15] = 1
    spread = blur(point, torch.tensor([1e-3, 2.0]))
    assert torch.equal(spread[0], point[0])
    assert spread[1, 0].sum().item() == pytest.approx(1, abs=1e-5)
    assert spread[1, 0, 15, 17] / spread[1, 0, 15, 15] == pytest.approx(torch.tensor(-0.5).exp().item(), rel=0.01)
    assert torch.allclose(blur(torch.full((1, 3, 15, 15), 0.7), torch.tensor([3.0])), torch.full((1, 3, 15, 15), 0.7))


def test_lessons_are_half_clear_and_a_longer_list_begins_with_a_shorter() -> None:
    images, classes = lessons(SETTINGS, 16, 600, 2)
    few = lessons(SETTINGS, 16, 100, 2)
    assert torch.equal(images[:100], few[0])
    assert torch.equal(classes[:100], few[1])
    clear = (classes != UNCLEAR).all(1)
    kind = torch.arange(600) // 8 % len(KINDS)
    assert torch.equal(clear, kind < len(KINDS) / 2)
    assert torch.equal(classes[clear], bits_of(COMPOSITIONS)[torch.arange(600) % 8][clear])
    in_between = classes[kind == KINDS.index("between")] == UNCLEAR
    assert (in_between.sum(1) == 1).all()
    assert in_between.any(0).all()
    assert images.min() >= 0
    assert images.max() <= 1
    close = lessons(ShapeSettings(radius_small=0.45), 16, 600, 2)[1][kind == KINDS.index("between")] == UNCLEAR
    assert set(close.sum(1).tolist()) == {1, 3}, "where sizes lie close, a picture that is faded takes the place of one between"


def test_a_few_pieces_of_torn_pictures_show_what_is_beside_them_and_their_classes_stay() -> None:
    whole, classes = lessons(SETTINGS, 24, 640, 3)
    images, same = lessons(SETTINGS, 24, 640, 3, torn=0.2)
    assert torch.equal(same, classes)
    worn = torch.arange(640) // 8 % len(KINDS) == KINDS.index("worn")
    assert torch.equal(images[~worn], whole[~worn])
    pieces, others = ((t[worn].unfold(2, 4, 4).unfold(3, 4, 4)).permute(0, 2, 3, 1, 4, 5).flatten(3) for t in (images, whole))
    changed = (pieces != others).any(3)
    assert 0.04 < changed.float().mean() < 0.12, "a fifth of the pieces at most, of which one in nine shows itself"
    assert changed.flatten(1).float().mean(1).max() < 0.4
    for n, down, right in changed[:, 1:-1, 1:-1].nonzero().tolist():
        beside = others[n, down : down + 3, right : right + 3].flatten(0, 1)
        assert (beside == pieces[n, down + 1, right + 1]).all(1).any()
    assert torch.equal(lessons(SETTINGS, 24, 100, 3, torn=0.2)[0], images[:100]), "a longer list begins with a shorter"
    faint, shares = ShapeSettings(faint="shape", contrast=0.1), []
    for of in LESSONS:
        torn, usual = (lessons(faint, 24, 640, 3, of, share)[0] for share in (0.5, 0.0))
        shares.append((torn != usual).any(1).float()[worn].mean().item())
    assert shares[1] < 0.2 * shares[0], "where shape or size is faint, fewer pieces are torn"


def test_the_last_pieces_of_a_picture_are_larger_where_they_do_not_divide_it() -> None:
    assert _piece(24).tolist() == [i // 4 for i in range(24)]
    assert _piece(28).tolist() == [*(i // 4 for i in range(20)), *[5] * 8]


@pytest.mark.parametrize("kind", ["cnn", "linear"])
def test_a_probe_reads_pictures_and_bundles_alike(kind: str) -> None:
    torch.manual_seed(0)
    probe = Probe(kind, 20, 4)
    images = torch.rand(2, 5, 3, 20, 20)
    bundled = probe(images)
    assert bundled.shape == (2, 3, 5, 3)
    assert torch.allclose(bundled.transpose(1, 2).flatten(0, 1), probe(images.flatten(0, 1)), atol=1e-6)
    assert torch.equal(read_by_probe(probe, images.flatten(0, 1)), bundled.argmax(1).flatten(0, 1))
    assert torch.allclose(probe[-1](probe.features(images[0])).unflatten(1, (3, 3)), probe(images[0]), atol=1e-6)


class Colourblind(nn.Module):
    """A probe that reads shape and size from the first picture of each composition, and red everywhere."""

    def __init__(self, bits: Tensor) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, images: Tensor) -> Tensor:
        read = self.bits.clone()
        read[:, 2] = 0
        return nn.functional.one_hot(read, 3).float().transpose(1, 2)


def test_a_picture_counts_when_both_judges_read_all_factors_right() -> None:
    made = bundles(SETTINGS, 24, COMPOSITIONS, 6, 0, "test")
    images = made.images.clone()
    images[:, 0] = 1  # nothing on it
    shares = shares_right(SETTINGS, Colourblind(made.bits.flatten(0, 1)), images, made.bits)
    red = 1 - made.bits[:, 0, 2].float()
    assert torch.equal(shares["probe"], red)
    assert torch.allclose(shares["oracle"], torch.full((8,), 5 / 6))
    assert torch.allclose(shares["both"], red * 5 / 6)
    assert torch.allclose(shares["agree"], torch.where(red > 0, 5 / 6, 1 / 6))


@pytest.mark.slow(2)
@pytest.mark.parametrize("factor", FACTORS)
def test_the_oracle_reads_a_faint_factor(factor: str) -> None:
    settings = ShapeSettings(faint=factor, contrast=0.1)
    made = pool(settings, 24, COMPOSITIONS, 400, 0)
    assert (read_by_templates(settings, made.images).bits == made.bits).all(1).float().mean() > 0.99
    means = class_values(settings, made.bits)
    neither = means._replace(radius=torch.full((400,), 0.47)) if factor == "size" else means._replace(
        colour=torch.tensor([0.5, 0.2, 0.5]).expand(400, 3)
    )
    if factor != "shape":  # of which the oracle has no middle
        assert (read_by_templates(settings, render(settings, 24, neither)).bits[:, FACTORS.index(factor)] == UNCLEAR).all()


def test_shares_of_single_factors_are_there_if_one_is_faint() -> None:
    settings = ShapeSettings(faint="size", contrast=0.8)
    made = bundles(settings, 24, COMPOSITIONS, 4, 0, "test")
    shares = shares_right(settings, Colourblind(made.bits.flatten(0, 1)), made.images, made.bits)
    red = 1 - made.bits[:, 0, 2].float()
    assert torch.equal(shares["both_colour"], red)
    assert torch.equal(shares["both_shape"], torch.ones(8))
    assert torch.equal(shares["both_size"], torch.ones(8))
    assert torch.equal(shares["both"], red)
    assert set(shares_right(SETTINGS, Colourblind(made.bits.flatten(0, 1)), made.images, made.bits)) == set(SAID)


@pytest.mark.parametrize("wrong", ["probe", "oracle"])
def test_a_single_factor_is_right_if_both_judges_read_it_so(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = bits_of(COMPOSITIONS)[:, None]
    right = bits.flatten(0, 1)
    other_size = right.clone()
    other_size[:, 1] = UNCLEAR
    read = (other_size, right) if wrong == "probe" else (right, other_size)
    monkeypatch.setattr(judge, "readings", lambda *_: read)
    shares = shares_right(ShapeSettings(faint="size"), nn.Identity(), torch.zeros(8, 1, 3, 4, 4), bits)
    assert [shares[f"both_{factor}"].tolist() for factor in FACTORS] == [[1] * 8, [0] * 8, [1] * 8]


def test_pictures_are_read_as_a_screen_shows_them() -> None:
    made = bundles(SETTINGS, 24, ("000", "111"), 4, 0, "test")
    probe = Colourblind(made.bits.flatten(0, 1))
    bright = torch.where(made.images > 0.97, 40.0, made.images)
    shown = shares_right(SETTINGS, probe, bright.clamp(0, 1), made.bits)
    found = shares_right(SETTINGS, probe, bright, made.bits)
    assert all(torch.equal(found[name], share) for name, share in shown.items())
    broken = torch.full_like(made.images, torch.nan)
    broken[0] = torch.inf
    assert shares_right(SETTINGS, probe, broken, made.bits)["oracle"].tolist() == [0, 0]


def test_curves_are_by_composition_and_by_level_whatever_their_order() -> None:
    words = ("111", "000", "110", "001", "011", "010", "101", "100")
    shares = torch.tensor([0.25, 1.0, 0.5, 0.75, 0.5, 1.0, 0.75, 0.75])
    found = curves({"both": shares}, bits_of(words), seen_of("train1"))
    assert {name: found[name] for name in found if not name[-1].isdigit() or "level" in name} == {
        "both_seen": 0.875, "both_level1": pytest.approx(7 / 12), "both_level2": 0.25, "both_least": 0.25,
    }  # fmt: skip
    assert {word: found[f"both_{word}"] for word in words} == dict(zip(words, shares.tolist(), strict=True))


def test_the_same_pictures_are_read_the_same_in_any_company() -> None:
    made = pool(SETTINGS, 24, COMPOSITIONS, 300, 1)
    assert torch.equal(read_by_templates(SETTINGS, made.images).bits[290:], read_by_templates(SETTINGS, made.images[290:]).bits)


def test_pictures_are_faded_into_other_compositions_by_a_share_that_leaves_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[torch.Tensor]()

    def spied(settings: ShapeSettings, bits: torch.Tensor, generator: torch.Generator) -> object:
        asked.append(bits)
        return draw_scenes(settings, bits, generator)

    monkeypatch.setattr(probe, "draw_scenes", spied)
    chances, bits = torch.linspace(0, 1, 64).repeat(2, 1).t(), bits_of(COMPOSITIONS).repeat(8, 1)
    probe._others(ShapeSettings(), 12, bits, chances, stream(0, "others"))
    assert {tuple(change) for change in (asked[0] ^ bits).tolist()} == {tuple(map(int, word)) for word in COMPOSITIONS[1:]}
    faded = probe._faded(torch.zeros(64, 3, 2, 2), torch.ones(64, 3, 2, 2), chances)
    assert (faded.min().item(), faded.max().item()) == pytest.approx((probe.LEAST_FADE, 1 - probe.LEAST_FADE))


def test_a_coded_picture_that_is_nearer_to_the_other_class_is_lost() -> None:
    mean, other, near_other, near_mean, far = (torch.full((1, 3, 2, 2), value) for value in (0.0, 1.0, 0.6, 0.4, 1.6))
    assert probe._is_lost(mean, other, near_other, far).tolist() == [True]
    assert probe._is_lost(mean, other, near_mean, far).tolist() == [False]
