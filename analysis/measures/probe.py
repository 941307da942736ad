"""How well x and y can be read off a layer by a linear map, also where it was not fitted (paper figures 2a, b, 11 to 14)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.preprocessing import KernelCenterer

from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder

VERSION = 1
FITTED = 0.8
"""Share of the positions that a probe is fitted on where it is judged on the others."""
PENALTY = 1e-4
"""Ridge penalty, relative to the mean squared distance of the fitted activations from their mean: a direction with 1e-4 of that
variance in sum over all positions is read at half its size."""
SEED = 0


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """For the code and every layer, R^2 of x and of y, averaged, of a ridge regression on the activations:

    - `r2_id`: fitted on a random 80 % of the ID positions, judged on the other ID ones;
    - `r2_ood`: fitted on all ID positions, judged on the OOD ones;
    - `r2_random`: fitted on a random 80 % of all positions, judged on the others.
    """
    inside = decoder.inside
    id_fitted, id_judged = split(np.flatnonzero(~inside))
    splits = {
        "r2_id": (id_fitted, id_judged),
        "r2_ood": (np.flatnonzero(~inside), np.flatnonzero(inside)),
        "r2_random": split(np.arange(len(inside))),
    }
    targets = decoder.centres.numpy()
    for layer, values in enumerate([decoder.code(decoder.centres).numpy(), *decoder.activations], start=-1):
        products = inner_products(values)
        for name, (fitted, judged) in splits.items():
            yield Quantity(name, r2(products, targets, fitted, judged), layer=layer)


def split(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A random 80 % of the positions, and the others; always the same ones."""
    order = np.random.default_rng(SEED).permutation(positions)
    count = round(FITTED * len(order))
    return order[:count], order[count:]


def inner_products(activations: np.ndarray) -> np.ndarray:
    """(n, n) float64 of activations (n, D), from their mean: small beside a common offset, they are not lost in rounding."""
    centred = activations - activations.mean(axis=0)
    return (centred @ centred.T).astype(float)


def r2(products: np.ndarray, targets: np.ndarray, fitted: np.ndarray, judged: np.ndarray) -> float:
    """R^2 on the positions `judged`, averaged over the targets, of the ridge regression fitted on the positions `fitted`.

    Units outnumber positions, so it is solved in its dual form, from inner products alone.

    Args:
        products: (n, n) of the activations of all positions, from any one origin.
        targets: (n, k).
    """
    centre = KernelCenterer().fit(products[np.ix_(fitted, fitted)])
    known = centre.transform(products[np.ix_(fitted, fitted)])
    offset = targets[fitted].mean(axis=0)
    size = float(np.trace(known)) / len(fitted)
    if size <= 0:  # a dead layer: the best there is, is the mean
        return float(r2_score(targets[judged], np.broadcast_to(offset, (len(judged), len(offset)))))
    probe = KernelRidge(alpha=PENALTY * size, kernel="precomputed").fit(known, targets[fitted] - offset)
    return float(r2_score(targets[judged], probe.predict(centre.transform(products[np.ix_(judged, fitted)])) + offset))
