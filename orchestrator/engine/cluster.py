"""Where runs are trained: an embedded Ray on this machine, or a cluster that is already up."""

from __future__ import annotations

import logging
import math
import os
import re
import resource
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.engine.heads import answering, from_environment, silence
from orchestrator.engine.pulse import Part
from orchestrator.engine.scratch import fits, scratch, unfit
from orchestrator.engine.signals import obeyed_within
from orchestrator.errors import LostRayError, UserError, counted, printable
from trainables.control_groups import control_groups

OBJECT_STORE_BYTES = 128 * 2**20
"""Runs exchange little; Ray's default would take a third of the memory."""

LOG_BYTES = 20 * 2**20
"""Of a log of a process of an embedded Ray, before it begins anew; one older part is kept."""

RAY_THREADS, THREADS_PER_WORKER = 200, 30
"""Processes and threads of an embedded Ray: 219 were seen with two workers, 269 with four."""

RAY_FILES, FILES_PER_WORKER = 80, 8
"""Open files that a part of an embedded Ray may need: raylet had 63 with two workers and 71 with four, gcs_server 65 and 69."""

LARGEST_FILE = OBJECT_STORE_BYTES + 8
"""Bytes of the file of the object store, in /dev/shm or elsewhere. With one byte less allowed, raylet is ended as it starts."""

SHARED_MEMORY = Path("/dev/shm")
"""Where Ray looks on Linux, before it chooses the place of the object store."""

FEWEST_ADDRESSES, ENOUGH_ADDRESSES = 3.5e9, 4e9
"""Bytes of address space of a process with Ray and torch: on two cores studies crashed with 3.1 and 3.3 GB, and went through
with 3.7 and 4.3 GB."""

LEAVING_SECONDS = 5.0
"""So long after a signal the attempt to join a cluster may go on."""
LOOPBACK_SECONDS = 1.0
"""So long this machine may take to answer itself."""
SILENCE_SECONDS = 600.0
"""So long gcs_server of an embedded Ray may be silent: as long as a run by default (--stall-minutes)."""
MOST_SAID = 300
"""Letters of a line of a log, or of an error of Ray."""
GPU_PARTS = 10_000
"""Ray counts GPUs in so many parts, rounded down."""
TELLING = re.compile(r"Check failed|^\[[^\]]* [EFC] \d+ \d+\]")
"""A line of a log of Ray that tells of an error."""

PASSED_ON = "SWEEP_"
"""Variables that begin so are given to the workers of a cluster; an embedded Ray has all that its command has."""

UV_RUN = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""With it Ray copies the folder one is in to all workers of a command under `uv run`, and fails if that folder is large."""
OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
"""With it a study that is a Ray job may give its workers variables that the job gives them, too."""
WARNINGS = "PYTHONWARNINGS"
"""Python heeds it when a process starts. Parts of Ray end at their imports where a warning is an error."""
RAY_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""The variable that says how long Ray waits for the head of a cluster."""


@dataclass(slots=True)
class Cluster:
    """How to reach the machines, and what one run takes of them.

    Raises:
        UserError: from `connected`, when the address does not answer or has another Ray or Python, or when a run could never be
            placed.
    """

    address: str = "local"
    workers: int | None = None
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
    cpu_workers: int = 0
    verbose: bool = False
    patience: float = field(default=SILENCE_SECONDS, init=False)
    """An embedded Ray is given up when its gcs_server has not answered for so many seconds: nothing else ends a launch then."""
    _joined: str | None = field(default=None, init=False)
    """What is given to Ray as the address of a cluster, once it has answered."""

    def check(self) -> None:
        """Refuse, before anything starts, what can be seen to be impossible from here."""
        if sys.flags.optimize > 1:
            raise UserError("Ray does not start without docstrings: start Python without -OO, and without PYTHONOPTIMIZE=2")
        if self.address != "local":
            with obeyed_within(LEAVING_SECONDS, "no cluster was joined"):
                self._set_environment()
                self._joined = answering(self.address)
                with self.connected():
                    return
        if (told := _shortage_of_addresses(FEWEST_ADDRESSES)) is not None:
            raise UserError(told)
        if (told := _shortage_of_file_size()) is not None:
            raise UserError(told)
        _check_shared_memory()
        _check_loopback()
        if self.gpus_per_run > 0:
            import torch

            given = f"--gpus-per-run {self.gpus_per_run:g}"
            if self.gpus_per_run > (found := torch.cuda.device_count()):
                raise UserError(f"{given}, but this machine has {counted(found, 'GPU')}: omit the option")
            if self.workers is not None and self.workers > (held := self._on_gpus(found)):
                here = "the GPU of this machine holds" if found == 1 else f"the {found} GPUs of this machine hold"
                told = f"--workers {self.workers} are too many: {here} {held} with {given}"
                raise UserError(f"{told}; omit --workers, or share a GPU with a smaller --gpus-per-run")

    def shortage(self) -> str | None:
        """A warning if an embedded Ray may need more than this user is allowed: it would end the process without a word."""
        if self.address != "local":
            return None
        shortages = self._shortage_of_threads(), self._shortage_of_files(), _shortage_of_addresses(ENOUGH_ADDRESSES)
        return "; ".join(filter(None, shortages)) or None

    def _shortage_of_threads(self) -> str | None:
        allowed, user = resource.getrlimit(resource.RLIMIT_NPROC)[0], os.getuid()
        if allowed == resource.RLIM_INFINITY or user == 0:
            return None
        used, needed = _threads_of(user), RAY_THREADS + THREADS_PER_WORKER * self.all_workers()
        if used + needed <= allowed:
            return None
        return (
            f"you may run {allowed} processes and threads (ulimit -u), {used} are in use, and Ray needs about {needed}. "
            f"If it does not start, raise the limit: ulimit -u {used + 2 * needed}"
        )

    def _shortage_of_files(self) -> str | None:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Ray raises the other limit up to this one
        needed = RAY_FILES + FILES_PER_WORKER * self.all_workers()
        if allowed == resource.RLIM_INFINITY or allowed >= needed:
            return None
        return (
            f"a process may have at most {allowed} open files (ulimit -Hn), and Ray needs about {needed}; with fewer, parts of "
            f"it may die in the middle of work: take fewer --workers, or raise the limit, ulimit -n {2 * needed} in a new shell"
        )

    def worker_count(self) -> int:
        """Runs at the same time on this machine when the user gives no number: one a core, or what the GPUs hold."""
        if self.workers is not None:
            return self.workers
        if self.gpus_per_run > 0:
            import torch

            return max(1, self._on_gpus(torch.cuda.device_count()))
        return cores()

    def all_workers(self) -> int:
        return self.worker_count() + self.cpu_workers

    @contextmanager
    def connected(self) -> Iterator[Path]:
        """Ray, up for the time of the block, and a folder for what is needed as long. An embedded one is reachable from this
        machine only, with a token made for this launch, and keeps its files and sockets where no other user can enter."""
        with scratch() as folder, self._connected(folder):
            yield folder

    def _set_environment(self) -> None:
        """For Ray, which reads some of it when it is imported. Nothing more changes if it is set again."""
        environment = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_AIR_NEW_OUTPUT": "0",
            "RAY_CHDIR_TO_TRIAL_DIR": "0",
        }
        environment[UV_RUN] = os.environ.get(UV_RUN, "0")
        if self.address != "local":  # there it is for the workers; those of an embedded Ray have this folder from Ray itself
            folders = (str(Path.cwd()), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
            environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))
            # a Ray job may have set it, too: it is among these folders, and Ray would refuse to be told of it twice
            environment[OVERRIDE] = os.environ.get(OVERRIDE, "1")
        if self.address == "auto" and not from_environment() and "RAY_AUTH_MODE" not in os.environ and _has_token():
            environment["RAY_AUTH_MODE"] = "token"  # as Ray does for "auto", but not for the address that was found here
        if self.address == "local" and "RAY_AUTH_MODE" not in os.environ:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        if self.address == "local":
            environment["RAY_LOG_TO_STDERR"] = "0"  # else its logs would be on stdout, among the answer
            if filters := os.environ.get(WARNINGS):
                environment[WARNINGS] = ",".join(map(_without_error, filters.split(",")))
            # else workers hardly run beside anything else that is busy; and some are started that no run will use
            usual = {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
            # what tasks print is kept by the worker up to twice so much, and not up to gigabytes
            usual |= {"RAY_ROTATION_MAX_BYTES": str(LOG_BYTES), "RAY_ROTATION_BACKUP_COUNT": "1"}
            environment |= {name: value for name, value in usual.items() if name not in os.environ}
        if self.address == "local" and "ray" not in sys.modules:  # it looks only once
            environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # no cluster: everything listens on 127.0.0.1
        os.environ.update(environment)

    @contextmanager
    def _connected(self, folder: Path) -> Iterator[None]:
        self._set_environment()
        import ray
        import ray.exceptions

        level = logging.INFO if self.verbose else logging.CRITICAL
        told = f"--address {self.address!r}" + (f" ({self._joined})" if self._joined not in (None, self.address) else "")
        common: dict[str, Any] = {"log_to_driver": self.verbose, "logging_level": level}
        try:
            if self.address == "local":
                self._start(folder, common)
            else:
                passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
                passed["PYTHONPATH"] = os.environ["PYTHONPATH"]  # where a user's task is imported from, on every node
                with nullcontext() if self.verbose else silence():
                    ray.init(address=self._joined or self.address, runtime_env={"env_vars": passed}, **common)
        except (ConnectionError, ray.exceptions.AuthenticationError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].partition(". ")[0]
            raise UserError(
                f"{told} cannot be joined ({reason}): start Ray there, or use local; if it needs a token, "
                "set RAY_AUTH_MODE=token, and put the token into RAY_AUTH_TOKEN or ~/.ray/auth_token"
            ) from None
        except RuntimeError as error:
            found = re.findall(r"Ray: (\S+)\s+Python: (\S+)", str(error))
            if self.address == "local" or len(found) != 2:
                raise
            there, here = (printable(f"Ray {of_ray} on Python {of_python}") for of_ray, of_python in found)
            raise UserError(
                f"{told} has {there}, and this command runs with {here}: install the versions of the "
                "cluster here, or start the command in the image of the cluster"
            ) from None
        logging.getLogger("ray.tune").setLevel(level)
        try:
            self._check_placeable(ray.cluster_resources())
            if self.address != "local" and self.workers is None:
                self.workers = self.fitting()
            yield
        finally:
            try:
                sys.stdout.flush()
            finally:
                ray.shutdown()

    def _start(self, folder: Path, common: dict[str, Any]) -> None:
        """Start an embedded Ray; once more if it does not come up, as parts of it have 15 s each.

        Raises:
            LostRayError: neither did the second. It has the last words of its logs.
            UserError: its sockets fit into no folder for temporary files.
        """
        import ray

        if not fits(folder):
            raise UserError(unfit(folder.parent))
        why = ""
        for name in ("ray", "ry2"):
            place = folder / name
            try:
                with _same_group():
                    ray.init(
                        address="local",
                        num_cpus=max(1, int(self.cpus_per_run * self.all_workers())),
                        include_dashboard=False,
                        object_store_memory=OBJECT_STORE_BYTES,
                        _temp_dir=str(place),
                        **common,
                    )
                return
            except Exception as error:  # Ray has no narrower one for parts of it that do not come up in time
                why = printable(str(error).partition("\n")[0]) + _last_words(place)
                ray.shutdown()
            except BaseException:  # SystemExit, with which Ray answers SIGTERM
                ray.shutdown()
                raise
        raise LostRayError(
            f"Ray could not be started, twice; perhaps the machine is too busy or has too little memory ({why})"
        )

    def parts(self) -> list[Part]:
        """What of Ray must be alive for a launch to get on, as long as it is connected."""
        import ray

        context = ray.get_runtime_context()
        server, _, port = context.gcs_address.rpartition(":")
        server = server.strip("[]")
        if self.address == "local":
            of_raylet = "a part of the embedded Ray"
            head = Part(f"gcs_server, {of_raylet},", server, int(port), self.patience, is_own=True)
        else:  # the head may be away for a while, but soon after this time Ray ends the process without a word
            patience = 0.75 * float(os.environ.get(RAY_PATIENCE, "60"))
            head = Part(f"the head of the cluster ({server})", server, int(port), patience)
            of_raylet = "the part of Ray on this machine"
        here = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        raylets = (Part(f"raylet, {of_raylet},", node["NodeManagerAddress"], node["NodeManagerPort"]) for node in here)
        return [head, *raylets]

    def fitting(self) -> int:
        """Runs that the machines of the cluster that Ray has joined hold now, at a time."""
        import ray

        return max(1, sum(self._on_machine(node["Resources"]) for node in ray.nodes() if node["Alive"]))

    def _on_machine(self, resources: Mapping[str, float]) -> int:
        cpus = int(resources.get("CPU", 0) / self.cpus_per_run)
        return min(cpus, self._on_gpus(resources.get("GPU", 0))) if self.gpus_per_run > 0 else cpus

    def _on_gpus(self, gpus: float) -> int:
        """Runs that the GPUs of one machine hold at a time. Ray gives a run a part of one GPU, or whole ones of one machine."""
        if self.gpus_per_run >= 1:
            return int(gpus / self.gpus_per_run)
        return int(gpus) * (GPU_PARTS // max(1, int(GPU_PARTS * self.gpus_per_run)))

    def _check_placeable(self, resources: dict[str, float]) -> None:
        for name, wanted in (("CPU", self.cpus_per_run), ("GPU", self.gpus_per_run)):
            if self.address == "local" and wanted > resources.get(name, 0.0):
                raise UserError(f"a run asks for {wanted:g} {name}, but Ray has {resources.get(name, 0.0):g} here")


def cores(tree: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores that this process can keep busy: those that it may run on, and no more than its control group, such as that of a
    container, may use at a time (a part of one counts as one).

    Args:
        tree, own: as for `control_groups`.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(bound, *map(_quota, control_groups("cpu", tree, own)))))


def _quota(group: Path) -> float:
    """Cores that a control group may use at a time; infinity if nothing says so."""
    with suppress(OSError, ValueError):  # ValueError: it is "max"
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    with suppress(OSError, ValueError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def _has_token() -> bool:
    with suppress(RuntimeError, PermissionError):  # this user has no home, or may not enter it
        if Path("~/.ray/auth_token").expanduser().is_file():
            return True
    return any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))


def _last_words(place: Path) -> str:
    """The last line of each log of the parts of Ray that must be alive, as far as there are any. Where there are lines that
    tell of an error, the last of these: below it are often a stack or statistics."""
    said, told = list[str](), list[str]()
    for name in ("gcs_server.out", "gcs_server.err", "raylet.out", "raylet.err"):
        with suppress(OSError):  # it has not come so far
            lines = (place / "session_latest" / "logs" / name).read_text(errors="replace").split("\n")
            said += [f"{name}: {line.strip()[-MOST_SAID:]}" for line in lines if line.strip()][-1:]
            told += [f"{name}: {line.strip()[:MOST_SAID]}" for line in lines if TELLING.search(line)][-1:]
    told = told or said
    return "".join(f"; {line}" for line in map(printable, told))


def _check_shared_memory() -> None:
    """
    Raises:
        UserError: there is none on this machine. Ray itself tries for a minute.
    """
    if sys.platform == "linux" and not SHARED_MEMORY.is_dir():
        shared = str(SHARED_MEMORY)
        raise UserError(
            f"this machine has no folder {shared}, which an embedded Ray needs: mount a tmpfs there (mkdir {shared} && mount "
            f"-t tmpfs tmpfs {shared}); a container has one, unless it is started with --ipc=none"
        )


def _check_loopback() -> None:
    """
    Raises:
        UserError: the parts of an embedded Ray could not reach each other. Ray itself tries for a minute.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), LOOPBACK_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"nothing on this machine can be reached at 127.0.0.1 ({error.strerror or error}), which an embedded Ray needs: "
            "bring the loopback interface up (ip link set lo up)"
        ) from None


def _shortage_of_addresses(wanted: float) -> str | None:
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return None
    return (
        f"a process may have {allowed / 1e9:.1f} GB of address space (ulimit -v), and with Ray and torch it takes about "
        f"{ENOUGH_ADDRESSES / 1e9:g} GB, most of them never used; with less it may crash: raise the limit, ulimit -v unlimited"
    )


def _shortage_of_file_size() -> str | None:
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if allowed == resource.RLIM_INFINITY or allowed >= LARGEST_FILE:
        return None
    return (
        f"a file may have at most {allowed / 2**20:.3g} MB (ulimit -f), and Ray needs one of a little more than "
        f"{OBJECT_STORE_BYTES / 2**20:g} MB: raise the limit, ulimit -f unlimited"
    )


def _without_error(given: str) -> str:
    """A filter of PYTHONWARNINGS, shown warnings in place of errors. Python knows a word there also by its first letters."""
    action, colon, rest = given.partition(":")
    is_error = bool(action.strip()) and "error".startswith(action.strip())
    return f"default{colon}{rest}" if is_error else given


def _threads_of(user: int) -> int:
    """How many processes and threads a user of this machine has, as far as can be seen."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if process.stat().st_uid == user:
                total += len(list((process / "task").iterdir()))
    return total


@contextmanager
def _same_group() -> Iterator[None]:
    """Stay in this process group. On macOS Ray takes the launch out of it, and Ctrl-C under `make` or a script would no longer
    reach it."""
    before = os.getpgrp()
    try:
        yield
    finally:
        if os.getpgrp() != before:
            with suppress(OSError):  # the group has ended
                os.setpgid(0, before)
