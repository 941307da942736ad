"""What every command does alike: parse, report a user's mistake in one line, choose the exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, get_type_hints

import typer

from orchestrator.errors import UserError
from orchestrator.scratch import remove_all

_ParseError: Any = typer.BadParameter.__mro__[2]
"""The common base of what typer's parser raises (click's ClickException, under whatever name this typer has it)."""


class Exit(IntEnum):
    """Exit codes of every study."""

    ANSWERED = 0
    NOT_ANSWERED = 1
    """Runs failed, a limit was reached, or the store could not be written."""
    USAGE = 2
    SIGINT = 130
    SIGTERM = 143


def new_app(**settings: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown", **settings)


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """A command for typer from one that takes some options as dataclasses: each of their fields becomes an option, with the
    field's annotation and default, at the place of the parameter."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not dataclasses.is_dataclass(hint):
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = hint  # type: ignore[assignment]
        of_fields = get_type_hints(hint, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=of_fields[f.name])
            for f in dataclasses.fields(hint)
        ]

    @functools.wraps(command)
    def with_groups(**given: Any) -> int:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
        return command(**given)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_groups


@contextlib.contextmanager
def ends_on_interrupt(grace: float = 10.0) -> Iterator[None]:
    """Ctrl-C ends the program within `grace` seconds, also where a library swallows the exception, or hangs over it.

    For work of which everything that is done is kept at once.
    """

    def end() -> None:
        remove_all()
        os._exit(Exit.SIGINT)

    def leave(*_: object) -> None:
        timer = threading.Timer(grace, end)
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run(app: typer.Typer, arguments: Sequence[str] | None = None, name: str | None = None) -> int:
    """Run a command line and give its exit code; a user's mistake becomes one line on stderr and exit code 2."""
    for word in sys.argv[1:] if arguments is None else arguments:
        if not _is_text(word):
            return _refuse(f"{os.fsencode(word)!r} is not UTF-8, and neither a row nor a table can hold it: use another name")
    try:
        code = typer.main.get_command(app).main(arguments, prog_name=name, standalone_mode=False)
    except _ParseError as error:
        return _refuse(error.format_message())
    except UserError as error:
        return _refuse(str(error))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return _refuse(f"{error.filename!s:.60}... is too long for the name of a file: use a shorter one")
    except (typer.Abort, KeyboardInterrupt):
        return Exit.SIGINT
    return int(code or 0)


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return Exit.USAGE


def main_of(app: typer.Typer, name: str) -> Callable[[], None]:
    """The `main` of a study module."""

    def main() -> None:
        sys.exit(run(app, name=name))

    return main


def invocation() -> list[str]:
    """The words that start this program again with the same options."""
    program = Path(sys.argv[0])
    if program.suffix != ".py":
        return [program.name, *sys.argv[1:]]
    module = f"{program.parent.name}" if program.name == "__main__.py" else f"{program.parent.name}.{program.stem}"
    return ["python", "-m", module, *sys.argv[1:]]


def checked(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`make(...)`, its ValueError turned into the user's one-line error."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise UserError(str(error)) from None


def one_of(option: str, value: str, allowed: Sequence[str]) -> str:
    """`value` if it is allowed.

    Raises:
        UserError: naming what is.
    """
    if value not in allowed:
        choice = " or ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
        raise UserError(f"{option} {value!r} is unknown: choose {choice}")
    return value


def check_folder(option: str, path: Path) -> None:
    """Refuse a path where there is no folder and none can be made.

    Raises:
        UserError: it is something else, or lies below it.
    """
    there = next(p for p in (path, *path.parents, Path()) if os.path.lexists(p))
    if not there.is_dir():
        raise UserError(f"{option} {str(path)!r} cannot be a folder, as {str(there)!r} is none: give another")
