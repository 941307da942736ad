"""The result store: finished runs as rows in a folder of Parquet files, and the weights and checkpoints beside them. The folder
may be in a bucket.

    DIR/runs/*.parquet            the rows; `pandas.read_parquet("DIR/runs")` reads all of them at any moment
    DIR/weights/KEY.safetensors   trained weights of a run
    DIR/checkpoints/KEY.pt        a run in progress
    DIR/questions/STUDY-*.json    what launches were asked (see `questions`)
    DIR/set-aside/                files found in runs/ that are damaged or not ours, kept and never read
    DIR/.index                    which part holds which run; may be deleted (see `index`)
    DIR/.tmp, DIR/.lock           files being written; locks of the launches at work
    DIR/launches/                 in a bucket only: the claims of the launches at work (see `leases.Lease`)
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orchestrator.errors import printable
from orchestrator.opened import remember
from orchestrator.store.artifacts import Artifacts
from orchestrator.store.contents import FAILED, checked, choose, ended_well
from orchestrator.store.parts import slices, take
from orchestrator.store.place import StoreError, Tell, tell_on_stderr
from orchestrator.store.reader import LostPartError, Reader
from orchestrator.store.rows import SCHEMA, Row, decode, encode
from orchestrator.store.turns import turns_of
from orchestrator.store.writer import Writer

if TYPE_CHECKING:
    import pandas as pd

ROWS_PER_BULK_PART = 50_000


class ResultStore(Artifacts):
    """All finished runs, each exactly once, keyed by run key.

    What a reader of `runs/` may see, at any instant and after any crash: every row whose `append` has returned, none
    twice, none torn. A part file is only ever replaced by a longer version of itself, in one rename, and rows never
    move between files: no order of renames would keep a reader from missing or doubling rows that do. Only a row that
    cannot be believed, or failed, is taken out of its part, once the run has another one that is better: in the same rename
    if this is in the same part, else thereafter. Between the two, and after a crash until the next launch, both are there; of
    them a store knows the better one.

    Several launches may use one store. Appends take turns; each launch extends a part of its own, and takes over one
    that is not full from a launch that has ended, so the files number about rows / ROWS_PER_PART + launches at work. A part
    that came with a copy of the folder is read, not extended.
    A claim or a part belongs to a launch until it lets go, closes or dies.

    A part is checked whole when it is first seen. Full parts that were are listed in the index, and read again only for rows
    that are asked for; damage that came later is found then. In memory are the index and the parts that are not in it.

    A store in a bucket is worked on in a folder of this machine that mirrors it: everything said above holds within a machine.
    What holds among machines is said at `turns.BucketTurns`. A claim is an object (see `leases.Lease`, also for what it cannot
    exclude), and rows of runs that a living launch of another machine has claimed are left to that one: `append` does not
    write them.

    The object may be shared by threads, not by forked processes. `read_only` changes nothing on disk, and a path
    that does not exist is then an empty store; otherwise the folders are created, remains of dead launches swept up,
    and damaged or foreign files in `runs/` moved to `set-aside/`. Each such file is a line in `notices`.

    Raises:
        StoreError: the path is not a folder or not writable, the bucket does not answer, or a part is of a newer schema;
            nothing has changed then.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, tell: Tell = tell_on_stderr) -> None:
        super().__init__(path, tell)
        self.read_only = read_only
        self._guard = threading.RLock()
        self._claims: set[str] = set()
        self._retried: set[str] = set()
        self._reader = Reader(self.place)
        self._register = self._reader.register
        self._turns = turns_of(self.place, self._reader)
        self._writer = Writer(self.place, self._reader, self._turns)
        if read_only:
            self.place.seal("opened for reading only")
        try:
            with self.place.in_words("open the store"):
                if self.path.is_symlink() and not self.path.exists():
                    raise StoreError(f"{printable(str(path))} is a broken link: repair it, or choose another folder")
                self.place.check()
                self._turns.pull()
                self._register.open_index(self.path)
                problems = self._reader.look()  # a newer schema is refused here, before anything is written
                if not read_only:
                    self._make_ready()
                self._settle(problems)
                if not read_only and self._register.beyond_index():
                    with self.place.locks.appending():
                        self._writer.keep_index()
        except BaseException:
            self.close()
            raise
        self._reader.keeps_news = True
        remember(self.path)

    def _make_ready(self) -> None:
        """Create the folder of the rows, and sweep up what dead launches left."""
        runs = self.place.make("runs")
        if not os.access(runs, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self.place.sweep()

    def __len__(self) -> int:
        return len(self._register)

    @property
    def damaged(self) -> int:
        """How many files among the rows could not be read at the last look, and were not set aside."""
        return self._reader.damaged

    def __contains__(self, key: object) -> bool:
        """Whether the run is finished, as of the last look (open, rows, table, refresh, append)."""
        return bool(self.known([str(key)]))

    def known(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys whose runs are finished, as `in` says of one."""
        return self._register.known(keys) - self._retried

    def retry_failed(self) -> int:
        """Take the runs that have failed so far as not finished: `in`, `known`, `rows` and `find` pass them over, and whatever
        comes of another try takes the place of the row, also if it fails again. Until then the row stays. How many they are."""
        with self._guard:
            failed = self.failed()
            self._reader.take_news([name for name, _ in self._reader.news], failed)  # they are known from here
            self._retried |= failed
            return len(self._retried)

    def failed(self) -> set[str]:
        """The keys of the runs that have failed, those that are about to be tried again among them. Counts as a look."""
        return set(self.table(["key"], {"status": [FAILED]})["key"].to_pylist())

    def rows(self, columns: Sequence[str] | None = None, where: Mapping[str, Collection[object]] | None = None) -> list[Row]:
        """All rows as plain dicts, or only those of `where` and only some of their columns (see `table`). Counts as a look.

        A row that is not that of the run it describes (see `contents.misfit`) is left out, and named in `notices`. To know that
        takes all columns of `contents.DESCRIPTION`; with less, rows are given as they are.
        """
        with self._guard:
            tables = self._tables(columns, where)
            self._take_news()
            return self._not_retried(self._reader.believed(tables))

    def find(self, where: Mapping[str, Collection[object]]) -> list[Row]:
        """As `rows`, for some rows in between: what `refresh` has still to return, it does."""
        with self._guard:
            return self._not_retried(self._reader.believed(self._tables(None, where)))

    def _not_retried(self, rows: list[Row]) -> list[Row]:
        """Those rows that are not about to be replaced. Some columns alone do not tell."""
        if not self._retried:
            return rows
        return [row for row in rows if row.get("status") != FAILED or row.get("key") not in self._retried]

    def find_table(self, where: Mapping[str, Collection[object]]) -> pa.Table:
        """As `find`, as an Arrow table of whole rows."""
        with self._guard:
            return pa.concat_tables([SCHEMA.empty_table(), *self._reader.believed_tables(self._tables(None, where))])

    def count(self, where: Mapping[str, Collection[object]]) -> int:
        """How many rows of `where` (see `table`) there were at the last look. No file is read for it."""
        with self._guard:
            return sum(len(found) for _, found in self._register.places(where) if found is not None)

    def table(self, columns: Sequence[str] | None = None, where: Mapping[str, Collection[object]] | None = None) -> pa.Table:
        """Rows as an Arrow table, with `options` and `measures` as JSON text.

        Args:
            columns: those to read; all of them if not given.
            where: column (one of `index.CHOICES`) to the values it may have. Other rows are left out, and parts that have no
                such rows are not read: with the families of a study, its rows come in less than a second from any store.
        """
        empty = SCHEMA.empty_table().select(list(columns or SCHEMA.names))
        with self._guard:
            return pa.concat_tables([empty, *(table for _, table in self._tables(columns, where))])

    def frame(self, task: str, where: Mapping[str, Collection[object]] | None = None) -> pd.DataFrame:
        """The rows of a task, `module:Class`, as a table of pandas, with a column for each option of the task in place of
        `options`; rows as in `rows`. An option that a row does not have is missing there. One with the name of a column is in
        `option_NAME`, and if that is an option, too, in `option_option_NAME`.
        """
        import pandas as pd

        rows = self.rows(where={**(where or {}), "task": {task}})
        columns = dict.fromkeys(name for row in rows for name in row["options"])
        table = pd.DataFrame(rows, columns=[name for name in SCHEMA.names if name != "options"])
        settings = {}
        for name in columns:
            column = name
            while column in table or (column != name and column in columns):
                column = f"option_{column}"
            settings[column] = [row["options"].get(name) for row in rows]
        return pd.concat([table, pd.DataFrame(settings, index=table.index)], axis=1)

    def refresh(self) -> list[Row]:
        """The rows that this object has neither returned nor found when it was opened; each is reported once.

        They are those of other launches, and those of an own `append` that failed after part of its rows were written.
        """
        with self._guard:
            with self.place.in_words("read the rows"):
                self._look()
            return self._take_news()

    def _take_news(self) -> list[Row]:
        """The rows that were found and not reported yet. Who waited for another try of these runs does so no more."""
        news, self._reader.news = self._reader.news, []
        rows = self._reader.believed(news)
        self._retried.difference_update(row["key"] for row in rows)
        return rows

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Add the rows whose key is not in the store yet, or whose run failed there and has ended now, or was tried again (see
        `retry_failed`); durable when it returns.

        One call with up to ROWS_PER_BULK_PART rows is all or nothing; a larger one is written in several such steps.

        Returns:
            The rows written, as any reader will now see them (so NaN in `measures` is None, curves are float32). With a bucket,
            rows of runs that another machine has claimed are not among them.

        Raises:
            ValueError: a row does not fit SCHEMA, or has values that no run has; nothing is written.
            StoreError: it could not be written; earlier rows are intact and the same call may be repeated.
        """
        return decode(pa.concat_tables([SCHEMA.empty_table(), *self._written(encode(rows))]))

    def append_table(self, rows: pa.Table) -> int:
        """As `append`, of a table of SCHEMA; how many rows were written."""
        return sum(table.num_rows for table in self._written(rows))

    def _written(self, rows: pa.Table) -> list[pa.Table]:
        """Do as `append` says."""
        table = checked(rows)
        self.place.needs_writing("append to")
        written = list[tuple[str, pa.Table]]()
        with self._guard, self.place.in_words("append results"):
            try:
                tried = self._turns.attempt(lambda: self._append(table, written))
                written += self._reader.take_news(tried, table["key"].to_pylist())
            except BaseException:
                self._reader.news += written
                raise
        return [rows for _, rows in written]

    def _append(self, table: pa.Table, written: list[tuple[str, pa.Table]]) -> None:
        keys = table["key"].to_pylist()
        with self._turns.appending(keys) as elsewhere:
            self._look(locked=True)
            if self._turns.repeat(elsewhere):
                self._look(locked=True)
            ours = take(table, [i for i, key in enumerate(keys) if key not in elsewhere])
            worse = self._forget_worse(ours)
            try:
                known = self._register.known(keys)
                fresh = take(ours, [i for key, i in choose(ours, ()).items() if key not in known])
                problems = dict(self._turns.at_once(worse))
                for piece in slices(fresh, ROWS_PER_BULK_PART):
                    written.append(("", self._writer.extend(piece, problems)))
                self._writer.set_aside(problems)
                self._retried.difference_update(ours["key"].to_pylist())
            except BaseException:
                self._reader.recall(worse)
                raise

    def claim(self, key: str) -> bool:
        """Reserve the training of a run for this launch. False, at once, if another living launch has it."""
        return bool(self.claim_all([key]))

    def claim_all(self, keys: Sequence[str]) -> list[str]:
        """As `claim`, for several runs, for which a bucket is asked at once; those that this launch has then."""
        self.place.needs_writing("claim a run of")
        with self._guard, self.place.in_words("claim a run"):
            if taken := self.place.take([key for key in keys if key not in self._claims]):
                self._claims |= taken
                self._turns.expect_changes()  # who had one before may have finished it
            return [key for key in keys if key in self._claims]

    def release(self, key: str) -> None:
        """Give a claim back; nothing happens if it is not held."""
        with self._guard:
            if key in self._claims:
                self._claims.discard(key)
                self.place.free(key)

    def close(self) -> None:
        with self._guard:
            for key in tuple(self._claims):
                self.release(key)
            self._turns.let_go()
            self.place.seal("closed")
            super().close()

    def _look(self, *, locked: bool = False) -> None:
        """Take in what changed in `runs/` since the last look, and put aside what does not belong there.

        Args:
            locked: the caller has the right to change rows.
        """
        self._turns.pull(locked=locked)
        self._settle(self._reader.look(), locked=locked)

    def _settle(self, problems: Mapping[str, str], *, locked: bool = False) -> None:
        """Put bad parts aside, or only tell of them."""
        if self.read_only:
            for name, why in problems.items():
                some = "rows of " if name in self._register.parts and self._register.parts[name].rows else ""
                self.place.note(f"left out {some}{self.place.shown(f'runs/{name}')}: {why}")
        elif problems:
            with self._turns.settling(problems, locked=locked) as agreed:
                self._writer.set_aside(agreed)

    def _forget_worse(self, table: pa.Table) -> dict[str, str]:
        """Forget rows that have keys of these rows and cannot be believed, or failed where these did not; the parts that have
        them, and what is wrong with these. The files stay as they are until the better rows are written."""
        known = self._register.known(table["key"].to_pylist())
        if not known:
            return {}
        chosen = choose(table, known)
        right, better = chosen.keys() & known, ended_well(take(table, list(chosen.values())))
        while right:
            try:
                return self._reader.forget_wrong(right, better, self._retried)
            except LostPartError as error:
                self._settle(self._reader.look(error.args), locked=True)
        return {}

    def _tables(
        self, columns: Sequence[str] | None, where: Mapping[str, Collection[object]] | None
    ) -> list[tuple[str, pa.Table]]:
        """The parts that have such rows, each with these columns of them."""
        with self.place.in_words("read the rows"):
            self._look()
            while True:
                try:
                    places = self._register.places(where)
                    return [(name, self._reader.read(name, columns or SCHEMA.names, found)) for name, found in places]
                except LostPartError as error:  # damaged, or gone, since it was looked at
                    self._settle(self._reader.look(error.args))
