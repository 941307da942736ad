"""Which file counts the processes that the system has ended for want of memory, and which of them are lost workers."""

from pathlib import Path

import pytest
from test_execution import ordered
from test_unfit import program_of

from orchestrator.engine import oom_kills as module
from orchestrator.engine.messages import Order
from orchestrator.engine.oom_kills import MEANT_SECONDS, OomKills
from orchestrator.engine.worker import PackTrainable
from trainables.control_groups import oom_counter

V2 = "low 0\nhigh 0\nmax 12\noom 2\noom_kill {}\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
VMSTAT = "nr_free_pages 5\noom_kill {}\nnuma_hit 7\n"
OLD = "oom_kill_disable 0\nunder_oom 0\n"
"""Kernels before 4.14 do not count."""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module.time, "monotonic", clock)
    return clock


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        pytest.param("0::/", {"tree/memory.events": V2}, "tree/memory.events", id="v2, a container"),
        pytest.param(
            "0::/a.slice/b",
            {"tree/a.slice/b/memory.events": V2, "tree/a.slice/memory.events": V2, "vmstat": VMSTAT},
            "tree/a.slice/b/memory.events",
            id="v2, its own before those above",
        ),
        pytest.param(
            "0::/a.slice/b",
            {"tree/a.slice/memory.events": V2, "tree/c/memory.events": V2, "vmstat": VMSTAT},
            "tree/a.slice/memory.events",
            id="v2, only one above has memory",
        ),
        pytest.param("0::/../a", {"tree/memory.events": V2}, "tree/memory.events", id="v2, outside of its namespace"),
        pytest.param(
            "4:memory:/a\n1:cpu:/b\n0::/",
            {"tree/memory/a/memory.oom_control": V1, "tree/memory/memory.oom_control": V1, "vmstat": VMSTAT},
            "tree/memory/a/memory.oom_control",
            id="v1",
        ),
        pytest.param(
            "4:memory:/docker/12",
            {"tree/memory/memory.oom_control": V1, "vmstat": VMSTAT},
            "tree/memory/memory.oom_control",
            id="v1, a container by another name",
        ),
        pytest.param(
            "1:cpu:/a\n4:memory:/b",
            {"tree/memory/a/memory.oom_control": V1, "vmstat": VMSTAT},
            "vmstat",
            id="the group of another kind",
        ),
        pytest.param("4:memory:/a", {"tree/memory/a/memory.oom_control": OLD, "vmstat": VMSTAT}, "vmstat", id="v1, old"),
        pytest.param("0::/a", {"tree/b/memory.events": V2, "vmstat": VMSTAT}, "vmstat", id="without limits"),
        pytest.param(None, {"tree/memory.events": V2}, "tree/memory.events", id="its groups are not known"),
        pytest.param("?", {"vmstat": VMSTAT}, "vmstat", id="no line of a group"),
        pytest.param("0::/", {}, None, id="absent"),
        pytest.param("0::/", {"tree/memory.events": "oom_kill ?\n", "vmstat": "\0"}, None, id="unreadable"),
        pytest.param(None, {"tree/memory.events/folder": "", "vmstat/folder": ""}, None, id="no files"),
    ],
)
def test_the_nearest_file_that_counts_what_the_system_has_ended_is_looked_at(
    groups: str | None, files: dict[str, str], found: str | None, tmp_path: Path, clock: Clock
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.format(3))
    if groups is not None:
        (tmp_path / "own").write_text(groups + "\n")
    counter = oom_counter(tmp_path / "tree", tmp_path / "own", tmp_path / "vmstat")
    assert counter == (found and tmp_path / found)
    kills = OomKills(counter)
    assert not kills.take(), "those of before"
    for name, text in files.items():
        (tmp_path / name).write_text(text.format(3 if name == found else 9)) if (tmp_path / name).is_file() else None
    assert not kills.take(), "it has not risen, or it is another group's"
    if counter is not None and found is not None:
        counter.write_text(files[found].format(5))
        assert [kills.take() for _ in range(4)] == [True, True, False, False], "each is one worker"


def test_here_there_is_a_counter() -> None:
    if not Path("/proc/vmstat").exists():
        pytest.skip("this system does not count")
    assert oom_counter() is not None


@pytest.mark.parametrize(("later", "taken"), [(MEANT_SECONDS - 1, True), (MEANT_SECONDS + 1, False)])
def test_what_was_ended_long_ago_is_no_lost_worker(later: float, taken: bool, tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "vmstat").write_text(VMSTAT.format(0))
    kills = OomKills(tmp_path / "vmstat")
    (tmp_path / "vmstat").write_text(VMSTAT.format(1))
    clock.now += 2
    kills.tick()
    clock.now += later
    kills.tick()
    assert kills.take() == taken


@pytest.mark.parametrize(
    ("told", "out_of_memory"), [("torch.OutOfMemoryError: CUDA out of memory", True), ("no disk", False)]
)
def test_a_program_that_fails_for_want_of_memory_is_one_of_too_many_at_a_time(
    told: str, out_of_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.sh"
    file.write_text(f"echo '{told}' >&2; exit 1")
    monkeypatch.chdir(tmp_path)
    trainable = PackTrainable({"order": Order(runs=[ordered(program_of(file))], stall_seconds=60.0), "cpus": 1, "gpus": 0})
    report = trainable.step()["report"]
    trainable.stop()
    assert (report.error, report.out_of_memory) == (f"the program ended with exit code 1\nstderr:\n{told}", out_of_memory)


def test_a_counter_that_is_away_for_a_while_goes_on_where_it_was(tmp_path: Path, clock: Clock) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text(VMSTAT.format(4))
    kills = OomKills(counter)
    counter.unlink()
    assert not kills.take()
    counter.write_text(VMSTAT.format(4))
    assert not kills.take()
    counter.write_text(VMSTAT.format(5))
    assert kills.take()
    assert not OomKills().take(), "nothing is known"
