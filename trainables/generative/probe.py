"""The probe: a small network that reads the three factors of a picture, and what it learns from.

For each factor it has three classes: 0, 1 and unclear. It is trained on pictures of all compositions and on such that show no
composition, so that a blurred picture does not read as whichever class is nearest. What is unclear is decided by these rules:

- a size or a colour in the middle third between its classes, or a shape about halfway between them, makes that factor unclear
  and no other; but no picture shows such a size where the gap between the sizes is under NARROWEST, as it is in all tiers;
- two figures faded into each other, a picture blurred by a twelfth of its side or more, one whose pieces are mixed up, noise,
  and a picture of nothing make all three factors unclear;
- a picture that is worn, as a decoder's may be, is still clear: it is blurred by at most a thirtieth of its side, noisy by at
  most .03, and its edges waver by at most a fourteenth of its side; and so is one whose patches are the nearest of 32, which
  are the k-means of patches of all compositions alike. If it is `torn`, too, a few of its pieces show what is beside them, as
  where a generator draws an arm of a cross apart from it.

The last rule does not hold where a factor is faint: its classes may share their codes. So there are two kinds of LESSONS. Of
`checked` ones a picture made of codes is unclear in the faint factor if it is nearer to the other class, or differs from that
of the other class by less than MOST_LOST of what the two differ by before; and edges waver the less, the fainter shape or size
is. At full contrast both kinds are all but the same.

Shapes in comments: n pictures of N x N pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from trainables.generative.codebook import k_means, nearest
from trainables.generative.oracle import UNCLEAR, between, between_colours
from trainables.generative.shapes import (
    COMPOSITIONS,
    FACTORS,
    NO_FACTOR,
    Pictures,
    Scenes,
    ShapeSettings,
    bits_of,
    class_values,
    draw_scenes,
    render,
)
from trainables.training.seeds import stream

PROBES = ("cnn", "linear")
CLASSES = 3
AT_ONCE = 256
KINDS = ("sharp", "sharp", "worn", "coded", "coded", "between", "faded", "blurred", "scrambled", "noise")
"""What the pictures of a probe show, in turns."""
LESSONS = ("coded", "checked")
MOST_LOST = 0.5
KINDS_OF_OTHERS = ("sharp", "sharp", "worn", "faded", "blurred", "scrambled", "noise")
"""The same of pictures that are not rendered: between their classes there is nothing to draw, and few codes would not keep what
tells them apart."""
WORN_BLUR, WORN_NOISE, WAVER = 1 / 30, 0.03, 1 / 14
WAVES = 8
"""Points along a side that are moved by themselves."""
LEAST_BLUR, MOST_BLUR = 1 / 12, 1 / 5
"""Standard deviations of a blur as shares of a picture's side."""
LEAST_FADE = 0.3
PIECES = 6
"""Along a side of a picture that is scrambled or coded. Where it does not divide N, the last pieces are larger or smaller."""
CODES, CODED = 32, 512
"""Patches that coded pictures are made of, and pictures that they are taken from."""
NEITHER_SHAPE = (0.4, 0.6)
"""Shares of the way from one class of shapes to the other where a figure is neither."""
NARROWEST = 0.05
"""Sizes with a gap under this, in half pictures, have nothing between them that is worth a picture."""


class Probe(nn.Sequential):
    """From pictures (n, 3, N, N) to logits (n, CLASSES, 3) for each factor; from (n, m, 3, N, N) to (n, CLASSES, m, 3)."""

    ema = 0.98

    def __init__(self, kind: str, N: int, width: int) -> None:
        if kind == "linear":
            body: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * N * N, CLASSES * len(FACTORS))]
        else:
            body = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
            for a, b in pairwise((width, 2 * width, 2 * width, 2 * width)):
                body += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU()]
            side = (N + 7) // 8
            body += [nn.Flatten(), nn.Linear(2 * width * side * side, 4 * width), nn.ReLU()]
            body += [nn.Linear(4 * width, CLASSES * len(FACTORS))]
        super().__init__(*body)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = super().forward(2 * images.flatten(0, -4) - 1).unflatten(1, (CLASSES, len(FACTORS)))
        return logits if images.dim() == 4 else logits.unflatten(0, images.shape[:2]).transpose(1, 2)

    def features(self, images: Tensor) -> Tensor:
        """What the last layer reads of pictures (n, 3, N, N): (n, features)."""
        x = 2 * images - 1
        for layer in list(self)[:-1]:
            x = layer(x)
        return x


def read_by_probe(probe: nn.Module, images: Tensor) -> Tensor:
    """The most likely class of each factor (n, 3) in pictures (n, 3, N, N): 0, 1 or UNCLEAR."""
    return torch.cat([probe(part).argmax(1) for part in images.float().split(AT_ONCE)])


def blur(images: Tensor, widths: Tensor) -> Tensor:
    """Pictures (n, 3, N, N) blurred by Gaussians of these standard deviations (n,) in pixels; weights at an edge sum to 1."""
    k = torch.arange(images.shape[-1], dtype=images.dtype)
    weights = (-(k[:, None] - k).square() / (2 * widths[:, None, None].square())).exp()
    weights = (weights / weights.sum(2, keepdim=True))[:, None]
    return weights @ images @ weights.transpose(2, 3)


def lessons(
    settings: ShapeSettings, N: int, count: int, seed: int, of: str = "coded", torn: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Pictures (count, 3, N, N) to train a probe on, and the class of each factor (count, 3). Many begin with few.

    Args:
        of: which of the LESSONS.
        torn: the largest share of the pieces of a worn picture that show what is beside them.
    """
    turn = torch.arange(count)
    bits = bits_of(COMPOSITIONS)[turn % 8]
    kind, variant = (turn // 8) % len(KINDS), (turn // (8 * len(KINDS))) % len(FACTORS)
    scenes, u = draw_scenes(settings, bits, stream(seed, "shapes", "probe")), torch.rand(count, 4, generator=stream(seed, "u"))
    classes, has = bits.clone(), _masks(KINDS, kind)
    scenes, unclear = _between(settings, scenes, u[:, 0], has["between"], variant)
    has["faded"] |= has["between"] & ~unclear.any(1)
    images = render(settings, N, scenes)
    some = has["coded"].nonzero().squeeze(1)
    sharp, images[some] = images[some], _coded(settings, images[some], seed)
    if of == "checked" and settings.faint != NO_FACTOR:
        factor = FACTORS.index(settings.faint)
        flipped = bits.clone()
        flipped[:, factor] = 1 - flipped[:, factor]
        other = render(settings, N, draw_scenes(settings, flipped, stream(seed, "shapes", "probe")).take(some))
        unclear[some, factor] = _is_lost(sharp, other, images[some], _coded(settings, other, seed))
    some = has["faded"].nonzero().squeeze(1)
    images[some] = _faded(images[some], _others(settings, N, bits[some], u[some], stream(seed, "faded")), u[some])
    kept = 1.0 if of == "coded" else min(settings.contrast_of("shape"), settings.contrast_of("size"))
    classes[unclear | _spoil(images, has, variant, u, seed, kept * WAVER, kept * torn)[:, None]] = UNCLEAR
    return images.clamp(0, 1), classes


def lessons_from(made: Pictures, seed: int) -> tuple[Tensor, Tensor]:
    """The same from pictures of all compositions, which take turns. Each is faded into one of another composition near it."""
    count, k = len(made.images), len(COMPOSITIONS)
    turn = torch.arange(count)
    kind, variant = (turn // k) % len(KINDS_OF_OTHERS), (turn // (k * len(KINDS_OF_OTHERS))) % len(FACTORS)
    u, has = torch.rand(count, 4, generator=stream(seed, "u")), _masks(KINDS_OF_OTHERS, kind)
    images, classes = made.images.clone(), made.bits.clone()
    near = turn - turn % k + (turn % k + 1 + (u[:, 1] * (k - 1)).long().clamp_max(k - 2)) % k
    near = torch.where(near < count, near, near - k)
    some = has["faded"].nonzero().squeeze(1)
    images[some] = _faded(images[some], made.images[near[some]], u[some])
    classes[_spoil(images, has, variant, u, seed)] = UNCLEAR
    return images.clamp(0, 1), classes


def _masks(kinds: tuple[str, ...], kind: Tensor) -> dict[str, Tensor]:
    """Which pictures (n,) are of each kind."""
    return {name: torch.tensor([k == name for k in kinds])[kind] for name in kinds}


def _spoil(
    images: Tensor, has: Mapping[str, Tensor], variant: Tensor, u: Tensor, seed: int, waver: float = WAVER, torn: float = 0.0
) -> Tensor:
    """Change those pictures that are worn, blurred, scrambled or drowned in noise, in place. Which ones show no composition any
    more, the faded ones among them (n,)."""
    N = images.shape[-1]
    some = has["worn"].nonzero().squeeze(1)
    images[some] = _worn(images[some], u[some], stream(seed, "worn"), waver)
    if torn:
        images[some] = _torn(images[some], torn * u[some, 3], seed)
    some = has["blurred"].nonzero().squeeze(1)
    images[some] = blur(images[some], (LEAST_BLUR + u[some, 0] * (MOST_BLUR - LEAST_BLUR)) * N)
    some = has["scrambled"].nonzero().squeeze(1)
    images[some] = _scrambled(images[some], stream(seed, "scrambled"))
    some = has["noise"].nonzero().squeeze(1)
    images[some] = _nothing(images[some], variant[some], u[some], stream(seed, "noise"))
    return torch.stack([has[name] for name in ("faded", "blurred", "scrambled", "noise")]).any(0)


def _between(settings: ShapeSettings, scenes: Scenes, u: Tensor, chosen: Tensor, variant: Tensor) -> tuple[Scenes, Tensor]:
    """The chosen scenes with one factor between its classes, and which factors are unclear (n, 3)."""
    large, small, jitter = settings.radii
    no_other, all_other = settings.shapes
    neither = [no_other + share * (all_other - no_other) for share in NEITHER_SHAPE]
    unclear = chosen[:, None] & (variant[:, None] == torch.arange(len(FACTORS)))
    if large - small - 2 * jitter < NARROWEST:
        unclear[:, 1] = False

    def somewhere(low: float, high: float) -> Tensor:
        return low + u * (high - low)

    red, blue = (class_values(settings, bits_of((word,))).colour for word in ("000", "001"))
    place = somewhere(*between_colours(settings))[:, None]
    return scenes._replace(
        shape=torch.where(unclear[:, 0], somewhere(*neither), scenes.shape),
        radius=torch.where(unclear[:, 1], somewhere(*between(small, large, jitter)), scenes.radius),
        colour=torch.where(unclear[:, 2:], red + place * (blue - red), scenes.colour),
    ), unclear


def _others(settings: ShapeSettings, N: int, bits: Tensor, u: Tensor, generator: Generator) -> Tensor:
    """Pictures whose compositions differ from these."""
    changes = bits_of(COMPOSITIONS[1:])[(u[:, 1] * 7).long().clamp_max(6)]
    return render(settings, N, draw_scenes(settings, bits ^ changes, generator))


def _faded(images: Tensor, others: Tensor, u: Tensor) -> Tensor:
    """Pictures faded into others."""
    share = (LEAST_FADE + u[:, 0] * (1 - 2 * LEAST_FADE))[:, None, None, None]
    return images + share * (others - images)


def _worn(images: Tensor, u: Tensor, generator: Generator, waver: float) -> Tensor:
    """Pictures whose edges waver, blurred a little and with a little noise."""
    n, _, N, _ = images.shape
    noise = 2 * _noise(generator, n, N) - 1
    waves = functional.interpolate(noise[:, :2, :WAVES, :WAVES], size=(N, N), mode="bilinear", align_corners=True)
    still = functional.affine_grid(torch.eye(2, 3).expand(n, 2, 3), [n, 3, N, N], align_corners=False)
    moved = still + 2 * waver * u[:, 2, None, None, None] * waves.permute(0, 2, 3, 1)
    wavering = functional.grid_sample(images, moved, padding_mode="border", align_corners=False)
    return blur(wavering, (u[:, 0] * WORN_BLUR * N).clamp_min(1e-3)) + WORN_NOISE * u[:, 1, None, None, None] * noise


def _coded(settings: ShapeSettings, images: Tensor, seed: int) -> Tensor:
    """Pictures of which every patch is the nearest of a few."""
    N = images.shape[-1]
    size, codes = round(N / PIECES), _codes(settings, N, seed)
    whole = N + -N % size
    parts = [codes[nearest(_patches(part, size), codes)].transpose(1, 2) for part in images.split(AT_ONCE)]
    return functional.fold(torch.cat(parts), whole, size, stride=size)[:, :, :N, :N]


@lru_cache(maxsize=8)
def _codes(settings: ShapeSettings, N: int, seed: int) -> Tensor:
    """The patches (CODES, pixels) that coded pictures are made of."""
    bits = bits_of(COMPOSITIONS)[torch.arange(CODED) % 8]
    pictures = render(settings, N, draw_scenes(settings, bits, stream(seed, "shapes", "coded")))
    return k_means(_patches(pictures, round(N / PIECES)).flatten(0, 1), CODES, stream(seed, "codes"))


def _patches(images: Tensor, size: int) -> Tensor:
    """The patches (n, patches, pixels) of pictures whose last row and column are repeated to fill them."""
    beyond = -images.shape[-1] % size
    bordered = functional.pad(images, (0, beyond, 0, beyond), mode="replicate")
    return functional.unfold(bordered, size, stride=size).transpose(1, 2)


def _is_lost(sharp: Tensor, other: Tensor, coded: Tensor, other_coded: Tensor) -> Tensor:
    """Whether pictures made of codes (n, 3, N, N) no longer show what tells the sharp ones from those of the other class: they
    differ by too little, or are nearer to the latter."""

    def apart(one: Tensor, two: Tensor) -> Tensor:
        return (one - two).abs().sum((1, 2, 3))

    return (apart(coded, other_coded) < MOST_LOST * apart(sharp, other)) | (apart(coded, other) <= apart(coded, sharp))


def _torn(images: Tensor, shares: Tensor, seed: int) -> Tensor:
    """Pictures of which these shares (n,) of the pieces, drawn by lot, show what is there or in a piece beside it."""
    n, _, N, _ = images.shape
    drawn = torch.rand(n, PIECES, PIECES, generator=stream(seed, "torn")) < shares[:, None, None]
    piece = _piece(N)
    return torch.where(drawn[:, piece][:, :, piece][:, None], _scrambled(images, stream(seed, "torn", "to")), images)


def _piece(N: int) -> Tensor:
    """In which piece each of N pixels along a side lies."""
    return (torch.arange(N) // (N // PIECES)).clamp_max(PIECES - 1)


def _scrambled(images: Tensor, generator: Generator) -> Tensor:
    """Pictures of which every piece shows what is there or in a piece beside it, drawn by lot."""
    n, _, N, _ = images.shape
    size = N // PIECES
    moves = torch.randint(-1, 2, (n, 2, PIECES, PIECES), generator=generator)
    pixels, piece = torch.arange(N), _piece(N)
    down, right = (moves[:, :, piece][:, :, :, piece] * size).unbind(1)  # (n, N, N) each
    source = (pixels[:, None] + down).clamp(0, N - 1) * N + (pixels + right).clamp(0, N - 1)
    return images.flatten(2).gather(2, source.flatten(1)[:, None].expand(-1, 3, -1)).view_as(images)


def _noise(generator: Generator, n: int, N: int) -> Tensor:
    return torch.rand(n, 3, N, N, generator=generator)


def _nothing(images: Tensor, variant: Tensor, u: Tensor, generator: Generator) -> Tensor:
    """Smooth fields of colour, pictures drowned in noise, and empty backgrounds, in turns."""
    n, _, N, _ = images.shape
    noise = _noise(generator, n, N)
    field = functional.interpolate(noise[:, :, :5, :5], size=(N, N), mode="bilinear", align_corners=True)
    drowned = images + (0.5 + 0.5 * u[:, 0, None, None, None]) * (noise - images)
    empty = 1 - 0.1 * u[:, 1, None, None, None] + 0.02 * (noise - 0.5)
    which = variant[:, None, None, None]
    return torch.where(which == 0, field, torch.where(which == 1, drowned, empty))
