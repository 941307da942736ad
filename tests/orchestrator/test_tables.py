"""On a terminal of 80 columns every study's tables show the names of all their columns, and every word, in full."""

import math
import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator import __main__ as everything
from orchestrator import decoders, generators
from orchestrator.command.cli import run
from orchestrator.command.progress import Running
from orchestrator.command.tables import FittingTable, accuracy_text
from orchestrator.command.thresholds import _in_brief
from orchestrator.engine import estimate
from orchestrator.searches import Rows
from orchestrator.searches.audits import UNAUDITED, Record
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.store import make_row
from orchestrator.study import Study
from trainables.spec import run_key

ROWS = 30
RESULT = {
    **{"reason": "target", "accuracy": 0.523, "steps": 1200, "seconds": 3.0, "id_mse": 1.23e-4, "ood_mse": 2.34e-2},
    **{"loss": 0.1, "curve_step": [1], "curve_loss": [0.1], "curve_accuracy": [0.5], "curve_error": [0.1]},
    "measures": {"exact": 0.5},
}


def study_of(command: str, monkeypatch: pytest.MonkeyPatch) -> Study:
    found: list[Study] = []
    for module in (generators, decoders, *everything.STUDIES.values()):
        monkeypatch.setattr(module, "launch", lambda study, *_: found.append(study) or 0, raising=False)
    assert run(everything.app, shlex.split(command)) == 0
    return found[0]


def in_the_middle(study: Study) -> tuple[Rows, dict[str, Running]]:
    """Some of its runs finished, some running."""
    rows, version = Rows(), study.task.version
    while len(rows) < ROWS and (specs := study.search.propose(rows, 8)):
        for spec in specs[:4]:
            fixed, status = study.task.counts(spec).fixed, "missed" if spec.data_count % 2 else "passed"
            about = {"task_version": version, "fixed_count": fixed, "launch": "a", "versions": "b", "status": status}
            rows.add({**make_row(spec, **about, **RESULT), "key": run_key(spec, version)})
    return rows, {run_key(spec, version): Running(spec, 200, 0.53) for spec in study.search.propose(rows, 3)}


def tables(shown: RenderableType) -> list[Table]:
    return [shown] if isinstance(shown, Table) else [t for part in getattr(shown, "renderables", []) for t in tables(part)]


def headers(printed: str) -> list[str]:
    lines = printed.splitlines()
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(edge)) for edge in "┏┡")
    cells = zip(*(line.strip("┃").split("┃") for line in lines[first + 1 : last]), strict=True)
    return [" ".join(" ".join(column).split()) for column in cells]


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    "command",
    [
        *(study for study in everything.STUDIES if study != "tune"),
        "tune --search lr=1e-4..1e-2:log,width=32|64 --decoder mlp",
        "scaling --N 64,128,1024 --seeds 5 --decoder mlp",
        "scaling --N 16 --along encoding=bump,positional --holdout center --decoder mlp",
        "scaling --N 16,24 --least weight_decay --between 0.01..1 --data-count 50 --decoder mlp",
    ],
)
def test_nothing_is_cut_off_at_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.0123)
    study: Any = study_of(command, monkeypatch)
    rows, running = in_the_middle(study)
    shown = [*tables(study.table(rows, running)), *tables(study.plan(rows)[0])]
    assert len(shown) >= 2
    for table in shown:
        console = Console(width=80, file=StringIO())
        console.print(table)
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert headers(printed) == [str(column.header) for column in table.columns]
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= 80


def test_brackets_of_a_user_are_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = FittingTable(":t: [/t]")
    table.add_column("a [/b]", justify="right")
    table.add_column("b")
    table.add_row("[red]", Text("c", style="red"), style="bold")
    table.add_row("x[/b]", None)
    console = Console(width=80, file=StringIO())
    console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(word in printed for word in (":t: [/t]", " a [/b] ", " [red] ", " x[/b] "))
    monkeypatch.chdir(tmp_path)
    program = ["--program", "echo {mode} {seed} {data_count}", "--counts", "1..9", "--vary", "mode=[red]"]
    words = [*program, "--objective", "accuracy", "--search", "mode=[red]|x[/b]", "--dry-run"]
    assert run(everything.app, ["tune", *words]) == 0
    assert "[red]|x[/b]" in capsys.readouterr().out


def test_a_plan_for_a_gpu_is_timed_where_only_runs_on_cpus_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[bool] = []
    monkeypatch.setattr(estimate, "step_seconds", lambda spec, task, on_gpu: where.append(on_gpu) or 0.001)
    study = study_of("scaling --N 16,24 --decoder mlp --datasets bumps", monkeypatch)
    known, _ = in_the_middle(study)
    on_cpu, on_gpu = Rows(known), Rows(known, on_gpu=lambda decoder: True)
    by_rows = study.plan(on_cpu)[1]
    assert where == []
    timed = study.plan(on_gpu)[1]
    assert where == [True, True], "both sizes"
    assert by_rows
    assert timed
    assert study.work_left(on_gpu) is None


def test_what_a_program_took_counts_wherever_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of("scaling --program 'echo {data_count} {N} {seed}' --counts 10..40 --N 8", monkeypatch)
    known, _ = in_the_middle(study)
    assert study.work_left(Rows(known, on_gpu=lambda decoder: True)) == study.work_left(Rows(known)) is not None


def settled(seed: int, verdict: str, threshold: int | None, lower: int | None, **more: Any) -> ThresholdResult:
    about: dict[str, Any] = {"family": "f", "dataset": "bumps", "decoder": "cnn", "N": 16, "along": 16, "fixed": 0, "runs": 3}
    about |= {"steps": 9, "probes_left": 0, "audits_left": 0, "outliers": (), "failed_key": None, "lower_ended": "budget"}
    about |= {"rule": Record(0), "values": 9, "missed": lower, "tried": ((lower or 0, False), (threshold or 0, True))}
    about |= {"seed": seed, "verdict": verdict, "threshold": threshold, "lower": lower, "upper": threshold}
    return ThresholdResult(**about | more)


def test_thresholds_of_many_seeds_in_brief_keep_what_is_only_a_bound() -> None:
    exact = [settled(seed, "reached", 100 + seed, 96 + seed) for seed in range(10)]
    lowest = settled(12, "minimum", 32, 32, missed=None, tried=((32, True),))
    others = [settled(10, "none reached", None, 702), settled(11, "none reached", None, 702), settled(13, "failed", None, None)]
    cells = {
        "<= 32 to 109; 2 > 702; 1 failed": [*exact, *others, lowest],
        "100 to 109; 2 > 702; 1 failed": [*exact, *others],
        "100 to 109": exact,
        "100": exact[:1],
        "100 to 109 ? *": [*exact[1:], settled(0, "non-monotone", 100, 96, lower_ended=UNAUDITED)],
        "": [],
    }
    for told, row in cells.items():
        assert _in_brief(("bumps", 16), row, {})[1].plain == told


@pytest.mark.parametrize(
    ("accuracy", "digits", "text"),
    [(0.8996, 3, "0.899"), (0.89999, 2, "0.89"), (0.9, 3, "0.900"), (0.29, 2, "0.29"), (1.0, 1, "1.0"), (math.nan, 1, "nan")],
)
def test_an_accuracy_under_a_target_never_reads_as_the_target(accuracy: float, digits: int, text: str) -> None:
    assert accuracy_text(accuracy, digits) == text
