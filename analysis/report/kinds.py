"""How each kind of study is told: its tables, its figures and its answer from its search and the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from analysis import regularization, scaling, tune
from analysis.fits import is_censored, is_cut
from analysis.importance import shares_of
from analysis.remake import AnySearch
from analysis.report.findings import Picture
from analysis.report.told import (
    ANSWERED,
    DOUBTFUL,
    FAILED,
    GOING,
    Around,
    Sheet,
    Told,
    in_words,
    of_seeds,
    seeds_asked,
    title_of,
)
from analysis.threshold_notes import notes
from orchestrator.command.files import whole_letters
from orchestrator.command.recipe import varied_in
from orchestrator.command.searched import PARTS
from orchestrator.errors import counted, of_asked
from orchestrator.searches import UNWELL, Row, Rows, ending
from orchestrator.searches.axes import samples_of
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.confirm import NO_TRIAL, ConfirmAndJudge, ConfirmBest
from orchestrator.searches.grid import GridSearch
from orchestrator.searches.narrowing import NarrowingSearch
from orchestrator.searches.space import shown
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from trainables.settings import value_of
from trainables.spec import RunSpec

NUMBERS = ("accuracy", "id_mse", "ood_mse")
"""What tables of runs show of each, where the task measures it."""
OF_RUNS = ("setting", "seed", "seeds", "failed", "status", "steps", "seconds", "key")
"""What other columns of these tables are called."""
OF_SETTINGS = {
    "errors": "ID and OOD error of every setting: geometric means{}; dots are seeds",
    "curves": "error in the box and training loss of every setting, by the epoch: geometric means and ranges over seeds",
    "embeddings": "the matrix of every value of x and of y, without penalties and with them",
    "volume": "how the matrices stretch the grid",
    "composition": "how the median and the worst picture of the box are made of two matrices",
    "images": "what is drawn in the box",
}
"""What the figures of the regularization study show; that of errors has a place for the words about intervals."""
Shown = tuple[Sequence[str], Sequence[Sheet], Sequence[Picture]]
"""The lines, the tables and the figures of an answer."""
TITLED = ("target", "decoder", "encoding")
"""What the title of a figure of thresholds says of their runs."""
SEARCHED = "the trials in order, and what fresh seeds say of the best"
OPPOSED = "the trials by the first two objectives, and what fresh seeds say of the confirmed ones"
"""Where there are several objectives."""
IMPORTANCES = (
    "how much each setting matters by itself: its share of the variance of the first objective (main effect, by fANOVA). The "
    "shares need not add up to 1, and with few trials luck looks like a share"
)


def _of_thresholds(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures.scaling import draw

    assert isinstance(search, ThresholdSearch)
    results, runs = search.answer(rows), search.runs(rows)
    trained = {name: runs[0][name] for name in TITLED if runs and name in question.settings}  # a question may say anything
    answer = around.fitted.of(results, {**question.settings, **trained})
    left = sum(result.verdict == "open" for result in results)
    failed = sum(result.verdict == "failed" for result in results)
    keys = frozenset(row["key"] for row in runs)
    state = FAILED if failed else GOING if left else ANSWERED
    doubts = list(filter(None, [search.doubt(rows)])) if state == ANSWERED else []
    state = DOUBTFUL if doubts else state
    told = f"{len(results) - left - failed} of {len(results)} thresholds, {counted(len(keys), 'run')}"
    sheets = [_threshold_sheet(search, rows, results, question.task)]
    known = answer.table["images"].notna().any() or is_censored(answer.table).any()
    if not known:
        return Told(question, title_of(question), state, told, doubts, keys, sheets, [], results)
    sheets += _without_each(answer)
    told_of_each = notes(search, rows, results, question.task, question.settings.get("max_steps"))
    if question.study == "signal":
        lines, more, pictures = _signal(results, search, question, rows, around)
        lines = [*doubts, *lines, *told_of_each]
        return Told(question, title_of(question), state, told, lines, keys, [*sheets, *more], pictures, results)
    pictures = [Picture("scaling", _seen(answer), lambda: draw(answer))]
    exponents = {dataset: answer.describe(dataset) for dataset in answer.fits}
    lines = [*doubts, *_means_in_words(answer, results), *answer.lines(), *told_of_each]
    return Told(question, title_of(question), state, told, lines, keys, sheets, pictures, results, exponents)


def _seen(answer: scaling.Answer) -> str:
    """What the figure of thresholds shows."""
    means = answer.summary[answer.summary["total_images"].notna()]
    single, found = means["seeds"] == 1, answer.table["total_images"].count()
    parts = []
    if len(means) and single.all() and found == len(means):
        parts.append("dots are thresholds of one seed each, bars their brackets")
    elif found:
        parts.append("small dots are thresholds of seeds")
        if len(means):
            parts.append("large ones their geometric means with 95 % intervals")
        if single.any():
            parts.append("or with the bracket of the only seed")
    if is_censored(answer.table).any():
        parts.append("triangles are seeds whose thresholds lie higher")
    if (is_cut(answer.known, answer.axes) & answer.known["total_images"].notna()).any():
        parts.append("triangles that point down are seeds that pass at the lowest value, so less may do")
    laws = sum(fit.exponent is not None and fit.prefactor is not None for fit in answer.fits.values())
    law = "" if not laws else "; the line is the fitted power law" if laws == 1 else "; the lines are the fitted power laws"
    return ", ".join(parts) + law


def _threshold_sheet(search: ThresholdSearch, rows: Rows, results: Sequence[ThresholdResult], task: str) -> Sheet:
    """Every threshold, with the runs on both sides of it."""
    axes = results[0].axes
    contradicted = any(result.outliers for result in results)
    records = []
    for i, result in zip(search.numbers(rows), results, strict=True):
        found = search.found(rows, i)
        runs = {**found.early, **found.full}
        row = result.to_row()
        ends = {name: row[name] for name in ("images", "images_lower", "images_upper", "fixed_images")}
        carried = {
            "passes": runs.get(result.upper) if result.upper is not None else None,
            "misses": runs.get(result.missed) if result.missed is not None else None,
        }
        of_runs = {name: "" if run is None else run["key"] for name, run in carried.items()}
        head = {"dataset": result.dataset, axes.along: result.along, "seed": result.seed, "verdict": result.verdict}
        cost = {"lower_ended": result.lower_ended, "runs": result.runs, "steps": result.steps}
        records.append({**head, **ends, **cost, **of_runs})
        if contradicted:
            records[-1]["contradicted_by"] = row["contradicted_by"]
    table = pd.DataFrame(records)
    if not table["fixed_images"].any():
        table = table.drop(columns="fixed_images")
    whole = ("images", "images_lower", "images_upper", "fixed_images") if axes.is_usual else ()
    if not axes.is_usual:
        of_images = [name for name in table if name.startswith("images")]
        table = table.rename(columns={name: name.replace("images", axes.quantity) for name in of_images})
    what = "every threshold, and the runs on both sides of it"
    heads = {"images": f"threshold ({samples_of(task)})", axes.along: in_words(axes.along)}
    return Sheet("thresholds", what, table, ("passes", "misses"), (*whole, "seed"), heads)


def _without_each(answer: scaling.Answer) -> list[Sheet]:
    """The exponents without one size at a time, if there are any."""
    along = answer.axes.along
    found = [
        {"dataset": dataset, f"without {along} =": size, "exponent": exponent}
        for dataset, fit in answer.fits.items()
        for size, exponent in fit.without.items()
    ]
    title = f"the exponent without one {along} at a time"
    return [Sheet("without", title, pd.DataFrame(found, dtype=object))] if found else []


def _signal(results: Sequence[ThresholdResult], search: Any, question: Question, rows: Rows, around: Around) -> Shown:
    from analysis.figures.signal import draw
    from analysis.generators import is_share
    from analysis.signal import COUNTS, WORST, Answer

    answer = Answer.of(results, search.runs(rows), rows.get, question.settings, around.measured())
    what = (
        f"what a generator draws right at level {answer.level} as one factor grows fainter: a line for each seed, filled dots "
        "for runs that passed and larger open ones for those that missed"
    )
    known = answer.factors[answer.factors["contrast"].notna()]
    if len(known):
        what += "; the vertical line is the least contrast"
    if answer.band:
        what += f", the band its {answer.band}"
    if known["lower"].isna().any():
        what += "; where the line is dashed, the least contrast is at most this"
    shares = [*filter(is_share, answer.runs), WORST]
    sheets = [
        Sheet("factors", "the least contrast of each factor, and what fails below it", answer.factors, (), COUNTS),
        Sheet("runs", "every generator, at its last look", answer.runs, ("key",), COUNTS, shares=shares),
    ]
    return answer.lines(), sheets, [Picture("signal", what, lambda: draw(answer))]


def _means_in_words(answer: scaling.Answer, results: Sequence[ThresholdResult]) -> list[str]:
    """The answer itself: the mean threshold at every place, a line per data set. Where it is not that of all seeds, it is told
    of how many, as those that are not known yet may lie higher; where the lowest value passes, less may do."""
    asked = seeds_asked(results)
    lines = []
    for dataset, part in answer.summary.groupby("dataset", sort=False):
        found = part[part["total_images"].notna()]
        along = answer.axes.along
        means = [
            f"{'at most ' * math.isnan(row['lower'])}{_mean_in_words(row['total_images'])} at {along} = {row[along]}"
            f"{of_seeds(row['reached'], asked[dataset, row[along]])}"
            for row in found.to_dict("records")
        ]
        if means:
            lines.append(f"{dataset}: {', '.join(means)} (geometric means over seeds)")
    return lines


def _mean_in_words(mean: float) -> str:
    """Three digits, but from 1,000 on whole numbers: 82.4, 1,904."""
    return f"{mean:,.0f}" if mean >= 999.5 else f"{mean:.3g}"


def _of_trials(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures.tune import draw, draw_settings

    assert isinstance(search, ConfirmBest)
    answer = tune.Answer.of_search(search, rows, question.settings)
    keys = frozenset(
        [row["key"] for trial in search.tuning.finished_trials(rows) for row in trial.rows]
        + [row["key"] for _, row in search.following(rows) if row is not None]
    )
    done = len(answer.trials)
    doubts = list(filter(None, [answer.doubt() if done else NO_TRIAL]))
    state = _state(search, rows, doubts, [row for _, row in search.following(rows) if row is not None])
    pictures = []
    if done:
        pictures.append(Picture("search", _searched(answer), lambda: draw(answer)))
        if answer.trials[answer.aims[0].name].notna().any():
            drawn: Any = partial(draw_settings, answer)
            pictures.append(Picture("settings", "searched settings against the objective", drawn))
    return Told(
        question,
        title_of(question),
        state,
        f"{of_asked(done, search.tuning.trials, 'trial')}, {counted(len(keys), 'run')}",
        [*answer.lines(), *doubts * search.finished(rows)],
        keys,
        _trial_sheets(answer, search, rows),
        pictures,
    )


def _searched(answer: tune.Answer) -> str:
    """What the figure of a search shows."""
    return SEARCHED if len(answer.aims) == 1 else OPPOSED


def _trial_sheets(answer: tune.Answer, search: ConfirmBest, rows: Rows) -> list[Sheet]:
    sheets = []
    heads = {name: in_words(name) for name in answer.names}
    heads |= {f"{aim.name}{part}": f"{aim.name}{part.replace('_', ' ')}" for aim in answer.aims for part in PARTS}
    # objectives have the name by which they were asked for, as in the answer
    if len(answer.confirmed):
        sheets.append(Sheet("confirmed", "the best trials on fresh seeds", answer.confirmed, (), answer.counts, heads))
    if shares := shares_of(search.tuning, rows):
        table = pd.DataFrame([{"setting": name, "importance": share} for name, share in shares.items()])
        sheets.append(Sheet("importances", IMPORTANCES, table, heads={"importance": "share of the variance"}))
    if len(answer.trials):
        sheets.append(Sheet("trials", "every trial of the search", answer.trials, ("key",), answer.counts, heads))
    return sheets


def _of_penalties(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures import tune as of_search
    from analysis.figures.regularization import drawings, has_intervals

    assert isinstance(search, ConfirmAndJudge)
    answer = regularization.Answer.of_search(search, rows, question.settings)
    following = [row for _, row in search.following(rows) if row is not None]
    following += [row for _, row in search.confirming.following(rows) if row is not None]
    trials = search.tuning.finished_trials(rows)
    keys = frozenset([row["key"] for row in following] + [row["key"] for trial in trials for row in trial.rows])
    drawable = drawings(answer, regularization.load_decoders(answer, around.weights))
    intervals = " with 95 % intervals" * has_intervals(answer)
    pictures = [Picture(name, OF_SETTINGS[name].format(intervals), draw) for name, draw in drawable.items()]
    if answer.search is not None and answer.search.names and len(answer.trials):
        drawn = answer.search
        pictures.append(Picture("search", _searched(drawn), lambda: of_search.draw(drawn)))
    sheets = []
    if len(answer.summary):
        sheets.append(Sheet("summary", "every setting over its seeds", answer.summary, (), regularization.COUNTS))
    if len(answer.finals):
        sheets.append(Sheet("finals", "every run on all training coordinates", answer.finals, ("key",), regularization.COUNTS))
    if answer.search is not None:
        sheets += _trial_sheets(answer.search, search.confirming, rows)
    doubts = list(filter(None, [answer.doubt()]))
    state = _state(search, rows, doubts, following)
    progress = f"{of_asked(len(trials), search.tuning.trials, 'trial')}, {counted(len(keys), 'run')}"
    lines = [*doubts * (state == DOUBTFUL), *answer.lines()]
    return Told(question, title_of(question), state, progress, lines, keys, sheets, pictures)


def _state(search: Any, rows: Rows, doubts: Sequence[str], following: Sequence[Row]) -> str:
    """That of a search of trials: of those only what follows the search has to go well."""
    if any(row["status"] == "failed" for row in following):
        return FAILED
    return GOING if not search.finished(rows) else DOUBTFUL if doubts else ANSWERED


def _of_grid(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    assert isinstance(search, GridSearch)
    found = search.runs(rows)
    keys = frozenset(row["key"] for row in found)
    of_generators = any(spec.task.startswith("trainables.generative.") for spec in search.specs)
    lines, sheets, pictures = (_generators if of_generators else _table)(found, search, question, rows, around)
    state = FAILED if _any_failed(rows, keys) else ANSWERED if search.finished(rows) else GOING
    progress = f"{len(found):,} of {len(search.specs):,} runs"
    return Told(question, title_of(question), state, progress, lines, keys, sheets, pictures)


def _generators(found: Sequence[Row], search: GridSearch, question: Question, rows: Rows, around: Around) -> Shown:
    from analysis.figures.objectives import draw_curves, draw_levels
    from analysis.generator_verdicts import NOT_ENOUGH
    from analysis.generators import is_share
    from analysis.objectives import COUNTS, NAMES, Answer

    varied = {name: name.replace("_", " ") for name in varied_in(search.specs)}
    names, replaced = {**varied, **NAMES}, search.replaced(rows)
    answer = Answer.of(found, rows.get, around.measured(), names, question.settings, question.study, replaced)
    if not answer.runs:
        return [], [], []
    pictures = [
        Picture("curves", "the share of each composition that is drawn right, along the steps", lambda: draw_curves(answer)),
        Picture("levels", "the share drawn right at the end, by level", lambda: draw_levels(answer)),
    ]
    table = answer.table
    sheets = [Sheet("runs", "every generator at its end", table, ("key",), COUNTS, shares=list(filter(is_share, table)))]
    undecided = {verdict.line for verdict in answer.verdicts if verdict.verdict == NOT_ENOUGH}
    # first what was asked, and of that what is decided, then the gates
    lines = sorted(answer.lines(), key=lambda line: (not line.startswith("claim"), line in undecided))
    return lines, sheets, pictures


def _table(found: Sequence[Row], search: GridSearch, question: Question, rows: Rows, around: Around) -> Shown:
    """A line per setting, and what can be told without a claim: means over seeds."""
    from analysis.figures.grid import draw

    if not found:
        return [], [], []
    names = varied_in(search.specs) or ["decoder"]
    called = _called(found, names)
    telling = _telling(search.specs, names)
    records = []
    for row in found:
        spec = RunSpec.from_dict(row)
        own = {name: value_of(spec, name) for name in names}
        words = ", ".join(f"{name} {shown(own[name])}" for name in telling)
        measured = {**{name: row[name] for name in NUMBERS}, **row["measures"]}
        numbers = {column: _number(measured.get(name)) for name, column in called.items()}
        ended = {"status": ending(row), "steps": row["steps"], "seconds": row["seconds"], "key": row["key"]}
        records.append({"setting": words, **own, "seed": row["seed"], **numbers, **ended})
    table = pd.DataFrame(records)
    known = [column for column in called.values() if table[column].notna().any()]
    table = table.drop(columns=[column for column in called.values() if column not in known])
    table[known] = table[known].astype(float)
    ended_well = ~table["status"].isin(UNWELL)
    counted = table.copy()
    counted[known] = counted[known].where(ended_well)
    groups = counted.groupby("setting", sort=False)
    means = groups[names].first().reset_index(drop=True)
    means["seeds"] = ended_well.groupby(table["setting"], sort=False).sum().to_numpy()
    if not ended_well.all():
        means["failed"] = groups.size().to_numpy() - means["seeds"]
    for name in known:
        means[name] = groups[name].mean().to_numpy()
        means[f"{name}_sd"] = groups[name].std().to_numpy()
        having = groups[name].count().to_numpy()
        if (having < means["seeds"]).any():
            means[f"{name}_seeds"] = having
    drawn = [name for name in known if name in NUMBERS] or known[:3]
    left = "" if ended_well.all() else ", of those that ended well"
    seen = f"what every setting ended with, seed by seed{left}; the bar is the arithmetic mean"
    pictures = [Picture("settings", seen, lambda: draw(counted, drawn))] if drawn else []
    over = "seeds" if ended_well.all() else "the seeds that ended well"
    of_seeds = ("seeds", "failed", *(f"{name}_seeds" for name in known))
    heads = {name: in_words(name) for name in (*names, *called.values()) if name not in NUMBERS}
    sheets = [
        Sheet("means", f"arithmetic means and standard deviations over {over}", means, (), of_seeds, heads),
        Sheet("runs", "every run", table.drop(columns="setting"), ("key",), ("seed", "steps"), heads),
    ]
    return [], sheets, pictures


def _telling(specs: Sequence[RunSpec], names: Sequence[str]) -> list[str]:
    """Settings that tell runs apart, without those that follow from others, as a width that belongs to a decoder."""
    settings = {tuple(shown(value_of(spec, name)) for name in names) for spec in specs}
    kept = [*range(len(names))]
    for place in reversed(kept):  # what the task chooses comes late among the settings of a run
        others = [other for other in kept if other != place]
        if others and len({tuple(values[other] for other in others) for values in settings}) == len(settings):
            kept = others
    return [names[place] for place in kept]


def _called(found: Sequence[Row], names: Collection[str]) -> dict[str, str]:
    """What the columns of NUMBERS and of all numbers that runs measured are called, by the names of these: another column, as
    that of a setting that varies, keeps its name."""
    measured = sorted({name for row in found for name, value in row["measures"].items() if isinstance(value, int | float)})
    all_names = dict.fromkeys((*NUMBERS, *measured))
    taken = {*names, *OF_RUNS, *(f"{name}_{of}" for name in all_names for of in ("sd", "seeds"))}
    return {name: whole_letters(f"measure {name}" if name in taken else name) for name in all_names}


def _number(value: Any) -> float | None:
    """None of what is no number, or one that no float holds: a row may come from anywhere."""
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def _any_failed(rows: Rows, keys: Iterable[str]) -> bool:
    return any(row is not None and row["status"] == "failed" for row in map(rows.get, keys))


OF_SEARCH: Mapping[type[AnySearch], Callable[[Any, Question, Rows, Around], Told]] = {
    ThresholdSearch: _of_thresholds,
    NarrowingSearch: _of_thresholds,
    ConfirmBest: _of_trials,
    ConfirmAndJudge: _of_penalties,
    GridSearch: _of_grid,
}
