"""What generators are told of pictures: classes in place of values, and not always all factors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.trainables.generative.test_generators import CHANNELS, CODES, TOKENS, conditions, dit, givt, mar, maskgit
from trainables.generative.generator_task import GeneratorTask, _told
from trainables.generative.settings import CONDITIONINGS, GeneratorSettings
from trainables.generative.shapes import ShapeSettings, class_values, pool
from trainables.generative.shapes import conditions as conditions_of
from trainables.generative.tiers import generator
from trainables.generative.trunk import Conditions
from trainables.settings import read_settings
from trainables.task import Split
from trainables.training.seeds import stream


def loud(embed: Conditions) -> Conditions:
    """The same with larger weights, and nulls that are not zero."""
    for number, weights in enumerate(embed.parameters()):
        nn.init.normal_(weights, generator=stream(0, number))
    return embed


@pytest.mark.parametrize("mode", ["null_sample", "zero_batch"])
def test_factors_are_left_out_at_the_chance_that_is_asked_for(mode: str) -> None:
    embed = Conditions(8, dropout=0.3, mode=mode)
    batches = [embed.draws(conditions(64), stream(0, step))[0] for step in range(400)]
    found = torch.stack(batches).double()  # (batches, samples, factors)
    assert found.mean((0, 1)).tolist() == pytest.approx([0.3] * 3, abs=0.06)
    together = (found[:, :, 0] * found[:, :, 1]).mean().item()
    assert together == pytest.approx(0.09, abs=0.04), "one factor says nothing of another"
    same = (found == found[:, :1]).all()
    assert bool(same) == (mode == "zero_batch")
    assert torch.equal(embed.draws(conditions(64), stream(0, 7))[0], batches[7])


def test_without_dropout_nothing_is_drawn_and_all_is_told() -> None:
    embed, generator, told = Conditions(8), stream(0, "draws"), conditions(4)
    before = generator.get_state()
    assert embed.draws(told, generator) == ()
    assert torch.equal(generator.get_state(), before)
    assert embed.partly(told) is told
    assert "nulls" not in dict(embed.named_parameters())


def test_a_factor_that_is_left_out_gives_way_to_a_vector_of_its_own() -> None:
    embed, told = loud(Conditions(8, dropout=0.5)), conditions(3)
    left_out = torch.tensor([[True, False, False], [False, True, True], [False, False, False]])
    terms = [embed.shape(told[:, 0].long()), embed.size(told[:, 1:2]), embed.colour(told[:, 2:])]
    wanted = [embed.nulls[0] + terms[1][0] + terms[2][0], terms[0][1] + embed.nulls[1] + embed.nulls[2], embed(told)[2]]
    assert torch.allclose(embed(embed.partly(told, left_out)), torch.stack(wanted), atol=1e-6)
    also = torch.randn(3, 8)
    assert torch.allclose(embed(embed.partly(told, left_out), also), torch.stack(wanted) + also, atol=1e-6)


def test_zeros_in_place_of_a_factor_are_class_0_the_middle_of_the_sizes_and_a_grey_of_no_class() -> None:
    embed, told = loud(Conditions(8, dropout=0.5, mode="zero_batch")), conditions(4)
    left_out = torch.tensor([[True, False, True]]).expand(4, -1)
    zeroed = told.clone()
    zeroed[:, 0], zeroed[:, 2:] = 0, 0
    assert torch.equal(embed.partly(told, left_out), zeroed)
    assert torch.equal(embed(embed.partly(told, left_out)), embed(zeroed))
    classes = conditions_of(ShapeSettings(), class_values(ShapeSettings(), torch.tensor([[0, 0, 0], [0, 1, 1]])))
    assert classes.mean(0).tolist() == pytest.approx([0, 0, 0, -0.6, 0], abs=1e-6)


@pytest.mark.parametrize("make", [dit, maskgit, givt, mar], ids=["dit", "maskgit", "givt", "mar"])
def test_dropout_changes_what_a_model_learns_and_neither_its_start_nor_what_it_is_asked(make: partial[nn.Module]) -> None:
    told, targets = conditions(40), torch.randn(40, TOKENS, CHANNELS)
    if make is maskgit:
        targets = torch.randint(CODES, (40, TOKENS))
    models = []
    for dropout in (0.0, 0.5):
        torch.manual_seed(0)
        models.append(make(conditions=partial(Conditions, dropout=dropout)))
    whole, partly = models
    state = partly.state_dict()
    assert not state.pop("conditions.nulls").any()
    assert all(torch.equal(weights, whole.state_dict()[name]) for name, weights in state.items())
    assert torch.equal(whole.sample(told, stream(0, "s")), partly.sample(told, stream(0, "s")))
    for model in models:
        for number, weights in enumerate(model.parameters()):
            nn.init.normal_(weights, std=0.3, generator=stream(0, number))
    batch = Split(told, targets, targets)
    draws = [model.draws(batch, stream(0, "draws")) for model in models]
    left_out = draws[1][-1]
    assert all(torch.equal(one, other) for one, other in zip(*draws, strict=False)), "what both draw is the same"
    partly.load_state_dict(whole.state_dict(), strict=False)
    losses = [model.losses(batch, of, None) for model, of in zip(models, draws, strict=True)]
    differ = losses[0] != losses[1]
    assert not differ[~left_out.any(1)].any()
    assert differ.sum() >= 0.9 * left_out.any(1).sum() > 0
    losses[1][left_out[:, 1]].sum().backward()
    assert partly.conditions.nulls.grad[1].any()


def test_a_generator_is_told_classes_if_it_is_asked_for() -> None:
    figures = ShapeSettings()
    made = pool(figures, 12, ("000", "011"), 6, 0)
    classes = conditions_of(figures, class_values(figures, made.bits))
    for word in CONDITIONINGS:
        spec = generator("smoke", 0, {"conditioning": word, "radius_small": 0.32, "radius_jitter": 0.08, "colour_jitter": 0.1})
        told = _told(read_settings(GeneratorSettings, spec), made).conditions
        assert torch.equal(told, classes if word in ("quantised", "both") else made.conditions)
    assert not torch.allclose(made.conditions, classes, atol=0.01)
    assert len(classes.unique(dim=0)) == 2


@pytest.mark.parametrize("word", CONDITIONINGS)
def test_the_task_gives_its_model_what_the_conditioning_asks_for(word: str) -> None:
    spec = generator("smoke", 0, {"conditioning": word, "dropout": 0.25, "dropout_mode": "zero_batch"})
    found = GeneratorTask().model(spec).conditions
    assert (found.dropout, found.nulls) == (0.25 if word in ("dropout", "both") else 0.0, None)
    usual = GeneratorTask().model(generator("smoke", 0, {"conditioning": word})).conditions
    assert (usual.dropout, usual.nulls is None) == ((0.1, False) if word in ("dropout", "both") else (0.0, True))
    matters = GeneratorTask().matters({"decoder": "dit", "encoding": "vq", "conditioning": word, "jepa": 0.0})
    assert ({"dropout", "dropout_mode"} <= set(matters)) == (word in ("dropout", "both"))
