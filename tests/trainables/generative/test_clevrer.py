"""CLEVRER as its authors publish it: what is read, what is skipped, and what is said of damaged files."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import many
from tests.trainables.generative.made_data import (
    COLLIDES_AT,
    frame_colour,
    numbers_of,
    paths_of,
    scene,
    spoiled,
    write_clevrer,
    write_scene,
    write_video,
)
from trainables.generative import clevrer
from trainables.generative.album import TEST, TRAIN, Source
from trainables.generative.shapes import COMPOSITIONS

pytest.importorskip("av", reason="videos need PyAV: pip install '.[video]'")
pytestmark = pytest.mark.slow(8)

FRAMES = (8, 16, 24, 32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clevrer(tmp_path_factory.mktemp("whole") / "clevrer")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """One to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "clevrer"))


def test_videos_are_found_by_part_and_composition_and_others_are_skipped(whole: Path) -> None:
    found = clevrer.album(whole)
    for word in COMPOSITIONS:
        for part, number in zip((TRAIN, TEST), numbers_of(word), strict=True):
            assert found.pictures[part, word] == [Source(paths_of(whole, number)[1], FRAMES)]
    assert sum(map(len, found.pictures.values())) == 16, "a video without a collision, with a cylinder, or at rest is used"
    assert paths_of(whole, 1009)[1] == whole / "video_train" / "video_01000-02000" / "video_01009.mp4"


def test_frames_are_read_back_bit_for_bit_in_the_order_of_reading(whole: Path) -> None:
    for word in ("000", "110"):
        for part, number in zip((TRAIN, TEST), numbers_of(word), strict=True):
            (source,) = clevrer.album(whole).pictures[part, word]
            read = clevrer.picture(source, 16)
            assert read.shape == (3, 16, 16)
            assert read.dtype == np.uint8
            for i, at in enumerate(FRAMES):
                down, right = divmod(i, 2)
                part_of = read[:, 8 * down : 8 * down + 8, 8 * right : 8 * right + 8]
                wanted = np.array(frame_colour(number, at))[:, None, None]
                assert np.abs(part_of.astype(int) - wanted).max() <= 1, "frames are others, or elsewhere"
                assert (part_of == part_of[:, :1, :1]).all()


def test_the_whole_of_a_frame_is_shown(tmp_path: Path) -> None:
    import av

    write_video(tmp_path / "a.mp4", [(0, 0, 0)])
    with av.open(str(tmp_path / "b.mp4"), "w") as video:
        stream = video.add_stream("libx264rgb", rate=25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 480, 320, "rgb24"
        pixels = np.zeros((320, 480, 3), np.uint8)
        pixels[:, :30, 0] = pixels[-20:, :, 1] = 255
        for packet in (stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")), stream.encode()):
            video.mux(packet)
    read = clevrer.picture(Source(tmp_path / "b.mp4", (0, 0, 0, 0)), 32).astype(int)
    assert (read[:, :16, :16] == read[:, 16:, 16:]).all()
    assert np.abs(read[0, 8, :16] - [255, *[0] * 15]).max() <= 40
    assert np.abs(read[1, :16, 8] - [*[0] * 15, 255]).max() <= 40


@pytest.mark.parametrize(("frame", "wanted"), [(0, (0, 0, 4, 12)), (64, (52, 60, 68, 76)), (127, (115, 123, 127, 127))])
def test_frames_beyond_a_video_are_its_first_or_last(frame: int, wanted: tuple[int, ...], tmp_path: Path) -> None:
    told = scene("011")
    told["collision"] = [{"object_ids": [2, 5], "frame_id": frame, "location": [0, 0, 0]}]
    for moment in told["motion_trajectory"]:
        moment["objects"][1]["velocity"] = [1.0, 0.0, 0.0]
    path = tmp_path / "annotation_train" / "annotation_00000-01000" / "annotation_00000.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(told))
    (labelled,) = clevrer._labelled(tmp_path)
    assert labelled == (TRAIN, "011", Source(tmp_path / "video_train/video_00000-01000/video_00000.mp4", wanted))


def test_the_object_with_the_lowest_id_in_the_first_collision_counts() -> None:
    for word in COMPOSITIONS:
        assert clevrer._read(scene(word)) == (word, COLLIDES_AT)
    told = scene("010")
    told["collision"][1]["object_ids"] = [5]
    told["object_property"][2] = {"object_id": 5, "color": "red", "material": "rubber", "shape": "sphere"}
    assert clevrer._read(told) == ("101", COLLIDES_AT), "object 5 goes the other way"
    told["collision"].append({"object_ids": [5, 2], "frame_id": COLLIDES_AT})
    assert clevrer._read(told) == ("010", COLLIDES_AT), "of two collisions in one frame"


def test_the_content_is_that_of_the_data_and_not_of_the_folder(whole: Path, folder: Path) -> None:
    content = clevrer.album(whole).content
    assert clevrer.album(folder).content == content
    told = scene("000")
    told["collision"][1]["frame_id"] = 21
    for moment in told["motion_trajectory"]:
        moment["objects"][1]["velocity"] = [-1.0, 0.0, 0.0]
    paths_of(folder, numbers_of("000")[0])[0].write_text(json.dumps(told))
    assert clevrer.album(folder).content != content


def test_an_odd_size_is_refused(whole: Path) -> None:
    (source,) = clevrer.album(whole).pictures[TRAIN, "000"]
    with pytest.raises(ValueError, match=r"^a picture of four frames needs an even N, not 15$"):
        clevrer.picture(source, 15)


def told_as(change: Callable[[dict[str, Any]], Any]) -> str:
    told = scene("000")
    change(told)
    return json.dumps(told)


DEEP = "[" * 200_000
ANNOTATIONS = {
    "broken": ('{"object_property": [', "is no JSON (Expecting value"),
    "empty": ("", "is no JSON (Expecting value"),
    "markup": ("<html><script>alert(1)</script></html>", "is no JSON (Expecting value"),
    "no text": (b"\xff\xfe\x00", "is no JSON ("),
    "deep": (DEEP, "is nested too deeply"),
    "a list": ("[1, 2]", "is not what CLEVRER says of a video (list indices"),
    "no collision list": (told_as(lambda told: told.pop("collision")), "(no 'collision')"),
    "a collision of nobody": (told_as(lambda told: told["collision"][1].update(object_ids=[])), "is not what CLEVRER says"),
    "a frame that is none": (told_as(lambda told: told["collision"][1].update(frame_id=-3)), "the frame of a collision is -3"),
    "a frame of words": (told_as(lambda told: told["collision"][1].update(frame_id="two")), "is not what CLEVRER says"),
    "an unknown object": (told_as(lambda told: told["object_property"].pop(1)), "an object 2 collides and has no properties"),
    "an object without a number": (told_as(lambda told: told["object_property"][0].pop("object_id")), "(no 'object_id')"),
    "a later one without": (told_as(lambda told: told["object_property"][-1].pop("object_id")), "(no 'object_id')"),
    "a velocity of words": (
        told_as(lambda told: told["motion_trajectory"][20]["objects"][1].update(velocity=["fast"])), "is not what CLEVRER says",
    ),
    "a number too long": (json.dumps(scene("000")).replace('"frame_id": 60', f'"frame_id": {"9" * 5000}'), "is no JSON ("),
    "lines in a word": (told_as(lambda told: told["collision"][1].update(frame_id="a\nb")), "is not what CLEVRER says"),
}  # fmt: skip


@pytest.mark.parametrize("damage", ANNOTATIONS)
def test_a_damaged_annotation_is_one_line_that_names_it(damage: str, tmp_path: Path) -> None:
    content, hint = ANNOTATIONS[damage]
    path = tmp_path / "annotation_train" / "annotation_00000-01000" / "annotation_00000.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        clevrer.album(tmp_path)
    told = str(refusal.value)
    assert told.startswith(f"{path} ")
    assert hint in told
    assert told.endswith(": unpack annotation_train.zip again")
    assert told.count("\n") == 0
    assert len(told) < len(str(path)) + 250


def test_annotations_that_are_damaged_anywhere_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    told = scene("011")
    told["motion_trajectory"] = told["motion_trajectory"][COLLIDES_AT : COLLIDES_AT + 1]
    whole, path = json.dumps(told).encode(), tmp_path / "annotation.json"
    chance, cases, refusals = random.Random(0), many(400, 10_000), []
    for _ in range(cases):
        path.write_bytes(spoiled(whole, chance))
        try:
            known = clevrer._known(path)
            assert known is None or (known[0] in COMPOSITIONS and 0 <= known[1] < 128)
        except ValueError as error:
            refusals.append(str(error))
    assert all(told.startswith(f"{path} ") and told.isprintable() for told in refusals)
    assert 5 <= len(refusals) <= cases - 5


def test_a_huge_annotation_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clevrer, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"annotation_00010.json has more than 1000 bytes, so it is no such file: unpack"):
        clevrer.album(folder)


def test_a_layout_with_something_missing_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r" has no annotation_train/annotation_00000-01000/annotation_00000.json: unpack "):
        clevrer.album(tmp_path / "nothing")
    annotation, video = paths_of(folder, 990)
    video.unlink()
    with pytest.raises(ValueError, match=r"video_00990.mp4 cannot be found \(No such file or directory\): unpack video_train"):
        clevrer.album(folder)
    annotation.unlink()
    with pytest.raises(ValueError, match=r"clevrer has no train picture of composition 000: give a folder with the whole data"):
        clevrer.album(folder)


def test_videos_without_any_collision_leave_compositions_without_pictures(tmp_path: Path) -> None:
    write_scene(tmp_path, 0, scene("000") | {"collision": []})
    with pytest.raises(ValueError, match=r" has no train picture of composition 000: "):
        clevrer.album(tmp_path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1500])


def matroska(path: Path) -> None:
    write_video(path.with_suffix(".mkv"), [(1, 2, 3)] * 40)
    path.with_suffix(".mkv").rename(path)


def retag(path: Path) -> None:
    """A codec that nobody knows."""
    path.write_bytes(re.sub(b"avc1", b"zzzz", path.read_bytes()))


VIDEOS: dict[str, tuple[Callable[[Path], object], str]] = {
    "broken": (cut, "cannot be read ("),
    "empty": (lambda path: path.write_bytes(b""), "cannot be read ("),
    "missing": (lambda path: path.unlink(), "cannot be read (No such file or directory)"),
    "markup": (lambda path: path.write_bytes(b"<html>"), "cannot be read ("),
    "a playlist": (lambda path: path.write_bytes(b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n"), "cannot be read ("),
    "another format": (matroska, "cannot be read ("),
    "an unknown codec": (retag, "cannot be read (its codec is unknown)"),
    "too short": (lambda path: write_video(path, [(1, 2, 3)] * 20), "ends before its frame 24"),
    "another size": (lambda path: write_video(path, [(1, 2, 3)] * 40, (320, 240)), "has 320 x 240 pixels, and videos of"),
}


@pytest.mark.parametrize("damage", VIDEOS)
def test_a_damaged_video_is_one_line_that_names_it(damage: str, folder: Path) -> None:
    spoil, hint = VIDEOS[damage]
    path = paths_of(folder, 990)[1]
    spoil(path)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        clevrer.picture(Source(path, FRAMES), 16)
    told = str(refusal.value)
    assert told.startswith(f"{path} ")
    assert hint in told
    assert "unpack video_train.zip" in told
    assert told.count("\n") == 0


def test_a_video_whose_title_is_no_utf_8_is_read_as_any_other(tmp_path: Path) -> None:
    import av

    write_video(tmp_path / "a.mp4", [(at, 2, 3) for at in range(40)])
    with av.open(str(tmp_path / "a.mp4")) as given, av.open(str(tmp_path / "b.mp4"), "w") as titled:
        titled.metadata["title"] = "KNOWN AS THIS"
        stream = titled.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                titled.mux(packet)
    content = (tmp_path / "b.mp4").read_bytes()
    assert content.count(b"KNOWN AS THIS") == 1
    (tmp_path / "b.mp4").write_bytes(content.replace(b"KNOWN AS THIS", b"\xe9\xff KNOWN AS X"))
    usual, other = (clevrer.picture(Source(tmp_path / f"{name}.mp4", FRAMES), 16) for name in "ab")
    assert (usual == other).all()


def test_without_pyav_it_is_said_what_to_install(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ValueError, match=r"^videos are read with PyAV, which cannot be imported .*: pip install '.\[video\]'$"):
        clevrer.album(whole)
