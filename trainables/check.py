"""Whether a task is what a study asks for: looked at before the first training, by making one batch and measuring it.

A mistake is a ValueError with one sentence that names the member and what it should give. Only the smallest data counts, one
of middle size and the largest are tried, with one seed: what fails elsewhere fails when it is trained.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from numbers import Number
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainables.check_data import CLOSE, MOST_BYTES, check_data, check_repeats, check_splits, is_finite
from trainables.check_words import blamed, check_words, kind_of
from trainables.needs import MEMBERS, needs_of, needs_others, takes_parents, untrained
from trainables.objectives import (
    CROSS_ENTROPY,
    LOSSES,
    SQUARED_ERROR,
    average_of,
    batch_loss,
    brings,
    decay_of,
    draws_inside,
    loss_of,
    sample_losses,
    widened,
)
from trainables.printed import printed_to_stderr
from trainables.settings import check_kept, settings_class
from trainables.spec import LARGEST, Counts, RunSpec
from trainables.task import Data, Split, Task, load_task
from trainables.training.checkpoint import detached
from trainables.training.precision import one_thread
from trainables.training.seeds import start_from, stream, stream_seed
from trainables.training.stopping import EVAL_EVERY

SAMPLES = 4
"""In the batch that is trained on and measured."""
MOST_NUMBERS = 2**15
"""In the outputs of such a batch, if others are measured in their place: where they are more, that may be dear."""
MOVE = 1e-3
"""What a step adds to or takes from each parameter."""
OFTEN = 60, 100, 630, 1000, 1024, 2520, 10_000, 27_720, 100_000
"""Steps that are multiples of what people count in."""

_Values = Mapping[tuple[str, str], Any]
_warned: set[tuple[str, str]] = set()
"""Tasks and their data sets of which a warning was told: a launch checks many runs of each."""


def check_task(task: Task, spec: RunSpec, keeps_weights: bool = False) -> None:
    """Make and measure one batch of `spec`, of the smallest data count. Its own `data_count` is the largest that is asked for;
    0: the largest that the task allows. Torch's global generator stays as it was. If its weights will be kept, a file has to be
    able to hold them; those of runs that it needs always will be. Training samples among the held-out ones are told as a
    warning on stderr: in a small domain they may repeat by right.

    Raises:
        ValueError: a member gives something else than it should, or raises an exception.
    """
    check_words(task)
    check_kept(settings_class(task), spec)
    with torch.random.fork_rng(devices=[]), one_thread(), printed_to_stderr():
        counts, asked = counts_of(task, spec), spec.data_count
        spec = spec.with_count(counts.least_trained)
        task = _check_needs(task, spec)
        model = _started(task, spec)
        warnings: list[str] = []
        data = check_data(task, spec, counts, asked or counts.high, _loss(task, model), warnings.append)
        _check_training(task, spec, model, data.train)
        if keeps_weights:
            _check_kept(model)
        _check_looks(task, spec)
        judged = _check_judged(task, spec, model) or data
        for split in judged:
            part = split.take(slice(SAMPLES))
            outputs = _check_measure(task, spec, model.eval(), part, twice=split is judged.held_out)
            _check_measure(task, spec, model, split.take(slice(1)), twice=False)  # the last part of a set may be one sample
        _check_alone(task, spec, outputs, part)
        if brings(model, "losses"):
            _check_losses_of_look(model.eval(), data.train.take(_batch(spec, data.train)))
            if lacks := _lacking_of_one(model, data.train.take(slice(1))):
                warnings.append(lacks)
    for text in warnings:
        _warn(spec, text)


def _warn(spec: RunSpec, text: str) -> None:
    if (told := (spec.task, spec.dataset)) not in _warned:
        _warned.add(told)
        print(f"warning: {spec.task}: {text}", file=sys.stderr)


@torch.no_grad()
def names_of(task: Task, spec: RunSpec) -> tuple[Collection[str], Collection[str]]:
    """The names that `measure` of a task that was checked gives, and those that `summarise` gives. There is no `mse` among them
    if a row has it as its own squared error, too.

    Raises:
        ValueError: a member raises an exception.
    """
    with torch.random.fork_rng(devices=[]), one_thread(), printed_to_stderr():
        task = untrained(task, spec)
        model = _model(task, spec).eval()
        with blamed("data()"):
            judged = task.judged(spec) if hasattr(task, "judged") else task.data(spec)
        part = judged.held_out.take(slice(SAMPLES))
        outputs = widened(_outputs(model, part, _loss(task, model), brings(model, "sample")))
        with blamed("measure()"):
            measures = task.measure(spec, outputs.clone(), part)
        with blamed("summarise()"):
            summarised = [*task.summarise(spec, measures, part)] if hasattr(task, "summarise") else []
        names = [*measures]
        if "mse" in measures:
            of_row = measures["mse"]  # unless it has one that is not measured by the task
            if _loss(task, model) == SQUARED_ERROR:
                of_row = sample_losses(SQUARED_ERROR, outputs, part.targets)
            if _near(measures["mse"], of_row, of_row):
                names.remove("mse")
        return names, summarised


def counts_of(task: Task, spec: RunSpec) -> Counts:
    """The data counts that the task allows for `spec`.

    Raises:
        ValueError: the spec asks for something this task cannot do, in the task's words; or as `check_task`.
    """
    with blamed(f"counts() at N = {spec.N}", ValueError):
        counts = task.counts(spec)
    if not isinstance(counts, Counts):
        raise ValueError(f"the task's counts() must give a Counts, not a {kind_of(counts)}")
    low, high, fixed = counts.low, counts.high, counts.fixed
    if not all(type(n) is int for n in (low, high, fixed)) or not (0 <= low <= high and fixed >= 0):
        given = f"low = {low!r}, high = {high!r} and fixed = {fixed!r} at N = {spec.N}"
        raise ValueError(f"the task's counts() must give whole numbers with 0 <= low <= high and fixed >= 0, not {given}")
    if high + fixed == 0:
        raise ValueError(f"the task's counts() must allow at least one training sample, not high = 0 at N = {spec.N}")
    if high + fixed > LARGEST:
        raise ValueError(f"the task's counts() must give high + fixed of at most {LARGEST}, not {high + fixed} at N = {spec.N}")
    return counts


def _check_needs(task: Task, spec: RunSpec) -> Task:
    """The task with the networks of the runs that `spec` needs, untrained, after these were checked like `spec` itself."""
    if not needs_others(task):
        return task
    with blamed("needs()", ValueError):
        needed, again = _needs_of(task, spec), needs_of(task, spec)
    if needed != again:
        raise ValueError("the task's needs() must give the same runs whenever it is asked for the same spec, and does not")
    if needed and not takes_parents(task):
        raise ValueError(
            f"the task's needs() gives {', '.join(needed)}, and no member is given what they learned: give one of "
            f"{', '.join(f'{member}()' for member in MEMBERS)} a parameter `parents`"
        )
    tasks = {}
    for name, parent in needed.items():
        try:
            tasks[name] = load_task(parent.task)
        except ValueError as error:
            told = str(error).removeprefix("--task ")
            raise ValueError(f"the task's needs() gives {name} a task that will not do: {told}") from error
    bound = untrained(task, spec)  # a run that needs itself is refused here
    for name, parent in needed.items():
        try:
            allowed = counts_of(tasks[name], parent)
            if not allowed.low <= parent.data_count <= allowed.high:
                given = f"{allowed.low} to {allowed.high}, not {parent.data_count}"
                raise ValueError(f"the task's needs() must give it a data_count that its counts() allow, {given}")
            check_task(tasks[name], parent, keeps_weights=True)
        except ValueError as error:
            raise ValueError(f"{name}, which this task needs ({parent.task}): {error}") from error
    _check_stop(task, spec, needed)
    return bound


def _needs_of(task: Task, spec: RunSpec) -> Mapping[str, RunSpec]:
    """As `needs_of`.

    Raises:
        ValueError: also where a run is made without something that every run has.
    """
    try:
        return needs_of(task, spec)
    except TypeError as error:
        if not (lacking := re.search(r"(?:RunSpec\.__init__|run_of)\(\) missing .*?: (.*)", str(error))):
            raise
        made = "by trainables.run_of(task, N=..., seed=..., data_count=...), which chooses all else"
        raise ValueError(f"the task's needs() makes a run without {lacking[1]}: make it {made}") from error


def _check_stop(task: Task, spec: RunSpec, needed: Mapping[str, RunSpec]) -> None:
    """Whether a run that may be given up needs the same runs as the one that goes on from there to the end."""
    if spec.stop != "early":
        return
    with blamed("needs() where spec.stop is 'target'", ValueError):
        to_the_end = needs_of(task, spec.to_the_end())
    if others := [name for name in (*needed, *to_the_end) if needed.get(name) != to_the_end.get(name)]:
        raise ValueError(
            f"the task's needs() must give the same runs whatever spec.stop is, and gives another {others[0]} for 'early' than "
            "for 'target', so that both would be trained: give it a stop of its own, such as stop='target'"
        )


def _model(task: Task, spec: RunSpec) -> nn.Module:
    with blamed("model()"):
        start_from(stream_seed(spec.seed, "weights"))
        model = task.model(spec)
    if not isinstance(model, nn.Module):
        raise ValueError(f"the task's model() must give a torch.nn.Module, not a {kind_of(model)}")
    if lazy := [name for name, t in (*model.named_parameters(), *model.named_buffers()) if is_lazy(t)]:
        given = f"{lazy[0]} is of one: give the layer its sizes, or pass a batch through the network in model()"
        raise ValueError(f"the task's model() must have no lazy layers, whose weights are made in a step, and {given}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the task's model() must give a network with something to train, but no parameter requires a gradient")
    if odd := [(name, p.dtype) for name, p in model.named_parameters() if p.requires_grad and p.is_complex()]:
        given = f"{odd[0][0]} is of {odd[0][1]}: train its real and its imaginary part, and put them together by torch.complex"
        raise ValueError(f"the task's model() must have real parameters, and {given}")
    for name in ("draws", "losses", "sample"):
        found: Any = getattr(model, name, None)
        if found is not None and not callable(found):
            raise ValueError(f"the task's model().{name} must be a method, not a {kind_of(found)}")
    if brings(model, "draws") and not brings(model, "losses"):
        raise ValueError("the task's model() must have losses() if it has draws(): nothing else is given what it draws")
    for name in ("ema", "beta2"):
        decay: Any = getattr(model, name, 0.0)
        if type(decay) not in (int, float) or not 0 <= decay < 1:
            raise ValueError(f"the task's model().{name} must be a number from 0 up to but not 1, not {decay!r:.40}")
    for name in ("draws_inside", "samples_afresh"):
        if type(answer := getattr(model, name, False)) is not bool:
            raise ValueError(f"the task's model().{name} must be True or False, not {answer!r:.40}")
    return model


def _started(task: Task, spec: RunSpec) -> nn.Module:
    """The network as a new run has it."""
    model = _model(task, spec)
    if hasattr(task, "start_model"):
        with blamed("start_model()"):
            task.start_model(spec, model)
    return model


def _loss(task: Task, model: nn.Module) -> str:
    """The word of the loss; `own` if the model brings it."""
    return "own" if brings(model, "losses") else loss_of(task)


def _check_training(task: Task, spec: RunSpec, model: nn.Module, train: Split) -> None:
    """One batch goes forth and back. Another model of the same seed has to give the same loss, and one that loads what a
    checkpoint has the same further step."""
    index = _batch(spec, train)
    batch = train.take(index)
    loss = _step_loss(task, spec, model, batch)
    with blamed("model() in the backward pass"):
        loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if sparse := [name for name, grad in grads.items() if grad.layout != torch.strided]:
        given = f"that of {sparse[0]} is sparse, with which the optimizer can take no step: build its layer with sparse=False"
        raise ValueError(f"the task's model() must have dense gradients, and {given}")
    _check_model_again(task, spec, model, batch, loss)
    _check_saved(task, spec, model, train.take((index + len(index)) % len(train.inputs)))


def _batch(spec: RunSpec, train: Split) -> Tensor:
    """The places of the samples of a batch."""
    return torch.arange(min(spec.batch_size, SAMPLES)) % len(train.inputs)


def _step_loss(task: Task, spec: RunSpec, model: nn.Module, batch: Split) -> Tensor:
    """The loss of a step, with its penalty."""
    start_from(stream_seed(spec.seed, "check"))
    before = torch.get_rng_state()
    if brings(model, "losses"):
        loss = _own_losses(model, batch).mean()
    else:
        loss = batch_loss(loss_of(task), _outputs(model, batch, loss_of(task)).float(), batch.targets)
    if not loss.requires_grad:
        raise ValueError("the task's model() must give outputs that depend on its parameters: the loss has no gradient")
    loss = loss + _penalty(model)
    if not draws_inside(model) and not torch.equal(before, torch.get_rng_state()):
        raise ValueError(
            "the task's model() must not draw from torch's global generator in a step, unless it says draws_inside = True: "
            "a run could not be continued to the same end"
        )
    return loss


def _check_model_again(task: Task, spec: RunSpec, model: nn.Module, batch: Split, loss: Tensor) -> None:
    """A model of the same seed, after the same step, has the same weights and the same loss."""
    again = _started(task, spec)
    other = _step_loss(task, spec, again, batch)
    ours, theirs = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (model, again))
    if unlike := [name for name in ours if name not in theirs or not _alike(ours[name], theirs[name])]:
        raise ValueError(
            f"the task's model() must give the same weights whenever it is asked for the same spec, and its {unlike[0]} "
            "differs: draw with torch, whose global generator is seeded, not with numpy or random"
        )
    if not _alike(loss, other):
        raise ValueError(
            "the task's model() must give the same loss for the same weights and samples, and gave "
            f"{loss.item():.6g} and {other.item():.6g}: draw with torch in a step, not with numpy or random, and say "
            "draws_inside = True"
        )


def _check_saved(task: Task, spec: RunSpec, model: nn.Module, batch: Split) -> None:
    """Another model that loads what a checkpoint has of this one, after its first step, goes on as this one does. So it does
    in later steps, to which numbers are carried on that no checkpoint has and that change in every step."""
    _check_memory(model)
    still = detached(model.state_dict())
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p.sub_(MOVE * p.grad.to_dense().sign())
    state, held = _checkpoint(model), _not_saved(model)
    try:
        further = _further(task, spec, model, batch)
    except ValueError:  # moved too far, as a scale that begins at 0 and must not fall under it
        _load(model, still)
        state, held = still, _not_saved(model)
        further = _further(task, spec, model, batch)
    after, again = _not_saved(model), _resumed(task, spec, state, {})
    known = _not_saved(again)
    lost = {place: value for place, value in held.items() if place not in known or not _equal(value, known[place])}

    def differs(values: _Values) -> bool:
        """Whether a model goes on otherwise that has these values besides a checkpoint. One that fails says nothing."""
        with contextlib.suppress(ValueError):
            return not _all_alike(further, _further(task, spec, _resumed(task, spec, state, values), batch))
        return False

    if not _all_alike(further, _further(task, spec, again, batch)):
        felt = [one for one in lost if differs({place: value for place, value in lost.items() if place != one})]
        raise _not_kept([] if differs(lost) else felt or [*lost])
    moves = {place: after[place] - value for place, value in lost.items() if _moves(value, after.get(place))}
    for step in _later_steps(spec.max_steps) if moves else ():
        later = {place: lost[place] + (step - 2) * move for place, move in moves.items()}
        if differs(later):
            raise _not_kept([place for place, value in later.items() if differs({place: value})] or [*later])
    _load(model, still)


def _resumed(task: Task, spec: RunSpec, state: Mapping[str, Any], values: _Values) -> nn.Module:
    """Another model with what a checkpoint has, and with these values."""
    model = _model(task, spec)
    _load(model, state)
    parts = dict(model.named_modules())
    for (prefix, name), value in values.items():
        if prefix in parts:
            part = parts[prefix]
            held: Any = part._buffers if name in part._buffers else vars(part)
            held[name] = copy.deepcopy(value)
    return model


def _not_kept(places: Sequence[tuple[str, str]]) -> ValueError:
    names = " and ".join(sorted(".".join(filter(None, place)) for place in places)) or "something"
    held, kind = ("them", "tensors") if len(places) > 1 else ("it", "a tensor")
    return ValueError(
        f"the task's model() changes {names} in a step, and no checkpoint holds {held}: a run could not be continued to the "
        f"same end. Keep {held} as {kind}, by register_buffer()"
    )


def _later_steps(most: int) -> list[int]:
    """Steps from the third to the last that are looked at: one in each doubling, and some in which what is done every so many
    steps is done, whether it is counted from 0 or from 1."""
    steps = {2**i for i in range(most.bit_length())} | {step + one for step in OFTEN for one in (0, 1)} | {most}
    return sorted(step for step in steps if 2 < step <= most)


def _load(model: nn.Module, state: Mapping[str, Any]) -> None:
    with blamed("model().load_state_dict() of the state after a step"):
        model.load_state_dict(detached(state))


def _checkpoint(model: nn.Module) -> dict[str, Any]:
    """The state of a model as it comes out of a checkpoint."""
    state: dict[str, Any] = detached(model.state_dict())
    return {name: value if isinstance(value, Tensor) else _read_again(name, value) for name, value in state.items()}


def _read_again(name: str, value: Any) -> Any:
    try:
        torch.save(value, buffer := io.BytesIO())
        buffer.seek(0)
        return torch.load(buffer, weights_only=True)
    except Exception:
        raise ValueError(
            f"the task's model() must have an extra state that a checkpoint can hold, and its {name} is a {kind_of(value)}: "
            "give numbers, words and tensors, or lists and dictionaries of these, which torch.load(weights_only=True) reads"
        ) from None


def _check_kept(model: nn.Module) -> None:
    """Whether a file of weights can hold the state of the model."""
    for name, value in model.state_dict().items():
        given = f"is of {value.dtype}" if isinstance(value, Tensor) else f"is a {kind_of(value)}"
        try:
            safetensors.torch.save({name: torch.empty(0, dtype=value.dtype)})
        except (AttributeError, KeyError):
            raise ValueError(
                "the task's model() must have nothing in its state that a safetensors file cannot hold, as its weights are "
                f"kept, and its {name} {given}: register a buffer of a usual type in its place"
            ) from None


def _check_memory(model: nn.Module) -> None:
    """Whether a checkpoint can hold the tensors, and who loads it, or keeps an average, can write to them."""
    for name, t in model.state_dict().items():
        if isinstance(t, Tensor) and t.layout != torch.strided:
            raise ValueError(
                f"the task's model() must have dense tensors in its checkpoints, and {name} is sparse: register it with "
                "persistent=False, so that it is in none, or as a dense tensor"
            )
    tensors = model.state_dict() | (dict(model.named_buffers()) if decay_of(model) else {})
    for name, t in tensors.items():
        spread = isinstance(t, Tensor) and t.layout == torch.strided and zip(t.shape, t.stride(), strict=True)
        if spread and any(size > 1 and not stride for size, stride in spread):
            raise ValueError(
                f"the task's model() must have tensors whose numbers each have a place of their own, and {name} is made by "
                "expand(): no checkpoint of it could be loaded. Add .clone()"
            )


def _further(task: Task, spec: RunSpec, model: nn.Module, batch: Split) -> dict[str, Tensor]:
    """The loss of a step, the gradients as shares of the largest number in them, and the saved tensors after it."""
    loss = _step_loss(task, spec, model, batch)
    trained = {f"gradient of {name}": p for name, p in model.named_parameters() if p.requires_grad}
    with blamed("model() in the backward pass"):
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    gradients = {name: g.to_dense() for name, g in zip(trained, found, strict=True) if g is not None}
    largest = max((g.abs().max().item() for g in gradients.values() if g.numel()), default=0.0) or 1.0
    saved = {name: t.clone() for name, t in model.state_dict().items() if isinstance(t, Tensor)}
    return {"the loss": loss.detach()} | {name: g / largest for name, g in gradients.items()} | saved


def _all_alike(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(_alike(t, theirs[name]) for name, t in ours.items())


def _moves(value: Any, after: Any) -> bool:
    """Whether it is a number, or a tensor of numbers, and has become another one."""
    if _equal(value, after):
        return False
    if not isinstance(value, Tensor):
        return type(value) is type(after) is not bool
    plain = isinstance(after, Tensor) and value.layout == after.layout == torch.strided and value.shape == after.shape
    return plain and value.dtype == after.dtype != torch.bool


def _equal(one: Any, other: Any) -> bool:
    with contextlib.suppress(RuntimeError):  # of tensors that do not give their numbers
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            return one.dtype == other.dtype and torch.equal(one.to_dense(), other.to_dense())
    return repr(one) == repr(other)


def _same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether tensors of one shape have the same numbers, NaN included."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _alike(one: Any, other: Any) -> bool:
    """Whether numbers are the same, NaN included, or tensors up to rounding, which may depend on where they lie in memory."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return repr(one) == repr(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.to_dense(), other.to_dense()
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=CLOSE, atol=CLOSE / 10, equal_nan=True)


def _not_saved(model: nn.Module) -> dict[tuple[str, str], Any]:
    """Numbers and tensors that a model and its parts hold and that no checkpoint has, as they are now, by part and name."""
    saved, found = model.state_dict().keys(), {}
    for prefix, part in model.named_modules():
        for name, value in {**vars(part), **dict(part._buffers.items())}.items():
            if isinstance(value, Tensor | Number) and ".".join(filter(None, (prefix, name))) not in saved:
                found[prefix, name] = value.detach().clone() if isinstance(value, Tensor) else value
    return found


def _outputs(model: nn.Module, batch: Split, loss: str, sampled: bool = False) -> Tensor:
    """What the model computes, or samples."""
    inputs, targets = batch.inputs, batch.targets
    call = "model().sample()" if sampled else "model()"
    with blamed(f"{call} on inputs {tuple(inputs.shape)} of {inputs.dtype}"):
        outputs: Any = model.sample(inputs, stream(0, "check")) if sampled else model(inputs)  # type: ignore[operator]
    if not isinstance(outputs, Tensor):
        raise ValueError(f"the task's {call} must give a tensor as outputs, not a {kind_of(outputs)}")
    if loss == SQUARED_ERROR and outputs.shape != targets.shape:
        given = f"{tuple(targets.shape)}, not {tuple(outputs.shape)}"
        raise ValueError(f"the task's {call} must give outputs of the shape of the targets, {given}")
    if loss == CROSS_ENTROPY:
        _check_logits(call, outputs, targets)
    if not outputs.dim() or len(outputs) != len(inputs):
        raise ValueError(f"the task's {call} must give outputs (n, ...) for inputs (n, ...), not {tuple(outputs.shape)}")
    if loss in LOSSES and not outputs.is_floating_point():
        raise ValueError(f"the task's {call} must give floating-point outputs, not {outputs.dtype}")
    if not is_finite(outputs):
        raise ValueError(f"the task's {call} must give finite outputs, and those of the untrained network have NaN or infinity")
    return outputs


def _check_logits(call: str, outputs: Tensor, targets: Tensor) -> None:
    n, *places = targets.shape
    if outputs.dim() != targets.dim() + 1 or [outputs.shape[0], *outputs.shape[2:]] != [n, *places]:
        wanted = ", ".join(map(str, (n, "classes", *places)))
        given = f"{tuple(targets.shape)}, not {tuple(outputs.shape)}"
        raise ValueError(f"the task's {call} must give logits ({wanted}) for targets {given}")
    if (classes := outputs.shape[1]) <= (most := int(targets.max())):
        raise ValueError(f"the task's {call} must give logits of all classes, and gives {classes} where a target is {most}")


def _own_losses(model: nn.Module, batch: Split) -> Tensor:
    """The losses of a batch, with what the model draws for it."""
    size = len(batch.inputs)
    draws: Any = ()
    if brings(model, "draws"):
        with blamed("model().draws()"):
            draws, again = (model.draws(batch, stream(0, "check")) for _ in range(2))  # type: ignore[operator]
        rows = f"a tuple of tensors ({size}, ...)"
        if not isinstance(draws, tuple):
            raise ValueError(f"the task's model().draws() must give {rows}, not a {kind_of(draws)}")
        for t in draws:
            if not isinstance(t, Tensor) or not t.dim() or len(t) != size:
                given = f"a tensor {tuple(t.shape)}" if isinstance(t, Tensor) else f"a {kind_of(t)}"
                raise ValueError(f"the task's model().draws() must give {rows}, not one with {given}")
        if not all(torch.equal(one, other) for one, other in zip(draws, again, strict=True)):
            raise ValueError("the task's model().draws() must draw from its generator alone: it drew others from the same")
    with blamed("model().losses()"):
        losses: Any = model.losses(batch, draws, average_of(model))  # type: ignore[operator]
    if not isinstance(losses, Tensor) or losses.shape != (size,) or not losses.is_floating_point():
        given = f"{losses.dtype} of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {kind_of(losses)}"
        raise ValueError(f"the task's model().losses() must give a floating-point tensor of shape ({size},), not {given}")
    if not is_finite(losses):
        raise ValueError("the task's model().losses() must give finite losses, and those of the untrained network are not")
    return losses


def _check_losses_of_look(model: nn.Module, batch: Split) -> None:
    """Whether a look can take the losses of a batch that a step can take."""
    try:
        with torch.no_grad():
            _own_losses(model, batch)
    except ValueError as error:
        try:
            _own_losses(model, batch)
        except ValueError as other:
            raise ValueError(f"{other}, in eval mode, in which it is called at a look") from error
        raise ValueError(
            f"{error}. It is also called at a look, under torch.no_grad(): put `with torch.enable_grad():` around what "
            "differentiates"
        ) from error


@torch.no_grad()
def _lacking_of_one(model: nn.Module, one: Split) -> str:
    """What is wrong with the model's losses of a single sample, as the last part of a set that is looked at may be; empty if
    nothing is. A task whose sets never end with one is none the worse for it."""
    try:
        _own_losses(model, one)
    except ValueError as error:
        told = f"{error}, for a single sample. A look takes a set in parts, and the last part may be one sample"
        return f"{told}: if it compares samples, give one without others a loss of 0"
    return ""


def _check_looks(task: Task, spec: RunSpec) -> None:
    if not hasattr(task, "looks"):
        return
    with blamed("looks()"):
        every = task.looks(spec)
    if type(every) is not int or every < 1 or every % EVAL_EVERY:
        raise ValueError(f"the task's looks() must give a number of steps that is a multiple of {EVAL_EVERY}, not {every!r}")


def _check_judged(task: Task, spec: RunSpec, model: nn.Module) -> Data | None:
    """What is looked at in place of the data, asked for twice unless it is large; None if the data are."""
    if not hasattr(task, "judged"):
        return None
    at = f"at N = {spec.N}, data_count = {spec.data_count}"
    asked: list[Data] = []
    while not asked or (len(asked) < 2 and sum(t.nbytes for split in asked[0] for t in split) <= MOST_BYTES):
        with blamed(f"judged() {at}"):
            one = task.judged(spec)
        check_splits("judged()", one, at, _loss(task, model))
        if not all(len(split.inputs) for split in one):
            given = f"train and held_out, and gives none of one {at}"
            raise ValueError(f"the task's judged() must give samples of both kinds, {given}")
        asked.append(Data(*(Split(*(t.cpu() for t in split)) for split in one)))
    check_repeats("judged()", asked[0], asked[-1], at)
    return asked[0]


def _penalty(model: nn.Module) -> Tensor | float:
    penalty: Any = getattr(model, "penalty", None)
    if penalty is None:
        return 0.0
    with blamed("model().penalty()"):
        value = penalty()
    if not isinstance(value, Tensor) or value.dim() or not value.is_floating_point():
        given = f"a tensor {tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else f"a {kind_of(value)}"
        raise ValueError(f"the task's model().penalty() must give a floating-point tensor without dimensions, not {given}")
    return value


@torch.no_grad()
def _check_measure(task: Task, spec: RunSpec, model: nn.Module, part: Split, twice: bool) -> Tensor:
    """Measure a part, and ask for all of it twice if told so. The outputs that were measured."""
    sampled = brings(model, "sample")
    outputs = widened(_outputs(model, part, _loss(task, model), sampled))
    if sampled and not torch.equal(outputs, widened(_outputs(model, part, _loss(task, model), sampled))):
        raise ValueError("the task's model().sample() must draw from its generator alone: it drew others from the same")
    repeated = twice and not sampled and not draws_inside(model)
    if repeated and not _alike(outputs, widened(_outputs(model, part, _loss(task, model)))):
        raise ValueError("the task's model() must give the same outputs for the same inputs in eval mode, and does not")
    before = Split(*(t.clone() for t in part))

    def measured() -> Any:
        """Of outputs that may be changed."""
        return task.measure(spec, outputs.clone(), part.take(slice(None)))

    with blamed("measure()"):
        measures = measured()
        again = measured() if twice else measures
    if changed := [name for name, t, old in zip(Split._fields, part, before, strict=True) if not _same_numbers(t, old)]:
        raise ValueError(
            "the task's measure() must not change the samples that it judges, as they are judged again at every look, and "
            f"changes {' and '.join(changed)}: change a clone"
        )
    if not isinstance(measures, Mapping):
        raise ValueError(f"the task's measure() must give a mapping from names to tensors, not a {kind_of(measures)}")
    if "correct" not in measures:
        given = ", ".join(map(str, measures)) or "nothing"
        raise ValueError(f"the task's measure() must give correct, whose mean is the accuracy, and gives {given}")
    shape = (len(outputs),)
    for name, values in measures.items():
        if not isinstance(name, str):
            raise ValueError(f"the task's measure() must give words as names, not {name!r:.40}")
        numbers = "a bool" if name == "correct" else "a real"
        given = f"{values.dtype} of shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {kind_of(values)}"
        fits = isinstance(values, Tensor) and values.shape == shape and not values.is_complex()
        is_number = fits and name == "correct" and values.dtype != torch.bool
        if not fits or is_number:
            given += ": compare each with a threshold" * is_number
            raise ValueError(f"the task's measure() must give {numbers} tensor of shape {shape} as {name}, not {given}")
    if "loss" in measures and _loss(task, model) != SQUARED_ERROR:
        raise ValueError("the task's measure() must give no loss: under this name the loss of each sample is measured anyway")
    if "squared_error" in measures:
        raise ValueError("the task's measure() must give no squared_error: under this name it is measured anyway")
    if taken := [name for name in (*measures, "loss") if f"id_{name}" in measures]:
        raise ValueError(f"the task's measure() must give no id_{taken[0]}: this is the name of {taken[0]} on the training set")
    if not all(_alike(widened(values), widened(again[name])) for name, values in measures.items()):
        raise ValueError("the task's measure() must give the same for the same outputs, and does not: it must not draw")
    _check_summary(task, spec, measures, part)
    return outputs


@torch.no_grad()
def _check_alone(task: Task, spec: RunSpec, outputs: Tensor, part: Split) -> None:
    """Whether each sample of a part is judged by itself: with these outputs and, unless they are large, with those of another
    sample each, and with random ones. An untrained network may score the same whatever it is compared with."""
    if len(outputs) == 1:
        return
    made = [outputs]
    if outputs.numel() <= MOST_NUMBERS:
        made.append(outputs.roll(1, 0))
        if outputs.is_floating_point():
            made += [torch.randn(outputs.shape, generator=stream(0, "check", "outputs", i)) for i in range(4)]
    for some in made:
        name = None
        with contextlib.suppress(Exception, SystemExit):  # of what no network of this task gives
            name = _compared(task, spec, some, part)
        if name is not None:
            raise ValueError(
                "the task's measure() must judge each sample by itself, as a set is measured in parts, and gives another "
                f"'{name}' for a sample alone than among others: "
                "compare with what the task holds, such as a fixed gallery or mean"
            )


def _compared(task: Task, spec: RunSpec, outputs: Tensor, part: Split) -> str | None:
    """The name of a measure for which it matters which other samples, or how many, are measured together; None if there is
    none. The place of a sample may matter, as it does where random numbers are drawn from a seed."""

    def measured(*index: int) -> Mapping[str, Tensor]:
        at = torch.tensor(index)
        return task.measure(spec, outputs[at], part.take(at))

    places = range(len(outputs))
    together = measured(*places)
    for i in places:
        alone = measured(i)
        for name, among in together.items():
            if _near(among[i], alone[name][0], among):
                continue
            copies = measured(*[i] * len(places))[name]
            if not _near(among[i], copies[i], among) or _near(copies, copies[0].expand_as(copies), among):
                return name
    return None


def _near(one: Tensor, other: Tensor, among: Tensor) -> bool:
    """Whether numbers are the same, up to rounding of the largest."""
    largest = among.double().nan_to_num(0, 0, 0).abs().max().item()
    return torch.allclose(one.double(), other.double(), rtol=CLOSE, atol=10 * CLOSE * largest, equal_nan=True)


def _check_summary(task: Task, spec: RunSpec, measures: Mapping[str, Tensor], part: Split) -> None:
    if not hasattr(task, "summarise"):
        return
    with blamed("summarise()"):
        numbers: Any = task.summarise(spec, measures, part)
    if not isinstance(numbers, Mapping):
        raise ValueError(f"the task's summarise() must give a mapping from names to numbers, not a {kind_of(numbers)}")
    for name, value in numbers.items():
        if not isinstance(name, str) or type(value) not in (int, float):
            raise ValueError(f"the task's summarise() must give plain numbers by name, not {value!r:.40} as {name!r}")
