"""The subject of the regularization study: all bumps outside a box, drawn by the low-rank decoder (paper section 4.1).

Coordinates fall into three sets. OOD: the box. Validation: those that lie outside the box's range in x *and* in y. The rest has
exactly one coordinate in that range. A run whose `holdout` is `corner` or `center` learns from all coordinates outside the box
and is judged in it; one whose `holdout` ends in `-validation` learns from the rest alone and is judged on the validation set,
and no coordinate of the box is in its data at all. Both are questions of the same kind: every x and every y has been seen, but
not together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.bumps import bump_images, grid_centres, judge_peaks
from trainables.lowrank import INITS, LowRank
from trainables.settings import defaults_of, setting
from trainables.spec import LIMITS, Counts, RunSpec, Scalar
from trainables.task import Data, Split

TASK = "trainables.regularization:RegularizationTask"
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


@dataclass(frozen=True, kw_only=True)
class RegularizationSettings:
    """The published shape and weights. The two penalties are sums over factors, tokens and modes."""

    dataset: str = setting("bumps", "Training images.", words=("bumps",))
    decoder: str = setting("low-rank", "Decoder.", words=("low-rank",))
    depth: int = setting(2, "Hidden layers.", low=0, high=LIMITS["depth"][1])
    width: int = setting(2, "Channels of a hidden layer.", low=1, high=LIMITS["width"][1])
    encoding: str = setting("one-hot", "Code of the coordinates.", words=("one-hot",))
    holdout: str = setting("corner", "The held-out box.", words=(*REGIONS, *(r + VALIDATION for r in REGIONS)))
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
    packable = WEIGHTS
    defaults: Mapping[str, Scalar] = defaults_of(RegularizationSettings)

    def counts(self, spec: RunSpec) -> Counts:
        """All coordinates there are to learn from: one count.

        Raises:
            ValueError: a size or option that this task cannot do.
        """
        _validate(spec)
        train, _ = self._sets(spec)
        return Counts(low=len(train), high=len(train))

    def data(self, spec: RunSpec) -> Data:
        """Training and held-out images and tokens, float32 and int64 on the CPU.

        Raises:
            ValueError: as `counts`, or another data count.
        """
        allowed = self.counts(spec).low
        if spec.data_count != allowed:
            raise ValueError(f"data_count must be {allowed} at N = {spec.N}, holdout {spec.holdout}, not {spec.data_count}")
        train, held_out = self._sets(spec)
        return Data(train=self.split(spec, train), held_out=self.split(spec, held_out))

    def split(self, spec: RunSpec, centres: Tensor) -> Split:
        """Token pairs (n, 2) and images (n, 1, N, N) of whole coordinates (n, 2)."""
        return Split(inputs=centres.long(), targets=bump_images(centres, spec.N, float(spec.option("sigma"))), truth=centres)

    def model(self, spec: RunSpec) -> nn.Module:
        """The decoder from token pairs (n, 2) to images (n, 1, N, N), freshly initialised."""
        return LowRank(
            spec.N,
            int(spec.option("rank")) or spec.N,
            channels=spec.width,
            depth=spec.depth,
            entropy_weight=float(spec.option("lambda_entropy")),
            variance_weight=float(spec.option("lambda_variance")),
            init=str(spec.option("init")),
        )

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """As `BumpTask.measure`: `correct`, `exact`, `proper` and `mse`, each (n,)."""
        judged = judge_peaks(outputs, split.truth, float(spec.option("sigma")), float(spec.option("tolerance")))
        return judged | {"mse": (outputs - split.targets).square().flatten(1).mean(dim=1)}

    def _sets(self, spec: RunSpec) -> tuple[Tensor, Tensor]:
        """Coordinates to learn from, and to be judged on."""
        sets = regions(spec.holdout.removesuffix(VALIDATION), spec.N)
        if spec.holdout.endswith(VALIDATION):
            return sets["rest"], sets["validation"]
        return torch.cat([sets["validation"], sets["rest"]]), sets["ood"]


def _validate(spec: RunSpec) -> None:
    if spec.N < SMALLEST_N:
        raise ValueError(f"N must be at least {SMALLEST_N}, not {spec.N}")
    if spec.precision != "float32":
        raise ValueError(f"the low-rank decoder is trained in float32, not {spec.precision}")
    sigma, tolerance = float(spec.option("sigma")), float(spec.option("tolerance"))
    if not 0 < sigma <= spec.N:
        raise ValueError(f"sigma must be above 0 and at most N = {spec.N} pixels, not {sigma:g}")
    if not 0 <= tolerance < spec.N / 2:
        raise ValueError(f"tolerance must be at least 0 and under N/2 = {spec.N / 2:g} pixels, not {tolerance:g}")
    if not 0 <= (rank := int(spec.option("rank"))) <= spec.N:
        raise ValueError(f"rank must lie in 1..{spec.N}, or be 0 for N, not {rank}")
    if spec.option("init") not in INITS:
        raise ValueError(f"init must be one of {', '.join(INITS)}, not {spec.option('init')!r}")
    for name in WEIGHTS:
        if not 0 <= float(spec.option(name)) < float("inf"):
            raise ValueError(f"{name} must be a finite number of at least 0, not {spec.option(name)}")
