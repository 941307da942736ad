"""The search, packs, execution and store together, with many workers on a virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulator import Simulated, Truth, answer, endings, one_worker, plan, simulate
from orchestrator.store import ResultStore


@pytest.mark.parametrize(("workers", "pack_size", "gpu"), [(20, 1, False), (5, 4, False), (5, 8, True)])
@pytest.mark.slow(5)
def test_many_workers_answer_as_one_and_train_nothing_twice(tmp_path: Path, workers: int, pack_size: int, gpu: bool) -> None:
    brackets = plan((8, 16, 24, 32), 3, 3)
    done = simulate(brackets, workers, pack_size, tmp_path, gpu=gpu)
    assert {r.verdict for r in done.results} <= {"reached", "non-monotone"}
    assert [answer(r) for r in done.results] == [answer(r) for r in one_worker(brackets)]
    assert done.tally.twice == 0
    assert done.tally.notices == []
    assert 0 <= done.idle < 0.4
    with ResultStore(tmp_path, read_only=True) as store:
        rows = store.rows()
    assert len(rows) == done.runs == sum(r.runs for r in done.results)
    truth = Truth()
    for row in rows:
        passed, accuracy = truth(next(b for b in brackets if b.family == row["family"]).template.with_count(row["data_count"]))
        assert (row["status"] == "passed", row["accuracy"]) == (passed, accuracy)


@pytest.mark.slow(2)
def test_a_launch_goes_on_with_the_rows_there_are(tmp_path: Path) -> None:
    few, all_ = plan((8, 16), 2, 2), plan((8, 16, 24), 2, 2)
    first = simulate(few, 10, 1, tmp_path)
    again = simulate(few, 10, 1, tmp_path)
    more = simulate(all_, 10, 1, tmp_path)
    assert again.makespan == 0
    assert [answer(r) for r in again.results] == [answer(r) for r in first.results]
    assert [answer(r) for r in more.results] == [answer(r) for r in one_worker(all_)]
    assert more.runs > first.runs == again.runs


def test_a_worker_shares_its_time_among_the_runs_of_a_pack_and_reports_by_slices() -> None:
    assert endings([3.0], 10.0) == [(13.0, [0])]
    # 1 + 1 + 1 until the first ends, then 2 + 2, then 3 more
    assert endings([6.0, 1.0, 3.0], 0.0) == [(4.0, [1]), (8.0, [2]), (10.0, [0])]
    assert endings([1.0, 1.0, 1.5], 0.0) == [(3.5, [2]), (4.0, [0, 1])]


def test_the_simulated_task_has_the_counts_of_the_simulated_studies() -> None:
    bracket = plan((16,), 1, 1)[0]
    assert Simulated().counts(bracket.template) == bracket.counts
