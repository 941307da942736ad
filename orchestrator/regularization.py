"""The regularization study: which weights of two penalties make a decoder compose what it has only seen apart.

    python -m orchestrator.regularization

Optuna tunes the weights on a validation set cut out of the training coordinates; the chosen ones, and four settings to
compare with, are then trained over several seeds and judged on the held-out box that the search never sees.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from orchestrator import options as opt
from orchestrator.cli import checked, grouped, invocation, main_of, new_app, one_of
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.options import steps_of, task_options
from orchestrator.regularization_study import NAME, RegularizationStudy, TuneAndConfirm, with_options
from orchestrator.searches.optuna import OBJECTIVES, PRUNERS, SAMPLERS, OptunaSearch
from orchestrator.spec import LIMITS, MOST_PLANNED, SCHEDULES, RunSpec, Scalar, parse_range
from trainables.task import load_task

TASK = "trainables.regularization:RegularizationTask"
PUBLISHED = {"lambda_entropy": 0.1, "lambda_variance": 0.01}
"""The authors' weights (paper section 4.1)."""
ABLATION = {
    "none": {"lambda_entropy": 0.0, "lambda_variance": 0.0},
    "entropy": {**PUBLISHED, "lambda_variance": 0.0},
    "variance": {**PUBLISHED, "lambda_entropy": 0.0},
    "both": PUBLISHED,
}

app = new_app()


@app.command()
@grouped
def regularization(
    N: Annotated[int, opt.asked("--N", min=8, max=256, help="Grid size: images are N x N pixels.")] = 32,
    region: Annotated[str, opt.asked(help="The held-out box: `corner` or `center`.")] = "corner",
    trials: Annotated[int, opt.asked(min=1, max=MOST_PLANNED, help="Number of trials of the search.")] = 60,
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Seeds per final setting.")] = 5,
    lambda_entropy: Annotated[str, opt.asked(help="Weight of the entropy penalty: LOW..HIGH, or one number.")] = "0.001..1",
    lambda_variance: Annotated[
        str, opt.asked(help="Weight of the variance penalty: LOW..HIGH, or one number.")
    ] = "0.0001..0.1",
    ablation: Annotated[
        bool, opt.asked(help="Also train four settings to compare: no penalty, each alone, both, with published weights.")
    ] = True,
    objectives: Annotated[
        str, opt.asked(help="What to minimise: `validation`, or `id,validation` for the Pareto front of both.")
    ] = "validation",
    sampler: Annotated[str, opt.searched(help="How Optuna chooses weights: `tpe`, `nsga2`, `random` or `grid`.")] = "tpe",
    pruner: Annotated[
        str | None,
        opt.searched(
            help="Ends hopeless trials: `median`, `percentile` or `none`.", show_default="median; none for two objectives"
        ),
    ] = None,
    search_seed: Annotated[
        int, opt.searched(min=0, max=LIMITS["seed"][1], help="Seed of the sampler and of the trainings of the trials.")
    ] = 0,
    export_optuna: Annotated[
        Path | None, opt.searched(help="Write the trials to this new SQLite file; `optuna-dashboard sqlite:///FILE` shows it.")
    ] = None,
    sigma: Annotated[float, opt.subject(help="Width of a bump in pixels.")] = 1.5,
    rank: Annotated[int | None, opt.subject(min=1, help="Most modes of a token's matrix.", show_default="N")] = None,
    channels: Annotated[int, opt.subject(min=1, max=LIMITS["width"][1], help="Channels of a hidden layer.")] = 2,
    init: Annotated[str, opt.subject(help="Initial values: `published`, or `positive`, which is our own.")] = "published",
    depth: Annotated[int, opt.subject(min=0, max=LIMITS["depth"][1], help="Hidden layers.")] = 2,
    tolerance: Annotated[int, opt.subject(min=0, help="Pixels by which a peak may miss its place.")] = 1,
    option: opt.TaskOption = None,
    epochs: Annotated[int, opt.trained(min=1, help="Passes over the training set.")] = 400,
    schedule: Annotated[str, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.")] = "cosine",
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 1e-4,
    *,
    where: LaunchOptions,
) -> int:
    """Which penalty weights make a low-rank decoder draw bumps at combinations of x and y that it has never seen?

    Tunes the weights of the entropy and the variance penalty on a validation set cut out of the training coordinates. The
    chosen weights, and four settings for comparison (no penalty, each alone, both, with the published weights), are then
    trained on all training coordinates, over several seeds, and judged on the held-out box, which no trial ever sees.
    Finished runs are kept in the store: the same command continues after any interruption.

    **Examples**

    `python -m orchestrator.regularization --N 8 --trials 16 --epochs 150 --lr 0.01`   a small one, two minutes

    `python -m orchestrator.regularization`   the whole study

    `python -m orchestrator.regularization --objectives id,validation --sampler nsga2`   the Pareto front of both errors

    `python -m orchestrator.regularization --export-optuna study.db`   for optuna-dashboard

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer, nothing
    learned); 2 a mistake in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    one_of("--sampler", sampler, SAMPLERS)
    one_of("--objectives", objectives, tuple(OBJECTIVES))
    if pruner is None:
        pruner = "median" if len(OBJECTIVES[objectives]) == 1 else "none"
    one_of("--pruner", pruner, PRUNERS)
    ranges = {}
    for name, text in (("lambda_entropy", lambda_entropy), ("lambda_variance", lambda_variance)):
        try:
            ranges[name] = parse_range(text)
        except ValueError as error:
            raise UserError(f"--{name.replace('_', '-')} {error}") from None
    if export_optuna is not None and (export_optuna.exists() or not export_optuna.parent.is_dir()):
        why = "exists" if export_optuna.exists() else "is in a folder that does not exist"
        raise UserError(f"--export-optuna {str(export_optuna)!r} {why}: give the name of a new file")
    if rank is not None and rank > N:
        raise UserError(f"--rank must lie in 1..{N}, the grid size, not {rank}")
    task = load_task(TASK)
    fixed = {name: low for name, (low, high) in ranges.items() if low == high}
    given: dict[str, Scalar] = {"sigma": sigma, "tolerance": tolerance, "rank": rank or 0, "init": init, **fixed}
    region = one_of("--region", region, ("corner", "center"))

    def template(holdout: str, seed: int) -> RunSpec:
        spec = checked(
            RunSpec,
            task=TASK,
            dataset="bumps",
            N=N,
            data_count=0,
            seed=seed,
            decoder="low-rank",
            depth=depth,
            width=channels,
            encoding="one-hot",
            holdout=holdout,
            options=task_options(task, given, option or []),
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            stop="budget",
            schedule=one_of("--schedule", schedule, SCHEDULES),
        )
        count = checked(task.counts, spec).low
        return checked(dataclasses.replace, spec, data_count=count, max_steps=steps_of(epochs, count, batch_size))

    finals = [template(region, seed) for seed in range(seeds)]
    space = {name: bounds for name, bounds in ranges.items() if name not in fixed}
    tuning = checked(
        OptunaSearch,
        template(f"{region}-validation", search_seed),
        task.version,
        space,
        trials,
        sampler=sampler,
        pruner=pruner,
        objectives=objectives,
        seed=search_seed,
    )
    compared = ABLATION if ablation else {}
    known = {setting: [with_options(spec, weights) for spec in finals] for setting, weights in compared.items()}
    settings = {
        **{"N": N, "region": region, "sigma": sigma, "rank": rank or N, "channels": channels, "depth": depth, "init": init},
        **{"tolerance": tolerance, "epochs": epochs, "schedule": schedule, "batch_size": batch_size, "lr": lr},
        **{"weight_decay": weight_decay, "trials": trials, "sampler": sampler, "pruner": pruner, "objectives": objectives},
        **{"search_seed": search_seed, "seeds": seeds, "space": {name: list(bounds) for name, bounds in ranges.items()}},
        **{"task_version": task.version, "store": where.store, "out": where.folder(NAME), "versions": versions()},
    }
    study = RegularizationStudy(task, TuneAndConfirm(tuning, known, finals), settings, export_optuna)
    return launch(study, where, invocation())


main = main_of(app, "python -m orchestrator.regularization")

if __name__ == "__main__":
    main()
