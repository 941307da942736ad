"""The rotation task: draw an image rotated by an angle, given the angle, with an arc of angles held out (paper figure 9).

Images are (n, 1, N, N). `truth` holds the angles (n,) in degrees.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn

from trainables.settings import defaults_of, setting
from trainables.spec import LIMITS, Counts, RunSpec, Scalar
from trainables.task import Data, Split

TASK = "trainables.rotation:RotationTask"
DIGIT, PIXELS = "digit-", "pixels:"
SMALLEST_N = 8
MOST_PIXELS = 2**27
"""Of all images of a run together, which are held in memory."""
CORRECT_SHARE = 0.1
"""A correct image has less than this share of the squared error of a blank one."""


def image_option(image: np.ndarray) -> str:
    """The option `image` that stands for an image (N, N) uint8."""
    return PIXELS + base64.b64encode(zlib.compress(image.astype(np.uint8).tobytes(), 9)).decode()


def image_of(option: str, N: int) -> np.ndarray:
    """The image (N, N), float64 from 0 to 1, that an option `image` stands for.

    Raises:
        ValueError: the option is neither `digit-0` to `digit-9` nor what `image_option` makes of N x N pixels.
    """
    digit = option.removeprefix(DIGIT)
    if option.startswith(DIGIT) and len(digit) == 1 and digit in "0123456789":
        return bundled_digit(int(digit), N)
    if not option.startswith(PIXELS):
        raise ValueError(f"image must be digit-0 to digit-9, or {PIXELS} and packed pixels, not {option[:40]!r}")
    most, unpacking = min(N * N, MOST_PIXELS), zlib.decompressobj()
    try:
        content = unpacking.decompress(base64.b64decode(option.removeprefix(PIXELS), validate=True), most + 1)
        damaged = len(content) <= most and not unpacking.eof
    except (binascii.Error, zlib.error):
        damaged = True
    if damaged:
        raise ValueError("the pixels of image are damaged: make the option with trainables.rotation.image_option")
    if len(content) != N * N:
        count = f"more than {most}" if len(content) > most else len(content)
        raise ValueError(f"image has {count} pixels, and N = {N} asks for {N} x {N}")
    return np.frombuffer(content, np.uint8).reshape(N, N) / 255


def bundled_digit(digit: int, N: int) -> np.ndarray:
    """The first such digit of scikit-learn's handwritten ones, 8 x 8 pixels, enlarged to (N, N), from 0 to 1.

    It fills the largest centred square of even side that rotation keeps inside the image: 20 of 28 pixels, as in MNIST.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = digits.images[np.flatnonzero(digits.target == digit)[0]] / 16
    side = 2 * int(((N - 1) / math.sqrt(2) + 1) / 2)
    large = ndimage.zoom(small, side / len(small), order=3, mode="grid-constant", grid_mode=True).clip(0, 1)
    return np.pad(large, (N - side) // 2)


def rotated(image: np.ndarray, angles: np.ndarray) -> Tensor:
    """The image (N, N) rotated about its centre by each of the angles (n,), in degrees: (n, 1, N, N) float32, bilinear."""
    images = [ndimage.rotate(image, angle, reshape=False, order=1) for angle in angles]
    return torch.from_numpy(np.stack(images)).float()[:, None]


def angle_codes(angles: np.ndarray) -> Tensor:
    """Cosine and sine (n, 2) float32 of angles (n,) in degrees."""
    radians = np.radians(angles)
    return torch.from_numpy(np.stack([np.cos(radians), np.sin(radians)], 1)).float()


def split_angles(angles: int, gap_low: float, gap_high: float) -> tuple[np.ndarray, np.ndarray]:
    """`angles` angles equally spaced from 0 to 360 degrees, both ends included, as published: those outside the gap, and
    those in it, its edges included. Of 1000 angles and the gap [160, 200], 888 are outside."""
    every = np.arange(angles) * 360 / (angles - 1)
    inside = (every >= gap_low) & (every <= gap_high)
    return every[~inside], every[inside]


class RotationCNN(nn.Module):
    """From the cosine and sine of an angle (n, 2) to an image (n, 1, N, N), as the authors published it.

    A linear layer gives `width` channels of N/4 x N/4 pixels; two transposed convolutions, each with batch normalisation and
    ReLU, double the size, the second one to half as many channels; a convolution and a sigmoid give the image. Weights start
    as Kaiming's normal ones, biases at 0.
    """

    def __init__(self, N: int, width: int) -> None:
        super().__init__()
        start = N // 4
        channels = (width, width, width // 2)
        self.first = nn.Sequential(nn.Linear(2, width * start**2), nn.Unflatten(1, (width, start, start)))
        self.hidden = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairwise(channels)
        )
        self.last = nn.Sequential(nn.Conv2d(channels[-1], 1, 3, padding=1), nn.Sigmoid())
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.ConvTranspose2d | nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, code: Tensor) -> Tensor:
        return self.layers(code)[-1]

    def layers(self, code: Tensor) -> list[Tensor]:
        """Activations of the linear layer and of the two hidden ones, after ReLU, then the images: four in all."""
        activations = [self.first(code)]
        for layer in (*self.hidden, self.last):
            activations.append(layer(activations[-1]))
        return activations


@dataclass(frozen=True, kw_only=True)
class RotationSettings:
    """The published shape. Angles from `gap_low` to `gap_high`, both included, are held out. The gap reaches neither 0 nor 360:
    they are one angle, which would be trained as the one and held out as the other."""

    dataset: str = setting("rotation", "Training images.", words=("rotation",))
    decoder: str = setting("rotation-cnn", "Decoder.", words=("rotation-cnn",))
    depth: int = setting(2, "Hidden layers.")
    width: int = setting(128, "Channels of the first two layers.", low=2, high=LIMITS["width"][1])
    encoding: str = setting("angle", "Code of the angle.", words=("angle",))
    holdout: str = setting("arc", "Held-out angles.", words=("arc",))
    image: str = setting("digit-4", "What is rotated, see `image_of`.")
    angles: int = setting(1000, "Number of angles, equally spaced.")
    gap_low: float = setting(160.0, "First held-out angle in degrees.")
    gap_high: float = setting(200.0, "Last held-out angle in degrees.")


class RotationTask:
    """One image at many angles; none is drawn by chance: the seed decides initial weights and order alone.

    The published training has more than our loop: an L1 term (0.1) in the loss, clipped gradients, a tenth of the angles for
    validation, and a rate that is halved when the validation error stalls. Here the loss is the squared error, and the rate
    is best let fall by the `cosine` schedule.
    """

    version = "1"
    settings = RotationSettings
    packable = ()
    defaults: Mapping[str, Scalar] = defaults_of(RotationSettings)

    def counts(self, spec: RunSpec) -> Counts:
        """All angles outside the gap: one count.

        Raises:
            ValueError: a size or option that this task cannot do.
        """
        outside, _ = self._angles(spec)
        return Counts(low=len(outside), high=len(outside))

    def data(self, spec: RunSpec) -> Data:
        """Images and codes of the angles outside the gap, and of those in it, float32 on the CPU.

        Raises:
            ValueError: as `counts`, or another data count, or no such image.
        """
        outside, inside = self._angles(spec)
        if spec.data_count != len(outside):
            raise ValueError(f"data_count must be {len(outside)}, the angles outside the gap, not {spec.data_count}")
        return Data(train=self.split(spec, outside), held_out=self.split(spec, inside))

    def split(self, spec: RunSpec, angles: np.ndarray) -> Split:
        """Codes (n, 2) and images (n, 1, N, N) of any angles (n,), in degrees."""
        image = image_of(str(spec.option("image")), spec.N)
        return Split(inputs=angle_codes(angles), targets=rotated(image, angles), truth=torch.from_numpy(angles).float())

    def model(self, spec: RunSpec) -> nn.Module:
        """The decoder from codes (n, 2) to images (n, 1, N, N), freshly initialised."""
        return RotationCNN(spec.N, spec.width)

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        """Each (n,): `correct`, bool, the squared error is under a tenth of a blank image's, which a mix of the two images at
        the edges of the published gap is not in its middle; `mse`, float32, squared error, mean over the pixels."""
        mse = (outputs.float() - split.targets).square().flatten(1).mean(dim=1)
        return {"correct": mse < CORRECT_SHARE * split.targets.square().flatten(1).mean(dim=1), "mse": mse}

    def _angles(self, spec: RunSpec) -> tuple[np.ndarray, np.ndarray]:
        """Angles outside the gap and in it, of a spec that was found valid."""
        if spec.N < SMALLEST_N or spec.N % 4:
            raise ValueError(f"N must be a multiple of 4 of at least {SMALLEST_N}, not {spec.N}: the decoder doubles it twice")
        if spec.depth != 2:
            raise ValueError(f"the rotation decoder has two hidden layers: depth must be 2, not {spec.depth}")
        if spec.width < 2 or spec.width % 2:
            raise ValueError(f"width must be an even number of at least 2, not {spec.width}: the last hidden layer has half")
        low, high, count = float(spec.option("gap_low")), float(spec.option("gap_high")), int(spec.option("angles"))
        if not 0 < low < high < 360:
            touches = "; it may not reach 0 or 360, which are one angle" if 0 <= low < high <= 360 else ""
            raise ValueError(f"the gap must lie in 0..360 degrees and not be empty, not {low:g}..{high:g}{touches}")
        most = MOST_PIXELS // spec.N**2
        if not 2 <= count <= most:
            raise ValueError(f"angles must lie in 2..{most}, whose images of {spec.N} x {spec.N} fit into memory, not {count}")
        outside, inside = split_angles(count, low, high)
        if not len(inside):
            raise ValueError(f"none of {count} angles lies in the gap {low:g}..{high:g}: ask for more angles, or move it")
        return outside, inside
