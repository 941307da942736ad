"""The paper's claims in the order of the page: what each says, and when it counts as reproduced.

Rules are this project's reading of the paper (arXiv 2501.18797); bounds that it does not give are chosen, and stated here.
"""

from __future__ import annotations

from analysis.generators import LEAST_SEEDS
from analysis.report import decoder_rules as decoders
from analysis.report import study_rules as studies
from analysis.report.decoder_rules import DEPTH
from analysis.report.findings import Claim
from analysis.report.study_rules import LEAST_N, MOST_WIDTH

ENCODINGS_STUDY = "python -m orchestrator.encodings"
GEOMETRY_STUDY = "python -m orchestrator.geometry"
TUNING_STUDY = "python -m orchestrator.tuning"
PENALTIES_STUDY = (
    "python -m orchestrator.regularization --epochs 1000 --schedule constant --lambda-entropy 0.1 --lambda-variance 0.01"
)
LEARNED = "ID accuracy above 0.9 (our addition)."
"""Of all decoders that a claim speaks of: their layers say nothing if they draw nothing."""

CLAIMS = (
    Claim(
        "fail-in-box",
        "A decoder fails at unseen combinations of seen coordinates, whatever factorized code it is given.",
        "1b, 1c",
        ENCODINGS_STUDY,
        f"For the CNN of {DEPTH} hidden layers, the box in the centre, and each of four codes: OOD MSE at least 10 times the "
        "ID MSE (our choice for one-hot, positional and ramp: 5 times); in the core of the box (all but its outer 2 pixels) "
        "at least 0.75 of the MSE of a blank image; ID accuracy above 0.9; OOD accuracy below 0.5.",
        decoders.fails_in_box,
    ),
    Claim(
        "superposition",
        "In the box the decoder superposes what it has memorised for x alone and for y alone.",
        "1d",
        ENCODINGS_STUDY,
        "Median over the box of the correlation of each image with the normalised sum of the responses to its x and to its "
        "y: above 0.6, and by more than 0.1 above that with the sum of another position.",
        decoders.superposes,
    ),
    Claim(
        "binary-kernel",
        "Images in the box are alike as in a binary factorized kernel: where they share x or y.",
        "1e, 8",
        ENCODINGS_STUDY,
        "Correlation of the off-diagonal cosine similarities with the binary kernel: above 0.1 in the box, by more than 0.05 "
        "above that with permuted labels, and by more than 0.02 above that of correct images, which have some too, as bumps "
        "that share a coordinate overlap more often (our addition); among ID images larger for the bump than for the ramp "
        "code. ID accuracy above 0.9 with both codes (our addition): images of untrained networks are alike, too.",
        decoders.kernel_is_binary,
    ),
    Claim(
        "volume",
        "The CNN contracts the box: volumes inside it fall behind those outside, more with every layer.",
        "2e, 2f, 11, 12",
        GEOMETRY_STUDY,
        "Mean log10 volume in the box less that outside, CNN, bump code: at the last hidden layer negative, at least 0.1 in "
        f"size and larger than at layer 0. {LEARNED} At the greatest depth with {LEAST_SEEDS} seeds.",
        decoders.volume_contracts,
    ),
    Claim(
        "factorization-falls",
        "The factorization of the code is lost layer by layer.",
        "2a to 2d",
        GEOMETRY_STUDY,
        "CNN, bump and ramp code: the factorization metric and the R2 of linear probes in the box (by at least 0.01) are "
        "lower at the last hidden layer than at layer 0; for the bump code the metric, by differences on the grid as in the "
        "paper, stays at or above 0.95 in all hidden layers; at the last one it is lower for the ramp than for the bump code. "
        f"{LEARNED} At the greatest depth with {LEAST_SEEDS} seeds.",
        decoders.factorization_falls,
    ),
    Claim(
        "depth-does-not-help",
        "More layers do not help.",
        "10",
        ENCODINGS_STUDY,
        "CNN, bump code, box in the centre: ID accuracy above 0.9 (our addition) and OOD accuracy below 0.5 at every depth, of "
        f"at least two, that has {LEAST_SEEDS} seeds.",
        decoders.depth_does_not_help,
    ),
    Claim(
        "mlp-opposite",
        "The MLP deforms the box the other way round, expanding it, and loses more of the factorization.",
        "13, 14",
        GEOMETRY_STUDY,
        "Log10 volume in the box less that outside, at the last hidden layer, bump code: negative for the CNN, not for the "
        f"MLP; and the factorization metric there is lower in the MLP. {LEARNED} At the greatest common depth with "
        f"{LEAST_SEEDS} seeds.",
        decoders.mlp_is_opposite,
    ),
    Claim(
        "regularization",
        "A decoder of low-rank embeddings composes when their entropy and variance are penalised, and best with both.",
        "3e",
        PENALTIES_STUDY,
        "In the box, error falls from no penalty to entropy, to variance, to both (each ratio at least 1, seed by seed); "
        "with both it is at most 1e-3, and without at least 10 times that; outside the box it is lowest without a penalty. "
        "(That it is highest there with the variance penalty alone, as in the figure, is not asked: it depends on the steps.)",
        studies.regularization_helps,
    ),
    Claim(
        "stripes-compose",
        "Trained on stripes alone, the decoder composes: in the box it draws at the right place, if not yet the right image.",
        "4b",
        TUNING_STUDY,
        "CNN, bump code, box in the corner, no bumps: OOD accuracy at least 0.95, yet OOD MSE at least that of a blank image.",
        decoders.stripes_compose,
    ),
    Claim(
        "plus-to-bump",
        "Stripes alone make it draw a plus; bumps beside them turn the plus into a bump.",
        "4b, 7",
        TUNING_STUDY,
        "CNN, bump code, box in the corner: fewer than half of the images in the box are proper bumps (nothing beyond 3 pixels "
        "reaches a quarter of the peak, as the arms of a plus do) without bumps in the data, more than half with 100; OOD MSE "
        "with 100 at most half that without, and below that of a blank image.",
        decoders.plus_becomes_bump,
    ),
    Claim(
        "stripes-volume",
        "With stripes in the data, volumes inside and outside the box differ less.",
        "4d",
        GEOMETRY_STUDY,
        "Size of the difference of mean log10 volume, in the box less outside: at every hidden layer from 2 on smaller with "
        "stripes and bumps than with bumps alone (CNN, bump code, box in the centre, the greatest common depth with "
        f"{LEAST_SEEDS} seeds). {LEARNED}",
        decoders.stripes_flatten_volume,
    ),
    Claim(
        "scaling",
        "With stripes, the images that a decoder needs grow linearly with the grid size; with bumps alone much faster.",
        "4c",
        "python -m orchestrator.scaling --N 16..64",
        "Exponent of total images against N: 0.8 to 1.2 with stripes, at least 1.4 and larger with bumps alone (the paper "
        f"has 3); and at every N from {LEAST_N} on, bumps alone need more images. A 95 % interval that is more than "
        f"{MOST_WIDTH:g} wide and contains one of these bounds says too little (our choice).",
        studies.stripes_scale_linearly,
    ),
    Claim(
        "cubic",
        "With bumps alone, the images that a decoder needs grow with the cube of the grid size.",
        "4c",
        "python -m orchestrator.scaling --N 16..64 --datasets bumps",
        "The 95 % interval of the exponent of total images against N (from the likelihood of all runs) contains 3, and is at "
        f"most {MOST_WIDTH:g} wide (our choice): a wider one contains too much to say so.",
        studies.bumps_scale_cubically,
    ),
    Claim(
        "early-stripes",
        "Units of early layers are tuned to stripes; units of late layers to places, once there are bumps in the data.",
        "4e, 4f, 15",
        TUNING_STUDY,
        "CNN, bump code, box in the corner, with 50 and with 100 bumps: more than half of the active units of layer 0 are "
        "striped (more than 0.8 of their variance is a sum of a part of x and one of y); the rest, the interaction, has a "
        "larger median share in the last hidden layer than in layer 0, and there a larger one with 100 bumps than without. "
        f"{LEARNED}",
        decoders.stripes_come_early,
    ),
    Claim(
        "rotation",
        "In a gap of unseen angles a decoder of rotated digits mixes the images at its edges instead of rotating.",
        "9",
        "python -m orchestrator.rotation",
        "MSE in the gap at least 10 times that outside; at least 0.9 of the outputs in the gap are nearer to the best "
        "linear mix of the images at its edges than to the true rotation.",
        decoders.rotation_mixes,
    ),
    Claim(
        "embeddings",
        "With both penalties a coordinate's embedding is one straight band, also where the coordinate was not seen; without "
        "them the band ends there.",
        "3b, 6",
        PENALTIES_STUDY,
        "Embeddings of the coordinates in the box's range, each a matrix: strength of the band beside partners that it was "
        "never seen with, over that beside the others: at least 0.9 with both penalties, at most 0.3 without; with both, the "
        "largest singular value has at least 0.95 of the squared sum. Both have learned to draw: outside the box the error is "
        "below half of that of a blank image. (All bounds are our choice.)",
        studies.embeddings_are_bands,
    ),
)
"""In the order of the page."""
