"""Weights and checkpoints from elsewhere are tensors or nothing: no code of theirs runs, what they claim is not believed."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import nn

from analysis.files import weights_of
from analysis.trained import BESIDE, ParentError, load_model, most_bytes, networks_of
from orchestrator.engine.messages import Order, RunOrder
from orchestrator.engine.worker import PackTrainable
from orchestrator.store import Artifacts, UnreadableError, make_row
from trainables.bumps import BumpTask
from trainables.generative.chain import tokenizer_of
from trainables.generative.tiers import generator
from trainables.needs import Parent, untrained
from trainables.spec import RunSpec, Scalar, run_key
from trainables.task import load_task

TASK = BumpTask()
SPEC = RunSpec(
    task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=30, seed=0, decoder="mlp", depth=1, width=4,
    holdout="center", options=tuple(TASK.defaults.items()), max_steps=40, stop="budget",
)  # fmt: skip
ROW = make_row(SPEC, task_version=TASK.version, fixed_count=0, status="missed", reason="budget")
GOOD = safetensors.save(dict(TASK.model(SPEC).state_dict()))
NAMES = list(TASK.model(SPEC).state_dict())


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def written(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def retold(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Good weights with another header."""
    (length,) = struct.unpack("<Q", GOOD[:8])
    header = json.loads(GOOD[8 : 8 + length])
    change(header)
    return written(header, GOOD[8 + length :])


def about(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a header of 8 EB": lambda: written({}, length=2**63),
    "a header of 18 EB": lambda: written({}, length=2**64 - 1),
    "a header of 4 GB": lambda: written({}, length=2**32),
    "no JSON": lambda: written(b"{'x': 1}"),
    "no UTF-8": lambda: written(b"\xff\xfe"),
    "a deep header": lambda: written(b'{"x":' * 100_000 + b"1" + b"}" * 100_000),
    "a list": lambda: written([1]),
    "no tensors": lambda: written({}),
    "tensors of 1 TB": lambda: written({"x": about("F32", [2**38], 0, 2**40)}),
    "a shape without end": lambda: written({"x": about("F32", [2**63, 2**63], 0, 8)}, bytes(8)),
    "a shape beyond all numbers": lambda: written({"x": about("F32", [10**20], 0, 8)}, bytes(8)),
    "a negative shape": lambda: written({"x": about("F32", [-1, -2], 0, 8)}, bytes(8)),
    "offsets outside": lambda: written({"x": about("F32", [2], 1000, 1008)}, bytes(8)),
    "offsets the wrong way": lambda: written({"x": about("F32", [2], 8, 0)}, bytes(8)),
    "tensors over one another": lambda: written({"x": about("F32", [2], 0, 8), "y": about("F32", [2], 4, 12)}, bytes(12)),
    "an unknown type": lambda: written({"x": about("X99", [2], 0, 8)}, bytes(8)),
    "a type without a word": lambda: written({"x": {"dtype": None, "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "20,000 tensors": lambda: written({f"x{i}": about("F32", [1], 4 * i, 4 * i + 4) for i in range(20_000)}, bytes(80_000)),
    "a name of a million letters": lambda: written({"x" * 1_000_000: about("F32", [1], 0, 4)}, bytes(4)),
    "another shape": lambda: retold(lambda header: header[NAMES[0]].update(shape=header[NAMES[0]]["shape"][::-1])),
    "a tensor less": lambda: safetensors.save({name: t for name, t in safetensors.load(GOOD).items() if name != NAMES[0]}),
}


@pytest.mark.slow(3)
@pytest.mark.parametrize("what", HOSTILE)
def test_weights_that_are_none_are_refused_at_once(what: str) -> None:
    data, began = HOSTILE[what](), time.monotonic()
    with pytest.raises((SafetensorError, RuntimeError, ValueError, OverflowError)):
        load_model(ROW, data)
    assert time.monotonic() - began < 60


def test_weights_that_are_larger_than_their_network_are_not_read(tmp_path: Path) -> None:
    with Artifacts(tmp_path) as store:
        path = store.save_weights(ROW["key"], GOOD)
        most = most_bytes(TASK, SPEC)
        assert most is not None
        assert len(GOOD) < most < len(GOOD) + 2**21
        assert load_model(ROW, store.load_weights(ROW["key"], most))[0] == SPEC
        os.truncate(path, most + 1)
        with pytest.raises(UnreadableError) as error:
            store.load_weights(ROW["key"], most)
        assert str(error.value) == f"{path} holds {most + 1:,} bytes, more than its network needs"
        os.truncate(path, 2**43)
        for read in (store.load_weights, weights_of(str(tmp_path))):
            with pytest.raises((UnreadableError, OSError), match=r"holds 8,796,\d+,\d+,208 bytes, more than (64 GiB|its)"):
                read(ROW["key"])
        store.save_checkpoint("k", b"one")
        os.truncate(store.checkpoint_path("k"), 2**43)
        assert store.load_checkpoint("k") is None
        told = f"holds {2**43:,} bytes, more than 256 GiB: the run starts from the beginning"
        assert store.notices[-1] == f"{store.checkpoint_path('k')} {told}"


def test_tensors_that_a_network_does_not_have_are_named_in_one_line() -> None:
    tensors = safetensors.load(GOOD)
    with pytest.raises(RuntimeError, match=r"^the weights have tensors that the network does not have: a\\t, b, c and 1 more$"):
        load_model(ROW, safetensors.save(tensors | {name: torch.zeros(1) for name in ("a\t", "b", "c", "d")}))


def test_a_network_that_is_larger_than_its_weights_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made, model = [], BumpTask.model

    def watched(self: BumpTask, spec: RunSpec) -> nn.Module:
        made.append(torch.get_default_device().type)
        return model(self, spec)

    monkeypatch.setattr(BumpTask, "model", watched)
    huge = dataclasses.replace(SPEC, width=256, depth=4)
    row = make_row(huge, task_version=TASK.version, fixed_count=0, status="missed", reason="budget")
    with pytest.raises(RuntimeError, match=r"the weights hold 1 of the [\d,]+ numbers of the network"):
        load_model(row, safetensors.save({"a": torch.zeros(1)}))
    with pytest.raises(ParentError, match=r"the weights hold [\d,]+ of the [\d,]+ numbers of the network"):
        networks_of({"first": Parent(SPEC, GOOD, {"second": Parent(huge, GOOD)})})
    assert set(made) == {"meta"}
    _, _, network = load_model(ROW, GOOD)
    assert made[-1] == "cpu"
    assert {parameter.device.type for parameter in network.parameters()} == {"cpu"}


@pytest.mark.parametrize("family", ["tokenizer", "dit", "maskgit", "givt", "mar"])
@pytest.mark.parametrize(("codes", "width"), [(16, 96), (16_384, 16_384)])
def test_the_size_of_a_generator_and_of_its_tokenizer_is_known_before_they_take_memory(
    family: str, codes: int, width: int
) -> None:
    given: dict[str, Scalar] = {} if family == "tokenizer" else {"decoder": family, "width": width}
    spec = generator("smoke", settings={"codes": codes, **given})
    if family == "tokenizer":
        spec = tokenizer_of(spec)
    task = load_task(spec.task)
    most = most_bytes(task, spec)
    assert most is not None
    row = make_row(spec, task_version=task.version, fixed_count=0, status="missed", reason="budget")
    with pytest.raises(RuntimeError, match=r"the weights hold 1 of the [\d,]+ numbers of the network"):
        load_model(row, safetensors.save({"a": torch.zeros(1)}))
    if width == 96:
        numbers = sum(t.numel() for t in untrained(task, spec).model(spec).state_dict().values())
        assert most == 16 * numbers + BESIDE


def test_weights_are_not_unpickled(tmp_path: Path) -> None:
    torch.save({NAMES[0]: Payload(tmp_path / "it ran")}, buffer := io.BytesIO())
    for data in (buffer.getvalue(), pickle.dumps(Payload(tmp_path / "it ran"))):
        with pytest.raises(SafetensorError):
            load_model(ROW, data)
    assert not list(tmp_path.iterdir())
    pickle.loads(pickle.dumps(Payload(tmp_path / "it ran")))
    assert (tmp_path / "it ran").exists(), "the payload works"


@pytest.mark.parametrize("whole", [False, True])
def test_checkpoints_are_not_unpickled_into_code(tmp_path: Path, whole: bool) -> None:
    payload = Payload(tmp_path / "it ran")
    torch.save(payload if whole else {"training": {"step": payload}, "seconds": 1.0}, buffer := io.BytesIO())
    trainable = PackTrainable.__new__(PackTrainable)
    trainable._begin({"order": Order(runs=[]), "gpus": 0.0})
    key = run_key(SPEC, TASK.version)
    trainable._seconds[key] = 0.0
    for data in (buffer.getvalue(), pickle.dumps(payload)):
        assert trainable._load(RunOrder(key=key, spec={}, checkpoint=data), SPEC, "cpu").step == 0
        assert trainable._notices.pop(key).startswith("its checkpoint cannot be read, so it starts from the beginning (")
    assert not list(tmp_path.iterdir())
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    assert (tmp_path / "it ran").exists(), "the payload works"
