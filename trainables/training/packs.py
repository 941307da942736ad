"""Runs of the same shapes trained together: one batched program in place of many small ones.

Every run keeps its own data, seed, learning rate and penalty weights, and gets what it would get alone, up to the rounding of
batched matrix products. A run that has ended leaves; the others close its gap when that pays.

Shapes in comments: M runs, B samples of a batch, n samples of a part.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import torch
from torch import Tensor, nn

from trainables.needs import needs_others
from trainables.objectives import (
    Draws,
    beta2_of,
    brings,
    decay_of,
    draw,
    draws_inside,
    mean_loss,
    run_losses,
    sample_losses,
    widened,
)
from trainables.task import Split, Task
from trainables.training.adamw import MOMENTS, AdamW
from trainables.training.attributes import differing
from trainables.training.batched import Batched, say_how_to_batch
from trainables.training.loop import EVAL_BATCH, Measuring, Trained, Training, eval_mode
from trainables.training.memory import is_out_of_memory
from trainables.training.precision import autocast
from trainables.training.schedule import batch_indices, learning_rate, set_learning_rate
from trainables.training.stopping import EVAL_EVERY

WARM_UP = 3
"""Steps done one by one on a GPU before a step is recorded."""
ROUNDING, COARSE_ROUNDING, NEGLIGIBLE = 1e-3, 0.05, 1e-3
"""Share by which the loss of a run in a pack may differ from what it is alone, of it or of the loss of a network that has
learned nothing: in float32, and in coarser precisions. Share of these losses under which a penalty is none."""

_Asked = tuple[Training, Measuring, Split]


class Pack:
    """Runs trained in one program. `advance` it until it returns True; every run then has its `result`.

    Parameters and buffers of the runs' models, the averages of parameters and the state of the optimizers are views into
    stacks, one row per run, so that each run can be saved, measured or continued alone at any time.

    A model's batched form is its method `packed(state, inputs)`, where `state` maps the name of each parameter and buffer to
    its stack (M, ...) and inputs are (M, n, ...); and `packed_penalty(state)`, which gives the penalties (M,). A model without
    them is batched by `torch.func.vmap`, and so are a model's own losses. Runs whose outputs are sampled are judged one by one.
    Runs of a model that draws inside its forward pass are trained one after another, and so are those of one that `vmap`
    cannot batch, as an LSTM or one that branches on a number, or whose attributes differ from run to run, as a tensor that is
    no buffer, or that has extra state, or whose first losses are others than alone: then `unstacked` says why.

    Raises:
        ValueError: the tensors of the runs differ in shape, or only some of the runs keep an average.
    """

    def __init__(self, runs: Sequence[Training]) -> None:
        self.runs = list(runs)
        self.device = runs[0].device
        self.on_gpu = self.device.type == "cuda"
        first, *others = ([(name, p.shape, p.requires_grad) for name, p in run.model.named_parameters()] for run in runs)
        if any(shapes != first for shapes in others) or len({run.spec.batch_size for run in runs}) > 1:
            raise ValueError("the runs of a pack must have tensors of the same shapes")
        if len({run.average is None for run in runs}) > 1:
            raise ValueError("the runs of a pack must all keep an average of their parameters, or none of them")
        models = [run.model for run in runs]
        stacks_any = (len(runs) > 1 or self.on_gpu) and not say_how_to_batch(models)
        self.unstacked = _odd(runs) or _odd_layers(models) or _odd_buffers(models) or (_own(models) if stacks_any else "")
        self._alone = bool(self.unstacked) or draws_inside(runs[0].model)
        self._packed: list[Training] = []

    @property
    def unfinished(self) -> list[Training]:
        return [run for run in self.runs if not run.reason]

    def advance(self, seconds: float | None = None) -> bool:
        """Train until every run is finished or `seconds` are over (at least one step); True if all are finished."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while left := self.unfinished:
            if self._alone or (len(left) == 1 and not self.on_gpu):
                self._let_go(left)
                left[0].advance(max(0.0, end - time.monotonic()))
            else:
                stacked = len(self._packed)
                if not stacked or len(left) <= (stacked // 2 if self.on_gpu else stacked - 1):  # recording a step takes time
                    self._close_gaps(left)
                if stacked and (not self.on_gpu or self._replay is not None):
                    self._train_steps(left, end)
                elif not self._can_train_steps(left, end, compared=bool(stacked)):
                    continue
                self._look([run for run in left if run.look_is_due])
            if time.monotonic() >= end:
                break
        return not self.unfinished

    def _close_gaps(self, runs: list[Training]) -> None:
        """Stack `runs`. Those of one learning rate and schedule, weight decay, beta2 and step share an optimizer."""

        def optimized(run: Training) -> tuple[Any, ...]:
            spec = run.spec
            return spec.lr, spec.schedule, spec.max_steps, spec.weight_decay, run.step, beta2_of(run.model)

        self._packed = runs = sorted(runs, key=optimized)
        self._model = Batched(runs[0])
        parameters = [list(_trained(run.model).values()) for run in runs]
        stacks = [torch.stack([p.detach() for p in same]).contiguous() for same in zip(*parameters, strict=True)]
        buffers = [_fixed(run.model) for run in runs]
        self._parameters = dict(zip(_trained(runs[0].model), stacks, strict=True))
        self._buffers = {name: torch.stack([of_run[name] for of_run in buffers]) for name in buffers[0]}
        for m, of_run in enumerate(buffers):
            for name, buffer in of_run.items():
                buffer.data = self._buffers[name][m]
        self._stack_averages()
        self._loss_sums = torch.stack([run.loss_sum for run in runs])
        moments: list[dict[str, Tensor]] = [
            {key: torch.stack([_moment(run, p, key) for run, p in zip(runs, same, strict=True)]) for key in MOMENTS}
            for same in zip(*parameters, strict=True)
        ]
        self._optimizers: list[tuple[slice, list[nn.Parameter], AdamW]] = []
        self._rates: dict[AdamW, float] = {}
        first = 0
        for _, group in groupby(runs, optimized):
            some = slice(first, first := first + len(list(group)))
            leaves = [nn.Parameter(stack[some]) for stack in stacks]
            optimizer = runs[some.start].new_optimizer(leaves)
            step = torch.tensor(float(runs[some.start].step), device=self.device)
            for leaf, moment in zip(leaves, moments, strict=True):
                optimizer.state[leaf] = {"step": step.clone(), **{key: stack[some] for key, stack in moment.items()}}
            self._optimizers.append((some, leaves, optimizer))
            for m in range(some.start, some.stop):
                runs[m].loss_sum = self._loss_sums[m]
                for p, leaf, stack, moment in zip(parameters[m], leaves, stacks, moments, strict=True):
                    p.data, p.grad = stack[m], None
                    own = {"step": optimizer.state[leaf]["step"], **{key: values[m] for key, values in moment.items()}}
                    runs[m].optimizer.state[p] = own
        for stack in stacks:
            stack.requires_grad_()
        self._inputs = torch.cat([run.train.inputs for run in runs])
        self._targets = torch.cat([run.train.targets for run in runs])
        self._truth = torch.cat([run.train.truth for run in runs]) if runs[0].own_loss else None
        self._draws: Draws = ()
        self._offsets = torch.tensor([0, *(len(run.train.inputs) for run in runs)]).cumsum(0)[:-1]
        self._index = torch.zeros(len(runs) * runs[0].spec.batch_size, dtype=torch.int64, device=self.device)
        self._replay: Callable[[], None] | None = None
        self._warm = 0

    def _stack_averages(self) -> None:
        """Averages of parameters, by the name of each, and how far they move in a step; none if the runs keep none."""
        self._averages: dict[str, Tensor] = {}
        self._moves: dict[str, Tensor] = {}
        averages = [run.average for run in self._packed if run.average is not None]
        if not averages:
            return
        moves = torch.tensor([1 - decay_of(run.model) for run in self._packed], dtype=torch.float64, device=self.device)
        for name in self._parameters:
            same = [average.get_parameter(name) for average in averages]
            self._averages[name] = stack = torch.stack([p.detach() for p in same])
            self._moves[name] = moves.to(stack.dtype).view(-1, *[1] * (stack.dim() - 1))
            for m, p in enumerate(same):
                p.data = stack[m]
        for m, average in enumerate(averages):
            for name, tensor in (*average.named_parameters(), *average.named_buffers()):
                if name in self._buffers:
                    tensor.data = self._buffers[name][m]

    def drop(self, run: Training) -> None:
        """Let a run leave before its end, without a result."""
        run.reason = "pruned"
        self._let_go([run])

    def _let_go(self, runs: Sequence[Training]) -> None:
        """Give runs that leave the pack tensors of their own."""
        for run in runs:
            if run in self._packed:
                run.loss_sum = run.loss_sum.clone()
                for p in _trained(run.model).values():
                    p.data = p.data.clone()
                    run.optimizer.state[p] = {key: value.clone() for key, value in run.optimizer.state[p].items()}
                for buffer in _fixed(run.model).values():
                    buffer.data = buffer.data.clone()
                for tensor in (*run.average.parameters(), *run.average.buffers()) if run.average is not None else ():
                    tensor.data = tensor.data.clone()

    def _can_train_steps(self, left: Sequence[Training], end: float, *, compared: bool = False) -> bool:
        """The first steps together, on a GPU up to the recording of one, if their losses are those of the runs alone, unless
        they have been `compared`. If not, or if the steps fail, the runs are trained one after another from now on, from where
        they are; if it is not the stacking or the recording that fails, they fail alone, too."""
        before, step, why = {name: stack.clone() for name, stack in self._buffers.items()}, left[0].step, ""
        try:
            if not compared:
                why = self._unlike()
                self._restore(before)
            if not why:
                self._train_steps(left, end)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            why = " ".join(f"{type(error).__name__}: {error}".split())
            if left[0].step == step:
                self._restore(before)
        if why:
            self._let_go(left)
            self._packed, self._alone, self.unstacked = [], True, why
        return not why

    def _restore(self, buffers: Mapping[str, Tensor]) -> None:
        for name, stack in buffers.items():
            self._buffers[name].copy_(stack)

    @torch.no_grad()
    def _unlike(self) -> str:
        """How the loss of a run's next step, or its penalty, differs from what it is alone by more than rounding; empty if it
        does not. So a network is found that uses something which differs from run to run and cannot be looked at, such as an
        object. Nothing is changed by it but the values of buffers."""
        runs, gpus = self._packed, [self.device] if self.device.type == "cuda" else []
        if say_how_to_batch([run.model for run in runs]):
            return ""
        orders = [batch_indices(run.spec.seed, len(run.train.inputs), run.spec.batch_size, run.step) for run in runs]
        self._index.copy_(torch.cat([order + first for order, first in zip(orders, self._offsets, strict=True)]))
        self._draw()
        with torch.random.fork_rng(devices=gpus), _held([run.model for run in runs]):
            state = self._parameters | {name: stack.clone() for name, stack in self._buffers.items()}
            found, penalties = self._losses(state), self._model.penalty(state)
            together = torch.stack([found, torch.zeros_like(found) if penalties is None else penalties.to(found.dtype)], dim=1)
            for run, order, (loss, penalty) in zip(runs, orders, together.tolist(), strict=True):
                buffers = dict(run.model.named_buffers())
                loss_alone = run._batch_loss(order.to(self.device)).item()
                penalty_alone = 0.0 if run.penalty is None else float(run.penalty())
                for name, buffer in run.model.named_buffers():
                    if buffer is not buffers.get(name):
                        return f"its model replaces its buffer {name} in a step: change it in place, as by copy_()"
                share = ROUNDING if run.spec.precision == "float32" else COARSE_ROUNDING
                scale = max(abs(loss_alone), run.variance) if math.isfinite(loss_alone + run.variance) else 0.0
                if not _close(loss_alone, loss, share, scale):
                    return f"the loss of a run is {loss_alone:.4g} alone, and {loss:.4g} in a pack"
                if not _close(penalty_alone, penalty, share, NEGLIGIBLE * scale):
                    return f"the penalty of a run is {penalty_alone:.4g} alone, and {penalty:.4g} in a pack"
        return ""

    def _train_steps(self, left: Sequence[Training], end: float) -> None:
        """Steps up to the next look of any of the runs that are left, or until the time is over."""
        steps = min(EVAL_EVERY, *(run.steps_to_look for run in left))
        orders = [
            batch_indices(run.spec.seed, len(run.train.inputs), run.spec.batch_size, run.step, steps) for run in self._packed
        ]
        indices = torch.stack(orders).add_(self._offsets[:, None]).unflatten(1, (steps, -1)).transpose(0, 1).flatten(1)
        for index in _waiting_for_none(indices, self.device).to(self.device, non_blocking=True):
            self._index.copy_(index)
            for some, _, optimizer in self._optimizers:
                step = max((run.step for run in self._packed[some] if not run.reason), default=0)
                rate = learning_rate(self._packed[some.start].spec, step)
                if self._rates.get(optimizer) != rate:  # on a GPU it takes time to set it
                    set_learning_rate(optimizer, rate)
                    self._rates[optimizer] = rate
            self._draw()
            self._step()
            for run in left:
                run.step += 1
            if time.monotonic() >= end:
                break

    def _draw(self) -> None:
        """Have every run draw what its step needs, and stack it: on a GPU in the place where a recorded step reads."""
        if not brings(self._packed[0].model, "draws"):
            return
        batches = (Split(*tensors) for tensors in zip(*self._batch(), strict=True))
        drawn = [draw(run.model, own, run.spec.seed, "step", run.step) for run, own in zip(self._packed, batches, strict=True)]
        draws = tuple(torch.stack(same) for same in zip(*drawn, strict=True))
        if not (self.on_gpu and self._draws):
            self._draws = tuple(t.to(self.device) for t in draws)
        else:
            for place, new in zip(self._draws, draws, strict=True):
                place.copy_(_waiting_for_none(new, self.device), non_blocking=True)

    def _batch(self) -> Split:
        """The samples of the step (M, B, ...), for losses of the model's own."""
        assert self._truth is not None
        tensors = (self._inputs, self._targets, self._truth)
        return Split(*(t.index_select(0, self._index).unflatten(0, (len(self._packed), -1)) for t in tensors))

    def _step(self) -> None:
        """One step of all runs. On a GPU it is recorded once, and then replayed without a word from the CPU."""
        if not self.on_gpu:
            self._compute()
        elif self._replay is not None:
            self._replay()
        elif self._warm < WARM_UP:
            self._warm += 1
            stream = _warm_up_stream(self.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._compute()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
            try:
                with torch.cuda.graph(graph):
                    self._compute()
            except BaseException:
                torch.cuda.set_stream(before)  # a recording that fails leaves its own
                _let_draw_again(self.device)
                raise
            self._replay = graph.replay
            self._replay()

    def _compute(self) -> None:
        state = self._parameters | self._buffers
        losses = self._losses(state)  # (M,)
        penalties = self._model.penalty(state)
        total = losses.sum() if penalties is None else losses.sum() + penalties.sum()
        gradients = torch.autograd.grad(total, list(self._parameters.values()), allow_unused=True)
        for some, parameters, optimizer in self._optimizers:
            for p, gradient in zip(parameters, gradients, strict=True):
                # the fused optimizer reads memory as it lies, whatever the strides
                p.grad = None if gradient is None else gradient[some].contiguous()
            optimizer.step()
        for name, average in self._averages.items():
            average.lerp_(self._parameters[name].detach(), self._moves[name])
        self._loss_sums += losses.detach()

    def _losses(self, state: Mapping[str, Tensor]) -> Tensor:
        """The mean loss of every run (M,) in this step."""
        runs, spec = self._packed, self._packed[0].spec
        if runs[0].own_loss:
            batch = self._batch()
            with autocast(spec, self.device):
                return mean_loss(self._model.losses(state, self._averages, batch, self._draws))
        inputs = self._inputs.index_select(0, self._index).unflatten(0, (len(runs), -1))
        targets = self._targets.index_select(0, self._index).unflatten(0, (len(runs), -1))
        with autocast(spec, self.device):
            outputs = self._model(state, inputs)
        return run_losses(runs[0].loss, outputs.float(), targets)

    def _look(self, runs: Sequence[Training]) -> None:
        if self.on_gpu and len(runs) > 1:
            norms = [self._norms().double()] if any(run.asks_norm for run in runs) else []
            numbers_of = torch.stack([self._loss_sums.double(), *norms], dim=1).tolist()
            known = [numbers_of[self._packed.index(run)] for run in runs]
        else:
            asked = [run.at_look() for run in runs]
            numbers = iter(torch.stack([t.double() for of_run in asked for t in of_run]).tolist() if runs else ())
            known = [list(islice(numbers, len(of_run))) for of_run in asked]  # after one transfer
        self._answer([(run, run.look(*of_run)) for run, of_run in zip(runs, known, strict=True)])
        ended = [run for run in runs if run.reason]
        self._answer([(run, run.evaluate()) for run in ended])
        self._let_go(ended)

    def _norms(self) -> Tensor:
        """The Euclidean norm of what is trained of each run (M,), or of its average, as `Training.weight_norm` has it."""
        stacks = (self._averages or self._parameters).values()
        of_tensors = [torch.linalg.vector_norm(stack.detach().reshape(len(stack), -1), dim=1) for stack in stacks]
        return torch.linalg.vector_norm(torch.stack(of_tensors), dim=0)

    def _answer(self, questions: Sequence[tuple[Training, Measuring]]) -> None:
        """Carry every run's questions to their end, measuring all runs that wait for an answer at once."""
        asked: list[_Asked] = []

        def go_on(run: Training, question: Measuring, answer: dict[str, float] | None) -> None:
            with contextlib.suppress(StopIteration):
                split = next(question) if answer is None else question.send(answer)
                asked.append((run, question, split))

        for run, question in questions:
            go_on(run, question, None)
        while asked:
            now, asked = asked, []
            for some in _alike(now):
                answers = self._measure([run for run, _, _ in some], [split for _, _, split in some])
                for (run, question, _), answer in zip(some, answers, strict=True):
                    go_on(run, question, answer)

    @torch.no_grad()
    def _measure(self, runs: Sequence[Training], splits: Sequence[Split]) -> list[dict[str, float]]:
        """What `Training` measures of each run over its own split, in parts of equal size for all; short ones are filled up."""
        if brings(runs[0].model, "sample") and not isinstance(splits[0], Trained):
            return [run._measure(split) for run, split in zip(runs, splits, strict=True)]
        rows = torch.tensor([self._packed.index(run) for run in runs], device=self.device)
        looked_at = self._parameters | self._averages | self._buffers
        state = {name: stack.index_select(0, rows) for name, stack in looked_at.items()}
        if isinstance(splits[0], Trained):
            return self._measure_losses(runs, splits, state)
        sizes = torch.tensor([len(split.inputs) for split in splits])
        spec, task = runs[0].spec, runs[0].task
        at_once = _says_how_to_measure(task) and not needs_others(task)  # else each may have networks of its own
        totals: dict[str, Tensor] = {}
        pieces: dict[Training, list[dict[str, Tensor]]] = {}
        with eval_mode(self._model.model):
            for start in range(0, int(sizes.max()), EVAL_BATCH):
                counts = (sizes - start).clamp(0, EVAL_BATCH)  # (M,)
                parts = [s.take(slice(start, start + n)) for s, n in zip(splits, counts.tolist(), strict=True)]
                part = Split(*(torch.cat(same) for same in zip(*parts, strict=True)))
                place = torch.arange(int(counts.max()))
                filled = torch.minimum(place, counts[:, None] - 1).clamp_min(0) + (counts.cumsum(0) - counts)[:, None]
                filled.clamp_max_(len(part.inputs) - 1)
                valid = (place < counts[:, None]).flatten().nonzero().squeeze(1)
                with autocast(spec, self.device):
                    outputs = self._model(state, part.inputs[filled.to(self.device)])
                drawn = widened(outputs).flatten(0, 1).index_select(0, valid.to(self.device))
                # taken before the task may change the outputs
                errors = {} if runs[0].own_loss else {runs[0].error: sample_losses(runs[0].loss, drawn, part.targets)}
                if at_once:
                    measures = dict(task.measure(spec, drawn, part))
                else:
                    each = zip(runs, drawn.split(counts.tolist()), parts, strict=True)
                    found = [run.task.measure(run.spec, images, own) for run, images, own in each if len(images)]
                    measures = {name: torch.cat([of_run[name] for of_run in found]) for name in found[0]}
                measures |= errors
                if runs[0].summarises:
                    self._keep(measures, runs, splits, counts.tolist(), pieces)
                owner = torch.arange(len(runs)).repeat_interleave(counts).to(self.device)
                for name, values in measures.items():
                    total = totals.setdefault(name, torch.zeros(len(runs), dtype=torch.float64, device=self.device))
                    total.index_add_(0, owner, values.to(self.device, torch.float64))
        for run, kept in pieces.items():
            run.seen = {name: torch.cat([piece[name] for piece in kept]) for name in kept[0]}
        means = torch.stack([total.cpu() / sizes for total in totals.values()], dim=1).tolist()
        return [dict(zip(totals, line, strict=True)) for line in means]

    def _keep(
        self,
        measures: Mapping[str, Tensor],
        runs: Sequence[Training],
        splits: Sequence[Split],
        counts: list[int],
        pieces: dict[Training, list[dict[str, Tensor]]],
    ) -> None:
        """Put what was measured of each sample to the pieces of its run, of runs that are to summarise it."""
        own = {name: values.split(counts) for name, values in measures.items()}
        for m, (run, split) in enumerate(zip(runs, splits, strict=True)):
            if split is run.subset and counts[m]:
                pieces.setdefault(run, []).append({name: of_runs[m] for name, of_runs in own.items()})

    def _measure_losses(
        self, runs: Sequence[Training], splits: Sequence[Split], state: Mapping[str, Tensor]
    ) -> list[dict[str, float]]:
        """The mean of the model's own loss of each run over its split, all of one size."""
        size, spec = len(splits[0].inputs), runs[0].spec
        averages = {name: state[name] for name in self._averages}
        total = torch.zeros(len(runs), dtype=torch.float64, device=self.device)
        with eval_mode(self._model.model), contextlib.ExitStack() as drawing:
            for run in runs:
                drawing.enter_context(eval_mode(run.network))
            for start in range(0, size, EVAL_BATCH):
                parts = [split.take(slice(start, start + EVAL_BATCH)) for split in splits]
                drawn = [draw(run.network, part, run.spec.seed, "look", start) for run, part in zip(runs, parts, strict=True)]
                draws = tuple(torch.stack(same).to(self.device) for same in zip(*drawn, strict=True))
                batch = Split(*(torch.stack(same) for same in zip(*parts, strict=True)))
                with autocast(spec, self.device):
                    total += self._model.losses(state, averages, batch, draws).double().sum(1)
        return [{"loss": mean} for mean in (total / size).tolist()]


def _alike(asked: Sequence[_Asked]) -> list[list[_Asked]]:
    """Questions that are measured at once: all about measures, and those about the model's own loss of as many samples, each of
    samples of the same shapes and types."""
    groups: dict[tuple[Any, ...], list[_Asked]] = {}
    for question in asked:
        split = question[2]
        size = len(split.inputs) if isinstance(split, Trained) else -1
        groups.setdefault((size, *((t.shape[1:], t.dtype) for t in split)), []).append(question)
    return list(groups.values())


def _says_how_to_measure(task: Task) -> bool:
    """Whether the task's `packable` is of its `measure`, and not of one that the class of the task has replaced."""
    declared = (name for kind in type(task).__mro__ for name in ("packable", "measure") if name in vars(kind))
    return next(declared, "measure") == "packable"


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _fixed(model: nn.Module) -> dict[str, Tensor]:
    """Buffers, and parameters that are not trained, by name."""
    return {name: p for name, p in model.named_parameters() if not p.requires_grad} | dict(model.named_buffers())


def _odd(runs: Sequence[Training]) -> str:
    """How the samples of runs differ in shape, as they may where data come from parents; empty if they do not."""
    for name in ("train", "held_out"):
        shapes = [[t.shape[1:] for t in getattr(run, name)] for run in runs]
        if any(of_run != shapes[0] for of_run in shapes):
            return f"the samples of runs differ in shape ({name.replace('_', ' ')})"
    return ""


def _odd_layers(models: Sequence[nn.Module]) -> str:
    """Which layer is of another type from run to run, with parameters of the same shapes; empty if none is. Types are told by
    their names, as those may be that are made anew for each run."""

    def layers(model: nn.Module) -> dict[str, tuple[str, str]]:
        return {name: (type(part).__module__, type(part).__qualname__) for name, part in model.named_modules()}

    first, *others = map(layers, models)
    for own in others:
        for name in (first | own) if own != first else ():
            if own.get(name) != first.get(name):
                return f"its layer {name} is another from run to run" if name else "its type is another from run to run"
    return ""


def _odd_buffers(models: Sequence[nn.Module]) -> str:
    """How the buffers of models differ in shape, as they may where it is that of the data; empty if they do not."""
    first, *others = (dict(model.named_buffers()) for model in models)
    for name, buffer in first.items():
        if any(name not in own or (own[name].shape, own[name].dtype) != (buffer.shape, buffer.dtype) for own in others):
            return f"its buffer {name} has another shape or type from run to run"
    return ""


def _own(models: Sequence[nn.Module]) -> str:
    """What each model has for itself and a batched program would take from the first; empty if nothing is known of."""
    if any(type(part).get_extra_state is not nn.Module.get_extra_state for part in models[0].modules()):
        return "its model has a state in get_extra_state() that cannot be stacked: register it as a buffer"
    if sparse := [name for name, buffer in models[0].named_buffers() if buffer.layout != torch.strided]:
        return f"its buffer {sparse[0]} is sparse"
    own = differing(models)
    return f"attributes of its model differ from run to run: {', '.join(own)}" if own else ""


@contextlib.contextmanager
def _held(models: Sequence[nn.Module]) -> Generator[None, None, None]:
    """Attributes of models and their parts, and the tensors that are their buffers, are after the block those from before."""
    parts = [(part, dict(vars(part)), dict(part._buffers)) for model in models for part in model.modules()]
    try:
        yield
    finally:
        for part, own, buffers in parts:
            part._buffers.clear()
            part._buffers.update(buffers)
            vars(part).clear()
            vars(part).update(own)


def _close(alone: float, together: float, share: float, least: float) -> bool:
    """Whether two numbers differ by no more than a share of the larger one, or of `least`. What is not finite is alike."""
    if not (math.isfinite(alone) and math.isfinite(together)):
        return math.isfinite(alone) == math.isfinite(together)
    return abs(alone - together) <= share * max(abs(alone), abs(together), least)


@functools.cache
def _warm_up_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of a device on which all packs warm up: cuBLAS keeps memory for each one that it has worked on."""
    return torch.cuda.Stream(device)


def _let_draw_again(device: torch.device) -> None:
    """After a recording that failed, torch (2.11) leaves the device's generator as one that is being recorded, so that whatever
    draws on the device fails from then on. A copy of its state is not."""
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    generator.graphsafe_set_state(generator.clone_state())


def _waiting_for_none(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU whose copy to a GPU does not wait until the steps before are done. Its memory is not used again
    before it is copied: torch sees to that."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def _moment(run: Training, p: Tensor, key: str) -> Tensor:
    """A moment of the optimizer that lies in memory as a row of a stack does: the fused kernel goes by places in memory."""
    state = run.optimizer.state.get(p)
    return (state[key] if state else torch.zeros_like(p)).contiguous()
