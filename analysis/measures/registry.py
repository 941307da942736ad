"""Which measures there are, and which of them a finished run is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analysis.measures import geometry, images, kernel, probe, rotation, superposition, tuning
from analysis.measures.quantity import Quantity
from analysis.trained import TrainedDecoder
from trainables.decoders import DECODERS
from trainables.heldout import box_bounds

OF_DECODERS = {
    "images": images,
    "superposition": superposition,
    "kernel": kernel,
    "geometry": geometry,
    "probe": probe,
    "tuning": tuning,
}
OF_ROTATIONS = {"rotation": rotation}

MEASURES: Mapping[str, Callable[[Any], Iterator[Quantity]]] = {
    name: module.measure for name, module in {**OF_DECODERS, **OF_ROTATIONS}.items()
}
VERSIONS: Mapping[str, int] = {name: module.VERSION for name, module in {**OF_DECODERS, **OF_ROTATIONS}.items()}

BUMPS = "trainables.bumps:BumpTask"
ROTATION = "trainables.rotation:RotationTask"
TASKS = (BUMPS, ROTATION)
"""The tasks whose networks are measured."""


def applicable(row: Mapping[str, Any], kind: str | None = None) -> list[str]:
    """Names of the measures that a finished run of the store is given: one of the bump task whose decoder was judged in a
    box, or one of the rotation task.

    Args:
        kind: the one of these tasks that the task of the run is or extends; not given: the task of the run.
    """
    kind = kind or row["task"]
    if kind == BUMPS and row["decoder"] in DECODERS and box_bounds(row["holdout"], row["N"]) is not None:
        return list(OF_DECODERS)
    return list(OF_ROTATIONS) if kind == ROTATION else []


def load(row: Mapping[str, Any], weights: bytes, kind: str | None = None) -> Any:
    """The trained network as the measures of its task take it. Its task is loaded; `kind` as above.

    Raises:
        SafetensorError, RuntimeError: the weights are damaged, or those of another network.
    """
    of_rotation = (kind or row["task"]) == ROTATION
    return rotation.TrainedRotation.load(row, weights) if of_rotation else TrainedDecoder.load(row, weights)
