"""What a training step of a generator takes, and which share of a run goes into looking at what it draws.

    python -m benchmarks.generator_step            the toy tier, ten rounds of every line, in turns
    python -m benchmarks.generator_step --quick    the smoke tier, two rounds
    python -m benchmarks.generator_step --device cuda --packs 1,16    run-steps a second alone and in packs, on a GPU
    python -m benchmarks.generator_step --tier gpu --families dit     another tier, and some families only

For every family: a step of the real loop; a step of a plain PyTorch loop with the same model, optimizer and batch size, written
here; one look (all compositions drawn and judged); and the product of two 1024 x 1024 float32 matrices. Probe and tokenizer are
untrained: that changes no time. CPU time of one thread, the least of any round.

Operations are those of matrix products: 2 for every multiplication, so 6 for every weight and token of a step (forward, and
the two gradients), and the same for the two products of attention. The last column is the share of a run that its looks take.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
import typer
from torch import nn

from benchmarks.gpu import synchronize
from benchmarks.step import least, processor, product
from trainables.generative.dit import DiT
from trainables.generative.maskgit import MaskGIT
from trainables.generative.masking import MaskedTrunk
from trainables.generative.tiers import generator
from trainables.needs import untrained
from trainables.spec import RunSpec
from trainables.task import load_task
from trainables.training.loop import Training
from trainables.training.memory import is_out_of_memory
from trainables.training.packs import WARM_UP, Pack
from trainables.training.precision import quiet_cpu

FAMILIES = (("dit", "vae"), ("dit", "vq"), ("maskgit", "vq"), ("givt", "vq"), ("mar", "vq"))
POOL = 2000
"""Pictures that are learned from here; a step does not depend on it."""


def training(spec: RunSpec, device: str = "cpu") -> Training:
    """A run whose parents are untrained."""
    return Training(spec, untrained(load_task(spec.task), spec, device), device)


def plain(run: Training) -> Callable[[], object]:
    """A training step of a loop that does nothing else."""
    torch.manual_seed(0)
    model = run.task.model(run.spec)
    assert isinstance(model, DiT | MaskGIT | MaskedTrunk)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.spec.lr, weight_decay=run.spec.weight_decay, fused=True)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(model.ema))
    random = torch.Generator().manual_seed(0)

    def step() -> None:
        batch = run.train.take(torch.randint(len(run.train.inputs), (run.spec.batch_size,), generator=random))
        optimizer.zero_grad()
        model.losses(batch, model.draws(batch, random), None).mean().backward()
        optimizer.step()
        average.update_parameters(model)

    return step


def operations(run: Training) -> float:
    """Of the matrix products of a training step."""
    model, n = run.model, run.spec.batch_size
    assert isinstance(model, DiT | MaskGIT | MaskedTrunk)
    tokens, width = model.trunk.positions.shape
    found = [(name, m.weight.numel()) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    head = sum(size for name, size in found if name.startswith("head."))  # of mar: of every token, and time drawn for it
    layers = [(name, size) for name, size in found if not name.startswith("head.")]
    once = sum(size for name, size in layers if any(part in name for part in ("modulation", "conditions", "time")))
    every = sum(size for _, size in layers) - once
    attention = 2 * tokens * width * len(model.trunk.blocks)
    return 6.0 * n * (once + tokens * (every + attention + getattr(model, "head_draws", 0) * head))


def pack_rate(specs: Sequence[RunSpec], device: str, seconds: float) -> float:
    """Run-steps a second of runs in one pack, without looks.

    Raises:
        RuntimeError: they cannot be packed.
    """
    pack = Pack([training(spec, device) for spec in specs])
    pack._close_gaps(pack.runs)
    if not pack._can_train_steps(pack.runs, 0.0):
        raise RuntimeError(pack.unstacked)
    for _ in range(WARM_UP + 2):
        pack._train_steps(pack.runs, 0.0)
    return len(specs) * _rate(lambda: pack._train_steps(pack.runs, 0.0), device, seconds)


def _rate(step: Callable[[], object], device: str, seconds: float) -> float:
    synchronize(device)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        step()
        steps += 1
    synchronize(device)
    return steps / (time.perf_counter() - began)


def print_packs(
    tier: str, sizes: Sequence[int], device: str, families: Sequence[tuple[str, str]], count: int, seconds: float
) -> None:
    machine = torch.cuda.get_device_name() if device == "cuda" else processor()
    print(f"{machine}, torch {torch.__version__}, the {tier} tier: run-steps a second, without looks.\n")
    print(f"| family | precision | alone | {' | '.join(f'pack of {size}' for size in sizes)} |")
    print(f"|---|---|{'---:|' * (1 + len(sizes))}")
    for family, tokenizer in families:
        for precision in ("float32", "bfloat16"):
            spec = generator(tier, settings={"decoder": family, "encoding": tokenizer}, data_count=count)
            specs = [dataclasses.replace(spec, precision=precision, seed=seed) for seed in range(max(sizes))]
            run = training(specs[0], device)
            run.train_step()
            rates = [f"{_rate(run.train_step, device, seconds):.1f}"]
            rates += [_fitting_rate(specs[:size], device, seconds) for size in sizes]
            print(f"| {family} on {tokenizer} | {precision} | {' | '.join(rates)} |", flush=True)


def _fitting_rate(specs: Sequence[RunSpec], device: str, seconds: float) -> str:
    try:
        return f"{pack_rate(specs, device, seconds):.1f}"
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return "too large"
    finally:
        torch.cuda.empty_cache()


def step_and_look(run: Training) -> None:
    """One step, and a look behind it."""
    run.train_step()
    run.answer(run.look())


def main(quick: bool = False, device: str = "cpu", packs: str = "", tier: str = "", families: str = "") -> None:
    """Print the table, of all tokenizers that a family of `--families` is measured on."""
    quiet_cpu()
    tier, rounds = tier or ("smoke" if quick else "toy"), 2 if quick else 10
    chosen = [pair for pair in FAMILIES if not families or pair[0] in families.split(",")]
    if packs:
        print_packs(tier, [*map(int, packs.split(","))], device, chosen, 64 if quick else POOL, 0.1 if quick else 2.0)
        return
    print(f"{processor()}, one thread, torch {torch.__version__}, the {tier} tier.\n")
    print("| family | plain, ms a step | ours, ms a step | GFLOP a step | GFLOP/s | of a large matrix product | looks |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for family, tokenizer in chosen:
        spec = generator(tier, settings={"decoder": family, "encoding": tokenizer}, data_count=64 if quick else POOL)
        run = training(spec)
        steps = {"plain": plain(run), "ours": run.train_step, "product": product(torch.float32)}
        taken = least(rounds, steps, 0.1 if quick else 1.0)
        looking = least(1 if quick else 2, {"look": partial(step_and_look, run)}, 0)["look"] - taken["ours"]
        rate, largest = operations(run) / taken["ours"] / 1e9, 2 * 1024**3 / taken["product"] / 1e9
        looks = spec.max_steps / run.look_every * looking
        share = looks / (looks + spec.max_steps * taken["ours"])
        print(
            f"| {family} on {tokenizer} | {taken['plain'] * 1e3:.1f} | {taken['ours'] * 1e3:.1f} | "
            f"{operations(run) / 1e9:.2f} | {rate:.1f} | {rate / largest:.0%} of {largest:.0f} | {share:.0%} |"
        )


if __name__ == "__main__":
    typer.run(main)
