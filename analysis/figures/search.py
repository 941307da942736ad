"""Optuna's own figures of a study that minimises mean squared errors, made legible for errors that span decades."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import matplotlib
import optuna
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.ticker import MaxNLocator
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from analysis.figures.style import COLOURS, image
from trainables.regularization import WEIGHTS

LABELS = {"lambda_entropy": r"entropy weight $\lambda_S$", "lambda_variance": r"variance weight $\lambda_V$"}
LEAST_FOR_CONTOUR = 4
LEAST_FOR_IMPORTANCES = 10
GOOD_TRIALS = 5
"""Importances compare this many of the best trials with all, or a tenth of them if that is more (the evaluator's advice)."""


def draw_study(study: optuna.Study, not_drawn: dict[str, str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Name and PNG file of every figure for which `study` has enough complete trials.

    `history` for one objective, `pareto` for two (ID then validation error), and `importances` and `contour` of the validation
    error, the last objective, over both penalty weights.

    Args:
        not_drawn: takes the name of every other figure, and why there is none.
    """
    complete = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE and all(map(_positive, t.values))]
    makers: Mapping[str, tuple[Callable[[optuna.Study], None], int]] = {
        **({"history": (_history, 1)} if len(study.directions) == 1 else {"pareto": (_pareto, 1)}),
        "importances": (_importances, LEAST_FOR_IMPORTANCES),
        "contour": (_contour, LEAST_FOR_CONTOUR),
    }
    not_drawn = {} if not_drawn is None else not_drawn
    fixed = [name for name in WEIGHTS if len({t.params.get(name) for t in complete} - {None}) < 2]
    for name, (make, least) in makers.items():
        if len(complete) < least:
            not_drawn[name] = f"this needs {least} complete trial{'s'[: least - 1]}, and there are {len(complete)}"
        elif fixed and name in ("importances", "contour"):
            not_drawn[name] = f"this needs several values of both weights; {' and '.join(fixed)} had one in all trials"
        else:
            try:
                content = _png(make, study)
            except Exception as error:  # Optuna cannot compute it: one figure must not cost the others
                not_drawn[name] = f"Optuna cannot compute it: {type(error).__name__}: {error}".splitlines()[0]
            else:
                yield name, content


def _png(make: Callable[[optuna.Study], None], study: optuna.Study) -> bytes:
    with _pyplot():
        make(study)
        figure = plt.gcf()
        figure.set_layout_engine("tight")
        return image(figure)


@contextlib.contextmanager
def _pyplot() -> Iterator[None]:
    """Figures without windows, in this project's style: Optuna draws through pyplot, whose state is the whole program's."""
    before, open_before = matplotlib.get_backend(), set(plt.get_fignums())
    plt.switch_backend("agg")
    try:
        with matplotlib.rc_context({"contour.negative_linestyle": "solid"}), warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes the importances")
            yield
    finally:
        for number in set(plt.get_fignums()) - open_before:
            plt.close(number)
        with contextlib.suppress(ImportError):  # a backend that was only named, and could not have been used here
            plt.switch_backend(before)


def _history(study: optuna.Study) -> None:
    axes = plots.plot_optimization_history(study, target_name="validation MSE")
    axes.collections[0].set(label="trial", color=COLOURS[0])
    for line in axes.lines:
        line.set(label="best so far", drawstyle="steps-post", alpha=1, color=COLOURS[1])
    trials = study.get_trials(deepcopy=False)
    pruned = [t for t in trials if t.state == TrialState.PRUNED and t.intermediate_values]
    if pruned:
        last = [t.intermediate_values[max(t.intermediate_values)] for t in pruned]
        axes.scatter([t.number for t in pruned], last, marker="x", s=18, color="0.6", label="pruned: error when ended")
    axes.set(yscale="log", xlabel="trial, in the order they finished")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8, facecolor="white")
    _plain(axes, f"validation error of {len(trials)} trials")


def _pareto(study: optuna.Study) -> None:
    axes = plots.plot_pareto_front(study, target_names=["ID MSE", "validation MSE"])
    for artist in axes.collections:
        best = artist.get_label() == "Best Trial"
        artist.set(label="Pareto front" if best else "trial", color=COLOURS[1] if best else COLOURS[0], zorder=3 if best else 2)
    front = sorted(t.values for t in study.best_trials)
    axes.plot(*zip(*front, strict=True), color=COLOURS[1], lw=1, drawstyle="steps-post")
    _star(axes, front[-1], label="lowest validation error")
    axes.set(xscale="log", yscale="log")
    axes.legend(fontsize=8, facecolor="white")
    _plain(axes, "ID error against validation error")


def _importances(study: optuna.Study) -> None:
    complete = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    good = max(GOOD_TRIALS, math.ceil(0.1 * complete))
    evaluator = PedAnovaImportanceEvaluator(target_quantile=good / complete)
    axes = plots.plot_param_importances(study, evaluator, list(WEIGHTS), target=_validation, target_name="validation MSE")
    axes.set_yticks(axes.get_yticks(), [LABELS[label.get_text()] for label in axes.get_yticklabels()])
    for bar, share in zip(axes.patches, axes.texts, strict=True):
        bar.set_color(COLOURS[0])
        share.set(x=share.get_position()[0] + 0.01, fontsize=9)
    axes.legend().remove()
    plt.gcf().set_size_inches(6.4, 2.6)
    axes.set_title("", loc="left")
    axes.set(xlabel=f"share of importance (PED-ANOVA, the {good} best of {complete} trials)", ylabel="", xlim=(0, 1.1))
    _plain(axes, "how much each weight decides the validation error")


def _contour(study: optuna.Study) -> None:
    name = r"$\log_{10}$ validation MSE"
    plots.plot_contour(study, params=list(WEIGHTS), target=lambda t: math.log10(_validation(t)), target_name=name)
    axes, bar = plt.gcf().axes
    for artist in axes.collections:
        if isinstance(artist, PathCollection):
            artist.set(sizes=[14], linewidths=0.5, edgecolors="white")
    bar.tick_params(colors="black", labelsize=9)
    bar.set_ylabel(name, color="black", fontsize=10)
    best = min(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)), key=_validation)
    _star(axes, [best.params[name] for name in WEIGHTS])
    axes.set(xlabel=LABELS[WEIGHTS[0]], ylabel=LABELS[WEIGHTS[1]])
    _plain(axes, f"validation error, interpolated between trials; star: the lowest, {_validation(best):.1e}")


def _star(axes: Axes, place: Sequence[float], label: str | None = None) -> None:
    x, y = place
    axes.scatter(x, y, marker="*", s=180, color=COLOURS[4], edgecolors="black", linewidths=0.7, zorder=4, label=label)


def _validation(trial: FrozenTrial) -> float:
    """The validation error: the only objective, or the second."""
    return max(float(trial.values[-1]), sys.float_info.min)


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _plain(axes: Axes, title: str) -> None:
    """Black on white as in the other figures, instead of the style that Optuna sets."""
    axes.set_title(title, fontsize=10)
    axes.set_facecolor("white")
    plt.gcf().set_facecolor("white")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.tick_params(colors="black", labelsize=9)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color="black", fontsize=10)
    for spine in axes.spines.values():
        spine.set(visible=True, color="0.3", linewidth=0.8)
