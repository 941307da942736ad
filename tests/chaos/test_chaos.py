"""Every fault of the chaos harness once, and that the harness finds a guarantee that is broken."""

from __future__ import annotations

import dataclasses
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.chaos import ALL, SWEEPS
from tests.chaos.faults import FAULTS, SkippedError
from tests.chaos.kills import KILLS, REAL, STEPS, Bench, OfGenerators, campaign, mixed
from tests.chaos.lab import Lab, Trial, Verdict
from tests.chaos.store_level import ROWS, found_steps, sweep
from tests.conftest import THOROUGH, many

pytestmark = [pytest.mark.slow(20), pytest.mark.timeout(1800)]
QUICK = ("full-disk",)
"""Those of `make test`. Tests of the store, of execution and of studies have quicker cases of the others."""

IN_ONE_STUDY = ("driver", "steps", "clock", "sigint", "sigterm", "triple", "worker")
IN_A_QUICK_ONE = ("steps", "clock", "worker")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Launches that join one Ray, so that none waits for its start; only some of them do unless the tests are thorough."""
    with Lab(tmp_path_factory.mktemp("chaos"), join=True, here=not THOROUGH) as lab:
        yield SmallBench(lab, random.Random(0), cycles=1, seeds=many(1, 2), pause=2.0)


class SmallBench(Bench):
    def study(self) -> tuple[str, ...]:
        return (*REAL, "--N", "8,12", "--workers", "2", "--max-steps", "200", "--seeds", str(self.seeds))


def assert_kept(verdict: Verdict) -> None:
    assert verdict.broken() == []
    assert verdict.kills > 0
    assert verdict.reads > 0
    assert (verdict.lost, verdict.doubled, verdict.torn, verdict.again) == (0, 0, 0, 0)


def assert_undisturbed(bench: Bench, kind: str) -> None:
    """Under all kills that are asked for, a study ends as if there were none."""
    verdict = campaign(bench, kind, KILLS[kind][1])
    assert_kept(verdict)
    assert verdict.equal is True
    assert verdict.kills >= bench.cycles


@pytest.mark.deep
@pytest.mark.parametrize("fault", SWEEPS)
def test_a_kill_at_any_step_of_the_write_path_costs_no_row(bench: Bench, fault: str) -> None:
    _, steps = found_steps(bench.lab)
    assert set(STEPS) <= set(steps)
    verdict = sweep(bench, SWEEPS[fault][1], once=True)
    assert_kept(verdict)
    assert verdict.equal is True
    assert set(verdict.at) == set(steps)
    assert verdict.kills >= len(steps) > 25


@pytest.mark.deep
@pytest.mark.parametrize(
    ("guarantee", "power", "found"),
    [
        ("keys", False, ("doubled",)),
        ("rename", False, ("torn reads",)),
        ("fsync", True, ("lost", "trained again")),  # the former if the reader came between the row and the loss
    ],
    ids=("keys", "rename", "fsync"),
)
def test_a_broken_guarantee_is_found(bench: Bench, guarantee: str, power: bool, found: tuple[str, ...]) -> None:
    verdict = sweep(bench, power, guarantee)
    assert any(text.endswith(found) for text in verdict.broken()), verdict.broken()


def test_launches_that_ignore_the_claims_of_others_are_found(bench: Bench) -> None:
    with Trial(bench.lab, "claims", poll=0.02) as trial:
        for launch in [trial.launch(rows=ROWS, broken="claims") for _ in range(3)]:
            trial.ends(launch, 0)
        assert trial.judge().interrupted > 0


@pytest.mark.parametrize("kinds", [IN_A_QUICK_ONE, pytest.param(IN_ONE_STUDY, marks=pytest.mark.deep)], ids=len)
def test_a_study_under_kills_and_signals_ends_as_if_undisturbed(bench: Bench, kinds: tuple[str, ...]) -> None:
    verdict = mixed(bench, kinds)
    assert_kept(verdict)
    assert verdict.equal is True
    assert verdict.kills == len(kinds)


class StagedBench(SmallBench):
    """Studies of two stages."""

    def study(self) -> tuple[str, ...]:
        toy = ("--task", "tests.chaos.tasks:NotedPupil", "--resolution", "0.1", "--max-steps", "60", "--seeds", "3")
        return (*toy, "--no-speculate", "--pack-size", "1", "--N", self.dice.choice(("8,12", "8,9", "9,11")), "--workers", "2")


@pytest.fixture
def staged_bench(bench: Bench) -> Bench:
    return StagedBench(bench.lab, random.Random(1), cycles=many(3, 200), seeds=3, pause=2.0)


@pytest.mark.parametrize("kind", ["driver", pytest.param("worker", marks=pytest.mark.deep)])
def test_a_study_of_two_stages_under_kills_trains_each_parent_once(staged_bench: Bench, kind: str) -> None:
    assert_undisturbed(staged_bench, kind)


@pytest.mark.deep
def test_a_study_of_generators_under_kills_trains_each_parent_once(bench: Bench) -> None:
    generative = OfGenerators(bench.lab, random.Random(3), cycles=many(3, 200), seeds=1, pause=2.0)
    assert_undisturbed(generative, "driver")


class ProgramBench(SmallBench):
    """Studies of a program, which keeps no ledger of its starts."""

    def study(self) -> tuple[str, ...]:
        script = f"{sys.executable} -S {Path(__file__).with_name('script.py')} {{data_count}} {{N}} {{seed}}"
        sizes = self.dice.choice(("8,12", "8,9", "9,11"))
        return ("--program", script, "--counts", "1..100", "--no-speculate", "--N", sizes, "--seeds", "2", "--workers", "2")


@pytest.mark.deep
def test_a_study_of_a_program_under_kills_ends_as_if_undisturbed(bench: Bench) -> None:
    of_program = ProgramBench(bench.lab, random.Random(2), cycles=many(3, 50), seeds=2, pause=2.0)
    assert_undisturbed(of_program, "driver")


@pytest.mark.deep
def test_a_study_whose_processes_are_stopped_for_a_while_ends_as_if_undisturbed(bench: Bench) -> None:
    stopped = mixed(bench, ["stopped"])
    assert_kept(stopped)
    assert stopped.equal is True
    assert {*IN_ONE_STUDY, "stopped"} == set(KILLS)


@pytest.mark.parametrize("fault", [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in FAULTS])
def test_faults_of_the_disk_the_files_and_the_task(bench: Bench, fault: str) -> None:
    try:
        verdict = FAULTS[fault][1](dataclasses.replace(bench, seeds=1))
    except SkippedError as reason:
        pytest.skip(str(reason))
    assert_kept(verdict)
    assert verdict.equal is not False
    assert (verdict.deleted > 0) == (fault == "deleted-part")


@pytest.mark.deep
def test_a_study_that_forgets_its_rows_is_found(bench: Bench) -> None:
    argv = bench.study()
    with Trial(bench.lab, "resume") as trial:
        launch = trial.launch(*argv)
        assert trial.until(lambda: trial.rows() >= 2, launch)
        launch.send_signal(signal.SIGKILL)
        launch.wait()
        before = len(trial.trainings())
        forgetful = trial.launch(*argv, broken="resume")
        assert trial.until(lambda: len(trial.trainings()) >= before + 6, forgetful)
        forgetful.send_signal(signal.SIGKILL)
        forgetful.wait()
        verdict = trial.judge()
    assert verdict.again >= 2
    assert f"{verdict.again} trained again" in verdict.broken()


def test_the_table_fails_for_a_broken_guarantee_and_for_a_fault_that_did_not_come() -> None:
    assert Verdict("driver", kills=3, equal=True).broken() == []
    assert Verdict("driver", kills=3, lost=1, equal=False).broken() == ["1 lost", "the answer differs"]
    assert Verdict("driver").broken() == ["nothing was disturbed"]
    whole = Verdict("driver")
    whole.add(Verdict("driver", kills=2, equal=True, seconds=3.0))
    whole.add(Verdict("driver", kills=1, equal=False, doubled=1))
    assert whole == Verdict("driver", kills=3, equal=False, doubled=1, seconds=3.0)
    assert len(ALL) == len(SWEEPS) + len(KILLS) + len(FAULTS)
