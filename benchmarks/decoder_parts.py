"""What each change of the low-rank decoder brings in the box: added to the published decoder, and taken from the changed one.

    python -m benchmarks.decoder_parts            five seeds at N = 32, hours on two cores; it continues where it was stopped
    python -m benchmarks.decoder_parts --quick    one seed at N = 8, to see that it works

All have the variance penalty alone. Prints geometric means over the seeds with their 95 % intervals, and the ratio of the error
in the box to that of the decoder that it is compared with, seed by seed.
"""

import dataclasses
import math
from typing import Annotated

import typer

from analysis.tune import compare, interval
from benchmarks.validation import made, train
from trainables.regularization import DECODER_TASK
from trainables.spec import RunSpec, Scalar

Changes = dict[str, Scalar]
PUBLISHED: Changes = {"lambda_entropy": 0.0, "lambda_variance": 0.03}
PARTS: dict[str, Changes] = {
    "padding of 4 pixels": {"padding": 4},
    "positive start": {"init": "positive"},
    "one mode a token": {"rank": 1},
    "8 channels": {"width": 8},
    "learning rate 2e-3": {"lr": 2e-3},
    "average of the weights": {"ema": 0.999},
}
FIRST_SEED = 200
"""No other study trains on these seeds."""


def all_but(name: str = "") -> Changes:
    return {key: value for part, changes in PARTS.items() if part != name for key, value in changes.items()}


def main(
    N: Annotated[int, typer.Option("--N", help="Grid size.")] = 32,
    seeds: Annotated[int, typer.Option(help="Seeds of each decoder.")] = 5,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 400,
    region: Annotated[str, typer.Option(help="`corner` or `center`.")] = "corner",
    store: Annotated[str, typer.Option(help="Folder of the results.")] = "results/decoder_parts",
    workers: Annotated[int | None, typer.Option(help="Parallel workers.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small, to see that it works.")] = False,
) -> None:
    if quick:
        N, seeds, epochs = 8, 1, 20
    decoders: dict[str, tuple[Changes, str]] = {"published": ({}, "published")}
    decoders |= {f"with {part}": (changes, "published") for part, changes in PARTS.items()}
    decoders["all changes"] = (all_but(), "all changes")
    decoders |= {f"all but {part}": (all_but(part), "all changes") for part in PARTS}
    runs: dict[tuple[str, int], RunSpec] = {}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for name, (changes, _) in decoders.items():
            spec = made(DECODER_TASK, N, epochs, holdout=region, **PUBLISHED, **changes)
            runs[name, seed] = dataclasses.replace(spec, seed=seed)
    row = train("decoder_parts", list(runs.values()), store, workers)

    def errors(name: str, measure: str) -> dict[int, float]:
        found = {seed: row(spec) for (of, seed), spec in runs.items() if of == name}
        return {seed: one[measure] for seed, one in found.items() if one[measure]}

    print(f"\nN = {N}, {region}, {epochs} epochs, {seeds} seeds, variance penalty {PUBLISHED['lambda_variance']}\n")
    print("| decoder | ID MSE | MSE in the box | 95 % interval | times that of | ratio | 95 % interval |")
    print("|---|---:|---:|---:|---|---:|---:|")
    for name, (_, reference) in decoders.items():
        own = errors(name, "ood_mse")
        middle, low, high = interval(list(own.values()), logs=True)
        inside, _, _ = interval(list(errors(name, "id_mse").values()), logs=True)
        ratio = compare(own, errors(reference, "ood_mse"), logs=True)
        span = "" if math.isnan(ratio["lower"]) else f"{ratio['lower']:.2f} to {ratio['upper']:.2f}"
        shown = f"{middle:.1e} | {low:.1e} to {high:.1e} | {reference}"
        print(f"| {name} | {inside:.1e} | {shown} | {ratio['ratio']:.2f} | {span} |")


if __name__ == "__main__":
    typer.run(main)
