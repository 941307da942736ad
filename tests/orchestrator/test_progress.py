"""What is told while a study runs where there is no terminal: lines, one for each run, and what goes on before the first."""

import re
import threading
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.command import progress as of_progress
from orchestrator.command.progress import Progress, Sparing, estimate_text, is_live, rough_seconds, say, say_aside
from orchestrator.engine.estimate import Work
from orchestrator.engine.execution import Outcome
from orchestrator.engine.messages import RunReport
from tests.toy import Toy
from trainables.spec import RunSpec

SPEC = RunSpec(
    task="tests.toy:Toy", dataset="toys", N=8, data_count=0, seed=0, decoder="linear", options=tuple(Toy.defaults.items()),
    max_steps=10,
)  # fmt: skip


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=200)


def make(console: Console) -> Progress:
    return Progress(
        console=console,
        table=lambda running: "",
        seconds_left=lambda: None,
        line=lambda row: f"run {row['key']}",
        after_run=lambda: None,
        outcome=Outcome(),
    )


def lines(console: Console) -> list[str]:
    """What was printed, but for the time spent."""
    assert isinstance(console.file, StringIO)
    return [re.sub(r", \d+ s spent$", "", line) for line in console.file.getvalue().splitlines()]


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    assert holds()


def row(key: str, status: str = "passed") -> dict[str, Any]:
    return {"key": key, "status": status}


def end(progress: Progress, key: str, status: str = "passed") -> None:
    """A run of this launch ends."""
    progress.outcome.failed += status == "failed"
    progress.outcome.trained += status != "failed"
    progress.finished(row(key, status))


def test_a_worker_that_goes_on_with_its_next_run_is_counted_as_running(console: Console) -> None:
    with make(console) as progress:
        for key in "ab":
            progress.started(key, SPEC)
        end(progress, "a")
        progress.started("c", SPEC)
        wait_for(lambda: len(lines(console)) == 1)
        assert lines(console) == ["run a | 1 done, 2 running"]
        end(progress, "b")
        end(progress, "c")
    assert lines(console)[1:] == ["run b | 2 done, 0 running", "run c | 3 done, 0 running"]


def test_failed_runs_are_counted_apart_and_notices_come_in_their_turn(console: Console) -> None:
    with make(console) as progress:
        progress.started("a", SPEC)
        end(progress, "a", "failed")
        progress.notice("what happened then")
        end(progress, "b")
    assert lines(console) == [
        "run a | 0 done, 1 failed, 0 running",
        "what happened then",
        "run b | 1 done, 1 failed, 0 running",
    ]


def test_runs_of_other_launches_are_told_and_not_counted(console: Console) -> None:
    with make(console) as progress:
        progress.started("a", SPEC)
        progress.finished(row("of another"))
        end(progress, "a")
        progress.finished(row("of another, too", "failed"))
    told = ["run of another | 0 done, 0 running", "run a | 1 done, 0 running", "run of another, too | 1 done, 0 running"]
    assert lines(console) == told


def test_the_time_left_is_guessed_no_more_often_than_may_be_spent_on_it(console: Console) -> None:
    now, guesses = 0.0, list[float]()

    def seconds_left() -> float:
        nonlocal now
        now += 0.05
        guesses.append(now)
        return now

    progress = make(console)
    progress.seconds_left, progress._estimate.clock = seconds_left, lambda: now
    with progress:
        for number in range(100):
            end(progress, str(number))
            now += 0.01
    assert len(guesses) == 1 + 1
    assert len(lines(console)) == 100


def test_a_run_that_goes_on_shows_what_its_task_said_last(console: Console) -> None:
    with make(console) as progress:
        progress.started("a", SPEC)
        assert progress.running["a"].summary == {}
        progress.progressed("a", SPEC, RunReport(step=4, curves={"curve_summary": {"seen": [0.2, 0.4], "unseen": []}}))
        assert progress.running["a"].summary == {"seen": 0.4}
        progress.progressed("a", SPEC, RunReport(step=6, curves={"curve_summary": None}))
        assert (progress.running["a"].step, progress.running["a"].summary) == (6, {})


def test_while_no_run_ends_it_is_said_what_goes_on(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_progress, "LAG_SECONDS", 0.02)
    monkeypatch.setattr(of_progress, "QUIET_SECONDS", 0.1)

    def wait_for_line(text: str) -> None:
        wait_for(lambda: any(text in line for line in lines(console)))

    with make(console) as progress:
        wait_for_line("s: Ray is starting")
        progress.connected(2)
        wait_for_line("Ray is running with 2 in parallel; the first workers are starting")
        first = "the first workers are starting, or another launch has the runs that are left"
        wait_for_line(f"s: no run is in training here yet: {first}")
        assert not any("another try" in line for line in lines(console)), "nothing was tried"
        progress.started("a", SPEC)
        progress.started("b", SPEC)
        wait_for_line("s: 2 running, their workers are starting or wait for a machine")
        progress.progressed("b", SPEC, RunReport(step=4, accuracy=0.5))
        wait_for_line("s: 2 running, one is at step 4 of 10")
        end(progress, "a")
        wait_for_line("run a | 1 done, 1 running")
        progress.progressed("b", SPEC, RunReport(step=8, accuracy=0.5))
        wait_for_line("s: 1 running, one is at step 8 of 10")
        progress.dropped("b")
        wait_for_line("s: no run is in training here: the runs that are left wait for another try, or another launch has them")


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.slow(3)
def test_after_a_minute_without_a_run_here_or_elsewhere_it_is_said_what_may_be_wrong(
    live: bool, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_progress, "LAG_SECONDS", 0.02)
    monkeypatch.setattr(of_progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(of_progress, "MOST_QUIET_SECONDS", 0.0)
    if live:
        console = Console(file=Screen(), width=300, force_terminal=True, color_system=None)
    told = (
        "no run is in training here, and for more than a minute none has ended elsewhere: another launch seems to have the "
        "runs that are left; perhaps these take long, or that launch was stopped with Ctrl-Z (continue it with fg, or end it)"
    )

    def is_said(after: Callable[[], object], idle: float) -> bool:
        after()
        progress._idle = idle
        seen, now = len(console.file.getvalue()), time.monotonic()  # type: ignore[attr-defined]
        wait_for(lambda: progress._looked_at > now and len(console.file.getvalue()) > seen)  # type: ignore[attr-defined]
        seen = len(console.file.getvalue())  # type: ignore[attr-defined]
        wait_for(lambda: len(console.file.getvalue()) > seen)  # type: ignore[attr-defined]
        return told in console.file.getvalue()[seen:]  # type: ignore[attr-defined]

    with make(console) as progress:
        assert not is_said(lambda: None, 100.0), "Ray is starting"
        assert not is_said(lambda: progress.connected(1), 50.0)
        progress._looked_at -= 3600.0
        assert not is_said(lambda: None, progress._idle), "the launch itself was stopped"
        assert is_said(lambda: None, 70.0)
        progress.finished(row("of another"))
        assert progress._idle < 10
        assert is_said(lambda: None, 70.0)
        assert not is_said(lambda: progress.started("a", SPEC), 100.0)
        progress.dropped("a")
        assert progress._idle < 10
        assert is_said(lambda: None, 70.0)


def test_the_cursor_is_there_while_the_table_is_shown() -> None:
    """Else who stops the launch with Ctrl-Z would have none in the shell."""
    console = Console(file=Screen(), width=200, force_terminal=True, color_system=None)
    with make(console):
        time.sleep(0.6)
        shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_while_the_last_run_is_taken_in_nothing_else_is_said(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.command.progress.QUIET_SECONDS", 0.4)
    progress = make(console)
    progress.after_run = lambda: time.sleep(0.3)
    with progress:
        progress.connected(1)
        progress.started("a", SPEC)
        wait_for(lambda: len(lines(console)) == 2)
        end(progress, "a")
        wait_for(lambda: "run a | 1 done, 0 running" in lines(console))
    assert not any("no run is in training here" in line for line in lines(console)[:3])


def test_a_long_launch_is_quieter(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_progress, "LAG_SECONDS", 0.02)
    monkeypatch.setattr(of_progress, "QUIET_SECONDS", 0.05)
    progress = make(console)
    progress.began -= 3600.0
    with progress:
        end(progress, "a")
        wait_for(lambda: len(lines(console)) == 1)
        told = lines(console)
        time.sleep(0.3)
        assert lines(console) == told
        monkeypatch.setattr(of_progress, "MOST_QUIET_SECONDS", 0.1)
        wait_for(lambda: "after 1 h 00 min: Ray is starting" in lines(console))


def test_a_reader_that_has_gone_ends_the_launch() -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise OSError("nobody reads")

    with make(Console(file=Gone())) as progress:
        progress.finished(row("a"))
        wait_for(lambda: progress._unheard is not None)
        with pytest.raises(OSError, match="nobody reads"):
            progress.finished(row("b"))
        progress._held.clear()


@pytest.mark.parametrize(("cost", "calls"), [(0.0, 1000), (0.04, 1000), (0.5, 100), (5.0, 10), (500.0, 1)])
def test_what_is_called_sparingly_takes_at_most_its_share(cost: float, calls: int) -> None:
    now, begun = 0.0, list[float]()

    def act() -> None:
        nonlocal now
        begun.append(now)
        now += cost

    sparing = Sparing(act, share=0.05, clock=lambda: now)
    for asked in range(1000):
        now = max(now, asked)
        sparing()
    assert begun[0] == 0.0
    assert len(begun) == calls


def test_what_a_terminal_would_take_for_a_command_is_escaped() -> None:
    console = Console(file=StringIO(), width=200)
    say(console, "it failed:\nError: \x1b[2J\x07 gone\n\tat line 1 of ä.py")
    assert console.file.getvalue() == "it failed:\nError: \\x1b[2J\\x07 gone\n        at line 1 of ä.py\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "0 s"), (4, "4 s"), (12, "10 s"), (57, "55 s"), (58, "1 min"), (95, "2 min"), (727, "12 min"), (3569, "59 min"),
        (3571, "1 h 00 min"), (7499, "2 h 05 min"), (36_100, "10 h 00 min"),
    ],
)  # fmt: skip
def test_a_guessed_time_is_told_roughly(seconds: float, told: str) -> None:
    assert rough_seconds(seconds) == told


@pytest.mark.parametrize(("workers", "told"), [(1, "23 min"), (2, "15 min"), (64, "8 min")])
def test_the_time_of_a_plan_is_that_of_whole_runs_and_its_cost_that_of_all(workers: int, told: str) -> None:
    work = Work([(460.0, 3)])
    assert estimate_text(work, workers, None) == f"about {told} with {workers} in parallel"
    assert estimate_text(work, workers, 2.0) == f"about {told} with {workers} in parallel, cost 0.77 at 2 per worker-hour"
    assert estimate_text(None, workers, 2.0).startswith(f"with {workers} in parallel; how long it takes is known when")


def test_who_holds_what_the_table_waits_for_can_tell_something_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_progress, "ASIDE_SECONDS", 0.2)
    console = Console(file=Screen(), width=200, force_terminal=True, color_system=None)
    shows, held = threading.Event(), threading.Lock()

    def table(_: object) -> str:
        shows.set()
        with held:
            return ""

    progress = make(console)
    progress.table = table
    progress.__enter__()
    with held:
        shows.clear()
        assert shows.wait(20)
        began = time.monotonic()
        say_aside(console, "the store is not available")
        assert time.monotonic() - began < 10
    wait_for(lambda: "the store is not available" in console.file.getvalue())  # type: ignore[attr-defined]
    progress.__exit__()


@pytest.mark.parametrize(("file", "live"), [(Screen(), True), (StringIO(), False)])
def test_a_file_gets_lines_and_no_live_table_also_where_colours_are_forced(file: StringIO, live: bool) -> None:
    console = Console(file=file, width=200, _environ={"FORCE_COLOR": "1", "TERM": "xterm"})
    assert is_live(console) is live
    with make(console) as progress:
        progress.connected(2)
    assert ("\x1b[" in file.getvalue()) is live
    assert ("Ray is running with 2 in parallel" in file.getvalue()) is not live


def test_what_is_said_aside_is_said_before_it_goes_on(console: Console) -> None:
    for number in range(20):
        say_aside(console, str(number))
    assert lines(console) == [str(number) for number in range(20)]
