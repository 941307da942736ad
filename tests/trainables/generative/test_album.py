"""What identifies a data set: the digest that runs on real pictures carry stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables.generative.album import MOST, TRAIN, Labelled, Source, album_of
from trainables.generative.shapes import COMPOSITIONS


def labelled(folder: Path) -> list[Labelled]:
    """A file of each part and composition, of 0 to 15 bytes; those to train on are four frames of a video."""
    found = []
    for i, (part, word) in enumerate((part, word) for part in MOST for word in COMPOSITIONS):
        path = folder / "pictures" / f"{i:02d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(i))
        found.append(Labelled(part, word, Source(path, (0, 4, 8, 12) if part == TRAIN else ())))
    return found


def test_the_content_of_a_data_set_is_what_it_was(tmp_path: Path) -> None:
    """Another one would be another key: rows of the same pictures would answer nothing any more."""
    assert album_of(tmp_path, labelled(tmp_path), "").content == "940822bcfcd78a434070795b"


def test_pictures_that_change_places_are_another_content(tmp_path: Path) -> None:
    found = labelled(tmp_path)
    first, second, *others = found
    swapped = [first._replace(source=second.source), second._replace(source=first.source), *others]
    contents = {album_of(tmp_path, one, "").content for one in (found, swapped, [second, first, *others])}
    assert len(contents) == 3, "their order decides which are drawn"


def test_a_composition_without_pictures_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r" has no test picture of composition 111: give a folder with the whole data set$"):
        album_of(tmp_path, labelled(tmp_path)[:-1], "")
