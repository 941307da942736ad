"""What is told of a study, and the words for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os.path import realpath
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.report.findings import Picture
from analysis.results import Fitted
from analysis.tasks import BUILT_IN
from orchestrator.errors import printable
from orchestrator.searches.axes import BUMPS
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.store import Question
from orchestrator.store.questions import check_values
from trainables.program import COMMAND, FILES, VALUES
from trainables.program import PATH as PROGRAMS
from trainables.settings import IN_SPEC, listed, value_of
from trainables.spec import RunSpec

ANSWERED, DOUBTFUL, GOING, FAILED = "answered", "not answered", "not finished", "runs failed"
FORMER = "of a former version"
"""States of a study. DOUBTFUL: all is trained, and the answer means nothing, as the launch says."""
NO_SETTINGS = ("options", "store", "out", "versions")
OF_NETWORKS = ("decoder", "depth", "width", "encoding")
"""Settings that a task without a network of this project's kind does not take; its runs have those of IN_SPEC then."""
OF_TRAINING = ("schedule", "precision")
"""Settings that no program takes."""
PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
INTERPRETER = re.compile(r"python[0-9.]*|(ba)?sh|Rscript|julia|node|perl|ruby")
HERE = ("local", "auto")
"""Addresses that are of no other machine that a command could name."""
USUAL_STORE, RETRY = "results", "--retry-failed"
"""Where a command without `--store` writes; and the option that is for one launch alone."""
MOST_LISTED = 8
"""Values of a setting that a title lists."""
SHORTENED = 12
"""Letters of an id that are left out where four say enough."""
TITLES = {
    "regularization": "Which penalty weights make a low-rank decoder draw bumps at combinations that it has never seen?",
    "encodings": "Does a decoder compose if its code is factorized?",
    "geometry": "What does each layer of a decoder do to the box that it has not seen?",
    "tuning": "Which units of a decoder react to one factor, and which to both?",
    "rotation": "What does a decoder draw at angles that it has not seen?",
    "objectives": "Which objective and which tokenizer make a generator compose?",
    "conditioning": "How does what a generator is told of the factors decide whether it composes?",
    "signal": "How faint may a factor be before a generator no longer composes it?",
    "jepa": "Does an auxiliary loss on features make a generator compose?",
}
STUDIES = ("scaling", "tune", *TITLES)
"""All studies. Other commands of this program go on with none."""
FIRST = [
    first
    for study in STUDIES
    for first in (["sweep", study], ["python", "-m", "orchestrator", study], ["python", "-m", f"orchestrator.{study}"])
]
"""The words by which commands of studies begin."""
WRITTEN = ("--out", "--export-optuna")
"""The options of studies that name what is written. Those of others are only read."""
Say = Callable[[str, int, int], None]
"""Is given what goes on, how much of it is done, and how much there is."""


def unsaid(text: str, done: int, total: int) -> None:
    """What nobody waits for."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. `keys`: columns of run keys, which lead to these runs; `counts`: those of whole numbers; `heads`: what columns
    are called on the page, where the usual words do not fit; `shares`: those that are compared with what they have to reach."""

    name: str
    title: str
    table: pd.DataFrame
    keys: Collection[str] = ()
    counts: Collection[str] = ()
    heads: Mapping[str, str] = field(default_factory=dict)
    shares: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A study as far as the rows answer it."""

    question: Question
    title: str
    state: str
    progress: str
    lines: Sequence[str]
    """The answer, as the launch prints it."""
    keys: frozenset[str]
    """Its runs."""
    sheets: Sequence[Sheet] = ()
    pictures: Sequence[Picture] = ()
    thresholds: Sequence[ThresholdResult] = ()
    exponents: Mapping[str, str] = field(default_factory=dict)
    """Of each data set that has a power law, in words."""

    beside: str = ""
    """The settings in which it differs from the other studies of its kind in the store."""

    failed: int = 0
    """Of its runs."""

    @property
    def id(self) -> str:
        return self.question.name

    @property
    def short(self) -> str:
        """The beginning of its id, as tables that compare studies name it."""
        return self.id[:-SHORTENED]

    @property
    def command(self) -> list[str]:
        """The command as it was typed, in printable letters; empty if it is not one that starts a study, as a question from
        elsewhere may have it. Which Python started it is left out: it could be any file."""
        words = list(map(printable, self.question.command))
        words[:1] = ["python" if PYTHON.fullmatch(word) else word for word in words[:1]]
        return words if any(words[: len(first)] == first for first in FIRST) else []

    def continued(self, store: str) -> list[str]:
        """The command that goes on with the study in a store: as it was typed, but into this store, and without what was meant
        for one launch or for another place."""
        words = [word for word in self.command if word != RETRY]
        others, stores = _taken_out(words, "--store")
        if not words or _is_same((stores or [USUAL_STORE])[-1], store):
            return words
        return [*_taken_out(others, "--out")[0], "--store", store]

    def beyond(self, words: Sequence[str]) -> str:
        """What a command of it does beyond this project and this folder, as the store names it: it runs a program or a task of
        one's own, joins another machine, or writes elsewhere. Empty if it does not."""
        programs, tasks, addresses = (_values_of(words, name) for name in ("--program", "--task", "--address"))
        paths = [path for name in WRITTEN for path in _values_of(words, name)]
        own = [path for path in tasks if path not in BUILT_IN]
        found = ["runs a program that this store names"] if programs else ["runs a task that this store names"] * bool(own)
        found += [f"sends its runs to {address}" for address in addresses if address not in HERE]
        away = [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
        found += [f"writes to {path}" for path in away]
        return listed(found) if found else ""

    @property
    def settings(self) -> dict[str, str]:
        """What it was asked with in words, by name, but for where it was written and with which versions; without those that
        are empty or that its task does not take."""
        found = {name: ", ".join(items) for name, items in self.items.items()}
        return {name: words for name, words in found.items() if words}

    @property
    def items(self) -> dict[str, list[str]]:
        """Of each of `settings` its parts: of a list or an object several."""
        settings = {name: value for name, value in self.question.settings.items() if name not in NO_SETTINGS}
        options = self.question.settings.get("options")
        known = settings | (options if isinstance(options, dict) else {})
        if self.question.task == PROGRAMS:
            known |= {FILES: _read(known.get(FILES))}
        not_taken = _not_taken(known, self.question.task)
        return {name: _items(value) for name, value in known.items() if name not in not_taken}


@dataclass(frozen=True, slots=True)
class Around:
    """What answers need besides the rows of the search."""

    measured: Callable[[], Mapping[str, Mapping[str, float]]]
    """The numbers that were measured of generators, by key."""
    weights: Callable[[str], bytes]
    """Of a run, by its key; OSError if there are none."""
    fitted: Fitted = field(default_factory=Fitted)


def in_words(name: str) -> str:
    """A name that a user gave, as the head of a column."""
    return name.replace("_", " ")


def shortened(items: Sequence[str], most: int) -> str:
    """As many items as have room in so many letters, with "…" for the others; of a first one that is too long the beginning."""
    text = ", ".join(items)
    if len(text) <= most:
        return text
    count = len(items) - 1
    while count and len(", ".join([*items[:count], "…"])) > most:
        count -= 1
    return ", ".join([*items[:count], "…"]) if count else f"{items[0][: most - 1]}…"


def _is_same(store: str, other: str) -> bool:
    """Whether two ways to name a store, from where the page is made, are of one place."""
    return store == other or ("://" not in store + other and realpath(store) == realpath(other))


def _taken_out(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """Words of a command without an option, and the values that it had."""
    left, values, rest = list[str](), list[str](), iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == option:
            values.append(value if equals else next(rest, ""))
        else:
            left.append(word)
    return left, values


def _values_of(words: Sequence[str], option: str) -> list[str]:
    """All that an option may be given in a command. Words that another option may take are among them."""
    given = [following for word, following in pairwise(words) if word == option]
    return [*given, *(word.removeprefix(f"{option}=") for word in words if word.startswith(f"{option}="))]


def _read(files: Any) -> Any:
    """The files of a program with their digests, which a spec holds as JSON."""
    try:
        found = json.loads(files)
        check_values(found)
        return found
    except (TypeError, ValueError, RecursionError):
        return files


def _items(value: Any) -> list[str]:
    """A value in words, part by part, without those that are empty."""
    if isinstance(value, dict):
        return [f"{name} {_word(part)}" for name, part in value.items() if _word(part)]
    return [word for part in (value if isinstance(value, list) else [value]) if (word := _word(part))]


def _word(value: Any) -> str:
    if value is None or value in ([], {}):
        return ""
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _not_taken(settings: Mapping[str, Any], task: str) -> set[str]:
    """The names of those that say nothing, as the task does not take them."""
    if task == PROGRAMS:
        command = str(settings.get(COMMAND, ""))
        unnamed = {name for name in VALUES if f"{{{name}}}" not in command} - {"N", "seed", "target"}
        return {*OF_NETWORKS, *OF_TRAINING, *unnamed}
    without = all(name not in settings or settings[name] == IN_SPEC[name] for name in OF_NETWORKS)
    return set(OF_NETWORKS) if without else set()


def seeds_asked(results: Sequence[ThresholdResult]) -> Counter[tuple[str, Any]]:
    """How many seeds were asked for, by data set and place."""
    return Counter((result.dataset, result.along) for result in results)


def of_seeds(found: int, asked: int) -> str:
    """Where a mean is not that of all seeds, of how many it is."""
    return f" ({found} of {asked} seeds)" if found < asked else ""


def title_of(question: Question) -> str:
    """The question in words."""
    first = question.every_spec[0]
    subject = _subject(question, first)
    if question.study == "scaling":
        least, along = (question.search.get(name, usual) for name, usual in (("least", "data_count"), ("along", "N")))
        what = "least number of training samples" if least == "data_count" else f"least {least}"
        specs = question.every_spec
        values = list(dict.fromkeys(value_of(spec, str(along)) for spec in specs))
        accuracy = "the accuracy `target`" if along == "target" else f"accuracy {first.target:g}"
        reaches = f"{subject} reaches {accuracy} on what is held out"
        fixed = "" if "N" in (along, least) else _fixed_size(question, specs)
        return f"What is the {what} with which {reaches}, at {fixed and f'{fixed} and '}{along} = {_listed(values)}?"
    if question.study == "tune":
        space = question.search.get("space", {})
        names = ", ".join(map(str, space))
        fixed = "" if "N" in space else _fixed_size(question, [first])
        aims = ", ".join(str(aim).partition(":")[2] for aim in question.search.get("objectives", []))
        give = "gives" if len(space) == 1 else "give"
        return f"Which {names} {give} {subject} the best {aims}{fixed and f' at {fixed}'}?"
    return TITLES.get(question.study, f"{question.study}: {subject}")


def _fixed_size(question: Question, specs: Sequence[RunSpec]) -> str:
    """`N = 16`, if all runs have the same; nothing of a program that is not told it."""
    command = dict(specs[0].options).get(COMMAND, "")
    is_told = question.task != PROGRAMS or "{N}" in str(command)
    sizes = {spec.N for spec in specs}
    return f"N = {min(sizes)}" if is_told and len(sizes) == 1 else ""


def _subject(question: Question, spec: RunSpec) -> str:
    if question.task == PROGRAMS:
        return f"the program {_script(spec)}"
    return f"the {spec.decoder}" if question.task == BUMPS else question.task.rpartition(":")[2]


def _script(spec: RunSpec) -> str:
    """What a program is called: its data's name, or, if that is the interpreter alone, the file that is run by it."""
    if not INTERPRETER.fullmatch(spec.dataset):
        return spec.dataset
    words = str(dict(spec.options).get(COMMAND, "")).split()[1:]
    files = (Path(word.strip("'\"")).name for word in words if word[0] != "-" and "{" not in word)
    return next((name for name in files if Path(name).suffix), spec.dataset)


def _listed(values: Sequence[Any]) -> str:
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return ", ".join(words if len(words) <= MOST_LISTED else [*words[: MOST_LISTED - 2], "...", words[-1]])
