"""Kernels and their fits, against closed forms."""

import math

import numpy as np
import pytest
import torch

from analysis.measures.kernel import (
    GRAMS,
    additive_fit_r2,
    agreement,
    binary_kernel,
    cosine_gram,
    effective_rank,
    factorization_ratio,
    l2_gram,
    measure,
    overlap_gram,
    permuted_agreement,
    product_fit_r2,
    radial_fit_r2,
    schmidt,
)
from tests.analysis.fake_decoder import N, arrays, bump, cross, decoder, values

EVERYWHERE = np.ones(N * N, dtype=bool)


def grid(n: int) -> np.ndarray:
    y, x = np.divmod(np.arange(n * n), n)
    return np.stack([x, y], 1)


def test_gram_matrices_of_one_pixel_per_position() -> None:
    images = np.eye(9, dtype=np.float32).reshape(9, 3, 3)
    np.testing.assert_allclose(cosine_gram(5 * images), np.eye(9))
    np.testing.assert_allclose(l2_gram(images), -np.sqrt(2) * (1 - np.eye(9)))
    np.testing.assert_allclose(overlap_gram(images), np.eye(9) / 9)


def test_gram_matrices_of_two_images() -> None:
    images = np.array([[[1.0, 0.8], [0, 0.71]], [[0.69, 0.9], [0, 0]]])
    a, b = images.reshape(2, 4)
    assert cosine_gram(images)[0, 1] == pytest.approx(a @ b / np.sqrt(a @ a * (b @ b)))
    assert l2_gram(images)[0, 1] == pytest.approx(-np.linalg.norm(a - b))
    np.testing.assert_allclose(overlap_gram(images), [[3 / 4, 1 / 4], [1 / 4, 1 / 4]])


def test_an_image_of_zeros_is_similar_to_nothing() -> None:
    np.testing.assert_allclose(cosine_gram(np.array([[[0.0, 0]], [[1, 1]]])), [[0, 0], [0, 1]])


def test_the_binary_kernel_is_one_a_half_or_zero() -> None:
    expected = [[1, 0.5, 0.5, 0], [0.5, 1, 0, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1]]
    np.testing.assert_array_equal(binary_kernel(grid(2)), expected)


def test_agreement_is_the_correlation_off_the_diagonal_of_a_block() -> None:
    binary = binary_kernel(grid(N))
    noisy = 3 - 2 * binary + np.diag(np.arange(N * N))
    mask = np.arange(N * N) < 40
    noisy[~mask] = 7
    assert agreement(noisy, binary, mask) == pytest.approx(-1)
    assert abs(agreement(noisy, binary, EVERYWHERE)) < 0.99
    assert math.isnan(agreement(noisy, binary, ~mask))
    assert abs(permuted_agreement(binary, binary, EVERYWHERE)) < 0.02


def test_a_product_kernel_has_rank_one_and_is_fitted_by_a_product() -> None:
    rng = np.random.default_rng(1)
    of_x, of_y = rng.random((2, 5, 5))
    K = np.einsum("ac,bd->badc", of_x, of_y).reshape(25, 25)  # raster: index y N + x
    singular = schmidt(K, 5)
    assert factorization_ratio(singular) == pytest.approx(1)
    assert effective_rank(singular) == pytest.approx(1)
    assert product_fit_r2(K, singular) == pytest.approx(1)
    assert additive_fit_r2(K, 5) < 0.99
    mixed = K[np.ix_(*[rng.permutation(25)] * 2)]
    assert factorization_ratio(schmidt(mixed, 5)) < 0.99


def test_the_binary_kernel_is_a_sum_of_two_products_and_additive() -> None:
    """Its rearrangement (u v' + v u') / 2, with u = vec(identity) and v = vec(ones), has u.u = N, u.v = N, v.v = N^2."""
    n = 4
    K = binary_kernel(grid(n))
    singular = schmidt(K, n)
    share = (math.sqrt(n) + 1) ** 2 / (2 * (n + 1))
    np.testing.assert_allclose(singular[:3], [math.sqrt(share), math.sqrt(1 - share), 0], atol=1e-12)
    assert factorization_ratio(singular) == pytest.approx(share)
    assert effective_rank(singular) == pytest.approx(math.exp(-share * math.log(share) - (1 - share) * math.log(1 - share)))
    assert product_fit_r2(K, singular) == pytest.approx(5 / 6)
    assert additive_fit_r2(K, n) == pytest.approx(1)


def test_the_identity_is_a_product_and_two_thirds_additive_on_two_by_two() -> None:
    assert product_fit_r2(np.eye(4), schmidt(np.eye(4), 2)) == pytest.approx(1)
    assert additive_fit_r2(np.eye(4), 2) == pytest.approx(2 / 3)


def test_a_function_of_the_distance_is_radial_and_equality_in_x_half_so_on_two_by_two() -> None:
    points = grid(5)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert radial_fit_r2(np.cos(distance), 5) == pytest.approx(1)
    x = grid(2)[:, 0]
    assert radial_fit_r2((x[:, None] == x).astype(float), 2) == pytest.approx(0.5)


def test_crosses_have_the_binary_kernel() -> None:
    """Two crosses have a product of N per shared line and 2 for the two crossings: cosine (2N K + 2) / (2N + 2)."""
    found = values(measure(decoder(cross, "one-hot")))
    assert found["cosine_agreement_id"] == pytest.approx(1)
    assert found["cosine_agreement_ood"] == pytest.approx(1)
    assert found["cosine_additive_r2"] == pytest.approx(1)
    assert abs(found["cosine_permuted_ood"]) < 0.05
    assert found["overlap_agreement_ood"] > 0.9
    assert found["l2_agreement_ood"] > 0.9


def test_right_bumps_have_a_product_kernel() -> None:
    """The cosine of two products of profiles is the product of their cosines."""
    found = values(measure(decoder(bump)))
    assert found["cosine_product_r2"] == found["cosine_factorization_ratio"] == pytest.approx(1)
    assert found["cosine_effective_rank"] == pytest.approx(1)


def test_right_images_agree_with_the_binary_kernel_as_those_of_the_task_do() -> None:
    """For a decoder that draws the bumps themselves the two are the same number."""
    found = values(measure(decoder(bump)))
    for K in GRAMS:
        assert found[f"{K}_truth_ood"] == pytest.approx(found[f"{K}_agreement_ood"], nan_ok=True)
    assert 0.2 < found["cosine_truth_ood"] < 0.6


def test_right_images_are_as_wide_as_the_run_asks_for() -> None:
    narrow, wide = (values(measure(decoder(bump, sigma=sigma))) for sigma in (1.0, 2.0))
    assert wide["cosine_truth_ood"] == pytest.approx(wide["cosine_agreement_ood"])
    assert wide["cosine_truth_ood"] != pytest.approx(narrow["cosine_truth_ood"], rel=0.1)


def test_every_kernel_has_all_quantities_and_its_matrix_id_first_for_seed_0_alone() -> None:
    numbers = ["agreement_id", "agreement_ood", "permuted_ood", "truth_ood", "product_r2", "additive_r2", "radial_r2"]
    numbers += ["effective_rank", "factorization_ratio"]
    found = decoder(bump)
    assert list(values(measure(found))) == [f"{K}_{name}" for K in GRAMS for name in numbers]
    assert list(arrays(measure(decoder(bump, seed=1)))) == [f"{K}_schmidt" for K in GRAMS]
    kept = arrays(measure(found))
    inside = found.inside
    images = np.concatenate([found.images[~inside], found.images[inside]])
    for K, gram in GRAMS.items():
        assert kept[f"{K}_gram"].dtype == np.float32
        np.testing.assert_allclose(kept[f"{K}_gram"], gram(images), atol=1e-6)
        assert np.square(kept[f"{K}_schmidt"]).sum() == pytest.approx(1)


@pytest.mark.parametrize("height", [0.0, 0.8])
def test_a_decoder_that_draws_the_same_everywhere_has_no_kernel(height: float) -> None:
    found = decoder(lambda code: 0 * bump(code) + height * (1 + 1e-7 * code[:, :1, None]))
    numbers = values(measure(found))
    assert len(numbers) == 27
    assert all(math.isnan(value) for name, value in numbers.items() if not name.endswith("truth_ood"))


def test_one_image_that_is_only_brighter_or_darker_has_no_kernel_of_cosines() -> None:
    """But for rounding all cosines are 1."""
    found = values(measure(decoder(lambda code: code.sum(1)[:, None, None] * bump(torch.linspace(0.1, 0.9, 2 * N)[None]))))
    fitted = ("agreement_id", "agreement_ood", "permuted_ood", "additive_r2", "product_r2", "radial_r2")
    assert all(math.isnan(found[f"cosine_{name}"]) for name in fitted)
    assert found["cosine_effective_rank"] == pytest.approx(1)
    assert found["l2_radial_r2"] < 1


def test_a_decoder_too_dark_to_overlap_has_no_overlap_kernel_alone() -> None:
    found = values(measure(decoder(lambda code: 0.5 * bump(code))))
    missing = {name for name, value in found.items() if math.isnan(value)}
    assert missing == {name for name in found if name.startswith("overlap_")}
