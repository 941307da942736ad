"""The studies whose runs are known beforehand: what they ask for, their mistakes, and one of them as a user runs it."""

import dataclasses
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from orchestrator import encodings, geometry, tuning
from orchestrator.command.cli import App, grouped, run
from orchestrator.decoders import DecoderOptions
from orchestrator.engine import estimate
from orchestrator.launch import LaunchOptions
from orchestrator.searches import Rows, ending
from orchestrator.searches.grid import GridSearch
from orchestrator.store import make_row
from orchestrator.study import GridStudy
from tests.conftest import Command, check_refusal, read_rows
from trainables.bumps import BumpTask
from trainables.spec import RunSpec

APPS = {"encodings": encodings.app, "geometry": geometry.app, "tuning": tuning.app}
SPECS = [
    RunSpec(task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=4, seed=seed, depth=depth, holdout="center",
            options=tuple(BumpTask.defaults.items()), stop="budget")
    for depth in (2, 4) for seed in (0, 1)
]  # fmt: skip


def row(spec: RunSpec, status: str = "missed", **values: float) -> dict[str, object]:
    return make_row(spec, task_version="1", fixed_count=0, status=status, reason="budget", steps=10, **values)


def test_the_grid_proposes_what_is_neither_done_nor_running() -> None:
    search = GridSearch(SPECS, "1")
    rows = Rows([row(SPECS[1])])
    assert search.propose(rows, 10) == [SPECS[0], SPECS[2], SPECS[3]]
    assert search.propose(rows, 1, running=[SPECS[0]]) == [SPECS[2]]
    assert not search.finished(rows)
    assert search.finished(Rows([row(spec) for spec in SPECS]))
    assert search.propose(Rows([row(spec) for spec in SPECS]), 10) == []


@pytest.mark.parametrize(
    ("study", "words", "told"),
    [
        ("geometry", "--depths 1..32", "192000 runs are too many (at most 100000): ask for fewer --depths or --seeds"),
        ("encodings", "--by-depth 1..32 --seeds 1000 --N 16", None),
        ("tuning", "--bumps 0..100:1", "101000 runs are too many (at most 100000): ask for fewer --bumps or --seeds"),
    ],
)
def test_more_runs_than_can_be_planned_are_refused_before_they_are_made(
    study: str, words: str, told: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(DecoderOptions, "specs", lambda *_, **__: pytest.fail("it makes runs") if told else [])
    monkeypatch.setattr(f"orchestrator.{study}.train", lambda *_: 0)
    assert run(APPS[study], [*words.split(), "--N", "16", "--seeds", "1000"]) == (0 if told is None else 2)
    assert told is None or told in capsys.readouterr().err


def test_a_study_trains_a_spec_once_and_tables_what_differs() -> None:
    study = GridStudy("grid", BumpTask(), [*SPECS, SPECS[0]], {"store": "results", "out": "out"})
    assert study.specs == SPECS
    assert study.columns == ("depth",)
    rows = Rows([row(SPECS[0], id_mse=1e-4, ood_mse=2e-3), row(SPECS[1], id_mse=3e-4, ood_mse=4e-3)])
    records = study.answer(rows)["runs"]
    assert [(r["depth"], r["seed"], r["ood_mse"]) for r in records] == [(2, 0, 2e-3), (2, 1, 4e-3)]
    assert not study.answered(rows)
    whole = Rows([row(spec) for spec in SPECS])
    assert study.answered(whole)
    whole.add(row(SPECS[0], status="failed"))
    assert not study.answered(whole)


def test_what_a_study_asks_after_each_run_costs_nothing_while_nothing_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, rows, looks = GridStudy("grid", BumpTask(), SPECS, {"store": "results", "out": "out"}), Rows(), list[RunSpec]()
    look = GridSearch.row
    monkeypatch.setattr(GridSearch, "row", lambda self, rows, spec: looks.append(spec) or look(self, rows, spec))
    for spec in SPECS:
        assert not study.search.finished(rows)
        rows.add(row(spec))
    assert study.search.finished(rows)
    so_far = len(looks)
    assert study.write(rows, tmp_path, force=False) == []
    assert study.search.finished(rows)
    assert len(looks) == so_far
    assert not study.search.finished(Rows([row(SPECS[0])]))


def test_a_study_may_name_what_tells_its_runs_apart_and_say_more_of_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.01)
    specs = [spec.with_value("sigma", sigma) for spec in SPECS[:2] for sigma in (1.0, 2.0)]
    about, asked = {"decoder": "network", "depth": "layers", "sigma": "width of a bump"}, {"store": "results", "out": "out"}
    study = GridStudy("grid", BumpTask(), specs, asked, about, ["decoder"], ["left out: nothing"])
    assert study.columns == ("decoder", "sigma")
    console = Console(width=120, file=StringIO())
    console.print(study.plan(Rows())[0])
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"network ┃ +width of a bump ┃ +runs done", printed)
    assert "left out: nothing" in printed
    ended = row(specs[1], id_mse=1e-4, ood_mse=2e-3)
    assert study.line(ended).startswith("cnn, 2.0, seed 0: finished (MSE")
    assert [(r["decoder"], r["sigma"], r["seed"]) for r in study.answer(Rows([ended]))["runs"]] == [("cnn", 2.0, 0)]


@pytest.mark.parametrize(
    ("status", "told"), [("missed", "finished"), ("passed", "finished"), ("diverged", "diverged"), ("failed", "failed")]
)
def test_no_target_decides_over_a_run_of_these_studies(status: str, told: str, tmp_path: Path) -> None:
    study = GridStudy("grid", BumpTask(), SPECS, {"store": "results", "out": "out"})
    ended = row(SPECS[0], status, id_mse=1e-4, ood_mse=2e-3)
    rows = Rows([ended, {**row(SPECS[1], "failed"), "steps": None}])
    assert study.line(ended).startswith(f"2, seed 0: {told} (MSE")
    assert [record["status"] for record in study.answer(rows)["runs"]] == [told, "failed"]
    study.write(rows, tmp_path, force=True)
    table = pd.read_csv(tmp_path / "grid.csv", dtype=str)
    assert table[["status", "steps"]].fillna("").to_numpy().tolist() == [[told, "10"], ["failed", ""]]
    assert [run["status"] for run in json.loads((tmp_path / "grid.json").read_text())["runs"]] == [told, "failed"]


def test_the_table_averages_the_runs_that_ended_well_and_tells_how_many_did_not() -> None:
    study = GridStudy("grid", BumpTask(), SPECS, {"store": "results", "out": "out"})

    def shown(*rows: dict[str, object]) -> tuple[str, list[list[str]]]:
        table: Any = study.table(Rows(rows), {})
        lines = zip(*(column.cells for column in table.columns), strict=True)
        return str(table.title), [list(map(str, cells)) for cells in lines]

    well = [row(spec, id_mse=1e-4, ood_mse=2e-3, accuracy=0.998) for spec in SPECS]
    lost = row(SPECS[1], "diverged", id_mse=2.0, ood_mse=3.0, accuracy=0.01), row(SPECS[2], "failed"), row(SPECS[3], "diverged")
    means = ["1.0e-04", "2.0e-03", "0.99"]
    assert shown(*well[:3]) == ("grid: means over seeds", [["2", "2/2", *means], ["4", "1/2", *means]])
    assert shown(well[0], *lost) == (
        "grid: means over the seeds that ended well",
        [["2", "2/2 (1 diverged)", *means], ["4", "2/2 (1 diverged, 1 failed)", "", "", ""]],
    )


def test_a_target_decides_over_a_run_that_has_one() -> None:
    probe = dataclasses.replace(SPECS[0], stop="early")
    assert [ending(row(probe, status)) for status in ("missed", "passed", "failed")] == ["missed", "passed", "failed"]


@pytest.mark.parametrize(
    ("study", "arguments", "hint"),
    [
        ("encodings", ["--encodings", "bump,hash"], "choose bump, one-hot, positional or ramp"),
        ("encodings", ["--decoders", "rnn"], "choose cnn or mlp"),
        ("encodings", ["--holdouts", "random"], "choose center or corner"),
        ("encodings", ["--by-depth", "0..3"], "--by-depth 0 is out of range for depths: write a range 2..6"),
        ("encodings", ["--by-depth", "many"], "'many' is not a list of depths"),
        ("encodings", ["--by-depth", ""], "or a list 2,4,6, from 1 to 32, or none\n"),
        ("geometry", ["--depths", ""], "or a list 2,4,6, from 1 to 32\n"),
        ("encodings", ["--N", "4"], "number from 8 "),
        ("geometry", ["--depths", "6..2"], "--depths '6..2' is an empty range"),
        ("geometry", ["--holdout", "edge"], "choose center or corner"),
        ("geometry", ["--bumps", "496"], "--bumps 496 is more than the positions outside the box at N = 28: give at most 495"),
        ("tuning", ["--bumps", "ten"], "--bumps 'ten' is not a list of numbers of bumps"),
        ("tuning", ["--encoding", "ramp"], "use --absent minus-one\n"),
        ("tuning", ["--precision", "tf32"], "needs a GPU"),
        ("tuning", ["--max-steps", "0"], "number from 1 "),
        ("tuning", ["--option", "sigma"], "NAME=VALUE"),
        ("tuning", ["--option", "decoder=mlp"], "--option decoder has an option of its own: use --decoder\n"),
        ("tuning", ["--option", "depth=2"], "--option depth has an option of its own: use --depth\n"),
        ("encodings", ["--option", "encoding=ramp"], "--option encoding has an option of its own: use --encodings\n"),
        ("encodings", ["--option", "holdout=random"], "--option holdout has an option of its own: use --holdouts\n"),
        ("geometry", ["--option", "depth=2"], "--option depth has an option of its own: use --depths\n"),
        ("geometry", ["--option", "decoder=mlp"], "--option decoder has an option of its own: use --decoders\n"),
        ("geometry", ["--option", "dataset=bumps"], "--option dataset is what this study chooses by itself: omit it\n"),
        ("tuning", ["--sigma", "2", "--option", "sigma=3"], "--sigma and --option sigma both give sigma: keep one of the two"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    study: str,
    arguments: list[str],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(APPS[study], arguments, hint, tmp_path, capsys)


WHERE = {
    *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours", "--on-error"),
    *("--retry-failed", "--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
    *("--save-weights", "--json", "--verbose", "--help"),
}
DECODER = {
    *("--N", "--seeds", "--width", "--sigma", "--absent", "--tolerance", "--option", "--max-steps", "--batch-size", "--lr"),
    *("--weight-decay", "--precision"),
}


@pytest.mark.parametrize(
    ("study", "own"),
    [
        ("encodings", {"--encodings", "--decoders", "--holdouts", "--depth", "--by-depth"}),
        ("geometry", {"--depths", "--decoders", "--encodings", "--holdout", "--bumps", "--stripes", "--no-stripes"}),
        ("tuning", {"--bumps", "--decoder", "--depth", "--encoding", "--holdout"}),
    ],
)
def test_the_set_of_options_is_frozen(study: str, own: set[str]) -> None:
    # A line of help may break inside the panel: only what begins one is an option.
    text = re.sub(r"\x1b\[[\d;]*m", "", CliRunner().invoke(APPS[study], ["--help"], env={"COLUMNS": "160"}).output)
    assert set(re.findall(r"^│ \*? *(--[A-Za-z][\w-]*)", text, re.MULTILINE)) | set(
        re.findall(r"^│ --[\w-]+ +(--no-[\w-]+)", text, re.MULTILINE)
    ) == own | WHERE | DECODER


def test_options_of_a_dataclass_become_options_of_the_command() -> None:
    @dataclasses.dataclass(frozen=True)
    class Where:
        store: Annotated[str, typer.Option(help="A folder.")] = "results"
        deep: bool = False

    app, got = App(), []

    @app.command()
    @grouped
    def command(N: int = 3, *, where: Where) -> int:
        got.append((N, where))
        return 0

    assert run(app, ["--store", "here", "--N", "5", "--deep"]) == 0
    assert run(app, []) == 0
    assert got == [(5, Where("here", True)), (3, Where())]


def test_the_encodings_study_shares_its_runs_with_the_geometry_study() -> None:
    common = {"dataset": "bumps", "decoder": "cnn", "depth": 4, "encoding": "bump", "holdout": "center", "data_count": None}
    specs = DecoderOptions(N=16, seeds=2, max_steps=10, precision="float32").specs(**common, where=LaunchOptions())
    assert [(s.seed, s.data_count, s.stop, s.width) for s in specs] == [(0, 156, "budget", 64), (1, 156, "budget", 64)]


@pytest.mark.slow(4)
def test_a_study_trains_keeps_weights_and_trains_nothing_twice(here: Callable[..., Command], tmp_path: Path) -> None:
    arguments = ("--N", "8", "--max-steps", "20", "--decoder", "mlp", "--width", "16", "--depth", "2", "--seeds", "2",
                 "--workers", "2")  # fmt: skip
    first = here(*arguments, "--bumps", "0,4", study="tuning")
    assert first.wait() == 0, first.stderr
    rows = read_rows(tmp_path)
    assert sorted(zip(rows["data_count"], rows["seed"], strict=True)) == [(0, 0), (0, 1), (4, 0), (4, 1)]
    assert {path.stem for path in (tmp_path / "results" / "weights").iterdir()} == set(rows["key"])
    table = pd.read_csv(tmp_path / "results" / "tuning" / "tuning.csv")
    assert table[["data_count", "seed"]].to_numpy().tolist() == [[0, 0], [0, 1], [4, 0], [4, 1]]
    assert len(json.loads((tmp_path / "results" / "tuning" / "tuning.json").read_text())["runs"]) == 4
    assert "python -m analysis.report --store results" in first.stdout

    second = here(*arguments, "--bumps", "0,4,8", study="tuning")
    assert second.wait() == 0, second.stderr
    assert "2 runs trained" in second.stdout
    assert len(read_rows(tmp_path)) == 6
