"""Whether a task's data is what a study asks for: shapes and types, the same whenever it is asked for, and nested."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainables.check_words import blamed, kind_of
from trainables.objectives import CROSS_ENTROPY, SQUARED_ERROR
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split, Task
from trainables.training.seeds import stream

DRAWN = 16
"""Images, about, of the set that a larger one must contain."""
MOST_SAMPLES, MOST_BYTES = 4096, 2**28
"""Of the largest training set and the largest data that are made, whatever is asked for: if not the smallest is larger."""
COMPARED = 128
"""Samples that are compared, from each end of a set."""
CLOSE = 1e-4
"""Numbers of two samples are the same if they differ by less than this share of the largest: rounding depends on how many
samples are computed together."""
MOST_SOUGHT = 2**16
"""Samples of each set that are sought in the other one."""
REPEATED = 0.01
"""Share of a set from which on it is told that the other one has these samples, too: a few may be alike by chance."""


def check_data(task: Task, spec: RunSpec, counts: Counts, asked: int, loss: str, tell: Callable[[str], None]) -> Data:
    """A small training set and some of the held-out samples, after the smallest data and larger ones were looked at, too. If
    training samples are among the held-out ones, this is told.

    Args:
        asked: the largest data count that is asked for.
    """
    low = counts.least_trained
    whole = _data(task, spec, counts, low, loss)
    room = MOST_BYTES - sum(t.nbytes for split in whole for t in split)
    most = min(counts.high, asked, MOST_SAMPLES, low + room // max(1, sum(t[0].nbytes for t in whole.train)))
    smallest = _part(whole)
    hint = "hold out others" if asked < counts.high else "hold out others, or lower Counts.high"
    if most <= low:
        _seek_repeats(whole, f"at N = {spec.N}, data_count = {low}", hint, tell)
    del whole
    half = (low + max(low, most)) // 2
    few = min(low + DRAWN - 1, (low + half) // 2)
    some = smallest if few == low else _part(_data(task, spec, counts, few, loss))
    check_repeats("data()", some, _part(_data(task, spec, counts, few, loss)), f"at N = {spec.N}, data_count = {few}")
    if half > few:
        _check_nested(some.train, _data(task, spec, counts, half, loss).train, f"{few} and {half}")
    if most > half:
        _seek_repeats(_data(task, spec, counts, most, loss), f"at N = {spec.N}, data_count = {most}", hint, tell)
    return some


def _part(data: Data) -> Data:
    """Without most of the held-out samples, which may be many."""
    return Data(data.train, Split(*(t.clone() for t in data.held_out.take(slice(COMPARED)))))


def _data(task: Task, spec: RunSpec, counts: Counts, count: int, loss: str) -> Data:
    """Data of one data count, each part of it looked at."""
    at = f"at N = {spec.N}, data_count = {count}"
    with blamed(f"data() {at}"):
        data = task.data(spec.with_count(count))
    check_splits("data()", data, at, loss)
    check_size(data, counts.fixed, count, at)
    if not len(data.held_out.inputs):
        raise ValueError(f"the task's data() holds out nothing {at}: hold out samples to judge on, or lower Counts.high")
    return Data(*(split.to(torch.device("cpu")) for split in data))


def check_size(data: Data, fixed: int, count: int, at: str) -> None:
    """
    Raises:
        ValueError: the training set has more or fewer samples than it should have.
    """
    size, drawn = len(data.train.inputs), fixed + count
    if size != drawn:
        promised = f"{drawn} = {fixed} fixed + {count} drawn" if fixed else drawn
        raise ValueError(f"the task's data() must give data_count training samples, {promised} {at}, not {size}")


def check_splits(member: str, data: Data, at: str, loss: str) -> None:
    if not isinstance(data, Data):
        raise ValueError(f"the task's {member} must give a Data, not a {kind_of(data)}")
    for name, split in zip(Data._fields, data, strict=True):
        _check_split(member, name, split, at)
        _check_targets(member, name, split.targets, at, loss)


def _check_split(member: str, name: str, split: Split, at: str) -> None:
    if not isinstance(split, Split):
        raise ValueError(f"the task's {member} must give a Split as {name}, not a {kind_of(split)}")
    for field, tensor in zip(Split._fields, split, strict=True):
        if not isinstance(tensor, Tensor) or not tensor.dim():
            raise ValueError(f"the task's {member} must give a tensor (n, ...) as {name}.{field}, not {tensor!r:.40}")
        _check_dense(member, f"{name}.{field}", tensor)
    sizes = [len(tensor) for tensor in split]
    if len(set(sizes)) > 1:
        given = f"{sizes[0]}, {sizes[1]} and {sizes[2]} in {name} {at}"
        raise ValueError(f"the task's {member} must give as many inputs as targets and truth, not {given}")
    if not is_finite(split.inputs):
        raise ValueError(f"the task's {member} must give finite inputs, and {name}.inputs has NaN or infinity {at}")


def _check_dense(member: str, place: str, tensor: Tensor) -> None:
    """Batches are taken from it by index."""
    dense = f"the task's {member} must give dense tensors, not {place}"
    if tensor.is_nested:
        raise ValueError(f"{dense} as a nested tensor: pad samples of different sizes")
    if tensor.layout != torch.strided:
        raise ValueError(f"{dense} of {tensor.layout}: use to_dense()")
    if tensor.is_quantized:
        raise ValueError(f"{dense} of {tensor.dtype}: use dequantize()")


def _check_targets(member: str, name: str, targets: Tensor, at: str, loss: str) -> None:
    if loss == SQUARED_ERROR and targets.is_complex():
        raise ValueError(
            f"the task's {member} must give real targets, as the loss is the squared error, not {targets.dtype} in {name}: "
            "put real and imaginary parts in a last dimension, as torch.view_as_real() does"
        )
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
    if not is_finite(targets):
        raise ValueError(f"the task's {member} must give finite targets, and {name}.targets has NaN or infinity {at}")


def is_finite(values: Tensor) -> bool:
    """In one pass, and without another tensor of this size: the least and the largest of values with a NaN are NaN."""
    values = _real(values)
    if not (values.numel() and values.is_floating_point()):
        return True
    if values.element_size() == 1:  # of eight bits, for which torch has little
        values = values.float()
    return all(bool(bound.isfinite()) for bound in values.detach().aminmax())


def check_repeats(member: str, first: Data, second: Data, at: str) -> None:
    for one, other in zip(first, second, strict=True):
        same_shapes = [t.shape for t in one[:2]] == [t.shape for t in other[:2]]
        if not same_shapes or not _same(*_marks(_ends(one), _ends(other))).all():
            raise ValueError(
                f"the task's {member} must give the same samples whenever it is asked for the same spec, and does not {at}: "
                "draw from a generator seeded with spec.seed, not from a global one"
            )


def _seek_repeats(data: Data, at: str, hint: str, tell: Callable[[str], None]) -> None:
    """Tell of training samples whose inputs and targets are those of held-out ones, to the bit. Inputs alone may repeat by
    right, as classes of which a network draws pictures do; so may samples of a task that has no others than one."""
    train, held_out = (_digests(split) for split in data)
    known, unseen = set(train), set(held_out)
    shared = [sum(one in others for one in ours) for ours, others in ((train, unseen), (held_out, known))]
    if len(known) > 1 and any(n >= REPEATED * len(ours) for n, ours in zip(shared, (train, held_out), strict=True)):
        tell(
            f"{shared[0]} of {len(train)} training samples {at} are among {len(held_out)} held-out ones, so these say little "
            f"of new data: {hint}. If samples repeat by right, ignore this"
        )


def _digests(split: Split) -> list[int]:
    """A number of each sample, or of some of very many, which is the same if its inputs and its targets are."""
    most = max(1, min(MOST_SOUGHT, MOST_BYTES // max(1, sum(t[0].nbytes for t in split[:2]))))
    if len(split.inputs) > most:
        split = split.take(torch.randperm(len(split.inputs), generator=stream(0, "check", "repeats"))[:most])
    rows = [_real(t.detach()).resolve_neg()[:, None].flatten(1).clone(memory_format=torch.contiguous_format) for t in split[:2]]
    bits = [row.view(-1).view(torch.uint8).view(len(row), row.shape[1] * row.element_size()).numpy() for row in rows]
    return [hash((one.tobytes(), other.tobytes())) for one, other in zip(*bits, strict=True)]


def _check_nested(few: Split, more: Split, at: str) -> None:
    if [t.shape[1:] for t in few[:2]] != [t.shape[1:] for t in more[:2]]:
        raise ValueError(f"the task's data() must give samples of the same shapes at every data_count, not others at {at}")
    for_few, for_more = _marks(_ends(few), more)
    if not all(_same(mark, for_more).any() for mark in for_few):
        raise ValueError(
            f"the task's data() must give nested training sets, and at data_count = {at} the larger lacks samples of the "
            "smaller: draw one order from the seed, and take the first data_count of it"
        )


def _real(values: Tensor) -> Tensor:
    """With the two parts of complex numbers in a dimension of their own."""
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


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
        rows = [_real(getattr(split, field))[:, None].flatten(1) for split in splits]
        directions = torch.randn(rows[0].shape[1], 3, generator=stream(0, "check", field)).double()
        projected = [torch.cat([some.double() @ directions for some in r.split(COMPARED)]) for r in rows]
        scale = torch.cat(projected).abs().max().clamp(min=1e-30)
        for mark, p in zip(marks, projected, strict=True):
            mark.append(p / scale)
    return tuple(torch.cat(mark, dim=1) for mark in marks)
