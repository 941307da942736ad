"""Finished runs that are trained once more, as their weights are gone: which ones, and what is said if one ends otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from orchestrator.searches import ending
from orchestrator.searches.needs import has_passed

CLOSE = 0.1
"""Relative difference up to which a run that is trained again may end otherwise than its row says: on another machine or on a
GPU it differs by rounding. `orchestrator.again` takes the same one."""


class Remade(Protocol):
    """Which finished runs of a launch these are."""

    def again(self, key: str) -> bool:
        """Whether a finished run is to be trained once more."""

    def forget(self, key: str) -> None:
        """Called when that may have changed."""

    def is_for_option(self, key: str) -> bool:
        """Whether it is only as the user wants its weights (--save-weights)."""

    def leave(self, key: str) -> bool:
        """Let such a run be without weights from now on; False if others need them."""


class NoneRemade:
    """Of a launch that trains none once more; a `Remade`."""

    def again(self, key: str) -> bool:
        return False

    def forget(self, key: str) -> None: ...

    def is_for_option(self, key: str) -> bool:
        return False

    def leave(self, key: str) -> bool:
        return False


def remedy(key: str, another: str, for_option: bool) -> str:
    """What to do about a finished run whose weights cannot be made again.

    Args:
        another: a further way.
        for_option: whether they are only wanted for --save-weights.
    """
    ways = [f"put weights/{key}.safetensors back into the store", another]
    if for_option:
        ways.append("leave out --save-weights")
    return f"{', '.join(ways[:-1])}{',' * (len(ways) > 2)} or {ways[-1]}"


def compared(run: str, row: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the weights of a run that was trained once more may be kept, and what is to be said; nothing if it has ended as
    before. If its row says that it has passed, and now it has not, they may not, as whoever uses them goes by the row.

    Args:
        run: the run, in words.
    """
    now = {**row, "accuracy": None, **result}
    if has_passed(row) and not has_passed(now):
        return False, (
            f"{run} has passed before ({_end_of(row)}), but its weights are gone, and it did not pass when it was trained "
            f"again ({_end_of(now)}), so its new weights are not kept"
        )
    if _ends_alike(row, now):
        return True, ""
    return True, (
        f"{run} was trained again for its weights and ended otherwise ({_end_of(now)}) than its row says "
        f"({_end_of(row)}): the row stays, and the new weights are kept"
    )


def _ends_alike(row: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a run ended twice in the same way, up to rounding."""
    return ending(row) == ending(now) and all(_is_close(row[name], now[name]) for name in ("steps", "accuracy"))


def _is_close(one: float | None, other: float | None) -> bool:
    known = [value for value in (one, other) if value is not None and not math.isnan(value)]
    return not known or (len(known) == 2 and math.isclose(*known, rel_tol=CLOSE))


def _end_of(row: Mapping[str, Any]) -> str:
    """How a run ended, in words."""
    accuracy = "unknown" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
    return f"{ending(row)} after {row['steps']} steps, accuracy {accuracy}"
