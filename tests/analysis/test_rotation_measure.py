"""What is measured of a rotation decoder, on decoders whose answers are known beforehand, and its figure."""

from __future__ import annotations

import dataclasses
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from analysis.figures.panels import MOST_LAYERS
from analysis.figures.rotation import draw_rotation
from analysis.measures.quantity import Quantity
from analysis.measures.rotation import TrainedRotation, best_mix, embed, measure
from trainables.rotation import RotationTask, image_of, rotated
from trainables.spec import RunSpec

TASK = RotationTask()
LOW, HIGH = 160.0, 200.0


class Fake(nn.Module):
    """Draws what a function of the angles (n,) in degrees says, (n, 1, 8, 8)."""

    def __init__(self, draw: Callable[[np.ndarray], Tensor]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, code: Tensor) -> Tensor:
        angles = torch.atan2(code[:, 1].double(), code[:, 0].double()).rad2deg() % 360
        return self.draw(angles.numpy())


def right(angles: np.ndarray) -> Tensor:
    return rotated(image_of("digit-4", 8), angles)


def mixing(angles: np.ndarray) -> Tensor:
    """Right outside the gap, and in it the two images at its edges, mixed by how far the angle is."""
    first, last = right(np.array([LOW, HIGH]))
    share = torch.from_numpy((angles - LOW) / (HIGH - LOW)).float()[:, None, None, None]
    inside = torch.from_numpy((angles > LOW) & (angles < HIGH))[:, None, None, None]
    return torch.where(inside, (1 - share) * first + share * last, right(angles))


def blank(angles: np.ndarray) -> Tensor:
    return torch.zeros(len(angles), 1, 8, 8)


def decoder(draw: Callable[[np.ndarray], Tensor], seed: int = 1) -> TrainedRotation:
    spec = RunSpec(task="trainables.rotation:RotationTask", dataset="rotation", N=8, data_count=888, seed=seed,
                   decoder="rotation-cnn", width=4, encoding="angle", holdout="arc",
                   options=tuple(sorted(TASK.defaults.items())))  # fmt: skip
    return TrainedRotation("key", spec, TASK, Fake(draw))


def measured(draw: Callable[[np.ndarray], Tensor]) -> dict[str, Any]:
    return {q.name: q.value if q.array is None else q.array for q in measure(decoder(draw))}


def test_a_decoder_that_is_right_is_nearer_to_the_truth() -> None:
    found = measured(right)
    assert found["id_mse"] == pytest.approx(0, abs=1e-9)
    assert found["gap_mse"] == pytest.approx(0, abs=1e-9)
    assert found["to_truth"] == pytest.approx(0, abs=1e-9)
    assert found["to_mix"] > 1e-3
    assert found["closer_to_mix"] == 0


def test_a_decoder_that_mixes_the_edges_is_nearer_to_the_mix() -> None:
    found = measured(mixing)
    assert found["id_mse"] == pytest.approx(0, abs=1e-9)
    assert found["gap_mse"] > 1e-3
    assert found["to_mix"] == pytest.approx(0, abs=1e-9)
    assert found["closer_to_mix"] == 1
    assert found["gap_mixes"] == pytest.approx(found["gap_outputs"], abs=1e-4)


def test_angles_and_errors_of_a_blank_image() -> None:
    found = measured(blank)
    assert found["angles"].tolist() == list(range(360))
    truth = right(np.arange(360.0))[:, 0].square().mean(dim=(1, 2)).numpy()
    assert found["mse_by_angle"] == pytest.approx(truth)
    assert found["gap_mse"] == pytest.approx(truth[160:201].mean())
    assert found["id_mse"] == pytest.approx(np.concatenate([truth[:160], truth[201:]]).mean())
    assert found["gap_angles"].tolist() == list(range(161, 200, 2))
    assert found["gap_truth"] == pytest.approx(right(np.arange(161.0, 200.0, 2.0))[:, 0].numpy())
    assert found["gap_outputs"].shape == found["gap_mixes"].shape == (20, 8, 8)
    assert "embedding" not in found, "of seed 0 alone"


@pytest.mark.filterwarnings("error")
def test_a_gap_without_a_whole_degree_has_the_error_of_the_angles_that_are_looked_at() -> None:
    made = decoder(blank)
    options = {**TASK.defaults, "gap_low": 160.2, "gap_high": 160.8}
    made.spec = dataclasses.replace(made.spec, options=tuple(sorted(options.items())))
    found = {q.name: q.value for q in measure(made) if q.array is None}
    truth = right(160.2 + (np.arange(20) + 0.5) * 0.6 / 20)[:, 0].square().mean(dim=(1, 2)).numpy()
    assert found["gap_mse"] == found["to_truth"] == pytest.approx(truth.mean())
    assert found["id_mse"] == pytest.approx(right(np.arange(360.0))[:, 0].square().mean().item())


def test_the_best_mix_lies_between_the_two_images() -> None:
    first, last = np.zeros((2, 2)), np.array([[2.0, 0.0], [0.0, 0.0]])
    images = np.array([[[0.5, 0], [0, 9]], [[-1, 0], [3, 0]], [[5, 1], [1, 1]]])
    mixes = best_mix(images, first, last)
    assert mixes[:, 0, 0].tolist() == [0.5, 0, 2]
    assert not mixes[:, 1].any()
    assert not mixes[:, 0, 1].any()


def test_a_trained_network_has_four_layers_for_the_embedding() -> None:
    torch.manual_seed(0)
    network = decoder(right)
    network.model = TASK.model(network.spec).eval()
    layers = network.layers(np.arange(0.0, 360.0, 4.0))
    assert [layer.shape for layer in layers] == [(90, 16), (90, 64), (90, 128), (90, 64)]
    assert layers[-1].reshape(90, 8, 8) == pytest.approx(network.outputs(np.arange(0.0, 360.0, 4.0)))
    inherited = network.model.forward
    network.model.forward = lambda codes: 2 * inherited(codes)
    with pytest.raises(ValueError, match=r"^the last of its layers\(\) is not what it draws"):
        network.layers(np.arange(0.0, 360.0, 4.0))


def rows(quantities: list[Quantity], seed: int) -> list[dict[str, Any]]:
    run = {"seed": seed, "N": 8, "options": dict(TASK.defaults), "measure": "rotation"}
    return [
        run | {"quantity": q.name, "layer": np.nan if q.layer is None else float(q.layer),
               "value": np.nan if q.value is None else q.value, "array": q.array}
        for q in quantities
    ]  # fmt: skip


@pytest.mark.slow(2)
def test_the_figure_shows_errors_of_all_seeds_images_in_the_gap_and_the_rings() -> None:
    circle = np.stack([np.cos(np.radians(np.arange(360))), np.sin(np.radians(np.arange(360)))], 1)
    rings = [Quantity("embedding", array=(layer + 1) * circle, layer=layer) for layer in range(4)]
    seen = [*measure(decoder(mixing)), Quantity("embedding_angles", array=np.arange(360.0)), *rings]
    table = pd.DataFrame(rows(seen, 0) + rows(list(measure(decoder(blank))), 1))
    figure = draw_rotation(table)
    figure.canvas.draw()
    error, *others = figure.axes
    assert error.get_yscale() == "log"
    shaded, band = error.patches[0], error.lines[0]
    assert (shaded.get_x(), shaded.get_width()) == (LOW, HIGH - LOW)
    both = np.stack([q.array for q in [*seen, *measure(decoder(blank))] if q.name == "mse_by_angle"])
    assert band.get_ydata() == pytest.approx(both.mean(axis=0))
    assert "2 seeds" in error.get_legend().get_texts()[1].get_text()
    images = [np.asarray(axes.images[0].get_array()) for axes in others[:30]]
    quantities = {q.name: q.array for q in seen}
    assert images[0] == pytest.approx(quantities["gap_outputs"][0])
    assert images[10] == pytest.approx(quantities["gap_mixes"][0])
    assert images[29] == pytest.approx(quantities["gap_truth"][19])
    assert [axes.get_title() for axes in (others[0], others[9])] == ["161°", "199°"]
    assert [others[first].get_ylabel() for first in (0, 10, 20)] == ["drawn", "best mix", "truth"]
    panels = others[30:34]
    assert [axes.get_title() for axes in panels] == ["layer 0", "layer 1", "layer 2", "image"]
    assert np.asarray(panels[2].collections[0].get_offsets()) == pytest.approx(3 * circle)
    assert panels[0].collections[0].get_cmap().name == "twilight"
    without = draw_rotation(table[table["quantity"] != "embedding"])
    assert len(without.axes) == 31


@pytest.mark.parametrize("layers", [MOST_LAYERS, MOST_LAYERS + 1, 1500])
def test_the_figure_shows_the_rings_of_only_so_many_layers(layers: int) -> None:
    rings = [Quantity("embedding", array=np.zeros((3, 2)), layer=layer) for layer in range(layers)]
    seen = [*measure(decoder(blank)), Quantity("embedding_angles", array=np.arange(3.0)), *rings]
    panels = draw_rotation(pd.DataFrame(rows(seen, 0))).axes[31:-1]
    assert len(panels) == MOST_LAYERS
    assert panels[-1].get_title() == ("image" if layers == MOST_LAYERS else "layer 39")


def test_an_embedding_has_the_published_settings_and_is_alike_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Umap:
        def __init__(self, **settings: Any) -> None:
            asked.append(settings)

        def fit_transform(self, activations: np.ndarray) -> np.ndarray:
            warnings.warn("outrun", stacklevel=1)
            return activations[:, :2]

    monkeypatch.setitem(sys.modules, "umap", types.SimpleNamespace(UMAP=Umap))
    with warnings.catch_warnings(record=True) as said:
        found = embed(np.eye(3))
    assert not said
    assert asked == [{"n_neighbors": 15, "min_dist": 0.1, "random_state": 42, "n_jobs": 1}]
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.slow
@pytest.mark.deep  # it is compiled each time, for a minute; what it is asked for is tested above
def test_umap_gives_the_same_ring_twice_and_says_nothing() -> None:
    angle = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1)
    first, second = embed(circle), embed(circle)
    assert first.shape == (120, 2)
    assert first.dtype == np.float32
    assert (first == second).all()
    step, across = np.linalg.norm(first - np.roll(first, 1, axis=0), axis=1), np.linalg.norm(first[:60] - first[60:], axis=1)
    assert step.mean() < 0.2 * across.mean()
