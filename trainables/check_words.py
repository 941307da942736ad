"""Whether a task's words are what a study asks for: its version, its loss, and its settings with their defaults."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainables.objectives import LOSSES, loss_of
from trainables.printed import reason_of as reason_of
from trainables.settings import WORDS, SettingsError, complete, settings_class, settings_of
from trainables.spec import Scalar
from trainables.task import Task

SHAPE = ("depth", "width", "holdout")
NETWORK = ("decoder", "depth", "width")
"""Settings that no pack can vary."""


def check_words(task: Task) -> None:
    """The part of `check.check_task` that needs no spec.

    Raises:
        ValueError: a member is something else than it should be.
    """
    if not isinstance(task.version, str):
        raise ValueError(f"the task's version must be a word, such as '1', not {task.version!r}")
    if loss_of(task) not in LOSSES:
        raise ValueError(f"the task's loss must be {' or '.join(LOSSES)}, not {loss_of(task)!r}")
    if not hasattr(task, "settings"):
        _check_former(task)
    known = settings_of(settings_class(task))
    _check_names(task, "packable", "settings", [name for name in known if name not in NETWORK])
    of_words = {name: known[name].words if name in known else () for name in ("dataset", "decoder")}
    _check_names(task, "cheap", "decoders", of_words["decoder"])
    for words in itertools.product(*(given or ("",) for given in of_words.values())):
        chosen = {name: word for name, word in zip(of_words, words, strict=True) if word}
        with blamed(f"settings of {' and '.join(map(repr, chosen.values()))}" if chosen else "settings", SettingsError):
            complete(task, chosen)


def _check_former(task: Any) -> None:
    """What a task has in place of `settings`."""
    _check_choices(task.choices)
    _check_defaults(task.defaults)
    for dataset in task.choices["dataset"]:
        for decoder in task.choices["decoder"]:
            _check_preset(task, dataset, decoder)


def _check_choices(choices: Mapping[str, tuple[str, ...]]) -> None:
    if not isinstance(choices, Mapping):
        raise ValueError(f"the task's choices must be a mapping with {', '.join(WORDS)}, not a {kind_of(choices)}")
    if missing := [name for name in WORDS if name not in choices]:
        raise ValueError(f"the task's choices must have {', '.join(WORDS)}, and lack {', '.join(missing)}")
    for name in WORDS:
        words = choices[name]
        if not (isinstance(words, tuple) and words and all(isinstance(word, str) and word for word in words)):
            raise ValueError(f"the task's choices[{name!r}] must be a tuple of at least one word, not {words!r}")


def _check_defaults(defaults: Mapping[str, Scalar]) -> None:
    if not isinstance(defaults, Mapping):
        raise ValueError(f"the task's defaults must be a mapping from names to values, not a {kind_of(defaults)}")
    for name, value in defaults.items():
        if not isinstance(name, str):
            raise ValueError(f"the task's defaults must have words as names, not {name!r}")
        if not isinstance(value, Scalar):
            raise ValueError(f"the task's defaults[{name!r}] must be a number, a word, True or False, not {value!r}")


def _check_names(task: Task, member: str, what: str, known: Collection[str]) -> None:
    """Of an optional member that lists names."""
    names: Any = getattr(task, member, ())
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ValueError(f"the task's {member} must be a tuple of {what}, not {names!r}")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"the task's {member} must name some of its {what}, {', '.join(known) or 'none'}, not {unknown[0]!r}")


def _check_preset(task: Any, dataset: str, decoder: str) -> None:
    call = f"preset({dataset!r}, {decoder!r})"
    with blamed(call):
        preset = task.preset(dataset, decoder)
    if not isinstance(preset, Mapping):
        raise ValueError(f"the task's {call} must give a mapping with {', '.join(SHAPE)}, not a {kind_of(preset)}")
    if missing := [name for name in SHAPE if name not in preset]:
        raise ValueError(f"the task's {call} must give {', '.join(SHAPE)}, and lacks {', '.join(missing)}")
    for name in ("depth", "width"):
        if type(preset[name]) is not int:
            raise ValueError(f"the task's {call} must give a whole number as {name}, not {preset[name]!r}")
    if preset["holdout"] not in (allowed := task.choices["holdout"]):
        holdout = preset["holdout"]
        raise ValueError(f"the task's {call} must give a holdout of its choices, {', '.join(allowed)}, not {holdout!r}")


@contextlib.contextmanager
def blamed(member: str, *passed: type[Exception]) -> Iterator[None]:
    """An exception becomes a sentence about the member, unless it is one of those passed on."""
    try:
        yield
    except passed:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(f"the task's {member} fails with {reason_of(error)}") from error


def kind_of(value: object) -> str:
    return type(value).__name__
