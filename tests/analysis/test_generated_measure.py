"""What a generator draws: generators that draw what is asked, something else, or nothing; distances against a library."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Generator, Tensor, nn

from analysis.measures import generated, tokens
from analysis.measures.generated import TrainedGenerator, frechet, measure, retrieved
from tests.analysis.planted import SETTINGS, Knowing, N, Pixels, Renderer, planted_generator
from trainables.generative.shapes import COMPOSITIONS, bits_of, pool

EACH = 24


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tokens, generated):
        monkeypatch.setattr(module, "EACH", EACH)


def found_of(generator: TrainedGenerator) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    quantities = list(measure(generator))
    return (
        {q.name: q.value for q in quantities if q.value is not None},
        {q.name: q.array for q in quantities if q.array is not None},
    )


@pytest.mark.slow(2)
def test_a_generator_that_draws_what_is_asked_is_right_in_everything() -> None:
    values, arrays = found_of(planted_generator(Renderer()))
    right = [f"{name}_{word}" for name in ("probe", "oracle", "both", "retrieved") for word in (*COMPOSITIONS, "level1")]
    assert {name: values[name] for name in right} == dict.fromkeys(right, 1.0)
    assert values["agree"] == 1
    assert arrays["retrieved"].tolist() == np.eye(8).tolist()
    assert arrays["both_factors"].tolist() == [[1.0] * 3] * 8
    assert max(values[f"frechet_{word}"] for word in COMPOSITIONS) < 0.01
    assert values["frechet_real"] < 0.01
    assert arrays["pictures"].shape == (8, tokens.SHOWN, 3, N, N)
    assert (arrays["pictures_probe"] == bits_of(COMPOSITIONS)[:, None].numpy()).all()
    middle = arrays["asked"][:, :, N // 2, N // 2]
    assert middle == pytest.approx(np.array([[0.8, 0.2, 0.2], [0.2, 0.2, 0.8]] * 4), abs=1e-6)
    assert not [name for name in values if name.startswith("unseen")]


@pytest.mark.slow(2)
def test_a_generator_that_draws_anything_is_right_by_chance() -> None:
    random = torch.Generator().manual_seed(0)
    anything = Renderer(lambda bits: torch.randint(2, bits.shape, generator=random))
    values, arrays = found_of(planted_generator(anything))
    drawn = 8 * EACH
    far = 4 * (1 / 8 * 7 / 8 / drawn) ** 0.5
    shares = [np.mean([values[f"{name}_{word}"] for word in COMPOSITIONS]) for name in ("both", "retrieved")]
    assert shares == pytest.approx([1 / 8, 1 / 8], abs=far)
    assert arrays["both_factors"].mean(axis=0) == pytest.approx([0.5] * 3, abs=4 * (1 / 4 / drawn) ** 0.5)
    assert arrays["retrieved"].sum(axis=1) == pytest.approx(np.ones(8))
    assert min(values[f"frechet_{word}"] for word in COMPOSITIONS) > 100 * values["frechet_real"]


@pytest.mark.slow(2)
def test_what_is_unseen_is_told_apart_from_what_is_seen() -> None:
    """A generator that draws red where blue was only seen alone, as one does that fails to compose."""

    def fails(bits: Tensor) -> Tensor:
        bits = bits.clone()
        bits[:, 2] &= ~bits[:, :2].any(1)
        return bits

    values, arrays = found_of(planted_generator(Renderer(fails)))
    told = {name: values[f"both_{name}"] for name in ("seen", "level1", "level2", "110", "011")}
    assert told == {"seen": 1, "level1": pytest.approx(1 / 3), "level2": 0, "110": 1, "011": 0}
    assert arrays["both_factors"][7].tolist() == [1, 1, 0]
    assert arrays["retrieved"][7].tolist() == [0, 0, 0, 0, 0, 0, 1, 0]
    assert values["frechet_level2"] > 100 * values["frechet_110"]
    assert values["frechet_level2"] == pytest.approx(values["frechet_111"]), "no other composition is of this level"
    assert values["frechet_level1"] > 100 * values["frechet_seen"]


class Broken(nn.Module):
    """A generator that has come apart."""

    def sample(self, conditions: Tensor, random: Generator) -> Tensor:
        return torch.full((len(conditions), 1, 3 * N * N), torch.nan)


@pytest.mark.slow(2)
def test_a_generator_that_gives_no_numbers_is_wrong_in_everything_and_measured() -> None:
    values, arrays = found_of(planted_generator(Broken(), Pixels(kind="vq")))
    assert values["both_seen"] == values["probe_least"] == 0
    assert np.isfinite(list(values.values())).all()
    assert (arrays["pictures"] == 0).all()
    assert values["unseen_codes_111"] == 0


def test_what_a_generator_has_seen_are_the_pictures_that_it_has_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fresh picture has the code of these, so all are unseen."""
    monkeypatch.setattr(generated, "EACH", 4)
    made = planted_generator(Renderer(), Pixels(kind="vq"))
    made = dataclasses.replace(made, spec=dataclasses.replace(made.spec, seed=7, data_count=24))
    knowing = Knowing(pool(SETTINGS, N, made.seen, 24, 7).images)
    values, _ = found_of(dataclasses.replace(made, parents={**made.parents, "tokenizer": knowing}))
    assert [values[f"unseen_codes_{word}"] for word in COMPOSITIONS] == [1.0] * 8


def test_samples_are_the_same_each_time() -> None:
    once, again = (planted_generator(Renderer()).sampled(2) for _ in range(2))
    assert once.shape == (8, 2, 3, N, N)
    assert torch.equal(once, again)
    assert not torch.equal(once[0, 0], once[0, 1])


def test_the_frechet_distance_is_that_of_the_definition() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(300, 6)) @ random.normal(size=(6, 6)), random.normal(size=(200, 6)) + 1
    A, B = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    means = np.square(a.mean(axis=0) - b.mean(axis=0)).sum()
    assert frechet(a, b) == pytest.approx(means + np.trace(A + B - 2 * sqrtm(A @ B).real), rel=1e-9)
    assert frechet(a, b) == pytest.approx(frechet(b, a), rel=1e-9)
    assert frechet(a, a + np.arange(6)) == pytest.approx(55, rel=1e-9)
    assert frechet(a, 3 * a - 2 * a.mean(axis=0)) == pytest.approx(4 * np.trace(A), rel=1e-9)


def test_features_that_are_always_nought_change_no_distance() -> None:
    random = np.random.default_rng(1)
    a, b = random.normal(size=(50, 3)), 2 * random.normal(size=(50, 3))
    wider = [np.concatenate([features, np.zeros((50, 4))], axis=1) for features in (a, b)]
    assert frechet(*wider) == pytest.approx(frechet(a, b), rel=1e-9)
    assert frechet(np.zeros((5, 2)), np.zeros((5, 2))) == 0


def test_the_nearest_real_picture_decides_which_composition_is_retrieved() -> None:
    real = np.array([[[0.0], [1.0]], [[10.0], [11.0]], [[20.0], [21.0]]])
    drawn = np.array([[[0.4], [6.0], [-3.0], [30.0]], [[10.0], [9.0], [12.0], [10.6]], [[1.0], [9.0], [0.0], [20.4]]])
    assert retrieved(drawn, real).tolist() == [[0.5, 0.25, 0.25], [0, 1, 0], [0.5, 0.25, 0.25]]
