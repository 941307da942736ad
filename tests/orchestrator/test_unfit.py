"""Machines that cannot train what others can: the launch ends, a line says which machine lacks what, and no run has failed."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from test_execution import SPEC, make, next_run, ordered

from orchestrator.engine.messages import Order
from orchestrator.engine.worker import PackTrainable
from orchestrator.store import ResultStore
from tests.conftest import Command, read_rows
from trainables.program import PATH as PROGRAM
from trainables.program import digest
from trainables.spec import RunSpec
from trainables.training.run import UnfitError

Start = Callable[..., Command]

MAKING = (
    "Failure # 1 (occurred at 2026-11-28_16-33-20)\nThe actor died because of an error raised in its creation task, "
    "\x1b[36mray::PackTrainable.__init__()\x1b[39m (pid=8492, ip=10.0.0.5, actor_id=91ba44a7, repr=<orchestrator.engine.worker."
)
FAKE = MAKING + "FunctionActorManager._create_fake_actor_class.<locals>.TemporaryActor object at 0x7fc2be8afd10>)\n"
READING = """\
  At least one of the input arguments for this task could not be computed:
ray.exceptions.RaySystemError: System error: it cannot be read
traceback: Traceback (most recent call last):
          ^^^^^^^^^^^^^^^^^^^^^^^^^
"""
LOADING = """\
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: The actor with name PackTrainable failed to import on the worker. This may be because needed library \
dependencies are not installed in the worker environment:

\x1b[36mray::PackTrainable.__init__()\x1b[39m (pid=8492, ip=10.0.0.5, actor_id=91ba44a7)
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
"""How Ray begins its reasons if a worker cannot be made, as its class is not there; what it says of an order that cannot be
read, and of a class."""


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "store")


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (FAKE + READING, "ModuleNotFoundError: No module named 'orchestrator'"),
        (FAKE + LOADING, "AttributeError: Can't get attribute 'PackTrainable._failed' on <module 'worker' from '/x.py'>"),
        (FAKE + LOADING, "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory"),
        (MAKING + "PackTrainable>)\n" + READING, "AttributeError: Can't get attribute 'Order' on <module>"),
    ],
)
def test_a_machine_on_which_no_worker_can_be_loaded_ends_the_launch_and_fails_no_run(
    store: ResultStore, reason: str, why: str
) -> None:
    execution, watcher = make(store, seeds=2, workers=2)
    assert next_run(execution, "a") is not None
    assert next_run(execution, "b") is not None
    execution.on_lost("a", f"{reason}{why}\n")
    assert isinstance(execution.fatal, UnfitError)
    assert str(execution.fatal) == (
        f"on 10.0.0.5: no worker can be loaded ({why}): install the same version of this program, and of its packages, on all "
        "machines"
    )
    assert execution.is_done()
    assert list(execution.running) == ["b"]
    execution.on_lost("b", f"{reason}{why}\n".replace("10.0.0.5", "10.0.0.6"))
    assert str(execution.fatal).startswith("on 10.0.0.5: "), "the first one is told"
    assert (store.rows(), watcher.rows, watcher.notices, execution.outcome.failed) == ([], [], [], 0)
    again, _ = make(store, seeds=2, workers=2)
    assert next_run(again, "a") is not None, "it is still claimed"


@pytest.mark.parametrize(
    "reason", [f"{MAKING}PackTrainable>)\n{READING}MemoryError", f"{MAKING}PackTrainable>)\nMemoryError"]
)
def test_a_worker_that_cannot_begin_for_another_cause_is_lost_and_its_machine_and_cause_are_told(
    store: ResultStore, reason: str
) -> None:
    execution, watcher = make(store, seeds=1, workers=1)
    assert next_run(execution, "a") is not None
    execution.on_lost("a", reason)
    assert execution.fatal is None
    assert store.rows() == []
    lost = "toys, N = 8, 16 samples, seed 0 lost its worker (once), trying again in 1 s"
    assert watcher.notices == [f"{lost}: on 10.0.0.5 it could not begin: MemoryError"]


@pytest.mark.parametrize("change", [Path.unlink, lambda file: file.write_text("echo 0.6")], ids=["gone", "other"])
def test_a_worker_without_the_files_of_a_program_names_its_machine_and_has_trained_nothing(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    file = tmp_path / "train\n.sh"
    file.write_text("echo 0.5")
    spec = program_of(file)
    change(file)
    trainable = PackTrainable({"order": Order(runs=[ordered(spec)], stall_seconds=60.0), "cpus": 1, "gpus": 0})
    report = trainable.step()["report"]
    trainable.stop()
    name = str(file).replace("\n", "\\n")
    assert (report.unfit, report.runs, report.failed, report.done) == (True, {}, {}, True)
    assert report.error.startswith(f"on {socket.gethostname()}: {name} cannot be read here, or is not the file that the ")


def program_of(file: Path) -> RunSpec:
    options = {"program": "sh train.sh", "files": json.dumps({str(file): digest(str(file))}), "counts": "1..9"}
    return dataclasses.replace(SPEC, task=PROGRAM, options=tuple(options.items()), decoder="", data_count=5)


EDITED = """
echo '{"accuracy": 0.5}'
echo '# edited' >> "$0"
"""


@pytest.mark.slow(20)
def test_a_program_that_is_edited_ends_the_launch_and_the_same_command_continues_once_it_is_put_back(
    start: Start, here: Start, tmp_path: Path
) -> None:
    file = tmp_path / "train.sh"
    file.write_text(EDITED)
    words = ("--program", f"sh {file} {{data_count}}", "--counts", "1..64", "--N", "8", "--seeds", "1", "--workers", "1")
    command = start(*words)
    assert command.wait() == 1, command.stdout + command.stderr
    assert f"stopped: on {socket.gethostname()}: {file} cannot be read here, or is not the file" in command.stdout
    assert "; once that is mended, to continue: python -m orchestrator.scaling --program " in command.stdout
    assert [*read_rows(tmp_path)["status"]] == ["missed"], "the run that follows has not failed"
    (key,) = read_rows(tmp_path)["key"]
    file.write_text(EDITED)
    command = here(*words)
    assert command.wait() == 1, command.stdout + command.stderr
    rows = read_rows(tmp_path)
    assert [*rows["status"]] == ["missed", "missed"]
    assert key in [*rows["key"]], "the first run stays"
