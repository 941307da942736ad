"""The figures of a search of settings: its axes, its colours, and what is confirmed of several objectives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import LogLocator

from analysis.figures.style import image
from analysis.figures.tune import draw, draw_settings
from analysis.tune import Answer
from orchestrator.searches.objective import Objective


def answer_of(search: dict[str, str], trials: list[dict[str, Any]], *aims: str, logs: Sequence[bool] = ()) -> Answer:
    """A search over trials of these values, and the confirmation of its first trial. `logs`: which means are geometric, else
    all."""
    numbered = [{"number": i, **dict.fromkeys(aims, 0.002 * (i + 1)), **trial} for i, trial in enumerate(trials)]
    found = {f"{aim}{part}": 0.002 + 0.001 * i for i, aim in enumerate(aims) for part in ("", "_search", "_lower", "_upper")}
    confirmed = pd.DataFrame([{"setting": "trial 0", "winner": True, **found}])
    objectives = [Objective(aim) for aim in aims]
    names, logs = list(search), logs or [True] * len(aims)
    return Answer(pd.DataFrame(numbered), confirmed, None, 0.0, objectives, names, logs, {"search": search}, "trial 0")


def panels(search: dict[str, str], **values: list[Any]) -> list[Axes]:
    """The panels of these settings, then the colour bar."""
    trials = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    figure = draw_settings(answer_of(search, trials, "mse"))
    assert figure is not None
    FigureCanvasAgg(figure).draw()
    return figure.axes


def texts(axis: Axis) -> list[str]:
    """The labels that are seen."""
    low, high = sorted(axis.get_view_interval())
    return [label.get_text() for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True) if low <= at <= high]


def test_whole_settings_have_whole_ticks_and_points_at_the_limits_are_whole() -> None:
    search = {"depth": "1..3", "lr": "0.001..0.1:log", "rate": "0..1", "gain": "0|0.01..1:log"}
    depth, lr, rate, gain, *_ = panels(search, depth=[1, 3], lr=[0.001, 0.1], rate=[0.25, 1.0], gain=[0.0, 1.0])
    assert texts(depth.xaxis) == ["1", "2", "3"]
    assert texts(lr.xaxis) == ["0.001", "0.01", "0.1"]
    for axes in (depth, lr, rate, gain):
        for points in (collection.get_offsets() for collection in axes.collections):
            inside = axes.transAxes.inverted().transform(axes.transData.transform(points))[:, 0]
            assert inside.min() > 0.03
            assert inside.max() < 0.97
    assert depth.get_xlim() == pytest.approx((0.9, 3.1))
    assert lr.get_xlim() == pytest.approx((0.001 / 100**0.05, 0.1 * 100**0.05))


@pytest.mark.parametrize(("low", "high"), [(32, 256), (1, 4), (8, 8)])
def test_a_logarithmic_axis_of_less_than_two_decades_has_three_labels(low: int, high: int) -> None:
    width, _ = panels({"width": f"{low}..{high}:log"}, width=[low, high])
    assert len(shown := texts(width.xaxis)) >= 3
    assert all(text.isdigit() for text in shown)


@pytest.mark.parametrize(("low", "high"), [(1e-4, 1e-2), (2, 30), (0.01, 1), (1e-6, 1)])
def test_an_axis_with_zero_beside_a_range_has_a_label_at_zero_and_three_in_the_range(low: float, high: float) -> None:
    weight, _ = panels({"weight": f"0|{low}..{high}:log"}, weight=[0.0, low, high])
    zero, *shown = texts(weight.xaxis)
    assert zero == "0"
    assert len(shown) >= 3
    assert all(low <= float(text) <= high for text in shown)
    boxes = [label.get_window_extent() for label in weight.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_no_more_decades_have_a_label_than_have_room_whatever_matplotlib_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    decades = 10.0 ** np.arange(-6, 1)
    monkeypatch.setattr(LogLocator, "tick_values", lambda *_: decades)  # seven, as before its version 3.11
    weight, _ = panels({"weight": "0|1e-06..1:log"}, weight=[0.0, 1e-6, 1.0])
    assert texts(weight.xaxis) == ["0", "1e-06", "0.0001", "0.01", "1"]


@pytest.mark.slow(1)
@pytest.mark.parametrize(("count", "told"), [(12, ""), (14, "the first 12 settings; 2 more are in the table")])
def test_settings_without_a_panel_are_told_of(count: int, told: str) -> None:
    names = [f"s{number}" for number in range(count)]
    figure = draw_settings(answer_of(dict.fromkeys(names, "0..1"), [dict.fromkeys(names, 0.5)] * 3, "mse"))
    assert figure is not None
    assert [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()] == names[:12]
    assert figure.get_supxlabel() == told


def test_the_colours_of_trials_are_told_beside_the_panels() -> None:
    depth, word, bar = panels({"depth": "1..3", "kind": "a|b"}, depth=[1, 2, 3], kind=["b", "a", "b"])
    assert bar.get_ylabel() == "trial"
    assert bar.get_ylim() == (0, 2)
    assert set(texts(bar.yaxis)) <= {"0", "1", "2"}
    for axes in (depth, word):
        (points,) = axes.collections
        assert points.get_clim() == (0, 2)
        assert list(points.get_array()) == [0, 1, 2]  # type: ignore[arg-type]


def test_two_objectives_are_both_confirmed_and_no_labels_run_into_each_other() -> None:
    trials = [{"lr": 0.01, "mse": mse, "id_mse": mse / 2} for mse in (0.0021, 0.0034, 0.0052, 0.0111)]
    figure = draw(answer_of({"lr": "0.001..0.1:log"}, trials, "mse", "id_mse"))
    FigureCanvasAgg(figure).draw()
    front, first, second = figure.axes
    assert len(texts(front.xaxis)) >= 3
    boxes = [label.get_window_extent() for label in front.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert [axes.get_title() for axes in (first, second)] == ["confirmation: mse", "confirmation: id_mse"]
    assert [axes.lines[0].get_ydata()[0] for axes in (first, second)] == pytest.approx([0.002, 0.003])  # type: ignore[index]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "in the search", "on fresh seeds: geometric mean, 95 % interval",
    ]  # fmt: skip
    assert figure.get_suptitle() == ""
    one = draw(answer_of({"lr": "0.001..0.1:log"}, trials, "mse"))
    assert [axes.get_title() for axes in one.axes] == ["search: 4 trials", "confirmation"]


def test_objectives_that_are_not_drawn_are_told() -> None:
    trials = [{"lr": 0.01, "mse": mse, "id_mse": mse, "loss": mse, "steps": 9.0} for mse in (0.0021, 0.0034)]
    aims = "mse", "id_mse", "loss", "steps"
    three, four = (draw(answer_of({"lr": "0.001..0.1:log"}, trials, *aims[:count])) for count in (3, 4))
    assert three.get_suptitle() == "the first 2 of 3 objectives; the table has the other"
    assert four.get_suptitle() == "the first 2 of 4 objectives; the table has the others"


@pytest.mark.parametrize("last", [0.0022, 0.004, 0.009, 0.1])
def test_numbers_of_an_objective_do_not_run_into_each_other(last: float) -> None:
    trials = [{"lr": 0.01, "mse": mse, "id_mse": mse} for mse in (0.002, last)]
    figure = draw(answer_of({"lr": "0.001..0.1:log"}, trials, "mse", "id_mse"))
    FigureCanvasAgg(figure).draw()
    assert len(below(figure.axes[0])) >= 3


def below(axes: Axes) -> list[tuple[str, float]]:
    """The words below a panel with their angles, none of which runs into the next one."""
    labels = axes.get_xticklabels()
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    return [(label.get_text(), label.get_rotation()) for label in labels]


def test_words_of_a_setting_are_turned_where_they_would_run_into_each_other() -> None:
    words, short = [f"variant-{i:02d}" for i in range(12)], ["a", "b", "c"]
    kind, opt, lr, _ = panels(
        {"kind": "|".join(words), "opt": "|".join(short), "lr": "0.001..0.1:log"}, kind=words, opt=short * 4, lr=[0.01] * 12
    )
    assert below(kind) == [(word, 90) for word in words]
    assert below(opt) == [(word, 0) for word in short]
    assert texts(lr.xaxis) == ["0.001", "0.01", "0.1"]
    heights = [axes.get_window_extent().height for axes in (kind, opt, lr)]
    assert kind.figure.bbox.height > 300, "2.8 inches of 100 dots, and the turned words"
    assert min(heights) > 200


@pytest.mark.parametrize(
    ("count", "winner", "shown"), [(3, 1, [0, 1, 2]), (20, 0, [*range(20)]), (100, 49, [*range(1, 100, 3)])]
)
def test_of_many_confirmed_settings_as_many_are_named_as_have_room_and_the_best_one(
    count: int, winner: int, shown: list[int]
) -> None:
    trials = [{"lr": 0.01}] * 4
    answer = answer_of({"lr": "0.001..0.1:log"}, trials, "mse")
    many = pd.concat([answer.confirmed] * count, ignore_index=True)
    many["setting"], many["winner"] = [f"trial {i}" for i in range(count)], [i == winner for i in range(count)]
    figure = draw(replace(answer, confirmed=many))
    FigureCanvasAgg(figure).draw()
    turned = 90 if count > 3 else 0
    assert below(figure.axes[1]) == [(f"trial {i}{' (wins)' * (i == winner)}", turned) for i in shown]
    low, high = figure.axes[1].get_xlim()
    assert (low, high) == (-0.6, count - 0.4)
    assert (figure.get_figheight() == 4.2) == (count == 3)


@pytest.mark.slow(2)
def test_short_words_leave_the_layout_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = answer_of({"kind": "a|b", "depth": "1..3"}, [{"kind": "a", "depth": 1}, {"kind": "b", "depth": 3}], "mse")

    def drawn() -> list[bytes]:
        figures = draw(answer), draw_settings(answer)
        return [image(figure) for figure in figures if figure is not None]

    looked_at = drawn()
    monkeypatch.setattr("analysis.figures.tune.turn_words", lambda *_, **__: None)
    assert drawn() == looked_at
    assert len(looked_at) == 2


@pytest.mark.parametrize(
    ("logs", "kind"),
    [
        ([True], "geometric mean"), ([False], "mean"), ([False, False], "mean"), ([True, True], "geometric mean"),
        ([True, False], "mean (geometric of mse)"), ([False, True], "mean (geometric of accuracy)"),
    ],
)  # fmt: skip
def test_a_geometric_mean_is_called_so(logs: list[bool], kind: str) -> None:
    figure = draw(answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01}], *("mse", "accuracy")[: len(logs)], logs=logs))
    (legend,) = figure.legends or [figure.axes[1].get_legend()]
    assert legend.get_texts()[1].get_text() == f"on fresh seeds: {kind}, 95 % interval"


@pytest.mark.parametrize("aims", [("mse",), ("mse", "id_mse")])
def test_no_interval_is_named_or_drawn_where_no_setting_has_one(aims: tuple[str, ...]) -> None:
    answer = answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01}], *aims)
    for aim in aims:
        answer.confirmed[[f"{aim}_lower", f"{aim}_upper"]] = math.nan
    figure = draw(answer)
    (legend,) = figure.legends or [figure.axes[1].get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == ["in the search", "on fresh seeds: geometric mean"]
    assert not any(axes.collections for axes in figure.axes[1:]), "a bar is a collection of lines"


def test_an_interval_far_longer_than_what_all_settings_reached_goes_on_beyond_the_frame() -> None:
    trials = [{"lr": 0.01, "mse": 0.001 * 2**i, "id_mse": 0.001 / 2**i} for i in range(6)]
    answer = answer_of({"lr": "0.001..0.1:log"}, trials, "mse", "id_mse")
    answer.confirmed[["mse_lower", "mse_upper"]] = 9.62e-9, 9946.0
    answer.confirmed[["id_mse_lower", "id_mse_upper"]] = 0.0025, 0.0035  # around a mean of 0.003
    front = draw(answer).axes[0]
    assert front.get_xlim() == pytest.approx((0.001 / 3, 0.032 * 3))
    low, high = front.get_ylim()
    assert 0.001 / 32 / 3 < low < 0.001 / 32
    assert 0.0035 < high < 0.003 * 3


@pytest.mark.parametrize(("logs", "frame"), [(True, (0.001 / 3, 0.032 * 3)), (False, (0.001 - 0.031, 0.032 + 0.031))])
def test_a_search_for_one_objective_is_no_line_beside_an_interval_that_is_far_longer(
    logs: bool, frame: tuple[float, float]
) -> None:
    answer = answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01, "mse": 0.001 * 2**i} for i in range(6)], "mse", logs=[logs])
    answer.confirmed[["mse_lower", "mse_upper"]] = 9.62e-9 if logs else -9946.0, 9946.0
    for axes in draw(answer).axes:
        assert axes.get_ylim() == pytest.approx(frame)


def test_panels_of_two_objectives_end_near_what_was_reached_as_well() -> None:
    trials = [{"lr": 0.01, "mse": 0.001 * 2**i, "accuracy": i / 10} for i in range(6)]
    answer = answer_of({"lr": "0.001..0.1:log"}, trials, "mse", "accuracy", logs=[True, False])
    answer.confirmed[["mse_lower", "mse_upper"]] = 9.62e-9, 9946.0
    answer.confirmed[["accuracy_lower", "accuracy_upper"]] = -40.0, 40.0
    _, first, second = draw(answer).axes
    assert first.get_ylim() == pytest.approx((0.001 / 3, 0.032 * 3))
    assert second.get_ylim() == pytest.approx((-0.5, 1.0))


def marks(axes: Axes, *labels: str) -> dict[str, list[tuple[str, list[float], list[float]]]]:
    """Marker, places and heights of the lines with these labels; "" has those that are in no legend."""
    found: dict[str, list[tuple[str, list[float], list[float]]]] = {label: [] for label in labels}
    for container in axes.containers:
        line = container.lines[0]  # type: ignore[attr-defined]
        found.setdefault(str(container.get_label()), []).append(
            (line.get_marker(), np.asarray(line.get_xdata(), float).round(2).tolist(), np.asarray(line.get_ydata()).tolist())
        )
    return found


@pytest.mark.parametrize("aims", [("steps",), ("steps", "mse"), ("mse", "steps")])
@pytest.mark.slow(3)
def test_a_mean_of_steps_that_some_seeds_never_ended_is_at_least_what_is_shown(aims: tuple[str, ...]) -> None:
    answer = answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01, "steps": steps, "mse": 0.1} for steps in (200, 4000)], *aims)
    confirmed = pd.concat([answer.confirmed] * 3, ignore_index=True).assign(mse=0.1, mse_lower=0.05, mse_upper=0.2)
    confirmed = confirmed.assign(
        steps=[500.0, 800.0, 900.0], steps_lower=[120, math.nan, 700], steps_upper=[math.nan, math.nan, 1100],
        unreached=[1, 5, 0], setting=["trial 0", "trial 1", "trial 2"], winner=[True, False, False],
    )  # fmt: skip
    figure = draw(replace(answer, confirmed=confirmed))
    panel = figure.axes[1 + aims.index("steps")]
    kind, least = "on fresh seeds: geometric mean, 95 % interval", "at least this: some seeds never reached the target"
    assert marks(panel) == {kind: [("o", [2.08], [900])], least: [("^", [0.08, 1.08], [500, 800])]}
    [bars] = [container for container in panel.containers if container.get_label() == least]
    ends = [[y for _, y in segment] for segment in bars.lines[2][0].get_segments()]  # type: ignore[attr-defined]
    assert ends == [[120, 500], [800, 800]], "no upper end is known"
    (legend,) = figure.legends or [panel.get_legend()]
    assert [text.get_text() for text in legend.get_texts()] == ["in the search", kind, least]
    if len(aims) > 1:
        towards = ">" if aims[0] == "steps" else "^"
        assert [marker for found in marks(figure.axes[0]).values() for marker, *_ in found] == ["o", towards]
    answer = replace(answer, confirmed=confirmed.assign(unreached=0))
    (legend,) = draw(answer).legends or [draw(answer).axes[1].get_legend()]
    assert len(legend.get_texts()) == 2


def test_the_best_so_far_is_the_highest_of_what_is_to_be_high_and_the_search_keeps_its_own_number() -> None:
    trials = [{"lr": 0.01, "accuracy": accuracy} for accuracy in (0.2, 0.6, 0.4)]
    answer = answer_of({"lr": "0.001..0.1:log"}, trials, "accuracy", logs=[False])
    answer.confirmed["accuracy_search"] = 0.6
    history, confirmation = draw(replace(answer, aims=[Objective("accuracy", True)])).axes
    [best] = [line for line in history.lines if line.get_label() == "best so far"]
    assert list(best.get_ydata()) == [0.2, 0.6, 0.6]
    [searched] = [line for line in confirmation.lines if line.get_label() == "in the search"]
    assert list(searched.get_ydata()) == [0.6]


def test_words_stand_at_their_own_ticks() -> None:
    kind, _ = panels({"kind": "a|b|c"}, kind=["a", "a", "c"])
    assert np.asarray(kind.collections[0].get_offsets())[:, 0].tolist() == [0, 0, 2]


def test_a_confirmed_setting_is_named_where_it_stands() -> None:
    front = draw(answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01}] * 2, "mse", "loss")).axes[0]
    [name] = [text for text in front.texts if text.get_text() == "trial 0"]
    assert name.xy == (0.002, 0.003)  # type: ignore[attr-defined]


def test_one_trial_has_its_own_number_beside_the_panels() -> None:
    _, bar = panels({"depth": "1..3"}, depth=[2])
    assert texts(bar.yaxis) == ["0"]


def test_the_legend_covers_none_of_many_confirmed_settings() -> None:
    answer = answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01}] * 4, "mse")
    many = pd.concat([answer.confirmed] * 40, ignore_index=True)
    figure = draw(replace(answer, confirmed=many.assign(setting=[f"trial {i}" for i in range(40)])))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert figure.axes[1].get_legend() is None
    assert legend.get_window_extent().y1 < min(label.get_window_extent().y0 for label in figure.axes[1].get_xticklabels())


@pytest.mark.slow(2)
def test_names_as_long_as_a_line_are_seen_in_full() -> None:
    name = "an_objective_" * 5 + "whose"
    answer = answer_of({f"{setting}_" * 10: "0..1" for setting in ("one", "two")}, [{name: 0.1, "one_" * 10: 0.5}] * 2, name)
    settings = draw_settings(replace(answer, trials=answer.trials.assign(**{"two_" * 10: 0.5})))
    other = f"another_{name}"
    two = answer_of({"lr": "0..1"}, [{"lr": 0.1}] * 2, name, other)
    for figure in (draw(answer), draw(two), settings):
        assert figure is not None
        FigureCanvasAgg(figure).draw()
        labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label, axes.title)]
        told = [label for label in labels if label.get_text()]
        assert name in [label.get_text().replace("\n", "") for label in told]
        boxes = [label.get_window_extent() for label in told]
        assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 and box.x0 >= 0 for box in boxes)
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_a_trial_alone_and_its_interval_are_seen_in_full() -> None:
    answer = answer_of({"lr": "0.001..0.1:log"}, [{"lr": 0.01, "mse": 0.002}], "mse")
    answer.confirmed[["mse_lower", "mse_upper"]] = 0.0001, 0.04
    low, high = draw(answer).axes[1].get_ylim()
    assert low < 0.0001
    assert high > 0.04
