"""Whether the values of a part are such as a run can have, and a row is that of the run it describes. A file may come from
elsewhere: a right schema says little.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.store.rows import KEY_LENGTH, SCHEMA, STATUSES, decode
from trainables.spec import ADDED_LATER, LARGEST, LIMITS, SPEC_FIELDS, RunSpec, has_keys

_COUNTED: dict[str, Any] = {name: low for name, (low, _) in LIMITS.items()}
_UNCOUNTED = tuple(name for name in SPEC_FIELDS if name not in _COUNTED and name != "options")
"""Fields that rows have in common, and that `fault` knows nothing of."""
_OF_ALL = frozenset(SPEC_FIELDS) - ADDED_LATER.keys()
"""Names that no setting of a task may have, nor ever might."""
DESCRIPTION = ("key", "family", "task_version", *SPEC_FIELDS)
"""Columns by which `misfit` judges."""
NAMED = 3
"""Rows of one file that a notice names."""
LONGEST = 1000
"""Bytes that a word may have by which rows are chosen."""
DEEPEST = 32
"""Levels that lists and objects in `measures` may have."""
LONGEST_JSON = {**dict.fromkeys(("options", "measures", "parents"), 4 << 20), "curve_summary": 64 << 20}
"""Bytes of JSON that a row may have in a column: 30,000 files of a program, or measures; 60,000 looks of 50 curves."""
MOST_MARKS = 1 << 18
"""Quotes and opening brackets that such a text may have: a list, object or string of a few bytes takes up to a hundred bytes of
memory, many times what a number does."""

FAILED = "failed"
"""The status of a run that could not be carried out."""
ENDED = "failed, and ended well in another try"
AGAIN = "failed, and was tried again"
"""Why a row makes way that can be believed."""
RETRIED = "its failed runs were tried again"
"""What is said of a part in which nothing is wrong but that."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = tuple((end.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max))
_OF_KEY = f"[0-9A-Za-z]{{{KEY_LENGTH}}}"
_RANGES: dict[str, tuple[int, int]] = {
    **LIMITS,
    **dict.fromkeys(("fixed_count", "steps", "passage_step"), (0, LARGEST)),
    "pack_size": (1, LARGEST),
    "seconds": (0, LARGEST),
}
"""Of numbers, both included."""
_WORDS = ("task", "task_version", "dataset", "decoder", "holdout")
_CURVES = ("curve_loss", "curve_accuracy", "curve_error")


def misfit(row: Mapping[str, Any]) -> str | None:
    """Why a row cannot be believed: it describes no run, or its keys are not those of the run it describes. None if it can."""
    fields = {name: row[name] for name in SPEC_FIELDS}
    try:
        _check(*(fields[name] for name in _UNCOUNTED), tuple(fields["options"].items()))
    except (ValueError, TypeError) as error:
        return " ".join(f"describes no run ({error})".split())[:200]
    if not has_keys(fields, row["task_version"], row["key"], row["family"]):
        return "has a key that does not match its description"
    return None


@lru_cache(1000)
def _check(*values: Any) -> None:
    """
    Raises:
        ValueError, TypeError: no run has these values of _UNCOUNTED, and these options.
    """
    spec = RunSpec(**_COUNTED, **dict(zip((*_UNCOUNTED, "options"), values, strict=True)))
    for name, _ in spec.options:
        if name in _OF_ALL:
            raise ValueError(f"the option {name} has the name of a value that every run has")


def sift(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Any], dict[str, str]]:
    """The rows that can be believed, and why not of the others, by key. Rows without all of DESCRIPTION are not judged."""
    if not rows or not rows[0].keys() >= set(DESCRIPTION):
        return list(rows), {}
    wrong = {row["key"]: why for row in rows if (why := misfit(row)) is not None}
    return [row for row in rows if row["key"] not in wrong] if wrong else list(rows), wrong


def choose(table: pa.Table, suspects: Collection[str]) -> dict[str, int]:
    """Each key of the table with the place of its row. Of rows with the same key, one that can be believed if there is one, and
    of these the first of a run that did not fail, else the last try; of those of `suspects`, none that cannot be believed."""
    keys = table["key"].to_pylist()
    doubtful = {key for key, times in Counter(keys).items() if times > 1} | {key for key in keys if key in suspects}
    if not doubtful:
        return {key: i for i, key in enumerate(keys)}
    asked = [i for i, key in enumerate(keys) if key in doubtful]
    rows = decode(table.select((*DESCRIPTION, "status", "finished_at")).take(pa.array(asked)))
    wrong = {i for i, row in zip(asked, rows, strict=True) if misfit(row) is not None}
    tries = {i: row["finished_at"].timestamp() for i, row in zip(asked, rows, strict=True) if row["status"] == FAILED}
    places: dict[str, int] = {}
    for i in sorted(range(len(keys)), key=lambda i: (i in wrong, i in tries, -tries.get(i, 0.0), i)):
        if i not in wrong or keys[i] not in suspects:
            places.setdefault(keys[i], i)
    return places


def ended_well(table: pa.Table) -> set[str]:
    """The keys of rows of runs that could be carried out: their results are kept rather than that another try failed."""
    return set(table["key"].filter(pc.not_equal(table["status"], FAILED)).to_pylist())


def failed(table: pa.Table) -> dict[str, datetime]:
    """The keys of rows of runs that failed, each with the time when it did."""
    rows = table.select(["key", "finished_at"]).filter(pc.equal(table["status"], FAILED))
    return dict(zip(rows["key"].to_pylist(), rows["finished_at"].to_pylist(), strict=True))


def said_of(wrong: Mapping[str, str]) -> str:
    """What is wrong with rows of a part, for a notice."""
    if set(wrong.values()) == {AGAIN}:
        return RETRIED
    named = "; ".join(f"{key} {why}" for key, why in list(wrong.items())[:NAMED])
    return f"{named}; and {len(wrong) - NAMED:,} more" if len(wrong) > NAMED else named


def checked(table: pa.Table) -> pa.Table:
    """
    Raises:
        ValueError: see `fault`.
    """
    if why := fault(table):
        raise ValueError(why)
    return table


def fault(table: pa.Table) -> str | None:
    """What is wrong with the values of a table of some of the columns of SCHEMA, the first thing found; None if nothing is."""
    try:
        table.validate(full=True)  # text is UTF-8, lists lie within their values
    except pa.ArrowException as error:
        return "its columns are damaged (" + " ".join(str(error).split())[:200] + ")"
    for name in table.column_names:
        if why := _fault_of_column(name, table[name]):
            return f"column {name} {why}"
    return _fault_of_curves(table)


def _fault_of_column(name: str, column: pa.ChunkedArray) -> str | None:
    if column.null_count and not SCHEMA.field(name).nullable:
        return "has empty places"
    if name in _RANGES and not _within(column, *_RANGES[name]):
        low, high = _RANGES[name]
        return f"has values that are no numbers from {low} to {high}"
    if name == "finished_at" and not _within(column.cast(pa.int64()), *_TIMES):
        return "has times outside the years 1 to 9999"
    if name == "status" and not set(pc.unique(column).to_pylist()) <= set(STATUSES):
        return f"has values that are none of {', '.join(STATUSES)}"
    if name in ("key", "family") and not _are_keys(column):
        return f"has values that are no {'run' if name == 'key' else name} keys, {KEY_LENGTH} letters long"
    if name in _WORDS and not _within(pc.binary_length(column), 0, LONGEST):
        return f"has words of more than {LONGEST} bytes"
    if name in LONGEST_JSON:
        if column.nbytes > MOST_MARKS and not _is_light(column, LONGEST_JSON[name]):  # most columns have fewer bytes
            return "has JSON that is too large"
        texts = pc.unique(column.drop_null()).to_pylist()
        if not _are_objects(texts):
            return "has values that are no JSON objects"
        if name == "parents" and not all(_is_key(value) for text in texts for value in json.loads(text).values()):
            return "has values that are no run keys"
    if pa.types.is_list(column.type) and pc.list_flatten(column).null_count:
        return "has empty places in its lists"
    return None


def _fault_of_curves(table: pa.Table) -> str | None:
    """The curves have a value for each step. Rows from before there was a curve of the error have none of it."""
    if "curve_step" not in table.column_names:
        return None
    if not _within(pc.list_flatten(table["curve_step"]), 0, LARGEST):
        return "column curve_step has values below 0"
    points = pc.list_value_length(table["curve_step"])
    for name in _CURVES:
        if name in table.column_names:
            lengths = pc.list_value_length(table[name])
            fits = pc.equal(lengths, points)
            if name == "curve_error":
                fits = pc.or_(fits, pc.equal(lengths, 0))
            if not pc.all(fits, min_count=0).as_py():
                return f"columns curve_step and {name} have lists of different lengths"
    if "curve_summary" in table.column_names and not _are_curves(table["curve_summary"].to_pylist(), points.to_pylist()):
        return "column curve_summary has values that are no curves with a number for each step"
    return None


def _are_curves(texts: Iterable[str | None], points: Iterable[int]) -> bool:
    """Whether each text there is holds lists of so many numbers, or of nothing where a number was not finite."""
    return all(
        isinstance(curve, list) and len(curve) == count and all(value is None or type(value) in (int, float) for value in curve)
        for text, count in zip(texts, points, strict=True)
        if text is not None
        for curve in json.loads(text).values()
    )


def _is_key(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_OF_KEY, value) is not None


def _within(column: pa.ChunkedArray | pa.Array, low: int, high: int) -> bool:
    """Whether all values that are there are numbers from `low` to `high`; NaN is none."""
    if pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        return ends["min"] is None or bool(low <= ends["min"] and ends["max"] <= high)
    inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return bool(pc.all(inside, min_count=0).as_py())


def _are_keys(column: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, f"^{_OF_KEY}$"), min_count=0).as_py())


def _is_light(column: pa.ChunkedArray, most: int) -> bool:
    """Whether each of its texts has at most so many bytes, and can be read in little more memory."""
    if not _within(pc.binary_length(column), 0, most):
        return False
    return _within(reduce(pc.add, (pc.count_substring(column, mark) for mark in '"[{')), 0, MOST_MARKS)


def _are_objects(texts: Iterable[str]) -> bool:
    try:
        return all(_is_object(text) for text in texts)
    except (ValueError, RecursionError):
        return False


def _is_object(text: str) -> bool:
    """Whether it is a JSON object of at most DEEPEST levels: what is deeper cannot be read everywhere.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    value, end = _DECODER.raw_decode(text)
    if not isinstance(value, dict) or end < len(text):
        return False
    return text.count("{") + text.count("[") <= DEEPEST or _levels(value) <= DEEPEST


def _levels(value: object) -> int:
    levels, level = 0, [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        levels += 1
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
    return levels


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
