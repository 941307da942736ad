"""The tune study as a user runs it: real processes, a real Ray, a real kill."""

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.chaos.rows import comparable
from tests.conftest import Command, many, read_rows, wait_for_rows

Start = Callable[..., Command]
SMALL = (
    *("--search", "lr=1e-3..3e-2:log,width=8|32,encoding=bump|one-hot", "--decoder", "mlp", "--N", "8", "--max-steps", "100"),
    *("--trials", "16", "--pruner", "percentile", "--seeds-per-trial", "2", "--confirm", "2", "--seeds", "3"),
)


def found(folder: Path, store: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder / store / "tune" / "tune.json").read_text())
    return answer


@pytest.mark.slow(20)
def test_a_kill_changes_neither_the_runs_nor_the_winner(here: Start, tmp_path: Path) -> None:
    options = (*SMALL, "--workers", "1", "--pack-size", "1")  # packs of another size end in other bits
    whole = here(*options, "--store", "whole", "--json", study="tune")
    assert whole.wait() == 0, whole.stdout + whole.stderr
    expected = read_rows(tmp_path, "whole")
    assert (expected["status"] == "pruned").any(), "the test is to cover pruned runs"
    assert set(expected["seed"]) == {100_000, 100_001, 101_000, 101_001, 101_002}
    answer = json.loads(whole.stdout)
    assert answer == found(tmp_path, "whole")
    dice = random.Random(5)
    stored = 0
    kills = many(1, 3)
    for _ in range(kills):
        command = here(*options, study="tune")
        assert wait_for_rows(command, tmp_path, stored + dice.randint(2, 6)), command.stdout + command.stderr
        time.sleep(dice.random() * 0.3)
        command.process.kill()
        assert command.wait() == -signal.SIGKILL, "the study ended before it could be killed: make it longer"
        stored = len(read_rows(tmp_path))
    last = here(*options, study="tune")
    assert last.wait() == 0, last.stdout + last.stderr
    rows = read_rows(tmp_path)
    assert rows["launch"].nunique() == kills + 1
    assert comparable(rows) == comparable(expected)
    for part in ("winner", "comparison", "confirmed", "trials"):
        assert found(tmp_path, "results")[part] == answer[part]

    written = {path.name for path in (tmp_path / "results" / "tune").iterdir()}
    assert written == {"tune.csv", "tune-confirmed.csv", "tune.json", "tune.png", "tune.svg", "tune-settings.png"}
    table = pd.read_csv(tmp_path / "results" / "tune" / "tune-confirmed.csv")
    assert len(table) == 2
    assert (rows["seed"] >= 101_000).sum() == 6
    assert table["winner"].sum() == 1
    assert table.loc[table["winner"], "mse"].item() == table["mse"].min()


@pytest.mark.deep
@pytest.mark.slow(30)
def test_a_program_is_tuned(join: Start, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import math, sys\n"
        "rate, seed = float(sys.argv[1]), int(sys.argv[2])\n"
        "print(0.95 / (1 + abs(math.log10(rate) + 1)) + seed % 7 * 1e-3)\n"
    )
    words = ("--program", f"python {script} {{lr}} {{seed}} {{data_count}}", "--counts", "5..5", "--search", "lr=1e-3..1:log")
    options = (*words, "--objective", "accuracy", "--trials", "6", "--seeds", "3", "--confirm", "2", "--workers", "2")
    command = join(*options, study="tune")
    assert command.wait() == 0, command.stdout + command.stderr
    answer = found(tmp_path, "results")
    trials = {f"trial {trial['number']}": trial for trial in answer["trials"]}
    best = max(trials.values(), key=lambda trial: trial["accuracy"])
    assert answer["winner"]["lr"] == best["lr"]
    luck = [seed % 7 * 1e-3 for seed in (100_000, 101_000, 101_001, 101_002)]
    assert answer["winner"]["accuracy"] == pytest.approx(best["accuracy"] - luck[0] + sum(luck[1:]) / 3)
    assert answer["comparison"]["pairs"] == 3
