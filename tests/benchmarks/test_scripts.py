"""The scripts that measure: what they count, and that they run without the hardware they are meant for."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks import __main__ as all_benchmarks
from benchmarks import analysis, chaos, decoder_parts, gpu, pareto, validation
from benchmarks.step import operations
from trainables.bumps import BumpTask
from trainables.regularization import DECODER_TASK
from trainables.training.loop import Training
from trainables.training.packs import Pack


def test_each_command_in_the_help_of_chaos_stands_by_itself() -> None:
    printed = CliRunner().invoke(chaos.app, ["--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    commands = [line.strip() for line in printed.splitlines() if "benchmarks.chaos --" in line]
    assert commands == [
        "python -m benchmarks.chaos --faults driver,worker --cycles 20 --seed 1",
        "python -m benchmarks.chaos --faults driver --cycles 200 --generators",
    ]


def test_operations_are_those_of_the_layers() -> None:
    """By hand, N = 8, batch 3, depth 2, width 4: codes of 16; 2 x 2 pixels, then 4 x 4 and 8 x 8."""
    spec = gpu.make_spec("cnn", 8, "float32")
    torch.manual_seed(0)
    model = BumpTask().model(type(spec).from_dict({**spec.to_dict(), "width": 4}))
    first = 2 * 3 * 16 * 4 * 2 * 2
    hidden = 2 * 3 * (2 * 2 + 4 * 4) * 4 * 4 * 4 * 4
    last = 2 * 3 * 8 * 8 * 4 * 3 * 3
    assert operations(model, 3) == 2 * first + 3 * (hidden + last)


def test_the_bytes_of_a_step_are_parameters_and_activations() -> None:
    spec = gpu.make_spec("mlp", 8, "float32")
    model = BumpTask().model(spec)
    parameters = sum(p.numel() for p in model.parameters())
    assert gpu.least_bytes(model, spec) == 28 * parameters + 24 * 32 * (256 + 256 + 64)


@pytest.mark.slow(10)
def test_the_gpu_benchmark_runs_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main("cpu", "mlp", "float32", sizes="8", packs="1,3", processes="2", seconds=0.2, quick=False)
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| 8")]
    assert [way for _, way, *_ in lines] == ["2 processes", "alone, plain loop", "pack of 1", "pack of 3"]
    assert all(float(rate) > 5 for _, _, rate, *_ in lines)
    assert [best == "-" for *_, best, _ in lines] == [True, False, False, False]
    assert all(0 < float(share.rstrip("%")) < 100 for *_, share in lines)


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("words", "told"), [("no rule", "trained one by one, RuntimeError: no rule"), ("out of memory", "out of memory")]
)
def test_the_gpu_benchmark_has_no_rate_of_a_pack_whose_runs_were_trained_one_by_one(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: Pack) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(Pack, "_compute", fail)
    monkeypatch.setattr(gpu, "shared", lambda *_: 10.0)
    gpu.main("cpu", "mlp", "float32", sizes="8", packs="2", processes="2", seconds=0.05, quick=False)
    assert f"| 8 | pack of 2: {told} | - | - | - |" in capsys.readouterr().out


def test_runs_of_the_gpu_benchmark_have_batches_of_their_own_are_looked_at_and_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packs: list[Pack] = []
    monkeypatch.setattr(gpu, "Pack", lambda runs: packs.append(Pack(runs)) or packs[0])
    spec = gpu.make_spec("mlp", 8, "float32")
    gpu.packed(spec, "cpu", 0.5, 3)
    assert [run.spec.seed for run in packs[0].runs] == [0, 1, 2]
    for run in packs[0].runs:
        assert run.look_every == 20
        assert run.curve_step == list(range(20, run.step + 1, 20))
    short = dataclasses.replace(spec, max_steps=20)
    for kind, reason in ((gpu.Endless, ""), (Training, "budget")):
        run = kind(short, BumpTask())
        run.advance(0.0)
        while run.step < 20:
            run.advance(0.0)
        assert run.reason == reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_benchmark_says_what_to_do() -> None:
    with pytest.raises(SystemExit, match="--device cpu --quick"):
        gpu.main("cuda")


@pytest.mark.slow(3)
def test_the_analysis_is_timed_measure_by_measure(capsys: pytest.CaptureFixture[str]) -> None:
    analysis.main(quick=True)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows[0] == ["CPU seconds, N = 12", "depth 2", "depth 4"]
    names = ["activations", "images", "misplaced", "superposition", "kernel", "geometry", "probe", "tuning"]
    assert [name for name, *_ in rows[1:]] == [*names, "**all**"]
    parts = [float(seconds) for _, _, seconds in rows[1:-1]]
    assert sum(parts) == pytest.approx(float(rows[-1][-1].strip("*")), abs=0.1)
    assert min(parts) >= 0
    assert sum(parts) > 0.1


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        all_benchmarks.main(["speed"])
    assert ended.value.exit_code == 2
    assert "there are peers, step" in capsys.readouterr().err


@pytest.mark.parametrize("quick", [False, True])
def test_what_each_benchmark_prints_stays_together_and_one_that_fails_stops_no_other(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nfor i in 1 2; do echo "$i $2 $3"; sleep 0.2; done\ntest $2 != benchmarks.step\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(typer.Exit) as ended:
        all_benchmarks.main(["step", "store"], quick=quick, out=tmp_path / "out")
    assert ended.value.exit_code == 1
    printed = capsys.readouterr()
    assert printed.err == "failed: step\n"
    words = " --quick" if quick else " "
    tables = {name: f"1 benchmarks.{name}{words}\n2 benchmarks.{name}{words}\n" for name in ("step", "store")}
    for name, code in (("step", 1), ("store", 0)):
        assert f"## {name}: {all_benchmarks.BENCHMARKS[name]}\n{tables[name]}({name}: exit code {code}, " in printed.out
        assert (tmp_path / "out" / f"{name}.md").read_text() == tables[name]


def test_a_rank_correlation_has_an_interval_over_the_settings() -> None:
    dice = np.random.default_rng(1)
    truth = dice.normal(size=60)
    value, low, high = validation.correlation(truth + 0.5 * dice.normal(size=60), truth)
    assert 0.7 < low < value < high < 1
    assert validation.correlation(truth, truth)[0] == 1
    _, low, high = validation.correlation(dice.normal(size=60), truth)
    assert low < 0 < high


def test_every_part_of_the_decoder_is_added_once_and_taken_once() -> None:
    whole = decoder_parts.all_but()
    for name, changes in decoder_parts.PARTS.items():
        assert whole.items() >= changes.items()
        assert decoder_parts.all_but(name) == {key: value for key, value in whole.items() if key not in changes}
    spec = validation.made(DECODER_TASK, 8, 20, holdout="corner", **decoder_parts.PUBLISHED, **whole)
    assert (spec.lr, spec.width, spec.option("rank"), spec.option("padding")) == (2e-3, 8, 1, 4)


def test_the_area_of_a_front_ends_at_the_reference_point() -> None:
    assert pareto.area([], (3, 3)) == 0
    assert pareto.area([(2, 1), (1, 2), (2, 2), (0, 3), (4, 0)], (3, 3)) == 3


@pytest.mark.parametrize(
    ("name", "at", "area"),
    [
        ("width", {"lr": 10**-2.5, "width": 64}, sum(0.5 - 1 / math.sqrt(width) for width in range(8, 512))),
        ("ZDT1", {"x1": 0.25, "x2": 0.0, "x3": 0.0, "x4": 0.0}, 1 + 2 / 3),
        ("Fonseca", {"x1": 0.2, "x2": 0.2, "x3": 0.2}, 0.342),
    ],
)
def test_a_known_front_holds_what_its_problem_can_reach(name: str, at: dict[str, float], area: float) -> None:
    problem = pareto.PROBLEMS[name]
    assert [one.name for one in problem.space] == list(at)
    reached = problem.objectives(at)
    assert min(math.dist(reached, point) for point in problem.front) < 1e-3
    assert not any(one < reached[0] - 1e-9 and other < reached[1] - 1e-9 for one, other in problem.front)
    assert pareto.area(problem.front, problem.reference) == pytest.approx(area, rel=2e-3)


@pytest.mark.slow(5)
def test_the_benchmark_of_fronts_has_a_share_for_each_problem_and_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    pareto.main(processes=1, quick=True)
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert lines[0][1:] == [f"{name}: `{way}`" for name in pareto.PROBLEMS for way in pareto.SAMPLERS]
    assert [count for count, *_ in lines[1:]] == ["20", "60"]
    few, more = ([float(share) for share in shares] for _, *shares in lines[1:])
    assert all(0 <= one < 1 for one in few)
    assert sum(few) < sum(more)
    assert more[0] > 0.9


@pytest.mark.deep
@pytest.mark.slow(90)
@pytest.mark.parametrize("name", ["validation", "decoder_parts"])
def test_a_benchmark_of_the_decoder_trains_and_prints_its_table(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--store", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(table) == {"validation": 1 + 6, "decoder_parts": 1 + 14}[name]
