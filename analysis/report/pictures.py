"""Which figures stand beside which claim: each made from the runs that the claim was judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import circuits, generated, geometry, images, kernels, rotation, tuning
from analysis.report.findings import Picture

SEEDS = "; lines: means over the seeds, bands: their range"
POINTS = "points: seeds, short lines: means over the seeds"
FIGURES: Mapping[str, tuple[Callable[[pd.DataFrame], Figure], str]] = {
    "errors": (
        images.draw_errors,
        "error at every position, of the lowest seed, the held-out box dashed; above each map the means over the seeds",
    ),
    "generated": (
        images.draw_generated,
        "images drawn in the held-out box, of the lowest seed; a cross where the bump belongs",
    ),
    "by-depth": (
        images.draw_by_depth,
        "images drawn in the held-out box by decoders of different depth, of the lowest seed; above them the mean share of "
        "proper bumps over the seeds",
    ),
    "by-bumps": (
        images.draw_by_bumps,
        "images drawn in the held-out box after training on stripes and 0 to 100 bumps, of the lowest seed; beside them the "
        f"error, {POINTS}",
    ),
    "superposition": (
        images.draw_superposition,
        "responses to x alone and to y alone, their sum, and the image drawn, of the lowest seed; below them the correlation "
        f"of the last two, {POINTS}",
    ),
    "kernels": (kernels.draw_kernels, "similarity of the images of all pairs of positions, ID first, then OOD"),
    "kernel-corner": (kernels.draw_kernel_corner, "ideal binary kernel beside the similarity of images in the box"),
    "kernel-numbers": (
        kernels.draw_kernel_numbers,
        f"agreement of the similarity of images with the binary kernel; {POINTS}",
    ),
    "volumes": (
        geometry.draw_volumes,
        "volume metric of every layer at every position, of the lowest seed, the held-out box dashed",
    ),
    "volume-gap": (geometry.draw_volume_gap, f"volume metric in the held-out box less that outside, by layer{SEEDS}"),
    "by-layer": (geometry.draw_by_layer, f"linear probes and factorization metric by layer, without the image{SEEDS}"),
    "tuning": (tuning.draw_tuning, "activation of units of several layers at every position"),
    "striped": (tuning.draw_striped, f"share of striped units, and additive share of the median unit, by layer{SEEDS}"),
    "rotation": (rotation.draw_rotation, "error against angle, embeddings of the layers, outputs and mixes in the gap"),
    "samples": (generated.draw_samples, "pictures drawn of seen and unseen compositions, and what is read in them"),
    "conditioning": (generated.draw_conditioning, "what models draw that were told values or classes, all factors or not"),
    "overlap": (circuits.draw_overlap, "how evenly the heads of each block react to the factors, with and without JEPA"),
    "jaccard": (circuits.draw_jaccard, "how many units the circuits of two compositions share, with and without JEPA"),
    "retrieval": (generated.draw_retrieval, "which composition the real picture shows that is nearest to a sample"),
    "reconstructions": (generated.draw_reconstructions, "pictures, what tokenizers make of them, and what is read in it"),
    "coverage": (generated.draw_coverage, "how much of each composition is made of tokens that no seen picture has"),
}


def pictures(claim: str, table: pd.DataFrame, *names: str) -> list[Picture]:
    """The figures of these names, of one table; none where the table is empty."""
    if table.empty:
        return []
    return [Picture(f"{claim}-{name}", FIGURES[name][1], partial(FIGURES[name][0], table)) for name in names]
