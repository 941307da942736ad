"""The split of Shapes3D: how many cells are where, and some of them."""

from __future__ import annotations

import pytest

from trainables.generative.shapes3d import cells, place_of


def test_there_are_as_many_cells_of_each_place_as_published() -> None:
    found = cells()
    assert {place: len(of) for place, of in found.items()} == {"base": 72, "seen": 108, "level1": 52, "level2": 8}
    assert len({cell for of in found.values() for cell in of}) == 240


def test_a_cell_is_as_far_as_it_has_factors_out_of_the_base() -> None:
    assert place_of((0, 0, 0)) == place_of((5, 5, 1)) == "base"
    assert place_of((6, 0, 0)) == place_of((0, 6, 0)) == place_of((0, 0, 2)) == "seen"
    assert place_of((9, 7, 0)) == place_of((9, 0, 2)) == place_of((0, 7, 2)) == "level1"
    assert place_of((6, 6, 2)) == place_of((9, 7, 2)) == "level2"


@pytest.mark.parametrize(("cell", "told"), [((10, 0, 0), "hue must lie in 0..9, not 10"), ((0, 0, -1), "shape must lie in 0")])
def test_a_cell_that_is_none_is_refused(cell: tuple[int, int, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        place_of(cell)
