"""How firm the exponent of the scaling law is: the same MLP study under other targets, tolerances and centres.

    python -m benchmarks.sensitivity            N = 16..48, three seeds, nine settings
    python -m benchmarks.sensitivity --quick    N = 8,16, two seeds

All studies share one store, so it may be interrupted and repeated. Prints a table, one row per setting.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parent.parent


def exponent(store: Path, N: str, seeds: int, target: float, tolerance: int, centres: str, max_steps: int) -> str:
    """One row of the table: the settings, every size's mean threshold, the exponent with its interval."""
    options = [
        *("--N", N, "--seeds", str(seeds), "--decoder", "mlp", "--datasets", "bumps", "--store", str(store)),
        *("--target", str(target), "--tolerance", str(tolerance), "--centres", centres, "--max-steps", str(max_steps)),
        *("--out", str(store / f"scaling-{target}-{tolerance}-{centres}-{max_steps}"), "--json"),
    ]
    command = [sys.executable, "-m", "orchestrator.scaling", *options]
    finished = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer = json.loads(finished.stdout)
    fit = answer["fits"]["bumps"]
    means = ", ".join("-" if s["total_images"] is None else f"{s['total_images']:.0f}" for s in answer["summary"])
    if fit["exponent"] is None:
        law = fit["note"]
    elif fit["lower"] is None:
        law = f"{fit['exponent']:.2f} ({fit['note']})"
    else:
        law = f"{fit['exponent']:.2f} [{fit['lower']:.2f}, {fit['upper']:.2f}]" + (f" ({fit['note']})" if fit["note"] else "")
    return f"| {target:g} | {tolerance} | {centres} | {max_steps} | {means} | {law} |"


def main(
    store: Path = Path("results/sensitivity"),
    N: Annotated[str, typer.Option("--N")] = "16..48",
    seeds: int = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Two small sizes, two seeds.")] = False,
) -> None:
    """Print the table of exponents."""
    if quick:
        N, seeds = "8,16", 2
    settings = [(*s, 2000) for s in itertools.product((0.9, 0.6), (1, 0), ("integer", "real"))]
    print("| target | tolerance (px) | centres | most steps | images at each N (mean over seeds) | exponent [95 %] |")
    print("|---|---|---|---|---|---|")
    for target, tolerance, centres, max_steps in [*settings, (0.9, 1, "integer", 8000)]:
        print(exponent(store.absolute(), N, seeds, target, tolerance, centres, max_steps), flush=True)


if __name__ == "__main__":
    typer.run(main)
