"""The scaling study: how many training images a decoder needs, as the grid grows, before it composes.

    python -m orchestrator.scaling --N 16..64

For every grid size, data set and seed a threshold search finds the least number of images with which the decoder reaches
the target accuracy on coordinates it never saw; a power law is fitted through the thresholds.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

from orchestrator import options as opt
from orchestrator.cli import checked, grouped, invocation, main_of, new_app, one_of
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch, versions
from orchestrator.options import task_options
from orchestrator.scaling_study import NAME, ScalingStudy
from orchestrator.searches.audits import STOPS
from orchestrator.searches.bracket import Bracket
from orchestrator.spec import LARGEST, MOST_PLANNED, RunSpec, parse_grid
from trainables.check import check_task, check_words, counts_of
from trainables.task import load_task

VARIED = ("dataset", "N", "data_count", "seed", "holdout")
"""Fields of a spec in which the runs of one study differ."""

app = new_app()


@app.command()
@grouped
def scaling(
    N: opt.Sizes = "16..64",
    datasets: opt.Datasets = None,
    target: opt.Target = 0.9,
    seeds: opt.Seeds = 3,
    resolution: Annotated[float, opt.asked(help="Relative precision of a threshold, in (0, 1).")] = 0.05,
    speculate: Annotated[
        bool, opt.asked(help="Idle workers train what the search may ask next: same answer, sooner, with more runs.")
    ] = True,
    stop: opt.Stop = "auto",
    task: opt.TaskPath = "trainables.bumps:BumpTask",
    decoder: opt.Decoder = None,
    depth: opt.Depth = None,
    width: opt.Width = None,
    encoding: opt.Encoding = None,
    holdout: opt.Holdout = None,
    centres: opt.Centres = None,
    sigma: opt.Sigma = None,
    absent: opt.Absent = None,
    tolerance: opt.Tolerance = None,
    option: opt.TaskOption = None,
    max_steps: opt.MaxSteps = 2000,
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 0.01,
    precision: opt.Precision = "auto",
    *,
    where: LaunchOptions,
) -> int:
    """How many training images does a decoder need before it composes, and how does that grow with the grid?

    For every grid size, data set and seed, finds the least number of images with which the decoder reaches the target
    accuracy on coordinates it never saw, fits a power law, and draws it. Hopeless runs are given up early. Those that the
    answer rests on are then trained to the end, in case their accuracy rises late (`--stop`). Finished runs are kept in the
    store: the same command continues after any interruption and trains nothing twice. With more seeds or sizes it trains
    only the new ones.

    **Examples**

    `python -m orchestrator.scaling --N 16,24 --decoder mlp`   two sizes, a minute

    `python -m orchestrator.scaling --N 16..64`   the whole study

    `python -m orchestrator.scaling --N 16..64 --dry-run`   what would be done, and how long it may take

    `python -m orchestrator.scaling --N 16..64 --address auto`   the same on the Ray cluster this machine belongs to

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130 and 143 after Ctrl-C and SIGTERM.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    one_of("--stop", stop, STOPS)
    sizes = checked(parse_grid, N, 1, LARGEST)
    task_ = checked(load_task, task)
    checked(check_words, task_)
    given = {"sigma": sigma, "centres": centres, "absent": absent, "tolerance": tolerance}
    options = task_options(task_, {k: v for k, v in given.items() if v is not None}, option or [])
    chosen = list(task_.choices["dataset"]) if datasets is None else [d.strip() for d in datasets.split(",")]
    if (asked := len(set(chosen)) * len(sizes) * seeds) > MOST_PLANNED:
        raise UserError(f"{asked} thresholds are too many (at most {MOST_PLANNED}): ask for fewer sizes or --seeds")
    known_audits = getattr(task_, "audits", lambda spec: 0)
    brackets = []
    for dataset in dict.fromkeys(chosen):
        one_of("--datasets", dataset, task_.choices["dataset"])
        word = one_of("--decoder", decoder or task_.choices["decoder"][0], task_.choices["decoder"])
        preset = task_.preset(dataset, word)
        spec = checked(
            RunSpec,
            task=task,
            dataset=dataset,
            N=sizes[0],
            data_count=0,
            seed=0,
            decoder=word,
            depth=preset["depth"] if depth is None else depth,
            width=preset["width"] if width is None else width,
            encoding=one_of("--encoding", encoding or task_.choices["encoding"][0], task_.choices["encoding"]),
            holdout=one_of("--holdout", holdout or preset["holdout"], task_.choices["holdout"]),
            options=options,
            target=target,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            max_steps=max_steps,
            precision=opt.resolve_precision(precision, word, where.on_gpu(task_, word)),
        )
        checked(check_task, task_, spec)
        for size in sizes:
            for seed in range(seeds):
                template = dataclasses.replace(spec, N=size, seed=seed)
                bracket = Bracket(
                    template=template,
                    task_version=task_.version,
                    counts=checked(counts_of, task_, template),
                    audits=known_audits(template),
                )
                brackets.append(bracket)
    if not 0 < resolution < 1:
        raise UserError(f"--resolution must lie between 0 and 1, not {resolution:g}: 0.05 means 5 %")
    settings = {
        **{k: v for k, v in brackets[0].template.to_dict().items() if k not in VARIED},
        "holdout": {b.template.dataset: b.template.holdout for b in brackets},
        "N": list(sizes),
        "seeds": seeds,
        "resolution": resolution,
        "stop": stop,
        "task_version": task_.version,
        "store": where.store,
        "out": where.folder(NAME),
        "versions": versions(),
    }
    study = ScalingStudy(task_, brackets, resolution, settings, speculate, stop)
    return launch(study, where, invocation())


main = main_of(app, "python -m orchestrator.scaling")

if __name__ == "__main__":
    main()
