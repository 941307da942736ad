"""What a threshold study asks: the least value of one setting, along the values of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainables import settings
from trainables.spec import SPEC_FIELDS, RunSpec, Scalar


@dataclass(frozen=True, slots=True)
class Axes:
    """The setting whose least value is searched, and the one along which this is done."""

    least: str = "data_count"
    along: str = "N"
    scaled: bool = True
    """Whether the values along are positive numbers, through which a power law may go. Others are categories."""

    @classmethod
    def of(cls, least: str, along: str, values: Iterable[Scalar]) -> Axes:
        """From the values along."""
        return cls(least, along, all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in values))

    @property
    def is_usual(self) -> bool:
        """Whether the least data count along N is asked for."""
        return (self.least, self.along) == ("data_count", "N")

    @property
    def quantity(self) -> str:
        """What the least values are called in the columns of tables, whatever the task."""
        return "images" if self.least == "data_count" else self.least

    def is_floor(self, value: float, fixed: float) -> bool:
        """Whether nothing lies below a value, whatever is asked for: one sample, or none beside the `fixed` ones; of another
        setting, 0."""
        return value <= (0 if fixed else 1) if self.least == "data_count" else value == 0

    def words(self, task: str) -> str:
        """What the least values are called in lines and titles."""
        return samples_of(task) if self.least == "data_count" else self.least

    def told(self, value: object, task: str) -> str:
        """A value of the searched setting in words."""
        if self.least != "data_count":
            return f"{self.least} {value}"
        words = self.words(task)
        return f"{value} {words.removesuffix('s') if value == 1 else words}"


BUMPS = "trainables.bumps:BumpTask"
"""The task whose samples are images, and whose N is a grid size in pixels."""


def samples_of(task: str) -> str:
    """What the samples of a task are called."""
    return "images" if task == BUMPS else "samples"


USUAL = Axes()
WIDEST = 10**100
"""A range of floats ends at so many times its low end at most, one of whole numbers at this."""
FIELDS = frozenset(SPEC_FIELDS) - {"options"}


@dataclass(frozen=True, slots=True)
class Between:
    """The values of the searched setting, `low` to `high` inclusive: whole numbers, or floats above 0."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if isinstance(end, bool) or not isinstance(end, int | float):
                raise ValueError(f"a range is between two numbers, not {end!r:.100}")
        if not self.low <= self.high < float("inf"):
            raise ValueError(f"the range {self.low!r}..{self.high!r} is empty: it must end where it begins, or above")
        if self.low < 0 or (self.is_float and not self.low):
            allowed = "of floats begins above 0" if self.is_float else "begins at 0 or above"
            raise ValueError(f"a range {allowed}, not at {self.low!r}")
        if self.high > WIDEST * (self.low if self.is_float else 1):
            most = f"{WIDEST:.0e}{' times its low end' if self.is_float else ''}"
            raise ValueError(f"the range is too wide: it may end at {most} at most")

    @property
    def is_float(self) -> bool:
        return isinstance(self.low, float) or isinstance(self.high, float)

    @property
    def fixed(self) -> int:
        """Nothing is always present, as images may be."""
        return 0


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """A setting of a finished run; the default of a later one that the run does not carry."""
    if name in row["options"]:  # what a row tells besides, as its error, may have the name of one
        return row["options"][name]
    return row[name] if name in FIELDS else settings.value_of(RunSpec.from_dict(row), name)
