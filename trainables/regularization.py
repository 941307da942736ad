"""The subject of the regularization study: all bumps outside a box, drawn by the low-rank decoder (paper section 4.1).

A run whose `holdout` is `corner` or `center` learns from all coordinates outside the box and is judged in it. All other words
choose settings without the box: no coordinate of it is in the data of such a run at all. All are questions of the same kind:
every x and every y has been seen, but not together.

`corner-box-1` to `-4` hold out a pseudo-box each, which is cut from the coordinates outside the box: the values in the box's
range with one half of the other values, in x and y or in y and x. To the values of that half the pseudo-box is what the box is
to the values in its range: a wide stretch of partners, of which they were seen with none.

`corner-validation` holds out all that lies outside the box's range in x *and* in y. It says nothing of values in that range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trainables.bumps import bump_images, check_lengths, grid_centres, judge_peaks
from trainables.lowrank import INITS, LowRank
from trainables.settings import defaults_of, read_settings, setting
from trainables.spec import LIMITS, Counts, RunSpec, Scalar
from trainables.task import Data, Split

TASK = "trainables.regularization:RegularizationTask"
DECODER_TASK = "trainables.regularization:DecoderTask"
WEIGHTS = ("lambda_entropy", "lambda_variance")
PUBLISHED = dict(zip(WEIGHTS, (0.1, 0.01), strict=True))
"""The authors' weights (paper section 4.1)."""
COMPARED: Mapping[str, Mapping[str, float]] = {
    "none": dict.fromkeys(WEIGHTS, 0.0),
    "entropy": {**PUBLISHED, "lambda_variance": 0.0},
    "variance": {**PUBLISHED, "lambda_entropy": 0.0},
    "both": PUBLISHED,
}
"""The four settings of the paper's comparison."""

REGIONS = ("corner", "center")
BOXES = ("-box-1", "-box-2", "-box-3", "-box-4")
VALIDATION = "-validation"
SMALLEST_N = 8
BOX_SHARE = 20 / 32
"""Side of the box as a share of N: the published 20 of 32 pixels."""


def box_range(region: str, N: int) -> tuple[int, int]:
    """First and last coordinate of the box, both inclusive, the same for x and y: the upper right corner of the image ([12, 31]
    at N = 32, as published), or its centre ([6, 25]). The corner of the bump task, `heldout.box_bounds`, is another one."""
    side = round(BOX_SHARE * N)
    low = N - side if region == "corner" else (N - side) // 2
    return low, low + side - 1


def regions(region: str, N: int) -> dict[str, Tensor]:
    """Whole coordinates (n, 2), x and y, of the three sets: `ood`, `validation` and `rest`, in raster order."""
    grid = grid_centres(N)
    low, high = box_range(region, N)
    inside = ((grid >= low) & (grid <= high)).sum(dim=1)
    return {name: grid[inside == count] for name, count in (("ood", 2), ("validation", 0), ("rest", 1))}


def region_of(holdout: str) -> str:
    """The box that a word for what is held out is about."""
    return holdout.partition("-")[0]


def split_of(holdout: str, N: int) -> tuple[Tensor, Tensor]:
    """Whole coordinates (n, 2) to learn from, and to be judged on."""
    sets = regions(region_of(holdout), N)
    if holdout.endswith(VALIDATION):
        return sets["rest"], sets["validation"]
    outside = torch.cat([sets["validation"], sets["rest"]])
    if holdout in REGIONS:
        return outside, sets["ood"]
    held_out = _pseudo_box(region_of(holdout), N, outside, BOXES.index(holdout.removeprefix(region_of(holdout))))
    return outside[~held_out], outside[held_out]


def _pseudo_box(region: str, N: int, centres: Tensor, number: int) -> Tensor:
    """Which coordinates (n, 2) lie in the pseudo-box of this number: (n,)."""
    values = torch.arange(N)
    low, high = box_range(region, N)
    inside = (values >= low) & (values <= high)
    halves = values[~inside].tensor_split(2)
    half = torch.isin(values, halves[number // 2])
    x, y = centres.long().T
    return half[x] & inside[y] if number % 2 == 0 else half[y] & inside[x]


@dataclass(frozen=True, kw_only=True)
class RegularizationSettings:
    """The published shape and weights. The two penalties are sums over factors, tokens and modes."""

    dataset: str = setting("bumps", "Training images.", words=("bumps",))
    decoder: str = setting("low-rank", "Decoder.", words=("low-rank",))
    depth: int = setting(2, "Hidden layers.", low=0, high=LIMITS["depth"][1])
    width: int = setting(2, "Channels of a hidden layer.", low=1, high=LIMITS["width"][1])
    encoding: str = setting("one-hot", "Code of the coordinates.", words=("one-hot",))
    holdout: str = setting(
        "corner", "The held-out box.", words=(*REGIONS, *(r + part for r in REGIONS for part in (VALIDATION, *BOXES)))
    )
    sigma: float = setting(1.5, "Width of a bump in pixels.")
    tolerance: int = setting(1, "Pixels by which a correct peak may be off in x and in y.")
    rank: int = setting(0, "Most modes of a token's matrix; 0 for N.")
    init: str = setting("published", "Initial values, see `LowRank`.")
    lambda_entropy: float = setting(0.1, "Weight of the entropy penalty.")
    lambda_variance: float = setting(0.01, "Weight of the variance penalty.")


class RegularizationTask:
    """All bumps, none drawn by chance: the seed decides initial weights and order alone."""

    version = "1"
    settings = RegularizationSettings
    packable = (*WEIGHTS, "holdout")
    defaults: Mapping[str, Scalar] = defaults_of(RegularizationSettings)

    def counts(self, spec: RunSpec) -> Counts:
        """All coordinates there are to learn from: one count.

        Raises:
            ValueError: a size or option that this task cannot do.
        """
        _validate(spec)
        train, _ = split_of(spec.holdout, spec.N)
        return Counts(low=len(train), high=len(train))

    def data(self, spec: RunSpec) -> Data:
        """Training and held-out images and tokens, float32 and int64 on the CPU.

        Raises:
            ValueError: as `counts`, or another data count.
        """
        allowed = self.counts(spec).low
        if spec.data_count != allowed:
            raise ValueError(f"data_count must be {allowed} at N = {spec.N}, holdout {spec.holdout}, not {spec.data_count}")
        train, held_out = split_of(spec.holdout, spec.N)
        return Data(train=self.split(spec, train), held_out=self.split(spec, held_out))

    def split(self, spec: RunSpec, centres: Tensor) -> Split:
        """Token pairs (n, 2) and images (n, 1, N, N) of whole coordinates (n, 2)."""
        return Split(inputs=centres.long(), targets=bump_images(centres, spec.N, float(spec.option("sigma"))), truth=centres)

    def model(self, spec: RunSpec) -> nn.Module:
        """The decoder from token pairs (n, 2) to images (n, 1, N, N), freshly initialised."""
        return self._decoder(spec)

    def _decoder(self, spec: RunSpec, **more: Any) -> LowRank:
        return LowRank(
            spec.N,
            int(spec.option("rank")) or spec.N,
            channels=spec.width,
            depth=spec.depth,
            entropy_weight=float(spec.option("lambda_entropy")),
            variance_weight=float(spec.option("lambda_variance")),
            init=str(spec.option("init")),
            **more,
        )

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """As `BumpTask.measure`: `correct`, `exact`, `proper` and `mse`, each (n,)."""
        judged = judge_peaks(outputs, split.truth, float(spec.option("sigma")), float(spec.option("tolerance")))
        return judged | {"mse": (outputs - split.targets).square().flatten(1).mean(dim=1)}


@dataclass(frozen=True, kw_only=True)
class DecoderSettings(RegularizationSettings):
    """What the published decoder has not: our own changes."""

    padding: int = setting(0, "Pixels by which layers are larger than the picture, on each side.", low=0, high=16)
    ema: float = setting(0.0, "Decay of the average of the weights that is judged; 0 for none.", low=0, high=0.9999)
    beta2: float = setting(0.999, "Decay of AdamW's average of squared gradients.", low=0, high=0.9999, later=True)


class DecoderTask(RegularizationTask):
    """The same task for a decoder of which all may be searched, see `DecoderSettings`."""

    settings = DecoderSettings

    def model(self, spec: RunSpec) -> nn.Module:
        found = read_settings(DecoderSettings, spec)
        return self._decoder(spec, padding=found.padding, ema=found.ema, beta2=found.beta2)


TASKS: Mapping[str, type[RegularizationTask]] = {TASK: RegularizationTask, DECODER_TASK: DecoderTask}


def _validate(spec: RunSpec) -> None:
    if spec.N < SMALLEST_N:
        raise ValueError(f"N must be at least {SMALLEST_N}, not {spec.N}")
    if spec.precision != "float32":
        raise ValueError(f"the low-rank decoder is trained in float32, not {spec.precision}")
    check_lengths(spec)
    if not 0 <= (rank := int(spec.option("rank"))) <= spec.N:
        raise ValueError(f"rank must lie in 1..{spec.N}, or be 0 for N, not {rank}")
    if spec.option("init") not in INITS:
        raise ValueError(f"init must be one of {', '.join(INITS)}, not {spec.option('init')!r}")
    for name in WEIGHTS:
        if not 0 <= float(spec.option(name)) < float("inf"):
            raise ValueError(f"{name} must be a finite number of at least 0, not {spec.option(name)}")
