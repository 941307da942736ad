"""The task that trains a tokenizer, which passes if probe and oracle read its reconstructions of every composition (gate 2)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainables.generative.chain import probe_of
from trainables.generative.judge import ALONE, curves, shares_right
from trainables.generative.pictures import bundles, few, pool
from trainables.generative.probe_task import SMALLEST_N, ProbeTask
from trainables.generative.settings import TokenizerSettings
from trainables.generative.shapes import COMPOSITIONS, Pictures, seen_of
from trainables.generative.tokenizers import Tokenizer
from trainables.settings import read_settings
from trainables.spec import LARGEST, Counts, RunSpec
from trainables.task import Data, Split
from trainables.training.seeds import stream

STARTED_FROM = 1024
"""Pictures from whose patches a tokenizer starts: of the compositions that it learns from, also where it learns from fewer."""
HELD_OUT = 256
SELDOM = 4
"""Looks in all: two judges read every reconstruction."""


class TokenizerTask:
    """It learns from `data_count` pictures of the seen compositions, or of all. A sample that it is judged on is a composition:
    `judged` fresh pictures of it, of whose reconstructions every judge must read a share of `gate`."""

    version = f"3.{ProbeTask.version}"
    settings = TokenizerSettings
    timing = staticmethod(few)

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        return {"probe": probe_of(spec)}

    def counts(self, spec: RunSpec) -> Counts:
        """
        Raises:
            ValueError: pictures that are too small, or that tokens do not fill; more codes than vectors to start from.
        """
        stride = int(spec.option("stride"))
        if spec.N < SMALLEST_N or spec.N % stride:
            raise ValueError(f"N must be a multiple of stride = {stride} and at least {SMALLEST_N}, not {spec.N}")
        codes, vectors = int(spec.option("codes")), STARTED_FROM * (spec.N // stride) ** 2
        if spec.encoding == "vq" and codes > vectors:
            raise ValueError(f"codes must be at most {vectors}, the vectors that they start from here, not {codes}")
        return Counts(low=len(COMPOSITIONS), high=LARGEST // spec.N**2)

    def data(self, spec: RunSpec) -> Data:
        """Pictures (n, 3, N, N) and their bits. Those that are held out are of all compositions."""
        settings = read_settings(TokenizerSettings, spec)
        held_out = pool(settings, spec.N, COMPOSITIONS, HELD_OUT, spec.seed, "held out")
        return Data(*(Split(made.images, made.bits, made.bits) for made in (_pool(settings, spec, spec.data_count), held_out)))

    def judged(self, spec: RunSpec) -> Data:
        """Fresh pictures (compositions, m, 3, N, N) of the seen compositions, and of all."""
        settings, splits = read_settings(TokenizerSettings, spec), []
        for name, words in (("tokenizer again", seen_of(spec.holdout)), ("tokenizer judged", COMPOSITIONS)):
            images, _, bits = bundles(settings, spec.N, words, settings.judged, spec.seed, name)
            splits.append(Split(images, bits, bits))
        return Data(*splits)

    def looks(self, spec: RunSpec) -> int:
        return 20 * max(1, round(spec.max_steps / (20 * SELDOM)))

    def model(self, spec: RunSpec) -> Tokenizer:
        s = read_settings(TokenizerSettings, spec)
        return Tokenizer(s.encoding, s.decoder, spec.N, s.stride, s.channels, s.width, s.codes)

    def start_model(self, spec: RunSpec, model: Tokenizer) -> None:
        """It starts where STARTED_FROM pictures say."""
        settings = read_settings(TokenizerSettings, spec)
        model.start(_pool(settings, spec, STARTED_FROM).images, stream(spec.seed, "k-means"))

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split, parents: Mapping[str, nn.Module]) -> Mapping[str, Tensor]:
        """Of reconstructions (n, m, 3, N, N): the shares (n,) that the judges read right, whether those of both are as large as
        the gate, and the mean squared error."""
        shares = shares_right(read_settings(TokenizerSettings, spec), parents["probe"], outputs, split.truth)
        least = torch.stack([shares[judge] for judge in ALONE if judge in shares]).amin(0)
        passes = least >= float(spec.option("gate"))
        return {"correct": passes, "mse": (outputs - split.inputs).square().flatten(1).mean(1), **shares}

    def summarise(self, spec: RunSpec, measures: Mapping[str, Tensor], split: Split) -> Mapping[str, float]:
        """By probe and by oracle: the share of each composition and each level that is read right, and the least of them."""
        shares = {judge: measures[judge] for judge in ALONE if judge in measures}
        return curves(shares, split.truth[:, 0], seen_of(spec.holdout))


def _pool(settings: TokenizerSettings, spec: RunSpec, count: int) -> Pictures:
    """Pictures that a tokenizer learns from."""
    words = COMPOSITIONS if settings.fit == "all" else seen_of(settings.holdout)
    return pool(settings, spec.N, words, count, spec.seed)
