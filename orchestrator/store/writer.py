"""The parts of a store as they are changed: extended, set aside, listed in the index."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from orchestrator.store.place import Place
from orchestrator.store.reader import Reader
from orchestrator.store.register import is_many
from orchestrator.store.turns import Turns


class Writer:
    """What a launch does to the parts of a store when it has the right to change them (see `Turns`)."""

    def __init__(self, place: Place, reader: Reader, turns: Turns) -> None:
        self._place, self._reader, self._turns = place, reader, turns

    def extend(self, rows: pa.Table) -> pa.Table:
        """Write `rows` in one step: into the part of this launch, or a part of their own if they are many."""
        register, many = self._reader.register, is_many(rows.num_rows)
        name = self._turns.new_name() if many else self._turns.choose_part()
        part = register.parts.get(name)
        table = rows if part is None else pa.concat_tables([part.table, rows]).combine_chunks()
        register.put(name, self._turns.write(name, table), table, came=rows["key"].to_pylist())
        if register.parts[name].full or not self._turns.may_extend(name):
            if not many:
                self._turns.let_go()
            self.keep_index()
        return rows

    def set_aside(self, problems: Mapping[str, str]) -> None:
        """Keep bad files under `set-aside/`; in `runs/` remain those of their rows that nothing else holds, if any."""
        register = self._reader.register
        for name, why in problems.items():
            aside, part = self._place.place_aside(name), register.parts.get(name)
            shown, now = self._place.shown(f"runs/{name}"), self._place.shown(aside)
            if part is not None and part.rows:
                self._place.copy(f"runs/{name}", aside)
                assert part.table is not None
                register.put(name, self._turns.write(name, part.table), part.table)
                self._place.note(f"removed rows from {shown}: {why}; the former file is {now}")
            else:
                self._place.move(f"runs/{name}", aside)
                register.parts.pop(name, None)
                self._place.note(f"set aside {shown}: {why}; it is now {now}")

    def keep_index(self) -> None:
        """Write the index anew if it lags behind: all full parts are in it then."""
        register = self._reader.register
        if register.beyond_index():
            data = register.new_index()
            self._place.write(".index", data)
            register.take_index(data)
