"""Brings the rows of a copy of a store into the store: `python -m orchestrator.store.merge COPY STORE`.

To copy the files of one over those of the other would lose rows where both have grown since.
"""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.errors import printable
from orchestrator.store.place import StoreError
from orchestrator.store.results import ResultStore


def merge(copy: str | Path, into: str | Path) -> int:
    """Append the rows of `copy` that are not there yet.

    Returns:
        How many they are.

    Raises:
        StoreError: one of the two cannot be read, or the rows cannot be written.
    """
    with ResultStore(copy, read_only=True) as there, ResultStore(into) as here:
        new = [key for key in there.table(["key"])["key"].to_pylist() if key not in here]
        rows = there.find({"key": new})
        for notice in there.notices + here.notices:
            print(f"note: {notice}", file=sys.stderr)
        return len(here.append(rows))


def main(words: list[str]) -> int:
    if len(words) != 2:
        print(f"error: {len(words)} folders are named: give two, as in `... merge COPY STORE`", file=sys.stderr)
        return 2
    if "://" not in words[0] and not Path(words[0]).is_dir():
        print(f"error: {printable(words[0])} is not a folder: give that of the copy", file=sys.stderr)
        return 2
    try:
        count = merge(*words)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{count} new {'row' if count == 1 else 'rows'} in {words[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
