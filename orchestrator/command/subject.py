"""The settings of a task on the command line: an option for each, with the help that the task gives."""

from __future__ import annotations

import copy
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, get_args

from orchestrator.command import options as opt
from orchestrator.command.cli import App, checked, grouped, one_of, options_here
from orchestrator.command.programs import Described
from orchestrator.errors import UserError, printable
from trainables.check_words import check_words
from trainables.program import PATH as PROGRAM_TASK
from trainables.settings import Setting, alternatives, listed, settings_class, settings_of
from trainables.spec import Scalar
from trainables.task import Task, load_task

SHORT_WORD = 5
"""Letters of a name that is like many others."""
NEUTRAL = {
    " For bumps from 8 to 1024\\.": "",
    "; of bumps, the grid": "",
    ", `encoding=bump,ramp`": "",
    "the grid\\b": "N",
    "Grid size": "Size",
    "grid size": "size",
    "before it composes": "before it generalizes",
    "coordinates": "samples",
    "images": "samples",
    "(a|the) decoder": r"\1 network",
}
"""Words of a help that speaks of bumps, and those that stand in their place where another task is asked for."""


class TaskApp(App):
    """A command whose options depend on its `--task` or its `--program`: `of(words)` is the command for a command line."""

    make: Callable[[Task], TaskApp]

    def of(self, words: Sequence[str]) -> TaskApp:
        """The command with the options of the task that the words name; this one if they name none.

        Raises:
            UserError: the task cannot be loaded, its settings are wrong, or there is a program besides.
        """
        path, program = _last("--task", words), _last("--program", words)
        if program is None:
            return self if path is None else self.make(own_task(path))
        _check_quoted(words)
        if path is not None:
            raise UserError("--task and --program are both given, and a study has one subject: keep one")
        file = _last("--program-settings", words)
        axes = _last("--least", words) or "data_count", _last("--along", words) or "N"
        more = *axes, _last("--between", words), _last("--data-count", words)
        path_of_file = None if file is None else Path(file)
        described = Described.of(program, path_of_file, _all("--vary", words), _last("--counts", words), *more)
        return self.make(described.task())


def _check_quoted(words: Sequence[str]) -> None:
    """
    Raises:
        UserError: the command of `--program` is several words for the shell.
    """
    at = max(i for i, word in enumerate(words) if word.partition("=")[0] == "--program")
    first = at + (words[at] == "--program")
    if first == len(words):  # the parser says that it needs a value
        return
    command = [words[first].removeprefix("--program="), *takewhile(lambda word: not word.startswith("--"), words[first + 1 :])]
    if len(command) > 1 and (command[1][:1] != "-" or "{" in "".join(command[1:])):
        quoted = shlex.quote(" ".join(command))
        raise UserError(f"--program takes one value: put the whole command in quotes, for example --program {quoted}")


def own_task(path: str) -> Task:
    """The task that a user names, which may lie in the working directory, with its words checked.

    Raises:
        UserError: it cannot be loaded, is that of programs, or its words are wrong.
    """
    if path == PROGRAM_TASK:
        raise UserError(f"--task {path} is what starts programs: omit it, and give the program with --program")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    task: Task = checked(load_task, path)
    checked(check_words, task)
    return task


def task_app(command: Callable[..., int], default: str, *but: str) -> TaskApp:
    """The app of a command with a parameter `subject`, in whose place stand the settings of its task, all `but` some. Its help
    speaks of the `default` task, and of any other one in its stead."""
    usual = load_task(default)

    def made(task: Task) -> TaskApp:
        app = TaskApp()
        app.make = made
        options = _options_of(task, command, but)
        adapted = grouped(command, subject=options)
        if type(task) is not type(usual):
            _speak_of(task, adapted, [f.name for f in fields(options)])
        if hidden := [name for name in settings_of(settings_class(task)) if name in {*_names(command)} - {*but}]:
            also = f"also for {listed([f'`{name}`' for name in hidden])}, whose name another option here has"
            _say(adapted, "option", lambda help: f"{help.rstrip('.')}; {also}.")
        app.command()(adapted)
        return app

    return made(usual)


def _speak_of(task: Task, command: Callable[..., int], own: Collection[str]) -> None:
    """The help of a command speaks of a task that is not the one for which it was written. That of the options which are its
    `own` stays as it is."""
    known = settings_of(settings_class(task))
    datasets, cheap = known["dataset"].words if "dataset" in known else (), getattr(task, "cheap", ())
    takes_any = "dataset" in known and not datasets
    several = "Comma-separated names, whichever the task knows." if takes_any else f"Comma-separated: {_quoted(datasets)}."
    is_one = len(datasets) < 2 and not takes_any
    _say(command, "datasets", lambda _: "This task has one data set, so omit the option." if is_one else several)
    _say(command, "cpu_workers", lambda help: help.replace("`mlp`", _quoted(cheap) or "this task has none"))
    for name in inspect.signature(command).parameters.keys() - {*own}:
        _say(command, name, _neutral)
    told, heading, examples = (command.__doc__ or "").partition("**Examples**")
    command.__doc__ = _neutral(told) + (heading and f"{heading}, of the task that is built in") + examples


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _neutral(help: str) -> str:
    for word, other in NEUTRAL.items():
        help = re.sub(word, other, help)
    return help


def _say(command: Callable[..., int], name: str, change: Callable[[str], str]) -> None:
    """Change the help of an option of a command, if it has one of this name."""
    signature: inspect.Signature = command.__signature__  # type: ignore[attr-defined]
    if name not in signature.parameters:
        return
    kind, option = get_args(signature.parameters[name].annotation)
    changed = copy.copy(option)
    changed.help = change(option.help or "")
    hint: Any = Annotated[kind, changed]
    parameters = [p.replace(annotation=hint) if p.name == name else p for p in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__[name] = hint


def given(task: Task, subject: object, pairs: Sequence[str] | None) -> dict[str, Scalar]:
    """What a user gave of the settings of a task: by the fields of `subject` with their names, then by `--option NAME=VALUE`.

    Raises:
        UserError: a setting that the task does not have, a value of another type, or a setting that is given in both ways.
    """
    known = settings_of(settings_class(task))
    values = {f.name: getattr(subject, f.name) for f in fields(subject)}  # type: ignore[arg-type]
    found = {name: value for name, value in values.items() if name in known and value is not None}
    for name, value in found.items():
        if known[name].words:
            one_of(option_of(name), value, known[name].words)
    of_pairs = read_pairs(known, pairs or [])
    for name in of_pairs:
        if name in found:
            raise UserError(f"{option_of(name)} and --option {name} both give {name}: keep one of the two")
    return found | of_pairs


def read_pairs(known: Mapping[str, Setting], pairs: Sequence[str]) -> dict[str, Scalar]:
    """The values of `NAME=VALUE` pairs, each of the type of its setting.

    Raises:
        UserError: no such setting, one that is given twice, or a value of another type.
    """
    found: dict[str, Scalar] = {}
    names = ", ".join(known) or "none"
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--option {pair!r} has no value: write NAME=VALUE, where NAME is one of {names}")
        if name not in known:
            raise UserError(f"this task has no option {name!r}: {_meant(name, known)}its options are {names}")
        if name in found:
            raise UserError(f"--option {name} is given twice: keep one of the two")
        try:
            found[name] = known[name].read(text)
        except ValueError as error:
            raise UserError(f"--option {pair!r}: {error}") from None
    return found


def _meant(name: str, known: Collection[str]) -> str:
    """The setting, or the option of the command in progress, that somebody may have meant by a name that is no setting."""
    of_settings = options_here()
    options = {option.removeprefix("--").replace("-", "_"): option for option in of_settings.values()}
    cutoff = 0.7 if len(name) > SHORT_WORD else 0.8  # `families` is that near to `family`, and `gate` to `rate`
    near = next(iter(get_close_matches(name, [*known, *options], n=1, cutoff=cutoff)), None)
    option = of_settings.get(name) or (options.get(near) if near is not None and near not in known else None)
    meant = near if option is None else f"{option}, an option of this command,"
    return "" if meant is None else f"perhaps {meant} is meant; "


def option_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _options_of(task: Task, command: Callable[..., int], but: Sequence[str]) -> type:
    """A group of options, one for every setting with a choice; None where the user says nothing. A setting with the name of
    another parameter of the command can be given by `--option` alone.

    Raises:
        UserError: one would take the place of `--help`.
    """
    if "help" in settings_of(settings_class(task)):
        raise UserError("the task's setting help has the name of the option that shows what there is: rename the setting")
    taken = {*but, *_names(command)}
    made = [
        (name, _annotation(each), field(default=None))
        for name, each in settings_of(settings_class(task)).items()
        if name not in taken and len(each.words) != 1
    ]
    return make_dataclass("Subject", made, frozen=True, kw_only=True)


def _annotation(each: Setting) -> Any:
    help = printable(each.help) or f"The option {each.name} of the task."
    if each.words:
        help = f"{help.rstrip('.')}: {alternatives([f'`{printable(str(word))}`' for word in each.words])}."
    shown = printable(each.shown or str(each.default))
    bounds: dict[str, Any] = {"min": each.low, "max": each.high} if each.kind is int else {}
    flag = [f"{option_of(each.name)}/--no-{each.name.replace('_', '-')}"] if each.kind is bool else [option_of(each.name)]
    option = opt.subject(*flag, help=help, show_default=shown, **bounds)
    option.single = True  # whatever its help says: a setting has one value
    return Annotated[each.kind | None, option]


def _names(command: Callable[..., int]) -> set[str]:
    """The parameters of a command, those in its groups included."""
    return set(grouped(command, subject=make_dataclass("Nothing", [])).__annotations__)


def _last(option: str, words: Sequence[str]) -> str | None:
    """The last value of an option in a command line."""
    return next(reversed(_all(option, words)), None)


def _all(option: str, words: Sequence[str]) -> list[str]:
    """All values of an option in a command line."""
    found, rest = [], iter(words)
    for word in rest:
        if word == option:
            found += [value for value in (next(rest, None),) if value is not None]
        elif word.startswith(f"{option}="):
            found.append(word.partition("=")[2])
    return found
