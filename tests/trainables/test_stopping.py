"""The stopping rule on made curves and on a real run."""

from __future__ import annotations

import pytest
import torch

from trainables.bumps import BumpTask
from trainables.spec import RULE_VERSION, Counts, RunSpec
from trainables.task import Data, Split
from trainables.training import stopping
from trainables.training.checkpoint import check_saved
from trainables.training.loop import Training
from trainables.training.packs import Pack
from trainables.training.result import RunResult
from trainables.training.stopping import (
    LEARNED,
    LEAST_POINTS,
    STEADY_POINTS,
    STILL_LOSS,
    STILL_NORM,
    has_come_to_rest,
    has_converged,
    has_learned,
    target_variance,
)

FITTED = [1e-4] * 100


def test_the_numbers_of_the_rule_are_those_of_its_version() -> None:
    """With others a run is given up elsewhere, under the same key: then the version has to be raised."""
    numbers = {name: value for name, value in vars(stopping).items() if name.isupper()}
    assert RULE_VERSION == "1"
    assert numbers == {
        "EVAL_EVERY": 20, "LEAST_POINTS": 6, "FITTED": 0.1, "BEGUN": 0.5, "CAUTION": 2.0, "MARGIN": 0.005, "STEADY_POINTS": 16,
        "STEADY_MARGIN": 0.015, "STEADY_SAMPLES": 4, "STILL_LOSS": 0.05, "STILL_NORM": 0.06, "LEARNED": 0.4,
    }  # fmt: skip


def test_a_flat_fitted_curve_below_the_target_is_given_up_at_the_least_point() -> None:
    assert has_converged(FITTED[:LEAST_POINTS], [0.6] * LEAST_POINTS, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[: LEAST_POINTS - 1], [0.6] * (LEAST_POINTS - 1), 0.9, 2000, 1e-2)


def test_a_run_that_has_not_begun_to_learn_is_kept() -> None:
    assert not has_converged([1e-2] * 50, [0.2] * 50, 0.9, 2000, 1e-2)


def test_a_training_set_is_fitted_where_the_last_quarter_of_its_loss_is_under_a_tenth_of_the_variance() -> None:
    for share, given_up in ((0.099, True), (0.101, False)):
        assert has_converged([1.0] * 15 + [share] * 5, [0.6] * 20, 0.9, 2000, 1.0) is given_up
        assert has_converged([1.0] * 14 + [share] * 4, [0.6] * 18, 0.9, 2000, 1.0) is given_up


@pytest.mark.parametrize("reference", [-1.0, 0.0])
def test_without_a_positive_reference_no_run_is_given_up(reference: float) -> None:
    """A loss that begins at or below 0, as minus a reward, is under a tenth of where it began from the start."""
    for loss in ([-0.5] * 20, [reference] * 20, [-2.0] * 20):
        assert not has_converged(loss, [0.6] * 20, 0.9, 2000, reference)


def test_a_run_whose_accuracy_has_just_begun_to_rise_is_kept() -> None:
    """The curve of a task whose accuracy is zero until the training set is nearly fitted."""
    curve = [0.0] * 7 + [0.03, 0.17, 0.4, 0.68, 0.93]
    assert not any(has_converged(FITTED[:n], curve[:n], 0.9, 2000, 1e-2) for n in range(13))
    assert not has_converged(FITTED, [0.0] * 100, 0.9, 2000, 1e-2)


def test_an_accuracy_that_was_under_half_of_its_best_in_the_last_half_has_only_begun() -> None:
    for least, given_up in ((0.049, False), (0.051, True)):
        assert has_converged(FITTED[:20], [0.0] * 10 + [least] + [0.1] * 9, 0.9, 2000, 1e-2) is given_up


def given_up_at(accuracy: float) -> int | None:
    """The first point at which a fitted run that has always had this accuracy is given up."""
    return next((n for n in range(1, 101) if has_converged([1e-4] * n, [accuracy] * n, 0.9, 2000, 1e-2)), None)


def test_the_nearer_a_flat_curve_lies_to_its_target_the_later_it_is_given_up() -> None:
    assert [given_up_at(a) for a in (0.6, 0.87, 0.885, 0.89, 0.897, 0.9)] == [LEAST_POINTS, LEAST_POINTS, 13, 26, 66, None]


def test_a_curve_that_rises_or_wavers_is_kept_until_its_range_is_small() -> None:
    rising = [0.5] * 10 + [0.7] * 5 + [0.75] * 5
    assert has_converged(FITTED[:20], rising, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[:20], [0.5] * 10 + [0.65] * 5 + [0.75] * 5, 0.9, 2000, 1e-2)
    wavering = [0.75, 0.65] * 10
    assert not has_converged(FITTED[: STEADY_POINTS - 1], wavering[: STEADY_POINTS - 1], 0.9, 2000, 1e-2)
    assert has_converged(FITTED[:STEADY_POINTS], wavering[:STEADY_POINTS], 0.9, 2000, 1e-2)


def test_a_wavering_run_near_its_target_and_a_slowly_rising_one_are_kept() -> None:
    near, below = [0.88, 0.905] * 50, [0.865, 0.898] * 50
    assert not any(has_converged(FITTED[:n], near[:n], 0.9, 2000, 1e-2) for n in range(101))
    assert has_converged(FITTED[:40], below[:40], 0.9, 2000, 1e-2)
    rising = [0.7 + 0.004 * n for n in range(40)]
    assert not has_converged(FITTED[:40], rising, 0.9, 2000, 1e-2)


def test_what_came_before_the_last_half_does_not_count() -> None:
    assert has_converged(FITTED[:20], [0.95] * 10 + [0.7] * 10, 0.9, 2000, 1e-2)


def test_of_few_samples_one_may_lift_the_accuracy_so_that_the_margins_are_larger() -> None:
    """100 of 113 are right, and 102 would pass."""
    curve = [100 / 113] * STEADY_POINTS
    assert has_converged(FITTED[:STEADY_POINTS], curve, 0.9, 2000, 1e-2)
    assert not has_converged(FITTED[:STEADY_POINTS], curve, 0.9, 2000, 1e-2, samples=113)
    assert has_converged(FITTED[:STEADY_POINTS], [96 / 113] * STEADY_POINTS, 0.9, 2000, 1e-2, samples=113)


def test_four_of_few_samples_may_lift_the_mean_accuracy() -> None:
    found = [has_converged(FITTED[:STEADY_POINTS], [n / 113] * STEADY_POINTS, 0.9, 20_480, 1e-2, samples=113) for n in (97, 98)]
    assert found == [True, False]


def test_a_wavering_accuracy_has_risen_since_the_quarter_before_the_middle() -> None:
    for before, given_up in ((0.7, True), (0.6, False)):
        curve = [0.9] * 6 + [before] * 6 + [0.75, 0.65] * 6
        assert has_converged(FITTED[:24], curve, 0.9, 2000, 1e-2) is given_up


def test_a_loss_that_still_falls_keeps_a_run() -> None:
    still = [1.0] * 20
    assert has_come_to_rest([0.5] * 20, still, 1.0)
    assert has_come_to_rest([0.1 + 0.9 * STILL_LOSS] * 15 + [0.1] * 5, still, 1.0)
    assert not has_come_to_rest([0.1 + 1.1 * STILL_LOSS] * 15 + [0.1] * 5, still, 1.0)
    assert has_come_to_rest([0.1 + 1.1 * STILL_LOSS] * 15 + [0.1] * 5, still, 2.0), "it counts beside the targets' variance"
    assert has_come_to_rest([0.1] * 15 + [0.2] * 5, still, 1.0), "one that rises has nothing more to learn"


def test_weights_that_still_move_keep_a_run() -> None:
    """As under a strong weight decay, which ends what was known by heart."""
    loss = [0.0] * 20
    assert has_come_to_rest(loss, [5.0] * 10 + [1 + 0.9 * STILL_NORM] * 5 + [1.0] * 5, 1.0)
    assert not has_come_to_rest(loss, [5.0] * 10 + [1 + 1.1 * STILL_NORM] * 5 + [1.0] * 5, 1.0)
    assert not has_come_to_rest(loss, [1.0] * 15 + [1 + 1.2 * STILL_NORM] * 5, 1.0), "growing, too"
    assert not has_come_to_rest(loss, [1 + 1.03 * STILL_NORM] * 15 + [1.0] * 5, 1.0), "it is a share of the last norm"


def test_a_loss_that_fell_long_ago_and_weights_of_any_size_may_be_at_rest() -> None:
    assert has_come_to_rest([1.0] * 10 + [0.1] * 10, [1.0] * 20, 1.0)
    for share, rests in ((0.9, True), (1.1, False)):
        assert has_come_to_rest([0.0] * 20, [50 * (1 + share * STILL_NORM)] * 19 + [50.0], 1.0) is rests


def test_an_accuracy_near_or_below_chance_keeps_a_run() -> None:
    for chance in (0.0, 1 / 17, 0.5):
        edge = chance + LEARNED * (1 - chance)
        assert has_learned([0.0] * 15 + [edge + 1e-6] * 5, chance)
        assert not has_learned([0.0] * 15 + [edge - 1e-6] * 5, chance)
    assert not has_learned([0.026] * 20, 1 / 17)
    assert not has_learned([0.95] * 20, 0.95)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [500.0, 1e-4])
def test_the_variance_of_targets_of_16_bits_neither_overflows_nor_vanishes(dtype: torch.dtype, scale: float) -> None:
    targets = (scale * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))).to(dtype)
    assert target_variance(targets) == target_variance(targets.float()) == pytest.approx(scale**2, rel=0.2)


def test_target_variance_is_the_loss_of_the_best_constant() -> None:
    assert target_variance(torch.tensor([[1.0, 5.0], [3.0, 5.0]])) == 0.5
    assert target_variance(torch.tensor([[3.0, 1.0]])) == 5.0


@pytest.mark.parametrize("samples", [3, 100, 1000])
def test_the_variance_of_equal_targets_is_their_mean_square_whatever_is_rounded(samples: int) -> None:
    assert target_variance(torch.tensor([[0.1, 0.7]]).expand(samples, 2)) == pytest.approx(0.25)
    assert target_variance(torch.zeros(samples, 2)) == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_failing_run_is_given_up_early_with_the_same_verdict(seed: int) -> None:
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "N": 12, "data_count": 15, "decoder": "mlp", "width": 64}
    run = RunSpec(**fields, seed=seed, max_steps=1500, options=tuple(BumpTask.defaults.items()))
    training = Training(run, BumpTask())
    training.advance()
    result = training.result()
    assert (result.status, result.reason, result.passage_step) == ("missed", "converged", None)
    assert result.steps <= 300
    assert result.accuracy < 0.9


class Memory:
    """Sums of two numbers modulo N: known by heart at once, never understood within the budget."""

    version = "1"
    choices = {"dataset": ("sums",), "decoder": ("mlp",), "encoding": ("one-hot",), "holdout": ("random",)}
    defaults: dict[str, float] = {}

    def preset(self, dataset: str, decoder: str) -> dict[str, object]:
        return {"depth": 1, "width": 64, "holdout": "random"}

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(1, spec.N**2 - 1)

    def data(self, spec: RunSpec) -> Data:
        pairs = torch.cartesian_prod(torch.arange(spec.N), torch.arange(spec.N))
        pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(spec.seed))]
        sums = pairs.sum(dim=1) % spec.N
        codes = torch.nn.functional.one_hot(pairs, spec.N).float().flatten(1)
        split = Split(codes, torch.nn.functional.one_hot(sums, spec.N).float(), sums)
        return Data(Split(*(t[: spec.data_count] for t in split)), Split(*(t[spec.data_count :] for t in split)))

    def model(self, spec: RunSpec) -> torch.nn.Module:
        layers = (torch.nn.Linear(2 * spec.N, spec.width), torch.nn.ReLU(), torch.nn.Linear(spec.width, spec.N))
        return torch.nn.Sequential(*layers)

    def measure(self, spec: RunSpec, outputs: torch.Tensor, split: Split) -> dict[str, torch.Tensor]:
        return {"correct": outputs.argmax(dim=1) == split.truth}


@pytest.mark.slow(2)
def test_a_run_that_memorizes_and_stays_at_chance_is_trained_to_the_end() -> None:
    spec = RunSpec(
        task="tests:Memory", dataset="sums", N=11, data_count=60, seed=0, decoder="mlp", depth=1, width=64, lr=3e-3,
        encoding="one-hot", max_steps=600,
    )  # fmt: skip
    training = Training(spec, Memory())
    training.advance()
    result = training.result()
    assert result.id_mse < 0.01, "the training set is known"
    assert result.accuracy < 0.3, "and nothing else is"
    assert (result.status, result.reason, result.steps) == ("missed", "budget", 600)


def failing(seed: int = 0, N: int = 12, data_count: int = 15, **changes: object) -> RunSpec:
    fields = {"task": "trainables.bumps:BumpTask", "dataset": "bumps", "decoder": "mlp", "width": 64, "max_steps": 300}
    options = tuple(BumpTask.defaults.items())
    return RunSpec(**{**fields, "N": N, "data_count": data_count, "seed": seed, "options": options, **changes})


def alone(spec: RunSpec, state: dict[str, object] | None = None) -> tuple[Training, RunResult]:
    training = Training(spec, BumpTask())
    if state is not None:
        training.load_state_dict(state)
    training.advance()
    return training, training.result()


@pytest.mark.slow(2)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_that_was_given_up_goes_on_to_the_bits_of_one_that_never_was(seed: int) -> None:
    early, given_up = alone(failing(seed))
    assert given_up.reason == "converged"
    saved = {"training": early.state_to_the_end(), "seconds": 1.0}
    check_saved(saved, Training(failing(seed).to_the_end(), BumpTask()))  # a worker continues no other checkpoint
    anew, expected = alone(failing(seed).to_the_end())
    on, result = alone(failing(seed).to_the_end(), early.state_to_the_end())
    assert (expected.status, expected.reason, expected.steps) == ("missed", "budget", 300)
    assert result == expected
    assert expected.curve_loss[: len(given_up.curve_loss)] == given_up.curve_loss
    assert all(torch.equal(a, b) for a, b in zip(on.model.parameters(), anew.model.parameters(), strict=True))
    with pytest.raises(ValueError, match="belongs to another run"):
        Training(failing(seed), BumpTask()).load_state_dict(early.state_to_the_end())


@pytest.mark.slow(3)
def test_runs_of_a_pack_are_given_up_and_go_on_as_alone() -> None:
    together = [Training(spec, BumpTask()) for spec in (failing(0), failing(1), failing(2).to_the_end())]
    Pack(together).advance()
    assert [run.reason for run in together] == ["converged", "converged", "budget"]
    for run in together[:2]:
        single, _ = alone(run.spec)
        assert run.given_up_step == single.given_up_step
        assert run.chance == pytest.approx(single.chance)
        on = Training(run.spec.to_the_end(), BumpTask())
        on.load_state_dict(run.state_to_the_end())
        on.advance()
        _, expected = alone(run.spec.to_the_end())
        assert (on.result().status, on.result().steps) == (expected.status, expected.steps)


def test_a_target_run_ends_at_its_passage_as_an_early_one_does() -> None:
    early, first = alone(failing(data_count=100))
    full, second = alone(failing(data_count=100).to_the_end())
    assert first.status == "passed"
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(early.model.parameters(), full.model.parameters(), strict=True))
