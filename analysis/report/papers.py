"""The papers that the report is about: what each costs to reproduce, and its claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from analysis.report.claims import CLAIMS
from analysis.report.findings import Claim
from analysis.report.generative_claims import GENERATIVE_CLAIMS
from analysis.results import Results
from analysis.tasks import BUILT_IN
from trainables.generative.chain import GENERATOR, PROBE, TOKENIZER
from trainables.program import PATH as PROGRAMS


@dataclass(frozen=True, slots=True)
class Cost:
    """A command that makes the runs of a paper, and what it takes."""

    command: str
    """It takes `--store`, unless it is one of make."""
    takes: str


@dataclass(frozen=True, slots=True)
class Paper:
    """A part of the report."""

    id: str
    title: str
    number: str
    """On arXiv."""
    claims: Sequence[Claim]
    costs: Sequence[Cost]
    task: str = ""
    """Its claims are shown if the store has runs of this task; without one, in any case."""
    without: Collection[str] = ()
    """Tasks of other papers: what is measured of their runs does not reach its claims."""

    def is_told_of(self, results: Results) -> bool:
        """Whether its claims are shown."""
        return not self.task or any(run["task"] == self.task for run in results.runs)

    def own(self, results: Results) -> Results:
        """What its claims are judged by: nothing that a search selected by its outcome, but for what generators need."""
        table = results.table
        selected = table["key"].isin(results.tuned) & ~table["task"].isin((PROBE, TOKENIZER))
        return replace(results, table=table[~(table["task"].isin(self.without) | selected)])


def are_of_papers(results: Results) -> bool:
    """Whether the page has parts for papers: if the store has runs of tasks that come with this project, or none at all."""
    return not results.runs or any(run["task"] in BUILT_IN and run["task"] != PROGRAMS for run in results.runs)


PAPERS = (
    Paper(
        "forced-rendering",
        "Compositional Generalization via Forced Rendering of Disentangled Latents",
        "2501.18797",
        CLAIMS,
        (
            Cost("make paper", "75 minutes on two cores: all six studies at a small size, and this page"),
            Cost("python -m orchestrator.encodings", "hours on two cores, as all that follow at the size of the paper"),
            Cost("python -m orchestrator.geometry", "hours"),
            Cost("python -m orchestrator.tuning", "an hour"),
            Cost("python -m orchestrator.rotation", "half an hour"),
            Cost("python -m orchestrator.regularization", "20 minutes"),
            Cost("python -m orchestrator.scaling --N 16..64", "20 to 30 minutes; on slow or shared cores an hour and more"),
        ),
        without=(PROBE, TOKENIZER, GENERATOR),
    ),
    Paper(
        "visual-generative-models",
        "What Drives Compositional Generalization in Visual Generative Models?",
        "2510.03075",
        GENERATIVE_CLAIMS,
        (
            Cost(
                "python -m orchestrator.objectives --tier smoke",
                "minutes on two cores: it shows that all parts fit, and nothing else",
            ),
            Cost(
                "python -m orchestrator.objectives",
                "40 to 80 minutes on two cores: nine generators, 8 to 16 minutes each, and what they need",
            ),
            Cost(
                "python -m orchestrator.objectives --families dit,maskgit,givt,mar",
                "more than twice as long: with the families that guess vectors behind masks",
            ),
            Cost("python -m orchestrator.conditioning", "as long again: DiT that is told the factors in four ways"),
            Cost("python -m orchestrator.jepa", "two hours more: MaskGIT and DiT with an auxiliary loss at some layers"),
            Cost("python -m orchestrator.objectives --tier long", "a night on two cores: twelve times as many steps"),
        ),
        task=GENERATOR,
    ),
)
"""In the order of the page."""
