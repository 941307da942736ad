"""Figures of what decoders draw, from decoders that draw by a rule."""

from collections.abc import Callable
from itertools import pairwise

import matplotlib._pylab_helpers as pylab
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures import images as figures
from analysis.figures import kernels
from analysis.figures.panels import array_of, box_of
from analysis.measures import images, kernel, superposition
from tests.analysis.fake_decoder import HIGH, LOW, N, bump, decoder

SIDE = HIGH - LOW + 1


def table(**varied: list[object]) -> pd.DataFrame:
    """Two seeds of decoders that draw right bumps, fainter by seed, for the values of one column, and by encoding."""
    rows = []
    (column, values), encodings = next(iter(varied.items())), varied.get("encoding", ["bump"])
    for value in values:
        for encoding in encodings if column != "encoding" else [value]:
            for seed in (1, 0):
                faint = (lambda code, s=seed: (1 - 0.1 * s) * bump(code)) if encoding != "ramp" else ramp_bump
                found = decoder(faint, encoding, seed)
                run = {**found.spec.to_dict(), "key": f"{value}{encoding}{seed}", column: value, "encoding": encoding}
                for module in (images, superposition, kernel):
                    for q in module.measure(found):
                        numbers = {"layer": np.nan, "value": np.nan if q.value is None else q.value, "array": q.array}
                        rows.append({**run, "measure": module.__name__, "quantity": q.name, **numbers})
    return pd.DataFrame(rows)


def ramp_bump(code):
    pixel = np.arange(N, dtype=np.float32)
    of_x, of_y = (np.exp(-((pixel - code[:, i, None].numpy()) ** 2) / 2) for i in (0, 1))
    return code.new_tensor(of_y[:, :, None] * of_x[:, None, :])


def maps(figure: Figure) -> list[Axes]:
    """Axes that hold a picture, without the colour bars."""
    return [axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]


def limits(figure: Figure) -> set[tuple[float, float]]:
    return {axes.images[0].get_clim() for axes in maps(figure)}


def boxes(axes: Axes) -> list[tuple[float, float, float, float]]:
    return [p.get_bbox().bounds for p in axes.patches if isinstance(p, Rectangle) and p.get_linestyle() == "--"]


@pytest.fixture(scope="module")
def encodings() -> pd.DataFrame:
    both = table(decoder=["cnn", "mlp"], encoding=["bump", "one-hot", "ramp"])
    return both.sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.mark.slow(2)
def test_errors_share_a_scale_and_have_the_box_dashed(encodings: pd.DataFrame) -> None:
    figure = figures.draw_errors(encodings)
    assert len(maps(figure)) == 6
    assert len(limits(figure)) == 1
    for axes in maps(figure):
        assert boxes(axes) == [(LOW - 0.5, LOW - 0.5, SIDE, SIDE)]
        assert axes.images[0].origin == "lower"
    assert [axes.get_title().split("\n")[0] for axes in maps(figure)][:2] == ["CNN, bump code", "CNN, one-hot code"]
    assert [axes.get_xlabel() for axes in maps(figure)] == [""] * 3 + ["x (px)"] * 3
    assert [axes.get_ylabel() for axes in maps(figure)] == ["y (px)", "", ""] * 2


@pytest.mark.slow(1)
@pytest.mark.parametrize("times", [1e-3, 1.0, 1e3])
def test_the_blank_image_has_a_line_inside_the_scale_of_errors(times: float, encodings: pd.DataFrame) -> None:
    found = encodings[encodings["encoding"] == "one-hot"].copy()
    found.loc[found["quantity"] == "blank_mse", "value"] *= times
    figure = figures.draw_errors(found)
    bar = figure.axes[-1]
    [line] = [one for one in bar.lines if one.get_color() == "white"]
    [blank] = set(found.loc[found["quantity"] == "blank_mse", "value"])
    assert set(line.get_ydata()) == {blank}
    low, high = bar.get_ylim()
    assert low < blank < high
    [of_maps] = limits(figure)
    assert of_maps == pytest.approx((low, high))
    assert bar.get_ylabel() == "MSE (white line: blank image)"


@pytest.mark.slow(1)
def test_a_decoder_without_any_error_has_its_figure_too(encodings: pd.DataFrame) -> None:
    figure = figures.draw_errors(encodings[encodings["encoding"] == "bump"])
    assert maps(figure)[0].images[0].get_array().max() == 0
    FigureCanvasAgg(figure).draw()


@pytest.mark.slow(1)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_mean_in_a_title_is_of_the_seeds_that_have_a_number(wrong: float, encodings: pd.DataFrame) -> None:
    found = encodings[encodings["encoding"] == "one-hot"].copy()
    known = {"id_mse": 0.25, "ood_mse": 0.5, "ood_proper": 0.75}
    for quantity, value in known.items():
        found.loc[found["quantity"] == quantity, "value"] = np.where(found["seed"][found["quantity"] == quantity], value, wrong)
    assert maps(figures.draw_errors(found))[0].get_title() == "CNN, one-hot code\nID 2.5e-01, OOD 5.0e-01"
    by_depth = figures.draw_by_depth(found[found["decoder"] == "cnn"])
    assert maps(by_depth)[0].get_title().endswith("\n75% proper")
    found.loc[found["quantity"].isin(known), "value"] = np.nan
    assert maps(figures.draw_errors(found))[0].get_title().endswith("ID nan, OOD nan")


@pytest.mark.slow(2)
@pytest.mark.parametrize("codes", [["one-hot"], ["bump", "one-hot"]])
def test_titles_of_errors_end_before_the_scale_whose_labels_are_alike(encodings: pd.DataFrame, codes: list[str]) -> None:
    figure = figures.draw_errors(encodings[encodings["encoding"].isin(codes)])
    FigureCanvasAgg(figure).draw()
    bar = figure.axes[-1]
    titles = [axes.title.get_window_extent().x1 for axes in maps(figure)]
    assert max(titles) < bar.get_window_extent().x0
    assert {label.get_fontsize() for which in ("major", "minor") for label in bar.yaxis.get_ticklabels(which=which)} == {7}


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    ("draw", "column", "values"),
    [
        (figures.draw_by_depth, "depth", [2, 4, 6]),
        (figures.draw_by_bumps, "data_count", [0, 10]),
        (figures.draw_generated, "decoder", ["cnn", "mlp"]),
    ],
)
def test_pictures_stand_in_rows_by_position(draw: Callable[[pd.DataFrame], Figure], column: str, values: list[object]) -> None:
    rows = table(**{column: values})
    figure = draw(rows)
    assert len(maps(figure)) == 4 * len(values)
    assert limits(figure) == {(0, 1)}
    for index, axes in enumerate(maps(figure)):
        x, y = array_of(rows, "picture_points")[index // len(values)]
        assert (axes.lines[0].get_xdata()[0], axes.lines[0].get_ydata()[0]) == (x, y)
        assert axes.images[0].get_array()[int(y), int(x)] == 1  # seed 0, the lowest
        assert boxes(axes) == [(LOW - 0.5, LOW - 0.5, SIDE, SIDE)]
        assert axes.get_ylabel() == (f"({x:.0f}, {y:.0f})" if index % len(values) == 0 else "")


@pytest.mark.slow(1)
def test_the_error_by_bumps_shows_every_seed_and_the_blank_image() -> None:
    rows = table(data_count=[0, 10])
    axes = next(a for a in figures.draw_by_bumps(rows).axes if a.get_xlabel() == "bumps added to the stripes")
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    blank = float(rows.loc[rows["quantity"] == "blank_mse", "value"].iloc[0])
    for line in points:
        np.testing.assert_allclose(line.get_ydata(), [0, 0.01 * blank], atol=1e-9)  # seeds 0 and 1
    assert len(points) == 2
    assert any(set(line.get_ydata()) == {blank} for line in axes.lines)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "10"]


@pytest.mark.slow(3)
@pytest.mark.parametrize("count", [2, 10])
def test_titles_of_many_numbers_of_bumps_have_room(count: int) -> None:
    figure = figures.draw_by_bumps(table(data_count=list(range(0, 100 * count, 100))))
    FigureCanvasAgg(figure).draw()
    first = maps(figure)[:count]
    assert [axes.get_title() for axes in first] == [f"{100 * n} bumps" for n in range(count)]
    titles = [axes.title.get_window_extent() for axes in first]
    assert all(left.x1 < right.x0 for left, right in pairwise(titles))
    numbers = [label.get_window_extent() for label in figure.axes[-1].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(numbers))


@pytest.mark.slow(1)
def test_superposition_shows_its_parts_and_every_seed(encodings: pd.DataFrame) -> None:
    figure = figures.draw_superposition(encodings)
    assert len(maps(figure)) == 2 * 3 * 4
    assert limits(figure) == {(0, 1)}
    assert [axes.get_title() for axes in maps(figure)[:4]] == ["x alone", "y alone", "sum", "drawn"]
    lines = [[(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines] for axes in maps(figure)[:4]]
    assert lines == [[(3, 0)], [(0, 4)], [(3, 0), (0, 4)], [(3, 0), (0, 4)]]
    points = [line for line in figure.axes[-1].lines if line.get_linestyle() == "None"]
    assert len(points) == 2 * 2 * 3
    assert all(len(line.get_ydata()) == 2 for line in points)
    assert "correlation" in figure.axes[-1].get_ylabel()


def test_kernels_have_a_scale_per_kind_and_their_blocks_framed(encodings: pd.DataFrame) -> None:
    figure = kernels.draw_kernels(encodings)
    panels = maps(figure)
    assert len(panels) == 8
    assert [panels[i].images[0].get_clim() == panels[i + 4].images[0].get_clim() for i in range(4)] == [True] * 4
    assert [axes.get_title() for axes in panels[:4]] == ["binary", "cosine", "minus L2 distance", "pixel overlap"]
    for axes in panels:
        assert boxes(axes) == [(-0.5, -0.5, 39, 39), (38.5, 38.5, 25, 25)]
    binary = panels[0].images[0].get_array()
    assert binary[0, :9].tolist() == [1, *[0.5] * 7, 0.5]  # (0, 0), the rest of its row, (0, 1)
    np.testing.assert_array_equal(panels[1].images[0].get_array(), array_of(encodings, "cosine_gram", encoding="bump"))


def test_the_corner_is_the_block_of_the_box(encodings: pd.DataFrame) -> None:
    figure = kernels.draw_kernel_corner(encodings)
    panels = [axes.images[0].get_array() for axes in maps(figure)]
    assert [panel.shape for panel in panels] == [(25, 25)] * 4
    assert panels[0][0, [0, 4, 5, 6]].tolist() == [1, 0.5, 0.5, 0]
    np.testing.assert_array_equal(panels[2], array_of(encodings, "cosine_gram", encoding="bump")[39:, 39:])
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["y = 2", "y = 4", "y = 6"]


@pytest.mark.slow(5)
@pytest.mark.parametrize("blank", [("bump",), ("ramp",), ("bump", "ramp")])
@pytest.mark.parametrize("draw", [kernels.draw_kernels, kernels.draw_kernel_corner])
def test_a_decoder_that_draws_the_same_everywhere_leaves_the_colours_of_others_alone(
    draw: Callable[[pd.DataFrame], Figure], blank: tuple[str, ...], encodings: pd.DataFrame
) -> None:
    table, cut = encodings.copy(), slice(None) if draw is kernels.draw_kernels else slice(39, None)
    known = [array_of(table, "cosine_gram", encoding=e)[cut, cut] for e in ("bump", "ramp") if e not in blank]
    is_blank = (table["quantity"] == "cosine_gram") & table["encoding"].isin(blank)
    table.loc[is_blank, "array"] = table.loc[is_blank, "array"].map(lambda K: None if K is None else K * np.nan)
    figure = draw(table)
    FigureCanvasAgg(figure).draw()
    panels = maps(figure)
    cosines = panels[1::4] if draw is kernels.draw_kernels else panels[2:]
    wanted = (known[0].min(), known[0].max()) if len(known) == 1 else (0, 1)
    assert [axes.images[0].get_clim() for axes in cosines] == [wanted] * 2


@pytest.mark.parametrize("draw", [kernels.draw_kernels, kernels.draw_kernel_corner])
def test_a_code_without_seed_0_costs_no_picture_of_the_others(
    draw: Callable[[pd.DataFrame], Figure], encodings: pd.DataFrame
) -> None:
    def titles(table: pd.DataFrame) -> set[str]:
        return {text.split("\n")[0] for axes in maps(draw(table)) for text in (axes.get_title(), axes.get_ylabel())}

    without = encodings[~((encodings["encoding"] == "ramp") & (encodings["seed"] == 0))]
    assert "ramp code" in titles(encodings)
    assert ("bump code" in titles(without), "ramp code" in titles(without)) == (True, False)
    with pytest.raises(LookupError, match="cosine_gram"):
        draw(encodings[encodings["seed"] == 1])


@pytest.mark.slow(1)
def test_numbers_of_kernels_are_points_by_seed_and_right_images_agree_with_their_line(encodings: pd.DataFrame) -> None:
    figure = kernels.draw_kernel_numbers(encodings)
    assert len(figure.axes) == 6
    cosine = figure.axes[0]
    points = [line for line in cosine.lines if line.get_linestyle() == "None"]
    assert len(points) == 2 * 2 * 3  # one-hot codes give one pixel each, similar to no other
    assert all(len(line.get_ydata()) == 2 for line in points)
    dashed = next(line for line in cosine.lines if line.get_linestyle() == "--")
    assert dashed.get_ydata()[0] == pytest.approx(points[1].get_ydata()[0])  # the bump code's OOD agreement
    assert cosine.get_ylabel().replace("\n", " ") == "correlation with the binary kernel"
    assert [tick.get_text() for tick in figure.axes[3].get_xticklabels()] == ["bump", "one-hot", "ramp"]


@pytest.mark.slow(1)
def test_no_figure_is_left_with_pyplot(encodings: pd.DataFrame) -> None:
    kernels.draw_kernels(encodings)
    figures.draw_errors(encodings)
    assert pylab.Gcf.get_all_fig_managers() == []


def test_the_lowest_seed_with_the_array_is_picked(encodings: pd.DataFrame) -> None:
    assert box_of(encodings) == (LOW, HIGH)
    assert array_of(encodings, "pictures", encoding="bump").max() == 1
    assert array_of(encodings[encodings["seed"] == 1], "pictures", encoding="bump").max() == pytest.approx(0.9)
    with pytest.raises(LookupError, match="pictures"):
        array_of(encodings, "pictures", encoding="positional")
