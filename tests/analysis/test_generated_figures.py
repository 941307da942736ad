"""Figures of generators, from pictures whose readings are told: what is right is marked, what is counted is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures import generated as figures
from analysis.figures.style import image
from tests.analysis.test_claims import table_of
from trainables.generative.chain import GENERATOR, TOKENIZER
from trainables.generative.shapes import COMPOSITIONS

N, SHOWN = 12, 8
BY_LEVEL = ["000", "001", "010", "100", "011", "101", "110", "111"]
BITS = np.array([[int(bit) for bit in word] for word in COMPOSITIONS], np.float32)
USUAL: dict[str, Any] = {
    "dataset": "shapes2d", "N": N, "data_count": 64, "fixed_count": 0, "depth": 2, "width": 32, "holdout": "train1",
    "options": {"codes": 16}, "max_steps": 60, "lr": 1e-3, "batch_size": 16, "weight_decay": 0.0, "precision": "float32",
    "schedule": "cosine", "stop": "budget", "status": "passed", "id_mse": 0.0, "ood_mse": 0.0, "accuracy": 1.0,
}  # fmt: skip
LOSSES: dict[str, dict[str, Any]] = {"one": {"jepa": 0.6, "jepa_layers": "one"}, "three": {"jepa": 0.6}}
"""Settings of the auxiliary loss, by a word."""
Found = Mapping[str, float | np.ndarray]


def rows(
    task: str, measure: str, decoder: str, encoding: str, seed: int, found: Found, *more: str
) -> Iterator[dict[str, Any]]:
    """What was measured of one run. `more` is its conditioning, or one of LOSSES."""
    run = {**USUAL, "task": task, "decoder": decoder, "encoding": encoding, "seed": seed}
    told = [LOSSES.get(word, {"conditioning": word}) for word in more]
    run["options"] = {**USUAL["options"], **(told[0] if told else {})}
    key = json.dumps([task, decoder, encoding, seed, *more])
    for name, what in found.items():
        value, array = (np.nan, what) if isinstance(what, np.ndarray) else (what, None)
        yield {**run, "key": key, "measure": measure, "quantity": name, "layer": np.nan, "value": value, "array": array}


def readings(name: str, wrong: Sequence[int] = ()) -> Found:
    """Random pictures, in which the probe reads all right; so does the oracle, but for the second one and those of the
    compositions `wrong`, which are unclear in colour."""
    probe = np.repeat(BITS[:, None], SHOWN, axis=1)
    oracle = probe.copy()
    oracle[:, 1, 2] = 2
    oracle[list(wrong), :, 2] = 2
    pictures = np.random.default_rng(0).random((8, SHOWN, 3, N, N)).astype(np.float32)
    return {name: pictures, f"{name}_probe": probe, f"{name}_oracle": oracle}


def generators(
    seeds: int = 1, families: Sequence[tuple[str, ...]] = tuple(figures.FAMILY_NAMES), times: float = 1.0
) -> pd.DataFrame:
    """Generators that are right but at 111, more by seed. A third word of a family is the conditioning, or one
    of LOSSES."""
    made = []
    for decoder, encoding, *more in families:
        for seed in range(seeds):
            matrix = np.eye(8)
            matrix[7, 6], matrix[7, 7] = 1 - seed / 2, seed / 2
            found = {f"both_{word}": times * (i + seed) / 10 for i, word in enumerate(COMPOSITIONS)}
            found |= {f"frechet_{word}": 1.0 for word in COMPOSITIONS}
            found |= readings("pictures", [7]) | {"asked": np.ones((8, 3, N, N)), "retrieved": matrix}
            made += rows(GENERATOR, "generated", decoder, encoding, seed, found, *more)
    return table_of(made)


def tokenizers(seeds: int = 1) -> pd.DataFrame:
    """Tokenizers of either kind, whose originals are black; unseen pairs differ by composition and seed."""
    made = []
    for encoding in ("vae", "vq"):
        for seed in range(seeds):
            found = {f"both_{word}": 0.5 for word in COMPOSITIONS}
            found |= readings("reconstructions") | {"originals": np.zeros((8, SHOWN, 3, N, N))}
            if encoding == "vq":
                for i, word in enumerate(COMPOSITIONS):
                    pairs, pictures = (i + seed) / 20, i / 8
                    found |= {f"unseen_codes_{word}": 0.0, f"unseen_pairs_{word}": pairs, f"unseen_images_{word}": pictures}
            made += rows(TOKENIZER, "tokens", "linear", encoding, seed, found)
    return table_of(made)


def words(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def frames(axes: Axes) -> list[Rectangle]:
    """Those around what both judges read right."""
    return [p for p in axes.patches if isinstance(p, Rectangle) and to_hex(p.get_edgecolor()) == figures.RIGHT.lower()]


def test_what_is_read_right_has_a_tick_and_a_frame() -> None:
    figure = figures.draw_samples(generators(families=[("dit", "vq"), ("maskgit", "vq")]))
    (axes,) = figure.axes
    told = words(axes)
    pictures = 2 * 4 * 8
    assert len(axes.images) == 8 + pictures, "four of each family and composition, and what was asked"
    assert sum(word.startswith("✓") for word in told) == pictures + 2 * 3 * 7, "by the probe all, by the oracle three of four"
    assert sum(word.startswith("✗") for word in told) == 2 * (7 + 4)
    assert told.count("✓110") == 2 * (4 + 3)
    assert told.count("✗11?") == 2 * (1 + 4)
    assert len(frames(axes)) == 2 * 3 * 7
    assert {"DiT on VQ", "MaskGIT on VQ", "seen", "level 1", "level 2", "asked", "70%"} <= set(told)


def test_rows_are_ordered_by_level_and_each_has_its_own_picture() -> None:
    table = generators(families=[("dit", "vae")])
    figure = figures.draw_samples(table)
    (axes,) = figure.axes
    labels = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_text() in COMPOSITIONS}
    assert sorted(labels, key=lambda word: labels[word]) == BY_LEVEL
    shown = {tuple(np.round(picture.get_extent(), 3)): np.asarray(picture.get_array()) for picture in axes.images}
    first = [at for at in shown if at[0] == min(x for x, *_ in shown if x > figures.MARGIN + 0.5)]
    samples = figures.array_of(table, "pictures")
    for left, right, bottom, top in first:
        word = min(labels, key=lambda word: abs(labels[word] - (bottom + top) / 2))
        expected = samples[COMPOSITIONS.index(word), 0].transpose(1, 2, 0)
        assert shown[left, right, bottom, top] == pytest.approx(expected)
    assert len(first) == 8


def test_originals_stand_beside_what_is_made_of_them() -> None:
    (axes,) = figures.draw_reconstructions(tokenizers()).axes
    told = words(axes)
    assert told.count("original") == told.count("decoded") == 4
    assert {"VAE", "VQ", "50%"} <= set(told)
    black = [not np.asarray(picture.get_array()).any() for picture in axes.images]
    assert black.count(True) == black.count(False) == 4 * 8
    assert sum(word[0] in "✓✗" for word in told) == 2 * 4 * 8, "nothing is read in originals"


def test_the_matrix_of_what_is_retrieved_is_a_mean_over_seeds_ordered_by_level() -> None:
    figure = figures.draw_retrieval(generators(seeds=2))
    panels = [axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]
    assert [axes.get_title() for axes in panels] == [f"{name}\n91% as asked" for name in figures.FAMILY_NAMES.values()]
    matrix = np.asarray(panels[0].images[0].get_array())
    assert [label.get_text() for label in panels[0].get_yticklabels()] == BY_LEVEL
    assert matrix[:7, :7].tolist() == np.eye(7).tolist()
    assert matrix[7, 6:].tolist() == [0.75, 0.25]
    assert words(panels[0]) == ["100"] * 7 + ["75", "25"]


def test_bars_of_coverage_are_medians_beside_what_is_allowed() -> None:
    figure = figures.draw_coverage(tokenizers(seeds=3).query("encoding == 'vq'"))
    codes, pairs, images = figure.axes
    assert [bar.get_height() for bar in pairs.patches] == pytest.approx([(COMPOSITIONS.index(w) + 1) / 20 for w in BY_LEVEL])
    assert [bar.get_height() for bar in codes.patches] == [0] * 8
    assert len(images.lines) == 8, "the points of the seeds, and no line of a mean"
    assert [label.get_text() for label in images.get_xticklabels()] == BY_LEVEL
    assert [text.strip() for axes in figure.axes for text in words(axes)] == ["at most 0.01", "at most 0.2"]
    hatches = [bar.get_hatch() for bar in images.patches]
    assert hatches == [""] * 4 + ["//"] * 3 + ["xx"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["seen", "level 1", "level 2"]


def test_what_models_were_told_has_a_panel_each_with_the_shares_by_level() -> None:
    three = [generators(3, [("dit", "vq", word)], times) for word, times in (("full", 1), ("both", 0.5), ("dropout", 0.2))]
    figure = figures.draw_conditioning(pd.concat(three))
    panels = dict(zip(("full", "dropout", "quantised", "both"), figure.axes, strict=True))
    assert [axes.get_title() for axes in figure.axes] == [
        "values, all factors", "values, not always all", "classes, all factors", "classes, not always all",
    ]  # fmt: skip
    of_full = [(0 + 1 + 2 + 4) / 40, (3 + 5 + 6) / 30, 0.7]  # of the first seed; each further one has 0.1 more
    for word, times in (("full", 1), ("both", 0.5), ("dropout", 0.2)):
        assert [bar.get_height() for bar in panels[word].patches] == pytest.approx([times * (s + 0.1) for s in of_full])
        (seeds_at_2,) = [line.get_ydata() for line in panels[word].lines if len(line.get_ydata()) == 3][2:]
        assert list(seeds_at_2) == pytest.approx([times * share for share in (0.7, 0.8, 0.9)])
        assert len(panels[word].lines) == 3, "no line of a mean beside a bar"
    assert not panels["quantised"].patches
    assert words(panels["quantised"]) == ["not compared here"]
    assert panels["full"].get_ylim() == (-0.03, 1.05)  # points at 0 are whole
    assert [label.get_text() for label in panels["both"].get_xticklabels()] == ["seen", "level 1", "level 2"]


def test_samples_of_one_family_are_named_by_what_the_models_were_told() -> None:
    told = [("dit", "vq", "both"), ("dit", "vq", "full")]
    assert list(figures._families(generators(1, told))) == ["full", "both"]
    assert list(figures._families(generators(1, [*told, ("maskgit", "vq", "full")]))) == [
        "DiT on VQ, full", "DiT on VQ, both", "MaskGIT on VQ, full",
    ]  # fmt: skip
    assert list(figures._families(generators(1, [("maskgit", "vq", "both"), ("new", "vq")]))) == [
        "MaskGIT on VQ, both", "new on vq, full",
    ]  # fmt: skip
    with_loss = [("maskgit", "vq", "three"), ("maskgit", "vq"), ("maskgit", "vq", "one")]
    assert list(figures._families(generators(1, with_loss))) == [
        "without JEPA", "JEPA 0.6, layers one", "JEPA 0.6, layers three",
    ]  # fmt: skip
    assert list(figures._families(generators(1, [*with_loss[:2], ("dit", "vq")]))) == [
        "DiT on VQ, without JEPA", "MaskGIT on VQ, without JEPA", "MaskGIT on VQ, JEPA 0.6, layers three",
    ]  # fmt: skip


@pytest.mark.slow(3)
@pytest.mark.parametrize("name", ["samples", "reconstructions", "retrieval", "coverage", "conditioning"])
def test_figures_become_files_in_which_nothing_is_cut_off(name: str) -> None:
    tables = dict.fromkeys(("samples", "retrieval", "conditioning"), generators())
    table = tables.get(name, tokenizers()).query("encoding == 'vq'" if name == "coverage" else "seed == 0")
    figure: Figure = getattr(figures, f"draw_{name}")(table)
    assert image(figure).startswith(b"\x89PNG")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = figure.bbox
    for axes in figure.axes:
        for text in axes.texts:
            box = text.get_window_extent(canvas.get_renderer())
            assert whole.x0 <= box.x0
            assert box.x1 <= whole.x1
            assert whole.y0 <= box.y0
            assert box.y1 <= whole.y1
