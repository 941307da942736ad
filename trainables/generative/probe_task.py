"""The task that trains the probe, which passes if it reads enough fresh pictures of every composition right (gate 1)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from trainables.generative.judge import curves
from trainables.generative.pictures import POOL, bundles, few, lessons
from trainables.generative.probe import KINDS, Probe
from trainables.generative.settings import ProbeSettings
from trainables.generative.shapes import COMPOSITIONS
from trainables.settings import read_settings
from trainables.spec import LARGEST, Counts, RunSpec
from trainables.task import Data, Split
from trainables.training.seeds import stream_seed

HELD_OUT = 256
SMALLEST_N = 12


class ProbeTask:
    """It learns from `data_count` pictures, clear and unclear ones. A sample that it is judged on is a composition: `judged`
    fresh pictures of it, whose share of right ones `correct` holds against the gate. So a target of 1 asks all to pass."""

    version = "1"
    settings = ProbeSettings
    loss = "cross-entropy"
    timing = staticmethod(few)

    def counts(self, spec: RunSpec) -> Counts:
        """
        Raises:
            ValueError: pictures too small for a figure.
        """
        if spec.N < SMALLEST_N:
            raise ValueError(f"N must be at least {SMALLEST_N} pixels, not {spec.N}")
        return Counts(low=len(COMPOSITIONS) * len(KINDS), high=LARGEST // spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        """Pictures (n, 3, N, N) and classes (n, 3); unclear ones are among both."""
        settings, splits = read_settings(ProbeSettings, spec), []
        held_out = (HELD_OUT, stream_seed(spec.seed, "held out"), "held out")
        for count, seed, name in ((spec.data_count, spec.seed, POOL), held_out):
            images, classes = lessons(settings, spec.N, count, seed, name, settings.lessons, settings.torn)
            splits.append(Split(images, classes, classes))
        return Data(*splits)

    def judged(self, spec: RunSpec) -> Data:
        """Fresh pictures (8, m, 3, N, N) of every composition, and their bits (8, m, 3)."""
        settings, splits = read_settings(ProbeSettings, spec), []
        for name in ("probe again", "probe judged"):
            images, _, bits = bundles(settings, spec.N, COMPOSITIONS, settings.judged, spec.seed, name)
            splits.append(Split(images, bits, bits))
        return Data(*splits)

    def model(self, spec: RunSpec) -> nn.Module:
        return Probe(spec.decoder, spec.N, spec.width)

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """Of logits (n, classes, m, 3): `read`, the share of a composition's pictures with all factors right (n,), and whether
        it is as large as the gate."""
        read = (outputs.argmax(1) == split.truth).all(2).float().mean(1)
        return {"correct": read >= float(spec.option("gate")), "read": read}

    def summarise(self, spec: RunSpec, measures: Mapping[str, Tensor], split: Split) -> Mapping[str, float]:
        """The share of each composition that is read right, and the least of them."""
        return curves({"read": measures["read"]}, split.truth[:, 0], COMPOSITIONS)
