"""What a user writes of the settings that a search may choose: `lr=1e-4..1e-2:log,width=32|64|128,decoder=cnn|mlp`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.command.ranges import parse_range
from orchestrator.errors import UserError
from orchestrator.searches.space import Dimension
from trainables.settings import RUN_SETTINGS, Setting
from trainables.spec import Scalar

OF_RUN = {name: RUN_SETTINGS[name] for name in ("lr", "weight_decay", "batch_size", "max_steps", "schedule", "N", "data_count")}
"""What may be searched of every run, besides the settings of its task."""
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
RANGE = re.compile(f"({NUMBER})-({NUMBER})")
"""What people write of ranges, and is none here."""
OF_TRIALS = ("number", "seeds", "state", "steps", "key")
"""Columns of the table of trials, besides the settings and the objectives."""
OF_CONFIRMED = ("setting", "seeds", "failed", "winner")
"""The same of the table of confirmed settings."""
PARTS = ("_search", "", "_lower", "_upper")
"""Of an objective in that table: in the search, on fresh seeds, and the ends of the interval."""
HINT = "write NAME=LOW..HIGH, NAME=LOW..HIGH:log, NAME=LOW..HIGH:STEP, NAME=A|B|C, or NAME=0|LOW..HIGH:log"


def read_search(texts: Sequence[str], known: Mapping[str, Setting], *, exact: bool = False) -> list[Dimension]:
    """The dimensions of a search as `--search` names them, separated by commas.

    Args:
        known: what may be searched, by name.
        exact: whether spaces beside a bar are part of the words, as in questions of former versions.

    Raises:
        UserError: an unknown name, or values that the setting may not have.
    """
    if any(not text.strip() for text in texts):
        raise UserError(f"--search is empty: {HINT}")
    found: dict[str, Dimension] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, spec = part.partition("=")
        if not part:
            raise UserError(f"--search {','.join(texts)!r} has nothing before or after a comma: leave the comma out, or {HINT}")
        if not equals or not spec:
            raise UserError(f"--search {part!r} names no values: {HINT}")
        if name not in known:
            raise UserError(f"--search {part!r}: there is no setting {name!r} to search: choose one of {', '.join(known)}")
        if name in found:
            raise UserError(f"--search {part!r}: {name} is searched twice: keep one of the two")
        choices = spec.split("|")
        found[name] = _dimension(part, known[name], choices if exact else [choice.strip() for choice in choices])
    return list(found.values())


def taken_names(names: Sequence[str], aims: Sequence[str]) -> dict[str, str]:
    """Of these settings and objectives, those whose name a column of the tables has already, each with its option."""
    own = {*OF_TRIALS, *OF_CONFIRMED, *(["unreached"] if "steps" in aims else [])}
    taken = {name: "--search" for name in names if name in own | {f"{aim}{part}" for aim in aims for part in PARTS}}
    return taken | {aim: "--objective" for aim in aims if aim in own - {"steps"}}


def check_columns(names: Sequence[str], aims: Sequence[str]) -> None:
    """
    Args:
        names: of the searched settings.
        aims: of the objectives.

    Raises:
        UserError: a table would have two columns of one name.
    """
    for name, option in taken_names(names, aims).items():
        raise UserError(
            f"{option} {name} is not possible, because the tables of the answer have another column of that name: "
            f"rename it in the task, for example to own_{name}"
        )


def _dimension(part: str, setting: Setting, choices: Sequence[str]) -> Dimension:
    words: list[Scalar] = []
    ranges = []
    for choice in choices:
        if ".." in choice and setting.kind in (int, float):
            ranges.append(choice)
        else:
            words.append(_value(part, setting, choice))
    if len(ranges) > 1:
        raise UserError(f"--search {part!r} has two ranges: keep one")
    if len(set(words)) < len(words):
        raise UserError(f"--search {part!r} names a value twice: keep one of the two")
    if not ranges:
        if len(words) < 2:
            raise UserError(f"--search {part!r} leaves nothing to choose: {HINT}")
        return Dimension(setting.name, tuple(words))
    span, _, how = ranges[0].partition(":")
    low, high = (setting.kind(_value(part, setting, end)) for end in (span.partition("..")[0], span.partition("..")[2]))
    if low >= high:
        raise UserError(f"--search {part!r} is an empty range, because {low:g} is not below {high:g}: {HINT}")
    step = 1 if setting.kind is int else None
    if how == "log":
        if low <= 0:
            raise UserError(f"--search {part!r}: a log range begins above 0, not at {low:g}: for 0 too, write 0|LOW..HIGH:log")
    elif how and not (setting.kind is int and re.fullmatch(r"0*[1-9][0-9]{0,9}", how)):
        raise UserError(f"--search {part!r}: {how!r} is no way to divide this range: {HINT}, with STEP for whole numbers alone")
    elif how:
        step = int(how)
    elif ":" in ranges[0]:
        raise UserError(f"--search {part!r} ends in a colon: {HINT}")
    if any(low <= word <= high for word in words if not isinstance(word, str)):
        raise UserError(f"--search {part!r} names a value that lies in its range: keep one of the two")
    if step is not None:
        if step > high - low:
            raise UserError(f"--search {part!r} has the value {low:g} alone, because its step is longer than the range: {HINT}")
        high = low + (int(high) - int(low)) // step * step
    return Dimension(setting.name, tuple(words), (low, high), log=how == "log", step=step)


def _value(part: str, setting: Setting, text: str) -> Scalar:
    """The value that a user wrote, if the setting may have it."""
    try:
        value: Scalar = setting.check(setting.read(text))
    except ValueError as error:
        ends = RANGE.fullmatch(text) if setting.kind in (int, float) else None
        if ends is not None:
            raise UserError(f"--search {part!r} has no range: write {setting.name}={ends[1]}..{ends[2]}") from None
        raise UserError(f"--search {part!r}: {error}") from None
    if setting.name == "lr" and isinstance(value, float) and value <= 0:
        raise UserError(f"--search {part!r}: lr must be above 0, not {value:g}")
    return value


def read_weight(name: str, text: str) -> Dimension | float:
    """What `--lambda-entropy` says: a range that is searched evenly in the logarithm, with 0 or without, or one number.

    Raises:
        UserError: it is none.
    """
    zero, _, rest = text.rpartition("|")
    try:
        if zero not in ("", "0"):
            raise ValueError(f"{text!r} has {zero!r} before the bar, where only 0 may stand")
        low, high = parse_range(rest)
        if zero and low == high:
            raise ValueError(f"{text!r} has no range after the bar: write 0|LOW..HIGH, for example 0|0.001..1")
    except ValueError as error:
        raise UserError(f"--{name.replace('_', '-')} {error}") from None
    return low if low == high else Dimension(name, (0.0,) if zero else (), (low, high), log=True)
