"""What a store keeps beside its rows: the weights and the checkpoint of each run, pack sizes, and what a study published."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import safetensors

from orchestrator.store.bucket import Bucket, place_of
from orchestrator.store.place import Item, Result, Tell, UnreadableError, tell_on_stderr

PACK_SIZES = "pack-sizes.json"
LARGEST_PACK = 4096
"""No measurement of a pack size gets so far."""
MOST_WEIGHTS, MOST_CHECKPOINT, MOST_PACK_SIZES = 64 << 30, 256 << 30, 64 << 20
"""Bytes of a file, where nothing says how large the network is. A checkpoint also has what the optimizer remembers."""
METADATA, RUN, DIGEST = "__metadata__", "run", "contents_sha256"
"""Where in the header of a safetensors file the key of its run is, and its digest: of the rest of the header, as JSON with
sorted names and no spaces, and the bytes of the tensors."""


class DamagedWeightsError(UnreadableError):
    """The weights of a run are not what was saved, and nothing but their metadata tell."""

    why = "its contents are not those of its SHA-256"


class StrangeWeightsError(DamagedWeightsError):
    """The weights of a run are those of another one: files were swapped, or one was copied over another."""

    why = "it holds the weights of another run"


class Artifacts:
    """The files of a store beside its rows. Cheap to make: nothing is read, and nothing created before a save.

    The store is a folder, or a place in a bucket, `s3://BUCKET/PATH` or `gs://BUCKET/PATH`; `place` is either.

    Every save is atomic and durable: a reader sees the old file or the new one, whole, and what `save_*` returned
    from survives a crash, with a bucket also the loss of this machine. Two processes may save the same key; the later one wins.

    A bucket that does not answer is waited for, for some minutes (see `Remote`).

    Args:
        tell: is given a line when such a wait gets long, and one when it is over.

    Raises:
        StoreError: the place cannot be written, or the disk is full; the former file is intact.
    """

    def __init__(self, path: str | Path, tell: Tell = tell_on_stderr) -> None:
        self.place = place_of(path, tell)

    @property
    def location(self) -> str | Path:
        """The store as users know it: its folder, or its URI."""
        return self.place.location

    @property
    def path(self) -> Path:
        """The folder, or one of this machine that mirrors the bucket, and may go while no launch is at work."""
        return self.place.path

    @property
    def notices(self) -> list[str]:
        """What was found that does not belong there, a line each."""
        return self.place.notices

    def weights_path(self, key: str) -> Path:
        """Where the weights of a run are, if it kept any; those in a bucket are fetched."""
        with self.place.in_words(f"read the weights of run {key}"):
            return self.place.fetch(_weights(key))

    def load_weights(self, key: str, most: int | None = None) -> bytes:
        """
        Args:
            most: bytes that the network needs, if that is known. A file may say that it is huge, and be nearly nothing on disk.

        Raises:
            FileNotFoundError: it kept none.
            UnreadableError: they cannot be read, or are too large.
            DamagedWeightsError: they are not what was saved, or those of another run, though safetensors would read them. Those
                of former versions have no digest that could tell, or do not name their run.
        """
        with self.place.in_words(f"read the weights of run {key}"):
            data = self._load(_weights(key), MOST_WEIGHTS, most)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.place.shown(_weights(key)))
        if (error := _what_is_wrong(key, data)) is not None:
            raise error(f"{self.place.shown(_weights(key))} is damaged: {error.why}")
        return data

    def save_weights(self, key: str, data: bytes) -> Path:
        """Keep a safetensors file, with its run and a digest in its metadata by which `load_weights` knows it again.

        Returns:
            Where they are, or will be once they are fetched.
        """
        with self.place.in_words(f"save the weights of run {key}"):
            self.place.save(_weights(key), _signed(key, data))
        return self.path / _weights(key)

    def set_weights_aside(self, key: str) -> str:
        """Move damaged weights to where nobody takes them for those of a run.

        Returns:
            Where they are now, as a user finds them.
        """
        with self.place.in_words(f"set aside the weights of run {key}"):
            aside = self.place.place_aside(f"{key}.safetensors")
            self.place.fetch(_weights(key))  # only what is on this machine, too, can be moved
            with contextlib.suppress(FileNotFoundError):  # another process has just done it
                self.place.move(_weights(key), aside)
        return self.place.shown(aside)

    def with_weights(self) -> set[str]:
        """The keys of the runs whose weights are kept. In a folder a broken link, or another folder, is none."""
        kept = self._keys_in("weights", ".safetensors")
        return kept if isinstance(self.place, Bucket) else set(filter(self.has_weights, kept))

    def has_weights(self, key: str) -> bool:
        """Whether the weights of a run are kept: one request, where `with_weights` lists those of all runs."""
        with self.place.in_words(f"look for the weights of run {key}"):
            return self.place.size(_weights(key)) is not None

    def with_checkpoints(self) -> set[str]:
        """The keys of the runs that have a checkpoint."""
        return self._keys_in("checkpoints", ".pt")

    def _keys_in(self, folder: str, ending: str) -> set[str]:
        with self.place.in_words(f"read the list of {folder}"):
            return {Path(name).stem for name in self.place.names(folder) if Path(name).suffix == ending}

    def checkpoint_path(self, key: str) -> Path:
        return self.path / _checkpoint(key)

    def save_checkpoint(self, key: str, data: bytes) -> None:
        with self.place.in_words(f"save the checkpoint of run {key}"):
            self.place.save(_checkpoint(key), data)

    def load_checkpoint(self, key: str) -> bytes | None:
        """The bytes saved last, or None if there is no checkpoint, or none that can be read, which `notices` then tell."""
        with self.place.in_words(f"read the checkpoint of run {key}"):
            try:
                return self._load(_checkpoint(key), MOST_CHECKPOINT)
            except UnreadableError as error:
                self.place.note(f"{error}: the run starts from the beginning")
                return None

    def load_checkpoints(self, keys: Sequence[str]) -> dict[str, bytes]:
        """What `load_checkpoint` gives for each of the runs that have a checkpoint. In a bucket it is listed once which do."""
        names = {_checkpoint(key).partition("/")[2]: key for key in keys}
        with self.place.in_words("read the list of checkpoints"):
            there = [names[name] for name in self.place.among("checkpoints", list(names))]
        loaded = zip(there, self.each(self.load_checkpoint, there), strict=True)
        return {key: data for key, data in loaded if data is not None}

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What a method that loads, saves or drops one file gives for each of the items; with a bucket, several at a time. What
        the first one raises is raised, once none is at work any more."""
        return self.place.each(do, items)

    def _load(self, name: str, limit: int, most: int | None = None) -> bytes | None:
        """A file, unless it has more than `most` bytes, or than the limit of all such files.

        Raises:
            UnreadableError: it cannot be read, or is too large.
        """
        size = self.place.size(name)
        if size is None and isinstance(self.place, Bucket):  # in a folder there may be something that is no file
            return None
        if size is not None and size > (most or limit):
            told = "its network needs" if most else f"{limit >> 30} GiB"
            raise UnreadableError(f"{self.place.shown(name)} holds {size:,} bytes, more than {told}")
        return self.place.load(name)

    def drop_checkpoint(self, key: str) -> None:
        with self.place.in_words(f"remove the checkpoint of run {key}"):
            self.place.delete([_checkpoint(key)])

    def load_pack_sizes(self) -> dict[str, int]:
        """What was saved last; nothing if there is nothing, or a file that is damaged: sizes can be measured again."""
        try:
            saved = json.loads(self._load(PACK_SIZES, MOST_PACK_SIZES) or b"{}")
        except (OSError, UnreadableError, ValueError, RecursionError):
            return {}
        known = saved.items() if isinstance(saved, dict) else ()
        return {shape: size for shape, size in known if type(size) is int and 1 <= size <= LARGEST_PACK}

    def save_pack_sizes(self, sizes: Mapping[str, int]) -> None:
        with self.place.in_words("save the pack sizes"):
            self.place.save(PACK_SIZES, json.dumps(dict(sizes), indent=1, sort_keys=True).encode())

    def publish(self, folder: str, files: Iterable[Path]) -> list[str]:
        """Copy files of this machine, and all that is in the folders among them, into a folder of the bucket. A store that is
        not in one leaves them where they are.

        Returns:
            Each file as a user finds it.
        """
        with self.place.in_words("put figures and tables"):
            return self.place.publish(folder, files)

    @property
    def waited(self) -> float:
        """Seconds for which the bucket has not answered, in all."""
        return self.place.waited

    def hasten(self) -> None:
        """Have no patience any more with a bucket that does not answer: who waits for it gives up within a second or two. For a
        launch that is to end, from any thread."""
        self.place.hasten()

    def close(self) -> None:
        """Free every lock and claim held through this object. Harmless when repeated."""
        self.place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _weights(key: str) -> str:
    return f"weights/{key}.safetensors"


def _checkpoint(key: str) -> str:
    return f"checkpoints/{key}.pt"


def _signed(key: str, data: bytes) -> bytes:
    """A safetensors file with the key of its run and its digest in the header; anything else as it is."""
    if (parts := _parts(data)) is None:
        return data
    header, metadata, tensors = parts
    metadata = {**{name: value for name, value in metadata.items() if name not in (RUN, DIGEST)}, RUN: key}
    told = {METADATA: {**metadata, DIGEST: _digest(header, metadata, tensors)}, **header}
    text = json.dumps(told, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that tensors stay where they are read without a copy
    return b"".join((len(text).to_bytes(8, "little"), text, tensors))


def _what_is_wrong(key: str, data: bytes) -> type[DamagedWeightsError] | None:
    """What is wrong with a safetensors file that has a digest. Whoever reads what is none learns it anyway."""
    if (parts := _parts(data)) is None:
        return None
    header, metadata, tensors = parts
    try:
        if DIGEST not in metadata:
            return None
        if metadata[DIGEST] == _digest(header, metadata, tensors):
            return None if metadata.get(RUN, key) == key else StrangeWeightsError
        safetensors.deserialize(data)
    except (RecursionError, safetensors.SafetensorError):
        return None
    return DamagedWeightsError


def _parts(data: bytes) -> tuple[dict[str, Any], dict[str, Any], memoryview] | None:
    """The header of a safetensors file without metadata, these, and the bytes of its tensors. None if it is no such file."""
    size = int.from_bytes(data[:8], "little")
    if not 8 + size <= len(data):
        return None
    try:
        header = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError):
        return None
    metadata = header.pop(METADATA, {}) if isinstance(header, dict) else None
    return (header, metadata, memoryview(data)[8 + size :]) if isinstance(metadata, dict) else None


def _digest(header: dict[str, Any], metadata: dict[str, Any], tensors: memoryview) -> str:
    others = {name: value for name, value in metadata.items() if name != DIGEST}
    told = {**header, METADATA: others}
    found = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode())
    found.update(tensors)
    return found.hexdigest()
