"""The options of a study that say which pictures its generators learn: rendered figures, or those of a data set in a folder."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, one_of
from orchestrator.command.reading import looking_into
from orchestrator.errors import UserError
from orchestrator.store.folder import is_folder
from trainables.generative.pictures import FOLDER, album_in
from trainables.generative.settings import REAL, RENDERED
from trainables.settings import alternatives
from trainables.spec import Scalar

Dataset = Annotated[
    str,
    opt.asked(
        "--dataset",
        help=f"Pictures: `{RENDERED}` (rendered figures), {' or '.join(f'`{name}`' for name in REAL)} (real ones, from files).",
    ),
]
DataFolder = Annotated[
    Path | None, opt.asked("--data", help="The folder with the files of `--dataset`.", show_default="none")
]


def pictures_of(dataset: str, folder: Path | None, figures: Collection[str]) -> dict[str, Scalar]:
    """The settings that say which pictures are meant. From now on this process, and those that it starts, find their files.

    Args:
        figures: options that were given of how rendered figures look.

    Raises:
        UserError: there are no such pictures, their files are missing or damaged, or options do not belong together.
    """
    one_of("--dataset", dataset, (RENDERED, *REAL))
    if dataset == RENDERED:
        if folder is not None:
            raise UserError(f"--data is for real pictures, and {RENDERED} is rendered: add --dataset {alternatives(REAL)}")
        return {"dataset": dataset}
    if folder is None:
        raise UserError(f"--dataset {dataset} needs its files: add --data FOLDER (docs/real-data.md says what is in it)")
    if figures:
        raise UserError(f"{next(iter(figures))} is for rendered figures: omit it, or omit --dataset {dataset} and --data")
    with looking_into("--data", str(folder)):
        is_there = is_folder(folder)
    if not is_there:
        raise UserError(f"--data {str(folder)!r} is not a folder: give the one with the files of {dataset}")
    found = checked(album_in, dataset, folder.absolute())
    os.environ[FOLDER] = str(folder.absolute())
    return {"dataset": dataset, "content": found.content}
