"""Pictures for the three tasks: rendered, or read from the files of a data set.

Real pictures are told to a model by the numbers that the same bits have among rendered ones, their class means (see
`shapes.conditions`). So networks need not know what they learn from. Shapes in comments: n pictures of N x N pixels.

What identifies real pictures in a run is their `Album.content`. Where they lie is none of a run's business: every process finds
their folder in the environment variable FOLDER, and looks whether the content is that of the run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.generative import celeba, clevrer, probe, shapes
from trainables.generative.album import TEST, TRAIN, Album, Source
from trainables.generative.settings import RENDERED, PictureSettings
from trainables.generative.shapes import COMPOSITIONS, Pictures, bits_of, bundled, class_conditions
from trainables.training.run import UnfitError
from trainables.training.seeds import stream

FOLDER = "SWEEP_DATA"
POOL = "pool"
"""The pictures that runs learn from. All others, whatever their name, are of those for tests."""
ALBUMS: Mapping[str, Callable[[Path], Album]] = {"celeba": celeba.album, "clevrer": clevrer.album}
READERS: Mapping[str, Callable[[Source, int], np.ndarray]] = {"celeba": celeba.picture, "clevrer": clevrer.picture}
KEPT = 1 << 16
"""Pictures that a process keeps in memory: reading takes longer than rendering."""
FEW = 2
"""Real pictures of a composition and a part that are read for a run which is only timed."""
_most: ContextVar[int | None] = ContextVar("_most", default=None)


@contextlib.contextmanager
def few() -> Iterator[None]:
    """For the block, real pictures are the same FEW again and again: as many as without it, and soon read."""
    before = _most.set(FEW)
    try:
        yield
    finally:
        _most.reset(before)


def pool(
    settings: PictureSettings, N: int, compositions: tuple[str, ...], count: int, seed: int, name: str = POOL
) -> Pictures:
    """Pictures of these compositions, which take turns. A larger pool begins with a smaller one. Rendered ones are unique; real
    ones of a composition come in an order that the seed draws, and begin again where there are fewer than asked for.

    Raises:
        UnfitError: one line: their files are not here, are damaged, or are not those of the run.
    """
    if settings.dataset == RENDERED:
        return shapes.pool(settings, N, compositions, count, seed, name)
    try:
        return _real(settings, N, compositions, count, seed, TRAIN if name == POOL else TEST)
    except ValueError as error:
        raise UnfitError(str(error)) from None


def _real(
    settings: PictureSettings, N: int, compositions: tuple[str, ...], count: int, seed: int, part: str
) -> Pictures:
    """Real pictures, see `pool`; a ValueError where they cannot be read."""
    album, k = _album(settings), len(compositions)
    sources = {word: album.pictures[part, word][: _most.get()] for word in compositions}
    orders = {
        word: torch.randperm(len(of_word), generator=stream(seed, "pictures", part, word)).tolist()
        for word, of_word in sources.items()
    }
    images = torch.empty(count, 3, N, N)
    for i in range(count):
        of_word, order = sources[word := compositions[i % k]], orders[word]
        images[i] = torch.from_numpy(_read(settings.dataset, of_word[order[i // k % len(order)]], N)) / 255
    bits = bits_of(compositions)[torch.arange(count) % k]
    return Pictures(images, class_conditions(settings, bits), bits)


def bundles(
    settings: PictureSettings, N: int, compositions: tuple[str, ...], each: int, seed: int, name: str
) -> Pictures:
    """The same, with an axis in front: all pictures of a composition are one sample (compositions, each, ...)."""
    return bundled(pool(settings, N, compositions, each * len(compositions), seed, name), len(compositions))


def lessons(
    settings: PictureSettings, N: int, count: int, seed: int, name: str = POOL, of: str = "coded", torn: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Pictures (count, 3, N, N) to train a probe on, and the class of each factor (count, 3). `of` and `torn` are
    those of `probe.lessons`, and for rendered ones."""
    if settings.dataset == RENDERED:
        return probe.lessons(settings, N, count, seed, of, torn)
    return probe.lessons_from(pool(settings, N, COMPOSITIONS, count, seed, name), seed)


@lru_cache(maxsize=4)
def album_in(dataset: str, folder: Path) -> Album:
    """What is in a folder, looked at once in a process.

    Raises:
        ValueError: one line that names the file and what to do.
    """
    return ALBUMS[dataset](folder)


def _album(settings: PictureSettings) -> Album:
    """The album of a run, in the folder that the environment names."""
    dataset, folder = settings.dataset, os.environ.get(FOLDER)
    if not folder:
        raise ValueError(f"where the files of {dataset} lie is not known here: set {FOLDER} to their folder")
    if not Path(folder).is_dir():
        raise ValueError(f"{folder} is no folder on this machine, and has the files of {dataset}: copy or mount them there")
    album = album_in(dataset, Path(folder))
    if album.content != settings.content:
        raise ValueError(
            f"{folder} has other files of {dataset} than the run is of ({album.content}, not {settings.content}): "
            "give the folder that it was planned with, or a copy of it"
        )
    return album


@lru_cache(maxsize=KEPT)
def _read(dataset: str, source: Source, N: int) -> np.ndarray:
    return READERS[dataset](source, N)
