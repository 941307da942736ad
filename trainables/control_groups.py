"""The control groups that this process is in, such as that of a container: they limit what it may use, and count what of them
the system has ended for want of memory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

OOM_COUNTERS = ("memory.events", "memory.oom_control")
"""The files of a control group, of version 2 and of version 1, that count the processes of it that were ended."""


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


def oom_counter(
    tree: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup"), machine: Path = Path("/proc/vmstat")
) -> Path | None:
    """The file that counts what the system has ended for want of memory, of this process and of those that it starts: that of
    its own control group, or of the next one above that has any, as for a container. There a process counts whoever has set
    the limit, and those of other groups do not. Without such groups it is that of the whole machine; None if there is none.

    Args:
        tree, own: as for `control_groups`.
        machine: counts all of the machine, of every group.
    """
    files = [group / name for group in control_groups("memory", tree, own) for name in OOM_COUNTERS]
    return next((file for file in [*files, machine] if oom_kills(file) is not None), None)


def oom_kills(file: Path | None) -> int | None:
    """How many processes the system has ended for want of memory, by such a file; None if it does not tell."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines() if file is not None else ():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return None
