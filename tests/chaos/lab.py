"""The disturbed launches of one study and what is seen of them from outside: their output, their rows, their trainings."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from tests.chaos.rows import comparable, read
from tests.chaos.tasks import LEDGER
from tests.nursery import Forked, Nursery

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds after which a launch is said to hang."""
POLL = 0.25


class BrokenError(Exception):
    """A launch did not do what it must under this fault."""


class Launch(Forked):
    """A forked launch and its output."""

    def __init__(self, output: Path) -> None:
        super().__init__()
        self.output, self.began = output, time.monotonic()

    @property
    def text(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    @property
    def last_line(self) -> str:
        return (self.text.strip().splitlines() or [""])[-1]

    def alive(self) -> bool:
        return self.returncode is None

    def wait(self, timeout: float | None = PATIENCE) -> int:
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokenError(f"it did not end within {timeout:g} s: {self.text[-2000:]}") from None


class Reader(threading.Thread):
    """Reads a store as any user does, over and over: `pandas.read_parquet` on its folder `runs`.

    `seen` is when each key was first read. What must never be: a read that fails (`torn`), a key that was there and is
    not (`lost`), a key twice (`doubled`). Files that are no parts make reading fail until they are set aside: `strict=False`.
    """

    def __init__(self, store: Path, strict: bool = True, poll: float = POLL) -> None:
        super().__init__(daemon=True)
        self.store, self.strict, self._poll = store, strict, poll
        self.seen: dict[str, float] = {}
        self.lost: set[str] = set()
        self.doubled: set[str] = set()
        self.torn: list[str] = []
        self.reads = 0
        self._over = threading.Event()
        self._one = threading.Lock()

    def look(self) -> pd.DataFrame:
        with self._one:
            return self._look()

    def _look(self) -> pd.DataFrame:
        try:
            rows = read(self.store)
        except Exception as error:
            if self.strict:
                self.torn.append(f"{type(error).__name__}: {error}"[:300])
            return pd.DataFrame({"key": []})
        now, counts = time.monotonic(), Counter(rows["key"])
        self.reads += 1
        self.lost |= self.seen.keys() - counts.keys()
        self.doubled |= {key for key, count in counts.items() if count > 1}
        for key in counts:
            self.seen.setdefault(key, now)
        return rows

    def run(self) -> None:
        while not self._over.wait(self._poll):
            self.look()

    def stop(self) -> None:
        self._over.set()
        self.join()


class Lab:
    """A folder for the launches, the process that forks them, and the ledger of all trainings that they start.

    With `join`, launches join a Ray that is up already, as on a cluster; else each starts its own. With `here`, they train in
    their own process (see tests.here), but for those that are told otherwise.
    """

    def __init__(self, folder: Path, join: bool = False, here: bool = False) -> None:
        self.folder, self._here = folder, here
        folder.mkdir(parents=True, exist_ok=True)
        self.ledger = folder / f"ledger-{secrets.token_hex(4)}"
        self.ledger.touch()
        (folder / "home").mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
        self.environment = kept | {
            "RAY_AUTH_MODE": "disabled",  # Ray reads it when it is imported
            "RAY_USAGE_STATS_ENABLED": "0",
            "HOME": str(folder / "home"),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH", "")))),
            "COLUMNS": "160",
            LEDGER: str(self.ledger),
        }
        self._scratch: TemporaryDirectory[str] | None = None
        self.address = self._start_ray() if join else None
        self._count = 0
        self._nursery = Nursery(self.environment, "tests.chaos.child")

    def _start_ray(self) -> str:
        ray = Path(sys.executable).with_name("ray")
        self._scratch = TemporaryDirectory(prefix="lab-", dir="/tmp", ignore_cleanup_errors=True)  # short: sockets lie below it
        words = ["start", "--head", "--port=0", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]
        words += ["--node-ip-address=127.0.0.2", f"--temp-dir={self._scratch.name}"]
        done = subprocess.run([ray, *words], env=self.environment, capture_output=True, text=True, check=True)
        found = re.search(r"--address='([^']+)'", done.stdout)
        assert found is not None, done.stdout
        return found.group(1)

    def start(self, store: Path, *argv: str, **job: Any) -> Launch:
        """Fork a launch of a study with these options (see `child.Job`)."""
        self._count += 1
        launch = Launch(self.folder / f"output-{self._count}.txt")
        job.setdefault("here", self._here)
        if argv:
            joins = self.address is not None and not job["here"]
            argv = (*argv, "--store", str(store), *(("--address", str(self.address)) if joins else ()))
        about = {"cwd": str(self.folder), "store": str(store), "output": str(launch.output)}
        self._nursery.start({"argv": argv, **about, **job}, launch)
        return launch

    def started(self, since: int = 0) -> list[tuple[str, int, float]]:
        """The trainings in the ledger, from this byte on: key, process, seconds of the monotonic clock."""
        with self.ledger.open() as file:
            file.seek(since)
            lines = [line.split() for line in file if line.endswith("\n")]
        return [(key, int(pid), float(at)) for key, pid, at in lines]

    def workers(self) -> list[int]:
        """The processes of Ray that train for this lab."""
        return [pid for pid, words in self._processes() if words.startswith("ray::") and "Trainable" in words]

    def _processes(self) -> Iterator[tuple[int, str]]:
        mark = f"{LEDGER}={self.ledger}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name), (entry / "cmdline").read_text().replace("\0", " ").strip()

    def orphans(self) -> list[int]:
        """Processes that are left although no launch is at work."""
        return [pid for pid, _ in self._processes() if pid != self._nursery.pid]

    def clear(self) -> None:
        """End what launches left behind; not the Ray that they join."""
        if self.address is None:
            for pid in self.orphans():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.address = None
        self.clear()
        self._nursery.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Verdict:
    """What became of the studies under one fault. `kills` counts any disturbance; without a comparison, `equal` is None."""

    fault: str
    kills: int = 0
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    torn: int = 0
    again: int = 0
    """Finished runs that were trained again."""
    interrupted: int = 0
    """Trainings that were started and did not end as a row."""
    equal: bool | None = None
    seconds: float = 0.0
    undisturbed: float = 0.0
    deleted: int = 0
    """Rows that the fault itself removed."""
    reads: int = 0
    at: list[str] = field(default_factory=list)
    """The steps of the write path that were the last ones of a launch."""
    skipped: str = ""
    wrong: list[str] = field(default_factory=list)
    """What else was not as it must be."""

    def broken(self) -> list[str]:
        if self.skipped:
            return []
        counts = {"lost": self.lost, "doubled": self.doubled, "torn reads": self.torn, "trained again": self.again}
        found = [f"{count} {name}" for name, count in counts.items() if count]
        found += ["the answer differs"] if self.equal is False else []
        found += ["nothing was disturbed"] if self.kills == 0 else []
        return found + self.wrong

    def add(self, other: Verdict) -> None:
        for item in dataclasses.fields(Verdict):
            mine, more = getattr(self, item.name), getattr(other, item.name)
            if item.name == "equal":
                self.equal = more if mine is None else mine if more is None else mine and more
            elif item.name not in ("fault", "skipped"):
                setattr(self, item.name, mine + more)


class Trial:
    """One store under one fault: read all the time, and judged at the end."""

    def __init__(self, lab: Lab, fault: str, strict: bool = True, power: bool = False, poll: float = POLL) -> None:
        self.lab, self._power = lab, power
        self.folder = lab.folder / f"trial-{secrets.token_hex(4)}"
        self.folder.mkdir()
        self.store = self.folder / "store"
        self.verdict = Verdict(fault)
        self.reader = Reader(self.store, strict, poll)
        self.excused: set[str] = set()
        """Rows that the fault itself removed."""
        self._since = lab.ledger.stat().st_size
        self._began = time.monotonic()

    def __enter__(self) -> Trial:
        self.reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
        self.lab.clear()

    def use(self, store: Path) -> None:
        """Another place for the store, before the first launch."""
        self.store = self.reader.store = store

    def launch(self, *argv: str, **job: Any) -> Launch:
        return self.lab.start(self.store, *argv, acks=str(self.folder / "acks"), **job)

    def rows(self) -> int:
        return len(self.reader.seen)

    def until(self, reached: Callable[[], bool], launch: Launch, timeout: float = PATIENCE) -> bool:
        """Whether it was reached while the launch was at work."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and launch.alive():
            if reached():
                return True
            time.sleep(0.02)
        return False

    def check(self, true: bool, what: str) -> None:
        if not true:
            self.verdict.wrong.append(what)

    def ends(self, launch: Launch, code: int, *words: str) -> None:
        """The launch must end with this exit code, all of these words said, and no traceback of its own."""
        given, text = launch.wait(), " ".join(launch.text.split())
        self.check(given == code, f"exit code {given} where {code} is due: {text[-500:]}")
        for word in words:
            self.check(word in text, f"{word!r} was not said: {text[-500:]}")

    def refuses(self, launch: Launch, words: str) -> None:
        """The launch must end with exit code 2 and one line."""
        self.ends(launch, 2, words)
        self.check(len(launch.text.strip().splitlines()) == 1, f"more than one line: {launch.text[-500:]}")

    def acknowledged(self) -> dict[str, float]:
        """The keys whose `append` returned, and when."""
        log = self.folder / "acks"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return {key: float(at) for key, _, at in reversed(lines)}

    def trainings(self) -> list[tuple[str, int, float]]:
        return self.lab.started(self._since)

    def judge(self, expected: Path | None = None, undisturbed: float = 0.0) -> Verdict:
        """The verdict, to be asked for when all launches have ended; `expected`: the store of the undisturbed study."""
        verdict, reader = self.verdict, self.reader
        verdict.seconds, verdict.undisturbed = time.monotonic() - self._began, undisturbed
        acknowledged = self.acknowledged()
        reader.strict = True
        rows = reader.look()
        counts, known = Counter(rows["key"]), dict(reader.seen)
        for key, at in acknowledged.items():
            known[key] = min(at, known.get(key, at))
        # What was read before it was acknowledged may go with the power.
        gone = reader.lost & acknowledged.keys() if self._power else reader.lost
        verdict.lost = len(((acknowledged.keys() - counts.keys()) | gone) - self.excused)
        verdict.doubled, verdict.torn, verdict.reads = len(reader.doubled), len(reader.torn), reader.reads
        verdict.wrong += [f"a read failed: {text}" for text in reader.torn[:3]]
        starts = defaultdict(list)
        for key, _, at in self.trainings():
            starts[key].append(at)
        verdict.again = sum(key not in self.excused and at > known[key] for key in starts if key in known for at in starts[key])
        verdict.interrupted = sum(map(len, starts.values())) - len(counts)
        verdict.rows, verdict.deleted = len(counts), len(self.excused)
        if expected is not None:
            verdict.equal = comparable(rows) == comparable(read(expected)) and answer(self.store) == answer(expected)
        return verdict


def answer(store: Path) -> list[str]:
    """The tables, as the study wrote them."""
    return [table.read_text() for table in sorted(store.glob("*/*.csv"))]
