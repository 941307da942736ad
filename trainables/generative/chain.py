"""Which runs need which: the probe before the tokenizer, both before the generator. All of a chain have one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trainables.generative.settings import PictureSettings
from trainables.settings import spec_fields, value_of
from trainables.spec import RunSpec, Scalar
from trainables.task import load_task

PROBE = "trainables.generative.probe_task:ProbeTask"
TOKENIZER = "trainables.generative.tokenizer_task:TokenizerTask"
GENERATOR = "trainables.generative.generator_task:GeneratorTask"
PARENT: Mapping[str, Any] = {"batch_size": 64, "lr": 2e-3, "schedule": "cosine", "target": 1.0, "stop": "budget"}
"""How a probe or a tokenizer is trained: to its end, and it has passed if all compositions did."""
OF_PROBE = {
    "decoder": "probe", "width": "probe_width", "lessons": "probe_lessons", "torn": "probe_torn", "gate": "probe_gate",
}  # fmt: skip
"""What a run that needs a probe calls the settings of the probe."""


def probe_of(spec: RunSpec) -> RunSpec:
    """The probe that judges a tokenizer or a generator."""
    fields: dict[str, Any] = {"data_count": spec.option("probe_images"), "max_steps": spec.option("probe_steps")}
    return _parent(PROBE, spec, {name: value_of(spec, own) for name, own in OF_PROBE.items()}, **fields)


def tokenizer_of(spec: RunSpec) -> RunSpec:
    """The tokenizer whose tokens a generator learns."""
    same = ("fit", "stride", "channels", "codes", *OF_PROBE.values(), "probe_images", "probe_steps")
    renamed = {"decoder": "network", "width": "tokenizer_width", "gate": "tokenizer_gate"} | {name: name for name in same}
    given = {"encoding": spec.encoding, "holdout": spec.holdout} | {name: value_of(spec, own) for name, own in renamed.items()}
    fields: dict[str, Any] = {"data_count": spec.option("tokenizer_images"), "max_steps": spec.option("tokenizer_steps")}
    return _parent(TOKENIZER, spec, given, weight_decay=0.0, **fields)


def _parent(task: str, spec: RunSpec, given: Mapping[str, Scalar], **fields: Any) -> RunSpec:
    """A run of a task, at the grid size and the seed of `spec`, with its pictures and with these settings and fields."""
    of_pictures = {field.name: value_of(spec, field.name) for field in dataclasses.fields(PictureSettings)}
    settings = spec_fields(load_task(task), {**of_pictures, **given})
    return RunSpec(task=task, N=spec.N, seed=spec.seed, **settings, **{**PARENT, **fields})
