"""What models hold besides their parameters and buffers, such as numbers and plain tensors: whether it is the same in all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MOST = 20_000
"""Items of an attribute that are looked at: of a larger one nothing is said."""
_TORCHS = {name for name in vars(nn.Module()) if name.startswith("_")} | {"_flat_weights", "_flat_weight_refs"}
"""Attributes in which torch keeps its books."""
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, types.NoneType)


def differing(models: Sequence[nn.Module]) -> list[str]:
    """What is not the same in all models, by name: a batched program has that of the first. So is a parameter that a list or a
    function holds: the batched program gives it no gradient.

    Compared are numbers, words, arrays, tensors, networks, containers of these, and functions that use these. Other objects are
    not looked at, nor is what cannot be read. Methods of a class that was made in a function use what that function knew: it is
    named `beta in forward`.
    """
    teller = _Teller(models)
    first, *others = [teller.attributes(model) for model in models]
    pairs = ((name, first.get(name), other.get(name)) for other in others for name in first.keys() | other.keys())
    return sorted(teller.holders | {name for name, one, another in pairs if one != another and "" not in (one, another)})


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
    """Makes a text of a value: the same for equal ones, and empty for one of which it cannot tell. What models share is looked
    at once, parts of a model tell of themselves, and parameters that are trained change."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.holders: set[str] = set()
        """Names of what holds a parameter that is trained."""
        parts = [(part, f"part {name}") for model in models for name, part in model.named_modules()]
        self._told: dict[int, tuple[Any, str]] = {id(part): (part, text) for part, text in parts}  # it keeps the ids taken
        self._trained = {id(p) for model in models for p in model.parameters() if p.requires_grad}
        self._around: set[int] = set()
        self._left, self._holds = 0, False

    def attributes(self, model: nn.Module) -> dict[str, str]:
        told: dict[str, str] = {}
        with contextlib.suppress(Exception):  # code of a user may run when a class is looked at
            for name, value in _named(model):
                self._left, self._holds = MOST, False
                try:
                    told[name] = self._tell(value)
                except Exception:  # too deep, too large, or an object that is not what it says
                    told[name] = ""
                    self._told[id(value)] = value, ""
                    self._around.clear()
                if self._holds:
                    self.holders.add(name)
        return told

    def _tell(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        if id(value) in self._trained:
            self._holds = True
            return "trained"
        if id(value) in self._around:
            return "around"
        if id(value) not in self._told:
            self._around.add(id(value))
            text = self._look(value)
            self._around.remove(id(value))
            self._told[id(value)] = value, text
        return self._told[id(value)][1]

    def _look(self, value: Any) -> str:
        if isinstance(value, Tensor):
            try:
                return _digest(value)
            except Exception:  # it has no numbers, or does not give them
                return ""
        if isinstance(value, np.ndarray):
            known = self._tell(value.tolist()) if value.dtype.hasobject else _hash(value.tobytes())
            return f"{value.shape} {value.dtype} {known}"
        if isinstance(value, list | tuple):
            return self._tell_all("list", len(value), value)
        if isinstance(value, set | frozenset):
            return self._tell_all("set", len(value), value)
        if isinstance(value, dict | types.MappingProxyType):
            return self._tell_all("dict", len(value), itertools.chain.from_iterable(value.items()))
        if isinstance(value, types.FunctionType):
            return self._tell(_used(value))
        if isinstance(value, types.MethodType):
            return self._tell((value.__func__, value.__self__))
        if isinstance(value, functools.partial):
            return self._tell((value.func, value.args, value.keywords))
        if isinstance(value, nn.Module):
            return self._tell([*value.named_parameters(), *value.named_buffers(), *_named(value)])
        return ""

    def _tell_all(self, kind: str, size: int, values: Iterable[Any]) -> str:
        self._left -= size
        if self._left < 0:
            raise ValueError("too many items")
        texts: Iterable[str] = map(self._tell, values)
        return _hash(f"{kind}: {', '.join(sorted(texts) if kind == 'set' else texts)}".encode())


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
    values = data.resolve_conj().resolve_neg().cpu().contiguous().flatten().view(torch.uint8)
    return f"{tuple(tensor.shape)} {tensor.dtype} {_hash(values.numpy().tobytes())}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
