"""The trunk and its heads: what they start as, what they minimise, how they are sampled, and that they can be packed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainables.test_objectives import distance, double
from trainables.generative.dit import TIMES, DiT, alpha_bars, ddim
from trainables.generative.givt import GIVT
from trainables.generative.mar import MAR
from trainables.generative.maskgit import MaskGIT
from trainables.generative.masking import masked_after, masked_again
from trainables.generative.shapes import ShapeSettings, bits_of, class_values
from trainables.generative.shapes import conditions as conditions_of
from trainables.generative.tokenizers import Tokenizer
from trainables.generative.trunk import EMBEDDINGS, Attention, Conditions, Last, Time, Trunk
from trainables.spec import Counts, RunSpec
from trainables.task import Data, Split
from trainables.training.loop import Training
from trainables.training.packs import Pack
from trainables.training.seeds import stream

TOKENS, CODES, CHANNELS = 6, 5, 3

OF_DIFFUSERS = {
    ("eps", 25, "linear"): [-10.621130542, -5.924232776, -1.510622067, 4.017971153, 9.210094613],
    ("eps", 50, "linear"): [-10.40189693, -5.781061977, -1.466764061, 3.982685325, 9.065809198],
    ("x0", 25, "zero-snr"): [-0.032344558, 0.077954599, 0.162453174, 0.225369815, 0.277136458],
    ("x0", 50, "zero-snr"): [0.031326088, 0.100500355, 0.154477439, 0.195658096, 0.230209565],
    ("x0", 25, "linear"): [-0.022105697, 0.081371539, 0.161457968, 0.221932146, 0.271896062],
    ("x0", 50, "linear"): [0.037705955, 0.102646196, 0.153829387, 0.193395037, 0.226714169],
}
"""What `DDIMScheduler` of diffusers 0.35.2 makes of the numbers -2, -1, 0, 1, 2 in float64, if a network predicts `rule`: 500
times, linear betas from 1e-4 to 0.02, timestep_spacing="trailing", clip_sample=False, set_alpha_to_one=True, eta=0; with
rescale_betas_zero_snr=True for `zero-snr`."""


def rule(x: Tensor, time: int) -> Tensor:
    return 0.3 * x + 0.1 * torch.cos(x) + 0.2 * time / 500


def conditions(n: int) -> Tensor:
    told = torch.rand(n, 5, generator=stream(0, "conditions"))
    told[:, 0] = torch.arange(n) % 2
    return told


def dit(**changes: object) -> DiT:
    fields: dict[str, object] = {"tokens": TOKENS, "channels": CHANNELS, "width": 8, "depth": 2, "heads": 2}
    return DiT(**fields | {"predicts": "x0", "ddim_steps": 5, "ema": 0.9} | changes)  # type: ignore[arg-type]


def maskgit(**changes: object) -> MaskGIT:
    fields: dict[str, object] = {"tokens": TOKENS, "codes": CODES, "width": 8, "depth": 2, "heads": 2, "rounds": 4}
    return MaskGIT(**fields | {"temperature": 3.0, "smoothing": 0.0, "ema": 0.9} | changes)  # type: ignore[arg-type]


def givt(**changes: object) -> GIVT:
    fields: dict[str, object] = {"tokens": TOKENS, "channels": CHANNELS, "width": 8, "depth": 2, "heads": 2, "rounds": 4}
    return GIVT(**fields | {"temperature": 3.0, "mixture": 4, "variance_scale": 0.9, "ema": 0.9} | changes)  # type: ignore[arg-type]


def mar(**changes: object) -> MAR:
    fields: dict[str, object] = {"tokens": TOKENS, "channels": CHANNELS, "width": 8, "depth": 2, "heads": 2, "rounds": 4}
    fields |= {"predicts": "x0", "ddim_steps": 5, "head_width": 6, "head_depth": 2, "head_draws": 3, "ema": 0.9}
    return MAR(**fields | changes)  # type: ignore[arg-type]


def test_an_untrained_trunk_is_the_identity_and_its_last_layer_zero() -> None:
    trunk, last, tokens = Trunk(TOKENS, 8, 3, 2), Last(8, 4), torch.randn(2, TOKENS, 8)
    layers = trunk.layers(tokens, torch.randn(2, 8))
    assert len(layers) == 4
    assert all(torch.equal(layer, tokens + trunk.positions) for layer in layers)
    assert torch.equal(last(tokens, torch.randn(2, 8)), torch.zeros(2, TOKENS, 4))


def test_attention_is_that_of_the_library() -> None:
    torch.manual_seed(0)
    own, x = Attention(12, 3), torch.randn(2, TOKENS, 12)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = own.qkv.weight.data, own.qkv.bias.data
    theirs.out_proj.load_state_dict(own.out.state_dict())
    assert torch.allclose(own(x), theirs(x, x, x)[0], atol=1e-6)


def test_a_block_shifts_scales_and_gates_by_the_condition() -> None:
    torch.manual_seed(0)
    block, x, condition = Trunk(TOKENS, 8, 1, 2).blocks[0], torch.randn(2, TOKENS, 8), torch.randn(2, 8)
    nn.init.normal_(block.modulation.weight)
    numbers = block.modulation(condition).view(2, 6, 1, 8)
    for part, first in ((block.attention, 0), (block.mlp, 3)):
        shift, scale, gate = numbers[:, first], numbers[:, first + 1], numbers[:, first + 2]
        normed = (x - x.mean(2, keepdim=True)) / (x.var(2, correction=0, keepdim=True) + 1e-6).sqrt()
        x = x + gate * part(normed * (1 + scale) + shift)
    first_x = torch.manual_seed(0) and (Trunk(TOKENS, 8, 1, 2), torch.randn(2, TOKENS, 8))[1]
    assert torch.allclose(block(first_x, condition), x, atol=1e-5)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_the_condition_is_a_sum_over_factors_or_a_function_of_it(embedding: str) -> None:
    torch.manual_seed(0)
    embed, told = Conditions(8, embedding), conditions(4)
    for weights in embed.parameters():
        nn.init.normal_(weights)
    other = told.clone()
    other[:, 1] = 0.5
    changed = told.clone()
    changed[:, 0], changed[:, 2:] = 1 - told[:, 0], -told[:, 2:]
    also = changed.clone()
    also[:, 1] = 0.5
    middle = told.clone()
    middle[:, 1] = (told[:, 1] + 0.5) / 2

    def is_sum() -> bool:
        return torch.allclose(embed(also) - embed(changed), embed(other) - embed(told), atol=1e-6)

    def is_linear() -> bool:
        return torch.allclose(embed(middle), (embed(told) + embed(other)) / 2, atol=1e-6)

    assert is_sum() == is_linear() == (embedding == "linear")
    times = Time(8)(torch.tensor([0, 7, 250, 499]))
    assert times.unique(dim=0).shape == (4, 8)
    with_time = embed(told, times)
    embed.last = nn.Identity()
    assert torch.allclose(embed(told) + times, embed(told, times))
    assert torch.equal(functional.silu(embed(told, times)), with_time) == (embedding != "linear")
    assert is_sum()
    assert is_linear() == (embedding != "mlp")


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_no_factor_begins_as_louder_than_another(embedding: str) -> None:
    """What changes if one factor of a small blue plus does, or the time: lengths that are alike, and small."""
    torch.manual_seed(0)
    told = conditions_of(ShapeSettings(), class_values(ShapeSettings(), bits_of(("111", "011", "101", "110"))))
    embed = Conditions(96, embedding)
    terms = embed(told)
    lengths = (terms[1:] - terms[0]).norm(dim=1)
    assert lengths.max() < 0.5
    if embedding != "mlp":  # two layers make size and colour less
        assert lengths.max() < 3 * lengths.min()
    assert Time(96)(torch.tensor([0, 499])).norm(dim=1).max() < 0.5


def test_noise_may_leave_nothing_at_the_last_time() -> None:
    bars, linear = alpha_bars("zero-snr"), alpha_bars()
    assert bars[-1] == 0
    assert bars[0] == linear[0]
    assert bars.diff().max() < 0
    assert linear[-1] > 0


def test_noise_follows_the_linear_schedule() -> None:
    bars = alpha_bars()
    assert bars[0].item() == pytest.approx(1 - 1e-4)
    assert (bars[-1] / bars[-2]).item() == pytest.approx(1 - 0.02)
    assert len(bars) == TIMES == 500
    assert bars[-1] < 0.01


@pytest.mark.parametrize(("predicts", "rounds", "noise"), list(OF_DIFFUSERS))
def test_ddim_is_that_of_diffusers(predicts: str, rounds: int, noise: str) -> None:
    found = ddim(rule, torch.linspace(-2, 2, 5, dtype=torch.float64), rounds, predicts, noise)
    assert found.tolist() == pytest.approx(OF_DIFFUSERS[predicts, rounds, noise], abs=1e-6)


@pytest.mark.parametrize("predicts", ["x0", "eps"])
def test_a_perfect_prediction_is_sampled_exactly(predicts: str) -> None:
    """Of one point, the network that knows it predicts it or the noise that hides it."""
    point, bars = torch.tensor([1.5, -2.0], dtype=torch.float64), alpha_bars()

    def knows(noisy: Tensor, time: int) -> Tensor:
        return point if predicts == "x0" else (noisy - bars[time].sqrt() * point) / (1 - bars[time]).sqrt()

    assert torch.allclose(ddim(knows, torch.randn(7, 2, dtype=torch.float64), 25, predicts), point.expand(7, 2))


@pytest.mark.parametrize(("predicts", "scale"), [("x0", 1.0), ("x0", 0.5), ("eps", 0.5)])
def test_the_loss_of_dit_is_the_squared_error_at_drawn_times(predicts: str, scale: float) -> None:
    model = dit(predicts=predicts, input_scale=scale)
    batch = Split(conditions(50), torch.randn(50, TOKENS, CHANNELS), torch.zeros(50))
    times, noise = model.draws(batch, stream(0, "draws"))
    assert times.shape == (50,)
    assert 0 <= times.min() < times.max() < TIMES
    scaled = scale * batch.targets
    wanted = noise if predicts == "eps" else scaled
    # untrained, it predicts zero
    assert torch.allclose(model.losses(batch, (times, noise), None), wanted.square().mean((1, 2)))
    nn.init.normal_(model.last.out.weight, generator=stream(0, "w"))
    noisy = torch.stack(
        [bar.sqrt() * x + (1 - bar).sqrt() * e for bar, x, e in zip(alpha_bars()[times], scaled, noise, strict=True)]
    )
    expected = (model(batch.inputs, noisy.float(), times) - wanted).square().mean((1, 2))
    assert torch.allclose(model.losses(batch, (times, noise), None), expected, rtol=1e-4)


def test_dit_learns_at_every_time() -> None:
    batch = Split(conditions(20_000), torch.zeros(20_000, TOKENS, CHANNELS), torch.zeros(20_000))
    times, _ = dit().draws(batch, stream(0, "draws"))
    assert times.unique().tolist() == list(range(TIMES))


def test_samples_have_the_scale_of_what_was_learned() -> None:
    model = dit(input_scale=0.25)
    point = torch.randn(TOKENS, CHANNELS, generator=stream(0, "point"))
    model.forward = lambda conditions, noisy, times: (0.25 * point).expand_as(noisy)  # type: ignore[method-assign]
    assert torch.allclose(model.sample(conditions(3), stream(0, "noise")), point.expand(3, -1, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("rounds", "tokens", "expected"),
    [
        (8, 36, [35, 33, 29, 25, 20, 13, 7, 0]),  # 36 cos(pi/2 r/8): 35.3, 33.3, 29.9, 25.5, 20, 13.8, 7.02
        (4, 16, [14, 11, 6, 0]),
        (3, 4, [3, 2, 0]),
        (6, 3, [2, 1, 1, 1, 1, 0]),  # one is left until the last round
        (1, 9, [0]),
    ],
)
def test_as_many_tokens_stay_masked_as_the_cosine_says(rounds: int, tokens: int, expected: list[int]) -> None:
    assert [masked_after(done, rounds, tokens) for done in range(1, rounds + 1)] == expected


def test_the_masks_of_a_step_follow_the_cosine_of_a_uniform_number() -> None:
    model = maskgit(tokens=40)
    batch = Split(torch.zeros(4000, 5), torch.zeros(4000, 40, dtype=torch.int64), torch.zeros(4000))
    (masked,) = model.draws(batch, stream(0, "draws"))
    share = masked.float().mean(1)
    assert masked.any(1).all()
    assert share.mean().item() == pytest.approx(2 / math.pi + 0.5 / 40, abs=0.02)  # rounded up
    assert (share <= math.cos(math.pi / 4)).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert masked.float().mean(0).tolist() == pytest.approx([share.mean().item()] * 40, abs=0.04)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_maskgit_is_the_cross_entropy_of_masked_tokens(smoothing: float) -> None:
    model = maskgit(smoothing=smoothing)
    nn.init.normal_(model.last.out.weight, generator=stream(0, "w"))
    batch = Split(conditions(20), torch.randint(CODES, (20, TOKENS), generator=stream(0, "codes")), torch.zeros(20))
    (masked,) = model.draws(batch, stream(0, "draws"))
    logits = model(batch.inputs, torch.where(masked, CODES, batch.targets))
    found = model.losses(batch, (masked,), None)
    for n in range(20):
        there = masked[n]
        expected = functional.cross_entropy(logits[n, there], batch.targets[n, there], label_smoothing=smoothing)
        assert found[n].item() == pytest.approx(expected.item(), rel=1e-5)


class Knowing(MaskGIT):
    """Knows the code of every token, and counts the masks that it is given."""

    def forward(self, conditions: Tensor, codes: Tensor) -> Tensor:
        self.seen = [*getattr(self, "seen", []), (codes == self.mask).sum(1).unique().tolist()]
        unmasked = codes != self.mask
        right = (torch.arange(self.tokens) + conditions[:, :1].long()) % self.mask
        assert torch.equal(codes[unmasked], right[unmasked])
        return 50.0 * functional.one_hot(right, self.mask)


def test_maskgit_is_sampled_in_rounds_of_fewer_and_fewer_masks() -> None:
    model = Knowing(36, CODES, 8, 1, 2, 8, 3.0, 0.0, 0.9)
    told = torch.zeros(2, 3, 5)
    told[1, :, 0] = 1
    found = model.sample(told, stream(0, "sample"))
    assert found.shape == (2, 3, 36)
    assert torch.equal(found[0, 0], torch.arange(36) % CODES)
    assert torch.equal(found[1, 2], (torch.arange(36) + 1) % CODES)
    assert model.seen == [[36], [35], [33], [29], [25], [20], [13], [7]]


class Halting(MaskGIT):
    """Is in two minds about its first token and certain of the second, and keeps what it is given."""

    def forward(self, conditions: Tensor, codes: Tensor) -> Tensor:
        self.given = [*getattr(self, "given", []), codes]
        logits = torch.full((len(codes), 2, 3), -100.0)
        logits[:, 0, :2] = logits[:, 1, 0] = 0
        return logits


def test_tokens_are_masked_again_by_certainty_with_noise_that_falls() -> None:
    """In the first of two rounds the temperature is halved. The difference of two Gumbel numbers is logistic: the token with a
    probability of 1/2 is masked again in a share 1 / (1 + exp(log(1/2) / (2 / 2))) = 2/3 of samples."""
    model = Halting(2, 3, 8, 1, 2, 2, 2.0, 0.0, 0.9)
    found = model.sample(torch.zeros(8000, 5), stream(0, "sample"))
    masked = model.given[1] == 3
    assert (masked.sum(1) == 1).all()
    assert masked[:, 0].float().mean().item() == pytest.approx(2 / 3, abs=0.02)
    assert torch.equal(found[~masked], model.given[1][~masked])


@pytest.mark.parametrize(("done", "tokens", "scale"), [(1, 2, 1.5), (3, 4, 0.5)])
def test_the_noise_of_the_choice_falls_with_the_rounds(done: int, tokens: int, scale: float) -> None:
    """Of two masked tokens with probabilities 1/2 and 1 one is masked again, the first in a share 1 / (1 + exp(log(1/2) / s)),
    where the scale s is 2 x 3/4 after one of four rounds and 2 x 1/4 after three."""
    masked = torch.arange(tokens).expand(8000, tokens) < 2
    certainty = torch.tensor([0.5, *[1.0] * (tokens - 1)]).log().expand(8000, tokens)
    again = masked_again(certainty, masked, done, 4, 2.0, stream(0, "sample"))
    assert (again.sum(1) == 1).all()
    assert not again[:, 2:].any()
    assert again[:, 0].float().mean().item() == pytest.approx(1 / (1 + 0.5 ** (1 / scale)), abs=0.02)


def test_what_is_in_sight_stays() -> None:
    model = maskgit(tokens=36, rounds=8, temperature=100.0)
    shown: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, arguments: shown.append(arguments[1]))
    shown.append(model.sample(torch.zeros(50, 5), stream(0, "sample")))
    for before, after in pairwise(shown):
        in_sight = before != CODES
        assert torch.equal(before[in_sight], after[in_sight])
    assert [(codes == CODES).sum().item() for codes in shown] == [50 * n for n in (36, 35, 33, 29, 25, 20, 13, 7, 0)]


def test_samples_of_maskgit_follow_its_probabilities() -> None:
    """One token, one round: the shares of the codes are those of the softmax."""
    model = maskgit(tokens=1, rounds=1)
    shares = torch.tensor([0.5, 0.25, 0.15, 0.1, 1e-9])
    model.last.out.bias.data = shares.log()
    found = model.sample(torch.zeros(8000, 5), stream(0, "sample"))
    assert (torch.bincount(found.flatten(), minlength=CODES) / 8000).tolist() == pytest.approx(shares.tolist(), abs=0.02)


@pytest.mark.parametrize("model", [dit(), maskgit(), givt(), mar()], ids=["dit", "maskgit", "givt", "mar"])
def test_a_sample_is_a_function_of_conditions_and_generator(model: nn.Module) -> None:
    told = conditions(6).view(2, 3, 5)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3, generator=stream(0, "w"))  # else it predicts zero, whatever it is told
    one, same, other = (model.sample(told, stream(seed, "sample")) for seed in (0, 0, 1))
    assert one.shape[:3] == (2, 3, TOKENS)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, model.sample(1 - told, stream(0, "sample")))


HEADS: dict[str, Callable[[], nn.Module]] = {
    "dit": dit,
    "maskgit": partial(maskgit, smoothing=0.1),
    "givt": givt,
    "mar": mar,
    "dit-dropout": partial(dit, conditions=partial(Conditions, dropout=0.4)),
    "maskgit-zero-batch": partial(maskgit, conditions=partial(Conditions, dropout=0.4, mode="zero_batch")),
}


class Learned:
    """A task of the made-up tokens of 40 samples, or of noise as pictures."""

    version = "1"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def counts(self, spec: RunSpec) -> Counts:
        return Counts(low=1, high=40)

    def data(self, spec: RunSpec) -> Data:
        codes = torch.randint(CODES, (50, TOKENS), generator=stream(spec.seed, "codes"))
        inputs, targets = conditions(50), codes
        if self.kind in HEADS and not self.kind.startswith("maskgit"):
            targets = torch.randn(50, TOKENS, CHANNELS, generator=stream(spec.seed, "latents"))
        elif not self.kind.startswith("maskgit"):
            inputs = torch.rand(50, 3, 8, 8, generator=stream(spec.seed, "pictures"))
        split = Split(inputs, targets, codes)
        return Data(split.take(slice(spec.data_count)), split.take(slice(40, None)))

    def model(self, spec: RunSpec) -> nn.Module:
        if self.kind in HEADS:
            return HEADS[self.kind]()
        made = Tokenizer(self.kind.split("-")[0], self.kind.split("-")[1], 8, 4, channels=3, width=4, codes=CODES)
        if made.codebook is not None:
            made.codebook.codes.copy_(torch.randn(CODES, 3))
        return made

    def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> Mapping[str, Tensor]:
        return {"correct": outputs.flatten(1).float().mean(1) > 0.5}


@pytest.mark.slow(5)
@pytest.mark.parametrize("kind", [*HEADS, "vq-linear", "vae-linear", "vq-conv"])
def test_a_pack_of_four_trains_as_each_does_alone(kind: str) -> None:
    specs = [
        RunSpec(
            task="tests:Learned",
            dataset="made",
            N=8,
            data_count=count,
            seed=seed,
            lr=lr,
            batch_size=8,
            max_steps=40,
            stop="budget",
        )
        for seed, count, lr in ((0, 40, 0.01), (1, 40, 0.02), (1, 20, 0.01), (2, 7, 0.01))
    ]
    together, alone = ([double(Training(spec, Learned(kind))) for spec in specs] for _ in range(2))
    Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        twin.advance()
        assert distance(run.model, twin.model) < 1e-9
        assert distance(run.network, twin.network) < 1e-9
        assert run.curve_loss == pytest.approx(twin.curve_loss, rel=1e-9)
        assert run.curve_loss[-1] < run.curve_loss[0]
