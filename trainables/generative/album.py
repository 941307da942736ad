"""Real pictures in the files of a data set: which there are of each composition, and what identifies them.

`celeba` and `clevrer` each have two functions: `album(folder)` finds the pictures, `picture(source, N)` reads one.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trainables.generative.shapes import COMPOSITIONS

TRAIN, TEST = "train", "test"
MOST = {TRAIN: 10_000, TEST: 100}
"""Pictures of a composition that are used, the first ones of the data set."""


class Source(NamedTuple):
    """Where a picture comes from."""

    path: Path
    frames: tuple[int, ...] = ()
    """Of a video, those that make the picture."""


class Labelled(NamedTuple):
    """A picture that may be used: its part, TRAIN or TEST, its composition, such as `011`, and its file."""

    part: str
    word: str
    source: Source


@dataclass(frozen=True, slots=True)
class Album:
    """The pictures of a data set, by part and composition; there is at least one of each."""

    pictures: Mapping[tuple[str, str], Sequence[Source]]
    content: str
    """24 hexadecimal digits that stand for all of it: the part, the composition and the frames of every picture, and the name
    and the size in bytes of its file. The folder is no part of it, so a data set that is moved stays the same."""


def album_of(folder: Path, found: Iterable[Labelled], missing: str) -> Album:
    """The first pictures of each composition, and the digest of what they are.

    Args:
        missing: what to do about a file that is not there.

    Raises:
        ValueError: one line: a file is missing, or a composition has no pictures.
    """
    pictures: dict[tuple[str, str], list[Source]] = {(part, word): [] for part in MOST for word in COMPOSITIONS}
    digest = hashlib.sha256()
    for part, word, source in found:
        if len(of_word := pictures[part, word]) < MOST[part]:
            name, size = source.path.relative_to(folder).as_posix(), _size(source.path, missing)
            of_word.append(source)
            digest.update(f"{part} {word} {name} {size} {source.frames}\n".encode())
    for (part, word), sources in pictures.items():
        if not sources:
            raise ValueError(f"{folder} has no {part} picture of composition {word}: give a folder with the whole data set")
    return Album(pictures, digest.hexdigest()[:24])


def contents(path: Path, most: int, instead: str) -> bytes:
    """What is in a file of annotations.

    Args:
        most: bytes that it may have.
        instead: what to do if it cannot be read.

    Raises:
        ValueError: one line: it cannot be read, or is larger.
    """
    if _size(path, instead) > most:
        raise ValueError(f"{path} has more than {most} bytes, so it is no such file: {instead}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {instead}") from None


def _size(path: Path, instead: str) -> int:
    """Bytes of a file."""
    try:
        about = path.stat()
    except OSError as error:
        raise ValueError(f"{path} cannot be found ({error.strerror}): {instead}") from None
    if not stat.S_ISREG(about.st_mode):  # a pipe could be read for ever
        raise ValueError(f"{path} is no file: {instead}")
    return about.st_size
