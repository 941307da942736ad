"""The answer of the scaling study: its table and its power laws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from analysis.alternatives import Broken
from analysis.digits import told_apart
from analysis.doubts import Doubt, doubts, line_of
from analysis.fits import LEAST_SIZES, PowerLaw, fit_power_law, is_cut, summarise
from orchestrator.command.files import plain, records
from orchestrator.searches.audits import AUDITED, DIVERGED, UNAUDITED, Record, merged
from orchestrator.searches.axes import BUMPS, USUAL, Axes
from orchestrator.searches.bracket import ThresholdResult

CLAIMS: Mapping[str, float] = {"bumps": 3.0, "stripes+bumps": 1.0}
"""Exponents of total images against N that the paper reports (arXiv 2501.18797, figure 4c)."""
IMAGES = ("images", "images_lower", "images_upper", "fixed_images")
"""Columns that count all training images, those that are always present included."""
FORMER = ("threshold", "lower", "upper", "total_images")
"""Columns from which fits, figures and claims are computed; `shown` will leave them out from the next version on. `threshold`
counts without the images always present."""
COUNTS = (*IMAGES, *FORMER)
"""Columns of whole numbers."""
COLUMNS = ("decoder", "dataset", "N", "seed", *IMAGES, "verdict", "runs", "steps", "lower_ended", "contradicted_by", *FORMER)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a scaling study found. `known`: a row per threshold (COLUMNS, and `tried`). `summary`: a row per data set and N.
    `fits`: the power law of each data set that has one. If `axes` are others, the axis along is a column in the place of N,
    and the least values are in the columns of images."""

    known: pd.DataFrame
    summary: pd.DataFrame
    fits: Mapping[str, PowerLaw]
    settings: Mapping[str, Any]
    rules: Mapping[str, Mapping[str, Any]]
    """By data set, what audits found of the stopping rule."""
    axes: Axes = USUAL
    doubts: Sequence[str] = ()
    """What speaks against its thresholds, in words."""

    @classmethod
    def of(
        cls,
        results: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        rules: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        axes: Axes = USUAL,
    ) -> Answer:
        """From one mapping of COLUMNS per threshold; those still open take no part. Categories have no power law."""
        known, task = _answered(results, axes), settings.get("task", BUMPS)
        told = doubts(known, axes, str(task))
        return cls(known, summarise(known, axes=axes), _fits(known, axes, task), settings, rules, axes, told)

    @classmethod
    def of_results(cls, results: Sequence[ThresholdResult], settings: Mapping[str, Any]) -> Answer:
        """From what a search found."""
        axes = results[0].axes if results else USUAL
        records: dict[str, dict[int, Record]] = {}
        for r in results:
            records.setdefault(r.dataset, {})[r.curve] = r.rule
        rules = {dataset: merged([*of_curves.values()]).to_dict() for dataset, of_curves in records.items()}
        return cls.of([r.to_row() for r in results], settings, rules, axes)

    @property
    def table(self) -> pd.DataFrame:
        """The thresholds without the runs of their walks."""
        return self.known.drop(columns="tried")

    @property
    def task(self) -> str:
        """The path of the task; where the settings do not name it, the one that the study is about."""
        return str(self.settings.get("task", BUMPS))

    @property
    def shown(self) -> pd.DataFrame:
        """The table as it is written: the columns of images are called after the setting whose least value was searched."""
        if self.axes.is_usual:
            return self.table
        former = [name for name in FORMER if name in self.table]
        dropped = former if self.axes.least == "data_count" else [*former, "fixed_images"]
        named = {name: name.replace("images", self.axes.quantity) for name in IMAGES[:3]}
        return self.table.drop(columns=dropped).rename(columns=named)

    @property
    def counts(self) -> tuple[str, ...]:
        """The columns of `shown` that hold whole numbers."""
        if self.axes.is_usual:
            return COUNTS
        shown = self.shown
        names = [*(name.replace("images", self.axes.quantity) for name in IMAGES[:3]), "fixed_images"]
        return tuple(name for name in names if name in shown and _are_whole(shown[name]))

    def paper(self, dataset: str) -> float | None:
        """The exponent that the paper reports, if that is what was asked."""
        return CLAIMS.get(dataset) if self.axes.is_usual and self.task == BUMPS else None

    def lines(self) -> list[str]:
        """Per data set: the exponent, its interval, and the paper's claim; then the `notes`."""
        return [*(f"{dataset}: {self.describe(dataset)}" for dataset in self.fits), *self.notes]

    @property
    def notes(self) -> list[str]:
        """What else there is to say of a data set: a broken law that fits far better; what speaks against its thresholds; and
        what its lower bounds rest on."""
        breaks = [
            f"{dataset}: a law that breaks between {self.axes.along} = {broken.last:g} and {broken.first:g} fits far better: "
            f"{self.describe_broken(broken)}"
            for dataset, fit in self.fits.items()
            if (broken := fit.broken) is not None and broken.is_better
        ]
        rules = (line for dataset in self.rules for line in self._rule_lines(dataset))
        return [*breaks, *self._cuts(), *self.doubts, *rules]

    def _cuts(self) -> list[str]:
        """Of categories, where less than the lowest value may do. Of numbers the note of a fit says so."""
        told: dict[str, list[Doubt]] = {}
        for (dataset, along), seeds in self.known.groupby(["dataset", self.axes.along], sort=False):
            if not self.axes.scaled and (cut := int(is_cut(seeds, self.axes).sum())):
                many = f"{cut} of {len(seeds)} seeds pass at the lowest {self.axes.least}"
                told.setdefault(f"{dataset}: ", []).append(Doubt(along, f"at {self.axes.along} = {along} {many}"))
        so = "So less may do: ask for lower values"
        return [line for dataset, found in told.items() for line in line_of(dataset, found, self.axes, so)]

    def _rule_lines(self, dataset: str) -> list[str]:
        """What there is to say of the stopping rule."""
        of_dataset = self.table[self.table["dataset"] == dataset]
        ended = Counter(ground for ground in of_dataset["lower_ended"].dropna() if ground)
        rule, lines = self.rules[dataset], []
        unaudited = f"* {ended[UNAUDITED]} of {ended.total()} lower bounds rest on"
        if flips := rule["flips"]:
            more = f", and {len(flips) - 1} more" if len(flips) > 1 else ""
            if ended[UNAUDITED]:
                so = f". {unaudited} it nevertheless, so these thresholds may be too high; --stop auto would not use it"
            elif self.settings.get("stop") == "early":
                so = ": no lower bound rests on it, and --stop auto would not use it"
            elif ended[AUDITED]:
                so = ", so it is off for runs like these"
            else:
                so = ", so it is off: every run that does not pass is trained to the end"
            lines.append(f"{dataset}: the stopping rule was wrong here ({flips[0]}{more}){so}")
        elif ended[UNAUDITED]:
            lines.append(
                f"{dataset}: {unaudited} the unchecked stopping rule. "
                "It is wrong if accuracy rises late: --stop auto trains these runs to the end"
            )
        if ended[DIVERGED]:
            lines.append(
                f"{dataset}: {ended[DIVERGED]} of {ended.total()} lower bounds are runs that diverged: their loss or accuracy "
                "was no finite number, which says little of how many it takes"
            )
        if ended[AUDITED]:
            audited = f"{dataset}: {ended[AUDITED]} of {ended.total()} lower bounds rest on the stopping rule"
            if flips:  # on another curve of the data set
                lines.append(f"{audited}, of other runs: enough that it gave up were trained to the end, and none passed")
            else:
                of_them = f"{rule['known']} of them" if rule["audits"] else "all of them"
                known = f", {of_them} before this study and perhaps at other sizes" if rule["known"] else ""
                most = math.ceil(1000 * rule["bound"]) / 10
                lines.append(
                    f"{audited}. {rule['known'] + rule['audits']} runs that it gave up were trained to the end{known}, "
                    f"and none passed: of such runs it is wrong in under {most:.1f} % (95 % confidence)"
                )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Settings, fits and thresholds in plain values; what is not known or infinite is null."""
        summary = self.summary
        if not self.axes.is_usual:
            summary = summary.rename(columns={"total_images": self.axes.quantity})
        return plain(
            {
                "settings": dict(self.settings),
                "fits": {d: {**asdict(f), "paper_exponent": self.paper(d)} for d, f in self.fits.items()},
                "rules": {dataset: dict(rule) for dataset, rule in self.rules.items()},
                "summary": summary.to_dict("records"),
                "thresholds": records(self.shown, self.counts),
            }
        )

    def describe(self, dataset: str) -> str:
        """`images ~ N^1.72 [1.60, 1.84] (paper: 3)`, or why there is no exponent. What two grid sizes give is not written as
        the interval of a fit."""
        fit, paper = self.fits[dataset], self.paper(dataset)
        if fit.exponent is None:
            return fit.note
        interval = ""
        if fit.lower is not None and fit.upper is not None:
            ends = [_end(end, paper) for end in (fit.lower, fit.upper)]
            interval = " [{}, {}]".format(*ends) if fit.sizes >= LEAST_SIZES else " ({} to {} over seeds)".format(*ends)
        claim = "" if paper is None else f" (paper: {paper:g})"
        law = f"{self.axes.words(self.task)} ~ {self.axes.along}^{fit.exponent:z.2f}"
        return f"{law}{interval}{claim}{'; ' + fit.note if fit.note else ''}"

    def describe_broken(self, broken: Broken) -> str:
        """`N^1.70 before, N^2.10 after, and x 1.45 at the break`."""
        before, after = (f"{self.axes.along}^{exponent:z.2f}" for exponent in broken.exponents)
        return f"{before} before, {after} after, and x {broken.step:.2f} at the break"


def widths(results: Sequence[ThresholdResult]) -> dict[str, float | None]:
    """How wide the interval of each data set's exponent is; None where there is none."""
    axes = results[0].axes if results else USUAL
    fits = _fits(_answered([r.to_row() for r in results], axes), axes, BUMPS)
    return {name: None if law.lower is None or law.upper is None else law.upper - law.lower for name, law in fits.items()}


def _end(value: float, paper: float | None) -> str:
    """An end of an interval with two decimals, or with more as long as it would read like the paper's exponent and is not."""
    return told_apart(value, value if paper is None else paper, [f"z.{digits}f" for digits in range(2, 7)])


def _answered(results: Sequence[Mapping[str, Any]], axes: Axes) -> pd.DataFrame:
    """The thresholds that are not open any more, in a table."""
    columns = dict.fromkeys(axes.along if name == "N" else name for name in COLUMNS)
    known = pd.DataFrame(list(results), columns=[*columns, "tried"])
    return known[known["verdict"] != "open"].reset_index(drop=True)


def _fits(known: pd.DataFrame, axes: Axes, task: str) -> dict[str, PowerLaw]:
    """The power law of each data set; none along categories."""
    parts = known.groupby("dataset", sort=False) if axes.scaled else ()
    return {str(dataset): fit_power_law(part, axes=axes, task=task) for dataset, part in parts}


def _are_whole(column: pd.Series) -> bool:
    known = column.dropna().astype(float)
    return bool((known % 1 == 0).all())
