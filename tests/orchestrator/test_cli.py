"""Mistakes in the command: one line that says what is allowed, exit code 2, nothing written, no traceback."""

import contextlib
import dataclasses
import errno
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from analysis import export, measure
from analysis.report import __main__ as report
from orchestrator import __main__ as everything
from orchestrator import again, geometry, launch, merge, objectives, scaling
from orchestrator.command.cli import App, Terminated, ends_on_interrupt, invocation, quoted, run, typed
from orchestrator.command.progress import say
from orchestrator.command.ranges import parse_grid
from orchestrator.command.stages import ELSEWHERE, Stages
from orchestrator.engine.cluster import Cluster, _last_words
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.errors import UserError
from orchestrator.searches import Rows
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import ResultStore, StoreError, make_row
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import ROOT, changed, check_refusal, trained_by
from tests.toy import Toy, threshold
from trainables.spec import GIVEN_UP, RunSpec, family_key, run_key

SPEC = RunSpec(task="a:B", dataset="bumps", N=16, data_count=3, seed=0, options=(("sigma", 1.0), ("centres", "integer")))

MISTAKES = [
    (["--N", "16..x"], "16..64:16"),
    (["--N", ""], "16..64:16"),
    (["--N", "64..16"], "empty range"),
    (["--N", "4"], "N must be at least 8 for bumps, not 4"),
    (["--N", "16..5000"], "N must be at most 1024 for bumps, not 1032"),
    (["--N", "0"], "from 1 to 2147483647"),
    (["--N", "8,2147483648"], "from 1 to 2147483647"),
    (["--N", "2147483647", "--task", "tests.toy:Toy"], "high + fixed of at most 2147483647"),
    (["--N", "1..100000000"], "too many grid sizes (at most 100000)"),
    (["--N", "1..60000:1,1..60000:1"], "too many grid sizes (at most 100000)"),
    (["--decoder", "rnn"], "choose cnn or mlp"),
    (["--encoding", "hash"], "choose"),
    (["--datasets", "bumps,lines"], "choose bumps or stripes+bumps"),
    (["--holdout", "edge"], "choose random, center or corner"),
    (["--centres", "odd"], "choose integer or real"),
    (["--absent", "none"], "choose zero or minus-one"),
    (["--target", "0"], "(0, 1]"),
    (["--target", "1.1"], "(0, 1]"),
    (["--target", "nan"], "target"),
    (["--tolerance", "-1"], "number from 0 "),
    (["--sigma", "0"], "sigma must be above 0"),
    (["--seeds", "0"], "number from 1 "),
    (["--seeds", "few"], "--seeds"),
    (["--max-steps", "0"], "number from 1 "),
    (["--batch-size", "0"], "number from 1 "),
    (["--lr", "0"], "lr must be above 0"),
    (["--lr", "inf"], "finite"),
    (["--resolution", "1"], "between 0 and 1"),
    (["--until-width", "0"], "above 0"),
    (["--until-width", "0.2", "--seeds", "2"], "needs --seeds 3 or more"),
    (["--until-width", "0.2", "--N", "16"], "needs an exponent: ask for two or more values of N"),
    (["--until-width", "0.2", "--N", "24", "--along", "encoding=bump,ramp"], "needs an exponent"),
    (["--precision", "float8"], "choose auto, float32, bfloat16 or tf32"),
    (["--task", "nowhere"], "module:Class"),
    (["--task", "nowhere:Task"], "cannot be imported"),
    (["--task", "pathlib:Path"], "is not a task: it lacks version"),
    (["--option", "shape=round"], "sigma"),
    (["--option", "sigma"], "NAME=VALUE"),
    (["--option", "sigma=wide"], "takes a finite number"),
    (["--encoding", "ramp"], "minus-one"),
    (["--on-error", "ignore"], "choose continue or stop"),
    (["--address", "127.0.0.1:1"], "does not answer"),
    (["--address", "somewhere"], "host:port"),
    (["--gpus-per-run", "1000"], "GPUs"),
    (["--precision", "tf32"], "needs a GPU"),
    (["--pack-size", "0"], "--pack-size"),
    (["--workers", "0"], "number from 1 "),
    (["--max-cost", "5"], "add --price"),
    (["--max-cost", "5", "--price", "0"], "--max-cost needs a --price above 0, the cost of one worker-hour"),
    (["--cpu-workers", "2"], "add --gpus-per-run 1"),
    (["--stall-minutes", "0"], "--stall-minutes"),
    (["--stall-minutes", "inf"], " to 1000000, not"),
    (["--stall-minutes", "1e9"], " to 1000000, not"),
    (["--max-hours", "nan"], "number from 0 on"),
    (["--gpus-per-run", "inf"], "finite"),
    (["--gpus-per-run", "1.5"], "fraction below 1"),
    (["--workers", "999999999999"], "--workers"),
    (["--address", "127.0.0.1:" + "9" * 30], "no number from 1 to 65535"),
    (["--max-hours", "-1"], "number from 0 "),
    (["--store", ""], "--store is empty"),
    (["--out", "s3://bucket/figures"], "--out must be a folder of this machine"),
    (["--out", "results/runs"], "is where the store keeps its runs"),
    (["--store", "here", "--out", "here/../here/weights/figures"], "is where the store keeps its weights"),
    (["--out", ""], "--out is empty: name a folder, such as tables"),
    (["--out", "x" * 300], "cannot be a folder (File name too long)"),
    (["--store", "x" * 300], "is too long for a file name"),
    (["--frobnicate"], "No such option"),
    (["stray"], "stray"),
]


@pytest.mark.parametrize(("arguments", "hint"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(scaling.app, arguments, hint, tmp_path, capsys)


@pytest.mark.slow(1)
def test_a_store_that_is_a_file_or_newer_or_below_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert run(scaling.app, ["--store", str(file)]) == 2
    assert f"--store '{file}' cannot be a folder, because '{file}' is not a folder: choose another" in capsys.readouterr().err
    assert run(scaling.app, ["--store", str(file / "below")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert file.read_text() == "mine"
    runs = tmp_path / "newer" / "runs"
    runs.mkdir(parents=True)
    table = pa.table({"x": [1]}).replace_schema_metadata({"orchestrator.schema": "99"})
    pq.write_table(table, runs / "part.parquet")
    assert run(scaling.app, ["--store", str(tmp_path / "newer")]) == 2
    assert re.search("schema 99.*update", capsys.readouterr().err)
    assert run(scaling.app, ["--out", str(file), "--store", str(tmp_path / "new")]) == 2
    assert "--out" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [[], ["--dry-run"]], ids=["for real", "a dry run"])
def test_a_link_where_a_store_has_the_tables_is_not_written_through(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "store"):
        Path(name).mkdir()
    Path("mine/scaling.csv").write_text("mine")
    Path("store/scaling").symlink_to("../mine")
    arguments = ["--N", "8", "--decoder", "mlp", *how]
    assert run(scaling.app, [*arguments, "--store", "store"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "error: 'store/scaling' is a link, and tables and figures might replace files in what it leads to: remove the link, "
        "or name the folder they go to with --out\n",
    )
    assert [path.name for path in Path("store").iterdir()] == ["scaling"]
    assert [path.read_text() for path in Path("mine").iterdir()] == ["mine"]
    assert run(scaling.app, [*arguments, "--dry-run", "--store", "store", "--out", "store/scaling"]) == 0
    assert run(scaling.app, [*arguments, "--dry-run", "--store", "store/scaling"]) == 0


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--N", "8,16", "--decoder", "mlp", "--dry-run", "--store", str(tmp_path / "new")]
    assert run(scaling.app, arguments) == 0
    printed = capsys.readouterr().out
    assert "runs to do" in printed
    assert "stripes+bumps" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", [[], ["--dry-run"]], ids=["for real", "a dry run"])
def test_a_store_that_cannot_be_made_is_refused_before_anything_is_planned(
    how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--N", "8", "--decoder", "mlp", *how]
    for option in ("--store", "--out"):
        assert run(scaling.app, changed([*arguments, "--store", str(tmp_path / "new")], option, "/proc/x")) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith(f"error: {option} '/proc/x': '/proc' is not writable (")
        assert line.endswith(f"choose a folder you can write to with {option}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("app", "words", "option"),
    [
        (scaling.app, ["--N", "8", "--store", "{closed}/s"], "--store"),
        (export.app, ["--csv", "rows.csv", "--store", "{closed}/s"], "--store"),
        (measure.app, ["--store", "{closed}/s"], "--store"),
        (report.app, ["--store", "{closed}"], "--store"),
        (merge.app, ["{closed}/s", "mine"], "COPY"),
        (merge.app, ["copy", "{closed}/s"], "STORE"),
        (objectives.app, ["--dataset", "celeba", "--data", "{closed}/celeba"], "--data"),
    ],
)
def test_a_folder_that_this_user_may_not_enter_is_refused_in_one_line(
    app: App, words: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may enter all, and these tests may be run by root."""
    stat, closed = os.stat, tmp_path / "closed"
    (tmp_path / "copy" / "runs").mkdir(parents=True)
    closed.mkdir()

    def denied(path: Any, *args: Any, **how: Any) -> os.stat_result:
        if isinstance(path, str | Path) and closed in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *args, **how)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "stat", denied)
    named = next(word.format(closed=closed) for word in words if "{closed}" in word)
    assert run(app, [word.format(closed=closed) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    hint = "choose a folder that you may read, or ask its owner"
    assert line == f"error: {option} {named!r} cannot be entered (Permission denied): {hint}"


def test_help_names_every_option_and_the_set_of_options_is_frozen() -> None:
    result = CliRunner().invoke(scaling.app, ["--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    options = set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))
    assert options == {
        *("--N", "--datasets", "--target", "--seeds", "--resolution", "--until-width", "--speculate", "--no-speculate"),
        *("--stop", "--least", "--along", "--between", "--data-count"),
        *("--task", "--decoder", "--depth", "--width", "--encoding", "--holdout", "--centres", "--sigma", "--absent"),
        *("--program", "--program-settings", "--vary", "--counts"),
        *("--polarity", "--tolerance", "--option", "--max-steps", "--batch-size", "--lr", "--weight-decay", "--precision"),
        *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours"),
        *("--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
        *("--on-error", "--retry-failed", "--save-weights", "--json", "--verbose", "--help"),
    }


def test_the_console_command_has_the_same_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(everything.app, ["scaling", "--decoder", "rnn"]) == 2
    assert "choose cnn or mlp" in capsys.readouterr().err


def test_the_console_command_alone_shows_its_help_and_no_empty_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(everything.app, [], "sweep") == 2
    printed = capsys.readouterr()
    assert "Usage: sweep [OPTIONS] COMMAND" in printed.out
    assert printed.err == ""


def test_the_console_command_tells_the_version_and_reads_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(everything.app, ["--version"]) == 0
    assert re.fullmatch(r"sweep-orchestrator (\d+\.\d+\.\d+|unknown)\n", capsys.readouterr().out)
    for command, *words, refusal in (
        ("measure", "is not a folder"),
        ("report", "has no runs"),
        ("export", "--csv", "a", "has no runs"),
        ("again", "123456", "has no runs"),
    ):
        assert run(everything.app, [command, *words, "--store", str(tmp_path / "none")], "sweep") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: --store")
        assert refusal in line
        assert run(everything.app, [command, "--help"], "sweep") == 0
        assert f"Usage: sweep {command} [OPTIONS]" in capsys.readouterr().out


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("program", "words"),
    [("/x/bin/sweep", "sweep"), ("/x/orchestrator/__main__.py", "python -m orchestrator")],
)
def test_help_shows_commands_as_the_user_starts_them(
    program: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setenv("COLUMNS", "200")
    for study in (*everything.STUDIES, "report", "measure", "export", "again"):
        assert run(everything.app, [study, "--help"], words) == 0
        help = " ".join(capsys.readouterr().out.split())
        assert not re.search(r"python -m (orchestrator|analysis)\.", help)
        assert study == "measure" or re.search(rf"Examples {words} {study} ", help)
        assert study != "geometry" or f"{words} report then" in help
    monkeypatch.setattr("sys.argv", ["/x/orchestrator/geometry.py"])
    assert run(geometry.app, ["--help"]) == 0
    help = " ".join(capsys.readouterr().out.split())
    assert "Examples python -m orchestrator.geometry --N 16" in help
    assert "python -m analysis.report then" in help


OF_COMMANDS = [*everything.STUDIES.values(), again, measure, report, export]
FILES = ("--mnist", "--data", "--store")
"""Options that name files which are not here."""


def examples(command: ModuleType) -> list[str]:
    """The commands that the help of a command shows, and its file."""
    (registered,) = command.app.registered_commands
    in_help = re.findall(r"`(python -m (?:orchestrator|analysis)\.\w+[^`]*)`", inspect.getdoc(registered.callback) or "")
    return [*in_help, *re.findall(r"^    (python -m .*)$", command.__doc__ or "", re.MULTILINE)]


@pytest.mark.slow(1)
@pytest.mark.parametrize("command", OF_COMMANDS, ids=lambda command: str(command.__name__))
def test_examples_of_help_are_no_mistakes(command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(launch, "_launch", lambda *_: 0)
    monkeypatch.setattr(Cluster, "check", lambda _: None)
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.py").write_text("from tests.toy import Choosy as Task")
    apps = {module.__name__.removesuffix(".__main__"): module.app for module in OF_COMMANDS}
    for example in examples(command):
        _, _, path, *words = shlex.split(example)
        app = apps[path]
        if path.startswith("orchestrator.") and path != "orchestrator.again" and not set(words) & {*FILES}:
            assert run(app, [*words, "--dry-run"]) == 0, example
        else:
            typer.main.get_command(app.of(words)).make_context(path, words).close()  # it parses


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/x/orchestrator/scaling.py", ["python", "-m", "orchestrator.scaling"]),
        ("/x/orchestrator/__main__.py", ["python", "-m", "orchestrator"]),
        ("/x/bin/sweep", ["sweep"]),
    ],
)
def test_the_resume_line_starts_the_same_program(program: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [program, "--N", "8"])
    assert invocation() == [*words, "--N", "8"]
    assert typed(invocation()) == shlex.join([*words, "--N", "8"])


def test_the_resume_line_has_the_path_of_a_program_that_is_not_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine/sweep", "mine/python", "others/sweep", "others/python"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "mine" / "python"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "mine" / "sweep")])
    for path in ("/nowhere", str(tmp_path / "others")):
        monkeypatch.setenv("PATH", path)
        assert typed(["python", "-m", "orchestrator", "--N", "8"]) == f"{tmp_path}/mine/python -m orchestrator --N 8"
        assert typed(["sweep", "scaling"]) == f"{tmp_path}/mine/sweep scaling"
    monkeypatch.chdir(tmp_path)
    assert typed(["sweep", "scaling"]) == "mine/sweep scaling"
    monkeypatch.setenv("PATH", f"{tmp_path}/mine:{tmp_path}/others")
    assert typed(["python", "-m", "x"]) == "python -m x"
    assert typed(["sweep", "scaling"]) == "sweep scaling"


def test_the_resume_line_is_told_also_if_the_working_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, gone = tmp_path / "bin" / "python", tmp_path / "gone"
    python.parent.mkdir()
    python.touch(mode=0o755)
    gone.mkdir()
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert typed(["python", "-m", "x"]) == f"{python} -m x"


def test_the_resume_line_can_be_pasted_whatever_letters_its_words_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--store", "my\N{NO-BREAK SPACE}results", "--program", "./a 'b\\c'\t{data_count}\n", "--out", "été"]
    monkeypatch.setattr("sys.argv", ["sweep", "scaling", *words])
    say(Console(), f"to continue: {typed(invocation())}")
    pasted = capsys.readouterr().out.removeprefix("to continue: sweep scaling ").removesuffix("\n")
    given = subprocess.run(["bash", "-c", f"printf '%s\\0' {pasted}"], capture_output=True, check=True).stdout
    assert given.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("encoding", "word", "written"),
    [
        ("ascii", "Störe", r"$'St\303\266re'"),
        ("ascii", "a store", "'a store'"),
        ("latin-1", "Störe", "'Störe'"),
        ("latin-1", "Stōre's", r"$'St\305\215re\'s'"),
        ("utf-8", "Stōre", "'Stōre'"),
    ],
)
def test_a_letter_that_the_output_cannot_hold_is_written_by_its_bytes(
    stream: str, encoding: str, word: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BytesIO(), encoding))
    assert quoted(word) == written
    assert subprocess.run(["bash", "-c", f"printf %s {written}"], capture_output=True, check=True).stdout.decode() == word


def test_bytes_of_a_letter_are_those_that_it_has_in_this_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("latin-1"))
    assert quoted("a\N{NO-BREAK SPACE}b") == r"$'a\240b'"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "latin-1"))
    assert quoted("Stōre") == r"$'St\305\215re'", "the word of a stored row may have letters that this locale lacks"


@pytest.mark.parametrize(
    ("advice", "added"),
    [
        ("to train them all the same, add --no-gates", "--no-gates"),
        (f"fix the task; {ELSEWHERE}", "--retry-failed"),
        (f"{ELSEWHERE}; or add --no-gates", "--retry-failed"),
    ],
)
def test_the_resume_line_has_the_options_that_the_launch_advises(
    advice: str, added: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome()))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(Stages, "obstacles", lambda _: ["a run failed"])
    monkeypatch.setattr(Stages, "advice", lambda _: advice)
    words = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    for given in (words, [*words, "--retry-failed"]):
        monkeypatch.setattr(sys, "argv", ["sweep", "scaling", *given])
        assert run(scaling.app, given) == 1
        more = added.replace("--retry-failed", "").split() if "--retry-failed" in given else added.split()
        assert capsys.readouterr().out.splitlines()[-1].endswith(f"to continue: {' '.join(['sweep scaling', *given, *more])}")


def test_the_command_that_looks_closer_is_one_that_this_shell_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome()))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "answered", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "doubt", lambda *_: None)
    monkeypatch.setattr(ThresholdStudy, "write", lambda *_, **__: [])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "python").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "mine" / "python"))
    monkeypatch.setattr(sys, "argv", ["/x/orchestrator/scaling.py"])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", "my store"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "to look closer: mine/python -m analysis.report --store 'my store'"


def test_an_output_that_is_not_unicode_costs_no_table() -> None:
    app = App()

    @app.command()
    def told() -> int:
        """Say it."""
        print("N^1.8 …")
        return 0

    shown = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(shown, "ascii", write_through=True)):
        assert run(app, []) == 0
        assert shown.getvalue() == b"N^1.8 ?\n"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("16..64", (16, 24, 32, 40, 48, 56, 64)),
        ("16..64:16", (16, 32, 48, 64)),
        ("48,16,24", (16, 24, 48)),
        ("9", (9,)),
        ("8..10:1,9,32", (8, 9, 10, 32)),
    ],
)
def test_grid_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_grid(text) == sizes


def test_a_number_that_python_does_not_read_is_out_of_range() -> None:
    with pytest.raises(ValueError, match="a number of 5000 digits is out of range for grid sizes: write a range "):
        parse_grid("1" * 5000)


def test_a_task_of_ones_own_says_which_sizes_it_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    chords = ["--task", "examples.own_task:Chords", "--seeds", "1", "--dry-run"]
    assert run(scaling.app, [*chords, "--N", "4,2000"]) == 0
    assert "runs to do" in capsys.readouterr().out
    check_refusal(scaling.app, [*chords, "--N", "1"], "the task's counts() must give whole numbers", tmp_path, capsys)


class Uncounted(Toy):
    def audits(self, spec: RunSpec) -> Any:
        return None


class Unaudited(Toy):
    def audits(self, spec: RunSpec) -> Any:
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        (Uncounted, "the task's audits() must give a whole number from 0 on, not None"),
        (Unaudited, "the task's audits() at N = 8 fails with RuntimeError: boom"),
    ],
)
def test_a_task_that_cannot_tell_its_audits_is_refused(
    task: type, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(scaling.app, ["--task", f"{__name__}:{task.__name__}", "--N", "8", "--dry-run"], hint, tmp_path, capsys)


def test_run_keys_depend_on_everything_and_are_stable() -> None:
    keys = {run_key(SPEC, "1"), run_key(SPEC, "2"), run_key(SPEC.with_count(4), "1")}
    assert len(keys) == 3
    assert run_key(RunSpec.from_dict(SPEC.to_dict()), "1") == run_key(SPEC, "1")
    assert family_key(SPEC, "1") == family_key(SPEC.with_count(4), "1")
    budget = dataclasses.replace(SPEC, stop="budget")
    assert run_key(budget, "1") == "9570c44d0fb60dac925c4331"
    assert family_key(budget, "1") == "f394c528bfc1d6902f4ccab8", "it changes with TRAINING_VERSION alone"
    assert run_key(SPEC, "1") == "f54fe206cbdcea3c41d20609"
    assert family_key(SPEC, "1") == "21b4783f838fb4b8fef89eec", "it changes with RULE_VERSION, too"


def test_ctrl_c_before_or_after_the_training_tells_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "executed", trained_by(interrupted))
    monkeypatch.setattr(sys, "argv", ["sweep", "scaling", "--N", "8"])
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]) == 130
    *_, starting, told, last = capsys.readouterr().out.splitlines()
    assert starting.startswith("starting Ray on this machine: "), "else there is silence for half a minute"
    assert told == "interrupted; all finished runs are kept"
    assert last == "to continue: sweep scaling --N 8"


@pytest.mark.parametrize("when", ["before the launch", "before the training", "after the training"])
def test_sigterm_before_or_after_the_training_tells_how_to_continue(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def terminated(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    places = {
        "before the launch": (scaling, "check_task"),
        "before the training": (launch, "open_store"),
        "after the training": (ThresholdStudy, "write"),
    }
    monkeypatch.setattr(*places[when], terminated)
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome()))
    monkeypatch.setattr(sys, "argv", ["sweep", "scaling", "--N", "8"])
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]) == 143
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).splitlines()[-1].endswith("to continue: sweep scaling --N 8")
    assert "interrupted; " in printed.out + printed.err


@pytest.mark.slow(2)
def test_a_ray_that_does_not_come_up_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places: list[Path] = []

    def init(*, _temp_dir: str, **_: object) -> None:
        places.append(Path(_temp_dir))
        logs = places[-1] / "session_latest" / "logs"
        logs.mkdir(parents=True)
        (logs / "gcs_server.out").write_text(f"it begins\nno room at the {'inn ' * len(places)}\n\n")
        raise Exception("The current node timed out during startup.")

    import ray

    usual = ("worker_niceness", "prestart_worker_first_driver", "ROTATION_MAX_BYTES", "ROTATION_BACKUP_COUNT")
    of_ray = ("USAGE_STATS_ENABLED", "CHDIR_TO_TRIAL_DIR", *usual)
    for name in ("PYTHONPATH", *(f"RAY_{name}" for name in of_ray)):
        monkeypatch.setenv(name, "0")  # put back afterwards
    monkeypatch.setattr(ray, "init", init)
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]) == 1
    *_, told, last = capsys.readouterr().out.splitlines()
    assert told == (
        "stopped: Ray could not be started, twice; perhaps the machine is too busy or has too little memory (The current node "
        "timed out during startup.; gcs_server.out: no room at the inn inn)"
    )
    assert len(set(places)) == 2
    assert last.startswith("all finished runs are kept; to continue: ")


def test_the_last_words_of_a_ray_that_does_not_come_up_are_those_of_an_error(tmp_path: Path) -> None:
    logs = tmp_path / "session_latest" / "logs"
    logs.mkdir(parents=True)
    stamp = "[2026-01-01 10:00:00,123"
    (logs / "gcs_server.out").write_text(f"{stamp} I 7 7] (gcs_server) main.cc:1: all is well\n")
    (logs / "raylet.out").write_text(
        f"{stamp} E 8 9] (raylet) main.cc:2: an early one\n{stamp} C 8 9] (raylet) agent.cc:3: Check failed: !name.empty()\n"
        f"*** StackTrace Information ***\nraylet(+0x263cb7) [0x55dd4ffd0cb7]\n\n"
    )
    assert _last_words(tmp_path) == f"; raylet.out: {stamp} C 8 9] (raylet) agent.cc:3: Check failed: !name.empty()"
    (logs / "raylet.out").unlink()
    assert _last_words(tmp_path) == f"; gcs_server.out: {stamp} I 7 7] (gcs_server) main.cc:1: all is well"


def test_failed_runs_do_not_count_as_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome(trained=3, failed=2, stopped="time")
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: outcome))
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]) == 1
    assert "\n3 runs trained, 2 failed, in " in capsys.readouterr().out


@pytest.mark.parametrize("limit", [["--max-hours", "0"], ["--max-cost", "0", "--price", "1"]])
def test_a_launch_that_starts_no_run_does_not_say_that_ray_starts(
    limit: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--N", "8", "--seeds", "1", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    with monkeypatch.context() as patched:
        patched.setattr(launch, "executed", trained_by(lambda *_: Outcome(stopped="time")))
        assert run(scaling.app, words) == 1
        assert "\nstarting Ray on this machine: the first run starts in about " in capsys.readouterr().out
    assert run(scaling.app, [*words, *limit]) == 1
    told = capsys.readouterr().out
    assert "starting Ray" not in told
    why = "time" if limit == ["--max-hours", "0"] else "cost"
    assert f"\nnot answered: the {why} limit was reached" in told


def test_lines_of_finished_runs_agree_with_what_this_launch_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        """Hear of a run of another launch, then train one."""
        for own in (False, True):
            (spec,) = execution.search.propose(execution.rows, 1)
            about = {"task_version": "1", "fixed_count": 0, "reason": "budget", "status": "missed"}
            row = make_row(spec, accuracy=0.0, steps=3, seconds=1.0, **about)
            execution.rows.add(row)
            execution.outcome.trained += own
            execution.observer.finished(row)
        execution.outcome.stopped = "time"
        return execution.outcome

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    words = ["--N", "8", "--seeds", "1", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    assert run(scaling.app, words) == 1
    told = capsys.readouterr().out
    assert re.findall(r"\| (\d) done", told) == ["0", "1"]
    assert "\n1 run trained in " in told


def test_what_a_task_prints_is_no_part_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    members = ("counts", "audits", "data", "model", "measure", "needs")
    of_task = "".join(f"\n    def {name}(self, *_): print('in {name}'); return Usual.{name}(self, *_)" for name in members)
    usual = "class Usual(Toy):\n    def audits(self, spec): return 0\n    def needs(self, spec): return {}\n"
    text = f"from tests.toy import Toy\nprint('at import')\n{usual}\nclass Task(Usual):{of_task}\n"
    (tmp_path / "talkative.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome(stopped="time")))
    words = ["--task", "talkative:Task", "--N", "8", "--seeds", "1", "--max-hours", "1", "--store", str(tmp_path / "store")]
    assert run(everything.app, ["scaling", *words, "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["settings"]["task"] == "talkative:Task"
    for told in ("at import", *(f"in {name}" for name in members), "not answered: the time limit was reached"):
        assert told in printed.err
    assert run(everything.app, ["scaling", *words]) == 1
    assert "in audits" in capsys.readouterr().out, "without --json nothing is kept off"


def test_an_answer_that_means_nothing_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome(trained=3)))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "answered", lambda *_: True)
    arguments = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    assert run(scaling.app, arguments) == 0
    monkeypatch.setattr(ThresholdStudy, "doubt", lambda *_: "nothing was learned: train for more steps")
    assert run(scaling.app, arguments) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not answered: nothing was learned: train for more steps"


@pytest.mark.parametrize(("how", "code"), [("it fails", 1), ("Ctrl-C", 130)])
def test_a_store_that_is_moved_away_meanwhile_is_not_said_to_be_kept(
    how: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"

    def execute(execution: Execution, *_: object) -> Outcome:
        place.rename(tmp_path / "elsewhere")
        if how == "it fails":
            raise StoreError("it cannot be written")
        execution.outcome.stopped = "SIGINT"
        return execution.outcome

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(place)]) == code
    told = capsys.readouterr().out
    assert "are kept" not in told
    assert f"{place} was moved or removed while in use, with its runs: move it back, or all are trained again" in told
    assert "to continue: " in told.splitlines()[-1]


@pytest.mark.slow(2)
@pytest.mark.parametrize("how", ["moved", "unmounted"])
@pytest.mark.parametrize("out", [None, "store/a/b", "elsewhere"])
def test_the_files_of_an_answer_do_not_make_a_store_anew_that_was_moved_away(
    how: str, out: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, moved, rows = tmp_path / "store", tmp_path / "moved", list[dict[str, Any]]()

    def execute(execution: Execution, *_: object) -> Outcome:
        while not execution.search.finished(execution.rows):
            (spec,) = execution.search.propose(execution.rows, 1)
            passes = spec.data_count >= threshold(spec.N, spec.seed)
            end = {"status": "passed", "reason": "target"} if passes else {"status": "missed", "reason": "budget"}
            rows.append(make_row(spec, accuracy=float(passes), steps=3, seconds=1.0, task_version="1", fixed_count=0, **end))
            execution.store.append(rows[-1:])
            execution.rows.add(rows[-1])
        place.rename(moved)
        if how == "unmounted":
            place.mkdir()
        execution.observer.finished(rows[-1])
        return execution.outcome

    words = ["--N", "8", "--seeds", "1", "--task", "tests.toy:Toy", "--store", str(place)]
    words += [] if out is None else ["--out", str(tmp_path / out)]
    with monkeypatch.context() as patch:
        patch.setattr(launch, "executed", trained_by(execute))
        assert run(scaling.app, words) == (0 if out == "elsewhere" else 1)
    assert place.exists() == (how == "unmounted")
    assert how == "moved" or list(place.iterdir()) == []
    told = capsys.readouterr().out
    why = f"{place} was moved or removed while in use, with its runs: move it back, or all are trained again; to continue: "
    assert (f"\nthe files could not be written: {why}" in told) == (out != "elsewhere")
    assert (tmp_path / "elsewhere" / "scaling.csv").exists() == (out == "elsewhere")
    if how == "unmounted":
        place.rmdir()
    moved.rename(place)
    assert run(scaling.app, [*words, "--dry-run"]) == 0
    assert re.search(rf"│ toys +│ 8 │ +0 │ +{len(rows)} │ +0 │", capsys.readouterr().out), "all runs are done"
    assert run(scaling.app, words) == 0
    assert (tmp_path / (out or "store/scaling") / "scaling.csv").exists()


class Hung(io.StringIO):
    """A terminal, which can be closed."""

    closed_by_user = False

    def write(self, text: str) -> int:
        if self.closed_by_user:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().write(text)


@pytest.mark.parametrize(("stopped", "code"), [("SIGHUP", 129), (None, 1)])
@pytest.mark.parametrize("both", [False, True])
def test_a_terminal_that_is_closed_ends_a_study_by_its_signal_and_a_stderr_elsewhere_has_the_last_word(
    both: bool, stopped: str | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = Hung(), Hung()

    def execute(execution: Execution, *_: object) -> Outcome:
        execution.outcome.stopped = stopped
        out.closed_by_user, err.closed_by_user = True, both
        return execution.outcome

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    monkeypatch.setattr("orchestrator.command.cli.os.dup2", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["sweep", "scaling", "--N", "8"])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert run(scaling.app, ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]) == code
    why = "interrupted" if stopped else "stopped: the output cannot be written (Input/output error)"
    kept = "all finished runs are kept" + ("\n" if stopped else "; ")
    told = rf"{re.escape(why)}; {kept}to continue: \S*sweep scaling --N 8\n"
    assert re.fullmatch("" if both else told, err.getvalue()), err.getvalue()


@pytest.mark.parametrize(
    "command",
    ["scaling --N 8 {}", "tune --N 8 --search lr=1e-4..1e-2 {}", "encodings --N 8", "regularization --N 8 --epochs 1"],
)
def test_a_plan_names_its_store_in_printable_words(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command.format("--task tests.toy:Toy"))
    assert run(everything.app, [*words, "--dry-run", "--store", "\x1b[31m\nx"]) == 0
    told = capsys.readouterr().out
    assert "\x1b[31m" not in told
    assert re.search(r"rows go to \\x1b\[31m\\nx/runs, .* \\x1b\[31m\\nx/\w+", re.sub(r"\n", " ", told))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EFBIG])
def test_a_launch_whose_output_nobody_takes_any_more_says_so_and_how_to_continue(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("orchestrator.command.cli.os.dup2", lambda *_: None)
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome()))
    monkeypatch.setattr(sys, "argv", ["sweep", "scaling", "--N", "8"])
    monkeypatch.setattr(sys, "stdout", Gone())
    words = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    told = f"stopped: the output cannot be written ({os.strerror(number)}); all finished runs are kept"
    assert run(scaling.app, words) == 1
    assert re.fullmatch(rf"{re.escape(told)}; to continue: \S*sweep scaling --N 8\n", capsys.readouterr().err)
    assert run(scaling.app, [*words, "--dry-run"]) == 1
    assert capsys.readouterr().err == ("" if number == errno.EPIPE else f"{told}\n")


@pytest.mark.slow(3)
def test_what_a_study_has_no_use_for_is_not_imported_while_its_user_waits() -> None:
    dear = "optuna", "matplotlib", "scipy", "pandas", "ray"
    program = f"import sys, orchestrator.scaling; print([name for name in {dear} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT) == "[]\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_is_swallowed_ends_the_program_all_the_same(number: int, code: int) -> None:
    program = """
import time
from orchestrator.command.cli import ends_on_interrupt
with ends_on_interrupt(grace=0.5):
    while True:
        try:
            print("up", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(timeout=30) == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_is_heard_while_a_library_does_not_come_back(number: int, code: int) -> None:
    program = """
import ctypes, os, signal, threading
from orchestrator.command.cli import ends_on_interrupt
reading, _ = os.pipe()
with ends_on_interrupt(grace=0.5):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.siginterrupt(number, False)
    threading.Timer(0.5, lambda: print("up", flush=True)).start()  # the read has begun by then
    ctypes.CDLL(None).read(reading, ctypes.create_string_buffer(1), 1)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(timeout=30) == code


def test_what_ray_makes_of_sigterm_while_it_starts_is_sigterm() -> None:
    app = App()

    @app.command()
    def leave(code: int) -> None:
        raise SystemExit(code)

    assert run(app, ["15"]) == 143
    with pytest.raises(SystemExit, match=r"^3$"):
        run(app, ["3"])


def test_sigterm_is_an_interrupt_in_the_block_and_itself_behind_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), ends_on_interrupt(grace=1e6):  # noqa: PT012
        with pytest.raises(KeyboardInterrupt):  # Ray passes on nothing else
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_figure_that_cannot_be_drawn_costs_neither_training_nor_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def undrawn(*_: object) -> None:
        raise ValueError("Axis limits cannot be NaN")

    def execute(execution: Execution, *_: object) -> Outcome:
        """Train all that is asked for, and write the answer once before the end."""
        while asked := execution.search.propose(execution.rows, 1):
            passed = asked[0].data_count >= threshold(asked[0].N, asked[0].seed)
            about = {"task_version": "1", "fixed_count": 0, "reason": "budget", "status": "passed" if passed else "missed"}
            execution.rows.add(make_row(asked[0], accuracy=float(passed), steps=3, seconds=1.0, **about))
        execution.observer.after_run()  # type: ignore[attr-defined]
        return Outcome(trained=len(execution.rows))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("analysis.figures.scaling.draw", undrawn)
    monkeypatch.setattr(launch, "executed", trained_by(execute))
    assert run(scaling.app, ["--task", "tests.toy:Toy", "--N", "8,16", "--seeds", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    why = "the figures could not be drawn (ValueError: Axis limits cannot be NaN)"
    assert told.count(f"warning: {why}") == 2, "once on the way, and at the end"
    assert f"warning: {why}; tables that could be written are in results/scaling" in told
    assert sorted(path.name for path in (tmp_path / "results" / "scaling").iterdir()) == ["scaling.csv", "scaling.json"]


@pytest.mark.parametrize("why", ["No space left on device", "Permission denied"])
def test_an_answer_is_told_though_its_files_cannot_be_written(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = next(number for number in errno.errorcode if os.strerror(number) == why)

    def full(*_: object, **__: object) -> None:
        raise OSError(number, why)

    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome(trained=3)))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "answered", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "write", full)
    words = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "full")]
    assert run(scaling.app, [*words, "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["settings"]["task"] == "tests.toy:Toy"
    assert "data set" in printed.err, "the table"
    hint = "free space, or name" if number == errno.ENOSPC else "name"
    told = f"the files could not be written to {tmp_path / 'full'} ({why}): {hint} another folder with --out; to continue: "
    assert printed.err.splitlines()[-1].startswith(told)


@pytest.mark.parametrize(("trained", "failed"), [(0, 0), (3, 0), (0, 1)])
def test_a_mistake_that_shows_once_something_is_trained_says_how_to_continue(
    trained: int, failed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        execution.outcome.trained, execution.outcome.failed = trained, failed
        raise UserError("the task's needs() fails with KeyError: 16")

    monkeypatch.setattr(launch, "executed", trained_by(execute))
    words = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    assert run(scaling.app, words) == (1 if trained + failed else 2)
    printed = capsys.readouterr()
    if trained + failed:
        stopped, resume = printed.out.splitlines()[-2:]
        assert stopped == "stopped: the task's needs() fails with KeyError: 16"
        assert resume.startswith("all finished runs are kept; once that is mended, to continue: ")
    else:
        assert printed.err == "error: the task's needs() fails with KeyError: 16\n"


@pytest.mark.parametrize("where", ["planning", "the folder of a launch"])
def test_a_plan_on_a_full_disk_of_temporary_files_is_refused_in_a_line(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full/file")

    if where == "planning":
        monkeypatch.setattr(ThresholdStudy, "plan", full)
    else:
        monkeypatch.setattr("orchestrator.engine.scratch._make", full)
    store = tmp_path / "store"
    told = "make room there, or set TMPDIR to a folder elsewhere"
    check_refusal(scaling.app, ["--N", "16", "--decoder", "mlp", "--store", str(store), "--dry-run"], told, tmp_path, capsys)


def test_what_a_store_notices_while_a_study_is_planned_or_told_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(stages: Stages) -> None:
        stages._store.place.note("set aside a: it is damaged")

    def answered(study: ThresholdStudy, rows: Rows) -> bool:
        return True

    def complete(stages: Stages) -> None:
        stages._store.place.note("set aside b: it is damaged")

    monkeypatch.setattr(Stages, "lost", lost)
    monkeypatch.setattr(Stages, "complete", complete)
    monkeypatch.setattr(launch, "executed", trained_by(lambda *_: Outcome(trained=3)))
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    monkeypatch.setattr(ThresholdStudy, "answered", answered)
    words = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")]
    run(scaling.app, [*words, "--dry-run"])
    assert capsys.readouterr().out.count("warning: set aside a: it is damaged") == 1
    run(scaling.app, words)
    out = capsys.readouterr().out
    assert [out.count(f"warning: set aside {name}: it is damaged") for name in "ab"] == [1, 1]


def test_the_end_of_a_launch_leaves_a_checkpoint_from_which_another_one_trains(tmp_path: Path) -> None:
    spec = RunSpec(task="a:B", dataset="d", N=8, data_count=4, seed=0)
    key = run_key(spec.to_the_end(), "1")
    with ResultStore(tmp_path) as store, ResultStore(tmp_path) as other:
        store.append([make_row(spec, task_version="1", fixed_count=0, status="missed", reason=GIVEN_UP)])
        other.save_checkpoint(key, b"an hour of training")
        assert other.claim(key)
        launch._drop_checkpoints(store, Rows(store.rows()), lambda spec: True, lambda key: False)
        assert store.load_checkpoint(key) == b"an hour of training"
        other.release(key)
        launch._drop_checkpoints(store, Rows(store.rows()), lambda spec: True, lambda key: False)
        assert store.load_checkpoint(key) is None
        assert other.claim(key)


def test_the_end_of_a_launch_removes_the_checkpoints_of_its_finished_runs(tmp_path: Path) -> None:
    """A launch that was killed has left them, or they came with a copy of the store."""
    specs = [RunSpec(task="a:B", dataset="d", N=8, data_count=count, seed=0) for count in range(5)]
    rows = [make_row(spec, task_version="1", fixed_count=0, status="missed", reason="budget") for spec in specs]
    finished, begun, again, elsewhere, of_others = (row["key"] for row in rows)
    crashed = make_row(specs[0].to_the_end(), task_version="1", fixed_count=0, status="failed", reason="exception", error="no")
    with ResultStore(tmp_path) as store, ResultStore(tmp_path) as other:
        store.append([crashed, *(row for row in rows if row["key"] != begun)])
        for row in (crashed, *rows):
            store.save_checkpoint(row["key"], b"half-way")
        assert other.claim(elsewhere)
        known = Rows(row for row in store.rows() if row["key"] != of_others)
        launch._drop_checkpoints(store, known, lambda spec: False, lambda key: key == again)
        assert store.with_checkpoints() == {begun, again, elsewhere, of_others, crashed["key"]}
        assert other.claim(finished)


def test_a_study_that_ends_leaves_the_checkpoints_that_another_one_has_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words, studies = ["--N", "8", "--task", "tests.toy:Toy", "--store", str(tmp_path / "store")], list[ThresholdStudy]()
    with monkeypatch.context() as only_asked:
        only_asked.setattr(scaling, "launch", lambda study, *_: studies.append(study))
        run(scaling.app, words)
    spec = studies[0].brackets[0].template.with_count(4)
    key = run_key(spec.to_the_end(), Toy.version)
    with ResultStore(tmp_path / "store") as store:
        store.append([make_row(spec, task_version=Toy.version, fixed_count=0, status="missed", reason=GIVEN_UP)])
    monkeypatch.setattr(ThresholdSearch, "finished", lambda *_: True)
    for stop, kept in (("early", b"an hour of training"), ("auto", None)):
        with ResultStore(tmp_path / "store") as store:
            store.save_checkpoint(key, b"an hour of training")
        run(scaling.app, [*words, "--stop", stop])
        with ResultStore(tmp_path / "store") as store:
            assert store.load_checkpoint(key) == kept


def test_python_without_docstrings_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("orchestrator.engine.cluster.sys", SimpleNamespace(flags=SimpleNamespace(optimize=2)))
    check_refusal(scaling.app, ["--N", "8", "--store", str(tmp_path / "store")], "without -OO", tmp_path, capsys)


@pytest.mark.slow(8)
def test_an_output_that_cannot_be_written_is_told_in_a_line_and_a_closed_one_is_none(tmp_path: Path) -> None:
    words = f"{shlex.quote(sys.executable)} -m orchestrator.scaling --N 16 --dry-run --store store"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def shell(line: str) -> tuple[int, str]:
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stderr

    told = "stopped: the output cannot be written (No space left on device); all finished runs are kept\n"
    assert shell(f"{words} > /dev/full") == (1, told)
    assert shell(f"{words} --help > /dev/full") == (1, told)
    too_large = told.replace("No space left on device", "File too large")
    assert shell(f"ulimit -f 1; {words} --help > log") == (1, too_large)
    assert shell(f"{words} >&-") == (0, "")
    assert not (tmp_path / "store").exists()


def test_limits_are_in_hours_worker_hours_and_minutes() -> None:
    options = launch.LaunchOptions(max_hours=2, max_cost=20, price=1.006, stall_minutes=0.5)
    before = time.monotonic()
    limits = options.limits(lambda spec: False, lambda spec: False)
    assert limits.deadline is not None
    assert before + 7200 <= limits.deadline <= time.monotonic() + 7200
    assert limits.worker_seconds == pytest.approx(20 / 1.006 * 3600)
    assert limits.stall_seconds == 30
    unlimited = launch.LaunchOptions(price=1.006).limits(lambda spec: False, lambda spec: False)
    assert (unlimited.deadline, unlimited.worker_seconds, unlimited.stall_seconds) == (None, None, 600)


@pytest.mark.parametrize(("gpus", "told"), [("1", True), ("0", False)])
def test_an_estimate_for_gpus_from_a_machine_without_one_says_what_it_is(
    gpus: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Cluster, "check", lambda _: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = ["--N", "8", "--decoder", "mlp", "--seeds", "1", "--address", "auto", "--workers", "2", "--gpus-per-run", gpus]
    assert run(scaling.app, [*words, "--price", "2", "--precision", "float32", "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cost" in out
    assert ("this is the time on the CPU here" in out) == told
