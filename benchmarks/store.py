"""What the store costs as it grows to a million rows: appending, opening with one study's question, reading from outside.

    python -m benchmarks.store            1,000,000 rows, about ten minutes and 1 GB
    python -m benchmarks.store --quick    10,000 rows

Rows are as a study makes them: curves of 10 to 20 points, six counts to a threshold. Up to each size the store is filled as
two thousand launches of 500 rows would have, so that the parts are those of single appends; what fills it is not timed. Then
rows are appended one durable write each, as the engine does, and in packs of 64. Every opening is in a fresh process, twice:
with the index that the store keeps, and without.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from orchestrator.searches import Rows
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.probing import ladder
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import SCHEMA, ResultStore, Row, make_row
from orchestrator.store.parts import parquet_bytes
from orchestrator.store.register import ROWS_PER_PART
from orchestrator.store.rows import encode
from trainables.spec import Counts, RunSpec, family_key, run_key

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PACK = 64
PROBES = 6
QUESTION_SIZES, QUESTION_SEEDS, RESOLUTION = range(16, 65, 8), range(3), 0.05
COPIED = 10_000
"""Rows made one by one; larger stores hold copies of them with other keys, families and seeds."""
EVERYTHING_UP_TO = 100_000
"""Above, all rows as dicts would take several GB."""


def template(N: int, seed: int) -> RunSpec:
    options = {"absent": 0, "centres": "integer", "sigma": 1.0, "tolerance": 1}
    return RunSpec(
        task="trainables.bumps:BumpTask", dataset="bumps", N=N, data_count=0, seed=seed, decoder="mlp", width=256,
        options=tuple(options.items()),
    )  # fmt: skip


def row(i: int, spec: RunSpec, status: str) -> Row:
    draw = random.Random(i)
    points = draw.randint(10, 20)
    curve = [draw.random() for _ in range(points)]
    return make_row(
        spec,
        task_version="1",
        fixed_count=0,
        status=status,
        reason="target" if status == "passed" else "budget",
        steps=20 * points,
        passage_step=20 * points if status == "passed" else None,
        accuracy=draw.random(),
        id_mse=draw.random() / 100,
        ood_mse=draw.random() / 100,
        loss=draw.random() / 100,
        measures={"exact": draw.random(), "proper": draw.random(), "centre_error": draw.random()},
        curve_step=range(20, 20 * points + 1, 20),
        curve_loss=curve,
        curve_accuracy=curve,
        curve_error=curve,
        seconds=draw.random(),
        host="worker-1",
        launch="0123456789ab",
        versions="python=3.11.7 sweep-orchestrator=0.1.0 torch=2.13.0 ray=2.60.0 numpy=2.3.0",
    )


def question() -> list[Bracket]:
    """The scaling study that is asked of every store: seven grid sizes, three seeds."""
    templates = [template(N, seed) for N in QUESTION_SIZES for seed in QUESTION_SEEDS]
    return [Bracket(template=spec, task_version="1", counts=Counts(1, spec.N**2)) for spec in templates]


def answers() -> list[Row]:
    """Rows that answer it, a full grid each: a threshold of N^2 / 8."""
    specs = [
        b.template.with_count(count) for b in question() for count in ladder(b.counts.low, b.counts.high, 0, RESOLUTION).counts
    ]
    return [row(i, spec, "passed" if spec.data_count >= spec.N**2 / 8 else "missed") for i, spec in enumerate(specs)]


def others(count: int) -> Iterator[pa.Table]:
    """Rows of other studies, ROWS_PER_PART at a time."""

    def place(i: int) -> RunSpec:
        family, probe = divmod(i, PROBES)
        return template(8 * (1 + family % 16), 100 + family).with_count(1 + probe)

    pattern = encode([row(i, place(i), "missed") for i in range(COPIED)])
    for start in range(0, count, ROWS_PER_PART):
        table = pattern.slice(start % COPIED, ROWS_PER_PART)
        if start >= COPIED:
            copies = [place(i) for i in range(start, start + ROWS_PER_PART)]
            changed = {
                "key": [run_key(spec, "1") for spec in copies],
                "family": [family_key(spec, "1") for spec in copies],
                **{name: [getattr(spec, name) for spec in copies] for name in ("N", "seed", "data_count")},
            }
            for name, values in changed.items():
                field = SCHEMA.field(name)
                table = table.set_column(SCHEMA.names.index(name), field, pa.array(values, field.type))
        yield table


def fill(folder: Path, source: Iterator[pa.Table], rows: int) -> None:
    """Bring the store to about so many rows with full parts, written as the store does but without its fsync."""
    for number in range(len(list(folder.glob("runs/filled-*"))), rows // ROWS_PER_PART):
        (folder / "runs" / f"filled-{number:06d}.parquet").write_bytes(parquet_bytes(next(source)))


def appending(folder: Path, first: int, count: int, pack: int) -> tuple[float, float, float]:
    """Milliseconds a row, all in all, in CPU time and in fsync, for rows appended `pack` at a time."""
    rows = [row(i, template(24, 10_000_000 + first + i), "missed") for i in range(count)]
    with ResultStore(folder) as store, timed_fsync() as synced:
        store.append([row(0, template(24, 20_000_000 + first), "missed")])
        synced.clear()
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, count, pack):
            store.append(rows[start : start + pack])
        spent = time.perf_counter() - began, time.process_time() - cpu, sum(synced)
        return tuple(1000 * seconds / count for seconds in spent)


@contextmanager
def timed_fsync() -> Iterator[list[float]]:
    """The seconds of every fsync meanwhile."""
    fsync, spent = os.fsync, []

    def timed(descriptor: int) -> None:
        began = time.perf_counter()
        fsync(descriptor)
        spent.append(time.perf_counter() - began)

    os.fsync = timed
    try:
        yield spent
    finally:
        os.fsync = fsync


def peak_mb() -> float:
    """Peak memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def open_and_answer(folder: Path) -> dict[str, float]:
    """What a launch does before it trains: open, pick the study's rows, make the table."""
    from analysis.scaling import Answer

    before = peak_mb()
    began = time.perf_counter()
    with ResultStore(folder) as store:
        opened = time.perf_counter()
        brackets = question()
        rows = Rows(store.rows(where={"family": {b.family for b in brackets}}))
        search = ThresholdSearch(brackets, RESOLUTION)
        answered = search.finished(rows)
        results = [r.to_row() for r in search.answer(rows)]
        settings = {"decoder": "mlp", "encoding": "bump", "target": 0.9}
        assert Answer.of(results, settings).lines()
        total = time.perf_counter() - began
        assert answered
        assert store.notices == []
        return {"open": opened - began, "total": total, "memory": peak_mb() - before, "count": len(store)}


def everything(folder: Path) -> dict[str, float]:
    """All rows as dicts, as before there was a choice."""
    before, began = peak_mb(), time.perf_counter()
    with ResultStore(folder, read_only=True) as store:
        return {"count": len(Rows(store.rows())), "total": time.perf_counter() - began, "memory": peak_mb() - before}


def with_pandas(folder: Path) -> dict[str, float]:
    import pandas as pd

    began = time.perf_counter()
    return {"count": len(pd.read_parquet(folder / "runs")), "total": time.perf_counter() - began}


def with_duckdb(folder: Path) -> dict[str, float]:
    import duckdb

    began = time.perf_counter()
    query = f"select count(*), avg(accuracy), avg(list_last(curve_error)) from read_parquet('{folder}/runs/*.parquet')"
    ((count, *_),) = duckdb.connect().execute(query).fetchall()
    return {"count": count, "total": time.perf_counter() - began}


ASIDE = {f.__name__: f for f in (open_and_answer, everything, with_pandas, with_duckdb)}


def aside(what: str, folder: Path) -> dict[str, float]:
    """One of the above in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.store", "--aside", what, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(folder: Path, sizes: tuple[int, ...], appended: int) -> None:
    head = (
        "rows", "files", "MB", "ms a row: single appends (CPU, fsync)", "in packs of 64 (CPU, fsync)",
        "open to table, s: with index", "without", "memory, MB", "all rows as dicts, s (MB)", "pandas, s", "DuckDB, s",
    )  # fmt: skip
    print("| " + " | ".join(head) + " |")
    print("|" + "---:|" * 12)
    with ResultStore(folder) as store:
        store.append(answers())
    source, appends = others(sizes[-1]), 0
    for size in sizes:
        fill(folder, source, size)
        first = aside("open_and_answer", folder)
        (folder / ".index").unlink(missing_ok=True)
        without = aside("open_and_answer", folder)
        single = appending(folder, appends, appended, 1)
        packed = appending(folder, appends + appended, appended, PACK)
        appends += 2 * appended
        opened = min((aside("open_and_answer", folder) for _ in range(3)), key=lambda r: r["total"])
        files = list((folder / "runs").iterdir())
        pandas, duckdb = aside("with_pandas", folder), aside("with_duckdb", folder)
        assert opened["count"] == pandas["count"] == duckdb["count"] > first["count"] == without["count"] >= size
        whole = aside("everything", folder) if size <= EVERYTHING_UP_TO else None
        cells = (
            f"{int(opened['count']):,}",
            f"{len(files):,}",
            f"{sum(f.stat().st_size for f in files) / 1e6:,.0f}",
            f"{single[0]:.1f} ({single[1]:.1f}, {single[2]:.1f})",
            f"{packed[0]:.2f} ({packed[1]:.2f}, {packed[2]:.2f})",
            f"{opened['total']:.2f}",
            f"{without['total']:.2f}",
            f"{opened['memory']:.0f}",
            f"{whole['total']:.1f} ({whole['memory']:.0f})" if whole else "",
            f"{pandas['total']:.1f}",
            f"{duckdb['total']:.1f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)


def main(
    quick: Annotated[bool, typer.Option("--quick")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the store is made; default: the temporary folder.")] = None,
    aside: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    if aside:
        print(json.dumps(ASIDE[aside](folder)))
        return
    names = ", ".join(f"{name} {version(name)}" for name in ("pyarrow", "pandas", "duckdb"))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, {names}\n")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        measure(Path(place), SIZES[:2] if quick else SIZES, 200 if quick else 1000)


if __name__ == "__main__":
    typer.run(main)
