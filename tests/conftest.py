"""Shared by all tests: their tiers and order, a home folder of their own, and real commands in real processes.

Whoever runs the tests in several processes has one more that only hands them out. It reads this file too, so what takes long to
import is imported where it is used.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from tests.nursery import Errand, Forked, Nursery

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import typer

    from orchestrator.engine.execution import Outcome

ROOT = Path(__file__).parent.parent
TIERS = ("unit", "bucket", "study", "browser", "gpu", "cluster", "chaos")
THOROUGH = bool(os.environ.get("THOROUGH"))
"""Whether tests of many cases take all of them, as `make deep` tells them to."""

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # as in an environment that is activated
OF_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ARGS", "STORE", "REPORT", "CLUSTER", "STUDY", "JOB", "BUCKET")
for set_by_make in OF_MAKE:
    os.environ.pop(set_by_make, None)  # a `make` under test would take over what `make test` was given
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when ray is imported; the commands under test choose for themselves

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a job in the background: the commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector pass over the modules and the tests, which stay to the end: it would look through millions of
    objects again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # some modules complain at the end of what nobody has collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and begin with the files that take longest: the tests of a file run one after another."""
    seconds: Counter[Path] = Counter()
    for item in items:
        if (tier := tier_of(item)) is not None:
            item.add_marker(tier)
        slow = item.get_closest_marker("slow")
        chosen = item.get_closest_marker("deep") is None or "not deep" not in config.option.markexpr
        seconds[item.path] += (slow.args[0] if slow and slow.args else bool(slow) * 10) * chosen
    items.sort(key=lambda item: -seconds[item.path])


def many(few: int, full: int) -> int:
    """The number of cases that a test takes: `few`, or `full` where it is to be thorough."""
    return full if THOROUGH else few


def tier_of(item: pytest.Item) -> str | None:
    """The tier that a test is not marked with itself; none if it is, or is slow for no reason that can be seen."""
    if any(item.get_closest_marker(tier) for tier in TIERS):
        return None
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    if folder in ("cluster", "chaos"):
        return folder
    for fixture, tier in (("start", "study"), ("nurseries", "study"), ("server", "bucket")):
        if fixture in getattr(item, "fixturenames", ()):
            return tier
    return None if item.get_closest_marker("slow") else "unit"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As in a worker of a study. More would wait for each other where other tests run beside these."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")


@pytest.fixture(autouse=True)
def all_numbers() -> Iterator[None]:
    """A test that trains lets the processor take the least numbers for zero, and Hypothesis refuses to go on so."""
    import torch

    yield
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def no_ray_here() -> Iterator[None]:
    """Ray starts by itself when a process asks it something. Such a one must not decide how the tests after it end."""
    yield
    ray = sys.modules.get("ray")
    if getattr(ray, "is_initialized", bool)():
        ray.shutdown()  # type: ignore[union-attr]


@pytest.fixture
def quick_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is said to read all real pictures right, and none is rendered to see that."""
    monkeypatch.setattr("analysis.generators.oracle_reads", lambda *_: 1.0)


def environment_of(home: Path, **given: str) -> dict[str, str]:
    """That of a user whose home is this folder, who has set what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "160"} | given


class Command:
    """A study started as a user starts it, in a process of its own and a folder of its own."""

    def __init__(
        self, folder: Path, home: Path, study: str, *arguments: str, nursery: Nursery | None = None, here: bool = False
    ) -> None:
        """`nursery`: what forks the process, in the place of an interpreter that starts. `here`: see tests.here."""
        known = environment_of(home)
        self.output = folder / f"output-{len(list(folder.glob('output-*.txt')))}.txt"
        self.errors = self.output.with_suffix(".err")
        module = study if "." in study else f"orchestrator.{study}"
        self.process: Forked | subprocess.Popen[bytes]
        with self.output.open("w") as out, self.errors.open("w") as err:
            if nursery is None:
                words = [sys.executable, "-m", module, *arguments]
                self.process = subprocess.Popen(words, cwd=folder, env=known, stdout=out, stderr=err, start_new_session=True)
            else:
                errand = Errand(
                    module=module, argv=list(arguments), cwd=str(folder), output=str(self.output), errors=str(self.errors),
                    environment=known, here=here,
                )  # fmt: skip
                self.process = Forked()
                nursery.start(asdict(errand), self.process)

    @property
    def stdout(self) -> str:
        return self.output.read_text()

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    def wait(self, timeout: float = 500) -> int:
        """The exit code; what was printed is shown when it takes too long."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"still running after {timeout} s:\n{self.stdout}\n{self.stderr}")


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home folder of these tests and of the commands that they start: each process of pytest-xdist has another."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def nurseries(home: Path) -> Iterator[Callable[[], Nursery]]:
    """Gives the one of this session, which is started when it is first asked for."""
    made: list[Nursery] = []

    def nursery() -> Nursery:
        if not made:
            made.append(Nursery(environment_of(home)))
        return made[0]

    yield nursery
    for one in made:
        one.close()


@pytest.fixture
def begin(tmp_path: Path, home: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands in the test's folder, which end with the test."""
    started: list[Command] = []

    def one(*arguments: str, study: str = "scaling", **how: Any) -> Command:
        started.append(Command(tmp_path, home, study, *arguments, **how))
        return started[-1]

    yield one
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


@pytest.fixture
def start(begin: Callable[..., Command]) -> Callable[..., Command]:
    """Starts a study, `scaling` unless told otherwise, or a module (its name has a dot), in the test's folder."""
    return lambda *arguments, **about: begin(*arguments, **about)


@contextmanager
def ray_head(host: str, cores: int, **given: str) -> Iterator[str]:
    """The address of a Ray on this machine, which ends with the block; `given` is in its environment."""
    import psutil

    with TemporaryDirectory(prefix="head-", dir="/tmp", ignore_cleanup_errors=True) as folder:  # short: sockets lie below it
        words = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats", "--port", "0"),
            *("--node-ip-address", host, "--num-cpus", str(cores), "--include-dashboard", "false", "--temp-dir", folder),
        ]
        output = Path(folder) / "output"
        known = environment_of(Path(folder), **given)
        with output.open("w") as file:
            head = psutil.Popen(words, env=known, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while (address := re.search(r"--address='([^']+)'", output.read_text())) is None:  # its lines come one by one
                assert head.poll() is None, output.read_text()
                time.sleep(0.1)
            yield address[1]
        finally:
            if head.poll() is None:
                family = [head, *head.children(recursive=True)]
                head.send_signal(signal.SIGTERM)
                for process in psutil.wait_procs(family, timeout=20)[1]:
                    process.kill()


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[str]:
    """The address of a Ray of four cores for tests of a module that follow each other. It ends before those of another module,
    some of which start a cluster of their own."""
    with ray_head("127.0.0.2", 4, RAY_AUTH_MODE="disabled") as address:
        yield address


@pytest.fixture
def join(begin: Callable[..., Command], nurseries: Callable[[], Nursery], shared_ray: str) -> Callable[..., Command]:
    """Starts a study as `start` does, on the Ray that is up already, for tests of what does not depend on whose Ray it is, nor
    on imports: the process is forked."""
    return lambda *arguments, **about: begin(*arguments, "--address", shared_ray, nursery=nurseries(), **about)


@pytest.fixture
def here(begin: Callable[..., Command], nurseries: Callable[[], Nursery]) -> Callable[..., Command]:
    """Starts a study as `join` does, but one that trains in its own process, for tests in which Ray has no part."""
    return lambda *arguments, **about: begin(*arguments, nursery=nurseries(), here=True, **about)


def read_rows(folder: Path, store: str = "results") -> pd.DataFrame:
    """The store as any user reads it."""
    from tests.chaos.rows import read

    return read(folder / store)


def wait_for_rows(command: Command, folder: Path, count: int, timeout: float = 300) -> bool:
    """Whether the store reached `count` rows while the command was still at work."""
    end = time.monotonic() + timeout
    while time.monotonic() < end and command.process.poll() is None:
        if len(read_rows(folder)) >= count:
            return True
        time.sleep(0.05)
    return False


def trained_by(train: Callable[..., Outcome]) -> Callable[..., AbstractContextManager[Outcome]]:
    """What launches may take for `orchestrator.engine.driver.executed`: it calls `train`, and no Ray starts."""

    @contextmanager
    def executed(*given: object) -> Iterator[Outcome]:
        yield train(*given[:3])  # not the words of one that ends without a word

    return executed


def colours(pixels: np.ndarray) -> int:
    """The number of different colours in a picture, as `imread` gives it."""
    import numpy as np

    return len(np.unique(np.rint(pixels * 255) @ 256.0 ** np.arange(pixels.shape[-1])))


def check_refusal(
    app: typer.Typer, arguments: list[str], hint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that is a mistake: exit code 2, one line on stderr with the hint in it, and nothing written to the folder, nor
    where commands write that are not told where."""
    from orchestrator.command.cli import run

    there = [name for name in ("results", "report") if Path(name).exists()]
    assert run(app, arguments) == 2
    assert [name for name in ("results", "report") if Path(name).exists()] == there
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.err.startswith("error: ")
    assert hint in printed.err
    assert not list(folder.iterdir())


REPEATABLE = ("--search", "--option", "--vary", "--where")


def changed(words: Sequence[str], *more: str) -> list[str]:
    """A command line with more options, in place of those that it has and that may be given once."""
    once = [word for word in more if word.startswith("--") and word not in REPEATABLE]
    places = {at for at, word in enumerate(words) if word in once}
    return [*(word for at, word in enumerate(words) if at not in places and at - 1 not in places), *more]
