"""Fine-tuning after pretraining: how many labelled digits does a network need if it has seen unlabelled ones before?

    python -m orchestrator.scaling --task examples.pretraining:FineTuning --N 3,5,10 --lr 0.01 --max-steps 500
    python -m orchestrator.scaling --task examples.pretraining:FineTuning --start random --N 3,5,10 --lr 0.01 --max-steps 500

An autoencoder is trained without labels, once for each N and seed. Its encoder is where the classifiers start.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from examples.classifier import Digits, digits
from trainables import Counts, Data, RunSpec, Split, run_of, setting

WIDTH = 32


@dataclass(frozen=True)
class Noise:
    dataset: str = setting("digits", "What tables and figures call the data.", words=("digits",))
    noise: float = setting(0.3, "Standard deviation of the noise on the inputs.", low=0)


@dataclass(frozen=True)
class Start:
    start: str = setting("pretrained", "Where the encoder starts.", words=("pretrained", "random"))


class Autoencoder:
    """Its targets are its inputs. An image counts as correct if less than half of its variance is lost."""

    version, settings = "2", Noise

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=len(digits(spec.N)[0].inputs))

    def data(self, spec: RunSpec) -> Data:
        noisy = torch.Generator().manual_seed(spec.seed)
        splits = []
        for split in digits(spec.N):
            noise = torch.randn(split.inputs.shape, generator=noisy) * spec.option("noise")
            splits.append(Split(split.inputs + noise, split.inputs, split.truth))
        return Data(Split(*(t[: spec.data_count] for t in splits[0])), splits[1])

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU()), nn.Linear(WIDTH, 64))

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        mean = digits(spec.N)[0].inputs.mean(0).to(outputs.device)  # not of the split, which may be a part of a set
        lost = (outputs - split.targets).square().sum(1) / (split.targets - mean).square().sum(1)
        return {"correct": lost < 0.5, "lost": lost}


class FineTuning(Digits):
    version, settings = f"1.{Autoencoder.version}.{Digits.version}", Start

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        if spec.option("start") == "random":
            return {}
        images, training = len(digits(spec.N)[0].inputs), {"lr": 3e-3, "max_steps": 3000, "target": 0.8}
        return {"autoencoder": run_of(Autoencoder, N=spec.N, seed=spec.seed, data_count=images, **training)}

    def model(self, spec: RunSpec, parents: dict[str, nn.Module]) -> nn.Module:
        if parents:
            encoder = copy.deepcopy(parents["autoencoder"][0]).requires_grad_(True)
        else:
            encoder = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU())
        return nn.Sequential(encoder, nn.Linear(WIDTH, spec.N))
