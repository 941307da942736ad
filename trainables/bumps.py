"""The bump task: draw a Gaussian bump at (x, y), given a factorized code of x and y (arXiv 2501.18797).

Images are (n, 1, N, N): rows are y, columns are x. `truth` holds the centres (n, 2) as x, y in pixels, with NaN for the
coordinate a stripe does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.decoders import DECODERS, build_decoder
from trainables.encodings import ABSENT, ENCODINGS, code_length, encode
from trainables.heldout import REGIONS, box_bounds, in_box
from trainables.settings import defaults_of, setting, spec_fields
from trainables.spec import LIMITS, RULE_VERSION, TRAINING_VERSION, Counts, RunSpec, Scalar
from trainables.task import Data, Split
from trainables.training.seeds import stream

DATASETS = ("bumps", "stripes+bumps")
CENTRES = ("integer", "real")
POLARITIES = ("bright", "dark")

AUDITED_VERSIONS = ("2", "1")
"""Versions of the training loop and of the stopping rule that AUDITS are of."""
AUDITS: Mapping[tuple[str, str], int] = {("bumps", "cnn"): 304}
"""Runs of each data set and decoder that this rule gave up and none of which passed when it was trained to the end, at
N = 8, 12 and 16. The MLP has none: of 216 of its runs one passed."""

SMALLEST_N, LARGEST_N = 8, 1024
HELD_OUT_SHARE = 0.1
"""Least share of the coordinates that a `random` sample leaves to be judged on."""
REAL_CENTRES_PER_PIXEL = 4
"""Real-valued centres never run out; a search may ask for this many per grid point."""
PROPER_SHARE = 0.25
PROPER_WINDOW = 3.0
"""A proper bump has nothing above this share of its peak beyond this many pixels (bump widths if sigma > 1) from its place."""


def bump_images(centres: Tensor, N: int, sigma: float = 1.0) -> Tensor:
    """Gaussian bumps and stripes, background 0 and peak 1.

    Args:
        centres: (n, 2) x and y in pixels. NaN for y gives the vertical stripe at x, NaN for x the horizontal stripe at y.

    Returns:
        (n, 1, N, N) float32; row v, column u is exp(-((u - x)^2 + (v - y)^2) / 2 sigma^2), without the absent term.
    """
    pixel = torch.arange(N, dtype=torch.float32)
    profile = torch.exp(-((pixel - centres.to(torch.float32)[..., None]) ** 2) / (2 * sigma**2)).nan_to_num(nan=1.0)
    return profile[:, 1, :, None].mul(profile[:, 0, None, :])[:, None]


def stripe_centres(N: int) -> Tensor:
    """(2N, 2): N vertical stripes x = 0..N-1 without y, then N horizontal ones."""
    along, absent = torch.arange(N, dtype=torch.float32), torch.full((N,), math.nan)
    return torch.cat([torch.stack([along, absent], 1), torch.stack([absent, along], 1)])


def grid_centres(N: int) -> Tensor:
    """(N^2, 2): all whole coordinates, raster order (x fastest)."""
    pixel = torch.arange(N, dtype=torch.float32)
    return torch.cartesian_prod(pixel, pixel).flip(1)


def draw_centres(spec: RunSpec) -> tuple[Tensor, Tensor]:
    """Centres of the drawn training bumps (data_count, 2) and of the held-out ones (m, 2).

    Training bumps are the first `data_count` of one seeded order, so the sets of one seed are nested. Whole coordinates are
    drawn without replacement; real ones uniformly from [0, N-1]^2, outside the box where there is one. Held out are: in a
    box, all its whole coordinates, or as many uniform draws in it; for `random`, all whole coordinates not drawn, or N^2
    uniform draws from a stream of their own.
    """
    N, count, bounds = spec.N, spec.data_count, box_bounds(spec.holdout, spec.N)
    if spec.option("centres") == "integer":
        grid = grid_centres(N)
        boxed = in_box(grid, spec.holdout, N)
        order = torch.randperm(int((~boxed).sum()), generator=stream(spec.seed, "bumps"))
        drawn = grid[~boxed][order]
        return drawn[:count], drawn[count:] if bounds is None else grid[boxed]
    pool = 2 * REAL_CENTRES_PER_PIXEL * N**2
    drawn = torch.rand(pool, 2, generator=stream(spec.seed, "bumps")) * (N - 1)
    drawn = drawn[~in_box(drawn, spec.holdout, N)]
    low, high = bounds or (0, N - 1)
    uniform = torch.rand((high - low + 1) ** 2, 2, generator=stream(spec.seed, "held-out bumps"))
    return drawn[:count], low + uniform * (high - low)


@dataclass(frozen=True, kw_only=True)
class BumpSettings:
    """Bumps alone are judged on the coordinates not drawn: they never reach a held-out box. Stripes and bumps are judged in the
    central box. Where the paper's bumps alone come from is not published: this is our choice."""

    dataset: str = setting("bumps", "Training images.", words=DATASETS)
    decoder: str = setting("cnn", "Decoder.", words=DECODERS)
    depth: int = setting(2, "Hidden layers.", low=0, high=LIMITS["depth"][1])
    width: int | None = setting(
        None, "Channels or units per hidden layer.", low=1, high=LIMITS["width"][1], shown="cnn 64, mlp 256"
    )
    encoding: str = setting("bump", "Code of the coordinates.", words=ENCODINGS)
    holdout: str | None = setting(
        None, "Held-out coordinates: a box without any bump (center, corner), or those not drawn (random).", words=REGIONS,
        shown="random for bumps, center for stripes+bumps",
    )  # fmt: skip
    centres: str = setting("integer", "Bump centres.", words=CENTRES)
    sigma: float = setting(1.0, "Width of bumps, stripes and the bump code in pixels.")
    absent: str = setting("zero", "Code of the coordinate that a stripe leaves out.", words=ABSENT)
    polarity: str = setting("bright", "Bumps of 1 on a background of 0, or of 0 on 1.", words=POLARITIES)
    tolerance: int = setting(1, "Pixels by which a correct peak may be off in x and in y.", low=0)

    def __post_init__(self) -> None:
        chosen = {"width": 64 if self.decoder == "cnn" else 256, "holdout": "random" if self.dataset == "bumps" else "center"}
        for name, value in chosen.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)


class BumpTask:
    """Compositional generalization on bumps, with or without stripes."""

    version = "1"
    settings = BumpSettings
    packable = ("dataset", "holdout")
    cheap = ("mlp",)
    defaults: Mapping[str, Scalar] = defaults_of(BumpSettings)

    def audits(self, spec: RunSpec) -> int:
        """Runs like `spec`, of any N and seed, that the stopping rule would have given up and that did not pass in their whole
        budget (`benchmarks.stopping`). Only the default settings have been tried so often."""
        subject = spec_fields(self, {"dataset": spec.dataset, "decoder": spec.decoder})
        like = RunSpec(
            task=spec.task, N=spec.N, data_count=spec.data_count, seed=spec.seed, **subject, precision=spec.precision
        )
        counted = spec == like and (TRAINING_VERSION, RULE_VERSION) == AUDITED_VERSIONS
        return AUDITS.get((spec.dataset, spec.decoder), 0) if counted else 0

    def counts(self, spec: RunSpec) -> Counts:
        """Bumps that can be drawn for `spec`; the 2N stripes of `stripes+bumps` are fixed and come on top.

        `high` is, for whole coordinates, every coordinate outside the box, or 90 % of the grid where the held-out
        coordinates are the undrawn ones (`random`); for real-valued centres 4 N^2.

        Raises:
            ValueError: a size, word or combination of words that this task cannot do.
        """
        _validate(spec)
        N, stripes = spec.N, spec.dataset == "stripes+bumps"
        if spec.option("centres") == "real":
            high = REAL_CENTRES_PER_PIXEL * N**2
        elif spec.holdout == "random":
            high = int((1 - HELD_OUT_SHARE) * N**2)
        else:
            high = int((~in_box(grid_centres(N), spec.holdout, N)).sum())
        return Counts(low=0 if stripes else 1, high=high, fixed=2 * N if stripes else 0)

    def data(self, spec: RunSpec) -> Data:
        """Training and held-out images and codes, float32 on the CPU.

        Raises:
            ValueError: as `counts`, or a data count outside its range.
        """
        allowed = self.counts(spec)
        if not allowed.low <= spec.data_count <= allowed.high:
            raise ValueError(
                f"data_count must lie in {allowed.low}..{allowed.high} for {spec.dataset} at N = {spec.N}, "
                f"holdout {spec.holdout}, not {spec.data_count}"
            )
        drawn, held_out = draw_centres(spec)
        if allowed.fixed:
            drawn = torch.cat([stripe_centres(spec.N), drawn])
        return Data(train=self.split(spec, drawn), held_out=self.split(spec, held_out))

    def split(self, spec: RunSpec, centres: Tensor) -> Split:
        """Codes (n, C) and images (n, 1, N, N) of any centres (n, 2), as `spec` wants them."""
        sigma = float(spec.option("sigma"))
        images = bump_images(centres, spec.N, sigma)
        codes = encode(centres, spec.N, spec.encoding, sigma, str(spec.option("absent")))
        return Split(inputs=codes, targets=1 - images if spec.option("polarity") == "dark" else images, truth=centres)

    def model(self, spec: RunSpec) -> nn.Module:
        """The decoder from codes (n, C) to images (n, 1, N, N), freshly initialised."""
        return build_decoder(spec.decoder, code_length(spec.encoding, spec.N), spec.N, spec.depth, spec.width)

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """Judge images (n, 1, N, N) by their peak pixel: the brightest, or the darkest where polarity is dark.

        Returns, each (n,):
            correct: bool, the peak lies within `tolerance` px of the true x and of the true y.
            exact: bool, the peak is the pixel nearest to the true centre (within 0.5 px).
            proper: bool, nothing outside a window of +-3 px (+-3 sigma for sigma above 1) around the true centre reaches a
                quarter of the peak; tells a bump from a plus, whose peak is right too.
            mse: float32, squared error, mean over the pixels.

        A coordinate that is absent in `truth` counts as right, and a stripe's window extends along all of it.
        """
        bright = 1 - outputs if spec.option("polarity") == "dark" else outputs
        judged = judge_peaks(bright.float(), split.truth, float(spec.option("sigma")), float(spec.option("tolerance")))
        return judged | {"mse": (outputs.float() - split.targets).square().flatten(1).mean(dim=1)}


def judge_peaks(images: Tensor, centres: Tensor, sigma: float, tolerance: float) -> dict[str, Tensor]:
    """`correct`, `exact` and `proper`, each (n,) bool, of images (n, 1, N, N) of bright bumps at `centres` (n, 2); see
    `BumpTask.measure`."""
    N = images.shape[-1]
    image = images.reshape(-1, N * N)
    height, where = image.max(dim=1)
    peak = torch.stack([where % N, where // N], dim=1)
    error = (peak - centres).abs().nan_to_num(nan=0.0).amax(dim=1)
    half = PROPER_WINDOW * max(1.0, sigma)
    pixel = torch.arange(N, device=images.device)
    inside = ((pixel - centres[..., None]).abs() <= half) | centres.isnan()[..., None]
    window = (inside[:, 1, :, None] & inside[:, 0, None, :]).flatten(1)
    rest = image.masked_fill(window, -math.inf).amax(dim=1)
    return {
        "correct": error <= max(0.5, tolerance),
        "exact": error <= 0.5,
        "proper": (height > 0) & (rest < PROPER_SHARE * height),
    }


def check_lengths(spec: RunSpec) -> None:
    """
    Raises:
        ValueError: `sigma` or `tolerance` does not suit a grid of N pixels.
    """
    sigma, tolerance = float(spec.option("sigma")), float(spec.option("tolerance"))
    if not 0 < sigma <= spec.N:
        raise ValueError(f"sigma must be above 0 and at most N = {spec.N} pixels, not {sigma:g}")
    if not 0 <= tolerance < spec.N / 2:
        raise ValueError(f"tolerance must be at least 0 and under N/2 = {spec.N / 2:g} pixels, not {tolerance:g}")


def _validate(spec: RunSpec) -> None:
    if spec.N < SMALLEST_N:
        raise ValueError(f"N must be at least {SMALLEST_N} for bumps, not {spec.N}")
    if spec.N > LARGEST_N:
        raise ValueError(f"N must be at most {LARGEST_N} for bumps, not {spec.N}: larger data sets do not fit into memory")
    words = {"centres": CENTRES, "absent": ABSENT, "polarity": POLARITIES}
    for name, allowed in words.items():
        if spec.option(name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {spec.option(name)!r}")
    check_lengths(spec)
    if spec.encoding == "ramp" and spec.dataset == "stripes+bumps" and spec.option("absent") == "zero":
        raise ValueError(
            "the ramp encoding cannot code the missing coordinate of a stripe as zero, because zero is a position: "
            "use the option absent=minus-one"
        )
