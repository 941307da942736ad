"""The files of a store that belong to one run each, its weights and its checkpoint, and how any file of a store is written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.locks import StoreLocks

PACK_SIZES = "pack-sizes.json"

Stamp = tuple[int, int, int]
"""Inode, size and modification time: a file that was replaced has another."""


class StoreError(Exception):
    """The store cannot be used as asked. The message is one line for a user."""


class Artifacts:
    """The files of a store, one per run, beside its rows. Cheap to make: nothing is read, and nothing created before a save.

    Every save is atomic and durable: a reader sees the old file or the new one, whole, and what `save_*` returned
    from survives a crash. Two processes may save the same key; the later one wins.

    Raises:
        StoreError: the place cannot be written, or the disk is full; the former file is intact.
    """

    def __init__(self, path: str | Path) -> None:
        if "://" in str(path):
            raise StoreError(f"the store must be a folder on a file system, not {path}: mount it, or copy it here")
        self.path = Path(path)
        self._locks_or_none: StoreLocks | None = None

    def weights_path(self, key: str) -> Path:
        return self.path / "weights" / f"{key}.safetensors"

    def checkpoint_path(self, key: str) -> Path:
        return self.path / "checkpoints" / f"{key}.pt"

    def save_weights(self, key: str, data: bytes) -> Path:
        with self._in_words(f"save the weights of run {key}"):
            self._write(self.weights_path(key), data)
        return self.weights_path(key)

    def save_checkpoint(self, key: str, data: bytes) -> None:
        with self._in_words(f"save the checkpoint of run {key}"):
            self._write(self.checkpoint_path(key), data)

    def load_checkpoint(self, key: str) -> bytes | None:
        """The bytes saved last, or None if there is no checkpoint."""
        with self._in_words(f"read the checkpoint of run {key}"), contextlib.suppress(FileNotFoundError):
            return self.checkpoint_path(key).read_bytes()
        return None

    def drop_checkpoint(self, key: str) -> None:
        with self._in_words(f"remove the checkpoint of run {key}"):
            self.checkpoint_path(key).unlink(missing_ok=True)

    def load_pack_sizes(self) -> dict[str, int]:
        """What was saved last; nothing if there is nothing, or a file that is damaged: sizes can be measured again."""
        try:
            saved = json.loads((self.path / PACK_SIZES).read_text())
        except (OSError, ValueError):
            return {}
        known = saved.items() if isinstance(saved, dict) else ()
        return {shape: size for shape, size in known if isinstance(size, int) and size >= 1}

    def save_pack_sizes(self, sizes: Mapping[str, int]) -> None:
        with self._in_words("save the pack sizes"):
            self._write(self.path / PACK_SIZES, json.dumps(dict(sizes), indent=1, sort_keys=True).encode())

    def close(self) -> None:
        """Free every lock held through this object. Harmless when repeated."""
        if self._locks_or_none is not None:
            self._locks_or_none.close()
            self._locks_or_none = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _locks(self) -> StoreLocks:
        if self._locks_or_none is None:
            make_folder(self.path)
            self._locks_or_none = StoreLocks.open(self.path / ".lock")
        return self._locks_or_none

    def _write(self, target: Path, data: bytes) -> Stamp:
        """Make `target` hold `data`, atomically and durably. The temporary carries the token of its writer (see `_sweep`)."""
        temporary = self.path / ".tmp" / f"{target.name}.{secrets.token_hex(4)}.{self._locks.token}"
        make_folder(temporary.parent)
        make_folder(target.parent)
        try:
            with temporary.open("xb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
                stamp = stamp_of(os.fstat(file.fileno()))
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
        return stamp

    @contextlib.contextmanager
    def _in_words(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = {
                errno.ENOSPC: "free some space and run the same command again; everything saved before is intact",
                errno.EDQUOT: "free some space and run the same command again; everything saved before is intact",
                errno.EROFS: "choose a folder you can write to with --store",
                errno.EACCES: "choose a folder you can write to with --store",
                errno.ENOTDIR: "choose a folder with --store",
                errno.EEXIST: "choose a folder with --store",
                errno.ENOENT: "the store was moved or removed while in use",
            }.get(error.errno or 0, "everything saved before is intact")
            raise StoreError(f"cannot {action} in {self.path}: {error.strerror or error}; {hint}") from error


def stamp_of(stat: os.stat_result) -> Stamp:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
