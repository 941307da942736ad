"""The tables of the tune study: its trials, and the settings that are confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.command.progress import Running
from orchestrator.command.recipe import short
from orchestrator.command.tables import FittingTable
from orchestrator.searches import Rows, ending
from orchestrator.searches.confirm import ConfirmBest
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.space import Values

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 5
"""Trials in the live table."""


def trials_table(tuning: OptunaSearch, rows: Rows, running: Mapping[str, Running]) -> FittingTable:
    """The best trials, the last ones, and those in progress."""
    names = [dimension.name for dimension in tuning.dimensions]
    trials = tuning.finished_trials(rows)
    counts = Counter(ending(trial.row) for trial in trials)
    ended = [f"{counts[name]} {name}" for name in ("pruned", "diverged", "failed") if counts[name]]
    table = FittingTable(f"search: {', '.join([f'{len(trials)} of {tuning.trials} trials', *ended])}")
    for name in ("trial", *names, *(aim.name for aim in tuning.aims), "seeds", "state"):
        table.add_column(name.replace("_", " "), justify="right")
    best = tuning.ranked(rows)[:SHOWN] if len(tuning.aims) == 1 else tuning.front(rows)[:SHOWN]
    leading = [trial.number for trial in best]
    for trial in [*best, *(t for t in trials[-3:] if t.number not in leading)]:
        first = bool(best) and trial.number == best[0].number and len(tuning.aims) == 1
        state = "best" if first else "front" if len(tuning.aims) > 1 and trial.number in leading else ending(trial.row)
        scores = [f"{score:.3g}" for score in trial.scores] or [""] * len(tuning.aims)
        cells = [str(trial.number), *_cells(names, trial.values), *scores, str(len(trial.rows)), state]
        table.add_row(*cells, style="bold green" if first else "")
    for run in running.values():
        if run.spec.seed in tuning.seeds:
            share = f"seed {run.spec.seed}, {run.step / run.spec.max_steps:.0%}"
            values = {name: run.spec.value(name) for name in names}
            table.add_row("", *_cells(names, values), *[""] * len(tuning.aims), "", share, style="dim")
    return table


def confirmed_table(
    search: ConfirmBest, rows: Rows, running: Mapping[str, Running], known: pd.DataFrame, interval: Callable[[Any, str], str]
) -> FittingTable:
    """The settings on fresh seeds.

    Args:
        known: the answer's table of them.
        interval: a mean and its interval in words, of a line of that table and an objective.
    """
    tuning = search.tuning
    table = FittingTable("confirmed on fresh seeds: mean and 95 % interval")
    for name in ("setting", "seeds", *(f"{aim.name}{part}" for aim in tuning.aims for part in (" in the search", ""))):
        table.add_column(name, justify="left" if name == "setting" else "right")
    busy = [run.spec for run in running.values()]
    of_setting = {row["setting"]: row for row in known.to_dict("records")}
    for setting, specs in search.finals(rows).items():
        found = of_setting[setting]
        done = sum(search.row(rows, spec) is not None for spec in specs)
        started = sum(spec in busy for spec in specs)
        cells = [c for aim in tuning.aims for c in (f"{found[f'{aim.name}_search']:.3g}", interval(found, aim.name))]
        style = "bold green" if found["winner"] else ""
        table.add_row(setting, f"{done}/{len(specs)}" + (f" +{started}" if started else ""), *cells, style=style)
    return table


def _cells(names: Sequence[str], values: Values) -> list[str]:
    return [short(values[name]) if name in values else "-" for name in names]
