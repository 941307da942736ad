"""A program in any language as a task: its command with places for the values of a run, its files, settings and data counts.

Nothing here starts a program. `trainables.program_run` does, and only where a worker was told to.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import math
import os
import re
import shlex
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from torch import Tensor, nn

from trainables.settings import IN_SPEC, RESERVED
from trainables.spec import Counts, RunSpec, Scalar, family_key
from trainables.task import Data, Split

PATH = "trainables.program:ProgramTask"
"""What `RunSpec.task` is of such runs."""
VALUES = ("data_count", "N", "seed", "max_steps", "target", "batch_size", "lr", "weight_decay")
"""What a command may name of every run."""
COMMAND, FILES, COUNTS = OWN = "program", "files", "counts"
"""Options of a spec that describe the program, and so are no settings."""
OWN_FILES = "list the program's own files in --program-settings FILE.toml, as [program] files = "
"""What to do if the program writes a file that its command names; the list follows."""
SETTLED_SECONDS = 3
"""A file that was changed no longer ago may change once more without another time: some disks count in steps of 2 s."""
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}?")
_digests: dict[str, tuple[tuple[int, int, int], str]] = {}
"""What `digest` found, by path, with size, time and inode of the file: a worker asks for the same files before every run."""


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """Of a program that declares none."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What the user said of a program."""

    words: tuple[str, ...]
    """Its command; `{name}` stands for a value of the run."""
    counts: Counts | Mapping[int, Counts]
    """The data counts of every N, or of each."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that are its version, by path, with their digests (see `digest`)."""
    settings: type = NoSettings
    """What a user may choose, a frozen dataclass as `trainables.settings` has it."""

    @property
    def name(self) -> str:
        """What tables and figures call its data: its first file, or else its first word, in letters that fit everywhere."""
        stem = Path(next(iter(self.files), self.words[0])).stem
        return re.sub(r"[^\w.-]+", "-", stem)[:40] or COMMAND

    def counts_at(self, N: int) -> Counts:
        """
        Raises:
            ValueError: there are none for this N.
        """
        if isinstance(self.counts, Counts):
            return self.counts
        if N not in self.counts:
            raise ValueError(f"N = {N} has no data counts: those of N = {', '.join(map(str, self.counts))} are given")
        return self.counts[N]


class ProgramTask:
    """A task that a program carries out. All that describes it is in the options of a spec, so that a worker needs no more.

    Args:
        program: what the user said; None: the task that reads specs.
    """

    version = "1"

    def __init__(self, program: Program | None = None) -> None:
        self.program = program

    @property
    def settings(self) -> type:
        return NoSettings if self.program is None else self.program.settings

    def describe(self, spec: RunSpec) -> RunSpec:
        """The spec with all that its program is.

        Raises:
            ValueError: the program has no data counts for its N.
        """
        assert self.program is not None
        counts = self.program.counts_at(spec.N)
        told = {
            COMMAND: shlex.join(self.program.words),
            FILES: json.dumps(dict(self.program.files), sort_keys=True),
            COUNTS: f"{counts.low}..{counts.high}",
        }
        chosen = {f.name for f in dataclasses.fields(self.program.settings)}
        dataset = spec.dataset if "dataset" in chosen else self.program.name
        return dataclasses.replace(spec, dataset=dataset, options=(*spec.options, *told.items()))

    def counts(self, spec: RunSpec) -> Counts:
        text = str(dict(spec.options).get(COUNTS, ""))
        if not (found := re.fullmatch(r"([0-9]{1,10})\.\.([0-9]{1,10})", text)):
            raise ValueError("its spec does not say which data counts the program takes: give the program with --program")
        return Counts(int(found[1]), int(found[2]))

    def curve(self, spec: RunSpec) -> str:
        """What brackets have in common that lie on one curve: all but N, the seed, and the data counts that belong to N."""
        options = tuple((name, value) for name, value in spec.options if name != COUNTS)
        return family_key(dataclasses.replace(spec, N=1, seed=0, options=options), self.version)

    def data(self, spec: RunSpec) -> Data:
        _refuse()

    def model(self, spec: RunSpec) -> nn.Module:
        _refuse()

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        _refuse()


def _refuse() -> NoReturn:
    raise ValueError("a program keeps its data and its model to itself: it is started, not trained here")


def words_of(spec: RunSpec) -> list[str]:
    """The command of a run, its values in their places. What a value holds is never split.

    Raises:
        ValueError: there is no command, it names a value that there is none of, or an option is called as a value of every run.
    """
    values = values_of(spec)
    if not (words := shlex.split(str(dict(spec.options).get(COMMAND, "")))):
        raise ValueError("there is no command")
    return [fill(word, values) for word in words]


def values_of(spec: RunSpec) -> dict[str, Scalar]:
    """What a command may name of a run, by name.

    Raises:
        ValueError: an option is called as a value of every run, which it would hide.
    """
    values: dict[str, Scalar] = {name: value for name, value in spec.options if name not in OWN}
    if hidden := [name for name in (*VALUES, *IN_SPEC) if name in values]:
        raise ValueError(f"the option {hidden[0]} has the name of a value that every run has")
    return {name: getattr(spec, name) for name in (*VALUES, *IN_SPEC)} | values


def fill(word: str, values: Mapping[str, Scalar]) -> str:
    """A word of a command with values for each `{name}`, and a brace for each `{{` and `}}`.

    Raises:
        ValueError: as `names_in`.
    """
    names_in([word], values)
    return _PLACE.sub(lambda found: found[0][0] if found[1] is None else _text(values[found[1]]), word)


def names_in(words: Sequence[str], known: Collection[str]) -> set[str]:
    """The names that a command has places for.

    Raises:
        ValueError: one is not known.
    """
    places = [found for word in words for found in _PLACE.finditer(word) if found[1] is not None]
    for place in places:
        if not place[0].endswith("}") or place[1] not in known:
            told = f"{place[0]} is no value of a run: choose one of {', '.join(known)}, and write {{{{ for a brace"
            if place[0].endswith("}") and place[1].isidentifier() and place[1] not in (*RESERVED, *OWN):
                told += f". If it is a setting of the program, declare it: --vary {place[1]}=VALUE"
            raise ValueError(told)
    return {place[1] for place in places}


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def digest(path: str) -> str:
    """
    Raises:
        OSError: the file cannot be read, or is none, as a pipe is, which could be read for ever.
    """
    about = _stat(path)  # before it is opened: a device may do something at that
    stamp = about.st_size, about.st_mtime_ns, about.st_ino
    known, text = _digests.get(path, (None, ""))
    if known == stamp:
        return text
    left, found = about.st_size, hashlib.sha256()
    with open(path, "rb", buffering=0, opener=_opened) as file:
        while left and (chunk := file.read(min(left, 1 << 20))):  # no further: some files of the system have no end
            found.update(chunk)
            left -= len(chunk)
    text = found.hexdigest()[:24]
    if time.time() - about.st_mtime > SETTLED_SECONDS:
        _digests[path] = stamp, text
    return text


def _opened(path: str, flags: int) -> int:
    """A file opened so that nothing is waited for, as who writes to a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def changed_files(spec: RunSpec, most: int | None = None) -> list[str]:
    """The files of a run's program that are not what they were when the study began.

    Args:
        most: bytes that are read of all together; None: as many as there are.

    Raises:
        ValueError: what the run says of them is no list of files, or they have more bytes.
    """
    left, changed = math.inf if most is None else most, []
    for path, known in files_of(dict(spec.options)).items():
        try:
            if (size := _stat(path).st_size) > left:
                told = f"{path} has {size:,} bytes, more than are read of the {FILES} of a run, at most {most:,} of all"
                raise ValueError(f"{told}: the program is too large to be looked at")
            left -= size
            found = digest(path)
        except OSError:
            found = ""
        if found != known:
            changed.append(path)
    return changed


def files_of(options: Mapping[str, Scalar]) -> dict[str, str]:
    """The files that the options of a run name as those of its program, by path, with their digests.

    Raises:
        ValueError: what they say is no list of files.
    """
    try:
        files = json.loads(str(options.get(FILES)))
    except (ValueError, RecursionError):
        files = None
    if not isinstance(files, dict) or not all(isinstance(known, str) and _is_path(path) for path, known in files.items()):
        raise ValueError(f"the run's {FILES} say of no program which files it has: the row is not one of this project")
    return files


def _is_path(path: str) -> bool:
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:  # half a letter
        return False


def _stat(path: str) -> os.stat_result:
    """
    Raises:
        OSError: there is no such file.
    """
    found = Path(path).stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no file", path)
    return found
