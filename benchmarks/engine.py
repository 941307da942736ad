"""What the engine costs per run: no-op runs through search, Ray Tune, store and back, beside plain Ray Tune.

    python -m benchmarks.engine                     1,000 runs: plain Tune, the engine with single runs, with packs of 64
    python -m benchmarks.engine --runs 100,1000,10000
    python -m benchmarks.engine --quick             100 runs

All in one program, one after the other, on the same embedded Ray: plain Tune with reused actors and without loggers (its
fastest setting) trains nothing and keeps nothing; the engine makes real networks, trains a step, measures them and stores
durable rows, one durable write for all runs that a worker reports at once. `last tenth / second tenth` compares the cost of a
run late and early (the first tenth warms up): 1 means that the 1,000th run costs no more than the 100th. MB is the memory of
this program after the first run, half of them and all, `KB per run` what each run of the second half added. Memory is not given
back between the programs: for these columns run one of them alone (`--no-plain --packs 1`).
"""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from orchestrator.engine.cluster import Cluster
from orchestrator.engine.driver import TUNE_SETTINGS, executed
from orchestrator.engine.execution import Execution, Limits
from orchestrator.engine.pack_sizes import PackSizes
from orchestrator.searches import Curve, Rows
from orchestrator.store import ResultStore
from trainables.spec import Counts, RunSpec, run_key
from trainables.task import Data, Split


class NoOp:
    """One weight, one step, one sample."""

    version = "1"
    choices = {"dataset": ("none",), "decoder": ("none",), "encoding": ("none",), "holdout": ("random",)}
    packable = ()
    defaults: dict = {}

    def preset(self, dataset, decoder):
        return {}

    def counts(self, spec):
        return Counts(1, 1)

    def data(self, spec):
        one = torch.ones(1, 1)
        return Data(Split(one, one, one), Split(one, one, one))

    def model(self, spec):
        return nn.Linear(1, 1)

    def measure(self, spec, outputs, split):
        return {"correct": torch.ones(len(outputs), dtype=torch.bool)}


def memory() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Listed:
    """A search that asks for a fixed list of runs."""

    def __init__(self, specs: list[RunSpec], version: str) -> None:
        self.specs, self.keys, self.first = specs, [run_key(s, version) for s in specs], 0

    def propose(self, rows: Rows, room: int, running: Sequence[RunSpec] = (), fill: int | None = None) -> list[RunSpec]:
        while self.first < len(self.keys) and rows.get(self.keys[self.first]) is not None:
            self.first += 1
        window = range(self.first, min(self.first + 2 * room, len(self.keys)))
        return [self.specs[i] for i in window if rows.get(self.keys[i]) is None][:room]

    def pruned_at(self, rows: Rows, spec: RunSpec, curve: Curve) -> int | None:
        return None

    def finished(self, rows: Rows) -> bool:
        return len(rows) == len(self.specs)


class Clock:
    """An observer that keeps the time of every finished run, and what memory this process held then."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.memory: list[int] = []

    def finished(self, row=None) -> None:
        self.times.append(time.perf_counter())
        self.memory.append(memory())

    def connected(self, workers) -> None: ...
    def started(self, key, spec) -> None: ...
    def progressed(self, key, spec, report) -> None: ...
    def dropped(self, key) -> None: ...
    def notice(self, text) -> None:
        print(text)


def through_the_engine(runs: int, workers: int, cluster: Cluster, pack: int, clock: Clock | None = None) -> Clock:
    task, clock = NoOp(), clock or Clock()
    specs = [
        RunSpec(task="benchmarks.engine:NoOp", dataset="none", N=1, data_count=1, seed=seed, target=1.0, max_steps=1)
        for seed in range(runs)
    ]
    with tempfile.TemporaryDirectory() as folder, ResultStore(folder) as store:
        execution = Execution(
            search=Listed(specs, task.version), task=task, store=store, rows=Rows(), observer=clock, workers=workers,
            limits=Limits(), versions="", launch="benchmark", packs=PackSizes(task, fixed=pack),
        )  # fmt: skip
        with executed(execution, cluster):
            assert len(store) == runs
    return clock


def through_plain_tune(runs: int, workers: int, cluster: Cluster) -> Clock:
    with cluster.connected(), tempfile.TemporaryDirectory() as folder:
        from ray import tune

        class Nothing(tune.Trainable):
            def step(self):
                return {"done": True, "score": 0.0}

            def reset_config(self, config):
                return True

        clock = Clock()

        class Times(tune.Callback):
            def on_trial_complete(self, iteration, trials, trial, **info):
                clock.finished()

        tune.Tuner(
            tune.with_resources(Nothing, {"cpu": 1}),
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=runs, max_concurrent_trials=workers, reuse_actors=True),
            run_config=tune.RunConfig(
                name="plain", storage_path=folder, verbose=0, callbacks=[Times()],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()  # fmt: skip
        return clock


def line(what: str, clock: Clock, pack: int) -> str:
    """A row of the table; tenths are told apart only where they are many packs."""
    times, tenth = clock.times, len(clock.times) // 10
    half = len(times) // 2
    grown = (clock.memory[-1] - clock.memory[half]) / 1024 / (len(times) - 1 - half)
    memory = f"{clock.memory[0] / 2**20:.0f} | {clock.memory[half] / 2**20:.0f} | {clock.memory[-1] / 2**20:.0f} | {grown:.1f}"
    second, last = times[2 * tenth] - times[tenth], times[-1] - times[-1 - tenth]
    whole = 1000 * (times[-1] - times[0]) / (len(times) - 1)
    tenths = (f"{1000 * last / tenth:.1f}", f"{last / second:.2f}") if tenth >= 10 * pack else ("", "")
    return f"| {what} | {len(times):,} | {whole:.1f} | {' | '.join(tenths)} | {memory} |"


def main(
    runs: Annotated[str, typer.Option(help="Numbers of runs, with commas.")] = "1000",
    packs: Annotated[str, typer.Option(help="Pack sizes, with commas.")] = "1,64",
    workers: int = 2,
    plain: bool = True,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    os.environ.update(TUNE_SETTINGS)
    columns = (
        "what", "runs", "ms per run, whole", "ms per run, last tenth", "last tenth / second tenth",
        "MB, first run", "MB, half", "MB, end", "KB per run",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
    for number in [100] if quick else map(int, runs.split(",")):
        cluster = Cluster(workers=workers)
        if plain:
            print(line("plain Tune, keeps nothing", through_plain_tune(number, workers, cluster), 1), flush=True)
        for size in map(int, packs.split(",")):
            what = f"engine, durable rows, {f'packs of {size}' if size > 1 else 'single runs'}"
            print(line(what, through_the_engine(number, workers, cluster, size), size), flush=True)


if __name__ == "__main__":
    typer.run(main)
