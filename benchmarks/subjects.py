"""Small subjects whose curves are not those of bumps: jumps after a long plateau, slow rises, falls before a rise.

Every class is a task for any study here, for example

    python -m orchestrator.scaling --task benchmarks.subjects:ModularAddition --N 11 --weight-decay 1 --lr 0.003 \\
        --batch-size 64 --max-steps 3000

Training sets of one seed are nested. Labels and numbers are fitted by squared error, as everywhere here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainables.spec import Counts, RunSpec, Scalar
from trainables.task import Data, Split
from trainables.training.seeds import stream

POOL = 4096
"""Samples that a training set can have, where they do not run out."""
HELD_OUT = 512


class Subject:
    """What the subjects share: an MLP with ReLUs, samples that do not run out, and labels of -1 and 1 judged by sign.

    A subject says what its samples are: `draw` gives so many of them from a generator, as training or as held-out ones.
    """

    version = "1"
    choices: Mapping[str, tuple[str, ...]] = {
        "dataset": ("samples",),
        "decoder": ("mlp",),
        "encoding": ("plain",),
        "holdout": ("random",),
    }
    defaults: Mapping[str, Scalar] = {}
    width = 256

    def preset(self, dataset: str, decoder: str) -> Mapping[str, Any]:
        return {"depth": 1, "width": self.width, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=POOL)

    def data(self, spec: RunSpec) -> Data:
        train = self.draw(spec, POOL, stream(spec.seed, "training samples"), training=True)
        held_out = self.draw(spec, HELD_OUT, stream(spec.seed, "held-out samples"), training=False)
        return Data(train=Split(*(t[: spec.data_count] for t in train)), held_out=held_out)

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        raise NotImplementedError

    def model(self, spec: RunSpec) -> nn.Module:
        sizes = [self.inputs(spec), *[spec.width] * spec.depth]
        hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], self.outputs(spec)))

    def inputs(self, spec: RunSpec) -> int:
        return spec.N

    def outputs(self, spec: RunSpec) -> int:
        return 1

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": (outputs.sign() == split.truth).flatten(1).all(dim=1)}


class ModularAddition(Subject):
    """The sum of two numbers modulo N, from a one-hot code of each. With weight decay it is known by heart long before it is
    understood."""

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2 - spec.N)

    def data(self, spec: RunSpec) -> Data:
        pairs = torch.cartesian_prod(torch.arange(spec.N), torch.arange(spec.N))
        pairs = pairs[torch.randperm(len(pairs), generator=stream(spec.seed, "pairs"))]
        sums = pairs.sum(dim=1) % spec.N
        codes = functional.one_hot(pairs, spec.N).float().flatten(1)
        whole = Split(codes, functional.one_hot(sums, spec.N).float(), sums)
        return Data(Split(*(t[: spec.data_count] for t in whole)), Split(*(t[spec.data_count :] for t in whole)))

    def inputs(self, spec: RunSpec) -> int:
        return 2 * spec.N

    def outputs(self, spec: RunSpec) -> int:
        return spec.N

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": outputs.argmax(dim=1) == split.truth}


class SparseParity(Subject):
    """The product of `bits` of N signs: the training set is memorised, then the few that matter are found."""

    defaults = {"bits": 3}

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        signs = _signs(size, spec.N, random)
        label = signs[:, : int(spec.option("bits"))].prod(dim=1, keepdim=True)
        return Split(signs, label, label)


class DelayedXor(Subject):
    """The product of two of N signs, beside a feature `strength` times as large that tells most labels in training.

    Held-out labels agree with that feature less often: accuracy stays on a plateau until the product is found.
    """

    defaults = {"strength": 2.0, "agrees": 0.9, "agrees_held_out": 0.6}

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        signs = _signs(size, spec.N, random)
        label = signs[:, :1] * signs[:, 1:2]
        share = spec.option("agrees" if training else "agrees_held_out")
        return Split(torch.cat([signs[:, :-1], _cue(label, spec, share, random)], dim=1), label, label)


class NoisyLinear(Subject):
    """A weighted sum of N normal numbers, told with `noise`. An answer is correct within `tolerance` of the true sum."""

    defaults = {"noise": 0.2, "tolerance": 0.25}

    def preset(self, dataset: str, decoder: str) -> Mapping[str, Any]:
        return {"depth": 0, "width": 1, "holdout": "random"}

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        numbers = torch.randn(size, spec.N, generator=random)
        weights = functional.normalize(torch.randn(spec.N, generator=stream(spec.seed, "true weights")), dim=0)
        truth = (numbers @ weights)[:, None]
        return Split(numbers, truth + spec.option("noise") * training * torch.randn(size, 1, generator=random), truth)

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": (outputs - split.truth).abs().flatten(1).amax(dim=1) < spec.option("tolerance")}


class FallsThenRises(Subject):
    """The side of a plane in N dimensions, beside a feature `strength` times as large that tells most labels in training.

    In held-out samples that feature mostly tells the opposite: accuracy falls, or begins low, before it rises. No sample is
    nearer to the plane than `margin`.
    """

    defaults = {"strength": 3.0, "agrees": 0.9, "agrees_held_out": 0.1, "margin": 0.5}

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        numbers = torch.randn(size, spec.N - 1, generator=random)
        plane = functional.normalize(torch.randn(spec.N - 1, generator=stream(spec.seed, "plane")), dim=0)
        label = (numbers @ plane)[:, None].sign()
        numbers += spec.option("margin") * label * plane
        share = spec.option("agrees" if training else "agrees_held_out")
        return Split(torch.cat([numbers, _cue(label, spec, share, random)], dim=1), label, label)


class LabelNoise(Subject):
    """The side of a plane in N dimensions; a share `wrong` of the training labels is not right. Fitting them costs accuracy."""

    defaults = {"wrong": 0.15}
    width = 32

    def draw(self, spec: RunSpec, size: int, random: torch.Generator, training: bool) -> Split:
        numbers = torch.randn(size, spec.N, generator=random)
        plane = functional.normalize(torch.randn(spec.N, generator=stream(spec.seed, "plane")), dim=0)
        label = (numbers @ plane)[:, None].sign()
        wrong = torch.rand(size, 1, generator=random) < spec.option("wrong")
        return Split(numbers, torch.where(wrong, -label, label) if training else label, label)


def _signs(size: int, count: int, random: torch.Generator) -> Tensor:
    return torch.randint(2, (size, count), generator=random) * 2.0 - 1


def _cue(label: Tensor, spec: RunSpec, share: Scalar, random: torch.Generator) -> Tensor:
    """A feature (n, 1) that has the sign of `label` in a `share` of the samples."""
    return spec.option("strength") * torch.where(torch.rand(label.shape, generator=random) < share, label, -label)
