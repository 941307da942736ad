"""Hundreds of damaged stores: a launch and the analysis come to the answer of the store as it was, or say what is wrong.

A small finished study is copied and spoiled in one seeded way, then read as `analysis` reads it, and asked its question twice
by a launch that does all that a launch does, but trains without Ray. Runs end as they did when the study was made. More stores:

    FUZZ_STORES=2000 FUZZ_FIRST=1000 pytest -s tests/orchestrator/test_fuzz_store.py

What cannot be promised: a row under its right key with invented but possible results is believed. Of stores with such values it
is asked only that nothing breaks and nothing hangs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import io
import json
import math
import os
import random
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
import typer
from matplotlib.figure import Figure
from spoil import change, no_text, replaced

from analysis.measures.quantity import Quantity
from analysis.report import __main__ as report
from analysis.report.answers import scaling_answer
from analysis.report.findings import Claim, Finding
from analysis.report.papers import Paper
from analysis.results import Results
from analysis.trained import TrainedDecoder
from orchestrator.command.cli import run
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.engine.messages import Order, PackReport, RunReport
from orchestrator.engine.ray_tune import StudySearcher
from orchestrator.engine.worker import PackTrainable
from orchestrator.scaling import app
from orchestrator.store import PROVENANCE, SCHEMA, ResultStore
from orchestrator.store.rows import decode
from tests.conftest import many, trained_by
from trainables.bumps import BumpTask
from trainables.spec import RunSpec, run_key
from trainables.training.loop import Training

CASES, FIRST = int(os.environ.get("FUZZ_STORES", many(15, 60))), int(os.environ.get("FUZZ_FIRST", "0"))
"""How many stores, and the seed of the first one."""
PATIENCE = 30
"""Seconds after which a case hangs."""
WORDS = (
    "--N", "8,12", "--datasets", "stripes+bumps", "--decoder", "mlp", "--depth", "1", "--width", "4", "--seeds", "2",
    "--max-steps", "120", "--workers", "1", "--store", "store", "--out", "out", "--json",
)  # fmt: skip
MEASURES = ("images", "kernel")
Rng = random.Random


# A launch without Ray


def ending(spec: RunSpec) -> dict[str, Any]:
    """How a run ends, always."""
    passes = spec.data_count >= spec.N + 2 * spec.seed
    accuracy = 1 / (1 + math.exp(-(spec.data_count - spec.N) / 4)) * 0.89
    missed = "converged" if spec.stop == "early" else "budget"
    points = [20, 40] if passes or spec.stop == "early" else [20, 40, 60, 80, 100, 120]
    return {
        "status": "passed" if passes else "missed", "reason": "target" if passes else missed, "steps": points[-1],
        "passage_step": points[-1] if passes else None, "accuracy": 0.95 if passes else accuracy, "id_mse": 0.01,
        "ood_mse": 0.02, "loss": 0.5, "measures": {"exact": 0.5}, "curve_step": points,
        **{name: [0.5] * len(points) for name in ("curve_loss", "curve_accuracy", "curve_error")},
    }  # fmt: skip


def worker_of_none() -> PackTrainable:
    """One that has no runs yet."""
    worker = PackTrainable.__new__(PackTrainable)
    worker._begin({"order": Order(runs=[]), "gpus": 0.0})
    return worker


def train(execution: Execution, *_: object) -> Outcome:
    """`engine.execute`, but the runs end at once, here, as `ending` says; from their checkpoint, where they have one."""
    searcher, worker = StudySearcher(execution, 1.0, 0.0, 10_000, {}), worker_of_none()
    for number in range(10_000):
        config = searcher.suggest(str(number))
        if execution.fatal is not None:
            raise execution.fatal
        if not isinstance(config, dict):
            assert execution.is_over(), "runs are missing, and none is asked for"
            return execution.outcome
        reports = {}
        for about in config["order"].runs:
            key, spec = about.key, RunSpec.from_dict(about.spec)
            worker._seconds, worker._notices = {key: 0.0}, {}
            if about.checkpoint is not None:
                check_loaded(worker._load(about, spec, "cpu"), anew=key in worker._notices)
            told = {"seconds": 1.0, "host": "here", "device": "cpu"}
            reports[key] = RunReport(result=ending(spec), **told, notice=worker._notices.get(key))
        execution.on_report(str(number), PackReport(runs=reports))
    raise AssertionError("the search does not end")


def check_loaded(training: Training, anew: bool) -> None:
    """The state is that of a run that has trained so long, or has not begun."""
    whole = Training(training.spec, training.task)
    while whole.step < training.step:
        whole.advance(0.0)
    assert (training.step == 0) == anew
    weights, right = (run.model.state_dict() for run in (training, whole))
    assert all(torch.equal(weights[name], right[name]) for name in right)
    moments, right_moments = (run.optimizer.state_dict()["state"] for run in (training, whole))
    assert moments.keys() == right_moments.keys()
    assert all(torch.equal(moments[i][name], of[name]) for i, of in right_moments.items() for name in of)


RAY = SimpleNamespace(
    remote=lambda **_: lambda do: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=do)),
    wait=lambda streams, num_returns, timeout: (streams[:num_returns], []),
    get=lambda value: value,
    exceptions=SimpleNamespace(RayError=Exception, LocalRayletDiedError=ConnectionError),
)
"""As much of it as `analysis.measure` needs, in this process."""


@dataclass(frozen=True)
class Seen:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """Without what it cost and how often it was audited: a run that the answer does not need is not counted, nor is what
        audits it, if it is filed under another family."""
        return None if not self.out else _without_cost(json.loads(self.out))

    @property
    def named(self) -> list[str]:
        return [line for line in (self.out + self.err).splitlines() if line.startswith(("warning: ", "error: ", "stopped: "))]


def _without_cost(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_cost(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_cost(each) for name, each in value.items() if name not in ("settings", "runs", "steps", "rules")}
    return value


def everything(results: Results) -> Finding:
    """What the report knows of every threshold, run and measure."""
    runs = {run["key"]: f"{run['data_count']} {run['status']}" for run in results.runs}
    measured = results.table[["key", "measure", "quantity", "value"]].itertuples(index=False)
    answer = scaling_answer(results)
    runs["answer"] = "" if answer is None else json.dumps(answer.answer.to_json())
    return Finding([], settings=runs | {f"{key} {measure} {name}": str(value) for key, measure, name, value in measured})


EVERYTHING = Claim("everything", "", "", "", "", everything)


def call(application: Any, *words: str) -> Seen:
    """Run a command line here. What it prints must be text that a terminal can take."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(application, words, name="command")
    return Seen(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def ask() -> Seen:
    return call(app, *WORDS)


def analyse() -> tuple[Seen, Any]:
    """What the report said, and the claims it judged."""
    shutil.rmtree("report", ignore_errors=True)
    seen = call(report.app, "--store", "store", "--out", "report")
    claims = Path("report") / "claims.json"
    return seen, json.loads(claims.read_text()) if claims.exists() else None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trained, nothing drawn; parts are small, so that there are some, and an index."""
    measures = dict.fromkeys(MEASURES, measure)
    for target, value in {
        "orchestrator.launch.executed": trained_by(train),
        "orchestrator.engine.cluster.Cluster.connected": lambda cluster: contextlib.nullcontext(),
        "orchestrator.engine.cluster.Cluster.parts": lambda cluster: [],
        "orchestrator.store.register.ROWS_PER_PART": 8,
        "orchestrator.store.register.ROWS_BEYOND_INDEX": 16,
        "orchestrator.store.folder.os.fsync": lambda descriptor: None,
        "orchestrator.scaling.check_task": lambda *_: None,
        "analysis.figures.style.image": lambda figure, kind: b"",
        "analysis.figures.scaling.draw": lambda answer: Figure(),
        "analysis.report.papers.PAPERS": [Paper("paper", "", "", [EVERYTHING], [])],
        "analysis.report.page.image": lambda figure, kind: b"",
        "analysis.report.page.Report.html": lambda page, every: "",
        "analysis.report.answers.RESOLUTIONS": (0.05,),
        "analysis.measures.registry.OF_DECODERS": dict.fromkeys(MEASURES),
        "analysis.measures.registry.MEASURES": measures,
        "typer.main.get_command": functools.cache(typer.main.get_command),
        "importlib.metadata.version": functools.cache(importlib.metadata.version),
    }.items():
        monkeypatch.setattr(target, value)
    monkeypatch.setitem(sys.modules, "ray", RAY)


def measure(trained: TrainedDecoder) -> list[Quantity]:
    return [Quantity("sum", sum(p.sum().item() for p in trained.model.parameters()))]


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> Path:
    """The folder of a finished study, with weights and measures of some runs, a checkpoint, and pack sizes."""
    monkeypatch.chdir(tmp_path)
    seen = ask()
    assert seen.code == 0, seen.err
    task = BumpTask()
    with ResultStore("store") as store:
        rows = sorted(store.rows(), key=lambda row: row["key"])
        for row in rows[:3]:
            model = task.model(RunSpec.from_dict(row))
            store.save_weights(row["key"], safetensors.torch.save(dict(model.state_dict())))
        store.save_pack_sizes({"shape": 8})
    assert call(report.app, "--store", "store", "--out", "report").code == 0
    for file in (Path("store") / "measures").glob(f"{rows[0]['key']}.*"):
        file.unlink()  # to be measured again
    part = max((Path("store") / "runs").iterdir())
    table = pq.read_table(part, schema=SCHEMA)
    unfinished = RunSpec.from_dict(decode(table)[-1])
    pq.write_table(table.slice(0, table.num_rows - 1), part)
    with ResultStore("store") as store:
        for spec in (unfinished, unfinished.with_count(30)):
            training = Training(spec, task, "cpu")
            training.advance(0.0)
            key, worker = run_key(spec, task.version), worker_of_none()
            worker._seconds[key] = 1.0
            store.save_checkpoint(key, worker._saved(key, training.state_dict()))
    return tmp_path / "store"


# How a store is spoiled


def some(rng: Rng, data: bytes) -> int:
    """A place in a file, also near its ends."""
    near = rng.choice((len(data), 64, 1000))
    at = rng.randrange(max(1, min(near, len(data))))
    return at if rng.random() < 0.7 else max(0, len(data) - 1 - at)


def flipped(rng: Rng, data: bytes) -> bytes:
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        spoiled[some(rng, data)] ^= rng.choice((1, 2, 64, 128, rng.randrange(1, 256)))
    return bytes(spoiled)


def longer(rng: Rng, data: bytes) -> bytes:
    at = some(rng, data)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 100))) + data[at:]


def blanked(rng: Rng, data: bytes) -> bytes:
    at = some(rng, data)
    return data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]


BYTES: dict[str, Callable[[Rng, bytes], bytes]] = {
    "flipped": flipped,
    "truncated": lambda rng, data: data[: some(rng, data)],
    "inserted": longer,
    "blanked": blanked,
    "appended": lambda rng, data: data + rng.randbytes(rng.choice((1, 8, 1000))),
    "junk": lambda rng, data: rng.randbytes(len(data)),
    "nothing": lambda rng, data: b"",
    "twice": lambda rng, data: data + data,
}

NUMBERS = (0, 1, -1, 2, 7, 49, 255, 2**15, 2**31 - 1, -(2**31))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf)
TEXTS = (
    "", " ", "x", "passed", "missed", "failed", "diverged", "pruned", "done", "target", "converged", "budget", "early", "auto",
    "cosine", "bfloat16", "mlp", "cnn", "bumps", "stripes+bumps", "center", "f" * 24, "../../../../etc/passwd00", "{}", "[]",
    '{"sigma": 1e999}', '{"": ""}', '{"\\ud800": [1]}', '{"a": ' * 40 + "1" + "}" * 40, "x" * 100_000, "\x1b[31m", "two\nlines",
    "\x00", "é漢字🙂", "=1+1", "os:system", "tests.toy:Toy", "nowhere:Task", "2", "1", "a\tb\r" + "c" * 20,
    "\x1b[2J" + "k" * 20, "null",
)  # fmt: skip
BELIEVED = {
    *("status", "reason", "steps", "passage_step", "accuracy", "id_mse", "ood_mse", "loss", "measures", "error", "fixed_count"),
    *("curve_step", "curve_loss", "curve_accuracy", "curve_error", "curve_summary", "parents", *PROVENANCE),
}
"""Columns whose values nobody can tell from invented ones."""


def other_value(rng: Rng, kind: pa.DataType, values: list[Any]) -> Any:
    if pa.types.is_list(kind):
        element = (lambda: rng.choice(NUMBERS)) if pa.types.is_integer(kind.value_type) else (lambda: rng.choice(FLOATS))
        old = list(values[0] or ())
        return rng.choice(([], old[:-1], old * 2, [element() for _ in old], [element()], [None, *old[1:]], old[::-1]))
    if pa.types.is_integer(kind):
        return rng.choice((*NUMBERS, 2**62 if kind.bit_width == 64 else 3, rng.choice(values)))
    if pa.types.is_floating(kind):
        return rng.choice((*FLOATS, rng.choice(values)))
    if pa.types.is_timestamp(kind):
        return rng.choice((datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), rng.choice(values)))
    return rng.choice((*TEXTS, rng.choice(values), str(rng.choice(values))[:-1]))


def other_values(rng: Rng, part: Path, names: list[str]) -> str:
    """Other values in a row, or all rows, of some columns; what was done."""

    def spoil(table: pa.Table) -> pa.Table:
        for name in names:
            values = table[name].to_pylist()
            if rng.random() < 0.05 and pa.types.is_string(table.schema.field(name).type):
                table = replaced(table, name, no_text(table.num_rows))
                continue
            rows = range(len(values)) if rng.random() < 0.3 else [rng.randrange(len(values))]
            new = other_value(rng, table.schema.field(name).type, values)
            table = replaced(table, name, [new if i in rows else value for i, value in enumerate(values)])
        return table

    change(part, spoil)
    return f"{part.name}: other {', '.join(names)}"


def value_of_row(rng: Rng, store: Path) -> tuple[str, bool]:
    part = rng.choice(sorted((store / "runs").iterdir()))
    names = rng.sample(SCHEMA.names, rng.choice((1, 1, 1, 2, 4)))
    return other_values(rng, part, names), not BELIEVED.isdisjoint(names)


def value_of_measure(rng: Rng, store: Path) -> tuple[str, bool]:
    file = rng.choice(sorted((store / "measures").iterdir()))
    names = rng.sample(pq.read_schema(file).names, rng.choice((1, 1, 2)))
    return other_values(rng, file, names), not {"key", "measure", "version"}.issuperset(names)


def bytes_of_file(rng: Rng, store: Path) -> tuple[str, bool]:
    file, how = one_file(rng, store), rng.choice(sorted(BYTES))
    file.write_bytes(BYTES[how](rng, file.read_bytes()))
    return f"{file.relative_to(store)} {how}", file.parent.name in ("weights", "questions")


def swapped(rng: Rng, store: Path) -> tuple[str, bool]:
    one, other = one_file(rng, store), one_file(rng, store)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    if rng.random() < 0.7:
        other.write_bytes(first)
    return f"{one.relative_to(store)} and {other.relative_to(store)} swapped", one.parent.name == "weights"


NAMES = (
    "aaa.parquet", "zzz.parquet", "x.txt", "é\udcff.parquet", "two\nlines.parquet", "\x1b[31m.parquet", "_x.parquet", "x" * 240,
    "-rf",
)  # fmt: skip
FOLDERS = (".lock", ".tmp", "set-aside", "launches", "runs", "weights", "checkpoints", "measures", "scaling", "questions")
STRAYS = (
    "runs/x.parquet", "weights/x", ".tmp/x.y.z", ".tmp/x", "measures/x.parquet", "checkpoints/x.pt", "set-aside/x",
    "questions/x.json",
)  # fmt: skip
KINDS = ("folder", "full folder", "FIFO", "dangling link", "link to itself", "link", "device", "socket", "empty file")


def copied(rng: Rng, store: Path) -> tuple[str, bool]:
    file = one_file(rng, store)
    folder = file.parent if rng.random() < 0.7 else one_file(rng, store).parent
    names = [f"{'f' * 24}{file.suffix}", f"{file.stem}X{file.suffix}", file.name.replace("-1.", "-01."), f"{file.name}.parquet"]
    name = rng.choice((*NAMES, *names))
    (folder / name).write_bytes(file.read_bytes())
    return f"{file.relative_to(store)} copied to {folder.name}/{name!a}", False


def place_of(rng: Rng, store: Path) -> Path:
    return store / rng.choice(FOLDERS)


def no_file(rng: Rng, store: Path) -> tuple[str, bool]:
    """Something else in the place of a file, a folder, or of a file that there is not yet."""
    target = rng.choice((one_file, one_file, one_file, place_of, stray))(rng, store)
    kind = rng.choice(KINDS)
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(exist_ok=True)
    if "folder" in kind:
        (target / "with" if kind == "full folder" else target).mkdir(parents=True)
    elif kind == "FIFO":
        os.mkfifo(target)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("s")
        Path("s").rename(target)
    elif kind == "empty file":
        target.touch()
    else:
        device = rng.choice(("/dev/zero", "/dev/full", "/dev/null"))
        links = {"dangling link": "nowhere", "link to itself": target.name, "device": device}
        target.symlink_to(links.get(kind) or rng.choice((one_file(rng, store), store, store / "runs")).absolute())
    return f"{target.relative_to(store)} is a {kind}", target.parent == store and target.is_dir()  # what was in it is gone


def stray(rng: Rng, store: Path) -> Path:
    return store / rng.choice(STRAYS)


def one_file(rng: Rng, store: Path) -> Path:
    """Each folder is as likely, however many files it has."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and not path.is_symlink()]
    folder = rng.choice(sorted({path.parent for path in files}))
    return rng.choice([path for path in files if path.parent == folder and path.name != ".lock"])


SPOILED: tuple[Callable[[Rng, Path], tuple[str, bool]], ...] = (
    value_of_row, value_of_row, value_of_row, value_of_measure, bytes_of_file, bytes_of_file, bytes_of_file, swapped, copied,
    no_file, no_file,
)  # fmt: skip
"""Each says what it did, and whether there may now be results that nobody can tell from true ones."""


# What is asked of every store


@contextlib.contextmanager
def patience() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"it hangs for {PATIENCE} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)


def check_refused(seen: Seen) -> None:
    """One line that says why, and names a file or folder."""
    assert seen.code in (1, 2), seen
    (line,) = seen.err.splitlines() if seen.code == 2 else seen.named[-1:]
    assert line.startswith("error: " if seen.code == 2 else "stopped: "), seen
    assert "store" in line, seen


def check(answer: Any, claims: Any, whole_claims: Any, believed: bool) -> str:
    """The outcome in a word; AssertionError where there should be another."""
    read, found = analyse()
    if found is None:
        check_refused(read)
    elif found != claims:
        assert believed or read.named, "the report changed without a word"
    first = ask()
    if first.answer is None:
        check_refused(first)
        return "refused" if first.code == 2 else "stopped"
    assert first.code == 0 or believed, first
    second = ask()
    assert (second.code, second.answer) == (first.code, first.answer), "the second launch answers otherwise"
    left = [line for line in second.named if not line.startswith("warning: left out")]  # rows in nobody's way stay
    assert not left, left
    assert believed or "\n0 runs trained" in second.err, second.err
    keys = pd.read_parquet("store/runs")["key"]
    assert keys.is_unique
    named = bool(first.named or read.named)
    if first.answer != answer:
        assert believed or first.named, "the answer changed without a word"
        return "another answer, named" if named else "another answer, believed"
    if found != claims:
        again, found = analyse()
        assert again.code in (0, 1)
        assert found == whole_claims or again.named or believed, "the report has changed for good, without a word"
    return "same answer, named" if named else "same answer"


@pytest.mark.slow(60)
def test_random_damage(finished: Path) -> None:
    whole = finished.rename("whole")
    shutil.copytree(whole, "store")
    claims, answer = analyse()[1], ask().answer
    whole_claims = analyse()[1]
    assert claims != whole_claims
    assert answer["thresholds"]
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.monotonic()
    for number in range(FIRST, FIRST + CASES):
        rng = Rng(number)
        shutil.rmtree("store")
        shutil.copytree(whole, "store")
        shutil.rmtree("out", ignore_errors=True)
        what, believed = "nothing", False
        try:
            what, believed = rng.choice(SPOILED)(rng, Path("store"))
            with patience():
                outcome = check(answer, claims, whole_claims, believed)
        except (Exception, SystemExit) as error:
            outcome = "WRONG"
            wrong.append(f"{number}: {what}: {type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1500:]}")
        seen[outcome] += 1
        if os.environ.get("FUZZ_TELL") and outcome not in ("same answer", "same answer, named"):
            print(number, what, outcome, flush=True)
    print(f"{CASES} stores in {time.monotonic() - began:.0f} s:", *seen.most_common(), *wrong, sep="\n")
    assert not wrong, "\n".join(wrong)
