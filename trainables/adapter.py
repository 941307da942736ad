"""The one place where training meets Ray: a Tune trainable that trains one run in short slices."""

from __future__ import annotations

import dataclasses
import io
import socket
import sys
import time
import traceback
from typing import Any

import safetensors.torch
import torch
from ray import tune

from orchestrator.spec import RunSpec
from trainables.task import load_task
from trainables.training import CURVES, Training, quiet_cpu

OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")


class RunTrainable(tune.Trainable):
    """Trains the run in `config["run"]`, one time slice a step, and reports how far it is.

    A report is one of: progress (`step`, `accuracy`, the curves so far, perhaps a `checkpoint`), or, with `done`, either
    `result` (a `RunResult` as a dict) or `error` (a traceback; `out_of_memory` says whether memory ran out). Exceptions of
    a task are reports, not failures of the worker: what Tune sees fail is a lost worker or node.
    """

    def setup(self, config: dict[str, Any]) -> None:
        quiet_cpu()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self._config = config
        self._training: Training | None = None
        self._seconds = 0.0
        self._saved_at = 0.0

    def step(self) -> dict[str, Any]:
        report = self._advance()
        return {"done": report["done"], "report": [report]}  # in a list, since Tune takes nested dicts apart

    def _advance(self) -> dict[str, Any]:
        started = time.perf_counter()
        try:
            if self._training is None:
                self._training = self._make()
            finished = self._training.advance(self._config["slice_seconds"])
        except Exception as error:
            out_of_memory = isinstance(error, MemoryError) or any(w in str(error) for w in OUT_OF_MEMORY_WORDS)
            self._training = None
            return {"done": True, "error": traceback.format_exc(), "out_of_memory": out_of_memory}
        self._seconds += time.perf_counter() - started
        return self._finished(self._training) if finished else self._progress(self._training)

    def _make(self) -> Training:
        spec = RunSpec.from_dict(self._config["run"])
        device = "cuda" if torch.cuda.is_available() and self._config["gpu"] else "cpu"
        task = load_task(spec.task)
        if self._config["checkpoint"] is not None:
            try:
                training = Training(spec, task, device)
                saved = torch.load(io.BytesIO(self._config["checkpoint"]), weights_only=True, map_location=device)
                training.load_state_dict(saved["training"])
                self._seconds = self._saved_at = saved["seconds"]
                return training
            except Exception as error:
                print(f"a checkpoint cannot be read, the run starts anew: {error}", file=sys.stderr)
        return Training(spec, task, device)

    def _progress(self, training: Training) -> dict[str, Any]:
        report: dict[str, Any] = {"done": False, **training.progress._asdict(), "device": str(training.device)}
        report |= {name: list(getattr(training, name)) for name in CURVES}
        report |= {"seconds": self._seconds, "host": socket.gethostname()}
        if self._seconds - self._saved_at >= self._config["checkpoint_seconds"]:
            self._saved_at = self._seconds
            buffer = io.BytesIO()
            torch.save({"training": training.state_dict(), "seconds": self._seconds}, buffer)
            report["checkpoint"] = buffer.getvalue()
        return report

    def _finished(self, training: Training) -> dict[str, Any]:
        report = {
            "done": True,
            "result": dataclasses.asdict(training.result()),
            "seconds": self._seconds,
            "host": socket.gethostname(),
        }
        if self._config["save_weights"]:
            report["weights"] = safetensors.torch.save(training.model.state_dict())
        self._training = None
        return report
