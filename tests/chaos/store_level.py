"""Kills at every step of the store's write path, hundreds a minute: processes that do to a store what a launch does, untrained.

The steps are not listed here: an undisturbed process tells which there are. Each is the last of some process.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from tests.chaos.kills import Bench
from tests.chaos.lab import Lab, Trial, Verdict
from tests.chaos.rows import comparable, read

ROWS = 40


def found_steps(lab: Lab) -> tuple[Path, Counter[str]]:
    """A store written undisturbed, and how often each step was taken."""
    with Trial(lab, "none") as trial:
        trace = trial.folder / "steps"
        launch = trial.launch(rows=ROWS, small=True, trace=str(trace))
        assert launch.wait() == 0, launch.text
        return trial.store, Counter(trace.read_text().splitlines())


def sweep(bench: Bench, power: bool, broken: str = "", once: bool = False) -> Verdict:
    """Kill at every step, the first time it is taken and, unless `once`, a random time; each process goes on with the rest."""
    expected, steps = found_steps(bench.lab)
    targets = [(step, 1) for step in steps]
    if not once:
        targets += [(step, bench.dice.randint(2, min(count, 4))) for step, count in steps.items() if count > 1]
    bench.dice.shuffle(targets)
    whole = Verdict("power" if power else "store")
    while targets:
        with Trial(bench.lab, whole.fault, power=power, poll=0.02) as trial:
            job = {"rows": ROWS, "small": True, "power": power, "broken": broken}
            fresh = True
            for step, nth in list(targets):
                launch = trial.launch(**job, kill=(step, nth))
                if launch.wait() == -signal.SIGKILL:
                    targets.remove((step, nth))
                    trial.verdict.kills += 1
                    trial.verdict.at.append(step)
                    trial.reader.look()
                    fresh = False
                    continue
                trial.check(launch.returncode == 0, f"exit code {launch.returncode} at {step}: {launch.text[-500:]}")
                if fresh:  # not even a process that does everything comes there
                    targets.remove((step, nth))
                break
            trial.ends(trial.launch(**job), 0)
            verdict = trial.judge()
            verdict.equal = comparable(read(trial.store)) == comparable(read(expected))
        bench.told(verdict)
        whole.add(verdict)
        if verdict.broken():
            break
    whole.at = sorted(set(whole.at))
    if not whole.broken():
        whole.wrong += [f"never killed at: {step}" for step in sorted(steps.keys() - set(whole.at))]
    return whole
