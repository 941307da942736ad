"""From findings to files: one HTML page that needs nothing else, and its figures and numbers beside it."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from analysis.figures.style import image
from analysis.report.findings import LEAST_SEEDS, NOT_ENOUGH, Claim, Condition, Finding, Picture, number
from analysis.report.papers import Paper
from analysis.results import Results
from orchestrator.command.files import json_bytes, plain, write_files

PAGE, NUMBERS = "index.html", "claims.json"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as the page shows it: as PNG, or, without one, why not."""

    name: str
    alt: str
    png: bytes
    svg: bytes
    error: str = ""

    @property
    def source(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


Section = tuple[Claim, Finding, list[Drawn]]


@dataclass(frozen=True, slots=True)
class Part:
    """A paper with its claims as they are shown; none if the store has no runs that it is about."""

    paper: Paper
    sections: list[Section]


@dataclass(frozen=True, slots=True)
class Report:
    """Every claim of every paper with its finding and its pictures."""

    parts: list[Part]
    runs: int
    """Finished runs in the store, of any status."""
    hours: float
    """What they took in training, added up over workers."""
    store: str = "results"

    @classmethod
    def of(cls, papers: Sequence[Paper], results: Results) -> Report:
        """Judge every claim, and draw; a figure that cannot be drawn becomes a line on the page."""
        parts = []
        for paper in papers:
            sections: list[Section] = []
            own = paper.own(results)
            for claim in paper.claims if paper.is_told_of(results) else ():
                finding = claim.evaluate(own)
                sections.append((claim, finding, [draw(picture) for picture in finding.pictures]))
            parts.append(Part(paper, sections))
        return cls(parts, len(results.runs), sum(run["seconds"] for run in results.runs) / 3600, results.store)

    @property
    def sections(self) -> list[Section]:
        """Those of all parts."""
        return [section for part in self.parts for section in part.sections]

    @property
    def errors(self) -> list[str]:
        """A line per figure that could not be drawn."""
        return [f"{drawn.name}: {drawn.error}" for _, _, pictures in self.sections for drawn in pictures if drawn.error]

    def write(self, out: Path) -> list[Path]:
        """Write the page, the numbers behind it, and every figure as `png` and `svg` into `out`, each replaced in one step."""
        contents = {PAGE: self.html().encode(), NUMBERS: json_bytes(plain(self.to_json()))}
        for _, _, pictures in self.sections:
            for drawn in pictures:
                if not drawn.error:
                    contents |= {f"{drawn.name}.png": drawn.png, f"{drawn.name}.svg": drawn.svg}
        return write_files(out, contents)

    def html(self) -> str:
        """The page. The same results give the same page: it has no date in it."""
        return _template().render(report=self, counts=self.counts(), least_seeds=LEAST_SEEDS, has_figures=has_figures)

    def counts(self) -> dict[str, int]:
        """How many claims there are of each verdict."""
        verdicts = [finding.verdict for _, finding, _ in self.sections]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(sorted(verdicts, key=len))}

    def missing(self, claim: Claim, finding: Finding) -> tuple[str, list[str]]:
        """For a claim without enough runs: a sentence, and the commands that train them, into the store. Where settings had to
        be guessed they train nothing, and show what they would."""
        lacks = finding.lacks
        known = lacks is not None and not (lacks.commands and lacks.why)
        commands = [shlex.split(claim.command)] if lacks is None else lacks.commands
        lines = [shlex.join([*words, "--store", self.store, *([] if known else ["--dry-run"])]) for words in commands]
        if lacks is not None and not lacks.commands:
            return f"No run is missing: {lacks.why}.", []
        if lacks is not None and known:
            return "This command trains the missing runs:", lines
        what = "the settings of the missing runs" if lacks is None else lacks.why
        return f"The rows do not say {what}. This command shows what would be trained; remove --dry-run to train it:", lines

    def costs(self, paper: Paper) -> list[tuple[str, str]]:
        """The commands that make the runs of a paper, into the store, and what each takes."""

        def whole(command: str) -> str:
            store = shlex.quote(f"STORE={self.store}") if command.startswith("make ") else f"--store {shlex.quote(self.store)}"
            return f"{command} {store}"

        return [(whole(cost.command), cost.takes) for cost in paper.costs]

    def to_json(self) -> list[dict[str, Any]]:
        """Verdicts and conditions, without pictures."""
        return [
            {
                "id": claim.id,
                "title": claim.title,
                "figures": claim.figures,
                "verdict": finding.verdict,
                "seeds": finding.seeds,
                "conditions": [{**asdict(c), "judged": c.judged, "met": c.enough and c.met} for c in finding.conditions],
                "settings": finding.settings,
                "others": finding.others,
                "guessed": finding.guessed,
                "commands": self.missing(claim, finding)[1] if finding.verdict == NOT_ENOUGH else [],
            }
            for claim, finding, _ in self.sections
        ]


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "spread": spread, "outcome": outcome, "slug": slug}
    return environment.get_template("page.html.j2")


def draw(picture: Picture) -> Drawn:
    """The picture as bytes; whatever its function raises is kept in `error`."""
    try:
        figure = picture.draw()
        return Drawn(picture.name, picture.alt, image(figure, "png"), image(figure, "svg"))
    except Exception as error:  # one figure must not cost the page
        return Drawn(picture.name, picture.alt, b"", b"", f"{type(error).__name__}: {error}".splitlines()[0])


def has_figures(part: Part) -> bool:
    """Whether claims of a part are about figures that the paper numbers."""
    return any(claim.figures for claim, _, _ in part.sections)


def slug(words: str) -> str:
    """A verdict as the name of its style."""
    return words.replace(" ", "-")


def spread(values: Mapping[int, float]) -> str:
    """The range over seeds."""
    return f"{number(min(values.values()))} to {number(max(values.values()))}" if values else ""


def outcome(condition: Condition) -> str:
    """Whether a condition is met, in words."""
    if not condition.enough:
        return "too few seeds"
    return "met" if condition.met else "not met"
