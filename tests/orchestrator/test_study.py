"""The scaling study as a user runs it: real processes, a real embedded Ray, real kills."""

import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.chaos.rows import comparable
from tests.conftest import ROOT, Command, many, read_rows, wait_for_rows
from tests.toy import threshold

pytestmark = pytest.mark.slow(15)
Start = Callable[..., Command]
TOY = ("--task", "tests.toy:Toy", "--workers", "2", "--max-steps", "3", "--resolution", "0.01")
REAL = ("--N", "8,12", "--decoder", "mlp", "--max-steps", "200", "--no-speculate", "--workers", "2",
        "--pack-size", "1")  # fmt: skip


def answers(folder: Path, store: str = "results") -> dict[tuple[int, int], float]:
    table = pd.read_csv(folder / store / "scaling" / "scaling.csv")
    return {(n, s): t for n, s, t in table[["N", "seed", "threshold"]].itertuples(index=False)}


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, with their command lines."""
    parents, words = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {p: words[p] for p in found - {pid}}


def test_known_thresholds_are_found_and_nothing_is_trained_twice(join: Start, here: Start, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    options = (*TOY, "--N", "8,16", "--option", f"ledger={ledger}")
    first = join(*options, "--seeds", "2")
    assert first.wait() == 0, first.stdout + first.stderr
    assert answers(tmp_path) == {(n, s): threshold(n, s) for n in (8, 16) for s in (0, 1)}
    rows = read_rows(tmp_path)
    assert rows["key"].is_unique
    begun = ledger.read_text().splitlines()
    assert len(begun) == len(set(begun))
    stored = {f"{N} {seed} {count}" for N, seed, count in rows[["N", "seed", "data_count"]].itertuples(index=False)}
    assert stored <= set(begun)
    assert len(begun) - len(stored) <= 2, "what the answer does not need ends with it, at most one run of each worker"
    for name in ("scaling.csv", "scaling.json", "scaling.png", "scaling.svg"):
        assert (tmp_path / "results" / "scaling" / name).stat().st_size > 100
        (tmp_path / "results" / "scaling" / name).unlink()

    foreign = tmp_path / "results" / "runs" / "notes.parquet"
    foreign.write_text("not a table")
    again = here(*options, "--seeds", "2", "--json")
    assert again.wait() == 0
    assert "Ray" not in again.stderr, "none is started if there is nothing to train"
    assert "0 runs trained" in again.stderr
    assert "set aside results/runs/notes.parquet" in again.stderr
    assert (tmp_path / "results" / "set-aside" / "notes.parquet").read_text() == "not a table"
    assert ledger.read_text().splitlines() == begun
    assert (tmp_path / "results" / "scaling" / "scaling.png").exists()
    answer = json.loads(again.stdout)
    assert {(t["N"], t["seed"]): t["threshold"] for t in answer["thresholds"]} == answers(tmp_path)

    more = here(*options, "--seeds", "3")
    assert more.wait() == 0
    after = read_rows(tmp_path)
    assert set(after[~after["key"].isin(rows["key"])]["seed"]) == {2}
    assert answers(tmp_path)[16, 2] == threshold(16, 2)


@pytest.mark.slow(25)
def test_kills_of_the_driver_change_nothing(join: Start, here: Start, tmp_path: Path) -> None:
    whole = here(*REAL, "--seeds", "2", "--store", "whole")
    assert whole.wait() == 0, whole.stdout + whole.stderr
    expected = read_rows(tmp_path, "whole")
    dice = random.Random(7)
    kills, stored = 0, 0
    while kills < many(1, 5):
        command = join(*REAL, "--seeds", "2")
        assert wait_for_rows(command, tmp_path, stored + dice.randint(0, 2)), command.stdout + command.stderr
        time.sleep(dice.random() * 0.3)
        command.process.kill()
        assert command.wait() == -signal.SIGKILL, "the study ended before it could be killed: make it longer"
        kills += 1
        before, stored = stored, len(read_rows(tmp_path))
        assert stored >= before
    last = here(*REAL, "--seeds", "2")
    assert last.wait() == 0, last.stdout + last.stderr
    rows = read_rows(tmp_path)
    assert rows["launch"].nunique() > 1
    assert comparable(rows) == comparable(expected)
    assert answers(tmp_path) == answers(tmp_path, "whole")


def test_kills_of_a_study_of_widths_change_nothing(here: Start, tmp_path: Path) -> None:
    options = ("--task", "tests.toy:Wide", "--N", "8,16", "--seeds", "2", "--max-steps", "3", "--resolution", "0.01",
               "--least", "width", "--between", "2..99", "--data-count", "5", "--workers", "2", "--no-speculate",
               "--pack-size", "1", "--option", f"ledger={tmp_path / 'ledger'}", "--option", "pause=0.2")  # fmt: skip
    command = here(*options)
    assert wait_for_rows(command, tmp_path, 3), command.stdout + command.stderr
    command.process.kill()
    assert command.wait() == -signal.SIGKILL, "the study ended before it could be killed: make it longer"
    stored = set(read_rows(tmp_path)["key"])
    last = here(*options, "--json")
    assert last.wait() == 0, last.stdout + last.stderr
    found = {(one["N"], one["seed"]): one["width"] for one in json.loads(last.stdout)["thresholds"]}
    assert found == {(n, s): threshold(n, s) for n in (8, 16) for s in (0, 1)}
    rows = read_rows(tmp_path)
    assert rows["key"].is_unique
    assert stored < set(rows["key"])
    starts = (tmp_path / "ledger").read_text().splitlines()
    assert len(starts) <= len(rows) + 2, "only the runs under the kill are trained again"


def test_the_accuracy_to_reach_may_be_what_thresholds_are_searched_along(here: Start) -> None:
    options = (*TOY, "--N", "8", "--seeds", "1", "--along", "target=0.5,0.9")
    shown = here(*options)
    assert shown.wait() == 0, shown.stdout + shown.stderr
    assert "for accuracy" not in shown.stdout
    again = here(*options, "--json")
    assert again.wait() == 0, again.stdout + again.stderr
    answer = json.loads(again.stdout)
    assert answer["settings"]["target"] == [0.5, 0.9]
    assert [(one["target"], one["images"]) for one in answer["thresholds"]] == [(0.5, threshold(8, 0)), (0.9, threshold(8, 0))]


def kill_a_worker(address: str) -> None:
    """One of the Ray at this address."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = descendants(os.getpid())
        raylets = [pid for pid, words in found.items() if "/raylet " in words and f"--gcs-address={address}" in words.split()]
        for raylet in raylets:
            for pid, words in descendants(raylet).items():
                if words.startswith("ray::") and "Trainable" in words:
                    os.kill(pid, signal.SIGKILL)
                    return
    pytest.fail("there is no worker")


@pytest.mark.parametrize(
    ("sent", "code", "send"),
    [
        pytest.param(signal.SIGINT, 130, os.killpg, id="Ctrl-C in a terminal"),
        pytest.param(signal.SIGTERM, 143, os.kill, id="SIGTERM", marks=pytest.mark.deep),
        pytest.param(signal.SIGTERM, 143, os.killpg, id="SIGTERM to Ray as well", marks=pytest.mark.deep),
    ],
)
def test_a_signal_stops_gracefully_the_last_line_resumes_and_a_killed_worker_costs_no_result(
    start: Start, join: Start, shared_ray: str, tmp_path: Path, sent: int, code: int, send: Callable[[int, int], None]
) -> None:
    """The first launch starts a Ray of its own, to which another one that is up makes no difference."""
    ledger = tmp_path / "ledger"
    options = (*TOY, "--N", "8,16", "--seeds", "2", "--no-speculate", "--option", "pause=0.4", "--option", f"ledger={ledger}")
    command = start(*options)
    assert wait_for_rows(command, tmp_path, 2)
    sent_at = time.monotonic()
    send(command.process.pid, sent)
    assert command.wait() == code, command.stdout + command.stderr
    assert time.monotonic() - sent_at < 30
    assert "Traceback" not in command.stderr
    resume = command.stdout.strip().splitlines()[-1]
    assert resume == "to continue: python -m orchestrator.scaling " + " ".join(options)
    stored = set(read_rows(tmp_path)["key"])
    assert len(stored) >= 2

    ledger.unlink()
    resumed = join(*resume.split("orchestrator.scaling ")[1].split())
    assert wait_for_rows(resumed, tmp_path, len(stored) + 1), resumed.stdout + resumed.stderr
    kill_a_worker(shared_ray)
    assert resumed.wait() == 0, resumed.stdout + resumed.stderr
    assert "training the rest with 2 in parallel" in resumed.stdout
    assert "lost its worker" in resumed.stdout
    assert stored < set(read_rows(tmp_path)["key"])
    assert answers(tmp_path) == {(n, s): threshold(n, s) for n in (8, 16) for s in range(2)}
    starts = Counter(ledger.read_text().splitlines())
    assert len(starts) == len(read_rows(tmp_path)) - len(stored)
    assert sum(starts.values()) <= len(starts) + 1, "only the run under the killed worker is trained again"


def test_a_failing_run_is_a_row_and_the_rest_is_answered(here: Start, tmp_path: Path) -> None:
    options = (*TOY, "--N", "8,16,24", "--seeds", "1", "--option", "trouble=raise", "--option", "trouble_N=16")
    command = here(*options)
    assert command.wait() == 1
    failed = read_rows(tmp_path).query("status == 'failed'")
    assert set(failed["N"]) == {16}
    assert "ArithmeticError: the toy is broken" in failed["error"].iloc[0]
    assert "ArithmeticError: the toy is broken" in command.stdout
    assert answers(tmp_path)[24, 0] == threshold(24, 0)
    stopped = here(*options, "--store", "other", "--on-error", "stop", "--workers", "1")
    assert stopped.wait() == 1
    assert not (read_rows(tmp_path, "other")["N"] == 24).any()


def test_a_task_that_calls_sys_exit_fails_like_one_that_raises(here: Start, tmp_path: Path) -> None:
    command = here(*TOY, "--N", "8,16", "--seeds", "1", "--option", "trouble=exit", "--option", "trouble_N=16")
    assert command.wait() == 1
    failed = read_rows(tmp_path).query("status == 'failed'")
    assert set(failed["N"]) == {16}
    assert "SystemExit: 0" in failed["error"].iloc[0]
    assert answers(tmp_path)[8, 0] == threshold(8, 0)


@pytest.mark.deep
def test_at_a_limit_what_runs_is_finished_and_the_rest_is_told(start: Start, tmp_path: Path) -> None:
    options = (*TOY, "--N", "8,16", "--seeds", "4", "--pack-size", "1", "--no-speculate", "--option", "pause=1")
    cost = start(*options, "--price", "3600", "--max-cost", "15")  # a second costs one
    assert cost.wait() == 1, cost.stdout + cost.stderr
    first, *_, last = cost.stdout.splitlines()
    assert first == "0 runs are in results; training the rest with 2 in parallel"
    assert "\nstarting Ray on this machine: the first run starts in about 10 to 30 s\n" in cost.stdout
    assert re.search(r"^about .* with 2 in parallel, cost \d+\.\d\d at 3600 per worker-hour$", cost.stdout, re.MULTILINE)
    spent = re.search(r"^(\d+) runs? trained in .*, cost (\d+\.\d\d) at 3600 per worker-hour$", cost.stdout, re.MULTILINE)
    assert spent is not None
    runs, seconds = int(spent[1]), float(spent[2])
    assert 3 <= runs <= seconds  # each takes one and more
    assert seconds >= 15
    why = "the cost limit was reached, and about .* are still needed"
    missing = re.match(rf"not answered: {why} \((.*) at 3600 per worker-hour", last)
    assert missing is not None
    assert float(missing[1]) > 10
    assert set(read_rows(tmp_path)["status"]) <= {"passed", "missed"}
    assert len(read_rows(tmp_path)) == runs

    hours = start(*options, "--max-hours", "0")
    assert hours.wait() == 1
    assert "about" in hours.stdout.splitlines()[1]
    assert "0 runs trained" in hours.stdout
    assert "not answered: the time limit was reached, and about" in hours.stdout
    assert "(" not in hours.stdout.splitlines()[-1]
    assert len(read_rows(tmp_path)) == runs


@pytest.mark.deep
def test_nan_is_a_result_lack_of_memory_shrinks_and_a_dead_worker_is_replaced(join: Start, tmp_path: Path) -> None:
    nan = join(*TOY, "--N", "8", "--seeds", "1", "--option", "trouble=nan", "--option", "trouble_N=8", "--store", "nan")
    assert nan.wait() == 0, nan.stdout + nan.stderr
    assert set(read_rows(tmp_path, "nan")["status"]) == {"diverged"}
    assert "none reached" in (tmp_path / "nan" / "scaling" / "scaling.csv").read_text()

    trouble = ("--option", "trouble=memory", "--option", "trouble_N=8")
    memory = join(*TOY, "--N", "8", "--seeds", "2", *trouble, "--store", "memory")
    assert memory.wait() == 1
    assert "ran out of memory: now 1 in parallel" in memory.stdout
    assert set(read_rows(tmp_path, "memory")["status"]) == {"failed"}

    ledger = tmp_path / "ledger"
    ledger.touch()
    trouble = ("--option", "trouble=die", "--option", "trouble_N=8", "--option", f"ledger={ledger}")
    die = join(*TOY, "--N", "8", "--seeds", "1", *trouble, "--store", "die")
    assert die.wait() == 0, die.stdout + die.stderr
    assert "lost its worker (once)" in die.stdout
    assert answers(tmp_path, "die") == {(8, 0): threshold(8, 0)}


def test_two_launches_share_one_store(here: Start, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    options = (*TOY, "--N", "8,16", "--option", "pause=0.2", "--option", f"ledger={ledger}")
    both = [here(*options, "--out", f"out-{i}") for i in (1, 2)]
    assert [command.wait() for command in both] == [0, 0], [c.stdout + c.stderr for c in both]
    rows = read_rows(tmp_path)
    assert rows["key"].is_unique
    assert rows["launch"].nunique() == 2, "both launches took part"
    assert len(ledger.read_text().splitlines()) == len(rows), "no run was trained by both"
    tables = [pd.read_csv(tmp_path / f"out-{i}" / "scaling.csv") for i in (1, 2)]
    assert list(tables[0]["threshold"]) == list(tables[1]["threshold"])


def test_a_store_that_is_moved_while_a_study_runs_is_not_made_anew(here: Start, tmp_path: Path) -> None:
    store, moved = tmp_path / "results", tmp_path / "moved"
    options = (*TOY, "--N", "8,16", "--seeds", "1", "--option", "pause=0.1", "--no-speculate", "--pack-size", "1")
    command = here(*options)
    while not (store / "scaling" / "scaling.json").exists():
        assert command.process.poll() is None, command.stdout + command.stderr
        time.sleep(0.02)
    store.rename(moved)
    assert command.wait() == 1
    assert "results was moved or removed while in use, with its runs: move it back" in command.stdout
    assert not store.exists()
    moved.rename(store)
    rows = read_rows(tmp_path)
    assert 8 in set(rows["N"])
    plan = here(*options, "--dry-run")
    assert plan.wait() == 0, plan.stdout + plan.stderr
    assert sum(map(int, re.findall(r"│ toys +│ +\d+ │ +\d+ │ +(\d+) │", plan.stdout))) == len(rows), "no run is trained again"


@pytest.mark.deep
def test_a_users_own_task_takes_part(join: Start) -> None:
    options = ("--task", "examples.own_task:Chords", "--N", "8,16", "--decoder", "linear", "--lr", "0.01", "--seeds", "2")
    command = join(*options, "--json")
    assert command.wait() == 0, command.stdout + command.stderr
    answer = json.loads(command.stdout)
    thresholds = {(t["N"], t["seed"]): t["total_images"] for t in answer["thresholds"]}
    assert all(2 * n - 1 <= total <= 8 * n for (n, _), total in thresholds.items()), "2N - 1 pairs is the least that can do"
    assert len((ROOT / "examples" / "own_task.py").read_text().splitlines()) < 60
