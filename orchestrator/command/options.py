"""Command-line options that studies share, as annotated types, each with its help text."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.command.cli import one_of
from orchestrator.errors import UserError
from trainables.spec import LIMITS, PRECISIONS

asked = partial(typer.Option, rich_help_panel="What is asked")
searched = partial(typer.Option, rich_help_panel="How it is searched")
subject = partial(typer.Option, rich_help_panel="What is trained")
trained = partial(typer.Option, rich_help_panel="How it is trained")
placed = partial(typer.Option, rich_help_panel="Where and how to run")

Sizes = Annotated[str, asked("--N", help="Grid sizes: 16..64 (every 8th), 16..64:16, or 16,24,48. For bumps from 8 to 1024.")]
Datasets = Annotated[str | None, asked(help="Comma-separated: `bumps`, `stripes+bumps`.", show_default="all")]
Target = Annotated[float, asked(help="Accuracy to reach on what is held out, in (0, 1].")]
Seeds = Annotated[int, asked(min=1, help="Seeds per grid size.")]
Resolution = Annotated[float, asked(help="Relative precision of a threshold, in (0, 1).")]
UntilWidth = Annotated[
    float | None,
    asked(
        help="Go on with more seeds, where they help most, until the 95 % interval of every exponent is this narrow, for "
        "example 0.2. Needs three `--seeds`, with which it begins.",
        show_default="none",
    ),
]
Speculate = Annotated[bool, asked(help="Idle workers train what the search may ask next: same answer, sooner, with more runs.")]

Stop = Annotated[
    str,
    searched(
        help="How a run that does not pass ends. `budget`: after all its steps. `early`: when the stopping rule considers it "
        "hopeless. `auto`: like `early`, but the runs that the answer rests on are trained to the end as a check, and one "
        "mistake switches the rule off."
    ),
]

TaskPath = Annotated[str, subject("--task", help="The task, `module:Class`; this can be your own.")]
Program = Annotated[
    str | None,
    subject(
        "--program",
        help="In place of a task: the command of a program, in any language. `{data_count}`, `{N}`, `{seed}` or the name of "
        "a setting in braces stand for the values of the run. It prints its accuracy, a number from 0 to 1. It is not given to "
        "a shell.",
        show_default="none",
    ),
]
ProgramSettings = Annotated[
    Path | None,
    subject("--program-settings", help="A TOML file: settings, data counts and files of the program.", show_default="none"),
]
Vary = Annotated[
    list[str] | None,
    subject("--vary", help="A setting of the program and its value, NAME=VALUE; repeatable.", show_default="none"),
]
DataCounts = Annotated[
    str | None, subject("--counts", help="The data counts that the program may be asked for, LOW..HIGH.", show_default="none")
]
Least = Annotated[
    str,
    asked(
        help="The setting whose least value is searched: `data_count`, `max_steps`, `width`, or another number among the "
        "settings. A larger value must not make a run worse."
    ),
]
Along = Annotated[
    str,
    asked(
        help="Repeat the search for each of these values of another setting: `N` (those of `--N`), `width=32,64,128`, "
        "`depth=2..6:2`; also words, `encoding=bump,ramp`.",
        show_default="the values of --N",
    ),
]
Span = Annotated[
    str | None,
    asked(
        "--between",
        help="The range in which the least value is searched, LOW..HIGH.",
        show_default="what the setting or the task allows",
    ),
]
FixedCount = Annotated[
    int | None,
    asked(
        "--data-count", min=0, max=LIMITS["data_count"][1], show_default="none",
        help="Training samples of every run, if `--least` names another setting.",
    ),
]
TaskPaths = Annotated[
    list[str] | None,
    typer.Option("--task", help="A task of your own, `module:Class`, to load for the runs that use it; repeatable."),
]
Width = Annotated[
    int | None,
    subject(min=1, max=LIMITS["width"][1], help="Channels or units per hidden layer.", show_default="cnn 64, mlp 256"),
]
Sigma = Annotated[float | None, subject(help="Width of a bump in pixels.", show_default="1")]
Absent = Annotated[
    str | None, subject(help="Code of the coordinate that a stripe leaves out: `zero` or `minus-one`.", show_default="zero")
]
Tolerance = Annotated[int | None, subject(min=0, help="Pixels by which a peak may miss its place.", show_default="1")]
TaskOption = Annotated[list[str] | None, subject("--option", help="Another option of the task, NAME=VALUE; repeatable.")]

MaxSteps = Annotated[int, trained(min=1, max=LIMITS["max_steps"][1], help="Most optimizer steps of a run.")]
BatchSize = Annotated[int, trained(min=1, max=LIMITS["batch_size"][1], help="Training samples per step.")]
LearningRate = Annotated[float, trained("--lr", help="Learning rate of AdamW, above 0.")]
WeightDecay = Annotated[float, trained(min=0, help="Weight decay of AdamW.")]
Precision = Annotated[str, trained(help="`auto` (the fastest on this machine), `float32`, `bfloat16`, or `tf32` (GPUs only).")]

Store = Annotated[str, placed(help="Folder for the results, shared by all studies; or `s3://bucket/folder`, `gs://...`.")]
Out = Annotated[Path | None, placed(help="Folder for the tables and figures.", show_default="STORE/STUDY")]
Address = Annotated[str, placed(help="`local` starts Ray on this machine; `auto` or `host:port` joins a cluster.")]
Workers = Annotated[
    int | None,
    placed(min=1, max=4096, help="Parallel workers; set this on autoscaling clusters.", show_default="what fits at the start"),
]
GpusPerRun = Annotated[float, placed(min=0, help="GPUs per worker; with a fraction, workers share a GPU.")]
PackSize = Annotated[
    int | None,
    placed(min=1, help="Runs of the same shapes that a worker trains together in one program.", show_default="measured"),
]
CpuWorkers = Annotated[
    int, placed(min=0, max=4096, help="Additional workers without a GPU, for decoders that need none (`mlp`).")
]
Price = Annotated[float | None, placed(min=0, help="Cost of one worker-hour, in any currency.", show_default="none")]
MaxCost = Annotated[float | None, placed(min=0, help="Start no new run once the workers have cost this much; needs `--price`.")]
StallMinutes = Annotated[
    float,
    placed(
        min=0.05,
        max=1_000_000,
        help="A run that makes no progress for this long is tried once more, and then counts as failed. If a local Ray starts "
        "no worker for this long, the launch ends.",
    ),
]
DryRun = Annotated[bool, placed("--dry-run", help="Show the plan and the expected time; train nothing.")]
MaxHours = Annotated[float | None, placed(min=0, help="Start no new run after this many hours.")]
OnError = Annotated[str, placed(help="What to do when a run fails: `continue` or `stop`.")]
RetryFailed = Annotated[
    bool,
    placed("--retry-failed", help="Train failed runs again, once their cause, such as a missing file, is removed."),
]
Gates = Annotated[
    bool,
    placed(help="Train a run only if the runs that it needs reached their targets; with `--no-gates`, in any case."),
]
NoGates = Annotated[bool, placed(help="Always `--no-gates`: the answer says which needed run missed its target.")]
SaveWeights = Annotated[
    bool,
    placed("--save-weights", help="Keep the weights of all runs in STORE/weights; train finished runs without weights again."),
]
Json = Annotated[bool, placed("--json", help="Print the answer as JSON on stdout, and everything else on stderr.")]
Verbose = Annotated[bool, placed("--verbose", help="Show Ray's own messages.")]


def resolve_precision(word: str, decoder: str, gpu: bool) -> str:
    """The precision a run is recorded with: the one asked for, or for `auto` the fastest of this machine."""
    if one_of("--precision", word, ("auto", *PRECISIONS)) == "tf32" and not gpu:
        raise UserError("--precision tf32 needs a GPU: add --gpus-per-run 1, or choose auto, float32 or bfloat16")
    if word != "auto":
        return word
    from trainables.training.precision import fastest_precision

    return fastest_precision(decoder, "cuda" if gpu else "cpu")


def steps_of(epochs: int, count: int, batch_size: int) -> int:
    """Steps of so many epochs of `count` images.

    Raises:
        UserError: more than a run may have.
    """
    of_epoch = math.ceil(count / batch_size)
    if epochs > (most := LIMITS["max_steps"][1] // of_epoch):
        raise UserError(f"--epochs {epochs} is too many, at {of_epoch} steps each: give at most {most}")
    return epochs * of_epoch
