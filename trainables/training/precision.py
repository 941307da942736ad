"""How numbers are computed: the precision of a run, and a process that is made ready to train."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from trainables.spec import RunSpec

LARGE_PRODUCTS = ("cnn", "dit", "maskgit", "givt", "mar")
"""Decoders that gain from bfloat16."""
HEAP = 1 << 29
"""Bytes of its heap that a quiet process asks the system to hold in large pages. Those beyond are in ordinary ones."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc malloc.h
_MADV_HUGEPAGE, _LARGE_PAGE = 14, 1 << 21  # Linux mman.h; a processor's large page may be of another size


def quiet_cpu() -> None:
    """Make this process a good worker. Call it once, before any training.

    One thread; denormal numbers (tails of Gaussians) flushed to zero; and, with glibc, freed memory kept instead of given back
    to the system, for at N = 64 getting the large activations afresh in every step takes up to half of the time. It is held in
    large pages where Linux allows a process to ask for them: most activations are then found without a walk through tables.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None and hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        _ask_for_large_pages(libc)


def _ask_for_large_pages(libc: ctypes.CDLL) -> None:
    """The heap grows by a block that is never touched, is marked, and is free again. That takes no memory, but addresses: none
    are taken where they are limited."""
    if any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)):
        return
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(HEAP)
    if block:
        start = -(-block // _LARGE_PAGE) * _LARGE_PAGE
        libc.madvise(start, block + HEAP - start, _MADV_HUGEPAGE)
        libc.free(block)


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
