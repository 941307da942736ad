"""Shapes2D: pictures of one figure with three binary factors, rendered from a seed. The compositions, their levels and splits.

A composition is a string of bits (shape, size, colour): 0 is a disc, large, red; 1 is another shape, small, blue. Lengths are
shares of half the side of a picture, so a picture reaches from -1 to 1. Shapes in comments: n pictures of N x N pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from trainables.settings import alternatives, setting
from trainables.training.seeds import stream

FACTORS = ("shape", "size", "colour")
NO_FACTOR = "none"
COMPOSITIONS = tuple(f"{i:03b}" for i in range(8))
CONDITIONS = 5
"""Numbers that a model is told of a picture: the shape (0 or 1), the size, and red, green and blue. Size and colours are scaled
so that the small and the large class are at -1 and 1, and so are black and full colour."""
SPLITS = {"train1": ("000", "100", "010", "001"), "fail1": ("000", "100", "010", "111")}
"""Seen compositions by the name of a split, as in Okawa et al. 2023 (arXiv 2310.09336)."""
MIDDLE, RED_TO_BLUE = (0.5, 0.2, 0.5), (-0.3, 0.0, 0.3)
DARKEST = 0.9
RENDERED_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class ShapeSettings:
    """How the classes of the factors look, and how much a picture differs from the mean of its class. Jitters are uniform."""

    pair: str = setting("plus", "Shape that stands against the disc, of equal area.", words=("plus", "triangle", "square"))
    radius_large: float = setting(0.62, "Mean radius of a large disc, in half pictures.", low=0.05, high=1)
    radius_small: float = setting(0.32, "Mean radius of a small disc, in half pictures.", low=0.05, high=1)
    radius_jitter: float = setting(0.08, "Largest deviation of a radius from its mean.", low=0, high=0.5)
    colour_separation: float = setting(1.0, "Distance of red from blue; 1 is 0.85 in RGB.", low=0.05, high=5 / 3)
    colour_jitter: float = setting(0.1, "Largest deviation of a channel of the colour; 0.17 for the oracle.", low=0, high=0.5)
    centre_jitter: float = setting(0.3, "Largest shift of a centre in x and in y, in half pictures.", low=0, high=0.9)
    background: float = setting(DARKEST, "Least brightness of a background; the most is 1, white.", low=0.5, high=1)
    faint: str = setting(NO_FACTOR, "Factor whose classes differ less than usual.", words=(NO_FACTOR, *FACTORS), later=True)
    contrast: float = setting(
        1.0, "How much the classes of the faint factor differ, as a share of the usual; its jitter shrinks with it.",
        low=0.01, high=1, later=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.faint == NO_FACTOR and self.contrast != 1:
            raise ValueError(f"contrast is that of the faint factor: set faint, too, to {alternatives(FACTORS)}")
        if self.radius_jitter >= self.radius_small:
            raise ValueError(
                f"radius_jitter must be under radius_small, or discs vanish, and is {self.radius_jitter:g}, "
                f"not under {self.radius_small:g}"
            )
        if self.radius_small + 2 * self.radius_jitter >= self.radius_large:
            raise ValueError(
                f"radius_small + 2 radius_jitter must be under radius_large, or sizes overlap, and is "
                f"{self.radius_small + 2 * self.radius_jitter:g}, not under {self.radius_large:g}"
            )

    def contrast_of(self, factor: str) -> float:
        return self.contrast if factor == self.faint else 1.0

    @property
    def shapes(self) -> tuple[float, float]:
        """How much of the other shape is in the figures of either class: none and all, if shape is not faint."""
        half = self.contrast_of("shape") / 2
        return 0.5 - half, 0.5 + half

    @property
    def radii(self) -> tuple[float, float, float]:
        """Mean radius of a large and of a small disc, and the most that one is off its mean."""
        contrast = self.contrast_of("size")
        nearer = (1 - contrast) / 2 * (self.radius_large - self.radius_small)
        return self.radius_large - nearer, self.radius_small + nearer, contrast * self.radius_jitter

    @property
    def colours(self) -> tuple[float, float]:
        """How far red is from blue, and the most that a channel is off its mean."""
        contrast = self.contrast_of("colour")
        return contrast * self.colour_separation, contrast * self.colour_jitter


class Scenes(NamedTuple):
    """What is in n pictures."""

    shape: Tensor
    """(n,): 0 for a disc, 1 for the other shape, between them for a figure between the two."""
    radius: Tensor
    """(n,): of a disc of this area."""
    colour: Tensor
    """(n, 3)."""
    centre: Tensor
    """(n, 2): x and y."""
    background: Tensor
    """(n,): its grey."""

    def take(self, index: Tensor | slice) -> Scenes:
        return Scenes(*(t[index] for t in self))


def bits_of(words: tuple[str, ...]) -> Tensor:
    """(n, factors) int64 of compositions such as "011"."""
    return torch.tensor([[int(bit) for bit in word] for word in words])


def seen_of(split: str) -> tuple[str, ...]:
    """The seen compositions of a split: those of `train1` or `fail1`, or those that it lists, as "000,100".

    Raises:
        ValueError: it is neither.
    """
    seen = SPLITS.get(split) or tuple(split.split(","))
    if not set(seen) <= set(COMPOSITIONS) or len(set(seen)) < len(seen) or len(seen) == len(COMPOSITIONS):
        words = " or ".join(SPLITS)
        raise ValueError(
            f"holdout must be {words}, or list some of the eight compositions, each once, as 000,100; not {split!r}"
        )
    return seen


def levels(bits: Tensor, seen: Tensor) -> Tensor:
    """The level (n,) of compositions (n, factors): the least number of factors by which one differs from any of the seen ones
    (s, factors). Factors may have any number of classes."""
    return (bits[:, None] != seen[None]).sum(2).amin(1)


def level_of_each(split: str) -> dict[str, int]:
    """The level of every composition where those of a split are seen.

    Raises:
        ValueError: as `seen_of`.
    """
    found = levels(bits_of(COMPOSITIONS), bits_of(seen_of(split))).tolist()
    return dict(zip(COMPOSITIONS, found, strict=True))


def class_values(settings: ShapeSettings, bits: Tensor) -> Scenes:
    """The means of their classes for compositions (n, 3): in the middle of a white picture."""
    other, size, blue = bits.double().unbind(1)
    (no_other, all_other), (large, small, _), (separation, _) = settings.shapes, settings.radii, settings.colours
    toward_blue = separation * (2 * blue - 1)
    return Scenes(
        shape=(no_other + other * (all_other - no_other)).float(),
        radius=(large + size * (small - large)).float(),
        colour=(torch.tensor(MIDDLE).double() + toward_blue[:, None] * torch.tensor(RED_TO_BLUE).double()).float(),
        centre=torch.zeros(len(bits), 2),
        background=torch.ones(len(bits)),
    )


def draw_scenes(settings: ShapeSettings, bits: Tensor, generator: Generator) -> Scenes:
    """Scenes of compositions (n, 3), each with its jitters. The first ones of many are those of few."""
    u = torch.rand(len(bits), 7, generator=generator)
    jitter = 2 * u - 1
    mean = class_values(settings, bits)
    return mean._replace(
        radius=mean.radius + settings.radii[2] * jitter[:, 0],
        colour=(mean.colour + settings.colours[1] * jitter[:, 1:4]).clamp(0, 1),
        centre=settings.centre_jitter * jitter[:, 4:6],
        background=settings.background + (1 - settings.background) * u[:, 6],
    )


def conditions(settings: ShapeSettings, scenes: Scenes) -> Tensor:
    """What a model is told of scenes: (n, CONDITIONS). It is told of a faint factor as loudly as of any other: the numbers are
    those of scenes in which all classes are as far apart as usual."""
    (large, small, _), (no_other, all_other) = settings.radii, settings.shapes
    middle, half = (large + small) / 2, (large - small) / 2
    other, colour = ((scenes.shape[:, None] - no_other) / (all_other - no_other)).round(), scenes.colour  # a class, 0 or 1
    if (contrast := settings.contrast_of("colour")) != 1:
        centre = colour.new_tensor(MIDDLE)
        colour = centre + (colour - centre) / contrast
    return torch.cat([other, (scenes.radius[:, None] - middle) / half, 2 * colour - 1], 1)


def class_conditions(settings: ShapeSettings, bits: Tensor) -> Tensor:
    """What a model is told of the means of their classes for compositions (n, 3): (n, CONDITIONS)."""
    return conditions(settings, class_values(settings, bits))


def distance(pair: str, shape: Tensor, radius: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Distance from the edge of a figure around the origin, negative inside. Far corners are counted as if lines went on.

    All figures have the area pi radius^2. The plus has arms of a third of its span; the triangle is equilateral, its tip up.
    """
    disc = (x.square() + y.square()).sqrt() - radius
    if pair == "square":
        other = torch.maximum(x.abs(), y.abs()) - radius * (math.sqrt(math.pi) / 2)
    elif pair == "plus":
        reach = radius * math.sqrt(9 * math.pi / 20)
        arm = reach / 3
        other = torch.minimum(torch.maximum(x.abs() - reach, y.abs() - arm), torch.maximum(x.abs() - arm, y.abs() - reach))
    else:
        inner = radius * math.sqrt(math.pi / math.sqrt(27))
        other = torch.maximum(y - inner, (math.sqrt(3) / 2) * x.abs() - y / 2 - inner)
    return disc + shape * (other - disc)


def coverage(pair: str, N: int, shape: Tensor, radius: Tensor, centre: Tensor) -> Tensor:
    """How much of each pixel (n, N, N) a figure covers, from 0 to 1, with edges of one pixel; y goes down."""
    pixels = (torch.arange(N, dtype=radius.dtype, device=radius.device) + 0.5) * (2 / N) - 1
    x, y = pixels - centre[:, :1, None], pixels[:, None] - centre[:, 1:, None]
    return (0.5 - distance(pair, shape[:, None, None], radius[:, None, None], x, y) * (N / 2)).clamp(0, 1)


def render(settings: ShapeSettings, N: int, scenes: Scenes) -> Tensor:
    """Pictures (n, 3, N, N) from 0 to 1."""
    pictures = torch.empty(len(scenes.radius), 3, N, N)
    for start in range(0, len(pictures), RENDERED_AT_ONCE):
        part = scenes.take(slice(start, start + RENDERED_AT_ONCE))
        covered = coverage(settings.pair, N, part.shape, part.radius, part.centre)[:, None]
        ground = part.background[:, None, None, None]
        pictures[start : start + RENDERED_AT_ONCE] = ground + covered * (part.colour[:, :, None, None] - ground)
    return pictures


class Pictures(NamedTuple):
    """Pictures of known compositions."""

    images: Tensor
    """(n, 3, N, N), from 0 to 1."""
    conditions: Tensor
    """(n, CONDITIONS)."""
    bits: Tensor
    """(n, 3) int64."""


def pool(settings: ShapeSettings, N: int, compositions: tuple[str, ...], count: int, seed: int, name: str = "pool") -> Pictures:
    """Unique pictures of these compositions, which take turns. A larger pool begins with a smaller one."""
    bits = bits_of(compositions)[torch.arange(count) % len(compositions)]
    scenes = draw_scenes(settings, bits, stream(seed, "shapes", name))
    return Pictures(render(settings, N, scenes), conditions(settings, scenes), bits)


def bundles(settings: ShapeSettings, N: int, compositions: tuple[str, ...], each: int, seed: int, name: str) -> Pictures:
    """The same, with an axis in front: all pictures of a composition are one sample (compositions, each, ...)."""
    return bundled(pool(settings, N, compositions, each * len(compositions), seed, name), len(compositions))


def bundled(made: Pictures, k: int) -> Pictures:
    """Pictures (k * each, ...) of k compositions, which take turns, by composition (k, each, ...)."""
    return Pictures(*(t.unflatten(0, (-1, k)).transpose(0, 1).contiguous() for t in made))
