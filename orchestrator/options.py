"""Command-line options that studies share, as annotated types, each with its help text."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import one_of
from orchestrator.errors import UserError
from orchestrator.spec import PRECISIONS, Scalar
from trainables.task import Task

asked = partial(typer.Option, rich_help_panel="What is asked")
searched = partial(typer.Option, rich_help_panel="How it is searched")
subject = partial(typer.Option, rich_help_panel="What is trained")
trained = partial(typer.Option, rich_help_panel="How it is trained")
_where = partial(typer.Option, rich_help_panel="Where and how to run")

Sizes = Annotated[str, asked("--N", help="Grid sizes: 16..64 (every 8th), 16..64:16, or 16,24,48. Of bumps, from 8 to 1024.")]
Datasets = Annotated[str | None, asked(help="Comma-separated: `bumps`, `stripes+bumps`.", show_default="all")]
Target = Annotated[float, asked(help="Accuracy to reach on held-out coordinates, in (0, 1].")]
Seeds = Annotated[int, asked(min=1, help="Seeds per grid size.")]

Stop = Annotated[
    str,
    searched(
        help="How a run ends that does not pass. `budget`: after all its steps. `early`: when the stopping rule takes it for "
        "hopeless. `auto`: as `early`, but the runs that the answer rests on are checked by training them on, and one mistake "
        "switches the rule off."
    ),
]

TaskPath = Annotated[str, subject("--task", help="The subject, `module:Class`; bring your own.")]
TaskPaths = Annotated[
    list[str] | None,
    typer.Option("--task", help="A task of your own, `module:Class`, to load for the runs that have it; repeatable."),
]
Decoder = Annotated[str | None, subject(help="`cnn` or `mlp`.", show_default="cnn")]
Depth = Annotated[int | None, subject(min=0, help="Hidden layers.", show_default="2")]
Width = Annotated[
    int | None, subject(min=1, help="Channels or units of a hidden layer.", show_default="cnn 64, mlp 256")
]
Encoding = Annotated[
    str | None, subject(help="`bump`, `one-hot`, `positional` or `ramp`.", show_default="bump")
]
Holdout = Annotated[
    str | None,
    subject(
        help="Coordinates to judge on: a `center` or `corner` box that no bump is drawn from, or, `random`, all not drawn.",
        show_default="random for bumps, center for stripes+bumps",
    ),
]
Centres = Annotated[str | None, subject(help="`integer` or `real`.", show_default="integer")]
Sigma = Annotated[float | None, subject(help="Bump width, pixels.", show_default="1")]
Absent = Annotated[
    str | None, subject(help="Code of a stripe's missing coordinate: `zero` or `minus-one`.", show_default="zero")
]
Tolerance = Annotated[int | None, subject(min=0, help="Peak right within this many pixels.", show_default="1")]
TaskOption = Annotated[
    list[str] | None, subject("--option", help="Any further option of the task, NAME=VALUE; repeatable.")
]

MaxSteps = Annotated[int, trained(min=1, help="Budget of a run, optimizer steps.")]
BatchSize = Annotated[int, trained(min=1, help="Images per step.")]
LearningRate = Annotated[float, trained("--lr", help="Learning rate of AdamW.")]
WeightDecay = Annotated[float, trained(min=0, help="Weight decay of AdamW.")]
Precision = Annotated[str, trained(help="`auto` (the fastest here), `float32`, `bfloat16`, or `tf32` (GPUs).")]

Store = Annotated[str, _where(help="Folder of the results, shared by all studies; or `s3://bucket/folder`, `gs://...`.")]
Out = Annotated[Path | None, _where(help="Folder of the tables and figures.", show_default="STORE/STUDY")]
Address = Annotated[str, _where(help="`local`: an embedded Ray; `auto` or `host:port`: a cluster.")]
Workers = Annotated[
    int | None,
    _where(min=1, max=4096, help="Packs at a time; give it on a cluster that grows.", show_default="what fits at the start"),
]
GpusPerRun = Annotated[float, _where(min=0, help="GPUs of a worker; fractions share a GPU.")]
PackSize = Annotated[
    int | None,
    _where(min=1, help="Runs of the same shapes that a worker trains in one program.", show_default="measured"),
]
CpuWorkers = Annotated[
    int, _where(min=0, max=4096, help="Workers without a GPU besides, for decoders that need none (`mlp`).")
]
Price = Annotated[float | None, _where(min=0, help="What an hour of a worker costs, in any currency.", show_default="none")]
MaxCost = Annotated[float | None, _where(min=0, help="Start no run after the workers cost this much; needs `--price`.")]
StallMinutes = Annotated[
    float,
    _where(
        min=0.05,
        help="A run that does not get on for so long is tried once more, then has failed; an embedded Ray that starts no "
        "worker for so long ends the launch.",
    ),
]
DryRun = Annotated[bool, _where("--dry-run", help="Print the plan, train nothing.")]
MaxHours = Annotated[float | None, _where(min=0, help="Start no run after this time.")]
OnError = Annotated[str, _where(help="When a run fails: `continue` or `stop`.")]
SaveWeights = Annotated[bool, _where("--save-weights", help="Keep final weights, STORE/weights/KEY.safetensors.")]
Json = Annotated[bool, _where("--json", help="The answer as JSON on stdout, all else on stderr.")]
Verbose = Annotated[bool, _where("--verbose", help="Show Ray's own messages.")]


def resolve_precision(word: str, decoder: str, gpu: bool) -> str:
    """The precision a run is recorded with: the one asked for, or for `auto` the fastest of this machine."""
    if one_of("--precision", word, ("auto", *PRECISIONS)) == "tf32" and not gpu:
        raise UserError("--precision tf32 needs a GPU: add --gpus-per-run 1, or choose auto, float32 or bfloat16")
    if word != "auto":
        return word
    from trainables.training import fastest_precision

    return fastest_precision(decoder, "cuda" if gpu else "cpu")


def task_options(task: Task, given: Mapping[str, Scalar], pairs: Sequence[str]) -> tuple[tuple[str, Scalar], ...]:
    """All options of the task: its defaults, then those given by name, then `NAME=VALUE` pairs, each of the default's type.

    Raises:
        UserError: an option the task does not have, or a value of another type.
    """
    values = dict(task.defaults)
    for pair in pairs:
        if "=" not in pair:
            names = ", ".join(task.defaults) or "none"
            raise UserError(f"--option {pair!r} has no value: write NAME=VALUE, NAME one of {names}")
    wanted: dict[str, Scalar] = {**given, **dict(pair.split("=", 1) for pair in pairs)}
    for name, value in wanted.items():
        if name not in values:
            raise UserError(f"this task has no option {name!r}: it has {', '.join(task.defaults) or 'none'}")
        kind = type(values[name])
        try:
            values[name] = _boolean(value) if kind is bool else kind(value)
        except ValueError:
            raise UserError(f"the option {name} takes a {kind.__name__}, not {value!r}") from None
    return tuple(sorted(values.items()))


def _boolean(value: Scalar) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]
