"""One training, from a spec to a result: a loop that can be suspended at any step and, on a CPU, resumed to the same bits.

Nothing here knows bumps or Ray. A task gives tensors, a model and a measure. The loss is the mean squared error between the
model's outputs and the targets, or what the task or the model say instead (see `objectives`), plus the model's `penalty()` if
it has one.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainables.check_data import check_size
from trainables.objectives import (
    CROSS_ENTROPY,
    SQUARED_ERROR,
    average_of,
    batch_loss,
    beta2_of,
    brings,
    draw,
    draws_inside,
    follow,
    loss_of,
    mean_loss,
    sample_losses,
    samples_afresh,
    widened,
)  # fmt: skip
from trainables.spec import GIVEN_UP, RunSpec
from trainables.task import Data, Split, Task
from trainables.training.adamw import AdamW
from trainables.training.checkpoint import detached
from trainables.training.precision import autocast
from trainables.training.result import CURVES, Progress, RunResult
from trainables.training.schedule import batch_indices, learning_rate, look_every, set_learning_rate
from trainables.training.seeds import start_from, stream, stream_seed
from trainables.training.stopping import class_entropy, has_come_to_rest, has_converged, has_learned, target_variance

SUBSET = 256
"""Held-out samples looked at along the way."""
NEAR = 0.02
"""A subset this close to the target, one standard error of its accuracy, calls for a look at the whole held-out set, which
alone decides. So does the end of a run. The stopping rule then allows for the difference between set and subset."""
CONFIRM_EVERY, CONFIRM_SHARE = 100, 0.25
"""Least number of steps between two confirmations, and their least share of the steps done, so that a run at the edge of its
target stays cheap: fitted runs improve ever more slowly."""
EVAL_BATCH = 64
SCALE_SAMPLES = 1024
"""Training samples, at most, over which the loss of the untrained network is taken."""
_STATE = (
    "step", "reason", "passage_step", "retry_step", "offset", "loss_sum", "given_up_step", "chance", "curve_norm", *CURVES,
)  # fmt: skip


class Trained(Split):
    """Samples of which nothing is asked but the mean loss of the model's own, with fixed draws."""


Measuring = Generator[Split, dict[str, float], None]
"""Asks for the measures of one split after another, so that many runs can be measured at once."""


class Training:
    """One run. `advance` it until it returns True, then ask for its `result`.

    The state is complete: a Training made from the same spec and task that loads the state of another one continues it to
    bit-identical weights, curves and results on a CPU of the same kind, wherever it was cut. On a GPU they differ by rounding:
    some of its sums have no fixed order.
    """

    def __init__(self, spec: RunSpec, task: Task, device: str = "cpu") -> None:
        self.spec, self.task, self.device = spec, task, torch.device(device)
        if spec.precision == "tf32" and self.device.type == "cpu":
            raise ValueError("tf32 is a precision of GPUs: a CPU has float32 and bfloat16")
        data = task.data(spec)
        at = f"at N = {spec.N}, data_count = {spec.data_count}"
        check_size(data, task.counts(spec).fixed, spec.data_count, at)
        self.train, self.held_out = data.train.to(self.device), data.held_out.to(self.device)
        self.judged_train, unseen = None, self.held_out
        if hasattr(task, "judged"):
            self.judged_train, self.held_out = (split.to(self.device) for split in task.judged(spec))
        order = torch.randperm(len(self.held_out.inputs), generator=stream(spec.seed, "subset")).to(self.device)
        self.subset = self.held_out.take(order[:SUBSET])
        with torch.random.fork_rng(devices=[]):
            start_from(stream_seed(spec.seed, "weights"))
            model = task.model(spec)
            if hasattr(task, "start_model"):
                task.start_model(spec, model)
        self.model = model.to(self.device)
        if spec.precision == "bfloat16":
            for t in (*self.model.parameters(), *self.model.buffers()):
                if t.dim() == 4:
                    t.data = t.data.to(memory_format=torch.channels_last)
        for p in self.model.parameters():
            # a part of a larger tensor has gaps in memory, which the fused optimizer does not know
            if p.requires_grad and torch.empty_like(p).stride() != p.stride():
                p.data = p.data.contiguous()
        self.penalty = getattr(self.model, "penalty", None)
        self.average = average_of(self.model)
        self.loss = loss_of(task)
        self.own_loss = brings(self.model, "losses")
        self.error_is_mse = self.loss == SQUARED_ERROR and not self.own_loss
        self.error = "squared_error" if self.error_is_mse else "loss"
        """The measure that the curve of the error holds."""
        if not (len(self.held_out.inputs) and (len(unseen.inputs) or not self.own_loss)):
            raise ValueError(f"the task holds out nothing to judge on {at}: hold out samples, or lower Counts.high")
        if self.own_loss:
            order = torch.randperm(len(unseen.inputs), generator=stream(spec.seed, "subset")).to(self.device)
            self.unseen = Trained(*unseen)
            self.unseen_subset = Trained(*unseen.take(order[:SUBSET]))
        self.look_every = look_every(spec, task)
        self.optimizer = self.new_optimizer(self.model.parameters())
        self.step = 0
        self.reason = ""
        self.passage_step: int | None = None
        self.retry_step = 0
        self.offset = 0.0
        self.given_up_step: int | None = None
        self.chance: float | None = None
        self.loss_sum = torch.zeros((), device=self.device)
        self._measured: tuple[int, dict[str, float]] | None = None
        self._final: RunResult | None = None
        self.curve_step: list[int] = []
        self.curve_loss: list[float] = []
        self.curve_accuracy: list[float] = []
        self.curve_error: list[float] = []
        self.curve_norm: list[float] = []
        self.summarises = hasattr(task, "summarise")
        self.seen: dict[str, Tensor] = {}
        """Of a task that summarises: its measures of each sample of the subset at the last look."""
        self.curve_summary: dict[str, list[float]] | None = {} if self.summarises else None
        self.variance = self._loss_scale(data)

    def _loss_scale(self, data: Data) -> float:
        """The loss that the stopping rule compares with: that of a network that has learned nothing."""
        if self.own_loss:
            scale = self._measure(Trained(*self.train.take(torch.arange(min(SCALE_SAMPLES, len(self.train.inputs))))))["loss"]
            return scale if math.isfinite(scale) else 0.0
        return class_entropy(data.train.targets) if self.loss == CROSS_ENTROPY else target_variance(data.train.targets)

    @property
    def network(self) -> nn.Module:
        """What is looked at, judged and kept: the average of the parameters if the model keeps one, else the model itself."""
        return self.model if self.average is None else self.average

    def advance(self, seconds: float | None = None) -> bool:
        """Train until the run is finished or `seconds` are over (at least one step); True if finished."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while not self.reason:
            self.train_step()
            if self.look_is_due:
                self.answer(self.look())
            if time.monotonic() >= end:
                break
        return bool(self.reason)

    def train_step(self) -> None:
        index = batch_indices(self.spec.seed, len(self.train.inputs), self.spec.batch_size, self.step).to(self.device)
        set_learning_rate(self.optimizer, learning_rate(self.spec, self.step))
        self.optimizer.zero_grad()
        with self._seeded("step", self.step):
            loss = self._batch_loss(index)
            (loss if self.penalty is None else loss + self.penalty()).backward()
        self.optimizer.step()
        if self.average is not None:
            follow(self.average, self.model)
        self.loss_sum += loss.detach()
        self.step += 1

    def _batch_loss(self, index: Tensor) -> Tensor:
        if not self.own_loss:
            with autocast(self.spec, self.device):
                outputs = self.model(self.train.inputs[index])
            return batch_loss(self.loss, outputs.float(), self.train.targets[index])
        batch = self.train.take(index)
        draws = tuple(t.to(self.device) for t in draw(self.model, batch, self.spec.seed, "step", self.step))
        with autocast(self.spec, self.device):
            return mean_loss(self.model.losses(batch, draws, self.average))  # type: ignore[operator]

    @contextlib.contextmanager
    def _seeded(self, *name: object) -> Generator[None, None, None]:
        """Torch's global generators hold the run's stream of this name for the block, if the model draws inside."""
        if not draws_inside(self.model):
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            start_from(stream_seed(self.spec.seed, *name))
            yield

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> AdamW:
        """AdamW as spec and model want it. On a GPU its rate is a tensor, for recorded steps at other rates."""
        rate = torch.tensor(self.spec.lr, device=self.device) if self.device.type == "cuda" else self.spec.lr
        return AdamW(parameters, rate, self.spec.weight_decay, beta2_of(self.model))

    @property
    def steps_to_look(self) -> int:
        """Steps to the next point of the curve."""
        return min(self.look_every - self.step % self.look_every, self.spec.max_steps - self.step)

    @property
    def look_is_due(self) -> bool:
        return self.step % self.look_every == 0 or self.step == self.spec.max_steps

    def at_look(self) -> list[Tensor]:
        """What a look has to know of the device, each a number: the `loss_sum`, and, where the stopping rule asks for it, the
        norm of the parameters. So many runs can be asked at once."""
        return [self.loss_sum, self._norm()] if self.asks_norm else [self.loss_sum]

    @property
    def asks_norm(self) -> bool:
        """Whether the stopping rule asks a look for the norm of the parameters."""
        return self.spec.stop != "budget" and self.given_up_step is None

    def look(self, loss_sum: float | None = None, norm: float | None = None) -> Measuring:
        """Add a point to the curve, and decide whether this was the last step. The numbers are those of `at_look`, if known."""
        spec = self.spec
        stretch = self.step - (self.curve_step[-1] if self.curve_step else 0)
        self.curve_step.append(self.step)
        self.curve_loss.append((self.loss_sum.item() if loss_sum is None else loss_sum) / stretch)
        self.loss_sum.zero_()
        seen = yield self.subset
        self.curve_accuracy.append(seen["correct"])
        if self.own_loss:
            seen = seen | (yield self.unseen_subset)
        self.curve_error.append(seen[self.error])
        self._summarise()
        if not math.isfinite(self.curve_loss[-1]):
            self.reason = "diverged"
            return
        target = spec.target - self.offset
        samples = None if spec.stop == "budget" else len(self.subset.inputs)
        curves = self.curve_loss, self.curve_accuracy
        flat = has_converged(*curves, target, spec.max_steps, self.variance, self.look_every, samples)
        gives_up = self.asks_norm and (yield from self._gives_up(flat, norm))
        if gives_up:
            self.given_up_step = self.step
        ends = self.step == spec.max_steps or (gives_up and spec.stop == "early")
        near = self.curve_accuracy[-1] >= spec.target - NEAR
        if self.passage_step is None and (ends or gives_up or ((near or flat) and self.step >= self.retry_step)):
            self.retry_step = self.step + max(CONFIRM_EVERY, math.ceil(CONFIRM_SHARE * self.step))
            self._measured = self.step, (yield self.held_out)
            accuracy = self._measured[1]["correct"]
            self.offset = accuracy - self.curve_accuracy[-1]
            if accuracy >= spec.target:
                self.passage_step = self.step
        if spec.stop != "budget" and self.passage_step is not None:
            self.reason = "target"
        elif ends:
            self.reason = "budget" if self.step == spec.max_steps else GIVEN_UP

    def _summarise(self) -> None:
        if self.curve_summary is None:
            return
        numbers = self.task.summarise(self.spec, self.seen, self.subset)  # type: ignore[attr-defined]
        if len(self.curve_step) > 1 and numbers.keys() != self.curve_summary.keys():
            raise ValueError(f"the task's summarise() must give the same names at every look, not {', '.join(numbers)} now")
        for name, value in numbers.items():
            self.curve_summary.setdefault(name, []).append(float(value))

    def _gives_up(self, flat: bool, norm: float | None) -> Generator[Split, dict[str, float], bool]:
        """What the stopping rule says now, given that the accuracy looks `flat` or does not.

        Chance is what the network's outputs score when each is judged as if it belonged to another sample.
        """
        self.curve_norm.append(self.weight_norm() if norm is None else norm)
        if not flat or not has_come_to_rest(self.curve_loss, self.curve_norm, self.variance):
            return False
        if self.chance is None:
            inputs, targets, truth = self.subset
            self.chance = (yield Split(inputs, targets.roll(1, 0), truth.roll(1, 0)))["correct"]
        return has_learned(self.curve_accuracy, self.chance)

    def weight_norm(self) -> float:
        """Euclidean norm of all parameters together that are trained, or of their average."""
        return self._norm().item()

    def _norm(self) -> Tensor:
        trained = [name for name, p in self.model.named_parameters() if p.requires_grad]
        found = dict(self.network.named_parameters())
        return nn.utils.get_total_norm([found[name].detach() for name in trained])

    @property
    def progress(self) -> Progress:
        """Step, and the last point of the curve (NaN before the first)."""
        if not self.curve_step:
            return Progress(self.step, math.nan, math.nan)
        return Progress(self.step, self.curve_loss[-1], self.curve_accuracy[-1])

    def result(self) -> RunResult:
        """The run as it ended, evaluated on both whole sets.

        Raises:
            RuntimeError: the run is not finished.
        """
        self.answer(self.evaluate())
        assert self._final is not None
        return self._final

    def evaluate(self) -> Measuring:
        """Make the `result`, once.

        Raises:
            RuntimeError: the run is not finished.
        """
        if not self.reason:
            raise RuntimeError(f"the run is not finished: {self.step} of {self.spec.max_steps} steps done")
        if self._final is not None:
            return
        if self._measured is None or self._measured[0] != self.step:
            self._measured = self.step, (yield self.held_out)
        held_out = self._measured[1]
        train = yield self.train if self.judged_train is None else self.judged_train
        if self.own_loss:
            held_out = held_out | (yield self.unseen)
            train = train | (yield Trained(*self.train))
        mse = "squared_error" if self.error_is_mse else "mse"
        status = "diverged" if self.reason == "diverged" else "missed" if self.passage_step is None else "passed"
        self._final = RunResult(
            status=status,
            reason=self.reason,
            steps=self.step,
            passage_step=self.passage_step,
            accuracy=held_out["correct"],
            id_mse=train.get(mse),
            ood_mse=held_out.get(mse),
            loss=self.curve_loss[-1],
            measures={k: v for k, v in held_out.items() if k != "squared_error"}
            | {f"id_{k}": v for k, v in train.items() if k != "squared_error"},
            curve_step=list(self.curve_step),
            curve_loss=list(self.curve_loss),
            curve_accuracy=list(self.curve_accuracy),
            curve_error=list(self.curve_error),
            curve_summary=copy.deepcopy(self.curve_summary),
            device=str(self.device),
        )

    def answer(self, questions: Measuring) -> None:
        """Measure all that `look` or `evaluate` asks for."""
        with contextlib.suppress(StopIteration):
            split = next(questions)
            while True:
                split = questions.send(self._measure(split))

    def state_dict(self) -> dict[str, Any]:
        """A copy of all that changes while training, as plain values and tensors that `torch.load(weights_only=True)` reads."""
        state = {"spec": self.spec.to_dict(), "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.average is not None:
            state["average"] = self.average.state_dict()
        if self.curve_summary is not None:
            state["curve_summary"] = self.curve_summary
        copied: dict[str, Any] = detached(state | {name: getattr(self, name) for name in _STATE})
        return copied

    def close(self) -> None:
        """Nothing of it goes on by itself."""

    def state_to_the_end(self) -> dict[str, Any]:
        """Of a run that was given up: the state from which `spec.to_the_end()` goes on, to the bits that it has if trained
        anew."""
        return self.state_dict() | {"spec": self.spec.to_the_end().to_dict(), "reason": ""}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            ValueError: the state belongs to another spec.
        """
        if state["spec"] != self.spec.to_dict():
            raise ValueError("the saved training belongs to another run")
        state = copy.deepcopy(dict(state))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.curve_summary is not None:
            self.curve_summary = state["curve_summary"]
        for name in _STATE:
            value = state[name]
            setattr(self, name, value.to(self.device) if isinstance(value, Tensor) else value)

    @torch.no_grad()
    def _measure(self, split: Split) -> dict[str, float]:
        """Means of the task's measures over a split, and of the `error`, the loss of each sample."""
        totals: dict[str, float] = {}
        pieces: list[dict[str, Tensor]] = []
        size = len(split.inputs)
        with eval_mode(self.network):
            for start in range(0, size, EVAL_BATCH):
                part = split.take(slice(start, start + EVAL_BATCH))
                with self._seeded("look", start):
                    if isinstance(split, Trained):
                        measures = self._part_losses(part, start)
                    else:
                        measures = self._part_measures(part, self._look_name(split, start))
                for name, values in measures.items():
                    totals[name] = totals.get(name, 0.0) + values.double().sum().item()
                if self.summarises and split is self.subset:
                    pieces.append(measures)
        if pieces:
            self.seen = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
        return {name: total / size for name, total in totals.items()}

    def _look_name(self, split: Split, start: int) -> tuple[object, ...]:
        """That of the stream from which outputs for a part of a split are sampled."""
        if not samples_afresh(self.model):
            return "sample", start
        return "look" if split is self.subset else "whole", self.step, "sample", start

    def _part_measures(self, part: Split, name: tuple[object, ...]) -> dict[str, Tensor]:
        """The task's measures of each sample, and the `error`, unless it is the model's own loss."""
        with autocast(self.spec, self.device):
            if brings(self.network, "sample"):
                outputs = self.network.sample(part.inputs, stream(self.spec.seed, *name))  # type: ignore[operator]
            else:
                outputs = self.network(part.inputs)
        outputs = widened(outputs)
        # taken before the task may change the outputs
        errors = {} if self.own_loss else {self.error: sample_losses(self.loss, outputs, part.targets)}
        return {**self.task.measure(self.spec, outputs, part), **errors}

    def _part_losses(self, part: Split, start: int) -> dict[str, Tensor]:
        """The model's own loss of each sample, with draws that are the same at every look."""
        draws = tuple(t.to(self.device) for t in draw(self.network, part, self.spec.seed, "look", start))
        with autocast(self.spec, self.device):
            return {"loss": self.network.losses(part, draws, self.average)}  # type: ignore[operator]


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Generator[None, None, None]:
    """Every part of a model is in eval mode for the block, and then in the mode in which it was: a task may freeze some."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
