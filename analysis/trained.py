"""A network as a run left it, with what every measure of it needs: the networks of the runs that it needed; of a decoder its
grid of positions, its codes, its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from safetensors import torch as safetensors
from torch import Tensor, nn

from orchestrator.errors import printable
from trainables.bumps import grid_centres
from trainables.encodings import encode
from trainables.heldout import box_bounds, in_box
from trainables.needs import Networks, Parent, Tasks, given, network_of, untrained
from trainables.settings import listed
from trainables.spec import RunSpec
from trainables.task import Task, load_task

Load = Callable[[str, int | None], bytes]
Find = Callable[[str], Mapping[str, Any] | None]
BESIDE = 1 << 20
"""Bytes of a file of weights besides its numbers: names, shapes and a digest."""
ROUNDING = 1e-3
"""The share of the largest value by which images differ at most that are computed in another way."""
NAMED, LONGEST = 3, 150
"""Tensors that an error names, and the most letters of that."""


class ParentError(ValueError):
    """A run that another one needed cannot be used; the message says which, why, and what to do."""


def load_model(row: Mapping[str, Any], weights: bytes, parents: Networks | None = None) -> tuple[RunSpec, Task, nn.Module]:
    """Spec, task and network of a finished run, in evaluation mode and float32, without gradients.

    Args:
        row: the run as the store has it.
        weights: the contents of its safetensors file.
        parents: the networks of the runs that it needed, by name, where they are at hand.

    Raises:
        SafetensorError, RuntimeError: the weights are damaged, or those of another network.
    """
    spec = RunSpec.from_dict(row)
    task, tensors = load_task(spec.task), safetensors.load(weights)
    _check_size(task, spec, tensors)
    beside = given(task, parents) if parents else untrained(task, spec)  # what it has of other runs is among its own weights
    model = beside.model(spec)
    if more := sorted(tensors.keys() - model.state_dict().keys()):
        told = listed([*more[:NAMED], *([f"{len(more) - NAMED} more"] if more[NAMED:] else [])])
        raise RuntimeError(f"the weights have tensors that the network does not have: {printable(told)[:LONGEST]}")
    model.load_state_dict(tensors)
    return spec, task, model.float().eval().requires_grad_(False)


def _check_size(task: Task, spec: RunSpec, tensors: Mapping[str, Tensor]) -> None:
    """Compare the weights with the network of a run before that takes any memory: a row from elsewhere may ask for a huge one.

    Raises:
        RuntimeError: the network has more numbers than its weights.
    """
    numbers, kept = _numbers(task, spec), sum(tensor.numel() for tensor in tensors.values())
    if numbers is not None and numbers > kept:
        raise RuntimeError(f"the weights hold {kept:,} of the {numbers:,} numbers of the network")


def _numbers(task: Task, spec: RunSpec) -> int | None:
    """How many the network of a run has; None if it cannot be made without memory."""
    try:
        with torch.device("meta"):
            return sum(tensor.numel() for tensor in untrained(task, spec, "meta").model(spec).state_dict().values())
    except Exception:  # whatever the task raises; the network is made with memory then
        return None


def most_bytes(task: Task, spec: RunSpec) -> int | None:
    """The most that the weights of a run take as a file; None if the size of its network is not known."""
    numbers = _numbers(task, spec)
    return None if numbers is None else 16 * numbers + BESIDE


def parents_of(row: Mapping[str, Any], load: Load, find: Find) -> dict[str, Parent]:
    """The runs that a finished run needed, by name, as its row names them.

    Args:
        row: the run as the store has it, with its column `parents`. Its task is loaded, and those that its `needs` names.
        load: the weights of a run, by its key and the most bytes that they may have (see `most_bytes`); OSError where there are
            none that can be read.
        find: the row of a run that others need, by its key, with its column `parents`; None if the store has none.

    Raises:
        ParentError: one has other weights than the run was trained with, or none, or was itself trained with others.
    """
    spec = RunSpec.from_dict(row)
    tasks = Tasks(load_task(spec.task))
    try:
        today = tasks.parents(spec)
    except Exception as error:  # a row from elsewhere may have settings that its task does not know
        why = " ".join(f"{type(error).__name__}: {error}".split())[:100]
        raise ParentError(f"its settings do not say which runs it needs ({why}): its row is of another task") from None
    if told := _changed(row, today):
        raise ParentError(f"it was trained {told}: train it again")
    return _parents(tasks, spec, load, find)


def _changed(row: Mapping[str, Any], today: Mapping[str, str]) -> str:
    """With which run a finished one was trained, and would be today, if these are not the same."""
    named = row.get("parents") or {}
    for name in dict.fromkeys([*today, *named]):
        before, now = (f"{name} {of[name]}" if name in of else f"no {name}" for of in (named, today))
        if before != now:
            return f"with {before}, and would be with {now} today, as a task has changed"
    return ""


def _parents(tasks: Tasks, spec: RunSpec, load: Load, find: Find) -> dict[str, Parent]:
    found = {}
    for name, parent in tasks.needs(spec).items():
        key = tasks.key(parent)
        row = find(key)
        if row is not None and (told := _changed(row, tasks.parents(parent))):
            raise ParentError(f"the {name} that it needs, run {key}, was trained {told}: train both again")
        try:
            weights = load(key, most_bytes(load_task(parent.task), parent))
        except FileNotFoundError:
            raise ParentError(
                f"the weights of the {name} that it needs are gone: put weights/{key}.safetensors back into the store, or "
                "train it again by the command of the study with --save-weights"
            ) from None
        except OSError as error:
            raise ParentError(f"the weights of the {name} that it needs, run {key}, cannot be read ({error})") from None
        found[name] = Parent(parent, weights, _parents(tasks, parent, load, find))
    return found


def networks_of(parents: Mapping[str, Parent]) -> dict[str, nn.Module]:
    """The networks that these runs left, by name, in evaluation mode and float32, without gradients.

    Raises:
        ParentError: weights are damaged, or those of another network.
    """
    found = {}
    for name, parent in parents.items():
        try:
            _check_sizes(parent)
            found[name] = network_of(parent).float()
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:100]
            raise ParentError(
                f"the weights of the {name} that it needs cannot be used ({why}): delete them, and train the {name} again"
            ) from None
    return found


def _check_sizes(parent: Parent) -> None:
    """As `_check_size`, of a run and all that it needed."""
    for further in parent.parents.values():
        _check_sizes(further)
    _check_size(load_task(parent.spec.task), parent.spec, safetensors.load(parent.weights))


@dataclass
class Trained:
    """A network as a run left it."""

    key: str
    spec: RunSpec
    task: Task
    model: nn.Module
    parents: Networks = field(default_factory=dict)
    """The networks of the runs that it needed, by name."""

    @classmethod
    def load(cls, row: Mapping[str, Any], weights: bytes, parents: Mapping[str, Parent] | None = None) -> Self:
        """As `load_model` and `networks_of`."""
        networks = networks_of(parents or {})
        return cls(row["key"], *load_model(row, weights, networks), networks)


def check_last_layer(images: np.ndarray, drawn: np.ndarray) -> None:
    """
    Raises:
        ValueError: the images that the layers of a network end with are others than it draws, but for rounding.
    """
    scale = np.abs(drawn[np.isfinite(drawn)]).max(initial=0)
    if not np.allclose(images, drawn, rtol=0, atol=ROUNDING * scale, equal_nan=True):
        raise ValueError("the last of its layers() is not what it draws: give the network layers() of its own")


class TrainedDecoder(Trained):
    """A CNN or MLP of the bump task. All arrays over positions are in raster order: x fastest, then y."""

    @property
    def N(self) -> int:  # noqa: N802 - the field's own name
        return self.spec.N

    @property
    def box(self) -> tuple[int, int]:
        """First and last coordinate of the held-out box, both inclusive, the same for x and y."""
        bounds = box_bounds(self.spec.holdout, self.N)
        assert bounds is not None, "runs without a held-out box are not analysed"
        return bounds

    @cached_property
    def centres(self) -> Tensor:
        """(N^2, 2) x and y of all whole positions."""
        return grid_centres(self.N)

    @cached_property
    def inside(self) -> np.ndarray:
        """(N^2,) bool: which positions lie in the box (OOD)."""
        return in_box(self.centres, self.spec.holdout, self.N).numpy()

    def code(self, centres: Tensor) -> Tensor:
        """Codes (n, C) of positions (n, 2); differentiable in them but for the one-hot code."""
        return encode(centres, self.N, self.spec.encoding, float(self.spec.option("sigma")), str(self.spec.option("absent")))

    def layers(self, code: Tensor) -> list[Tensor]:
        """Activations of every layer after ReLU, then images; see `CNN.layers`. Any kind of differentiation goes through."""
        layers: list[Tensor] = self.model.layers(code)  # type: ignore[operator]
        return layers

    @torch.no_grad()
    def outputs(self, codes: Tensor) -> np.ndarray:
        """Images (n, N, N), bright bumps on a dark ground also where the run had them dark; rows y, columns x."""
        images = torch.cat([self.model(part)[:, 0] for part in codes.split(64)])
        return self._bright(images).numpy()

    @cached_property
    def images(self) -> np.ndarray:
        """The images (N^2, N, N) of all positions."""
        return self._bright(torch.from_numpy(self.activations[-1]).view(-1, self.N, self.N)).numpy()

    @cached_property
    def activations(self) -> list[np.ndarray]:
        """Activations (N^2, D) of all layers at all positions, float32; D differs by layer, the last is the image.

        Raises:
            ValueError: as `check_last_layer`.
        """
        layers: list[np.ndarray] = []
        with torch.no_grad():
            for start, part in enumerate(self.code(self.centres).split(64)):
                found = [activations.flatten(1).numpy() for activations in self.layers(part)]
                if not layers:
                    check_last_layer(found[-1], self.model(part).flatten(1).numpy())
                layers = layers or [np.empty((self.N**2, values.shape[1]), np.float32) for values in found]
                for layer, values in zip(layers, found, strict=True):
                    layer[64 * start : 64 * start + len(values)] = values
        return layers

    def _bright(self, images: Tensor) -> Tensor:
        return 1 - images if self.spec.option("polarity") == "dark" else images
