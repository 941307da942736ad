"""Codes of a position: how the coordinates (x, y) are presented to a decoder.

Every code is factorized: the first half depends on x alone, the second on y alone. A coordinate that is absent (a vertical
stripe has no y) is written NaN in `centres`.
"""

from __future__ import annotations

import torch
from torch import Tensor

ENCODINGS = ("bump", "one-hot", "positional", "ramp")
ABSENT = ("zero", "minus-one")


def code_length(encoding: str, N: int) -> int:
    """Numbers in a code: 2 for the ramp, 2N for all others."""
    return 2 if encoding == "ramp" else 2 * N


def encode(centres: Tensor, N: int, encoding: str, sigma: float = 1.0, absent: str = "zero") -> Tensor:
    """Code positions for a decoder. `bump` and `ramp` are as in the authors' code; of `positional` no formula is published.

    - `bump`: exp(-(i - x)^2 / 2 sigma^2), i = 0..N-1, then the same of y; not normalised.
    - `one-hot`: 1 at round(x) and at N + round(y).
    - `positional`: for i = 0..N-1 and k = i // 2, sin(x / 10000^(2k/N)) where i is even and the cosine where it is odd; then y.
    - `ramp`: x and y themselves, in pixels.

    Args:
        centres: (n, 2), columns x and y in pixels; NaN marks an absent coordinate.
        sigma: width of the bump code in pixels.
        absent: what stands for an absent coordinate: `zero` fills its half with zeros, `minus-one` codes the coordinate -1
            (just outside the grid; the one-hot code of -1 has no entry and is again zero).

    Returns:
        (n, 2N), or (n, 2) for the ramp, in the precision of `centres`; differentiable in them but for the one-hot code.

    Raises:
        ValueError: an unknown encoding or absent word, or absent coordinates in a zero-filled ramp, where 0 is a position.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
    if absent not in ABSENT:
        raise ValueError(f"absent must be one of {', '.join(ABSENT)}, not {absent!r}")
    missing = centres.isnan()
    if encoding == "ramp" and absent == "zero" and bool(missing.any()):
        raise ValueError("the ramp code of an absent coordinate cannot be zero, which is a position: use absent=minus-one")
    position = centres.masked_fill(missing, -1.0)[..., None]
    pixel = torch.arange(N, dtype=torch.float32)
    if encoding == "bump":
        code = torch.exp(-((pixel - position) ** 2) / (2 * sigma**2))
    elif encoding == "one-hot":
        code = (pixel == position.round()).float()
    elif encoding == "positional":
        angle = position / 10000.0 ** (2 * (pixel // 2) / N)
        code = torch.where(pixel % 2 == 0, angle.sin(), angle.cos())
    else:
        code = position
    if absent == "zero":
        code = code.masked_fill(missing[..., None], 0.0)
    return code.flatten(1)
