"""CLEVRER (Yi et al. 2020, arXiv 1910.01442): videos of objects that collide, in the files of its authors:

    video_train/video_00000-01000/video_00000.mp4                  128 frames of 480 x 320 pixels
    annotation_train/annotation_00000-01000/annotation_00000.json  `object_property`, `motion_trajectory`, `collision`

A composition says three things of one object, that with the lowest id in the first collision: its shape (0 a cube, 1 a
sphere), its material (0 rubber, 1 metal), and the sign of its velocity along x (0 negative, 1 positive) in the frame of the
collision. Videos without a collision are not used, nor those whose object is a cylinder or does not move along x. Of every ten
videos, the one whose number ends with 9 is for tests.

A picture is four frames around the collision, in the order of reading on a grid of 2 x 2. So it is a picture like any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainables.generative.album import TEST, TRAIN, Album, Labelled, Source, album_of, contents

VIDEOS, ANNOTATIONS = "video_train", "annotation_train"
GROUP = re.compile(r"annotation_[0-9]{5}-[0-9]{5}", re.ASCII)
NAME = re.compile(r"annotation_([0-9]{5})\.json", re.ASCII)
SHAPES, MATERIALS = {"cube": 0, "sphere": 1}, {"rubber": 0, "metal": 1}
SIZE = (480, 320)
"""Width and height of a frame in pixels."""
LENGTH = 128
"""Frames of a video."""
AROUND = (-12, -4, 4, 12)
"""The frames of a picture, counted from that of the collision: just under a second of 25 frames."""
MOST_BYTES = 16 << 20
"""Of an annotation."""
AGAIN = "unpack annotation_train.zip again"


def album(folder: Path) -> Album:
    """The pictures in a folder with the two folders above.

    Raises:
        ValueError: one line that names the file and what to do: it is missing or damaged, a composition has no pictures, or
            PyAV is not installed.
    """
    _av()
    return album_of(folder, _labelled(folder), f"unpack video_train.zip in {folder / VIDEOS}")


def picture(source: Source, N: int) -> np.ndarray:
    """A picture (3, N, N) uint8: its four frames, each squeezed to N / 2 x N / 2 with an antialiasing (bicubic) filter.

    Raises:
        ValueError: one line: N is odd, or the video cannot be read or is none of CLEVRER.
    """
    if N % 2:
        raise ValueError(f"a picture of four frames needs an even N, not {N}")
    half, wanted, found = N // 2, set(source.frames), {}
    for at, frame in _frames(source.path, max(source.frames)):
        if at in wanted:
            small = Image.fromarray(frame.to_ndarray(format="rgb24")).resize((half, half), Image.Resampling.BICUBIC)
            found[at] = np.asarray(small).transpose(2, 0, 1)
    if missing := wanted - found.keys():
        raise ValueError(f"{source.path} ends before its frame {min(missing)}: unpack video_train.zip again")
    a, b, c, d = (found[at] for at in source.frames)
    return np.concatenate([np.concatenate([a, b], 2), np.concatenate([c, d], 2)], 1)


def _frames(path: Path, last: int) -> Iterator[tuple[int, Any]]:
    """The frames of a video up to number `last`, with their numbers."""
    av = _av()
    try:
        # nothing else: a playlist could name other files; a title in letters of any kind is no reason to refuse
        with av.open(str(path), format="mp4", metadata_errors="replace") as video:
            stream = video.streams.video[0]
            if stream.codec_context is None:
                raise ValueError(f"{path} cannot be read (its codec is unknown): unpack video_train.zip again")
            if (stream.width, stream.height) != SIZE:
                given = f"{stream.width} x {stream.height} pixels, and videos of CLEVRER have {SIZE[0]} x {SIZE[1]}"
                raise ValueError(f"{path} has {given}: unpack video_train.zip")
            for at, frame in enumerate(video.decode(stream)):
                yield at, frame
                if at == last:
                    return
    except (av.FFmpegError, OSError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "it has no video"
        raise ValueError(f"{path} cannot be read ({reason}): unpack video_train.zip again") from None


def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise ValueError(f"videos are read with PyAV, which cannot be imported ({error}): pip install '.[video]'") from None
    return av


def _labelled(folder: Path) -> Iterator[Labelled]:
    paths = sorted(path for path in (folder / ANNOTATIONS).glob("*/*") if GROUP.fullmatch(path.parent.name))
    if not any(NAME.fullmatch(path.name) for path in paths):
        wanted = f"{ANNOTATIONS}/annotation_00000-01000/annotation_00000.json"
        raise ValueError(f"{folder} has no {wanted}: unpack annotation_train.zip and video_train.zip of CLEVRER there")
    for path in paths:
        if (name := NAME.fullmatch(path.name)) and (known := _known(path)) is not None:
            word, frame = known
            group = path.parent.name.replace("annotation", "video", 1)
            frames = tuple(min(max(frame + offset, 0), LENGTH - 1) for offset in AROUND)
            source = Source(folder / VIDEOS / group / f"video_{name[1]}.mp4", frames)
            yield Labelled(TEST if name[1].endswith("9") else TRAIN, word, source)


def _known(path: Path) -> tuple[str, int] | None:
    """The composition of a video, and the frame of its first collision, from its annotation; None if it is not used."""
    try:
        told = json.loads(contents(path, MOST_BYTES, AGAIN))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply: {AGAIN}") from None
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} is no JSON ({error}): {AGAIN}") from None
    try:
        return _read(told)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is not what CLEVRER says of a video ({reason[:100]}): {AGAIN}") from None


def _read(told: Any) -> tuple[str, int] | None:
    if not told["collision"]:
        return None
    first = min(told["collision"], key=lambda one: (one["frame_id"], min(one["object_ids"])))
    lowest, frame = min(first["object_ids"]), first["frame_id"]
    if type(frame) is not int or not 0 <= frame < LENGTH:
        raise ValueError(f"the frame of a collision is {frame!r:.20}, not one of 0 to {LENGTH - 1}")
    objects = [one for one in told["object_property"] if one["object_id"] == lowest]
    if not objects:
        raise ValueError(f"an object {lowest!r:.20} collides and has no properties")
    moments = [one for one in told["motion_trajectory"] if one["frame_id"] == frame]
    speeds = [one["velocity"][0] for moment in moments for one in moment["objects"] if one["object_id"] == lowest]
    shape, material = SHAPES.get(objects[0]["shape"]), MATERIALS.get(objects[0]["material"])
    moving = None if not speeds or not (speeds[0] > 0 or speeds[0] < 0) else int(speeds[0] > 0)
    if shape is None or material is None or moving is None:
        return None
    return f"{shape}{material}{moving}", frame
