"""What a generator draws of every composition, seen and unseen: whether it is read right, how close its pictures are to real
ones, and which of these they are most like (arXiv 2510.03075).

Features are what the last layer of the probe reads. Shapes in comments: n pictures with d features.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from analysis.measures.quantity import Quantity
from analysis.measures.tokens import EACH, Judged, coverage_by, fresh
from analysis.trained import Trained
from trainables.generative.generator_task import GeneratorTask, pictures
from trainables.generative.judge import curves, on_screen
from trainables.generative.probe import AT_ONCE
from trainables.generative.settings import GeneratorSettings
from trainables.generative.shapes import COMPOSITIONS, bits_of, class_values, level_of_each, pool, render, seen_of
from trainables.generative.tokenizers import Tokenizer
from trainables.settings import read_settings
from trainables.training.seeds import stream

VERSION = 1


class TrainedGenerator(Trained):
    """A generator, with the tokenizer whose tokens it learned and the probe that it was judged by."""

    @cached_property
    def settings(self) -> GeneratorSettings:
        return read_settings(GeneratorSettings, self.spec)

    @property
    def tokenizer(self) -> Tokenizer:
        return cast(Tokenizer, self.parents["tokenizer"])

    @property
    def seen(self) -> tuple[str, ...]:
        """The compositions that it was trained on."""
        return seen_of(self.spec.holdout)

    def sampled(self, each: int) -> Tensor:
        """Pictures (8, each, 3, N, N) of every composition, as a look of its training asks for them: of the class means."""
        asked = cast(GeneratorTask, self.task).judged(self.spec.with_value("judged", each)).held_out.inputs
        found = []
        for word, conditions in zip(COMPOSITIONS, asked, strict=True):
            tokens = self.model.sample(conditions, stream(self.spec.seed, "generated", word))  # type: ignore[operator]
            found.append(pictures(self.tokenizer, tokens))
        return torch.stack(found)


@torch.no_grad()
def measure(generator: TrainedGenerator) -> Iterator[Quantity]:
    """From 256 samples of each composition, beside 256 real pictures that meet the same conditions, class means of size and
    colour, at places and on backgrounds that are drawn:

    - `both_111`, `probe_level1`, `agree` and so on: the shares of samples in which the judges read all factors right, and how
      often they agree; `probe_factors` (8, 3) and so on. See `Judged.quantities`.
    - `frechet_111`, `frechet_level1` and so on: the Frechet distance of the features of samples and of real pictures, of a
      composition, and of all of a level together; `frechet_real`, the mean over compositions of that between real pictures
      and others, which is not 0, as they are only 256.
    - `retrieved` (8, 8): of the samples of each composition (rows), the shares whose nearest real picture of all compositions
      shows each (columns); `retrieved_111`, `retrieved_level1` and so on: the composition retrieval accuracy, the share whose
      nearest one shows what was asked.
    - `asked` (8, 3, N, N), pictures of the class means; `pictures`, the first samples, and what is read in them.
    - of a generator with codes: how much of what is unseen its own training pictures had, see `tokens.coverage_by`.
    """
    s, spec, probe = generator.settings, generator.spec, generator.parents["probe"]
    images = on_screen(generator.sampled(EACH))
    judged = Judged.of(s, probe, images)
    yield from judged.quantities(generator.seen)
    yield Quantity("asked", array=render(s, spec.N, class_values(s, bits_of(COMPOSITIONS))).numpy())
    yield from judged.pictures(images, "pictures")

    real, others = (fresh(s, spec.N, EACH, spec.seed, name, means=True)[1] for name in ("real", "others"))
    drawn, among, beside = (features(probe, part) for part in (images, real, others))
    level = np.array([*level_of_each(spec.holdout).values()])
    for word, a, b in zip(COMPOSITIONS, drawn, among, strict=True):
        yield Quantity(f"frechet_{word}", frechet(a, b))
    for at in sorted(set(level.tolist())):
        a, b = (part[level == at].reshape(-1, part.shape[2]) for part in (drawn, among))
        yield Quantity(f"frechet_{'seen' if at == 0 else f'level{at}'}", frechet(a, b))
    yield Quantity("frechet_real", float(np.mean([frechet(a, b) for a, b in zip(beside, among, strict=True)])))

    matrix = retrieved(drawn, among)
    yield Quantity("retrieved", array=matrix.astype(np.float32))
    right = torch.from_numpy(matrix.diagonal().copy())
    for name, share in curves({"retrieved": right}, bits_of(COMPOSITIONS), generator.seen).items():
        yield Quantity(name, share)

    if s.encoding == "vq":
        scenes, whole = fresh(s, spec.N, EACH, spec.seed, "tokens")
        codes = generator.tokenizer.codes(pool(s, spec.N, generator.seen, spec.data_count, spec.seed).images)
        yield from coverage_by(generator.tokenizer, s.codes, codes, s, scenes, whole)


def features(probe: nn.Module, images: Tensor) -> np.ndarray:
    """What the last layer of the probe reads (8, m, d) of pictures (8, m, 3, N, N)."""
    parts = [probe.features(part) for part in images.flatten(0, 1).split(AT_ONCE)]  # type: ignore[operator]
    return torch.cat(parts).unflatten(0, images.shape[:2]).double().numpy()


def frechet(a: np.ndarray, b: np.ndarray) -> float:
    """The Frechet distance of two normal distributions with the means and covariances of features (n, d) and (m, d) (Dowson
    and Landau 1982; Heusel et al. 2017, arXiv 1706.08500): |mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2)).

    The trace of the root is the sum of the singular values of A^(1/2) B^(1/2), also where A B is singular and so may have no
    root, as where a feature is always 0.
    """
    difference = a.mean(axis=0) - b.mean(axis=0)
    A, B = (np.atleast_2d(np.cov(features, rowvar=False)) for features in (a, b))
    of_roots = np.linalg.svd(_root(A) @ _root(B), compute_uv=False).sum()
    return max(0.0, float(difference @ difference + np.trace(A) + np.trace(B) - 2 * of_roots))


def _root(covariance: np.ndarray) -> np.ndarray:
    """The symmetric root of a covariance matrix."""
    values, vectors = np.linalg.eigh(covariance)
    root: np.ndarray = vectors * np.sqrt(values.clip(min=0)) @ vectors.T
    return root


def retrieved(drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Of pictures (k, m, d) of k kinds, the shares (k, k) whose nearest real picture (k, n, d), by the Euclidean distance of
    their features, is of each kind: the matrix of the composition retrieval accuracy, which is its diagonal."""
    kinds, each = real.shape[:2]
    gallery = real.reshape(kinds * each, -1)
    lengths = np.square(gallery).sum(axis=1)
    nearest = [(lengths - 2 * part @ gallery.T).argmin(axis=1) // each for part in drawn]
    return np.stack([np.bincount(kind, minlength=kinds) / len(kind) for kind in nearest])
