"""A program as a user describes it: on the command line, or in a file of settings."""

from __future__ import annotations

import keyword
import math
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, NoReturn

from orchestrator.command.cli import checked
from orchestrator.command.ranges import parse_grid
from orchestrator.errors import UserError
from trainables.program import OWN, VALUES, Program, ProgramTask, digest, fill, names_in
from trainables.settings import IN_SPEC, KINDS, RESERVED, setting, settings_of, unsigned
from trainables.spec import LARGEST, Counts, Scalar

COUNTS_HINT = "write LOW..HIGH with whole numbers 0 <= LOW <= HIGH, for example"
TABLES = {"settings": (), "counts": ("low", "high"), "program": ("files",)}
OF_SETTING = ("default", "help", "words", "low", "high")
HEAD = 2**12
"""Bytes of a file that tell whether it is a script, and what reads it."""
LONGEST_FIRST_LINE = 255
"""Of a longer one Linux may not read all."""
NOT_IN_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
SCRIPTS = (".py", ".sh", ".R", ".r", ".jl", ".awk", ".pl", ".rb", ".lua", ".js")
"""Ends of words that look like files which a program reads first."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a command says of its program."""

    command: str
    file: Path | None = None
    """Of settings."""
    vary: Sequence[str] = ()
    """Settings with their values, NAME=VALUE."""
    counts: str | None = None
    is_counted: bool = True
    """Whether the data count is something that the command varies or gives, so that the program has to be told of it."""
    follow: tuple[str, str] | None = None
    """Where neither an option nor a file says the data counts: the option that they follow from, and what they are."""

    @classmethod
    def of(
        cls, command: str, file: Path | None, vary: Sequence[str], counts: str | None, least: str = "data_count",
        along: str = "N", between: str | None = None, data_count: object = None,
    ) -> Described:  # fmt: skip
        """From the options of a command. Where another setting than the data count is searched, this is fixed, varied along the
        other axis, or no matter."""
        axis, _, values = along.partition("=")
        follow = None
        if least == "data_count":
            follow = None if between is None else ("--between", between)
        elif axis == "data_count" and values:
            found = checked(parse_grid, values, 0, LARGEST, 1, "data counts", ("10..20", "10..20:5", "10,20"))
            follow = "--along data_count", f"{found[0]}..{found[-1]}"
        elif data_count is not None:
            one = data_count if re.fullmatch("[0-9]+", str(data_count)) else 1  # what is no number is refused with the options
            follow = "--data-count", f"{one}..{one}"
        is_counted = "data_count" in (least, axis) or data_count is not None
        return cls(command, file, vary, counts, is_counted, follow)

    def task(self) -> ProgramTask:
        """The task of the program, of which nothing has run.

        Raises:
            UserError: something in it is wrong; the message names it.
        """
        try:
            words = tuple(shlex.split(self.command))
        except ValueError as error:
            raise UserError(f"--program {self.command!r} cannot be split into words ({error}): quote as in a shell") from None
        if not words or not words[0]:
            raise UserError(f"--program {self.command!r} names no program: write its command, such as 'python train.py'")
        given = _File.of(self.file)
        settings = _settings(given, self.vary)
        known = (*VALUES, *settings_of(settings))
        try:
            named = names_in(words, known)
        except ValueError as error:
            raise UserError(f"--program: {error}") from None
        needed = (*["data_count"][: self.is_counted], *settings_of(settings))
        if unused := [name for name in needed if name not in named]:
            name = unused[0]
            raise UserError(f"--program does not say where {name} goes, so it would change nothing: write {{{name}}} there")
        _check_found(words[0])
        counts = self._counts(given, "data_count" in named)
        return ProgramTask(Program(words=words, counts=counts, settings=settings, files=_files(given, words)))

    def check_named(self, task: ProgramTask, sizes: int, seeds: int, given: Collection[str]) -> None:
        """Look at the whole command. What may be a mistake in it is told on stderr.

        Args:
            given: values of a run that the user has chosen.

        Raises:
            UserError: runs of several grid sizes or seeds would be the same, or one of these values changes nothing.
        """
        assert task.program is not None
        named = names_in(task.program.words, (*VALUES, *settings_of(task.settings)))
        for name, asked, one in (("N", sizes, "--N with one number"), ("seed", seeds, "--seeds 1")):
            if asked > 1 and name not in named:
                raise UserError(f"--program has no {{{name}}}, so {asked} runs each would be the same: add it, or give {one}")

        if unused := [name for name in given if name not in named]:
            option = f"--{unused[0].replace('_', '-')}"
            if unused[0] not in (*VALUES, *settings_of(task.settings)):
                raise UserError(f"{option} would change nothing, because a program cannot be told it: omit the option")
            raise UserError(f"{option} would change nothing: write {{{unused[0]}}} in --program, or omit the option")
        for word in task.program.words[1:]:
            if (missing := _without_places(word)) is not None and _looks_missing(missing):
                print(f"warning: --program names {missing}, and there is no such file here: check its path", file=sys.stderr)
        if self.counts is not None and self.follow is not None and self.follow[0] == "--between":
            told = f"of the data counts {self.counts} (--counts), {self.follow[1]} are searched (--between)"
            print(f"note: {told}", file=sys.stderr)

    def _counts(self, given: _File, is_told: bool) -> Counts | dict[int, Counts]:
        """
        Args:
            is_told: whether the command names the data count. If not, there is one, and it means nothing.
        """
        option, text = ("--counts", self.counts) if self.counts is not None else self.follow or ("--counts", None)
        if "counts" in given.tables and is_told:
            if self.counts is not None:
                raise UserError(f"--counts and [counts] in {given.path} are both given: keep one")
            return _counts_of(given)
        if text is None and not self.is_counted:
            return Counts(1, 1)
        if text is None:
            raise UserError(f"a program needs the data counts that it may be asked for: {COUNTS_HINT} {option} 10..1200")
        if not (found := re.fullmatch(r"([0-9]{1,10})\.\.([0-9]{1,10})", text)):
            raise UserError(f"{option} {text!r} is no range: {COUNTS_HINT} {option} 10..1200")
        return _range(int(found[1]), int(found[2]), f"{option} {text!r}")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of settings, its tables known to be tables."""

    path: Path | None
    tables: Mapping[str, dict[str, Any]]

    @classmethod
    def of(cls, path: Path | None) -> _File:
        if path is None:
            return cls(None, {})
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"--program-settings {str(path)!r} cannot be read ({error.strerror}): give a TOML file") from None
        except (ValueError, RecursionError) as error:  # bad TOML, or no UTF-8
            raise UserError(f"--program-settings {str(path)!r} is no TOML ({error})") from None
        found = cls(path, tables)
        found.check_names("", tables, TABLES)
        for name, table in tables.items():
            if not isinstance(table, dict):
                found.refuse(name, f"must be a table, [{name}]")
            if allowed := TABLES[name]:
                found.check_names(name, table, allowed)
        return found

    def check_names(self, where: str, names: Collection[str], allowed: Collection[str]) -> None:
        for name in names:
            if name not in allowed:
                self.refuse(f"{where}.{name}".lstrip("."), f"is unknown: there are {', '.join(allowed)}")

    def refuse(self, key: str, why: str) -> NoReturn:
        raise UserError(f"{self.path}: {key} {why}")


def _settings(given: _File, vary: Sequence[str]) -> type:
    """The class of the settings that a file and `--vary` declare."""
    fields: list[tuple[str, Any, Any]] = []
    for name, about in given.tables.get("settings", {}).items():
        at = f"settings.{name}"
        if not isinstance(about, dict):
            given.refuse(at, f"must be a table with a default: [{at}]")
        given.check_names(at, about, OF_SETTING)
        default = unsigned(about.get("default"))
        if type(default) not in KINDS:
            given.refuse(f"{at}.default", f"must be a number, a word, true or false, not {default!r}")
        help, words = about.get("help", ""), about.get("words", [])
        if not isinstance(help, str):
            given.refuse(f"{at}.help", f"must be a line of text, not {help!r}")
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            given.refuse(f"{at}.words", f"must be a list of words, not {words!r}")
        for bound in ("low", "high"):
            if bound in about and (type(about[bound]) not in (int, float) or type(default) not in (int, float)):
                given.refuse(f"{at}.{bound}", "must be a number, of a setting that is one")
        if why := _misnamed(name, type(default)):
            given.refuse(at, why)
        one = (name, type(default), setting(default, help, words=tuple(words), low=about.get("low"), high=about.get("high")))
        try:
            settings_of(make_dataclass("Settings", [one], frozen=True, kw_only=True))
        except ValueError as error:
            given.refuse(at, f"will not do: {error}")
        fields.append(one)
    for pair in vary:
        name, equals, text = pair.partition("=")
        value = unsigned(_value(text))
        if not equals:
            raise UserError(f"--vary {pair!r} has no value: write NAME=VALUE, for example noise=0.1")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--vary {pair!r} must be a finite number, or a word that is none")
        if name in [field[0] for field in fields]:
            raise UserError(f"--vary {pair!r} declares {name} once more: keep one of the two")
        if why := _misnamed(name, type(value)):
            raise UserError(f"--vary {pair!r}: {name} {why}")
        fields.append((name, type(value), setting(value, f"The setting {name} of the program.")))
    made = make_dataclass("Settings", fields, frozen=True, kw_only=True)
    checked(settings_of, made)
    return made


def _misnamed(name: str, kind: type) -> str:
    """Why a setting cannot have this name; empty if it can."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or keyword.iskeyword(name) or name == "help":
        return "cannot be the name of a setting: take letters, digits and underscores"
    if name in RESERVED or name in OWN:
        return "is the name of something that every run has: rename the setting"
    if name in IN_SPEC and kind is not (wanted := type(IN_SPEC[name])):
        return f"must be {'a word' if wanted is str else 'a whole number'}, as in every run: rename it"
    return ""


def _value(text: str) -> Scalar:
    """What is written, as the number, the truth or the word that it looks like: 007 and 1_000 are words, which a program is
    given as they are."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.match("[+-]?0[0-9]", text) or "_" in text:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _counts_of(given: _File) -> Counts | dict[int, Counts]:
    """What `[counts]` says; `low` and `high` are numbers, or tables with one for each N."""
    table = given.tables["counts"]
    ends: dict[str, int | dict[int, int]] = {}
    for name in ("low", "high"):
        value = table.get(name)
        if isinstance(value, dict):
            if not value:
                given.refuse(f"counts.{name}", "must have an N, as in {16 = 200, 24 = 500}")
            for size, count in value.items():
                if not size.isascii() or not size.isdigit() or len(size) > 10 or type(count) is not int:
                    given.refuse(f"counts.{name}.{size}", "must give a whole number for an N, as in {16 = 200, 24 = 500}")
            ends[name] = {int(size): count for size, count in value.items()}
        elif type(value) is int:
            ends[name] = value
        else:
            given.refuse(f"counts.{name}", f"must be a whole number, or a table with one for each N, not {value!r}")
    low, high = ends["low"], ends["high"]
    if isinstance(low, int) and isinstance(high, int):
        return _range(low, high, f"{given.path}: counts")
    sizes = [set(end) for end in (low, high) if isinstance(end, dict)]

    def at(end: int | dict[int, int], N: int) -> int:
        return end[N] if isinstance(end, dict) else end

    common = sorted(set.intersection(*sizes))
    if not common:
        told = " and ".join(", ".join(map(str, sorted(of_end))) for of_end in sizes)
        given.refuse("counts.low and counts.high", f"must have an N in common, and are of {told}")
    return {N: _range(at(low, N), at(high, N), f"{given.path}: counts at N = {N}") for N in common}


def _range(low: int, high: int, where: str) -> Counts:
    if not 0 <= low <= high <= LARGEST or not high:
        raise UserError(f"{where} must have 0 <= low <= high and a high from 1 to {LARGEST}, not {low} and {high}")
    return Counts(low, high)


def _files(given: _File, words: Sequence[str]) -> dict[str, str]:
    """The files that are the program's version, with their digests."""
    named = given.tables.get("program", {}).get("files")
    if named is None:
        plain = [word for each in words if (word := _without_places(each)) is not None]
        paths = [word for word in plain if os.path.isfile(word)]  # noqa: PTH113 -- Path refuses words that are no paths
    elif isinstance(named, list) and all(isinstance(path, str) for path in named):
        paths = named
    else:
        given.refuse("program.files", f"must be a list of paths, not {named!r}")
    found = {}
    for path in paths:
        try:
            found[path] = digest(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            place = "--program" if named is None else f"{given.path}: program.files"
            raise UserError(f"{place} names {path!r}, which cannot be read ({why}): give paths from this folder") from None
    return found


def _without_places(word: str) -> str | None:
    """A word of a command as the program is given it; None if it has a place for a value."""
    try:
        return fill(word, {})
    except ValueError:
        return None


def _looks_missing(word: str) -> bool:
    """Whether a word seems to name a script, and there is none."""
    is_named = word.endswith(SCRIPTS) and not word.startswith("-") and not re.search(r"[\s=:]", word)
    return is_named and not os.path.exists(word)  # noqa: PTH110 -- Path refuses words that are no paths


def _check_found(word: str) -> None:
    """
    Raises:
        UserError: there is no such program, or it cannot be executed.
    """
    plain = _without_places(word)
    if plain is None:
        return
    word = plain
    if shutil.which(word) is not None:
        folders = [None] if "/" in word else os.get_exec_path()  # a program that cannot start is passed over for a later one
        faults = [_fault(path) for folder in folders if (path := shutil.which(word, path=folder)) is not None]
        if faults and all(faults):
            raise UserError(f"--program {faults[0]}")
        return
    if os.path.isfile(word) and "/" in word:  # noqa: PTH113
        raise UserError(f"--program {word!r} is not executable: run chmod +x, or write before it what reads it, such as python")
    raise UserError(f"--program {word!r} is not found: give a command of this machine, or the path of a file, as ./train.sh")


def _fault(path: str) -> str:
    """Why the system does not execute a script, and what to do; empty if it may. A file that is no text may be of any kind."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 -- Path refuses words that are no paths
            head = file.read(HEAD)
    except (OSError, ValueError):
        return ""
    if NOT_IN_TEXT.search(head):
        return ""
    if not head.startswith(b"#!"):
        told = f"{path!r} has no first line such as #!/bin/sh: add one, or write before it what reads it, such as python"
        return told if sys.platform == "linux" else ""  # elsewhere a shell may read it
    line = head[2:].partition(b"\n")[0]
    interpreter, *rest = line.strip(b" \t").split(maxsplit=1) if line.strip() else [b""]
    if len(line) > LONGEST_FIRST_LINE or not interpreter:
        return ""
    by_env = interpreter.endswith(b"/env") and len(rest) == 1 and not rest[0].startswith(b"-")  # with -S it splits the line
    if line.endswith(b"\r") and (not rest or by_env):
        return f"{path!r} has lines that end as on Windows, so it is not executed: run sed -i 's/\\r$//' {shlex.quote(path)}"
    if os.path.exists(interpreter):  # noqa: PTH110
        return ""
    told = f"{path!r} names {os.fsdecode(interpreter)!r} in its first line, and there is no such file"
    return f"{told}: correct that line, or write before it what reads it, such as python"


def check_no_program(file: Path | None, vary: Sequence[str] | None, counts: str | None) -> None:
    """
    Raises:
        UserError: an option that is about a program is given, and no program is.
    """
    for name, value in (("--program-settings", file), ("--vary", vary), ("--counts", counts)):
        if value is not None:
            raise UserError(f"{name} is about a program: add --program")


def precision_of_program(given: str) -> str:
    """What stands in the runs of a program.

    Raises:
        UserError: the user has asked for another precision.
    """
    if given not in ("auto", "float32"):
        raise UserError(f"--precision {given} is of trainings here: a program chooses its own, so omit the option")
    return "float32"
