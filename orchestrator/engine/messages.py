"""What a launch and its workers tell each other: an order to train a pack of runs, and reports of how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ParentOrder:
    """A finished run that the one to train needs."""

    spec: Mapping[str, Any]
    weights: Any
    """A reference by which Ray gives the safetensors file that it left."""
    parents: Mapping[str, ParentOrder]
    """What it needed itself, by name."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One run that a worker is to train."""

    key: str
    spec: Mapping[str, Any]
    """As `RunSpec.to_dict` gives it."""
    checkpoint: bytes | None = None
    """Where to go on; None: from the beginning."""
    save_weights: bool = False
    keep_end: bool = False
    """Whether the run, if the stopping rule gives it up, leaves a checkpoint from which it can be trained on."""
    parents: Mapping[str, ParentOrder] = field(default_factory=dict)
    """What it needs, by name."""


HeldWeights = dict[str, tuple[Any, int]]
"""By run key: the reference to the weights of a run that others need, and their bytes. Those that were used last come last."""


@dataclass(eq=False)
class Order:
    """A pack of runs that a worker is to train, and how. All copies that Tune makes of a trial's config share it."""

    runs: list[RunOrder]
    measure_pack_size: bool = False
    stall_seconds: float = 600.0
    """A step that takes longer, or the making of the worker, ends it."""
    slice_seconds: float = 1e9
    """The worker reports after so many seconds of training."""
    checkpoint_seconds: float = 1e9

    def __deepcopy__(self, memo: object) -> Order:
        return self

    def __repr__(self) -> str:
        return f"{len(self.runs)} runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How far one run is, or how it ended: then it has a `result` or an `error`."""

    step: int = 0
    accuracy: float = float("nan")
    curves: Mapping[str, Any] = field(default_factory=dict)
    """The columns `trainables.training.result.CURVES`, and `curve_summary`, so far; those of a run that ended are in its
    `result`."""
    error_is_mse: bool = True
    """Whether the curve of the error holds mean squared errors, and not another loss."""
    checkpoint: bytes | None = None
    """Now and then, of a run that goes on. The worker keeps it until it is asked, see `PackReport.saved`."""
    result: Mapping[str, Any] | None = None
    """A `RunResult` as a dict."""
    weights: bytes | None = None
    """A safetensors file, if the order asks for it."""
    end: bytes | None = None
    """The checkpoint that `RunOrder.keep_end` asks for."""
    error: str | None = None
    """The traceback of what the run's task raised."""
    notice: str | None = None
    """What the user should know of the run."""
    line: str = ""
    """Of a program that has ended, the line that told its accuracy."""
    seconds: float = 0.0
    """Time that the worker has spent on it, its share of the pack's."""
    host: str = ""
    """This and what follows is empty if it is not known."""
    device: str = ""
    pack_size: int = 1
    versions: str = ""
    """Those of the worker's machine."""

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """What a worker tells of its pack: a report for every run, by key, that had not ended before.

    If the pack as a whole cannot go on, it has an `error` and no runs.
    """

    runs: Mapping[str, RunReport] = field(default_factory=dict)
    actor: Any = None
    """The worker as an actor of Ray, if it may be asked for something: it has checkpoints, or several runs, of which its method
    `drop` takes some out of the pack."""
    saved: bool = False
    """Whether there are new checkpoints: the actor's method `checkpoints` gives them. Tune keeps all reports of a trial until
    its end, so with checkpoints in them they would fill Ray's memory, and then a disk."""
    best_pack_size: int | None = None
    """Once it has been measured, if the order asks for it."""
    error: str | None = None
    """A traceback."""
    out_of_memory: bool = False
    """Whether that error is one of memory."""
    unfit: bool = False
    """Whether it is a line about something that the worker's machine does not have."""
    failed: Mapping[str, RunReport] = field(default_factory=dict)
    """With that error, by key: where each run of the order was trained, and for how long."""
    misprinted: bool = False
    """Whether a program printed no accuracy that counts, so that another try would end the same; the first line says all."""

    @property
    def done(self) -> bool:
        """Whether the worker has nothing left to do."""
        return self.error is not None or all(run.done for run in self.runs.values())
