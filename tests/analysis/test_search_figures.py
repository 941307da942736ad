"""Optuna's figures: which of them a study is good for, and that drawing them leaves the program as it was."""

import io
import math
from collections.abc import Callable

import matplotlib
import numpy as np
import optuna
import pytest
from matplotlib import pyplot as plt
from matplotlib.image import imread
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from analysis.figures import search
from analysis.figures.search import draw_study
from tests.conftest import colours

RANGES = {"lambda_entropy": FloatDistribution(1e-3, 1, log=True), "lambda_variance": FloatDistribution(1e-4, 1e-1, log=True)}


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not rendered."""
    monkeypatch.setattr(search, "image", lambda figure: b"")


def study_of(
    trials: int, objectives: int = 1, searched: tuple[str, ...] = tuple(RANGES), state: TrialState = TrialState.COMPLETE
) -> optuna.Study:
    """Trials along a random path with a bowl of errors over the logarithms of the weights."""
    study = optuna.create_study(directions=["minimize"] * objectives)
    generator = np.random.default_rng(0)
    for _ in range(trials):
        params = {name: 10 ** generator.uniform(*np.log10([RANGES[name].low, RANGES[name].high])) for name in searched}
        bowl = 10 ** (sum((math.log10(value) + 2) ** 2 for value in params.values()) - 4)
        study.add_trial(
            create_trial(
                state=state,
                params=params,
                distributions={name: RANGES[name] for name in searched},
                values=[1e-5 / bowl, bowl][-objectives:] if state == TrialState.COMPLETE else None,
                intermediate_values={100: 0.01},
            )
        )
    return study


@pytest.mark.slow(5)
@pytest.mark.parametrize(
    ("study", "names"),
    [
        (lambda: study_of(12), {"history", "importances", "contour"}),
        (lambda: study_of(12, objectives=2), {"pareto", "importances", "contour"}),
        (lambda: study_of(6), {"history", "contour"}),
        (lambda: study_of(1), {"history"}),
        (lambda: study_of(12, searched=("lambda_entropy",)), {"history"}),
        (lambda: study_of(0), set()),
        (lambda: study_of(3, state=TrialState.PRUNED), set()),
        (lambda: study_of(3, state=TrialState.FAIL), set()),
    ],
    ids=["one objective", "two", "few trials", "one trial", "one weight", "no trial", "all pruned", "all failed"],
)
def test_a_study_has_the_figures_it_is_good_for(study: Callable[[], optuna.Study], names: set[str]) -> None:
    not_drawn: dict[str, str] = {}
    figures = dict(draw_study(study(), not_drawn))
    assert figures.keys() == names
    assert not_drawn.keys() == ({"pareto" if "pareto" in names else "history", "importances", "contour"} - names)
    for content in figures.values():
        pixels = imread(io.BytesIO(content))
        assert colours(pixels) > 50


@pytest.mark.usefixtures("unwritten")
def test_a_figure_that_is_not_drawn_is_named_with_the_reason() -> None:
    def why(study: optuna.Study) -> dict[str, str]:
        not_drawn: dict[str, str] = {}
        list(draw_study(study, not_drawn))
        return not_drawn

    assert why(study_of(6)) == {"importances": "this needs 10 complete trials, and there are 6"}
    assert why(study_of(0)) == {
        "history": "this needs 1 complete trial, and there are 0",
        "importances": "this needs 10 complete trials, and there are 0",
        "contour": "this needs 4 complete trials, and there are 0",
    }  # fmt: skip
    one = "this needs several values of both weights; lambda_variance had one in all trials"
    assert why(study_of(12, searched=("lambda_entropy",))) == {"importances": one, "contour": one}


@pytest.mark.usefixtures("unwritten")
def test_a_figure_that_optuna_cannot_compute_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("zero variance\nand more")

    monkeypatch.setattr("optuna.visualization.matplotlib.plot_param_importances", refuse)
    not_drawn: dict[str, str] = {}
    assert dict(draw_study(study_of(12), not_drawn)).keys() == {"history", "contour"}
    assert not_drawn == {"importances": "Optuna cannot compute it: RuntimeError: zero variance"}


@pytest.mark.slow(2)
def test_pruned_and_failed_trials_do_not_stop_the_drawing() -> None:
    study = study_of(12)
    study.add_trials([*study_of(3, state=TrialState.PRUNED).trials, *study_of(2, state=TrialState.FAIL).trials])
    assert dict(draw_study(study)).keys() == {"history", "importances", "contour"}


@pytest.mark.slow(2)
def test_the_callers_figures_style_and_backend_stay_as_they_were() -> None:
    before = plt.figure()
    backend, style = matplotlib.get_backend(), dict(matplotlib.rcParams)
    try:
        assert len(dict(draw_study(study_of(12)))) == 3
        assert plt.get_fignums() == [before.number]
        assert matplotlib.get_backend() == backend
        assert dict(matplotlib.rcParams) == style
    finally:
        plt.close(before)
