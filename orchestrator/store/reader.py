"""The parts of a store as they are read: what changed in `runs/` is registered, and what is wrong with it is told."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa

from orchestrator.errors import counted
from orchestrator.store.contents import AGAIN, DESCRIPTION, ENDED, FAILED, choose, ended_well, failed, said_of, sift
from orchestrator.store.folder import stamp_of
from orchestrator.store.index import INDEXED
from orchestrator.store.parts import DamagedError, load, take
from orchestrator.store.place import Place, Stamp, StoreError
from orchestrator.store.register import Register
from orchestrator.store.rows import SCHEMA, Row, decode

MOST_LOOKS = 1_000
"""A look begins anew when another process has changed a part that it has to read; so often at most."""


class LostPartError(Exception):
    """The part of this name is no longer what it was."""


class Reader:
    """The rows of a store as of the last look at `runs/`. It changes no file."""

    def __init__(self, place: Place) -> None:
        self.register = Register(place.bytes_per_part)
        self.news: list[tuple[str, pa.Table]] = []
        """The rows that were found and not reported yet, each table with the name of its part."""
        self.keeps_news = False
        """Not while the store is opened: all that is found then is known to whoever opens it."""
        self._place, self._runs = place, place.path / "runs"
        self._bad: dict[str, Stamp | None] = {}
        """Files left where they are that need no second notice."""
        self._put_off: set[str] = set()
        """Parts of which the next look is to say what is wrong."""
        self._former: dict[str, tuple[set[str], dict[str, datetime | None]]] = {}
        """Parts that were read again and are not taken in yet: what `keys_of` and `failed_of` said of each before."""
        self._named: set[str] = set()
        """Keys of rows that a notice was about."""

    @property
    def damaged(self) -> int:
        """How many files could not be read, and are where they were."""
        return len(self._bad)

    def look(self, again: Collection[str] = ()) -> dict[str, str]:
        """Read the files that are new or may have changed, and those named `again`; what is wrong with the bad ones.

        Raises:
            NewerSchemaError: a part is of a later version.
            StoreError: others change the parts without end.
        """
        again, self._put_off = {*again, *self._put_off}, set()
        for _ in range(MOST_LOOKS):
            problems = dict[str, str]()
            try:
                self._look(again, problems)
            except LostPartError as error:  # another launch may have taken a failed row out of a part since it was looked at
                again = {*again, *problems, *error.args}
            else:
                return problems
        told = "other processes replace files in it faster than they can be read; run the same command again later"
        raise StoreError(f"cannot read the rows in {self._place.location}: {told}")

    def _look(self, again: Collection[str], problems: dict[str, str]) -> None:
        """Do as `look` says, and note in `problems` what is wrong.

        Raises:
            LostPartError: another look is needed, at these parts and those with `problems`.
        """
        register, again = self.register, {*again, *self._former}
        try:
            found = {name for name in os.listdir(self._runs) if name[0] != "."}  # noqa: PTH208 - many, and often
        except FileNotFoundError:
            found = set()
        self._bad = {name: stamp for name, stamp in self._bad.items() if name in found}
        for name in register.parts.keys() - found:
            if gone := register.parts[name].rows:
                part = self._place.shown(f"runs/{name}")
                trained = "it again if it needs it" if gone == 1 else "those that it needs again"
                self._place.note(f"{part} is gone with {counted(gone, 'row')}: the next launch trains {trained}")
            register.drop(name)
        loaded: dict[str, tuple[pa.Table, Stamp]] = {}
        may_differ = {*register.changing_parts(), *again}
        for name in sorted((found - register.parts.keys()) | (found & may_differ)):
            known = register.parts[name].stamp if name in register.parts else self._bad.get(name)
            stamp = None
            try:
                stamp = stamp_of((self._runs / name).stat())
                if stamp != known or name in again:
                    loaded[name] = load(self._runs / name)
            except (OSError, DamagedError) as error:
                if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ELOOP):
                    raise
                if os.path.lexists(self._runs / name):  # else it went away just now
                    problems[name] = str(error) if isinstance(error, DamagedError) else "it is a broken link"
                    self._bad[name] = stamp
                register.drop(name)
        self._register_former(loaded)
        for name, (table, stamp) in sorted(loaded.items(), key=lambda item: item[0] not in register.parts):
            self._bad.pop(name, None)
            problems |= self._take_in(name, table, stamp)

    def _register_former(self, loaded: Mapping[str, tuple[pa.Table, Stamp]]) -> None:
        """Register each of these parts that was known before, with those of its rows that it still has. To take in a part, rows
        of others with the same keys are read; of a part that was replaced they come from here: its former file is gone."""
        register = self.register
        if not register.index.parts.keys().isdisjoint(loaded):
            register.forget_index()
        self._former = {name: former for name, former in self._former.items() if name in loaded}
        for name, (table, stamp) in loaded.items():
            if name in register.parts:
                keys, before = table["key"].to_pylist(), register.keys_of(name)
                self._former.setdefault(name, (before, register.failed_of(name)))
                rows = take(table, [i for i, key in enumerate(keys) if key in before])
                register.put(name, stamp, rows, whole=False, went=before.difference(keys))

    def _take_in(self, name: str, table: pa.Table, stamp: Stamp) -> dict[str, str]:
        """Register a part that was read. Of rows with the same key, here or in other parts, the first one that can be believed
        stays, but a failed one only if all failed, and then the latest. What is wrong with the parts that have the others, by
        name. A row that takes the place of a failed one is news, too.

        Raises:
            LostPartError: one of these parts must be looked at again, and this one.
        """
        before = self.register.keys_of(name)
        former, failed_before = self._former.get(name, (set[str](), {}))
        times = Counter(table["key"].to_pylist())
        keys = times.keys()
        known = self.register.known(list(keys)) - before
        places = choose(table, known)
        chosen = take(table, list(places.values()))
        failed_now = failed(chosen)
        problems, over = dict[str, str](), dict[str, str]()
        if known:
            described = self._described(known.intersection(places))
            problems = self._forget(described, ended_well(chosen), later=failed_now)
            known = self.register.known(list(known)) - before
            failed_twice = known & failed_now.keys()
            for row in (row for _, rows in described for row in rows if row["key"] in failed_twice):
                if row["status"] != FAILED:
                    over[row["key"]] = ENDED
                elif row["finished_at"] > failed_now[row["key"]]:
                    over[row["key"]] = AGAIN
        kept = {key: i for key, i in places.items() if key not in known}
        whole = len(kept) == table.num_rows
        rows = table if whole else take(table, list(kept.values()))
        self.register.put(name, stamp, rows, whole=whole, came=kept)
        self._former.pop(name, None)
        heard = former - {k for k, at in failed_before.items() if k not in failed_now or at not in (None, failed_now[k])}
        fresh = [i for key, i in kept.items() if key not in heard] if self.keeps_news else []
        if fresh:
            self.news.append((name, take(table, fresh)))
        if whole:
            return problems
        why = list[str]()
        if copies := len(keys - kept.keys() - over.keys()):
            why.append(f"{copies:,} of its rows {'are' if copies > 1 else 'is'} in other files already")
        if several := sum(count > 1 for count in times.values()):
            why.append(f"it has several rows of {counted(several, 'run')}")
        if over:
            why.append(said_of(over))
        return problems | {name: "; ".join(why)}

    def forget_wrong(self, keys: Collection[str], better: Collection[str], retried: Collection[str]) -> dict[str, str]:
        """Forget the rows under these keys that cannot be believed; the parts that have them, and why they cannot. Others, see
        `_forget`, make way, too.

        Raises:
            LostPartError: one of these parts must be looked at again.
        """
        return self._forget(self._described(keys), better, retried)

    def _described(self, keys: Collection[str]) -> list[tuple[str, list[Row]]]:
        """The parts that have rows under these keys, with what tells whether they make way.

        Raises:
            LostPartError: one of these parts must be looked at again.
        """
        columns = (*DESCRIPTION, "status", "finished_at")
        return [(name, decode(self.read(name, columns, places))) for name, places in self.register.places({"key": keys})]

    def _forget(
        self,
        described: Sequence[tuple[str, Sequence[Row]]],
        better: Collection[str],
        retried: Collection[str] = (),
        later: Mapping[str, datetime] | None = None,
    ) -> dict[str, str]:
        """Forget those of these rows that cannot be believed, and those that make way: all, or none if it raises.

        Args:
            better: keys of runs that ended well elsewhere: failed rows of them are forgotten, too.
            retried: keys of runs that were tried again on purpose: so are those of these.
            later: keys of runs that failed elsewhere, too, each with when: so are those that failed before.

        Raises:
            LostPartError: one of these parts must be looked at again.
        """
        problems, later = {}, later or {}
        for name, found in described:
            rows, wrong = sift(found)
            before = {row["key"]: row["finished_at"] for row in rows if row["status"] == FAILED}
            again = {key for key, at in before.items() if key in retried or at < later.get(key, at)}
            over = before.keys() & {*better, *again}
            wrong |= {key: AGAIN if key in again else ENDED for key in sorted(over)}
            if wrong:
                problems[name] = wrong
        tables = {name: self.read(name, SCHEMA.names, None) for name in problems}
        if not self.register.index.parts.keys().isdisjoint(problems):
            self.register.forget_index()
        for name, wrong in problems.items():
            kept = [i for i, key in enumerate(tables[name]["key"].to_pylist()) if key not in wrong]
            self.register.put(name, self.register.parts[name].stamp, take(tables[name], kept), whole=False, went=wrong)
        return {name: said_of(wrong) for name, wrong in problems.items()}

    def moved(self, name: str) -> None:
        """A bad part is not among the others any more."""
        self.register.parts.pop(name, None)
        self._bad.pop(name, None)

    def recall(self, names: Collection[str]) -> None:
        """Know the rows of these parts again that were forgotten for better ones. They are no news."""
        if names:
            news, self.news = self.news, []
            try:
                self.peek(names)
            finally:
                self.news = news

    def peek(self, again: Collection[str] = ()) -> None:
        """Look, where it is no time to put anything aside: the next `look` says again what is wrong."""
        problems = self.look(again)
        self._put_off.update(problems)

    def read(self, name: str, columns: Sequence[str], places: np.ndarray | None) -> pa.Table:
        """Some columns of a part, of the rows at these places.

        Raises:
            LostPartError: it is damaged, or gone, since it was looked at.
        """
        part, columns = self.register.parts[name], list(columns)
        table = part.table
        if table is None:
            try:
                table, stamp = load(self._runs / name, list(dict.fromkeys([*columns, *INDEXED])))
            except (FileNotFoundError, DamagedError):
                raise LostPartError(name) from None
            if stamp != part.stamp:
                raise LostPartError(name)
            if not table.select(INDEXED).equals(self.register.index.head(name) if part.head is None else part.head):
                self.register.drop_index()
                raise LostPartError(name)
        table = table.select(columns)
        return table if places is None else take(table, places)

    def believed(self, tables: Sequence[tuple[str, pa.Table]]) -> list[Row]:
        """The rows that are those of the runs they describe; of the others a notice, once."""
        found: list[Row] = []
        for name, table in tables:
            rows, wrong = sift(decode(table))
            found += rows
            self._tell(name, wrong)
        return found

    def believed_tables(self, tables: Sequence[tuple[str, pa.Table]]) -> list[pa.Table]:
        """As `believed`, of whole rows, as tables."""
        found: list[pa.Table] = []
        for name, table in tables:
            _, wrong = sift(decode(table.select(DESCRIPTION)))
            found.append(take(table, [i for i, key in enumerate(table["key"].to_pylist()) if key not in wrong]))
            self._tell(name, wrong)
        return found

    def _tell(self, name: str, wrong: Mapping[str, str]) -> None:
        """Name rows of a part that cannot be believed, once."""
        if not self._named.issuperset(wrong):
            self._named.update(wrong)
            part = self._place.shown(f"runs/{name}")
            self._place.note(f"left out {counted(len(wrong), 'row')} of {part}: {said_of(wrong)}")

    def take_news(self, names: Collection[str], keys: Collection[str]) -> list[tuple[str, pa.Table]]:
        """The news among these keys from the parts with these names, which are none any more."""
        if not names:
            return []
        found, self.news, ours, wanted = self.news, [], [], set(keys)
        for name, rows in found:
            is_ours = [name in names and key in wanted for key in rows["key"].to_pylist()]
            ours.append((name, take(rows, [i for i, hit in enumerate(is_ours) if hit])))
            self.news.append((name, take(rows, [i for i, hit in enumerate(is_ours) if not hit])))
        return ours
