"""What every command does alike: parse, report a user's mistake in one line, choose the exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import importlib.util
import inspect
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, TextIO, cast, get_type_hints

import typer

from orchestrator.command.beginning import begun, mistake
from orchestrator.command.mistakes import Given, options_of_settings, read_words, refusal, with_options
from orchestrator.engine.scratch import remove_all
from orchestrator.engine.signals import hear
from orchestrator.errors import UserError, printable
from trainables.settings import alternatives, unsigned


class Exit(IntEnum):
    """Exit codes of every study."""

    ANSWERED = 0
    NOT_ANSWERED = 1
    """Runs failed, a limit was reached, or the store could not be written."""
    USAGE = 2
    SIGINT = 130
    SIGTERM = 143


class Terminated(BaseException):
    """SIGTERM, which ends a command as Ctrl-C does, with an exit code of its own."""


PACKAGES = ("analysis", "trainables")
"""Those beside this one."""
INTERRUPTS = (KeyboardInterrupt, Terminated)
FEWEST_COLUMNS = 40
"""In fewer nobody can read a table."""
_answers: list[TextIO] = []
"""Where the answer goes, while stdout is kept for it."""
_named: list[dict[str, str]] = []
"""Of the commands in progress, the last one innermost: their options, by the settings that they give."""


class UnheardError(OSError):
    """Stdout or stderr cannot be written: the disk behind it is full, the file has the largest size allowed, or the terminal or
    the reader is gone. It has no number, by which libraries would end the program in silence."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror or str(cause))
        self.is_left = cause.errno == errno.EPIPE
        """Whether the reader is gone, as `head` is when it has enough. Only a launch says so."""
        self.resume = ""
        """The command that continues what was ended."""


class _Heard:
    """A stream of the output. All its failures are its own: what a task or a store cannot write is another matter."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _as_unheard():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with _as_unheard():
            self._stream.flush()


@contextlib.contextmanager
def _as_unheard() -> Iterator[None]:
    try:
        yield
    except UnheardError:  # the stream of a command in a command
        raise
    except OSError as error:
        raise UnheardError(error) from error


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """In the block an output that cannot be written raises an `UnheardError`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Heard(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class App(typer.Typer):
    """A command, or several, that behave as all of this project's do; `run` runs it.

    Args:
        named: options that have not the names of the settings that they give, by these.
    """

    def __init__(self, named: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.named = named or {}
        super().__init__(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown", **settings)

    def of(self, words: Sequence[str]) -> App:
        """The app for a command line: itself, unless its options depend on the words."""
        return self


def grouped(command: Callable[..., int], **groups_of: type) -> Callable[..., int]:
    """A command for typer from one that takes some options as dataclasses: each of their fields becomes an option, with the
    field's annotation and default, at the place of the parameter. `groups_of` has the dataclasses of parameters that name none.
    If it is interrupted, it says how to continue."""
    hints = get_type_hints(command, include_extras=True) | groups_of
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
        given = {name: unsigned(value) for name, value in given.items()}
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
        try:
            return command(**given)
        except INTERRUPTS as error:
            print(f"interrupted; to continue: {typed(invocation())}", file=sys.stderr)
            return ended_by(error)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_groups


@contextlib.contextmanager
def ends_on_interrupt(grace: float = 10.0) -> Iterator[threading.Event]:
    """Ctrl-C or SIGTERM ends the program within `grace` seconds, also where a library swallows the exception, or hangs over it.

    For work of which everything that is done is kept at once. Outside the main thread nothing changes. Ray takes SIGTERM to
    itself when it starts: begin another block then. In it SIGTERM raises KeyboardInterrupt, as Ray passes on no other exception
    of a handler; it leaves as `Terminated`.

    Yields what is set as soon as one of the two has come.
    """
    come = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield come
        return
    code = Exit.SIGINT

    def end() -> None:
        remove_all()
        os._exit(code)

    def heard(number: int) -> None:
        nonlocal code
        if number in (signal.SIGINT, signal.SIGTERM):
            code = Exit(128 + number)
            if not come.is_set():  # a thread and the handler hear of the same signal
                come.set()
                timer = threading.Timer(grace, end)
                timer.daemon = True
                timer.start()

    def leave(number: int, *_: object) -> None:
        heard(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    unheard = hear(heard)  # the main thread may be deep in Ray
    try:
        yield come
    except KeyboardInterrupt:
        if code == Exit.SIGTERM:
            raise Terminated from None
        raise
    finally:
        unheard()
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextlib.contextmanager
def heeding_sigterm() -> Iterator[None]:
    """SIGTERM raises `Terminated` in the block (of the main thread; elsewhere nothing changes)."""

    def leave(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def ended_by(error: BaseException) -> Exit:
    """The exit code of a command that was interrupted so."""
    return Exit.SIGTERM if isinstance(error, Terminated) else Exit.SIGINT


def run(app: App, arguments: Sequence[str] | None = None, name: str | None = None) -> int:
    """Run a command line and give its exit code; a user's mistake becomes one line on stderr and exit code 2."""
    begun()
    _open_closed_streams()
    _take_all_text()
    _take_no_tiny_width()
    words = sys.argv[1:] if arguments is None else arguments
    for word in words:
        if (told := _no_text(word)) is not None:
            return _refuse(told)
    if (told := mistake()) is not None:
        return _refuse(told)
    if (hidden := _hidden()) is not None:
        return _refuse(f"{hidden} hides a package of this project by its name: rename it, or start in another folder")
    with heeding_sigterm(), _heard(), _kept_for_answer("--json" in words):
        try:
            command = _command(app.of(words), *program())
        except UserError as error:
            return _refuse(str(error))
        return _run(command, words, name, app.named)


@contextlib.contextmanager
def _kept_for_answer(wanted: bool) -> Iterator[None]:
    """Where the answer is wanted as JSON, stdout is for that alone: what a task prints, for example, goes to stderr."""
    if not wanted or _answers:  # a command in a command
        yield
        return
    _answers.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _answers.clear()


def print_json(answer: object) -> None:
    """Print the answer of a command on stdout, also where that is kept for it."""
    place = _answers[-1] if _answers else sys.stdout
    json.dump(answer, place, indent=2, allow_nan=False)
    place.write("\n")
    place.flush()


def _hidden() -> str | None:
    """The user's file that Python would import in place of a package of this project, if there is one."""
    home = Path(__file__).parents[2]
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None and Path(found.origin).parents[1] != home:
            return str(Path(found.origin))
    return None


@functools.cache
def _command(app: App, *program: str) -> Any:
    """The command of an app. Its help names other commands as the user who started this program would."""
    command = typer.main.get_command(app)
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = each.help and re.sub(
            r"python -m ((?:orchestrator|analysis)\.\w+)", lambda found: spelled(found[1]), each.help
        )
    return command


def _run(command: Any, words: Sequence[str], name: str | None, named: Mapping[str, str]) -> int:
    given: list[Given] = []
    alone, code = not hasattr(command, "commands"), None
    _named.append(options_of_settings(command, named) if alone else {})
    try:
        if alone:
            given = read_words(command, words)
        code = command.main(words, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        # without a message the help was printed in its place
        return _refuse(message) if (message := refusal(error, given)) else Exit.USAGE
    except UserError as error:
        return _refuse(str(error))
    except UnheardError as error:
        unheard = _unheard(error)
        return code or unheard  # that of a signal, for example
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return _refuse(f"{error.filename!s:.60}... is too long for a file name: use a shorter one")
        raise
    except (typer.Abort, *INTERRUPTS) as error:
        return ended_by(error)
    except SystemExit as error:
        if error.code != signal.SIGTERM:  # so Ray answers this signal while it starts
            raise
        return Exit.SIGTERM
    finally:
        _named.pop()
    return int(code or 0)


def _unheard(error: UnheardError) -> int:
    """The exit code of a command whose output cannot be written. What it still prints goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        told = f"stopped: the output cannot be written ({error}); all finished runs are kept"
        if error.resume or not error.is_left:
            print(f"{told}; to continue: {error.resume}" if error.resume else told, file=sys.stderr, flush=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what is still to be flushed would fail again
        os.dup2(nowhere, stream)
    return Exit.NOT_ANSWERED


def _open_closed_streams() -> None:
    """A stream that is closed (`>&-`) leads nowhere; else the next file that is opened would take its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _take_all_text() -> None:
    """An output that is not Unicode has a question mark for each character that it cannot show."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _take_no_tiny_width() -> None:
    """A COLUMNS in which nothing can be read, such as 0, is passed over: then the terminal says its width, or it is 80."""
    if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns) < FEWEST_COLUMNS:
        del os.environ["COLUMNS"]


def _no_text(word: str) -> str | None:
    """Why a word of the command line cannot be used, if it is not Unicode."""
    try:
        word.encode()
    except UnicodeEncodeError:
        given = os.fsencode(word)
    else:
        return None
    try:
        meant = given.decode()
    except UnicodeDecodeError:
        return f"{given!r} is not UTF-8, so no row or table can hold it: use another name"
    return f"{meant!r} cannot be read, because the locale of this shell is not UTF-8: set LC_ALL=C.UTF-8"


def _refuse(message: str) -> int:
    print("error: " + printable(" ".join(message.split())), file=sys.stderr)
    return Exit.USAGE


def main_of(app: App, name: str) -> Callable[[], None]:
    """The `main` of a study module."""

    def main() -> None:
        sys.exit(run(app, name=name))

    return main


def program() -> list[str]:
    """The words that start this program."""
    started = Path(sys.argv[0])
    if started.suffix != ".py":
        return [started.name]
    module = started.parent.name if started.name == "__main__.py" else f"{started.parent.name}.{started.stem}"
    return ["python", "-m", module]


def invocation() -> list[str]:
    """The words that start this program again with the same options."""
    return [*program(), *sys.argv[1:]]


def typed(command: Sequence[str]) -> str:
    """A command as a line for the shell this program was started from: a program that the shell would not find by its name, or
    of which it would find another one, is given by its path."""
    name, *others = command
    started = Path(sys.executable if name == "python" else sys.argv[0])
    found = shutil.which(name)
    if started.is_file() and (found is None or Path(found).absolute().parent != started.absolute().parent):
        name = str(started)
        with contextlib.suppress(OSError, ValueError):  # the working folder may be gone, or the program lie outside of it
            name = str(started.relative_to(Path.cwd()))
    return " ".join(map(quoted, (name, *others)))


def quoted(text: str) -> str:
    """A text as one word for a shell, in letters that every terminal takes as they are meant, and that the output can hold:
    others by their bytes."""
    if all(map(_is_shown, text)):
        return shlex.quote(text)
    plain = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}

    def of_letter(letter: str) -> str:
        if letter in plain or _is_shown(letter):
            return plain.get(letter, letter)
        return "".join(f"\\{byte:03o}" for byte in _bytes_of(letter))

    return f"$'{''.join(map(of_letter, text))}'"


def _is_shown(letter: str) -> bool:
    """Whether a letter is seen as it is on stdout and stderr."""
    try:
        for stream in (sys.stdout, sys.stderr):
            letter.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return letter.isprintable()


def _bytes_of(letter: str) -> bytes:
    """A letter as the words of a command line have it in this locale."""
    try:
        return os.fsencode(letter)
    except UnicodeEncodeError:  # it comes from a store
        return letter.encode(errors="surrogatepass")


def spelled(module: str) -> str:
    """How a user who started this program as they did starts another of its commands, by its module."""
    words = program()
    if words in (["sweep"], ["python", "-m", "orchestrator"]):
        return shlex.join([*words, module.rpartition(".")[2]])
    return f"python -m {module}"


def on_store(module: str, store: str) -> str:
    """As it is typed, another command of this program, by its module, for a store."""
    return typed([*shlex.split(spelled(module)), "--store", store])


def checked(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`make(...)`, its ValueError turned into the user's one-line error, which names options where that names settings."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise UserError(by_options(str(error))) from None


def by_options(message: str) -> str:
    """What is said of settings, said of the options of the command in progress."""
    return with_options(message, options_here())


def option_for(setting: str) -> str | None:
    """The option of the command in progress that gives a setting, if there is one."""
    return options_here().get(setting)


def options_here() -> Mapping[str, str]:
    """The options of the command in progress, by the settings that they give."""
    return _named[-1] if _named else {}


def one_of(option: str, value: str, allowed: Sequence[str]) -> str:
    """`value` if it is allowed.

    Raises:
        UserError: naming what is.
    """
    if value not in allowed:
        raise UserError(f"{option} {value!r} is unknown: choose {alternatives(allowed)}")
    return value


def words(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    """The words of a comma-separated list, each once.

    Raises:
        UserError: one that is not allowed.
    """
    return list(dict.fromkeys(one_of(option, word.strip(), allowed) for word in text.split(",")))


def check_new_file(option: str, path: Path | None) -> None:
    """
    Raises:
        UserError: something has this name, or there is no folder for it that can be written to.
    """
    if path is None:
        return
    if path.exists() or not path.parent.is_dir():
        check_expanded(option, path)
        why = "exists" if path.exists() else "is in a folder that does not exist"
        raise UserError(f"{option} {str(path)!r} {why}: give the name of a new file")
    check_folder(option, path.parent)


def check_expanded(option: str, path: str | Path) -> None:
    """
    Raises:
        UserError: the path, which the user gave with this option, begins with a tilde that the shell has left as it is, and
            nothing has this name. A shell leaves the tilde, too, where there is no such user.
    """
    first, slash, rest = str(path).partition("/")
    if first.startswith("~") and not os.path.lexists(path):
        if first != "~" and os.path.expanduser(first) == first:  # noqa: PTH111 -- Path raises where there is no such user
            meant = f"{option} ~/{shlex.quote(str(path)[1:])} for a place in your home, or give another name"
            raise UserError(f"{option} {str(path)!r}: there is no user {first[1:]!r}: write {meant}")
        meant = f"{option} {first}{slash}{rest and shlex.quote(rest)}"
        raise UserError(f"{option} {str(path)!r}: the shell did not expand the ~: write {meant} with a space, without quotes")


def check_folder(option: str, path: Path) -> None:
    """Refuse a path where there is no folder that can be written to and none can be made. Nothing stays of the attempt.

    Raises:
        UserError: it is something else, or lies below it, or nothing can be made there.
    """
    check_expanded(option, path)
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise UserError(f"{option} {str(path)!r:.60} cannot be a folder ({error.strerror}): choose another") from None
    there = next(p for p in (path, *path.parents, Path()) if os.path.lexists(p))
    if not there.is_dir():
        raise UserError(f"{option} {str(path)!r} cannot be a folder, because {str(there)!r} is not a folder: choose another")
    try:
        Path(tempfile.mkdtemp(prefix=".sweep-", dir=there)).rmdir()  # permissions alone do not tell
    except OSError as error:
        why = f"{str(there)!r} is not writable ({error.strerror})"
        raise UserError(f"{option} {str(path)!r}: {why}: choose a folder you can write to with {option}") from None
