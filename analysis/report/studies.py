"""Every study that was asked of a store: its question, how far it is, its answer, its tables and its figures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from analysis import regularization, scaling, tune
from analysis.remake import AnySearch, search_of
from analysis.report.drawn import drawn_by_task
from analysis.report.findings import Picture
from analysis.results import Results
from orchestrator.searches import Row, Rows, ending
from orchestrator.searches.bracket import ThresholdResult
from orchestrator.searches.confirm import ConfirmAndJudge, ConfirmBest
from orchestrator.searches.grid import GridSearch
from orchestrator.searches.narrowing import NarrowingSearch
from orchestrator.searches.threshold import ThresholdSearch
from orchestrator.store import Question
from trainables.program import PATH as PROGRAMS
from trainables.settings import value_of
from trainables.spec import RunSpec

ANSWERED, GOING, FAILED, FORMER = "answered", "not finished", "runs failed", "of a former version"
NUMBERS = ("accuracy", "id_mse", "ood_mse")
"""What tables of runs show of each, where the task measures it."""
LEAST = (
    "small dots are thresholds of seeds, large ones their geometric means with 95 % intervals, triangles what no seed reached; "
    "the line is the fitted power law"
)
SEARCHED = "the trials in order, and what fresh seeds say of the best"
NO_SETTINGS = ("options", "store", "out", "versions")
TITLED = ("task", "N")
"""Settings that a title names."""
SHORTENED = 12
"""Letters of an id that are left out where four say enough."""
MOST_BESIDE = 4
"""Settings that tell a study from the others of its kind."""
TITLES = {
    "regularization": "Which penalty weights make a low-rank decoder draw bumps at combinations that it has never seen?",
    "encodings": "Does a decoder compose if its code is factorized?",
    "geometry": "What does each layer of a decoder do to the box that it has not seen?",
    "tuning": "Which units of a decoder react to one factor, and which to both?",
    "rotation": "What does a decoder draw at angles that it has not seen?",
    "objectives": "Which objective and which tokenizer make a generator compose?",
    "conditioning": "How does what a generator is told of the factors decide whether it composes?",
    "jepa": "Does an auxiliary loss on features make a generator compose?",
}


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. `keys`: columns of run keys, which lead to these runs; `counts`: those of whole numbers."""

    name: str
    title: str
    table: pd.DataFrame
    keys: Collection[str] = ()
    counts: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A study as far as the rows answer it."""

    question: Question
    title: str
    state: str
    progress: str
    lines: Sequence[str]
    """The answer, as the launch prints it."""
    keys: frozenset[str]
    """Its runs."""
    sheets: Sequence[Sheet] = ()
    pictures: Sequence[Picture] = ()
    thresholds: Sequence[ThresholdResult] = ()
    exponents: Mapping[str, str] = field(default_factory=dict)
    """Of each data set that has a power law, in words."""

    beside: str = ""
    """The settings in which it differs from the other studies of its kind in the store."""

    failed: int = 0
    """Of its runs."""

    @property
    def id(self) -> str:
        return self.question.name

    @property
    def short(self) -> str:
        """The beginning of its id, as tables that compare studies name it."""
        return self.id[:-SHORTENED]

    @property
    def settings(self) -> dict[str, str]:
        """What it was asked with, by name, but for where it was written and with which versions."""
        settings = {name: value for name, value in self.question.settings.items() if name not in NO_SETTINGS}
        options = self.question.settings.get("options")
        known = settings | (options if isinstance(options, dict) else {})
        return {name: json.dumps(value) if isinstance(value, dict | list) else str(value) for name, value in known.items()}


@dataclass(frozen=True, slots=True)
class Around:
    """What answers need besides the rows of the search."""

    measured: Callable[[], Mapping[str, Mapping[str, float]]]
    """The numbers that were measured of generators, by key."""
    weights: Callable[[str], bytes]
    """Of a run, by its key; OSError if there are none."""


def studies_of(results: Results, around: Around) -> tuple[list[Told], list[str]]:
    """The studies in order of their last run, the latest first; and a line for each question that cannot be asked again."""
    rows, told, notices = Rows(results.runs), [], []
    for question in results.questions:
        try:
            told.append(tell(question, results, rows, around))
        except (ValueError, KeyError, TypeError) as error:
            notices.append(f"the question {question.name} is left out of the studies: {error}")
    last = {run["key"]: run["finished_at"] for run in results.runs}
    told = [one if one.state != GOING else replace(one, lines=[f"so far, {line}" for line in one.lines]) for one in told]
    told.sort(key=lambda one: max((last[key].timestamp() for key in one.keys), default=0.0), reverse=True)
    return [replace(one, beside=_beside(one, told)) for one in told], notices


def _beside(told: Told, all_told: Sequence[Told]) -> str:
    others = [one.settings for one in all_told if one.question.study == told.question.study and one is not told]
    differ = [(name, value) for name, value in told.settings.items() if any(of.get(name) != value for of in others)]
    differ = [(name, value) for name, value in differ if name not in TITLED]
    return ", ".join(f"{name} {value:.60}" for name, value in differ[:MOST_BESIDE])


def tell(question: Question, results: Results, rows: Rows, around: Around) -> Told:
    """What the rows say of a question.

    Raises:
        ValueError: it does not tell enough, or its task is not loaded and has to be.
    """
    task = results.tasks.get(question.task)
    is_former = task is not None and task.version != question.task_version
    search = search_of(question, None if is_former else task, results.runs)
    told = _OF[type(search)](search, question, rows, around)
    own = [row for key in told.keys if (row := rows.get(key)) is not None]
    failed = sum(row["status"] == "failed" for row in own)
    pictures = [*told.pictures, *drawn_by_task(own, results.tasks, around.weights)]
    told = replace(told, pictures=pictures, failed=failed)
    return told if not is_former or told.keys else _of_former(told)


def title_of(question: Question) -> str:
    """The question in words."""
    first = next(spec for specs in question.specs.values() for spec in specs)
    subject = _subject(question, first)
    if question.study == "scaling":
        least, along = (question.search.get(name, usual) for name, usual in (("least", "data_count"), ("along", "N")))
        what = "least number of training samples" if least == "data_count" else f"least {least}"
        specs = [spec for part in question.specs.values() for spec in part]
        values = list(dict.fromkeys(value_of(spec, str(along)) for spec in specs))
        reaches = f"{subject} reaches accuracy {first.target:g} on what is held out"
        return f"What is the {what} with which {reaches}, at {along} = {_listed(values)}?"
    if question.study == "tune":
        names = ", ".join(map(str, question.search.get("space", {})))
        aims = ", ".join(str(aim).partition(":")[2] for aim in question.search.get("objectives", []))
        return f"Which {names} give {subject} the best {aims}?"
    return TITLES.get(question.study, f"{question.study}: {subject}")


def _subject(question: Question, spec: RunSpec) -> str:
    if question.task == PROGRAMS:
        return f"the program {spec.dataset}"
    known = "trainables.bumps:BumpTask"
    return f"the {spec.decoder}" if question.task == known else question.task.rpartition(":")[2]


def _listed(values: Sequence[Any], most: int = 8) -> str:
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return ", ".join(words if len(words) <= most else [*words[: most - 2], "...", words[-1]])


def _of_former(told: Told) -> Told:
    line = "It was asked of a former version of its task. Today's version trains other runs: start the study again."
    return Told(told.question, told.title, FORMER, told.progress, [line], told.keys)


# One kind of search each


def _of_thresholds(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures.scaling import draw

    assert isinstance(search, ThresholdSearch)
    results = search.answer(rows)
    answer = scaling.Answer.of_results(results, question.settings)
    left = sum(result.verdict == "open" for result in results)
    failed = sum(result.verdict == "failed" for result in results)
    keys = frozenset(row["key"] for family in search.families for row in rows.family(family).values())
    along = results[0].axes.along
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
        head = {"dataset": result.dataset, along: result.along, "seed": result.seed, "verdict": result.verdict}
        cost = {"lower_ended": result.lower_ended, "runs": result.runs, "steps": result.steps}
        records.append({**head, **ends, **cost, **of_runs})
    table = pd.DataFrame(records)
    if not table["fixed_images"].any():
        table = table.drop(columns="fixed_images")
    whole = ("images", "images_lower", "images_upper", "fixed_images") if results[0].axes.is_usual else ()
    if not results[0].axes.is_usual:
        quantity = results[0].axes.quantity
        table = table.rename(columns={name: name.replace("images", quantity) for name in table if name.startswith("images")})
    state = FAILED if failed else GOING if left else ANSWERED
    told = f"{len(results) - left - failed} of {len(results)} thresholds, {len(keys):,} runs"
    what = "every threshold, and the runs on both sides of it"
    sheets = [Sheet("thresholds", what, table, ("passes", "misses"), (*whole, "seed"))]
    known = answer.table["images"].notna().any() or (answer.table["verdict"] == "none reached").any()
    if not known:
        return Told(question, title_of(question), state, told, [], keys, sheets, [], results)
    left_out = [
        {"dataset": dataset, f"without {along} =": size, "exponent": exponent}
        for dataset, fit in answer.fits.items()
        for size, exponent in fit.without.items()
    ]
    if left_out:
        sheets.append(Sheet("without", f"the exponent without one {along} at a time", pd.DataFrame(left_out, dtype=object)))
    pictures = [Picture("scaling", LEAST, lambda: draw(answer))]
    exponents = {dataset: answer.describe(dataset) for dataset in answer.fits}
    lines = [*_means_in_words(answer), *answer.lines()]
    return Told(question, title_of(question), state, told, lines, keys, sheets, pictures, results, exponents)


def _means_in_words(answer: scaling.Answer) -> list[str]:
    """The answer itself: the mean threshold at every place, a line per data set."""
    lines = []
    for dataset, part in answer.summary.groupby("dataset", sort=False):
        found = part[part["total_images"].notna()]
        along = answer.axes.along
        means = [f"{row['total_images']:.3g} at {along} = {row[along]}" for row in found.to_dict("records")]
        if means:
            lines.append(f"{dataset}: {', '.join(means)} (geometric means over seeds)")
    return lines


def _of_trials(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures.tune import draw, draw_settings

    assert isinstance(search, ConfirmBest)
    answer = tune.Answer.of_search(search, rows, question.settings)
    keys = frozenset(
        [row["key"] for trial in search.tuning.finished_trials(rows) for row in trial.rows]
        + [row["key"] for _, row in search.following(rows) if row is not None]
    )
    done = len(answer.trials)
    state = ANSWERED if search.finished(rows) and answer.confirmed["winner"].any() else GOING
    if _any_failed(rows, keys):
        state = FAILED
    pictures = []
    if done:
        pictures.append(Picture("search", SEARCHED, lambda: draw(answer)))
        if (settings := draw_settings(answer)) is not None:
            pictures.append(Picture("settings", "every searched setting against the objective", lambda: settings))
    return Told(
        question,
        title_of(question),
        state,
        f"{done} of {search.tuning.trials} trials, {len(keys):,} runs",
        [*answer.lines(), *filter(None, [answer.doubt()])],
        keys,
        _trial_sheets(answer, search, rows),
        pictures,
    )


def _trial_sheets(answer: tune.Answer, search: ConfirmBest, rows: Rows) -> list[Sheet]:
    sheets = []
    if len(answer.confirmed):
        sheets.append(Sheet("confirmed", "the best trials on fresh seeds", answer.confirmed, (), tune.COUNTS))
    if importances := importances_of(search, rows):
        table = pd.DataFrame([{"setting": name, "importance": value} for name, value in importances.items()])
        title = "how much each setting matters: its share of the variance of the first objective, by Optuna's fANOVA"
        sheets.append(Sheet("importances", title, table))
    if len(answer.trials):
        sheets.append(Sheet("trials", "every trial of the search", answer.trials, ("key",), tune.COUNTS))
    return sheets


def importances_of(search: ConfirmBest, rows: Rows) -> dict[str, float]:
    """The share of each setting in the variance of the first objective (Hutter et al. 2014); empty while too few trials have
    ended, or if all came out alike."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    study = search.tuning.study(rows)
    complete = [trial for trial in study.trials if trial.values]
    if len(search.tuning.dimensions) < 2 or len(complete) < 8:
        return {}
    logs = search.tuning.geometric(rows)[0]

    def target(trial: Any) -> float:
        return math.log(trial.values[0]) if logs else float(trial.values[0])

    if len({target(trial) for trial in complete}) < 2:
        return {}
    try:
        found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), target=target)
    except (ValueError, RuntimeError):  # a setting that no two trials have in common
        return {}
    return {name: float(value) for name, value in found.items()}


def _of_penalties(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    from analysis.figures import tune as of_search
    from analysis.figures.regularization import draw

    assert isinstance(search, ConfirmAndJudge)
    answer = regularization.Answer.of_search(search, rows, question.settings)
    following = [row for _, row in search.following(rows) if row is not None]
    following += [row for _, row in search.confirming.following(rows) if row is not None]
    trials = search.tuning.finished_trials(rows)
    keys = frozenset([row["key"] for row in following] + [row["key"] for trial in trials for row in trial.rows])
    pictures = [
        Picture(name, f"the {name} of the settings", lambda figure=figure: figure)  # type: ignore[misc]
        for name, figure in draw(answer, regularization.load_decoders(answer, around.weights))
    ]
    if answer.search is not None and answer.search.names and len(answer.trials):
        drawn = answer.search
        pictures.append(Picture("search", SEARCHED, lambda: of_search.draw(drawn)))
    sheets = []
    if len(answer.summary):
        sheets.append(Sheet("summary", "every setting over its seeds", answer.summary, (), regularization.COUNTS))
    if len(answer.finals):
        sheets.append(Sheet("finals", "every run on all training coordinates", answer.finals, ("key",), regularization.COUNTS))
    if answer.search is not None:
        sheets += _trial_sheets(answer.search, search.confirming, rows)
    state = FAILED if _any_failed(rows, keys) else ANSWERED if search.finished(rows) else GOING
    progress = f"{len(trials)} of {search.tuning.trials} trials, {len(keys):,} runs"
    return Told(question, title_of(question), state, progress, answer.lines(), keys, sheets, pictures)


def _of_grid(search: Any, question: Question, rows: Rows, around: Around) -> Told:
    assert isinstance(search, GridSearch)
    found = [row for spec in search.specs if (row := search.row(rows, spec)) is not None]
    keys = frozenset(row["key"] for row in found)
    of_generators = any(spec.task.startswith("trainables.generative.") for spec in search.specs)
    lines, sheets, pictures = (_generators if of_generators else _table)(found, search, question, rows, around)
    state = FAILED if _any_failed(rows, keys) else ANSWERED if search.finished(rows) else GOING
    progress = f"{len(found):,} of {len(search.specs):,} runs"
    return Told(question, title_of(question), state, progress, lines, keys, sheets, pictures)


Shown = tuple[Sequence[str], Sequence[Sheet], Sequence[Picture]]


def _generators(found: Sequence[Row], search: GridSearch, question: Question, rows: Rows, around: Around) -> Shown:
    from analysis.figures.objectives import draw_curves, draw_levels
    from analysis.objectives import COUNTS, NAMES, Answer

    varied = {name: name.replace("_", " ") for name in varied_in(search.specs)}
    answer = Answer.of(found, rows.get, around.measured(), {**varied, **NAMES}, question.settings, question.study)
    if not answer.runs:
        return [], [], []
    pictures = [
        Picture("curves", "the share of each composition that is drawn right, along the steps", lambda: draw_curves(answer)),
        Picture("levels", "the share drawn right at the end, by level", lambda: draw_levels(answer)),
    ]
    sheets = [Sheet("runs", "every generator at its end", answer.table, ("key",), COUNTS)]
    lines = sorted(answer.lines(), key=lambda line: not line.startswith("claim"))  # first what was asked, then the gates
    return lines, sheets, pictures


def _table(found: Sequence[Row], search: GridSearch, question: Question, rows: Rows, around: Around) -> Shown:
    """A line per setting, and what can be told without a claim: means over seeds."""
    from analysis.figures.grid import draw

    if not found:
        return [], [], []
    names = varied_in(search.specs) or ["decoder"]
    measured = sorted({name for row in found for name, value in row["measures"].items() if isinstance(value, int | float)})
    records = []
    for row in found:
        spec = RunSpec.from_dict(row)
        own = {name: value_of(spec, name) for name in names}
        words = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in own.items())
        numbers = {name: row[name] for name in NUMBERS} | {name: row["measures"].get(name) for name in measured}
        ended = {"status": ending(row), "steps": row["steps"], "seconds": row["seconds"], "key": row["key"]}
        records.append({"setting": words, **own, "seed": row["seed"], **numbers, **ended})
    table = pd.DataFrame(records)
    known = [name for name in (*NUMBERS, *measured) if name not in names and table[name].notna().any()]
    table = table.drop(columns=[name for name in (*NUMBERS, *measured) if name not in known and name not in names])
    table[known] = table[known].astype(float)
    groups = table.groupby("setting", sort=False)
    means = groups[names].first().reset_index(drop=True)
    means["seeds"] = groups.size().to_numpy()
    for name in known:
        means[name] = groups[name].mean().to_numpy()
        means[f"{name}_sd"] = groups[name].std().to_numpy()
    shown = [name for name in known if name in NUMBERS] or known[:3]
    pictures = [Picture("settings", "what every setting ended with, seed by seed", lambda: draw(table, shown))] if shown else []
    sheets = [
        Sheet("means", "means and standard deviations over seeds", means, (), ("seeds",)),
        Sheet("runs", "every run", table.drop(columns="setting"), ("key",), ("seed", "steps")),
    ]
    return [], sheets, pictures


def varied_in(specs: Iterable[RunSpec]) -> list[str]:
    """The settings in which runs differ, besides the seed."""
    values: dict[str, set[Any]] = {}
    for spec in specs:
        for name, value in (*spec.to_dict().items(), *spec.options):
            if name not in ("options", "seed", "task"):
                values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]


def _any_failed(rows: Rows, keys: Iterable[str]) -> bool:
    return any(row is not None and row["status"] == "failed" for row in map(rows.get, keys))


_OF: Mapping[type[AnySearch], Callable[[Any, Question, Rows, Around], Told]] = {
    ThresholdSearch: _of_thresholds,
    NarrowingSearch: _of_thresholds,
    ConfirmBest: _of_trials,
    ConfirmAndJudge: _of_penalties,
    GridSearch: _of_grid,
}
