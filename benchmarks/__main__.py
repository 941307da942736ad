"""Runs the benchmarks one after another, quick modes two at a time, each as a command of its own, and keeps what they print.

    python -m benchmarks --quick                  all of them in ten minutes, to see that they work
    python -m benchmarks                          all of them at full size: hours; best on a quiet machine
    python -m benchmarks step peers --out tables  some of them

What a benchmark prints goes to OUT/NAME.md. Exit code 1 if one fails; the others are run all the same.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

BENCHMARKS = {
    "peers": "the same question answered with other tools",
    "step": "a training step against the rate of a matrix product",
    "generator_step": "the same of generators, and what looking at their pictures takes",
    "gpu": "many runs on one GPU: alone, shared, packed",
    "start": "from the command to its first run, and from the last one to the end",
    "engine": "cost of a run in the engine",
    "store": "a million rows in the store",
    "simulator": "a thousand workers and a hundred thousand runs under a virtual clock",
    "threshold_search": "trainings per threshold, on simulated studies",
    "exponents": "how often the interval of the exponent is right",
    "axes": "the same for other settings than the data count",
    "stopping": "the rule that ends failing runs",
    "hard_curves": "curves that are not those of bumps, for that rule",
    "audits": "threshold searches on such curves, with and without audits",
    "precision": "bfloat16 against float32",
    "programs": "a program as a run, beside the bare command",
    "lowrank_step": "the low-rank decoder against plain layers",
    "penalty_search": "ways of searching the penalty weights",
    "validation": "how well validation predicts the error in the box",
    "decoder_parts": "what each change of the low-rank decoder brings",
    "winners_curse": "the best trial of a search, and its confirmation on fresh seeds",
    "pareto": "how much of a known Pareto front a search finds",
    "analysis": "every measure of one trained decoder",
}
ON_A_CPU = {"gpu": ["--device", "cpu"]}
"""What lets the quick mode of a benchmark work without a GPU."""

AT_ONCE = 2
"""Quick modes that run side by side: they show that a benchmark works, and are no measurement."""


def call(name: str, quick: bool, out: Path) -> int:
    """Run one and return its exit code; what it prints is shown line by line, or, in the quick mode, at its end."""
    text: list[str] = []
    say: Callable[[str], object] = text.append if quick else partial(print, end="", flush=True)
    began = time.monotonic()
    say(f"## {name}: {BENCHMARKS[name]}\n")
    arguments = ["--quick", *ON_A_CPU.get(name, [])] if quick else []
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with (out / f"{name}.md").open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            file.write(line)
            say(line)
    say(f"({name}: exit code {running.returncode}, {time.monotonic() - began:.0f} s)\n\n")
    print(*text, sep="", end="", flush=True)
    return running.returncode


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help=f"Some of: {', '.join(BENCHMARKS)}. All if none is named.", show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick modes, ten minutes in all, to see that they work; at full size hours.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for what they print, a file NAME.md for each.")] = Path("benchmark-tables"),
) -> None:
    """Run the benchmarks one after another, quick modes two at a time, and keep what they print."""
    if unknown := sorted(set(names or []) - BENCHMARKS.keys()):
        print(f"no benchmark is called {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        raise typer.Exit(2)
    out.mkdir(parents=True, exist_ok=True)
    chosen = names or list(BENCHMARKS)
    with ThreadPoolExecutor(AT_ONCE if quick else 1) as pool:
        codes = pool.map(lambda name: call(name, quick, out), chosen)
    if failed := [name for name, code in zip(chosen, codes, strict=True) if code]:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
