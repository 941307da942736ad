"""A model over stacks of parameters, one for each run of a pack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from trainables.objectives import Draws, OwnLosses
from trainables.task import Split
from trainables.training.loop import Training

FORWARD, PENALTY = ("forward", "packed"), ("penalty", "packed_penalty")
"""Methods of a model, and their batched forms."""


class Batched:
    """A run's model over stacks of parameters and buffers: its forward pass, its penalty, and its own losses."""

    def __init__(self, run: Training) -> None:
        model = self.model = run.model

        def forward(state: dict[str, Tensor], inputs: Tensor) -> Tensor:
            outputs: Tensor = functional_call(model, state, (inputs,))
            return outputs

        def penalty(state: dict[str, Tensor]) -> Tensor:
            value: Tensor = functional_call(_Penalty(model), {f"model.{name}": p for name, p in state.items()}, ())
            return value

        def losses(state: dict[str, Tensor], batch: Split, draws: Draws) -> Tensor:
            found: Tensor = functional_call(own, state, (batch, draws))
            return found

        own = OwnLosses(model, run.average)
        self._losses = vmap(losses)
        self._forward = _batched_form(model, "packed") or vmap(forward)
        self._penalty = _batched_form(model, "packed_penalty") or (vmap(penalty) if hasattr(model, "penalty") else None)

    def __call__(self, state: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        with _whole_layers(inputs):
            outputs: Tensor = self._forward(state, inputs)
        return outputs

    def penalty(self, state: Mapping[str, Tensor]) -> Tensor | None:
        return None if self._penalty is None else self._penalty(state)

    def losses(self, state: Mapping[str, Tensor], averages: Mapping[str, Tensor], batch: Split, draws: Draws) -> Tensor:
        """The loss of each sample (M, n) of batches and draws (M, n, ...). The teacher has the averages, and buffers as they
        are before the model changes them."""
        both = {f"model.{name}": stack for name, stack in state.items()}
        if averages:
            both |= {f"teacher.{name}": averages[name] if name in averages else state[name].clone() for name in state}
        with _whole_layers(batch.inputs):
            losses: Tensor = self._losses(both, batch, draws)
        return losses


def say_how_to_batch(models: Sequence[nn.Module]) -> bool:
    """Whether the class of each model itself has a batched form of its forward pass, and it is that of the model, too. One that
    is inherited may be another's."""
    return all("packed" in vars(type(model)) and _batched_form(model, "packed") is not None for model in models)


def _batched_form(model: nn.Module, name: str) -> Callable[..., Tensor] | None:
    """The model's own batched form of its forward pass or penalty. None if it has none, or inherits one from a class of which a
    subclass, or the model itself, has replaced a part: the form does not know of that. `__init__` may differ, and what only
    the other form is about."""
    if not _has_known_parts(model):
        return None
    others = PENALTY if name in FORWARD else FORWARD
    replaced = {other for other, value in vars(model).items() if callable(value)}
    for kind in type(model).__mro__:
        if name in vars(kind):
            known = {other for base in kind.__mro__ if base not in nn.Module.__mro__ for other in vars(base)}
            return None if replaced & known else getattr(model, name)
        replaced |= {other for other in vars(kind) if not other.startswith("__") and other not in others}
    return None


def _has_known_parts(model: nn.Module) -> bool:
    """Whether a network consists of the types of modules that its batched forms know, which it names in `packed_parts`, and
    each is as its type has it. One that names none is taken at its word."""
    if (known := getattr(model, "packed_parts", None)) is None:
        return True
    return all(
        (part is model or (type(part) in known and "forward" not in vars(part)))
        and not (part._forward_hooks or part._forward_pre_hooks)
        for part in model.modules()
    )


class _InCoarsePrecision(TorchFunctionMode):
    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if function is functional.linear:
            args, named = [_coarse(given) for given in args], {name: _coarse(given) for name, given in named.items()}
        return function(*args, **named)


def _coarse(given: Tensor | None) -> Tensor | None:
    """As autocast has it: doubles stay."""
    if given is None or given.dtype == torch.float64:
        return given
    return given.to(torch.get_autocast_dtype(given.device.type))


def _whole_layers(inputs: Tensor) -> AbstractContextManager[Any]:
    """Under `vmap` a linear layer is a product and a sum, and autocast knows the product alone: the float32 of the bias would
    make the output float32, and all that is computed of it, which moves twice the bytes. On a GPU bytes are what a step costs,
    so there layers are in the precision that they have alone. On a CPU packs stay as they are, to the bit."""
    coarse = inputs.device.type == "cuda" and torch.is_autocast_enabled("cuda")
    return _InCoarsePrecision() if coarse else nullcontext()


class _Penalty(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        penalty: Tensor = self.model.penalty()  # type: ignore[operator]
        return penalty
