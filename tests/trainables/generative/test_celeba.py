"""CelebA as its authors publish it: what is read, what is skipped, and what is said of damaged files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import many
from tests.trainables.generative.made_data import NAMES, colour_of, face, spoiled, write_celeba, write_jpeg
from trainables.generative import album as album_module
from trainables.generative import celeba
from trainables.generative.album import MOST, TEST, TRAIN, Source
from trainables.generative.shapes import COMPOSITIONS, seen_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_celeba(tmp_path_factory.mktemp("whole") / "celeba")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """One to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "celeba"))


def names(found: album_module.Album, part: str, word: str) -> list[str]:
    return [source.path.name for source in found.pictures[part, word]]


def test_pictures_are_found_by_part_and_composition(whole: Path) -> None:
    found = celeba.album(whole)
    assert len(found.pictures) == 16
    for i, word in enumerate(COMPOSITIONS, 1):
        assert names(found, TRAIN, word) == [f"{number:06d}.jpg" for number in (i, i + 8, i + 16)]
        assert names(found, TEST, word) == [f"{number:06d}.jpg" for number in (i + 24, i + 32)]
    assert found.pictures[TRAIN, "010"][0].path == whole / "img_align_celeba" / "000003.jpg"
    assert set(seen_of("train1")) == {"000", "001", "100", "010"}


def test_a_composition_is_male_not_smiling_and_blond(whole: Path) -> None:
    """000003.jpg is 010: a woman with black hair who does not smile."""
    said = dict(zip(NAMES, (whole / "list_attr_celeba.txt").read_text().splitlines()[4].split()[1:], strict=True))
    assert [said[name] for name in ("Male", "Smiling", "Blond_Hair", "Black_Hair")] == ["-1", "-1", "-1", "1"]


@pytest.mark.parametrize("N", [16, 24])
def test_a_picture_is_its_centred_square(whole: Path, N: int) -> None:
    found = celeba.album(whole)
    for word in COMPOSITIONS:
        read = celeba.picture(found.pictures[TRAIN, word][0], N)
        assert read.shape == (3, N, N)
        assert read.dtype == np.uint8
        apart = np.abs(read.astype(int) - np.array(colour_of(word))[:, None, None])
        assert apart.max() <= 3, "the green above and below the square shows, or colours are exchanged"


def test_what_is_left_and_on_top_stays_there_and_fine_stripes_become_grey(tmp_path: Path) -> None:
    pixels = face("000")
    pixels[:109] = (200, 20, 20)
    pixels[109:, 89:, :] = 255 * (np.arange(89)[None, :, None] % 2)
    write_jpeg(tmp_path / "000001.jpg", pixels)
    read = celeba.picture(Source(tmp_path / "000001.jpg"), 16).astype(int)
    assert np.abs(read[:, 2] - np.array([[200], [20], [20]])).max() <= 3
    assert np.abs(read[:, 12, 2] - colour_of("000")).max() <= 3
    assert np.abs(read[:, 10:15, 10:15] - 127).max() <= 20, "not antialiased"


def test_no_more_pictures_of_a_composition_are_used_than_are_asked_for(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST == {TRAIN: 10_000, TEST: 100}
    monkeypatch.setattr(album_module, "MOST", {TRAIN: 2, TEST: 1})
    found = celeba.album(whole)
    assert [len(found.pictures[part, "011"]) for part in (TRAIN, TEST)] == [2, 1]
    assert names(found, TRAIN, "000") == ["000001.jpg", "000009.jpg"]


def test_the_content_is_that_of_the_data_and_not_of_the_folder(whole: Path, folder: Path) -> None:
    content = celeba.album(whole).content
    assert len(content) == 24
    assert celeba.album(folder).content == content
    unused = folder / "img_align_celeba" / "000041.jpg"
    assert "000041.jpg 1" in (folder / "list_eval_partition.txt").read_text()
    unused.unlink()
    assert celeba.album(folder).content == content
    with (folder / "img_align_celeba" / "000002.jpg").open("ab") as file:
        file.write(b"more")
    assert celeba.album(folder).content != content


def test_another_label_or_part_is_another_content(whole: Path, folder: Path) -> None:
    contents = {celeba.album(whole).content}
    attributes, partition = folder / celeba.ATTRIBUTES, folder / celeba.PARTITION
    lines = attributes.read_text().splitlines()
    lines[2], lines[3] = (f"{a.split()[0]} {b.split(maxsplit=1)[1]}" for a, b in ((lines[2], lines[3]), (lines[3], lines[2])))
    attributes.write_text("\n".join(lines))
    contents.add(celeba.album(folder).content)
    partition.write_text(partition.read_text().replace("000001.jpg 0", "000001.jpg 2"))
    contents.add(celeba.album(folder).content)
    assert len(contents) == 3


def test_lines_may_end_as_on_windows(whole: Path, folder: Path) -> None:
    for name in (celeba.ATTRIBUTES, celeba.PARTITION):
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"\n", b"\r\n"))
    assert celeba.album(folder).content == celeba.album(whole).content


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def fill(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def pipe(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


def without_class(folder: Path) -> None:
    """No picture to test of men who do not smile and have blond hair."""
    path = folder / celeba.PARTITION
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line[:-1] + "1" if line.startswith(("000032", "000040")) else line for line in lines))


ATTRIBUTES, PARTITION = celeba.ATTRIBUTES, celeba.PARTITION
DAMAGES = {
    "no attributes": (remove(ATTRIBUTES), ATTRIBUTES, "No such file or directory): give a folder with"),
    "no partition": (remove(PARTITION), PARTITION, "No such file or directory): give a folder with"),
    "no picture": (remove("img_align_celeba/000004.jpg"), "000004.jpg", "cannot be found (No such file or directory): unpack"),
    "wrong count": (edit(ATTRIBUTES, "43\n", "44\n"), ATTRIBUTES, "says that it has '44' pictures, and has 43: take it"),
    "a number that is none": (edit(ATTRIBUTES, "43\n", "many\n"), ATTRIBUTES, "says that it has 'many' pictures"),
    "an attribute is missing": (edit(ATTRIBUTES, "Smiling", "Frowning"), ATTRIBUTES, "line 2, names no attribute Smiling"),
    "a row too short": (edit(ATTRIBUTES, "000005.jpg -1", "000005.jpg"), ATTRIBUTES, "line 7, is not `000001.jpg` and 40"),
    "a bad number": (edit(ATTRIBUTES, " 1\n000002", " 7\n000002"), ATTRIBUTES, "line 3, has an attribute that is neither"),
    "a path as a name": (edit(ATTRIBUTES, "000006.jpg", "../006.jpg"), ATTRIBUTES, "line 8, is not `000001.jpg` and 40"),
    "a part that is none": (edit(PARTITION, "000007.jpg 0", "000007.jpg 3"), PARTITION, "line 7, is not a name and 0, 1 or 2"),
    "a picture without a part": (edit(PARTITION, "000008.jpg 0\n", ""), PARTITION, "does not name 000008.jpg"),
    "a picture twice": (edit(ATTRIBUTES, "000009.jpg", "000004.jpg"), ATTRIBUTES, "lines 6 and 11, name the same picture: t"),
    "a part twice": (edit(PARTITION, "000009.jpg 0", "000001.jpg 2"), PARTITION, "lines 1 and 9, name the same picture: take"),
    "an empty list": (fill(ATTRIBUTES, b""), ATTRIBUTES, "line 2, names no attribute Male"),
    "markup": (fill(ATTRIBUTES, b"<html><body>Sign in</body></html>"), ATTRIBUTES, "line 2, names no attribute Male: take"),
    "no text": (fill(PARTITION, b"\xff\xd8\xff\xe0"), PARTITION, "is not a text of ASCII: take it"),
    "a pipe": (pipe(PARTITION), PARTITION, "is no file: give a folder with"),
    "a pipe for a picture": (pipe("img_align_celeba/000001.jpg"), "000001.jpg", "is no file: unpack img_align_celeba.zip"),
    "a composition without pictures": (without_class, "celeba", "has no test picture of composition 111: give a folder"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_layout_is_one_line_that_names_the_file(damage: str, folder: Path) -> None:
    spoil, name, hint = DAMAGES[damage]
    spoil(folder)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        celeba.album(folder)
    told = str(refusal.value)
    assert hint in told
    assert name in told
    assert str(folder) in told
    assert told.count("\n") == 0


@pytest.mark.slow(1)
def test_lists_that_are_damaged_anywhere_are_read_or_refused_in_one_line(whole: Path, folder: Path) -> None:
    chance, cases, refusals = random.Random(0), many(150, 3000), []
    for i in range(cases):
        name = (ATTRIBUTES, PARTITION)[i % 2]
        (folder / name).write_bytes(spoiled((whole / name).read_bytes(), chance))
        try:
            celeba.album(folder)
        except ValueError as error:
            refusals.append(str(error))
        shutil.copy(whole / name, folder / name)
    assert all(told.startswith(str(folder)) and told.isprintable() for told in refusals)
    assert 0 < len(refusals) < cases


def test_an_empty_folder_is_told_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"list_eval_partition.txt cannot be found .*: give a folder with list_eval_partition"):
        celeba.album(tmp_path)


def test_a_huge_list_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celeba, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"list_attr_celeba.txt has more than 1000 bytes|list_eval_partition.txt has more"):
        celeba.album(folder)


def bmp(path: Path) -> None:
    Image.fromarray(face("000")).save(path, format="BMP")


PICTURES = {
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-400]), "cannot be read (image file is truncated"),
    "empty": (lambda path: path.write_bytes(b""), "cannot be read (cannot identify image file"),
    "markup": (lambda path: path.write_bytes(b"<html>"), "cannot be read (cannot identify image file"),
    "another format": (bmp, "cannot be read (cannot identify image file"),
    "not aligned": (lambda path: write_jpeg(path, np.zeros((400, 300, 3), np.uint8)), "has 300 x 400 pixels, and aligned"),
    "a folder": (lambda path: path.unlink() or path.mkdir(), "cannot be read ("),
}


@pytest.mark.parametrize("damage", PICTURES)
def test_a_damaged_picture_is_one_line_that_names_it(damage: str, folder: Path) -> None:
    spoil, hint = PICTURES[damage]
    path = folder / "img_align_celeba" / "000001.jpg"
    spoil(path)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        celeba.picture(Source(path), 16)
    told = str(refusal.value)
    assert told.startswith(f"{path} ")
    assert hint in told
    assert "unpack img_align_celeba.zip" in told
    assert told.count("\n") == 0


def test_a_grey_jpeg_is_read_as_a_grey_picture(tmp_path: Path) -> None:
    Image.fromarray(np.full((218, 178), 90, np.uint8)).save(tmp_path / "000001.jpg", quality=100)
    assert (np.abs(celeba.picture(Source(tmp_path / "000001.jpg"), 8).astype(int) - 90) <= 3).all()
