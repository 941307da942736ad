"""What launches were asked, each question in a small file beside the rows that answer it.

    DIR/questions/STUDY-HASH.json    the question, the settings of its command, and the command as it was typed

The hash covers what defines a question: so the same command replaces its file, and another question adds one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import printable
from orchestrator.store.artifacts import Artifacts
from orchestrator.store.folder import Folder
from orchestrator.store.place import Place, UnreadableError
from trainables.spec import RunSpec

FOLDER = "questions"
STUDY = re.compile(r"[a-z][a-z0-9-]{0,49}")
RUNS, THRESHOLDS, TRIALS = "runs", "thresholds", "trials"
"""Parts of questions: all runs of a study; runs for which a search looks for the least data count, or for the best options."""
MOST_BYTES = 1 << 20
"""Of a file. A study of 10,000 runs takes a third of it."""
MOST_FILES = 2000
DEEPEST = 8
"""Levels that lists and objects of a file may have."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a launch was asked.

    `specs` are the runs that the study names beforehand, by their part in it, and `search` says how further ones are found:
    with the study and the version of the task they define the question. `settings` are those of the answer, which also say
    where it was written and with which versions. `facts` are what the task says of these runs and the search has to know: with
    them it can be made again where the task is not loaded.
    """

    study: str
    task_version: str
    specs: Mapping[str, Sequence[RunSpec]]
    search: Mapping[str, Any]
    settings: Mapping[str, Any]
    command: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The import path of the task of all its runs."""
        return self.every_spec[0].task

    @property
    def every_spec(self) -> list[RunSpec]:
        """Those of all parts."""
        return [spec for of_part in self.specs.values() for spec in of_part]

    @cached_property
    def name(self) -> str:
        """The name of its file, without `.json`."""
        text = json.dumps(self._defining(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return f"{self.study}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def to_bytes(self) -> bytes:
        """The contents of its file."""
        value = {**self._defining(), "settings": dict(self.settings), "command": list(self.command), "facts": dict(self.facts)}
        return (json.dumps(value, allow_nan=False) + "\n").encode()

    @classmethod
    def of(cls, data: bytes, name: str) -> Question:
        """The question in a file, which may come from anywhere.

        Raises:
            ValueError: it is none, or not the one that its name says.
        """
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise ValueError("it is no JSON text") from None
        check_values(value)
        kinds = {"study": str, "task_version": str, "specs": dict, "search": dict, "settings": dict, "command": list}
        if not isinstance(value, dict) or any(not isinstance(value.get(n), kind) for n, kind in kinds.items()):
            raise ValueError(f"it must have {', '.join(kinds)}")
        if not STUDY.fullmatch(value["study"]):
            raise ValueError(f"study must be the name of a study, not {value['study']!r:.100}")
        if not all(isinstance(word, str) for word in value["command"]):
            raise ValueError("command must be a list of words")
        if not isinstance(facts := value.get("facts", {}), dict):
            raise ValueError("facts must be an object")
        specs = {part: _unpacked(packed) for part, packed in value["specs"].items()}
        if len({spec.task for of_part in specs.values() for spec in of_part}) != 1:
            raise ValueError("its runs must be those of one task")
        if twice := [part for part, of_part in specs.items() if len(set(of_part)) < len(of_part)]:
            raise ValueError(f"its {twice[0]!r:.100} must name every run once")
        question = cls(**{**{n: value[n] for n in kinds}, "specs": specs, "facts": facts})
        if question.name != name:
            raise ValueError("its name is that of another question")
        return question

    def _defining(self) -> dict[str, Any]:
        specs = {part: _packed(specs) for part, specs in self.specs.items() if specs}
        return {"study": self.study, "task_version": self.task_version, "specs": specs, "search": dict(self.search)}


def save_question(store: Artifacts, question: Question) -> bool:
    """Keep a question, in place of the one that asks the same. One that is too large is not kept: `notices` say so.

    Returns:
        Whether the store has it for the first time.

    Raises:
        StoreError: it cannot be written.
    """
    place, name, data = store.place, _file(question.name), question.to_bytes()
    if len(data) > MOST_BYTES:
        why = f"the question takes {len(data)} bytes, more than the {MOST_BYTES} of a file"
        place.note(f"{why}: it is not stored, and the report guesses from the rows what was asked")
        return False
    with place.in_words("save the question"):
        is_new = not place.exists(name)
        try:
            is_kept = _load(place, name) == data
        except UnreadableError:
            is_kept = False
        if not is_kept:
            place.save(name, data)
    return is_new


def drop_question(store: Artifacts, question: Question) -> None:
    """Remove a question of which no run was stored.

    Raises:
        StoreError: it cannot be removed.
    """
    with store.place.in_words("remove the question"):
        store.place.delete([_file(question.name)])


def load_questions(store: Artifacts) -> list[Question]:
    """The questions of a store, by name. A file that is damaged or foreign is left out and named in `notices`."""
    place, questions = store.place, []
    with place.in_words("read the questions"):
        place.refresh(FOLDER)
        here = Folder(place.path)
        names = sorted(file.stem for file in place.files(FOLDER) if file.suffix == ".json")
        if len(names) > MOST_FILES:
            place.note(f"{place.shown(FOLDER)} has {len(names)} questions: only the first {MOST_FILES} are read")
        for name in names[:MOST_FILES]:
            try:
                data = _load(here, _file(name))
                if data is not None:
                    questions.append(Question.of(data, name))
                elif os.path.lexists(place.path / _file(name)):
                    raise ValueError("it is a broken link")
            except (UnreadableError, ValueError) as error:
                place.note(left_out(place.location, name, str(error)))
    return questions


def left_out(location: str | Path, name: str, why: str) -> str:
    """A line about a question that cannot be used."""
    return printable(f"left out {location}/{_file(name)}: {why}; the report guesses from the rows what was asked")


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def _load(place: Place, name: str) -> bytes | None:
    """The contents of a file; None if there is none.

    Raises:
        UnreadableError: it cannot be read, or is too large for a question.
    """
    if (size := place.size(name)) is not None and size > MOST_BYTES:
        raise UnreadableError(f"it has {size} bytes, more than {MOST_BYTES}")
    return place.load(name)


def _packed(specs: Sequence[RunSpec]) -> dict[str, Any]:
    """Some specs as JSON: the fields that they share, and, of the others, the value of each spec in a list."""
    rows = [spec.to_dict() for spec in specs]
    shared = {name: value for name, value in rows[0].items() if len({repr(row[name]) for row in rows}) == 1}
    return {"shared": shared, "varied": {name: [row[name] for row in rows] for name in rows[0] if name not in shared}}


def _unpacked(packed: Any) -> list[RunSpec]:
    """
    Raises:
        ValueError: `packed` is nothing that `_packed` made.
    """
    shared, varied = (packed.get(name) if isinstance(packed, dict) else None for name in ("shared", "varied"))
    if not isinstance(shared, dict) or not isinstance(varied, dict) or not all(isinstance(v, list) for v in varied.values()):
        raise ValueError("specs must have what is shared, and lists of what is varied")
    rows = zip(*varied.values(), strict=True) if varied else [()]
    return [RunSpec.from_dict({**shared, **dict(zip(varied, row, strict=True))}) for row in rows]


def check_values(value: Any, levels: int = 0) -> None:
    """
    Raises:
        ValueError: a number is not finite, a text is none, or lists and objects are too deep.
    """
    if levels > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    if isinstance(value, str):
        value.encode()  # a UnicodeEncodeError is a ValueError
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            check_values(part, levels + 1)
