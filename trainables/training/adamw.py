"""AdamW (Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101) by torch's fused kernel.

It does to the bit what `torch.optim.AdamW(..., fused=True)` does, and has its state. That class imports torch's compiler at its
first use, which takes almost two seconds of every worker and of every command that times a step, and which nothing here needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

BETAS, EPSILON = (0.9, 0.999), 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Averages of the gradient and of its square."""


class AdamW:
    """Updates parameters in place from their gradients.

    Args:
        parameters: all on one device, of any shapes, without gaps in memory.
        lr: the learning rate; on a GPU a tensor, so that a recorded step can be replayed at another one.
        weight_decay: decoupled from the gradient.
        beta2: decay of the average of squared gradients.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float | Tensor, weight_decay: float, beta2: float = BETAS[1]
    ) -> None:
        usual = {"betas": (BETAS[0], beta2), "eps": EPSILON, "amsgrad": False, "maximize": False}
        group: dict[str, Any] = {"params": list(parameters), "lr": lr, "weight_decay": weight_decay, **usual}
        self.param_groups = [group]
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        """Of each parameter its number of steps, as a tensor, and its MOMENTS; empty before its first step."""

    def zero_grad(self) -> None:
        for p in self.param_groups[0]["params"]:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step of the parameters that have a gradient."""
        [group] = self.param_groups
        beta1, beta2 = group["betas"]
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for p in group["params"]:
            if p.grad is not None:
                kinds.setdefault(p.dtype, []).append(p)
        for parameters in kinds.values():
            gradients = [p.grad for p in parameters if p.grad is not None]
            states = [self._state(p) for p in parameters]
            steps, first, second = ([state[name] for state in states] for name in ("step", *MOMENTS))
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                parameters, gradients, first, second, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=EPSILON, amsgrad=False, maximize=False,
            )  # fmt: skip

    def _state(self, p: Tensor) -> dict[str, Tensor]:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
            state |= {name: torch.zeros_like(p, memory_format=torch.preserve_format) for name in MOMENTS}
        return state

    def state_dict(self) -> dict[str, Any]:
        """As `torch.optim.AdamW` has it: states by the place of the parameter."""
        [group] = self.param_groups
        places = {p: place for place, p in enumerate(group["params"])}
        states = {places[p]: state for p, state in self.state.items() if p in places}
        return {"state": states, "param_groups": [{**group, "params": list(places.values())}]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, also one of `torch.optim.AdamW`."""
        [group], [saved] = self.param_groups, state["param_groups"]
        group |= {"lr": saved["lr"], "weight_decay": saved["weight_decay"]}
        for place, of_parameter in state["state"].items():
            p = group["params"][place]
            self.state[p] = {  # moments lie in memory as the parameter does, for the fused kernel goes by places in memory
                name: value.to(p.device, torch.float32) if name == "step" else torch.empty_like(p).copy_(value)
                for name, value in of_parameter.items()
            }
