"""Small data sets in the formats of CelebA and CLEVRER, made by the tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainables.generative import celeba, clevrer
from trainables.generative.shapes import COMPOSITIONS

USED = celeba.USED
NAMES = (*(f"Other_{i}" for i in range(36)), *USED)
"""Forty attributes, as CelebA has."""
COLLIDES_AT = 20
LENGTH = 34


def colour_of(word: str) -> tuple[int, int, int]:
    """Of the pictures of a composition."""
    a, b, c = (40 + 170 * int(bit) for bit in word)
    return a, b, c


def write_jpeg(path: Path, pixels: np.ndarray) -> None:
    """A JPEG of pixels (height, width, 3) uint8, as true as one can be."""
    Image.fromarray(pixels).save(path, quality=100, subsampling=0)


def face(word: str) -> np.ndarray:
    """An aligned picture: flat within the square that is used, and green above and below."""
    pixels = np.full((218, 178, 3), colour_of(word), np.uint8)
    pixels[:16] = pixels[208:] = (0, 255, 0)
    return pixels


def attributes_of(word: str) -> dict[str, int]:
    """What CelebA would say of a composition."""
    male, serious, blond = (2 * int(bit) - 1 for bit in word)
    return dict(zip(USED, (male, -serious, blond, -blond), strict=True))


def write_celeba(folder: Path, train: int = 3, test: int = 2) -> Path:
    """So many pictures of each composition; and of some that are not used: to validate, with no hair, with two colours."""
    entries = [(word, 0, {}) for _ in range(train) for word in COMPOSITIONS]
    entries += [(word, 2, {}) for _ in range(test) for word in COMPOSITIONS]
    entries += [("000", 1, {}), ("000", 0, {"Black_Hair": -1}), ("001", 2, {"Black_Hair": 1})]
    (folder / celeba.PICTURES).mkdir(parents=True)
    lines, parts = [], []
    for number, (word, part, changed) in enumerate(entries, 1):
        name = f"{number:06d}.jpg"
        write_jpeg(folder / celeba.PICTURES / name, face(word))
        said = dict.fromkeys(NAMES, -1) | attributes_of(word) | changed
        lines.append(f"{name} " + " ".join(f"{said[one]:2d}" for one in NAMES))
        parts.append(f"{name} {part}")
    text = [str(len(entries)), " ".join(NAMES) + " ", *lines]
    (folder / celeba.ATTRIBUTES).write_text("\n".join(text) + "\n")
    (folder / celeba.PARTITION).write_text("\n".join(parts) + "\n")
    return folder


def frame_colour(number: int, at: int) -> tuple[int, int, int]:
    """Of a frame of a video."""
    return (number * 7) % 256, at * 7, 255 - at * 7


def write_video(path: Path, colours: Sequence[tuple[int, int, int]], size: tuple[int, int] = clevrer.SIZE) -> None:
    """A video of flat frames, without loss."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as video:
        stream = video.add_stream("libx264rgb", rate=Fraction(25), options={"qp": "0", "preset": "ultrafast"})
        stream.width, stream.height = size
        stream.pix_fmt = "rgb24"
        for colour in colours:
            pixels = np.full((size[1], size[0], 3), colour, np.uint8)
            video.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        video.mux(stream.encode())


def scene(word: str) -> dict[str, Any]:
    """What CLEVRER would say of a video: objects 2 and 5 collide, and later 0 and 2; that with the lowest id counts."""
    shape, material = ("cube", "sphere")[int(word[0])], ("rubber", "metal")[int(word[1])]
    speed = 1.5 if word[2] == "1" else -1.5
    objects = [(0, "cylinder", "metal", 0.0), (2, shape, material, speed), (5, "cylinder", "rubber", -speed)]

    def moment(at: int) -> dict[str, Any]:
        turned = 1 if at == COLLIDES_AT else -1
        return {
            "frame_id": at,
            "objects": [
                {"object_id": i, "location": [0.0, 0.0, 0.2], "velocity": [turned * v, -3.0, 0.0], "inside_camera_view": True}
                for i, _, _, v in objects
            ],
        }

    return {
        "object_property": [{"object_id": i, "color": "red", "material": m, "shape": s} for i, s, m, _ in objects],
        "motion_trajectory": [moment(at) for at in range(clevrer.LENGTH)],
        "collision": [
            {"object_ids": [0, 2], "frame_id": 60, "location": [0.0, 0.0, 0.0]},
            {"object_ids": [5, 2], "frame_id": COLLIDES_AT, "location": [0.0, 0.0, 0.0]},
        ],
    }


def paths_of(folder: Path, number: int) -> tuple[Path, Path]:
    """The annotation and the video of a number."""
    group = f"{number // 1000 * 1000:05d}-{number // 1000 * 1000 + 1000:05d}"
    annotation = folder / clevrer.ANNOTATIONS / f"annotation_{group}" / f"annotation_{number:05d}.json"
    return annotation, folder / clevrer.VIDEOS / f"video_{group}" / f"video_{number:05d}.mp4"


def spoiled(data: bytes, chance: random.Random) -> bytes:
    """The data with some bytes changed, taken out, or put in from elsewhere in them."""
    for _ in range(chance.randint(1, 3)):
        at, end = sorted(chance.randrange(len(data)) for _ in range(2))
        end = min(end, at + chance.choice((1, 5, 40)))
        other = chance.randrange(len(data))
        put = chance.choice((b"", bytes([chance.randrange(256)]), data[other : other + 20], b"null", b"-1e999", b"[[]]", b"\n"))
        data = data[:at] + put + data[end:]
    return data


def numbers_of(word: str) -> tuple[int, int]:
    """Of the two videos of a composition: one to train on, one for tests; they lie in several folders."""
    i = COMPOSITIONS.index(word)
    return 990 + i, 1009 + 10 * i


def write_scene(folder: Path, number: int, told: Any) -> None:
    annotation, video = paths_of(folder, number)
    annotation.parent.mkdir(parents=True, exist_ok=True)
    annotation.write_text(json.dumps(told))
    write_video(video, [frame_colour(number, at) for at in range(LENGTH)])


def write_clevrer(folder: Path) -> Path:
    """A video of each composition to train on and one for tests; and some that are not used."""
    for word in COMPOSITIONS:
        for number in numbers_of(word):
            write_scene(folder, number, scene(word))
    still = scene("000")
    still["motion_trajectory"][COLLIDES_AT]["objects"][1]["velocity"] = [0.0, 1.0, 0.0]
    round_ = scene("000")
    round_["object_property"][1]["shape"] = "cylinder"
    for number, told in enumerate((scene("000") | {"collision": []}, still, round_), 10):
        write_scene(folder, number, told)
    return folder
