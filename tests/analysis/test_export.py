"""The runs of a store as other programs read them: folders of TensorBoard, and a CSV file."""

import io
import math
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.record_writer import masked_crc32c

from analysis import export, tensorboard
from analysis.tensorboard import FILE
from orchestrator.command.cli import run
from orchestrator.store import ResultStore, make_row
from tests.conftest import ROOT, check_refusal
from trainables.spec import RunSpec

SPEC = RunSpec(
    task="made:Up", dataset="bumps", N=8, data_count=3, seed=0, decoder="mlp", width=4, max_steps=60,
    options=(("sigma", 1.5), ("bright", True), ("kind", "round")),
)  # fmt: skip
ENDED: dict[str, Any] = {
    **{"status": "passed", "reason": "target", "steps": 60, "passage_step": 60, "accuracy": 0.75, "id_mse": 0.25, "loss": 0.5},
    **{"measures": {"exact": 0.125}, "curve_step": [20, 40, 60], "curve_loss": [3.0, 2.0, math.inf]},
    **{"curve_accuracy": [0.0, math.nan, 1.0], "curve_error": [0.5, 0.25, 0.125]},
    **{"curve_summary": {"pairs": [0.5, math.nan, 1]}},
    **{"seconds": 6.0, "finished_at": datetime(2026, 1, 1, tzinfo=UTC), "host": "here"},
}


def row(spec: RunSpec = SPEC, **changes: Any) -> dict[str, Any]:
    return make_row(spec, task_version="1", fixed_count=0, **{**ENDED, **changes})


OTHER = row(SPEC.with_value("sigma", 2).with_count(5), status="missed", passage_step=None, measures={}, curve_summary=None)
PLAIN = row(
    RunSpec(task="else:Where", dataset="stripes", N=16, data_count=9, seed=1), status="failed", error="line\n=1+1", steps=0,
    **{name: [] for name in ENDED if name.startswith("curve")} | {"curve_summary": None, "parents": {"teacher": "f" * 24}},
)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a store beside it."""
    with ResultStore(tmp_path / "results") as store:
        store.append([row(), OTHER, PLAIN])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def export_of(*words: str) -> int:
    return run(export.app, ["--store", "../results", *words])


def events(folder: Path) -> Iterator[Event]:
    """What TensorBoard reads, with its checksums."""
    (file,) = folder.glob("*tfevents*")
    data = io.BytesIO(file.read_bytes())
    while head := data.read(8):
        assert struct.unpack("I", data.read(4)) == (masked_crc32c(head),)
        text = data.read(*struct.unpack("Q", head))
        assert struct.unpack("I", data.read(4)) == (masked_crc32c(text),)
        yield Event.FromString(text)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def plugin(folder: Path) -> list[HParamsPluginData]:
    values = [value for event in events(folder) for value in event.summary.value if value.HasField("metadata")]
    assert {value.metadata.plugin_data.plugin_name for value in values} == {"hparams"}
    return [HParamsPluginData.FromString(value.metadata.plugin_data.content) for value in values]


def test_each_run_is_a_folder_with_its_curves_and_its_final_numbers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export_of("--tensorboard", "my board") == 0
    assert capsys.readouterr().out == "wrote 3 runs to my board; to look at them: tensorboard --logdir 'my board'\n"
    assert sorted(path.name for path in here.iterdir()) == ["my board"]
    board = here / "my board"
    keys = [one["key"] for one in (row(), OTHER, PLAIN)]
    assert {path.name for path in board.iterdir()} == {FILE, *keys}
    found = scalars(board / keys[0])
    np.testing.assert_equal(
        found,
        {
            "accuracy": [(20, 0.0), (40, math.nan), (60, 1.0)],
            "error": [(20, 0.5), (40, 0.25), (60, 0.125)],
            "loss": [(20, 3.0), (40, 2.0), (60, math.inf)],
            "summary/pairs": [(20, 0.5), (40, math.nan), (60, 1.0)],
            "final/steps": [(60, 60.0)],
            "final/passage_step": [(60, 60.0)],
            "final/seconds": [(60, 6.0)],
            "final/accuracy": [(60, 0.75)],
            "final/id_mse": [(60, 0.25)],
            "final/loss": [(60, 0.5)],
            "final/measures.exact": [(60, 0.125)],
        },
    )
    times = [event.wall_time - ENDED["finished_at"].timestamp() for event in events(board / keys[0])]
    assert times == [-6, -6, -4, -2, 0, 0, 0]
    assert set(scalars(board / keys[2])) == {name for name in found if name.startswith("final/")}, "no curves, and numbers"


def test_the_settings_of_runs_are_hyperparameters_and_all_are_listed_once(here: Path) -> None:
    assert export_of("--tensorboard", "board") == 0
    start, end = plugin(here / "board" / row()["key"])
    assert end.HasField("session_end_info")
    told = {name: getattr(v, v.WhichOneof("kind")) for name, v in start.session_start_info.hparams.items()}
    of_spec = {name: value for name, value in SPEC.to_dict().items() if name != "options"}
    assert told == {
        **of_spec,
        **{"options.sigma": 1.5, "options.bright": True, "options.kind": "round", "status": "passed"},
    }
    (listed,) = plugin(here / "board")
    names = {info.name for info in listed.experiment.hparam_infos}
    assert names == told.keys()
    metrics = {info.name.tag for info in listed.experiment.metric_infos}
    assert {"final/accuracy", "final/measures.exact"} < metrics
    assert len(metrics) == 7


@pytest.mark.parametrize("number", [2**53, 2**63, 2**64, 2**70, -(2**70)])
def test_a_setting_of_any_size_is_a_hyperparameter(number: int, here: Path) -> None:
    large = row(SPEC.with_value("sigma", number))
    with ResultStore(here.parent / "large") as store:
        store.append([large])
    assert run(export.app, ["--store", "../large", "--tensorboard", "board"]) == 0
    start, _ = plugin(here / "board" / large["key"])
    assert start.session_start_info.hparams["options.sigma"].number_value == float(number)


def test_what_was_written_is_told_in_printable_words(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export_of("--csv", "a\x1b[31m\n.csv", "--tensorboard", "b\x1b") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == r"wrote 3 runs to a\x1b[31m\n.csv"
    assert told[1].startswith(r"wrote 3 runs to b\x1b; to look at them: tensorboard --logdir ")
    assert [line.isprintable() for line in told] == [True, True]


def test_a_csv_file_has_a_line_for_each_run_and_a_column_for_each_value(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs.csv").write_text("former")
    assert export_of("--csv", "runs.csv") == 0
    assert capsys.readouterr().out == "wrote 3 runs to runs.csv\n"
    table = pd.read_csv("runs.csv").set_index("key")
    assert sorted(path.name for path in here.iterdir()) == ["runs.csv"]
    first, other, plain = (table.loc[one["key"]] for one in (row(), OTHER, PLAIN))
    assert list(table.columns[-4:]) == ["options.bright", "options.kind", "options.sigma", "measures.exact"]
    assert not [name for name in table if "curve" in name]
    assert (first["N"], first["accuracy"], first["options.kind"], first["measures.exact"]) == (8, 0.75, "round", 0.125)
    assert first["finished_at"] == "2026-01-01 00:00:00+00:00"
    assert (other["options.sigma"], other["status"]) == (2, "missed")
    assert plain["error"] == "line\n'=1+1"
    assert plain["parents"] == '{"teacher": "' + "f" * 24 + '"}'
    kept = pd.read_csv("runs.csv", dtype=str).set_index("key").loc[row()["key"]]
    assert kept["passage_step"] == "60", "a whole number stays one where other runs have none"


def test_a_file_that_would_have_too_many_columns_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [row(SPEC.with_value(f"o{i}", 1).with_count(i + 1)) for i in range(export.MOST_COLUMNS)]
    with ResultStore(here.parent / "many") as store:
        store.append(many)
    hint = "these runs have 2,004 different options and measures, and a file has at most 2,000 columns: choose fewer runs with"
    check_refusal(export.app, ["--store", "../many", "--csv", "runs.csv"], hint, here, capsys)
    assert run(export.app, ["--store", "../many", "--csv", "runs.csv", "--where", "data_count=1"]) == 0


def test_runs_are_chosen_by_their_columns(here: Path) -> None:
    assert export_of("--csv", "a.csv", "--where", "dataset=bumps", "--where", "status=missed, failed", "--where", "N=8,16") == 0
    assert pd.read_csv("a.csv")["key"].tolist() == [OTHER["key"]]
    assert export.chosen_by(["N=8", "N=16"]) == {"N": {8, 16}}
    assert export.chosen_by([]) is None


def test_hostile_rows_are_only_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nasty = "=cmd|'/c calc'!A1\r\n</script>[/red]\x1b[31m\ud800"
    measures = {nasty: 0.5, "../../x": 10**400, "deep": {"a": [1, "@x"]}, "yes": True}
    given = {"measures": measures, "host": "+1", "error": "-1\n@2"}
    spec = RunSpec(task="a:B", dataset="=1+1", N=8, data_count=3, seed=0, options=((nasty, "@SUM(1)"), ("half", "\udfff")))
    with ResultStore(tmp_path / "results") as store:
        store.append([row(spec, **given, curve_summary={nasty: [10**400, 1e300, 1]})])
        (key,) = (one["key"] for one in store.rows())
    assert run(export.app, ["--csv", "a.csv", "--tensorboard", "board"]) == 0
    table = pd.read_csv("a.csv", dtype=str)
    (line,) = table.to_dict("records")
    assert (line["dataset"], line["host"], line["error"]) == ("'=1+1", "'+1", "'-1\n'@2")
    assert not [text for text in [*table.columns, *line.values()] if str(text).startswith(("=", "+", "-", "@"))]
    assert line["options.half"] == "\\udfff"
    assert line["measures.deep"] == '{"a": [1, "@x"]}'
    assert {str(path.relative_to("board")) for path in Path("board").rglob("*")} == {FILE, key, f"{key}/{FILE}"}
    found = scalars(Path("board") / key)
    assert all(tag.isprintable() for tag in found)
    (summary,) = (found[tag] for tag in found if tag.startswith("summary/"))
    np.testing.assert_equal(summary, [(20, math.nan), (40, math.nan), (60, 1.0)])
    assert "final/measures.../../x" not in found
    assert "final/measures.yes" not in found


MISTAKES = [
    ([], "nothing would be written: add --tensorboard FOLDER, --csv FILE, or both"),
    (["--csv", "a", "--store", "none"], "--store 'none' has no runs"),
    (["--csv", "a", "--store", ""], "--store is empty: name a folder, such as results, or a place in a bucket"),
    (["--csv", "."], "--csv '.' is no file"),
    (["--csv", "/dev/null"], "--csv '/dev/null' is no file"),
    (["--csv", "/proc/x"], "'/proc' is not writable"),
    (["--csv", "../results/runs/part.parquet"], "lies in the store: give a path outside it"),
    (["--csv", "s3://bucket/a.csv"], "is not on this machine"),
    (["--tensorboard", ".."], "has something in it: give a new or empty folder"),
    (["--tensorboard", "../results/new"], "lies in the store"),
    (["--tensorboard", "/dev/null"], "cannot be a folder"),
    (["--csv", "b/../a", "--tensorboard", "a"], "--csv and --tensorboard both name 'b/../a': give one of them another name"),
    (["--csv", "./a/b/c", "--tensorboard", "a"], "--csv 'a/b/c' lies in --tensorboard 'a': give a path outside it"),
    (["--csv", "a", "--tensorboard", "a/b"], "--tensorboard 'a/b' lies below --csv 'a', which is to be a file: give an"),
    (["--csv", "a", "--where", "status"], "write COLUMN=VALUE,... where COLUMN is one of family, task"),
    (["--csv", "a", "--where", "accuracy=1"], "write COLUMN=VALUE,... where COLUMN is one of family, task"),
    (["--csv", "a", "--where", "status=done"], "choose passed, missed, diverged, failed or pruned"),
    (["--csv", "a", "--where", "N=8,x"], "N='x' is no whole number from 1 to"),
    (["--csv", "a", "--where", "N=" + "9" * 5000], "is no whole number"),
    (["--csv", "a", "--tensorboard", "b", "--where", "N=99"], "has no runs with N=99: there is nothing to write"),
]


@pytest.mark.parametrize(("words", "hint"), MISTAKES, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    words: list[str], hint: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = [] if "--store" in words else ["--store", "../results"]
    check_refusal(export.app, [*store, *words], hint, here, capsys)


def test_a_folder_that_is_there_and_empty_is_filled(here: Path) -> None:
    (here / "board").mkdir()
    (here / "link").symlink_to("board")
    assert export_of("--tensorboard", "link") == 0
    assert len(list((here / "board").iterdir())) == 4
    assert (here / "link").is_symlink()


UNWRITTEN = "what --tensorboard names cannot be written"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (OSError(28, "Full"), 1, f"stopped: {UNWRITTEN} (Full): free some space, or name another place with it\n"),
        (OSError(13, "Denied"), 1, f"stopped: {UNWRITTEN} (Denied): name another place with it\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_nothing_stays_of_a_folder_that_could_not_be_written(
    error: BaseException, code: int, told: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("analysis.tensorboard._write_run", fails)
    assert export_of("--tensorboard", "board") == code
    assert capsys.readouterr().err == told
    assert not list(here.iterdir())


def test_what_killed_exports_left_goes_at_the_next_one(here: Path) -> None:
    """And nothing that may be another's: what is written just now, and what has other names."""
    killed = "import signal; from analysis import export, tensorboard; "
    killed += "tensorboard._write_run = lambda *_: signal.raise_signal(9); export.main()"
    words = [sys.executable, "-c", killed, "--store", "../results", "--tensorboard", "board"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(words, cwd=here, env=environment, timeout=60).returncode == -9
    (old,) = here.iterdir()
    new = shutil.copytree(old, here / ".board.0011223344556677")
    others = [".beard.0123456789abcdef", "board.0123456789abcdef", ".board.0123456789abcde", ".board.7"]
    for name in others:
        (here / name).mkdir()
    (here / ".board.0123456789abcdef").touch()
    (here / ".board.fedcba9876543210").symlink_to(others[0])
    for path in here.rglob("*"):
        os.utime(path, (time.time() - 3700,) * 2, follow_symlinks=False)
    (written, *_) = (path for path in new.rglob("*") if path.is_file())
    os.utime(written, (time.time() - 3500,) * 2)
    before = {path.name for path in here.iterdir()}
    assert export_of("--tensorboard", "board") == 0
    assert {path.name for path in here.iterdir()} == before - {old.name} | {"board"}
    assert len(list((here / "board").iterdir())) == 4


def test_processes_with_one_number_may_export_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of two containers may have. The first to end has the folder."""
    write = tensorboard._write_run

    def meanwhile(*words: Any) -> None:
        monkeypatch.setattr(tensorboard, "_write_run", write)
        assert export_of("--tensorboard", "board") == 0
        write(*words)

    monkeypatch.setattr(tensorboard, "_write_run", meanwhile)
    assert export_of("--tensorboard", "board") == 1
    assert [path.name for path in here.iterdir()] == ["board"]


def test_the_store_stays_as_it_is(here: Path) -> None:
    store = here.parent / "results"

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file()}

    before = contents()
    assert export_of("--tensorboard", "board", "--csv", "runs.csv") == 0
    assert contents() == before


@pytest.mark.deep
@pytest.mark.slow(60)
def test_ten_thousand_runs_take_less_than_a_minute_of_a_core(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(100).tolist()
    curves = {"curve_step": list(range(20, 2001, 20)), "curve_summary": None}
    curves |= dict.fromkeys(("curve_loss", "curve_accuracy", "curve_error"), values)
    with ResultStore(tmp_path / "results") as store:
        store.append([row(SPEC.with_count(count), steps=2000, **curves) for count in range(10_000)])
    began = time.process_time()
    words = ["--tensorboard", str(tmp_path / "board"), "--csv", str(tmp_path / "runs.csv")]
    assert run(export.app, ["--store", str(tmp_path / "results"), *words]) == 0
    took = time.process_time() - began
    print(f"{took:.1f} s, {sum(path.stat().st_blocks for path in (tmp_path / 'board').rglob('*')) * 512 / 1e6:.0f} MB")
    assert took < 60
