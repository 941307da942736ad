"""Random streams that belong to a run: one seed, any number of named generators that know nothing of each other."""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *name: object) -> int:
    """A 63-bit seed for the stream called `name` of the run seeded by `seed`."""
    text = "/".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def start_from(seed: int) -> None:
    """Start torch's global generators from this seed. Where there is no GPU, only that of the CPU: for each kind of device that
    is not there, `torch.manual_seed` keeps a traceback, which takes as long as a step of a small network."""
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def stream(seed: int, *name: object) -> torch.Generator:
    """A CPU generator for the stream called `name`; the same arguments give the same numbers everywhere."""
    return torch.Generator().manual_seed(stream_seed(seed, *name))
