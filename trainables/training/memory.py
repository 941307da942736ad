"""Errors that say that memory is full."""

from __future__ import annotations

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
"""As errors have them, in lower case. Those of CUDA and its libraries (CUBLAS_STATUS_ALLOC_FAILED) need not be
`torch.OutOfMemoryError`."""


def is_out_of_memory(error: BaseException) -> bool:
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(some in words for some in OUT_OF_MEMORY_WORDS)
