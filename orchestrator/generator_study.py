"""A study of generators while it runs and when it has ended: its table by level and judge, and the verdicts of its claims."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command.cli import on_store
from orchestrator.command.progress import Running
from orchestrator.command.tables import runs_text
from orchestrator.searches import Latest, Rows, ending
from orchestrator.store import MeasureTable, StoreError
from orchestrator.study import GridStudy
from trainables.generative.settings import OF_WHICH, meaningless
from trainables.settings import value_of
from trainables.spec import RunSpec

if TYPE_CHECKING:
    from analysis.generators import Measured
    from analysis.objectives import Answer


class WithMeasures:
    """Of a `Study` that shows what was measured in its store; to be named before the base that is the study. The table has
    the measures as of the last time: the thread that shows it may not wait for a store whose locks others hold."""

    __slots__ = ()

    name: str
    settings: dict[str, Any]
    _measured: Measured

    def read_measures(self, *, patient: bool = False) -> None:
        if (measured := _measured_for(self.name, self.settings["store"], patient)) != self._measured:
            self._take_in(measured)

    def _take_in(self, measured: Measured) -> None:
        """Keep other measures, and forget the answer that was of the former ones."""
        raise NotImplementedError


@dataclass(slots=True)
class GeneratorStudy(WithMeasures, GridStudy):
    """Generators over seeds, tabled by level and judge, with the verdicts of their claims. A `Study`."""

    _measured: Measured = field(default_factory=dict)
    _known: Latest[Answer] = field(init=False)

    def __post_init__(self) -> None:
        GridStudy.__post_init__(self)
        self._known = Latest(self._answer_of)

    def _take_in(self, measured: Measured) -> None:
        self._measured, self._known = measured, Latest(self._answer_of)

    def line(self, row: Mapping[str, Any]) -> str:
        from analysis.generators import Run

        run = Run.of(row, lambda key: None, {})
        told = f"{self._told(run.spec)}, seed {row['seed']}: {ending(row)}"
        shares = [f"{name} {share:.2f}" for name, share in _shares(run.final).items() if not math.isnan(share)]
        return f"{told} ({', '.join(shares)}{', ' * bool(shares)}{row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        """A line per setting: runs done and in progress, and medians of what these draw right, at the end or, of those in
        progress, at their last look."""
        answer = self._known.of(rows)
        going: dict[Any, list[Running]] = {}
        for run in running.values():
            going.setdefault(self._setting(run.spec), []).append(run)
        table = self._begun("share read right, medians over seeds", "runs", "step", *_shares(lambda *_: 0.0))
        ended: dict[Any, list[Any]] = {}
        for one in answer.runs:
            ended.setdefault(self._setting(one.spec), []).append(one)
        for setting, specs in self._by_setting(rows).items():
            done, busy = ended.get(setting, []), going.get(setting, [])
            runs = runs_text(len(done), len(specs), len(busy))
            step = str(min(run.step for run in busy)) if busy else ""
            found = [_shares(run.final) for run in done if run.status == "finished"] + [_now(run) for run in busy]
            table.add_row(*self._cells(setting), runs, step, *_medians(found))
        return Group(table, *map(Text, self._lines(answer)))

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Table, JSON and figures, at the end of a launch."""
        from analysis.files import write_generators

        self.read_measures(patient=force)
        answer = self._known.of(rows) if force else None
        return write_generators(answer, self.name, out) if answer is not None and answer.runs else []

    def answer(self, rows: Rows) -> dict[str, Any]:
        self.read_measures(patient=True)
        return self._known.of(rows).to_json()

    def _lines(self, answer: Answer) -> list[str]:
        lines = answer.lines()
        if answer.lacks:
            measuring = on_store("analysis.measure", self.settings["store"])
            lines.append(f"{answer.lacks} is known after: {measuring}, then this command again")
        return lines

    def _answer_of(self, rows: Rows) -> Answer:
        """The answer as far as it is known."""
        from analysis.objectives import Answer

        found, replaced = self.search.runs(rows), self.search.replaced(rows)
        names = {name: self.about[name] for name in self.columns}
        return Answer.of(found, rows.get, self._measured, names, self.settings, self.name, replaced)

    def _told(self, spec: RunSpec) -> str:
        family, tokenizer, *more = self._cells(self._setting(spec))
        told = (f"{self.about[name]} {value}" for name, value in zip(self.columns[2:], more, strict=True) if value)
        return ", ".join([f"{family} on {tokenizer}", *told])

    def _cells(self, setting: tuple[Any, ...]) -> list[str]:
        """Nothing of what means nothing to a family on a tokenizer."""
        values = dict(zip(self.columns, setting, strict=True))
        others = meaningless({name: value_of(self.specs[0], name) for name in OF_WHICH} | values)
        return ["" if name in others else str(value) for name, value in values.items()]


def _measured_for(study: str, store: str, patient: bool) -> Measured:
    """What a study looks at of what `analysis.measure` found in a store; nothing where that cannot be read now, since an answer
    says what it lacks."""
    from analysis.generators import OF_GENERATORS, OF_PARENTS, numbers_of

    with contextlib.suppress(StoreError), MeasureTable(store) as table:
        if not patient:
            table.hasten()
        return numbers_of(table.rows([*OF_PARENTS, *OF_GENERATORS.get(study, ())]))
    return {}


def _shares(of: Any) -> dict[str, float]:
    """What a table shows of a run, from a function of level and judge."""
    return {
        "seen": of("seen", "both"),
        "level 1": of("level1", "both"),
        "level 2": of("level2", "both"),
        "level 2 by probe": of("level2", "probe"),
        "level 2 by oracle": of("level2", "oracle"),
    }


def _now(run: Running) -> dict[str, float]:
    """The same of a run in progress."""
    return _shares(lambda level, judge: run.summary.get(f"{judge}_{level}", math.nan))


def _medians(found: Sequence[Mapping[str, float]]) -> Iterator[str]:
    for name in _shares(lambda *_: 0.0):
        values = [shares[name] for shares in found if not math.isnan(shares[name])]
        yield f"{statistics.median(values):.2f}" if values else ""
