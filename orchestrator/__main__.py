"""All commands under one: `sweep scaling --N 16..64`, or `python -m orchestrator scaling --N 16..64`."""

from __future__ import annotations

import inspect
import shlex
import sys
from typing import Annotated

import typer

from orchestrator import (
    conditioning,
    encodings,
    geometry,
    jepa,
    objectives,
    regularization,
    rotation,
    scaling,
    signal,
    tune,
    tuning,
)
from orchestrator.command.cli import App, program, run
from orchestrator.launch import PROJECT, version_of

STUDIES = {
    study.NAME: study
    for study in (scaling, tune, regularization, encodings, geometry, tuning, rotation, objectives, conditioning, jepa, signal)
}
"""Every study by its name, which is that of its module and of its command."""
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = App(
    no_args_is_help=True, help="Answers questions that take thousands of small trainings. Every command has a --help."
)


def _add(name: str) -> None:
    """The command of a study, whose options may depend on its words."""
    study = STUDIES[name]
    (registered,) = study.app.registered_commands
    line = (inspect.getdoc(registered.callback) or "").partition("\n")[0]

    @app.command(name, context_settings=_PASSED_ON, help=line)
    def command(context: typer.Context) -> int:
        return run(study.app, context.args, context.command_path)


for name in STUDIES:
    _add(name)


@app.command("again", context_settings=_PASSED_ON)
def again(context: typer.Context) -> int:
    """Train one run of a store once more: does it end as the store says?"""
    from orchestrator.again import app

    return run(app, context.args, context.command_path)


@app.command("measure", context_settings=_PASSED_ON)
def measure(context: typer.Context) -> int:
    """Measure every trained network in a store."""
    from analysis.measure import app

    return run(app, context.args, context.command_path)


@app.command("merge", context_settings=_PASSED_ON)
def merge(context: typer.Context) -> int:
    """Add the rows of a copy of a store to the store."""
    from orchestrator.merge import app

    return run(app, context.args, context.command_path)


@app.command("report", context_settings=_PASSED_ON)
def report(context: typer.Context) -> int:
    """Write a page of every study in a store: its answer, its runs, and the claims of the papers."""
    from analysis.report.__main__ import app

    return run(app, context.args, context.command_path)


@app.command("export", context_settings=_PASSED_ON)
def export(context: typer.Context) -> int:
    """Write the runs of a store for TensorBoard, or as one CSV file."""
    from analysis.export import app

    return run(app, context.args, context.command_path)


def _tell_version(asked: bool) -> None:
    if asked:
        print(PROJECT, version_of(PROJECT))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main() -> None:
    sys.exit(run(app, name=shlex.join(program())))


if __name__ == "__main__":
    main()
