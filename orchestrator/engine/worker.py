"""A worker: the Tune trainable that trains a pack of runs in short slices."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import faulthandler
import functools
import hashlib
import io
import os
import signal
import socket
import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import ray
import safetensors.torch
import torch
from ray import tune

from orchestrator.engine.messages import Order, PackReport, ParentOrder, RunOrder, RunReport
from orchestrator.errors import printable, storable
from orchestrator.versions import versions
from trainables.needs import Parent, WeightsError, trained
from trainables.program import PATH as PROGRAM
from trainables.program_run import PrintedError, ProgramRun
from trainables.spec import GIVEN_UP, RunSpec, run_key
from trainables.task import Task, load_task
from trainables.training.checkpoint import check_saved
from trainables.training.loop import Training
from trainables.training.memory import is_out_of_memory
from trainables.training.pack_size import best_pack_size
from trainables.training.packs import Pack
from trainables.training.precision import quiet_cpu
from trainables.training.result import CURVES
from trainables.training.run import Run, RunError, UnfitError

MEMORY_SHARE = 0.95
"""Of a worker's part of a GPU's memory, how much it may fill with tensors. CUDA takes the rest for each process, uncounted."""

DIGEST, HEX = b"sha256 ", hashlib.sha256().digest_size * 2
"""What a checkpoint begins with, before the hash in so many characters and the end of the line. Those that older versions have
saved begin with what torch saves."""
DAMAGED = "it is damaged: its bytes are not those that were saved"
ELSEWHERE = "continued=elsewhere"
"""Among the versions of a row: the run went on from a checkpoint of another machine, device, size of pack or of other versions,
so it may differ by rounding from one that is trained from the first step on where it ended."""


@functools.cache
def _needs(cpus: float, gpus: float) -> tune.PlacementGroupFactory:
    """What a worker takes of its machine; made once, as Tune keeps it with each trial."""
    return tune.PlacementGroupFactory([{"CPU": cpus, "GPU": gpus}])


class PackTrainable(tune.Trainable):
    """Trains the runs of `config["order"]` together, one time slice a step, and reports how far they are (`PackReport`). A run
    of a program is alone in its order.

    Exceptions of a task are reports, not failures of the worker: what Tune sees fail is a lost worker or node, or one that
    ended itself: because a step took more than the order's `stall_seconds`, or the beginning with an order did, or because CUDA
    had failed in it before it was given its runs.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return _needs(config["cpus"], config["gpus"])

    def setup(self, config: dict[str, Any]) -> None:
        if ray.is_initialized():  # Ray answers SIGTERM with SystemExit, which would be an error of the task that it interrupts
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        quiet_cpu()
        with _watched(config["order"]):
            self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        with _watched(new_config["order"]):
            self._begin(new_config)
        return True

    def cleanup(self) -> None:
        for run in self._runs.values():
            run.close()

    def _begin(self, config: dict[str, Any]) -> None:
        if _cuda_has_failed():  # in the training of other runs, so it must not be an error of these
            os._exit(1)
        for run in getattr(self, "_runs", {}).values():
            run.close()
        given: Order = config["order"]
        self._unmade = list(given.runs)
        """What is still to be made into runs, which may take a while: with checkpoints and weights of parents, read once."""
        light = [dataclasses.replace(order, checkpoint=None, parents={}) for order in given.runs]
        self._order = dataclasses.replace(given, runs=light)
        given.runs = []  # Tune sends the config with every result
        self._gpus: float = config["gpus"]
        self._device = "cuda" if self._gpus and torch.cuda.is_available() else "cpu"
        self._pack: Pack | Run | None = None
        self._runs: dict[str, Run] = {}
        self._errors: dict[str, str] = {}
        self._notices: dict[str, str] = {}
        """Of runs, to be told with their next report."""
        self._seconds: dict[str, float] = {}
        self._moved: set[str] = set()
        """Runs that were begun elsewhere."""
        self._checkpoints: dict[str, bytes] = {}
        self._since_saved = 0.0
        self._best_pack_size: int | None = None
        trains_here = any(order.spec["task"] != PROGRAM for order in self._order.runs)  # a program has a process of its own
        if trains_here and self._gpus < 1 and self._device == "cuda":
            torch.cuda.set_per_process_memory_fraction(MEMORY_SHARE * self._gpus)  # it shares the GPU with others

    def step(self) -> dict[str, Any]:
        with _watched(self._order):
            report = self._advance()
        return {"done": report.error is not None or (report.done and not self._unmade), "report": report}

    def checkpoints(self) -> dict[str, bytes]:
        """Those that were made for the last report, by run key: given away once."""
        given, self._checkpoints = self._checkpoints, {}
        return given

    def drop(self, keys: Collection[str]) -> None:
        """Let runs that the search has pruned leave the pack, by their keys: they are not trained on."""
        for key in keys:
            run = self._runs.pop(key, None)
            if isinstance(run, Training) and isinstance(self._pack, Pack):
                self._pack.drop(run)

    def _advance(self) -> PackReport:
        try:
            self._make()
            if not self._unmade:
                self._train()
            return self._report()
        except RunError as error:
            self._pack = None
            return PackReport(
                error=storable(str(error)),
                failed=self._failed(),
                out_of_memory=is_out_of_memory(error),
                misprinted=isinstance(error, PrintedError),
            )
        except UnfitError as error:
            return PackReport(error=f"on {socket.gethostname()}: {printable(str(error))}", unfit=True)
        except (Exception, SystemExit) as error:
            self._pack = None
            told = storable(traceback.format_exc())
            return PackReport(error=told, failed=self._failed(), out_of_memory=is_out_of_memory(error))

    def _train(self) -> None:
        """Train for a slice. Its time counts also if it ends with an exception."""
        busy = [key for key, run in self._runs.items() if not run.reason]
        began = time.perf_counter()
        try:
            if self._pack is not None:
                self._pack.advance(self._order.slice_seconds)
                self._tell_unstacked(busy[0])
        finally:
            spent = time.perf_counter() - began
            self._since_saved += spent
            for key in busy:
                self._seconds[key] += spent / len(busy)

    def _tell_unstacked(self, key: str) -> None:
        """Say once, with a run of the pack, that it is none."""
        if isinstance(self._pack, Pack) and self._pack.unstacked:
            why, self._pack.unstacked = printable(self._pack.unstacked)[:200], ""
            self._notices[key] = f"cannot be trained together with others, so such runs are trained one by one ({why})"

    def _make(self) -> None:
        """Make the runs that are left to make, for a slice; one that cannot be made does not keep the others from being
        trained."""
        if not self._unmade:
            return
        device, end = self._device, time.monotonic() + self._order.slice_seconds
        while self._unmade:
            order = self._unmade.pop(0)
            key, spec = order.key, RunSpec.from_dict(order.spec)
            self._seconds[key] = 0.0
            began = time.perf_counter()
            try:
                if spec.task == PROGRAM:
                    self._runs[key] = ProgramRun(spec, device, self._order.stall_seconds)
                else:
                    self._runs[key] = self._load(order, spec, device)
            except UnfitError:
                raise
            except (Exception, SystemExit) as error:
                if is_out_of_memory(error) or _cuda_has_failed():  # that may be the doing of another run
                    raise
                self._errors[key] = storable(traceback.format_exc())
            finally:
                self._seconds[key] += time.perf_counter() - began
            if self._unmade and time.monotonic() >= end:
                return
        trainings = [run for run in self._runs.values() if isinstance(run, Training)]
        if trainings:
            self._pack = pack = Pack(trainings)
            if self._order.measure_pack_size and (not self._gpus or device == "cuda"):  # a CPU says nothing of a GPU
                self._best_pack_size = best_pack_size(pack.runs[0])
        elif self._runs:
            (self._pack,) = self._runs.values()

    def _load(self, order: RunOrder, spec: RunSpec, device: str) -> Training:
        key, checkpoint = order.key, order.checkpoint
        own = _task(spec.task)
        _check_key(key, spec, own.version)
        task = _with_parents(own, spec, _parents(order.parents), device)
        training = Training(spec, task, device)
        if checkpoint is None:
            return training
        try:
            saved = _loaded(checkpoint, device)
            check_saved(saved, training)
            training.load_state_dict(saved["training"])
            self._seconds[key] = saved["seconds"]
            if saved.get("moved", False) or saved.get("place", self._place) != self._place:
                self._moved.add(key)
            return training
        except UnfitError:
            raise
        except Exception as error:
            if is_out_of_memory(error):  # which is the doing of the run, not of the checkpoint
                raise
            why = printable(" ".join(str(error).split())[:200])
            self._notices[key] = f"its checkpoint cannot be read, so it starts from the beginning ({why})"
        del training  # some of it may have been loaded
        return Training(spec, task, device)

    @property
    def _place(self) -> tuple[str, str, int, str]:
        """Where runs are trained, as far as it decides their last digits: host, device, size of the pack and versions."""
        return socket.gethostname(), self._device, len(self._order.runs), versions()

    def _placed(self, told: RunReport, key: str) -> RunReport:
        """A report with where its run is trained, and for how long."""
        host, device, pack_size, used = self._place
        used = f"{used} {ELSEWHERE}" if key in self._moved else used
        seconds = self._seconds.get(key, 0.0)
        return dataclasses.replace(told, seconds=seconds, host=host, device=device, pack_size=pack_size, versions=used)

    def _failed(self) -> dict[str, RunReport]:
        """What `PackReport.failed` says."""
        return {order.key: self._placed(RunReport(), order.key) for order in self._order.runs}

    def _report(self) -> PackReport:
        runs = {key: self._placed(RunReport(error=error), key) for key, error in self._errors.items()}
        self._errors, self._checkpoints = {}, {}
        save = self._since_saved >= self._order.checkpoint_seconds
        orders = {order.key: order for order in self._order.runs}
        for key, run in list(self._runs.items()):
            if run.reason:
                told = self._ending(run, orders[key])
                del self._runs[key]
            else:
                told = self._progress(run)
                if save and (state := run.state_dict()) is not None:
                    self._checkpoints[key] = self._saved(key, state)
            runs[key] = self._placed(told, key)
        for key, notice in self._notices.items():
            runs[key] = dataclasses.replace(runs[key], notice=notice)
        self._notices = {}
        if save:
            self._since_saved = 0.0
        is_asked = self._checkpoints or len(self._runs) > 1
        actor = ray.get_runtime_context().current_actor if is_asked and ray.is_initialized() else None
        report = PackReport(runs=runs, actor=actor, saved=bool(self._checkpoints), best_pack_size=self._best_pack_size)
        self._best_pack_size = None
        return report

    def _progress(self, run: Run) -> RunReport:
        return RunReport(
            step=run.progress.step,
            accuracy=run.progress.accuracy,
            curves={name: list(getattr(run, name)) for name in CURVES} | {"curve_summary": copy.deepcopy(run.curve_summary)},
            error_is_mse=run.error_is_mse,
        )

    def _ending(self, run: Run, order: RunOrder) -> RunReport:
        weights = end = None
        if isinstance(run, Training):
            if order.save_weights:
                weights = safetensors.torch.save(_apart(run.network.state_dict()))
            if run.reason == GIVEN_UP and order.keep_end:
                end = self._saved(order.key, run.state_to_the_end())
        line = printable(run.line)[:200] if isinstance(run, ProgramRun) else ""
        result = dataclasses.asdict(run.result())
        return RunReport(result=result, error_is_mse=run.error_is_mse, weights=weights, end=end, line=line)

    def _saved(self, key: str, state: dict[str, Any]) -> bytes:
        """A checkpoint, behind a SHA-256 of it: torch reads tensors with other bytes without a word."""
        buffer = io.BytesIO()
        begin = buffer.write(DIGEST + bytes(HEX) + b"\n")
        saved = {"training": state, "seconds": self._seconds[key], "place": self._place, "moved": key in self._moved}
        torch.save(saved, buffer)
        with buffer.getbuffer() as whole:
            whole[len(DIGEST) : begin - 1] = _digest(whole[begin:])
        return buffer.getvalue()


@contextlib.contextmanager
def _watched(order: Order) -> Iterator[None]:
    """Ends the process if the block takes longer than `stall_seconds`, also while it is deep in a library: the engine knows by
    its silence what happened."""
    faulthandler.dump_traceback_later(order.stall_seconds, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _cuda_has_failed() -> bool:
    """Whether CUDA is of no use any more in this process: after some faults, as an illegal access, every call of it fails."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return not is_out_of_memory(error)
    return False


def _loaded(checkpoint: bytes, device: str) -> Any:
    """
    Raises:
        ValueError: it is damaged, or it asks for more memory than there is: a few bytes may ask for any number.
        Exception: it cannot be read.
    """
    file = io.BytesIO(checkpoint)
    if checkpoint.startswith(DIGEST):
        head = file.readline(len(DIGEST) + HEX + 1)
        if head != DIGEST + _digest(memoryview(checkpoint)[len(head) :]) + b"\n":
            raise ValueError(DAMAGED)
    try:
        return torch.load(file, weights_only=True, map_location=device)
    except MemoryError:
        raise ValueError("it asks for more memory than there is") from None


def _digest(data: memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _task(path: str) -> Task:
    """
    Raises:
        UnfitError: it cannot be loaded. Where the command was started it was, so this says something of the machine.
    """
    try:
        return load_task(path)
    except ValueError as error:
        if is_out_of_memory(error):
            raise
        why = printable(" ".join(f"{type(cause).__name__}: {cause}".split())[:200]) if (cause := error.__cause__) else error
        raise UnfitError(
            f"{path} cannot be loaded ({why}), though it could where the command was started: put the same files and packages "
            "on all machines"
        ) from error


def _check_key(key: str, spec: RunSpec, version: str) -> None:
    """
    Raises:
        UnfitError: with this version of its task the run would have another key, so its result is none of the one asked for.
    """
    if run_key(spec, version) != key:
        raise UnfitError(
            f"{spec.task} has version {version!r} here, and this is not the one, or not the version of this program, with "
            "which the command was started: install the same on all machines"
        )


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as a safetensors file takes them: in one piece, and a copy of those that lie where another one does, as weights
    that are tied. A network into which they are loaded ties them itself."""
    found: dict[str, torch.Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        one = tensor.contiguous()
        place = one.untyped_storage().data_ptr()
        found[name] = one.clone() if place in places else one
        places.add(place)
    return found


def _parents(orders: Mapping[str, ParentOrder]) -> dict[str, Parent]:
    """Runs that another one needs, with their weights fetched. Their tasks can be loaded.

    Raises:
        UnfitError: as `_task`.
    """
    for order in orders.values():
        _task(order.spec["task"])
    return {
        name: Parent(RunSpec.from_dict(order.spec), ray.get(order.weights), _parents(order.parents))
        for name, order in orders.items()
    }


def _with_parents(task: Task, spec: RunSpec, parents: Mapping[str, Parent], device: str) -> Task:
    """As `trained`.

    Raises:
        UnfitError: weights give no network. That says nothing of the run that needs it.
    """
    try:
        return trained(task, parents, device)
    except WeightsError as error:
        if is_out_of_memory(error):
            raise
        left = error.spec.task
        key, why = run_key(error.spec, load_task(left).version), printable(" ".join(str(error).split())[:200])
        raise UnfitError(
            f"the weights of run {key} of {left}, which {spec.task} needs, give no network ({why}): move "
            f"weights/{key}.safetensors away, and the run is trained again; or give {left} a new version if it has changed"
        ) from error
