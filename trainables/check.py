"""Whether a task is what a study asks for: looked at before the first training, by making one batch and measuring it.

A mistake is a ValueError with one sentence that names the member and what it should give. Only the smallest data counts, one
of middle size and the largest are tried, with one seed: what fails elsewhere fails when it is trained.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainables.objectives import (
    CROSS_ENTROPY,
    LOSSES,
    SQUARED_ERROR,
    average_of,
    batch_loss,
    brings,
    draws_inside,
    loss_of,
    widened,
)
from trainables.settings import IN_SPEC, WORDS, complete, settings_class, settings_of
from trainables.spec import LARGEST, Counts, RunSpec, Scalar
from trainables.task import Data, Split, Task
from trainables.training.seeds import stream, stream_seed
from trainables.training.stopping import EVAL_EVERY

SHAPE = ("depth", "width", "holdout")
SAMPLES = 4
"""In the batch that is trained on and measured."""
DRAWN = 16
"""Images, about, of the set that a larger one must contain."""
MOST_SAMPLES, MOST_BYTES = 4096, 2**28
"""Of the largest training set and the largest data that are made, whatever `Counts.high` is: if not the smallest is larger."""
COMPARED = 128
"""Samples that are compared, from each end of a set."""
CLOSE = 1e-4
"""Numbers of two samples are the same if they differ by less than this share of the largest: rounding depends on how many
samples are computed together."""


def check_task(task: Task, spec: RunSpec) -> None:
    """Make and measure one batch of `spec`, whose own `data_count` is not looked at. Torch's global generator stays as it was.

    Raises:
        ValueError: a member gives something else than it should, or raises an exception.
    """
    check_words(task)
    with torch.random.fork_rng(devices=[]), _one_thread(), contextlib.redirect_stdout(sys.stderr):
        counts = counts_of(task, spec)
        model = _model(task, spec)
        data = _check_data(task, spec, counts, _loss(task, model))
        _check_training(task, spec, model, data.train)
        _check_looks(task, spec)
        judged = _check_judged(task, spec.with_count(max(counts.low, 1 - counts.fixed)), model) or data
        for split in judged:
            for size in (SAMPLES, 1):  # the last part of a set may be one sample
                _check_measure(task, spec, model.eval(), Split(*(t[:size] for t in split)))


def check_words(task: Task) -> None:
    """The part of `check_task` that needs no spec: the task's words and its presets.

    Raises:
        ValueError: as `check_task`.
    """
    if not isinstance(task.version, str):
        raise ValueError(f"the task's version must be a word, such as '1', not {task.version!r}")
    if loss_of(task) not in LOSSES:
        raise ValueError(f"the task's loss must be {' or '.join(LOSSES)}, not {loss_of(task)!r}")
    if not hasattr(task, "settings"):
        _check_former(task)
    known = settings_of(settings_class(task))
    _check_names(task, "packable", "options", [name for name in known if name not in IN_SPEC])
    of_words = {name: known[name].words if name in known else () for name in ("dataset", "decoder")}
    _check_names(task, "cheap", "decoders", of_words["decoder"])
    for words in itertools.product(*(given or ("",) for given in of_words.values())):
        chosen = {name: word for name, word in zip(of_words, words, strict=True) if word}
        with _blamed(f"settings of {' and '.join(map(repr, chosen.values()))}" if chosen else "settings"):
            complete(task, chosen)


def _check_former(task: Any) -> None:
    """What a task has in place of `settings`."""
    _check_choices(task.choices)
    _check_defaults(task.defaults)
    for dataset in task.choices["dataset"]:
        for decoder in task.choices["decoder"]:
            _check_preset(task, dataset, decoder)


def counts_of(task: Task, spec: RunSpec) -> Counts:
    """The data counts that the task allows for `spec`.

    Raises:
        ValueError: the spec asks for something this task cannot do, in the task's words; or as `check_task`.
    """
    with _blamed(f"counts() at N = {spec.N}", ValueError):
        counts = task.counts(spec)
    if not isinstance(counts, Counts):
        raise ValueError(f"the task's counts() must give a Counts, not a {_kind(counts)}")
    low, high, fixed = counts.low, counts.high, counts.fixed
    if not all(type(n) is int for n in (low, high, fixed)) or not (0 <= low <= high and fixed >= 0):
        given = f"low = {low!r}, high = {high!r} and fixed = {fixed!r} at N = {spec.N}"
        raise ValueError(f"the task's counts() must give whole numbers with 0 <= low <= high and fixed >= 0, not {given}")
    if high + fixed == 0:
        raise ValueError(f"the task's counts() must allow at least one training sample, not high = 0 at N = {spec.N}")
    if high + fixed > LARGEST:
        raise ValueError(f"the task's counts() must give high + fixed of at most {LARGEST}, not {high + fixed} at N = {spec.N}")
    return counts


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As a worker has it: threads that wait for each other take many times as long on busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _blamed(member: str, *passed: type[Exception]) -> Iterator[None]:
    """An exception becomes a sentence about the member, unless it is one of those passed on."""
    try:
        yield
    except passed:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        raise ValueError(f"the task's {member} fails with {reason}") from error


def _kind(value: object) -> str:
    return type(value).__name__


def _check_choices(choices: Mapping[str, tuple[str, ...]]) -> None:
    if not isinstance(choices, Mapping):
        raise ValueError(f"the task's choices must be a mapping with {', '.join(WORDS)}, not a {_kind(choices)}")
    if missing := [name for name in WORDS if name not in choices]:
        raise ValueError(f"the task's choices must have {', '.join(WORDS)}, and lack {', '.join(missing)}")
    for name in WORDS:
        words = choices[name]
        if not (isinstance(words, tuple) and words and all(isinstance(word, str) and word for word in words)):
            raise ValueError(f"the task's choices[{name!r}] must be a tuple of at least one word, not {words!r}")


def _check_defaults(defaults: Mapping[str, Scalar]) -> None:
    if not isinstance(defaults, Mapping):
        raise ValueError(f"the task's defaults must be a mapping from names to values, not a {_kind(defaults)}")
    for name, value in defaults.items():
        if not isinstance(name, str):
            raise ValueError(f"the task's defaults must have words as names, not {name!r}")
        if not isinstance(value, Scalar):
            raise ValueError(f"the task's defaults[{name!r}] must be a number, a word, True or False, not {value!r}")


def _check_names(task: Task, member: str, what: str, known: Collection[str]) -> None:
    """Of an optional member that lists names."""
    names: Any = getattr(task, member, ())
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ValueError(f"the task's {member} must be a tuple of {what}, not {names!r}")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"the task's {member} must name some of its {what}, {', '.join(known) or 'none'}, not {unknown[0]!r}")


def _check_preset(task: Any, dataset: str, decoder: str) -> None:
    call = f"preset({dataset!r}, {decoder!r})"
    with _blamed(call):
        preset = task.preset(dataset, decoder)
    if not isinstance(preset, Mapping):
        raise ValueError(f"the task's {call} must give a mapping with {', '.join(SHAPE)}, not a {_kind(preset)}")
    if missing := [name for name in SHAPE if name not in preset]:
        raise ValueError(f"the task's {call} must give {', '.join(SHAPE)}, and lacks {', '.join(missing)}")
    for name in ("depth", "width"):
        if type(preset[name]) is not int:
            raise ValueError(f"the task's {call} must give a whole number as {name}, not {preset[name]!r}")
    if preset["holdout"] not in (allowed := task.choices["holdout"]):
        holdout = preset["holdout"]
        raise ValueError(f"the task's {call} must give a holdout of its choices, {', '.join(allowed)}, not {holdout!r}")


def _check_data(task: Task, spec: RunSpec, counts: Counts, loss: str) -> Data:
    """A small training set and some of the held-out samples, after the smallest data and larger ones were looked at, too."""
    low = max(counts.low, 1 - counts.fixed)
    whole = _data(task, spec, counts, low, loss)
    room = MOST_BYTES - sum(t.nbytes for split in whole for t in split)
    most = min(counts.high, MOST_SAMPLES, low + room // max(1, sum(t[0].nbytes for t in whole.train)))
    smallest = _part(whole)
    del whole
    half = (low + max(low, most)) // 2
    few = min(low + DRAWN - 1, (low + half) // 2)
    some = smallest if few == low else _part(_data(task, spec, counts, few, loss))
    _check_repeats(some, _part(_data(task, spec, counts, few, loss)), f"N = {spec.N}, data_count = {few}")
    if half > few:
        _check_nested(some.train, _data(task, spec, counts, half, loss).train, f"{few} and {half}")
    if most > half:
        _data(task, spec, counts, most, loss)
    return some


def _part(data: Data) -> Data:
    """Without most of the held-out samples, which may be many."""
    return Data(data.train, Split(*(t[:COMPARED].clone() for t in data.held_out)))


def _data(task: Task, spec: RunSpec, counts: Counts, count: int, loss: str) -> Data:
    """Data of one data count, each part of it looked at."""
    at = f"at N = {spec.N}, data_count = {count}"
    with _blamed(f"data() {at}"):
        data = task.data(spec.with_count(count))
    _check_splits("data()", data, at, loss)
    size, drawn = len(data.train.inputs), counts.fixed + count
    if size != drawn:
        promised = f"{drawn} = {counts.fixed} fixed + {count} drawn" if counts.fixed else drawn
        raise ValueError(f"the task's data() must give data_count training samples, {promised} {at}, not {size}")
    if not len(data.held_out.inputs):
        raise ValueError(f"the task's data() holds out nothing {at}: hold out samples to judge on, or lower Counts.high")
    return Data(*(Split(*(t.cpu() for t in split)) for split in data))


def _check_splits(member: str, data: Data, at: str, loss: str) -> None:
    if not isinstance(data, Data):
        raise ValueError(f"the task's {member} must give a Data, not a {_kind(data)}")
    for name, split in zip(Data._fields, data, strict=True):
        _check_split(member, name, split, at)
        _check_targets(member, name, split.targets, at, loss)


def _check_split(member: str, name: str, split: Split, at: str) -> None:
    if not isinstance(split, Split):
        raise ValueError(f"the task's {member} must give a Split as {name}, not a {_kind(split)}")
    for field, tensor in zip(Split._fields, split, strict=True):
        if not isinstance(tensor, Tensor) or not tensor.dim():
            raise ValueError(f"the task's {member} must give a tensor (n, ...) as {name}.{field}, not {tensor!r:.40}")
    sizes = [len(tensor) for tensor in split]
    if len(set(sizes)) > 1:
        given = f"{sizes[0]}, {sizes[1]} and {sizes[2]} in {name} {at}"
        raise ValueError(f"the task's {member} must give as many inputs as targets and truth, not {given}")
    if not _is_finite(split.inputs):
        raise ValueError(f"the task's {member} must give finite inputs, and {name}.inputs has NaN or infinity {at}")


def _check_targets(member: str, name: str, targets: Tensor, at: str, loss: str) -> None:
    if loss == SQUARED_ERROR and not targets.is_floating_point():
        raise ValueError(
            f"the task's {member} must give floating-point targets, as the loss is the squared error, not {targets.dtype} "
            f"in {name}: make class labels one-hot vectors, or give the task loss = {CROSS_ENTROPY!r}"
        )
    if loss == SQUARED_ERROR and targets.dim() < 2:
        given = f"{tuple(targets.shape)} in {name}"
        raise ValueError(f"the task's {member} must give targets (n, ...) such as (n, 1), not {given}: unsqueeze them")
    if loss == CROSS_ENTROPY and targets.dtype != torch.int64:
        given = f"as the loss is {loss}, not {targets.dtype} in {name}"
        raise ValueError(f"the task's {member} must give class indices of torch.int64 as targets, {given}")
    if loss == CROSS_ENTROPY and targets.numel() and (least := int(targets.min())) < 0:
        raise ValueError(f"the task's {member} must give class indices from 0 on as targets, not {least} in {name} {at}")
    if not _is_finite(targets):
        raise ValueError(f"the task's {member} must give finite targets, and {name}.targets has NaN or infinity {at}")


def _is_finite(values: Tensor) -> bool:
    """In one pass, and without another tensor of this size: the least and the largest of values with a NaN are NaN."""
    values = torch.view_as_real(values) if values.is_complex() else values
    return not values.numel() or all(bool(bound.isfinite()) for bound in values.detach().aminmax())


def _check_repeats(first: Data, second: Data, at: str) -> None:
    for one, other in zip(first, second, strict=True):
        same_shapes = [t.shape for t in one[:2]] == [t.shape for t in other[:2]]
        if not same_shapes or not _same(*_marks(_ends(one), _ends(other))).all():
            raise ValueError(
                f"the task's data() must give the same samples whenever it is asked for the same spec, and does not at {at}: "
                "draw from a generator seeded with spec.seed, not from a global one"
            )


def _check_nested(few: Split, more: Split, at: str) -> None:
    if [t.shape[1:] for t in few[:2]] != [t.shape[1:] for t in more[:2]]:
        raise ValueError(f"the task's data() must give samples of the same shapes at every data_count, not others at {at}")
    for_few, for_more = _marks(_ends(few), more)
    if not all(_same(mark, for_more).any() for mark in for_few):
        raise ValueError(
            f"the task's data() must give nested training sets, and at data_count = {at} the larger lacks samples of the "
            "smaller: draw one order from the seed, and take the first data_count of it"
        )


def _same(marks: Tensor, others: Tensor) -> Tensor:
    """Which samples are the same (n,)."""
    return ((marks - others).abs() <= CLOSE).all(dim=1)


def _ends(split: Split) -> Split:
    """The first and the last of many samples."""
    return Split(*(t if len(t) <= 2 * COMPARED else torch.cat([t[:COMPARED], t[-COMPARED:]]) for t in split))


def _marks(*splits: Split) -> tuple[Tensor, ...]:
    """Six numbers a sample (n, 6), at most 1, which tell samples apart: random projections of its inputs and its targets."""
    marks: list[list[Tensor]] = [[] for _ in splits]
    for field in ("inputs", "targets"):
        rows = [getattr(split, field)[:, None].flatten(1).float() for split in splits]
        directions = torch.randn(rows[0].shape[1], 3, generator=stream(0, "check", field))
        projected = [r @ directions for r in rows]
        scale = torch.cat(projected).abs().max().clamp(min=1e-30)
        for mark, p in zip(marks, projected, strict=True):
            mark.append(p / scale)
    return tuple(torch.cat(mark, dim=1) for mark in marks)


def _model(task: Task, spec: RunSpec) -> nn.Module:
    with _blamed("model()"):
        torch.manual_seed(stream_seed(spec.seed, "weights"))
        model = task.model(spec)
    if not isinstance(model, nn.Module):
        raise ValueError(f"the task's model() must give a torch.nn.Module, not a {_kind(model)}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("the task's model() must give a network with something to train, but no parameter requires a gradient")
    for name in ("draws", "losses", "sample"):
        found: Any = getattr(model, name, None)
        if found is not None and not callable(found):
            raise ValueError(f"the task's model().{name} must be a method, not a {_kind(found)}")
    if brings(model, "draws") and not brings(model, "losses"):
        raise ValueError("the task's model() must have losses() if it has draws(): nothing else is given what it draws")
    ema: Any = getattr(model, "ema", 0.0)
    if type(ema) not in (int, float) or not 0 <= ema < 1:
        raise ValueError(f"the task's model().ema must be a number from 0 up to but not 1, not {ema!r:.40}")
    if type(inside := getattr(model, "draws_inside", False)) is not bool:
        raise ValueError(f"the task's model().draws_inside must be True or False, not {inside!r:.40}")
    return model


def _loss(task: Task, model: nn.Module) -> str:
    """The word of the loss; `own` if the model brings it."""
    return "own" if brings(model, "losses") else loss_of(task)


def _check_training(task: Task, spec: RunSpec, model: nn.Module, train: Split) -> None:
    """One batch goes forth and back."""
    index = torch.arange(min(spec.batch_size, SAMPLES)) % len(train.inputs)
    batch = Split(*(t[index] for t in train))
    before = torch.get_rng_state()
    if brings(model, "losses"):
        loss = _own_losses(model, batch).mean()
    else:
        loss = batch_loss(loss_of(task), _outputs(model, batch, loss_of(task)).float(), batch.targets)
    if not draws_inside(model) and not torch.equal(before, torch.get_rng_state()):
        raise ValueError(
            "the task's model() must not draw from torch's global generator in a step, unless it says draws_inside = True: "
            "a run could not be continued to the same end"
        )
    if not loss.requires_grad:
        raise ValueError("the task's model() must give outputs that depend on its parameters: the loss has no gradient")
    loss = loss + _penalty(model)
    with _blamed("model() in the backward pass"):
        loss.backward()


def _outputs(model: nn.Module, batch: Split, loss: str, sampled: bool = False) -> Tensor:
    """What the model computes, or samples."""
    inputs, targets = batch.inputs, batch.targets
    call = "model().sample()" if sampled else "model()"
    with _blamed(f"{call} on inputs {tuple(inputs.shape)} of {inputs.dtype}"):
        outputs: Any = model.sample(inputs, stream(0, "check")) if sampled else model(inputs)  # type: ignore[operator]
    if not isinstance(outputs, Tensor):
        raise ValueError(f"the task's {call} must give a tensor as outputs, not a {_kind(outputs)}")
    if loss == SQUARED_ERROR and outputs.shape != targets.shape:
        given = f"{tuple(targets.shape)}, not {tuple(outputs.shape)}"
        raise ValueError(f"the task's {call} must give outputs of the shape of the targets, {given}")
    if loss == CROSS_ENTROPY:
        _check_logits(call, outputs, targets)
    if not outputs.dim() or len(outputs) != len(inputs):
        raise ValueError(f"the task's {call} must give outputs (n, ...) for inputs (n, ...), not {tuple(outputs.shape)}")
    if loss in LOSSES and not outputs.is_floating_point():
        raise ValueError(f"the task's {call} must give floating-point outputs, not {outputs.dtype}")
    if not _is_finite(outputs):
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
        with _blamed("model().draws()"):
            draws, again = (model.draws(batch, stream(0, "check")) for _ in range(2))  # type: ignore[operator]
        rows = f"a tuple of tensors ({size}, ...)"
        if not isinstance(draws, tuple):
            raise ValueError(f"the task's model().draws() must give {rows}, not a {_kind(draws)}")
        for t in draws:
            if not isinstance(t, Tensor) or not t.dim() or len(t) != size:
                given = f"a tensor {tuple(t.shape)}" if isinstance(t, Tensor) else f"a {_kind(t)}"
                raise ValueError(f"the task's model().draws() must give {rows}, not one with {given}")
        if not all(torch.equal(one, other) for one, other in zip(draws, again, strict=True)):
            raise ValueError("the task's model().draws() must draw from its generator alone: it drew others from the same")
    with _blamed("model().losses()"):
        losses: Any = model.losses(batch, draws, average_of(model))  # type: ignore[operator]
    if not isinstance(losses, Tensor) or losses.shape != (size,) or not losses.is_floating_point():
        given = f"{losses.dtype} of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {_kind(losses)}"
        raise ValueError(f"the task's model().losses() must give a floating-point tensor of shape ({size},), not {given}")
    if not _is_finite(losses):
        raise ValueError("the task's model().losses() must give finite losses, and those of the untrained network are not")
    return losses


def _check_looks(task: Task, spec: RunSpec) -> None:
    if not hasattr(task, "looks"):
        return
    with _blamed("looks()"):
        every = task.looks(spec)
    if type(every) is not int or every < 1 or every % EVAL_EVERY:
        raise ValueError(f"the task's looks() must give a number of steps that is a multiple of {EVAL_EVERY}, not {every!r}")


def _check_judged(task: Task, spec: RunSpec, model: nn.Module) -> Data | None:
    """What is looked at in place of the data; None if the data are."""
    if not hasattr(task, "judged"):
        return None
    at = f"at N = {spec.N}, data_count = {spec.data_count}"
    with _blamed(f"judged() {at}"):
        judged: Data = task.judged(spec)
    _check_splits("judged()", judged, at, _loss(task, model))
    if not all(len(split.inputs) for split in judged):
        raise ValueError(f"the task's judged() must give samples of both kinds, train and held_out, and gives none of one {at}")
    return Data(*(Split(*(t.cpu() for t in split)) for split in judged))


def _penalty(model: nn.Module) -> Tensor | float:
    penalty: Any = getattr(model, "penalty", None)
    if penalty is None:
        return 0.0
    with _blamed("model().penalty()"):
        value = penalty()
    if not isinstance(value, Tensor) or value.dim() or not value.is_floating_point():
        given = f"a tensor {tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else f"a {_kind(value)}"
        raise ValueError(f"the task's model().penalty() must give a floating-point tensor without dimensions, not {given}")
    return value


@torch.no_grad()
def _check_measure(task: Task, spec: RunSpec, model: nn.Module, part: Split) -> None:
    sampled = brings(model, "sample")
    outputs = widened(_outputs(model, part, _loss(task, model), sampled))
    if sampled and not torch.equal(outputs, widened(_outputs(model, part, _loss(task, model), sampled))):
        raise ValueError("the task's model().sample() must draw from its generator alone: it drew others from the same")
    with _blamed("measure()"):
        measures = task.measure(spec, outputs, part)
    if not isinstance(measures, Mapping):
        raise ValueError(f"the task's measure() must give a mapping from names to tensors, not a {_kind(measures)}")
    if "correct" not in measures:
        given = ", ".join(map(str, measures)) or "nothing"
        raise ValueError(f"the task's measure() must give correct, whose mean is the accuracy, and gives {given}")
    shape = (len(outputs),)
    for name, values in measures.items():
        numbers = "a bool" if name == "correct" else "a real"
        given = f"{values.dtype} of shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {_kind(values)}"
        fits = isinstance(values, Tensor) and values.shape == shape and not values.is_complex()
        if not fits or (name == "correct" and values.dtype != torch.bool):
            raise ValueError(f"the task's measure() must give {numbers} tensor of shape {shape} as {name}, not {given}")
    if "loss" in measures and _loss(task, model) != SQUARED_ERROR:
        raise ValueError("the task's measure() must give no loss: under this name the loss of each sample is measured anyway")
    _check_summary(task, spec, measures, part)


def _check_summary(task: Task, spec: RunSpec, measures: Mapping[str, Tensor], part: Split) -> None:
    if not hasattr(task, "summarise"):
        return
    with _blamed("summarise()"):
        numbers: Any = task.summarise(spec, measures, part)
    if not isinstance(numbers, Mapping):
        raise ValueError(f"the task's summarise() must give a mapping from names to numbers, not a {_kind(numbers)}")
    for name, value in numbers.items():
        if not isinstance(name, str) or type(value) not in (int, float):
            raise ValueError(f"the task's summarise() must give plain numbers by name, not {value!r:.40} as {name!r}")

