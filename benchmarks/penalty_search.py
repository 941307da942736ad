"""How good the weights are that each way of searching finds, for the same number of training steps.

    python -m benchmarks.penalty_search            N = 16, 150 epochs, five repeats, two at a time
    python -m benchmarks.penalty_search --quick    N = 8, 100 epochs, two repeats

Every way has the steps that a 6 x 6 grid takes. A repeat is a seed, of the sampler and of all its trainings; the ways share
it. Prints a table: best validation error reached at half of the steps and at all, over the repeats.
"""

import dataclasses
import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer

from orchestrator.engine.execution import pruned_result
from orchestrator.regularization import TASK
from orchestrator.searches import Curve, Rows
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import log_range
from orchestrator.store import make_row
from trainables.regularization import RegularizationTask
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.precision import quiet_cpu
from trainables.training.result import CURVES

SPACE = [log_range("lambda_entropy", 1e-3, 1.0), log_range("lambda_variance", 1e-4, 0.1)]
WAYS = [("grid", "none"), ("random", "none"), ("tpe", "none"), ("tpe", "median")]
GRID = 36


def template(N: int, epochs: int, seed: int) -> RunSpec:
    task = RegularizationTask()
    spec = RunSpec(
        task=TASK, dataset="bumps", N=N, data_count=0, seed=seed, decoder="low-rank", depth=2, width=2, encoding="one-hot",
        holdout="corner-validation", options=tuple(task.defaults.items()), lr=0.01, weight_decay=1e-4,
        stop="budget", schedule="cosine",
    )  # fmt: skip
    count = task.counts(spec).low
    return dataclasses.replace(spec, data_count=count, max_steps=epochs * math.ceil(count / spec.batch_size))


def search(job: tuple[str, str, int, int, int]) -> tuple[int, float, float]:
    """Trials made, and the best validation error after half of the steps and after all."""
    sampler, pruner, N, epochs, seed = job
    quiet_cpu()
    task = RegularizationTask()
    spec = template(N, epochs, seed)
    budget = GRID * spec.max_steps
    found = OptunaSearch(spec, task.version, SPACE, 1000 if sampler != "grid" else GRID, sampler, pruner, seed=seed)
    rows, steps, halfway = Rows(), 0, math.inf
    while steps < budget and (specs := found.propose(rows, 1)):
        row = train(found, rows, task, specs[0])
        if steps + row["steps"] > budget:
            break
        steps += row["steps"]
        rows.add(row)
        best = found.best(rows)
        if best is not None and steps <= budget / 2:
            halfway = best.row["ood_mse"]
    best = found.best(rows)
    assert best is not None
    return len(rows), halfway, best.row["ood_mse"]


def train(found: OptunaSearch, rows: Rows, task: RegularizationTask, spec: RunSpec) -> dict:
    training = Training(spec, task)
    finished = False
    while not finished:
        finished = training.advance(0.05)
        at = found.pruned_at(rows, spec, Curve(training.curve_step, training.curve_error))
        if at is not None:
            result = pruned_result({name: getattr(training, name) for name in CURVES}, at)
            return make_row(spec, task_version=task.version, fixed_count=0, **result)
    return make_row(spec, task_version=task.version, fixed_count=0, **dataclasses.asdict(training.result()))


def main(
    N: Annotated[int, typer.Option("--N")] = 16,
    epochs: int = 150,
    repeats: int = 5,
    processes: int = 2,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid, two repeats.")] = False,
) -> None:
    """Print the table."""
    if quick:
        N, epochs, repeats = 8, 100, 2
    jobs = [(sampler, pruner, N, epochs, seed) for seed in range(repeats) for sampler, pruner in WAYS]
    with ProcessPoolExecutor(processes) as pool:
        results = dict(zip(jobs, pool.map(search, jobs), strict=True))
    grid = [results["grid", "none", N, epochs, seed][2] for seed in range(repeats)]
    print(f"N = {N}, {epochs} epochs, {GRID} x {template(N, epochs, 0).max_steps} steps for every way, {repeats} repeats")
    print()
    print("| sampler | pruner | trials | best validation MSE at half | at the end, each repeat | median | better than grid |")
    print("|---|---|---:|---:|---|---:|---:|")
    for sampler, pruner in WAYS:
        found = [results[sampler, pruner, N, epochs, seed] for seed in range(repeats)]
        trials = statistics.fmean(r[0] for r in found)
        half = statistics.median(r[1] for r in found)
        each = ", ".join(f"{r[2]:.2e}" for r in found)
        wins = f"{sum(r[2] < g for r, g in zip(found, grid, strict=True))} of {repeats}" if sampler != "grid" else ""
        median = statistics.median(r[2] for r in found)
        print(f"| {sampler} | {pruner} | {trials:.0f} | {half:.2e} | {each} | {median:.2e} | {wins} |")


if __name__ == "__main__":
    typer.run(main)
