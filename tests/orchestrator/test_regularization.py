"""The regularization study as a user runs it: real processes, a real embedded Ray, real kills."""

import json
import math
import random
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
import pytest
from rich.console import Console
from typer.testing import CliRunner

from orchestrator import regularization
from orchestrator.command.cli import run
from orchestrator.command.ranges import parse_range
from orchestrator.engine import estimate
from orchestrator.searches import Row, Rows
from orchestrator.searches.confirm import FRESH, first_seed_of
from orchestrator.store import make_row
from tests.chaos.rows import comparable
from tests.conftest import Command, check_refusal, many, read_rows, wait_for_rows
from trainables.spec import RunSpec, run_key

Start = Callable[..., Command]
SMALL = ("--N", "8", "--trials", "16", "--epochs", "150", "--seeds", "1", "--lr", "0.01", "--seeds-per-trial", "2",
         "--confirm", "2", "--confirm-seeds", "2")  # fmt: skip
FIGURES = {"errors", "curves", "embeddings", "composition", "images", "volume", "search", "settings"}

MISTAKES = [
    (["--lambda-entropy", "1..0.1"], "--lambda-entropy '1..0.1' is an empty range, because 1 is above 0.1: write LOW..HIGH"),
    (["--lambda-entropy", "-1..1"], "does not begin above 0"),
    (["--lambda-variance", "0..1"], "does not begin above 0"),
    (["--lambda-entropy", "0..1"], "0.001..1, or 0|LOW..HIGH to try 0, too, or one number to keep it fixed, 0 included"),
    (["--lambda-variance", "-0.5"], "does not begin above 0"),
    (["--lambda-variance", "a..b"], "is not a range of numbers: write LOW..HIGH"),
    (["--lambda-variance", "0.1..inf"], "is not a range of numbers"),
    (["--lambda-variance", "nan"], "is not a range of numbers"),
    (["--lambda-variance", ""], "is not a range of numbers"),
    (["--lambda-variance", "1|0.1..1"], "'1|0.1..1' has '1' before the bar, where only 0 may stand"),
    (["--lambda-entropy", "0|0.1"], "'0|0.1' has no range after the bar: write 0|LOW..HIGH"),
    (["--search", "all"], "choose weights or decoder"),
    (["--padding", "17"], " to 16, not"),
    (["--ema", "1"], " to 0.9999, not"),
    (["--beta2", "1"], " to 0.9999, not"),
    (["--confirm", "0"], "number from 1 "),
    (["--trials", "50000"], "more than 100000 runs are too many: ask for fewer --trials or --seeds-per-trial"),
    (["--sampler", "best"], "choose tpe, nsga2, random or grid"),
    (["--pruner", "axe"], "choose median, percentile or none"),
    (["--objectives", "beauty"], "choose validation or id,validation"),
    (["--objectives", "id,validation", "--pruner", "median"], "pruner none"),
    (["--region", "edge"], "choose corner or center"),
    (["--schedule", "step"], "choose constant or cosine"),
    (["--export-optuna", "."], "exists: give the name of a new file"),
    (["--export-optuna", "nowhere/study.db"], "is in a folder that does not exist"),
    (["--init", "zero"], "init must be one of published, positive"),
    (["--rank", "33"], "rank must lie in 1..32"),
    (["--rank", "0"], "number from 1 "),
    (["--sigma", "0"], "sigma must be above 0"),
    (["--N", "4"], "number from 8 "),
    (["--N", "16..32"], "--N"),
    (["--epochs", "0"], "number from 1 "),
    (["--trials", "0"], "number from 1 "),
    (["--seeds", "0"], "number from 1 "),
    (["--option", "shape=round"], "lambda_entropy"),
    (["--lr", "0"], "lr must be above 0"),
    (["--option", "lambda_entropy=0.5"], "is not the way to give lambda_entropy here: use --lambda-entropy"),
    (["--option", "sigma=3"], "use --sigma"),
    (["--option", "tolerance=2"], "use --tolerance"),
    (["--option", "holdout=center"], "use --region"),
    (["--option", "depth=5", "--depth", "3"], "use --depth"),
    (["--option", "width=4"], "use --channels"),
    (["--option", "padding=2"], "use --padding"),
    (["--search", "decoder", "--option", "beta2=0.99"], "use --beta2"),
    (["--search", "decoder", "--sampler", "grid"], "the least grid of this space has 46656 points: raise --trials to that"),
    (["--trials", "100", "--confirm", "100", "--confirm-seeds", "1000"], "are too many: ask for fewer --confirm or"),
]


@pytest.mark.parametrize(("arguments", "hint"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refusal(regularization.app, arguments, hint, tmp_path, capsys)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", (20, 4, 20 * 400)),
        ("--search decoder", (60, 16, 20 * 150)),
        ("--search decoder --trials 7 --confirm-seeds 0 --epochs 400", (7, 0, 20 * 400)),
    ],
)
def test_each_search_has_its_own_size(words: str, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(regularization, "launch", lambda study, *_: found.append(study) or 0)
    assert run(regularization.app, words.split()) == 0
    search = found[0].search
    assert (search.tuning.trials, len(search.confirming.seeds), search.final[0].max_steps) == expected


@pytest.mark.parametrize(
    ("text", "bounds"), [("0.001..1", (0.001, 1.0)), ("1e-3..1e0", (0.001, 1.0)), ("0", (0.0, 0.0)), ("0.1", (0.1, 0.1))]
)
def test_ranges(text: str, bounds: tuple[float, float]) -> None:
    assert parse_range(text) == bounds


def test_help_names_every_option_and_the_set_of_options_is_frozen() -> None:
    result = CliRunner().invoke(regularization.app, ["--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    options = set(re.findall(r"--[A-Za-z][\w-]*", re.sub(r"\x1b\[[\d;]*m", "", result.output)))
    assert options == {
        *("--N", "--region", "--trials", "--seeds", "--lambda-entropy", "--lambda-variance", "--objectives"),
        *("--search", "--confirm", "--ablation", "--no-ablation"),
        *("--sampler", "--pruner", "--seeds-per-trial", "--confirm-seeds", "--search-seed", "--export-optuna"),
        *("--sigma", "--rank", "--channels", "--init", "--depth", "--padding", "--ema", "--beta2", "--tolerance", "--option"),
        *("--epochs", "--schedule", "--batch-size", "--lr", "--weight-decay"),
        *("--store", "--out", "--address", "--workers", "--gpus-per-run", "--pack-size", "--dry-run", "--max-hours"),
        *("--cpu-workers", "--price", "--max-cost", "--stall-minutes", "--gates", "--no-gates"),
        *("--on-error", "--retry-failed", "--save-weights", "--json", "--verbose", "--help"),
    }


@pytest.mark.slow(2)
def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(regularization.app, [*SMALL, "--dry-run", "--store", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"trials\s+│\s+0\s+│\s+16\s+│\s+150, fewer", printed)
    assert re.search(r"best 2, fresh seeds\s+│\s+0\s+│\s+2\s+│\s+150 ", printed)
    assert re.search(r"tuned\s+│\s+0\s+│\s+1\s+│\s+300", printed)
    assert not list(tmp_path.iterdir())


# As a function of rows


def made_by(*words: str) -> regularization.RegularizationStudy:
    """The study that a command line makes."""
    found: list[regularization.RegularizationStudy] = []
    with mock.patch.object(regularization, "launch", lambda study, *_: found.append(study) or 0):
        assert run(regularization.app, ["--N", "8", "--trials", "8", "--epochs", "10", "--seeds", "2", *words]) == 0
    return found[0]


def planned_by(*words: str) -> str:
    """What the plan of a command says below its table."""
    with mock.patch.object(estimate, "step_seconds", return_value=0.5):
        plan = made_by(*words).plan(Rows())[0]
    console = Console(width=400, file=StringIO())
    console.print(plan)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_plan_says_what_is_searched_by_the_options_that_give_it() -> None:
    weights = "--lambda-entropy 0|0.001..1:log, --lambda-variance 0|0.0001..1:log"
    searched = re.findall("^searched: (.*)$", planned_by("--search", "decoder", "--lr", "0.01"), re.MULTILINE)
    assert [line.rstrip() for line in searched] == [
        f"{weights}, --rank 1|2|4|8, --channels 2|4|8, --depth 1|2|3, --init published|positive, --padding 0|2|4, "
        "--schedule constant|cosine, --ema 0|0.99|0.999, --beta2 0.99|0.999"
    ]
    assert "tpe sampler, median pruner" in planned_by()
    assert "tpe sampler, no pruner" in planned_by("--objectives", "id,validation")
    assert "searched: nothing" in planned_by("--lambda-entropy", "0.1", "--lambda-variance", "0.01")


def test_a_plan_says_that_the_best_published_setting_is_confirmed_beside_the_best_trials() -> None:
    line = "confirmed in any case: the best of the published settings that are tried"
    assert line in planned_by()
    assert line in planned_by("--objectives", "id,validation")
    assert line.replace("settings", "values") in planned_by("--lambda-entropy", "0.5")
    assert "confirmed" not in planned_by("--confirm-seeds", "0")
    assert "confirmed" not in planned_by("--lambda-entropy", "2..3")


def test_the_tuned_setting_waits_for_the_search_and_its_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "step_seconds", lambda *_: 0.5)
    study = made_by("--seeds-per-trial", "2", "--pruner", "none")
    work = study.plan(Rows())[1]
    trial, final = 0.5 * study.search.tuning.template.max_steps, 0.5 * study.search.final[0].max_steps
    assert work.on(1000) == pytest.approx(trial * (2 + 1) + final)
    assert work.on(1) == work.seconds > 8 * trial
    monkeypatch.undo()
    assert study.work_left(Rows()) is None


def finish(spec: RunSpec, second: int, **changes: Any) -> Row:
    """The row of a run, `second` seconds after the first, with an error by chance."""
    error = 1e-3 * math.exp(random.Random(run_key(spec, "1")).gauss(0, 1))
    steps = [spec.max_steps // 2, spec.max_steps]
    found = {"ood_mse": error, "id_mse": error / 10, "accuracy": 0.5, "measures": {"exact": 0.2}, "curve_step": steps}
    found |= {name: [error] * 2 for name in ("curve_loss", "curve_error", "curve_accuracy")}
    about = {"task_version": "1", "fixed_count": 0, "finished_at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)}
    result = {"status": "missed", "reason": "budget", "steps": spec.max_steps, **found}
    return make_row(spec, **about, **{**result, **changes})


def carried_out(study: regularization.RegularizationStudy, result: Callable[[RunSpec], dict[str, Any]] = lambda _: {}) -> Rows:
    rows = Rows()
    while not study.search.finished(rows):
        specs = study.search.propose(rows, 1)
        assert specs, "a search that has not finished asks for a run"
        for spec in specs:
            rows.add(finish(spec, len(rows), **result(spec)))
    return rows


def judged_rows(study: regularization.RegularizationStudy, rows: Rows, count: int) -> list[float]:
    """The errors of the winner on the seeds that judge its choice."""
    winner = study.search.confirming.winner(rows)
    assert winner is not None
    found = study.search.confirming.rows_of(rows, winner)
    assert len(found) == count
    return [row["ood_mse"] for row in found]


@pytest.mark.parametrize("objectives", ["validation", "id,validation"])
def test_without_fresh_seeds_nothing_is_said_of_them(objectives: str) -> None:
    study = made_by("--confirm-seeds", "0", "--objectives", objectives, "--seeds-per-trial", "3")
    rows = carried_out(study)
    winner = study.search.confirming.winner(rows)
    assert study.search.confirming.chosen(rows) == [winner]
    told, lines = study.answer(rows), study._known.of(rows).lines()
    assert winner is not None
    assert told["best"]["number"] == winner.number
    assert (told["winner"], told["comparison"], told["confirmed"]) == (None, None, [])
    assert not any("fresh" in line or "nan" in line for line in lines)
    if len(winner.rows) > 1:
        over = f"geometric means over {len(winner.rows)} seeds of the search"
        assert lines[0].endswith(f"{over}, which also chose it and so may flatter it)")
    assert study.table(rows, {}) is not None


def test_the_error_of_weights_that_are_given_is_the_mean_over_the_boxes() -> None:
    """A pseudo-box is harder than another, and what it adds to all trials tells nothing here."""
    study = made_by("--lambda-entropy", "0.1", "--lambda-variance", "0.01")
    harder = dict(zip(study.search.tuning.seeds, (1e-3, 1e-2, 1e-1), strict=True))
    rows = carried_out(study, lambda spec: {"ood_mse": harder.get(spec.seed, 1e-5), "id_mse": 1e-6})
    best = study.answer(rows)["best"]
    assert (best["validation_mse"], best["id_mse"], best["seeds"]) == (pytest.approx(1e-2), pytest.approx(1e-6), 3)
    [chosen, *_] = study._known.of(rows).lines()
    assert chosen.endswith("validation MSE 1.00e-02, ID MSE 1.00e-06, geometric means over 3 seeds of the search)")


def test_one_fresh_seed_gives_the_errors_of_the_chosen_trial() -> None:
    study = made_by("--confirm-seeds", "1")
    rows = carried_out(study)
    [error] = judged_rows(study, rows, 1)
    best = study.answer(rows)["best"]
    assert (best["validation_mse"], best["id_mse"], best["seeds"]) == (error, error / 10, 1)
    assert "on one fresh seed, which also chose it and so may flatter it)" in study._known.of(rows).lines()[0]
    several = made_by("--confirm-seeds", "2")
    rows = carried_out(several)
    errors = judged_rows(several, rows, 2)
    assert several.answer(rows)["best"]["validation_mse"] == pytest.approx(math.sqrt(math.prod(errors)))
    assert "geometric means over 2 fresh seeds, " in several._known.of(rows).lines()[0]


def test_the_number_that_chose_one_of_several_is_said_to_flatter_it() -> None:
    study = made_by("--confirm", "2", "--confirm-seeds", "3")
    rows = carried_out(study)
    found = study.answer(rows)
    said = "geometric means over 3 fresh seeds, which also chose it and so may flatter it; validation MSE if chosen on all "
    assert f"{said}seeds but one and judged on that one: {found['crossed']:.2e})" in study._known.of(rows).lines()[0]


@pytest.mark.slow(1)
def test_the_winner_in_the_file_is_the_one_that_is_judged() -> None:
    study = made_by("--objectives", "id,validation", "--confirm-seeds", "2", "--confirm", "3")
    rows = carried_out(study, lambda spec: {"id_mse": math.exp(random.Random(f"id {spec}").gauss(-9, 1))})
    winner, told = study.search.confirming.winner(rows), study.answer(rows)
    assert winner is not None
    assert told["winner"]["setting"] == f"trial {winner.number}"
    assert told["best"]["number"] == winner.number
    assert sum(one["winner"] for one in told["confirmed"]) >= 1


def test_the_last_table_has_the_means_of_the_lines_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    study = made_by("--confirm-seeds", "0", "--seeds", "3")
    rows = carried_out(study)
    Console(width=200).print(study.table(rows, {}))
    printed = capsys.readouterr().out
    assert "judged on the OOD corner: means over seeds, those of the errors geometric" in printed
    [told] = [line for line in study._known.of(rows).lines() if line.startswith("tuned: ID MSE ")]
    [shown] = re.findall(r"tuned +│ .* │ +3/3 │ +(\S+) │ +(\S+) │ +0\.500 │", printed)
    assert [f"{float(error):.1e}" for error in shown] == re.findall(r"MSE (\S+) \[", told)


def test_neither_the_table_nor_its_lines_round_an_accuracy_up(capsys: pytest.CaptureFixture[str]) -> None:
    study = made_by("--confirm-seeds", "0", "--seeds", "3")
    rows = carried_out(study, lambda _: {"accuracy": 0.99996})
    Console(width=200).print(study.table(rows, {}))
    printed = capsys.readouterr().out
    assert re.findall(r"^│ tuned +│.*│ +(\S+) │$", printed, re.MULTILINE) == ["0.999"]
    assert re.findall(r"^tuned: .*, accuracy (\S+)$", printed, re.MULTILINE) == ["0.999"]


DIVERGED = {"status": "diverged", "reason": "diverged", "ood_mse": math.nan, "id_mse": math.nan}
FAILED = {"status": "failed", "reason": "failed", "ood_mse": None, "id_mse": None, "accuracy": None, "measures": {}}


@pytest.mark.parametrize("of_search", [True, False])
def test_runs_that_diverge_have_not_failed(of_search: bool) -> None:
    """All trials, or all that confirm them."""
    study = made_by("--confirm-seeds", "2", "--no-ablation")
    fresh = study.search.confirming.seeds

    def ending(bad: dict[str, Any]) -> Callable[[RunSpec], dict[str, Any]]:
        return lambda spec: bad if spec.seed in (study.search.tuning.seeds if of_search else fresh) else {}

    diverged, failed = carried_out(study, ending(DIVERGED)), carried_out(study, ending(FAILED))
    assert study.answered(diverged)
    assert not study.answered(failed)
    expected = "every confirmed setting failed, diverged or had no number on a fresh seed: search other values"
    if of_search:
        expected = "no trial is complete (8 diverged), so nothing could be chosen: search other values"
    assert study.doubt(diverged) == study.answer(diverged)["doubt"] == expected
    assert not study.answered(Rows(list(diverged)[:-1]))
    whole = carried_out(study)
    assert study.answered(whole)
    assert study.doubt(whole) is None


@pytest.mark.slow(2)
def test_trials_are_exported_when_nothing_will_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.files.write_regularization", lambda *_: [])
    file = tmp_path / "study.db"
    study = made_by("--export-optuna", str(file))
    rows = carried_out(study)
    assert study.write(Rows(list(rows)[:-1]), tmp_path, force=True) == []
    assert study.write(rows, tmp_path, force=True) == [file]


def found(folder: Path, store: str) -> dict[str, Any]:
    return json.loads((folder / store / "regularization" / "regularization.json").read_text())


@pytest.mark.slow(30)
def test_kills_change_neither_the_rows_nor_the_chosen_weights(here: Start, tmp_path: Path) -> None:
    options = (*SMALL, "--trials", "15", "--epochs", "60", "--pruner", "percentile", "--search-seed", "2")
    options += ("--workers", "1", "--pack-size", "1")  # packs of another size end in other bits
    database = tmp_path / "study.db"
    whole = here(*options, "--store", "whole", "--export-optuna", str(database), study="regularization")
    assert whole.wait() == 0, whole.stdout + whole.stderr
    expected = read_rows(tmp_path, "whole")
    assert (expected["status"] == "pruned").any(), "the test is to cover pruned runs"
    dice = random.Random(3)
    stored = 0
    kills = many(1, 3)
    for _ in range(kills):
        command = here(*options, study="regularization")
        assert wait_for_rows(command, tmp_path, stored + dice.randint(1, 3)), command.stdout + command.stderr
        time.sleep(dice.random() * 0.7)
        command.process.kill()
        assert command.wait() == -signal.SIGKILL, "the study ended before it could be killed: make it longer"
        stored = len(read_rows(tmp_path))
    last = here(*options, study="regularization")
    assert last.wait() == 0, last.stdout + last.stderr
    rows = read_rows(tmp_path)
    assert rows["launch"].nunique() == kills + 1
    assert comparable(rows) == comparable(expected)
    assert found(tmp_path, "results")["best"] == found(tmp_path, "whole")["best"]

    assert {p.stem for p in (tmp_path / "results" / "regularization").glob("*.png")} == FIGURES
    assert len(optuna.load_study(study_name=None, storage=f"sqlite:///{database}").trials) == 15
    again = here(*options, "--export-optuna", str(database), study="regularization")
    assert again.wait() == 2
    assert "study.db' exists: give the name of a new file" in again.stderr


@pytest.mark.slow(10)
def test_the_decoder_is_searched_but_for_what_is_given(here: Start, tmp_path: Path) -> None:
    options = ("--N", "8", "--trials", "6", "--epochs", "20", "--seeds", "2", "--seeds-per-trial", "2", "--confirm", "2")
    words = ("--confirm-seeds", "2", "--search", "decoder", "--rank", "1", "--json")
    command = here(*options, *words, study="regularization")
    code = command.wait()
    assert code in (0, 1), command.stdout + command.stderr  # so few epochs may teach too little
    answer = json.loads(command.stdout)
    rows = read_rows(tmp_path)
    assert set(rows["task"]) == {"trainables.regularization:DecoderTask"}
    options = [json.loads(text) for text in rows["options"]]
    assert {one["rank"] for one in options} == {1}
    assert (rows["seed"] == first_seed_of(0)).sum() == 6
    assert len({(one["padding"], one["ema"], one["init"]) for one in options}) > 2
    best = {name: value for name, value in answer["best"].items() if name in ("padding", "init", "ema", "lambda_variance")}
    judged = [one for one, holdout in zip(options, rows["holdout"], strict=True) if holdout == "corner"]
    assert sum(best.items() <= one.items() for one in judged) >= 2
    assert {"errors", "embeddings", "volume"} <= {p.stem for p in (tmp_path / "results" / "regularization").glob("*.png")}


@pytest.mark.deep
@pytest.mark.slow(50)
def test_with_several_workers_no_finished_run_is_lost_or_repeated(join: Start, tmp_path: Path) -> None:
    options = (*SMALL, "--workers", "3")
    seen: set[str] = set()
    trained = 0
    for _ in range(2):
        command = join(*options, study="regularization")
        assert wait_for_rows(command, tmp_path, len(seen) + 3), command.stdout + command.stderr
        command.process.send_signal(signal.SIGTERM)
        assert command.wait() == 143
        rows = read_rows(tmp_path)
        assert seen <= set(rows["key"])
        told = re.findall(r"(\d+) runs? trained", command.stdout)
        trained += int(told[-1]) if told else len(rows) - len(seen)  # if Ray is slow to end, it leaves untold
        seen = set(rows["key"])
    command = join(*options, "--json", study="regularization")
    assert command.wait() == 0, command.stdout + command.stderr
    trained += int(re.findall(r"(\d+) runs? trained", command.stderr)[-1])
    rows = read_rows(tmp_path)
    assert seen <= set(rows["key"])
    assert trained == len(rows) == rows["key"].nunique()
    answer = json.loads(command.stdout)
    judged = {(one["lambda_entropy"], one["lambda_variance"]) for one in answer["finals"]}  # the winner may be one of the four
    assert len(judged) in (4, 5)
    assert (rows["holdout"] == "corner").sum() == len(judged)
    assert (rows["seed"] == first_seed_of(0)).sum() == 16
    assert len(answer["confirmed"]) in (2, 3)  # the best known pair comes on top
    assert (rows["seed"] >= first_seed_of(0) + FRESH).sum() == 2 * len(answer["confirmed"])


@pytest.mark.deep
@pytest.mark.slow(40)
def test_two_objectives_keep_the_front_and_more_trials_build_on_the_old_ones(join: Start, tmp_path: Path) -> None:
    options = (*SMALL, "--objectives", "id,validation", "--sampler", "nsga2", "--region", "center")
    first = join(*options, "--json", study="regularization")
    assert first.wait() == 0, first.stdout + first.stderr
    answer = json.loads(first.stdout)
    trials = {t["key"]: (t["id_mse"], t["validation_mse"]) for t in answer["trials"]}
    beaten = {
        key for key, a in trials.items() if any(b[0] <= a[0] and b[1] <= a[1] and b != a for b in trials.values())
    }  # fmt: skip
    assert {t["key"] for t in answer["front"]} == trials.keys() - beaten
    assert (tmp_path / "results" / "regularization" / "search.png").exists()
    more = join(*options, "--trials", "18", study="regularization")
    assert more.wait() == 0, more.stdout + more.stderr
    rows = read_rows(tmp_path)
    assert (rows["seed"] == first_seed_of(0)).sum() == 18
    assert trials.keys() <= set(rows["key"])
