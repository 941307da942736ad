"""The same question, the same answer: how long other tools take to find the thresholds that this project finds.

    python -m benchmarks.peers                     N = 16, 24, 32, both data sets, three seeds, three repeats of every way
    python -m benchmarks.peers --quick             N = 12, bumps, one seed, a coarser grid, one repeat, cut off after 10 s
    python -m benchmarks.peers --only a,e --save raw.json, then --resume raw.json to continue

The ways, each one whole program timed from its start to its end, one after another in every repeat:

    a   this project: `python -m orchestrator.scaling`, fresh store
    b   Ray Tune: grid over the data count, ASHA; b2 with actors reused, where Tune's default starts a process per trial
    c   Optuna: TPE over the data count, median pruner, `n_jobs` threads; c2 with processes that share a journal file
    d   Syne Tune: grid over the data count, ASHA, local backend
    e   joblib: doubling and bisection by hand, a bracket per job; e2 with this project's rule that ends failing runs
    f   the same in one process, one after another; f2 with that rule

All train through `Training` (`trainables.training.loop`) with the same seeds, budget, target and looks, one thread a process,
`--cores` at a time, and end a run when it first passes. Failing runs are ended by (b) to (d) as their schedulers decide, by (e)
and (f) at the end of the budget, and by (a), (e2) and (f2) by the rule of `trainables.training.stopping`: a script by hand
that calls our training function unchanged has it too. (b) to (d) are cut off after `--limit` seconds, as `time_budget_s`,
`timeout` and `max_wallclock_time` do it, every threshold having its share of the time that is left; a way that was cut off in
most thresholds is not repeated, for its time is the limit.

The grids go, in steps of the resolution, from 0.03 N^2 bumps (or the stripes alone) to all that can be drawn; Optuna has the
same range. A tool's threshold is the least total of images with a trial that passed; it is *settled* when a smaller total
within the resolution was tried and did not pass. *As f*: within the resolution of (f)'s threshold, or one image.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from benchmarks.peers.measure import spend
from benchmarks.peers.question import Question, Threshold, cores_here
from orchestrator.command.ranges import parse_grid
from trainables.bumps import DATASETS

ROOT = Path(__file__).parents[2]
NAMES = {
    "a": "this project",
    "b": "Ray Tune, grid + ASHA",
    "b2": "Ray Tune, grid + ASHA, actors reused",
    "c": "Optuna, TPE + median pruner, threads",
    "c2": "Optuna, TPE + median pruner, processes",
    "d": "Syne Tune, grid + ASHA",
    "e": "joblib, bisection",
    "e2": "joblib, bisection, our stopping rule",
    "f": "one process, bisection",
    "f2": "one process, bisection, our stopping rule",
}
REFERENCE = "f"
GOALS = (("the fastest of b to d", ("b", "b2", "c", "c2", "d"), 5.0), ("e", ("e",), 2.0))
"""How many times faster than these this project is to be."""

Result = dict[str, Any]


def scaling_command(question: Question) -> list[str]:
    """What a user of this project types."""
    return [
        *(sys.executable, "-m", "orchestrator.scaling", "--N", ",".join(map(str, question.N))),
        *("--datasets", ",".join(question.datasets), "--seeds", str(question.seeds), "--decoder", question.decoder),
        *("--resolution", str(question.resolution), "--target", str(question.target)),
        *("--max-steps", str(question.max_steps), "--workers", str(question.cores), "--store", "results"),
    ]


def read_store(folder: Path) -> Result:
    """The result of `a`, from the files a user reads."""
    rows = pd.read_parquet(folder / "results" / "runs")
    table = pd.read_csv(folder / "results" / "scaling" / "scaling.csv")
    answers = {
        f"{row.dataset} {row.N} {row.seed}": {
            "total": None if pd.isna(row.total_images) else int(row.total_images),
            "lower": None if pd.isna(row.lower) else int(row.lower),
            "settled": row.verdict in ("reached", "minimum", "non-monotone"),
        }
        for row in table.itertuples()
    }
    return {"trainings": len(rows), "steps": int(rows["steps"].sum()), "cut": [], "answers": answers}


def measure(letter: str, question: Question) -> Result:
    """One way, once.

    Raises:
        RuntimeError: it failed; the message ends with its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        question = Question(**{**asdict(question), "folder": name})
        question.save()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SYNETUNE_FOLDER": str(folder / "syne-tune"), "COLUMNS": "160"}
        words = [sys.executable, "-m", "benchmarks.peers.ways", letter, "question.json", "result.json"]
        command = scaling_command(question) if letter == "a" else words
        load = os.getloadavg()[0]
        spent = spend(command, folder / "output", environment, folder)
        if spent.returncode != 0:
            raise RuntimeError(f"{NAMES[letter]} ended with {spent.returncode}:\n" + (folder / "output").read_text()[-3000:])
        result = read_store(folder) if letter == "a" else json.loads((folder / "result.json").read_text())
        spent_fields = {"seconds": spent.seconds, "cpu_seconds": spent.cpu_seconds, "load_before": load}
    return {"way": letter, "repeat": question.repeat, **spent_fields, **result}


def wanted(way: str, repeat: int, results: list[Result]) -> bool:
    """Whether a way is still to be measured in this repeat."""
    found = [r for r in results if r["way"] == way]
    return all(r["repeat"] != repeat and len(r["cut"]) <= len(r["answers"]) / 2 for r in found)


def same(one: int | None, other: int | None, resolution: float) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(1, resolution * max(one, other))


def summary(results: list[Result], thresholds: list[Threshold], resolution: float) -> str:
    """The table of times."""
    names = [t.name for t in thresholds]
    by_way = {way: [r for r in results if r["way"] == way] for way in NAMES}
    ours = [r["seconds"] for r in by_way["a"]]
    reference = by_way[REFERENCE][0]["answers"] if by_way[REFERENCE] else None
    lines = [
        "| | way | seconds, median (least to most) | times a | CPU seconds | trainings | steps | settled | as f |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way, found in by_way.items():
        if not found:
            continue
        seconds = [r["seconds"] for r in found]
        more = "> " if any(r["cut"] for r in found) else ""
        cut = statistics.median(len(r["cut"]) for r in found)
        ratio = f"{more}{statistics.median(seconds) / statistics.median(ours):.1f}" if ours else ""
        settled = statistics.median(sum(r["answers"][n]["settled"] for n in names) for r in found)
        agree = ""
        if reference is not None:
            counts = [
                sum(same(r["answers"][n]["total"], reference[n]["total"], resolution) for n in names) for r in found
            ]
            agree = f"{statistics.median(counts):g}"
        cells = [
            way,
            NAMES[way],
            f"{more}{statistics.median(seconds):.0f} ({min(seconds):.0f} to {max(seconds):.0f})"
            + (f", {cut:g} of {len(names)} cut off" if more else ""),
            ratio,
            f"{statistics.median(r['cpu_seconds'] for r in found):.0f}",
            f"{statistics.median(r['trainings'] for r in found):g}",
            f"{statistics.median(r['steps'] for r in found):,.0f}",
            f"{settled:g} of {len(names)}",
            agree,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def answers(results: list[Result], thresholds: list[Threshold]) -> str:
    """The table of thresholds: totals of images, `low to high` where the repeats differ, `-` for none, `?` if not settled."""
    ways = [way for way in NAMES if any(r["way"] == way for r in results)]
    lines = ["| data set, N, seed | " + " | ".join(ways) + " |", "|---|" + "---:|" * len(ways)]
    for threshold in thresholds:
        cells = []
        for way in ways:
            found = [r["answers"][threshold.name] for r in results if r["way"] == way]
            totals = sorted({"-" if f["total"] is None else str(f["total"]) for f in found}, key=lambda t: (len(t), t))
            text = totals[0] if len(totals) == 1 else f"{totals[0]} to {totals[-1]}"
            cells.append(text + ("" if all(f["settled"] for f in found) else "?"))
        lines.append(f"| {threshold.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goals(results: list[Result]) -> str:
    """One line a goal: met or not, and by how much. A way that was cut off would have taken longer."""
    medians: dict[str, tuple[float, bool]] = {}
    for way in NAMES:
        if found := [r for r in results if r["way"] == way]:
            medians[way] = statistics.median(r["seconds"] for r in found), any(r["cut"] for r in found)
    lines = []
    for name, ways, goal in GOALS:
        if {"a", *ways} <= medians.keys():
            theirs, cut = min(medians[way] for way in ways)
            ratio = theirs / medians["a"][0]
            verdict = "met" if ratio >= goal else "cut off too early to say" if cut else "missed"
            lines.append(f"{goal:g} times faster than {name}: {'> ' if cut else ''}{ratio:.1f} times, {verdict}")
    return "\n".join(lines)


def main(
    N: Annotated[str, typer.Option("--N", help="Grid sizes.")] = "16,24,32",
    seeds: int = 3,
    decoder: str = "mlp",
    resolution: float = 0.05,
    max_steps: int = 2000,
    repeats: int = 3,
    cores: int = cores_here(),
    limit: Annotated[float, typer.Option(help="Seconds after which b, c and d are cut off, in every repeat.")] = 300.0,
    only: Annotated[str, typer.Option(help="Ways, for example a,e.")] = ",".join(NAMES),
    save: Annotated[Path | None, typer.Option(help="Where to keep what was measured, written after every way.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue such a file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One threshold, coarse, once, cut off after 10 s.")] = False,
) -> None:
    """Print the tables: times, thresholds, goals."""
    datasets = DATASETS
    if quick:
        N, seeds, resolution, repeats, limit, datasets = "12", 1, 0.2, 1, min(limit, 10.0), ("bumps",)
    ways = only.split(",")
    if unknown := [way for way in ways if way not in NAMES]:
        raise typer.BadParameter(f"{', '.join(unknown)}: the ways are {', '.join(NAMES)}")
    question = Question(
        N=parse_grid(N), datasets=datasets, seeds=seeds, decoder=decoder, resolution=resolution, target=0.9,
        max_steps=max_steps, cores=cores, limit=limit, folder="",
    )  # fmt: skip
    settings = json.loads(json.dumps(asdict(question)))
    results: list[Result] = []
    if resume is not None:
        kept = json.loads(resume.read_text())
        if kept["settings"] != settings:
            raise typer.BadParameter(f"{resume} was measured with other settings: {kept['settings']}")
        results, save = kept["results"], resume
    for repeat in range(repeats):
        for way in NAMES:
            if way not in ways or not wanted(way, repeat, results):
                continue
            results.append(measure(way, Question(**{**asdict(question), "repeat": repeat})))
            print(f"{way}, repeat {repeat}: {results[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
            if save is not None:
                new = save.with_suffix(".new")
                new.write_text(json.dumps({"settings": settings, "results": results}))
                shutil.move(new, save)
    thresholds = question.thresholds()
    print(summary(results, thresholds, resolution), answers(results, thresholds), goals(results), sep="\n\n")


if __name__ == "__main__":
    typer.run(main)
