"""The linear probe of a layer, against cases worked by hand and the primal solution."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from analysis.measures.probe import PENALTY, inner_products, measure, r2, split
from tests.analysis.untrained import untrained

N = 12
Y, X = (axis.ravel().astype(float) for axis in np.mgrid[:N, :N])
TARGETS = np.stack([X, Y], 1)


def of(activations: np.ndarray, fitted: np.ndarray, judged: np.ndarray) -> float:
    return r2(inner_products(activations), TARGETS, fitted, judged)


def test_the_positions_judged_are_a_fifth_and_others_than_those_fitted() -> None:
    fitted, judged = split(np.arange(100, 200))
    assert len(fitted) == 80
    assert sorted([*fitted, *judged]) == list(range(100, 200))
    np.testing.assert_array_equal(fitted, split(np.arange(100, 200))[0])
    assert judged.min() < 110  # drawn, not the last ones
    assert judged.max() > 190


def test_linear_activations_are_read_everywhere() -> None:
    mixing = np.random.default_rng(1).normal(size=(2, 300))
    inside = (X > 3) & (Y > 3)
    assert of(TARGETS @ mixing + 5, np.flatnonzero(~inside), np.flatnonzero(inside)) == pytest.approx(1, abs=1e-5)


def test_noise_is_not_read_though_units_outnumber_positions() -> None:
    noise = np.random.default_rng(2).normal(size=(N * N, 2000)).astype(np.float32)
    assert of(noise, *split(np.arange(N * N))) < 0.05
    assert of(noise, np.arange(N * N), np.arange(N * N)) > 0.999


def test_a_code_that_wraps_around_is_read_where_it_was_fitted_and_wrong_beyond() -> None:
    """x mod 6 fitted where x, y < 6 and judged where both are 6 to 11: off by 6, so R^2 = 1 - 36 / (35 / 12)."""
    wrapped = np.stack([X % 6, Y % 6], 1)
    fitted, beyond = np.flatnonzero((X < 6) & (Y < 6)), np.flatnonzero((X >= 6) & (Y >= 6))
    assert of(wrapped, *split(fitted)) == pytest.approx(1, abs=1e-5)
    assert of(wrapped, fitted, beyond) == pytest.approx(1 - 36 * 12 / 35, rel=1e-4)


def test_one_coordinate_alone_is_half_the_answer() -> None:
    fitted, judged = np.flatnonzero(X < 6), np.flatnonzero(X >= 6)
    assert of(X[:, None], fitted, judged) == pytest.approx(0.5, abs=1e-5)
    assert of(np.ones((N * N, 5)), np.arange(N * N), np.arange(N * N)) == pytest.approx(0)


def test_the_dual_solution_is_the_primal_one() -> None:
    activations = np.random.default_rng(3).normal(size=(N * N, 40)) + X[:, None] * 0.1 + 30
    fitted, judged = split(np.arange(N * N))
    size = np.square(activations[fitted] - activations[fitted].mean(axis=0)).sum(axis=1).mean()
    probe = Ridge(alpha=PENALTY * size).fit(activations[fitted], TARGETS[fitted])
    assert of(activations, fitted, judged) == pytest.approx(r2_score(TARGETS[judged], probe.predict(activations[judged])))


def test_the_measure_fits_outside_the_box_and_judges_inside() -> None:
    decoder = untrained("mlp", N)
    inside = decoder.inside
    right, noise = TARGETS.copy(), np.random.default_rng(4).normal(size=(N * N, 30))
    wrong_inside = np.where(inside[:, None], TARGETS.mean(axis=0) - TARGETS, TARGETS)
    decoder.__dict__["activations"] = [right, wrong_inside, noise]
    found = {(q.name, q.layer): q.value for q in measure(decoder)}
    assert {layer for _, layer in found} == {-1, 0, 1, 2}
    for name in ("r2_id", "r2_ood", "r2_random"):
        assert found[name, 0] == pytest.approx(1, abs=1e-4)
        assert found[name, 2] < 0.2
    assert found["r2_id", 1] == pytest.approx(1, abs=1e-4)
    low, high = decoder.box
    spread = np.arange(low, high + 1).var()
    off = np.square(2 * np.arange(low, high + 1) - TARGETS.mean(axis=0)[0]).mean()
    assert found["r2_ood", 1] == pytest.approx(1 - off / spread, rel=1e-3)
    assert found["r2_ood", 1] < found["r2_random", 1] < 1
    assert found["r2_id", -1] > 0.99  # the bump code
