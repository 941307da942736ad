"""What the studies of generators have in common: their options, and the specs made of them.

Generators of pictures are trained over seeds, and asked for all compositions along the way. The probe that judges, and the
tokenizers, are runs that these need: they come first, by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any

from orchestrator.command import options as opt
from orchestrator.command.cli import checked, one_of
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.real_pictures import DataFolder, Dataset, pictures_of
from orchestrator.command.subject import option_of, read_pairs
from orchestrator.errors import UserError
from orchestrator.generator_checks import (
    check_counts,
    check_strides,
    check_used,
    distinct_conditionings,
    flag,
    layers_twice,
    named_as,
    named_split,
    never_seen,
    spare_channels,
    without_effect,
)
from orchestrator.generator_study import GeneratorStudy
from orchestrator.launch import LaunchOptions, launch
from orchestrator.versions import versions
from trainables.generative.chain import GENERATOR
from trainables.generative.settings import OF_WHICH, RENDERED, GeneratorSettings, meaningless
from trainables.generative.shapes import ShapeSettings
from trainables.generative.tiers import CHOOSING, FIGURES, TIERS, generator
from trainables.settings import RUN_SETTINGS, Setting, settings_of, value_of
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import load_task

KNOWN = settings_of(GeneratorSettings)
OPTIONS = {
    "decoder": "--families", "encoding": "--tokenizers", "conditioning": "--conditionings", "holdout": "--split",
    "dataset": "--dataset", "content": "--data", "max_steps": "--steps", "data_count": "--pool",
}  # fmt: skip
OF_FIGURES = settings_of(ShapeSettings)
MOST_PICTURES = 1_000_000


def _option(each: Setting, usual: str | None) -> Any:
    usual = usual or each.shown or str(FIGURES.get(each.name, each.default))
    allowed = ", ".join(f"`{word}`" for word in each.words) or _span(each)
    help = f"{each.help} Comma-separated{': ' * bool(allowed)}{allowed}."
    return Annotated[str | None, opt.subject(option_of(flag(each.name)), help=help, show_default=usual)]


def _span(each: Setting) -> str:
    """The numbers that a setting may have, in words; empty of others."""
    if each.low is None or each.high is None:
        return ""
    return f"{each.low:g} to {each.high:g}"


Tokenizers = Annotated[
    str, opt.asked(help="Comma-separated: `vae` (continuous latents), `vq` (codes). `maskgit` needs codes.")
]


def varied_by(*names: str, usual: Mapping[str, str] = MappingProxyType({})) -> type:
    """A group of options, one for each of these settings, whose values are separated by commas.

    Args:
        usual: what the help says of values that a study varies by itself.
    """
    fields: list[tuple[str, Any, Any]] = [(name, _option(KNOWN[name], usual.get(name)), field(default=None)) for name in names]
    return make_dataclass("Varied", fields, frozen=True, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """What is trained, and how, besides the families and what is varied."""

    tier: Annotated[
        str,
        opt.asked(
            help="Size of pictures, networks and training: `smoke` (minutes; shows that it runs), `coarse`, `toy`, `long`, "
            "`gpu` or `paper`."
        ),
    ] = "toy"
    split: Annotated[
        str, opt.asked(help="Seen compositions: `train1`, `fail1`, or a list such as 000,100 (shape, size, colour).")
    ] = "train1"
    dataset: Dataset = RENDERED
    data: DataFolder = None
    seeds: Annotated[
        int,
        opt.asked(
            min=1,
            max=1000,
            help="Seeds per setting; claims need three. One whose probe or tokenizer misses its gate is replaced by the next.",
        ),
    ] = 3
    first_seed: Annotated[
        int, opt.asked(min=0, max=1_000_000, help="The first seed. No claim counts those from 100 on: choose settings by them.")
    ] = 0
    option: opt.TaskOption = None
    pool: Annotated[
        int | None,
        opt.subject(min=8, max=MOST_PICTURES, help="Pictures that a generator learns from.", show_default="of the tier"),
    ] = None
    steps: Annotated[
        str | None, opt.trained(help="Optimizer steps of a run, comma-separated.", show_default="of the tier")
    ] = None
    batch_size: Annotated[
        int | None,
        opt.trained(min=1, max=LIMITS["batch_size"][1], help="Pictures per step.", show_default="of the tier"),
    ] = None
    lr: Annotated[float | None, opt.trained("--lr", help="Learning rate, above 0.", show_default="of the tier")] = None
    schedule: Annotated[
        str | None, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.", show_default="of the tier")
    ] = None
    weight_decay: Annotated[
        float | None, opt.trained(min=0, help="Weight decay of AdamW.", show_default="of the tier")
    ] = None
    precision: opt.Precision = "auto"


@dataclass(frozen=True, slots=True)
class Planned:
    """What the options of a study of generators ask for."""

    templates: Sequence[RunSpec]
    """A run for each setting, of seed 0."""
    seeds: range
    settings: Mapping[str, Any]
    """Those of the answer, but for where it is written."""
    values: Mapping[str, Sequence[Scalar]]
    """The values of each setting that was given some."""
    notes: Sequence[str]
    """What is left out, and what there is to say of the options; nothing of claims."""


def planned(
    asked: Mapping[str, Sequence[str]],
    varied: Mapping[str, str | None],
    options: GeneratorOptions,
    where: LaunchOptions,
    named: Mapping[str, str] = OPTIONS,
    usual: Mapping[str, str] = MappingProxyType({}),
) -> Planned:
    """All combinations of what was asked.

    Args:
        asked: the words of `families`, `tokenizers` and perhaps `conditionings`.
        varied: what the user gave of the settings that have an option of their own, by their names.
        named: what users call options of these settings.
        usual: the values, with commas between them, of those that a study varies by itself if the user gives none.

    Raises:
        UserError: what cannot be trained.
    """
    one_of("--tier", options.tier, tuple(TIERS))
    split, of_split = named_split(options.split)
    if options.schedule is not None:
        one_of("--schedule", options.schedule, SCHEDULES)
    texts = {each: usual.get(each) if text is None else text for each, text in varied.items()}
    values = {each: _values(KNOWN[each], text) for each, text in texts.items() if text is not None}
    own = {each: given for each, given in values.items() if varied[each] is not None}
    lengths = (None,) if options.steps is None else _values(RUN_SETTINGS["max_steps"], options.steps)
    always = OF_WHICH[: len(asked)]
    with_option = {*varied, *always, "holdout", "dataset", "content"}
    more = _more(options.option or [], with_option, named)

    def asks_for(name: str, word: str) -> str:
        """What asks for a word of a setting."""
        return f"{named.get(name) or option_of(flag(name))} {word}" if name in with_option else f"--option {name}={word}"

    of_figures = [*(option_of(flag(each)) for each in values if each in OF_FIGURES)]
    of_figures += [f"--option {each}" for each in more if each in (*OF_FIGURES, "probe_lessons", "probe_torn")]
    shown = pictures_of(options.dataset, options.data, of_figures)
    typed = {each: getattr(options, each) for each in ("batch_size", "lr", "schedule", "weight_decay")}
    fields: dict[str, Any] = {each: value for each, value in {"data_count": options.pool, **typed}.items() if value is not None}
    task = load_task(GENERATOR)

    @cache
    def precision_of(family: str) -> str:
        return opt.resolve_precision(options.precision, family, where.on_gpu(task, family))

    most = math.prod(map(len, (*asked.values(), *values.values(), lengths))) * options.seeds
    if most > MOST_PLANNED:
        raise UserError(f"{most} runs are too many (at most {MOST_PLANNED}): ask for fewer values, or fewer --seeds")
    given_ways = asked.get("conditionings") or (str(more.get("conditioning", "full")),)
    conditionings, notes = distinct_conditionings(given_ways, options.dataset, asks_for)
    templates: list[RunSpec] = []
    for family, tokenizer in itertools.product(asked["families"], asked["tokenizers"]):
        if family == "maskgit" and tokenizer != "vq":
            notes.append(f"left out: maskgit on {tokenizer}, as maskgit guesses codes, and a {tokenizer} has none")
            continue
        for conditioning in conditionings:
            given: dict[str, Scalar] = {**more, "decoder": family, "encoding": tokenizer, "conditioning": conditioning}
            given |= {"holdout": split, **shown}
            for chosen in _combinations(values, {"jepa": 0.0, **given}):
                for length in lengths:
                    of_run = fields | ({} if length is None else {"max_steps": length}) | {"precision": precision_of(family)}
                    templates.append(checked(generator, options.tier, 0, {**given, **chosen}, **of_run))
    if not templates:
        raise UserError(f"{named['decoder']} maskgit needs codes, and a vae has none: choose {named['encoding']} vq")
    check_strides(templates, options.tier, asks_for)
    check_counts(templates)
    check_used(own, templates, asks_for)
    notes += without_effect(more, templates, asks_for)
    if any(value_of(spec, "jepa") for spec in templates):
        layers = values.get("jepa_layers") or [str(more.get("jepa_layers", "three"))]
        notes += layers_twice([str(word) for word in layers], templates[0].depth, asks_for)
    notes += spare_channels(templates, asks_for)
    notes += [*of_split, *never_seen(split, options.dataset, templates)]
    settings = {
        **{"tier": options.tier, **asked, "split": split, **shown},
        **{"seeds": options.seeds, "first_seed": options.first_seed},
        **{flag(each): list(given) for each, given in values.items()},
        **{"steps": None if options.steps is None else list(lengths), **fields, "options": more},
        **{"precision": options.precision, "task_version": task.version, "store": where.store},
    }
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    return Planned(templates, seeds, settings, values, notes)


def _spares(seeds: range) -> int:
    """How many further seeds each setting may take: as many as were asked for, but where claims count the last of these, none
    that they do not count."""
    last = seeds[-1]
    return len(seeds) if last >= CHOOSING else min(len(seeds), CHOOSING - 1 - last)


def train(
    name: str, asked: Mapping[str, Sequence[str]], varied: Mapping[str, str | None], options: GeneratorOptions,
    where: LaunchOptions, usual: Mapping[str, str] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Train what is missing of all combinations, and table it; the exit code. See `planned`.

    Raises:
        UserError: what cannot be trained.
    """
    from analysis.generator_claims import out_of_reach, outside

    plan = planned(asked, varied, options, where, usual=usual)
    specs = [dataclasses.replace(template, seed=seed) for seed in plan.seeds for template in plan.templates]
    always = OF_WHICH[: len(asked)]
    about = {each: named_as(each) for each in (*always, *varied, "max_steps")}
    if "channels" not in plan.values:
        del about["channels"]  # it follows from the network
    spares = _spares(plan.seeds) if where.gates else 0
    notes = [*plan.notes, *out_of_reach(name, plan.templates), *outside(name, plan.templates, plan.settings["options"])]
    settings = {**plan.settings, "spares": spares, "out": where.folder(name), "versions": versions()}
    study = GeneratorStudy(name, load_task(GENERATOR), specs, settings, about, always, notes)
    return launch(study, where)


def _more(pairs: Sequence[str], with_option: Collection[str], named: Mapping[str, str]) -> dict[str, Scalar]:
    """The settings given by `--option`.

    Raises:
        UserError: one that has an option of its own, or as `read_pairs`.
    """
    for name in (pair.partition("=")[0] for pair in pairs):
        if name in with_option:
            raise UserError(f"--option {name} has an option of its own: use {named.get(name) or option_of(flag(name))}")
    return read_pairs({name: each for name, each in KNOWN.items() if name not in with_option}, pairs)


def _values(setting: Setting, text: str) -> tuple[Scalar, ...]:
    """The values of an option, each once.

    Raises:
        UserError: one that the setting may not have.
    """
    setting = dataclasses.replace(setting, name=flag(setting.name))
    return tuple(dict.fromkeys(checked(setting.check, checked(setting.read, word.strip())) for word in text.split(",")))


def _combinations(varied: Mapping[str, Sequence[Scalar]], given: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
    """All combinations, without the settings that mean nothing in them, each once. `given` has all OF_WHICH."""
    found = {}
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        others = meaningless({**given, **chosen})
        meant = {name: value for name, value in chosen.items() if name not in others}
        found[tuple(meant.items())] = meant
    return [*found.values()]
