"""Audits in a real study: what the stopping rule gives up is trained on from where it was, also after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command, many, read_rows
from tests.jumpy import late, soon

pytestmark = pytest.mark.slow(20)
Start = Callable[..., Command]
JUMPY = ("--task", "tests.jumpy:Jumpy", "--N", "16,24", "--seeds", "1", "--lr", "0.05", "--weight-decay", "0",
         "--max-steps", "600", "--pack-size", "1", "--workers", "1", "--no-speculate", "--resolution", "0.01")  # fmt: skip


def table(folder: Path, store: str) -> pd.DataFrame:
    return pd.read_csv(folder / store / "scaling" / "scaling.csv", keep_default_na=False).set_index("N")


def test_a_late_jump_is_found_and_said_and_the_rule_is_off(here: Start, tmp_path: Path) -> None:
    found = {stop: here(*JUMPY, "--stop", stop, "--store", stop) for stop in ("early", "auto")}
    assert [command.wait() for command in found.values()] == [0, 0]
    unchecked, audited = (table(tmp_path, stop) for stop in found)
    assert unchecked["threshold"].tolist() == [soon(16), soon(24)]
    assert set(unchecked["lower_ended"]) == {"unaudited rule"}
    assert "* 2 of 2 lower bounds rest on the unchecked stopping rule" in found["early"].stdout
    assert f"{soon(24)} *" in found["early"].stdout
    assert audited["threshold"].tolist() == [late(16), late(24)]
    assert set(audited["lower_ended"]) == {"budget"}
    assert "jumps: the stopping rule was wrong here (N = 24, seed 0, " in found["auto"].stdout
    assert "passed at step 420" in found["auto"].stdout
    rule = json.loads((tmp_path / "auto" / "scaling" / "scaling.json").read_text())["rules"]["jumps"]
    assert rule["flips"]
    assert (rule["known"], rule["bound"]) == (0, None)
    rows = read_rows(tmp_path, "auto")
    given_up = set(rows[rows["reason"] == "converged"]["data_count"])
    on = rows[(rows["stop"] == "target") & rows["data_count"].isin(given_up)]
    assert set(on["steps"]) == {420, 600}
    assert list((tmp_path / "auto" / "checkpoints").iterdir()) == [], "what was kept to go on from is removed"

    budget = here(*JUMPY, "--stop", "budget", "--store", "auto")
    assert budget.wait() == 0
    assert table(tmp_path, "auto")["threshold"].tolist() == audited["threshold"].tolist()


@pytest.mark.deep
def test_a_kill_in_the_middle_of_an_audit_changes_nothing(join: Start, tmp_path: Path) -> None:
    undisturbed = join(*JUMPY, "--store", "whole")
    assert undisturbed.wait() == 0, undisturbed.stdout + undisturbed.stderr
    ledger = tmp_path / "ledger"
    options = (*JUMPY, "--store", "killed", "--option", f"ledger={ledger}", "--option", "pause=0.1")

    def audits() -> int:
        return ledger.read_text().count("target") if ledger.exists() else 0

    for kill in range(many(1, 2)):
        seen = audits()
        command = join(*options)
        end = time.monotonic() + 120
        while audits() == seen and command.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3 + kill)
        assert command.process.poll() is None, "it was to be killed in an audit"
        command.process.kill()
        command.process.wait()
    assert join(*options).wait() == 0
    whole, killed = read_rows(tmp_path, "whole"), read_rows(tmp_path, "killed")
    same = ["N", "data_count", "stop", "status", "reason", "steps", "accuracy", "id_mse", "curve_loss", "curve_accuracy"]
    in_order = [rows.sort_values(["N", "data_count", "stop"])[same].reset_index(drop=True) for rows in (whole, killed)]
    assert comparable_columns(in_order[0]) == comparable_columns(in_order[1])
    assert killed["key"].is_unique
    columns = ["threshold", "lower", "upper", "verdict", "runs", "steps", "lower_ended"]
    assert table(tmp_path, "killed")[columns].equals(table(tmp_path, "whole")[columns])


def comparable_columns(rows: pd.DataFrame) -> list[tuple[object, ...]]:
    """Values, curves as bytes."""
    return [tuple(v.tobytes() if hasattr(v, "tobytes") else v for v in row) for row in rows.itertuples(index=False)]
