"""What a model holds besides its parameters and buffers, such as numbers and plain tensors, so that it can be compared."""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

OWN = "a parameter of this model"
"""Stands for one that is held by a container or a function, too."""
_TORCHS = {name for name in vars(nn.Module()) if name.startswith("_")} | {"_flat_weights", "_flat_weight_refs"}
"""Attributes in which torch keeps its books."""
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, types.NoneType)


def attributes(model: nn.Module) -> dict[str, str]:
    """A text for each attribute of a model and its parts that is neither a parameter nor a buffer, by name: the same for equal
    numbers, words, arrays, tensors, networks, containers of these, and functions that use these. Objects of other kinds are not
    looked at. Methods of a class that was made in a function use what that function knew: it is named `beta in forward`.
    """
    teller = _Teller(model)
    return {name: teller.tell(value) for name, value in _named(model)}


def _named(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for prefix, part in model.named_modules():
        place = f"{prefix}." if prefix else ""
        for name, value in vars(part).items():
            if name not in _TORCHS:
                yield place + name, value
        for kind in type(part).__mro__:
            for name, value in vars(kind).items() if "<locals>" in kind.__qualname__ else ():
                function = getattr(value, "fget", getattr(value, "__func__", value))
                if name != "__init__" and isinstance(function, types.FunctionType):
                    for used, what in _used(function).items():
                        yield f"{used} in {place}{name}", what
                elif not name.startswith("__"):
                    yield place + name, value


class _Teller:
    """Makes a text of a value. Parts of the model tell of themselves, and parameters that are trained change."""

    def __init__(self, model: nn.Module) -> None:
        self._known = {id(part) for part in model.modules()}
        self._trained = {id(p) for p in model.parameters() if p.requires_grad}

    def tell(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, Tensor):
            return OWN if id(value) in self._trained else _digest(value)
        if isinstance(value, np.ndarray):
            return f"{value.shape} {value.dtype} {hashlib.sha256(value.tobytes()).hexdigest()}"
        if id(value) in self._known:
            return "itself"
        self._known.add(id(value))
        found = self._tell_all(value)
        self._known.remove(id(value))
        return found

    def _tell_all(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.tell, value))}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(map(self.tell, value)))}}}"
        if isinstance(value, dict | types.MappingProxyType):
            return f"{{{', '.join(f'{self.tell(key)}: {self.tell(item)}' for key, item in value.items())}}}"
        if isinstance(value, types.FunctionType):
            return self.tell(_used(value))
        if isinstance(value, types.MethodType):
            return self.tell((value.__func__, value.__self__))
        if isinstance(value, functools.partial):
            return self.tell((value.func, value.args, value.keywords))
        if isinstance(value, nn.Module):
            return self.tell([*value.named_parameters(), *value.named_buffers(), *_named(value)])
        return ""


def _used(function: types.FunctionType) -> dict[str, Any]:
    """What a function uses of its surroundings, and its defaults, by name."""
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    used = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)) | (function.__kwdefaults__ or {})
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != types.CellType():  # it has been set
            used[name] = cell.cell_contents
    return used


def _digest(tensor: Tensor) -> str:
    data = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    values = data.cpu().contiguous().flatten().view(torch.uint8)
    return f"{tuple(tensor.shape)} {tensor.dtype} {hashlib.sha256(values.numpy().tobytes()).hexdigest()}"
