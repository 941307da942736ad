"""What the studies of why decoders fail have in common: options of the decoder and its training, and specs made of them.

Their runs take their whole budget of steps, and hold out a box of the bump task; what happens inside is measured afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, option_for
from orchestrator.command.ranges import MOST_PLANNED, parse_grid, warn_of_short
from orchestrator.command.subject import given
from orchestrator.errors import UserError
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches.axes import BUMPS
from orchestrator.study import GridStudy
from trainables.settings import spec_fields
from trainables.spec import LIMITS, RunSpec
from trainables.task import load_task

BOXES = ("center", "corner")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderOptions:
    """What is trained, and how."""

    N: Annotated[int, opt.subject("--N", min=8, max=256, help="Grid size: images are N x N pixels.")] = 28
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Seeds per setting.")] = 3
    width: opt.Width = None
    sigma: opt.Sigma = None
    absent: opt.Absent = None
    tolerance: opt.Tolerance = None
    option: opt.TaskOption = None
    max_steps: Annotated[
        int,
        opt.trained(
            min=1, max=LIMITS["max_steps"][1], help="Optimizer steps of a run; 3150 are the 50 epochs of the paper's CNN."
        ),
    ] = 3150
    batch_size: opt.BatchSize = 32
    lr: opt.LearningRate = 1e-3
    weight_decay: opt.WeightDecay = 0.01
    precision: opt.Precision = "auto"

    def check_runs(self, settings: int, options: str) -> None:
        """
        Raises:
            UserError: so many settings have more runs than can be planned; `options` say how to ask for fewer.
        """
        if (asked := settings * self.seeds) > MOST_PLANNED:
            raise UserError(f"{asked} runs are too many (at most {MOST_PLANNED}): ask for fewer {options} or --seeds")

    def specs(
        self,
        *,
        dataset: str,
        decoder: str,
        depth: int,
        encoding: str,
        holdout: str,
        data_count: int | None,
        where: LaunchOptions,
    ) -> list[RunSpec]:
        """One setting, a spec per seed. `data_count` None: all bumps that there are outside the box.

        Raises:
            UserError: what the task or a spec cannot do.
        """
        task = load_task(BUMPS)
        asked = {"dataset": dataset, "decoder": decoder, "depth": depth, "encoding": encoding, "holdout": holdout}
        for name in (pair.partition("=")[0] for pair in self.option or ()):
            if name in asked:
                option = option_for(name)
                told = "is what this study chooses by itself: omit it"
                raise UserError(f"--option {name} {told if option is None else f'has an option of its own: use {option}'}")
        spec = checked(
            RunSpec,
            task=BUMPS,
            N=self.N,
            data_count=0,
            seed=0,
            **checked(spec_fields, task, given(task, self, self.option) | asked),
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            max_steps=self.max_steps,
            stop="budget",
            precision=opt.resolve_precision(self.precision, decoder, where.on_gpu(task, decoder)),
        )
        counts = checked(task.counts, spec)
        if data_count is not None and data_count > counts.high:
            raise UserError(
                f"--bumps {data_count} is more than the positions outside the box at N = {self.N}: give at most {counts.high}"
            )
        count = counts.high if data_count is None else data_count
        return [dataclasses.replace(spec, data_count=count, seed=seed) for seed in range(self.seeds)]


def depths(option: str, text: str, more: str = "") -> tuple[int, ...]:
    """Depths, `2..6`, `2..10:2` or `2,4,6`.

    Args:
        more: ends the message, where something else may be given, too.

    Raises:
        UserError: none of these.
    """
    try:
        found = parse_grid(text, 1, 32, 1, "depths", ("2..6", "2..10:2", "2,4,6"))
    except ValueError as error:
        raise UserError(f"{option} {error}{more}") from None
    warn_of_short(f"{option} ", text, 1)
    return found


def train(name: str, specs: Iterable[RunSpec], asked: dict[str, Any], decoder: DecoderOptions, where: LaunchOptions) -> int:
    """Train what is missing of `specs` and table it; the exit code."""
    task = load_task(BUMPS)
    settings = {
        **asked,
        **{f.name: getattr(decoder, f.name) for f in dataclasses.fields(decoder)},
        **where.origin(name, task.version),
    }
    return launch(GridStudy(name, task, list(specs), settings), where)
