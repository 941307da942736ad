"""The control groups that this process is in, such as that of a container: they limit what it may use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def control_groups(kind: str, tree: Path, own: Path) -> list[Path]:
    """The control groups that this process may be in, each before those above it; not all of them need to be there.

    Args:
        kind: what they control.
        tree: where they are, of version 2, and those of version 1 in a folder with the name of the kind.
        own: says which ones this process is in. A container may have its own one at the top of the tree, by another name.
    """
    groups = list[Path]()
    with suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, kinds, name = line.split(":", 2)
            if not kinds or kind in kinds.split(","):
                group = tree / (kind if kinds else "") / name.lstrip("/")
                groups += [group, *group.parents]
    return [*groups, tree / kind, tree]
