"""Circuits: heads and units whose weights are written by hand are found; what is measured is that of the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from analysis.measures import circuits
from analysis.measures.circuits import (
    COMPARED,
    PAIRS,
    circuit,
    fixed,
    head_changes,
    jaccard,
    measure,
    objective_of,
    polysemanticity,
    rank,
    real_pictures,
    spread,
    teacher_says,
    unit_scores,
    untrained,
)
from analysis.measures.generated import TrainedGenerator
from tests.analysis.planted import Oracle
from trainables.generative.chain import tokenizer_of
from trainables.generative.dit import TIMES
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.tiers import generator
from trainables.generative.tokenizer_task import TokenizerTask
from trainables.needs import given
from trainables.spec import Scalar
from trainables.training.loop import Training
from trainables.training.precision import quiet_cpu
from trainables.training.seeds import stream

WIDTH, HEADS, DEPTH, EACH = 16, 4, 2, 16
SMALL: dict[str, Scalar] = {"width": WIDTH, "heads": HEADS, "depth": DEPTH}
BOTH = pytest.mark.parametrize("decoder", ["maskgit", "dit"])
ON, OFF = 10.0, -100.0
"""Weight with which a planted unit reads factors, and bias of units that are never active."""


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet_cpu()
    monkeypatch.setattr(circuits, "EACH", EACH)


def generator_of(decoder: str, **settings: Scalar) -> TrainedGenerator:
    """An untrained generator of the smoke tier, whose weights are normal with a standard deviation of 0.3."""
    spec = generator("smoke", settings={"decoder": decoder, **SMALL, **settings})
    task = GeneratorTask()
    torch.manual_seed(0)
    tokenizer = TokenizerTask().model(tokenizer_of(spec))
    TokenizerTask().start_model(tokenizer_of(spec), tokenizer)
    assert tokenizer.codebook is not None
    tokenizer.codebook.codes.copy_(torch.randn(tokenizer.codebook.codes.shape))
    model = task.model(spec)
    for i, p in enumerate(model.parameters()):
        nn.init.normal_(p, std=0.3, generator=stream(0, "w", i))
    networks = {"probe": Oracle(), "tokenizer": tokenizer.eval()}
    return TrainedGenerator("planted", spec, task, model.eval().requires_grad_(False), networks)


def planted(decoder: str) -> TrainedGenerator:
    """A generator in which the condition holds the factors, as -1 or 1, in its first three channels, and every block adds
    them to what its attention and its MLP read. A picture is in channels 12 to 15 alone, in pairs of opposite numbers, so that
    what is planted does not read it. Attention is even.

    Block 1: three heads that each read one factor, and one that reads all. Block 2: a head that reads nothing, one that reads
    size and colour alike, and two that read all.
    """
    made = generator_of(decoder)
    model = made.model
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding) and module is not model.last.out:
            module.weight.zero_()
        if isinstance(module, nn.Linear):
            module.bias.zero_()
    model.trunk.positions.zero_()
    told = model.conditions
    told.shape.weight[:, 0] = torch.tensor([-1.0, 1.0])
    told.size.weight[1, 0] = -1.0  # it is told 1 for a large figure, whose bit is 0
    told.colour.weight[2] = torch.tensor([-1.0, 0.0, 1.0]) / 1.2
    reads = {
        0: [[0], [1], [2], [0, 1, 2]],
        1: [[], [1, 2], [0, 1, 2], [0, 1, 2]],
    }
    opposite = torch.randn(1000, generator=stream(0, "opposite"))
    into = model.into.weight if decoder == "maskgit" else model.into.weight.T
    for i, row in enumerate(into):
        row[14:] = torch.tensor([1.0, -1.0]) * opposite[i]
    for at, block in enumerate(model.trunk.blocks):
        for factor in range(3):
            for first in (0, 3 * WIDTH):  # the shifts before the attention and before the MLP
                block.modulation.weight[first + factor, factor] = 1
        block.modulation.bias[5 * WIDTH :] = 1  # the gate of the MLP
        for head, factors in enumerate(reads[at]):
            for i, factor in enumerate(factors):
                block.attention.qkv.weight[2 * WIDTH + head * (WIDTH // HEADS) + i, factor] = 1
        block.mlp[0].bias.fill_(OFF)
        row = torch.randn(4 * WIDTH, generator=stream(0, "out", at))
        block.mlp[2].weight[12], block.mlp[2].weight[13] = row, -row
    return made


UNITS = {
    "0**": [(0, 3), (0, 7), (1, 0)],
    "1**": [(0, 4), (1, 1), (1, 2)],
    "**0": [(0, 20), (1, 21)],
    "**1": [(0, 22), (1, 23)],
    **{word: [(i % 2, 30 + i)] for i, word in enumerate(COMPARED)},
}
"""Units, as block and place, that are active where a composition matches."""


def plant_units(model: nn.Module) -> None:
    for word, units in UNITS.items():
        known = [(factor, 2 * int(bit) - 1) for factor, bit in enumerate(word) if bit != "*"]
        for block, unit in units:
            reads = model.trunk.blocks[block].mlp[0]
            reads.bias[unit] = ON * (0.5 - len(known))
            for factor, sign in known:
                reads.weight[unit, factor] = ON * sign


def units_of(word: str) -> set[tuple[int, int]]:
    return {unit for of, units in UNITS.items() if all(a in (b, "*") for a, b in zip(of, word, strict=True)) for unit in units}


def found_of(made: TrainedGenerator) -> dict[str, dict[int | None, float | np.ndarray]]:
    found: dict[str, dict[int | None, float | np.ndarray]] = {}
    for q in measure(made):
        found.setdefault(q.name, {})[q.layer] = q.value if q.array is None else q.array
    return found


@pytest.mark.slow(1)
@BOTH
def test_planted_heads_react_to_the_factors_that_they_read(decoder: str) -> None:
    found = found_of(planted(decoder))
    assert list(found["overlap"]) == [1, 2]
    one, root = 2.0, 2 / math.sqrt(3)
    assert found["changes"][1] == pytest.approx(np.array([[one, 0, 0], [0, one, 0], [0, 0, one], [root] * 3]), abs=1e-5)
    assert found["polysemanticity"][1] == pytest.approx(np.array([0, 0, 0, 1]), abs=1e-5)
    assert found["overlap"][1] == pytest.approx(0.25, abs=1e-5)
    half = 2 / math.sqrt(2)
    assert found["changes"][2] == pytest.approx(np.array([[0] * 3, [0, half, half], [root] * 3, [root] * 3]), abs=1e-5)
    by_hand = np.array([[0, half, half], [root] * 3, [root] * 3]) / (np.array([2 * root, half + 2 * root, half + 2 * root]) / 4)
    expected = [((sum(e) ** 2 / sum(e**2)) - 1) / 2 for e in by_hand]
    heads = found["polysemanticity"][2]
    assert np.isnan(heads[0]), "a head that reacts to nothing has none"
    assert heads[1:] == pytest.approx(expected, abs=1e-5)
    assert heads[1] == pytest.approx(0.5, abs=1e-5), "two of three"
    assert found["overlap"][2] == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.slow(1)
@BOTH
def test_planted_units_are_the_circuits_of_their_compositions(decoder: str) -> None:
    made = planted(decoder)
    plant_units(made.model)
    inputs = [fixed(made.model, batch) for batch in real_pictures(made, "circuits")]
    for word in COMPARED:
        chosen = circuit(unit_scores(made.model, inputs[int(word, 2)]))
        assert {tuple(unit) for unit in np.argwhere(chosen).tolist()} == units_of(word)
    found = found_of(made)
    for a, b in PAIRS:
        shared, either = units_of(a) & units_of(b), units_of(a) | units_of(b)
        assert found[f"jaccard_{a}_{b}"][None] == len(shared) / len(either)
    assert found["jaccard_000_001"][None] == 3 / 9, "one shape"
    assert found["jaccard_000_100"][None] == 2 / 10, "one colour"
    assert found["jaccard_one_apart"][None] == pytest.approx((3 / 9 + 2 / 10) / 2)
    assert found["jaccard_two_apart"][None] == 0
    assert found["jaccard_same"][None] == 1


def test_what_a_composition_shares_with_itself_is_found_on_other_pictures() -> None:
    made = generator_of("maskgit")
    both = [real_pictures(made, name) for name in ("circuits", "other circuits")]
    found = []
    for word in COMPARED:
        a, b = (circuit(unit_scores(made.model, fixed(made.model, batches[int(word, 2)]))) for batches in both)
        found.append(jaccard(a, b))
    assert found_of(made)["jaccard_same"][None] == np.mean(found) < 1


def test_pairs_of_compositions_are_those_of_one_size() -> None:
    assert circuits.APART == {
        "one_apart": [("000", "001"), ("000", "100"), ("001", "101"), ("100", "101")],
        "two_apart": [("000", "101"), ("001", "100")],
    }


@BOTH
def test_changes_of_heads_are_those_of_the_outputs_at_masked_tokens(decoder: str) -> None:
    """By hand, with one composition and the other class of each factor; of a diffusion, at all tokens."""
    made = generator_of(decoder)
    model, at = made.model, 5  # 101: a large blue plus
    batches = real_pictures(made, "circuits")
    one = fixed(model, batches[at])
    tokens = 16
    if decoder == "maskgit":
        assert one.where.sum(1).tolist() == [8] * EACH
        into = model.into(torch.where(one.draws[0], 16, one.batch.targets))
    else:
        assert one.where.all()
        assert (one.draws[0] == TIMES // 2).all()
        signal = model.alpha_bar[TIMES // 2]
        into = model.into(signal.sqrt() * 0.5 * one.batch.targets + (1 - signal).sqrt() * one.draws[1])

    def heads(told: Tensor) -> list[Tensor]:
        condition = model.conditions(told) if decoder == "maskgit" else model.conditions(told, model.time(one.draws[0]))
        x, found = into + model.trunk.positions, []
        for block in model.trunk.blocks:
            shift, scale = block.modulation(condition)[:, None].chunk(6, 2)[:2]
            read = functional.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale) + shift
            q, k, v = (part.view(EACH, tokens, HEADS, -1) for part in block.attention.qkv(read).chunk(3, 2))
            weights = (torch.einsum("nthd,nshd->nhts", q, k) / math.sqrt(WIDTH / HEADS)).softmax(3)
            found.append(torch.einsum("nhts,nshd->nthd", weights, v))
            x = block(x, condition)
        return found

    others = [batches[at ^ (4 >> factor)].inputs for factor in range(3)]
    before, after = heads(one.batch.inputs), [heads(told) for told in others]
    found = head_changes(made.settings, model, [one])
    for block in range(DEPTH):
        for factor in range(3):
            for head in range(HEADS):
                change = (after[factor][block] - before[block])[:, :, head][one.where].norm()
                expected = change / before[block][:, :, head][one.where].norm()
                assert found[block, head, factor] == pytest.approx(expected.item(), rel=1e-3)
    assert found.min() > 0.01


def test_changes_that_are_rounding_are_none() -> None:
    made = generator_of("maskgit")
    made.model.conditions.colour.weight.mul_(1e-6)
    found = head_changes(made.settings, made.model, [fixed(made.model, batch) for batch in real_pictures(made, "circuits")])
    assert (found[:, :, 2] == 0).all(), "else they would weigh as much as any, over their mean"
    assert found[:, :, :2].min() > 0.01


@pytest.mark.slow(1)
@pytest.mark.parametrize("decoder", ["maskgit", "dit", "givt", "mar"])
def test_scores_of_units_are_activations_times_gradients_of_the_loss(decoder: str) -> None:
    """Of each picture and token: what the picture's loss does as an activation grows by a share of itself."""
    made = generator_of(decoder)
    model = made.model.double()
    one = fixed(model, real_pictures(made, "circuits")[0])
    one = one._replace(
        batch=type(one.batch)(*(t.double() if t.is_floating_point() else t for t in one.batch)),
        draws=tuple(t.double() if t.is_floating_point() else t for t in one.draws),
    )
    found, step = unit_scores(model, one), 1e-5
    assert found.shape == (DEPTH, 4 * WIDTH)
    for block, unit in ((0, 5), (1, 40)):
        moved = []
        for token in range(16):
            losses = []
            for sign in (1, -1):

                def grow(_: nn.Module, inputs: tuple[Tensor], token: int = token, sign: int = sign, unit: int = unit) -> Tensor:
                    factor = torch.ones_like(inputs[0])
                    factor[:, token, unit] += sign * step
                    return inputs[0] * factor

                hook = model.trunk.blocks[block].mlp[2].register_forward_pre_hook(grow)
                losses.append(model.losses(one.batch, one.draws, None))
                hook.remove()
            moved.append((losses[0] - losses[1]) / (2 * step))
        assert found[block, unit] == pytest.approx(torch.stack(moved).abs().mean().item(), rel=1e-4)


def test_polysemanticity_is_between_none_and_all() -> None:
    assert polysemanticity(np.array([[3.0, 0, 0], [0, 0, 0.1], [0, 5, 0]])) == pytest.approx([0, 0, 0])
    assert polysemanticity(np.array([[1.0, 2, 3], [2, 4, 6]])) == pytest.approx([1, 1]), "relative to the other heads"
    assert polysemanticity(np.array([[1.0, 1, 0], [1, 1, 0]])) == pytest.approx([0.5, 0.5])
    found = polysemanticity(np.array([[1.0, 1, 1], [0, 0, 0]]))
    assert found[0] == 1
    assert np.isnan(found[1])
    assert np.isnan(polysemanticity(np.zeros((2, 3)))).all()
    assert np.isnan(polysemanticity(np.array([[3.0, 0, 0]]))).all(), "one head is its own mean"


def test_a_circuit_is_the_tenth_with_the_highest_scores() -> None:
    scores = np.random.default_rng(0).permutation(200).reshape(2, 100).astype(float)
    assert np.array_equal(circuit(scores), scores >= 180)
    assert circuit(np.eye(20)[:10]).sum() == 10, "none with a score of 0"
    assert jaccard(scores > 150, scores > 100) == pytest.approx(49 / 99)
    assert math.isnan(jaccard(scores < 0, scores < 0))


def test_circuits_of_random_scores_share_what_chance_gives() -> None:
    """Of two independent tenths a tenth is shared: 0.01 / 0.19. Of a thousand units that is 10 with a deviation of 2.7, so a
    mean over 100 pairs is off by less than 0.007 in all but one of thousands."""
    random = np.random.default_rng(0)
    found = [jaccard(*(circuit(random.random((2, 500))) for _ in range(2))) for _ in range(100)]
    assert np.mean(found) == pytest.approx(0.1 / 1.9, abs=0.007)


@pytest.mark.parametrize("decoder", ["maskgit", "dit", "givt", "mar"])
def test_the_control_is_the_first_network_of_the_run_with_small_numbers_for_zeros(decoder: str) -> None:
    made = generator_of(decoder)
    control = untrained(made)
    first = Training(made.spec, given(made.task, made.parents)).model
    changed = {name for name, p in first.named_parameters() if not torch.equal(p, control.get_parameter(name))}
    zero = {name for name, p in first.named_parameters() if not p.any() and name.endswith("weight")}
    assert changed == zero
    assert {f"trunk.blocks.{i}.modulation.weight" for i in range(DEPTH)} < zero
    assert all(0.01 < control.get_parameter(name).std() < 0.03 for name in zero)
    again = untrained(made)
    assert all(torch.equal(p, again.get_parameter(name)) for name, p in control.named_parameters())


@pytest.mark.slow(1)
@pytest.mark.parametrize("decoder", ["maskgit", "dit", "givt", "mar"])
def test_heads_of_an_untrained_network_react_to_all_factors_alike(decoder: str) -> None:
    """Nothing sets one factor apart, so that the heads of a block, which differ by chance alone, react to all: more than 0.8 in
    the mean of each. Its circuits are the same whichever pictures show a composition: more than 0.8."""
    found = found_of(generator_of(decoder, width=32))
    assert min(found["untrained_overlap"].values()) > 0.8
    assert found["untrained_jaccard_same"][None] > 0.8
    told = {name.removeprefix("untrained_") for name in found if name.startswith("untrained_")}
    assert told == {name for name in found if not name.startswith("untrained_")}, "the same numbers of both"
    assert ("spread" in told) == (decoder in ("maskgit", "dit"))


@pytest.mark.slow(1)
@BOTH
def test_the_auxiliary_loss_is_no_part_of_what_is_measured(decoder: str) -> None:
    plain, taught = generator_of(decoder), generator_of(decoder, jepa=0.6)
    own = dict(plain.model.named_parameters())
    assert {name for name, _ in taught.model.named_parameters()} > own.keys()
    taught.model.load_state_dict(plain.model.state_dict(), strict=False)
    expected, found = found_of(plain), found_of(taught)
    assert found.keys() == expected.keys()
    for name in ("changes", "overlap", "jaccard_000_101", "spread", "untrained_spread"):
        for layer, value in expected[name].items():
            assert np.array_equal(found[name][layer], value), name
    assert taught.model.jepa is not None, "the run's own network is left as it is"
    assert objective_of(taught.model).jepa is None


def test_factors_are_told_also_to_networks_that_were_not_always_told_them() -> None:
    made = generator_of("dit", conditioning="both", dropout=0.9)
    one = fixed(made.model, real_pictures(made, "circuits")[0])
    assert len(one.draws) == 2, "a time and noise"
    assert head_changes(made.settings, made.model, [one]).min() > 0


def test_targets_that_are_random_are_spread_and_those_that_are_alike_have_collapsed() -> None:
    random = functional.layer_norm(torch.randn(400, 5, 8, generator=stream(0, "t")), (8,))
    assert spread(random) == pytest.approx(1, abs=0.02)
    assert rank(random) == pytest.approx(7, abs=0.1), "of eight channels whose mean is 0"
    alike = random[:1].expand(400, -1, -1)
    assert spread(alike) == pytest.approx(0, abs=1e-6), "tokens may differ, if they do so in all pictures"
    assert rank(alike) == 0
    along = torch.randn(400, 5, 1, generator=stream(0, "a")) * torch.tensor([1.0, -1, 2, -2, 0, 0, 0, 0]) + random[:1]
    assert rank(along) == pytest.approx(1, abs=1e-3)


@BOTH
def test_a_network_that_sees_nothing_has_collapsed(decoder: str) -> None:
    made = generator_of(decoder)
    batches = real_pictures(made, "circuits")
    assert len(teacher_says(made.model, batches)) == DEPTH + 1
    assert min(spread(layer) for layer in teacher_says(made.model, batches)) > 0.3
    made.model.into.weight.zero_()
    first, *others = teacher_says(made.model, batches)
    assert spread(first) == pytest.approx(0, abs=1e-6)
    assert min(spread(layer) for layer in others) > 0.01, "compositions that it is told still differ"
    for p in made.model.conditions.parameters():
        p.zero_()
    assert max(spread(layer) for layer in teacher_says(made.model, batches)) < 1e-6
