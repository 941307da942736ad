"""Which version of a task the runs of a store were made by, and which text: that may change though the version does not."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow.compute as pc

from orchestrator.errors import counted, printable
from orchestrator.searches import Row
from orchestrator.store import ResultStore
from orchestrator.store.rows import decode
from trainables.program import COMMAND, OWN_FILES, PATH, ProgramTask, files_of
from trainables.settings import listed
from trainables.spec import RunSpec, former_families, run_key
from trainables.task import Task

OWN = ("trainables", "orchestrator", "analysis")
"""Packages of this project: their versions say what they do."""
SOURCE = " source="
"""What stands before the digest in the `versions` of a row."""
INSTALLED = ("site-packages", "dist-packages")
NAMED = 5
"""Files that are named at most."""


def source_of(task: Task) -> str:
    """`source=` and a digest of the files that a task of the user's own is made of; nothing for a task of this project."""
    digests = _digests(task)
    return f"source={digests[0]}" if digests else ""


def made_by_former_version(
    path: str, task: Task, rows: Iterable[Row], store: ResultStore, asked: Iterable[RunSpec]
) -> str | None:
    """What is to be said if the store has runs of a task that do not count, as it or the training had another version.

    Args:
        path: that of the task, `module:Class`.
        rows: of the store. Whether the training had another version is seen among these.
        asked: what the study asks for, if it knows its rows by families: then `rows` lacks those of a former training.
    """
    of_task = {"task": {path}}
    count = store.count(of_task) - store.count({**of_task, "task_version": {task.version}})
    mine = [row for row in rows if row["task"] == path and row["task_version"] == task.version]
    one_of = {row["family"]: row for row in mine}
    former = {name for name, row in one_of.items() if run_key(RunSpec.from_dict(row), task.version) != row["key"]}
    count += sum(row["family"] in former for row in mine)
    specs = [one for spec in asked if spec.task == path for one in (spec, spec.to_the_end())]
    unseen = {name for spec in specs for name in former_families(spec, task.version)} - former
    count += store.count({"family": unseen}) if unseen else 0
    if not count:
        return None
    if count == 1:
        are, but = "is of a former version", "it stays there, but does not count, and is trained again if it is needed"
    else:
        are, but = "are of former versions", "they stay there, but do not count, and those that are needed are trained again"
    return f"{counted(count, 'run')} of {path} in the store {are} of the task or of the training: {but}"


def made_by_other_source(
    path: str, task: Task, rows: Iterable[Row], store: ResultStore, beside: Iterable[Task] = ()
) -> str | None:
    """What is to be said if runs of a task were trained when its files had another text, though its version is the same.

    Args:
        path: that of the task, `module:Class`.
        rows: of the store, among them those of the task that matter.
        beside: the tasks of the study. A row with the source of another one says nothing of its own task (see
            `with_source_of_another`).
    """
    if not (digests := _digests(task)):
        return None
    passed_over = {"", *digests, *(digest for other in beside for digest in _digests(other))}
    differ = [row for row in rows if row["task"] == path and _source(row) not in passed_over]
    others = len(differ) - len(with_source_of_another(differ, store))
    if not others:
        return None
    were = f"{counted(others, 'finished run')} of {path} {'was' if others == 1 else 'were'}"
    files = [file.name for file in _files(task)]
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    had = "its file" if len(files) == 1 else f"its files ({', '.join(files[:NAMED])}{more})"
    return f"{were} trained when {had} had another text. If results would differ now, change its version {task.version!r}"


def with_source_of_another(rows: Sequence[Row], store: ResultStore) -> set[str]:
    """The keys of those of the rows that say nothing of the text of their own task: former versions gave all rows of a launch
    the source of the task that was asked for, also those of runs that its runs needed. They are known by a run of the store
    that has the same source, of a task that needed theirs and lies in another module.

    Args:
        rows: of the store.
    """
    if not any(map(_source, rows)):
        return set()
    table = store.table(["key", "task", "versions", "parents"])
    task_of = dict(zip(table["key"].to_pylist(), table["task"].to_pylist(), strict=True))
    needing: dict[str, set[str]] = {}
    needed: dict[str, set[str]] = {}
    for row in decode(table.filter(pc.is_valid(table["parents"]))):
        source = _source(row)
        needing.setdefault(source, set()).add(row["task"])
        parents = (row["parents"] or {}).values()
        needed.setdefault(source, set()).update(task_of[key] for key in parents if key in task_of)

    def is_of_another(row: Row) -> bool:
        of_row, source = row["task"], _source(row)
        asked = needing.get(source, set()) - needed.get(source, set())
        return source != "" and of_row in needed.get(source, ()) and any(_module(task) != _module(of_row) for task in asked)

    return {row["key"] for row in rows if is_of_another(row)}


def made_with_fewer_files(task: Task, store: ResultStore) -> str | None:
    """What is to be said if the store has runs of the same program with fewer files than are its version now, and none with
    these: the program may write the others itself, which its command names."""
    if not isinstance(task, ProgramTask) or task.program is None:
        return None
    command, files = shlex.join(task.program.words), dict(task.program.files)
    found = []
    for text in store.table(["options"], {"task": {PATH}})["options"].unique().to_pylist():
        with contextlib.suppress(ValueError):
            if (options := json.loads(text)).get(COMMAND) == command:
                found.append(files_of(options))
    fewer = [had for had in found if had.keys() < files.keys()]
    if not fewer or files in found:
        return None
    had = max(fewer, key=len)
    came, own = listed([path for path in files if path not in had]), [path for path in files if path in had]
    told = f"the version of the program now includes {came}, and the runs of this command in the store did not have that"
    cure = f"{OWN_FILES}{json.dumps(own, ensure_ascii=False)}"
    return printable(f"{told}: they do not count. If the program writes such a file itself, {cure}")


def _source(row: Row) -> str:
    """The digest in a row; nothing if it has none."""
    _, found, digest = (row["versions"] or "").rpartition(SOURCE)
    return digest if found else ""


def _module(path: str) -> str:
    return path.partition(":")[0]


def _digests(task: Task) -> list[str]:
    """That of all files of a task, then that of the file of its class alone, which rows of former versions have."""
    with contextlib.suppress(OSError):
        each = [hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(task)]
        together = each if len(each) < 2 else [hashlib.sha256(" ".join(each).encode()).hexdigest(), each[0]]
        return [digest[:12] for digest in together]
    return []


def _files(task: Task) -> list[Path]:
    """The file of the class of a task, then those of the modules beside it that it imports, and that these import, by path.
    They are found by their text: which of them are loaded may differ from launch to launch."""
    name = type(task).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if name.partition(".")[0] in OWN or not isinstance(file, str):
        return []
    own = Path(file)
    depth = name.count(".") + (own.name == "__init__.py")
    if len(own.parents) <= depth:
        return [own]
    folder = own.parents[depth]
    only = name.partition(".")[0] if any(part in INSTALLED for part in folder.parts) else None
    asked, known = [(name, own)], {own}
    while asked:
        for other in _imported(*asked.pop()):
            first = other.partition(".")[0]
            if first in OWN or (only is not None and first != only) or (found := _file_of(other, folder)) is None:
                continue
            if found not in known:
                known.add(found)
                asked.append((other, found))
    return [own, *sorted(known - {own})]


def _imported(name: str, file: Path) -> Iterator[str]:
    """The modules that a module imports, anywhere in its text; of what it takes from a module, whatever may be one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            at = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*at, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _file_of(name: str, folder: Path) -> Path | None:
    """Where a module lies below the folder, if it does."""
    place = folder.joinpath(*name.split("."))
    files = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in files if name and file.is_file()), None)
