"""The rotation study as a user runs it."""

import gzip
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from analysis.measures.rotation import TrainedRotation
from orchestrator import rotation
from orchestrator.command.cli import run
from orchestrator.store import ResultStore
from tests.conftest import Command, check_refusal, read_rows
from trainables.rotation import image_of
from trainables.spec import RunSpec

Start = Callable[..., Command]
SMALL = ("--N", "8", "--width", "4", "--angles", "60", "--epochs", "3", "--seeds", "2")

MISTAKES = [
    (["--gap", "160"], "--gap '160' is not a range of degrees: write LOW..HIGH, for example 160..200"),
    (["--gap", "a..b"], "is not a range of degrees"),
    (["--gap", "200..160"], "the gap must lie in 0..360 degrees and not be empty, not 200..160"),
    (["--gap", "300..400"], "not 300..400"),
    (["--gap", "nan..200"], "'nan..200' is not a range of degrees"),
    (["--gap", "160.1..160.2"], "none of 1000 angles lies in the gap"),
    (["--digit", "10"], " to 9, not"),
    (["--angles", "1"], "number from 2 "),
    (["--N", "18"], "N must be a multiple of 4 of at least 8, not 18"),
    (["--width", "7"], "width must be an even number"),
    (["--seeds", "0"], "number from 1 "),
    (["--epochs", "0"], "number from 1 "),
    (["--lr", "0"], "lr must be above 0"),
    (["--mnist", "nowhere"], "nowhere has no file train-images-idx3-ubyte"),
    (["--mnist", ".", "--N", "16"], "--N 16 does not fit --mnist"),
]


@pytest.mark.parametrize(("arguments", "hint"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(rotation.app, arguments, hint, tmp_path, capsys)


def test_help_names_every_option_and_the_set_of_options_is_frozen() -> None:
    result = CliRunner().invoke(rotation.app, ["--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    options = set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))
    assert options == {
        *("--digit", "--mnist", "--angles", "--gap", "--seeds", "--N", "--width"),
        *("--epochs", "--batch-size", "--lr", "--weight-decay"),
        *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours"),
        *("--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
        *("--on-error", "--retry-failed", "--save-weights", "--json", "--verbose", "--help"),
    }


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rotation.app, [*SMALL, "--dry-run", "--store", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"rotation-cnn\s+│\s+0\s+│\s+2\s+│\s+6 ", printed)  # 54 angles outside the gap: 2 steps an epoch
    assert not list(tmp_path.iterdir())


def specs_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The runs that a command would train."""
    seen: list[RunSpec] = []

    def launch(study, where) -> int:
        seen.extend(study.specs)
        return 0

    monkeypatch.setattr(rotation, "launch", launch)
    assert run(rotation.app, arguments) == 0
    return seen


def test_by_default_it_trains_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = specs_of([], monkeypatch)
    assert [s.seed for s in specs] == [0, 1, 2]
    assert {s.data_count for s in specs} == {888}
    assert {s.max_steps for s in specs} == {200 * 28}
    first = specs[0]
    assert (first.N, first.width, first.depth, first.batch_size, first.lr, first.weight_decay) == (28, 128, 2, 32, 1e-3, 1e-4)
    assert (first.stop, first.schedule, first.precision) == ("budget", "cosine", "float32")
    assert dict(first.options) == {"image": "digit-4", "angles": 1000, "gap_low": 160.0, "gap_high": 200.0}


def test_a_digit_of_mnist_is_part_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(struct.pack(">4I", 2051, 3, 28, 28) + pixels.tobytes()))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 3) + bytes([5, 7, 7]))
    (spec,) = specs_of(["--mnist", str(tmp_path), "--digit", "7", "--seeds", "1", "--gap", "20..30.5"], monkeypatch)
    assert (image_of(str(spec.option("image")), 28) == pixels[1] / 255).all()
    assert (spec.option("gap_low"), spec.option("gap_high")) == (20.0, 30.5)


@pytest.mark.deep
@pytest.mark.slow(20)
def test_its_weights_are_kept_and_give_back_the_error_in_the_row(join: Start, tmp_path: Path) -> None:
    command = join(*SMALL, "--workers", "2", "--json", study="rotation")
    assert command.wait() == 0, command.stdout + command.stderr
    assert len(json.loads(command.stdout)["runs"]) == 2
    assert read_rows(tmp_path)["seed"].sort_values().tolist() == [0, 1]
    with ResultStore(tmp_path / "results", read_only=True) as store:
        for row in store.rows():
            decoder = TrainedRotation.load(row, store.weights_path(row["key"]).read_bytes())
            held_out = decoder.task.data(decoder.spec).held_out.truth.double().numpy()
            mse = np.square(decoder.outputs(held_out) - decoder.truth(held_out)).mean()
            assert mse == pytest.approx(row["ood_mse"], rel=1e-5)
    again = join(*SMALL, study="rotation")
    assert again.wait() == 0
    assert "0 runs trained" in again.stdout
