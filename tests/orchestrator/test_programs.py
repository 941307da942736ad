"""A study over a program as a user runs it: real processes, a real Ray, a real kill."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest

from analysis.report import __main__ as report
from orchestrator.command.cli import run
from tests.chaos.rows import comparable
from tests.conftest import Command, read_rows

Start = Callable[..., Command]
SCRIPT = """
echo "$1 $2 $3 $(pwd)" >> "$HERE/ledger"
if test "$1" = 16 && test -e "$HERE/hold"; then
    sleep 1000 &
    sleep 1000
fi
echo "images: $3 [/red]" >&2
awk -v N=$1 -v seed=$2 -v count=$3 'BEGIN {
    share = count / (3 * N + 2 * seed)
    if (share < 1) share *= 0.8; else share = 1
    for (i = 1; i <= 3; i++) printf "{\\"step\\": %d, \\"accuracy\\": %.4f, \\"[/red]\\": 1}\\n", i, share * i / 3
}'
test "$3" -lt $((3 * $1 + 2 * $2)) || sleep 1000
"""
"""Passes from 3 N + 2 seed images on, and then does not end by itself. At N = 16 it hangs as long as there is a file `hold`."""


FAILING = """
case $1 in
    8) echo gone >&2; exit 7 ;;
    9) sleep 1000 ;;
    *) touch "$HERE/begun"; sleep 1000 ;;
esac
"""


def alive(folder: Path) -> list[psutil.Process]:
    """Programs of this test, and what they have started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HERE") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for(holds: Callable[[], object], command: Command | None = None) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        assert command is None or command.process.poll() is None, command.stdout + command.stderr
        time.sleep(0.05)


@pytest.mark.slow(30)
def test_a_program_is_studied_and_a_killed_launch_leaves_nothing_of_it(start: Start, here: Start, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT)
    ledger, hold = tmp_path / "ledger", tmp_path / "hold"
    command = f"env HERE={tmp_path} sh {tmp_path}/train.sh {{N}} {{seed}} {{data_count}}"
    words = ("--program", command, "--counts", "1..200", "--N", "8,16", "--seeds", "2", "--resolution", "0.01")
    words = (*words, "--workers", "2", "--no-speculate", "--price", "1")

    def trainings() -> Counter[str]:
        return Counter(line.rpartition(" ")[0] for line in ledger.read_text().splitlines()) if ledger.exists() else Counter()

    whole = here(*words, "--store", "whole")
    assert whole.wait() == 0, whole.stdout + whole.stderr
    assert "how long it takes is known when some runs have ended" in whole.stdout
    table = pd.read_csv(tmp_path / "whole" / "scaling" / "scaling.csv")
    found = {(N, seed): images for N, seed, images in table[["N", "seed", "images"]].itertuples(index=False)}
    assert found == {(N, seed): 3 * N + 2 * seed for N in (8, 16) for seed in (0, 1)}
    rows = read_rows(tmp_path, "whole")
    assert set(rows["status"]) == {"passed", "missed"}
    assert set(trainings().values()) == {1}
    assert len(trainings()) == len(rows)
    assert not alive(tmp_path)

    ledger.unlink()
    hold.touch()
    killed = start(*words)
    wait_for(lambda: any(line.startswith("16 ") for line in trainings()), killed)
    assert {line.rpartition(" ")[2] for line in ledger.read_text().splitlines()} == {str(tmp_path)}
    assert alive(tmp_path)
    os.kill(killed.process.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    wait_for(lambda: not alive(tmp_path))
    before = read_rows(tmp_path)
    assert 0 < len(before) < len(rows)

    hold.unlink()
    again = here(*words)
    assert again.wait() == 0, again.stdout + again.stderr
    after = read_rows(tmp_path)
    assert comparable(after) == comparable(rows)
    assert comparable(after[after["key"].isin(before["key"])]) == comparable(before)
    assert sum(trainings().values()) <= len(rows) + 2, "only what was running is trained again"
    assert run(report.app, ["--store", str(tmp_path / "results"), "--out", str(tmp_path / "report"), "--no-measure"]) == 0
    assert "samples ~ N^" in (tmp_path / "report" / "index.html").read_text()
    assert sum(trainings().values()) <= len(rows) + 2
    assert not alive(tmp_path)


@pytest.mark.slow(10)
def test_a_program_that_prints_no_accuracy_is_run_once_and_the_launch_says_what_to_print(here: Start, tmp_path: Path) -> None:
    script = f"echo $0 >> {tmp_path}/ledger; echo final accuracy: 99.61%"
    program = f"sh -c '{script}' {{data_count}} {{N}} {{seed}}"
    command = here("--program", program, "--counts", "5..90", "--N", "8,16", "--workers", "1")
    assert command.wait() == 2, command.stdout + command.stderr
    assert len((tmp_path / "ledger").read_text().splitlines()) == 1
    (line,) = command.stderr.splitlines()
    assert line.startswith("error: sh, N = ")
    assert line.endswith(
        "the program told no accuracy: its last line is 'final accuracy: 99.61%'. Let it print a line such as "
        '{"accuracy": 0.93}, or a share from 0 to 1 alone in its last line'
    )
    assert not list((tmp_path / "results").rglob("*.parquet"))
    assert not list((tmp_path / "results" / "questions").iterdir())


@pytest.mark.deep
@pytest.mark.slow(30)
def test_a_program_that_hangs_or_fails_is_a_failed_row_and_interruption_ends_it(join: Start, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(FAILING)
    command = f"env HERE={tmp_path} sh {tmp_path}/train.sh {{N}} {{data_count}}"
    words = ("--program", command, "--counts", "1..20", "--seeds", "1", "--workers", "2", "--no-speculate")
    failing = join(*words, "--N", "8,9", "--stall-minutes", "0.05")
    assert failing.wait() == 1, failing.stdout + failing.stderr
    assert "fix the program" in failing.stdout
    errors = dict(read_rows(tmp_path)[["N", "error"]].itertuples(index=False))
    assert errors[8] == "the program ended with exit code 7\nstderr:\ngone"
    assert errors[9].startswith("the program printed nothing for 3 s (--stall-minutes), so it was killed")
    assert not alive(tmp_path)

    stopped = join(*words, "--N", "10")
    wait_for((tmp_path / "begun").exists, stopped)
    stopped.process.send_signal(signal.SIGINT)
    assert stopped.wait() == 130, stopped.stdout + stopped.stderr
    wait_for(lambda: not alive(tmp_path))
