"""What a task lets its users choose: a frozen dataclass, from which options, `--help`, validation and columns derive.

    @dataclass(frozen=True, kw_only=True)
    class ChordSettings:
        decoder: str = setting("linear", "What learns the chords.", words=("linear", "mlp"))
        width: int = setting(128, "Units of a hidden layer.", low=1)
        error: float = setting(0.1, "A chord is right when its relative error is below this.")

        def __post_init__(self):
            if not 0 < self.error < 1:
                raise ValueError(f"error must lie between 0 and 1, not {self.error}")
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from trainables.printed import reason_of
from trainables.spec import LIMITS, SCHEDULES, SPEC_FIELDS, RunSpec, Scalar, is_usable

WORDS = ("dataset", "decoder", "encoding", "holdout")
IN_SPEC = {"dataset": "", "decoder": "", "depth": 0, "width": 1, "encoding": "", "holdout": ""}
"""Settings that a `RunSpec` has a field for, with what the field holds where a task has no such setting. All others are its
`options`."""
RESERVED = frozenset(SPEC_FIELDS) - IN_SPEC.keys()
"""Names that mean something in every run, and so are no settings."""
WORDS_OF = {bool: "True or False", int: "a whole number", float: "a finite number", str: "a word"}
KINDS = tuple(WORDS_OF)

_TOLD = ("help", "words", "low", "high", "shown", "later")
"""What `setting` tells of a field. Metadata of other names are another's."""

S = TypeVar("S")
T = TypeVar("T")


def setting(
    default: Scalar | None, help: str = "", *, words: tuple[Scalar, ...] = (), low: float | None = None,
    high: float | None = None, shown: str = "", later: bool = False,
) -> Any:  # fmt: skip
    """A field of a settings class.

    Args:
        default: its value if the user says nothing. None: `__post_init__` of the class chooses it, given the others.
        help: one line for `--help`.
        words: all words, or numbers, that are allowed; any if empty.
        low, high: least and largest number, both included.
        shown: the default in words, where it depends on others.
        later: the setting was added to a task that has results. A run with its default does not carry it, so that runs from
            before keep their keys; the default has to mean what such runs did. See `value_of`.
    """
    told = {"help": help, "words": words, "low": low, "high": high, "shown": shown, "later": later}
    return dataclasses.field(default=default, metadata=told)


class SettingsError(ValueError):
    """A mistake in a task's settings: they raise something else than a ValueError, or leave one without a value."""


class ChangedError(ValueError):
    """The settings of a task change a value that they were given."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a task."""

    name: str
    kind: type
    default: Scalar | None
    help: str = ""
    words: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    shown: str = ""
    later: bool = False

    def read(self, text: Scalar) -> Scalar:
        """The value that a user wrote; see `unsigned`. What is no text is a value itself, which has to be a whole number where
        one is due.

        Raises:
            ValueError: it is of another type.
        """
        try:
            if self.kind is int and isinstance(text, float) and not text.is_integer():
                raise ValueError
            return unsigned(_boolean(text) if self.kind is bool else self.kind(text))
        except (ValueError, OverflowError):
            raise ValueError(f"the option {self.name} takes {WORDS_OF[self.kind]}, not {text!r}") from None

    def check(self, value: Any) -> Scalar:
        """The value, if the setting may have it; a whole number becomes a float where one is due.

        Raises:
            ValueError: another type, a word that is not allowed, or a number that is out of range.
        """
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool) and is_usable(value):
            value = float(value)
        kind: type = type(value)
        if kind is not self.kind or not (kind is str or is_usable(value)):
            raise ValueError(f"{self.name} must be {WORDS_OF[self.kind]}, not {value!r}")
        if self.words and value not in self.words:
            raise ValueError(f"{self.name} {value!r} is unknown: choose {alternatives(self.words)}")
        if self.low is not None and value < self.low:
            raise ValueError(f"{self.name} must be at least {self.low:g}, not {value!r}")
        if self.high is not None and value > self.high:
            raise ValueError(f"{self.name} must be at most {self.high:g}, not {value!r}")
        return cast(Scalar, value)


_COUNTS = ("N", "data_count", "batch_size", "max_steps")
RUN_SETTINGS: Mapping[str, Setting] = {
    **{name: Setting(name, int, None, low=LIMITS[name][0], high=LIMITS[name][1]) for name in _COUNTS},
    "lr": Setting("lr", float, None),
    "weight_decay": Setting("weight_decay", float, None, low=0),
    "target": Setting("target", float, None, low=0, high=1),
    "schedule": Setting("schedule", str, None, words=SCHEDULES),
}
"""Settings that every run has and a user may vary, besides those of its task."""


def alternatives(words: Sequence[Scalar]) -> str:
    """`a, b or c`."""
    return listed(words, "or")


def listed(words: Sequence[Scalar], last: str = "and") -> str:
    """`a, b and c`, or with another word before the last."""
    told = [*map(str, words)]
    return f" {last} ".join(filter(None, (", ".join(told[:-1]), told[-1])))


def unsigned(value: T) -> T:
    """What a user gave, 0.0 where it is -0.0: they are equal, and a run has another key with each. So this is for what is read;
    a run that is stored is what it is."""
    return 0.0 if isinstance(value, float) and value == 0 else value  # type: ignore[return-value]


def settings_class(task: Any) -> type:
    """The settings of a task: its `settings`, or a class made of its `choices`, `defaults` and `preset`."""
    return getattr(task, "settings", None) or _made_of(task)


def settings_of(kind: type) -> dict[str, Setting]:
    """Every setting of a settings class, by name, in the order of its fields.

    Raises:
        ValueError: what is given is no frozen dataclass, or a field has no default, another type than bool, int, float or str,
            or the name of something that every run has.
    """
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise ValueError(f"the task's settings must be a frozen dataclass, not {kind!r}")
    return dict(_settings_of(kind))


@functools.lru_cache
def _settings_of(kind: type) -> Mapping[str, Setting]:
    """What `settings_of` gives, read once for every class: a search asks for every run that it proposes."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception as error:
        raise ValueError(f"the task's settings have a type that cannot be read ({error})") from error
    found = {}
    for field in dataclasses.fields(kind):
        of_field = [hint for hint in _parts(hints[field.name]) if hint is not types.NoneType]
        if len(of_field) != 1 or of_field[0] not in KINDS:
            raise ValueError(f"the task's setting {field.name} must be a bool, int, float or str, not {hints[field.name]!r}")
        if field.name in RESERVED:
            raise ValueError(f"the task's setting {field.name} has the name of something that every run has: rename it")
        if field.default is dataclasses.MISSING:
            raise ValueError(f"the task's setting {field.name} must have a default")
        if field.metadata.get("later") and (field.default is None or field.name in IN_SPEC):
            raise ValueError(f"the task's setting {field.name} cannot be a later one: it {_why_not_later(field.name)}")
        one = Setting(field.name, of_field[0], field.default, **{k: v for k, v in field.metadata.items() if k in _TOLD})
        if field.default is not None:
            try:
                one = dataclasses.replace(one, default=one.check(field.default))
            except ValueError as error:
                raise ValueError(f"the task's default of the setting {error}") from None
        found[field.name] = one
    return found


def complete(task: Any, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """All settings of a task: those given, and what the task chooses for the others.

    Raises:
        ValueError: a setting that the task does not have, or a value that it may not have.
    """
    return _complete(settings_class(task), given)


def _complete(kind: type, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    known = settings_of(kind)
    for name in given:
        if name not in known:
            raise ValueError(f"this task has no option {name!r}: its options are {', '.join(known) or 'none'}")
    checked = {name: known[name].check(value) for name, value in given.items()}
    try:
        chosen = kind(**checked)
    except ValueError:
        raise
    except Exception as error:
        given_ = ", ".join(f"{name} = {value!r}" for name, value in checked.items()) or "their defaults"
        reason = reason_of(error)
        raise SettingsError(f"the task's settings fail with {reason}, given {given_}: choose other values") from error
    if none := [name for name in known if getattr(chosen, name) is None]:
        raise SettingsError(f"the task's settings leave {none[0]} at None: give it another default, or set it in __post_init__")
    return {name: each.check(getattr(chosen, name)) for name, each in known.items()}


def spec_fields(task: Any, given: Mapping[str, Scalar]) -> dict[str, Any]:
    """The fields of a `RunSpec` that hold the settings of a task; see `complete`.

    Raises:
        ValueError: as `complete`.
    """
    kind = settings_class(task)
    values = _complete(kind, given)
    nothing = IN_SPEC | {"dataset": type(task).__name__.lower()}  # what tables and figures call the data
    fields: dict[str, Any] = {name: values.pop(name, nothing[name]) for name in IN_SPEC}
    later = _later(kind)
    return {**fields, "options": tuple((name, value) for name, value in values.items() if not _is(later.get(name), value))}


def read_settings(kind: type[S], spec: RunSpec) -> S:
    """The settings of a run, as an object of the task's own class: `read_settings(ChordSettings, spec).error`."""
    return kind(**_held(kind, spec))


def _held(kind: Any, spec: RunSpec) -> dict[str, Scalar]:
    """The values that a run has of the settings."""
    options = {**_later(kind), **dict(spec.options)}
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: getattr(spec, name) if name in IN_SPEC else options[name] for name in names}


def check_kept(kind: type[Any], spec: RunSpec) -> None:
    """Whether `read_settings` gives what a run has. Where it fails, a task that asks for it fails by itself.

    Raises:
        ChangedError: it gives another value.
    """
    try:
        held, read = _held(kind, spec), read_settings(kind, spec)
    except Exception:
        return
    for name, value in held.items():
        if (made := getattr(read, name)) != value:
            told = f"the task's settings make {name} {made} of {value} when they are read from a run"
            raise ChangedError(f"{told}: __post_init__ must keep what it has made, so convert a value where it is used")


def check_asked(task: Any, spec: RunSpec, asked: Mapping[str, Scalar]) -> None:
    """
    Raises:
        ChangedError: the task has made another value of one that was asked for.
    """
    for name, value in asked.items():
        if (made := value_of(spec, name)) != value:
            check_kept(settings_class(task), spec)
            raise ChangedError(f"the task makes {name} {made} of {value}: ask for {made}")


def value_of(spec: RunSpec, name: str) -> Scalar:
    """The field or setting of a run that is called `name`; the default of a later one that the run does not carry.

    A task that this process has not imported is not imported for that.

    Raises:
        KeyError: the run has no such field or setting.
    """
    try:
        return spec.value(name)
    except KeyError:
        return _later_of(spec)[name]


def with_values(spec: RunSpec, values: Mapping[str, Scalar]) -> RunSpec:
    """The same run with other values of some fields and settings."""
    own = {*SPEC_FIELDS} - {"options"}
    fields: dict[str, Any] = {name: value for name, value in values.items() if name in own}
    options, later = dict(spec.options) | {name: values[name] for name in values.keys() - own}, _later_of(spec)
    carried = tuple((name, value) for name, value in options.items() if not _is(later.get(name), value))
    return dataclasses.replace(spec, **fields, options=carried)


def defaults_of(kind: type) -> dict[str, Scalar]:
    """The defaults of the settings that are `options` of a spec."""
    return {name: each.default for name, each in settings_of(kind).items() if name not in IN_SPEC and each.default is not None}


def _later(kind: type) -> dict[str, Scalar]:
    """The defaults of the later settings."""
    return {name: cast(Scalar, each.default) for name, each in _settings_of(kind).items() if each.later}


def _later_of(spec: RunSpec) -> dict[str, Scalar]:
    """The same of the task of a run; none if this process has not imported it."""
    module, _, name = spec.task.partition(":")
    kind = getattr(getattr(sys.modules.get(module), name, None), "settings", None)
    return _later(kind) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else {}


def _is(default: Scalar | None, value: Scalar) -> bool:
    """1, 1.0 and True are three values."""
    return type(default) is type(value) and default == value


def _why_not_later(name: str) -> str:
    return "is a field of every run" if name in IN_SPEC else "needs a default that runs from before had"


def _made_of(task: Any) -> type:
    """A settings class for a task that has `choices`, `defaults` and `preset` in its place."""

    def choose(self: Any) -> None:
        preset = task.preset(self.dataset, self.decoder)
        for name in ("depth", "width", "holdout"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, preset[name])

    help = {"dataset": "Data set.", "decoder": "Kind of network.", "depth": "Hidden layers.", "width": "Units per layer."}
    help |= {"encoding": "Code of the inputs.", "holdout": "What is held out."}
    fields: list[tuple[str, Any, Any]] = []
    for name, line in help.items():
        if name in WORDS:
            words = tuple(task.choices[name])
            default = None if name == "holdout" else words[0]
            fields.append((name, str, setting(default, line, words=words, shown=default or "the task's choice")))
        else:
            low, high = LIMITS[name]
            fields.append((name, int, setting(None, line, low=low, high=high, shown="the task's choice")))
    fields += [(name, type(value), setting(value)) for name, value in task.defaults.items()]
    return dataclasses.make_dataclass("Settings", fields, frozen=True, kw_only=True, namespace={"__post_init__": choose})


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _boolean(value: Scalar) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]
