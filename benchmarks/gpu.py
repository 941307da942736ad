"""What a GPU makes of many small trainings: alone, side by side in processes that share it, and packed into one program.

    python -m benchmarks.gpu                            CNN in bfloat16 on the first GPU, about ten minutes
    python -m benchmarks.gpu --device cpu --quick       the same script on a CPU, half a minute: tests that it works

Where time on the GPU is short, run it with `--N 28` first, and then with `--N 16,64`: every row is printed as soon as it is
measured.

Run-steps per second, a run-step being one optimizer step of one run, of 1, 4, 16, ... runs:

- in k processes that share the GPU, each the plain loop, which is what fractional GPUs of Ray Tune give; the best k counts;
- alone, the plain loop;
- alone, the step recorded as a CUDA graph (a pack of one);
- packed.

All are looked at as often as runs of a study, and those of a pack draw batches of their own, but none ever ends. A pack that
does not fit, or whose runs had to be trained one by one, has a row that says so, and no rate.

Two floors are measured in the same run: the rate of a large matrix product, and the bandwidth of a copy. The least time of a
run-step is that of its operations at the former (counted as in `benchmarks.step`), or of the bytes it cannot avoid at the
latter, whichever is longer: AdamW reads four and writes three numbers for each parameter, and every activation is written once
and read twice on the way forward and back, and its gradient as often.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import platform
import queue
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing.synchronize import Barrier
from typing import Annotated

import torch
import typer
from torch import nn

from benchmarks.step import operations
from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.loop import Measuring, Training
from trainables.training.memory import is_out_of_memory
from trainables.training.pack_size import twin
from trainables.training.packs import Pack
from trainables.training.precision import quiet_cpu

TASK = BumpTask()
PATIENCE = 60
"""Seconds in which a process has to start, or to answer."""


class Endless(Training):
    """A run that never ends, whatever a look finds."""

    def look(self, *known: float) -> Measuring:
        yield from super().look(*known)
        self.reason = ""


def make_spec(decoder: str, N: int, precision: str) -> RunSpec:
    spec = RunSpec(
        task="trainables.bumps:BumpTask", N=N, data_count=0, seed=0, **spec_fields(TASK, {"decoder": decoder}),
        precision=precision, stop="target", max_steps=10**7,
    )  # fmt: skip
    return spec.with_count(TASK.counts(spec).high)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def rate(advance: Callable[[float], object], run: Training, device: str, seconds: float) -> float:
    """Steps of `run` per second while `advance(seconds)` trains it, after a first round that warms up."""
    advance(seconds / 4)
    synchronize(device)
    began, step = time.perf_counter(), run.step
    advance(seconds)
    synchronize(device)
    return (run.step - step) / (time.perf_counter() - began)


def alone(spec: RunSpec, device: str, seconds: float) -> float:
    run = Endless(spec, TASK, device)
    return rate(run.advance, run, device, seconds)


def packed(spec: RunSpec, device: str, seconds: float, size: int) -> float:
    """
    Raises:
        RuntimeError: the runs were trained one by one.
    """
    first = Endless(spec, TASK, device)
    runs = [twin(first) for _ in range(size)]
    for seed, run in enumerate(runs):
        run.spec = dataclasses.replace(spec, seed=seed)
    pack = Pack(runs)
    found = size * rate(pack.advance, pack.runs[0], device, seconds)
    if pack.unstacked:
        raise RuntimeError(f"trained one by one, {pack.unstacked}")
    return found


def shared(spec: RunSpec, device: str, seconds: float, processes: int) -> float:
    """All steps per second of processes that start measuring together.

    Raises:
        RuntimeError: one of them did not start, or did not answer.
    """
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = (spec, device, seconds, barrier, results)
    workers = [context.Process(target=_one_of_many, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        return float(sum(results.get(timeout=PATIENCE + 2 * seconds) for _ in workers))
    except queue.Empty:
        raise RuntimeError("a process has failed") from None
    finally:
        for worker in workers:
            worker.join(timeout=5)
            worker.kill()


def _one_of_many(spec: RunSpec, device: str, seconds: float, barrier: Barrier, results: multiprocessing.Queue) -> None:
    quiet_cpu()
    run = Endless(spec, TASK, device)
    run.advance(seconds / 4)
    synchronize(device)
    barrier.wait(timeout=PATIENCE)
    began, step = time.perf_counter(), run.step
    run.advance(seconds)
    synchronize(device)
    results.put((run.step - step) / (time.perf_counter() - began))


def product_rate(device: str, precision: str, size: int) -> float:
    """Operations per second of a large matrix product."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    a, b = torch.randn(2, size, size, device=device).to(dtype)
    return 2 * size**3 / _seconds(lambda: a @ b, device)


def copy_rate(device: str, size: int) -> float:
    """Bytes per second, read and written, of a copy."""
    a = torch.zeros(size, device=device)
    b = torch.empty_like(a)
    return 8 * size / _seconds(lambda: b.copy_(a), device)


def _seconds(work: Callable[[], object], device: str) -> float:
    least = float("inf")
    for _ in range(5):
        work()
        synchronize(device)
        began = time.perf_counter()
        for _ in range(10):
            work()
        synchronize(device)
        least = min(least, (time.perf_counter() - began) / 10)
    return least


def least_bytes(model: nn.Module, spec: RunSpec) -> float:
    """What a step has to move: see the module."""
    activations: list[int] = []
    hooks = [
        m.register_forward_hook(lambda _, __, out: activations.append(out.numel()))
        for m in model.modules()
        if isinstance(m, nn.ConvTranspose2d | nn.Linear)
    ]
    codes = TASK.split(spec, torch.zeros(spec.batch_size, 2)).inputs
    with torch.no_grad():
        getattr(model, "plain", model)(codes)  # the layers themselves, where there is a faster way
    for hook in hooks:
        hook.remove()
    parameters = sum(p.numel() for p in model.parameters())
    return 7 * 4 * parameters + 6 * (2 if spec.precision == "bfloat16" else 4) * sum(activations)


def row(N: int, way: str, measure: Callable[[], float], floor: float, best: float = 0.0) -> float:
    """Print what `measure` finds, or why it finds nothing, and give it back; 0 for nothing."""
    try:
        value = measure()
    except RuntimeError as error:
        why = "out of memory" if is_out_of_memory(error) else " ".join(str(error).split())[:200].replace("|", "/")
        print(f"| {N} | {way}: {why} | - | - | - |", flush=True)
        return 0.0
    print(f"| {N} | {way} | {value:.0f} | {f'{value / best:.2f}' if best else '-'} | {value / floor:.1%} |", flush=True)
    return value


def main(
    device: Annotated[str, typer.Option(help="`cuda` or `cpu`.")] = "cuda",
    decoder: Annotated[str, typer.Option(help="`cnn` or `mlp`.")] = "cnn",
    precision: Annotated[str, typer.Option(help="`float32`, `tf32` or `bfloat16`.")] = "bfloat16",
    sizes: Annotated[str, typer.Option("--N", help="Grid sizes.")] = "16,28,64",
    packs: Annotated[str, typer.Option(help="Runs in a pack.")] = "1,4,16,64,256",
    processes: Annotated[str, typer.Option(help="Processes that share the GPU.")] = "2,4,8,16",
    seconds: Annotated[float, typer.Option(help="Time of one measurement.")] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="N = 16, packs of 1 and 4, two processes.")] = False,
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU here: --device cpu --quick tests the script")
    quiet_cpu()
    if quick:
        sizes, packs, processes, seconds = "16", "1,4", "2", 0.5
    large = 8192 if device == "cuda" else 1024
    product, copy = product_rate(device, precision, large), copy_rate(device, large**2)
    machine = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, Python {platform.python_version()}, torch {torch.__version__}.")
    print(f"{decoder}, {precision}: matrix product {product / 1e12:.2f} TFLOP/s, copy {copy / 1e9:.0f} GB/s.\n")
    print("| N | way | run-steps a second | to the best of shared | share of the floor |")
    print("|---:|---|---:|---:|---:|")
    for N in (int(word) for word in sizes.split(",")):
        spec = make_spec(decoder, N, precision)
        model = TASK.model(spec)
        floor = 1 / max(operations(model, spec.batch_size) / product, least_bytes(model, spec) / copy)
        best = 0.0
        for k in map(int, processes.split(",")):
            best = max(best, row(N, f"{k} processes", partial(shared, spec, device, seconds, k), floor))
        row(N, "alone, plain loop", partial(alone, spec, device, seconds), floor, best)
        for size in map(int, packs.split(",")):
            row(N, f"pack of {size}", partial(packed, spec, device, seconds, size), floor, best)


if __name__ == "__main__":
    typer.run(main)
