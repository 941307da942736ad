"""The order in which a launch trains, answers and ends Ray."""

import errno
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import ray
from places import Server, names
from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.air.execution._internal.tracked_actor_task import TrackedActorTask
from ray.exceptions import ObjectLostError, OutOfDiskError, OutOfMemoryError, RayError
from ray.tune import TuneError
from test_execution import Clock, Watcher, clock, make, store  # noqa: F401 -- two are fixtures

from orchestrator.engine import driver
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Execution, Outcome
from orchestrator.engine.oom_kills import OomKills
from orchestrator.errors import LostRayError
from orchestrator.store import ResultStore, StoreError
from tests.conftest import ROOT

Ended = dict[str, Any]
"""How training ends."""


def order(
    monkeypatch: pytest.MonkeyPatch, ended: Ended, answer: Callable[[], Exception] | None = None
) -> tuple[list[str], str]:
    """What happened, one after another, and the error that came out of it."""
    happened: list[str] = []

    @contextmanager
    def connected(cluster: Cluster) -> Iterator[Path]:
        try:
            yield Path()
        finally:
            happened.append("Ray ended")

    def fit(execution: Any, cluster: Cluster, folder: Path) -> None:
        happened.append("trained")
        execution.fatal, execution.outcome.stopped = ended.get("fatal"), ended.get("stopped")
        ended["hopeless"], ended["kills"] = execution.placement.hopeless_after, execution.kills

    monkeypatch.setattr(Cluster, "connected", connected)
    monkeypatch.setattr(Cluster, "parts", lambda cluster: [])
    monkeypatch.setattr(driver, "_fit", fit)
    nothing = SimpleNamespace(connected=lambda workers: None, hopeless_after=0.0, stall_seconds=ended.get("stall", 0.0))
    execution: Any = SimpleNamespace(
        is_over=lambda: False, outcome=Outcome(), fatal=None, workers=1, cpu_workers=0, placement=nothing, observer=nothing,
        limits=nothing, kills=OomKills(),
    )  # fmt: skip
    try:
        with driver.executed(execution, Cluster(ended.get("address", "local"), workers=1)) as outcome:
            assert outcome is execution.outcome
            happened.append("answered")
            if answer is not None:
                raise answer()
    except StoreError as error:
        return happened, str(error)
    return happened, ""


@pytest.mark.parametrize(("stall", "hopeless"), [(30.0, 100.0), (600.0, 600.0)])
def test_an_embedded_ray_has_the_time_to_replace_a_worker_that_was_killed_as_it_started(
    stall: float, hopeless: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: Ended = {"stall": stall}
    order(monkeypatch, ended)
    assert ended["hopeless"] == hopeless


@pytest.mark.parametrize(("address", "asked"), [("local", True), ("10.0.0.1:6379", False)])
def test_what_the_system_has_ended_here_is_counted_where_all_workers_are_here(
    address: str, asked: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "oom_counter", lambda: tmp_path / "vmstat")
    ended: Ended = {"address": address}
    order(monkeypatch, ended)
    assert ended["kills"].counter == (tmp_path / "vmstat" if asked else None)


@pytest.mark.parametrize("stopped", [None, "time", "cost", "error"])
def test_the_answer_does_not_wait_for_the_end_of_ray(monkeypatch: pytest.MonkeyPatch, stopped: str | None) -> None:
    assert order(monkeypatch, {"stopped": stopped}) == (["trained", "answered", "Ray ended"], "")


@pytest.mark.parametrize("stopped", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_after_a_signal_ray_ends_first(monkeypatch: pytest.MonkeyPatch, stopped: str) -> None:
    assert order(monkeypatch, {"stopped": stopped}) == (["trained", "Ray ended", "answered"], "")


def test_a_launch_goes_on_where_signals_cannot_be_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python lets only the main thread do that."""
    with ThreadPoolExecutor(1) as other:
        happened, error = other.submit(order, monkeypatch, {}).result(timeout=30)
    assert (happened, error) == (["trained", "answered", "Ray ended"], "")


def test_ray_ends_also_if_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order(monkeypatch, {}, lambda: StoreError("full")) == (["trained", "answered", "Ray ended"], "full")
    assert order(monkeypatch, {"fatal": StoreError("gone")}) == (["trained", "Ray ended"], "gone")


def test_an_answer_is_told_also_if_ray_dies_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []

    @contextmanager
    def watched(parts: Any, told: Any) -> Iterator[None]:
        lost.append(told)
        yield
        lost.append("unwatched")

    monkeypatch.setattr(driver, "watched", watched)
    monkeypatch.setattr(driver, "HEARD_SECONDS", 0.0)
    monkeypatch.setattr(driver, "SIGNAL_SECONDS", 0.0)
    ended: list[int] = []
    monkeypatch.setattr(driver._Leaving, "now", lambda leaving, code, error=None: ended.append(code))

    def dies() -> Exception:
        assert lost[1:] == ["unwatched"]
        lost[0](SimpleNamespace(name="gcs_server", patience=0.0))
        return StoreError("all was told")

    assert order(monkeypatch, {}, dies) == (["trained", "answered", "Ray ended"], "all was told")
    assert ended == []


def test_a_process_that_ends_at_once_leaves_no_folder_also_if_its_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[Any] = []
    monkeypatch.setattr(driver, "_after", lambda *_: None)
    monkeypatch.setattr(driver, "remove_all", lambda: happened.append("removed"))
    monkeypatch.setattr(driver.os, "_exit", happened.append)

    def farewell(error: BaseException | None) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):  # of which a process that has ended tells nobody
        driver._Leaving(farewell).now(129)
    assert happened == ["removed", 129]


@pytest.mark.bucket
def test_a_process_that_ends_at_once_leaves_no_claim_in_a_bucket(
    server: Server, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[Any] = []
    monkeypatch.setattr(driver, "_after", lambda *_: None)
    monkeypatch.setattr(driver.os, "_exit", lambda code: happened.append((code, names(server, uri, "launches"))))
    with ResultStore(uri) as opened:
        assert opened.claim("k")
        assert len(names(server, uri, "launches")) == 2
        driver._Leaving(lambda error: happened.append("told"), opened.close).now(143)
    assert happened == ["told", (143, [])]


def test_a_process_that_ends_at_once_waits_only_shortly_for_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[Any] = []
    monkeypatch.setattr(driver, "_after", lambda *_: None)
    monkeypatch.setattr(driver, "LETTING_GO_SECONDS", 0.1)
    monkeypatch.setattr(driver.os, "_exit", happened.append)
    answers = threading.Event()

    def hang() -> None:
        answers.wait(60)

    driver._Leaving(lambda error: None, hang).now(143)
    answers.set()
    assert happened == [143]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TuneError("it is full"), "Ray has failed: it is full"),
        (RayError("the head is gone\nby itself"), "Ray has failed: the head is gone"),
        (TuneError("Traceback (most recent call last):\n  ...\nKeyError: 'a'\n"), "Ray has failed: KeyError: 'a'"),
        (TuneError(), "Ray has failed: TuneError"),
        (RayError("RPC error: WrongClusterID: Perhaps ... Note: RAY_AUTH_MODE is"), driver.RESTARTED),
    ],
)
@pytest.mark.parametrize("known", [None, StoreError("the store is gone")])
def test_an_error_of_ray_in_the_middle_ends_the_launch_in_a_line(
    error: Exception, told: str, known: Exception | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Failing:
        def __init__(self, *_: object, **__: object) -> None: ...

        def fit(self) -> None:
            raise error

    monkeypatch.setattr(tune, "Tuner", Failing)
    execution: Any = SimpleNamespace(fatal=known, workers=1, cpu_workers=0)
    driver._fit_once(execution, Cluster(workers=1), tmp_path, 10, {})
    if known is None:
        assert isinstance(execution.fatal, LostRayError)
        assert str(execution.fatal) == told
    else:
        assert execution.fatal is known


@pytest.mark.parametrize("stopped", ["time", "lost"])
def test_a_store_that_is_away_when_a_limit_ends_a_launch_does_not_keep_its_answer_from_being_told(stopped: str) -> None:
    looked = list[float]()

    def away(after: float) -> None:
        looked.append(after)
        raise StoreError("the bucket does not answer")

    outcome: Any = SimpleNamespace(stopped=stopped)
    execution: Any = SimpleNamespace(
        workers=1, cpu_workers=0, is_over=lambda: True, fatal=None, outcome=outcome, look_again=away
    )  # fmt: skip
    driver._fit(execution, Cluster(), Path())
    assert (looked, outcome.stopped) == ([0.0], stopped)


KILLED = """\
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 10.0.0.1, ID: fd19) was 4.65GB used
Considered workers: [
Selected to kill: (Actor(d340): job ID=01, task name=PackTrainable.__init__, pid=12, actual memory used=2.28GB, worker ID=a02c)
]"""
LOST = ObjectLostError("ab" * 28, None, "")
BOTH = "10.0.0.1", "10.0.0.2"


class Calling:
    """A Tuner whose workers begin with all but the last of so many packs; then a call of the second one fails."""

    def __init__(self, execution: Execution, packs: int, error: Exception) -> None:
        self.execution, self.packs, self.error = execution, packs, error

    def __call__(self, *_: object, run_config: tune.RunConfig, **__: object) -> "Calling":
        assert run_config.callbacks is not None
        self.workers = run_config.callbacks[0]
        return self

    def fit(self) -> None:
        for trial in range(self.packs):
            assert self.execution.next_pack(str(trial))
            about = {"pid": 11 + trial, "node_ip": f"10.0.0.{1 + trial % 2}"}
            if trial < self.packs - 1:
                begun: Any = SimpleNamespace(trial_id=str(trial), last_result=about)
                self.workers.on_trial_start(0, [], begun)
        RayActorManager(resource_manager=MagicMock())._actor_task_failed(TrackedActorTask(TrackedActor(1)), self.error)


def fit_once(
    execution: Execution, error: Exception, monkeypatch: pytest.MonkeyPatch, *, packs: int = 4, alive: tuple[str, ...]
) -> None:
    monkeypatch.setattr(tune, "Tuner", Calling(execution, packs, error))
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeManagerAddress": host, "Alive": True} for host in alive])
    driver._fit_once(execution, Cluster(workers=1), Path(), 10, {})


@pytest.mark.parametrize(
    ("error", "alive", "lost"),
    [
        (OutOfMemoryError(KILLED.replace("10.0.0.1", "10.0.0.2")), BOTH, "12"),
        (OutOfMemoryError(KILLED.replace("10.0.0.1", "10.0.0.2").replace("pid=12", "pid=123")), BOTH, "11 12 13"),
        (LOST, ("10.0.0.1",), "12"),
        (LOST, ("10.0.0.2",), "11 13"),
        (OutOfDiskError("it is full"), BOTH, "11 12 13"),
        (OutOfMemoryError(KILLED), BOTH, "11 12 13"),
    ],
)
def test_a_failed_call_that_tune_does_not_expect_costs_only_the_worker_that_died(
    store: ResultStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    error: RayError,
    alive: tuple[str, ...],
    lost: str,
) -> None:
    execution, watcher = make(store, seeds=8, workers=8)
    told: list[str] = []
    for name in ("on_lost", "on_stopped"):
        was = getattr(Execution, name)

        def tell(execution: Execution, trial_id: str, *given: str, name: str = name, was: Any = was) -> None:
            told.append(f"{name} {11 + int(trial_id)}")
            was(execution, trial_id, *given)

        monkeypatch.setattr(Execution, name, tell)
    fit_once(execution, error, monkeypatch, alive=alive)
    assert told == [f"{'on_lost' if str(pid) in lost else 'on_stopped'} {pid}" for pid in range(11, 15)]
    assert (execution.fatal, execution.running, execution.outcome.stopped) == (None, {}, None)
    if isinstance(error, OutOfMemoryError):
        assert execution.workers == 4
        assert all("ran out of memory: now 4 in parallel" in notice for notice in watcher.notices)
        assert execution.failures.later() == 0
    else:
        assert execution.failures.later() == len(lost.split()) == len(watcher.notices)


def test_runs_whose_calls_fail_again_and_again_are_left_and_the_launch_ends(
    store: ResultStore,  # noqa: F811
    clock: Clock,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execution, _ = make(store, seeds=5, workers=2)
    for _ in range(100):
        clock.now += 100
        if not execution.is_over():
            fit_once(execution, LOST, monkeypatch, packs=2, alive=())
    assert execution.outcome.stopped == "lost"
    memory, _ = make(store, seeds=1, workers=4)
    for _ in range(100):
        if not memory.is_over() and not len(store):
            fit_once(memory, OutOfMemoryError(KILLED), monkeypatch, packs=1, alive=())
    assert [row["status"] for row in store.rows()] == ["failed"]


def test_other_errors_of_a_launch_are_not_taken_for_those_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    execution: Any = SimpleNamespace(fatal=None, workers=1, cpu_workers=0, next_pack=lambda trial_id: [])
    with pytest.raises(RuntimeError, match="Caught unexpected exception: no worker"):
        fit_once(execution, ValueError("no worker"), monkeypatch, packs=0, alive=())


LAUNCH = """
import os, signal, sys, time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from orchestrator.engine import driver
from orchestrator.engine.cluster import Cluster
from orchestrator.engine.execution import Outcome

case = sys.argv[1]
driver.GRACE_SECONDS = 1.0

@contextmanager
def connected(cluster):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as Ray does
    if case == "starts":
        print("up", flush=True)
        time.sleep(60)
    yield Path()
    print("up", flush=True)
    if case == "hangs":
        time.sleep(60)
    time.sleep(0.5)

def fit(execution, *_):
    if case in ("trains", "ignores"):
        print("up", flush=True)
        for _ in range(50 if case == "trains" else 10):
            time.sleep(0.1)
            if execution.outcome.stopped:
                return

Cluster.connected, Cluster.parts, driver._fit = connected, lambda cluster: [], fit
nothing = SimpleNamespace(
    connected=lambda workers: None, hopeless_after=0.0, stall_seconds=0.0, hasten=lambda: None,
    notice=lambda text: print(text, flush=True),
)
execution = SimpleNamespace(
    is_over=lambda: False, outcome=Outcome(), fatal=None, workers=1, cpu_workers=0, placement=nothing, observer=nothing,
    limits=nothing, store=SimpleNamespace(hasten=nothing.hasten, close=lambda: print("let go", flush=True)),
)
with driver.executed(execution, Cluster(workers=1), lambda error: print("farewell", flush=True)) as outcome:
    print("told", outcome.stopped, flush=True)
    code = outcome.code = 128 + signal.Signals[outcome.stopped] if outcome.stopped else 7
sys.exit(code)
"""


def launched(case: str, *sent: signal.Signals, before: str = "") -> tuple[int, list[str]]:
    """Exit code and lines of a launch to which signals are sent once it is `up`, which is not among the lines."""
    words = [*(["sh", "-c", f'{before}; exec "$@"', "sh"] if before else []), sys.executable, "-c", LAUNCH, case]

    def heed() -> None:
        """Also where the tests run under `nohup`."""
        for number in driver.STOPPING:
            signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=heed) as process:
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline().strip()) != "up":
            assert process.poll() is None
            lines.append(line)
        for number in sent:
            time.sleep(0.2)
            process.send_signal(number)
        try:
            code = process.wait(timeout=30)
        finally:
            process.kill()
        return code, [line for line in [*lines, *process.stdout.read().splitlines()] if line != "up"]


def stopping(name: str) -> str:
    return f"{name}: stopping; finished runs are stored (twice more to leave at once)"


@pytest.mark.slow(4)
def test_a_terminal_that_is_closed_stops_the_training_as_other_signals_do() -> None:
    assert launched("trains", signal.SIGHUP) == (129, [stopping("SIGHUP"), "told SIGHUP"])


@pytest.mark.slow(4)
def test_sigterm_while_ray_starts_is_told_like_any_other() -> None:
    assert launched("starts", signal.SIGTERM) == (143, [stopping("SIGTERM"), "told SIGTERM"])


@pytest.mark.slow(4)
def test_signals_that_were_ignored_still_are() -> None:
    """As in `nohup`, and as Ctrl-C in a job in the background."""
    assert launched("ignores", *driver.STOPPING, before="trap '' HUP INT TERM") == (7, ["told None"])


@pytest.mark.slow(4)
@pytest.mark.parametrize(("case", "sent"), [("hangs", ()), ("hangs", (signal.SIGINT,)), ("ends", (signal.SIGTERM,))])
def test_once_all_is_told_the_launch_ends_with_its_code_whatever_ray_does(case: str, sent: tuple[signal.Signals, ...]) -> None:
    assert launched(case, *sent) == (7, ["told None", *(["let go"] if case == "hangs" else [])])


def test_workers_are_not_sent_the_keys_of_a_bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray writes the environment that they are sent to logs which other users of their machine may read."""
    from ray.tune.execution.class_cache import _ActorClassCache

    from orchestrator.engine.worker import PackTrainable

    sent: dict[str, str] = {}

    def fit(tuner: tune.Tuner) -> None:
        options = _ActorClassCache().get(PackTrainable)._default_options
        sent.update(options["runtime_env"]["env_vars"])

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "RAY_CHDIR_TO_TRIAL_DIR"):
        monkeypatch.setenv(name, "of the driver")
    monkeypatch.setattr(tune.Tuner, "__init__", lambda tuner, *_, **__: None)
    monkeypatch.setattr(tune.Tuner, "fit", fit)
    monkeypatch.setattr("orchestrator.engine.ray_tune.Workers", MagicMock())
    monkeypatch.setattr("orchestrator.engine.ray_tune.StudySearcher", MagicMock())
    driver._fit_once(MagicMock(workers=1, cpu_workers=0), Cluster("auto", 1, 1.0, 0.0, 0, False), tmp_path, 1, {})
    assert sent["RAY_CHDIR_TO_TRIAL_DIR"] == "of the driver"
    assert not [name for name in sent if name.startswith("AWS")]
