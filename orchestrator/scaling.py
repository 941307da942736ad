"""The scaling study: how many training images a decoder needs, as the grid grows, before it composes.

    python -m orchestrator.scaling --N 16..64

For every grid size, data set and seed a threshold search finds the least number of images with which the decoder reaches
the target accuracy on coordinates it never saw; a power law is fitted through the thresholds. The same is asked of other
settings, and along others than the grid size:

    python -m orchestrator.scaling --least width --between 4..256 --data-count 120 --N 12,16,20 --decoder mlp --datasets bumps
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.command import axes as read
from orchestrator.command import options as opt
from orchestrator.command.cli import checked, main_of, one_of
from orchestrator.command.programs import Described, check_no_program, precision_of_program
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.subject import given, own_task, task_app
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches.audits import STOPS
from orchestrator.searches.axes import BUMPS
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.narrowing import MOST_SEEDS
from orchestrator.study import bracket_of
from orchestrator.thresholds import ThresholdStudy
from trainables.check import check_task
from trainables.program import COUNTS, ProgramTask
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import check_asked, settings_class, settings_of, spec_fields, value_of
from trainables.spec import RunSpec
from trainables.task import Task

NAME = "scaling"
VARIED = ("dataset", "N", "data_count", "seed", "holdout")
"""Fields of a spec in which the runs of one study differ."""
TITLED = ("decoder", "encoding")
"""What the title of the figure says of all runs."""


def scaling(
    N: opt.Sizes = "16..64",
    datasets: opt.Datasets = None,
    target: opt.Target = 0.9,
    seeds: opt.Seeds = 3,
    least: opt.Least = "data_count",
    along: opt.Along = "N",
    between: opt.Span = None,
    data_count: opt.FixedCount = None,
    resolution: opt.Resolution = 0.05,
    until_width: opt.UntilWidth = None,
    speculate: opt.Speculate = True,
    stop: opt.Stop = "auto",
    task: opt.TaskPath = BUMPS,
    subject: Any = None,
    option: opt.TaskOption = None,
    program: opt.Program = None,
    program_settings: opt.ProgramSettings = None,
    vary: opt.Vary = None,
    counts: opt.DataCounts = None,
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
    store: the same command continues after any interruption and trains nothing twice. With more seeds or larger sizes it
    trains only the new ones. A new size below or between the old ones makes the larger sizes train further runs, too: nearly
    half as many as they had if it is the smallest one, and fewer near the top. The least of another number can be asked
    (`--least`), and along another setting (`--along`).

    **Examples**

    `python -m orchestrator.scaling --N 16,24 --decoder mlp`  # two sizes, a minute

    `python -m orchestrator.scaling --N 16..64`  # the whole study

    `python -m orchestrator.scaling --N 16..64 --dry-run`  # what would be done, and how long it may take

    `python -m orchestrator.scaling --N 16..64 --address auto`  # the same on the Ray cluster this machine belongs to

    `python -m orchestrator.scaling --least width --between 4..256 --data-count 120 --N 12,16,20 --decoder mlp --datasets bumps`
    \\# the least width

    `python -m orchestrator.scaling --along width=32,64,128 --N 24`  # the least number of images as the width grows

    `python -m orchestrator.scaling --program "python train.py {data_count} {N} {seed}" --counts 10..1200 --N 8,16`  # a script
    of your own, which prints its accuracy

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    one_of("--stop", stop, STOPS)
    trained: dict[str, Any] = {"max_steps": max_steps, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay}
    trained["target"] = target
    usual = {name: parameter.default for name, parameter in inspect.signature(scaling).parameters.items()}
    chosen = [name for name, value in trained.items() if value != usual[name]]
    described = None
    if program is not None:
        described = Described.of(program, program_settings, vary or (), counts, least, along, between, data_count)
        task = PROGRAM_TASK
    else:
        check_no_program(program_settings, vary, counts)
    task_: Task = own_task(task) if described is None else described.task()
    asked = read.read_axes(task_, least, along, between, N, usual["N"])
    if described is not None:
        named = [*(name for name in chosen if name != "target"), *(name for name in asked.taken if name in trained)]
        named += ["save_weights"] * where.save_weights
        assert isinstance(task_, ProgramTask)
        described.check_named(task_, len(asked.sizes), seeds, named)
        precision, stop = precision_of_program(precision), "budget"  # none is ever given up
    settings_given = given(task_, subject, option)
    read.check_free(asked, [*settings_given, *chosen])
    read.check_precision(asked, resolution, until_width, seeds)
    if "dataset" in settings_given:
        raise UserError("--option dataset has an option of its own: use --datasets, for example --datasets A,B")
    known = settings_of(settings_class(task_))
    words = (known["dataset"].words if "dataset" in known else ()) or (spec_fields(task_, {})["dataset"],)
    takes_any = "dataset" in known and not known["dataset"].words
    picked = list(dict.fromkeys(words if datasets is None else (d.strip() for d in datasets.split(","))))
    if datasets is not None and takes_any and "" in picked:
        raise UserError(f"--datasets {datasets!r} lacks a name: write names with commas between them, as --datasets A,B")
    most = seeds if until_width is None else max(seeds, MOST_SEEDS)
    if (thresholds := len(picked) * len(asked.values) * most) > MOST_PLANNED:
        raise UserError(f"{thresholds} thresholds are too many (at most {MOST_PLANNED}): ask for fewer sizes or --seeds")
    brackets: list[Bracket] = []
    for dataset in picked:
        if not takes_any:
            one_of("--datasets", dataset, words)
        for place, along_it in enumerate(asked.values):
            of_task = settings_given | ({"dataset": dataset} if "dataset" in known else {})
            of_run = trained | {"N": asked.sizes[0], "data_count": read.fixed_count(asked, data_count, task_)}
            first = asked.first(along_it)
            for name, value in first.items():
                (of_task if name in known else of_run)[name] = value
            fields = checked(spec_fields, task_, of_task)
            if least in known and asked.between is not None:
                checked(read.check_alone, task_, asked, of_task, asked.between.high)
            decoder = fields["decoder"]
            on_gpu = where.on_gpu(task_, decoder)
            of_run["precision"] = opt.resolve_precision(precision, decoder, on_gpu)
            spec = checked(RunSpec, task=task, seed=0, **fields, **of_run)
            checked(check_asked, task_, spec, {name: of_task[name] for name in ("dataset", *first) if name in of_task})
            if program is None and (place == 0 or not asked.axes.is_usual):
                checked(check_task, task_, spec, where.save_weights)
            for seed in range(seeds):
                template = dataclasses.replace(spec, seed=seed)
                if isinstance(task_, ProgramTask):
                    template = checked(task_.describe, template)
                brackets.append(checked(bracket_of, task_, template, asked.axes, asked.between))
                if until_width is not None and brackets[-1].counts != brackets[-1 - seed].counts:
                    differ = f"other data counts with seed {seed} than with seed 0 at {asked.axes.along} = {along_it}"
                    hint = "omit --until-width, and give more --seeds"
                    raise UserError(f"--until-width adds seeds, and the task allows {differ}: {hint}")
                asked.check_runs(brackets, thresholds, resolution)
                if seed == 0:
                    asked.check_values(task_, brackets[-1], resolution, of_task)
    settings = _settings(brackets, asked, seeds, resolution, stop, task_, where)
    settings |= {} if until_width is None else {"until_width": until_width}
    return launch(ThresholdStudy(task_, brackets, resolution, settings, speculate, stop, until_width), where)


def _settings(
    brackets: Sequence[Bracket], asked: read.Asked, seeds: int, resolution: float, stop: str, task: Task, where: LaunchOptions
) -> dict[str, Any]:
    """What the answer says of how it was found."""
    varied = {*VARIED, *asked.taken} - ({"N", "data_count"} - {*asked.taken})
    places = brackets[::seeds]  # seeds differ in nothing that is told
    fields, options = places[0].template.to_dict(), dict.fromkeys(name for b in places for name, _ in b.template.options)
    settings = {
        **_of_all(places, [name for name in fields if name not in {*varied, "options"}]),
        "options": _of_all(places, [name for name in options if name not in varied]),
        **_of_each(places, "holdout", ("dataset", asked.axes.along)),
        **asked.settings,
        "seeds": seeds,
        "resolution": resolution,
        "stop": stop,
        **where.origin(NAME, task.version),
    }
    if isinstance(task, ProgramTask):
        ranges = dict.fromkeys(str(bracket.template.option(COUNTS)) for bracket in brackets)
        settings["options"] |= {COUNTS: ", ".join(ranges)}
    return settings


def _of_all(brackets: Sequence[Bracket], names: Iterable[str]) -> dict[str, Any]:
    """What all runs have of these fields and settings. What differs is told for each value along, or for each data set, if
    these say what it is, and else left out; so is the network that a title names, as it is one."""
    found: dict[str, Any] = {}
    for name in names:
        first = value_of(brackets[0].template, name)
        if all(value_of(b.template, name) == first for b in brackets):
            found[name] = first
        elif name not in TITLED:
            found |= _of_each(brackets, name, (brackets[0].axes.along, "dataset"))
    return found


def _of_each(brackets: Sequence[Bracket], name: str, places: Iterable[str]) -> dict[str, Any]:
    """The values of a field or setting by those of the first of the places that says what it is; nothing if none does."""
    for place in places:
        pairs = dict.fromkeys((str(value_of(b.template, place)), value_of(b.template, name)) for b in brackets)
        if len(found := dict(pairs.keys())) == len(pairs):
            return {name: found}
    return {}


app = task_app(scaling, BUMPS, "dataset")
main = main_of(app, "python -m orchestrator.scaling")

if __name__ == "__main__":
    main()
