"""Runs as TensorBoard reads them: a folder for each, with its curves as scalars, and its settings beside its final numbers."""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import hparams

from orchestrator.command.files import LEFT_SECONDS, TEMPORARY
from orchestrator.errors import printable
from orchestrator.store import Row
from trainables.spec import SPEC_FIELDS

FILE = "events.out.tfevents.0.sweep"
FORMAT = "brain.Event:2"
LARGEST = 3e38
"""About the largest number that 32 bits hold."""
SETTINGS = tuple(name for name in SPEC_FIELDS if name != "options")
NUMBERS = ("steps", "passage_step", "seconds", "accuracy", "id_mse", "ood_mse", "loss")
CURVES = {"accuracy": "curve_accuracy", "error": "curve_error", "loss": "curve_loss"}


def write_runs(rows: Sequence[Row], folder: Path) -> None:
    """Write `KEY/` for each run into a new or empty folder, which is there when all is written. What killed exports
    into such a folder left beside it goes.

    Raises:
        OSError: it cannot be written, or there is something in it; nothing stays then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    made = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    made.mkdir()
    try:
        _write(made, 0.0, [Event(summary=_columns(rows))])
        for row in rows:
            (made / row["key"]).mkdir()
            _write_run(made / row["key"], row)
        made.replace(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _sweep(folder: Path) -> None:
    """Remove what was to become this folder, and what nobody writes any more."""
    with contextlib.suppress(OSError):  # another process may sweep, too, and folders can be made where none can be listed
        for left in folder.parent.iterdir():
            found = TEMPORARY.fullmatch(left.name)
            if not found or found[1] != folder.name or left.is_symlink() or not left.is_dir():
                continue
            if time.time() - max(path.lstat().st_mtime for path in (left, *left.rglob("*"))) > LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def settings_of(row: Row) -> dict[str, Any]:
    """What TensorBoard shows as hyperparameters: all that describes a run, and how it ended."""
    given = {name: row[name] for name in SETTINGS} | {f"options.{name}": value for name, value in row["options"].items()}
    return {**{printable(name): _setting(value) for name, value in given.items()}, "status": row["status"]}


def numbers_of(row: Row) -> dict[str, float]:
    """Its final numbers, by the name of their scalar."""
    given = {name: row[name] for name in NUMBERS} | {f"measures.{name}": value for name, value in row["measures"].items()}
    found = {f"final/{printable(name)}": _number(value) for name, value in given.items()}
    return {name: value for name, value in found.items() if value is not None}


def _columns(rows: Iterable[Row]) -> Summary:
    """All hyperparameters and numbers that runs have: some have others than the first one, which TensorBoard would go by."""
    settings: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for row in rows:
        settings |= settings_of(row)
        numbers |= numbers_of(row)
    return hparams(settings, numbers)[0]


def _write_run(folder: Path, row: Row) -> None:
    ended, last_step = row["finished_at"].timestamp(), max([row["steps"], *row["curve_step"][-1:]])
    began, pace = ended - row["seconds"], row["seconds"] / max(last_step, 1)
    _, start, end = hparams(settings_of(row), {})
    numbers = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in numbers_of(row).items()])
    last = [Event(wall_time=ended, step=last_step, summary=summary) for summary in (numbers, end)]
    _write(folder, began, itertools.chain([Event(wall_time=began, summary=start)], _curves(row, began, pace), last))


def _curves(row: Row, began: float, pace: float) -> Iterator[Event]:
    """An event for each look. It is one object, changed from look to look: to make new ones takes several times as long."""
    curves = {name: row[column] for name, column in CURVES.items() if row[column]}
    for name, curve in (row["curve_summary"] or {}).items():
        curves[f"summary/{printable(name)}"] = [math.nan if (v := _number(value)) is None else v for value in curve]
    event = Event()
    values = [(event.summary.value.add(tag=name), curve) for name, curve in curves.items()]
    for i, step in enumerate(row["curve_step"]):
        event.step, event.wall_time = step, began + pace * step
        for value, curve in values:
            value.simple_value = curve[i]
        yield event


def _write(folder: Path, began: float, events: Iterable[Event]) -> None:
    writer = RecordWriter(str(folder / FILE))
    try:
        for event in itertools.chain([Event(wall_time=began, file_version=FORMAT)], events):
            writer.write(event.SerializeToString())
    finally:
        writer.close()


def _setting(value: Any) -> Any:
    """A hyperparameter; whole numbers, which may be of any size, as the floats that they become."""
    if isinstance(value, str):
        return printable(value)
    return float(value) if type(value) is int else value


def _number(value: Any) -> float | None:
    """A number that a scalar of TensorBoard can hold; None if it is none."""
    is_number = type(value) in (int, float) and abs(value) <= LARGEST
    return float(value) if is_number else None
