"""What it takes to analyse one decoder: CPU time of every measure of a 28 x 28 CNN, all layers, all 784 positions.

    python -m benchmarks.analysis            depths 2, 4 and 6, three rounds in turns
    python -m benchmarks.analysis --quick    N = 12, one round

Weights are untrained: the work does not depend on them. CPU time of one thread, the least of the rounds; each begins with a
decoder that has computed nothing. The activations of all layers, which measures share, are a line of their own. What happens
once in a process, such as importing torch's rules of forward mode, is not counted.
"""

from __future__ import annotations

import platform
import resource
import time
from collections import defaultdict
from datetime import UTC, datetime

import torch
import typer
from threadpoolctl import threadpool_limits

from analysis.measures.registry import OF_DECODERS
from analysis.trained import TrainedDecoder
from benchmarks.step import processor
from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.precision import quiet_cpu

TASK = BumpTask()


def untrained(N: int, depth: int) -> TrainedDecoder:
    """The CNN of 64 channels for the bump code, with the central box held out."""
    subject = spec_fields(TASK, {"decoder": "cnn", "depth": depth, "holdout": "center"})
    spec = RunSpec(task="trainables.bumps:BumpTask", N=N, data_count=1, seed=0, **subject)
    torch.manual_seed(0)
    return TrainedDecoder("untrained", spec, TASK, TASK.model(spec).eval().requires_grad_(False))


def analyse(decoder: TrainedDecoder) -> dict[str, float]:
    """CPU seconds of the activations and of every measure."""
    seconds, began = {}, time.process_time()
    _ = decoder.activations
    seconds["activations"] = time.process_time() - began
    for name, module in OF_DECODERS.items():
        began = time.process_time()
        for _ in module.measure(decoder):
            pass
        seconds[name] = time.process_time() - began
    return seconds


def main(quick: bool = False) -> None:
    """Print the table."""
    quiet_cpu()
    N, depths, rounds = (12, (2, 4), 1) if quick else (28, (2, 4, 6), 3)
    least: dict[int, dict[str, float]] = defaultdict(dict)
    with threadpool_limits(1):
        analyse(untrained(8, 2))  # imports
        for _ in range(rounds):
            for depth in depths:
                for name, seconds in analyse(untrained(N, depth)).items():
                    least[depth][name] = min(least[depth].get(name, float("inf")), seconds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, one thread, {versions}. Peak memory of the process: {memory:.1f} GB.\n"
    )
    print(f"| CPU seconds, N = {N} | {' | '.join(f'depth {depth}' for depth in depths)} |")
    print("|---|" + "---:|" * len(depths))
    for name in least[depths[0]]:
        print(f"| {name} | {' | '.join(f'{least[depth][name]:.2f}' for depth in depths)} |")
    print(f"| **all** | {' | '.join(f'**{sum(least[depth].values()):.1f}**' for depth in depths)} |")


if __name__ == "__main__":
    typer.run(main)
