"""Your own subject in the scaling study: how many pairs of tones must a network hear before it can mix any pair?

    python -m orchestrator.scaling --task examples.own_task:Chords --N 8..24 --decoder linear --out results/chords

A chord is the sum of two tones out of N each, told by two one-hot codes: N x N combinations, of which some are heard.
"""

import torch
from torch import nn

from trainables import Counts, Data, RunSpec, Split

SAMPLES = 64


class Chords:
    version = "1"  # change it whenever the same settings would give other results
    choices = {"dataset": ("chords",), "decoder": ("linear", "mlp"), "encoding": ("one-hot",), "holdout": ("random",)}
    defaults = {"error": 0.1}  # a chord is right when its relative error is below this; --option error=0.05 changes it

    def preset(self, dataset, decoder):
        return {"depth": 0 if decoder == "linear" else 1, "width": 128, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        if not 0 < spec.option("error") < 1:
            raise ValueError(f"error must lie between 0 and 1, not {spec.option('error')}")
        return Counts(low=1, high=spec.N**2 - spec.N)

    def data(self, spec: RunSpec) -> Data:
        pairs = torch.cartesian_prod(torch.arange(spec.N), torch.arange(spec.N))
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(spec.seed))
        heard, unheard = pairs[order[: spec.data_count]], pairs[order[spec.data_count :]]  # nested: more contains less
        return Data(train=self.split(spec, heard), held_out=self.split(spec, unheard))

    def split(self, spec: RunSpec, pairs: torch.Tensor) -> Split:
        codes = nn.functional.one_hot(pairs, spec.N).float().flatten(1)
        time = torch.linspace(0, 1, SAMPLES)
        tones = torch.sin(2 * torch.pi * (1 + pairs[..., None]) * time * torch.tensor([1.0, 1.5])[:, None])
        return Split(inputs=codes, targets=tones.sum(dim=1), truth=pairs)

    def model(self, spec: RunSpec) -> nn.Module:
        layers, size = [], 2 * spec.N
        for _ in range(spec.depth):
            layers += [nn.Linear(size, spec.width), nn.ReLU()]
            size = spec.width
        return nn.Sequential(*layers, nn.Linear(size, SAMPLES))

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        error = (outputs - split.targets).norm(dim=1) / split.targets.norm(dim=1)
        return {"correct": error < spec.option("error"), "error": error}
