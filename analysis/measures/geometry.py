"""Geometry of every layer of a decoder: its factorization and its volume metric (paper figures 2, 4d, 11 to 14)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from analysis.geometry import cosine_factorization_of, factorization_of, forward_metric, metric, volume_of
from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder

VERSION = 3
LEAST_VOLUME = 1e-12
"""Added to volumes before the logarithm, as the authors did."""


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """For the code and every layer, at all whole positions:

    - `factorization` and `factorization_cosine`;
    - `volume_map` (N, N): dv, rows y and columns x; `volume_id`, `volume_ood`: means of log10(dv + 1e-12), out of and in the
      box.

    These are with exact derivatives. `factorization_differences`, `volume_id_differences` and `volume_ood_differences` are with
    differences between neighbours on the grid, as the authors took them. The one-hot code has no derivative, and nothing behind
    it: there all is by differences.
    """
    N = decoder.N

    def layers(centres: Tensor) -> list[Tensor]:
        code = decoder.code(centres)
        return [code, *decoder.layers(code)]

    activations = [decoder.code(decoder.centres).numpy(), *decoder.activations]
    differences = [metric(values.reshape(N, N, -1)).reshape(N * N, 2, 2) for values in activations]
    exact = differences if decoder.spec.encoding == "one-hot" else forward_metric(layers, decoder.centres)
    for layer, (g, g_differences) in enumerate(zip(exact, differences, strict=True), start=-1):
        dv = volume_of(g)
        yield Quantity("factorization", factorization_of(g), layer=layer)
        yield Quantity("factorization_cosine", cosine_factorization_of(g), layer=layer)
        yield Quantity("factorization_differences", factorization_of(g_differences), layer=layer)
        for of, volumes in (("", dv), ("_differences", volume_of(g_differences))):
            size = np.log10(volumes + LEAST_VOLUME)
            yield Quantity(f"volume_id{of}", float(size[~decoder.inside].mean()), layer=layer)
            yield Quantity(f"volume_ood{of}", float(size[decoder.inside].mean()), layer=layer)
        yield Quantity("volume_map", array=dv.reshape(N, N).astype(np.float32), layer=layer)
