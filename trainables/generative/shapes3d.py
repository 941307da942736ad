"""The split of Shapes3D (Burgess and Kim 2018) by hue, scale and shape: what has been seen, and how far off the rest is.

There are 10 hues of the object, 8 scales and 3 of its shapes: 240 cells. The first 6 hues, 6 scales and 2 shapes span the base,
a block of 72 cells, which is seen. So are the cells with one factor out of it. Of the others, those with two factors out are
at level 1, and those with all three at level 2.
"""

from __future__ import annotations

import itertools

FACTORS = {"hue": 10, "scale": 8, "shape": 3}
BASE = (6, 6, 2)
"""How many classes of each factor span the base."""
PLACES = ("base", "seen", "level1", "level2")


def place_of(cell: tuple[int, int, int]) -> str:
    """Where a cell (hue, scale, shape), each counted from 0, belongs: one of PLACES.

    Raises:
        ValueError: there is no such class of a factor.
    """
    for (name, classes), at in zip(FACTORS.items(), cell, strict=True):
        if not 0 <= at < classes:
            raise ValueError(f"{name} must lie in 0..{classes - 1}, not {at}")
    return PLACES[sum(at >= inside for at, inside in zip(cell, BASE, strict=True))]


def cells() -> dict[str, list[tuple[int, ...]]]:
    """All cells by their place."""
    found: dict[str, list[tuple[int, ...]]] = {place: [] for place in PLACES}
    for cell in itertools.product(*(range(classes) for classes in FACTORS.values())):
        found[place_of(cell)].append(cell)  # type: ignore[arg-type]
    return found
