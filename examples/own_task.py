"""Your own subject in the scaling study: how many pairs of tones must a network hear before it can mix any pair?

    python -m orchestrator.scaling --task examples.own_task:Chords --decoder linear --lr 0.01 --N 8..32

A chord is the sum of two tones out of N each, told by two one-hot codes: N x N combinations, of which some are heard.
"""

from dataclasses import dataclass

import torch
from torch import nn

from trainables import Counts, Data, RunSpec, Split, setting

SAMPLES = 64


@dataclass(frozen=True)
class Settings:  # what a user may choose: the options of `--task examples.own_task:Chords --help`
    dataset: str = setting("chords", words=("chords",))
    decoder: str = setting("linear", "Network that mixes the tones.", words=("linear", "mlp"))
    depth: int | None = setting(None, "Hidden layers.", low=0, shown="linear 0, mlp 1")
    width: int = setting(128, "Units per hidden layer.", low=1)
    encoding: str = setting("one-hot", "Code of a tone.", words=("one-hot",))
    holdout: str = setting("random", "Pairs that are not heard.", words=("random",))
    error: float = setting(0.1, "A chord is right when its relative error is below this.", low=1e-6, high=1)

    def __post_init__(self):
        object.__setattr__(self, "depth", int(self.decoder == "mlp") if self.depth is None else self.depth)


class Chords:
    version, settings = "1", Settings  # change the version whenever the same settings would give other results

    def counts(self, spec: RunSpec) -> Counts:
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
