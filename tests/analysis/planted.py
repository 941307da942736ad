"""A probe, a tokenizer and generators of pictures that do what a rule says: what the tests of their measures look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from analysis.measures.generated import TrainedGenerator
from analysis.measures.tokens import TrainedTokenizer
from trainables.generative.chain import tokenizer_of
from trainables.generative.oracle import read_by_templates
from trainables.generative.shapes import ShapeSettings, class_values, draw_scenes, render
from trainables.generative.tiers import FIGURES, generator
from trainables.task import load_task

N = 16
SETTINGS = ShapeSettings(**FIGURES)  # type: ignore[arg-type]


class Oracle(nn.Module):
    """A probe that reads what the oracle does; its features are the shape, the size and the colour."""

    def forward(self, images: Tensor) -> Tensor:
        return functional.one_hot(read_by_templates(SETTINGS, images).bits, 3).transpose(1, 2).float()

    def features(self, images: Tensor) -> Tensor:
        read = read_by_templates(SETTINGS, images)
        return torch.cat([read.bits[:, :1].float(), 4 * read.radius[:, None], read.colour], 1)


class Pixels(nn.Module):
    """A tokenizer of which a picture is one token, changed by a rule on its way back."""

    side = 1

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda images: images, kind: str = "vae") -> None:
        super().__init__()
        self.change, self.kind = change, kind

    def forward(self, images: Tensor) -> Tensor:
        return self.change(images)

    def decode(self, latents: Tensor) -> Tensor:
        return self.change(latents.view(-1, 3, N, N))

    def codes(self, images: Tensor) -> Tensor:
        """1 where a picture is more blue than red, else 0."""
        return (images[:, 2] > images[:, 0]).any((1, 2)).long()[:, None]


class Knowing(Pixels):
    """A tokenizer of the code 1 for the pictures that it knows, and 0 for all others."""

    def __init__(self, known: Tensor) -> None:
        super().__init__(kind="vq")
        self.known = known

    def codes(self, images: Tensor) -> Tensor:
        return (images[:, None] == self.known).flatten(2).all(2).any(1).long()[:, None]


class Renderer(nn.Module):
    """A generator that renders pictures of what is asked, or of the compositions that a rule makes of these (n, 3)."""

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda bits: bits) -> None:
        super().__init__()
        self.change = change

    def sample(self, conditions: Tensor, random: Generator) -> Tensor:
        """Latents (n, 1, pixels) for conditions (n, 5)."""
        bits = self.change(torch.stack([conditions[:, 0], conditions[:, 1] < 0, conditions[:, 4] > 0], 1).long())
        means = class_values(SETTINGS, bits)
        scenes = draw_scenes(SETTINGS, bits, random)._replace(radius=means.radius, colour=means.colour)
        return render(SETTINGS, N, scenes).flatten(1)[:, None]


def planted_tokenizer(tokenizer: Pixels) -> TrainedTokenizer:
    spec = tokenizer_of(generator("smoke", settings={"encoding": tokenizer.kind}))
    return TrainedTokenizer("planted", spec, load_task(spec.task), tokenizer, {"probe": Oracle()})


def planted_generator(model: nn.Module, tokenizer: Pixels | None = None, **words: Any) -> TrainedGenerator:
    made = tokenizer or Pixels()
    spec = generator("smoke", settings={"encoding": made.kind, **words})
    return TrainedGenerator("planted", spec, load_task(spec.task), model, {"probe": Oracle(), "tokenizer": made})
