"""What tasks draw for the page of a store: they are given what the trained network gives for what is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import save
from torch import Generator, Tensor, nn

from analysis.report.drawn import drawn_by_task
from trainables import Counts, Data, RunSpec, Split
from trainables.task import load_task

WORDS = torch.tensor([[0, 1], [2, 3], [4, 4]])


@dataclass(frozen=True)
class Settings:
    pass


class Reader(nn.Module):
    """Codes of whole numbers, as words are."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(5, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.codes(words).mean(1)


class Words:
    """Draws the outputs as the title of a figure."""

    version, settings = "1", Settings

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=3, high=3)

    def data(self, spec: RunSpec) -> Data:
        part = Split(WORDS, torch.zeros(3, 2), torch.zeros(3))
        return Data(part, part)

    def model(self, spec: RunSpec) -> nn.Module:
        return Reader()

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": outputs[:, 0] > 0}

    def draw(self, spec: RunSpec, outputs: Tensor) -> Figure:
        figure = Figure()
        figure.suptitle(str(outputs.tolist()))
        return figure


class Sampler(Reader):
    """Gives nothing unless it is sampled from."""

    def forward(self, words: Tensor) -> Tensor:
        raise AssertionError("only sampled outputs are looked at")

    def sample(self, words: Tensor, generator: Generator) -> Tensor:
        return Reader.forward(self, words)


class Judged(Words):
    """Looks at other words than those that it is trained on, by samples."""

    def judged(self, spec: RunSpec) -> Data:
        part = Split(WORDS[1:], torch.zeros(2, 2), torch.zeros(2))
        return Data(part, part)

    def model(self, spec: RunSpec) -> nn.Module:
        return Sampler()


@pytest.mark.parametrize(("name", "words"), [("Words", WORDS), ("Judged", WORDS[1:])])
def test_a_task_draws_the_outputs_for_what_is_looked_at_whatever_its_inputs_are(name: str, words: Tensor) -> None:
    task = load_task(f"tests.analysis.test_drawn:{name}")
    spec = RunSpec(task=f"tests.analysis.test_drawn:{name}", dataset="words", N=1, data_count=3, seed=0, decoder="", depth=0)
    run = {**spec.to_dict(), "key": "k", "parents": {}, "status": "missed", "finished_at": 0}
    network = Reader()
    [picture] = drawn_by_task([run], {spec.task: task}, lambda key: save(network.state_dict()))
    title = picture.draw().get_suptitle()
    assert title == str(network(words).tolist())
