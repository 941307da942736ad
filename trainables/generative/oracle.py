"""The template oracle: reads pictures by fitting rendered figures of either shape, of any size, place and colour.

It is not trained. Fits are by least squares: for each shape the best template of a grid is found, and its radius and place are
refined by the Gauss-Newton method, with colour and background solved for in every step (variable projection, Golub and
Pereyra 1973).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.generative.shapes import MIDDLE, RED_TO_BLUE, ShapeSettings, coverage

UNCLEAR = 2
"""What is read where a factor is of neither class."""
WORST = 0.45
"""Largest share of a picture's variance that a fit may leave unexplained, as a standard deviation: the root of 1 - R^2. Ragged
edges, as a decoder of few codes draws them, leave up to this; noise and faded pictures leave more."""
SOFTEST = 2.2
"""How many times softer than the template the edges of a picture may be. A blur leaves no more than ragged edges do, but it is
soft: of those by a twelfth of a picture's side or more, hardly any is under this."""
OFF_COLOUR = 0.3
"""Largest distance of a figure's colour from the line between the classes. With a jitter of 0.2 or more some lie beyond."""
BEYOND = 0.06
"""How far templates go beyond the jitters, in half pictures."""
RADII, PLACES = 14, 13
STEPS = 6
SMALL_MOVE = 0.01
READ_AT_ONCE = 256


class Reading(NamedTuple):
    """What the oracle says of n pictures."""

    bits: Tensor
    """(n, 3) int64: 0, 1 or UNCLEAR for each factor; all are UNCLEAR where no template fits."""
    residual: Tensor
    """(n,): the root of the share of the variance that the best template leaves unexplained."""
    softness: Tensor
    """(n,): the sum of a (1 - a) over the pixels, where a is how far one is on the way from the background to the colour of the
    figure, over that of the template."""
    radius: Tensor
    """(n,)."""
    colour: Tensor
    """(n, 3)."""


@dataclass(frozen=True)
class Fit:
    """The best figures of one shape for n pictures."""

    place: Tensor
    """(n, 3): radius, x and y."""
    left: Tensor
    """(n,): share of the variance that is left."""
    colour: Tensor
    """(n, 3)."""
    softness: Tensor
    """(n,)."""


def between(low: float, high: float, jitter: float) -> tuple[float, float]:
    """The middle third of the gap between two classes with these means: a value in it belongs to neither."""
    middle, sixth = (low + high) / 2, max(0.0, high - low - 2 * jitter) / 6
    return middle - sixth, middle + sixth


def between_colours(settings: ShapeSettings) -> tuple[float, float]:
    """The same for colours, as shares of the way from the mean red to the mean blue."""
    separation, jitter = settings.colours
    return between(0, 1, jitter / (separation * (RED_TO_BLUE[2] - RED_TO_BLUE[0])))


def towards_blue(settings: ShapeSettings, colour: Tensor) -> tuple[Tensor, Tensor]:
    """Where colours (n, 3) lie along the line from the mean red (0) to the mean blue (1), and how far off it, both (n,)."""
    line = 2 * settings.colours[0] * colour.new_tensor(RED_TO_BLUE)
    from_middle = colour - colour.new_tensor(MIDDLE)
    along = from_middle @ line / line.square().sum()
    return along + 0.5, (from_middle - along[:, None] * line).norm(dim=1)


def read_by_templates(settings: ShapeSettings, images: Tensor) -> Reading:
    """Read pictures (n, 3, N, N)."""
    parts = [_read(settings, part) for part in images.float().split(READ_AT_ONCE)]
    return Reading(*(torch.cat(same) for same in zip(*parts, strict=True)))


def _read(settings: ShapeSettings, images: Tensor) -> Reading:
    disc, other = (_fit(settings, images, shape) for shape in (0, 1))
    is_other = other.left < disc.left
    left = torch.minimum(disc.left, other.left)
    softness = torch.where(is_other, other.softness, disc.softness)
    radius = torch.where(is_other, other.place[:, 0], disc.place[:, 0])
    colour = torch.where(is_other[:, None], other.colour, disc.colour)
    large, small, jitter = settings.radii
    low, high = between(small, large, jitter)
    size = torch.where(radius > high, 0, torch.where(radius < low, 1, UNCLEAR))
    along, off = towards_blue(settings, colour)
    low, high = between_colours(settings)
    blue = torch.where(along < low, 0, torch.where(along > high, 1, UNCLEAR))
    blue = torch.where(off <= OFF_COLOUR, blue, UNCLEAR)
    bits = torch.stack([is_other.long(), size, blue], 1)
    residual = left.clamp_min(0).sqrt()
    fits = (residual <= WORST) & (softness <= SOFTEST)
    return Reading(torch.where(fits[:, None], bits, UNCLEAR), residual, softness, radius, colour)


@lru_cache(maxsize=8)
def _templates(settings: ShapeSettings, N: int, shape: int) -> tuple[Tensor, Tensor]:
    """Radius and place (K, 3) of each figure of the grid, and what it covers, centred and of length 1 (K, N * N); zeros of one
    that covers the whole picture, so that it is like none."""
    large, small, jitter = settings.radii
    least, most = small - jitter - BEYOND, large + jitter + BEYOND
    radii = torch.linspace(max(least, 1 / N), most, RADII)
    reach = settings.centre_jitter + BEYOND
    places = torch.linspace(-reach, reach, PLACES)
    grid = torch.cartesian_prod(radii, places, places)
    covered = coverage(settings.pair, N, torch.full((len(grid),), settings.shapes[shape]), grid[:, 0], grid[:, 1:]).flatten(1)
    centred = covered - covered.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    return grid, centred / length.where(length > 0, torch.inf)


def _fit(settings: ShapeSettings, images: Tensor, shape: int) -> Fit:
    n, _, N, _ = images.shape
    grid, templates = (t.to(images.device) for t in _templates(settings, N, shape))
    pixels = images.flatten(2)  # (n, 3, P)
    centred = pixels - pixels.mean(2, keepdim=True)
    total = centred.square().sum((1, 2)).clamp_min(1e-12)
    place = grid[(centred @ templates.t()).square().sum(1).argmax(1)]
    low, high = grid.amin(0), grid.amax(0)
    kind = images.new_full((n,), settings.shapes[shape])

    def covered(at: Tensor) -> Tensor:
        return coverage(settings.pair, N, kind, at[:, 0], at[:, 1:]).flatten(1)  # (n, P)

    best, least, damping = place, total.new_full((n,), float("inf")), total.new_full((n,), 1e-3)
    best_slope = best_moves = best_rest = pixels.new_zeros(0)
    for done in range(1, STEPS + 1):
        figure = covered(place)
        m = figure - figure.mean(1, keepdim=True)
        power = m.square().sum(1).clamp_min(1e-12)
        slope = (centred @ m[:, :, None]).squeeze(2) / power[:, None]  # (n, 3): colour minus background
        rest = centred - slope[:, :, None] * m[:, None]
        left = rest.square().sum((1, 2))
        better = left < least
        best, least = torch.where(better[:, None], place, best), torch.minimum(left, least)
        best_slope = torch.where(better[:, None], slope, best_slope) if best_slope.numel() else slope
        if done == STEPS:
            break
        moves = torch.stack([(covered(place + d) - figure) / SMALL_MOVE for d in SMALL_MOVE * torch.eye(3, device=m.device)], 1)
        moves = moves - moves.mean(2, keepdim=True)
        moves = moves - (moves @ m[:, :, None]) / power[:, None, None] * m[:, None]
        if not best_rest.numel():
            best_moves, best_rest = moves, rest
        best_moves = torch.where(better[:, None, None], moves, best_moves)
        best_rest = torch.where(better[:, None, None], rest, best_rest)
        damping = torch.where(better, damping / 4, damping * 16)
        curvature = (best_moves @ best_moves.transpose(1, 2)) * best_slope.square().sum(1)[:, None, None]
        toward = (best_moves @ (best_slope[:, :, None] * best_rest).sum(1)[:, :, None]).squeeze(2)
        size = curvature.diagonal(dim1=1, dim2=2).clamp_min(1e-9)
        step = torch.linalg.solve(curvature + torch.diag_embed(size * damping[:, None] + 1e-9), toward)
        place = (best + step).clamp(low, high)
    figure = covered(best)
    ground = pixels.mean(2) - best_slope * figure.mean(1, keepdim=True)
    power = best_slope.square().sum(1, keepdim=True).clamp_min(1e-12)
    along = (((pixels - ground[:, :, None]) * best_slope[:, :, None]).sum(1) / power).clamp(0, 1)
    soft, usual = ((a * (1 - a)).sum(1) for a in (along, figure))
    return Fit(best, least / total, ground + best_slope, soft / usual.clamp_min(1))
