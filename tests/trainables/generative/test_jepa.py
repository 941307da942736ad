"""The auxiliary loss: what is guessed from what, at which layers, who is taught, and that a run without it is as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.generative.test_generators import CHANNELS, CODES, TOKENS, Learned, conditions, dit, maskgit
from tests.trainables.test_objectives import distance, double
from trainables.generative.dit import alpha_bars
from trainables.generative.generator_task import GeneratorTask
from trainables.generative.jepa import Jepa, layers_of
from trainables.generative.settings import GeneratorSettings
from trainables.generative.tiers import generator
from trainables.generative.trunk import Conditions
from trainables.objectives import average_of
from trainables.settings import value_of
from trainables.spec import RunSpec, Scalar
from trainables.task import Split
from trainables.training.loop import Training
from trainables.training.packs import Pack
from trainables.training.seeds import stream

LAMBDA = 0.6
HEADS: dict[str, Callable[..., nn.Module]] = {
    "dit": partial(dit, input_scale=0.5, depth=3),
    "maskgit": partial(maskgit, depth=3),
}
BOTH = pytest.mark.parametrize("head", HEADS)


def some(head: str, seed: int = 0, **settings: object) -> nn.Module:
    """A model with the loss, and other weights than zeros."""
    model = HEADS[head](**{"jepa": LAMBDA, "jepa_layers": "1+3"} | settings)
    for i, p in enumerate(model.parameters()):
        nn.init.normal_(p, std=0.3, generator=stream(seed, "w", i))
    return model


def batch_of(head: str, n: int = 7) -> Split:
    codes = torch.randint(CODES, (n, TOKENS), generator=stream(0, "codes"))
    latents = torch.randn(n, TOKENS, CHANNELS, generator=stream(0, "latents"))
    return Split(conditions(n), codes if head == "maskgit" else latents, codes)


def without(model: nn.Module) -> nn.Module:
    """The same model without the loss."""
    other = copy.deepcopy(model)
    other.jepa = None
    return other


def tokens_at(model: nn.Module, layer: int, told: Tensor, inputs: Tensor, times: Tensor | None) -> Tensor:
    """What comes out of a block of the trunk, one block after another."""
    condition = model.conditions(told) if times is None else model.conditions(told, model.time(times))
    x = model.into(inputs) + model.trunk.positions
    for block in model.trunk.blocks[:layer]:
        x = block(x, condition)
    return x


def normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()


@BOTH
@pytest.mark.parametrize("at", [(1, 3), (2,)])
def test_the_loss_is_the_squared_error_of_guesses_of_the_tokens_of_the_whole_picture(head: str, at: tuple[int, ...]) -> None:
    """By hand, sample by sample, token by token: the mean over layers, times lambda, is added to the loss of the objective."""
    layers = "+".join(map(str, at))
    model, teacher, batch = some(head, jepa_layers=layers), some(head, 1, jepa_layers=layers), batch_of(head)
    draws = model.draws(batch, stream(0, "draws"))
    if head == "maskgit":
        masked, *_ = draws
        student_sees, whole = torch.where(masked, CODES, batch.targets), batch.targets
        times = start = None
    else:
        times, noise = draws
        bars, whole = alpha_bars()[times].float()[:, None, None], 0.5 * batch.targets
        student_sees = bars.sqrt() * whole + (1 - bars).sqrt() * noise
        start, masked = torch.zeros_like(times), torch.ones(7, TOKENS, dtype=torch.bool)
    errors = torch.zeros(len(at), 7)
    for i, layer in enumerate(at):
        first, _, second = model.jepa.predictors[i]
        context = normed(tokens_at(model, layer, batch.inputs, student_sees, times))
        target = normed(tokens_at(teacher, layer, batch.inputs, whole, start))
        for n in range(7):
            of_tokens = []
            for token in masked[n].nonzero().flatten().tolist():
                hidden = torch.nn.functional.gelu(first.weight @ context[n, token] + first.bias)
                guess = second.weight @ hidden + second.bias
                of_tokens.append((guess - target[n, token]).square().mean())
            errors[i, n] = torch.stack(of_tokens).mean()
    expected = without(model).losses(batch, draws, None) + LAMBDA * errors.mean(0)
    assert torch.allclose(model.losses(batch, draws, teacher), expected, rtol=1e-4)
    assert errors.mean() > 0.1


@BOTH
def test_the_teacher_is_as_told_and_learns_only_with_gradients(head: str) -> None:
    batch = batch_of(head)
    found = {}
    for word in ("ema", "same", "gradient"):
        model, teacher = some(head, jepa_teacher=word), some(head, 1)
        draws = model.draws(batch, stream(0, "draws"))
        model.losses(batch, draws, teacher).mean().backward()
        assert all(p.grad is None for p in teacher.parameters()), "the teacher of another run is never taught"
        found[word] = {name: p.grad for name, p in model.named_parameters()}
        # the same with targets that are numbers: what goes by the student and the predictors alone
        twin = some(head, jepa_teacher=word)
        targets = [t.detach() for t in twin.jepa.targets(twin, teacher, batch.inputs, batch.targets)]
        twin.jepa.targets = lambda *_, targets=targets: targets
        twin.losses(batch, draws, teacher).mean().backward()
        same = [torch.equal(p.grad, found[word][name]) for name, p in twin.named_parameters() if p.grad is not None]
        assert all(same) == (word != "gradient")
    assert not torch.equal(found["ema"]["jepa.predictors.0.0.weight"], found["same"]["jepa.predictors.0.0.weight"])
    assert torch.equal(found["gradient"]["jepa.predictors.0.0.weight"], found["same"]["jepa.predictors.0.0.weight"])


@BOTH
@pytest.mark.parametrize("mode", ["null_sample", "zero_batch"])
def test_the_teacher_is_told_no_more_than_the_student(head: str, mode: str) -> None:
    """The loss is that of a batch whose conditions say no more than what is left."""
    model, teacher = (some(head, seed, conditions=partial(Conditions, dropout=0.5, mode=mode)) for seed in (0, 1))
    batch = batch_of(head)
    *drawn, left_out = model.draws(batch, stream(3, "draws"))
    assert left_out.any()
    told = batch._replace(inputs=model.conditions.partly(batch.inputs, left_out))
    assert torch.allclose(model.losses(batch, (*drawn, left_out), teacher), model.losses(told, tuple(drawn), teacher))


@BOTH
@pytest.mark.parametrize("word", ["ema", "same"])
def test_gradients_in_bfloat16_are_those_of_float32_up_to_rounding(head: str, word: str) -> None:
    """Also where a teacher without gradients has used the same weights."""
    batch, found = batch_of(head), []
    for enabled in (False, True):
        model = some(head, jepa_teacher=word)
        draws = model.draws(batch, stream(0, "draws"))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            model.losses(batch, draws, average_of(model)).mean().backward()
        assert all(p.grad is not None for p in model.parameters())
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    exact, rounded = found
    assert (exact - rounded).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize(
    ("text", "depth", "layers"),
    [
        ("three", 12, (7, 9, 11)), ("three", 4, (2, 3, 4)), ("three", 6, (4, 5, 6)), ("three", 2, (1, 2)), ("three", 1, (1,)),
        ("one", 12, (9,)), ("one", 4, (3,)), ("one", 1, (1,)), ("2+3+4", 4, (2, 3, 4)), ("4, 2", 4, (2, 4)), ("1", 1, (1,)),
    ],
)  # fmt: skip
def test_layers_are_those_of_the_paper_or_those_that_are_listed(text: str, depth: int, layers: tuple[int, ...]) -> None:
    assert layers_of(text, depth) == layers
    loss = Jepa(8, depth, 1.0, text, "ema")
    assert len(loss.predictors) == len(layers)
    student = [torch.randn(2, TOKENS, 8) for _ in range(depth + 1)]
    targets, masked = [torch.randn(2, TOKENS, 8) for _ in layers], torch.ones(2, TOKENS, dtype=torch.bool)
    before = loss(student, targets, masked)
    for layer in range(depth + 1):
        changed = [torch.randn_like(x) if i == layer else x for i, x in enumerate(student)]
        assert torch.equal(loss(changed, targets, masked), before) == (layer not in layers)


@pytest.mark.parametrize("text", ["5", "1+1", "1+x", "", "9" * 5000, "0" * 5000 + "1"])
def test_a_list_that_is_none_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"^jepa_layers must be three or one, or list some of the layers 1 to 4") as told:
        layers_of(text, 4)
    assert len(str(told.value)) < 200


@BOTH
def test_without_the_loss_weights_draws_and_losses_are_the_same_bits(head: str) -> None:
    made = []
    for settings in ({}, {"jepa": LAMBDA}):
        torch.manual_seed(0)
        made.append(HEADS[head](**settings))
    plain, taught = made
    assert plain.jepa is None
    own = {name: p for name, p in taught.named_parameters() if name.startswith("jepa.")}
    assert [p.shape for p in own.values()] == [(8, 8), (8,), (8, 8), (8,)] * 2  # layers 2 and 3 of 3
    assert all(0.01 < p.std() < 0.03 for name, p in own.items() if name.endswith("weight")), "none begins as zeros"
    both = [{name: p for name, p in model.named_parameters() if name not in own} for model in made]
    assert both[0].keys() == both[1].keys()
    assert all(torch.equal(p, both[1][name]) for name, p in both[0].items())
    batch = batch_of(head)
    draws, same = (model.draws(batch, stream(0, "draws")) for model in made)
    assert all(torch.equal(a, b) for a, b in zip(draws, same, strict=True))
    assert torch.equal(plain.losses(batch, draws, None), without(taught).losses(batch, draws, None))
    assert (taught.losses(batch, draws, average_of(taught)) > plain.losses(batch, draws, None)).all()
    told = conditions(4)
    assert torch.equal(plain.sample(told, stream(0, "s")), taught.sample(told, stream(0, "s")))


class Taught(Learned):
    """The made-up task, of models with the loss."""

    def __init__(self, kind: str, teacher: str) -> None:
        super().__init__(kind)
        self.teacher = teacher

    def model(self, spec: RunSpec) -> nn.Module:
        return HEADS[self.kind](jepa=LAMBDA, jepa_layers="2+3", jepa_teacher=self.teacher)


@pytest.mark.slow(4)
@pytest.mark.parametrize(("head", "teacher"), [("dit", "ema"), ("maskgit", "ema"), ("maskgit", "same"), ("dit", "gradient")])
def test_a_pack_trains_as_each_does_alone(head: str, teacher: str) -> None:
    settings = ((0, 40, 0.01), (1, 40, 0.02), (2, 7, 0.01))
    fields = {"task": "tests:Learned", "dataset": "made", "N": 8, "batch_size": 8, "max_steps": 40, "stop": "budget"}
    specs = [RunSpec(seed=seed, data_count=count, lr=lr, **fields) for seed, count, lr in settings]  # type: ignore[arg-type]
    together, alone = ([double(Training(spec, Taught(head, teacher))) for spec in specs] for _ in range(2))
    Pack(together).advance()
    for run, twin in zip(together, alone, strict=True):
        first = copy.deepcopy(twin.model)
        twin.advance()
        assert distance(run.model, twin.model) < 1e-9
        assert distance(run.network, twin.network) < 1e-9
        assert distance(first.jepa, twin.model.jepa) > 1e-3
        assert run.curve_loss == pytest.approx(twin.curve_loss, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"jepa": 0.6, "jepa_layers": "3"},
            "jepa_layers must be three or one, or list some of the layers 1 to 2, as 1+2; not '3'",
        ),
        (
            {"jepa": 0.6, "jepa_layers": "1+1"},
            "jepa_layers must be three or one, or list some of the layers 1 to 2, as 1+2; not '1+1'",
        ),
        (
            {"jepa": 0.6, "jepa_layers": "all"},
            "jepa_layers must be three or one, or list some of the layers 1 to 2, as 1+2; not 'all'",
        ),
        (
            {"jepa_layers": "one"},
            "jepa_layers and jepa_teacher mean nothing without the loss: give jepa a weight above 0, as 0.6",
        ),
        (
            {"jepa_teacher": "same"},
            "jepa_layers and jepa_teacher mean nothing without the loss: give jepa a weight above 0, as 0.6",
        ),
        (
            {"jepa": 0.6, "ema": 0.0},
            "jepa_teacher ema is the average of the model, and ema 0 keeps none: choose same, or ema above 0",
        ),
        ({"jepa": 0.6, "jepa_teacher": "none"}, "jepa_teacher 'none' is unknown: choose ema, same or gradient"),
        ({"jepa": -0.1}, "jepa must be at least 0, not -0.1"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(given: Mapping[str, Scalar], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        generator("smoke", settings={"decoder": "maskgit", **given})
    assert str(error.value) == message


def test_a_run_carries_the_settings_of_the_loss_only_where_they_differ() -> None:
    usual = {"jepa": 0.0, "jepa_layers": "three", "jepa_teacher": "ema"}
    for decoder in ("dit", "maskgit", "givt", "mar"):
        spec = generator("smoke", settings={"decoder": decoder})
        assert not usual.keys() & dict(spec.options).keys()
        assert spec == generator("smoke", settings={"decoder": decoder, **usual})
        assert {name: value_of(spec, name) for name in usual} == usual
    taught = {"decoder": "maskgit", "jepa": 0.6, "jepa_layers": "2, 1", "jepa_teacher": "same"}
    assert generator("smoke", settings=taught).option("jepa_layers") == "1+2", "one key, however it is written"
    model = GeneratorTask().model(generator("smoke", settings=taught))
    assert (model.jepa.weight, model.jepa.layers, model.jepa.teacher) == (0.6, (1, 2), "same")
    generator("smoke", settings={"decoder": "maskgit", "jepa": 0.6, "jepa_teacher": "same", "ema": 0.0})


def test_what_belongs_to_the_loss_matters_where_there_is_one() -> None:
    names = {"jepa", "jepa_layers", "jepa_teacher"}
    usual = {name: field.default for name, field in GeneratorSettings.__dataclass_fields__.items()}
    for decoder, jepa, mattering in (
        ("dit", 0.0, {"jepa"}), ("maskgit", 0.0, {"jepa"}), ("maskgit", 0.6, names), ("givt", 0.6, set()), ("mar", 0.0, set()),
    ):  # fmt: skip
        assert names & set(GeneratorTask().matters(usual | {"decoder": decoder, "jepa": jepa})) == mattering
