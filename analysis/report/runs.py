"""The runs of a store as files that the page's script reads: an index of all, and what is known of each in files of CHUNK."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.tasks import BUILT_IN
from orchestrator.errors import printable
from orchestrator.searches import UNWELL, Row, ending
from trainables.spec import SPEC_FIELDS

CHUNK = 500
"""Runs of one file."""
MOST_POINTS = 40
"""Of a curve that are shown; all are in the store."""
MOST_ENDED = 20
"""Ways of ending badly that are told."""
MOST_LETTERS = 300
"""Of the last line of an error."""
FOLDER = "runs"
INDEX = "index.js"
FILES = re.compile(r"index\.js|[0-9]+\.js")
"""The names of these files."""
TEXTS = ("task", "dataset", "decoder", "status")
NUMBERS = ("N", "data_count", "seed", "accuracy", "id_mse", "ood_mse", "steps", "seconds")
DIGITS = {"accuracy": 9}
"""Of those of them that have more than six: an accuracy that misses its target by one of many samples is not that target."""
CURVES = ("accuracy", "error", "loss")
"""Those that every run has, each in a column `curve_NAME`."""
OF_SETTINGS = tuple(name for name in SPEC_FIELDS if name not in ("options", *TEXTS, *NUMBERS))
OF_DETAIL = ("task_version", "fixed_count", "reason", "device", "pack_size", "host", "launch", "versions")
HARMLESS = "\t\u00a0\u202f\u00ad\u200c\u200d"
"""Letters of texts that are not printable, and change nothing around them: spaces, a hyphen, and what joins letters or not."""
LARGEST_SAFE = 2**53 - 1
"""Of whole numbers: a browser does not tell larger ones apart."""
OWN = ("passage_step", "loss")
"""What is told of a single run, besides what the index and its settings say."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Runs that failed alike: how many, and the one that ended last with what it said."""

    status: str
    why: str
    count: int
    key: str
    text: str


def why(run: Row) -> str:
    """What an error says in a line: the last one of a traceback, and otherwise the first one."""
    lines = [line for line in (run["error"] or run["reason"] or "").splitlines() if line.strip()] or [""]
    return printable(lines[-1 if lines[0].startswith("Traceback") else 0][:MOST_LETTERS])


def ended_badly(runs: Iterable[Row]) -> list[Ended]:
    """The commonest ways in which runs failed or diverged, see `why`."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for run in runs:
        if run["status"] in UNWELL:
            groups.setdefault((run["status"], why(run)), []).append(run)
    found = []
    for (status, reason), alike in groups.items():
        last = max(alike, key=lambda run: (run["finished_at"], run["key"]))
        found.append(Ended(status, reason, len(alike), last["key"], printable_lines((last["error"] or "").strip())))
    return sorted(found, key=lambda one: (-one.count, one.status, one.why))[:MOST_ENDED]


def printable_lines(text: str) -> str:
    """`printable`, of each line; tabs and joined letters stay as they are."""
    if text.isprintable():
        return text
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return "\n".join("".join(c if c in HARMLESS else printable(c) for c in line) for line in lines)


@dataclass(slots=True)
class RunFiles:
    """The files, and which of them are written already: a study that goes on changes the last ones alone."""

    _written: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def names(self) -> Collection[str]:
        """Of all files, those that have not changed among them."""
        return self._written.keys()

    def of(self, runs: Iterable[Row], studies: Mapping[str, Collection[str]]) -> dict[str, bytes]:
        """The files that have changed since the last call, by name.

        Args:
            studies: the keys of the runs of each.
        """
        ordered = sorted(runs, key=lambda run: (run["finished_at"], run["key"]))
        chunks = [ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK)]
        found = {}
        for number, chunk in enumerate(chunks):
            name, mark = f"{number}.js", tuple((run["key"], run["finished_at"]) for run in chunk)
            if self._written.get(name) != mark:
                found[name] = call(f"runs/{number}", _details(chunk))
                self._written[name] = mark
        counts = (len(ordered), *sorted((name, len(keys)) for name, keys in studies.items()))
        if found or self._written.get(INDEX) != counts:
            found[INDEX] = call("runs", _index(ordered, studies))
            self._written[INDEX] = counts
        return found


def call(name: str, value: Any) -> bytes:
    """A script that hands a value to the page's script. It is plain ASCII without `<`, so that nothing in it is taken for
    markup, whatever a row says."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"sweep({json.dumps(name)},{text});\n".encode()


def _index(runs: Sequence[Row], studies: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Every column once, texts by their number in a list of words."""
    varied = {name: place for place, name in enumerate(_varied(runs))}
    study_of: dict[str, list[int]] = {}
    for number, keys in enumerate(studies.values()):
        for key in keys:
            study_of.setdefault(key, []).append(number)
    words: dict[str, Any] = {name: _words([str(run[name]) for run in runs]) for name in TEXTS if name != "status"}
    words["status"] = _words([ending(run) for run in runs])
    words["settings"] = _words([_settings(run, varied) for run in runs])
    numbers = {name: [_number(run[name], DIGITS.get(name, 6)) for run in runs] for name in NUMBERS}
    numbers["finished"] = [round(run["finished_at"].timestamp()) for run in runs]
    return {
        "keys": [run["key"] for run in runs],
        "texts": words,
        "numbers": numbers,
        "studies": list(studies),
        "of": [study_of.get(run["key"], []) for run in runs],
        "chunk": CHUNK,
        "built_in": [task for task in words["task"]["words"] if task in BUILT_IN],
    }


def _words(texts: Sequence[str]) -> dict[str, Any]:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return {"words": list(map(printable, places)), "of": [places[text] for text in texts]}


def _varied(runs: Sequence[Row]) -> list[str]:
    """The settings in which the runs differ, but those that have a column of their own."""
    own = {"options", *TEXTS, *NUMBERS}
    fields = [name for name in SPEC_FIELDS if name not in own and len({run[name] for run in runs}) > 1]
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run["options"].items():
            values.setdefault(name, set()).add(repr(value))
    having = Counter(name for run in runs for name in run["options"])
    return [*fields, *(name for name, found in values.items() if len(found) > 1 or having[name] < len(runs))]


def _settings(run: Row, names: Mapping[str, int]) -> str:
    """Those of a run among these, which are given with their places."""
    own = {name: run[name] for name in OF_SETTINGS if name in names} | run["options"]
    values = ((name, own[name]) for name in sorted(own.keys() & names.keys(), key=names.__getitem__))
    told = ((name, f"{value:g}" if isinstance(value, float) else value) for name, value in values if value is not None)
    return ", ".join(f"{name} {value}" for name, value in told)


def _details(runs: Sequence[Row]) -> dict[str, Any]:
    """What is known of each run. Most share their settings and how they were trained: these are there once, and a run has their
    number."""
    shared: dict[str, int] = {}

    def place(values: Mapping[str, Any]) -> int:
        return shared.setdefault(json.dumps(values, allow_nan=False), len(shared))

    found = [
        {
            "key": run["key"],
            "settings": place(_plain({name: run[name] for name in OF_SETTINGS} | run["options"])),
            "known": place(_plain({name: run[name] for name in OF_DETAIL if run[name] not in (None, "")})),
            "measures": _plain(run["measures"]),
            "own": {name: _number(run[name]) for name in OWN if run[name] is not None},
            "parents": _plain(run["parents"] or {}),
            "error": printable_lines(run["error"] or ""),
            "curves": _curves(run),
        }
        for run in runs
    ]
    return {"shared": [json.loads(text) for text in shared], "runs": found}


def _curves(run: Row) -> dict[str, str]:
    """Curves as numbers in a text, which is several times smaller and faster than a list of them. What the task summed up has
    another name where it would take that of another curve."""
    steps = run["curve_step"]
    if len(steps) < 2:
        return {}
    places = _thinned(len(steps))
    curves = {name: run[f"curve_{name}"] for name in CURVES}
    taken = {"step", *CURVES}
    curves |= {f"summary {name}" if name in taken else name: values for name, values in (run["curve_summary"] or {}).items()}
    known = {name: values for name, values in curves.items() if len(values) == len(steps)}
    told = {"step": steps, **known}
    digits = {name: DIGITS.get(name, 4) for name in told}
    return {
        printable(name): " ".join([_point(values[place], digits[name]) for place in places]) for name, values in told.items()
    }


def _point(value: Any, digits: int) -> str:
    """A number of a curve; a task's own measure may be none, or one that no float holds."""
    try:
        return f"{value:.{digits}g}" if isinstance(value, int | float) else "nan"
    except OverflowError:
        return "nan"


def _thinned(points: int) -> list[int]:
    """Places of at most MOST_POINTS points, the first and the last among them."""
    if points <= MOST_POINTS:
        return list(range(points))
    return sorted({round(i * (points - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})


def _number(value: Any, digits: int = 6) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    return value if abs(value) <= LARGEST_SAFE else str(value)


def _plain(value: Any) -> Any:
    """A value as JSON has it, and as every browser shows it."""
    if isinstance(value, int | float) or value is None:
        return _number(value)
    if isinstance(value, Mapping):
        return {printable(str(name)): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value[:MOST_POINTS]]
    return printable(str(value))
