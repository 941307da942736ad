"""The rotation decoder: its error by angle, what it draws in the gap, and the shape of its layers (paper figure 9)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from analysis.measures.quantity import Quantity
from analysis.trained import Trained, check_last_layer
from trainables.rotation import RotationTask, angle_codes

VERSION = 1

ANGLES = 360
"""Whole degrees at which the error is measured and the layers are embedded."""
GAP_ANGLES = 20
"""Angles in the gap that are looked at: the middles of as many equal parts, so not its edges, where a mix is the truth."""
NEIGHBOURS, MIN_DIST, UMAP_SEED = 15, 0.1, 42
BATCH = 64


class TrainedRotation(Trained):
    """A decoder of the rotation task. Images are (n, N, N)."""

    @property
    def gap(self) -> tuple[float, float]:
        """First and last angle of the gap, degrees."""
        return float(self.spec.option("gap_low")), float(self.spec.option("gap_high"))

    def truth(self, angles: np.ndarray) -> np.ndarray:
        """The rotated image at angles (n,) in degrees."""
        return cast(RotationTask, self.task).split(self.spec, angles).targets[:, 0].numpy()

    @torch.no_grad()
    def outputs(self, angles: np.ndarray) -> np.ndarray:
        """What the decoder draws at angles (n,) in degrees."""
        return torch.cat([self.model(part)[:, 0] for part in angle_codes(angles).split(BATCH)]).numpy()

    @torch.no_grad()
    def layers(self, angles: np.ndarray) -> list[np.ndarray]:
        """Activations (n, D) of every layer at angles (n,) in degrees, after ReLU, the images last.

        Raises:
            ValueError: as `check_last_layer`.
        """
        parts = [self.model.layers(part) for part in angle_codes(angles).split(BATCH)]  # type: ignore[operator]
        layers: list[tuple[Tensor, ...]] = list(zip(*parts, strict=True))
        found = [torch.cat(layer).flatten(1).numpy() for layer in layers]
        drawn = self.outputs(angles[:BATCH])
        check_last_layer(found[-1][:BATCH], drawn.reshape(len(drawn), -1))
        return found


def measure(decoder: TrainedRotation) -> Iterator[Quantity]:
    """
    - `angles`, `mse_by_angle`: 360 whole degrees, and the error there; `id_mse` and `gap_mse`: its means outside the gap, and
      in it, edges included; of a gap without a whole degree, that at `gap_angles`.
    - `gap_angles`, `gap_outputs`, `gap_truth`, `gap_mixes`: angles in the gap, what is drawn, what is right, and the `best_mix`
      of what is right at the gap's two edges; `to_mix` and `to_truth`, mean squared distances of outputs from both;
      `closer_to_mix`, the share of outputs that are nearer to the mix.
    - of seed 0: `embedding`, UMAP of every layer, the images last, at `embedding_angles`.
    """
    low, high = decoder.gap
    angles = np.arange(ANGLES) * (360 / ANGLES)
    mse = _distance(decoder.outputs(angles), decoder.truth(angles))
    inside = (angles >= low) & (angles <= high)
    gap_angles = low + (np.arange(GAP_ANGLES) + 0.5) * (high - low) / GAP_ANGLES
    outputs, truth = decoder.outputs(gap_angles), decoder.truth(gap_angles)
    mixes = best_mix(outputs, *decoder.truth(np.array([low, high])))
    to_mix, to_truth = _distance(outputs, mixes), _distance(outputs, truth)
    yield Quantity("id_mse", float(mse[~inside].mean()))
    yield Quantity("gap_mse", float((mse[inside] if inside.any() else to_truth).mean()))
    yield Quantity("angles", array=angles.astype(np.float32))
    yield Quantity("mse_by_angle", array=mse)
    yield Quantity("closer_to_mix", float((to_mix < to_truth).mean()))
    yield Quantity("to_mix", float(to_mix.mean()))
    yield Quantity("to_truth", float(to_truth.mean()))
    for name, array in (("angles", gap_angles), ("outputs", outputs), ("truth", truth), ("mixes", mixes)):
        yield Quantity(f"gap_{name}", array=array.astype(np.float32))

    if decoder.spec.seed == 0:
        yield Quantity("embedding_angles", array=angles.astype(np.float32))
        for layer, activations in enumerate(decoder.layers(angles)):
            yield Quantity("embedding", array=embed(activations), layer=layer)


def best_mix(images: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Of (1 - a) first + a last, a in [0, 1], what is nearest to each of the images (n, N, N) in squared distance."""
    along = last - first
    share = ((images - first) * along).sum(axis=(1, 2)) / np.square(along).sum()
    mixes: np.ndarray = first + share.clip(0, 1)[:, None, None] * along
    return mixes


def embed(activations: np.ndarray) -> np.ndarray:
    """UMAP (n, 2) of activations (n, D) with the published settings; the same for the same activations on one machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is not installed, and of libraries that outrun each other
        from umap import UMAP

        mapper = UMAP(n_neighbors=NEIGHBOURS, min_dist=MIN_DIST, random_state=UMAP_SEED, n_jobs=1)
        embedding: np.ndarray = mapper.fit_transform(activations)
    return embedding.astype(np.float32)


def _distance(images: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Squared distance (n,), mean over the pixels."""
    distance: np.ndarray = np.square(images - others).mean(axis=(1, 2))
    return distance
