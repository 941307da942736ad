"""Faults of the disk, of the files and of the task: each a scene of its own, with what must come of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from orchestrator.store import SCHEMA
from orchestrator.store.rows import VERSION, VERSION_FIELD
from tests.chaos.kills import Bench
from tests.chaos.lab import Trial, Verdict
from tests.chaos.rows import read
from tests.toy import threshold

UNRULY = ("--task", "tests.chaos.tasks:Unruly", "--max-steps", "3", "--resolution", "0.01", "--pack-size", "1",
          "--N", "8,16", "--seeds", "2")  # fmt: skip
RIGHT = {(n, s): threshold(n, s) for n in (8, 16) for s in range(2)}
"""Its answer."""
TWO = ("--workers", "2", "--no-speculate")


class SkippedError(Exception):
    """This machine cannot have the fault. The message says why."""


def toy(pause: float, *more: str) -> tuple[str, ...]:
    return (*UNRULY, *(more or TWO), "--option", f"pause={pause:g}")


@contextlib.contextmanager
def own_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of this size, in memory."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0:
        raise SkippedError("mounting a disk takes root")
    words = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", folder]
    mounted = subprocess.run(words, capture_output=True, text=True)
    if mounted.returncode != 0:
        raise SkippedError("a disk cannot be mounted here: " + " ".join(mounted.stderr.split()))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def full_disk(bench: Bench) -> Verdict:
    argv = toy(0.3)
    expected, undisturbed = bench.reference(argv)
    with Trial(bench.lab, "full-disk") as trial, own_disk(trial.folder / "disk", 16) as disk:
        trial.use(disk / "store")
        launch = trial.launch(*argv)
        filler = disk / "filler"
        if trial.until(lambda: trial.rows() >= 3, launch):
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1024))
            trial.verdict.kills += 1
        trial.ends(launch, 1, "No space left on device; free some space and run the same command again", "to continue: ")
        filler.unlink(missing_ok=True)
        trial.ends(trial.launch(*argv), 0)
        return trial.judge(expected, undisturbed)


def read_only(bench: Bench) -> Verdict:
    argv = toy(0.3)
    expected, undisturbed = bench.reference(argv)
    with Trial(bench.lab, "read-only") as trial, own_disk(trial.folder / "disk", 16) as disk:
        trial.use(disk / "store")
        launch = trial.launch(*argv)
        trial.until(lambda: trial.rows() >= 2, launch)
        launch.send_signal(signal.SIGTERM)
        trial.ends(launch, 143)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        before = state(trial.store)
        trial.refuses(trial.launch(*argv), "choose a folder you can write to")
        trial.ends(trial.launch(*argv, "--dry-run"), 0)
        trial.check(state(trial.store) == before, "a store that cannot be written has changed")
        trial.verdict.kills += 1
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        trial.ends(trial.launch(*argv), 0)
        return trial.judge(expected, undisturbed)


def state(store: Path) -> dict[str, tuple[int, int]]:
    """Every file of a store but its lock, with size and time of change."""
    files = (path for path in store.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(store)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def strange_files(bench: Bench) -> Verdict:
    argv = toy(0.3)
    expected, undisturbed = bench.reference(argv)
    with Trial(bench.lab, "strange-files", strict=False) as trial:
        launch = trial.launch(*argv)
        runs, made = trial.store / "runs", []
        if trial.until(lambda: trial.rows() >= 2, launch):
            whole = next(runs.glob("runs-*.parquet")).read_bytes()
            for name, data in (("torn", whole[: len(whole) // 2]), ("empty", b""), ("text", b"notes\n")):
                made.append(runs / f"{name}.parquet")
                made[-1].write_bytes(data)
            made.append(runs / "foreign.parquet")
            pd.DataFrame({"a": [1, 2]}).to_parquet(made[-1])
            trial.verdict.kills += len(made)
        trial.ends(launch, 0)
        aside = {path.name for path in (trial.store / "set-aside").glob("*")}
        trial.check(aside == {path.name for path in made}, f"set aside: {sorted(aside)}")
        trial.check(all(path.name in launch.text for path in made), "files were set aside without a word")
        trial.ends(trial.launch(*argv), 0)
        return trial.judge(expected, undisturbed)


def newer_schema(bench: Bench) -> Verdict:
    argv = toy(0.3)
    expected, undisturbed = bench.reference(argv)
    line = f"has rows of schema {VERSION + 1}, but this program knows only schema {VERSION} and older: update the program"
    with Trial(bench.lab, "newer-schema") as trial:
        launch = trial.launch(*argv)
        trial.until(lambda: trial.rows() >= 2, launch)
        newer = trial.store / "runs" / "newer.parquet"
        table = SCHEMA.empty_table().replace_schema_metadata({VERSION_FIELD: str(VERSION + 1).encode()})
        pq.write_table(table, newer.with_suffix(".tmp"))
        newer.with_suffix(".tmp").rename(newer)
        trial.ends(launch, 1, line)
        before = state(trial.store)
        trial.refuses(trial.launch(*argv), line)
        trial.check(state(trial.store) == before, "a store of a newer schema has changed")
        trial.verdict.kills += 1
        newer.unlink()
        trial.ends(trial.launch(*argv), 0)
        return trial.judge(expected, undisturbed)


def deleted_part(bench: Bench) -> Verdict:
    """Rows are lost by definition: those of the deleted file, and no others."""
    argv = toy(0.3)
    expected, undisturbed = bench.reference(argv)
    with Trial(bench.lab, "deleted-part", strict=False) as trial:
        launch = trial.launch(*argv, small=True)
        if trial.until(lambda: trial.rows() >= 8, launch):
            oldest = min((trial.store / "runs").glob("*.parquet"), key=lambda path: path.stat().st_mtime)
            trial.excused = set(pd.read_parquet(oldest)["key"])
            oldest.unlink()
            trial.verdict.kills += 1
        trial.ends(launch, 0)
        trial.ends(trial.launch(*argv), 0)
        since = trial.lab.ledger.stat().st_size
        trial.ends(trial.launch(*argv), 0, "0 runs trained")
        trial.check(not trial.lab.started(since), "a third launch trained again")
        return trial.judge(expected, undisturbed)


def together(bench: Bench, count: int) -> Verdict:
    argv = toy(1.0, "--workers", "1")  # with speculation, so that there is something to do for everybody
    with Trial(bench.lab, f"{count}-launches") as trial:
        launches = [trial.launch(*argv) for _ in range(count)]
        for launch in launches:
            trial.ends(launch, 0)
        trial.verdict.kills = count
        verdict = trial.judge()
        verdict.equal = thresholds(trial.store) == RIGHT
        trial.check(verdict.interrupted == 0, f"{verdict.interrupted} runs were trained by more than one launch")
        trial.check(read(trial.store)["launch"].nunique() > 1, "only one launch took part")
        return verdict


def trouble(bench: Bench, which: str, statuses: set[str], code: int, *words: str, options: tuple[str, ...] = ()) -> Verdict:
    """A task that misbehaves at one of two grid sizes: the other is answered, and nothing is trained at a second launch."""
    about = {"trouble": which, "trouble_N": 16, "study": f"{bench.dice.random()}"}
    seeds = min(bench.seeds, 2)
    argv = (*toy(0.0), "--seeds", f"{seeds}", *options)
    argv += tuple(word for name, value in about.items() for word in ("--option", f"{name}={value}"))
    with Trial(bench.lab, which) as trial:
        launch = trial.launch(*argv)
        trial.ends(launch, code, *words)
        rows = read(trial.store)
        found = set(rows[rows["N"] == 16]["status"])
        trial.check(found == statuses, f"status {found} instead of {statuses}")
        answered = thresholds(trial.store)
        sizes = (8, 16) if statuses == {"passed", "missed"} else (8,)
        right = {(n, seed): RIGHT[n, seed] for n in sizes for seed in range(seeds)}
        trial.check(all(answered.get(place) == right[place] for place in right), f"answers {answered}")
        trial.check(len(launch.text) < 100_000, f"{len(launch.text)} bytes of output")
        since = trial.lab.ledger.stat().st_size
        trial.ends(trial.launch(*argv), code)
        trial.check(not trial.lab.started(since), "a second launch trained again")
        trial.verdict.kills = int((rows["N"] == 16).sum())
        return trial.judge()


def thresholds(store: Path) -> dict[tuple[int, int], float]:
    table = pd.read_csv(store / "scaling" / "scaling.csv")
    return {(n, s): t for n, s, t in table[["N", "seed", "threshold"]].itertuples(index=False)}


FAULTS: dict[str, tuple[str, Callable[[Bench], Verdict]]] = {
    "full-disk": ("the disk is full; room is made, and the same command resumes (root)", full_disk),
    "read-only": ("the disk can only be read: one line, nothing changed (root)", read_only),
    "strange-files": ("a torn, an empty, a foreign and a text file appear among the parts", strange_files),
    "newer-schema": ("a part of a newer program appears: refused in one line", newer_schema),
    "deleted-part": ("somebody deletes a part: its rows, and no others, are gone and trained again", deleted_part),
    "two-launches": ("two launches at once on one store", lambda bench: together(bench, 2)),
    "five-launches": ("five launches at once on one store", lambda bench: together(bench, 5)),
    "raise": ("a task that raises an exception", lambda b: trouble(b, "raise", {"failed"}, 1, "ArithmeticError")),
    "memory": ("a task for which memory does not suffice", lambda b: trouble(b, "memory", {"failed"}, 1, "ran out of memory")),
    "nan": ("a task whose loss is not a number", lambda b: trouble(b, "nan", {"diverged"}, 0)),
    "die": ("a task that ends its process once", lambda b: trouble(b, "die", {"passed", "missed"}, 0, "lost its worker")),
    "print": ("a task that prints megabytes", lambda b: trouble(b, "print", {"passed", "missed"}, 0)),
    "hang": (
        "a task that hangs, with --stall-minutes 0.2",
        lambda b: trouble(b, "hang", {"failed"}, 1, "--stall-minutes", options=("--stall-minutes", "0.2")),
    ),
}
