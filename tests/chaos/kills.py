"""Faults that end or stop processes in the middle of a study; the same command is run again until the study is answered."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.lab import BrokenError, Lab, Launch, Trial, Verdict

REAL = ("--task", "tests.chaos.tasks:Bumps", "--decoder", "mlp", "--no-speculate", "--pack-size", "1")
SIZES = ("8,12", "8,11", "8,10", "9,12", "9,11", "8,13", "9,13", "10,12")
STEPS = (
    "append lock taken", "append lock freed", "claim taken", "claim freed", "part lock taken", "part lock freed",
    *(f"{kind} {step}" for kind in ("part", "index", "checkpoint")
      for step in ("opened", "half written", "written", "synced", "in place")),
    "checkpoint removed", "folder runs synced", "folder . synced", "folder checkpoints synced",
)  # fmt: skip
"""The steps of the write path that come again and again; `python -m benchmarks.chaos --faults store` finds and takes all."""

GENERATORS = (
    ("objectives", "--families", "dit,maskgit", "--tokenizers", "vq"),
    ("objectives", "--families", "givt,mar", "--tokenizers", "vae"),
    ("conditioning", "--conditionings", "full,both"),
    ("jepa", "--families", "maskgit"),
    ("signal", "--factors", "colour"),
)
"""Studies that need a probe and a tokenizer."""


@dataclass
class Bench:
    """What a fault works with. `cycles`: disturbances to do; `seeds`: of a study; `pause`: seconds of a stopped process."""

    lab: Lab
    dice: random.Random
    cycles: int
    seeds: int
    pause: float
    told: Callable[[Verdict], None] = lambda verdict: None
    """Gets the verdict on every study."""
    _references: dict[tuple[str, ...], tuple[Path, float]] = field(default_factory=dict)
    startup: float = 5.0
    """Seconds until the first row, as last seen."""
    turn: int = 0
    """Of the steps of the write path."""

    def study(self) -> tuple[str, ...]:
        """A small real study."""
        sizes, workers = self.dice.choice(SIZES), self.dice.choice("12")
        return (*REAL, "--N", sizes, "--workers", workers, "--max-steps", "200", "--seeds", str(self.seeds))

    def reference(self, argv: tuple[str, ...]) -> tuple[Path, float]:
        """The store of this study undisturbed, and the seconds it took."""
        if argv not in self._references:
            with Trial(self.lab, "none") as trial:
                launch = trial.launch(*argv)
                trial.until(lambda: trial.rows() > 0, launch)
                self.startup = time.monotonic() - launch.began
                if launch.wait() != 0:
                    raise RuntimeError(f"the undisturbed study failed:\n{launch.text}")
                verdict = trial.judge()
                verdict.kills = 1
                assert not verdict.broken(), verdict.broken()
            self._references[argv] = trial.store, verdict.seconds
        return self._references[argv]


@dataclass
class OfGenerators(Bench):
    """Studies of generators with the probe and the tokenizer that they need: three stages of the real tasks."""

    def study(self) -> tuple[str, ...]:
        asked = self.dice.choice(GENERATORS)
        return (*asked, "--tier", "smoke", "--seeds", "1", "--steps", "20", "--no-gates", "--workers", "2")


Disturb = Callable[[Bench, Trial, tuple[str, ...], int], Launch]
"""Starts a launch, disturbs it at most so many times, counts that in the verdict, and returns it when it has ended."""


def campaign(bench: Bench, fault: str, disturb: Disturb) -> Verdict:
    """Disturb one study after another until all cycles are done; each is run to its end and judged."""
    whole = Verdict(fault)
    while whole.kills < bench.cycles:
        argv = bench.study()
        reference, undisturbed = bench.reference(argv)
        with Trial(bench.lab, fault) as trial:
            try:
                while (left := bench.cycles - whole.kills - trial.verdict.kills) > 0 and not trial.verdict.wrong:
                    if disturb(bench, trial, argv, left).returncode == 0:
                        break
                else:
                    launch = trial.launch(*argv)
                    trial.check(launch.wait() == 0, f"the last launch ended with {launch.returncode}: {launch.text[-500:]}")
            except BrokenError as error:
                trial.check(False, str(error))
            verdict = trial.judge(reference, undisturbed)
        bench.told(verdict)
        whole.add(verdict)
        if verdict.kills == 0:
            break
    return whole


def _moment(bench: Bench, trial: Trial, launch: Launch, least: int) -> bool:
    """Wait for a random moment of the launch; False if it ended before."""
    rows, before = bench.dice.randint(least, 2), trial.rows()
    if rows == 0:
        end = time.monotonic() + bench.dice.uniform(0, bench.startup)

        def has_come() -> bool:  # with the first row at the latest: the machine may be much quicker by now
            return not launch.alive() or time.monotonic() > end or trial.rows() > before

        return not trial.until(has_come, launch) or launch.alive()
    if not trial.until(lambda: trial.rows() >= before + rows, launch):
        return False
    time.sleep(bench.dice.uniform(0, 0.3))
    return launch.alive()


def _ended_by(trial: Trial, launch: Launch, code: int, *more: int) -> None:
    """Count the kill, unless the launch was at its end already."""
    if launch.wait() in (code, *more):
        trial.verdict.kills += 1
    else:
        trial.check(launch.returncode == 0, f"exit code {launch.returncode} where {code} is due: {launch.text[-500:]}")


def driver(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
    launch = trial.launch(*argv, small=bench.dice.random() < 0.5)
    if _moment(bench, trial, launch, 0):
        launch.send_signal(signal.SIGKILL)
    _ended_by(trial, launch, -signal.SIGKILL)
    return launch


def clock(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
    """Each launch has another clock: up to two days slow or fast."""
    launch = trial.launch(*argv, clock=bench.dice.uniform(-2, 2) * 86400)
    if _moment(bench, trial, launch, 1):
        launch.send_signal(signal.SIGKILL)
    _ended_by(trial, launch, -signal.SIGKILL)
    return launch


def steps(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
    step = STEPS[bench.turn % len(STEPS)] if bench.cycles >= len(STEPS) else bench.dice.choice(STEPS)
    nth = 1 if step.startswith(("index", "part lock")) else bench.dice.randint(1, 2)
    launch = trial.launch(*argv, small=True, kill=(step, nth))
    _ended_by(trial, launch, -signal.SIGKILL)
    if launch.returncode != 0:
        trial.verdict.at.append(step)
        bench.turn += 1
    return launch


def worker(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
    """Each kill is of the process that began a training last; that may have ended by then, and then nobody need notice.

    Where the ledger holds claims, which the driver makes, it is of any process that trains.
    """
    began = seen = bench.lab.ledger.stat().st_size
    launch = trial.launch(*argv, small=bench.dice.random() < 0.5, here=False)
    killed: list[str] = []

    def has_begun_another() -> bool:
        return bool(bench.lab.started(seen))

    while len(killed) < left and trial.until(has_begun_another, launch):
        key, pid, _ = bench.lab.started(seen)[-1]
        seen = bench.lab.ledger.stat().st_size
        claimed = pid == launch.pid
        if claimed and not trial.until(lambda: bool(bench.lab.workers()), launch):
            break
        time.sleep(bench.dice.uniform(0, 2.0 if claimed else 0.1))
        workers = bench.lab.workers()
        if claimed and workers:
            pid = bench.dice.choice(workers)
        if pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(key)
    trial.verdict.kills += len(killed)
    trial.check(launch.wait() == 0, f"exit code {launch.returncode}: {launch.text[-500:]}")
    trained = [key for key, _, _ in bench.lab.started(began)]
    begun_again = [key for key in killed if trained.count(key) > 1]
    trial.check(not begun_again or "lost its worker" in launch.text, "no notice of a lost worker")
    return launch


def _signal(number: int, code: int, times: int = 1) -> Disturb:
    def disturb(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
        launch = trial.launch(*argv)
        if _moment(bench, trial, launch, 1):
            for _ in range(times):
                launch.send_signal(number)
                time.sleep(0.1)
        _ended_by(trial, launch, code)
        if launch.returncode == code:
            trial.check(launch.last_line.startswith("to continue: python -m orchestrator."), f"ends: {launch.last_line}")
            trial.check("Traceback" not in launch.text, f"a traceback: {launch.text[-500:]}")
        return launch

    return disturb


def stopped(bench: Bench, trial: Trial, argv: tuple[str, ...], left: int) -> Launch:
    """A worker and the driver in turns."""
    launch = trial.launch(*argv, here=False)
    done, rows = 0, trial.rows()

    def is_further() -> bool:
        return trial.rows() > rows

    while done < left and trial.until(is_further, launch):
        rows = trial.rows()
        workers = bench.lab.workers()
        pid = launch.pid if done % 2 else bench.dice.choice(workers) if workers else 0
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(bench.pause)
                os.kill(pid, signal.SIGCONT)
                done += 1
    trial.verdict.kills += done
    trial.check(launch.wait() == 0, f"exit code {launch.returncode}: {launch.text[-500:]}")
    return launch


KILLS: dict[str, tuple[str, Disturb]] = {
    "driver": ("kill -9 of the driver at random moments, while Ray starts included", driver),
    "steps": ("kill -9 of the driver at a named step of the store's write path", steps),
    "worker": ("kill -9 of a process of Ray that trains", worker),
    "clock": ("kill -9 of the driver, and every launch has its clock set back or forth by up to two days", clock),
    "sigint": ("Ctrl-C", _signal(signal.SIGINT, 130)),
    "sigterm": ("SIGTERM", _signal(signal.SIGTERM, 143)),
    "triple": ("three times Ctrl-C", _signal(signal.SIGINT, 130, 3)),
    "stopped": ("SIGSTOP of a worker or the driver for 30 seconds, then SIGCONT", stopped),
}


def mixed(bench: Bench, names: Sequence[str]) -> Verdict:
    """One study under one disturbance of each of these kinds, the last of which must be one that the launch survives."""
    argv = bench.study()
    reference, undisturbed = bench.reference(argv)
    with Trial(bench.lab, ", ".join(names)) as trial:
        for count, name in enumerate(names, 1):
            KILLS[name][1](bench, trial, argv, 1)
            trial.check(trial.verdict.kills >= count, f"{name}: nothing was disturbed")
        trial.ends(trial.launch(*argv), 0)
        return trial.judge(reference, undisturbed)
