"""What a GPU makes of many small trainings: alone, side by side in processes that share it, and packed into one program.

    python -m benchmarks.gpu                            CNN in bfloat16 on the first GPU, about ten minutes
    python -m benchmarks.gpu --device cpu --quick       the same script on a CPU, half a minute: tests that it works

Run-steps per second, a run-step being one optimizer step of one run, of 1, 4, 16, ... runs:

- alone, the plain loop;
- alone, the step recorded as a CUDA graph (a pack of one);
- in k processes that share the GPU, each the plain loop, which is what fractional GPUs of Ray Tune give; the best k counts;
- packed.

Two floors are measured in the same run: the rate of a large matrix product, and the bandwidth of a copy. The least time of a
run-step is that of its operations at the former (counted as in `benchmarks.step`), or of the bytes it cannot avoid at the
latter, whichever is longer: AdamW reads four and writes three numbers for each parameter, and every activation is written once
and read twice on the way forward and back, and its gradient as often.
"""

from __future__ import annotations

import multiprocessing
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from typing import Annotated

import torch
import typer
from torch import nn

from benchmarks.step import operations
from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.pack_size import twin
from trainables.training.packs import Pack
from trainables.training.precision import quiet_cpu

TASK = BumpTask()


def make_spec(decoder: str, N: int, precision: str) -> RunSpec:
    spec = RunSpec(
        task="trainables.bumps:BumpTask", N=N, data_count=0, seed=0, **spec_fields(TASK, {"decoder": decoder}),
        precision=precision, stop="budget", max_steps=10**7,
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
    run = Training(spec, TASK, device)
    return rate(run.advance, run, device, seconds)


def packed(spec: RunSpec, device: str, seconds: float, size: int) -> float:
    first = Training(spec, TASK, device)
    pack = Pack([twin(first) for _ in range(size)])
    return size * rate(pack.advance, pack.runs[0], device, seconds)


def shared(spec: RunSpec, device: str, seconds: float, processes: int) -> float:
    """All steps per second of processes that start measuring together."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = (spec, device, seconds, barrier, results)
    workers = [context.Process(target=_one_of_many, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    total = sum(results.get(timeout=600) for _ in workers)
    for worker in workers:
        worker.join()
    return float(total)


def _one_of_many(spec: RunSpec, device: str, seconds: float, barrier: Barrier, results: multiprocessing.Queue) -> None:
    quiet_cpu()
    run = Training(spec, TASK, device)
    run.advance(seconds / 4)
    synchronize(device)
    barrier.wait()
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
        found = {f"{k} processes": shared(spec, device, seconds, k) for k in map(int, processes.split(","))}
        best = max(found.values())
        found = {"alone, plain loop": alone(spec, device, seconds)} | found
        for size in map(int, packs.split(",")):
            try:
                found[f"pack of {size}"] = packed(spec, device, seconds, size)
            except torch.OutOfMemoryError:
                found[f"pack of {size}: out of memory"] = float("nan")
        for name, value in found.items():
            print(f"| {N} | {name} | {value:.0f} | {value / best:.2f} | {value / floor:.1%} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
