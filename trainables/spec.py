"""What one training is: an immutable, validated description, and the key under which its result is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Scalar = bool | int | float | str

PRECISIONS = ("float32", "bfloat16", "tf32")
STOPS = ("early", "target", "budget")
SCHEDULES = ("constant", "cosine")

LARGEST = 2**31 - 1
LIMITS = {
    "N": (1, LARGEST),
    "data_count": (0, LARGEST),
    "seed": (0, 2**63 - 1),
    "depth": (0, 1000),
    "width": (1, 2**14),
    "batch_size": (1, 2**16),
    "max_steps": (1, LARGEST),
}
"""Of whole numbers, both included: what the columns of a row hold, and networks that a machine can."""

NUMBERS: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
    ("target", "lie in (0, 1]", lambda value: 0 < value <= 1),
    ("lr", "be above 0 and finite", lambda value: value > 0),
    ("weight_decay", "be at least 0 and finite", lambda value: value >= 0),
)
"""Of other numbers: what they must be, in words and as a test."""

ADDED_LATER = {"schedule": "constant"}
"""Fields that keys do not cover at these values, so that rows from before there were such fields keep their keys."""

TRAINING_VERSION = "2"
"""Version of the training loop, part of every run key: raise it with any change after which the same spec could end
otherwise."""

RULE_VERSION = "1"
"""Version of the stopping rule, part of the keys of the runs that it may give up (`stop` = early): raise it with any change
after which it could give up another run, or the same run elsewhere. What was mended for few tasks left it as it was, so that
all others keep their runs: losses at or below 0, targets that are all the same or of 16 bits, frozen parameters."""

GIVEN_UP = "converged"
"""The `reason` in the row of a run that the stopping rule gave up."""

FORMER_VERSIONS = ("2", "1")
"""In keys of older rows, which are right and answer nothing any more. Before "2.1" the version of the rule was not told."""


class _Keyed:
    """Room for the run key, which is asked for again and again; no field, so that it is neither compared nor copied.
    It belongs to the object: equal specs may have different keys, as 1 equals 1.0."""

    __slots__ = ("_key",)
    _key: tuple[str, str]
    """Version of the task, and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(_Keyed):
    """One training, described completely: two equal specs give the same result on the same kind of device.

    `dataset`, `decoder`, `encoding`, `holdout` and `options` are words the task understands; nothing outside the
    task interprets them. `options` holds whatever else the task wants to know, sorted by name.

    Raises:
        ValueError: a number out of range or an unknown precision or stop rule.
    """

    task: str
    """Import path of the task, `module:Class`."""
    dataset: str
    N: int
    """Grid size: images are N x N pixels."""
    data_count: int
    """Training images drawn for this run. Images that are always present (stripes) come on top."""
    seed: int
    """Seeds the data order, the subset and the initial weights, each through its own generator."""
    decoder: str = "cnn"
    depth: int = 2
    """Hidden layers."""
    width: int = 64
    """Channels or units per hidden layer."""
    encoding: str = "bump"
    holdout: str = "random"
    options: tuple[tuple[str, Scalar], ...] = ()
    target: float = 0.9
    """Held-out accuracy at which the run has passed."""
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.01
    max_steps: int = 2000
    stop: str = "early"
    """When the run ends: `early`, as soon as the target is reached or the stopping rule gives it up; `target`, as soon as the
    target is reached; `budget`, after max_steps. An `early` run that is given up is the beginning of the `target` run."""
    precision: str = "float32"
    schedule: str = "constant"
    """Learning rate over the steps of the run: `constant`, or `cosine`, falling to 0 along half a cosine."""

    def __post_init__(self) -> None:
        for name in ("task", "dataset", "decoder", "encoding", "holdout"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a word, not {getattr(self, name)!r}")
        object.__setattr__(self, "options", tuple(sorted((str(k), v) for k, v in dict(self.options).items())))
        for name, value in self.options:
            if not isinstance(value, Scalar) or not (isinstance(value, str) or is_usable(value)):
                raise ValueError(f"the option {name} must be a word or a finite number, not {value!r}")
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        for name, words, holds in NUMBERS:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not is_usable(value) or not holds(value):
                raise ValueError(f"{name} must {words}, not {value!r}")
            object.__setattr__(self, name, float(value))
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        for name, allowed in (("stop", STOPS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")

    def option(self, name: str) -> Scalar:
        """The task option called `name`; KeyError if the spec does not carry it."""
        return dict(self.options)[name]

    def value(self, name: str) -> Scalar:
        """The field or the task option called `name`; KeyError if the spec has neither."""
        value: Scalar = getattr(self, name) if name in self.__dataclass_fields__ else self.option(name)
        return value

    def with_value(self, name: str, value: Scalar) -> RunSpec:
        """The same run with another value of this field or setting; see `settings.with_values`."""
        from trainables.settings import with_values  # which needs this module

        return with_values(self, {name: value})

    def to_the_end(self) -> RunSpec:
        """The same run if the stopping rule never gives it up."""
        return dataclasses.replace(self, stop="target")

    def with_count(self, data_count: int) -> RunSpec:
        """The same run with another number of training images."""
        return dataclasses.replace(self, data_count=data_count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, `options` as a dict; `from_dict` gives the spec back."""
        fields = {name: getattr(self, name) for name in SPEC_FIELDS}
        fields["options"] = dict(self.options)
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunSpec:
        """The spec with these values; a row has them too, and its other columns are passed over.

        Raises:
            ValueError: one is missing, or is none that a spec may have.
        """
        if missing := [name for name in SPEC_FIELDS if name not in fields]:
            raise ValueError(f"a run is described by {', '.join(SPEC_FIELDS)}, of which {', '.join(missing)} are missing")
        if not isinstance(fields["options"], Mapping):
            raise ValueError(f"options must be names with values, not {fields['options']!r}")
        return cls(**{**{name: fields[name] for name in SPEC_FIELDS}, "options": tuple(fields["options"].items())})


SPEC_FIELDS = tuple(RunSpec.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Counts:
    """Data counts a search may ask for, `low` to `high` inclusive; `fixed` images are always present on top of them."""

    low: int
    high: int
    fixed: int = 0

    @property
    def least_trained(self) -> int:
        """The lowest count with which there is a sample to train on."""
        return max(self.low, 1 - self.fixed)


def run_key(spec: RunSpec, task_version: str) -> str:
    """Identity of a run in every store: a hash of the canonical spec and of the versions of the task and the training loop."""
    version, key = getattr(spec, "_key", ("", ""))
    if not key or version != task_version:
        key = _digest(spec.to_dict(), task_version)
        object.__setattr__(spec, "_key", (task_version, key))
    return key


def family_key(spec: RunSpec, task_version: str) -> str:
    """Identity shared by all runs that differ in nothing but their data count: the probes of one threshold."""
    return _digest({**spec.to_dict(), "data_count": None}, task_version)


def former_families(spec: RunSpec, task_version: str) -> set[str]:
    """As `family_key`, in former versions of the training loop."""
    fields = {**spec.to_dict(), "data_count": None}
    return {_hash(_text(fields, task_version, version)) for version in FORMER_VERSIONS if version != _version(spec.stop)}


def has_keys(fields: dict[str, Any], task_version: str, key: str, family: str) -> bool:
    """Whether these are the keys of the run with these fields, and of its family, in some version of the training loop."""
    for version in (_version(fields["stop"]), *FORMER_VERSIONS):
        text = _text(fields, task_version, version)
        if _hash(text) == key:  # before `data_count` there are only numbers in the text
            return _hash(text.replace(f'"data_count":{fields["data_count"]},', '"data_count":null,', 1)) == family
    return False


def training_version(spec: RunSpec, task_version: str, key: str = "") -> str:
    """The version of the training loop in a key of this run; without a key, today's. Empty if it is none that there was."""
    now = _version(spec.stop)
    versions = (now, *FORMER_VERSIONS) if key else ()
    return next((v for v in versions if _hash(_text(spec.to_dict(), task_version, v)) == key), "" if key else now)


def _digest(spec: dict[str, Any], task_version: str) -> str:
    return _hash(_text(spec, task_version, _version(spec["stop"])))


def _version(stop: str) -> str:
    return f"{TRAINING_VERSION}.{RULE_VERSION}" if stop == "early" else TRAINING_VERSION


def _text(spec: dict[str, Any], task_version: str, training_version: str) -> str:
    spec = {name: value for name, value in spec.items() if name not in ADDED_LATER or value != ADDED_LATER[name]}
    value = {"spec": spec, "task_version": task_version, "training_version": training_version}
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def is_usable(value: float) -> bool:
    """Whether it is a finite number, and not subnormal: workers take such ones for 0."""
    try:
        return math.isfinite(value) and (value == 0 or abs(value) >= sys.float_info.min)
    except OverflowError:  # a whole number that no float holds
        return False
