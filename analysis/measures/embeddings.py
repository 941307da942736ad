"""Whether the embeddings of unseen combinations are whole: each coordinate of the low-rank decoder is a band across the image,
also where it was never seen (paper figure 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import numpy as np

from analysis.measures.quantity import Quantity
from analysis.trained import Trained
from trainables.lowrank import LowRank
from trainables.regularization import box_range, region_of

VERSION = 1


def measure(trained: Trained) -> Iterator[Quantity]:
    """The matrix of a token of x has a band along image rows where the decoder draws bumps of that x; of a token of y, along
    image columns. Of the tokens of the box, with each of which the box's coordinates of the other factor were never seen:

    - `band_ood`: strength of the band at these coordinates, as a share of its strength at the seen ones (see
      `band_strengths`): 1 for a straight band, 0 where it ends; median over the tokens. `band` (N,): the same at every
      coordinate;
    - `rank_one_ood`, and `rank_one_id` of all other tokens: share of a matrix's squared sum that its largest singular value
      has, 1 for a matrix of rank 1; mean over the tokens.

    NaN for weights that are not finite.
    """
    spec = trained.spec
    low, high = box_range(region_of(spec.holdout), spec.N)
    matrices = token_matrices(cast(LowRank, trained.model)).astype(float)
    matrices[1] = matrices[1].transpose(0, 2, 1)
    inside = np.zeros(spec.N, dtype=bool)
    inside[low : high + 1] = True
    of_box, others = (matrices[:, mask].reshape(-1, spec.N, spec.N) for mask in (inside, ~inside))
    strengths = band_strengths(of_box, ~inside)
    yield Quantity("band_ood", float(np.median(strengths[:, inside].mean(axis=1))))
    yield Quantity("band", array=np.median(strengths, axis=0).astype(np.float32))
    yield Quantity("rank_one_ood", rank_one_share(of_box))
    yield Quantity("rank_one_id", rank_one_share(others))


def token_matrices(model: LowRank) -> np.ndarray:
    """(2, N, N, N): the matrix of every token of x, then of y, image rows before columns."""
    matrices: np.ndarray = model.picture(model.embeddings()).detach().numpy()
    return matrices


def band_strengths(matrices: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """(n, N): how strong the band of each of n matrices (n, N, N) is in every row.

    The profile of a band is the mean of the seen rows. The strength of a row is its product with the profile, divided by that
    of the profile with itself. So the mean over the seen rows is 1, and 0 is expected of noise. NaN for a matrix without a
    profile.

    Args:
        seen: (N,) bool: the rows with which the token was seen.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        profiles = matrices[:, seen].mean(axis=1)
        power = np.square(profiles).sum(axis=1)
        products = np.einsum("nrc,nc->nr", matrices, profiles)
        return np.divide(products, power[:, None], out=np.full_like(products, np.nan), where=power[:, None] > 0)


def rank_one_share(matrices: np.ndarray) -> float:
    """Mean over matrices (n, N, N) of the largest squared singular value over the sum of all; NaN if one is not finite or 0."""
    if not np.isfinite(matrices).all():
        return math.nan
    power = np.square(np.linalg.svd(matrices, compute_uv=False))
    total = power.sum(axis=1)
    return float((power[:, 0] / total).mean()) if (total > 0).all() else math.nan
