"""Which runs train together, and how many at a time: pack sizes, measured once for every shape and kept in the store."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from orchestrator.store.artifacts import Artifacts
from trainables.needs import Tasks
from trainables.spec import RunSpec
from trainables.task import Task

VARIED = ("data_count", "seed", "lr", "weight_decay", "target")
"""Fields of a spec that may differ within a pack: no tensor's shape depends on them."""
FIRST_ON_GPU = 4
"""Runs of a shape that train together on a GPU while nothing is known of it: a study may have few of each."""


def shape_key(spec: RunSpec, task: Task) -> str:
    """Identity shared by all runs that can train together: everything but VARIED and what the task calls `packable`."""
    packable = getattr(task, "packable", ())
    fields = {name: value for name, value in spec.to_dict().items() if name not in (*VARIED, *packable)}
    fields["options"] = {name: value for name, value in fields["options"].items() if name not in packable}
    fields["stop"] = {"target": "early"}.get(spec.stop, spec.stop)  # both are looked at alike
    text = json.dumps([fields, task.version], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class PackSizes:
    """How many runs of a shape train together.

    Sizes are measured by the worker that trains the first run of a shape, remembered in the store for CPUs and for GPUs,
    and halved when memory runs out. What other launches have stored meanwhile stays there.

    Args:
        task: that of the study; tells which runs have the same shapes.
        files: where sizes are kept; None: nowhere.
        fixed: the size of every pack, of which nothing is stored; None: measured.
        gpu: whether the workers train on GPUs. There more runs cost next to nothing until the GPU is full, so that packs are
            filled up with runs the answer may need. On a CPU they hold what it needs.
        share: the part of a GPU that a worker has. Sizes of one part say nothing of another, as its memory is smaller.
        cpu_decoders: decoders that train on CPUs even so.
    """

    task: Task
    files: Artifacts | None = None
    fixed: int | None = 1
    gpu: bool = False
    share: float = 1.0
    cpu_decoders: Collection[str] = ()
    _sizes: dict[str, int] = field(default_factory=dict)
    _for_now: dict[str, int] = field(default_factory=dict)
    """The most that packs hold in this launch, of shapes of which more were too many for a reason that may pass."""
    _keys: dict[RunSpec, str] = field(default_factory=dict)
    _met: dict[str, RunSpec] = field(default_factory=dict)
    """A run of each shape that was asked for. The file has those of other studies and machines, too."""
    _measuring: dict[str, str] = field(default_factory=dict)
    """By shape: the trial whose worker measures it."""
    _tasks: Tasks = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = Tasks(self.task)
        if self.files is not None and self.fixed is None:
            self._sizes = self.files.load_pack_sizes()

    def on_gpu(self, spec: RunSpec) -> bool:
        return self.gpu and spec.decoder not in self.cpu_decoders

    def on_cpu_worker(self, spec: RunSpec) -> bool:
        """Whether it trains on a worker without a GPU, where others have one."""
        return self.gpu and not self.on_gpu(spec)

    def shape(self, spec: RunSpec) -> str:
        if spec not in self._keys:
            of_gpu = "gpu" if self.share >= 1 else f"gpu{self.share:g}"
            self._keys[spec] = shape_key(spec, self._tasks.of(spec)) + f"-{of_gpu if self.on_gpu(spec) else _processor()}"
        return self._keys[spec]

    def together(self, spec: RunSpec) -> str:
        """Identity shared by all runs that may be in one pack: of one shape, and with the same networks given to the model, if
        any are. What else is given networks, each run has for itself."""
        shape = self.shape(spec)
        if self._tasks.of_model(spec):
            shape += "".join(f" {name}={key}" for name, key in sorted(self._tasks.parents(spec).items()))
        return shape

    def size(self, spec: RunSpec) -> int:
        """Runs like `spec` that a pack may hold. As long as nothing is known that is one, or FIRST_ON_GPU."""
        shape = self.shape(spec)
        size = self._sizes.get(shape, self.fixed or (FIRST_ON_GPU if self.on_gpu(spec) else 1))
        return min(size, self._for_now.get(shape, size))

    def meet(self, specs: Iterable[RunSpec]) -> bool:
        """Take note of what is asked for; whether `largest` has grown by that."""
        before = self.largest
        for spec in specs:
            self._met.setdefault(self.shape(spec), spec)
        return self.largest > before

    @property
    def largest(self) -> int:
        """The most runs that a pack of those met may hold."""
        return max(map(self.size, self._met.values()), default=self.fixed or 1)

    def asks(self, spec: RunSpec, trial_id: str) -> bool:
        """Whether the worker that is about to train `spec` in this trial shall measure its pack size; asked of one worker at a
        time."""
        shape = self.shape(spec)
        if self.fixed is not None or shape in self._sizes or shape in self._measuring:
            return False
        self._measuring[shape] = trial_id
        return True

    def give_up(self, trial_id: str) -> None:
        """The trial is over: what its worker was to measure, another one may."""
        self._measuring = {shape: trial for shape, trial in self._measuring.items() if trial != trial_id}

    def learn(self, spec: RunSpec, size: int) -> None:
        self._measuring.pop(self.shape(spec), None)
        self._sizes[self.shape(spec)] = size
        if self.files is not None and self.fixed is None:
            self.files.save_pack_sizes({**self._sizes, **self.files.load_pack_sizes(), self.shape(spec): size})

    def halve(self, spec: RunSpec, tried: int, *, for_good: bool = True) -> int:
        """Memory ran out for so many runs like `spec` together: how many a pack may hold now, or in this launch alone. If packs
        have become smaller since that one was begun, they grow no larger by it."""
        size = min(self.size(spec), max(1, tried // 2))
        if for_good:
            self.learn(spec, size)
        else:
            self._for_now[self.shape(spec)] = size
        return size


@lru_cache(maxsize=1)
def _processor() -> str:
    """The model of this machine's CPU, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return hashlib.sha256(name.encode()).hexdigest()[:8]
