"""A classifier in the scaling study: how many handwritten digits must a network see before it tells N of them apart?

    python -m orchestrator.scaling --task examples.classifier:Digits --N 3,5,10 --lr 0.01 --max-steps 500 --resolution 0.1

The loss is the cross-entropy: targets are class indices, outputs are logits. N counts the classes: 0 to N - 1.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import nn

from trainables import Counts, Data, RunSpec, Split, setting, stream

TEST_EVERY = 4  # of the images, in scikit-learn's order, are held out from all runs


@cache
def digits(N: int) -> tuple[Split, Split]:
    """The images of the first N digits that may be trained on, and those that are held out."""
    images, labels = (torch.from_numpy(a) for a in load_digits(return_X_y=True))
    test = torch.arange(len(labels)) % TEST_EVERY == 0
    some = Split(images.float() / 16, labels.long(), labels.long())
    return tuple(Split(*(t[(labels < N) & part] for t in some)) for part in (~test, test))


@dataclass(frozen=True)
class Settings:
    depth: int = setting(0, "Hidden layers.", low=0)
    width: int = setting(64, "Units per hidden layer.", low=1)


class Digits:
    version, settings = "1", Settings  # change the version whenever the same settings would give other results
    loss = "cross-entropy"

    def counts(self, spec: RunSpec) -> Counts:
        if not 2 <= spec.N <= 10:
            raise ValueError(f"N must be a number of digits from 2 to 10, not {spec.N}")
        return Counts(low=1, high=len(digits(spec.N)[0].inputs))

    def data(self, spec: RunSpec) -> Data:
        known, held_out = digits(spec.N)
        order = torch.randperm(len(known.inputs), generator=stream(spec.seed, "digits"))[: spec.data_count]
        return Data(train=Split(*(t[order] for t in known)), held_out=held_out)

    def model(self, spec: RunSpec) -> nn.Module:
        sizes = [64, *[spec.width] * spec.depth]
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], spec.N))

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": outputs.argmax(dim=1) == split.targets, "sure": outputs.softmax(dim=1).amax(dim=1)}

    def summarise(self, spec: RunSpec, measures: dict[str, torch.Tensor], split: Split) -> dict[str, float]:
        found = {f"{digit}": measures["correct"][split.truth == digit] for digit in range(spec.N)}
        return {f"accuracy of {digit}": right.float().mean().item() for digit, right in found.items() if len(right)}
