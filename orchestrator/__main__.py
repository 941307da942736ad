"""All commands under one: `sweep scaling --N 16..64`, or `python -m orchestrator scaling --N 16..64`."""

from __future__ import annotations

import importlib
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
from orchestrator.versions import PROJECT, version_of

STUDIES = {
    study.NAME: study
    for study in (scaling, tune, regularization, encodings, geometry, tuning, rotation, objectives, conditioning, jepa, signal)
}
"""Every study by its name, which is that of its module and of its command."""
OTHERS = {
    "again": ("orchestrator.again", "Train one run of a store once more: does it end as the store says?"),
    "measure": ("analysis.measure", "Measure every trained network in a store."),
    "merge": ("orchestrator.merge", "Add the rows of a copy of a store to the store."),
    "report": (
        "analysis.report.__main__",
        "Write a page of every study in a store: its answer, its runs, and the claims of the papers.",
    ),
    "export": ("analysis.export", "Write the runs of a store for TensorBoard, or as one CSV file."),
}
"""The module and the line of help of every other command."""
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = App(
    no_args_is_help=True, help="Answers questions that take thousands of small trainings. Every command has a --help."
)


def _add(name: str, module: str, line: str) -> None:
    """A command, whose options may depend on its words. Its module is imported when it runs."""

    @app.command(name, context_settings=_PASSED_ON, help=line)
    def command(context: typer.Context) -> int:
        return run(importlib.import_module(module).app, context.args, context.command_path)


for name, study in STUDIES.items():
    (registered,) = study.app.registered_commands
    _add(name, study.__name__, (inspect.getdoc(registered.callback) or "").partition("\n")[0])
for name, (module, line) in OTHERS.items():
    _add(name, module, line)


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
