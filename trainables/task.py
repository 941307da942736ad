"""What a study asks of a subject: settings, data, a model, a measure. Bring your own by writing a class with these six members.

`trainables.check` looks at them before the first training.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from trainables.printed import reason_of
from trainables.spec import Counts, RunSpec


class Split(NamedTuple):
    """Samples of one kind: `inputs` (n, ...); `targets` (n, ...), floating-point, with a dimension besides the first, so (n, 1)
    for one value a sample, or class indices where the loss is the cross-entropy; and `truth` (n, ...), what `measure` judges
    against."""

    inputs: Tensor
    targets: Tensor
    truth: Tensor

    def to(self, device: torch.device) -> Split:
        """On a device, without gradients: nothing is learned through samples."""
        return Split(*(t.detach().to(device) for t in self))

    def take(self, index: Tensor | slice) -> Split:
        """The samples with these indices."""
        return Split(*(t[index] for t in self))


DRAWN = 64
"""Held-out samples whose outputs `draw` is given at most."""


class Data(NamedTuple):
    """`train`: what the run may learn from. `held_out`: what it is judged on, never trained on."""

    train: Split
    held_out: Split


@runtime_checkable
class Task(Protocol):
    """A subject of study. Stateless: every answer is a pure function of the spec, so any worker can give it.

    The loss is the squared error: the mean of (outputs - targets)^2 over all values, plus the model's `penalty()` if there is
    one. So targets are floating-point numbers, of exactly the shape of the outputs. A task with `loss = "cross-entropy"` has
    class indices, int64 (n, ...), as targets, and logits (n, classes, ...) as outputs. A model may bring a loss of its own, and
    more: see `trainables.objectives.Objective`.

    A task must have the six members below, and may have more. (One that was written before tasks had `settings` has `choices`,
    `defaults` and `preset` in their place, and works as it did: see `trainables.settings`.)

    - `cheap` names the decoders that need no GPU where others use one (see `--cpu-workers`).
    - `packable` names options, `dataset`, `encoding` or `holdout` that change neither the shape of any tensor nor what
      `measure` says of an output: runs that differ in these may be trained together, and runs of all seeds, data counts,
      targets and rates are measured together. Without it, only runs with equal options are trained together, each measured by
      itself. A subclass with another `measure` needs a `packable` of its own to have them measured together.
    - `matters(settings)` gives the names of the settings that matter, given all settings by name. A search of settings leaves
      the others at their default, so that no training is made twice. Without it, all matter.
    - `audits(spec)` tells how many runs like `spec`, of any N, data count and seed, are known to have been given up by the
      stopping rule and not to have passed when they were trained to the end. Without it, or under 299, the search trains what
      its answers rest on to the end.
    - `loss` is a word of `trainables.objectives.LOSSES`. Where it is not the squared error, or where the model brings its own,
      the mean loss of the samples is measured as `loss` and `id_loss`, and the curve of the error holds it; a row has no
      `id_mse` and `ood_mse` then, unless `measure` gives an `mse`.
    - `judged(spec)`, a Data, is what is looked at in place of `data(spec)`, where that differs from what is trained on: its
      `train` in place of the training set, its `held_out` in place of the other. A model's own loss stays that of `data(spec)`.
    - `looks(spec)` is the number of steps between two looks, a multiple of EVAL_EVERY, where looks are dear. The stopping rule
      counts looks, and decides as much later.
    - `summarise(spec, measures, split)` is asked at every look, with the part of the held-out set that is looked at and the
      measures of each of its samples. It gives numbers by name, always the same names, such as the accuracy of some groups of
      samples. They are kept as curves, in the column `curve_summary` of the row.
    - `start_model(spec, model)` changes a fresh network in place to where training begins, if that takes long: from the k-means
      of some data, say. A network that is given the weights of a finished run is not started.
    - `draw(spec, outputs)` gives a matplotlib figure for the page of the store: of what a run whose weights are kept gives for
      the first held-out samples, at most DRAWN.
    - `timing()` gives a context in which runs are only timed, for a plan: where data are dear to read, others of the same
      shapes will do.
    - `needs(spec)` names the runs that this one needs, whose trained networks other members are then given: see
      `trainables.needs`.
    """

    version: str
    """Part of every run key. Change it whenever the same spec would give another result: old rows then no longer answer."""

    @property
    def settings(self) -> type:
        """What a user may choose: a frozen dataclass, see `trainables.settings`."""

    def counts(self, spec: RunSpec) -> Counts:
        """Data counts that make sense for `spec` (its own `data_count` is not looked at). ValueError in a user's words
        if the spec asks for something this task cannot do."""

    def data(self, spec: RunSpec) -> Data:
        """Training set of `spec.data_count` drawn images plus the fixed ones, and the held-out set. For one seed the sets
        are nested: a larger count contains a smaller one."""

    def model(self, spec: RunSpec) -> nn.Module:
        """A freshly initialised network from `Split.inputs` to outputs of the shape of `Split.targets`; torch's global
        generator has been seeded.

        If it has a method `penalty()`, what that returns (a scalar tensor) is added to the loss in every step. What else it may
        have is said at `trainables.objectives.Objective`.
        """

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """Per-sample measures (n,) of outputs; `correct` (bool) is required, its mean is the accuracy the search looks at."""


def load_task(path: str) -> Task:
    """Import the task named by `module:Class` and make it.

    Raises:
        ValueError: the path has no colon, the module cannot be imported, or the class is not a `Task`.
    """
    module_name, colon, class_name = path.partition(":")
    if not (module_name and colon and class_name):
        raise ValueError(f"--task {path!r} names no class: write module:Class, for example trainables.bumps:BumpTask")
    if "/" in module_name or module_name.startswith(".") or module_name.endswith(".py"):
        if module := _module_below(module_name):
            raise ValueError(f"--task {path!r} names a file: write {module}:{class_name}")
        stem = module_name.removesuffix(".py").rpartition("/")[2].lstrip(".") or "module"
        raise ValueError(f"--task {path!r} names a file: write {stem}:{class_name}, and start in the folder of {stem}.py")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
        if not isinstance(found, type):
            raise TypeError(f"{class_name} is not a class")
        task = found()
    except (Exception, SystemExit) as error:
        told = f"--task {path!r} cannot be imported ({reason_of(error)}): write module:Class, importable from here"
        raise ValueError(told) from error
    former = ("choices", "defaults", "preset")
    written_before = not hasattr(task, "settings") and any(hasattr(task, member) for member in former)
    members = ("version", *(former if written_before else ("settings",)), "counts", "data", "model", "measure")
    if missing := ", ".join(member for member in members if not hasattr(task, member)):
        raise ValueError(f"--task {path!r} is not a task: it lacks {missing}")
    return cast(Task, task)


def _module_below(file: str) -> str:
    """The name by which a file below the current folder is imported, its ending given or not; empty if there is none."""
    here, path = Path.cwd(), Path(f"{file.removesuffix('.py')}.py")
    parts = path.relative_to(here).parts if path.is_relative_to(here) else path.parts
    names = (*parts[:-1], path.stem)
    is_there = os.path.isfile(path)  # noqa: PTH113 -- Path refuses names that are too long
    return ".".join(names) if is_there and all(map(str.isidentifier, names)) else ""
