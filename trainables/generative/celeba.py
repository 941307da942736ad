"""CelebA (Liu et al. 2015, arXiv 1411.7766): aligned pictures of faces, in the files of its authors:

    img_align_celeba/000001.jpg    178 x 218 pixels
    list_attr_celeba.txt           the number of pictures; the names of the attributes; then `000001.jpg -1 1 ...` each
    list_eval_partition.txt        `000001.jpg 0`: 0 to train on, 1 to validate, 2 to test

A composition is (Male, not Smiling, Blond_Hair): 000 is a smiling woman with black hair. A picture is used if exactly one of
Blond_Hair and Black_Hair is said of it. One with neither has brown, grey or no hair; one with both contradicts itself. Pictures
to validate are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from trainables.generative.album import TEST, TRAIN, Album, Labelled, Source, album_of, contents

PICTURES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
USED = ("Male", "Smiling", "Blond_Hair", "Black_Hair")
SIZE = (178, 218)
"""Width and height in pixels."""
PARTS = {"0": TRAIN, "1": None, "2": TEST}
MOST_BYTES = 100 << 20
"""Of a list; that of the attributes has 26 million."""
NAME = re.compile(r"[0-9]{6}\.jpg", re.ASCII)
AGAIN = "take it from the authors' download as it is"


def album(folder: Path) -> Album:
    """The pictures in a folder with the three files above.

    Raises:
        ValueError: one line that names the file and what to do: it is missing or damaged, or a composition has no pictures.
    """
    return album_of(folder, _labelled(folder), f"unpack img_align_celeba.zip in {folder}")


def picture(source: Source, N: int) -> np.ndarray:
    """A picture (3, N, N) uint8: the centred square of 178 x 178 pixels, made smaller with an antialiasing (bicubic) filter.

    Raises:
        ValueError: one line: its file cannot be read, or is no aligned picture of CelebA.
    """
    try:
        with Image.open(source.path, formats=("JPEG",)) as image:
            if image.size != SIZE:
                given = f"{image.size[0]} x {image.size[1]} pixels, and aligned pictures have {SIZE[0]} x {SIZE[1]}"
                raise ValueError(f"{source.path} has {given}: unpack img_align_celeba.zip")
            top = (SIZE[1] - SIZE[0]) // 2
            square = image.convert("RGB").crop((0, top, SIZE[0], top + SIZE[0]))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow has a SyntaxError for damaged headers
        reason = " ".join(str(error).replace(str(source.path), "it").split())
        raise ValueError(f"{source.path} cannot be read ({reason}): unpack img_align_celeba.zip again") from None
    return np.array(square.resize((N, N), Image.Resampling.BICUBIC)).transpose(2, 0, 1)


def _labelled(folder: Path) -> Iterator[Labelled]:
    parts = _parts(folder / PARTITION)
    path = folder / ATTRIBUTES
    lines = _lines(path)
    count, names = lines[0].strip(), lines[1].split() if len(lines) > 1 else []
    if missing := [name for name in USED if name not in names]:
        raise ValueError(f"{path}, line 2, names no attribute {missing[0]}: {AGAIN}")
    if count != str(len(lines) - 2):
        raise ValueError(f"{path} says that it has {count[:20]!r} pictures, and has {len(lines) - 2}: {AGAIN}")
    columns = [1 + names.index(name) for name in USED]
    named: dict[str, int] = {}
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if len(words) != 1 + len(names) or not NAME.fullmatch(words[0]):
            raise ValueError(f"{path}, line {number}, is not `000001.jpg` and {len(names)} numbers: {AGAIN}")
        _check_once(path, named, words[0], number)
        said = [words[column] for column in columns]
        if not {*said} <= {"1", "-1"}:
            raise ValueError(f"{path}, line {number}, has an attribute that is neither 1 nor -1: {AGAIN}")
        if words[0] not in parts:
            raise ValueError(f"{folder / PARTITION} does not name {words[0]}, which {ATTRIBUTES} does: {AGAIN}")
        male, smiling, blond, black = (word == "1" for word in said)
        if blond != black and (part := parts[words[0]]) is not None:
            word = "".join(str(int(bit)) for bit in (male, not smiling, blond))
            yield Labelled(part, word, Source(folder / PICTURES / words[0]))


def _parts(path: Path) -> dict[str, str | None]:
    """The part of each picture by its name; None for those to validate."""
    found: dict[str, str | None] = {}
    named: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        words = line.split()
        if len(words) != 2 or words[1] not in PARTS:
            raise ValueError(f"{path}, line {number}, is not a name and 0, 1 or 2: {AGAIN}")
        _check_once(path, named, words[0], number)
        found[words[0]] = PARTS[words[1]]
    return found


def _check_once(path: Path, named: dict[str, int], name: str, number: int) -> None:
    """Note in which line a list names a picture.

    Raises:
        ValueError: one line: an earlier line names it, too.
    """
    if (first := named.setdefault(name, number)) != number:
        raise ValueError(f"{path}, lines {first} and {number}, name the same picture: {AGAIN}")


def _lines(path: Path) -> list[str]:
    data = contents(path, MOST_BYTES, f"give a folder with {path.name}, {PICTURES} and the other list of CelebA")
    try:
        return data.decode("ascii").rstrip().split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text of ASCII: {AGAIN}") from None
