"""Checkpoints: the copy of a state that is kept, and whether one is such as a run can have left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainables.training.adamw import MOMENTS
from trainables.training.result import CURVES

if TYPE_CHECKING:
    from trainables.training.loop import Training

SQUARES = MOMENTS[1]


def check_saved(saved: Mapping[str, Any], fresh: Training) -> None:
    """
    Args:
        saved: `training`, a state, and `seconds`.
        fresh: a training of the same spec that has not begun.

    Raises:
        ValueError: no run saves such values. It names the first.
        LookupError, TypeError, AttributeError: some are missing or of another type.
    """
    state, spec = saved["training"], fresh.spec
    step = state["step"]
    looks = list(range(fresh.look_every, step + 1, fresh.look_every)) if _is_count(step, spec.max_steps - 1) else []
    curves = [state[name] for name in CURVES]
    losses, accuracies, errors = curves[1:]
    group, usual = state["optimizer"]["param_groups"], fresh.optimizer.state_dict()["param_groups"]
    average = [] if fresh.average is None else [state["average"]]
    begun = fresh.model.state_dict()  # a mask may hold infinities from the beginning
    whole = {name: not isinstance(t, Tensor) or bool(t.isfinite().all()) for name, t in begun.items()}  # some states are none
    learned = [{name: t for name, t in of.items() if whole[name]} for of in (state["model"], *average)]
    moments = state["optimizer"]["state"]
    firsts = [{name: t for name, t in of.items() if name != SQUARES} for of in moments.values()]  # `_fit` looks at the others
    floats = [t for t in _tensors([*learned, *firsts]) if t.is_floating_point()]
    summary = {} if fresh.curve_summary is None else state["curve_summary"]
    passage = state["passage_step"]
    sound = {
        "step": _is_count(step, spec.max_steps - 1),
        "seconds": _is_number(saved["seconds"]) and 0 <= saved["seconds"] < 2**31,
        "reason": state["reason"] == "",
        "passage_step": passage is None or (_is_count(passage, step) and passage in looks),
        "retry_step": _is_count(state["retry_step"], 2 * spec.max_steps + 2**10),
        "offset": _is_number(state["offset"]) and abs(state["offset"]) <= 1,
        "given_up_step": state["given_up_step"] is None or state["given_up_step"] in looks,
        "chance": state["chance"] is None or (_is_number(state["chance"]) and 0 <= state["chance"] <= 1),
        "curve_norm": len(state["curve_norm"]) <= len(looks) and all(_is_number(norm) for norm in state["curve_norm"]),
        "loss_sum": isinstance(state["loss_sum"], Tensor) and _is_one_float(state["loss_sum"]),
        "curve_step": curves[0] == looks,
        "curves": all(type(curve) is list and len(curve) == len(looks) for curve in curves),
        "curve_loss": all(_is_number(value) for value in losses),
        "curve_accuracy": all(_is_number(value) and 0 <= value <= 1 for value in accuracies),
        "curve_error": all(type(value) is float for value in errors),
        "curve_summary": all(
            type(name) is str and len(curve) == len(looks) and all(type(value) is float for value in curve)
            for name, curve in summary.items()
        ),
        "weights": all(bool(torch.isfinite(t).all()) for t in floats),
        "optimizer": [*map(_settings, group)] == [*map(_settings, usual)] and _fit(moments, fresh),
        "lr": all(_is_rate(of["lr"]) for of in group),
        "layout": _lie_alike(moments, state["model"], fresh),
    }
    if wrong := [name for name, is_sound in sound.items() if not is_sound]:
        raise ValueError(f"no run has such values of {', '.join(wrong)}")


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_one_float(tensor: Tensor) -> bool:
    return tensor.shape == () and tensor.is_floating_point()


def _is_rate(value: object) -> bool:
    """On a GPU it is a tensor."""
    return _is_number(value.item() if isinstance(value, Tensor) and _is_one_float(value) else value)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """What the spec decides of an optimizer, and no training changes."""
    return {name: group[name] for name in ("betas", "eps", "weight_decay", "amsgrad", "maximize", "params")}


def _fit(moments: Mapping[int, Mapping[str, Any]], fresh: Training) -> bool:
    """Whether what the optimizer keeps of each parameter is all that it keeps, and has its shape. Before the first step it
    keeps nothing. A square may be infinite: so is that of a sound gradient above 2e19, and the run goes on."""
    shapes = [p.shape for p in fresh.model.parameters()]
    return all(of_parameter.keys() == {"step", *MOMENTS} for of_parameter in moments.values()) and all(
        tensor.shape == (shapes[i] if name in MOMENTS else ()) and (name == "exp_avg" or bool((tensor >= 0).all()))
        for i, of_parameter in moments.items()
        for name, tensor in of_parameter.items()
    )


def _lie_alike(moments: Mapping[int, Mapping[str, Any]], weights: Mapping[str, Any], fresh: Training) -> bool:
    """Whether what the optimizer keeps of each parameter lies in memory as the parameter does. In what packs of CNNs in
    bfloat16 once saved it did not, and the values were those of other places."""
    names = [name for name, _ in fresh.model.named_parameters()]
    return all(
        _steps(of_parameter[moment]) == _steps(weights[names[i]])
        for i, of_parameter in moments.items()
        for moment in MOMENTS
        if names[i] in weights and moment in of_parameter
    )


def _steps(tensor: Tensor) -> list[int]:
    """From place to place in memory along each dimension; one of size 1 has none."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _tensors(value: Any, seen: set[int] | None = None) -> list[Tensor]:
    """Those in a value, of each list and mapping in it once: a small file may hold a list twice in a list, and so on."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        return [value]
    if not isinstance(value, Mapping | list) or id(value) in seen:
        return []
    seen.add(id(value))
    return [tensor for item in (value.values() if isinstance(value, Mapping) else value) for tensor in _tensors(item, seen)]


def detached(value: Any) -> Any:
    """A deep copy. A view into a larger tensor becomes a small tensor, where `copy.deepcopy` takes the larger one along."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    return [detached(item) for item in value] if isinstance(value, list) else value
