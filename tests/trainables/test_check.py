"""A task is checked before the first training: each mistake is one sentence that names the member."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from orchestrator import scaling, tune
from tests.conftest import check_refusal
from tests.toy import Pupil
from trainables.check import check_task, counts_of, names_of
from trainables.settings import read_settings, setting, spec_fields
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split, Task, load_task
from trainables.training.loop import Training
from trainables.trial import numbers_of

POINTS = 64


class Points:
    """It works: learn two sums of three coordinates."""

    version = "1"
    choices = {"dataset": ("points",), "decoder": ("linear", "mlp"), "encoding": ("none",), "holdout": ("random",)}
    defaults = {"noise": 0.0, "shift": 1, "kind": "plain", "strict": True}

    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=POINTS - 8)

    def data(self, spec: RunSpec) -> Data:
        inputs = self.points(spec)
        targets = torch.stack([inputs.sum(dim=1), inputs.diff(dim=1).sum(dim=1)], dim=1)
        train, rest = slice(spec.data_count), slice(spec.data_count, None)
        return Data(Split(inputs[train], targets[train], inputs[train]), Split(inputs[rest], targets[rest], inputs[rest]))

    def points(self, spec: RunSpec) -> torch.Tensor:
        return torch.randn(POINTS, 3, generator=torch.Generator().manual_seed(spec.seed))

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(3, 2)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        error = (outputs - split.targets).norm(dim=1)
        return {"correct": error < 0.1, "error": error, "near": error < 1, "rounds": error.long()}


class Changed(Points):
    """Points whose tensors of both kinds are changed afterwards."""

    def data(self, spec):
        return Data(*(self.changed(spec, split) for split in super().data(spec)))

    def changed(self, spec, split):
        raise NotImplementedError


class NumberedVersion(Points):
    version = 1.0


class NoChoices(Points):
    choices = ["points"]


class NoEncoding(Points):
    choices = {"dataset": ("points",), "decoder": ("linear",), "holdout": ("random",)}


class LooseWord(Points):
    choices = Points.choices | {"decoder": ("linear")}


class NoWords(Points):
    choices = Points.choices | {"dataset": ()}


class ListedDefaults(Points):
    defaults = ["noise"]


class ListedOption(Points):
    defaults = {"widths": [1, 2]}


class NumberedOption(Points):
    defaults = {1: 2.0}


class LoosePackable(Points):
    packable = "noise"


class UnknownPackable(Points):
    packable = ("noise", "sigma")


class UnknownCheap(Points):
    cheap = ("rnn",)


class HalfPreset(Points):
    def preset(self, dataset, decoder):
        return {"depth": 0} if decoder == "mlp" else super().preset(dataset, decoder)


class NoPreset(Points):
    def preset(self, dataset, decoder):
        return None


class RaisingPreset(Points):
    def preset(self, dataset, decoder):
        return {"linear": {}}[decoder.upper()]


class RealPreset(Points):
    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1.0, "holdout": "random"}


class OtherHoldout(Points):
    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "edge"}


class PairOfCounts(Points):
    def counts(self, spec):
        return 1, 56


class CrossedCounts(Points):
    def counts(self, spec):
        return Counts(low=9, high=3)


class RealCounts(Points):
    def counts(self, spec):
        return Counts(low=1, high=0.9 * POINTS)


class NoCounts(Points):
    def counts(self, spec):
        return Counts(low=0, high=0)


class EndlessCounts(Points):
    def counts(self, spec):
        return Counts(low=1, high=2**31 - 8, fixed=8)


class RaisingCounts(Points):
    def counts(self, spec):
        return Counts(low=1, high=spec.option("most"))


class PickyCounts(Points):
    def counts(self, spec):
        raise ValueError("noise must be at least 1")


class RaisingData(Points):
    def data(self, spec):
        raise ArithmeticError("the points are gone\nall of them")


class ExitingData(Points):
    def data(self, spec):
        raise SystemExit


class PairOfData(Points):
    def data(self, spec):
        return tuple(super().data(spec))


class PairsOfSplits(Changed):
    def changed(self, spec, split):
        return split.inputs, split.targets


class ArrayInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=split.inputs.numpy())


class ScalarTruth(Changed):
    def changed(self, spec, split):
        return split._replace(truth=torch.tensor(1.0))


class SparseInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=split.inputs.to_sparse())


class RaggedInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=torch.nested.nested_tensor([x[: 1 + i % 3] for i, x in enumerate(split.inputs)]))


class JaggedTruth(Changed):
    def changed(self, spec, split):
        rows = [x[: 1 + i % 3] for i, x in enumerate(split.truth)]
        return split._replace(truth=torch.nested.nested_tensor(rows, layout=torch.jagged))


class QuantizedInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=torch.quantize_per_tensor(split.inputs, 0.1, 0, torch.qint8))


class ShortTargets(Changed):
    def changed(self, spec, split):
        return split._replace(targets=split.targets[1:])


class ConstantCount(Points):
    def data(self, spec):
        return super().data(spec.with_count(4))


class ForgottenFixed(Points):
    def counts(self, spec):
        return Counts(low=0, high=POINTS - 8, fixed=5)


class NothingHeldOut(Points):
    def counts(self, spec):
        return Counts(low=1, high=POINTS)


class InfiniteInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=split.inputs / 0)


class NanTargets(Changed):
    """Normalised by the training set, of which one sample has no deviation."""

    def data(self, spec):
        self.deviation = Points.data(self, spec).train.targets.std(dim=0, correction=0)
        return super().data(spec)

    def changed(self, spec, split):
        return split._replace(targets=0 * split.targets / self.deviation)


class ClassTargets(Changed):
    def changed(self, spec, split):
        return split._replace(targets=split.targets.argmax(dim=1))


class FlatTargets(Changed):
    def changed(self, spec, split):
        return split._replace(targets=split.targets[:, 0])


class GlobalDraws(Points):
    def points(self, spec):
        return torch.randn(POINTS, 3)


class GlobalHeldOut(Points):
    def data(self, spec):
        data = super().data(spec)
        return data._replace(held_out=Split(*(t[torch.randperm(len(t))] for t in data.held_out)))


class DrawnByCount(Points):
    def points(self, spec):
        return torch.randn(POINTS, 3, generator=torch.Generator().manual_seed(spec.data_count))


class OtherOrder(Points):
    """The same points for all counts, but not the first ones of one order."""

    def points(self, spec):
        return super().points(spec)[torch.randperm(POINTS, generator=torch.Generator().manual_seed(spec.data_count))]


class Growing(Changed):
    def data(self, spec):
        self.width = spec.data_count
        return super().data(spec)

    def changed(self, spec, split):
        return split._replace(inputs=split.inputs[:, :1].expand(-1, self.width))


class FunctionModel(Points):
    def model(self, spec):
        return lambda inputs: inputs[:, :2]


class Frozen(Points):
    def model(self, spec):
        return nn.Linear(3, 2).requires_grad_(False)


class Raising(Points):
    def model(self, spec):
        return {"linear": nn.Linear(3, 2)}[spec.decoder.upper()]


class WrongWidth(Points):
    def model(self, spec):
        return nn.Linear(4, 2)


class DoubleInputs(Changed):
    def changed(self, spec, split):
        return split._replace(inputs=split.inputs.double())


class FlatOutputs(Changed):
    """Targets (n, 1) against outputs (n,): their difference is (n, n), and nothing complains."""

    def changed(self, spec, split):
        return split._replace(targets=split.targets[:, :1])

    def model(self, spec):
        return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))


class Through(nn.Module):
    """A linear layer whose outputs go through a function; with a penalty, if there is one."""

    def __init__(self, function, penalty=None):
        super().__init__()
        self.linear, self.function = nn.Linear(3, 2), function
        if penalty is not None:
            self.penalty = lambda: penalty(self.linear.weight)

    def forward(self, inputs):
        return self.function(self.linear(inputs))


class PairOfOutputs(Points):
    def model(self, spec):
        return Through(lambda outputs: (outputs, outputs))


class WholeOutputs(Points):
    def model(self, spec):
        return Through(lambda outputs: outputs.long())


class NanOutputs(Points):
    def model(self, spec):
        return Through(lambda outputs: (outputs - 1e9).log())


class Detached(Points):
    def model(self, spec):
        return Through(lambda outputs: outputs.detach())


class NumberPenalty(Points):
    def model(self, spec):
        return Through(torch.tanh, lambda weight: weight.sum().item())


class WidePenalty(Points):
    def model(self, spec):
        return Through(torch.tanh, lambda weight: weight.square().sum(dim=1))


class RaisingPenalty(Points):
    def model(self, spec):
        return Through(torch.tanh, lambda weight: weight @ weight)


class TensorMeasure(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split)["correct"]


class NoCorrect(Points):
    def measure(self, spec, outputs, split):
        return {"error": outputs[:, 0]}


class RealCorrect(Points):
    def measure(self, spec, outputs, split):
        return {"correct": super().measure(spec, outputs, split)["correct"].float()}


class WideCorrect(Points):
    def measure(self, spec, outputs, split):
        return {"correct": (outputs - split.targets).abs() < 0.1}


class SqueezedMeasure(Points):
    """Right for every batch but one of a single sample."""

    def measure(self, spec, outputs, split):
        return {"correct": (outputs[:, :1] - split.targets[:, :1]).squeeze().abs() < 0.1}


class MeanError(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {"error": (outputs - split.targets).square().mean()}


class NumberError(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {"error": 0.5}


class RaisingMeasure(Points):
    def measure(self, spec, outputs, split):
        return {"correct": outputs.nearest}


class RenamedMeasure(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {3: outputs[:, 0]}


class SquaredMeasure(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {"squared_error": outputs[:, 0]}


class TrainingMeasure(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {"id_near": outputs[:, 0]}


class ComplexModel(Points):
    def model(self, spec):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(3, 2, dtype=torch.complex64))

            def forward(self, inputs):
                return (inputs.to(torch.complex64) @ self.weight).real

        return Model()


class ForeignWeights(Points):
    def model(self, spec):
        model = nn.Linear(3, 2)
        model.weight.data = torch.tensor(np.random.randn(2, 3)).float()
        return model


class ForeignNoise(Points):
    def model(self, spec):
        return Through(lambda outputs: outputs + float(np.random.randn()))


class ForeignPenalty(Points):
    def model(self, spec):
        return Through(torch.tanh, lambda weight: weight.sum() + random.random())


class RandomPenalty(Points):
    def model(self, spec):
        return Through(torch.tanh, lambda weight: (weight * torch.randn(2, 3)).sum())


class RandomWhenJudged(Points):
    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                return super().forward(inputs) + (0 if self.training else torch.randn(()))

        return Model(3, 2)


class RandomMeasure(Points):
    def measure(self, spec, outputs, split):
        return super().measure(spec, outputs, split) | {"drawn": torch.rand(len(outputs))}


class ChangedTruth(Points):
    """Here the inputs are the truth."""

    def measure(self, spec, outputs, split):
        split.truth.clamp_(-0.1, 0.1)
        return super().measure(spec, outputs, split)


class ChangedTargets(Points):
    def measure(self, spec, outputs, split):
        return {"correct": split.targets.sub_(outputs).abs().amax(1) < 0.1}


class Recalled(Points):
    """A sample is right if its output is nearest to its own target, among those that are measured with it."""

    def measure(self, spec, outputs, split):
        return {"correct": torch.cdist(outputs, split.targets).argmin(1) == torch.arange(len(outputs))}


class RecalledAtOnce(Recalled):
    """The same of a network that is right before it is trained."""

    def model(self, spec):
        model = nn.Linear(3, 2)
        model.weight.data, model.bias.data = torch.tensor([[1.0, 1, 1], [-1, 0, 1]]), torch.zeros(2)
        return model


class RecalledByNumber(Recalled):
    """A sample knows its number in the whole set."""

    def data(self, spec):
        return Data(*(Split(s.inputs, s.targets, torch.arange(len(s.inputs))) for s in super().data(spec)))

    def measure(self, spec, outputs, split):
        return {"correct": torch.cdist(outputs, split.targets).argmin(1) == split.truth}


class SparseGradients(Points):
    """As of a table of embeddings, of which a step changes the rows that it reads."""

    def model(self, spec):
        return nn.Sequential(Signs(), nn.EmbeddingBag(2, 2, sparse=True))


class Signs(nn.Module):
    def forward(self, inputs):
        return (inputs > 0).long()


class Matched(Points):
    """Both sides of a pair are in the outputs, and alike."""

    def model(self, spec):
        return nn.Sequential(nn.Linear(3, 1, bias=False), nn.Linear(1, 2, bias=False))

    def measure(self, spec, outputs, split):
        one, other = outputs.tanh().T
        return {"correct": (one[:, None] - other).abs().argmin(1) == torch.arange(len(outputs))}


class Normalized(Points):
    def measure(self, spec, outputs, split):
        error = (outputs - split.targets).square().sum(1)
        return {"correct": error < 1, "lost": error / (split.targets - split.targets.mean(0)).square().sum(1)}


class Divided(Points):
    """Its mean over a set depends on the size of the parts."""

    def measure(self, spec, outputs, split):
        measures = super().measure(spec, outputs, split)
        return measures | {"share": measures["error"] / len(outputs)}


class RandomJudged(Points):
    def judged(self, spec):
        data = super().data(spec)
        order = torch.randperm(len(data.held_out.inputs))
        return data._replace(held_out=data.held_out.take(order))


class Annealed(Points):
    def model(self, spec):
        class Model(nn.Linear):
            steps = 0

            def forward(self, inputs):
                self.steps += self.training
                return super().forward(inputs) * min(1, self.steps / 100)

        return nn.Sequential(Model(3, 2))


class Centred(Points):
    """Its mean is a tensor, or a buffer that is not saved."""

    buffered = False

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                if self.training:
                    self.mean = self.mean + 0.1 * (inputs.mean(0) - self.mean)
                return super().forward(inputs - self.mean)

        model = Model(3, 2)
        if self.buffered:
            model.register_buffer("mean", torch.zeros(3), persistent=False)
        else:
            model.mean = torch.zeros(3)
        return model


class CentredByBuffer(Centred):
    buffered = True


class Warmed(Points):
    """Nothing depends on the count in the first steps."""

    def model(self, spec):
        class Model(nn.Linear):
            steps = 0

            def forward(self, inputs):
                self.steps += self.training
                return super().forward(inputs) * (1 if self.steps < 50 else 2)

        return Model(3, 2)


class WarmedByTensor(Points):
    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                self.steps = self.steps + 1
                return super().forward(inputs) * (1 + (self.steps > 50))

        model = Model(3, 2)
        model.steps = torch.zeros((), dtype=torch.int64)
        return model


class Counting(nn.Linear):
    """It counts, and does something else at some counts."""

    steps: Any = 0
    by: Any = 1

    def forward(self, inputs):
        if self.training:
            self.steps = self.steps + self.by
        return super().forward(inputs) * (2 if self.is_other() else 1)

    def is_other(self):
        return False


class FloatCount(Points):
    def model(self, spec):
        class Model(Counting):
            by = 1 / spec.max_steps

            def is_other(self):
                return self.steps > 0.6

        return Model(3, 2)


class DownwardCount(Points):
    def model(self, spec):
        class Model(Counting):
            steps, by = spec.max_steps, -1

            def is_other(self):
                return self.steps < spec.max_steps / 3

        return Model(3, 2)


class UnsavedCount(Points):
    """In a buffer with a dimension. It decides when a penalty begins."""

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                self.seen += self.training
                return super().forward(inputs)

            def penalty(self):
                return (self.seen > 100).float().mean() * self.weight.abs().sum()

        model = Model(3, 2)
        model.register_buffer("seen", torch.zeros(1), persistent=False)
        return model


class Between(Points):
    def model(self, spec):
        class Model(Counting):
            def is_other(self):
                return 100 < self.steps < 210

        return Model(3, 2)


class Renewed(Points):
    """A copy of its weights is renewed every 50 steps."""

    def model(self, spec):
        class Model(Counting):
            def is_other(self):
                if self.training and self.steps % 50 == 0:
                    self.old.copy_(self.weight.detach())

        model = Model(3, 2)
        model.register_buffer("old", torch.zeros(2, 3))
        return model


class Every18th(Points):
    """It looks at its count before it counts."""

    def model(self, spec):
        class Model(nn.Linear):
            steps = 0

            def forward(self, inputs):
                outputs = super().forward(inputs) * (2 if self.steps and self.steps % 18 == 0 else 1)
                self.steps += self.training
                return outputs

        return Model(3, 2)


class Several(Points):
    """Two of three numbers matter."""

    def model(self, spec):
        class Model(Counting):
            calls, sizes = 0, 0

            def forward(self, inputs):
                self.calls, self.sizes = self.calls + 1, self.sizes + len(inputs)
                return super().forward(inputs) + self.sizes / 100

            def is_other(self):
                return self.steps == 2

        return Model(3, 2)


class SeveralLater(Points):
    def model(self, spec):
        class Model(Counting):
            calls, weight_of_penalty = 0, 0.0

            def is_other(self):
                self.calls, self.weight_of_penalty = self.calls + 1, self.weight_of_penalty + 0.001
                return self.steps > 100 or self.weight_of_penalty > 0.1

        return Model(3, 2)


class FirstBatch(Points):
    """The first batch decides, and not one that is the first of a run that goes on."""

    def model(self, spec):
        class Model(nn.Linear):
            scale = 0.0

            def forward(self, inputs):
                self.scale = self.scale or inputs.std().item()
                return super().forward(inputs / self.scale)

        return Model(3, 2)


class Logged(Points):
    """What matters is no number."""

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                self.log.append(1)
                return super().forward(inputs) * len(self.log)

        model = Model(3, 2)
        model.log = []
        return model


class Begun(Points):
    """Its weights depend on the first batch."""

    def model(self, spec):
        class Model(nn.Linear):
            begun = False

            def forward(self, inputs):
                if not self.begun:
                    self.bias.data, self.begun = self.weight.detach() @ inputs.mean(0), True
                return super().forward(inputs)

        return Model(3, 2)


class Averaged(Points):
    """A count decides what is in a buffer, which is used in eval mode."""

    def model(self, spec):
        class Model(nn.Linear):
            steps = 0

            def forward(self, inputs):
                if self.training:
                    self.steps += 1
                    self.mean += (inputs.mean(0) - self.mean) / self.steps
                return super().forward(inputs if self.training else inputs - self.mean)

        model = Model(3, 2)
        model.register_buffer("mean", torch.zeros(3))
        return model


class Unfolded(Points):
    """A buffer that is not there before the first step."""

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                self.seen = inputs.mean()
                return super().forward(inputs)

        model = Model(3, 2)
        model.register_buffer("seen", None)
        return model


class Expanded(Points):
    persistent, ema = True, 0.0

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                return super().forward(inputs) * self.places

        model = Model(3, 2)
        model.register_buffer("places", torch.ones(1).expand(2), persistent=self.persistent)
        model.ema = self.ema
        return model


class ExpandedWithAverage(Expanded):
    persistent, ema = False, 0.9


class StateOf(nn.Linear):
    """It has a state of this kind besides its tensors."""

    state: Any = None

    def get_extra_state(self) -> Any:
        return self.state

    def set_extra_state(self, state: Any) -> None:
        self.state = state


class UnreadableState(Points):
    def model(self, spec):
        model = StateOf(3, 2)
        model.state = deque([1])
        return nn.Sequential(model)


class UnwritableState(Points):
    def model(self, spec):
        model = StateOf(3, 2)
        model.state = lambda: 1
        return model


class SparseBuffer(Points):
    persistent = True

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                return (self.graph @ super().forward(inputs).T).T

        model = Model(3, 2)
        model.register_buffer("graph", torch.eye(2).to_sparse(), persistent=self.persistent)
        return model


class Lazy(Points):
    def model(self, spec):
        return nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 2))


COUNTS = "counts() must give whole numbers with 0 <= low <= high and fixed >= 0, not "
TWICE = "data() must give the same samples whenever it is asked for the same spec, and does not at N = 8, data_count = 14"
NESTED = "data() must give nested training sets, and at data_count = 14 and 28 the larger lacks samples of the smaller"
AMONG = (
    "measure() must judge each sample by itself, as a set is measured in parts, and gives another '{}' for a sample alone than "
    "among others: compare with what the task holds, such as a fixed gallery or mean"
)
BROKEN: dict[type, str] = {
    NumberedVersion: "version must be a word, such as '1', not 1.0",
    NoChoices: "choices must be a mapping with dataset, decoder, encoding, holdout, not a list",
    NoEncoding: "choices must have dataset, decoder, encoding, holdout, and lack encoding",
    LooseWord: "choices['decoder'] must be a tuple of at least one word, not 'linear'",
    NoWords: "choices['dataset'] must be a tuple of at least one word, not ()",
    ListedDefaults: "defaults must be a mapping from names to values, not a list",
    ListedOption: "defaults['widths'] must be a number, a word, True or False, not [1, 2]",
    NumberedOption: "defaults must have words as names, not 1",
    LoosePackable: "packable must be a tuple of settings, not 'noise'",
    UnknownPackable: "packable must name some of its settings, dataset, encoding, holdout, noise, shift, kind, strict, not "
    "'sigma'",
    UnknownCheap: "cheap must name some of its decoders, linear, mlp, not 'rnn'",
    HalfPreset: "preset('points', 'mlp') must give depth, width, holdout, and lacks width, holdout",
    NoPreset: "preset('points', 'linear') must give a mapping with depth, width, holdout, not a NoneType",
    RaisingPreset: "preset('points', 'linear') fails with KeyError: 'LINEAR'",
    RealPreset: "preset('points', 'linear') must give a whole number as width, not 1.0",
    OtherHoldout: "preset('points', 'linear') must give a holdout of its choices, random, not 'edge'",
    PairOfCounts: "counts() must give a Counts, not a tuple",
    CrossedCounts: COUNTS + "low = 9, high = 3 and fixed = 0",
    RealCounts: COUNTS + "low = 1, high = 57.6 and fixed = 0",
    NoCounts: "counts() must allow at least one training sample, not high = 0 at N = 8",
    EndlessCounts: "counts() must give high + fixed of at most 2147483647, not 2147483648 at N = 8",
    RaisingCounts: "counts() at N = 8 fails with KeyError: 'most'",
    RaisingData: "data() at N = 8, data_count = 1 fails with ArithmeticError: the points are gone",
    ExitingData: "data() at N = 8, data_count = 1 fails with SystemExit",
    PairOfData: "data() must give a Data, not a tuple",
    PairsOfSplits: "data() must give a Split as train, not a tuple",
    ArrayInputs: "data() must give a tensor (n, ...) as train.inputs, not array(",
    ScalarTruth: "data() must give a tensor (n, ...) as train.truth, not tensor(1.)",
    SparseInputs: "data() must give dense tensors, not train.inputs of torch.sparse_coo: use to_dense()",
    RaggedInputs: "data() must give dense tensors, not train.inputs as a nested tensor: pad samples of different sizes",
    JaggedTruth: "data() must give dense tensors, not train.truth as a nested tensor: pad samples of different sizes",
    QuantizedInputs: "data() must give dense tensors, not train.inputs of torch.qint8: use dequantize()",
    ShortTargets: "data() must give as many inputs as targets and truth, not 1, 0 and 1 in train at N = 8, data_count = 1",
    ConstantCount: "data() must give data_count training samples, 1 at N = 8, data_count = 1, not 4",
    ForgottenFixed: "data() must give data_count training samples, 5 = 5 fixed + 0 drawn at N = 8, data_count = 0, not 0",
    NothingHeldOut: "data() holds out nothing at N = 8, data_count = 64: hold out samples to judge on, or lower Counts.high",
    InfiniteInputs: "data() must give finite inputs, and train.inputs has NaN or infinity at N = 8, data_count = 1",
    NanTargets: "data() must give finite targets, and train.targets has NaN or infinity at N = 8, data_count = 1",
    ClassTargets: "data() must give floating-point targets, as the loss is the squared error, not torch.int64 in train: "
    "make class labels one-hot vectors, or give the task loss = 'cross-entropy'",
    FlatTargets: "data() must give targets (n, ...) such as (n, 1), not (1,) in train: unsqueeze them",
    GlobalDraws: TWICE + ": draw from a generator seeded with spec.seed, not from a global one",
    GlobalHeldOut: TWICE,
    DrawnByCount: NESTED + ": draw one order from the seed, and take the first data_count of it",
    OtherOrder: NESTED,
    Growing: "data() must give samples of the same shapes at every data_count, not others at 14 and 28",
    FunctionModel: "model() must give a torch.nn.Module, not a function",
    Frozen: "model() must give a network with something to train, but no parameter requires a gradient",
    Raising: "model() fails with KeyError: 'LINEAR'",
    WrongWidth: "model() on inputs (4, 3) of torch.float32 fails with RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    DoubleInputs: "model() on inputs (4, 3) of torch.float64 fails with RuntimeError: mat1 and mat2 must have the same dtype",
    FlatOutputs: "model() must give outputs of the shape of the targets, (4, 1), not (4,)",
    PairOfOutputs: "model() must give a tensor as outputs, not a tuple",
    WholeOutputs: "model() must give floating-point outputs, not torch.int64",
    NanOutputs: "model() must give finite outputs, and those of the untrained network have NaN or infinity",
    SparseGradients: "model() must have dense gradients, and that of 1.weight is sparse, with which the optimizer can take no "
    "step: build its layer with sparse=False",
    Detached: "model() must give outputs that depend on its parameters: the loss has no gradient",
    NumberPenalty: "model().penalty() must give a floating-point tensor without dimensions, not a float",
    WidePenalty: "model().penalty() must give a floating-point tensor without dimensions, not a tensor (2,) of torch.float32",
    RaisingPenalty: "model().penalty() fails with RuntimeError: ",
    TensorMeasure: "measure() must give a mapping from names to tensors, not a Tensor",
    NoCorrect: "measure() must give correct, whose mean is the accuracy, and gives error",
    RealCorrect: "measure() must give a bool tensor of shape (4,) as correct, not torch.float32 of shape (4,): compare each",
    WideCorrect: "measure() must give a bool tensor of shape (4,) as correct, not torch.bool of shape (4, 2)",
    SqueezedMeasure: "measure() must give a bool tensor of shape (1,) as correct, not torch.bool of shape ()",
    MeanError: "measure() must give a real tensor of shape (4,) as error, not torch.float32 of shape ()",
    NumberError: "measure() must give a real tensor of shape (4,) as error, not a float",
    RenamedMeasure: "measure() must give words as names, not 3",
    SquaredMeasure: "measure() must give no squared_error: under this name it is measured anyway",
    TrainingMeasure: "measure() must give no id_near: this is the name of near on the training set",
    ComplexModel: "model() must have real parameters, and weight is of torch.complex64: train its real and",
    ForeignWeights: "model() must give the same weights whenever it is asked for the same spec, and its weight differs: ",
    ForeignNoise: "model() must give the same loss for the same weights and samples, and gave ",
    ForeignPenalty: "model() must give the same loss for the same weights and samples, and gave ",
    RandomPenalty: "model() must not draw from torch's global generator in a step, unless it says draws_inside = True",
    RandomWhenJudged: "model() must give the same outputs for the same inputs in eval mode, and does not",
    RandomMeasure: "measure() must give the same for the same outputs, and does not: it must not draw",
    ChangedTruth: "measure() must not change the samples that it judges, as they are judged again at every look, and changes "
    "inputs and truth: change a clone",
    ChangedTargets: "measure() must not change the samples that it judges, as they are judged again at every look, and changes "
    "targets: change a clone",
    **dict.fromkeys((Recalled, RecalledAtOnce, RecalledByNumber, Matched), AMONG.format("correct")),
    Normalized: AMONG.format("lost"),
    Divided: AMONG.format("share"),
    RandomJudged: "judged() must give the same samples whenever it is asked for the same spec, and does not at N = 8",
    Annealed: "model() changes 0.steps in a step, and no checkpoint holds it: a run could not be continued to the same end. ",
    Centred: "model() changes mean in a step, and no checkpoint holds it",
    CentredByBuffer: "model() changes mean in a step, and no checkpoint holds it",
    Warmed: "model() changes steps in a step, and no checkpoint holds it",
    WarmedByTensor: "model() changes steps in a step, and no checkpoint holds it",
    FloatCount: "model() changes steps in a step, and no checkpoint holds it",
    DownwardCount: "model() changes steps in a step, and no checkpoint holds it",
    UnsavedCount: "model() changes seen in a step, and no checkpoint holds it",
    Between: "model() changes steps in a step, and no checkpoint holds it",
    Renewed: "model() changes steps in a step, and no checkpoint holds it",
    Every18th: "model() changes steps in a step, and no checkpoint holds it",
    Several: "model() changes sizes and steps in a step, and no checkpoint holds them: a run could not be continued to the "
    "same end. Keep them as tensors, by register_buffer()",
    SeveralLater: "model() changes steps and weight_of_penalty in a step, and no checkpoint holds them",
    FirstBatch: "model() changes scale in a step, and no checkpoint holds it",
    Logged: "model() changes something in a step, and no checkpoint holds it",
    Begun: "model() changes begun in a step, and no checkpoint holds it",
    Averaged: "model() changes steps in a step, and no checkpoint holds it",
    Unfolded: "model().load_state_dict() of the state after a step fails with RuntimeError: ",
    Expanded: "model() must have tensors whose numbers each have a place of their own, and places is made by expand(): ",
    ExpandedWithAverage: "model() must have tensors whose numbers each have a place of their own, and places is made by",
    UnreadableState: "model() must have an extra state that a checkpoint can hold, and its 0._extra_state is a deque: give ",
    UnwritableState: "model() must have an extra state that a checkpoint can hold, and its _extra_state is a function: give ",
    SparseBuffer: "model() must have dense tensors in its checkpoints, and graph is sparse: register it with persistent=False",
    Lazy: "model() must have no lazy layers, whose weights are made in a step, and 0.weight is of one: give the layer its ",
    RaisingMeasure: "measure() fails with AttributeError: 'Tensor' object has no attribute 'nearest'",
}


def check(task: Task, dataset: str | None = None, decoder: str | None = None, N: int = 8, **options: object) -> None:
    """As the scaling study does, with words that are the task's, or those of Points where it is one of them."""
    words = {name: word for name, word in (("dataset", dataset), ("decoder", decoder)) if word is not None}
    fields = spec_fields(Points() if isinstance(task, Points) else task, {**words, **options})
    check_task(task, RunSpec(task="tests:Task", N=N, data_count=0, seed=0, **fields))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_task_is_told_in_one_sentence_that_names_the_member(broken: type) -> None:
    with pytest.raises(ValueError, match=r"^the task's ") as caught:
        check(broken())
    assert str(caught.value).startswith(f"the task's {BROKEN[broken]}")
    assert str(caught.value).isprintable(), "it is one line"


@pytest.mark.parametrize("broken", [HalfPreset, RaisingCounts, ClassTargets, FlatOutputs, NumberError, NothingHeldOut])
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["trained", "dry run"])
def test_the_command_ends_before_anything_is_written(
    broken: type, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--task", f"{__name__}:{broken.__name__}", "--N", "8,16", *more]
    check_refusal(scaling.app, arguments, f"error: the task's {BROKEN[broken]}", tmp_path, capsys)


def test_every_data_set_and_size_asked_for_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Points, "choices", Points.choices | {"dataset": ("points", "spheres")})
    monkeypatch.setattr(Points, "model", lambda self, spec: nn.Linear(3, 2 if spec.dataset == "points" else 4))
    monkeypatch.setattr(Points, "counts", lambda self, spec: Counts(low=1, high=56 if spec.N < 16 else -1))
    task = ["--task", f"{__name__}:Points", "--dry-run"]
    check_refusal(scaling.app, [*task, "--N", "8"], "model() must give outputs of the shape of the targets", tmp_path, capsys)
    arguments = [*task, "--N", "8,16", "--datasets", "points"]
    check_refusal(scaling.app, arguments, "high = -1 and fixed = 0 at N = 16", tmp_path, capsys)


def test_a_refusal_in_the_words_of_the_task_is_left_as_it_is() -> None:
    with pytest.raises(ValueError, match=r"^noise must be at least 1$"):
        check(PickyCounts())


def test_what_a_task_prints_does_not_spoil_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Points, "model", lambda self, spec: (print("made"), nn.Linear(3, 2))[1])
    check(Points())
    assert capsys.readouterr() == ("", "made\n" * 3)


def test_a_task_that_prints_much_is_cut_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = Points.model

    def noisy(self: Points, spec: RunSpec) -> nn.Module:
        print("word " * 1500, flush=True)
        sys.stdout.writelines(["one\n", "two\n"])
        return model(self, spec)

    monkeypatch.setattr(Points, "model", noisy)
    check(Points())
    told = capsys.readouterr().err
    assert told.startswith("word word")
    assert 10_000 < len(told) < 10_100
    assert told.endswith("\n(what the task prints beyond this is left out)\n")


@pytest.mark.parametrize(
    ("path", "dataset", "decoder", "N", "options"),
    [
        *(("trainables.bumps:BumpTask", d, m, 16, {}) for d in ("bumps", "stripes+bumps") for m in ("cnn", "mlp")),
        ("trainables.bumps:BumpTask", "bumps", "mlp", 8, {"centres": "real"}),
        ("trainables.rotation:RotationTask", None, None, 8, {"angles": 40}),
        ("trainables.regularization:RegularizationTask", None, None, 8, {}),
        *(("examples.own_task:Chords", None, m, n, {}) for m in ("linear", "mlp") for n in (2, 8)),
        ("tests.toy:Toy", None, None, 8, {}),
        ("tests.trainables.test_check:Points", None, None, 8, {}),
    ],
)
def test_a_task_that_works_passes(
    path: str, dataset: str | None, decoder: str | None, N: int, options: dict[str, object]
) -> None:
    check(load_task(path), dataset, decoder, N, **options)


@dataclasses.dataclass(frozen=True)
class TurnedSettings:
    angle: float = setting(30.0)
    half: float | None = setting(None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "angle", math.radians(self.angle))
        object.__setattr__(self, "half", self.angle / 2)


class Turned(Points):
    """A value of its settings is another one whenever they are read."""

    settings = TurnedSettings


def test_settings_that_change_when_they_are_read_again_are_refused() -> None:
    spec = RunSpec(task="tests:Task", N=8, data_count=0, seed=0, **spec_fields(Turned(), {}))
    assert (spec.option("angle"), read_settings(TurnedSettings, spec).angle) == pytest.approx((0.5236, 0.0091), abs=1e-4)
    with pytest.raises(ValueError, match=r"^the task's settings make angle 0\.0091.* of 0\.5235.*: __post_init__ must keep"):
        check_task(Turned(), spec)
    check_task(Turned(), dataclasses.replace(spec, options=(("angle", 0.0), ("half", 0.0))))
    check_task(Turned(), dataclasses.replace(spec, options=(("angle", 0.5),)))  # made by hand, and never read


def weights_after(steps: int, task: Task) -> float:
    """The norm of the weights of a run of so many steps."""
    spec = RunSpec(task="tests:Task", N=8, data_count=20, seed=0, max_steps=steps, stop="budget", **spec_fields(Points(), {}))
    run = Training(spec, task)
    run.advance()
    return run.weight_norm()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch compiles none with this version of Python")
def test_a_model_may_be_compiled_to_torchscript() -> None:
    class Scripted(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            return torch.jit.script(super().model(spec))

    check(Scripted())
    assert weights_after(20, Scripted()) == weights_after(20, Points())


def test_data_may_have_gradients_through_which_nothing_is_learned() -> None:
    class Taught(Changed):
        def changed(self, spec: RunSpec, split: Split) -> Split:
            return split._replace(targets=(split.targets @ torch.eye(2).requires_grad_()).tanh())

    class Plain(Taught):
        def changed(self, spec: RunSpec, split: Split) -> Split:
            return Split(*(t.detach() for t in super().changed(spec, split)))

    check(Taught())
    assert weights_after(40, Taught()) == weights_after(40, Plain())


def test_rounding_that_depends_on_the_number_of_samples_is_none_of_the_tasks_business() -> None:
    class Taught(Points):
        def data(self, spec: RunSpec) -> Data:
            noise = 1 + 1e-7 * spec.data_count
            return Data(*(Split(s.inputs * noise, s.targets / noise, s.truth) for s in super().data(spec)))

    check(Taught())


def test_a_measure_may_compare_with_what_is_fixed_draw_by_place_round_and_be_no_number() -> None:
    gallery = torch.randn(1000, 2, generator=torch.Generator().manual_seed(1))

    class Sound(Points):
        def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
            noise = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2))
            nearest, error = torch.cdist(outputs, gallery).min(1), (outputs + noise - split.targets).norm(dim=1)
            nothing = torch.full((len(outputs),), torch.nan)
            return {
                "correct": nearest.indices == torch.cdist(split.targets, gallery).argmin(1), "distance": nearest.values,
                "noisy": error, "none": nothing, "some": torch.where(error > 2, nothing, error), "endless": (error * 1e3).exp(),
            }  # fmt: skip

        def summarise(self, spec: RunSpec, measures: dict[str, torch.Tensor], split: Split) -> dict[str, float]:
            return {"spread": measures["distance"].std(correction=0).item()}

    check(Sound())


def test_a_measure_may_change_the_outputs_and_the_shapes_that_it_is_given_and_samples_may_have_no_number() -> None:
    class Sound(Points):
        def data(self, spec: RunSpec) -> Data:
            return Data(*(split._replace(truth=split.truth[:, :1] * torch.nan) for split in super().data(spec)))

        def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
            assert len(split.truth.squeeze_(1)) == len(outputs)
            error = outputs.sub_(split.targets).square_().mean(1)
            return {"correct": error < 0.1, "mse": error}

    class Halved(Sound):
        def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
            return super().measure(spec, outputs.div_(2), split)

    spec = RunSpec(task="tests:Task", dataset="points", N=8, data_count=9, seed=0, options=tuple(Points.defaults.items()))
    for task, names in ((Sound(), ["correct"]), (Halved(), ["correct", "mse"])):
        check(task)
        assert names_of(task, spec)[0] == names, "a row has its squared error anyway"


def test_outputs_that_no_network_gives_may_be_beyond_a_measure_and_many_are_measured_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    class Careful(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            return nn.Sequential(nn.Linear(3, 2), nn.Sigmoid())

        def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
            asked.append(len(outputs))
            if not ((outputs >= 0) & (outputs <= 1)).all():
                raise ValueError("a share is from 0 to 1")
            return {"correct": outputs[:, 0] > 0.5}

    check(Careful())
    measured = len(asked)
    monkeypatch.setattr("trainables.check.MOST_NUMBERS", 7)
    asked.clear()
    check(Careful())
    assert len(asked) == 5 + 5 < measured


def test_what_a_run_needs_may_not_depend_on_how_it_ends() -> None:
    class Heir(Pupil):
        stop = ""

        def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
            return {"teacher": dataclasses.replace(super().needs(spec)["teacher"], stop=self.stop or spec.stop)}

    spec = RunSpec(task="tests:Heir", dataset="toys", N=8, data_count=9, seed=0, options=tuple(Pupil.defaults.items()))
    told = r"^the task's needs\(\) must give the same runs whatever spec.stop is, and gives another teacher for 'early'"
    with pytest.raises(ValueError, match=told + r" .*: give it a stop of its own, such as stop='target'$"):
        check_task(Heir(), spec)
    check_task(Heir(), dataclasses.replace(spec, stop="budget"))  # no such run is ever trained on
    for Heir.stop in ("target", "budget", "early"):
        check_task(Heir(), spec)


def test_what_a_step_may_change_and_draw_is_not_refused() -> None:
    class Model(nn.Module):
        """It draws inside, remembers what it saw last, makes a table at first, and keeps statistics."""

        draws_inside = True

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), weight_norm(nn.Linear(8, 2)))
            self.table: torch.Tensor | None = None
            self.log: list[float] = []
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.table = torch.ones(2) if self.table is None else self.table
            self.last, self.most, self.moved = inputs, inputs.max().item(), inputs + self.steps
            self.log.append(self.most)
            self.steps += 1
            found: torch.Tensor = self.body(inputs) * self.table
            return found

        def penalty(self) -> torch.Tensor:
            return self.last.square().mean() + 0 * self.steps

    class Usual(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            return Model()

    check(Usual())


class Kept(nn.Linear):
    """Its steps are in the checkpoint, and matter."""

    steps = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        return super().forward(inputs) * min(1, self.steps / 100)

    def get_extra_state(self) -> dict[str, int]:
        return {"steps": self.steps}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


class Watched(nn.Linear):
    """What it notes of its steps is not used."""

    calls, norm, ended = 0, 0.0, 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        outputs = super().forward(inputs)
        self.last, self.norm, self.ended = outputs.detach(), outputs.detach().norm().item(), time.perf_counter()
        return outputs


class Noted(nn.Linear):
    """It cannot count as far as a run may go."""

    calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.norms[self.calls] = inputs.norm()
        return super().forward(inputs)


class Sized(nn.Linear):
    """It remembers a number of its first batch that all batches have."""

    fan = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.fan = self.fan or inputs.shape[1]
        return super().forward(inputs / self.fan)


class Dotted(nn.Linear):
    """A count has a dot in its name."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        vars(self)["stat.calls"] = vars(self).get("stat.calls", 0) + 1
        return super().forward(inputs)


class Amplified(nn.Linear):
    """Two amplitudes begin at 0, and neither can fall by as much as the check moves one of them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.amplitudes = nn.Parameter(torch.zeros(2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) + torch.log1p(1000 * self.amplitudes).diff()


class Still(nn.Linear):
    """Where a network is judged it is as it was made, and not where a check has moved it."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        return outputs if self.training or self.bias.detach().eq(1).all() else outputs * torch.nan


class Sparse(nn.Linear):
    """It counts in a sparse tensor, and holds one that gives no numbers."""

    counts = torch.eye(2).to_sparse()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.counts, self.shape = self.counts + self.counts, torch.empty(len(inputs), device="meta")
        return super().forward(inputs)


class PartOfParent(nn.Module):
    """A network of a run that is needed is a part of it, and is trained on: every model has the same one."""

    parent = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = self.parent, nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(inputs))
        return found


SOUND = [Kept, Watched, Noted, Sized, Dotted, Amplified, Still, Sparse, PartOfParent]


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_what_a_step_changes_is_refused_only_where_a_run_that_goes_on_would_feel_it(kind: type) -> None:
    class Other(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            model: nn.Module = kind() if kind is PartOfParent else kind(3, 2)
            if kind is Noted:
                model.norms = torch.zeros(1000)
            if kind is Still:
                nn.init.ones_(model.bias)
            return model

    check(Other())


def test_lazy_layers_may_be_made_in_model_and_expanded_buffers_may_be_no_part_of_a_checkpoint() -> None:
    class Made(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            model = Lazy().model(spec)
            model(torch.zeros(1, 3))
            return model

    check(Made())
    unsaved = Expanded()
    unsaved.persistent = False
    check(unsaved)


def test_sparse_buffers_may_be_no_part_of_a_checkpoint() -> None:
    unsaved = SparseBuffer()
    unsaved.persistent = False
    check(unsaved)


class Complex(Points):
    """A buffer is of a type that no safetensors file holds."""

    def model(self, spec):
        class Model(nn.Linear):
            def forward(self, inputs):
                return super().forward(inputs) * self.turn.real.float()

        model = Model(3, 2)
        model.register_buffer("turn", torch.ones(2, dtype=torch.complex128))
        return model


HELD_BY_NO_FILE = "model() must have nothing in its state that a safetensors file cannot hold, as its weights are kept, and its"


class OwnState(Points):
    def model(self, spec):
        model = StateOf(3, 2)
        model.state = {"steps": 1}
        return model


@pytest.mark.parametrize(
    ("kind", "why"), [(Complex, "turn is of torch.complex128"), (OwnState, "_extra_state is a dict")], ids=["type", "state"]
)
def test_what_no_file_of_weights_holds_is_refused_where_weights_are_kept(kind: type[Points], why: str) -> None:
    check(kind())
    spec = RunSpec(task="tests:Task", N=8, data_count=0, seed=0, **spec_fields(kind(), {}))
    with pytest.raises(ValueError, match=f"^the task's {re.escape(f'{HELD_BY_NO_FILE} {why}')}: ") as caught:
        check_task(kind(), spec, keeps_weights=True)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "command",
    [(scaling.app, "--N", "8"), (tune.app, "--search", "lr=1e-4..1e-2:log", "--N", "8", "--data-count", "16")],
    ids=["scaling", "tune"],
)
def test_the_command_that_would_keep_such_weights_ends_before_anything_is_written(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    app, *arguments = command
    arguments += ["--task", f"{__name__}:OwnState", "--save-weights"]
    check_refusal(app, arguments, f"{HELD_BY_NO_FILE} _extra_state is a dict: register a buffer", tmp_path, capsys)


def test_large_samples_to_judge_on_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Judged(Points):
        def judged(self, spec: RunSpec) -> Data:
            asked.append(spec.data_count)
            return super().data(spec)

    check(Judged())
    assert asked == [1, 1]
    asked.clear()
    monkeypatch.setattr("trainables.check.MOST_BYTES", 100)
    check(Judged())
    assert asked == [1]


def test_a_model_is_made_with_a_data_count_that_is_trained() -> None:
    class Shared(Points):
        def model(self, spec: RunSpec) -> nn.Module:
            return nn.Linear(3, 2).requires_grad_(1 / spec.data_count > 0)

    check(Shared())


MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "complex": lambda inputs: torch.complex(inputs, -inputs),
    "eight-bit": lambda inputs: inputs.to(torch.float8_e4m3fn),
    "huge": lambda inputs: inputs.double() * 1e300,
    "unsigned": lambda inputs: (2**15 + 1000 * inputs).to(torch.uint16),
}
TAKEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "complex": lambda inputs: inputs.imag,
    "eight-bit": lambda inputs: inputs.float(),
    "huge": lambda inputs: (inputs / 1e300).float(),
    "unsigned": lambda inputs: inputs.float() / 2**16,
}


@pytest.mark.parametrize("kind", MADE)
def test_inputs_may_be_complex_huge_small_or_unsigned(kind: str) -> None:
    class Other(Changed):
        def changed(self, spec: RunSpec, split: Split) -> Split:
            return split._replace(inputs=MADE[kind](split.inputs))

        def model(self, spec: RunSpec) -> nn.Module:
            class Model(nn.Linear):
                def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                    return super().forward(TAKEN[kind](inputs))

            return Model(3, 2)

    check(Other())


def test_the_imaginary_parts_of_samples_tell_them_apart() -> None:
    class Drawn(Changed):
        def changed(self, spec: RunSpec, split: Split) -> Split:
            return split._replace(inputs=torch.complex(split.inputs, torch.randn(split.inputs.shape)))

    with pytest.raises(ValueError, match="must give the same samples"):
        check(Drawn())


def test_the_global_generator_and_the_threads_are_as_they_were() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        check(Points())
        with pytest.raises(ValueError, match="same samples"):
            check(GlobalDraws())
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


def test_the_check_is_cheap() -> None:
    seconds = []
    for _ in range(3):
        began = time.process_time()
        check(load_task("trainables.bumps:BumpTask"), N=16)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.5


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class Speechless(Points):
    """Cannot be made, or not be trained, and the exception cannot say why."""

    made = False

    def __init__(self) -> None:
        if not self.made:
            raise SpeechlessError

    def model(self, spec: RunSpec) -> nn.Module:
        raise SpeechlessError


def test_an_exception_that_cannot_say_what_it_is_about_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"cannot be imported \(SpeechlessError\): write module:Class"):
        load_task(f"{__name__}:Speechless")
    monkeypatch.setattr(Speechless, "made", True)
    spec = RunSpec(task=f"{__name__}:Speechless", dataset="points", N=8, data_count=9, seed=0)
    with pytest.raises(ValueError, match=r"^the task cannot be trained for a step \(SpeechlessError\)$"):
        numbers_of(Speechless(), spec)


def test_a_name_that_few_samples_have_is_among_the_numbers_of_a_run() -> None:
    """The sample of each name is another one of the 55 that are looked at."""

    class Named(Points):
        def summarise(self, spec: RunSpec, measures: dict[str, torch.Tensor], split: Split) -> dict[str, float]:
            return {f"error of {x:.4f}": error.item() for x, error in zip(split.inputs[:, 0], measures["error"], strict=True)}

    task = Named()
    spec = RunSpec(task="tests:Task", dataset="points", N=8, data_count=9, seed=0, options=tuple(Points.defaults.items()))
    names, _ = numbers_of(task, spec)
    assert {f"error of {x:.4f}" for x in task.data(spec).held_out.inputs[:, 0]} <= {*names}


def test_large_data_are_made_twice_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Noted(Points):
        def data(self, spec: RunSpec) -> Data:
            asked.append(spec.data_count)
            return super().data(spec)

    check(Noted())
    assert asked == [1, 14, 14, 28, 56]
    asked.clear()
    monkeypatch.setattr("trainables.check_data.MOST_BYTES", 100)
    check(Noted())
    assert asked == [1, 1]


def test_counts_are_those_of_the_task() -> None:
    spec = RunSpec(task="tests:Task", dataset="points", N=8, data_count=0, seed=0)
    assert counts_of(Points(), spec) == Counts(low=1, high=56)
    assert counts_of(Points(), dataclasses.replace(spec, N=9)) == Counts(low=1, high=56)
