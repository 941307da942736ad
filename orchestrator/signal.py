"""The signal study: how faint may a factor be before a generator no longer composes it, and what is lost first?

    python -m orchestrator.signal

For every factor and seed a threshold search finds the least contrast at which all compositions are drawn, the unseen ones too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.axes import HINT, check_resolution, read_between
from orchestrator.command.cli import App, checked, grouped, main_of, one_of, words
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.engine.estimate import Work
from orchestrator.errors import UserError
from orchestrator.generator_study import WithMeasures
from orchestrator.generators import OPTIONS, GeneratorOptions, planned
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches import Latest, Rows
from orchestrator.searches.audits import BUDGET
from orchestrator.searches.axes import Axes
from orchestrator.searches.bracket import Bracket
from orchestrator.searches.threshold import rungs_of
from orchestrator.study import bracket_of
from orchestrator.thresholds import ThresholdStudy
from orchestrator.versions import versions
from trainables.generative.chain import GENERATOR
from trainables.generative.settings import HEADS, RENDERED, GeneratorSettings
from trainables.generative.shapes import FACTORS, level_of_each
from trainables.generative.tokenizers import KINDS
from trainables.settings import settings_of, with_values
from trainables.spec import LIMITS, RunSpec
from trainables.task import load_task

if TYPE_CHECKING:
    from analysis.generators import Measured
    from analysis.signal import Answer

NAME = "signal"
LEAST, ALONG = "contrast", "faint"
CONTRAST = settings_of(GeneratorSettings)[LEAST]
LESSONS, CHECKED = "probe_lessons", "checked"
"""Few codes may not keep a faint factor: a probe that learns from pictures made of them would learn to guess."""

NAMED = {**OPTIONS, "decoder": "--family", "encoding": "--tokenizer"}

app = App(NAMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungated(LaunchOptions):
    """Those of a study that has to train generators whatever their probe and tokenizer came to."""

    gates: opt.NoGates = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfContrast(GeneratorOptions):
    """Those of this study: rendered pictures, and one length of training."""

    dataset: Annotated[str, opt.asked(hidden=True)] = RENDERED
    data: Annotated[Path | None, opt.asked(hidden=True)] = None
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Seeds per factor; an interval needs three.")] = 3
    steps: Annotated[
        int | None,
        opt.trained(min=1, max=LIMITS["max_steps"][1], help="Optimizer steps of a run.", show_default="of the tier"),
    ] = None  # type: ignore[assignment]  # a text elsewhere, of several


@dataclass(slots=True)
class SignalStudy(WithMeasures, ThresholdStudy):
    """Thresholds of contrast for every factor and seed."""

    told: Sequence[str] = ()
    """What else the plan says."""
    _measured: Measured = field(default_factory=dict)
    _latest: Latest[Answer] = field(init=False)

    def __post_init__(self) -> None:
        ThresholdStudy.__post_init__(self)
        self._latest = Latest(self._answer_of)

    def _take_in(self, measured: Measured) -> None:
        self._measured, self._latest = measured, Latest(self._answer_of)

    def keeps_weights(self, spec: RunSpec) -> bool:
        return True

    def plan(self, rows: Rows) -> tuple[RenderableType, Work | None]:
        plan, work = ThresholdStudy.plan(self, rows)
        return Group(plan, *map(Text, self.told)) if self.told else plan, work

    def _answer(self, rows: Rows) -> Answer:
        """The answer as far as it is known: every further run is in it, also of a threshold that is still open."""
        return self._latest.of(rows)

    def _answer_of(self, rows: Rows) -> Answer:
        from analysis.signal import Answer

        return Answer.of(self.results(rows), self.search.runs(rows), rows.get, self.settings, self._measured)

    def write_answer(self, answer: Any, out: Path, told: Mapping[str, Any]) -> Sequence[Path]:
        from analysis.files import write_signal

        return write_signal(answer, out, told)


def signal(
    factors: Annotated[str, opt.asked(help="Factors that are made faint, one at a time, comma-separated.")] = ",".join(FACTORS),
    family: Annotated[str, opt.asked(help="Objective of the generators: `dit`, `maskgit`, `givt` or `mar`.")] = "dit",
    tokenizer: Annotated[str, opt.asked(help="`vae` (continuous latents) or `vq` (codes). `maskgit` needs codes.")] = "vq",
    between: Annotated[
        str, opt.asked("--between", help="Contrasts in which the least is searched, LOW..HIGH, above 0 and at most 1.")
    ] = "0.05..1",
    resolution: opt.Resolution = 0.25,
    share: Annotated[
        float, opt.asked(help="Share of the pictures of every composition that both judges have to read right, in (0, 1].")
    ] = 0.6,
    speculate: opt.Speculate = False,
    *,
    generators: OfContrast,
    where: Ungated,
) -> int:
    """How faint may a factor be before a generator no longer composes it, and what is lost first?

    Pictures of a figure have three factors of two classes each: shape, size and colour. Generators learn four of the eight
    compositions. One factor at a time is made faint: its two classes are drawn nearer to each other, and its jitter shrinks
    with them. For every factor and seed, the least contrast is searched at which a generator draws all eight compositions so
    well that a probe and a template oracle read most pictures right, at some look along the way. Every contrast has a probe
    and a tokenizer of its own, and generators are trained even if these miss their gates: where a run misses, the answer says
    which of the three has failed first. Finished runs are kept in the store: the same command continues after any
    interruption.

    **Examples**

    `python -m orchestrator.signal --tier smoke --seeds 1`  # shows that everything runs, minutes

    `python -m orchestrator.signal`  # the question, for three seeds: about 50 generators, many hours on two cores

    `python -m orchestrator.signal --factors colour --between 0.1..1 --tier coarse`  # one factor, with fewer tokens

    `python -m orchestrator.signal --family maskgit`  # the same of masked codes

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer); 2 a mistake
    in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    chosen = words("--factors", factors, FACTORS)
    one_of("--family", family, HEADS)
    one_of("--tokenizer", tokenizer, KINDS)
    if generators.dataset != RENDERED:
        raise UserError(f"--dataset {generators.dataset} has no contrast to choose: {RENDERED} is rendered, omit the option")
    if not 0 < share <= 1:
        raise UserError(f"--share must lie above 0 and be at most 1, not {share:g}")
    if where.gates:
        raise UserError("--gates would leave thresholds open, as probe or tokenizer may lose a faint factor first: omit it")
    check_resolution(resolution, usual=0.25)
    if taken := [pair for pair in generators.option or () if pair.partition("=")[0] in (LEAST, ALONG, "gate")]:
        raise UserError(f"--option {taken[0]} is what this study varies or asks for: use --factors, --between or --share")
    steps: Any = None if generators.steps is None else str(generators.steps)
    pairs = sorted(generators.option or (), key=lambda pair: pair.partition("=")[0] != LESSONS)
    usual = [] if pairs and pairs[0].partition("=")[0] == LESSONS else [f"{LESSONS}={CHECKED}"]
    options = dataclasses.replace(generators, steps=steps, option=[*usual, *pairs])
    plan = planned({"families": [family], "tokenizers": [tokenizer]}, {}, options, where, NAMED)
    contrasts, task = read_between(CONTRAST, between, HINT.replace("4..512", "0.05..1")), load_task(GENERATOR)
    template = dataclasses.replace(plan.templates[0], target=1.0, stop="early")
    axes = Axes.of(LEAST, ALONG, chosen)
    brackets: list[Bracket] = []
    for factor in chosen:
        given = {ALONG: factor, LEAST: contrasts.low, "gate": float(share)}
        for seed in plan.seeds:
            spec: RunSpec = dataclasses.replace(checked(with_values, template, given), seed=seed)
            bracket: Bracket = checked(bracket_of, task, spec, axes, contrasts)
            brackets.append(dataclasses.replace(bracket, checked=False))  # a run takes many minutes
    if (most := len(brackets) * len(rungs_of(brackets[0], resolution).counts)) > MOST_PLANNED:
        much = f"{most} possible runs are too many (at most {MOST_PLANNED})"
        raise UserError(f"{much}: ask for a larger --resolution or fewer --seeds")
    settings = {
        **plan.settings, "least": LEAST, "along": ALONG, ALONG: chosen, "between": [contrasts.low, contrasts.high],
        "share": share, "max_steps": template.max_steps, "resolution": resolution,
        "decoder": family, "encoding": tokenizer, "task": GENERATOR, "out": where.folder(NAME), "versions": versions(),
    }  # fmt: skip
    notes, farthest = [*plan.notes], max(level_of_each(template.holdout).values())
    if farthest != 2:
        notes.append(f"the farthest compositions are of level {farthest}, so columns and figure are of that level")
    study = SignalStudy(task, brackets, resolution, settings, speculate, BUDGET, name=NAME, told=notes)
    return launch(study, where)


app.command()(grouped(signal))
main = main_of(app, "python -m orchestrator.signal")

if __name__ == "__main__":
    main()
