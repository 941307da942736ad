"""Bands and ranks of the low-rank decoder's embeddings, on matrices whose bands are known."""

import math

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors

from analysis.measures import embeddings
from analysis.measures.embeddings import band_strengths, rank_one_share, token_matrices
from analysis.trained import Trained
from orchestrator.store import make_row
from trainables.lowrank import LowRank
from trainables.regularization import DECODER_TASK, TASK, DecoderTask, RegularizationTask, box_range
from trainables.spec import RunSpec

N = 16


def trained(model: LowRank, holdout: str = "corner", padding: int = 0) -> Trained:
    """As it is read from a store."""
    task = DecoderTask() if padding else RegularizationTask()
    options = {**task.defaults, "rank": 2} | ({"padding": padding, "ema": 0.0, "beta2": 0.999} if padding else {})
    spec = RunSpec(
        task=DECODER_TASK if padding else TASK, dataset="bumps", N=N, data_count=3, seed=0, decoder="low-rank", width=2,
        encoding="one-hot", holdout=holdout, options=tuple(options.items()), stop="budget",
    )  # fmt: skip
    row = make_row(spec, task_version="1", fixed_count=0, status="missed", reason="budget")
    return Trained.load(row, safetensors.save(model.state_dict()))


def banded(holdout: str, beyond: float, second: float = 0.0, padding: int = 0) -> Trained:
    """A decoder whose token t has a band at t, of strength 1 where it was seen and `beyond` in the box; tokens of odd t are
    negative. `second`: strength of another mode, at right angles to it."""
    model = LowRank(N, 2, padding=padding)
    low, high = box_range(holdout, N)
    inside = slice(low + padding, high + 1 + padding)
    size = N + 2 * padding
    along = torch.ones(size)
    along[inside] = beyond
    other = torch.zeros(size)
    other[padding], other[padding + 1] = along[padding + 1], -along[padding]
    across = torch.zeros(N, size)
    across[range(N), torch.arange(N) + padding] = 1
    with torch.no_grad():
        sign = 1 - 2 * (torch.arange(N) % 2)
        model.strengths[:] = torch.stack([sign * along.norm(), torch.full((N,), second)], dim=-1)
        for factor, (of_along, of_across) in enumerate(((model.rows, model.columns), (model.columns, model.rows))):
            of_along[factor] = torch.stack([along, other])
            of_across[factor] = torch.stack([across, across.roll(1, dims=0)], dim=1)
    return trained(model, holdout, padding)


def measured(decoder: Trained) -> dict[str, float | np.ndarray]:
    return {q.name: q.array if q.value is None else q.value for q in embeddings.measure(decoder)}


@pytest.mark.parametrize("holdout", ["corner", "center"])
@pytest.mark.parametrize("padding", [0, 3])
def test_a_band_is_as_strong_as_it_was_made(holdout: str, padding: int) -> None:
    low, high = box_range(holdout, N)
    for beyond in (1.0, 0.25, 0.0, -0.5):
        found = measured(banded(holdout, beyond, padding=padding))
        assert found["band_ood"] == pytest.approx(beyond, abs=1e-5)
        expected = np.ones(N)
        expected[low : high + 1] = beyond
        np.testing.assert_allclose(found["band"], expected, atol=1e-5)
        assert found["rank_one_ood"] == pytest.approx(1)
        assert found["rank_one_id"] == pytest.approx(1)


def test_a_second_mode_lowers_the_share_of_the_first() -> None:
    """The two modes are at right angles in both directions, so their strengths are the singular values."""
    for second in (0.5, 2.0):
        decoder = banded("corner", 1.0, second)
        first = math.sqrt(N)
        assert measured(decoder)["rank_one_ood"] == pytest.approx(first**2 / (first**2 + second**2), rel=1e-4)


def test_noise_has_no_band_beyond_what_was_seen() -> None:
    matrices = np.random.default_rng(0).standard_normal((400, N, N))
    seen = np.arange(N) < 8
    strengths = band_strengths(matrices, seen)
    np.testing.assert_allclose(strengths[:, seen].mean(axis=1), 1)
    assert abs(strengths[:, ~seen].mean()) < 0.1
    spread = np.square(np.linalg.svd(matrices, compute_uv=False))
    assert rank_one_share(matrices) == pytest.approx((spread[:, 0] / spread.sum(axis=1)).mean())


def test_the_matrices_are_those_that_the_decoder_draws_with() -> None:
    """Image rows before columns: the band of a token of x is a column."""
    of_x, of_y = token_matrices(banded("corner", 0.5).model)  # type: ignore[arg-type]
    assert np.abs(of_x[5]).sum(axis=0).argmax() == 5
    assert np.abs(of_y[5]).sum(axis=1).argmax() == 5
    assert (of_x[4] >= 0).all()
    assert (of_x[5] <= 0).all()


def test_what_is_not_finite_or_blank_has_no_numbers() -> None:
    for value in (math.nan, math.inf, 0.0):
        model = LowRank(N, 2)
        with torch.no_grad():
            model.strengths.fill_(value)
        found = measured(trained(model))
        assert [math.isnan(float(found[name])) for name in ("band_ood", "rank_one_ood", "rank_one_id")] == [True] * 3
