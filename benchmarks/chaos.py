"""Disturbs small real studies in every way that machines do, and counts what that cost: nothing but time, it must be.

    python -m benchmarks.chaos --faults driver,worker --cycles 20 --seed 1

    python -m benchmarks.chaos --faults driver --cycles 200 --generators

The table: *rows* in the stores at the end; *lost*, rows that a reader saw or the program acknowledged and that are gone;
*doubled* rows; *torn reads*, when `pandas.read_parquet` failed; *trained again*, finished runs of which a further training was
started; whether the *answer* and all rows, bit for bit, are those of the undisturbed study; the *time* it took in relation to
that one, and the extra seconds for each disturbance.
"""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tests.chaos.faults import FAULTS, SkippedError
from tests.chaos.kills import KILLS, Bench, OfGenerators, campaign
from tests.chaos.lab import BrokenError, Lab, Verdict
from tests.chaos.store_level import sweep

SWEEPS = {
    "store": ("kill -9 at every step of the store's write path, of a process that does not train", False),
    "power": ("the same, and what was not synced by then is gone from the disk", True),
}
ALL = {name: about for group in (SWEEPS, KILLS, FAULTS) for name, (about, _) in group.items()}
COLUMNS = ("fault", "kills", "rows", "lost", "doubled", "torn reads", "trained again", "answer", "time", "s a kill")


def undergo(fault: str, bench: Bench) -> Verdict:
    """All cycles of one fault."""
    if fault in KILLS:
        return campaign(bench, fault, KILLS[fault][1])
    if fault in SWEEPS:
        return sweep(bench, SWEEPS[fault][1])
    try:
        verdict = FAULTS[fault][1](bench)
    except SkippedError as reason:
        return Verdict(fault, skipped=str(reason))
    except BrokenError as error:
        verdict = Verdict(fault, kills=1, wrong=[str(error)])
    bench.told(verdict)
    return verdict


def cells(verdict: Verdict) -> list[str]:
    if verdict.skipped:
        return [verdict.fault, "skipped"]
    numbers = (verdict.kills, verdict.rows, verdict.lost, verdict.doubled, verdict.torn, verdict.again)
    equal = {None: "", True: "equal", False: "DIFFERS"}[verdict.equal]
    times = ["", ""]
    if verdict.undisturbed and verdict.kills:
        extra = verdict.seconds - verdict.undisturbed
        times = [f"x {verdict.seconds / verdict.undisturbed:.1f}", f"{extra / verdict.kills:.1f}"]
    return [verdict.fault, *(f"{n:,}" for n in numbers), equal, *times]


def show(verdicts: list[Verdict], console: Console) -> int:
    """Print the table and what is to be said of it; the exit code."""
    made = Table(*COLUMNS, box=box.MARKDOWN)
    for verdict in verdicts:
        made.add_row(*cells(verdict), style="bold red" if verdict.broken() else None)
    console.print(made)
    for verdict in verdicts:
        if verdict.skipped:
            console.print(f"{verdict.fault}: skipped, {verdict.skipped}", markup=False)
        if verdict.deleted:
            console.print(f"{verdict.fault}: {verdict.deleted} rows were deleted by the fault itself", markup=False)
        for text in verdict.broken():
            console.print(f"{verdict.fault}: BROKEN: {text}", markup=False)
    return any(verdict.broken() for verdict in verdicts)


def gathered(files: list[Path]) -> list[Verdict]:
    """The verdicts in files that `--log` wrote, one for each fault."""
    whole: dict[str, Verdict] = {}
    for file in files:
        for line in file.read_text().splitlines():
            verdict = Verdict(**json.loads(line))
            whole.setdefault(verdict.fault, Verdict(verdict.fault, skipped=verdict.skipped)).add(verdict)
    return list(whole.values())


def listed() -> str:
    return "\n\n".join(f"`{name}`: {about}" for name, about in ALL.items())


app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(help=f"{__doc__}\n\n**Faults**\n\n{listed()}\n\nExit code 1 if a guarantee was broken.")
def main(
    faults: Annotated[str, typer.Option(help="Which, with commas; all if none is named.", show_default=False)] = "",
    cycles: Annotated[int, typer.Option(help="Disturbances under each fault that is repeated.")] = 20,
    seed: Annotated[str, typer.Option(help="Of the dice that choose studies and moments.")] = "0",
    seeds: Annotated[int, typer.Option(help="Of every study: how long it is.")] = 5,
    join: Annotated[bool, typer.Option("--join", help="Launches join a Ray that is up, as on a cluster.")] = False,
    here: Annotated[bool, typer.Option("--here", help="Launches train in their own process: no Ray starts.")] = False,
    generators: Annotated[bool, typer.Option("--generators", help="Studies of generators, in three stages.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Three disturbances a fault, small studies, short stops.")] = False,
    log: Annotated[Path | None, typer.Option(help="Gets the verdict on every study as a line of JSON.")] = None,
    read: Annotated[list[Path] | None, typer.Option(help="Only print the table of such files.", show_default=False)] = None,
) -> None:
    console = Console()
    if read:
        verdicts = gathered(read)
        raise typer.Exit(show(verdicts, console))
    chosen = [name.strip() for name in faults.split(",")] if faults else list(ALL)
    if unknown := sorted(set(chosen) - ALL.keys()):
        raise typer.BadParameter(f"no fault is called {', '.join(unknown)}: there are {', '.join(ALL)}")
    began = time.monotonic()

    def told(verdict: Verdict) -> None:
        line = f"{verdict.fault}: {verdict.kills} kills, {verdict.rows} rows, {', '.join(verdict.broken()) or 'all well'}"
        console.print(f"{time.monotonic() - began:.0f} s: {line}", highlight=False, markup=False)
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(verdict)) + "\n")

    verdicts = []
    folder = tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)
    with folder as place, Lab(Path(place), join, here) as lab:
        for name in chosen:
            size = (3, 2, 2.0) if quick else (cycles, seeds, 30.0)
            bench = (OfGenerators if generators else Bench)(lab, random.Random(f"{seed} {name}"), *size, told)
            verdicts.append(undergo(name, bench))
    raise typer.Exit(show(verdicts, console))


if __name__ == "__main__":
    app()
