"""A task whose thresholds are known beforehand, and which can be told to misbehave."""

import copy
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from trainables.settings import setting
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split


def is_trained() -> bool:
    """Whether this is a worker, where Ray is up, or a launch that trains here; otherwise the task is only checked. (Ray must
    not be imported before it is told how to authenticate.)"""
    if "tests.here" in sys.modules and sys.modules["tests.here"].training:
        return True
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


def threshold(N: int, seed: int) -> int:
    return 2 * N + 3 * seed


class Toy:
    """A run passes exactly if its data count reaches `threshold(N, seed)`.

    `trouble` comes at grid size `trouble_N` when it is trained: `raise` an exception, `exit` as a script does, lose the
    `memory`, a `nan` loss, or once, as long as the file `ledger` has no such line, `die` (the worker exits, `died`), `freeze`
    (it is stopped, `frozen`) or `leave` (it exits, but a process that it forked does not, `left PID`). Every start of a
    training is a line in the ledger.
    """

    version = "1"
    choices = {"dataset": ("toys",), "decoder": ("linear",), "encoding": ("none",), "holdout": ("random",)}
    defaults = {"pause": 0.0, "trouble": "none", "trouble_N": 0, "ledger": ""}

    def preset(self, dataset, decoder):
        return {"depth": 0, "width": 1, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        trouble = "none"
        if is_trained():
            self.note(spec, f"{spec.N} {spec.seed} {spec.data_count}")
            time.sleep(spec.option("pause"))
            trouble = spec.option("trouble") if spec.option("trouble_N") == spec.N else "none"
        if trouble == "die" and "died" not in Path(spec.option("ledger")).read_text():
            self.note(spec, "died")
            os._exit(1)
        if trouble == "freeze" and "frozen" not in Path(spec.option("ledger")).read_text():
            self.note(spec, "frozen")
            os.kill(os.getpid(), signal.SIGSTOP)
        if trouble == "leave" and "left" not in Path(spec.option("ledger")).read_text():
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
            child.start()
            self.note(spec, f"left {child.pid}")
            os._exit(1)
        return self.samples(spec, trouble)

    def samples(self, spec: RunSpec, trouble: str) -> Data:
        if trouble == "raise":
            raise ArithmeticError("the toy is broken")
        if trouble == "exit":
            sys.exit(0)
        if trouble == "memory":
            raise MemoryError("the toy is too large")
        inputs, value = torch.ones(max(4, spec.data_count), 1), float("nan") if trouble == "nan" else 1.0
        samples = Split(inputs, inputs * value, inputs)
        return Data(train=Split(*(t[: spec.data_count] for t in samples)), held_out=Split(*(t[:4] for t in samples)))

    def note(self, spec: RunSpec, line: str) -> None:
        if spec.option("ledger"):
            with Path(spec.option("ledger")).open("a") as ledger:
                ledger.write(line + "\n")

    def model(self, spec: RunSpec) -> nn.Module:
        return nn.Linear(1, 1)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.data_count >= threshold(spec.N, spec.seed))}


class Teacher(Toy):
    """What a `Pupil` needs. It passes if its `outcome` is that, else it misses its target or raises."""

    version = "1"
    defaults = {"pause": 0.0, "outcome": "passed", "ledger": ""}

    def data(self, spec: RunSpec) -> Data:
        if is_trained():
            self.note(spec, f"teacher {spec.N} {spec.seed}")
            time.sleep(spec.option("pause"))
        return self.samples(spec, "raise" if spec.option("outcome") == "raised" and is_trained() else "none")

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.option("outcome") != "missed")}


class Pupil(Toy):
    """A toy that starts from the weights of a teacher, one for each grid size and seed. At the grid size `trouble_N` the
    teacher's `outcome` is what is given."""

    defaults = {"pause": 0.0, "outcome": "passed", "trouble_N": 0, "ledger": ""}

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        given = dict(spec.options)
        outcome = given["outcome"] if given.pop("trouble_N") == spec.N else "passed"
        teacher = replace(
            spec, task=f"{__name__}:Teacher", data_count=4, options=tuple({**given, "outcome": outcome}.items()), max_steps=40,
            stop="target",
        )  # fmt: skip
        return {"teacher": teacher}

    def data(self, spec: RunSpec) -> Data:
        if is_trained():
            self.note(spec, f"{spec.N} {spec.seed} {spec.data_count}")
            time.sleep(spec.option("pause"))
        return self.samples(spec, "none")

    def model(self, spec: RunSpec, parents: dict[str, nn.Module]) -> nn.Module:
        return copy.deepcopy(parents["teacher"]).requires_grad_(True)


@dataclass(frozen=True)
class ChoosySettings:
    decoder: str = setting("linear", "Network.", words=("linear", "mlp"))
    width: int = setting(4, "Units of the mlp.", low=1, high=512)
    kind: str = setting("round", words=("round", "square"))
    flat: bool = setting(False)
    noise: float = setting(0.0, low=0)


class Choosy:
    """A task whose `width` matters for one of its decoders alone, and that has measures of its own."""

    version, settings = "1", ChoosySettings

    def matters(self, settings):
        return [name for name in settings if name != "width" or settings["decoder"] == "mlp"]

    def counts(self, spec: RunSpec) -> Counts:
        if spec.option("kind") == "square" and spec.option("noise") > 1:
            raise ValueError("a square has no noise above 1")
        return Counts(low=1, high=spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        inputs = torch.linspace(-1, 1, spec.N**2 + 8)[:, None]
        samples = Split(inputs, inputs**2, inputs)
        train, held_out = slice(spec.data_count), slice(-8, None)
        return Data(*(Split(*(t[part] for t in samples)) for part in (train, held_out)))

    def model(self, spec: RunSpec) -> nn.Module:
        if spec.decoder == "linear":
            return nn.Linear(1, 1)
        return nn.Sequential(nn.Linear(1, spec.width), nn.ReLU(), nn.Linear(spec.width, 1))

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        error = (outputs - split.targets).abs().flatten()
        return {"correct": error < 0.1, "shift": error}


class Wide(Toy):
    """A run passes exactly if its width reaches `threshold(N, seed)`."""

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": torch.full((len(outputs),), spec.width >= threshold(spec.N, spec.seed))}

    def note(self, spec: RunSpec, line: str) -> None:
        super().note(spec, f"{line} {spec.width}")
