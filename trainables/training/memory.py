"""Errors that say that memory is full."""

from __future__ import annotations

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed", "allocation_failed")
"""As errors have them, in lower case. Those of CUDA and its libraries (CUBLAS_STATUS_ALLOC_FAILED) need not be
`torch.OutOfMemoryError`."""
OF_RECORDING = "previous error during capture"
"""In an error of CUDA at the end of a recording, which takes the place of the one that made it fail."""


def is_out_of_memory(error: BaseException) -> bool:
    seen = list[BaseException]()
    while isinstance(error, RuntimeError) and OF_RECORDING in str(error) and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__ or error
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(some in words for some in OUT_OF_MEMORY_WORDS)
