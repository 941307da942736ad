"""Figures of geometry and tuning, from tables with known numbers."""

from collections.abc import Iterable
from itertools import groupby, pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from analysis.figures.geometry import LEAST_R2, draw_by_layer, draw_volume_gap, draw_volumes
from analysis.figures.panels import MOST_LAYERS, SMALL
from analysis.figures.tuning import MOST_PAIRS, draw_striped, draw_tuning, draw_unit

N = 12
Y, X = np.mgrid[:N, :N].astype(float)


def run(seed: int, depth: int = 2, data_count: int = 10, **words: Any) -> dict[str, Any]:
    standard = {"dataset": "bumps", "decoder": "cnn", "encoding": "bump", "holdout": "center", "N": N}
    return standard | {"seed": seed, "depth": depth, "data_count": data_count} | words


def rows(run: dict[str, Any], layers: Iterable[int], **quantities: Any) -> list[dict[str, Any]]:
    """Every quantity is a function of the layer, to a number or an array."""
    table = []
    for layer, (quantity, of) in product(layers, quantities.items()):
        found = of(layer)
        number = not isinstance(found, np.ndarray)
        value, array = (float(found), None) if number else (np.nan, found)
        table.append(run | {"quantity": quantity, "layer": float(layer), "value": value, "array": array})
    return table


def panels(figure: Figure) -> list[Axes]:
    """Without colour bars and what is switched off."""
    figure.canvas.draw()
    texts = [text for axes in figure.axes for text in axes.texts + axes.get_xticklabels() + [axes.title, axes.xaxis.label]]
    assert min(text.get_fontsize() for text in texts if text.get_text() and text.get_visible()) >= SMALL
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


def is_apart(texts: Iterable[Text]) -> bool:
    """Whether no text runs into the next one."""
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return all(left.x1 < right.x0 for left, right in pairwise(boxes))


def check_room(figure: Figure) -> None:
    """Neither labels nor titles of panels side by side run into each other, and no legend is cut off or covers a panel."""
    FigureCanvasAgg(figure).draw()
    for _, row in groupby(panels(figure), lambda axes: axes.get_subplotspec().rowspan.start):  # type: ignore[union-attr]
        of_row = list(row)
        assert is_apart(axes.title for axes in of_row)
        assert is_apart(axes.xaxis.label for axes in of_row)
        assert all(is_apart(axes.get_xticklabels()) for axes in of_row)
        ends = [axes.get_tightbbox() for axes in of_row]
        assert all(end is not None and 0 <= end.x0 < end.x1 <= figure.bbox.x1 for end in ends)
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 < min(axes.get_window_extent().y0 for axes in figure.axes)


def curves(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines[:]}


def test_volume_maps_are_of_the_lowest_seed_at_the_common_depth_on_one_scale() -> None:
    table = pd.DataFrame(
        [
            row
            for seed, (decoder, encoding, depths) in product((1, 0), [("cnn", "bump", (2, 4)), ("mlp", "ramp", (2,))])
            for depth in depths
            for row in rows(
                run(seed, depth, decoder=decoder, encoding=encoding),
                range(-1, depth + (2 if decoder == "cnn" else 1)),
                volume_map=lambda layer, seed=seed: 10.0 ** (layer - 5 * seed + np.where(X < N / 2, 0.2, -0.2)),
            )
        ]
    )
    figure = draw_volumes(table)
    shown = panels(figure)
    titles = ["layer 0: 0.00", "layer 1: 1.00", "layer 2: 2.00", "image: 3.00", "layer 0: 0.00", "layer 1: 1.00", "image: 2.00"]
    assert [axes.get_title().replace("-0.00", "0.00") for axes in shown] == titles
    for axes in shown:
        np.testing.assert_allclose(axes.images[0].get_array()[0], [0.2] * 6 + [-0.2] * 6, atol=1e-6)
        assert axes.images[0].get_clim() == pytest.approx((-0.6, 0.6))
    assert all(axes.images[0].origin == "lower" for axes in shown)
    for axes in shown:
        (box,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert (box.get_xy(), box.get_width(), box.get_linestyle()) == ((2.5, 2.5), 7, "--")
    assert "CNN" in shown[0].get_ylabel()
    assert "ramp" in shown[4].get_ylabel()


@pytest.mark.parametrize(("outlier", "ends"), [(0.2, "neither"), (9.0, "max"), (-9.0, "min")])
def test_the_scale_of_volumes_has_a_point_where_some_are_beyond_it(outlier: float, ends: str) -> None:
    volumes = 10 ** np.where((X == 5) & (Y == 7), outlier, np.where(X < N / 2, 0.2, -0.2))
    figure = draw_volumes(pd.DataFrame(rows(run(0), range(-1, 4), volume_map=lambda _: volumes)))
    colorbar = panels(figure)[-1].images[0].colorbar
    assert colorbar is not None
    assert colorbar.extend == ends


def test_the_gap_is_ood_less_id_with_the_range_over_seeds() -> None:
    table = pd.DataFrame(
        [
            row
            for seed, dataset in product((0, 1, 2), ("bumps", "stripes+bumps"))
            for encoding in ("bump", "ramp")[: 2 if dataset == "bumps" else 1]
            for row in rows(
                run(seed, dataset=dataset, encoding=encoding),
                range(-1, 4),
                volume_id=lambda layer: layer + 100.0,
                volume_ood=lambda layer, seed=seed, encoding=encoding, dataset=dataset: (
                    layer + 100 - (layer + 1) * (0.3 + 0.1 * seed) * (0.5 if "+" in dataset else 1) - 50 * (encoding == "ramp")
                ),
            )
        ]
    )
    (axes,) = panels(draw_volume_gap(table))
    assert axes.get_title() == "CNN, depth 2"
    assert curves(axes)["bumps"][0] == [-1, 0, 1, 2, 3]
    assert curves(axes)["bumps"][1] == pytest.approx([0, -0.4, -0.8, -1.2, -1.6])
    assert curves(axes)["stripes + bumps"][1] == pytest.approx([0, -0.2, -0.4, -0.6, -0.8])
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((-2.0, 0))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["in", "0", "1", "2", "image"]


def test_probe_and_factorization_have_a_line_per_depth_and_a_column_per_code() -> None:
    table = pd.DataFrame(
        [
            row
            for seed, depth, encoding in product((0, 1), (2, 4), ("bump", "ramp"))
            for row in rows(
                run(seed, depth, encoding=encoding),
                range(-1, depth + 2),
                r2_id=lambda layer: 1.0,
                r2_ood=lambda layer, depth=depth: 1 - 2.0 * (layer + 1) / depth,
                factorization=lambda layer, seed=seed, encoding=encoding: 1 - 0.1 * (encoding == "ramp") - 0.02 * seed,
            )
        ]
    )
    shown = panels(draw_by_layer(table))
    assert [axes.get_title() for axes in shown] == ["CNN, bump code", "CNN, ramp code", "", "", "", ""]
    assert curves(shown[2])["depth 2"] == ([-1, 0, 1, 2], [1, 0, -1, -2]), "the image is no layer"
    assert curves(shown[2])["depth 4"][0] == [-1, 0, 1, 2, 3, 4]
    assert [label.get_text() for label in shown[4].get_xticklabels()] == ["in", "0", "1", "2", "3", "4"]
    assert shown[2].get_ylim()[0] == shown[3].get_ylim()[0] == LEAST_R2
    assert curves(shown[4])["depth 2"][1] == pytest.approx([0.99] * 4)
    assert curves(shown[5])["depth 4"][1] == pytest.approx([0.89] * 6)


def legend_of(figure: Figure) -> list[str]:
    """The words of the only legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_means_below_the_axis_of_probes_are_marked_at_its_lower_edge() -> None:
    table = pd.DataFrame(
        [
            row
            for seed, depth in product((0, 1), (2, 4))
            for row in rows(
                run(seed, depth),
                range(-1, depth + 2),
                r2_id=lambda _: 0.9,
                r2_ood=lambda layer, depth=depth, seed=seed: 0.5 - 2.0 * max(0, layer) * (depth == 4) - 0.1 * seed,
                factorization=lambda _: 0.9,
            )
        ]
    )
    figure = draw_by_layer(table)
    check_room(figure)
    shown = panels(figure)
    below = [line for axes in shown for line in axes.lines if line.get_marker() == "v"]
    [depth_4] = [line for line in shown[1].lines if line.get_label() == "depth 4"]
    assert [line.axes for line in below] == [shown[1]]
    assert (list(below[0].get_xdata()), list(below[0].get_ydata())) == ([1, 2, 3, 4], [LEAST_R2] * 4)
    assert below[0].get_color() is depth_4.get_color()
    assert legend_of(figure) == ["depth 2", "depth 4", "mean below -1"]
    without = draw_by_layer(table[table["depth"] == 2])
    assert legend_of(without) == ["depth 2"]


def test_a_legend_names_what_any_panel_shows() -> None:
    def unless(is_missing: bool) -> Any:
        return lambda _: np.nan if is_missing else 0.5

    table = pd.DataFrame(
        [
            row
            for depth, dataset, encoding in product((2, 4), ("bumps", "stripes+bumps"), ("bump", "ramp"))
            for row in rows(
                run(0, depth, dataset=dataset, encoding=encoding),
                range(-1, depth + 2),
                volume_id=lambda _: 1.0,
                volume_ood=unless(depth == 2 and dataset == "bumps"),
                **dict.fromkeys(("r2_id", "r2_ood", "factorization"), unless(depth == 2 and dataset == "bumps")),
            )
        ]
    )
    assert legend_of(draw_volume_gap(table)) == ["bumps", "stripes + bumps"]
    assert legend_of(draw_by_layer(table)) == ["depth 2", "depth 4"]
    table["value"] = table["value"].where((table["dataset"] != "bumps") | (table["depth"] != 4))
    assert legend_of(draw_volume_gap(table)) == ["stripes + bumps"], "nothing is known of the others"


@pytest.mark.filterwarnings("error")
def test_a_layer_that_some_seeds_lack_has_the_mean_and_the_range_of_the_others() -> None:
    def striped(seed: int) -> Any:
        return lambda layer: np.nan if layer == 2 or (seed, layer) == (2, 3) else 0.1 * layer + 0.2 * seed

    made = [row for seed in (0, 1, 2) for row in rows(run(seed), range(5), striped=striped(seed), additive=lambda _: 0.5)]
    axes = draw_striped(pd.DataFrame(made)).axes[0]
    at, means = curves(axes)["10 bumps"]
    assert at == [0, 1, 2, 3, 4]
    assert means == pytest.approx([0.2, 0.3, np.nan, 0.4, 0.6], nan_ok=True)
    ends = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert [(end.x0, end.x1, end.y0, end.y1) for end in ends] == [
        pytest.approx((0, 1, 0, 0.5)), pytest.approx((3, 4, 0.3, 0.8)),
    ]  # fmt: skip


def test_a_unit_is_drawn_with_its_two_marginals_and_their_share() -> None:
    pixel = 6.0 * ((X == 5) & (Y == 7))
    figure = Figure()
    axes = figure.add_subplot()
    draw_unit(axes, pixel, (3, 9))
    above, beside = (child for child in axes.child_axes)
    assert list(above.lines[0].get_ydata()) == [0] * 5 + [0.5] + [0] * 6
    assert list(beside.lines[0].get_xdata()) == [0] * 7 + [0.5] + [0] * 4
    assert axes.get_xlabel() == f"additive {2 / (N + 1):.2f}"
    assert axes.images[0].get_array()[7, 5] == 6
    silent = figure.add_subplot()
    draw_unit(silent, np.zeros((N, N)), (3, 9))
    assert silent.get_xlabel() == "silent"


@pytest.mark.slow(1)
def test_tuning_has_a_row_per_layer_and_the_most_and_least_additive_unit_for_every_number_of_bumps() -> None:
    stripe, pixel = np.exp(-((X - 4) ** 2)), 1.0 * ((X == 5) & (Y == 7))
    stack = np.stack([pixel * 0, *(i * stripe + (6 - i) * pixel for i in range(7))])
    table = pd.DataFrame(
        [
            row
            for seed, count in product((0, 1), (0, 50))
            for row in rows(
                run(seed, data_count=count, dataset="stripes+bumps", holdout="corner"),
                range(3),
                maps=lambda layer, seed=seed, count=count: stack * (1 + seed + count),
            )
        ]
    )
    shown = panels(draw_tuning(table))
    assert len(shown) == 3 * 2 * 2
    assert [axes.get_title(loc="left") for axes in shown[:4]] == ["0 bumps", "", "50 bumps", ""]
    assert [axes.get_ylabel() for axes in shown[::4]] == ["layer 0", "layer 1", "layer 2"]
    np.testing.assert_allclose(shown[0].images[0].get_array(), 6 * stripe)
    np.testing.assert_allclose(shown[1].images[0].get_array(), 6 * pixel)
    np.testing.assert_allclose(shown[3].images[0].get_array(), 6 * pixel * 51)
    assert shown[0].get_xlabel() == "additive 1.00"


@pytest.mark.parametrize(("layers", "counts", "drawn"), [(1500, 1, (40, 1)), (1, 30, (1, 25)), (12, 4, (12, 2))])
def test_tuning_shows_only_so_many_layers_and_numbers_of_bumps(
    layers: int, counts: int, drawn: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.figures.tuning.draw_unit", lambda *_: None)
    monkeypatch.setattr("analysis.figures.tuning.MOST_PAIRS", MOST_PAIRS // 8 if counts > 1 else MOST_PAIRS)
    stack = np.ones((8, 2, 2))
    made = [row for count in range(counts) for row in rows(run(0, data_count=count), range(layers), maps=lambda _: stack)]
    axes = draw_tuning(pd.DataFrame(made)).axes
    assert len(axes) == drawn[0] * drawn[1] * 2
    assert axes[-2 * drawn[1]].get_ylabel() == f"layer {drawn[0] - 1}"
    assert axes[2 * drawn[1] - 2].get_title(loc="left") == f"{drawn[1] - 1} bumps"


def test_striped_units_are_counted_by_layer_and_number_of_bumps() -> None:
    table = pd.DataFrame(
        [
            row
            for seed, count in product((0, 1), (0, 50))
            for row in rows(
                run(seed, data_count=count),
                range(3),
                striped=lambda layer, seed=seed, count=count: 1 - layer * count / 200 - 0.1 * seed,
                additive=lambda layer: 0.5,
            )
        ]
    )
    striped, additive = panels(draw_striped(table))
    assert curves(striped)["0 bumps"] == ([0, 1, 2], pytest.approx([0.95, 0.95, 0.95]))
    assert curves(striped)["50 bumps"][1] == pytest.approx([0.95, 0.7, 0.45])
    assert curves(additive)["50 bumps"][1] == pytest.approx([0.5] * 3)


@pytest.mark.slow(2)
@pytest.mark.parametrize("depths", [range(2, 7), range(2, 11, 2), (24,)])
def test_labels_and_titles_of_many_layers_and_depths_have_room(depths: Iterable[int]) -> None:
    table = pd.DataFrame(
        [
            row
            for depth, dataset, decoder in product(depths, ("bumps", "stripes+bumps"), ("cnn", "mlp"))
            for row in rows(
                run(0, depth, dataset=dataset, decoder=decoder),
                range(-1, depth + (2 if decoder == "cnn" else 1)),
                volume_map=lambda layer: 10.0 ** (np.where(X < 6, 0.2, -0.2) - 0.4 * layer),
                volume_id=lambda layer: 10.0,
                volume_ood=lambda layer: 9.0 - layer,
            )
        ]
    )
    gap = draw_volume_gap(table)
    check_room(gap)
    assert [text.get_text() for text in gap.legends[0].get_texts()] == ["bumps", "stripes + bumps"]
    deepest = table["depth"].max()
    shown = [label.get_text() for label in panels(gap)[-1].get_xticklabels()]
    assert (shown[0], shown[-1], len(shown) - 2) == ("in", "image", {6: 6, 10: 5, 24: 8}[deepest])
    check_room(draw_volumes(table[table["depth"] == deepest]))


@pytest.mark.slow(3)
@pytest.mark.parametrize("count", [1, 4, 10])
def test_many_numbers_of_bumps_have_room(count: int) -> None:
    stack = np.stack([i * np.exp(-((X - 4) ** 2)) + (7 - i) * ((X == 5) & (Y == 7)) for i in range(8)])
    numbers = {"maps": lambda _: stack, "striped": lambda _: 0.5, "additive": lambda _: 0.5}
    made = [row for n in range(count) for row in rows(run(0, data_count=50 * n, dataset="stripes+bumps"), range(2), **numbers)]
    striped = draw_striped(pd.DataFrame(made))
    check_room(striped)
    assert [text.get_text() for text in striped.legends[0].get_texts()] == [f"{50 * n} bumps" for n in range(count)]
    check_room(draw_tuning(pd.DataFrame(made)))


def test_layers_that_no_run_has_take_no_time() -> None:
    numbers = dict.fromkeys(("r2_id", "r2_ood", "factorization"), lambda _: 0.5)
    table = pd.DataFrame(rows(run(0), (-1, 0, 1, 2, 3000, 3001), **numbers))
    ticks = [text.get_text() for text in draw_by_layer(table).axes[-1].get_xticklabels()]
    assert len(ticks) <= MOST_LAYERS + 3
    assert (ticks[:2], ticks[-1]) == (["in", "0"], "3000")
    maps = pd.DataFrame(rows(run(0), range(-1, 60), volume_map=lambda _: np.ones((N, N))))
    assert len(draw_volumes(maps).axes) == MOST_LAYERS + 1, "and the bar of colours"
