"""A program on the command line: what the study then asks for, and mistakes in one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator import launch, scaling
from orchestrator.command.cli import run
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.launch import LaunchOptions
from orchestrator.searches import Rows
from orchestrator.store import make_row
from orchestrator.thresholds import ThresholdStudy
from tests.conftest import check_refusal, trained_by
from trainables.program import digest, words_of
from trainables.spec import Counts, run_key

SCRIPT = "sh train.sh {data_count} {N} {seed}"
COUNTS = ("--counts", "5..90")
GIVEN = ("--program", SCRIPT, *COUNTS, "--N", "8,16", "--seeds", "2")
SETTINGS = """
[settings.noise]
default = 0.1
help = "Noise of the pixels."
low = 0

[settings.kernel]
default = "rbf"
words = ["rbf", "linear"]

[settings.depth]
default = 3

[counts]
low = 10
high = {16 = 200, 8 = 50}

[program]
files = ["data.txt", "train.sh"]
"""
WITH_FILE = "sh train.sh {data_count} {N} {seed} {noise} --kernel={kernel} {depth}"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ThresholdStudy]:
    """The studies that commands launch, in a folder with a script."""
    found: list[ThresholdStudy] = []

    def keep(study: ThresholdStudy, where: LaunchOptions) -> int:
        found.append(study)
        return 0

    monkeypatch.setattr(scaling, "launch", keep)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("echo 0.5")
    (tmp_path / "data.txt").write_text("1 2 3")
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return found


def study_of(launched: list[ThresholdStudy], *words: str) -> ThresholdStudy:
    assert run(scaling.app, list(words)) == 0
    return launched.pop()


def test_a_run_is_described_by_its_command_its_files_its_counts_and_its_settings(launched: list[ThresholdStudy]) -> None:
    study = study_of(launched, *GIVEN[:1], SCRIPT + " '{noise} and more'", *GIVEN[2:], "--vary", "noise=0.1", "--noise", "2")
    specs = [bracket.template for bracket in study.brackets]
    assert [(spec.N, spec.seed) for spec in specs] == [(8, 0), (8, 1), (16, 0), (16, 1)]
    first = specs[0]
    assert (first.task, first.dataset, first.precision) == ("trainables.program:ProgramTask", "train", "float32")
    assert dict(first.options) == {
        "program": "sh train.sh '{data_count}' '{N}' '{seed}' '{noise} and more'",
        "files": json.dumps({"train.sh": digest("train.sh")}),
        "counts": "5..90",
        "noise": 2.0,
    }
    assert words_of(first.with_count(7)) == ["sh", "train.sh", "7", "8", "0", "2.0 and more"]
    assert study.brackets[0].counts == Counts(5, 90)
    assert len({bracket.curve for bracket in study.brackets}) == 1
    assert (study.search.stop, study.settings["stop"], study.settings["options"]["counts"]) == ("budget", "budget", "5..90")
    assert {spec.stop for spec in study.search.propose(Rows([]), 4)} == {"target"}


def test_a_file_with_a_brace_in_its_name_is_the_version_too(launched: list[ThresholdStudy], tmp_path: Path) -> None:
    (tmp_path / "a{1}.sh").write_text("echo 0.5")
    study = study_of(launched, "--program", "sh 'a{{1}}.sh' {data_count} {N} {seed}", *GIVEN[2:])
    template = study.brackets[0].template
    assert json.loads(str(template.option("files"))) == {"a{1}.sh": digest("a{1}.sh")}
    assert words_of(template.with_count(7))[:2] == ["sh", "a{1}.sh"]


@pytest.mark.parametrize(
    ("text", "value"), [("007", "007"), ("1_000", "1_000"), ("0.50", 0.5), ("-3", -3), ("0", 0), ("1e3", 1e3)]
)
def test_what_is_no_plain_number_is_a_word(text: str, value: object, launched: list[ThresholdStudy]) -> None:
    study = study_of(launched, GIVEN[0], SCRIPT + " {tag}", *GIVEN[2:], "--vary", f"tag={text}")
    assert study.brackets[0].template.option("tag") == value


def test_a_changed_file_is_another_run_and_another_quoting_is_not(launched: list[ThresholdStudy], tmp_path: Path) -> None:
    def key(*words: str) -> str:
        return run_key(study_of(launched, *words).brackets[0].template, "1")

    before = key(*GIVEN)
    assert key("--program", "sh 'train.sh'  {data_count} {N} '{seed}'", *GIVEN[2:]) == before
    (tmp_path / "data.txt").write_text("4 5 6")
    assert key(*GIVEN) == before
    (tmp_path / "train.sh").write_text("echo 0.6")
    assert key(*GIVEN) != before


def test_a_file_of_settings_declares_options_counts_and_files(launched: list[ThresholdStudy]) -> None:
    words = ("--program", WITH_FILE, "--program-settings", "settings.toml", "--N", "8,16", "--seeds", "2")
    study = study_of(launched, *words, "--kernel", "linear", "--option", "noise=0.3")
    assert [bracket.counts for bracket in study.brackets] == [Counts(10, 50)] * 2 + [Counts(10, 200)] * 2
    assert len({bracket.curve for bracket in study.brackets}) == 1
    spec = study.brackets[2].template
    assert words_of(spec) == ["sh", "train.sh", "0", "16", "0", "0.3", "--kernel=linear", "3"]
    assert (spec.depth, spec.option("counts"), list(json.loads(str(spec.option("files"))))) == (
        3, "10..200", ["data.txt", "train.sh"],
    )  # fmt: skip
    assert study.settings["options"]["counts"] == "10..50, 10..200"
    help = CliRunner().invoke(scaling.app.of(words), ["--help"], env={"COLUMNS": "200"}).output
    shown = " ".join(re.sub(r"\x1b\[[\d;]*m|│", "", help).split())
    assert re.search(r"--noise <float> Noise of the pixels. \[default: \(0.1\)\]", shown)
    assert "--sigma" not in shown


def test_what_a_file_says_of_settings_is_shown_as_printable_text(
    launched: list[ThresholdStudy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    escape = r"\u001b]0;x\u0007"
    text = f'[settings.a]\ndefault = "{escape}"\nhelp = "{escape}"\nwords = ["{escape}", "b"]\n'
    (tmp_path / "hostile.toml").write_text(text)
    words = ["--program", "sh train.sh {data_count} {N} {seed} {a}", *COUNTS, "--program-settings", "hostile.toml", "--N", "8"]
    study = study_of(launched, *words, "--seeds", "1")
    assert words_of(study.brackets[0].template)[-1] == "\x1b]0;x\x07"
    assert run(scaling.app, [*words, "--help"]) == 0
    assert run(scaling.app, [*words, "--a", "c"]) == 2
    printed = capsys.readouterr()
    assert ("\x1b]" in printed.out + printed.err, "\x07" in printed.out + printed.err) == (False, False)
    assert "x1b]0;x" in printed.out
    assert "x1b]0;x" in printed.err


def test_a_file_of_settings_is_utf_8_whatever_the_locale(
    launched: list[ThresholdStudy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "text_encoding", lambda encoding, stacklevel=2: encoding or "ascii")  # what `open` takes then
    (tmp_path / "names.toml").write_bytes('[settings.a]\ndefault = "ünï"\n'.encode())
    words = ["--program", "sh train.sh {data_count} {N} {seed} {a}", *COUNTS, "--program-settings", "names.toml", "--N", "8"]
    assert words_of(study_of(launched, *words, "--seeds", "1").brackets[0].template)[-1] == "ünï"


def test_a_dry_run_shows_the_command_and_says_that_the_time_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text(f"touch {tmp_path}/ran")
    assert run(scaling.app, [*GIVEN, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "unknown" in printed
    assert "sh train.sh '{data_count}' '{N}' '{seed}'\nfiles that are its version: train.sh" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["train.sh"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("python3 no.py {data_count} {N} {seed}", "warning: --program names no.py, and there is no such file here"),
        ("sh a/b.sh train.sh {data_count} {N} {seed}", "warning: --program names a/b.sh, and there is no such file here"),
        ("sh no-{N}.sh {data_count} {seed}", ""),
        ("sh -c 'sh no.sh' --log=no.sh -x.py {data_count} {N} {seed}", ""),
        ("sh s3://a.sh kind=b.sh {data_count} {N} {seed}", ""),
        (SCRIPT, ""),
    ],
)
def test_a_script_that_is_not_there_is_told(
    words: str, told: str, launched: list[ThresholdStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    study_of(launched, "--program", words, *GIVEN[2:])
    printed = capsys.readouterr().err
    assert printed.startswith(told)
    assert printed.count("\n") == bool(told)


def test_a_range_beside_the_counts_is_searched_within_them_and_this_is_told(
    launched: list[ThresholdStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(launched, *GIVEN, "--between", "50..200")
    assert study.brackets[0].counts == Counts(50, 90)
    assert study.brackets[0].template.option("counts") == "5..90"
    assert capsys.readouterr().err == "note: of the data counts 5..90 (--counts), 50..200 are searched (--between)\n"


@pytest.mark.parametrize(("script", "has_files"), [(SCRIPT, True), ("true {data_count} {N} {seed}", False)])
def test_a_program_that_failed_is_tried_again_when_its_files_change_and_those_of_one_without_are_asked_for(
    script: str, has_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        while asked := execution.search.propose(execution.rows, 1):
            execution.rows.add(make_row(asked[0], task_version="1", fixed_count=0, status="failed", reason="error", error="no"))
        return Outcome(failed=len(execution.rows))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("exit 1")
    monkeypatch.setattr(launch, "executed", trained_by(execute))
    assert run(scaling.app, ["--program", script, *COUNTS, "--N", "8", "--seeds", "1"]) == 1
    *_, last, elsewhere = capsys.readouterr().out.splitlines()
    assert last.startswith(f"fix the program, {'so that its files change, and run' if has_files else 'and name its files'}")
    assert ('[program] files = ["train.py"]' in last) is not has_files
    assert elsewhere.endswith("mend that, and add --retry-failed to the command")


def test_runs_from_before_a_program_had_written_a_file_that_its_command_names_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(execution: Execution, *_: object) -> Outcome:
        (spec,) = execution.search.propose(execution.rows, 1)
        execution.store.append([make_row(spec, task_version="1", fixed_count=0, status="missed", reason="ended", accuracy=0.1)])
        return Outcome()

    def told(*words: str, program: str = "sh train.sh {data_count} --log a.log --log 'b {{1}}.log'") -> list[str]:
        assert run(scaling.app, ["--program", program, *COUNTS, *changed(*words)]) == int("--dry-run" not in words)
        return [line for line in "".join(capsys.readouterr()).splitlines() if "now includes" in line]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "executed", trained_by(execute))
    (tmp_path / "train.sh").write_text("echo 0.5")
    (tmp_path / "own.toml").write_text('[program]\nfiles = ["train.sh"]\n')
    assert told() == []
    assert told("--dry-run") == []
    for name in ("a.log", "b {1}.log"):
        (tmp_path / name).write_text("1")
    assert told("--dry-run") == [
        "warning: the version of the program now includes a.log and b {1}.log, and the runs of this command in the store did "
        "not have that: they do not count. If the program writes such a file itself, list the program's own files in "
        '--program-settings FILE.toml, as [program] files = ["train.sh"]'
    ]
    assert told("--dry-run", "--program-settings", "own.toml") == []
    assert told("--dry-run", program="sh train.sh {data_count} --log a.log") == []
    assert len(told()) == 1
    assert told("--dry-run") == [], "there are runs with these files"
    (tmp_path / "a.log").write_text("2")
    assert len(told("--dry-run")) == 1


def changed(*words: str) -> list[str]:
    return ["--N", "8", "--seeds", "1", *words]


MISTAKES = [
    (changed("--program", "no-such-program {data_count}", *COUNTS), "'no-such-program' is not found: give a command"),
    (changed("--program", "./train.sh {data_count}", *COUNTS), "'./train.sh' is not executable: run chmod +x"),
    (changed("--program", "./no.sh {data_count}", *COUNTS), "'./no.sh' is not found"),
    (changed("--program", "sh {data_count} {noise}", *COUNTS), "{noise} is no value of a run: choose one of data_count, N,"),
    (changed("--program", "sh {data_count} {x", *COUNTS, "--vary", "y=1"), "lr, weight_decay, y, and write {{ for a brace"),
    (changed("--program", "sh 'train.sh", *COUNTS), "cannot be split into words (No closing quotation)"),
    (changed("--program", " ", *COUNTS), "names no program"),
    (changed("--program", "sh", *COUNTS), "does not say where data_count goes"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "noise=1"), "does not say where noise goes"),
    (["--N", "8,16", "--seeds", "1", "--program", "sh {data_count}", *COUNTS], "has no {N}, so 2 runs each would be the same"),
    (["--N", "8", "--program", "sh {data_count}", *COUNTS], "has no {seed}, so 3 runs each would be the same"),
    (changed("--program", SCRIPT, *COUNTS, "--task", "tests.toy:Toy"), "--task and --program are both given"),
    (changed("--program", SCRIPT), "needs the data counts that it may be asked for: write LOW..HIGH"),
    (changed("--program", SCRIPT, "--counts", "few"), "--counts 'few' is no range: write LOW..HIGH"),
    (changed("--program", SCRIPT, "--counts", "9..3"), "must have 0 <= low <= high"),
    (changed("--program", "true {data_count}", *COUNTS, "--precision", "bfloat16"), "a program chooses its own"),
    (changed("--program", SCRIPT, *COUNTS, "--lr", "0.1"), "--lr would change nothing: write {lr} in --program"),
    (
        changed("--program", "true {data_count}", *COUNTS, "--pack-size", "4"),
        "--pack-size 4 is of trainings here: each run of a program is a process by itself, so omit the option\n",
    ),
    (changed("--program", SCRIPT, *COUNTS, "--save-weights"), "--save-weights would change nothing, because a program cannot"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "noise"), "--vary 'noise' has no value"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "noise=nan"), "--vary 'noise=nan' must be a finite number, or a word"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "seed=1"), "seed is the name of something that every run has"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "files=1"), "files is the name of something that every run has"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "a-b=1"), "a-b cannot be the name of a setting"),
    (changed("--program", SCRIPT, *COUNTS, "--vary", "width=wide"), "width must be a whole number, as in every run"),
    (changed("--program", "true {data_count}", *COUNTS, "--option", "program=x"), "this task has no option 'program'"),
    (changed("--program", SCRIPT, *COUNTS, "--sigma", "1"), "No such option: --sigma"),
    (changed("--counts", "1..2"), "--counts is about a program: add --program"),
    (changed("--task", "trainables.program:ProgramTask"), "give the program with --program"),
    (changed("--program", SCRIPT, "--program-settings", "no.toml"), "'no.toml' cannot be read (No such file or directory)"),
]


@pytest.mark.parametrize(("words", "hint"), MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    words: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    if "./train.sh {data_count}" in words:
        (tmp_path / "here" / "train.sh").write_text("echo 0.5")
        monkeypatch.chdir(tmp_path / "here")
        assert run(scaling.app, words) == 2
        assert hint in capsys.readouterr().err
        return
    monkeypatch.chdir(tmp_path / "here")
    check_refusal(scaling.app, words, hint, tmp_path / "here", capsys)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (b"echo 0.5\n", "has no first line such as #!/bin/sh: add one, or write before it what reads it"),
        (b"", "has no first line such as #!/bin/sh"),
        (b"#!/bin/sh\r\necho 0.5\r\n", "has lines that end as on Windows, so it is not executed: run sed -i 's/\\r$//' "),
        (b"#! /usr/bin/env sh\r\necho 0.5\r\n", "has lines that end as on Windows"),
        (b"#!/no/python -u\necho 0.5\n", "names '/no/python' in its first line, and there is no such file"),
    ],
)
@pytest.mark.parametrize("by_path", [True, False])
def test_a_script_that_the_system_would_not_execute_is_refused(
    text: bytes, hint: str, by_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    script = tmp_path / "here" / "my train"
    script.write_bytes(text)
    script.chmod(0o755)
    with contextlib.suppress(OSError):  # which most of them are
        assert subprocess.run([script], capture_output=True, check=False).returncode == 127
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    words = changed("--program", f"'{'./' * by_path}my train' {{data_count}}", *COUNTS)
    shown = "./my train" if by_path else str(script)
    assert run(scaling.app, words) == 2
    told = capsys.readouterr().err
    assert f"--program {shown!r} {hint}" in told
    assert told.count("\n") == 1
    if "sed" in hint:
        assert told.endswith(f" '{shown}'\n")
    assert not (tmp_path / "here" / "results").exists()


@pytest.mark.parametrize(
    "text",
    [
        b"#!/bin/sh\necho 0.5\n",
        b"#!/bin/sh",
        b"#!\t/usr/bin/env -S sh -e\r\necho 0.5\n",
        b"#!/usr/bin/env no-such-interpreter\n",
        b"\xca\xfe\xba\xbe\0\0\0\2",
        b"PK\3\4",
        b"#!/" + b"x" * 300 + b"\n",
    ],
)
def test_what_may_be_executed_is_not_refused(
    text: bytes, tmp_path: Path, launched: list[ThresholdStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what only some systems execute, as a binary of another kind."""
    script = tmp_path / "train"
    script.write_bytes(text)
    script.chmod(0o755)
    assert run(scaling.app, changed("--program", "./train {data_count}", *COUNTS)) == 0, capsys.readouterr().err
    assert len(launched) == 1


def test_a_command_that_a_later_folder_of_the_path_has_is_not_refused(
    tmp_path: Path, launched: list[ThresholdStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "stale", tmp_path / "right"]
    for folder, interpreter in zip(folders, ("/no/sh", "/bin/sh"), strict=True):
        folder.mkdir()
        (folder / "mytool").write_text(f"#!{interpreter}\necho 0.5\n")
        (folder / "mytool").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    assert run(scaling.app, changed("--program", "mytool {data_count}", *COUNTS)) == 0
    assert len(launched) == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[settings.noise\n", "is no TOML (Expected"),
        ("speed = 1", "speed is unknown: there are settings, counts, program"),
        ("counts = 1", "counts must be a table, [counts]"),
        ("[counts]\nlow = 1", "counts.high must be a whole number, or a table with one for each N, not None"),
        ("[counts]\nlow = 1\nhigh = {x = 2}", "counts.high.x must give a whole number for an N"),
        ("[counts]\nlow = 1\nhigh = {16 = 2}", "N = 8 has no data counts: those of N = 16 are given"),
        ("[counts]\nlow = {8 = 1}\nhigh = {16 = 9}", "counts.low and counts.high must have an N in common, and are of"),
        ("[counts]\nlow = 1\nhigh = {}", "counts.high must have an N, as in {16 = 200, 24 = 500}"),
        ("[counts]\nlow = 1\nhigh = 2.5", "counts.high must be a whole number"),
        ("[counts]\nlow = 7\nhigh = 2", "counts must have 0 <= low <= high"),
        ("[counts]\nlow = 1\nhigh = 2\nmiddle = 1", "counts.middle is unknown: there are low, high"),
        ("[settings]\nnoise = 1", "settings.noise must be a table with a default: [settings.noise]"),
        ("[settings.noise]\nhelp = 'x'", "settings.noise.default must be a number, a word, true or false, not None"),
        ("[settings.noise]\ndefault = 1\nhelp = 3", "settings.noise.help must be a line of text"),
        ("[settings.noise]\ndefault = 'a'\nwords = 'a'", "settings.noise.words must be a list of words"),
        ("[settings.noise]\ndefault = 'a'\nwords = ['b']", "settings.noise will not do: the task's default of"),
        ("[settings.noise]\ndefault = 'a'\nlow = 1", "settings.noise.low must be a number, of a setting that is one"),
        ("[settings.noise]\ndefault = nan", "noise must be a finite number"),
        ("[settings.N]\ndefault = 1", "settings.N is the name of something that every run has"),
        ("[program]\nfiles = 'a'", "program.files must be a list of paths, not 'a'"),
        ("[program]\nfiles = ['no']", "program.files names 'no', which cannot be read (No such file or directory)"),
    ],
)
def test_a_mistake_in_the_file_of_settings_names_the_file_and_the_key(
    text: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "its settings.toml"
    file.write_text(text)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    words = changed("--program", "sh {data_count}", "--program-settings", str(file))
    if "counts" not in text:
        words += COUNTS
    assert run(scaling.app, words) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert hint in line
    assert line.startswith("error: ")
    assert "its settings.toml" in line or "N = 8" in line
    assert not list((tmp_path / "here").iterdir())
