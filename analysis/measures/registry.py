"""Which measures there are, and which of them a finished run is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analysis.measures import (
    circuits,
    embeddings,
    generated,
    geometry,
    images,
    kernel,
    linear,
    misplaced,
    probe,
    rotation,
    superposition,
    tokens,
    tuning,
)
from analysis.measures.quantity import Quantity
from analysis.trained import Trained, TrainedDecoder
from orchestrator.searches.axes import BUMPS
from trainables.decoders import DECODERS
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.generative.settings import REAL
from trainables.heldout import box_bounds
from trainables.needs import Parent
from trainables.regularization import REGIONS
from trainables.regularization import TASK as PENALTIES
from trainables.rotation import TASK as ROTATION

OF_DECODERS = {
    "images": images,
    "misplaced": misplaced,
    "superposition": superposition,
    "kernel": kernel,
    "geometry": geometry,
    "probe": probe,
    "tuning": tuning,
}
OF_PENALTIES = {"embeddings": embeddings}
OF_ROTATIONS = {"rotation": rotation}
OF_PROBES = {"linear": linear}
OF_TOKENIZERS = {"tokens": tokens}
OF_GENERATORS = {"generated": generated, "circuits": circuits}
_ALL = {**OF_DECODERS, **OF_PENALTIES, **OF_ROTATIONS, **OF_PROBES, **OF_TOKENIZERS, **OF_GENERATORS}

MEASURES: Mapping[str, Callable[[Any], Iterator[Quantity]]] = {name: module.measure for name, module in _ALL.items()}
VERSIONS: Mapping[str, int] = {name: module.VERSION for name, module in _ALL.items()}

TASKS = (BUMPS, PENALTIES, ROTATION, PROBE, TOKENIZER, GENERATOR)
"""The tasks whose networks are measured."""
MOST_N = {"kernel": 64, "probe": 96, "embeddings": 256}
"""The largest N of runs that a measure is taken of: `kernel` finds the singular values of N^2 x N^2 numbers, which beyond takes
gigabytes and hours, `probe` solves equations of about as many, in gigabytes, and `embeddings` has 2 N^3 numbers at once."""
_LOADED: Mapping[str, type[Trained]] = {
    BUMPS: TrainedDecoder,
    PENALTIES: Trained,
    ROTATION: rotation.TrainedRotation,
    PROBE: Trained,
    TOKENIZER: tokens.TrainedTokenizer,
    GENERATOR: generated.TrainedGenerator,
}


def applicable(row: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the measures that a finished run of the store is given: one of the bump task or of the regularization study that
    was judged in a box, or one of another of TASKS. Those of generators, tokenizers and probes render pictures to compare with,
    so runs on real pictures are given none.

    Those that MOST_N names are left out of larger ones.

    Args:
        kind: the one of these tasks that the task of the run is or extends.
    """
    return [name for name in _of_any_size(row, kind) if row["N"] <= MOST_N.get(name, row["N"])]


def too_large(row: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the measures that would be `applicable` to a smaller run."""
    return [name for name in _of_any_size(row, kind) if row["N"] > MOST_N.get(name, row["N"])]


def _of_any_size(row: Mapping[str, Any], kind: str) -> list[str]:
    if row["dataset"] in REAL:
        return []
    if kind == BUMPS and row["decoder"] in DECODERS and box_bounds(row["holdout"], row["N"]) is not None:
        return list(OF_DECODERS)
    if kind == PENALTIES and row["holdout"] in REGIONS:
        return list(OF_PENALTIES)
    return list({ROTATION: OF_ROTATIONS, PROBE: OF_PROBES, TOKENIZER: OF_TOKENIZERS, GENERATOR: OF_GENERATORS}.get(kind, ()))


def load(row: Mapping[str, Any], weights: bytes, kind: str, parents: Mapping[str, Parent] | None = None) -> Any:
    """The trained network as the measures of its task take it. Its task is loaded; `kind` as above.

    Args:
        parents: the runs that it needed, by name.

    Raises:
        SafetensorError, RuntimeError: the weights are damaged, or those of another network.
        ParentError: those of a run that it needed are.
    """
    return _LOADED[kind].load(row, weights, parents)
