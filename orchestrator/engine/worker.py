"""A worker: the Tune trainable that trains a pack of runs in short slices."""

from __future__ import annotations

import copy
import dataclasses
import faulthandler
import functools
import io
import socket
import time
import traceback
from typing import Any

import safetensors.torch
import torch
from ray import tune

from orchestrator.engine.messages import Order, PackReport, RunOrder, RunReport
from orchestrator.errors import printable
from trainables.spec import GIVEN_UP, RunSpec
from trainables.task import load_task
from trainables.training.checkpoint import check_saved
from trainables.training.loop import CURVES, Training
from trainables.training.packs import Pack, best_pack_size
from trainables.training.precision import quiet_cpu

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")


@functools.cache
def _needs(cpus: float, gpus: float) -> tune.PlacementGroupFactory:
    """What a worker takes of its machine; made once, as Tune keeps it with each trial."""
    return tune.PlacementGroupFactory([{"CPU": cpus, "GPU": gpus}])


class PackTrainable(tune.Trainable):
    """Trains the runs of `config["order"]` together, one time slice a step, and reports how far they are (`PackReport`).

    Exceptions of a task are reports, not failures of the worker: what Tune sees fail is a lost worker or node, or one that
    ended itself as a step took more than the order's `stall_seconds`.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return _needs(config["cpus"], config["gpus"])

    def setup(self, config: dict[str, Any]) -> None:
        quiet_cpu()
        if 0 < config["gpus"] < 1 and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(config["gpus"])  # it shares the GPU with others
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._order: Order = config["order"]
        self._gpus: float = config["gpus"]
        self._pack: Pack | None = None
        self._trainings: dict[str, Training] = {}
        self._errors: dict[str, str] = {}
        self._notices: dict[str, str] = {}
        """Of runs, to be told with their next report."""
        self._seconds: dict[str, float] = {}
        self._since_saved = 0.0
        self._best_pack_size: int | None = None

    def step(self) -> dict[str, Any]:
        # Ends the process, also while it is deep in a library: the engine knows by its silence what happened.
        faulthandler.dump_traceback_later(self._order.stall_seconds, exit=True, file=2)
        try:
            report = self._advance()
        finally:
            faulthandler.cancel_dump_traceback_later()
        return {"done": report.done, "report": report}

    def _advance(self) -> PackReport:
        try:
            if self._pack is None and not self._trainings:
                self._make()
            began = time.perf_counter()
            busy = [key for key, training in self._trainings.items() if not training.reason]
            if self._pack is not None:
                self._pack.advance(self._order.slice_seconds)
            spent = time.perf_counter() - began
            self._since_saved += spent
            for key in busy:
                self._seconds[key] += spent / len(busy)
            return self._report()
        except Exception as error:
            self._pack = None
            return PackReport(error=traceback.format_exc(), out_of_memory=_is_out_of_memory(error))

    def _make(self) -> None:
        """Make the trainings; a run that cannot be made does not keep the others from being trained."""
        device = "cuda" if torch.cuda.is_available() and self._gpus else "cpu"
        for run in self._order.runs:
            key, spec = run.key, RunSpec.from_dict(run.spec)
            self._seconds[key] = 0.0
            began = time.perf_counter()
            try:
                self._trainings[key] = self._load(key, spec, run.checkpoint, device)
            except Exception as error:
                if _is_out_of_memory(error):
                    raise
                self._errors[key] = traceback.format_exc()
            self._seconds[key] += time.perf_counter() - began
        if not self._trainings:
            return
        self._pack = Pack(list(self._trainings.values()))
        if self._order.measure_pack_size:
            self._best_pack_size = best_pack_size(self._pack.runs[0])

    def _load(self, key: str, spec: RunSpec, checkpoint: bytes | None, device: str) -> Training:
        task = load_task(spec.task)
        if checkpoint is not None:
            try:
                training = Training(spec, task, device)
                saved = torch.load(io.BytesIO(checkpoint), weights_only=True, map_location=device)
                check_saved(saved, training)
                training.load_state_dict(saved["training"])
                self._seconds[key] = saved["seconds"]
                return training
            except Exception as error:
                why = printable(" ".join(str(error).split())[:200])
                self._notices[key] = f"its checkpoint cannot be read, so it starts from the beginning ({why})"
        return Training(spec, task, device)

    def _report(self) -> PackReport:
        runs = {key: RunReport(error=error) for key, error in self._errors.items()}
        self._errors = {}
        save = self._since_saved >= self._order.checkpoint_seconds
        orders = {run.key: run for run in self._order.runs}
        for key, training in list(self._trainings.items()):
            if training.reason:
                told = self._ending(training, orders[key])
                del self._trainings[key]
            else:
                told = self._progress(training, key, save)
            runs[key] = dataclasses.replace(
                told,
                seconds=self._seconds[key],
                host=socket.gethostname(),
                device=str(training.device),
                pack_size=len(self._order.runs),
            )
        for key, notice in self._notices.items():
            runs[key] = dataclasses.replace(runs[key], notice=notice)
        self._notices = {}
        if save:
            self._since_saved = 0.0
        report = PackReport(runs=runs, best_pack_size=self._best_pack_size)
        self._best_pack_size = None
        return report

    def _progress(self, training: Training, key: str, save: bool) -> RunReport:
        return RunReport(
            step=training.progress.step,
            accuracy=training.progress.accuracy,
            curves={name: list(getattr(training, name)) for name in CURVES}
            | {"curve_summary": copy.deepcopy(training.curve_summary)},
            error_is_mse=training.error_is_mse,
            checkpoint=self._saved(key, training.state_dict()) if save else None,
        )

    def _ending(self, training: Training, order: RunOrder) -> RunReport:
        weights = end = None
        if order.save_weights:
            state = training.network.state_dict()
            weights = safetensors.torch.save({name: tensor.contiguous() for name, tensor in state.items()})
        if training.reason == GIVEN_UP and order.keep_end:
            end = self._saved(order.key, training.state_to_the_end())
        result = dataclasses.asdict(training.result())
        return RunReport(result=result, error_is_mse=training.error_is_mse, weights=weights, end=end)

    def _saved(self, key: str, state: dict[str, Any]) -> bytes:
        """A checkpoint."""
        buffer = io.BytesIO()
        torch.save({"training": state, "seconds": self._seconds[key]}, buffer)
        return buffer.getvalue()


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY_WORDS)
