"""All commands under one: `sweep scaling --N 16..64`, or `python -m orchestrator scaling --N 16..64`."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from orchestrator import encodings, geometry, regularization, rotation, scaling, tuning
from orchestrator.command.cli import new_app, program, run
from orchestrator.launch import PROJECT, version_of

STUDIES = {study.NAME: study for study in (scaling, regularization, encodings, geometry, tuning, rotation)}
"""Every study by its name, which is that of its module and of its command."""
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = new_app(
    no_args_is_help=True, help="Answers questions that take thousands of small trainings. Every command has a --help."
)
for name, study in STUDIES.items():
    app.command(name)(getattr(study, name))


@app.command("measure", context_settings=_PASSED_ON)
def measure(context: typer.Context) -> int:
    """Measure every trained decoder in a store."""
    from analysis.measure import app

    return run(app, context.args, context.command_path)


@app.command("report", context_settings=_PASSED_ON)
def report(context: typer.Context) -> int:
    """Write a page that says which claims of the paper the runs in a store reproduce."""
    from analysis.report.__main__ import app

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
