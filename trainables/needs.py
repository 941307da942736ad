"""Runs that need other runs: a tokenizer before its generator, pretraining before fine-tuning, a teacher before its student.

A task says which by a member `needs`:

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        return {"pretrained": run_of(Pretraining, N=spec.N, seed=spec.seed, data_count=400)}

    def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:
        return Classifier(copy.deepcopy(parents["pretrained"]).requires_grad_(True))

`needs` is a pure function of the spec, so all that shapes a parent is said by the settings of its child, and the child's run
key covers it. The members of MEMBERS that have a parameter `parents` are given the trained networks by name. They are in eval
mode, need no gradient, and are shared: copy one before you train it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from trainables.program import PATH as PROGRAM
from trainables.settings import RESERVED, spec_fields
from trainables.spec import RunSpec, Scalar, run_key
from trainables.task import Task, load_task
from trainables.training.seeds import start_from, stream_seed

MEMBERS = ("data", "judged", "model", "measure", "summarise")
"""What may have a parameter `parents`."""
MOST_STAGES = 8
"""Runs that may need each other in a row. A run that needs itself would need more."""

Networks = Mapping[str, nn.Module]


class Tasks:
    """The tasks of a study: its own one, and those of the runs that it needs, each loaded once."""

    def __init__(self, own: Task) -> None:
        self._own, self._staged = own, needs_others(own)
        self._loaded: dict[str, Task] = {}
        self._needs: dict[RunSpec, Mapping[str, RunSpec]] = {}
        self._of_model: dict[str, bool] = {}

    def of(self, spec: RunSpec) -> Task:
        """The task of a run."""
        if not self._staged:
            return self._own
        if spec.task not in self._loaded:
            self._loaded[spec.task] = load_task(spec.task)
        return self._loaded[spec.task]

    def version(self, spec: RunSpec) -> str:
        return self.of(spec).version

    def key(self, spec: RunSpec) -> str:
        return run_key(spec, self.version(spec))

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        """The runs that a run needs, by name; see `needs_of`."""
        if not self._staged:
            return {}
        if spec not in self._needs:
            self._needs[spec] = needs_of(self.of(spec), spec)
        return self._needs[spec]

    def of_model(self, spec: RunSpec) -> bool:
        """Whether the model of a run is given the networks of the runs that it needs."""
        if not self._staged:
            return False
        if spec.task not in self._of_model:
            self._of_model[spec.task] = "model" in takes_parents(self.of(spec))
        return self._of_model[spec.task]

    def parents(self, spec: RunSpec) -> dict[str, str]:
        """The keys of the runs that a run needs, by name."""
        return {name: self.key(parent) for name, parent in self.needs(spec).items()}


@dataclass(frozen=True, slots=True)
class Parent:
    """A finished run that another one needs."""

    spec: RunSpec
    weights: bytes
    """The safetensors file that it left."""
    parents: Mapping[str, Parent] = field(default_factory=dict)


class WeightsError(RuntimeError):
    """The weights that a finished run left are damaged, or those of another network."""

    def __init__(self, spec: RunSpec, why: object) -> None:
        super().__init__(str(why))
        self.spec = spec
        """The run that left them."""


def run_of(task: type | str, *, N: int, seed: int, data_count: int, stop: str = "target", **values: Scalar) -> RunSpec:
    """A run as a study of its task makes it, for `needs`: both have one key, so it is trained once.

    Args:
        task: its class, or `module:Class` as `--task` names it.
        values: settings of the task, and `lr`, `max_steps`, `batch_size`, `weight_decay`, `target`, `schedule` and `precision`.
            What is not given is as the task, or else a study, has it by default; the precision is float32.

    Raises:
        ValueError: the task cannot be loaded, has no such setting, or cannot do these values.
    """
    path = task if isinstance(task, str) else f"{task.__module__}:{task.__qualname__}"
    of_run: dict[str, Any] = {name: value for name, value in values.items() if name in RESERVED - {"options"}}
    settings = spec_fields(load_task(path), {name: value for name, value in values.items() if name not in of_run})
    return RunSpec(task=path, N=N, seed=seed, data_count=data_count, stop=stop, **settings, **of_run)


def needs_others(task: Task) -> bool:
    """Whether runs of a task may need other runs."""
    return hasattr(task, "needs")


def needs_of(task: Task, spec: RunSpec) -> Mapping[str, RunSpec]:
    """The runs that a run needs, by name.

    Raises:
        ValueError: the task's `needs` gives something else.
    """
    if not needs_others(task):
        return {}
    found: Any = task.needs(spec)  # type: ignore[attr-defined]
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"the task's needs() must give runs by name, such as {{'tokenizer': RunSpec(...)}}, not {found!r:.80}")
    for name, parent in found.items():
        if not isinstance(parent, RunSpec):
            raise ValueError(f"the task's needs() must give a RunSpec as {name}, not a {type(parent).__name__}")
        if parent.task == PROGRAM:
            gives = f"the task's needs() gives as {name} a run of a program, which leaves no network"
            raise ValueError(f"{gives}: it must give a run of a task class")
    return MappingProxyType(dict(found))


def takes_parents(task: Task) -> list[str]:
    """The members of a task that are given the networks of the runs that it needs."""
    members = [name for name in MEMBERS if hasattr(task, name)]
    return [name for name in members if "parents" in inspect.signature(getattr(task, name)).parameters]


def given(task: Task, parents: Networks) -> Task:
    """The task with its members given these networks."""
    return cast(Task, _Given(task, parents)) if needs_others(task) else task


def trained(task: Task, parents: Mapping[str, Parent], device: str = "cpu") -> Task:
    """The task with its members given the networks that finished runs left."""
    return given(task, {name: network_of(parent, device) for name, parent in parents.items()})


def untrained(task: Task, spec: RunSpec, device: str = "cpu") -> Task:
    """The task with its members given the networks of the runs that `spec` needs as they are before they are trained: enough to
    check and to time a run.

    Raises:
        ValueError: as `needs_of`; or runs need each other in a circle.
    """
    return _untrained(task, spec, MOST_STAGES, device)


def _untrained(task: Task, spec: RunSpec, stages: int, device: str) -> Task:
    networks = {}
    for name, parent in needs_of(task, spec).items():
        if not stages:
            raise ValueError(f"the task's needs() leads from run to run more than {MOST_STAGES} times: does a run need itself?")
        of_parent = _untrained(load_task(parent.task), parent, stages - 1, device)
        networks[name] = _still(_fresh(of_parent, parent).to(device))
    return given(task, networks)


def network_of(parent: Parent, device: str = "cpu") -> nn.Module:
    """The network that a finished run left, in eval mode and without gradients.

    Raises:
        WeightsError: its weights are damaged, or those of another network; or those of a run that it needed.
    """
    model = _fresh(trained(load_task(parent.spec.task), parent.parents, device), parent.spec)
    try:
        model.load_state_dict(safetensors.torch.load(parent.weights))
    except (SafetensorError, RuntimeError, ValueError, OverflowError) as error:
        raise WeightsError(parent.spec, error) from error
    return _still(model.to(device))


def _fresh(task: Task, spec: RunSpec) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        start_from(stream_seed(spec.seed, "weights"))
        return task.model(spec)


def _still(model: nn.Module) -> nn.Module:
    return model.eval().requires_grad_(False)


class _Given:
    """A task, of which the MEMBERS that ask for `parents` are given them."""

    def __init__(self, task: Task, parents: Networks) -> None:
        self._task = task
        for name in takes_parents(task):
            setattr(self, name, functools.partial(getattr(task, name), parents=MappingProxyType(dict(parents))))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_task":
            raise AttributeError(name)
        return getattr(self._task, name)
