"""Whether bfloat16 gives the same verdicts as float32, and how much faster it is on this machine.

Trains the same probes around the expected threshold in both precisions, with the ordinary early stop.

    python -m benchmarks.precision --quick
    python -m benchmarks.precision --N 16,24 --seeds 2
"""

from __future__ import annotations

import argparse
import dataclasses
import time

from benchmarks.stopping import TASK, probes
from orchestrator.command.ranges import parse_grid
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.precision import fastest_precision, quiet_cpu
from trainables.training.result import RunResult


def train(spec: RunSpec) -> tuple[RunResult, float]:
    """Result and milliseconds per training step, looks included."""
    start = time.perf_counter()
    run = Training(spec, TASK)
    run.advance()
    return run.result(), 1e3 * (time.perf_counter() - start) / run.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--N", default="16,24", help="grid sizes, as in 16..32 or 16,24 (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds per size (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="N = 16, three data counts, one seed: about half a minute")
    options = parser.parse_args()
    quiet_cpu()
    sizes, seeds = ((16,), 1) if options.quick else (parse_grid(options.N), options.seeds)
    shares = (0.6, 0.9, 1.3) if options.quick else (0.6, 0.75, 0.9, 1.0, 1.1, 1.3)
    same, apart, ratios = 0, [], []
    specs = probes("cnn", sizes, range(seeds), shares, stop="early")
    for spec in specs:
        wide, wide_ms = train(dataclasses.replace(spec, precision="float32"))
        half, half_ms = train(dataclasses.replace(spec, precision="bfloat16"))
        same += wide.status == half.status
        apart.append(abs(wide.accuracy - half.accuracy))
        ratios.append(wide_ms / half_ms)
        print(
            f"N={spec.N} D={spec.data_count} seed={spec.seed}: "
            f"float32 {wide.status} {wide.accuracy:.3f} after {wide.steps}, {wide_ms:.1f} ms a step; "
            f"bfloat16 {half.status} {half.accuracy:.3f} after {half.steps}, {half_ms:.1f} ms a step",
            flush=True,
        )
    print(f"{len(specs)} probes: verdicts agree in {same}, accuracies differ by at most {max(apart):.3f}")
    print(f"float32 / bfloat16 time per step: {sum(ratios) / len(ratios):.2f}; fastest here: {fastest_precision('cnn')}")


if __name__ == "__main__":
    main()
