"""The task that trains a generator on tokens of the seen compositions, and samples all eight along the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from trainables.generative.chain import probe_of, tokenizer_of
from trainables.generative.dit import DiT
from trainables.generative.givt import GIVT
from trainables.generative.judge import BY_FACTOR, SAID, curves, shares_right
from trainables.generative.mar import MAR
from trainables.generative.maskgit import MaskGIT
from trainables.generative.pictures import few, pool
from trainables.generative.settings import AS_CLASSES, FRESH, OF_CONDITIONING, OF_HEAD, GeneratorSettings, meaningless
from trainables.generative.shapes import COMPOSITIONS, Pictures, ShapeSettings, bits_of, class_conditions, seen_of
from trainables.generative.tokenizer_task import TokenizerTask
from trainables.generative.trunk import Conditions
from trainables.settings import read_settings, settings_of
from trainables.spec import Counts, RunSpec, Scalar
from trainables.task import Data, Split

HELD_OUT = 256
MODELS: Mapping[str, type[nn.Module]] = {"dit": DiT, "maskgit": MaskGIT, "givt": GIVT, "mar": MAR}
"""By the objective. Each takes the settings that are its own by their names."""


class GeneratorTask:
    """It learns from `data_count` pictures of the seen compositions. A sample that it is judged on is a composition: `judged`
    pictures are drawn for the class means of it, and it is correct if both judges read a share of `gate` right. The loss on
    what is held out is that of the unseen compositions."""

    version = f"4.{TokenizerTask.version}"
    settings = GeneratorSettings
    timing = staticmethod(few)

    def matters(self, settings: Mapping[str, Scalar]) -> Collection[str]:
        """All settings but those that are `meaningless` beside the others."""
        return settings_of(GeneratorSettings).keys() - meaningless(settings)

    def needs(self, spec: RunSpec) -> Mapping[str, RunSpec]:
        return {"tokenizer": tokenizer_of(spec), "probe": probe_of(spec)}

    def counts(self, spec: RunSpec) -> Counts:
        """
        Raises:
            ValueError: as of the tokenizer.
        """
        return TokenizerTask().counts(spec)

    def data(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> Data:
        """Conditions (n, 5), and latents (n, T, d), or codes (n, T) of maskgit."""
        settings, seen = read_settings(GeneratorSettings, spec), seen_of(spec.holdout)
        unseen = tuple(word for word in COMPOSITIONS if word not in seen)
        train = pool(settings, spec.N, seen, spec.data_count, spec.seed)
        held_out = pool(settings, spec.N, unseen, HELD_OUT, spec.seed, "generator held out")
        return Data(*(tokens_of(spec, _told(settings, made), parents["tokenizer"]) for made in (train, held_out)))

    def judged(self, spec: RunSpec) -> Data:
        """The class means (compositions, m, 5) of the seen compositions, and of all."""
        settings = read_settings(GeneratorSettings, spec)
        return Data(_asked(settings, seen_of(spec.holdout), settings.judged), _asked(settings, COMPOSITIONS, settings.judged))

    def looks(self, spec: RunSpec) -> int:
        return 20 * max(1, round(spec.max_steps / (20 * int(spec.option("looks")))))

    def model(self, spec: RunSpec) -> nn.Module:
        s = read_settings(GeneratorSettings, spec)
        own = {name: getattr(s, name) for name in ("width", "depth", "heads", "ema", *OF_HEAD[s.decoder])}
        dropout = s.dropout if s.conditioning in OF_CONDITIONING else 0.0
        own["conditions"] = partial(Conditions, embedding=s.embedding, dropout=dropout, mode=s.dropout_mode)
        made = MODELS[s.decoder]((spec.N // s.stride) ** 2, s.codes if s.decoder == "maskgit" else s.channels, **own)
        made.samples_afresh = s.look_noise == FRESH  # type: ignore[assignment]
        return made

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split, parents: Mapping[str, nn.Module]) -> Mapping[str, Tensor]:
        """Of sampled tokens (n, m, T, ...), as pictures: the shares (n,) that the judges read right, and how often they agree.
        Latents are decoded as they are, also where they are vectors of codes."""
        images = pictures(parents["tokenizer"], outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])
        shares = shares_right(read_settings(GeneratorSettings, spec), parents["probe"], images, split.truth)
        return {"correct": shares["both"] >= float(spec.option("gate")), **shares}

    def summarise(self, spec: RunSpec, measures: Mapping[str, Tensor], split: Split) -> Mapping[str, float]:
        """By probe, by oracle and by both: the share of each composition and each level that is read right; and how often the
        judges agree; if a factor is faint, also those of each factor alone. Of real pictures there are those by the probe."""
        shares = {name: measures[name] for name in (*SAID, *BY_FACTOR.values()) if name in measures}
        return curves(shares, split.truth[:, 0], seen_of(spec.holdout))


def pictures(tokenizer: nn.Module, tokens: Tensor) -> Tensor:
    """Pictures (n, 3, N, N) of latents (n, T, d) or codes (n, T)."""
    latents = tokens if tokens.is_floating_point() else tokenizer.vectors(tokens)  # type: ignore[operator]
    decoded: Tensor = tokenizer.decode(latents)  # type: ignore[operator]
    return decoded


@torch.no_grad()
def tokens_of(spec: RunSpec, made: Pictures, tokenizer: nn.Module) -> Split:
    """What a generator learns of pictures."""
    where = next(tokenizer.parameters()).device
    encoded = tokenizer.codes if spec.decoder == "maskgit" else tokenizer.latents
    tokens: Tensor = encoded(made.images.to(where)).cpu()  # type: ignore[operator]
    return Split(made.conditions, tokens, made.bits)


def _told(settings: GeneratorSettings, made: Pictures) -> Pictures:
    """The pictures with what a model is told of them."""
    if settings.conditioning not in AS_CLASSES:
        return made
    return made._replace(conditions=class_conditions(settings, made.bits))


def _asked(settings: ShapeSettings, words: tuple[str, ...], each: int) -> Split:
    """Compositions to be sampled, `each` times from the mean of their classes."""
    bits = bits_of(words)
    told = class_conditions(settings, bits)
    asked, wanted = (t[:, None].expand(-1, each, -1).contiguous() for t in (told, bits))
    return Split(asked, wanted, wanted)
