"""The parts of a store as they are changed: extended, set aside, listed in the index."""

from __future__ import annotations

import contextlib
import filecmp
from collections.abc import Mapping, MutableMapping

import pyarrow as pa

from orchestrator.store.contents import RETRIED
from orchestrator.store.place import Place, Stamp
from orchestrator.store.reader import Reader
from orchestrator.store.register import is_many
from orchestrator.store.turns import Turns


class Writer:
    """What a launch does to the parts of a store when it has the right to change them (see `Turns`)."""

    def __init__(self, place: Place, reader: Reader, turns: Turns) -> None:
        self._place, self._reader, self._turns = place, reader, turns

    def extend(self, rows: pa.Table, problems: MutableMapping[str, str]) -> pa.Table:
        """Write `rows` in one step: into the part of this launch, or a part of their own if they are many.

        Args:
            problems: bad parts. If this is one of them, the same step mends it, and it is one no more.
        """
        register, many = self._reader.register, is_many(rows.num_rows)
        name = self._turns.new_name() if many else self._turns.choose_part()
        part = register.parts.get(name)
        table = rows if part is None else pa.concat_tables([part.table, rows]).combine_chunks()
        why = problems.pop(name, None)
        stamp = self._turns.write(name, table) if why is None else self._mend(name, table, why)
        register.put(name, stamp, table, came=rows["key"].to_pylist())
        if register.parts[name].full or not self._turns.may_extend(name):
            if not many:
                self._turns.let_go()
            self.keep_index()
        return rows

    def set_aside(self, problems: Mapping[str, str]) -> None:
        """Keep bad files under `set-aside/`; in `runs/` remain those of their rows that nothing else holds, if any."""
        register = self._reader.register
        for name, why in problems.items():
            part = register.parts.get(name)
            if part is not None and part.rows:
                assert part.table is not None
                register.put(name, self._mend(name, part.table, why), part.table)
            else:
                aside = self._place.place_aside(name)
                self._place.move(f"runs/{name}", aside)
                self._reader.moved(name)
                shown, now = self._place.shown(f"runs/{name}"), self._place.shown(aside)
                self._place.note(f"set aside {shown}: {why}; it is now {now}")

    def _mend(self, name: str, table: pa.Table, why: str) -> Stamp:
        """Make a part hold these rows, in one step, and keep the former file, unless its rows only made way."""
        if why == RETRIED:
            return self._turns.write(name, table)
        aside = self._keep(name)
        stamp = self._turns.write(name, table)
        shown, former = self._place.shown(f"runs/{name}"), self._place.shown(aside)
        self._place.note(f"removed rows from {shown}: {why}; the former file is {former}")
        return stamp

    def _keep(self, name: str) -> str:
        """Keep a part as it is in `set-aside/`, unless it is there from an attempt that failed to write the new one. Such a
        file is never removed: where the write failed late, it may be the only one.

        Returns:
            Its name there.
        """
        part = self._place.path / "runs" / name
        for file in self._place.files("set-aside"):
            is_kept = file.name.startswith(name) and not file.is_symlink() and filecmp.cmp(part, file, shallow=False)
            if is_kept and self._place.exists(f"set-aside/{file.name}"):
                return f"set-aside/{file.name}"
        aside = self._place.place_aside(name)
        self._place.copy(f"runs/{name}", aside)
        return aside

    def keep_index(self) -> None:
        """Write the index anew if it lags behind: all full parts are in it then. Where it cannot be written nothing is lost:
        rows are in their parts, and it is tried again when the next part is full."""
        register = self._reader.register
        if register.beyond_index():
            data = register.new_index()
            with contextlib.suppress(OSError):
                self._place.write(".index", data)
                register.take_index(data)
