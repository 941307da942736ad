"""What probe and oracle say of pictures, by composition and by level. The oracle knows rendered figures only, so real pictures
have one judge, the probe.

A sample that is judged is a whole composition, so that its share of right pictures can be held against a gate.
Shapes in comments: n compositions with m pictures each.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainables.generative.oracle import read_by_templates
from trainables.generative.probe import read_by_probe
from trainables.generative.settings import REAL, PictureSettings
from trainables.generative.shapes import FACTORS, NO_FACTOR, ShapeSettings, bits_of, levels

ALONE = ("probe", "oracle")
JUDGES = (*ALONE, "both")
SAID = (*JUDGES, "agree")
BY_FACTOR = {factor: f"both_{factor}" for factor in FACTORS}
"""What the shares are called of pictures in which both judges read a factor right, whatever the others are."""


def on_screen(images: Tensor) -> Tensor:
    """Pictures as a screen shows them: cut off at 0 and 1, and black where a network has come apart and gives no number."""
    return images.nan_to_num(0.0).clamp(0, 1)


def readings(settings: ShapeSettings, probe: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """What the probe and what the oracle reads in pictures (n, 3, N, N), as a screen shows them: 0, 1 or UNCLEAR for each
    factor (n, 3)."""
    shown = on_screen(images)
    return read_by_probe(probe, shown), read_by_templates(settings, shown).bits


def shares_right(settings: ShapeSettings, probe: nn.Module, images: Tensor, bits: Tensor) -> dict[str, Tensor]:
    """The shares (n,) of pictures (n, m, 3, N, N) in which all factors (n, m, 3) are read right by the probe, by the oracle and
    by both; and `agree`, the share that both read right or neither does. Of real pictures there are `probe` and `both`,
    which are the same: all the judges that there are."""
    wanted = bits.flatten(0, 1)
    if isinstance(settings, PictureSettings) and settings.dataset in REAL:
        read = (read_by_probe(probe, on_screen(images.flatten(0, 1))) == wanted).all(1)
        return dict.fromkeys(("probe", "both"), read.view(images.shape[:2]).float().mean(1))
    by_factor = [read == wanted for read in readings(settings, probe, images.flatten(0, 1))]
    probed, fitted = (right.all(1) for right in by_factor)
    said = {"probe": probed, "oracle": fitted, "both": probed & fitted, "agree": probed == fitted}
    if settings.faint != NO_FACTOR:
        said |= dict(zip(BY_FACTOR.values(), (by_factor[0] & by_factor[1]).unbind(1), strict=True))
    return {name: found.view(images.shape[:2]).float().mean(1) for name, found in said.items()}


def curves(shares: Mapping[str, Tensor], bits: Tensor, seen: tuple[str, ...]) -> dict[str, float]:
    """Shares (n,) of compositions `bits` (n, 3) by name: `both_111` of a composition, `both_seen`, `both_level1` and so on, the
    mean of a level, and `both_least`, the least of all. The names are those that `shares` has."""
    level = levels(bits, bits_of(seen).to(bits.device)).tolist()
    words = ["".join(map(str, word)) for word in bits.tolist()]
    found: dict[str, float] = {}
    for name, values in shares.items():
        by_word = dict(sorted(zip(words, values.tolist(), strict=True)))
        found |= {f"{name}_{word}": share for word, share in by_word.items()}
        for one in sorted(set(level)):
            of_level = values[torch.tensor([at == one for at in level], device=values.device)]
            found[f"{name}_{'seen' if one == 0 else f'level{one}'}"] = of_level.mean().item()
        found[f"{name}_least"] = values.min().item()
    return found
