"""What studies that search settings share: options, the plan of a search, its trials, and the settings that are confirmed."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from orchestrator.command.cli import check_new_file
from orchestrator.command.files import sweep
from orchestrator.command.options import searched
from orchestrator.command.progress import Running
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.reading import check_apart
from orchestrator.command.recipe import short
from orchestrator.command.tables import (
    FittingTable,
    accuracy_text,
    digits_for,
    digits_for_means,
    kind_of_mean,
    number_text,
    runs_text,
)
from orchestrator.engine.estimate import Chain, Work
from orchestrator.errors import FULL_DISK, UnexportedError, UserError, of_asked, printable
from orchestrator.opened import check_there
from orchestrator.searches import Rows
from orchestrator.searches.confirm import FRESH, MOST_SEARCHES, ConfirmAndJudge, ConfirmBest
from orchestrator.searches.optuna import OptunaSearch
from orchestrator.searches.samplers import NO_NUMBER, NOT_WELL, state_of
from orchestrator.searches.space import Values
from trainables.settings import value_of

if TYPE_CHECKING:
    import pandas as pd

SeedsPerTrial = Annotated[int, searched(min=1, max=FRESH, help="Seeds that a trial is trained on while it is among the best.")]
SearchSeed = Annotated[
    int, searched(min=0, max=MOST_SEARCHES, help="Seed of the sampler. Another value also gives other seeds of trainings.")
]
ExportOptuna = Annotated[
    Path | None, searched(help="Write the trials to this new SQLite file; `optuna-dashboard sqlite:///FILE` shows it.")
]

WRITTEN = (".csv", ".json", ".png", ".svg")
"""Ends of the names of the files of an answer."""
SHOWN = 5
"""Trials in the live table."""
JUDGED: Sequence[tuple[str, Callable[[float], str]]] = (
    ("id_mse_gmean", "{:.2e}".format),
    ("ood_mse_gmean", "{:.2e}".format),
    ("accuracy", accuracy_text),
)
"""Columns of a summary, and how they are shown."""
GUESSED_SHARE = 0.6
"""Share of its steps that a trial is expected to take on average, where some are pruned."""
SEVERAL = 1 / 3
"""Share of the trials that are expected to take every seed."""


def plan_table(search: ConfirmBest, rows: Rows, steps: str) -> FittingTable:
    """The runs of a search and of its confirmation, done and to do; lines for others may follow.

    Args:
        steps: those of a run, in words.
    """
    tuning = search.tuning
    table = FittingTable("the plan")
    for name in ("part", "runs done", "runs to do", "steps of a run"):
        table.add_column(name, justify="left" if name == "part" else "right")
    done, left = len(tuning.finished_trials(rows)), tuning.left(rows)
    fewer = ", fewer if pruned" if tuning.pruner != "none" else ""
    table.add_row("trials", str(done), str(left), steps and steps + fewer)
    if len(tuning.seeds) > 1:
        more = sum(len(trial.rows) - 1 for trial in tuning.finished_trials(rows))
        most = left * (len(tuning.seeds) - 1)
        table.add_row("their further seeds", str(more), f"at most {most}", steps)
    for setting, (ready, missing) in search.planned(rows).items() if search.seeds else ():
        table.add_row(f"{setting}, fresh seeds", str(ready), str(missing), steps)
    return table


def work_left(search: ConfirmBest, rows: Rows, seconds: float) -> Work:
    """The runs of a search and its confirmation that are expected to come. A trial in contention takes its seeds one after
    another, and the confirmation follows.

    Args:
        seconds: of a run that is not pruned.
    """
    tuning = search.tuning
    share = GUESSED_SHARE if tuning.pruner != "none" else 1.0
    trials, further = tuning.left(rows), len(tuning.seeds) - 1
    left = sum(missing for _, missing in search.planned(rows).values())
    runs = [(share * seconds, trials), (seconds, trials * further * SEVERAL), (seconds, left)]
    searching = min(1 + further, trials * (share + further * SEVERAL))
    return Work(runs, [Chain(seconds * (searching + min(left, 1)))])


def check_planned(search: tuple[int, int], confirmation: tuple[int, int], fresh: str) -> None:
    """
    Args:
        search, confirmation: trials, and the seeds of each.
        fresh: the option that gives the seeds of the confirmation.

    Raises:
        UserError: these are too many runs.
    """
    of_search, fresh_runs = math.prod(search), math.prod(confirmation)
    if of_search + fresh_runs > MOST_PLANNED:
        options = "--trials or --seeds-per-trial" if of_search > fresh_runs else f"--confirm or {fresh}"
        raise UserError(f"more than {MOST_PLANNED} runs are too many: ask for fewer {options}")


def check_confirmed(confirm: int, trials: int) -> None:
    """
    Raises:
        UserError: more trials are to be confirmed than there are.
    """
    if confirm > trials:
        raise UserError(f"--confirm {confirm} is more than there are trials: give at most {trials}, or more --trials")


def check_export(file: Path | None, store: str, out: str) -> None:
    """
    Args:
        file: for the trials, as an Optuna study.
        out: where the tables and figures of the answer go.

    Raises:
        UserError: it is no new file that can be written, or the store or the answer needs its place.
    """
    if file is None:
        return
    option = "--export-optuna"
    check_new_file(option, file)
    check_apart(file, store, "study.db", option=option)
    place = Path(os.path.realpath(file.parent), file.name)
    folders = [Path(os.path.realpath(folder)) for folder in (out, store) if "://" not in folder]
    if any(folder.is_relative_to(place) for folder in folders):
        why = "is the name of a folder that the study makes"
    elif "://" not in out and place.parent == folders[0] and place.suffix.lower() in WRITTEN:
        why = "may be the name of a table or figure of the answer"
    else:
        return
    raise UserError(f"{option} {str(file)!r} {why}: give the file another name, such as study.db")


def check_grid(tuning: OptunaSearch, trials: int) -> None:
    """
    Raises:
        UserError: the least grid has more points than the trials that were asked for.
    """
    if tuning.sampler == "grid" and tuning.trials > trials:
        raise UserError(f"the least grid of this space has {tuning.trials} points: raise --trials to that, or search less")


def with_export(files: Sequence[Path], tuning: OptunaSearch, rows: Rows, file: Path, name: str) -> list[Path]:
    """The files of an answer and, as a further one, the trials as an Optuna study of this name.

    Raises:
        UnexportedError: that one cannot be written.
    """
    try:
        check_there(file)
        sweep(file.parent, file.name.__eq__)
        tuning.export(rows, file, name)
    except OSError as error:
        hint = "free space, or name" if error.errno in FULL_DISK else "name"
        told = f"the trials could not be written to {printable(str(file))} ({error.strerror or error})"
        raise UnexportedError(f"{told}: {hint} another file with --export-optuna", files) from error
    return [*files, file]


def trials_table(
    tuning: OptunaSearch, rows: Rows, running: Mapping[str, Running], confirmed: Collection[int] = ()
) -> FittingTable:
    """The best trials, the last ones, and those in progress.

    Args:
        confirmed: numbers of trials of the front that are shown in any case.
    """
    names = [dimension.name for dimension in tuning.dimensions]
    trials = tuning.finished_trials(rows)
    counts = Counter(map(state_of, trials))
    ended = [f"{counts[name]} {name}" for name in (*NOT_WELL, NO_NUMBER) if counts[name]]
    if len(trials) >= tuning.trials and (left := tuning.left(rows)):
        ended.append(f"{left} to come")  # those of a grid, after others that the store has
    several = len(tuning.aims) > 1
    leading = tuning.front(rows) if several else tuning.ranked(rows)[:SHOWN]
    front = {trial.number for trial in leading} if several else set[int]()
    best = [trial for place, trial in enumerate(leading) if place < SHOWN or trial.number in confirmed]
    shown = {trial.number: trial for trial in (*best, *trials[-3:])}
    if left_out := front - shown.keys():
        ended.append(f"{len(front) - len(left_out)} of {len(front)} of the front")
    table = FittingTable(f"search: {', '.join([of_asked(len(trials), tuning.trials, 'trial'), *ended])}")
    for name in ("trial", *(name.replace("_", " ") for name in names), *(aim.name for aim in tuning.aims), "seeds", "state"):
        table.add_column(name, justify="right")
    scored = [trial.scores for trial in shown.values() if trial.scores]
    digits = [digits_for(scores) for scores in zip(*scored, strict=True)]
    for trial in shown.values():
        first = bool(best) and trial.number == best[0].number and not several
        state = "best" if first else "front" if trial.number in front else state_of(trial)
        scores = [*map(number_text, trial.scores, digits)] or [""] * len(tuning.aims)
        cells = [str(trial.number), *_cells(names, trial.values), *scores, str(len(trial.rows)), state]
        table.add_row(*cells, style="bold green" if first else "")
    for run in running.values():
        if run.spec.seed in tuning.seeds:
            share = f"seed {run.spec.seed}, {run.step / run.spec.max_steps:.0%}"
            values = {name: value_of(run.spec, name) for name in names}
            table.add_row("", *_cells(names, values), *[""] * len(tuning.aims), "", share, style="dim")
    return table


def confirmed_table(
    search: ConfirmBest,
    rows: Rows,
    running: Mapping[str, Running],
    known: pd.DataFrame,
    interval: Callable[[Any, str, int], str],
) -> FittingTable:
    """The settings on fresh seeds. A mean that not all seeds are in, as some failed or have no number, says how many are.

    Args:
        known: the answer's table of them.
        interval: a mean and its interval in words, of a line of that table, an objective, and with so many digits.
    """
    tuning = search.tuning
    has_interval = any(known[f"{aim.name}_lower"].notna().any() for aim in tuning.aims)
    geometric = dict(zip([aim.name for aim in tuning.aims], search.geometric(rows), strict=True))
    table = FittingTable(f"confirmed on fresh seeds: {kind_of_mean(geometric)}{' and 95 % interval' * has_interval}")
    for name in ("setting", "seeds", *(f"{aim.name}{part}" for aim in tuning.aims for part in (" in the search", ""))):
        table.add_column(name, justify="left" if name == "setting" else "right")
    busy = [run.spec for run in running.values()]
    of_setting = {row["setting"]: row for row in known.to_dict("records")}
    digits = {aim.name: digits_for_means([*of_setting.values()], aim.name) for aim in tuning.aims}
    for setting, specs in search.finals(rows).items():
        found = of_setting[setting]
        done = sum(search.row(rows, spec) is not None for spec in specs)
        started = sum(spec in busy for spec in specs)
        of_some = f" ({found['seeds']} of {found['seeds'] + found['failed']})" if found["failed"] else ""
        means = {name: interval(found, name, n) for name, n in digits.items()}
        told = [(number_text(found[f"{name}_search"], n), means[name] and means[name] + of_some) for name, n in digits.items()]
        style = "bold green" if found["winner"] else ""
        cells = [cell for pair in told for cell in pair]
        table.add_row(setting, runs_text(done, len(specs), started), *cells, style=style)
    return table


def judged_table(
    title: str,
    search: ConfirmAndJudge,
    rows: Rows,
    running: Mapping[str, Running],
    names: Sequence[str],
    summary: pd.DataFrame,
) -> FittingTable:
    """The settings where they are judged.

    Args:
        names: of the options that tell them apart.
        summary: the answer's table of them.
    """
    table = FittingTable(title)
    for name in ("setting", *(n.replace("_", " ") for n in names), "seeds", "ID MSE", "OOD MSE", "OOD accuracy"):
        table.add_column(name, justify="left" if name == "setting" else "right")
    of_setting = {row["setting"]: row for row in summary.to_dict("records")}
    busy = [run.spec for run in running.values()]
    for setting, specs in search.finals(rows).items():
        found = of_setting.get(setting, {})
        done = sum(search.row(rows, spec) is not None for spec in specs)
        started = sum(spec in busy for spec in specs)
        numbers = [(found.get(name), text) for name, text in JUDGED]
        cells = ["" if value is None or value != value else text(value) for value, text in numbers]
        seeds = runs_text(done, len(specs), started)
        table.add_row(setting, *(f"{specs[0].option(name):.3g}" for name in names), seeds, *cells)
    return table


def _cells(names: Sequence[str], values: Values) -> list[str]:
    return [short(values[name]) if name in values else "-" for name in names]
