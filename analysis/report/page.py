"""From studies and findings to files: an HTML page that needs no network, and its figures, tables and runs beside it."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from analysis.figures.style import image
from analysis.generators import LEAST_SEEDS
from analysis.report.cells import MOST_LINES, heads_of, lines_of
from analysis.report.compare import Compared
from analysis.report.findings import NOT_ENOUGH, Claim, Condition, Finding, Picture, beside, number
from analysis.report.papers import Paper, are_of_papers
from analysis.report.runs import Ended, call, ended_badly, printable_lines
from analysis.report.told import Say, Told, unsaid
from analysis.results import Results
from orchestrator.command.files import csv_bytes, json_bytes, plain, sweep, write_files
from orchestrator.command.progress import format_seconds
from orchestrator.errors import printable
from orchestrator.searches.needs import with_needed
from trainables.settings import listed

PAGE, NUMBERS, STAMP = "index.html", "claims.json", "stamp.js"
FOLDER = "studies"
"""Of the tables and figures of studies."""
OF_STUDIES = re.compile(r"([a-z][a-z0-9-]*-[0-9a-f]{16}|compared)-.+\.(csv|png|svg)")
"""The names of these files."""
_UNSTAMPED, _STAMPED = 'data-stamp=""', re.compile(r'data-stamp="(\w+)"')
"""What tells an open page that it was written anew."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture as the page shows it: as PNG, or, without one, why not."""

    name: str
    alt: str
    png: bytes
    svg: bytes
    error: str = ""


Section = tuple[Claim, Finding, list[Drawn]]


@dataclass(frozen=True, slots=True)
class Part:
    """A paper with its claims as they are shown; none if the store has no runs that it is about."""

    paper: Paper
    sections: list[Section]


@dataclass(frozen=True, slots=True)
class StudyPart:
    """A study as it is shown."""

    told: Told
    pictures: list[Drawn]
    finished: Mapping[str, datetime]
    """When each of its runs ended, by key."""


@dataclass(frozen=True, slots=True)
class Report:
    """Every study that was asked of a store with its answer, every claim of every paper with its finding, and the runs."""

    parts: list[Part]
    runs: int
    """Finished runs in the store, of any status."""
    hours: float
    """What they took in training, added up over workers."""
    store: str = "results"
    studies: Sequence[StudyPart] = ()
    compared: Sequence[Compared] = ()
    ended: Sequence[Ended] = ()
    """How runs failed."""
    others: int = 0
    """Runs that no study asked for that is shown, nor needed for those that it asked for."""
    failed: int = 0
    """Of the runs."""
    former: int = 0
    """Runs of former versions, which are not among these."""
    unread: int = 0
    """Questions that could not be asked again, whose studies are not among these."""
    unanswered: int = 0
    """Questions that were left out, as it would take too long to answer them all."""
    damaged: int = 0
    """Files of rows that could not be read, whose runs are not among these."""

    @classmethod
    def of(
        cls,
        papers: Sequence[Paper],
        results: Results,
        told: Sequence[Told] = (),
        compared: Sequence[Compared] = (),
        known: Mapping[str, StudyPart] = MappingProxyType({}),
        unread: int = 0,
        say: Say = unsaid,
    ) -> Report:
        """Judge every claim, and draw; a figure that cannot be drawn becomes a line on the page.

        Args:
            known: studies as they were shown before, by id. What was drawn of the same runs, with the same answer, tables and
                caption, is kept.
            unread: how many questions could not be asked again.
            say: is given what is judged or drawn next.
        """
        parts = []
        for paper in papers if are_of_papers(results) else ():
            sections: list[Section] = []
            own = paper.own(results)
            claims = paper.claims if paper.is_told_of(results) else ()
            for place, claim in enumerate(claims):
                say(f"judging claim {place + 1} of {len(claims)}: {claim.id}", place, len(claims))
                try:
                    finding = claim.evaluate(own)
                except Exception as error:  # rows may come from anywhere, and must not cost the page
                    why = printable(f"{type(error).__name__}: {error}")[:200]
                    finding = Finding([], f"its runs cannot be judged ({why})")
                sections.append((claim, finding, [draw(picture) for picture in finding.pictures if finding.speaks]))
            parts.append(Part(paper, sections))
        runs, studies = {run["key"]: run for run in results.runs}, []
        for place, one in enumerate(told):
            say(f"drawing study {place + 1} of {len(told)}: {one.title}", place, len(told))
            finished = {key: runs[key]["finished_at"] for key in one.keys & runs.keys()}
            before = known.get(one.id)
            kept = dict[tuple[str, str], Drawn]()
            if before is not None and before.finished == finished and _says_the_same(before.told, one):
                kept = {(drawn.name, drawn.alt): drawn for drawn in before.pictures if not drawn.error}
            pictures = [replace(picture, name=f"{one.id}-{picture.name}") for picture in one.pictures]
            studies.append(StudyPart(one, [kept.get((p.name, p.alt)) or draw(p) for p in pictures], finished))
        hours = sum(run["seconds"] for run in results.runs) / 3600
        asked = frozenset[str]().union(*(one.keys for one in told))
        others = len(runs) - len(with_needed((run for key, run in runs.items() if key in asked), runs.get))
        failed = sum(run["status"] == "failed" for run in results.runs)
        ended = ended_badly(results.runs)
        counts = others, failed, results.former, unread, results.unanswered, results.damaged
        return cls(parts, len(results.runs), hours, results.store, studies, compared, ended, *counts)

    @property
    def sections(self) -> list[Section]:
        """Those of all parts."""
        return [section for part in self.parts for section in part.sections]

    @property
    def speaks(self) -> bool:
        """Whether any run speaks of any claim."""
        return any(finding.speaks for _, finding, _ in self.sections)

    @property
    def unmet(self) -> str:
        """The gates that runs do not meet, which no claim counts for that; empty if there are none."""
        gates = sorted({gate for _, finding, _ in self.sections if not finding.speaks for gate in finding.unmet})
        if not gates:
            return ""
        return f"gates {listed(gates)} are not met" if len(gates) > 1 else f"gate {gates[0]} is not met"

    @property
    def errors(self) -> list[str]:
        """A line per figure that could not be drawn."""
        of_studies = (drawn for study in self.studies for drawn in study.pictures)
        of_claims = (drawn for _, _, pictures in self.sections for drawn in pictures)
        return [f"{drawn.name}: {drawn.error}" for drawn in (*of_studies, *of_claims) if drawn.error]

    def write(self, out: Path, every: float = 0.0) -> list[Path]:
        """Write the page, the numbers behind it, its tables, and every figure as `png` and `svg` into `out`, each in one step.

        Args:
            every: an open page looks so often, in seconds, whether it was written anew; 0: never.
        """
        tables = {f"{study.told.id}-{sheet.name}": sheet for study in self.studies for sheet in study.told.sheets}
        tables |= {sheet.name: sheet for one in self.compared for sheet in one.sheets}
        files = {f"{name}.csv": csv_bytes(sheet.table, tuple(sheet.counts)) for name, sheet in tables.items()}
        files |= _images(drawn for study in self.studies for drawn in study.pictures)
        written = write_files(out / FOLDER, files) if files else []
        clear(out / FOLDER, OF_STUDIES, files)
        html = self.html(every)
        contents = {PAGE: html.encode(), NUMBERS: json_bytes(plain(self.to_json()))}
        contents |= _images(drawn for _, _, pictures in self.sections for drawn in pictures)
        if every:  # last of all: who sees it finds the rest
            contents[STAMP] = call("stamp", _STAMPED.findall(html)[0])
        return [*write_files(out, contents), *written]

    def html(self, every: float = 0.0) -> str:
        """The page. The same results give the same page: it has no date in it."""
        page = _template().render(
            report=self, counts=self.counts(), least_seeds=LEAST_SEEDS, has_figures=has_figures, every=every, folder=FOLDER,
            most_lines=MOST_LINES, ids=[study.told.id for study in self.studies],
        )  # fmt: skip
        return page.replace(_UNSTAMPED, f'data-stamp="{hashlib.sha256(page.encode()).hexdigest()[:16]}"', 1)

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
            return f"{'This command trains' if len(lines) == 1 else 'These commands train'} the missing runs:", lines
        what = "the settings of the missing runs" if lacks is None else lacks.why
        return f"The rows do not say {what}. This command shows what would be trained; remove --dry-run to train it:", lines

    def costs(self, paper: Paper) -> list[tuple[str, str]]:
        """The commands that make the runs of a paper, into the store, and what each takes."""

        def whole(command: str) -> str:
            store = shlex.quote(f"STORE={self.store}") if command.startswith("make ") else f"--store {shlex.quote(self.store)}"
            return f"{command} {store}"

        return [(whole(cost.command), cost.takes) for cost in paper.costs]

    def to_json(self) -> list[dict[str, Any]]:
        """Verdicts and what they rest on, without pictures."""
        return [
            {
                "id": claim.id,
                "title": claim.title,
                "figures": claim.figures,
                "verdict": finding.verdict,
                "seeds": finding.seeds,
                "seen": finding.seen,
                "conditions": [
                    asdict(c) | {"values": known_values(c), "judged": c.judged, "met": c.enough and c.met, "met_by": c.met_by}
                    for c in finding.conditions
                ],
                "comparisons": [asdict(one) for one in finding.comparisons],
                "settings": finding.settings,
                "others": finding.others,
                "guessed": finding.guessed,
                "commands": self.missing(claim, finding)[1] if finding.verdict == NOT_ENOUGH else [],
            }
            for claim, finding, _ in self.sections
        ]


def _says_the_same(one: Told, other: Told) -> bool:
    """Whether answer and tables are the same. They change with measures of runs that are otherwise the same."""
    before, now = ({sheet.name: sheet.table for sheet in told.sheets} for told in (one, other))
    if list(one.lines) != list(other.lines) or before.keys() != now.keys():
        return False
    return all(table.equals(before[name]) for name, table in now.items())


def clear(folder: Path, names: re.Pattern[str], but: Collection[str]) -> None:
    """Remove the files of a folder that have such names, which a former page has left, but these; and what killed
    processes left of any file with such a name."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if names.fullmatch(path.name) and path.name not in but and path.is_file():
            path.unlink()
    sweep(folder, names.fullmatch)


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalized
    )
    environment.filters |= {"number": number, "spread": spread, "outcome": outcome, "slug": slug, "duration": format_seconds}
    environment.filters |= {"beside": beside, "seeds": seeds, "heads": heads_of, "lines": lines_of, "words": shlex.join}
    return environment.get_template("page.html.j2")


def _finalized(value: Any) -> Any:
    """A text as the page has it, whoever wrote it: without characters that change how those around them are read."""
    return printable_lines(value) if type(value) is str else value  # not what the template itself has made


def draw(picture: Picture) -> Drawn:
    """The picture as bytes; whatever its function raises is kept in `error`."""
    try:
        figure = picture.draw()
        png = image(figure, "png")
        figure.set_layout_engine("none")  # what it has placed for the first file stays there: to place it takes long
        return Drawn(picture.name, picture.alt, png, image(figure, "svg"))
    except Exception as error:  # one figure must not cost the page
        return Drawn(picture.name, picture.alt, b"", b"", f"{type(error).__name__}: {error}".splitlines()[0])


def _images(pictures: Iterable[Drawn]) -> dict[str, bytes]:
    """The files of the pictures that could be drawn."""
    drawn = [picture for picture in pictures if not picture.error]
    return {f"{one.name}.{kind}": getattr(one, kind) for one in drawn for kind in ("png", "svg")}


def has_figures(part: Part) -> bool:
    """Whether claims of a part are about figures that the paper numbers."""
    return any(claim.figures for claim, _, _ in part.sections)


def slug(words: str) -> str:
    """A verdict as the name of its style."""
    return words.replace(" ", "-")


def spread(condition: Condition) -> str:
    """The range over seeds, with the digits that tell it from the bound."""
    values = known_values(condition).values()
    return f"{beside(min(values), condition.bound)} to {beside(max(values), condition.bound)}" if values else ""


def known_values(condition: Condition) -> dict[int, float]:
    """Its value of each seed; of one that has none of its own, and only counts, it is NaN."""
    return {seed: value for seed, value in condition.values.items() if not math.isnan(value)}


def seeds(condition: Condition) -> str:
    """Their number, and how many of them meet a condition alone."""
    count = len(condition.values)
    return f"{condition.met_by} of {count} meet it" if count and condition.met_by is not None else f"{count}"


def outcome(condition: Condition) -> str:
    """Whether a condition is met, in words."""
    if not condition.enough:
        return f"too few {condition.lacking or 'seeds'}"
    return "met" if condition.met else "not met"
