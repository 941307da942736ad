"""How well an error on held-out coordinates predicts the error in the box, over many settings of the penalty weights.

    python -m benchmarks.validation            100 settings at N = 16, hours on two cores; it continues where it was stopped
    python -m benchmarks.validation --quick    6 settings at N = 8, to see that it works

Every setting is trained on three seeds and judged in the box: the geometric mean is the truth. Other seeds hold out, outside
the box, what a search could look at. Prints Spearman's rank correlation with the truth and its 95 % bootstrap interval over the
settings. The last line is the box on one seed against the box on the others: what chance leaves to be predicted.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy import stats

from orchestrator.command.options import steps_of
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches import Row, Rows
from orchestrator.store import ResultStore
from orchestrator.study import GridStudy
from trainables.regularization import BOXES, TASK, VALIDATION, WEIGHTS
from trainables.settings import spec_fields
from trainables.spec import RunSpec, Scalar
from trainables.task import load_task

SPANS = dict(zip(WEIGHTS, ((1e-3, 1.0), (1e-4, 1.0)), strict=True))
TRUE_SEEDS, OTHER_SEEDS = range(3), range(100, 104)
LOOKS: dict[str, Sequence[tuple[str, int]]] = {
    "all outside in x and y, one seed": [(VALIDATION, 100)],
    "the same, two seeds": [(VALIDATION, 100), (VALIDATION, 101)],
    "one pseudo-box, one seed": [(BOXES[0], 100)],
    "two pseudo-boxes, a seed each": list(zip(BOXES[:2], OTHER_SEEDS, strict=False)),
    "four pseudo-boxes, a seed each": list(zip(BOXES, OTHER_SEEDS, strict=True)),
}


class Unkept(GridStudy):
    """A grid of which nothing but the rows is kept."""

    def keeps_weights(self, spec: RunSpec) -> bool:
        return False


def made(task: str, N: int, epochs: int, **settings: Scalar) -> RunSpec:
    """A run of the regularization study with these settings."""
    loaded = load_task(task)
    of_run = {name: settings.pop(name) for name in ("lr", "schedule") if name in settings}
    fields = {"lr": 1e-3, "schedule": "cosine", "weight_decay": 1e-4, "stop": "budget"} | of_run
    spec = RunSpec(task=task, N=N, data_count=0, seed=0, **spec_fields(loaded, settings), **fields)
    count = loaded.counts(spec).low
    return dataclasses.replace(spec, data_count=count, max_steps=steps_of(epochs, count, spec.batch_size))


def train(name: str, specs: Sequence[RunSpec], store: str, workers: int | None) -> Callable[[RunSpec], Row]:
    """Trains what is missing in the store; gives the row of a run."""
    task = load_task(specs[0].task)
    where = LaunchOptions(store=store, workers=workers)
    study = Unkept(name, task, list(specs), {"store": store, "out": where.folder(name), "task_version": task.version})
    if code := launch(study, where):
        raise SystemExit(code)
    with_keys = Rows(ResultStore(Path(store), read_only=True).rows())

    def row(spec: RunSpec) -> Row:
        found = study.search.row(with_keys, spec)
        assert found is not None
        return found

    return row


def correlation(found: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """Spearman's, and its 95 % bootstrap interval."""
    dice = np.random.default_rng(0)
    drawn = np.array([dice.integers(len(truth), size=len(truth)) for _ in range(2000)])
    ranks = [stats.rankdata(values[drawn], axis=1) for values in (found, truth)]
    apart = [each - each.mean(axis=1, keepdims=True) for each in ranks]
    with np.errstate(invalid="ignore"):  # a sample of one value alone has no correlation
        values = np.sum(apart[0] * apart[1], axis=1) / np.sqrt(np.sum(apart[0] ** 2, axis=1) * np.sum(apart[1] ** 2, axis=1))
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(stats.spearmanr(found, truth).statistic), float(low), float(high)


def main(
    settings: Annotated[int, typer.Option(help="How many settings.")] = 100,
    N: Annotated[int, typer.Option("--N", help="Grid size.")] = 16,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 400,
    region: Annotated[str, typer.Option(help="`corner` or `center`.")] = "corner",
    store: Annotated[str, typer.Option(help="Folder of the results.")] = "results/validation",
    workers: Annotated[int | None, typer.Option(help="Parallel workers.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small, to see that it works.")] = False,
) -> None:
    if quick:
        settings, N, epochs = 6, 8, 20
    dice = random.Random(0)

    def weight(low: float, high: float) -> float:
        return 0.0 if dice.random() < 0.25 else low * (high / low) ** dice.random()

    drawn = [{name: weight(*span) for name, span in SPANS.items()} for _ in range(settings)]
    held_out = sorted({look for looks in LOOKS.values() for look in looks} | {("", seed) for seed in TRUE_SEEDS})
    runs = {
        (i, part, seed): dataclasses.replace(made(TASK, N, epochs, holdout=region + part, **weights), seed=seed)
        for i, weights in enumerate(drawn)
        for part, seed in held_out
    }
    row = train("validation", list(runs.values()), store, workers)
    errors = {at: np.log(row(spec)["ood_mse"] or np.nan) for at, spec in runs.items()}

    def means(looks: Sequence[tuple[str, int]]) -> np.ndarray:
        return np.array([np.mean([errors[i, *look] for look in looks]) for i in range(settings)])

    truth = means([("", seed) for seed in TRUE_SEEDS])
    print(f"\nN = {N}, {region}, {epochs} epochs, {settings} settings\n")
    print("| looked at | rank correlation with the error in the box | 95 % interval | error in the box of the best by it |")
    print("|---|---:|---:|---:|")
    for name, looks in LOOKS.items():
        found = means(looks)
        value, low, high = correlation(found, truth)
        print(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} | {np.exp(truth[found.argmin()]):.1e} |")
    value, low, high = correlation(means([("", 0)]), means([("", seed) for seed in TRUE_SEEDS[1:]]))
    print(f"| the box, one seed against two others | {value:.3f} | {low:.3f} to {high:.3f} | {np.exp(truth.min()):.1e} |")


if __name__ == "__main__":
    typer.run(main)
