"""Which text of a task the runs of a store were made by: it may have changed though its version has not."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from orchestrator.errors import counted
from orchestrator.searches import Rows
from trainables.task import Task

OWN = ("trainables", "orchestrator", "analysis")
"""Packages of this project: their versions say what they do."""
INSTALLED = ("site-packages", "dist-packages")


def source_of(task: Task) -> str:
    """`source=` and a digest of the files that a task of the user's own is made of; nothing for a task of this project."""
    digests = _digests(task)
    return f"source={digests[0]}" if digests else ""


def made_by_other_source(task: Task, rows: Rows) -> str | None:
    """What is to be said if runs of a task were trained when its files had another text, though its version is the same."""
    if not (digests := _digests(task)):
        return None
    path = f"{type(task).__module__}:{type(task).__name__}"
    found = [row["versions"].rpartition(" source=") for row in rows if row["task"] == path and row["versions"]]
    others = sum(before != "" and digest not in digests for before, _, digest in found)
    if not others:
        return None
    were = f"{counted(others, 'finished run')} of {path} {'was' if others == 1 else 'were'}"
    files = [file.name for file in _files(task)]
    had = "its file" if len(files) == 1 else f"its files ({', '.join(files)})"
    return f"{were} trained when {had} had another text. If results would differ now, change its version {task.version!r}"


def _digests(task: Task) -> list[str]:
    """That of all files of a task, then that of the file of its class alone, which rows of former versions have."""
    with contextlib.suppress(OSError):
        each = [hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(task)]
        together = each if len(each) < 2 else [hashlib.sha256(" ".join(each).encode()).hexdigest(), each[0]]
        return [digest[:12] for digest in together]
    return []


def _files(task: Task) -> list[Path]:
    """The file of the class of a task, then those of the modules beside it that it uses, and that these use, by path: what it
    inherits from, or imports at the top of a file."""
    module = sys.modules.get(type(task).__module__)
    if module is None or _first(module) in OWN or not (file := getattr(module, "__file__", None)):
        return []
    own = Path(file)
    folder = own.parents[module.__name__.count(".") + (own.name == "__init__.py")]
    asked, known = [module], {module.__name__: own}
    while asked:
        for other in _used_by(asked.pop()):
            if other.__name__ not in known and _is_beside(other, module, folder):
                known[other.__name__] = Path(str(other.__file__))
                asked.append(other)
    return [own, *sorted({*known.values()} - {own})]


def _used_by(module: ModuleType) -> Iterator[ModuleType]:
    """Modules that a module imports, or those of the classes and functions that it does, of its bases among them."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value
        with contextlib.suppress(Exception):  # anything may stand in a module
            for one in value.__mro__ if isinstance(value, type) else (value,):
                if isinstance(found := sys.modules.get(one.__module__), ModuleType):
                    yield found


def _is_beside(other: ModuleType, module: ModuleType, folder: Path) -> bool:
    """Whether a module is of the package of another, or lies in its `folder` without being installed there."""
    if _first(other) in OWN or not (file := getattr(other, "__file__", None)):
        return False
    is_installed = any(part in INSTALLED for part in Path(file).parts)
    return _first(other) == _first(module) or (Path(file).is_relative_to(folder) and not is_installed)


def _first(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]
