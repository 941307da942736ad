"""The heads that guess latents behind masks: what they are shown, what they minimise, and how they are sampled."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from tests.trainables.generative.test_generators import CHANNELS, TOKENS, conditions, dit, givt, mar
from trainables.generative.dit import TIMES, alpha_bars
from trainables.generative.givt import FIRST_SCALE, GIVT, LEAST_SCALE, Mixture
from trainables.generative.mar import Head
from trainables.generative.masking import MaskedTrunk, drawn_masks
from trainables.task import Split
from trainables.training.seeds import stream

HEADS = pytest.mark.parametrize("model", [givt(), mar(), mar(predicts="eps", input_scale=0.5)], ids=["givt", "mar", "eps"])


def latents(n: int = 20) -> Tensor:
    return torch.randn(n, TOKENS, CHANNELS, generator=stream(0, "latents"))


def some(model: MaskedTrunk, n: int = 20, std: float = 0.3) -> tuple[MaskedTrunk, Split, tuple[Tensor, ...]]:
    """The model with other weights than zeros, a batch, and what is drawn for it."""
    for p in model.parameters():
        nn.init.normal_(p, std=std, generator=stream(0, "w"))
    batch = Split(conditions(n), latents(n), torch.zeros(n))
    return model, batch, model.draws(batch, stream(0, "draws"))  # type: ignore[operator]


def mixture(n: int = 50, k: int = 4, d: int = CHANNELS) -> Mixture:
    generator = stream(0, "mixture")
    logits, means, scales = (torch.randn(n, TOKENS, *shape, generator=generator) for shape in ((k,), (k, d), (k, d)))
    return Mixture(logits, means, 0.1 + scales.square())


def density(found: Mixture) -> MixtureSameFamily:
    """The same of the library."""
    return MixtureSameFamily(Categorical(logits=found.logits), Independent(Normal(found.means, found.scales), 1))


@HEADS
def test_losses_are_of_masked_tokens_and_know_nothing_of_them_but_what_is_in_sight(model: MaskedTrunk) -> None:
    model, batch, draws = some(model)
    masked = draws[0]
    batch.targets.requires_grad_()
    told = model(batch.inputs, batch.targets, masked)
    outputs = told.means if isinstance(told, Mixture) else told
    (of_hidden,) = torch.autograd.grad(outputs.square().sum(), batch.targets)
    assert (of_hidden[masked] == 0).all(), "what is masked is not shown"
    assert (of_hidden[~masked].abs().sum(1) > 0).all()

    with torch.no_grad():
        losses = model.losses(batch, draws, None)  # type: ignore[operator]
        for place in range(TOKENS):
            other = batch.targets.clone()
            other[:, place] += torch.where(masked[:, place], 0.0, 5.0)[:, None]
            same_sight = Split(batch.inputs, torch.where(masked[:, :, None], other, batch.targets), batch.truth)
            assert torch.equal(model.losses(same_sight, draws, None), losses)  # type: ignore[operator]
            other[:, place] += torch.where(masked[:, place], 5.0, 0.0)[:, None]
            moved = Split(batch.inputs, torch.where(masked[:, :, None], other, batch.targets), batch.truth)
            changed = model.losses(moved, draws, None) != losses  # type: ignore[operator]
            assert torch.equal(changed, masked[:, place])


def test_a_mask_is_a_vector_that_is_learned_and_not_the_latents_zero() -> None:
    model, batch, _ = some(givt())
    nothing, none = torch.zeros(20, TOKENS, dtype=torch.bool), torch.zeros_like(batch.targets)
    there, hidden = model.seen(batch.inputs, none, nothing)[0], model.seen(batch.inputs, none, ~nothing)[0]
    assert not torch.allclose(there, hidden, atol=0.01)
    assert torch.equal(model.seen(batch.inputs, batch.targets, ~nothing)[0], hidden)


@HEADS
def test_masks_are_those_of_maskgit(model: MaskedTrunk) -> None:
    _, _, draws = some(model)
    assert torch.equal(draws[0], drawn_masks(20, TOKENS, stream(0, "draws"), torch.float32))


def test_the_log_density_is_that_of_the_library() -> None:
    found, x = mixture(), latents(50)
    assert torch.allclose(found.log_density(x), density(found).log_prob(x), rtol=1e-5)


def test_the_loss_of_givt_is_the_mean_negative_log_likelihood_of_masked_tokens() -> None:
    model, batch, (masked,) = some(givt(), std=0.5)
    logs = density(model(batch.inputs, batch.targets, masked)).log_prob(batch.targets)
    losses = model.losses(batch, (masked,), None)  # type: ignore[operator]
    for n in range(20):
        assert losses[n].item() == pytest.approx(-logs[n, masked[n]].mean().item(), rel=1e-5)


def test_scales_begin_at_one_and_never_fall_under_the_least() -> None:
    model = givt()
    hidden = torch.ones(2, TOKENS, dtype=torch.bool)
    first = model(conditions(2), latents(2), hidden)
    assert torch.allclose(first.scales, torch.tensor(FIRST_SCALE))
    assert torch.equal(first.logits, torch.zeros(2, TOKENS, 4))
    assert first.means.flatten(0, 1).std(1).min() > 0.01, "Gaussians that begin alike stay alike"
    for told in (-1e4, 1e4):
        nn.init.constant_(model.last.out.bias, told)
        scales = model(conditions(2), latents(2), hidden).scales
        assert torch.isfinite(scales).all()
        assert (scales >= LEAST_SCALE).all()
        assert ((scales == LEAST_SCALE).all()) == (told < 0)


@pytest.mark.slow(1)
def test_the_gaussians_of_a_mixture_learn_different_things() -> None:
    """Of tokens that are -1 or 1, with nothing in sight and nothing told, half of the weight ends at each."""
    torch.manual_seed(0)
    model = givt(mixture=2, channels=1, tokens=1, rounds=1, variance_scale=1.0)
    points = (2.0 * torch.randint(2, (256, 1, 1), generator=stream(0, "points")) - 1).float()
    batch, optimizer = Split(torch.zeros(256, 5), points, points), torch.optim.Adam(model.parameters(), 0.01)
    for step in range(200):
        optimizer.zero_grad()
        model.losses(batch, model.draws(batch, stream(0, step)), None).mean().backward()
        optimizer.step()
    drawn = model.sample(torch.zeros(500, 5), stream(0, "sample")).detach().flatten()
    assert (drawn.abs() - 1).abs().median() < 0.1
    assert (drawn > 0).float().mean().item() == pytest.approx((points > 0).float().mean().item(), abs=0.1)


class Two(GIVT):
    """Two Gaussians for a single token, 3 to 1; the least scale of all is 2."""

    def forward(self, conditions: Tensor, latents: Tensor, masked: Tensor) -> Mixture:
        n = len(conditions)
        logits = torch.tensor([0.75, 0.25]).log().expand(n, 1, 2)
        means = torch.tensor([[-100.0, 0.0, 0.0], [100.0, 0.0, 5.0]]).expand(n, 1, 2, 3)
        return Mixture(logits, means, torch.tensor([[2.0, 2.0, 4.0], [2.0, 8.0, 2.0]]).expand(n, 1, 2, 3))


def test_samples_of_givt_follow_its_mixtures_with_scaled_scales() -> None:
    found = Two(1, 3, 8, 1, 2, 1, 3.0, 2, 0.5, 0.9).sample(torch.zeros(8000, 5), stream(0, "sample"))[:, 0]
    first = found[:, 0] < 0
    assert first.float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert found[first].mean(0).tolist() == pytest.approx([-100, 0, 0], abs=0.15)
    assert found[~first].mean(0).tolist() == pytest.approx([100, 0, 5], abs=0.3)
    assert found[first].std(0).tolist() == pytest.approx([1, 1, 2], rel=0.05)
    assert found[~first].std(0).tolist() == pytest.approx([1, 4, 1], rel=0.05)


class Halting(GIVT):
    """Is less certain of its first token than of the second, and keeps what it is given."""

    def forward(self, conditions: Tensor, latents: Tensor, masked: Tensor) -> Mixture:
        self.given = [*getattr(self, "given", []), (latents, masked)]
        scales = torch.tensor([4.0, 1.0])[:, None, None].expand(len(latents), 2, 1, 1)
        return Mixture(torch.zeros(len(latents), 2, 1), torch.zeros(len(latents), 2, 1, 1), scales)


@pytest.mark.parametrize(("temperature", "share"), [(0.0, None), (1e4, 0.5)])
def test_the_least_dense_tokens_of_givt_are_masked_again(temperature: float, share: float | None) -> None:
    """Without noise it is the token whose draw z has the smaller -z^2 / 2 - log scale, of the scales drawn from."""
    model = Halting(2, 1, 8, 1, 2, 2, temperature, 1, 0.5, 0.9)
    found = model.sample(torch.zeros(4000, 5), stream(0, "sample"))
    (_, all_masked), (kept, masked) = model.given
    assert all_masked.all()
    assert (masked.sum(1) == 1).all()
    assert torch.equal(found[~masked], kept[~masked])
    first = masked[:, 0].float().mean().item()
    if share is None:
        z = torch.randn(2, 400_000, generator=stream(0, "z"))
        share = (-z[0].square() / 2 - math.log(4) < -z[1].square() / 2).float().mean().item()
        assert share > 0.8
    assert first == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("head", "rounds", "expected"), [
    (givt, 8, [36, 35, 33, 29, 25, 20, 13, 7]),
    (mar, 8, [36, 35, 33, 29, 25, 20, 13, 7]),
    (mar, 60, list(range(36, 0, -1))),
    (mar, 1, [36]),
])  # fmt: skip
def test_what_is_in_sight_stays(head: type, rounds: int, expected: list[int]) -> None:
    model, _, _ = some(head(tokens=36, rounds=rounds), n=1)
    shown: list[tuple[Tensor, Tensor]] = []
    model.register_forward_pre_hook(lambda _, arguments: shown.append(arguments[1:]))
    with torch.no_grad():
        last = model.sample(conditions(50), stream(0, "sample"))  # type: ignore[operator]
    assert [masked.sum(1).unique().tolist() for _, masked in shown] == [[count] for count in expected]
    shown.append((last, torch.zeros(50, 36, dtype=torch.bool)))
    for (before, masked), (after, later) in pairwise(shown):
        assert torch.equal(before[~masked], after[~masked])
        assert not (later & ~masked).any()
    assert (last != 0).all()


def test_mar_draws_tokens_in_an_order_of_chance() -> None:
    model, _, _ = some(mar(tokens=4, rounds=4), n=1)
    shown: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, arguments: shown.append(arguments[2]))
    with torch.no_grad():
        model.sample(torch.zeros(4000, 5), stream(0, "sample"))  # type: ignore[operator]
    assert shown[1].float().mean(0).tolist() == pytest.approx([0.75] * 4, abs=0.03)
    pairs = [tuple(row) for row in (~shown[2]).nonzero()[:, 1].view(-1, 2).tolist()]
    assert [pairs.count(pair) / 4000 for pair in sorted(set(pairs))] == pytest.approx([1 / 6] * 6, abs=0.03)


@pytest.mark.parametrize(
    ("predicts", "noise", "scale"), [("x0", "linear", 1.0), ("x0", "zero-snr", 0.5), ("eps", "linear", 0.5)]
)
def test_the_loss_of_mar_is_the_squared_error_at_drawn_times(predicts: str, noise: str, scale: float) -> None:
    model, batch, draws = some(mar(predicts=predicts, noise=noise, input_scale=scale))
    masked, times, added = draws
    assert times.shape == (20, 3, TOKENS)
    assert added.shape == (20, 3, TOKENS, CHANNELS)
    assert 0 <= times.min() < times.max() < TIMES
    bars, told = alpha_bars(noise).float(), model(batch.inputs, batch.targets, masked)
    found = model.losses(batch, draws, None)  # type: ignore[operator]
    for n in range(20):
        errors = []
        for token in masked[n].nonzero().flatten().tolist():
            clean = scale * batch.targets[n, token]
            for draw in range(3):
                time, extra = times[n, draw, token], added[n, draw, token]
                noisy = bars[time].sqrt() * clean + (1 - bars[time]).sqrt() * extra
                guess = model.head(noisy[None], told[n, token][None], time[None])[0]
                errors.append((guess - (extra if predicts == "eps" else clean)).square().mean())
        assert found[n].item() == pytest.approx(torch.stack(errors).mean().item(), rel=1e-4)


def test_every_draw_of_every_token_has_a_time_of_its_own() -> None:
    batch = Split(conditions(1000), latents(1000), torch.zeros(1000))
    _, times, _ = mar(head_draws=4).draws(batch, stream(0, "draws"))
    assert times.unique().tolist() == list(range(TIMES))
    for one, other in ((times[::2], times[1::2]), (times[:, 0], times[:, 1]), (times[..., 0], times[..., 1])):
        assert (one == other).float().mean() < 0.05


class Point(nn.Module):
    """Knows what a token is: it is told of it in the place of the trunk's words."""

    def forward(self, noisy: Tensor, told: Tensor, times: Tensor) -> Tensor:
        return told


@pytest.mark.parametrize(("noise", "scale"), [("linear", 1.0), ("zero-snr", 0.25)])
def test_a_head_that_knows_has_no_loss_and_is_sampled_exactly(noise: str, scale: float) -> None:
    points = latents(4)
    model = mar(noise=noise, input_scale=scale)
    model.head = Point()  # type: ignore[assignment]
    model.forward = lambda *_: scale * points  # type: ignore[method-assign]
    assert torch.allclose(model.sample(torch.zeros(4, 5), stream(0, "sample")), points, atol=1e-5)
    batch = Split(torch.zeros(4, 5), points, points)
    assert torch.equal(model.losses(batch, model.draws(batch, stream(0, "draws")), None), torch.zeros(4))


class AsTold(nn.Module):
    """A last layer that says what the trunk says."""

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(("predicts", "noise_of"), [("x0", "zero-snr"), ("eps", "linear")])
def test_mar_of_one_token_is_a_dit_of_one_token(predicts: str, noise_of: str) -> None:
    """With the same network for either, the loss and the samples are the same."""
    shape = {"tokens": 1, "channels": CHANNELS, "predicts": predicts, "input_scale": 0.5, "noise": noise_of}
    one, other = mar(**shape, head_draws=1, rounds=1), dit(**shape)
    head = Head(CHANNELS, 6, 1)
    for p in head.parameters():
        nn.init.normal_(p, std=0.3, generator=stream(0, "w"))
    told = torch.randn(9, 6, generator=stream(0, "told"))
    one.head = head
    one.forward = lambda *_: told[:, None]  # type: ignore[method-assign]
    other.layers = lambda conditions, noisy, times: ([head(noisy[:, 0], told, times)[:, None]], told)  # type: ignore[method-assign]
    other.last = AsTold()  # type: ignore[assignment]
    points = torch.randn(9, 1, CHANNELS, generator=stream(0, "points"))
    batch = Split(torch.zeros(9, 5), points, points)
    masked, times, noise = one.draws(batch, stream(0, "draws"))
    assert masked.all()
    expected = other.losses(batch, (times[:, 0, 0], noise[:, 0]), None)
    assert torch.allclose(one.losses(batch, (masked, times, noise), None), expected)
    generator = stream(0, "sample")
    with torch.no_grad():
        found = one.sample(torch.zeros(9, 5), generator)
        generator = stream(0, "sample")
        torch.rand(9, 1, generator=generator)  # the order
        assert torch.allclose(found, other.sample(torch.zeros(9, 5), generator), atol=1e-5)


def test_a_head_goes_by_the_sum_of_what_it_is_told_and_of_the_time() -> None:
    """What another time adds may as well be told."""
    head = Head(CHANNELS, 6, 2)
    for p in head.parameters():
        nn.init.normal_(p, std=0.3, generator=stream(0, "w"))
    noisy, told = torch.randn(5, CHANNELS, generator=stream(0, "noisy")), torch.randn(5, 6, generator=stream(0, "told"))
    times = torch.tensor([0, 3, 50, 200, 499])
    others = times.flip(0)
    found = head(noisy, told, times)
    assert torch.allclose(head(noisy, told + head.time(times) - head.time(others), others), found, atol=1e-5)
    assert not torch.allclose(head(noisy, told, others), found, atol=0.01)


def test_an_untrained_head_predicts_nothing_and_its_blocks_are_the_identity() -> None:
    head, told = Head(CHANNELS, 6, 2), torch.randn(5, 6)
    assert torch.equal(head(torch.randn(5, CHANNELS), told, torch.arange(5)), torch.zeros(5, CHANNELS))
    x = torch.randn(5, 6)
    assert all(torch.equal(block(x, told), x) for block in head.blocks)
