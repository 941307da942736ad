"""How numbers are computed: the precision of a run, and a process that is made ready to train."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from trainables.spec import RunSpec

LARGE_PRODUCTS = ("cnn", "dit", "maskgit", "givt", "mar")
"""Decoders that gain from bfloat16."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc malloc.h


def quiet_cpu() -> None:
    """Make this process a good worker. Call it once, before any training.

    One thread; denormal numbers (tails of Gaussians) flushed to zero; and, with glibc, freed memory kept instead of given back
    to the system, for at N = 64 getting the large activations afresh in every step takes up to half of the time.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def one_thread() -> Iterator[None]:
    """As a worker has it: threads that wait for each other take many times as long on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def autocast(spec: RunSpec, device: torch.device) -> AbstractContextManager[Any]:
    """The precision of `spec` for the block. TF32 and its absence hold until the next such block, gradients included."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = spec.precision == "tf32"
    return torch.autocast(device.type, torch.bfloat16, enabled=spec.precision == "bfloat16")


def fastest_precision(decoder: str, device: str = "cpu") -> str:
    """The precision in which this machine trains `decoder` fastest: bfloat16 for a CNN or a transformer where the device
    computes it natively.

    On a CPU that takes AVX512-BF16 or AMX-BF16 instructions; without them bfloat16 is emulated and slow. The MLP's products
    are too small to gain.
    """
    if decoder not in LARGE_PRODUCTS:
        return "float32"
    if torch.device(device).type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"
