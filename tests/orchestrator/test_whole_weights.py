"""Weights that were damaged are known by their digest, whoever reads them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

from analysis.files import weights_of
from orchestrator.store import Artifacts, UnreadableError
from orchestrator.store.artifacts import DamagedWeightsError

TENSORS = {"layers.0.weight": torch.arange(6.0).view(2, 3), "spread": torch.tensor(2.5), "größe": torch.ones(3).long()}
WEIGHTS = safetensors.torch.save(TENSORS)


def parts_of(data: bytes) -> tuple[dict[str, dict[str, object]], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def changed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(old, new, 1)


def flipped(place: int) -> Callable[[bytes], bytes]:
    """A bit of the bytes of the tensors is another, counted from the end."""
    return lambda data: data[: len(data) - place] + bytes([data[-place] ^ 1]) + data[len(data) - place + 1 :]


DAMAGE = {
    "the last bit of a tensor": flipped(1),
    "a bit of the first tensor": flipped(3 * 8 + 1),
    "another name": changed(b'"spread"', b'"spreae"'),
    "another type": changed(b'"F32","shape":[2,3]', b'"I32","shape":[2,3]'),
    "another shape": changed(b'"shape":[2,3]', b'"shape":[3,2]'),
    "another digest": lambda data: re.sub(rb'(?<=sha256":").', lambda found: b"1" if found[0] == b"0" else b"0", data),
}


def test_weights_are_saved_with_a_digest_and_are_plain_safetensors(tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", WEIGHTS)
    data = path.read_bytes()
    for found in (safetensors.torch.load_file(path), safetensors.torch.load(store.load_weights("k"))):
        assert found.keys() == TENSORS.keys()
        assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in TENSORS.items())
    (plain, tensors), (header, same) = parts_of(WEIGHTS), parts_of(data)
    assert same == tensors
    assert int.from_bytes(data[:8], "little") % 8 == 0
    metadata = header.pop("__metadata__")
    assert header == plain
    text = json.dumps({"__metadata__": {"run": "k"}, **header}, sort_keys=True, separators=(",", ":"))
    assert metadata == {"run": "k", "contents_sha256": hashlib.sha256(text.encode() + tensors).hexdigest()}
    with safetensors.safe_open(path, "pt") as opened:
        assert opened.metadata() == metadata
    for again in (WEIGHTS, data, former(WEIGHTS)):
        store.save_weights("k", again)
        assert store.load_weights("k") == data


def former(data: bytes) -> bytes:
    """Weights as versions saved them that did not name the run."""
    header, tensors = parts_of(data)
    text = json.dumps({"__metadata__": {}, **header}, sort_keys=True, separators=(",", ":")).encode()
    told = {"__metadata__": {"contents_sha256": hashlib.sha256(text + tensors).hexdigest()}, **header}
    return headed(json.dumps(told, separators=(",", ":")).encode()) + tensors


@pytest.mark.parametrize("how", ["swapped", "copied"])
def test_weights_of_another_run_are_refused(how: str, tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    first, second = (store.save_weights(key, WEIGHTS) for key in ("k1", "k2"))
    assert store.load_weights("k1") != store.load_weights("k2"), "each names its run"
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    if how == "swapped":
        second.write_bytes(one)
    line = f"{first} is damaged: it holds the weights of another run"
    with pytest.raises(DamagedWeightsError, match=f"^{re.escape(line)}$") as error:
        store.load_weights("k1")
    assert error.value.why == "it holds the weights of another run"
    with pytest.raises(OSError, match=f"^{re.escape(line)}$"):
        weights_of(str(tmp_path))("k1")
    if how == "copied":
        assert store.load_weights("k2") == two
    store.save_weights("k1", two)
    assert store.load_weights("k1") == one, "who saves them for a run means this run"


def test_weights_that_do_not_name_their_run_are_loaded_as_before(tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", WEIGHTS)
    path.write_bytes(former(WEIGHTS))
    assert store.load_weights("k") == former(WEIGHTS)
    path.write_bytes(flipped(1)(former(WEIGHTS)))
    with pytest.raises(DamagedWeightsError, match=r"its contents are not those of its SHA-256$"):
        store.load_weights("k")


def test_other_metadata_are_kept_and_covered(tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", safetensors.torch.save(TENSORS, {"format": "pt"}))
    with safetensors.safe_open(path, "pt") as opened:
        assert sorted(opened.metadata()) == ["contents_sha256", "format", "run"]
    path.write_bytes(path.read_bytes().replace(b'"format":"pt"', b'"format":"np"'))
    with pytest.raises(DamagedWeightsError):
        store.load_weights("k")


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_weights_that_can_still_be_read_are_refused(what: str, tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", WEIGHTS)
    whole = path.read_bytes()
    path.write_bytes(damaged := DAMAGE[what](whole))
    assert damaged != whole
    safetensors.deserialize(damaged)
    line = f"{path} is damaged: its contents are not those of its SHA-256"
    with pytest.raises(UnreadableError, match=f"^{re.escape(line)}$"):
        store.load_weights("k")
    with pytest.raises(OSError, match=f"^{re.escape(line)}$"):
        weights_of(str(tmp_path))("k")
    assert store.weights_path("k").read_bytes() == damaged


@pytest.mark.parametrize(
    "data",
    [WEIGHTS, flipped(1)(WEIGHTS), safetensors.torch.save(TENSORS, {"sha256": "0"}), b"", b"w", bytes(8), WEIGHTS[:-4]],
    ids=["as before", "damaged", "other metadata", "nothing", "no weights", "no header", "cut short"],
)
def test_weights_without_a_digest_are_loaded_as_before(data: bytes, tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", WEIGHTS)
    path.write_bytes(data)
    assert store.load_weights("k") == data


def headed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def deep(depth: int) -> bytes:
    return headed(b'{"__metadata__":{"contents_sha256":"0"},"x":' + b"[" * depth + b"]" * depth + b"}")


def test_what_safetensors_refuses_is_left_to_it(tmp_path: Path) -> None:
    store = Artifacts(tmp_path)
    path = store.save_weights("k", WEIGHTS)
    whole = path.read_bytes()
    unknown, longer = whole.replace(b'"F32"', b'"F33"', 1), whole + b"0"
    others = [headed(text) for text in (b"[1]", b"7", b"null", b'{"__metadata__":7}', b'{"__metadata__":["contents_sha256"]}')]
    for data in (whole[:-4], whole[:40], longer, unknown, *others, *map(deep, (500, 1500, 3000, 100_000))):
        path.write_bytes(data)
        assert store.load_weights("k") == data
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(data)
