"""Mistakes in the words of a command line: said with the option, the value and what to write instead."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from orchestrator.errors import UserError

LISTED, NUMBERS = re.compile("omma-separated"), re.compile(r"\d,\d")
"""In the help of an option that takes several values; in that of one whose values are numbers."""
NUMBER, WORD = re.compile(r"[+-]?\.?\d(\S*\w)?"), re.compile(r"(?!(to|and|or)$)[A-Za-z](\S*\w)?")
"""A value, or several with commas between them."""
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
"""What writing programs make of hyphens."""
NO = "no", "false", "off", "0"
NEAR = 2
"""Letters in which an option may differ from one that is suggested."""
SHORTEST = 3
"""Letters of a beginning by which an option is suggested."""


@dataclass(frozen=True, slots=True)
class Given:
    """An option in a command line."""

    option: str
    """As it was written."""
    parameter: Any
    value: str | None
    """None: it takes none."""


def read_words(command: Any, words: Sequence[str]) -> list[Given]:
    """The options of a command line; none if it asks for help.

    Raises:
        UserError: a word that belongs to no option, an unknown option, one without its value, or a list that is given twice.
    """
    options = _options(command)
    found: list[Given] = []
    strays: list[tuple[str, Given | None]] = []
    rest, before = list(words), None
    while rest:
        word = rest.pop(0)
        if word == "--":
            strays += [(stray, None) for stray in rest]
            break
        if not (word.startswith("-") and len(word) > 1):
            strays.append((word, before))
            continue
        if word == "--help":
            return []
        name, equals, value = word.partition("=")
        if name not in options:
            raise UserError(_unknown(name, value if equals else next(iter(rest), ""), options))
        parameter = options[name]
        if parameter.is_flag:
            if equals:
                raise UserError(_of_flag(Given(name, parameter, None), value))
            before = Given(name, parameter, None)
        else:
            if not equals and not rest:
                raise UserError(f"{name} needs a value: write it after the option, or omit the option")
            text = value if equals else rest.pop(0)
            for _ in range(parameter.nargs - 1):
                text += f" {rest.pop(0)}" if rest else ""
            if text in options and not equals:
                raise UserError(f"{name} needs a value, and {text} stands in its place: write it, or omit {name}")
            before = Given(name, parameter, text)
        found.append(before)
    _check_strays(command, strays)
    _check_once(found)
    for each in found:
        if each.value == "" and each.parameter.type_descriptor.annotation is Path:
            name = "folder, such as tables" if each.option == "--out" else "file or folder"
            raise UserError(f"{each.option} is empty: name a {name}, or omit the option")
    return found


def refusal(error: typer.TyperException, given: Sequence[Given]) -> str:
    """What to say where typer refuses a value: what it has to be, and what it is. Of other errors, what typer says."""
    parameter: Any = getattr(error, "param", None)
    values = [each for each in given if each.parameter is parameter and each.value is not None]
    kind = parameter.type_descriptor.annotation if values else None
    if kind not in (int, float):
        return error.format_message()
    option, text = values[-1].option, str(values[-1].value)
    if re.search(r"[0-9],|\.\.", text):
        if option == "--N":
            return f"--N takes one grid size here, not {text!r}: start the study for each size by itself"
        return f"{option} takes one number, not {text!r}"
    about = parameter.type_descriptor.parameter_info
    low = -math.inf if about.min is None else about.min
    high = math.inf if about.max is None else about.max
    span = {
        (True, True): f" from {about.min} to {about.max}", (True, False): f" from {about.min} on",
        (False, True): f" of at most {about.max}", (False, False): "",
    }[math.isfinite(low), math.isfinite(high)]  # fmt: skip
    meant = _meant(kind, text)
    instead = "" if meant is None or not low <= meant <= high else f": write {meant:.15g}"
    return f"{option} must be a {'whole ' * (kind is int)}number{span}, not {text!r}{instead}"


def with_options(message: str, named: Mapping[str, str]) -> str:
    """What is said of settings, said of the options that give them.

    Args:
        named: options, by the settings that they give.
    """

    if message.startswith("the task's "):  # it speaks of values that nobody gave
        return message

    def option(found: re.Match[str]) -> str:
        return named.get(found[1], found[0])

    first = r"^(?:the option )?(\w+)(?= (?:must|takes|needs|is unknown|'[^']*' is unknown|\w+ needs)\b)"
    message = re.sub(first, option, message)
    message = re.sub(r"\bthe option (\w+)=", lambda found: f"{named[found[1]]} " if found[1] in named else found[0], message)
    message = re.sub(r"(?<![\w'/.-])([a-z]+_\w+)(?![\w'/(=])(?!\.\w)", option, message)
    return re.sub(r"(--[a-z-]+) = ", r"\1 ", message)


def options_of_settings(command: Any, others: Mapping[str, str]) -> dict[str, str]:
    """The options of a command by the names of the settings that they give.

    Args:
        others: those that have not the names of their settings.
    """
    found: dict[str, str] = {}
    options = _options(command)
    for option, parameter in options.items():
        if option in parameter.opts:
            found |= {parameter.name: option, option.strip("-").replace("-", "_"): option}
    return found | {name: option for name, option in others.items() if option in options}


def _options(command: Any) -> dict[str, Any]:
    """The options of a command, by what is written for them."""
    options = [each for each in command.params if each.param_type_name == "option"]
    return {name: each for each in options for name in (*each.opts, *each.secondary_opts)}


def _check_strays(command: Any, strays: Sequence[tuple[str, Given | None]]) -> None:
    """
    Args:
        strays: words that belong to no option, each with the last option before it.
    """
    taken = [each.nargs for each in command.params if each.param_type_name == "argument"]
    if -1 in taken or len(strays) <= sum(taken):
        return
    word, before = strays[sum(taken)]
    if word[:1] in {*DASHES} and (name := word.lstrip(f"{DASHES}-"))[:1].isalpha():
        raise UserError(f"{word!r} begins with a dash that is no hyphen: write --{name}")
    if before is None:
        raise UserError(f"{word!r} belongs to no option: --help shows what there is")
    if before.value is None:
        raise UserError(_of_flag(before, word))
    following = [stray for stray, after in strays if after is before]
    told = f"{word!r} belongs to no option"
    if _is_list(before.parameter):
        if (joined := _joined(before.parameter, [before.value, *following])) is None:
            raise UserError(f"{told}: write what {before.option} takes without spaces, as --help shows")
        raise UserError(f"{told}: separate several values by commas, {before.option} {joined}")
    if before.parameter.multiple:
        each = " ".join(f"{before.option} {shlex.quote(value)}" for value in (before.value, *following))
        raise UserError(f"{told}: write {before.option} before each value, {each}")
    if before.parameter.type_descriptor.annotation in (int, float):
        raise UserError(f"{told}, and {before.option} takes one number: omit it")
    quoted = shlex.quote(" ".join((before.value, *following)))
    raise UserError(f"{told}, and {before.option} takes one value: omit it, or quote a value with spaces, {quoted}")


def _of_flag(flag: Given, word: str) -> str:
    parameter, option = flag.parameter, flag.option
    if word.lower() in NO and parameter.secondary_opts:
        other = parameter.opts[0] if option in parameter.secondary_opts else parameter.secondary_opts[0]
        return f"{option} takes no value: write {other}"
    instead = "omit the option" if word.lower() in NO else f"write {option} alone"
    return f"{option} takes no value, so {word!r} belongs to no option: {instead}"


def _check_once(found: Sequence[Given]) -> None:
    """A list that is given twice may mean both, or the last one. Of other options the last one counts, as everywhere."""
    by_parameter: dict[str, list[Given]] = {}
    for each in found:
        by_parameter.setdefault(each.parameter.name, []).append(each)
    for several in by_parameter.values():
        first = several[0]
        if len(several) == 1 or first.parameter.multiple or first.value is None or not _is_list(first.parameter):
            continue
        values = [str(each.value) for each in several]
        often = "twice" if len(values) == 2 else f"{len(values)} times"
        which = f"{', '.join(values[:-1])} and {values[-1]}"
        joined = _joined(first.parameter, values)
        example = "" if joined is None else f", for example {first.option} {joined}"
        raise UserError(f"{first.option} is given {often}, {which}: give it once{example}")


def _is_list(parameter: Any) -> bool:
    """Whether an option takes several values, as its help says, unless it is `single` (see `subject`)."""
    about, help = parameter.type_descriptor, parameter.help or ""
    if about.annotation is not str or hasattr(about.parameter_info, "single"):
        return False
    return bool(LISTED.search(help) or NUMBERS.search(help))


def _joined(parameter: Any, values: Sequence[str]) -> str | None:
    """What a list is given by that has all these; None if one of them looks like no value of it."""
    name = values[0][: values[0].find("=") + 1]
    parts = dict.fromkeys(part for value in values for part in value.removeprefix(name).strip(",").split(","))
    kinds = (NUMBER, WORD) if LISTED.search(parameter.help) else (NUMBER,)
    return name + ",".join(parts) if any(all(map(kind.fullmatch, parts)) for kind in kinds) else None


def _meant(kind: type, text: str) -> float | None:
    """The number that somebody may have meant by what is none."""
    number, share = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        value = float(number) / share
    except ValueError:
        return None
    return value if math.isfinite(value) and (kind is float or value.is_integer()) else None


def _unknown(option: str, value: str, options: Mapping[str, Any]) -> str:
    told = f"No such option: {option}"
    for other in _other_numbers(option):
        if other in options and options[other].type_descriptor.annotation is str:
            if _is_list(options[other]):
                return f"{told}: this command takes several, {other} {value}".rstrip()
            return f"{told}: this command takes one, {other} {value.partition(',')[0]}".rstrip()
    near = sorted(_near(option, options), key=str.lower)
    return f"{told} (perhaps {' or '.join(near)})" if near else told


def _other_numbers(option: str) -> Iterator[str]:
    """An option's name in the singular, if it is in the plural, and the other way round."""
    if option.endswith("ies"):
        yield f"{option[:-3]}y"
    if option.endswith("s"):
        yield option[:-1]
    yield f"{option}s"
    if option.endswith("y"):
        yield f"{option[:-1]}ies"


def _near(option: str, options: Mapping[str, Any]) -> list[str]:
    """The options that somebody may have meant: those that begin so, or are spelled nearly so."""
    word = _plain(option)
    begun = [name for name in options if len(word) >= SHORTEST and _plain(name).startswith(word)]
    if begun:
        return begun
    most = min(NEAR, len(word) // 3)
    return [name for name in options if _distance(word, _plain(name)) <= most]


def _plain(option: str) -> str:
    return option.lstrip("-").replace("_", "-").lower()


def _distance(one: str, other: str) -> int:
    """Letters to change, to add or to take away, from one word to another."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]
