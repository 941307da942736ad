"""What a training step takes, and how near it comes to what the processor can multiply.

    python -m benchmarks.step            ten rounds of every line, in turns
    python -m benchmarks.step --quick    three rounds, N = 16 and 28

Steps of the real loop, batch 32, two hidden layers: the CNN of 64 channels in float32 and bfloat16, also in the library's own
layers (`CNN.plain`); the MLP of 256 units; the low-rank decoder of full rank and two channels with both penalties. CPU time of
one thread, the least of any round; the product of two 1024 x 1024 matrices of the same dtype is timed in the same rounds.

Operations are two for every multiplication, and counted for what a step has to compute, however it is done: every layer's
product forward, and the two of its gradients, of the weights and of the input (but not of the codes). A product of (n, a) and
(a, b) has 2 n a b; a transposed convolution of n images of H x W pixels from C to K channels with kernel k 2 n H W C K k^2; the
matrices of the low-rank decoder, of two factors with N tokens of N modes, 4 N^4. Nothing pointwise counts.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import torch
import typer
from torch import nn

from trainables.bumps import BumpTask
from trainables.decoders import CNN, MLP
from trainables.lowrank import LowRank
from trainables.regularization import RegularizationTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.task import Task
from trainables.training.loop import Training
from trainables.training.precision import quiet_cpu

K = TypeVar("K")
SIZES = (16, 28, 64)
ROUND_SECONDS = 0.2
PRODUCT = 1024


class PlainTask(BumpTask):
    """Bumps with the CNN in the library's own layers, in the memory layout that the loop gives it."""

    def model(self, spec: RunSpec) -> nn.Module:
        model = super().model(spec)
        assert isinstance(model, CNN)
        model.forward = model.plain  # type: ignore[method-assign]
        return model


LINES: Mapping[str, tuple[type[Task], str, str]] = {
    "CNN": (BumpTask, "cnn", "float32"),
    "CNN, plain": (PlainTask, "cnn", "float32"),
    "CNN, bfloat16": (BumpTask, "cnn", "bfloat16"),
    "CNN, plain, bfloat16": (PlainTask, "cnn", "bfloat16"),
    "MLP": (BumpTask, "mlp", "float32"),
    "low-rank": (RegularizationTask, "low-rank", "float32"),
}


def training(kind: type[Task], decoder: str, precision: str, N: int) -> Training:
    task = kind()
    spec = RunSpec(
        task="", N=N, data_count=0, seed=0, precision=precision, **spec_fields(task, {"dataset": "bumps", "decoder": decoder})
    )
    return Training(spec.with_count(task.counts(spec).high), task)


def operations(model: nn.Module, n: int) -> float:
    """Of a training step of `n` samples."""
    if isinstance(model, MLP):
        products = [2 * n * m.weight.numel() for m in model if isinstance(m, nn.Linear)]
        return 3 * sum(products) - products[0]
    if isinstance(model, CNN):
        first = 2 * n * model.first.weight.numel()
        return 2 * first + 3 * _convolutions([*model.hidden, model.last], model.first.kernel_size[0], n)
    assert isinstance(model, LowRank)
    return 3 * (2 * model.rows.numel() * model.N + _convolutions(model.layers, model.N, n))


def _convolutions(layers: Iterable[nn.Module], size: int, n: int) -> float:
    total = 0.0
    for layer in layers:
        assert isinstance(layer, nn.ConvTranspose2d)
        total += 2 * n * size**2 * layer.weight.numel()
        size *= layer.stride[0]
    return total


def product(dtype: torch.dtype) -> Callable[[], object]:
    a, b = torch.randn(2, PRODUCT, PRODUCT).to(dtype)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def least(rounds: int, work: Mapping[K, Callable[[], object]], seconds: float) -> dict[K, float]:
    """CPU seconds of each, the least of some rounds in turns; a round repeats each for so many seconds, once at least."""
    found = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, one in work.items():
            one()
            count, began, taken = 0, time.process_time(), 0.0
            while count == 0 or taken < seconds:
                one()
                count += 1
                taken = time.process_time() - began
            found[name] = min(found[name], taken / count)
    return found


def main(quick: bool = False) -> None:
    """Print the table."""
    quiet_cpu()
    sizes, rounds = (SIZES[:2], 3) if quick else (SIZES, 10)
    runs = {(name, N): training(*line, N) for name, line in LINES.items() for N in sizes}
    steps: dict[object, Callable[[], object]] = {key: run.train_step for key, run in runs.items()}
    products = {dtype: product(dtype) for dtype in (torch.float32, torch.bfloat16)}
    taken = least(rounds, products | steps, ROUND_SECONDS)
    rates = {dtype: 2 * PRODUCT**3 / taken[dtype] / 1e9 for dtype in products}
    known = ", ".join(f"{rate:.0f} GFLOP/s in {str(dtype).removeprefix('torch.')}" for dtype, rate in rates.items())
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, one thread, {versions}.")
    print(f"A large matrix product: {known}.\n")
    print("| decoder | N | ms a step | GFLOP a step | GFLOP/s | share of a large matrix product |")
    print("|---|---:|---:|---:|---:|---:|")
    for (name, N), run in runs.items():
        billions = operations(run.model, run.spec.batch_size) / 1e9
        rate = billions / taken[name, N]
        share = rate / rates[getattr(torch, run.spec.precision)]
        print(f"| {name} | {N} | {taken[name, N] * 1e3:.2f} | {billions:.3f} | {rate:.1f} | {share:.0%} |")


if __name__ == "__main__":
    typer.run(main)
