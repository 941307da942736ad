"""What a tokenizer keeps of pictures: whether its reconstructions are still read right, and whether what is unseen is made of
tokens that were seen (arXiv 2510.03075).

Shapes in comments: n pictures of T tokens, of N x N pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from analysis.measures.quantity import Quantity
from analysis.trained import Trained
from trainables.generative.judge import curves, on_screen, readings
from trainables.generative.settings import TokenizerSettings
from trainables.generative.shapes import (
    COMPOSITIONS,
    Scenes,
    ShapeSettings,
    bits_of,
    class_values,
    coverage,
    draw_scenes,
    pool,
    render,
    seen_of,
)
from trainables.generative.tokenizers import Tokenizer
from trainables.settings import read_settings
from trainables.training.seeds import stream

VERSION = 1
EACH = 256
"""Pictures of each composition that are looked at."""
SHOWN = 8
"""Of these, pictures of each composition that are kept for figures."""
COVERED = 0.5
"""A token is one of the foreground if the figure covers more than this of a pixel of its patch."""


class TrainedTokenizer(Trained):
    """A tokenizer, with the probe that it was judged by."""

    @cached_property
    def settings(self) -> TokenizerSettings:
        return read_settings(TokenizerSettings, self.spec)

    @property
    def tokenizer(self) -> Tokenizer:
        return cast(Tokenizer, self.model)

    @property
    def seen(self) -> tuple[str, ...]:
        """The seen compositions."""
        return seen_of(self.spec.holdout)


@dataclass(frozen=True, slots=True)
class Judged:
    """What both judges read in m pictures of each composition."""

    probed: Tensor
    """(8, m, 3): 0, 1 or 2 for unclear."""
    fitted: Tensor
    """The same of the oracle."""

    @classmethod
    def of(cls, settings: ShapeSettings, probe: nn.Module, images: Tensor) -> Judged:
        """The readings of pictures (8, m, 3, N, N)."""
        return cls(*(said.unflatten(0, images.shape[:2]) for said in readings(settings, probe, images.flatten(0, 1))))

    def right(self) -> dict[str, Tensor]:
        """By each judge and by both, which factors of which pictures are read right (8, m, 3)."""
        wanted = bits_of(COMPOSITIONS)[:, None]
        probed, fitted = self.probed == wanted, self.fitted == wanted
        return {"probe": probed, "oracle": fitted, "both": probed & fitted}

    def shares(self) -> dict[str, Tensor]:
        """The shares (8,) of pictures in which all factors are read right by each judge and by both; and `agree`, the share of
        which both say that all are, or that not all are."""
        whole = {name: right.all(2) for name, right in self.right().items()}
        whole["agree"] = whole["probe"] == whole["oracle"]
        return {name: found.float().mean(1) for name, found in whole.items()}

    def quantities(self, seen: tuple[str, ...], prefix: str = "") -> Iterator[Quantity]:
        """The shares of each composition and of each level, under the names that `judge.curves` gives, and `agree`, that of all
        pictures; and by judge the shares of each factor (8, 3), as `probe_factors`."""
        shares = self.shares()
        for name, share in curves(shares, bits_of(COMPOSITIONS), seen).items():
            yield Quantity(prefix + name, share)
        yield Quantity(f"{prefix}agree", shares["agree"].mean().item())
        for name, right in self.right().items():
            yield Quantity(f"{prefix}{name}_factors", array=right.float().mean(1).numpy())

    def pictures(self, images: Tensor, name: str) -> Iterator[Quantity]:
        """The first pictures of each composition (8, SHOWN, 3, N, N), and what either judge reads in them."""
        yield Quantity(name, array=on_screen(images[:, :SHOWN]).numpy())
        for judge, said in (("probe", self.probed), ("oracle", self.fitted)):
            yield Quantity(f"{name}_{judge}", array=said[:, :SHOWN].numpy().astype(np.float32))


@torch.no_grad()
def measure(tokenizer: TrainedTokenizer) -> Iterator[Quantity]:
    """From 256 fresh pictures of each composition:

    - `both_111`, `probe_least` and so on: the shares of reconstructions in which the judges read all factors right; the same
      with `real_` in front, of the pictures themselves. See `Judged.quantities`.
    - `originals` and `reconstructions`, the first of them, and what is read in the latter.
    - of a tokenizer with codes: how much of what is unseen was seen in the training pictures of seen compositions; see
      `coverage_by`. `codes_used`, the share of the codes that these use.
    """
    s, N, model = tokenizer.settings, tokenizer.spec.N, tokenizer.tokenizer
    scenes, images = fresh(s, N, EACH, tokenizer.spec.seed, "tokens")
    again = torch.stack([model(part) for part in images])
    judged = Judged.of(s, tokenizer.parents["probe"], again)
    yield from judged.quantities(tokenizer.seen)
    yield from Judged.of(s, tokenizer.parents["probe"], images).quantities(tokenizer.seen, "real_")
    yield Quantity("originals", array=images[:, :SHOWN].numpy())
    yield from judged.pictures(again, "reconstructions")
    if model.kind == "vq":
        codes = model.codes(pool(s, N, tokenizer.seen, tokenizer.spec.data_count, tokenizer.spec.seed).images)
        yield Quantity("codes_used", len(codes.unique()) / s.codes)
        yield from coverage_by(model, s.codes, codes, s, scenes, images)


def fresh(settings: ShapeSettings, N: int, each: int, seed: int, name: str, means: bool = False) -> tuple[list[Scenes], Tensor]:
    """New pictures (8, each, 3, N, N) of every composition, and what is in them. With `means`, size and colour are the means of
    their classes, and only place and background differ."""
    scenes = []
    for word in COMPOSITIONS:
        bits = bits_of((word,)).expand(each, -1)
        drawn = draw_scenes(settings, bits, stream(seed, "shapes", name, word))
        if means:
            mean = class_values(settings, bits)
            drawn = drawn._replace(radius=mean.radius, colour=mean.colour)
        scenes.append(drawn)
    return scenes, torch.stack([render(settings, N, drawn) for drawn in scenes])


def coverage_by(
    model: Tokenizer, K: int, seen: Tensor, settings: ShapeSettings, scenes: list[Scenes], images: Tensor
) -> Iterator[Quantity]:
    """How much of the foreground of fresh pictures is made of what is seen, for each composition, as `unseen_codes_111`:

    - `unseen_codes`: the share of tokens of the foreground whose code no seen picture has anywhere;
    - `unseen_pairs`: the share whose code no seen picture has at their position;
    - `unseen_images`: the share of pictures with any such token.

    Args:
        K: number of codes.
        seen: codes (n, T) of the pictures of seen compositions that there are to learn from.
        scenes, images: as `fresh` gives them.
    """
    T = seen.shape[1]
    places = torch.arange(T)
    pairs = torch.zeros(T, K, dtype=torch.bool)
    pairs[places.expand_as(seen), seen] = True
    for word, drawn, part in zip(COMPOSITIONS, scenes, images, strict=True):
        codes, front = model.codes(part), foreground(settings, part.shape[-1], model.side, drawn)
        new_pair = ~pairs[places.expand_as(codes), codes] & front
        new_code = ~pairs.any(0)[codes] & front
        tokens = front.sum().clamp_min(1)
        yield Quantity(f"unseen_codes_{word}", (new_code.sum() / tokens).item())
        yield Quantity(f"unseen_pairs_{word}", (new_pair.sum() / tokens).item())
        yield Quantity(f"unseen_images_{word}", new_pair.any(1).float().mean().item())


def foreground(settings: ShapeSettings, N: int, side: int, scenes: Scenes) -> Tensor:
    """Which tokens (n, T) have some of the figure in their patch."""
    covered = coverage(settings.pair, N, scenes.shape, scenes.radius, scenes.centre)
    patches = covered.unflatten(2, (side, -1)).unflatten(1, (side, -1)).amax((2, 4))
    return (patches > COVERED).flatten(1)
