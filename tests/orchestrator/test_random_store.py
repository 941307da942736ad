"""Launches that append, try runs again, and lose or damage parts, in a random order, know the rows that a dict knows.

More of it: STORE_SEEDS=20 STORE_STEPS=500 pytest tests/orchestrator/test_random_store.py
"""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from store_child import FINISHED_AT, row

from orchestrator.store import ResultStore

SEEDS, STEPS = int(os.environ.get("STORE_SEEDS", "2")), int(os.environ.get("STORE_STEPS", "25"))
STATUSES = ("passed", "missed", "failed")
COLUMNS = ("key", "status", "host", "curve_loss")
"""Of those that are damaged, one or another is in the index, and read for some questions only."""


class Launches:
    """Some that are at work on a store at once, and `rows`: number of each run to its status and its try."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.tries = folder, rng, 0
        self.rows: dict[int, tuple[str, str]] = {}
        self.stores = [ResultStore(folder) for _ in range(3)]

    def tried(self, number: int, status: str) -> dict[str, Any]:
        self.tries += 1
        at = FINISHED_AT + timedelta(seconds=self.tries)
        return row(number, status=status, host=f"try {self.tries}", finished_at=at)

    def append(self, store: ResultStore) -> None:
        first = self.tries
        new = [self.tried(first + i, self.rng.choice(STATUSES)) for i in range(self.rng.choice((1, 2, 6, 10)))]
        assert self.keep(store.append(new)) == len(new)

    def try_again(self, store: ResultStore) -> None:
        failed = [number for number, (status, _) in self.rows.items() if status == "failed"]
        chosen, also_failed = self.rng.sample(failed, min(len(failed), self.rng.choice((1, 3)))), self.rng.random() < 0.5
        if also_failed:
            assert store.retry_failed() >= len(chosen)
        statuses = [self.rng.choice(STATUSES) if also_failed else "missed" for _ in chosen]
        assert self.keep(store.append([self.tried(*run) for run in zip(chosen, statuses, strict=True)])) == len(chosen)
        if also_failed:  # it takes all failed runs as not finished
            self.open_again(store)

    def keep(self, written: list[dict[str, Any]]) -> int:
        self.rows |= {found["data_count"]: (found["status"], found["host"]) for found in written}
        return len(written)

    def open_again(self, store: ResultStore) -> None:
        store.close()
        self.stores[self.stores.index(store)] = ResultStore(self.folder)

    def remove_part(self, store: ResultStore) -> None:
        if (part := self.lose_part()) is not None:
            part.unlink()

    def damage_part(self, store: ResultStore) -> None:
        if (part := self.lose_part()) is not None:
            before, data = part.stat(), bytearray(part.read_bytes())
            groups = pq.read_metadata(part).row_group(0)
            column = groups.column(pq.read_schema(part).names.index(self.rng.choice(COLUMNS)))
            data[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
            with part.open("r+b") as file:
                file.write(data)
            if self.rng.random() < 0.5:  # nobody who knows the part can see it
                os.utime(part, ns=(before.st_atime_ns, before.st_mtime_ns))
                for each in list(self.stores):
                    self.open_again(each)
                for each in self.stores:
                    each.rows()

    def lose_part(self) -> Path | None:
        parts = sorted((self.folder / "runs").iterdir())
        if not parts:
            return None
        part = self.rng.choice(parts)
        for number in pq.read_table(part, columns=["data_count"])["data_count"].to_pylist():
            del self.rows[number]
        return part

    def check(self, store: ResultStore) -> None:
        assert {found["data_count"]: (found["status"], found["host"]) for found in store.rows()} == self.rows
        keys = {row(number)["key"] for number in self.rows}
        assert sorted(store.table(["key"])["key"].to_pylist()) == sorted(keys)
        assert store.known([*keys, "x" * 24]) == keys
        assert len(store) == len(keys)
        for status in STATUSES:
            assert store.count({"status": [status]}) == sum(known == status for known, _ in self.rows.values())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_changes_of_a_store_are_known_to_all_launches(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.register.ROWS_PER_PART", 8)
    monkeypatch.setattr("orchestrator.store.register.ROWS_BEYOND_INDEX", 16)
    monkeypatch.setattr("orchestrator.store.folder.os.fsync", lambda descriptor: None)
    rng = random.Random(seed)
    launches = Launches(tmp_path, rng)
    changes = (launches.append, launches.try_again, launches.open_again, launches.remove_part, launches.damage_part)
    for _ in range(STEPS):
        (change,) = rng.choices(changes, (9, 5, 2, 1, 1))
        change(rng.choice(launches.stores))
        for store in launches.stores:
            if rng.random() < 0.4:
                store.refresh()
            elif rng.random() < 0.4:
                launches.check(store)
        if rng.random() < 0.2:
            with ResultStore(tmp_path, read_only=True) as store:
                launches.check(store)
    for store in launches.stores:
        launches.check(store)
        store.close()
