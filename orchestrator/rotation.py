"""The rotation study: does a decoder that draws an image at most angles rotate it through an arc it has never seen?

    python -m orchestrator.rotation
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated

from orchestrator.command import options as opt
from orchestrator.command.cli import App, checked, grouped, main_of
from orchestrator.command.options import steps_of
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch
from orchestrator.study import GridStudy
from trainables.idx import SIDE, read_digit
from trainables.rotation import DIGIT, TASK, image_option
from trainables.settings import spec_fields
from trainables.spec import LIMITS, RunSpec
from trainables.task import load_task

NAME = "rotation"

app = App()


@app.command()
@grouped
def rotation(
    digit: Annotated[int, opt.asked(min=0, max=9, help="Digit to rotate.")] = 4,
    mnist: Annotated[
        Path | None,
        opt.asked(
            help="Folder with MNIST's training files (IDX, gzipped or not); its first image of the digit is used.",
            show_default="scikit-learn's own digits, enlarged",
        ),
    ] = None,
    angles: Annotated[int, opt.asked(min=2, help="Number of angles, equally spaced from 0 to 360 degrees.")] = 1000,
    gap: Annotated[str, opt.asked(help="Held-out angles, LOW..HIGH in degrees.")] = "160..200",
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Number of seeds; each trains one decoder.")] = 3,
    N: Annotated[int, opt.subject("--N", min=8, max=256, help="Side of the image in pixels, a multiple of 4.")] = SIDE,
    width: Annotated[
        int, opt.subject(min=2, max=LIMITS["width"][1], help="Channels of the first two layers; the third has half of them.")
    ] = 128,
    epochs: Annotated[int, opt.trained(min=1, help="Passes over the training set.")] = 200,
    batch_size: opt.BatchSize = 32,
    lr: opt.LearningRate = 1e-3,
    weight_decay: opt.WeightDecay = 1e-4,
    *,
    where: LaunchOptions,
) -> int:
    """Does a decoder that has learned to draw an image at most angles rotate it through an arc that it has never seen?

    Trains decoders from the cosine and sine of an angle to a digit rotated by it, on all angles outside a gap, and keeps their
    weights. Finished runs are kept in the store: the same command continues after any interruption.
    `python -m analysis.report` then measures and draws the error by angle, and whether what they draw in the gap is the
    rotated digit or a mix of the two images at its edges (paper figure 9).

    **Examples**

    `python -m orchestrator.rotation --N 16 --width 32 --epochs 50 --seeds 1`  # a small one, a minute

    `python -m orchestrator.rotation`  # at the paper's size, half an hour on a laptop

    `python -m orchestrator.rotation --mnist MNIST --digit 7`  # a digit of MNIST, from files in the folder MNIST

    `python -m orchestrator.rotation --gap 90..180`  # a wider gap

    **Exit codes**: 0 all trained; 1 not all (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    low, high = _gap(gap)
    if mnist is not None and N != SIDE:
        raise UserError(f"--N {N} does not fit --mnist, whose images have {SIDE} x {SIDE} pixels: omit --N")
    task = load_task(TASK)
    image = f"{DIGIT}{digit}" if mnist is None else image_option(checked(read_digit, mnist, digit))
    spec = checked(
        RunSpec,
        task=TASK,
        N=N,
        data_count=0,
        seed=0,
        **checked(spec_fields, task, {"width": width, "image": image, "angles": angles, "gap_low": low, "gap_high": high}),
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        stop="budget",
        schedule="cosine",
    )
    count = checked(task.counts, spec).low
    spec = checked(dataclasses.replace, spec, data_count=count, max_steps=steps_of(epochs, count, batch_size))
    specs = [dataclasses.replace(spec, seed=seed) for seed in range(seeds)]
    settings = {
        **{"digit": digit, "mnist": mnist and str(mnist), "angles": angles, "gap": [low, high], "seeds": seeds, "N": N},
        **{"width": width, "epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay},
        **where.origin(NAME, task.version),
    }
    return launch(GridStudy(NAME, task, specs, settings), where)


def _gap(text: str) -> tuple[float, float]:
    """Two angles, as the user wrote them.

    Raises:
        UserError: anything but LOW..HIGH.
    """
    low, _, high = text.partition("..")
    try:
        gap = float(low), float(high)
    except ValueError:
        gap = math.nan, math.nan
    if not all(map(math.isfinite, gap)):
        raise UserError(f"--gap {text!r} is not a range of degrees: write LOW..HIGH, for example 160..200")
    return gap


main = main_of(app, "python -m orchestrator.rotation")

if __name__ == "__main__":
    main()
