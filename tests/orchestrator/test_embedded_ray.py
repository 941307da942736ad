"""The Ray that a launch starts for itself: who can reach it, what happens when it dies, and what it leaves behind."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from tests.conftest import Command, read_rows, wait_for_rows

pytestmark = pytest.mark.slow(40)
Start = Callable[..., Command]
OPTIONS = ("--task", "tests.toy:Toy", "--workers", "2", "--max-steps", "3", "--resolution", "0.01", "--no-speculate")
NOBODY = 65534


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of the launches: open to all users, as usual, with a short path, and empty."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def left(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


def ray_processes(command: Command) -> list[psutil.Process]:
    return psutil.Process(command.process.pid).children(recursive=True)


def survivors(family: list[psutil.Process]) -> list[psutil.Process]:
    """Processes of an ended Ray that are still there. Two of them end a minute later: they try to tell the driver."""

    def is_one_of_two(process: psutil.Process) -> bool:
        try:
            return process.name().endswith("Agent")
        except psutil.NoSuchProcess:
            return False

    _, alive = psutil.wait_procs([process for process in family if not is_one_of_two(process)], timeout=15)
    return alive


def check_reach(command: Command, place: Path) -> None:
    """Nobody else can reach the Ray of this launch."""
    launch = psutil.Process(command.process.pid)
    listening = [
        (process.name(), socket.laddr.ip)
        for process in (launch, *ray_processes(command))
        for socket in process.net_connections("tcp")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 3
    assert {ip.removeprefix("::ffff:") for _, ip in listening} == {"127.0.0.1"}, listening
    workers = [process for process in ray_processes(command) if process.name().startswith("ray::")]
    assert {process.nice() for process in workers} == {launch.nice()}, "workers step back behind anything else that is busy"
    (socket,) = place.rglob("sockets/raylet")
    private = [folder for folder in socket.parents if folder.is_relative_to(place) and not folder.stat().st_mode & 0o77]
    assert private, "somebody else can enter every folder"
    if os.getuid() == 0:
        moved = subprocess.run(["mv", socket, f"{socket}-moved"], user=NOBODY, group=NOBODY, capture_output=True)
        assert moved.returncode != 0


@pytest.mark.deep
def test_what_a_killed_launch_leaves_goes_with_the_next(start: Start, tmp_path: Path, place: Path) -> None:
    killed = start(*OPTIONS, "--N", "8", "--seeds", "2", "--option", "pause=0.5")
    assert wait_for_rows(killed, tmp_path, 1), killed.stdout + killed.stderr
    killed.process.kill()
    killed.wait()
    assert left(place)
    again = start(*OPTIONS, "--N", "8", "--seeds", "2", "--option", "pause=0.5")
    assert again.wait() == 0, again.stdout + again.stderr
    assert left(place) == []


@pytest.mark.parametrize("part", ["raylet", pytest.param("gcs_server", marks=pytest.mark.deep)])
def test_an_embedded_ray_is_out_of_reach_and_its_death_ends_the_launch_and_the_last_line_continues(
    start: Start, tmp_path: Path, place: Path, part: str
) -> None:
    options = (*OPTIONS, "--N", "8", "--seeds", "3", "--option", "pause=1")
    command = start(*options)
    assert wait_for_rows(command, tmp_path, 1), command.stdout + command.stderr
    check_reach(command, place)
    family = ray_processes(command)
    next(process for process in family if process.name() == part).kill()
    killed_at = time.monotonic()
    assert command.wait() == 1, command.stdout + command.stderr
    assert time.monotonic() - killed_at < 30
    *_, told, last = command.stdout.strip().splitlines()
    assert told.startswith(f"stopped: {part}, a part of the embedded Ray, has died")
    assert last == "all finished runs are kept; to continue: python -m orchestrator.scaling " + " ".join(options)
    assert "Traceback" not in command.stdout + command.stderr
    assert survivors(family) == []
    assert left(place) == []
    again = start(*options)
    assert again.wait() == 0, again.stdout + again.stderr
    assert left(place) == []


@pytest.mark.deep
@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_ctrl_c_is_obeyed_also_if_ray_hangs(start: Start, tmp_path: Path, place: Path, part: str) -> None:
    options = (*OPTIONS, "--N", "8", "--option", "pause=1")
    command = start(*options)
    assert wait_for_rows(command, tmp_path, 1), command.stdout + command.stderr
    next(process for process in ray_processes(command) if process.name() == part).send_signal(signal.SIGSTOP)
    time.sleep(1)  # one that hangs is not taken for dead
    os.kill(command.process.pid, signal.SIGINT)
    sent_at = time.monotonic()
    assert command.wait() == 130, command.stdout + command.stderr
    assert time.monotonic() - sent_at < 30
    *_, told, last = command.stdout.strip().splitlines()
    assert told == "interrupted; all finished runs are kept"
    assert last == "to continue: python -m orchestrator.scaling " + " ".join(options)
    assert left(place) == []


@pytest.mark.deep
@pytest.mark.slow(90)
def test_a_frozen_worker_is_ended_and_its_run_trained_again(start: Start, tmp_path: Path, place: Path) -> None:
    """It is frozen in its first run, before anything is heard of it."""
    ledger, before = tmp_path / "ledger", psutil.Process().children()
    trouble = ("--option", "trouble=freeze", "--option", "trouble_N=8", "--option", f"ledger={ledger}")
    command = start(*OPTIONS, "--N", "8", "--seeds", "1", "--stall-minutes", "0.2", *trouble)
    assert command.wait() == 0, command.stdout + command.stderr
    assert ledger.read_text().count("frozen") == 1
    assert re.search(r"could not be trained, trying once more:\nit made no progress for 4\d s", command.stdout)
    assert survivors([child for child in psutil.Process().children() if child not in before]) == []
    assert left(place) == []


def test_a_worker_that_dies_beside_a_process_that_it_forked_is_replaced_and_the_process_ended(
    start: Start, tmp_path: Path, place: Path
) -> None:
    """The process has copies of all that its worker had open, such as the connection by which Ray knows that it lives."""
    ledger, before = tmp_path / "ledger", psutil.Process().children()
    trouble = ("--option", "trouble=leave", "--option", "trouble_N=8", "--option", f"ledger={ledger}")
    command = start(*OPTIONS, "--N", "8", "--seeds", "1", "--workers", "1", *trouble)
    assert command.wait(timeout=120) == 0, command.stdout + command.stderr
    (left_one,) = re.findall(r"left (\d+)", ledger.read_text())
    assert "lost its worker (once), trying again in 1 s" in command.stdout
    assert not psutil.pid_exists(int(left_one))
    assert survivors([child for child in psutil.Process().children() if child not in before]) == []
    assert left(place) == []


@pytest.mark.deep
def test_workers_that_are_terminated_are_replaced_and_no_run_fails(start: Start, tmp_path: Path, place: Path) -> None:
    ledger = tmp_path / "ledger"
    slowly = ("--option", "pause=4", "--option", f"ledger={ledger}")
    command = start(*OPTIONS, "--N", "4", "--seeds", "1", "--workers", "1", *slowly)
    for begun in (1, 2):
        while not ledger.exists() or len(ledger.read_text().splitlines()) < begun:
            assert command.process.poll() is None, command.stdout + command.stderr
            time.sleep(0.05)
        worker = next(process for process in ray_processes(command) if process.name().startswith("ray::Pack"))
        worker.terminate()
    assert command.wait(timeout=120) == 0, command.stdout + command.stderr
    assert "lost its worker (once), trying again in 1 s" in command.stdout
    assert "lost its worker (2 times), trying again in 2 s" in command.stdout
    assert "could not be trained" not in command.stdout
    assert {*read_rows(tmp_path)["status"]} <= {"passed", "missed"}
    assert left(place) == []


@pytest.mark.deep
@pytest.mark.slow(100)
def test_a_worker_that_is_killed_as_it_starts_is_replaced_before_the_launch_gives_up(start: Start, place: Path) -> None:
    """Ray misses it after a minute."""

    def starting(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return any(word.endswith("default_worker.py") for word in process.cmdline())
        return False

    command = start(*OPTIONS, "--N", "8", "--seeds", "1", "--workers", "1", "--stall-minutes", "0.5")
    while not (found := [process for process in ray_processes(command) if starting(process)]):
        assert command.process.poll() is None
        time.sleep(0.05)
    found[0].kill()
    killed_at = time.monotonic()
    assert command.wait(timeout=200) == 0, command.stdout + command.stderr
    assert time.monotonic() - killed_at > 50
    assert left(place) == []


def test_a_launch_goes_on_after_ray_has_killed_a_worker_to_save_memory(start: Start, tmp_path: Path, place: Path) -> None:
    ledger = tmp_path / "ledger"
    trouble = ("--option", "trouble=die", "--option", "trouble_N=8", "--option", f"ledger={ledger}")
    command = start(*OPTIONS, "--N", "8", "--seeds", "1", *trouble, study="tests.orchestrator.short_of_memory")
    assert command.wait() == 0, command.stdout + command.stderr
    assert ledger.read_text().count("died") == 1
    assert "ran out of memory: now 1 in parallel" in command.stdout
    assert "Traceback" not in command.stdout + command.stderr
    assert left(place) == []


@pytest.mark.deep
@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_an_answer_that_is_told_does_not_wait_for_a_ray_that_hangs(
    start: Start, tmp_path: Path, place: Path, part: str
) -> None:
    options = (*OPTIONS, "--N", "8", "--seeds", "1", "--option", "pause=1")
    command = start(*options)
    assert wait_for_rows(command, tmp_path, 1), command.stdout + command.stderr
    found = next(process for process in ray_processes(command) if process.name() == part)
    while "trained in" not in command.stdout:
        assert command.process.poll() is None
        time.sleep(0.01)
    found.send_signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    assert command.wait() == 0, command.stdout + command.stderr
    assert time.monotonic() - stopped_at < 30
    assert command.stdout.splitlines()[-1].startswith("wrote ")
    found.kill()


@pytest.mark.deep
def test_sigterm_while_ray_starts_is_told_and_leaves_nothing(start: Start, place: Path) -> None:
    command = start(*OPTIONS, "--N", "8")
    while not any(process.name() == "gcs_server" for process in ray_processes(command)):
        assert command.process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    family = ray_processes(command)
    os.kill(command.process.pid, signal.SIGTERM)
    assert command.wait() == 143, command.stdout + command.stderr
    *_, told, last = command.stdout.strip().splitlines()
    assert told == "interrupted; all finished runs are kept"
    assert last == "to continue: python -m orchestrator.scaling " + " ".join((*OPTIONS, "--N", "8"))
    assert survivors(family) == []
    assert left(place) == []


@pytest.mark.deep
def test_three_signals_at_once_leave_at_once_and_nothing_behind(start: Start, tmp_path: Path, place: Path) -> None:
    options = (*OPTIONS, "--N", "8", "--option", "pause=1")
    command = start(*options)
    assert wait_for_rows(command, tmp_path, 1), command.stdout + command.stderr
    family = ray_processes(command)
    for _ in range(3):
        os.kill(command.process.pid, signal.SIGINT)
        time.sleep(0.2)
    sent_at = time.monotonic()
    assert command.wait() == 130, command.stdout + command.stderr
    assert time.monotonic() - sent_at < 9  # not those that one signal gives it
    *_, told, last = command.stdout.strip().splitlines()
    assert told == "interrupted; all finished runs are kept"
    assert last == "to continue: python -m orchestrator.scaling " + " ".join(options)
    assert survivors(family) == []
    assert left(place) == []
