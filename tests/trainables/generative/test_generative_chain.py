"""The chain probe, tokenizer, generator: which run needs which, what a study of it is refused, and what its rows hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache

import pytest
import safetensors.torch
import torch

from trainables import check
from trainables.check import check_task
from trainables.generative import codebook
from trainables.generative.chain import PROBE, TOKENIZER, probe_of, tokenizer_of
from trainables.generative.generator_task import GeneratorTask, pictures
from trainables.generative.probe_task import ProbeTask
from trainables.generative.settings import GeneratorSettings, ProbeSettings, TokenizerSettings
from trainables.generative.shapes import COMPOSITIONS, ShapeSettings, pool, seen_of
from trainables.generative.tiers import TIERS, generator
from trainables.generative.tokenizer_task import STARTED_FROM, TokenizerTask
from trainables.generative.tokenizers import Tokenizer
from trainables.needs import Parent, Tasks, needs_of, network_of, trained, untrained
from trainables.settings import complete, read_settings, value_of
from trainables.spec import RunSpec, Scalar
from trainables.task import Task, load_task
from trainables.training.loop import Training
from trainables.training.seeds import stream, stream_seed

WITH_JEPA: dict[str, Scalar] = {"decoder": "maskgit", "jepa": 0.6}
ON_CODES: list[dict[str, Scalar]] = [{}, *({"decoder": decoder} for decoder in ("maskgit", "givt", "mar")), WITH_JEPA]
HEADS: list[dict[str, Scalar]] = [*ON_CODES, *({"decoder": decoder, "encoding": "vae"} for decoder in ("dit", "givt", "mar"))]


@cache
def finished(spec: RunSpec) -> Training:
    task = load_task(spec.task)
    run = Training(spec, trained(task, parents_of(spec)))
    assert run.advance()
    return run


def parents_of(spec: RunSpec) -> dict[str, Parent]:
    """The runs that a run needs, trained."""
    found = {}
    for name, parent in needs_of(load_task(spec.task), spec).items():
        weights = safetensors.torch.save(finished(parent).network.state_dict())
        found[name] = Parent(parent, weights, parents_of(parent))
    return found


@pytest.mark.slow(4)
def test_only_a_new_run_of_a_tokenizer_looks_for_codes_and_one_that_is_loaded_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tokenizer_of(generator("smoke"))
    run = finished(spec)
    settings = read_settings(TokenizerSettings, spec)
    torch.manual_seed(stream_seed(spec.seed, "weights"))
    shape = settings.channels, settings.width, settings.codes
    by_hand = Tokenizer("vq", "linear", spec.N, settings.stride, *shape)
    words = seen_of(spec.holdout)
    by_hand.start(pool(settings, spec.N, words, STARTED_FROM, spec.seed).images, stream(spec.seed, "k-means"))
    fresh = Training(spec, trained(load_task(spec.task), parents_of(spec)))
    for name, value in by_hand.state_dict().items():
        assert torch.equal(fresh.model.state_dict()[name], value), name
    weights = safetensors.torch.save(run.network.state_dict())
    parent = Parent(spec, weights, parents_of(spec))
    monkeypatch.setattr(codebook, "k_means", lambda *_: pytest.fail("codes were looked for"))
    loaded = network_of(parent)
    for name, value in run.network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_says_all_of_a_chain(tier: str) -> None:
    spec = generator(tier, seed=7, settings={"pair": "square", "holdout": "fail1", "encoding": "vae"})
    task = load_task(spec.task)
    assert isinstance(task, GeneratorTask)
    tokens = {"smoke": 16, "coarse": 16, "toy": 36, "long": 36, "gpu": 64, "paper": 49}[tier]
    with torch.device("meta"):
        assert task.model(spec).shape == (tokens, 12)
    assert task.looks(spec) % 20 == 0
    assert spec.max_steps / task.looks(spec) == pytest.approx(read_settings(GeneratorSettings, spec).looks, rel=0.01)
    needed = task.needs(spec)
    probe, tokenizer = needed["probe"], needed["tokenizer"]
    assert (probe.task, tokenizer.task) == (PROBE, TOKENIZER)
    assert TokenizerTask().needs(tokenizer) == {"probe": probe}
    for parent in (probe, tokenizer):
        assert (parent.N, parent.seed, parent.option("pair"), parent.target) == (spec.N, 7, "square", 1.0)
        allowed = load_task(parent.task).counts(parent)
        assert allowed.low <= parent.data_count <= allowed.high
    assert (tokenizer.encoding, tokenizer.holdout, tokenizer.decoder) == ("vae", "fail1", "linear")
    assert read_settings(TokenizerSettings, tokenizer).channels == 12
    assert read_settings(ProbeSettings, probe).gate == (0 if tier == "smoke" else 0.99)


def test_the_published_size_is_that_of_the_paper() -> None:
    with torch.device("meta"):
        models = {tier: GeneratorTask().model(generator(tier)) for tier in ("toy", "paper")}
    counts = {tier: sum(p.numel() for p in model.parameters()) for tier, model in models.items()}
    assert 32e6 < counts["paper"] < 34e6
    assert 0.7e6 < counts["toy"] < 0.75e6


@pytest.mark.parametrize("tier", TIERS)
def test_mar_has_a_larger_head_in_the_large_tiers_and_no_other_family_carries_it(tier: str) -> None:
    names = ("head_depth", "head_width")
    wanted = (3, 256) if tier in ("gpu", "paper") else (2, 96)
    made = generator(tier, settings={"decoder": "mar"})
    assert tuple(value_of(made, name) for name in names) == wanted
    with torch.device("meta"):
        head = GeneratorTask().model(made).head
    assert (len(head.blocks), head.into.out_features) == wanted
    small = generator(tier, settings={"decoder": "mar", "head_width": 96})
    assert tuple(value_of(small, name) for name in names) == (wanted[0], 96), "what is given goes first"
    for settings in ({}, *(head for head in HEADS if head.get("decoder") != "mar")):
        assert not {*names} & dict(generator(tier, settings=settings).options).keys()


def test_what_shapes_a_parent_is_in_the_key_of_its_child() -> None:
    spec, tasks = generator("smoke"), Tasks(GeneratorTask())
    for name, value in (
        ("probe_steps", 61),
        ("tokenizer_images", 257),
        ("codes", 17),
        ("radius_small", 0.3),
        ("probe_gate", 0.5),
    ):
        changed = spec.with_value(name, value)
        assert tasks.key(changed) != tasks.key(spec)
        assert tasks.parents(changed)["tokenizer"] != tasks.parents(spec)["tokenizer"]
    assert tasks.parents(spec.with_value("heads", 1)) == tasks.parents(spec)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decoder": "maskgit", "encoding": "vae"}, "maskgit guesses codes, and a vae has none: choose --encoding vq"),
        ({"heads": 5}, "width must be a multiple of 2 heads = 10, not 32"),
        ({"predicts": "eps"}, "predicts eps needs noise linear: with zero-snr nothing is left of a picture at the last time"),
        (
            {"decoder": "mar", "predicts": "eps"},
            "predicts eps needs noise linear: with zero-snr nothing is left of a picture at the last time",
        ),
        ({"decoder": "givt", "variance_scale": 0.0}, "variance_scale must be at least 0.01, not 0.0"),
        ({"ddim_steps": 7}, "ddim_steps must divide 500, as 25 and 50 do, not 7"),
        ({"stride": 5}, "stride must be one of 2, 3, 4, 6, 8, not 5"),
        (
            {"holdout": "all"},
            "holdout must be train1 or fail1, or list some of the eight compositions, each once, as 000,100; not 'all'",
        ),
        ({"pair": "star"}, "pair 'star' is unknown: choose plus, triangle or square"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(given: Mapping[str, Scalar], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        generator("smoke", settings=given)
    assert str(error.value) == message


def test_every_tier_has_the_same_figures_unless_others_are_given() -> None:
    for tier in TIERS:
        made, other = generator(tier), generator(tier, settings={"radius_small": 0.3})
        names = ("radius_small", "radius_jitter", "colour_jitter", "background")
        assert tuple(map(made.option, names)) == (0.5, 0.04, 0.05, 1.0)
        assert tuple(map(other.option, names)) == (0.3, 0.04, 0.05, 1.0)
        assert tuple(map(GeneratorTask().needs(made)["probe"].option, names)) == (0.5, 0.04, 0.05, 1.0)


def test_what_belongs_to_another_objective_or_to_codes_does_not_matter() -> None:
    names = set(GeneratorSettings.__dataclass_fields__) - {"dropout", "dropout_mode", "tokenizer_width"}
    usual = {name: field.default for name, field in GeneratorSettings.__dataclass_fields__.items()}
    diffusion = {"predicts", "noise", "input_scale", "ddim_steps"}
    of_givt, of_mar = {"mixture", "variance_scale"}, {"head_width", "head_depth", "head_draws"}
    of_jepa = {"jepa_layers", "jepa_teacher"}  # of a loss that is not added
    no_jepa = {"jepa"} | of_jepa
    without = {
        ("dit", "vae"): {"smoothing", "rounds", "temperature", "codes"} | of_givt | of_mar | of_jepa,
        ("dit", "vq"): {"smoothing", "rounds", "temperature"} | of_givt | of_mar | of_jepa,
        ("maskgit", "vq"): diffusion | of_givt | of_mar | of_jepa,
        ("givt", "vae"): diffusion | of_mar | no_jepa | {"smoothing", "codes"},
        ("givt", "vq"): diffusion | of_mar | no_jepa | {"smoothing"},
        ("mar", "vae"): of_givt | no_jepa | {"smoothing", "temperature", "codes"},
        ("mar", "vq"): of_givt | no_jepa | {"smoothing", "temperature"},
    }
    for (decoder, encoding), others in without.items():
        assert set(GeneratorTask().matters(usual | {"decoder": decoder, "encoding": encoding})) == names - others
    for decoder in ("maskgit", "givt"):
        assert generator("smoke", settings={"decoder": decoder, "predicts": "eps"}).option("predicts") == "eps"


def test_widths_of_networks_that_a_run_does_not_need_do_not_matter() -> None:
    usual = complete(GeneratorTask(), {})
    for network, probe, mattering in (("linear", "cnn", {"probe_width"}), ("conv", "linear", {"tokenizer_width"})):
        mattered = GeneratorTask().matters({**usual, "network": network, "probe": probe})
        assert {"tokenizer_width", "probe_width"} & {*mattered} == mattering


def test_looks_of_all_tiers_have_noise_of_their_own() -> None:
    for settings in HEADS:
        spec = generator("smoke", settings=settings)
        assert spec.option("look_noise") == "fresh"
        assert GeneratorTask().model(spec).samples_afresh is True
        shared = generator("smoke", settings=settings | {"look_noise": "same"})
        assert "look_noise" not in dict(shared.options)
        assert GeneratorTask().model(shared).samples_afresh is False


def test_settings_of_later_objectives_are_carried_only_where_they_differ() -> None:
    later = {"mixture": 8, "variance_scale": 0.9, "head_width": 96, "head_depth": 2, "head_draws": 4}
    for settings in HEADS:
        spec = generator("smoke", settings=settings)
        assert not later.keys() & dict(spec.options).keys()
        assert spec == generator("smoke", settings=settings | later)
        assert {name: value_of(spec, name) for name in later} == later
    wide = generator("smoke", settings={"decoder": "mar", "head_width": 8, "head_depth": 1, "head_draws": 2})
    model = GeneratorTask().model(wide)
    assert (model.head.into.out_features, len(model.head.blocks), model.head_draws) == (8, 1, 2)
    assert generator("smoke", settings={"decoder": "givt", "mixture": 3}).option("mixture") == 3


def test_a_tier_that_is_none_and_pictures_that_tokens_do_not_fill_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tier 'huge' is unknown: choose smoke, coarse, toy, long, gpu, paper$"):
        generator("huge")
    with pytest.raises(ValueError, match=r"^N must be a multiple of stride = 6 and at least 12, not 16$"):
        check_task(GeneratorTask(), generator("smoke", settings={"stride": 6}))
    with pytest.raises(ValueError, match=r"^N must be at least 12 pixels, not 8$"):
        ProbeTask().counts(dataclasses.replace(probe_of(generator("smoke")), N=8))


def test_a_generator_learns_tokens_of_seen_compositions_and_is_held_against_unseen_ones() -> None:
    spec = generator("smoke", settings={"holdout": "000,011"})
    task = untrained(GeneratorTask(), spec)
    data, judged = task.data(spec), task.judged(spec)
    words = [{"".join(map(str, bits)) for bits in split.truth.tolist()} for split in data]
    assert words == [{"000", "011"}, set(COMPOSITIONS) - {"000", "011"}]
    assert data.train.targets.shape == (64, 16, 12)
    assert judged.train.inputs.shape == (2, 4, 5)
    assert judged.held_out.inputs.shape == (8, 4, 5)
    assert judged.held_out.inputs[3, 2].tolist() == pytest.approx([0, -1, -0.6, -0.6, 0.6])  # 011: a small blue disc
    codes = untrained(GeneratorTask(), spec.with_value("decoder", "maskgit")).data(spec.with_value("decoder", "maskgit"))
    assert codes.train.targets.shape == (64, 16)
    assert codes.train.targets.dtype == torch.int64
    assert torch.equal(codes.train.inputs, data.train.inputs)


def test_a_probe_passes_the_compositions_of_which_it_reads_enough() -> None:
    spec = probe_of(generator("smoke")).with_value("gate", 0.5)
    judged = ProbeTask().judged(spec).held_out
    logits = torch.nn.functional.one_hot(judged.targets, 3).float().permute(0, 3, 1, 2).clone()
    logits[0, :, :128] = torch.tensor([0.0, 0.0, 1.0])[:, None, None]  # half of 000 unclear
    logits[1, :, :129, 2] = torch.tensor([1.0, 0.0, 0.0])[:, None]  # a little more than half of 001 red
    found = ProbeTask().measure(spec, logits, judged)
    assert found["correct"].tolist() == [True, False, *[True] * 6]
    assert found["read"].tolist() == [0.5, 127 / 256, *[1.0] * 6]
    curve = ProbeTask().summarise(spec, found, judged)
    assert curve["read_000"] == curve["read_111"] / 2 == 0.5
    assert curve["read_least"] == 127 / 256


@pytest.mark.slow(4)
def test_every_task_of_the_chain_is_what_a_study_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: set[RunSpec] = set()

    def once(task: Task, spec: RunSpec, **_: bool) -> None:
        if spec not in checked:
            checked.add(spec)
            check_task(task, spec)  # and with it its parents

    monkeypatch.setattr(check, "check_task", once)
    specs = [generator("smoke", settings=settings) for settings in HEADS]
    for spec in specs:
        once(GeneratorTask(), spec)
    assert checked == {*specs, *map(tokenizer_of, specs), *map(probe_of, specs)}


@pytest.mark.slow(12)
@pytest.mark.parametrize("settings", HEADS, ids=str)
def test_the_smoke_tier_trains_end_to_end(settings: dict[str, Scalar]) -> None:
    spec = generator("smoke", settings=settings)
    run = finished(spec)
    result = run.result()
    assert result.status == "passed"  # its gates are 0
    assert run.network is run.average, "the average is what is sampled"
    assert result.curve_step == [20, 40, 60]
    assert result.curve_loss[-1] < result.curve_loss[0]
    assert result.measures["id_loss"] < 0.9 * run.variance, "the loss of the untrained network"
    assert result.curve_summary is not None
    names = {
        f"{judge}_{what}" for judge in ("probe", "oracle", "both", "agree") for what in ("seen", "level1", "level2", "least")
    }
    assert result.curve_summary.keys() == names | {f"{name.split('_')[0]}_{word}" for name in names for word in COMPOSITIONS}
    assert all(len(curve) == 3 and all(0 <= share <= 1 for share in curve) for curve in result.curve_summary.values())
    tokenizer = finished(tokenizer_of(spec)).result()
    assert tokenizer.curve_summary is not None
    assert tokenizer.curve_summary.keys() >= {"probe_111", "oracle_111", "oracle_level2", "probe_least"}
    assert tokenizer.measures["mse"] < 0.03
    made = pictures(finished(tokenizer_of(spec)).network, run.network.sample(run.held_out.inputs[:, 0], stream(0, "s")))
    assert made.shape == (8, 3, 16, 16)


@pytest.mark.slow(8)
def test_a_run_of_the_chain_is_a_function_of_its_spec() -> None:
    """Anew from its parents' weights, and continued from a state in the middle, it ends at the same bits."""
    specs = [generator("smoke", settings=settings) for settings in ON_CODES]
    for one in dict.fromkeys([*map(tokenizer_of, specs), *specs]):
        first, task = finished(one), trained(load_task(one.task), parents_of(one))
        half = Training(one, task)
        while half.step < 31:
            half.advance(0.0)
        again = Training(one, task)
        again.load_state_dict(half.state_dict())
        again.advance()
        assert again.result() == first.result()
        for name, value in first.network.state_dict().items():
            assert torch.equal(value, again.network.state_dict()[name]), name


def test_figures_are_the_same_settings_in_all_three_tasks() -> None:
    figures = {field.name: field.default for field in dataclasses.fields(ShapeSettings)}
    for kind in (ProbeSettings, TokenizerSettings, GeneratorSettings):
        assert figures.items() <= {field.name: field.default for field in dataclasses.fields(kind)}.items()
    assert seen_of(GeneratorSettings().holdout) == seen_of("train1")
