"""Sizes in which the chain is run, from seconds to GPU hours: the settings and the budget of each by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.generative.chain import GENERATOR
from trainables.generative.settings import RENDERED
from trainables.settings import spec_fields
from trainables.spec import RunSpec, Scalar
from trainables.task import load_task

CHOOSING = 100
"""Seeds from here on are for choosing settings: no claim is judged by them."""


@dataclass(frozen=True)
class Tier:
    """One size of a generator's run; its parents follow from its settings."""

    run: Mapping[str, Any]
    """Fields of the `RunSpec`."""
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    """Of the task, where they are neither the defaults nor FIGURES."""
    of_family: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """More of them, by the family whose runs have them."""


FIGURES: Mapping[str, Scalar] = {"radius_small": 0.5, "radius_jitter": 0.04, "colour_jitter": 0.05, "background": 1.0}
"""Settings of all tiers: figures of which a tokenizer that has seen half of the compositions draws the others, too, and a
generator can learn to. Smaller figures lose their shape, and larger jitters make tokens that no seen picture has."""
_OF_ALL: Mapping[str, Scalar] = {**FIGURES, "look_noise": "fresh"}
"""Of all tiers. With fresh noise the mean of some looks is surer than one look."""

_TOY: dict[str, Any] = {
    "N": 24, "data_count": 20_000, "batch_size": 64, "max_steps": 4800, "lr": 3e-3, "weight_decay": 0.0, "schedule": "constant",
    "stop": "budget",
}  # fmt: skip
_SHORT: Mapping[str, Scalar] = {"ema": 0.998}
"""Of few steps: an average over the last 500. One over the last 1,000 shows little but the first weights for half of them."""
_JUDGE: Mapping[str, Scalar] = {"probe_torn": 0.2, "probe_steps": 4000}
"""Of the probe: it reads figures that have come apart a little, as generators draw them, and takes longer to learn it."""
_LARGER_HEAD: Mapping[str, Mapping[str, Scalar]] = {"mar": {"head_depth": 3, "head_width": 256}}
_QUICK: dict[str, Scalar] = {"probe_images": 256, "probe_steps": 60, "probe_gate": 0.0, "probe_width": 4, "tokenizer_gate": 0.0}

TIERS: Mapping[str, Tier] = {
    # seconds; it shows that all parts fit, and nothing else
    "smoke": Tier(
        _TOY | {"N": 16, "data_count": 64, "batch_size": 16, "max_steps": 60},
        _QUICK | {
            "width": 32, "depth": 2, "heads": 2, "codes": 16, "tokenizer_images": 256, "tokenizer_steps": 60, "ema": 0.9,
            "looks": 3, "judged": 4, "ddim_steps": 10, "rounds": 4, "gate": 0.0,
        },
    ),
    # 16 tokens, minutes on a core
    "coarse": Tier(_TOY, {"stride": 6, **_JUDGE, **_SHORT}),
    # the default: 36 tokens, minutes on a core
    "toy": Tier(_TOY, {**_JUDGE, **_SHORT}),
    # long enough to forget: hours on a core
    "long": Tier(_TOY | {"max_steps": 60_000}, _JUDGE),
    # 64 tokens, a network of 4 million parameters
    "gpu": Tier(
        _TOY | {"N": 32, "batch_size": 256, "max_steps": 20_000, "lr": 1e-3},
        {"width": 192, "depth": 6, "heads": 6, "judged": 64, **_JUDGE},
        _LARGER_HEAD,
    ),
    # the sizes of the paper, and its learning rate; it falls otherwise, and noise is another (docs/objectives.md)
    "paper": Tier(
        _TOY | {"N": 28, "batch_size": 256, "max_steps": 100_000, "lr": 1e-4, "schedule": "cosine"},
        {"width": 384, "depth": 12, "heads": 6, "judged": 64, "ema": 0.9999, **_JUDGE},
        _LARGER_HEAD,
    ),
}  # fmt: skip


def generator(tier: str, seed: int = 0, settings: Mapping[str, Scalar] | None = None, **fields: Any) -> RunSpec:
    """The run of a generator in a tier, with other settings of its task, and other fields of its spec, where they are given.

    Raises:
        ValueError: there is no such tier, or a setting or a field is not allowed.
    """
    if tier not in TIERS:
        raise ValueError(f"tier {tier!r} is unknown: choose {', '.join(TIERS)}")
    given = settings or {}
    of_family = TIERS[tier].of_family.get(str(given.get("decoder")), {})
    of_real = {} if given.get("dataset", RENDERED) == RENDERED else {"probe_torn": 0.0}
    chosen = spec_fields(load_task(GENERATOR), {**_OF_ALL, **TIERS[tier].settings, **of_family, **of_real, **given})
    return RunSpec(task=GENERATOR, seed=seed, **chosen, **{**TIERS[tier].run, **fields})
