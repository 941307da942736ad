"""Similarity of the images at all pairs of positions, and how much of it is a kernel in x combined with a kernel in y
(paper figures 1e and 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from analysis.measures.quantity import Quantity
from analysis.measures.superposition import pearson
from analysis.trained import TrainedDecoder
from trainables.bumps import bump_images

VERSION = 1
BRIGHT = 0.7
"""A pixel counts as drawn above this share of a bump's peak of 1: under 0.3 in the paper's inverted images."""
PERMUTATIONS = 20
KEPT = 64
"""Singular values kept."""
SAME = 1e-6
"""Images that differ by less than this share of their largest value are the same: no kernel can be read off rounding errors."""


def measure(decoder: TrainedDecoder) -> Iterator[Quantity]:
    """For every Gram matrix: agreement with the binary kernel, fits over all pairs of positions, and operator-Schmidt values.

    Right images have some agreement too, since neighbours in a row overlap: `truth_ood` says how much.

    All numbers but `truth_ood` are NaN for a decoder that draws the same everywhere; for one, `overlap` alone may be NaN, where
    no two positions, or all of them, share a bright pixel.
    """
    N, inside, images = decoder.N, decoder.inside, decoder.images
    binary = binary_kernel(decoder.centres.numpy())
    right = bump_images(decoder.centres, N, float(decoder.spec.option("sigma")))[:, 0].numpy()
    order = np.concatenate([np.flatnonzero(~inside), np.flatnonzero(inside)])
    for name, gram in GRAMS.items():
        K = np.full(binary.shape, np.nan) if collapsed(images) else gram(images)
        singular = schmidt(K, N)
        yield Quantity(f"{name}_agreement_id", agreement(K, binary, ~inside))
        yield Quantity(f"{name}_agreement_ood", agreement(K, binary, inside))
        yield Quantity(f"{name}_permuted_ood", permuted_agreement(K, binary, inside))
        yield Quantity(f"{name}_truth_ood", agreement(gram(right), binary, inside))
        yield Quantity(f"{name}_product_r2", product_fit_r2(K, singular))
        yield Quantity(f"{name}_additive_r2", additive_fit_r2(K, N))
        yield Quantity(f"{name}_radial_r2", radial_fit_r2(K, N))
        yield Quantity(f"{name}_effective_rank", effective_rank(singular))
        yield Quantity(f"{name}_factorization_ratio", factorization_ratio(singular))
        yield Quantity(f"{name}_schmidt", array=singular[:KEPT].astype(np.float32))
        if decoder.spec.seed == 0:
            yield Quantity(f"{name}_gram", array=K[np.ix_(order, order)].astype(np.float32))


def collapsed(images: np.ndarray) -> bool:
    """Whether images (n, N, N) are all the same, or not finite."""
    spread = np.ptp(images, axis=0).max()
    return not spread > SAME * np.abs(images).max()


def cosine_gram(images: np.ndarray) -> np.ndarray:
    """(n, n) cosine of the angle between images (n, N, N) as vectors, not centred; 0 for an image of zeros."""
    flat = images.reshape(len(images), -1).astype(float)
    norm = np.linalg.norm(flat, axis=1, keepdims=True)
    unit = np.divide(flat, norm, out=np.zeros_like(flat), where=norm > 0)
    K: np.ndarray = unit @ unit.T
    return K


def l2_gram(images: np.ndarray) -> np.ndarray:
    """(n, n) minus the Euclidean distance between images (n, N, N) as vectors: a similarity, as the others are."""
    flat = images.reshape(len(images), -1).astype(float)
    square = np.square(flat).sum(axis=1)
    distance = square[:, None] + square - 2 * flat @ flat.T
    np.fill_diagonal(distance, 0)
    return -np.sqrt(distance.clip(min=0))


def overlap_gram(images: np.ndarray) -> np.ndarray:
    """(n, n) share of the pixels that are bright in both of two images (n, N, N)."""
    bright = (images.reshape(len(images), -1) > BRIGHT).astype(np.float32)
    return (bright @ bright.T).astype(float) / bright.shape[1]


GRAMS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"cosine": cosine_gram, "l2": l2_gram, "overlap": overlap_gram}


def binary_kernel(centres: np.ndarray) -> np.ndarray:
    """(n, n) ideal kernel (d_xx' + d_yy') / 2 of positions (n, 2): 1 for the same, 1/2 for one shared (our choice of scale)."""
    same: np.ndarray = (centres[:, None] == centres[None]).mean(axis=2)
    return same


def agreement(K: np.ndarray, binary: np.ndarray, mask: np.ndarray) -> float:
    """Correlation of K with the binary kernel (n, n) over the pairs of two different points of `mask` (n,); NaN if K is the
    same for all of them, but for rounding."""
    pairs = _pairs(K, mask)
    return float(pearson(pairs, _pairs(binary, mask))[0]) if _varies(pairs) else math.nan


def permuted_agreement(K: np.ndarray, binary: np.ndarray, mask: np.ndarray) -> float:
    """The same with the points of the binary kernel permuted; mean over `PERMUTATIONS`, which are always the same."""
    rng = np.random.default_rng(0)
    points = np.flatnonzero(mask)
    pairs, everything = _pairs(K, mask), np.ones(len(points), dtype=bool)
    if not _varies(pairs):
        return math.nan
    shuffles = (rng.permutation(points) for _ in range(PERMUTATIONS))
    return float(np.mean([pearson(pairs, _pairs(binary[np.ix_(shuffle, shuffle)], everything))[0] for shuffle in shuffles]))


def _pairs(K: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(1, m (m - 1) / 2): entries over the diagonal of the block of the m points of `mask`."""
    block = K[np.ix_(mask, mask)]
    return block[np.triu_indices(len(block), 1)][None]


def rearranged(K: np.ndarray, N: int) -> np.ndarray:
    """K[(x, y), (x', y')] of the raster (N^2, N^2) as R[(x, x'), (y, y')]: a product kernel k_x(x, x') k_y(y, y') has rank 1
    in it (Van Loan and Pitsianis 1993, "Approximation with Kronecker products")."""
    return K.reshape(N, N, N, N).transpose(1, 3, 0, 2).reshape(N * N, N * N)


def schmidt(K: np.ndarray, N: int) -> np.ndarray:
    """(N^2,) operator-Schmidt values of K: singular values of `rearranged`, falling, squares adding to 1; NaN if K is 0 or has
    NaN."""
    if not np.isfinite(K).all():
        return np.full(N * N, np.nan)
    singular = np.linalg.svd(rearranged(K, N), compute_uv=False)
    norm = np.linalg.norm(singular)
    return singular / norm if norm > 0 else np.full(N * N, np.nan)


def effective_rank(singular: np.ndarray) -> float:
    """exp of the entropy of the shares s_i^2 / sum s^2: how many product kernels K is a sum of.

    As Roy and Vetterli 2007, but of squared singular values, the shares of K's squared norm, as in `factorization_ratio`.
    """
    share = np.square(singular) / np.square(singular).sum()
    share = share[share != 0]
    return float(np.exp(-(share * np.log(share)).sum()))


def factorization_ratio(singular: np.ndarray) -> float:
    """s_1^2 / sum s_i^2: the share of K's squared norm that the nearest product kernel has; 1 for a product kernel.

    A constant is a product kernel: K with a large mean has a ratio near 1, whatever its shape. `product_fit_r2` has no such
    bias.
    """
    return float(singular[0] ** 2 / np.square(singular).sum())


def product_fit_r2(K: np.ndarray, singular: np.ndarray) -> float:
    """R^2 of the least-squares fit k_x(x, x') k_y(y, y') to K, about its mean.

    Args:
        singular: values of `schmidt`.
    """
    return _r2((1 - factorization_ratio(singular)) * np.square(K).sum(), K)


def additive_fit_r2(K: np.ndarray, N: int) -> float:
    """R^2 of the least-squares fit a(x, x') + b(y, y') to K (N^2, N^2): means over the other coordinate's pairs."""
    R = rearranged(K, N)
    fit = R.mean(axis=1, keepdims=True) + R.mean(axis=0, keepdims=True) - R.mean()
    return _r2(np.square(R - fit).sum(), K)


def radial_fit_r2(K: np.ndarray, N: int) -> float:
    """R^2 of the least-squares function of the distance between two positions: the mean of K (N^2, N^2) at each distance."""
    y, x = np.divmod(np.arange(N * N), N)
    square = ((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2).ravel()
    count = np.bincount(square).clip(min=1)
    mean = np.bincount(square, weights=K.ravel()) / count
    return _r2(np.square(K.ravel() - mean[square]).sum(), K)


def _r2(residual: float, K: np.ndarray) -> float:
    """1 - residual / sum of squares about the mean; NaN if K is NaN, or constant but for rounding."""
    return float(1 - residual / np.square(K - K.mean()).sum()) if _varies(K) else math.nan


def _varies(K: np.ndarray) -> bool:
    """Whether similarities differ by more than rounding: a cosine falls with the square of the difference of two images. False
    where there are none, or NaN among them."""
    return bool(K.size and np.ptp(K) > SAME**2 * np.abs(K).max())
