"""Random streams that belong to a run: one seed, any number of named generators that know nothing of each other."""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *name: object) -> int:
    """A 63-bit seed for the stream called `name` of the run seeded by `seed`."""
    text = "/".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *name: object) -> torch.Generator:
    """A CPU generator for the stream called `name`; the same arguments give the same numbers everywhere."""
    return torch.Generator().manual_seed(stream_seed(seed, *name))
