"""How a generator splits its work: whether its heads react to one factor or to all, and whether compositions are drawn by the
same units (arXiv 2510.03075, where neither is defined in full: the definitions here are ours).

What is looked at is the trunk. Blocks are counted from 1, and layer l is what comes out of block l. Every number is also taken
of an untrained network of the same setting, under the same name with `untrained_` in front. As the blocks of such a network do
nothing (adaLN-Zero: their gates are zero, and so are all gradients), its layers of zeros are given normal weights of standard
deviation 0.02, as the others of its condition have.

Shapes in comments: n pictures of T tokens, H heads, W = the width, L = the depth.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from analysis.measures.generated import TrainedGenerator
from analysis.measures.quantity import Quantity
from analysis.measures.tokens import fresh
from trainables.generative.dit import TIMES, DiT
from trainables.generative.generator_task import tokens_of
from trainables.generative.jepa import standardised
from trainables.generative.shapes import COMPOSITIONS, FACTORS, Pictures, ShapeSettings, bits_of, class_conditions
from trainables.generative.trunk import Trunk
from trainables.needs import given
from trainables.task import Split
from trainables.training.seeds import start_from, stream, stream_seed

VERSION = 1
EACH = 64
"""Pictures of each composition that are looked at."""
MASKED = 0.5
"""The share of tokens that are masked; of a diffusion, of the times that are over."""
SHARE = 0.1
"""The share of the units of all layers that are a composition's circuit."""
COMPARED = ("000", "001", "100", "101")
"""The compositions of shape and colour, all large."""
PAIRS = tuple(itertools.combinations(COMPARED, 2))
APART = {
    name: [(a, b) for a, b in PAIRS if sum(map(str.__ne__, a, b)) == factors]
    for factors, name in ((1, "one_apart"), (2, "two_apart"))
}
"""Those that differ in one factor, and in two."""
LEAST = 1e-5
"""Relative changes of less are rounding, and count as none."""


class Seen(NamedTuple):
    """What happens inside a trunk."""

    heads: list[Tensor]
    """Of each block the outputs of the heads, side by side (n, T, W): what goes into `attention.out`."""
    units: list[Tensor]
    """Of each block the activations of its MLP (n, T, 4 W): what goes into `mlp[2]`."""


class Fixed(NamedTuple):
    """Pictures as a network is given them in training, with draws that are always the same."""

    batch: Split
    draws: tuple[Tensor, ...]
    """As the network's `losses` takes them."""
    where: Tensor
    """Which tokens (n, T) are to be guessed."""


def measure(generator: TrainedGenerator) -> Iterator[Quantity]:
    """From 64 real pictures of each composition, as tokens, and the class means that are told with them. Half of the tokens are
    masked; of `dit` all have the noise of the middle of the times.

    - `polysemanticity` (H,) of each block: of every head, how evenly it reacts to the factors, see `polysemanticity`;
      `overlap`, the mean over the heads; `changes` (H, 3), the relative changes that they are made of.
    - `jaccard_000_001` and so on: the Jaccard index of the circuits of two compositions, see `circuit`; `jaccard_one_apart` and
      `jaccard_two_apart`, the means over the pairs that differ in one factor and in two; `jaccard_same`, the mean over the
      compositions of that with the circuit found on other pictures of the same: as high as any can be expected to be.
    - of `dit` and `maskgit`: `spread` and `rank` of each layer, of what a teacher would say of the pictures, see there. Where
      they are near 0 and 1 it says the same of all: it has collapsed.
    """
    s, words = generator.settings, COMPOSITIONS
    real, others = (real_pictures(generator, name) for name in ("circuits", "other circuits"))
    for prefix, model in (("", objective_of(generator.model)), ("untrained_", untrained(generator))):
        inputs, again = ([fixed(model, batch) for batch in batches] for batches in (real, others))
        for block, changes in enumerate(head_changes(s, model, inputs), 1):
            of_heads = polysemanticity(changes)
            yield Quantity(f"{prefix}changes", array=changes, layer=block)
            yield Quantity(f"{prefix}polysemanticity", array=of_heads, layer=block)
            yield Quantity(f"{prefix}overlap", _mean(of_heads[np.isfinite(of_heads)]), layer=block)

        circuits, same = ({w: circuit(unit_scores(model, part[words.index(w)])) for w in COMPARED} for part in (inputs, again))
        shared = {pair: jaccard(*(circuits[word] for word in pair)) for pair in PAIRS}
        for (a, b), index in shared.items():
            yield Quantity(f"{prefix}jaccard_{a}_{b}", index)
        for name, pairs in APART.items():
            yield Quantity(f"{prefix}jaccard_{name}", _mean([shared[pair] for pair in pairs]))
        yield Quantity(f"{prefix}jaccard_same", _mean([jaccard(circuits[word], same[word]) for word in COMPARED]))

        if hasattr(model, "whole"):
            for layer, targets in enumerate(teacher_says(model, real)):
                yield Quantity(f"{prefix}spread", spread(targets), layer=layer)
                yield Quantity(f"{prefix}rank", rank(targets), layer=layer)


def real_pictures(generator: TrainedGenerator, name: str) -> list[Split]:
    """Of each composition what the generator is told (n, 5), tokens of real pictures that show it, and its bits (n, 3)."""
    s, spec, found = generator.settings, generator.spec, []
    _, images = fresh(s, spec.N, EACH, spec.seed, name, means=True)
    for word, part in zip(COMPOSITIONS, images, strict=True):
        bits = bits_of((word,)).expand(EACH, -1)
        found.append(tokens_of(spec, Pictures(part, class_conditions(s, bits), bits), generator.tokenizer))
    return found


def objective_of(model: nn.Module) -> nn.Module:
    """A copy of the network whose loss is that of its objective alone, without `jepa`."""
    model = copy.deepcopy(model)
    if hasattr(model, "jepa"):
        model.jepa = None  # type: ignore[assignment]
    return model


def untrained(generator: TrainedGenerator) -> nn.Module:
    """The network that the run began with, but with small weights in its layers of zeros; the same with and without `jepa`."""
    with torch.random.fork_rng(devices=[]):
        start_from(stream_seed(generator.spec.seed, "weights"))
        model = objective_of(given(generator.task, generator.parents).model(generator.spec))
    random = stream(generator.spec.seed, "untrained")
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.02, generator=random)
    return model.eval().requires_grad_(False)


def fixed(model: nn.Module, batch: Split) -> Fixed:
    """The same masks, noise and middle times for pictures of any composition; all factors are told."""
    (n, T), diffuses = batch.targets.shape[:2], isinstance(model, DiT)
    drawn = model.draws(batch, stream(0, "circuits"))  # type: ignore[operator]
    order = torch.rand(n, T, generator=stream(0, "circuits", "masks")).argsort(1).argsort(1)
    masked = order < round(MASKED * T)
    first = torch.full((n,), round(MASKED * TIMES)) if diffuses else masked
    left_out = bool(model.conditions.dropout)  # type: ignore[union-attr]
    return Fixed(batch, (first, *drawn[1 : len(drawn) - left_out]), torch.ones_like(masked) if diffuses else masked)


@contextlib.contextmanager
def watched(trunk: Trunk) -> Iterator[Seen]:
    """Keeps what happens inside of the trunk in one forward pass, with gradients for the units."""
    seen = Seen([], [])

    def keep_heads(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.heads.append(inputs[0])

    def keep_units(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if torch.is_grad_enabled() and not inputs[0].requires_grad:
            inputs[0].requires_grad_()
        seen.units.append(inputs[0])

    hooks = [block.attention.out.register_forward_pre_hook(keep_heads) for block in trunk.blocks]  # type: ignore[union-attr]
    hooks += [block.mlp[2].register_forward_pre_hook(keep_units) for block in trunk.blocks]  # type: ignore[union-attr, index]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def head_changes(settings: ShapeSettings, model: nn.Module, inputs: Sequence[Fixed]) -> np.ndarray:
    """The relative changes (L, H, 3) of the output of each head at the tokens to be guessed, if what the network is told of one
    factor is that of the other class, and all it sees stays: the root of the summed squares of the changes, over that of the
    outputs. Changes under LEAST are 0."""

    def outputs(one: Fixed, told: Tensor) -> Tensor:
        """Of the tokens to be guessed (L, tokens, H, W / H)."""
        with watched(model.trunk) as seen:  # type: ignore[arg-type]
            model.losses(one.batch._replace(inputs=told), one.draws, None)  # type: ignore[operator]
        heads = model.trunk.blocks[0].attention.heads  # type: ignore[union-attr, index]
        return torch.stack([of_block[one.where] for of_block in seen.heads]).unflatten(2, (heads, -1)).double()

    lengths, changes = [], []
    for one in inputs:
        before = outputs(one, one.batch.inputs)
        flipped = (one.batch.truth ^ row for row in torch.eye(len(FACTORS), dtype=torch.int64))
        changed = [outputs(one, class_conditions(settings, bits)) - before for bits in flipped]
        lengths.append(before.square().sum((1, 3)))
        changes.append(torch.stack([difference.square().sum((1, 3)) for difference in changed], 2))
    length, change = torch.stack(lengths).sum(0)[:, :, None], torch.stack(changes).sum(0)
    relative = torch.where(length > 0, change / length, 0).sqrt()
    return torch.where(relative < LEAST, 0, relative).numpy()


def polysemanticity(changes: np.ndarray) -> np.ndarray:
    """How evenly each head of a block (H,) reacts to k factors, from its relative changes (H, k): with e those over their mean
    over the heads, ((sum e)^2 / sum e^2 - 1) / (k - 1). 0 for a head that reacts to one factor, 1 for one that reacts to all
    alike; NaN for one that reacts to none, and for the only one of its block, which is its own mean."""
    means = changes.mean(axis=0)
    e = np.divide(changes, means, out=np.zeros_like(changes), where=means > 0)
    squares = np.square(e).sum(axis=1)
    number = np.divide(np.square(e.sum(axis=1)), squares, out=np.full(len(e), np.nan), where=squares > 0)
    return (number - 1) / (changes.shape[1] - 1) if len(changes) > 1 else np.full(1, np.nan)


def unit_scores(model: nn.Module, one: Fixed) -> np.ndarray:
    """What the units of all MLPs (L, 4 W) have to do with the loss of these pictures: the mean over pictures and tokens of
    |activation x gradient of the picture's loss|."""
    with torch.enable_grad(), watched(model.trunk) as seen:  # type: ignore[arg-type]
        losses = model.losses(one.batch, one.draws, None)  # type: ignore[operator]
        gradients = torch.autograd.grad(losses.sum(), seen.units)
    scores = [(unit * gradient).abs().mean((0, 1)) for unit, gradient in zip(seen.units, gradients, strict=True)]
    return torch.stack(scores).detach().numpy()


def circuit(scores: np.ndarray) -> np.ndarray:
    """Which units (L, 4 W) are the tenth of all with the highest scores. Those with a score of 0 are none of it."""
    count = round(SHARE * scores.size)
    found = np.zeros(scores.size, bool)
    found[np.argsort(-scores, axis=None, kind="stable")[:count]] = True
    chosen: np.ndarray = found.reshape(scores.shape) & (scores > 0)
    return chosen


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """The share of the units of either circuit that both have; NaN if neither has any."""
    either = (a | b).sum()
    return float((a & b).sum() / either) if either else math.nan


@torch.no_grad()
def teacher_says(model: nn.Module, batches: Sequence[Split]) -> list[Tensor]:
    """What would be guessed of whole pictures at each layer (n, T, W), from 0, what goes into the first block."""
    told, tokens = (torch.cat(parts) for parts in zip(*(batch[:2] for batch in batches), strict=True))
    return [standardised(layer) for layer in model.whole(told, tokens)]  # type: ignore[operator]


def spread(targets: Tensor) -> float:
    """How much targets (n, T, W) differ between pictures: the standard deviation over the pictures, mean over tokens and
    channels. 1 for random targets, 0 where a teacher says the same of all pictures."""
    return targets.std(0, correction=0).mean().item()


def rank(targets: Tensor) -> float:
    """In how many directions targets (n, T, W) differ between pictures: the effective rank of their differences from the mean
    picture, exp of the entropy of the shares of variance (Roy and Vetterli 2007, of which shares are not squared). From 1 to
    W; 0 if they do not differ."""
    differences = (targets - targets.mean(0)).flatten(0, 1).double()
    variances = torch.linalg.eigvalsh(differences.T @ differences).clamp_min(0)
    if variances.sum() < LEAST**2 * differences.numel():
        return 0.0
    return torch.special.entr(variances / variances.sum()).sum().exp().item()


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else math.nan
