"""A real decoder with the weights it would start a training with: what the tests of measures look at."""

from typing import Any

import torch

from analysis.trained import TrainedDecoder
from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec


def untrained(decoder: str = "cnn", N: int = 12, **words: Any) -> TrainedDecoder:
    """`words`: anything else of the spec; the task's own choice and the centre box otherwise."""
    task = BumpTask()
    chosen = {"decoder": decoder, "width": 8 if decoder == "cnn" else 24, "holdout": "center"}
    spec = RunSpec(
        **{"task": "trainables.bumps:BumpTask", "N": N, "data_count": 10, "seed": 0, **spec_fields(task, chosen), **words}
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = task.model(spec)
    return TrainedDecoder("untrained", spec, task, model.eval().requires_grad_(False))
