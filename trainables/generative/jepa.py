"""The auxiliary loss `jepa`: from what the trunk makes of a part of a picture, guess what it makes of the whole one (arXiv
2510.03075; I-JEPA, Assran et al. 2023, arXiv 2301.08243). Targets are continuous, also where the objective guesses codes.

The layers of a trunk are counted as `Trunk.layers` gives them: layer l is what comes out of block l, from 1 to its depth.
Shapes in comments: n samples of T tokens, W = the width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainables.generative.masking import masked_mean
from trainables.generative.trunk import small

TEACHERS = ("ema", "same", "gradient")
TWELFTHS = {"three": (7, 9, 11), "one": (9,)}
"""Words for layers: those of the paper, whose trunk has twelve, and the middle one of them. With another depth they are the
nearest ones, so 2, 3 and 4 of four."""
MOST_LETTERS = 40
"""Of a layer in a list, and of a list in a message."""


def layers_of(text: str, depth: int) -> tuple[int, ...]:
    """The layers that a word of TWELFTHS means, or that are listed, as `2+3+4`.

    Raises:
        ValueError: it is neither.
    """
    if text in TWELFTHS:
        return tuple(sorted({max(1, (2 * twelfth * depth + 12) // 24) for twelfth in TWELFTHS[text]}))
    parts = text.replace(",", "+").split("+")
    numbers = [int(part) for part in parts if part.strip().isdecimal() and len(part) <= MOST_LETTERS]
    if len(set(numbers)) < len(parts) or not all(1 <= number <= depth for number in numbers):
        words, shown = " or ".join(TWELFTHS), text[:MOST_LETTERS]
        listed = "+".join(map(str, range(1, depth + 1)[-2:]))
        raise ValueError(f"jepa_layers must be {words}, or list some of the layers 1 to {depth}, as {listed}; not {shown!r}")
    return tuple(sorted(numbers))


class Jepa(nn.Module):
    """The loss: at each of some layers, a network of its own guesses the teacher's tokens, which see the whole picture, from
    the student's, which see a part of it. Its weights begin small and normal.

    The teacher is the average of the model (`ema`), the model itself (`same`), or the model itself with gradients through what
    it says, too (`gradient`): nothing then keeps it from saying the same of all pictures.
    """

    def __init__(self, width: int, depth: int, weight: float, layers: str, teacher: str) -> None:
        super().__init__()
        self.weight, self.layers, self.teacher = weight, layers_of(layers, depth), teacher
        self.predictors = nn.ModuleList(_predictor(width) for _ in self.layers)

    def targets(self, model: nn.Module, average: nn.Module | None, told: Tensor, tokens: Tensor) -> list[Tensor]:
        """What is to be guessed at each of the layers (n, T, W): the teacher's tokens, standardised. A teacher is told what the
        student is, and sees all codes (n, T) or latents (n, T, d)."""
        teacher = average if self.teacher == "ema" else model
        with torch.set_grad_enabled(self.teacher == "gradient" and torch.is_grad_enabled()):
            seen = teacher.whole(told, tokens)  # type: ignore[union-attr, operator]
        return [standardised(seen[layer]) for layer in self.layers]

    def forward(self, student: Sequence[Tensor], targets: Sequence[Tensor], masked: Tensor) -> Tensor:
        """The weighted loss (n,), a mean over layers: the squared error of the guesses at the masked tokens (n, T), from the
        student's tokens at all layers and the targets at some."""
        losses = []
        for layer, predictor, target in zip(self.layers, self.predictors, targets, strict=True):
            guess = predictor(standardised(student[layer])).to(target.dtype)
            losses.append(masked_mean((guess - target).square().mean(2), masked))
        return self.weight * torch.stack(losses).mean(0)


def standardised(tokens: Tensor) -> Tensor:
    """Tokens (n, T, W), each brought to mean 0 and variance 1."""
    return functional.layer_norm(tokens, tokens.shape[-1:], eps=1e-6)


def _predictor(width: int) -> nn.Module:
    return small(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)))
