"""The answer of the scaling study: what its files say, and what its figure shows."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.files import plain
from analysis.scaling import COLUMNS, Answer, draw

SETTINGS = {"decoder": "cnn", "encoding": "bump", "target": 0.9}


def row(dataset: str, N: int, seed: int, total: float, verdict: str = "reached", **other: Any) -> dict[str, Any]:
    fixed = 2 * N if dataset == "stripes+bumps" else 0
    known = {"lower": total - 1, "upper": total, "total_images": total, "threshold": total - fixed}
    return {
        **dict.fromkeys(COLUMNS, 0), "decoder": "cnn", "dataset": dataset, "N": N, "seed": seed, "verdict": verdict,
        **known, **other,
    }  # fmt: skip


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    bumps = [row("bumps", n, s, n**2 / 4) for n in (16, 32, 64) for s in (0, 1)]
    stripes = [row("stripes+bumps", n, s, 2 * n, "minimum", lower=2 * n) for n in (16, 32, 64) for s in (0, 1)]
    return bumps + stripes


def test_exponents_are_those_of_the_thresholds(rows: list[dict[str, Any]]) -> None:
    answer = Answer.of(rows, SETTINGS)
    assert answer.fits["bumps"].exponent == pytest.approx(2.0)
    assert answer.fits["stripes+bumps"].exponent == pytest.approx(1.0)
    assert any("N^2.00" in line and "(paper: 3)" in line for line in answer.lines())


def test_open_thresholds_take_no_part_and_censored_ones_are_never_a_number(rows: list[dict[str, Any]]) -> None:
    open_ = row("bumps", 8, 0, math.nan, "open")
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    answer = Answer.of([*rows, open_, censored], SETTINGS)
    assert 8 not in set(answer.table["N"])
    assert answer.fits["bumps"].exponent == pytest.approx(2.0)
    mean = answer.summary.query("dataset == 'bumps' and N == 72").iloc[0]
    assert math.isnan(mean["total_images"])
    assert mean["upper"] == math.inf
    thresholds = {(t["dataset"], t["N"], t["seed"]): t for t in answer.to_json()["thresholds"]}
    assert thresholds["bumps", 72, 0]["total_images"] is None
    assert thresholds["bumps", 72, 0]["upper"] is None


def test_files_are_complete_and_no_temporary_is_left(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    paths = Answer.of(rows, SETTINGS).write(tmp_path / "deep" / "out")
    assert sorted(p.name for p in paths) == sorted(p.name for p in (tmp_path / "deep" / "out").iterdir())
    table = pd.read_csv(paths[0])
    assert tuple(table.columns) == COLUMNS
    assert len(table) == len(rows)
    answer = json.loads(paths[1].read_text())
    assert answer["settings"] == SETTINGS
    assert answer["fits"]["bumps"]["paper_exponent"] == 3
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[3].read_text()


def test_the_figure_shows_both_curves_the_censored_point_and_the_references(rows: list[dict[str, Any]]) -> None:
    censored = row("bumps", 72, 0, math.nan, "none reached", lower=5000, upper=math.inf)
    axes = draw(Answer.of([*rows, censored], SETTINGS)).axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert any(label.startswith("bumps: images ~ N^2.00") for label in labels)
    assert "bumps: more than this" in labels
    assert [text.get_text() for text in axes.texts] == ["$N$", "$N^2$", "$N^3$"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "32", "64", "72"]


def test_one_threshold_is_drawn_without_a_law() -> None:
    answer = Answer.of([row("bumps", 16, 0, 50)], SETTINGS)
    assert answer.fits["bumps"].exponent is None
    assert draw(answer).axes[0].get_legend() is not None


def test_a_study_in_which_every_run_failed_has_a_figure_too(tmp_path: Path) -> None:
    failed = row("bumps", 16, 0, math.nan, "failed", lower=math.nan, upper=math.nan)
    answer = Answer.of([failed], SETTINGS)
    assert [text.get_text() for text in draw(answer).axes[0].texts] == ["no threshold is known"]
    assert len(answer.write(tmp_path)) == 4


def test_plain_values_have_no_nan() -> None:
    assert plain({"a": [math.nan, math.inf, 1.5], 2: (True, None)}) == {"a": [None, None, 1.5], "2": [True, None]}
