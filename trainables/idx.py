"""MNIST as its authors publish it: IDX files of images and labels, gzip or not, in a folder."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

SIDE = 28
LARGEST_LABEL = 9
MOST_BYTES = 100 << 20
"""MNIST's largest file has 47 million bytes, unpacked. One whose header promises more than this is not read."""
IMAGES, LABELS = ("train-images", "idx3-ubyte", 2051), ("train-labels", "idx1-ubyte", 2049)
"""Of each file: the two parts of its name, which stand apart by - or by a dot, and the magic number it begins with."""
GZIP = b"\x1f\x8b"


def read_digit(folder: Path, digit: int, index: int = 0) -> np.ndarray:
    """Image number `index` of a digit among MNIST's training images, counted from 0, (28, 28) uint8: ink 255, paper 0.

    Raises:
        ValueError: in a user's words, a file that is missing, damaged or not what its name says; no such image.
    """
    _, counts, pixels = _read(folder, IMAGES, 3)
    path, (labelled,), labels = _read(folder, LABELS, 1)
    count, *shape = counts
    if shape != [SIDE, SIDE]:
        raise ValueError(f"the images in {folder} are {shape[0]} x {shape[1]} pixels, and MNIST's are {SIDE} x {SIDE}")
    if count != labelled:
        raise ValueError(f"{folder} has {count} images and {labelled} labels: download both files from one place")
    if len(others := labels[labels > LARGEST_LABEL]):
        raise ValueError(f"{path} has the label {others[0]}, and MNIST's lie in 0..{LARGEST_LABEL}: download it again")
    (places,) = np.nonzero(labels == digit)
    if not 0 <= index < len(places):
        raise ValueError(f"{folder} has {len(places)} images of the digit {digit}, so there is no number {index} (from 0)")
    return pixels.reshape(count, SIDE, SIDE)[places[index]].copy()


def _read(folder: Path, names: tuple[str, str, int], dimensions: int) -> tuple[Path, list[int], np.ndarray]:
    """An IDX file: its path, the sizes in its header, and its bytes, flat."""
    stem, kind, magic = names
    candidates = [folder / f"{stem}{mark}{kind}{end}" for mark in "-." for end in ("", ".gz")]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise ValueError(f"{folder} has no file {stem}-{kind}, nor one with .gz: give a folder with MNIST's training files")
    header = 4 * (1 + dimensions)
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(header)
            found, *sizes = np.frombuffer(content.ljust(header, b"\0"), ">u4").tolist()
            expected = header + math.prod(sizes)
            if found == magic and expected <= MOST_BYTES:
                content += stream.read(expected - len(content) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}): download it again") from None
    if found != magic:
        raise ValueError(f"{path} begins with {found}, but a file of MNIST's {stem.partition('-')[2]} begins with {magic}")
    if expected > MOST_BYTES:
        raise ValueError(f"{path} is not a file of MNIST: its header promises {expected} bytes")
    if len(content) != expected:
        more = " or more" if len(content) > expected else ""
        raise ValueError(f"{path} has {len(content)} bytes{more}, not the {expected} of its header: download it again")
    return path, sizes, np.frombuffer(content, np.uint8, offset=header)
