"""What it costs to run a program as a run of a study, beside the bare command: the guard, the reading, the ending.

    python -m benchmarks.programs            30 runs of each, in turns
    python -m benchmarks.programs --quick    3

Without Ray and the store, whose cost is that of `benchmarks.engine`. Prints a table of medians.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import typer

from trainables.program import words_of
from trainables.program_run import ProgramRun
from trainables.spec import RunSpec

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = {
    "examples/coupons.awk": f"awk -v kinds={{N}} -v draws={{data_count}} -v seed={{seed}} -f {EXAMPLES}/coupons.awk",
    "examples/digits/train.py": f"{sys.executable} {EXAMPLES}/digits/train.py --images {{data_count}} --seed {{seed}}",
}


def spec_of(command: str) -> RunSpec:
    """A run that misses, so that the program ends by itself."""
    options = {"program": shlex.join(shlex.split(command)), "files": json.dumps({}), "counts": "1..1200"}
    return RunSpec(
        task="trainables.program:ProgramTask", dataset="example", N=500, data_count=100, seed=0, decoder="", depth=0, width=1,
        encoding="", holdout="", target=1.0, stop="target", options=tuple(options.items()),
    )  # fmt: skip


def main(quick: bool = False) -> None:
    """Print the table."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    print("| program | bare, s | as a run, s | more, s | ratio |")
    print("|---|---:|---:|---:|---:|")
    for name, command in PROGRAMS.items():
        spec = spec_of(command)
        bare, runs = [], []
        for _ in range(3 if quick else 30):
            began = time.perf_counter()
            subprocess.run(words_of(spec), capture_output=True, check=True, env=environment)
            bare.append(time.perf_counter() - began)
            began = time.perf_counter()
            run = ProgramRun(spec)
            run.advance()
            run.close()
            runs.append(time.perf_counter() - began)
        alone, whole = statistics.median(bare), statistics.median(runs)
        print(f"| `{name}` | {alone:.3f} | {whole:.3f} | {whole - alone:.3f} | {whole / alone:.2f} |")


if __name__ == "__main__":
    typer.run(main)
