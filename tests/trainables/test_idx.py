"""MNIST's files: what is read from good ones, and what is said of every kind of bad one."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from trainables.idx import read_digit

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
LABELS = [4, 1, 4, 0]


def images(count: int = 4, side: int = 28, magic: int = 2051) -> bytes:
    """Image i is filled with the number i + 1, but for a 0 at row 2, column 5."""
    pixels = np.repeat(np.arange(1, count + 1, dtype=np.uint8), side * side).reshape(count, side, side)
    pixels[:, 2, 5] = 0
    return struct.pack(">4I", magic, count, side, side) + pixels.tobytes()


def labels(values: list[int] = LABELS, magic: int = 2049) -> bytes:
    return struct.pack(">2I", magic, len(values)) + bytes(values)


def write(folder: Path, of_images: bytes, of_labels: bytes, names: tuple[str, str] = NAMES) -> Path:
    for name, content in zip(names, (of_images, of_labels), strict=True):
        (folder / name).write_bytes(content)
    return folder


def plain(content: bytes) -> bytes:
    return content


@pytest.mark.parametrize("packed", [plain, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("mark", ["-", "."])
def test_a_digit_is_read_whatever_the_files_are_called_and_whether_packed(packed, end: str, mark: str, tmp_path: Path) -> None:
    names = (f"train-images{mark}idx3-ubyte{end}", f"train-labels{mark}idx1-ubyte{end}")
    write(tmp_path, packed(images()), packed(labels()), names)
    second = read_digit(tmp_path, 4, 1)
    assert second.shape == (28, 28)
    assert second.dtype == np.uint8
    assert second[2, 5] == 0
    assert second[5, 2] == 3
    assert read_digit(tmp_path, 4).max() == 1
    assert read_digit(tmp_path, 0).max() == 4


PACKED = gzip.compress(images())
BAD = {
    "truncated images": (images()[:-1], labels(), "has 3151 bytes, not the 3152 of its header"),
    "too long": (images() + b"1", labels(), "has 3153 bytes or more, not the 3152"),
    "much too long, packed": (gzip.compress(images()) + gzip.compress(bytes(1 << 20)) * 4000, labels(), "3153 bytes or more"),
    "a header that promises terabytes": (struct.pack(">4I", 2051, *3 * [2**32 - 1]), labels(), "not a file of MNIST"),
    "half a header": (images()[:10], labels(), "has 10 bytes, not the 16"),
    "nothing": (b"", labels(), "begins with 0, but a file of MNIST's images begins with 2051"),
    "labels for images": (labels(), labels(), "begins with 2049, but a file of MNIST's images begins with 2051"),
    "images for labels": (images(), images(), "begins with 2051, but a file of MNIST's labels begins with 2049"),
    "truncated labels": (images(), labels()[:-2], "has 10 bytes, not the 12"),
    "truncated gzip": (PACKED[:-20], labels(), "cannot be read"),
    "damaged gzip": (PACKED[:20] + b"\xff" * 8 + PACKED[28:], labels(), "cannot be read"),
    "other counts": (images(3), labels(), "has 3 images and 4 labels"),
    "other images": (images(side=20), labels(), "are 20 x 20 pixels, and MNIST's are 28 x 28"),
    "a label that is no digit": (images(), labels([4, 1, 44, 200]), f"{NAMES[1]} has the label 44, and MNIST's lie in 0..9"),
    "no such digit": (images(), labels([1, 2, 3, 5]), "has 0 images of the digit 4"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_told_in_words(name: str, tmp_path: Path) -> None:
    of_images, of_labels, hint = BAD[name]
    with pytest.raises(ValueError, match=hint):
        read_digit(write(tmp_path, of_images, of_labels), 4)


def test_an_index_beyond_the_last_image_of_a_digit(tmp_path: Path) -> None:
    write(tmp_path, images(), labels())
    with pytest.raises(ValueError, match="has 2 images of the digit 4, so there is no number 2"):
        read_digit(tmp_path, 4, 2)


@pytest.mark.parametrize("missing", NAMES)
def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    (write(tmp_path, images(), labels()) / missing).unlink()
    with pytest.raises(ValueError, match=f"has no file {missing}"):
        read_digit(tmp_path, 4)
    with pytest.raises(ValueError, match="nowhere has no file"):
        read_digit(tmp_path / "nowhere", 4)
